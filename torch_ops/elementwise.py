"""Element-wise operators: ``mul``, ``mul_``, ``axpy`` and ``fma``.

All of them broadcast and promote types as PyTorch does, take any strides, and keep ATen's choice
of the output's memory format. Half types compute in float32 and round once. Results are bitwise
repeatable. On CPU tensors they call ATen (``fma`` in floating-point types: ``std::fma``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops._arguments import number

__all__ = ["axpy", "fma", "mul", "mul_"]

Number = bool | int | float | complex

_ops = torch.ops.gpuopt


def mul(self: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Product ``self * other``, the semantics of :func:`torch.mul`.

    Args:
        self: tensor of any shape; bool, integer, floating-point or complex.
        other: tensor whose shape broadcasts with ``self``'s, or a number (NumPy's too). A zero-dimensional CPU
            tensor goes with tensors on any device.
        out: tensor to write to. It is resized when its shape differs, and must have a dtype that
            the result casts to. It may be ``self`` or ``other``, not overlap them in part.

    Returns:
        The product in the promoted dtype, or ``out``. Differentiable in both factors (not with
        ``out``).

    Raises:
        RuntimeError: shapes that don't broadcast, tensors on different devices, an ``out`` that
            can't hold the result, overlaps its inputs in part or itself.
        NotImplementedError: dtypes that :func:`torch.mul` doesn't take on the device.
    """
    # Naming the overload spares the call a failed match (11 us for a number on an H200's host).
    if isinstance(other, Tensor):
        return _ops.mul.Tensor(self, other) if out is None else _ops.mul.out(self, other, out=out)
    other = number(other)
    return _ops.mul.Scalar(self, other) if out is None else _ops.mul.Scalar_out(self, other, out=out)


def mul_(self: Tensor, other: Tensor | Number) -> Tensor:
    """In-place product ``self *= other``, the semantics of :meth:`torch.Tensor.mul_`.

    Args:
        self: tensor to overwrite, with every element at an address of its own.
        other: tensor whose shape broadcasts to ``self``'s, or a number.

    Returns:
        ``self``. Differentiable; autograd keeps a copy of the old ``self`` when ``other`` requires
        a gradient.

    Raises:
        RuntimeError: an ``other`` that would enlarge ``self``, a result that ``self``'s dtype can't
            hold, overlapping memory, or a leaf that requires a gradient.
    """
    return _ops.mul_.Tensor(self, other) if isinstance(other, Tensor) else _ops.mul_.Scalar(self, number(other))


def axpy(x: Tensor, y: Tensor, *, alpha: Number | Tensor = 1) -> Tensor:
    """``alpha * x + y``, the semantics of ``torch.add(y, x, alpha=alpha)``.

    Args:
        x, y: tensors whose shapes broadcast. A zero-dimensional CPU tensor beside one on another device is rounded to the
            result's dtype first, which for half types :func:`torch.add` doesn't.
        alpha: number, or tensor without dimensions, of a kind the result's dtype can hold: no float for integers, no complex for
            real results.

    Returns:
        The sum in the promoted dtype. On CUDA floating-point types round the product and the sum together
        (fused multiply-add; half types in float32, and once more to store). Differentiable in ``x`` and ``y``.

    Raises:
        RuntimeError: shapes that don't broadcast, different devices, an ``alpha`` of the wrong kind.
    """
    return _ops.axpy(x, y, alpha=number(alpha))


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Fused multiply-add ``a * b + c``.

    One rounding in float32 and float64 (IEEE 754 fusedMultiplyAdd); float16 and bfloat16 compute
    in float32 and round once more to store; integers wrap.

    Args:
        a, b, c: tensors whose shapes broadcast; integer, floating-point or complex. Zero-dimensional CPU tensors go with tensors
            on any device, and are rounded to the result's dtype first.

    Returns:
        The result in the promoted dtype, with the memory format of ``torch.addcmul(c, a, b)``.
        Differentiable in all three. Autocast leaves it alone.

    Raises:
        RuntimeError: shapes that don't broadcast, tensors on different devices.
        NotImplementedError: bool, as :func:`torch.addcmul`.
    """
    return _ops.fma(a, b, c)
