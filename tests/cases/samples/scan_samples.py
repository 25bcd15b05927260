"""Sample calls of scans: many lengths, every dimension, every layout, both directions, and values that break kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from .. import Sample, tensors
from ..tensors import COMPLEX, FLOATS, INTEGERS, Maker

# Every remainder modulo a vector and modulo a warp of 32 threads, short rows, then lengths around the chunks of a warp and the
# tiles of a block.
LENGTHS = (
    *range(1, 41), 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2049, 4095, 4096, 4097,
)  # fmt: skip
SHORT = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33)
SHAPES = ((5,), (1, 1), (4, 6), (3, 5, 7), (3, 1, 4, 1), (2, 3, 4, 5), (2, 16, 6, 5), (2, 3, 2, 5, 7))
LAYOUT_SHAPES = ((37,), (9, 33), (65, 130), (3, 5, 7), (2, 3, 9, 17), (2, 16, 6, 5), (2, 3, 2, 5, 7))
# The four kinds of sums.
WAYS = ({}, {"reverse": True}, {"exclusive": True}, {"reverse": True, "exclusive": True})

# Shapes so large that blocks split rows or columns.
LONG = (((2**18 + 13,), 0), ((2**18,), 0), ((3, 70_003), 1), ((3, 70_004), 1), ((70_001, 3), 0), ((20_000, 8), 0), ((513, 1025), 0),
        ((513, 1025), 1), ((2, 20_021, 4), 1), ((6, 40, 1023), 1), ((40, 9, 1028), 2))  # fmt: skip


def _call(name: str, x: torch.Tensor, dim: int, sanitize: bool = False, **kwargs) -> Sample:
    said = "".join(f", {key}={value}" for key, value in kwargs.items())
    return Sample(f"{tuple(x.shape)} {name} dim {dim}{said}", (x, dim), kwargs, sanitize=sanitize)


def sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    yield from _lengths(make)
    yield from _dims(make)
    yield from _layouts(make)
    yield from _long(make)
    if dtype.is_floating_point or dtype.is_complex:
        yield from _special_values(make)


def _lengths(make: Maker) -> Iterator[Sample]:
    """Few and many rows and columns of every length. The kinds of sums take turns."""
    for k, n in enumerate(LENGTHS):
        yield _call("rows", make(3, n), 1, **WAYS[k % 4])
        yield _call("columns", make(n, 3), 0, **WAYS[(k + 1) % 4])
        yield _call("columns", make(n, 16), 0, **WAYS[(k + 2) % 4])
        yield _call("vector", make(n), 0, **WAYS[(k + 3) % 4])
    for n in SHORT:
        for way in WAYS:
            yield _call("many rows", make(1031, n), 1, **way)
            yield _call("many columns", make(n, 1031), 0, **way)


def _dims(make: Maker) -> Iterator[Sample]:
    for shape in SHAPES:
        for dim in range(-len(shape), len(shape)):
            yield _call("dims", make(*shape), dim, **WAYS[dim % 4])
    for way in WAYS:
        yield _call("0-d", make(), 0, **way)
        yield _call("0-d", make(), -1, **way)
    for shape, dim in (((3, 0), 0), ((3, 0), 1), ((0,), 0), ((2, 0, 5), 2)):
        yield _call("empty", make(*shape), dim)


def _layouts(make: Maker) -> Iterator[Sample]:
    for shape in LAYOUT_SHAPES:
        for k, (name, layout) in enumerate(tensors.LAYOUTS.items()):
            x = layout(make(*shape))
            if x is not None:
                yield from (_call(name, x, dim, **WAYS[(k + dim) % 4]) for dim in range(len(shape)))
    # More dimensions than a launch supports.
    backwards = tuple(reversed(range(12)))
    for dim in (0, 5, 11):
        yield _call("12 dimensions", make(*(2,) * 12), dim)
        yield _call("12 dimensions backwards", make(*(2,) * 12).permute(backwards), dim)


def _long(make: Maker) -> Iterator[Sample]:
    for k, (shape, dim) in enumerate(LONG):
        yield _call("long", make(*shape), dim, sanitize=True, **WAYS[k % 4])
    x = make(2**17 + 13)
    yield _call("long, misaligned", x[1:], 0, sanitize=True)
    yield _call("long, step 2", x[::2], 0, sanitize=True)
    x = make(513, 1025)
    yield _call("long, transposed", x.mT, 0)
    yield _call("long, transposed", x.mT, 1, sanitize=True)
    yield _call("long, misaligned rows", x[:, 1:], 1)
    yield _call("long, expanded", make(1, 1025).expand(257, 1025), 0, sanitize=True)
    yield _call("long, expanded", make(257, 1).expand(257, 1025), 1)


def _special_values(make: Maker) -> Iterator[Sample]:
    """NaN and infinities reach the sums after them, and no others."""
    for value in (math.nan, math.inf, -math.inf):
        for shape, dim in (((5, 40), 1), ((9000,), 0), ((700, 8), 0)):
            x = make(*shape)
            x.view(-1)[x.numel() // 3] = value
            yield _call(f"with {value}", x, dim)


SUM_TARGETS = FLOATS + COMPLEX[1:] + INTEGERS


def conversions(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """dtype= converts values on loading. Every conversion is defined: no negative value becomes unsigned."""
    make = Maker(device, dtype, seed=1, small=True)
    for target in SUM_TARGETS:
        if dtype.is_complex and not target.is_complex:
            continue  # ATen warns that it discards imaginary parts
        for name, shape, dim in (
            ("contiguous", (9, 33), 1), ("contiguous", (33, 9), 0), ("transposed", (9, 33), 1), ("expanded_last", (9, 33), 1),
            ("misaligned1", (517,), 0), ("contiguous", (20_011,), 0), ("contiguous", (5003, 5), 0),
        ):  # fmt: skip
            x = make(*shape)
            if dtype.is_floating_point and target in INTEGERS:
                x = x * 8
            x = x.abs() if target == torch.uint8 and dtype != torch.bool else x
            yield _call(f"{dtype} {name}", tensors.LAYOUTS[name](x), dim, dtype=target)


def few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """One small call of every kind, the simplest first. Values are small multiples of 1/8, so that sums are exact."""
    generator = torch.Generator().manual_seed(2)

    def make(*shape: int) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=generator).to(dtype).to(device)
        parts = [torch.randint(-9, 17, shape, generator=generator) for _ in range(2)]
        if dtype.is_complex:
            values = torch.complex(*(p.double() / 8 for p in parts))
        else:
            values = parts[0] / 8 if dtype.is_floating_point else parts[0].abs()
        return values.to(dtype).to(device)

    yield _call("inner", make(3, 4), 1)
    yield _call("outer", make(4, 3), 0)
    yield _call("vector", make(7), 0)
    yield _call("middle", make(2, 3, 4), 1)
    yield _call("last, from the back", make(2, 3, 2), -1)
    yield _call("transposed", make(4, 3).mT, -1)
    yield _call("step 2", make(6)[::2], 0)
    yield _call("0-d", make(), 0)
    yield _call("size 1", make(3, 1), 1)
    yield _call("channels_last", make(2, 3, 2, 2).contiguous(memory_format=torch.channels_last), 1)
    yield _call("misaligned", make(13)[1:], 0)
    yield _call("empty", make(0, 3), 1)


def few_ways(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Small calls in the other direction, without the own value, and with dtype=."""
    first, second, *_ = few(device, dtype)
    for way in WAYS[1:]:
        yield _call("inner", *first.args, **way)
        yield _call("outer", *second.args, **way)
    for target in (torch.complex64, torch.complex128) if dtype.is_complex else (torch.float64, torch.bfloat16):
        yield _call("converted", *first.args, dtype=target)
