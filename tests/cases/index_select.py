"""Cases of index_select: samples of many shapes, layouts and indices, and errors. Elements are only moved, so results are ATen's bits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

import torch_ops
from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, OpInfoLink, Sample
from .samples.index_add_samples import INDEX_LAYOUTS, indices
from .tensors import ALL, COMPLEX, FLOATS, LAYOUTS, Maker

# Rows of 1 value to several blocks, below and around whole vectors of every dtype.
WIDTHS = (1, 2, 3, 4, 5, 8, 16, 17, 64, 100, 1000, 4100)
COUNTS = (0, 1, 2, 31, 300, 1500)
LAID_OUT = (
    ((40,), 0), ((40, 16), 0), ((1, 40, 6), 1), ((7, 9), -1), ((3, 8, 5), 1), ((2, 3, 4, 6), 0), ((2, 3, 4, 6), -2),
)  # fmt: skip


def _aten(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """ATen's batching rule repeats the slice of an index without dimensions, so the index gets one.

    torch_geometric replaces torch.index_select where it is imported, hence the operator.
    """
    return torch.ops.aten.index_select(self, dim, index if index.dim() else index.view(1))


def _reference(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    values = wide(self, self.dtype)
    if self.dim() == 0:
        return values
    return values.movedim(dim, 0)[index.reshape(-1).long()].movedim(0, dim)


def _bound(device, result_dtype, reference, self, dim, index):
    """No error: nothing is rounded."""


def _rows(make: Maker, rows: int, size: tuple[int, ...], offset: int, pitch: int) -> torch.Tensor:
    """Dense rows at an offset, with a pitch between them."""
    of_row = math.prod(size) + pitch
    table = make(offset + rows * of_row)[offset:].view(rows, of_row)[:, : of_row - pitch]
    return table.unflatten(1, size) if size else table[:, 0]


SIZES = ((), (1,), (2,), (3,), (5, 7), (8,), (16,), (33,), (4, 32), (2, 3, 43), (1024,), (1031,))


def _laid_out_rows(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make, generator = Maker(device, dtype), torch.Generator().manual_seed(3)
    for k, size in enumerate(SIZES):
        for offset in range(13):
            rows, entries = 1 + 5 * k, (1, 2, 33, 700)[(k + offset) % 4]
            index = torch.randint(0, rows, (3 * entries,), generator=generator).to(device)
            index = index[:: 1 + offset % 3][:entries].to(torch.int32 if (k + offset) % 2 else torch.int64)
            if offset % 3 == 0:  # entries that are not neighbours in memory
                index = torch.stack([index, torch.zeros_like(index)], 1)[:, 0]
            table = _rows(make, rows, size, offset, (0, 1, 4, 7)[offset % 4])
            yield Sample(f"{entries} of {rows} rows {size} at {offset}", (table, 0, index), sanitize=offset in (1, 4))


def _sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    yield from _laid_out_rows(device, dtype)
    make = Maker(device, dtype)
    for width in WIDTHS:
        for count in COUNTS:
            if width * count > 1_000_000:
                continue
            index = indices("zipf", 50, count, width).to(device, torch.int32 if count % 2 else torch.int64)
            yield Sample(f"(50,{width}) to {count}", (make(50, width), 0, index), sanitize=count == 300)
    for shape, dim in LAID_OUT:
        index = indices("uniform", shape[dim], 12).to(device)
        for name, layout in LAYOUTS.items():
            x = layout(make(*shape))
            if x is not None:
                yield Sample(f"{shape} {name}", (x, dim, index))
    for name, layout in INDEX_LAYOUTS.items():
        index = indices("uniform", 20, 1 if name == "0-d" else 33).to(device)
        yield Sample(f"{name} index", (make(20, 6), 0, layout(index)))
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    yield Sample("0-d self", (make(), 0, zero))
    yield Sample("0-d self, 0-d index", (make(), -1, zero[0]))
    yield Sample("empty rows", (make(4, 0), 0, zero))
    yield Sample("no rows, no entries", (make(0, 3), 0, zero[:0]))


def _few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """The largest slices are not named: tests of vmap add the number of the example to an index."""
    make = Maker(device, dtype)

    def index():
        return torch.tensor([2, 0, 2, 1], device=device)

    yield Sample("rows", (make(9, 1), 0, index()))
    yield Sample("columns", (make(1, 9), -1, index().int()))
    yield Sample("planes", (make(1, 9, 1), 1, index()[::2]))
    yield Sample("values", (make(10), 0, index()))
    yield Sample("transposed", (make(1, 9).mT, 0, index()))
    yield Sample("one row", (make(9, 1), 0, index()[:1]))
    yield Sample("0-d index", (make(9, 1), 0, index()[0]))
    yield Sample("no entries", (make(4, 3), 0, index()[:0]))


def _as_called(self, dim, index, *, out=None):
    """PyTorch's sample as arguments, or nothing for a call with out=."""
    return ((self, dim, index), {}) if out is None else None


def _errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    index = torch.arange(2, device=device)

    def error(name, self, dim, index, *says, on_meta=True):
        return ErrorCase(name, (self, dim, index), says=says, on_meta=on_meta)

    yield error("dim too large", make(4, 3), 2, index, r"\bdim\b", r"\b2\b")
    yield error("dim too small", make(4, 3), -3, index, r"\bdim\b", r"-3\b")
    yield error("0-d self, dim 1", make(), 1, index[:1], r"\bdim\b", r"\b1\b")
    yield error("2-D index", make(4, 3), 0, index[None], r"\bindex\b", r"\[1, 2\]", on_meta=device == "cpu")
    for dtype, name in ((torch.float32, "[Ff]loat"), (torch.int16, "[Ss]hort|int16"), (torch.bool, "[Bb]ool")):
        yield error(f"{dtype} index", make(4, 3), 0, index.to(dtype), r"\bindex\b", name, on_meta=device == "cpu")
    yield error("0-d self, two entries", make(), 0, index, r"\bindex\b", r"\b2\b")
    if device != "cpu":
        yield error("index on the CPU", make(4, 3), 0, index.cpu(), r"\bindex\b", "cpu", on_meta=False)
        return
    for value in (-1, 4, 2**31 - 1, -(2**31), 2**32, 2**63 - 1):
        for shape in ((4, 3), (4,)):
            wrong = torch.tensor([0, value])
            yield error(f"{value} of {shape}", make(*shape), 0, wrong, r"\bindex\b", rf"{value}\b", on_meta=False)


CASES = [
    OpCase(
        name="index_select",
        op=torch_ops.index_select,
        overload=torch.ops.gpuopt.index_select.default,
        aten=_aten,
        reference=_reference,
        samples=_sweep,
        few=_few,
        errors=_errors,
        dtypes=ALL,
        grad_dtypes=FLOATS + COMPLEX[1:],
        bound=_bound,
        opinfo=(OpInfoLink("index_select", _as_called, at_least=6),),
    )
]
