"""Cases of mul, axpy and fma: error bounds and errors. The operands of samples are in elementwise_samples.py."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

import torch_ops
from benchmarks.references import elementwise as references
from benchmarks.references.dtypes import compute_type, real_of, wide

from . import ErrorCase, OpCase, OpInfoLink, Sample, Variant, tensors
from .samples import elementwise_samples as space
from .tensors import ALL, COMPLEX, FLOATS, Maker, in_layout, specials

SCALARS = (0, 1, -3, 300, 2**40, True, 0.5, -0.0, 3.0 * 2**33, math.inf, -math.inf, math.nan, 1j, 0.5 - 2j)
INEXACT_SCALARS = (0.1, math.pi, 1e-9, 0.1 + 0.7j)


# ---------------------------------------------------------------- bounds


def _steps_bound(
    device: str, dtype: torch.dtype, product: torch.Tensor, last: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """The error bound of operators that round each product and sum: half an ulp of the compute dtype for each rounding, relative to
    the largest intermediate value. If a product overflows, any result is allowed."""
    info = torch.finfo(compute_type(device, dtype))
    roundings = 6 if dtype.is_complex else 3
    bound = info.eps / 2 * (roundings * product.abs() + abs(last)) + info.smallest_normal * info.eps
    return torch.where(product.abs() * (1 + 2 * info.eps) < info.max, bound, math.inf)


def _mul_bound(device, dtype, reference, x, y):
    """The bound of mul: a real product is rounded once, a complex one is four products and two sums."""
    return _steps_bound(device, dtype, wide(x, dtype).abs() * wide(y, dtype).abs()) if dtype.is_complex else None


def _axpy_bound(device, dtype, reference, x, y, *, alpha=1):
    """The bound of axpy, which holds for ATen, too: alpha and alpha x may be rounded before the sum, and fp16 and bf16 round at the
    end."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return None
    product = wide(alpha, dtype).abs().to(x.device) * wide(x, dtype).abs()
    return _steps_bound(device, dtype, product, wide(y, dtype).abs())


def _fma_bound(device, dtype, reference, a, b, c):
    """The bound of fma. Real dtypes round once. fp16 and bf16 round once in f32 and once to the result. Complex numbers round every
    product and sum.

    In f64 the reference itself rounds twice. tests/rooms/elementwise/test_use.py has the exact check.
    """
    if dtype.is_complex or dtype == torch.float64:
        return _steps_bound(device, dtype, wide(a, dtype).abs() * wide(b, dtype).abs(), wide(c, dtype).abs())
    if not dtype.is_floating_point:
        return None
    return (2.0**-50 if dtype == torch.float32 else 2.0**-24) * reference.abs()


# ---------------------------------------------------------------- samples and errors of each operator


def _mul_samples(device, dtype):
    for name, operands, exact in space.sweep(device, dtype, 2):
        yield Sample(name, operands, exact_inputs=exact)


def _mul_few(device, dtype):
    for name, operands in space.few(device, dtype, 2):
        yield Sample(name, operands)


def _scalar_samples(device, dtype):
    make = Maker(device, dtype, seed=3)
    dense = torch.cat([specials(dtype, device), make(100)])
    half = real_of(dtype) == torch.float16
    for number in SCALARS + INEXACT_SCALARS:
        if not space.have_a_result((dense, number)):
            continue
        exact = number not in INEXACT_SCALARS and not (half and 65504 < abs(number) < math.inf)
        yield Sample(f"{number}", (dense, number), exact_inputs=exact)
        yield Sample(f"0-d, {number}", (make(), number), exact_inputs=exact)
        yield Sample(f"empty, {number}", (make(3, 0), number), exact_inputs=exact)
    for n in space.SIZES:
        yield Sample(f"({n},), 3", (make(n), 3))
    for shape in space.LAYOUT_SHAPES + space.TILE_SHAPES:
        for name in tensors.LAYOUTS:
            x = in_layout(name, make(*shape))
            if x is not None:
                yield Sample(f"{shape} {name}, 3", (x, 3))


