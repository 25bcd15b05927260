"""Nearest-neighbour upsampling to exactly twice the size, which every step of the ladders supports."""

from __future__ import annotations

import torch

from . import Cases, values

# (N, C, H, W): widths that are odd or no whole vectors, numbers of planes near multiples of eight, and some 2^20 output values.
SHAPES = [(2, 3, 5, 7), (1, 1, 1, 1), (1, 9, 1, 2), (3, 3, 4, 3), (2, 4, 13, 6), (1, 17, 3, 128), (1, 1, 129, 257)]
SHAPES += [(1, 2, 511, 1), (0, 3, 4, 5), (2, 32, 64, 64), (4, 16, 64, 61)]


def upsample_nearest2d(device: str) -> Cases:
    for seed, (n, c, h, w) in enumerate(SHAPES):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x = values(device, n, c, h, w, dtype=dtype, seed=seed)
            expected = x.double().repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
            yield (x, [2 * h, 2 * w]), expected, 0.0
    x = values(device, 1, 2, 3, 8)
    x[0, 0, 0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    yield (x, [6, 16]), x.double().repeat_interleave(2, dim=2).repeat_interleave(2, dim=3), 0.0


def upsample_nearest2d_backward(device: str) -> Cases:
    for seed, (n, c, h, w) in enumerate([*SHAPES, (2, 0, 3, 4), (3, 16, 75, 75)]):
        grad_output = values(device, n, c, 2 * h, 2 * w, seed=seed)
        expected = grad_output.double().reshape(n, c, h, 2, w, 2).sum(dim=(3, 5))
        yield (grad_output, [2 * h, 2 * w], [n, c, h, w]), expected, 1e-6


CASES = {"upsample_nearest2d": upsample_nearest2d, "upsample_nearest2d_backward": upsample_nearest2d_backward}
