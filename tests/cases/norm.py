"""Cases of layer_norm and rms_norm: rows of many lengths and layouts, missing and float32 weights, errors and references.

References are the definitions in float64. Operators of several results return them side by side in one tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, Sample, internal_case, workspace_of
from .tensors import FLOATS, LAYOUTS, Maker, specials, without_autocast

OPS = torch.ops.gpuopt
HALVES = (torch.float16, torch.bfloat16)
EPS = 1e-5


def compute_type(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


# ---------------------------------------------------------------- definitions


def normal(x: torch.Tensor, dims: int, eps: float, is_rms: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The normalised values, the mean and the inverse of the deviation."""
    over = tuple(range(-dims, 0))
    is_empty = x.shape.numel() == 0  # the mean of no values is 0
    total = x.sum(over, keepdim=True)
    mean = torch.zeros_like(total) if is_rms or is_empty else x.mean(over, keepdim=True)
    rstd = ((x - mean).square().mean(over, keepdim=True) + eps).rsqrt()
    return (x - mean) * rstd, mean, rstd


def _eps(x: torch.Tensor, eps: float | None) -> float:
    return torch.finfo(compute_type(x.dtype)).eps if eps is None else eps


def _affine(values, weight, bias):
    values = values if weight is None else values * wide(weight, weight.dtype)
    return values if bias is None else values + wide(bias, bias.dtype)


def _layer_reference(x, shape, weight=None, bias=None, eps=EPS):
    return _affine(normal(wide(x, x.dtype), len(shape), eps, False)[0], weight, bias)


def _rms_reference(x, shape, weight=None, eps=None):
    return _affine(normal(wide(x, x.dtype), len(shape), _eps(x, eps), True)[0], weight, None)


def _roundings(x, dims, eps, is_rms) -> torch.Tensor:
    """What a rounding of each value, and of the statistics, changes in normalised values."""
    values, _, rstd = normal(wide(x, x.dtype), dims, eps, is_rms)
    if x.numel() == 0:
        return values
    most = wide(x, x.dtype).abs().amax(tuple(range(-dims, 0)), keepdim=True)
    return torch.finfo(compute_type(x.dtype)).eps * (10 * values.abs() + 4 * most * rstd + 2)


