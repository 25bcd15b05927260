"""Cases of group_norm, instance_norm and batch_norm: shapes, layouts, missing and float32 weights, errors and references.

References are the definitions in float64. Operators of several results return them side by side in one tensor. Running statistics
are made of the number of channels: calls say whether they have any. tests/rooms/norm tests how they change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, Sample, internal_case, workspace_of
from .norm import EPS, HALVES, _finite, _joined, compute_type
from .tensors import FLOATS, LAYOUTS, Maker, without_autocast

OPS = torch.ops.gpuopt


def running(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A mean and a variance of each channel."""
    options = {"dtype": compute_type(x.dtype), "device": x.device}
    number = torch.arange(x.shape[1], **options)
    return number.sin(), 1.25 + 0.75 * number.cos()


# ---------------------------------------------------------------- definitions


class View:
    """A tensor as (samples, groups, channels of a group, positions). No groups stand for a batch norm."""

    def __init__(self, x: torch.Tensor, groups: int | None):
        n, c = x.shape[:2]
        count = c if groups is None else groups
        self.sizes = (n, count, c // count if count else 0, math.prod(x.shape[2:]))
        self.dims = (0, 2, 3) if groups is None else (2, 3)

    def of(self, x: torch.Tensor) -> torch.Tensor:
        return wide(x, x.dtype).reshape(self.sizes)

    def channels(self, parameter: torch.Tensor | None, missing: float) -> torch.Tensor | float:
        return missing if parameter is None else wide(parameter, parameter.dtype).reshape(*self.sizes[1:3], 1)

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.dims, keepdim=True) if x.numel() else x.sum(self.dims, keepdim=True)


def normal(x, groups, eps, statistics=None):
    """The normalised values as View has them, their mean, rstd and variance."""
    view = View(x, groups)
    x = view.of(x)
    if statistics is None:
        mean = view.mean(x)
        variance = (x - mean).square().mean(view.dims, keepdim=True)
    else:
        mean, variance = (view.channels(s, 0.0)[None] for s in statistics)
    rstd = (variance + eps).rsqrt()
    return (x - mean) * rstd, mean, rstd, variance


def _affine(x, groups, values, weight, bias):
    view = View(x, groups)
    return (values * view.channels(weight, 1.0) + view.channels(bias, 0.0)).reshape(x.shape)


def _roundings(x, groups, eps, statistics=None):
    """What a rounding of each value, and of the statistics, changes in normalised values."""
    values, mean, rstd, _ = normal(x, groups, eps, statistics)
    if x.numel() == 0:
        return values
    view = View(x, groups)
    most = view.of(x).abs().amax(view.dims, keepdim=True) + mean.abs()
    return torch.finfo(compute_type(x.dtype)).eps * (20 * values.abs() + 4 * most * rstd + 2)


def _out_bound(x, groups, weight, bias, eps, statistics=None):
    view = View(x, groups)
    bound = _roundings(x, groups, eps, statistics)
    if weight is not None:
        bound = bound * view.channels(weight, 1.0).abs()
    if bias is not None:
        bound = bound + torch.finfo(compute_type(x.dtype)).eps * view.channels(bias, 0.0).abs()
    return _finite(bound.reshape(x.shape), x.dtype)


def _aten(x, function, weight, bias):
    """In float32 for half types, because ATen rounds their statistics, and laid out as the input."""
    is_autocast = x.device.type == "cuda" and torch.is_autocast_enabled("cuda") and function.__name__ == "group"
    if x.dtype in HALVES:
        with without_autocast(x):
            result = function(x.float(), *(p if p is None else p.float() for p in (weight, bias)))
            result = result if is_autocast else result.to(x.dtype)
    else:
        result = function(x, weight, bias)
    if x.dim() > 2 and not x.is_contiguous() and x.movedim(1, -1).is_contiguous():
        return result.movedim(1, -1).contiguous().movedim(-1, 1)
    return result.contiguous()


# ---------------------------------------------------------------- group norm

ACTIVATIONS = {None: lambda x: x, "relu": F.relu, "silu": F.silu, "gelu": F.gelu}


def _group_reference(x, groups, weight=None, bias=None, eps=EPS, activation=None):
    return ACTIVATIONS[activation](_affine(x, groups, normal(x, groups, eps)[0], weight, bias))


def _group_bound(device, dtype, reference, x, groups, weight=None, bias=None, eps=EPS, activation=None):
    bound = _out_bound(x, groups, weight, bias, eps)
    if activation is None:
        return bound
    affine = _group_reference(x, groups, weight, bias, eps).abs()
    return 1.2 * bound + 4 * _eps_of(x) * affine.nan_to_num(nan=0, posinf=0)


