"""The generated parts of docs/partitioned.md, from the newest result of ``python -m benchmarks partitioned`` on GPUs, and of the CPU's."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.partitioned import report as partitioned
from benchmarks.publish import age, page, plots

PAGE = machine.REPOSITORY / "docs" / "partitioned.md"
FILE = "partitioned.json"


def part(path: Path | None) -> str:
    if path is None:
        return "Not measured yet."
    result = report.load(path)
    plot = plots.mark("partitioned.png", path, "seconds of a count over ranks, measured and predicted")
    return f"{partitioned.text(result)}\n\n{plot}"


def pages(told: bool | None = None) -> dict[Path, str]:
    cpu = machine.RESULTS / "cpu" / FILE
    on_gpus = [path for path in machine.RESULTS.glob(f"*/{FILE}") if path != cpu]
    gpu = max(on_gpus, key=lambda path: report.load(path)["date"], default=None)
    old = ""
    if gpu:
        results = {gpu: report.load(gpu)}
        age.check(results, told)
        old = results[gpu].get("old", "")
    parts = {"gpus": part(gpu) + old, "cpus": part(cpu if cpu.exists() else None)}
    return {PAGE: page.filled(PAGE.name, parts, PAGE.read_text())}
