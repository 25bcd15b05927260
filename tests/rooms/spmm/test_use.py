"""spmm and sddmm: results against dense matrices, numbers, derivatives, transforms, autocast."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from torch_ops import CSR, sddmm, spmm

from ...support.params import each_device
from ...support.recorder import Recorder
from .matrices import F64, REDUCTIONS, random_edges, reduced

pytestmark = pytest.mark.torch_version


@each_device
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_edge_index(device, reduce, weighted):
    """Rows are targets. Values are in the order of the edges, which are not sorted."""
    edge_index = random_edges(9, 7, 30, device=device)
    values = torch.randn(30, dtype=F64, device=device) if weighted else None
    x = torch.randn(7, 5, dtype=F64, device=device)
    csr = CSR.from_edge_index(edge_index, values, size=(7, 9))
    assert csr.shape == (9, 7) and csr.nnz == 30
    want = reduced(edge_index, values, (9, 7), x, reduce)
    torch.testing.assert_close(spmm(csr, x, reduce).cpu(), want)
    if weighted:  # new values are in the order of the edges, too
        assert csr.values is values
        torch.testing.assert_close(spmm(csr.with_values(2 * values), x, "sum"), 2 * (csr @ x))
        torch.testing.assert_close(spmm(csr, x, values=3 * values), 3 * (csr @ x))


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_summed_in_float32_and_counted_in_integers(device, dtype):
    """A sum of ones in a half type stops at 256 or 2048, a count in float16 at 65504."""
    count = 2**17
    csr = CSR(
        torch.tensor([0, count], device=device), torch.zeros(count, dtype=torch.int64, device=device), shape=(1, 1)
    )
    x = torch.full((1, 2), 0.25, dtype=dtype, device=device, requires_grad=True)
    assert spmm(csr, x)[0, 0].item() == torch.tensor(count / 4).to(dtype).item()
    mean = spmm(csr, x, "mean")
    assert mean.tolist() == [[0.25, 0.25]]
    assert torch.autograd.grad(mean.sum(), x)[0].tolist() == [[1.0, 1.0]]
    one = CSR(torch.tensor([0, 1], device=device), torch.tensor([0], device=device), shape=(1, 1))
    ones = torch.ones(1, 4096, dtype=dtype, device=device)
    assert sddmm(one, ones, ones).item() == 4096


@each_device
def test_the_first_of_equal_maxima_has_the_gradient(device):
    csr = CSR(torch.tensor([0, 3, 4, 4], device=device), torch.tensor([1, 0, 2, 1], device=device), shape=(3, 3))
    x = torch.tensor([[1.0], [1.0], [0.0]], device=device, requires_grad=True)
    weights = torch.ones(4, device=device, requires_grad=True)
    result = spmm(csr.with_values(weights), x, "amax")
    to_x, to_weights = torch.autograd.grad(result, (x, weights), torch.tensor([[2.0], [3.0], [5.0]], device=device))
    assert to_x.tolist() == [[0.0], [5.0], [0.0]]  # the row without entries adds nothing
    assert to_weights.tolist() == [2.0, 0.0, 0.0, 3.0]


@each_device
def test_nan_is_the_greatest_and_the_least(device):
    csr = CSR(torch.tensor([0, 3], device=device), torch.tensor([0, 1, 2], device=device), shape=(1, 3))
    x = torch.tensor([[1.0], [float("nan")], [float("inf")]], device=device)
    assert spmm(csr, x, "amax").isnan().all() and spmm(csr, x, "amin").isnan().all()
    lowest = torch.full((3, 1), -float("inf"), device=device)
    assert spmm(csr, lowest, "amax").item() == -float("inf")


@each_device
def test_repeats_bit_for_bit(device):
    edge_index = random_edges(50, 40, 900, device=device)
    values = torch.randn(900, device=device, requires_grad=True)
    x = torch.randn(40, 33, device=device, requires_grad=True)
    for reduce in REDUCTIONS:
        runs = []
        for _ in range(2):
            csr = CSR.from_edge_index(edge_index, values, size=(40, 50))
            result = spmm(csr, x, reduce)
            runs.append((result, *torch.autograd.grad(result.sin().sum(), (x, values))))
        assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True)), reduce


@each_device
def test_autocast(device):
    csr = CSR.from_edge_index(random_edges(6, 5, 12, device=device), torch.randn(12, device=device), size=(5, 6))
    x = torch.randn(5, 8, device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        result, scores = csr @ x, sddmm(csr, torch.randn(6, 8, device=device), x)
        half = csr @ x.bfloat16()
    assert result.dtype == scores.dtype == torch.bfloat16 and torch.equal(result, half)
    assert torch.autograd.grad(result.sum(), x)[0].dtype == torch.float32


# ---------------------------------------------------------------- derivatives


@each_device
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_gradients_equal_those_of_a_dense_matrix(device, reduce):
    edge_index = random_edges(9, 7, 30, device=device)
    values = torch.randn(30, dtype=F64, device=device, requires_grad=True)
    x = torch.randn(7, 4, dtype=F64, device=device, requires_grad=True)
    csr = CSR.from_edge_index(edge_index, values, size=(7, 9))
    weights = torch.randn(9, 4, dtype=F64)
    got = torch.autograd.grad((spmm(csr, x, reduce).cpu() * weights).sum(), (x, values))
    want = torch.autograd.grad((reduced(edge_index, values, (9, 7), x, reduce) * weights).sum(), (x, values))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_sddmm_equals_a_dense_product():
    edge_index = random_edges(9, 7, 30)
    csr = CSR.from_edge_index(edge_index, size=(7, 9))
    a, b = (torch.randn(n, 2, 3, dtype=F64, requires_grad=True) for n in (9, 7))
    want = torch.einsum("mhf,khf->mkh", a, b)[edge_index[1], edge_index[0]]  # in the order of the edges
    got = sddmm(csr, a, b)
    torch.testing.assert_close(got, want)
    weights = torch.randn(30, 2, dtype=F64)
    for ours, theirs in zip(torch.autograd.grad(got, (a, b), weights), torch.autograd.grad(want, (a, b), weights)):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(sddmm(csr, a[:, 0], b[:, 0]), want[:, 0])
    # It is the gradient of the values of a product.
    values, x = torch.randn(30, dtype=F64, requires_grad=True), b[:, 0].detach()
    grad = torch.randn(9, 3, dtype=F64)
    torch.testing.assert_close(torch.autograd.grad(spmm(csr, x, values=values), values, grad)[0], sddmm(csr, grad, x))


DERIVED = {
    "matrix": (lambda: (torch.randn(5), torch.randn(3, 2)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "batches": (lambda: (torch.randn(5), torch.randn(2, 3, 1)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "heads": (lambda: (torch.randn(5, 2), torch.randn(3, 2, 1)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "vector": (lambda: (torch.randn(5), torch.randn(3)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "transpose": (lambda: (torch.randn(5), torch.randn(4, 2)), lambda c, v, x, r: spmm(c.with_values(v).t(), x, r)),
}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", DERIVED)
def test_derivatives(name, reduce, cached):
    """First and second derivatives in both modes, and batches of them, with entries that repeat."""
    make, function = DERIVED[name]
    csr = CSR.from_coo(torch.tensor([2, 0, 2, 0, 3]), torch.tensor([1, 1, 0, 1, 2]), shape=(4, 3))
    if cached:
        csr.cache_transpose()
    inputs = tuple(t.double().requires_grad_() for t in make())
    checks = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(lambda v, x: function(csr, v, x, reduce), inputs, **checks)
    assert gradgradcheck(
        lambda v, x: function(csr, v, x, reduce), inputs, check_fwd_over_rev=True, check_rev_over_rev=True
    )


def test_third_derivatives_of_a_maximum():
    csr = CSR.from_coo(torch.tensor([2, 0, 2, 0]), torch.tensor([1, 1, 0, 2]), shape=(4, 3))
    v, x = torch.randn(4, dtype=F64, requires_grad=True), torch.randn(3, 2, dtype=F64, requires_grad=True)

    def first(v, x):
        return torch.autograd.grad(spmm(csr, x, "amax", values=v).pow(3).sum(), (v, x), create_graph=True)

    assert gradgradcheck(first, (v, x))


# ---------------------------------------------------------------- torch.func


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("heads", [(), (2,)])
def test_vmap_over_values_and_dense(reduce, heads):
    csr = CSR.from_edge_index(random_edges(6, 5, 12), size=(5, 6))
    values, x = torch.randn(3, 12, *heads, dtype=F64), torch.randn(3, 5, *heads, 4, dtype=F64)

    def one(v, x):
        return spmm(csr, x, reduce, values=v)

    for dims in ((0, 0), (0, None), (None, 0)):
        v, y = (t if d == 0 else t[0] for t, d in zip((values, x), dims, strict=True))
        with Recorder() as calls:
            got = torch.vmap(one, dims)(v, y)
        assert calls.count("gpuopt::spmm") == 1
        want = torch.stack([one(*(t[i] if d == 0 else t for t, d in zip((v, y), dims, strict=True))) for i in range(3)])
        torch.testing.assert_close(got, want)


def test_vmap_over_the_matrix_is_refused():
    csr = CSR.from_edge_index(random_edges(6, 5, 12), size=(5, 6))
    with pytest.raises(NotImplementedError, match="ptr must be the same for all examples"):
        torch.vmap(lambda ptr: torch.ops.gpuopt.spmm(ptr, csr.index, None, None, torch.ones(5, 2)))(
            torch.stack([csr.ptr] * 2)
        )


def test_a_matrix_is_an_argument_of_transforms():
    csr = CSR.from_edge_index(random_edges(6, 5, 12), torch.randn(12, dtype=F64), size=(5, 6))
    x = torch.randn(3, 5, 4, dtype=F64)
    want = torch.stack([csr @ y for y in x])
    torch.testing.assert_close(torch.vmap(lambda c, y: c @ y, (None, 0))(csr, x), want)
    torch.testing.assert_close(torch.vmap(lambda c, y: c.t().t() @ y, (None, 0))(csr, x), want)
    per_example = torch.vmap(torch.func.grad(lambda y: (csr @ y).pow(2).sum()))(x)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(per_example, torch.autograd.grad((csr @ leaf).pow(2).sum(), leaf)[0])
