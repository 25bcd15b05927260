"""Convolutions of signals in a layout of their own: ``torch_ops.convert(model, layout="channels_last")``.

cuDNN's fast kernels want channels innermost. On contiguous signals (N, C, L) it transposes the input and the result of each layer, or
takes slower kernels. A stack of layers that keeps its signals channels last saves this. PyTorch has no such stacks for signals:
``F.conv1d`` makes its input contiguous. :func:`torch_ops.conv1d` keeps the layout of its input, and so does ``F.conv_transpose2d`` on
images of one row.

Some shapes are up to 20 times as slow channels last, so no layer changes its layout without a measurement (trial.py). Each layer has
one attribute, ``_layout``: the choice of the trial. A layer without one computes as its base class.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn import functional
from torch.utils import _pytree as pytree

from torch_ops import nn
from torch_ops.layout.convolution import Choice, Layer, in_layout

__all__ = ["LAYERS", "Conv1d", "ConvTranspose1d", "contiguous_outputs", "store_weight"]

#: The choice of PyTorch's own convolution.
_PLAIN = Choice(channels_last=False, by_gpuopt=False, gives=False)


def _has_layout(input: Tensor) -> bool:
    """Whether there is a layout to choose. A signal without a batch has none, and ATen refuses complex images."""
    return input.dim() == 3 and not input.is_complex()


class Conv1d(nn.Conv1d):
    """:class:`torch_ops.nn.Conv1d` in the faster layout."""

    _layout: Choice | None = None

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        choice = self._layout
        # torch.fx knows neither the strides nor the number of dimensions.
        if choice is None or isinstance(input, Proxy):
            return super()._conv_forward(input, weight, bias)
        if choice == _PLAIN and input.is_contiguous():
            return torch.nn.Conv1d._conv_forward(self, input, weight, bias)
        if not _has_layout(input):
            return super()._conv_forward(input, weight, bias)
        padding = self.padding
        if self.padding_mode != "zeros":
            # PyTorch pads into a contiguous copy, so a stack ends here.
            input, padding = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), (0,)
        elif type(padding) is str:
            total = self.dilation[0] * (self.kernel_size[0] - 1) if padding == "same" else 0
            padding = padding if total % 2 else (total // 2,)
        return choice.convolve(
            Layer(False, self.stride, padding, self.dilation, (0,), self.groups), input, weight, bias
        )


class ConvTranspose1d(nn.ConvTranspose1d):
    """:class:`torch_ops.nn.ConvTranspose1d` in the faster layout."""

    _layout: Choice | None = None

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        choice = self._layout
        if choice is None or isinstance(input, Proxy):
            return super().forward(input, output_size)
        if choice == _PLAIN and input.is_contiguous():
            return torch.nn.ConvTranspose1d.forward(self, input, output_size)
        if not _has_layout(input):
            return super().forward(input, output_size)
        given: dict[str, Any] = {"stride": self.stride, "padding": self.padding, "kernel_size": self.kernel_size}
        output_padding = self._output_padding(
            input, output_size, **given, num_spatial_dims=1, dilation=list(self.dilation)
        )
        layer = Layer(True, self.stride, self.padding, self.dilation, tuple(output_padding), self.groups)
        return choice.convolve(layer, input, self.weight, self.bias)


LAYERS = Conv1d, ConvTranspose1d


def store_weight(module: torch.nn.Module, channels_last: bool) -> None:
    """Stores the weight (O, I, K) of a layer as (O, K, I) in memory, or as it was. It stays the same parameter.

    A computed weight, as of weight norm, is left alone.
    """
    weight = module._parameters.get("weight") if isinstance(module, LAYERS) else None
    if weight is None or weight.is_contiguous() != channels_last or 1 in weight.shape[1:]:
        return

    def stored(tensor: Tensor) -> Tensor:
        return tensor.mT.contiguous().mT if channels_last else tensor.contiguous()

    # A tensor that is made in inference mode could not be trained.
    with torch.inference_mode(False):
        weight.data = stored(weight.data)
        if weight.grad is not None:
            weight.grad = stored(weight.grad)


def contiguous_outputs(module: torch.nn.Module, args: Any, output: Any) -> Any:
    """A forward hook that returns channels-last signals of an output as contiguous ones.

    It finds tensors in tuples, lists, dicts, and classes that torch.utils._pytree knows. Sparse and nested tensors are no signals.
    """

    def restored(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.is_nested or value.layout != torch.strided or value.dim() != 3:
            return value
        _, channels, length = value.shape
        strides = value.stride()
        if strides[1] == 1 and min(channels, length) == 1 and strides == (channels * length, 1, channels):
            return value.flatten().view(value.shape)  # the same memory, and the strides of a contiguous tensor
        return in_layout(value, False)

    leaves, tree = pytree.tree_flatten(output)
    found = [restored(leaf) for leaf in leaves]
    if all(map(operator.is_, found, leaves)):
        return None  # the output itself
    return pytree.tree_unflatten(found, tree)
