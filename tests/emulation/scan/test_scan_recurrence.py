"""The launchers and kernels of linear recurrences, run on the CPU on random problems and compared with a loop: every path."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...plan.scan.scan_problem import ALONE, COLUMNS, PACKED, ROWS, SPLIT_COLUMNS, SPLIT_ROWS, Given
from ...support.seeded import seeded
from ..dtypes import COMPLEX, F16, F32, TYPES, DType, Operand
from .test_scan_kernels import F64, dense_strides, kernels, launch, limits

__all__ = ["kernels", "limits"]  # fixtures
C64, C128 = TYPES[9:11]
RESULTS = (F16, F32, F64, C64, C128)


class Factors(DType):
    """Factors of absolute value 0 or 1, so that recurrences are exact. They decide how far a value reaches."""

    def __init__(self, of: DType, zeros: bool = True):
        super().__init__(of.number, of.numpy, of.category)
        self.zeros = zeros

    def some(self, random: np.random.Generator, count: int) -> np.ndarray:
        found = np.array([1, -1, 1j, -1j])[random.integers(0, 4 if self.category == COMPLEX else 2, count)]
        if self.zeros:
            found[random.random(count) < random.choice([0, 0.001, 0.1])] = 0
        return (found if self.category == COMPLEX else found.real).astype(self.numpy)


class Recurrence:
    """A problem, innermost dimension first. Strides are given for a, b, the initial values and the result."""

    def __init__(
        self, a: Operand, b: Operand, out: Operand, initial: Operand | None, scanned, reverse=False, shifted=False
    ):
        self.a, self.b, self.out, self.initial = a, b, out, initial
        self.scanned, self.reverse, self.shifted = scanned, reverse, shifted

    def expected(self) -> np.ndarray:
        wide = np.complex128 if self.b.dtype.category == COMPLEX else np.float64
        axis = len(self.b.sizes) - 1 - self.scanned
        a, b = (np.moveaxis(x.view(x.before).astype(wide), axis, 0) for x in (self.a, self.b))
        if self.reverse:
            a, b = a[::-1], b[::-1]
        h, found = np.zeros(b.shape[1:], wide), []
        if self.initial is not None:
            h = np.moveaxis(self.initial.view(self.initial.before).astype(wide), axis, 0)[0]
        for a_t, b_t in zip(a, b):
            found.append(h + b_t if self.shifted else a_t * h + b_t)
            h = a_t * found[-1] if self.shifted else found[-1]
        found = np.stack(found[::-1] if self.reverse else found)
        return np.moveaxis(found, 0, axis).astype(self.out.dtype.numpy)

    def run(self, kernels) -> tuple[int, bool]:
        """Runs the problem. Returns what launch() does."""
        rank = len(self.b.sizes)
        array = ctypes.c_int64 * rank
        given = Given(
            rank,
            array(*self.b.sizes),
            array(*self.b.strides),
            array(*self.out.strides),
            self.scanned,
            self.reverse,
            0,
            self.b.address,
            self.out.address,
            self.b.dtype.number,
            self.out.dtype.number,
            array(*self.a.strides),
            array(*(self.initial.strides if self.initial else [0] * rank)),
            self.a.address,
            self.initial.address if self.initial else 0,
        )
        return launch(kernels, given, self.shifted)

    def check(self, kernels) -> tuple[int, bool]:
        """Runs the problem and compares the result."""
        want = self.expected()
        taken = self.run(kernels)
        np.testing.assert_array_equal(self.out.view(self.out.buffer), want)
        # Memory beside the results must not have changed.
        self.out.view(self.out.buffer)[...] = self.out.view(self.out.before)
        for operand in filter(None, (self.a, self.b, self.initial, self.out)):
            np.testing.assert_array_equal(operand.buffer, operand.before)
        return taken


def make(
    dtype, sizes, scanned, random, reverse=False, shifted=False, initial=False, a_strides=None, **given
) -> Recurrence:
    """A problem of dense tensors, unless strides are given."""
    dense = dense_strides(sizes)
    b, out = (Operand(dtype, sizes, given.get(name, dense), 0, random) for name in ("b_strides", "out_strides"))
    a = Operand(Factors(dtype, given.get("zeros", True)), sizes, a_strides or dense, given.get("offset", 0), random)
    first = Operand(dtype, sizes, initial_strides(sizes, scanned), 0, random) if initial else None
    return Recurrence(a, b, out, first, scanned, reverse, shifted)


def initial_strides(sizes: list, scanned: int) -> list:
    """Strides of the dimensions other than the scanned one, which has stride 0."""
    strides = dense_strides([1 if d == scanned else n for d, n in enumerate(sizes)])
    return [0 if d == scanned else s for d, s in enumerate(strides)]


@st.composite
def problems(draw):
    sizes = draw(
        st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33, 64, 130, 1025, 4100]), min_size=1, max_size=4)
    )
    while math.prod(sizes) > 20000:
        sizes.pop()
    rank = len(sizes)
    scanned = draw(st.integers(0, rank - 1))
    dtype = draw(st.sampled_from(RESULTS))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    order = draw(st.permutations(range(rank))) if draw(st.booleans()) else range(rank)

    def operand(of, expanded):
        own = draw(st.permutations(range(rank))) if draw(st.integers(0, 4)) == 0 else order
        strides = dense_strides(sizes, own, draw(st.sampled_from([0, 0, 0, 4, 1])))
        if expanded:
            strides = [0 if draw(st.booleans()) else s for s in strides]
        return Operand(of, sizes, strides, draw(st.sampled_from([0, 0, 0, 1])), random)

    a = operand(Factors(dtype), draw(st.booleans()))
    b = operand(dtype, draw(st.integers(0, 5)) == 0)
    out = operand(dtype, False)
    initial = None
    if draw(st.booleans()):
        strides = initial_strides(sizes, scanned)
        if draw(st.integers(0, 2)) == 0:
            strides = [0 if draw(st.booleans()) else s for s in strides]
        initial = Operand(dtype, sizes, strides, draw(st.integers(0, 1)), random)
    return Recurrence(a, b, out, initial, scanned, draw(st.booleans()), draw(st.booleans()))


def test_any_problem(kernels, limits):
    taken = set()

    @seeded(350)
    @given(problem=problems(), split=st.sampled_from([0, 200]), wide=st.sampled_from([0, 528]))
    def check(problem, split, wide):
        limits(
            split_rows_below=split,
            split_columns_below=split,
            wide_blocks=wide,
            alone_columns=528 - wide,
        )
        taken.add(problem.check(kernels))

    check()
    assert {path for path, _ in taken} == {PACKED, ROWS, SPLIT_ROWS, COLUMNS, SPLIT_COLUMNS, ALONE}
    assert len(taken) >= 10


SHAPES = [
    ([32, 300], 0, PACKED, True),
    ([33, 300], 0, PACKED, True),  # rows begin anywhere in a vector
    ([101, 5], 0, PACKED, True),  # and a chunk begins anywhere in a vector
    ([1, 77], 0, PACKED, True),
    ([3, 1201], 0, PACKED, True),
    ([1], 0, PACKED, True),
    ([2000, 3], 0, ROWS, True),
    ([2001, 3], 0, ROWS, True),
    ([20000, 2], 0, SPLIT_ROWS, True),
    ([70001], 0, SPLIT_ROWS, True),
    ([20001, 2], 0, SPLIT_ROWS, True),
    ([8, 9, 33], 1, COLUMNS, True),
    ([64, 300], 1, COLUMNS, True),
    ([3, 301, 4], 1, COLUMNS, False),
    ([8, 20000], 1, SPLIT_COLUMNS, True),
    ([5, 9000, 2], 1, SPLIT_COLUMNS, False),
]


@pytest.mark.parametrize("dtype", [F16, F32, C64], ids=str)
@pytest.mark.parametrize("sizes, scanned, path, vecs", SHAPES)
@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
def test_every_path(kernels, limits, dtype, sizes, scanned, path, vecs, shifted):
    """In both directions, with initial values in one of them. Without zeros, the first value reaches the last."""
    limits(split_rows_below=0 if path == ROWS else 264, split_columns_below=0 if path == COLUMNS else 200)
    random = np.random.default_rng(0)
    for reverse in (False, True):
        problem = make(dtype, sizes, scanned, random, reverse, shifted, initial=reverse != shifted, zeros=False)
        assert problem.check(kernels) == (path, vecs)


@pytest.mark.parametrize("sizes, scanned, path, vecs", [s for s in SHAPES if len(s[0]) > 1])
@pytest.mark.parametrize("varies", ["nowhere", "scanned", "others"])
def test_broadcast_factors(kernels, limits, sizes, scanned, path, vecs, varies):
    """A factor for each row, for each position, and one factor."""
    limits(split_rows_below=0 if path == ROWS else 264, split_columns_below=0 if path == COLUMNS else 200)
    random = np.random.default_rng(1)
    if varies == "nowhere":
        strides = [0] * len(sizes)
    elif varies == "scanned":
        strides = [1 if d == scanned else 0 for d in range(len(sizes))]
    else:
        strides = initial_strides(sizes, scanned)
    for shifted in (False, True):
        problem = make(F32, sizes, scanned, random, shifted, shifted, True, strides)
        taken = problem.check(kernels)
        if varies == "others" and scanned == 0 and path == PACKED and sizes[0] % 4:
            vecs = False  # a vector holds parts of several rows, which have different factors
        if varies == "scanned" and scanned == 0 and sizes[0] % 4 and path != ROWS:
            vecs = False  # rows begin at other offsets in a vector than the factors, and may be split
        assert taken == (path, vecs)


@pytest.mark.parametrize("dtype", [F16, F32, C64], ids=str)
def test_rows_whose_inputs_begin_elsewhere_in_a_vector(kernels, limits, dtype):
    """Each input is cut out of its own vectors, or there is one factor."""
    limits(split_rows_below=0)
    random = np.random.default_rng(2)
    for length in (600, 2061, 4000):
        sizes = [length, 2]
        for a, b, offset in [
            ([1, length], [1, length + 1], 1),
            ([1, length + 3], [1, length], 0),
            ([0, 1], [1, length + 1], 1),
        ]:
            for reverse in (False, True):
                strides = {"a_strides": a, "b_strides": b, "offset": offset}
                problem = make(dtype, sizes, 0, random, reverse, not reverse, True, zeros=False, **strides)
                path, vecs = problem.check(kernels)
                assert (path, vecs) == (ROWS, True)


@pytest.mark.parametrize("dtype", [F16, F32, C64], ids=str)
@pytest.mark.parametrize("length", [3, 16, 29])
def test_threads_scan_columns_alone(kernels, limits, dtype, length):
    limits(alone_columns=0)
    random = np.random.default_rng(4)
    for reverse in (False, True):
        for a_strides in (None, [0, 1, 0], [1, 0, 41]):
            problem = make(dtype, [41, length, 9], 1, random, reverse, not reverse, reverse, a_strides, zeros=False)
            assert problem.check(kernels) == (ALONE, False)


@pytest.mark.parametrize("sizes, scanned", [([300_011], 0), ([2, 150_003], 1)])
def test_look_back_over_groups(kernels, sizes, scanned):
    """More than 256 tiles, so that tiles read tiles, runs and groups, in an order that matters."""
    problem = make(C128, sizes, scanned, np.random.default_rng(0), initial=True, zeros=False)
    assert problem.check(kernels)[0] in (SPLIT_ROWS, SPLIT_COLUMNS)


@pytest.mark.parametrize("sizes, scanned", [([4096 * 37 + 5], 0), ([2048 * 35 + 1, 2], 0), ([2, 3000], 1)])
def test_impatient_blocks_compute_the_same_bits(kernels, limits, sizes, scanned):
    """Without patience, every block computes what comes before it from the input."""
    random = np.random.default_rng(3)
    results = []
    problem = make(F32, sizes, scanned, random, initial=True)
    problem.a.buffer[:] = random.uniform(0.9, 1, problem.a.buffer.shape)
    problem.b.buffer[:] = random.standard_normal(problem.b.buffer.shape)
    for patience in (2**17, 0):
        limits(patience=patience)
        problem.run(kernels)
        results.append(problem.out.view(problem.out.buffer).copy())
    np.testing.assert_array_equal(*results)


def test_problems_are_launched_in_parts(kernels, limits):
    """With a limit that small problems exceed, and with more dimensions than a launch supports."""
    random = np.random.default_rng(0)
    limits(launch_limit=40)
    for sizes, scanned in (([7, 100], 0), ([100, 7], 1), ([3, 40, 30], 1)):
        make(F32, sizes, scanned, random, True, initial=True).check(kernels)
    limits()
    sizes, order = [2] * 12, [7, 0, 9, 2, 11, 4, 1, 6, 3, 8, 5, 10]
    make(F32, sizes, 5, random, initial=True, b_strides=dense_strides(sizes, order)).check(kernels)


@pytest.mark.parametrize("sizes, scanned", [([40, 3], 0), ([9000], 0), ([4, 500], 1)])
def test_the_first_factor_has_no_effect_without_an_initial_value(kernels, sizes, scanned):
    problem = make(F32, sizes, scanned, np.random.default_rng(0))
    want = problem.expected()
    first = [slice(None)] * len(sizes)
    first[len(sizes) - 1 - scanned] = 0
    problem.a.view(problem.a.buffer)[tuple(first)] = np.nan
    problem.run(kernels)
    np.testing.assert_array_equal(problem.out.view(problem.out.buffer), want)
