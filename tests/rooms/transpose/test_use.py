"""transpose2d gives ATen's bits for random sizes and strides, many dimensions, and more than 2^31 elements."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torch_ops

from ...cases.tensors import Maker
from ...support.large import CHUNK
from ...support.params import each_device
from ...support.random_layouts import layouts
from ...support.seeded import seeded

DTYPES = (torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from([31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 257, 1000]))
MOST = 300_000


def _check(x: torch.Tensor) -> None:
    got, want = torch_ops.transpose2d(x), x.mT.contiguous()
    assert got.dtype == x.dtype and got.shape == want.shape and got.is_contiguous()
    assert not got.is_conj() and not got.is_neg()
    as_real = torch.view_as_real if x.is_complex() else lambda t: t
    assert torch.equal(as_real(got), as_real(want.resolve_conj()))
    assert got.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() or not x.numel()


@st.composite
def matrices(draw):
    shape = [draw(st.sampled_from([1, 2, 3, 5])) for _ in range(draw(st.integers(0, 4)))] + [draw(SIZES), draw(SIZES)]
    while torch.Size(shape).numel() > MOST:
        shape[-2 if shape[-2] > shape[-1] else -1] //= 2
    in_order = range(len(shape))
    orders = draw(st.sampled_from([(), [in_order]]))
    return shape, draw(layouts(len(shape), orders=orders)), draw(st.sampled_from(DTYPES))


@each_device
def test_random_matrices(device):
    @seeded(150 if device == "cpu" else 500)
    @given(matrices())
    def check(matrix):
        shape, layout, dtype = matrix
        _check(layout.tensor(Maker(device, dtype), shape))

    check()


@each_device
def test_many_dimensions(device):
    make = Maker(device, torch.float32)
    for dims in (6, 12, 25, 26, 33):
        shape = [2 if d % 4 == 0 else 1 for d in range(dims - 2)]
        _check(make(*shape, 40, 33))
        _check(make(*shape, 3, 5))
        order = torch.randperm(dims, generator=torch.Generator().manual_seed(dims)).tolist()
        _check(make(*shape, 2, 3).permute(order))


@each_device
def test_it_is_always_a_copy(device):
    x = torch.arange(12.0, device=device).view(3, 4)
    turned = torch_ops.transpose2d(x.mT)
    turned.zero_()
    assert x.sum() == 66


# ---------------------------------------------------------------- above 2^31 elements


def _numbered(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose elements are their own index modulo a prime."""
    flat = torch.empty(torch.Size(shape).numel(), dtype=dtype, device="cuda")
    for start in range(0, flat.numel(), CHUNK):
        part = flat[start : start + CHUNK]
        part.copy_(torch.arange(start, start + part.numel(), device="cuda") % 251)
    return flat.view(shape)


def _check_by_parts(x: torch.Tensor) -> None:
    """Compares the result with ATen's copy, a few rows at a time."""
    got = torch_ops.transpose2d(x)
    rows = max(CHUNK // x.shape[-2], 1)
    for start in range(0, x.shape[-1], rows):
        assert torch.equal(got[..., start : start + rows, :], x[..., start : start + rows].mT), start


@pytest.mark.gpu
@pytest.mark.large
@pytest.mark.gib(20)
@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((46342, 46400), torch.uint8), ((46341, 46343), torch.uint8), ((2**25 + 7, 72), torch.bfloat16),
        ((40, 2**26 + 3), torch.uint8), ((3, 2**30 - 1), torch.uint8), ((2**30, 3), torch.uint8),
    ],
    ids=str,
)  # fmt: skip
def test_large_matrices(shape, dtype):
    _check_by_parts(_numbered(*shape, dtype=dtype))


@pytest.mark.gpu
@pytest.mark.large
@pytest.mark.gib(20)
def test_large_batches():
    _check_by_parts(_numbered(2**20 + 3, 33, 65, dtype=torch.uint8))
    _check_by_parts(_numbered(2**27, 4, 5, dtype=torch.uint8))
    wide = _numbered(2, 2**31 + 64, dtype=torch.uint8)  # rows more than 2^31 elements apart
    _check_by_parts(wide.as_strided((64, 2, 40), (2**25, 2**31 + 64, 1)))
