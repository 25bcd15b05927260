"""Tables of text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["number", "table"]


def table(rows: Sequence[Sequence[str]], texts: Sequence[int] = (0,)) -> list[str]:
    """Lines with aligned columns. Columns of ``texts`` are aligned to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if i in texts else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def number(value: float | None) -> str:
    """Three digits, or "-" for None."""
    if value is None:
        return "-"
    if abs(value) >= 1000 or not value:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.3f}"