def _scalar_few(device, dtype):
    make = Maker(device, dtype, seed=4)
    for number in (3, 2.5, -0.5 + 2j, True):
        if space.have_a_result((make(1), number)):
            yield Sample(f"dense, {number}", (make(3, 4), number))
    yield Sample("0-d, 2.5", (make(), 2.5))
    yield Sample("transposed, 2.5", (make(4, 3).mT, 2.5))
    yield Sample("step 2, 3", (make(6)[::2], 3))
    yield Sample("channels_last, -1.5", (make(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), -1.5))
    yield Sample("misaligned, 2", (make(33)[1:], 2))
    yield Sample("empty, 3", (make(0, 3), 3))


def _alphas(dtype):
    """Values of alpha that ATen accepts for this result dtype: no floats for integers, no complex for reals, and bools for bools
    only."""
    if dtype.is_complex:
        return (1, -2, 0.5, 1.5 - 2j)
    if dtype.is_floating_point:
        return (1, -2, 0.5, 0)
    return (1, True, False) if dtype == torch.bool else (1, 3, 0)


def _axpy_samples(device, dtype):
    alphas = itertools.cycle(_alphas(dtype))
    for name, operands, exact in space.sweep(device, dtype, 2):
        common = references.common_dtype(torch.add, *operands)
        alpha = next(alphas) if common == dtype else 1
        yield Sample(f"{name}, alpha={alpha}", operands, {"alpha": alpha}, exact_inputs=exact)
    make = Maker(device, dtype, seed=5)
    if dtype.is_floating_point or dtype.is_complex:
        for alpha in (0.1, math.pi, math.inf, math.nan):
            yield Sample(
                f"alpha={alpha}",
                (make(1000), make(1000)),
                {"alpha": alpha},
                exact_inputs=math.isinf(alpha) or math.isnan(alpha),
            )
    yield Sample("alpha left out", (make(33), make(33)))


def _axpy_few(device, dtype):
    alphas = itertools.cycle((1, -2, 0.5) if dtype.is_floating_point or dtype.is_complex else (1, 3))
    for name, operands in space.few(device, dtype, 2):
        alpha = next(alphas)
        yield Sample(f"{name}, alpha={alpha}", operands, {"alpha": alpha})


def _fma_samples(device, dtype):
    for name, operands, exact in space.sweep(device, dtype, 3):
        # The comparison is with addcmul, which does not support bool.
        if references.common_dtype(torch.addcmul, operands[2], *operands[:2]) != torch.bool:
            yield Sample(name, operands, exact_inputs=exact)


def _fma_few(device, dtype):
    for name, operands in space.few(device, dtype, 3):
        yield Sample(name, operands)


def _device_mismatches(device, **error) -> Iterator[ErrorCase]:
    """One operand at a time is on another device than the others. `error` has the names of operands and other arguments of
    ErrorCase."""
    names = error.pop("operands")
    make = Maker(device, torch.float32)
    for k in range(1, len(names)) if device != "cpu" else ():
        operands = [make(2, 3) for _ in names]
        operands[k] = operands[k].cpu()
        yield ErrorCase(
            f"{names[k]} on the CPU", tuple(operands), says=(rf"\b{names[k]}\b", "device|cpu"), on_meta=False, **error
        )


def _shape_mismatches(device, **error) -> Iterator[ErrorCase]:
    """The last operand does not broadcast with the others."""
    names = error.pop("operands")
    make = Maker(device, torch.float32)
    for a, b in (((3, 4), (3, 5)), ((2, 3), (4,)), ((2, 3, 4), (2, 1, 5)), ((0, 3), (2, 3)), ((0,), (2,))):
        operands = (*(make(*a) for _ in names[:-1]), make(*b))
        sizes = [rf"\[{', '.join(map(str, s))}\]" for s in (a, b)]
        yield ErrorCase(f"{a} with {b}", operands, says=(rf"\b{names[-1]}\b", *sizes), **error)


