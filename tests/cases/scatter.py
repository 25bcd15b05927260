"""Cases of reductions at an index: samples with empty bins, one bin with all entries and many layouts, errors and references.

References are loops over the bins in float64. What is called ATen's here is the definition as masked tensors of all pairs of a bin
and an entry, whose derivatives PyTorch has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, Sample, exact, internal_case, workspace_of
from .segment import REDUCTIONS, eps_of, first_extremum, reduced
from .tensors import FLOATS, INTEGERS, LAYOUTS, Maker, without_autocast

OPS = torch.ops.gpuopt

# ---------------------------------------------------------------- indices

# The numbers of entries and bins, and the order of the index.
INDICES: dict[str, tuple[int, int, str]] = {
    "several": (20, 5, "uniform"),
    "empty bins": (7, 30, "uniform"),
    "one bin": (50, 1, "uniform"),
    "one entry": (1, 4, "uniform"),
    "no entries": (0, 3, "uniform"),
    "no bins": (0, 0, "uniform"),
    "a bin each": (40, 40, "permuted"),
    "ascending": (60, 9, "ascending"),
    "equal": (300, 4, "equal"),
    "skewed": (3000, 3, "skewed"),
    "many": (2100, 20, "uniform"),
    "many bins": (40, 500, "uniform"),
    "more than one launch reads": (9000, 2, "uniform"),
}
# The sizes before and behind the dimension of the entries.
AROUND = (
    ((), ()), ((), (1,)), ((), (3,)), ((), (8,)), ((), (33,)), ((), (64,)), ((), (2, 5)), ((), (132,)), ((3,), ()), ((2,), (4,)),
    ((2, 3), (5,)),
)  # fmt: skip


def _index(entries: int, bins: int, order: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(entries)
    drawn = torch.rand(entries, generator=generator, dtype=torch.float64)
    if order == "permuted":
        return torch.randperm(bins, generator=generator)[:entries]
    drawn = {"uniform": drawn, "ascending": drawn.sort().values, "skewed": drawn**6, "equal": drawn[:1]}[order]
    return (drawn * bins).long().expand(entries).clone()


def _indices(device: str) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Names, indices and numbers of bins. Every third index has strides."""
    for k, (name, (entries, bins, order)) in enumerate(INDICES.items()):
        index = _index(entries, bins, order).to(device, torch.int32 if k % 2 else torch.int64)
        yield name, torch.stack([index, index * 0 - 1], 1)[:, 0] if k % 3 == 1 else index, bins


# ---------------------------------------------------------------- definitions


def _check(src: torch.Tensor, dim: int, index: torch.Tensor, bins: int, reduce: str) -> int:
    """The exceptions that the library documents, and the dimension, counted from the front. A message is not compared."""
    if src.dim() == 0 or not -src.dim() <= dim < src.dim():
        raise IndexError("a dimension")
    if reduce not in REDUCTIONS:
        raise ValueError("a known word")
    if src.dtype not in FLOATS + INTEGERS:
        raise TypeError("real numbers")
    if index.device != src.device:
        raise RuntimeError("one device")
    if (
        index.dtype not in (torch.int32, torch.int64)
        or index.dim() != 1
        or index.shape[0] != src.shape[dim]
        or bins < 0
    ):
        raise RuntimeError("an entry for each slice")
    is_known = not torch._C._functorch.is_batchedtensor(index) and not torch.compiler.is_compiling()
    if index.device.type == "cpu" and is_known and len(index) and not 0 <= int(index.min()) <= int(index.max()) < bins:
        raise IndexError("in the range of the bins")
    return dim % src.dim()


def _members(index: torch.Tensor, bins: int, like: torch.Tensor) -> torch.Tensor:
    """Whether each bin has each entry: (bins, entries, 1, ...)."""
    found = torch.arange(bins, device=index.device)[:, None] == index
    return found.reshape(found.shape + (1,) * (like.dim() - 1))


def _dense(t: torch.Tensor) -> torch.Tensor:
    return t.clone(memory_format=torch.contiguous_format)


def _aten(src, dim, index, bins, reduce="sum"):
    dim = _check(src, dim, index, bins, reduce)
    slices = src.movedim(dim, 0)
    with without_autocast(src):
        return _dense(reduced(slices, _members(index, bins, slices), reduce).movedim(0, dim))


