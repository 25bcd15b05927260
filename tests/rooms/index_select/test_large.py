"""Gathers from tables of more than 2^31 elements into results as large. A closed form gives the result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import PAST, check, filled, ramp

pytestmark = [pytest.mark.gpu, pytest.mark.large]


@pytest.mark.gib(26)
@pytest.mark.parametrize("width", [1, 3, 64, 1000])
def test_rows_backwards(width):
    """More than 2^31 elements, and with rows of one more than 2^31 rows and indices."""
    rows = PAST // width + 1
    table = filled(rows * width, ramp).view(rows, width)
    index = filled(rows, lambda r: rows - 1 - r, torch.int64)
    got = torch_ops.index_select(table, 0, index)
    check(got.view(-1), lambda i: ramp((rows - 1 - i // width) * width + i % width))
