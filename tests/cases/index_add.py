"""Cases of index_add: a reference without index_add, error bounds for any order of additions, and errors.

The samples are the calls in index_add_samples.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch

import torch_ops
from benchmarks.references.dtypes import real_of, wide

from . import ErrorCase, OpCase, OpInfoLink, Sample, Variant
from .samples import index_add_samples as calls
from .tensors import ALL, COMPLEX, FLOATS, Maker, finite_sizes

# ---------------------------------------------------------------- the reference


def _rows(t: torch.Tensor, dim: int) -> torch.Tensor:
    """A matrix with a row for each index along `dim`. A 0-d tensor has one row."""
    t = t.reshape(1) if t.dim() == 0 else t.movedim(dim, 0)
    return t.reshape(t.shape[0], math.prod(t.shape[1:]))


def _summed(into: torch.Tensor, dim: int, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Adds the values of each bin to `into`. The values of a bin are first added in pairs, which keeps float64's rounding errors
    small."""
    if into.numel() == 0:
        return into
    bins, order = index.reshape(-1).long().sort(stable=True)
    rows = _rows(values, dim)[order]
    while True:
        position = torch.arange(len(bins), device=bins.device) - torch.searchsorted(bins, bins)
        odd = position % 2 == 1
        if not odd.any():
            break
        second = odd.nonzero()[:, 0]
        rows[second - 1] = rows[second - 1] + rows[second]
        bins, rows = bins[~odd], rows[~odd]
    total = _rows(into, dim).clone()
    total[bins] = total[bins] + rows
    moved = into.shape if into.dim() == 0 else into.movedim(dim, 0).shape
    return total.view(moved).movedim(0, dim) if into.dim() else total.view(moved)


def _alpha(alpha, dtype: torch.dtype) -> bool | int | float | complex:
    """alpha as a number of the kind that `dtype` holds. For integers, fractions are truncated."""
    if dtype.is_complex or dtype.is_floating_point:
        return alpha
    return bool(alpha) if dtype == torch.bool else int(alpha)


def index_add_reference(self, dim, index, source, *, alpha=1, mode="fast") -> torch.Tensor:
    values, alpha = wide(source, self.dtype), _alpha(alpha, self.dtype)
    scaled = values & alpha if self.dtype == torch.bool else values * alpha
    return _summed(wide(self, self.dtype), dim, index, scaled)


def reference(op: str) -> Callable:
    """The float64 reference of 'index_add'."""
    return {c.name: c.reference for c in CASES}[op]


# ---------------------------------------------------------------- the error bound


def summed_in(dtype: torch.dtype, mode: str) -> torch.dtype:
    """The real dtype that partial sums are rounded to. In mode 'fast', fp16 and bf16 may be summed in their own dtype."""
    real = real_of(dtype)
    return torch.float32 if mode != "fast" and real.itemsize == 2 else real


def _rounding_of_alpha(alpha, dtype: torch.dtype) -> float:
    """The relative error of alpha in `dtype`: zero or half an eps."""
    parts = torch.tensor([complex(alpha).real, complex(alpha).imag], dtype=torch.float64)
    real = real_of(dtype)
    return 0.0 if torch.equal(parts.to(real).double(), parts) else torch.finfo(real).eps / 2


def index_add_bound(device, result_dtype, reference, self, dim, index, source, *, alpha=1, mode="fast"):
    """The error bound for any order: n + 1 roundings of half an eps each, of partial sums up to sum|x|.

    It is doubled for the product with alpha, the parts of complex numbers and the reference's own roundings. If sum|x| exceeds the
    dtype's range, a partial sum may overflow, and any result is allowed.
    """
    if not (result_dtype.is_floating_point or result_dtype.is_complex):
        return None
    info = torch.finfo(summed_in(result_dtype, mode))
    sizes = (finite_sizes(wide(t, result_dtype)) for t in (self, source))
    largest = _summed(next(sizes), dim, index, abs(alpha) * next(sizes))
    bins = self.shape[dim] if self.dim() else 1
    count = torch.bincount(index.reshape(-1), minlength=bins)[:bins].double()
    count = count.view([-1] + [1] * (self.dim() - 1 - dim % self.dim())) if self.dim() else count[0]
    bound = ((count + 3) * info.eps + _rounding_of_alpha(alpha, result_dtype)) * largest
    # red.global.add.f32 flushes subnormal numbers. All other additions round them.
    flushes = device != "cpu" and info.bits == 32 and mode != "deterministic"
    bound = bound + (count + 1) * info.smallest_normal * (1 if flushes else info.eps)
    return torch.where(largest < info.max, bound, math.inf)


