"""What a call is given: the tensors, and a key for everything else."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torch_ops._cuda_graph.tensors import is_plain, overlaps_itself

__all__ = ["Arguments", "NotSupported", "is_constant", "with_tensors"]

_CONSTANTS = (
    type(None),
    bool,
    int,
    str,
    bytes,
    complex,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)


class NotSupported(Exception):
    """An argument for which no key is known. The message says which."""


def is_constant(value: object) -> bool:
    """Whether a value never changes, and equals another one only if it means the same."""
    return isinstance(value, (float, type, enum.Enum)) or type(value) in _CONSTANTS


class Arguments:
    """The arguments of a call.

    Args:
        args, kwargs: The arguments, in any nesting of tuples, lists, dicts and nodes that pytree knows.

    Attributes:
        tensors: The distinct tensors, in order.
        key: What a recording of the call depends on besides the values of the tensors.
    """

    __slots__ = ("_numbers", "key", "tensors")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device) -> None:
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        structure = tuple(map(self._key, args))
        if kwargs:
            structure += tuple((name, self._key(value)) for name, value in kwargs.items())
        metadata = []
        for tensor in self.tensors:
            if tensor.device != device:
                raise NotSupported(f"an argument is on {tensor.device}, and the current device is {device}")
            if not is_plain(tensor) or overlaps_itself(tensor):
                raise NotSupported("an argument is a tensor of another class or layout, or overlaps itself")
            metadata.append((tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad))
        self.key: Hashable = (structure, tuple(metadata))

    def _key(self, value: Any) -> Hashable:
        kind = type(value)
        if isinstance(value, Tensor):
            number = self._numbers.setdefault(id(value), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append(value)
            return Tensor, number
        if kind is float:  # nan is not equal to itself, and -0.0 equals 0.0
            return float, value.hex()
        if kind in _CONSTANTS or is_constant(value):
            return kind, value
        if kind is tuple or kind is list:
            return kind, tuple(map(self._key, value))
        if kind is dict:
            if not all(map(is_constant, value)):
                raise NotSupported("an argument is a dict whose keys are no constants")
            return dict, tuple(value), tuple(map(self._key, value.values()))
        if kind in pytree.SUPPORTED_NODES or pytree.is_namedtuple_instance(value):
            leaves, tree = pytree.tree_flatten(value)
            if len(leaves) != 1 or leaves[0] is not value:
                return kind, repr(tree), tuple(map(self._key, leaves))
        raise NotSupported(f"an argument is a {kind.__module__}.{kind.__qualname__}")

    def describe(self) -> str:
        """The shapes and dtypes of the tensors, for people."""
        names = [f"{str(t.dtype)[6:]}{list(t.shape)}" for t in self.tensors[:4]]
        return ", ".join(names + ["..."] * (len(self.tensors) > 4)) or "no tensor"


def with_tensors(value: Any, replace: Callable[[Tensor], Tensor]) -> Any:
    """The same arguments with other tensors."""
    return pytree.tree_map_only(Tensor, replace, value)
