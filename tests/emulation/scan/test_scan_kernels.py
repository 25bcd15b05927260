"""The launchers and kernels of scans, run on the CPU on random problems and compared with numpy: every path."""

from __future__ import annotations

import ctypes
import functools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...plan.scan.scan_problem import ALONE, COLUMNS, PACKED, ROWS, SPLIT_COLUMNS, SPLIT_ROWS, Given
from ...support.seeded import seeded
from ..build import load
from ..dtypes import BOOL, COMPLEX, F16, F32, FLOAT, INTEGER, TYPES, DType, Operand
from ..limits import set_limits

F64, C64 = TYPES[8], TYPES[9]
RESULTS = [t for t in TYPES if t.category != BOOL]


@pytest.fixture(scope="module")
def kernels():
    found = load("scan")
    found.run.restype = ctypes.c_char_p
    set_limits(found)
    return found


@pytest.fixture
def limits(kernels):
    """Sets limits of plans by name. All have the product's values afterwards."""
    yield functools.partial(set_limits, kernels)
    set_limits(kernels)


def expected(source: DType, dtype: DType, values: np.ndarray, axis: int, reverse: bool, exclusive: bool) -> np.ndarray:
    """Sums in a type of numpy in which they are exact, or wrap around."""
    wide = {INTEGER: np.int64, FLOAT: np.float64, COMPLEX: np.complex128}[dtype.category]
    if source.category == BOOL:
        values = values != 0
    x = values.astype(dtype.numpy).astype(wide)
    x = np.flip(x, axis) if reverse else x
    total = np.cumsum(x, axis)
    if exclusive:
        total = np.roll(total, 1, axis)
        total[(slice(None),) * (axis % total.ndim) + (0,)] = 0
    return (np.flip(total, axis) if reverse else total).astype(dtype.numpy)


def launch(kernels, problem: Given, shifted: bool = False) -> tuple[int, bool]:
    """Runs a problem. Returns the path of its first launch, and whether it reads vectors."""
    plans = kernels.run(ctypes.byref(problem), ctypes.c_int64(shifted))
    assert plans is not None
    first = json.loads(plans)[0]
    return first["path"], first["values"] > 1


def run_and_compare(kernels, source: Operand, out: Operand, scanned: int, reverse=False, exclusive=False):
    """Runs a problem and compares the result. Returns what launch() does."""
    rank = len(source.sizes)
    with np.errstate(all="ignore"):
        want = expected(source.dtype, out.dtype, source.view(source.before), rank - 1 - scanned, reverse, exclusive)
    array = ctypes.c_int64 * rank
    problem = Given(
        rank,
        array(*source.sizes),
        array(*source.strides),
        array(*out.strides),
        scanned,
        reverse,
        exclusive,
        source.address,
        out.address,
        source.dtype.number,
        out.dtype.number,
    )
    taken = launch(kernels, problem)
    np.testing.assert_array_equal(out.view(out.buffer), want)
    if out.buffer is not source.buffer:
        # Memory beside the results must not have changed.
        out.view(out.buffer)[...] = out.view(out.before)
        for operand in (source, out):
            np.testing.assert_array_equal(operand.buffer, operand.before)
    return taken


def dense_strides(sizes: list, order=None, gap: int = 0) -> list:
    strides, step = [0] * len(sizes), 1
    for d in order or range(len(sizes)):
        strides[d] = step
        step = step * sizes[d] + gap
    return strides


