"""More than 2^31 elements, and offsets beyond 2^31 and 2^32: every path of the engine, checked by closed form in chunks, so that no
reference of that size is stored."""

from __future__ import annotations

import pytest
import torch

import torch_ops

pytestmark = [pytest.mark.gpu, pytest.mark.large]
PAST = 2**31 + 4097
CHUNK = 2**26


@pytest.fixture(autouse=True)
def _enough_memory(request):
    """Skips a test that says, with @gib(n), that it needs more than there is."""
    gib = request.node.get_closest_marker("gib").args[0]
    free, _ = torch.cuda.mem_get_info()
    free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if free < gib * 2**30 * 1.1:
        pytest.skip(f"needs {gib} GiB of GPU memory, {free / 2**30:.0f} are free")
    yield
    torch.cuda.empty_cache()


gib = pytest.mark.gib


def _x(i):
    return i % 251


def _y(i):
    return i * 7 % 241


def _filled(numel: int, formula, dtype=torch.uint8, into: torch.Tensor | None = None) -> torch.Tensor:
    """formula(i) for i in [0, numel), in chunks."""
    flat = torch.empty(numel, dtype=dtype, device="cuda") if into is None else into
    for start in range(0, numel, CHUNK):
        i = torch.arange(start, min(start + CHUNK, numel), device="cuda")
        flat[start : start + CHUNK] = formula(i).to(dtype)
    return flat


def _check(flat: torch.Tensor, formula):
    """flat[i] == formula(i), all of it."""
    for start in range(0, flat.numel(), CHUNK):
        part = flat[start : start + CHUNK]
        i = torch.arange(start, start + part.numel(), device="cuda")
        wrong = part != formula(i).to(flat.dtype)
        assert not wrong.any(), f"first wrong element: {start + int(wrong.nonzero()[0])} of {flat.numel()}"


@gib(8)
def test_contiguous():
    got = torch_ops.mul(_filled(PAST, _x), _filled(PAST, _y))
    _check(got, lambda i: _x(i) * _y(i))


@gib(20)
def test_contiguous_bytes_past_2_to_32():
    x = _filled(PAST, _x, torch.bfloat16)
    _check(torch_ops.mul(x, x), lambda i: (_x(i) * _x(i)).float())


@gib(8)
def test_in_place_and_number():
    x = _filled(PAST, _x)
    torch_ops.mul_(x, 3)
    _check(x, lambda i: _x(i) * 3)
    y = _filled(PAST, _y)
    torch_ops.mul_(x, y)
    _check(x, lambda i: _x(i) * 3 * _y(i))


@gib(8)
def test_misaligned():
    x, y = _filled(PAST, _x)[1:], _filled(PAST, _y)[1:]
    out = torch.empty(PAST, dtype=torch.uint8, device="cuda")[1:]
    torch_ops.mul(x, y, out=out)
    _check(out, lambda i: _x(i + 1) * _y(i + 1))


@gib(8)
@pytest.mark.parametrize(("rows", "columns"), [(46341, 46351), (3, 2**30), (2**30, 3)])
def test_broadcast(rows, columns):
    """Inner and outer at once, rows long and short."""
    got = torch_ops.mul(_filled(rows, _x)[:, None], _filled(columns, _y))
    assert got.shape == (rows, columns)
    _check(got.view(-1), lambda i: _x(i // columns) * _y(i % columns))


@gib(10)
@pytest.mark.parametrize("n", [46343, 46352], ids=["ragged", "whole packs"])
def test_transposed(n):
    """Square, so that element (r, c) of the transposed operand is element c n + r of its memory."""
    x, y = _filled(n * n, _x).view(n, n), _filled(n * n, _y).view(n, n)
    got = torch_ops.mul(x, y.t())
    assert got.is_contiguous()
    _check(got.view(-1), lambda i: _x(i) * _y(i % n * n + i // n))


@gib(14)
def test_step_two():
    """Offsets of an operand reach 2^32 although it has half as many elements."""
    wide = _filled(2 * PAST, _x)
    _check(torch_ops.mul(wide[::2], _filled(PAST, _y)), lambda i: _x(2 * i) * _y(i))


@gib(20)
def test_mixed_dtypes():
    x, y = _filled(PAST, _x), _filled(PAST, _y, torch.int16)
    _check(torch_ops.mul(x, y), lambda i: _x(i) * _y(i))


@gib(14)
def test_few_elements_far_apart():
    """A small problem whose strides, not sizes, pass 2^32; also as output."""
    stride, rows = 2**22 + 7, 1030
    memory = _filled(stride * rows, _x)
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
    x, y = _filled(PAST, _x), _filled(PAST, _y)
    _check(torch_ops.axpy(x, y, alpha=3), lambda i: 3 * _x(i) + _y(i))
    _check(torch_ops.fma(x, y, x), lambda i: _x(i) * _y(i) + _x(i))


@gib(30)
def test_backward():
    """Gradients of a large broadcast: of the factor that was expanded as well."""
    rows, columns = 2**20, 2**11 + 2
    x = torch.ones(rows, columns, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    y = torch.full((columns,), 2.0, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    torch_ops.mul(x, y).backward(torch.ones((), dtype=torch.bfloat16, device="cuda").expand(rows, columns))
    _check(x.grad.view(-1), lambda i: torch.full(i.shape, 2.0, device=i.device))
    assert torch.equal(y.grad, torch.full_like(y, float(rows)))
