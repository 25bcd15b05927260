"""mul, axpy and fma, beyond the contract of every operator: numbers, rounding, nested vmap, many dimensions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch

import torch_ops

from ...cases import tensors
from ...support.compare import different_bits, different_metadata
from ...support.params import each_device
from ...support.runtime import deterministic_algorithms

HALVES = (torch.float16, torch.bfloat16)


# ---------------------------------------------------------------- the public functions


@each_device
@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_integers_beyond_int64_wrap(device, number):
    x = torch.arange(-3, 4, device=device)
    assert torch.equal(torch_ops.mul(x, number), torch.mul(x, number))


def test_operators_and_functions_are_the_same():
    x, y = torch.randn(3), torch.randn(3)
    ops = torch.ops.gpuopt
    assert torch.equal(ops.mul(x, y), torch_ops.mul(x, y))
    assert torch.equal(ops.mul(x, 2), torch_ops.mul(x, 2))
    assert torch.equal(ops.axpy(x, y, alpha=2), torch_ops.axpy(x, y, alpha=2))
    assert torch.equal(ops.fma(x, y, x), torch_ops.fma(x, y, x))


# ---------------------------------------------------------------- rounding


def _all_halves(dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every bit pattern of a 16-bit dtype."""
    return torch.arange(-(2**15), 2**15, device=device, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "broadcast"])
def test_every_pair_of_halves(dtype, dense):
    """All 2^32 products of two fp16 or bf16 values, including NaN and subnormals, are torch.mul's bits."""
    values = _all_halves(dtype, "cuda")
    for rows in values.split(1024):
        a, b = torch.broadcast_tensors(rows[:, None], values)
        if dense:
            a, b = a.contiguous(), b.contiguous()
        got, want = torch_ops.mul(a, b), torch.mul(a, b)
        wrong = (got.view(torch.int16) != want.view(torch.int16)) & ~(got.isnan() & want.isnan())
        assert not wrong.any(), different_bits(got, want)


@each_device
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("number", [3, 0.1, -(2.0**-20), 1e6], ids=str)
def test_every_half_times_a_number(device, dtype, number):
    values = _all_halves(dtype, device)
    assert different_bits(torch_ops.mul(values, number), torch.mul(values, number)) is None


def _rounded(exact: Fraction, dtype: torch.dtype) -> float:
    """An exact fraction rounded to the nearest number of `dtype`, ties to even. It must lie well inside the dtype's range."""
    if dtype == torch.float64:
        return float(exact)  # Python rounds fractions correctly
    near = torch.tensor(float(exact), dtype=torch.float64).to(dtype)
    up, down = (torch.nextafter(near, torch.tensor(s * math.inf, dtype=dtype)) for s in (1, -1))
    candidates = [float(c) for c in (near, up, down)]
    distance = min(abs(Fraction(c) - exact) for c in candidates)
    nearest = [c for c in candidates if abs(Fraction(c) - exact) == distance]
    return nearest[0] if len(nearest) == 1 else next(c for c in nearest if _even(c, dtype))


def _even(x: float, dtype: torch.dtype) -> bool:
    bits = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}[dtype]
    return torch.tensor(x, dtype=dtype).view(bits).item() % 2 == 0


