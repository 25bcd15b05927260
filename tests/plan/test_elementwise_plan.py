"""The element-wise launch planner, tested without a GPU: the assumptions of the kernels hold for any operands."""

import ctypes
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ..support.seeded import seeded

MAX_DIMS, MAX_OPERANDS = 25, 4
VECTOR, ROWS, TILED, PACKED, GENERAL = range(5)
ALIGNED, UNALIGNED, CONVERTED = range(3)
UINT8, FLOAT16, FLOAT32, FLOAT64, COMPLEX128 = 1, 6, 8, 9, 12
ITEM = {UINT8: 1, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, COMPLEX128: 16}
BASE = 1 << 20


class PlanView(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in "path access num_dims numel values_per_vec by_rows vecs_per_row tile_dim packed_tiles needs_split".split()
        ),
        ("sizes", ctypes.c_int64 * MAX_DIMS),
        ("strides", (ctypes.c_int64 * MAX_DIMS) * MAX_OPERANDS),
        ("linear", ctypes.c_int64 * MAX_OPERANDS),
        ("turned", ctypes.c_int64 * MAX_OPERANDS),
        ("packed_input", ctypes.c_int64 * MAX_OPERANDS),
    ]


@pytest.fixture(scope="session")
def planner():
    loaded = load("plan/elementwise")
    loaded.fast_div.restype = ctypes.c_uint32
    return loaded


class Operands:
    """A problem: sizes with the innermost dimension first, and for each operand (output first) strides, dtype and offset in
    elements."""

    def __init__(self, sizes, strides, dtypes=None, offsets=None, dtype=FLOAT32):
        self.sizes, self.strides, self.dtype = list(sizes), [list(s) for s in strides], dtype
        self.dtypes = dtypes or [dtype] * len(strides)
        offsets = offsets or [0] * len(strides)
        self.addresses = [BASE * (k + 1) + ITEM[d] * o for k, (d, o) in enumerate(zip(self.dtypes, offsets))]

    def arguments(self):
        flat = [s for strides in self.strides for s in strides]
        operands = len(self.strides)
        return (
            operands - 1,
            len(self.sizes),
            (ctypes.c_int64 * max(len(self.sizes), 1))(*self.sizes),
            (ctypes.c_int64 * max(len(flat), 1))(*flat),
            (ctypes.c_int * operands)(*self.dtypes),
            (ctypes.c_uint64 * operands)(*self.addresses),
            self.dtype,
        )

    def plan(self, planner) -> PlanView:
        view = PlanView()
        planner.plan(*self.arguments(), ctypes.byref(view))
        return view


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


def starts_are_aligned(problem, plan, operand, dim, values):
    """Whether every vector of `values` along `dim` starts at an aligned address."""
    item = ITEM[problem.dtypes[operand]]
    access = min(item * values, 16)
    others = [d for d in range(plan.num_dims) if d != dim]
    return all(
        (problem.addresses[operand] + item * sum(plan.strides[operand][d] * i for d, i in zip(others, point))) % access
        == 0
        for point in itertools.product(*(range(min(plan.sizes[d], 3)) for d in others))
    )


def check_plan(problem, plan):
    operands = range(len(problem.strides))
    sizes = plan.sizes[: plan.num_dims]
    strides = [plan.strides[k][: plan.num_dims] for k in operands]
    visited = visits(problem.sizes, problem.strides)
    assert np.array_equal(visits(sizes, strides), visited)
    assert plan.numel == visited.shape[1]
    values = plan.values_per_vec
    assert values == 16 // ITEM[problem.dtype]
    one_type = all(d == problem.dtype for d in problem.dtypes)
    for k in operands:
        if plan.linear[k]:
            assert strides[k] == dense(sizes)

    if plan.path == VECTOR:
        assert one_type
        assert all(plan.linear[k] and problem.addresses[k] % 16 == 0 for k in operands)
    elif plan.path == ROWS:
        assert problem.dtypes[0] == problem.dtype and strides[0][0] == 1
        assert plan.num_dims == 1 or sizes[0] % values == 0
        assert starts_are_aligned(problem, plan, 0, 0, values)
        assert all(strides[k][0] in (0, 1) for k in operands)
        assert (plan.access == CONVERTED) == (not one_type)
        if plan.access != UNALIGNED:
            assert all(starts_are_aligned(problem, plan, k, 0, values) for k in operands if strides[k][0] == 1)
    elif plan.path == TILED:
        assert one_type and strides[0][0] == 1 and plan.tile_dim > 0 and not plan.turned[0]
        turned = [k for k in operands if plan.turned[k]]
        assert turned
        assert all(0 < strides[k][plan.tile_dim] < strides[k][0] for k in turned)
        if plan.packed_tiles:
            assert sizes[0] % values == 0 and sizes[plan.tile_dim] % values == 0
            for k in [0, *turned]:
                along = plan.tile_dim if plan.turned[k] else 0
                assert strides[k][along] == 1 and starts_are_aligned(problem, plan, k, along, values)
        for k in operands:
            if plan.packed_input[k]:
                assert strides[k][0] == 1 and starts_are_aligned(problem, plan, k, 0, values)
    elif plan.path == PACKED:
        assert one_type and strides[0][0] == 1
        if plan.by_rows:
            assert plan.vecs_per_row * values >= sizes[0] + values - 1
        else:
            assert plan.linear[0] and problem.addresses[0] % 16 == 0
            assert plan.num_dims <= 2 or sizes[0] * sizes[1] >= values  # RowWalk


