"""The kernel of few entries, compared with numpy in float64. Memory ends where operands and results end."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..build import load
from ..dtypes import BF16, F16, F32, TYPES, DType
from ..memory import Memory, decode, encode

F64 = TYPES[8]
FLOATS = [F16, BF16, F32, F64]
SUM, MEAN, MAX, MIN = range(4)
POISON = 0xCD


class Given(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "src", "index", "out", "arg", "long_index", "index_stride", "bins", "reduce", "dtype", "batches", "entries", "features",
            "entry_stride", "batch_stride", "in_order",
        )
    ]  # fmt: skip


class Planned(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("values", "rows", "lanes", "shares", "tiles", "blocks")]


@pytest.fixture(scope="module")
def kernels():
    return load("scatter")


@dataclass(frozen=True)
class Problem:
    """`gap` and `batch_gap` are values between slices and between batches, and `offset` is the first slice's, in values."""

    dtype: DType = F32
    reduce: int = SUM
    batches: int = 1
    features: int = 1
    gap: int = 0
    batch_gap: int = 0
    offset: int = 0
    out_offset: int = 0
    is_long: bool = True
    index_step: int = 1
    with_arg: bool = True
    at_end: bool = True
    sms: int = 1
    in_order: bool = True

    def layout(self, entries: int) -> tuple[int, int, int]:
        """The strides of entries and batches, and the values from the first to the last one."""
        stride = self.features + self.gap
        batch_stride = entries * stride + self.batch_gap
        return stride, batch_stride, (self.batches - 1) * batch_stride + (entries - 1) * stride + self.features


