"""Normalisation of rows: ``layer_norm`` and ``rms_norm``.

- Statistics and all arithmetic are float32, or float64 for float64 inputs, and results are rounded once. A weight or bias may be
  float32 beside a float16 or bfloat16 input.
- The variance is found from deviations from the mean, so rows far from 0 keep their digits.
- On CUDA, rows are read where they lie, whatever the strides between them. Each is read once, unless it is too long for the
  registers of a block.
- Results and gradients are bitwise reproducible.
- CPU tensors are normalised by ATen's operators.

``csrc/norm/README.md`` describes the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = ["layer_norm", "rms_norm"]

_ops = torch.ops.gpuopt


def _sizes(normalized_shape: int | Sequence[int]) -> list[int]:
    return [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)


@checks_types
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer norm over the last dimensions, as :func:`torch.nn.functional.layer_norm`.

    Computes ``(input - mean) / sqrt(variance + eps) * weight + bias``, where the variance is divided by the number of values.

    Args:
        input: float16, bfloat16, float32 or float64, of a shape that ends with ``normalized_shape``.
        normalized_shape: The sizes of the dimensions that are normalised together.
        weight: Factors of shape ``normalized_shape``, of the input's dtype, or float32 beside float16 and bfloat16.
        bias: Addends of shape ``normalized_shape``, of the dtype of ``weight`` if both are given.
        eps: Added to the variance.

    Returns:
        A contiguous tensor with the shape and dtype of ``input``. Differentiable in ``input``, ``weight`` and ``bias``, any number of
        times, in reverse and forward mode. Autocast computes in float32, as PyTorch's.

    Raises:
        RuntimeError: ``input`` does not end with ``normalized_shape``, or a weight or bias has another shape, dtype or device.
        NotImplementedError: ``input`` is not floating-point.
    """
    return _ops.layer_norm.default(input, _sizes(normalized_shape), weight, bias, eps)


@checks_types
def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """RMS norm over the last dimensions, as :func:`torch.nn.functional.rms_norm`.

    Computes ``input / sqrt(mean(input ** 2) + eps) * weight``.

    Args:
        input: float16, bfloat16, float32 or float64, of a shape that ends with ``normalized_shape``.
        normalized_shape: The sizes of the dimensions that are normalised together.
        weight: Factors of shape ``normalized_shape``, of the input's dtype, or float32 beside float16 and bfloat16.
        eps: Added to the mean square. Default: the machine epsilon of float32, or of float64 for float64 inputs.

    Returns:
        A contiguous tensor with the shape and dtype of ``input``. Differentiable in ``input`` and ``weight``, any number of times, in
        reverse and forward mode.

    Raises:
        RuntimeError: ``input`` does not end with ``normalized_shape``, or the weight has another shape, dtype or device.
        NotImplementedError: ``input`` is not floating-point.
    """
    return _ops.rms_norm.default(input, _sizes(normalized_shape), weight, eps)
