"""Asks the library whether tensors and dicts have changed. csrc/binding/watch has its operators."""

from __future__ import annotations

import enum
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Change", "Watch", "python_tells"]

_ops = torch.ops.gpuopt


class Change(enum.IntEnum):
    """What gpuopt::_watch_state returns."""

    TENSORS = 0
    PERHAPS_DICTS = 1
    NONE = 2


class Watch:
    """Watches the memory and metadata of tensors, and dicts where Python tells of their changes.

    Args:
        tensors: They are held.
        dicts: By their identities. They must live as long as this object.
    """

    def __init__(self, tensors: Sequence[Tensor], dicts: Mapping[int, dict[Any, Any]]) -> None:
        self._number = _ops._watch(tensors, list(dicts) if python_tells() else [])
        weakref.finalize(self, _ops._watch_forget, self._number).atexit = False

    def state(self) -> Change:
        """What has changed since the beginning, or of dicts since they were last noted as unchanged."""
        return _CHANGES[_ops._watch_state.default(self._number)]

    def note_dicts(self, unchanged: bool) -> None:
        """Says that the dicts are as they should be, or that they are not."""
        _ops._watch_note_dicts.default(self._number, unchanged)


_CHANGES = tuple(Change)


@functools.cache
def python_tells() -> bool:
    """Whether Python tells of all changes of dicts. Before 3.12 it tells of none, and 3.13.0 of none that attributes make."""

    class Holder:
        x: object

    holder = Holder()
    holder.x = None
    watch = _ops._watch([], [id(vars(holder))])

    def is_noticed(change: Callable[[], None]) -> bool:
        _ops._watch_note_dicts(watch, True)
        is_quiet = _ops._watch_state(watch) == Change.NONE
        change()
        return is_quiet and _ops._watch_state(watch) == Change.PERHAPS_DICTS

    def store() -> None:
        holder.x = object()

    try:
        stores = all(is_noticed(store) for _ in range(100))  # the interpreter has other code for later stores
        return stores and is_noticed(lambda: setattr(holder, "y", 1)) and is_noticed(lambda: delattr(holder, "x"))
    finally:
        _ops._watch_forget(watch)
