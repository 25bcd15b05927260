"""Calls of a module beside its copy, on the GPU, and on the CPU with a backend that runs functions again."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ops
from torch_ops._cuda_graph import ambient, capture, runtime
from torch_ops._cuda_graph.backend import Cuda, Pool
from torch_ops._cuda_graph.observe import waits_for_values
from torch_ops._cuda_graph.snapshot import RUNTIME
from torch_ops._cuda_graph.tensors import clones, dense

from ..support.params import on

each_device = pytest.mark.parametrize("device", [on(d, d, name=d) for d in ("cpu", "cuda")])
on_cpu = pytest.mark.parametrize("device", [on("cpu", "cpu", name="cpu")])
on_cuda = pytest.mark.parametrize("device", [on("cuda", "cuda", name="cuda")])


class Again:
    """A recording of the CPU: a replay runs the function again, and writes to the tensors that its first run returned."""

    def __init__(self, function: Callable[[], list[Tensor | None]], results: list[Tensor | None], pool: Pool) -> None:
        self.function, self.results, self.pool = function, results, pool
        self.gradients = torch.is_grad_enabled()

    def replay(self) -> None:
        with torch.set_grad_enabled(self.gradients), ambient.eager():
            new = self.function()
        with torch.no_grad():
            for mine, other in zip(self.results, new, strict=True):
                if mine is not None:
                    dense(mine).copy_(dense(other))


class Strict(TorchDispatchMode):
    """Nothing may wait for values, as while a CUDA graph is recorded."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if waits_for_values(func, args, kwargs or {}):
            raise RuntimeError("operation not permitted when stream is capturing")
        return func(*args, **(kwargs or {}))


class Fake:
    """Records on the CPU, and counts."""

    device_type = "cpu"

    def __init__(self) -> None:
        self.recordings = 0
        self.errors: list[BaseException | None] = []  # of the next recordings

    def is_ready(self) -> bool:
        return True

    def device(self) -> torch.device:
        return torch.device("cpu")

    def stream(self) -> int:
        return 0

    def is_recording(self) -> bool:
        return False

    def aside(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def record(self, function: Callable[[], Any], pool: Pool) -> tuple[Again, Any]:
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        self.recordings += 1
        with Strict():
            first = function()
        results = [x if x is None else clones([x.detach()])[0] for x in first]
        pool.bytes += sum(x.nbytes for x in results if x is not None)
        return Again(function, results, pool), results

    def borrowed(self, tensor: Tensor) -> Tensor:
        return tensor

    def generator(self) -> torch.Generator:
        return torch.default_generator

    def synchronize(self) -> None:
        pass

    def total_memory(self) -> int:
        return 2**40


@contextlib.contextmanager
def recording(device: str) -> Iterator[Any]:
    """A block in which calls on a device are recorded, however fast they are."""
    before = runtime._backend, capture.LONGEST
    runtime._backend, capture.LONGEST = Fake() if device == "cpu" else Cuda(), float("inf")
    try:
        yield runtime._backend
    finally:
        runtime._backend, capture.LONGEST = before
        if device == "cuda":
            torch.cuda.synchronize()


def runtime_of(module: torch.nn.Module) -> runtime.Runtime:
    return vars(module)[RUNTIME]


def replays(module: torch.nn.Module) -> int:
    found = runtime_of(module)
    return found.past.replays + sum(entry.replays for entry in found.entries.values())


def reasons(module: torch.nn.Module) -> str:
    """Why calls of a module were not replayed."""
    found = runtime_of(module)
    return "; ".join(
        [entry.reason for entry in found.entries.values() if entry.reason] + list(found.ways) + [found.given_up]
    )


class Pair:
    """A module, and a graphed copy of it. Both get the same calls, and everything must agree.

    Args:
        module: The module.
        device: Where both are.
        options: For :func:`torch_ops.cuda_graph`.
    """

    def __init__(self, module: torch.nn.Module, device: str, **options: Any) -> None:
        self.eager = module.to(device)
        self.graphed = torch_ops.cuda_graph(copy.deepcopy(self.eager), **options)
        self.device = device

    def both(self, action: Callable[[torch.nn.Module], Any]) -> None:
        """Does something with each module, with the same random numbers, and compares what comes back."""
        state = _random_state(self.device)
        expected = action(self.eager)
        after = _random_state(self.device)
        _set_random_state(self.device, state)
        found = action(self.graphed)
        assert _same_random_state(after, _random_state(self.device)), "the random numbers after the call differ"
        same(found, expected, "result")
        self.same_state()

    def same_state(self) -> None:
        for (name, x), y in zip(self.eager.named_buffers(), self.graphed.buffers(), strict=True):
            same(y, x, f"buffer {name}")
        for (name, x), y in zip(self.eager.named_parameters(), self.graphed.parameters(), strict=True):
            same(y, x, f"parameter {name}")
            assert (x.grad is None) == (y.grad is None), f"one gradient of {name} is None"
            if x.grad is not None:
                same(y.grad, x.grad, f"gradient of {name}")
                assert y.grad.stride() == x.grad.stride(), f"strides of the gradient of {name}"

    def replays(self) -> int:
        return replays(self.graphed)

    def reasons(self) -> str:
        return reasons(self.graphed)


def same(found: Any, expected: Any, what: str) -> None:
    """Two results have the same structure, metadata and, within rounding, values."""
    xs, tree = pytree.tree_flatten(expected)
    ys, other = pytree.tree_flatten(found)
    assert tree == other, f"{what}: {other}, and not {tree}"
    for x, y in zip(xs, ys):
        if not isinstance(x, Tensor):
            assert x is y or x == y, f"{what}: {y}, and not {x}"
            continue
        for field in ("shape", "dtype", "device", "requires_grad", "is_leaf"):
            assert getattr(x, field) == getattr(y, field), (
                f"{what}: {field} {getattr(y, field)}, and not {getattr(x, field)}"
            )
        assert x.stride() == y.stride() or x.numel() < 2, f"{what}: strides {y.stride()}, and not {x.stride()}"
        tolerance = {torch.float64: 1e-10, torch.float32: 1e-5}.get(x.dtype, 1e-2 if x.dtype.is_floating_point else 0)
        torch.testing.assert_close(y, x, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{what}: {m}")


def _random_state(device: str) -> Tensor:
    return torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


def _set_random_state(device: str, state: Tensor) -> None:
    (torch.cuda if device == "cuda" else torch).set_rng_state(state)


def _same_random_state(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x, y)
