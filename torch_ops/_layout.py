"""Convolutions of signals that choose their layout: ``torch_ops.convert(model, layout="channels_last")``.

cuDNN's fast kernels want channels innermost. On contiguous signals (N, C, L) it transposes the input and the result of each layer, or
takes slower kernels. A stack of layers that keeps its signals channels last saves this. PyTorch has no such stacks for signals:
``F.conv1d`` makes its input contiguous. :func:`torch_ops.conv1d` keeps the layout of its input, and so does ``F.conv_transpose2d`` on
images of one row.

Some shapes are up to 20 times as slow channels last, so no layer changes its layout without a measurement. What is compared:

    contiguous      (N, C, L)  -> layer ->  (N, O, L')
    channels last   (N, L, C)  -> layer ->  (N, L', O)

Each side has its input as it needs it, as in the middle of a stack. A conversion is needed at a border of a stack only. Weighing every
layer with its own conversions would miss stacks whose layers gain less than a conversion costs. Weighing it without them would
convert for no gain around single layers. So a layer that leaves the layout of its input is charged half of the two conversions
around it: its input's and its result's. This is the share of each layer in a stack of two.

Parameters stay as they are, contiguous. cuDNN's channels-last kernels want other weights, whose conversion is part of the measured
time. It is small beside that of the signals. Weights with other strides would cost the layers that stay contiguous a copy, and weight
norm makes a contiguous weight in each call anyway.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree as pytree

from torch_ops import nn
from torch_ops._layout_cache import Problem, Times, bucket, layout_cache
from torch_ops._tracing import is_eager
from torch_ops.conv1d import conv1d, conv_transpose1d
from torch_ops.transpose import transpose2d

__all__ = ["Conv1d", "ConvTranspose1d", "contiguous_outputs"]

#: The devices on which layers choose. Tests add the CPU.
devices = {"cuda"}


# ---------------------------------------------------------------- layouts


def is_channels_last(signal: Tensor) -> bool:
    """Whether a signal (N, C, L) is (N, L, C) in memory, or a part of such a signal."""
    batch, channels, length = signal.shape
    strides = signal.stride()
    return (
        strides[1] == 1
        and channels > 1
        and length > 1
        and strides[2] >= channels
        and (batch < 2 or strides[0] >= strides[2] * length)
    )


def _in_layout(signal: Tensor, channels_last: bool | None) -> Tensor:
    """The signal in a layout. None leaves it alone."""
    if channels_last is None or channels_last == is_channels_last(signal):
        return signal
    return transpose2d(signal).mT if channels_last else transpose2d(signal.mT)


def contiguous_outputs(module: torch.nn.Module, args: Any, output: Any) -> Any:
    """A forward hook that returns channels-last signals of an output as contiguous ones.

    It finds tensors in tuples, lists, dicts, and classes that torch.utils._pytree knows.
    """

    def restored(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() != 3:
            return value
        _, channels, length = value.shape
        strides = value.stride()
        if strides[1] == 1 and min(channels, length) == 1 and strides == (channels * length, 1, channels):
            return value.flatten().view(value.shape)  # the same memory, and the strides of a contiguous tensor
        return _in_layout(value, False)

    leaves, tree = pytree.tree_flatten(output)
    found = [restored(leaf) for leaf in leaves]
    if all(map(operator.is_, found, leaves)):
        return None  # the output itself
    return pytree.tree_unflatten(found, tree)


# ---------------------------------------------------------------- the choice


#: A convolution without its sizes: operator, stride, padding, dilation, output_padding and groups. A plain tuple, because it is made
#: in each call.
_Layer = tuple[str, tuple[int, ...], tuple[int, ...] | str, tuple[int, ...], tuple[int, ...], int]


def _convolve(layer: _Layer, signal: Tensor, weight: Tensor, bias: Tensor | None, channels_last: bool | None) -> Tensor:
    """The convolution of a signal in this layout, or in any layout if that is None. The result has it too."""
    name, stride, padding, dilation, output_padding, groups = layer
    if name == "conv1d":
        return conv1d(signal, weight, bias, stride, padding, dilation, groups)
    if not channels_last:
        return conv_transpose1d(signal, weight, bias, stride, padding, output_padding, groups, dilation)
    # ATen makes signals contiguous, but not images.
    image = functional.conv_transpose2d(
        signal.unsqueeze(2), weight.unsqueeze(2), bias, (1, *stride), (0, *padding), (0, *output_padding), groups, (1, *dilation)
    )  # fmt: skip
    return image.squeeze(2)


def _choose(layer: _Layer, signal: Tensor, weight: Tensor, bias: Tensor | None) -> bool | None:
    """Whether a layer computes channels last. None if that is not known: then it is as it was before it was converted."""
    # torch.fx does not know the number of dimensions.
    if isinstance(signal, torch.fx.Proxy) or signal.dim() != 3 or signal.device.type not in devices:
        return None
    shape = tuple(signal.shape)
    is_compiling = torch.compiler.is_compiling()
    if is_compiling:
        from torch.fx.experimental.symbolic_shapes import has_static_value

        is_symbolic = not all(map(has_static_value, shape))
    else:
        is_symbolic = set(map(type, shape)) != {int}
    # A graph for all sizes can't choose for each of them. Of one channel or one position, both layouts are the same.
    if is_symbolic or shape[1] < 2 or shape[2] < 2:
        return None
    gradients = (signal.requires_grad, weight.requires_grad) if torch.is_grad_enabled() else (False, False)
    is_plain = not is_compiling and type(signal) is Tensor
    return _answer(
        layer, shape, tuple(weight.shape), bias is not None, signal.dtype, signal.device, gradients, is_channels_last(signal), is_plain
    )  # fmt: skip


_DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


def _answer(
    layer: _Layer,
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    has_bias: bool,
    dtype: torch.dtype,
    device: torch.device,
    gradients: tuple[bool, bool],
    arrives: bool,
    may_measure: bool,
) -> bool | None:
    """See _choose. Dynamo calls this while it traces, and keeps the answer."""
    if torch.is_autocast_enabled(device.type) and dtype in _DTYPES:
        dtype = torch.get_autocast_dtype(device.type)
    # torch.export disables cuDNN while it traces.
    if dtype not in _DTYPES or 0 in shape or 0 in weight or (may_measure and not torch._C._get_cudnn_enabled()):
        return None
    # The properties of torch.backends.cudnn take several times as long.
    is_deterministic = torch._C._get_deterministic_algorithms() or torch._C._get_cudnn_deterministic()
    benchmark = torch._C._get_cudnn_benchmark()
    precision = torch._C._get_fp32_precision_getter("cuda", "conv") if dtype is torch.float32 else ""
    problem = _problem(layer, shape, weight, has_bias, dtype, device, gradients, is_deterministic, benchmark, precision)
    times = layout_cache.find(problem)
    if times is None and may_measure and is_eager():
        measure = functools.partial(_measure, layer, shape, weight, has_bias, dtype, device, gradients)
        times = layout_cache.find(problem, measure)
    return None if times is None else times.prefer_channels_last(arrives)


# torch.compiler.assume_constant_result, which would import the compiler.
_answer._dynamo_marked_constant = True


# Most calls have the arguments of an earlier call. To look them up costs less than to make the key again.
@functools.lru_cache(4096)
def _problem(
    layer: _Layer, shape: tuple, weight: tuple, has_bias: bool, dtype: torch.dtype, device: torch.device, *modes: Any
) -> Problem:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    batch, _, length = shape
    sizes = bucket(batch), bucket(length), length % 8 == 0
    return Problem(gpu, *layer, weight, has_bias, *sizes, _DTYPES[dtype], *modes)


# ---------------------------------------------------------------- the measurement

_WARM_UPS, _REPEATS = 2, 5
_CYCLES = 3e9  # in a second, more than a GPU has
_LONGEST_WAIT = 0.02  # seconds


def _fastest(step: Callable[[], object]) -> float:
    """Milliseconds of a step on the GPU."""
    for _ in range(_WARM_UPS):
        started = time.perf_counter()
        step()
    host = time.perf_counter() - started
    # The GPU waits until the steps are queued, so that the host's time does not count: it is the same in both layouts.
    torch.cuda._sleep(round(min(_REPEATS * host, _LONGEST_WAIT) * _CYCLES))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(_REPEATS + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    events[-1].synchronize()
    return min(begin.elapsed_time(end) for begin, end in itertools.pairwise(events))


def _measure(
    layer: _Layer,
    shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    has_bias: bool,
    dtype: torch.dtype,
    device: torch.device,
    gradients: tuple[bool, bool],
) -> Times:
    """Measures a layer on random tensors of its shapes. They are freed again, and the user's random numbers stay."""
    generator = torch.Generator(device)

    def scratch(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device).normal_(generator=generator)

    def layer_ms(signal: Tensor, channels_last: bool) -> tuple[float, Tensor]:
        operands = [signal.requires_grad_(gradients[0]), weight, bias]
        wanted = [x for x in operands if x is not None and x.requires_grad]
        result = _convolve(layer, *operands, channels_last)
        grad = result.detach().clone()

        def step() -> None:
            result = _convolve(layer, *operands, channels_last)
            if wanted:
                torch.autograd.grad(result, wanted, grad)

        return _fastest(step), grad

    # Inside a checkpoint, tensors that are saved here would be counted.
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.cuda.device(device), torch.autocast(device.type, enabled=False), hooks:
        contiguous = channels_last = into = back = math.inf
        try:
            signal = scratch(*shape)
            weight = scratch(*weight_shape).requires_grad_(gradients[1])
            bias = scratch(_channels_of(layer, weight_shape)).requires_grad_(gradients[1]) if has_bias else None
            contiguous, _ = layer_ms(signal.detach(), False)
            into = _fastest(lambda: _in_layout(signal, True)) * (1 + gradients[0])
            channels_last, result = layer_ms(_in_layout(signal, True), True)
            back = _fastest(lambda: _in_layout(result, False)) * (1 + any(gradients))
        except RuntimeError:
            # There is no memory, or no kernel. The layer stays contiguous, and the error is raised there if it is the user's.
            channels_last = math.inf
    return Times(contiguous, channels_last, into, back)