def _group_aten(x, groups, weight=None, bias=None, eps=EPS, activation=None):
    if activation not in ACTIVATIONS:
        raise RuntimeError("a known activation")

    def group(x, weight, bias):
        return ACTIVATIONS[activation](F.group_norm(x, groups, weight, bias, eps))

    return _aten(x, group, weight, bias)


# ---------------------------------------------------------------- instance and batch norm


def _stats(x, is_running):
    return running(x) if is_running else (None, None)


def _with_statistics(overload, x, is_running, weight=None, bias=None, eps=EPS, *more):
    """A call of the overload. Errors have its own arguments."""
    if not isinstance(is_running, bool):
        return overload(x, is_running, weight, bias, eps, *more)
    return overload(x, *_stats(x, is_running), weight, bias, not is_running, 0.1, eps)


def _batch(x, is_running, *more, **options):
    return _with_statistics(OPS.batch_norm.default, x, is_running, *more, **options)


def _instance(x, is_running, *more, **options):
    return _with_statistics(OPS.instance_norm.default, x, is_running, *more, **options)


def _arguments(sample: Sample) -> Sample:
    x, is_running, *more = sample.args
    weight, bias, eps = more or (None, None, sample.kwargs["eps"])
    return Sample(sample.name, (x, *_stats(x, is_running), weight, bias, not is_running, 0.1, eps))


def _batch_reference(x, is_running, weight=None, bias=None, eps=EPS):
    return _affine(x, None, normal(x, None, eps, running(x) if is_running else None)[0], weight, bias)


def _batch_bound(device, dtype, reference, x, is_running, weight=None, bias=None, eps=EPS):
    return _out_bound(x, None, weight, bias, eps, running(x) if is_running else None)


def _batch_aten(x, is_running, weight=None, bias=None, eps=EPS, *more):
    if not isinstance(is_running, bool):
        return F.batch_norm(x, is_running, weight, bias, eps, *more)

    def batch(x, weight, bias):
        stats = tuple(s if s is None else s.to(x.dtype) for s in _stats(x, is_running))
        return torch.batch_norm(x, weight, bias, *stats, not is_running, 0.1, eps, True)

    return _aten(x, batch, weight, bias)


def _instance_reference(x, is_running, weight=None, bias=None, eps=EPS):
    if is_running:
        return _batch_reference(x, True, weight, bias, eps)
    return _group_reference(x, x.shape[1], weight, bias, eps)


def _instance_bound(device, dtype, reference, x, is_running, weight=None, bias=None, eps=EPS):
    if is_running:
        return _batch_bound(device, dtype, reference, x, True, weight, bias, eps)
    return _group_bound(device, dtype, reference, x, x.shape[1], weight, bias, eps)


def _instance_aten(x, is_running, weight=None, bias=None, eps=EPS, *more):
    """ATen's group norm, because its instance norm repeats weights in their dtype."""
    if not isinstance(is_running, bool):
        return F.instance_norm(x, is_running, weight, bias, eps, *more)
    if is_running:
        return _batch_aten(x, True, weight, bias, eps)

    def instance(x, weight, bias):
        return F.group_norm(x, x.shape[1], weight, bias, eps)

    return _aten(x, instance, weight, bias)


# ---------------------------------------------------------------- samples

# The shape, and the number of groups.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((3, 4), 2), ((5, 6), 1), ((2, 4, 5), 4), ((2, 6, 3), 3), ((3, 4, 8), 2), ((1, 8, 2, 2), 4), ((2, 3, 4, 4), 1),
    ((2, 16, 7, 7), 4), ((4, 32, 14, 14), 8), ((2, 5, 1, 9), 5), ((1, 32, 56, 56), 4), ((2, 8, 100), 2), ((3, 8, 3, 4, 5), 2),
    ((70, 8, 3, 3), 8), ((2, 4, 33, 31), 2), ((1, 2, 20001), 1), ((1, 2, 300, 300), 1), ((2, 24, 16, 16), 12), ((64, 16, 4), 16),
    ((3, 6, 10), 2), ((5, 8, 4, 4), 2), ((2, 12, 5, 7), 3), ((9, 4, 3), 4), ((2, 40, 9), 5), ((2, 8, 2, 2, 2), 4), ((6, 2, 31), 2),
    ((3, 4, 17), 2), ((2, 8, 6, 2), 4),
)  # fmt: skip
EMPTY = (((0, 4, 3), 2), ((0, 2), 1))


