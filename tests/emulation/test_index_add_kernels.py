"""The index_add launchers and kernels, run on the CPU over random problems: every path, against numpy."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .build import load
from .dtypes import BOOL, COMPLEX, FLOAT, TYPES, Operand

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


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return load("index_add", tmp_path_factory.mktemp("emulated"), variables=tuple(LIMITS))


def set_limits(kernels, **limits):
    values = LIMITS | limits
    kernels.set_limits(
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
    """Exact: sums of multiples of 1/4 that all types hold, or wrapped integers. `dim` counts from the innermost."""
    axis = len(self.sizes) - 1 - dim
    dtype = self.dtype
    into, rows = self.view(self.before), source.view(source.before)
    if dtype.category == BOOL:
        wide = into != 0
        np.logical_or.at(np.moveaxis(wide, axis, 0), index, np.moveaxis((rows != 0) & bool(alpha), axis, 0))
        return wide.astype(np.uint8)
    wide = into.astype(np.float64 if dtype.category == FLOAT else np.int64)
    np.add.at(np.moveaxis(wide, axis, 0), index, np.moveaxis(rows.astype(wide.dtype) * alpha, axis, 0))
    return wide.astype(dtype.numpy)


def run_and_compare(kernels, self: Operand, source: Operand, dim: int, index, alpha=1, mode=FAST, sms=4) -> Taken:
    taken = Taken()
    bases = index if index.base is None else index.base
    want = expected(self, source, dim, np.asarray(index, np.int64), alpha)

    def array(values):
        return (ctypes.c_int64 * max(len(values), 1))(*values)

    error = kernels.run(
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
    if self.dtype.category == FLOAT:  # -0.0 stays what it is unless something else is added
        np.testing.assert_array_equal(np.signbit(self.view(self.buffer)), np.signbit(want))
    # Nothing beside self has changed.
    self.view(self.buffer)[...] = self.view(self.before)
    for operand in (self, source):
        np.testing.assert_array_equal(operand.buffer, operand.before)
    return taken


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


@st.composite
def problems(draw):
    sizes = draw(
        st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 8, 16, 17, 33, 64, 128, 130, 260]), min_size=1, max_size=4)
    )
    dim = draw(st.integers(0, len(sizes) - 1))
    others = [n for d, n in enumerate(sizes) if d != dim]
    while math.prod(others) > 1500:
        others[others.index(max(others))] = 1
    sizes = others[:dim] + [draw(st.sampled_from([1, 2, 3, 15, 100, 513, 700, 5000]))] + others[dim:]
    entries = draw(st.sampled_from([1, 2, 3, 31, 32, 33, 100, 257, 1000, 4097, 9000]))
    while entries * math.prod(others) > 150000 or sizes[dim] * math.prod(others) > 150000:
        entries, sizes[dim] = max(entries // 3, 1), max(sizes[dim] // 3, 1)
    dtype = draw(st.sampled_from(REAL))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    plain = draw(st.integers(0, 2)) > 0

    def operand(shape, expandable):
        strides, step = [0] * len(shape), 1
        order = range(len(shape)) if plain else draw(st.permutations(range(len(shape))))
        for d in order:
            strides[d] = step
            step = step * shape[d] + (0 if plain else draw(st.sampled_from([0, 0, 1, 4, 16])))
        if expandable and not plain and draw(st.integers(0, 4)) == 0:
            strides = [0 if draw(st.booleans()) else s for s in strides]
        made = Operand(dtype, shape, strides, draw(st.sampled_from([0, 0, 1, 3, 8])), random)
        if dtype.category == FLOAT:
            for buffer in (made.buffer, made.before):
                buffer[buffer == 0] = -0.0
        return made

    source_shape = [entries if d == dim else n for d, n in enumerate(sizes)]
    index = indices(draw(st.sampled_from(DISTRIBUTIONS)), entries, sizes[dim], random)
    index = index.astype(draw(st.sampled_from([np.int64, np.int32])))
    if draw(st.integers(0, 3)) == 0:
        index = np.repeat(index, 3)[::3]
    alpha = draw(st.sampled_from([1, 1, 1, 0, 2, -1] if dtype.category != BOOL else [1, 0]))
    return operand(sizes, False), operand(source_shape, True), dim, index, alpha, draw(st.integers(0, 2))


def test_any_problem(kernels):
    taken = set()

    @settings(max_examples=500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(
        problem=problems(),
        sms=st.sampled_from([1, 4, 64]),
        limits=st.fixed_dictionaries(
            {
                "kSortSourceBytes": st.sampled_from([0, 4096, 24 << 20]),
                "kMinBinValues": st.sampled_from([0, 500, 1 << 15]),
                "kMaxLaunchSize": st.sampled_from([50, 1 << 30]),
                "kGroupRows": st.sampled_from([2, 64]),
                "kMaxPositionBits": st.sampled_from([7, 30, 30]),
                "kMinHotValues": st.sampled_from([0, 1 << 20]),
                "kMinTileEntries": st.sampled_from([0, 1024]),
                "kSortTraffic": st.sampled_from([-(2**50), 118_000_000]),
            }
        ),
    )
    def check(problem, sms, limits):
        set_limits(kernels, **limits)
        run = run_and_compare(kernels, *problem, sms)
        taken.add(run.path)

    check()
    assert taken == {ATOMIC, SORTED, BINS, LINES}


@pytest.mark.parametrize("width, lanes", [(1, 1), (2, 2), (8, 2), (12, 4), (20, 8), (64, 16), (128, 32), (130, 32)])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_rows_by_few_and_many_lanes(kernels, distribution, width, lanes):
    set_limits(kernels)
    random = np.random.default_rng(width)
    self = Operand(TYPES[7], [width, 90], [1, width], 0, random)
    source = Operand(TYPES[7], [width, 700], [1, width], 0, random)
    taken = run_and_compare(kernels, self, source, 1, indices(distribution, 700, 90, random), mode=DETERMINISTIC)
    assert (taken.path, taken.lanes) == (SORTED, lanes)


@pytest.mark.parametrize("mode, path", [(FAST, ATOMIC), (DETERMINISTIC, SORTED)])
@pytest.mark.parametrize("dtype, width", [(TYPES[6], 64), (TYPES[7], 64), (TYPES[8], 52)], ids=str)
def test_slices_of_packs(kernels, mode, path, dtype, width):
    """Rows that one launch does not take, in halves that are whole packs."""
    set_limits(kernels, kMaxLaunchSize=50)
    random = np.random.default_rng(width)
    self = Operand(dtype, [width, 70], [1, width], 0, random)
    source = Operand(dtype, [width, 1100], [1, width], 0, random)
    taken = run_and_compare(kernels, self, source, 1, indices("hot", 1100, 70, random), mode=mode)
    assert (taken.path, taken.slices) == (path, 2) and taken.values == 16 // self.buffer.itemsize
    assert (taken.tile_rows > 0) == (path == ATOMIC)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [TYPES[6], TYPES[7], TYPES[8]], ids=str)
@pytest.mark.parametrize("width", [1, 2, 7, 16, 128, 132, 150])
def test_long_segments_in_parts(kernels, distribution, dtype, width):
    """Sorted, into bins of which some get thousands of rows: one segment is cut into dozens of parts."""
    set_limits(kernels, kGroupRows=2, kSortSourceBytes=0)
    random = np.random.default_rng(width)
    bins, entries = 600, 9000 if width < 100 else 3000
    index = indices(distribution, entries, bins, random)
    self = Operand(dtype, [width, bins], [1, width], 0, random)
    source = Operand(dtype, [width, entries], [1, width], 0, random)
    taken = run_and_compare(kernels, self, source, 1, index, mode=DETERMINISTIC)
    assert taken.path == SORTED
    assert taken.scratch <= 40 * entries + (1 << 16)


@pytest.mark.parametrize("dtype, mode", [(TYPES[8], FAST), (TYPES[6], DETERMINISTIC), (TYPES[6], ACCURATE)], ids=str)
@pytest.mark.parametrize(
    "bins, entries, outer", [(8, 64, (2, 8, 4, 2, 4)), (8, 64, (8, 2, 2, 2, 2, 3)), (100, 900, (2, 3, 2, 2, 2))]
)
def test_more_outer_dimensions_than_a_launch_walks(kernels, dtype, mode, bins, entries, outer):
    """Cut into slices whose layout is the whole's, also where a slice without the innermost dimension would have another."""
    random = np.random.default_rng(entries)
    slices = []
    for limits in ({}, {"kMinBinValues": 0, "kSortSourceBytes": 0}):
        set_limits(kernels, **limits)
        for order in (range(len(outer)), [1, *reversed(range(2, len(outer))), 0], reversed(range(len(outer)))):
            # Self has the indexed dimension innermost; the source has it behind the first of `order`.
            self = Operand(dtype, [bins, *outer], np.cumprod([1, bins, *outer[:-1]]).tolist(), 0, random)
            first, *others = order
            strides, step = {first: 1}, outer[first]
            for d in (None, *others):
                strides[d] = step
                step *= entries if d is None else outer[d]
            source_strides = [strides[None], *(strides[d] for d in range(len(outer)))]
            source = Operand(dtype, [entries, *outer], source_strides, 0, random)
            taken = run_and_compare(kernels, self, source, 0, random.integers(0, bins, entries), mode=mode)
            slices.append(taken.slices)
            assert taken.scratch <= 40 * entries + (1 << 16)
    assert max(slices) > 1