def _reference(src, dim, index, bins, reduce="sum"):
    x = wide(src, src.dtype).movedim(dim, 0)
    functions = {"sum": lambda r: r.sum(0), "prod": lambda r: r.prod(0),
                 "max": lambda r: r.amax(0), "min": lambda r: r.amin(0),
                 "mean": lambda r: torch.div(r.sum(0), len(r), rounding_mode=None if x.is_floating_point() else "floor")}  # fmt: skip
    result = torch.full((bins, *x.shape[1:]), 1 if reduce == "prod" else 0, dtype=x.dtype, device=x.device)
    for b in range(bins):
        of_bin = x[index == b]
        if len(of_bin):
            result[b] = functions[reduce](of_bin)
    return result.movedim(0, dim)


def _bound(device, result_dtype, reference, src, dim, index, bins, reduce="sum"):
    """A rounding for each entry, relative to the sum of the sizes, or to the product."""
    if not result_dtype.is_floating_point or reduce in ("max", "min"):
        return torch.zeros(reference.shape, dtype=torch.float64, device=reference.device)
    info = eps_of(result_dtype)
    dim = dim % src.dim()
    counts = index.long().bincount(minlength=bins).reshape((-1,) + (1,) * (src.dim() - 1 - dim))
    sizes = _reference(src.double().abs().nan_to_num(posinf=0), dim, index, bins, reduce)
    return info.eps * (counts + 2) * sizes + info.smallest_normal


# ---------------------------------------------------------------- samples


def _call(name: str, src: torch.Tensor, dim: int, index: torch.Tensor, bins: int, reduce: str) -> Sample:
    return Sample(f"{reduce} of {name}", (src, dim, index, bins), {"reduce": reduce})


def _sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    calls = itertools.count()
    for name, index, bins in _indices(device):
        for before, after in AROUND:
            shape = (*before, len(index), *after)
            if bins * math.prod(shape) > 1_000_000:
                continue
            dim = len(before) - (len(shape) if len(shape) % 2 else 0)
            for _ in range(2):
                yield _call(f"{name} {shape}", make(*shape), dim, index, bins, REDUCTIONS[next(calls) % 5])
        special = make(len(index), 4)
        if dtype.is_floating_point and 4 < len(index) < 1000:
            special[1::3] = math.nan
            special[2::5] = -math.inf
            special[::4] = -0.0
            for reduce in REDUCTIONS:
                yield _call(f"special values, {name}", special, 0, index, bins, reduce)
    index = _index(15, 6, "uniform").to(device)
    for k, (before, after) in enumerate((((), (16,)), ((), (5,)), ((), (3, 8)), ((4,), (7,)), ((2, 3), (4,)))):
        shape = (*before, 15, *after)
        for number, (name, layout) in enumerate(LAYOUTS.items()):
            x = layout(make(*shape))
            if x is not None:
                yield _call(f"{shape} {name}", x, len(before), index, 6, REDUCTIONS[(k + number) % 4])


