"""Compiled autograd, with which DDP and FSDP compile the backward: gradients as in eager mode, and one graph for equal calls."""

from __future__ import annotations

import itertools
import weakref

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters

import torch_ops

from ..support.params import CASES

pytestmark = [pytest.mark.torch_version, pytest.mark.filterwarnings("ignore")]

DIFFERENTIABLE = [case for case in CASES if torch.float32 in case.grad_dtypes]
SAMPLES = 3  # of each operator. A graph takes a second.


def gradients(case, sample, compiled: bool) -> list[torch.Tensor]:
    given = sample.requiring_grad(case.grad_dtypes)
    result = case.op(*given.args, **given.kwargs)
    grad = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view_as(result)
    if compiled:
        with compiled_autograd._enable(torch.compile(backend="aot_eager")):
            result.backward(grad)
    else:
        result.backward(grad)
    return [t.grad for t in given.differentiable]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_gradients(case):
    """All calls of an operator follow each other. One that differs from an earlier one in a size or a number needs its own graph."""
    torch._dynamo.reset()

    def has_gradients(sample) -> bool:
        given = sample.requiring_grad(case.grad_dtypes)
        return bool(given.differentiable) and case.op(*given.args, **given.kwargs).requires_grad

    samples = list(itertools.islice(filter(has_gradients, case.few("cpu", torch.float32)), SAMPLES))
    assert samples
    for sample in samples:
        want = gradients(case, sample.twin(), compiled=False)
        for _ in range(2):
            for got, expected in zip(gradients(case, sample.twin(), compiled=True), want, strict=True):
                torch.testing.assert_close(
                    got, expected, equal_nan=True, msg=lambda text, s=sample: f"{s.name}: {text}"
                )


def test_equal_calls_share_a_graph():
    torch._dynamo.reset()
    freed = []
    for k in range(4):
        x = torch.randn(3, 5, requires_grad=True)
        before = counters["compiled_autograd"]["captures"]
        with compiled_autograd._enable(torch.compile(backend="eager")):
            torch_ops.cumsum(torch_ops.reduce_sum(x.sin(), [1]), 0).sum().backward()
        torch.testing.assert_close(x.grad, x.cos() * torch.tensor([[3.0], [2], [1]]))
        assert counters["compiled_autograd"]["captures"] - before == (k == 0)
        freed.append(weakref.ref(x))
        del x
    assert [x() for x in freed[1:]] == [None] * 3  # PyTorch itself keeps the first leaf
