"""Two paths of index_add: few bins, where each block holds all bins, and lines, which are rows of adjacent bins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ..dtypes import BOOL, FLOAT, TYPES, Operand
from .index_add_model import (
    BINS,
    DETERMINISTIC,
    DISTRIBUTIONS,
    FAST,
    LINES,
    REAL,
    distributions,
    indices,
    run,
    run_and_compare,
    set_limits,
)


def lines(index_add, dtype, outer, bins, index, random, offset=0, pitch=None, mode=FAST, sms=2, alpha=1):
    """Runs a problem with one index for all `outer` rows. The entries of a row are adjacent."""
    entries = len(index)
    self = Operand(dtype, [bins, outer], [1, bins], 1, random)
    source = Operand(dtype, [entries, outer], [1, pitch or entries], offset, random)
    return run_and_compare(index_add, self, source, 0, index, alpha, mode, sms)


def index_at(index: np.ndarray, dtype, offset: int) -> np.ndarray:
    """A copy at an address that is `offset` elements past a multiple of 16."""
    buffer = np.zeros(len(index) + 4 + offset, dtype)
    first = -buffer.ctypes.data % 16 // buffer.itemsize + offset
    copy = buffer[first : first + len(index)]
    copy[...] = index
    return copy


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("outer, bins, values, group", [(1, 600, 4, 1), (3, 120, 4, 1), (9, 300, 1, 4), (17, 3, 1, 4)])
def test_few_bins(index_add, distribution, outer, bins, values, group):
    set_limits(index_add, min_bin_values=0)
    random = np.random.default_rng(bins)
    entries = {1: 20000, 3: 4000}.get(outer, (1 << 14) + 1)  # with fewer, that many outer indices take lines
    index = index_at(indices(distribution, entries, bins, random), np.int64, 0)
    for dtype in (TYPES[0], TYPES[6], TYPES[7], TYPES[5]):
        taken = lines(index_add, dtype, outer, bins, index, random)
        assert (taken.path, taken.values, taken.outer_group) == (BINS, values, group)
        assert (taken.splits > 1) == (outer == 1)


@pytest.mark.parametrize("bins", [2, 16, 300, 1100])
@pytest.mark.parametrize("entries", [36000, 36003])
@pytest.mark.parametrize("long", [True, False])
def test_few_bins_by_vecs(index_add, bins, entries, long):
    """Adjacent entries are read as vectors, with some left over. Rows or an index that are not aligned are read one by one."""
    set_limits(index_add)
    random = np.random.default_rng(entries)
    for number, dtype in enumerate(REAL):
        kind = DISTRIBUTIONS[(number + entries) % len(DISTRIBUTIONS)]
        index = indices(kind, entries, bins, random)
        for offset in (0, 1):
            plain = index_at(index, np.int64 if long else np.int32, offset)
            taken = lines(index_add, dtype, 1, bins, plain, random, alpha=1 if dtype.category == BOOL else -2)
            assert (taken.path, taken.values) == (BINS, 1 if offset else 4)
    assert lines(index_add, TYPES[7], 1, bins, index_at(index, np.int64, 0), random, offset=1).values == 1
    aligned = index_at(index, np.int64, 0)
    assert lines(index_add, TYPES[7], 2, bins, aligned, random, pitch=41000).values == 4
    assert lines(index_add, TYPES[7], 2, bins, aligned, random, pitch=41001).values == 1


@pytest.mark.parametrize(
    "outer, bins, entries",
    [(1, 900, 1500), (1, 1, 700), (3, 2, 700), (32, 11, 4000), (37, 300, 2049), (33, 3, 511), (1, 1100, 9001)],
)
def test_lines(index_add, outer, bins, entries):
    """One outer index per block, or several with some left over, and sort keys of zero to three digits."""
    set_limits(index_add, min_bin_values=0)
    random = np.random.default_rng(bins)
    groups = set()
    for distribution, (number, dtype) in itertools.product(distributions(entries), enumerate(REAL)):
        index = indices(distribution, entries, bins, random)
        mode = DETERMINISTIC if dtype.category == FLOAT else FAST
        for sms in (1, 64):
            offset, pitch = number % 2, entries + entries % 2
            taken = lines(
                index_add, dtype, outer, bins, index, random, offset, pitch, mode, sms, alpha=1 - number % 2 * 3
            )
            if outer < 4 * sms and mode != DETERMINISTIC:
                assert taken.path != LINES
                continue
            assert (taken.path, taken.values) == (LINES, 1 if offset else 2)
            assert taken.outer_group == 1 or sms == 1
            groups.add(taken.outer_group)
    assert groups == ({1, 2, 4} if outer >= 4 else {1, 2} if outer >= 2 else {1})


def test_lines_do_not_depend_on_how_many_a_block_takes(index_add):
    """In mode `deterministic`, rounded sums are the same bits on every device."""
    set_limits(index_add, min_bin_values=0)
    random = np.random.default_rng(0)
    entries, bins, outer = 5000, 70, 9
    index = random.integers(0, bins, entries)
    source = (random.standard_normal((outer, entries)) * 2.0 ** random.integers(-9, 9, (outer, entries))).astype(
        np.float32
    )
    found = []
    for sms in (1, 64):
        self = np.zeros((outer, bins), np.float32)
        strides = (1, bins), (1, entries)
        addresses = self.ctypes.data, source.ctypes.data
        taken = run(index_add, 0, (bins, outer), *strides, addresses, index, TYPES[7], DETERMINISTIC, sms=sms)
        assert (taken.path, taken.outer_group) == (LINES, 2 if sms == 1 else 1)
        found.append(self)
    np.testing.assert_array_equal(*found)
