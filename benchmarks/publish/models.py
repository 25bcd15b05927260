"""docs/models.md and its plot, from the newest result of ``python -m benchmarks models``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.models import report as models
from benchmarks.publish import age, page

PAGE = machine.REPOSITORY / "docs" / "models.md"


def pages(told: bool | None = None) -> dict[Path, str]:
    path = report.newest("models.json")
    result = report.load(path)
    age.check({path: result}, told)
    made = models.parts(result)
    folder = f"../{path.parent.relative_to(machine.REPOSITORY)}"
    made["plot"] = f"![ratios of wall clock of every model]({folder}/models.png)"
    made["conditions"] += f" [Every number]({folder}/models.json).{result.get('old', '')}"
    return {PAGE: page.filled(PAGE.name, made, PAGE.read_text())}
