"""The state of graphed modules: statistics, random numbers, replaced weights, and what a recording would get wrong."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, weight_norm

import torch_ops

from .support import Pair, each_device, on_cuda, reasons, recording, replays, runtime_of

pytestmark = pytest.mark.torch_version


def train(x, **zero):
    def step(module):
        module.zero_grad(**zero)
        result = module(x)
        result.square().mean().backward()
        return result

    return step


def nothing(_):
    """For changes, which return nothing that could be compared."""


def calls(pair: Pair, count: int = 4, shape=(4, 8)) -> None:
    for _ in range(count):
        pair.both(train(torch.randn(shape, device=pair.device)))


# ---------------------------------------------------------------- statistics and random numbers


@each_device
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm(device, momentum):
    """Statistics and num_batches_tracked are as after eager calls: none of the calls that record and compare counts."""
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 8)), device)
        calls(pair, 6)
        # Without a momentum, the host reads the number of calls.
        assert pair.replays() == (5 if momentum else 0) and pair.graphed[1].num_batches_tracked.item() == 6


@each_device
def test_training_and_evaluation_take_turns(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)), device)
        for number in range(12):
            pair.both(lambda module, number=number: module.train(number % 3 != 2) and None)
            calls(pair, 1)
        assert pair.replays() == 10


@each_device
def test_evaluation_of_one_module_below(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), device)
        for number in range(8):
            pair.both(lambda module, number=number: module[1].train(number % 2 == 0) and None)
            calls(pair, 1)
        assert pair.replays() == 6


@each_device
def test_dropout_draws_the_numbers_of_eager_calls(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 8), nn.Dropout(0.2)), device)
        calls(pair, 6)
        assert pair.replays() == 5
        x = torch.randn(4, 8, device=device)
        first, second = pair.graphed(x), pair.graphed(x)
        assert not torch.equal(first, second)
        torch.manual_seed(7)
        third = pair.graphed(x)
        torch.manual_seed(7)
        assert torch.equal(third, pair.graphed(x))


@each_device
def test_random_numbers_and_several_backward_passes(device):
    """A backward pass that is computed again has the mask of its forward pass, and moves no generator."""
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.BatchNorm1d(64)), device)
        calls(pair, 3)
        x = torch.randn(4, 8, device=device)

        def step(module):
            module.zero_grad()
            loss = module(x).square().mean()
            torch.rand(3, device=device)
            loss.backward(retain_graph=True)
            loss.backward()
            return torch.rand(3, device=device)

        pair.both(step)


# ---------------------------------------------------------------- weights that are replaced


class Scale(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, weight):
        return weight * 2


def other_linear(module):
    torch.manual_seed(3)
    return nn.Linear(8, 8).to(module[0].weight.device)


def load_assigned(module):
    torch.manual_seed(4)
    module.load_state_dict({k: torch.randn_like(v) for k, v in module.state_dict().items()}, assign=True)


def set_data(module):
    module[0].weight.data = module[0].weight.data * 2


def set_data_transposed(module):
    module[0].weight.data = module[0].weight.data.t()


def swap_buffer(module):
    module[1].scale = module[1].scale * 3


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(8))
        self.plain = 2.0

    def forward(self, x):
        return x * self.scale * self.plain


CHANGES = {
    "load_state_dict": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}) and None,
    "load_state_dict(assign)": load_assigned,
    "data": set_data,
    "data transposed": set_data_transposed,
    "double": lambda m: m.double() and None,
    "in place": lambda m: nothing(m[0].weight.data.mul_(2)),
    "a new parameter": lambda m: setattr(m[0], "weight", nn.Parameter(m[0].weight.detach() * 2)),
    "a new module": lambda m: m.__setitem__(0, other_linear(m)),
    "one module more": lambda m: m.append(nn.Tanh()) and None,
    "no bias": lambda m: setattr(m[0], "bias", None),
    "a buffer": swap_buffer,
    "a buffer in place": lambda m: nothing(m[1].scale.mul_(2)),
    "a number": lambda m: setattr(m[1], "plain", 5.0),
    "a parametrization": lambda m: parametrize.register_parametrization(m[0], "weight", Scale(8)) and None,
    "weight norm": lambda m: parametrizations.weight_norm(m[0]) and None,
    "pruning": lambda m: prune.l1_unstructured(m[0], "weight", 0.5) and None,
    "requires_grad": lambda m: nothing(m[0].weight.requires_grad_(False)),
    "another forward": lambda m: setattr(m[1], "forward", lambda x: x * 7),
}


@each_device
@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_noticed(device, name):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), Buffered()), device)
        calls(pair, 3)
        assert pair.replays() == 2
        change = CHANGES[name]
        pair.both(change)
        for _ in range(3):
            x = torch.randn(4, 8, device=device, dtype=pair.eager[0].weight.dtype)
            pair.both(train(x))
        pair.both(change if name in ("data", "in place", "double", "a buffer") else lambda module: None)
        for _ in range(3):
            x = torch.randn(4, 8, device=device, dtype=pair.eager[0].weight.dtype)
            pair.both(train(x))


@each_device
def test_a_moved_average_of_weights(device):
    """Evaluation with averaged weights, which are swapped in and out by their data."""
    with recording(device):
        pair = Pair(nn.Linear(8, 8), device)
        averages = {id(m): [p.detach().clone() for p in m.parameters()] for m in (pair.eager, pair.graphed)}

        def swap(module):
            for p, average in zip(module.parameters(), averages[id(module)]):
                p.data, average.data = average.data, p.data

        for _ in range(8):
            calls(pair, 1)
            pair.both(swap)
        assert pair.replays() == 6


@each_device
def test_old_weight_norm(device):
    """torch.nn.utils.weight_norm computes the weight by a hook, and keeps it in an attribute."""
    with recording(device):
        with pytest.warns(FutureWarning):
            model = nn.Sequential(weight_norm(nn.Linear(8, 8)), nn.Tanh(), weight_norm(nn.Linear(8, 8)))
        pair = Pair.__new__(Pair)
        pair.device, pair.eager = device, model.to(device)
        with pytest.warns(FutureWarning):
            pair.graphed = nn.Sequential(weight_norm(nn.Linear(8, 8)), nn.Tanh(), weight_norm(nn.Linear(8, 8))).to(
                device
            )
        pair.graphed.load_state_dict(pair.eager.state_dict())
        torch_ops.cuda_graph(pair.graphed)
        calls(pair, 4)
        assert pair.replays() == 3, pair.reasons()


@each_device
def test_parametrized_weights(device):
    with recording(device):
        model = nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 8)), nn.Tanh())
        pair = Pair(model, device)
        calls(pair, 4)
        assert pair.replays() == 3, pair.reasons()


@each_device
def test_tensors_in_attributes(device):
    """Tensors that are no buffers, in attributes and in lists, may be replaced and written to."""

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.masks = [torch.ones(8, device=device)]
            self.settings = {"scale": torch.ones(8, device=device), "power": 2}

        def forward(self, x):
            return self.linear(x * self.masks[0]) ** self.settings["power"] * self.settings["scale"]

    def replace(module):
        module.masks[0] = module.masks[0] * 2

    with recording(device):
        pair = Pair(Module(), device)
        calls(pair, 3)
        assert pair.replays() == 2, pair.reasons()
        changes = (
            replace,
            lambda m: nothing(m.masks[0].mul_(3)),
            lambda m: m.settings.update(power=3),
            lambda m: m.settings.update(scale=m.settings["scale"] * 2),
        )
        for change in changes:
            pair.both(change)
            calls(pair, 3)
        assert pair.replays() > 6


# ---------------------------------------------------------------- what a recording would get wrong


class Wrong(nn.Module):
    """Computes what can't be recorded."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(8, 8)
        self.count, self.seen, self.table = 0, [], {}
        self.generator = numpy.random.default_rng(0)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        y = self.linear(x)
        kind = self.kind
        if kind == "counter":
            self.count += 1
            return y * self.count
        if kind == "list":
            self.seen.append(1)
            return y * len(self.seen)
        if kind == "dict":
            self.table["n"] = self.table.get("n", 0) + 1
            return y * self.table["n"]
        if kind == "random":
            return y * random.random()
        if kind == "numpy":
            return y * float(numpy.random.rand())
        if kind == "numpy generator":
            return y * self.generator.random()
        if kind == "item":
            return y * x.sum().item()
        if kind == "branch":
            return y if x.sum() > 0 else -y
        if kind == "nonzero":
            return y[(x > 0).nonzero()[:, 0]]
        if kind == "mask":
            return y[x > 0]
        if kind == "unique":
            return y.sum() + x.round().unique().numel()
        if kind == "closure":
            return y * OUTSIDE[x.device.type]
        if kind == "argument":
            return self.linear(x.add_(1))
        if kind == "parameter":
            with torch.no_grad():
                self.linear.bias.add_(1)
            return y + 0
        if kind == "structure":
            return (y, y + 1) if random.random() < 0.5 else y
        if kind == "list of numbers":
            return y * torch.tensor([float(self.count)] * 8, device=x.device) + x.tolist()[0][0]
        if kind == "print":
            return y * float(str(y.detach().sum()).partition("(")[2].partition(",")[0].rstrip(")"))
        raise ValueError(kind)


