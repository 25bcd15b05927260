"""Tensors in many memory layouts, and with values that break kernels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8,)
BAREBONES_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # PyTorch has only some operators for these
INTEGERS = SIGNED + UNSIGNED
ALL = FLOATS + COMPLEX + INTEGERS + (torch.bool,)


def without_autocast(like: torch.Tensor) -> contextlib.AbstractContextManager:
    kind = like.device.type
    return contextlib.nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)


def finite_sizes(t: torch.Tensor) -> torch.Tensor:
    """Absolute values, with 0 for infinities and NaN. Rounding errors are relative to these."""
    size = t.abs()
    return torch.where(size.isfinite(), size, 0.0)


class Maker:
    """Makes the random tensors of a set of samples. They are seeded and drawn on the CPU, so that every device gets the same
    values.

    Integers have the full range of their dtype, so that products wrap around. `small` integers are exact when added to floats.
    """

    def __init__(self, device: str, dtype: torch.dtype, seed: int = 0, small: bool = False):
        self.device, self.dtype, self._low_high = device, dtype, (-5, 6) if small else (-(2**63), 2**63 - 1)
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        dtype = dtype or self.dtype
        if dtype == torch.bool:
            values = torch.randint(0, 2, shape, generator=self._generator)
        elif dtype.is_floating_point or dtype.is_complex:
            drawn = torch.promote_types(dtype, torch.float32)  # float64 takes five times as long to draw
            values = torch.randn(shape, generator=self._generator, dtype=drawn)
        else:
            values = torch.randint(*self._low_high, shape, generator=self._generator, dtype=torch.int64)
        return values.to(dtype).to(self.device)


def poison(shape, dtype: torch.dtype, device) -> torch.Tensor:
    """A tensor of values that no operator produces from ordinary inputs, and that are visible in every result that uses them."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full(shape, math.nan, dtype=dtype, device=device)
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype, device=device)
    return torch.full(shape, torch.iinfo(dtype).max - 2, dtype=dtype, device=device)


def twin(t: torch.Tensor) -> torch.Tensor:
    """A copy of `t` with its own storage, the same size, strides, offset, conj and neg bits, and no autograd history."""
    with torch.no_grad():
        copy = torch.empty(0, dtype=t.dtype, device=t.device)
        copy.set_(t.untyped_storage().clone(), t.storage_offset(), t.size(), t.stride())
        if t.is_conj():
            copy = copy.conj()
        if t.is_neg():
            copy = torch._neg_view(copy)
    return copy.requires_grad_(t.requires_grad and t.is_leaf)


# A layout is a function of a contiguous tensor. It returns a tensor with the same values (the same shape, for expanded layouts) in
# another memory layout, or None if the tensor cannot have the layout (channels_last of a vector).


def _sliced(t):
    """The inside of a tensor that is one element larger at both ends of every dimension."""
    around = poison([n + 2 for n in t.shape], t.dtype, t.device)
    inside = around[tuple(slice(1, n + 1) for n in t.shape)]
    return inside.copy_(t)


def _rows(t):
    """Rows of a wider matrix, which are dense but have gaps between them."""
    if t.dim() < 2:
        return None
    wide = poison([*t.shape[:-1], t.shape[-1] + 5], t.dtype, t.device)
    return wide[..., : t.shape[-1]].copy_(t)


def _step2(t):
    if t.dim() < 1:
        return None
    wide = poison([*t.shape[:-1], 2 * t.shape[-1]], t.dtype, t.device)
    return wide[..., ::2].copy_(t)


def _transposed(t):
    return t.mT.contiguous().mT if t.dim() >= 2 else None


def _reversed(t):
    """All dimensions in reverse order of memory (Fortran order)."""
    order = tuple(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order) if t.dim() >= 3 else None


def _rotated(t):
    """The first dimension innermost in memory. This permutation is not its own inverse."""
    return t.movedim(0, -1).contiguous().movedim(-1, 0) if t.dim() >= 3 else None


def _channels_last(t):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.dim()]) if t.dim() in formats else None


def _misaligned(by):
    def layout(t):
        flat = poison([t.numel() + by], t.dtype, t.device)
        return flat[by:].view(t.shape).copy_(t)

    return layout


def _expanded(dim):
    def layout(t):
        return t.narrow(dim, 0, 1).expand_as(t) if t.dim() >= 2 and t.shape[dim] > 0 else None

    return layout


def _conj(t):
    return t.conj().resolve_conj().conj() if t.is_complex() else None


def _neg(t):
    # Users get a neg bit from z.conj().imag, so it exists for every float dtype with a complex dtype.
    if t.dtype not in (torch.float16, torch.float32, torch.float64):
        return None
    pairs = torch.stack([torch.full_like(t, math.nan), t.neg()], dim=-1)
    return torch.view_as_complex(pairs).conj().imag


LAYOUTS = {
    "contiguous": lambda t: t,
    "sliced": _sliced,
    "rows": _rows,
    "step2": _step2,
    "transposed": _transposed,
    "reversed": _reversed,
    "rotated": _rotated,
    "channels_last": _channels_last,
    "misaligned1": _misaligned(1),
    "misaligned3": _misaligned(3),
    "expanded_first": _expanded(0),
    "expanded_last": _expanded(-1),
    "conj": _conj,
    "neg": _neg,
}


def in_layout(name: str, t: torch.Tensor) -> torch.Tensor | None:
    return LAYOUTS[name](t)


def special_values(dtype: torch.dtype) -> list:
    """Special numbers of a dtype: both zeros, infinities, NaN, subnormals, the largest numbers, and numbers whose product just
    overflows or just does not."""
    if dtype == torch.bool:
        return [False, True]
    if dtype.is_complex:
        parts = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan]
        return [complex(re, im) for re in parts for im in parts]
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        subnormal = info.smallest_normal * info.eps
        positive = [0.0, 1.0, 1.0 + info.eps, 1.5, 3.0, math.inf, info.max, math.sqrt(info.max), info.smallest_normal,
                    subnormal, 3 * subnormal, info.smallest_normal - subnormal, 0.5]  # fmt: skip
        return positive + [-v for v in positive] + [math.nan]
    info = torch.iinfo(dtype)
    return sorted(
        {info.min, info.min + 1, info.max, info.max // 2 + 1, 0, 1, 2, 3, 7} | ({-1, -2, -3} if info.min < 0 else set())
    )


def specials(dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.tensor(special_values(dtype), dtype=dtype, device=device)


def resized(t: torch.Tensor, sizes: Sequence[int] | None = None) -> torch.Tensor:
    """A tensor of other sizes with the same order of dimensions in memory, for tests of dynamic shapes.

    By default every size is doubled, except sizes of 1, which broadcast.
    """
    big = t.resolve_conj().resolve_neg()
    for dim, size in enumerate(sizes or [n if n == 1 else 2 * n for n in t.shape]):
        if size != t.shape[dim]:
            big = torch.cat([big] * -(-size // max(t.shape[dim], 1)), dim).narrow(dim, 0, size)
    order = sorted(range(t.dim()), key=lambda d: (-t.stride(d), d))
    back = [order.index(d) for d in range(t.dim())]
    new = big.permute(order).clone(memory_format=torch.contiguous_format)
    return new.permute(back).detach().requires_grad_(t.requires_grad)
