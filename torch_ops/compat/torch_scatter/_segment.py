"""``torch_scatter.segment_coo`` and ``torch_scatter.segment_csr``: reductions of groups whose entries follow each other, and gathers.

A group is given by an ascending index of each entry's group (COO), or by the position where each group begins (CSR).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops.compat.torch_scatter._groups import (
    check_out,
    expand_segments,
    gather,
    reduce_segments,
    select_segments,
    shape_of,
    vector_of,
)
from torch_ops.compat.torch_scatter._scatter import scatter_max, scatter_mean, scatter_min, scatter_sum, selected
from torch_ops.compat.torch_scatter.utils import broadcast

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
    starts = _starts(src, index, out, dim_size)
    if starts is None:
        return scatter_sum(src, index, index.dim() - 1, out, dim_size)
    return reduce_segments(src, index.dim() - 1, starts, "sum")


def segment_add_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """:func:`segment_sum_coo`."""
    return segment_sum_coo(src, index, out, dim_size)


def segment_mean_coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Tensor:
    """:func:`segment_coo` with ``reduce="mean"``."""
    starts = _starts(src, index, out, dim_size)
    if starts is None:
        return scatter_mean(src, index, index.dim() - 1, out, dim_size)
    return reduce_segments(src, index.dim() - 1, starts, "mean")


def segment_min_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """:func:`segment_coo` with ``reduce="min"``, and the entries that the minima are from, see :func:`scatter_max`."""
    starts = _starts(src, index, out, dim_size)
    if starts is None:
        return scatter_min(src, index, index.dim() - 1, out, dim_size)
    return _select(src, index.dim() - 1, starts, "min")


def segment_max_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """:func:`segment_coo` with ``reduce="max"``, and the entries that the maxima are from, see :func:`scatter_max`."""
    starts = _starts(src, index, out, dim_size)
    if starts is None:
        return scatter_max(src, index, index.dim() - 1, out, dim_size)
    return _select(src, index.dim() - 1, starts, "max")


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

    Raises:
        RuntimeError: ``out`` has another shape or dtype.
    """
    dim = index.dim() - 1
    shape = list(src.shape)
    shape[dim] = index.size(dim)
    return _written(
        gather(src, dim, index.view(list(index.shape) + [1] * (src.dim() - index.dim())).expand(shape)), out
    )


# ---------------------------------------------------------------- the positions where groups begin


def segment_sum_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """:func:`segment_csr` with ``reduce="sum"``."""
    dim, starts = indptr.dim() - 1, _vector(indptr)
    if starts is not None:
        return _written(reduce_segments(src, dim, starts, "sum"), out)
    index, groups = _index(src, indptr, src.size(dim))
    return _written(scatter_sum(src, index, dim, None, groups + 2).narrow(dim, 1, groups), out)


def segment_add_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """:func:`segment_sum_csr`."""
    return segment_sum_csr(src, indptr, out)


def segment_mean_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """:func:`segment_csr` with ``reduce="mean"``."""
    dim, starts = indptr.dim() - 1, _vector(indptr)
    if starts is not None:
        return _written(reduce_segments(src, dim, starts, "mean"), out)
    index, groups = _index(src, indptr, src.size(dim))
    return _written(scatter_mean(src, index, dim, None, groups + 2).narrow(dim, 1, groups), out)


def segment_min_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """:func:`segment_csr` with ``reduce="min"``, and the entries that the minima are from, see :func:`scatter_max`."""
    dim, starts = indptr.dim() - 1, _vector(indptr)
    if starts is not None:
        values, arg = _select(src, dim, starts, "min")
        return _written(values, out), arg
    index, groups = _index(src, indptr, src.size(dim))
    values, arg = scatter_min(src, index, dim, None, groups + 2)
    return _written(values.narrow(dim, 1, groups), out), arg.narrow(dim, 1, groups).contiguous()


def segment_max_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """:func:`segment_csr` with ``reduce="max"``, and the entries that the maxima are from, see :func:`scatter_max`."""
    dim, starts = indptr.dim() - 1, _vector(indptr)
    if starts is not None:
        values, arg = _select(src, dim, starts, "max")
        return _written(values, out), arg
    index, groups = _index(src, indptr, src.size(dim))
    values, arg = scatter_max(src, index, dim, None, groups + 2)
    return _written(values.narrow(dim, 1, groups), out), arg.narrow(dim, 1, groups).contiguous()