OUTSIDE = {}
WRONG = (
    "counter", "list", "dict", "random", "numpy", "numpy generator", "item", "branch", "nonzero", "mask", "unique", "closure",
    "argument", "parameter", "structure", "list of numbers", "print",
)  # fmt: skip


@each_device
@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_recorded_runs_eagerly(device, kind):
    if kind == "print" and device == "cpu":
        pytest.skip("only a GPU shows that a tensor is printed")
    OUTSIDE[device] = torch.full((8,), 2.0, device=device)
    with recording(device):
        pair = Pair(Wrong(kind), device)
        for number in range(12):
            OUTSIDE[device] = OUTSIDE[device] + 1
            x = torch.randn(4, 8, device=device)

            def step(module, number=number, x=x):
                random.seed(number)
                numpy.random.seed(number)
                module.zero_grad()
                result = module(x.clone())
                for y in result if isinstance(result, tuple) else (result,):
                    y.sum().backward(retain_graph=True)
                return result, random.random(), numpy.random.rand(), module.count, list(module.seen), dict(module.table)

            pair.both(step)
        assert pair.replays() == 0 and pair.reasons()


@on_cuda
@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.ones(8).to(x.device),
        lambda x: torch.ones(8).pin_memory().to(x.device, non_blocking=True),
        lambda x: torch.tensor([1.0, 2.0], device=x.device)[0],
        lambda x: torch.randn(8).to(x.device, non_blocking=True),
        lambda x: x.cpu()[0].to(x.device),
        lambda x: torch.rand(1).item(),
    ],
)
def test_tensors_of_the_host(device, make):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x) * make(x)

    with recording(device):
        pair = Pair(Module(), device)
        for number in range(4):
            x = torch.randn(4, 8, device=device)

            def step(module, number=number, x=x):
                torch.manual_seed(number)
                return module(x)

            pair.both(step)
        assert pair.replays() == 0, pair.reasons()