def sort_and_compare(kernels, index, bins, sms=4, shared=227 << 10) -> int:
    """Returns the number of blocks that moved entries."""
    count = len(index)
    sorted_bins, positions = np.full(count, -1), np.full(count, -1)
    blocks = kernels.sort(
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
def test_sorting_a_tile(kernels, distribution, entries):
    """By one block, of one, two or four entries to a thread."""
    set_limits(kernels)
    index = indices(distribution, entries, 5000, np.random.default_rng(entries))
    assert sort_and_compare(kernels, index, 5000) == 1


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
def test_sorting_in_passes(kernels, distribution, entries, sms, blocks):
    """Tiles of one to eight entries a thread, several to a block, and blocks of one and two groups."""
    set_limits(kernels, kMaxTileEntries=0)
    index = indices(distribution, entries, 5000, np.random.default_rng(entries))
    assert sort_and_compare(kernels, index, 5000, sms=sms) == blocks


@pytest.mark.parametrize("sms", [2, 40])
@pytest.mark.parametrize("position", [1, 31, 32, 33, 1023, 1024, 1025, 8191, 8192, 8193, 10240, 16384, 19999])
def test_one_step_down_is_seen(kernels, position, sms):
    """Between lanes, warps, tiles and blocks: an index that ascends but for that must be sorted all the same."""
    set_limits(kernels, kMaxTileEntries=0)
    index = np.concatenate([2500 + np.arange(position) % 2500, np.zeros(20000 - position, np.int64)])
    index[:position].sort()
    assert (np.diff(index) < 0).sum() == 1
    sort_and_compare(kernels, index, 5000, sms=sms)


@pytest.mark.parametrize("tile_entries", [0, 1 << 12])
@pytest.mark.parametrize("bins", [1, 2, 512, 513, 300000, 2**31 + 5, 2**40, 2**60])
def test_sorting_by_few_and_many_digits(kernels, bins, tile_entries):
    set_limits(kernels, kMaxTileEntries=tile_entries)
    random = np.random.default_rng(5)
    index = random.integers(0, bins, (4096 if tile_entries else 9000) if bins < 2**50 else 16)
    index[::7] = bins - 1
    sort_and_compare(kernels, index, bins)
    if bins < 2**31:
        sort_and_compare(kernels, index.astype(np.int32)[::3], bins)
    # Where blocks have little shared memory, tiles are smaller.
    assert sort_and_compare(kernels, index, bins, shared=48 << 10) >= min(len(index) // 8192, 4)


def lines(kernels, dtype, outer, bins, index, random, offset=0, pitch=None, mode=FAST, sms=2, alpha=1):
    """The same index for each of `outer` rows, whose entries lie side by side."""
    entries = len(index)
    self = Operand(dtype, [bins, outer], [1, bins], 1, random)
    source = Operand(dtype, [entries, outer], [1, pitch or entries], offset, random)
    return run_and_compare(kernels, self, source, 0, index, alpha, mode, sms)


def index_at(index: np.ndarray, dtype, offset: int) -> np.ndarray:
    """A copy whose address is `offset` elements past a multiple of 16."""
    buffer = np.zeros(len(index) + 4 + offset, dtype)
    first = -buffer.ctypes.data % 16 // buffer.itemsize + offset
    copy = buffer[first : first + len(index)]
    copy[...] = index
    return copy


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("outer, bins, values, group", [(1, 1000, 4, 1), (3, 300, 4, 1), (9, 300, 1, 4), (17, 3, 1, 4)])
def test_few_bins(kernels, distribution, outer, bins, values, group):
    set_limits(kernels, kMinBinValues=0)
    random = np.random.default_rng(bins)
    index = index_at(indices(distribution, 20000 if outer == 1 else 4000, bins, random), np.int64, 0)
    for dtype in (TYPES[0], TYPES[6], TYPES[7], TYPES[5]):
        taken = lines(kernels, dtype, outer, bins, index, random)
        assert (taken.path, taken.values, taken.outer_group) == (BINS, values, group)
        assert (taken.splits > 1) == (outer == 1)


@pytest.mark.parametrize("bins", [2, 16, 300, 6000])
@pytest.mark.parametrize("entries", [36000, 36003])
@pytest.mark.parametrize("long", [True, False])
def test_few_bins_by_packs(kernels, bins, entries, long):
    """Entries that lie side by side, with some left over; rows or an index that are not aligned are read one by one."""
    set_limits(kernels)
    random = np.random.default_rng(entries)
    for number, dtype in enumerate(REAL):
        kind = DISTRIBUTIONS[(number + entries) % len(DISTRIBUTIONS)]
        index = indices(kind, entries, bins, random)
        for offset in (0, 1):
            plain = index_at(index, np.int64 if long else np.int32, offset)
            taken = lines(kernels, dtype, 1, bins, plain, random, alpha=1 if dtype.category == BOOL else -2)
            assert (taken.path, taken.values) == (BINS, 1 if offset else 4)
    assert lines(kernels, TYPES[7], 1, bins, index_at(index, np.int64, 0), random, offset=1).values == 1
    aligned = index_at(index, np.int64, 0)
    assert lines(kernels, TYPES[7], 2, bins, aligned, random, pitch=41000).values == 4
    assert lines(kernels, TYPES[7], 2, bins, aligned, random, pitch=41001).values == 1


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "outer, bins, entries",
    [(1, 900, 1500), (1, 1, 700), (3, 2, 700), (32, 11, 4000), (37, 300, 2049), (33, 3, 511), (1, 1100, 9001)],
)
def test_lines(kernels, distribution, outer, bins, entries):
    """As many outer indices to a block as there are blocks for, and one; with some left over; bits of none to three digits."""
    set_limits(kernels, kMinBinValues=0, kMinLines=32)
    random = np.random.default_rng(bins)
    index = indices(distribution, entries, bins, random)
    groups = set()
    for number, dtype in enumerate(REAL):
        mode = DETERMINISTIC if dtype.category == FLOAT else FAST
        for sms in (1, 64):
            offset, pitch = number % 2, entries + entries % 2
            taken = lines(
                kernels, dtype, outer, bins, index, random, offset, pitch, mode, sms, alpha=1 - number % 2 * 3
            )
            if outer < 32 and mode != DETERMINISTIC:
                assert taken.path != LINES
                continue
            assert (taken.path, taken.values) == (LINES, 1 if offset else 2)
            assert taken.outer_group == 1 or sms == 1
            groups.add(taken.outer_group)
    assert groups == ({1, 2, 4} if outer >= 4 else {1, 2} if outer >= 2 else {1})


def test_lines_do_not_depend_on_how_many_a_block_takes(kernels):
    """Sums that are rounded: in mode `deterministic` they are the same bits whatever the device."""
    set_limits(kernels, kMinBinValues=0)
    random = np.random.default_rng(0)
    entries, bins, outer = 5000, 70, 9
    index = random.integers(0, bins, entries)
    source = (random.standard_normal((outer, entries)) * 2.0 ** random.integers(-9, 9, (outer, entries))).astype(
        np.float32
    )
    found = []
    for sms in (1, 64):
        self = np.zeros((outer, bins), np.float32)
        taken = Taken()
        arrays = [(ctypes.c_int64 * 2)(*values) for values in ((bins, outer), (1, bins), (1, entries))]
        addresses = [ctypes.c_uint64(array.ctypes.data) for array in (self, source, index)]
        sizes, *strides = arrays
        rest = (ctypes.c_int64(1), 1, TYPES[7].number, DETERMINISTIC, ctypes.c_int64(1), sms, ctypes.byref(taken))
        kernels.run(2, 0, sizes, ctypes.c_int64(entries), *strides, *addresses, *rest)
        assert (taken.path, taken.outer_group) == (LINES, 2 if sms == 1 else 1)
        found.append(self)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "dtype, width, values",
    [(TYPES[6], 1, 1), (TYPES[6], 6, 2), (TYPES[7], 1, 1), (TYPES[7], 3, 1), (TYPES[5], 3, 1), (TYPES[1], 4, 4)],
)
def test_frequent_bins(kernels, distribution, dtype, width, values):
    set_limits(kernels, kMinHotValues=0)
    random = np.random.default_rng(width)
    bins, entries = 30000 // width, 5000
    index = indices(distribution, entries, bins, random)
    self = Operand(dtype, [width, bins], [1, width], 0, random)
    source = Operand(dtype, [width, entries], [1, width], 0, random)
    taken = run_and_compare(kernels, self, source, 1, index, sms=2)
    assert taken.path == ATOMIC and taken.values == values and taken.hot_bins > 0


