"""Sample calls of dot products: sizes, values, and combinations of two layouts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from .. import Sample, tensors
from ..tensors import Maker
from .reduce_samples import LAYOUTS as MATRIX_LAYOUTS

# Every remainder modulo a vector of 1 to 16 values and modulo a warp of 32 threads, then sizes around the vectors of a warp and a
# block.
SIZES = (
    *range(0, 35), 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2049, 4095, 4096, 4097, 8191, 8193,
)  # fmt: skip
LAYOUT_SIZES = (5, 18, 33, 130, 259, 1027)
LONG = (2**14 + 5, 2**17 + 3)

ROWS = (0, 1, 2, 3, 5, 33, 130)
ROW_SIZES = (
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 129, 255, 256, 257, 1000, 1023, 1025, 4097,
)  # fmt: skip


def _column(t: torch.Tensor) -> torch.Tensor:
    return tensors.poison([len(t), 5], t.dtype, t.device)[:, 2].copy_(t)


def _conjugated(layout: str):
    """The layout of a conjugated view of memory in another layout."""

    def apply(t):
        return tensors.LAYOUTS[layout](t.conj().resolve_conj()).conj() if t.is_complex() else None

    return apply


# Layouts of vectors.
LAYOUTS = {
    **{name: tensors.LAYOUTS[name] for name in ("contiguous", "misaligned1", "misaligned3", "step2", "conj", "neg")},
    "step3": MATRIX_LAYOUTS["every_third"],
    "column": _column,
    "one value": lambda t: t[:1].expand(t.shape),
    "conj step2": _conjugated("step2"),
    "conj misaligned1": _conjugated("misaligned1"),
}
LONG_LAYOUTS = (
    ("contiguous", "contiguous"), ("misaligned1", "misaligned1"), ("misaligned1", "misaligned3"), ("contiguous", "misaligned1"),
    ("step2", "contiguous"), ("contiguous", "step3"), ("step2", "step3"), ("column", "misaligned3"), ("one value", "contiguous"),
    ("one value", "one value"), ("conj", "contiguous"), ("conj step2", "conj misaligned1"),
)  # fmt: skip
ROW_LAYOUTS = {
    name: MATRIX_LAYOUTS[name]
    for name in (
        "contiguous", "misaligned1", "misaligned3", "rows", "sliced", "step2", "every_third", "transposed", "expanded_first",
        "expanded_last", "conj", "neg",
    )
}  # fmt: skip


def _call(name: str, x: torch.Tensor, y: torch.Tensor, sanitize: bool = False) -> Sample:
    return Sample(f"{tuple(x.shape)} {name}", (x, y), sanitize=sanitize)


def _laid_out(name: str, x: torch.Tensor, y: torch.Tensor, layouts: dict, names: tuple, sanitize: bool = False):
    """The call with operands in these two layouts, or nothing if an operand cannot have its layout."""
    laid_out = [layouts[layout](t) for layout, t in zip(names, (x, y), strict=True)]
    if all(t is not None for t in laid_out):
        yield _call(f"{name}, {' and '.join(names)}", *laid_out, sanitize=sanitize)


def _is_float(make: Maker) -> bool:
    return make.dtype.is_floating_point or make.dtype.is_complex


# ---------------------------------------------------------------- vectors


def sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for n in SIZES:
        yield _call("vectors", make(n), make(n))
    for n in LAYOUT_SIZES:
        for names in itertools.product(LAYOUTS, repeat=2):
            yield from _laid_out("layouts", make(n), make(n), LAYOUTS, names)
    yield from _shared(make)
    yield from _long(make)
    yield from _special_values(make)
    for name, x, y in _values(make) if _is_float(make) else ():
        yield _call(name, x, y)
        yield from _laid_out(name, x, y, LAYOUTS, ("misaligned1", "step2"))


def _shared(make: Maker) -> Iterator[Sample]:
    """Operands that are the same tensor or overlap."""
    for n in (2, 3, 31, 100, 1025, 4097):
        x = make(n)
        yield _call("with itself", x, x)
        yield _call("with itself, shifted", x[1:], x[:-1])
        yield _call("with itself, step 2", x[::2], x[::2])
        yield _call("halves", x[: n // 2], x[n - n // 2 :])


def _long(make: Maker) -> Iterator[Sample]:
    """Vectors so long that several blocks share them. The blocks' sums are added at the end."""
    for n in LONG if _is_float(make) else LONG[1:]:
        x, y = make(n), make(n)
        for names in LONG_LAYOUTS:
            yield from _laid_out("long", x, y, LAYOUTS, names, sanitize=True)
        yield _call("long, with itself", x, x)


