"""torch_ops.cuda_graph: what is replayed, what a module keeps, limits, errors."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref

import pytest
import torch
from torch import nn

import torch_ops

from .support import Pair, each_device, on_cpu, reasons, recording, replays, runtime_of

pytestmark = pytest.mark.torch_version


def mlp(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, width))


def inference(x):
    def action(module):
        with torch.no_grad():
            return module(x)

    return action


def training(x):
    def action(module):
        module.zero_grad()
        result = module(x)
        result.square().mean().backward()
        return result

    return action


@each_device
def test_inference_is_replayed_from_the_second_call_on(device):
    with recording(device):
        pair = Pair(mlp(), device)
        for number in range(5):
            pair.both(inference(torch.randn(4, 8, device=device)))
            assert pair.replays() == number, pair.reasons()


@each_device
def test_training_is_replayed_from_the_second_call_on(device):
    with recording(device):
        pair = Pair(mlp(), device)
        for number in range(5):
            pair.both(training(torch.randn(4, 8, device=device)))
            assert pair.replays() == number, pair.reasons()


@each_device
def test_a_training_with_an_optimizer(device):
    with recording(device):
        pair = Pair(mlp(), device)
        optimizers = {id(m): torch.optim.AdamW(m.parameters(), lr=0.1) for m in (pair.eager, pair.graphed)}

        def step(module, x):
            optimizers[id(module)].zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimizers[id(module)].step()
            return loss

        for _ in range(6):
            x = torch.randn(4, 8, device=device)
            pair.both(lambda module, x=x: step(module, x))
        assert pair.replays() == 5, pair.reasons()


def test_on_the_cpu_nothing_changes():
    model = torch_ops.cuda_graph(mlp())
    x = torch.randn(4, 8)
    for _ in range(3):
        model(x).sum().backward()
    assert replays(model) == 0 and (reasons(model) in ("no GPU is used; ", "its parameters are on cpu; "))
    assert reasons(model).strip("; ") in str(torch_ops.cuda_graph_report())


# ---------------------------------------------------------------- the module stays what it is


def test_a_module_keeps_what_it_is():
    model = mlp()
    keys, parameters, text = list(model.state_dict()), list(model.parameters()), repr(model)
    assert torch_ops.cuda_graph(model) is model
    assert isinstance(model, nn.Sequential) and type(model).__name__ == "Sequential" and repr(model) == text
    assert list(model.state_dict()) == keys and all(x is y for x, y in zip(model.parameters(), parameters))
    assert inspect.signature(model.forward) == inspect.signature(nn.Sequential().forward)
    assert torch_ops.cuda_graph(model, reverse=True) is model and type(model) is nn.Sequential
    assert not any("gpuopt" in name for name in vars(model))


@on_cpu
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies_have_recordings_of_their_own(device, duplicate):
    with recording(device):
        model = torch_ops.cuda_graph(mlp(), max_graphs=3)
        x = torch.randn(2, 8)
        for _ in range(3):
            model(x)
        other = duplicate(model)
        assert type(other) is type(model) and replays(other) == 0
        assert runtime_of(other).shared is not runtime_of(model).shared and runtime_of(other).shared.max_graphs == 3
        with torch.no_grad():
            other[0].weight.zero_()
            other[0].bias.zero_()
        for _ in range(3):
            assert torch.equal(other(x), other[2].bias.expand(2, 8))
            assert not torch.equal(model(x), other(x))


@on_cpu
def test_a_shallow_copy_uses_its_own_attributes(device):
    with recording(device):
        model = torch_ops.cuda_graph(mlp())
        x = torch.randn(2, 8)
        for _ in range(3):
            model(x)
        other = copy.copy(model)
        other._modules = {"0": nn.Linear(8, 3)}
        assert other(x).shape == (2, 3) and model(x).shape == (2, 8)


@on_cpu
def test_hooks_of_the_module_run_in_every_call(device):
    with recording(device):
        model = torch_ops.cuda_graph(mlp())
        seen = []
        model.register_forward_pre_hook(lambda module, args: seen.append("before"))
        model.register_forward_hook(lambda module, args, result: seen.append("after"))
        model.register_full_backward_hook(lambda module, inputs, outputs: seen.append("backward"))
        for _ in range(4):
            model(torch.randn(2, 8)).sum().backward()
        assert seen == ["before", "after", "backward"] * 4 and replays(model) == 3


@each_device
def test_a_deleted_module_is_freed_at_once(device):
    with recording(device):
        model = torch_ops.cuda_graph(mlp().to(device))
        for _ in range(3):
            model(torch.randn(2, 8, device=device)).sum().backward()
        if device == "cpu":  # the recordings of tests hold the module
            for recorded in runtime_of(model).recorded():
                recorded.forward.function = recorded.backward.function = None
            del recorded
        weight, found = weakref.ref(model[0].weight), weakref.ref(runtime_of(model))
        gc.disable()
        try:
            del model
            assert found() is None and weight() is None
        finally:
            gc.enable()


# ---------------------------------------------------------------- signatures and limits


@on_cpu
def test_the_least_recent_signature_is_thrown_out(device):
    with recording(device) as backend:
        model = torch_ops.cuda_graph(mlp(), max_graphs=2)
        for rows in (1, 2, 3):
            for _ in range(4):
                with torch.no_grad():
                    model(torch.randn(rows, 8))
        entries = list(runtime_of(model).entries.values())
        assert [entry.status() for entry in entries] == ["eager", "recorded", "recorded"] and backend.recordings == 3


@on_cpu
def test_many_signatures_are_not_recorded_over_and_over(device):
    with recording(device) as backend:
        model = torch_ops.cuda_graph(mlp(), max_graphs=2)
        with torch.no_grad():
            for number in range(600):
                model(torch.randn(1 + number % 6, 8))
        assert backend.recordings < 30


@on_cpu
def test_more_memory_than_the_limit_is_declined(device):
    with recording(device):
        model = torch_ops.cuda_graph(mlp(), limit_bytes=100)
        with torch.no_grad():
            for _ in range(3):
                model(torch.randn(4, 8))
        assert "limit_bytes" in reasons(model) and not runtime_of(model).shared.pools


@on_cpu
def test_a_recording_that_is_slower_is_dropped(device, monkeypatch):
    with recording(device):
        from torch_ops._cuda_graph import capture

        monkeypatch.setattr(capture, "LONGEST", 1e-9)
        model = torch_ops.cuda_graph(mlp())
        for _ in range(4):
            model(torch.randn(4, 8)).sum().backward()
        assert "a replay takes" in reasons(model) and replays(model) == 0


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "error, message, call",
    [
        (TypeError, "cuda_graph: model must be a module: expected torch.nn.Module", lambda: torch_ops.cuda_graph(len)),
        (TypeError, "max_graphs must be a number: expected int, got float", lambda: torch_ops.cuda_graph(mlp(), max_graphs=2.0)),
        (ValueError, "max_graphs must be positive: expected 1 or more, got 0", lambda: torch_ops.cuda_graph(mlp(), max_graphs=0)),
        (ValueError, "limit_bytes must be positive", lambda: torch_ops.cuda_graph(mlp(), limit_bytes=-1)),
        (ValueError, "model must not be scripted", lambda: torch_ops.cuda_graph(torch.jit.script(mlp()))),
    ],
)  # fmt: skip
def test_errors(error, message, call):
    with pytest.raises(error, match=message):
        call()
