"""Scans, beyond the contract of every operator: derivatives of rows of one value, and partial overlap of out and self."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import torch_ops

from ...cases.recurrence import WAYS
from ...support.compare import raised_by
from ...support.params import each_device


@each_device
@pytest.mark.parametrize("shape", [(), (1,), (3, 1)], ids=str)
@pytest.mark.parametrize("has_initial", [False, True], ids=["zero", "initial"])
def test_derivatives_of_single_values(device, shape, has_initial):
    generator = torch.Generator().manual_seed(1)
    tensors = [
        torch.rand(size, generator=generator, dtype=torch.float64).to(device).requires_grad_()
        for size in (shape, shape, shape[:-1])[: 3 if has_initial else 2]
    ]
    for way in WAYS:

        def call(a, b, initial=None, way=way):
            return torch_ops.linear_recurrence(a, b, -1, initial, **way)

        assert gradcheck(call, tensors, check_forward_ad=True)
        assert gradgradcheck(call, tensors, check_fwd_over_rev=True, check_rev_over_rev=True)


@each_device
def test_no_gradient_of_a_factor_without_use(device):
    """It is 0, also if the incoming gradient is NaN."""
    a, b = (torch.ones(3, 1, device=device, requires_grad=True) for _ in range(2))
    torch_ops.linear_recurrence(a, b, 1).backward(torch.full((3, 1), torch.nan, device=device))
    assert not a.grad.any()
    assert b.grad.isnan().all()


@each_device
def test_refuses_partial_overlap(device):
    """ATen refuses it on the CPU. On CUDA, ATen writes wrong values without an error."""
    x = torch.ones(7, device=device)
    error = raised_by(torch_ops.cumsum, x[:6], 0, out=x[1:])
    assert type(error) is RuntimeError and "input" in str(error) and "out" in str(error)
    assert (x == 1).all()