def _mul_errors(device):
    make, ints = Maker(device, torch.float32), Maker(device, torch.int32)
    for variant, kwargs in (("functional", {}), ("inplace", {}), ("out", {"out": make(2, 3)})):
        common = {"operands": ("input", "other"), "variant": variant, "kwargs": kwargs}
        yield from _shape_mismatches(device, **common)
        yield from _device_mismatches(device, **common)
    if device != "cpu":
        # More dimensions than CUDA kernels support. The second operand has them in reverse order, so that none merge.
        many = Maker(device, torch.int8)(*(2,) * 26)
        yield ErrorCase("26 dimensions", (many, many.permute(*reversed(range(26)))), says=("25", "dim"), on_meta=False)

    def inplace(name, self, other, *says, on_meta=True):
        return ErrorCase(name, (self, other), says=(r"\binput\b|\bother\b", *says), variant="inplace", on_meta=on_meta)

    yield inplace("self too small", make(3), make(2, 3), r"\[3\]", r"\[2, 3\]")
    yield inplace("0-d self", make(), make(1), r"\[\]", r"\[1\]")
    yield inplace("float into int", ints(3), make(3), "[Ff]loat", "[Ii]nt")
    yield inplace("int into bool", make(3) > 0, ints(3), "[Ii]nt", "[Bb]ool")
    yield inplace("expanded self", make(1).expand(3), make(3), on_meta=False)
    x, y = make(9), make(4, 4)
    yield inplace("self overlaps other, shifted", x[1:], x[:-1], on_meta=False)
    yield inplace("self overlaps other, transposed", y, y.mT, on_meta=False)
    if device != "cpu":
        yield inplace("0-d self on the CPU", make().cpu(), make(1), on_meta=False)

    def out(name, self, other, out, *says, on_meta=True):
        return ErrorCase(name, (self, other), {"out": out}, says=(r"\bout\b", *says), variant="out", on_meta=on_meta)

    yield out("float into int", make(3), make(3), ints(3), "[Ff]loat", "[Ii]nt")
    yield out("complex into float", make(3, dtype=torch.complex64), make(3), make(3), "[Cc]omplex", "[Ff]loat")
    yield out("expanded out", make(3), make(3), make(1).expand(3), on_meta=False)
    x, y = make(9), make(4, 4)
    yield out("out overlaps self, shifted", x[:-1], make(8), x[1:], on_meta=False)
    yield out("out overlaps other, transposed", make(4, 4), y, y.mT, on_meta=False)
    if device != "cpu":
        yield out("out on the CPU", make(3), make(3), make(3).cpu(), "cpu", on_meta=False)


def _mul_scalar_errors(device):
    make, ints = Maker(device, torch.float32), Maker(device, torch.int32)

    def inplace(name, self, other, *says, on_meta=True):
        return ErrorCase(name, (self, other), says=(r"\binput\b", *says), variant="inplace", on_meta=on_meta)

    yield inplace("float into int", ints(3), 0.5, "[Ff]loat", "[Ii]nt")
    yield inplace("complex into float", make(3), 1j, "[Cc]omplex", "[Ff]loat")
    yield inplace("int into bool", make(3) > 0, 2, "[Bb]ool")
    yield inplace("expanded self", make(1).expand(3), 2.0, on_meta=False)


def _axpy_errors(device):
    make, ints, small = (Maker(device, d) for d in (torch.float32, torch.int32, torch.uint8))
    yield from _shape_mismatches(device, operands=("x", "y"))
    yield from _device_mismatches(device, operands=("x", "y"))
    for name, maker, alpha in (("float", ints, 0.5), ("complex", make, 1j), ("bool", ints, True)):
        yield ErrorCase(f"{name} alpha", (maker(3), maker(3)), {"alpha": alpha}, says=(r"\balpha\b",))
    yield ErrorCase(
        "alpha that the dtype cannot hold", (small(3), small(3)), {"alpha": 300}, says=(r"\balpha\b",), on_meta=False
    )


def _fma_errors(device):
    make = Maker(device, torch.float32)
    yield from _shape_mismatches(device, operands=("a", "b", "c"))
    yield from _device_mismatches(device, operands=("a", "b", "c"))
    yield ErrorCase("b does not fit a", (make(2, 3), make(2, 4), make(1)), says=(r"\bb\b", r"\[2, 3\]", r"\[2, 4\]"))
    bools = make(3) > 0
    yield ErrorCase("bool", (bools, bools, bools), says=("[bB]ool",), on_meta=False)


