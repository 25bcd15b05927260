"""Gathers of rows, compared with numpy's. Memory ends where the rows end."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..memory import at_the_end


@pytest.fixture(scope="module")
def kernels():
    return load("index_select")


def gather_and_compare(
    kernels, entries, bins, row, gap=0, index_type=np.int64, step=1, offset=0, to=0, few=132 * 1024
) -> int:
    """Gathers rows of `row` bytes, `gap` bytes apart, from an address `offset` bytes past an aligned one to one `to` bytes past.
    Up to `few` accesses have a thread each. Returns the bytes of an access, or 0 if vectors are loaded from anywhere."""
    random = np.random.default_rng(entries + row)
    apart = row + gap
    self, out = at_the_end(bins * apart - gap, offset), at_the_end(entries * row, to)
    self[:] = random.integers(256, size=self.size)
    out[:] = 0xCD
    index = random.integers(bins, size=entries * step, dtype=index_type)[::step]
    access = kernels.gather(
        *(ctypes.c_uint64(array.ctypes.data) for array in (self[offset:], index, out[to:])),
        int(index_type == np.int64),
        *map(ctypes.c_int64, (bins, entries, step, row, apart)),
        ctypes.c_uint64(few),
        *map(ctypes.c_int64, (1, 0)),
    )
    rows = np.lib.stride_tricks.as_strided(self[offset:], (bins, row), (apart, 1))
    np.testing.assert_array_equal(out[to:][: entries * row].reshape(entries, row), rows[index])
    assert (out[:to] == 0xCD).all() and (out[to + entries * row :] == 0xCD).all()
    return access


@pytest.mark.parametrize("row", [1, 2, 6, 12, 16, 24, 48, 256, 4096, 20000])
@pytest.mark.parametrize("entries", [1, 5, 63, 300])
def test_rows(kernels, row, entries):
    assert gather_and_compare(kernels, entries, 40, row) == min(16, row & -row)


@pytest.mark.parametrize("row", [17, 18, 30, 31, 34, 94, 1001])
@pytest.mark.parametrize("entries", [1, 2, 63, 600])
@pytest.mark.parametrize("gap, offset", [(0, 0), (0, 3), (2, 1), (13, 15)])
def test_rows_from_anywhere(kernels, row, entries, gap, offset):
    assert gather_and_compare(kernels, entries, 40, row, gap, offset=offset, few=0) == 0


@pytest.mark.parametrize("few, access", [(9 * 31, 1), (9 * 31 - 1, 0)])
def test_small_calls_read_value_by_value(kernels, few, access):
    assert gather_and_compare(kernels, 9, 40, 31, few=few) == access


def test_small_and_large_calls(kernels):
    """A thread has one access, or several."""
    for entries in (132 * 1024 // 4, 132 * 1024 // 4 + 1):
        assert gather_and_compare(kernels, entries, 40, 16) == 16
        assert gather_and_compare(kernels, entries, 40, 4) == 4
    assert gather_and_compare(kernels, 132 * 1024 + 1, 40, 4) == 4


@pytest.mark.parametrize(
    "gap, offset, to, access",
    [(16, 0, 0, 16), (8, 0, 0, 8), (0, 4, 0, 4), (0, 0, 4, 4), (2, 0, 0, 0), (0, 1, 0, 0), (0, 0, 2, 2), (0, 0, 1, 1)],
    ids=lambda value: str(value),
)
def test_alignment(kernels, gap, offset, to, access):
    assert gather_and_compare(kernels, 100, 50, 64, gap, offset=offset, to=to, few=0) == access


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_a_strided_index(kernels, index_type):
    gather_and_compare(kernels, 700, 30, 32, index_type=index_type, step=3)


@pytest.mark.parametrize("few", [0, 132 * 1024])
@pytest.mark.parametrize("row, gap, offset", [(16, 0, 0), (48, 16, 0), (6, 0, 2), (31, 0, 3), (94, 2, 1)])
def test_tables(kernels, row, gap, offset, few):
    """Entries of several tables, which lie one after the other with a gap."""
    random = np.random.default_rng(row)
    tables, bins, entries, apart = 3, 20, 37, row + gap
    pitch = bins * apart + 2 * gap
    memory = at_the_end((tables - 1) * pitch + (bins - 1) * apart + row, offset)
    out = at_the_end(tables * entries * row, 0)
    memory[:] = random.integers(256, size=memory.size)
    index = random.integers(bins, size=(tables, entries), dtype=np.int64)
    kernels.gather(
        *(ctypes.c_uint64(array.ctypes.data) for array in (memory[offset:], index, out)), 1,
        *map(ctypes.c_int64, (bins, tables * entries, 1, row, apart)), ctypes.c_uint64(few), *map(ctypes.c_int64, (tables, pitch)),
    )  # fmt: skip
    values = np.lib.stride_tricks.as_strided(memory[offset:], (tables, bins, row), (pitch, apart, 1))
    want = np.take_along_axis(values, index[..., None], 1)
    np.testing.assert_array_equal(out[: want.size].reshape(want.shape), want)