def test_a_plan_visits_the_same_elements_and_keeps_its_promises(planner):
    taken = set()

    @seeded(400)
    @given(problem=problems())
    def check(problem):
        plan = problem.plan(planner)
        check_plan(problem, plan)
        taken.add((plan.path, {ROWS: plan.access, TILED: plan.packed_tiles}.get(plan.path, 0)))

    check()
    kinds = {VECTOR: [0], ROWS: [ALIGNED, UNALIGNED, CONVERTED], TILED: [0, 1], PACKED: [0], GENERAL: [0]}
    assert taken == {(path, kind) for path in kinds for kind in kinds[path]}


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
    ],
)
def test_large_problems_are_cut_into_parts_that_32_bits_index(planner, sizes, strides, offset):
    problem = Operands(sizes, strides, offsets=[offset] * len(strides), dtype=UINT8)
    limit = 4096
    numels = (ctypes.c_int64 * limit)()
    firsts = (ctypes.c_uint64 * (limit * MAX_OPERANDS))()
    count = planner.parts(*problem.arguments(), limit, numels, firsts)
    assert count > 1
    total = 1
    for size in sizes:
        total *= size
    assert sum(numels[:count]) == total
    assert max(numels[:count]) < 2**31
    starts = [tuple(firsts[part * MAX_OPERANDS + k] for k in range(len(strides))) for part in range(count)]
    assert len({start[0] for start in starts}) == count  # parts begin at different output elements
    assert problem.addresses[0] == min(start[0] for start in starts)


def test_known_layouts_take_the_path_made_for_them(planner):
    def path(sizes, strides, **more):
        plan = Operands(sizes, strides, **more).plan(planner)
        return plan.path, plan.access if plan.path == ROWS else None

    flat = [[1]] * 3
    assert path([1 << 20], flat) == (VECTOR, None)
    assert path([], [[], [], []]) == (VECTOR, None)
    assert path([1 << 20], flat, offsets=[0, 1, 1]) == (ROWS, UNALIGNED)
    assert path([1 << 20], flat, offsets=[1, 1, 1]) == (PACKED, None)
    assert path([1 << 20], flat, dtypes=[FLOAT32, FLOAT16, FLOAT32]) == (ROWS, CONVERTED)
    assert path([1 << 20], flat, dtypes=[FLOAT64, FLOAT32, FLOAT32]) == (GENERAL, None)
    bias = [[1, 4096], [1, 4096], [1, 0]]
    assert path([4096, 64], bias) == (ROWS, ALIGNED)
    assert path([4096, 64], [[1, 4096], [1, 4096], [0, 1]]) == (ROWS, ALIGNED)
    assert path([4095, 64], [[1, 4095], [1, 4095], [1, 0]]) == (PACKED, None)
    assert path([256, 256], [[1, 256], [1, 256], [256, 1]]) == (TILED, None)
    assert path([3, 2, 64], [[1, 3, 6], [1, 3, 6], [0, 1, 0]]) == (PACKED, None)  # a plane of 6 holds a vector of 4
    small = {"dtype": FLOAT16}
    assert path([3, 2, 64], [[1, 3, 6], [1, 3, 6], [0, 1, 0]], **small) == (GENERAL, None)  # but not one of 8
    assert path([256, 4], [[1, 256], [1, 256], [4, 1]]) == (GENERAL, None)  # too narrow for tiles
    assert path([256], [[2], [1], [1]]) == (GENERAL, None)


def test_small_or_narrow_transposed_operands_are_read_value_by_value(planner):
    """With the real limits."""

    def path(rows, columns, count=1, dtype=FLOAT32):
        dense = [1, columns, rows * columns]
        problem = Operands([columns, rows, count], [dense, dense, [rows, 1, rows * columns]], dtype=dtype)
        return problem.plan(planner).path

    planner.set_limits(True)
    try:
        for dtype in (FLOAT16, FLOAT32):
            assert path(1024, 1024, dtype=dtype) == path(64, 64, 1000, dtype) == TILED
            assert (
                path(256, 256, dtype=dtype) == path(8, 1 << 20, dtype=dtype) == path(16, 16, 1 << 16, dtype) == GENERAL
            )
    finally:
        planner.set_limits(False)
