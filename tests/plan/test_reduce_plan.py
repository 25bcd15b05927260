"""The reduction planner, tested without a GPU: the assumptions of the kernels hold for tensors of any size.

tests/emulation runs the kernels and shows that they read every value once and write every output once.
"""

from __future__ import annotations

import ctypes
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ..support.seeded import seeded

ROWS, LINE, SHORT_ROWS, ROWS_IN_VECS, TILE, COLUMNS = range(6)
UINT8, FLOAT16, FLOAT32, FLOAT64, COMPLEX128 = 1, 6, 8, 9, 12
ITEM = {UINT8: 1, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, COMPLEX128: 16}
ACCUMULATOR = {UINT8: 8, FLOAT16: 4, FLOAT32: 4, FLOAT64: 8, COMPLEX128: 16}
BASE = 1 << 20
LIMIT = 2**31 - 1
THREADS, VECS_IN_FLIGHT, MOST_DIMS, SHARED = 256, 4, 6, 48 << 10
FIELDS = (
    "path vecs unaligned packed_out num_kept num_reduced outputs outer_units inner_units x y z column_vecs column_tiles fold "
    "rows_per_lane tiles splits shared_bytes columns row_size too_many_outputs too_many_units"
).split()


class PlanView(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


@pytest.fixture(scope="session")
def planner():
    return load("plan/reduce")


class Problem:
    """A reduction, with the innermost dimension first. Outputs are dense unless strides are given."""

    def __init__(self, sizes, strides, reduced, dtype=FLOAT32, offset=0, native=True, out_offset=0):
        self.sizes, self.strides, self.reduced, self.dtype, self.native = sizes, strides, reduced, dtype, native
        self.out_strides, step = [], 1
        for size, gone in zip(sizes, reduced):
            self.out_strides.append(0 if gone else step)
            step *= 1 if gone else size
        self.addresses = [BASE + offset * ITEM[dtype], BASE + out_offset * ITEM[dtype]]

    def arguments(self):
        def array(kind, values):
            return (kind * max(len(values), 1))(*values)

        return (
            len(self.sizes),
            array(ctypes.c_int64, self.sizes),
            array(ctypes.c_int64, self.strides),
            array(ctypes.c_int64, self.out_strides),
            array(ctypes.c_int, self.reduced),
            *(ctypes.c_uint64(a) for a in self.addresses),
            self.dtype,
            self.dtype,
        )

    def plan(self, planner, sms=132, limit=LIMIT) -> PlanView:
        view = PlanView()
        planner.plan(
            *self.arguments(), self.native, ACCUMULATOR[self.dtype], sms, ctypes.c_int64(limit), ctypes.byref(view)
        )
        return view

    def cut(self, planner, along_reduced: bool) -> list[Problem]:
        dims, addresses = (ctypes.c_int64 * (2 + 8 * len(self.sizes)))(), (ctypes.c_uint64 * 4)()
        planner.cut_once(*self.arguments(), along_reduced, dims, addresses)
        parts, left = [], iter(dims)
        for p in range(2):
            own = [list(itertools.islice(left, 4)) for _ in range(next(left))]
            sizes, strides, out_strides, reduced = (list(column) for column in zip(*own))
            part = Problem(sizes, strides, [bool(gone) for gone in reduced], self.dtype, native=self.native)
            part.out_strides, part.addresses = out_strides, list(addresses[2 * p : 2 * p + 2])
            parts.append(part)
        return parts

    def launches(self, planner) -> int:
        """The number of parts that the problem is split into."""
        plan = self.plan(planner)
        if plan.too_many_outputs or plan.too_many_units:
            return sum(part.launches(planner) for part in self.cut(planner, not plan.too_many_outputs))
        return 1

    def positions(self, which: int) -> list[int]:
        """Addresses of all values (0) or outputs (1)."""
        found = [self.addresses[which]]
        strides = self.strides if which == 0 else self.out_strides
        for size, stride, gone in zip(self.sizes, strides, self.reduced):
            if which == 0 or not gone:
                found = [f + i * stride * ITEM[self.dtype] for f in found for i in range(size)]
        return sorted(found)


def covers(parts: int, of: int, whole: int) -> bool:
    """Whether `parts` parts of `of` elements hold `whole` elements, and no part is empty."""
    return (parts - 1) * of < whole <= parts * of


def check(problem: Problem, plan: PlanView) -> None:
    values = 16 // ITEM[problem.dtype]
    kept = math.prod(n for n, gone in zip(problem.sizes, problem.reduced) if not gone)
    reduced = math.prod(n for n, gone in zip(problem.sizes, problem.reduced) if gone)
    units = plan.outer_units * plan.inner_units
    assert plan.outputs == kept and plan.outer_units * plan.row_size == reduced
    assert 1 <= plan.x * plan.y * plan.z <= THREADS and plan.shared_bytes <= SHARED
    assert plan.tiles >= 1 and plan.splits >= 1
    if plan.vecs or plan.path in (ROWS_IN_VECS, TILE):
        assert problem.native and values > 1
    if not plan.too_many_outputs:
        assert plan.tiles * plan.splits <= LIMIT and plan.outputs <= LIMIT and plan.num_kept <= MOST_DIMS
    if not plan.too_many_units:
        assert plan.num_reduced <= MOST_DIMS and plan.outer_units <= LIMIT
    if plan.vecs and not plan.unaligned:
        assert problem.addresses[0] % 16 == 0
    if plan.splits > 1:  # every split has units and its own blocks
        in_flight = VECS_IN_FLIGHT if plan.vecs else 1
        assert plan.z == 1 and (plan.splits - 1) * plan.y * in_flight < units

    if plan.path == COLUMNS:
        outers = plan.outputs // plan.columns
        assert covers(plan.column_tiles, plan.x, plan.column_vecs)
        assert covers(plan.tiles // plan.column_tiles, plan.z, outers) and plan.tiles % plan.column_tiles == 0
        assert plan.shared_bytes >= plan.x * plan.y * plan.z * (values if plan.vecs else 1) * ACCUMULATOR[problem.dtype]
        if plan.fold > 1:  # whole vectors, wherever columns begin in them
            assert plan.column_vecs * values == plan.fold * plan.columns and plan.column_tiles == 1
            assert plan.inner_units == plan.row_size // plan.fold >= 1
        else:
            assert covers(plan.column_vecs, values if plan.vecs else 1, plan.columns)
            assert plan.inner_units == plan.row_size and (plan.columns >= values or not plan.vecs)
            if plan.vecs and not plan.unaligned:
                assert plan.columns % values == 0
        return
    assert plan.x == 1 and plan.y & (plan.y - 1) == 0
    if plan.path == ROWS_IN_VECS:
        assert values % plan.row_size == 0 and problem.addresses[0] % 16 == 0
        assert covers(plan.tiles, values // plan.row_size * THREADS * VECS_IN_FLIGHT, plan.outputs)
    elif plan.path == TILE:
        rows = plan.z * plan.rows_per_lane
        assert covers(plan.tiles, rows, plan.outputs) and plan.y * plan.z == THREADS
        assert rows * plan.row_size % values == 0 and problem.addresses[0] % 16 == 0
        assert plan.shared_bytes >= rows * plan.row_size * ITEM[problem.dtype]
    elif plan.path == SHORT_ROWS:
        assert covers(plan.tiles, plan.z * VECS_IN_FLIGHT, plan.outputs)
        assert units * values == plan.row_size and units <= plan.y <= 32 and plan.y * plan.z == THREADS
    else:
        assert covers(plan.tiles, plan.z, plan.outputs) and plan.y * plan.z == THREADS
        assert plan.inner_units == (plan.row_size // values if plan.vecs else plan.row_size)
        if plan.path == LINE or plan.vecs and not plan.unaligned:
            assert plan.row_size % values == 0
        if plan.path == LINE:
            assert plan.y == THREADS and plan.outer_units == 1 and plan.num_kept <= 1


SIZES = [
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    12,
    16,
    31,
    32,
    33,
    64,
    100,
    127,
    128,
    129,
    255,
    1000,
    1023,
    1024,
    4095,
    2**17 + 1,
    2**20,
    2**31 + 5,
]


@st.composite
def problems(draw, sizes=SIZES, most_dims=7, most_values=2**36):
    shape = draw(st.lists(st.sampled_from(sizes), max_size=most_dims))
    while math.prod(shape) > most_values:
        shape.pop()
    reduced = [draw(st.booleans()) for _ in shape]
    dense = draw(st.integers(0, 2)) == 0
    if dense and most_values > 2**20:  # many short contiguous rows
        shape, reduced = (
            [draw(st.sampled_from([1, 2, 4, 7, 8, 16, 33, 64])), draw(st.integers(1, 2**17))],
            [True, False],
        )
    strides, step = [0] * len(shape), 1 if dense else draw(st.sampled_from([1, 1, 1, 2]))
    order = range(len(shape)) if dense or draw(st.booleans()) else draw(st.permutations(range(len(shape))))
    for d in order:
        strides[d] = step
        step = step * shape[d] + (0 if dense else draw(st.sampled_from([0, 0, 0, 0, 1, 8])))
    if not dense and draw(st.integers(0, 3)) == 0:
        strides = [0 if draw(st.booleans()) else s for s in strides]
    offsets = {"offset": draw(st.sampled_from([0, 0, 0, 1, 3])), "out_offset": draw(st.sampled_from([0, 0, 1]))}
    return Problem(
        shape,
        strides,
        reduced,
        draw(st.sampled_from(list(ITEM))),
        native=draw(st.integers(0, 5)) > 0,
        **offsets,
    )


def test_any_launch_is_valid(planner):
    taken = set()

    @seeded(1200)
    @given(problem=problems(), sms=st.sampled_from([1, 16, 132, 148]))
    def check_one(problem, sms):
        plan = problem.plan(planner, sms)
        check(problem, plan)
        taken.add((plan.path, plan.vecs, plan.unaligned, plan.fold > 1, plan.splits > 1))

    check_one()
    assert {path for path, *_ in taken} == {ROWS, LINE, SHORT_ROWS, ROWS_IN_VECS, TILE, COLUMNS} and len(taken) >= 16


@seeded(100)
@given(problem=problems(sizes=[1, 2, 3, 5, 17, 40], most_dims=4, most_values=3000), limit=st.sampled_from([8, 40, 200]))
def test_problems_beyond_the_limit_are_split_into_parts_that_fit(planner, problem, limit):
    """Tested with a limit that small problems exceed. The parts hold every value once. They have separate outputs or all
    outputs."""

    def leaves(part):
        plan = part.plan(planner, limit=limit)
        if plan.too_many_outputs:
            return [leaf for half in part.cut(planner, False) for leaf in leaves(half)]
        return [part]

    def pieces(part):
        if not part.plan(planner, limit=limit).too_many_units or all(
            n == 1 for n, gone in zip(part.sizes, part.reduced) if gone
        ):
            return [part]
        return [leaf for half in part.cut(planner, True) for leaf in pieces(half)]

    by_outputs = leaves(problem)
    assert sorted(p for leaf in by_outputs for p in leaf.positions(1)) == problem.positions(1)
    every = []
    for leaf in by_outputs:
        for piece in pieces(leaf):
            assert piece.positions(1) == leaf.positions(1)
            every += piece.positions(0)
            check(piece, piece.plan(planner, limit=limit))
    assert sorted(every) == problem.positions(0)


@pytest.mark.parametrize(
    "sizes, strides, reduced, dtype, path",
    [
        ([2**25], [1], [1], FLOAT32, LINE),
        ([1024, 32768], [1, 1024], [1, 0], FLOAT16, ROWS),
        ([32768, 128], [1, 32768], [1, 0], FLOAT32, LINE),
        ([1023, 32768], [1, 1023], [1, 0], FLOAT32, ROWS),
        ([32, 2**20], [1, 32], [1, 0], FLOAT32, SHORT_ROWS),
        ([2, 2**24], [1, 2], [1, 0], FLOAT32, ROWS_IN_VECS),
        ([33, 10**6], [1, 33], [1, 0], FLOAT16, TILE),
        ([128, 262144], [1, 128], [0, 1], FLOAT16, COLUMNS),
        ([3, 10**7], [1, 3], [0, 1], FLOAT32, COLUMNS),
        ([3136, 256, 64], [1, 3136, 3136 * 256], [1, 0, 1], FLOAT32, ROWS),
        ([1024, 4096, 16], [1, 1024, 2**22], [0, 1, 0], FLOAT32, COLUMNS),
    ],
)
def test_common_shapes_take_their_paths_in_vecs(planner, sizes, strides, reduced, dtype, path):
    plan = Problem(sizes, strides, reduced, dtype).plan(planner)
    assert plan.path == path and (plan.vecs or path in (ROWS_IN_VECS, TILE))


@pytest.mark.parametrize(
    "sizes, launches",
    [
        ([2, 100_000, *[2] * 11, 2], 2),  # seven kept and seven reduced dimensions: one of each is split off
        ([100_000, 2, *[2] * 12], 2),
        ([4] * 14, 4 * 4),
        ([2] * 24, 2**12),
        ([3, 5] * 6, 1),
    ],
)
def test_more_dimensions_than_a_launch_supports(planner, sizes, launches):
    """Kept and reduced dimensions alternate, so that none merge. Launches are split along the smallest dimensions, not the
    largest."""
    strides = [math.prod(sizes[:d]) for d in range(len(sizes))]
    problem = Problem(sizes, strides, [d % 2 == 1 for d in range(len(sizes))])
    planner.slices.restype = ctypes.c_int64
    assert planner.slices(*problem.arguments()) in (launches, 2 * launches)
    if launches < 100:
        assert problem.launches(planner) <= 2 * planner.slices(*problem.arguments())
