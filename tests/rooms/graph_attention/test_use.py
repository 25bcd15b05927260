"""Attention over the entries of a sparse matrix: values and derivatives against dense attention, its order, and its errors."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import torch_ops

from ...support.params import each_device

ROWS, COLUMNS, ENTRIES, HEADS, WIDTH, RESULT = 7, 6, 19, 2, 4, 6
NODE = "GpuoptGraphAttentionBackward"


def random(*shape, device="cpu", seed=0, dtype=torch.float64) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(device, dtype).requires_grad_()


def _graph(kind: str, device="cpu") -> tuple[torch_ops.CSR, torch.Tensor, torch.Tensor]:
    """A matrix, and the row and column of each entry, in the order of its values. The last row is empty; an entry occurs twice."""
    generator = torch.Generator().manual_seed(1)
    row = torch.randint(ROWS - 1, (ENTRIES,), generator=generator).to(device)
    column = torch.randint(COLUMNS, (ENTRIES,), generator=generator).to(device)
    row[3], column[3] = row[9], column[9]
    if kind == "sorted":
        row = row.sort().values
    if kind == "transposed":
        return torch_ops.CSR.from_coo(column, row, shape=(COLUMNS, ROWS)).t(), row, column
    return torch_ops.CSR.from_coo(row, column, shape=(ROWS, COLUMNS)), row, column


def _attended(scores: torch.Tensor, value: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """The definition, row by row."""
    found = []
    for number in range(ROWS):
        chosen = row == number
        weights = scores[chosen].softmax(0)
        found.append((weights[:, :, None] * value[column[chosen]]).sum(0))
    return torch.stack(found)


def _dot_operands(device="cpu", dtype=torch.float64, result=RESULT):
    shapes = ((ROWS, HEADS, WIDTH), (COLUMNS, HEADS, WIDTH), (COLUMNS, HEADS, result), (ENTRIES, HEADS))
    return [random(*shape, device=device, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


def _additive_operands(device="cpu"):
    shapes = ((COLUMNS, HEADS, WIDTH), (COLUMNS, HEADS), (ROWS, HEADS), (ENTRIES, HEADS))
    return [random(*shape, device=device, seed=seed) for seed, shape in enumerate(shapes)]


KINDS = ("sorted", "unsorted", "transposed")
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_device
@each_kind
@pytest.mark.parametrize("scale, result", [(None, RESULT), (0.7, RESULT), (0.7, 3)])
def test_dot_product_attention(kind, scale, result, device):
    """On CUDA, heads of 3 features are no vectors, and attention is a composition."""
    csr, row, column = _graph(kind, device)
    query, key, value, bias = operands = _dot_operands(device, result=result)
    factor = WIDTH**-0.5 if scale is None else scale
    scores = factor * (query[row] * key[column]).sum(-1)
    found = torch_ops.graph_attention(csr, query, key, value, scale=scale)
    assert found.shape == (ROWS, HEADS, result) and not found[-1].any()
    assert (found.grad_fn.name() == NODE) == (device == "cuda" and result == RESULT)
    torch.testing.assert_close(found, _attended(scores, value, row, column))
    found, expected = (
        torch_ops.graph_attention(csr, query, key, value, scale=scale, bias=bias),
        _attended(scores + bias, value, row, column),
    )
    torch.testing.assert_close(found, expected)
    weights = random(*found.shape, device=device, seed=8).detach()
    gradients = [torch.autograd.grad(out, operands, weights) for out in (found, expected)]
    torch.testing.assert_close(*gradients)


@each_device
@each_kind
def test_additive_attention(kind, device):
    csr, row, column = _graph(kind, device)
    input, source, target, edges = operands = _additive_operands(device)
    for extra in (None, edges):
        scores = source[column] + target[row] + (0 if extra is None else extra)
        expected = _attended(functional.leaky_relu(scores, 0.3), input, row, column)
        found = torch_ops.gat_attention(csr, input, source, target, negative_slope=0.3, edge_scores=extra)
        torch.testing.assert_close(found, expected)
        used = operands[: 3 if extra is None else 4]
        weights = random(*found.shape, device=device, seed=8).detach()
        gradients = [torch.autograd.grad(out, used, weights) for out in (found, expected)]
        torch.testing.assert_close(*gradients)


@each_device
@each_kind
def test_derivatives(kind, device):
    csr, _, _ = _graph(kind, device)

    def dot(query, key, value, bias):
        return torch_ops.graph_attention(csr, query, key, value, bias=bias)

    def additive(input, source, target, edges):
        return torch_ops.gat_attention(csr, input, source, target, edge_scores=edges)

    for function, operands in ((dot, _dot_operands(device)), (additive, _additive_operands(device))):
        assert gradcheck(function, operands, check_forward_ad=True)
        assert gradgradcheck(function, operands, fast_mode=kind != "unsorted")


@each_device
@each_kind
def test_functional_transforms(kind, device):
    """torch.vmap over some operands, and torch.func.grad of it, are a composition of operators with batching rules."""
    csr, _, _ = _graph(kind, device)
    csr.cache_transpose()
    query, key, value, bias = (x.detach() for x in _dot_operands(device))
    queries, biases = (torch.stack([x, 2 * x, -x]) for x in (query, bias))

    def call(query, bias):
        return torch_ops.graph_attention(csr, query, key, value, bias=bias)

    def loss(query, bias):
        return call(query, bias).square().sum()

    for function in (call, torch.func.grad(loss)):
        found = torch.vmap(function)(queries, biases)
        expected = torch.stack([function(q, b) for q, b in zip(queries, biases, strict=True)])
        torch.testing.assert_close(found, expected)


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precision(dtype, device):
    csr, row, column = _graph("unsorted", device)
    query, key, value, bias = (x.detach() for x in _dot_operands(device, dtype))
    found = torch_ops.graph_attention(csr, query, key, value, bias=bias)
    assert found.dtype == dtype
    exact = torch_ops.graph_attention(csr, query.double(), key.double(), value.double(), bias=bias.double())
    assert (found - exact).abs().max() < 8 * torch.finfo(dtype).eps * exact.abs().max()


@each_device
def test_autocast(device):
    """Operands of float32 are computed in the lower precision, also if heads are vectors only in float32."""
    csr, _, _ = _graph("unsorted", device)
    for result in (4, 8):
        query, key, value, bias = _dot_operands(device, torch.float32, result)
        with torch.autocast(device, torch.bfloat16):
            found = torch_ops.graph_attention(csr, query, key, value, bias=bias)
        assert found.dtype == torch.bfloat16
        exact = torch_ops.graph_attention(csr, query, key, value, bias=bias)
        assert (found - exact).abs().max() < 0.1
        found.float().sum().backward()
        assert query.grad.dtype == torch.float32


@each_kind
def test_the_transpose_is_made_once(kind, monkeypatch):
    csr, _, _ = _graph(kind)
    query, key, value, _ = _dot_operands()
    torch_ops.graph_attention(csr, query, key, value)
    assert csr.has_transpose
    made = []
    transpose = torch.ops.gpuopt._transpose.default

    class Counted:
        def default(self, *arguments):
            made.append(arguments)
            return transpose(*arguments)

    monkeypatch.setattr(torch.ops.gpuopt, "_transpose", Counted())
    torch_ops.graph_attention(csr, query, key, value).sum().backward()
    assert not made


@each_device
@each_kind
def test_a_compiled_call(kind, device):
    csr, _, _ = _graph(kind, device)
    query, key, value, bias = operands = _dot_operands(device)
    csr.cache_transpose()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def call(query, key, value, bias, csr):
        return torch_ops.graph_attention(csr, query, key, value, bias=bias)

    found = call(query, key, value, bias, csr)
    expected = torch_ops.graph_attention(csr, query, key, value, bias=bias)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), operands), torch.autograd.grad(expected.sum(), operands), rtol=1e-9, atol=1e-12
    )


def test_a_graph_without_entries():
    none = torch.empty(0, dtype=torch.int64)
    csr = torch_ops.CSR.from_coo(none, none, shape=(ROWS, COLUMNS))
    query, key, value, _ = _dot_operands()
    out = torch_ops.graph_attention(csr, query, key, value)
    assert out.shape == (ROWS, HEADS, RESULT) and not out.any()
    out.sum().backward()
    assert not query.grad.any()


def test_errors():
    csr, _, _ = _graph("unsorted")
    query, key, value, bias = _dot_operands()
    wrong = (
        ((csr, query[1:], key, value), {}, "query must have shape [7, any, any], got [6, 2, 4]"),
        ((csr, query, key[:, :, 1:], value), {}, "key must have shape [6, 2, 4], got [6, 2, 3]"),
        ((csr, query, key, value[:, 1:]), {}, "value must have shape [6, 2, any], got [6, 1, 6]"),
        ((csr, query, key, value), {"bias": bias[1:]}, "bias must have shape [19, 2], got [18, 2]"),
    )
    for arguments, options, message in wrong:
        with pytest.raises(RuntimeError) as error:
            torch_ops.graph_attention(*arguments, **options)
        assert str(error.value) == f"graph_attention: {message}"
    input, source, target, edges = _additive_operands()
    wrong = (
        ((input[1:], source, target), None, "input must have shape [6, any, any], got [5, 2, 4]"),
        ((input, source[:, 1:], target), None, "source_scores must have shape [6, 2], got [6, 1]"),
        ((input, source, target[1:]), None, "target_scores must have shape [7, 2], got [6, 2]"),
        ((input, source, target), edges[:, 1:], "edge_scores must have shape [19, 2], got [19, 1]"),
    )
    for call in (
        lambda: torch_ops.graph_attention("csr", query, key, value),
        lambda: torch_ops.gat_attention(None, input, source, target),
    ):
        with pytest.raises(TypeError, match="csr must be CSR, got"):
            call()
    for arguments, extra, message in wrong:
        with pytest.raises(RuntimeError) as error:
            torch_ops.gat_attention(csr, *arguments, edge_scores=extra)
        assert str(error.value) == f"gat_attention: {message}"
