"""The reduction planner, tested without a GPU: the assumptions of the kernels hold for tensors of any size.

tests/emulation runs the kernels and shows that they read every value once and write every output once.
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

BOOL, UINT8, INT64, FLOAT16, FLOAT32, FLOAT64, COMPLEX128 = 0, 1, 5, 6, 8, 9, 12
ITEM = {BOOL: 1, UINT8: 1, INT64: 8, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, COMPLEX128: 16}
# The dtype of results for which kernels are compiled, and one for which they read any type. Complex128 is always read so.
NATIVE = {UINT8: INT64, FLOAT16: FLOAT16, FLOAT32: FLOAT32, FLOAT64: FLOAT64, COMPLEX128: COMPLEX128}
ANY = {UINT8: BOOL, FLOAT16: FLOAT64, FLOAT32: FLOAT16, FLOAT64: FLOAT32, COMPLEX128: COMPLEX128}
ACCUMULATOR = {BOOL: 8, INT64: 8, FLOAT16: 4, FLOAT32: 4, FLOAT64: 8, COMPLEX128: 16}
BASE = 1 << 20
LIMIT = 2**31 - 1
THREADS, VECS_IN_FLIGHT, MOST_DIMS, SHARED = 256, 4, 6, 48 << 10


@pytest.fixture(scope="session")
def planner():
    library = load("plan/reduce")
    library.plan.restype = ctypes.c_char_p
    library.slices.restype = ctypes.c_int64
    return library


class Problem:
    """A sum, with the innermost dimension first. Outputs are dense."""

    def __init__(self, sizes, strides, reduced, dtype=FLOAT32, offset=0, native=True, out_offset=0):
        self.sizes, self.strides, self.reduced, self.dtype, self.native = sizes, strides, reduced, dtype, native
        self.out_dtype = (NATIVE if native else ANY)[dtype]
        self.out_strides, step = [], 1
        for size, gone in zip(sizes, reduced):
            self.out_strides.append(0 if gone else step)
            step *= 1 if gone else size
        self.addresses = [BASE + offset * ITEM[dtype], BASE + out_offset * ITEM[self.out_dtype]]

    def count(self, reduced: bool) -> int:
        return math.prod(n for n, gone in zip(self.sizes, self.reduced) if gone == reduced)

    def arguments(self):
        def array(kind, values):
            return (kind * max(len(values), 1))(*values)

        return (
            len(self.sizes),
            array(ctypes.c_int64, self.sizes),
            array(ctypes.c_int64, self.strides),
            array(ctypes.c_int64, self.out_strides),
            array(ctypes.c_int, self.reduced),
            *(ctypes.c_uint64(a) for a in self.addresses),
            self.dtype,
            self.out_dtype,
        )

    def plan(self, planner, sms=132, limit=LIMIT) -> dict:
        return json.loads(planner.plan(*self.arguments(), sms, ctypes.c_int64(limit)))


def positions(start: int, item: int, *dims) -> list[int]:
    """The addresses of all elements. Each of `dims` has sizes and strides."""
    steps = [
        range(0, size * stride * item, stride * item) if stride else [0] * size
        for s in dims
        for size, stride in zip(*s)
    ]
    return sorted(start + sum(offsets) for offsets in itertools.product(*steps))


def reads(launch: dict, problem: Problem) -> list[int]:
    """The addresses of the values that a launch reads."""
    if launch["path"] == "line":
        row = launch["units"] * (16 // ITEM[problem.dtype])
        dims = [([launch["outputs"], row], [launch["row_stride"], 1])]
    else:
        dims = [(launch[kind]["sizes"], launch[kind]["in_strides"]) for kind in ("kept", "reduced")]
    return positions(launch["in"], ITEM[problem.dtype], *dims)


def writes(launch: dict, problem: Problem) -> list[int]:
    """The addresses of the outputs that a launch writes."""
    if launch["path"] == "line":
        dims = ([launch["outputs"]], [1])
    else:
        dims = (launch["kept"]["sizes"], launch["kept"]["out_strides"])
    return positions(launch["out"], ITEM[problem.out_dtype], dims)


def covers(parts: int, of: int, whole: int) -> bool:
    """Whether `parts` parts of `of` elements hold `whole` elements, and no part is empty."""
    return (parts - 1) * of < whole <= parts * of


def check(problem: Problem, plan: dict, limit: int = LIMIT) -> None:
    """Launches read as many values as the problem has. Partial results have slots of their own."""
    values = outputs = slot = 0
    for launch in plan["launches"]:
        if launch["path"] == "finish":
            assert slot == launch["slots"] > 0
            assert plan["workspace_bytes"] >= slot * launch["outputs"] * ACCUMULATOR[problem.out_dtype]
            slot = 0
        else:
            check_launch(problem, launch, limit)
            values += launch["outputs"] * reduced_by(launch, problem)
            assert launch["first_slot"] == slot
            slot += launch["splits"] if launch["to_workspace"] else 0
            assert launch["to_workspace"] or launch["splits"] == 1
        if not launch["to_workspace"] or launch["path"] == "finish":
            outputs += launch["outputs"]
    assert values == math.prod(problem.sizes) and outputs == problem.count(reduced=False) and slot == 0
    assert plan["native"] == (problem.native and problem.dtype != COMPLEX128)


def reduced_by(launch: dict, problem: Problem) -> int:
    if launch["path"] == "line":
        return launch["units"] * (16 // ITEM[problem.dtype])
    apart = launch["apart"] if launch["path"] == "rows" else 1
    assert (launch["row_size"] - 1) % apart == 0
    return launch["outer_units"] * ((launch["row_size"] - 1) // apart + 1)


def check_launch(problem: Problem, launch: dict, limit: int) -> None:
    path, splits, shared = launch["path"], launch["splits"], launch["shared_bytes"]
    vecs, aligned = launch["vecs"], launch["vecs"] and not launch["unaligned"]
    values, item = 16 // ITEM[problem.dtype], ITEM[problem.dtype]
    blocks, outputs, units = launch["blocks"], launch["outputs"], launch["units"]
    assert 1 <= launch["threads"] <= THREADS and shared <= SHARED
    assert 1 <= outputs <= limit and 1 <= splits <= blocks <= limit and blocks % splits == 0
    tiles = blocks // splits
    if vecs or path in ("rows_in_vecs", "tile"):
        assert problem.native and values > 1
    if aligned or path == "rows_in_vecs":
        assert launch["in"] % 16 == 0
    if path == "line":
        assert launch["threads"] == THREADS and aligned and tiles == outputs
        assert splits == 1 or (splits - 1) * THREADS * VECS_IN_FLIGHT < units
        return
    x, y, z, row = launch["x"], launch["y"], launch["z"], launch["row_size"]
    assert launch["threads"] == x * y * z
    assert max(len(launch[kind]["sizes"]) for kind in ("kept", "reduced")) <= MOST_DIMS
    inner_units = units // launch["outer_units"]
    assert units <= limit or vecs and launch["outer_units"] == 1
    if splits > 1:  # every split has units and its own blocks
        assert z == 1 and (splits - 1) * y * (VECS_IN_FLIGHT if vecs else 1) < units

    if path == "columns":
        columns, fold, overlap = launch["columns"], launch["fold"], launch["overlap"]
        spread = 4 if item < 8 else 2
        of_thread = values if vecs else spread if launch["spread"] else 1
        assert launch["apart"] == 1 and (overlap == 0 or launch["shifted"])
        assert not (launch["spread"] and vecs) and (problem.native or of_thread == 1)
        assert covers(launch["column_tiles"], (x - overlap) * of_thread, fold * columns)
        assert tiles % launch["column_tiles"] == 0 and covers(tiles // launch["column_tiles"], z, outputs // columns)
        assert shared >= x * y * z * of_thread * ACCUMULATOR[problem.out_dtype]
        if fold > 1:  # whole vectors, wherever columns begin in them
            assert x * values == fold * columns and launch["column_tiles"] == 1
            assert inner_units == row // fold >= 1
        else:
            assert inner_units == row and (columns >= values or not vecs) and launch["unaligned"] == launch["shifted"]
            if aligned:
                assert columns % values == 0
            if launch["shifted"]:  # the rows of a thread begin at one offset in a vector, and a block holds any offset
                (stride,) = launch["reduced"]["in_strides"]
                assert launch["unaligned"] and y * stride % values == 0 and stride >= values
                starts = [launch["in"] // item, stride, *launch["kept"]["in_strides"][1:]]
                assert overlap == 1 or all(start % values == 0 for start in starts)
        return
    assert x == 1 and y & (y - 1) == 0
    if path == "rows_in_vecs":
        assert values % row == 0 and covers(tiles, values // row * THREADS * VECS_IN_FLIGHT, outputs)
        return
    assert launch["threads"] == THREADS
    if path == "tile":
        pieces, of_piece, pitch, span = (launch[k] for k in ("tile_pieces", "piece_outputs", "pitch", "span"))
        assert outputs % of_piece == 0 and covers(tiles, pieces, outputs // of_piece)
        *inside, outer = launch["kept"]["in_strides"]
        last = sum(
            (n - 1) * s for kind in ("kept", "reduced") for n, s in zip(*map(launch[kind].get, ("sizes", "in_strides")))
        )
        assert outer == pitch >= span == 1 + last - (outputs // of_piece - 1) * pitch
        # Copies begin up to a vector before the first value.
        assert shared >= ((pieces - 1) * pitch + span) * item + 16 - item
    elif path == "short_rows":
        assert covers(tiles, z * VECS_IN_FLIGHT, outputs) and units * values == row and units <= y <= 32
    else:
        assert path == "rows" and covers(tiles, z, outputs) and inner_units == (row // values if vecs else row)
        if aligned:
            assert row % values == 0
        apart = launch["apart"]
        if apart > 1:  # the gaps lie at the same positions of all vectors
            assert values % apart == 0 and launch["unaligned"]
            assert all(stride % apart == 0 for stride in launch["reduced"]["in_strides"])


SIZES = [
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    12,
    16,
    31,
    32,
    33,
    64,
    100,
    127,
    128,
    129,
    255,
    1000,
    1023,
    1024,
    4095,
    2**17 + 1,
    2**20,
    2**31 + 5,
]


@st.composite
def problems(draw, sizes=SIZES, most_dims=7, most_values=2**36):
    shape = draw(st.lists(st.sampled_from(sizes), max_size=most_dims))
    while math.prod(shape) > most_values:
        shape.pop()
    reduced = [draw(st.booleans()) for _ in shape]
    dense = draw(st.integers(0, 2)) == 0
    if dense and most_values > 2**20:  # many short contiguous rows
        shape, reduced = (
            [draw(st.sampled_from([1, 2, 4, 7, 8, 16, 33, 64])), draw(st.integers(1, 2**17))],
            [True, False],
        )
    strides, step = [0] * len(shape), 1 if dense or draw(st.integers(0, 3)) > 0 else draw(st.sampled_from([2, 3, 4]))
    order = range(len(shape)) if dense or draw(st.booleans()) else draw(st.permutations(range(len(shape))))
    for d in order:
        strides[d] = step
        step = step * shape[d] + (0 if dense else draw(st.sampled_from([0, 0, 0, 0, 1, 8])))
    if not dense and draw(st.integers(0, 3)) == 0:
        strides = [0 if draw(st.booleans()) else s for s in strides]
    offsets = {"offset": draw(st.sampled_from([0, 0, 0, 1, 3])), "out_offset": draw(st.sampled_from([0, 0, 1]))}
    return Problem(
        shape,
        strides,
        reduced,
        draw(st.sampled_from(list(NATIVE))),
        native=draw(st.integers(0, 5)) > 0,
        **offsets,
    )


def test_any_launch_is_valid(planner):
    taken = set()

    @seeded(1200)
    @given(problem=problems(), sms=st.sampled_from([1, 16, 132, 148]))
    def check_one(problem, sms):
        plan = problem.plan(planner, sms)
        check(problem, plan)
        for launch in plan["launches"]:
            kind = [launch[key] for key in ("path", "vecs", "unaligned", "shifted", "spread", "to_workspace")]
            taken.add((*kind, launch.get("fold", 1) > 1, launch.get("apart", 1) > 1))

    check_one()
    paths = {"rows", "line", "short_rows", "rows_in_vecs", "tile", "columns", "finish"}
    assert {path for path, *_ in taken} == paths and len(taken) >= 19
    assert {spread for path, _, _, _, spread, *_ in taken if path == "columns"} == {False, True}
    assert {path for path, *_, apart in taken if apart} <= {"rows"}


@seeded(150)
@given(
    problem=problems(sizes=[1, 2, 3, 5, 17, 40], most_dims=4, most_values=3000), limit=st.sampled_from([64, 100, 300])
)
def test_problems_beyond_the_limit_are_split_into_parts_that_fit(planner, problem, limit):
    """Tested with a limit that small problems exceed. Together, launches read each value once and write each output once."""
    plan = problem.plan(planner, sms=1, limit=limit)
    check(problem, plan, limit)
    read, written, of_split = [], [], []
    for launch in plan["launches"]:
        if launch["path"] != "finish":
            read += reads(launch, problem)
        if launch["to_workspace"] and launch["path"] != "finish":
            of_split.append(launch)
            continue
        written += writes(launch, problem)
        for part in of_split:  # all parts of an output have its address
            assert part["path"] == "line" or writes(part, problem) == writes(launch, problem)
        of_split = []
    assert sorted(read) == positions(problem.addresses[0], ITEM[problem.dtype], (problem.sizes, problem.strides))
    kept = [(n, s) for n, s, gone in zip(problem.sizes, problem.out_strides, problem.reduced) if not gone]
    dims = tuple(zip(*kept)) if kept else ((), ())
    assert sorted(written) == positions(problem.addresses[1], ITEM[problem.out_dtype], dims)


@pytest.mark.parametrize("shape, reduced", [([2**32, 3, 2], [1, 0, 1]), ([2**32, 2], [1, 1]), ([2**33], [1])])
def test_sizes_that_are_zero_in_32_bits(planner, shape, reduced):
    """Sizes that are zero modulo 2^32. A launch divides by sizes, so these must not be truncated."""
    strides = [math.prod(shape[:d]) for d in range(len(shape))]
    problem = Problem(shape, strides, reduced, UINT8)
    plan = problem.plan(planner)
    check(problem, plan)
    assert plan["launches"][0]["units"] * 16 == problem.count(reduced=True)


@pytest.mark.parametrize(
    "sizes, strides, reduced, dtype, path",
    [
        ([2**25], [1], [1], FLOAT32, "line"),
        ([1024, 32768], [1, 1024], [1, 0], FLOAT16, "rows"),
        ([32768, 128], [1, 32768], [1, 0], FLOAT32, "line"),
        ([1023, 32768], [1, 1023], [1, 0], FLOAT32, "rows"),
        ([32, 2**20], [1, 32], [1, 0], FLOAT32, "short_rows"),
        ([2, 2**24], [1, 2], [1, 0], FLOAT32, "rows_in_vecs"),
        ([33, 10**6], [1, 33], [1, 0], FLOAT16, "tile"),
        ([12, 10**6], [1, 15], [1, 0], FLOAT16, "tile"),  # a slice of rows
        ([2, 9, 10**6], [1, 2, 18], [0, 1, 0], FLOAT16, "tile"),  # two columns of nine values
        ([6, 4, 149508], [1, 6, 24], [0, 1, 0], FLOAT16, "tile"),  # aligned pieces
        ([5, 14, 544379], [1, 5, 70], [0, 1, 0], FLOAT32, "tile"),
        ([1000], [1], [1], FLOAT16, "line"),  # 125 vectors
        ([800, 100], [1, 800], [1, 0], FLOAT16, "line"),
        ([3, 112, 3, 10**5], [1, 3, 336, 1008], [1, 0, 1, 0], FLOAT16, "tile"),  # windows of an image
        ([2, 32, 2, 10**5], [1, 2, 64, 128], [1, 0, 1, 0], FLOAT32, "tile"),
        ([128, 262144], [1, 128], [0, 1], FLOAT16, "columns"),
        ([3, 10**7], [1, 3], [0, 1], FLOAT32, "columns"),
        ([3136, 256, 64], [1, 3136, 3136 * 256], [1, 0, 1], FLOAT32, "rows"),
        ([1024, 4096, 16], [1, 1024, 2**22], [0, 1, 0], FLOAT32, "columns"),
        ([68111, 52], [2, 136222], [1, 0], FLOAT16, "rows"),
    ],
)
def test_common_shapes_take_their_paths_in_vecs(planner, sizes, strides, reduced, dtype, path):
    launch = Problem(sizes, strides, reduced, dtype).plan(planner)["launches"][0]
    assert launch["path"] == path and (launch["vecs"] or path in ("rows_in_vecs", "tile"))


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("pitch, overlap", [(25675, 1), (25680, 0)])
def test_long_columns_at_any_offset_are_read_in_aligned_vectors(planner, dtype, pitch, overlap):
    launch = Problem([25674, 6160], [1, pitch], [0, 1], dtype).plan(planner)["launches"][0]
    assert launch["shifted"] and launch["overlap"] == overlap


@pytest.mark.parametrize(
    "sizes, strides, y",
    [
        ([501, 12, 300], [1, 501, 12 * 501], 3),
        ([2049, 16, 2048], [1, 2049, 16 * 2049], 1),  # enough threads to read columns alone
        ([1327059, 9], [2, 2654118], 1),  # every other value
    ],
)
def test_short_columns_at_any_offset_are_read_value_by_value(planner, sizes, strides, y):
    for dtype in (FLOAT16, FLOAT32):
        launch = Problem(sizes, strides, [0, 1, 0][: len(sizes)], dtype).plan(planner)["launches"][0]
        assert launch["path"] == "columns" and launch["spread"] and launch["y"] == y


@pytest.mark.parametrize("units, y", [(4, 1), (12, 3), (19, 5), (33, 5), (1000, 8)])
def test_rounds_of_columns_have_one_length(planner, units, y):
    """Threads of a column read four vectors in a round. A block is 32 vectors wide."""
    launch = Problem([2**20, units], [1, 2**20], [0, 1], FLOAT32).plan(planner)["launches"][0]
    assert launch["vecs"] and launch["y"] == y


@pytest.mark.parametrize(
    "rows, row, dtype, y",
    [
        (56646, 1150, FLOAT32, 32),
        (20000, 1023, FLOAT32, 64),  # all vectors in flight at once
        (20000, 2047, FLOAT16, 32),
        (20000, 3000, FLOAT32, 256),
        (1000, 1150, FLOAT32, 128),  # too few rows
    ],
)
def test_many_rows_are_read_by_warps(planner, rows, row, dtype, y):
    launch = Problem([row, rows], [1, row + 1], [1, 0], dtype).plan(planner)["launches"][0]
    assert launch["path"] == "rows" and launch["y"] == y


@pytest.mark.parametrize("pitch", [0, 1])
def test_blocks_of_long_columns_fill_the_device(planner, pitch):
    """An SM holds four blocks. At least half as many run."""
    for columns in range(4000, 300_000, 1236):
        problem = Problem([columns, 6000], [1, columns + pitch], [0, 1], FLOAT32)
        blocks = problem.plan(planner)["launches"][0]["blocks"]
        assert blocks >= 132 * 4 / 2


@pytest.mark.parametrize(
    "sizes, launches",
    [
        ([2, 100_000, *[2] * 11, 2], 2),  # seven kept and seven reduced dimensions: one of each is split off
        ([100_000, 2, *[2] * 12], 2),
        ([4] * 14, 4 * 4),
        ([2] * 24, 2**12),
        ([3, 5] * 6, 1),
    ],
)
def test_more_dimensions_than_a_launch_supports(planner, sizes, launches):
    """Kept and reduced dimensions alternate, so that none merge. Launches are split along the smallest dimensions, not the
    largest."""
    strides = [math.prod(sizes[:d]) for d in range(len(sizes))]
    problem = Problem(sizes, strides, [d % 2 == 1 for d in range(len(sizes))])
    slices = planner.slices(*problem.arguments())
    assert slices in (launches, 2 * launches)
    if launches < 100:
        plan = problem.plan(planner)
        check(problem, plan)
        assert sum(launch["path"] != "finish" for launch in plan["launches"]) <= 2 * slices
