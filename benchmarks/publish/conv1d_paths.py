"""csrc/conv1d/MEASUREMENTS.md, from the times of every path of convolutions."""

import json
from pathlib import Path

from benchmarks.harness import machine
from benchmarks.publish import age
from benchmarks.random import tune

PAGE = machine.REPOSITORY / "csrc/conv1d/MEASUREMENTS.md"


def pages(told: bool | None = None) -> dict[Path, str]:
    header = json.loads(tune.EVIDENCE.read_text().partition("\n")[0]) | {"room": "conv1d"}
    age.check({tune.EVIDENCE: header}, told)
    measured = tune.evidence(tune.EVIDENCE)
    found = tune.quality(measured, [m.chosen for m in measured])
    text = f"""# What the paths of convolutions are worth

Written by `python -m benchmarks pages` from
[{tune.EVIDENCE.name}](../../{tune.EVIDENCE.relative_to(machine.REPOSITORY)}). The chosen paths of {found}.{header.get("old", "")}

{tune.table(measured)}
"""
    return {PAGE: text}
