"""The planner of dot products, tested without a GPU: the assumptions of the kernels hold for vectors of any size.

The tests repeat the kernels' index arithmetic, which must reach every value of every row once. tests/emulation shows the same for
the kernels themselves.
"""

from __future__ import annotations

import ctypes
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ...support.seeded import seeded
from .dot_planner import LINE, ROWS, SHORT_ROWS, TILE, VALUES, Given, Plan

OUT, WORKSPACE, ATOMIC = range(3)  # Target
UINT8, FLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128 = 1, 6, 8, 9, 11, 12
ITEM = {UINT8: 1, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, COMPLEX64: 8, COMPLEX128: 16}
BASE = 1 << 20
LIMIT = 2**31 - 1
THREADS, WARP, SHARED = 256, 32, 48 << 10
VECS_IN_FLIGHT, SHIFTED_VECS_IN_FLIGHT = 4, 2
BLOCKS = 16  # per SM, at most, if rows are split
ATOMIC_BLOCKS = {LINE: 1, ROWS: 4, VALUES: 4}
MOST_MODELLED = 100_000


class Problem(Given):
    def __repr__(self):
        return f"Problem({', '.join(f'{name}={getattr(self, name)}' for name, _ in self._fields_)})"

    @property
    def item(self) -> int:
        return ITEM[self.dtype]

    def launches(self, planner, sms: int = 132) -> list[Plan]:
        return [Plan(fields) for fields in json.loads(planner.plan(ctypes.byref(self), sms))]

    def plan(self, planner, sms: int = 132) -> Plan:
        (plan,) = self.launches(planner, sms)
        return plan


def problem_of(
    rows, size, dtype=FLOAT32, strides=(1, 1), row_strides=None, offsets=(0, 0), conjugate=(0, 0), atomic=False
) -> Problem:
    """A problem with contiguous rows, unless strides are given. Offsets are in elements, from an aligned address."""
    own, other = row_strides or (size, size)
    item = ITEM[dtype]
    return Problem(
        BASE + offsets[0] * item, strides[0], own, conjugate[0],
        2 * BASE + offsets[1] * item, strides[1], other, conjugate[1],
        3 * BASE, dtype, rows, size, atomic,
    )  # fmt: skip


@pytest.fixture(scope="session")
def planner():
    library = load("plan/dot")
    library.plan.restype = ctypes.c_char_p
    return library


# ---------------------------------------------------------------- limits


