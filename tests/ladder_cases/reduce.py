"""Sums and maxima of all values of a tensor."""

from __future__ import annotations

import torch

from . import SIZES, Cases, values


def reduce_sum(device: str) -> Cases:
    for size in SIZES:
        x = values(device, size, seed=size)
        yield (x,), x.sum(dtype=torch.float64), 1e-5
    x = values(device, 3, 5, 7)
    yield (x,), x.sum(dtype=torch.float64), 1e-5


def reduce_max(device: str) -> Cases:
    for size in SIZES[1:]:
        for shift in (0, -2):
            x = values(device, size, seed=size) + shift
            yield (x,), x.double().max(), 0.0
    for special in (float("nan"), -float("nan"), float("inf"), -float("inf")):
        x = values(device, 5000) - 1
        x[4321] = special
        yield (x,), x.double().amax(), 0.0


CASES = {"reduce_sum": reduce_sum, "reduce_max": reduce_max}
