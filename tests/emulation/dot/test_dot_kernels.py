"""The launchers and kernels of dot products, run on the CPU on random problems and compared with numpy: every path."""

from __future__ import annotations

import ctypes
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...plan.dot.dot_planner import LINE, ROWS, SHORT_ROWS, TILE, VALUES, Given, Plan
from ...support.seeded import seeded
from ..build import load
from ..dtypes import BF16, BOOL, F16, F32, FLOAT, INTEGER, TYPES, DType
from ..memory import Memory, decode, encode

SUMMED = [*(t for t in TYPES if t.category != BOOL), BF16]
ATOMIC = [t for t in SUMMED if t.category == FLOAT]
F64, C64, C128 = TYPES[8], TYPES[9], TYPES[10]
GUARD, POISON = 256, 0xCD
LIMITS = {
    "blocks": 16,
    "unsplit": 2048,
    "tile_row_bytes": 1024,
    "tile_bytes": 16 << 10,
    "launch_blocks": 2**31 - 1,
}


@pytest.fixture(scope="module")
def kernels():
    library = load("dot")
    library.run.restype = ctypes.c_char_p
    return library


@pytest.fixture(scope="module")
def memories():
    return Memory(4 << 20), Memory(4 << 20)


def some(dtype: DType, random: np.random.Generator, count: int, atomic: bool) -> np.ndarray:
    """Random values with exact sums: multiples of 1/4. If partial sums are rounded (`atomic`), the values are -1, 0 and 1."""
    if dtype.category == INTEGER:
        return random.integers(0, 256, count * dtype.numpy.itemsize, np.uint8).view(dtype.numpy)
    if atomic and dtype.numpy.itemsize == 2:
        return encode(dtype, random.integers(-1, 2, count).astype(np.float64))
    return encode(dtype, F64.some(random, count)) if dtype is BF16 else dtype.some(random, count)


