"""Grouping of entries, compared with numpy's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load

TYPES = (np.int32, np.int64)


@pytest.fixture(scope="module")
def kernels():
    return load("segment")


def address(array: np.ndarray) -> ctypes.c_uint64:
    return ctypes.c_uint64(array.ctypes.data)


@pytest.mark.parametrize("kind", ["random", "ascending", "equal", "few"])
@pytest.mark.parametrize(
    "entries, bins", [(1, 1), (7, 3), (1000, 40), (1025, 5000), (5000, 2), (9000, 9000), (300, 1024)]
)
def test_groups(kernels, entries, bins, kind):
    random = np.random.default_rng(entries + bins)
    for source, result in ((np.int32, np.int32), (np.int64, np.int32), (np.int32, np.int64), (np.int64, np.int64)):
        index = random.integers(bins, size=entries, dtype=source)
        index = {"random": index, "ascending": np.sort(index), "equal": index * 0 + bins - 1, "few": index // 2}[kind]
        strided = np.stack([index, index], 1)[:, 1]
        guarded = [np.full(n + 4, -7, result) for n in (bins + 1, entries)]
        ptr, perm = (array[2:-2] for array in guarded)
        sizes = (ctypes.c_int64(entries), ctypes.c_int64(bins))
        failed = kernels.group(
            address(strided),
            ctypes.c_int64(2),
            int(source == np.int64),
            *sizes,
            address(ptr),
            address(perm),
            int(result == np.int64),
        )
        assert failed == 0
        np.testing.assert_array_equal(perm, np.argsort(index, kind="stable"))
        np.testing.assert_array_equal(ptr, np.searchsorted(np.sort(index), np.arange(bins + 1)))
        assert all((array[[0, 1, -2, -1]] == -7).all() for array in guarded)


@pytest.mark.parametrize("bins", [2**31 + 5, 2**33])
def test_many_bins_do_not_fit_beside_many_positions(kernels, bins):
    """The binding then sorts by ATen."""
    nothing = np.zeros(1, np.int64)
    entries = ctypes.c_int64(2**30 + 1)
    assert (
        kernels.group(
            address(nothing), ctypes.c_int64(1), 1, entries, ctypes.c_int64(bins), address(nothing), address(nothing), 1
        )
        == 1
    )
