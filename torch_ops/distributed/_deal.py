"""Which rank holds which blocks of a partitioned graph, and when it needs blocks of other ranks. Plain Python.

Vertices are in ``buckets`` buckets, and block (i, j) has the edges that lead from bucket i to bucket j. A rank holds pairs of buckets:
pair {i, j} is the blocks (i, j) and (j, i), so an edge has its rank before it has its direction::

               j = 0   1   2
    i = 0        A     B   C        pairs of 3 ranks: A {0,1} {0,0},  B {0,2} {2,2},  C {1,2} {1,1}
        1        B ...              (the letters of a pair are the same on both sides of the diagonal)

A pair of different buckets is twice the work of an equal pair. Pairs go to the rank with the least work, among these to the one that
already has their buckets.

A triangle u -> v, u -> w, v -> w of the buckets i, j, k has its edges in the blocks (i, j), (i, k) and (j, k). In step t, a rank counts
the triangles of its own blocks (i, j) whose w is in bucket k = (rank + t) mod buckets. So it needs (b, k) for each of its buckets b.
"""

from __future__ import annotations

import dataclasses
import functools
import math

Block = tuple[int, int]

# A rank may have this much more work than the mean.
IMBALANCE = 1.1


@functools.lru_cache(maxsize=64)
def _dealt(buckets: int, ranks: int) -> list[list[Block]]:
    """The pairs of each rank."""
    pairs: list[list[Block]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    buckets_of_rank: list[set[int]] = [set() for _ in range(ranks)]
    different = [(i, j) for i in range(buckets) for j in range(i + 1, buckets)]
    for pair in [*different, *((i, i) for i in range(buckets))]:
        rank = min(range(ranks), key=lambda r: (load[r], len({*pair} - buckets_of_rank[r]), r))
        pairs[rank].append(pair)
        load[rank] += len({*pair})
        buckets_of_rank[rank] |= {*pair}
    return pairs


def _is_balanced(buckets: int, ranks: int) -> bool:
    most = max(sum(len({*pair}) for pair in pairs) for pairs in _dealt(buckets, ranks))
    return most * ranks <= IMBALANCE * buckets**2


@functools.lru_cache(maxsize=64)
def choose_buckets(ranks: int) -> int:
    """The smallest number of buckets whose pairs can be dealt evenly: about the square root of twice the ranks."""
    if ranks == 1:
        return 1
    # A rank with a pair of two buckets has at least twice the work of an equal pair.
    buckets = math.ceil(math.sqrt(2 * ranks / IMBALANCE))
    while not _is_balanced(buckets, ranks):
        buckets += 1
    return buckets


@dataclasses.dataclass(frozen=True)
class Deal:
    buckets: int
    ranks: int

    @functools.cached_property
    def pairs(self) -> list[list[Block]]:
        """The pairs (i, j), i <= j, of each rank."""
        return _dealt(self.buckets, self.ranks)

    @functools.cached_property
    def owners(self) -> dict[Block, int]:
        """The rank of each block."""
        return {block: rank for rank, pairs in enumerate(self.pairs) for i, j in pairs for block in ((i, j), (j, i))}

    def blocks(self, rank: int) -> list[Block]:
        return sorted({block for i, j in self.pairs[rank] for block in ((i, j), (j, i))})

    def buckets_of(self, rank: int) -> list[int]:
        return sorted({bucket for pair in self.pairs[rank] for bucket in pair})

    @functools.cached_property
    def sharers(self) -> list[list[int]]:
        """The ranks that have edges of each bucket's vertices."""
        buckets_of_ranks = [set(self.buckets_of(rank)) for rank in range(self.ranks)]
        return [
            [rank for rank in range(self.ranks) if bucket in buckets_of_ranks[rank]] for bucket in range(self.buckets)
        ]

    @property
    def copies(self) -> float:
        """The mean number of ranks that share a bucket."""
        return sum(map(len, self.sharers)) / self.buckets

    def needed(self, rank: int, step: int) -> list[Block]:
        """The blocks of targets that a rank needs in a step."""
        k = (rank + step) % self.buckets
        return [(bucket, k) for bucket in self.buckets_of(rank)]

    def received(self, rank: int, step: int) -> list[tuple[int, Block]]:
        """The blocks that come from other ranks, and these ranks."""
        needed = [(self.owners[block], block) for block in self.needed(rank, step)]
        return [(owner, block) for owner, block in needed if owner != rank]

    def sent(self, rank: int, step: int) -> list[tuple[int, Block]]:
        """The blocks that go to other ranks, and these ranks."""
        others = (other for other in range(self.ranks) if other != rank)
        return [(other, block) for other in others for owner, block in self.received(other, step) if owner == rank]
