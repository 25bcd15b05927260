"""Dot products of float16 whose sums are exact in any order: integers, with at most 512 products that are not 0, each 4 at most.

Steps differ in the alignment that they need: TAKES says whether a step supports a case.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import SIZES, Cases


def vectors(device: str, size: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator(device).manual_seed(size)
    sides = torch.randint(0, 4, (2, size), generator=random, device=device)
    self, tensor = torch.tensor([-2, -1, 1, 2], dtype=torch.float16, device=device)[sides]
    if size > 500:
        some = torch.randint(0, size, (300,), generator=random, device=device)
        kept = torch.zeros_like(self)
        kept[some] = kept[:100] = kept[-100:] = 1
        self = self * kept
    return self.clone(), tensor.clone()


def dot(device: str) -> Cases:
    for first, second in ((0, 0), (1, 1), (0, 1), (8, 3)):  # positions where the vectors begin
        self, tensor = vectors(device, 1008)
        self, tensor = self[first : first + 1000], tensor[second : second + 1000]
        yield (self, tensor), self.double() @ tensor.double(), 0.0
    for value in (float("nan"), float("inf"), -float("inf")):
        self, tensor = vectors(device, 5000)
        self[4321], tensor[4321] = value, 1
        yield (self, tensor), self.double() @ tensor.double(), 0.0
    for size in SIZES:
        self, tensor = vectors(device, size)
        yield (self, tensor), self.double() @ tensor.double(), 0.0
        if 0 < size <= 500:  # sums that show a missing product
            self, tensor = torch.ones_like(self), torch.full_like(tensor, 2)
            yield (self, tensor), self.double() @ tensor.double(), 0.0


def takes(step: str, self: Tensor, tensor: Tensor) -> bool:
    return step != "vectors" or all(x.data_ptr() % 16 == 0 for x in (self, tensor))


CASES = {"dot": dot}
TAKES = {"dot": takes}
