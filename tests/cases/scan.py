"""Cases of cumsum: what stands for ATen, the error bound and the errors. The samples are in scan_samples.py."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

import torch_ops
from benchmarks.references.dtypes import compute_type, wide
from benchmarks.references.scan import reference, scanned

from . import ErrorCase, OpCase, OpInfoLink, Sample, Variant
from .samples import scan_samples as calls
from .tensors import ALL, COMPLEX, FLOATS, Maker

# ---------------------------------------------------------------- what stands for ATen, and bounds


def aten(x, dim, *, dtype=None, reverse=False, exclusive=False, out=None):
    """torch.cumsum, in either direction, with or without the own value."""
    if out is None and not reverse and not exclusive:
        return torch.cumsum(x, dim, dtype=dtype)
    if not reverse and not exclusive:
        return torch.cumsum(x, dim, dtype=dtype, out=out)
    target = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
    target = target if out is None else out.dtype
    if x.dim() and not exclusive:
        result = torch.cumsum(x.flip(dim), dim, dtype=target).flip(dim)
    else:
        result = scanned(x.to(target), dim, reverse, exclusive)
    return result.contiguous() if out is None else torch.ops.aten.clone.out(result, out=out)


def aten_(x, dim, *, dtype=None, reverse=False, exclusive=False):
    batched = torch._C._functorch.is_batchedtensor(x)  # torch.vmap has no rule for ATen's cumsum_
    if not reverse and not exclusive and not batched:
        return x.cumsum_(dim, dtype=dtype)
    return x.copy_(aten(x, dim, dtype=x.dtype, reverse=reverse, exclusive=exclusive))


def bound(device, result_dtype, reference, x, dim, *, dtype=None, reverse=False, exclusive=False):
    """The error bound of a sum of n values: (log2 n + 8) eps sum|x|, with eps of the accumulation dtype, as for reductions.

    If sum|x| exceeds the dtype's range, a partial sum may overflow, and any result is allowed. On the CPU, ATen adds from left to
    right, so n replaces log2 n.
    """
    if not (result_dtype.is_floating_point or result_dtype.is_complex):
        return None
    info = torch.finfo(compute_type(device, result_dtype))
    values = wide(x, result_dtype)
    parts = torch.view_as_real(values.resolve_conj()).abs() if values.is_complex() else values.abs().unsqueeze(-1)
    sizes = scanned(torch.where(parts.isfinite(), parts, 0.0).sum(-1), dim, reverse, exclusive)
    n = x.shape[dim] if x.dim() else 1
    terms = n if device == "cpu" else math.log2(max(n, 1))
    bound = (terms + 8) * info.eps * sizes + info.smallest_normal * info.eps
    return torch.where(sizes < info.max, bound, math.inf)


# ---------------------------------------------------------------- samples


def _samples(device, dtype) -> Iterator[Sample]:
    yield from calls.sweep(device, dtype)
    yield from calls.conversions(device, dtype)


def _few(device, dtype) -> Iterator[Sample]:
    yield from calls.few(device, dtype)
    yield from calls.few_ways(device, dtype)


# ---------------------------------------------------------------- errors


def _dim_errors(device, variant, **given) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    for name, x, dim, says in (
        ("dim too large", make(2, 3), 2, r"\b2\b"),
        ("dim too small", make(2, 3), -3, r"-3\b"),
        ("dim of a 0-d tensor", make(), 1, r"\b1\b"),
    ):
        yield ErrorCase(f"{name}, {variant}", (x, dim), given, says=(r"\bdim\b", says), variant=variant)


def _errors(device) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    yield from _dim_errors(device, "functional")
    yield from _dim_errors(device, "inplace")
    yield from _dim_errors(device, "out", out=make(2, 3))
    dtypes = ("[Dd]ouble|float64", "[Ff]loat")
    yield ErrorCase(
        "out is not of dtype",
        (make(2, 3), 1),
        {"dtype": torch.float64, "out": make(2, 3)},
        says=(r"\bout\b", *dtypes),
        variant="out",
    )
    yield ErrorCase(
        "another dtype in place",
        (make(2, 3), 1),
        {"dtype": torch.float64},
        says=(r"\bdtype\b", *dtypes),
        variant="inplace",
    )
    if device == "cpu":  # on CUDA, ATen writes wrong values without an error
        flat = make(7)
        out, says = {"out": flat[1:]}, (r"\bout\b", r"\binput\b")
        yield ErrorCase("out overlaps self in part", (flat[:6], 0), out, says=says, variant="out", on_meta=False)
    yield ErrorCase(
        "self overlaps itself", (make(1).expand(4), 0), says=(r"\binput\b",), variant="inplace", on_meta=False
    )
    yield ErrorCase("a sum of bools", (make(3) > 0, 0), {"dtype": torch.bool}, says=("[Bb]ool",), on_meta=False)
    if device != "cpu":
        out = {"out": make(2, 3).cpu()}
        yield ErrorCase("out on the CPU", (make(2, 3), 1), out, says=(r"\bout\b", "cpu"), variant="out", on_meta=False)


CASES = [
    OpCase(
        name="cumsum",
        op=torch_ops.cumsum,
        overload=torch.ops.gpuopt.cumsum.default,
        aten=aten,
        reference=reference,
        samples=_samples,
        few=_few,
        errors=_errors,
        dtypes=tuple(d for d in ALL if d != torch.complex32),
        grad_dtypes=FLOATS + COMPLEX[1:],
        bound=bound,
        inplace=Variant(torch_ops.cumsum_, torch.ops.gpuopt.cumsum_.default, aten_),
        out=Variant(torch_ops.cumsum, torch.ops.gpuopt.cumsum.out, aten),
        opinfo=(OpInfoLink("cumsum", at_least=6),),
        elementwise=False,
    )
]
