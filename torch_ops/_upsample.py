"""Nearest-neighbour upsampling of images: ``upsample_nearest2d`` and ``upsample_nearest_exact2d``, with their backward.

Every output pixel is a copy of one input pixel. Sizes may also shrink. Along each axis, output index ``o`` copies input index
``source(o)``, which is never more than the last index:

- ``upsample_nearest2d``: ``source(o) = floor(o * s)``, as OpenCV's INTER_NEAREST and ``mode='nearest'``.
- ``upsample_nearest_exact2d``: ``source(o) = floor((o + 0.5) * s)``, as Pillow, scikit-image and ``mode='nearest-exact'``.

The step ``s`` is 1 / scale factor, or input size / output size where no factor is given. An axis whose size does not change is
copied, whatever its factor.

On CUDA the index arithmetic is float32 and results are bitwise reproducible. CPU tensors fall back to ATen. A result has the
memory format of its input: channels_last stays channels_last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = [
    "upsample_nearest2d",
    "upsample_nearest2d_backward",
    "upsample_nearest_exact2d",
    "upsample_nearest_exact2d_backward",
]

_ops = torch.ops.gpuopt


def _pair(value: float | Sequence[float] | None) -> Any:
    """A height and a width: one number stands for both."""
    return value if value is None or isinstance(value, (list, tuple)) else [value, value]


def _factors(scale_factors: float | Sequence[float] | None, scale_factor: float | Sequence[float] | None) -> Any:
    if scale_factors is not None and scale_factor is not None:
        raise TypeError(
            "upsample: scale_factor is another name of scale_factors: expected one of them, got"
            f" scale_factors={scale_factors} and scale_factor={scale_factor}"
        )
    return _pair(scale_factors if scale_factor is None else scale_factor)


@checks_types
def upsample_nearest2d(
    input: Tensor,
    output_size: int | Sequence[int] | None = None,
    scale_factors: float | Sequence[float] | None = None,
    *,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """Resizes images by copying pixels, as :func:`torch.nn.functional.interpolate` with ``mode='nearest'``.

    The operator in ATen is ``aten::upsample_nearest2d``. Give exactly one of ``output_size`` and ``scale_factors``.

    Args:
        input: tensor (N, C, H, W) of float16, bfloat16, float32, float64 or uint8. N may be 0. C, H and W may not.
        output_size: height and width of the result in pixels, or one number for both.
        scale_factors: factors of the height and of the width, or one number for both. The result has floor(size * factor) rows
            or columns. The step between source pixels is 1 / factor.
        scale_factor: another name of ``scale_factors``, as in ``interpolate``. At most one of them may be given.

    Returns:
        Tensor (N, C, height, width) with the dtype and memory format of ``input``. Under autocast on CUDA, float16 and bfloat16
        inputs give float32, as in ATen. Differentiable any number of times, in reverse and forward mode.

    Raises:
        RuntimeError: ``input`` is not 4-D, or has no channels, rows or columns.
        RuntimeError: both or neither of ``output_size`` and ``scale_factors`` are given, or a sequence without 2 entries.
        RuntimeError: a height or width of the result is below 1 or above 2^31 - 1.
        RuntimeError: a factor is NaN, infinite or not positive.
        TypeError: both ``scale_factors`` and ``scale_factor`` are given.
        NotImplementedError: another dtype.
    """
    return _ops.upsample_nearest2d.vec(input, _pair(output_size), _factors(scale_factors, scale_factor))


@checks_types
def upsample_nearest_exact2d(
    input: Tensor,
    output_size: int | Sequence[int] | None = None,
    scale_factors: float | Sequence[float] | None = None,
    *,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """Resizes images by copying the pixel at each centre, as ``interpolate`` with ``mode='nearest-exact'``.

    The function in PyTorch is :func:`torch.nn.functional.interpolate`, the operator in ATen ``aten::_upsample_nearest_exact2d``.

    Args:
        input: tensor (N, C, H, W), as in :func:`upsample_nearest2d`.
        output_size: height and width of the result in pixels, or one number for both.
        scale_factors: factors of the height and of the width, or one number for both, as in :func:`upsample_nearest2d`.
        scale_factor: another name of ``scale_factors``, as in ``interpolate``.

    Returns:
        As :func:`upsample_nearest2d`.

    Raises:
        TypeError, RuntimeError, NotImplementedError: as :func:`upsample_nearest2d`.
    """
    return _ops.upsample_nearest_exact2d.vec(input, _pair(output_size), _factors(scale_factors, scale_factor))


@checks_types
def upsample_nearest2d_backward(
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """The gradient of :func:`upsample_nearest2d`: each input pixel gets the sum over its copies in the output.

    The semantics are ``aten::upsample_nearest2d_backward``. On CUDA the result is the exact adjoint of the forward. ATen's CUDA
    kernel finds the copies by another formula. It drops or shifts gradients where scales contradict the sizes, or where a
    source index is rounded across a border.

    CPU tensors fall back to ATen. ATen's forward computes the indices of float64 images in more digits than its backward. With
    some scale factors, a gradient then goes to the neighbouring pixel.

    Args:
        grad_output: tensor (N, C, height, width) of float16, bfloat16, float32 or float64, on CUDA also uint8. float16 and
            bfloat16 are summed in float32 and rounded once.
        output_size: (height, width) of the output.
        input_size: (N, C, H, W) of the input.
        scales_h: scale factor of the height that the forward was given. None or a number that is not positive means that it was
            given a size.
        scales_w: the same for the width.

    Returns:
        Tensor of shape ``input_size`` with the dtype and memory format of ``grad_output``. Differentiable any number of times,
        in reverse and forward mode.

    Raises:
        RuntimeError: ``output_size`` does not have 2 entries, or ``input_size`` does not have 4.
        RuntimeError: a height or width is below 1 or above 2^31 - 1.
        RuntimeError: the shape of ``grad_output`` does not match the sizes.
        NotImplementedError: a dtype that the device does not support.
    """
    return _ops.upsample_nearest2d_backward.default(grad_output, output_size, input_size, scales_h, scales_w)


@checks_types
def upsample_nearest_exact2d_backward(
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """The gradient of :func:`upsample_nearest_exact2d`: each input pixel gets the sum over its copies in the output.

    The semantics are ``aten::_upsample_nearest_exact2d_backward``. On CUDA the result is the exact adjoint of the forward, as in
    :func:`upsample_nearest2d_backward`.

    Args:
        grad_output: tensor (N, C, height, width), as in :func:`upsample_nearest2d_backward`.
        output_size: (height, width) of the output.
        input_size: (N, C, H, W) of the input.
        scales_h: scale factor of the height that the forward was given, as in :func:`upsample_nearest2d_backward`.
        scales_w: the same for the width.

    Returns:
        As :func:`upsample_nearest2d_backward`.

    Raises:
        RuntimeError, NotImplementedError: as :func:`upsample_nearest2d_backward`.
    """
    return _ops.upsample_nearest_exact2d_backward.default(grad_output, output_size, input_size, scales_h, scales_w)
