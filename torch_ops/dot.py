"""Dot products: ``dot``, ``vdot``, ``dot_rows`` and ``dot_fast_atomic``.

All of them take any strides, 0 included, without a copy. On CUDA half types are multiplied and summed in float32 and rounded once, so
that nothing overflows on the way; float32 is summed in float32, float64 in float64, complex numbers in their own parts, and integers
wrap around in their own dtype (ATen's CUDA kernel takes none). Conjugated views are read as they are, negated ones by way of a copy.
Apart from ``dot_fast_atomic`` they are bitwise repeatable on one kind of GPU, where ATen's ``dot`` calls cuBLAS: blocks leave partial
sums in a workspace, which are added up in a fixed order (csrc/dot/README.md), so that no two of them race for the result. The order
of additions, and with it the rounding, depends on size, strides, alignment and the number of multiprocessors, and need not be the
same in ``dot_rows`` as in ``dot``.

On CPU tensors they call ATen.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["dot", "dot_fast_atomic", "dot_rows", "vdot"]

_ops = torch.ops.gpuopt


def dot(self: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of ``self[i] * tensor[i]``, the semantics of :func:`torch.dot`.

    Args:
        self: vector; uint8, int8 to int64, float16, bfloat16, float32, float64, complex64 or complex128.
        tensor: vector of ``self``'s size and dtype, on its device. There is no broadcasting or type promotion.
        out: tensor of ``self``'s dtype to write to. It is resized when it has dimensions. It may share memory with ``self`` and
            ``tensor``, which are read before it is written.

    Returns:
        Tensor without dimensions, of ``self``'s dtype, or ``out``; 0 for empty vectors. Differentiable in both vectors (not with
        ``out``), any number of times, forwards and backwards. Under :func:`torch.vmap` all examples are one call of
        :func:`dot_rows`. Under autocast on CUDA vectors of two floating-point dtypes meet in the wider one.

    Raises:
        RuntimeError: arguments that aren't vectors, or of different sizes, dtypes or devices; an ``out`` of another dtype or on
            another device, or one where gradients are asked for.
        NotImplementedError: other dtypes, bool among them.
    """
    if out is not None:
        return _ops.dot.out(self, tensor, out=out)
    return _ops.dot.default(self, tensor)


def vdot(self: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of ``conj(self[i]) * other[i]``, the semantics of :func:`torch.vdot`: :func:`dot` where the dtype is real.

    Args:
        self: vector, as in :func:`dot`. It is conjugated as it is read, without a copy.
        other: vector of ``self``'s size and dtype, on its device.
        out: tensor to write to, as in :func:`dot`.

    Returns:
        Tensor without dimensions, of ``self``'s dtype, or ``out``, as in :func:`dot`.

    Raises:
        RuntimeError, NotImplementedError: as :func:`dot`.
    """
    if out is not None:
        return _ops.vdot.out(self, other, out=out)
    return _ops.vdot.default(self, other)


def dot_rows(self: Tensor, tensor: Tensor) -> Tensor:
    """The dot product of each row of ``self`` with the same row of ``tensor``, the semantics of ``torch.vmap(torch.dot)``.

    Args:
        self: matrix of shape (rows, n), of a dtype that :func:`dot` takes. Either size may be 0, and rows may be one row, expanded.
        tensor: matrix of ``self``'s shape and dtype, on its device. There is no broadcasting: ``expand`` a vector to all rows, which
            takes no memory. For products with ``conj(self)``, pass ``self.conj()``, which doesn't either.

    Returns:
        Contiguous vector of ``rows`` values in ``self``'s dtype, zeros where n is 0. Differentiable in both matrices, any number of
        times, forwards and backwards. Autocast promotes as in :func:`dot`.

    Raises:
        RuntimeError: arguments that aren't matrices, or of different shapes, dtypes or devices.
        NotImplementedError: other dtypes, bool among them.
    """
    return _ops.dot_rows.default(self, tensor)


def dot_fast_atomic(self: Tensor, tensor: Tensor) -> Tensor:
    """:func:`dot` whose blocks add what they have to the result with atomic operations, instead of leaving it to a second launch.

    It adds as ATen's ``fastAtomicAdd`` does (aten/src/ATen/native/cuda/KernelUtils.cuh): half types by an addition of a pair of values,
    of which the other one is zero.

    It is neither repeatable nor, in half types, accurate: blocks add in any order, and in float16 and bfloat16 the result is rounded
    after each of these additions, so that a sum may overflow on the way to one that wouldn't. On an H200 it takes 1.9 us for 2^17 values
    in bfloat16, with a relative error of 6e-3, where :func:`dot` takes 2.4 us, with 2e-3; for 2^28 values 255 us and 2.4e-2 where
    :func:`dot` takes 251 us and 1.6e-5 (csrc/dot/README.md has more). Take :func:`dot` unless a measurement says otherwise.

    Args:
        self: vector; float16, bfloat16, float32 or float64.
        tensor: vector of ``self``'s size and dtype, on its device.

    Returns:
        Tensor without dimensions, of ``self``'s dtype; 0 for empty vectors. Differentiable as :func:`dot`, whose tangents it has.
        Under :func:`torch.vmap` it is :func:`dot_rows`, which is repeatable. On CPU tensors it is :func:`torch.dot`.

    Raises:
        RuntimeError: arguments that :func:`dot` refuses; on CUDA any call under :func:`torch.use_deterministic_algorithms`, which
            with ``warn_only=True`` only warns.
        NotImplementedError: other dtypes.
    """
    return _ops.dot_fast_atomic.default(self, tensor)
