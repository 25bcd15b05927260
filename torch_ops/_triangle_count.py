"""Triangles of a graph: ``triangle_count`` and ``clustering_coefficients``.

Edges are undirected. A graph is cleaned first: loops are dropped, both directions of an edge are one edge, and so are its repeats.
Then each edge is oriented from its end of lower degree to the other one, as in T. Schank and D. Wagner, "Finding, Counting and Listing
all Triangles in Large Graphs" (2005). On CUDA, a warp or a block looks up the neighbours of a vertex's neighbours in a cuckoo table in
shared memory, as in S. Pandey et al., "TRUST: Triangle Counting Reloaded on GPUs" (2021). No call waits for the GPU.
``csrc/triangle_count/README.md`` describes the kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops._arguments import checks_types, integer
from torch_ops._deprecated import takes_old_calls
from torch_ops.sparse import CSR

__all__ = ["clustering_coefficients", "triangle_count"]

_ops = torch.ops.gpuopt
_MOST_VERTICES = 2**31 - 1


def _edges_of(op: str, graph: CSR | Tensor, num_nodes: int | None) -> tuple[Tensor, Tensor, int]:
    """Both ends of each entry, and the number of vertices."""
    if num_nodes is not None:
        num_nodes = integer(op, "num_nodes", num_nodes)
    if isinstance(graph, CSR):
        rows, columns = graph.shape
        if rows != columns:
            raise RuntimeError(f"{op}: graph must be a square matrix: expected {rows} columns, got {columns}")
        if num_nodes is not None and num_nodes != rows:
            raise ValueError(f"{op}: num_nodes must be the rows of graph: expected {rows}, got {num_nodes}")
        return graph.rows(), graph.index, rows
    if graph.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{op}: graph must be int32 or int64: expected Int or Long, got {graph.dtype}")
    if graph.dim() != 2 or graph.shape[0] != 2:
        raise RuntimeError(f"{op}: graph must be (2, edges): expected 2 rows, got shape {tuple(graph.shape)}")
    if num_nodes is None:
        if torch.compiler.is_compiling():
            raise ValueError(f"{op}: num_nodes must be given inside torch.compile: expected a number, got None")
        num_nodes = max(int(graph.max()) + 1, 0) if graph.numel() else 0
    if isinstance(num_nodes, int) and not 0 <= num_nodes <= _MOST_VERTICES:
        raise ValueError(
            f"{op}: num_nodes must be the size of the graph: expected 0 to {_MOST_VERTICES}, got {num_nodes}"
        )
    return graph[0], graph[1], num_nodes


@takes_old_calls("graph per_vertex")
@checks_types
def triangle_count(graph: CSR | Tensor, *, per_vertex: bool = False, num_nodes: int | None = None) -> Tensor:
    """The number of triangles of an undirected graph, or of each of its vertices.

    Args:
        graph: a square :class:`CSR`, whose values are ignored, or an edge list (2, edges) of int32 or int64. Edges may be given in
            either or both directions, more than once, and in any order. Loops count nothing.
        per_vertex: if True, the number of triangles that each vertex belongs to. Their sum is three times the number of triangles.
        num_nodes: the number of vertices of an edge list, at most 2^31 - 1. By default as many as it names, which waits for the GPU.

    Returns:
        An int64 tensor without dimensions, or (vertices). Counts are exact and independent of the order of edges and vertices.

    Raises:
        TypeError: ``graph`` is neither a :class:`CSR` nor a tensor, or its dtype is not int32 or int64, or ``num_nodes`` is no
            integer.
        RuntimeError: ``graph`` is not square or not (2, edges).
        ValueError: ``num_nodes`` is not the size of ``graph`` or out of range.
        IndexError: an edge list on the CPU names a vertex out of range. On CUDA a device-side assertion fails instead.
        NotImplementedError: the graph differs between the examples of :func:`torch.vmap`.

    Example:
        >>> torch_ops.triangle_count(torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 3, 3]]), per_vertex=True)
        tensor([1, 1, 1, 0])
    """
    source, target, vertices = _edges_of("triangle_count", graph, num_nodes)
    return _ops.triangle_count.default(source, target, vertices, per_vertex)


@checks_types
def clustering_coefficients(
    graph: CSR | Tensor, *, num_nodes: int | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The local clustering coefficient of each vertex: the share of the pairs of its neighbours that are neighbours themselves.

    Args:
        graph: as in :func:`triangle_count`.
        num_nodes: as in :func:`triangle_count`.
        dtype: ``torch.float32`` or ``torch.float64``.

    Returns:
        (vertices), from 0 to 1, computed in float64 and rounded once. Vertices of less than two neighbours have 0, as in networkx.

    Raises:
        TypeError, RuntimeError, ValueError, IndexError, NotImplementedError: as :func:`triangle_count`, or another ``dtype``.
    """
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"clustering_coefficients: dtype must be torch.float32 or torch.float64, got {dtype}")
    source, target, vertices = _edges_of("clustering_coefficients", graph, num_nodes)
    ptr, _, target, order = _ops._orient_edges.default(source, target, vertices)
    triangles = _ops._count_oriented.default(ptr, target, order, True)
    # Of an oriented graph, targets number ranks from 0 on, and -1 stands for no edge.
    of_targets = ptr.new_zeros(vertices + 1).index_add(0, target + 1, ptr.new_ones(()).expand(target.shape))
    degree = ptr.new_zeros(vertices).index_copy(0, order.long(), ptr.diff() + of_targets[1:])
    pairs = degree * (degree - 1)
    return torch.where(pairs > 0, 2 * triangles.double() / pairs, 0).to(dtype)
