"""Calls of sparse products: matrices with rows of many lengths, dense rows of many sizes and layouts, heads and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import Sample
from ..tensors import LAYOUTS, Maker, resized

REDUCTIONS = ("sum", "mean", "max", "min")


def matrix(
    device: str,
    degrees: Sequence[int],
    columns: int,
    *,
    dtype: torch.dtype = torch.int32,
    permuted: bool = False,
    transposed: bool = True,
    seed: int = 0,
) -> dict[str, Any]:
    """The arguments that describe a matrix with so many entries in each row, in random columns.

    Args:
        permuted: values are in another order than entries.
        transposed: the transpose is passed, too.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(degrees, dtype=torch.int64)
    entries = int(lengths.sum())
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    index = torch.randint(0, max(columns, 1), (entries,), generator=generator)
    entry = torch.randperm(entries, generator=generator) if permuted else None
    given: dict[str, Any] = {"ptr": ptr, "index": index, "entry": entry}
    if transposed:
        numbers = index.tolist()
        order = torch.tensor(sorted(range(entries), key=numbers.__getitem__), dtype=torch.int64)
        counts = torch.bincount(index, minlength=columns)[:columns] if entries else torch.zeros(columns).long()
        given["t_ptr"] = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        given["t_index"] = torch.arange(len(degrees)).repeat_interleave(lengths)[order]
        given["t_entry"] = order if entry is None else entry[order]
    return {name: None if t is None else t.to(dtype).to(device) for name, t in given.items()}


