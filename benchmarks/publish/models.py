"""docs/models.md and its plot, from the newest result of ``python -m benchmarks models``."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.models import report as models
from benchmarks.publish import age, graphs, page

PAGE = machine.REPOSITORY / "docs" / "models.md"


def short(rows: list[dict], of_graphs: list[dict]) -> str:
    """Medians of what graph networks and other models gain."""

    def median(of: list[dict], ratio: Callable[[dict], float | None]) -> str:
        found = [value for row in of if (value := ratio(row))]
        return f"{statistics.median(found):.2f} of {len(found)}" if found else "-"

    def is_graph(row: dict) -> bool:
        return models.LAYERS in row["contenders"]

    eager = [row for row in rows if row["mode"] == "eager"]
    lines = []
    for name, wanted in (("graph networks", True), ("other models", False)):
        of, recorded = ([row for row in group if is_graph(row) == wanted] for group in (eager, of_graphs))
        lines.append(
            [
                name,
                median(of, lambda row: models.ratio(row, "ms")),
                median(of, lambda row: models.ratio(row, "gpu_ms")),
                median(of, lambda row: models.ratio(row, "ms", models.LAYERS)),
                median(recorded, models.graph_ratio),
            ]
        )
    header = [
        "steps of",
        "`override()`",
        "its GPU time",
        "drop-in for PyTorch Geometric",
        "[as CUDA graphs](cuda_graph.md)",
    ]
    return models.table(header, lines)


def pages(told: bool | None = None) -> dict[Path, str]:
    path = report.newest("models.json")
    result = report.load(path)
    age.check({path: result}, told)
    made = models.parts(result)
    folder = f"../{path.parent.relative_to(machine.REPOSITORY)}"
    of_graphs = report.newest(graphs.FILE)
    made["short"] = short(result["rows"], report.load(of_graphs)["rows"] if of_graphs else [])
    made["plot"] = f"![ratios of wall clock of every model]({folder}/models.png)"
    made["conditions"] += f" [Every number]({folder}/models.json).{result.get('old', '')}"
    return {PAGE: page.filled(PAGE.name, made, PAGE.read_text())}
