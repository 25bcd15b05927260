"""Convolutions of one channel, with padding that keeps the length of the rows."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import conv1d as reference

from . import SIZES, Cases, values


def few_digits(device: str, *shape: int, seed: int = 0) -> Tensor:
    """Values with so few digits that TF32 holds them and sums are exact. The production operator may call cuDNN, which may use TF32."""
    return values(device, *shape, seed=seed).mul_(64).round_().div_(64)


def conv1d(device: str) -> Cases:
    shapes = [(2, size, 2 * (size % 5) + 1) for size in SIZES if 0 < size < 1 << 16]
    shapes += [
        (1, 30, 63),
        (3, 1, 5),
        (2, 257, 4095),
        (1, 5000, 4095),
        (1, 5000, 1025),
    ]  # more taps than a row has values, and the most taps
    shapes += [(7, 13, 3), (3000, 5, 3), (40, 2049, 9), (0, 5, 3), (1, 1 << 16, 1)]
    for rows, size, taps in shapes:
        x, weight = few_digits(device, rows, 1, size, seed=size), few_digits(device, 1, 1, taps, seed=taps)
        yield (x, weight), reference(x.double(), weight.double(), padding=taps // 2), 1e-5
    # Rows that begin at any position in a vector of 16 bytes.
    for skipped in (1, 2, 3):
        x, weight = few_digits(device, 3 * 1001 + skipped)[skipped:].view(3, 1, 1001), few_digits(device, 1, 1, 7)
        yield (x, weight), reference(x.double(), weight.double(), padding=3), 1e-5
    # An infinite value changes exactly the outputs whose taps lie over it.
    x, weight = few_digits(device, 2, 1, 999), few_digits(device, 1, 1, 9) + 1
    expected = reference(x.double(), weight.double(), padding=4)
    x[0, 0, 500] = float("inf")
    expected[0, 0, 496:505] = float("inf")
    yield (x, weight), expected, 1e-5
    for taps in (7, 31):
        x, weight = few_digits(device, 1, 1, 1_000_003, seed=taps), few_digits(device, 1, 1, taps, seed=1)
        yield (x, weight), reference(x.double(), weight.double(), padding=taps // 2), 1e-5


CASES = {"conv1d": conv1d}
