"""Random modules, arguments and interleavings of calls beside eager ones.

GPUOPT_CUDA_GRAPH_CALLS=10000 makes so many calls, GPUOPT_CUDA_GRAPH_SEED=7 begins with another program. A failure names its program.
"""

from __future__ import annotations

import os
import random

import pytest
import torch
from torch import nn

from .support import Pair, each_device, recording

pytestmark = pytest.mark.torch_version

CALLS = int(os.environ.get("GPUOPT_CUDA_GRAPH_CALLS", "0"))
SEED = int(os.environ.get("GPUOPT_CUDA_GRAPH_SEED", "0"))
CALLS_OF_A_PROGRAM = 40
WIDTH = 8


class Residual(nn.Module):
    def __init__(self, inner: nn.Module, scale: float) -> None:
        super().__init__()
        self.inner, self.scale = inner, scale

    def forward(self, x):
        return x + self.inner(x) * self.scale


class Reads(nn.Module):
    """Reads a value on the host."""

    def forward(self, x):
        return x * 2 if x.detach().sum().item() > 0 else x


class Counts(nn.Module):
    """Counts its calls in Python, or on the device."""

    def __init__(self, on_device: bool) -> None:
        super().__init__()
        self.calls, self.on_device = 0, on_device
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        if self.on_device:
            self.count += 1
            return x + self.count
        self.calls += 1
        return x * self.calls


class Model(nn.Module):
    """Returns one or several results, in several structures."""

    def __init__(self, layers: nn.Module, kind: str) -> None:
        super().__init__()
        self.layers, self.kind, self.gain = layers, kind, 1.0

    def forward(self, x, other=None, power=1):
        y = self.layers(x) * self.gain
        if other is not None:
            y = y + other.sum() * power
        if self.kind == "dict":
            return {"loss": y.square().mean(), "result": y}
        if self.kind == "tuple":
            return y, y.detach().abs().amax(1), x
        return y


def layer(draw: random.Random, depth: int = 0) -> nn.Module:
    kind = draw.choice(
        ["linear"] * 3 + ["tanh", "norm", "batch", "dropout", "residual", "block", "gelu"] + ["rare"] * (depth == 0)
    )
    if kind in ("residual", "block") and depth < 2:
        inner = nn.Sequential(*(layer(draw, depth + 1) for _ in range(draw.randint(1, 3))))
        return Residual(inner, draw.choice([0.5, 1.0])) if kind == "residual" else inner
    if kind == "rare":
        return draw.choice([Reads, lambda: Counts(True), lambda: Counts(False)])()
    makers = {
        "tanh": nn.Tanh,
        "norm": lambda: nn.LayerNorm(WIDTH),
        "batch": lambda: nn.BatchNorm1d(WIDTH),
        "dropout": lambda: nn.Dropout(0.3),
        "gelu": nn.GELU,
    }
    return makers.get(kind, lambda: nn.Linear(WIDTH, WIDTH))()


