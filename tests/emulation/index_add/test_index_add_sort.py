"""The sort of an index, in one tile and in several passes, compared with numpy's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from .index_add_model import DISTRIBUTIONS, indices, set_limits


def sort_and_compare(index_add, index, bins, sms=4, shared=227 << 10) -> int:
    """Sorts an index and compares the result. Returns the number of blocks that moved entries."""
    count = len(index)
    sorted_bins, positions = np.full(count, -1), np.full(count, -1)
    blocks = index_add.sort(
        ctypes.c_uint64(index.ctypes.data),
        ctypes.c_int64(index.strides[0] // index.itemsize),
        int(index.dtype == np.int64),
        count,
        ctypes.c_int64(bins),
        sms,
        shared,
        ctypes.c_void_p(sorted_bins.ctypes.data),
        ctypes.c_void_p(positions.ctypes.data),
    )
    assert blocks > 0, "the sort wrote past its memory, or did not zero what it was given"
    order = np.argsort(index, kind="stable")
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(sorted_bins, index[order])
    return blocks


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("entries", [1, 32, 1000, 1024, 1025, 2048, 2049, 4000, 4096])
def test_sorting_a_tile(index_add, distribution, entries):
    """One block sorts one, two or four entries per thread."""
    set_limits(index_add)
    index = indices(distribution, entries, 5000, np.random.default_rng(entries))
    assert sort_and_compare(index_add, index, 5000) == 1


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "entries, sms, blocks",
    [
        (1, 3, 1),
        (1023, 3, 1),
        (3072, 3, 3),
        (3073, 3, 2),
        (8193, 3, 3),
        (24577, 2, 2),
        (20000, 19, 10),
        (18500, 40, 19),
    ],
)
def test_sorting_in_passes(index_add, distribution, entries, sms, blocks):
    """Tiles have one to eight entries per thread. Blocks have several tiles, and there are one and two groups of blocks."""
    set_limits(index_add, max_tile_entries=0)
    index = indices(distribution, entries, 5000, np.random.default_rng(entries))
    assert sort_and_compare(index_add, index, 5000, sms=sms) == blocks


@pytest.mark.parametrize("sms", [2, 40])
@pytest.mark.parametrize("position", [1, 31, 32, 33, 1023, 1024, 1025, 8191, 8192, 8193, 10240, 16384, 19999])
def test_one_descent_is_seen(index_add, position, sms):
    """An index that ascends with one exception must be sorted. The exception lies between threads, warps, tiles or blocks."""
    set_limits(index_add, max_tile_entries=0)
    index = np.concatenate([2500 + np.arange(position) % 2500, np.zeros(20000 - position, np.int64)])
    index[:position].sort()
    assert (np.diff(index) < 0).sum() == 1
    sort_and_compare(index_add, index, 5000, sms=sms)


@pytest.mark.parametrize("tile_entries", [0, 1 << 12])
@pytest.mark.parametrize("bins", [1, 2, 512, 513, 300000, 2**31 + 5, 2**40, 2**60])
def test_sorting_by_few_and_many_digits(index_add, bins, tile_entries):
    set_limits(index_add, max_tile_entries=tile_entries)
    random = np.random.default_rng(5)
    index = random.integers(0, bins, (4096 if tile_entries else 9000) if bins < 2**50 else 16)
    index[::7] = bins - 1
    sort_and_compare(index_add, index, bins)
    if bins < 2**31:
        sort_and_compare(index_add, index.astype(np.int32)[::3], bins)
    # With little shared memory per block, tiles are smaller.
    assert sort_and_compare(index_add, index, bins, shared=48 << 10) >= min(len(index) // 8192, 4)