@on_cuda
def test_a_buffer_of_the_host(device):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.scale = nn.Linear(8, 8), torch.tensor(2.0)

        def forward(self, x):
            return self.linear(x) * self.scale

    with recording(device):
        pair = Pair(Module(), device)
        for _ in range(4):
            pair.both(lambda module: nothing(module.scale.add_(1)))
            calls(pair, 1)
        assert pair.replays() == 0 and "host" in pair.reasons()


@each_device
def test_a_counter_on_the_device_counts(device):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            self.steps += 1
            return self.linear(x) * self.steps

    with recording(device):
        pair = Pair(Counter(), device)
        calls(pair, 5)
        assert pair.replays() == 4 and pair.graphed.steps.item() == 5


@each_device
def test_a_buffer_that_is_registered_anew_in_each_call(device):
    class Anew(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("mean", torch.zeros(8))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
            return self.linear(x) + self.mean

    with recording(device):
        pair = Pair(Anew(), device)
        calls(pair, 12)
        assert pair.replays() == 0 and pair.reasons()


# ---------------------------------------------------------------- modules below


class Branch(nn.Module):
    """Reads a value on the host between two blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            if x.sum().item() > 1e9:
                return x
        return x


@each_device
def test_modules_below_are_recorded(device):
    with recording(device):
        pair = Pair(Branch(), device)
        calls(pair, 6)
        assert pair.replays() == 0 and "host reads" in pair.reasons()
        assert [replays(block) for block in pair.graphed.blocks] == [4, 4, 4], reasons(pair.graphed.blocks[0])
        for _ in range(3):
            xs = torch.randn(2, 4, 8, device=device)
            pair.both(lambda module, xs=xs: sum(module(x).sum() for x in xs).backward())
        names = [row.module for row in torch_ops.cuda_graph_report().rows if row.replays]
        assert "Branch.blocks.1" in names
        torch_ops.cuda_graph(pair.graphed, reverse=True)
        assert all(type(block) is nn.Sequential for block in pair.graphed.blocks)


@each_device
def test_a_hook_below(device):
    with recording(device):
        pair = Pair(
            nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 8), nn.Tanh())), device
        )
        calls(pair, 3)
        seen = {id(module[0][1]): [] for module in (pair.eager, pair.graphed)}

        def hook(module, args, result):
            seen[id(module)].append(1)
            return result * 2

        for module in (pair.eager, pair.graphed):
            module[0][1].register_forward_hook(hook)
        calls(pair, 5)
        assert list(seen.values()) == [[1] * 5] * 2
        assert replays(pair.graphed[1]) > 0 and "hooks" in pair.reasons()


@each_device
def test_a_module_whose_attributes_change_between_calls_is_given_up(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), Buffered()), device)
        for number in range(15):
            pair.both(lambda module, number=number: setattr(module[1], "plain", float(number)))
            calls(pair, 1)
        assert "plain changes between calls" in runtime_of(pair.graphed).given_up