# ---------------------------------------------------------------- errors


def _wrong_calls(make: Maker) -> Iterator[tuple]:
    """(name, dim, index, source, what the message says) for a self of shape (4, 3)."""
    index, three = (torch.arange(n, device=make.device) for n in (2, 3))
    source = make(2, 3)
    yield "dim too large", 2, index, source, r"\bdim\b", r"\b2\b"
    yield "dim too small", -3, index, source, r"\bdim\b", r"-3\b"
    for dtype, name in ((torch.float32, "[Ff]loat"), (torch.int16, "[Ss]hort|int16"), (torch.bool, "[Bb]ool")):
        yield f"{dtype} index", 0, index.to(dtype), source, r"\bindex\b", name
    yield "2-D index", 0, index[None], source, r"\bindex\b", r"\[1, 2\]"
    yield "source of another dtype", 0, index, source.double(), r"\bsource\b", "[Dd]ouble|float64", "[Ff]loat"
    yield "integer source", 0, index, source.int(), r"\bsource\b", "[Ii]nt", "[Ff]loat"
    yield "fewer rows than indices", 0, three, source, r"\bsource\b", r"\b3\b", r"\b2\b"
    yield "two rows, one 0-d index", 0, index[0], source, r"\bsource\b", r"\b1\b", r"\b2\b"
    yield "source of other columns", 0, index, make(2, 4), r"\bsource\b", r"\[4, 3\]", r"\[2, 4\]"
    yield "source of other rows", 1, index, make(3, 2), r"\bsource\b", r"\[4, 3\]", r"\[3, 2\]"
    yield "source that would broadcast", 0, index, make(2, 1), r"\bsource\b", r"\[4, 3\]", r"\[2, 1\]"
    yield "3-D source", 0, index, make(2, 3, 1), r"\bsource\b", r"\b2\b", r"\[2, 3, 1\]"
    yield "1-D source", 0, index, make(2), r"\bsource\b", r"\b2\b", r"\[2\]"
    yield "0-d source", 0, index[0], make(), r"\bsource\b", r"\b2\b", r"\[\]"


def _wrong_ranks(make: Maker) -> Iterator[tuple]:
    """(name, self, dim, index, source, what the message says)."""
    zeros = torch.zeros(2, dtype=torch.int64, device=make.device)
    yield "0-d self, 1-D source", make(), 0, zeros[:1], make(1), r"\bsource\b", r"\[1\]"
    yield "0-d self, dim 1", make(), 1, zeros[:1], make(), r"\bdim\b", r"\b1\b"
    yield "1-D self, 0-d source", make(3), 0, zeros[:1], make(), r"\bsource\b", r"\[\]"
    yield "1-D self, 0-d source, two indices", make(3), 0, zeros, make(), r"\bsource\b", r"\b2\b"
    yield "1-D self, no indices, 0-d source", make(3), 0, zeros[:0], make(), r"\bsource\b", r"\b0\b"


def _out_of_range(make: Maker) -> Iterator[tuple]:
    """(name, self, index, source, what the message says). Indices near 2^32 would be in range if truncated to 32 bits."""
    for dtype, shape in itertools.product((torch.int64, torch.int32), ((4, 3), (4,), ())):
        bins = shape[0] if shape else 1
        wide = (2**32, -(2**32), 2**63 - 1) if dtype == torch.int64 else ()
        for value in (-1, bins, -bins, 2**31 - 1, -(2**31), *wide):
            index = torch.tensor([value, 0][: max(2 * len(shape), 1)], dtype=dtype, device=make.device)
            yield (
                f"{dtype} index {value} of {shape}",
                make(*shape),
                index,
                make(2, *shape[1:]) if shape else make(),
                rf"{value}\b",
            )


ALPHAS = (
    (torch.float32, 1j), (torch.int64, 1j), (torch.uint8, 300), (torch.int8, -129), (torch.float16, 1e6),
    (torch.float32, 1e300),
)  # fmt: skip


def _overlaps(make: Maker, index: torch.Tensor) -> Iterator[tuple]:
    """(name, tensor to write to, index, source)."""
    pool = make(10, 3)
    integers = torch.zeros(4, dtype=torch.int64, device=make.device)
    yield "expanded", make(1, 3).expand(4, 3), index, make(2, 3)
    yield "part of it is source", pool[:4], index, pool[:2]
    yield "reaches into source", pool[:4], index, pool[3:5]
    yield "is index", integers, integers, torch.ones_like(integers)


