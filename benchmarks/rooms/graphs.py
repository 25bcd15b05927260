"""Random graphs with the sizes and the skew of data sets, as the operands of sparse products and segments.

Both ends of an entry are drawn by R-MAT (D. Chakrabarti, Y. Zhan and C. Faloutsos, 2004): each bit of their numbers is 0 with the
probability ``skew``, and the quadrants of the matrix have skew^2, skew (1 - skew), skew (1 - skew) and (1 - skew)^2. So 0.5 is
uniform, and 0.76 is near Graph500's parameters. For a data set, ``skew`` is chosen so that the longest row is as long as there.
Numbers are shuffled afterwards, which leaves no order that a cache could use. Entries may repeat. They are sorted by row and column.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import torch

from benchmarks.harness.operands import Maker

# Dense rows that do not fit count once for each entry. An H100 has 50 MiB, an H200 has 60 MiB.
L2_BYTES = 50 << 20


@dataclasses.dataclass(frozen=True)
class Graph:
    name: str
    rows: int
    entries: int
    skew: float = 0.5
    columns: int = 0  # as many as rows if it is 0
    index: torch.dtype = torch.int32

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns or self.rows

    @property
    def title(self) -> str:
        return self.name if self.skew == 0.5 else f"{self.name} skew {self.skew:.2f}"

    @property
    def structure_bytes(self) -> int:
        return (self.rows + 1 + self.entries) * self.index.itemsize

    def touched(self, size: int) -> int:
        """The expected number of different rows, or columns, in all entries."""
        bits = max(size - 1, 0).bit_length()
        drawn = 0.0
        for ones in range(bits + 1):
            probability = min(self.skew ** (bits - ones) * (1 - self.skew) ** ones, 1 - 1e-9)
            drawn += math.comb(bits, ones) * (1 - math.exp(self.entries * math.log1p(-probability))) / (1 << bits)
        twice = (1 << bits) / size - 1  # the share that two numbers of so many bits lead to
        drawn = (1 - twice) * drawn + twice * (1 - (1 - drawn) ** 2)
        return max(1, min(size, self.entries, round(drawn * size)))

    def gathered_bytes(self, row_bytes: int, size: int | None = None) -> int:
        """The bytes of dense rows that are read: the row of each entry, or each row once if all of them fit the L2."""
        size = self.shape[1] if size is None else size
        return row_bytes * (self.entries if size * row_bytes > L2_BYTES else self.touched(size))


class Structure(NamedTuple):
    """A matrix in rows, the row of each entry, and the matrix's transpose, if a call needs it. The first operands of all calls."""

    ptr: torch.Tensor
    row: torch.Tensor
    index: torch.Tensor
    t_ptr: torch.Tensor | None
    t_index: torch.Tensor | None
    t_entry: torch.Tensor | None


PARTS = len(Structure._fields)


def _drawn(m: Maker, count: int, bits: int, skew: float) -> torch.Tensor:
    number = torch.zeros(count, dtype=torch.int32, device=m.device)
    for _ in range(bits):
        number = number * 2 + (torch.rand(count, device=m.device, generator=m.generator) >= skew)
    return number


def _ends(m: Maker, count: int, size: int, skew: float) -> torch.Tensor:
    bits = max(size - 1, 0).bit_length()
    number = _drawn(m, count, bits, skew)
    return torch.randperm(1 << bits, device=m.device, generator=m.generator)[number] % size


def _pointers(sorted_rows: torch.Tensor, rows: int) -> torch.Tensor:
    counts = torch.bincount(sorted_rows, minlength=rows)
    ptr = torch.zeros(rows + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=ptr[1:])
    return ptr


# With and without the transpose.
@functools.lru_cache(maxsize=2)
def _made(graph: Graph, transpose: bool, device: str) -> Structure:
    m = Maker(device, torch.float32, 0)
    rows, columns = graph.shape
    key = _ends(m, graph.entries, rows, graph.skew) * columns + _ends(m, graph.entries, columns, graph.skew)
    key = key.sort().values
    row, index = key // columns, key % columns
    del key
    tensors = [_pointers(row, rows), row, index, None, None, None]
    if transpose:
        sorted_columns, entry = index.sort(stable=True)
        tensors[3:] = [_pointers(sorted_columns, columns), row[entry], entry]
    return Structure(*(None if t is None else t.to(graph.index) for t in tensors))


def structure(graph: Graph, device: str, seed: int, transpose: bool = False) -> Structure:
    """The same matrix for every seed. Another seed than 0 has copies of the tensors."""
    if device == "meta":
        rows, columns = graph.shape
        sizes = [rows + 1, graph.entries, graph.entries, columns + 1, graph.entries, graph.entries]
        tensors = [torch.empty(size, dtype=graph.index, device="meta") for size in sizes]
        return Structure(*tensors[:3], *(tensors[3:] if transpose else [None] * 3))
    made = _made(graph, transpose, device)
    return made if seed == 0 else Structure(*(t.clone() if isinstance(t, torch.Tensor) else t for t in made))


def undirected(graph: Graph, m: Maker) -> tuple[torch.Tensor, torch.Tensor]:
    """Both ends of each entry of a graph without loops and repeats, sorted. Both directions of an edge are entries."""
    vertices, edges = graph.rows, graph.entries // 2
    if m.device == "meta":
        return m.empty(2 * edges).to(graph.index), m.empty(2 * edges).to(graph.index)
    keys = torch.empty(0, dtype=torch.int64, device=m.device)
    bits = (vertices - 1).bit_length()
    names = torch.randperm(1 << bits, device=m.device, generator=m.generator) % vertices
    while keys.numel() < edges:
        ends = [_drawn(m, edges, bits, graph.skew) for _ in range(2)]
        one, other = (names[end] for end in ends)
        drawn = torch.minimum(one, other) * vertices + torch.maximum(one, other)
        keys = torch.cat([keys, drawn[one != other]]).unique()
    keys = keys[torch.randperm(keys.numel(), device=m.device, generator=m.generator)[:edges]]
    both = torch.cat([keys, keys % vertices * vertices + keys // vertices]).sort().values
    return (both // vertices).to(graph.index), (both % vertices).to(graph.index)


# Undirected edges are two entries.
CORA = Graph("Cora", 2708, 10556, 0.6)
ARXIV = Graph("arxiv", 169343, 2332486, 0.75)
REDDIT = Graph("Reddit", 232965, 114615892, 0.62)
PRODUCTS = Graph("products", 2449029, 123718280, 0.67)
ORKUT = Graph("Orkut", 3072441, 234370166, 0.67)
# The longest rows of the data sets.
LONGEST = {ARXIV: 13161, REDDIT: 21657, PRODUCTS: 17481, ORKUT: 33313}


def uniform(graph: Graph) -> Graph:
    return dataclasses.replace(graph, name=f"{graph.name} uniform", skew=0.5)
