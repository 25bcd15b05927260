"""The process of a kernel: ``python -m torch_ops.ladder.child FILE``. It writes what it finds line by line, so that a crash leaves it.

The file has what :func:`torch_ops.ladder.compare` asks for, as JSON. Events are written behind it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from torch_ops.ladder import clock
from torch_ops.ladder.checks import Tell, check, differs, fault_of
from torch_ops.ladder.measured import YOURS
from torch_ops.ladder.problems import PROBLEMS, Problem
from torch_ops.ladder.source import BuildFailed, Kernel, load
from torch_ops.ladder.step import steps as steps_of

__all__ = ["call_once", "main", "measure"]


def main(file: Path) -> None:
    """Loads, checks and times a kernel."""
    asked = json.loads(file.read_text())
    events = file.with_suffix(".events").open("a")
    faults = 0

    def tell(event: str, **values: Any) -> None:
        nonlocal faults
        faults += event == "fault"
        events.write(json.dumps({"event": event, **values}) + "\n")
        events.flush()

    problem, kernel = PROBLEMS[asked["op"]], None
    if asked["kernel"]:
        tell("stage", name="compiling" if asked["kernel"].endswith(".cu") else "importing the file")
        try:
            kernel = load(problem, Path(asked["kernel"]), asked["function"], file.parent)
        except BuildFailed as error:
            tell("fault", kind=error.kind, view="", text=str(error))
            tell("done")
            return
        for build in kernel.builds:
            tell("build", **asdict(build))
        if kernel.is_native and asked["device"] == "cpu":
            tell("note", text="The file compiles. Nothing was run: torch sees no GPU here.")
            tell("done")
            return
        if asked["profiled"]:
            call_once(problem, kernel)
            return
        may_vary = not all(step.repeatable for step in steps_of(problem.op))
        check(problem, kernel, asked["device"], may_vary, tell)
    if not faults and asked["device"] == "cuda":
        try:
            measure(problem, kernel, tell)
        except Exception as error:
            tell("fault", view="measured", **fault_of(error))
    tell("done")


def call_once(problem: Problem, kernel: Kernel) -> None:
    """A call on the measured problem, which a profiler sees alone."""
    operands = problem.operands("cuda", "measured", 0)
    expected = problem.expected(operands)
    kernel.call(operands, expected, None)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    kernel.call(operands, expected, None)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def measure(problem: Problem, kernel: Kernel | None, tell: Tell) -> None:
    """Times every step and the kernel on the measured problem, and checks the kernel's results before and after."""
    tell("stage", name="the measured problem")
    operands = problem.operands("cuda", "measured", 0)
    expected = problem.expected(operands)
    read, written = problem.traffic(operands, expected)
    shapes = [list(x.shape) if isinstance(x, torch.Tensor) else x for x in operands]
    operations = problem.operations(*operands)
    found = _times(problem, kernel, operands, expected, clock.copies_of(read + written), tell)
    del operands, expected
    torch.cuda.empty_cache()
    bytes_per_us, pattern = clock.bandwidth(read, written)
    tell(
        "measured", gpu=torch.cuda.get_device_name(), shapes=shapes, read=read, written=written,
        operations=operations, bytes_per_us=bytes_per_us, pattern=pattern, rates=clock.rates(),
        times={name: asdict(time) for name, time in found.items()},
    )  # fmt: skip


def _times(
    problem: Problem,
    kernel: Kernel | None,
    operands: tuple[Any, ...],
    expected: tuple[Any, ...],
    copies: int,
    tell: Tell,
) -> dict[str, clock.Time]:
    sets = [operands, *(problem.operands("cuda", "measured", seed) for seed in range(1, copies))]
    if kernel:
        _check_sets(problem, kernel, sets, tell)
    tell("stage", name="timing")
    calls = clock.calls_of_steps(problem.op, problem.operands("cuda", "small", 0), sets)
    if kernel:
        calls[YOURS] = lambda number: kernel.call(sets[number % copies], expected, None)
    found = clock.times(calls)
    if isinstance(error := found.get(YOURS), Exception):
        raise error
    if kernel:
        _check_sets(problem, kernel, sets, tell)
    return {name: time for name, time in found.items() if isinstance(time, clock.Time)}


def _check_sets(problem: Problem, kernel: Kernel, sets: list[tuple[Any, ...]], tell: Tell) -> None:
    for operands in sets:
        expected = problem.expected(operands)
        results = kernel.call(operands, expected, None)
        torch.cuda.synchronize()
        if text := differs(problem, results, expected):
            tell("fault", kind="wrong values", view="measured", text=text)
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
