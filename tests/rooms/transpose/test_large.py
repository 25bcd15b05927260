"""Transposition of more than 2^31 elements. ATen's copy is the expected result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import CHUNK

pytestmark = [pytest.mark.gpu, pytest.mark.large, pytest.mark.gib(20)]


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


def test_large_batches():
    _check_by_parts(_numbered(2**20 + 3, 33, 65, dtype=torch.uint8))
    _check_by_parts(_numbered(2**27, 4, 5, dtype=torch.uint8))
    wide = _numbered(2, 2**31 + 64, dtype=torch.uint8)  # rows more than 2^31 elements apart
    _check_by_parts(wide.as_strided((64, 2, 40), (2**25, 2**31 + 64, 1)))