@st.composite
def problems(draw):
    sizes = draw(
        st.lists(
            st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33, 64, 130, 1025, 2050, 4100]), min_size=1, max_size=4
        )
    )
    while math.prod(sizes) > 30000:
        sizes.pop()
    rank = len(sizes)
    source, dtype = draw(st.sampled_from(TYPES)), None
    fits = [t for t in RESULTS if t.category >= source.category]
    if source.category != BOOL and draw(st.integers(0, 2)) > 0:
        dtype = source
    dtype = dtype or draw(st.sampled_from(fits))
    order = draw(st.permutations(range(rank))) if draw(st.booleans()) else range(rank)
    strides = dense_strides(sizes, order, draw(st.sampled_from([0, 0, 0, 1, 4])))
    if draw(st.integers(0, 4)) == 0:
        strides = [0 if draw(st.booleans()) else s for s in strides]
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    operand = Operand(source, sizes, strides, draw(st.sampled_from([0, 0, 0, 1, 3])), random)
    out_order = draw(st.permutations(range(rank))) if draw(st.integers(0, 3)) == 0 else order
    out = Operand(
        dtype,
        sizes,
        dense_strides(sizes, out_order, draw(st.sampled_from([0, 0, 3]))),
        draw(st.sampled_from([0, 0, 1])),
        random,
    )
    return operand, out, draw(st.integers(0, rank - 1)), draw(st.booleans()), draw(st.booleans())


def test_any_problem(kernels, limits):
    taken = set()

    @seeded(350)
    @given(problem=problems(), split=st.sampled_from([0, 200]), wide=st.sampled_from([0, 528]), clusters=st.booleans())
    def check(problem, split, wide, clusters):
        limits(
            split_rows_below=split,
            split_columns_below=split,
            wide_blocks=wide,
            has_clusters=clusters,
            alone_columns=wide,
        )
        taken.add(run_and_compare(kernels, *problem))

    check()
    assert {path for path, _ in taken} == {PACKED, ROWS, SPLIT_ROWS, COLUMNS, SPLIT_COLUMNS, ALONE}
    assert len(taken) >= 10


@pytest.mark.parametrize("dtype", [F16, F32, C64], ids=str)
@pytest.mark.parametrize(
    "sizes, scanned, path, vecs",
    [
        ([32, 700], 0, PACKED, True),
        ([33, 700], 0, PACKED, True),  # rows begin anywhere in a vector
        ([203, 50], 0, PACKED, True),  # and a chunk begins anywhere in a vector
        ([5, 1201], 0, PACKED, True),
        ([1], 0, PACKED, True),
        ([4000, 9], 0, ROWS, True),
        ([4003, 3], 0, ROWS, True),  # rows begin anywhere in a vector
        ([40000, 2], 0, SPLIT_ROWS, True),
        ([70001], 0, SPLIT_ROWS, True),
        ([8, 9, 33], 1, COLUMNS, True),
        ([64, 500], 1, COLUMNS, True),
        ([3, 901, 4], 1, COLUMNS, False),
        ([1000, 12], 1, COLUMNS, True),
        ([8, 20000], 1, SPLIT_COLUMNS, True),
        ([5, 12000, 2], 1, SPLIT_COLUMNS, False),
    ],
)
def test_what_small_problems_do_not_reach(kernels, limits, dtype, sizes, scanned, path, vecs):
    limits(split_rows_below=0 if path == ROWS else 264, split_columns_below=0 if path == COLUMNS else 200)
    random = np.random.default_rng(0)
    for reverse in (False, True):
        source = Operand(dtype, sizes, dense_strides(sizes), 0, random)
        out = Operand(dtype, sizes, dense_strides(sizes), 0, random)
        taken = run_and_compare(kernels, source, out, scanned, reverse, exclusive=reverse)
        assert taken[0] == path and vecs in (None, taken[1])


@pytest.mark.parametrize("sizes, scanned", [([600_011], 0), ([2, 300_003], 1)])
def test_look_back_over_groups(kernels, sizes, scanned):
    """More than 256 tiles, so that tiles read tiles, runs and groups."""
    random = np.random.default_rng(0)
    source = Operand(TYPES[5], sizes, dense_strides(sizes), 0, random)
    out = Operand(TYPES[5], sizes, dense_strides(sizes), 0, random)
    assert run_and_compare(kernels, source, out, scanned)[0] in (SPLIT_ROWS, SPLIT_COLUMNS)


def results_of(kernels, source: Operand, out: Operand, scanned: int) -> np.ndarray:
    """Scans values of float32 whose sums are rounded."""
    rank = len(source.sizes)
    array = ctypes.c_int64 * rank
    strides, out_strides = array(*source.strides), array(*out.strides)
    problem = Given(rank, array(*source.sizes), strides, out_strides, scanned, 0, 0, source.address, out.address, 8, 8)
    launch(kernels, problem)
    return out.view(out.buffer).copy()


