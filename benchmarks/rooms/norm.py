"""Cases of layer norm and RMS norm, forward and backward, also of a sum: the rows of models, odd lengths, long rows and few rows.

ATen's kernels are called directly, so that no autograd graph is timed. Inductor compiles the same calls.
"""

import functools

import torch
from torch.nn import functional

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.peers import INDUCTOR
from benchmarks.harness.room import Call, CallTime, Case, Point, Room

EPS = 1e-5
LAYER, RMS = "layer_norm", "rms_norm"
ADD_LAYER, ADD_RMS = "add_layer_norm", "add_rms_norm"

# ---------------------------------------------------------------- operands


def statistics(x: torch.Tensor, is_rms: bool) -> tuple[torch.Tensor, ...]:
    """The mean and the inverse of the deviation, which a forward pass saves. RMS norm has no mean."""
    wide = x.double()
    mean = torch.zeros_like(wide[..., :1]) if is_rms else wide.mean(-1, keepdim=True)
    rstd = (wide.sub(mean).square().mean(-1, keepdim=True) + EPS).rsqrt()
    found = (rstd,) if is_rms else (mean, rstd)
    return tuple(t.to(torch.promote_types(x.dtype, F32)) for t in found)


def operands(call: str, shape: tuple[int, ...], layout: str, make: Maker) -> tuple:
    """x, weight and, in layer norm, bias; for a gradient grad, x, the statistics and weight. Norms of a sum also have a residual, or
    the gradient of the sum."""
    *rows, length = shape
    is_rms, is_backward, has_residual = RMS in call, call.endswith("backward"), call.startswith("add")

    def tensor() -> torch.Tensor:
        if layout == "part":  # some heads of a projection
            return make(*rows, length + 64)[..., :length]
        if layout == "transposed":
            return make(rows[-1], *rows[:-1], length).movedim(0, -2)
        return make(*shape)

    weights = make(length) if is_rms or is_backward else (make(length), make(length))
    x = tensor()
    other = (make(*shape),) if has_residual else ()
    if is_backward:
        return make(*shape), x, *statistics(x, is_rms), weights, *other
    return (x, *other, weights) if is_rms else (x, *other, *weights)


def case(call: str, shape: tuple[int, ...], dtype: torch.dtype, layout: str = "", op: str = "", **options) -> Case:
    def build(device: str, seed: int) -> tuple:
        return operands(call, shape, layout, Maker(device, dtype, seed))

    name = f"{f'{layout} ' if layout else ''}({','.join(map(str, shape))})"
    return Case(op or call, call, name, DTYPE_NAMES[dtype], build, **options)


# ---------------------------------------------------------------- references in float64


def _normal(x: torch.Tensor, mean: torch.Tensor | float, rstd: torch.Tensor) -> torch.Tensor:
    return (x.double() - mean) * rstd.double()


def layer_reference(x, weight, bias):
    wide = x.double()
    mean = wide.mean(-1, keepdim=True)
    rstd = ((wide - mean).square().mean(-1, keepdim=True) + EPS).rsqrt()
    return _normal(x, mean, rstd) * weight.double() + bias.double()


def rms_reference(x, weight):
    return _normal(x, 0.0, (x.double().square().mean(-1, keepdim=True) + EPS).rsqrt()) * weight.double()


def _input_gradient(grad, normal, rstd, weight, has_mean: bool) -> torch.Tensor:
    scaled = grad.double() * weight.double()
    inner = scaled - normal * (scaled * normal).mean(-1, keepdim=True)
    return rstd.double() * (inner - scaled.mean(-1, keepdim=True) if has_mean else inner)


def layer_backward_reference(grad, x, mean, rstd, weight):
    normal, rows = _normal(x, mean.double(), rstd), tuple(range(x.dim() - 1))
    of_weight = (grad.double() * normal).sum(rows)
    return _input_gradient(grad, normal, rstd, weight, True), of_weight, grad.double().sum(rows)


def rms_backward_reference(grad, x, rstd, weight):
    normal = _normal(x, 0.0, rstd)
    of_weight = (grad.double() * normal).sum(tuple(range(x.dim() - 1)))
    return _input_gradient(grad, normal, rstd, weight, False), of_weight


