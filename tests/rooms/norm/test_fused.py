"""add_layer_norm, add_rms_norm and the activations of group_norm: bits, derivatives of any order, and results that are not used."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import torch_ops

from ...support.compare import different_bits
from ...support.params import each_device

EVERY = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
TWICE = {"check_fwd_over_rev": True, "check_rev_over_rev": True}
HALVES = (torch.float16, torch.bfloat16)


def add_layer(x, residual, weight=None, bias=None, eps=1e-5):
    return torch_ops.add_layer_norm(x, residual, x.shape[-1], weight, bias, eps)


def add_rms(x, residual, weight=None, bias=None, eps=1e-5):
    return torch_ops.add_rms_norm(x, residual, x.shape[-1], weight, eps)


def layer(x, weight=None, bias=None, eps=1e-5):
    return torch_ops.layer_norm(x, x.shape[-1], weight, bias, eps)


def rms(x, weight=None, bias=None, eps=1e-5):
    return torch_ops.rms_norm(x, x.shape[-1], weight, eps)


NORMS = {"layer": (add_layer, layer), "rms": (add_rms, rms)}
each_norm = pytest.mark.parametrize("norm", NORMS)


def operands(device: str, *shape: int, dtype=torch.float32) -> list[torch.Tensor]:
    """x, residual, weight and bias."""
    torch.manual_seed(sum(shape))
    rows = [torch.randn(shape, device=device).to(dtype) for _ in range(2)]
    return rows + [torch.randn(shape[-1], device=device).to(dtype) for _ in range(2)]


# ---------------------------------------------------------------- residuals


@each_device
@each_norm
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
@pytest.mark.parametrize("shape", [(5, 8), (3, 4, 96), (7, 777), (4, 1026), (2, 40_000), (3, 1)])
def test_results_are_those_of_two_operators(device, norm, dtype, shape):
    """The sum is rounded before it is normalised, so all bits are the same."""
    both, alone = NORMS[norm]
    x, residual, weight, bias = operands(device, *shape, dtype=dtype)
    for given in (residual, residual.mT.contiguous().mT, residual.flatten()[0].expand(shape)):
        normal, total = both(x, given, weight, bias)
        assert normal.is_contiguous() and total.is_contiguous()
        assert different_bits(total, x + given) is None
        assert different_bits(both(x, given, weight, bias)[0], normal) is None
        if given is residual:
            assert different_bits(normal, alone(total, weight, bias)) is None
        else:
            torch.testing.assert_close(normal, alone(total, weight, bias))


@each_device
@each_norm
def test_derivatives(device, norm):
    both, _ = NORMS[norm]
    given = [t.requires_grad_() for t in operands(device, 3, 4, dtype=torch.float64)]
    for count in (2, 3, 4) if norm == "layer" else (2, 3):
        assert gradcheck(lambda *t: both(*t, eps=0.3), given[:count], **EVERY)
        assert gradgradcheck(lambda *t: both(*t, eps=0.3), given[:count], **TWICE)
    x, residual = given[0], given[1].detach()
    for call in (lambda t: both(t, residual, eps=0.3), lambda t: both(residual, t, eps=0.3)):
        assert gradcheck(call, x, **EVERY)
        assert gradgradcheck(call, x, **TWICE)


@each_device
@each_norm
@pytest.mark.parametrize("shape", [(5, 8), (6, 777), (3, 2048), (2, 40_000)])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("used", ["both", "normal", "sum", "expanded"])
def test_gradients_of_used_results(device, norm, shape, dtype, used):
    """Input and residual have one gradient, which includes the gradient of the sum."""
    both, alone = NORMS[norm]
    x, residual, weight, bias = operands(device, *shape, dtype=dtype)
    of_normal, of_sum = operands(device, *shape, dtype=dtype)[:2]
    if used == "expanded":
        of_sum = of_sum[0, :1].expand(shape)

    def loss(normal, total):
        found = (normal.double() * of_normal).sum() if used != "sum" else 0
        return found + ((total.double() * of_sum).sum() if used != "normal" else 0)

    leaves = [t.clone().requires_grad_() for t in (x, residual, weight)]
    found = torch.autograd.grad(loss(*both(*leaves, bias)), leaves, allow_unused=True)
    assert different_bits(found[0], found[1]) is None
    total = (x + residual).double().requires_grad_()
    wide = weight.double().requires_grad_()
    want = torch.autograd.grad(loss(alone(total, wide, bias.double()), total), (total, wide), allow_unused=True)
    for mine, expected in zip(found[1:], want, strict=True):
        if expected is None:
            assert mine is None or not mine.any()
        else:
            tolerance = 2e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
            torch.testing.assert_close(mine.double(), expected, rtol=tolerance, atol=tolerance * 4)


@each_device
@each_norm
def test_a_sum_that_is_written_has_no_gradient(device, norm):
    """Backward needs the sum, and raises as PyTorch's operators do."""
    x, residual, weight, bias = operands(device, 3, 4)
    normal, total = NORMS[norm][0](x.requires_grad_(), residual, weight, bias)
    total.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        normal.sum().backward()


@each_device
@each_norm
def test_a_residual_of_another_dtype(device, norm):
    """PyTorch adds it, and its rules of types apply."""
    both, alone = NORMS[norm]
    x, residual, weight, bias = operands(device, 3, 8)
    normal, total = both(x.bfloat16(), residual, weight, bias)
    want = x.bfloat16() + residual
    assert total.dtype == torch.float32 and torch.equal(total, want)
    torch.testing.assert_close(normal, alone(want, weight, bias))


