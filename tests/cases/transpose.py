"""Cases of transpose2d: samples of many shapes and layouts, and errors. Elements are only moved, so results are ATen's bits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import torch_ops
from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, Sample
from .tensors import ALL, BAREBONES_UNSIGNED, COMPLEX, FLOATS, LAYOUTS, Maker

# Sizes around whole vectors and tiles, on the paths for tiles (both sizes at least 64), for strips and for other matrices.
SHAPES = [
    (1, 1), (1, 7), (7, 1), (3, 5), (31, 33), (32, 32), (33, 70), (64, 64), (65, 127), (128, 64), (130, 257), (3, 1000), (1000, 3),
    (0, 5), (5, 0), (0, 0), (0, 3, 4), (2, 0, 4), (2, 3, 4), (3, 64, 48), (2, 2, 40, 56), (5, 33, 35), (2, 1, 3, 2, 34, 36),
    (70, 130), (2, 66, 80), (300, 7, 9), (64, 16, 16), (3, 50, 300), (2, 300, 50),
]  # fmt: skip


def _transposed(self: torch.Tensor) -> torch.Tensor:
    return self.mT.clone(memory_format=torch.contiguous_format)


def _reference(self: torch.Tensor) -> torch.Tensor:
    return wide(self, self.dtype).mT


def _bound(device, result_dtype, reference, self):
    """No error: nothing is rounded."""


def _sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for shape in SHAPES:
        yield Sample(
            str(shape),
            (make(*shape),),
            sanitize=shape in ((33, 70), (64, 64), (65, 127), (3, 64, 48), (300, 7, 9), (3, 1000)),
        )
    for shape in (
        (6, 9),
        (2, 5),
        (64, 64),
        (33, 40),
        (1, 6),
        (6, 1),
        (3, 40, 36),
        (4, 2, 3),
        (5, 3, 4),
        (2, 3, 64, 33),
        (2, 3, 64, 70),
        (40, 6, 8),
        (3, 2, 32, 48),
        (7, 3),
        (2, 3, 4, 5),
    ):
        for name, layout in LAYOUTS.items():
            x = layout(make(*shape))
            if x is not None:
                yield Sample(f"{shape} {name}", (x,))


def _few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for shape in ((3, 4), (1, 4), (4, 2), (2, 3, 2), (2, 1, 3, 2), (33, 34)):
        for name in ("contiguous", "transposed"):
            yield Sample(f"{shape} {name}", (LAYOUTS[name](make(*shape)),))


def _errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    for size in (0, 1, 2, 3, 64, 1000, 4099):
        yield ErrorCase(f"vector of {size}", (make(size),), says=(r"\binput\b", rf"\[{size}\]"))


CASES = [
    OpCase(
        name="transpose2d",
        op=torch_ops.transpose2d,
        overload=torch.ops.gpuopt.transpose2d.default,
        aten=_transposed,
        reference=_reference,
        samples=_sweep,
        few=_few,
        errors=_errors,
        dtypes=ALL,
        grad_dtypes=FLOATS + COMPLEX[1:],
        cuda_dtypes=BAREBONES_UNSIGNED,
        bound=_bound,
    )
]