def add_layer_reference(x, residual, weight, bias):
    total = x + residual
    return layer_reference(total, weight, bias), total.double()


def add_rms_reference(x, residual, weight):
    total = x + residual
    return rms_reference(total, weight), total.double()


def add_layer_backward_reference(grad, x, mean, rstd, weight, of_sum):
    of_x, *others = layer_backward_reference(grad, x, mean, rstd, weight)
    return of_x + of_sum.double(), *others


def add_rms_backward_reference(grad, x, rstd, weight, of_sum):
    of_x, of_weight = rms_backward_reference(grad, x, rstd, weight)
    return of_x + of_sum.double(), of_weight


# ---------------------------------------------------------------- cases


def _sums() -> list[Case]:
    """Norms of a residual stream."""
    shapes = ((16384, 768), (8192, 4096), (4096, 8192), (64, 4096), (65536, 197), (512, 65536))
    return [
        case(f"{call}{direction}", shape, dtype, headline=shape == (8192, 4096))
        for call in (ADD_LAYER, ADD_RMS)
        for direction in ("", "_backward")
        for shape in shapes
        for dtype in (F32, BF16)
    ]


def _headline() -> list[Case]:
    shapes = (
        (65536, 96),
        (200704, 192),
        (25216, 384),
        (16384, 768),
        (2048, 768),
        (16384, 1024),
        (8192, 4096),
        (4096, 8192),
    )
    return [
        case(f"{call}{direction}", shape, dtype, headline=True)
        for call in (LAYER, RMS)
        for direction in ("", "_backward")
        for shape in shapes
        for dtype in (F32, BF16)
    ]  # fmt: skip


def _others() -> list[Case]:
    shapes = (
        (1 << 20, 16),
        (1 << 20, 64),
        (65536, 197),
        (16384, 2041),
        (2048, 16384),
        (512, 65536),
        (8, 1 << 20),
        (64, 4096),
    )
    cases = [
        case(f"{call}{direction}", shape, dtype)
        for call in (LAYER, RMS)
        for direction in ("", "_backward")
        for shape in shapes
        for dtype in (F32, BF16)
    ]
    for layout, shape in (("part", (4096, 32, 128)), ("transposed", (512, 64, 768))):
        cases += [case(call, shape, BF16, layout) for call in (LAYER, RMS, f"{LAYER}_backward", f"{RMS}_backward")]
    return cases  # fmt: skip


def _sizes() -> list[Case]:
    """A sweep over the lengths of rows, of 2^25 values together."""
    cases = []
    for call in (LAYER, f"{LAYER}_backward"):
        for dtype in (F32, BF16):
            for log in range(3, 21):
                point = Point(f"{call}, {DTYPE_NAMES[dtype]}", "log2(length)", log)
                cases.append(case(call, (1 << (25 - log), 1 << log), dtype, op=f"{call}-size", point=point))
    return cases