@each_device
@each_norm
def test_autocast(device, norm):
    both, _ = NORMS[norm]
    given = operands(device, 3, 8, dtype=torch.bfloat16)
    with torch.autocast(device, torch.bfloat16):
        normal, total = both(*given)
        total_of_aten = given[0] + given[1]
        if norm == "layer":
            want = functional.layer_norm(total_of_aten, (8,), *given[2:])
        else:
            want = functional.rms_norm(total_of_aten, (8,), given[2], 1e-5)
    assert total.dtype == total_of_aten.dtype
    if device == "cuda" or norm == "rms":
        assert normal.dtype == want.dtype
    torch.testing.assert_close(normal.float(), want.float(), rtol=2e-2, atol=2e-2)


@each_device
@each_norm
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_no_values(device, norm, shape):
    x, residual, weight, _ = (t.requires_grad_() for t in operands(device, *shape))
    normal, total = NORMS[norm][0](x, residual, weight)
    assert normal.shape == total.shape == shape
    grads = torch.autograd.grad(normal.sum() + total.sum(), (x, residual, weight))
    assert all(g.shape == t.shape for g, t in zip(grads, (x, residual, weight), strict=True))


@each_device
@each_norm
def test_compiled(device, norm):
    """A residual stream of two layers, in one graph."""
    x, residual, weight, bias = operands(device, 3, 8)

    def run(x):
        normal, stream = NORMS[norm][0](x, residual, weight, bias)
        normal, stream = NORMS[norm][0](normal.sin(), stream, weight, bias)
        return normal + stream

    x.requires_grad_()
    want, found = run(x), torch.compile(run, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(found, want)
    ours, theirs = (torch.autograd.grad(y.cos().sum(), x)[0] for y in (found, want))
    torch.testing.assert_close(ours, theirs)


# ---------------------------------------------------------------- activations

ACTIVATIONS = {"relu": functional.relu, "silu": functional.silu, "gelu": functional.gelu}
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
# Groups in shared memory, planes that begin between two vectors, groups in parts, and channels innermost.
SHAPES = {
    "staged": (2, 8, 16, 16),
    "masked": (3, 8, 7, 7),
    "parts": (1, 4, 300, 300),
    "last": (2, 16, 9, 9),
}


@each_device
@each_activation
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
@pytest.mark.parametrize("which", ["both", "weight", "bias", "none"])
def test_activations(device, activation, name, dtype, which):
    """Results and gradients equal a computation in float64, also with float32 parameters beside half types."""
    torch.manual_seed(0)
    x = torch.randn(SHAPES[name], device=device).to(dtype)
    if name == "last":
        x = x.to(memory_format=torch.channels_last)
    of_parameters = torch.float32 if dtype in HALVES else dtype
    parameters = [torch.randn(x.shape[1], device=device).to(of_parameters) for _ in range(2)]
    weight, bias = (
        p if which in (kind, "both") else None for kind, p in zip(("weight", "bias"), parameters, strict=True)
    )
    leaves = [t.requires_grad_() for t in (x, weight, bias) if t is not None]
    out = torch_ops.group_norm(x, 2, weight, bias, 1e-5, activation)
    assert out.dtype == dtype and out.stride() == x.stride()
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, leaves, grad)
    wide = [None if t is None else t.detach().double().contiguous().requires_grad_() for t in (x, weight, bias)]
    want = ACTIVATIONS[activation](torch_ops.group_norm(wide[0], 2, *wide[1:]))
    expected = torch.autograd.grad(want, [t for t in wide if t is not None], grad.double())
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), want, rtol=2 * eps, atol=32 * eps if dtype not in HALVES else eps)
    for k, (mine, theirs, leaf) in enumerate(zip(found, expected, leaves, strict=True)):
        assert mine.dtype == leaf.dtype
        # Gradients of parameters are sums over all positions.
        scale = 1 if k == 0 else theirs.abs().max().item() + x.numel() ** 0.5
        eps = torch.finfo(mine.dtype).eps
        torch.testing.assert_close(mine.double(), theirs, rtol=2 * eps, atol=64 * eps * scale)


@each_device
@each_activation
def test_derivatives_of_activations(device, activation):
    torch.manual_seed(1)
    x = torch.randn(2, 4, 3, device=device, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.randn(4, device=device, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def call(x, weight, bias):
        return torch_ops.group_norm(x, 2, weight, bias, 0.3, activation)

    assert gradcheck(call, (x, weight, bias), **EVERY)
    assert gradgradcheck(call, (x, weight, bias), **TWICE)


@each_device
@each_activation
def test_values_that_are_not_finite(device, activation):
    """NaN stays NaN in results and gradients."""
    x = torch.ones(1, 2, 8, device=device)
    x[0, 0, 3] = torch.nan
    x.requires_grad_()
    out = torch_ops.group_norm(x, 2, activation=activation)
    (grad,) = torch.autograd.grad(out.sum(), x)
    for found in (out, grad):
        assert found[0, 0].isnan().all() and found[0, 1].isfinite().all()


@each_device
def test_an_unknown_activation(device):
    with pytest.raises(RuntimeError, match="gpuopt::group_norm: activation must be known: .*, got 'tanh'"):
        torch_ops.group_norm(torch.ones(2, 4, device=device), 2, activation="tanh")
