"""Cases of nearest-neighbour upsampling, forward and backward: error bounds and errors.

The samples are the calls in upsample_samples.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch

import torch_ops
from benchmarks.references import upsample as references
from benchmarks.references.dtypes import compute_type, wide

from . import ErrorCase, OpCase, OpInfoLink, Sample
from .samples import upsample_samples as calls
from .tensors import FLOATS, LAYOUTS, Maker

# ---------------------------------------------------------------- error bounds


def _forward_bound(device, result_dtype, reference, x, /, *args, **kwargs):
    """No error: values are copied."""


def _backward_bound(
    exact, device, result_dtype, reference, grad, /, output_size, input_size, scales_h=None, scales_w=None
):
    """The error bound of a gradient, with eps of the accumulation dtype.

    In any order, a sum of n values has an error of at most (n - 1) eps/2 sum|g|. Errors of many values do not all have one sign, so
    the bound for large n is (log2 n + 8) eps sum|g|, as for reductions. If sum|g| exceeds the dtype's range, a partial sum may
    overflow, and any result is allowed.
    """
    if not result_dtype.is_floating_point:
        return None
    info = torch.finfo(compute_type(device, result_dtype))
    indices = references.indices_of(
        grad.device.type, exact, references.axes_of(input_size, output_size, (scales_h, scales_w))
    )
    rows, columns = (torch.bincount(i, minlength=n) for i, n in zip(indices, input_size[2:], strict=True))
    count = (rows[:, None] * columns).double().clamp(min=1)
    values = wide(grad, grad.dtype)
    sizes = references.scattered(torch.where(values.isfinite(), values.abs(), 0.0), input_size, *indices)
    bound = torch.minimum((count - 1) / 2, count.log2() + 8) * info.eps * sizes
    return torch.where(sizes < info.max, bound, math.inf)


# ---------------------------------------------------------------- samples


def _plain(call: calls.Call, x: torch.Tensor) -> Sample:
    kwargs = dict(zip(("scales_h", "scales_w"), call.scales, strict=True)) if any(call.scales) else {}
    return Sample(str(call), (x, call.output_size), kwargs, sanitize=call.sanitize)


def _vec(call: calls.Call, x: torch.Tensor) -> Sample | None:
    """A sample of .vec with the sizes, or with factors. Only the plain form accepts both sizes and scales."""
    if any(call.scales) and not call.factors:
        return None
    sizes, factors = (None, list(call.scales)) if call.factors else (call.output_size, None)
    return Sample(str(call), (x, sizes), {"scale_factors": factors}, sanitize=call.sanitize)


def _backward(call: calls.Call, grad: torch.Tensor) -> Sample:
    forward = _plain(call, grad)
    return Sample(forward.name, (*forward.args, call.input_size), forward.kwargs, sanitize=call.sanitize)


def _built(build: Callable, call: calls.Call, make: Maker) -> Sample | None:
    """The call with a tensor in its layout, or None if the tensor cannot have the layout or the operator lacks the form."""
    t = LAYOUTS[call.layout](make(*(call.grad_size if build is _backward else call.input_size)))
    return None if t is None else build(call, t)


def _sweep(build: Callable, exact: bool, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """All calls. On the CPU, only calls for which all of ATen's kernels agree: compute-sanitizer runs these samples on a GPU and
    compares them with the CPU's reference. tests/rooms/upsample/test_use.py has the others."""
    make = Maker(device, dtype)
    for call in calls.sweep():
        axes = references.axes_of(call.input_size, call.output_size, call.scales)
        if device == "cpu" and not all(references.same_in_every_kernel(*axis, exact) for axis in axes):
            continue
        sample = _built(build, call, make)
        if sample is not None:
            yield sample


