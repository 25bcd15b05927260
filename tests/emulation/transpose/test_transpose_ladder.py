"""The ladder of transposition, run on the CPU against numpy: every step, with sizes around whole tiles."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..ladders import put, steps
from ..memory import Memory

VECS = 4  # the step that only supports multiples of 4


@pytest.fixture(scope="module")
def memories():
    return Memory(1 << 18), Memory(1 << 18)


@pytest.fixture(scope="module")
def kernels():
    library = load("transpose_ladder")
    library.run.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    return library


@pytest.mark.parametrize("step", steps("transpose2d"))
def test_transpose(kernels, memories, step):
    random = np.random.default_rng(step)
    sides = [1, 2, 4, 31, 32, 33, 60, 64, 65, 68, 100, 132, 200]
    for rows in sides:
        for columns in sides:
            if step == VECS and (rows % 4 or columns % 4):
                continue
            values = put(memories[0], random.random((rows, columns), np.float32))
            out = put(memories[1], np.zeros((columns, rows), np.float32))
            before = memories[1].bytes[: -out.nbytes - 16].copy()
            assert kernels.run(step, values.ctypes.data, out.ctypes.data, rows, columns) == 0
            np.testing.assert_array_equal(out, values.T)
            assert np.array_equal(memories[1].bytes[: len(before)], before)
