"""Which additions of rows are faster here. tests/plan/test_override_policy.py holds it to measurements."""

from __future__ import annotations

import torch

_KIB, _MIB = 1 << 10, 1 << 20


def takes_rows(moved: int, dtype: torch.dtype, row: int, entries_per_row: int, deterministic: bool) -> bool:
    """Whether gpuopt adds rows faster than Inductor's kernel.

    Inductor's kernel adds atomically, and computes what it adds in the same kernel. That is slow only where many entries name the same
    row. For bfloat16 and in deterministic mode it calls PyTorch's kernel, which sorts.

    Args:
        moved: The bytes that are read and written.
        dtype: The dtype of Inductor's sum.
        row: The bytes of a row.
        entries_per_row: The entries of the index for each row of the result, rounded down.
        deterministic: Whether PyTorch must add in a fixed order.
    """
    if deterministic or is_count(dtype, row):
        return moved >= 256 * _KIB
    if dtype == torch.bfloat16:
        return moved >= _MIB
    # A call of an operator costs the host more than a launch of Inductor's.
    return entries_per_row >= 256 and moved >= 8 * _MIB


def is_count(dtype: torch.dtype, row: int) -> bool:
    """Whether rows are single values of a half type, as ``policy::is_count``."""
    return dtype.itemsize == 2 and row == 2


def sums_in_float32(moved: int, row: int, entries: int, rows: int) -> bool:
    """Whether half types are added in mode ``accurate``, as ``policy::sums_in_float32``.

    Args:
        moved: The bytes that are read and written.
        row: The bytes of a row.
        entries: The entries of the index.
        rows: The rows of the result.
    """
    return row == 2 or (moved >= 12 * _MIB and row >= 16 and 4 * entries >= rows)


def moved_bytes(result: int, source: int, item: int, entries: int) -> int:
    """The bytes that are read and written: the index, the source, and each named row of the result twice.

    Args:
        result: The number of elements of the result.
        source: The number of elements that are added.
        item: The bytes of an element.
        entries: The entries of the index.
    """
    return item * (source + 2 * min(result, source)) + 8 * entries