@pytest.mark.parametrize(
    "sizes, scanned, out_order",
    [
        ([4096 * 37 + 5], 0, [0]),
        ([2048 * 35 + 1, 2], 0, [0, 1]),
        ([2, 30000], 1, [0, 1]),
        ([5, 12000], 1, [1, 0]),  # blocks copy tiles together
    ],
)
def test_all_ways_between_blocks_have_the_same_bits(kernels, limits, sizes, scanned, out_order):
    """Clusters, look-back, and without patience, where every block computes what comes before it from the input."""
    random = np.random.default_rng(3)
    source = Operand(F32, sizes, dense_strides(sizes), 0, random)
    source.buffer[:] = source.before[:] = random.standard_normal(source.buffer.shape)
    results = []
    for way in ({}, {"has_clusters": False}, {"has_clusters": False, "patience": 0}):
        limits(**way)
        out = Operand(F32, sizes, dense_strides(sizes, out_order), 0, random)
        results.append(results_of(kernels, source, out, scanned))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("gaps", [(0, 0), (1, 0), (0, 1), (3, 2)], ids=str)
@pytest.mark.parametrize("dtype", [TYPES[5], F32], ids=str)
def test_columns_with_gaps(kernels, dtype, gaps):
    """Rows of columns begin inside vectors in the input, in the output or in both."""
    random = np.random.default_rng(0)
    source, out = (Operand(dtype, [64, 40], dense_strides([64, 40], gap=gap), 0, random) for gap in gaps)
    assert run_and_compare(kernels, source, out, 1)[1] == (gaps == (0, 0))


@pytest.mark.parametrize("length", [2, 5, 8])
def test_short_columns_of_a_block_of_several_warps(kernels, length):
    random = np.random.default_rng(0)
    for dtype in (F16, F32, C64):
        sizes = [1096, length, 264]
        source, out = (Operand(dtype, sizes, dense_strides(sizes), 0, random) for _ in range(2))
        assert run_and_compare(kernels, source, out, 1) == (COLUMNS, True)


@pytest.mark.parametrize("length", [2, 5, 16, 17, 40])
def test_threads_scan_columns_alone(kernels, limits, length):
    """Any dtype, any length beside the 4, 8 or 16 values of a tile, any strides, and rows beyond the columns of a block."""
    limits(alone_columns=0)
    random = np.random.default_rng(0)
    for k, dtype in enumerate([F16, F32, F64, C64, *TYPES[1:7]]):
        sizes = [37, length, 9]
        source, out = (Operand(dtype, sizes, dense_strides(sizes, gap=gap), 0, random) for gap in (k % 3, 1))
        assert run_and_compare(kernels, source, out, 1, k % 2 == 1, k % 4 > 1) == (ALONE, False)
    limits(alone_columns=0, launch_limit=40)
    run_and_compare(kernels, *(Operand(F32, sizes, dense_strides(sizes, gap=1), 0, random) for _ in range(2)), 1)


@pytest.mark.parametrize("dtypes", [(F16, F16), (F32, F32), (F64, F64), (F16, F32), (TYPES[1], TYPES[5])], ids=str)
def test_rows_that_begin_elsewhere_in_a_vector_than_their_results(kernels, limits, dtypes):
    """Units of 2 to 16 bytes are cut out of two vectors of the input."""
    limits(split_rows_below=0)
    random = np.random.default_rng(0)
    for length, offset, gap in [(512, 1, 0), (2061, 3, 1), (4500, 0, 3), (8000, 5, 2)]:
        for reverse in (False, True):
            source = Operand(dtypes[0], [length, 3], dense_strides([length, 3], gap=gap), offset, random)
            out = Operand(dtypes[1], [length, 3], dense_strides([length, 3]), 0, random)
            path, vecs = run_and_compare(kernels, source, out, 0, reverse, exclusive=reverse)
            assert (path, vecs) == (ROWS, True)


