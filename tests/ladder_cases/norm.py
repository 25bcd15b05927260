"""Layer norms of rows whose lengths are near the limits of warps, blocks and registers, and their gradients."""

from __future__ import annotations

import torch

from benchmarks.rooms.norm import layer_backward_reference, layer_reference, statistics

from . import Cases

# (rows, length): no whole vectors or warps, rows on both sides of what a step keeps in registers, and many rows.
SHAPES = [
    (1, 1),
    (3, 7),
    (9, 33),
    (0, 64),
    (5, 0),
    (17, 96),
    (8, 1000),
    (7, 1023),
    (64, 1024),
    (3, 1025),
    (2, 4096),
    (3, 4097),
]
SHAPES += [(2, 70_001), (30_011, 16), (2000, 257), (1001, 1024)]
DTYPES = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def normal(device: str, seed: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)


def layer_norm(device: str) -> Cases:
    for seed, shape in enumerate(SHAPES):
        for dtype, tolerance in DTYPES.items():
            x, weight, bias = (normal(device, seed, dtype, *s) for s in (shape, shape[1:], shape[1:]))
            yield (x, weight, bias), layer_reference(x, weight, bias), tolerance
    x, ones = normal(device, 0, torch.float32, 40, 1000), torch.ones(1000, device=device)
    x[3, 77], x[8, 0], x[39, 999] = torch.nan, torch.inf, -torch.inf
    yield (x, ones, ones), layer_reference(x, ones, ones), 2e-5
    x = normal(device, 1, torch.float32, 40, 1000) + 10_000
    yield (x, ones, ones), layer_reference(x, ones, ones), 5e-3
    x, weight, bias = (normal(device, 2, torch.float32, 8 * size + 1)[1:] for size in (1000, 1, 1))
    yield (x.view(1000, 8), weight, bias), layer_reference(x.view(1000, 8), weight, bias), 2e-5


def layer_norm_backward(device: str) -> Cases:
    """Values of grad are so small that sums over rows are about 1. The first step rounds each of their additions."""
    for seed, shape in enumerate(SHAPES):
        for dtype, tolerance in DTYPES.items():
            grad, x, weight = (normal(device, 3 * seed + k, dtype, *s) for k, s in enumerate((shape, shape, shape[1:])))
            grad = grad / max(shape[0], 1) ** 0.5
            args = (grad, x, *statistics(x, False), weight)
            yield args, layer_backward_reference(*args), max(tolerance, 1e-4)


CASES = {"layer_norm": layer_norm, "layer_norm_backward": layer_norm_backward}
