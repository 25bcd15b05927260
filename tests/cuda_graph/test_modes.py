"""Signatures: arguments, modes and switches, and where calls run eagerly."""

from __future__ import annotations

import collections
import copy
import enum
import threading
import time

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import torch_ops

from ..support.overriding import override
from ..support.runtime import deterministic_algorithms
from .support import Pair, each_device, on_cpu, on_cuda, recording, replays, runtime_of

pytestmark = pytest.mark.torch_version

Point = collections.namedtuple("Point", "x y")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flexible(nn.Module):
    """Takes anything."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, *others, **options):
        total = self.linear(x)
        for number, leaf in enumerate(torch.utils._pytree.tree_leaves((others, options)), 2):
            if isinstance(leaf, torch.Tensor):
                total = total + leaf.sum() * number
            elif isinstance(leaf, (int, float)):
                total = total * leaf
            elif isinstance(leaf, str):
                total = total + len(leaf)
            elif isinstance(leaf, Color):
                total = total - leaf.value
        return total


def t(device, *shape):
    return torch.randn(*shape, device=device)


ARGUMENTS = {
    "shapes": lambda d: [(t(d, rows, 8),) for rows in (2, 3, 2, 3, 2, 3)],
    "strides": lambda d: [(t(d, 4, 8),), (t(d, 8, 4).t(),), (t(d, 4, 16)[:, ::2],), (t(d, 1, 8).expand(4, 8),)] * 3,
    "dtypes": lambda d: [(t(d, 4, 8), t(d, 3).to(dtype)) for dtype in (torch.float32, torch.float64, torch.int64, torch.bool)] * 3,
    "numbers": lambda d: [(t(d, 4, 8), n) for n in (1, 2, 1.0, True, 2.0, -0.0, 0.0, float("nan"), 0)] * 3,
    "strings": lambda d: [(t(d, 4, 8), s) for s in ("a", "bb", None)] * 3,
    "enums": lambda d: [(t(d, 4, 8), c) for c in Color] * 3,
    "keywords": lambda d: [{"x": t(d, 4, 8), "a": t(d, 2), "b": 2}, {"x": t(d, 4, 8), "b": 2, "a": t(d, 2)}, {"x": t(d, 4, 8), "a": 3}] * 3,
    "nested": lambda d: [(t(d, 4, 8), [t(d, 2), (t(d, 1), {"k": t(d, 3), "n": None})], Point(t(d, 1), 2))] * 4,
    "structures": lambda d: [(t(d, 4, 8), [t(d, 2), t(d, 2)]), (t(d, 4, 8), (t(d, 2), t(d, 2))), (t(d, 4, 8), [t(d, 2), [t(d, 2)]])] * 3,
    "empty": lambda d: [(t(d, 0, 8),)] * 4,
    "scalars": lambda d: [(t(d, 4, 8), torch.randn((), device=d))] * 4,
    "requires_grad": lambda d: [(t(d, 4, 8).requires_grad_(n % 2 == 0), t(d, 2).requires_grad_(n % 3 == 0)) for n in range(18)],
    "a view at an offset": lambda d: [(t(d, 9, 9)[1:5, 1:],)] * 4,
    "one-off last batch": lambda d: [(t(d, rows, 8),) for rows in (4, 4, 4, 3, 4, 4, 4, 3)],
}  # fmt: skip


@each_device
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(device, name):
    with recording(device):
        pair = Pair(Flexible(), device, max_graphs=20)
        given = ARGUMENTS[name](device)
        for arguments in given:

            def step(module, arguments=arguments):
                module.zero_grad()
                args, kwargs = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
                result = module(*args, **kwargs)
                result.sum().backward()
                found = [x.grad for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
                for x in torch.utils._pytree.tree_leaves((args, kwargs)):
                    if isinstance(x, torch.Tensor):
                        x.grad = None
                return result, found

            pair.both(step)
        assert pair.replays() >= len(given) // 3, pair.reasons()


@each_device
@pytest.mark.parametrize(
    "value", [object(), {object(): 1}, set(), torch.nn.Linear(2, 2)], ids=["object", "key", "set", "module"]
)
def test_arguments_without_a_key_run_eagerly(device, value):
    with recording(device):
        pair = Pair(Flexible(), device)
        for _ in range(3):
            x = t(device, 4, 8)
            pair.both(lambda module, x=x: module(x, value))
        assert pair.replays() == 0 and "an argument is a" in pair.reasons()


@on_cuda
def test_arguments_of_the_host_run_eagerly(device):
    with recording(device):
        pair = Pair(Flexible(), device)
        for _ in range(3):
            x = t(device, 4, 8)
            pair.both(lambda module, x=x: module(x, torch.ones(())))
        assert pair.replays() == 0 and "is on cpu" in pair.reasons()


# ---------------------------------------------------------------- modes and switches


def autocast(device, **options):
    return lambda: torch.autocast(device, **options)


MODES = {
    "no_grad": lambda d: torch.no_grad,
    "inference_mode": lambda d: torch.inference_mode,
    "autocast": lambda d: autocast(d, dtype=torch.bfloat16),
    "autocast to float16": lambda d: autocast(d, dtype=torch.float16),
    "autocast without a cache": lambda d: autocast(d, dtype=torch.bfloat16, cache_enabled=False),
    "autocast off": lambda d: autocast(d, enabled=False),
    "deterministic": lambda d: deterministic_algorithms,
}


@each_device
@pytest.mark.parametrize("name", MODES)
def test_modes(device, name):
    mode = MODES[name](device)
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), device)
        for number in range(12):
            x = t(device, 4, 8)

            def step(module, number=number, x=x):
                module.zero_grad()
                if number % 2:
                    with mode():
                        result = module(x)
                else:
                    result = module(x)
                if result.requires_grad:
                    result.float().square().mean().backward()
                return result.clone()

            pair.both(step)
            if number % 5 == 4:  # the cache of casts would be wrong now
                pair.both(lambda module: [p.data.add_(0.5) for p in module.parameters()] and None)
        assert pair.replays() >= 8, pair.reasons()


@each_device
def test_several_calls_in_one_autocast(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), device)
        for _ in range(4):
            x = t(device, 4, 8)

            def step(module, x=x):
                module.zero_grad()
                with torch.autocast(device, dtype=torch.bfloat16):
                    first = module(x)
                    first.float().sum().backward()
                    with torch.no_grad():
                        module[0].weight.add_(1)
                    torch.clear_autocast_cache()
                    second = module(x)
                return first, second

            pair.both(step)
        assert pair.replays() > 3, pair.reasons()


@each_device
def test_backward_inside_autocast(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), device)
        for number in range(8):
            x = t(device, 4, 8)

            def step(module, number=number, x=x):
                module.zero_grad()
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = module(x).float().square().mean()
                    if number < 4:
                        loss.backward()
                if number >= 4:
                    loss.backward()

            pair.both(step)
        assert pair.replays() >= 5, pair.reasons()


@each_device
def test_grad_mode_that_changes_inside(device):
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            with torch.no_grad():
                y = self.other(x)
            with torch.enable_grad():
                return self.linear(y)

    with recording(device):
        pair = Pair(Inside(), device)
        for number in range(8):
            x = t(device, 4, 8)

            def step(module, number=number, x=x):
                with torch.set_grad_enabled(number % 2 == 0):
                    result = module(x)
                if number % 2 == 0:
                    result.sum().backward()
                return result.detach()

            pair.both(step)


@each_device
def test_the_default_dtype(device):
    class Fresh(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x), torch.ones(3, device=x.device) * 2

    with recording(device):
        pair = Pair(Fresh(), device)
        for number in range(8):
            torch.set_default_dtype(torch.float64 if number % 2 else torch.float32)
            try:
                x = torch.randn(4, 8, device=device, dtype=torch.float32)
                pair.both(lambda module, x=x: module(x))
            finally:
                torch.set_default_dtype(torch.float32)
        assert pair.replays() == 6


@on_cpu
def test_switches_are_part_of_the_signature(device):
    with recording(device):
        model = torch_ops.cuda_graph(nn.Linear(8, 8))
        x = t(device, 4, 8)
        switches = [
            (
                lambda: torch.backends.cuda.matmul.allow_tf32,
                lambda v: setattr(torch.backends.cuda.matmul, "allow_tf32", v),
            ),
            (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
            (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
        ]
        model(x)
        for number, (get, put) in enumerate(switches):
            before = get()
            try:
                put(not before)
                model(x)
                assert len(runtime_of(model).entries) == number + 2
            finally:
                put(before)
        with override("cpu", "mul"):
            model(x)
        assert len(runtime_of(model).entries) == len(switches) + 2
        model(x)
        assert len(runtime_of(model).entries) == len(switches) + 2 and replays(model) == 1


# ---------------------------------------------------------------- where calls run eagerly


def under_func(module, x):
    parameters = dict(module.named_parameters())
    return torch.func.grad(lambda p: torch.func.functional_call(module, p, (x,)).sum())(parameters)


def under_vmap(module, x):
    return torch.func.vmap(module)(x)


def under_jvp(module, x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        return forward_ad.unpack_dual(module(dual)).tangent


def under_functional_call(module, x):
    parameters = {name: p * 2 for name, p in module.named_parameters()}
    return torch.func.functional_call(module, parameters, (x,))


def under_anomaly(module, x):
    with torch.autograd.detect_anomaly(check_nan=False):
        return module(x)


def under_trace(module, x):
    return torch.jit.trace(module, (x,))(x)


def under_saved_tensors_hooks(module, x):
    with torch.autograd.graph.save_on_cpu():
        result = module(x)
    result.sum().backward()
    return result


def under_dispatch_mode(module, x):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(x)
    return counter.get_total_flops()


def under_export(module, x):
    return torch.export.export(module, (x,)).module()(x)


SURROUNDINGS = (
    under_func, under_vmap, under_jvp, under_functional_call, under_anomaly, under_trace, under_saved_tensors_hooks, under_dispatch_mode,
    under_export,
)  # fmt: skip


@each_device
@pytest.mark.parametrize("surrounding", SURROUNDINGS, ids=lambda surrounding: surrounding.__name__)
@pytest.mark.filterwarnings("ignore")
def test_places(device, surrounding):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), device)
        for _ in range(3):
            x = t(device, 4, 8)
            pair.both(lambda module, x=x: module(x))
        for _ in range(3):
            x = t(device, 4, 8)
            pair.both(lambda module, x=x: surrounding(module, x))
        x = t(device, 4, 8)
        before = pair.replays()
        pair.both(lambda module, x=x: module(x))
        assert pair.replays() == before + 1


@each_device
@pytest.mark.usefixtures("fresh_dynamo")
def test_compilation_of_a_parent_sees_the_plain_forward(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), device)
        for _ in range(3):
            pair.both(lambda module: module(torch.ones(4, 8, device=device)))
        compiled = {
            id(m): torch.compile(nn.Sequential(m, nn.Tanh()), backend="eager", fullgraph=True)
            for m in (pair.eager, pair.graphed)
        }
        for _ in range(3):
            x = t(device, 4, 8)
            pair.both(lambda module, x=x: compiled[id(module)](x))


@each_device
@pytest.mark.usefixtures("fresh_dynamo")
def test_a_compiled_module_below_stays_compiled(device):
    with recording(device):
        pair = Pair(nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 8))), device)
        for module in (pair.eager, pair.graphed):
            module[1].compile(backend="eager")
        for _ in range(4):
            x = t(device, 4, 8)
            pair.both(lambda module, x=x: module(x))
        assert pair.replays() == 0 and "compile" in pair.reasons()


@each_device
def test_threads(device):
    """Calls of several threads are right, whether replayed or not."""
    with recording(device):
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).to(device)
        graphed = torch_ops.cuda_graph(copy.deepcopy(model))
        wrong = []

        def work(seed):
            generator = torch.Generator(device=device).manual_seed(seed)
            for _ in range(30):
                x = torch.randn(16, 64, device=device, generator=generator)
                with torch.no_grad():
                    if not torch.allclose(graphed(x), model(x), atol=1e-4):
                        wrong.append(seed)
                time.sleep(0.001)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong and replays(graphed) > 0


@each_device
def test_a_module_that_calls_itself(device):
    class Recursive(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x, depth):
            y = torch.tanh(self.linear(x))
            return self(y, depth - 1) if depth else y

    with recording(device):
        pair = Pair(Recursive(), device)
        for _ in range(4):
            x = t(device, 4, 8)

            def step(module, x=x):
                module.zero_grad()
                module(x, 2).sum().backward()

            pair.both(step)
