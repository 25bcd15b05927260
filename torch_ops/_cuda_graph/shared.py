"""What a module and the modules below it have in common."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from torch_ops._cuda_graph.backend import Backend, Pool

if TYPE_CHECKING:
    from torch_ops._cuda_graph.runtime import Runtime

__all__ = ["Shared"]


class Shared:
    """The limits of a module and the modules below it, and their memory.

    Args:
        max_graphs: The most signatures of each module that are recorded at once.
        limit_bytes: The most memory of all recordings.
    """

    def __init__(self, max_graphs: int, limit_bytes: int | None) -> None:
        self.max_graphs, self.limit_bytes = max_graphs, limit_bytes
        self.pools: dict[Hashable, Pool] = {}
        self.runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()

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
