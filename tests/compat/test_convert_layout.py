"""torch_ops.convert(model, layout="channels_last"): who computes in which layout, and that results are the same."""

from __future__ import annotations

import contextlib
import copy
import itertools

import pytest
import torch
from torch import nn

import torch_ops
from torch_ops import _layout, layout_cache
from torch_ops._layout_cache import Times
from torch_ops._layout_convolution import is_channels_last

from ..support.layouts import FASTER, SLOWER, convert, fake_measurement, graph_of, layouts, stack  # noqa: F401
from ..support.params import each_device
from ..support.runtime import deterministic_algorithms

# ---------------------------------------------------------------- the choice


@each_device
def test_a_stack_stays_channels_last(device, measured):
    model, x = stack().to(device), torch.randn(2, 4, 40, device=device)
    want = model(x)
    convert(model)
    assert layouts(model, x) == [True] * 4 and len(measured) == len(layout_cache) == 4
    got = model(x)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert got.stride() == want.stride() and len(measured) == 4, "every layer is measured once"


@pytest.mark.parametrize("padding", ["valid", "same", 3])
def test_every_padding_becomes_channels_last(padding, measured):
    layer = nn.Sequential(nn.Conv1d(4, 4, 4, padding=padding))  # 'same' pads one more on the right
    assert layouts(convert(layer), torch.randn(2, 4, 16)) == [True]


def test_slower_layers_stay(measured):
    measured.times = SLOWER
    model, x = convert(stack()), torch.randn(2, 4, 40)
    assert layouts(model, x) == [False] * 4
    assert layouts(model, x.mT.contiguous().mT.reshape(2, 4, 40)) == [False] * 4
    assert layouts(model, x.mT.contiguous().mT) == [False] * 4, "a channels-last input is converted, too"


@pytest.mark.parametrize(
    "times, from_contiguous, from_channels_last",
    [
        (Times(1.0, 1.0, 0.2, 0.2), False, True),  # no gain: the layout of the input stays
        (Times(1.0, 0.81, 0.2, 0.2), False, True),  # a gain below the conversions of a stack of two
        (Times(1.0, 0.79, 0.2, 0.2), True, True),
        (Times(0.81, 1.0, 0.2, 0.2), False, True),
        (Times(0.79, 1.0, 0.2, 0.2), False, False),
        (Times(1.4, 31.7, 0.2, 0.2), False, False),
        (Times(float("inf"), float("inf"), 0.0, 0.0), False, False),
    ],
)
def test_a_layer_that_leaves_its_layout_is_charged(times, from_contiguous, from_channels_last):
    assert times.prefer_channels_last(False) == from_contiguous
    assert times.prefer_channels_last(True) == from_channels_last


def test_a_stack_ends_where_a_layer_is_slower(measured, monkeypatch):
    def measure(layer, shape, weight, *others):
        return SLOWER if weight[2] == 5 else FASTER

    monkeypatch.setattr(_layout, "measure", measure)
    assert layouts(convert(stack()), torch.randn(2, 4, 40)) == [True, False, True, True]


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
    convert(model)
    torch.testing.assert_close(model(x), want)
    assert not model.sum_is_channels_last, "the first layer learns from the second"
    torch.testing.assert_close(model(x), want)
    assert model.sum_is_channels_last and model.first.next_is_channels_last
    graph, got = graph_of(model, x)
    assert "gpuopt.transpose2d.default](args = (%result," in graph and got.stride() == want.stride()
    measured.times = SLOWER
    layout_cache.clear()
    model(x)
    assert not model.first.next_is_channels_last
    torch_ops.convert(model, reverse=True)
    assert "next_is_channels_last" not in vars(model.first)


def test_sizes_share_measurements(measured):
    conv = convert(nn.Conv1d(4, 4, 3))
    for batch, length in itertools.product((8, 9, 11), (64, 65, 72, 80, 95)):
        conv(torch.randn(batch, 4, length))
    assert len(measured) == 2, "lengths of whole vectors, and others"
    assert [shape for _, shape, *_ in measured] == [(8, 4, 64), (8, 4, 65)], "the sizes of the first call"
    conv(torch.randn(12, 4, 64))
    conv(torch.randn(8, 4, 96))
    assert len(measured) == 4


