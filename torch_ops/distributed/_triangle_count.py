"""Triangles of a partitioned graph: blocks move between ranks while others are counted.

``_deal.py`` says which blocks a step needs. ``torch.ops.gpuopt._count_blocks`` counts the triangles of three blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_ops.distributed._deal import Block
from torch_ops.distributed._partition import MASK_64, Partition
from torch_ops.distributed._peers import Peers

__all__ = ["triangle_count"]

_ops = torch.ops.gpuopt


class Steps:
    """The steps of one rank: receives blocks, and counts.

    There are two receive buffers. The blocks of step t + 1 are on their way to one of them while step t is counted from the other one.
    NCCL works on a separate stream. It waits for the counts that were enqueued before, up to step t - 1, which read the buffer that it
    writes next.
    """

    def __init__(self, partition: Partition, peers: Peers) -> None:
        self.partition, self.peers = partition, peers
        self.deal = partition.deal
        self.count = len(partition.rows)
        wire = peers.wire(partition.device)
        self.outgoing = {block: numbers.to(wire) for block, numbers in partition.blocks.items()}
        received = [[block for _, block in self.deal.received(partition.rank, step)] for step in range(self.count)]
        size = max(sum(map(partition.length_of, blocks)) for blocks in received)
        self.buffers = [torch.empty(size, dtype=torch.int32, device=wire) for _ in range(2)]

    def _split(self, block: Block, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The pointers to the rows of a block, and its targets."""
        rows = self.partition.rows[block[0]] + 1
        return numbers[:rows], numbers[rows:]

    @property
    def nbytes(self) -> int:
        """The bytes that this rank holds while it counts."""
        return sum(tensor.nbytes for tensor in (*self.partition.blocks.values(), *self.buffers))

    def start(self, step: int) -> tuple[dict[Block, Tensor], list[dist.Work]]:
        """Starts the exchange of a step: the blocks that this rank receives and sends."""
        incoming: dict[Block, Tensor] = {}
        if step >= self.count:
            return incoming, []
        free = self.buffers[step % 2]
        operations = []
        for other, block in self.deal.received(self.partition.rank, step):
            incoming[block], free = free.tensor_split([self.partition.length_of(block)])
            operations.append(self._operation(dist.irecv, incoming[block], other, block))
        for other, block in self.deal.sent(self.partition.rank, step):
            operations.append(self._operation(dist.isend, self.outgoing[block], other, block))
        with self.peers.reached():
            return incoming, dist.batch_isend_irecv(operations) if operations else []

    def _operation(self, kind: Callable[..., Any], numbers: Tensor, other: int, block: Block) -> dist.P2POp:
        tag = block[0] * self.count + block[1]
        return dist.P2POp(kind, numbers, group=self.peers.group, tag=tag, group_peer=other)

    def finish(self, exchange: tuple[dict[Block, Tensor], list[dist.Work]]) -> dict[Block, Tensor]:
        """The blocks that have come, and this rank's own."""
        incoming, works = exchange
        with self.peers.reached():
            for work in works:
                work.wait()
        device = self.partition.device
        return self.partition.blocks | {block: numbers.to(device) for block, numbers in incoming.items()}

    def triangles(self, step: int, blocks: dict[Block, Tensor]) -> Tensor:
        """The triangles of a step."""
        lists = {b: self._split((b, k), blocks[b, k]) for b, k in self.deal.needed(self.partition.rank, step)}
        total = torch.zeros((), dtype=torch.int64, device=self.partition.device)
        for (i, j), numbers in self.partition.blocks.items():
            total += _ops._count_blocks.default(*self._split((i, j), numbers), *lists[i], *lists[j])
        return total

    def run(self) -> Tensor:
        """The triangles that this rank counts."""
        total = torch.zeros((), dtype=torch.int64, device=self.partition.device)
        exchange = self.start(0)
        for step in range(self.count):
            blocks = self.finish(exchange)
            exchange = self.start(step + 1)
            total += self.triangles(step, blocks)
        return total


def _check(partition: Partition, peers: Peers) -> None:
    """Raises on every rank if ranks have different graphs, or blocks are missing."""

    def fits() -> None:
        if not isinstance(partition, Partition):
            raise TypeError(
                f"triangle_count: partition must be of torch_ops.distributed.partition, got {type(partition).__name__}"
            )
        expected, got = (peers.rank, peers.ranks), (partition.rank, partition.ranks)
        if got != expected:
            raise ValueError(
                f"triangle_count: partition must be of this group: expected rank {expected[0]} of {expected[1]}, "
                f"got rank {got[0]} of {got[1]}"
            )
        peers.wire(partition.device)

    peers.together(fits)
    peers.agree(digest=f"{partition.digest:016x}", num_nodes=partition.num_nodes, sizes=partition.sizes)
    total = sum(peers.gather(sum(partition.digests.values()))) & MASK_64
    if total != partition.digest:
        raise ValueError(
            f"triangle_count: the blocks of all ranks must be those of the graph: expected digest {partition.digest:016x}, "
            f"got {total:016x}"
        )


def triangle_count(partition: Partition, group: dist.ProcessGroup | None = None) -> int:
    """The number of triangles of a partitioned graph, exactly.

    Blocks of edges are sent from rank to rank, by NCCL between GPUs and by gloo between CPUs, while others are counted. A rank holds its
    own blocks, and the blocks of two steps.

    Args:
        partition: of this rank, from :func:`partition` or :func:`load_partition`.
        group: the group that the partition is for, by default all ranks.

    Returns:
        The same number on every rank.

    Raises:
        ValueError: ranks have different graphs, or the partition is for another group.
        RankError: another rank has failed or died, or exceeds the group's timeout. Under NCCL, the watchdog of ``torch.distributed`` may
            end the process instead.

    Example:
        >>> part = torch_ops.distributed.partition(edges_of_this_rank)
        >>> torch_ops.distributed.triangle_count(part)
        627584181
    """
    peers = Peers("triangle_count", group)
    _check(partition, peers)
    return peers.sum(Steps(partition, peers).run())