class _Calls:
    """Samples of one function. `kind` is the name of the function."""

    def __init__(self, device: str, dtype: torch.dtype, kind: str):
        self.make, self.dtype, self.kind = Maker(device, dtype), dtype, kind
        self.kinds = itertools.cycle(("both", "weight", "none", "bias", "wide both", "wide weight"))
        self.running = itertools.cycle((False, False, True))
        self.activations = itertools.cycle((None, None, "silu", "gelu", None, "relu", "silu"))

    def sample(self, name, x, groups, kind=None, eps=EPS, is_running=None, activation="") -> Sample:
        """Samples of a group norm go through all activations, unless they have one."""
        kind = kind or next(self.kinds)
        is_wide = "wide" in kind and self.dtype in HALVES
        weight, bias = (
            self.make(x.shape[1], dtype=torch.float32 if is_wide else None) if part in kind or "both" in kind else None
            for part in ("weight", "bias")
        )
        if self.kind == "group":
            activation = next(self.activations) if activation == "" else activation
            return Sample(f"{name}, {groups} groups, {kind}, {activation}", (x, groups, weight, bias, eps, activation))
        is_running = next(self.running) if is_running is None else is_running
        return Sample(f"{name}, {kind}{', running' * is_running}", (x, is_running, weight, bias, eps))

    def sweep(self) -> Iterator[Sample]:
        for shape, groups in SHAPES + (EMPTY if self.kind != "instance" else ()):
            if self.kind == "instance" and math.prod(shape[2:]) < 2:
                continue
            for _ in range(3 if math.prod(shape) < 10_000 else 1):
                yield self.sample(f"{shape}", self.make(*shape), groups)
            yield self.sample(f"{shape}, other eps", self.make(*shape), groups, eps=0.1)
        for shape, groups in (((4, 6, 16), 2), ((2, 4, 5, 6), 2), ((3, 16, 4, 8), 4), ((2, 8, 3, 2, 4), 4)):
            for name, layout in LAYOUTS.items():
                if (x := layout(self.make(*shape))) is not None:
                    yield self.sample(f"{shape} {name}", x, groups)
            for _ in range(3):
                x = self.make(*shape).movedim(1, -1).contiguous().movedim(-1, 1)
                yield self.sample(f"{shape} channels innermost", x, groups)
        for offset in (100, -1000):
            if self.dtype in (torch.float32, torch.float64):
                yield self.sample(f"a mean of {offset}", self.make(3, 4, 100) + offset, 2, is_running=False)
        yield self.sample("constant", torch.full_like(self.make(2, 4, 16), 3.0), 2, is_running=False)

    def few(self) -> Iterator[Sample]:
        """A large eps, because gradients would cancel. PyTorch's forward mode refuses channels that are innermost."""
        first = (2,) if self.kind == "group" else (False,)
        yield Sample("channels", (self.make(2, 4, 3), *first), {"eps": 0.5})
        # Three values of a channel cancel more than float32 weights of half types are compared by.
        for kind in ("both", "none", "weight") + (("wide both",) if self.kind != "instance" else ()):
            yield self.sample("channels", self.make(2, 4, 3), 2, kind, 0.5, False, None)
        yield self.sample("images", self.make(2, 4, 2, 2), 2, "both", 0.5, False, None)
        # PyTorch's batch norm has wrong Hessians, so no sample is small enough for the test of these.
        # An instance of three values cancels too much.
        small = (((1, 4, 3), 1), ((2, 2, 1, 3), 2)) if self.kind != "instance" else (((1, 1, 10), 1),)
        for shape, groups in (((2, 2, 3), 2), ((1, 2, 6), 1), *small, ((1, 2, 5), 2), ((1, 2, 2, 3), 1)):
            yield self.sample(f"{shape}", self.make(*shape), groups, "both", 0.5, False, None)
        if self.kind == "group":
            for activation in ("silu", "gelu", "relu"):
                yield self.sample("activated", self.make(2, 2, 3), 2, "both", 0.5, activation=activation)
            yield self.sample("activated", self.make(2, 4, 3), 2, "none", 0.5, activation="silu")
        else:
            yield self.sample("running", self.make(2, 4, 3), 2, "both", 0.5, True)


def _samples(kind: str):
    return lambda device, dtype: _Calls(device, dtype, kind).sweep()


def _few(kind: str):
    return lambda device, dtype: _Calls(device, dtype, kind).few()


