"""Reductions of segments: ``segment_reduce``, ``segment_expand``, ``segment_softmax`` and ``group_by``.

A *segment* is a range of entries of the first dimension: segment ``s`` has the entries ``offsets[s]`` to ``offsets[s + 1] - 1``. The
atoms of each molecule of a batch are segments, and so are the edges of each node of a graph that is sorted by node.
``torch_ops/_scatter.py`` reduces entries in any order.

- float16 and bfloat16 are computed in float32 and rounded once. Means count entries in integers, and means of integers round down.
- On CUDA nothing synchronises with the host. Results and gradients are bitwise reproducible.
- ``offsets`` must not descend. Entries in front of the first offset or behind the last one are in no segment: they do not count, and
  their gradients are 0. On CUDA nothing checks the values of ``offsets``; a wrong one gives a wrong result, but reads no foreign
  memory.
- CPU tensors are reduced by ATen's operators.

``csrc/segment/README.md`` describes the operators, and ``csrc/rows/README.md`` the kernels: a segment is a row of a sparse matrix whose
columns are the entries.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types, reduction
from torch_ops._deprecated import takes_old_calls

__all__ = ["group_by", "segment_expand", "segment_reduce", "segment_softmax"]

_ops = torch.ops.gpuopt

Reduction = Literal["sum", "mean", "amax", "amin", "prod"]


@takes_old_calls("data offsets reduce empty", data="input")
@checks_types(data="input")
def segment_reduce(input: Tensor, offsets: Tensor, reduce: Reduction = "sum", *, empty: float | None = None) -> Tensor:
    """Reduces the entries of each segment, as ``torch.segment_reduce(input, reduce, offsets=offsets)``.

    Args:
        input: Entries of shape (entries, ...). float16, bfloat16, float32, float64, or an integer dtype. Rows of any pitch are read
            without a copy if the other dimensions are dense. Integers other than int32 and int64 are converted to int64.
        offsets: Where segments begin, of shape (segments + 1,) and dtype int32 or int64.
        reduce: ``"sum"``, ``"mean"``, ``"amax"``, ``"amin"`` or ``"prod"``. Of equal maxima the first one has the gradient. A NaN is
            the maximum and the minimum of its segment.
        empty: The result of a segment without entries, a whole number for an integer dtype. Default: 1 for ``"prod"`` and 0
            otherwise. (:func:`torch.segment_reduce` has NaN for a mean and infinities for extrema.)

    Returns:
        A tensor of shape (segments, ...) with the dtype of ``input``. Differentiable in ``input``, any number of times, in reverse and
        forward mode. Second derivatives of ``"prod"`` are exact, also where entries are 0; third ones are not there.

    Raises:
        ValueError: an unknown ``reduce``, or an ``empty`` that the integer dtype of ``input`` doesn't hold.
        TypeError: ``input`` is complex or bool.
        RuntimeError: ``input`` has no dimensions; ``offsets`` is no vector of int32 or int64, is empty, or is on another device.
        IndexError: on the CPU, an offset that descends or is not in the range of the entries.
    """
    return _ops.segment_reduce.default(input, offsets, reduction("segment_reduce", reduce), empty)


@takes_old_calls("rows offsets entries", rows="input", entries="dim_size")
@checks_types(rows="input", entries="dim_size")
def segment_expand(input: Tensor, offsets: Tensor, dim_size: int) -> Tensor:
    """Gives each entry the row of its segment: the gradient of a sum of segments, and ``gather_csr`` of torch_scatter.

    Args:
        input: One row for each segment, of shape (segments, ...) and any dtype.
        offsets: Where segments begin, of shape (segments + 1,) and dtype int32 or int64.
        dim_size: The number of entries. It is not read from ``offsets``, because this would synchronise with the host.

    Returns:
        A tensor of shape (entries, ...). Entries of no segment are 0. Differentiable in ``input``, any number of times, in reverse and
        forward mode.

    Raises:
        RuntimeError: ``input`` does not have one row for each segment, or ``dim_size`` is negative. Otherwise as
            :func:`segment_reduce`.
        IndexError: as :func:`segment_reduce`.
    """
    return _ops.segment_expand.default(input, offsets, dim_size)


@takes_old_calls("src offsets", src="input")
@checks_types(src="input")
def segment_softmax(input: Tensor, offsets: Tensor) -> Tensor:
    """Softmax over the entries of each segment: the attention weights of each node's edges.

    The maximum and the sum of a segment are found in one pass (M. Milakov and N. Gimelshein, "Online normalizer calculation for
    softmax", 2018).

    Args:
        input: Entries of shape (entries, ...), float16, bfloat16, float32 or float64. Every feature has a separate softmax.
        offsets: Where segments begin, of shape (segments + 1,) and dtype int32 or int64.

    Returns:
        A tensor with the shape and dtype of ``input``. Entries of no segment are 0. Differentiable in ``input``, any number of times, in
        reverse and forward mode.

    Raises:
        TypeError: ``input`` is not floating-point.
        RuntimeError, IndexError: as :func:`segment_reduce`.
    """
    return _ops.segment_softmax.default(input, offsets)


@takes_old_calls("index bins", bins="dim_size")
@checks_types(bins="dim_size")
def group_by(index: Tensor, dim_size: int, *, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Groups entries by bin: a stable sort, and where each bin begins.

    On CUDA this is a radix sort of the bits that ``dim_size`` needs. It notices an index that is in order already.

    Args:
        index: The bin of each entry, a vector of int32 or int64 with values from 0 to ``dim_size - 1``.
        dim_size: The number of bins.
        dtype: int32 or int64. Default: int32 if it holds the numbers of entries and bins.

    Returns:
        ``ptr`` of shape (dim_size + 1,) and ``perm`` of shape (entries,). Bin ``b`` has the entries ``perm[ptr[b]:ptr[b + 1]]``, in their
        order in ``index``. So ``segment_reduce(input[perm], ptr)`` reduces the bins.

    Raises:
        RuntimeError: ``index`` is no vector of int32 or int64, ``dim_size`` is negative, or ``dtype`` can't hold the numbers.
        IndexError: an entry is out of range, on the CPU. On CUDA a device-side assertion fails instead.
    """
    return _ops.group_by.default(index, dim_size, dtype=dtype)
