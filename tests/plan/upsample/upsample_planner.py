"""Shared by the tests of upsampling's index functions and planners: the library made from upsample_shim.cpp, and axes."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from tools.test_build import load

UINT8, FLOAT16, FLOAT32, FLOAT64 = 1, 6, 8, 9
ITEM = {UINT8: 1, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8}
BASE = 1 << 20
INT32 = 2**31 - 1
LONGEST, SHORT, PART = 2**30, 2**22, 2**30  # the longest axis, kShortAxis, kMaxPartUnits
VECS, ROWS, IMAGES, GATHER = range(4)
FACTOR, TILES, WINDOWS, PIXELS = range(4)
THREADS, TILE_THREADS, SHARED, SEVERAL = 256, 128, 48 << 10, -1


class Plan(SimpleNamespace):
    """The first launch of a plan, from its JSON. `parts` has all of them. Strides are in units in the forward, in elements in the
    backward."""

    def __init__(self, launches: list[dict]):
        first = launches[0]
        super().__init__(**first["launch"] | first)
        self.parts = [SimpleNamespace(**part["launch"] | part) for part in launches]
        self.all_units = sum(part.units for part in self.parts)


def load_planner() -> ctypes.CDLL:
    library = load("plan/upsample")
    library.widest_window.restype = ctypes.c_int64
    library.forward_plan.restype = library.backward_plan.restype = ctypes.c_char_p
    return library


class Axis:
    """A height or width, with the step that follows from a scale factor or from the sizes."""

    def __init__(self, n: int, out: int, scale: float | None = None, exact: bool = False, step=None):
        self.n, self.out, self.exact = n, out, exact
        with np.errstate(over="ignore"):
            self.step = np.float32(1.0 / scale) if scale else np.float32(n) / np.float32(out)
        if step is not None:
            self.step = np.float32(step)

    def __repr__(self):
        return f"{self.n} to {self.out}, step {self.step}, exact={self.exact}"

    def sources(self, outs: np.ndarray) -> np.ndarray:
        """The sources by ATen's formula. For an infinite step and pixel 0 it gives NaN, which becomes 0."""
        if self.n == self.out:
            return outs
        with np.errstate(all="ignore"):
            position = (outs.astype(np.float32) + np.float32(0.5 if self.exact else 0)) * self.step
        return np.minimum(np.nan_to_num(np.floor(position.astype(np.float64)), nan=0.0), self.n - 1).astype(np.int64)

    def arguments(self):
        return ctypes.c_int64(self.n), ctypes.c_int64(self.out), ctypes.c_float(self.step), int(self.exact)

    def ask(self, function, positions: np.ndarray) -> np.ndarray:
        given, found = np.ascontiguousarray(positions, np.int32), np.empty(len(positions), np.int32)
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (given, found))
        function(*self.arguments(), len(positions), *pointers)
        return found.astype(np.int64)

    def factor(self, planner) -> int:
        return planner.factor_of(*self.arguments())

    def check_factor(self, planner) -> int:
        """Checks that a factor that is set is right for every output pixel. Returns the factor or 0."""
        factor = self.factor(planner)
        if factor:
            outs = np.arange(self.out)
            assert np.array_equal(self.sources(outs), outs // factor), f"{self}"
        return factor

    def check_first_copies(self, planner) -> None:
        """Compares the first copies of all input pixels with the sources of all output pixels."""
        ins = np.arange(self.n + 1)
        sources = self.sources(np.arange(self.out))
        wanted = np.searchsorted(sources, ins)
        wanted[-1] = self.out
        found = self.ask(planner.first_copies, ins)
        assert np.array_equal(found, wanted), f"{self}: {found.tolist()}, expected {wanted.tolist()}"
        assert planner.widest_window(*self.arguments()) >= np.diff(wanted).max(), f"{self}"


SCALES = [1e-6, 0.01, 1 / 3, 0.37, 0.5, 0.999999, 1.1, 1.5, 2.0, 2.7, 3.0, 7.3, 1000.0, 1e6]
EXTREME = [1e-300, 1e-40, 1e-37, 1e-30, 1e30, 1e37, 1e300]


@st.composite
def axes(draw, longest=LONGEST):
    """Axes with sizes of every magnitude, integer factors, and scales that agree with the sizes or contradict them."""
    sizes = st.integers(0, longest.bit_length() - 1).flatmap(lambda bits: st.integers(1, min(2 << bits, longest)))
    n, exact = draw(sizes), draw(st.booleans())
    kind = draw(st.sampled_from(["sizes", "factor", "down", "scale", "contradiction"]))
    if kind == "sizes":
        return Axis(n, draw(sizes), None, exact)
    if kind == "contradiction":
        return Axis(n, draw(sizes), draw(st.sampled_from(SCALES + EXTREME)), exact)
    if kind == "scale":
        scale = draw(st.sampled_from(SCALES))
        return Axis(n, min(max(int(n * scale), 1), longest), scale, exact)
    factor = draw(st.integers(1, 64))
    small = max(n // factor, 1)
    pair = (small, small * factor) if kind == "factor" else (small * factor, small)
    return Axis(*(min(size, longest) for size in pair), draw(st.sampled_from([None, None, float(factor)])), exact)
