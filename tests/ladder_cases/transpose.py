"""Matrices whose sides are near the limits of tiles, and one of a million elements."""

from __future__ import annotations

import torch

from . import Cases, values

SIDES = [0, 1, 3, 4, 31, 32, 33, 60, 64, 65, 68, 100, 132]


def transpose2d(device: str) -> Cases:
    for rows in SIDES:
        for columns in (4, 33, 64, 68, 257):
            x = values(device, rows, columns, seed=rows)
            yield (x,), x.t().double(), 0.0
    x = values(device, 1020, 1028)
    yield (x,), x.t().double(), 0.0


def takes(step: str, x: torch.Tensor) -> bool:
    return step != "vectors" or (x.shape[0] % 4 == 0 and x.shape[1] % 4 == 0)


CASES = {"transpose2d": transpose2d}
TAKES = {"transpose2d": takes}
