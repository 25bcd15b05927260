"""Triangles of a graph with more than 2^31 entries."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import PAST, filled

CIRCLE, REST = 2**20, 97  # vertices


def _vertex(i: torch.Tensor) -> torch.Tensor:
    """A walk around a circle, which has no triangles, and behind 2^31 among other vertices."""
    return torch.where(i < 2**31, i % CIRCLE, CIRCLE + i * i // 29 % REST)


def _counts_of_rest() -> torch.Tensor:
    """The triangles of each of the other vertices, from the square of their matrix."""
    walk = _vertex(torch.arange(2**31, PAST + 1)) - CIRCLE
    matrix = torch.zeros(REST, REST, dtype=torch.int64)
    matrix[walk[:-1], walk[1:]] = matrix[walk[1:], walk[:-1]] = 1
    matrix.fill_diagonal_(0)
    return (matrix @ matrix * matrix).sum(1) // 2


def test_the_rest_has_triangles():
    assert _counts_of_rest().sum() > 1000


@pytest.mark.gpu
@pytest.mark.large
@pytest.mark.gib(58)
def test_many_entries():
    """Both rows of the edge list lie in one vector, because sorting takes 16 bytes for each entry."""
    walk = filled(PAST + 1, _vertex, torch.int32)
    got = torch_ops.triangle_count(walk.as_strided((2, PAST), (1, 1)), per_vertex=True, num_nodes=CIRCLE + REST)
    assert not got[:CIRCLE].any()
    assert torch.equal(got[CIRCLE:].cpu(), _counts_of_rest())
