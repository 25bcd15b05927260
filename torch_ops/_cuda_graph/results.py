"""What a recorded call returns: new tensors, arguments, tensors of the module, and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from torch_ops._cuda_graph.arguments import is_constant
from torch_ops._cuda_graph.tensors import is_plain, overlap, overlaps_itself

__all__ = ["Declined", "Results"]

_OUTPUT, _INPUT, _VALUE = "output", "input", "value"


class Declined(Exception):
    """A call that can't be recorded. The message is the reason for the report.

    Args:
        reason: Why.
        parts: Whether modules below may still be recorded.
    """

    def __init__(self, reason: str, parts: bool = True) -> None:
        super().__init__(reason)
        self.parts = parts


class Results:
    """The structure of a result.

    Args:
        result: What the module returned.
        inputs: The tensors that it was called with.
        of_module: The tensors of the module by their identities, or by the identities of their stand-ins.

    Attributes:
        outputs: The new tensors, each once.
        positions: The leaf of the result where each of them comes first.
    """

    def __init__(self, result: Any, inputs: Sequence[Tensor], of_module: Mapping[int, Tensor]) -> None:
        leaves, self._tree = pytree.tree_flatten(result)
        self._is_one = len(leaves) == 1 and leaves[0] is result
        self.outputs: list[Tensor] = []
        self.positions: list[int] = []
        self.leaves: list[tuple[str, Any]] = []
        numbers: dict[int, int] = {}
        input_numbers = {id(tensor): number for number, tensor in enumerate(inputs)}
        for position, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                if not is_constant(leaf):
                    raise Declined(f"it returns a {type(leaf).__module__}.{type(leaf).__qualname__}")
                self.leaves.append((_VALUE, leaf))
            elif id(leaf) in input_numbers:
                self.leaves.append((_INPUT, input_numbers[id(leaf)]))
            elif id(leaf) in of_module:
                self.leaves.append((_VALUE, of_module[id(leaf)]))
            else:
                number = numbers.setdefault(id(leaf), len(self.outputs))
                if number == len(self.outputs):
                    self.outputs.append(leaf)
                    self.positions.append(position)
                self.leaves.append((_OUTPUT, number))

    def check(self, inputs: Sequence[Tensor], of_module: Sequence[Tensor]) -> None:
        """Raises Declined if copies of the new tensors would not be like them. May wait for the device."""
        storages = {t.untyped_storage()._cdata for t in (*inputs, *of_module) if t.numel()}
        for output in self.outputs:
            if not is_plain(output):
                raise Declined(f"it returns a tensor of class {type(output).__qualname__}, or one that is not strided")
            if output.numel() and output.untyped_storage()._cdata in storages:
                raise Declined("it returns a view of an argument or of a tensor of the module")
            if overlaps_itself(output):
                raise Declined("it returns a tensor that overlaps itself")
        if overlap([output.detach() for output in self.outputs]):
            raise Declined("it returns tensors that share memory")

    def is_like(self, other: Results) -> bool:
        """Whether two calls returned the same except for the values of tensors."""
        mine, theirs = (
            [(x.shape, x.stride(), x.dtype, x.requires_grad) for x in results.outputs] for results in (self, other)
        )
        return mine == theirs and self._tree == other._tree and _same_leaves(self.leaves, other.leaves)

    def assemble(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Any:
        """A result with other tensors."""
        if self._is_one and self.leaves[0][0] == _OUTPUT:
            return outputs[0]
        leaves = [
            outputs[value] if kind == _OUTPUT else inputs[value] if kind == _INPUT else value
            for kind, value in self.leaves
        ]
        return pytree.tree_unflatten(leaves, self._tree)


def _same_leaves(mine: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> bool:
    def same(x: Any, y: Any) -> bool:
        return x is y or (not isinstance(x, Tensor) and type(x) is type(y) and (x == y or x != x))

    return len(mine) == len(theirs) and all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(mine, theirs))
