"""Rows added at an index with repeated entries. The sums of the values are exact in any order.

Steps differ in the dtypes and rows that they support: TAKES says whether a step supports a case.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import Cases

# (rows of self, width, entries): near the limits of a block of values, pairs or vectors, and of the entries that one block sorts.
SHAPES = [
    (5, 1, 257), (5, 1, 256), (1, 1, 255), (1, 8, 1), (5, 4, 0), (3, 2, 256), (3, 2, 257), (7, 3, 1000), (50, 4, 257),
    (50, 8, 256), (50, 8, 257), (33, 100, 4099), (40, 136, 33), (1000, 32, 4096), (1000, 32, 4097), (3001, 16, 20_000),
    (4000, 128, 8192),
]  # fmt: skip


def some(shape: tuple[int, int], most: int, dtype: torch.dtype, offset: int, random: torch.Generator) -> Tensor:
    """Multiples of 1/4 that begin `offset` values after an aligned address. bfloat16 holds the sum of `most` of them."""
    count = shape[0] * shape[1]
    values = torch.randint(-4, 5, (count,), generator=random, device=random.device) / 4
    values *= torch.rand(count, generator=random, device=random.device) * most < 40
    return torch.cat([values.new_zeros(offset), values]).to(dtype)[offset:].view(shape)


def indices(kind: str, rows: int, entries: int, random: torch.Generator) -> Tensor:
    uniform = torch.randint(rows, (entries,), generator=random, device=random.device)
    if kind == "uniform":
        return uniform
    if kind == "equal":
        return torch.full_like(uniform, rows - 1)
    hot = torch.rand(entries, generator=random, device=random.device) < 0.75
    return torch.where(hot, rows // 2, uniform)


def index_add_(device: str) -> Cases:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for number, (rows, width, entries) in enumerate(SHAPES):
            random = torch.Generator(device).manual_seed(number)
            for offset, kind in ((0, "uniform"), (0, "equal"), (1, "hot"), (4 // dtype.itemsize, "hot")):
                index = indices(kind, rows, entries, random)
                most = int(index.bincount(minlength=1).max())
                self = some((rows, width), 1, dtype, offset, random)
                source = some((entries, width), most, dtype, offset, random)
                expected = self.double().index_add_(0, index, source.double())
                yield (self, index, source), expected, 0.0


def takes(step: str, self: Tensor, _: Tensor, source: Tensor) -> bool:
    """Whether the step supports the dtype and the alignment of the rows."""

    def rows_of(size: int) -> bool:
        return all(x.data_ptr() % size == 0 and x.shape[1] * x.itemsize % size == 0 for x in (self, source))

    half = self.dtype != torch.float32
    if step == "atomic_per_element":
        return not half
    if step == "half_atomic":
        return self.dtype == torch.float16
    if step == "half2_pairs":
        return half and rows_of(4)
    return half if step == "fast_half_atomic" else step != "vector_reductions" or rows_of(16)


CASES = {"index_add_": index_add_}
TAKES = {"index_add_": takes}
