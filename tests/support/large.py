"""Helpers for tests of large tensors. Values are computed and checked in chunks, so that no large reference is stored."""

from __future__ import annotations

import torch

PAST = 2**31 + 4097
CHUNK = 2**26
PERIOD = 251
PLACES = (0, 2**31 - 1, 2**31, PAST - 1)


def filled(numel: int, formula, dtype=torch.uint8, into: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor of formula(i) for i in [0, numel), computed in chunks."""
    flat = torch.empty(numel, dtype=dtype, device="cuda") if into is None else into
    for start in range(0, numel, CHUNK):
        i = torch.arange(start, min(start + CHUNK, numel), device="cuda")
        flat[start : start + CHUNK] = formula(i).to(dtype)
    return flat


def check(flat: torch.Tensor, formula):
    """Asserts flat[i] == formula(i) for all elements, in chunks."""
    for start in range(0, flat.numel(), CHUNK):
        part = flat[start : start + CHUNK]
        i = torch.arange(start, start + part.numel(), device="cuda")
        wrong = part != formula(i).to(flat.dtype)
        assert not wrong.any(), f"first wrong element: {start + int(wrong.nonzero()[0])} of {flat.numel()}"


def ramp(i):
    """Periodic values. The period is no power of 2."""
    return i % PERIOD


def ramp_total(ends):
    """The sum of ramp(i) for 0 <= i < end, for each end."""
    periods, rest = ends // PERIOD, ends % PERIOD
    return periods * (PERIOD * (PERIOD - 1) // 2) + rest * (rest - 1) // 2


def ramp_sums(starts: torch.Tensor, n: int) -> torch.Tensor:
    """The sum of ramp(i) for start <= i < start + n, for each start."""
    return ramp_total(starts + n) - ramp_total(starts)
