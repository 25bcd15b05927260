"""Transposition into new memory: ``transpose2d``.

Matrices whose rows are contiguous in memory are transposed through shared memory, 16 bytes at a time. Large matrices are transposed tile by
tile, small ones several at a time (csrc/transpose/README.md). Other strides are copied by the engine of the element-wise operators.
Elements are moved as bits, whatever their dtype. On CPU tensors the operator calls ATen.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = ["transpose2d"]

_ops = torch.ops.gpuopt


@checks_types
def transpose2d(input: Tensor) -> Tensor:
    """Exchanges the last two dimensions, in memory too: ``input.mT.contiguous()``, but always a copy.

    The method for tiles is from Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA" (NVIDIA, 2009).

    Args:
        input: Tensor (..., rows, columns) of any dtype and strides. Any size may be 0. Conjugated and negated views are
            copied first.

    Returns:
        Contiguous tensor (..., columns, rows) with the dtype of ``input``. It is differentiable any number of times, in
        reverse and forward mode. Under :func:`torch.vmap` all examples are one call. Autocast doesn't change it.

    Raises:
        RuntimeError: ``input`` has fewer than two dimensions.
        NotImplementedError: ``input`` is quantized or sparse.
    """
    return _ops.transpose2d.default(input)
