"""The ladder of products, run on the CPU against numpy: every step, with sizes around whole blocks and vectors."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..ladders import POISON, SIZES, put, steps
from ..memory import Memory

POINTER = ctypes.c_void_p
GUARD = 64
ALIGN = {"vectors": 16, "half2": 4, "half_vectors": 16}
STEPS = steps("mul")


@pytest.fixture(scope="module")
def memories():
    return [Memory(1 << 20) for _ in range(3)]


@pytest.fixture(scope="module")
def mul(memories):
    library = load("elementwise_ladder")
    library.run.argtypes = [ctypes.c_int, POINTER, POINTER, POINTER, ctypes.c_int64, ctypes.c_int]

    def run(step: int, self: np.ndarray, other: np.ndarray, sms: int) -> np.ndarray:
        """Runs a step. Operands have the smallest alignment that the step needs, and end at the end of their memory if it
        allows."""
        align = ALIGN.get(STEPS[step].id, self.itemsize)
        self, other = (put(memory, values, align) for memory, values in zip(memories, (self, other)))
        out = put(memories[2], np.full(len(self), -7, self.dtype), 16)
        begin = out.ctypes.data - memories[2].bytes.ctypes.data
        error = library.run(step, self.ctypes.data, other.ctypes.data, out.ctypes.data, len(self), sms)
        assert error == 0
        assert (memories[2].bytes[begin - GUARD : begin] == POISON).all()
        assert (memories[2].bytes[begin + out.nbytes :] == POISON).all()
        return out

    return run


def dtype_of(step: int) -> type:
    return np.float16 if STEPS[step].id.startswith("half") else np.float32


def product(self: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The product in float32, in which products of fp16 are exact, rounded once."""
    with np.errstate(all="ignore"):
        return (self.astype(np.float32) * other.astype(np.float32)).astype(self.dtype)


def same(values: np.ndarray, expected: np.ndarray) -> bool:
    """Whether the bits are equal. The payloads of NaNs may differ."""
    nan = np.isnan(expected)
    return np.array_equal(np.isnan(values), nan) and values[~nan].tobytes() == expected[~nan].tobytes()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sms", [1, 3])
def test_mul(mul, step, sms):
    random = np.random.default_rng(step)
    for size in (*SIZES, *range(6, 18), 2047, 2048, 2049, 2055, 70_001, 140_000):
        self, other = random.standard_normal((2, size)).astype(dtype_of(step))
        assert same(mul(step, self, other, sms), product(self, other))


@pytest.mark.parametrize("step", STEPS)
def test_mul_of_any_bits(mul, step):
    """Small, large, infinite and NaN operands. For fp16 every bit pattern is multiplied by some others."""
    dtype = np.dtype(dtype_of(step))
    random = np.random.default_rng(step)
    for size in (5, 65_536):
        self, other = (random.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype) for _ in range(2))
        assert same(mul(step, self, other, 1), product(self, other))
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    self, other = (values.ravel() for values in np.meshgrid(special, special))
    assert same(mul(step, self, other, 1), product(self, other))
