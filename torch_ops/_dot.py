"""Dot products: ``dot``, ``vdot``, ``dot_rows`` and ``dot_fast_atomic``.

All functions read operands with any strides, 0 included, without a copy. On CUDA:

- float16 and bfloat16 are multiplied and summed in float32. The result is rounded once, so no intermediate sum overflows.
- float32 is summed in float32, float64 in float64. Complex numbers are summed in the type of their parts.
- Integers wrap around in their own dtype. (ATen's CUDA kernel has no integers.)
- Conjugated views are read without a copy. Negated views are copied first.
- Results are bitwise reproducible on one kind of GPU, except for ``dot_fast_atomic``. (ATen calls cuBLAS.) Blocks write
  partial sums to a workspace, and a second launch adds them in a fixed order.
- Rounding depends on the order of additions, hence on size, strides, alignment and the number of SMs. ``dot_rows`` may
  round differently from ``dot``.

On CPU tensors, the functions call ATen. ``csrc/dot/README.md`` describes the kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = ["dot", "dot_fast_atomic", "dot_rows", "vdot"]

_ops = torch.ops.gpuopt


@checks_types
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of ``input[i] * tensor[i]``. Same semantics as :func:`torch.dot`.

    Args:
        input: Vector of shape (n,); uint8, int8 to int64, float16, bfloat16, float32, float64, complex64 or complex128.
        tensor: Vector with the size, dtype and device of ``input``. There is no broadcasting and no type promotion.
        out: Tensor of the dtype of ``input`` to write to. It is resized to a zero-dimensional tensor. It may share
            memory with ``input`` and ``tensor``, which are read before it is written.

    Returns:
        Zero-dimensional tensor of the dtype of ``input``, or ``out``. The result for empty vectors is 0. It is
        differentiable in both vectors, in forward and reverse mode and to any order, unless ``out`` is given. Under
        :func:`torch.vmap`, all examples become one call of :func:`dot_rows`. Under autocast on CUDA, vectors of two
        floating-point dtypes are promoted to the wider one.

    Raises:
        RuntimeError: An argument is not a vector; sizes, dtypes or devices differ; ``out`` has another dtype or device;
            ``out`` is given and a vector requires a gradient.
        NotImplementedError: The dtype is not in the list above, for example bool.
    """
    if out is not None:
        return _ops.dot.out(input, tensor, out=out)
    return _ops.dot.default(input, tensor)


@checks_types
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of ``conj(input[i]) * other[i]``. Same semantics as :func:`torch.vdot`.

    For real dtypes this is :func:`dot`.

    Args:
        input: Vector, as in :func:`dot`. The kernel conjugates it while it reads, so no copy is made.
        other: Vector with the size, dtype and device of ``input``.
        out: Tensor to write to, as in :func:`dot`.

    Returns:
        Zero-dimensional tensor of the dtype of ``input``, or ``out``. Everything else is as in :func:`dot`.

    Raises:
        RuntimeError: As in :func:`dot`.
        NotImplementedError: As in :func:`dot`.
    """
    if out is not None:
        return _ops.vdot.out(input, other, out=out)
    return _ops.vdot.default(input, other)


@checks_types
def dot_rows(input: Tensor, tensor: Tensor) -> Tensor:
    """Dot product of each row of ``input`` with the same row of ``tensor``.

    Same semantics as ``torch.vmap(torch.dot)``. For products with ``conj(input)``, pass ``input.conj()``, which
    makes no copy.

    Args:
        input: Matrix of shape (rows, n), of a dtype that :func:`dot` supports. Either size may be 0.
        tensor: Matrix with the shape, dtype and device of ``input``. There is no broadcasting. To multiply every row by
            one vector, ``expand`` the vector, which takes no memory.

    Returns:
        Contiguous vector of shape (rows,) in the dtype of ``input``; zeros if n is 0. It is differentiable in both
        matrices, in forward and reverse mode and to any order. Autocast promotes as in :func:`dot`.

    Raises:
        RuntimeError: An argument is not a matrix; shapes, dtypes or devices differ.
        NotImplementedError: :func:`dot` does not support the dtype.
    """
    return _ops.dot_rows.default(input, tensor)


@checks_types
def dot_fast_atomic(input: Tensor, tensor: Tensor) -> Tensor:
    """Dot product whose blocks add to the result atomically, without a second launch.

    Results are neither reproducible nor, in float16 and bfloat16, accurate. Blocks add in any order. For float16 and
    bfloat16 every addition rounds to that dtype, and an intermediate sum may overflow although the final one would not.

    Each addition is the one of ATen's ``fastAtomicAdd`` (aten/src/ATen/native/cuda/KernelUtils.cuh): for float16 and
    bfloat16, an addition of two values at once, where the other value adds nothing.

    Times and relative errors on an H200 in bfloat16 (``csrc/dot/README.md`` has more):

    ======  ===================  ====================
    values  ``dot_fast_atomic``  :func:`dot`
    ======  ===================  ====================
    2^17    1.9 us, error 6e-3   2.4 us, error 2e-3
    2^28    255 us, error 2e-2   251 us, error 1.6e-5
    ======  ===================  ====================

    Use :func:`dot` unless you have measured that this function is faster.

    Args:
        input: Vector of shape (n,); float16, bfloat16, float32 or float64.
        tensor: Vector with the size, dtype and device of ``input``.

    Returns:
        Zero-dimensional tensor of the dtype of ``input``; 0 for empty vectors. It is differentiable as :func:`dot` is,
        and its forward-mode tangents are computed by :func:`dot`. Under :func:`torch.vmap` it is :func:`dot_rows`, which
        is reproducible. On CPU tensors it is :func:`torch.dot`.

    Raises:
        RuntimeError: :func:`dot` would refuse the arguments. On CUDA, any call under
            :func:`torch.use_deterministic_algorithms`; with ``warn_only=True`` the call only warns.
        NotImplementedError: Another dtype than these four.
    """
    return _ops.dot_fast_atomic.default(input, tensor)
