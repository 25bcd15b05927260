"""Values that the host reads and that are the same in each call: sizes in buffers, and what is computed from them.

EnCodec, for example, keeps the strides of its convolutions in buffers and computes a padding from them. The host can't read while work is
recorded. So the values of the call before are used, for as long as nobody writes to the buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Known", "Origins"]

_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
_UNINITIALISED = ("aten::empty", "aten::new_empty")


class Origins:
    """Which tensors of a call are the same in each call, and which buffers they were computed from.

    Args:
        buffers: The buffers of the module.
        device_type: The device that is recorded.

    Attributes:
        values: What the host has read from such tensors, in order, with the operators that read.
        read: The buffers that these values were computed from.
    """

    def __init__(self, buffers: Iterable[Tensor], device_type: str) -> None:
        self.device_type = device_type
        self.values: list[tuple[Any, Any]] = []
        self.read: dict[int, Tensor] = {}
        self._buffers = {_storage(x): x for x in buffers}
        self._origins: dict[int, frozenset[int]] = {storage: frozenset([storage]) for storage in self._buffers}

    def see(self, func: Any, given: Sequence[Tensor], made: Sequence[Tensor], result: Any) -> bool:
        """Follows an operator. Returns whether the host reads a value with it that is the same in each call."""
        found = [self._origins.get(_storage(x)) for x in given]
        same = None not in found and torch.Tag.nondeterministic_seeded not in func.tags
        same = same and not func._schema.name.startswith(_UNINITIALISED)
        if not same:
            if func._schema.is_mutable:
                for tensor in given:  # one of them is written to
                    self._origins.pop(_storage(tensor), None)
            return False
        origins = frozenset().union(*(x for x in found if x is not None))
        for tensor in (*made, *(given if func._schema.is_mutable else ())):
            self._origins[_storage(tensor)] = origins
        if func not in _READS or given[0].device.type != self.device_type:
            return False
        self.values.append((func, result))
        self.read |= {storage: self._buffers[storage] for storage in origins}
        return True


class Known(TorchDispatchMode):
    """A mode in which reads of the host return what they have returned before.

    Args:
        origins: What an earlier call has read. All that its host has read from the device must be there.
    """

    def __init__(self, origins: Origins) -> None:
        super().__init__()
        self._values, self._device_type = iter(origins.values), origins.device_type

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _READS or args[0].device.type != self._device_type:
            return func(*args, **(kwargs or {}))
        expected, value = next(self._values, (None, None))
        if func is not expected:
            raise RuntimeError("other values than in the call before")
        return value


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
