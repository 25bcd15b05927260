"""Nearest-neighbour upsampling of images: ``upsample_nearest2d`` and ``upsample_nearest_exact2d``, with their backward.

Every output pixel is a copy of one input pixel; sizes may also shrink. The two differ in which pixel that is: along each axis,
for output index ``o`` and a step ``s`` (1 / scale factor, or else input size / output size), ``floor(o * s)``, which is OpenCV's
INTER_NEAREST and ``mode='nearest'``, or ``floor((o + 0.5) * s)``, which is Pillow's and scikit-image's and
``mode='nearest-exact'``; never more than the last index. On CUDA indices are computed in float32, an axis whose size stays the
same is copied whatever the factor, and results are bitwise repeatable. On CPU tensors the operators call ATen.

Results have the memory format of their input: channels_last stays channels_last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

__all__ = [
    "upsample_nearest2d",
    "upsample_nearest2d_backward",
    "upsample_nearest_exact2d",
    "upsample_nearest_exact2d_backward",
]

_ops = torch.ops.gpuopt

Number = TypeVar("Number", int, float)


def _pair(value: Number | Sequence[Number] | None) -> Sequence[Number] | None:
    """One for the height and one for the width."""
    return value if value is None or isinstance(value, (list, tuple)) else [value, value]


def upsample_nearest2d(
    input: Tensor,
    output_size: int | Sequence[int] | None = None,
    scale_factors: float | Sequence[float] | None = None,
) -> Tensor:
    """Nearest-neighbour upsampling, the semantics of :func:`torch.nn.functional.interpolate` with ``mode='nearest'``
    (``aten::upsample_nearest2d``).

    Args:
        input: tensor (N, C, H, W) of float16, bfloat16, float32, float64 or uint8. N may be 0, the others may not.
        output_size: height and width of the result, or one number for both.
        scale_factors: factors of the height and of the width, or one number for both. The result has
            floor(size * factor) rows or columns, and the step between source pixels is 1 / factor. Exactly one of
            ``output_size`` and ``scale_factors`` is given.

    Returns:
        Tensor (N, C, height, width) of ``input``'s dtype and memory format (float32 for half types under autocast on CUDA, as
        ATen's). Differentiable any number of times, forwards and backwards.

    Raises:
        RuntimeError: an ``input`` that is not 4-D or has no channels, rows or columns; both or neither of ``output_size`` and
            ``scale_factors``, or not one or two numbers; a height or width of the result below 1 or above 2^31 - 1; a factor
            that is NaN, infinite or not positive.
        NotImplementedError: other dtypes.
    """
    return _ops.upsample_nearest2d.vec(input, _pair(output_size), _pair(scale_factors))


def upsample_nearest_exact2d(
    input: Tensor,
    output_size: int | Sequence[int] | None = None,
    scale_factors: float | Sequence[float] | None = None,
) -> Tensor:
    """Nearest-neighbour upsampling by pixel centres, the semantics of :func:`torch.nn.functional.interpolate` with
    ``mode='nearest-exact'`` (``aten::_upsample_nearest_exact2d``).

    Args:
        input: tensor (N, C, H, W), as in :func:`upsample_nearest2d`.
        output_size: height and width of the result, or one number for both.
        scale_factors: factors of the height and of the width, or one number for both, as in :func:`upsample_nearest2d`.

    Returns:
        As :func:`upsample_nearest2d`.

    Raises:
        RuntimeError, NotImplementedError: as :func:`upsample_nearest2d`.
    """
    return _ops.upsample_nearest_exact2d.vec(input, _pair(output_size), _pair(scale_factors))


def upsample_nearest2d_backward(
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """The gradient of :func:`upsample_nearest2d`, the semantics of ``aten::upsample_nearest2d_backward``: each input pixel's is
    the sum over the output pixels that were copied from it.

    On CUDA it is the exact adjoint of this library's forward. ATen finds the borders of those sums by a formula of its own there;
    the two agree unless scales contradict the sizes or a step is rounded across a border, where ATen drops or shifts gradients.
    On the CPU both are ATen's, whose forward reads float64 images by indices of more digits than its backward: some scales send
    a pixel's gradient to its neighbour.

    Args:
        grad_output: tensor (N, C, height, width) of float16, bfloat16, float32 or float64; on CUDA also uint8. Half types are
            summed in float32 and rounded once.
        output_size: (height, width) of the output.
        input_size: (N, C, H, W) of the input.
        scales_h: the scale factor of the height that forward was given, if any; one that is not positive counts as none.
        scales_w: the same of the width.

    Returns:
        Tensor of shape ``input_size`` with ``grad_output``'s dtype and memory format. Differentiable any number of times,
        forwards and backwards.

    Raises:
        RuntimeError: an ``output_size`` without 2 entries or an ``input_size`` without 4; a height or width below 1 or above
            2^31 - 1; a ``grad_output`` of another shape than these say.
        NotImplementedError: dtypes that are not taken on the device.
    """
    return _ops.upsample_nearest2d_backward.default(grad_output, output_size, input_size, scales_h, scales_w)


def upsample_nearest_exact2d_backward(
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """The gradient of :func:`upsample_nearest_exact2d`, the semantics of ``aten::_upsample_nearest_exact2d_backward``, and the
    exact adjoint of forward as in :func:`upsample_nearest2d_backward`.

    Args:
        grad_output: tensor (N, C, height, width), as in :func:`upsample_nearest2d_backward`.
        output_size: (height, width) of the output.
        input_size: (N, C, H, W) of the input.
        scales_h: the scale factor of the height that forward was given, if any; one that is not positive counts as none.
        scales_w: the same of the width.

    Returns:
        As :func:`upsample_nearest2d_backward`.

    Raises:
        RuntimeError, NotImplementedError: as :func:`upsample_nearest2d_backward`.
    """
    return _ops.upsample_nearest_exact2d_backward.default(grad_output, output_size, input_size, scales_h, scales_w)
