"""Watches the operators of a call, to find what a recording would get wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ops._cuda_graph.known import Origins

__all__ = ["Observer", "waits_for_values"]

_BY_VALUE = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_COMMUNICATION = ("c10d", "_c10d_functional", "c10d_functional")
# They pass the seed of their dropout to the backward pass: on the host in an eager call, on the device while they are recorded.
_ATTENTION = ("_scaled_dot_product_", "_efficient_attention_", "_flash_attention_", "_cudnn_attention_")


class Observer(TorchDispatchMode):
    """A mode that sees every operator.

    Args:
        device_type: The device that is recorded.
        inputs: The arguments.
        of_module: The tensors of the module.
        kept: Tensors that the call computes once. More may come.

    Attributes:
        reason: Why a recording would be wrong, or "".
        reads: An operator whose result the host waits for, or "". Recording it fails, unless the module does without it then.
        operators: The number of operators.
        origins: Which tensors are the same in each call.
        overwritten: The parameters that were written to, with their values before.
        saved: The tensors of the module that a backward pass needs with their values. Filled inside of :meth:`saving`.
    """

    def __init__(
        self, device_type: str, inputs: Iterable[Tensor], of_module: Iterable[Tensor], kept: Sequence[Tensor]
    ) -> None:
        super().__init__()
        self.reason = self.reads = ""
        self.operators = 0
        self.saved: dict[int, Tensor] = {}
        self.overwritten: list[tuple[Tensor, Tensor]] = []
        self._device_type, self._kept = device_type, kept
        of_module = list(of_module)
        self.origins = Origins((x for x in of_module if not isinstance(x, torch.nn.Parameter)), device_type)
        self._before: dict[int, Tensor] = {}
        self._known: dict[int, StorageWeakRef] = {}
        for tensor in of_module:
            self._before.setdefault(_storage(tensor), tensor)
        for tensor in (*inputs, *self._before.values()):
            self.note(tensor)

    def saving(self) -> contextlib.AbstractContextManager[Any]:
        """A block that notes which tensors of the module autograd saves."""

        def pack(tensor: Tensor) -> Tensor:
            of_module = self._before.get(_storage(tensor))
            if of_module is not None:
                self.saved[id(of_module)] = of_module
            return tensor.detach()

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def note(self, tensor: Tensor) -> None:
        """Makes a tensor one that the call may read."""
        storage = tensor.untyped_storage()
        # A weak reference keeps the address of a storage from being used again, without its memory.
        self._known.setdefault(storage._cdata, StorageWeakRef(storage))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            self._save_parameters(func, args)
        result = func(*args, **kwargs)
        self.operators += 1
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = [x for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]
        is_known = self.origins.see(func, given, made, result)
        on_device = any(x.device.type == self._device_type for x in given)
        if on_device and not is_known and waits_for_values(func, args, kwargs):
            self.reads = self.reads or str(func)
        if not self.reason:
            self.reason = self._problem(func, args, kwargs, given, made)
        for tensor in made:
            self.note(tensor)
        return result

    def _save_parameters(self, func: Any, args: tuple[Any, ...]) -> None:
        """Keeps the values of parameters that an operator is about to write to."""
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Tensor):
                of_module = self._before.get(_storage(value))
                if isinstance(of_module, torch.nn.Parameter) and all(
                    of_module is not other for other, _ in self.overwritten
                ):
                    self.overwritten.append((of_module, of_module.detach().clone()))

    def restore(self) -> None:
        """Puts the values of parameters back."""
        with torch.no_grad():
            for parameter, value in self.overwritten:
                parameter.detach().copy_(value)

    def _problem(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor], made: list[Tensor]
    ) -> str:
        name = str(func)
        if func.namespace in _COMMUNICATION:
            return f"it communicates with other processes ({name})"
        on_device = [x for x in given if x.device.type == self._device_type]
        if func._schema.name.removeprefix("aten::").startswith(_ATTENTION):
            given, made = on_device, []
        for tensor in given:
            is_new = _storage(tensor) not in self._known and all(_storage(x) != _storage(tensor) for x in self._kept)
            if is_new and tensor.device.type == self._device_type:
                return f"it reads a tensor that is neither an argument nor in the module ({name})"
            if tensor.device.type != self._device_type:
                if is_new or _storage(tensor) in self._before:
                    return f"it reads a tensor of the host ({name})"
                if tensor.dim() and any(x.device.type == self._device_type for x in (*on_device, *made)):
                    return f"it copies a tensor of the host ({name})"
        if on_device and any(x.device.type != self._device_type for x in made):
            return f"it copies a tensor to the host ({name})"
        return ""


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def waits_for_values(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the host needs values of tensors for the result of an operator, or for its size."""
    if not any(tag in func.tags for tag in _BY_VALUE):
        return False
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return kwargs.get("output_size") is None
