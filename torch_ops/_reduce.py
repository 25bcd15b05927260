"""Reductions: ``reduce_sum``, ``reduce_mean``, ``reduce_max`` and ``reduce_min``.

Each function reduces one dimension, several dimensions or all of them, for a tensor with any strides.

- Results are contiguous.
- float16, bfloat16 and float32 accumulate in float32, float64 in float64. complex64 accumulates its
  parts in float32, complex128 in float64. Integers and bools accumulate in int64 and wrap around.
- On CUDA, results are bitwise reproducible on one kind of GPU.
- On CPU tensors, the functions call ATen.

``csrc/reduce/README.md`` describes the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = ["reduce_max", "reduce_mean", "reduce_min", "reduce_sum"]

Dims = int | Sequence[int] | None

_ops = torch.ops.gpuopt


def _dims(dim: Dims, axis: Dims) -> Any:
    if axis is not None:
        if dim is not None:
            raise TypeError(f"reduce: axis is another name of dim: expected one of them, got dim={dim} and axis={axis}")
        dim = axis
    # torch.compile(dynamic=True) makes an int a SymInt, which the schema's int[1]? accepts only inside a list.
    return dim if dim is None or isinstance(dim, (list, tuple)) else [dim]


@checks_types
def reduce_sum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Sum over dimensions. Same semantics as :func:`torch.sum`.

    Args:
        input: Tensor of any shape; bool, integer, floating-point or complex. The sum of no values is 0.
        dim: Dimension or dimensions to reduce. Negative numbers count from the last dimension. None or an empty
            sequence means all dimensions. A zero-dimensional tensor accepts 0 and -1.
        keepdim: If True, reduced dimensions stay in the result with size 1.
        axis: Another name of ``dim``, as in PyTorch. At most one of them may be given.
        dtype: dtype of the result. Each value is converted when it is loaded. On CUDA no converted copy of ``input``
            is made, except of uint16, uint32, uint64 and float8. Default: the dtype of ``input``, or int64 for bool
            and integers.
        out: Tensor to write to. It is resized if its shape differs. If ``dtype`` is given, ``out`` must have that
            dtype; if not, the values are converted to the dtype of ``out``. ``out`` may be the same memory as
            ``input`` or separate memory, but not overlap ``input`` in part.

    Returns:
        The sum, or ``out``. It is differentiable, unless ``out`` is given.

    Raises:
        TypeError: Both ``dim`` and ``axis`` are given.
        IndexError: ``input`` has no such ``dim``.
        RuntimeError: ``dim`` names a dimension twice; ``out`` is on another device, has another dtype than ``dtype``,
            or overlaps itself or a part of ``input``; ``input`` requires a gradient and ``out`` is given, or
            ``dtype`` is neither floating-point nor complex.
        NotImplementedError: :func:`torch.sum` does not support the dtype on this device.
    """
    if out is not None:
        return _ops.reduce_sum.out(input, _dims(dim, axis), keepdim, dtype=dtype, out=out)
    return _ops.reduce_sum.default(input, _dims(dim, axis), keepdim, dtype=dtype)


@checks_types
def reduce_mean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Mean over dimensions. Same semantics as :func:`torch.mean`.

    Args:
        input: Tensor of any shape; floating-point or complex, or any dtype if ``dtype`` is given. The mean of no
            values is NaN.
        dim: Dimension or dimensions to reduce, as in :func:`reduce_sum`.
        keepdim: If True, reduced dimensions stay in the result with size 1.
        axis: Another name of ``dim``, as in PyTorch. At most one of them may be given.
        dtype: dtype of the result; floating-point or complex. Each value is converted when it is loaded, as in
            :func:`reduce_sum`. Default: the dtype of ``input``.
        out: Tensor to write to; floating-point or complex. Otherwise as in :func:`reduce_sum`.

    Returns:
        The mean, or ``out``. float16 and bfloat16 are rounded once, after the division. The result is differentiable,
        unless ``out`` is given.

    Raises:
        TypeError: Both ``dim`` and ``axis`` are given.
        IndexError: ``input`` has no such ``dim``.
        RuntimeError: ``dim`` names a dimension twice; ``out`` is neither floating-point nor complex;
            :func:`reduce_sum` would refuse ``out``; ``input`` is bool or integer and ``dtype`` is not given, or
            ``dtype`` is neither floating-point nor complex (torch 2.15: NotImplementedError, as :func:`torch.mean`).
        NotImplementedError: :func:`torch.mean` does not support the dtype on this device.
    """
    if out is not None:
        return _ops.reduce_mean.out(input, _dims(dim, axis), keepdim, dtype=dtype, out=out)
    return _ops.reduce_mean.default(input, _dims(dim, axis), keepdim, dtype=dtype)


@checks_types
def reduce_max(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, axis: Dims = None, out: Tensor | None = None
) -> Tensor:
    """Maximum over dimensions. Same semantics as :func:`torch.amax`.

    Args:
        input: Tensor with at least one value in each reduced dimension; bool, integer or floating-point. If a value
            is NaN, the maximum is NaN.
        dim: Dimension or dimensions to reduce, as in :func:`reduce_sum`.
        keepdim: If True, reduced dimensions stay in the result with size 1.
        axis: Another name of ``dim``, as in PyTorch. At most one of them may be given.
        out: Tensor to write to, of the dtype of ``input``. Otherwise as in :func:`reduce_sum`.

    Returns:
        The maximum in the dtype of ``input``, or ``out``. It is differentiable, unless ``out`` is given. Values that
        tie for the maximum share its gradient equally.

    Raises:
        TypeError: Both ``dim`` and ``axis`` are given.
        IndexError: ``input`` has no such ``dim``, or that dimension has size 0.
        RuntimeError: ``input`` is empty and ``dim`` is not given; ``dim`` names a dimension twice; ``out`` is on
            another device, has another dtype than ``input``, or overlaps itself or a part of ``input``.
        NotImplementedError: ``input`` is complex, or :func:`torch.amax` does not support its dtype on this device.
    """
    if out is not None:
        return _ops.reduce_max.out(input, _dims(dim, axis), keepdim, out=out)
    return _ops.reduce_max.default(input, _dims(dim, axis), keepdim)


@checks_types
def reduce_min(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, axis: Dims = None, out: Tensor | None = None
) -> Tensor:
    """Minimum over dimensions. Same semantics as :func:`torch.amin`.

    Args:
        input: Tensor with at least one value in each reduced dimension; bool, integer or floating-point. If a value
            is NaN, the minimum is NaN.
        dim: Dimension or dimensions to reduce, as in :func:`reduce_sum`.
        keepdim: If True, reduced dimensions stay in the result with size 1.
        axis: Another name of ``dim``, as in PyTorch. At most one of them may be given.
        out: Tensor to write to, of the dtype of ``input``. Otherwise as in :func:`reduce_sum`.

    Returns:
        The minimum in the dtype of ``input``, or ``out``. It is differentiable, unless ``out`` is given. Values that
        tie for the minimum share its gradient equally.

    Raises:
        TypeError: Both ``dim`` and ``axis`` are given.
        IndexError: As in :func:`reduce_max`.
        RuntimeError: As in :func:`reduce_max`.
        NotImplementedError: As in :func:`reduce_max`.
    """
    if out is not None:
        return _ops.reduce_min.out(input, _dims(dim, axis), keepdim, out=out)
    return _ops.reduce_min.default(input, _dims(dim, axis), keepdim)