def segment_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Reduces the entries ``indptr[g]`` to ``indptr[g + 1]`` of ``src`` for each group g, along the last dimension of ``indptr``.

    Args:
        src: as for :func:`scatter`.
        indptr: int64 or int32 tensor of at most ``src``'s dimensions with ascending values along the last one. The others broadcast
            to ``src``.
        out: tensor that is overwritten and returned.
        reduce: ``"sum"`` or ``"add"``, ``"mean"``, ``"min"``, ``"max"``. The mean of integers is rounded down.

    Returns:
        As :func:`scatter`, with ``indptr.shape[-1] - 1`` groups.

    Raises:
        ValueError: an unknown ``reduce``.
        RuntimeError: ``indptr`` does not broadcast to ``src``; ``out`` has another shape or dtype.
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
        ``out``, or a tensor of ``src``'s dtype and shape with ``indptr[-1]`` entries, which waits for the GPU. A ``src`` without
        elements gives no entries, whatever ``indptr`` says, as in the original. Differentiable in ``src``, any number of times.

    Raises:
        RuntimeError: ``src`` has another number of groups than ``indptr``; ``out`` has another shape or dtype.
    """
    dim = indptr.dim() - 1
    if out is not None:
        check_out(out, list(src.shape[:dim]) + [out.size(dim)] + list(src.shape[dim + 1 :]), src)
    groups = max(indptr.size(dim) - 1, 0)
    if src.size(dim) != 0 and src.size(dim) != groups:
        raise RuntimeError(f"gather_csr: src must have {groups} groups along dimension {dim}, got {src.size(dim)}")
    if src.numel() == 0:
        return src.narrow(dim, 0, 0).contiguous() if out is None else out
    entries = int(indptr.flatten()[-1]) if out is None else out.size(dim)
    starts = _vector(indptr)
    if out is None and starts is not None:
        return expand_segments(src, dim, starts, entries)
    index = _index(src, indptr, entries)[0]
    result = gather(src, dim, (index - 1).clamp(0, groups - 1))
    outside = (index == 0) | (index == groups + 1)
    return result.masked_fill(outside, 0) if out is None else out.copy_(torch.where(outside, out, result))


def _starts(src: Tensor, index: Tensor, out: Tensor | None, dim_size: int | None) -> Tensor | None:
    """The positions where the groups of an ascending vector begin. None of another index, and if values are added to ``out``."""
    dim = index.dim() - 1
    index = broadcast(index, src, dim)
    vector = vector_of(index, dim)
    if vector is None or out is not None:
        return None
    groups = shape_of(src, index, dim, None, dim_size)[dim]
    return torch.searchsorted(vector.contiguous(), torch.arange(groups + 1, dtype=vector.dtype, device=vector.device))


def _vector(indptr: Tensor) -> Tensor | None:
    """The positions where groups begin, if they are the same along all other dimensions."""
    return vector_of(indptr, indptr.dim() - 1) if indptr.size(-1) > 0 else None


def _index(src: Tensor, indptr: Tensor, entries: int) -> tuple[Tensor, int]:
    """One more than the group of each entry, and the number of groups.

    Entries before all groups have 0, and those after all groups have the number of groups + 1.
    """
    dim = indptr.dim() - 1
    shape = list(src.shape)
    shape[dim] = entries
    starts = indptr.expand(shape[:dim] + [indptr.size(dim)]).contiguous()
    number = torch.arange(entries, dtype=indptr.dtype, device=indptr.device).expand(shape[: dim + 1])
    index = torch.searchsorted(starts, number.contiguous(), right=True)
    return index.view(shape[: dim + 1] + [1] * (src.dim() - dim - 1)).expand(shape), max(indptr.size(dim) - 1, 0)


def _select(src: Tensor, dim: int, starts: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    values, arg = select_segments(src, dim, starts, reduce)
    return selected(values, arg, src.size(dim), None, reduce)


def _written(result: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        return result.contiguous()
    check_out(out, list(result.shape), result)
    return out.copy_(result)
