"""The ladders of upsampling, run on the CPU against numpy: every step, with sizes around whole blocks and vectors."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from ..build import load
from ..ladders import POISON, put, steps
from ..memory import Memory, scatter
from .test_upsample_kernels import Axis

POINTER = ctypes.c_void_p
FORWARD, BACKWARD = steps("upsample_nearest2d"), steps("upsample_nearest2d_backward")
ANY_SIZE, TWICE = range(2), 2  # the steps for any sizes, and the step for a factor of 2
assert FORWARD[TWICE].id == "vectors_2x" and BACKWARD[TWICE].id == "gather_2x"
GUARD, PLANES = 64, [1, 2, 7, 8, 9, 17]  # a thread of step "hoisted" computes 8 planes

PAIRS = [(1, 1), (1, 2), (1, 7), (11, 1), (2, 1), (3, 2), (2, 3), (4, 8), (5, 10), (7, 13), (13, 7), (10, 27)]
PAIRS += [(17, 51), (16, 16), (31, 62), (64, 31)]
PAIRS += [(14, 46), (26, 22)]  # float32 rounds an integer source down to the previous pixel
# Widths and heights around whole blocks.
LONG = [(1, 255), (1, 256), (1, 257), (128, 255), (128, 257), (257, 128), (255, 3), (513, 514)]
DOUBLED = [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 18, 33]
LONG_DOUBLED = [127, 128, 129, 255, 256, 257, 510, 511, 512, 514, 1024, 1028]


@pytest.fixture(scope="module")
def library():
    library = load("upsample_ladder")
    library.run.argtypes = [ctypes.c_int, ctypes.c_int, POINTER, POINTER, ctypes.c_int, ctypes.c_int64, POINTER]
    library.blocks.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64, POINTER]
    library.blocks.restype = ctypes.c_int64
    return library


@pytest.fixture(scope="module")
def memory():
    return Memory(1 << 20)


def sizes(height: Axis, width: Axis):
    return (ctypes.c_int64 * 4)(height.n, height.out, width.n, width.out)


def upsample(library, memory, backward: bool, step: int, height: Axis, width: Axis, values: np.ndarray) -> np.ndarray:
    """The result of a step. Steps without vectors get planes at addresses that are not aligned to a vector."""
    planes, item = len(values), values.itemsize
    with_vecs = step == TWICE
    values = put(memory, values, 16 if with_vecs else item)
    shape = (planes, height.n, width.n) if backward else (planes, height.out, width.out)
    size = int(np.prod(shape)) * item
    raw = np.full(size + 2 * GUARD + 32, POISON, np.uint8)
    begin = GUARD + -(raw.ctypes.data + GUARD) % 16 + (0 if with_vecs else item)
    out = raw[begin : begin + size].view(values.dtype)
    error = library.run(backward, step, values.ctypes.data, out.ctypes.data, item, planes, sizes(height, width))
    assert error == 0
    assert (raw[:begin] == POISON).all() and (raw[begin + size :] == POISON).all()
    return out.reshape(shape)


def upsampled(height: Axis, width: Axis, values: np.ndarray) -> np.ndarray:
    return values[:, height.sources(False)][..., width.sources(False)]


def scattered(height: Axis, width: Axis, values: np.ndarray) -> np.ndarray:
    rows, sums = np.zeros((height.n, len(values), width.out)), np.zeros((width.n, height.n, len(values)))
    scatter(np.add, rows, height.sources(False), np.moveaxis(values, 1, 0).astype(np.float64))
    scatter(np.add, sums, width.sources(False), np.moveaxis(rows, 2, 0))
    return sums.T


def check_forward(library, memory, step, dtype, planes, height, width):
    random = np.random.default_rng(planes)
    count = planes * height.n * width.n
    values = np.frombuffer(random.bytes(count * np.dtype(dtype).itemsize), dtype).reshape(planes, height.n, width.n)
    result = upsample(library, memory, False, step, height, width, values)  # arbitrary bits
    np.testing.assert_array_equal(result, upsampled(height, width, values))


def check_backward(library, memory, step, planes, height, width):
    random = np.random.default_rng(planes)
    values = (random.integers(-8, 9, (planes, height.out, width.out)) / 4).astype(np.float32)  # sums are exact
    result = upsample(library, memory, True, step, height, width, values)
    np.testing.assert_array_equal(result, scattered(height, width, values))


def problems(step: int):
    """Numbers of planes, heights and widths that the step supports."""
    if step == TWICE:
        small, long = [Axis(n, 2 * n) for n in DOUBLED], [Axis(n, 2 * n) for n in LONG_DOUBLED]
    else:
        small, long = [Axis(*pair) for pair in PAIRS], [Axis(*pair) for pair in LONG]
    for number, (height, width) in enumerate(itertools.product(small, small)):
        yield PLANES[number % len(PLANES)], height, width
    for number, axis in enumerate(long):
        yield 1, Axis(1, 2), axis
        yield 1 + number % 3, axis, Axis(1, 2)


@pytest.mark.parametrize("step", FORWARD)
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_forward(library, memory, step, dtype):
    for problem in problems(step):
        check_forward(library, memory, step, dtype, *problem)


@pytest.mark.parametrize("step", BACKWARD)
def test_backward(library, memory, step):
    for problem in problems(step):
        check_backward(library, memory, step, *problem)


def test_gathers_add_row_after_row(library, memory):
    """Gradients are added row by row. The bits are right for rounded sums and for special values."""
    random = np.random.default_rng(0)
    for n in DOUBLED:
        axis = Axis(n, 2 * n)
        values = random.standard_normal((3, axis.out, axis.out)).astype(np.float32)
        values[0, :2] = -0.0
        values[1, random.integers(0, axis.out, 2), random.integers(0, axis.out, 2)] = np.inf
        values[2, random.integers(0, axis.out, 2), random.integers(0, axis.out, 2)] = -np.inf, np.nan
        sums = np.zeros((3, n, n), np.float32)
        with np.errstate(invalid="ignore"):
            for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
                sums += values[:, y::2, x::2]
        known = ~np.isnan(sums)
        for step in (1, TWICE):
            result = upsample(library, memory, True, step, axis, axis, values)
            np.testing.assert_array_equal(result, sums)
            assert np.array_equal(result[known].view(np.uint32), sums[known].view(np.uint32))


@pytest.mark.parametrize("planes", [1, 2**20])
def test_launches_of_more_than_2_31_values(library, planes):
    side = 2**18 if planes == 1 else 2**8  # 2^36 input values
    axis = Axis(side, 2 * side)
    given = (planes, sizes(axis, axis))
    assert library.blocks(False, 0, 4, *given) == 2**38 // 256
    assert library.blocks(False, 1, 4, *given) == (2**38 if planes == 1 else 2**35) // 256
    assert library.blocks(False, 2, 4, *given) == 2**35 // 256
    assert library.blocks(False, 2, 2, *given) == 2**34 // 256
    assert library.blocks(True, 1, 4, *given) == 2**36 // 256
    assert library.blocks(True, 2, 4, *given) == 2**35 // 256


def test_there_is_no_kernel_of_the_production_step(library):
    axis = Axis(2, 4)
    assert library.blocks(False, len(FORWARD), 4, 1, sizes(axis, axis)) == -1
    assert library.blocks(True, len(BACKWARD), 4, 1, sizes(axis, axis)) == -1
