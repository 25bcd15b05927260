"""The element-wise launch planner, tested without a GPU: the assumptions of the kernels hold for any operands."""

import ctypes
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ...support.seeded import seeded

ALIGNED, UNALIGNED, CONVERTED = range(3)
# The paths, the accesses of rows, and whether tiles are accessed in vectors.
KINDS = {*((path, None) for path in ("vector", "packed", "packed rows", "general"))}
KINDS |= {*(("rows", access) for access in (ALIGNED, UNALIGNED, CONVERTED)), ("tiled", False), ("tiled", True)}
UINT8, FLOAT16, FLOAT32, FLOAT64, COMPLEX128 = 1, 6, 8, 9, 12
ITEM = {UINT8: 1, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, COMPLEX128: 16}
BASE = 1 << 20


class Given(ctypes.Structure):
    """A problem: sizes with the innermost dimension first, and for each operand (output first) strides, dtype and address."""

    _fields_ = [
        ("num_inputs", ctypes.c_int),
        ("num_dims", ctypes.c_int),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("dtypes", ctypes.POINTER(ctypes.c_int)),
        ("addresses", ctypes.POINTER(ctypes.c_uint64)),
        ("dtype", ctypes.c_int),
    ]

    @classmethod
    def of(cls, sizes, strides, dtypes, addresses, dtype) -> "Given":
        def array(kind, values):
            return (kind * max(len(values), 1))(*values)

        return cls(
            len(strides) - 1,
            len(sizes),
            array(ctypes.c_int64, sizes),
            array(ctypes.c_int64, [s for of_operand in strides for s in of_operand]),
            array(ctypes.c_int, dtypes),
            array(ctypes.c_uint64, addresses),
            dtype,
        )


def load_planner():
    loaded = load("plan/elementwise")
    loaded.plan.restype = ctypes.c_char_p
    loaded.fast_div.restype = ctypes.c_uint32
    return loaded


@pytest.fixture(scope="session")
def planner():
    return load_planner()


class Operands:
    """A problem: sizes with the innermost dimension first, and for each operand (output first) strides, dtype and offset in
    elements."""

    def __init__(self, sizes, strides, dtypes=None, offsets=None, dtype=FLOAT32):
        self.sizes, self.strides, self.dtype = list(sizes), [list(s) for s in strides], dtype
        self.dtypes = dtypes or [dtype] * len(strides)
        offsets = offsets or [0] * len(strides)
        self.addresses = [BASE * (k + 1) + ITEM[d] * o for k, (d, o) in enumerate(zip(self.dtypes, offsets))]

    def launches(self, planner, real_limits=False, every_type=True) -> list[SimpleNamespace]:
        given = Given.of(self.sizes, self.strides, self.dtypes, self.addresses, self.dtype)
        text = planner.plan(ctypes.byref(given), real_limits, every_type)
        return json.loads(text, object_hook=lambda members: SimpleNamespace(**members))

    def plan(self, planner, **options) -> SimpleNamespace:
        (launch,) = self.launches(planner, **options)
        return launch.plan


def visits(sizes, strides) -> np.ndarray:
    """The offsets of every operand at every point of an iteration space, in order."""
    points = np.array([[0] * len(sizes)]) if not sizes else np.indices(sizes).reshape(len(sizes), -1).T
    offsets = np.array(strides, np.int64).reshape(len(strides), len(sizes)) @ points.T
    return offsets[:, np.lexsort(offsets)]


def dense(sizes):
    strides, step = [], 1
    for size in sizes:
        strides.append(step)
        step *= size
    return strides


