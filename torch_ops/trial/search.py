"""Finds what a function computes with: the modules, optimizers, schedulers and generators in its closure and its globals."""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["Found", "search"]

_DEEPEST = 8
_MOST_OBJECTS = 20_000
_MOST_ENTRIES = 256  # longer containers hold data
_SEARCHED_NOT = ("torch.utils.data", "torch._", "torch.cuda", "torch.distributed")
_CLOSED = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    types.ModuleType,
    torch.dtype,
    torch.device,
    torch.Size,
)


@dataclass
class Found:
    """What a function holds, each object once.

    Args:
        modules: Modules, without the modules below them.
        optimizers: Optimizers.
        others: Schedulers of learning rates and scalers of losses.
        generators: Generators of random numbers, beside the default ones.
        tensors: Tensors that are not in a module.
    """

    modules: list[torch.nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    generators: list[Any] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)


def search(function: Any) -> Found:
    """Everything in the closure of a function, in the globals that it names, and in the functions and objects among them."""
    found, seen = Found(), set()
    waiting = [(function, 0)]
    while waiting and len(seen) < _MOST_OBJECTS:
        value, depth = waiting.pop(0)
        if id(value) in seen or isinstance(value, _CLOSED):
            continue
        seen.add(id(value))
        if not _note(value, found) and depth < _DEEPEST:
            waiting += [(below, depth + 1) for below in _below(value)]
    return found


def _note(value: Any, found: Found) -> bool:
    """Notes a value that has a state. False if it may hold such values."""
    if isinstance(value, torch.nn.Module):
        found.modules.append(value)
        # A module may hold its optimizer in an attribute.
        return False
    if isinstance(value, Tensor):
        found.tensors.append(value)
    elif isinstance(value, torch.optim.Optimizer):
        found.optimizers.append(value)
    elif isinstance(value, (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)):
        found.others.append(value)
        return False
    elif isinstance(value, (torch.Generator, random.Random)) or _is_of_numpy(value):
        found.generators.append(value)
    else:
        return False
    return True


def _is_of_numpy(value: Any) -> bool:
    return type(value).__module__.startswith("numpy.") and hasattr(value, "bit_generator")


def _below(value: Any) -> Iterable[Any]:
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, types.FunctionType):
        return _of_function(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)[:_MOST_ENTRIES]
    if isinstance(value, dict):
        return list(value.values())[:_MOST_ENTRIES]
    if isinstance(value, torch.nn.Module):
        return [x for module in value.modules() for x in _attributes(module)]
    if type(value).__module__.startswith(_SEARCHED_NOT) or not hasattr(value, "__dict__"):
        return ()
    return vars(value).values()


def _attributes(module: torch.nn.Module) -> Iterator[Any]:
    """What a module has beside its parameters, buffers and modules below."""
    for name, value in vars(module).items():
        if name not in ("_parameters", "_buffers", "_modules"):
            yield value


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield wrapped
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable without a value
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    if _is_of_a_package(function.__module__):
        return
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield function.__globals__[name]


def _is_of_a_package(name: str | None) -> bool:
    """Whether a module was installed. The globals of such a module hold no model of the user's."""
    file = getattr(sys.modules.get(name or ""), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
