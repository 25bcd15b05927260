"""Cases of triangle counts on R-MAT graphs (benchmarks/rooms/graphs.py), up to the size and skew of Orkut.

"triangle_count" orients the graph and counts. "triangle_count-oriented" counts a graph that is oriented already, as papers report it.
Every operand has both directions of each edge, 16 bytes in int32, and the traffic counts them once. So GB/s divided by 16 are 10^9
edges per second, and the share of the ceiling says little: counting reads the lists of both ends of each edge.

Peer: "torch.sparse" is the sum of (A @ A) * A over 6, on small graphs. Its product has an entry for each pair of vertices with a common
neighbour. The reference counts by another algorithm: each thread searches one list for the members of another one.
"""

from __future__ import annotations

import functools

import torch

from benchmarks.harness.operands import Maker
from benchmarks.harness.peers import Peer
from benchmarks.harness.room import Call, CallTime, Case, Room
from benchmarks.rooms.graphs import ORKUT, Graph, undirected

I32 = torch.int32


def rmat(scale: int, factor: int) -> Graph:
    """2^scale vertices, and `factor` edges for each."""
    return Graph(f"R-MAT {scale} x {factor}", 1 << scale, 2 * factor << scale, 0.76)


SMALL = rmat(13, 16)  # on larger ones cuSPARSE's product fails for lack of resources
GRAPHS = (SMALL, rmat(20, 16), rmat(20, 38), rmat(22, 16), rmat(22, 38), rmat(24, 16), ORKUT)

# ---------------------------------------------------------------- calls


def triangle_count(source, target, vertices):
    return torch.ops.gpuopt.triangle_count(source, target, vertices)


def by_torch_sparse(source, target, vertices):
    if source.is_meta:
        return torch.empty((), dtype=torch.int64, device="meta")
    ones = torch.ones(source.shape, dtype=torch.float64, device=source.device)
    indices = torch.stack([source, target]).long()
    a = torch.sparse_coo_tensor(indices, ones, (vertices, vertices), check_invariants=False).coalesce().to_sparse_csr()
    walks = (a @ a).to_sparse_coo()  # a product on the CPU need not have sorted columns
    walks = torch.sparse_coo_tensor(walks.indices(), walks.values(), walks.shape, check_invariants=False).coalesce()
    return (walks * a.to_sparse_coo()).coalesce().values().sum().div(6).round().long()


def by_wedges(source, target, vertices, at_once=1 << 26):
    """Each pair of neighbours of higher degree, looked up among the edges."""
    if source.is_meta:
        return torch.empty((), dtype=torch.int64, device="meta")
    source, target = source.long(), target.long()
    degree = torch.bincount(source, minlength=vertices)
    rank = degree * vertices + torch.arange(vertices, device=source.device)
    keys = (source * vertices + target)[rank[source] < rank[target]].sort().values
    low, high = keys // vertices, keys % vertices
    later = torch.bincount(low, minlength=vertices).cumsum(0)[low] - torch.arange(
        1, len(keys) + 1, device=source.device
    )
    ends = later.cumsum(0)
    wedges = int(ends[-1]) if len(ends) else 0
    count = torch.zeros((), dtype=torch.int64, device=source.device)
    for begin in range(0, wedges, at_once):
        wedge = torch.arange(begin, min(begin + at_once, wedges), device=source.device)
        one = torch.searchsorted(ends, wedge, right=True)
        other = one + 1 + wedge - (ends - later)[one]
        one, other = high[one], high[other]
        swap = rank[one] > rank[other]
        key = torch.where(swap, other, one) * vertices + torch.where(swap, one, other)
        found = torch.searchsorted(keys, key).clamp_(max=len(keys) - 1)
        count += (keys[found] == key).sum()
    return count


def by_searches(source, target, vertices):
    if not source.is_cuda:
        return by_torch_sparse(source, target, vertices)
    from torch_ops import ladder

    return ladder.run("triangle_count", "warp_per_edge", source, target, vertices)


def count_oriented(ptr, source, target, order):
    return torch.ops.gpuopt._count_oriented(ptr, target, order)


def of_oriented(ptr, source, target, order):
    """The same by searches, in both directions of each edge."""
    vertices = order.shape[0]
    if ptr.is_meta:
        return by_searches(source, target, vertices)
    edges = int(ptr[-1])
    one, other = source[:edges].long(), target[:edges].long()
    keys = torch.cat([one * vertices + other, other * vertices + one]).sort().values
    return by_searches((keys // vertices).int(), (keys % vertices).int(), vertices)


def _calls() -> dict[str, Call]:
    return {
        "triangle_count": Call(triangle_count, by_torch_sparse, by_searches, has_aten=False),
        "count_oriented": Call(count_oriented, of_oriented, of_oriented, has_aten=False),
    }


def _prepare(call, case, setting):
    return call.aten, "(A @ A) * A in float64"


SPARSE = Peer("torch.sparse", _prepare)

# ---------------------------------------------------------------- cases


def _edges(graph: Graph, device: str, seed: int) -> tuple:
    return *undirected(graph, Maker(device, I32, seed)), graph.rows


def _oriented(graph: Graph, device: str, seed: int) -> tuple:
    return torch.ops.gpuopt._orient_edges(*_edges(graph, device, seed))


def _cases() -> list[Case]:
    cases = []
    for graph in GRAPHS:
        headline = graph in (SMALL, ORKUT)
        kinds = (
            ("triangle_count", "triangle_count", _edges, (SPARSE,) if graph is SMALL else ()),
            ("triangle_count-oriented", "count_oriented", _oriented, ()),
        )
        for op, call, build, peers in kinds:
            moved = functools.partial(lambda graph: (8 * graph.entries, 8), graph)
            build = functools.partial(build, graph)
            cases.append(Case(op, call, graph.title, "i32", build, headline=headline, peers=peers, moved=moved))
    return cases


def _small(device: str) -> dict:
    import torch_ops

    ends = torch.randint(100, (2, 500), device=device, dtype=I32)
    return {"torch_ops": torch_ops, "ends": ends}


CALL_TIMES = [
    CallTime("triangle_count", "no grad", {"gpuopt": "torch_ops.triangle_count(ends, num_nodes=100)"}, _small)
]
ROOM = Room(name="triangle_count", cases=_cases(), calls=_calls, call_times=CALL_TIMES, peers=())
