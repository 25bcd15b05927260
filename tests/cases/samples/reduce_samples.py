"""Sample calls of reductions: many lengths, every subset of dimensions, every layout, and values that break kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from .. import Sample, tensors
from ..tensors import COMPLEX, FLOATS, INTEGERS, Maker

# Every remainder modulo a vector and modulo a warp of 32 threads, short rows, then lengths around the vectors of a warp and a
# block.
LENGTHS = (*range(1, 41), 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097)
SHORT = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33)
MATRICES = ((1, 5), (5, 1), (2, 1000), (1000, 2), (4099, 3), (3, 4099), (33, 65), (257, 31), (64, 128), (128, 64))
SHAPES = ((5,), (1, 1), (4, 6), (3, 5, 7), (3, 1, 4, 1), (2, 3, 4, 5), (2, 16, 6, 5), (2, 3, 2, 5, 7))

# Shapes and dims that are tested in every layout. None is a full reduction.
LAYOUT_DIMS = (
    ((37,), (None,)), ((9, 33), (0, 1, None)), ((65, 130), (0, 1)), ((3, 5, 7), (0, 1, 2, (0, 2))),
    ((2, 3, 9, 17), ((0, 2, 3), 1, 3, (1, 2))), ((2, 16, 6, 5), ((0, 2, 3), 1, (2, 3))),
    ((2, 3, 2, 5, 7), ((0, 2, 4), (1, 3), (2, 3, 4))),
)  # fmt: skip

# Shapes so large that blocks split the reduced dimensions, the kept dimensions, or both.
LONG = (
    ((2**18 + 13,), (None,)), ((3, 100_003), (1, 0)), ((100_003, 3), (0, 1)), ((70_001, 5), (0, None)), ((513, 1025), (0, 1, None)),
    ((2, 3, 50_021), ((0, 2), 1)), ((40_009, 2, 3), ((0, 2),)), ((6, 40, 31, 33), ((0, 2, 3), 1)),
)  # fmt: skip


def _every_third(t):
    """A layout with two unused rows between rows."""
    if t.dim() < 1:
        return None
    tall = tensors.poison([3 * t.shape[0], *t.shape[1:]], t.dtype, t.device)
    return tall[::3].copy_(t)


def _interleaved(t):
    """A layout with odd dimensions outermost in memory. Neither the reduced nor the kept dimensions are adjacent."""
    if t.dim() < 4:
        return None
    order = [*range(1, t.dim(), 2), *range(0, t.dim(), 2)]
    return t.permute(order).contiguous().permute([order.index(d) for d in range(t.dim())])


def _expanded_middle(t):
    return t.narrow(1, 0, 1).expand_as(t) if t.dim() >= 3 else None


LAYOUTS = {
    **tensors.LAYOUTS,
    "every_third": _every_third,
    "interleaved": _interleaved,
    "expanded_middle": _expanded_middle,
}


def sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Samples of every reduction, which are compared bit for bit. No row has zeros of both signs as its extremum, because either
    would be right (tests/rooms/reduce/test_use.py has such rows)."""
    make = Maker(device, dtype)
    yield from _lengths(make)
    yield from _dims(make)
    yield from _layouts(make)
    yield from _long(make)
    yield from _values(make)
    if dtype.is_floating_point or dtype.is_complex:
        yield from _float_values(make)


def _call(name: str, x: torch.Tensor, dim=None, sanitize: bool = False, **kwargs) -> Sample:
    if dim is not None:
        kwargs["dim"] = dim
    said = "".join(f", {key}={value}" for key, value in kwargs.items())
    return Sample(f"{tuple(x.shape)} {name}{said}", (x,), kwargs, sanitize=sanitize)


def _lengths(make: Maker) -> Iterator[Sample]:
    """Few and many rows and columns of every length, and vectors of every length."""
    for n in LENGTHS:
        yield _call("rows", make(3, n), 1)
        yield _call("columns", make(n, 3), 0)
        yield _call("vector", make(n))
    for n in SHORT:
        yield _call("many rows", make(1031, n), 1)
        yield _call("many columns", make(n, 1031), 0)
    for shape in MATRICES:
        for dim in (0, 1):
            yield _call("matrix", make(*shape), dim)