def _cancelling(dtype: torch.dtype, count: int = 1500) -> tuple[torch.Tensor, ...]:
    """a, b and c such that c nearly cancels a b. If the product is rounded, the difference is wrong."""
    a, b = torch.randn(2, count, dtype=torch.float64).to(dtype)
    near = -(a * b)
    steps = torch.randint(-3, 4, (count,)) * torch.finfo(dtype).eps
    c = torch.where(
        torch.arange(count) % 4 == 0, torch.randn(count, dtype=torch.float64), near.double() * (1 + steps)
    ).to(dtype)
    return a, b, c


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fma_rounds_once(device, dtype):
    """fma equals exact rational arithmetic, rounded once."""
    a, b, c = _cancelling(dtype)
    want = [
        _rounded(Fraction(x) * Fraction(y) + Fraction(z), dtype)
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    want = torch.tensor(want, dtype=torch.float64).to(dtype)
    twice = a * b + c
    assert (twice != want).sum() > 100, "the samples don't tell one rounding from two"
    for operands in ((a, b, c), (a[::2], b[::2], c[::2])):
        got = torch_ops.fma(*(t.to(device) for t in operands)).cpu()
        assert torch.equal(got, want[:: len(want) // len(got)])


@each_device
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_fma_of_halves(device, dtype):
    """fma of fp16 and bf16 computes in float32 with one rounding, and rounds the result once more."""
    a, b, c = _cancelling(dtype)
    exact = [
        Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    want = torch.tensor([_rounded(e, torch.float32) for e in exact], dtype=torch.float32).to(dtype)
    assert torch.equal(torch_ops.fma(*(t.to(device) for t in (a, b, c))).cpu(), want)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_axpy_rounds_once_on_cuda(dtype):
    """On CUDA, alpha x + y is one fused operation on every path."""
    x, y = (t.cuda() for t in _cancelling(dtype)[1:])
    for alpha in (0.1, -3.0, 1 / 3):
        want = torch_ops.fma(torch.full_like(x, alpha), x, y)
        assert torch.equal(torch_ops.axpy(x, y, alpha=alpha), want)
        assert torch.equal(torch_ops.axpy(x[1::2], y[1::2], alpha=alpha), want[1::2])


@each_device
def test_axpy_with_alpha_one_is_add(device):
    for dtype in tensors.ALL:
        x, y = tensors.Maker(device, dtype)(257), tensors.Maker(device, dtype, seed=1)(257)
        assert different_bits(torch_ops.axpy(x, y), torch.add(y, x)) is None


@each_device
def test_operands_that_only_the_outer_vmap_maps_over(device):
    """In the inner vmap these operands are batched tensors of another level."""
    x, y = torch.randn(3, 4, device=device), torch.randn(3, 5, 4, device=device)

    def outer(a, b):
        both = torch_ops.mul(a, a)
        return torch.vmap(lambda c: torch_ops.axpy(torch_ops.mul(a, a), c) + torch_ops.fma(a, a, both))(b)

    want = 3 * (x * x)[:, None] + y
    torch.testing.assert_close(torch.vmap(outer)(x, y), want)


# ---------------------------------------------------------------- limits


@pytest.mark.gpu
def test_as_many_dimensions_as_cuda_supports():
    """25 dimensions that cannot be merged, because one operand has them in reverse order."""
    x = torch.randint(0, 100, (2,) * 25, device="cuda", dtype=torch.int8)
    backwards = x.permute(*reversed(range(25)))
    assert torch.equal(torch_ops.mul(x, backwards), torch.mul(x, backwards))


def _in_layouts(dtype: torch.dtype, device: str):
    def make(*shape):
        return torch.ones(shape, dtype=dtype, device=device)

    yield from (
        make(5, 8), make(8, 5).mT, make(5, 1).expand(5, 8), make(1, 8).expand(5, 8), make(8, 10).mT[::2],
        make(5, 16)[:, ::2],
    )  # fmt: skip
    yield from (make(8), make(5, 1), make())


@each_device
@pytest.mark.parametrize("mode", [False, True], ids=["", "deterministic"])
@pytest.mark.parametrize(
    "dtypes",
    [(torch.float32, torch.float64), (torch.float16, torch.float32), (torch.int32, torch.complex64), (torch.bfloat16,)],
    ids=str,
)
def test_graphs_know_the_layout(dtypes, mode, device):
    """Results have the strides of the Meta kernels, which Inductor's code asserts.

    ATen's CPU kernels and ATen's Meta kernels disagree: the former use the layout of operands that they cast, and at::addcmul on
    Meta loses the order of dimensions.
    """
    everything = [t for dtype in dtypes for t in _in_layouts(dtype, device)]

    def on_meta(t):
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

    with deterministic_algorithms(mode):
        for op, arity in ((torch_ops.mul, 2), (torch_ops.axpy, 2), (torch_ops.fma, 3)):
            for operands in itertools.product(everything, repeat=2):
                operands = (*operands, everything[len(operands[0].shape)])[:arity]
                real, meta = op(*operands), op(*map(on_meta, operands))
                found = different_metadata(real, meta, device=False)
                assert found is None, (op.__name__, [(t.dtype, t.shape, t.stride()) for t in operands], found)
