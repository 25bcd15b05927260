"""Cases of reductions of segments: samples with empty segments, gaps, one huge segment and many layouts, errors and references.

References are loops over the segments in float64. What is called ATen's here is the definition as masked tensors of all pairs of a
segment and an entry, whose derivatives PyTorch has.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, OpInfoLink, Sample, exact, internal_case, workspace_of
from .tensors import FLOATS, INTEGERS, LAYOUTS, Maker, resized, without_autocast

OPS = torch.ops.gpuopt
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


@dataclass(frozen=True)
class SegmentSample(Sample):
    """A call whose second argument is offsets."""

    def resized(self) -> Sample:
        """Twice as many entries or rows, and segments. Offsets must not descend, so they continue behind the last one."""
        first, offsets, *rest = self.args
        return replace(self, args=(resized(first), torch.cat([offsets, offsets[1:] + offsets[-1]]), *rest))


# ---------------------------------------------------------------- segments

# Lengths of segments, and the entries before the first and behind the last segment.
LENGTHS: dict[str, tuple[list[int], int, int]] = {
    "several": ([3, 5, 1, 8, 2], 0, 0),
    "empty ones": ([0, 3, 0, 0, 7, 1, 0], 0, 0),
    "gaps": ([4, 0, 6], 2, 3),
    "one": ([50], 0, 0),
    "one empty": ([0], 0, 0),
    "all empty": ([0, 0, 0, 0], 3, 0),
    "none": ([], 0, 4),
    "of one entry": ([1] * 40, 0, 0),
    "a huge one": ([2, 3000, 0, 1], 0, 0),
    "huge at the end": ([0, 1, 2500], 1, 0),
    "many": ([(7 * k) % 5 for k in range(60)], 0, 0),
}
FEATURES = ((), (1,), (3,), (8,), (33,), (64,), (2, 5), (132,))


def offsets_of(lengths: list[int], before: int, device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(list(itertools.accumulate(lengths, initial=before)), dtype=dtype, device=device)


def _segments(device: str) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Names, offsets and numbers of entries."""
    for k, (name, (lengths, before, after)) in enumerate(LENGTHS.items()):
        dtype = torch.int32 if k % 2 else torch.int64
        yield name, offsets_of(lengths, before, device, dtype), before + sum(lengths) + after


def _affordable(offsets: torch.Tensor, entries: int, features: tuple[int, ...]) -> bool:
    return len(offsets) * entries * math.prod(features) < 1_000_000


def _in_layouts(make: Maker, device: str, build: Callable[[torch.Tensor, torch.Tensor], tuple], of_rows: bool):
    """Calls with the first argument, of the entries or of the rows, in many layouts."""
    offsets = offsets_of([3, 0, 5, 4], 1, device, torch.int64)
    strided = torch.stack([offsets, offsets * 0], 1)[:, 0]
    for features in ((16,), (5,), (3, 8), (2, 3, 4)):
        for name, layout in LAYOUTS.items():
            x = layout(make(4 if of_rows else 15, *features))
            if x is not None and not (name == "conj"):
                yield SegmentSample(f"{features} {name}", build(x, strided if name == "rows" else offsets))


# ---------------------------------------------------------------- definitions


def _check(first: torch.Tensor, offsets: torch.Tensor, entries: int | None = None) -> None:
    """The exceptions that the library documents. A message is not compared."""
    if first.dim() == 0 or offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64) or len(offsets) < 1:
        raise RuntimeError("entries, and offsets")
    if offsets.device != first.device:
        raise RuntimeError("one device")
    entries = first.shape[0] if entries is None else entries
    is_known = not torch._C._functorch.is_batchedtensor(offsets) and not torch.compiler.is_compiling()
    if offsets.device.type == "cpu" and is_known:
        if int(offsets.min()) < 0 or int(offsets.max()) > entries or bool((offsets.diff() < 0).any()):
            raise IndexError("offsets that ascend")


