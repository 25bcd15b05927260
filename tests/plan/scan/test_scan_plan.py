"""The planner of scans, tested without a GPU: the assumptions of the kernels hold for tensors of any size.

tests/emulation runs the kernels and shows that they read every value once and write every result once.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ...support.seeded import seeded
from .scan_problem import ALONE, COLUMNS, PACKED, ROWS, SPLIT_COLUMNS, SPLIT_ROWS, Given

UINT8, INT64, FLOAT16, FLOAT32, COMPLEX128 = 1, 5, 6, 8, 12
ITEM = {UINT8: 1, INT64: 8, FLOAT16: 2, FLOAT32: 4, COMPLEX128: 16}
BASE = 1 << 20
LIMIT = 2**31 - 1
MAX_WARPS, MOST_DIMS, CLUSTER_TILES = 8, 6, 8


@pytest.fixture(scope="session")
def planner():
    found = load("plan/scan")
    found.plans.restype = ctypes.c_char_p
    return found


def plans(planner, given: Given, limit: int = LIMIT, clusters: bool = False) -> list[dict]:
    """The plans of all launches."""
    return json.loads(planner.plans(ctypes.byref(given), ctypes.c_int64(limit), ctypes.c_int64(clusters)))


class Problem:
    """A scan, with the innermost dimension first. Results are dense unless strides are given."""

    def __init__(self, sizes, strides, scanned, dtypes=(FLOAT32, FLOAT32), offsets=(0, 0), out_strides=None):
        self.sizes, self.strides, self.scanned, self.dtypes = sizes, strides, scanned, dtypes
        self.out_strides = out_strides or [math.prod(sizes[:d]) for d in range(len(sizes))]
        self.addresses = [BASE + offset * ITEM[dtype] for offset, dtype in zip(offsets, dtypes)]

    @property
    def values(self) -> int:
        return 16 // max(ITEM[dtype] for dtype in self.dtypes)

    def given(self) -> Given:
        array = ctypes.c_int64 * max(len(self.sizes), 1)
        return Given(
            len(self.sizes),
            array(*self.sizes),
            array(*self.strides),
            array(*self.out_strides),
            self.scanned,
            0,
            0,
            *self.addresses,
            *self.dtypes,
        )

    def positions(self) -> list[int]:
        """The addresses of all results."""
        return addresses(self.addresses[1], zip(self.sizes, self.out_strides), ITEM[self.dtypes[1]])


def addresses(first: int, dims, item: int) -> list[int]:
    steps = [range(0, size * stride * item, stride * item) for size, stride in dims]
    return [first + sum(offsets) for offsets in itertools.product(*steps)]


def columns_of(plan: dict) -> list[tuple[int, int]]:
    """The dimensions of columns, with the strides of their results."""
    if plan["shared_tiles"]:
        return list(zip(plan["column_sizes"], plan["tensors"][1]["strides"][1:]))
    return [(plan["columns"], plan["out_column_stride"])]


def written(plan: dict, item: int) -> list[int]:
    """The addresses of all results of a launch."""
    dims = zip(plan["outer"]["sizes"], plan["outer"]["out_strides"])
    own = ((plan["length"], plan["out_stride"]), *columns_of(plan))
    return addresses(plan["out"], (*dims, *(dim for dim in own if dim[0] > 1)), item)


def covers(parts: int, of: int, whole: int) -> bool:
    """Whether `parts` parts of `of` elements hold `whole` elements, and no part is empty."""
    return (parts - 1) * of < whole <= parts * of


def check_tiles(problem: Problem, plan: dict, tile_rows: int) -> None:
    """Tiles cover all columns. Each value of a tile has a position of its own, and vectors lie as they do in memory."""
    sizes, widths = plan["column_sizes"], plan["widths"]
    counts = [-(-size // width) for size, width in zip(sizes, widths)]
    assert math.prod(widths) == plan["x"] and math.prod(counts) == plan["column_tiles"]
    extents = [min(tile_rows, plan["length"]), *map(min, sizes, widths)]
    total = 0
    for tensor, dtype, address in zip(plan["tensors"], problem.dtypes, (plan["in"], plan["out"])):
        item, values = ITEM[dtype], 16 // ITEM[dtype] if tensor["in_vecs"] else 1
        dims = sorted((step, n) for step, n in zip(tensor["steps"], extents) if n > 1)
        end = 1
        for step, n in dims:
            assert step >= end
            end += step * (n - 1)
        for step, stride, n in zip(tensor["steps"], tensor["strides"], extents):
            assert n == 1 or not tensor["in_vecs"] or (step - stride) % values == 0
        assert tensor["bytes"] % 16 == 0 and tensor["bytes"] >= item * (end + (values - 1 if values > 1 else 0))
        if tensor["reads_vecs"]:
            assert tensor["strides"][0] == 1 and address % 16 == 0
            assert plan["length"] % values == 0 and plan["units"] % values == 0
        total += tensor["bytes"]
    assert plan["shared_bytes"] >= total and plan["shared_bytes"] <= 200 << 10


def check(problem: Problem, plan: dict, limit: int = LIMIT) -> None:
    length, values, units, tiles = (plan[name] for name in ("length", "values", "units", "tiles"))
    rows, blocks, x = (plan[name] for name in ("rows", "blocks", "x"))
    columns = math.prod(size for size, _ in columns_of(plan))
    assert length == (problem.sizes[problem.scanned] if problem.sizes else 1)
    assert math.prod(plan["outer"]["sizes"]) == rows
    assert values in (1, problem.values) and plan["threads"] in range(32, 32 * MAX_WARPS + 1, 32)
    warps = plan["threads"] // 32
    assert max(blocks, rows, plan["column_tiles"] * x) <= limit and len(plan["outer"]["sizes"]) <= MOST_DIMS
    if values > 1:
        offsets = [plan[name] // ITEM[dtype] % values for name, dtype in zip(("in", "out"), problem.dtypes)]
        assert plan["skewed"] or (offsets[0] == offsets[1] and (plan["shifted"] or offsets[0] == 0))
    chunk = 32 * units * values
    runs, groups = -(-tiles // 16), -(-tiles // 256)
    assert plan["slots"] == tiles + runs + groups
    if plan["path"] in (SPLIT_ROWS, SPLIT_COLUMNS) and plan["cluster"] == 1:
        width = x * values if plan["path"] == SPLIT_COLUMNS else 1
        per_result = 2 if problem.dtypes[1] == COMPLEX128 else 1
        assert plan["records"] == rows * plan["column_tiles"] * width * plan["slots"] * per_result
    else:
        assert plan["records"] == 0
    if plan["cluster"] > 1:
        assert plan["path"] == SPLIT_ROWS and plan["cluster"] == tiles <= CLUSTER_TILES
    if plan["path"] == PACKED:
        own = plan["chunk_rows"] * length
        assert columns == 1 and own <= chunk
        assert covers(blocks, warps, -(-rows // plan["chunk_rows"]))
        if plan["dense"]:
            assert values > 1 and (own % values == 0 or own + values - 1 <= chunk)
            assert (plan["packing"] < 2) == (own % values == 0)
        elif values > 1:
            assert length % values == 0
        assert (plan["packing"] == 0) == (length % values == 0)
    elif plan["path"] in (ROWS, SPLIT_ROWS):
        covered = length + (values - 1 if plan["shifted"] else 0)
        assert columns == 1 and covers(tiles, chunk * warps, covered)
        assert length > (256 if plan["shifted"] else chunk)
        assert plan["shifted"] or length % values == 0
        assert blocks == rows * (tiles if plan["path"] == SPLIT_ROWS else 1)
    elif plan["path"] == ALONE:
        assert values == 1 and columns == 1 and covers(blocks, plan["threads"], rows) and plan["threads"] == 256
        assert plan["shared_bytes"] == 0 and plan["units"] == (4 if length <= 28 else 16)
    else:
        # The threads of a column exchange their totals within a warp, unless one has the whole column.
        side_by_side = plan["shared_tiles"] or length <= units
        assert x & (x - 1) == 0 and x <= (plan["threads"] if side_by_side else 32)
        if plan["shared_tiles"]:
            assert values == 1
            check_tiles(problem, plan, 32 * warps // x * units)
        else:
            assert covers(plan["column_tiles"], x * values, columns)
        assert columns % values == 0
        assert covers(tiles, 32 * warps // x * units, length)
        assert blocks == rows * plan["column_tiles"] * (tiles if plan["path"] == SPLIT_COLUMNS else 1)


SIZES = [1, 2, 3, 4, 7, 8, 12, 16, 31, 33, 64, 100, 128, 257, 1000, 1024, 4095, 2**15, 2**17 + 1, 2**20, 2**31 + 5]


@st.composite
def problems(draw, sizes=SIZES, most_dims=7, most_values=2**36):
    shape = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=most_dims))
    while math.prod(shape) > most_values:
        shape.pop()
    shape = shape or [1]

    def strides():
        found, step = [0] * len(shape), draw(st.sampled_from([1, 1, 1, 2]))
        order = range(len(shape)) if draw(st.booleans()) else draw(st.permutations(range(len(shape))))
        for d in order:
            found[d] = step
            step = step * shape[d] + draw(st.sampled_from([0, 0, 0, 0, 1, 8]))
        return found

    given_strides = strides()
    if draw(st.integers(0, 3)) == 0:
        given_strides = [0 if draw(st.booleans()) else s for s in given_strides]
    dtypes = draw(st.sampled_from([(FLOAT32, FLOAT32), (FLOAT16, FLOAT16), (UINT8, INT64), (COMPLEX128, COMPLEX128)]))
    offsets = (draw(st.sampled_from([0, 0, 0, 1, 3])), draw(st.sampled_from([0, 0, 1])))
    out_strides = strides() if draw(st.booleans()) else None
    return Problem(shape, given_strides, draw(st.integers(0, len(shape) - 1)), dtypes, offsets, out_strides)


def test_any_launch_is_valid(planner):
    taken = set()

    @seeded(1500)
    @given(problem=problems(), clusters=st.booleans())
    def check_one(problem, clusters):
        found = plans(planner, problem.given(), clusters=clusters)
        counts = (math.prod(size for size, _ in columns_of(p)) for p in found)
        assert sum(p["rows"] * n * p["length"] for p, n in zip(found, counts)) == math.prod(problem.sizes)
        for plan in found:
            check(problem, plan)
            taken.add((plan["path"], plan["values"] > 1))

    check_one()
    assert taken == {(path, vecs) for path in range(5) for vecs in (False, True)} | {(ALONE, False)}


@seeded(150)
@given(problem=problems(sizes=[1, 2, 3, 5, 17, 40], most_dims=4, most_values=3000), limit=st.sampled_from([8, 40, 200]))
def test_problems_beyond_the_limit_are_split_into_parts_that_fit(planner, problem, limit):
    """Tested with a limit that small problems exceed. The parts have separate results, and together all of them."""
    parts = plans(planner, problem.given(), limit)
    item = ITEM[problem.dtypes[1]]
    assert sorted(a for part in parts for a in written(part, item)) == sorted(problem.positions())
    for part in parts:
        check(problem, part, limit)


@pytest.mark.parametrize(
    "sizes, scanned, dtype, path",
    [
        ([2**28], 0, FLOAT32, SPLIT_ROWS),
        ([32, 2**20], 0, FLOAT32, PACKED),
        ([33, 10**6], 0, FLOAT16, PACKED),
        ([1024, 32768], 0, FLOAT32, ROWS),
        ([1024, 32768], 0, FLOAT16, PACKED),
        ([262144, 128], 0, FLOAT32, SPLIT_ROWS),
        ([2**20, 32], 1, FLOAT32, COLUMNS),
        ([8192, 8192], 1, FLOAT16, COLUMNS),
        ([1024, 32768], 1, FLOAT16, SPLIT_COLUMNS),
        ([32, 2**20], 1, FLOAT32, SPLIT_COLUMNS),
        ([1024, 4096, 16], 1, FLOAT32, COLUMNS),
        ([2**12], 0, FLOAT32, ROWS),
        ([2**13], 0, FLOAT32, SPLIT_ROWS),
    ],
)
def test_common_shapes_take_their_paths_in_vecs(planner, sizes, scanned, dtype, path):
    strides = [math.prod(sizes[:d]) for d in range(len(sizes))]
    (plan,) = plans(planner, Problem(sizes, strides, scanned, (dtype, dtype)).given())
    assert plan["path"] == path and plan["values"] == 16 // ITEM[dtype]


@pytest.mark.parametrize(
    "sizes, dtypes, order, shared",
    [
        ([33, 1641], (FLOAT16, FLOAT16), [0, 1], False),  # small
        ([155, 11160], (FLOAT16, FLOAT16), [0, 1], False),
        ([3, 2_000_000], (FLOAT16, FLOAT16), [0, 1], False),
        ([250, 17000, 1], (FLOAT16, FLOAT16), [0, 1, 2], False),
        ([250, 17000, 1], (FLOAT16, FLOAT32), [0, 1, 2], False),
        ([250, 17000, 1], (FLOAT32, FLOAT32), [0, 1, 2], False),
        ([19, 500_000], (UINT8, INT64), [0, 1], False),
        ([96 * 96, 61, 64], (FLOAT32, FLOAT32), [1, 0, 2], True),  # channels-last
        ([32, 33], (FLOAT32, FLOAT32), [1, 0], True),
    ],
)
def test_blocks_copy_tiles_together(planner, sizes, dtypes, order, shared):
    """If input and result lie in another order."""
    strides = [math.prod(sizes[k] for k in order[: order.index(d)]) for d in range(len(sizes))]
    dense = [math.prod(sizes[:d]) for d in range(len(sizes))]
    problem = Problem(sizes, strides, 1, dtypes, out_strides=dense)
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert plan["shared_tiles"] == shared and plan["path"] in (COLUMNS, SPLIT_COLUMNS)


@pytest.mark.parametrize(
    "sizes, dtype, x, units, values",
    [
        ([64132, 2, 144], FLOAT32, 256, 4, 4),
        ([4096, 8, 100], FLOAT32, 128, 8, 4),  # more blocks
        ([4096, 9, 100], FLOAT32, 32, 8, 4),
        ([100, 8, 4096], FLOAT32, 32, 8, 4),  # no more than there are
    ],
)
def test_short_columns_lie_side_by_side_in_all_warps_of_a_block(planner, sizes, dtype, x, units, values):
    problem = Problem(sizes, [math.prod(sizes[:d]) for d in range(3)], 1, (dtype, dtype))
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert (plan["x"], plan["units"], plan["values"]) == (x, units, values) and not plan["shared_tiles"]


@pytest.mark.parametrize(
    "sizes, dtypes, path",
    [
        ([3259, 4, 1420], (FLOAT16, FLOAT16), ALONE),
        ([64133, 2, 144], (FLOAT32, FLOAT32), ALONE),
        ([308294, 192, 1], (FLOAT16, FLOAT16), ALONE),
        ([63, 16, 270], (UINT8, INT64), ALONE),
        ([308288, 192, 1], (FLOAT16, FLOAT16), COLUMNS),  # in vectors
        ([20001, 64, 1], (FLOAT16, FLOAT16), COLUMNS),  # too few for so many rows
        ([12, 54, 208], (COMPLEX128, COMPLEX128), COLUMNS),
    ],
)
def test_threads_scan_many_columns_alone_that_no_vectors_fit(planner, sizes, dtypes, path):
    problem = Problem(sizes, [math.prod(sizes[:d]) for d in range(3)], 1, dtypes)
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert plan["path"] == path


@pytest.mark.parametrize("offsets, gap", [((1, 0), 0), ((0, 0), 1), ((3, 1), 3)], ids=str)
def test_vectors_of_rows_need_not_be_aligned(planner, offsets, gap):
    for dtypes in ((FLOAT16, FLOAT16), (FLOAT32, FLOAT32), (UINT8, INT64)):
        problem = Problem([5100, 1000], [1, 5100 + gap], 0, dtypes, offsets)
        (plan,) = plans(planner, problem.given())
        check(problem, plan)
        assert plan["skewed"] and plan["values"] == problem.values


@pytest.mark.parametrize(
    "length, rows, in_vectors", [(6277, 264, True), (6277, 263, False), (500, 4096, False), (1000, 4096, True)]
)
def test_skewed_rows_are_read_in_vectors_if_they_are_long_and_many(planner, length, rows, in_vectors):
    for dtype in (FLOAT16, FLOAT32):
        problem = Problem([length, rows], [1, length], 0, (dtype, dtype), (1, 0))
        (plan,) = plans(planner, problem.given())
        check(problem, plan)
        assert plan["skewed"] == in_vectors and plan["values"] == (problem.values if in_vectors else 1)


@pytest.mark.parametrize("values, units", [(1 << 20, 4), (2_354_837, 8), (6_000_000, 16), (1 << 24, 16)])
def test_tiles_of_split_rows_grow_while_two_are_left_for_each_sm(planner, values, units):
    problem = Problem([values], [1], 0, (FLOAT32, FLOAT32))
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert (plan["path"], plan["units"]) == (SPLIT_ROWS, units)


@pytest.mark.parametrize("rows, path", [(263, SPLIT_ROWS), (264, ROWS)])
def test_rows_are_split_if_an_sm_has_less_than_two(planner, rows, path):
    problem = Problem([20_000, rows], [1, 20_000], 0, (FLOAT32, FLOAT32))
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert plan["path"] == path


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32, INT64])
def test_columns_are_narrowed_to_four_vectors(planner, dtype):
    columns = 8 * 16 // ITEM[dtype]  # 8 vectors
    problem = Problem([columns, 10**5], [1, columns], 1, (dtype, dtype))
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert (plan["path"], plan["x"]) == (SPLIT_COLUMNS, 4)


def test_columns_of_single_values_are_narrowed_to_eight(planner):
    problem = Problem([63, 10**5], [1, 63], 1, (FLOAT32, FLOAT32))
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert (plan["path"], plan["values"], plan["x"]) == (SPLIT_COLUMNS, 1, 8)


@pytest.mark.parametrize("rows, path, shared", [(60_000, COLUMNS, True), (100, ROWS, False)])
def test_skewed_rows_of_a_few_hundred_values(planner, rows, path, shared):
    """Many are columns that lie across memory. Few are read value by value."""
    problem = Problem([300, rows], [1, 300], 0, (FLOAT32, FLOAT32), (1, 0))
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert (plan["path"], plan["shared_tiles"], plan["values"]) == (path, shared, 1)


@pytest.mark.parametrize("rows, x, units", [(248, 4, 16), (10**6, 256, 96)])
def test_short_rows_that_no_vectors_fit(planner, rows, x, units):
    """Few rows are shared among many blocks and threads. Otherwise a thread has a whole row."""
    problem = Problem([84, rows], [1, 84], 0, (FLOAT16, FLOAT16), offsets=(1, 0))
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert (plan["shared_tiles"], plan["x"], plan["units"]) == (True, x, units)


def test_columns_that_are_innermost_in_the_input_alone(planner):
    """Channels-last images along their last dimension. The result is contiguous, so single values would lie far apart in it."""
    channels, side, images = 64, 96, 60
    sizes, strides = [channels, side, side, images], [1, channels, channels * side, channels * side**2]
    out_strides = [side**2, 1, side, channels * side**2]
    problem = Problem(sizes, strides, 1, (FLOAT32, FLOAT32), out_strides=out_strides)
    (plan,) = plans(planner, problem.given())
    check(problem, plan)
    assert plan["shared_tiles"]


@pytest.mark.parametrize(
    "sizes, tiles",
    [([2**14], 4), ([2**15], 8), ([2**16], 1), ([2**14, 131], 4), ([2**14, 132], 2), ([2**16, 133], 1)],
    ids=str,
)
def test_few_tiles_form_clusters(planner, sizes, tiles):
    """Up to 8 tiles of a row and 528 blocks. Without clusters, look-back connects the blocks."""
    problem = Problem(sizes, [math.prod(sizes[:d]) for d in range(len(sizes))], 0)
    for clusters in (False, True):
        (plan,) = plans(planner, problem.given(), clusters=clusters)
        check(problem, plan)
        assert plan["path"] == SPLIT_ROWS and plan["cluster"] == (tiles if clusters else 1)
