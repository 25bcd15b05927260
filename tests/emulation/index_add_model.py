"""Problems for the emulated launchers and kernels of index_add, with results from numpy."""

from __future__ import annotations

import ctypes

import numpy as np

from .dtypes import BOOL, COMPLEX, FLOAT, TYPES, Operand
from .memory import scatter

ATOMIC, SORTED, BINS, LINES = range(4)
FAST, DETERMINISTIC, ACCURATE = range(3)
REAL = [t for t in TYPES if t.category != COMPLEX]
LIMITS = {"kSortSourceBytes": 24 << 20, "kMinBinValues": 1 << 15, "kMaxLaunchSize": 1 << 30, "kGroupRows": 128}
LIMITS |= {"kMaxPositionBits": 30, "kMinHotValues": 1 << 20}
LIMITS |= {"kMaxTileEntries": 4096, "kMinLines": 512, "kMinTileEntries": 1024, "kSortTraffic": 118_000_000}


class Taken(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int)
        for name in ("path", "values", "lanes", "copies", "outer_group", "slices", "hot_bins", "tile_rows")
    ]
    _fields_ += [("splits", ctypes.c_int64), ("scratch", ctypes.c_int64), ("intact", ctypes.c_int)]


def set_limits(index_add, **limits):
    values = LIMITS | limits
    index_add.set_limits(
        ctypes.c_int64(values["kSortSourceBytes"]),
        ctypes.c_int64(values["kMinBinValues"]),
        ctypes.c_int64(values["kMaxLaunchSize"]),
        values["kGroupRows"],
        values["kMaxPositionBits"],
        ctypes.c_int64(values["kMinHotValues"]),
        ctypes.c_int64(values["kMaxTileEntries"]),
        values["kMinLines"],
        ctypes.c_int64(values["kMinTileEntries"]),
        ctypes.c_int64(values["kSortTraffic"]),
    )


def expected(self: Operand, source: Operand, dim: int, index: np.ndarray, alpha: int) -> np.ndarray:
    """The exact result: sums of multiples of 1/4, exact in all dtypes, or integers that wrap around. `dim` counts from the
    innermost."""
    axis = len(self.sizes) - 1 - dim
    dtype = self.dtype
    kind, add = {BOOL: (np.bool_, np.logical_or), FLOAT: (np.float64, np.add)}.get(dtype.category, (np.int64, np.add))
    wide, rows = self.view(self.before).astype(kind), source.view(source.before).astype(kind)
    scatter(add, np.moveaxis(wide, axis, 0), index, np.moveaxis(rows * kind(alpha), axis, 0))
    return wide.astype(dtype.numpy)


def run_and_compare(index_add, self: Operand, source: Operand, dim: int, index, alpha=1, mode=FAST, sms=4) -> Taken:
    taken = Taken()
    bases = index if index.base is None else index.base
    want = expected(self, source, dim, np.asarray(index, np.int64), alpha)

    def array(values):
        return (ctypes.c_int64 * max(len(values), 1))(*values)

    error = index_add.run(
        len(self.sizes),
        dim,
        array(self.sizes),
        ctypes.c_int64(len(index)),
        array(self.strides),
        array(source.strides),
        ctypes.c_uint64(self.address),
        ctypes.c_uint64(source.address),
        ctypes.c_uint64(index.ctypes.data),
        ctypes.c_int64(index.strides[0] // index.itemsize if len(index) > 1 else 1),
        int(index.dtype == np.int64),
        self.dtype.number,
        mode,
        ctypes.c_int64(alpha),
        sms,
        ctypes.byref(taken),
    )
    assert error == 0 and bases is not None
    assert taken.intact, "a kernel wrote past its scratch or shared memory"
    np.testing.assert_array_equal(self.view(self.buffer), want)
    if self.dtype.category == FLOAT:  # -0.0 stays unless another value is added
        np.testing.assert_array_equal(np.signbit(self.view(self.buffer)), np.signbit(want))
    # Memory beside self must not have changed.
    self.view(self.buffer)[...] = self.view(self.before)
    for operand in (self, source):
        np.testing.assert_array_equal(operand.buffer, operand.before)
    return taken


def distributions(number: int) -> list[str]:
    """Three distributions, which differ for successive numbers."""
    return [DISTRIBUTIONS[(number + k) % len(DISTRIBUTIONS)] for k in (0, 3, 5)]


DISTRIBUTIONS = ["uniform", "equal", "sorted", "reversed", "hot", "zipf", "ends", "runs"]


def indices(kind: str, entries: int, bins: int, random: np.random.Generator) -> np.ndarray:
    uniform = random.integers(0, bins, entries)
    if kind == "equal":
        return np.full(entries, uniform[0] if entries else 0)
    if kind == "sorted":
        return np.sort(uniform)
    if kind == "reversed":
        return np.sort(uniform)[::-1].copy()
    if kind == "hot":
        return np.where(random.integers(0, 2, entries) == 0, bins // 2, uniform)
    if kind == "zipf":
        return random.permutation(bins)[np.minimum(random.zipf(1.3, entries) - 1, bins - 1)]
    if kind == "ends":
        return random.integers(0, 2, entries) * (bins - 1)
    if kind == "runs":
        return np.repeat(uniform, 40)[:entries]
    return uniform
