"""Memory with inaccessible pages around it, and the encoding of numbers in memory."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from .dtypes import BF16, COMPLEX, FLOAT, INTEGER, DType


class Memory:
    """Bytes between two inaccessible pages. An access outside of them ends the process."""

    def __init__(self, size: int):
        pages = mmap.mmap(-1, size + 2 * mmap.PAGESIZE)
        self.bytes = np.frombuffer(pages, np.uint8)[mmap.PAGESIZE : mmap.PAGESIZE + size]
        no_access, begin = 0, self.bytes.ctypes.data
        for page in (begin - mmap.PAGESIZE, begin + size):
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), no_access) == 0


def at_the_end(size: int, offset: int) -> np.ndarray:
    """`size` bytes behind `offset` others, from a multiple of 16 on, less than 16 bytes before an inaccessible page."""
    size = -(-(size + offset) // 16) * 16
    return Memory(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE).bytes[-size:]


def far_apart(size: int) -> np.ndarray:
    """An array of `size` bytes. The system only allocates memory for pages that have been written."""
    no_reserve, no_huge_pages = 0x4000, 15  # Linux's MAP_NORESERVE and MADV_NOHUGEPAGE
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    pages.madvise(no_huge_pages)
    return np.frombuffer(pages, np.uint8)


def scatter(add, into: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    """The same as add.at(into, index, rows), but much faster. The order of additions may differ, so sums must be exact."""
    order = np.argsort(index, kind="stable")
    bins, firsts = np.unique(index[order], return_index=True)
    if len(bins):
        into[bins] = add(into[bins], add.reduceat(rows[order], firsts, axis=0))


def encode(dtype: DType, values: np.ndarray) -> np.ndarray:
    """Values in the dtype's representation in memory. bfloat16 is rounded to nearest, ties to even."""
    if dtype is not BF16:
        return values.astype(dtype.numpy)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def decode(dtype: DType, values: np.ndarray) -> np.ndarray:
    """Values in a type of numpy in which sums are exact or wrap around."""
    if dtype is BF16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype({INTEGER: np.int64, FLOAT: np.float64, COMPLEX: np.complex128}[dtype.category])
