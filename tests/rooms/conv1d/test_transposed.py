"""Transposed convolutions, beyond the contract of every operator: public function, layouts, empty batches, derivatives,
and on a GPU the paths of input gradients with a bias."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import torch_ops

from ...cases import tensors
from ...cases.conv_transpose1d import CASES
from ...support.compare import (
    Failures,
    close,
    different_bits,
    different_from_reference,
    different_metadata,
    raised_by,
)
from ...support.params import each_device
from ...support.runtime import peak

(CASE,) = CASES


def _last(t: torch.Tensor) -> torch.Tensor:
    """A channels-last copy."""
    return t.mT.clone(memory_format=torch.contiguous_format).mT


# ---------------------------------------------------------------- the public function


def test_parameters():
    names = [a.name for a in torch.ops.gpuopt.conv_transpose1d.default._schema.arguments]
    assert list(inspect.signature(torch_ops.conv_transpose1d).parameters) == names


@each_device
def test_forms_of_arguments(device):
    """Arguments may be numbers, lists or tuples, by position or by name."""
    x, w, b = (torch.randn(s, device=device) for s in ((2, 4, 7), (4, 3, 3), 6))
    want = torch.conv_transpose1d(x, w, b, 3, 1, 2, 2, 2)
    for s, p, m, d in ((3, 1, 2, 2), ([3], [1], [2], [2]), ((3,), 1, torch.Size([2]), (2,))):
        steps = {"stride": s, "padding": p, "output_padding": m, "groups": 2, "dilation": d}
        for got in (
            torch_ops.conv_transpose1d(x, w, b, s, p, m, 2, d),
            torch_ops.conv_transpose1d(input=x, weight=w, bias=b, **steps),
        ):
            assert close(got, want) is None, (s, p, m, d)
    for wrong in ({"stride": "text"}, {"stride": 1.5}, {"groups": "text"}, {"padding": None}, {"dilation": None}):
        refusal = raised_by(torch_ops.conv_transpose1d, x, w, b, **wrong)
        assert isinstance(refusal, (RuntimeError, TypeError, ValueError)), wrong


def test_integers_on_the_cpu():
    x, w = (tensors.Maker("cpu", torch.int64, small=True)(*s) for s in ((2, 3, 9), (3, 4, 2)))
    got = torch_ops.conv_transpose1d(x, w, stride=2)
    assert different_bits(got, torch.conv_transpose1d(x, w, stride=2)) is None


# ---------------------------------------------------------------- layouts, empty batches, derivatives


@each_device
def test_a_result_has_the_layout_of_the_input(device):
    x, w = torch.randn(2, 4, 9, device=device), torch.randn(4, 2, 3, device=device)
    want = torch.conv_transpose1d(x, w, stride=2)
    for given, layout in ((x, want), (_last(x), _last(want)), (x[0], want[0]), (_last(x[0]), _last(want[0]))):
        got = torch_ops.conv_transpose1d(given, w, stride=2)
        assert (different_metadata(got, layout) or close(got, layout)) is None


@each_device
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_no_signals(dtype, device):
    """An empty batch has empty results, and gradients that are zero."""
    for length in (0, 5):
        x = torch.ones(0, 4, length, dtype=dtype, device=device).requires_grad_()
        w, b = (torch.ones(s, dtype=dtype, device=device).requires_grad_() for s in ((4, 2, 5), 4))
        result = torch_ops.conv_transpose1d(x, w, b, 2, 1, 1, 2)
        assert result.shape == (0, 4, 2 * length + 2)
        if length > 0:
            grads = torch.autograd.grad(result.sum(), (x, w, b))
            for grad, leaf in zip(grads, (x, w, b), strict=True):
                assert different_bits(grad, torch.zeros_like(leaf)) is None


@each_device
def test_no_examples(device):
    """torch.vmap over a batch of size 0."""
    x, w = torch.ones(0, 2, 4, 9, device=device), torch.ones(4, 1, 3, device=device)
    assert torch.vmap(lambda t: torch_ops.conv_transpose1d(t, w, groups=4))(x).shape == (0, 2, 4, 11)
    weights = w.expand(0, 4, 1, 3)
    assert torch.vmap(lambda t: torch_ops.conv_transpose1d(x.new_ones(2, 4, 9), t, groups=4))(weights).shape[0] == 0


@each_device
@pytest.mark.parametrize("stride, padding, more, dilation", [(2, 1, 1, 1), (1, 0, 2, 3), (2, 1, 3, 4), (2, 3, 3, 4)])
def test_derivatives(stride, padding, more, dilation, device):
    """First and second derivatives, reverse and forward, of grouped calls. Output padding of a stride and more leaves output that no
    tap meets, inside or beyond what padding takes away."""
    make = tensors.Maker(device, torch.float64)
    leaves = [make(*s).requires_grad_() for s in ((2, 2, 4), (2, 2, 2), (4,))]

    def function(x, w, b):
        return torch_ops.conv_transpose1d(x, w, b, stride, padding, more, 2, dilation)

    assert close(function(*leaves), functional.conv_transpose1d(*leaves, stride, padding, more, 2, dilation)) is None
    assert gradcheck(function, leaves, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, leaves, check_fwd_over_rev=True)


# ---------------------------------------------------------------- on a GPU

# (input size, out channels, groups, taps, stride, dilation): depthwise, several outputs a channel, many channels into few.
MANY = (
    ((4, 64, 4001), 64, 64, 12, 2, 1), ((4, 64, 4000), 64, 64, 4, 4, 1), ((2, 64, 2501), 64, 64, 3, 5, 1),
    ((2, 64, 2501), 64, 64, 7, 3, 2), ((2, 64, 2501), 64, 64, 7, 1, 3), ((8, 40, 2501), 80, 40, 4, 2, 1),
    ((8, 64, 4001), 1, 1, 16, 8, 1), ((8, 64, 4001), 8, 1, 4, 2, 1), ((4, 40, 4003), 20, 10, 9, 2, 1),
    ((4, 16, 4003), 8, 1, 7, 1, 1), ((4, 40, 1001), 40, 40, 300, 2, 1),
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.sanitize
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_many_outputs(dtype, layout):
    """Every path of input gradients, with a bias. A second call gives the same bits."""
    failures, make = Failures(), tensors.Maker("cuda", dtype)
    for size, outs, groups, taps, stride, dilation in MANY:
        x, w, b = tensors.LAYOUTS[layout](make(*size)), make(size[1], outs // groups, taps), make(outs)
        span = dilation * (taps - 1)
        given = {"padding": [span // 3], "output_padding": [max(stride, dilation) - 1], "groups": groups}
        given |= {"stride": [stride], "dilation": [dilation]}
        name = f"{size} to {outs}, {groups} groups, {taps} taps, stride {stride}, dilation {dilation}"
        with failures.sample(name):
            got = CASE.op(x, w, b, **given)
            exact = CASE.reference(x, w, b, **given)
            failures.add(name, different_from_reference(got, exact, CASE.bound("cuda", dtype, exact, x, w, b, **given)))
            failures.add(f"{name}, again", different_bits(CASE.op(x, w, b, **given), got))
    failures.check(at_least=len(MANY))


@pytest.mark.gpu
def test_a_bias_needs_no_memory():
    make = tensors.Maker("cuda", torch.float32)
    x, w, b = make(8, 64, 2**15), make(64, 1, 12), make(64)
    assert peak(lambda: torch_ops.conv_transpose1d(x, w, b, 2, groups=64)) <= 8 * 64 * (2**16 + 10) * 4 + 2**20
