"""Records the calls of replaced operators without their data: shapes, strides, dtypes, numbers, and the range of integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ops._cuda_graph.tensors import is_plain
from torch_ops._override import forms_of, override

__all__ = ["Recorder", "load"]

_VERSION = 1
# Operators that are not replaced, and call one that is.
_CALLERS = {"embedding": "index_select", "clone": "copy_", "_to_copy": "copy_"}


class _LeftOut(Exception):
    """A call has an argument that can't be recorded."""


class Recorder(TorchDispatchMode):
    """A mode that notes calls of operators that the override replaces, or that call one. Equal calls are one entry with a count.

    Attributes:
        left_out: The number of calls with arguments that can't be made again, such as sparse tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left_out = 0
        self._names = _CALLERS | {form: name for name in override.operators for form in forms_of(name)}
        self._calls: dict[str, dict[str, Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = self._names.get(func.overloadpacket.__name__) if func.namespace == "aten" else None
        if name is not None:
            self._note(name, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _note(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        packet, overload = func.overloadpacket.__name__, func._overloadname
        try:
            call = {
                "operator": name,
                "call": [packet, overload],
                "args": _written(list(args)),
                "kwargs": _written(kwargs),
            }
        except _LeftOut:
            self.left_out += 1
            return
        self._calls.setdefault(json.dumps(call), {**call, "count": 0})["count"] += 1

    def save(self, path: Path, **about: Any) -> None:
        """Writes a file of JSON, with the number of calls that were left out and what else describes it."""
        result = {"version": _VERSION, **about, "left_out": self.left_out, "calls": list(self._calls.values())}
        path.write_text(json.dumps(result, indent=1))


def load(path: Path) -> dict[str, Any]:
    """What :meth:`Recorder.save` wrote.

    Raises:
        ValueError: The file is no such record.
    """
    read: Any = None
    try:
        read = json.loads(path.read_text())
        known = read["version"] == _VERSION
    except (ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise ValueError(
            f"trial: the file must be a record of version {_VERSION}: expected one of --record, got {path}"
        )
    return read


def _written(value: Any) -> Any:
    """A value as JSON, without the elements of tensors."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return _of_tensor(value)
    if isinstance(value, (list, tuple)):
        return [_written(x) for x in value]
    if isinstance(value, dict):
        return {key: _written(x) for key, x in value.items()}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    raise _LeftOut


def _of_tensor(tensor: Tensor) -> dict[str, Any]:
    if not is_plain(tensor.detach()):
        raise _LeftOut
    found: dict[str, Any] = {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "on_host": tensor.device.type == "cpu",
    }
    if not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool) and tensor.numel():
        found["range"] = [int(tensor.min()), int(tensor.max())]
        found["sorted"] = tensor.dim() == 1 and bool((tensor[1:] >= tensor[:-1]).all())
    return found
