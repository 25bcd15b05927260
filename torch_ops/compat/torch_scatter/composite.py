"""``torch_scatter.composite``: standard deviation, log-sum-exp and softmax of groups."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops.compat.torch_scatter._groups import counts, gather, is_half, shape_of, softmax, vector_of
from torch_ops.compat.torch_scatter._scatter import scatter_max, scatter_sum
from torch_ops.compat.torch_scatter.utils import broadcast

__all__ = ["scatter_log_softmax", "scatter_logsumexp", "scatter_softmax", "scatter_std"]


def scatter_std(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    unbiased: bool = True,
) -> Tensor:
    """The standard deviation of each group.

    Args:
        src: as for :func:`scatter`.
        index: as for :func:`scatter`.
        dim: as for :func:`scatter`.
        out: tensor to which the squared distances from the mean are added. The result is another tensor, as in the original.
        dim_size: as for :func:`scatter`.
        unbiased: whether the sum is divided by n - 1 in place of n, and by 1 at least.

    Returns:
        A tensor as from :func:`scatter`. It is differentiable.
    """
    dim = dim + src.dim() if dim < 0 else dim
    index = broadcast(index, src, dim)
    groups = shape_of(src, index, dim, out, dim_size)[dim]
    wide = src.float() if is_half(src) else src
    count = counts(index, dim, groups).clamp(min=1).to(wide.dtype)
    mean = scatter_sum(wide, index, dim, None, groups).div(count)
    distance = wide - gather(mean, dim, index)
    total = scatter_sum(distance * distance, index, dim, None if out is None else out.to(wide.dtype), groups)
    if out is not None:
        out.copy_(total)
    count = (count - 1).clamp(min=1) if unbiased else count
    return total.div(count + 1e-6).sqrt().to(src.dtype)


def scatter_logsumexp(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    eps: float = 1e-12,
) -> Tensor:
    """The logarithm of the sum of exponentials of each group.

    Args:
        src: floating-point tensor.
        index: as for :func:`scatter`.
        dim: as for :func:`scatter`.
        out: tensor that takes part with its exponentials and is written to. Where the result is not finite, it keeps its value.
        dim_size: as for :func:`scatter`.
        eps: added to the sum, after it was divided by its greatest exponential.

    Returns:
        ``out``, or a tensor as from :func:`scatter`. A group without entries is 0, and so is one of ``-inf``.

    Raises:
        ValueError: ``src`` is not floating-point.
    """
    if not src.is_floating_point():
        raise ValueError("scatter_logsumexp: src must be floating-point")
    if is_half(src) and (out is None or out.dtype == src.dtype):
        wide = _logsumexp(src.float(), index, dim, None if out is None else out.float(), dim_size, eps)
        return wide.to(src.dtype) if out is None else out.copy_(wide)
    return _logsumexp(src, index, dim, out, dim_size, eps)


def _logsumexp(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None, eps: float) -> Tensor:
    dim = dim + src.dim() if dim < 0 else dim
    index = broadcast(index, src, dim)
    shape = shape_of(src, index, dim, out, dim_size)
    greatest = scatter_max(src, index, dim, src.new_full(shape, -float("inf")))[0]
    shifted = src - gather(greatest, dim, index)
    shifted = shifted.masked_fill(shifted.isnan(), -float("inf"))
    total = scatter_sum(shifted.exp(), index, dim, None, shape[dim])
    result = (total + eps).log() + greatest
    if out is None:
        return result.nan_to_num(neginf=0.0)
    old = out.clone()
    both = torch.logaddexp(torch.where(result.isfinite(), result, old), old)
    return out.copy_(torch.where(result.isfinite() & both.isfinite(), both, old))


def scatter_softmax(src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None) -> Tensor:
    """The softmax over the entries of each group.

    Args:
        src: floating-point tensor.
        index: as for :func:`scatter`.
        dim: as for :func:`scatter`.
        dim_size: as for :func:`scatter`.

    Returns:
        A tensor of ``src``'s shape and dtype.

    Raises:
        ValueError: ``src`` is not floating-point.
    """
    if not src.is_floating_point():
        raise ValueError("scatter_softmax: src must be floating-point")
    dim = dim + src.dim() if dim < 0 else dim
    index = broadcast(index, src, dim)
    groups = shape_of(src, index, dim, None, dim_size)[dim]
    vector = vector_of(index, dim)
    if vector is not None:
        return softmax(src, dim, vector, groups)
    powers = _shifted(src.float() if is_half(src) else src, index, dim, groups).exp()
    return (powers / gather(scatter_sum(powers, index, dim, None, groups), dim, index)).to(src.dtype)


def scatter_log_softmax(
    src: Tensor, index: Tensor, dim: int = -1, eps: float = 1e-12, dim_size: int | None = None
) -> Tensor:
    """The logarithm of :func:`scatter_softmax`.

    Args:
        src: floating-point tensor.
        index: as for :func:`scatter`.
        dim: as for :func:`scatter`.
        eps: added to the sum, after it was divided by its greatest exponential.
        dim_size: as for :func:`scatter`.

    Returns:
        A tensor of ``src``'s shape and dtype.

    Raises:
        ValueError: ``src`` is not floating-point.
    """
    if not src.is_floating_point():
        raise ValueError("scatter_log_softmax: src must be floating-point")
    dim = dim + src.dim() if dim < 0 else dim
    index = broadcast(index, src, dim)
    groups = shape_of(src, index, dim, None, dim_size)[dim]
    shifted = _shifted(src.float() if is_half(src) else src, index, dim, groups)
    total = scatter_sum(shifted.exp(), index, dim, None, groups)
    return (shifted - gather((total + eps).log(), dim, index)).to(src.dtype)


def _shifted(src: Tensor, index: Tensor, dim: int, groups: int) -> Tensor:
    """The distance of each entry from the maximum of its group."""
    return src - gather(scatter_max(src, index, dim, None, groups)[0], dim, index)
