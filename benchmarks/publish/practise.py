"""The generated parts of docs/practise.md: the entry points, and what was found of the kernels in examples/practise.

``python -m torch_ops.ladder compare reduce_sum examples/practise/<name>.cu --json benchmarks/results/<gpu>/practise/<name>.json``
writes the files of findings.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.harness import machine
from benchmarks.publish import page

PAGE = machine.REPOSITORY / "docs" / "practise.md"
EXAMPLES = machine.REPOSITORY / "examples" / "practise"
SHOWN = ("blocks", "warps")


def entries() -> str:
    """The declaration of each ladder's entry point."""
    from torch_ops.ladder.problems import PROBLEMS
    from torch_ops.ladder.start import declared

    lines = (declared(f"cudaError_t {problem.op}({problem.parameters}, ...)") + ";" for problem in PROBLEMS.values())
    return "```cuda\n" + "\n".join(lines) + "\n```"


def found(name: str) -> str:
    """What was found of an example, as the command prints it."""
    from torch_ops.ladder import Comparison

    paths = sorted(machine.RESULTS.glob(f"*/practise/reduce_sum_{name}.json"))
    if not paths:
        return "Not measured yet."
    text = str(Comparison.of_json(json.loads(paths[-1].read_text())))
    return f"```text\n{text}\n```\n\nFrom [{paths[-1].name}](../{paths[-1].relative_to(machine.REPOSITORY)})."


def code(name: str) -> str:
    return f"```cuda\n{(EXAMPLES / f'reduce_sum_{name}.cu').read_text()}```"


def pages(told: bool | None = None) -> dict[Path, str]:
    """The text of the page. It shows examples, so the age of their times does not matter."""
    parts = {"entries": entries()}
    for name in SHOWN:
        parts[name] = f"{code(name)}\n\n{found(name)}"
    return {PAGE: page.filled(PAGE.name, parts, PAGE.read_text())}
