"""``torch_scatter.scatter``: reductions of the entries that an index assigns to groups, in any order."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops.compat.torch_scatter._groups import add, counts, is_half, product, reduced, select, shape_of, vector_of
from torch_ops.compat.torch_scatter.utils import broadcast

__all__ = ["scatter", "scatter_add", "scatter_max", "scatter_mean", "scatter_min", "scatter_mul", "scatter_sum"]


def scatter_sum(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """:func:`scatter` with ``reduce="sum"``. Values are added to ``out``."""
    dim = dim + src.dim() if dim < 0 else dim
    index = broadcast(index, src, dim)
    shape = shape_of(src, index, dim, out, dim_size)
    if out is not None:
        return add(out, dim, index, src)
    result = reduced(src, dim, index, shape[dim], "sum")
    return add(src.new_zeros(shape), dim, index, src) if result is None else result


def scatter_add(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """:func:`scatter_sum`."""
    return scatter_sum(src, index, dim, out, dim_size)


def scatter_mul(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """:func:`scatter` with ``reduce="mul"``. ``out`` is multiplied by values."""
    dim = dim + src.dim() if dim < 0 else dim
    index = broadcast(index, src, dim)
    groups = shape_of(src, index, dim, out, dim_size)[dim]
    if out is None:
        return product(src, dim, index, groups)
    # out has the first factor of each group. A product that overflows by itself may be finite with it.
    factors, first = torch.cat([out, src], dim), torch.arange(groups, dtype=index.dtype, device=index.device)
    vector = vector_of(index, dim)
    if vector is None:
        index = torch.cat([broadcast(first, out, dim), index], dim)
    else:
        index = broadcast(torch.cat([first, vector]), factors, dim)
    return out.copy_(product(factors, dim, index, groups))


def scatter_mean(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """:func:`scatter` with ``reduce="mean"``. ``out`` becomes the sum of itself and the values, divided by the number of values."""
    dim = dim + src.dim() if dim < 0 else dim
    if out is None:
        index = broadcast(index, src, dim)
        result = reduced(src, dim, index, shape_of(src, index, dim, out, dim_size)[dim], "mean")
        if result is not None:
            return result
    if is_half(src) and (out is None or out.dtype == src.dtype):
        wide = _mean(src.float(), index, dim, None if out is None else out.float(), dim_size)
        return wide.to(src.dtype) if out is None else out.copy_(wide)
    return _mean(src, index, dim, out, dim_size)


def scatter_min(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """:func:`scatter` with ``reduce="min"``, and the entries that the minima are from, see :func:`scatter_max`."""
    return _select(src, index, dim, out, dim_size, "min")


def scatter_max(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """:func:`scatter` with ``reduce="max"``, and the entries that the maxima are from.

    Returns:
        The maxima, and an int64 tensor of the same shape with positions along ``dim``: the first of equal entries. A group without
        entries, and one whose ``out`` was not exceeded, has ``src.shape[dim]``. So has a group of infinities that are the result of
        no entries: ``-inf`` for a maximum. Its value is 0.
    """
    return _select(src, index, dim, out, dim_size, "max")


def scatter(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> Tensor:
    """Reduces the entries of ``src`` along ``dim`` that ``index`` assigns to the same group.

    Args:
        src: tensor of any shape, of a floating-point or integer dtype.
        index: int64 or int32 tensor: a vector of the group of each entry along ``dim``, or a tensor that broadcasts to ``src``,
            with values from 0 to ``dim_size - 1``. See :func:`torch_ops.compat.torch_scatter.utils.broadcast`.
        dim: the dimension that is reduced.
        out: tensor of ``src``'s dtype that takes part in the reduction and is written to. It is returned.
        dim_size: the number of groups. Default: one more than the greatest value of ``index``, which waits for the GPU.
        reduce: ``"sum"`` or ``"add"``, ``"mul"``, ``"mean"``, ``"min"``, ``"max"``. The mean of integers is rounded down.

    Returns:
        ``out``, or a tensor of ``src``'s shape and dtype with ``dim_size`` groups along ``dim``. A group without entries is 0, or 1
        for ``"mul"``. Differentiable in ``src`` and ``out``, any number of times.

    Raises:
        ValueError: an unknown ``reduce``.
        RuntimeError: ``index`` does not broadcast to ``src``; ``out`` has another shape or dtype.
    """
    if reduce == "sum" or reduce == "add":
        return scatter_sum(src, index, dim, out, dim_size)
    if reduce == "mul":
        return scatter_mul(src, index, dim, out, dim_size)
    if reduce == "mean":
        return scatter_mean(src, index, dim, out, dim_size)
    if reduce == "min":
        return scatter_min(src, index, dim, out, dim_size)[0]
    if reduce == "max":
        return scatter_max(src, index, dim, out, dim_size)[0]
    raise ValueError(f"scatter: reduce must be sum, add, mul, mean, min or max, got {reduce}")


def _mean(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> Tensor:
    out = scatter_sum(src, index, dim, out, dim_size)
    count = counts(broadcast(index, src, dim), dim, out.size(dim)).clamp(min=1)
    return out.div_(count, rounding_mode=None if out.is_floating_point() else "floor")


def _select(
    src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None, reduce: str
) -> tuple[Tensor, Tensor]:
    dim = dim + src.dim() if dim < 0 else dim
    index = broadcast(index, src, dim)
    groups = shape_of(src, index, dim, out, dim_size)[dim]
    values, arg = select(src, dim, index, groups, reduce)
    return selected(values, arg, src.size(dim), out, reduce)


def selected(values: Tensor, arg: Tensor, entries: int, out: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
    """The results of :func:`scatter_max` or :func:`scatter_min`: without a better entry a group has entry ``entries``, and the value
    of ``out`` or 0.
    """
    found = arg < entries
    if out is None:
        found = found & (values != (-float("inf") if reduce == "max" else float("inf")))
        result = values.masked_fill(~found, 0)
    else:
        found = found & ((values > out if reduce == "max" else values < out) | values.isnan())
        result = out.copy_(torch.where(found, values, out))
    return result, arg.masked_fill(~found, entries)
