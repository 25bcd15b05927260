"""Gradients of graphed modules: accumulation, results that are kept, several forward passes, derivatives of derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_ops

from .support import Pair, each_device, on_cpu, recording, runtime_of, same

pytestmark = pytest.mark.torch_version


class Net(nn.Module):
    """Two linear layers around a function whose derivative needs values."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def warmed(pair: Pair, shape=(4, 8), calls: int = 3, **options) -> None:
    """Training steps, so that the next one is replayed."""
    for _ in range(calls):
        x = torch.randn(shape, device=pair.device)

        def step(module, x=x):
            module.zero_grad()
            module(x.clone().requires_grad_(options.get("requires_grad", False))).square().mean().backward()

        pair.both(step)
    assert pair.replays() == calls - 1, pair.reasons()


@each_device
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("times", [2, 3])
def test_accumulation(device, set_to_none, times):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for _ in range(3):
            xs = torch.randn(times, 4, 8, device=device)

            def step(module, xs=xs):
                module.zero_grad(set_to_none=set_to_none)
                for x in xs:
                    module(x).square().mean().backward()

            pair.both(step)
        assert pair.replays() == 2 + 3 * times


@each_device
def test_gradients_that_are_kept_are_not_overwritten(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        kept = []
        for _ in range(3):
            x = torch.randn(4, 8, device=device)

            def step(module, x=x):
                module.zero_grad(set_to_none=True)
                module(x).sum().backward()
                kept.append([p.grad for p in module.parameters()])
                kept[-1] += [p.grad.view(-1)[1:] for p in module.parameters()]

            pair.both(step)
        for eager, graphed in zip(kept[::2], kept[1::2]):
            same(graphed, eager, "gradients from before")


@each_device
def test_gradients_by_autograd_grad_are_the_callers(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        kept = []
        for _ in range(3):
            x = torch.randn(4, 8, device=device)
            pair.both(lambda m, x=x: kept.append(torch.autograd.grad(m(x).sum(), list(m.parameters()))))
        for eager, graphed in zip(kept[::2], kept[1::2]):
            same(graphed, eager, "gradients from before")


@each_device
def test_a_parameter_in_two_graphed_modules(device):
    with recording(device):
        shared = nn.Linear(8, 8)
        modules = [nn.Sequential(nn.Sequential(shared, nn.Tanh()), nn.Linear(8, 8)) for _ in range(2)]
        pair = Pair(nn.ModuleList(modules), device)
        torch_ops.cuda_graph(pair.graphed, reverse=True)
        for module in pair.graphed:
            torch_ops.cuda_graph(module)
        for _ in range(4):
            x = torch.randn(4, 8, device=device)

            def step(both, x=x):
                both.zero_grad()
                (both[0](x).sum() + both[1](x).square().sum()).backward()

            pair.both(step)
        assert all(runtime_of(module).recorded() for module in pair.graphed)


@each_device
def test_shared_weights_within_a_module(device):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.embedding(tokens)))

    with recording(device):
        pair = Pair(Tied(), device)
        for _ in range(4):
            tokens = torch.randint(10, (3, 5), device=device)

            def step(module, tokens=tokens):
                module.zero_grad()
                module(tokens).square().mean().backward()

            pair.both(step)
        assert pair.replays() == 3


@each_device
def test_frozen_and_thawed_parameters(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for frozen in (True, True, True, False, True, False):
            x = torch.randn(4, 8, device=device)

            def step(module, frozen=frozen, x=x):
                module.first.requires_grad_(not frozen)
                module.zero_grad()
                module(x).sum().backward()

            pair.both(step)
        assert pair.replays() > 4


@each_device
def test_gradients_of_arguments(device):
    with recording(device):
        pair = Pair(Net(), device)
        for _ in range(4):
            x = torch.randn(4, 8, device=device)

            def step(module, x=x):
                leaf = x.clone().requires_grad_()
                module.zero_grad()
                module(leaf * 2).square().sum().backward()
                return leaf.grad

            pair.both(step)
        assert pair.replays() == 3


@each_device
def test_one_tensor_as_two_arguments(device):
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8))

        def forward(self, x, y):
            return x * self.weight + torch.exp(y) + (1 if x is y else 0)

    with recording(device):
        pair = Pair(Product(), device)
        for same_tensor in (True, True, True, False, False, False, True):
            x = torch.randn(4, 8, device=device)

            def step(module, same_tensor=same_tensor, x=x):
                leaf, other = x.clone().requires_grad_(), (x + 1).requires_grad_()
                result = module(leaf, leaf if same_tensor else other)
                result.sum().backward()
                return result, leaf.grad, other.grad

            pair.both(step)
        assert pair.replays() == 5