# Names, degrees of the rows, and columns. Kernels cut rows after multiples of 128 entries.
_MIXED = [3, 0, 1, 7, 2, 0, 0, 12, 5, 1]
MATRICES: dict[str, tuple[list[int], int]] = {
    "mixed": (_MIXED, 9),
    "one each": ([1] * 40, 40),
    "empty rows around": ([0, 0, 0, 4, 0, 2, 0, 0], 5),
    "one row": ([50], 20),
    "one column": ([2, 0, 3, 1], 1),
    "a huge row": ([2, 0, 3000, 1, 0, 5], 300),
    "only a huge row": ([1500], 64),
    "around pieces": ([127, 128, 129, 0, 256, 255, 257, 1, 512], 150),
    "skewed": ([1 + 900 // (k + 1) for k in range(60)], 90),
    "many rows": ([k % 5 for k in range(400)], 100),
}
NOTHING: dict[str, tuple[list[int], int]] = {
    "no rows": ([], 4),
    "no rows, no columns": ([], 0),
    "no entries": ([0, 0, 0], 4),
    "no columns": ([0, 0], 0),
}
FEATURES = (1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 100, 128, 130, 256, 264)
HEADS = ((1, 1), (2, 4), (3, 5), (8, 16), (4, 1), (2, 33), (1, 64))
SHOWN = ("sliced", "rows", "step2", "transposed", "reversed", "rotated", "misaligned1", "misaligned3", "expanded_first",
         "expanded_last", "neg")  # fmt: skip


@dataclass(frozen=True)
class ProductSample(Sample):
    """A call whose keyword arguments describe the matrix. Twice as large, it has the same matrix and more features."""

    keeps: tuple[tuple[int, ...], ...] = ()  # of each positional argument: the dimensions of a fixed size

    def resized(self) -> Sample:
        def grown(t: torch.Tensor, fixed: tuple[int, ...]) -> torch.Tensor:
            same = {d % t.dim() for d in fixed}
            return resized(t, [n if n == 1 or d in same else 2 * n for d, n in enumerate(t.shape)])

        args = [grown(t, fixed) for t, fixed in zip(self.args, self.keeps, strict=True)]
        return replace(self, args=tuple(args))


def spmm_sample(
    name: str, dense: torch.Tensor, value: torch.Tensor | None, given: dict, sanitize: bool = False, **kwargs: Any
) -> Sample:
    operands = (dense,) if value is None else (dense, value)
    row_dim = 0 if dense.dim() == 1 else -3 if value is not None and value.dim() == 2 else -2
    keeps = ((row_dim,), (0,))[: len(operands)]
    return ProductSample(name, operands, {**given, **kwargs}, sanitize=sanitize, keeps=keeps)


def spmm_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Every matrix with several widths, and every reduction; then layouts, heads and batches."""
    make = Maker(device, dtype)
    for k, (name, (degrees, columns)) in enumerate(MATRICES.items()):
        entries = sum(degrees)
        for j in range(8):
            features = FEATURES[(3 * k + 5 * j) % len(FEATURES)]
            if entries * features > 60_000 and (features > 8 or j > 3):
                features = (1, 4, 3, 8, 2, 5, 7, 6)[j]
            reduce = REDUCTIONS[(k + j) % 4]
            given = matrix(device, degrees, columns, dtype=(torch.int32, torch.int64)[(k + j // 2) % 2],
                           permuted=j % 3 == 1, transposed=j % 2 == 0, seed=k)  # fmt: skip
            value = make(entries) if j % 3 else None
            yield spmm_sample(f"{name}, {features} {reduce}, j {j}", make(columns, features), value, given, reduce=reduce,
                              sanitize=j < 2)  # fmt: skip
    for k, layout in enumerate(SHOWN):
        for j, batch in enumerate(((), (2,), (2, 3))):
            name = ("mixed", "around pieces", "many rows")[(k + j) % 3]
            degrees, columns = MATRICES[name]
            given = matrix(device, degrees, columns, permuted=k % 2 == 1, transposed=False)
            dense = LAYOUTS[layout](make(*batch, columns, (8, 5, 16)[(k + j) % 3]))
            if dense is None:
                continue
            value = (None, make(sum(degrees)), make(2 * sum(degrees))[::2])[k % 3]
            reduce = REDUCTIONS[(k + j) % 4]
            yield spmm_sample(f"{layout} {tuple(dense.shape)}, {reduce}", dense, value, given, reduce=reduce)
    for k, (heads, features) in enumerate(HEADS):
        for j, batch in enumerate(((), (), (3,), (2, 2))):
            name = ("mixed", "around pieces", "empty rows around")[(k + j) % 3]
            degrees, columns = MATRICES[name]
            given = matrix(device, degrees, columns, permuted=j == 1, dtype=(torch.int64, torch.int32)[k % 2])
            dense, value = make(*batch, columns, heads, features), make(sum(degrees), heads)
            if j == 1:
                dense, value = LAYOUTS["rotated"](dense), LAYOUTS["transposed"](value)
            reduce = REDUCTIONS[(k + j) % 4]
            shape = tuple(dense.shape)
            yield spmm_sample(f"heads {shape}, {reduce}", dense, value, given, reduce=reduce, sanitize=j == 0)
    for reduce in REDUCTIONS:
        degrees, columns = MATRICES["mixed"]
        given = matrix(device, degrees, columns)
        yield spmm_sample(f"vector {reduce}", make(columns), make(sum(degrees)), given, reduce=reduce)
        yield spmm_sample(f"strided vector {reduce}", make(2 * columns)[::2], None, given, reduce=reduce)
        special = make(columns, 4)
        special[0, 0], special[1, 1], special[2, 2] = float("nan"), float("inf"), -float("inf")
        yield spmm_sample(f"special values {reduce}", special, None, given, reduce=reduce)
        for name, (degrees, columns) in NOTHING.items():
            given = matrix(device, degrees, columns)
            yield spmm_sample(f"{name} {reduce}", make(columns, 3), make(0), given, reduce=reduce)
        yield spmm_sample(f"no features {reduce}", make(9, 0), None, matrix(device, _MIXED, 9), reduce=reduce)
        yield spmm_sample(f"no batches {reduce}", make(0, 9, 3), None, matrix(device, _MIXED, 9), reduce=reduce)
        # Without an index, each entry has a dense row of its own.
        own = matrix(device, _MIXED, 9, transposed=False)
        own["index"] = None
        yield spmm_sample(f"no index {reduce}", make(sum(_MIXED), 6), None, own, reduce=reduce)


def spmm_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Small calls. Rows have a power of two of entries, so that the gradient of a mean rounds as often as PyTorch's. With
    dynamic shapes, sizes that grow differ from sizes that stay."""
    make = Maker(device, dtype)
    few = matrix(device, [2, 0, 1], 3)
    yield spmm_sample("sum", make(3, 2), make(3), few)
    yield spmm_sample("mean", make(3, 2), make(3), few, reduce="mean")
    yield spmm_sample("max", make(3, 2), make(3), few, reduce="max")
    yield spmm_sample("min", make(3, 2), make(3), few, reduce="min")
    yield spmm_sample("mean of ones", make(3, 2), None, few, reduce="mean")
    yield spmm_sample("max of ones", make(3, 2), None, few, reduce="max")
    heads = matrix(device, [1, 2], 3, permuted=True)
    yield spmm_sample("heads", make(3, 2, 1), make(3, 2), heads)
    yield spmm_sample("min of heads", make(3, 2, 1), make(3, 2), heads, reduce="min")
    yield spmm_sample("mean of batched heads", make(2, 3, 2, 1), make(3, 2), heads, reduce="mean")
    plain = matrix(device, [4, 1, 0, 2], 3, permuted=True, transposed=False, dtype=torch.int64)
    yield spmm_sample("no transpose", make(3, 2), make(7), plain)
    yield spmm_sample("max, no transpose", make(3, 1), make(7), plain, reduce="max")
    yield spmm_sample("batches", make(2, 3, 2), make(3), few)
    yield spmm_sample("max of batches", make(2, 3, 2), make(3), few, reduce="max")
    yield spmm_sample("vector", make(3), make(3), few)
    yield spmm_sample("max of a vector", make(3), None, few, reduce="max")
    yield spmm_sample("transposed dense", make(2, 3).mT, make(3), few, reduce="mean")


# ---------------------------------------------------------------- sddmm


def sddmm_sample(name: str, a: torch.Tensor, b: torch.Tensor, given: dict, sanitize: bool = False) -> Sample:
    heads = {"heads": True} if a.dim() == 3 else {}
    return ProductSample(name, (a, b), {**given, **heads}, sanitize=sanitize, keeps=((0,), (0,)))


def sddmm_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, (name, (degrees, columns)) in enumerate(MATRICES.items()):
        rows, entries = len(degrees), sum(degrees)
        for j in range(9):
            features = FEATURES[(3 * k + 5 * j) % len(FEATURES)]
            if entries * features > 60_000:
                features = (1, 4, 3, 8, 2, 5, 7, 6, 9)[j]
            given = matrix(device, degrees, columns, dtype=(torch.int32, torch.int64)[(k + j // 2) % 2],
                           permuted=j % 3 == 1, transposed=j % 2 == 0, seed=k)  # fmt: skip
            heads = (1, 2, 3, 8)[j % 4]
            inner = (features,) if j % 2 else (heads, max(features // heads, 1))
            yield sddmm_sample(f"{name}, {inner}", make(rows, *inner), make(columns, *inner), given, sanitize=j < 2)
    for k, layout in enumerate(SHOWN):
        for j, inner in enumerate(((8,), (5,), (2, 8), (3, 3))):
            name = ("mixed", "around pieces", "many rows")[(k + j) % 3]
            degrees, columns = MATRICES[name]
            a, b = make(len(degrees), *inner), make(columns, *inner)
            changed = [LAYOUTS[layout](x) for x in (a, b)]
            if changed[0] is None or changed[1] is None:
                continue
            given = matrix(device, degrees, columns, permuted=k % 2 == 1, transposed=False)
            yield sddmm_sample(f"{layout} {inner}", changed[0], b if j == 1 else changed[1], given)
    for name, (degrees, columns) in NOTHING.items():
        for inner in ((3,), (2, 3), (0,), (2, 0)):
            given = matrix(device, degrees, columns)
            yield sddmm_sample(f"{name} {inner}", make(len(degrees), *inner), make(columns, *inner), given)
    for inner in ((0,), (2, 0), (0, 2), (1,), (1, 1)):
        given = matrix(device, _MIXED, 9)
        yield sddmm_sample(f"features {inner}", make(len(_MIXED), *inner), make(9, *inner), given)
        own = matrix(device, _MIXED, 9, transposed=False)
        own["index"] = None
        yield sddmm_sample(f"no index {inner}", make(len(_MIXED), *inner), make(sum(_MIXED), *inner), own)


def sddmm_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """As spmm_few: dynamo gives equal sizes one symbol, so features differ from sizes of the matrix, such as rows + 1."""
    make = Maker(device, dtype)
    few = matrix(device, [2, 0, 1], 3)
    yield sddmm_sample("plain", make(3, 2), make(3, 2), few)
    yield sddmm_sample("permuted", make(3, 2), make(3, 2), matrix(device, [2, 0, 1], 3, permuted=True))
    yield sddmm_sample("wider", make(4, 6), make(3, 6), matrix(device, [2, 1, 4, 0], 3))
    yield sddmm_sample("no transpose", make(3, 2), make(3, 2), matrix(device, [2, 0, 1], 3, transposed=False))
    yield sddmm_sample("one feature", make(3, 1), make(3, 1), few)
    yield sddmm_sample("heads", make(3, 2, 1), make(3, 2, 1), matrix(device, [1, 0, 2], 3, dtype=torch.int64))
    yield sddmm_sample("permuted heads", make(3, 2, 1), make(3, 2, 1), matrix(device, [4, 1, 0], 3, permuted=True))
    yield sddmm_sample("more heads", make(4, 3, 2), make(5, 3, 2), matrix(device, [1, 0, 2, 1], 5))
    yield sddmm_sample("transposed", make(2, 3).mT, make(2, 3).mT, few)
    yield sddmm_sample("a column", make(3, 2), make(1, 2), matrix(device, [2, 1, 0], 1))
    yield sddmm_sample("no entries", make(2, 3), make(2, 3), matrix(device, [0, 0], 2))
