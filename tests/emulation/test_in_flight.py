"""Copies with a given number of bytes in flight, run on the CPU."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from .build import load
from .ladders import put
from .memory import Memory


@pytest.fixture(scope="module")
def kernels():
    library = load("ladder")
    library.run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_int] * 4]
    return library


@pytest.fixture(scope="module")
def memories():
    return Memory(1 << 17), Memory(1 << 17)


@pytest.mark.parametrize("access_bytes", [4, 8, 16])
@pytest.mark.parametrize("loads", [1, 2, 4, 8])
def test_copies(kernels, memories, access_bytes, loads):
    random = np.random.default_rng(loads)
    sizes = (1, 3, 4, 15, 16, 17, 1000, 4096, 32 * 16 * loads, 32 * 16 * loads + 5, 70_001)
    for size, warps in itertools.product(sizes, (1, 4, 16)):
        values = put(memories[0], random.integers(0, 256, size, np.uint8))
        out = put(memories[1], np.zeros(size, np.uint8))
        before = memories[1].bytes[: -size - 16].copy()
        assert kernels.run(values.ctypes.data, out.ctypes.data, size, access_bytes, loads, warps, 2) == 0
        np.testing.assert_array_equal(out, values)
        np.testing.assert_array_equal(memories[1].bytes[: len(before)], before)


def test_shapes_that_are_none(kernels, memories):
    values = put(memories[0], np.zeros(64, np.uint8))
    for shape in (
        (2, 1, 1),
        (32, 1, 1),
        (12, 1, 1),
        (4, 3, 1),
        (4, 16, 1),
        (4, 0, 1),
        (4, 1, 0),
        (4, 1, 65),
        (4, 1, 3),
    ):
        assert kernels.run(values.ctypes.data, values.ctypes.data, 64, *shape, 1) != 0
