"""The state of a module that a recording depends on: attributes, hooks, and where parameters and buffers are.

A snapshot is compared at each call. The library watches the tensors, and the dicts where Python tells of their changes. Then only lists
and sets in attributes are left to compare. Where a dict has changed or can't be watched, everything is compared by a few calls of
functions that run in C: about 0.2 us for each module. Lists are compared by ``==``, which looks at identity first.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from torch_ops._cuda_graph.tensors import is_plain
from torch_ops._cuda_graph.watch import Change, Watch

__all__ = ["RUNTIME", "Snapshot", "attributes"]

RUNTIME = "_gpuopt_cuda_graph"  # the attribute of a module with its recordings
_MOST_ENTRIES = 64  # longer containers are compared by their lengths
_MOST_SOURCES = 20_000
_DEEPEST = 4
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_BOOKKEEPING = frozenset(vars(torch.nn.Module())) | {RUNTIME}
_COMPARED = ("training", "_parameters", "_buffers", "_modules")  # bookkeeping that decides what a call computes
# Objects of these types hold nothing that a forward pass would change.
_CLOSED = (
    type(None), bool, int, float, complex, str, bytes, type, enum.Enum, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
    types.ModuleType, torch.dtype, torch.device, torch.Size, torch.Generator, functools.partial,
)  # fmt: skip
_requires_grad, _shape, _dtype = attrgetter("requires_grad"), attrgetter("shape"), attrgetter("dtype")


def _computed(module: torch.nn.Module) -> set[str]:
    """Attributes that hooks of torch.nn.utils compute anew in each call."""
    hooks = module._forward_pre_hooks.values()
    return {hook.name for hook in hooks if isinstance(hook, (WeightNorm, SpectralNorm))}


def _is_harmless(hook: object) -> bool:
    """Whether a hook computes on the device alone, so that it may be recorded."""
    return isinstance(hook, (WeightNorm, SpectralNorm))


def attributes(module: torch.nn.Module) -> dict[str, Any]:
    """What a module has beside the bookkeeping of its class."""
    return _attributes_of(vars(module))


def _attributes_of(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name not in _BOOKKEEPING}


class Snapshot:
    """The state of a module at a time.

    Attributes:
        tensors: Parameters, buffers, and tensors in attributes, each once.
        hooked: A module below this one that has hooks, or "".
        is_borrowed: Whether parameters are computed from others, as by torch.func.functional_call.
        problem: Why no call in this state can be recorded, or "".
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.hooked = self.problem = ""
        self.is_borrowed = False
        self._root = weakref.ref(module)  # a strong one would keep the module, which keeps its snapshots
        self._below: dict[str, torch.nn.Module] = {}
        self._found: dict[int, Tensor] = {}
        self._seen: set[int] = set()
        self._attributes: list[tuple[str, tuple[str, ...], dict[Any, Any]]] = []
        self._all_dicts: dict[int, dict[Any, Any]] = {}
        self._in_dicts, self._elsewhere = _Entries(), _Entries()
        self._unequal: list[Any] = []
        self._no_hooks: list[dict[Any, Any]] = []
        self._picked: list[tuple[dict[Any, Any], tuple[str, ...]]] = []
        self._visit_module(module, "")
        self.tensors = list(self._found.values())
        self._check_tensors()
        self._getters = [(itemgetter(*keys), entries) for _, keys, entries in self._attributes]
        self._dicts = [entries for _, _, entries in self._attributes]
        self._saved, self._saved_elsewhere = self._state(), self._elsewhere.state()
        self._metadata = self._metadata_of_tensors()
        # PyTorch refuses to swap a tensor that C++ holds.
        may_hold = not torch.__future__.get_swap_module_params_on_conversion()
        self._watch = Watch(self.tensors, self._all_dicts) if self._saved and may_hold else None
        self._tensor_ids = self._ids_of_tensors()

    @property
    def modules(self) -> list[torch.nn.Module]:
        """The module and the ones below it."""
        root = self._root()
        return [*([] if root is None else [root]), *self._below.values()]

    # ------------------------------------------------------------ reading the module

    def _visit_module(self, module: torch.nn.Module, name: str) -> None:
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        if self._root() is not module:
            self._below[name] = module
            self._visit_hooks(module, name)
        self.problem = self.problem or _problem(module, name)
        self._note_dicts(vars(module), module._parameters, module._buffers, module._modules)
        computed = _computed(module)
        extras = attributes(module)
        if computed or any(_compares_elements(value) for value in extras.values()):
            names = tuple(key for key in vars(module) if key not in computed | {RUNTIME})
            self._picked.append((vars(module), names))
        else:
            self._attributes.append((name, (*_COMPARED, *extras), vars(module)))
        for key, value in extras.items():
            if key not in computed:
                self._visit(value, f"{name}.{key}".lstrip("."), 0)
        for tensors in (module._parameters, module._buffers):
            if tensors:
                # Other tensors of several elements are unequal in any case: their comparison has no truth.
                several = all(tensor is None or tensor.numel() > 1 for tensor in tensors.values())
                (self._unequal if several else self._in_dicts.by_identity).append(tensors.values())
                for tensor in tensors.values():
                    if tensor is not None:
                        self._found.setdefault(id(tensor), tensor)
        if module._modules:
            self._unequal.append(module._modules.values())
            for key, child in module._modules.items():
                if child is not None:
                    self._visit_module(child, f"{name}.{key}".lstrip("."))

    def _visit_hooks(self, module: torch.nn.Module, name: str) -> None:
        for kind in _HOOKS:
            hooks = getattr(module, kind)
            self._note_dicts(hooks)
            if not hooks:
                self._no_hooks.append(hooks)
                continue
            self._in_dicts.by_identity.append(hooks.values())
            if not all(map(_is_harmless, hooks.values())):
                self.hooked = self.hooked or name

    def _note_dicts(self, *dicts: dict[Any, Any]) -> None:
        self._all_dicts.update((id(entries), entries) for entries in dicts)

    def _visit(self, value: Any, name: str, depth: int) -> None:
        """Finds tensors and things that may change in the value of an attribute."""
        if isinstance(value, Tensor):
            self._found.setdefault(id(value), value)
            return
        if isinstance(value, torch.nn.Module):
            self._visit_module(value, name)
            return
        if isinstance(value, _CLOSED) or id(value) in self._seen or depth > _DEEPEST:
            return
        self._seen.add(id(value))
        if len(self._in_dicts.plain) + len(self._elsewhere.plain) > _MOST_SOURCES:
            self.problem = self.problem or "its attributes hold too many objects to compare"
            return
        if isinstance(value, (list, tuple, dict, set, frozenset, collections.deque)):
            self._visit_entries(value, name, depth)
        elif hasattr(value, "__dict__") and not isinstance(value, Iterable):
            self._visit_entries(vars(value), name, depth)

    def _visit_entries(self, entries: Any, name: str, depth: int) -> None:
        if len(entries) > _MOST_ENTRIES and not hasattr(entries, "_parameters"):
            self._elsewhere.long.append(entries)
            return
        kind, values = self._elsewhere, entries
        if isinstance(entries, dict):
            self._note_dicts(entries)
            kind, values = self._in_dicts, entries.values()
        if any(map(_compares_elements, values)):
            kind.by_identity.append(values)
        elif not isinstance(entries, (tuple, frozenset)):  # whose values stay
            kind.names.append(name)
            kind.plain.append(values)
        for value in list(values):
            self._visit(value, name, depth + 1)

    def _check_tensors(self) -> None:
        for tensor in self.tensors:
            if not is_plain(tensor):
                self.problem = self.problem or f"it has a tensor of class {type(tensor).__qualname__}"
            elif tensor.is_inference():
                self.problem = self.problem or "it has a tensor that was made in inference mode"
            elif tensor.requires_grad and not tensor.is_leaf:
                self.is_borrowed = True

    # ------------------------------------------------------------ comparing

    def _state(self) -> tuple[Any, ...]:
        if self.problem:
            return ()
        return (
            [get(entries) for get, entries in self._getters],
            list(map(len, self._dicts)),
            list(chain.from_iterable(self._unequal)),
            any(self._no_hooks),
            self._in_dicts.state(),
            self._elsewhere.state(),
            [tuple(id(entries.get(name)) for name in names) for entries, names in self._picked],
        )

    def _metadata_of_tensors(self) -> tuple[Any, ...]:
        tensors = self.tensors
        return (
            list(map(Tensor.data_ptr, tensors)),
            list(map(_requires_grad, tensors)),
            list(map(Tensor.stride, tensors)),
            list(map(_shape, tensors)),
            list(map(_dtype, tensors)),
        )

    def _ids_of_tensors(self) -> list[int]:
        by_identity = chain(self._in_dicts.by_identity, self._elsewhere.by_identity)
        return list(map(id, chain(chain.from_iterable(self._unequal), chain.from_iterable(by_identity))))

    def matches(self) -> bool:
        """Whether the module is as it was."""
        if self._watch is None:
            return self._is_as_saved() and self._metadata_of_tensors() == self._metadata
        found = self._watch.state()
        if found is Change.NONE:
            return _equal(self._elsewhere.state, self._saved_elsewhere)
        if found is Change.TENSORS:
            return False
        # First, so that what changes from here on is found at the next call.
        self._watch.note_dicts(True)
        same = self._is_as_saved()
        if not same:
            self._watch.note_dicts(False)
        return same

    def _is_as_saved(self) -> bool:
        return _equal(self._state, self._saved)

    def has_same_tensors(self) -> bool:
        """Whether the module has the same parameters and buffers, though their memory may be another."""
        return self._ids_of_tensors() == self._tensor_ids

    @contextlib.contextmanager
    def with_stand_ins(self, stand_ins: Mapping[int, Tensor]) -> Iterator[None]:
        """A block in which other tensors replace parameters, by the identities of these."""
        replaced: list[tuple[Any, Any, Any]] = []
        try:
            for module in self.modules:
                containers: list[Any] = [module._parameters]
                containers += [x for x in attributes(module).values() if type(x) in (list, dict)]
                for container in containers:
                    entries = container.items() if isinstance(container, dict) else enumerate(container)
                    for key, value in list(entries):
                        if id(value) in stand_ins:
                            replaced.append((container, key, value))
                            container[key] = stand_ins[id(value)]
            yield
        finally:
            for container, key, value in replaced:
                container[key] = value

    def changed(self) -> str:
        """The name of an attribute that is not as it was, or "" if something else has changed."""
        if not self._saved:
            return ""
        for (name, keys, entries), saved in zip(self._attributes, self._saved[0]):
            new = [key for key in _attributes_of(entries) if key not in keys]
            other = [key for key, value in zip(keys, saved) if key not in entries or not _same(value, entries[key])]
            if new or other:
                return f"{name}.{(new + other)[0]}".lstrip(".")
        for kind, (all_saved, *_) in zip((self._in_dicts, self._elsewhere), self._saved[4:6]):
            for name, values, saved in zip(kind.names, kind.plain, all_saved):
                now = tuple(values)
                if len(now) != len(saved) or not all(map(_same, now, saved)):
                    return name
        return ""


