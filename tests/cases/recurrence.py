"""Cases of linear_recurrence: samples, the error bound and the errors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

import torch_ops
from benchmarks.references.dtypes import compute_type, wide
from benchmarks.references.recurrence import DTYPES, aten, doubled, reference

from . import ErrorCase, OpCase, Sample, tensors
from .samples.scan_samples import LAYOUT_SHAPES, SHAPES, SHORT
from .tensors import Maker


def bound(device, result_dtype, reference, a, b, dim, initial=None, reverse=False, *, shifted=False):
    """The error bound of a recurrence: k eps times the recurrence of absolute values. k is 4 roundings for each combination, and
    there are at most log2 n + 20 on the way from a term to a result. On the CPU there are n."""
    info = torch.finfo(compute_type("cuda", result_dtype))
    sizes = [None if x is None else wide(x, result_dtype).abs().to(torch.float64).nan_to_num() for x in (a, b, initial)]
    size = doubled(sizes[0], sizes[1], dim, sizes[2], reverse, shifted)
    n = size.shape[dim] if size.dim() else 1
    steps = min(n, 2000) if device == "cpu" else math.log2(max(n, 1)) + 20
    return 4 * (steps + 2) * info.eps * size + info.smallest_normal * info.eps


# ---------------------------------------------------------------- samples

# The ways of a call, which take turns.
WAYS = ({}, {"reverse": True}, {"shifted": True}, {"reverse": True, "shifted": True})
LENGTHS = (*range(1, 35), 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1025, 2049, 4097)
# Shapes so large that blocks split rows or columns.
LONG = (((2**17 + 13,), 0), ((2**17,), 0), ((3, 40_003), 1), ((3, 40_004), 1), ((40_001, 3), 0), ((20_000, 8), 0), ((513, 1025), 0),
        ((513, 1025), 1), ((2, 20_021, 4), 1))  # fmt: skip


def _call(name, a, b, dim, initial=None, sanitize=False, **way) -> Sample:
    said = "".join(f", {key}" for key in way) + (", initial" if initial is not None else "")
    args = (a, b, dim) if initial is None else (a, b, dim, initial)
    return Sample(f"{tuple(b.shape)} {name} dim {dim}{said}", args, way, sanitize=sanitize)


def _factors(make: Maker, *shape: int) -> torch.Tensor:
    """Factors of absolute values up to 1: 0 rarely, 1 often, and others between."""
    x = make(*shape)
    size = x.abs().clamp(min=0.05)
    return torch.where(size > 1.5, torch.zeros_like(x), x / torch.where(size > 0.5, size, torch.ones_like(size))).to(
        x.dtype
    )


def _without(shape, dim) -> list[int]:
    return [n for d, n in enumerate(shape) if d != dim % len(shape)]


def _samples(device, dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, n in enumerate(LENGTHS):
        for j, (name, shape, dim) in enumerate((("rows", (3, n), 1), ("columns", (n, 12), 0), ("vector", (n,), 0))):
            initial = make(*_without(shape, dim)) if (k + j) % 3 == 0 else None
            yield _call(name, _factors(make, *shape), make(*shape), dim, initial, **WAYS[(k + j) % 4])
    for n in SHORT:
        for way in WAYS:
            yield _call("many rows", _factors(make, 531, n), make(531, n), 1, make(531), **way)
            yield _call("many columns", _factors(make, n, 531), make(n, 531), 0, make(531), **way)
    yield from _broadcasts(make)
    for shape in LAYOUT_SHAPES:
        for k, (name, layout) in enumerate(tensors.LAYOUTS.items()):
            for dim in range(len(shape)):
                a, b, whole = _factors(make, *shape), make(*shape), make(*_without(shape, dim))
                way = WAYS[(k + dim) % 4]
                if layout(b) is not None:
                    yield _call(name, layout(a) if k % 2 else a, layout(b), dim, whole if k % 3 else None, **way)
    for k, (shape, dim) in enumerate(LONG):
        initial = make(*_without(shape, dim)) if k % 2 else None
        yield _call("long", _factors(make, *shape), make(*shape), dim, initial, sanitize=True, **WAYS[k % 4])
    for shape, dim in (((5, 40), 1), ((9000,), 0), ((700, 8), 0)):
        x = make(*shape)
        x.view(-1)[x.numel() // 3] = math.nan
        yield _call("with NaN", _factors(make, *shape), x, dim)


def _broadcasts(make: Maker) -> Iterator[Sample]:
    for shape in SHAPES:
        for dim in range(-len(shape), len(shape)):
            way, kept = WAYS[dim % 4], _without(shape, dim)
            own = list(shape)
            own[dim] = 1
            yield _call("a factor for each row", _factors(make, *own), make(*shape), dim, make(*kept), **way)
            yield _call("one factor", _factors(make), make(*shape), dim, make(1) if kept else None, **way)
            inner = make(*[1] * (len(shape) - 1), shape[-1])
            yield _call("a factor of the last dimension", _factors(make, shape[-1]), make(*shape), dim, **way)
            yield _call("terms of the last dimension", _factors(make, *shape), inner, dim, make(*kept), **way)
    for way in WAYS:
        yield _call("0-d", _factors(make), make(), 0, make(), **way)
        yield _call("0-d", _factors(make), make(), -1, **way)
    for shape, dim in (((3, 0), 0), ((3, 0), 1), ((0,), 0), ((2, 0, 5), 2)):
        yield _call("empty", make(*shape), make(*shape), dim)


def _few(device, dtype) -> Iterator[Sample]:
    """One small call of every kind. Values are small multiples of 1/4, so that results are exact."""
    generator = torch.Generator().manual_seed(2)

    def make(*shape: int, low=-8) -> torch.Tensor:
        parts = [torch.randint(low, 9, shape, generator=generator).double() / (4 if low < -2 else 8) for _ in range(2)]
        return (torch.complex(*parts) if dtype.is_complex else parts[0]).to(dtype).to(device)

    def factors(*shape: int) -> torch.Tensor:
        return (torch.randint(-1, 2, shape, generator=generator) + 0.5).to(dtype).to(device)

    yield _call("columns", factors(4, 3), make(4, 3), 0)
    yield _call("rows", factors(3, 4), make(3, 4), 1, make(3))
    for way in WAYS[1:]:
        yield _call("rows", factors(3, 4), make(3, 4), 1, make(3), **way)
        yield _call("columns", factors(4, 3), make(4, 3), 0, **way)
    yield _call("vector", factors(5), make(5), 0)
    yield _call("a factor for each row", factors(3, 1), make(3, 4), 1, make(3))
    yield _call("one factor", factors(), make(2, 3), -1, make(1))
    yield _call("one term", factors(2, 3), make(), 0, shifted=True)
    yield _call("middle", factors(2, 3, 2), make(2, 3, 2), 1, make(2, 2), shifted=True)
    yield _call("transposed", factors(4, 3).mT, make(4, 3).mT, -1)
    yield _call("0-d", factors(), make(), 0, make())
    yield _call("0-d", factors(), make(), 0, shifted=True)
    yield _call("size 1", factors(3, 1), make(3, 1), 1)
    yield _call("empty", make(0, 3), make(0, 3), 0, make(3))


# ---------------------------------------------------------------- errors


def _errors(device) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    for name, dim, says in (("dim too large", 2, r"\b2\b"), ("dim too small", -3, r"-3\b")):
        yield ErrorCase(name, (make(2, 3), make(2, 3), dim), says=(r"\bdim\b", says))
    yield ErrorCase("dim of 0-d tensors", (make(), make(), 1), says=(r"\bdim\b", r"\b1\b"))
    yield ErrorCase("sizes that don't broadcast", (make(2, 3), make(2, 4), 1), says=(r"\ba\b", r"\bb\b", "3", "4"))
    for name, shape in (("wrong size", (3,)), ("too many dimensions", (2, 3))):
        sample = (make(2, 3), make(2, 3), 1, make(*shape))
        yield ErrorCase(f"initial of a {name}", sample, says=(r"\binitial\b", r"\b3\b"))
    yield ErrorCase("integers", tuple(make(2, 3).long() for _ in range(2)) + (1,), says=("[Ll]ong|int64",))
    if device != "cpu":
        sample = (make(2, 3).cpu(), make(2, 3), 1)
        yield ErrorCase("a on the CPU", sample, says=(r"\ba\b", "cpu"), on_meta=False)


CASES = [
    OpCase(
        name="linear_recurrence",
        op=torch_ops.linear_recurrence,
        overload=torch.ops.gpuopt.linear_recurrence.default,
        aten=aten,
        reference=reference,
        samples=_samples,
        few=_few,
        errors=_errors,
        dtypes=DTYPES,
        grad_dtypes=DTYPES,
        bound=bound,
        elementwise=False,
        as_accurate=False,
        # Split columns of float32 have a record of 34 bytes for each tile of 64 rows, or more rows if there are many tiles.
        workspace=lambda sample: max(max(t.nbytes for t in sample.tensors) // 4, 2**18),
        saves_inputs=True,
        cancels=8,
    )
]
