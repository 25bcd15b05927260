"""Reductions: ``reduce_sum``, ``reduce_mean``, ``reduce_max`` and ``reduce_min``.

All of them reduce one dimension, several or all, and take any strides. Half types accumulate in
float32, float32 in float32, float64 in float64, integers in int64 with wrap-around. Results are
contiguous. On CUDA they are bitwise repeatable. On CPU tensors they call ATen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["reduce_max", "reduce_mean", "reduce_min", "reduce_sum"]

Dims = int | Sequence[int] | None

_ops = torch.ops.gpuopt


def _dims(dim: Dims) -> Sequence[int] | None:
    # torch.compile(dynamic=True) makes a SymInt of an int, which int[1]? takes only within a list.
    return dim if dim is None or isinstance(dim, (list, tuple)) else [dim]


def reduce_sum(
    self: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Sum over dimensions, the semantics of :func:`torch.sum`.

    Args:
        self: tensor of any shape; bool, integer, floating-point or complex. The sum of no values
            is 0.
        dim: dimension or dimensions to reduce, negative ones counted from the last. None or an
            empty sequence: all. A zero-dimensional tensor takes 0 and -1.
        keepdim: whether reduced dimensions stay, with size 1.
        dtype: dtype of the result. Each value is converted to it on loading; on CUDA there is no
            converted copy of ``self`` (but of uint16, uint32, uint64 and float8). Default:
            ``self``'s, or int64 for bool and integers.
        out: tensor to write to. It is resized when its shape differs. Its dtype must be ``dtype``
            where that is given, and decides the computation where it isn't. It must not overlap
            ``self`` in part.

    Returns:
        The sum, or ``out``. Differentiable (not with ``out``).

    Raises:
        IndexError: a ``dim`` that ``self`` doesn't have.
        RuntimeError: a dimension named twice, an ``out`` on another device, of another dtype than
            ``dtype``, or that overlaps ``self`` in part or itself; a ``dtype`` that has no
            gradients when ``self`` requires one.
        NotImplementedError: dtypes that :func:`torch.sum` doesn't take on the device.
    """
    if out is not None:
        return _ops.reduce_sum.out(self, _dims(dim), keepdim, dtype=dtype, out=out)
    return _ops.reduce_sum.default(self, _dims(dim), keepdim, dtype=dtype)


def reduce_mean(
    self: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Mean over dimensions, the semantics of :func:`torch.mean`.

    Args:
        self: tensor of any shape; floating-point or complex, or any dtype where ``dtype`` is
            given. The mean of no values is NaN.
        dim: dimension or dimensions to reduce, as in :func:`reduce_sum`.
        keepdim: whether reduced dimensions stay, with size 1.
        dtype: dtype of the result, floating-point or complex. Each value is converted to it on
            loading, as in :func:`reduce_sum`. Default: ``self``'s.
        out: tensor to write to, floating-point or complex; otherwise as in :func:`reduce_sum`.

    Returns:
        The mean, or ``out``. Half types are rounded once, after the division. Differentiable (not
        with ``out``).

    Raises:
        IndexError: a ``dim`` that ``self`` doesn't have.
        RuntimeError: bool or integers without ``dtype``, a ``dtype`` or ``out`` that is neither
            floating-point nor complex, a dimension named twice, and an ``out`` that
            :func:`reduce_sum` doesn't take.
        NotImplementedError: dtypes that :func:`torch.mean` doesn't take on the device.
    """
    if out is not None:
        return _ops.reduce_mean.out(self, _dims(dim), keepdim, dtype=dtype, out=out)
    return _ops.reduce_mean.default(self, _dims(dim), keepdim, dtype=dtype)


def reduce_max(self: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Maximum over dimensions, the semantics of :func:`torch.amax`.

    Args:
        self: tensor with at least one value in each reduced dimension; bool, integer or
            floating-point. NaN propagates.
        dim: dimension or dimensions to reduce, as in :func:`reduce_sum`.
        keepdim: whether reduced dimensions stay, with size 1.
        out: tensor of ``self``'s dtype to write to; otherwise as in :func:`reduce_sum`.

    Returns:
        The maximum in ``self``'s dtype, or ``out``. Differentiable (not with ``out``): values that
        tie for the maximum share its gradient equally.

    Raises:
        IndexError: a ``dim`` that ``self`` doesn't have or whose size is 0.
        RuntimeError: an empty ``self`` without ``dim``, a dimension named twice, an ``out`` on
            another device, of another dtype than ``self``, or that overlaps ``self`` in part or
            itself.
        NotImplementedError: complex and other dtypes that :func:`torch.amax` doesn't take on the
            device.
    """
    if out is not None:
        return _ops.reduce_max.out(self, _dims(dim), keepdim, out=out)
    return _ops.reduce_max.default(self, _dims(dim), keepdim)


def reduce_min(self: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Minimum over dimensions, the semantics of :func:`torch.amin`.

    Args:
        self: tensor with at least one value in each reduced dimension; bool, integer or
            floating-point. NaN propagates.
        dim: dimension or dimensions to reduce, as in :func:`reduce_sum`.
        keepdim: whether reduced dimensions stay, with size 1.
        out: tensor of ``self``'s dtype to write to; otherwise as in :func:`reduce_sum`.

    Returns:
        The minimum in ``self``'s dtype, or ``out``. Differentiable (not with ``out``): values that
        tie for the minimum share its gradient equally.

    Raises:
        IndexError, RuntimeError, NotImplementedError: as :func:`reduce_max`.
    """
    if out is not None:
        return _ops.reduce_min.out(self, _dims(dim), keepdim, out=out)
    return _ops.reduce_min.default(self, _dims(dim), keepdim)
