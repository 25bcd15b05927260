"""Graphs as edge lists (2, edges) of numpy, with the numbers of their triangles."""

from __future__ import annotations

import numpy as np


def complete(vertices: int) -> np.ndarray:
    return np.stack(np.triu_indices(vertices, 1))


def bipartite(one: int, other: int) -> np.ndarray:
    return np.stack([np.repeat(np.arange(one), other), one + np.tile(np.arange(other), one)])


def star(leaves: int) -> np.ndarray:
    return np.stack([np.zeros(leaves, np.int64), 1 + np.arange(leaves)])


def wheel(rim: int) -> np.ndarray:
    """A cycle whose vertices are all joined to a hub."""
    cycle = 1 + np.arange(rim)
    return np.concatenate([star(rim), np.stack([cycle, 1 + (cycle % rim)])], 1)


def chained_cliques(cliques: int, vertices: int) -> np.ndarray:
    """Complete graphs in a row. Neighbours share a vertex."""
    one = complete(vertices)
    return np.concatenate([one + k * (vertices - 1) for k in range(cliques)], 1)


def rmat(scale: int, edges: int, seed: int) -> np.ndarray:
    """R-MAT with the parameters of Graph500: few vertices have most of the edges. Edges repeat, and some are loops."""
    random = np.random.default_rng(seed)
    ends = np.zeros((2, edges), np.int64)
    for _ in range(scale):
        quarter = random.random(edges)
        ends = 2 * ends + np.stack([quarter >= 0.76, ((quarter >= 0.57) & (quarter < 0.76)) | (quarter >= 0.95)])
    return random.permutation(1 << scale)[ends]


def hub(vertices: int, edges: int, seed: int) -> np.ndarray:
    """Random edges, and a vertex that is joined to all others."""
    random = np.random.default_rng(seed)
    return np.concatenate([star(vertices - 1), random.integers(0, vertices, (2, edges))], 1)


def messy(ends: np.ndarray, seed: int) -> np.ndarray:
    """The same graph in random order, with edges in either or both directions, repeats and loops."""
    random = np.random.default_rng(seed)
    picked = ends[:, random.integers(0, max(ends.shape[1], 1), ends.shape[1])]
    loops = np.repeat(picked[:1, ::3], 2, 0)
    ends = np.concatenate([ends, picked, loops], 1)
    ends = np.where(random.random(ends.shape[1]) < 0.5, ends, ends[::-1])
    return ends[:, random.permutation(ends.shape[1])]


def adjacency(ends: np.ndarray, vertices: int) -> np.ndarray:
    """The matrix of the cleaned graph, int64."""
    matrix = np.zeros((vertices, vertices), np.int64)
    matrix[ends[0], ends[1]] = matrix[ends[1], ends[0]] = 1
    np.fill_diagonal(matrix, 0)
    return matrix


def triangles(ends: np.ndarray, vertices: int) -> np.ndarray:
    """The triangles of each vertex, from the dense matrix: half the diagonal of its third power."""
    matrix = adjacency(ends, vertices).astype(np.float64)  # exact below 2^53, and BLAS multiplies it
    return ((matrix @ matrix * matrix).sum(1) / 2).astype(np.int64)