# ---------------------------------------------------------------- the cases


def _aten_axpy(x, y, *, alpha=1):
    return torch.add(y, x, alpha=alpha)


def _aten_fma(a, b, c):
    """addcmul with two extensions on CUDA: complex32, and 0-d CPU tensors for all operands, not only the second factor."""
    device = next((t.device for t in (a, b, c) if t.dim() or not t.is_cpu), a.device)
    a, c = (t if t.dim() else t.to(device) for t in (a, c))
    if device.type == "cuda" and references.common_dtype(torch.addcmul, c, a, b) == torch.complex32:
        return torch.addcmul(*(_as_complex64(t) for t in (c, a, b))).to(torch.complex32)
    return torch.addcmul(c, a, b)


def _as_complex64(t: torch.Tensor) -> torch.Tensor:
    """A complex64 tensor with the same layout, in which broadcast dimensions stay broadcast."""
    once = t
    for dim in range(t.dim()):
        if t.stride(dim) == 0 and t.size(dim) > 1:
            once = once.narrow(dim, 0, 1)
    return once.to(torch.complex64).expand(t.shape)


def _only_scalar(x, other, **kwargs):
    return None if isinstance(other, torch.Tensor) else ((x, other), kwargs)


def _only_tensor(x, other, **kwargs):
    return ((x, other), kwargs) if isinstance(other, torch.Tensor) else None


def _add_to_axpy(y, x, *, alpha=1):
    return ((x, y), {"alpha": alpha}) if isinstance(x, torch.Tensor) else None


def _addcmul_to_fma(c, a, b, *, value=1):
    return ((a, b, c), {}) if value == 1 else None


_grads = {"grad_dtypes": FLOATS + COMPLEX[1:]}
CASES = [
    OpCase(
        name="mul.Tensor", op=torch_ops.mul, overload=torch.ops.gpuopt.mul.Tensor, aten=torch.mul, reference=references.mul,
        samples=_mul_samples, few=_mul_few, errors=_mul_errors, dtypes=ALL, bound=_mul_bound,
        inplace=Variant(torch_ops.mul_, torch.ops.gpuopt.mul_.Tensor, torch.Tensor.mul_),
        out=Variant(torch_ops.mul, torch.ops.gpuopt.mul.out, torch.mul), opinfo=(OpInfoLink("mul", _only_tensor),), **_grads,
    ),
    OpCase(
        name="mul.Scalar", op=torch_ops.mul, overload=torch.ops.gpuopt.mul.Scalar, aten=torch.mul, reference=references.mul,
        samples=_scalar_samples, few=_scalar_few, errors=_mul_scalar_errors, dtypes=ALL, bound=_mul_bound,
        inplace=Variant(torch_ops.mul_, torch.ops.gpuopt.mul_.Scalar, torch.Tensor.mul_),
        out=Variant(torch_ops.mul, torch.ops.gpuopt.mul.Scalar_out, torch.mul),
        opinfo=(OpInfoLink("mul", _only_scalar, at_least=0),), **_grads,
    ),
    OpCase(
        name="axpy", op=torch_ops.axpy, overload=torch.ops.gpuopt.axpy.default, aten=_aten_axpy, reference=references.axpy,
        samples=_axpy_samples, few=_axpy_few, errors=_axpy_errors, dtypes=ALL, bound=_axpy_bound,
        opinfo=(OpInfoLink("add", _add_to_axpy),), **_grads,
    ),
    OpCase(
        name="fma", op=torch_ops.fma, overload=torch.ops.gpuopt.fma.default, aten=_aten_fma, reference=references.fma,
        samples=_fma_samples, few=_fma_few, errors=_fma_errors, dtypes=tuple(d for d in ALL if d != torch.bool),
        bound=_fma_bound, opinfo=(OpInfoLink("addcmul", _addcmul_to_fma),), **_grads,
    ),
]  # fmt: skip