def _errors_of(variant: str, device: str) -> Iterator[ErrorCase]:
    """Calls that a variant refuses."""
    make = Maker(device, torch.float32)
    index = torch.arange(2, device=device)

    def error(name, self, dim, index, source, *says, on_meta=True, **kwargs):
        if variant == "out":
            kwargs["out"] = torch.ones_like(self, device=device)
        return ErrorCase(name, (self, dim, index, source), kwargs, says=says, variant=variant, on_meta=on_meta)

    for name, dim, indices, source, *says in _wrong_calls(make):
        yield error(name, make(4, 3), dim, indices, source, *says)
    for name, *given in _wrong_ranks(make):
        yield error(name, *given)
    for dtype, alpha in ALPHAS:
        self, source = (make(n, 3).to(dtype) for n in (4, 2))
        yield error(f"alpha={alpha} for {dtype}", self, 0, index, source, r"\balpha\b", alpha=alpha)
    if device == "cpu":  # a device-side assertion on CUDA: tests/rooms/index_add/test_cuda.py
        for name, self, indices, source, *says in _out_of_range(make):
            yield error(name, self, 0, indices, source, r"\bindex\b", *says, on_meta=False)
        return
    for name in ("self", "index", "source"):
        given = {"self": make(4, 3), "index": index, "source": make(2, 3)}
        given[name] = given[name].cpu()
        yield error(f"{name} on the CPU", given["self"], 0, given["index"], given["source"], "cpu", on_meta=False)


def _errors(device: str) -> Iterator[ErrorCase]:
    for variant in ("functional", "inplace", "out"):
        yield from _errors_of(variant, device)
    make = Maker(device, torch.float32)
    index = torch.arange(2, device=device)
    for name, self, indices, source in _overlaps(make, index):
        yield ErrorCase(name, (self, 0, indices, source), says=(r"\binput\b",), variant="inplace", on_meta=False)

    def out(name, given, out, *says, on_meta=True):
        return ErrorCase(name, given, {"out": out}, says=(r"\bout\b", *says), variant="out", on_meta=on_meta)

    for name, written, indices, source in _overlaps(make, index):
        yield out(name, (torch.ones_like(written), 0, indices, source), written, on_meta=False)
    pool, given = make(10, 3), (make(4, 3), 0, index, make(2, 3))
    yield out("overlaps self, shifted", (pool[:4], *given[1:]), pool[1:5], on_meta=False)
    for dtype, name in ((torch.float64, "[Dd]ouble|float64"), (torch.int32, "[Ii]nt"), (torch.complex64, "[Cc]omplex")):
        yield out(f"{dtype} out", given, make(4, 3).to(dtype), name, "[Ff]loat")
    if device != "cpu":
        yield out("on the CPU", given, make(4, 3).cpu(), "cpu", on_meta=False)


# ---------------------------------------------------------------- the case


def _vector(index: torch.Tensor) -> torch.Tensor:
    """A 0-d index as a one-dimensional one. Otherwise gradients have a wrong shape, due to ATen's batching rule for
    index_select."""
    return index if index.dim() else index.view(1)


def _aten(self, dim, index, source, *, alpha=1, mode="fast", out=None):
    return torch.index_add(self, dim, _vector(index), source, alpha=alpha, out=out)


def _aten_(self, dim, index, source, *, alpha=1, mode="fast"):
    return self.index_add_(dim, _vector(index), source, alpha=alpha)


def _repeatable(device: str, sample: Sample) -> bool:
    """False for floating-point sums in mode 'fast' on CUDA, which are added in any order."""
    dtype = sample.args[0].dtype
    exact = not (dtype.is_floating_point or dtype.is_complex)
    return device == "cpu" or exact or sample.kwargs.get("mode", "fast") == "deterministic"


def scratch(sample: Sample) -> int:
    """The bytes that a call may allocate beside its result. They depend on the index and not on the size of the source."""
    return 40 * sample.args[2].numel() + 64 * 2**20


CASES = [
    OpCase(
        name="index_add",
        op=torch_ops.index_add,
        overload=torch.ops.gpuopt.index_add.default,
        aten=_aten,
        reference=index_add_reference,
        samples=calls.sweep,
        few=calls.few,
        errors=_errors,
        dtypes=ALL,
        grad_dtypes=FLOATS + COMPLEX[1:],
        bound=index_add_bound,
        inplace=Variant(torch_ops.index_add_, torch.ops.gpuopt.index_add_.default, _aten_),
        out=Variant(torch_ops.index_add, torch.ops.gpuopt.index_add.out, _aten),
        opinfo=(OpInfoLink("index_add"),),
        elementwise=False,
        repeatable=_repeatable,
        workspace=scratch,
    )
]
