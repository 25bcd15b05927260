"""Reductions of bags of rows of an embedding: ``embedding_bag``.

A bag is a row of a sparse matrix whose columns are the rows of the table, so a call is a product of this matrix and the table, computed
by the kernels of ``csrc/spmm/README.md``. Its gradient is a product with the transposed matrix, whose rows a sort gives.
"""

from __future__ import annotations

import operator
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_ops._arguments import checks_types
from torch_ops._scatter import _without_autocast

__all__ = ["embedding_bag"]

_ops = torch.ops.gpuopt


@checks_types
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: Literal["sum", "mean", "max"] = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Reduces bags of rows of a table, as :func:`torch.nn.functional.embedding_bag`.

    float16 and bfloat16 are summed in float32. On CUDA, results and gradients are bitwise reproducible, and nothing synchronises with
    the host. Weights of the entries, a mean and a maximum have gradients of any order.

    Args:
        input: The rows of each bag, int32 or int64: of shape (bags, entries of a bag), or a vector with all bags one after another.
        weight: The table, of shape (rows, features): float16, bfloat16, float32 or float64. Rows of any pitch are read without a copy.
        offsets: Where bags begin in a vector, of shape (bags,), int32 or int64. The first is 0, and they must not descend.
        max_norm: Rows that are named and whose norm is larger are scaled to it, in place.
        norm_type: The p of the norm.
        scale_grad_by_freq: Whether gradients are divided by how often a row is named. PyTorch then computes the call.
        mode: ``"sum"``, ``"mean"`` or ``"max"``. A bag without entries gives 0. A NaN is the maximum of its bag.
        sparse: Whether the gradient of ``weight`` is a sparse tensor. PyTorch then computes the call.
        per_sample_weights: A factor for each entry of a sum, of the shape of ``input`` and the dtype of ``weight``.
        include_last_offset: Whether ``offsets`` also has the end of the last bag, which saves a copy of them.
        padding_idx: A row whose entries do not count, and have no gradients. Negative numbers count from the end.

    Returns:
        A tensor of shape (bags, features) with the dtype of ``weight``, also under autocast. Differentiable in ``weight`` and
        ``per_sample_weights``, any number of times, in reverse and forward mode.

    Raises:
        ValueError: an unknown ``mode``; ``offsets`` beside a matrix, or none beside a vector; a shape does not fit.
        NotImplementedError: ``per_sample_weights`` with another mode than ``"sum"``.
        RuntimeError: the dtypes or devices do not fit, or ``padding_idx`` is no row.
        IndexError, RuntimeError: on the CPU, an entry is out of range. On CUDA a device-side assertion fails instead.
    """
    if sparse or scale_grad_by_freq or input.is_nested:
        return F.embedding_bag(
            input,
            weight,
            offsets,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
    _check(input, weight, offsets, mode, per_sample_weights)
    if max_norm is not None:
        with torch.no_grad():
            torch.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    index = input.reshape(-1)
    value = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    if offsets is None:
        width = input.shape[1]
        ptr = torch.arange(0, input.shape[0] * width + 1, width, dtype=index.dtype, device=index.device)
    else:
        number = torch.promote_types(index.dtype, offsets.dtype)
        index, ptr = index.to(number), offsets.to(number)
        if not include_last_offset:
            ptr = _with_end(ptr, index)
    entry = None
    if padding_idx is not None:
        ptr, index, entry = _padding_last(ptr, index, _row(padding_idx, weight))
    with _without_autocast(weight):
        result = _ops.spmm.default(ptr, index, entry, value, weight, mode)
    return result if entry is None else result[:-1]


def _with_end(ptr: Tensor, index: Tensor) -> Tensor:
    return torch.cat([ptr, ptr.new_full((1,), index.shape[0])])


def _padding_last(ptr: Tensor, index: Tensor, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """The entries of other rows first, in order, and where they are in ``index``. The entries of ``row`` are in one more bag."""
    is_padding = index == row
    counts = F.pad(is_padding.logical_not().cumsum(0, dtype=ptr.dtype), (1, 0))
    entry = _ops.group_by.default(is_padding.to(torch.int32), 2, dtype=ptr.dtype)[1]
    return _with_end(counts[ptr], index), index[entry], entry


def _row(padding_idx: int, weight: Tensor) -> int:
    rows, padding_idx = weight.shape[0], operator.index(padding_idx)
    if not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"embedding_bag: padding_idx must be a row of weight: expected {-rows} to {rows - 1}, got {padding_idx}"
        )
    return padding_idx % rows


def _check(input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str, per_sample_weights: Tensor | None) -> None:
    def refuse(what: str, got: object, error: type[Exception] = ValueError) -> None:
        raise error(f"embedding_bag: {what}, got {got}")

    for name, vector in (("input", input), ("offsets", offsets)):
        if vector is not None and vector.dtype not in (torch.int32, torch.int64):
            refuse(f"{name} must be int32 or int64: expected an integer dtype", vector.dtype, RuntimeError)

    if mode not in ("sum", "mean", "max"):
        refuse("mode must be known: expected 'sum', 'mean' or 'max'", repr(mode))
    if weight.dim() != 2:
        refuse("weight must be (rows, features): expected 2 dimensions", f"shape {tuple(weight.shape)}")
    if input.dim() not in (1, 2):
        refuse("input must be (entries) or (bags, entries): expected 1 or 2 dimensions", f"shape {tuple(input.shape)}")
    if (offsets is None) != (input.dim() == 2):
        refuse("offsets must be given with a vector and only then: expected " + ("None" if offsets is not None else "a vector"),
               "None" if offsets is None else f"shape {tuple(offsets.shape)}")  # fmt: skip
    if offsets is not None and offsets.dim() != 1:
        refuse("offsets must be (bags): expected a vector", f"shape {tuple(offsets.shape)}")
    if per_sample_weights is None:
        return
    if per_sample_weights.shape != input.shape:
        refuse(
            f"per_sample_weights must have the shape of input: expected {tuple(input.shape)}",
            tuple(per_sample_weights.shape),
        )
    if per_sample_weights.dtype != weight.dtype:
        expected = f"per_sample_weights must have the dtype of weight: expected {weight.dtype}"
        refuse(expected, per_sample_weights.dtype, RuntimeError)
    if mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights needs mode 'sum', got {mode!r}")
