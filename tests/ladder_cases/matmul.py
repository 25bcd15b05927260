"""Matrices with sides near the limits of tiles and slices, at any pitch. Sums of products are exact in float32, except in the last two
cases."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops import ladder

from ..support.runtime import under_sanitizer
from . import Cases

# (m, n, k): single elements, odd sides, around tiles and slices, problems that are split, and one of several tiles for each SM.
SHAPES = [
    (1, 1, 1), (0, 3, 4), (5, 0, 8), (7, 9, 0), (3, 5, 1000), (31, 65, 33), (64, 128, 64), (127, 255, 129),
    (130, 260, 72), (256, 512, 4096), (1000, 1016, 1024), (3333, 2500, 777),
]  # fmt: skip
NAMES = [step.name for step in ladder.steps("matmul")]
FLOATS = {*NAMES[: NAMES.index("ldmatrix")], "three_tf32_wgmma"}
# Steps that need rows that begin at multiples of 16 bytes.
ALIGNED = {"vectors", "bulk_copies", *NAMES[NAMES.index("wgmma") : -1]}
VEC = 16  # bytes
MOST_UNDER_SANITIZER = 1 << 22  # products


def rows(shape: tuple, pitch: int, offset: int, dtype: torch.dtype, random: torch.Generator) -> Tensor:
    """Multiples of 1/4 in rows that are `pitch` elements apart, from an `offset` on. The gaps are NaN."""
    m, n = shape
    values = torch.randint(-8, 9, shape, generator=random, device=random.device) / 4
    memory = torch.full((offset + m * pitch,), torch.nan, dtype=dtype, device=random.device)
    matrix = memory.as_strided(shape, (pitch, 1), offset)
    return matrix.copy_(values.to(dtype))


def matmul(device: str) -> Cases:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        vec = VEC // dtype.itemsize
        for number, (m, n, k) in enumerate(SHAPES):
            if under_sanitizer() and m * n * k > MOST_UNDER_SANITIZER:
                continue
            random = torch.Generator(device).manual_seed(number)
            for aligned in (True, False):

                def up(columns: int, unit: int = vec if aligned else 1) -> int:
                    return max(-(-columns // unit) * unit, unit)

                offset = (number % 3) * (vec if aligned else 1)
                a = rows((m, k), up(k), offset, dtype, random)
                b = rows((k, n), up(n + number % 2), offset, dtype, random)
                expected = (a.double() @ b.double()).to(dtype).double()
                yield (a, b), expected, 0.0
    random = torch.Generator(device).manual_seed(99)
    m, n, k = (64, 96, 1024) if under_sanitizer() else (512, 768, 1024)
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float32, 1e-4)):
        a, b = (torch.randn(shape, generator=random, device=device).to(dtype) for shape in ((m, k), (k, n)))
        yield (a, b), a.double() @ b.double(), tolerance


def takes(step: str, a: Tensor, b: Tensor) -> bool:
    if step == "production":  # cuBLAS may round parts of sums to 16 bits
        return a.dtype == torch.float32
    if (a.dtype == torch.float32) != (step in FLOATS):
        return False

    def is_aligned(x: Tensor) -> bool:
        size = x.element_size()
        return x.data_ptr() % VEC == 0 and (x.shape[0] <= 1 or x.stride(0) * size % VEC == 0)

    return step not in ALIGNED or all(x.numel() == 0 or is_aligned(x) for x in (a, b))


CASES = {"matmul": matmul}
TAKES = {"matmul": takes}