# ---------------------------------------------------------------- errors


def _group_errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x = make(2, 4, 3)
    yield ErrorCase("groups that do not divide", (x, 3), says=(r"\bnum_groups\b", "divisor of 4", "got 3"))
    yield ErrorCase("one dimension", (make(4), 2), says=(r"\binput\b", "at least 2 dimensions"))
    for wrong in (make(3), make(4, 1)):
        yield ErrorCase(f"weight {tuple(wrong.shape)}", (x, 2, wrong), says=(r"\bweight\b", r"\[4\]"))
    yield ErrorCase("bias of another shape", (x, 2, make(4), make(2)), says=(r"\bbias\b", r"\[4\]", r"\[2\]"))
    unknown = (x, 2, None, None, EPS, "tanh")
    yield ErrorCase("an unknown activation", unknown, says=(r"\bactivation\b", "'silu'", "got 'tanh'"))


def _running_errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x = make(2, 4, 3)
    stats = (make(4), make(4).abs())
    yield ErrorCase("no running statistics", (x, None, None, None, None, False), says=(r"\brunning_mean\b",))
    yield ErrorCase("no variance", (x, stats[0], None, None, None, True), says=(r"\brunning_var\b",))
    yield ErrorCase(
        "mean of another shape", (x, make(3), stats[1], None, None, False), says=(r"\brunning_mean\b", "4", "3")
    )
    yield ErrorCase(
        "weight of another shape", (x, *stats, make(3), None, False), says=(r"\bweight\b", r"\[4\]", r"\[3\]")
    )


# ---------------------------------------------------------------- with statistics, and gradients


def _internal_op(name: str):
    def op(*args):
        return _joined(*[r for r in getattr(OPS, name)(*args) if r is not None])

    return op


def _eps_of(x):
    return torch.finfo(compute_type(x.dtype)).eps


def _results(x, groups, weight, bias, eps, statistics):
    """All results of a forward pass, and their bounds."""
    values, mean, rstd, variance = normal(x, groups, eps, statistics)
    out = _affine(x, groups, values, weight, bias)
    view, rounding = View(x, groups), _eps_of(x)
    found = [out, mean, rstd]
    most = view.of(x).abs().amax(view.dims, keepdim=True) if x.numel() else mean * 0
    bounds = [
        _out_bound(x, groups, weight, bias, eps, statistics) + torch.finfo(x.dtype).eps * out.abs().nan_to_num(nan=0),
        10 * rounding * (most + mean.abs()),
        rounding * rstd * (40 + 2 * most * rstd),
    ]
    if groups is None and statistics is None:
        count = x.shape[0] * view.sizes[3]
        found.append(
            variance * torch.tensor(count, dtype=torch.float64) / (count - 1) if count != 1 else variance * math.nan
        )
        bounds.append(rounding * (variance * 80 + 4 * most * variance.sqrt()))
    return found, bounds


def _group_rows(x, weight, bias, groups, eps):
    return _joined(*_results(x, groups, weight, bias, eps, None)[0])


def _group_rows_bound(device, dtype, reference, x, weight, bias, groups, eps):
    return _finite(_joined(*_results(x, groups, weight, bias, eps, None)[1]), torch.float32)


def _batch_rows(x, weight, bias, mean, variance, eps):
    return _joined(*_results(x, None, weight, bias, eps, None if mean is None else (mean, variance))[0])


def _batch_rows_bound(device, dtype, reference, x, weight, bias, mean, variance, eps):
    found = _results(x, None, weight, bias, eps, None if mean is None else (mean, variance))[1]
    return _finite(_joined(*found), torch.float32)


def _gradients(grad, x, groups, mean, rstd, weight, is_given):
    """In float64, of given statistics, and the sizes of what is added."""
    view = View(x, groups)
    grad, factor = view.of(grad), view.channels(weight, 1.0)
    kept = (1, view.sizes[1], 1, 1) if groups is None else (view.sizes[0], view.sizes[1], 1, 1)
    mean, rstd = mean.double().reshape(kept), rstd.double().reshape(kept)
    values = (view.of(x) - mean) * rstd
    scaled = grad * factor
    inner = scaled
    if not is_given:
        inner = scaled - view.mean(scaled) - values * view.mean(scaled * values)
    changes = 20 * values.abs() + 4 * (view.of(x).abs().amax(view.dims, keepdim=True) + mean.abs()) * rstd + 2
    size = scaled.abs() if weight is None else grad.abs() * factor.abs()
    sizes = [
        rstd * (size + view.mean(size) + changes * view.mean(size * changes)) * 8,
        (grad.abs() * changes).sum((0, 3)).flatten() * 8,
        grad.abs().sum((0, 3)).flatten() * 8,
    ]
    found = [(rstd * inner).reshape(x.shape), (grad * values).sum((0, 3)).flatten(), grad.sum((0, 3)).flatten()]
    return found, sizes


