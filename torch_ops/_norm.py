"""Normalisation: of rows by ``layer_norm`` and ``rms_norm``, of channels by ``group_norm``, ``instance_norm`` and ``batch_norm``.

``add_layer_norm`` and ``add_rms_norm`` add a residual in the same pass over memory, and ``group_norm`` applies an activation.

- Statistics and all arithmetic are float32, or float64 for float64 inputs, and results are rounded once. A weight or bias may be
  float32 beside a float16 or bfloat16 input.
- The variance is found from deviations from the mean, so rows far from 0 keep their digits.
- On CUDA, rows are read where they lie, whatever the strides between them. Each is read once, unless it is too long for the
  registers of a block.
- Channels are read in both dense layouts, ``contiguous`` and ``channels_last``, and results have the layout of the input. Other
  layouts are copied. A group is read once, unless it is too large for the shared memory of a block or channels are innermost.
- Results and gradients are bitwise reproducible.
- CPU tensors are normalised by ATen's operators.

``csrc/norm/README.md`` describes the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "rms_norm",
]

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


@checks_types
def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Layer norm of ``input + residual``, and this sum.

    Computes ``sum = input + residual``, rounded to its dtype, and :func:`layer_norm` of ``sum``. Both take one pass over memory, and so
    does their gradient, which includes the gradient of all other uses of ``sum``.

    Args:
        input: float16, bfloat16, float32 or float64, of a shape that ends with ``normalized_shape``.
        residual: Of the shape of ``input``. PyTorch adds a residual of another dtype.
        normalized_shape: The sizes of the dimensions that are normalised together.
        weight: Factors of shape ``normalized_shape``, of the input's dtype, or float32 beside float16 and bfloat16.
        bias: Addends of shape ``normalized_shape``, of the dtype of ``weight`` if both are given.
        eps: Added to the variance.

    Returns:
        ``(normal, sum)``: contiguous tensors with the shape and dtype of ``input``. Differentiable in every tensor, any number of times,
        in reverse and forward mode. Under autocast, PyTorch adds, and the norm is computed in float32.

    Raises:
        RuntimeError: ``input`` does not end with ``normalized_shape``, or a tensor has another shape, dtype or device.
        NotImplementedError: ``input`` is not floating-point.
    """
    sizes = _sizes(normalized_shape)
    return _ops.add_layer_norm.default(input, residual, sizes, weight, bias, eps)


@checks_types
def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """RMS norm of ``input + residual``, and this sum.

    Computes ``sum = input + residual``, rounded to its dtype, and :func:`rms_norm` of ``sum``. Both take one pass over memory, and so
    does their gradient, which includes the gradient of all other uses of ``sum``.

    Args:
        input: float16, bfloat16, float32 or float64, of a shape that ends with ``normalized_shape``.
        residual: Of the shape of ``input``. PyTorch adds a residual of another dtype.
        normalized_shape: The sizes of the dimensions that are normalised together.
        weight: Factors of shape ``normalized_shape``, of the input's dtype, or float32 beside float16 and bfloat16.
        eps: Added to the mean square. Default: the machine epsilon of float32, or of float64 for float64 inputs.

    Returns:
        ``(normal, sum)``: contiguous tensors with the shape and dtype of ``input``. Differentiable in every tensor, any number of times,
        in reverse and forward mode.

    Raises:
        RuntimeError: ``input`` does not end with ``normalized_shape``, or a tensor has another shape, dtype or device.
        NotImplementedError: ``input`` is not floating-point.
    """
    return _ops.add_rms_norm.default(input, residual, _sizes(normalized_shape), weight, eps)


