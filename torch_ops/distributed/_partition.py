"""A graph over the ranks of a group, for :func:`torch_ops.distributed.triangle_count`: oriented, and dealt in blocks.

``_deal.py`` says which rank holds which blocks, and ``_partition_file.py`` how they are saved.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from torch_ops._arguments import integer
from torch_ops.distributed import _partition_file
from torch_ops.distributed._deal import Block, Deal, choose_buckets
from torch_ops.distributed._degrees import Degrees
from torch_ops.distributed._partition_file import PartitionFileError
from torch_ops.distributed._peers import Peers
from torch_ops.sparse import CSR

__all__ = ["Partition", "PartitionFileError", "load_partition", "partition"]

# Entries that a rank cleans and sends at once.
CHUNK = 1 << 24
# Edges that a rank orients at once: their temporaries take 100 bytes for each edge.
ORIENTED = 1 << 26
# Of the graph, and the edges of a block: numbers of vertices and of entries have 32 bits.
LARGEST = 2**31 - 1
MASK_64 = 2**64 - 1

Slices = CSR | Tensor | Iterable[Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The blocks of one rank, and the sizes of all blocks.

    Attributes:
        ranks, rank: the group that the partition is for.
        num_nodes: the number of vertices.
        buckets: the number of buckets that the vertices are in.
        rows: the number of vertices of each bucket that have an edge.
        sizes: the number of edges of each block.
        digest: 64 bits that depend on the edges and on ``num_nodes``, and on nothing else.
        blocks: the blocks of this rank, in int32: where each row begins (rows + 1), and the targets of all rows, sorted.
        digests: the digest of each of these blocks. All ranks' digests add up to ``digest``.
    """

    ranks: int
    rank: int
    num_nodes: int
    buckets: int
    rows: list[int]
    sizes: list[list[int]]
    digest: int
    blocks: dict[Block, Tensor]
    digests: dict[Block, int]

    @property
    def num_edges(self) -> int:
        """The number of edges of the graph, each counted once."""
        return sum(map(sum, self.sizes))

    @property
    def deal(self) -> Deal:
        return Deal(self.buckets, self.ranks)

    @property
    def device(self) -> torch.device:
        return next(iter(self.blocks.values())).device

    @property
    def nbytes(self) -> int:
        """The bytes of this rank's blocks."""
        return sum(block.nbytes for block in self.blocks.values())

    def length_of(self, block: Block) -> int:
        """The number of elements of a block."""
        i, j = block
        return self.rows[i] + 1 + self.sizes[i][j]

    def save(self, folder: str | Path) -> Path:
        """Writes the file of this rank, and returns its path. Ranks write to one folder, or each to its own."""
        return _partition_file.save(self, Path(folder))

    def __repr__(self) -> str:
        return (
            f"Partition(rank={self.rank}, ranks={self.ranks}, num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"buckets={self.buckets}, digest={self.digest:016x}, device={self.device})"
        )


# ---------------------------------------------------------------- slices of the edge list


def _device_of(graph: Slices) -> torch.device:
    if isinstance(graph, CSR):
        return graph.index.device
    return graph.device if isinstance(graph, Tensor) else torch.device("cpu")


def _vertices_of(graph: Slices, num_nodes: int | None) -> int:
    """The number of vertices that a rank knows of."""
    if not isinstance(graph, (CSR, Tensor, Iterable)):
        raise TypeError(f"partition: graph must be edge lists or torch_ops.CSR, got {type(graph).__name__}")
    if num_nodes is not None:
        vertices = integer("partition", "num_nodes", num_nodes)
    elif isinstance(graph, CSR):
        vertices = max(graph.shape)
    elif isinstance(graph, Tensor):
        vertices = max(int(graph.max()) + 1, 0) if graph.numel() else 0
    else:
        raise ValueError("partition: num_nodes must be given with an iterable of slices: expected a number, got None")
    if not 0 <= vertices <= LARGEST:
        raise ValueError(f"partition: num_nodes must be the size of the graph: expected 0 to {LARGEST}, got {vertices}")
    return vertices


