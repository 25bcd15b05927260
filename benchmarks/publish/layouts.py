"""The table of docs/layout.md, from the newest result of ``python -m benchmarks models --modes layout``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.models import report as models
from benchmarks.publish import age, page

PAGE = machine.REPOSITORY / "docs" / "layout.md"
FILE = "layouts.json"


def part(path: Path | None, told: bool | None, table: Callable[[dict], str]) -> str:
    """The conditions of a result of ``python -m benchmarks models``, and a table of it."""
    if path is None:
        return models.NOT_MEASURED
    result = report.load(path)
    age.check({path: result}, told)
    link = f"../{path.relative_to(machine.REPOSITORY)}"
    return f"{models.conditions(result)} [Every number]({link}).{result.get('old', '')}\n\n{table(result)}"


def pages(told: bool | None = None) -> dict[Path, str]:
    return {
        PAGE: page.filled(PAGE.name, {"layouts": part(report.newest(FILE), told, models.layouts)}, PAGE.read_text())
    }
