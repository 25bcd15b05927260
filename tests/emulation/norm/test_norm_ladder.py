"""The ladders of layer norm, run on the CPU against numpy: every step and dtype, with rows around whole warps, blocks and limits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..dtypes import BF16, F32, DType
from ..ladders import POISON, put, steps
from ..memory import Memory, decode, encode

FORWARD, BACKWARD = steps("layer_norm"), steps("layer_norm_backward")
DTYPES = [pytest.param(F32, id="float32"), pytest.param(BF16, id="bfloat16")]
TOLERANCE = {F32: 3e-6, BF16: 2.0**-8}
EPS = 1e-5
LENGTHS = [1, 2, 3, 7, 8, 31, 32, 33, 64, 96, 127, 128, 132, 255, 256, 257, 1000, 1023, 1024, 1025, 1032, 2049]
ROWS = [1, 2, 7, 8, 9, 17]  # a block of "warp_per_row" has 8


@pytest.fixture(scope="module")
def library():
    library = load("norm_ladder")
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.forward.argtypes = [ctypes.c_int] * 2 + [pointer] * 4 + [number] * 2
    library.backward.argtypes = [ctypes.c_int] * 2 + [pointer] * 6 + [number] * 2 + [ctypes.c_int]
    return library


@pytest.fixture(scope="module")
def memories():
    return [Memory(1 << 18) for _ in range(8)]


def drawn(dtype: DType, random: np.random.Generator, *shape: int, mean: float = 0) -> np.ndarray:
    """Random values as they lie in memory."""
    return encode(dtype, random.standard_normal(shape) + mean)


def poisoned(memory: Memory, dtype: DType, *shape: int) -> np.ndarray:
    out = put(memory, np.zeros(shape, dtype.numpy), dtype.numpy.itemsize)
    memory.bytes[:] = POISON
    return out


def read(memory: Memory, out: np.ndarray, dtype: DType) -> np.ndarray:
    """The result in float64. Fails if anything around it has been written."""
    result = decode(dtype, out)
    out.view(np.uint8)[...] = POISON
    assert (memory.bytes == POISON).all()
    return result


def forward(library, memories, step: int, dtype: DType, operands: list[np.ndarray], align: int) -> np.ndarray:
    rows, length = operands[0].shape
    placed = [put(memory, operand, align) for memory, operand in zip(memories, operands)]
    out = poisoned(memories[3], dtype, rows, length)
    addresses = [array.ctypes.data for array in (*placed, out)]
    assert library.forward(step, dtype.number, *addresses, rows, length) == 0
    return read(memories[3], out, dtype)


def normalized(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    deviations = x - x.mean(1, keepdims=True)
    return deviations / np.sqrt((deviations**2).mean(1, keepdims=True) + EPS) * weight + bias


def check(found: np.ndarray, expected: np.ndarray, dtype: DType, terms: float = 1):
    """`terms` is the size of what has been added."""
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * terms)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", FORWARD)
def test_forward(library, memories, step, dtype):
    random = np.random.default_rng(step)
    for number, length in enumerate(LENGTHS):
        x = drawn(dtype, random, ROWS[number % len(ROWS)], length)
        operands = [x, drawn(dtype, random, length, mean=1), drawn(dtype, random, length)]
        align = 16 if number % 3 else dtype.numpy.itemsize
        out = forward(library, memories, step, dtype, operands, align)
        check(out, normalized(*(decode(dtype, operand) for operand in operands)), dtype, 4)


@pytest.mark.parametrize("step", FORWARD)
def test_a_mean_that_is_far_from_zero(library, memories, step):
    """The difference of a mean square and a squared mean would have no digit of this variance."""
    x = drawn(F32, np.random.default_rng(0), 3, 1000, mean=10_000)
    operands = [x, np.ones(1000, np.float32), np.zeros(1000, np.float32)]
    out = forward(library, memories, step, F32, operands, 16)
    np.testing.assert_allclose(out, normalized(*(a.astype(np.float64) for a in operands)), rtol=0, atol=5e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", FORWARD)
def test_special_values_stay_in_their_rows(library, memories, step, dtype):
    for special in (np.nan, np.inf, -np.inf):
        x = np.random.default_rng(1).standard_normal((9, 100))
        x[3, 77] = special
        stored = np.uint16(0x7FC0) if dtype is BF16 and special is np.nan else None
        encoded = encode(dtype, x)
        if stored is not None:
            encoded[3, 77] = stored
        ones = encode(dtype, np.ones(100))
        out = forward(library, memories, step, dtype, [encoded, ones, ones], 4)
        assert np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, 0)).all()


def gradients(grad, x, mean, rstd, weight) -> list[np.ndarray]:
    normal, scaled = (x - mean) * rstd, grad * weight
    inner = scaled - normal * (scaled * normal).mean(1, keepdims=True) - scaled.mean(1, keepdims=True)
    return [rstd * inner, (grad * normal).sum(0), grad.sum(0)]


@pytest.mark.parametrize("sms", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", BACKWARD)
def test_backward(library, memories, step, dtype, sms):
    random = np.random.default_rng(step)
    problems = [(ROWS[number % len(ROWS)], length) for number, length in enumerate(LENGTHS)]
    for rows, length in [*problems, (150, 5), (300, 33), (70, 130), (3, 4096), (2, 4097), (20, 1100)]:
        x, grad = drawn(dtype, random, rows, length), drawn(dtype, random, rows, length)
        weight = drawn(dtype, random, length, mean=1)
        wide = decode(dtype, x)
        mean = wide.mean(1, keepdims=True).astype(np.float32)
        rstd = (1 / np.sqrt(wide.var(1, keepdims=True) + EPS)).astype(np.float32)
        operands = [grad, x, mean, rstd, weight]
        placed = [put(memory, operand, operand.itemsize) for memory, operand in zip(memories, operands)]
        shapes = [(rows, length), (length,), (length,)]
        results = [poisoned(memory, dtype, *shape) for memory, shape in zip(memories[5:], shapes)]
        pointers = (ctypes.c_void_p * 3)(*(result.ctypes.data for result in results))
        addresses = [array.ctypes.data for array in placed]
        assert library.backward(step, dtype.number, *addresses, pointers, rows, length, sms) == 0
        expected = gradients(decode(dtype, grad), wide, mean.astype(float), rstd.astype(float), decode(dtype, weight))
        for memory, result, wanted, terms in zip(memories[5:], results, expected, (8, rows**0.5, rows**0.5)):
            scale = max(1.0, float(rstd.max())) if result.ndim == 2 else 1.0
            check(read(memory, result, dtype), wanted, dtype, 4 * terms * scale)


def test_there_is_no_kernel_of_the_production_step(library):
    assert library.forward(len(FORWARD), F32.number, *[None] * 4, 1, 1) != 0
    results = (ctypes.c_void_p * 3)()
    assert library.backward(len(BACKWARD), F32.number, *[None] * 5, results, 1, 1, 1) != 0
