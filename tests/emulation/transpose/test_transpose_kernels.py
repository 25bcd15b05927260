"""The plan of transposition (tiles or strips), and its kernels, run on the CPU and compared with numpy."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..build import load
from ..memory import Memory, far_apart

ITEMS = [1, 2, 4, 8]
ENGINE, TILES, STRIPS = range(3)
GUARD, POISON, UNTOUCHED = 64, 0xCD, 0xA5


class Given(ctypes.Structure):
    _fields_ = [("into", ctypes.c_uint64), ("out", ctypes.c_uint64)]
    _fields_ += [(n, ctypes.c_int64) for n in "item rows columns row_stride column_stride batch_dims".split()]
    _fields_ += [("batch_sizes", ctypes.c_int64 * 4), ("batch_strides", ctypes.c_int64 * 4)]


def load_kernels():
    loaded = load("transpose")
    loaded.plan.restype = ctypes.c_char_p
    return loaded


@pytest.fixture(scope="module")
def kernels():
    return load_kernels()


@pytest.fixture(scope="module")
def memory():
    return Memory(1 << 20)


def given_of(address: int, out: int, item: int, shape: tuple, strides: tuple) -> Given:
    """A problem with this shape and these strides in elements, outermost dimension first."""
    *batch, rows, columns = shape
    positions = ctypes.c_int64 * 4
    return Given(
        address, out, item, rows, columns, *strides[-2:], len(batch), positions(*batch[::-1]), positions(*strides[-3::-1])
    )  # fmt: skip


def plan_of(kernels, item: int, shape: tuple, strides: tuple, address: int = 1 << 20, real_limits=False):
    return plan_given(kernels, given_of(address, 1 << 30, item, shape, strides), real_limits)


def plan_given(kernels, given: Given, real_limits: bool) -> SimpleNamespace:
    text = kernels.plan(ctypes.byref(given), real_limits)
    return json.loads(text, object_hook=lambda members: SimpleNamespace(**members))


def dense(shape: tuple) -> tuple:
    return tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize("item", ITEMS)
def test_rows_of_whole_vecs_are_aligned(kernels, item):
    values = 16 // item
    size = 64 * values
    shape = (2, size, 2 * size)
    plan = plan_of(kernels, item, shape, dense(shape))
    rows, columns = {1: (128, 128), 2: (128, 64), 4: (64, 64), 8: (64, 32)}[item]
    assert (plan.path, plan.aligned, plan.args.matrices) == (TILES, 1, 2)
    assert (plan.args.row_tiles, plan.args.column_tiles) == (-(-size // rows), 2 * size // columns)
    assert plan.shape.blocks == 2 * plan.args.row_tiles * plan.args.column_tiles
    for other in (
        plan_of(kernels, item, shape, dense(shape), address=(1 << 20) + item),
        plan_of(kernels, item, (2, size + 1, size), dense((2, size + 1, size))),
        plan_of(kernels, item, (2, size, size + 1), dense((2, size, size + 1))),
        plan_of(kernels, item, (2, size, size), (2 * size * size, size + 1, 1)),
        plan_of(kernels, item, (2, size, size), (2 * size * size + 1, size, 1)),
    ):
        assert (other.path, other.aligned) == (TILES, 0)


def test_what_is_left_to_the_elementwise_engine(kernels):
    for item, shape, strides in (
        (4, (64, 64), (1, 64)),  # columns that are rows in memory
        (4, (8, 8, 8), (64, 1, 8)),
        (4, (64, 64), (128, 2)),  # strided values
        (4, (8, 8), (64, 5)),  # strided rows and values
        (4, (1000, 8, 8), (1, 8000, 2)),  # the batch is contiguous
        (4, (8, 8), (0, 1)),  # one row, expanded
        (4, (1, 100), (100, 1)),  # a copy
        (1, (2**31, 2, 2), (4, 2, 1)),  # more than 31 bits can count
        (1, (2**30, 128, 300), (0, 300, 1)),  # three tiles each
        (4, (100, 1), (1, 1)),
    ):
        assert plan_of(kernels, item, shape, strides).path == ENGINE


def strips_of(kernels, item: int, shape: tuple, strides: tuple | None = None, address: int = 1 << 20) -> tuple:
    plan = plan_of(kernels, item, shape, strides or dense(shape), address)
    assert plan.path == STRIPS
    *batch, rows, columns = shape
    strip = (plan.args.strip_matrices, plan.args.strip_rows, plan.args.strip_columns)
    per_matrix = -(-rows // strip[1]) * -(-columns // strip[2])
    assert plan.shape.blocks == -(-int(np.prod(batch)) // strip[0]) * per_matrix
    assert math.prod(strip) * item <= 16 << 10
    return strip, (plan.in_bytes, plan.out_bytes), (plan.args.in_flat, plan.args.out_flat)


def test_strips(kernels):
    many = 1 << 20
    # Strips of whole matrices: input and output are contiguous.
    assert strips_of(kernels, 4, (many, 8, 8)) == ((64, 8, 8), (16, 16), (1, 1))
    assert strips_of(kernels, 2, (many, 7, 9)) == ((128, 7, 9), (16, 16), (1, 1))  # 8 matrices are whole vectors
    assert strips_of(kernels, 1, (many, 3, 3), address=(1 << 20) + 4) == ((1808, 3, 3), (4, 16), (1, 1))
    assert strips_of(kernels, 8, (many, 8, 8)) == ((32, 8, 8), (16, 16), (1, 1))
    assert strips_of(kernels, 16, (many, 8, 8)) == ((16, 8, 8), (16, 16), (1, 1))
    # Smaller strips for a small batch, to occupy all SMs.
    assert strips_of(kernels, 4, (64, 8, 8))[0] == (16, 8, 8)
    assert strips_of(kernels, 4, (2, 8, 8))[0] == (2, 8, 8)
    # Gaps between rows, and between matrices.
    assert strips_of(kernels, 4, (many, 8, 8), (96, 12, 1)) == ((64, 8, 8), (16, 16), (0, 1))
    assert strips_of(kernels, 4, (1024, 1024, 8, 8), (1 << 17, 64, 8, 1)) == ((64, 8, 8), (16, 16), (0, 1))
    # With few columns the input of a strip is contiguous. With few rows its output is.
    assert strips_of(kernels, 4, (32, 150528, 3)) == ((1, 1344, 3), (16, 16), (1, 0))
    assert strips_of(kernels, 4, (32, 3, 150528)) == ((1, 3, 1344), (16, 16), (0, 1))
    assert strips_of(kernels, 2, (512, 50, 1000)) == ((1, 50, 128), (16, 16), (0, 1))
    # Elements of 16 bytes are vectors themselves.
    assert strips_of(kernels, 16, (4096, 4096)) == ((1, 32, 32), (16, 16), (0, 0))


def test_strips_that_are_accessed_by_elements_are_left_to_the_engine(kernels):
    """With the real limits."""

    def path(item: int, shape: tuple, strides: tuple | None = None) -> int:
        return plan_of(kernels, item, shape, strides or dense(shape), real_limits=True).path

    many = 1 << 20
    for item in ITEMS:
        assert path(item, (many, 8, 8)) == STRIPS
        assert path(item, (1 << 14, 103, 49)) == ENGINE
        assert path(item, (32, 150528, 3)) == path(item, (32, 3, 150528)) == STRIPS
    assert path(2, (many, 7, 9)) == path(4, (many, 8, 8), (96, 12, 1)) == STRIPS
    assert path(4, (many, 8, 8), (73, 9, 1)) == path(2, (500, 263, 24)) == ENGINE
    assert path(4, (1 << 20, 12)) == STRIPS and path(4, ((1 << 20) + 1, 12)) == ENGINE
    assert path(4, (2047, 2047)) == ENGINE and path(4, (2049, 2049)) == path(4, (128, 128)) == TILES


def test_large_matrices(kernels):
    for item, shape in (
        (1, (2, 2**33)),
        (4, (2**21, 2**14)),
        (2, (2**20, 128, 128)),
        (1, (2**31 - 1, 3, 3)),
        (8, (2**10, 2**10, 2**10, 33)),
    ):
        plan = plan_of(kernels, item, shape, dense(shape))
        assert plan.path != ENGINE and plan.shape.blocks < 2**31


# ---------------------------------------------------------------- the kernels


def run_and_compare(
    kernels, memory, item: int, shape: tuple, strides: tuple, offset: int, at_end: bool, out: int = 0
) -> SimpleNamespace:
    """Runs a problem, unless it is left to the element-wise engine, and compares the result.

    The matrices lie `offset` elements after a multiple of 32 bytes, at the beginning or the end of memory that ends in inaccessible
    pages. The result lies `out` elements after a multiple of 32 bytes.
    """
    dtype = np.dtype(f"u{item}" if item <= 8 else "V16")
    count = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
    begin = offset * item % 32
    if at_end:
        begin = begin % 16 + (len(memory.bytes) - begin % 16 - count * item) // 16 * 16
    values = memory.bytes[begin : begin + count * item].view(dtype)
    values[:] = np.random.default_rng(count).integers(0, 256, count * item, np.uint8).view(dtype)
    return compare(kernels, item, np.lib.stride_tricks.as_strided(values, shape, [s * item for s in strides]), out)


def compare(kernels, item: int, matrices: np.ndarray, out: int = 0) -> SimpleNamespace:
    raw = np.full(matrices.size * item + 2 * GUARD + 32 + out * item, UNTOUCHED, np.uint8)
    start = GUARD + -(raw.ctypes.data + GUARD) % 32 + out * item
    strides = tuple(s // item for s in matrices.strides)
    problem = given_of(matrices.ctypes.data, raw.ctypes.data + start, item, matrices.shape, strides)
    taken = plan_given(kernels, problem, real_limits=False)
    if taken.path == ENGINE:  # whose kernels have tests of their own
        return taken
    assert kernels.run(ctypes.byref(problem)) == 0
    end = start + matrices.size * item
    expected = np.ascontiguousarray(matrices.swapaxes(-2, -1))
    np.testing.assert_array_equal(raw[start:end].view(matrices.dtype).reshape(expected.shape), expected)
    assert (raw[:start] == UNTOUCHED).all() and (raw[end:] == UNTOUCHED).all()
    return taken


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("size", [(64, 64), (64, 128), (130, 65), (129, 131), (257, 64), (65, 300)], ids=str)
def test_sizes_at_the_ends_of_tiles(kernels, memory, item, size):
    for at_end in (False, True):
        for offset in (0, 1, 16 // item - 1):
            assert run_and_compare(kernels, memory, item, size, dense(size), offset, at_end).path == TILES


@pytest.mark.parametrize("item", ITEMS)
def test_rows_of_the_output_are_split_at_sectors(kernels, memory, item):
    """Tiles end at the sectors of the output's rows, wherever a row begins in one. Rows of the last tile may begin a sector
    later."""
    tile, sector = 128 if item <= 2 else 64, 32 // item
    for rows in range(2 * tile - sector, 2 * tile + 1):
        assert run_and_compare(kernels, memory, item, (rows, 65), (65, 1), 0, False).path == TILES


@pytest.mark.parametrize("item", ITEMS)
def test_results_that_begin_inside_vectors(kernels, memory, item):
    """Whole vectors on the side of the input, and a result at each element of a sector: in tiles, and in strips of every kind."""
    values = 16 // item
    for out in range(2 * values):
        tiles = run_and_compare(kernels, memory, item, (2, 64 * values, 64), (64 * 64 * values, 64, 1), 0, False, out)
        assert (tiles.path, tiles.aligned) == (TILES, out % values == 0)
        for shape in ((64, 16, 16), (2, 16 * values, 16), (2, 16, 64 * values), (3, 16 * values, 16 * values)):
            plan = run_and_compare(kernels, memory, item, shape, dense(shape), 0, True, out)
            assert plan.path == TILES or plan.out_bytes == 16 or out % values != 0


@pytest.mark.parametrize("item", ITEMS)
def test_batches_and_gaps(kernels, memory, item):
    values, taken = 16 // item, set()
    for shape in ((3, 64, 80), (2, 3, 65, 67), (2, 2, 2, 80, 64), (2, 1, 2, 3, 64, 64)):
        for pitch in (shape[-1], shape[-1] + 1, shape[-1] + values):
            strides = [pitch, 1]
            for n, gap in zip(shape[:0:-1][1:], (0, values, 1, 3)):
                strides.insert(0, strides[0] * n + gap)
            plan = run_and_compare(kernels, memory, item, shape, tuple(strides), 0, True)
            taken.add((plan.path, plan.aligned))
        expanded = (*([0] * (len(shape) - 2)), shape[-1], 1)
        run_and_compare(kernels, memory, item, shape, expanded, 1, False)
    assert taken == {(TILES, 0), (TILES, 1)}


@seeded(150)
@given(
    item=st.sampled_from([*ITEMS, 16]),
    batch=st.integers(1, 3),
    rows=st.integers(2, 150),
    columns=st.integers(2, 150),
    gaps=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    offset=st.integers(0, 31),
    at_end=st.booleans(),
    out=st.integers(0, 31),
)
def test_any_matrices(kernels, memory, item, batch, rows, columns, gaps, offset, at_end, out):
    pitch = columns + gaps[0]
    strides = (rows * pitch + gaps[1], pitch, 1)
    run_and_compare(kernels, memory, item, (batch, rows, columns), strides, offset, at_end, out)


STRIPS_OF = [
    *((b, n, n) for b, n in ((300, 2), (40, 7), (37, 8), (9, 16), (5, 33), (3, 63))),
    *((2, 3000, 3), (2, 3, 3000), (1, 1001, 8), (1, 8, 1001), (1, 62, 500), (1, 500, 62), (3, 2, 5)),
    *((1, 63, 63), (1, 1024, 16)),
]


@pytest.mark.parametrize("item", [*ITEMS, 16])
def test_matrices_in_strips(kernels, memory, item):
    """Matrices that are dense, have a gap after each row, or have a gap of a vector or an element after each matrix."""
    values, taken = 16 // item, set()
    for batch, rows, columns in STRIPS_OF:
        for gap in (0, 1, values):
            layouts = [
                (rows * columns + gap, columns, 1),
                (rows * (columns + gap), columns + gap, 1),
            ]
            for strides, offset in itertools.product(layouts, (0, 1, 4 // item)):
                for out in (0, 1, 4 // item):
                    shape, at_end = (batch, rows, columns), (gap + out) % 2 == 0
                    plan = run_and_compare(kernels, memory, item, shape, strides, offset, at_end, out)
                    if plan.path == STRIPS:
                        taken.add((plan.in_bytes, plan.out_bytes, plan.args.in_flat, plan.args.out_flat))
    word = max(item, 4)
    whole = {(read, write, 1, 1) for read in (word, 16) for write in (item, word, 16)}
    assert taken == whole | {(16, 16, 0, 0), (16, 16, 0, 1), (16, 16, 1, 0)}


@pytest.mark.parametrize("item", [1, 2, 4])
def test_batches_of_several_dimensions_in_strips(kernels, memory, item):
    values = 16 // item
    shape = (3, 5, values, 2 * values)
    row = 2 * values
    for pitch, matrix, outer in ((row, 10 * row * values, 60 * row * values), (row + values, 200, 1000), (row, 0, row)):
        strides = (-(-outer // values) * values, -(-matrix // values) * values, pitch, 1)
        assert run_and_compare(kernels, memory, item, shape, strides, 0, True).path == STRIPS


def test_large_elements(kernels, memory):
    for size in ((64, 64), (70, 100)):
        assert run_and_compare(kernels, memory, 16, size, dense(size), 0, True).path == STRIPS


@pytest.mark.parametrize("item", ITEMS)
def test_last_strips_end_anywhere_in_a_vec(kernels, memory, item):
    """The last strip of a contiguous batch. Matrices of 15 elements are one element shorter than whole vectors."""
    strip = plan_of(kernels, item, (1000, 3, 5), dense((1000, 3, 5))).args.strip_matrices
    assert 1 < strip < 1000 and strip % (16 // item) == 0
    for left in range(1, 16 // item + 1):
        shape = (strip + left, 3, 5)
        plan = run_and_compare(kernels, memory, item, shape, dense(shape), 0, True)
        assert (plan.args.strip_matrices, plan.in_bytes, plan.out_bytes, plan.args.out_flat) == (strip, 16, 16, 1)


@pytest.mark.parametrize("item", [*ITEMS, 16])
def test_large_strips(kernels, item):
    """Strips of 16 KB, used for many matrices. With the padding between vectors they fill shared memory."""
    dtype, matrix = np.dtype(f"u{item}" if item <= 8 else "V16"), 7 * 9 * item
    count = -(-(8 << 20) // matrix)
    values = np.random.default_rng(item).integers(0, 256, count * matrix, np.uint8).view(dtype)
    taken = compare(kernels, item, values.reshape(count, 7, 9))
    assert taken.path == STRIPS and taken.args.strip_matrices * matrix > 12 << 10


@pytest.mark.parametrize("item", [1, 4])
def test_elements_more_than_2_31_apart(kernels, item):
    """Strides beyond 2^31 between rows and between matrices, in tiles and in strips."""
    memory, random = far_apart(1 << 38), np.random.default_rng(item)
    for shape, strides, path in (
        ((130, 70), (2**28 + 16, 1), TILES),
        ((130, 70), (2**28 + 5, 1), TILES),
        ((3, 64, 65), (2**31 + 1, 65, 1), TILES),
        ((2, 16, 320), (320, 2**31 + 320, 1), STRIPS),
        ((3, 48, 32), (2**32 + 16, 64, 1), STRIPS),
        ((3, 2, 16, 16), (2**32 + 256, 256, 16, 1), STRIPS),
    ):
        matrices = np.lib.stride_tricks.as_strided(memory.view(f"u{item}"), shape, [s * item for s in strides])
        matrices[...] = random.integers(1, 256, shape)
        assert compare(kernels, item, matrices).path == path
