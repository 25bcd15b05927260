"""The launchers and kernels of index_add, run on the CPU on random problems and compared with numpy: every path.

test_index_add_sort.py tests the sort, and test_index_add_lines.py tests few bins and lines.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..dtypes import BOOL, F16, F32, FLOAT, TYPES, Operand
from .index_add_model import (
    ACCURATE,
    ATOMIC,
    DETERMINISTIC,
    DISTRIBUTIONS,
    FAST,
    HOT,
    PATHS,
    REAL,
    SORTED,
    TILES,
    WIDE,
    distributions,
    indices,
    run_and_compare,
    set_limits,
)


@st.composite
def problems(draw):
    sizes = draw(
        st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 8, 16, 17, 33, 64, 128, 130, 260]), min_size=1, max_size=4)
    )
    dim = draw(st.integers(0, len(sizes) - 1))
    others = [n for d, n in enumerate(sizes) if d != dim]
    while math.prod(others) > 1500:
        others[others.index(max(others))] = 1
    sizes = others[:dim] + [draw(st.sampled_from([1, 2, 3, 15, 100, 513, 700, 5000]))] + others[dim:]
    entries = draw(st.sampled_from([1, 2, 3, 31, 32, 33, 100, 257, 1000, 4097, 9000]))
    while entries * math.prod(others) > 150000 or sizes[dim] * math.prod(others) > 150000:
        entries, sizes[dim] = max(entries // 3, 1), max(sizes[dim] // 3, 1)
    dtype = draw(st.sampled_from(REAL))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    plain = draw(st.integers(0, 2)) > 0

    def operand(shape, expandable):
        strides, step = [0] * len(shape), 1
        order = range(len(shape)) if plain else draw(st.permutations(range(len(shape))))
        for d in order:
            strides[d] = step
            step = step * shape[d] + (0 if plain else draw(st.sampled_from([0, 0, 1, 4, 16])))
        if expandable and not plain and draw(st.integers(0, 4)) == 0:
            strides = [0 if draw(st.booleans()) else s for s in strides]
        made = Operand(dtype, shape, strides, draw(st.sampled_from([0, 0, 1, 3, 8])), random)
        if dtype.category == FLOAT:
            for buffer in (made.buffer, made.before):
                buffer[buffer == 0] = -0.0
        return made

    source_shape = [entries if d == dim else n for d, n in enumerate(sizes)]
    index = indices(draw(st.sampled_from(DISTRIBUTIONS)), entries, sizes[dim], random)
    index = index.astype(draw(st.sampled_from([np.int64, np.int32])))
    if draw(st.integers(0, 3)) == 0:
        index = np.repeat(index, 3)[::3]
    alpha = draw(st.sampled_from([1, 1, 1, 0, 2, -1] if dtype.category != BOOL else [1, 0]))
    return operand(sizes, False), operand(source_shape, True), dim, index, alpha, draw(st.integers(0, 2))


def test_any_problem(index_add):
    taken = set()

    @seeded(250)
    @given(
        problem=problems(),
        sms=st.sampled_from([1, 4, 64]),
        limits=st.fixed_dictionaries(
            {
                "sort_source_bytes": st.sampled_from([0, 4096, 24 << 20]),
                "min_bin_values": st.sampled_from([0, 500, 1 << 15]),
                "launch_size": st.sampled_from([50, 1 << 30]),
                "max_parts": st.sampled_from([2, 1024]),
                "position_bits": st.sampled_from([7, 30, 30]),
                "min_hot_values": st.sampled_from([0, 1 << 20]),
                "min_tile_entries": st.sampled_from([0, 0, 1024]),
                "sort_traffic": st.sampled_from([-(2**50), 118_000_000]),
                "min_block_sums": st.sampled_from([0, 1024]),
            }
        ),
    )
    def check(problem, sms, limits):
        set_limits(index_add, **limits)
        run = run_and_compare(index_add, *problem, sms)
        taken.add(run.path)

    check()
    assert taken | {HOT} == set(PATHS)  # frequent bins have tests of their own


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_stretches_of_an_index_with_gaps(index_add, dtype):
    """More entries than one sort can number, in an index that is every third value of an array."""
    set_limits(index_add, position_bits=7)
    random = np.random.default_rng(7)
    self, source = (Operand(TYPES[7], [8, rows], [1, 8], 0, random) for rows in (90, 700))
    index = np.repeat(indices("uniform", 700, 90, random).astype(dtype), 3)[::3]
    assert run_and_compare(index_add, self, source, 1, index, mode=DETERMINISTIC).path == SORTED


@pytest.mark.parametrize("width, lanes", [(1, 1), (2, 2), (8, 2), (12, 4), (20, 8), (64, 16), (128, 32), (130, 32)])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_rows_by_few_and_many_lanes(index_add, distribution, width, lanes):
    set_limits(index_add)
    random = np.random.default_rng(width)
    self = Operand(TYPES[7], [width, 90], [1, width], 0, random)
    source = Operand(TYPES[7], [width, 700], [1, width], 0, random)
    taken = run_and_compare(index_add, self, source, 1, indices(distribution, 700, 90, random), mode=DETERMINISTIC)
    assert (taken.path, taken.lanes) == (SORTED, lanes)


@pytest.mark.parametrize(
    "width, path", [(1, ATOMIC), (3, ATOMIC), (8, ATOMIC), (64, TILES), (66, ATOMIC), (264, TILES)]
)
def test_halves_added_to_float32(index_add, width, path):
    """Values, pairs and vectors of half types, and tiles of rows."""
    set_limits(index_add, min_tile_entries=500, min_block_sums=500)
    for k, distribution in enumerate(("uniform", "equal", "zipf")):
        random = np.random.default_rng(width)
        source = Operand(F16, [width, 1100], [1, width + 8 * k], 0, random)
        self = Operand(F32, [width, 300], [1, width + 8 * (k % 2)], 0, random)
        run = run_and_compare(index_add, self, source, 1, indices(distribution, 1100, 300, random), -2 + k, WIDE)
        assert run.path == path
        assert path == ATOMIC or run.wide_self


@pytest.mark.parametrize("mode, path", [(FAST, TILES), (DETERMINISTIC, SORTED)])
@pytest.mark.parametrize("dtype, width", [(TYPES[6], 64), (TYPES[7], 64), (TYPES[8], 52)], ids=str)
def test_slices_of_vecs(index_add, mode, path, dtype, width):
    """Rows too long for one launch are split into halves that are whole vectors."""
    set_limits(index_add, launch_size=50)
    random = np.random.default_rng(width)
    self = Operand(dtype, [width, 70], [1, width], 0, random)
    source = Operand(dtype, [width, 1100], [1, width], 0, random)
    taken = run_and_compare(index_add, self, source, 1, indices("hot", 1100, 70, random), mode=mode)
    assert (taken.path, taken.slices) == (path, 2)
    assert path == TILES or taken.values == 16 // self.buffer.itemsize


@pytest.mark.parametrize("dtype", [TYPES[6], TYPES[7], TYPES[8]], ids=str)
@pytest.mark.parametrize("width", [1, 2, 7, 16, 128, 132, 150])
def test_long_segments_in_parts(index_add, dtype, width):
    """Some bins get thousands of rows. After sorting, such a segment is split into parts, up to a dozen."""
    set_limits(index_add)
    random = np.random.default_rng(width)
    bins, entries = 600, 9000 if width < 100 else 3000
    self = Operand(dtype, [width, bins], [1, width], 0, random)
    source = Operand(dtype, [width, entries], [1, width], 0, random)
    for distribution in {"hot", *distributions(width + dtype.number)}:
        index = indices(distribution, entries, bins, random)
        taken = run_and_compare(index_add, self, source, 1, index, mode=DETERMINISTIC)
        assert taken.path == SORTED
        assert taken.scratch <= 40 * entries + (1 << 16)


@pytest.mark.parametrize("dtype, mode", [(TYPES[8], FAST), (TYPES[6], DETERMINISTIC), (TYPES[6], ACCURATE)], ids=str)
@pytest.mark.parametrize(
    "bins, entries, outer", [(8, 64, (2, 8, 4, 2, 4)), (8, 64, (8, 2, 2, 2, 2, 3)), (100, 900, (2, 3, 2, 2, 2))]
)
def test_more_outer_dimensions_than_a_launch_supports(index_add, dtype, mode, bins, entries, outer):
    """The problem is split into slices with the layout of the whole, even if a slice alone would have another innermost
    dimension."""
    random = np.random.default_rng(entries)
    slices = []
    for limits in ({}, {"min_bin_values": 0, "sort_source_bytes": 0}):
        set_limits(index_add, **limits)
        for order in (range(len(outer)), [1, *reversed(range(2, len(outer))), 0], reversed(range(len(outer)))):
            # The indexed dimension is innermost in self. In the source it follows the first dimension of `order`.
            self = Operand(dtype, [bins, *outer], np.cumprod([1, bins, *outer[:-1]]).tolist(), 0, random)
            first, *others = order
            strides, step = {first: 1}, outer[first]
            for d in (None, *others):
                strides[d] = step
                step *= entries if d is None else outer[d]
            source_strides = [strides[None], *(strides[d] for d in range(len(outer)))]
            source = Operand(dtype, [entries, *outer], source_strides, 0, random)
            taken = run_and_compare(index_add, self, source, 0, random.integers(0, bins, entries), mode=mode)
            slices.append(taken.slices)
            assert taken.scratch <= 40 * entries + (1 << 16)
    assert max(slices) > 1


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "dtype, width, values",
    [
        (6, 1, 1),
        (6, 6, 2),
        (6, 3, 1),
        (7, 1, 1),
        (7, 3, 1),
        (8, 1, 1),
        (5, 1, 1),
        (4, 1, 1),
        (3, 2, 2),
        (1, 4, 4),
        (2, 1, 1),
    ],
)
def test_sums_of_a_block(index_add, distribution, dtype, width, values):
    """Warps and blocks sum units of less than 16 bytes. Blocks have one unit per thread or four, and the last one is partial."""
    set_limits(index_add)
    random = np.random.default_rng(width + dtype)
    bins, entries = 3000, 2700
    index = indices(distribution, entries, bins, random)
    for sms, offset, gap in ((1, 0, 0), (64, 1, 5)):
        self = Operand(TYPES[dtype], [width, bins], [1, width + gap], offset, random)
        source = Operand(TYPES[dtype], [width, entries], [1, width], 0, random)
        for array in (self.buffer, self.before):
            self.view(array)[::2] = 0 if TYPES[dtype].category != FLOAT else -0.0
        taken = run_and_compare(index_add, self, source, 1, index, alpha=-2, sms=sms)
        assert (taken.path, taken.block_sums) == (ATOMIC, 1)
        assert taken.values == (values if offset == 0 else 1)
        assert taken.thread_units == 1 or sms == 1


def test_as_many_sums_of_a_block_as_there_are_slots_for(index_add):
    """Every destination is named by three lanes of a warp, the least that a block sums."""
    set_limits(index_add)
    random = np.random.default_rng(0)
    self, source = (Operand(TYPES[7], [1, count], [1, 1], 0, random) for count in (5000, 4096))
    index = np.concatenate([np.repeat(random.permutation(5000)[:10], 4)[:32] for _ in range(128)])
    index[2::32] = 4999
    assert run_and_compare(index_add, self, source, 1, index, sms=1).thread_units == 4


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "dtype, width, values",
    [(TYPES[6], 1, 1), (TYPES[6], 6, 2), (TYPES[7], 1, 1), (TYPES[7], 3, 1), (TYPES[5], 3, 1), (TYPES[1], 4, 4)],
)
def test_frequent_bins(index_add, distribution, dtype, width, values):
    set_limits(index_add, min_hot_values=0)
    random = np.random.default_rng(width)
    bins, entries = 30000 // width, 5000
    index = indices(distribution, entries, bins, random)
    self = Operand(dtype, [width, bins], [1, width], 0, random)
    source = Operand(dtype, [width, entries], [1, width], 0, random)
    taken = run_and_compare(index_add, self, source, 1, index, sms=2)
    assert (taken.path, taken.values) == (HOT, values) and taken.hot_bins > 0


@pytest.mark.parametrize("dtype", [TYPES[6], TYPES[7], TYPES[8]], ids=str)
@pytest.mark.parametrize("bins", [3, 300, 1700, 4000])
@pytest.mark.parametrize("entries", [2000, 5001])
def test_runs_of_a_sorted_index(index_add, dtype, bins, entries):
    """Neighbouring threads sum the values of one bin. Some of the bins are frequent, too."""
    set_limits(index_add, min_hot_values=0)
    random = np.random.default_rng(bins)
    self = Operand(dtype, [1, 30000], [1, 1], 1, random)
    source = Operand(dtype, [1, entries], [1, 1], 0, random)
    index = np.sort(random.integers(0, bins, entries))
    for sms in (1, 3):
        assert run_and_compare(index_add, self, source, 1, index, alpha=2, sms=sms).path == HOT
        self.before[:] = self.buffer


def test_more_frequent_bins_than_there_is_room_for(index_add):
    set_limits(index_add, min_hot_values=0)
    random = np.random.default_rng(0)
    bins, entries, width = 100, 5000, 12
    index = indices("uniform", entries, bins, random)
    self = Operand(TYPES[1], [width, bins], [1, width], 0, random)
    source = Operand(TYPES[1], [width, entries], [1, width], 0, random)
    assert run_and_compare(index_add, self, source, 1, index, sms=2).hot_bins < bins


@pytest.mark.parametrize("sms", [1, 64])  # several units per thread, and one
@pytest.mark.parametrize(
    "dtype, width, units",
    [
        (TYPES[6], 16, 2),
        (TYPES[6], 64, 8),
        (TYPES[6], 40, 5),
        (TYPES[6], 136, 9),  # two adjacent tiles, the last with one unit less
        (TYPES[6], 47, 6),  # rows that begin anywhere, with a partial last unit
        (TYPES[6], 33, 5),
        (TYPES[6], 131, 9),
        (TYPES[7], 8, 2),
        (TYPES[7], 132, 11),
        (TYPES[8], 4, 2),
        (TYPES[5], 6, 3),
        (TYPES[4], 64, 16),
        (TYPES[3], 16, 2),
    ],
)
def test_rows_of_a_bin_are_summed_by_tiles(index_add, sms, dtype, width, units):
    """Tiles sum the rows of a bin. The last tile may be partial, and there may be several outer indices."""
    set_limits(index_add)
    random = np.random.default_rng(width)
    bins, entries = 900, 1300
    for outer, distribution in itertools.product((1, 2), distributions(width + sms)):
        index = indices(distribution, entries, bins, random)
        # With these strides, the outer indices do not merge with another dimension.
        self = Operand(dtype, [width, outer, bins], [1, width, 4 * width], 0, random)
        source = Operand(dtype, [width, outer, entries], [1, width + 16, 4 * width + 32], 0, random)
        for array in (self.buffer, self.before):
            self.view(array)[::2] = 0 if dtype.category != FLOAT else -0.0
        taken = run_and_compare(index_add, self, source, 2, index, alpha=-2, sms=sms)
        assert taken.path == TILES
        assert taken.tile_rows >= 256 // units if sms == 64 else taken.tile_rows == 1024 // units


@pytest.mark.parametrize("offset", [0, 1])
def test_a_half_beside_a_sum_stays_minus_zero(index_add, offset):
    """An addition to one half of a 4-byte word also writes the other half, whose -0.0 must stay."""
    set_limits(index_add)
    random = np.random.default_rng(offset)
    self, source = Operand(TYPES[6], [1, 999], [1, 1], offset, random), Operand(TYPES[6], [1, 100], [1, 1], 0, random)
    for array in (self.buffer, self.before):
        self.view(array)[...] = -0.0
    taken = run_and_compare(index_add, self, source, 1, 2 * random.integers(0, 500, 100))
    assert (taken.path, taken.values) == (ATOMIC, 1)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("width, path", [(16, TILES), (6, HOT), (6, ATOMIC)])
def test_sums_that_float16_does_not_hold(index_add, sign, width, path):
    """The sum of the source exceeds float16, but the result -60000 + 3 x 30000 does not. The kernel adds 65504 and 24496."""
    set_limits(index_add, min_hot_values=1 << 20 if path == ATOMIC else 0)
    random = np.random.default_rng(0)
    bins, entries = 2000, 1300
    self = Operand(TYPES[6], [width, bins], [1, width], 0, random)
    source = Operand(TYPES[6], [width, entries], [1, width], 0, random)
    index = random.integers(0, bins - 1, entries)
    index[[5, 6, 9]] = bins - 1
    if path == HOT:  # the bin must be frequent in a sample of 1024 entries
        index[:] = random.integers(0, bins - 1, entries)
        index[::2] = bins - 1
    for array in (source.buffer, source.before):
        source.view(array)[...] = -0.0
        source.view(array)[[0, 2, 4] if path == HOT else [5, 6, 9]] = 30000 * sign
    for array in (self.buffer, self.before):
        self.view(array)[bins - 1] = -60000 * sign
    taken = run_and_compare(index_add, self, source, 1, index, sms=1)
    assert taken.path == path


@pytest.mark.parametrize("dtype, width", [(6, 16), (7, 4), (7, 128), (8, 4), (4, 8)])
@pytest.mark.parametrize("bins, order", [(1, "equal"), (900, "sorted"), (7, "random"), (5000, "random")])
def test_rows_of_a_bin_are_summed_by_warps(index_add, dtype, width, bins, order):
    set_limits(index_add, min_tile_entries=1 << 40)
    random = np.random.default_rng(bins)
    self = Operand(TYPES[dtype], [width, bins], [1, width], 0, random)
    source = Operand(TYPES[dtype], [width, 1003], [1, width], 0, random)
    index = random.integers(0, bins, 1003)
    if order == "sorted":
        index.sort()
    assert run_and_compare(index_add, self, source, 1, index, sms=1).path == ATOMIC


@pytest.mark.parametrize("value", [1, 30000, -60000])
@pytest.mark.parametrize("alpha", [1, 1000, 60000])
@pytest.mark.parametrize("width, path", [(16, TILES), (6, HOT)])
def test_sums_far_beyond_float16(index_add, width, path, alpha, value):
    """Sums beyond 2^40. There the spacing of float32 is 131072, so subtracting 65504 does not change the sum."""
    set_limits(index_add, min_hot_values=0)
    random = np.random.default_rng(0)
    bins, entries = 2000, 1300
    self = Operand(TYPES[6], [width, bins], [1, width], 0, random)
    source = Operand(TYPES[6], [width, entries], [1, width], 0, random)
    index = np.full(entries, bins - 1)
    for array in (source.buffer, source.before):
        source.view(array)[...] = value
    for array in (self.buffer, self.before):
        self.view(array)[...] = 0
    with np.errstate(over="ignore"):
        taken = run_and_compare(index_add, self, source, 1, index, alpha=alpha, sms=1)
    assert taken.path == path
