"""Autocast with ATen's policy for the operator: same result dtype, same values, same gradients, on both kinds of device."""

from __future__ import annotations

import itertools

import pytest
import torch

from ..cases.tensors import FLOATS
from ..compare import Failures, all_close, close
from ..params import each_case

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@each_case
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(case, device, low):
    """Every combination of floating-point inputs: ATen's operator in the same autocast region says what to expect."""
    failures = Failures()
    first = next(iter(case.few(device, torch.float32)))
    for dtypes in itertools.product(TYPES, repeat=len(first.tensors)):
        of = iter(dtypes)
        sample = first.map(lambda t, of=of: t.to(next(of))).requiring_grad(FLOATS)
        name = ", ".join(str(d) for d in dtypes)
        with failures.sample(name):
            results, grads = [], []
            for op in (case.op, case.aten):
                try:
                    with torch.autocast(device, dtype=low):
                        result = op(*sample.args, **sample.kwargs)
                except RuntimeError as error:
                    # ATen's promoting policy refuses what is neither `low` nor float32. Without it, promotion is all there is.
                    if op is case.op or "autocast::prioritize" not in str(error):
                        raise
                    result = op(*sample.args, **sample.kwargs)
                results.append(result)
                grads.append(torch.autograd.grad(result.float().pow(2).sum(), sample.differentiable))
            failures.add(name, close(*results))
            failures.add(f"{name}, gradients", all_close(*grads, ulps=8))
    failures.check(at_least=4)


@each_case
def test_autocast_after_a_matmul(case, device):
    """The way it is met in a model: one operand comes out of a layer in the low type, the others are float32 parameters."""
    torch.manual_seed(1)
    sample = next(iter(case.few(device, torch.float32)))
    *outer, last = sample.args[0].shape
    layer = torch.nn.Linear(8, last, device=device)
    x = torch.randn(*outer, 8, device=device)
    outcomes = []
    for op in (case.op, case.aten):
        with torch.autocast(device, dtype=torch.bfloat16):
            hidden = layer(x)
            others = [
                torch.full((last,), 1.5, device=device) if isinstance(a, torch.Tensor) else a for a in sample.args[1:]
            ]
            result = op(hidden, *others, **sample.kwargs)
        loss = result.float().sum()
        outcomes.append((result, torch.autograd.grad(loss, layer.weight)[0]))
    assert all_close(*outcomes, ulps=8) is None


@each_case
def test_autocast_switched_off(case, device):
    sample = next(iter(case.few(device, torch.float32)))
    with torch.autocast(device, dtype=torch.bfloat16), torch.autocast(device, enabled=False):
        assert case.op(*sample.args, **sample.kwargs).dtype == torch.float32
