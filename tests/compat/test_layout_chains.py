"""torch_ops.convert(model, layout="channels_last"): which layers of a stack stay channels last."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import nn
from torch.nn import functional

from torch_ops.layout import chains, trial
from torch_ops.layout.chains import MARGIN, Visit
from torch_ops.layout.convolution import Choice, Times

from ..support.layouts import FASTER, SLOWER, convert, fake_measurement, layouts  # noqa: F401

GAIN, LOSS = Times(1.0, 0.5, 0.5, 0.5), Times(1.0, 1.2, 0.5, 0.5)


def chain(*taps: int) -> nn.Sequential:
    """Layers that ``by_taps`` measures, with activations between them."""
    return nn.Sequential(*(nn.Sequential(nn.Conv1d(4, 4, k, padding=k // 2), nn.GELU()) for k in taps))


@pytest.fixture
def by_taps(monkeypatch):
    """Layers of 3 taps gain, and layers of 5 taps lose."""
    monkeypatch.setattr(trial, "measure", lambda layer, shape, weight, *others: {3: GAIN, 5: LOSS}[weight[2]])


# ---------------------------------------------------------------- chains


@pytest.mark.parametrize(
    "taps, stay",
    [
        ([3], [False]),  # 0.5 saved, and 1.0 for two conversions
        ([3, 3], [False, False]),
        ([3, 3, 3], [True] * 3),  # together they pay for both
        ([3, 3, 3, 5], [True] * 3 + [False]),  # the last layer had better convert its own input
        ([5, 3, 3, 3], [False] + [True] * 3),
        ([3, 3, 5, 3, 3], [True] * 5),  # two conversions would cost more than the layer loses
        ([5, 5, 5], [False] * 3),
    ],
)
def test_a_run_stays_if_it_gains_more_than_its_conversions_cost(taps, stay, by_taps):
    x = torch.randn(2, 4, 16)
    with torch.no_grad():
        assert layouts(convert(chain(*taps), x), x) == stay


def test_a_layer_that_makes_signals_contiguous_ends_a_run(by_taps):
    class Padded(nn.Module):
        def forward(self, x):
            return functional.pad(x, (1, 1)).contiguous()

    model, x = chain(3, 3, 3, 3), torch.randn(2, 4, 16)
    model.insert(2, Padded())
    with torch.no_grad():
        assert layouts(convert(model, x), x) == [False] * 4, "two chains of two layers each"


def test_a_conversion_that_a_layer_makes_for_the_next_one_is_charged(by_taps):
    """The first layer has one channel, so that nothing is measured of it."""
    model, x = nn.Sequential(nn.Conv1d(1, 4, 3), *chain(3, 3)), torch.randn(2, 1, 16)
    with torch.no_grad():
        assert layouts(convert(model, x), x) == [False] * 3


@pytest.mark.parametrize("chunked", [False, True])
def test_gradients_that_arrive_contiguous_are_charged(chunked, monkeypatch):
    """The gradient of chunk is contiguous, so the layer before it converts it."""
    monkeypatch.setattr(trial, "measure", lambda *_: Times(1.0, 0.55, 0.4, 1.0))
    gates = [(nn.Conv1d(4, 8, 3, padding=1), Chunk()) if chunked else (nn.Conv1d(4, 4, 3), nn.GELU()) for _ in range(6)]
    model, x = nn.Sequential(*itertools.chain(*gates)), torch.randn(2, 4, 16)
    assert layouts(convert(model, x), x) == [not chunked] * 6
    with torch.no_grad():
        # The last one had better convert its own input, which is the smaller tensor.
        assert layouts(convert(model, x), x) == [True] * 5 + [False], "inference has no gradients"


class Chunk(nn.Module):
    def forward(self, x):
        signal, gate = x.chunk(2, dim=1)
        return signal.tanh() * gate.sigmoid()


def test_a_tensor_that_two_layers_want_in_two_layouts(monkeypatch):
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (nn.Conv1d(4, 4, k, padding=k // 2) for k in (1, 3, 5))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            x = self.first(x)
            return self.second(x) + self.third(x)

    monkeypatch.setattr(trial, "measure", lambda layer, shape, weight, *o: {1: SLOWER, 3: FASTER, 5: SLOWER}[weight[2]])
    model, x = Fork(), torch.randn(2, 4, 16)
    with torch.no_grad():
        convert(model, x)
        assert model.calls == 3, "the first layer gives the signal channels last, and ceases to"
        assert layouts(model, x) == [False, True, False]


def test_a_layer_that_is_called_twice_has_one_layout(monkeypatch):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.stays = nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3)

        def forward(self, x):
            return self.conv(x), self.conv(x[..., :8]), self.stays(x), self.stays(x)

    monkeypatch.setattr(trial, "measure", lambda layer, shape, *o: SLOWER if shape[2] == 8 else FASTER)
    x = torch.randn(2, 4, 16)
    model = convert(Twice(), x)
    assert model.conv._layout == Choice(False, False) and model.stays._layout == Choice(True, False)


@pytest.mark.parametrize("by_gpuopt", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("is_faster", [False, True])
def test_the_operator_of_gpuopt_computes_where_it_was_the_faster_one(by_gpuopt, is_faster, measured):
    measured.times = (FASTER if is_faster else SLOWER)._replace(by_gpuopt=by_gpuopt)
    x = torch.randn(2, 4, 16)
    assert convert(nn.Conv1d(4, 4, 3), x)._layout == Choice(is_faster, by_gpuopt[is_faster])


def test_the_cheapest_assignment_of_a_run():
    """The shortest path beside the costs of all assignments."""

    def cost(chain: list[Visit], end: float, last: tuple[bool, ...]) -> float:
        total, before = 0.0, chain[0].arrived
        for visit, is_last in zip(chain, last, strict=True):
            times = visit.times
            total += times.input * (is_last != before)
            total += times.channels_last * MARGIN if is_last else times.contiguous
            before = is_last
        return total + end * before

    draw = random.Random(0)
    for _ in range(200):
        chain = []
        for _ in range(draw.randint(1, 6)):
            chain.append(Visit(None, Times(*(draw.random() for _ in range(4))), arrived=draw.random() < 0.5))
        end = draw.random()
        found = chains._cheapest(chain, end)
        best = min(itertools.product((False, True), repeat=len(chain)), key=lambda last: cost(chain, end, last))
        assert cost(chain, end, tuple(found)) == pytest.approx(cost(chain, end, best))
