"""Which additions of rows are faster here. tests/plan/test_override_policy.py holds it to csrc/override/policy.h."""

from __future__ import annotations

_KIB, _MIB = 1 << 10, 1 << 20


def takes_rows(moved: int, item: int, entries_per_row: int, deterministic: bool) -> bool:
    """Whether gpuopt adds rows faster than PyTorch, as ``policy::index_add``.

    Args:
        moved: The bytes that are read and written.
        item: The bytes of an element.
        entries_per_row: The entries of the index for each row of the result, rounded down.
        deterministic: Whether PyTorch must add in a fixed order.
    """
    is_sorted = deterministic or entries_per_row >= 64
    return moved >= (256 * _KIB if is_sorted else _MIB if item == 2 else 4 * _MIB)


def moved_bytes(result: int, source: int, item: int, entries: int) -> int:
    """The bytes that are read and written: the index, the source, and each named row of the result twice.

    Args:
        result: The number of elements of the result.
        source: The number of elements that are added.
        item: The bytes of an element.
        entries: The entries of the index.
    """
    return item * (source + 2 * min(result, source)) + 8 * entries
