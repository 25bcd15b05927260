"""torch_ops.convert(model, layout="channels_last"): who computes in which layout, and that results are the same."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch import nn

from torch_ops.layout import trial
from torch_ops.layout.convolution import Choice, is_channels_last
from torch_ops.layout.trial import FirstCall

from ..support.layouts import FASTER, SLOWER, convert, fake_measurement, graph_of, layouts, stack  # noqa: F401
from ..support.params import each_device

# ---------------------------------------------------------------- the choice


def choices(model: nn.Module) -> list[Choice | None]:
    return [m._layout for m in model.modules() if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d))]


@each_device
@pytest.mark.parametrize("has_example", [False, True])
def test_a_stack_stays_channels_last(device, has_example, measured):
    model, x = stack().to(device), torch.randn(2, 4, 40, device=device)
    want = model(x)
    convert(model, *[x] * has_example)
    assert choices(model) == [Choice(True, False)] * 4 if has_example else [None] * 4
    got = model(x)
    assert choices(model) == [Choice(True, False)] * 4 and not model._forward_pre_hooks
    assert layouts(model, x) == [True] * 4
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert got.stride() == want.stride() and len(measured) == 4, "every layer is measured once"
    model(x[:1, :, 5:])
    assert len(measured) == 4, "other sizes are not measured"


def test_a_dict_holds_keyword_arguments():
    class Named(nn.Sequential):
        def forward(self, *, signal):
            return super().forward(signal)

    model, x = Named(stack()), torch.randn(2, 4, 40)
    first = convert(copy.deepcopy(model))
    first(signal=x)
    for converted in (convert(model, example={"signal": x}), first):
        assert choices(converted) == [Choice(True, False)] * 4


@pytest.mark.parametrize("padding", ["valid", "same", 3])
def test_every_padding_becomes_channels_last(padding):
    layer, x = (
        nn.Sequential(nn.Conv1d(4, 4, 4, padding=padding)),
        torch.randn(2, 4, 16),
    )  # 'same' pads one more on the right
    assert layouts(convert(layer, x), x) == [True]


def test_slower_layers_stay(measured):
    measured.times = SLOWER
    x = torch.randn(2, 4, 40)
    model = convert(stack(), x)
    assert layouts(model, x) == [False] * 4
    assert layouts(model, x.mT.contiguous().mT.reshape(2, 4, 40)) == [False] * 4
    assert layouts(model, x.mT.contiguous().mT) == [False] * 4, "a channels-last input is converted, too"


class Residual(nn.Module):
    """The first layer has one channel, so its layout makes no difference to itself."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv1d(1, 4, 3), nn.Conv1d(4, 4, 3, padding=1), nn.Conv1d(4, 4, 1)

    def forward(self, x):
        x = self.first(x)
        y = x + self.second(x)
        self.sum_is_channels_last = is_channels_last(y)
        return self.third(y)


def test_a_residual_connection_becomes_channels_last(measured):
    model, x = Residual(), torch.randn(2, 1, 20)
    want = model(x)
    convert(model, x)
    assert model.first._layout == Choice(None, True, gives=True), "the first layer learns from the second"
    torch.testing.assert_close(model(x), want)
    assert model.sum_is_channels_last
    graph, got = graph_of(model, x)
    assert "gpuopt.transpose2d.default](args = (%result," in graph and got.stride() == want.stride()
    measured.times = SLOWER
    assert not convert(model, x).first._layout.gives


def test_equal_layers_share_a_measurement(measured):
    layers = [nn.Conv1d(4, 4, 3, padding=1) for _ in range(3)]
    convert(nn.Sequential(*layers, nn.Conv1d(4, 4, 3, padding=1, bias=False)), torch.randn(2, 4, 16))
    assert len(measured) == 3, "the first one's input needs no gradient, and the last one has no bias"


def test_the_modes_of_the_trial_are_measured(measured):
    conv, x = nn.Conv1d(4, 4, 3), torch.randn(1, 4, 16)

    def problem(x=x, context=None):
        with context or contextlib.nullcontext():
            convert(conv, x)
        return measured.pop()[4:]

    cpu = torch.device("cpu")
    assert problem() == (torch.float32, cpu, (False, True))
    assert problem(x.clone().requires_grad_()) == (torch.float32, cpu, (True, True))
    assert problem(context=torch.no_grad()) == (torch.float32, cpu, (False, False))
    assert problem(context=torch.autocast("cpu", torch.bfloat16)) == (torch.bfloat16, cpu, (False, True))
    with torch.backends.cudnn.flags(enabled=False):
        convert(conv, x)
    assert not measured