def test_more_frequent_bins_than_there_is_room_for(kernels):
    set_limits(kernels, kMinHotValues=0)
    random = np.random.default_rng(0)
    bins, entries, width = 100, 5000, 12
    index = indices("uniform", entries, bins, random)
    self = Operand(TYPES[1], [width, bins], [1, width], 0, random)
    source = Operand(TYPES[1], [width, entries], [1, width], 0, random)
    assert run_and_compare(kernels, self, source, 1, index, sms=2).hot_bins < bins


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("sms", [1, 64])  # several units to a thread, and one
@pytest.mark.parametrize(
    "dtype, width, units",
    [
        (TYPES[6], 16, 2),
        (TYPES[6], 64, 8),
        (TYPES[6], 40, 5),
        (TYPES[6], 136, 9),  # two tiles side by side, of which the last has a unit less
        (TYPES[7], 8, 2),
        (TYPES[7], 132, 11),
        (TYPES[8], 4, 2),
        (TYPES[5], 6, 3),
        (TYPES[4], 64, 16),
        (TYPES[3], 16, 2),
    ],
)
def test_rows_of_a_bin_are_summed_by_tiles(kernels, distribution, sms, dtype, width, units):
    """The last tile in part; also of several outer indices."""
    set_limits(kernels)
    random = np.random.default_rng(width)
    bins, entries = 900, 1300
    index = indices(distribution, entries, bins, random)
    for outer in (1, 2):
        # Strides that make outer indices a dimension of their own.
        self = Operand(dtype, [width, outer, bins], [1, width, 4 * width], 0, random)
        source = Operand(dtype, [width, outer, entries], [1, width + 16, 4 * width + 32], 0, random)
        taken = run_and_compare(kernels, self, source, 2, index, alpha=-2, sms=sms)
        assert taken.path == ATOMIC and taken.values * self.buffer.itemsize == 16
        assert taken.tile_rows >= 256 // units if sms == 64 else taken.tile_rows == 1024 // units


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("width, path", [(16, "tiles"), (6, "frequent bins")])
def test_sums_that_float16_does_not_hold(kernels, sign, width, path):
    """Added one by one they stay in range: -60000 + 3 x 30000, which is added as 65504 and 24496."""
    set_limits(kernels, kMinHotValues=0)
    random = np.random.default_rng(0)
    bins, entries = 2000, 1300
    self = Operand(TYPES[6], [width, bins], [1, width], 0, random)
    source = Operand(TYPES[6], [width, entries], [1, width], 0, random)
    index = random.integers(0, bins - 1, entries)
    index[[5, 6, 9]] = bins - 1
    if path == "frequent bins":  # which a sample of 1024 must show
        index[:] = random.integers(0, bins - 1, entries)
        index[::2] = bins - 1
    for array in (source.buffer, source.before):
        source.view(array)[...] = -0.0
        source.view(array)[[5, 6, 9] if path == "tiles" else [0, 2, 4]] = 30000 * sign
    for array in (self.buffer, self.before):
        self.view(array)[bins - 1] = -60000 * sign
    taken = run_and_compare(kernels, self, source, 1, index, sms=1)
    assert (taken.tile_rows > 0) == (path == "tiles") and (taken.hot_bins > 0) == (path != "tiles")
