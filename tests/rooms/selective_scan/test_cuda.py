"""Selective scans on a GPU: accuracy of long scans, the same bits however calls overlap, layouts, updates, and 2^31 values."""

from __future__ import annotations

import functools

import pytest
import torch

import torch_ops

from ...cases.selective_scan import scanned
from ...support.large import check
from ...support.overlap import Calls
from ...support.runtime import captured, deterministic_algorithms

pytestmark = pytest.mark.gpu

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
# The error of a whole tensor: sums over 2048 positions in float32, or one rounding to a half type.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 6e-4, torch.bfloat16: 5e-3}


def _operands(batch, dim, length, n, dtype=torch.float32, last=False) -> list[torch.Tensor]:
    """A layer of Mamba: small decays and step sizes, weights in float32. With `last` the channels are innermost."""
    generator = torch.Generator("cuda").manual_seed(7)

    def make(*shape, dtype=dtype):
        return torch.randn(shape, generator=generator, device="cuda").to(dtype)

    def sequence():
        return make(batch, length, dim).mT if last else make(batch, dim, length)

    weight = functools.partial(make, dtype=dtype if dtype == torch.float64 else torch.float32)
    A = -weight(dim, n).abs() - 0.05
    matrices = [make(batch, n, length) / n**0.5 for _ in range(2)]
    return [sequence(), sequence(), A, *matrices, weight(dim), sequence(), weight(dim) / 2 - 3]


def _exact(operands, dout, dlast, channels=64) -> list[torch.Tensor]:
    """The results and all gradients in float64, some channels at a time."""
    leaves = [x.double().detach().requires_grad_() for x in operands]
    outs, lasts = [], []
    for k in range(0, dout.shape[1], channels):
        at = slice(k, k + channels)
        u, delta, z = (leaves[i][:, at] for i in (0, 1, 6))
        A, D, bias = (leaves[i][at] for i in (2, 5, 7))
        both = scanned(u, delta, A, leaves[3], leaves[4], D, z, bias, True)
        out, last = both.split([u.shape[2], A.shape[1]], 2)
        ((out * dout[:, at].double()).sum() + (last * dlast[:, at].double()).sum()).backward()
        outs.append(out.detach())
        lasts.append(last.detach())
    return [torch.cat(outs, 1), torch.cat(lasts, 1), *(x.grad for x in leaves)]


def _run(operands, dout, dlast) -> list[torch.Tensor]:
    """The results and all gradients."""
    leaves = [x.detach().requires_grad_() for x in operands]
    results = torch_ops.selective_scan(*leaves, delta_softplus=True, return_last_state=True)
    return [*(x.detach() for x in results), *torch.autograd.grad(results, leaves, (dout, dlast))]


def _compare(found, wanted) -> None:
    for name, got, want in zip(("out", "last_state", *NAMES), found, wanted, strict=True):
        limit = TOLERANCE[got.dtype]
        error = got.double() - want.double()
        assert got.isfinite().all()
        relative = float(error.norm() / want.double().norm())
        assert relative <= limit, f"{name}: relative error {relative}"
        largest = float(error.abs().max() / want.abs().max())
        assert largest <= 4 * limit, f"{name}: largest error {largest} of the largest value"


