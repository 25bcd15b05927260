"""index_select, beyond the contract of every operator."""

from __future__ import annotations

import torch

import torch_ops

from ...support.compare import different_bits
from ...support.params import each_device


@each_device
def test_the_gradient_is_repeatable(device):
    """Each run adds in the same order, so float32 sums of very different values have the same bits."""
    generator = torch.Generator().manual_seed(4)
    index = torch.randint(3, (20_000,), generator=generator).to(device)
    incoming = (torch.randn(20_000, 4, generator=generator) * torch.logspace(-6, 6, 20_000)[:, None]).to(device)
    grads = []
    for _ in range(3):
        table = torch.ones(3, 4, device=device, requires_grad=True)
        torch_ops.index_select(table, 0, index).backward(incoming)
        grads.append(table.grad)
    assert all(different_bits(g, grads[0]) is None for g in grads)
