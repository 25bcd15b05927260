"""The ladder of triangle_count, run on the CPU against dense products."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from ...support import graphs
from ..build import load
from ..ladders import put, steps
from ..memory import Memory

GRAPHS = {
    "edge": (np.array([[0], [1]]), 2),
    "triangle": (graphs.complete(3), 3),
    "complete": (graphs.complete(40), 40),
    "bipartite": (graphs.bipartite(9, 50), 59),
    "wheel": (graphs.wheel(300), 301),
    "random": (np.random.default_rng(1).integers(0, 150, (2, 1500)), 150),
    "skewed": (graphs.rmat(7, 1000, 3), 128),
    "hub": (graphs.hub(1300, 900, 4), 1300),  # its list is longer than a table
}
STEPS = steps("triangle_count")


@pytest.fixture(scope="module")
def kernels():
    return load("triangle_count_ladder")


# The steps before the orientation also count a graph with both directions of each edge.
KINDS = [
    pytest.param(*step.values, kind, id=f"{step.id}-{kind}")
    for step in STEPS
    for kind in ("both", "one")
    if kind == "one" or step.values[0] < 3
]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("step, directions", KINDS)
def test_step(kernels, step, name, directions):
    """An oriented graph has a rest of -1."""
    ends, vertices = GRAPHS[name]
    matrix = graphs.adjacency(ends, vertices)
    if directions == "one":
        matrix = np.triu(matrix)
    source, target = np.nonzero(matrix)
    ptr = np.searchsorted(source, np.arange(vertices + 1))
    rest = np.full(5 if directions == "one" else 0, -1)
    operands = ptr, *(np.concatenate([a, rest]).astype(np.int32) for a in (source, target))
    placed = [put(Memory(-(-a.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE), a, align=a.itemsize) for a in operands]
    count = np.zeros(1, np.uint64)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in placed]
    sizes = map(ctypes.c_int64, (vertices, placed[1].size))
    assert kernels.run(step, *pointers, *sizes, ctypes.c_void_p(count.ctypes.data)) == 0
    assert count[0] == graphs.triangles(ends, vertices).sum() // 3


@pytest.mark.parametrize("step", STEPS)
def test_no_edges(kernels, step):
    ptr, count = np.zeros(4, np.int64), np.zeros(1, np.uint64)
    pointers = ctypes.c_void_p(ptr.ctypes.data), None, None, ctypes.c_int64(3), ctypes.c_int64(0)
    assert kernels.run(step, *pointers, ctypes.c_void_p(count.ctypes.data)) == 0 and count[0] == 0
