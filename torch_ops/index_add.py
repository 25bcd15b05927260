"""Adding slices at an index: ``index_add`` and ``index_add_``.

``self[..., index[i], ...] += alpha * source[..., i, ...]`` for every ``i``, along one dimension: the sum of messages at the nodes
of a graph, the gradient of an embedding, a histogram. Entries of ``index`` may repeat; their slices then add up.

``mode`` is what a call promises:

``"fast"``
    Whatever is fastest. On CUDA slices may be added by atomic operations: floating-point sums then come in any order, and half
    types may be rounded after each addition, both as in ATen.
``"deterministic"``
    Results are bitwise repeatable, and on CUDA accurate. Under :func:`torch.use_deterministic_algorithms` every call is made in
    this mode.
``"accurate"``
    What is added to an element of float16, bfloat16 or complex32 is summed in float32, together with the element itself, and
    rounded once for every 2^30 entries: 100000 ones in bfloat16 make 99840, the nearest bfloat16, where rounding after each addition
    stops at 256. Not repeatable in general.

On CUDA inputs are also sorted by index in mode ``"fast"`` where that is faster, as it is for many wide slices; csrc/index_add/README.md has
all paths. Scratch memory is 37 bytes an entry at most, however wide the slices, or some MB for
histograms, but for a complex ``alpha`` with an imaginary part, which takes as much as ``source``. Nothing synchronises with the host,
and calls can be captured in CUDA graphs.

On CPU tensors all modes call ATen, by way of float32 copies where half types are not in ``"fast"`` mode.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import number

__all__ = ["index_add", "index_add_"]

_ops = torch.ops.gpuopt

Mode = Literal["fast", "deterministic", "accurate"]


def index_add(
    self: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: float | complex | Tensor = 1,
    mode: Mode = "fast",
    out: Tensor | None = None,
) -> Tensor:
    """``self`` with ``alpha * source`` added at ``index`` along ``dim``, the semantics of :func:`torch.index_add`.

    Args:
        self: tensor of any shape; bool, uint8, int8 to int64, floating-point or complex (complex32 included).
        dim: the dimension that ``index`` counts along; negative ones count from the end.
        index: vector of int32 or int64, or one such number, from 0 to ``self.shape[dim] - 1``, on ``self``'s device.
        source: tensor of ``self``'s dtype and shape, but with ``index.numel()`` slices in dimension ``dim``.
        alpha: factor of ``source``: a number, or a tensor without dimensions, in the range of ``self``'s dtype. Integers drop its
            fraction.
        mode: ``"fast"``, ``"deterministic"`` or ``"accurate"``, as above.
        out: tensor to write to, of ``self``'s dtype. It is resized when its shape differs. It may be ``self``, not overlap it in
            part, nor share memory with ``index`` or ``source``.

    Returns:
        Contiguous tensor of ``self``'s shape and dtype, or ``out``. bool adds by logical or, integers wrap around.
        Differentiable in ``self`` and ``source`` (not with ``out``), any number of times, forwards and backwards. The gradient
        of ``source`` is gathered from the result's, so it is repeatable in every mode; in second derivatives it is
        :func:`torch.index_select` that adds.

    Raises:
        IndexError: a ``dim`` that ``self`` lacks; an ``index`` with more than one dimension, or without exactly one entry for a
            ``source`` without dimensions.
        RuntimeError: an ``index`` of another dtype; a ``source`` of another dtype or shape than said above; an ``alpha`` out of
            range; tensors on different devices; an ``out`` of another dtype or in overlapping memory.
        IndexError, RuntimeError: entries of ``index`` out of range: on the CPU one or the other, as in ATen, and nothing is
            written. On CUDA a device-side assertion fails.
        ValueError: another ``mode``.
        NotImplementedError: dtypes that :func:`torch.index_add` doesn't take on the device.
    """
    alpha = number(alpha)
    if out is not None:
        return _ops.index_add.out(self, dim, index, source, alpha=alpha, mode=mode, out=out)
    return _ops.index_add.default(self, dim, index, source, alpha=alpha, mode=mode)


def index_add_(
    self: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: float | complex | Tensor = 1,
    mode: Mode = "fast",
) -> Tensor:
    """In-place :func:`index_add`, the semantics of :meth:`torch.Tensor.index_add_`.

    Args:
        self: tensor to add to, with every element at an address of its own, sharing no memory with the others.
        dim, index, source, alpha, mode: as in :func:`index_add`.

    Returns:
        ``self``. Differentiable.

    Raises:
        RuntimeError: overlapping memory, or a leaf that requires a gradient.
        IndexError, RuntimeError, ValueError, NotImplementedError: as :func:`index_add`.
    """
    return _ops.index_add_.default(self, dim, index, source, alpha=number(alpha), mode=mode)