@st.composite
def problems(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 16, 24]), max_size=4))
    if draw(st.integers(0, 3)) == 0:  # large enough for tiles
        sizes = [draw(st.sampled_from([15, 16, 24])) for _ in range(2)] + sizes[:1]
    dtype, plain = draw(st.sampled_from(list(ITEM))), draw(st.booleans())

    def layout(writable):
        order = draw(st.permutations(range(len(sizes))))
        pads = [0 if plain else draw(st.sampled_from([0, 0, 0, 1, 4, 16])) for _ in sizes]
        step = 1 if plain else draw(st.sampled_from([1, 1, 1, 2]))
        strides = [0] * len(sizes)
        for d in order:
            strides[d] = step
            step *= sizes[d] + pads[d]
        if not writable:
            strides = [0 if draw(st.integers(0, 3)) == 0 else s for s in strides]
        return strides

    inputs = draw(st.integers(1, 3))
    strides = [layout(True)] + [layout(False) for _ in range(inputs)]
    dtypes = [dtype] * (inputs + 1)
    if draw(st.integers(0, 3)) == 0:
        dtypes[draw(st.integers(0, inputs))] = draw(st.sampled_from(list(ITEM)))
    offsets = [0 if plain else draw(st.sampled_from([0, 0, 0, 1, 3, 8])) for _ in dtypes]
    return Operands(sizes, strides, dtypes, offsets, dtype)


def starts_are_aligned(problem, operand, sizes, strides, dim, values):
    """Whether every vector of `values` along `dim` starts at an aligned address."""
    item = ITEM[problem.dtypes[operand]]
    access = min(item * values, 16)
    others = [d for d in range(len(sizes)) if d != dim]
    return all(
        (problem.addresses[operand] + item * sum(strides[operand][d] * i for d, i in zip(others, point))) % access == 0
        for point in itertools.product(*(range(min(sizes[d], 3)) for d in others))
    )


