"""The ladder of convolutions, run on the CPU against numpy: every step, with sizes around whole tiles and vectors."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..ladders import POISON, SIZES, put, steps
from ..memory import Memory

POINTER = ctypes.c_void_p
INT32_MAX = 2**31 - 1
MOST_TAPS = 4095
WINDOW_OUTPUTS = 8  # outputs per thread in step "register_window"


@pytest.fixture(scope="module")
def memories():
    return Memory(1 << 17), Memory(1 << 17)


@pytest.fixture(scope="module")
def library():
    library = load("conv1d_ladder")
    library.run.argtypes = [ctypes.c_int, *[POINTER] * 3, *[ctypes.c_int64] * 4]
    library.launches.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, POINTER, ctypes.c_int]
    return library


@pytest.fixture(scope="module")
def conv1d(library, memories):
    """A function that calls a step with rows at the end of a memory or, with `begin`, at a multiple of 4 bytes at its beginning."""

    def run(step: int, rows: np.ndarray, weight: np.ndarray, begin: int | None = None, most_blocks: int = INT32_MAX):
        given, written = memories
        if begin is None:
            input = put(given, rows, align=4)
        else:
            given.bytes[:] = POISON
            input = given.bytes[begin : begin + rows.nbytes].view(np.float32).reshape(rows.shape)
            input[...] = rows
        out = put(written, np.full_like(rows, 7))
        count, size = rows.shape
        pointers = input.ctypes.data, weight.ctypes.data, out.ctypes.data
        assert library.run(step, *pointers, count, size, len(weight), most_blocks) == 0
        behind = (len(written.bytes) - out.nbytes) // 16 * 16
        assert np.all(written.bytes[:behind] == POISON) and np.all(written.bytes[behind + out.nbytes :] == POISON)
        return out

    return run


def some(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Random values. A sum of 4095 products of two of them is exact."""
    return random.integers(-31, 32, shape).astype(np.float32) / 4


def reference(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The convolution in numpy. Taps are also multiplied by the zeros beside a row."""
    padded = np.pad(rows.astype(np.float64), [(0, 0), (len(weight) // 2,) * 2])
    with np.errstate(invalid="ignore"):
        out = np.zeros(rows.shape)
        for k, tap in enumerate(weight.astype(np.float64)):
            out += tap * padded[:, k : k + rows.shape[1]]
    return out


@pytest.mark.parametrize("step", steps("conv1d"))
def test_sizes(conv1d, step):
    random = np.random.default_rng(step)
    for size in (*SIZES, 2047, 2048, 2049):
        for taps in (1, 3, 5, 7, 33):
            rows, weight = some(random, 2, size), some(random, taps)
            assert np.array_equal(conv1d(step, rows, weight), reference(rows, weight)), (size, taps)


@pytest.mark.parametrize("step", steps("conv1d"))
def test_many_taps(conv1d, step):
    """Many taps, also more than values, then a short filter, which must not use taps of the previous call."""
    random = np.random.default_rng(step)
    for taps in (255, 257, 511, 513, 1025, MOST_TAPS, 1):
        for size in (1, 2, 30, 257, 700):
            rows, weight = some(random, 2, size), some(random, taps)
            assert np.array_equal(conv1d(step, rows, weight), reference(rows, weight)), (size, taps)
    assert np.array_equal(conv1d(step, rows := some(random, 1, 4099), weight), reference(rows, weight))


@pytest.mark.parametrize("step", steps("conv1d"))
def test_rows_that_begin_anywhere(conv1d, step):
    random = np.random.default_rng(step)
    for size in (1, 3, 4, 7, 8, 9, 13, 24, 26, 63):
        for taps in (1, 3, 5, 7, 9, 11, 17):
            rows, weight = some(random, 9, size), some(random, taps)
            expected = reference(rows, weight)
            for begin in (None, 0, 4, 8, 12):
                assert np.array_equal(conv1d(step, rows, weight, begin), expected), (size, taps, begin)


@pytest.mark.parametrize("step", steps("conv1d"))
def test_values_that_are_not_finite(conv1d, step):
    """A non-finite value reaches exactly the outputs that use it. Non-finite taps give NaN over padding."""
    random = np.random.default_rng(step)
    for special in (np.nan, np.inf, -np.inf):
        for taps in (1, 3, 7, 13):
            for at in (0, 5, 8, 18, 255, 256, 299):
                rows, weight = some(random, 2, 300), np.abs(some(random, taps)) + 1
                rows[0, at] = special
                assert np.array_equal(conv1d(step, rows, weight), reference(rows, weight), equal_nan=True)
            rows = np.abs(some(random, 2, 300)) + 1
            weight[taps // 3] = special
            assert np.array_equal(conv1d(step, rows, weight), reference(rows, weight), equal_nan=True)


@pytest.mark.parametrize("step", steps("conv1d"))
def test_more_tiles_than_blocks_of_a_launch(conv1d, library, step):
    random = np.random.default_rng(step)
    for count, size in ((7, 3), (3, 700), (2, 5000)):
        rows, weight = some(random, count, size), some(random, 5)
        for most_blocks in (1, 2, 3, 5):
            assert np.array_equal(conv1d(step, rows, weight, most_blocks=most_blocks), reference(rows, weight))
    blocks = (ctypes.c_uint * 4)()
    tile = 256 * (WINDOW_OUTPUTS if step == 4 else 1)
    for count, size in ((3_000_000_000, 1), (INT32_MAX, 1), (1, 2**35 + 1), (0, 5), (5, 0)):
        tiles = count * -(-size // tile)
        expected = [INT32_MAX] * (tiles // INT32_MAX) + [tiles % INT32_MAX] * (tiles % INT32_MAX > 0)
        assert library.launches(step, count, size, blocks, len(blocks)) == len(expected)
        assert blocks[: len(expected)] == expected


def test_what_no_step_takes(library):
    weight = np.zeros(MOST_TAPS + 2, np.float32)
    for step in (*range(1, 5), -1, 5):
        assert library.run(step, None, weight.ctypes.data, None, 1, 1, len(weight), 1) != 0