@pytest.mark.parametrize("gaps", [(1, 0), (3, 2)], ids=str)
def test_short_rows_that_no_vectors_fit_are_columns(kernels, gaps):
    random = np.random.default_rng(0)
    for dtype in (F16, F32):
        source, out = (Operand(dtype, [21, 90], dense_strides([21, 90], gap=gap), 0, random) for gap in gaps)
        assert run_and_compare(kernels, source, out, 0) == (COLUMNS, False)


@pytest.mark.parametrize("dtype", [F16, F32, C64], ids=str)
@pytest.mark.parametrize(
    "sizes, order, scanned",
    [
        ([300, 16, 3], [1, 0, 2], 1),  # channels-last, along the channels
        ([300, 19, 3], [1, 0, 2], 1),  # the segments of the input are one run
        ([40, 24, 9], [1, 0, 2], 0),  # along the innermost dimension of the output
        ([40, 23, 70], [1, 0, 2], 2),  # another dimension is innermost in each of them
        ([40, 24, 1], [1, 0, 2], 2),  # nothing is added
        ([50, 700, 2], [2, 1, 0], 1),
        ([19, 700], [0, 1], 1),
    ],
)
def test_tiles_that_a_block_copies_together(kernels, dtype, sizes, order, scanned):
    random = np.random.default_rng(0)
    for reverse in (False, True):
        source = Operand(dtype, sizes, dense_strides(sizes, order), 0, random)
        out = Operand(dtype, sizes, dense_strides(sizes), 0, random)
        path, vecs = run_and_compare(kernels, source, out, scanned, reverse, exclusive=reverse)
        assert path in (COLUMNS, SPLIT_COLUMNS) and not vecs


@pytest.mark.parametrize("sizes, scanned", [([40, 30], 0), ([9000], 0), ([30000], 0), ([40, 30], 1), ([8, 9000], 1)])
def test_in_place(kernels, sizes, scanned):
    random = np.random.default_rng(0)
    operand = Operand(F32, sizes, dense_strides(sizes), 0, random)
    run_and_compare(kernels, operand, operand, scanned)


def test_problems_are_launched_in_parts(kernels, limits):
    """With a limit that small problems exceed, and with more dimensions than a launch supports."""
    random = np.random.default_rng(0)
    for sizes, scanned in (([7, 100], 0), ([100, 7], 1), ([3, 40, 30], 1)):
        limits(launch_limit=40)
        source = Operand(F32, sizes, dense_strides(sizes), 0, random)
        run_and_compare(kernels, source, Operand(F32, sizes, dense_strides(sizes), 0, random), scanned, True)
    limits()
    sizes = [2] * 12
    source = Operand(F32, sizes, dense_strides(sizes, [7, 0, 9, 2, 11, 4, 1, 6, 3, 8, 5, 10]), 0, random)
    run_and_compare(kernels, source, Operand(F32, sizes, dense_strides(sizes), 0, random), 5)


@pytest.mark.parametrize("sizes, scanned", [([50], 0), ([300, 4], 0), ([9000], 0), ([30000], 0), ([6, 500], 1)])
def test_nan_and_infinity_reach_only_later_values(kernels, sizes, scanned):
    random = np.random.default_rng(1)
    for position in range(0, math.prod(sizes), 997):
        for special in (np.nan, np.inf):
            source = Operand(F32, sizes, dense_strides(sizes), 0, random)
            source.buffer[position] = source.before[position] = special
            run_and_compare(kernels, source, Operand(F32, sizes, dense_strides(sizes), 0, random), scanned)


@pytest.mark.parametrize("sizes, scanned", [([2**17], 0), ([4, 2**15], 1)])
def test_long_sums_keep_float32_accuracy(kernels, sizes, scanned):
    """Carries are float64, so the error does not grow with the number of tiles."""
    random = np.random.default_rng(2)
    source = Operand(F32, sizes, dense_strides(sizes), 0, random)
    source.buffer[:] = source.before[:] = random.random(source.buffer.shape)
    got = results_of(kernels, source, Operand(F32, sizes, dense_strides(sizes), 0, random), scanned)
    want = np.cumsum(source.view(source.before).astype(np.float64), len(sizes) - 1 - scanned)
    assert np.max(np.abs(got - want) / want) < 8 * 2.0**-24
