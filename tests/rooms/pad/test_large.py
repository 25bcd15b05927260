"""Padding, rolling and concatenation of more than 2^31 elements."""

from __future__ import annotations

import pytest
import torch

import torch_ops

pytestmark = [pytest.mark.gpu, pytest.mark.large, pytest.mark.gib(12)]


def _numbered(*shape: int) -> torch.Tensor:
    """Bytes that are their own index modulo a prime."""
    flat = torch.empty(torch.Size(shape).numel(), dtype=torch.uint8, device="cuda")
    for start in range(0, flat.numel(), 1 << 26):
        part = flat[start : start + (1 << 26)]
        part.copy_(torch.arange(start, start + part.numel(), device="cuda") % 251)
    return flat.view(shape)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pads(mode):
    x = _numbered(5, 7, (1 << 26) + 3)
    got = torch_ops.pad(x, (3, 2), mode)
    assert torch.equal(got[..., 3:-2], x)
    assert torch.equal(got[-1], torch.nn.functional.pad(x[-1], (3, 2), mode))


def test_rolls_and_concatenations():
    x = _numbered(1 << 16, (1 << 15) + 3)
    rolled = torch.ops.gpuopt._roll(x, [7, -5], [0, 1])
    assert torch.equal(rolled[7:, :-5], x[:-7, 5:]) and torch.equal(rolled[:7, -5:], x[-7:, :5])
    joined = torch.ops.gpuopt._cat([x, x[:, :75]], 1)
    assert torch.equal(joined[:, : x.shape[1]], x) and torch.equal(joined[:, x.shape[1] :], x[:, :75])