def _calls() -> dict[str, Call]:
    import torch_ops

    ours, aten = torch.ops.gpuopt, torch.ops.aten

    def layer(x, weight, bias):
        return torch_ops.layer_norm(x, weight.shape, weight, bias, EPS)

    def layer_aten(x, weight, bias):
        return functional.layer_norm(x, weight.shape, weight, bias, EPS)

    def rms(x, weight):
        return torch_ops.rms_norm(x, weight.shape, weight, EPS)

    def rms_aten(x, weight):
        return functional.rms_norm(x, weight.shape, weight, EPS)

    def layer_backward(grad, x, mean, rstd, weight):
        return ours._layer_norm_backward.default(grad, x, mean, rstd, weight, 1, EPS, [True, True, True])

    # ATen's kernels for CPU tensors have statistics of half types, or are missing.
    def on_cpu(x, gradients):
        return tuple(gradient.to(x.dtype) for gradient in gradients)

    def layer_backward_aten(grad, x, mean, rstd, weight):
        if x.device.type == "cpu":
            return on_cpu(x, layer_backward_reference(grad, x, mean, rstd, weight))
        # A bias is only asked for its type.
        return aten.native_layer_norm_backward.default(grad, x, weight.shape, mean, rstd, weight, weight, [True] * 3)

    def rms_backward(grad, x, rstd, weight):
        return ours._rms_norm_backward.default(grad, x, rstd, weight, 1, EPS, [True, True])

    def rms_backward_aten(grad, x, rstd, weight):
        if x.device.type == "cpu":
            return on_cpu(x, rms_backward_reference(grad, x, rstd, weight))
        return aten._fused_rms_norm_backward.default(grad, x, weight.shape, rstd, weight, [True, True])

    def add_layer(x, residual, weight, bias):
        return torch_ops.add_layer_norm(x, residual, weight.shape, weight, bias, EPS)

    def add_layer_aten(x, residual, weight, bias):
        total = x + residual
        return layer_aten(total, weight, bias), total

    def add_rms(x, residual, weight):
        return torch_ops.add_rms_norm(x, residual, weight.shape, weight, EPS)

    def add_rms_aten(x, residual, weight):
        total = x + residual
        return rms_aten(total, weight), total

    def add_layer_backward(*args):
        *args, of_sum = args
        return ours._layer_norm_backward.default(*args, 1, EPS, [True, True, True], of_sum)

    def add_layer_backward_aten(*args):
        *args, of_sum = args
        of_x, *others = layer_backward_aten(*args)
        return of_x + of_sum, *others

    def add_rms_backward(*args):
        *args, of_sum = args
        return ours._rms_norm_backward.default(*args, 1, EPS, [True, True], of_sum)

    def add_rms_backward_aten(*args):
        *args, of_sum = args
        of_x, of_weight = rms_backward_aten(*args)
        return of_x + of_sum, of_weight

    return {
        LAYER: Call(layer, layer_aten, layer_reference),
        RMS: Call(rms, rms_aten, rms_reference),
        f"{LAYER}_backward": Call(layer_backward, layer_backward_aten, layer_backward_reference),
        f"{RMS}_backward": Call(rms_backward, rms_backward_aten, rms_backward_reference),
        ADD_LAYER: Call(add_layer, add_layer_aten, add_layer_reference),
        ADD_RMS: Call(add_rms, add_rms_aten, add_rms_reference),
        f"{ADD_LAYER}_backward": Call(add_layer_backward, add_layer_backward_aten, add_layer_backward_reference),
        f"{ADD_RMS}_backward": Call(add_rms_backward, add_rms_backward_aten, add_rms_backward_reference),
    }


def _variables(requires_grad: bool, device: str) -> dict:
    import torch_ops

    x = torch.randn(64, 768, device=device, requires_grad=requires_grad)
    weight, bias = (torch.randn(768, device=device, requires_grad=requires_grad) for _ in range(2))
    return {"F": functional, "torch": torch, "torch_ops": torch_ops, "x": x, "weight": weight, "bias": bias}


def _call_times() -> list[CallTime]:
    calls = {
        LAYER: {
            "gpuopt": "torch_ops.layer_norm(x, 768, weight, bias)",
            "ATen": "F.layer_norm(x, (768,), weight, bias)",
        },
        RMS: {"gpuopt": "torch_ops.rms_norm(x, 768, weight)", "ATen": "F.rms_norm(x, (768,), weight)"},
    }
    times = []
    for op, statements in calls.items():
        inputs = "(x, weight, bias)" if op == LAYER else "(x, weight)"
        backward = {name: f"torch.autograd.grad({call}.sum(), {inputs})" for name, call in statements.items()}
        times += [
            CallTime(op, "no grad", statements, functools.partial(_variables, False)),
            CallTime(op, "building a graph", statements, functools.partial(_variables, True)),
            CallTime(op, "forward + backward", backward, functools.partial(_variables, True)),
        ]
    return times


ROOM = Room(
    name="norm",
    cases=_headline() + _others() + _sums() + _sizes(),
    calls=_calls,
    call_times=_call_times(),
    peers=(INDUCTOR,),
)