class Operand:
    """The memory layout of an operand: strides in elements, and the number of elements between the end (or the beginning) of the
    memory and the operand's last (or first) element, within an aligned vector."""

    def __init__(self, stride: int, row_stride: int, offset: int = 0, at_end: bool = False, conjugate: bool = False):
        self.stride, self.row_stride, self.offset, self.at_end, self.conjugate = (
            stride,
            row_stride,
            offset,
            at_end,
            conjugate,
        )

    def __repr__(self):
        return f"Operand({self.stride}, {self.row_stride}, {self.offset}, {self.at_end}, {self.conjugate})"

    def put(self, memory: Memory, dtype: DType, rows: int, size: int) -> np.ndarray:
        """A (rows, size) view. The bytes around it are poisoned."""
        item = dtype.numpy.itemsize
        count = (rows - 1) * self.row_stride + (size - 1) * self.stride + 1
        skipped = self.offset % (16 // item)
        begin = skipped * item
        if self.at_end:
            begin += (len(memory.bytes) - (begin + count * item)) // 16 * 16
        near = memory.bytes[max(begin - GUARD, 0) : begin + count * item + GUARD]
        near[:] = 0xFF  # NaN, or -1
        values = memory.bytes[begin : begin + count * item].view(dtype.numpy)
        assert len(values) == count
        return np.lib.stride_tricks.as_strided(values, (rows, size), (self.row_stride * item, self.stride * item))


def expected(dtype: DType, pairs: list) -> np.ndarray:
    """The dot products of two (rows, size) arrays, each given with a flag for its conjugate."""
    a, b = (np.conj(values) if conjugate else values for values, conjugate in pairs)
    with np.errstate(all="ignore"):
        return encode(dtype, np.einsum("rn,rn->r", a, b))


def run_and_compare(
    kernels, memories, dtype, rows, size, self, tensor, sms=1, atomic=False, out_offset=0, seed=0, **limits
) -> Plan:
    random = np.random.default_rng(seed)
    item = dtype.numpy.itemsize
    views = []
    for operand, memory in zip((self, tensor), memories):
        view = operand.put(memory, dtype, rows, size)
        view[...] = some(dtype, random, rows * size, atomic).reshape(rows, size)
        views.append(view)
    before = [view.copy() for view in views]
    want = expected(dtype, [(decode(dtype, view), operand.conjugate) for view, operand in zip(views, (self, tensor))])

    raw = np.full(rows * item + 2 * GUARD + 64, POISON, np.uint8)
    begin = -raw.ctypes.data % 64 + GUARD + out_offset * item
    addresses = [view.ctypes.data for view in views]
    problem = Given(
        addresses[0], self.stride, self.row_stride, self.conjugate, addresses[1], tensor.stride, tensor.row_stride, tensor.conjugate,
        raw.ctypes.data + begin, dtype.number, rows, size, atomic,
    )  # fmt: skip
    lowered = (ctypes.c_int64 * len(LIMITS))(*(LIMITS | limits).values())
    workspaces, intact = ctypes.c_int(), ctypes.c_int()
    json_of_plan = kernels.run(ctypes.byref(problem), sms, lowered, ctypes.byref(workspaces), ctypes.byref(intact))
    assert intact.value, "a kernel wrote past its workspace or shared memory"
    taken = Plan(json.loads(json_of_plan))
    taken.workspaces = workspaces.value
    written = rows * item
    np.testing.assert_array_equal(raw[begin : begin + written].view(dtype.numpy), want)
    if atomic:
        written = max(written, 4)  # the kernel may write the whole 4-byte word of an fp16 or bf16 result
    # Memory beside the results must not have changed.
    raw[begin : begin + written] = POISON
    assert (raw == POISON).all()
    for view, own in zip(views, before):
        assert view.tobytes() == own.tobytes()
    return taken


def groups_of_a_block(dtype: DType, size: int, taken: Plan) -> int:
    """The number of loop iterations of the busiest block, on the paths line, rows and values."""
    item = dtype.numpy.itemsize
    unroll = {LINE: taken.unroll, ROWS: 2 if taken.shifted else 4, VALUES: 4 if item >= 8 else 8}.get(taken.path)
    if unroll is None:
        return 1
    units = size if taken.path == VALUES else max(size * item // 16, 1)
    return -(-units // (taken.y * unroll * taken.splits))


# ---------------------------------------------------------------- random problems

SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 64, 65, 100, 128, 130, 200, 255, 257, 512, 1000]
SIZES += [1024, 1027, 2048, 4099]
SIZES += [8192, 16384, 20011] * 2


@st.composite
def operands(draw, dtype: DType, rows: int, size: int):
    values = 16 // dtype.numpy.itemsize
    whole = -(-size // values) * values
    layouts = (
        [(1, size)] * 3
        + [(2, size), (0, size)]
        + [(1, whole)] * 3
        + [(1, whole + values), (1, size + 1), (1, 0), (0, 1), (0, 0)]
    )
    layouts += [(2, 2 * size), (3, 1), (rows, 1), (rows + 1, 1)]
    offset = draw(st.sampled_from([*[0] * 12, *range(1, 16)]))
    return Operand(*draw(st.sampled_from(layouts)), offset, draw(st.booleans()), draw(st.booleans()))


@st.composite
def problems(draw, dtypes, row_counts, most=40000):
    dtype = draw(st.sampled_from(dtypes))
    size = draw(st.sampled_from([n for n in SIZES if n <= most]))
    rows = draw(st.sampled_from([n for n in row_counts if n * size <= most]))
    self = draw(operands(dtype, rows, size))
    if draw(st.booleans()):
        tensor = Operand(self.stride, self.row_stride, self.offset, draw(st.booleans()), draw(st.booleans()))
    else:
        tensor = draw(operands(dtype, rows, size))
    return dtype, rows, size, self, tensor


@st.composite
def some_limits(draw):
    """Draws the room's limits, or smaller ones, with which small problems have splits and several loop iterations."""
    if draw(st.booleans()):
        return {}
    return {
        "blocks": draw(st.sampled_from([1, 2, 16])),
        "unsplit": draw(st.sampled_from([8, 64, 4096])),
        "tile_row_bytes": draw(st.sampled_from([0, 256, 1024])),
        "tile_bytes": draw(st.sampled_from([1 << 10, 16 << 10])),
    }


def test_any_problem(kernels, memories):
    taken, rounds = set(), set()

    @seeded(600)
    @given(
        problem=problems(SUMMED, [1, 1, 1, 2, 3, 5, 8, 17, 33, 64, 130, 700]),
        sms=st.sampled_from([1, 2, 8]),
        out_offset=st.sampled_from([0, 0, 1, 3]),
        seed=st.integers(0, 2**31),
        limits=some_limits(),
    )
    def check(problem, sms, out_offset, seed, limits):
        plan = run_and_compare(kernels, memories, *problem, sms, out_offset=out_offset, seed=seed, **limits)
        split = plan.splits > 1
        assert plan.workspaces == split
        taken.add((plan.path, plan.shifted, plan.rows_first, plan.unroll, split))
        if groups_of_a_block(problem[0], problem[2], plan) > 1:
            rounds.add((plan.path, plan.shifted))

    check()
    for split in (False, True):
        assert {(LINE, False, False, 4, split), (ROWS, False, False, 1, split), (ROWS, True, False, 1, split)} <= taken
        assert {(VALUES, False, False, 1, split), (VALUES, False, True, 1, split)} <= taken
    assert {
        (LINE, False, False, 1, True),
        (SHORT_ROWS, False, False, 1, False),
        (TILE, False, False, 1, False),
    } <= taken
    assert rounds == {(LINE, False), (ROWS, False), (ROWS, True), (VALUES, False)}


def test_any_atomic_sum(kernels, memories):
    """Atomic sums of random problems. In fp16 and bf16 they stay so small that none is rounded."""
    taken = set()

    @seeded(150)
    @given(
        problem=problems(ATOMIC, [1], most=5000),
        sms=st.sampled_from([1, 2, 8]),
        out_offset=st.sampled_from([0, 2, 4]),
        seed=st.integers(0, 2**31),
        limits=some_limits(),
    )
    def check(problem, sms, out_offset, seed, limits):
        dtype, _, size, self, tensor = problem
        if dtype.numpy.itemsize == 2 and self.stride == tensor.stride == 0 and size > 256:
            return
        plan = run_and_compare(kernels, memories, *problem, sms, True, out_offset, seed, **limits)
        taken.add(plan.splits > 1)

    check()
    assert taken == {False, True}


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_every_path_of_a_dtype(kernels, memories, dtype):
    values = 16 // dtype.numpy.itemsize
    long = 1500 * values + 3
    paths = [
        (LINE, 1, long, (1, 0), (1, 0)),
        (LINE, 1, 600 * values, (1, 0), (1, 0)),
        (ROWS, 3, long, (1, long), (1, long)),
        (ROWS, 2, long, (1, long, 1), (1, 0, 0)),
        (SHORT_ROWS, 100, 3 * values, (1, 3 * values), (1, 0)),
        (TILE, 100, 13, (1, 13), (1, 13)),
        (VALUES, 2, long, (2, 1), (3, 0, 1)),
        (VALUES, 70, 300, (70, 1), (71, 1)),
    ]
    for path, rows, size, self, tensor in paths:
        if dtype is C128 and path == TILE:  # a value is a whole vector
            continue
        for limits in ({}, {"unsplit": 256, "blocks": 8}):
            taken = run_and_compare(
                kernels, memories, dtype, rows, size, Operand(*self), Operand(*tensor), sms=2, **limits
            )
            if dtype is C128 and path == ROWS:
                continue  # the vectors of one row are aligned for every offset
            assert taken.path == path and (taken.splits > 1 or not limits or path in (SHORT_ROWS, TILE))


@pytest.mark.parametrize("dtype", ATOMIC, ids=str)
@pytest.mark.parametrize(
    "path, self, tensor",
    [
        (LINE, (1, 0), (1, 0)),
        (ROWS, (1, 0, 1), (1, 0, 1)),
        (ROWS, (1, 0, 0), (1, 0, 1)),
        (VALUES, (2, 0), (1, 0)),
    ],
)
def test_atomic_sums_of_every_path(kernels, memories, dtype, path, self, tensor):
    size = 1100 * (16 // dtype.numpy.itemsize) + 3
    for unsplit in (1 << 20, 16):
        taken = run_and_compare(
            kernels, memories, dtype, 1, size, Operand(*self), Operand(*tensor), sms=2, atomic=True, unsplit=unsplit
        )
        shifted = path == ROWS and self != tensor
        assert taken.path == path and taken.shifted == shifted and (taken.splits > 1) == (unsplit == 16)
        assert taken.y == 1024 or path != LINE or unsplit > 16  # the largest number of threads per block


@pytest.mark.parametrize("size", [*range(1, 20), 31, 33, 47, 48, 49, 63, 64, 65])
@pytest.mark.parametrize("dtype", [TYPES[1], F16, F32, C64], ids=str)
def test_every_end_of_a_row(kernels, memories, dtype, size):
    """Rows that begin and end at every element of a vector, where the memory also begins and ends."""
    values = 16 // dtype.numpy.itemsize
    for own, other in {(0, 0), (0, 1), (1, 0), (1, 1), (1, values - 1), (values - 1, values - 1), (values // 2, 0)}:
        for at_end in (False, True):
            operands = (Operand(1, size, o % values, at_end, conjugate=at_end) for o in (own, other))
            run_and_compare(kernels, memories, dtype, 1 + size % 3, size, *operands, unsplit=2, blocks=8)


@pytest.mark.parametrize("conjugate", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(
    "rows, size, strides, offsets, path",
    [
        (1, 9001, (1, 1), (0, 0), LINE),
        (3, 9001, (1, 1), (0, 1), ROWS),
        (50, 8, (1, 1), (0, 0), SHORT_ROWS),
        (50, 17, (1, 1), (0, 0), TILE),
        (2, 9001, (2, 2), (0, 0), VALUES),
    ],
)
def test_conjugates(kernels, memories, rows, size, strides, offsets, path, conjugate):
    for unsplit in (64, 1 << 20):
        operands = (Operand(s, s * size, o, False, c) for s, o, c in zip(strides, offsets, conjugate))
        taken = run_and_compare(kernels, memories, C64, rows, size, *operands, sms=2, unsplit=unsplit)
        assert taken.path == path and (taken.splits > 1) == (path in (LINE, ROWS, VALUES) and unsplit == 64)


@pytest.mark.parametrize("splits", [2, 31, 32, 33, 500, 600])
def test_the_second_launch_adds_any_number_of_sums(kernels, memories, splits):
    size = 4 * 256 * splits
    taken = run_and_compare(
        kernels, memories, F32, 1, size, Operand(1, size), Operand(1, size), sms=splits, blocks=1, unsplit=1
    )
    assert taken.splits == splits and taken.path == LINE


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 20])
@pytest.mark.parametrize("rows", [32 * 64 - 1, 32 * 64, 32 * 256 + 7])
def test_many_short_columns(kernels, memories, size, rows):
    """Many short columns. The more rows there are, the more threads of a block lie along the rows."""
    for dtype in (F32, F16):
        taken = run_and_compare(kernels, memories, dtype, rows, size, Operand(rows, 1), Operand(rows, 1), sms=1)
        assert taken.rows_first and taken.path == VALUES or size == 1


@pytest.mark.parametrize("rows, size, offset", [(2, 9, 0), (130, 1, 2), (64, 50, 0), (38, 700, 6)])
def test_two_rows_of_a_thread(kernels, memories, rows, size, offset):
    """Two values of 2 bytes are read as one word, also by the blocks of split rows."""
    for dtype in (F16, BF16):
        for sms in (1, 132):
            operand = Operand(rows + 2, 1, offset, at_end=offset == 0)
            taken = run_and_compare(kernels, memories, dtype, rows, size, operand, Operand(rows + 4, 1), sms=sms)
            assert taken.path == VALUES and taken.rows_per_lane == 2
            assert (taken.splits > 1) == (size == 700 and sms == 132)


@pytest.mark.parametrize("layout", [(1, 3), (4, 1), (1, 4)], ids=str)
def test_rows_beyond_a_launch(kernels, memories, layout):
    """More rows than a launch with few blocks can process. Rows are split into launches with separate results."""
    rows = 20000
    operand = Operand(*layout) if layout[0] == 1 else Operand(rows + 1, 1)
    run_and_compare(kernels, memories, F32, rows, 3 + (layout[1] == 4), operand, operand, launch_blocks=1, out_offset=1)
