"""Signatures of modules with their recordings, and what modules have in common."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_ops._cuda_graph.ambient import Autocast
from torch_ops._cuda_graph.backend import Backend, Pool
from torch_ops._cuda_graph.capture import Measured
from torch_ops._cuda_graph.replay import Recorded
from torch_ops._cuda_graph.snapshot import Snapshot
from torch_ops._cuda_graph.step import BackwardMode

__all__ = ["Entry", "Past", "Shared"]

_MOST_SURPRISES = 2  # recordings whose backward pass was called in another way


class Entry:
    """A signature.

    Args:
        shapes: Its tensors, for people.
        training: Whether the module trains.
        modes: The key of :mod:`ambient`.
        snapshot: The state of the module.
        constants: Arguments that are the same tensors in each call.

    Attributes:
        apart: The numbers of arguments by whose identities calls are told apart: each of them has another entry.
    """

    def __init__(
        self, shapes: str, training: bool, modes: tuple[Any, ...], snapshot: Snapshot, constants: Iterable[Tensor]
    ) -> None:
        self._constants = list(map(weakref.ref, constants))
        self.apart: tuple[int, ...] = ()
        self.snapshot = snapshot
        gradients, inference, autocast = modes[:3]
        words = [shapes, "train" if training else "eval", *(["no grad"] if inference or not gradients else [])]
        self.name = ", ".join(words + ([f"autocast {str(autocast[0])[6:]}"] if autocast else []))
        self.calls = self.replays = self.missed = self.no_slot = self.bytes = 0
        self.slots: list[Recorded | None] = [None, None]
        self.reason = ""
        self.unchecked = False  # whether no replay on other arguments was compared yet
        self.measured: Measured | None = None
        self._outputs: list[int] | None = None
        self._given: set[int] = set()
        self._inner: dict[int, set[int]] = {}
        self._mode: BackwardMode | None = None
        self._autocast: tuple[Any, ...] | None = None
        self._surprises = 0

    def is_gone(self) -> bool:
        """Whether an argument that is the same in each call no longer exists."""
        return any(constant() is None for constant in self._constants)

    def watch(self, leaves: Sequence[Any], others: Sequence[Tensor], device_type: str) -> None:
        """Notes which results of an eager call get gradients, so that the backward pass is recorded for these.

        Args:
            leaves: The results.
            others: Tensors that are no new results: arguments, and tensors of the module.
            device_type: The device whose autocast counts.
        """
        if not torch.is_grad_enabled():
            return
        no_results = set(map(id, others))
        distinct: dict[int, Tensor] = {}
        for leaf in leaves:
            if isinstance(leaf, Tensor) and id(leaf) not in no_results:
                distinct.setdefault(id(leaf), leaf)
        self._outputs = list(range(len(distinct)))
        self._inner = _inner(list(distinct.values()))
        for number, leaf in enumerate(distinct.values()):
            if leaf.requires_grad and not leaf.is_leaf:

                def note(gradient: Tensor | None, number: int = number) -> None:
                    if gradient is not None:
                        self._given.add(number)
                        self._autocast = Autocast.key(device_type)

                leaf.register_hook(note)

    def mode(self) -> BackwardMode:
        """How the next backward pass is likely to be called."""
        if self._mode is not None:
            return self._mode
        if not self._given or self._outputs is None:
            return BackwardMode()
        # Gradients of a loss flow through logits that were returned beside it, although nobody gave them one.
        given = {number for number in self._given if not self._inner.get(number, set()) & self._given}
        return BackwardMode(tuple(number in given for number in self._outputs), self._autocast)

    def relearn(self, recorded: Recorded) -> None:
        """Drops recordings whose backward pass was called in another way, and remembers which."""
        self.evict()
        self._surprises += 1
        self._mode = recorded.seen_mode
        self.missed = 1
        if self._mode is None:
            self.decline("its backward pass keeps the graph, or is differentiated (retain_graph, create_graph)")
        elif self._surprises > _MOST_SURPRISES:
            self.decline(
                "its backward pass is called in several ways: with gradients of other results, or another autocast"
            )

    def evict(self) -> None:
        self.slots = [None, None]
        self.missed, self.bytes = 0, 0

    def decline(self, reason: str) -> None:
        self.evict()
        self.reason = reason

    def status(self) -> str:
        """In one word, what becomes of calls."""
        return "declined" if self.reason else "recorded" if any(self.slots) else "eager"


class Shared:
    """The limits of a module and the modules below it, and their memory.

    Args:
        max_graphs: The most signatures of each module that are recorded at once.
        limit_bytes: The most memory of all recordings.
    """

    def __init__(self, max_graphs: int, limit_bytes: int | None) -> None:
        self.max_graphs, self.limit_bytes = max_graphs, limit_bytes
        self.pools: dict[Hashable, Pool] = {}
        self.runtimes: weakref.WeakSet[Any] = weakref.WeakSet()

    def __deepcopy__(self, memo: dict[Any, Any]) -> Shared:
        return Shared(self.max_graphs, self.limit_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self.max_graphs, self.limit_bytes)

    def pool(self, key: Hashable) -> Pool:
        if key not in self.pools:
            self.pools[key] = Pool()
        return self.pools[key]

    def trim(self) -> None:
        """Forgets pools without recordings."""
        used = {id(recorded.pool) for runtime in self.runtimes for recorded in runtime.recorded()}
        self.pools = {key: pool for key, pool in self.pools.items() if id(pool) in used}

    def bytes(self) -> int:
        return sum(pool.bytes for pool in self.pools.values())

    def limit(self, backend: Backend) -> int:
        """The most memory: by default half of the device's."""
        return backend.total_memory() // 2 if self.limit_bytes is None else self.limit_bytes


class Past:
    """The calls of signatures that are forgotten."""

    def __init__(self) -> None:
        self.calls = self.replays = 0

    def add(self, entry: Entry) -> None:
        self.calls += entry.calls
        self.replays += entry.replays


def _inner(outputs: Sequence[Tensor]) -> dict[int, set[int]]:
    """For each output from which others are computed, which these are."""
    numbers: dict[Any, list[int]] = {}
    for number, output in enumerate(outputs):
        if output.grad_fn is not None:
            numbers.setdefault(output.grad_fn, []).append(number)
    found: dict[int, set[int]] = {}
    if len(numbers) < 2:
        return found
    for root, of_root in numbers.items():
        seen, waiting = {root}, [root]
        while waiting:
            for node, _ in waiting.pop().next_functions:
                if node is not None and node not in seen:
                    seen.add(node)
                    waiting.append(node)
        for node in (seen & numbers.keys()) - {root}:
            for number in numbers[node]:
                found.setdefault(number, set()).update(of_root)
    return found