def compute_type(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32 if dtype.is_floating_point else torch.int64


def _members(offsets: torch.Tensor, entries: int, like: torch.Tensor) -> torch.Tensor:
    """Whether each segment has each entry: (segments, entries, 1, ...)."""
    number = torch.arange(entries, device=offsets.device)
    found = (number >= offsets[:-1, None]) & (number < offsets[1:, None])
    return found.reshape(found.shape + (1,) * (like.dim() - 1))


def first_extremum(members: torch.Tensor, x: torch.Tensor, reduce: str) -> torch.Tensor:
    """The first entry that is a segment's maximum or minimum, or 0."""
    entries = x.shape[0]
    if entries == 0:
        return members.new_zeros((members.shape[0], *x.shape[1:]), dtype=torch.int64)
    lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    highest = math.inf if x.is_floating_point() else torch.iinfo(x.dtype).max
    known = torch.where(members, x.detach(), lowest if reduce == "max" else highest)
    best = known.amax(1, keepdim=True) if reduce == "max" else known.amin(1, keepdim=True)
    is_best = members & ((x.detach() == best) | (x.detach() != x.detach()))
    number = torch.arange(entries, device=x.device).reshape((-1,) + (1,) * (x.dim() - 1))
    return torch.where(is_best, number, entries).amin(1).clamp(max=entries - 1)


def reduced(data, members, reduce: str, empty: float | None = None) -> torch.Tensor:
    """Reduces the entries of each segment or bin. `members` says whether it has an entry: (segments, entries, 1, ...)."""
    x = data.to(compute_type(data.dtype))
    counts = members.sum(1)
    if reduce in ("max", "min"):
        if x.shape[0] == 0:
            result = x.sum(0) + torch.zeros_like(counts * x.sum(0), dtype=x.dtype)
        else:
            result = x.gather(0, first_extremum(members, x, reduce))
    elif reduce == "prod":
        result = torch.where(members, x, 1).prod(1)
    else:
        result = torch.where(members, x, 0).sum(1)
        if reduce == "mean":
            result = torch.div(result, counts.clamp(min=1), rounding_mode=None if x.is_floating_point() else "floor")
    empty = (1 if reduce == "prod" else 0) if empty is None else empty
    result = torch.where(counts == 0, torch.tensor(empty, device=x.device).to(x.dtype), result)
    return result.to(data.dtype).clone(memory_format=torch.contiguous_format)


def _aten_reduce(data, offsets, reduce="sum", empty=None):
    if reduce not in REDUCTIONS:
        raise ValueError("a known word")
    if data.dtype not in FLOATS + INTEGERS:
        raise TypeError("real numbers")
    if not data.is_floating_point() and empty is not None:
        limits = torch.iinfo(data.dtype)
        if not limits.min <= empty <= limits.max or empty != int(empty):
            raise ValueError("a number of the dtype")
    _check(data, offsets)
    with without_autocast(data):
        return reduced(data, _members(offsets, data.shape[0], data), reduce, empty)


def _ranges(offsets: torch.Tensor) -> list[tuple[int, int]]:
    return list(itertools.pairwise(offsets.tolist()))


def _reference_reduce(data, offsets, reduce="sum", empty=None):
    x = wide(data, data.dtype)
    functions = {"sum": lambda r: r.sum(0), "prod": lambda r: r.prod(0),
                 "max": lambda r: r.amax(0), "min": lambda r: r.amin(0),
                 "mean": lambda r: torch.div(r.sum(0), len(r), rounding_mode=None if x.is_floating_point() else "floor")}  # fmt: skip
    empty = (1 if reduce == "prod" else 0) if empty is None else empty
    result = torch.full((len(offsets) - 1, *data.shape[1:]), empty, dtype=x.dtype, device=x.device)
    for s, (begin, end) in enumerate(_ranges(offsets)):
        if begin < end:
            result[s] = functions[reduce](x[begin:end])
    return result


def eps_of(dtype: torch.dtype) -> torch.finfo:
    return torch.finfo(torch.float32 if dtype.itemsize < 4 else dtype)


def _reduce_bound(device, result_dtype, reference, data, offsets, reduce="sum", empty=None):
    """A rounding for each entry, relative to the sum of the sizes, or to the product."""
    if not result_dtype.is_floating_point or reduce in ("max", "min"):
        return torch.zeros(reference.shape, dtype=torch.float64, device=reference.device)
    info = eps_of(result_dtype)
    counts = offsets.diff().reshape((-1,) + (1,) * (data.dim() - 1))
    sizes = _reference_reduce(data.double().abs().nan_to_num(posinf=0), offsets, reduce)
    return info.eps * (counts + 2) * sizes + info.smallest_normal


def _call(
    name: str, data: torch.Tensor, offsets: torch.Tensor, reduce: str, empty: float | None = None
) -> SegmentSample:
    return SegmentSample(name, (data, offsets), {"reduce": reduce, "empty": empty})


def _reduce_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    calls = itertools.count()
    for name, offsets, entries in _segments(device):
        for features in FEATURES:
            if not _affordable(offsets, entries, features):
                continue
            for _ in range(2):
                reduce = REDUCTIONS[next(calls) % 5]
                empty = (None, None, 2.0)[next(calls) % 3]
                yield _call(f"{reduce} of {name} {features}", make(entries, *features), offsets, reduce, empty)
        special = make(entries, 4)
        if dtype.is_floating_point and entries > 4:
            special[1::3] = math.nan
            special[2::5] = -math.inf
            special[::4] = -0.0
            for reduce in REDUCTIONS:
                yield _call(f"{reduce} of special values, {name}", special, offsets, reduce)
    for k, reduce in enumerate(("sum", "max", "mean")):
        samples = _in_layouts(make, device, lambda x, offsets: (x, offsets), of_rows=False)
        for sample in itertools.islice(samples, k, None, 2):
            yield _call(f"{reduce} of {sample.name}", *sample.args, reduce)


def _few_offsets(device: str, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Offsets that are still in range of 6 entries if they grow by 1 or double, as tests of vmap have it."""
    return torch.tensor([0, 1, 1, 3], device=device, dtype=dtype)


def _reduce_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, reduce in enumerate(REDUCTIONS):
        offsets = _few_offsets(device, torch.int32 if k % 2 else torch.int64)
        yield _call(f"{reduce} of values", make(6), offsets, reduce)
        yield _call(f"{reduce} of rows", make(6, 2), offsets, reduce, 3.0)
    zeros = make(6)
    zeros[0], zeros[2] = 0, 0
    yield _call("prod with zeros", zeros, _few_offsets(device), "prod")
    yield _call("sum of transposed", make(2, 6).mT, _few_offsets(device), "sum")
    yield _call("max of planes", make(6, 2, 3), _few_offsets(device), "max")


def _as_segments(data, reduce, *, offsets, axis, initial, unsafe):
    """PyTorch's sample of segment_reduce as arguments. There are none if the initial value also changes the results of segments with
    entries, or if segments lie along another dimension."""
    changes = {"sum": initial != 0, "mean": initial != 0, "prod": initial != 1, "max": True, "min": True}
    if axis != 0 or initial is None or changes[reduce]:
        return None
    return (data, offsets, reduce, initial), {}


# ---------------------------------------------------------------- segment_expand


def _aten_expand(rows, offsets, entries):
    if rows.dim() == 0 or offsets.dim() != 1 or len(offsets) < 1 or rows.shape[0] != len(offsets) - 1 or entries < 0:
        raise RuntimeError("one row for each segment")
    _check(rows, offsets, entries)
    members = _members(offsets, entries, rows)
    owner = torch.where(members.any(0), members.to(torch.int64).cumsum(0).eq(0).sum(0), rows.shape[0]).flatten()
    outside = torch.zeros_like(rows[:1]) if rows.shape[0] else rows.new_zeros(1, *rows.shape[1:])
    # ATen gathers rows of any dtype, but not single values.
    return torch.index_select(torch.cat([rows, outside])[..., None], 0, owner)[..., 0]


def _reference_expand(rows, offsets, entries):
    x = wide(rows, rows.dtype)
    result = torch.zeros((entries, *rows.shape[1:]), dtype=x.dtype, device=x.device)
    for s, (begin, end) in enumerate(_ranges(offsets)):
        result[begin:end] = x[s]
    return result


def _expand_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for name, offsets, entries in _segments(device):
        for features in FEATURES:
            if _affordable(offsets, entries, features):
                yield SegmentSample(f"{name} {features}", (make(len(offsets) - 1, *features), offsets, entries))
    yield from _in_layouts(make, device, lambda x, offsets: (x, offsets, 15), of_rows=True)
    for features in range(1, 50):
        offsets = offsets_of([2, 0, 3], 1, device, torch.int64)
        yield SegmentSample(f"{features} features", (make(3, features), offsets, 7))


def _expand_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for kind in (torch.int32, torch.int64):
        offsets = _few_offsets(device, kind)
        yield SegmentSample(f"values by {kind}", (make(3), offsets, 12))
        yield SegmentSample(f"rows by {kind}", (make(3, 2), offsets, 14))
        yield SegmentSample(f"transposed by {kind}", (make(2, 3).mT, offsets, 12))
        yield SegmentSample(f"planes by {kind}", (make(3, 1, 5), offsets, 12))


# ---------------------------------------------------------------- segment_softmax


def _over_members(x: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    inside = torch.where(members, x, -math.inf).softmax(1)
    return torch.where(members, inside, 0).sum(0)


class _RoundedSoftmax(torch.autograd.Function):
    """A softmax of fp16 or bf16. As PyTorch's, its derivatives read the rounded result."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, members):
        return _over_members(x.float(), members).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output, inputs[1])
        ctx.save_for_forward(output, inputs[1])

    @staticmethod
    def backward(ctx, grad):
        result, members = ctx.saved_tensors
        return _softmax_derivative(grad, result, members), None

    @staticmethod
    def jvp(ctx, tangent, _):
        return _softmax_derivative(tangent, *ctx.saved_tensors)


def _softmax_derivative(grad: torch.Tensor, result: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    g, y = grad.to(compute_type(grad.dtype)), result.to(compute_type(result.dtype))
    sums = torch.where(members, g * y, 0).sum(1)
    own = torch.where(members, sums[:, None], 0).sum(0)
    return (y * (g - own)).to(result.dtype)


def _aten_softmax(src, offsets):
    if src.dtype not in FLOATS:
        raise TypeError("floating-point")
    _check(src, offsets)
    with without_autocast(src):
        if src.shape[0] == 0 or len(offsets) == 1:
            return (src * 0).nan_to_num(0).clone(memory_format=torch.contiguous_format)
        members = _members(offsets, src.shape[0], src)
        result = _RoundedSoftmax.apply(src, members) if src.dtype.itemsize == 2 else _over_members(src, members)
        return result.clone(memory_format=torch.contiguous_format)


def _reference_softmax(src, offsets):
    x = src.double()
    result = torch.zeros_like(x)
    for begin, end in _ranges(offsets):
        result[begin:end] = x[begin:end].softmax(0)
    return result


def _softmax_bound(device, result_dtype, reference, src, offsets):
    """The sum has a rounding for each entry, and exp(x - m) an error of |x - m| times the rounding of the difference."""
    info = eps_of(result_dtype)
    size = _reference_softmax(src, offsets).nan_to_num()
    spread = torch.zeros_like(size)
    for begin, end in _ranges(offsets):
        if begin < end:
            x = src[begin:end].double().nan_to_num(posinf=0, neginf=0)
            spread[begin:end] = (end - begin) + 2 * (x.amax(0) - x)
    return info.eps * (spread + 8) * size + info.smallest_normal


def _softmax_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for name, offsets, entries in _segments(device):
        for features in FEATURES:
            if _affordable(offsets, entries, features):
                yield SegmentSample(f"{name} {features}", (make(entries, *features), offsets))
        special = make(entries, 3)
        special[::3, 0], special[1::4, 1], special[::2, 2] = -math.inf, math.nan, 30.0
        yield SegmentSample(f"special values, {name}", (special, offsets))
    yield from _in_layouts(make, device, lambda x, offsets: (x, offsets), of_rows=False)
    for features in range(1, 50):
        yield SegmentSample(f"{features} features", (make(7, features), offsets_of([2, 0, 3], 1, device, torch.int64)))


def _softmax_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Segments of several entries: a gradient is a difference, and would be small beside its parts for two neighbours."""
    make = Maker(device, dtype)
    for kind in (torch.int32, torch.int64):
        offsets = torch.tensor([0, 1, 1, 6], device=device, dtype=kind)
        yield SegmentSample(f"values by {kind}", (make(12), offsets))
        yield SegmentSample(f"rows by {kind}", (make(12, 1), offsets))
        yield SegmentSample(f"every second by {kind}", (make(24)[::2], offsets))
        yield SegmentSample(f"transposed by {kind}", (make(2, 12).mT, offsets))
        yield SegmentSample(f"planes by {kind}", (make(13, 1, 5), offsets))


# ---------------------------------------------------------------- errors


def _errors(first: str, rest: tuple) -> Callable[[str], Iterator[ErrorCase]]:
    """Calls with a wrong first argument of this name, or wrong offsets."""

    def errors(device: str) -> Iterator[ErrorCase]:
        make = Maker(device, torch.float32)
        good = _few_offsets(device)
        x = make(3 if first == "rows" else 6, 2)

        def error(name, x, offsets, *says, on_meta=True):
            return ErrorCase(name, (x, offsets, *rest), says=says, on_meta=on_meta)

        yield error("no dimensions", make(), good, rf"\b{first}\b", r"\[\]")
        yield error("2-D offsets", x, good[None], "offsets", r"\[1, 4\]")
        yield error("no offsets", x, good[:0], "offsets", r"\b0\b")
        yield error("offsets of float32", x, good.float(), "offsets", "Float")
        yield error("offsets of int16", x, good.short(), "offsets", "Short")
        if first == "rows":
            yield error("too many rows", make(4, 2), good, r"\brows\b", r"\b3\b", r"\b4\b")
        else:
            yield error("complex", x.to(torch.complex64), good, rf"\b{first}\b", "ComplexFloat")
            yield error("bool", x > 0, good, rf"\b{first}\b", "Bool")
        if device != "cpu":
            yield error("offsets on the CPU", x, good.cpu(), "offsets", "cpu", on_meta=False)
            return
        yield error("descending", x, torch.tensor([0, 3, 2, 6]), "offsets", "descend", on_meta=False)
        yield error("negative", x, torch.tensor([-1, 1, 2, 6]), "offsets", "-1", on_meta=False)
        yield error("out of range", x, torch.tensor([0, 1, 2, 9]), "offsets", r"\b9\b", on_meta=False)

    return errors


def _reduce_errors(device: str) -> Iterator[ErrorCase]:
    yield from _errors("data", ())(device)
    x = Maker(device, torch.float32)(6, 2)
    yield ErrorCase("unknown word", (x, _few_offsets(device)), {"reduce": "median"}, says=("reduce", "median"))
    for dtype, empty, found in (
        (torch.int64, math.nan, "nan"),
        (torch.int32, math.inf, "inf"),
        (torch.uint8, -1.0, "-1"),
        (torch.int8, 128.0, "128"),
        (torch.int64, 2.5, "2.5"),
    ):
        yield ErrorCase(f"empty of {dtype}", (x.to(dtype), _few_offsets(device), "max", empty), says=("empty", found))


# ---------------------------------------------------------------- operators that derivatives and other operators call


def _with_arg(data, offsets, reduce, empty=None):
    """The values and the entry numbers in one tensor."""
    values, arg = OPS._segment_reduce_arg(data, offsets, reduce, empty)
    assert arg.dtype == offsets.dtype
    return torch.stack([values.double(), arg.double()])


def _aten_with_arg(data, offsets, reduce, empty=None):
    values = _aten_reduce(data, offsets, reduce, empty)
    members = _members(offsets, data.shape[0], data)
    arg = torch.where(members.any(1), first_extremum(members, data, reduce), -1)
    return torch.stack([values.double(), arg.double()])


def _reference_with_arg(data, offsets, reduce, empty=None):
    """The first entry that no other one beats, by a loop."""
    values = _reference_reduce(data, offsets, reduce, empty).double()
    args = torch.full(values.shape, -1.0, dtype=torch.float64, device=data.device)
    for s, (begin, end) in enumerate(_ranges(offsets)):
        if begin < end:
            x = (
                data[begin:end]
                .double()
                .nan_to_num(nan=math.inf if reduce == "max" else -math.inf, posinf=1e308, neginf=-1e308)
            )
            x = x if data.dtype != torch.int64 else data[begin:end]
            best = x.amax(0) if reduce == "max" else x.amin(0)
            args[s] = begin + (x == best).to(torch.uint8).argmax(0)
    return torch.stack([values, args])


def _arg_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for sample in _reduce_samples(device, dtype):
        x, offsets = sample.args
        reduce = "max" if sample.kwargs["reduce"] in ("max", "sum") else "min"
        yield Sample(sample.name, (x, offsets, reduce), {"empty": sample.kwargs["empty"]})
    for features in range(1, 40):  # few different values, so that many are equal
        x = make(60, features, dtype=torch.int8).remainder(3).to(dtype)
        yield Sample(
            f"ties of {features}", (x, offsets_of([20, 0, 33], 4, device, torch.int64), ("max", "min")[features % 2])
        )


def _few_args(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for features in ((), (2,), (3, 2), (5,), (1,), (40,)):
        for reduce in ("max", "min"):
            yield Sample(f"{reduce} {features}", (make(6, *features), _few_offsets(device), reduce))


def _select_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, sample in enumerate(_expand_samples(device, dtype)):
        rows, offsets, entries = sample.args
        random = make(*rows.shape, dtype=torch.int64).remainder(1 << 20)
        if k % 5 == 0:
            random = random.mT.contiguous().mT if random.dim() > 1 else random
        shape = (-1,) + (1,) * (rows.dim() - 1)
        lengths = offsets.diff().reshape(shape)
        arg = torch.where(lengths > 0, offsets[:-1].reshape(shape) + random.remainder(lengths.clamp(min=1)), -1)
        yield Sample(sample.name, (rows, arg.to(offsets.dtype), offsets, entries))


def _reference_select(rows, arg, offsets, entries):
    x = wide(rows, rows.dtype)
    result = torch.zeros((entries, *rows.shape[1:]), dtype=x.dtype, device=x.device)
    for s in range(len(offsets) - 1):
        entry = torch.arange(entries, device=x.device).reshape((-1,) + (1,) * (rows.dim() - 1))
        result = torch.where(entry == arg[s], x[s], result)
    return result


def _aten_select(rows, arg, offsets, entries):
    """Rows are added to one entry more, which is dropped."""
    target = torch.where(arg < 0, entries, arg).long()
    result = rows.new_zeros((entries + 1, *rows.shape[1:]))
    return result.scatter(0, target, rows)[:entries].clone()


def _few_selects(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for features in ((), (1,), (2,), (3, 2), (7,), (33,), (4,), (5,)):
        arg = torch.tensor([0, -1, 2], device=device).reshape((-1,) + (1,) * len(features)).expand(3, *features)
        yield Sample(f"{features}", (make(3, *features), arg, _few_offsets(device), 6))


def _softmax_grads(build: Callable) -> Callable[[str, torch.dtype], Iterator[Sample]]:
    """Gradients, softmaxes and offsets. The softmaxes need not be any, so they are random."""

    def samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
        make = Maker(device, dtype)
        for k, sample in enumerate(build(device, dtype)):
            src, offsets = sample.args
            grad, result = make(*src.shape), make(*src.shape)
            inside = _members(offsets, len(src), src).any(0)
            if k % 4 == 1:
                grad = LAYOUTS[("transposed", "rows", "misaligned1")[k % 3]](grad) if src.dim() > 1 else grad
            yield Sample(sample.name, (grad, torch.where(inside, result, 0), offsets))

    return samples


def _aten_softmax_grad(grad, result, offsets):
    return _softmax_derivative(grad, result, _members(offsets, len(result), result))


def _reference_softmax_grad(grad, result, offsets):
    g, y = grad.double(), result.double()
    out = torch.zeros_like(y)
    for begin, end in _ranges(offsets):
        out[begin:end] = y[begin:end] * (g[begin:end] - (g[begin:end] * y[begin:end]).sum(0))
    return out


def _softmax_grad_bound(device, result_dtype, reference, grad, result, offsets):
    info = eps_of(result_dtype)
    g, y = grad.double().abs(), result.double().abs()
    size = torch.zeros_like(y)
    for begin, end in _ranges(offsets):
        size[begin:end] = y[begin:end] * (g[begin:end] + (end - begin + 2) * (g[begin:end] * y[begin:end]).sum(0))
    return 4 * info.eps * size + info.smallest_normal


def _grouped(index, bins, *, dtype=None):
    """The offsets and the permutation in one tensor."""
    return torch.cat(OPS.group_by(index, bins, dtype=dtype))


def _aten_group(index, bins, *, dtype=None):
    ptr = torch.searchsorted(index.sort().values, torch.arange(bins + 1, dtype=index.dtype, device=index.device))
    return torch.cat([ptr, index.argsort(stable=True)]).to(dtype or torch.int32)


def _reference_group(index, bins, *, dtype=None):
    """A loop over the bins."""
    entries = [torch.nonzero(index == b).flatten() for b in range(bins)]
    lengths = torch.tensor([0] + [len(e) for e in entries], device=index.device)
    return torch.cat([lengths.cumsum(0), *entries])


def _group_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(1)
    for bins in (1, 2, 3, 31, 32, 33, 300, 513):
        for entries in (0, 1, 2, 31, 33, 1000, 1025, 3000):
            for kind in ("random", "ascending", "equal"):
                index = torch.randint(bins, (2 * entries,), generator=generator)
                index = (
                    index.sort().values if kind == "ascending" else index * 0 + bins - 1 if kind == "equal" else index
                )
                index = index.to(device, dtype if dtype in (torch.int32, torch.int64) else torch.int64)
                kwargs = {"dtype": torch.int64} if (bins + entries) % 3 == 0 else {}
                yield Sample(f"{entries} {kind} of {bins}", (index[: 2 * entries : 2], bins), kwargs)


def _few_groups(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    for k, sample in enumerate(_group_samples(device, dtype)):
        if k % 13 == 5:
            yield sample


_shared = {"elementwise": False, "workspace": workspace_of(8)}
_public = functools.partial(OpCase, grad_dtypes=FLOATS, saves_inputs=True, **_shared)
_internal = functools.partial(internal_case, **_shared)
CASES = [
    _public(
        name="segment_reduce", op=OPS.segment_reduce.default, overload=OPS.segment_reduce.default, aten=_aten_reduce,
        reference=_reference_reduce, samples=_reduce_samples, few=_reduce_few, errors=_reduce_errors, dtypes=FLOATS + INTEGERS,
        bound=_reduce_bound, opinfo=(OpInfoLink("_segment_reduce.offsets", _as_segments, at_least=5),),
    ),
    _public(
        name="segment_expand", op=OPS.segment_expand.default, overload=OPS.segment_expand.default, aten=_aten_expand,
        reference=_reference_expand, samples=_expand_samples, few=_expand_few, errors=_errors("rows", (6,)),
        dtypes=FLOATS + INTEGERS + (torch.bool,), bound=exact, elementwise=True,
    ),
    _public(
        name="segment_softmax", op=OPS.segment_softmax.default, overload=OPS.segment_softmax.default, aten=_aten_softmax,
        reference=_reference_softmax, samples=_softmax_samples, few=_softmax_few, errors=_errors("src", ()), dtypes=FLOATS,
        bound=_softmax_bound, approximates=8, cancels=8,
    ),
    _internal(
        name="_segment_reduce_arg", op=_with_arg, overload=OPS._segment_reduce_arg.default, aten=_aten_with_arg,
        reference=_reference_with_arg, samples=_arg_samples, few=_few_args, dtypes=FLOATS + INTEGERS, bound=exact,
    ),
    _internal(
        name="_segment_select", op=OPS._segment_select.default, overload=OPS._segment_select.default, aten=_aten_select,
        reference=_reference_select, samples=_select_samples, few=_few_selects, dtypes=FLOATS + INTEGERS, bound=exact,
    ),
    _internal(
        name="_segment_softmax_backward", op=OPS._segment_softmax_backward.default, overload=OPS._segment_softmax_backward.default,
        aten=_aten_softmax_grad, reference=_reference_softmax_grad, samples=_softmax_grads(_softmax_samples),
        few=_softmax_grads(_softmax_few), dtypes=FLOATS, bound=_softmax_grad_bound,
    ),
    # Its results are numbers of entries: tests/rooms/segment has its tests under vmap and compilation.
    _internal(
        name="group_by", op=_grouped, overload=OPS.group_by.default, aten=_aten_group, reference=_reference_group,
        samples=_group_samples, few=_few_groups, dtypes=(torch.int32, torch.int64), bound=exact,
    ),
]  # fmt: skip
