"""A trial puts everything back: what is in the closure of the step, and what its first call shows."""

from __future__ import annotations

import copy
import functools
import random
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from ..support.overriding import nothing_is_left  # noqa: F401
from .support import trial


class Training:
    """A model whose state changes in every possible way."""

    def __init__(self, optimizer="Adam", steps=0):
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
        options = {} if optimizer == "Adam" else {"momentum": 0.9}
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), lr=0.1, **options)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9)
        self.generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(16, 4)
        for _ in range(steps):
            self.step()

    def step(self):
        self.optimizer.zero_grad()
        noise = torch.randn(16, 4, generator=self.generator) + random.random() + np.random.rand()
        loss = self.model(self.x + noise).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss

    def state(self):
        gradients = [None if p.grad is None else p.grad.clone() for p in self.model.parameters()]
        parts = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        randomness = [self.generator.get_state(), torch.get_rng_state(), random.getstate(), np.random.get_state()]
        return copy.deepcopy([*parts, gradients, *randomness])


def same(x, y):
    if isinstance(x, (torch.Tensor, np.ndarray)):
        return x.shape == y.shape and bool((x == y).all())
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[key], y[key]) for key in x)
    if isinstance(x, (list, tuple)):
        return len(x) == len(y) and all(map(same, x, y))
    return x == y


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_training(optimizer, steps):
    training = Training(optimizer, steps)
    before = training.state()
    report = trial(training.step)
    assert same(training.state(), before)
    assert report.results["PyTorch again"].relative == 0 == report.gradients["PyTorch again"].relative


def test_the_next_step_is_that_of_a_training_without_a_trial():
    def losses(with_trial):
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(1)
        training = Training(steps=1)
        if with_trial:
            trial(training.step)
        return [training.step().item() for _ in range(3)]

    assert losses(True) == losses(False)


hidden = nn.Linear(4, 4)
optimizers = [torch.optim.SGD(hidden.parameters(), lr=0.1)]


def step_of_globals():
    hidden(torch.ones(2, 4)).sum().backward()
    optimizers[0].step()


@pytest.mark.parametrize(
    "step",
    [
        step_of_globals,
        lambda: step_of_globals(),
        functools.partial(lambda f: f(), step_of_globals),
        functools.partial(lambda names: names["hidden"](torch.ones(2, 4)).sum().backward(), {"hidden": hidden}),
    ],
    ids=["globals", "function in globals", "partial", "arguments of a partial"],
)
def test_what_is_found(step):
    before = hidden.weight.clone()
    hidden.weight.grad = kept = torch.ones(4, 4)
    trial(step)
    assert torch.equal(hidden.weight, before)
    assert hidden.weight.grad is kept and torch.equal(kept, torch.ones(4, 4))
    hidden.weight.grad = None


def test_what_the_first_call_shows():
    """A model that a search does not find: the step imports it."""
    elsewhere = types.ModuleType("elsewhere")
    elsewhere.model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    elsewhere.loose = nn.Parameter(torch.ones(4))
    elsewhere.optimizer = torch.optim.AdamW([*elsewhere.model.parameters(), elsewhere.loose])
    sys.modules["elsewhere"] = elsewhere
    before = copy.deepcopy(elsewhere.model.state_dict())

    def step():
        import elsewhere

        (elsewhere.model(torch.randn(3, 4)) * elsewhere.loose).sum().backward()
        elsewhere.optimizer.step()

    try:
        trial(step)
    finally:
        del sys.modules["elsewhere"]
    assert same(elsewhere.model.state_dict(), before) and torch.equal(elsewhere.loose, torch.ones(4))
    assert not elsewhere.optimizer.state


def test_state_is_back_after_an_error():
    training = Training(steps=1)
    before, calls = training.state(), []

    def step():
        training.step()
        calls.append(1)
        if len(calls) == 4:
            raise StopIteration("no more batches")

    with pytest.raises(StopIteration, match="no more batches"):
        trial(step)
    assert same(training.state(), before)


def test_writes_to_other_tensors_are_noted():
    cache = torch.zeros(4)
    report = trial(lambda: cache.add_(1))
    assert "The step writes to tensors that are no parameters. They are not put back." in report.notes


def test_tensors_of_other_classes_are_noted():
    class Special(torch.Tensor):
        pass

    model = nn.Linear(4, 4)
    model.weight = nn.Parameter(model.weight.detach().as_subclass(Special))
    report = trial(lambda: model(torch.ones(2, 4)).as_subclass(torch.Tensor))
    assert "Tensors of class Special are not put back." in report.notes
