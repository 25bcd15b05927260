"""Reductions with more than 2^31 elements or results, or with offsets beyond 2^31 and 2^32. A closed form gives the result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import PAST, PERIOD, PLACES, check, filled
from ...support.large import ramp as _x
from ...support.large import ramp_sums as _sums_of_x
from ...support.large import ramp_total as _sum_of_x

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib


# ---------------------------------------------------------------- one result


@gib(4)
def test_full_sum():
    x = filled(PAST, _x)
    assert torch_ops.reduce_sum(x).item() == _sum_of_x(PAST)
    assert torch_ops.reduce_sum(x[1:]).item() == _sum_of_x(PAST)
    assert torch_ops.reduce_sum(x, dtype=torch.uint8).item() == _sum_of_x(PAST) % 256
    assert torch_ops.reduce_sum(x, dtype=torch.float64).item() == _sum_of_x(PAST)
    assert torch_ops.reduce_mean(x, dtype=torch.float64).item() == pytest.approx(_sum_of_x(PAST) / PAST, rel=1e-12)


@gib(4)
@pytest.mark.parametrize("position", PLACES)
def test_full_extrema(position):
    """The only extreme value is found at every tested position."""
    x = torch.full((PAST,), 7, dtype=torch.int8, device="cuda")
    for value, op in ((8, torch_ops.reduce_max), (6, torch_ops.reduce_min)):
        x[position] = value
        assert op(x).item() == value
    assert torch_ops.reduce_sum(x).item() == 7 * PAST - 1


@gib(8)
def test_full_bfloat16():
    """More than 2^32 bytes. Sums are exact, because nearly all values are zero. NaN is tested at both ends."""
    x = torch.zeros(PAST, dtype=torch.bfloat16, device="cuda")
    for k, position in enumerate(PLACES):
        x[position] = 2.0**k
    assert torch_ops.reduce_sum(x).item() == 15
    assert torch_ops.reduce_max(x).item() == 8 and torch_ops.reduce_min(x).item() == 0
    for position in PLACES:
        x[position] = float("nan")
        assert all(op(x).isnan() for op in (torch_ops.reduce_sum, torch_ops.reduce_max, torch_ops.reduce_min))
        x[position] = 0
    x.fill_(1)
    assert torch_ops.reduce_mean(x).item() == 1
    assert torch_ops.reduce_sum(x).item() == 2.0**31
    assert torch_ops.reduce_sum(x, dtype=torch.float32).item() == pytest.approx(PAST, rel=1e-6)


@gib(4)
def test_one_value_many_times():
    """2^33 elements, expanded from one byte of memory."""
    n = 2**33 + 5
    x = torch.full((1,), 3, dtype=torch.int8, device="cuda").expand(n)
    assert torch_ops.reduce_sum(x).item() == 3 * n
    assert torch_ops.reduce_max(x).item() == 3


@gib(8)
def test_stride_two():
    """Offsets exceed 2^32 although only half as many elements are read."""
    wide = filled(2 * PAST, _x)
    period = [2 * i % PERIOD for i in range(PERIOD)]
    total = sum(period) * (PAST // PERIOD) + sum(period[: PAST % PERIOD])
    assert torch_ops.reduce_sum(wide[::2]).item() == total
    wide[2 * PAST - 2], wide[2 * PAST - 1] = 253, 254
    assert torch_ops.reduce_max(wide[::2]).item() == 253


# ---------------------------------------------------------------- rows and columns


@gib(30)
@pytest.mark.parametrize(("rows", "columns"), [(46_341, 46_351), (3, 2**30), (2**30, 3), (2**21, 1031), (5, 2**29 + 1)])
def test_rows(rows, columns):
    x = filled(rows * columns, _x).view(rows, columns)
    check(torch_ops.reduce_sum(x, 1), lambda i: _sums_of_x(i * columns, columns))
    check(torch_ops.reduce_max(x, 1), lambda i: _extreme(i * columns, columns, max))
    check(torch_ops.reduce_min(x, 1), lambda i: _extreme(i * columns, columns, min))


def _extreme(start: torch.Tensor, n: int, which) -> torch.Tensor:
    """The largest or smallest _x(i) for start <= i < start + n, for each start.

    The range may contain a whole period, lie inside one, or cross the end of one.
    """
    first = start % PERIOD
    if n >= PERIOD:
        return torch.full_like(start, PERIOD - 1 if which is max else 0)
    last = first + n - 1
    if which is max:
        return torch.where(last >= PERIOD - 1, PERIOD - 1, last)
    return torch.where(last >= PERIOD, 0, first)


@gib(30)
@pytest.mark.parametrize(("rows", "columns"), [(46_341, 46_351), (3, 2**30), (2**30, 3), (1031, 2**21), (2**29 + 1, 5)])
def test_columns(rows, columns):
    """Values depend only on the row, then only on the column, so sums over columns have a closed form."""
    x = filled(rows * columns, lambda i: _x(i // columns)).view(rows, columns)
    total = _sum_of_x(rows)
    check(torch_ops.reduce_sum(x, 0), lambda i: torch.full_like(i, total))
    check(torch_ops.reduce_max(x, 0), lambda i: torch.full_like(i, min(rows, PERIOD) - 1))
    filled(rows * columns, lambda i: _x(i % columns), into=x.view(-1))
    check(torch_ops.reduce_max(x, 0), _x)
    check(torch_ops.reduce_min(x, 0), _x)
    check(torch_ops.reduce_sum(x, 0, dtype=torch.uint8), lambda i: _x(i) * rows)


@gib(20)
def test_middle_and_outer():
    """Reductions of three dimensions over the middle one, and over the outer two."""
    a, b, c = 1031, 2003, 1049
    x = filled(a * b * c, lambda i: _x(i // c % b)).view(a, b, c)
    check(torch_ops.reduce_sum(x, 1).view(-1), lambda i: torch.full_like(i, _sum_of_x(b)))
    check(torch_ops.reduce_sum(x, (0, 2)), lambda i: _x(i) * a * c)
    check(torch_ops.reduce_max(x, (0, 2)), _x)
    check(torch_ops.reduce_sum(x.permute(2, 0, 1), (0, 1)), lambda i: _x(i) * a * c)


@gib(14)
def test_transposed():
    n = 46_343
    x = filled(n * n, lambda i: _x(i % n)).view(n, n)
    check(torch_ops.reduce_sum(x.mT, 0), lambda i: torch.full_like(i, _sum_of_x(n)))
    check(torch_ops.reduce_sum(x.mT, 1), lambda i: _x(i) * n)


@gib(14)
def test_rows_with_gaps():
    rows, columns, gap = 46_341, 46_351, 49
    memory = torch.full((rows * (columns + gap),), 255, dtype=torch.uint8, device="cuda").view(rows, columns + gap)
    x = memory[:, :columns]
    for start in range(0, rows, 1024):
        r = torch.arange(start, min(start + 1024, rows), device="cuda")[:, None]
        x[start : start + 1024] = _x(r + torch.arange(columns, device="cuda")).to(torch.uint8)
    check(torch_ops.reduce_sum(x, 1), lambda i: _sums_of_x(i, columns))
    check(torch_ops.reduce_sum(x, 0), lambda i: _sums_of_x(i, rows))
    assert torch_ops.reduce_max(x).item() == PERIOD - 1


@gib(14)
def test_small_problem_with_large_strides():
    """A small problem with strides of the tensor beyond 2^32."""
    stride, rows = 2**22 + 7, 1030
    x = filled(stride * rows, _x).as_strided((rows, 5), (stride, 1))
    values = _x(torch.arange(rows, device="cuda")[:, None] * stride + torch.arange(5, device="cuda"))
    assert torch.equal(torch_ops.reduce_sum(x, 0), values.sum(0))
    assert torch.equal(torch_ops.reduce_sum(x, 1), values.sum(1))
    assert torch_ops.reduce_sum(x).item() == values.sum().item()
    assert torch.equal(torch_ops.reduce_max(x, 1), values.amax(1).to(torch.uint8))


@gib(4)
def test_expanded_rows():
    """More than 2^33 elements, expanded from one row."""
    x = torch.arange(5, dtype=torch.uint8, device="cuda").expand(2**31 + 7, 5)
    assert torch_ops.reduce_sum(x, 0).tolist() == [k * (2**31 + 7) for k in range(5)]
    assert torch_ops.reduce_max(x, 0).tolist() == list(range(5))


# ---------------------------------------------------------------- more than 2^31 results


@gib(14)
@pytest.mark.parametrize("dim", [0, 1])
def test_many_results(dim):
    """More than 2^31 results of two values each, in rows or in columns."""
    x = filled(2 * PAST, _x).view((PAST, 2) if dim else (2, PAST))

    def pair(i):
        return (_x(2 * i), _x(2 * i + 1)) if dim else (_x(i), _x(i + PAST))

    check(torch_ops.reduce_max(x, dim), lambda i: torch.maximum(*pair(i)))
    check(torch_ops.reduce_min(x, dim), lambda i: torch.minimum(*pair(i)))
    check(torch_ops.reduce_sum(x, dim, dtype=torch.uint8), lambda i: sum(pair(i)))
    out = torch.zeros(PAST, 2, dtype=torch.uint8, device="cuda")
    torch_ops.reduce_sum(x, dim, out=out[:, 0])
    check(out[:, 0], lambda i: sum(pair(i)))
    assert not out[:, 1].any(), "an element between the results was written"


@gib(14)
def test_many_results_of_one_value():
    x = filled(PAST, _x)
    check(torch_ops.reduce_max(x.view(PAST, 1), 1), _x)
    check(torch_ops.reduce_sum(x.view(1, PAST), 0, dtype=torch.uint8), _x)


# ---------------------------------------------------------------- gradients


@gib(20)
def test_backward_of_a_sum():
    rows, columns = 2**20, 2**11 + 2
    x = torch.ones(rows, columns, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    weights = torch.arange(rows, device="cuda").remainder(100).to(torch.bfloat16)
    torch_ops.reduce_sum(x, 1).backward(weights)
    check(x.grad.reshape(-1), lambda i: i // columns % 100)


@gib(40)
def test_backward_of_a_maximum():
    """Two tied values, one of them beyond 2^31, share the gradient."""
    x = torch.zeros(PAST, dtype=torch.bfloat16, device="cuda")
    x[5] = x[PAST - 2] = 1
    x.requires_grad_()
    torch_ops.reduce_max(x).backward()
    assert x.grad[5] == 0.5 and x.grad[PAST - 2] == 0.5
    assert x.grad.count_nonzero().item() == 2
