"""Sparse matrices with rows of any length, times dense rows. The sums of the values are exact in float32, in any order."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from . import Cases

# (rows, columns, features): whole vectors and others, more than one warp, several slices.
SHAPES = [
    (7, 5, 4), (1, 3, 1), (0, 3, 8), (5, 3, 0), (33, 9, 3), (100, 65, 8), (129, 1000, 31), (256, 40, 32),
    (1000, 300, 33), (1000, 300, 64), (777, 64, 100), (500, 2000, 136), (300, 100, 264),
]  # fmt: skip
LARGE = (20_003, 30_000, 32)


def counts_of(kind: str, rows: int, random: torch.Generator) -> Tensor:
    """The number of entries of each row."""
    counts = torch.randint(0, 40, (rows,), generator=random, device=random.device)
    if kind == "empty":
        return torch.zeros_like(counts)
    if kind == "one long row" and rows:
        counts[rows // 2] = 5000
    if kind == "gaps":
        counts *= torch.rand(rows, generator=random, device=random.device) < 0.2
    return counts


def quarters(shape: tuple, dtype: torch.dtype, offset: int, random: torch.Generator) -> Tensor:
    """Multiples of 1/4 that begin `offset` values after an aligned address."""
    count = torch.Size(shape).numel()
    values = torch.randint(-4, 5, (offset + count,), generator=random, device=random.device) / 4
    return values.to(dtype)[offset:].view(shape)


def spmm(device: str) -> Cases:
    kinds = [*product(SHAPES, ("uniform", "empty", "one long row", "gaps")), (LARGE, "one long row")]
    for dtype in (torch.float32, torch.bfloat16):
        for number, ((rows, columns, features), kind) in enumerate(kinds):
            random = torch.Generator(device).manual_seed(number)
            counts = counts_of(kind, rows, random)
            ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            index = torch.randint(0, columns, (int(ptr[-1]),), generator=random, device=device)
            value = quarters((len(index),), dtype, 0, random) if number % 3 else None
            dense = quarters((columns, features), dtype, number % 5 == 4, random)
            terms = dense.double()[index] * (1 if value is None else value.double()[:, None])
            row = torch.arange(rows, device=device).repeat_interleave(counts)
            sums = torch.zeros(rows, features, dtype=torch.float64, device=device).index_add_(0, row, terms)
            yield (ptr.int(), index.int(), value, dense), sums.to(dtype).double(), 0.0


CASES = {"spmm": spmm}
