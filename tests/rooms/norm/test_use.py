"""layer_norm and rms_norm: values, derivatives of any order, transforms, tracing, modules of models, empty tensors."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional

import torch_ops

from ...support.compare import all_close, close, different_bits
from ...support.params import each_device

OPS = torch.ops.gpuopt
EVERY = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
TWICE = {"check_fwd_over_rev": True, "check_rev_over_rev": True}


def defined_layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    over = tuple(range(-len(shape), 0))
    centred = x - x.mean(over, keepdim=True)
    out = centred * (centred.square().mean(over, keepdim=True) + eps).rsqrt()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def defined_rms_norm(x, shape, weight=None, bias=None, eps=1e-5):
    out = x * (x.square().mean(tuple(range(-len(shape), 0)), keepdim=True) + eps).rsqrt()
    return out if weight is None else out * weight


def layer(x, shape, weight=None, bias=None, eps=1e-5):
    return torch_ops.layer_norm(x, shape, weight, bias, eps)


def rms(x, shape, weight=None, bias=None, eps=1e-5):
    return torch_ops.rms_norm(x, shape, weight, eps)


NORMS = {"layer": (layer, defined_layer_norm), "rms": (rms, defined_rms_norm)}
each_norm = pytest.mark.parametrize("norm", NORMS)
WHICH = {"both": (True, True), "weight": (True, False), "bias": (False, True), "none": (False, False)}


def _inputs(device: str, shape, dims: int, which: str, dtype=torch.float64) -> tuple:
    torch.manual_seed(len(shape))
    x = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
    made = (torch.randn(shape[-dims:], device=device, dtype=dtype, requires_grad=True) for _ in range(2))
    return x, *(t if given else None for t, given in zip(made, WHICH[which], strict=True))


@each_device
@each_norm
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("shape, dims", [((5,), 1), ((3, 4), 1), ((2, 3, 4), 2), ((2, 3), 2)])
def test_derivatives(device, norm, which, shape, dims):
    if norm == "rms" and which in ("both", "bias"):
        return
    given = [t for t in _inputs(device, shape, dims, which) if t is not None]

    def call(x, *parameters):
        found = iter(parameters)
        weight, bias = (next(found) if is_given else None for is_given in WHICH[which])
        return NORMS[norm][0](x, shape[-dims:], weight, bias, 0.3)

    assert gradcheck(call, given, **EVERY)
    assert gradgradcheck(call, given, **TWICE)


@each_device
@each_norm
def test_hessians(device, norm):
    """Of x, weight and bias, in every combination of modes. (PyTorch 2.11 has wrong ones of layer_norm.)"""
    inputs = tuple(t.detach() for t in _inputs(device, (2, 3), 1, "both"))
    ours, defined = (lambda *given, f=f: f(given[0], (3,), *given[1:], 0.5).pow(3).sum() for f in NORMS[norm])
    every = (0, 1, 2) if norm == "layer" else (0, 1)
    inputs = inputs[: len(every)]
    transforms = (torch.func.jacrev, torch.func.jacfwd)
    want = torch.func.hessian(defined, every)(*inputs)
    for outer in transforms:
        for inner in transforms:
            found = outer(inner(ours, every), every)(*inputs)
            for a, b in zip(found, want, strict=True):
                assert all_close(a, b, 256) is None, (outer, inner)


@each_device
@each_norm
def test_per_example_weights(device, norm):
    """Under vmap, weights of each example are applied before rounding."""
    function, _ = NORMS[norm]
    for dtype in (torch.float64, torch.bfloat16):
        x = torch.randn(4, 3, 8, device=device, dtype=dtype)
        weight, bias = (torch.randn(4, 8, device=device, dtype=dtype) for _ in range(2))

        def call(x, weight, bias):
            return function(x, (8,), weight, bias)

        for in_dims in ((0, 0, 0), (0, None, None), (None, 0, None), (0, None, 0), (0, 0, None), (1, 0, 0)):
            given = [t if d is not None else t[0] if t.dim() == 2 else t[0] for t, d in zip((x, weight, bias), in_dims)]
            given[0] = given[0].movedim(0, 1).contiguous() if in_dims[0] == 1 else given[0]
            found = torch.vmap(call, in_dims)(*given)
            each = [
                call(*(t.select(d, k) if d is not None else t for t, d in zip(given, in_dims)))
                for k in range(len(found))
            ]
            assert close(found, torch.stack(each), 4) is None


@each_device
@each_norm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_float32_weights_beside_half_types(device, norm, dtype):
    """Weights are not rounded, and neither are their gradients."""
    function, defined = NORMS[norm]
    x, weight, bias = (t.detach() for t in _inputs(device, (6, 40), 1, "both", torch.float32))
    x = x.to(dtype)
    given = [t.clone().requires_grad_() for t in (x, weight, bias)]
    out = function(given[0], (40,), *given[1:])
    assert out.dtype == dtype
    wide = [t.detach().double().requires_grad_() for t in given]
    want = defined(wide[0], (40,), *wide[1:])
    assert close(out, want.to(dtype), 1) is None
    grad = torch.randn_like(out)
    count = 3 if norm == "layer" else 2
    found = torch.autograd.grad(out, given[:count], grad)
    expected = torch.autograd.grad(want, wide[:count], grad.double())
    for a, b, t in zip(found, expected, given, strict=False):
        assert a.dtype == t.dtype
        assert close(a.double(), b, 2**30 if t.dtype == torch.float32 else 2**46) is None
    alone = OPS.layer_norm(x, (40,), None, given[2]) if norm == "layer" else None
    if alone is not None:
        assert torch.autograd.grad(alone, given[2], grad)[0].dtype == torch.float32


@each_device
def test_modules_of_models(device):
    """A block of a transformer, with its gradients."""
    torch.manual_seed(3)
    layers = torch.nn.Sequential(torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)).to(device)
    x = torch.randn(5, 7, 64, device=device, requires_grad=True)

    def block(x):
        first, linear, last = layers
        hidden = torch_ops.layer_norm(x, 64, first.weight, first.bias, first.eps)
        return torch_ops.layer_norm(x + linear(hidden), [64], last.weight, last.bias, last.eps)

    def with_atens(x):
        return layers[2](x + layers[1](layers[0](x)))

    every = [x, *layers.parameters()]
    grads = [torch.autograd.grad(f(x).pow(3).sum(), every) for f in (block, with_atens)]
    assert close(block(x), with_atens(x), 16) is None
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@each_device
@each_norm
@pytest.mark.parametrize("shape, dims", [((0, 4), 1), ((3, 0), 1), ((2, 0, 3), 2), ((0, 0), 1)])
def test_no_values(device, norm, shape, dims):
    x, weight, bias = _inputs(device, shape, dims, "both", torch.float32)
    out = NORMS[norm][0](x, shape[-dims:], weight, bias)
    assert out.shape == shape
    inputs = (x, weight, bias) if norm == "layer" else (x, weight)
    grads = torch.autograd.grad(out.sum(), inputs)
    assert all(not g.any() and g.shape == t.shape for g, t in zip(grads, inputs, strict=True))
    if norm == "layer":
        _, mean, rstd = OPS._layer_norm(x.detach(), weight.detach(), bias.detach(), dims, 1e-5)
        assert mean.shape == rstd.shape == (*shape[:-dims], *[1] * dims)
        assert not mean.any() and (math.prod(shape[-dims:]) > 0 or rstd.isnan().all())


@each_device
@each_norm
def test_results_are_contiguous_and_repeat(device, norm):
    function, _ = NORMS[norm]
    x = torch.randn(6, 5, 4, 40, device=device)
    for given in (x, x.transpose(0, 2), x[..., 3:20], x[::2, :, 1:], x.permute(3, 1, 2, 0), x[:1].expand(7, 5, 4, 40)):
        length = given.shape[-1]
        weight, bias = (torch.randn(length, device=device) for _ in range(2))
        out = function(given, (length,), weight, bias)
        assert out.is_contiguous() and different_bits(out, function(given, (length,), weight, bias)) is None
        assert close(out, function(given.contiguous(), (length,), weight, bias), 16) is None


@each_device
@each_norm
def test_tangents_and_gradients_together(device, norm):
    """A tangent of a gradient, as in products with a Hessian."""
    function, defined = NORMS[norm]
    x, weight, bias = _inputs(device, (3, 4), 1, "both")
    direction = torch.randn_like(x)
    found = []
    for f in (function, defined):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.detach(), direction).requires_grad_()
            (grad,) = torch.autograd.grad(f(dual, (4,), weight, bias, 0.5).pow(3).sum(), dual, create_graph=True)
            found.append(forward_ad.unpack_dual(grad).tangent)
    assert close(*found, 256) is None


@each_device
def test_int_sizes_and_lists(device):
    x, weight, bias = (t.detach() for t in _inputs(device, (3, 4), 1, "both", torch.float32))
    want = functional.layer_norm(x, (4,), weight, bias)
    for shape in (4, [4], (4,), torch.Size([4])):
        assert close(torch_ops.layer_norm(x, shape, weight, bias), want, 16) is None
    assert close(torch_ops.rms_norm(x, 4, weight), functional.rms_norm(x, (4,), weight), 16) is None


@pytest.mark.parametrize("shape", [4.0, "4", None])
def test_a_wrong_type_of_the_shape_is_named(shape):
    for norm in (torch_ops.layer_norm, torch_ops.rms_norm):
        with pytest.raises(TypeError, match=f"{norm.__name__}: normalized_shape must be int or a sequence of int, got"):
            norm(torch.ones(3, 4), shape)
