"""Random views of poisoned memory: the operands and destinations of random calls.

A view has any storage offset, order of dimensions, pitch and stride that its dtype allows. It lies inside a larger buffer of poison,
which tells whether a call wrote outside of the view.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import torch

from benchmarks.harness.operands import BF16, F16, F32

GUARD = 256  # bytes at each end
FLOATING = (F32, F32, F32, F32, BF16, BF16, BF16, F16, F16, torch.float64, torch.float64)
# float32 holds sums of 2^14 products of two values of 2^56.
RANGE_BITS = {F16: math.log2(60000), BF16: 56}
OTHERS = (torch.int64, torch.int32, torch.bool, torch.complex64)


def near_range(sizes: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random values of one magnitude, up to the largest ones of a half type. Half of such tensors have one sign."""
    kinds = torch.rand(2).tolist()
    values = 2 ** (kinds[0] * RANGE_BITS[dtype]) * (1 - 0.75 * torch.rand(sizes, dtype=F32, device=device))
    signs = torch.randint(0, 2, sizes, device=device) if kinds[1] < 0.5 else int(kinds[1] < 0.75)
    return (values * (1 - 2 * signs)).to(dtype)


@dataclasses.dataclass
class View:
    """A buffer of bytes, and where the tensor lies in it. `offset` and `strides` count elements of `dtype`."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    conj: bool
    is_index: bool
    buffer: torch.Tensor = None

    @property
    def rank(self) -> int:
        return len(self.sizes)

    def tensor(self, buffer: torch.Tensor, sizes: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor in `buffer`. For autograd it is no view, so that a write to it stays one operator."""
        flat = torch.empty(0, dtype=self.dtype, device=buffer.device)
        found = flat.set_(buffer.untyped_storage(), self.offset, self.sizes if sizes is None else sizes, self.strides)
        return found.conj() if self.conj else found

    def fill(self, device: str, values: str, least: int, most: int) -> View:
        """Makes the buffer: poison, which is NaN for floating-point dtypes, and values in the view."""
        span = 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides)) if math.prod(self.sizes) else 0
        floating = self.dtype.is_floating_point or self.dtype.is_complex
        size = (self.offset + span) * self.dtype.itemsize + GUARD
        self.buffer = torch.full((size,), 0xFF if floating else 0x55, dtype=torch.uint8, device=device)
        addresses = [1 if s == 0 else n for n, s in zip(self.sizes, self.strides)]
        inside = self.tensor(self.buffer, addresses)
        if values == "range" and self.dtype in RANGE_BITS:
            inside.copy_(near_range(addresses, self.dtype, device))
        elif floating and values != "integer":
            parts = torch.view_as_real(inside.resolve_conj()) if self.dtype.is_complex else inside
            inside.copy_(
                torch.view_as_complex(torch.randn_like(parts)) if self.dtype.is_complex else torch.randn_like(parts)
            )
        else:
            inside.copy_(torch.randint(least, max(most, least + 1), addresses, device=device))
        return self

    def outside(self, buffer: torch.Tensor) -> torch.Tensor:
        """A copy of `buffer` without what lies in the view."""
        rest = buffer.clone()
        self.tensor(rest, [1 if s == 0 else n for n, s in zip(self.sizes, self.strides)]).fill_(0)
        return rest

    def __str__(self) -> str:
        return (
            f"{str(self.dtype)[6:]}{list(self.sizes)} strides {list(self.strides)} + {self.offset}{' conj' * self.conj}"
        )


