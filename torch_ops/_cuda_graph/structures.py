"""What a recorded call computes from index tensors, such as the sparse matrix of an ``edge_index``.

It is computed once, before the call is recorded, because the host waits for its sizes. So a recording is good for these numbers alone. An
argument that they come from is told apart by its identity and version, and not by its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["Constants", "Structures"]

_ops = torch.ops.gpuopt
_OWNER = "cuda_graph"  # of fingerprints
Results = Sequence[Tensor | None]


class Constants(Exception):
    """A recording is good for the numbers in some arguments alone.

    Attributes:
        numbers: Which arguments.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__()
        self.numbers = tuple(sorted(numbers))


class Structures:
    """A :class:`torch_ops._tracing.Keeper`.

    Args:
        inputs: The copies of the arguments.
        of_module: The tensors of the module.

    Attributes:
        inputs: The numbers of the arguments that something was computed from.
        problem: Why what was computed can't be kept, or "".
        made: All results.
    """

    def __init__(self, inputs: Sequence[Tensor], of_module: Iterable[Tensor]) -> None:
        self.inputs: set[int] = set()
        self.problem = ""
        self.made: list[Tensor] = []
        self._is_complete = False
        self._inputs = {_storage(x): number for number, x in enumerate(inputs)}
        self._of_module = {_storage(x): x for x in of_module}
        self._versions: dict[int, tuple[Tensor, int]] = {}
        self._found: dict[Hashable, Results] = {}
        self._sources: list[Sequence[Tensor]] = []  # so that no other tensor gets their addresses

    def complete(self) -> None:
        """Nothing is made from here on."""
        self._is_complete = True

    def find(self, sources: Sequence[Tensor], key: str) -> Results | None:
        return self._found.get(_name(sources, key))

    def make(self, sources: Sequence[Tensor], key: str, make: Callable[[], Results | None]) -> Results | None:
        """Keeps what ``make`` computes from ``sources``, in place of earlier results."""
        if self._is_complete:
            raise RuntimeError("other index tensors than in the call before")
        for source in sources:
            self._note(source)
        with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            found = make()
        if found is not None:
            self._found[_name(sources, key)] = found
            self._sources.append(sources)
            self.made += [x for x in found if x is not None]
        return found

    def _note(self, source: Tensor) -> None:
        """Notes where the numbers of a source come from."""
        storage = _storage(source)
        if storage in self._inputs:
            self.inputs.add(self._inputs[storage])
        elif (tensor := self._of_module.get(storage)) is not None:
            self.depend_on(tensor)
        elif all(_storage(x) != storage for x in self.made):
            self.problem = "its forward pass computes the edges of a graph"

    def depend_on(self, tensor: Tensor) -> None:
        """Makes the values of a tensor of the module a part of the recording."""
        self._versions.setdefault(_storage(tensor), (tensor, tensor._version))

    def are_stale(self) -> bool:
        """Whether tensors of the module have changed since."""
        return any(tensor._version != version for tensor, version in self._versions.values())

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Refuses writes to arguments that PyTorch doesn't count, as in eager calls: on CUDA a device-side assertion fails."""
        for number in self.inputs:
            sources = [tensors[number]]
            if not _ops._structure_find.default(sources, _OWNER):
                _ops._structure_keep.default(sources, _OWNER, [sources[0].new_empty(0)])


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _name(sources: Sequence[Tensor], key: str) -> Hashable:
    return key, tuple((x.data_ptr(), x.shape, x.stride(), x.dtype) for x in sources)
