"""The kernels of triangle_count, run on the CPU against dense products: orientation and counts."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from ...support import graphs
from ..build import load
from ..ladders import put
from ..memory import Memory

TABLE = 1024  # targets that the table of a block holds, and four warps' tables together
GRAPHS = {
    "one vertex": (np.zeros((2, 1), np.int64), 1),
    "two vertices": (np.array([[0], [1]]), 2),
    "triangle": (graphs.complete(3), 3),
    "isolated vertices": (graphs.complete(5) + 7, 30),
    "complete": (graphs.complete(40), 40),
    "several blocks": (graphs.complete(70), 70),
    "bipartite": (graphs.bipartite(17, 90), 107),
    "star": (graphs.star(700), 701),
    "wheel": (graphs.wheel(600), 601),
    "cliques": (graphs.chained_cliques(30, 12), 331),
    "random": (np.random.default_rng(1).integers(0, 200, (2, 2500)), 200),
    "sparse": (np.random.default_rng(2).integers(0, 900, (2, 1500)), 900),
    "skewed": (graphs.rmat(8, 3000, 3), 256),
    "hub": (graphs.hub(400, 1500, 4), 400),
}


@pytest.fixture(scope="module")
def kernels():
    return load("triangle_count")


def placed(values: np.ndarray) -> np.ndarray:
    """A copy that ends where memory ends, up to the alignment of its elements."""
    pages = -(-max(values.nbytes, 1) // mmap.PAGESIZE)
    return put(Memory(pages * mmap.PAGESIZE), values, align=values.itemsize)


def orient(kernels, ends: np.ndarray, vertices: int) -> tuple[np.ndarray, ...]:
    source, target = map(placed, ends)
    entries = source.size
    graph = (
        placed(np.full(vertices + 1, 77, np.int64)),
        *(placed(np.full(n, 77, np.int32)) for n in (entries, entries, vertices)),
    )
    result = kernels.orient(
        *(ctypes.c_void_p(a.ctypes.data) for a in (source, target)),
        int(source.dtype == np.int64),
        *map(ctypes.c_int64, (entries, vertices)),
        *(ctypes.c_void_p(a.ctypes.data) for a in graph),
    )
    assert result == 0
    return graph


def counted(kernels, graph: tuple[np.ndarray, ...], per_vertex: bool) -> np.ndarray:
    ptr, _, target, order = graph
    count = placed(np.zeros(order.size if per_vertex else 1, np.int64))
    before = [a.copy() for a in graph]
    result = kernels.count_triangles(
        *(ctypes.c_void_p(a.ctypes.data) for a in (ptr, target, order)),
        *map(ctypes.c_int64, (order.size, target.size)),
        int(per_vertex),
        ctypes.c_void_p(count.ctypes.data),
    )
    assert result == 0
    for now, then in zip(graph, before, strict=True):
        np.testing.assert_array_equal(now, then)
    return count


def ranked(ends: np.ndarray, vertices: int) -> np.ndarray:
    """The vertices, ordered by the degree of its entries without loops and by number."""
    entries = ends[:, ends[0] != ends[1]]
    degree = np.bincount(entries.ravel(), minlength=vertices)
    return np.lexsort([np.arange(vertices), degree])


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_orientation(kernels, name, dtype):
    """Each edge once, from lower to higher rank, sorted, and -1 behind the last one."""
    ends, vertices = GRAPHS[name]
    ends = graphs.messy(ends, 5)
    ptr, source, target, order = orient(kernels, ends.astype(dtype), vertices)
    np.testing.assert_array_equal(order, ranked(ends, vertices))
    rank = np.empty(vertices, np.int64)
    rank[order] = np.arange(vertices)
    pairs = np.sort(rank[ends[:, ends[0] != ends[1]]], 0)
    expected = np.unique(pairs, axis=1)
    edges = expected.shape[1]
    np.testing.assert_array_equal(np.stack([source, target])[:, :edges], expected)
    assert (source[edges:] == -1).all() and (target[edges:] == -1).all()
    np.testing.assert_array_equal(ptr, np.searchsorted(expected[0], np.arange(vertices + 1)))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("per_vertex", [False, True], ids=["total", "each vertex"])
def test_counts(kernels, name, per_vertex):
    ends, vertices = GRAPHS[name]
    graph = orient(kernels, graphs.messy(ends, 6).astype(np.int32), vertices)
    expected = graphs.triangles(ends, vertices)
    got = counted(kernels, graph, per_vertex)
    np.testing.assert_array_equal(got, expected if per_vertex else [expected.sum() // 3])


@pytest.mark.parametrize("per_vertex", [False, True], ids=["total", "each vertex"])
def test_lists_longer_than_the_table(kernels, per_vertex):
    """In the order of the vertices' numbers, a hub before all others has more targets than a table holds."""
    vertices = 2 * TABLE + 300
    ends = np.unique(np.sort(graphs.hub(vertices, 4000, 7), 0), axis=1)
    ends = ends[:, ends[0] != ends[1]]
    ptr = np.searchsorted(ends[0], np.arange(vertices + 1))
    graph = ptr, ends[0].astype(np.int32), ends[1].astype(np.int32), np.arange(vertices, dtype=np.int32)
    expected = graphs.triangles(ends, vertices)
    got = counted(kernels, tuple(map(placed, graph)), per_vertex)
    np.testing.assert_array_equal(got, expected if per_vertex else [expected.sum() // 3])


@pytest.mark.parametrize("per_vertex", [False, True], ids=["total", "each vertex"])
def test_few_targets_are_searched_among_many(kernels, per_vertex):
    """Vertices with two targets. The first target has thousands of targets, and the second target is one of them."""
    many, pairs = 3000, 40
    first = pairs  # and many others behind it
    last = first + 1 + np.arange(0, many, many // pairs)[:pairs]
    low = np.stack([np.repeat(np.arange(pairs), 2), np.stack([np.full(pairs, first), last], 1).ravel()])
    high = np.stack([np.full(many, first), first + 1 + np.arange(many)])
    ends = np.concatenate([low, high[:, 1:]], 1)  # the triangle of the first pair is missing
    vertices = first + 1 + many
    ptr = np.searchsorted(ends[0], np.arange(vertices + 1))
    graph = ptr, ends[0].astype(np.int32), ends[1].astype(np.int32), np.arange(vertices, dtype=np.int32)
    expected = np.zeros(vertices, np.int64)
    np.add.at(expected, np.concatenate([np.arange(1, pairs), np.full(pairs - 1, first), last[1:]]), 1)
    got = counted(kernels, tuple(map(placed, graph)), per_vertex)
    np.testing.assert_array_equal(got, expected if per_vertex else [pairs - 1])


@pytest.mark.parametrize("per_vertex", [False, True], ids=["total", "each vertex"])
def test_targets_that_do_not_fit_their_slots(kernels, per_vertex):
    """Three targets of a vertex that all have the same two slots of a table of 16."""
    numbers = np.arange(1, 5000, dtype=np.uint32)
    slots = np.stack([numbers * np.uint32(0x9E3779B1) >> 28, numbers * np.uint32(0x85EBCA6B) >> 28], 1)
    _, kinds, counts = np.unique(slots, axis=0, return_inverse=True, return_counts=True)
    one, two, three = numbers[kinds.ravel() == counts.argmax()][:3].astype(int)
    ends = np.array([[0, 0, 0, one, one, two], [one, two, three, two, three, three]])
    ptr = np.searchsorted(ends[0], np.arange(three + 2))
    source, target = np.pad(ends, ((0, 0), (0, three)), constant_values=-1).astype(np.int32)
    graph = ptr, source, target, np.arange(three + 1, dtype=np.int32)
    got = counted(kernels, tuple(map(placed, graph)), per_vertex)
    expected = np.zeros(three + 1, np.int64)
    expected[[0, one, two, three]] = 3
    np.testing.assert_array_equal(got, expected if per_vertex else [4])


def csr_of(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ptr = np.concatenate([[0], np.cumsum(matrix.sum(1))])
    return placed(ptr.astype(np.int32)), placed(matrix.nonzero()[1].astype(np.int32))


@pytest.mark.parametrize(
    "rows, columns, width, share, share_of_u, share_of_v",
    [
        (1, 1, 1, 1, 1, 1),
        (70, 90, 60, 0.5, 0.5, 0.5),  # several blocks and tables
        (600, 20, 300, 0.05, 0.02, 0.9),  # searches: lists of u are short, and lists of v are long
        (9, 400, TABLE + 700, 0.4, 1, 0.05),  # lists of u are longer than a table
        (300, 300, 50, 0.1, 0, 0.5),  # no targets of u
        (300, 300, 50, 0.1, 0.5, 0),
        (2000, 700, 40, 0.0005, 0.1, 0.1),  # most rows have no edge
    ],
)
def test_blocks_of_a_partitioned_graph(kernels, rows, columns, width, share, share_of_u, share_of_v):
    """Three random matrices, whose rows differ in length."""
    random = np.random.default_rng(rows)

    def matrix(rows, columns, share):
        return random.random((rows, columns)) < (1 if share == 1 else 2 * share * random.random((rows, 1)))

    edges, of_u, of_v = (
        matrix(rows, columns, share),
        matrix(rows, width, share_of_u),
        matrix(columns, width, share_of_v),
    )
    lists = csr_of(edges), csr_of(of_u), csr_of(of_v)
    count = np.array([2**33], np.int64)

    def addresses(arrays):
        return [ctypes.c_void_p(a.ctypes.data) for a in arrays]

    result = kernels.count_blocks(
        *addresses(lists[0]),
        ctypes.c_int64(rows),
        *addresses(lists[1]),
        ctypes.c_int64(rows),
        *addresses(lists[2]),
        ctypes.c_int64(columns),
        *addresses([count]),
    )
    assert result == 0
    assert count[0] - 2**33 == (edges * (of_u.astype(np.float64) @ of_v.T)).sum()


def test_counts_are_added(kernels):
    graph = orient(kernels, graphs.complete(9).astype(np.int32), 9)
    ptr, _, target, order = graph
    count = np.array([2**33], np.int64)
    kernels.count_triangles(
        *(ctypes.c_void_p(a.ctypes.data) for a in (ptr, target, order)),
        ctypes.c_int64(9),
        ctypes.c_int64(36),
        0,
        ctypes.c_void_p(count.ctypes.data),
    )
    assert count[0] == 2**33 + 84