def _forward_samples(build: Callable, exact: bool, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    yield from _sweep(build, exact, device, dtype)
    for name, x in calls.special_images(dtype, device):
        for factor in (1, 2, 3):
            out = (factor * x.shape[2], factor * x.shape[3])
            yield build(calls.Call(f"special values, {name}", tuple(x.shape), out), x)


def _backward_samples(exact: bool, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    yield from _sweep(_backward, exact, device, dtype)
    for name, grad in calls.special_images(dtype, device):
        *images, height, width = grad.shape
        for window in (1, 2, 3):
            size = (*images, max(height // window, 1), max(width // window, 1))
            yield _backward(calls.Call(f"special values, {name}", size, (height, width)), grad)
    for layout in ("contiguous", "channels_last"):
        call = calls.Call("no channels", (2, 0, 4, 5), (8, 10), layout=layout)
        yield _built(_backward, call, Maker(device, dtype))


def _few(build: Callable, exact: bool, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype, seed=2, small=True)
    for call in calls.FEW:
        if exact and 0 in call.input_size:
            continue  # ATen has no batching rule for 'nearest-exact', and vmap's loop over examples supports no empty batch
        sample = _built(build, call, make)
        if sample is not None:
            yield sample


# ---------------------------------------------------------------- errors


def _input_errors(device: str, **given) -> Iterator[ErrorCase]:
    """Inputs and sizes that are refused with any scale."""
    make = Maker(device, torch.float32)
    for name, shape, size, *says in (
        ("3-D", (3, 7, 5), (6, 6), r"\b4\b|4-?D", r"\b3\b"),
        ("5-D", (1, 2, 3, 7, 6), (6, 6), r"\b4\b|4-?D", r"\b5\b|1, 2, 3, 7, 6"),
        ("no channels", (2, 0, 4, 5), (4, 4), r"\b0\b"),
        ("no images and no channels", (0, 0, 4, 5), (4, 4), r"\b0\b"),
        ("no rows", (2, 3, 0, 5), (4, 4), r"\b0\b"),
        ("no columns", (2, 3, 4, 0), (4, 4), r"\b0\b"),
        ("no output rows", (2, 3, 4, 5), (0, 4), "output_size", r"\b0\b"),
        ("no output columns", (2, 3, 4, 5), (4, 0), "output_size", r"\b0\b"),
        ("negative output columns", (2, 3, 4, 5), (4, -7), "output_size", r"-7\b"),
        ("no output_size", (2, 3, 4, 5), (), "output_size", r"\b2\b"),
        ("output_size of one", (2, 3, 4, 5), (9,), "output_size", r"\b2\b"),
        ("output_size of three", (2, 3, 4, 5), (9, 9, 9), "output_size", r"\b2\b"),
    ):
        yield ErrorCase(name, (make(*shape), size), given, says=tuple(says))


def _dtype_errors(device: str, *sizes: tuple, **given) -> Iterator[ErrorCase]:
    for dtype, name in ((torch.int32, "[Ii]nt"), (torch.bool, "[Bb]ool"), (torch.complex64, "[Cc]omplex")):
        ones = torch.ones(2, 3, 8, 10, device=device).to(dtype)
        yield ErrorCase(f"{dtype}", (ones, *sizes), given, says=(name,), on_meta=False)


def _plain_errors(device: str) -> Iterator[ErrorCase]:
    yield from _input_errors(device)
    yield from _dtype_errors(device, (4, 5))


def _vec_errors(device: str) -> Iterator[ErrorCase]:
    yield from _input_errors(device, scale_factors=None)
    yield from _dtype_errors(device, (4, 5), scale_factors=None)
    x = Maker(device, torch.float32)(2, 3, 4, 5)
    for name, size, factors, *says in (
        ("neither", None, None, "output_size"), ("both", (8, 10), [2.0, 2.0], "output_size"), ("no factors", None, []),
        ("one factor", None, [2.0], r"\b2\b"), ("three factors", None, [2.0, 2.0, 2.0], r"\b2\b"), ("factor 0", None, [0.0, 1.0]),
        ("too small a factor", None, [1.0, 0.1]), ("negative factor", None, [-1.0, 1.0]), ("NaN", None, [math.nan, 1.0]),
        ("infinite", None, [1.0, math.inf]), ("beyond int64", None, [1e30, 1.0]),
    ):  # fmt: skip
        yield ErrorCase(name, (x, size), {"scale_factors": factors}, says=("scale_factors|output_size", *says))
    yield ErrorCase("3-D with factors", (x[0], None), {"scale_factors": [2.0, 2.0]}, says=(r"\b4\b|4-?D",))


def _backward_errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    grad, size, of = make(2, 3, 8, 10), (8, 10), (2, 3, 4, 5)
    for name, args, *says in (
        ("grad_output of other rows", (grad, (7, 10), of), "grad_output", r"\b7\b"),
        ("grad_output of other columns", (grad, (8, 11), of), "grad_output", r"\b11\b"),
        ("grad_output of other images", (grad, size, (1, 3, 4, 5)), "grad_output", r"\b1\b"),
        ("grad_output of other channels", (grad, size, (2, 4, 4, 5)), "grad_output", r"\b4\b"),
        ("negative images", (grad, size, (-7, 3, 4, 5)), r"-7\b"),
        ("3-D grad_output", (grad[0], size, of), "grad_output", r"\[3, 8, 10\]"),
        ("5-D grad_output", (grad[None], size, of), "grad_output", r"\[1, 2, 3, 8, 10\]"),
        ("input_size of three", (grad, size, (3, 9, 5)), "input_size", r"\b4\b"),
        ("input_size of five", (grad, size, (2, 3, 9, 5, 1)), "input_size", r"\b4\b"),
        ("output_size of one", (grad, (8,), of), "output_size", r"\b2\b"),
        ("output_size of three", (grad, (8, 10, 1), of), "output_size", r"\b2\b"),
        ("no input rows", (grad, size, (2, 3, 0, 5)), "input_size", r"\b0\b"),
        ("negative input rows", (grad, size, (2, 3, -7, 5)), "input_size", r"-7\b"),
        ("no output rows", (make(2, 3, 0, 10), (0, 10), of), "output_size", r"\b0\b"),
        ("no output columns", (make(2, 3, 8, 0), (8, 0), of), "output_size", r"\b0\b"),
    ):
        yield ErrorCase(name, args, says=tuple(says))
    yield from _dtype_errors(device, (8, 10), of)


# ---------------------------------------------------------------- the cases


def _from_interpolate(mode: str) -> Callable:
    """Converts PyTorch's samples, which have every mode and number of dimensions, to calls of gpuopt."""

    def adapt(x, size=None, scale_factor=None, mode=mode, align_corners=None, recompute_scale_factor=None):
        if x.dim() != 4:
            return None
        factors = [scale_factor] * 2 if isinstance(scale_factor, (int, float)) else scale_factor
        if recompute_scale_factor:
            size, factors = [math.floor(n * s) for n, s in zip(x.shape[2:], factors, strict=True)], None
        return (x,), {"output_size": size, "scale_factors": factors}

    return adapt


def _adjoint_on_cuda(aten: Callable, exact: bool) -> Callable:
    """ATen's backward, replaced by the adjoint of ATen's forward where the CUDA kernel adds up wrong windows. The adjoint is
    computed in the kernel's accumulation dtype."""

    def backward(grad_output, output_size, input_size, scales_h=None, scales_w=None):
        result = aten(grad_output, output_size, input_size, scales_h, scales_w)
        traced = torch.compiler.is_compiling()  # compiled calls are ones on which the two agree
        axes = (
            references.axes_of(input_size, output_size, (scales_h, scales_w))
            if grad_output.is_cuda and not traced
            else []
        )
        if all(n == out for n, out, _ in axes) or all(
            references.aten_cuda_windows_agree(*axis, exact) for axis in axes
        ):
            return result
        dtype = grad_output.dtype
        values = grad_output.to(compute_type("cuda", dtype) if dtype.is_floating_point else torch.int64)
        return torch.empty_like(result).copy_(
            references.scattered(values, input_size, *references.indices_of("cuda", exact, axes))
        )

    return backward


def _cases(exact: bool) -> Iterator[OpCase]:
    name = "upsample_nearest_exact2d" if exact else "upsample_nearest2d"
    mode = "nearest-exact" if exact else "nearest"
    packet, aten = getattr(torch.ops.gpuopt, name), getattr(torch.ops.aten, "_" * exact + name)
    backward, aten_backward = (
        getattr(ops, f"{n}_backward") for ops, n in ((torch.ops.gpuopt, name), (torch.ops.aten, "_" * exact + name))
    )
    links = (OpInfoLink(f"nn.functional.interpolate.{mode}", _from_interpolate(mode)),)
    if not exact:
        links += (OpInfoLink("nn.functional.upsample_nearest", _from_interpolate(mode)),)
    forward = {
        "dtypes": (*FLOATS, torch.uint8),
        "grad_dtypes": FLOATS,
        "bound": _forward_bound,
    }
    yield OpCase(
        name=name,
        op=packet.default,
        overload=packet.default,
        aten=aten.default,
        reference=functools.partial(references.forward, exact),
        samples=functools.partial(_forward_samples, _plain, exact),
        few=functools.partial(_few, _plain, exact),
        errors=_plain_errors,
        **forward,
    )
    yield OpCase(
        name=f"{name}.vec",
        op=getattr(torch_ops, name),
        overload=packet.vec,
        aten=aten.vec,
        reference=functools.partial(references.forward_vec, exact),
        samples=functools.partial(_forward_samples, _vec, exact),
        few=functools.partial(_few, _vec, exact),
        errors=_vec_errors,
        opinfo=links,
        **forward,
    )
    yield OpCase(
        name=f"{name}_backward",
        op=getattr(torch_ops, f"{name}_backward"),
        overload=backward.default,
        aten=_adjoint_on_cuda(aten_backward.default, exact),
        reference=functools.partial(references.backward, exact),
        samples=functools.partial(_backward_samples, exact),
        few=functools.partial(_few, _backward, exact),
        errors=_backward_errors,
        dtypes=FLOATS,
        cuda_dtypes=(torch.uint8,),
        grad_dtypes=FLOATS,
        bound=functools.partial(_backward_bound, exact),
        elementwise=False,
    )


# The cases of each mode of torch.nn.functional.interpolate: the plain form, .vec and the backward.
MODES = {"nearest": tuple(_cases(exact=False)), "nearest-exact": tuple(_cases(exact=True))}
CASES = [case for cases in MODES.values() for case in cases]
