"""The ladder of scans, run on the CPU against numpy in float64: every step, with sizes around whole tiles."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..ladders import POISON, SIZES, put, steps
from ..memory import Memory

POINTER = ctypes.c_void_p
STEPS = steps("cumsum")
FIRST_OF_VECTORS = next(number for number, step in enumerate(STEPS) if step.id == "vectors")
LOOK_BACK = next(number for number, step in enumerate(STEPS) if step.id == "look_back")
TILE = 4096  # values of a block from "vectors" on
# Around tiles of 1024, 512 and 4096. From 65 537 (262 145) on, tiles of 256 (512) have totals of totals.
MORE_SIZES = [1023, 1024, 1025, 2049, 4095, 4096, 4097, 8192, 12_291, 65_537, 70_001, 263_000]


@pytest.fixture(scope="module")
def memories():
    return Memory(2 << 20), Memory(2 << 20)


@pytest.fixture(scope="module")
def scan(memories):
    library = load("scan_ladder")
    library.run.argtypes = [ctypes.c_int, POINTER, ctypes.c_int64, POINTER, ctypes.c_int, ctypes.c_int64]

    def run(step: int, values: np.ndarray, sms: int = 1, kept: int = 0) -> np.ndarray:
        """Runs a step. Operands have the smallest alignment that the step needs, and end at the end of their memory if it
        allows."""
        align = 16 if step >= FIRST_OF_VECTORS else 4
        values = put(memories[0], values.astype(np.float32), align)
        out = put(memories[1], np.full_like(values, 7), align)
        begin = out.ctypes.data - memories[1].bytes.ctypes.data
        assert library.run(step, values.ctypes.data, len(values), out.ctypes.data, sms, kept) == 0
        assert (memories[1].bytes[:begin] == POISON).all() and (memories[1].bytes[begin + out.nbytes :] == POISON).all()
        return out

    return run


def exact(random: np.random.Generator, size: int) -> np.ndarray:
    """Values whose sums are exact in float32."""
    return random.integers(-8, 9, size) / 4


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sms", [1, 3])
def test_scan(scan, step, sms):
    random = np.random.default_rng(step)
    for size in [*SIZES, *MORE_SIZES] if sms == 1 else [257, 4097, 70_001]:
        values = exact(random, size)
        np.testing.assert_array_equal(scan(step, values, sms), values.cumsum())


@pytest.mark.parametrize("step", STEPS)
def test_rounding(scan, step):
    values = np.random.default_rng(step).random(70_001, np.float32)
    expected = values.cumsum(dtype=np.float64)
    np.testing.assert_allclose(scan(step, values), expected, rtol=1e-6)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_only_count_for_later_sums(scan, step, special):
    for position in (0, 1, 31, 300, 1023, 4096, 4999):
        values = exact(np.random.default_rng(step), 5000)
        values[position] = special
        np.testing.assert_array_equal(scan(step, values), values.cumsum())


@pytest.mark.parametrize("kept", [2, 3, 31, 32, 33, 64, 1000])
def test_look_back_over_tiles_that_have_only_published_their_totals(scan, kept):
    for size in (1, TILE, TILE + 1, 100 * TILE - 3):
        values = exact(np.random.default_rng(kept), size)
        np.testing.assert_array_equal(scan(LOOK_BACK, values, kept=kept), values.cumsum())
