"""torch_ops.convert(model, layout="channels_last"): which layers of a stack stay channels last, and what a settled layer looks up."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

from torch_ops import _layout, _layout_runs, layout_cache
from torch_ops._layout_cache import Times
from torch_ops._layout_runs import MARGIN, Decision, Visit

from ..support.layouts import FASTER, SLOWER, convert, fake_measurement, layouts  # noqa: F401
from ..support.runtime import deterministic_algorithms

GAIN, LOSS = Times(1.0, 0.5, 0.5, 0.5), Times(1.0, 1.2, 0.5, 0.5)


def decisions(model: nn.Module) -> list[Decision]:
    found = [m._memory.decisions.values() for m in model.modules() if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d))]
    return list(itertools.chain(*found))


def settled(model: nn.Module, x: torch.Tensor, backward: bool = False) -> nn.Module:
    for _ in range(_layout_runs.MOST_ROUNDS + 2):
        result = model(x)
        if backward:
            result.square().sum().backward()
    assert all(decision.settled for decision in decisions(model))
    return model


def chain(*taps: int) -> nn.Sequential:
    """Layers that ``by_taps`` measures, with activations between them."""
    layers = [nn.Sequential(nn.Conv1d(4, 4, k, padding=k // 2), nn.GELU()) for k in taps]
    return convert(nn.Sequential(*layers))


@pytest.fixture
def by_taps(monkeypatch):
    """Layers of 3 taps gain, and layers of 5 taps lose."""
    monkeypatch.setattr(_layout, "measure", lambda layer, shape, weight, *others: {3: GAIN, 5: LOSS}[weight[2]])


# ---------------------------------------------------------------- runs


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
    model, x = chain(*taps), torch.randn(2, 4, 16)
    with torch.no_grad():
        assert layouts(settled(model, x), x) == stay


def test_a_layer_that_makes_signals_contiguous_ends_a_run(by_taps):
    class Padded(nn.Module):
        def forward(self, x):
            return functional.pad(x, (1, 1)).contiguous()

    model, x = chain(3, 3, 3, 3), torch.randn(2, 4, 16)
    model.insert(2, Padded())
    with torch.no_grad():
        assert layouts(settled(model, x), x) == [False] * 4, "two runs of two layers each"


@pytest.mark.parametrize("chunked", [False, True])
def test_gradients_that_arrive_contiguous_are_charged(chunked, monkeypatch):
    """The gradient of chunk is contiguous, so the layer before it converts it."""
    monkeypatch.setattr(_layout, "measure", lambda *_: Times(1.0, 0.55, 0.4, 1.0))
    gates = [(nn.Conv1d(4, 8, 3, padding=1), Chunk()) if chunked else (nn.Conv1d(4, 4, 3), nn.GELU()) for _ in range(6)]
    model, x = convert(nn.Sequential(*itertools.chain(*gates))), torch.randn(2, 4, 16)
    assert layouts(settled(model, x, backward=True), x) == [not chunked] * 6
    with torch.no_grad():
        # The last one had better convert its own input, which is the smaller tensor.
        assert layouts(settled(model, x), x) == [True] * 5 + [False], "inference has no gradients"


class Chunk(nn.Module):
    def forward(self, x):
        signal, gate = x.chunk(2, dim=1)
        return signal.tanh() * gate.sigmoid()


def test_a_tensor_that_two_layers_want_in_two_layouts(monkeypatch):
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (nn.Conv1d(4, 4, k, padding=k // 2) for k in (1, 3, 5))

        def forward(self, x):
            x = self.first(x)
            return self.second(x) + self.third(x)

    monkeypatch.setattr(
        _layout, "measure", lambda layer, shape, weight, *o: {1: SLOWER, 3: FASTER, 5: SLOWER}[weight[2]]
    )
    model, x = convert(Fork()), torch.randn(2, 4, 16)
    with torch.no_grad():
        assert layouts(settled(model, x), x) == [False, True, False]


def test_the_cheapest_assignment_of_a_run():
    """The shortest path beside the costs of all assignments."""

    def cost(run: list[Visit], end: float, last: tuple[bool, ...]) -> float:
        total, before = 0.0, run[0].arrived
        for visit, is_last in zip(run, last, strict=True):
            times = visit.decision.times
            total += times.input * (is_last != before)
            total += times.channels_last * MARGIN if is_last else times.contiguous
            before = is_last
        return total + end * before

    draw = random.Random(0)
    for _ in range(200):
        run = []
        for _ in range(draw.randint(1, 6)):
            run.append(Visit(Decision(Times(*(draw.random() for _ in range(4)))), draw.random() < 0.5))
        end = draw.random()
        found = _layout_runs._cheapest(run, end)
        best = min(itertools.product((False, True), repeat=len(run)), key=lambda last: cost(run, end, last))
        assert cost(run, end, tuple(found)) == pytest.approx(cost(run, end, best))


def test_threads_observe_on_their_own(by_taps):
    model, x = chain(3, 3, 3), torch.randn(2, 4, 16)
    with torch.no_grad():
        model(x)
        thread = threading.Thread(target=lambda: torch.no_grad()(settled)(model, x))
        thread.start()
        thread.join()
        assert layouts(settled(model, x), x) == [True] * 3


# ---------------------------------------------------------------- settled layers


@pytest.fixture
def looked_up(monkeypatch):
    """The calls of layers that had no settled decision for their arguments and modes."""
    calls = []

    def decide(module, *arguments):
        calls.append(module)
        return original(module, *arguments)

    original = _layout._decide
    monkeypatch.setattr(_layout, "_decide", decide)
    return calls


def test_settled_layers_observe_nothing(looked_up, monkeypatch):
    conv, x = convert(nn.Conv1d(4, 4, 3)), torch.randn(2, 4, 16)
    with torch.no_grad():
        want = settled(conv, x)(x)
        looked_up.clear()
        monkeypatch.setattr(_layout, "observe", None)
        assert torch.equal(conv(x), want) and not looked_up
        torch.testing.assert_close(conv(x.mT.contiguous().mT), want)
        torch.testing.assert_close(torch.vmap(conv)(torch.stack([x, x]))[1], want)
        assert not looked_up, "the layout of the input is no part of a decision"


MODES = {
    "no_grad": torch.no_grad,
    "benchmark": lambda: torch.backends.cudnn.flags(True, True),
    "deterministic cuDNN": lambda: torch.backends.cudnn.flags(True, False, deterministic=True),
    "precision": lambda: torch.backends.cudnn.flags(True, False, allow_tf32=False),
    "without cuDNN": lambda: torch.backends.cudnn.flags(False, False),
    "determinism": deterministic_algorithms,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes_have_decisions_of_their_own(mode, looked_up):
    conv, x = convert(nn.Conv1d(4, 4, 3)), torch.randn(2, 4, 16)
    with torch.backends.cudnn.flags(True, False, deterministic=False, allow_tf32=True):
        settled(conv, x)
        looked_up.clear()
        conv(x)
        assert not looked_up
        with MODES[mode]():
            conv(x)
        assert len(looked_up) == 1
        conv(x)
        assert len(looked_up) == 1


def test_arguments_have_decisions_of_their_own(looked_up):
    conv, x = settled(convert(nn.Conv1d(4, 4, 3)), torch.randn(2, 4, 16)), torch.randn(2, 4, 16)
    looked_up.clear()
    for count, other in enumerate((x.clone().requires_grad_(), torch.randn(2, 4, 17), torch.randn(3, 4, 16)), 1):
        conv(other)
        conv(x)
        assert len(looked_up) == count
    conv.weight.requires_grad_(False)
    conv(x)
    assert len(looked_up) == 4


@pytest.mark.parametrize("load", [False, True])
def test_a_changed_cache_is_asked_again(load, measured, tmp_path):
    conv, x = nn.Sequential(convert(nn.Conv1d(4, 4, 3))), torch.randn(2, 4, 16)
    conv[0]._forward_hooks.clear()
    measured.times = SLOWER
    with torch.no_grad():
        settled(conv, x)
        layout_cache.save(tmp_path / "slower.json")
        layout_cache.clear()
        measured.times = FASTER
        assert layouts(settled(conv, x), x) == [True] and len(measured) == 2
        if load:
            layout_cache.load(tmp_path / "slower.json")
            assert layouts(conv, x) == [False] and len(measured) == 2


def test_a_layer_remembers_a_bounded_number_of_calls(measured):
    conv = convert(nn.Conv1d(4, 4, 3))
    with torch.no_grad():
        for length in range(64, 64 + 2 * _layout._Memory.most_routes):
            conv(torch.randn(1, 4, length))
    assert len(conv._memory.routes) <= _layout._Memory.most_routes and len(measured) < 10


def test_copies_remember_nothing():
    conv = settled(convert(nn.Conv1d(4, 4, 3)), torch.randn(2, 4, 16))
    assert not copy.deepcopy(conv)._memory.routes and conv._memory.routes


def test_the_operator_of_gpuopt_computes_where_it_was_the_faster_one(measured):
    def names(own: tuple[bool, bool]) -> set[str]:
        layout_cache.clear()
        measured.times = Times(4.0, 1.0, 0.5, 0.5, own)
        conv, x = convert(nn.Conv1d(4, 4, 3)), torch.randn(2, 4, 16)
        with torch.no_grad():
            settled(conv, x)
            with torch.profiler.profile() as profile:
                conv(x)
        return {event.name for event in profile.events()}

    assert "gpuopt::_conv1d_image" in names((True, False))
    assert "gpuopt::conv1d" in names((False, True))


@pytest.mark.parametrize("training", [False, True])
def test_graphs_of_unsettled_layers_charge_half_of_the_conversions(training, measured):
    measured.times = Times(1.0, 0.7, 0.2, 0.2)
    conv, x = convert(nn.Conv1d(4, 4, 3)), torch.randn(2, 4, 16)
    with contextlib.nullcontext() if training else torch.no_grad():
        conv(x)
        with torch.profiler.profile() as profile:
            torch.vmap(conv)(torch.stack([x, x]))
    assert "gpuopt::_conv1d_image" in {event.name for event in profile.events()}


@pytest.mark.parametrize("transposed", [False, True])
def test_a_layer_that_stays_contiguous_is_pytorchs_own(transposed, monkeypatch):
    """It chooses again only for another kind of call, or after the times were forgotten."""
    monkeypatch.setattr(_layout, "measure", lambda *_: Times(1.0, 9.0, 0.5, 0.5))
    layer = (nn.ConvTranspose1d if transposed else nn.Conv1d)(4, 4, 3)
    model, x = convert(nn.Sequential(layer)), torch.randn(2, 4, 16)
    with torch.no_grad():
        want = settled(model, x)(x)
    calls, run = [], _layout._run
    monkeypatch.setattr(_layout, "_run", lambda *operands: calls.append(1) or run(*operands))
    with torch.no_grad():
        torch.testing.assert_close(model(x), want)
        assert not calls
        torch.testing.assert_close(model(x.mT.contiguous().mT), want)
        assert len(calls) == 1, "the signal is channels last"
        model(x[:, :, :8].contiguous())
        assert len(calls) == 2, "another length"
        layout_cache.clear()
        torch.testing.assert_close(model(x), want)
        assert len(calls) == 3
    model(x)
    assert len(calls) == 4, "with gradients"
    with torch.no_grad():
        copy.deepcopy(model)(x)
    assert len(calls) == 5, "copies remember nothing"
