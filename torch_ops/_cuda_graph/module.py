"""``cuda_graph``: the function that users call."""

from __future__ import annotations

from typing import TypeVar

import torch

from torch_ops._cuda_graph.classes import put_back
from torch_ops._cuda_graph.entry import Shared
from torch_ops._cuda_graph.runtime import Runtime

__all__ = ["cuda_graph"]

Model = TypeVar("Model", bound=torch.nn.Module)


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
        if (runtime := put_back(module)) is not None:
            runtime.detach()
    if not reverse:
        Runtime(Shared(max_graphs, limit_bytes)).attach(model)
    return model
