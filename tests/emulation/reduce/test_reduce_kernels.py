"""The launchers and kernels of reductions, run on the CPU on random problems and compared with numpy: every path."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..build import load
from ..dtypes import BOOL, COMPLEX, F16, F32, FLOAT, INTEGER, TYPES, DType, Operand

ROWS, LINE, SHORT_ROWS, ROWS_IN_VECS, TILE, COLUMNS = "rows", "line", "short_rows", "rows_in_vecs", "tile", "columns"
LIMIT = 2**31 - 1
ORDERED = [t for t in TYPES if t.category != COMPLEX]
SMS = 4


@pytest.fixture(scope="module")
def kernels():
    return load("reduce")


def converted(values: np.ndarray, source: DType, dtype: DType) -> np.ndarray:
    """Every value rounded to `dtype`, in a type of numpy in which their sums are exact."""
    wide = {BOOL: np.int64, INTEGER: np.int64, FLOAT: np.float64, COMPLEX: np.complex128}[dtype.category]
    if source.category == BOOL or dtype.category == BOOL:
        values = values != 0
    if dtype.category < COMPLEX and np.iscomplexobj(values):
        values = values.real
    return (values if dtype.category == BOOL else values.astype(dtype.numpy)).astype(wide)


def mean_of(total: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """The mean, divided in the accumulation dtype. The parts of complex numbers are divided separately."""
    real = np.float64 if dtype.numpy in (np.float64, np.complex128) else np.float32
    if dtype.category < COMPLEX:
        return total.astype(real) / real(count)
    return total.real.astype(real) / real(count) + 1j * (total.imag.astype(real) / real(count))


def expected(op: str, source: DType, dtype: DType, values: np.ndarray, axes: tuple, count: int) -> np.ndarray:
    x = converted(values, source, dtype)
    if op in ("max", "min"):
        return getattr(x, op)(axis=axes).astype(dtype.numpy)
    total = x.sum(axis=axes)
    if op == "mean":
        total = mean_of(total, dtype, count)
    return ((total != 0) if dtype.category == BOOL else total).astype(dtype.numpy)


def run_and_compare(
    kernels, op: str, source: Operand, dtype: DType, reduced: list, out: Operand, sms: int = SMS, limit: int = LIMIT
):
    """Runs a problem and compares the result. Returns the path of its first launch, and whether there are several launches."""
    rank = len(source.sizes)
    axes = tuple(rank - 1 - d for d in range(rank) if reduced[d])
    count = math.prod(source.sizes[d] for d in range(rank) if reduced[d])
    with np.errstate(all="ignore"):
        want = expected(op, source.dtype, dtype, source.view(source.before), axes, count)
    path, launches = ctypes.c_char_p(), ctypes.c_int()

    def array(kind, values):
        return (kind * max(len(values), 1))(*values)

    error = kernels.run(
        op.encode(),
        ctypes.c_double(count if op == "mean" else 1),
        rank,
        array(ctypes.c_int64, source.sizes),
        array(ctypes.c_int64, source.strides),
        array(ctypes.c_int64, out.strides),
        array(ctypes.c_int, reduced),
        ctypes.c_uint64(source.address),
        ctypes.c_uint64(out.address),
        source.dtype.number,
        dtype.number,
        sms,
        ctypes.c_int64(limit),
        ctypes.byref(path),
        ctypes.byref(launches),
    )
    assert error == 0
    kept = [0 if reduced[d] else slice(None) for d in range(rank)][::-1]
    np.testing.assert_array_equal(out.view(out.buffer)[tuple(kept)], want)
    # Memory beside the outputs must not have changed.
    out.view(out.buffer)[tuple(kept)] = out.view(out.before)[tuple(kept)]
    for operand in (source, out):
        np.testing.assert_array_equal(operand.buffer, operand.before)
    return path.value.decode(), launches.value > 1


def make_out(dtype: DType, sizes: list, reduced: list, random, order=None, gap: int = 0, offset: int = 0) -> Operand:
    """Outputs with size 1 in reduced dimensions. `order` is the order of dimensions in memory, by default innermost first."""
    shape = [1 if r else n for n, r in zip(sizes, reduced)]
    strides, step = [0] * len(sizes), 1
    for d in order or range(len(sizes)):
        strides[d] = 0 if reduced[d] else step
        step = step * shape[d] + gap
    return Operand(dtype, shape, strides, offset, random)


@st.composite
def problems(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 24, 33, 64, 130, 1025]), max_size=4))
    while math.prod(sizes) > 60000:
        sizes.pop()
    rank = len(sizes)
    reduced = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
    op = draw(st.sampled_from(["sum", "mean", "max", "min"]))
    source = draw(st.sampled_from(ORDERED if op in ("max", "min") else TYPES))
    dtype = source
    if op == "mean" and dtype.category < FLOAT or op == "sum" and draw(st.integers(0, 2)) == 0:
        fits = [t for t in TYPES if t.category >= max(source.category, FLOAT if op == "mean" else BOOL)]
        dtype = draw(st.sampled_from(fits))
    strides, step = [0] * rank, draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
    order = draw(st.permutations(range(rank))) if draw(st.booleans()) else range(rank)
    for d in order:
        strides[d] = step
        step = step * sizes[d] + draw(st.sampled_from([0, 0, 0, 0, 1, 4, 16]))
    if draw(st.integers(0, 4)) == 0:
        strides = [0 if draw(st.booleans()) else s for s in strides]
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    operand = Operand(source, sizes, strides, draw(st.sampled_from([0, 0, 0, 1, 3, 8])), random)
    out_order = draw(st.permutations(range(rank))) if draw(st.integers(0, 3)) == 0 else None
    out = make_out(
        dtype, sizes, reduced, random, out_order, draw(st.sampled_from([0, 0, 3])), draw(st.sampled_from([0, 0, 1]))
    )
    return op, operand, dtype, reduced, out


def test_any_problem(kernels):
    taken = set()

    @seeded(500)
    @given(problem=problems(), sms=st.sampled_from([1, 4, 64]))
    def check(problem, sms):
        taken.add(run_and_compare(kernels, *problem, sms))

    check()
    assert {path for path, _ in taken} == {ROWS, LINE, SHORT_ROWS, ROWS_IN_VECS, TILE, COLUMNS}
    assert (COLUMNS, True) in taken


@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
@pytest.mark.parametrize(
    "sizes, strides, reduced, path, split",
    [
        ([2**17 + 13], [1], [1], ROWS, True),  # whole groups of vectors, a partial group, and single values
        ([2**17 + 24], [1], [1], LINE, True),
        ([40000, 3], [1, 40000], [1, 0], LINE, True),
        ([20011, 2, 3], [1, 20011, 40023], [1, 0, 1], ROWS, True),  # several ragged rows per output
        ([64, 700], [1, 64], [0, 1], COLUMNS, True),
        ([300, 500], [1, 300], [0, 1], COLUMNS, True),
        ([3, 30001], [1, 3], [0, 1], COLUMNS, True),  # folded: several rows form a row of vectors
        ([3, 901, 4, 5], [1, 3, 2703, 2703 * 4], [0, 1, 0, 1], COLUMNS, None),  # folded, outer reduced rows
        ([5, 301, 7], [1, 5, 1505], [0, 1, 1], COLUMNS, None),
        ([1027, 40], [1, 1027], [0, 1], COLUMNS, None),  # columns begin at any offset in a vector
        ([700, 900], [1, 701], [0, 1], COLUMNS, None),  # several blocks side by side, rows at every offset in a vector
        ([301, 40, 3], [1, 302, 12091], [0, 1, 0], COLUMNS, None),
        ([350, 130], [2, 700], [0, 1], COLUMNS, None),  # every other value of aligned rows
        ([350, 5], [2, 701], [0, 1], COLUMNS, None),
        ([1027, 5, 9], [1, 1027, 5135], [0, 1, 0], COLUMNS, None),  # spread: a thread reads several columns singly
        ([9001, 13], [2, 18003], [0, 1], COLUMNS, None),
        ([3001, 3, 3, 4], [1, 3001, 9007, 27025], [0, 1, 0, 1], COLUMNS, None),  # spread, in several rows
        ([3001, 7], [2, 6001], [1, 0], ROWS, None),
        ([300, 5, 6], [2, 601, 3010], [1, 0, 1], ROWS, None),  # several such rows per output
        ([41, 700], [2, 82], [1, 0], TILE, None),
        ([33, 5000], [1, 33], [1, 0], TILE, False),
        ([12, 5001], [1, 15], [1, 0], TILE, False),  # a slice of rows
        ([2, 9, 3001], [1, 2, 18], [0, 1, 0], TILE, False),
        ([6, 4, 2001], [1, 6, 24], [0, 1, 0], TILE, False),  # aligned pieces
        ([5, 14, 1003], [1, 5, 70], [0, 1, 0], TILE, False),
        ([3, 20001], [1, 3], [1, 0], TILE, False),  # a thread has several outputs
        ([1000], [1], [1], LINE, False),
        ([2, 40, 33], [1, 3, 121], [0, 1, 0], TILE, False),  # two of three channels, several threads for an output
        ([3, 13, 3, 200], [1, 3, 39, 117], [1, 0, 1, 0], TILE, False),  # windows
        ([2, 7, 5, 3, 60], [1, 2, 14, 70, 220], [1, 0, 1, 0, 0], TILE, False),  # with rows that are cut off
        ([3, 3000, 3, 3], [1, 3, 9000, 27000], [1, 0, 1, 0], ROWS, False),  # too large for a tile
        ([16, 5000], [1, 24], [1, 0], SHORT_ROWS, False),
        ([2, 50001], [1, 2], [1, 0], ROWS_IN_VECS, False),
        ([50001], [1], [0], ROWS_IN_VECS, False),  # nothing to reduce
    ],
)
def test_what_small_problems_do_not_reach(kernels, dtype, sizes, strides, reduced, path, split):
    random = np.random.default_rng(0)
    for offset in (0, 1):
        source = Operand(dtype, sizes, strides, offset, random)
        out = make_out(dtype, sizes, reduced, random)
        for op in ("sum", "max"):
            taken = run_and_compare(kernels, op, source, dtype, reduced, out)
            if offset == 0:
                assert taken[0] == path and split in (None, taken[1])


@pytest.mark.parametrize("dtype", [F16, F32, TYPES[8]], ids=str)
@pytest.mark.parametrize(
    "sizes, reduced", [([5003], [1]), ([24, 200], [1, 0]), ([24, 200], [0, 1]), ([7, 300], [1, 0])]
)
def test_nan_wins(kernels, dtype, sizes, reduced):
    random = np.random.default_rng(1)
    strides = [math.prod(sizes[:d]) for d in range(len(sizes))]
    for position in range(0, math.prod(sizes), 97):
        source = Operand(dtype, sizes, strides, 0, random)
        source.buffer[position] = source.before[position] = np.nan
        out = make_out(dtype, sizes, reduced, random)
        for op in ("max", "min", "sum"):
            run_and_compare(kernels, op, source, dtype, reduced, out)


@seeded(60)
@given(problem=problems(), limit=st.sampled_from([300, 1000, 5000]))
def test_problems_that_take_several_launches(kernels, problem, limit):
    """Launches of a lowered size. Large problems are split in the same way."""
    run_and_compare(kernels, *problem, sms=2, limit=limit)
