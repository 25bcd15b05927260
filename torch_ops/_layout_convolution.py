"""One convolution in both layouts, and their times. See _layout.py."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from torch_ops._layout_cache import Times
from torch_ops.conv1d import conv1d, conv_transpose1d
from torch_ops.transpose import transpose2d

__all__ = ["Layer", "convolve", "in_layout", "is_channels_last", "is_image", "measure", "padding_of"]

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


def in_layout(signal: Tensor, channels_last: bool | None) -> Tensor:
    """The signal in a layout. None leaves it alone."""
    if channels_last is None or channels_last == is_channels_last(signal):
        return signal
    return transpose2d(signal).mT if channels_last else transpose2d(signal.mT)


# ---------------------------------------------------------------- the convolution

#: A convolution without its sizes: operator, stride, padding, dilation, output_padding and groups. A plain tuple, because it is made
#: in each call.
Layer = tuple[str, tuple[int, ...], tuple[int, ...] | str, tuple[int, ...], tuple[int, ...], int]


def is_image(layer: Layer) -> bool:
    """Whether ATen can convolve the layer as an image. Two ends with different zeros, ``'same'``, are padded by gpuopt."""
    return type(layer[2]) is not str


_image = torch.ops.gpuopt._conv1d_image.default


def convolve(
    layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None, channels_last: bool | None, own: bool = False
) -> Tensor:
    """The convolution of a signal in this layout, by gpuopt's operator if ``own`` and else by ATen. The result has the layout too.

    If ``channels_last`` is None, the signal has any layout, and gpuopt's operator computes.
    """
    name, stride, padding, dilation, output_padding, groups = layer
    if own or channels_last is None or not is_image(layer):
        if name == "conv1d":
            return conv1d(signal, weight, bias, stride, padding, dilation, groups)
        return conv_transpose1d(signal, weight, bias, stride, padding, output_padding, groups, dilation)
    if channels_last:
        more = output_padding[0] if output_padding else 0
        return _image(signal, weight, bias, stride[0], padding[0], dilation[0], more, groups, name != "conv1d")
    if name == "conv1d":
        return functional.conv1d(signal, weight, bias, stride, padding, dilation, groups)
    return functional.conv_transpose1d(signal, weight, bias, stride, padding, output_padding, groups, dilation)


def padding_of(padding: tuple[int, ...] | str, taps: int, dilation: int) -> tuple[int, ...] | str:
    """Words as numbers. ``'same'`` with two ends that differ stays."""
    if padding == "valid":
        return (0,)
    total = dilation * (taps - 1)
    return (total // 2,) if padding == "same" and total % 2 == 0 else padding


# ---------------------------------------------------------------- the measurement

_WARM_UPS, _REPEATS = 2, 5
_CYCLES = 3e9  # in a second, more than a GPU has
_LONGEST_WAIT = 0.02  # seconds
# gpuopt's operator is chosen if its kernels take at most this share of the time of ATen's. Both may be the same kernels.
_OWN_SHARE = 0.8


class Fastest(NamedTuple):
    """Milliseconds of a step, on the GPU and on the host."""

    gpu: float
    host: float

    @property
    def ms(self) -> float:
        """Of both together. A model waits for one of them, and a layer does not know for which."""
        return sum(self)


def _fastest(step: Callable[[], object], idle: float = 0.0) -> Fastest:
    """The fastest of several steps. ``idle`` are milliseconds of the host that a step spends once for a model, not once for a layer."""
    for _ in range(_WARM_UPS):
        began = time.perf_counter()
        step()
    host = time.perf_counter() - began
    # The GPU waits until the steps are queued, so that its time has no gaps.
    torch.cuda._sleep(round(min(_REPEATS * host, _LONGEST_WAIT) * _CYCLES))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(_REPEATS + 1)]
    events[0].record()
    for event in events[1:]:
        began = time.perf_counter()
        step()
        host = min(host, time.perf_counter() - began)
        event.record()
    events[-1].synchronize()
    return Fastest(min(begin.elapsed_time(end) for begin, end in itertools.pairwise(events)), 1e3 * host - idle)


def measure(
    layer: Layer,
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

    def layer_ms(signal: Tensor, channels_last: bool) -> tuple[float, bool, Tensor]:
        """Its time, whether it is that of gpuopt's operator, and a result."""
        operands = [signal.requires_grad_(gradients[0]), weight, bias]
        wanted = [x for x in operands if x is not None and x.requires_grad]
        grad = convolve(layer, *operands, channels_last).detach().clone()

        def step(own: bool) -> None:
            result = convolve(layer, *operands, channels_last, own)
            if wanted:
                torch.autograd.grad(result, wanted, grad)

        aten, own = (_fastest(functools.partial(step, own), idle) for own in (False, True))
        is_own = own.gpu < _OWN_SHARE * aten.gpu and own.ms < aten.ms
        return own.ms if is_own else aten.ms, is_own, grad

    # Inside a checkpoint, tensors that are saved here would be counted.
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.cuda.device(device), torch.autocast(device.type, enabled=False), hooks:
        contiguous = channels_last = into = back = math.inf
        idle = 0.0
        own = own_last = False
        try:
            signal = scratch(*shape)
            weight = scratch(*weight_shape).requires_grad_(gradients[1])
            bias = scratch(_channels_of(layer, weight_shape)).requires_grad_(gradients[1]) if has_bias else None
            if any(gradients):
                # autograd's thread is woken once for a model.
                one = scratch(1).requires_grad_()
                idle = _fastest(lambda: torch.autograd.grad(one.view_as(one), one, one)).host
            contiguous, own, _ = layer_ms(signal.detach(), False)
            into = _fastest(lambda: in_layout(signal, True)).ms * (1 + gradients[0])
            channels_last, own_last, result = layer_ms(in_layout(signal, True), True)
            back = _fastest(lambda: in_layout(result, False)).ms * (1 + any(gradients))
        except RuntimeError:
            # There is no memory, or no kernel. The layer stays contiguous, and the error is raised there if it is the user's.
            channels_last = math.inf
    return Times(contiguous, channels_last, into, back, (own, own_last))


def _channels_of(layer: Layer, weight: tuple[int, ...]) -> int:
    return weight[0] if layer[0] == "conv1d" else weight[1] * layer[-1]
