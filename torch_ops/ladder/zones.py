"""Tensors between guard zones, and the views that operands are passed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["VIEWS", "Fresh", "Zone", "bits", "viewed"]

_GUARD = 4096  # elements on each side
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_POISON = {1: 255, 2: -1, 4: -1, 8: -1}
# A view of operands, and what it is.
VIEWS = {
    "contiguous": "contiguous memory that begins at a multiple of 256 bytes",
    "misaligned": "memory that begins one element behind a multiple of 256 bytes",
    "strided": "every second element of a tensor",
    "transposed": "the dimensions lie in memory in reverse order",
    "expanded": "the first dimension has one element in memory, and stride 0",
}


def bits(tensor: Tensor) -> Tensor:
    """The bits of the elements as integers, so that NaN equals itself."""
    return tensor.contiguous().view(_INTEGERS[tensor.itemsize])


def _contiguous_strides(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def _strides_of(view: str, shape: Sequence[int]) -> list[int]:
    if view == "transposed":
        return _contiguous_strides(shape[::-1])[::-1]
    strides = _contiguous_strides(shape)
    if view == "strided":
        return [2 * stride for stride in strides]
    return [0, *strides[1:]] if view == "expanded" else strides


class Zone:
    """A tensor inside a larger buffer of poison: NaN, or -1 for integers.

    Args:
        shape, strides: Of the tensor.
        name: What messages call it.
        shift: Elements between a multiple of 256 bytes and the tensor.
    """

    def __init__(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: Any, name: str, shift: int = 0
    ) -> None:
        self.name, self._first = name, _GUARD + shift
        self._span = 0 if 0 in shape else 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))
        self._buffer = torch.empty(2 * _GUARD + shift + self._span, dtype=dtype, device=device)
        bits(self._buffer).fill_(_POISON[self._buffer.itemsize])
        # Writes to the buffer don't count up the version of this tensor, so a cache by addresses and versions is noticed.
        self.tensor = self._buffer.data.as_strided(shape, strides, self._first)
        self._stored: tuple[list[int], Sequence[int]] = [1 if s == 0 else n for n, s in zip(shape, strides)], strides

    def fill(self, values: Tensor) -> None:
        """Writes the values. Of a dimension with stride 0, the first ones are taken."""
        shape, strides = self._stored
        for dimension, size in enumerate(shape):
            values = values.narrow(dimension, 0, size)
        self._buffer.as_strided(shape, strides, self._first).copy_(values)

    def overrun(self) -> str | None:
        """Says where the memory outside of the tensor was written to."""
        written = bits(self._buffer) != _POISON[self._buffer.itemsize]
        written.as_strided(*self._stored, self._first).fill_(False)
        found = written.nonzero()
        if not found.numel():
            return None
        at = int(found[0]) - self._first
        if at < 0:
            where = f"{_elements(-at)} in front of"
        elif at >= self._span:
            where = f"{_elements(at - self._span + 1)} behind the end of"
        else:
            where = "in the gaps between the elements of"
        return f"writes to {_elements(found.numel())} outside of {self.name}, to the first one {where} it"


def _elements(count: int) -> str:
    return f"{count} element{'s' if count != 1 else ''}"


def viewed(view: str, operands: Sequence[Any], writes: bool) -> list[Zone | Any] | None:
    """Operands of the same values in a view, each in a zone. None if the view changes nothing.

    An expanded operand repeats its first values. Integers and an operand that is written to are not expanded.
    """
    found, changes = [], view in ("contiguous", "misaligned")
    for number, operand in enumerate(operands):
        if not isinstance(operand, Tensor):
            found.append(operand)
            continue
        kept = view == "expanded" and (not operand.is_floating_point() or (writes and number == 0))
        strides = _strides_of("contiguous" if kept else view, operand.shape)
        changes |= operand.numel() > 1 and strides != _contiguous_strides(operand.shape)
        zone = Zone(
            operand.shape, strides, operand.dtype, operand.device, f"operand {number}", int(view == "misaligned")
        )
        zone.fill(operand)
        found.append(zone)
    return found if changes else None


class Fresh(TorchDispatchMode):
    """Puts every tensor that a function makes into a zone. Memory that the function does not write stays poison.

    Attributes:
        zones: The zones, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.zones: list[Zone] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not isinstance(found, Tensor) or found.layout is not torch.strided or found.is_meta or not found.numel():
            return found
        if func._schema.returns[0].alias_info is not None or found.itemsize not in _INTEGERS or found.is_complex():
            return found
        strided = [x for x in args if isinstance(x, Tensor) and x.layout is torch.strided]
        if any(x.untyped_storage()._cdata == found.untyped_storage()._cdata for x in strided):
            return found
        zone = Zone(found.shape, found.stride(), found.dtype, found.device, "a tensor that it made")
        if "empty" not in func._schema.name:
            zone.tensor.copy_(found)
        self.zones.append(zone)
        return zone.tensor
