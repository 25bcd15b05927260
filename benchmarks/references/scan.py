"""The reference of cumsum."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.references.dtypes import wide


def scanned(x: torch.Tensor, dim: int, reverse: bool, exclusive: bool) -> torch.Tensor:
    """The sums of `x` in its own dtype."""
    if x.dim() == 0:
        return torch.zeros_like(x) if exclusive else x.clone()
    total = (x.flip(dim) if reverse else x).cumsum(dim, dtype=x.dtype)
    if exclusive and x.shape[dim] > 0:
        total = total.roll(1, dim)
        total.narrow(dim, 0, 1).zero_()
    return (total.flip(dim) if reverse else total).contiguous()


def _scanned_in_more_bits(x: torch.Tensor, dim: int, reverse: bool, exclusive: bool) -> torch.Tensor:
    """The sums of float64 or complex128 in numpy's longest type, rounded to the dtype of `x`."""
    long = np.clongdouble if x.is_complex() else np.longdouble
    values = x.detach().cpu().resolve_conj().resolve_neg().numpy().astype(long)
    values = np.flip(values, dim) if reverse else values
    with np.errstate(all="ignore"):
        total = np.cumsum(values, dim, dtype=long)
        if exclusive:
            total = np.roll(total, 1, dim)
            total[(slice(None),) * (dim % x.dim()) + (slice(0, 1),)] = 0
        total = np.flip(total, dim) if reverse else total
        return torch.from_numpy(
            np.ascontiguousarray(total, values.dtype).astype(f"{long(0).dtype.kind}{x.itemsize}")
        ).to(x.device)


def reference(x, dim, *, dtype=None, reverse=False, exclusive=False) -> torch.Tensor:
    if dtype is None:
        dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.int64
    values = wide(x, dtype)
    is_long = values.dtype in (torch.float64, torch.complex128) and x.dtype == values.dtype
    is_long = is_long and not x.is_meta and x.numel() <= 1 << 22  # numpy takes long beyond
    return (_scanned_in_more_bits if is_long and x.dim() else scanned)(values, dim, reverse, exclusive)