def test_modes_of_pytorch_are_problems_of_their_own(measured):
    conv, x = convert(nn.Conv1d(4, 4, 3)), torch.randn(1, 4, 16)
    counts = []

    def call(context=None, x=x):
        with context or contextlib.nullcontext():
            conv(x)
        counts.append(len(measured))

    def flags(benchmark=False, deterministic=False, allow_tf32=True):
        return torch.backends.cudnn.flags(True, benchmark, deterministic=deterministic, allow_tf32=allow_tf32)

    with flags():
        call()
        call(torch.no_grad())
        call(x=x.clone().requires_grad_())
        call(deterministic_algorithms())
        call(flags(benchmark=True))
        call(flags(deterministic=True))  # as use_deterministic_algorithms
        call(flags(allow_tf32=False))
        call(torch.autocast("cpu", torch.bfloat16))
        call()
    assert counts == [1, 2, 3, 4, 5, 5, 6, 7, 7]
    assert measured[-1][4] is torch.bfloat16 and [m[6] for m in measured[:3]] == [
        (False, True),
        (False, False),
        (True, True),
    ]


@pytest.mark.parametrize(
    "shape, dtype", [((4, 16), torch.float32), ((2, 4, 16), torch.float64), ((0, 4, 16), torch.float32)]
)
def test_other_signals_are_left_alone(shape, dtype, measured):
    theirs = nn.Sequential(nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(6, 2, 3)).to(dtype)
    x = torch.randn(shape, dtype=dtype)
    torch.testing.assert_close(convert(copy.deepcopy(theirs))(x), theirs(x))
    assert not measured


def test_layouts_that_are_the_same_are_not_measured(measured):
    convert(nn.Conv1d(1, 4, 3))(torch.randn(2, 1, 16))
    convert(nn.Conv1d(4, 4, 1))(torch.randn(2, 4, 1))
    assert not measured


def test_devices_without_cudnn_are_left_alone(measured, monkeypatch):
    monkeypatch.setattr(_layout, "devices", {"cuda"})
    assert layouts(convert(stack()), torch.randn(2, 4, 40)) == [False] * 4 and not measured


# ---------------------------------------------------------------- results


def inputs(device: str) -> list[torch.Tensor]:
    """Contiguous, channels last, a part of a channels-last signal, and every other position."""
    x = torch.randn(2, 6, 24, device=device)
    return [x, x.mT.contiguous().mT, x.mT.contiguous().mT[..., 3:], x[..., ::2]]


@each_device
@pytest.mark.parametrize("times", [FASTER, SLOWER], ids=["faster", "slower"])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [0, 2, "same"])
def test_results_and_gradients_of_convolutions(device, times, mode, padding, measured):
    measured.times = times
    theirs = nn.Conv1d(6, 4, 4, padding=padding, padding_mode=mode, dilation=1, groups=2, bias=padding != 0)
    check(theirs.to(device))


@each_device
@pytest.mark.parametrize("times", [FASTER, SLOWER], ids=["faster", "slower"])
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2}]
)
def test_results_and_gradients_of_transposed_convolutions(device, times, options, measured):
    measured.times = times
    check(nn.ConvTranspose1d(6, 4, 4, **options).to(device))


def check(theirs: nn.Module) -> None:
    ours = convert(copy.deepcopy(theirs))
    for x in inputs(next(theirs.parameters()).device):
        found = []
        for module in (theirs, ours):
            module.zero_grad()
            signal = x.detach().requires_grad_()
            out = module(signal)
            out.square().sum().backward()
            found.append([out, signal.grad, *(p.grad for p in module.parameters())])
        torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-2)
        assert found[1][0].is_contiguous()


def test_output_size(measured):
    theirs, x = nn.ConvTranspose1d(4, 4, 3, stride=2), torch.randn(1, 4, 8)
    torch.testing.assert_close(convert(copy.deepcopy(theirs))(x, [18]), theirs(x, [18]))
    with pytest.raises(ValueError, match="requested an output size"):
        convert(theirs)(x, [30])
