"""Cases of conv1d, its forms and gradients, causal_conv1d, causal_conv1d_update and convolve: references and error bounds.

The samples are the calls in conv1d_samples.py. The errors are in conv1d_errors.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch.nn import functional

import torch_ops
from benchmarks.references.dtypes import compute_type, real_of, wide

from . import OpCase, OpInfoLink, Sample, workspace_of
from . import conv1d_errors as errors
from .samples import conv1d_samples as calls
from .tensors import FLOATS, INTEGERS, finite_sizes, without_autocast

COMPLEX = (torch.complex64, torch.complex128)
OPS = torch.ops.gpuopt

# ---------------------------------------------------------------- references


def _ends(padding, taps: int, dilation: int) -> tuple[int, int]:
    if isinstance(padding, str):
        total = dilation * (taps - 1) if padding == "same" else 0
        return total // 2, total - total // 2
    return (padding[0], padding[-1])


def _convolved(x, weight, bias, stride=(1,), padding=(0,), dilation=(1,), groups=1) -> torch.Tensor:
    """The convolution by its definition: windows of the padded input times the taps."""
    (stride,), (dilation,), taps = stride, dilation, weight.shape[-1]
    signals = x if x.dim() == 3 else x[None]
    padded = functional.pad(signals, _ends(padding, taps, dilation))
    windows = padded.unfold(-1, dilation * (taps - 1) + 1, stride)[..., ::dilation].unflatten(1, (groups, -1))
    result = torch.einsum("ngclk,gock->ngol", windows, weight.unflatten(0, (groups, -1))).flatten(1, 2)
    result = result if bias is None else result + bias[:, None]
    return result if x.dim() == 3 else result[0]


ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "silu": functional.silu, "gelu": functional.gelu}


def conv1d_reference(
    input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1, activation="none"
) -> torch.Tensor:
    x, w, b = (None if t is None else wide(t, input.dtype) for t in (input, weight, bias))
    return ACTIVATIONS[activation](_convolved(x, w, b, stride, padding, dilation, groups))


def _one_tensor(gradients, output_mask) -> torch.Tensor:
    """The requested gradient, or the concatenated values of all requested gradients."""
    asked = [g for g, wanted in zip(gradients, output_mask, strict=True) if wanted]
    return asked[0] if len(asked) == 1 else torch.cat([g.flatten() for g in asked])


def _gradients(grad, x, w, b, output_mask, activation="none", **steps) -> torch.Tensor:
    """The requested gradients. Others are not computed, because initcheck reports reads in ATen's sum for the gradient of a
    bias."""
    with torch.enable_grad():
        leaves = [t.detach() for t in (x, w, x.new_zeros(len(w)) if b is None else b)]
        asked = [t.requires_grad_() for t, wanted in zip(leaves, output_mask, strict=True) if wanted]
        gradients = torch.autograd.grad(ACTIVATIONS[activation](_convolved(*leaves, **steps)), asked, grad)
        return _one_tensor(gradients, [True] * len(asked))


def backward_reference(grad_output, input, weight, bias=None, **given) -> torch.Tensor:
    operands = (grad_output, input, weight, bias)
    return _gradients(*(None if t is None else wide(t, input.dtype) for t in operands), **given)


def causal_reference(input, weight, bias=None, activation="none") -> torch.Tensor:
    """A depthwise convolution of the current and the previous positions."""
    channels, taps = weight.shape
    return conv1d_reference(input, weight[:, None], bias, [1], [taps - 1, 0], [1], channels, activation)


def _stepped(input, state, weight, bias, activation="none") -> torch.Tensor:
    window = torch.cat([state, input[..., None]], -1)
    result = (window[..., window.shape[-1] - weight.shape[-1] :] * weight).sum(-1)
    result = ACTIVATIONS[activation](result if bias is None else result + bias)
    return torch.cat([result[..., None], window[..., 1:]], -1)


def update_reference(input, state, weight, bias=None, activation="none") -> torch.Tensor:
    """The result of an update, followed by the new state."""
    given = (None if t is None else wide(t, input.dtype) for t in (input, state, weight, bias))
    return _stepped(*given, activation)


def _slid(a, v, mode: str) -> torch.Tensor:
    """numpy.convolve by its definition: the shorter operand is reversed and slides over the longer one."""
    if v.shape[-1] > a.shape[-1]:
        a, v = v.expand(*a.shape[:-1], -1), a
    taps = v.shape[-1]
    before = {"full": taps - 1, "same": taps // 2, "valid": 0}[mode]
    after = {"full": taps - 1, "same": taps - 1 - taps // 2, "valid": 0}[mode]
    padded = torch.cat([a.new_zeros(*a.shape[:-1], before), a, a.new_zeros(*a.shape[:-1], after)], -1)
    return (padded.unfold(-1, taps, 1) * v.flip(-1)[..., None, :]).sum(-1)


def convolve_reference(a, v, mode="full") -> torch.Tensor:
    dtype = torch.result_type(a, v)
    return _slid(wide(a, dtype), wide(v, dtype), mode)


def reference(op: str) -> Callable:
    """The float64 reference of an operator: 'conv1d', 'conv1d_backward' and so on."""
    return {c.name: c.reference for c in CASES}[op]


# ---------------------------------------------------------------- whose kernel it is


def is_depthwise(input, weight, stride=(1,), dilation=(1,), groups=1) -> bool:
    """Whether a convolution is depthwise with stride 1. gpuopt has kernels for these in every floating-point dtype, forward and
    backward. An exception may be many taps with rows that are not contiguous.

    For other convolutions, csrc/conv1d/policy.h decides by measured costs between gpuopt's kernels and cuDNN, so their tests must
    hold for both. float64 has kernels for all convolutions with up to 8 input channels per group.
    """
    taps = weight.shape[-1]
    plain = tuple(weight.shape[:2]) == (groups, 1) and tuple(stride) == (1,)
    return plain and (taps <= 16 or input.stride(-1) == 1 and taps * dilation[0] <= 128)


def _steps_of(sample: Sample) -> dict:
    return {k: sample.kwargs[k] for k in ("stride", "dilation", "groups")}


def _is_own(sample: Sample) -> bool:
    """Whether a sample of conv1d, conv1d_act or conv1d_backward is depthwise with stride 1."""
    return is_depthwise(*sample.args[1 if "output_mask" in sample.kwargs else 0 :][:2], **_steps_of(sample))


def _repeatable(device: str, sample: Sample) -> bool:
    """cuDNN may add up gradients in any order, unless its deterministic flag is set."""
    return device == "cpu" or _is_own(sample) or torch.backends.cudnn.deterministic


def _workspace(sample: Sample) -> float:
    """The allowed workspace. cuDNN's is not limited.

    gpuopt's kernels need a little, the gradients that make up the result, and 16 float32 sums per thread of a launch with 6 blocks
    of 256 threads per SM.
    """
    parts = 0
    if "output_mask" in sample.kwargs:
        sums = 16 * 6 * 256 * torch.cuda.get_device_properties(0).multi_processor_count
        parts = sum(t.nbytes for t in sample.args[1:]) + 4 * sums
    return parts + max(sum(t.nbytes for t in sample.tensors) // 16, 2**18) if _is_own(sample) else math.inf


# ---------------------------------------------------------------- error bounds


def _bound(device: str, dtype: torch.dtype, sizes: torch.Tensor, count: int) -> torch.Tensor:
    """The error bound of a sum of `count` products whose absolute values add up to `sizes`, in any order.

    Roundings of either sign add up to about sqrt(count) eps times `sizes`. A few more are allowed for complex products and for
    cuDNN's order. If `sizes` exceeds the range of the dtype, a partial sum may overflow, and any result is allowed.
    """
    info, result = torch.finfo(compute_type(device, dtype)), torch.finfo(real_of(dtype))
    step = info.smallest_normal * (1 if device == "cpu" else info.eps)  # oneDNN flushes subnormal numbers
    bound = (math.sqrt(count) + 10) * info.eps * sizes + (count + 10) * step
    return torch.where(sizes < min(info.max, result.max), bound, math.inf)


def _rounded_twice(device: str, dtype: torch.dtype, reference, sizes: torch.Tensor, count: int) -> torch.Tensor:
    """The additional bound on CUDA, where cuDNN may round intermediate values to fp16 or bf16: the sum before the bias is added, or
    partial sums of `count` products. These are as large as the result, or as the rest of `sizes` after signs cancel."""
    if device == "cpu" or dtype.itemsize > 2:
        return torch.zeros_like(sizes)
    info = torch.finfo(dtype)
    result = torch.where(reference.isfinite(), reference.abs(), 0.0)
    return info.eps * (result + sizes * min(1, 8 / math.sqrt(max(count, 1))) + info.smallest_normal)


def _sizes(*operands) -> list:
    return [None if t is None else finite_sizes(wide(t, t.dtype)) for t in operands]


def conv1d_bound(
    device,
    result_dtype,
    reference,
    input,
    weight,
    bias=None,
    stride=(1,),
    padding=(0,),
    dilation=(1,),
    groups=1,
    activation="none",
):
    sizes, count = _convolved(*_sizes(input, weight, bias), stride, padding, dilation, groups), weight[0].numel()
    more = 0.0
    if not is_depthwise(input, weight, stride, dilation, groups):
        more = _rounded_twice(device, result_dtype, reference, sizes, count)
    return _activated(device, result_dtype, sizes, count, activation, more)


def _activated(device, dtype, sizes, count: int, activation: str, more=0.0) -> torch.Tensor:
    """The bound with an activation. No activation is steeper than 1.13. Its argument may have been rounded to the result's dtype,
    and the activation adds its own error."""
    bound = _bound(device, dtype, sizes, count) + more
    return bound if activation == "none" else 1.13 * bound + torch.finfo(dtype).eps * sizes


def backward_bound(device, result_dtype, reference, grad_output, input, weight, bias=None, activation="none", **given):
    grad, *operands = _sizes(grad_output, input, weight, bias)
    sizes = _gradients(grad, *operands, **given)
    count = max(weight[:, 0].numel(), grad_output.numel() // max(len(weight), 1))
    bound = _bound(device, result_dtype, sizes, count)
    if activation != "none":
        # No activation is steeper than 1.13, and no derivative than 1. The operand and its gradient may have been rounded to the
        # result's dtype.
        steps = {k: v for k, v in given.items() if k != "output_mask"}
        rounded = _gradients(grad * (2 + _convolved(*operands, **steps)), *operands, **given)
        bound = 1.13 * bound + 2 * torch.finfo(real_of(result_dtype)).eps * rounded
    steps = {k: given[k] for k in ("stride", "dilation", "groups")}
    if not any(given["output_mask"][:2]) or is_depthwise(input, weight, **steps):  # the bias uses reduce_sum
        return bound
    return bound + _rounded_twice(device, result_dtype, reference, sizes, count)


def causal_bound(device, result_dtype, reference, input, weight, bias=None, activation="none"):
    channels, taps = weight.shape
    steps = [1], [taps - 1, 0], [1], channels
    return conv1d_bound(device, result_dtype, reference, input, weight[:, None], bias, *steps, activation)


def update_bound(device, result_dtype, reference, input, state, weight, bias=None, activation="none"):
    """The bound of the result. The state is only moved, so its error is zero."""
    sizes = _stepped(*_sizes(input, state, weight, bias))[..., :1]
    bound = _activated(device, result_dtype, sizes, weight.shape[-1], activation)
    return torch.cat([bound, torch.zeros_like(state, dtype=torch.float64)], -1)


def convolve_bound(device, result_dtype, reference, a, v, mode="full"):
    if not (result_dtype.is_floating_point or result_dtype.is_complex):
        return None
    sizes = _slid(*_sizes(a, v), mode)
    return _bound(device, result_dtype, sizes, min(a.shape[-1], v.shape[-1]))


# ---------------------------------------------------------------- ATen's operators


def _contiguous(t: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor with the strides of new memory, even where sizes are 1."""
    new = t.stride() == torch.empty(t.shape, device="meta").stride()
    return t if new else t.clone(memory_format=torch.contiguous_format)