def _few_index(device: str, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Still in range of 9 bins if entries grow by 1 and double twice, as tests of vmap have it."""
    return torch.tensor([2, 0, 2, 1], device=device, dtype=dtype)


def _few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, reduce in enumerate(REDUCTIONS):
        kind = torch.int32 if k % 2 else torch.int64
        yield _call("values", make(4), 0, _few_index(device, kind), 9, reduce)
        yield _call("rows", make(4, 2), 0, _few_index(device, kind), 9, reduce)
        yield _call("columns", make(2, 4), -1, _few_index(device, kind), 9, reduce)
    zeros = make(4)
    zeros[0] = 0
    yield _call("a zero", zeros, 0, _few_index(device), 9, "prod")
    yield _call("transposed", make(2, 4).mT, 0, _few_index(device), 9, "sum")
    yield _call("planes", make(2, 4, 1), 1, _few_index(device), 9, "max")


# ---------------------------------------------------------------- errors


def _errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x, index = make(4, 3), torch.tensor([2, 0, 2, 1], device=device)

    def error(name, src, dim, index, bins, *says, reduce="sum", on_meta=True):
        return ErrorCase(name, (src, dim, index, bins), {"reduce": reduce}, says=says, on_meta=on_meta)

    yield error("no dimensions", make(), 0, index[:1], 3, r"\bsrc\b", r"\[\]")
    for dim in (2, -3):
        yield error(f"dim {dim}", x, dim, index, 3, r"\bdim\b", rf"{dim}\b")
    yield error("unknown word", x, 0, index, 3, r"\breduce\b", "median", reduce="median")
    yield error("complex", x.to(torch.complex64), 0, index, 3, r"\bsrc\b", "ComplexFloat")
    yield error("bool", x > 0, 0, index, 3, r"\bsrc\b", "Bool")
    yield error("too few entries", x, 0, index[:3], 3, r"\bindex\b", r"\b3\b", r"\b4\b")
    yield error("entries of another dimension", x, 1, index, 3, r"\bindex\b", r"\b3\b", r"\b4\b")
    yield error("2-D index", x, 0, index[None], 3, r"\bindex\b", r"\[1, 4\]")
    yield error("0-d index", x[:1], 0, index[0], 3, r"\bindex\b", r"\[\]")
    yield error("index of float32", x, 0, index.float(), 3, r"\bindex\b", "Float")
    yield error("index of int16", x, 0, index.short(), 3, r"\bindex\b", "Short")
    yield error("negative bins", x[:0], 0, index[:0], -1, r"\bbins\b", "-1")
    if device != "cpu":
        yield error("index on the CPU", x, 0, index.cpu(), 3, r"\bindex\b", "cpu", on_meta=False)
        return
    for value in (-1, 3, 2**31, -(2**31) - 1):
        wrong = torch.tensor([0, 1, value, 2])
        for src in (x, x.long()):
            yield error(f"{value} of {src.dtype}", src, 0, wrong, 3, r"\bindex\b", rf"{value}\b", on_meta=False)
    yield error("entries without bins", x, 0, index, 0, r"\bindex\b", on_meta=False)


# ---------------------------------------------------------------- _scatter_arg


def _with_arg(src, dim, index, bins, reduce):
    """The values and the positions in one tensor."""
    values, arg = OPS._scatter_arg(src, dim, index, bins, reduce)
    assert arg.dtype == torch.int64 and arg.is_contiguous()
    return torch.stack([values.double(), arg.double()])


def _aten_with_arg(src, dim, index, bins, reduce):
    values = _aten(src, dim, index, bins, reduce)
    slices = src.movedim(dim, 0)
    members = _members(index, bins, slices)
    arg = torch.where(members.any(1), first_extremum(members, slices, reduce), -1).movedim(0, dim)
    return torch.stack([values.double(), arg.double()])


def _reference_with_arg(src, dim, index, bins, reduce):
    """The first entry that no other one beats, by a loop. A NaN beats all."""
    x = wide(src, src.dtype).movedim(dim, 0)
    args = torch.full((bins, *x.shape[1:]), -1.0, dtype=torch.float64, device=x.device)
    for b in range(bins):
        entries = torch.nonzero(index == b).flatten()
        if len(entries):
            of_bin = x[entries]
            best = of_bin.amax(0) if reduce == "max" else of_bin.amin(0)
            is_best = (of_bin == best) | of_bin.isnan()
            args[b] = entries[is_best.to(torch.uint8).argmax(0)].double()
    return torch.stack([_reference(src, dim, index, bins, reduce).double(), args.movedim(0, dim)])


def _arg_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for sample in _sweep(device, dtype):
        reduce = "max" if sample.kwargs["reduce"] in ("max", "sum") else "min"
        yield Sample(sample.name, (*sample.args, reduce))
    for features in range(1, 40):  # few different values, so that many are equal
        x = make(60, features, dtype=torch.int8).remainder(3).to(dtype)
        index = _index(60, 1 + features % 7, "uniform").to(device)
        yield Sample(f"ties of {features}", (x, 0, index, 7, ("max", "min")[features % 2]))


def _few_args(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for before, after in (((), ()), ((), (2,)), ((), (3, 2)), ((5,), ()), ((2,), (1,)), ((), (40,))):
        for reduce in ("max", "min"):
            shape = (*before, 4, *after)
            yield Sample(f"{reduce} {shape}", (make(*shape), len(before), _few_index(device), 9, reduce))


def _is_repeatable(device: str, sample: Sample) -> bool:
    """Large sums and means are added in any order on CUDA."""
    return device == "cpu" or sample.kwargs["reduce"] not in ("sum", "mean") or len(sample.args[2]) <= 256


_shared = {"elementwise": False, "workspace": workspace_of(8), "dtypes": FLOATS + INTEGERS}
CASES = [
    OpCase(
        name="scatter", op=OPS.scatter.default, overload=OPS.scatter.default, aten=_aten, reference=_reference, samples=_sweep,
        few=_few, errors=_errors, grad_dtypes=FLOATS, bound=_bound, saves_inputs=True, repeatable=_is_repeatable, **_shared,
    ),
    internal_case(
        name="_scatter_arg", op=_with_arg, overload=OPS._scatter_arg.default, aten=_aten_with_arg, reference=_reference_with_arg,
        samples=_arg_samples, few=_few_args, bound=exact, **_shared,
    ),
]  # fmt: skip