@pytest.mark.parametrize("shape", [(4, 16), (0, 4, 16), (2, 1, 16), (2, 4, 1), (2, 4, 16)])
def test_other_signals_are_left_alone(shape, measured):
    """Without a batch, without elements, with one channel or position in any layout, and in float64."""
    dtype = torch.float64 if shape == (2, 4, 16) else torch.float32
    theirs, x = nn.Conv1d(shape[-2], 6, 3, padding=1).to(dtype), torch.randn(shape, dtype=dtype)
    torch.testing.assert_close(convert(copy.deepcopy(theirs), x)(x), theirs(x))
    assert not measured


def test_devices_without_cudnn_are_left_alone(measured, monkeypatch):
    monkeypatch.setattr(trial, "devices", {"cuda"})
    x = torch.randn(2, 4, 40)
    for model in (convert(stack(), x), convert(stack())):
        assert layouts(model, x) == [False] * 4 and not measured
    assert isinstance(next(iter(model._forward_pre_hooks.values())), FirstCall), "the first call on a GPU chooses"


# ---------------------------------------------------------------- results

CHOICES = {
    "plain": Choice(False, False),
    "contiguous, own": Choice(False, True),
    "channels last": Choice(True, False),
    "channels last, own": Choice(True, True),
    "gives": Choice(False, False, gives=True),
    "any layout": Choice(None, True, gives=True),
}
each_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)


@each_device
@each_choice
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [0, 2, "same"])
def test_results_and_gradients_of_convolutions(device, choice, mode, padding):
    check(nn.Conv1d(6, 4, 4, padding=padding, padding_mode=mode, groups=2, bias=padding != 0).to(device), choice)


@each_device
@each_choice
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2}]
)
def test_results_and_gradients_of_transposed_convolutions(device, choice, options):
    check(nn.ConvTranspose1d(6, 4, 4, **options).to(device), choice)


def chosen(theirs: nn.Module, choice: Choice) -> nn.Module:
    ours = convert(copy.deepcopy(theirs))
    FirstCall.remove(ours)
    ours._layout = choice
    return ours


def check(theirs: nn.Module, choice: Choice) -> None:
    """Of contiguous and channels-last signals, of a part of one, and of every other position."""
    ours, x = chosen(theirs, choice), torch.randn(2, 6, 24, device=next(theirs.parameters()).device)
    for given in (x, x.mT.contiguous().mT, x.mT.contiguous().mT[..., 3:], x[..., ::2]):
        found = []
        for module in (theirs, ours):
            module.zero_grad()
            signal = given.detach().requires_grad_()
            out = module(signal)
            out.square().sum().backward()
            found.append([out, signal.grad, *(p.grad for p in module.parameters())])
        torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-2)
        assert found[1][0].is_contiguous()


@each_device
@each_choice
@pytest.mark.parametrize("layer", [nn.Conv1d(6, 4, 4, groups=2), nn.ConvTranspose1d(6, 4, 4, 2)])
def test_a_choice_is_right_for_every_other_call(device, choice, layer):
    theirs, x = layer.to(device), torch.randn(2, 6, 24, device=device)
    ours = chosen(theirs, choice)
    for other in (x[0], x[:0], x[:1, :, :5], x[:, :, :4].mT.contiguous().mT):
        torch.testing.assert_close(ours(other), theirs(other), rtol=1e-3, atol=1e-3)
    with torch.autocast(device, torch.bfloat16):
        torch.testing.assert_close(ours(x), theirs(x), rtol=2e-2, atol=2e-2)
    with torch.backends.cudnn.flags(enabled=False):
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(torch.vmap(ours)(x[:, None]), torch.vmap(theirs)(x[:, None]), rtol=1e-3, atol=1e-3)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        cast = [copy.deepcopy(module).to(dtype)(x.to(dtype)) for module in (ours, theirs)]
        torch.testing.assert_close(*cast, rtol=2e-2, atol=2e-2)


@each_choice
def test_complex_signals(choice):
    x, w = torch.randn(2, 6, 24, dtype=torch.complex64), torch.randn(4, 6, 3, dtype=torch.complex64)
    theirs = nn.Conv1d(6, 4, 3, bias=False)
    theirs.weight = nn.Parameter(w)
    torch.testing.assert_close(chosen(theirs, choice)(x), theirs(x))


def test_output_size():
    theirs, x = nn.ConvTranspose1d(4, 4, 3, stride=2), torch.randn(1, 4, 8)
    ours = convert(copy.deepcopy(theirs), x)
    torch.testing.assert_close(ours(x, [18]), theirs(x, [18]))
    with pytest.raises(ValueError, match="requested an output size"):
        ours(x, [30])