def _dims(make: Maker) -> Iterator[Sample]:
    """Every subset of the dimensions, in ascending and descending order, counted from the front and from the back, with and without
    keepdim."""
    for shape in SHAPES:
        rank = len(shape)
        subsets = [s for count in range(1, rank + 1) for s in itertools.combinations(range(rank), count)]
        for k, dims in enumerate(subsets):
            if k % 2:
                dims = tuple(d - rank for d in reversed(dims))
            yield _call("dims", make(*shape), dims if len(dims) > 1 else dims[0], keepdim=k % 4 in (1, 2))
        yield _call("no dims", make(*shape), ())
        yield _call("full", make(*shape), keepdim=True)
    for dim in (None, 0, -1, (0,), ()):
        yield _call("0-d", make(), dim)
        yield _call("0-d", make(), dim, keepdim=True)
    for shape, dim in (((3, 0), 0), ((0, 4), 1), ((2, 0, 5), (0, 2)), ((2, 0, 5), 2)):
        yield _call("empty, nothing to reduce", make(*shape), dim)


def _layouts(make: Maker) -> Iterator[Sample]:
    for shape, several in LAYOUT_DIMS:
        for name, layout in LAYOUTS.items():
            x = layout(make(*shape))
            if x is not None:
                yield from (_call(name, x, dim) for dim in several)
    backwards = tuple(reversed(range(12)))
    # More dimensions than fit in registers. None can be merged, because every other one is reduced.
    for dims in (tuple(range(0, 12, 2)), tuple(range(1, 12, 2)), (0, 1, 4, 5, 8, 9)):
        yield _call("12 dimensions", make(*(2,) * 12), dims)
        yield _call("12 dimensions backwards", make(*(2,) * 12).permute(backwards), dims)


def _long(make: Maker) -> Iterator[Sample]:
    for shape, several in LONG:
        x = make(*shape)
        for dim in several:
            yield _call("long", x, dim, sanitize=True)
    x = make(2**18 + 13)
    yield _call("long, misaligned", x[1:], sanitize=True)
    yield _call("long, step 2", x[::2], sanitize=True)
    x = make(513, 1025)
    yield _call("long, transposed", x.mT, 0)
    yield _call("long, transposed", x.mT, 1, sanitize=True)
    yield _call("long, misaligned rows", x[:, 1:], 1)
    yield _call("long, misaligned rows", x[1:, :-1], 0, sanitize=True)
    x = make(6, 40, 31, 33).contiguous(memory_format=torch.channels_last)
    yield _call("long, channels_last", x, (0, 2, 3), sanitize=True)
    yield _call("long, channels_last", x, 1)
    yield _call("long, expanded", make(1, 1025).expand(257, 1025), 0, sanitize=True)
    yield _call("long, expanded", make(257, 1).expand(257, 1025), 1)


def _in_three_ways(name: str, x: torch.Tensor) -> Iterator[Sample]:
    """Rows, and the same rows as dense and as strided columns."""
    yield _call(name, x, 1)
    yield _call(f"{name}, columns", x.mT.contiguous(), 0)
    yield _call(f"{name}, transposed", x.mT, 0)


def _values(make: Maker) -> Iterator[Sample]:
    """Pairs of special values (limits of integers, infinities, NaN, subnormals), and ties."""
    values = tensors.special_values(make.dtype)
    if make.dtype.is_floating_point:
        values = [v for v in values if v != 0 or math.copysign(1, v) > 0]
    pairs = zip(values, values[5:] + values[:5]) if make.dtype.is_complex else itertools.product(values, repeat=2)
    rows = torch.tensor(list(pairs), dtype=make.dtype, device=make.device)
    yield from _in_three_ways("pairs of special values", rows)
    yield _call("special values", torch.tensor(values, dtype=make.dtype, device=make.device))
    for shape in ((33, 65), (3, 1000), (70_001,)):
        x = torch.ones(shape, device=make.device).to(make.dtype)
        for dim in (None, *range(len(shape))):
            yield _call("all equal", x, dim)


def _float_values(make: Maker) -> Iterator[Sample]:
    dtype, device = make.dtype, make.device
    info = torch.finfo(dtype)
    for value in (math.nan, math.inf, -math.inf):
        for n in (5, 33, 129, 300):
            x = make(n + 1, n)
            x.fill_diagonal_(value)  # at a different position in every row; the last row has none
            yield _call(f"{value} on the diagonal", x, 1)
            yield _call(f"{value} on the diagonal", x, 0)
        yield _call(f"{value} in the middle", torch.cat([make(5003), torch.full_like(x[0, :1], value), make(5003)]))
    x = make(5, 300)
    x[0, 7] = x[1, 299] = x[3, 0] = math.inf
    x[0, 200] = x[2, 7] = x[3, 1] = -math.inf
    yield from _in_three_ways("both infinities", x)
    yield _call("negative zeros", torch.full((4, 9), -0.0, dtype=dtype, device=device), 1)
    # Sums of subnormals, which a kernel that flushes them would lose.
    steps = Maker(device, torch.int64, small=True)(4, 1000).double()
    yield from _in_three_ways("subnormals", (steps * (info.smallest_normal * info.eps)).to(dtype))
    half = make(3, 1000)
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(1)).to(device)
    yield from _in_three_ways("cancelling", torch.cat([half, -half], 1)[:, order])
    yield from _in_three_ways("sums beyond float16", torch.full((3, 1000), 60_000.0, device=device).to(dtype))


