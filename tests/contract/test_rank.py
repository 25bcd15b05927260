"""Tensors of many dimensions: more than one launch walks (6), than ATen's iterators hold (25), and than its lists of dimensions hold
(64)."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ..support.compare import raised_by
from ..support.overriding import counted, override
from ..support.params import each_device

each_rank = pytest.mark.parametrize("rank", [25, 64, 65, 70])

# Positions of the dimensions of size 2. The others have size 1.
SHAPES = {"ones": (), "first": (0, 1, 2), "last": (-3, -2, -1), "apart": (0, 3, 11, 17, -4, -2)}
each_shape = pytest.mark.parametrize("shape", SHAPES)


def _small(device, rank: int, shape: str) -> torch.Tensor:
    """Small integers, so that sums and products are exact."""
    sizes = [1] * rank
    for d in SHAPES[shape]:
        sizes[d] = 2
    return torch.arange(2 ** len(SHAPES[shape]), device=device).remainder(5).sub(2).float().view(sizes)


REDUCTIONS = {
    "sum": (torch_ops.reduce_sum, torch.sum),
    "mean": (torch_ops.reduce_mean, torch.mean),
    "amax": (torch_ops.reduce_max, torch.amax),
    "amin": (torch_ops.reduce_min, torch.amin),
}


@each_device
@each_rank
@each_shape
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(device, rank, shape, name):
    """All dimensions of any rank, and a list of dimensions where ATen takes one. The override gives the same."""
    ours, aten = REDUCTIONS[name]
    x = _small(device, rank, shape).requires_grad_()
    for kwargs in ({}, {"dim": ()}, {"dim": (), "keepdim": True}, {"dim": 0}, {"dim": (-2, 1), "keepdim": True}):
        refused = raised_by(aten, x, **kwargs)
        assert type(raised_by(ours, x, **kwargs)) is type(refused), kwargs
        with override(device):
            assert repr(raised_by(aten, x, **kwargs)) == repr(refused), kwargs
        if refused is not None:
            assert rank > 64 and kwargs.get("dim") != (), kwargs
            continue
        want = aten(x, **kwargs)
        with override(device):
            under = aten(x, **kwargs)
        for got in (ours(x, **kwargs), under):
            same = torch.equal(got.cpu(), want.cpu())  # on CUDA, equal is limited to 64 dimensions
            assert got.shape == want.shape and same, kwargs
            if raised_by(_gradient, want, x) is None:  # on CUDA, ATen's own gradient is limited to 64 dimensions
                mine, theirs = (_gradient(result, x).squeeze() for result in (got, want))
                assert torch.equal(mine, theirs), kwargs
    out = torch.empty((), device=device)
    ours(x.detach(), out=out)
    assert torch.equal(out, aten(x.detach()))


def _gradient(result: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(result.square().sum(), leaf, retain_graph=True)[0]


def _zeros(entries: int, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(entries, dtype=torch.int64, device=like.device)


OPERATORS = {
    "mul": lambda x: torch_ops.mul(x, x + 1),
    "mul_": lambda x: torch_ops.mul_(x.clone(), 3),
    "axpy": lambda x: torch_ops.axpy(x, x + 1, alpha=2),
    "fma": lambda x: torch_ops.fma(x, x + 1, x + 2),
    "cumsum": lambda x: torch_ops.cumsum(x, 0, reverse=True),
    "cumsum, inner": lambda x: torch_ops.cumsum(x.transpose(0, 1), -1, exclusive=True),
    "cumsum_": lambda x: torch_ops.cumsum_(x.clone(), -2),
    "linear_recurrence": lambda x: torch_ops.linear_recurrence(x, x + 1, 0, x.select(0, 0)),
    "linear_recurrence, inner": lambda x: torch_ops.linear_recurrence(x, x + 1, -1, reverse=True),
    "index_add": lambda x: torch_ops.index_add(x, 0, _zeros(2, x), torch.cat([x[:1], 2 * x[:1]])),
    "index_add, complex": lambda x: torch_ops.index_add(x + 1j, -1, _zeros(1, x), 2 * x[..., :1] + 1j).real,
    "transpose2d": torch_ops.transpose2d,
}


@each_device
@each_rank
@each_shape
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(device, rank, shape, name):
    """Values and gradients equal the same call's in float64 on the CPU."""
    operator = OPERATORS[name]
    x, exact = _small(device, rank, shape).requires_grad_(), _small("cpu", rank, shape).double().requires_grad_()
    got, want = operator(x), operator(exact)
    assert torch.equal(got.cpu().double(), want) and got.dtype == torch.float32
    if name.startswith("index_add") and device == "cuda" and rank >= 25:
        return  # the gradient is ATen's index_select, which refuses so many dimensions on CUDA
    mine, theirs = _gradient(got, x), _gradient(want, exact)
    torch.testing.assert_close(
        mine.cpu().double().flatten(), theirs.flatten()
    )  # assert_close is limited to 64 dimensions


OVERRIDDEN = {
    "mul": lambda x: x * x.transpose(0, -1),
    "index_add": lambda x: x.index_add(0, _zeros(1, x), 2 * x[:1]),
    "index_select": lambda x: x.index_select(0, _zeros(3, x)),
    "copy_": lambda x: x.transpose(-1, -3).clone(memory_format=torch.contiguous_format),
}


@each_device
@each_rank
@each_shape
@pytest.mark.parametrize("name", OVERRIDDEN)
def test_override(device, rank, shape, name):
    """ATen's index_add and index_select refuse more than 25 dimensions on CUDA. The override may take them."""
    function, x = OVERRIDDEN[name], _small(device, rank, shape)
    with counted() as calls, override(device):
        refused = raised_by(function, x)
    assert name in calls
    if refused is not None:
        assert device == "cuda" and repr(refused) == repr(raised_by(function, x))
        return
    with override(device):
        got = function(x)
    want = function(x.cpu())
    assert torch.equal(got.cpu(), want) and got.stride() == want.stride()
