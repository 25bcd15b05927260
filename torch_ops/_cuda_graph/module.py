"""Gives modules a class whose ``forward`` replays recordings, and takes it away again.

Only the class of a module changes, as in :func:`torch_ops.convert`. Parameters, hooks, ``state_dict``, ``isinstance`` and references
to the module stay. An attribute ``forward`` on the instance would be shared by shallow copies, such as the replicas of
``DataParallel``, which would then compute with the parameters of the original.
"""

from __future__ import annotations

import copyreg
import functools
import threading
import weakref
from typing import Any, TypeVar

import torch

from torch_ops._cuda_graph.runtime import Runtime, Shared
from torch_ops._cuda_graph.snapshot import RUNTIME

__all__ = ["attach", "attach_children", "cuda_graph", "detach"]

Model = TypeVar("Model", bound=torch.nn.Module)
_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)
_classes: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def cuda_graph(model: Model, *, max_graphs: int = 10, limit_bytes: int | None = None, reverse: bool = False) -> Model:
    """Replays calls of a model as CUDA graphs where that is faster and gives the same results.

    Without it, the host starts hundreds of kernels in each call, and the GPU waits for it. A CUDA graph starts them at once. Calls are
    told apart by the shapes, strides and dtypes of their tensors, the values of their other arguments, the state of the model and the
    modes of PyTorch. A signature is recorded when it comes a second time, forward and backward pass alike. All else runs as before.

    Only the class of the model changes, to a subclass of its own. Parameters, hooks, ``state_dict``, optimizers and wrappers such as
    DistributedDataParallel keep working. Copies and pickles have recordings of their own. On the CPU nothing changes.

    ``docs/cuda_graph.md`` says what is checked and what can't be.

    Args:
        model: The module whose calls are replayed. Of a model that can't be recorded, the modules below are tried.
        max_graphs: The most signatures of a module that are recorded at once.
        limit_bytes: The most memory of all recordings. Default: half of the GPU's memory.
        reverse: Whether to take recordings and classes away again.

    Returns:
        ``model`` itself.

    Raises:
        TypeError: ``model`` is not a module, or a limit is not an integer.
        ValueError: A limit is below 1, or ``model`` is a ScriptModule.

    Example::

        model = torch_ops.cuda_graph(model)
        for x, y in batches:
            loss = criterion(model(x), y)
            loss.backward()
        print(torch_ops.cuda_graph_report())
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"cuda_graph: model must be a module: expected torch.nn.Module, got {type(model).__name__}")
    for name, value in (("max_graphs", max_graphs), ("limit_bytes", limit_bytes)):
        if value is None and name == "limit_bytes":
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"cuda_graph: {name} must be a number: expected int, got {type(value).__name__}")
        if value < 1:
            raise ValueError(f"cuda_graph: {name} must be positive: expected 1 or more, got {value}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("cuda_graph: model must not be scripted: expected a module of Python, got a ScriptModule")
    for module in model.modules():
        detach(module)
    if not reverse:
        attach(model, Runtime(Shared(max_graphs, limit_bytes)))
    return model


def attach(module: torch.nn.Module, runtime: Runtime) -> None:
    """Gives a module a class that calls the runtime."""
    vars(module)[RUNTIME] = runtime
    module.__class__ = _graphed(type(module))
    runtime.attach(module)


def attach_children(module: torch.nn.Module, shared: Shared, name: str) -> None:
    """Attaches the next modules below that have modules themselves, the largest first."""

    def size(child: torch.nn.Module) -> int:
        return sum(1 for _ in child.modules())

    found: dict[str, torch.nn.Module] = {}
    waiting = list(module._modules.items())
    while waiting:
        key, child = waiting.pop()
        if isinstance(child, _CONTAINERS):
            waiting += [(f"{key}.{below}", grandchild) for below, grandchild in child._modules.items()]
        elif (
            child is not None
            and child._modules
            and not isinstance(child, torch.jit.ScriptModule)
            and RUNTIME not in vars(child)
        ):
            found[key] = child
    for key, child in sorted(found.items(), key=lambda pair: -size(pair[1])):
        if RUNTIME not in vars(child):  # modules may have two names
            attach(child, Runtime(shared, f"{name}.{key}"))


def detach(module: torch.nn.Module) -> None:
    """Undoes :func:`attach`."""
    runtime = vars(module).pop(RUNTIME, None)
    if runtime is not None:
        runtime.detach()
        module.__class__ = type(module)._ungraphed


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
        reduced = base.__reduce_ex__(self, protocol)
        if isinstance(reduced, tuple) and reduced[0] is copyreg.__newobj__ and reduced[1][:1] == (type(self),):
            return (_new, (base, *reduced[1][1:]), *reduced[2:])
        return reduced

    members = {"forward": forward, "__reduce_ex__": __reduce_ex__, "_ungraphed": base}
    members |= {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base)(base.__name__, (base,), members)


def _new(base: type, *args: Any) -> Any:
    """A copy or a pickle, before it has its state."""
    graphed = _graphed(base)
    return graphed.__new__(graphed, *args)
