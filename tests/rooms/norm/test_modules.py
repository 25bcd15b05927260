"""torch_ops.nn.LayerNorm and RMSNorm have the parameters, state, representation, results, gradients and errors of the modules of torch.nn."""

from __future__ import annotations

import copy

import pytest
import torch

import torch_ops

from ...support.compare import raised_by
from ...support.params import each_device

pytestmark = pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")

LAYER = [((8,), {}), ((3, 8), {}), (8, {"eps": 0.1}), (8, {"bias": False}), (8, {"elementwise_affine": False})]
RMS = [((8,), {}), ((3, 8), {}), (8, {"eps": 0.1}), (8, {"elementwise_affine": False})]
MODULES = [("LayerNorm", *given) for given in LAYER] + [("RMSNorm", *given) for given in RMS]


def pair(name, shape, options, device, dtype=torch.float32):
    """The module of torch.nn with random parameters, and gpuopt's with its state."""
    torch.manual_seed(0)
    theirs, ours = (getattr(of, name)(shape, **options, device=device, dtype=dtype) for of in (torch.nn, torch_ops.nn))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.uniform_(-2, 2)
    ours.load_state_dict(theirs.state_dict())
    assert isinstance(ours, type(theirs)) and repr(ours) == repr(theirs)
    return theirs, ours


def results_of(module, x):
    x = x.clone().requires_grad_()
    y = module(x)
    y.backward(torch.linspace(-1, 1, y.numel(), device=x.device).view(y.shape).to(y.dtype))
    return y, x.grad, *(p.grad for p in module.parameters())


@each_device
@pytest.mark.parametrize(("name", "shape", "options"), MODULES)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32")], ids=str)
def test_results_and_gradients(name, shape, options, dtypes, device):
    """Also of a half type beside float32 parameters, for which ATen has no layer norm on CUDA."""
    of_x, of_parameters = (getattr(torch, dtype) for dtype in dtypes)
    theirs, ours = pair(name, shape, options, device, of_parameters)
    x = torch.randn(4, 3, 8, device=device).to(of_x)
    got = results_of(ours, x)
    is_mixed = of_x != of_parameters and list(theirs.parameters()) != []
    want = results_of(theirs, x.float() if is_mixed else x)
    assert got[0].dtype == of_x
    rtol = 1e-4 if of_x == torch.float32 else 2e-2
    for mine, expected in zip(got, want, strict=True):
        torch.testing.assert_close(mine.float(), expected.float(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_errors(name):
    theirs, ours = pair(name, (8,), {}, "cpu")
    for wrong in (torch.ones(2, 7), torch.ones(())):
        assert type(raised_by(ours, wrong)) is type(raised_by(theirs, wrong)) is not type(None)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_they_are_traced_and_copied(name):
    theirs, ours = pair(name, (8,), {}, "cpu")
    x = torch.randn(2, 8)
    for made in (
        copy.deepcopy(ours),
        torch.jit.trace(ours, x),
        torch.export.export(ours, (x,)).module(),
        torch.fx.symbolic_trace(ours),
    ):
        torch.testing.assert_close(made(x), theirs(x))


def test_conversion():
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.RMSNorm(8))
    for options in ({}, {"layout": "channels_last"}):
        torch_ops.convert(model, **options)
        assert [type(m) for m in model] == [torch_ops.nn.LayerNorm, torch_ops.nn.RMSNorm]
        torch_ops.convert(model, reverse=True)
        assert [type(m) for m in model] == [torch.nn.LayerNorm, torch.nn.RMSNorm]
