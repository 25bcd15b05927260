"""References of reduce_sum, reduce_mean, reduce_max and reduce_min."""

from __future__ import annotations

import math

import torch

from benchmarks.references.dtypes import real_of, wide


def reduced_dims(x: torch.Tensor, dim) -> list[int]:
    """The reduced dimensions, counted from the front. None and () mean all dimensions."""
    dims = range(x.dim()) if dim is None or dim == () or dim == [] else [dim] if isinstance(dim, int) else dim
    return sorted(d % x.dim() for d in dims) if x.dim() else []


def rows_of(x: torch.Tensor, dim) -> torch.Tensor:
    """The values of each result, along one last dimension."""
    reduced = reduced_dims(x, dim)
    kept = [d for d in range(x.dim()) if d not in reduced]
    sizes = [x.shape[d] for d in kept]
    return x.permute(kept + reduced).reshape(*sizes, math.prod(x.shape[d] for d in reduced))


def shaped(result: torch.Tensor, x: torch.Tensor, dim, keepdim: bool) -> torch.Tensor:
    for d in reduced_dims(x, dim) if keepdim else ():
        result = result.unsqueeze(d)
    return result


def sum_in_pairs(rows: torch.Tensor, rest: torch.Tensor | None = None) -> torch.Tensor:
    """Sums in about twice the precision of float64. The rounding error of each addition is summed, too (Knuth's TwoSum), and so is
    the optional `rest` of each value."""
    if rows.shape[-1] == 0:
        return rows.sum(-1)
    high, low = rows, torch.zeros_like(rows) if rest is None else rest
    while high.shape[-1] > 1:
        if high.shape[-1] % 2:
            high, low = (torch.nn.functional.pad(t, (0, 1)) for t in (high, low))
        a, b = high.chunk(2, -1)
        high = a + b
        rest = high - a
        low = sum(low.chunk(2, -1)) + ((a - (high - rest)) + (b - rest))
    high, low = high[..., 0], low[..., 0]
    return torch.where(high.isfinite(), high + low, high)


def sum_reference(x, dim=None, keepdim=False, *, dtype=None) -> torch.Tensor:
    if dtype is None:
        dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.int64
    rows = rows_of(wide(x, dtype), dim)
    if dtype == torch.bool:
        total = rows.any(-1)
    else:
        total = sum_in_pairs(rows) if real_of(dtype) == torch.float64 else rows.sum(-1)
    return shaped(total, x, dim, keepdim)


def mean_reference(x, dim=None, keepdim=False, *, dtype=None) -> torch.Tensor:
    count = math.prod(x.shape[d] for d in reduced_dims(x, dim))
    total = sum_reference(x, dim, keepdim, dtype=dtype)
    if not count:
        return torch.full_like(total, math.nan)
    # Divide by a tensor, and the parts of complex numbers separately. For a number, CUDA multiplies by its reciprocal, and a
    # complex division rounds several times.
    parts = torch.view_as_real(total) if total.is_complex() else total
    mean = parts / torch.full_like(parts, count)
    return torch.view_as_complex(mean) if total.is_complex() else mean


def max_reference(x, dim=None, keepdim=False) -> torch.Tensor:
    rows = rows_of(wide(x, x.dtype), dim)
    return shaped(rows.any(-1) if x.dtype == torch.bool else rows.max(-1).values, x, dim, keepdim)


def min_reference(x, dim=None, keepdim=False) -> torch.Tensor:
    rows = rows_of(wide(x, x.dtype), dim)
    return shaped(rows.all(-1) if x.dtype == torch.bool else rows.min(-1).values, x, dim, keepdim)