@each_device
@pytest.mark.parametrize("passes", [2, 3, 4])
def test_several_forward_passes_before_a_backward_pass(device, passes):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for _ in range(4):
            xs = torch.randn(passes, 4, 8, device=device)

            def step(module, xs=xs):
                module.zero_grad()
                results = [module(x) for x in xs]
                sum(result.square().mean() for result in results).backward()
                return results

            pair.both(step)
        assert pair.replays() >= 2 + 4 + 2


@each_device
def test_backward_passes_in_the_other_order(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for _ in range(4):
            xs = torch.randn(2, 4, 8, device=device)

            def step(module, xs=xs):
                module.zero_grad()
                first, second = (module(x).square().mean() for x in xs)
                first.backward()
                third = module(xs[0] + 1).sum()
                second.backward()
                third.backward()

            pair.both(step)


@each_device
def test_evaluation_between_forward_and_backward(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for _ in range(5):
            x, other = torch.randn(2, 4, 8, device=device)

            def step(module, x=x, other=other):
                module.zero_grad()
                result = module(x)
                with torch.no_grad():
                    seen = module(other)
                result.square().sum().backward()
                return result, seen

            pair.both(step)
        assert pair.replays() == 2 + 5 + 4


@each_device
def test_forward_passes_without_backward(device):
    with recording(device):
        pair = Pair(Net(), device)
        for number in range(6):
            x = torch.randn(4, 8, device=device)
            pair.both(lambda module, x=x: module(x))
            assert pair.replays() == number


@each_device
def test_backward_twice_with_retain_graph(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for _ in range(3):
            x = torch.randn(4, 8, device=device)

            def step(module, x=x):
                module.zero_grad()
                loss = module(x).square().mean()
                loss.backward(retain_graph=True)
                loss.backward()

            pair.both(step)
        assert "retain_graph" in pair.reasons()


@each_device
def test_backward_twice_without_retain_graph_raises_as_in_eager_mode(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for module in (pair.eager, pair.graphed):
            loss = module(torch.randn(4, 8, device=device)).square().mean()
            loss.backward()
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                loss.backward()


@each_device
def test_double_backward(device):
    """A gradient penalty, as of Wasserstein GANs."""
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair, requires_grad=True)
        for _ in range(3):
            x = torch.randn(4, 8, device=device)

            def step(module, x=x):
                leaf = x.clone().requires_grad_()
                module.zero_grad()
                (gradient,) = torch.autograd.grad(module(leaf).sum(), leaf, create_graph=True)
                penalty = (gradient.norm(dim=1) - 1).square().mean()
                penalty.backward()
                return gradient.detach(), leaf.grad

            pair.both(step)
        assert "create_graph" in pair.reasons()


@each_device
def test_parameters_changed_between_forward_and_backward_raise_as_in_eager_mode(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for module in (pair.eager, pair.graphed):
            loss = module(torch.randn(4, 8, device=device)).square().mean()
            with torch.no_grad():
                module.last.weight.mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


@each_device
def test_parameters_that_the_backward_pass_does_not_need_may_change(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        x = torch.randn(4, 8, device=device)

        def step(module):
            module.zero_grad()
            loss = module(x).square().mean()
            with torch.no_grad():
                module.last.bias.add_(1)
            loss.backward()

        pair.both(step)
        assert pair.replays() == 3


# ---------------------------------------------------------------- results


class Several(nn.Module):
    """Returns results of several kinds."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        if self.kind == "argument":
            return x, y
        if self.kind == "parameter":
            return y, self.linear.weight
        if self.kind == "twice":
            return y, y
        if self.kind == "view":
            return y, y[1:]
        if self.kind == "view of argument":
            return y, x[1:]
        if self.kind == "chunks":
            return y.chunk(2, dim=1)
        if self.kind == "expanded":
            return y.sum(0, keepdim=True).expand(3, 8)
        if self.kind == "transposed":
            return y.t(), {"a": [y.exp(), None, 3], "b": "text"}
        if self.kind == "integers":
            return y, y.argmax(1), (y > 0), 2.5
        if self.kind == "detached":
            return y, torch.tanh(y).detach()
        if self.kind == "empty":
            return y, y[:0] * 2
        raise ValueError(self.kind)


KINDS = (
    "argument",
    "parameter",
    "twice",
    "view",
    "view of argument",
    "chunks",
    "expanded",
    "transposed",
    "integers",
    "detached",
    "empty",
)


@each_device
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
def test_results(device, kind, trains):
    with recording(device):
        pair = Pair(Several(kind), device)
        kept = []
        for _ in range(5):
            x = torch.randn(4, 8, device=device)

            def step(module, x=x):
                module.zero_grad()
                with torch.set_grad_enabled(trains):
                    result = module(x)
                    kept.append(result)
                    if trains:
                        first = next(y for y in torch.utils._pytree.tree_leaves(result) if y.requires_grad)
                        first.square().sum().backward()
                return result

            pair.both(step)
        for eager, graphed in zip(kept[::2], kept[1::2]):
            same(graphed, eager, "results from before")
        assert pair.replays() == (0 if "view" in kind else 4), pair.reasons()


@each_device
@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
def test_results_are_the_callers_to_write_to(device, trains):
    with recording(device):
        pair = Pair(Net(), device)
        kept = []
        for _ in range(4):
            x = torch.randn(4, 8, device=device)

            def step(module, x=x):
                module.zero_grad()
                with torch.set_grad_enabled(trains):
                    result = module(x)
                    result.mul_(2)
                    kept.append(result.detach().view(-1)[3:])
                    if trains:
                        result.sum().backward()
                return result

            pair.both(step)
        for eager, graphed in zip(kept[::2], kept[1::2]):
            same(graphed, eager, "views from before")
        assert pair.replays() == 3


@each_device
def test_results_without_gradients_leave_no_gradient(device):
    """In eager mode a parameter that no loss reaches has no gradient, and optimizers skip it."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.one(x), self.other(x)

    with recording(device):
        pair = Pair(Heads(), device)
        for number in (0, 0, 0, 1, 1, 0, 0, 1, 1, 1):
            x = torch.randn(4, 8, device=device)

            def step(module, number=number, x=x):
                module.zero_grad(set_to_none=True)
                module(x)[number].square().mean().backward()

            pair.both(step)


@each_device
def test_gradients_in_any_layout(device):
    with recording(device):
        pair = Pair(Net(), device)
        warmed(pair)
        for given in (torch.randn(8, 4, device=device).t(), torch.ones((), device=device).expand(4, 8)):
            x = torch.randn(4, 8, device=device)

            def step(module, given=given, x=x):
                module.zero_grad()
                module(x).backward(given)

            pair.both(step)
        assert pair.replays() == 4


@each_device
def test_hooks_of_tensors(device):
    with recording(device):
        pair = Pair(Net(), device)
        seen = {id(pair.eager): [], id(pair.graphed): []}
        for module in (pair.eager, pair.graphed):
            module.first.weight.register_hook(lambda g, m=module: seen[id(m)].append("hook") or g * 2)
            module.last.weight.register_post_accumulate_grad_hook(lambda p, m=module: seen[id(m)].append("accumulated"))
        for _ in range(4):
            x = torch.randn(4, 8, device=device)

            def step(module, x=x):
                module.zero_grad()
                leaf = x.clone().requires_grad_()
                leaf.register_hook(lambda g: g * 3)
                module(leaf).sum().backward()
                return leaf.grad

            pair.both(step)
        assert sorted(seen[id(pair.eager)]) == sorted(seen[id(pair.graphed)]) and pair.replays() == 3


@each_device
def test_checkpoints_around_a_graphed_module(device):
    from torch.utils.checkpoint import checkpoint

    with recording(device):
        for use_reentrant in (False, True):
            pair = Pair(nn.Sequential(Net(), nn.Dropout(0.5)), device)
            for _ in range(4):
                x = torch.randn(4, 8, device=device)

                def step(module, x=x, use_reentrant=use_reentrant):
                    module.zero_grad()
                    leaf = x.clone().requires_grad_()
                    checkpoint(module, leaf, use_reentrant=use_reentrant).square().sum().backward()
                    return leaf.grad

                pair.both(step)


@each_device
def test_a_loss_inside_the_module(device):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x, labels):
            logits = self.net(x)
            return {"loss": F.cross_entropy(logits, labels), "logits": logits}

    with recording(device):
        pair = Pair(WithLoss(), device)
        for _ in range(5):
            x, labels = torch.randn(4, 8, device=device), torch.randint(8, (4,), device=device)

            def step(module, x=x, labels=labels):
                module.zero_grad()
                result = module(x, labels=labels)
                result["loss"].backward()
                return result

            pair.both(step)
        assert pair.replays() == 4, pair.reasons()


@on_cpu
def test_backward_is_recorded_as_it_is_called(device):
    """The first calls show which results get gradients, so one recording is enough."""
    with recording(device) as backend:
        pair = Pair(Several("detached"), device)
        for _ in range(4):
            pair.both(lambda module: module(torch.ones(4, 8))[0].sum().backward())
        assert backend.recordings == 2 and pair.replays() == 3