# ---------------------------------------------------------------- sum and mean alone


def empty_sums(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Sums over no values are zero, in every shape of the result. There is no mean."""
    make = Maker(device, dtype)
    shapes = ((0,), None), ((0,), 0), ((3, 0), 1), ((3, 0), None), ((0, 4), 0), ((2, 0, 5), (0, 1)), ((2, 0, 5), 1)
    for shape, dim in shapes:
        yield _call("empty", make(*shape), dim)
        yield _call("empty", make(*shape), dim, keepdim=True)


def conversions(device: str, dtype: torch.dtype, to: tuple[torch.dtype, ...]) -> Iterator[Sample]:
    """Calls with dtype=, which converts values on loading. Every conversion is defined: no negative value becomes unsigned."""
    make = Maker(device, dtype, seed=1, small=True)
    for target in to:
        if dtype.is_complex and not target.is_complex:
            continue  # ATen warns that it discards imaginary parts
        for name, shape, dim in (
            ("contiguous", (9, 33), 1), ("contiguous", (33, 9), 0), ("transposed", (9, 33), 1), ("expanded_last", (9, 33), 1),
            ("expanded_first", (9, 33), 0), ("misaligned1", (517,), None), ("channels_last", (2, 16, 6, 5), (0, 2, 3)),
            ("contiguous", (20_011,), None), ("contiguous", (5003, 5), 0),
        ):  # fmt: skip
            x = make(*shape)
            if dtype.is_floating_point and target in INTEGERS:
                x = x * 8
            x = x.abs() if target == torch.uint8 and dtype != torch.bool else x
            yield _call(f"{dtype} {name}", tensors.LAYOUTS[name](x), dim, dtype=target)
    if not (dtype.is_floating_point or dtype.is_complex):
        yield _call(f"{dtype}, full range", Maker(device, dtype)(9, 1033), 1, dtype=torch.float32)
        yield _call(f"{dtype}, full range", Maker(device, dtype)(1033, 9), 0, dtype=torch.float64)


FLOAT_TARGETS = FLOATS + COMPLEX[1:]
SUM_TARGETS = FLOAT_TARGETS + INTEGERS + (torch.bool,)


# ---------------------------------------------------------------- small calls


def few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """One small call of every kind, the simplest first.

    Values are distinct, so that the maximum is differentiable, and small multiples of 1/8, so that sums are exact in any order and
    dtype.
    """
    generator = torch.Generator().manual_seed(2)

    def make(*shape: int) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=generator).to(dtype).to(device)
        count = math.prod(shape)
        steps = [torch.randperm(count, generator=generator) - count // 3 for _ in range(2)]
        if dtype.is_complex:
            values = torch.complex(*(s.double() / 8 for s in steps))
        else:
            values = steps[0] / 8 if dtype.is_floating_point else steps[0]
        return values.view(shape).to(dtype).to(device)

    yield _call("inner", make(3, 4), 1)
    yield _call("outer", make(4, 3), 0)
    yield _call("full", make(3, 4))
    yield _call("full, kept", make(2, 3), keepdim=True)
    yield _call("middle", make(2, 3, 4), 1)
    yield _call("several", make(2, 3, 2, 1), (0, 2, 3))
    yield _call("negative, kept", make(2, 3, 2), (-1, -3), keepdim=True)
    yield _call("transposed", make(4, 3).mT, -1)
    yield _call("step 2", make(6)[::2], 0)
    yield _call("0-d", make())
    yield _call("size 1", make(3, 1), 1)
    yield _call("channels_last", make(2, 3, 2, 2).contiguous(memory_format=torch.channels_last), 1)
    yield _call("misaligned", make(13)[1:])
    yield _call("empty, nothing to reduce", make(0, 3), 1)


def few_conversions(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Small calls with dtype=. Real numbers are not converted to complex ones, because ATen has no gradient for that."""
    first, *_ = few(device, dtype)
    for target in (torch.complex64, torch.complex128) if dtype.is_complex else (torch.float64, torch.bfloat16):
        yield _call("converted", first.args[0], 1, dtype=target)