def _gradients_of(operands) -> tuple[torch.Tensor, torch.Tensor]:
    u, A = operands[0], operands[2]
    torch.manual_seed(3)
    dlast = torch.randn(u.shape[0], *A.shape, device="cuda", dtype=torch.float64 if u.dtype == torch.float64 else None)
    return torch.randn_like(u), dlast


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_accuracy(dtype, last):
    operands = _operands(2, 512, 2048, 16, dtype, last)
    dout, dlast = _gradients_of(operands)
    _compare(_run(operands, dout, dlast), _exact(operands, dout, dlast))


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 16, 33, 64, 128, 256])
def test_states(n, dtype, last):
    operands = _operands(2, 72, 301, n, dtype, last)
    dout, dlast = _gradients_of(operands)
    _compare(_run(operands, dout, dlast), _exact(operands, dout, dlast, channels=24))


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_views(dtype, last):
    """u and z are halves of a projection, and every operand starts one element after an aligned address."""
    operands = _operands(2, 128, 515, 16, dtype, last)
    want = _run(operands, *_gradients_of(operands))
    both = torch.cat([operands[0], operands[6]], 2 if last else 1)
    halves = both.chunk(2, 2 if last else 1)
    moved = []
    for x in (halves[0], *operands[1:6], halves[1], operands[7]):
        storage = torch.empty(x.untyped_storage().nbytes() // x.element_size() + 1, dtype=x.dtype, device="cuda")
        moved.append(storage[1:].as_strided(x.shape, x.stride(), 1 + x.storage_offset()).copy_(x))
    _compare(_run(moved, *_gradients_of(operands)), want)


# ---------------------------------------------------------------- calls for ../test_overlap.py


@functools.cache
def overlapping() -> Calls:
    """Forward and backward of several shapes, as functions without arguments. A result is all values in a row."""
    calls = {}
    for shape, dtype, last in (
        ((2, 512, 2048, 16), torch.bfloat16, False),
        ((2, 512, 2048, 16), torch.bfloat16, True),
        ((1, 4096, 300, 16), torch.float32, False),
        ((1, 40, 5000, 16), torch.float16, True),
        ((4, 200, 333, 64), torch.bfloat16, False),
        ((2, 64, 500, 200), torch.float32, True),
        ((2, 64, 100, 8), torch.float64, False),
    ):
        operands = _operands(*shape, dtype, last)
        gradients = _gradients_of(operands)

        def call(operands=operands, gradients=gradients):
            return torch.cat([x.flatten().double() for x in _run(operands, *gradients)])

        calls[f"{shape} {dtype}, channels last: {last}"] = call
    return Calls(calls)


def test_gradients_are_deterministic_by_default():
    operands = _operands(2, 256, 512, 16, torch.bfloat16)
    want = _run(operands, *_gradients_of(operands))
    with deterministic_algorithms():
        found = _run(operands, *_gradients_of(operands))
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))


# ---------------------------------------------------------------- updates


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [1, 8, 16, 64, 128, 256])
def test_updates_are_a_scan(n, dtype):
    """A graph of one update, replayed for every position."""
    u, delta, A, B, C, D, z, bias = _operands(3, 192, 20, n, dtype)
    want, last = torch_ops.selective_scan(u, delta, A, B, C, D, z, bias, delta_softplus=True, return_last_state=True)
    state = torch.zeros(3, 192, n, device="cuda")
    static = [x[..., 0].clone() for x in (u, delta, B, C, z)]

    def step():
        x, dt, b, c, gate = static
        return torch_ops.selective_scan_update(state, x, dt, A, b, c, D, gate, bias, dt_softplus=True)

    graph, out = captured(step)
    state.zero_()
    for t in range(u.shape[2]):
        for to, x in zip(static, (u, delta, B, C, z), strict=True):
            to.copy_(x[..., t])
        graph.replay()
        torch.testing.assert_close(out, want[..., t], rtol=1e-4 if dtype == torch.float32 else 1e-2, atol=1e-4)
    torch.testing.assert_close(state, last, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- more than 2^31 values


@pytest.mark.large
@pytest.mark.gib(48)
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize("batch, dim", [(1, 2**23 + 16), (2**15 + 1, 256)])
def test_large(batch, dim, last):
    """Without decay the output counts positions up to 256, and gradients count them down."""
    shape = (batch, 256, dim) if last else (batch, dim, 256)
    u, delta = (torch.ones(shape, dtype=torch.float16, device="cuda") for _ in range(2))
    u, delta = (x.mT if last else x for x in (u, delta))
    A, matrix = torch.zeros(dim, 1, device="cuda"), torch.ones(batch, 1, 256, dtype=torch.float16, device="cuda")
    out = torch_ops.selective_scan(u.requires_grad_(), delta, A, matrix, matrix)
    (gradient,) = torch.autograd.grad(out, u, torch.ones_like(out))

    def position(i):
        return i // dim % 256 if last else i % 256

    for result, formula in ((out.detach(), lambda i: position(i) + 1), (gradient, lambda i: 256 - position(i))):
        check((result.mT if last else result).reshape(-1), formula)
