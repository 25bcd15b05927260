"""Test cases of the ladders, a module for each family of operators.

CASES[op](device) yields (arguments, expected result, tolerance). Expected results are computed in float64, or exact for operators that
only move values. There is a tuple of them where the operator returns one. The tolerance is relative, and absolute near 0.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Cases = Iterator[tuple[tuple, Tensor | tuple[Tensor, ...], float]]
SIZES = [0, 1, 3, 31, 32, 33, 255, 256, 257, 513, 4099, 1 << 16, 1_000_003]


def values(device: str, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Random values in [0, 1). Half of them are 0."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.rand(shape, generator=generator, device=device).mul_(2).sub_(1).relu_().to(dtype)


CASES: dict[str, Callable[[str], Cases]] = {}
# TAKES[op](step, *arguments): whether the step supports the arguments. Without an entry every step supports every case.
TAKES: dict[str, Callable[..., bool]] = {}
for _module in pkgutil.iter_modules(__path__):
    _found = importlib.import_module(f"{__name__}.{_module.name}")
    CASES |= _found.CASES
    TAKES |= getattr(_found, "TAKES", {})


def cases_of(op: str, step: str, device: str) -> Cases:
    """The cases that the step supports."""
    for args, expected, tolerance in CASES[op](device):
        if op not in TAKES or TAKES[op](step, *args):
            yield args, expected, tolerance
