"""The generated table of docs/distributed.md, from the newest result of ``python -m benchmarks distributed`` on GPUs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.distributed import report as distributed
from benchmarks.harness import machine, report
from benchmarks.publish import age, page

PAGE = machine.REPOSITORY / "docs" / "distributed.md"
FILE = "distributed.json"


def pages(told: bool | None = None) -> dict[Path, str]:
    on_gpus = [path for path in machine.RESULTS.glob(f"*/{FILE}") if path.parent.name != "cpu"]
    newest = max(on_gpus, key=lambda path: report.load(path)["date"], default=None)
    text = "Not measured yet."
    if newest:
        results = {newest: report.load(newest)}
        age.check(results, told)
        text = distributed.text(results[newest]) + results[newest].get("old", "")
    return {PAGE: page.filled(PAGE.name, {"gpus": text}, PAGE.read_text())}