class Place:
    """Bytes in poisoned memory, between `offset` bytes behind a multiple of 16 and an inaccessible page less than 16 bytes away."""

    def __init__(self, size: int, offset: int = 0, at_end: bool = True):
        whole = -(-(size + offset) // 16) * 16
        memory = Memory(-(-whole // mmap.PAGESIZE) * mmap.PAGESIZE)
        self.all = memory.bytes[-whole:] if at_end else memory.bytes[:whole]
        self.begin, self.size = offset, size
        memory.bytes[:] = POISON
        self.memory = memory.bytes

    def view(self, dtype) -> np.ndarray:
        return self.all[self.begin : self.begin + self.size].view(dtype)

    @property
    def is_intact(self) -> bool:
        """Whether nothing around has been written."""
        count = np.count_nonzero(self.memory != POISON) - np.count_nonzero(self.view(np.uint8) != POISON)
        return count == 0


def run(kernels, problem: Problem, values: np.ndarray, index: np.ndarray, bins: int, descending: bool = False):
    """Reduces encoded values of shape (batches, entries, features). Returns the result, the entries and the plan."""
    batches, entries, features = values.shape
    item, dtype = problem.dtype.numpy.itemsize, problem.dtype.numpy
    stride, batch_stride, count = problem.layout(entries)
    src = Place(count * item, problem.offset % (16 // item) * item, problem.at_end)
    src.view(np.uint8)[:] = 0xFF  # NaN
    laid_out = np.lib.stride_tricks.as_strided(
        src.view(dtype), values.shape, (batch_stride * item, stride * item, item)
    )
    laid_out[...] = values
    kind = np.int64 if problem.is_long else np.int32
    at_index = Place(((entries - 1) * problem.index_step + 1) * kind().itemsize, 0, problem.at_end)
    at_index.view(kind)[:] = -1
    at_index.view(kind)[:: problem.index_step] = index
    results = batches * bins * features
    out = Place(results * item, problem.out_offset % (16 // item) * item, problem.at_end)
    arg = Place(results * 8, 0, problem.at_end)
    before = src.memory.copy()
    of_call, planned = (
        Given(
            src.view(dtype).ctypes.data, at_index.view(kind).ctypes.data, out.view(dtype).ctypes.data,
            arg.view(np.int64).ctypes.data if problem.with_arg else 0, problem.is_long, problem.index_step, bins, problem.reduce,
            problem.dtype.number, batches, entries, features, stride, batch_stride, problem.in_order,
        ),
        Planned(),
    )  # fmt: skip
    assert kernels.run(ctypes.byref(of_call), problem.sms, int(descending), ctypes.byref(planned)) == 0
    np.testing.assert_array_equal(src.memory, before)
    assert out.is_intact and arg.is_intact
    shape = (batches, bins, features)
    return out.view(dtype).reshape(shape).copy(), arg.view(np.int64).reshape(shape).copy(), planned


def expected(problem: Problem, values: np.ndarray, index: np.ndarray, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """The results in float64, and the first entry of each maximum or minimum. A NaN beats all numbers."""
    batches, _, features = values.shape
    out = np.zeros((batches, bins, features))
    arg = np.full((batches, bins, features), -1, np.int64)
    compute = np.float64 if problem.dtype is F64 else np.float32
    order = np.argsort(index, kind="stable")
    found, firsts = np.unique(index[order], return_index=True)
    for b, entries in zip(found, np.split(order, firsts[1:])):
        of_bin = values[:, entries]
        if problem.reduce in (SUM, MEAN):
            sums = of_bin.sum(1)
            out[:, b] = sums if problem.reduce == SUM else sums.astype(compute) / compute(len(entries))
            continue
        best = of_bin.max(1) if problem.reduce == MAX else of_bin.min(1)
        is_best = (of_bin == best[:, None]) | np.isnan(of_bin)
        out[:, b] = best
        arg[:, b] = entries[is_best.argmax(1)]
    return out, arg


def compare(kernels, problem: Problem, index: np.ndarray, bins: int, values: np.ndarray | None = None) -> Planned:
    """Sums of the values are exact, so that comparisons need no tolerance. A second call has the first one's bits."""
    if values is None:
        random = np.random.default_rng(len(index))
        drawn = random.integers(-8, 9, (problem.batches, len(index), problem.features)) / 4
        values = encode(problem.dtype, drawn)
    out, arg, planned = run(kernels, problem, values, index, bins)
    want, of_entry = expected(problem, decode(problem.dtype, values), index, bins)
    np.testing.assert_array_equal(decode(problem.dtype, out), decode(problem.dtype, encode(problem.dtype, want)))
    if problem.reduce in (MAX, MIN) and problem.with_arg:
        np.testing.assert_array_equal(arg, of_entry)
    else:
        assert (arg.view(np.uint8) == POISON).all()
    again, _, _ = run(kernels, problem, values, index, bins, descending=True)
    np.testing.assert_array_equal(out.view(np.uint8), again.view(np.uint8))
    return planned


def some_index(random: np.random.Generator, order: str, entries: int, bins: int) -> np.ndarray:
    drawn = random.random(entries)
    drawn = {"uniform": drawn, "ascending": np.sort(drawn), "skewed": drawn**6, "equal": np.repeat(drawn[:1], entries)}
    return (drawn[order] * bins).astype(np.int64)


# ---------------------------------------------------------------- random problems


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(FLOATS))
    entries = draw(st.one_of(st.integers(1, 70), st.sampled_from((255, 256, 257, 511, 513, 1025, 2049))))
    bins = draw(st.one_of(st.integers(1, 40), st.sampled_from((200, 513, 1500))))
    features = draw(st.one_of(st.integers(1, 20), st.sampled_from((32, 64, 128, 136, 300))))
    batches = draw(st.sampled_from((1, 1, 1, 2, 3)))
    features = min(features, max(100_000 // (max(entries, bins) * batches), 1))
    values = 16 // dtype.numpy.itemsize
    whole = draw(st.booleans())
    if whole:
        features = -(-features // values) * values
    problem = Problem(
        dtype, draw(st.integers(SUM, MIN)), batches, features, draw(st.sampled_from((0, values) if whole else (0, 1, values, 3))),
        draw(st.sampled_from((0, values) if whole else (0, values, 5))), 0 if whole else draw(st.integers(0, values - 1)),
        0 if whole else draw(st.integers(0, values - 1)), draw(st.booleans()), draw(st.sampled_from((1, 1, 3))), draw(st.booleans()),
        draw(st.booleans()), draw(st.sampled_from((1, 2, 3, 8))), draw(st.booleans()),
    )  # fmt: skip
    order = draw(st.sampled_from(("uniform", "ascending", "skewed", "equal")))
    return problem, some_index(np.random.default_rng(draw(st.integers(0, 2**31))), order, entries, bins), bins


def test_any_problem(kernels):
    taken = set()

    @seeded(250)
    @given(problems())
    def check(drawn):
        problem, index, bins = drawn
        planned = compare(kernels, problem, index, bins)
        longest = np.bincount(index).max()
        taken.add(("long", bool(longest > 16 * planned.shares), problem.reduce in (MAX, MIN)))
        taken.add(("values", planned.values, problem.dtype))
        taken.add(("rows", planned.rows > 1, planned.shares > 1))
        taken.add(("tiles", planned.tiles > 1, problem.batches > 1))
        taken.add(("order", problem.in_order or problem.reduce > MEAN, bool(len(index) > 256 * planned.blocks)))

    check()
    assert {("long", a, b) for a in (False, True) for b in (False, True)} <= taken
    accesses = {(16 // d.numpy.itemsize, d) for d in FLOATS} | {(1, d) for d in FLOATS}
    assert {("values", *access) for access in accesses} <= taken
    assert {("rows", False, True), ("rows", True, True), ("rows", True, False)} <= taken
    assert {("order", in_order, many) for in_order in (False, True) for many in (False, True)} <= taken
    assert {("tiles", True, False), ("tiles", True, True), ("tiles", False, True)} <= taken


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("reduce", [SUM, MEAN, MAX, MIN])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_every_kernel(kernels, dtype, reduce, offset):
    """Slices are read in vectors, pairs of halves or values, as they are aligned."""
    size = dtype.numpy.itemsize
    values = 16 // size if offset * size % 16 == 0 else 2 if size == 2 and offset == 2 else 1
    problem = Problem(dtype, reduce, 2, 3 * 16 // size, offset, sms=2)
    index = some_index(np.random.default_rng(0), "skewed", 400, 9)
    assert compare(kernels, problem, index, 9).values == values


@pytest.mark.parametrize("entries", [1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1024, 1025, 4096, 8191, 8192])
@pytest.mark.parametrize("reduce", [SUM, MAX])
def test_all_entries_in_one_bin(kernels, entries, reduce):
    """A block sorts up to 256 entries by comparing each with all. More are sorted in a network of a power of two, or grouped where
    any order will do. Threads share the bin."""
    for bins, bin in ((1, 0), (3, 1)):
        for in_order in (True, False):
            compare(kernels, Problem(reduce=reduce, features=5, in_order=in_order), np.full(entries, bin), bins)


@pytest.mark.parametrize("entries, bins", [(8192, 8192), (8192, 700), (3000, 5000), (257, 257)])
def test_positions(kernels, entries, bins):
    """Every position is found, and every bin written. Here a block has up to 512 bins."""
    random = np.random.default_rng(entries)
    index = random.permutation(bins)[:entries] if bins >= entries else random.integers(bins, size=entries)
    values = random.permutation(entries).astype(np.float32)[None, :, None]
    for reduce, in_order in ((SUM, True), (SUM, False), (MIN, False)):
        planned = compare(kernels, Problem(reduce=reduce, sms=2, in_order=in_order), index, bins, values)
        assert planned.rows == min(-(-bins // 4), 512)


@pytest.mark.parametrize("reduce", [MAX, MIN])
@pytest.mark.parametrize("entries", [3, 40, 600])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(kernels, dtype, reduce, entries):
    """NaN beats all, and of equal values the first wins: 0 and -0 are equal."""
    random = np.random.default_rng(entries)
    for specials in ([np.nan, 1, -2], [0.0, -0.0], [np.inf, -np.inf, 3], [np.nan, np.inf, -np.inf, 0.0]):
        values = encode(dtype, random.choice(specials, (1, entries, 8)))
        compare(kernels, Problem(dtype, reduce, features=8), random.integers(4, size=entries), 5, values)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("entries, bins, features", [(60, 9, 16), (2000, 3, 5), (700, 1, 40)])
def test_the_order_is_fixed(kernels, dtype, entries, bins, features):
    """Sums that are rounded have the same bits in every call, although threads run in another order. They are added in the compute
    type."""
    random = np.random.default_rng(entries)
    values = encode(dtype, random.normal(size=(1, entries, features)))
    index = random.integers(bins, size=entries)
    exact = decode(dtype, values)
    for sms in (1, 3):
        problem = Problem(dtype, SUM, features=features, sms=sms)
        first, again = (run(kernels, problem, values, index, bins, descending)[0] for descending in (False, True))
        np.testing.assert_array_equal(first.view(np.uint8), again.view(np.uint8))
        want, sizes = (expected(problem, v, index, bins)[0] for v in (exact, abs(exact)))
        result = {2: 2.0**-8 if dtype is BF16 else 2.0**-11, 4: 2.0**-24, 8: 2.0**-53}[dtype.numpy.itemsize]
        compute = 2.0**-53 if dtype is F64 else 2.0**-24
        assert (abs(decode(dtype, first) - want) <= result * abs(want) + 64 * compute * sizes).all()


@pytest.mark.parametrize(
    "dtype, entries, bins, features, may_add, small",
    [
        (F32, 8192, 10, 4, False, True),
        (F32, 8193, 10, 4, False, False),
        (F32, 2048, 10, 4, True, True),
        (F32, 2049, 10, 4, True, False),
        (F16, 2049, 10, 4, True, False),
        (F16, 8192, 10_000, 512, True, True),  # a result in float32 would take longer
        (F32, 8192, 10_000, 512, True, False),
        (F32, 8192, 100_000, 4096, False, False),  # the index would be read by too many blocks
        (F32, 1000, 4_000_000, 1, True, False),  # filling the result is faster
        (F32, 100, 2**22 + 1, 1, False, False),
        (F32, 1, 1, 2**22 + 1, False, False),
    ],
)
def test_which_problems_take_one_launch(kernels, dtype, entries, bins, features, may_add, small):
    aligned = 1 << 20  # an address that nothing reads
    of_call = Given(
        aligned, aligned, aligned, 0, True, 1, bins, SUM, dtype.number, 1, entries, features, features, 0, 1
    )
    assert kernels.takes_one_launch(ctypes.byref(of_call), int(may_add), 132) == small
