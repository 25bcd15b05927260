"""Transposition into new memory: ``transpose2d``.

A batch of matrices whose rows lie in memory is turned through shared memory, read and written 16 bytes at a time: large ones tile by
tile, small ones several at a time (csrc/transpose/README.md); other strides are copied by the engine of the element-wise operators.
Elements are bits, whatever their dtype. On CPU tensors it calls ATen.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["transpose2d"]

_ops = torch.ops.gpuopt


def transpose2d(self: Tensor) -> Tensor:
    """The last two dimensions exchanged, in memory too: ``self.mT.contiguous()``, but always a copy.

    Args:
        self: tensor (..., rows, columns) of any dtype and strides. Any size may be 0. Conjugated and negated views are read by way of
            a copy.

    Returns:
        Contiguous tensor (..., columns, rows) of ``self``'s dtype. Differentiable any number of times, forwards and backwards. Under
        :func:`torch.vmap` all examples are one call. Autocast changes nothing.

    Raises:
        RuntimeError: fewer than two dimensions.
        NotImplementedError: quantized and sparse tensors.
    """
    return _ops.transpose2d.default(self)
