"""Modules as CUDA graphs inside of a block alone, so that a trial can alternate with and without graphs."""

from __future__ import annotations

from typing import Any

import torch

from torch_ops._cuda_graph.classes import exchange, put_back
from torch_ops._cuda_graph.module import cuda_graph
from torch_ops._cuda_graph.snapshot import RUNTIME

__all__ = ["Graphs"]


class Graphs:
    """A context in which calls of modules are replayed. Recordings last until :meth:`close`.

    Args:
        modules: The modules. One that the user gave to :func:`torch_ops.cuda_graph` is left alone.
    """

    def __init__(self, modules: list[torch.nn.Module]) -> None:
        self._modules = [x for x in modules if not (isinstance(x, torch.jit.ScriptModule) or _has_graphs(x))]
        self._runtimes: list[tuple[torch.nn.Module, Any]] | None = None

    def __enter__(self) -> Graphs:
        if self._runtimes is None:
            for module in self._modules:
                cuda_graph(module)
        else:
            for module, runtime in self._runtimes:
                exchange(module, runtime)
        return self

    def __exit__(self, *exception: object) -> None:
        # A module that can't be recorded has given runtimes to modules below it.
        found = [
            (below, put_back(below)) for module in self._modules for below in module.modules() if RUNTIME in vars(below)
        ]
        self._runtimes = found

    def problem(self) -> str:
        """Why nothing was recorded, or ""."""
        runtimes = [runtime for _, runtime in self._runtimes or []]
        if any(runtime.recorded() for runtime in runtimes):
            return ""
        reasons = [entry.reason for runtime in runtimes for entry in runtime.entries.values() if entry.reason]
        reasons += [reason for runtime in runtimes for reason in runtime.ways]
        return "; ".join(dict.fromkeys(reasons)) or "no module was found that it could record"

    def close(self) -> None:
        """Frees the recordings."""
        for _, runtime in self._runtimes or []:
            runtime.detach()
        self._runtimes = []


def _has_graphs(module: torch.nn.Module) -> bool:
    return any(RUNTIME in vars(below) for below in module.modules())
