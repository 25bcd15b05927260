"""Dot products with more than 2^31 elements, more than 2^31 rows, or offsets beyond 2^31 and 2^32. A closed form gives the
result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import PAST, PERIOD, PLACES, check, filled, ramp, ramp_sums, ramp_total

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib


def _weight(i):
    return i % 5 + 1


def _total(n: int, x=ramp, y=_weight) -> int:
    """The sum of x(i) * y(i) for i < n. Both functions have the period PERIOD * 5."""
    products = [x(i) * y(i) for i in range(5 * PERIOD)]
    return sum(products) * (n // len(products)) + sum(products[: n % len(products)])


def _signed(total: int) -> int:
    """The total, wrapped around to int8."""
    return (total + 128) % 256 - 128


# ---------------------------------------------------------------- vectors


@gib(9)
def test_uint8():
    x, y = filled(PAST, ramp), filled(PAST, _weight)
    assert torch_ops.dot(x, y).item() == torch_ops.vdot(x, y).item() == _total(PAST) % 256
    shifted = _total(PAST - 3, x=lambda i: ramp(i + 1), y=lambda i: _weight(i + 3))
    assert torch_ops.dot(x[1:-2], y[3:]).item() == shifted % 256
    assert torch_ops.dot(x[1:], y[1:]).item() == _total(PAST) % 256  # x begins with 0
    assert torch_ops.dot_rows(x[None], y[None]).tolist() == [_total(PAST) % 256]
    y[PAST - 1] += 7
    assert torch_ops.dot(x, y).item() == (_total(PAST) + 7 * ramp(PAST - 1)) % 256


@gib(9)
def test_int8_with_itself():
    x = filled(PAST, lambda i: ramp(i) - 125, dtype=torch.int8)
    total = _total(PAST, x=lambda i: ramp(i) - 125, y=lambda i: ramp(i) - 125)
    assert torch_ops.dot(x, x).item() == _signed(total)
    out = torch.zeros((), dtype=torch.int8, device="cuda")
    assert torch_ops.dot(x, x, out=out).item() == _signed(total)


@gib(18)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype):
    """Operands of more than 2^32 bytes. Sums are exact, because nearly all products are zero. A NaN anywhere gives NaN."""
    x, y = torch.zeros(PAST, dtype=dtype, device="cuda"), torch.ones(PAST, dtype=dtype, device="cuda")
    for k, position in enumerate(PLACES):
        x[position] = 2.0**k
        y[position] = 3
    for op in (torch_ops.dot, torch_ops.vdot, torch_ops.dot_fast_atomic):
        assert op(x, y).item() == op(y, x).item() == 45
        assert op(x[1:], y[1:]).item() == 42
        assert op(x[:-3], y[3:]).item() == 1 + 2 + 4
    for position in PLACES:
        x[position] = float("nan")
        assert torch_ops.dot(x, y).isnan() and torch_ops.dot_rows(x[None], y[None]).isnan()
        x[position] = 0
    x.fill_(2.0**-11)
    y.fill_(2.0**-7)
    assert torch_ops.dot(x, y).item() == 2.0**13


@gib(14)
def test_strided():
    """Operands with stride 2, whose offsets exceed 2^32 although only half as many elements are read."""
    wide, y = filled(2 * PAST, ramp), filled(PAST, _weight)
    total = _total(PAST, x=lambda i: ramp(2 * i))
    assert torch_ops.dot(wide[::2], y).item() == torch_ops.dot(y, wide[::2]).item() == total % 256
    both = _total(PAST, x=lambda i: ramp(2 * i), y=lambda i: ramp(2 * i + 1))
    assert torch_ops.dot(wide[::2], wide[1::2]).item() == both % 256


@gib(4)
def test_one_value_many_times():
    """2^33 elements in one byte of memory (expanded), for one operand or for both."""
    n = 2**33 + 5
    x, y = (torch.full((1,), v, dtype=torch.int8, device="cuda").expand(n) for v in (3, -7))
    assert torch_ops.dot(x, y).item() == _signed(-21 * n)
    threes = torch.full((1,), 3, dtype=torch.uint8, device="cuda").expand(PAST)
    assert torch_ops.dot(filled(PAST, ramp), threes).item() == 3 * ramp_total(PAST) % 256
    ones = torch.ones(1, device="cuda").expand(2**33)
    assert torch_ops.dot(ones, ones).item() == pytest.approx(2.0**33, rel=1e-5)


@gib(14)
def test_small_problem_with_large_strides():
    """A small problem with strides of the tensor beyond 2^32."""
    stride, n = 2**22 + 7, 1030
    memory = filled(stride * n, ramp)
    values = ramp(torch.arange(n, device="cuda") * stride)
    x = memory[::stride]
    assert torch_ops.dot(x, x).item() == int(values.square().sum()) % 256
    rows = memory.as_strided((n, 5), (stride, 1))
    values = ramp(torch.arange(n, device="cuda")[:, None] * stride + torch.arange(5, device="cuda"))
    assert torch.equal(torch_ops.dot_rows(rows, rows), values.square().sum(1).to(torch.uint8))
    assert torch.equal(torch_ops.dot_rows(rows.mT, rows.mT), values.square().sum(0).to(torch.uint8))


@gib(36)
def test_complex():
    """Conjugated views of more than 2^31 components."""
    n = 2**30 + 4097
    x = torch.zeros(n, dtype=torch.complex64, device="cuda")
    y = torch.full((n,), 1 + 1j, dtype=torch.complex64, device="cuda")
    for k, position in enumerate((0, 2**30 - 1, 2**30, n - 1)):
        x[position] = 2j * 4**k
    assert torch_ops.dot(x, y).item() == -170 + 170j
    assert torch_ops.vdot(x, y).item() == torch_ops.dot(x.conj(), y).item() == 170 - 170j


# ---------------------------------------------------------------- rows


def _weighted_sums(n: int):
    """A function that gives the expected result of row i: the sum of ramp over its n elements, times the weight of the row."""
    return lambda i: ramp_sums(i * n, n) * _weight(i)


@gib(30)
@pytest.mark.parametrize(
    "shape", [(46_341, 46_351), (3, 2**30), (2**30, 3), (2**21, 1031), (70_001, 30_689), (5, 2**29 + 1)]
)
def test_rows(shape):
    """More than 2^31 elements in rows of every length, and more rows than the second dimension of a grid allows."""
    rows, n = shape
    x = filled(rows * n, ramp).view(shape)
    y = filled(rows * n, lambda i: _weight(i // n)).view(shape)
    check(torch_ops.dot_rows(x, y), _weighted_sums(n))
    check(torch_ops.dot_rows(y, x), _weighted_sums(n))
    check(torch_ops.dot_rows(x, y[:, :1].expand(shape)), _weighted_sums(n))


@gib(30)
@pytest.mark.parametrize("shape", [(46_341, 46_351), (2**30, 3), (3, 2**30)])
def test_rows_across_memory(shape):
    """Rows of a transposed matrix: value i of row k is at i * rows + k."""
    rows, n = shape
    x = filled(rows * n, lambda i: ramp(i // rows)).view(n, rows).mT
    y = filled(rows * n, lambda i: _weight(i % rows)).view(n, rows).mT
    check(torch_ops.dot_rows(x, y), lambda i: ramp_total(n) * _weight(i))
    one = filled(n, ramp).expand(rows, n)
    check(torch_ops.dot_rows(one, y), lambda i: ramp_total(n) * _weight(i))
    if rows * n < 2**31 + 2**20:
        check(torch_ops.dot_rows(x, y.contiguous()), lambda i: ramp_total(n) * _weight(i))


@gib(18)
def test_rows_with_gaps():
    rows, n, gap = 46_341, 46_351, 49
    memory = torch.full((rows * (n + gap),), 255, dtype=torch.uint8, device="cuda").view(rows, n + gap)
    x = memory[:, 1 : n + 1]
    for start in range(0, rows, 1024):
        r = torch.arange(start, min(start + 1024, rows), device="cuda")[:, None]
        x[start : start + 1024] = ramp(r + torch.arange(n, device="cuda")).to(torch.uint8)
    twos = torch.full((1, 1), 2, dtype=torch.uint8, device="cuda").expand(rows, n)
    check(torch_ops.dot_rows(x, twos), lambda i: 2 * ramp_sums(i, n))


@gib(14)
def test_many_rows():
    """More than 2^31 results, of one or two products each."""
    x = filled(PAST, ramp)
    check(torch_ops.dot_rows(x[:, None], x[:, None]), lambda i: ramp(i) ** 2)
    del x
    x = filled(2 * PAST, ramp).view(PAST, 2)
    check(torch_ops.dot_rows(x, x), lambda i: ramp(2 * i) ** 2 + ramp(2 * i + 1) ** 2)


@gib(14)
def test_one_row_for_more_than_2_to_31():
    rows = 2**31 + 7
    x, y = (torch.arange(5, dtype=torch.uint8, device="cuda").expand(rows, 5) for _ in range(2))
    check(torch_ops.dot_rows(x, y), lambda i: torch.full_like(i, 30))


# ---------------------------------------------------------------- gradients


@gib(24)
def test_backward():
    """Each operand's gradient is the other operand times the result's gradient."""
    x = torch.ones(PAST, dtype=torch.bfloat16, device="cuda").requires_grad_()
    y = filled(PAST, ramp, dtype=torch.bfloat16)
    torch_ops.dot(x, y).backward(torch.tensor(2.0, dtype=torch.bfloat16, device="cuda"))
    check(x.grad, lambda i: 2 * ramp(i))
