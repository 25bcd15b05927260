"""Reductions, beyond the contract of every operator: public functions, values, ties, dtypes and dims.

test_cuda.py tests accuracy, repeatability and memory.
"""

from __future__ import annotations

import math
import struct

import pytest
import torch

import torch_ops

from ...cases import tensors
from ...cases.reduce import CASES
from ...support.compare import Failures, close, different_bits, different_from_reference, raised_by
from ...support.params import each_device

each_op = pytest.mark.parametrize("case", CASES, ids=str)
EXTREMA = [c for c in CASES if c.name in ("reduce_max", "reduce_min")]
SUMS = [c for c in CASES if c.name in ("reduce_sum", "reduce_mean")]
FLOATS = pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)


# ---------------------------------------------------------------- the public functions


@each_op
@each_device
def test_forms_of_dim(case, device):
    """dim may be a number, tuple, list, torch.Size or missing, count from the front or the back, and be passed by position or by
    name.

    Function and operator agree.
    """
    x = torch.randperm(24, device=device).view(2, 3, 4) / 8  # sums are exact in any order
    overload = case.overload
    for dim in (1, -2, (1,), [1], [-2], torch.Size([1])):
        want = case.aten(x, 1)
        for got in (
            case.op(x, dim),
            case.op(x, dim=dim),
            case.op(x, axis=dim),
            overload(x, dim),
            case.op(x, dim, False),
        ):
            assert close(got, want) is None, dim
        want = case.aten(x, 1, True)
        out = torch.empty_like(want)
        assert case.op(x, dim, True, out=out) is out
        assert case.op(x, axis=dim, keepdim=True, out=torch.empty_like(want)).equal(out)
        for got in (out, case.op(x, dim, keepdim=True), overload(x, dim, True)):
            assert close(got, want) is None, dim
    for dim in ((0, 2), [2, 0], (-1, 0), [0, -1]):
        assert close(case.op(x, dim), case.aten(x, (0, 2))) is None
    for dim in (None, (), [], (0, 1, 2), [-1, -2, -3]):
        assert close(case.op(x, dim), case.aten(x)) is None
        assert close(case.op(x, dim, True), case.aten(x, None, True)) is None
    assert different_bits(case.op(x), overload(x)) is None
    with pytest.raises(TypeError, match="axis is another name of dim: expected one of them, got dim=1 and axis=0"):
        case.op(x, 1, axis=0)


@each_op
@each_device
def test_out_that_overlaps(case, device):
    """An out that overlaps itself, or overlaps a part of a dense input, is refused. ATen would overwrite values that it has yet to
    read, or write one element twice."""
    x = tensors.Maker(device, torch.float32)(4, 4)
    before = x.clone()
    for out in (x[0], x[3], torch.zeros(1, device=device).expand(4)):
        error = raised_by(case.op, x, 1, out=out)
        assert isinstance(error, RuntimeError) and case.schema_name in str(error) and "out" in str(error)
    assert torch.equal(x, before)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@each_op
@each_device
def test_out_in_memory_that_is_read(case, device):
    """An out in the input's memory that is not refused is written after everything has been read. ATen on CUDA resizes such an out
    first, which may be self."""

    def check(x, dim, out, shape):
        want = case.aten(x.clone(), dim)
        assert case.op(x, dim, out=out) is out
        assert out.shape == shape and close(out, want) is None

    x = tensors.Maker(device, torch.float32)(48, 528)
    y = x.clone()
    check(y, 0, y, (528,))
    y = x.clone()
    check(y, 1, y.view(-1)[:0], (48,))
    y = x.clone()
    check(y, 1, y.view_as(y), (48,))
    y = x.clone()
    check(y[:, :513], 0, y[1, :513], (513,))
    y = x.clone()
    check(y[:, ::2], 1, y[:, 0], (48,))
    y = x.clone()
    check(y[1:], 0, y[0], (528,))  # disjoint
    assert torch.equal(y[1:], x[1:])


# ---------------------------------------------------------------- NaN, ties and zeros


def _nans(dtype: torch.dtype, device: str) -> torch.Tensor:
    """NaNs of both signs, quiet and signalling. As integers, their bits compare like ordinary numbers."""
    bits = {
        torch.float16: [0x7E00, 0xFE00, 0x7C01, 0xFFFF], torch.bfloat16: [0x7FC0, 0xFFC0, 0x7F81, 0xFFFF],
        torch.float32: [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF],
        torch.float64: [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, 2**64 - 1],
    }[dtype]  # fmt: skip
    code = {2: "H", 4: "I", 8: "Q"}[dtype.itemsize]
    raw = bytearray(struct.pack(f"<{len(bits)}{code}", *bits))
    return torch.frombuffer(raw, dtype=dtype).to(device)


