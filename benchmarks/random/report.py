"""Tables of random problems, from the JSON of ``python -m benchmarks sweep``."""

from __future__ import annotations

import statistics

from benchmarks.harness import report
from benchmarks.random import problems

LARGE = 64 << 20  # bytes; from here on the share of the ceiling tells something
SLOWER = 0.95


def ratio(row: dict, *names: str) -> float | None:
    """The time of the first of these peers that ran, over gpuopt's."""
    ours = report.median_us(row, "gpuopt")
    theirs = next((us for name in names if (us := report.median_us(row, name)) is not None), None)
    return None if ours is None or theirs is None else theirs / ours


def aten_ratio(row: dict) -> float | None:
    """Selective scans, which ATen has not, are compared with mamba_ssm."""
    return ratio(row, "ATen deterministic", "ATen", "mamba_ssm")


def bytes_of(row: dict) -> int:
    return row["read_bytes"] + row["written_bytes"]


HEADER = (
    "operator", "problems", "x ATen: median", "slower", "worst", "x Inductor: median", "worst", "ceiling: median", "worst"
)  # fmt: skip


def families_of(result: dict) -> list[str]:
    return [name for name in problems.FAMILIES if any(row["op"] == name for row in result["rows"])]


def rows_of(result: dict, family: str) -> list[dict]:
    return [row for row in result["rows"] if row["op"] == family]


def aten_ratios(rows: list[dict]) -> list[float]:
    return [r for row in rows if (r := aten_ratio(row)) is not None]


def slower(ratios: list[float]) -> float:
    """The share of ratios that count as slower."""
    return sum(r < SLOWER for r in ratios) / len(ratios)


def table(result: dict, families: list[str] | None = None) -> str:
    lines = [HEADER, ("---", *["---:"] * (len(HEADER) - 1))]
    for family in families_of(result) if families is None else families:
        rows = rows_of(result, family)
        aten = aten_ratios(rows)
        inductor = [r for row in rows if (r := ratio(row, "Inductor")) is not None]
        shares = [s for row in rows if bytes_of(row) >= LARGE and (s := report.share_of_ceiling(row)) is not None]

        def cells(found: list[float], form: str) -> list[str]:
            return [f"{statistics.median(found):{form}}", f"{min(found):{form}}"] if found else ["-", "-"]

        name = f"{family}, x mamba_ssm" if family.startswith("selective_scan") else family
        median, least = cells(aten, ".2f")
        part = f"{slower(aten):.0%}" if aten else "-"
        figures = (name, str(len(rows)), median, part, least, *cells(inductor, ".2f"), *cells(shares, ".0%"))
        lines.append(figures)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
