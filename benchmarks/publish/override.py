"""The evidence of docs/override.md, from the newest result of ``python -m benchmarks override``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.publish import age, page
from benchmarks.random import override_report

PAGE = machine.REPOSITORY / "docs" / "override.md"
NOTHING = "No rows are committed yet. `python -m benchmarks override` measures them."


def conditions(result: dict) -> str:
    gpu, versions, settings = result["gpu"], result["versions"], result["settings"]
    return (
        f"{len(result['rows'])} problems (seeds {', '.join(map(str, settings['seeds']))}), {gpu['name']}, torch "
        f"{versions['torch']}, CUDA {versions['cuda']}, {result['date'][:10]}, commit {result['source']['commit'][:7]}."
        f"{result.get('old', '')}"
    )


def parts(result: dict | None) -> dict[str, str]:
    if result is None:
        return {"evidence": NOTHING}
    slower = "Slower than ATen:\n\n" + override_report.losses(result)
    return {"evidence": "\n\n".join((conditions(result), override_report.by_operator(result), slower))}


def pages(told: bool | None = None) -> dict[Path, str]:
    path = report.newest("override.json")
    result = None if path is None else report.load(path)
    if path is not None:
        age.check({path: result}, told)
    return {PAGE: page.filled(PAGE.name, parts(result), PAGE.read_text())}