def _lists(graph: Slices) -> Iterator[Tensor]:
    """The edge lists of a slice, which are checked."""
    if isinstance(graph, CSR):
        graph = torch.stack([graph.rows(), graph.index])
    for edges in [graph] if isinstance(graph, Tensor) else graph:
        if not isinstance(edges, Tensor) or edges.dtype not in (torch.int32, torch.int64):
            got = edges.dtype if isinstance(edges, Tensor) else type(edges).__name__
            raise TypeError(f"partition: an edge list must be a tensor of int32 or int64, got {got}")
        if edges.dim() != 2 or edges.shape[0] != 2:
            raise ValueError(
                f"partition: an edge list must be (2, edges): expected 2 rows, got shape {tuple(edges.shape)}"
            )
        yield edges


def _chunks(graph: Slices, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Both ends of at most CHUNK entries. Short lists are joined, as every chunk is an exchange among all ranks."""
    held: list[Tensor] = []
    for edges in _lists(graph):
        for part in edges.split(CHUNK, 1):
            if sum(one.shape[1] for one in (*held, part)) > CHUNK:
                sources, targets = torch.cat(held, 1)
                yield sources, targets
                held = []
            held.append(part.to(device, torch.int64))
    if held:
        sources, targets = torch.cat(held, 1)
        yield sources, targets


def _hashed(vertex: Tensor, bits: int) -> Tensor:
    """A permutation of the numbers of `bits` bits, which scatters neighbours."""
    mask = (1 << bits) - 1
    for multiplier in (0x7FEB352D, 0x846CA68B, 0x9E3779B1):  # odd, and products stay below 2^63
        vertex = vertex * multiplier & mask
        vertex = vertex ^ vertex >> (bits + 1) // 2
    return vertex


def _keys_of(source: Tensor, target: Tensor, num_nodes: int, bits: int) -> Tensor:
    """Each edge once, as one number: its lower end, and the other one in the lowest 32 bits. Ends are hashed."""
    for end in (source, target):
        outside = end[(end < 0) | (end >= num_nodes)]
        if outside.numel():
            raise IndexError(
                f"partition: edges must name vertices: expected numbers from 0 to {num_nodes - 1}, got {int(outside[0])}"
            )
    one, other = _hashed(source, bits), _hashed(target, bits)
    keys = torch.minimum(one, other) << 32 | torch.maximum(one, other)
    return keys[one != other].unique()


def _ends(keys: Tensor) -> Iterator[Tensor]:
    yield keys >> 32
    yield keys & 0xFFFFFFFF


def _check_entries(entries: int) -> None:
    if entries > LARGEST:
        raise ValueError(
            f"partition: a rank must have at most {LARGEST} entries: expected more ranks for this graph, got {entries} entries on one"
        )


def _keys_of_rank(
    chunks: Iterator[tuple[Tensor, Tensor]], num_nodes: int, bits: int, deal: Deal, device: torch.device, peers: Peers
) -> Tensor:
    """The edges of this rank's pairs of buckets, each once."""
    owners = torch.tensor(
        [[deal.owners[i, j] for j in range(deal.buckets)] for i in range(deal.buckets)], device=device
    )
    received = [torch.empty(0, dtype=torch.int64, device=device)]

    def next_keys() -> Tensor | None:
        ends = next(chunks, None)
        return None if ends is None else _keys_of(*ends, num_nodes, bits)

    while True:
        keys = peers.together(next_keys)
        if not any(peers.gather(keys is not None)):
            peers.together(functools.partial(_check_entries, sum(map(len, received))))
            keys = torch.cat(received)
            received.clear()
            return keys.unique()
        keys = received[0] if keys is None else keys  # a rank without entries still receives
        one, other = _ends(keys)
        owner = owners[one % deal.buckets, other % deal.buckets]
        counts = torch.bincount(owner, minlength=deal.ranks).tolist()
        received += peers.all_to_all(keys[owner.argsort(stable=True)].split(counts))


# ---------------------------------------------------------------- blocks


def _digest_of(keys: Tensor) -> int:
    """The sum of a hash of each key. Products wrap."""
    for multiplier in (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9):
        keys = keys * multiplier
        keys = keys ^ keys >> 31
    return int(keys.sum()) & MASK_64


def _oriented(keys: Tensor, pair: Block, degrees: Degrees) -> Iterator[tuple[Block, Tensor, Tensor, Tensor]]:
    """The edges among `keys` that are in the blocks of a pair of buckets: their keys, sources and targets."""
    low, high = (end % degrees.deal.buckets for end in _ends(keys))
    i, j = pair
    keys = keys[((low == i) & (high == j)) | ((low == j) & (high == i))]
    one, other = map(degrees.index, _ends(keys))
    # From lower to higher degree. Equal degrees are in the order of hashed numbers.
    swapped = degrees.of[other] < degrees.of[one]
    source, target = torch.where(swapped, other, one), torch.where(swapped, one, other)
    from_i = degrees.bucket(source) == i
    for block, is_in_block in {(j, i): ~from_i, (i, j): from_i}.items():  # one block if i and j are equal
        yield block, keys[is_in_block], source[is_in_block], target[is_in_block]


def _rows_of(edges: list[Tensor], rows: int) -> Tensor:
    """A block of edges, which are keys of their numbered ends: where each row begins, and the targets of all rows."""
    keys = torch.cat(edges)
    edges.clear()
    keys = keys.sort().values
    ptr = torch.searchsorted(keys, torch.arange(rows + 1, device=keys.device) << 32, out_int32=True)
    return torch.cat([ptr, keys.int()])  # the lowest 32 bits


def _blocks_of(
    keys: Tensor, pair: Block, degrees: Degrees, numbers: Tensor, rows: dict[int, int]
) -> Iterator[tuple[Block, Tensor, int]]:
    """The blocks of a pair of buckets, and their digests."""
    edges: dict[Block, list[Tensor]] = {pair: [], (pair[1], pair[0]): []}
    digests = dict.fromkeys(edges, 0)
    for part in keys.split(ORIENTED):
        for block, block_keys, source, target in _oriented(part, pair, degrees):
            edges[block].append(numbers[source] << 32 | numbers[target])
            digests[block] = digests[block] + _digest_of(block_keys) & MASK_64
    for block, block_edges in edges.items():
        yield block, _rows_of(block_edges, rows[block[0]]), digests[block]


def partition(
    graph: Slices,
    group: dist.ProcessGroup | None = None,
    *,
    num_nodes: int | None = None,
    buckets: int | None = None,
    device: torch.device | str | None = None,
) -> Partition:
    """Cleans and orients a graph, and deals its edges to the ranks of a group. No rank ever holds all of it.

    Args:
        graph: this rank's slice of the entries: an edge list (2, edges) of int32 or int64, an iterable of such lists, or a
            :class:`torch_ops.CSR` whose values are ignored. Slices may be of any size, also empty, and may overlap. Edges may be given in
            either or both directions, and more than once. Loops are dropped. 2^24 entries are read and sent at a time.
        group: the group, by default all ranks. Under NCCL the blocks are on GPUs. Under gloo they may be, and are copied to be sent.
        num_nodes: the number of vertices, at most 2^31 - 1. By default as many as the slices name, or the size of a CSR.
        buckets: the number of buckets that vertices are hashed into. By default about the square root of twice the ranks. A partition
            that will be loaded by more ranks needs as many as these: ``buckets * (buckets + 1) / 2`` is at least the number of ranks.
        device: where the blocks will be, by default on the device of the graph, and of an iterable on the CPU.

    Returns:
        The :class:`Partition` of this rank.

    Raises:
        TypeError, ValueError, IndexError: the slice is not an edge list, or names a vertex that does not exist. Or ranks disagree about
            ``num_nodes`` or ``buckets``, or a block has 2^31 edges or more and the graph needs more buckets, or a rank gets 2^31 entries
            or more and the graph needs more ranks.
        RankError: raised on the other ranks, and where a rank has died or exceeds the group's timeout.
    """
    peers = Peers("partition", group)
    device = torch.device(device) if device is not None else _device_of(graph)
    peers.agree(num_nodes=num_nodes, buckets=buckets)
    peers.together(lambda: peers.wire(device))
    num_nodes = max(peers.gather(peers.together(lambda: _vertices_of(graph, num_nodes))))
    count = choose_buckets(peers.ranks) if buckets is None else integer("partition", "buckets", buckets)
    deal = Deal(count, peers.ranks)
    if not all(deal.pairs):
        raise ValueError(
            f"partition: every rank must have a pair of buckets: expected {choose_buckets(peers.ranks)} buckets, got {count}"
        )
    bits = max(1, (num_nodes - 1).bit_length())
    keys = _keys_of_rank(_chunks(graph, device), num_nodes, bits, deal, device, peers)
    ends = (end for part in keys.split(ORIENTED) for end in _ends(part))
    degrees = Degrees(ends, -(-(1 << bits) // deal.buckets), deal, peers, device)
    numbers, rows = degrees.numbered()
    blocks, digests = {}, {}
    for pair in deal.pairs[peers.rank]:  # one after another, as their temporaries are larger than blocks
        for block, numbered, digest in _blocks_of(keys, pair, degrees, numbers, rows):
            blocks[block], digests[block] = numbered, digest
    edges = {(i, j): block.numel() - rows[i] - 1 for (i, j), block in blocks.items()}
    rows_of_all, edges_of_all, digests_of_all = {}, {}, {}
    for each in peers.gather((rows, edges, digests)):
        rows_of_all |= each[0]
        edges_of_all |= each[1]
        digests_of_all |= each[2]
    if max(edges_of_all.values()) > LARGEST:
        raise ValueError(
            f"partition: a block must have at most {LARGEST} edges: expected more than {deal.buckets} buckets, got a block of "
            f"{max(edges_of_all.values())} edges"
        )
    every = range(deal.buckets)
    return Partition(
        ranks=peers.ranks,
        rank=peers.rank,
        num_nodes=num_nodes,
        buckets=deal.buckets,
        rows=[rows_of_all[bucket] for bucket in every],
        sizes=[[edges_of_all[i, j] for j in every] for i in every],
        digest=sum(digests_of_all.values()) & MASK_64,
        blocks=blocks,
        digests=digests,
    )


def load_partition(
    folder: str | Path, group: dist.ProcessGroup | None = None, *, device: torch.device | str = "cpu"
) -> Partition:
    """Loads the partition that :meth:`Partition.save` wrote to a folder.

    A group of another size than the one that wrote it deals the blocks again. Then the folder must have the files of all ranks.
    Otherwise a rank reads its own file.

    Args:
        folder: the folder, which may be a different one on each rank.
        group: the group, by default all ranks.
        device: where the blocks will be.

    Raises:
        PartitionFileError: a file is missing, truncated, damaged, or not one of a partition.
        ValueError: ranks read different partitions, or the partition has fewer pairs of buckets than the group has ranks.
        RankError: raised on the other ranks, and where a rank has died or exceeds the group's timeout.
    """
    peers = Peers("load_partition", group)
    loaded = peers.together(lambda: Partition(**_partition_file.load(Path(folder), peers.rank, peers.ranks, device)))
    peers.agree(digest=f"{loaded.digest:016x}", buckets=loaded.buckets)
    return loaded
