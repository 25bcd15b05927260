"""Cases of triangle counts. References multiply the dense matrix of the graph.

Counts are integers and graphs differ in shape, so errors and rules for vmap and compilation are tested in tests/rooms/triangle_count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from . import OpCase, Sample, exact, internal_case, workspace_of
from .tensors import LAYOUTS

OPS = torch.ops.gpuopt


def _adjacency(source, target, vertices):
    matrix = torch.zeros(vertices, vertices, dtype=torch.float64, device=source.device)
    matrix[source.long(), target.long()] = 1
    return (matrix + matrix.mT).clamp(max=1).fill_diagonal_(0)


def _as_result(of_each, per_vertex):
    of_each = of_each.round().long()
    return of_each if per_vertex else of_each.sum() // 3


def _aten(source, target, vertices, per_vertex=False):
    """Pairs of neighbours of a vertex that are neighbours."""
    matrix = _adjacency(source, target, vertices)
    return _as_result((matrix @ matrix * matrix).sum(1) / 2, per_vertex)


def _reference(source, target, vertices, per_vertex=False):
    """Closed walks of three edges from each vertex."""
    walks = torch.linalg.matrix_power(_adjacency(source, target, vertices), 3)
    return _as_result(walks.diagonal() / 2, per_vertex)


def _oriented(source, target, vertices):
    """The results of _orient_edges in one tensor."""
    return torch.cat([t.long() for t in OPS._orient_edges(source, target, vertices)])


def _oriented_by_aten(source, target, vertices):
    proper = source != target
    ends = torch.stack([source, target]).long()[:, proper]
    order = torch.argsort(torch.bincount(ends.flatten(), minlength=vertices), stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(vertices, device=order.device)
    edges = rank[ends].sort(0).values.unique(dim=1)
    rest = edges.new_full((2, len(source) - edges.shape[1]), -1)
    ptr = torch.searchsorted(edges[0].contiguous(), torch.arange(vertices + 1, device=order.device))
    return torch.cat([ptr, *torch.cat([edges, rest], 1), order])


def _oriented_reference(source, target, vertices):
    """A loop over the entries."""
    pairs = {(min(e), max(e)) for e in zip(source.tolist(), target.tolist()) if e[0] != e[1]}
    degrees = [0] * vertices
    for one, other in zip(source.tolist(), target.tolist()):
        degrees[one] += one != other
        degrees[other] += one != other
    order = sorted(range(vertices), key=lambda v: (degrees[v], v))
    rank = {vertex: i for i, vertex in enumerate(order)}
    edges = sorted(tuple(sorted((rank[one], rank[other]))) for one, other in pairs)
    ptr = [sum(one < r for one, _ in edges) for r in range(vertices + 1)]
    rest = [-1] * (len(source) - len(edges))
    return torch.tensor(
        ptr + [one for one, _ in edges] + rest + [other for _, other in edges] + rest + order, device=source.device
    )


def _graphs(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Ends of random entries: few and many for each vertex, all at one vertex, loops alone, in strided and misaligned memory."""
    generator = torch.Generator().manual_seed(1)
    for vertices in (1, 2, 3, 4, 31, 33, 64, 150):
        for entries in (0, 1, 2, 3, 30, 100, 600, 1500):
            for kind in ("random", "hub", "loops"):
                ends = torch.randint(vertices, (2, entries), generator=generator)
                if kind == "hub":
                    ends[0, ::3] = vertices // 2
                if kind == "loops":
                    ends[1, ::2] = ends[0, ::2]
                index = dtype if dtype in (torch.int32, torch.int64) else torch.int64
                source, target = ends.to(device, index)
                if (vertices + entries) % 3 == 0:
                    source = torch.stack([source, source], 1)[:, 0]
                elif entries > 2:
                    target = LAYOUTS["misaligned1"](target)
                yield Sample(f"{entries} {kind} of {vertices}", (source, target, vertices))


def _samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    for k, sample in enumerate(_graphs(device, dtype)):
        yield Sample(sample.name, (*sample.args, k % 2 == 0))


def _counted(ptr, target, order, per_vertex=False):
    return OPS._count_oriented(ptr, target, order, per_vertex)


