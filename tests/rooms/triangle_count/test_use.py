"""triangle_count and clustering_coefficients: closed forms, other algorithms, messy input, tracing, vmap and errors."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
import pytest
import torch

import torch_ops

from ...support import graphs
from ...support.params import each_device

CLOSED = {
    "complete": (graphs.complete(30), 30, 30 * 29 * 28 // 6),
    "bipartite": (graphs.bipartite(20, 35), 55, 0),
    "star": (graphs.star(2000), 2001, 0),
    "wheel": (graphs.wheel(900), 901, 900),
    "cliques": (graphs.chained_cliques(20, 9), 161, 20 * 84),
    "no edges": (np.zeros((2, 0), np.int64), 7, 0),
    "no vertices": (np.zeros((2, 0), np.int64), 0, 0),
    "loops": (np.stack([np.arange(9)] * 2), 9, 0),
}


def edges_of(ends: np.ndarray, device: str, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(ends)).to(device, dtype)


def by_sets(ends: np.ndarray, vertices: int) -> list[int]:
    """The triangles of each vertex: pairs of neighbours that are neighbours."""
    neighbours = [set() for _ in range(vertices)]
    for one, other in ends.T.tolist():
        if one != other:
            neighbours[one].add(other)
            neighbours[other].add(one)
    return [sum(len(own & neighbours[v]) for v in own) // 2 for own in neighbours]


@each_device
@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_closed_forms(name, dtype, device):
    ends, vertices, count = CLOSED[name]
    edges = edges_of(ends, device, dtype)
    got = torch_ops.triangle_count(edges, num_nodes=vertices)
    assert got.dtype == torch.int64 and got.shape == () and got.item() == count
    each = torch_ops.triangle_count(edges, per_vertex=True, num_nodes=vertices)
    assert each.dtype == torch.int64 and each.shape == (vertices,) and each.sum().item() == 3 * count


@each_device
@pytest.mark.parametrize("scale, edges", [(8, 5000), (10, 30_000)])
def test_skewed_graphs(scale, edges, device):
    """Against intersections of sets, in any order, direction and naming of the vertices."""
    ends, vertices = graphs.rmat(scale, edges, 1), 1 << scale
    expected = torch.tensor(by_sets(ends, vertices), device=device)
    renamed = np.random.default_rng(2).permutation(vertices)
    for given in (ends, graphs.messy(ends, 3), ends[::-1]):
        each = torch_ops.triangle_count(edges_of(given, device), per_vertex=True, num_nodes=vertices)
        assert torch.equal(each, expected)
        other = torch_ops.triangle_count(edges_of(renamed[given], device), per_vertex=True, num_nodes=vertices)
        assert torch.equal(other[torch.from_numpy(renamed).to(device)], expected)
        assert 3 * torch_ops.triangle_count(edges_of(given, device), num_nodes=vertices).item() == expected.sum().item()


@each_device
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_matrices(dtype, device):
    """Of a CSR: either or both directions, values in another order, its transpose."""
    ends, vertices = graphs.messy(graphs.rmat(7, 900, 4), 5), 128
    expected = torch.tensor(by_sets(ends, vertices), device=device)
    edges = edges_of(ends, device)
    values = torch.rand(edges.shape[1], device=device)
    for given in (edges, torch.cat([edges, edges.flip(0)], 1)):
        csr = torch_ops.CSR.from_edge_index(given, num_nodes=vertices, dtype=dtype)
        assert torch.equal(torch_ops.triangle_count(csr, per_vertex=True), expected)
        assert torch.equal(torch_ops.triangle_count(csr.t(), per_vertex=True), expected)
    csr = torch_ops.CSR.from_edge_index(edges, values, vertices)
    assert torch_ops.triangle_count(csr).item() * 3 == expected.sum().item()


@each_device
@pytest.mark.parametrize(
    "ends, vertices", [(graphs.rmat(8, 2500, 6), 256), (graphs.star(5), 6), (graphs.complete(8), 9)]
)
def test_clustering_coefficients_are_those_of_networkx(ends, vertices, device):
    graph = networkx.Graph()
    graph.add_nodes_from(range(vertices))
    graph.add_edges_from(end for end in ends.T.tolist() if end[0] != end[1])
    expected = torch.tensor([networkx.clustering(graph)[v] for v in range(vertices)], dtype=torch.float64)
    edges = edges_of(graphs.messy(ends, 7), device)
    got = torch_ops.clustering_coefficients(edges, num_nodes=vertices, dtype=torch.float64)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-15, atol=0)
    csr = torch_ops.CSR.from_edge_index(edges, num_nodes=vertices)
    assert torch.equal(torch_ops.clustering_coefficients(csr), got.float())
    of_each = [networkx.triangles(graph)[v] for v in range(vertices)]
    assert torch_ops.triangle_count(csr, per_vertex=True).tolist() == of_each


# ---------------------------------------------------------------- tracing, vmap


def of_edges(edges, features):
    nodes = features.shape[0]
    counts = torch_ops.triangle_count(edges, per_vertex=True, num_nodes=nodes)
    return counts, torch_ops.clustering_coefficients(edges, num_nodes=nodes)


@each_device
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic, device):
    compiled = torch.compile(of_edges, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for entries, nodes in ((300, 64), (500, 64), (400, 65), (200, 99)):
        graph = edges_of(graphs.rmat(6, entries, entries), device), torch.empty(nodes, 2, device=device)
        for got, want in zip(compiled(*graph), of_edges(*graph), strict=True):
            assert torch.equal(got, want)


@each_device
@pytest.mark.parametrize("strict", [False, True])
def test_export(device, strict):
    class Module(torch.nn.Module):
        def forward(self, edges, features):
            return of_edges(edges, features)

    def graph(entries, nodes):
        return edges_of(graphs.rmat(6, entries, 2), device), torch.empty(nodes, 2, device=device)

    shapes = {
        "edges": {1: torch.export.Dim("entries", min=2)},
        "features": {0: torch.export.Dim("nodes", max=2**31 - 1)},
    }
    exported = torch.export.export(Module(), graph(300, 70), dynamic_shapes=shapes, strict=strict).module()
    for entries, nodes in ((300, 70), (77, 64), (200, 1000)):
        for got, want in zip(exported(*graph(entries, nodes)), of_edges(*graph(entries, nodes)), strict=True):
            assert torch.equal(got, want)


@each_device
def test_vmap_is_refused(device):
    edges = edges_of(graphs.rmat(6, 300, 1), device)
    for function in (torch_ops.triangle_count, torch_ops.clustering_coefficients):
        with pytest.raises(NotImplementedError, match=r"gpuopt::\w+: the graph must be the same for all examples"):
            torch.vmap(lambda e, f=function: f(e, num_nodes=64))(torch.stack([edges, edges]))
    shared = torch.vmap(lambda x: x + torch_ops.triangle_count(edges, num_nodes=64))(torch.zeros(3, device=device))
    assert torch.equal(shared, torch_ops.triangle_count(edges, num_nodes=64).float().expand(3))


# ---------------------------------------------------------------- errors

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
SQUARE = torch_ops.CSR.from_edge_index(EDGES)
ERRORS = [
    (TypeError, r"graph must be CSR or Tensor, got list", [[0, 1]], {}),
    (RuntimeError, r"graph must be \(2, edges\).* got shape \(3, 2\)", EDGES.mT[:, :2], {}),
    (RuntimeError, r"graph must be a square matrix: expected 3 columns, got 5", torch_ops.CSR(SQUARE.ptr, SQUARE.index, shape=(3, 5)), {}),
    (ValueError, r"num_nodes must be the rows of graph: expected 3, got 4", SQUARE, {"num_nodes": 4}),
    (ValueError, r"num_nodes must be the size of the graph: expected 0 to 2147483647, got -1", EDGES, {"num_nodes": -1}),
    (ValueError, r"num_nodes must be the size of the graph.* got 2147483648", EDGES, {"num_nodes": 2**31}),
    (TypeError, r"num_nodes must be int or None, got float", EDGES, {"num_nodes": 2.5}),
    (TypeError, r"num_nodes must be int or None, got float", SQUARE, {"num_nodes": 3.0}),
    (TypeError, r"num_nodes must be an integer: expected an int, got tensor\(3.5", EDGES, {"num_nodes": torch.tensor(3.5)}),
    (ValueError, r"num_nodes must be the size of the graph.* got 2147483649", EDGES + 2**31 - 2, {}),
    (IndexError, r"source must name vertices.* got -9", EDGES - 9, {}),
    (TypeError, r"graph must be int32 or int64.* got torch.float32", EDGES.float(), {"num_nodes": 3}),
    (IndexError, r"target must name vertices: expected numbers from 0 to 1, got 2", EDGES, {"num_nodes": 2}),
    (IndexError, r"source must name vertices: expected numbers from 0 to 2, got -1", EDGES - 1, {"num_nodes": 3}),
]  # fmt: skip


@pytest.mark.parametrize("error, message, graph, options", ERRORS)
@pytest.mark.parametrize("function", [torch_ops.triangle_count, torch_ops.clustering_coefficients])
def test_errors(function, error, message, graph, options):
    with pytest.raises(error, match=message):
        function(graph, **options)


def test_errors_of_operators():
    op, dtype_error = torch.ops.gpuopt.triangle_count, r"target must have the dtype of source: expected Long, got Int"
    with pytest.raises(TypeError, match=dtype_error):
        op(EDGES[0], EDGES[1].int(), 3)
    with pytest.raises(ValueError, match=r"target must have the shape of source: expected \[3\], got \[2\]"):
        op(EDGES[0], EDGES[1, :2], 3)
    with pytest.raises(ValueError, match=r"source must be a vector: expected 1 dimension, got shape \[2, 3\]"):
        op(EDGES, EDGES, 3)
    with pytest.raises(TypeError, match="dtype must be torch.float32 or torch.float64, got torch.float16"):
        torch_ops.clustering_coefficients(EDGES, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="must be on the device of source"):
        op(EDGES[0], EDGES[1].to("meta"), 3)


@each_device
def test_the_number_of_vertices_is_found(device):
    for pair in itertools.permutations([0, 4]):
        assert torch_ops.triangle_count(torch.tensor(pair, device=device)[:, None], per_vertex=True).tolist() == [0] * 5
