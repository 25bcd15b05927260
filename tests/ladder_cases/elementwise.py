"""Products, rounded once. A step supports float32 or float16, and some need alignment: TAKES says whether a step supports a case."""

from __future__ import annotations

import torch
from torch import Tensor

from . import SIZES, Cases, values

SHAPES = [(), (3, 5, 7), (2, 0, 3), (1, 1, 1, 1, 1, 33), (64, 33), *((size,) for size in SIZES)]


def rounded(self: Tensor, other: Tensor) -> Tensor:
    """The product, rounded once: float64 holds products of float32 exactly."""
    return (self.double() * other.double()).to(self.dtype).double()


def mul(device: str) -> Cases:
    for dtype in (torch.float32, torch.float16):
        # Operands that begin at every position in a vector of 16 bytes: both, or one of them.
        for skipped in range(1, 16 // dtype.itemsize):
            self, other = (values(device, 1000 + skipped, dtype=dtype, seed=seed) - 0.25 for seed in (1, 2))
            yield (self[skipped:], other[skipped:]), rounded(self[skipped:], other[skipped:]), 0.0
            yield (self[:1000], other[skipped:]), rounded(self[:1000], other[skipped:]), 0.0
        special = [0.0, -0.0, 1.5, float("inf"), -float("inf"), float("nan")]
        special += [torch.finfo(dtype).max, torch.finfo(dtype).tiny, torch.finfo(dtype).smallest_normal / 4]
        rows = torch.tensor(special, dtype=dtype, device=device).expand(len(special), -1)
        self, other = rows.contiguous(), rows.t().contiguous()
        yield (self, other), rounded(self, other), 0.0
        for seed, shape in enumerate(SHAPES):
            self, other = (values(device, *shape, dtype=dtype, seed=seed + more) - 0.25 for more in (0, 100))
            yield (self, other), rounded(self, other), 0.0


def takes(step: str, self: Tensor, other: Tensor) -> bool:
    if step == "production":
        return True
    if self.dtype != (torch.float16 if step.startswith("half") else torch.float32):
        return False
    align = {"vectors": 16, "half2": 4, "half_vectors": 16}.get(step, self.itemsize)
    return all(x.data_ptr() % align == 0 for x in (self, other))


CASES = {"mul": mul}
TAKES = {"mul": takes}
