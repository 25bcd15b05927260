"""The reference of linear_recurrence, and its specification in the operators of PyTorch."""

from __future__ import annotations

import torch

from benchmarks.references.dtypes import wide

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def _moved(x: torch.Tensor, distance: int, fill: float) -> torch.Tensor:
    """`x` moved by a distance along its first dimension."""
    return torch.cat([torch.full_like(x[:distance], fill), x[: x.shape[0] - distance]])


def doubled(a, b, dim, initial, reverse, shifted) -> torch.Tensor:
    """The recurrence in the arguments' dtype, by doubling: each round combines functions h -> a h + b twice as far apart."""
    rank = max(a.dim(), b.dim())
    a, b = torch.broadcast_tensors(a, b)
    a, b = (x.movedim(dim, 0) if rank else x.unsqueeze(0) for x in (a, b))
    initial = torch.zeros_like(b[:1]).sum(0) if initial is None else initial.expand(b.shape[1:])
    if b.shape[0] == 0:
        return (b + a * initial).movedim(0, dim).clone(memory_format=torch.contiguous_format)
    a, b = (x.flip(0) for x in (a, b)) if reverse else (a, b)
    factors = _moved(a, 1, 1.0) if shifted else a
    h = torch.cat([b[:1] + factors[:1] * initial, b[1:]])
    factors = torch.cat([torch.zeros_like(factors[:1]), factors[1:]])
    distance = 1
    while distance < h.shape[0]:
        h = h + torch.where(_reached(h, distance), factors * _moved(h, distance, 0.0), 0.0)
        factors = torch.where(_reached(h, distance), factors * _moved(factors, distance, 1.0), factors)
        distance *= 2
    h = h.flip(0) if reverse else h
    return (h.movedim(0, dim) if rank else h.squeeze(0)).clone(memory_format=torch.contiguous_format)


def _reached(h: torch.Tensor, distance: int) -> torch.Tensor:
    positions = torch.arange(h.shape[0], device=h.device) >= distance
    return positions.view(-1, *[1] * (h.dim() - 1))


def _promoted(a, b, initial) -> torch.dtype:
    dtype = torch.promote_types(a.dtype, b.dtype)
    return dtype if initial is None else torch.promote_types(dtype, initial.dtype)


def aten(a, b, dim, initial=None, reverse=False, *, shifted=False):
    """PyTorch has no such operator. This is its specification in PyTorch's operators."""
    dtype = _promoted(a, b, initial)
    if dtype not in DTYPES:
        raise NotImplementedError
    if max(a.dim(), b.dim()) == 0 and dim not in (0, -1):
        raise IndexError
    compute = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    first = None if initial is None else initial.to(compute)
    return doubled(a.to(compute), b.to(compute), dim, first, reverse, shifted).to(dtype)


def reference(a, b, dim, initial=None, reverse=False, *, shifted=False) -> torch.Tensor:
    dtype = _promoted(a, b, initial)
    first = None if initial is None else wide(initial, dtype)
    return doubled(wide(a, dtype), wide(b, dtype), dim, first, reverse, shifted)