class Program:
    """A module, and calls and changes of it."""

    def __init__(self, seed: int, device: str) -> None:
        self.draw, self.device = random.Random(seed), device
        torch.manual_seed(seed)
        layers = nn.Sequential(*(layer(self.draw) for _ in range(self.draw.randint(1, 5))))
        model = Model(layers, self.draw.choice(["tensor", "tensor", "dict", "tuple"]))
        self.pair = Pair(model, device, max_graphs=self.draw.choice([1, 3, 10]))
        self.kept: dict[int, list] = {id(self.pair.eager): [], id(self.pair.graphed): []}
        self.shapes = self.draw.sample([2, 3, 5, 8], 2)

    def arguments(self) -> tuple[tuple, dict]:
        x = torch.randn(self.draw.choice(self.shapes), WIDTH, device=self.device)
        kwargs = {}
        if self.draw.random() < 0.2:
            kwargs["other"] = torch.randn(3, device=self.device)
            if self.draw.random() < 0.5:
                kwargs["power"] = self.draw.choice([1, 2])
        return (x,), kwargs

    def step(self) -> None:
        action = self.draw.choice(
            [self.train] * 6 + [self.infer] * 3 + [self.accumulate, self.two_forwards, self.forward_only, self.retain, self.autocast]
            + [self.change] * 2 + [self.input_gradient]
        )  # fmt: skip
        self.pair.both(action())
        for eager, graphed in zip(*self.kept.values()):
            torch.testing.assert_close(
                graphed, eager, rtol=1e-3, atol=1e-3, equal_nan=True, msg=lambda m: f"a result from before: {m}"
            )

    def keep(self, module: nn.Module, result) -> None:
        kept = self.kept[id(module)]
        kept.append(torch.utils._pytree.tree_leaves(result)[0].detach())
        del kept[:-3]

    @staticmethod
    def loss(result) -> torch.Tensor:
        if isinstance(result, dict):
            return result["loss"]
        return (result[0] if isinstance(result, tuple) else result).square().mean()

    def train(self):
        args, kwargs = self.arguments()
        to_none, writes = self.draw.random() < 0.7, self.draw.random() < 0.1

        def action(module):
            module.zero_grad(set_to_none=to_none)
            result = module(*args, **kwargs)
            loss = self.loss(result)
            if loss.requires_grad:
                loss.backward()
            self.keep(module, result)
            if writes and isinstance(result, torch.Tensor):
                with torch.no_grad():
                    result.add_(1)
            with torch.no_grad():
                for p in module.parameters():
                    if p.grad is not None:
                        p.sub_(p.grad.clamp(-1, 1).nan_to_num(), alpha=0.01)
            return loss.detach()

        return action

    def infer(self):
        args, kwargs = self.arguments()
        mode = self.draw.choice([torch.no_grad, torch.inference_mode])

        def action(module):
            with mode():
                result = module(*args, **kwargs)
            self.keep(module, result)

        return action

    def accumulate(self):
        calls = [self.arguments() for _ in range(self.draw.randint(2, 3))]

        def action(module):
            for args, kwargs in calls:
                loss = self.loss(module(*args, **kwargs))
                if loss.requires_grad:
                    loss.backward()

        return action

    def two_forwards(self):
        calls, reverse = [self.arguments() for _ in range(self.draw.randint(2, 3))], self.draw.random() < 0.5

        def action(module):
            losses = [self.loss(module(*args, **kwargs)) for args, kwargs in calls]
            for loss in losses[:: -1 if reverse else 1]:
                if loss.requires_grad:
                    loss.backward()

        return action

    def forward_only(self):
        args, kwargs = self.arguments()
        return lambda module: self.loss(module(*args, **kwargs)).detach()

    def retain(self):
        args, kwargs = self.arguments()

        def action(module):
            loss = self.loss(module(*args, **kwargs))
            if loss.requires_grad:
                loss.backward(retain_graph=True)
                loss.backward()

        return action

    def autocast(self):
        args, kwargs = self.arguments()

        def action(module):
            with torch.autocast(self.device, dtype=torch.bfloat16):
                loss = self.loss(module(*args, **kwargs))
            module.zero_grad()
            if loss.requires_grad:
                loss.float().backward()
            module.zero_grad()

        return action

    def input_gradient(self):
        (x,), kwargs = self.arguments()

        def action(module):
            leaf = x.clone().requires_grad_()
            self.loss(module(leaf, **kwargs)).backward()
            return leaf.grad

        return action

    def change(self):
        kind, number = (
            self.draw.choice(["mode", "mode", "gain", "freeze", "load", "data", "weight"]),
            self.draw.random(),
        )

        def action(module):
            linears = [m for m in module.modules() if isinstance(m, nn.Linear)]
            if kind == "mode":
                module.train(number < 0.5)
            elif kind == "gain":
                module.gain = round(number, 1)
            elif kind == "load":
                module.load_state_dict({k: v.clone() for k, v in module.state_dict().items()}, assign=number < 0.5)
            elif linears:
                linear = linears[int(number * len(linears))]
                if kind == "freeze":
                    linear.requires_grad_(not linear.weight.requires_grad)
                elif kind == "data":
                    linear.weight.data = linear.weight.data * 0.9
                else:
                    linear.weight = nn.Parameter(linear.weight.detach().clone() * 0.9)

        return action


def run(first: int, programs: int, device: str) -> tuple[int, int]:
    """The numbers of calls and of replays."""
    calls = replays = 0
    for seed in range(first, first + programs):
        program = Program(seed, device)
        for number in range(CALLS_OF_A_PROGRAM):
            try:
                program.step()
            except Exception as error:
                again = f"GPUOPT_CUDA_GRAPH_SEED={seed} GPUOPT_CUDA_GRAPH_CALLS=1"
                raise AssertionError(f"program {seed}, step {number} ({again}): {error}") from error
        calls += CALLS_OF_A_PROGRAM
        replays += program.pair.replays()
    return calls, replays


@each_device
def test_random_programs(device):
    wanted = -(-CALLS // CALLS_OF_A_PROGRAM) or (25 if device == "cpu" else 50)
    with recording(device):
        calls, replays = run(SEED, wanted, device)
    print(f"{calls} steps, {replays} replays")
    assert wanted < 10 or replays > calls / 4, f"only {replays} replays in {calls} steps"