class Draw(random.Random):
    """Draws the parts of a call. One operand of a few calls is spoiled, so that ATen refuses most of them. `kinds` are the values of
    floating-point operands: "integer", "real", or "range" for near_range()."""

    floating: tuple[torch.dtype, ...] = FLOATING
    kinds: tuple[str, ...] = ("integer", "real")

    def __init__(self, seed: str, device: str):
        super().__init__(seed)
        self.device = device
        most = 20 if device != "cpu" and self.chance(0.04) else 16 if device != "cpu" else 12
        self.most = 1 << most
        self.values = self.choice(self.kinds)
        self.spoiled = self.randrange(3) if self.chance(0.08) else -1
        self.views: list[View] = []

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def size(self, least: int, most: int) -> int:
        """Log-uniform. Half of the larger sizes are rounded to a multiple of 8."""
        size = round(2 ** self.uniform(math.log2(least), math.log2(max(least, most))))
        return max(least, size // 8 * 8) if size >= 8 and self.chance(0.5) else size

    def dtype(self, others: float = 0.12) -> torch.dtype:
        return self.choice(OTHERS) if self.chance(others) else self.choice(self.floating)

    def shape(self, least: int = 0, most: int = 8) -> tuple[int, ...]:
        """Most tensors have 1 to 4 dimensions. The number of elements is log-uniform."""
        rank = min(most, max(least, self.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8))))
        bits = self.uniform(0, math.log2(self.most))
        shares = [self.random() ** 2 + 1e-3 for _ in range(rank)]
        sizes = [round(2 ** (bits * share / sum(shares))) for share in shares]
        sizes = [n // 8 * 8 if n >= 8 and self.chance(0.4) else n for n in sizes]
        for value, probability in ((1, 0.2), (0, 0.04)):
            if rank and self.chance(probability):
                sizes[self.randrange(rank)] = value
        return tuple(sizes)

    def order(self, rank: int) -> list[int]:
        """Dimensions from the innermost in memory to the outermost."""
        dims = list(range(rank - 1, -1, -1))
        kind = self.random()
        if kind < 0.2:
            self.shuffle(dims)
        elif kind < 0.4 and rank > 1:  # transposed matrices
            dims[:2] = dims[1::-1]
        elif kind < 0.55 and rank > 2:  # channels last
            dims.insert(0, dims.pop(rank - 2))
        return dims

    def operand(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        order: Sequence[int] | None = None,
        written: bool = False,
        indexed: bool = False,
        values: tuple[int, int] | None = None,
    ) -> View:
        """A random view. Addresses in memory that is `written` differ. An index points into an `indexed` one, so its shape is
        never spoiled. `values` are the least value and the end of the range of an index."""
        shape = list(shape)
        if len(self.views) == self.spoiled and values != (0, 0):  # an index of no rows keeps its shape, which is empty
            if indexed or self.chance(0.5):
                dtype = self.choice((F32, BF16, torch.float64, torch.int32, torch.int64, torch.complex64))
            elif shape and self.chance(0.5):
                shape[self.randrange(len(shape))] += 1
            else:
                shape.append(2)
                order = None
        rank = len(shape)
        dims = self.order(rank) if order is None else list(order)
        strides = [0] * rank
        step = self.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 3))
        gaps = {self.randrange(rank) for _ in range(self.choice((0, 0, 0, 0, 1, 2)))} if rank else ()
        expanded = {d for d in range(rank) if self.chance(0.4)} if not written and self.chance(0.15) else ()
        for d in dims:
            if d in expanded:
                continue
            strides[d] = step
            step = step * max(shape[d], 1) + (self.randint(1, 5) if d in gaps else 0)
            if shape[d] == 1 and self.chance(0.3):
                strides[d] = self.randrange(50)
        offset = GUARD // dtype.itemsize + (self.randrange(17) if self.chance(0.6) else 0)
        conj = dtype.is_complex and not written and self.chance(0.3)
        view = View(tuple(shape), tuple(strides), offset, dtype, conj, is_index=values is not None)
        low, high = values or ((0, 2) if dtype == torch.bool else (-8, 9))
        view.fill(self.device, self.values if values is None else "integer", low, high)
        self.views.append(view)
        return view

    def index(self, shape: Sequence[int], rows: int, negative: bool = False, only_long: bool = False) -> View:
        """An index of rows. Half of them have few rows, which are named often."""
        dtype = torch.int64 if only_long or self.chance(0.6) else torch.int32
        end = rows if self.chance(0.5) else min(rows, 1 + self.randrange(max(rows, 1)))
        return self.operand(shape, dtype, values=(-rows if negative and rows else 0, end))

    def dim(self, rank: int) -> int:
        """One of the dimensions, or seldom one that does not exist."""
        if self.chance(0.01):
            return rank + 1
        return self.randrange(-max(rank, 1), max(rank, 1))

    def dims(self, rank: int) -> list[int]:
        """Dimensions to reduce, seldom with one that does not exist. None of them means all."""
        found = [d - rank * self.chance(0.3) for d in range(rank) if self.chance(0.5)]
        self.shuffle(found)
        return [*found, rank] if self.chance(0.01) else found
