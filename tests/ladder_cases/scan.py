"""Sums of vectors whose lengths are near the limits of tiles, and of millions of values.

Sums of zeros and ones are exact up to 2^24, in any order.
"""

from __future__ import annotations

import torch

from . import SIZES, Cases, values

AROUND_TILES = [511, 1023, 1024, 1025, 4095, 4096, 4097, 4100, 8192, 262_143, 262_145, 4096 * 4096 + 1]
ON_SINGLE_VALUES = ("sequential", "hillis_steele", "blelloch", "conflict_free", "warp_shuffle", "production")


def ones(device: str, size: int) -> torch.Tensor:
    return values(device, size, seed=size).gt_(0)


def cumsum(device: str) -> Cases:
    for size in [*SIZES, *AROUND_TILES]:
        x = ones(device, size)
        yield (x,), x.cumsum(0, dtype=torch.float64), 0.0
    x = ones(device, 70_001)[1:]
    yield (x,), x.cumsum(0, dtype=torch.float64), 0.0
    for special in (float("nan"), float("inf"), -float("inf")):
        x = ones(device, 9000)
        x[4321] = special
        yield (x,), x.cumsum(0, dtype=torch.float64), 0.0
    x = values(device, 5_000_003)
    yield (x,), x.cumsum(0, dtype=torch.float64), 1e-5


def takes(step: str, x: torch.Tensor) -> bool:
    return step in ON_SINGLE_VALUES or x.data_ptr() % 16 == 0


CASES = {"cumsum": cumsum}
TAKES = {"cumsum": takes}
