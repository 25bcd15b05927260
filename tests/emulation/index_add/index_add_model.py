"""Problems for the emulated launchers and kernels of index_add, with results from numpy."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace

import numpy as np

from .. import limits
from ..dtypes import BOOL, COMPLEX, FLOAT, TYPES, Operand
from ..memory import scatter

PATHS = ATOMIC, TILES, HOT, SORTED, BINS, LINES = "atomic", "tiles", "hot", "sorted", "bins", "lines"
FAST, DETERMINISTIC, ACCURATE, WIDE = range(4)  # WIDE adds half types to float32
REAL = [t for t in TYPES if t.category != COMPLEX]
# Below the product's 4096, so that problems of a few hundred entries reach tiles and sums of blocks.
LOWERED = {"min_tile_entries": 128, "min_block_sums": 128}


def set_limits(index_add, **given):
    """Sets the limits in LOWERED and in ``given``. All others get the values of the product."""
    limits.set_limits(index_add, **LOWERED | given)


def array(values):
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def run(index_add, dim, sizes, strides, source_strides, addresses, index, dtype, mode=FAST, alpha=1, sms=4):
    """Adds, with self and source at `addresses`. Returns the run, with the plan of its last launch."""
    index_add.run.restype = ctypes.c_char_p
    text = index_add.run(
        len(sizes),
        dim,
        array(sizes),
        ctypes.c_int64(len(index)),
        array(strides),
        array(source_strides),
        *map(ctypes.c_uint64, (*addresses, index.ctypes.data)),
        ctypes.c_int64(index.strides[0] // index.itemsize if len(index) > 1 else 1),
        int(index.dtype == np.int64),
        dtype.number,
        mode,
        ctypes.c_int64(alpha),
        sms,
    )
    return SimpleNamespace(**json.loads(text))


def expected(self: Operand, source: Operand, dim: int, index: np.ndarray, alpha: int) -> np.ndarray:
    """The exact result: sums of multiples of 1/4, exact in all dtypes, or integers that wrap around. `dim` counts from the
    innermost."""
    axis = len(self.sizes) - 1 - dim
    dtype = self.dtype
    kind, add = {BOOL: (np.bool_, np.logical_or), FLOAT: (np.float64, np.add)}.get(dtype.category, (np.int64, np.add))
    wide, rows = self.view(self.before).astype(kind), source.view(source.before).astype(kind)
    scatter(add, np.moveaxis(wide, axis, 0), index, np.moveaxis(rows * kind(alpha), axis, 0))
    return wide.astype(dtype.numpy)


def run_and_compare(index_add, self: Operand, source: Operand, dim: int, index, alpha=1, mode=FAST, sms=4):
    want = expected(self, source, dim, np.asarray(index, np.int64), alpha)
    addresses = self.address, source.address
    taken = run(
        index_add, dim, self.sizes, self.strides, source.strides, addresses, index, source.dtype, mode, alpha, sms
    )
    assert taken.error == 0
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
