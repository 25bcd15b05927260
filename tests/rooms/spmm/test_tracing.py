"""Compilation and export of functions of CSR: matrices are arguments, results and constants, or are made inside."""

from __future__ import annotations

import io

import pytest
import torch
from torch.utils import _pytree as pytree

from torch_ops import CSR, sddmm, spmm

from ...support.compare import close
from .matrices import random_edges

pytestmark = [pytest.mark.torch_version, pytest.mark.usefixtures("fresh_dynamo")]


def _layer(csr: CSR, x: torch.Tensor, reduce: str = "mean") -> torch.Tensor:
    return spmm(csr, x.sin(), reduce).relu()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("reduce", ["mean", "amax"])
def test_compile(reduce, cached):
    csr = CSR.from_edge_index(random_edges(6, 5, 12), torch.randn(12, requires_grad=True), size=(5, 6))
    if cached:
        csr.cache_transpose()
    x = torch.randn(5, 3, requires_grad=True)
    compiled = torch.compile(_layer, fullgraph=True, backend="aot_eager")
    closed = torch.compile(lambda x: _layer(csr, x, reduce), fullgraph=True, backend="aot_eager")
    want = _layer(csr, x, reduce)
    grads = torch.autograd.grad(want.pow(2).sum(), (x, csr.values))
    for got in (compiled(csr, x, reduce), closed(x)):
        assert close(got, want, 1) is None
        for ours, theirs in zip(torch.autograd.grad(got.pow(2).sum(), (x, csr.values)), grads, strict=True):
            assert close(ours, theirs) is None


def test_compile_with_inductor():
    csr = CSR.from_edge_index(
        random_edges(6, 5, 12), torch.randn(12, requires_grad=True), size=(5, 6)
    ).cache_transpose()
    x = torch.randn(5, 3, requires_grad=True)
    got = torch.compile(_layer, fullgraph=True)(csr, x)
    want = _layer(csr, x)
    assert close(got, want, 4) is None
    for ours, theirs in zip(*(torch.autograd.grad(y.sum(), (x, csr.values)) for y in (got, want)), strict=True):
        assert close(ours, theirs) is None


def test_other_graphs_do_not_compile_again():
    """Sizes become symbols."""
    count = 0

    def backend(graph, inputs):
        nonlocal count
        count += 1
        return graph

    compiled = torch.compile(_layer, fullgraph=True, backend=backend, dynamic=True)
    for k in range(5):
        targets, sources = 6 + 3 * k, 5 + 2 * k
        csr = CSR.from_edge_index(
            random_edges(targets, sources, 12 + 8 * k, seed=k), size=(sources, targets)
        ).cache_transpose()
        x = torch.randn(sources, 3 + k)
        torch.testing.assert_close(compiled(csr, x), _layer(csr, x))
    assert count <= 2


def test_matrices_inside_a_compiled_function():
    edge_index, values, x = (
        random_edges(6, 5, 12),
        torch.randn(12, requires_grad=True),
        torch.randn(5, 3, requires_grad=True),
    )

    def made_inside(edge_index, values, x):
        csr = CSR.from_edge_index(edge_index, values, size=(5, 6))
        y = spmm(csr, x)
        return y, spmm(csr.t(), y), spmm(csr.with_values(2 * values), x)

    got = torch.compile(made_inside, fullgraph=True, backend="aot_eager")(edge_index, values, x)
    want = made_inside(edge_index, values, x)
    for ours, theirs in zip(got, want, strict=True):
        assert close(ours, theirs, 1) is None
        pair = (torch.autograd.grad(y.pow(2).sum(), (values, x), retain_graph=True) for y in (ours, theirs))
        for a, b in zip(*pair, strict=True):
            assert close(a, b) is None

    def weighted(csr, values):
        return csr.with_values(values * 2), csr.t()

    csr = CSR.from_edge_index(edge_index, size=(5, 6)).cache_transpose()
    new, transpose = torch.compile(weighted, fullgraph=True, backend="aot_eager")(csr, values)
    torch.testing.assert_close(new @ x, spmm(csr, x, values=2 * values))
    assert transpose.shape == (5, 6) and torch.equal(transpose @ torch.eye(6), csr.t() @ torch.eye(6))


class _Model(torch.nn.Module):
    def forward(self, csr, x):
        return {"result": spmm(csr, x, "mean"), "scores": csr.with_values(sddmm(csr, spmm(csr, x), x))}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_export(dynamic, strict):
    csr = CSR.from_edge_index(random_edges(6, 5, 12), size=(5, 6)).cache_transpose()
    x = torch.randn(5, 3)
    auto = torch.export.Dim.AUTO
    shapes = None
    if dynamic:
        shapes = {"csr": [{d: auto for d in range(t.dim()) if t.shape[d] > 1} for t in pytree.tree_leaves(csr)],
                  "x": {0: auto, 1: auto}}  # fmt: skip
    program = torch.export.export(_Model(), (csr, x), dynamic_shapes=shapes, strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    cases = [(csr, x)]
    if dynamic:
        other = CSR.from_edge_index(random_edges(9, 8, 31), size=(8, 9)).cache_transpose()
        cases.append((other, torch.randn(8, 7)))
    for matrix, y in cases:
        got, want = loaded(matrix, y), _Model()(matrix, y)
        torch.testing.assert_close(got["result"], want["result"])
        assert isinstance(got["scores"], CSR) and got["scores"].shape == matrix.shape
        torch.testing.assert_close(got["scores"].values, want["scores"].values)


class _Made(torch.nn.Module):
    """Makes its matrices of plain tensors."""

    def forward(self, ptr, index, row, x):
        shape = ptr.shape[0] - 1, x.shape[0]
        return spmm(CSR(ptr, index, shape=shape), x, "amax"), spmm(CSR.from_coo(row, index, shape=shape), x)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("rows, columns", [(5, 4), (4, 6)])
def test_export_of_matrices_that_are_made_inside(rows, columns, strict):
    """No size is compared with another one: a program that was exported for a tall matrix computes wide ones."""

    def arguments(rows, columns, entries, features):
        row = torch.randint(rows, (entries,)).sort().values
        ptr = torch.searchsorted(row, torch.arange(rows + 1))
        return ptr, torch.randint(columns, (entries,)), row, torch.randn(columns, features)

    entries, columns_, features = (torch.export.Dim(name, max=2**20) for name in ("entries", "columns", "features"))
    pointers = torch.export.Dim("pointers", min=3, max=2**20)
    shapes = {"ptr": {0: pointers}, "index": {0: entries}, "row": {0: entries}, "x": {0: columns_, 1: features}}
    example = arguments(rows, columns, 7, 3)
    exported = torch.export.export(_Made(), example, dynamic_shapes=shapes, strict=strict).module()
    for sizes in ((3, 9, 5, 2), (9, 3, 20, 6), (4, 4, 30, 4), (30, 40, 10, 8)):
        call = arguments(*sizes)
        for got, want in zip(exported(*call), _Made()(*call), strict=True):
            torch.testing.assert_close(got, want)
