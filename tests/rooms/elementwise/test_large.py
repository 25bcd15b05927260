"""Every path of the element-wise engine with more than 2^31 elements and with offsets beyond 2^31 and 2^32. A closed form gives the
result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import PAST, check, filled

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib


def _x(i):
    return i % 251


def _y(i):
    return i * 7 % 241


@gib(8)
def test_contiguous():
    got = torch_ops.mul(filled(PAST, _x), filled(PAST, _y))
    check(got, lambda i: _x(i) * _y(i))


@gib(20)
def test_contiguous_bytes_past_2_to_32():
    x = filled(PAST, _x, torch.bfloat16)
    check(torch_ops.mul(x, x), lambda i: (_x(i) * _x(i)).float())


@gib(8)
def test_in_place_and_number():
    x = filled(PAST, _x)
    torch_ops.mul_(x, 3)
    check(x, lambda i: _x(i) * 3)
    y = filled(PAST, _y)
    torch_ops.mul_(x, y)
    check(x, lambda i: _x(i) * 3 * _y(i))


@gib(8)
def test_misaligned():
    x, y = filled(PAST, _x)[1:], filled(PAST, _y)[1:]
    out = torch.empty(PAST, dtype=torch.uint8, device="cuda")[1:]
    torch_ops.mul(x, y, out=out)
    check(out, lambda i: _x(i + 1) * _y(i + 1))


@gib(8)
@pytest.mark.parametrize(("rows", "columns"), [(46341, 46351), (3, 2**30), (2**30, 3)])
def test_broadcast(rows, columns):
    """One operand broadcasts along rows and the other along columns. Rows are long or short."""
    got = torch_ops.mul(filled(rows, _x)[:, None], filled(columns, _y))
    assert got.shape == (rows, columns)
    check(got.view(-1), lambda i: _x(i // columns) * _y(i % columns))


@gib(10)
@pytest.mark.parametrize("n", [46343, 46352], ids=["ragged", "whole vectors"])
def test_transposed(n):
    """Square operands. Element (r, c) of the transposed one is element c n + r of its memory."""
    x, y = filled(n * n, _x).view(n, n), filled(n * n, _y).view(n, n)
    got = torch_ops.mul(x, y.t())
    assert got.is_contiguous()
    check(got.view(-1), lambda i: _x(i) * _y(i % n * n + i // n))


@gib(14)
def test_stride_two():
    """Offsets of an operand exceed 2^32 although it has half as many elements."""
    wide = filled(2 * PAST, _x)
    check(torch_ops.mul(wide[::2], filled(PAST, _y)), lambda i: _x(2 * i) * _y(i))


@gib(20)
def test_mixed_dtypes():
    x, y = filled(PAST, _x), filled(PAST, _y, torch.int16)
    check(torch_ops.mul(x, y), lambda i: _x(i) * _y(i))


@gib(14)
def test_small_problem_with_large_strides():
    """A small problem with strides beyond 2^32, of an operand and of the output."""
    stride, rows = 2**22 + 7, 1030
    memory = filled(stride * rows, _x)
    x = memory.as_strided((rows, 5), (stride, 1))
    i = torch.arange(rows, device="cuda")[:, None] * stride + torch.arange(5, device="cuda")
    assert torch.equal(torch_ops.mul(x, x), (_x(i) * _x(i)).to(torch.uint8))
    total = int(memory.sum(dtype=torch.int64)) - int(x.sum(dtype=torch.int64))
    torch_ops.mul(x, 3, out=x)
    assert torch.equal(x, (_x(i) * 3).to(torch.uint8))
    assert int(memory.sum(dtype=torch.int64)) - int(x.sum(dtype=torch.int64)) == total, (
        "an element between the rows was written"
    )


@gib(14)
def test_axpy_and_fma():
    x, y = filled(PAST, _x), filled(PAST, _y)
    check(torch_ops.axpy(x, y, alpha=3), lambda i: 3 * _x(i) + _y(i))
    check(torch_ops.fma(x, y, x), lambda i: _x(i) * _y(i) + _x(i))


@gib(30)
def test_backward():
    """Gradients of both factors of a large broadcast product."""
    rows, columns = 2**20, 2**11 + 2
    x = torch.ones(rows, columns, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    y = torch.full((columns,), 2.0, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    torch_ops.mul(x, y).backward(torch.ones((), dtype=torch.bfloat16, device="cuda").expand(rows, columns))
    check(x.grad.view(-1), lambda i: torch.full(i.shape, 2.0, device=i.device))
    assert torch.equal(y.grad, torch.full_like(y, float(rows)))
