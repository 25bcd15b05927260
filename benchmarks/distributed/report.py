"""The table of a result of ``python -m benchmarks distributed``."""

from __future__ import annotations

from benchmarks.distributed.cases import CASES, Case
from benchmarks.harness import report

TIMES = {"forward_s": "forward", "training_s": "forward and backward"}


def slowest(row: dict, name: str) -> float:
    return max(of_rank[name] for of_rank in row["each"])


def _of(result: dict, case: Case) -> dict[int, dict]:
    return {row["ranks"]: row for row in result["rows"] if row["case"] == case.name}


def _cells(rows: dict[int, dict], counts: list[int], name: str, strong: bool) -> list[str]:
    """The time of each number of ranks, and what remains of one rank's speed on each."""
    cells = []
    for ranks in counts:
        if ranks not in rows:
            cells.append("-")
            continue
        took = slowest(rows[ranks], name)
        text = report.duration(1e6 * took)
        if ranks > 1 and 1 in rows:
            ratio = slowest(rows[1], name) / took
            text += f" ({ratio:.2f} x)" if strong else f" ({ratio:.0%})"
        cells.append(text)
    return cells


def table(result: dict) -> str:
    counts = sorted({row["ranks"] for row in result["rows"]})
    header = ["case", "exchanged", "pass", *(f"{n} rank{'s' if n > 1 else ''}" for n in counts)]
    lines = [header, ["---"] * 3 + ["---:"] * len(counts)]
    for case in CASES:
        rows = _of(result, case)
        for name, title in TIMES.items():
            if rows:
                lines.append([case.name, case.exchanged, title, *_cells(rows, counts, name, case.strong)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(result: dict) -> str:
    commit = (result["source"]["commit"] or "unknown")[:7]
    said = f"Measured on {result['gpu']['name']}, {result['date'][:10]}, at commit {commit}."
    return f"{said} Times are microseconds of the slowest rank.\n\n{table(result)}"
