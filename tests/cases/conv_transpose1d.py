"""Cases of conv_transpose1d: the calls of conv1d with input and output exchanged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch.nn import functional

import torch_ops
from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, OpInfoLink, Sample, conv1d, tensors
from .conv1d_errors import _device_errors
from .samples import conv1d_samples as calls
from .tensors import FLOATS, Maker

OPS = torch.ops.gpuopt

# ---------------------------------------------------------------- reference


def _transposed(
    x, weight, bias=None, stride=(1,), padding=(0,), output_padding=(0,), groups=1, dilation=(1,)
) -> torch.Tensor:
    """The transposed convolution by its definition: each tap adds its multiple of the input, a stride apart."""
    (step,), (pad,), (more,), (apart,), taps = stride, padding, output_padding, dilation, weight.shape[-1]
    signals = (x if x.dim() == 3 else x[None]).unflatten(1, (groups, -1))
    kernel = weight.unflatten(0, (groups, -1))
    # The products of a tap, with zeros between them, and zeros in front and behind for the other taps.
    products = torch.einsum("ngcl,gcok->ngokl", signals, kernel)
    apart_by_step = functional.pad(products[..., None], (0, step - 1)).flatten(-2)
    spread, span = apart_by_step[..., : max((x.shape[-1] - 1) * step + 1, 0)], apart * (taps - 1)
    whole = sum(functional.pad(spread[..., k, :], (k * apart, span - k * apart + more)) for k in range(taps))
    result = whole[..., pad : whole.shape[-1] - pad].flatten(1, 2)
    result = result if bias is None else result + bias[:, None]
    return result if x.dim() == 3 else result[0]


def reference(input, weight, bias=None, **steps) -> torch.Tensor:
    return _transposed(*(None if t is None else wide(t, input.dtype) for t in (input, weight, bias)), **steps)


def _bound(device, result_dtype, reference, input, weight, bias=None, **steps):
    sizes = _transposed(*conv1d._sizes(input, weight, bias), **steps)
    count = weight[:, 0].numel()
    bound = conv1d._bound(device, result_dtype, sizes, count)
    return bound + conv1d._rounded_twice(device, result_dtype, reference, sizes, count)


def _is_depthwise(sample: Sample) -> bool:
    """Whether gpuopt has a kernel in every floating-point dtype, so that results do not depend on cuDNN."""
    (input, weight, *_), given = sample.args, sample.kwargs
    return conv1d.is_depthwise(input, weight, given["stride"], given["dilation"], given["groups"])


def _repeatable(device: str, sample: Sample) -> bool:
    return device == "cpu" or _is_depthwise(sample) or torch.backends.cudnn.deterministic


def _workspace(sample: Sample) -> float:
    return max(sum(t.nbytes for t in sample.tensors) // 16, 2**18) if _is_depthwise(sample) else float("inf")


def _aten(input, weight, bias=None, stride=(1,), padding=(0,), output_padding=(0,), groups=1, dilation=(1,)):
    result = torch.conv_transpose1d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv1d._in_layout_of(input, result)


# ---------------------------------------------------------------- samples


def _sample(make: Callable, call: calls.Call, index: int) -> Sample | None:
    """The transposed convolution that takes the output of a convolution to its input, or None for unequal padding or no output.

    Successive calls have output padding of 0, 1 and as much as ATen allows.
    """
    most = max(call.stride, call.dilation) - 1
    more = (0, min(1, most), most)[index % 3]
    (left, right), *batch, channels = call.padding, *call.input_size[:-2], call.out_channels
    length = call.grad_size[-1]
    size = (length - 1) * call.stride - 2 * left + call.dilation * (call.taps - 1) + more + 1
    if left != right or size < 1:
        return None
    operands = [
        tensors.LAYOUTS[call.layout](make(*batch, channels, length)),
        tensors.LAYOUTS[call.weight_layout](make(*call.weight_size)),
    ]
    if call.bias:
        operands.append(make(call.input_size[-2]))
    if any(t is None for t in operands):
        return None
    steps = {
        "stride": [call.stride],
        "padding": [left],
        "output_padding": [more],
        "groups": call.groups,
        "dilation": [call.dilation],
    }

    def sizes(times):
        grown = [n if n == 1 else times * n for n in (*batch, length)]
        return [(*grown[:-1], channels, grown[-1]), call.weight_size, (call.input_size[-2],)]

    return calls.GrowingSample(
        f"transposed, {more} more, {call}", tuple(operands), steps, sanitize=call.sanitize, sizes=sizes
    )


# As conv1d_samples.FEW: sizes that grow differ from all other sizes. The last call has more output padding than a stride.
FEW = (
    calls.Call("plain", (1, 2, 6), 2, 2, bias=False),
    calls.Call("bias", (2, 1, 7), 1, 3),
    calls.Call("depthwise", (1, 3, 8), 3, 2, stride=2, groups=3),
    calls.Call("step 3", (1, 1, 10), 2, 4, stride=3),
    calls.Call("padding", (1, 2, 6), 1, 4, padding=(1, 1)),
    calls.Call("channels last", (1, 3, 6), 2, 2, layout="transposed"),
    calls.Call("channels last, depthwise", (1, 3, 6), 3, 3, groups=3, layout="transposed", bias=False),
    calls.Call("one value", (1, 1, 1), 1, 1),
    calls.Call("misaligned", (1, 1, 7), 1, 2, layout="misaligned1", weight_layout="misaligned3"),
    calls.Call("dilated", (1, 1, 9), 2, 3, dilation=2),
    calls.Call("one signal", (2, 6), 2, 2, groups=2),
    calls.Call("more than a stride", (1, 1, 12), 1, 3, stride=2, padding=(1, 1), dilation=3),
)


def _few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = calls.Whole(device, dtype)
    for index, call in enumerate(FEW):
        yield _sample(make, call, index)


# ---------------------------------------------------------------- errors


def errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x, w, b = make(2, 4, 9), make(4, 3, 3), make(6)
    for name, args, steps, *says in (
        ("0-d input", (make(), w), {}, r"\binput\b"),
        ("1-d input", (make(9), w), {}, r"\binput\b", r"\[9\]"),
        ("4-d input", (x[None], w), {}, r"\binput\b", r"\[1, 2, 4, 9\]"),
        ("2-d weight", (x, w[0]), {}, r"\bweight\b", r"\[3, 3\]"),
        ("4-d weight", (x, w[None]), {}, r"\bweight\b", r"\[1, 4, 3, 3\]"),
        ("other channels", (make(2, 5, 9), w), {}, r"\binput\b", r"\b4\b", r"\b5\b"),
        ("channels that groups do not divide", (x, w), {"groups": 3}, r"\bweight\b", r"\b3\b", r"\[4, 3, 3\]"),
        ("no groups", (x, w), {"groups": 0}, r"\bgroups\b", r"\b0\b"),
        ("negative groups", (x, w), {"groups": -1}, r"\bgroups\b", r"-1\b"),
        ("no channels", (make(2, 0, 9), w[:0]), {}, r"\bweight\b", r"\[0, 3, 3\]"),
        ("no taps", (x, w[..., :0]), {}, r"\bweight\b", r"\[4, 3, 0\]"),
        ("short bias", (x, w, b[:5]), {}, r"\bbias\b", r"\b6\b", r"\[5\]"),
        ("bias that would broadcast", (x, w, b[:1]), {}, r"\bbias\b", r"\b6\b", r"\[1\]"),
        ("2-d bias", (x, w, b[None]), {}, r"\bbias\b", r"\[1, 6\]"),
        ("stride 0", (x, w), {"stride": [0]}, r"\bstride\b", r"\b0\b"),
        ("negative stride", (x, w), {"stride": [-2]}, r"\bstride\b", r"-2\b"),
        ("two strides", (x, w), {"stride": [1, 1]}, r"\bstride\b"),
        ("dilation 0", (x, w), {"dilation": [0]}, r"\bdilation\b", r"\b0\b"),
        ("two dilations", (x, w), {"dilation": [1, 1]}, r"\bdilation\b"),
        ("negative padding", (x, w), {"padding": [-1]}, r"\bpadding\b", r"-1\b"),
        ("two paddings", (x, w), {"padding": [1, 1]}, r"\bpadding\b"),
        ("padding that leaves nothing", (x, w), {"padding": [6]}, r"\bpadding\b", r"\b11\b", r"\b6\b"),
        ("negative output padding", (x, w), {"output_padding": [-1]}, r"\boutput_padding\b", r"-1\b"),
        ("two output paddings", (x, w), {"output_padding": [0, 0]}, r"\boutput_padding\b"),
        ("output padding of a stride", (x, w), {"stride": [2], "output_padding": [2]}, r"\boutput_padding\b", r"\b2\b"),
        ("no values", (x[..., :0], w), {}, r"\binput\b", r"\b0\b"),
        ("float64 weight", (x, w.double()), {}, r"\bweight\b", "Float", "Double"),
        ("half input", (x.half(), w), {}, r"\bweight\b", "Half", "Float"),
        ("float64 bias", (x, w, b.double()), {}, r"\bbias\b", "Float", "Double"),
    ):
        yield ErrorCase(name, args, {"groups": 2, **steps}, tuple(says))
    yield from _device_errors(device, x, w, make(3))


# ---------------------------------------------------------------- the cases


def _of_opinfo(input, weight, bias=None, **given):
    listed = ("stride", "padding", "output_padding", "dilation")
    steps = {k: conv1d._list(v) if k in listed else v for k, v in given.items()}
    return (input, weight), {"bias": bias, **steps}


CASE = {
    "aten": _aten,
    "reference": reference,
    "samples": functools.partial(calls.samples, _sample),
    "few": _few,
    "bound": _bound,
    "elementwise": False,
    "repeatable": _repeatable,
    "workspace": _workspace,
}
CASES = [
    OpCase(
        name="conv_transpose1d",
        op=torch_ops.conv_transpose1d,
        overload=OPS.conv_transpose1d.default,
        errors=errors,
        dtypes=FLOATS + conv1d.COMPLEX,
        grad_dtypes=FLOATS + conv1d.COMPLEX,
        opinfo=(OpInfoLink("nn.functional.conv_transpose1d", _of_opinfo, at_least=4),),
        saves_inputs=True,
        cancels=conv1d.CANCELS,
        **CASE,
    ),
]
