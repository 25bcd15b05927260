"""torch.library.opcheck with all its utilities, on every overload."""

from __future__ import annotations

import pytest
import torch
from torch.library import opcheck

from ..cases.tensors import FLOATS
from ..support.compare import Failures, raised_by
from ..support.params import EVERY_CASE, each_case, each_device, each_differentiable, kept, thinned, with_variant

pytestmark = pytest.mark.torch_version


def _written(case, sample) -> list[torch.Tensor]:
    names = [a.name for a in case.overload._schema.arguments]
    return [a for name, a in zip(names, sample.args) if name in case.writes]


@each_case
def test_functional(case, device):
    """Inputs require grad if they can. That covers everything that a call without gradients would."""
    failures = Failures()
    for sample in thinned(case.few(device, torch.float32), device, keep=2):
        # The schema check does not know ATen's rule that a 0-d CPU tensor may be combined with any device.
        if any(t.device.type != device for t in sample.tensors):
            continue
        with failures.sample(sample.name):
            leaves = sample.requiring_grad()
            differentiable = case.op(*leaves.args, **leaves.kwargs).requires_grad
            for t in _written(case, leaves):
                t.requires_grad_(False)  # a leaf that requires grad can't be written to
            given = case.arguments(leaves if differentiable else sample)
            opcheck(case.overload, given.args, given.kwargs)
    failures.check(at_least=kept(8, device, keep=2))


@each_case
def test_without_gradients(case, device):
    failures = Failures()
    dtypes = (torch.int32, torch.complex64, torch.float32, torch.bfloat16, torch.float64)
    for dtype in thinned([d for d in dtypes if d in case.dtypes], device, keep=2):
        sample = case.arguments(next(iter(case.few(device, dtype))))
        with failures.sample(f"{dtype}"):
            opcheck(case.overload, sample.args, sample.kwargs)
    failures.check(at_least=kept(3, device))


@each_device
@pytest.mark.parametrize("case", [c for c in EVERY_CASE if c.internal], ids=str)
def test_internal(case, device):
    """The schema's word on what is written and what shares memory."""
    failures = Failures()
    for sample in map(case.arguments, thinned(case.few(device, torch.float32), device, keep=2)):
        with failures.sample(sample.name):
            rest = case.overload._schema.arguments[len(sample.args) :]
            absent = {a.name: None for a in rest if not a.has_default_value()}
            opcheck(case.overload, sample.args, {**absent, **sample.kwargs}, test_utils="test_schema")
    failures.check(at_least=kept(6, device, keep=2))


@each_device
@pytest.mark.parametrize("case", with_variant("inplace"), ids=str)
def test_inplace(case, device):
    failures = Failures()
    for sample in thinned(case.few(device, torch.float32), device):
        if raised_by(case.inplace.aten, *sample.twin().args, **sample.kwargs) is None:
            with failures.sample(sample.name):
                opcheck(case.inplace.overload, sample.twin().args, sample.kwargs)
    failures.check(at_least=kept(4, device))


@each_device
@pytest.mark.parametrize("case", with_variant("out"), ids=str)
def test_out(case, device):
    failures = Failures()
    for sample in thinned(case.few(device, torch.float32), device, keep=2):
        if any(t.device.type != device for t in sample.tensors):
            continue
        with failures.sample(sample.name):
            out = torch.empty_like(case.op(*sample.args, **sample.kwargs))
            opcheck(case.out.overload, sample.args, {**sample.kwargs, "out": out})
    failures.check(at_least=kept(8, device, keep=2))


@each_differentiable
def test_traces_with_numbers_as_symbols(case, device):
    """Python numbers in the call stay numbers under make_fx's symbolic tracing, forward and backward."""
    from torch.fx.experimental.proxy_tensor import make_fx

    sample = next(iter(case.few(device, torch.float32))).requiring_grad(FLOATS)
    others = {name: t for name, t in sample.kwargs.items() if isinstance(t, torch.Tensor)}

    def forward_and_backward(others, *args):
        result = case.op(*args, **{**sample.kwargs, **others})
        return torch.autograd.grad(result.sum(), [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad])

    graph = make_fx(forward_and_backward, tracing_mode="symbolic")(others, *sample.args)
    want = forward_and_backward(others, *sample.args)
    for ours, eager in zip(graph(others, *sample.args), want, strict=True):
        torch.testing.assert_close(ours, eager)
