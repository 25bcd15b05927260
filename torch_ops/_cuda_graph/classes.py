"""Gives modules a class whose ``forward`` asks a runtime, and takes it away again.

Only the class of a module changes, as in :func:`torch_ops.convert`. Parameters, hooks, ``state_dict``, ``isinstance`` and references
to the module stay. An attribute ``forward`` on the instance would be shared by shallow copies, such as the replicas of
``DataParallel``, which would then compute with the parameters of the original.
"""

from __future__ import annotations

import copyreg
import functools
import threading
import weakref
from typing import Any

import torch

from torch_ops._cuda_graph.snapshot import RUNTIME

__all__ = ["exchange", "parts", "put_back"]

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)
_classes: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def exchange(module: torch.nn.Module, runtime: Any) -> None:
    """Gives a module a class that calls the runtime."""
    vars(module)[RUNTIME] = runtime
    module.__class__ = _graphed(type(module))


def put_back(module: torch.nn.Module) -> Any:
    """Undoes :func:`exchange`, and returns the runtime, or None where there was none."""
    runtime = vars(module).pop(RUNTIME, None)
    if runtime is not None:
        module.__class__ = vars(type(module))["_ungraphed"]
    return runtime


def parts(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The next modules below that have modules themselves and no runtime, the largest first."""
    found: dict[int, tuple[str, torch.nn.Module]] = {}
    waiting = list(module._modules.items())
    while waiting:
        key, child = waiting.pop()
        if isinstance(child, _CONTAINERS):
            waiting += [(f"{key}.{below}", grandchild) for below, grandchild in child._modules.items()]
        elif child is not None and child._modules and RUNTIME not in vars(child):
            if not isinstance(child, torch.jit.ScriptModule):
                found.setdefault(id(child), (key, child))
    return dict(sorted(found.values(), key=lambda pair: -sum(1 for _ in pair[1].modules())))


def _graphed(base: type) -> type:
    """The subclass of a class that replays."""
    with _lock:
        found = _classes.get(base)
        if found is None:
            found = _classes[base] = _make(base)
        return found


def _make(base: type) -> type:
    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return base.forward(self, *args, **kwargs)
        runtime = vars(self).get(RUNTIME)
        if runtime is None:
            return base.forward(self, *args, **kwargs)
        return runtime.call(self, base.forward, args, kwargs)

    def __reduce_ex__(self: Any, protocol: int) -> Any:
        of_base: Any = base.__reduce_ex__
        reduced: Any = of_base(self, protocol)
        if isinstance(reduced, tuple) and reduced[0] is vars(copyreg)["__newobj__"] and reduced[1][:1] == (type(self),):
            return (_new, (base, *reduced[1][1:]), *reduced[2:])
        return reduced

    members = {"forward": forward, "__reduce_ex__": __reduce_ex__, "_ungraphed": base}
    members |= {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base)(base.__name__, (base,), members)


def _new(base: type, *args: Any) -> Any:
    """A copy or a pickle, before it has its state."""
    graphed = _graphed(base)
    return graphed.__new__(graphed, *args)
