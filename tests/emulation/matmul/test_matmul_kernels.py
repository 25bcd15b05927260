"""The 3xTF32 product, run on the CPU against numpy: all layouts of both operands, batches, parts of k, NaN and infinities."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..build import load
from ..memory import Memory
from .test_matmul_ladder import quarters

SMS = 132
POISON = 0xCD
LAYOUTS = list(itertools.product((True, False), repeat=2))  # whether rows of a, and of b, are neighbours in memory
# (m, n, k): single elements, odd sizes, around tiles of 128 and slices of 32, and several tiles.
SHAPES = [(1, 1, 1), (1, 130, 5), (3, 1, 33), (31, 33, 32), (65, 129, 64), (129, 130, 65), (300, 40, 96)]


@pytest.fixture(scope="module")
def kernels():
    library = load("matmul")
    sizes = ctypes.POINTER(ctypes.c_int64)
    library.run.argtypes = [*[ctypes.c_void_p] * 3, sizes, ctypes.c_int]
    library.readable.argtypes = [ctypes.c_void_p, sizes]
    library.readable.restype = ctypes.c_bool
    library.parts.argtypes = [sizes, ctypes.c_int]
    return library


@pytest.fixture(scope="module")
def memories():
    return [Memory(1 << 20) for _ in range(3)]


def placed(memory: Memory, values: np.ndarray, in_rows: bool, pad: int) -> tuple[int, tuple[int, int, int]]:
    """Writes matrices [batch][row][column] to the end of a memory. Returns their address and their strides. Gaps hold NaN."""
    rows_first = values if in_rows else values.swapaxes(1, 2)
    batch, rows, columns = rows_first.shape
    pitch = -(-(columns + pad) // 4) * 4
    count = batch * rows * pitch
    memory.bytes[:] = 0xFF
    begin = (len(memory.bytes) - count * 4) // 16 * 16
    memory.bytes[begin : begin + count * 4].view(np.float32).reshape(batch, rows, pitch)[..., :columns] = rows_first
    strides = (pitch, 1) if in_rows else (1, pitch)
    return memory.bytes.ctypes.data + begin, (*strides, rows * pitch if batch > 1 else 0)


def multiply(kernels, memories, a, b, layout=(True, True), pads=(0, 0), parts=1) -> np.ndarray:
    """The product of two batches. One of them may be a single matrix. Checks that nothing else is written."""
    (_, m, k), n, batch = a.shape, b.shape[2], max(len(a), len(b))
    x, x_strides = placed(memories[0], a, layout[0], pads[0])
    y, y_strides = placed(memories[1], b, layout[1], pads[1])
    out = memories[2].bytes
    out[:] = POISON
    size = batch * m * n * 4
    begin = (len(out) - size) // 16 * 16
    sizes = (ctypes.c_int64 * 10)(batch, m, n, k, *x_strides, *y_strides)
    assert kernels.run(x, y, out.ctypes.data + begin, sizes, parts) == 0
    assert np.all(out[:begin] == POISON) and np.all(out[begin + size :] == POISON)
    return out[begin : begin + size].view(np.float32).reshape(batch, m, n)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(kernels, memories, layout):
    random = np.random.default_rng(1)
    for number, (m, n, k) in enumerate(SHAPES):
        a, b = quarters(random, 1, m, k), quarters(random, 1, k, n)
        out = multiply(kernels, memories, a, b, layout, (number % 3 * 4, number % 2 * 4))
        np.testing.assert_array_equal(out, a @ b, err_msg=f"{m} {n} {k}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_and_a_matrix_for_all(kernels, memories, layout):
    random = np.random.default_rng(2)
    for of_a, of_b, parts in ((3, 3, 1), (1, 3, 1), (3, 1, 2)):
        a, b = quarters(random, of_a, 33, 70), quarters(random, of_b, 70, 40)
        np.testing.assert_array_equal(multiply(kernels, memories, a, b, layout, parts=parts), a @ b)


@seeded(20)
@given(data=st.data())
def test_random_products(kernels, memories, data):
    m, n, k = (data.draw(st.integers(1, most)) for most in (150, 280, 200))
    layout, parts = data.draw(st.sampled_from(LAYOUTS)), data.draw(st.integers(1, 6))
    random = np.random.default_rng(data.draw(st.integers(0, 999)))
    a, b = quarters(random, 1, m, k), quarters(random, 1, k, n)
    np.testing.assert_array_equal(multiply(kernels, memories, a, b, layout, parts=parts), a @ b)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nan_and_infinities(kernels, memories, layout):
    """They reach the outputs of their row or column, and no others, also from a part of k."""
    random = np.random.default_rng(3)
    for special, parts in itertools.product((np.nan, np.inf, -np.inf), (1, 2)):
        a, b = quarters(random, 1, 40, 70), quarters(random, 1, 70, 50)
        a[0, 3, 69], b[0, 5, 49], b[0, 5, 2] = special, special, -special
        b[0, 69, 7] = 0.0
        with np.errstate(invalid="ignore"):
            expected = a @ b
        np.testing.assert_array_equal(multiply(kernels, memories, a, b, layout, parts=parts), expected)


@pytest.mark.parametrize("scale", [1.0, 1e30, 3e38, 1e-30, 1e-36])
def test_the_error_is_that_of_float32_at_every_magnitude(kernels, memories, scale):
    """One TF32 part has an error of 3e-4. Big parts of numbers next to the largest one are infinite. Small parts of numbers below
    2^-102 are subnormal, and lose bits."""
    random = np.random.default_rng(4)
    a, b = (random.uniform(-1, 1, shape).astype(np.float32) for shape in ((1, 70, 300), (1, 300, 60)))
    a, b = a * np.float32(scale), b / np.float32(min(max(scale, 1.0), 1e30))
    if scale > 1e38:
        a[0, 0, :3] = np.finfo(np.float32).max * np.float32([1.0, -1.0, 1.0])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = 1e-4 if scale < 2.0**-102 else 2e-7
    for parts in (1, 2):
        error = multiply(kernels, memories, a, b, parts=parts) - exact
        assert np.linalg.norm(error) < bound * np.linalg.norm(exact), parts


def test_readable_operands(kernels, memories):
    address = memories[0].bytes.ctypes.data // 16 * 16

    def readable(rows, columns, *strides, offset=0) -> bool:
        return kernels.readable(address + offset, (ctypes.c_int64 * 5)(rows, columns, *strides))

    assert readable(8, 6, 8, 1, 0) and readable(8, 6, 1, 8, 0)
    assert readable(1, 6, 7, 1, 0) and readable(6, 1, 1, 7, 0)  # the stride of a single row or column is arbitrary
    assert readable(1, 6, 1, 8, 0) and readable(1, 1, 5, 5, 0)
    assert readable(8, 6, 8, 1, 64)
    assert not readable(8, 6, 7, 1, 0) and not readable(8, 6, 1, 7, 0)
    assert not readable(8, 6, 16, 2, 0)
    assert not readable(8, 6, 0, 1, 0)
    assert not readable(8, 6, -8, 1, 0)
    assert not readable(8, 6, 8, 1, 63)
    assert not readable(8, 6, 8, 1, 0, offset=4)


def test_deep_products_are_split_and_cublas_has_the_small_and_thin_ones(kernels):
    def parts(batch, m, n, k) -> int:
        return kernels.parts((ctypes.c_int64 * 10)(batch, m, n, k, k, 1, m * k, n, 1, k * n), SMS)

    assert parts(1, 4096, 4096, 4096) == 1
    assert parts(1, 256, 512, 65536) > 8
    assert parts(32, 512, 512, 512) >= 1
    for shape in ((1, 1, 4096, 4096), (1, 16, 4096, 4096), (1, 128, 128, 128), (1, 8192, 8, 8192), (64, 64, 64, 64)):
        assert parts(*shape) == 0, shape
