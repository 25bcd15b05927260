"""Dot products, beyond the contract of every operator: public functions, vmap, conjugated views, and out= that overlaps an operand.

test_accuracy.py and test_cuda.py test accuracy, repeatability and memory.
"""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch

import torch_ops

from ...cases import tensors
from ...cases.dot import CASES
from ...support.compare import Failures, close, different_bits, different_from_reference, raised_by
from ...support.params import each_device
from ...support.recorder import Recorder
from ...support.runtime import deterministic_algorithms

CASE = {case.name: case for case in CASES}
VECTORS = [case for case in CASES if case.name != "dot_rows"]
each_with_out = pytest.mark.parametrize("case", [case for case in CASES if case.out is not None], ids=str)
each_dtype = pytest.mark.parametrize("dtype", CASE["dot"].dtypes, ids=str)
COMPLEX = (torch.complex64, torch.complex128)


def each_of(cases, *dtypes):
    """Parametrizes a test with each case and each of these dtypes that the case supports."""
    pairs = [(case, dtype) for case in cases for dtype in dtypes if dtype in case.dtypes]
    return pytest.mark.parametrize(("case", "dtype"), pairs, ids=str)


# ---------------------------------------------------------------- the public functions


@each_device
def test_forms(device):
    """Arguments by position and by name, of the function and of the operator."""
    x, y = torch.arange(5.0, device=device), torch.arange(5.0, device=device) - 1
    for name, other in (("dot", "tensor"), ("vdot", "other"), ("dot_fast_atomic", "tensor")):
        op, overload = getattr(torch_ops, name), getattr(torch.ops.gpuopt, name).default
        for got in (op(x, y), op(input=x, **{other: y}), overload(x, y), overload(self=x, **{other: y})):
            assert got.item() == 20 and got.dim() == 0
    rows = torch.stack([x, y])
    for got in (torch_ops.dot_rows(rows, rows), torch_ops.dot_rows(input=rows, tensor=rows)):
        assert got.tolist() == [30, 15]
    for name in ("dot", "vdot"):
        out = torch.empty((), device=device)
        assert getattr(torch_ops, name)(x, y, out=out) is out and out.item() == 20


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters(case):
    _, second = (argument.name for argument in case.overload._schema.arguments)
    assert list(inspect.signature(case.op).parameters)[:2] == ["input", second]


# ---------------------------------------------------------------- values


@each_device
@each_dtype
def test_nothing_to_add_up(device, dtype):
    """The dot product of empty vectors is zero, and part of the autograd graph."""
    for case in VECTORS:
        if dtype in case.dtypes:
            empty = torch.empty(0, dtype=dtype, device=device)
            assert different_bits(case.op(empty, empty), torch.zeros((), dtype=dtype, device=device)) is None
    for rows, n in ((0, 0), (0, 5), (3, 0)):
        x, y = (torch.empty(rows, n, dtype=dtype, device=device) for _ in range(2))
        assert different_bits(torch_ops.dot_rows(x, y), torch.zeros(rows, dtype=dtype, device=device)) is None
        if dtype in CASE["dot_rows"].grad_dtypes:
            x.requires_grad_()
            result = torch_ops.dot_rows(x, y)
            (grad,) = torch.autograd.grad(result, x, torch.ones_like(result))
            assert grad.shape == x.shape


