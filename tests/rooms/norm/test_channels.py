"""group_norm, instance_norm and batch_norm: running statistics, layouts, derivatives of any order, and large means."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import torch_ops

from ...support.params import each_device

LAYOUTS = {"first": torch.contiguous_format, "last": torch.channels_last}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def images(device: str, *shape: int, dtype=torch.float32, layout="first") -> torch.Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(shape, device=device, dtype=dtype).to(memory_format=LAYOUTS[layout])


def channels(device: str, count: int, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(count, device=device, dtype=dtype) + 0.5, torch.randn(count, device=device, dtype=dtype)


@each_device
@each_layout
@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_statistics(device, name, momentum, layout):
    x = images(device, 4, 6, 5, 7, layout=layout) + 3
    weight, bias = channels(device, 6)
    ours, theirs = ([torch.zeros(6, device=device), torch.ones(6, device=device)] for _ in range(2))
    found = getattr(torch_ops, name)(x, *ours, weight, bias, True, momentum)
    want = getattr(functional, name)(x, *theirs, weight, bias, True, momentum)
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-6)
        assert mine._version == 1
    before = [s.clone() for s in ours]
    getattr(torch_ops, name)(x, *ours, weight, bias, False, momentum)
    assert all(torch.equal(s, b) for s, b in zip(ours, before, strict=True))


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_running_statistics_of_a_half_type(device, dtype):
    """Computed in float32 and rounded once."""
    x = images(device, 8, 4, 6, 6, dtype=dtype)
    mean, variance = torch.full((4,), 0.25, device=device, dtype=dtype), torch.ones(4, device=device, dtype=dtype)
    torch_ops.batch_norm(x, mean, variance, training=True)
    wide = x.double()
    torch.testing.assert_close(mean, (0.225 + 0.1 * wide.mean((0, 2, 3))).to(dtype))
    torch.testing.assert_close(variance, (0.9 + 0.1 * wide.var((0, 2, 3))).to(dtype))


@each_device
@each_layout
@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 4, 5, 2), (2, 4, 3, 2, 2)])
def test_layouts(device, shape, layout):
    """Results and gradients are laid out as the input."""
    x = torch.randn(shape, device=device)
    if layout == "last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    x.requires_grad_()
    weight, bias = channels(device, 4)
    for found in (torch_ops.group_norm(x, 2, weight, bias), torch_ops.batch_norm(x, None, None, weight, bias, True)):
        assert found.stride() == x.stride()
        (grad,) = torch.autograd.grad(found.sin().sum(), x)
        assert grad.stride() == x.stride()


NORMS = {
    "group": lambda x, w, b: torch_ops.group_norm(x, 2, w, b, 0.1),
    "instance": lambda x, w, b: torch_ops.instance_norm(x, None, None, w, b, True, 0.1, 0.1),
    "batch": lambda x, w, b: torch_ops.batch_norm(x, None, None, w, b, True, 0.1, 0.1),
    "running": lambda x, w, b: torch_ops.batch_norm(x, torch.zeros_like(w), torch.ones_like(w), w, b, False, 0.1, 0.1),
}


@each_device
@pytest.mark.parametrize("layout", [False, True], ids=LAYOUTS)
@pytest.mark.parametrize("norm", NORMS)
def test_derivatives(device, norm, layout):
    x = torch.randn(2, 4, 3, device=device, dtype=torch.float64)
    x = (x.mT.contiguous().mT if layout else x).requires_grad_()
    inputs = (x, *(t.requires_grad_() for t in channels(device, 4, torch.float64)))
    assert gradcheck(
        NORMS[norm], inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert gradgradcheck(NORMS[norm], inputs, check_fwd_over_rev=True, check_rev_over_rev=True)


@each_device
@each_layout
@pytest.mark.parametrize("norm", NORMS)
def test_a_mean_far_from_the_deviation(device, norm, layout):
    """The difference of a mean square and a squared mean would have no correct digit."""
    if norm == "running" or (device == "cpu" and layout == "last"):
        pytest.skip("its statistics are given, or PyTorch's kernels lose digits")
    x = images(device, 4, 4, 40, 30, layout=layout) + 1e4
    ones = torch.ones(4, device=device)
    want = NORMS[norm](x.double(), ones.double(), None)
    # A mean of 1e4 is rounded to 1e-3.
    torch.testing.assert_close(NORMS[norm](x, ones, None).double(), want, rtol=1e-4, atol=2e-3)


def test_one_value():
    with pytest.raises(ValueError, match="batch_norm: input must have several values"):
        torch_ops.batch_norm(torch.ones(1, 4), None, None, training=True)
    with pytest.raises(ValueError, match="instance_norm: input must have several values"):
        torch_ops.instance_norm(torch.ones(2, 4, 1))


@each_device
def test_compiled(device):
    """The running statistics are written in a graph, too."""
    weight, bias = channels(device, 4)
    x = images(device, 3, 4, 5, 5).requires_grad_()
    eager, graphed = ([torch.zeros(4, device=device), torch.ones(4, device=device)] for _ in range(2))

    def run(x, mean, variance):
        return torch_ops.group_norm(torch_ops.batch_norm(x, mean, variance, weight, bias, True), 2)

    want = run(x, *eager)
    found = torch.compile(run, fullgraph=True, backend="aot_eager")(x, *graphed)
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(graphed, eager)
    ours, theirs = (torch.autograd.grad(y.sin().sum(), x)[0] for y in (found, want))
    torch.testing.assert_close(ours, theirs)