class _Entries:
    """What is in containers.

    Attributes:
        plain: The entries of others, which are compared by ``==``.
        names: For each of ``plain``, the attribute that has it.
        by_identity: The entries of containers with tensors or arrays.
        long: Containers that are compared by their lengths.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.plain: list[Any] = []
        self.by_identity: list[Any] = []
        self.long: list[Any] = []

    def state(self) -> tuple[Any, ...]:
        return (
            list(map(tuple, self.plain)),
            list(map(id, chain.from_iterable(self.by_identity))),
            list(map(len, self.long)),
        )


def _equal(state: Callable[[], Any], saved: Any) -> bool:
    """Whether a state is as it was. Values without a truth, such as arrays that replaced numbers, and keys that are gone mean no."""
    try:
        return bool(state() == saved)
    except (RuntimeError, ValueError, TypeError, KeyError):
        return False


def _same(x: Any, y: Any) -> bool:
    if x is y or type(x) is not type(y) or _compares_elements(x):
        return x is y
    return _equal(lambda: x, y)


def _compares_elements(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(type(value), "__array__")


def _problem(module: torch.nn.Module, name: str) -> str:
    what = name or type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        return f"{what} is a ScriptModule"
    if module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule":
        return f"{what} is compiled by torch.compile"
    if type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"):
        return f"{what} is a {type(module).__name__}"
    return ""
