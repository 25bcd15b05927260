"""``torch_scatter.segment_coo`` and ``torch_scatter.segment_csr``: reductions of groups whose entries follow each other, and gathers.

A group is given by an ascending index of each entry's group (COO), or by the position where each group begins (CSR).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops.compat.torch_scatter._groups import gather, of_nothing
from torch_ops.compat.torch_scatter._scatter import scatter_max, scatter_mean, scatter_min, scatter_sum

__all__ = [
    "gather_coo",
    "gather_csr",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
]


# ---------------------------------------------------------------- an index of each entry's group


def segment_sum_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """:func:`segment_coo` with ``reduce="sum"``."""
    return scatter_sum(src, index, index.dim() - 1, out, dim_size)


def segment_add_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """:func:`segment_sum_coo`."""
    return segment_sum_coo(src, index, out, dim_size)


def segment_mean_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """:func:`segment_coo` with ``reduce="mean"``."""
    return scatter_mean(src, index, index.dim() - 1, out, dim_size)


def segment_min_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """:func:`segment_coo` with ``reduce="min"``, and the entries that the minima are from, see :func:`scatter_max`."""
    return scatter_min(src, index, index.dim() - 1, out, dim_size)


def segment_max_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """:func:`segment_coo` with ``reduce="max"``, and the entries that the maxima are from, see :func:`scatter_max`."""
    return scatter_max(src, index, index.dim() - 1, out, dim_size)


def segment_coo(
    src: Tensor,
    index: Tensor,
    out: Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> Tensor:
    """:func:`scatter` along the last dimension of ``index``, whose values ascend. Other dimensions of ``index`` may have size 1.

    Args:
        src: as for :func:`scatter`.
        index: as for :func:`scatter`, with at most ``src``'s dimensions.
        out: as for :func:`scatter`.
        dim_size: as for :func:`scatter`.
        reduce: ``"sum"`` or ``"add"``, ``"mean"``, ``"min"``, ``"max"``.

    Returns:
        As :func:`scatter`.

    Raises:
        ValueError, RuntimeError: as :func:`scatter`.
    """
    if reduce == "sum" or reduce == "add":
        return segment_sum_coo(src, index, out, dim_size)
    if reduce == "mean":
        return segment_mean_coo(src, index, out, dim_size)
    if reduce == "min":
        return segment_min_coo(src, index, out, dim_size)[0]
    if reduce == "max":
        return segment_max_coo(src, index, out, dim_size)[0]
    raise ValueError(f"segment_coo: reduce must be sum, add, mean, min or max, got {reduce}")


def gather_coo(src: Tensor, index: Tensor, out: Tensor | None = None) -> Tensor:
    """Gives each entry the value of its group, the inverse of :func:`segment_coo`.

    Args:
        src: tensor with the groups along the last dimension of ``index``.
        index: as for :func:`segment_coo`.
        out: tensor that is overwritten and returned.

    Returns:
        ``out``, or a tensor of ``src``'s dtype and shape with an entry for each of ``index``. Differentiable in ``src``, any number
        of times.
    """
    dim = index.dim() - 1
    shape = list(src.shape)
    shape[dim] = index.size(dim)
    result = gather(src, dim, index.view(list(index.shape) + [1] * (src.dim() - index.dim())).expand(shape))
    return result if out is None else out.copy_(result)


# ---------------------------------------------------------------- the positions where groups begin


def segment_sum_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """:func:`segment_csr` with ``reduce="sum"``."""
    dim, index, groups = _index(src, indptr, src.size(indptr.dim() - 1))
    return _written(scatter_sum(src, index, dim, None, groups + 2).narrow(dim, 1, groups), out)


def segment_add_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """:func:`segment_sum_csr`."""
    return segment_sum_csr(src, indptr, out)


def segment_mean_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """:func:`segment_csr` with ``reduce="mean"``."""
    dim, index, groups = _index(src, indptr, src.size(indptr.dim() - 1))
    return _written(scatter_mean(src, index, dim, None, groups + 2).narrow(dim, 1, groups), out)


def segment_min_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """:func:`segment_csr` with ``reduce="min"``, and the entries that the minima are from, see :func:`scatter_max`."""
    dim, index, groups = _index(src, indptr, src.size(indptr.dim() - 1))
    values, arg = scatter_min(src, index, dim, None, groups + 2)
    return _written(values.narrow(dim, 1, groups), out), arg.narrow(dim, 1, groups).contiguous()


def segment_max_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """:func:`segment_csr` with ``reduce="max"``, and the entries that the maxima are from, see :func:`scatter_max`."""
    dim, index, groups = _index(src, indptr, src.size(indptr.dim() - 1))
    values, arg = scatter_max(src, index, dim, None, groups + 2)
    return _written(values.narrow(dim, 1, groups), out), arg.narrow(dim, 1, groups).contiguous()


def segment_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Reduces the entries ``indptr[g]`` to ``indptr[g + 1]`` of ``src`` for each group g, along the last dimension of ``indptr``.

    Args:
        src: as for :func:`scatter`.
        indptr: int64 or int32 tensor of at most ``src``'s dimensions with ascending values along the last one. The others broadcast
            to those of ``src``.
        out: tensor that is overwritten and returned.
        reduce: ``"sum"`` or ``"add"``, ``"mean"``, ``"min"``, ``"max"``. The mean of integers is rounded down.

    Returns:
        As :func:`scatter`, with ``indptr.shape[-1] - 1`` groups.

    Raises:
        ValueError: an unknown ``reduce``.
        RuntimeError: ``indptr`` does not broadcast to ``src``; ``out`` has another shape.
    """
    if reduce == "sum" or reduce == "add":
        return segment_sum_csr(src, indptr, out)
    if reduce == "mean":
        return segment_mean_csr(src, indptr, out)
    if reduce == "min":
        return segment_min_csr(src, indptr, out)[0]
    if reduce == "max":
        return segment_max_csr(src, indptr, out)[0]
    raise ValueError(f"segment_csr: reduce must be sum, add, mean, min or max, got {reduce}")


