"""Which additions of rows are faster here. tests/plan/test_override_policy.py holds it to measurements."""

from __future__ import annotations

_KIB, _MIB = 1 << 10, 1 << 20


def takes_rows(moved: int, item: int, entries_per_row: int, deterministic: bool) -> bool:
    """Whether gpuopt adds rows faster than Inductor's kernel.

    Inductor's kernel adds float32 values atomically and computes what it adds in the same kernel. That is slow only where many entries
    name the same row. For half types and in deterministic mode it calls PyTorch's kernel.

    Args:
        moved: The bytes that are read and written.
        item: The bytes of an element of Inductor's sum.
        entries_per_row: The entries of the index for each row of the result, rounded down.
        deterministic: Whether PyTorch must add in a fixed order.
    """
    if deterministic:
        return moved >= 256 * _KIB
    if item == 2:
        return moved >= _MIB
    # A call of an operator costs the host more than a launch of Inductor's.
    return entries_per_row >= 64 and moved >= 8 * _MIB


def moved_bytes(result: int, source: int, item: int, entries: int) -> int:
    """The bytes that are read and written: the index, the source, and each named row of the result twice.

    Args:
        result: The number of elements of the result.
        source: The number of elements that are added.
        item: The bytes of an element.
        entries: The entries of the index.
    """
    return item * (source + 2 * min(result, source)) + 8 * entries