@each_op
@each_device
@FLOATS
def test_a_nan_anywhere_is_found(case, device, dtype):
    """A NaN at every position of dense and strided rows and columns. Row i has its NaN at i, and the last row has none."""
    failures = Failures()
    nans = _nans(dtype, device)
    for n in (1, 2, 3, 5, 8, 17, 33, 64, 100, 257, *((1000, 1025, 4099) if device == "cuda" else ())):
        x = tensors.Maker(device, dtype)(n + 1, n)
        x[:n][torch.eye(n, dtype=torch.bool, device=device)] = nans.repeat(n // 4 + 1)[:n]
        wanted = torch.arange(n + 1, device=device) < n
        for layout in ("contiguous", "transposed", "misaligned1", "rows", "step2"):
            rows = tensors.in_layout(layout, x)
            for what, found in (("rows", case.op(rows, 1)), ("columns", case.op(rows.mT, 0))):
                with failures.sample(f"{what} of {n}, {layout}"):
                    failures.add(f"{what} of {n}, {layout}", different_bits(found.isnan(), wanted))
        with failures.sample(f"columns of {n} with one NaN each"):
            assert case.op(x, 0).isnan().all()
    failures.check(at_least=100)


@each_op
@each_device
@FLOATS
def test_a_nan_in_a_long_vector_is_found(case, device, dtype):
    """One NaN in a vector that is reduced to one value, by one block and by several."""
    for n in (33, 1000, 4099) if device == "cpu" else (33, 1000, 4099, 2**16 + 1, 2**20 + 3, 2**24 + 5):
        x = tensors.Maker(device, dtype)(n)
        assert not case.op(x).isnan()
        picked = torch.randint(0, n, (24,)).tolist()
        for position in {0, 1, 7, 31, 32, n // 2 - 1, n // 2, n - 9, n - 2, n - 1, *picked}:
            kept = x[position].clone()
            x[position] = _nans(dtype, device)[position % 4]
            assert case.op(x).isnan(), f"a NaN at {position} of {n} was lost"
            x[position] = kept


@pytest.mark.parametrize("case", EXTREMA, ids=str)
@each_device
@FLOATS
def test_zeros_of_both_signs(case, device, dtype):
    """-0.0 and 0.0 tie, and the result may be either. If all zeros have one sign, so has the result. A zero never replaces another
    extremum."""
    sign = 1 if case.name == "reduce_min" else -1
    for n in (2, 3, 33, 1025, 5000):
        x = torch.zeros(4, n, dtype=dtype, device=device)
        x[:, 1::2] = -0.0
        tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        x[1, n // 2], x[2, n - 1] = sign * tiny, -sign * tiny
        for layout in ("contiguous", "transposed", "misaligned1"):
            rows = tensors.in_layout(layout, x)
            for got in (case.op(rows, 1), case.op(rows.mT, 0)):
                # The subnormal is the extremum of row 2 only. In row 1 it is on the other side of the zeros.
                assert got.tolist() == [0, 0, -sign * tiny, 0]
        for zero in (0.0, -0.0):
            got = case.op(torch.full((3, n), zero, dtype=dtype, device=device), 1)
            assert (got == 0).all() and (got.signbit() == (math.copysign(1, zero) < 0)).all()


@pytest.mark.parametrize("case", EXTREMA, ids=str)
@each_device
@FLOATS
def test_gradients_of_ties(case, device, dtype):
    """Tied values share the gradient equally, as with ATen: zeros of both signs and infinities. A NaN equals nothing, so it never
    ties."""
    generator = torch.Generator().manual_seed(1)
    few = torch.randint(0, 3, (5, 6, 7), generator=generator).to(dtype).to(device)
    zeros = torch.where(few == 1, -0.0, 0.0).to(dtype)
    infinite = torch.where(few == 1, math.inf, torch.where(few == 2, -math.inf, few.float())).to(dtype)
    with_nan = few.clone()
    with_nan[1, 2, 3] = math.nan
    equal = torch.full_like(few, 2)
    inputs = {"few values": few, "equal": equal, "zeros": zeros, "infinite": infinite, "NaN": with_nan}
    failures = Failures()
    for name, x in inputs.items():
        for kwargs in ({}, {"dim": 1}, {"dim": (0, 2)}, {"dim": -1, "keepdim": True}, {"keepdim": True}):
            with failures.sample(f"{name}, {kwargs}"):
                grads = []
                for op in (case.op, case.aten):
                    leaf = x.clone().requires_grad_()
                    result = op(leaf, **kwargs)
                    weights = torch.linspace(1, 2, result.numel(), device=device).to(dtype).view(result.shape)
                    grads.append(torch.autograd.grad(result, leaf, weights)[0])
                failures.add(f"{name}, {kwargs}", close(*grads))
    failures.check(at_least=25)


@pytest.mark.parametrize("case", SUMS, ids=str)
@each_device
def test_gradient_of_reals_summed_as_complex(case, device):
    """The gradient of real values is the real part of the complex gradient. ATen's backward refuses a complex gradient."""
    x = torch.randn(3, 4, device=device, requires_grad=True)
    weights = torch.tensor([1 + 1j, 2 - 1j, 3j], device=device)
    (grad,) = torch.autograd.grad(case.op(x, 1, dtype=torch.complex64), x, weights)
    want = weights.real[:, None].expand(3, 4) / (4 if case.name == "reduce_mean" else 1)
    assert different_bits(grad, want.contiguous()) is None


@each_op
@each_device
def test_gradients_of_expanded_and_overlapping_inputs(case, device):
    make = tensors.Maker(device, torch.float32)
    base = make(40)
    for name, view in (
        ("expanded", lambda t: t[:5, None].expand(5, 7)),
        ("expanded first", lambda t: t[:5].expand(3, 5)),
        ("windows", lambda t: t.as_strided((9, 4), (3, 1))),
    ):
        for dim in (0, 1, None):
            grads = []
            for op in (case.op, case.aten):
                leaf = base.clone().requires_grad_()
                grads.append(torch.autograd.grad(op(view(leaf), dim).square().sum(), leaf)[0])
            assert close(*grads, ulps=8) is None, f"{name}, dim={dim}"


# ---------------------------------------------------------------- dtypes


@each_device
def test_values_are_converted_before_they_are_added(device):
    """dtype= converts each value before the sum: as an integer 2.75 is 2, and in bfloat16 three in four of these values become 1.

    The sum is 1000 and the mean 1. Rounding only at the end would give 1004 and 1 + 2^-7.
    """
    step = 2.0**-10
    x = torch.tensor([1 + 3 * step, 1 + 3 * step, 1 + 3 * step, 1 + 8 * step], device=device).repeat(3, 250)
    for layout in ("contiguous", "transposed", "misaligned1"):
        for rows, dim in ((tensors.in_layout(layout, x), 1), (tensors.in_layout(layout, x.mT.contiguous()), 0)):
            assert torch_ops.reduce_sum(rows, dim, dtype=torch.bfloat16).tolist() == [1000.0] * 3
            if device != "cpu":  # ATen's CPU kernel computes the mean in float32 and then converts it
                assert torch_ops.reduce_mean(rows, dim, dtype=torch.bfloat16).tolist() == [1.0] * 3
            assert torch_ops.reduce_sum(rows + 1.75, dim, dtype=torch.int64).tolist() == [2000] * 3
            assert torch_ops.reduce_sum(rows, dim, dtype=torch.bool).tolist() == [True] * 3
            assert (
                torch_ops.reduce_sum(rows * 200, dim, dtype=torch.uint8).tolist() == [(750 * 200 + 250 * 201) % 256] * 3
            )


@each_device
@pytest.mark.parametrize("out", [False, True], ids=["dtype", "out"])
def test_accumulates_in_the_wider_type(device, out):
    """Sums accumulate in dtype=, or in the dtype of out. In float32 the 1 would be lost, and in narrower dtypes the 0.25 and
    carries."""

    def total(values, dtype, to):
        x = torch.tensor(values, dtype=dtype, device=device)
        if not out:
            return torch_ops.reduce_sum(x, dtype=to).item()
        return torch_ops.reduce_sum(x, out=torch.empty((), dtype=to, device=device)).item()

    assert total([2.0**30, 1.0, -(2.0**30)], torch.float32, torch.float64) == 1
    assert total([2.0**30, 1.0, -(2.0**30)], torch.float32, torch.complex128) == 1
    assert total([2**40, 1, -(2**40)], torch.int64, torch.float64) == 1
    assert total([60_000.0] * 3, torch.float16, torch.float32) == 180_000
    assert total([256.0, 0.25], torch.bfloat16, torch.float32) == 256.25
    assert total([100, 100, 100], torch.int8, torch.int64) == 300
    assert total([100, 100, 100], torch.int8, torch.int8) == 44
    assert total([3, 1000, 70_000], torch.int32, torch.int16) == (71_003 + 2**15) % 2**16 - 2**15
    assert total([True] * 300, torch.bool, torch.int64) == 300
    assert total([True] * 300, torch.bool, torch.uint8) == 44
    assert total([0.25, -0.25], torch.float32, torch.bool) is True


@pytest.mark.gpu
def test_half_types_accumulate_in_float32():
    """Sums of 4096 ones and more are right. In fp16 or bf16, the sum would stop growing."""
    for dtype, most in ((torch.float16, 65_000), (torch.bfloat16, 2**20)):
        for n in (4097, most):
            x = torch.ones(3, n, dtype=dtype, device="cuda")
            want = torch.tensor(float(n)).to(dtype).item()
            assert torch_ops.reduce_sum(x, 1).tolist() == [want] * 3
            assert torch_ops.reduce_sum(x.mT, 0).tolist() == [want] * 3
            assert torch_ops.reduce_mean(x * 3, 1).tolist() == [3.0] * 3
        big = torch.full((3, 5000), 60_000.0, dtype=dtype, device="cuda")
        assert torch_ops.reduce_mean(big, 1).tolist() == big[:, 0].tolist()


@each_device
def test_integer_sums_wrap(device):
    """Integer sums wrap around modulo 2^64, and with dtype= modulo the range of that dtype."""
    for n in (3, 1000, 70_001):
        x = torch.full((2, n), 2**62, device=device)
        assert torch_ops.reduce_sum(x, 1).tolist() == [(2**62 * n + 2**63) % 2**64 - 2**63] * 2
        x = torch.full((n, 2), -(2**31), dtype=torch.int32, device=device)
        assert torch_ops.reduce_sum(x, 0).tolist() == [-(2**31) * n] * 2
        assert torch_ops.reduce_sum(x, 0, dtype=torch.int32).tolist() == [(-(2**31) * n + 2**31) % 2**32 - 2**31] * 2


@each_device
def test_bools_of_any_byte(device):
    """A true value counts once, even if its byte is not 1."""
    x = torch.tensor([0, 1, 2, 128, 255] * 41, dtype=torch.uint8, device=device).view(torch.bool)
    assert torch_ops.reduce_sum(x).item() == 164
    assert torch_ops.reduce_sum(x, dtype=torch.float32).item() == 164.0
    assert torch_ops.reduce_max(x).item() is True and torch_ops.reduce_min(x).item() is False
    assert torch_ops.reduce_min(x[1:5]).item() is True
    if device != "cpu":
        assert torch_ops.reduce_max(x).view(torch.uint8).item() == 1
        assert torch_ops.reduce_min(x[1:5]).view(torch.uint8).item() == 1


# ---------------------------------------------------------------- many dimensions


def _order(rank: int) -> list[int]:
    """A permutation after which no two neighbours are adjacent in the same order."""
    return [*range(1, rank, 2), *reversed(range(0, rank, 2))]


@each_op
@pytest.mark.parametrize(
    ("device", "rank"),
    [("cpu", 8), ("cpu", 13), *(pytest.param("cuda", n, marks=pytest.mark.gpu) for n in (8, 16, 20, 24, 25))],
)
def test_many_dimensions_that_do_not_merge(case, device, rank):
    """Many dimensions, in an order of memory in which none merge. Every other one is reduced, nearly all, or nearly none."""
    x = tensors.Maker(device, torch.float32)(*(2,) * rank)
    most = tuple(d for d in range(rank) if d % 7 != 3)
    for dims in (tuple(range(0, rank, 2)), tuple(range(1, rank, 2)), most, (3, 6)):
        for laid_out in (x, x.permute(_order(rank))):
            got, exact = case.op(laid_out, dims), case.reference(laid_out, dims)
            bound = case.bound(device, got.dtype, exact, laid_out, dims)
            assert different_from_reference(got, exact, bound) is None, dims


@each_op
@each_device
def test_more_dimensions_than_aten_takes(case, device):
    x = torch.ones((1,) * 65, device=device)
    theirs, ours = (raised_by(op, x, 0) for op in (case.aten, case.op))
    assert type(ours) is type(theirs) is RuntimeError
    assert case.schema_name in str(ours) and "64" in str(ours) and "65" in str(ours)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@each_device
def test_float8_with_dtype(device, dtype):
    """float8 values are converted to dtype= before they are added, as by ATen. Without dtype=, sums of float8 are refused."""
    x = torch.arange(24.0, device=device).view(4, 6).to(dtype)
    for case_op in (torch_ops.reduce_sum, torch_ops.reduce_mean):
        aten = torch.sum if case_op is torch_ops.reduce_sum else torch.mean
        assert close(case_op(x, 1, dtype=torch.float32), aten(x.float(), 1)) is None
        assert case_op(x, dtype=torch.float64).dtype == torch.float64
