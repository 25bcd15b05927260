"""What the functions of this drop-in are made of: which entries belong to a group, and a reduction of each group.

An index has the shape of the values here, see :func:`broadcast`. Mostly it is a vector that was expanded, whose other dimensions have
stride 0. Such calls are gpuopt's operators. All other calls are ATen's scatters and gathers.
"""

from __future__ import annotations

import torch
from torch import Tensor

_ops = torch.ops.gpuopt


def size_of(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> list[int]:
    """The shape of a result: that of ``src``, except along ``dim``."""
    shape = list(src.shape)
    if out is not None:
        shape[dim] = out.size(dim)
        if list(out.shape) != shape:
            raise RuntimeError(f"torch_scatter: out must have shape {shape}, got {list(out.shape)}")
    elif dim_size is not None:
        shape[dim] = dim_size
    else:
        shape[dim] = 0 if index.numel() == 0 else int(without_copies(index, dim).max()) + 1
    return shape


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


def add(out: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Adds values to ``out`` in place."""
    vector = vector_of(index, dim)
    if vector is None:
        return out.scatter_add_(dim, index.long(), src)
    return _ops.index_add_(out, dim, vector, src)


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


def multiply(out: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Multiplies ``out`` by values in place."""
    return out.scatter_reduce_(dim, index.long(), src, "prod")


def select(src: Tensor, dim: int, index: Tensor, groups: int, is_max: bool) -> tuple[Tensor, Tensor]:
    """The maximum or minimum of each group, and the first entry that has it. A NaN wins. A group without entries has entry
    ``src.size(dim)`` and any value.
    """
    shape, entries = list(src.shape), src.size(dim)
    shape[dim] = groups
    index, values = index.long(), src.detach()
    best = values.new_zeros(shape).scatter_reduce(dim, index, values, "amax" if is_max else "amin", include_self=False)
    is_best = (values == best.gather(dim, index)) | values.isnan()
    number = torch.arange(entries, device=src.device).view([-1] + [1] * (src.dim() - dim - 1)).expand_as(src)
    arg = index.new_full(shape, entries).scatter_reduce(dim, index, number.masked_fill(~is_best, entries), "amin")
    if entries == 0:
        return of_nothing(src, dim, groups), arg
    return src.gather(dim, arg.clamp(max=entries - 1)), arg


def of_nothing(src: Tensor, dim: int, size: int) -> Tensor:
    """Zeros for a tensor that has size 0 along a dimension, and size ``size`` in the result. They are part of its graph."""
    shape = list(src.shape)
    shape[dim] = size
    return src.sum(dim, keepdim=True, dtype=src.dtype).expand(shape)
