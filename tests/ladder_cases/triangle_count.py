"""Graphs in both directions, sorted, without repeats and loops. Dense products give the expected counts."""

from __future__ import annotations

import numpy as np
import torch

from ..support import graphs
from . import Cases

GRAPHS = [
    (graphs.complete(3), 3), (graphs.complete(90), 90), (graphs.bipartite(30, 70), 100), (graphs.wheel(1500), 1501),
    (graphs.rmat(10, 20_000, 1), 1024), (graphs.hub(2500, 8000, 2), 2500), (np.zeros((2, 0), np.int64), 5),
]  # fmt: skip


def triangle_count(device: str) -> Cases:
    for ends, vertices in GRAPHS:
        source, target = np.nonzero(graphs.adjacency(ends, vertices))
        edges = (torch.from_numpy(a).to(device, torch.int32) for a in (source, target))
        count = int(graphs.triangles(ends, vertices).sum()) // 3
        yield (*edges, vertices), torch.tensor(count, dtype=torch.float64, device=device), 0.0


CASES = {"triangle_count": triangle_count}
