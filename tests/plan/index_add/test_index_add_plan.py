"""The planner of index_add, tested without a GPU: the assumptions of the kernels hold for problems of any size. tests/emulation
tests the kernels."""

from __future__ import annotations

import ctypes
import json
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ...support.seeded import seeded

BOOL, UINT8, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = 0, 1, 3, 4, 5, 6, 7, 8, 9
ITEM = {BOOL: 1, UINT8: 1, INT16: 2, INT32: 4, INT64: 8, FLOAT16: 2, BFLOAT16: 2, FLOAT32: 4, FLOAT64: 8}
HALVES, INEXACT = (FLOAT16, BFLOAT16), (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)
SORTED, BINS, LINES = "sorted", "bins", "lines"
ATOMIC, TILES, HOT = ADDITIONS = "atomic", "tiles", "hot"
FAST, DETERMINISTIC, ACCURATE = range(3)
BASE = 1 << 20
GRID = 2**31 - 1


@pytest.fixture(scope="module")
def planner():
    library = load("plan/index_add")
    library.plans.restype = ctypes.c_char_p
    return library


class Problem:
    """self of `sizes`, innermost dimension first, and a source with `entries` in dimension `dim`. Both are dense by default."""

    def __init__(self, sizes, dim, entries, dtype=FLOAT32, mode=FAST, strides=None, offset=0, index=BASE):
        self.sizes, self.dim, self.entries, self.dtype, self.mode = list(sizes), dim, entries, dtype, mode
        self.given, self.address, self.index = strides, BASE + offset * ITEM[dtype], index

    def __repr__(self):
        return f"{self.__dict__}"

    def source_sizes(self):
        return [self.entries if d == self.dim else n for d, n in enumerate(self.sizes)]

    def strides(self):
        if self.given is not None:
            return self.given
        return tuple([math.prod(sizes[:d]) for d in range(len(sizes))] for sizes in (self.sizes, self.source_sizes()))

    def slices(self, planner, sms=132, shared=227 << 10):
        """The launches: the part of the problem that each adds, and its plan."""
        rank = len(self.sizes)
        array = ctypes.c_int64 * rank
        into, source = self.strides()
        text = planner.plans(
            rank,
            self.dim,
            array(*self.sizes),
            ctypes.c_int64(self.entries),
            array(*into),
            array(*source),
            ctypes.c_uint64(self.address),
            ctypes.c_uint64(self.address),
            ctypes.c_uint64(self.index),
            self.dtype,
            self.mode,
            sms,
            shared,
        )
        vec = 16 // ITEM[self.dtype]  # tiles always have vectors
        return [SimpleNamespace(**{"values": vec} | launch) for launch in json.loads(text)]


def check(problem: Problem, planner, sms: int, shared: int = 227 << 10) -> None:
    slices = problem.slices(planner, sms, shared)
    bins, others = problem.sizes[problem.dim], math.prod(n for d, n in enumerate(problem.sizes) if d != problem.dim)
    # Every value is in exactly one slice.
    assert sum(v.entries * v.inner * v.outer_size for v in slices) == problem.entries * others
    assert len({(v.first, v.self_offset, v.source_offset) for v in slices}) == len(slices)
    item = ITEM[problem.dtype]
    for v in slices:
        check_numbers(problem, planner, v.entries, bins, v, sms, shared)
        assert v.path in (BINS, LINES) or v.values * v.units == v.inner
        if v.path in (BINS, LINES):
            check_neighbours(problem, v.source_offset, v)
        elif v.values > 1:  # accesses are aligned
            access = v.values * item
            assert access in (4, 16) and v.inner_self_stride == v.inner_source_stride == 1
            assert (problem.address + v.self_offset) % access == (problem.address + v.source_offset) % access == 0
            assert v.inner % v.values == 0
    if problem.mode == DETERMINISTIC and problem.dtype in INEXACT:
        assert {v.path for v in slices} <= {SORTED, LINES}
    if problem.mode == ACCURATE and problem.dtype in HALVES:
        assert {v.path for v in slices}.isdisjoint(ADDITIONS)


