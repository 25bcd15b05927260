"""Cases of group norm and batch norm, forward and backward: layers of image models. Batch norm has both layouts, and group norm has an
activation in other cases.

ATen's kernels are called directly, so that no autograd graph is timed. Its group norm has contiguous results, so NHWC is left out.
"""

import functools
import math

import torch
from torch.nn import functional

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.peers import INDUCTOR
from benchmarks.harness.room import Call, CallTime, Case, Room

EPS = 1e-5
GROUP, SILU, BATCH = "group_norm", "group_norm_silu", "batch_norm"
GROUPS = 32


def _view(x: torch.Tensor, is_batch: bool) -> tuple[torch.Tensor, tuple[int, ...]]:
    """(samples, groups, channels of a group, positions) in float64, and what is normalised together."""
    groups = x.shape[1] if is_batch else GROUPS
    wide = x.double().reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    return wide, (0, 2, 3) if is_batch else (2, 3)


def statistics(x: torch.Tensor, is_batch: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and the inverse of the deviation, which a forward pass saves."""
    wide, dims = _view(x, is_batch)
    mean = wide.mean(dims, keepdim=True)
    rstd = ((wide - mean).square().mean(dims, keepdim=True) + EPS).rsqrt()
    shape = (x.shape[1],) if is_batch else (x.shape[0], GROUPS)
    return tuple(t.reshape(shape).to(torch.promote_types(x.dtype, F32)) for t in (mean, rstd))


def operands(call: str, shape: tuple[int, ...], layout: str, make: Maker) -> tuple:
    """x, weight and bias; for a gradient grad, x, the statistics and weight. Weights of a batch norm are float32. The gradient behind an
    activation also has the bias and the result of the norm, which autograd saves for ATen. Ours does not read it."""
    is_batch = call.startswith(BATCH)
    weights = [make(shape[1], dtype=F32 if is_batch else None) for _ in range(2)]
    tensor = make.channels_last if layout == "NHWC" else make
    x = tensor(*shape)
    if call.endswith("backward"):
        given = tensor(*shape), x, *statistics(x, is_batch)
        if not call.startswith(SILU):
            return *given, weights[0]
        saved = functional.group_norm(x.float(), GROUPS, *(w.float() for w in weights), EPS).to(x.dtype)
        return *given, *weights, saved
    return x, *weights


def case(call: str, shape: tuple[int, ...], dtype: torch.dtype, layout: str, **options) -> Case:
    def build(device: str, seed: int) -> tuple:
        return operands(call, shape, layout, Maker(device, dtype, seed))

    if call == f"{SILU}_backward":
        size = math.prod(shape) * dtype.itemsize
        options["moved"] = lambda: (2 * size, size)
    return Case(call, call, f"{layout} ({','.join(map(str, shape))})", DTYPE_NAMES[dtype], build, **options)


# ---------------------------------------------------------------- references in float64


def _of_channels(parameter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return parameter.double().reshape(1, -1, *[1] * (x.dim() - 2))


def _reference(x, weight, bias, is_batch):
    wide, dims = _view(x, is_batch)
    mean = wide.mean(dims, keepdim=True)
    rstd = ((wide - mean).square().mean(dims, keepdim=True) + EPS).rsqrt()
    return ((wide - mean) * rstd).reshape(x.shape) * _of_channels(weight, x) + _of_channels(bias, x)


def _backward_reference(grad, x, mean, rstd, weight, is_batch):
    wide, dims = _view(x, is_batch)
    kept = (1 if is_batch else x.shape[0], wide.shape[1], 1, 1)
    rstd = rstd.double().reshape(kept)
    normal = (wide - mean.double().reshape(kept)) * rstd
    scaled = _view(grad.double() * _of_channels(weight, x), is_batch)[0]
    inner = scaled - scaled.mean(dims, keepdim=True) - normal * (scaled * normal).mean(dims, keepdim=True)
    grad = grad.double().reshape(wide.shape)
    of_weight, of_bias = (t.sum((0, 3)).flatten() for t in (grad * normal, grad))
    return (rstd * inner).reshape(x.shape), of_weight, of_bias


def _silu_reference(x, weight, bias):
    return functional.silu(_reference(x, weight, bias, False))


def _silu_backward_reference(grad, x, mean, rstd, weight, bias, saved):
    affine = _reference(x, weight, bias, False)
    share = affine.sigmoid()
    inner = grad.double() * share * (1 + affine * (1 - share))
    return _backward_reference(inner, x, mean, rstd, weight, False)


# ---------------------------------------------------------------- cases

SHAPES = (
    (64, 64, 112, 112),
    (32, 256, 56, 56),
    (8, 64, 256, 256),
    (64, 1024, 14, 14),
    (128, 512, 7, 7),
    (1, 320, 64, 64),
)


def _cases() -> list[Case]:
    return [
        case(f"{call}{direction}", shape, dtype, layout, headline=shape == SHAPES[1])
        for call in (GROUP, SILU, BATCH)
        for direction in ("", "_backward")
        for shape in SHAPES
        for layout in (("NCHW", "NHWC") if call == BATCH else ("NCHW",))
        for dtype in (F32, BF16)
    ]


def _calls() -> dict[str, Call]:
    import torch_ops

    ours, aten = torch.ops.gpuopt, torch.ops.aten

    def group(x, weight, bias):
        return torch_ops.group_norm(x, GROUPS, weight, bias, EPS)

    def group_aten(x, weight, bias):
        return functional.group_norm(x, GROUPS, weight, bias, EPS)

    def batch(x, weight, bias):
        return torch_ops.batch_norm(x, None, None, weight, bias, True, 0.1, EPS)

    def batch_aten(x, weight, bias):
        return functional.batch_norm(x, None, None, weight, bias, True, 0.1, EPS)

    def group_backward(grad, x, mean, rstd, weight):
        return ours._group_norm_backward.default(grad, x, mean, rstd, weight, GROUPS, EPS, [True] * 3)

    def group_backward_aten(grad, x, mean, rstd, weight):
        sizes = (x.shape[0], x.shape[1], math.prod(x.shape[2:]))
        mean, rstd = mean.to(x.dtype), rstd.to(x.dtype)
        return aten.native_group_norm_backward.default(grad, x, mean, rstd, weight, *sizes, GROUPS, [True] * 3)

    def batch_backward(grad, x, mean, rstd, weight):
        return ours._batch_norm_backward.default(grad, x, mean, rstd, weight, True, EPS, [True] * 3)

    def batch_backward_aten(grad, x, mean, rstd, weight):
        return aten.native_batch_norm_backward.default(grad, x, weight, None, None, mean, rstd, True, EPS, [True] * 3)

    def silu(x, weight, bias):
        return torch_ops.group_norm(x, GROUPS, weight, bias, EPS, "silu")

    def silu_aten(x, weight, bias):
        return functional.silu(group_aten(x, weight, bias))

    def silu_backward(grad, x, mean, rstd, weight, bias, saved):
        activation = 2
        return ours._group_norm_backward.default(grad, x, mean, rstd, weight, GROUPS, EPS, [True] * 3, bias, activation)

    def silu_backward_aten(grad, x, mean, rstd, weight, bias, saved):
        return group_backward_aten(aten.silu_backward.default(grad, saved), x, mean, rstd, weight)

    def of(function, is_batch):
        return functools.partial(function, is_batch=is_batch)

    return {
        GROUP: Call(group, group_aten, of(_reference, False)),
        BATCH: Call(batch, batch_aten, of(_reference, True)),
        f"{GROUP}_backward": Call(group_backward, group_backward_aten, of(_backward_reference, False)),
        SILU: Call(silu, silu_aten, _silu_reference),
        f"{SILU}_backward": Call(silu_backward, silu_backward_aten, _silu_backward_reference),
        f"{BATCH}_backward": Call(batch_backward, batch_backward_aten, of(_backward_reference, True)),
    }


def _variables(requires_grad: bool, device: str) -> dict:
    import torch_ops

    x = torch.randn(4, 64, 16, 16, device=device, requires_grad=requires_grad)
    weight, bias = (torch.randn(64, device=device, requires_grad=requires_grad) for _ in range(2))
    return {"F": functional, "torch": torch, "torch_ops": torch_ops, "x": x, "weight": weight, "bias": bias}


def _call_times() -> list[CallTime]:
    calls = {
        GROUP: {"gpuopt": "torch_ops.group_norm(x, 32, weight, bias)", "ATen": "F.group_norm(x, 32, weight, bias)"},
        BATCH: {
            "gpuopt": "torch_ops.batch_norm(x, None, None, weight, bias, True)",
            "ATen": "F.batch_norm(x, None, None, weight, bias, True)",
        },
    }
    return [
        CallTime(op, kind, statements, functools.partial(_variables, requires_grad))
        for op, statements in calls.items()
        for kind, requires_grad in (("no grad", False), ("building a graph", True))
    ]


ROOM = Room(name="norm_channels", cases=_cases(), calls=_calls, call_times=_call_times(), peers=(INDUCTOR,))
