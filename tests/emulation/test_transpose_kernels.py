"""The plan and the kernels of transposition: which problems are cut into tiles, and on the CPU what comes out, against numpy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .build import load
from .test_dot_kernels import Memory

ITEMS = [1, 2, 4, 8]
GUARD, POISON, UNTOUCHED = 64, 0xCD, 0xA5


class Given(ctypes.Structure):
    _fields_ = [("into", ctypes.c_uint64), ("out", ctypes.c_uint64)]
    _fields_ += [(n, ctypes.c_int64) for n in "item rows columns row_stride column_stride batch_dims".split()]
    _fields_ += [("batch_sizes", ctypes.c_int64 * 4), ("batch_strides", ctypes.c_int64 * 4)]


class Taken(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in "tiles aligned row_tiles column_tiles matrices blocks".split()]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return load("transpose", tmp_path_factory.mktemp("emulated"))


@pytest.fixture(scope="module")
def memory():
    return Memory(1 << 20)


def given_of(address: int, out: int, item: int, shape: tuple, strides: tuple) -> Given:
    """Of a shape and strides in elements, outermost dimension first."""
    *batch, rows, columns = shape
    places = ctypes.c_int64 * 4
    return Given(
        address, out, item, rows, columns, *strides[-2:], len(batch), places(*batch[::-1]), places(*strides[-3::-1])
    )  # fmt: skip


def plan_of(kernels, item: int, shape: tuple, strides: tuple, address: int = 1 << 20) -> Taken:
    taken = Taken()
    kernels.plan(ctypes.byref(given_of(address, 1 << 30, item, shape, strides)), ctypes.byref(taken))
    return taken


def dense(shape: tuple) -> tuple:
    return tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize("item", ITEMS)
def test_rows_of_whole_packs_are_aligned(kernels, item):
    values = 16 // item
    size = 32 * values
    shape = (2, size, 2 * size)
    plan = plan_of(kernels, item, shape, dense(shape))
    rows, columns = {1: (128, 128), 2: (128, 64), 4: (64, 64), 8: (64, 32)}[item]
    assert (plan.tiles, plan.aligned, plan.matrices) == (1, 1, 2)
    assert (plan.row_tiles, plan.column_tiles) == (-(-size // rows), 2 * size // columns)
    assert plan.blocks == 2 * plan.row_tiles * plan.column_tiles
    for other in (
        plan_of(kernels, item, shape, dense(shape), address=(1 << 20) + item),
        plan_of(kernels, item, (2, size + 1, size), dense((2, size + 1, size))),
        plan_of(kernels, item, (2, size, size + 1), dense((2, size, size + 1))),
        plan_of(kernels, item, (2, size, size), (2 * size * size, size + 1, 1)),
        plan_of(kernels, item, (2, size, size), (2 * size * size + 1, size, 1)),
    ):
        assert (other.tiles, other.aligned) == (1, 0)


def test_what_is_left_to_the_elementwise_engine(kernels):
    for item, shape, strides in (
        (16, (64, 64), (64, 1)),  # elements that are packs
        (4, (64, 64), (1, 64)),  # columns that are rows in memory
        (4, (64, 64), (128, 2)),
        (4, (1000, 3), (3, 1)),  # most of a tile would be empty
        (4, (3, 1000), (1000, 1)),
    ):
        assert plan_of(kernels, item, shape, strides).tiles == 0


def test_large_matrices(kernels):
    for item, shape in ((1, (1, 2**33)), (4, (2**21, 2**14)), (2, (2**20, 128, 128)), (8, (2**10, 2**10, 2**10, 33))):
        plan = plan_of(kernels, item, shape, dense(shape))
        if shape[-2] >= 32:
            assert plan.tiles and plan.blocks < 2**31


# ---------------------------------------------------------------- the kernels


def run_and_compare(kernels, memory, item: int, shape: tuple, strides: tuple, offset: int, at_end: bool) -> Taken:
    """The matrices lie `offset` elements behind a multiple of 32 bytes, and nothing can be read before or behind the memory that they
    begin or end in."""
    dtype = np.dtype(f"u{item}")
    count = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
    begin = offset * item % 32
    if at_end:
        begin = begin % 16 + (len(memory.bytes) - begin % 16 - count * item) // 16 * 16
    values = memory.bytes[begin : begin + count * item].view(dtype)
    values[:] = np.random.default_rng(count).integers(0, 256, count * item, np.uint8).view(dtype)
    matrices = np.lib.stride_tricks.as_strided(values, shape, [s * item for s in strides])
    raw = np.full(matrices.size * item + 2 * GUARD + 16, UNTOUCHED, np.uint8)
    start = GUARD + -(raw.ctypes.data + GUARD) % 16
    problem = given_of(values.ctypes.data, raw.ctypes.data + start, item, shape, strides)
    taken = Taken()
    kernels.plan(ctypes.byref(problem), ctypes.byref(taken))
    assert taken.tiles and kernels.run(ctypes.byref(problem)) == 0
    end = start + matrices.size * item
    expected = np.ascontiguousarray(matrices.swapaxes(-2, -1))
    np.testing.assert_array_equal(raw[start:end].view(dtype).reshape(expected.shape), expected)
    assert (raw[:start] == UNTOUCHED).all() and (raw[end:] == UNTOUCHED).all()
    return taken


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("size", [(32, 32), (64, 128), (130, 33), (129, 131), (257, 64), (33, 300)], ids=str)
def test_sizes_at_the_ends_of_tiles(kernels, memory, item, size):
    for at_end in (False, True):
        for offset in (0, 1, 16 // item - 1):
            run_and_compare(kernels, memory, item, size, dense(size), offset, at_end)


@pytest.mark.parametrize("item", ITEMS)
def test_batches_and_gaps(kernels, memory, item):
    values, taken = 16 // item, set()
    for shape in ((3, 32, 64), (2, 3, 33, 35), (2, 2, 2, 64, 48), (2, 1, 2, 3, 32, 32)):
        for pitch in (shape[-1], shape[-1] + 1, shape[-1] + values, 0):
            strides = [pitch, 1]
            for n, gap in zip(shape[:0:-1][1:], (0, values, 1, 3)):
                strides.insert(0, strides[0] * n + gap)
            taken.add(run_and_compare(kernels, memory, item, shape, tuple(strides), 0, True).aligned)
        expanded = (*([0] * (len(shape) - 2)), shape[-1], 1)
        run_and_compare(kernels, memory, item, shape, expanded, 1, False)
    assert taken == {0, 1}


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(
    item=st.sampled_from(ITEMS),
    batch=st.integers(1, 3),
    rows=st.integers(32, 200),
    columns=st.integers(32, 200),
    gaps=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    offset=st.integers(0, 31),
    at_end=st.booleans(),
)
def test_any_matrices(kernels, memory, item, batch, rows, columns, gaps, offset, at_end):
    pitch = columns + gaps[0]
    strides = (rows * pitch + gaps[1], pitch, 1)
    run_and_compare(kernels, memory, item, (batch, rows, columns), strides, offset, at_end)


def test_more_groups_of_tiles_than_one(kernels, memory):
    """Of 16 columns of tiles, and in the last group fewer."""
    for item, size in ((4, (64, 64 * 37 + 5)), (8, (70, 32 * 17)), (1, (33, 128 * 16 + 1))):
        run_and_compare(kernels, memory, item, size, dense(size), 0, False)
