"""transpose2d gives ATen's bits for many dimensions, and always copies."""

from __future__ import annotations

import torch

import torch_ops

from ...cases.tensors import Maker
from ...support.params import each_device


def check(x: torch.Tensor) -> None:
    got, want = torch_ops.transpose2d(x), x.mT.contiguous()
    assert got.dtype == x.dtype and got.shape == want.shape and got.is_contiguous()
    assert not got.is_conj() and not got.is_neg()
    as_real = torch.view_as_real if x.is_complex() else lambda t: t
    assert torch.equal(as_real(got), as_real(want.resolve_conj()))
    assert got.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() or not x.numel()


@each_device
def test_many_dimensions(device):
    make = Maker(device, torch.float32)
    for dims in (6, 12, 25, 26, 33):
        shape = [2 if d % 4 == 0 else 1 for d in range(dims - 2)]
        check(make(*shape, 40, 33))
        check(make(*shape, 3, 5))
        order = torch.randperm(dims, generator=torch.Generator().manual_seed(dims)).tolist()
        check(make(*shape, 2, 3).permute(order))


@each_device
def test_it_is_always_a_copy(device):
    x = torch.arange(12.0, device=device).view(3, 4)
    turned = torch_ops.transpose2d(x.mT)
    turned.zero_()
    assert x.sum() == 66
