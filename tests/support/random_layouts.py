"""Random shapes and memory layouts, drawn by hypothesis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st

LENGTHS = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 130, 257, 1000, 1025, 4099)
SIZES = st.one_of(st.integers(1, 9), st.sampled_from(LENGTHS))


@dataclasses.dataclass(frozen=True)
class Layout:
    """The order of dimensions in memory, the expanded ones, the stride of the innermost one, gaps, and the offset of the first
    value."""

    order: Sequence[int]
    expanded: Sequence[int]
    step: int
    gap: int
    offset: int

    def tensor(self, make: Callable[[int], torch.Tensor], shape: Sequence[int]) -> torch.Tensor:
        """A tensor of `shape` in this layout. `make(n)` returns n values."""
        strides, stride = [0] * len(shape), self.step
        for dim in reversed(self.order):
            if dim not in self.expanded:
                strides[dim] = stride
                stride = stride * max(shape[dim], 1) + self.gap
        return make(self.offset + stride + 1).as_strided(shape, strides, self.offset)


@st.composite
def layouts(draw, rank: int, written: bool = False, orders: Sequence[Sequence[int]] = ()) -> Layout:
    """A layout of an operand. One that is written has no expanded dimension. The order is one of `orders`, or any."""
    return Layout(
        order=draw(st.sampled_from(orders) if orders else st.permutations(range(rank))),
        expanded=[dim for dim in range(rank) if not written and draw(st.integers(0, 5)) == 0],
        step=draw(st.sampled_from([1, 1, 1, 2, 3])),
        gap=draw(st.sampled_from([0, 0, 0, 1, 3, 8])),
        offset=draw(st.sampled_from([0, 0, 1, 2, 3, 5, 8])),
    )


@st.composite
def shapes(draw, most_dims: int, most_elements: int) -> list[int]:
    shape: list[int] = []
    for _ in range(draw(st.integers(0, most_dims))):
        size = draw(SIZES)
        if torch.Size([*shape, size]).numel() <= most_elements:
            shape.append(size)
    return shape
