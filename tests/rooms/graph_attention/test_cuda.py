"""The kernels of attention over a sparse matrix: values, layouts, and the memory that they use."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from .test_use import NODE, random

pytestmark = pytest.mark.gpu


def _large(kind: str, dtype: torch.dtype, heads: int, features: int, key: int):
    """A graph with rows of 0 to 3000 entries on CUDA, and a function of operands of attention over it."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.tensor([3000, 0, 1, 700, 0] + [k % 40 for k in range(400)])
    row = torch.arange(len(lengths)).repeat_interleave(lengths)
    row = row[torch.randperm(len(row), generator=generator)]
    column = torch.randint(300, (len(row),), generator=generator)
    csr = torch_ops.CSR.from_coo(row.cuda(), column.cuda(), shape=(len(lengths), 300))
    score = (heads, key) if kind == "dot" else (heads,)
    shapes = ((len(lengths), *score), (300, *score), (300, heads, features), (len(row), heads))
    operands = [random(*shape, device="cuda", seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]

    def call(left, right, value, bias, csr):
        if kind == "dot":
            return torch_ops.graph_attention(csr, left, right, value, bias=bias)
        return torch_ops.gat_attention(csr, value, right, left, edge_scores=bias)

    return csr, operands, call


each_form = pytest.mark.parametrize("form", ["dot", "additive"])


@each_form
@pytest.mark.parametrize("heads, features, key", [(1, 64, 64), (8, 8, 8), (3, 24, 40), (2, 256, 16)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_kernels(form, dtype, heads, features, key):
    """Results and gradients, against the composition in float64 on the CPU. The same call gives the same bits."""
    if dtype.itemsize * features > 512:
        features = 512 // dtype.itemsize
    csr, operands, call = _large(form, dtype, heads, features, key)
    out = call(*operands, csr)
    assert out.grad_fn.name() == NODE
    weights = random(*out.shape, device="cuda", seed=8, dtype=dtype).detach()
    found = [out, *torch.autograd.grad(out, operands, weights)]
    wide = [x.detach().cpu().double().requires_grad_() for x in operands]
    exact = call(*wide, csr.cpu())
    expected = [exact, *torch.autograd.grad(exact, wide, weights.cpu().double())]
    for got, want in zip(found, expected, strict=True):
        allowed = 64 * torch.finfo(dtype).eps * want.abs().max()
        assert (got.cpu().double() - want).abs().max() < allowed
    again = call(*operands, csr)
    for got, repeated in zip(found, [again, *torch.autograd.grad(again, operands, weights)], strict=True):
        assert torch.equal(got, repeated)


@each_form
def test_operands_of_any_layout(form):
    """Misaligned rows, gaps between rows, heads behind features and shared rows give the bits of contiguous operands."""
    csr, operands, call = _large(form, torch.float32, 4, 8, 8)
    operands = [x.detach() for x in operands]
    expected = call(*operands, csr)
    misaligned = [torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape) for x in operands]
    gaps = [torch.stack([x, x], 1)[:, 0] for x in operands]
    permuted = [x.movedim(-1, 0).contiguous().movedim(0, -1) for x in operands]
    for changed in (misaligned, gaps, permuted):
        assert torch.equal(call(*changed, csr), expected)
    shared = operands[0][:1].expand_as(operands[0])
    assert torch.equal(call(shared, *operands[1:], csr), call(shared.contiguous(), *operands[1:], csr))


@each_form
def test_no_tensor_of_entries_and_features(form):
    """Beside results and gradients, a step allocates numbers of entries and heads, and parts of long rows."""
    csr, operands, call = _large(form, torch.float32, 1, 128, 128)
    csr.cache_transpose()
    call(*operands, csr).sum().backward()
    for x in operands:
        x.grad = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call(*operands, csr).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < csr.nnz * 128 * 4
