"""What the functions of this drop-in are made of: reductions of groups of entries along one dimension, and gathers.

An index has the shape of the values, see :func:`broadcast`. Mostly it is a vector that was expanded, so that the other dimensions have
stride 0. Such calls are gpuopt's operators. Other calls are ATen's scatters and gathers.
"""

from __future__ import annotations

import torch
from torch import Tensor

_ops = torch.ops.gpuopt


# ---------------------------------------------------------------- indices


def without_copies(index: Tensor, dim: int) -> Tensor:
    """The index with size 1 along the dimensions that it was expanded to."""
    for d in range(index.dim()):
        if d != dim and index.size(d) > 1 and index.stride(d) == 0:
            index = index.narrow(d, 0, 1)
    return index


def vector_of(index: Tensor, dim: int) -> Tensor | None:
    """The vector that was expanded to an index, if it was one."""
    thin = without_copies(index, dim)
    return thin.reshape(-1) if thin.numel() == thin.size(dim) else None


def shape_of(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> list[int]:
    """The shape of a result: that of ``src``, with the groups along ``dim``."""
    shape = list(src.shape)
    if out is not None:
        shape[dim] = out.size(dim)
        check_out(out, shape, src)
    elif dim_size is not None:
        shape[dim] = dim_size
    else:
        shape[dim] = 0 if index.numel() == 0 else int(without_copies(index, dim).max()) + 1
    return shape


def check_out(out: Tensor, shape: list[int], src: Tensor) -> None:
    """A copy or a product would broadcast, and convert the dtype."""
    if list(out.shape) != shape:
        raise RuntimeError(f"torch_scatter: out must have shape {shape}, got {list(out.shape)}")
    if out.dtype != src.dtype:
        raise RuntimeError(f"torch_scatter: out must have dtype {src.dtype}, got {out.dtype}")


def is_half(tensor: Tensor) -> bool:
    """Whether sums of ``tensor`` are computed in float32. What is scaled or divided afterwards is rounded once."""
    return tensor.dtype in (torch.float16, torch.bfloat16)


# ---------------------------------------------------------------- groups of an index


def add(out: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Adds values to ``out`` in place."""
    vector = vector_of(index, dim)
    if vector is None:
        return out.scatter_add_(dim, index.long(), src)
    return _ops.index_add_(out, dim, vector, src)


def reduced(src: Tensor, dim: int, index: Tensor, groups: int, reduce: str) -> Tensor | None:
    """The sum or mean of each group, if ``gpuopt::scatter`` has it: of real numbers at a vector."""
    vector = vector_of(index, dim)
    if vector is None or src.is_complex() or src.dtype == torch.bool:
        return None
    return _ops.scatter(src, dim, vector, groups, reduce)


def counts(index: Tensor, dim: int, groups: int) -> Tensor:
    """The number of entries of each group, in int64. It has size 1 along the dimensions that the index was expanded to."""
    index = without_copies(index, dim)
    shape = list(index.shape)
    shape[dim] = groups
    ones = torch.ones(1, dtype=torch.long, device=index.device).expand(index.shape)
    return add(torch.zeros(shape, dtype=torch.long, device=index.device), dim, index, ones)


def gather(src: Tensor, dim: int, index: Tensor) -> Tensor:
    """The value of each entry's group."""
    vector = vector_of(index, dim)
    if vector is None:
        return src.gather(dim, index.long())
    return _ops.index_select(src, dim, vector)


def product(src: Tensor, dim: int, index: Tensor, groups: int) -> Tensor:
    """The product of each group, 1 without entries."""
    vector = vector_of(index, dim)
    if vector is not None:
        return _ops.scatter(src, dim, vector, groups, "prod")
    # A vector of groups of each column. ATen's product has no forward derivative, and a second one only without zeros.
    rows = src.movedim(dim, 0)
    columns = torch.arange(rows.flatten(1).size(1), device=src.device)
    vector = (index.long().movedim(dim, 0).flatten(1) * columns.size(0) + columns).flatten()
    result = _ops.scatter(rows.flatten(), 0, vector, groups * columns.size(0), "prod")
    return result.view([groups] + list(rows.shape[1:])).movedim(0, dim).contiguous()


def softmax(src: Tensor, dim: int, vector: Tensor, groups: int) -> Tensor:
    """The softmax over the entries of each group. Entries are grouped, and put back afterwards."""
    ptr, perm = _ops.group_by(vector, groups)
    grouped = _ops.index_select(src, dim, perm).movedim(dim, 0)
    number = torch.arange(perm.size(0), dtype=perm.dtype, device=perm.device)
    inverse = torch.empty_like(perm).scatter(0, perm.long(), number)
    return _ops.index_select(_ops.segment_softmax(grouped, ptr).movedim(0, dim), dim, inverse)


def select(src: Tensor, dim: int, index: Tensor, groups: int, reduce: str) -> tuple[Tensor, Tensor]:
    """The ``"max"`` or ``"min"`` of each group, and the first entry that has it. A NaN wins. A group without entries has entry
    ``src.size(dim)`` and any value.
    """
    vector, entries = vector_of(index, dim), src.size(dim)
    if vector is not None:
        values, arg = _ops._scatter_arg(src, dim, vector, groups, reduce)
        return values, arg.masked_fill(arg < 0, entries)
    arg = _select_by_aten(src.detach(), dim, index.long(), groups, reduce)
    if entries == 0:
        return of_nothing(src, dim, groups), arg
    return src.gather(dim, arg.clamp(max=entries - 1)), arg


def _select_by_aten(src: Tensor, dim: int, index: Tensor, groups: int, reduce: str) -> Tensor:
    shape, entries = list(src.shape), src.size(dim)
    shape[dim] = groups
    best = src.new_zeros(shape).scatter_reduce(dim, index, src, f"a{reduce}", include_self=False)
    is_best = (src == best.gather(dim, index)) | src.isnan()
    number = torch.arange(entries, device=src.device).view([entries] + [1] * (src.dim() - dim - 1)).expand_as(src)
    return index.new_full(shape, entries).scatter_reduce(dim, index, number.masked_fill(~is_best, entries), "amin")


def of_nothing(src: Tensor, dim: int, size: int) -> Tensor:
    """Zeros for a tensor of size 0 along ``dim``, which is ``size`` in the result. They are part of its graph."""
    shape = list(src.shape)
    shape[dim] = size
    return src.sum(dim, keepdim=True, dtype=src.dtype).expand(shape)


# ---------------------------------------------------------------- groups of entries that follow each other


def reduce_segments(src: Tensor, dim: int, starts: Tensor, reduce: str) -> Tensor:
    """A reduction of the entries ``starts[g]`` to ``starts[g + 1]`` for each group."""
    return _ops.segment_reduce(src.movedim(dim, 0), starts, reduce).movedim(0, dim).contiguous()


def select_segments(src: Tensor, dim: int, starts: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """As :func:`select`."""
    values, arg = _ops._segment_reduce_arg(src.movedim(dim, 0), starts, reduce)
    arg = arg.movedim(0, dim).long()
    return values.movedim(0, dim).contiguous(), arg.masked_fill(arg < 0, src.size(dim)).contiguous()


def expand_segments(src: Tensor, dim: int, starts: Tensor, entries: int) -> Tensor:
    """The value of each entry's group, 0 without a group."""
    return _ops.segment_expand(src.movedim(dim, 0), starts, entries).movedim(0, dim).contiguous()
