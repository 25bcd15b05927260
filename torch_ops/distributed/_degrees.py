"""The degrees of the vertices of a rank's buckets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torch_ops.distributed._deal import Deal
from torch_ops.distributed._peers import Peers


class Degrees:
    """The degree of each hashed vertex of this rank's buckets, over the edges of all ranks.

    Attributes:
        of: the degrees of all buckets, one bucket behind the other.
    """

    def __init__(self, ends: Iterator[Tensor], length: int, deal: Deal, peers: Peers, device: torch.device) -> None:
        self.deal, self.peers, self.length = deal, peers, length
        self.rank_buckets = deal.buckets_of(peers.rank)
        self._slots = torch.zeros(deal.buckets, dtype=torch.int64, device=device)
        self._slots[self.rank_buckets] = torch.arange(len(self.rank_buckets), device=device)
        self._buckets = torch.tensor(self.rank_buckets, device=device)
        size = len(self.rank_buckets) * length
        local: Any = sum(torch.bincount(self.index(end), minlength=size) for end in ends)
        self.of = self._summed(local.int().view(len(self.rank_buckets), length)).flatten()

    def index(self, vertex: Tensor) -> Tensor:
        """Where a hashed vertex is in `of`."""
        return self._slots[vertex % self.deal.buckets] * self.length + vertex // self.deal.buckets

    def bucket(self, index: Tensor) -> Tensor:
        return self._buckets[index // self.length]

    def numbered(self) -> tuple[Tensor, dict[int, int]]:
        """The number of each vertex among the vertices of its bucket that have an edge, in the order of degrees, and how many there are."""
        numbers, rows = [], {}
        for bucket, degrees in zip(self.rank_buckets, self.of.view(len(self.rank_buckets), self.length), strict=True):
            rows[bucket] = int(torch.count_nonzero(degrees))
            order = degrees.argsort(stable=True)
            number = torch.empty_like(order)
            number[order] = torch.arange(self.length, device=order.device) - (self.length - rows[bucket])
            numbers.append(number)
        return torch.cat(numbers), rows

    def _shared(self, other: int, adder: int) -> list[tuple[int, slice]]:
        """Where `adder` adds up degrees, in the buckets that this rank shares with another one."""

        def part(bucket: int) -> tuple[int, slice]:
            sharers = self.deal.sharers[bucket]
            begin, end = (self.length * (sharers.index(adder) + k) // len(sharers) for k in (0, 1))
            return self.rank_buckets.index(bucket), slice(begin, end)

        return [part(bucket) for bucket in self.rank_buckets if other in self.deal.sharers[bucket]]

    def _summed(self, local: Tensor) -> Tensor:
        """Ranks that share a bucket add a part of its degrees each, and send the sums to the others."""
        ranks, rank = range(self.peers.ranks), self.peers.rank
        none = local.new_empty(0)
        came = self.peers.all_to_all([torch.cat([none, *(local[at] for at in self._shared(r, r))]) for r in ranks])
        sums = torch.zeros_like(local)
        for other in ranks:
            shared = self._shared(other, rank)
            for at, values in zip(shared, came[other].split([sums[at].numel() for at in shared])):
                sums[at] += values
        came = self.peers.all_to_all([torch.cat([none, *(sums[at] for at in self._shared(r, rank))]) for r in ranks])
        for other in ranks:
            shared = self._shared(other, other)
            for at, values in zip(shared, came[other].split([sums[at].numel() for at in shared])):
                sums[at] = values
        return sums