def _channels_of(layer: _Layer, weight: tuple[int, ...]) -> int:
    return weight[0] if layer[0] == "conv1d" else weight[1] * layer[-1]


# ---------------------------------------------------------------- the modules


class _Latest(threading.local):
    """The last result of a layer in this thread, and the layer."""

    result: Callable[[], Tensor | None] = staticmethod(lambda: None)
    layer: Callable[[], torch.nn.Module | None] = staticmethod(lambda: None)


_latest = _Latest()


def _run(
    module: Conv1d | ConvTranspose1d, layer: _Layer, signal: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    choice = _choose(layer, signal, weight, bias)
    own = _in_layout(signal, choice)
    result = _convolve(layer, own, weight, bias, choice)
    if module.next_is_channels_last and result.dim() == 3:
        result = _in_layout(result, True)
    if not torch.compiler.is_compiling() and isinstance(result, Tensor):
        before = _latest.layer()
        if own is not signal and before is not None and _latest.result() is signal:
            before.next_is_channels_last = bool(choice)
        _latest.result, _latest.layer = weakref.ref(result), weakref.ref(module)
    return result


class Conv1d(nn.Conv1d):
    """:class:`torch_ops.nn.Conv1d` in the faster layout.

    Whether the next layer would convert the very tensor that this one returns is learned from the next layer. If so, this layer
    converts it, because a residual connection may use it too: the sum ``x + f(x)`` has the layout of ``x``, and so have all sums
    that follow.
    """

    next_is_channels_last = False

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            # PyTorch pads into a contiguous copy, so a stack ends here.
            input, padding = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), (0,)
        return _run(self, ("conv1d", self.stride, padding, self.dilation, (), self.groups), input, weight, bias)


class ConvTranspose1d(nn.ConvTranspose1d):
    """:class:`torch_ops.nn.ConvTranspose1d` in the faster layout. See :class:`Conv1d`."""

    next_is_channels_last = False

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        sizes = self.stride, self.padding, self.kernel_size
        output_padding = tuple(self._output_padding(input, output_size, *sizes, 1, self.dilation))
        layer = ("conv_transpose1d", self.stride, self.padding, self.dilation, output_padding, self.groups)
        return _run(self, layer, input, self.weight, self.bias)