@checks_types
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    activation: Literal["relu", "silu", "gelu"] | None = None,
) -> Tensor:
    """Group norm, as :func:`torch.nn.functional.group_norm`, and then an activation.

    The channels of a sample are divided into groups of neighbours. Computes ``(input - mean) / sqrt(variance + eps)`` with the mean and
    variance of each group, and then ``* weight + bias`` with a factor and an addend of each channel. An activation is applied in the
    same pass, before the result is rounded.

    Args:
        input: float16, bfloat16, float32 or float64, of shape ``(N, C, *)``.
        num_groups: A divisor of ``C``.
        weight: Factors of shape ``(C,)``, of the input's dtype, or float32 beside float16 and bfloat16.
        bias: Addends of shape ``(C,)``, of the dtype of ``weight`` if both are given.
        eps: Added to the variance.
        activation: As ``relu``, ``silu`` or ``gelu`` of :mod:`torch.nn.functional`; ``gelu`` is the exact one. Default: none.

    Returns:
        A tensor with the shape, dtype and dense layout of ``input``. Differentiable in ``input``, ``weight`` and ``bias``, any number
        of times, in reverse and forward mode. Autocast computes in float32, as PyTorch's.

    Raises:
        RuntimeError: ``num_groups`` does not divide the channels, a weight or bias has another shape, dtype or device, or
            ``activation`` is unknown.
        NotImplementedError: ``input`` is not floating-point.
    """
    return _ops.group_norm.default(input, num_groups, weight, bias, eps, activation)


def _check_values(op: str, name: str, values: int, shape: torch.Size) -> None:
    """The variance of one value is not defined."""
    if isinstance(values, int) and values == 1:
        raise ValueError(
            f"{op}: input must have several values for each {name}: expected more than 1, got shape {tuple(shape)}"
        )


@checks_types
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch norm, as :func:`torch.nn.functional.batch_norm`.

    Computes ``(input - mean) / sqrt(variance + eps) * weight + bias`` for each channel. With ``training``, mean and variance are of all
    samples and positions. The running statistics become ``(1 - momentum) * running + momentum * found`` in place, where the found
    variance is divided by one less than the number of values. Otherwise, they are the mean and variance.

    Args:
        input: float16, bfloat16, float32 or float64, of shape ``(N, C, *)``.
        running_mean: Of shape ``(C,)``. May be None with ``training``.
        running_var: The same. Both are given, or neither.
        weight: Factors of shape ``(C,)``, of the input's dtype, or float32 beside float16 and bfloat16.
        bias: Addends of shape ``(C,)``, of the dtype of ``weight`` if both are given.
        training: Whether statistics are of the input.
        momentum: How much the running statistics change.
        eps: Added to the variance.

    Returns:
        A tensor with the shape, dtype and dense layout of ``input``. Differentiable in ``input``, ``weight`` and ``bias``, any number
        of times, in reverse and forward mode.

    Raises:
        RuntimeError: Running statistics are missing, or an argument has another shape, dtype or device.
        ValueError: With ``training``, a channel has one value.
        NotImplementedError: ``input`` is not floating-point.
    """
    if training and input.dim() >= 2:
        _check_values("batch_norm", "channel", input.shape[0] * math.prod(input.shape[2:]), input.shape)
    return _ops.batch_norm.default(input, running_mean, running_var, weight, bias, training, momentum, eps)


@checks_types
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Instance norm, as :func:`torch.nn.functional.instance_norm`.

    Computes ``(input - mean) / sqrt(variance + eps) * weight + bias`` for each channel of each sample: a group norm whose groups have
    one channel. Without ``use_input_stats``, it is a batch norm with the running statistics. Otherwise these become
    ``(1 - momentum) * running + momentum * found`` in place, where the statistics found are averaged over the samples.

    Args:
        input: float16, bfloat16, float32 or float64, of shape ``(N, C, *)``.
        running_mean: Of shape ``(C,)``. May be None with ``use_input_stats``.
        running_var: The same. Both are given, or neither.
        weight: Factors of shape ``(C,)``, of the input's dtype, or float32 beside float16 and bfloat16.
        bias: Addends of shape ``(C,)``, of the dtype of ``weight`` if both are given.
        use_input_stats: Whether statistics are of the input.
        momentum: How much the running statistics change.
        eps: Added to the variance.

    Returns:
        A tensor with the shape, dtype and dense layout of ``input``. Differentiable in ``input``, ``weight`` and ``bias``, any number
        of times, in reverse and forward mode.

    Raises:
        RuntimeError: Running statistics are missing, or an argument has another shape, dtype or device.
        ValueError: With ``use_input_stats``, a channel of a sample has one value.
        NotImplementedError: ``input`` is not floating-point.
    """
    if use_input_stats and input.dim() >= 2:
        _check_values("instance_norm", "channel of a sample", math.prod(input.shape[2:]), input.shape)
    return _ops.instance_norm.default(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
