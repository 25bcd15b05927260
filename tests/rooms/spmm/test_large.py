"""Sparse products with dense tensors of more than 2^31 elements, and with more than 2^31 entries. A closed form gives the result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import PAST, PERIOD, check, filled, ramp_sums

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib
BF16 = torch.bfloat16


def _x(i):
    """Small integers: sums of two are exact in bfloat16."""
    return i % 13


@gib(16)
@pytest.mark.parametrize("reduce", ["sum", "amax"])
@pytest.mark.parametrize("features", [1, 64, 65])
def test_large_operands(features, reduce):
    """Row r has the columns r, and r counted from the last one. With one feature, there are fewer rows than columns."""
    columns = PAST // features + 1
    rows = min(columns, 2**25 + 77)
    dense = filled(columns * features, _x, BF16).view(columns, features)
    r = torch.arange(rows, device="cuda")
    index = torch.stack([columns - 1 - r, r], 1).view(-1)
    ptr = 2 * torch.arange(rows + 1, device="cuda")
    got = torch_ops.spmm(torch_ops.CSR(ptr, index, shape=(rows, columns)), dense, reduce)

    def expected(i):
        row, feature = i // features, i % features
        far, near = _x((columns - 1 - row) * features + feature), _x(i)
        return far + near if reduce == "sum" else torch.maximum(far, near)

    assert got.shape == (rows, features)
    check(got.view(-1), expected)


ROW = 1021  # entries


def _many_entries() -> tuple[torch_ops.CSR, int]:
    """Rows of ROW entries. Entry e is in column e % PERIOD. Nothing is checked, which would take as much memory again."""
    rows = PAST // ROW + 1
    index = filled(rows * ROW, lambda e: e % PERIOD, torch.int64)
    ptr = ROW * torch.arange(rows + 1, device="cuda")
    return torch_ops.CSR(ptr, index, shape=(rows, PERIOD), check=False), rows


@gib(22)
def test_product_of_many_entries():
    csr, _ = _many_entries()
    dense = torch.arange(PERIOD, dtype=torch.float32, device="cuda")[:, None]
    check(torch_ops.spmm(csr, dense).view(-1), lambda r: ramp_sums(r * ROW, ROW))


@gib(26)
def test_sampled_products_of_many_entries():
    csr, rows = _many_entries()
    a = (torch.arange(rows, device="cuda") % 2 + 1).to(BF16)[:, None]
    b = torch.arange(PERIOD, device="cuda").to(BF16)[:, None]
    check(torch_ops.sddmm(csr, a, b), lambda e: (e // ROW % 2 + 1) * (e % PERIOD))
