"""Scans: ``cumsum``, ``cumsum_`` and ``linear_recurrence``.

A scan replaces each value of a dimension by the result of all values up to it. Tensors may have any strides.

- float16, bfloat16 and float32 are summed in float32, float64 in float64. complex64 sums its parts in float32, complex128 in
  float64. Integers and bools are summed in int64 and wrap around.
- On CUDA, results are bitwise reproducible. The order of additions depends on the call's shape, layout and dtypes, and on nothing
  else. Sums of long rows and columns pass from block to block in float64, so the error doesn't grow with their length.
- Recurrences are computed in the same dtypes: float16 and bfloat16 in float32. Tiles pass on their states in float64.
- On CPU tensors, the functions call ATen.

Parallel scans: W. D. Hillis and G. L. Steele, "Data parallel algorithms" (1986); G. E. Blelloch, "Prefix sums and their
applications" (1990); D. Merrill and M. Garland, "Single-pass parallel prefix scan with decoupled look-back" (2016).
``csrc/scan/README.md`` describes the kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops._arguments import checks_types
from torch_ops._deprecated import takes_old_calls

__all__ = ["cumsum", "cumsum_", "linear_recurrence"]

_ops = torch.ops.gpuopt


@checks_types
def cumsum(
    input: Tensor,
    dim: int,
    *,
    dtype: torch.dtype | None = None,
    reverse: bool = False,
    exclusive: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Cumulative sum along a dimension. Same semantics as :func:`torch.cumsum`, in either direction.

    Args:
        input: Tensor of any shape; bool, integer, floating-point or complex.
        dim: Dimension to sum along. Negative numbers count from the last dimension. A zero-dimensional tensor accepts
            0 and -1.
        dtype: dtype of the result. Each value is converted when it is loaded. On CUDA no converted copy of ``input``
            is made, except of uint16, uint32, uint64 and float8. Default: the dtype of ``input``, or int64 for bool
            and integers.
        reverse: If True, the sum runs from the last index to the first, as in
            ``torch.cumsum(input.flip(dim), dim).flip(dim)``.
        exclusive: If True, a value doesn't count in its own sum. The first sum is 0.
        out: Tensor to write to. It is resized if its shape differs. If ``dtype`` is given, ``out`` must have that
            dtype; if not, the values are converted to the dtype of ``out``. ``out`` may be ``input`` or separate
            memory, but not overlap ``input`` in part.

    Returns:
        The sums, with the shape of ``input`` and contiguous, or ``out``. float16 and bfloat16 are rounded once. The
        result is differentiable, unless ``out`` is given.

    Raises:
        IndexError: ``input`` has no such ``dim``.
        RuntimeError: ``out`` is on another device, has another dtype than ``dtype``, or overlaps itself or a part of
            ``input``; ``input`` requires a gradient and ``out`` is given, or ``dtype`` is neither floating-point nor
            complex.
        NotImplementedError: :func:`torch.cumsum` does not support the result's dtype on this device, as bool and
            complex32.
    """
    if out is not None:
        return _ops.cumsum.out(input, dim, dtype=dtype, reverse=reverse, exclusive=exclusive, out=out)
    return _ops.cumsum.default(input, dim, dtype=dtype, reverse=reverse, exclusive=exclusive)


@checks_types
def cumsum_(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, reverse: bool = False, exclusive: bool = False
) -> Tensor:
    """Cumulative sum in place: writes ``cumsum(input, dim)`` to ``input``. Same semantics as :meth:`torch.Tensor.cumsum_`.

    Args:
        input: Tensor of any shape; integer, floating-point or complex.
        dim: Dimension to sum along, as in :func:`cumsum`.
        dtype: None or the dtype of ``input``. Integers are summed in int64 and keep their lower bits.
        reverse: Direction, as in :func:`cumsum`.
        exclusive: Whether a value counts in its own sum, as in :func:`cumsum`.

    Returns:
        ``input``.

    Raises:
        IndexError: ``input`` has no such ``dim``.
        RuntimeError: ``dtype`` is another dtype; ``input`` overlaps itself, or is a leaf that requires a gradient.
        NotImplementedError: :func:`torch.cumsum` does not support the dtype on this device, as bool and complex32.
    """
    return _ops.cumsum_.default(input, dim, dtype=dtype, reverse=reverse, exclusive=exclusive)


@takes_old_calls("a b dim initial reverse")
@checks_types
def linear_recurrence(
    a: Tensor,
    b: Tensor,
    dim: int,
    initial: Tensor | None = None,
    *,
    reverse: bool = False,
    shifted: bool = False,
) -> Tensor:
    """Linear recurrence along a dimension: ``h[t] = a[t] * h[t - 1] + b[t]``.

    Args:
        a: Factors, real or complex. They broadcast with ``b``. An expanded tensor, such as one factor for each row, is read
            without a copy.
        b: Terms.
        dim: Dimension of the broadcast shape to run along. Negative numbers count from the last dimension.
        initial: What comes before the first ``h``. Its shape broadcasts to the result's shape without ``dim``. Default: 0.
        reverse: If True, the recurrence runs from the last index to the first.
        shifted: If True, ``a[t]`` multiplies ``h[t]`` on its way to the next position:
            ``h[t] = a[t - 1] * h[t - 1] + b[t]``, and ``h[0] = initial + b[0]``. Gradients are recurrences of this kind.

    Returns:
        All ``h``, contiguous. The shape is that of ``a`` and ``b``, broadcast. The dtype is that to which the dtypes of the
        arguments are promoted (:func:`torch.promote_types`). The result is differentiable in ``a``, ``b`` and ``initial``.

    Raises:
        IndexError: ``a`` and ``b``, broadcast, have no such ``dim``.
        RuntimeError: ``a`` and ``b`` don't broadcast, ``initial`` has another shape, or the devices differ.
        NotImplementedError: the result's dtype is not float16, bfloat16, float32, float64, complex64 or complex128.
    """
    return _ops.linear_recurrence.default(a, b, dim, initial, reverse, shifted=shifted)