def _finite(bound: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return bound.nan_to_num(nan=0, posinf=0) + torch.finfo(dtype).smallest_normal


def _bound_of(x, dims, weight, bias, eps, is_rms, dtype):
    bound = _roundings(x, dims, eps, is_rms)
    bound = bound if weight is None else bound * weight.double().abs()
    bound = bound if bias is None else bound + torch.finfo(compute_type(dtype)).eps * bias.double().abs()
    return _finite(bound, dtype)


def _layer_bound(device, dtype, reference, x, shape, weight=None, bias=None, eps=EPS):
    return _bound_of(x, len(shape), weight, bias, eps, False, dtype)


def _rms_bound(device, dtype, reference, x, shape, weight=None, eps=None):
    return _bound_of(x, len(shape), weight, None, _eps(x, eps), True, dtype)


def _is_mixed(x, *parameters) -> bool:
    """ATen's kernels have one dtype, or convert the result."""
    return any(p is not None and p.dtype != x.dtype for p in parameters) and x.dtype in HALVES


def _layer_aten(x, shape, weight=None, bias=None, eps=EPS):
    if _is_mixed(x, weight, bias) and not any(p is not None and p.dtype != torch.float32 for p in (weight, bias)):
        with without_autocast(x):
            autocast = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
            result = F.layer_norm(x.float(), shape, weight, bias, eps)
            return result if autocast else result.to(x.dtype)
    return F.layer_norm(x, shape, weight, bias, eps)


def _rms_aten(x, shape, weight=None, eps=None):
    if _is_mixed(x, weight):
        with without_autocast(x):
            return F.rms_norm(x.float(), shape, weight, _eps(x, eps)).to(x.dtype).contiguous()
    return F.rms_norm(x, shape, weight, eps).contiguous()


# ---------------------------------------------------------------- with a residual


def _both(normal: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """The norm and a part of the sum, in one tensor. Derivatives of the whole sum are so large that bfloat16 would round away the
    second derivatives of the norm."""
    with without_autocast(normal):
        return torch.stack([normal, total.to(normal.dtype) / 64])


def _add_layer(x, residual, *args, **kwargs):
    return _both(*OPS.add_layer_norm.default(x, residual, *args, **kwargs))


def _add_rms(x, residual, *args, **kwargs):
    return _both(*OPS.add_rms_norm.default(x, residual, *args, **kwargs))


def _add_layer_aten(x, residual, *args, **kwargs):
    total = x + residual
    return _both(_layer_aten(total, *args, **kwargs), total)


def _add_rms_aten(x, residual, *args, **kwargs):
    total = x + residual
    return _both(_rms_aten(total, *args, **kwargs), total)


def _add_layer_reference(x, residual, *args, **kwargs):
    total = x + residual
    return _both(_layer_reference(total, *args, **kwargs), wide(total, total.dtype))


def _add_rms_reference(x, residual, *args, **kwargs):
    total = x + residual
    return _both(_rms_reference(total, *args, **kwargs), wide(total, total.dtype))


def _add_layer_bound(device, dtype, reference, x, residual, *args, **kwargs):
    bound = _layer_bound(device, dtype, reference, x + residual, *args, **kwargs)
    return torch.stack([bound, torch.zeros_like(bound)])


def _add_rms_bound(device, dtype, reference, x, residual, *args, **kwargs):
    bound = _rms_bound(device, dtype, reference, x + residual, *args, **kwargs)
    return torch.stack([bound, torch.zeros_like(bound)])


# ---------------------------------------------------------------- samples

# The shape, and the number of normalised dimensions.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1,), 1), ((8,), 1), ((17,), 1), ((3, 1), 1), ((5, 2), 1), ((4, 3), 1), ((70, 8), 1), ((33, 7), 1), ((9, 16), 1),
    ((2, 3, 24), 1), ((40, 32), 1), ((5, 64), 1), ((130, 96), 1), ((6, 100), 1), ((3, 4, 127), 1), ((3, 128), 1), ((5, 192), 1),
    ((7, 384), 1), ((3, 770), 1), ((2, 768), 1), ((2, 1024), 1), ((3, 1000), 1), ((2, 2049), 1), ((2, 4096), 1), ((2, 5120), 1),
    ((1, 9000), 1), ((1, 20001), 1), ((1, 33000), 1), ((2, 3, 4), 2), ((2, 3, 4), 3), ((3, 4, 5, 6), 2), ((2, 16, 5, 5), 3),
    ((700, 12), 1), ((2, 1, 1), 2), ((0, 5), 1), ((3, 0), 1), ((0, 0), 1), ((2, 0, 3), 2), ((2, 3, 0), 1), ((2, 2, 3, 2, 4), 1),
)  # fmt: skip


class _Calls:
    """Samples of one of both functions."""

    def __init__(self, device: str, dtype: torch.dtype, is_rms: bool):
        self.make, self.dtype, self.is_rms, self.count = Maker(device, dtype), dtype, is_rms, 0
        self.kinds = itertools.cycle(("both", "weight", "none", "bias", "wide both", "wide weight"))

    def sample(self, name: str, x: torch.Tensor, dims: int, kind: str | None = None, eps: float | None = EPS) -> Sample:
        kind = kind or next(self.kinds)
        shape = tuple(x.shape[-dims:])
        is_wide = "wide" in kind and self.dtype in HALVES
        weight, bias = (
            self.make(*shape, dtype=torch.float32 if is_wide else None) if part in kind or "both" in kind else None
            for part in ("weight", "bias")
        )
        if self.is_rms:
            return Sample(f"{name}, {kind}", (x, shape, weight, eps))
        return Sample(f"{name}, {kind}", (x, shape, weight, bias, EPS if eps is None else eps))

    def sweep(self) -> Iterator[Sample]:
        for shape, dims in SHAPES:
            for _ in range(2 if math.prod(shape) < 10_000 else 1):
                yield self.sample(f"{shape}", self.make(*shape), dims)
            yield self.sample(f"{shape}, other eps", self.make(*shape), dims, eps=None if len(shape) % 2 else 0.1)
        for shape, dims in (((4, 3, 16), 1), ((3, 5, 7), 1), ((2, 3, 4, 5), 2), ((3, 2, 3, 24), 1)):
            for name, layout in LAYOUTS.items():
                if (x := layout(self.make(*shape))) is not None:
                    yield self.sample(f"{shape} {name}", x, dims)
        wide_rows = self.make(6, 5, 40)
        for begin in (0, 1, 3, 8):
            for length in (8, 16, 17, 30):
                yield self.sample(f"a part from {begin} of {length}", wide_rows[..., begin : begin + length], 1)
        yield self.sample("transposed batch", wide_rows.transpose(0, 1), 1)
        yield self.sample("expanded rows", wide_rows[:, :1].expand(6, 5, 40), 1)
        yield self.sample("every other row", wide_rows[::2, ::3], 1)
        many = self.make(2, 3, 2, 2, 8).permute(3, 1, 0, 2, 4)
        yield self.sample("rows of four strides", many, 1)
        for offset in (100, -1000):
            if self.dtype in (torch.float32, torch.float64):
                yield self.sample(f"a mean of {offset}", self.make(4, 300) + offset, 1)
        for value in (0.0, 3.0):
            yield self.sample(f"constant rows of {value}", torch.full_like(self.make(3, 16), value), 1)
        special = specials(self.dtype, self.make.device)
        rows = torch.stack([special, torch.ones_like(special)]).T.contiguous()
        yield self.sample("special values", rows[rows.isfinite().all(1).logical_not()], 1, "none")

    def few(self) -> Iterator[Sample]:
        """A large eps, because gradients would cancel. PyTorch's layer norm has wrong Hessians, so no sample is small enough for the
        test of these: tests/rooms/norm has one."""
        yield Sample("rows", (self.make(3, 4), (4,)), {"eps": 0.5})
        for kind in ("both", "none", "weight", "wide both"):
            yield self.sample("rows", self.make(3, 4), 1, kind, 0.5)
        yield self.sample("two dimensions", self.make(2, 2, 3), 2, "both", 0.5)
        yield self.sample("one row", self.make(5), 1, "both", 0.5)
        yield self.sample("transposed", self.make(4, 3).mT, 1, "both", 0.5)
        yield self.sample("three rows", self.make(3, 3), 1, "both", 0.5)

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        """Of every other sample with other strides."""
        self.count += 1
        if self.count % 2 == 0 or x.dim() < 2:
            return self.make(*x.shape)
        return self.make(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)


def _samples(is_rms: bool, only_few: bool, has_residual: bool):
    def samples(device, dtype):
        calls = _Calls(device, dtype, is_rms)
        for sample in calls.few() if only_few else calls.sweep():
            x, *args = sample.args
            yield Sample(sample.name, (x, calls.residual(x), *args), sample.kwargs) if has_residual else sample

    return samples


# ---------------------------------------------------------------- errors


def _errors(device: str, is_rms: bool) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x, weight = make(3, 4), make(4)

    def error(name, *args, says, on_meta=True):
        return ErrorCase(name, args, says=says, on_meta=on_meta)

    yield error("no dimension", x, (), says=(r"\bnormalized_shape\b",))
    for shape in ((3,), (2, 4), (2, 3, 4), (4, 1)):
        yield error(f"normalized_shape {shape}", x, shape, says=(r"\binput\b", r"\[3, 4\]"))
    for wrong in (make(3), make(1, 4), make()):
        yield error(
            f"weight {tuple(wrong.shape)}", x, (4,), wrong, says=("weight must have the normalized shape", r"\[4\]")
        )
    for dtype in (torch.int64, torch.bool) + (() if is_rms else (torch.complex64,)):
        yield error(f"input of {dtype}", x.to(dtype), (4,), says=(r"\binput\b", "floating-point"))
    if device != "cpu":
        yield error("weight on the CPU", x, (4,), weight.cpu(), says=(r"\bweight\b", "cpu"), on_meta=False)
    if is_rms:
        return
    yield error("bias of another shape", x, (4,), weight, make(3), says=(r"\bbias\b", r"\[4\]", r"\[3\]"))
    yield error("weight of float64", x, (4,), weight.double(), says=(r"\bweight\b", "Double", "Float"))


def _layer_errors(device):
    return _errors(device, False)


def _rms_errors(device):
    return _errors(device, True)


def _add_errors(device: str, is_rms: bool) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    for case in _errors(device, is_rms):
        x, *args = case.args
        yield ErrorCase(case.name, (x, x, *args), says=case.says, on_meta=case.on_meta)
    for shape in ((2, 4), (3, 5)):
        says = (r"\bresidual\b", r"\[3, 4\]", rf"\[{shape[0]}, {shape[1]}\]")
        yield ErrorCase(f"residual {shape}", (make(3, 4), make(*shape), (4,)), says=says)


def _add_layer_errors(device):
    return _add_errors(device, False)


def _add_rms_errors(device):
    return _add_errors(device, True)


# ---------------------------------------------------------------- with statistics, and gradients


def _joined(*results: torch.Tensor) -> torch.Tensor:
    """All results in one vector of float64."""
    return torch.cat([r.double().flatten() for r in results])


def _rows_op(name: str):
    def op(*args):
        results = [r for r in getattr(OPS, name)(*args) if r is not None]
        assert all(r.is_contiguous() for r in results)
        return _joined(*results)

    return op


def _rows_reference(x, weight, bias, dims, eps, is_rms):
    values, mean, rstd = normal(wide(x, x.dtype), dims, eps, is_rms)
    out = _affine(values, weight, bias)
    return _joined(out, rstd) if is_rms else _joined(out, mean, rstd)


def _rows_bound(x, weight, bias, dims, eps, is_rms):
    """The result is rounded to its dtype, which the comparison of float64 does not know."""
    values, mean, rstd = normal(wide(x, x.dtype), dims, eps, is_rms)
    rounding = torch.finfo(compute_type(x.dtype)).eps
    out = _bound_of(x, dims, weight, bias, eps, is_rms, x.dtype)
    out = out + torch.finfo(x.dtype).eps * _affine(values, weight, bias).abs().nan_to_num(nan=0, posinf=0)
    over = tuple(range(-dims, 0))
    of_mean = 10 * rounding * wide(x, x.dtype).abs().mean(over, keepdim=True)
    most = wide(x, x.dtype).abs().amax(over, keepdim=True) if x.numel() else rstd * 0
    of_rstd = rounding * rstd * (20 + 2 * most * rstd)
    return _finite(_joined(out, *(() if is_rms else (of_mean,)), of_rstd), torch.float32)


def _gradients(grad, x, weight, dims, rstd, mean, is_rms, of_sum) -> tuple[torch.Tensor, ...]:
    """In float64, of given statistics. `of_sum` is the gradient of other uses of x, or None."""
    over, outer = tuple(range(-dims, 0)), tuple(range(x.dim() - dims))
    grad = wide(grad, grad.dtype)
    values = (wide(x, x.dtype) - (0 if is_rms else mean.double())) * rstd.double()
    scaled = grad if weight is None else grad * weight.double()
    inner = scaled - values * (scaled * values).mean(over, keepdim=True)
    if not is_rms:
        inner = inner - scaled.mean(over, keepdim=True)
    dx = rstd.double() * inner + (0 if of_sum is None else wide(of_sum, of_sum.dtype))
    terms = grad * values

    def over_rows(t):
        return t.sum(outer) if outer else t

    found = [dx] + ([] if weight is None else [over_rows(terms)])
    return tuple(found if is_rms else [*found, over_rows(grad)])


def _gradient_bound(grad, x, weight, dims, eps, rstd, mean, is_rms, of_sum):
    over, outer = tuple(range(-dims, 0)), tuple(range(x.dim() - dims))
    rounding = torch.finfo(compute_type(x.dtype)).eps
    values, _, own = normal(wide(x, x.dtype), dims, eps, is_rms)
    changes = _roundings(x, dims, eps, is_rms) / rounding + values.abs()
    scaled = grad.double().abs() * (1 if weight is None else weight.double().abs())
    sizes = own * (scaled + scaled.mean(over, keepdim=True) + changes * (scaled * changes).mean(over, keepdim=True))
    terms = (grad.double().abs() * changes, grad.double().abs())
    of_rows = [(t.sum(outer) if outer else t) * 8 for t in terms]
    dtype = x.dtype if weight is None else weight.dtype
    exact = _gradients(grad, x, weight, dims, rstd, mean, is_rms, of_sum)
    dtypes = [x.dtype] + [dtype] * 2
    rounded = [torch.finfo(d).eps * e.abs() for d, e in zip(dtypes, exact, strict=False)]
    parts = [8 * rounding * sizes] + ([] if weight is None else [rounding * of_rows[0]])
    parts += [] if is_rms else [rounding * of_rows[1]]
    return _finite(_joined(*(p + r for p, r in zip(parts, rounded, strict=True))), torch.float32)


def _statistics(x, dims, eps, is_rms):
    _, mean, rstd = normal(wide(x, x.dtype), dims, eps, is_rms)
    kind = compute_type(x.dtype)
    return (rstd.to(kind),) if is_rms else (mean.to(kind), rstd.to(kind))


def _internal_samples(is_rms: bool, is_backward: bool, has_residual: bool, only_few: bool):
    def samples(device, dtype):
        calls = _Calls(device, dtype, is_rms)
        for sample in calls.few() if only_few else calls.sweep():
            if len(sample.args) == 2:
                continue
            x, shape, *parameters, eps = sample.args
            dims, weight, eps = len(shape), parameters[0], _eps(x, eps)
            if has_residual:
                yield Sample(sample.name, (x, calls.residual(x), *parameters, dims, eps))
            elif not is_backward:
                yield Sample(sample.name, (x, *parameters, dims, eps))
            elif x.numel() and x.isfinite().all():
                grad = calls.make(*x.shape)
                mask = [True, weight is not None] + ([] if is_rms else [True])
                of_sum = calls.residual(x) if calls.count % 4 < 2 else None
                calls.count += of_sum is None
                yield Sample(
                    sample.name, (grad, x, *_statistics(x, dims, eps, is_rms), weight, dims, eps, mask, of_sum)
                )

    return samples


def _layer_rows(x, weight, bias, dims, eps):
    return _rows_reference(x, weight, bias, dims, eps, False)


def _rms_rows(x, weight, dims, eps):
    return _rows_reference(x, weight, None, dims, eps, True)


def _layer_rows_bound(device, dtype, reference, x, weight, bias, dims, eps):
    return _rows_bound(x, weight, bias, dims, eps, False)


def _rms_rows_bound(device, dtype, reference, x, weight, dims, eps):
    return _rows_bound(x, weight, None, dims, eps, True)


def _layer_gradients(grad, x, mean, rstd, weight, dims, eps, mask, of_sum):
    return _joined(*_gradients(grad, x, weight, dims, rstd, mean, False, of_sum))


def _rms_gradients(grad, x, rstd, weight, dims, eps, mask, of_sum):
    return _joined(*_gradients(grad, x, weight, dims, rstd, None, True, of_sum))


def _layer_gradients_bound(device, dtype, reference, grad, x, mean, rstd, weight, dims, eps, mask, of_sum):
    return _gradient_bound(grad, x, weight, dims, eps, rstd, mean, False, of_sum)


def _rms_gradients_bound(device, dtype, reference, grad, x, rstd, weight, dims, eps, mask, of_sum):
    return _gradient_bound(grad, x, weight, dims, eps, rstd, None, True, of_sum)


def _add_layer_rows(x, residual, weight, bias, dims, eps):
    return _joined(_layer_rows(x + residual, weight, bias, dims, eps), x + residual)


def _add_rms_rows(x, residual, weight, dims, eps):
    return _joined(_rms_rows(x + residual, weight, dims, eps), x + residual)


def _add_layer_rows_bound(device, dtype, reference, x, residual, *args):
    return _joined(_layer_rows_bound(device, dtype, reference, x + residual, *args), torch.zeros_like(x))


def _add_rms_rows_bound(device, dtype, reference, x, residual, *args):
    return _joined(_rms_rows_bound(device, dtype, reference, x + residual, *args), torch.zeros_like(x))


_shared = {"dtypes": FLOATS, "elementwise": False, "workspace": workspace_of(8)}


def _internal(name: str, aten, bound) -> OpCase:
    kind = "rms" in name, "backward" in name, "add" in name
    return internal_case(
        name=name, op=_rows_op(name), overload=getattr(OPS, name).default, aten=aten, reference=aten,
        samples=_internal_samples(*kind, False), few=_internal_samples(*kind, True), bound=bound, as_accurate=False, **_shared,
    )  # fmt: skip


def _public(name: str, op, aten, reference, errors, bound, **fields) -> OpCase:
    kind = "rms" in name, "add" in name
    return OpCase(
        name=name, op=op, overload=getattr(OPS, name).default, aten=aten, reference=reference, errors=errors, bound=bound,
        samples=_samples(kind[0], False, kind[1]), few=_samples(kind[0], True, kind[1]), grad_dtypes=FLOATS, saves_inputs=True,
        **fields, **_shared,
    )  # fmt: skip


CASES = [
    _public("layer_norm", OPS.layer_norm.default, _layer_aten, _layer_reference, _layer_errors, _layer_bound, cancels=8),
    _public("rms_norm", OPS.rms_norm.default, _rms_aten, _rms_reference, _rms_errors, _rms_bound, fuses=True),
    # Both results are put together.
    _public(
        "add_layer_norm", _add_layer, _add_layer_aten, _add_layer_reference, _add_layer_errors, _add_layer_bound, fuses=True,
        as_accurate=False, cancels=8, approximates=2,
    ),
    _public(
        "add_rms_norm", _add_rms, _add_rms_aten, _add_rms_reference, _add_rms_errors, _add_rms_bound, fuses=True,
        as_accurate=False, cancels=8, approximates=2,
    ),
    _internal("_layer_norm", _layer_rows, _layer_rows_bound),
    _internal("_rms_norm", _rms_rows, _rms_rows_bound),
    _internal("_add_layer_norm", _add_layer_rows, _add_layer_rows_bound),
    _internal("_add_rms_norm", _add_rms_rows, _add_rms_rows_bound),
    _internal("_layer_norm_backward", _layer_gradients, _layer_gradients_bound),
    _internal("_rms_norm_backward", _rms_gradients, _rms_gradients_bound),
]  # fmt: skip