def gather_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """Gives each entry the value of its group, the inverse of :func:`segment_csr`.

    Args:
        src: tensor with the groups along the last dimension of ``indptr``.
        indptr: as for :func:`segment_csr`.
        out: tensor that is written to and returned. An entry of no group keeps its value.

    Returns:
        ``out``, or a tensor of ``src``'s dtype and shape with ``indptr[-1]`` entries, which waits for the GPU. Differentiable in
        ``src``, any number of times.

    Raises:
        RuntimeError: ``src`` has another number of groups than ``indptr``; ``out`` has another shape.
    """
    dim = indptr.dim() - 1
    if out is not None:
        entries = out.size(dim)
    else:
        entries = int(indptr.flatten()[-1]) if src.numel() > 0 else 0
    _, index, groups = _index(src, indptr, entries)
    if src.size(dim) != 0 and src.size(dim) != groups:
        raise RuntimeError(f"gather_csr: src must have {groups} groups along dimension {dim}, got {src.size(dim)}")
    if src.size(dim) == 0:
        return of_nothing(src, dim, entries) if out is None else out
    result = gather(src, dim, (index - 1).clamp(0, groups - 1))
    outside = (index == 0) | (index == groups + 1)
    return result.masked_fill(outside, 0) if out is None else out.copy_(torch.where(outside, out, result))


def _index(src: Tensor, indptr: Tensor, entries: int) -> tuple[int, Tensor, int]:
    """The dimension, one more than the group of each entry, and the number of groups.

    Entries before all groups have 0, and those after all groups have the number of groups + 1.
    """
    dim = indptr.dim() - 1
    groups = max(indptr.size(dim) - 1, 0)
    shape = list(src.shape)
    shape[dim] = entries
    number = torch.arange(entries, dtype=indptr.dtype, device=indptr.device)
    if indptr.numel() == indptr.size(dim):
        index = torch.searchsorted(indptr.reshape(-1), number, right=True)
        index = index.view([1] * dim + [entries])
    else:
        starts = indptr.expand(shape[:dim] + [indptr.size(dim)]).contiguous()
        index = torch.searchsorted(starts, number.expand(shape[: dim + 1]).contiguous(), right=True)
    return dim, index.view(list(index.shape) + [1] * (src.dim() - dim - 1)).expand(shape), groups


def _written(result: Tensor, out: Tensor | None) -> Tensor:
    return result.contiguous() if out is None else out.copy_(result)
