"""Copies to padded indices, concatenations and the gradients of padding, compared with numpy's. Memory ends where the tensors end."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from ..build import load
from ..dtypes import BF16, F16, F32, TYPES
from ..memory import at_the_end, decode, encode

CONSTANT, REFLECT, REPLICATE, CIRCULAR = MODES = range(4)
NOTHING = -1


@pytest.fixture(scope="module")
def kernels():
    return load("pad")


def sources(mode: int, size: int, before: int, after: int) -> np.ndarray:
    """The index in the input of each index of a padded dimension, or NOTHING."""
    i = np.arange(before + size + after) - before
    if mode == CONSTANT:
        return np.where((i >= 0) & (i < size), i, NOTHING)
    if mode == REFLECT:
        return (size - 1) - np.abs(size - 1 - np.abs(i))
    return np.clip(i, 0, size - 1) if mode == REPLICATE else i % size


def flat_sources(mode: int, sizes, pads) -> np.ndarray:
    """The flat index in a contiguous input of each element of the padded tensor, or NOTHING."""
    total = np.zeros((), np.int64)
    for size, (before, after) in zip(sizes, pads, strict=True):
        i = sources(mode, size, before, after)
        outside = (total[..., None] == NOTHING) | (i == NOTHING)
        total = np.where(outside, NOTHING, total[..., None] * size + i)
    return total


def drawn(random: np.random.Generator, mode: int, largest: int = 40):
    """Sizes and pads of a problem. Some dimensions are cropped."""
    sizes = [int(random.integers(2, largest if d else 5)) for d in range(random.integers(1, 5))]
    pads = []
    for size in sizes:
        most = size if mode != REFLECT else size - 1
        before, after = (int(random.integers(-(size // 3), min(most, 9) + 1)) for _ in range(2))
        pads.append((before, after) if random.random() < 0.6 else (0, 0))
    return sizes, pads


def described(sizes, pads, strides) -> ctypes.Array:
    dims = [(b + n + a, n, b, s) for n, (b, a), s in zip(sizes, pads, strides, strict=True)][::-1]
    return (ctypes.c_int64 * (4 * len(dims)))(*itertools.chain(*dims))


def address(array: np.ndarray) -> ctypes.c_uint64:
    return ctypes.c_uint64(array.ctypes.data)


def copy_and_compare(kernels, mode, item, sizes, pads, offset=0, gap=0) -> int:
    """`gap` elements lie between the rows of the input, which begins `offset` elements past an aligned address."""
    random = np.random.default_rng(sum(sizes) + item)
    strides = np.cumprod([1, *([sizes[-1] + gap] if len(sizes) > 1 else []), *sizes[-2:0:-1]])[::-1]
    count = 1 + int(sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)))
    memory = at_the_end(count * item, offset * item)
    memory[:] = random.integers(256, size=memory.size)
    elements = memory[offset * item :][: count * item].reshape(count, item)
    values = np.lib.stride_tricks.as_strided(elements, (*sizes, item), (*(strides * item), 1)).reshape(-1, item)
    fill = np.tile(random.integers(256, size=item, dtype=np.uint8), 16 // item)
    index = flat_sources(mode, sizes, pads)
    want = np.where((index == NOTHING)[..., None], fill[:item], values[index])
    out = at_the_end(want.size, 0)
    out[:] = 0xCD
    found = kernels.copy_padded(
        mode, ctypes.c_int64(item), address(elements), address(out), len(sizes), described(sizes, pads, strides),
        ctypes.c_void_p(fill.ctypes.data),
    )  # fmt: skip
    np.testing.assert_array_equal(out[: want.size].reshape(want.shape), want)
    assert (out[want.size :] == 0xCD).all()
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_random_problems(kernels, mode, item):
    random = np.random.default_rng(item)
    for k in range(25):
        sizes, pads = drawn(random, mode)
        if min(b + n + a for n, (b, a) in zip(sizes, pads, strict=True)) > 0:
            found = copy_and_compare(kernels, mode, item, sizes, pads, offset=k % 5, gap=k % 3)
            assert found > 0, (sizes, pads)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pads", [(3, 2), (0, 7), (256, 256), (-5, 9), (-400, 0), (0, -700), (-90, -90)])
def test_signals(kernels, mode, pads):
    """Rows of several blocks, and rows that begin anywhere."""
    for size, item in ((9001, 2), (801, 4)):
        copy_and_compare(kernels, mode, item, [3, size], [(0, 0), pads])


@pytest.mark.parametrize("mode", MODES)
def test_short_rows(kernels, mode):
    """Vectors of many rows. Reflection repeats no edge, so its rows have two elements."""
    for size, item in ((1, 1), (1, 2), (2, 1), (3, 2), (1, 16)):
        if mode != REFLECT or size > 1:
            copy_and_compare(kernels, mode, item, [500, size], [(0, 0), (1, 1)])


def test_merged_dimensions(kernels):
    """Runs of a row and outer dimensions: channels that lie innermost are part of a row, unless it is reflected."""
    sizes, pads = [2, 6, 7, 8], [(0, 0), (1, 1), (2, 1), (0, 0)]
    assert copy_and_compare(kernels, CONSTANT, 2, sizes, pads) == 12
    assert copy_and_compare(kernels, CIRCULAR, 2, sizes, pads) == 32
    assert copy_and_compare(kernels, REFLECT, 2, sizes, pads) == 13
    assert copy_and_compare(kernels, CIRCULAR, 4, [5, 6, 8], [(0, 0), (2, -2), (0, 0)]) == 21
    assert copy_and_compare(kernels, CONSTANT, 4, [5, 6, 8], [(0, 0)] * 3) == 10


def test_elements_that_are_apart_have_no_plan(kernels):
    fill = np.zeros(16, np.uint8)
    dims = described([4], [(1, 1)], [2])
    found = kernels.copy_padded(
        CONSTANT, ctypes.c_int64(4), address(fill), address(fill), 1, dims, ctypes.c_void_p(fill.ctypes.data)
    )
    assert found == -1


@pytest.mark.parametrize("item", [1, 2, 4, 16])
@pytest.mark.parametrize(
    "rows", [(75, 75), (3, 64), (3, 3, 1), (1, 1), (64, 128), (49, 98, 7, 200), (5,), tuple(range(1, 17))], ids=str
)
def test_concatenations(kernels, item, rows):
    """Sources with gaps between their rows, which begin anywhere."""
    random = np.random.default_rng(item)
    outer = (3, 41)
    tensors, strides = [], []
    for k, row in enumerate(rows):
        gap, offset = k % 3 * (k % 2), k % 5
        count = (outer[0] * outer[1] - 1) * (row + gap) + row
        memory = at_the_end(count * item, offset * item)
        memory[:] = random.integers(256, size=memory.size)
        elements = memory[offset * item :][: count * item].reshape(count, item)
        strides.append((row + gap, outer[1] * (row + gap)))
        shape, steps = (*outer, row, item), (strides[-1][1] * item, strides[-1][0] * item, item, 1)
        tensors.append(np.lib.stride_tricks.as_strided(elements, shape, steps))
    want = np.concatenate(tensors, 2)
    out = at_the_end(want.size, 0)
    out[:] = 0xCD
    found = kernels.copy_joined(
        ctypes.c_int64(item), address(out), len(rows), (ctypes.c_uint64 * len(rows))(*(t.ctypes.data for t in tensors)),
        (ctypes.c_int64 * len(rows))(*rows), 2, (ctypes.c_int64 * 2)(outer[1], outer[0]),
        (ctypes.c_int64 * (2 * len(rows)))(*itertools.chain(*strides)),
    )  # fmt: skip
    assert found == 10 * len(rows) + 1
    np.testing.assert_array_equal(out[: want.size].reshape(want.shape), want)
    assert (out[want.size :] == 0xCD).all()


@pytest.mark.parametrize("mode", [REFLECT, REPLICATE, CIRCULAR])
@pytest.mark.parametrize("dtype", [F16, BF16, F32, TYPES[8]], ids=str)
def test_gradients(kernels, mode, dtype):
    """Values are small integers, whose sums are exact."""
    random = np.random.default_rng(mode)
    for k in range(25):
        sizes, pads = ([2, 3, 1000], [(0, 0), (0, 0), (70, 5)]) if k == 0 else drawn(random, mode)
        index = flat_sources(mode, sizes, pads)
        if index.size == 0:
            continue
        values = random.integers(-4, 5, size=index.size).astype(np.float64)
        want = np.bincount(index.reshape(-1), values, int(np.prod(sizes)))
        encoded = encode(dtype, values)
        grad, out = at_the_end(encoded.nbytes, 0), at_the_end(want.size * encoded.itemsize, 0)
        grad[: encoded.nbytes] = encoded.view(np.uint8)
        out[:] = 0xCD
        strides = np.cumprod([1, *sizes[:0:-1]])[::-1]
        found = kernels.sum_padded(
            mode, dtype.number, address(grad), address(out), len(sizes), described(sizes, pads, strides)
        )
        assert found == len(sizes)
        result = out[: want.size * encoded.itemsize].view(encoded.dtype)
        np.testing.assert_array_equal(decode(dtype, result), want)
        assert (out[want.size * encoded.itemsize :] == 0xCD).all()


@pytest.mark.parametrize("mode", [REFLECT, REPLICATE, CIRCULAR])
def test_gradients_of_rows_in_several_tiles(kernels, mode):
    """Long rows to which several rows map, borders that are wider than a group of threads, and a tile with more rows than are noted."""
    for sizes, pads in (
        ([3, 5, 3001], [(0, 0), (2, 1), (90, 33)]),
        ([700, 3], [(1, 1), (1, 1)]),
        ([2, 40, 130], [(0, 0), (9, 9), (9, 9)]),
    ):
        index = flat_sources(mode, sizes, pads)
        values = np.random.default_rng(mode).integers(-4, 5, size=index.size).astype(np.float64)
        want = np.bincount(index.reshape(-1), values, int(np.prod(sizes)))
        encoded = encode(F32, values)
        grad, out = at_the_end(encoded.nbytes, 0), at_the_end(want.size * 4, 0)
        grad[: encoded.nbytes] = encoded.view(np.uint8)
        strides = np.cumprod([1, *sizes[:0:-1]])[::-1]
        dims = described(sizes, pads, strides)
        assert kernels.sum_padded(mode, F32.number, address(grad), address(out), len(sizes), dims) == len(sizes)
        np.testing.assert_array_equal(out[: want.size * 4].view(np.float32), want)


def test_only_narrow_rows_share_vectors(kernels):
    """A row of 1 GiB is the longest one. Twice its bytes are no int."""
    kernels.has_dense_pieces.restype = ctypes.c_bool
    for row, want in ((1, True), (3, True), (64, False), (1 << 28, False)):
        assert kernels.has_dense_pieces(ctypes.c_int64(2), ctypes.c_int64(row), ctypes.c_int64(2)) == want


@pytest.mark.parametrize("item", [1, 2, 8])
def test_narrow_rows_behind_each_other(kernels, item):
    """Vectors of many rows. Also with a gap, where there are none."""
    for gap in (0, 1):
        for width, pads in ((1, (0, 1)), (3, (0, 1)), (3, (2, 0)), (5, (1, 1)), (2, (0, 0))):
            copy_and_compare(kernels, CONSTANT, item, [3001, width], [(0, 0), pads], offset=gap, gap=gap)
