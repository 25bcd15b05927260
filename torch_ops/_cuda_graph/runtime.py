"""Decides for each call of a module whether it is computed eagerly, recorded, or replayed."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torch_ops._cuda_graph import ambient, capture
from torch_ops._cuda_graph.arguments import Arguments, NotSupported
from torch_ops._cuda_graph.backend import Backend, Cuda, Pool
from torch_ops._cuda_graph.classes import exchange, parts
from torch_ops._cuda_graph.entry import Entry, Past, Shared
from torch_ops._cuda_graph.replay import Recorded
from torch_ops._cuda_graph.results import Declined
from torch_ops._cuda_graph.snapshot import Snapshot
from torch_ops._cuda_graph.structures import Constants

__all__ = ["Runtime", "runtimes"]

_MOST_STATES = 4  # of a module, such as training and evaluation
_MOST_SIGNATURES = 256  # that are remembered
_MOST_UNSTABLE = 8  # calls in a row that find the module in a new state, before it is given up
_MOST_DECLINED = 4  # signatures, before a module is given up
_SLOTS = 2  # forward passes of a module that may wait for their backward passes at once
_numbers = itertools.count()
runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_backend: Backend = Cuda()  # tests put another one here


class Runtime:
    """The signatures of a module, and their recordings.

    Args:
        shared: What it has in common with other modules.
        name: Its name in reports.
    """

    def __init__(self, shared: Shared, name: str = "") -> None:
        self.shared, self.name, self.number = shared, name, next(_numbers)
        self.entries: collections.OrderedDict[tuple[Any, ...], Entry] = collections.OrderedDict()
        self.ways: collections.Counter[str] = collections.Counter()  # eager calls without an entry, by reason
        self.given_up = ""
        self.past = Past()
        self._states: list[Snapshot] = []
        self._unstable = self._declined = self._evictions = self._calls = 0
        self._has_parts = False
        self._lock = threading.Lock()
        self._owner: weakref.ref | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._forget = 0
        runtimes.add(self)
        shared.runtimes.add(self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Runtime:
        return Runtime(copy.deepcopy(self.shared, memo), self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Runtime, (self.shared, self.name)

    def attach(self, module: torch.nn.Module) -> None:
        """Makes this the runtime of a module. It ends with the module."""
        exchange(module, self)
        self._belong_to(module)

    def _belong_to(self, module: torch.nn.Module) -> None:
        self._owner = weakref.ref(module)
        self.name = self.name or type(module).__name__
        # The dicts of the module refer to this object, and snapshots to the dicts. Without this, both would wait for the collector.
        self._finalizer = weakref.finalize(module, _clear, weakref.ref(self))
        self._finalizer.atexit = False

    def detach(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        self.clear()

    def clear(self) -> None:
        """Frees all recordings."""
        for entry in self.entries.values():
            self.past.add(entry)
        self.entries.clear()
        self._states.clear()
        self.shared.trim()

    def recorded(self) -> list[Recorded]:
        return [recorded for entry in list(self.entries.values()) for recorded in entry.slots if recorded is not None]

    # ------------------------------------------------------------ a call

    def call(
        self, module: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Computes ``forward(module, *args, **kwargs)``."""
        if ambient.runs_eagerly():
            return forward(module, *args, **kwargs)
        reason = self.given_up or ambient.blocked(_backend)
        if reason:
            return self._eagerly(reason, module, forward, args, kwargs)
        if not self._lock.acquire(blocking=False):
            return self._eagerly("another call of the module is not done", module, forward, args, kwargs)
        try:
            found = self._find(module, forward, args, kwargs)
            if isinstance(found, str):
                self.ways[found] += 1
                entry = arguments = recorded = None
            else:
                entry, arguments, recorded = found
                if recorded is not None:
                    entry.replays += 1
                    function = functools.partial(forward, module)
                    return recorded.run(function, args, kwargs, arguments.tensors)
        finally:
            self._lock.release()
        result = forward(module, *args, **kwargs)
        if entry is not None and arguments is not None and not entry.reason:
            others = (*arguments.tensors, *entry.snapshot.tensors)
            entry.watch(pytree.tree_leaves(result), others, _backend.device_type)
        return result

    def _eagerly(
        self,
        reason: str,
        module: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self.ways[reason] += 1
        return forward(module, *args, **kwargs)

    def _find(
        self, module: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Entry, Arguments, Recorded | None] | str:
        """The entry of a call and its recording, or why it has none."""
        self._calls += 1
        if self._owner is None or self._owner() is None:
            self._belong_to(module)  # a copy, or a pickle
        elif self._owner() is not module:
            return "a shallow copy of the module"
        if not self._states and (problem := _elsewhere(module)):
            return problem
        if self._calls < self._forget:
            return "its state can't be compared"
        try:
            arguments = Arguments(args, kwargs, _backend.device())
        except NotSupported as problem:
            self._open(module)
            return str(problem)
        state = self._state(module)
        if isinstance(state, str):
            return state
        modes = ambient.key(_backend)
        key, apart = (state, modes, arguments.key), ()
        entry = self._entry(key, arguments, module, apart)
        if entry.apart:
            apart = entry.apart
            constants = [arguments.tensors[number] for number in apart]
            if any(x.is_inference() for x in constants):
                return "the edges of its graph are tensors of inference mode"
            key = (*key, *((id(x), x._version) for x in constants))
            entry = self._entry(key, arguments, module, apart)
        entry.calls += 1
        if entry.reason:
            return entry, arguments, None
        try:
            function = functools.partial(forward, module)
            recorded = self._recording(entry, key, apart, function, args, kwargs, arguments.tensors)
        except Constants as found:
            entry.apart, recorded = found.numbers, None
        except Declined as declined:
            self._decline(entry, declined, module)
            recorded = None
        return entry, arguments, recorded

    def _entry(
        self, key: tuple[Any, ...], arguments: Arguments, module: torch.nn.Module, apart: Sequence[int]
    ) -> Entry:
        """The entry of a signature, and of the arguments that are the same in each call."""
        entry = self.entries.get(key)
        if entry is None or entry.is_gone():  # another tensor may have its identity
            for other in [other for other, one in self.entries.items() if one.is_gone()]:
                self.past.add(self.entries.pop(other))
            constants = [arguments.tensors[number] for number in apart]
            entry = self.entries[key] = Entry(arguments.describe(), module.training, key[1], key[0], constants)
            if len(self.entries) > _MOST_SIGNATURES:
                self.past.add(self.entries.popitem(last=False)[1])
            self.shared.trim()
        self.entries.move_to_end(key)
        return entry

    def _state(self, module: torch.nn.Module) -> Snapshot | str:
        """The snapshot that describes the current state of the module."""
        for number, state in enumerate(self._states):
            if state.matches():
                if number:
                    self._states.insert(0, self._states.pop(number))
                self._unstable = 0
                return state
        if problem := _elsewhere(module):
            return problem
        state = Snapshot(module)
        if state.is_borrowed:
            return "its parameters are computed from others, as by torch.func.functional_call"
        if state.problem:
            # An uninitialised or a sharded parameter, or a compiled module. Looking again at each call would cost more.
            self._forget = 2 * self._calls
            self._open(module)
            return state.problem
        is_first, latest = not self._states, self._states[:1]
        # Snapshots of replaced parameters would keep these alive.
        for other in [other for other in self._states if not other.has_same_tensors()] + self._states[
            _MOST_STATES - 1 :
        ]:
            self._drop_state(other)
        if not is_first:
            self._unstable += 1
            if self._unstable > _MOST_UNSTABLE:
                what = latest[0].changed() or "its attributes"
                self.given_up = f"{what} changes between calls"
                self.clear()
                self._open(module)
                return self.given_up
        self._states.insert(0, state)
        return state

    def _drop_state(self, state: Snapshot) -> None:
        self._states = [other for other in self._states if other is not state]
        for key in [key for key in self.entries if key[0] is state]:
            self.past.add(self.entries.pop(key))
        self.shared.trim()

    # ------------------------------------------------------------ recordings

    def _recording(
        self,
        entry: Entry,
        key: tuple[Any, ...],
        constants: Collection[int],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor],
    ) -> Recorded | None:
        """The recording that computes a call, or None if it runs eagerly this time."""
        for recorded in filter(None, entry.slots):
            if recorded.surprised:
                entry.relearn(recorded)
                self.shared.trim()
                return None
            if recorded.step.structures.are_stale():
                entry.evict()
                self.shared.trim()
                break
        number, pool = self._free_pool(entry, key)
        if pool is None:
            entry.no_slot += 1
            return None
        recorded = entry.slots[number]
        if recorded is None:
            is_full = sum(any(other.slots) for other in self.entries.values()) >= self.shared.max_graphs
            # A full cache takes a signature only if it comes more often than the ones that it has thrown out.
            wanted = 2 + self._evictions if is_full else 2
            entry.missed += 1
            if entry.missed < wanted:
                return None
            if self.shared.bytes() >= self.shared.limit(_backend):
                raise Declined(
                    f"recordings already hold limit_bytes ({self.shared.limit(_backend) >> 20} MiB)", parts=False
                )
            if is_full:
                self._evict()
            mode = entry.mode()
            before = pool.bytes
            recorded, entry.measured = capture.record(
                function, args, kwargs, tensors, key[0], constants, mode, pool, _backend
            )
            entry.bytes = pool.bytes - before
            if self.shared.bytes() > self.shared.limit(_backend):
                self._free(pool)
                raise Declined(
                    f"its recording needs more than limit_bytes ({self.shared.limit(_backend) >> 20} MiB)", parts=False
                )
            entry.slots[number], entry.missed = recorded, 0
            self.shared.trim()
            entry.unchecked = True
        elif entry.unchecked:
            entry.unchecked = False
            if problem := capture.verify(recorded, function, tensors):
                raise Declined(f"a later replay differs: {problem}")
        return recorded

    def _free_pool(self, entry: Entry, key: tuple[Any, ...]) -> tuple[int, Pool | None]:
        """A pool that no backward pass needs, and its number. Modules share pools where no backward pass follows."""
        modes = key[1]
        device, stream = modes[3], modes[4]
        if not modes[0] or modes[1]:
            return 0, self.shared.pool((device, stream))
        for number in range(_SLOTS):
            recorded = entry.slots[number]
            pool = recorded.pool if recorded is not None else self.shared.pool((device, stream, self.number, number))
            if not pool.waits():
                return number, pool
        return 0, None

    def _evict(self) -> None:
        """Throws out the recording that was not used for longest."""
        for entry in self.entries.values():
            if any(entry.slots):
                entry.evict()
                self._evictions += 1
                break

    def _free(self, pool: Pool) -> None:
        """Drops all recordings of a pool, because its memory comes back only as a whole."""
        for runtime in list(self.shared.runtimes):
            for entry in runtime.entries.values():
                if any(recorded is not None and recorded.pool is pool for recorded in entry.slots):
                    entry.evict()
        self.shared.trim()

    def _decline(self, entry: Entry, declined: Declined, module: torch.nn.Module) -> None:
        entry.decline(str(declined))
        self.shared.trim()
        if declined.parts:
            self._declined += 1
            self._open(module)
            if self._declined >= _MOST_DECLINED and not self.recorded():
                self.given_up = str(declined)

    def _open(self, module: torch.nn.Module) -> None:
        """Lets the modules below have recordings of their own."""
        if not self._has_parts:
            self._has_parts = True
            for key, part in parts(module).items():
                Runtime(self.shared, f"{self.name}.{key}").attach(part)


def _elsewhere(module: torch.nn.Module) -> str:
    """That the module is on another device, or ""."""
    first = next(module.parameters(), None)
    if first is None or first.device.type == _backend.device_type:
        return ""
    return f"its parameters are on {first.device.type}"


def _clear(runtime: weakref.ref[Runtime]) -> None:
    if (found := runtime()) is not None:
        found.clear()
