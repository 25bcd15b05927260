"""How sparse products are planned: what a thread reads at once, the windows of a matrix, and problems of any size."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace

import pytest

from tools import test_build

F16, F32, F64, I32, I64 = 6, 8, 9, 4, 5
SUM, MEAN, MAX, MIN, PROD, LOG_SUM = range(6)
COPY, SELECTED, SOFTMAX, SOFTMAX_GRADIENT = range(4)
VECTOR, SPREAD, SINGLE, TILE = range(4)
SIZE = {F16: 2, F32: 4, F64: 8, I32: 4, I64: 8}
DENSE, OUT, ARG, SELECTED_AT = (number << 44 for number in (1, 2, 3, 4))  # addresses
GRID = 2**31 - 1
NAMES = (
    "ptr index entry is_long rows columns entries reduce dtype batches features heads value dense dense_row dense_batch "
    "out out_row out_batch arg selected wide_out few"
)


class Given(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in NAMES.split()]


def given(rows=1000, entries=10000, features=32, *, columns=1000, dtype=F32, batches=1, pitch=0, **fields) -> Given:
    row = features + pitch
    fields = {"index": 64, "dense": DENSE, "out": OUT, "is_long": 1, "heads": 1} | fields
    return Given(
        ptr=64, rows=rows, columns=columns, entries=entries, dtype=dtype, batches=batches, features=features,
        dense_row=row, dense_batch=columns * row, out_row=row, out_batch=rows * row, **fields,
    )  # fmt: skip


@pytest.fixture(scope="module")
def planner():
    library = test_build.load("plan/spmm")
    for function in (library.refused, library.reduce, library.product, library.map):
        function.argtypes, function.restype = [ctypes.POINTER(Given)], ctypes.c_char_p
    return library


def read(text: bytes):
    return json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))


def elements(access: int, dtype: int) -> int:
    return {VECTOR: 16 // SIZE[dtype], SPREAD: 4, SINGLE: 1, TILE: 1}[access]


def check_launch(problem: Given, plan, features: int, dtype: int, outer: int) -> None:
    """Groups have all features and the whole matrix, and a grid has all groups."""
    lanes, path = plan.lanes, problem.rows + problem.entries
    if plan.access == TILE:
        assert (plan.windows - 1) * plan.window < path <= plan.windows * plan.window
        assert plan.window > 0 and plan.shape.use_pdl
        assert plan.shape.blocks == plan.windows <= GRID and plan.shape.threads == lanes == 128
        return
    assert lanes & (lanes - 1) == 0 and 1 <= lanes <= 32
    width = lanes * elements(plan.access, dtype)
    assert lanes == 1 or width < 2 * max(features, elements(plan.access, dtype))
    assert (plan.windows - 1) * plan.window < path <= plan.windows * plan.window < 2**31 * plan.windows
    assert (plan.blocks_per_tile - 1) * (128 // lanes) < plan.windows <= plan.blocks_per_tile * (128 // lanes)
    assert plan.shape.blocks == plan.blocks_per_tile * outer <= GRID and plan.shape.threads == 128


def check_tile(plan, of_row: int, of_entry: int, arrays: int) -> None:
    """The shared memory of a block holds any tile. It has two bounds more than rows, and every array is aligned."""
    for rows in {0, plan.window // 2, plan.window}:
        used = rows * of_row + (plan.window - rows) * of_entry
        assert used + 2 * of_row + arrays * 30 + 16 <= 16384


def check_reduce(planner, problem: Given):
    assert planner.refused(problem) == b""
    plans = read(planner.reduce(problem))
    assert sum(plan.batches for plan in plans) == problem.batches
    size, state, begin = SIZE[problem.dtype], max(SIZE[problem.dtype], 4), 0
    state = {MAX: 16, MIN: 16, LOG_SUM: 2 * state}.get(problem.reduce, state)
    number = 8 if problem.is_long else 4
    for plan in plans:
        width = plan.lanes * elements(plan.access, problem.dtype)
        assert (plan.tiles - 1) * width < problem.features <= plan.tiles * width
        if plan.access == TILE:
            of_entry = problem.features * size * (2 if problem.value else 1)
            check_tile(plan, 2, of_entry, 1 + bool(problem.value))
            assert plan.team * problem.features <= 32
        check_launch(problem, plan, problem.features, problem.dtype, plan.tiles * plan.batches)
        assert plan.dense == problem.dense + begin * problem.dense_batch * size
        assert plan.out == problem.out + begin * problem.out_batch * size
        assert (
            plan.arg == problem.arg
            and (not problem.arg or begin == 0)
            or (plan.arg == problem.arg + begin * problem.rows * problem.features * number)
        )
        assert not problem.selected or (
            plan.selected == problem.selected + begin * problem.columns * problem.features * number
        )
        begin += plan.batches
        if plan.blocks_per_tile == 1:  # no row crosses the border of a block
            assert plan.part_bytes == 0
            continue
        assert plan.part_bytes == 2 * plan.blocks_per_tile * plan.batches * problem.features * state
        assert (plan.finish_blocks - 1) * 8 < plan.blocks_per_tile <= plan.finish_blocks * 8
        assert (plan.finish_tiles - 1) * 128 < problem.features <= plan.finish_tiles * 128
        assert plan.finish.blocks == plan.finish_blocks * plan.finish_tiles * plan.batches <= GRID
    return plans


@pytest.mark.parametrize(
    "fields, access",
    [
        ({}, TILE),
        ({"features": 16}, TILE),
        ({"features": 17}, SINGLE),
        ({"features": 20}, VECTOR),
        ({"features": 32, "dtype": F16}, TILE),
        ({"features": 8, "dtype": F32, "wide_out": 1, "reduce": LOG_SUM}, SINGLE),
        ({"features": 7, "dtype": F16}, TILE),
        ({"features": 2, "dtype": F64, "wide_out": 1, "reduce": LOG_SUM}, TILE),
        ({"value": 64, "heads": 4}, TILE),
        ({"value": 64, "heads": 2}, SINGLE),
        ({"value": 64, "heads": 4, "reduce": MAX}, SINGLE),
        ({"value": 64, "heads": 4, "entry": 64}, TILE),
        ({"reduce": MAX, "arg": ARG, "entry": 64}, TILE),
        ({"index": 64}, VECTOR),
        ({"index": 64, "features": 1, "pitch": 3}, TILE),
        ({"index": 64, "features": 2}, SINGLE),
        ({"index": 64, "features": 1, "value": 64, "entry": 64}, TILE),
        ({"selected": SELECTED_AT}, SINGLE),
        ({"batches": 2}, VECTOR),
        ({"pitch": 1}, SINGLE),
    ],
)
def test_narrow_rows_are_read_in_tiles(planner, fields, access):
    fields = {"index": 0, "features": 4} | fields
    assert access_of(planner, **fields) == access
    if access == TILE:  # at any address
        assert access_of(planner, **fields, dense=DENSE + SIZE[fields.get("dtype", F32)]) == access


@pytest.mark.parametrize(
    "rows, entries, features, window, team",
    [
        (10, 5, 1, 512, 1),  # 2 KB
        (2**18, 2**20, 1, 2482, 1),  # enough tiles for 2112 warps
        (2**20, 2**24, 1, 4045, 2),  # 16 KB, and 8 entries for each thread
        (2**20, 2**24, 4, 1009, 2),
        (2**18, 2**24, 4, 1009, 8),  # all entries of a warp
        (2**18, 2**24, 3, 1346, 10),  # a warp has 10 entries, and two teams of 8 do not fit
        (10, 2**24, 2, 2021, 16),
    ],
)
def test_tiles_grow_with_the_matrix(planner, rows, entries, features, window, team):
    (plan,) = check_reduce(planner, given(rows, entries, features, index=0))
    assert (plan.window, plan.team) == (window, team)


def access_of(planner, **fields) -> int:
    return check_reduce(planner, given(**fields))[0].access


@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_vectors_need_aligned_rows(planner, dtype):
    """Of both operands, in every batch. A head is made of whole vectors."""
    vector = 16 // SIZE[dtype]
    fields = {"dtype": dtype, "features": 8 * vector, "batches": 2}
    assert access_of(planner, **fields) == VECTOR
    assert access_of(planner, **fields, pitch=vector) == VECTOR
    narrow = SINGLE if 8 * vector <= 32 else SPREAD
    assert access_of(planner, **fields, pitch=1) == narrow
    assert access_of(planner, **fields, dense=DENSE + SIZE[dtype]) == narrow
    assert access_of(planner, **fields, out=OUT + SIZE[dtype]) == narrow
    assert access_of(planner, **fields | {"features": 8 * vector + 1}) in (SINGLE, SPREAD)
    assert access_of(planner, **fields, value=64, heads=8) == VECTOR
    assert access_of(planner, **fields, value=64, heads=16) == narrow


def test_vectors_are_for_plain_reductions_of_floats(planner):
    for fields in ({"reduce": MAX, "arg": ARG}, {"dtype": F16, "wide_out": 1}):
        assert access_of(planner, features=32, **fields) == VECTOR
    for fields in ({"reduce": PROD}, {"dtype": I32}, {"selected": SELECTED_AT}):
        assert access_of(planner, features=32, **fields) == SINGLE
        assert access_of(planner, features=64, **fields) == SPREAD


@pytest.mark.parametrize("features, lanes, tiles", [(3, 4, 1), (8, 2, 1), (32, 8, 1), (128, 32, 1), (260, 32, 3)])
def test_groups_have_the_threads_that_features_need(planner, features, lanes, tiles):
    (plan,) = check_reduce(planner, given(features=features))
    assert (plan.lanes, plan.tiles) == (lanes, tiles)


@pytest.mark.parametrize(
    "rows, entries, features, window",
    [
        (10, 5, 128, 16),  # the shortest
        (10, 5, 32, 8),
        (100_000, 100_000, 128, 94),  # enough windows for 2112 warps
        (500_000, 1_500_000, 128, 128),
        (500_000, 1_500_000, 64, 64),
        (2_000_000, 60_000_000, 128, 611),  # 101376 warps
        (2_000_000, 60_000_000, 32, 152),  # with 4 groups each
        (2_000_000, 60_000_000, 3, 76),
    ],
)
def test_windows_grow_with_the_matrix(planner, rows, entries, features, window):
    (plan,) = check_reduce(planner, given(rows, entries, features))
    assert plan.window == window
    alike = check_reduce(planner, given(rows, entries, features, dense=DENSE + 64, out=OUT + 128))[0]
    assert alike.window == window  # roundings of sums depend on it


@pytest.mark.parametrize(
    "rows, entries, features, few, window, team",
    [
        (1000, 4000, 32, True, 7, 1),  # 128 blocks
        (100_000, 100_000, 1, True, 512, 1),
        (40_000, 400_000, 1, False, 0, 0),  # too many loads
        (400, 100_000, 1, True, 3, 32),  # a warp for each row
        (30, 30_000, 1, True, 1, 32),  # a block for each row
        (30, 100_000, 1, False, 0, 0),  # a block alone would have too many entries of a row
        (1000, 40_000, 32, False, 0, 0),
        (50_000, 100, 32, False, 0, 0),
    ],
)
def test_few_entries_take_one_launch(planner, rows, entries, features, few, window, team):
    for index in (0, 64):
        (plan,) = read(planner.reduce(given(rows, entries, features, index=index, few=1)))
        assert plan.is_few == few
        if few:
            assert (plan.window, plan.team, plan.part_bytes) == (window, team, 0)
            assert plan.lanes * team * window <= plan.shape.threads == 512
            assert plan.shape.blocks == (-(-rows // window) | 1) * plan.tiles
    assert not read(planner.reduce(given(1000, 4000, 32, few=1, selected=SELECTED_AT)))[0].is_few


def test_wide_problems_have_long_windows(planner):
    """Many tiles or batches fill the GPU, and parts would take much memory."""
    for problem in (given(2**20, 2**24, 2**16), given(2**20, 2**24, 64, batches=1000)):
        (plan,) = check_reduce(planner, problem)
        assert plan.part_bytes <= 2**29
        assert 2000 < plan.windows * plan.tiles * plan.batches * plan.lanes / 32 < 270_000


@pytest.mark.parametrize("dtype", [F16, F64])
@pytest.mark.parametrize("reduce", [SUM, MAX])
@pytest.mark.parametrize(
    "rows, entries, features, batches",
    [
        (2**33, 2**33, 1, 1),
        (2**33, 2**34, 40, 1),
        (2**34, 5, 300, 1),
        (1, 2**33, 1, 1),
        (3, 7, 2**31 - 1, 1),
        (2**20, 2**20, 2**20, 3),
        (2**20, 2**22, 32, 2**21),
        (5, 9, 1, 2**33 + 5),
        (5, 9, 70, 2**30 + 1),
    ],
)
def test_huge_problems(planner, dtype, reduce, rows, entries, features, batches):
    arg = ARG if reduce == MAX else 0
    check_reduce(planner, given(rows, entries, features, dtype=dtype, reduce=reduce, batches=batches, arg=arg))


def test_batches_are_split(planner):
    plans = check_reduce(planner, given(5, 9, 33, batches=2**30, columns=7, selected=SELECTED_AT, is_long=0))
    assert [plan.batches for plan in plans] == [2**29, 2**29]
    assert len(check_reduce(planner, given(5, 9, 32, batches=2**30))) == 1


@pytest.mark.parametrize(
    "fields, why",
    [
        ({"columns": 2**32 + 1}, "at most 2^32 columns"),
        ({"columns": 2**32}, ""),
        ({"columns": 2**32 + 1, "index": 0}, ""),
        ({"entries": 2**32 + 1}, ""),
        ({"entries": 2**32 + 1, "entry": 64}, "at most 2^32 entries"),
        ({"rows": 2**31, "is_long": 0}, "fewer than 2^31 rows with int32"),
        ({"rows": 2**31}, ""),
        ({"features": 2**31}, "fewer than 2^31 features"),
    ],
)
def test_problems_that_32_bits_cannot_count_are_refused(planner, fields, why):
    assert planner.refused(given(**fields)).decode() == why


@pytest.mark.parametrize(
    "dtype, heads, width, access, tiles",
    [
        (F32, 1, 64, VECTOR, 1),
        (F32, 4, 6, SINGLE, 4),
        (F16, 8, 16, VECTOR, 1),
        (F32, 9, 16, VECTOR, 2),
        (F16, 8, 4, SINGLE, 8),
    ],
)
def test_products(planner, dtype, heads, width, access, tiles):
    """A tile is a head, or the heads whose vectors fill a warp."""
    for rows, entries in ((1000, 10000), (2**33, 2**32 - 1)):
        problem = given(rows, entries, heads * width, heads=heads, dtype=dtype)
        plan = read(planner.product(problem))
        assert (plan.access, plan.tiles) == (access, tiles)
        check_launch(problem, plan, -(-heads // tiles) * width, dtype, tiles)


def test_products_of_many_heads(planner):
    problem = given(1000, 2**32 - 1, 2**31 - 1, heads=2**31 - 1)
    check_launch(problem, read(planner.product(problem)), 1, F32, 2**31 - 1)


@pytest.mark.parametrize(
    "dtype, features, offset, access, unit, units",
    [
        (F16, 8, 0, TILE, 8, 2),
        (F16, 4, 0, TILE, 8, 1),
        (F16, 6, 0, TILE, 4, 3),
        (F16, 31, 0, TILE, 2, 31),
        (F16, 32, 0, VECTOR, 8, 8),
        (F16, 33, 0, SPREAD, 2, 33),
        (F32, 20, 4, SINGLE, 4, 20),
        (F32, 100, 4, SPREAD, 4, 100),
        (F32, 100, 8, SPREAD, 8, 50),
        (F32, 100, 0, VECTOR, 8, 50),
        (F64, 3, 0, TILE, 8, 3),
    ],
)
def test_copies_move_the_largest_units(planner, dtype, features, offset, access, unit, units):
    problem = given(dtype=dtype, features=features, dense=DENSE + offset, reduce=COPY)
    plan = read(planner.map(problem))
    assert plan.access == access and plan.features == units
    assert {8: I64, 4: I32, 2: 3}[unit] == plan.dtype
    check_launch(problem, plan, units, F64 if unit == 8 else F32, plan.tiles)
    if access == TILE:
        check_tile(plan, 2 + units * unit, 2, 2)
    assert plan.statistics is None


def test_copies_of_rows_with_gaps_are_no_tiles(planner):
    assert read(planner.map(given(features=3, pitch=1, reduce=COPY))).access == SINGLE
    assert read(planner.map(given(features=3, pitch=1, reduce=SELECTED))).access == SINGLE


@pytest.mark.parametrize("kind", [SOFTMAX, SOFTMAX_GRADIENT])
def test_softmax_has_statistics_of_rows(planner, kind):
    """Sums of softmax are read in tiles up to 16 bytes, sums of its gradient up to 64, and the map up to 63."""
    for entries, features in ((10000, 4), (10000, 8), (2**34, 100)):
        problem = given(1000, entries, features, reduce=kind)
        plan = read(planner.map(problem))
        check_launch(problem, plan, features, F32, plan.tiles)
        state = 8 if kind == SOFTMAX else 4
        assert (plan.access == TILE) == (features <= 8)
        if plan.access == TILE:
            check_tile(plan, 2 + features * state, 2 + features * (4 if kind == SOFTMAX else 8), 4)
        assert plan.statistics.part_bytes == 2 * plan.statistics.blocks_per_tile * features * state
        assert (plan.statistics.access == TILE) == (features <= (4 if kind == SOFTMAX else 8))
