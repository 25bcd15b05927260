"""One convolution in both layouts, and its times."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from torch_ops._conv1d import conv1d, conv_transpose1d
from torch_ops._transpose import transpose2d

__all__ = ["Choice", "Layer", "Times", "in_layout", "is_channels_last", "measure"]


def is_channels_last(signal: Tensor) -> bool:
    """Whether a signal (N, C, L) is (N, L, C) in memory, or a part of such a signal."""
    batch, channels, length = signal.shape
    strides = signal.stride()
    is_last = strides[1] == 1 and channels > 1 and length > 1 and strides[2] >= channels
    return bool(is_last and (batch < 2 or strides[0] >= strides[2] * length))  # sizes are tensors in torch.jit.trace


def in_layout(signal: Tensor, channels_last: bool | None) -> Tensor:
    """The signal in a layout. None leaves it alone."""
    if channels_last is None or channels_last == is_channels_last(signal):
        return signal
    return transpose2d(signal).mT if channels_last else transpose2d(signal.mT)


class Layer(NamedTuple):
    """A convolution without its sizes."""

    transposed: bool
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int


class Choice(NamedTuple):
    """How a layer computes: its layout, whether by gpuopt's operator or ATen's, and whether it ``gives`` its result channels last in
    any case. ``channels_last`` is None if the layout of the input stays, which gpuopt's operator keeps.
    """

    channels_last: bool | None
    by_gpuopt: bool
    gives: bool = False

    def convolve(self, layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any
        transposed, stride, padding, dilation, output_padding, groups = layer
        # Two ends with different zeros, 'same', are padded by gpuopt.
        if self.channels_last and not self.by_gpuopt and not isinstance(layer.padding, str):
            sizes = stride[0], padding[0], dilation[0], output_padding[0], groups, transposed
            # The operator for images converts its signal itself.
            result = torch.ops.gpuopt._conv1d_image.default(signal, weight, bias, *sizes)
        else:
            signal = in_layout(signal, self.channels_last)
            by_gpuopt = self.by_gpuopt or self.channels_last
            if transposed:
                convolve = conv_transpose1d if by_gpuopt else functional.conv_transpose1d
                result = convolve(signal, weight, bias, stride, padding, output_padding, groups, dilation)
            else:
                convolve = conv1d if by_gpuopt else functional.conv1d
                result = convolve(signal, weight, bias, stride, padding, dilation, groups)
        return in_layout(result, True) if self.gives else result


# ---------------------------------------------------------------- the measurement

_WARM_UPS, _REPEATS = 2, 5
_CYCLES = 3e9  # in a second, more than a GPU has
_LONGEST_WAIT = 0.02  # seconds
# gpuopt's operator is chosen if its kernels take at most this share of the time of ATen's. Both may be the same kernels.
_GPUOPT_SHARE = 0.8


class Times(NamedTuple):
    """Milliseconds of a layer in each layout, and of the conversions of its input and its result. Infinity if it fails.

    Each is the time of the GPU and that of the host, together. In each layout, the operator of gpuopt and ATen's convolution were
    measured. ``by_gpuopt`` tells where gpuopt's is the faster one.
    """

    contiguous: float
    channels_last: float
    input: float
    result: float
    by_gpuopt: tuple[bool, bool] = (False, False)  # contiguous, and channels last

    def may_be_faster(self) -> bool:
        """Whether any neighbours could make channels last worth it. Two conversions avoid any longer time."""
        return self.channels_last < self.contiguous + self.input + self.result


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
    began = 0.0
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
    """Measures a layer on random tensors of its shapes, forward and the gradients of input and weight that are wanted."""
    scratch = functools.partial(torch.randn, dtype=dtype, device=device)

    def layer_ms(signal: Tensor, channels_last: bool) -> tuple[float, bool, Tensor]:
        """Its time, whether it is that of gpuopt's operator, and a result."""
        operands = (signal.requires_grad_(gradients[0]), weight, bias)
        wanted = [x for x in operands if x is not None and x.requires_grad]
        grad = Choice(channels_last, by_gpuopt=False).convolve(layer, *operands).detach().clone()

        def step(by_gpuopt: bool) -> None:
            result = Choice(channels_last, by_gpuopt).convolve(layer, *operands)
            if wanted:
                torch.autograd.grad(result, wanted, grad)

        aten, gpuopt = (_fastest(functools.partial(step, by_gpuopt), idle) for by_gpuopt in (False, True))
        is_faster = gpuopt.gpu < _GPUOPT_SHARE * aten.gpu and gpuopt.ms < aten.ms
        return gpuopt.ms if is_faster else aten.ms, is_faster, grad

    contiguous = channels_last = into = back = math.inf
    idle = 0.0
    by_gpuopt = by_gpuopt_last = False
    with torch.cuda.device(device), torch.autocast(device.type, enabled=False):
        try:
            signal = scratch(shape)
            weight = scratch(weight_shape).requires_grad_(gradients[1])
            channels = weight_shape[1] * layer.groups if layer.transposed else weight_shape[0]
            bias = scratch(channels).requires_grad_(gradients[1]) if has_bias else None
            if any(gradients):
                # autograd's thread is woken once for a model.
                one = scratch(1).requires_grad_()
                idle = _fastest(lambda: torch.autograd.grad(one.view_as(one), one, one)).host
            contiguous, by_gpuopt, _ = layer_ms(signal.detach(), False)
            into = _fastest(lambda: in_layout(signal, True)).ms * (1 + gradients[0])
            channels_last, by_gpuopt_last, result = layer_ms(in_layout(signal, True), True)
            back = _fastest(lambda: in_layout(result, False)).ms * (1 + any(gradients))
        except RuntimeError:
            # There is no memory, or no kernel. The layer stays contiguous, and the error is raised there if it is the user's.
            channels_last = math.inf
    return Times(contiguous, channels_last, into, back, (by_gpuopt, by_gpuopt_last))