def check_neighbours(problem: Problem, source: int, v: SimpleNamespace) -> None:
    """Checks that entries that are read together are adjacent, and that a thread's vectors are aligned."""
    assert v.values in ((1, 4) if v.path == BINS else (1, 2))
    if v.values == 1:
        return
    access = min(v.values * ITEM[problem.dtype], 16)
    _, strides = problem.strides()
    assert v.inner == 1 and strides[problem.dim] == 1 and (problem.address + source) % access == 0
    for size, stride in zip(problem.source_sizes(), strides, strict=True):
        assert size == 1 or stride == 1 or stride * ITEM[problem.dtype] % access == 0
    if v.path == BINS:
        assert v.outer_group == 1 and problem.index % 16 == 0 and v.split_values % v.values == 0


def check_numbers(
    problem: Problem, planner, entries: int, bins: int, v: SimpleNamespace, sms: int, shared: int
) -> None:
    """Checks that all numbers fit into the kernels' arguments and buffers."""
    assert v.num_outer <= planner.max_outer_dims()
    assert max(entries, v.inner, v.outer_size) <= 2**30
    assert v.blocks <= GRID
    if v.path == ATOMIC:
        assert v.thread_units in (1, 2, 3, 4)
        if v.block_sums:
            assert v.values * ITEM[problem.dtype] < 16 and problem.dtype != BOOL and entries >= 2048
        assert v.blocks == -(-v.units * entries * v.outer_size // (256 * v.thread_units))
    elif v.path == TILES:
        thread_units = min(max(v.units * entries * v.outer_size // (256 * sms), 1), 4)
        assert v.tile_units <= 16
        assert v.tile_rows * v.tile_units <= 256 * thread_units < (v.tile_rows + 1) * v.tile_units
        # With half as many threads, each has one row and processes four units in two iterations.
        assert v.threads == (128 if thread_units == 4 and v.tile_rows <= 128 else 256)
        assert v.blocks == -(-v.units // v.tile_units) * -(-entries // v.tile_rows) * v.outer_size
    elif v.path == HOT:
        assert 0 < v.hot_bins <= 256 and v.blocks <= 3 * sms
    elif v.path == SORTED:
        assert v.lanes in (1, 2, 4, 8, 16, 32) and v.tiles * v.lanes >= v.units > (v.tiles - 1) * v.lanes
        assert v.tiles == 1 or v.tiles * v.lanes * 4 <= v.units * 5
        assert v.range_entries == 32 // v.lanes * v.group_entries and v.group_entries <= 32
        assert v.range_entries % 32 == 0 and v.tasks == -(-entries // v.range_entries) * v.tiles * v.outer_size < 2**32
        assert v.warp_rows <= v.part_rows
        slots = 2 * (entries // v.part_rows) if entries > v.part_rows else 0
        assert v.sum_bytes <= 80 * entries and v.num_zeroed == 3 + slots * v.outer_size * v.tiles < 2**32
        assert bins <= 2 ** (64 - v.position_bits) and entries <= 2**v.position_bits
        assert 2 ** (v.passes * v.digit_bits) >= bins and v.digit_bits <= planner.max_digit_bits()
        tile = v.sort_tile
        assert v.sort_blocks * v.block_entries >= entries > (v.sort_blocks - 1) * v.block_entries
        most = 1 if v.one_tile else min(sms, planner.max_sort_blocks())
        assert v.sort_blocks <= most and v.sort_blocks * v.block_entries < 2**32
        assert v.sort_bytes <= shared and v.block_entries % tile == 0 and (not v.one_tile or v.block_entries == tile)
    elif v.path == LINES:
        assert v.inner == 1 and entries <= planner.max_line_entries() and bins < 2**16
        assert v.thread_entries % 4 == 0 and entries <= v.thread_entries * planner.line_threads() < entries + 4096
        assert v.outer_group in (1, 2, 4) and v.outer_group * ITEM[problem.dtype] <= 8
        assert v.outer_group == 1 or v.outer_size >= v.outer_group * sms
        cells = -(-entries // 16) * 16 * v.outer_group * ITEM[problem.dtype]
        assert cells + bins * v.outer_group * item_of_sum(problem) <= v.shared_bytes <= 96 << 10
    else:
        assert v.splits * v.split_values >= entries * v.inner
        assert v.copies * v.outer_group * bins * v.inner * item_of_sum(problem) <= 160 << 10
        assert v.copies in (1, 2, 4, 8, 16, 32, 64, 128) and entries * v.inner <= GRID
        assert v.splits >= 1 and v.outer_size * v.splits <= GRID and v.shared_bytes <= shared
        assert v.splits == 1 or v.outer_size * v.splits <= sms


def item_of_sum(problem: Problem) -> int:
    return 8 if ITEM[problem.dtype] == 8 else 4


SIZES = [1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 48, 64, 100, 128, 256, 1000, 1024, 4096, 2**16 + 1, 2**20]


@st.composite
def problems(draw):
    """Problems with up to 2^37 values in self and in the source, more than any machine's memory."""
    sizes = draw(st.lists(st.sampled_from([*SIZES, 2**30, 2**31, 2**32 + 5]), min_size=1, max_size=6))
    dim = draw(st.integers(0, len(sizes) - 1))
    entries = draw(st.sampled_from([*SIZES, 2**24, 2**30, 2**30 + 1, 2**31 + 7, 2**33]))
    while math.prod(sizes) > 2**37:
        sizes[sizes.index(max(sizes))] //= 64
    while math.prod(sizes) // sizes[dim] * entries > 2**37:
        entries = max(entries // 64, 1)
        if entries == 1:
            sizes[max((d for d in range(len(sizes)) if d != dim), key=lambda d: sizes[d], default=dim)] = 1
    dtype, mode = draw(st.sampled_from(list(ITEM))), draw(st.integers(0, 2))
    strides = None
    if draw(st.booleans()):
        strides = []
        for shape in (sizes, [entries if d == dim else n for d, n in enumerate(sizes)]):
            own, step = [0] * len(shape), draw(st.sampled_from([1, 1, 2]))
            for d in draw(st.permutations(range(len(shape)))):
                own[d] = step
                step = step * shape[d] + draw(st.sampled_from([0, 0, 1, 4, 16]))
            strides.append(own)
        if draw(st.integers(0, 3)) == 0:
            strides[1] = [0 if draw(st.booleans()) else s for s in strides[1]]
    return Problem(sizes, dim, entries, dtype, mode, strides, draw(st.sampled_from([0, 0, 0, 1, 3, 8])))


@seeded(500)
@given(
    problem=problems(),
    sms=st.sampled_from([1, 16, 132, 300]),
    shared=st.sampled_from([48 << 10, 64 << 10, 99 << 10, 227 << 10]),
)
def test_any_problem_has_valid_plans(planner, problem, sms, shared):
    check(problem, planner, sms, shared)


@pytest.mark.parametrize(
    ("problem", "path", "values", "lanes"),
    [
        (Problem([128, 169343], 1, 2**20), SORTED, 4, 32),
        (Problem([128, 169343], 1, 2**20, BFLOAT16), SORTED, 8, 16),
        (Problem([128, 169343], 1, 2**20, INT64), SORTED, 2, 32),
        (Problem([100, 169343], 1, 2**20), SORTED, 4, 32),
        (Problem([33, 169343], 1, 2**20, BFLOAT16, DETERMINISTIC), SORTED, 1, 8),
        (Problem([50, 169343], 1, 2**20, BFLOAT16, DETERMINISTIC), SORTED, 2, 32),
        (Problem([128, 169343], 1, 2**20, offset=1), SORTED, 1, 32),
        (Problem([128, 65536], 1, 2**18), SORTED, 4, 32),
        (Problem([512, 16384], 1, 65536), SORTED, 4, 32),
        (Problem([32, 65536], 1, 2**18, FLOAT64), SORTED, 2, 16),
        (Problem([64, 2**17], 1, 2**20, FLOAT16), TILES, 8, None),
        (Problem([64, 65536], 1, 2**18), TILES, 4, None),
        (Problem([47, 5232], 1, 35258, BFLOAT16), TILES, 8, None),
        (Problem([64, 5232], 1, 35258, BFLOAT16, offset=1), TILES, 8, None),
        (Problem([15, 5232], 1, 35258, BFLOAT16), ATOMIC, 1, None),
        (Problem([16, 1200], 1, 2679), ATOMIC, 4, None),
        (Problem([8, 6832], 1, 10134), ATOMIC, 4, None),
        (Problem([8, 6832], 1, 32768), TILES, 4, None),
        (Problem([8, 6832, 2], 1, 10134), TILES, 4, None),
        (Problem([1024, 65536], 1, 16384), TILES, 4, None),
        (Problem([1024, 32768], 1, 15), ATOMIC, 4, None),
        (Problem([1024, 32768], 1, 15, BFLOAT16, ACCURATE), SORTED, 8, 32),
        (Problem([2**25], 0, 15), ATOMIC, 1, None),
        (Problem([2**25], 0, 15, FLOAT32, DETERMINISTIC), SORTED, 1, 1),
        (Problem([1024], 0, 2**24), BINS, 4, None),
        (Problem([1024], 0, 2**24, offset=1), BINS, 1, None),
        (Problem([1024], 0, 2**24, index=BASE + 8), BINS, 1, None),
        (Problem([1024, 3], 0, 2**24), BINS, 4, None),
        (Problem([1024, 3], 0, 2**24 + 2), BINS, 1, None),
        (Problem([2, 1024], 1, 2**24), BINS, 1, None),
        (Problem([1024], 0, 2**24, FLOAT32, DETERMINISTIC), SORTED, 1, 1),
        (Problem([1024], 0, 2**24, INT32, DETERMINISTIC), BINS, 4, None),
        (Problem([1024, 4096], 0, 8192), LINES, 2, None),
        (Problem([1024, 4096], 0, 8192, BFLOAT16, DETERMINISTIC), LINES, 2, None),
        (Problem([1024, 4096], 0, 8191), LINES, 1, None),
        (Problem([1024, 4096], 0, 65536), BINS, 1, None),
        (Problem([1024, 8], 0, 8192), ATOMIC, 1, None),
        (Problem([1024, 8], 0, 32768), BINS, 4, None),
        (Problem([1024, 8], 0, 8192, FLOAT32, DETERMINISTIC), LINES, 2, None),
        (Problem([2**20], 0, 2**24), HOT, 1, None),
    ],
    ids=lambda value: repr(value) if isinstance(value, int) else "",
)
def test_paths_of_common_problems(planner, problem, path, values, lanes):
    (plan,) = problem.slices(planner)
    assert (plan.path, plan.values) == (path, values) and lanes == getattr(plan, "lanes", None)


@pytest.mark.parametrize(
    ("problem", "rows", "units"),
    [
        (Problem([64, 2**17], 1, 2**20, FLOAT16), 128, 8),
        (Problem([16, 65536], 1, 2**20, FLOAT16), 512, 2),
        (Problem([1024, 65536], 1, 16384), 64, 16),
        (Problem([68, 65536], 1, 2**18), 113, 9),  # two tiles, of nine units and of eight
        (Problem([16, 5000], 1, 16384), 64, 4),  # one unit per thread
    ],
)
def test_tiles_whose_rows_of_a_bin_are_summed(planner, problem, rows, units):
    (plan,) = problem.slices(planner)
    assert (plan.path, plan.tile_rows, plan.tile_units) == (TILES, rows, units)


@pytest.mark.parametrize(
    ("problem", "path"),
    [
        (Problem([16, 5000], 1, 1023), ATOMIC),
        (Problem([4, 65536], 1, 2**21), HOT),
        (Problem([15, 65536], 1, 2**19), HOT),
        (Problem([64, 5000], 1, 4096, BOOL), ATOMIC),
    ],
)
def test_rows_that_tiles_do_not_support(planner, problem, path):
    assert [plan.path for plan in problem.slices(planner)] == [path]


@pytest.mark.parametrize(
    ("problem", "sums"),
    [
        (Problem([1024], 0, 20589, BFLOAT16), 1),
        (Problem([1023], 0, 4096, BFLOAT16), 0),  # a block has several units of each destination by chance
        (Problem([2**20], 0, 944692, BFLOAT16), 1),
        (Problem([6, 5000], 1, 4096, FLOAT16), 1),
        (Problem([2**20], 0, 2047), 0),
        (Problem([2**20], 0, 20000, BOOL), 0),
        (Problem([2**32 - 1], 0, 20000), 0),  # destinations are numbered in 32 bits
        (Problem([2**32 - 2], 0, 20000), 1),
        (Problem([4, 5000], 1, 4096), 0),
    ],
)
def test_blocks_sum_units_of_less_than_16_bytes(planner, problem, sums):
    (plan,) = problem.slices(planner)
    assert (plan.path, plan.block_sums) == (ATOMIC, sums)


@pytest.mark.parametrize(
    ("problem", "path"),
    [
        (Problem([253], 0, 20589, BFLOAT16), BINS),  # 12 us of additions to each of 4 lines
        (Problem([7, 17], 1, 6199, BFLOAT16), BINS),
        (Problem([9, 17], 1, 6199, BFLOAT16), ATOMIC),
        (Problem([8, 17], 1, 6199, BFLOAT16), ATOMIC),  # a row is one addition
        (Problem([253], 0, 4096, BFLOAT16), ATOMIC),
        (Problem([253], 0, 20589, BOOL), ATOMIC),
    ],
)
def test_additions_that_queue_up_in_few_lines_take_bins(planner, problem, path):
    assert [plan.path for plan in problem.slices(planner)] == [path]


@pytest.mark.parametrize("dtype", [UINT8, BFLOAT16, FLOAT32, FLOAT64])
@pytest.mark.parametrize("entries", [1000, 6000, 8192, 11000, 16384])
def test_lines_where_blocks_have_less_shared_memory(planner, dtype, entries):
    """Turing's blocks have 64 KiB of shared memory."""
    for shared in (64 << 10, 99 << 10, 227 << 10):
        (plan,) = Problem([200, 4096], 0, entries, dtype).slices(planner, 60, shared)
        if plan.path == LINES:
            assert max(plan.shared_bytes, 4 * entries) + (5 << 10) <= shared
        if entries <= 6000:
            assert plan.path == LINES


def test_lanes_run_along_the_dimension_with_the_shortest_strides(planner):
    """For images that is the width, in channels_last the channels, and the entries if these have the shortest stride."""
    width, height, channels, batch = 28, 14, 64, 8
    for dim, strides, inner in [
        (2, [1, 28, 392, 392 * 64], 28 * 14),
        (2, [64, 64 * 28, 1, 392 * 64], 1),  # channels_last, along channels
        (3, [64, 64 * 28, 1, 392 * 64], 64 * 28 * 14),
        (0, [1, 28, 392, 392 * 64], 1),
    ]:
        problem = Problem(
            [width, height, channels, batch], dim, [width, height, channels, batch][dim], strides=(strides, strides)
        )
        (plan,) = problem.slices(planner)
        assert plan.inner == inner


def test_more_dimensions_than_a_launch_walks(planner):
    sizes = [3, 2, 5, 2, 7, 2, 4, 2]
    strides = [2 * math.prod(sizes[:d]) * (d + 1) for d in range(len(sizes))]
    slices = Problem(sizes, 3, 2, strides=(strides, strides)).slices(planner)
    assert len(slices) == 2 * 2  # only the shortest dimensions are split one by one
    check(Problem(sizes, 3, 2, strides=(strides, strides)), planner, 132)


@pytest.mark.parametrize("dtype", [UINT8, FLOAT16])
@pytest.mark.parametrize("bins", [2**31, 2**34, 2**34 + 1, 2**36])
def test_bins_that_32_bits_do_not_hold(planner, dtype, bins):
    for mode in (FAST, DETERMINISTIC):
        check(Problem([bins], 0, 2**31, dtype, mode), planner, 132)
