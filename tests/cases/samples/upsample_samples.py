"""Sample calls of upsampling, forward and backward: sizes, scales, channels and layouts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .. import tensors

# (height, width) of the input and of the output: one pixel, integer factors, fractions, different factors for the two directions,
# rows that are no multiple of 16 bytes, large factors. Strong reductions leave most windows of the backward empty.
SIZES = (
    ((1, 1), (1, 1)), ((1, 1), (2, 2)), ((1, 1), (5, 7)), ((1, 1), (40, 40)), ((5, 7), (1, 1)), ((7, 7), (56, 56)),
    ((4, 4), (8, 8)), ((5, 3), (10, 6)), ((3, 5), (9, 15)), ((4, 6), (16, 24)), ((5, 4), (40, 32)), ((2, 3), (10, 21)),
    ((13, 17), (13, 17)), ((16, 16), (16, 16)), ((13, 17), (13, 34)), ((13, 17), (26, 17)), ((13, 17), (5, 40)), ((13, 17), (40, 5)),
    ((9, 9), (7, 7)), ((10, 14), (5, 7)), ((16, 16), (4, 4)), ((12, 18), (4, 6)), ((32, 64), (4, 8)), ((5, 7), (8, 11)),
    ((8, 11), (5, 7)), ((6, 10), (7, 11)), ((7, 11), (6, 10)), ((15, 16), (17, 18)), ((2, 3), (3, 2)), ((28, 28), (29, 27)),
    ((19, 23), (38, 46)), ((19, 23), (57, 69)), ((64, 64), (32, 32)), ((32, 31), (64, 62)), ((25, 34), (50, 68)), ((100, 136), (77, 93)),
    ((1, 33), (1, 66)), ((33, 1), (66, 1)), ((2, 129), (4, 258)), ((3, 5), (301, 207)), ((301, 207), (3, 5)),
    ((1, 4097), (1, 70)), ((4, 70), (2, 4097)), ((4097, 1), (33, 1)), ((2, 2050), (4, 4100)), ((14, 46), (46, 82)),
)  # fmt: skip
WIDTHS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
)  # below and around a 16-byte vector of every dtype, and the vectors of a warp
CHANNELS = (1, 2, 3, 4, 5, 8, 16, 33)

# Scale factors that determine the output's sizes, like scale_factors=.
FACTORS = (
    ((5, 7), (2.0, 2.0)), ((5, 7), (3.0, 1.0)), ((5, 7), (1.5, 2.7)), ((10, 9), (1.1, 7.3)), ((20, 31), (1 / 3, 0.37)), ((9, 10), (0.5, 4.0)),
    ((31, 40), (2.7, 2.7)), ((33, 18), (2.0, 0.5)), ((3, 4), (1.4, 1.9)), ((7, 1), (2.5, 40.0)), ((12, 12), (0.999, 1.001)),
    ((16, 48), (1.25, 1.75)),
)  # fmt: skip

# Scales that differ from the ratio of the sizes: too small and too large, in both directions or in one, with sizes that are equal
# or doubled, and values that count as no scale.
CONTRADICTORY = (
    ((5, 7), (10, 14), 1.5, 3.0), ((5, 7), (10, 14), 3.0, 1.5), ((6, 6), (6, 6), 2.0, 0.5), ((9, 8), (4, 3), 0.9, 0.1),
    ((9, 8), (4, 3), 2.0, 40.0), ((4, 5), (33, 31), 2.0, 2.0), ((4, 5), (33, 31), 100.0, 7.3), ((13, 17), (30, 17), 2.0, 1.3),
    ((13, 17), (29, 40), None, 2.7), ((13, 17), (29, 40), 2.7, None), ((8, 8), (12, 12), -1.0, 0.0),
    ((8, 8), (12, 12), math.nan, math.inf), ((40, 3), (3, 40), 0.37, 1.1),
)  # fmt: skip

# Sizes that need several blocks in each dimension of a grid: many images, many channels, long columns and rows.
MANY = (
    ((70_001, 1, 1, 1), (1, 2)), ((1, 70_001, 1, 1), (2, 1)), ((1, 1, 35_001, 1), (70_001, 1)), ((1, 1, 1, 35_001), (1, 70_001)),
    ((33, 65, 1, 2), (2, 4)), ((3, 513, 2, 3), (4, 6)), ((2, 3, 130, 131), (260, 262)), ((2, 8, 97, 64), (97, 150)),
    ((2, 3, 260, 262), (130, 131)),
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """The sizes of input and output, and the memory layout of the operand (the input, or in a backward the output's gradient).

    With `factors`, the scales determine the output's sizes.
    """

    name: str
    input_size: tuple[int, int, int, int]
    output_size: tuple[int, int]
    scales: tuple[float | None, float | None] = (None, None)
    layout: str = "contiguous"
    factors: bool = False
    sanitize: bool = False

    @property
    def grad_size(self) -> tuple[int, int, int, int]:
        return (*self.input_size[:2], *self.output_size)

    def __str__(self) -> str:
        scales = "" if self.scales == (None, None) else f", scales {self.scales}"
        return f"{self.input_size} to {self.output_size}{scales} {self.layout} {self.name}"


def sweep() -> Iterator[Call]:
    """All sample calls."""
    for size, out in SIZES:
        large = max(*size, *out) > 200
        yield Call("sizes", (2, 3, *size), out, sanitize=large)
        yield Call("sizes", (1, 5, *size), out, layout="channels_last", sanitize=large)
    for width in WIDTHS:
        yield Call("width", (2, 1, 3, width), (6, 2 * width))
        yield Call("width", (1, 3, 4, 2 * width), (2, width))
        yield Call("width", (1, 2, 2, width), (3, width + 3))
    for channels in CHANNELS:
        for out in ((10, 14), (3, 4), (5, 20), (15, 21), (5, 7)):
            yield Call("channels", (2, channels, 5, 7), out, layout="channels_last")
    for size, factors in FACTORS:
        out = tuple(int(n * f) for n, f in zip(size, factors, strict=True))
        yield Call("factors", (2, 3, *size), out, factors, factors=True)
        yield Call("factors", (1, 4, *size), out, factors, layout="channels_last", factors=True)
    for size, out, *scales in CONTRADICTORY:
        yield Call("contradictory", (2, 3, *size), out, tuple(scales))
        yield Call("contradictory", (1, 8, *size), out, tuple(scales), layout="channels_last")
    for size, out in (
        ((2, 3, 5, 7), (10, 14)),
        ((2, 4, 9, 16), (4, 33)),
        ((2, 16, 6, 5), (18, 5)),
        ((2, 3, 9, 16), (9, 16)),
    ):
        for layout in tensors.LAYOUTS:
            yield Call("layouts", size, out, layout=layout)
            yield Call("layouts", size, tuple(reversed(out)), layout=layout)
    for size, out in MANY:
        yield Call("many", size, out, sanitize=True)
        yield Call("many", size, out, layout="channels_last", sanitize=True)
    for layout in ("contiguous", "channels_last"):
        yield Call("no images", (0, 3, 4, 5), (8, 10), layout=layout)
        yield Call("no images", (0, 3, 4, 5), (3, 7), layout=layout)


def special_images(dtype: torch.dtype, device: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Special values in a row, in a column, and as channels."""
    values = tensors.specials(dtype, device)
    yield "row", values.view(1, 1, 1, -1)
    yield "column", values.view(1, 1, -1, 1)
    channels = values.view(1, -1, 1, 1).expand(1, len(values), 2, 3)
    yield "channels", channels.contiguous()
    yield "channels_last", channels.contiguous(memory_format=torch.channels_last)


# One small call of every kind, the simplest first. ATen's CUDA backward is right for all of them, so gradients can be compared with
# it (tests/rooms/upsample/test_accuracy.py checks that).
FEW = (
    Call("twice", (1, 2, 2, 3), (4, 6)),
    Call("up by a fraction", (1, 2, 2, 3), (3, 5)),
    Call("down", (1, 1, 4, 3), (2, 2)),
    Call("factors", (1, 1, 2, 3), (3, 6), (1.5, 2.0), factors=True),
    Call("factors down", (1, 1, 3, 4), (2, 2), (0.7, 0.5), factors=True),
    Call("same size", (1, 2, 2, 2), (2, 2)),
    Call("from one pixel", (2, 3, 1, 1), (2, 1)),
    Call("to one pixel", (1, 1, 3, 4), (1, 1)),
    Call("channels_last", (1, 3, 2, 2), (4, 2), layout="channels_last"),
    Call("transposed", (1, 1, 3, 4), (3, 4), layout="transposed"),
    Call("transposed twice", (1, 1, 2, 3), (2, 6), layout="transposed"),
    Call("step 2", (1, 2, 1, 3), (2, 3), layout="step2"),
    Call("misaligned", (1, 1, 2, 3), (4, 3), layout="misaligned1"),
    Call("more channels", (2, 8, 3, 2), (6, 4), layout="channels_last"),
    Call("no images", (0, 2, 2, 3), (4, 6)),
)
