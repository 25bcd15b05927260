"""The planner of scans, tested without a GPU: the assumptions of the kernels hold for tensors of any size.

tests/emulation runs the kernels and shows that they read every value once and write every result once.
"""

from __future__ import annotations

import ctypes
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ..support.seeded import seeded

PACKED, ROWS, SPLIT_ROWS, COLUMNS, SPLIT_COLUMNS = range(5)
UINT8, INT64, FLOAT16, FLOAT32, COMPLEX128 = 1, 5, 6, 8, 12
ITEM = {UINT8: 1, INT64: 8, FLOAT16: 2, FLOAT32: 4, COMPLEX128: 16}
BASE = 1 << 20
LIMIT = 2**31 - 1
MAX_WARPS, MOST_DIMS = 8, 6
FIELDS = (
    "path values units num_outer rows dense chunk_rows warps tiles x column_tiles blocks slots columns too_large second_is_one shifted"
).split()


class PlanView(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


class Given(ctypes.Structure):
    _fields_ = [
        ("num_dims", ctypes.c_int64),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("sizes", "in_strides", "out_strides")),
        *((name, ctypes.c_int64) for name in ("scanned", "reverse", "exclusive")),
        *((name, ctypes.c_uint64) for name in ("source", "out")),
        *((name, ctypes.c_int64) for name in ("in_dtype", "dtype")),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("second_strides", "initial_strides")),
        *((name, ctypes.c_uint64) for name in ("second", "initial")),
    ]


@pytest.fixture(scope="session")
def planner():
    return load("plan/scan")


class Problem:
    """A scan, with the innermost dimension first. Results are dense unless strides are given."""

    def __init__(self, sizes, strides, scanned, dtypes=(FLOAT32, FLOAT32), offsets=(0, 0), out_strides=None):
        self.sizes, self.strides, self.scanned, self.dtypes = sizes, strides, scanned, dtypes
        self.out_strides = out_strides or [math.prod(sizes[:d]) for d in range(len(sizes))]
        self.addresses = [BASE + offset * ITEM[dtype] for offset, dtype in zip(offsets, dtypes)]

    @property
    def values(self) -> int:
        return 16 // max(ITEM[dtype] for dtype in self.dtypes)

    def given(self):
        array = ctypes.c_int64 * max(len(self.sizes), 1)
        return Given(
            len(self.sizes),
            array(*self.sizes),
            array(*self.strides),
            array(*self.out_strides),
            self.scanned,
            0,
            0,
            *self.addresses,
            *self.dtypes,
        )

    def plan(self, planner, limit=LIMIT) -> PlanView:
        view = PlanView()
        shape = (ctypes.c_int64(self.values), ctypes.c_int64(4), ctypes.c_int64(limit))
        planner.plan(ctypes.byref(self.given()), *shape, ctypes.byref(view))
        return view

    def halves(self, planner) -> list[Problem]:
        """Both parts of a problem that is too large. Their scanned dimension is the first."""
        dims, addresses = (ctypes.c_int64 * (2 + 6 * len(self.sizes)))(), (ctypes.c_uint64 * 4)()
        planner.halve_once(ctypes.byref(self.given()), dims, addresses)
        scanned = [[column[self.scanned]] for column in (self.sizes, self.strides, self.out_strides)]
        parts, left = [], iter(dims)
        for p in range(2):
            own = [[next(left) for _ in range(3)] for _ in range(next(left))]
            sizes, strides, out_strides = (s + list(c) for s, c in zip(scanned, zip(*own)))
            part = Problem(sizes, strides, 0, self.dtypes, out_strides=out_strides)
            part.addresses = list(addresses[2 * p : 2 * p + 2])
            parts.append(part)
        return parts

    def positions(self) -> list[int]:
        """The addresses of all results."""
        found = [self.addresses[1]]
        for size, stride in zip(self.sizes, self.out_strides):
            found = [f + i * stride * ITEM[self.dtypes[1]] for f in found for i in range(size)]
        return sorted(found)


def covers(parts: int, of: int, whole: int) -> bool:
    """Whether `parts` parts of `of` elements hold `whole` elements, and no part is empty."""
    return (parts - 1) * of < whole <= parts * of


