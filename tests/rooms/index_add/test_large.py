"""index_add with more than 2^31 elements, bins or indices, and with offsets beyond 2^32. A closed form gives the result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...cases.samples.index_add_samples import MODES
from ...support.large import PAST, check, filled

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib
each_mode = pytest.mark.parametrize("mode", MODES)

# Integers are added atomically. bfloat16 is sorted in the modes that are accurate, and float32 where sorting is faster.
DTYPES = (torch.uint8, torch.bfloat16, torch.float32)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def _x(i):
    """The elements of self: integers whose sums here are exact in every dtype."""
    return i % 61


def _s(i):
    """The elements of the source."""
    return i % 7 + 1


# ---------------------------------------------------------------- more than 2^31 elements of self


def _expected_of_every_third(i: torch.Tensor, rows: int, width: int, count: int) -> torch.Tensor:
    """The expected element i, if row k of the source is added to row `rows` - 1 - 3 k."""
    back = rows - 1 - i // width
    k = back // 3
    named = (back % 3 == 0) & (k < count)
    return _x(i) + named * _s(k * width + i % width)


@gib(24)
@each_mode
@each_dtype
@pytest.mark.parametrize("width", [1, 3, 64, 1000])
def test_many_rows(dtype, mode, width):
    """Rows are added to every third row, from the last one backwards. Other rows do not change."""
    rows = PAST // width + 1
    count = min(rows // 3, 2**22)
    self = filled(rows * width, _x, dtype).view(rows, width)
    source = filled(count * width, _s, dtype).view(count, width)
    index = rows - 1 - 3 * torch.arange(count, device="cuda")
    torch_ops.index_add_(self, 0, index, source, mode=mode)
    check(self.view(-1), lambda i: _expected_of_every_third(i, rows, width, count))


@gib(40)
@each_mode
@each_dtype
def test_more_than_2_to_31_bins(dtype, mode):
    """More bins than a signed 32-bit integer can count. Each occurs twice in the index, far apart."""
    count = PAST // 1021
    index = torch.cat([PAST - 1 - 1021 * torch.arange(count, device="cuda")] * 2)
    self, source = filled(PAST, _x, dtype), filled(2 * count, _s, dtype)
    got = torch_ops.index_add(self, 0, index, source, mode=mode)

    def expected(i):
        k = (PAST - 1 - i) // 1021
        named = ((PAST - 1 - i) % 1021 == 0) & (k < count)
        return _x(i) + named * (_s(k) + _s(k + count))

    check(got, expected)
    check(self, _x)


@gib(36)
@each_mode
@each_dtype
def test_many_outer_rows(dtype, mode):
    """Additions along the last dimension, of four bins: one bin gets two entries, and two get none."""
    rows = PAST // 4 + 1
    self, source = filled(rows * 4, _x, dtype).view(rows, 4), filled(rows * 3, _s, dtype).view(rows, 3)
    got = torch_ops.index_add(self, -1, torch.tensor([3, 0, 3], device="cuda"), source, mode=mode)

    def expected(i):
        row, column = i // 4, i % 4
        twice = _s(3 * row) + _s(3 * row + 2)
        return _x(i) + (column == 0) * _s(3 * row + 1) + (column == 3) * twice

    check(got.view(-1), expected)


@gib(40)
@each_mode
@each_dtype
def test_the_middle_of_three(dtype, mode):
    """Additions along the middle of three dimensions that are all large."""
    outer, bins = 31, 1031
    width = PAST // (outer * bins) + 1
    self = filled(outer * bins * width, _x, dtype).view(outer, bins, width)
    source = filled(outer * 3 * width, _s, dtype).view(outer, 3, width)
    torch_ops.index_add_(self, 1, torch.tensor([1030, 7, 1030], device="cuda", dtype=torch.int32), source, mode=mode)

    def expected(i):
        slab, bin_, column = i // width // bins, i // width % bins, i % width
        first = slab * 3 * width + column
        return _x(i) + (bin_ == 7) * _s(first + width) + (bin_ == 1030) * (_s(first) + _s(first + 2 * width))

    check(self.view(-1), expected)


@gib(24)
@each_mode
@each_dtype
def test_small_problem_with_large_strides(dtype, mode):
    """A small problem with strides of the tensor beyond 2^32."""
    rows = 1030
    stride = 2 * PAST // rows + 7
    memory = filled(stride * rows, _x, dtype)
    self = memory.as_strided((rows, 5), (stride, 1))
    source = filled(rows * 10, _s, dtype).view(2 * rows, 5)
    index = torch.arange(2 * rows, device="cuda") // 2
    torch_ops.index_add_(self, 0, index, source, mode=mode)

    def expected(i):
        row, column = i // stride, i % stride
        first = 10 * row + column
        return _x(i) + (column < 5) * (_s(first) + _s(first + 5))

    check(memory, expected)


# ---------------------------------------------------------------- more than 2^31 elements of source


BINS = 1009


def _value(i: torch.Tensor, width: int) -> torch.Tensor:
    """The elements of the source. Row k is the (k // BINS)-th row for bin k % BINS."""
    return i // width // BINS % 4 + i % width % 3


def _sums(i: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """The expected result (BINS, width): the sum of _value over all rows of a bin, for element i."""
    bin_, column = i // width, i % width
    rows = (count - bin_ + BINS - 1) // BINS
    rest = rows % 4
    return rows // 4 * 6 + rest * (rest - 1) // 2 + rows * (column % 3)


# Cases with exact results: sums are exact in float32 in any order. bfloat16 is exact only in modes that round once.
EXACT = [(d, m) for d in DTYPES for m in MODES if d != torch.bfloat16 or m != "fast"]
each_exact = pytest.mark.parametrize(("dtype", "mode"), EXACT, ids=str)


@gib(24)
@each_exact
@pytest.mark.parametrize("width", [64, 1000])
def test_many_source_rows(dtype, mode, width):
    count = PAST // width + 1
    source = filled(count * width, lambda i: _value(i, width), dtype).view(count, width)
    self, index = torch.zeros(BINS, width, dtype=dtype, device="cuda"), torch.arange(count, device="cuda") % BINS
    got = torch_ops.index_add(self, 0, index, source, mode=mode)
    check(got.view(-1), lambda i: _sums(i, count, width))


@gib(45)
@pytest.mark.parametrize(("dtype", "mode"), [e for e in EXACT if e[0] != torch.uint8], ids=str)
def test_a_long_last_dimension(dtype, mode):
    """Source rows of more than 2^29 values, added to 1009 bins."""
    rows, count = 4, PAST // 4 + 1
    source = filled(rows * count, lambda i: i % count // BINS % 4, dtype).view(rows, count)
    index = torch.arange(count, dtype=torch.int32, device="cuda") % BINS
    got = torch_ops.index_add(torch.zeros(rows, BINS, dtype=dtype, device="cuda"), 1, index, source, mode=mode)
    check(got.view(-1), lambda i: _sums(i % BINS, count, 1))


@gib(8)
@each_mode
def test_an_expanded_source(mode):
    """A source of more than 2^33 elements, expanded from one row."""
    count, width = 2**23 + 5, 1024
    source = torch.arange(width, device="cuda", dtype=torch.uint8).expand(count, width)
    self, index = torch.zeros(BINS, width, dtype=torch.uint8, device="cuda"), torch.arange(count, device="cuda") % BINS
    got = torch_ops.index_add(self, 0, index, source, mode=mode)
    check(got.view(-1), lambda i: i % width * ((count - i // width + BINS - 1) // BINS))


# ---------------------------------------------------------------- more than 2^31 indices


@pytest.mark.parametrize(
    ("dtype", "mode"),
    [pytest.param(d, m, marks=gib(30 if d == torch.uint8 else 90), id=f"{d}-{m}") for d, m in EXACT],
)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
def test_many_indices(dtype, mode, index_dtype):
    """More than 2^31 single values. The index repeats after 2^20 entries. bfloat16 is rounded every 2^30 entries, to exact
    values."""
    bins = 2**20
    index = filled(PAST, lambda i: i % bins, index_dtype)
    source = filled(PAST, lambda i: i // bins % 4, dtype)
    self = filled(bins, lambda i: 16 * _x(i), dtype)
    torch_ops.index_add_(self, 0, index, source, mode=mode)

    def expected(i):
        count = (PAST - i + bins - 1) // bins
        rest = count % 4
        return 16 * _x(i) + count // 4 * 6 + rest * (rest - 1) // 2

    check(self, expected)


@gib(20)
@each_mode
def test_a_strided_index(mode):
    """The index has a stride, and its last entry lies beyond 2^32 elements."""
    memory = torch.full((2**32 + 8,), -1, dtype=torch.int32, device="cuda")
    strided = memory[:: 2**20]
    strided.copy_(torch.arange(len(strided), device="cuda") % 7)
    got = torch_ops.index_add(
        torch.zeros(7, device="cuda"), 0, strided, torch.ones(len(strided), device="cuda"), mode=mode
    )
    assert torch.equal(got, torch.bincount(strided, minlength=7).float())


# ---------------------------------------------------------------- gradients


@gib(20)
def test_backward():
    """The gradient of a source of more than 2^31 values. Each row's gradient is the gradient of its bin."""
    width = 2**10 + 2
    count = PAST // width + 1
    source = torch.zeros(count, width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    self, index = (
        torch.zeros(BINS, width, dtype=torch.bfloat16, device="cuda"),
        torch.arange(count, device="cuda") % BINS,
    )
    grad = filled(BINS * width, _x, torch.bfloat16).view(BINS, width)
    torch_ops.index_add(self, 0, index, source).backward(grad)
    check(source.grad.view(-1), lambda i: _x(i // width % BINS * width + i % width))
