"""The ladder of reductions, run on the CPU against numpy: every step, with sizes around whole blocks."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..ladders import SIZES, put, steps
from ..memory import Memory

POINTER = ctypes.c_void_p


@pytest.fixture(scope="module")
def memory():
    return Memory(1 << 20)


@pytest.fixture(scope="module")
def reduce():
    library = load("reduce_ladder")
    library.run.argtypes = [ctypes.c_int, ctypes.c_int, POINTER, ctypes.c_int64, POINTER, ctypes.c_int]

    def run(op: str, step: int, values: np.ndarray, sms: int) -> float:
        out = np.full(3, 7, np.float32)
        error = library.run(op == "reduce_max", step, values.ctypes.data, len(values), out[1:].ctypes.data, sms)
        assert error == 0 and out[0] == out[2] == 7
        return out[1]

    return run


@pytest.mark.parametrize("step", steps("reduce_sum"))
@pytest.mark.parametrize("sms", [1, 3])
def test_reduce(reduce, memory, step, sms):
    random = np.random.default_rng(step)
    for size in (*SIZES, 70_001, 140_000):
        values = put(memory, random.integers(-1000, 1000, size).astype(np.float32) / 4)  # sums are exact
        assert reduce("reduce_sum", step, values, sms) == values.sum(dtype=np.float64)
        assert reduce("reduce_max", step, values, sms) == values.max(initial=-np.inf)


@pytest.mark.parametrize("step", steps("reduce_sum"))
def test_reduce_special_values(reduce, memory, step):
    for values in (
        [-1, -np.inf],
        [-5, -2.5, -3],
        [-0.5, 3, -7],
        [-np.inf, -np.inf],
        [np.inf, -1],
        [np.nan, 1],
        [1, np.nan],
    ):
        for size in (len(values), 300, 3000):
            signed = np.float32(np.resize(values, size))
            for own in (signed, -signed):  # NaN with either sign
                with np.errstate(invalid="ignore"):
                    expected = np.max(own)
                    assert np.array_equal(reduce("reduce_max", step, put(memory, own), 1), expected, equal_nan=True)
                    total = own.sum(dtype=np.float64)
                assert np.array_equal(np.isfinite(reduce("reduce_sum", step, own, 1)), np.isfinite(total))
