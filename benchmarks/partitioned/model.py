"""A model of the seconds and bytes of a count over ranks, fitted to measurements of a few ranks of one host.

A rank counts for ``work`` seconds times its share of all block triples, and ``call`` seconds for each call of the kernel. It receives
in ``byte`` seconds a byte, and ``message`` seconds a step. The first exchange is not hidden; later ones run while blocks are counted.
``start`` seconds are spent before and after. Bytes follow from the deal and need no fit.

Left out: links between hosts, which are slower than links within one; ranks that share a link; buckets of different sizes, whose
largest block sets the pace; and graphs whose hubs have more edges than a block has on average.
"""

from __future__ import annotations

import dataclasses
import statistics

import numpy as np

from torch_ops.distributed._deal import Deal, choose_buckets

PREDICTED = (8, 64, 1024)


@dataclasses.dataclass(frozen=True)
class Load:
    """The most that a rank has to do, of a graph with so many edges and vertices that have an edge."""

    ranks: int
    edges: int
    vertices: int

    @property
    def deal(self) -> Deal:
        return Deal(choose_buckets(self.ranks), self.ranks)

    @property
    def share(self) -> float:
        """Of all triples of blocks."""
        deal = self.deal
        return max(len(deal.blocks(rank)) for rank in range(self.ranks)) / deal.buckets**2

    @property
    def calls(self) -> int:
        deal = self.deal
        return deal.buckets * max(len(deal.blocks(rank)) for rank in range(self.ranks))

    @property
    def block_bytes(self) -> float:
        q = self.deal.buckets
        return 4 * (self.edges / q**2 + self.vertices / q)

    @property
    def received(self) -> float:
        """Bytes."""
        deal = self.deal
        blocks = max(deal.buckets * len(deal.buckets_of(rank)) - len(deal.blocks(rank)) for rank in range(self.ranks))
        return blocks * self.block_bytes

    @property
    def bytes_for_each_edge(self) -> float:
        """That all ranks send."""
        deal = self.deal
        return 4 * (deal.copies - 1) * (1 + deal.buckets * self.vertices / self.edges)

    @property
    def memory(self) -> float:
        """Bytes: own blocks, and two steps of received blocks."""
        deal = self.deal

        def blocks_of(rank: int) -> int:
            buffer = max(len(deal.received(rank, step)) for step in range(deal.buckets))
            return len(deal.blocks(rank)) + 2 * buffer

        return self.block_bytes * max(map(blocks_of, range(self.ranks)))


def not_negative(columns: list[list[float]], values: list[float]) -> list[float]:
    """The factors of one or two columns with the smallest relative squared errors. None is negative."""
    scale = 1 / np.array(values)
    matrix, ones = np.array(columns).T * scale[:, None], np.ones(len(values))

    def fit(kept: list[int]) -> tuple[float, list[float]]:
        factors = np.zeros(len(columns))
        if kept:
            factors[kept] = np.linalg.lstsq(matrix[:, kept], ones, rcond=None)[0]
        return float(np.square(matrix @ factors - ones).sum()), factors.tolist()

    tried = [fit(kept) for kept in ([], *([k] for k in range(len(columns))), list(range(len(columns))))]
    return min(one for one in tried if min(one[1]) >= 0)[1]


@dataclasses.dataclass(frozen=True)
class Model:
    work: float
    call: float
    byte: float
    message: float
    start: float

    def counting(self, load: Load) -> float:
        return self.work * load.share + self.call * load.calls

    def communication(self, load: Load, bandwidth: float | None = None) -> float:
        """With another bandwidth than the measured one, if it is given in bytes a second."""
        if load.ranks == 1:
            return 0.0
        byte = self.byte if bandwidth is None else 1 / bandwidth
        return byte * load.received + self.message * load.deal.buckets

    def seconds(self, load: Load, bandwidth: float | None = None) -> float:
        counting, communication, steps = self.counting(load), self.communication(load, bandwidth), load.deal.buckets
        hidden = (steps - 1) / steps * max(counting, communication)
        return self.start + communication / steps + hidden + counting / steps


def most(row: dict, name: str) -> float:
    return max(of_rank[name] for of_rank in row["each"])


def load_of(row: dict, ranks: int | None = None) -> Load:
    return Load(ranks or row["ranks"], row["edges"], row["vertices"])


def fit(rows: list[dict]) -> Model:
    """The rows of one device and backend, for several numbers of ranks."""
    loads = [load_of(row) for row in rows]
    work, call = not_negative(
        [[load.share for load in loads], [load.calls for load in loads]], [most(row, "counting_s") for row in rows]
    )
    many = [(load, row) for load, row in zip(loads, rows) if load.ranks > 1]
    byte = message = 0.0
    if many:
        columns = [[load.received for load, _ in many], [load.deal.buckets for load, _ in many]]
        byte, message = not_negative(columns, [most(row, "communication_s") for _, row in many])
    model = Model(work, call, byte, message, 0.0)
    rest = [most(row, "count_s") - model.seconds(load) for load, row in zip(loads, rows)]
    return dataclasses.replace(model, start=max(0.0, statistics.median(rest)))
