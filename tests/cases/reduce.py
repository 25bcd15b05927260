"""Cases of reduce_sum, reduce_mean, reduce_max and reduce_min: error bounds and errors. The samples are in reduce_samples.py."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

import torch_ops
from benchmarks.references import reduce as references
from benchmarks.references.dtypes import compute_type, wide

from . import ErrorCase, OpCase, OpInfoLink, Sample, Variant
from .samples import reduce_samples as calls
from .tensors import ALL, COMPLEX, FLOATS, INTEGERS, Maker

# ---------------------------------------------------------------- error bounds


def _sum_bound(device, result_dtype, reference, x, /, dim=None, keepdim=False, *, dtype=None):
    """The error bound of a sum: (log2 n + 8) eps sum|x|, with eps of the accumulation dtype.

    Pairwise summation has the bound log2(n) eps/2 sum|x|. If runs of m values are first added in order, log2(n) becomes log2(n/m) +
    m (N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14, 1993). So runs of up to about 30 values
    are surely within the bound. Longer runs are, because their errors do not all have one sign. If sum|x| exceeds the dtype's
    range, a partial sum may overflow, and any result is allowed.
    """
    if not (result_dtype.is_floating_point or result_dtype.is_complex):
        return None
    info = torch.finfo(compute_type(device, result_dtype))
    rows = references.rows_of(wide(x, result_dtype), dim)
    parts = torch.view_as_real(rows.resolve_conj()) if rows.is_complex() else rows.unsqueeze(-1)
    sizes = torch.where(parts.isfinite(), parts.abs(), 0.0).sum((-2, -1))
    bound = (math.log2(max(rows.shape[-1], 1)) + 8) * info.eps * sizes + info.smallest_normal * info.eps
    return references.shaped(torch.where(sizes < info.max, bound, math.inf), x, dim, keepdim)


def _mean_bound(device, result_dtype, reference, x, /, dim=None, keepdim=False, *, dtype=None):
    """The scaled bound of the sum. The two roundings of the scaling are covered by the part that does not depend on n."""
    bound = _sum_bound(device, result_dtype, reference, x, dim, keepdim)
    if bound is None:
        return None
    info = torch.finfo(compute_type(device, result_dtype))
    count = math.prod(x.shape[d] for d in references.reduced_dims(x, dim))
    return bound / max(count, 1) + info.smallest_normal * info.eps


def _extremum_bound(device, result_dtype, reference, x, /, dim=None, keepdim=False):
    """No error: the result is one of the values."""


# ---------------------------------------------------------------- samples of each operator


def _sum_samples(device, dtype) -> Iterator[Sample]:
    yield from calls.sweep(device, dtype)
    yield from calls.empty_sums(device, dtype)
    yield from calls.conversions(device, dtype, calls.SUM_TARGETS)


def _mean_samples(device, dtype) -> Iterator[Sample]:
    if dtype.is_floating_point or dtype.is_complex:
        yield from calls.sweep(device, dtype)
        yield from calls.empty_sums(device, dtype)
    # Integers have a mean only with dtype=. Their samples are among float32's.
    sources = (dtype, *INTEGERS, torch.bool) if dtype == torch.float32 else (dtype,)
    for sample in itertools.chain(*(calls.conversions(device, d, calls.FLOAT_TARGETS) for d in sources)):
        # ATen's CPU kernel converts these values directly to float32, not first to fp16 or bf16.
        narrowed = device == "cpu" and sample.kwargs["dtype"] in (torch.float16, torch.bfloat16)
        yield replace(sample, exact_inputs=not narrowed)


def _mean_few(device, dtype) -> Iterator[Sample]:
    yield from calls.few(device, dtype)
    yield from calls.few_conversions(device, dtype)


def _sum_few(device, dtype) -> Iterator[Sample]:
    yield from _mean_few(device, dtype)
    yield Sample("empty", (torch.ones(0, 4, device=device).to(dtype),), {"dim": 0})


# ---------------------------------------------------------------- errors


def _dim_errors(device, **given) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    for name, x, dim, says in (
        ("dim too large", make(2, 3), 2, r"\b2\b"),
        ("dim too small", make(2, 3), -3, r"-3\b"),
        ("one dim of two too large", make(2, 3), (0, 7), r"\b7\b"),
        ("dim of a 0-d tensor", make(), 1, r"\b1\b"),
        ("a dim twice", make(2, 3), (0, 0), "once"),
        ("a dim twice, once from the back", make(2, 3), (1, -1), "once"),
        ("a dim of a 0-d tensor twice", make(), (0, -1), "once"),
    ):
        yield ErrorCase(name, (x,), {"dim": dim, **given}, says=(r"\bdim\b", says))


def _out_errors(device, *wrong_dtypes) -> Iterator[ErrorCase]:
    """Errors with out=: wrong dims, and an out with a wrong dtype, given as (name, dtype=, out's dtype, what the message says)."""
    make = Maker(device, torch.float32)

    def error(name, out, *says, on_meta=True, **kwargs):
        kwargs = {"dim": 1, **kwargs, "out": out}
        return ErrorCase(name, (make(2, 3),), kwargs, says=(r"\bout\b", *says), variant="out", on_meta=on_meta)

    for name, dtype, out_dtype, says in wrong_dtypes:
        kwargs = {} if dtype is None else {"dtype": dtype}
        yield error(name, make(2, dtype=out_dtype), *says, **kwargs)
    for dim_error in _dim_errors(device, out=make(2)):
        yield replace(dim_error, name=f"{dim_error.name}, out", variant="out")
    if device != "cpu":
        yield error("out on the CPU", make(2).cpu(), "cpu", on_meta=False)


def _sum_errors(device) -> Iterator[ErrorCase]:
    yield from _dim_errors(device)
    yield from _out_errors(
        device, ("out is not of dtype", torch.float64, torch.float32, ("[Dd]ouble|float64", "[Ff]loat"))
    )


def _mean_errors(device) -> Iterator[ErrorCase]:
    yield from _dim_errors(device)
    # ATen's CUDA kernel accepts an integer out, and fills it with sums times zero.
    integer_out = ("integer out", None, torch.int64, ("[Ll]ong|int64",))
    yield from _out_errors(
        device,
        ("out is not of dtype", torch.float64, torch.float32, ("[Dd]ouble|float64", "[Ff]loat")),
        *([integer_out] if device == "cpu" else []),
    )
    ints = Maker(device, torch.int32)(2, 3)
    yield ErrorCase("mean of integers", (ints,), says=(r"\binput\b|\bdtype\b", "[Ii]nt"))
    yield ErrorCase("mean of bools", (ints > 0,), {"dim": 1}, says=(r"\binput\b|\bdtype\b", "[Bb]ool"))
    yield ErrorCase("integer mean", (ints.float(),), {"dtype": torch.int64}, says=(r"\bdtype\b", "[Ll]ong|int64"))


def _extremum_errors(device) -> Iterator[ErrorCase]:
    yield from _dim_errors(device)
    yield from _out_errors(
        device,
        ("float into int", None, torch.int32, ("[Ff]loat", "[Ii]nt")),
        ("float into double", None, torch.float64, ("[Ff]loat", "[Dd]ouble")),
    )
    make = Maker(device, torch.float32)
    for shape, kwargs in (((0,), {}), ((3, 0), {}), ((3, 0), {"dim": ()}), ((2, 0), {"keepdim": True})):
        yield ErrorCase(f"no values, {shape}, {kwargs}", (make(*shape),), kwargs, says=(r"\binput\b", "empty"))
    for shape, dim in (((3, 0), 1), ((0, 3), (0, 1)), ((2, 0, 5), -2)):
        says = (r"\bdim\b", rf"\[{', '.join(map(str, shape))}\]")
        yield ErrorCase(f"no values, {shape}, dim={dim}", (make(*shape),), {"dim": dim}, says=says)
    yield ErrorCase("complex", (make(2, 3, dtype=torch.complex64),), {"dim": 1}, says=("[Cc]omplex",), on_meta=False)


# ---------------------------------------------------------------- the cases


def _case(name: str, function: Callable, **rest) -> OpCase:
    op, packet = getattr(torch_ops, name), getattr(torch.ops.gpuopt, name)

    def aten(x, dim=None, keepdim=False, **kwargs):
        return function(x, dim, keepdim, **kwargs)  # without dim, torch.sum accepts no keepdim and no out

    return OpCase(
        name=name,
        op=op,
        overload=packet.default,
        aten=aten,
        out=Variant(op, packet.out, aten),
        opinfo=(OpInfoLink(function.__name__),),
        elementwise=False,
        **rest,
    )


REALS = FLOATS + INTEGERS + (torch.bool,)

_extremum = {
    "samples": calls.sweep, "few": calls.few, "errors": _extremum_errors, "dtypes": REALS, "grad_dtypes": FLOATS,
}  # fmt: skip
CASES = [
    _case(
        "reduce_sum", torch.sum, reference=references.sum_reference, samples=_sum_samples, few=_sum_few, errors=_sum_errors,
        dtypes=tuple(d for d in ALL if d != torch.complex32), cuda_dtypes=(torch.complex32,), grad_dtypes=FLOATS + COMPLEX[1:],
        bound=_sum_bound,
    ),
    _case(
        "reduce_mean", torch.mean, reference=references.mean_reference, samples=_mean_samples, few=_mean_few,
        errors=_mean_errors, dtypes=FLOATS + COMPLEX[1:], grad_dtypes=FLOATS + COMPLEX[1:], bound=_mean_bound,
    ),
    _case("reduce_max", torch.amax, reference=references.max_reference, bound=_extremum_bound, **_extremum),
    _case("reduce_min", torch.amin, reference=references.min_reference, bound=_extremum_bound, **_extremum),
]  # fmt: skip
