"""Triangles of graphs that are too large for the CPU's tests."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support import graphs
from .test_use import edges_of

pytestmark = pytest.mark.gpu


def test_more_than_2_31_triangles():
    """Complete graphs have lists that are longer than a table."""
    n = 2400
    edges = edges_of(graphs.complete(n), "cuda", torch.int32)
    assert torch_ops.triangle_count(edges).item() == n * (n - 1) * (n - 2) // 6 > 2**31
    assert torch_ops.triangle_count(edges, per_vertex=True).eq((n - 1) * (n - 2) // 2).all()


def test_large_skewed_graph():
    """Against the CPU kernel, which merges lists."""
    ends, vertices = edges_of(graphs.rmat(16, 1_000_000, 8), "cpu", torch.int32), 1 << 16
    expected = torch_ops.triangle_count(ends, per_vertex=True, num_nodes=vertices)
    assert torch.equal(torch_ops.triangle_count(ends.cuda(), per_vertex=True, num_nodes=vertices).cpu(), expected)
