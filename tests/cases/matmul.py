"""Cases of matmul: vectors, matrices and batches in many layouts, in both precisions.

Products are computed in 3xTF32 on a GPU of compute capability 9.0, and only if they are large. CPU tests have no large ones.
tests/emulation/matmul/test_matmul_kernels.py runs the kernel on the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

import torch_ops
from benchmarks.references.dtypes import real_of, wide

from . import ErrorCase, OpCase, OpInfoLink, Sample
from .tensors import FLOATS, LAYOUTS, Maker, finite_sizes

PRECISIONS = ("ieee", "3xtf32")
DTYPES = FLOATS + (torch.complex64, torch.complex128)
# Every combination of ranks, with broadcasting, with sizes 0 and 1, and around whole vectors.
SHAPES = [
    ((5,), (5,)), ((1,), (1,)), ((0,), (0,)), ((5,), (5, 7)), ((3, 5), (5,)), ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((17, 33), (33, 9)),
    ((3, 0), (0, 4)), ((0, 5), (5, 3)), ((3, 5), (5, 0)), ((2, 3, 5), (5,)), ((5,), (2, 5, 3)), ((2, 3, 5), (5, 7)), ((3, 5), (2, 5, 7)),
    ((2, 3, 5), (2, 5, 7)), ((1, 3, 5), (4, 5, 2)), ((4, 3, 5), (1, 5, 2)), ((2, 1, 3, 5), (3, 5, 2)), ((2, 3, 4, 5), (5, 6)),
    ((0, 3, 5), (5, 2)), ((2, 0, 5), (2, 5, 3)), ((2, 3, 0), (2, 0, 4)), ((3, 1, 2, 4), (1, 2, 4, 3)),
]  # fmt: skip
# Large enough for 3xTF32: odd sizes, rows that begin at multiples of 16 bytes, a deep product, and batches.
LARGE = [
    ((901, 1003), (1003, 899)), ((1024, 768), (768, 1280)), ((257, 20004), (20004, 260)), ((3, 640, 700), (3, 700, 520)),
    ((700, 640), (4, 640, 500)), ((2, 500, 900), (900, 700)),
]  # fmt: skip


def _aten(input, other, *, precision="ieee"):
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision}")
    return torch.matmul(input, other).resolve_conj()


def _reference(input, other, *, precision="ieee") -> torch.Tensor:
    return torch.matmul(wide(input, input.dtype), wide(other, other.dtype)).resolve_conj()


def _bound(device, result_dtype, reference, input, other, *, precision="ieee"):
    """(k + 10) eps sum|x||y|, as sums may be added one after another, with float32's eps for fp16 and bf16. 3xTF32 leaves out a
    product of parts below 2^-22 of each product."""
    real = real_of(result_dtype)
    info = torch.finfo(torch.float32 if real.itemsize == 2 else real)
    x, y = (finite_sizes(wide(t, t.dtype)) for t in (input, other))
    sizes = torch.matmul(x, y)
    roundings = input.shape[-1] + 10 + (4 if precision == "3xtf32" else 0)
    bound = roundings * (info.eps * sizes + info.smallest_normal)
    return torch.where(sizes < info.max, bound, math.inf)


def _sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for number, (x, y) in enumerate(SHAPES):
        yield Sample(f"{x} {y}", (make(*x), make(*y)), {"precision": PRECISIONS[number % 2]}, sanitize=number == 7)
    for number, (first, second) in enumerate(itertools.product(LAYOUTS, repeat=2)):
        for x, y in (((2, 4, 6), (2, 6, 3)), ((6, 9), (9, 5))):
            operands = LAYOUTS[first](make(*x)), LAYOUTS[second](make(*y))
            if operands[0] is not None and operands[1] is not None:
                yield Sample(f"{x} {first}, {y} {second}", operands, {"precision": PRECISIONS[number % 2]})
    for value in (math.nan, math.inf, -math.inf):
        a, b = make(6, 9), make(9, 5)
        a[1, 2], b[3, 4] = value, -value
        yield Sample(f"{value}", (a, b), {"precision": "3xtf32"})
    if device == "cpu" or dtype != torch.float32:
        return
    for number, (x, y) in enumerate(LARGE):
        for first, second in itertools.product(("contiguous", "transposed"), repeat=2):
            operands = LAYOUTS[first](make(*x)), LAYOUTS[second](make(*y))
            kwargs = {"precision": "3xtf32"}
            yield Sample(f"{x} {first}, {y} {second}", operands, kwargs, sanitize=number == 0 and first == second)
    a, b = make(901, 1003), make(1003, 899)
    a[1, 2], b[3, 4], b[5, 6] = math.inf, math.nan, -math.inf
    yield Sample("large with infinities", (a, b), {"precision": "3xtf32"})


def _few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for number, (x, y) in enumerate(
        (((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 2)), ((2, 2, 3), (3, 2)), ((2, 3), (2, 3, 2)), ((2, 1, 2, 3), (2, 3, 1)))
    ):  # fmt: skip
        yield Sample(f"{x} {y}", (make(*x), make(*y)), {"precision": PRECISIONS[number % 2]})
    yield Sample("transposed", (make(3, 2).mT, make(2, 3).mT), {"precision": "3xtf32"})


def _errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    for name, x, y, *says in (
        ("0-d input", make(), make(3), r"\binput\b", r"\[\]"),
        ("0-d other", make(3), make(), r"\bother\b", r"\[\]"),
        ("vectors of two sizes", make(3), make(4), r"\bother\b", r"\b3\b", r"\b4\b"),
        ("matrices of two sizes", make(2, 3), make(4, 2), r"\bother\b", r"\b3\b", r"\[4, 2\]"),
        ("a vector of another size", make(2, 3), make(2), r"\bother\b", r"\b3\b", r"\[2\]"),
        ("batches that don't broadcast", make(2, 3, 4), make(3, 4, 5), r"\bother\b", r"\[2, 3, 4\]", r"\[3, 4, 5\]"),
        ("float64 other", make(2, 3), make(3, 2).double(), r"\bother\b", "[Ff]loat", "[Dd]ouble|float64"),
        ("complex other", make(2, 3), make(3, 2, dtype=torch.complex64), r"\bother\b", "[Cc]omplex"),
    ):
        for precision in PRECISIONS:
            yield ErrorCase(f"{name}, {precision}", (x, y), {"precision": precision}, tuple(says))
    for precision in ("tf32", "IEEE", ""):
        yield ErrorCase(
            f"precision {precision!r}", (make(2, 3), make(3, 2)), {"precision": precision}, ("precision", "3xtf32")
        )
    if device != "cpu":
        integers = make(2, 2, dtype=torch.int64)
        yield ErrorCase("integers", (integers, integers), says=(r"\binput\b", "Long|int64"), on_meta=False)
        yield ErrorCase("other on the CPU", (make(2, 3), make(3, 2).cpu()), says=(r"\bother\b", "cpu"), on_meta=False)


def _workspace(sample: Sample) -> int:
    """Copies of operands whose rows don't begin at multiples of 16 bytes or that PyTorch expands to the batch, sums of parts, and
    cuBLAS's workspace."""
    batch = math.prod(torch.broadcast_shapes(*(t.shape[:-2] for t in sample.tensors)))
    return (64 << 20) + 2 * batch * sum(math.prod(t.shape[-2:]) * t.element_size() for t in sample.tensors)


CASES = [
    OpCase(
        name="matmul",
        op=torch_ops.matmul,
        overload=torch.ops.gpuopt.matmul.default,
        aten=_aten,
        reference=_reference,
        samples=_sweep,
        few=_few,
        errors=_errors,
        dtypes=DTYPES,
        grad_dtypes=DTYPES,
        bound=_bound,
        opinfo=(OpInfoLink("matmul"),),
        elementwise=False,
        as_accurate=False,
        workspace=_workspace,
        saves_inputs=True,
    )
]
