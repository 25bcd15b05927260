"""Cases of embedding_bag, for the room spmm: tables of recommendation and of words, with uniform and with Zipf-distributed rows.

"(1000000,64) in 8192 bags of 20" reduces bags of 20 rows of this table. A "-step" is the forward and the backward pass, with a dense
gradient. The traffic counts indices, offsets and results once, a row of the table for each entry, and in a step a row of the gradient for
each entry, and the gradient of the table.
"""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch.nn import functional

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.room import Case
from benchmarks.rooms.index_add import UNIFORM, ZIPF, Draw, draw_index


def embedding_bag(index, offsets, weight, value):
    import torch_ops

    return torch_ops.embedding_bag(index, weight, offsets, mode="sum", per_sample_weights=value)


def by_aten(index, offsets, weight, value):
    return functional.embedding_bag(index, weight, offsets, mode="sum", per_sample_weights=value)


@dataclasses.dataclass(frozen=True)
class Bags:
    """A problem. ``is_step``: with the gradients."""

    shape: tuple[int, int]  # of the table
    count: int
    length: int
    draw: Draw = UNIFORM
    values: bool = False
    is_step: bool = False

    @property
    def name(self) -> str:
        rows, width = self.shape
        values = "values" if self.values else ""
        words = (f"({rows},{width}) in {self.count} bags of {self.length}", self.draw.name, values)
        return " ".join(filter(None, words))

    def build(self, dtype: torch.dtype, device: str, seed: int) -> tuple:
        m, entries = Maker(device, dtype, seed), self.count * self.length
        index = draw_index(m, self.draw, entries, self.shape[0], torch.int64)
        offsets = torch.arange(0, entries, self.length, device=device)
        made = index, offsets, m(*self.shape), m(entries) if self.values else None
        return (*made, m(self.count, self.shape[1])) if self.is_step else made

    def moved(self, dtype: torch.dtype) -> tuple[int, int]:
        """(bytes read, bytes written)"""
        entries, row = self.count * self.length, self.shape[1] * dtype.itemsize
        scalars = entries * dtype.itemsize * self.values
        read, written = entries * (8 + row) + 8 * self.count + scalars, self.count * row
        if self.is_step:
            read += entries * (8 + row) + scalars + entries * 2 * row * self.values
            written += self.shape[0] * row + scalars
        return read, written

    def case(self, dtype: torch.dtype, headline: bool) -> Case:
        build, moved = (functools.partial(f, dtype) for f in (self.build, self.moved))
        op, call = ("embedding_bag-step", "embedding_bag step") if self.is_step else ("embedding_bag",) * 2
        return Case(op, call, self.name, DTYPE_NAMES[dtype], build, moved=moved, headline=headline)


PROBLEMS = (
    Bags((1_000_000, 64), 8192, 20),
    Bags((1_000_000, 128), 32768, 40, ZIPF),
    Bags((200_000, 128), 4096, 50, ZIPF),
    Bags((200_000, 128), 4096, 50, ZIPF, values=True),
    Bags((100_000, 16), 8192, 20, ZIPF),
    Bags((1_000_000, 300), 1024, 200, ZIPF),
)


def cases() -> list[Case]:
    problems = [dataclasses.replace(what, is_step=is_step) for what in PROBLEMS for is_step in (False, True)]
    return [what.case(dtype, headline=what.count == 8192) for what in problems for dtype in (F32, BF16)]
