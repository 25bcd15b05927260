"""index_add to and from more than 2^31 elements, with more than 2^31 bins and indices, and at offsets beyond 2^32, checked by closed form."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from .cases.index_add_samples import MODES
from .large import PAST, check, filled

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib
each_mode = pytest.mark.parametrize("mode", MODES)

# Integers are added atomically; halves are sorted in the modes that are accurate, float32 where that is faster.
DTYPES = (torch.uint8, torch.bfloat16, torch.float32)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def _x(i):
    """What self holds: whole numbers of which every dtype holds the sums here."""
    return i % 61


def _s(i):
    """What is added."""
    return i % 7 + 1


# ---------------------------------------------------------------- more than 2^31 elements of self


def _expected_of_every_third(i: torch.Tensor, rows: int, width: int, count: int) -> torch.Tensor:
    """Row rows - 1 - 3 k gets row k of the source."""
    back = rows - 1 - i // width
    k = back // 3
    named = (back % 3 == 0) & (k < count)
    return _x(i) + named * _s(k * width + i % width)


@gib(24)
@each_mode
@each_dtype
@pytest.mark.parametrize("width", [1, 3, 64, 1000])
def test_many_rows(dtype, mode, width):
    """Every third row, from the last one backwards; the rest stays as it is."""
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
    """Bins that 32 bits with a sign do not count, each named twice, far apart in the index."""
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
    """The last dimension, of four bins; one gets two, two get none."""
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
    """Rows whose number, width and outer dimension are all large."""
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
def test_few_elements_far_apart(dtype, mode):
    """A small problem whose strides, not sizes, pass 2^32."""
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
    """Source row k is for bin k % BINS, of which it is number k // BINS."""
    return i // width // BINS % 4 + i % width % 3


def _sums(i: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """The sums of _value over all rows of the bin, by element of (BINS, width)."""
    bin_, column = i // width, i % width
    rows = (count - bin_ + BINS - 1) // BINS
    rest = rows % 4
    return rows // 4 * 6 + rest * (rest - 1) // 2 + rows * (column % 3)


# Rows that float32 sums are exact for in any order, and bfloat16's where they are rounded once.
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
    """Source rows of more than 2^29 values, added to few bins."""
    rows, count = 4, PAST // 4 + 1
    source = filled(rows * count, lambda i: i % count // BINS % 4, dtype).view(rows, count)
    index = torch.arange(count, dtype=torch.int32, device="cuda") % BINS
    got = torch_ops.index_add(torch.zeros(rows, BINS, dtype=dtype, device="cuda"), 1, index, source, mode=mode)
    check(got.view(-1), lambda i: _sums(i % BINS, count, 1))


@gib(8)
@each_mode
def test_an_expanded_source(mode):
    """More than 2^33 elements in a row's worth of memory."""
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
    """Single values, in bins that come again after 2^20. Half types are rounded every 2^30 entries: what they hold then is exact."""
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
    """Its last entry lies beyond 2^32 elements."""
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
    """The gradient of a source of more than 2^31 values: that of each row's bin."""
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