def _of_oriented(function):
    """A function of edges, for the arguments of _count_oriented."""

    def counted(ptr, target, order, per_vertex=False):
        source = torch.arange(len(order), device=ptr.device).repeat_interleave(ptr.diff())
        ends = order[source].long(), order[target[: len(source)].long()].long()
        return function(*ends, len(order), per_vertex)

    return counted


def _oriented_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    for sample in _samples(device, dtype):
        source, target, vertices, per_vertex = sample.args
        ptr, _, target, order = OPS._orient_edges(source, target, vertices)
        yield Sample(sample.name, (ptr, target, order, per_vertex))


WIDTH = 64  # numbers of targets in blocks


def _blocks(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Random matrices as blocks: few and many entries, none, and rows of very different lengths."""
    generator = torch.Generator().manual_seed(2)

    def lists_of(rows: int, share: float, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        skew = torch.linspace(0, 2, rows)[:, None]
        row, target = (torch.rand(rows, columns, generator=generator) < share * skew).nonzero().int().unbind(1)
        return torch.searchsorted(row, torch.arange(rows + 1, dtype=torch.int32)).int(), target

    for rows, columns in ((1, 1), (2, 7), (5, 5), (3, 40), (40, 3), (20, 130), (130, 20), (64, 64), (31, 200)):
        for share, other in itertools.product((0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 1.0), (0.05, 0.3)):
            edges = lists_of(rows, 0.4, columns)
            tensors = *edges, *lists_of(rows, share, WIDTH), *lists_of(columns, other, WIDTH)
            tensors = [t.contiguous().to(device) for t in tensors]
            yield Sample(f"{rows} x {columns}, {share} {other}", (LAYOUTS["misaligned1"](tensors[0]), *tensors[1:]))


def _dense(ptr, target):
    rows = ptr.shape[0] - 1
    matrix = torch.zeros(rows, WIDTH, dtype=torch.float64, device=ptr.device)
    row = torch.repeat_interleave(torch.arange(rows, device=ptr.device), ptr.diff().long())
    return matrix.index_put((row, target.long()), matrix.new_ones(()))


def _sources(ptr):
    return torch.arange(len(ptr) - 1, device=ptr.device).repeat_interleave(ptr.diff())


def _blocks_by_aten(ptr, target, ptr_of_u, target_of_u, ptr_of_v, target_of_v):
    common = _dense(ptr_of_u, target_of_u) @ _dense(ptr_of_v, target_of_v).mT
    return common[_sources(ptr), target.long()].sum().round().long()


def _blocks_reference(ptr, target, ptr_of_u, target_of_u, ptr_of_v, target_of_v):
    """Intersections of sets."""

    def sets(ptr, target):
        return [set(target[begin:end].tolist()) for begin, end in zip(ptr[:-1].tolist(), ptr[1:].tolist())]

    of_u, of_v = sets(ptr_of_u, target_of_u), sets(ptr_of_v, target_of_v)
    counts = [len(of_u[u] & of_v[v]) for u, v in zip(_sources(ptr).tolist(), target.tolist())]
    return torch.tensor(sum(counts), device=ptr.device)


def _few_of(samples):
    def few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
        for k, sample in enumerate(samples(device, dtype)):
            if k % 11 == 7:
                yield sample

    return few


def _case(name, op, overload, aten, reference, samples, dtypes=(torch.int32, torch.int64)) -> OpCase:
    shared = {"few": _few_of(samples), "bound": exact, "elementwise": False, "workspace": workspace_of(16, 2**22)}
    return internal_case(
        name=name, op=op, overload=overload, aten=aten, reference=reference, samples=samples, dtypes=dtypes, **shared
    )


CASES = [
    _case(
        "triangle_count",
        lambda source, target, vertices, per_vertex=False: OPS.triangle_count(source, target, vertices, per_vertex),
        OPS.triangle_count.default,
        _aten,
        _reference,
        _samples,
    ),
    _case("_orient_edges", _oriented, OPS._orient_edges.default, _oriented_by_aten, _oriented_reference, _graphs),
    _case(
        "_count_oriented",
        _counted,
        OPS._count_oriented.default,
        _of_oriented(_aten),
        _of_oriented(_reference),
        _oriented_samples,
    ),
    _case(
        "_count_blocks",
        lambda *blocks: OPS._count_blocks(*blocks),
        OPS._count_blocks.default,
        _blocks_by_aten,
        _blocks_reference,
        _blocks,
        (torch.int32,),
    ),
]
