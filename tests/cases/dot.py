"""Cases of dot, vdot, dot_rows and dot_fast_atomic: references, error bounds and errors. The samples are in dot_samples.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

import torch_ops
from benchmarks.references.dtypes import real_of, wide
from benchmarks.references.reduce import sum_in_pairs

from . import ErrorCase, OpCase, OpInfoLink, Sample, Variant
from .samples import dot_samples as calls
from .tensors import FLOATS, INTEGERS, Maker, finite_sizes

DTYPES = FLOATS + INTEGERS + (torch.complex64, torch.complex128)
GRAD_DTYPES = FLOATS + (torch.complex64, torch.complex128)

# ---------------------------------------------------------------- references


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Splits float64 numbers into two, with the upper 26 significant bits and the other 27."""
    high = (x.view(torch.int64) & -(2**27)).view(torch.float64)
    return high, x - high


def _sum_of_products(x: torch.Tensor, y: torch.Tensor, exact: bool) -> torch.Tensor:
    """The sum in float64. With `exact`, it has about twice that precision: the rounding errors of the products are added, too
    (Dekker's TwoProduct)."""
    products = x * y
    if not exact:
        return products.sum(-1)
    (a, b), (c, d) = _halves(x), _halves(y)
    return sum_in_pairs(products, ((a * c - products) + a * d + b * c) + b * d)


def dot_reference(self, tensor) -> torch.Tensor:
    """The dot product of two vectors, or of the rows of two matrices."""
    x, y = (wide(t, self.dtype).resolve_conj().resolve_neg() for t in (self, tensor))
    exact = real_of(self.dtype) == torch.float64
    if self.dtype.is_complex:
        real = _sum_of_products(torch.cat([x.real, -x.imag], -1), torch.cat([y.real, y.imag], -1), exact)
        imaginary = _sum_of_products(torch.cat([x.real, x.imag], -1), torch.cat([y.imag, y.real], -1), exact)
        return torch.complex(real, imaginary)
    return _sum_of_products(x, y, exact) if self.dtype.is_floating_point else (x * y).sum(-1)


def vdot_reference(self, other) -> torch.Tensor:
    return dot_reference(self.conj(), other)


def reference(op: str) -> Callable:
    """The float64 reference of 'dot', 'vdot', 'dot_rows' or 'dot_fast_atomic'."""
    return {c.name: c.reference for c in CASES}[op]


# ---------------------------------------------------------------- error bounds


