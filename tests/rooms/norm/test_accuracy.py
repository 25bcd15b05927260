"""Errors against float64: rows far from 0, large and small values, gradients of weights over many rows."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import torch_ops

from ...cases.norm import normal
from ...support.params import each_device

OPS = torch.ops.gpuopt
LENGTHS = (32, 100, 768, 1023, 5120, 20_000, 70_000)


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@each_device
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mean", [0.0, 100.0, 1e4])
def test_a_mean_far_from_the_deviation(device, length, mean):
    """The mean is rounded to float32, which shifts results by half a unit of its last digit. Nothing else is lost."""
    x = torch.randn(5, length, device=device) + mean
    out, _, rstd = OPS._layer_norm(x, None, None, 1, 1e-5)
    want, _, want_rstd = normal(x.double(), 1, 1e-5, False)
    shift = torch.finfo(torch.float32).eps * mean
    assert float((out - want).abs().max()) <= 2 * shift + 4e-6
    if device == "cuda" or mean < 1e4:  # ATen's kernel for CPU tensors loses some digits
        assert relative(rstd, want_rstd) <= 2e-6


@each_device
@pytest.mark.parametrize("scale", [1e-15, 1e-4, 1.0, 1e4, 1e15])
@pytest.mark.parametrize("is_rms", [False, True])
def test_sizes_of_values(device, scale, is_rms):
    for length in (64, 3000):
        x = torch.randn(7, length, device=device) * scale
        eps = 1e-6 * scale**2
        if eps < 1e-38:  # subnormal in float32
            continue
        out = torch_ops.rms_norm(x, length, None, eps) if is_rms else torch_ops.layer_norm(x, length, eps=eps)
        assert relative(out, normal(x.double(), 1, eps, is_rms)[0]) <= 1e-6


@each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_gradients_over_many_rows(device, dtype):
    """Sums over rows are float32, so their errors are small beside the roundings of a half type."""
    rows = 20_000 if device == "cpu" else 400_000
    x, grad = (torch.randn(rows, 24, device=device).to(dtype) for _ in range(2))
    grad = (grad.float() + 0.25).to(dtype)
    weight, bias = (torch.ones(24, device=device).requires_grad_() for _ in range(2))
    out = torch_ops.layer_norm(x, 24, weight, bias)
    of_weight, of_bias = torch.autograd.grad(out, (weight, bias), grad)
    values, _, _ = normal(x.double(), 1, 1e-5, False)
    want = (grad.double() * values).sum(0)
    size = (grad.double() * values).abs().sum(0)
    assert float(((of_weight - want).abs() / size).max()) <= 2e-6
    assert relative(of_bias, grad.double().sum(0)) <= 2e-6


@each_device
@pytest.mark.parametrize("length", LENGTHS[:-1])
@pytest.mark.parametrize("is_rms", [False, True])
def test_errors_beside_atens(device, length, is_rms):
    """Against float64, results and gradients are about as near as ATen's."""
    torch.manual_seed(length)
    x = torch.randn(9, length, device=device)
    weight, bias, grad = torch.randn(length, device=device), torch.randn(length, device=device), torch.randn_like(x)

    def run(kind, ours):
        given = [t.to(kind).requires_grad_() for t in (x, weight, bias)][: 2 if is_rms else 3]
        norms = (torch_ops.rms_norm, torch_ops.layer_norm) if ours else (functional.rms_norm, functional.layer_norm)
        shape, rest = (length,), given[1:]
        out = norms[0](given[0], shape, *rest, 1e-5) if is_rms else norms[1](given[0], shape, *rest, 1e-5)
        return out, *torch.autograd.grad(out, given, grad.to(kind))

    exact = run(torch.float64, False)
    for ours, theirs, want in zip(run(torch.float32, True), run(torch.float32, False), exact, strict=True):
        assert relative(ours, want) <= max(2 * relative(theirs, want), 3e-7)
