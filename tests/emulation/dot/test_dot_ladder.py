"""The ladder of dot products, run on the CPU against numpy: every step, with sizes around whole blocks and vectors."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..ladders import SIZES, put, steps
from ..memory import Memory

POINTER = ctypes.c_void_p
STEPS = steps("dot")
VECS = [step for step in STEPS if step.id == "vectors"]
IN_F32 = [step for step in STEPS if step.id in ("f32_partial_sums", "vectors")]
MORE_SIZES = [*range(6, 18), 2047, 2048, 2049, 2055]


@pytest.fixture(scope="module")
def memories():
    return Memory(1 << 20), Memory(1 << 20)


@pytest.fixture(scope="module")
def dot(memories):
    library = load("dot_ladder")
    library.run.argtypes = [ctypes.c_int, POINTER, POINTER, ctypes.c_int64, POINTER, ctypes.c_int]

    def run(step: int, self: np.ndarray, tensor: np.ndarray, sms: int = 1) -> float:
        """Runs a step. Operands have the smallest alignment that the step needs, and end at the end of their memory if it
        allows."""
        align = 16 if STEPS[step] in VECS else 2
        self, tensor = (
            put(memory, values.astype(np.float16), align) for memory, values in zip(memories, (self, tensor))
        )
        guarded = np.full(8, 7, np.float16)
        out = guarded[2:4]  # the result and its neighbour in a 4-byte word
        assert out.ctypes.data % 4 == 0
        error = library.run(step, self.ctypes.data, tensor.ctypes.data, len(self), out.ctypes.data, sms)
        assert error == 0 and (guarded[:2] == 7).all() and (guarded[4:] == 7).all()
        return float(out[0])

    return run


def sparse_operands(random: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands with at most 500 non-zero products of at most 4, so that all partial sums are exact in f16."""
    self, tensor = random.choice([-2, -1, 1, 2], (2, size))
    if size > 500:
        some = np.concatenate([np.arange(100), size - 1 - np.arange(100), random.choice(size, 300, replace=False)])
        kept = np.zeros(size, bool)
        kept[some] = True
        self = np.where(kept, self, 0)
    return self, tensor


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sms", [1, 3])
def test_dot(dot, step, sms):
    random = np.random.default_rng(step)
    for size in (*SIZES, *MORE_SIZES, 20_001, 70_001):
        self, tensor = sparse_operands(random, size)
        assert dot(step, self, tensor, sms) == self @ tensor
        if 0 < size <= 500:  # every value changes the sum
            assert dot(step, np.ones(size), np.full(size, 2), sms) == 2 * size


@pytest.mark.parametrize("step", IN_F32)
@pytest.mark.parametrize("sms", [1, 3])
def test_sums_in_f32_are_rounded_once(dot, step, sms):
    random = np.random.default_rng(0)
    for size in (*SIZES, *MORE_SIZES, 16_383, 16_384, 16_385, 70_001, 140_000):
        self, tensor = random.integers(-8, 9, (2, size))
        assert dot(step, self, tensor, sms) == np.float16(self @ tensor)


@pytest.mark.parametrize("step", STEPS)
def test_ones_that_f16_does_not_count(dot, step):
    """Many ones. In f16, 2048 + 1 is 2048. Pairs have two such sums, and a block adds 256 values at once."""
    sums = {"half_atomic": 2048, "half2_atomic": 4096, "fast_atomic": 2048}
    assert dot(step, np.ones(5000), np.ones(5000)) == sums.get(STEPS[step].id, 5000)


@pytest.mark.parametrize("step", STEPS)
def test_dot_of_special_values(dot, step):
    for size in (2, 300, 3000):
        for first, second in ((np.inf, 1), (-np.inf, 1), (np.inf, -np.inf), (np.nan, 1), (1, np.nan), (300, 300)):
            for positions in ((0, 1), (size - 1, size - 2), (0, size - 1)):
                self = np.zeros(size)
                self[list(positions)] = first, second
                tensor = np.where(self == 300, 300, 1)  # 300 * 300 exceeds f16
                with np.errstate(invalid="ignore", over="ignore"):
                    expected = np.float64(np.float16((self * tensor).sum()))
                assert np.array_equal(dot(step, self, tensor), expected, equal_nan=True)
