"""docs/random.md and its plot, from the newest result of ``python -m benchmarks sweep``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.publish import age, page, plots
from benchmarks.random import report as problems

PAGE = machine.REPOSITORY / "docs" / "random.md"


def worst(result: dict, count: int = 5) -> str:
    """The problems that are slowest beside ATen, of each operator."""
    lines = [
        "| operator | problem | dtype | gpuopt us | ATen us | speed-up | share of the ceiling |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for family in problems.families_of(result):
        rows = [row for row in problems.rows_of(result, family) if problems.aten_ratio(row) is not None]
        for row in sorted(rows, key=problems.aten_ratio)[:count]:
            if problems.aten_ratio(row) >= problems.SLOWER:
                break
            ours = report.median_us(row, "gpuopt")
            lines.append(
                f"| {family} | {row['case']} | {row['dtype']} | {ours:.1f} | {ours * problems.aten_ratio(row):.1f}"
                f" | {problems.aten_ratio(row):.2f} | {report.cell(report.share_of_ceiling(row, 'gpuopt'), '.0%')} |"
            )
    return "\n".join(lines)


def conditions(result: dict) -> str:
    """Rows that were added later have the commit at which they were measured."""
    gpu, versions = result["gpu"], result["versions"]
    commit = result["source"]["commit"] or "unknown"
    commits = dict.fromkeys([commit, *(row.get("commit", commit) for row in result["rows"])])
    return (
        f"{len(result['rows'])} problems (seed {result['settings']['seed']}), {gpu['name']}, torch {versions['torch']}, "
        f"CUDA {versions['cuda']}, {result['date'][:10]}, commits {', '.join(commit[:7] for commit in commits)}."
        f"{result.get('old', '')}"
    )


def pages(told: bool | None = None) -> dict[Path, str]:
    path = report.newest("sweep.json")
    result = report.load(path)
    age.check({path: result}, told)
    parts = {
        "conditions": conditions(result),
        "table": problems.table(result),
        "plot": plots.mark("sweep.png", path, "random problems: traffic against the share of the ceiling"),
        "worst": worst(result),
    }
    return {PAGE: page.filled(PAGE.name, parts, PAGE.read_text())}
