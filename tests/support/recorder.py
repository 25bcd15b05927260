"""Records the operators that are called."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Keeps each call as its operator and the positional arguments."""

    def __enter__(self) -> Recorder:
        self.calls: list[tuple[torch._ops.OpOverload, tuple]] = []
        return super().__enter__()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.calls.append((op, args))
        return op(*args, **(kwargs or {}))

    @property
    def of_gpuopt(self) -> list[tuple[torch._ops.OpOverload, tuple]]:
        return [call for call in self.calls if call[0].namespace == "gpuopt"]

    @property
    def names(self) -> list[str]:
        """Names such as 'aten::sum', in the order of the calls."""
        return [op._schema.name for op, _ in self.calls]

    def count(self, name: str) -> int:
        """The number of calls of operators whose names start with `name`."""
        return sum(called.startswith(name) for called in self.names)