def _special_values(make: Maker) -> Iterator[Sample]:
    """Each special value (limits of integers, infinities, NaN, subnormals) times several others, beside an ordinary product."""
    values = tensors.special_values(make.dtype)
    for shift in range(0, len(values), max(8, len(values) // 3)):
        for v, w in zip(values, values[shift:] + values[:shift]):
            x, y = (torch.tensor(pair, dtype=make.dtype, device=make.device) for pair in ([v, 1], [w, 3]))
            yield _call(f"{v} times {w}", x, y)
    for n in (9, 100, 1000, 4097):
        for value in (0, 1):
            equal = torch.full((n,), value, device=make.device).to(make.dtype)
            yield _call(f"all {value}", equal, equal)


def _values(make: Maker) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Vectors with values that are difficult to sum: (name, x, y)."""
    dtype, device = make.dtype, make.device
    info, generator = torch.finfo(dtype), torch.Generator().manual_seed(1)
    for value, n in itertools.product((math.nan, math.inf, -math.inf), (3, 33, 300, 5003)):
        for position in (0, n // 2, n - 1):
            x = make(n)
            x[position] = value
            yield f"{value} at {position}", x, make(n)
            yield f"{value} at {position} of both", x, x
    for n in (2, 40, 1000):
        x, ones = make(n), torch.ones(n, device=device).to(dtype)
        x[0], x[n - 1] = math.inf, -math.inf
        yield "both infinities", x, ones
        zeros = torch.zeros_like(x)
        yield "infinity times zero", x, zeros
        yield "negative zeros", -zeros, ones
    # Differences between subnormals, which a kernel that flushes subnormals would lose.
    for n in (2, 31, 1000):
        steps, small = (Maker(device, torch.int64, seed=seed, small=True)(n).double() for seed in (1, 2))
        yield "subnormals", (steps * (info.smallest_normal * info.eps)).to(dtype), small.to(dtype)
    for n in (10, 300, 2000):
        order = torch.randperm(2 * n, generator=generator).to(device)
        x, y = make(n), make(n)
        cancelling = torch.cat([x, x])[order], torch.cat([y, -y])[order]
        yield "cancelling", *cancelling
        # Products over many orders of magnitude that cancel, except one.
        most = 5 if dtype == torch.float16 else 20
        scale = torch.exp2(torch.randint(-most, most + 1, (n,), generator=generator)).to(device).to(dtype)
        x, y = torch.cat([x * scale] * 2)[order], torch.cat([y * scale, -y * scale])[order]
        one = torch.ones(1, device=device).to(dtype)
        yield "ill-conditioned", torch.cat([x, one]), torch.cat([y, one])
    for n in (100, 1000, 4097):
        yield "all equal", *(torch.full((n,), v, device=device).to(dtype) for v in (0.1, 0.3))
        # Products whose partial sums exceed float16, but whose total is 2.
        large = torch.full((2 * n + 1,), 200.0, device=device).to(dtype)
        signed = torch.cat([large[:n], -large[:n], large[:1] / 20_000])
        yield "large on the way", large, signed


# ---------------------------------------------------------------- rows


def rows_sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for rows, n in itertools.product(ROWS, ROW_SIZES):
        if rows * n <= 40_000:
            yield _call("rows", make(rows, n), make(rows, n))
    for n in (1, 2, 3, 5, 8, 17):
        yield _call("many rows", make(3000, n), make(3000, n))
        x = make(n, 3000).t()
        yield _call("many rows, transposed", x, make(n, 3000).t())
        yield _call("many rows, with themselves", x, x)
    for names in itertools.product(ROW_LAYOUTS, repeat=2):
        yield from _laid_out("layouts", make(9, 33), make(9, 33), ROW_LAYOUTS, names)
    for shape in ((1, 100), (40, 1), (33, 16), (3, 1025), (130, 65)):
        for name in ROW_LAYOUTS:
            for names in dict.fromkeys([(name, name), (name, "contiguous"), ("rows", name)]):
                yield from _laid_out("layouts", make(*shape), make(*shape), ROW_LAYOUTS, names)
    yield from _long_rows(make)
    yield from _special_rows(make)
    if _is_float(make):
        for _, both in itertools.groupby(_values(make), key=lambda found: len(found[1])):
            x, y = (torch.stack(t) for t in list(zip(*both))[1:])
            yield _call("values", x, y)
            yield _call("values, transposed", x.mT.contiguous().mT, y)


def _long_rows(make: Maker) -> Iterator[Sample]:
    """Many values, in a few rows that several blocks may share, and in many rows."""
    for rows, n in ((2, 2**15 + 3), (1, 2**16 + 7), (300, 1025), (5003, 7)):
        x, y = make(rows, n + 1), make(rows, n + 1)
        yield _call("long, contiguous", x[:, :n].contiguous(), y[:, :n].contiguous(), sanitize=True)
        yield _call("long, misaligned", x[:, 1:], y[:, 1:], sanitize=True)
        yield _call("long, misaligned differently", x[:, 1:], y[:, :n])
        yield _call("long, transposed", x.mT.contiguous().mT, y.mT.contiguous().mT, sanitize=True)
        yield _call("long, one transposed", x.mT.contiguous().mT, y)
        yield _call("long, step 2", x[:, ::2], y[:, ::2])
        yield _call("long, one row for all", x[:1].expand(rows, n + 1), y, sanitize=True)


def _special_rows(make: Maker) -> Iterator[Sample]:
    """Every special value times every other one, alone and beside an ordinary product."""
    values = tensors.special_values(make.dtype)
    each = values[::3] if make.dtype.is_complex else values
    pairs = torch.tensor(list(itertools.product(values, each)), dtype=make.dtype, device=make.device)
    x, y = pairs.unbind(1)
    yield _call("special values", x[:, None], y[:, None])
    ones = torch.ones_like(x)
    x, y = torch.stack([x, ones], 1), torch.stack([y, 3 * ones], 1)
    yield _call("special values and more", x, y)
    yield _call("special values and more, transposed", x.mT.contiguous().mT, y.mT.contiguous().mT)


# ---------------------------------------------------------------- small calls


def _whole(device: str, dtype: torch.dtype):
    """Makes small integers. Sums of their products are exact in every dtype, and so the same bits in any order."""
    make = Maker(device, torch.int64, seed=2, small=True)

    def whole(*shape: int) -> torch.Tensor:
        if dtype == torch.bool:
            return make(*shape) > 0
        return (make(*shape) + 1j * make(*shape)).to(dtype) if dtype.is_complex else make(*shape).to(dtype)

    return whole


# Layouts of self and of the other operand. None is expanded, because tests write to the operands.
FEW = (
    (5, "contiguous", "contiguous"), (1, "contiguous", "contiguous"), (4, "misaligned1", "misaligned1"),
    (5, "contiguous", "misaligned3"), (6, "step2", "step2"), (4, "step3", "contiguous"), (3, "contiguous", "column"),
    (5, "conj", "contiguous"), (4, "conj", "conj step2"), (0, "contiguous", "contiguous"),
)  # fmt: skip
ROWS_FEW = (
    ((3, 4), "contiguous", "contiguous"), ((1, 5), "contiguous", "contiguous"), ((4, 1), "contiguous", "contiguous"),
    ((4, 3), "transposed", "transposed"), ((3, 2), "transposed", "contiguous"), ((2, 5), "contiguous", "misaligned1"),
    ((3, 3), "misaligned1", "misaligned3"), ((2, 4), "step2", "contiguous"), ((2, 3), "conj", "contiguous"),
    ((0, 3), "contiguous", "contiguous"), ((2, 0), "contiguous", "contiguous"),
)  # fmt: skip


def few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """One small call of every kind, the simplest first."""
    whole = _whole(device, dtype)
    for n, *names in FEW:
        yield from _laid_out("few", whole(n), whole(n), LAYOUTS, tuple(names))


def rows_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    whole = _whole(device, dtype)
    for shape, *names in ROWS_FEW:
        yield from _laid_out("few", whole(*shape), whole(*shape), ROW_LAYOUTS, tuple(names))