def check(problem: Problem, plan: PlanView) -> None:
    length = problem.sizes[problem.scanned] if problem.sizes else 1
    others = math.prod(problem.sizes) // length
    assert plan.rows * plan.columns == others
    assert plan.values in (1, problem.values) and 1 <= plan.warps <= MAX_WARPS
    if not plan.too_large:
        assert plan.blocks <= LIMIT and plan.rows <= LIMIT and plan.num_outer <= MOST_DIMS
    if plan.values > 1:
        offsets = [address // ITEM[d] % plan.values for address, d in zip(problem.addresses, problem.dtypes)]
        assert offsets[0] == offsets[1] and (plan.shifted or offsets[0] == 0)
    chunk = 32 * plan.units * plan.values
    runs, groups = -(-plan.tiles // 16), -(-plan.tiles // 256)
    assert plan.slots == plan.tiles + runs + groups
    if plan.path == PACKED:
        assert plan.columns == 1 and plan.chunk_rows * length <= chunk
        assert covers(plan.blocks, plan.warps, -(-plan.rows // plan.chunk_rows))
        if plan.dense:
            own = plan.chunk_rows * length
            assert plan.values > 1 and (own % plan.values == 0 or own + plan.values - 1 <= chunk)
        elif plan.values > 1:
            assert length % plan.values == 0
    elif plan.path in (ROWS, SPLIT_ROWS):
        covered = length + (plan.values - 1 if plan.shifted else 0)
        assert plan.columns == 1 and covers(plan.tiles, chunk * plan.warps, covered)
        assert length > (256 if plan.shifted else chunk)
        assert plan.shifted or length % plan.values == 0
        assert plan.blocks == plan.rows * (plan.tiles if plan.path == SPLIT_ROWS else 1)
    else:
        assert plan.x in (1, 2, 4, 8, 16, 32) and covers(plan.column_tiles, plan.x * plan.values, plan.columns)
        assert plan.columns % plan.values == 0
        assert covers(plan.tiles, 32 // plan.x * plan.units * plan.warps, length)
        assert plan.blocks == plan.rows * plan.column_tiles * (plan.tiles if plan.path == SPLIT_COLUMNS else 1)


SIZES = [1, 2, 3, 4, 7, 8, 12, 16, 31, 33, 64, 100, 128, 257, 1000, 1024, 4095, 2**15, 2**17 + 1, 2**20, 2**31 + 5]


@st.composite
def problems(draw, sizes=SIZES, most_dims=7, most_values=2**36):
    shape = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=most_dims))
    while math.prod(shape) > most_values:
        shape.pop()
    shape = shape or [1]

    def strides():
        found, step = [0] * len(shape), draw(st.sampled_from([1, 1, 1, 2]))
        order = range(len(shape)) if draw(st.booleans()) else draw(st.permutations(range(len(shape))))
        for d in order:
            found[d] = step
            step = step * shape[d] + draw(st.sampled_from([0, 0, 0, 0, 1, 8]))
        return found

    given_strides = strides()
    if draw(st.integers(0, 3)) == 0:
        given_strides = [0 if draw(st.booleans()) else s for s in given_strides]
    dtypes = draw(st.sampled_from([(FLOAT32, FLOAT32), (FLOAT16, FLOAT16), (UINT8, INT64), (COMPLEX128, COMPLEX128)]))
    offsets = (draw(st.sampled_from([0, 0, 0, 1, 3])), draw(st.sampled_from([0, 0, 1])))
    out_strides = strides() if draw(st.booleans()) else None
    return Problem(shape, given_strides, draw(st.integers(0, len(shape) - 1)), dtypes, offsets, out_strides)


def test_any_launch_is_valid(planner):
    taken = set()

    @seeded(1500)
    @given(problem=problems())
    def check_one(problem):
        plan = problem.plan(planner)
        check(problem, plan)
        taken.add((plan.path, plan.values > 1))

    check_one()
    assert taken == {(path, vecs) for path in range(5) for vecs in (False, True)}


@seeded(150)
@given(problem=problems(sizes=[1, 2, 3, 5, 17, 40], most_dims=4, most_values=3000), limit=st.sampled_from([8, 40, 200]))
def test_problems_beyond_the_limit_are_split_into_parts_that_fit(planner, problem, limit):
    """Tested with a limit that small problems exceed. The parts have separate results, and together all of them."""

    def leaves(part):
        if not part.plan(planner, limit).too_large or math.prod(part.sizes) == part.sizes[part.scanned]:
            return [part]
        return [leaf for half in part.halves(planner) for leaf in leaves(half)]

    parts = leaves(problem)
    assert sorted(p for part in parts for p in part.positions()) == problem.positions()
    for part in parts:
        check(part, part.plan(planner))


@pytest.mark.parametrize(
    "sizes, scanned, dtype, path",
    [
        ([2**28], 0, FLOAT32, SPLIT_ROWS),
        ([32, 2**20], 0, FLOAT32, PACKED),
        ([33, 10**6], 0, FLOAT16, PACKED),
        ([1024, 32768], 0, FLOAT32, ROWS),
        ([1024, 32768], 0, FLOAT16, PACKED),
        ([262144, 128], 0, FLOAT32, SPLIT_ROWS),
        ([2**20, 32], 1, FLOAT32, COLUMNS),
        ([8192, 8192], 1, FLOAT16, COLUMNS),
        ([1024, 32768], 1, FLOAT16, SPLIT_COLUMNS),
        ([32, 2**20], 1, FLOAT32, SPLIT_COLUMNS),
        ([1024, 4096, 16], 1, FLOAT32, COLUMNS),
        ([2**13], 0, FLOAT32, ROWS),
        ([2**14], 0, FLOAT32, SPLIT_ROWS),
    ],
)
def test_common_shapes_take_their_paths_in_vecs(planner, sizes, scanned, dtype, path):
    strides = [math.prod(sizes[:d]) for d in range(len(sizes))]
    plan = Problem(sizes, strides, scanned, (dtype, dtype)).plan(planner)
    assert plan.path == path and plan.values == 16 // ITEM[dtype]


# ---------------------------------------------------------------- two inputs


def recurrence(sizes, scanned, a_strides, a_offset=0) -> Given:
    """A recurrence of dense float32 tensors whose factors have the given strides and begin at an offset."""
    problem = Problem(sizes, [math.prod(sizes[:d]) for d in range(len(sizes))], scanned)
    given, array = problem.given(), ctypes.c_int64 * len(sizes)
    kept = [1 if d == scanned else n for d, n in enumerate(sizes)]
    given.second_strides = array(*a_strides)
    given.initial_strides = array(*(0 if d == scanned else math.prod(kept[:d]) for d in range(len(sizes))))
    given.second, given.initial = BASE + 4 * a_offset, 2 * BASE
    return given


@pytest.mark.parametrize(
    "sizes, scanned, a_strides, offset, path, values, one",
    [
        ([64, 300], 0, [1, 64], 0, PACKED, 4, False),
        ([64, 300], 0, [1, 64], 1, PACKED, 1, False),  # misaligned
        ([64, 300], 0, [0, 1], 1, PACKED, 4, True),  # a factor for each row
        ([33, 300], 0, [1, 33], 0, PACKED, 4, False),
        ([33, 300], 0, [0, 0], 0, PACKED, 4, True),
        ([33, 300], 0, [0, 1], 0, PACKED, 1, True),  # a vector would hold values of several rows
        ([33, 300], 0, [1, 0], 0, PACKED, 1, False),
        ([33, 300], 0, [1, 36], 0, PACKED, 1, False),
        ([2000, 3], 0, [1, 2000], 0, ROWS, 4, False),
        ([2000, 3], 0, [1, 2001], 0, ROWS, 1, False),  # rows begin inside a vector
        ([2000, 3], 0, [2, 4000], 0, ROWS, 1, False),
        ([2001, 3], 0, [1, 2001], 0, ROWS, 4, False),  # all begin at the same offset in a vector
        ([2001, 3], 0, [1, 2001], 1, ROWS, 1, False),
        ([2001, 3], 0, [0, 1], 1, ROWS, 4, True),
        ([2000, 3], 0, [0, 1], 0, ROWS, 4, True),
        ([20000, 2], 0, [1, 0], 0, SPLIT_ROWS, 4, False),
        ([8, 60, 33], 1, [1, 8, 480], 0, COLUMNS, 4, False),
        ([8, 60, 33], 1, [1, 9, 540], 0, COLUMNS, 1, False),
        ([8, 60, 33], 1, [0, 1, 0], 3, COLUMNS, 4, True),  # a factor for each position
        ([8, 60, 33], 1, [1, 0, 0], 0, COLUMNS, 4, False),
        ([8, 20000], 1, [0, 0], 0, SPLIT_COLUMNS, 4, True),
    ],
)
def test_second_input(planner, sizes, scanned, a_strides, offset, path, values, one):
    view = PlanView()
    given = recurrence(sizes, scanned, a_strides, offset)
    planner.plan_two(ctypes.byref(given), ctypes.c_int64(4), ctypes.c_int64(LIMIT), ctypes.byref(view))
    assert (view.path, view.values, bool(view.second_is_one)) == (path, values, one)


def test_halves_of_two_inputs(planner):
    """The larger dimension is halved, and the second half begins at row 64 in each tensor."""
    addresses = (ctypes.c_uint64 * 4)()
    planner.halve_inputs(ctypes.byref(recurrence([8, 128], 0, [1, 10])), addresses)
    assert list(addresses) == [BASE, 2 * BASE, BASE + 4 * 640, 2 * BASE + 4 * 64]
