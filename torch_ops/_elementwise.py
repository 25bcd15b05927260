"""Element-wise operators: ``mul``, ``mul_``, ``axpy`` and ``fma``.

They broadcast and promote types as PyTorch does, support any strides, and give the result the memory format that ATen gives it. float16
and bfloat16 compute in float32 and round once. Results are bitwise reproducible. On CPU tensors the operators call ATen (``fma`` in
floating-point types: ``std::fma``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops._arguments import checks_types, number

__all__ = ["axpy", "fma", "mul", "mul_"]

Number = bool | int | float | complex

_ops = torch.ops.gpuopt


@checks_types
def mul(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Product ``input * other``, with the semantics of :func:`torch.mul`.

    Args:
        input: Tensor of any shape and strides; bool, integer, floating-point or complex.
        other: Tensor whose shape broadcasts with that of ``input``, or a number (a Python or NumPy scalar). A
            zero-dimensional CPU tensor goes with tensors on any device.
        out: Tensor to write to. It is resized if its shape differs. The result must cast to its dtype. It may be
            ``input`` or ``other``, but must not overlap them in part.

    Returns:
        The product in the promoted dtype, or ``out``. It is differentiable in both factors, except with ``out``.

    Raises:
        RuntimeError: Shapes don't broadcast, tensors are on different devices, or ``out`` can't hold the result,
            overlaps an input in part or overlaps itself.
        NotImplementedError: :func:`torch.mul` doesn't support the dtype on the device.
    """
    # Naming the overload avoids an attempt to match the other one first (11 us for a number on an H200's host).
    if isinstance(other, Tensor):
        return _ops.mul.Tensor(input, other) if out is None else _ops.mul.out(input, other, out=out)
    other = number(other)
    return _ops.mul.Scalar(input, other) if out is None else _ops.mul.Scalar_out(input, other, out=out)


@checks_types
def mul_(input: Tensor, other: Tensor | Number) -> Tensor:
    """In-place product ``input *= other``, with the semantics of :meth:`torch.Tensor.mul_`.

    Args:
        input: Tensor to overwrite. No two of its elements may share an address.
        other: Tensor whose shape broadcasts to that of ``input``, or a number.

    Returns:
        ``input``. The operator is differentiable. Autograd keeps a copy of the old ``input`` if ``other`` requires a
        gradient.

    Raises:
        RuntimeError: ``other`` would enlarge ``input``, the dtype of ``input`` can't hold the result, tensors overlap
            in part, or ``input`` is a leaf that requires a gradient.
    """
    return _ops.mul_.Tensor(input, other) if isinstance(other, Tensor) else _ops.mul_.Scalar(input, number(other))


@checks_types
def axpy(x: Tensor, y: Tensor, *, alpha: Number | Tensor = 1) -> Tensor:
    """``alpha * x + y``, with the semantics of ``torch.add(y, x, alpha=alpha)``.

    On CUDA, floating-point types round the product and the sum together (fused multiply-add). float16 and bfloat16
    do so in float32, and round once more to store.

    Args:
        x: Tensor of any shape, strides and dtype.
        y: Tensor whose shape broadcasts with that of ``x``. If ``x`` or ``y`` is a zero-dimensional CPU tensor and
            the other one is on another device, the scalar is rounded to the result's dtype first. (:func:`torch.add`
            doesn't round it in float16 and bfloat16.)
        alpha: Number, or zero-dimensional tensor that requires no gradient. The result's dtype must be able to hold
            it: no float for integers, no complex number for real results.

    Returns:
        The sum in the promoted dtype. It is differentiable in ``x`` and ``y``.

    Raises:
        RuntimeError: Shapes don't broadcast, tensors are on different devices, or ``alpha`` is of the wrong kind or
            out of range.
    """
    return _ops.axpy(x, y, alpha=number(alpha))


@checks_types
def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Fused multiply-add ``a * b + c``.

    float32 and float64 round once (IEEE 754 fusedMultiplyAdd). float16 and bfloat16 compute in float32, and round
    once more to store. Integers wrap.

    Args:
        a: Tensor of any shape and strides; integer, floating-point or complex.
        b: Tensor whose shape broadcasts with the others.
        c: Tensor whose shape broadcasts with the others. A zero-dimensional CPU tensor, here or as ``a`` or ``b``,
            goes with tensors on any device, and is rounded to the result's dtype first.

    Returns:
        The result in the promoted dtype, with the memory format of ``torch.addcmul(c, a, b)``. It is differentiable
        in all three arguments. Autocast doesn't change it.

    Raises:
        RuntimeError: Shapes don't broadcast, or tensors are on different devices.
        NotImplementedError: All arguments are bool, as in :func:`torch.addcmul`.
    """
    return _ops.fma(a, b, c)
