"""The table of docs/cuda_graph.md, from the newest result of ``python -m benchmarks models --modes graph``."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.models import report as models
from benchmarks.publish import layouts, page

PAGE = machine.REPOSITORY / "docs" / "cuda_graph.md"
FILE = "models-graph.json"


def table(result: dict) -> str:
    rows = models.ordered(result["rows"])
    ratios = [found for row in rows if (found := models.graph_ratio(row))]
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "unknown"
    return f"The geometric mean of {len(ratios)} ratios is {mean}, the least {min(ratios, default=0):.2f}.\n\n{models.graphs(rows)}"


def pages(told: bool | None = None) -> dict[Path, str]:
    text = layouts.part(report.newest(FILE), told, table)
    return {PAGE: page.filled(PAGE.name, {"graphs": text}, PAGE.read_text())}