def units_in_flight(problem: Problem, plan: Plan) -> int:
    """The number of vectors, or of single values, that a thread has in flight."""
    if plan.path == VALUES:
        return 4 if problem.item >= 8 else 8
    if plan.path == ROWS:
        return SHIFTED_VECS_IN_FLIGHT if plan.shifted else VECS_IN_FLIGHT
    return plan.unroll


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def check_limits(problem: Problem, plan: Plan, sms: int) -> None:
    atomic = bool(problem.atomic)
    values = 16 // problem.item
    vecs = problem.size // values
    contiguous = problem.size == 1 or problem.self_stride == problem.tensor_stride == 1
    starts = problem.self % 16, problem.tensor % 16
    strides = (problem.self_row_stride, problem.tensor_row_stride) if problem.rows > 1 else (0, 0)

    assert plan.path == LINE or (plan.rows, plan.size) == (problem.rows, problem.size)
    assert (plan.self, plan.tensor) == (problem.self, problem.tensor)
    assert is_power_of_two(plan.x) and is_power_of_two(plan.y) and plan.threads == plan.x * plan.y
    most = THREADS if plan.path != LINE else 4 * THREADS if atomic else 2 * THREADS
    assert plan.threads % WARP == 0 and plan.threads <= most
    rows = plan.x * plan.rows_per_lane  # rows per tile; no tile is empty
    assert (plan.tiles - 1) * rows < problem.rows <= plan.tiles * rows
    assert plan.blocks == plan.tiles * plan.splits
    assert plan.unroll in (1, VECS_IN_FLIGHT) if plan.path == LINE else plan.unroll == 1

    # Every split has values, and the device has room for all blocks.
    units = problem.size if plan.path == VALUES else max(vecs, 1)
    group = plan.y * units_in_flight(problem, plan)
    groups = -(-units // group)
    assert 1 <= plan.splits <= groups
    if plan.splits > 1:
        assert plan.blocks <= sms * (ATOMIC_BLOCKS[plan.path] if atomic else BLOCKS) and problem.rows <= LIMIT

    # Partial sums fill the workspace, and a second launch has a block for each row.
    has_sums = plan.splits > 1 and not atomic
    assert plan.target == (OUT if plan.splits == 1 else ATOMIC if atomic else WORKSPACE)
    assert plan.to == (0 if has_sums else problem.out) and (plan.finish is not None) == has_sums
    assert plan.zeroed == (problem.out if plan.target == ATOMIC else 0)
    if has_sums:
        finish = plan.finish["launch"]
        assert plan.finish["sums_bytes"] == problem.rows * plan.splits * max(problem.item, 4)
        assert (plan.finish["out"], plan.finish["splits"]) == (problem.out, plan.splits)
        assert finish["blocks"] == problem.rows and WARP <= finish["threads"] <= 2 * THREADS

    if plan.path == LINE:
        assert problem.rows == plan.tiles == plan.x == 1 and plan.y >= WARP
        assert contiguous and starts == (0, 0) and problem.size % values <= plan.threads
    elif plan.path == ROWS:
        assert contiguous and vecs > 0
        if not plan.shifted:  # aligned vectors of self lie at aligned vectors of tensor
            assert starts[0] == starts[1] and (strides[0] - strides[1]) % values == 0
    elif plan.path == SHORT_ROWS:
        assert contiguous and starts == (0, 0) and all(s % values == 0 for s in strides)
        assert problem.size == vecs * values and vecs <= plan.y <= VECS_IN_FLIGHT
        assert plan.threads == THREADS and plan.rows_per_lane == VECS_IN_FLIGHT
    elif plan.path == TILE:
        assert contiguous and starts == (0, 0) and all(s in (0, problem.size) for s in strides)
        assert rows * problem.size % values == 0  # in all tiles except the last
        assert plan.y <= WARP and plan.threads == THREADS
    assert (
        2 * rows * problem.size * problem.item <= plan.shared_bytes <= SHARED
        if plan.path == TILE
        else plan.shared_bytes == 0
    )


# ---------------------------------------------------------------- the kernels' index arithmetic


def once(positions: np.ndarray, count: int) -> bool:
    """Whether the positions are 0 ... count - 1, each once."""
    return len(positions) == count and np.array_equal(np.sort(positions), np.arange(count))


def grouped(begins: np.ndarray, step: int, unroll: int, jump: int, units: int) -> np.ndarray:
    """The units that threads read. A thread begins at its value in `begins`. It reads `unroll` units, `step` apart, then adds
    `jump`."""
    met = begins[:, None] + np.arange(0, max(units, 1), jump)[None, :]
    met = met[met < units]
    met = (met[:, None] + np.arange(unroll)[None, :] * step).ravel()
    return met[met < units]


def rows_met(problem: Problem, plan: Plan) -> np.ndarray:
    """The rows that the first threads and splits of all rows compute."""
    tile = np.arange(plan.tiles)[:, None, None]
    own = np.arange(plan.x)[None, :, None]
    k = np.arange(plan.rows_per_lane)[None, None, :]
    met = (tile * plan.x * plan.rows_per_lane + own + k * plan.x).ravel()
    return met[met < problem.rows]


def values_of_vecs(vecs: np.ndarray, first: int, values: int) -> np.ndarray:
    return (first + vecs[:, None] * values + np.arange(values)[None, :]).ravel()


def line_values(problem: Problem, plan: Plan) -> np.ndarray:
    values = 16 // problem.item
    vecs, tail = divmod(problem.size, values)
    threads, group = np.arange(plan.threads), plan.threads * plan.unroll
    positions = threads // WARP * (WARP * plan.unroll) + threads % WARP
    begins = (np.arange(plan.splits)[:, None] * group + positions[None, :]).ravel()
    met = values_of_vecs(grouped(begins, WARP, plan.unroll, plan.splits * group, vecs), 0, values)
    return np.concatenate([met, vecs * values + threads[threads < tail]])


def row_values(problem: Problem, plan: Plan, row: int) -> np.ndarray:
    values = 16 // problem.item
    addresses = [
        start + row * stride * problem.item
        for start, stride in ((problem.self, problem.self_row_stride), (problem.tensor, problem.tensor_row_stride))
    ]
    head = min(-addresses[0] % 16 // problem.item, problem.size)
    after = problem.size - head
    shift = (addresses[1] + head * problem.item) % 16
    vecs = after // values
    if plan.shifted and shift != 0:
        vecs = max((after + shift // problem.item) // values - 1, 0)
        # The last value of tensor's second vector must lie inside the row.
        assert vecs == 0 or (vecs + 1) * values - shift // problem.item <= after
    elif vecs > 0:
        assert shift == 0
    unroll = units_in_flight(problem, plan)
    lanes = (np.arange(plan.splits)[:, None] * plan.y * unroll + np.arange(plan.y)[None, :]).ravel()
    met = values_of_vecs(grouped(lanes, plan.y, unroll, plan.splits * plan.y * unroll, vecs), head, values)
    left = np.arange(problem.size - vecs * values)  # these values are distributed over all threads of all splits
    return np.concatenate([met, np.where(left < head, left, vecs * values + left)])


def lane_values(problem: Problem, plan: Plan) -> np.ndarray:
    unroll = units_in_flight(problem, plan)
    group = plan.y * unroll
    begins = (np.arange(plan.splits)[:, None] * group + np.arange(plan.y)[None, :]).ravel()
    return grouped(begins, plan.y, unroll, plan.splits * group, problem.size)


def check_coverage(problem: Problem, plan: Plan) -> None:
    if problem.rows <= MOST_MODELLED:
        assert once(rows_met(problem, plan), problem.rows)
    if problem.size > MOST_MODELLED:
        return
    values = 16 // problem.item
    if plan.path == LINE:
        assert once(line_values(problem, plan), problem.size)
    elif plan.path == ROWS:
        for row in {r for r in (0, 1, 2, 3, problem.rows // 2, problem.rows - 1) if r < problem.rows}:
            assert once(row_values(problem, plan, row), problem.size)
    elif plan.path == SHORT_ROWS:
        lanes = np.arange(plan.y)
        assert once(values_of_vecs(lanes[lanes * values < problem.size], 0, values), problem.size)
    elif plan.path == TILE:
        rows = plan.x * plan.rows_per_lane
        for here in {min(rows, problem.rows), problem.rows - (plan.tiles - 1) * rows}:
            count = here * problem.size
            whole = values_of_vecs(np.arange(count // values), 0, values)
            assert once(np.concatenate([whole, np.arange(count // values * values, count)]), count)
        assert once(lane_values_of_tile(problem, plan), problem.size)
    else:
        assert once(lane_values(problem, plan), problem.size)
        threads = np.arange(plan.threads)  # all pairs of a row and a thread
        if plan.rows_first:
            pairs = threads % plan.x * plan.y + threads // plan.x
        else:
            pairs = threads // plan.y * plan.y + threads % plan.y
        assert once(pairs, plan.threads)


def lane_values_of_tile(problem: Problem, plan: Plan) -> np.ndarray:
    """A thread reads every y-th word of 4 bytes if a row is whole words, else every y-th value."""
    word = max(1, 4 // problem.item)
    values = np.arange(problem.size).reshape(-1, word if problem.size % word == 0 else 1)
    return np.concatenate([values[lane :: plan.y].ravel() for lane in range(plan.y)])


# ---------------------------------------------------------------- random problems

SIZES = [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 511]
SIZES += [513, 1000, 1023, 1024, 1025]
SIZES += [
    2047,
    2048,
    2049,
    4095,
    8191,
    8192,
    8195,
    16384,
    32767,
    32769,
    65537,
    99991,
    2**17 + 1,
    2**20 + 3,
    2**24,
    2**31 + 5,
    2**33,
]
ROW_COUNTS = [1, 1, 1, 2, 3, 5, 8, 31, 32, 33, 100, 257, 1000, 4096, 65537, 2**20 + 1, 2**31 + 7]


@st.composite
def operands(draw, rows: int, size: int, item: int):
    """Draws a stride, a row stride and an offset."""
    values = 16 // item
    whole = -(-size // values) * values
    strides = draw(
        st.sampled_from(
            [
                (1, size),
                (1, size),
                (2, size),
                (0, size),
                (1, whole),
                (1, whole),
                (1, size + 1),
                (1, size + values),
                (1, 0),
                (0, 1),
                (0, 0),
            ]
            + [(2, 2 * size), (rows, 1), (rows + 1, 1), (3, 1)]
        )
    )
    return *strides, draw(st.sampled_from([0, 0, 0, 1, 3, values]))


@st.composite
def problems(draw, sizes=SIZES, row_counts=ROW_COUNTS):
    rows, dtype = draw(st.sampled_from(row_counts)), draw(st.sampled_from(list(ITEM)))
    size = draw(st.sampled_from([n for n in sizes if n * rows < 2**58]))
    self = draw(operands(rows, size, ITEM[dtype]))
    tensor = self if draw(st.booleans()) else draw(operands(rows, size, ITEM[dtype]))
    strides, row_strides, offsets = zip(self, tensor)
    return problem_of(rows, size, dtype, strides, row_strides, offsets, draw(st.tuples(st.booleans(), st.booleans())))


def test_any_launch_is_valid(planner):
    taken = set()

    @seeded(1800)
    @given(problem=problems(), sms=st.sampled_from([1, 4, 132, 148]), atomic=st.booleans())
    def check(problem, sms, atomic):
        problem.atomic = atomic and problem.rows == 1 and problem.dtype in (FLOAT16, FLOAT32, FLOAT64)
        plan, *rest = problem.launches(planner, sms)
        if rest:  # tested below
            return
        check_limits(problem, plan, sms)
        check_coverage(problem, plan)
        is_self, is_tensor = bool(problem.self_conjugate), bool(problem.tensor_conjugate)
        assert plan.conjugate_out == is_tensor and plan.conjugate_self == (is_self != is_tensor)
        taken.add((plan.path, plan.shifted, plan.rows_first, plan.unroll, plan.splits > 1))

    check()
    for split in (False, True):
        assert {
            (LINE, False, False, VECS_IN_FLIGHT, split),
            (ROWS, False, False, 1, split),
            (ROWS, True, False, 1, split),
        } <= taken
        assert {(VALUES, False, False, 1, split), (VALUES, False, True, 1, split)} <= taken
    assert {
        (LINE, False, False, 1, True),
        (SHORT_ROWS, False, False, 1, False),
        (TILE, False, False, 1, False),
    } <= taken


@seeded(100)
@given(problem=problems(sizes=[1, 3, 4, 16, 33, 1025], row_counts=[2**31 + 7, 2**35, 3 * 2**40 + 1]))
def test_problems_beyond_a_launch_are_split_into_parts_that_fit(planner, problem):
    """The launches have all rows in order, at their addresses."""
    begin = 0
    for plan in problem.launches(planner):
        part = Problem(*(getattr(problem, name) for name, _ in Problem._fields_))
        part.rows = plan.rows
        part.self += begin * problem.self_row_stride * problem.item
        part.tensor += begin * problem.tensor_row_stride * problem.item
        part.out += begin * problem.item
        check_limits(part, plan, 132)
        assert plan.blocks <= LIMIT
        begin += plan.rows
    assert begin == problem.rows


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "rows, size, layout, path, shifted, splits",
    [
        (1, 1, {}, LINE, False, False),
        (1, 3, {}, LINE, False, False),
        (1, 2**12 + 1, {}, LINE, False, False),
        (1, 2**13, {}, LINE, False, False),
        (1, 2**13 + 4, {}, LINE, False, True),
        (1, 2**26 + 1, {}, LINE, False, True),
        (1, 2**26, {"offsets": (1, 1)}, ROWS, False, True),
        (1, 2**26, {"offsets": (0, 1)}, ROWS, True, True),
        (1, 15, {"offsets": (0, 1)}, VALUES, False, False),
        (1, 2**26, {"strides": (2, 1)}, VALUES, False, True),
        (1, 2**26, {"strides": (0, 0)}, VALUES, False, True),
        (2**20, 16, {}, SHORT_ROWS, False, False),
        (2**20, 20, {}, ROWS, False, False),
        (2**20, 16, {"row_strides": (128, 0)}, SHORT_ROWS, False, False),
        (2**20, 3, {}, TILE, False, False),
        (2**20, 255, {}, TILE, False, False),
        (2**20, 257, {}, ROWS, False, False),
        (2**20, 255, {"row_strides": (256, 256)}, ROWS, False, False),
        (2**20, 257, {"row_strides": (257, 0)}, ROWS, True, False),
        (2**20, 3, {"row_strides": (3, 0)}, TILE, False, False),
        (2**20, 3, {"row_strides": (3, 0), "offsets": (0, 1)}, VALUES, False, False),
        (4096, 1024, {}, ROWS, False, False),
        (4, 2**22, {}, ROWS, False, True),
        (100, 3, {"strides": (2, 2)}, VALUES, False, False),
        (100, 3, {"strides": (1, 0)}, VALUES, False, False),
        (4096, 1024, {"strides": (4096, 4096), "row_strides": (1, 1)}, VALUES, False, False),
        (575, 1536, {"strides": (575, 575), "row_strides": (1, 1)}, VALUES, False, True),
    ],
)
def test_paths(planner, rows, size, layout, path, shifted, splits):
    plan = problem_of(rows, size, **layout).plan(planner)
    assert (plan.path, plan.shifted, plan.splits > 1) == (path, shifted, splits)


def test_vecs_of_a_line_that_the_device_holds_at_once_are_a_lane_each(planner):
    most = 132 * 4 * THREADS
    for vecs, unroll in ((2048, 4), (2049, 1), (most, 1), (most + 1, 4)):
        plan = problem_of(1, 4 * vecs).plan(planner)
        assert plan.unroll == unroll and (plan.splits == -(-vecs // THREADS) or unroll == 4)


def test_atomic_sums_of_a_line_take_one_large_block_a_multiprocessor(planner):
    for size in (2**15, 2**20, 2**24 + 3, 2**33):
        plan = problem_of(1, size, atomic=True).plan(planner)
        assert plan.splits <= 132 and (plan.threads == 4 * THREADS or size <= 2**20)


def test_neighbouring_lanes_read_what_lies_together(planner):
    for rows, size, strides, row_strides, rows_first in (
        (1000, 1000, (1, 2), (1000, 2000), False),
        (1000, 1000, (1000, 1000), (1, 1), True),
        (1000, 1000, (1000, 1000), (1, 0), True),
        (1, 1000, (1000, 1000), (1, 1), False),
    ):
        plan = problem_of(rows, size, strides=strides, row_strides=row_strides).plan(planner)
        assert plan.path == VALUES and plan.rows_first == rows_first


def test_two_rows_of_two_bytes_are_one_word(planner):
    for rows, stride, offset, dtype, rows_per_lane in (
        (1000, 1000, 0, FLOAT16, 2),
        (1000, 1002, 2, FLOAT16, 2),
        (1000, 1000, 0, FLOAT32, 1),
        (1000, 1000, 1, FLOAT16, 1),  # misaligned
        (1000, 1001, 0, FLOAT16, 1),
        (999, 1000, 0, FLOAT16, 1),
    ):
        problem = problem_of(rows, 50, dtype, (stride, stride), (1, 1), (0, offset))
        plan = problem.plan(planner)
        check_limits(problem, plan, 132)
        assert plan.path == VALUES and plan.rows_first and plan.rows_per_lane == rows_per_lane


def test_a_long_column_has_a_block_of_every_multiprocessor(planner):
    """One block of many warps would wait for its own loads: each of them reads 32 sectors."""
    for size, dtype, threads, splits in (
        (2048, FLOAT32, 256, 1),
        (2626, FLOAT32, 32, 11),
        (14723, FLOAT16, 32, 58),
        (2**18, FLOAT32, 128, 256),
        (2**22, FLOAT16, 256, 2048),
    ):
        plan = problem_of(1, size, dtype, (300, 300), (1, 1)).plan(planner)
        assert (plan.threads, plan.splits) == (threads, splits)


@pytest.mark.parametrize("size, threads", [(2, THREADS), (8, THREADS), (16, THREADS)])
def test_many_short_columns_have_blocks_of_many_warps(planner, size, threads):
    assert problem_of(2**22, size, strides=(2**22,) * 2, row_strides=(1, 1)).plan(planner).threads == threads
    assert problem_of(1000, size, strides=(1000,) * 2, row_strides=(1, 1)).plan(planner).tiles >= 32
