"""Puts the state of a training back after the calls of a trial."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torch_ops._cuda_graph.preserve import Preserved
from torch_ops._cuda_graph.tensors import is_plain
from torch_ops.trial.device import Device
from torch_ops.trial.search import Found, search

__all__ = ["State"]


class State:
    """Parameters, buffers, gradients, optimizers, schedulers and random numbers, as they were when they were found.

    They are found in the function. Its first call, inside of :meth:`watching`, shows modules and optimizers that were not.

    Args:
        step: The function that a trial calls.

    Attributes:
        unkept: The classes of tensors that can't be copied and put back, such as DTensor.

    """

    def __init__(self, step: Any, device: Device) -> None:
        self._names: dict[int, tuple[str, Tensor]] = {}
        self._device = device
        self._modules: list[torch.nn.Module] = []
        self._parts: list[_Part] = []
        self.unkept: set[str] = set()
        self._known: set[int] = set()
        found = search(step)
        self._written = [(x, x._version) for x in found.tensors if not (x.requires_grad or x.is_inference())]
        found.tensors = [x for x in found.tensors if x.requires_grad and x.is_leaf]
        self._add(found)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """A block in which modules and optimizers that are used for the first time are kept before they change."""

        def see_module(module: torch.nn.Module, _: Any) -> None:
            if id(module) not in self._known:
                self._add(Found(modules=[module]))

        def see_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if id(optimizer) not in self._known:
                self._add(Found(optimizers=[optimizer]))

        hooks = [register_module_forward_pre_hook(see_module), register_optimizer_step_pre_hook(see_optimizer)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def restore(self) -> None:
        """Puts everything back."""
        for part in reversed(self._parts):
            part.restore()

    def models(self) -> list[torch.nn.Module]:
        """The modules that are not below another one."""
        below = {id(x) for module in self._modules for x in module.modules() if x is not module}
        return [module for module in self._modules if id(module) not in below]

    def parameters(self) -> list[Tensor]:
        """The parameters of all modules."""
        return [parameter for _, parameter in self._names.values()]

    def name_of(self, parameter: Tensor) -> str:
        """The name of a parameter in its module. A parameter without a module has a number."""
        if id(parameter) not in self._names:
            self._names[id(parameter)] = self._unused("parameter"), parameter
        return self._names[id(parameter)][0]

    def written(self) -> bool:
        """Whether a tensor of the function that is no parameter was written to. The trial has no copy of such tensors."""
        return any(tensor._version != version for tensor, version in self._written)

    def _unused(self, name: str) -> str:
        """A name that no other parameter has. Two modules may have parameters of one name."""
        used, number = {used for used, _ in self._names.values()}, 2
        unused = name
        while unused in used:
            unused, number = f"{name} ({number})", number + 1
        return unused

    def _add(self, found: Found) -> None:
        modules = [below for module in found.modules for below in module.modules() if id(below) not in self._known]
        self._known.update(map(id, (*modules, *found.optimizers)))
        self._modules += found.modules
        for module in found.modules:
            for name, parameter in module.named_parameters():
                self._names.setdefault(id(parameter), (self._unused(name), parameter))
        self._parts.append(_Part(modules, found, self._device))
        self.unkept |= self._parts[-1].unkept


class _Part:
    """What was found at one time."""

    def __init__(self, modules: list[torch.nn.Module], found: Found, device: Device) -> None:
        holder = types.SimpleNamespace(**{f"generator{i}": x for i, x in enumerate(found.generators)})
        groups = [group for optimizer in found.optimizers for group in optimizer.param_groups]
        parameters = [parameter for group in groups for parameter in group["params"]]
        states = [
            (optimizer.state, {key: (value, dict(value)) for key, value in optimizer.state.items()})
            for optimizer in found.optimizers
        ]
        tensors = [x for module in modules for x in (*module.parameters(recurse=False), *module.buffers(recurse=False))]
        tensors += [*found.tensors, *parameters]
        self._gradients = [(x, x.grad) for x in _unique(tensors) if x.requires_grad and x.is_leaf]
        tensors += [gradient for _, gradient in self._gradients if gradient is not None]
        tensors += [x for _, entries in states for value, _ in entries.values() for x in value.values()]
        tensors += [x for group in groups for x in group.values()]
        tensors += [x for other in found.others for x in vars(other).values()]
        self._groups = [(group, dict(group)) for group in groups]
        self._states = states
        self.unkept = {type(x).__name__ for x in _unique(tensors) if not is_plain(x)}
        kept = [x for x in _unique(tensors) if is_plain(x) and not x.is_inference()]
        objects: list[Any] = [*modules, *found.others, holder]
        generator: Any = device  # all that is read of a backend
        self._preserved = Preserved(objects, kept, generator)

    def restore(self) -> None:
        for group, entries in self._groups:
            group.clear()
            group.update(entries)
        for state, entries in self._states:
            state.clear()
            for key, (value, before) in entries.items():
                value.clear()
                value.update(before)
                state[key] = value
        for tensor, gradient in self._gradients:
            tensor.grad = gradient
        self._preserved.restore()


def _unique(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among values, each once."""
    return list({id(x): x for x in values if isinstance(x, Tensor)}.values())
