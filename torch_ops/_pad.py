"""Padding: ``pad``.

One kernel copies runs of neighbouring elements, in whole vectors of the result (csrc/pad/README.md). Gradients of borders are sums in a
fixed order. On CPU tensors the operator calls ATen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types, integer, number

__all__ = ["pad"]

_ops = torch.ops.gpuopt


@checks_types
def pad(
    input: Tensor,
    pad: Sequence[int],
    mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
    value: float | None = None,
) -> Tensor:
    """Pads dimensions of a tensor, from the last one on: :func:`torch.nn.functional.pad`.

    Args:
        input: Tensor of any dtype and strides. With mode ``"constant"`` it has any shape. Otherwise it is a signal (C, L), an image
            (C, H, W) or a volume (C, D, H, W), or a batch of these, with elements in each example.
        pad: Two numbers for each dimension, which begin with the last one: how many elements are added before and after it. With
            mode ``"constant"`` it may name fewer dimensions than there are. Otherwise it names all but channels and batch.
            Negative numbers crop, at most all elements of a dimension.
        mode: What the new elements are. ``"constant"``: ``value``. ``"reflect"``: the elements beside the edge in reverse, fewer than
            there are. ``"replicate"``: the element at the edge. ``"circular"``: the elements at the other edge, at most all, of what
            crops leave.
        value: The constant, which is converted to the dtype of ``input``. Default: 0.

    Returns:
        A copy with the dtype of ``input``. Images and volumes in a channels-last format keep it, except with mode ``"circular"``. It is
        differentiable any number of times, in reverse and forward mode. Gradients of half types are summed in float32, in a
        fixed order. Under :func:`torch.vmap` all examples are one call. Autocast doesn't change it.

    Raises:
        RuntimeError: ``pad`` has an odd length, names too many dimensions, crops too much, or is too wide for ``mode``. ``value``
            does not fit the dtype, or is given with another mode than ``"constant"``. An example has no elements.
        NotImplementedError: ``mode`` is unknown. ``pad`` does not name the dimensions that ``mode`` pads. ATen lacks the dtype
            on the CPU.
    """
    lengths = [integer("pad", "pad", length) for length in pad]
    if mode == "circular" and any(length < 0 for length in lengths) and any(length > 0 for length in lengths):
        input = _ops.pad.default(input, [min(length, 0) for length in lengths])
        lengths = [max(length, 0) for length in lengths]
    return _ops.pad.default(input, lengths, mode, number(value))
