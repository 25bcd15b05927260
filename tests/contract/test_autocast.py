"""Autocast follows ATen's policy for the operator: same result dtype, values and gradients, on the CPU and on CUDA."""

from __future__ import annotations

import itertools

import pytest
import torch

from ..cases.tensors import FLOATS
from ..support.compare import Failures, all_close, close, raised_by
from ..support.params import each_case, each_differentiable, spread

pytestmark = pytest.mark.torch_version

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _in_autocast(op, sample, device, low):
    with torch.autocast(device, dtype=low):
        return op(*sample.args, **sample.kwargs)


def _different_gradients(case, low, ours, theirs) -> str | None:
    """Gradients of float32 operands that were rounded at other points are compared in the low dtype."""
    if case.fuses:
        ours, theirs = ([t.to(low) for t in grads] for grads in (ours, theirs))
    return all_close(ours, theirs, ulps=8 * case.approximates)


@each_case
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(case, device, low):
    """Combinations of floating-point inputs. The expected result is that of ATen's operator in the same autocast region."""
    failures = Failures()
    first = next(iter(case.few(device, torch.float32)))
    for dtypes in spread(itertools.product(TYPES, repeat=len(first.floating)), 256):
        of = iter(dtypes)
        sample = first.map(lambda t, of=of: t.to(next(of)) if t.is_floating_point() else t).requiring_grad(FLOATS)
        name = ", ".join(str(d) for d in dtypes)
        with failures.sample(name):
            refusal = raised_by(_in_autocast, case.aten, sample, device, low)
            ours = raised_by(_in_autocast, case.op, sample, device, low)
            if refusal is not None and (
                "autocast::prioritize" not in str(refusal) or "autocast::prioritize" in str(ours)
            ):
                failures.add(name, None if type(ours) is type(refusal) else f"{ours!r}, expected {refusal!r}")
                continue
            results, grads = [], []
            for op in (case.op, case.aten):
                try:
                    result = _in_autocast(op, sample, device, low)
                except RuntimeError as error:
                    # ATen's promoting policy refuses dtypes other than `low` and float32. Without the policy, dtypes are promoted.
                    if op is case.op or "autocast::prioritize" not in str(error):
                        raise
                    result = op(*sample.args, **sample.kwargs)
                results.append(result)
                if case.grad_dtypes:
                    grads.append(torch.autograd.grad(result.float().pow(2).sum(), sample.differentiable))
            failures.add(name, close(*results, ulps=4 * case.approximates))
            failures.add(f"{name}, gradients", _different_gradients(case, low, *grads) if grads else None)
    failures.check(at_least=4)


@each_differentiable
def test_autocast_after_a_matmul(case, device):
    """As in a model: one operand is the result of a layer in the low dtype, the others are float32 parameters. Calls that ATen
    refuses are refused."""
    torch.manual_seed(1)
    sample = next(iter(case.few(device, torch.float32)))
    *outer, last = sample.args[0].shape
    layer = torch.nn.Linear(8, last, device=device)
    x = torch.randn(*outer, 8, device=device)
    others = sample.map(lambda t: torch.full_like(t, 1.5) if t.is_floating_point() else t).args[1:]

    def train(op):
        with torch.autocast(device, dtype=torch.bfloat16):
            result = op(layer(x), *others, **sample.kwargs)
        return result, torch.autograd.grad(result.float().pow(2).sum(), layer.weight)

    refusal = raised_by(train, case.aten)
    if refusal is not None:
        assert type(raised_by(train, case.op)) is type(refusal)
    else:
        (ours, our_grads), (theirs, their_grads) = train(case.op), train(case.aten)
        assert close(ours, theirs, ulps=8 * case.approximates) is None
        assert _different_gradients(case, torch.bfloat16, our_grads, their_grads) is None


@each_case
def test_autocast_switched_off(case, device):
    sample = next(iter(case.few(device, torch.float32)))
    with torch.autocast(device, dtype=torch.bfloat16), torch.autocast(device, enabled=False):
        assert case.op(*sample.args, **sample.kwargs).dtype == torch.float32
