"""The ladder of matrix multiplication, run on the CPU against numpy: every step, with sizes around whole tiles and slices."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..build import load
from ..dtypes import BF16, F16, F32, DType
from ..ladders import POISON, steps
from ..memory import Memory, decode, encode

SMS = 6  # so that problems of one tile are split
STEPS = [param.id for param in steps("matmul")]
FLOATS = [*STEPS[: STEPS.index("ldmatrix")], "three_tf32_wgmma"]
# Steps that need rows that begin at multiples of 16 bytes.
ALIGNED = {"vectors", "bulk_copies", *STEPS[STEPS.index("wgmma") :]}
# The emulator runs one block after another. Problems with at most so many rows have clusters of one block.
ROWS_WITHOUT_CLUSTERS = 128
# (m, n, k): single elements, odd sizes, around tiles of 32, 64, 128 and 256, around slices of 8 to 64, more tiles
# than SMs, and a deep problem that is split.
SHAPES = [
    (1, 1, 1), (1, 5, 3), (3, 1, 17), (7, 9, 0), (31, 33, 32), (33, 64, 31), (65, 40, 64), (64, 129, 100),
    (100, 1600, 130), (129, 130, 65), (130, 257, 33), (256, 60, 129), (20, 24, 1300),
]  # fmt: skip


class Matrix:
    """A matrix near the end of a memory, with rows `pad` elements apart. Gaps between rows hold NaN."""

    def __init__(self, memory: Memory, dtype: DType, values: np.ndarray, pad: int, align: int):
        rows, columns = values.shape
        self.pitch = columns + pad
        size = dtype.numpy.itemsize
        count = max((rows - 1) * self.pitch + columns, 0) if columns else 0
        begin = (len(memory.bytes) - count * size) // align * align
        memory.bytes[:] = 0xFF
        flat = memory.bytes[begin : begin + count * size].view(dtype.numpy)
        for row in range(rows if columns else 0):
            flat[row * self.pitch : row * self.pitch + columns] = encode(dtype, values[row])
        self.address = memory.bytes.ctypes.data + begin


@pytest.fixture(scope="module")
def kernels():
    library = load("matmul_ladder")
    library.run.argtypes = [ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.POINTER(ctypes.c_int64)]
    return library


@pytest.fixture(scope="module")
def memories():
    return [Memory(1 << 20) for _ in range(3)]


def multiply(kernels, memories, name, dtype, a, b, pads=(0, 0)) -> np.ndarray:
    """The step's product of two matrices of float64. Checks that it writes nothing else."""
    (m, k), n = a.shape, b.shape[1]
    align = dtype.numpy.itemsize
    if name in ALIGNED:
        unit = 16 // align
        pads = [pad + -(columns + pad) % unit for pad, columns in zip(pads, (k, n))]
        align = 16
    x = Matrix(memories[0], dtype, a, pads[0], align)
    y = Matrix(memories[1], dtype, b, pads[1], align)
    out = memories[2].bytes
    out[:] = POISON
    size = m * n * dtype.numpy.itemsize
    begin = (len(out) - size) // 16 * 16
    sizes = (ctypes.c_int64 * 6)(m, n, k, x.pitch, y.pitch, SMS)
    address = memories[2].bytes.ctypes.data + begin
    assert kernels.run(STEPS.index(name), dtype.number, x.address, y.address, address, sizes) == 0
    assert np.all(out[:begin] == POISON) and np.all(out[begin + size :] == POISON)
    return decode(dtype, out[begin : begin + size].view(dtype.numpy)).reshape(m, n)


def quarters(random, *shape) -> np.ndarray:
    """Values whose products and sums are exact in float32."""
    return random.integers(-8, 9, shape) / 4


def exact(dtype, a, b) -> np.ndarray:
    """The product, rounded once."""
    return decode(dtype, encode(dtype, a @ b))


def most_rows(name) -> int:
    return ROWS_WITHOUT_CLUSTERS if name == "clusters" else 1 << 30


def dtypes_of(name) -> list[DType]:
    return [F32] if name in FLOATS else [F16, BF16]


@pytest.mark.parametrize("name", STEPS)
def test_products_of_any_size(kernels, memories, name):
    random = np.random.default_rng(1)
    for number, (m, n, k) in enumerate(shape for shape in SHAPES if shape[0] <= most_rows(name)):
        dtype = dtypes_of(name)[number % len(dtypes_of(name))]
        a, b = quarters(random, m, k), quarters(random, k, n)
        for pads in ((0, 0), (number % 5, number % 3)):
            out = multiply(kernels, memories, name, dtype, a, b, pads)
            np.testing.assert_array_equal(out, exact(dtype, a, b), err_msg=f"{m} {n} {k} {pads}")


@seeded(20)
@given(data=st.data())
@pytest.mark.parametrize("name", STEPS)
def test_random_products(kernels, memories, name, data):
    m, n, k = (data.draw(st.integers(1, most)) for most in (min(150, most_rows(name)), 280, 90))
    pads = data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9)))
    dtype = data.draw(st.sampled_from(dtypes_of(name)))
    random = np.random.default_rng(data.draw(st.integers(0, 999)))
    a, b = quarters(random, m, k), quarters(random, k, n)
    np.testing.assert_array_equal(multiply(kernels, memories, name, dtype, a, b, pads), exact(dtype, a, b))


@pytest.mark.parametrize("name", STEPS)
def test_nan_and_infinities(kernels, memories, name):
    """They reach the outputs of their row or column, and no others."""
    random = np.random.default_rng(2)
    for special in (np.nan, np.inf, -np.inf):
        a, b = quarters(random, 40, 70), quarters(random, 70, 50)
        a[3, 69], b[5, 49], b[5, 2] = special, special, -special
        b[69, 7] = 0.0
        dtype = dtypes_of(name)[-1]
        with np.errstate(invalid="ignore"):
            expected = exact(dtype, a, b)
        np.testing.assert_array_equal(multiply(kernels, memories, name, dtype, a, b), expected)


@pytest.mark.parametrize("name", ["three_tf32", "three_tf32_wgmma"])
def test_three_tf32_parts_are_as_accurate_as_float32(kernels, memories, name):
    """One part of 11 bits has an error of about 3e-4."""
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in ((70, 500), (500, 60)))
    error = multiply(kernels, memories, name, F32, a, b) - a @ b
    assert np.linalg.norm(error) < 2e-7 * np.linalg.norm(a @ b)


def test_deep_problems_are_split_and_no_others(kernels, memories):
    """Sums of parts are rounded in another order than sums of the whole."""
    random = np.random.default_rng(4)

    def differ(k: int) -> bool:
        a, b = random.standard_normal((20, k)), random.standard_normal((k, 24))
        whole, parts = (multiply(kernels, memories, name, F32, a, b) for name in ("warp_tiles", "split_k"))
        np.testing.assert_allclose(parts, a @ b, rtol=1e-4, atol=1e-4)
        return not np.array_equal(whole, parts)

    assert differ(1300) and not differ(250)