def _gradient_bound(x, weight, found, sizes):
    dtype = x.dtype if weight is None else weight.dtype
    rounding = _eps_of(x)
    parts = [
        rounding * size.flatten() + torch.finfo(kind).eps * exact.abs().flatten()
        for exact, size, kind in zip(found, sizes, (x.dtype, dtype, dtype), strict=True)
    ]
    return _finite(_joined(*parts), torch.float32)


def _group_gradients(grad, x, mean, rstd, weight, groups, eps, mask):
    return _joined(*_gradients(grad, x, groups, mean, rstd, weight, False)[0])


def _group_gradients_bound(device, dtype, reference, grad, x, mean, rstd, weight, groups, eps, mask):
    return _gradient_bound(x, weight, *_gradients(grad, x, groups, mean, rstd, weight, False))


def _batch_gradients(grad, x, mean, rstd, weight, training, eps, mask):
    return _joined(*_gradients(grad, x, None, mean, rstd, weight, not training)[0])


def _batch_gradients_bound(device, dtype, reference, grad, x, mean, rstd, weight, training, eps, mask):
    return _gradient_bound(x, weight, *_gradients(grad, x, None, mean, rstd, weight, not training))


def _internal_samples(kind: str, is_backward: bool, only_few: bool):
    def samples(device, dtype):
        calls = _Calls(device, dtype, kind)
        for sample in calls.few() if only_few else calls.sweep():
            if len(sample.args) == 2:
                continue
            x, second, weight, bias, eps = sample.args[:5]
            if x.numel() == 0:
                continue
            groups = second if kind == "group" else None
            is_given = kind == "batch" and second
            statistics = running(x) if is_given else None
            if not is_backward:
                last = (groups,) if kind == "group" else statistics or (None, None)
                yield Sample(sample.name, (x, weight, bias, *last, eps))
                continue
            _, mean, rstd, _ = normal(x, groups, eps, statistics)
            shape = (x.shape[0], groups) if kind == "group" else (x.shape[1],)
            mean, rstd = (s.reshape(shape).to(compute_type(dtype)) for s in (mean, rstd))
            last = groups if kind == "group" else not is_given
            yield Sample(sample.name, (calls.make(*x.shape), x, mean, rstd, weight, last, eps, [True] * 3))

    return samples


_shared = {"dtypes": FLOATS, "elementwise": False, "workspace": workspace_of(8)}


def _internal(name: str, kind: str, aten, bound, is_backward: bool) -> OpCase:
    return internal_case(
        name=name, op=_internal_op(name), overload=getattr(OPS, name).default, aten=aten, reference=aten,
        samples=_internal_samples(kind, is_backward, False), few=_internal_samples(kind, is_backward, True), bound=bound,
        as_accurate=False, **_shared,
    )  # fmt: skip


def _public(name: str, op, aten, reference, bound, errors, **fields) -> OpCase:
    kind = name.removesuffix("_norm")
    return OpCase(
        name=name, op=op, overload=getattr(OPS, name).default, aten=aten, reference=reference, samples=_samples(kind),
        few=_few(kind), errors=errors, grad_dtypes=FLOATS, bound=bound, saves_inputs=True, as_accurate=False, approximates=2,
        **_shared, **fields, cancels=64 if kind == "instance" else 8,
    )  # fmt: skip


_running = {"arguments": _arguments}
CASES = [
    _public("group_norm", OPS.group_norm.default, _group_aten, _group_reference, _group_bound, _group_errors),
    _public("batch_norm", _batch, _batch_aten, _batch_reference, _batch_bound, _running_errors, **_running),
    _public(
        "instance_norm", _instance, _instance_aten, _instance_reference, _instance_bound, _running_errors, **_running
    ),
    _internal("_group_norm", "group", _group_rows, _group_rows_bound, False),
    _internal("_batch_norm", "batch", _batch_rows, _batch_rows_bound, False),
    _internal("_group_norm_backward", "group", _group_gradients, _group_gradients_bound, True),
    _internal("_batch_norm_backward", "batch", _batch_gradients, _batch_gradients_bound, True),
]