@each_device
@pytest.mark.parametrize("dtype", tensors.INTEGERS, ids=str)
def test_integers_wrap_around(device, dtype):
    """Integer results are exact modulo 2^bits, compared with sums of Python's integers."""
    info = torch.iinfo(dtype)
    for n in (1, 3, 100, 70_001):
        for v, w in ((info.max, info.max), (info.min, info.max), (info.max // 3, 5)):
            x, y = (torch.full((n,), value, dtype=dtype, device=device) for value in (v, w))
            want = (n * v * w - info.min) % 2**info.bits + info.min
            assert torch_ops.dot(x, y).item() == torch_ops.vdot(x, y).item() == want
            assert torch_ops.dot_rows(x.expand(3, n), y.expand(3, n)).tolist() == [want] * 3


@each_device
@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_conjugates(device, dtype):
    """Every combination of conjugated views. Products are exact, so a wrong sign is noticed."""
    x, y = (torch.arange(1, 8, device=device) + shift - 2j * torch.arange(7, device=device) for shift in (0, 3))
    x, y = x.to(dtype), y.to(dtype)
    for left, right in itertools.product((x, x.conj()), (y, y.conj())):
        plain, other = left.resolve_conj(), right.resolve_conj()
        want = (plain * other).sum()
        assert different_bits(torch_ops.dot(left, right), want) is None
        assert different_bits(torch_ops.vdot(left, right), (plain.conj().resolve_conj() * other).sum()) is None
        rows = torch_ops.dot_rows(left.expand(2, 7), right.expand(2, 7))
        assert different_bits(rows, want.expand(2)) is None
        assert not rows.is_conj() and not torch_ops.dot(left, right).is_conj()


def _addresses(given: tuple) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in given if isinstance(t, torch.Tensor)}


@each_device
def test_conjugated_views_are_not_copied(device):
    """Kernels get conjugated views without a copy, in the memory of their base."""
    x, y = (torch.randn(2, 5, dtype=torch.complex64, device=device) for _ in range(2))
    for function, given in (
        (torch_ops.dot, (x[0].conj(), y[0].conj())),
        (torch_ops.vdot, (x[0].conj(), y[0])),
        (torch_ops.dot_rows, (x.conj(), y.conj())),
        (lambda *args: torch_ops.dot(*args, out=torch.empty((), dtype=x.dtype, device=device)), (x[0].conj(), y[0])),
        (torch.vmap(torch_ops.vdot), (x, y.conj())),
    ):
        with Recorder() as calls:
            function(*given)
        ((_, args),) = calls.of_gpuopt
        assert _addresses((x, y)) <= _addresses(args) and any(a.is_conj() for a in args if isinstance(a, torch.Tensor))
        assert not set(calls.names) & {"aten::clone", "aten::copy_", "aten::_to_copy", "aten::conj_physical"}


# ---------------------------------------------------------------- out=


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@each_with_out
@each_device
@pytest.mark.parametrize("n", [1, 2, 5, 1000, 2**17 + 3])
def test_out_may_be_part_of_an_operand(case, device, n):
    """out may be any element of an operand. The result is right, and no other element is written."""
    for operand, position in itertools.product(range(2), (0, n // 2, n - 1)):
        given = [tensors.Maker(device, torch.int64, seed=seed, small=True)(n).float() for seed in (1, 2)]
        want = case.op(*(t.clone() for t in given))  # integer values: exact in any order
        for index in (position, slice(position, position + 1)):
            written = [t.clone() for t in given]
            out = written[operand][index]
            case.op(*written, out=out)
            assert out.shape == () and out.item() == want.item()
            expected = given[operand].clone()
            expected[position] = want
            assert torch.equal(written[operand], expected) and torch.equal(written[1 - operand], given[1 - operand])
    x = given[0].clone()
    case.op(x, x, out=x[0])
    assert x[0].item() == given[0].square().sum().item()


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@each_with_out
@each_device
def test_out_may_be_an_operand(case, device):
    x, y = (torch.arange(5.0, device=device) - shift for shift in (1, 2))
    want = case.op(x, y)
    for out in (x, y):
        before = out.clone()
        assert case.op(x, y, out=out) is out and out.shape == () and torch.equal(out, want)
        out.resize_(5).copy_(before)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@each_with_out
@each_device
def test_out_of_every_kind(case, device):
    """out may be a conjugated or negated view, a part of a complex number, or a tensor that overlaps itself, which is resized."""
    x, y = (torch.arange(5, device=device) - 1j * shift for shift in (1, 2))
    want = case.op(x, y)
    number = torch.zeros((), dtype=x.dtype, device=device)
    case.op(x, y, out=number.conj())
    assert number.item() == want.item().conjugate()
    pair = torch.zeros(1, 2, device=device)
    case.op(x.real, y.real, out=torch.view_as_complex(pair)[0].imag)
    assert pair.tolist() == [[0, 30]]
    case.op(x.real, y.real, out=torch._neg_view(pair[0, 0]))
    assert pair.tolist() == [[-30, 30]]
    many = torch.zeros(1, device=device).expand(3)
    case.op(x.real, y.real, out=many)
    assert many.shape == () and many.item() == 30


# ---------------------------------------------------------------- gradients


@each_device
@pytest.mark.parametrize("dtype", CASE["dot"].grad_dtypes, ids=str)
@pytest.mark.parametrize(
    "layouts", [("contiguous", "contiguous"), ("transposed", "step2"), ("conj", "misaligned1")], ids=str
)
def test_gradients_are_atens_bit_for_bit(device, dtype, layouts):
    """A gradient is a product of two numbers, and rounded once for real ones."""
    make = tensors.Maker(device, dtype)
    rows = [tensors.LAYOUTS[layout](make(7, 33)) for layout in layouts]
    rows = [make(7, 33) if t is None else t for t in rows]
    for case in CASES:
        if dtype not in case.grad_dtypes:
            continue
        given = rows if case.name == "dot_rows" else [t[3] for t in rows]
        weights = make(7) if case.name == "dot_rows" else make()
        grads = []
        for op in (case.op, case.aten):
            leaves = [t.detach().requires_grad_() for t in given]
            grads.append(torch.autograd.grad(op(*leaves), leaves, weights))
        for ours, theirs in zip(*grads, strict=True):
            assert (close(ours, theirs, ulps=2) if dtype.is_complex else different_bits(ours, theirs)) is None


@each_device
def test_gradient_of_a_vector_with_itself(device):
    x = torch.randn(100, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(torch_ops.dot(x, x), x)
    assert different_bits(grad, 2 * x.detach()) is None
    z = torch.randn(100, dtype=torch.complex64, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(torch_ops.vdot(z, z).real, z)
    assert close(grad, 2 * z.detach()) is None


# ---------------------------------------------------------------- vmap


def _examples(make: tensors.Maker, n: int, dim: int | None) -> torch.Tensor:
    """A vector of n values, or four such vectors, stacked in `dim`."""
    return make(n) if dim is None else make(4, n) if dim == 0 else make(n, 4)


@each_of(VECTORS, torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.complex64)
@each_device
def test_vmap_is_the_product_of_each_row(case, device, dtype):
    """vmap with every in_dims, of short, long and conjugated vectors and of none, is within the bound, and exact for integers."""
    failures = Failures()
    make = tensors.Maker(device, dtype)
    for n, dims in itertools.product((0, 1, 7, 33, 1000), itertools.product((None, 0, 1), repeat=2)):
        if dims == (None, None):
            continue
        for conjugate in (False, True) if dtype.is_complex else (False,):
            x, y = (_examples(make, n, dim) for dim in dims)
            x = x.conj() if conjugate else x
            with failures.sample(f"{n}, {dims}, conjugate={conjugate}"):
                got = torch.vmap(case.op, in_dims=dims)(x, y)
                for k in range(4):
                    pair = [t if dim is None else t.select(dim, k) for t, dim in zip((x, y), dims, strict=True)]
                    exact = case.reference(*pair)
                    problem = different_from_reference(got[k], exact, CASE["dot"].bound(device, dtype, exact, *pair))
                    failures.add(f"{n}, {dims}, conjugate={conjugate}, row {k}", problem)
    failures.check(at_least=40)


@each_device
@pytest.mark.parametrize("dtype", [torch.float64, torch.int16, torch.complex128], ids=str)
@pytest.mark.parametrize("name", ["dot", "vdot"])
def test_nested_vmap(name, device, dtype):
    """Two levels of vmap compute all dot products of the rows of two matrices. Three levels map different operands."""
    op, make = getattr(torch_ops, name), tensors.Maker(device, torch.int16, small=True)
    x, y = (make(n, 9).to(dtype) * (1 - 2j if dtype.is_complex else 1) for n in (3, 5))
    left = x.conj() if name == "vdot" else x

    def product(a, b):
        return (a[..., None, :] * b[..., None, :, :]).sum(-1, dtype=dtype)

    got = torch.vmap(torch.vmap(op, in_dims=(None, 0)), in_dims=(0, None))(x, y)
    assert different_bits(got, product(left, y)) is None
    got = torch.vmap(torch.vmap(op, in_dims=(0, None)), in_dims=(None, 0), out_dims=1)(x, y)
    assert different_bits(got, product(left, y)) is None
    deep = torch.stack([y, y + 1])
    got = torch.vmap(torch.vmap(torch.vmap(op, in_dims=(None, 0)), in_dims=(0, None)), in_dims=(None, 0))(x, deep)
    assert different_bits(got, torch.stack([product(left, y), product(left, y + 1)])) is None


@each_device
def test_vmap_is_one_call_without_copies(device):
    """Under vmap, dot and dot_fast_atomic call dot_rows once. A vector that all examples share is not copied."""
    x, y = torch.randn(6, 5, device=device), torch.randn(5, device=device)
    for case in VECTORS:
        for dims, given in (((0, None), (x, y)), ((1, 0), (x.mT, x)), ((None, 0), (y, x))):
            with Recorder() as calls:
                torch.vmap(case.op, in_dims=dims)(*given)
            ((op, args),) = calls.of_gpuopt
            assert op is torch.ops.gpuopt.dot_rows.default
            assert _addresses(args) == _addresses(given)
            assert not set(calls.names) & {"aten::clone", "aten::copy_", "aten::repeat"}


@each_device
def test_vmap_of_rows(device):
    """vmap of dot_rows is one call with more rows, with every in_dims."""
    make = tensors.Maker(device, torch.int32, small=True)
    x, y = make(4, 3, 5), make(4, 3, 5)
    for dims in itertools.product((0, 1, 2), repeat=2):
        given = [t.movedim(0, dim) for t, dim in zip((x, y), dims, strict=True)]
        with Recorder() as calls:
            got = torch.vmap(torch_ops.dot_rows, in_dims=dims)(*given)
        assert len(calls.of_gpuopt) == 1
        assert different_bits(got, (x * y).sum(-1, dtype=torch.int32)) is None
    got = torch.vmap(torch_ops.dot_rows, in_dims=(0, None), out_dims=1)(x, y[0])
    assert different_bits(got, (x * y[0]).sum(-1, dtype=torch.int32).T) is None


# ---------------------------------------------------------------- autocast, errors, determinism


@each_device
@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast_promotes_on_cuda_alone(case, device):
    """On CUDA, autocast promotes to the wider of the two dtypes. On the CPU it changes nothing, as with ATen: two different dtypes
    are refused, and fp16 and bf16 stay."""
    half = torch.arange(12, device=device).view(3, 4).bfloat16()
    full = torch.linspace(0, 1, 12, device=device).view(3, 4)
    if case.name != "dot_rows":
        half, full = half[1], full[1]
    with torch.autocast(device, dtype=torch.bfloat16):
        assert case.op(half, half).dtype == torch.bfloat16
        assert case.op(full, full).dtype == torch.float32
        if device == "cpu":
            assert isinstance(raised_by(case.op, half, full), RuntimeError)
            return
        for pair in ((half, full), (full, half)):
            got = case.op(*pair)
            assert close(got, case.op(*(t.float() for t in pair))) is None and got.dtype == torch.float32


@each_device
def test_rows_refuse_what_is_no_matrix(device):
    for shapes in (((), ()), ((), (2, 3)), ((2, 3), ()), ((3,), (3,)), ((1, 2, 3), (1, 2, 3))):
        error = raised_by(torch_ops.dot_rows, *(torch.ones(shape, device=device) for shape in shapes))
        assert isinstance(error, RuntimeError) and "gpuopt::dot_rows" in str(error)


def test_atomic_product_is_deterministic_on_the_cpu():
    x = torch.randn(1000)
    with deterministic_algorithms():
        assert different_bits(torch_ops.dot_fast_atomic(x, x), torch.dot(x, x)) is None
