"""The ladder of index_add, run on the CPU against numpy: every step and dtype, with sizes around whole blocks and vectors."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

import numpy as np
import pytest

from ..build import load
from ..dtypes import BF16, F16, F32, DType
from ..ladders import put, steps
from ..memory import Memory, decode, encode

POINTER = ctypes.c_uint64
STEPS = {step.id: step.values[0] for step in steps("index_add_")}
DTYPES = {
    "atomic_per_element": [F32],
    "half_atomic": [F16],
    "fast_half_atomic": [F16, BF16],
    "half2_pairs": [F16, BF16],
    "vector_reductions": [F32, F16, BF16],
    "sorted_segments": [F32, F16, BF16],
}
KINDS = [pytest.param(step, dtype, id=f"{step}-{dtype}") for step in STEPS for dtype in DTYPES[step]]
DISTRIBUTIONS = ["uniform", "equal", "hot", "ends", "descending"]
GUARD = 0x7F81  # a NaN in every dtype, which an addition would change


def widths(step: str, dtype: DType) -> list[int]:
    if step == "half2_pairs":
        return [2, 4, 6, 34, 64, 66, 130]
    vec = 16 // dtype.numpy.itemsize
    return [vec, 3 * vec, 32, 31 * vec, 33 * vec] if step == "vector_reductions" else [1, 2, 3, 31, 32, 33, 100]


def alignments(step: str, dtype: DType) -> list[int]:
    """The alignments of self and source to test: the smallest that the step supports, and 16 bytes."""
    least = {"half2_pairs": 4, "vector_reductions": 16}.get(step, dtype.numpy.itemsize)
    return sorted({least, 16})


def counts(width: int, together: int) -> list[int]:
    """Numbers of entries around the capacity of one and of two blocks, and around the warps of the sorted steps."""
    block = 256 * together
    return sorted({0, 1, 7, 8, 9, block // width, -(-block // width), block // width + 1, -(-2 * block // width) + 1})


def indices(kind: str, entries: int, rows: int, random: np.random.Generator) -> np.ndarray:
    uniform = random.integers(0, rows, entries)
    if kind == "equal":
        return np.full(entries, rows - 1)
    if kind == "hot":
        return np.where(random.integers(0, 4, entries) > 0, rows // 2, uniform)
    if kind == "ends":
        return random.integers(0, 2, entries) * (rows - 1)
    return np.sort(uniform)[::-1].copy() if kind == "descending" else uniform


def some(dtype: DType, random: np.random.Generator, shape: tuple[int, int], most: int) -> np.ndarray:
    """Random multiples of 1/4. Sums of `most` of them are exact in bfloat16, in any order."""
    values = random.integers(-4, 5, shape) / 4
    return encode(dtype, np.where((random.random(shape) * most < 40) & (values != 0), values, -0.0))


@pytest.fixture(scope="module")
def memories():
    return Memory(1 << 17), Memory(1 << 17), Memory(1 << 16)


@pytest.fixture(scope="module")
def library():
    return load("index_add_ladder")


def call(library, step: str, dtype: DType, self, index, source, sms=3) -> int:
    return library.run(
        STEPS[step],
        dtype.number,
        POINTER(self.ctypes.data),
        POINTER(source.ctypes.data),
        ctypes.c_void_p(index.ctypes.data),
        *map(ctypes.c_int64, (*self.shape, len(index))),
        sms,
    )


def put_guarded(memory: Memory, values: np.ndarray, align: int) -> tuple[np.ndarray, np.ndarray]:
    """Copies the values into the memory. Returns them, and a mask of the bytes around them, which hold GUARD."""
    placed = put(memory, values, align)
    begin = placed.ctypes.data - memory.bytes.ctypes.data
    outside = np.ones(len(memory.bytes), bool)
    outside[begin : begin + values.nbytes] = False
    guards = np.full(len(memory.bytes) // 2, GUARD, np.uint16).view(np.uint8)
    memory.bytes[outside] = guards[outside]
    return placed, outside


def check(library, memories, step, dtype, before, index, source, align, sms=3):
    self, outside = put_guarded(memories[0], before, align)
    guards = memories[0].bytes[outside].copy()
    placed = put(memories[1], source, align)
    placed_index = put(memories[2], index.astype(np.int64), 8)
    total = decode(dtype, before)
    largest = np.abs(total)
    np.add.at(total, index, decode(dtype, source))
    np.add.at(largest, index, np.abs(decode(dtype, source)))
    assert largest.max(initial=0) <= 64, "a sum may be rounded on the way"
    assert call(library, step, dtype, self, placed_index, placed, sms) == 0
    np.testing.assert_array_equal(decode(dtype, self), total)
    np.testing.assert_array_equal(np.signbit(decode(dtype, self)), np.signbit(total))
    np.testing.assert_array_equal(placed, source)
    np.testing.assert_array_equal(memories[0].bytes[outside], guards)


@pytest.mark.parametrize("step, dtype", KINDS)
def test_index_add(library, memories, step, dtype):
    random = np.random.default_rng(STEPS[step])
    vec = {"half2_pairs": 2, "vector_reductions": 16 // dtype.numpy.itemsize}.get(step, 1)
    number = 0
    for width in widths(step, dtype):
        for entries in counts(width, vec):
            for rows in (1, 3, 50):
                kind = DISTRIBUTIONS[number % len(DISTRIBUTIONS)]
                align = alignments(step, dtype)[number % len(alignments(step, dtype))]
                number += 1
                index = indices(kind, entries, rows, random)
                most = np.bincount(index).max(initial=1)
                before = some(dtype, random, (rows, width), 1)
                source = some(dtype, random, (entries, width), most)
                check(library, memories, step, dtype, before, index, source, align)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("step, dtype", KINDS)
def test_many_entries(library, memories, step, dtype, distribution):
    """More entries than one block sorts, and a distribution in which most entries have the same row."""
    random = np.random.default_rng(5)
    width = 16 // dtype.numpy.itemsize
    index = indices(distribution, 5003, 700, random)
    before = some(dtype, random, (700, width), 1)
    source = some(dtype, random, (5003, width), np.bincount(index).max())
    check(library, memories, step, dtype, before, index, source, 16)


@pytest.mark.parametrize("step, dtype", KINDS)
def test_nothing_to_add(library, memories, step, dtype):
    vec = 16 // dtype.numpy.itemsize
    for rows, width, entries in ((0, vec, 0), (5, 0, 3), (5, vec, 0)):
        before, source = (some(dtype, np.random.default_rng(0), (n, width), 1) for n in (rows, entries))
        check(library, memories, step, dtype, before, np.zeros(entries, np.int64), source, 16)


@pytest.mark.parametrize("step, dtype", KINDS)
def test_special_values(library, memories, step, dtype):
    """Infinities and NaN are added like numbers, and do not reach other columns."""
    vec = 16 // dtype.numpy.itemsize
    before, source = np.zeros((2, vec)), np.zeros((4, vec))
    source[:, 0] = np.inf, -np.inf, np.inf, 1
    source[:, 1] = np.nan, 1, -np.inf, 2
    source[:, 2] = -np.inf, 3, 4, 5
    index = np.array([0, 0, 1, 1])
    self, placed = encode(dtype, before), encode(dtype, source)
    if dtype is BF16:  # encode() does not support NaN
        placed[0, 1] = 0x7FC0
    assert call(library, step, dtype, self, index, placed) == 0
    with np.errstate(invalid="ignore"):
        np.add.at(before, index, source)
    np.testing.assert_array_equal(decode(dtype, self), before)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_sorted_sums_are_in_order_and_rounded_once(library, memories, dtype):
    random = np.random.default_rng(1)
    index = indices("hot", 3000, 20, random)
    before = encode(dtype, random.standard_normal((20, 5)))
    source = encode(dtype, random.standard_normal((3000, 5)))
    total = decode(dtype, before).astype(np.float32)
    for entry, row in enumerate(index):
        total[row] += decode(dtype, source[entry]).astype(np.float32)
    for sms in (1, 5):
        self = put(memories[0], before)
        assert call(library, "sorted_segments", dtype, self, index, put(memories[1], source), sms) == 0
        np.testing.assert_array_equal(self, encode(dtype, total))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_more_entries_than_are_sorted_at_once(library, memories, dtype):
    random = np.random.default_rng(2)
    library.set_position_bits(7)
    try:
        for entries in (127, 128, 129, 256, 600):
            index = indices("hot", entries, 9, random)
            before, source = some(dtype, random, (9, 7), 1), some(dtype, random, (entries, 7), entries)
            check(library, memories, "sorted_segments", dtype, before, index, source, dtype.numpy.itemsize)
    finally:
        library.set_position_bits(30)


@pytest.mark.parametrize("row", [-1, 4, 1 << 40, -(1 << 63)])
@pytest.mark.parametrize("step, dtype", KINDS)
def test_an_index_out_of_range_ends_the_kernel(library, memories, step, dtype, row):
    """An index out of range ends the kernel, which writes nothing outside of self."""
    vec = 16 // dtype.numpy.itemsize
    self, outside = put_guarded(memories[0], some(dtype, np.random.default_rng(0), (4, vec), 1), 16)
    guards = memories[0].bytes[outside].copy()
    source = encode(dtype, np.ones((3, vec)))
    index = np.array([2, row, 1])
    child = os.fork()
    if child == 0:  # parent and child share the memory
        faulthandler.disable()
        os.close(2)
        call(library, step, dtype, self, index, source)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGABRT
    np.testing.assert_array_equal(memories[0].bytes[outside], guards)
