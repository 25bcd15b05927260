"""Random operands of the problems. Graphs are drawn by R-MAT, as in ``benchmarks/rooms/graphs.py``."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Draw"]


class Draw:
    """Draws operands on a device, from a seed."""

    def __init__(self, device: str, seed: int) -> None:
        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def uniform(self, *shape: int, low: float = 0.0) -> Tensor:
        """Values in [low, low + 1)."""
        values = torch.rand(shape, generator=self._generator, device=self.device)
        return values.add_(low) if low else values

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=self.device)

    def below(self, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Integers from 0 to high - 1."""
        return torch.randint(high, shape, generator=self._generator, device=self.device, dtype=dtype)

    def exact_halves(self, size: int) -> tuple[Tensor, Tensor]:
        """Two vectors of float16 whose products have exact sums in any order: at most 500 products are not 0."""
        sides = torch.tensor([-2, -1, 1, 2], dtype=torch.float16, device=self.device)[self.below(4, 2, size)]
        if size > 500:
            kept = torch.zeros(size, dtype=torch.bool, device=self.device)
            kept[self.below(size, 300)] = True
            kept[:100] = kept[-100:] = True
            sides[0] *= kept
        return sides[0].clone(), sides[1].clone()

    def _ends(self, bits: int, count: int, skew: float) -> Tensor:
        """Numbers whose bits are 0 with the probability ``skew``."""
        number = torch.zeros(count, dtype=torch.int64, device=self.device)
        for _ in range(bits):
            number = number * 2 + (torch.rand(count, generator=self._generator, device=self.device) >= skew)
        return number

    def _names(self, bits: int) -> Tensor:
        return torch.randperm(1 << bits, generator=self._generator, device=self.device)

    def sparse(self, bits: int, entries: int) -> tuple[Tensor, Tensor]:
        """``ptr`` and ``index`` of a square matrix with 2**bits rows. Some rows have far more entries than others."""
        names = self._names(bits)
        row, column = (names[self._ends(bits, entries, 0.67)] for _ in range(2))
        row, order = row.sort()
        ptr = row.new_zeros((1 << bits) + 1)
        torch.cumsum(torch.bincount(row, minlength=1 << bits), 0, out=ptr[1:])
        return ptr.int(), column[order].int()

    def undirected(self, bits: int, edges: int) -> tuple[Tensor, Tensor]:
        """Both directions of each edge of a graph with 2**bits vertices, sorted. It has no loops and no repeats."""
        vertices, keys, names = 1 << bits, torch.empty(0, dtype=torch.int64, device=self.device), self._names(bits)
        while keys.numel() < edges:
            one, other = (names[self._ends(bits, edges, 0.76)] for _ in range(2))
            drawn = torch.minimum(one, other) * vertices + torch.maximum(one, other)
            keys = torch.cat([keys, drawn[one != other]]).unique()
        keys = keys[torch.randperm(keys.numel(), generator=self._generator, device=self.device)[:edges]]
        both = torch.cat([keys, keys % vertices * vertices + keys // vertices]).sort().values
        return (both // vertices).int(), (both % vertices).int()