def _in_layout_of(like: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """`t` in channels-last if `like` is channels-last, otherwise contiguous."""
    channels, length = like.shape[-2:]
    dense = like.mT.is_contiguous() and not like.is_contiguous()
    part = channels > 1 and length > 1 and like.stride(-2) == 1 and like.stride(-1) >= channels
    apart = like.dim() == 2 or len(like) < 2 or like.stride(0) >= length * like.stride(-1)
    last = dense or (part and apart)
    return _contiguous(t.mT).mT if last else _contiguous(t)


def _padded(input, padding) -> tuple:
    """The input and the padding for ATen, which only supports equal padding of both ends. Otherwise the input is padded here."""
    if len(padding) != 2 or padding[0] == padding[1] or min(padding) < 0 or "float8" in str(input.dtype):
        return input, [max(padding)] if len(padding) == 2 and min(padding) >= 0 else padding
    return functional.pad(input, padding), [0]


def _aten_plain(input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1):
    return _in_layout_of(input, torch.conv1d(input, weight, bias, stride, padding, dilation, groups))


def _aten(input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1, activation="none"):
    padded, around = _padded(input, padding)
    result = torch.conv1d(padded, weight, bias, stride, around, dilation, groups)
    if activation not in ACTIVATIONS:
        raise RuntimeError(f"no activation {activation}")
    return _in_layout_of(input, ACTIVATIONS[activation](result))


def _aten_backward(
    grad_output, input, weight, bias=None, *, stride, padding, dilation, groups, output_mask, activation="none"
):
    if activation not in ACTIVATIONS:
        raise RuntimeError(f"no activation {activation}")
    if activation != "none":
        operand = _aten(input, weight, bias, stride, padding, dilation, groups)
        sigmoid = operand.sigmoid()  # silu_backward has no derivative
        grad_output = {
            "silu": lambda: grad_output * sigmoid * (1 + operand * (1 - sigmoid)),
            "gelu": lambda: torch.ops.aten.gelu_backward(grad_output, operand),
        }[activation]()
    if input.is_complex():  # ATen implements the gradients of complex convolutions, but not this operator

        def function(x, w, b):
            return _aten(x, w, b, stride, padding, dilation, groups)

        _, gradients = torch.func.vjp(function, input, weight, weight[:, 0, 0])
        of_input, *others = gradients(grad_output)
        return _one_tensor([_in_layout_of(input, of_input), *others], output_mask)
    if not grad_output.dtype == input.dtype == weight.dtype:
        raise RuntimeError("one dtype")  # ATen does not check this if a gradient needs only one operand
    padded, around = _padded(input, padding)
    # On CUDA, ATen computes the bias's gradient alone as a sum over a grad_output of any size. Requesting another gradient, too,
    # makes it check the size.
    asked = [output_mask[0] or not output_mask[1], *output_mask[1:]]
    grads = torch.ops.aten.convolution_backward(
        grad_output, padded, weight, weight.shape[:1], stride, around, dilation, False, [0], groups, asked
    )
    of_input, *others = grads
    if output_mask[0]:
        of_input = of_input if padded is input else of_input.narrow(-1, padding[0], input.shape[-1])
        of_input = _in_layout_of(input, of_input)
    return _one_tensor([of_input, *(g if g is None else _contiguous(g) for g in others)], output_mask)


def _backward_of(grad_output, input, weight, bias=None, **given):
    grads = OPS.conv1d_backward(grad_output, input, weight, **given, bias=bias)
    return _one_tensor(grads, given["output_mask"])


def _aten_causal(input, weight, bias=None, activation="none"):
    if weight.dim() != 2 or input.dim() not in (2, 3):
        raise RuntimeError("a weight (C, K)")
    channels, taps = weight.shape
    return _aten(input, weight[:, None], bias, [1], [taps - 1, 0], [1], channels, activation)


def _fit(input, state, weight, bias) -> bool:
    fit = input.dim() == weight.dim() == 2 and state.shape[:-1] == input.shape and weight.shape[0] == input.shape[1]
    return fit and (bias is None or bias.shape == input.shape[1:])


def _aten_update(input, state, weight, bias=None, activation="none"):
    if not _fit(input, state, weight, bias) or state.shape[2] < weight.shape[1] - 1 or activation not in ACTIVATIONS:
        raise RuntimeError("an input (N, C), a state (N, C, S), a weight (C, K), a bias (C) and a known activation")
    kind = input.device.type
    if torch.is_autocast_enabled(kind):  # the state is written and cannot be cast, so the others are
        given = (t if t is None or t.dtype == torch.float64 else t.to(state.dtype) for t in (input, weight, bias))
        input, weight, bias = given
        with torch.autocast(kind, enabled=False):
            return _aten_update(input, state, weight, bias, activation)
    if not state.dtype == input.dtype == weight.dtype:
        raise RuntimeError("one dtype")
    window = torch.cat([state, input[..., None]], -1)
    taps = window[..., window.shape[-1] - weight.shape[-1] :]
    result = torch.conv1d(taps, weight[:, None], bias, groups=weight.shape[0])
    return torch.cat([ACTIVATIONS[activation](result), window[..., 1:]], -1)


def _step(input, state, weight, bias=None, activation="none"):
    """causal_conv1d_update as a function that returns its result and the new state."""
    with without_autocast(input):
        mine = state.clone()
        if _fit(input, state, weight, bias):
            # Append empty slices of the other operands. Under torch.vmap the copy is then batched if one of them is, so it can be
            # written.
            others = [input[..., None], weight] + ([] if bias is None else [bias[..., None]])
            nothing = [t[..., :0].to(state.dtype).expand(*state.shape[:-1], 0) for t in others]
            mine = torch.cat([state, *nothing], -1)
    result = _named(torch_ops.causal_conv1d_update)(input, mine, weight, bias, activation=activation)
    with without_autocast(input):
        return torch.cat([result[..., None], mine], -1)


def _aten_convolve(a, v, mode="full"):
    if v.dim() != 1 or a.dim() < 1 or mode not in calls.MODES or 0 in (len(v), a.shape[-1]):
        raise RuntimeError("numpy's arguments")
    dtype = torch.result_type(a, v)
    a, v = a.to(dtype), v.to(dtype)
    if torch.is_autocast_enabled(a.device.type):  # autocast does not change the precision of signals
        with torch.autocast(a.device.type, enabled=False):
            return _aten_convolve(a, v, mode)
    if not (dtype.is_floating_point or dtype.is_complex):
        # Computed modulo 2^bits in signed integers, which all of ATen's operators support.
        added = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}.get(dtype, dtype)
        return _slid(a.to(added), v.to(added), mode).to(dtype)
    size, taps = sorted((a.shape[-1], len(v)), reverse=True)
    start, positions = {
        "full": (0, size + taps - 1),
        "same": ((taps - 1) // 2, size),
        "valid": (taps - 1, size - taps + 1),
    }[mode]
    full = torch.conv1d(a.reshape(-1, 1, a.shape[-1]), v.flip(0)[None, None], padding=len(v) - 1)
    return _contiguous(full.narrow(-1, start, positions).reshape(*a.shape[:-1], positions))


# ---------------------------------------------------------------- the cases


# Derivatives of small calls are sums of some tens of products of either sign, which nearly cancel in some gradients.
CANCELS = 32


def _named(function: Callable) -> Callable:
    """A function of torch_ops, which has None where the operator has the word "none"."""

    def call(*args, activation="none", **kwargs):
        return function(*args, activation=None if activation == "none" else activation, **kwargs)

    return call


def _list(value) -> list:
    return list(value) if isinstance(value, tuple) else [value]


def _plain_of_opinfo(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    given = {"bias": bias, "stride": _list(stride), "dilation": _list(dilation), "groups": groups}
    return None if isinstance(padding, str) else ((input, weight), {**given, "padding": _list(padding)})


def _string_of_opinfo(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    given = {"bias": bias, "stride": _list(stride), "dilation": _list(dilation), "groups": groups}
    return ((input, weight), {**given, "padding": padding}) if isinstance(padding, str) else None


_sums = {"grad_dtypes": FLOATS + COMPLEX, "elementwise": False, "saves_inputs": True, "cancels": CANCELS}


def _case(
    name: str, op: Callable, overload, aten: Callable, reference: Callable, bound: Callable, build: Callable, **more
):
    return OpCase(
        name=name,
        op=op,
        overload=overload,
        aten=aten,
        reference=reference,
        samples=functools.partial(calls.samples, build),
        few=functools.partial(calls.few, build),
        bound=bound,
        **{"dtypes": FLOATS + COMPLEX, **_sums, **more},
    )


_memory = {"repeatable": _repeatable, "workspace": _workspace}
_forward = {"reference": conv1d_reference, "bound": conv1d_bound, **_memory}
CASES = [
    _case(
        "conv1d", torch_ops.conv1d, OPS.conv1d.default, _aten_plain, **_forward, build=calls.plain, errors=errors.plain,
        opinfo=(OpInfoLink("nn.functional.conv1d", _plain_of_opinfo, at_least=4),),
    ),
    _case(
        "conv1d.padding", OPS.conv1d.padding, OPS.conv1d.padding, _aten_plain, **_forward, build=calls.string, errors=errors.string,
        opinfo=(OpInfoLink("nn.functional.conv1d", _string_of_opinfo, at_least=4),),
    ),
    _case("conv1d_act", _named(torch_ops.conv1d_act), OPS.conv1d_act.default, _aten, **_forward, build=calls.act, errors=errors.act),
    _case(
        "conv1d_backward", _backward_of, OPS.conv1d_backward.default, _aten_backward, backward_reference, backward_bound,
        build=calls.backward, errors=errors.backward, **_memory,
    ),
    _case(
        "causal_conv1d", _named(torch_ops.causal_conv1d), OPS.causal_conv1d.default, _aten_causal, causal_reference, causal_bound,
        build=calls.causal, errors=errors.causal, fuses=True,
    ),
    OpCase(
        name="causal_conv1d_update", op=_step, overload=OPS.causal_conv1d_update.default, aten=_aten_update,
        reference=update_reference, samples=calls.update_samples, few=calls.update_few, errors=errors.update,
        dtypes=FLOATS + COMPLEX, bound=update_bound, writes=("state",), workspace=workspace_of(4, 0), **_sums,
    ),
    # The workspace holds overlapping blocks, their transforms and the products of the transforms.
    OpCase(
        name="convolve", op=torch_ops.convolve, overload=OPS.convolve.default, aten=_aten_convolve,
        reference=convolve_reference, samples=calls.convolve_samples, few=calls.convolve_few, errors=errors.convolve,
        dtypes=FLOATS + INTEGERS + COMPLEX, bound=convolve_bound, workspace=workspace_of(40), **_sums,
    ),
]  # fmt: skip