def sizes_of_products(self: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """sum|x||y|. Errors are relative to it, also the errors of each part of a complex result."""
    x, y = (finite_sizes(wide(t, self.dtype)) for t in (self, tensor))
    return (x * y).sum(-1)


def dot_bound(device, result_dtype, reference, self, tensor, /):
    """The error bound: (log2 n + 10) eps sum|x||y| on CUDA, with float32's eps for fp16 and bf16.

    It is the bound of sums (reduce.py) plus a rounding per product and the two products in each part of a complex product. On the
    CPU, ATen's kernels may add one product after another, so the factor is n + 10. Subnormal products are rounded to multiples of
    the smallest subnormal number. If the absolute values of the products add up to more than the dtype's range, a partial sum may
    overflow, and any result is allowed.
    """
    if not (result_dtype.is_floating_point or result_dtype.is_complex):
        return None
    real = real_of(result_dtype)
    info = torch.finfo(torch.float32 if real.itemsize == 2 else real)
    sizes, count = sizes_of_products(self, tensor), self.shape[-1]
    steps = count if device == "cpu" else math.log2(max(count, 1))
    bound = (steps + 10) * info.eps * sizes + (count + 1) * info.smallest_normal * info.eps
    return torch.where(sizes < info.max, bound, math.inf)


def dot_fast_atomic_bound(device, result_dtype, reference, self, tensor, /):
    """The error bound on CUDA, where the blocks' sums are rounded to the result's dtype and added in that dtype, in any order.

    It adds to the bound of the blocks' sums one rounding per block plus one, of numbers up to sum|x||y|, and the same again for
    second-order effects. There are at most 4 blocks per SM, fewer than 256 SMs, and at least 32 products (one warp) per block.
    float32 additions flush subnormal numbers.
    """
    bound = dot_bound(device, result_dtype, reference, self, tensor)
    if device == "cpu":
        return bound
    info = torch.finfo(result_dtype)
    sizes = sizes_of_products(self, tensor)
    blocks = min(4 * 256, math.ceil(self.shape[-1] / 32))
    step = info.smallest_normal * (1 if info.bits == 32 else info.eps)
    return torch.where(sizes < info.max, bound + (blocks + 1) * (info.eps * sizes + step), math.inf)


# ---------------------------------------------------------------- errors


def _operand_errors(device: str, other: str, variant: str = "functional", **kwargs) -> Iterator[ErrorCase]:
    """Calls that dot, vdot and dot_fast_atomic refuse. `other` is the name of the second argument."""
    make = Maker(device, torch.float32)
    for name, x, y, *says in (
        ("2-d self", make(2, 3), make(3), r"\binput\b", r"\[2, 3\]"),
        ("2-d other", make(3), make(1, 3), other, r"\[1, 3\]"),
        ("2-d both", make(2, 3), make(2, 3), r"\binput\b", r"\[2, 3\]"),
        ("0-d self", make(), make(1), r"\binput\b", r"\[\]"),
        ("0-d other", make(1), make(), other, r"\[\]"),
        ("0-d both", make(), make(), r"\binput\b", r"\[\]"),
        ("2-d, and of another dtype", make(2, 3), make(3).double(), r"\binput\b", r"\[2, 3\]"),
        ("other size", make(3), make(4), other, r"\b3\b", r"\b4\b"),
        ("size that would broadcast", make(3), make(1), other, r"\b3\b", r"\b1\b"),
        ("empty other", make(3), make(0), other, r"\b3\b", r"\b0\b"),
        ("float64 other", make(3), make(3).double(), other, "[Ff]loat", "[Dd]ouble|float64"),
        ("integer other", make(3), make(3).int(), other, "[Ff]loat", "[Ii]nt"),
        ("complex self", make(3, dtype=torch.complex64), make(3), other, "[Cc]omplex", "[Ff]loat"),
        ("other of another dtype and size", make(3), make(4).half(), other, "[Ff]loat", "[Hh]alf|float16"),
    ):
        yield ErrorCase(name, (x, y), kwargs, says=tuple(says), variant=variant)
    if device != "cpu":
        yield ErrorCase("other on the CPU", (make(3), make(3).cpu()), kwargs, (other, "cpu"), variant, on_meta=False)
        yield ErrorCase("self on the CPU", (make(3).cpu(), make(3)), kwargs, (other, "cpu"), variant, on_meta=False)


def _dtype_errors(device: str, **dtypes: str) -> Iterator[ErrorCase]:
    """Errors of dtypes. `dtypes` maps their names to the names that a message may use."""
    for name, says in dtypes.items():
        ones = torch.ones(3, device=device).to(getattr(torch, name))
        yield ErrorCase(name, (ones, ones), says=(says,))


def _vector_errors(other: str) -> Callable:
    def errors(device: str) -> Iterator[ErrorCase]:
        yield from _operand_errors(device, other)
        yield from _dtype_errors(device, bool="[Bb]ool", uint16="U?u?[Ii]nt16")
        make = Maker(device, torch.float32)
        yield from _operand_errors(device, other, "out", out=make())
        for dtype, says in (
            (torch.float64, "[Dd]ouble|float64"),
            (torch.float16, "[Hh]alf|float16"),
            (torch.int32, "[Ii]nt"),
            (torch.complex64, "[Cc]omplex"),
        ):
            for shape in ((), (2,)):
                out = {"out": torch.ones(shape, dtype=dtype, device=device)}
                yield ErrorCase(
                    f"{dtype} out of {shape}", (make(3), make(3)), out, (r"\bout\b", says, "[Ff]loat"), "out"
                )
        if device != "cpu":
            out = {"out": make().cpu()}
            yield ErrorCase("out on the CPU", (make(3), make(3)), out, (r"\bout\b", "cpu"), "out", on_meta=False)

    return errors


def _fast_atomic_errors(device: str) -> Iterator[ErrorCase]:
    yield from _operand_errors(device, r"\btensor\b")
    yield from _dtype_errors(
        device, bool="[Bb]ool", uint8="Byte|uint8", int32="Int|int32", complex64="ComplexFloat|complex64"
    )


def _rows_errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    other = r"\btensor\b"
    for name, x, y, *says in (
        ("vectors", make(3), make(3), r"\binput\b", r"\[3\]"),
        ("a vector and a matrix", make(3), make(3, 3), r"\binput\b", r"\[3\]"),
        ("a matrix and a vector", make(3, 4), make(3), other, r"\[3\]"),
        ("3-d self", make(2, 3, 4), make(2, 3), r"\binput\b", r"\[2, 3, 4\]"),
        ("3-d other", make(2, 3), make(2, 3, 4), other, r"\[2, 3, 4\]"),
        ("rows of other sizes", make(3, 4), make(3, 5), other, r"\[3, 4\]", r"\[3, 5\]"),
        ("rows that would broadcast", make(3, 4), make(3, 1), other, r"\[3, 4\]", r"\[3, 1\]"),
        ("one row for all", make(3, 4), make(1, 4), other, r"\[3, 4\]", r"\[1, 4\]"),
        ("more rows", make(3, 4), make(4, 4), other, r"\[3, 4\]", r"\[4, 4\]"),
        ("float64 other", make(3, 4), make(3, 4).double(), other, "[Ff]loat", "[Dd]ouble|float64"),
        ("other of another dtype and size", make(3, 4), make(3, 5).half(), other, "[Ff]loat", "[Hh]alf|float16"),
    ):
        yield ErrorCase(name, (x, y), says=tuple(says))
    bools = make(3, 4) > 0
    yield ErrorCase("bool", (bools, bools), says=("[Bb]ool",))
    if device != "cpu":
        yield ErrorCase("other on the CPU", (make(3, 4), make(3, 4).cpu()), says=(other, "cpu"), on_meta=False)


# ---------------------------------------------------------------- ATen's operators


def _lacks_integers(t: torch.Tensor) -> bool:
    return t.is_cuda and t.dtype in INTEGERS


def _as_aten(function: Callable) -> Callable:
    """torch.dot or torch.vdot, with two changes. For integers, which torch does not support on CUDA, it is a sum of products that
    wraps around in its dtype. For two conjugated vectors, ATen's result is a conjugated view, which is resolved here, because
    gpuopt's is none.
    """

    def aten(self, tensor, *, out=None):
        if not _lacks_integers(self):
            result = function(self, tensor, out=out)
            return result if result is out else result.resolve_conj()
        if out is not None and out.dtype != self.dtype:
            raise RuntimeError(f"result dtype {out.dtype} does not match input dtype {self.dtype}")
        result = (self * tensor).sum(-1, dtype=self.dtype)
        return result if out is None else out.copy_(result)

    return aten


def _aten_rows(self, tensor):
    """The meaning of torch.vmap(torch.dot). vmap itself is not called, because it would raise its own error for mismatched
    matrices."""
    if _lacks_integers(self) or self.shape[0] == 0:
        return (self * tensor).sum(-1, dtype=self.dtype)
    if len(self) != len(tensor):
        return torch.dot(self[:, 0], tensor[:, 0])  # raises the error
    return torch.stack([torch.dot(x, y) for x, y in zip(self.unbind(), tensor.unbind())])


def _aten_fast_atomic(self, tensor):
    result = torch.dot(self, tensor)
    if self.dtype not in FLOATS:
        raise NotImplementedError(f"no atomic additions of {self.dtype}")
    return result


# ---------------------------------------------------------------- the cases


def _not_repeatable(device: str, sample: Sample) -> bool:
    """Never, because blocks add to the result in any order."""
    return device == "cpu"


def _vector_case(name: str, function: Callable, other: str, reference: Callable) -> OpCase:
    op, packet, aten = getattr(torch_ops, name), getattr(torch.ops.gpuopt, name), _as_aten(function)
    return OpCase(
        name=name,
        op=op,
        overload=packet.default,
        aten=aten,
        reference=reference,
        samples=calls.sweep,
        few=calls.few,
        errors=_vector_errors(other),
        dtypes=DTYPES,
        grad_dtypes=GRAD_DTYPES,
        bound=dot_bound,
        out=Variant(op, packet.out, aten),
        opinfo=(OpInfoLink(name, at_least=2),),
        elementwise=False,
    )


CASES = [
    _vector_case("dot", torch.dot, r"\btensor\b", dot_reference),
    _vector_case("vdot", torch.vdot, r"\bother\b", vdot_reference),
    OpCase(
        name="dot_rows", op=torch_ops.dot_rows, overload=torch.ops.gpuopt.dot_rows.default, aten=_aten_rows,
        reference=dot_reference, samples=calls.rows_sweep, few=calls.rows_few, errors=_rows_errors, dtypes=DTYPES,
        grad_dtypes=GRAD_DTYPES, bound=dot_bound, elementwise=False,
    ),
    OpCase(
        name="dot_fast_atomic", op=torch_ops.dot_fast_atomic, overload=torch.ops.gpuopt.dot_fast_atomic.default,
        aten=_aten_fast_atomic, reference=dot_reference, samples=calls.sweep, few=calls.few, errors=_fast_atomic_errors,
        dtypes=FLOATS, grad_dtypes=FLOATS, bound=dot_fast_atomic_bound, elementwise=False, as_accurate=False,
        repeatable=_not_repeatable,
    ),
]  # fmt: skip
