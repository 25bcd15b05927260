"""Random matrices as lists of edges, and dense definitions of their products."""

from __future__ import annotations

import torch

F64 = torch.float64
REDUCTIONS = ("sum", "mean", "amax", "amin")


def random_edges(targets: int, sources: int, edges: int, seed: int = 0, device: str = "cpu") -> torch.Tensor:
    """Distinct edges (2, edges) in random order: sources, targets. The last target has none."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm((targets - 1) * sources, generator=generator)[:edges]
    return torch.stack([chosen % sources, chosen // sources]).to(device)


def matrix(edge_index, values, shape) -> torch.Tensor:
    """The dense matrix with values at (target, source), in float64."""
    values = torch.ones(edge_index.shape[1], dtype=F64) if values is None else values.cpu().double()
    dense = torch.zeros(shape, dtype=F64)
    return dense.index_put((edge_index[1].cpu(), edge_index[0].cpu()), values, accumulate=True)


def reduced(edge_index, values, shape, x, reduce: str) -> torch.Tensor:
    """The same reduction of a dense tensor of all products, masked where there is no edge. For distinct edges."""
    present = torch.zeros(shape, dtype=torch.bool)
    present[edge_index[1].cpu(), edge_index[0].cpu()] = True
    products = matrix(edge_index, values, shape)[:, :, None] * x.cpu().double()
    counts = present.sum(1)[:, None]
    if reduce in ("sum", "mean"):
        total = torch.where(present[..., None], products, 0).sum(1)
        return total if reduce == "sum" else total / counts.clamp(min=1)
    worst = float("-inf") if reduce == "amax" else float("inf")
    found = torch.where(present[..., None], products, worst)
    found = found.amax(1) if reduce == "amax" else found.amin(1)
    return torch.where(counts > 0, found, 0)