def check_plan(problem, plan):
    args, operands, values = plan.args, range(len(problem.strides)), 16 // ITEM[problem.dtype]
    one_type = all(d == problem.dtype for d in problem.dtypes)
    visited = visits(problem.sizes, problem.strides)
    assert args.numel == visited.shape[1] and args.data == problem.addresses
    if plan.path == "vector":
        assert one_type and all(address % 16 == 0 for address in problem.addresses)
        assert np.array_equal(visits([args.numel], [[1]] * len(operands)), visited)
        return
    assert (args.dtype, args.dtypes) == (problem.dtype, problem.dtypes)
    sizes, strides = args.sizes[: args.num_dims], [s[: args.num_dims] for s in args.strides]
    if plan.path == "rows":  # dimension 0 counts vectors
        assert all(s[0] % values == 0 for s in strides)
        sizes[0] = args.numel if args.num_dims == 1 else sizes[0] * values
        strides = [[s[0] // values, *s[1:]] for s in strides]
    assert np.array_equal(visits(sizes, strides), visited)
    for k in operands:
        if args.linear[k] and plan.path != "tiled":
            assert strides[k] == dense(sizes)

    def aligned(k, dim):
        return starts_are_aligned(problem, k, sizes, strides, dim, values)

    if plan.path == "rows":
        assert problem.dtypes[0] == problem.dtype and strides[0][0] == 1 and aligned(0, 0)
        assert all(strides[k][0] in (0, 1) for k in operands)
        assert (plan.access == CONVERTED) == (not one_type)
        if plan.access != UNALIGNED:
            assert all(aligned(k, 0) for k in operands if strides[k][0] == 1)
    elif plan.path == "tiled":
        turned, packed = (
            [k for k in operands[1:] if bits >> (k - 1) & 1] for bits in (plan.grid.turned, plan.grid.packed)
        )
        assert one_type and strides[0][0] == 1 and turned and not set(turned) & set(packed)
        assert all(0 < strides[k][1] < strides[k][0] for k in turned)
        if plan.packed:
            assert sizes[0] % values == 0 and sizes[1] % values == 0
            for k in [0, *turned]:
                along = int(k in turned)
                assert strides[k][along] == 1 and aligned(k, along)
        assert all(strides[k][0] == 1 and aligned(k, 0) for k in packed)
    elif plan.path in ("packed", "packed rows"):
        assert one_type and strides[0][0] == 1
        if plan.path == "packed rows":
            assert plan.vecs_per_row * values >= sizes[0] + values - 1
            assert plan.vecs == plan.vecs_per_row * (args.numel // sizes[0])
        else:
            assert args.linear[0] and problem.addresses[0] % 16 == 0
            assert args.num_dims <= 2 or sizes[0] * sizes[1] >= values  # RowWalk


def kind_of(plan):
    return plan.path, getattr(plan, {"rows": "access", "tiled": "packed"}.get(plan.path, ""), None)


def test_a_plan_visits_the_same_elements_and_keeps_its_promises(planner):
    taken = set()

    @seeded(400)
    @given(problem=problems())
    def check(problem):
        plan = problem.plan(planner)
        check_plan(problem, plan)
        taken.add(kind_of(plan))

    check()
    assert taken == KINDS


@seeded(200)
@given(problem=problems())
def test_operations_without_every_path_have_vectors_aligned_rows_or_single_values(planner, problem):
    every = problem.plan(planner)
    plan = problem.plan(planner, every_type=False)
    check_plan(problem, plan)
    if problem.dtype in (FLOAT16, FLOAT32, FLOAT64) or kind_of(every) in [("vector", None), ("rows", ALIGNED)]:
        assert plan == every
    else:
        assert plan.path == "general"


@seeded(100)
@given(
    shift=st.integers(0, 15),
    values=st.sampled_from([1, 2, 4, 8, 16]),
    size=st.integers(1, 200),
)
def test_spans_cover_a_row_once_and_inner_ones_are_whole_aligned_vecs(planner, shift, values, size):
    shift %= values
    spans = []
    pair = (ctypes.c_uint32 * 2)()
    for vec in range((size + values - 1 + values - 1) // values):
        planner.span(vec, shift, values, size, pair)
        spans.append((pair[0], pair[1]))
    covered = [i for begin, end in spans for i in range(begin, end)]
    assert covered == list(range(size))
    for begin, end in spans:
        if end - begin == values:
            assert (begin + shift) % values == 0


@seeded(100)
@given(
    rows=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    strides=st.lists(st.integers(0, 100), min_size=3, max_size=3),
    index=st.integers(0, 300),
    count=st.integers(1, 16),
)
def test_a_walk_from_row_to_row_reads_every_value_in_order(planner, rows, strides, index, count):
    inner, outer = rows
    count = min(count, inner * outer)  # the plan guarantees this
    offsets = (ctypes.c_uint32 * count)()
    planner.walk((ctypes.c_uint32 * 2)(*rows), (ctypes.c_uint32 * 3)(*strides), index, count, offsets)
    for i, offset in enumerate(offsets, index):
        point = i % inner, i // inner % outer, i // (inner * outer)
        assert offset == sum(p * s for p, s in zip(point, strides))


@seeded(100)
@given(n=st.integers(0, 2**31 - 1), divisor=st.integers(1, 2**31 - 1))
def test_fast_division_is_division(planner, n, divisor):
    for candidate in {n, n - n % divisor, max(n - n % divisor - 1, 0), 2**31 - 1}:
        assert planner.fast_div(candidate, divisor) == candidate // divisor


@pytest.mark.parametrize(
    "sizes, strides, offset",
    [
        ([2**16, 2**16], [[1, 2**16], [1, 2**16], [2**16, 1]], 0),  # a transposed operand
        ([3, 2**31], [[1, 3], [1, 3], [1, 0]], 0),  # a broadcast row
        ([2**32 + 5], [[2], [1], [1]], 0),  # a strided output
        ([7, 2**30, 3], [[1, 8, 2**34], [1, 7, 0], [0, 1, 0]], 0),  # ragged rows
        ([2, 4], [[1, 2**33], [1, 2], [1, 2]], 0),  # large strides
        ([2**36 - 29], [[1], [1]], 1),  # a misaligned row of 2^32 vectors
        ([2] * 8, [[2**d for d in range(8)], [2 ** (7 - d) for d in range(8)]], 0),  # too many dimensions
    ],
)
def test_large_problems_are_cut_into_parts_that_one_launch_walks(planner, sizes, strides, offset):
    problem = Operands(sizes, strides, offsets=[offset] * len(strides), dtype=UINT8)
    parts = [launch.plan for launch in problem.launches(planner)]
    assert len(parts) > 1
    assert sum(part.args.numel for part in parts) == math.prod(sizes)
    assert max(part.args.numel for part in parts) < 2**31
    assert all(part.path == "vector" or part.args.num_dims <= 6 for part in parts)
    starts = [part.args.data[0] for part in parts]
    assert len(set(starts)) == len(parts)  # parts begin at different output elements
    assert starts[0] == min(starts) == problem.addresses[0]


def test_known_layouts_take_the_path_made_for_them(planner):
    def path(sizes, strides, **more):
        plan = Operands(sizes, strides, **more).plan(planner)
        return kind_of(plan)

    flat = [[1]] * 3
    assert path([1 << 20], flat) == ("vector", None)
    assert path([], [[], [], []]) == ("vector", None)
    assert path([1 << 20], flat, offsets=[0, 1, 1]) == ("rows", UNALIGNED)
    assert path([1 << 20], flat, offsets=[1, 1, 1]) == ("packed rows", None)
    assert path([1 << 20], flat, dtypes=[FLOAT32, FLOAT16, FLOAT32]) == ("rows", CONVERTED)
    assert path([1 << 20], flat, dtypes=[FLOAT64, FLOAT32, FLOAT32]) == ("general", None)
    bias = [[1, 4096], [1, 4096], [1, 0]]
    assert path([4096, 64], bias) == ("rows", ALIGNED)
    assert path([4096, 64], [[1, 4096], [1, 4096], [0, 1]]) == ("rows", ALIGNED)
    assert path([4095, 64], [[1, 4095], [1, 4095], [1, 0]]) == ("packed", None)
    assert path([256, 256], [[1, 256], [1, 256], [256, 1]]) == ("tiled", True)
    assert path([3, 2, 64], [[1, 3, 6], [1, 3, 6], [0, 1, 0]]) == ("packed", None)  # a plane of 6 holds a vector of 4
    small = {"dtype": FLOAT16}
    assert path([3, 2, 64], [[1, 3, 6], [1, 3, 6], [0, 1, 0]], **small) == ("general", None)  # but not one of 8
    assert path([256, 4], [[1, 256], [1, 256], [4, 1]]) == ("general", None)  # too narrow for tiles
    assert path([256], [[2], [1], [1]]) == ("general", None)


def test_small_transposed_operands_and_short_rows_are_read_value_by_value(planner):
    """With the real limits. Tiles have the shape of narrow problems."""

    def plan(rows, columns, count=1, dtype=FLOAT32, gap=0):
        dense = [1, columns, rows * columns]
        turned = [rows + gap, 1, (rows + gap) * columns]
        return Operands([columns, rows, count], [dense, dense, turned], dtype=dtype).plan(planner, real_limits=True)

    for dtype in (UINT8, FLOAT16, FLOAT32, FLOAT64):
        for problem in ((256, 256), (8, (1 << 15) - 1), (16, 16, 1 << 16), (1 << 20, 16)):
            assert plan(*problem, dtype=dtype).path == "general"
        assert kind_of(plan(1024, 1024, dtype=dtype)) == kind_of(plan(64, 64, 1000, dtype)) == ("tiled", True)
        for columns in range(8, 64):
            taken = plan(columns, 1 << 17, dtype=dtype)
            assert kind_of(taken) == ("tiled", False)
            check_value_tiles(taken.grid, columns, dtype)
            assert plan(columns, 1 << 17, dtype=dtype, gap=5).path == "tiled"


def check_value_tiles(grid, columns: int, dtype: int) -> None:
    """Checks that the threads of a block read and write a tile in as many iterations as the kernel has."""
    threads, most = 256, 4096 if ITEM[dtype] <= 4 else 1024
    assert grid.side_j == min(columns, most**0.5) and grid.side_i & (grid.side_i - 1) == 0 and grid.side_i <= threads
    iterations = most // threads
    assert -(-grid.side_i // (threads // grid.side_j)) <= iterations
    assert -(-grid.side_j // (threads // grid.side_i)) <= iterations
    assert grid.side_i * grid.side_j > most // 4
    words = grid.pitch * ITEM[dtype] / 4
    assert grid.side_j <= grid.pitch and (words % 2 == 1 or ITEM[dtype] > 4 and grid.pitch % 2 == 1)
