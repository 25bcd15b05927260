"""The ladder of spmm, run on the CPU against numpy: every step and dtype, on matrices with rows of any length."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

import numpy as np
import pytest

from ..build import load
from ..dtypes import BF16, F32, DType
from ..ladders import put, steps
from ..memory import Memory, decode, encode

STEPS = {step.id: step.values[0] for step in steps("spmm")}
KINDS = [pytest.param(step, dtype, id=f"{step}-{dtype}") for step in STEPS for dtype in (F32, BF16)]
GUARD = 0x7F81  # a NaN in both dtypes
# The entries of a piece, the shortest window, the most windows, the least bytes of a slice, the bytes of the L2 cache.
DEFAULT = (256, 128, 1 << 16, 128, 50 << 20)
SMALL = [(4, 5, 1 << 16, 32, 0), (1, 1, 1 << 16, 16, 4000), (7, 2, 9, 64, 0)]
FEATURES = [1, 3, 4, 8, 31, 32, 33, 36, 64, 100, 128, 136, 264]


def lengths(kind: str, rows: int, random: np.random.Generator) -> np.ndarray:
    """The number of entries of each row."""
    uniform = random.integers(0, 9, rows)
    if kind == "empty":
        return np.zeros(rows, np.int64)
    if kind == "one entry":
        return np.ones(rows, np.int64)
    if kind == "long":
        return random.integers(60, 90, rows)
    if kind == "first" and rows:
        uniform[1:] = 0
        uniform[0] = 300
    if kind == "last" and rows:
        uniform[:-1] = 0
        uniform[-1] = 300
    if kind == "hub" and rows:
        uniform[rows // 2] = 700
    if kind == "gaps":
        uniform[random.random(rows) < 0.8] = 0
    return uniform


SHAPES = ["uniform", "empty", "one entry", "long", "first", "last", "hub", "gaps"]


class Operands:
    """A matrix with rows of these lengths, and dense rows. Sums are exact in float32, in any order."""

    def __init__(self, dtype: DType, kind: str, rows: int, columns: int, features: int, weighted: bool, seed: int):
        random = np.random.default_rng(seed)
        counts = lengths(kind, rows, random)
        self.dtype, self.counts, self.columns = dtype, counts, columns
        self.ptr = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
        self.index = random.integers(0, columns, self.ptr[-1]).astype(np.int32)
        self.value = encode(dtype, random.integers(-4, 5, len(self.index)) / 4) if weighted else None
        self.dense = encode(dtype, random.integers(-8, 9, (columns, features)) / 4)

    def expected(self) -> np.ndarray:
        terms = decode(self.dtype, self.dense)[self.index]
        if self.value is not None:
            terms = terms * decode(self.dtype, self.value)[:, None]
        sums = np.zeros((len(self.counts), terms.shape[1]))
        np.add.at(sums, np.repeat(np.arange(len(self.counts)), self.counts), terms)
        return encode(self.dtype, sums)


@pytest.fixture(scope="module")
def memories():
    return [Memory(size) for size in (1 << 14, 1 << 15, 1 << 15, 1 << 17, 1 << 17)]


@pytest.fixture(scope="module")
def library():
    library = load("spmm_ladder")
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.run.argtypes = [ctypes.c_int] * 2 + [pointer] * 5 + [number] * 4 + [pointer]
    return library


def run(library, memories, step: str, operands: Operands, align: int = 16, limits=DEFAULT) -> np.ndarray:
    """The result. Fails if the step changes an operand or writes outside of the result."""
    dtype, features = operands.dtype, operands.dense.shape[1]
    inputs = [operands.ptr, operands.index, operands.value, operands.dense]
    least = [4, 4, dtype.numpy.itemsize, align]
    placed = [None if x is None else put(m, x, a) for m, x, a in zip(memories, inputs, least)]
    memory = memories[4].bytes
    out = put(memories[4], np.zeros((len(operands.counts), features), dtype.numpy), align)
    memory.view(np.uint16)[:] = GUARD
    assert (
        library.run(
            STEPS[step],
            dtype.number,
            *(None if x is None else x.ctypes.data for x in (*placed, out)),
            len(operands.counts),
            operands.columns,
            len(operands.index),
            features,
            np.array(limits, np.int64).ctypes.data,
        )
        == 0
    )
    for before, after in zip(inputs, placed):
        assert before is None or before.tobytes() == after.tobytes()
    result = out.copy()
    out.view(np.uint16)[...] = GUARD
    assert (memory.view(np.uint16) == GUARD).all()
    return result


@pytest.mark.parametrize("step, dtype", KINDS)
def test_spmm(library, memories, step, dtype):
    """Rows of any lengths and features, aligned or not, with limits that small problems reach."""
    number = 0
    for features in FEATURES:
        for kind in SHAPES:
            for rows in (1, 33):
                number += 1
                operands = Operands(dtype, kind, rows, 40, features, number % 3 > 0, number)
                align = 16 if number % 4 else dtype.numpy.itemsize
                out = run(library, memories, step, operands, align, SMALL[number % len(SMALL)])
                np.testing.assert_array_equal(out, operands.expected())


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("step, dtype", KINDS)
def test_many_rows(library, memories, step, dtype, kind):
    """Several blocks, and the limits of large problems."""
    rows = 60 if kind == "long" else 700
    operands = Operands(dtype, kind, rows, 300, 32, True, 5)
    np.testing.assert_array_equal(run(library, memories, step, operands), operands.expected())


@pytest.mark.parametrize("step, dtype", KINDS)
def test_nothing_to_add(library, memories, step, dtype):
    for rows, columns, features in ((0, 3, 4), (5, 3, 0), (5, 0, 8), (0, 0, 0)):
        operands = Operands(dtype, "empty", rows, columns, features, True, 0)
        np.testing.assert_array_equal(run(library, memories, step, operands), operands.expected())


@pytest.mark.parametrize("limits", [DEFAULT, *SMALL], ids=str)
@pytest.mark.parametrize("step, dtype", KINDS)
def test_special_values(library, memories, step, dtype, limits):
    """Infinities and NaN reach the rows that have their entries, and no others."""
    operands = Operands(dtype, "uniform", 33, 40, 12, True, 3)
    operands.dense[7] = encode(dtype, np.full(12, np.inf))
    operands.dense[9] = 0x7FC0 if dtype is BF16 else np.nan
    with np.errstate(invalid="ignore"):
        expected = decode(dtype, operands.expected())
        out = decode(dtype, run(library, memories, step, operands, limits=limits))
    has_nan = np.isnan(expected)
    assert has_nan.any() and not has_nan.all()
    np.testing.assert_array_equal(np.isnan(out), has_nan)
    np.testing.assert_array_equal(out[~has_nan], expected[~has_nan])


def rounded(dtype: DType, seed: int) -> Operands:
    """Operands whose sums depend on the order of their terms."""
    random = np.random.default_rng(seed)
    operands = Operands(dtype, "hub", 33, 40, 36, False, seed)
    operands.dense = encode(dtype, random.standard_normal(operands.dense.shape))
    return operands


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_sums_are_in_order_and_rounded_once(library, memories, dtype):
    operands = rounded(dtype, 1)
    sums = np.zeros((33, 36), np.float32)
    for entry, row in enumerate(np.repeat(np.arange(33), operands.counts)):
        sums[row] += decode(dtype, operands.dense[operands.index[entry]]).astype(np.float32)
    for step in ("thread_per_row", "warp_per_row", "vectors"):
        np.testing.assert_array_equal(run(library, memories, step, operands), encode(dtype, sums))
    for step in ("split_rows", "equal_entries"):  # these add sums of parts
        out = decode(dtype, run(library, memories, step, operands, limits=SMALL[0]))
        np.testing.assert_allclose(out, sums, rtol=2e-2 if dtype is BF16 else 1e-5, atol=1e-4)


@pytest.mark.parametrize("limits", SMALL, ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_slices_change_no_sum(library, memories, dtype, limits):
    operands = rounded(dtype, 2)
    whole, sliced = (run(library, memories, s, operands, limits=limits) for s in ("equal_entries", "feature_slices"))
    np.testing.assert_array_equal(whole, sliced)


@pytest.mark.parametrize("column", [-1, 40, -(1 << 31), (1 << 31) - 1])
@pytest.mark.parametrize("step, dtype", KINDS)
def test_a_column_out_of_range_ends_the_kernel(library, memories, step, dtype, column):
    operands = Operands(dtype, "uniform", 33, 40, 8, True, 4)
    operands.index[11] = column
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os.close(2)
        try:
            run(library, memories, step, operands)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGABRT
