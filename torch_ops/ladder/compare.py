"""``torch_ops.ladder.compare`` and ``roofline``: a process for the kernel, and what it found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from torch_ops._arguments import check_type
from torch_ops.ladder import counters as ladder_counters
from torch_ops.ladder.measured import YOURS, Measured
from torch_ops.ladder.roofline import Roofline
from torch_ops.ladder.source import Build, located
from torch_ops.ladder.step import steps as steps_of

__all__ = ["Comparison", "Fault", "compare", "roofline"]

_INSIDE = "TORCH_OPS_LADDER_CHILD"
_NO_GPU = "Nothing was timed: torch sees no GPU here. Values, memory, repeats and views were checked on CPU tensors."


@dataclass(frozen=True)
class Fault:
    """What is wrong with a kernel.

    Args:
        kind: Its name, such as ``"race"``. ``docs/practise.md`` lists them.
        view: The operands on which it was found, such as ``"transposed"``, or "".
        text: A sentence or two, or the output of the compiler.
    """

    kind: str
    view: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found.

    Args:
        op: The ladder.
        kernel: The name of the kernel's file.
        faults: What is wrong with it. Empty for a kernel that is right.
        declined: The operands that it declines.
        checked: The number of views that were right.
        notes: Further sentences.
        builds: Registers and spilled bytes of each kernel in a ``.cu`` file.
        measured: The times. None if the kernel is wrong, or without a GPU.
        counters: Hardware counters of a kernel that is slower than a step, if ncu can read them.
    """

    op: str
    kernel: str
    faults: list[Fault] = field(default_factory=list)
    declined: list[str] = field(default_factory=list)
    checked: int = 0
    notes: list[str] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    measured: Measured | None = None
    counters: ladder_counters.Counters | None = None

    @property
    def right(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def reasons(self) -> list[str]:
        """Why a kernel is slower than a step, as far as the compiler and the counters know."""
        if self.measured is None or self.measured.next() is None:
            return []
        counted = self.counters.reasons(self.measured) if self.counters else []
        return counted + [
            f"Slow, spill: the kernel {build.kernel} needs more than its {build.registers} registers, and keeps"
            f" {build.spilled} bytes of each thread in memory."
            for build in self.builds
            if build.spilled
        ]

    def json(self) -> str:
        """Everything as JSON."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Comparison:
        """A comparison from what :meth:`json` wrote, parsed."""
        parts = {"measured": Measured, "counters": ladder_counters.Counters}
        made: dict[str, Any] = {name: kind(**found[name]) if found[name] else None for name, kind in parts.items()}
        made["faults"] = [Fault(**fault) for fault in found["faults"]]
        made["builds"] = [Build(**build) for build in found["builds"]]
        return cls(**{**found, **made})

    def __str__(self) -> str:
        lines = [self._verdict(), *(f"- {_of_fault(fault)}" for fault in self.faults)]
        if self.declined:
            lines.append(f"It declines operands: {', '.join(self.declined)}.")
        lines += self.notes
        if self.measured:
            lines += ["", self.measured.title(), "", *self.measured.lines(), "", *self.measured.standing()]
            registers = ", ".join(f"{build.kernel} {build.registers}" for build in self.builds)
            lines += [f"Registers per thread: {registers}."] if registers else []
            lines += self.reasons()
        elif self.faults:
            lines.append("Nothing was timed, because the kernel is wrong.")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.faults:
            kinds = ", ".join(dict.fromkeys(fault.kind for fault in self.faults))
            views = [fault.view for fault in self.faults]
            only = f", only of {', '.join(views)} operands" if all(views) and self.checked else ""
            return f"{self.kernel} is wrong: {kinds}{only}."
        return f"{self.kernel} is right: {self.checked} kinds of operands checked." if self.checked else self.kernel


def _of_fault(fault: Fault) -> str:
    of = f" ({fault.view} operands)" if fault.view else ""
    return f"{fault.kind}{of}: {fault.text}"


def compare(
    op: str, kernel: str | os.PathLike[str] | Callable[..., Any], *, time_limit: float = 120.0, counters: bool = True
) -> Comparison:
    """Checks a kernel of yours, and measures it among the steps of a ladder.

    The kernel runs in a process of its own. It is compared with float64 on operands in several views. Memory around operands and
    results is watched. It is called again on the same operands, and on other ones at the same addresses. On a GPU it is then timed
    with every step, with cold caches. Without a GPU a Python function is checked on CPU tensors, and nothing is timed.

    Args:
        op: One of :func:`torch_ops.ladder.ops`.
        kernel: A ``.cu`` file or a ``.py`` file whose function has the name of the ladder, or a function at the top level of a file.
            ``python -m torch_ops.ladder start <op>`` prints a ``.cu`` file to begin with. A Python function gets the arguments of
            :func:`torch_ops.ladder.run`. It declines operands by raising :class:`NotImplementedError`.
        time_limit: Seconds after which the process is ended.
        counters: Whether to read hardware counters of a kernel that is slower than a step. This needs ncu, and a second process.

    Raises:
        TypeError: an argument has another type.
        ValueError: there is no such ladder, the function has no file, or ``time_limit`` is not above 0.
        FileNotFoundError: there is no such file.
    """
    _check("ladder.compare", op, time_limit)
    check_type("ladder.compare", "counters", counters, bool)
    path, function = located("ladder.compare", kernel)
    events, ended, _ = _run(op, path, function, time_limit)
    found = [Fault(x["kind"], x["view"], x["text"]) for x in events if x["event"] == "fault"]
    if ended:
        found.append(ended)
    measured, counted = None if found else _measured(op, events, path.name), None
    profiler = ladder_counters.command() if counters and measured and measured.next() else None
    if profiler:
        counted = ladder_counters.of_output(_run(op, path, function, time_limit, profiler)[2])
    return Comparison(
        op, path.name, found,
        [x["view"] for x in events if x["event"] == "declined"],
        next((x["views"] for x in events if x["event"] == "checked"), 0),
        list(dict.fromkeys(_notes(events, found))),
        [Build(x["kernel"], x["registers"], x["spilled"]) for x in events if x["event"] == "build"],
        measured, counted,
    )  # fmt: skip


def roofline(
    op: str, kernel: str | os.PathLike[str] | Callable[..., Any] | None = None, *, time_limit: float = 120.0
) -> Roofline:
    """The roofline of this GPU, with all steps of a ladder and a kernel of yours.

    Bytes and arithmetic are counted from the problem, so all steps have the same intensity.

    Args:
        op, kernel, time_limit: As for :func:`compare`.

    Raises:
        TypeError, ValueError, FileNotFoundError: as :func:`compare`.
        RuntimeError: there is no GPU, or the kernel is wrong.
    """
    _check("ladder.roofline", op, time_limit)
    if kernel is not None:
        located("ladder.roofline", kernel)
    if not torch.cuda.is_available():
        raise RuntimeError("ladder.roofline: a roofline is measured, and torch sees no GPU here")
    if kernel is not None:
        comparison = compare(op, kernel, time_limit=time_limit, counters=False)
        if comparison.measured is None:
            raise RuntimeError(str(comparison))
        return Roofline(comparison.measured)
    events, ended, _ = _run(op, None, None, time_limit)
    measured = _measured(op, events, "")
    if measured is None:
        raise RuntimeError(
            f"ladder.roofline: the steps of {op} could not be measured: {ended.text if ended else events}"
        )
    return Roofline(measured)


def _check(caller: str, op: Any, time_limit: Any) -> None:
    """Raises if there is no such ladder, or no such limit."""
    check_type(caller, "op", op, str)
    check_type(caller, "time_limit", time_limit, float)
    steps_of(op)
    if not time_limit > 0:
        raise ValueError(f"{caller}: time_limit must be above 0, got {time_limit}")


def _notes(events: list[dict[str, Any]], faults: list[Fault]) -> list[str]:
    notes = [x["text"] for x in events if x["event"] == "note"]
    checked = any(x["event"] == "checked" for x in events)
    return [*notes, _NO_GPU] if checked and not faults and not torch.cuda.is_available() else notes


def _measured(op: str, events: list[dict[str, Any]], kernel: str) -> Measured | None:
    found = next((dict(x) for x in events if x["event"] == "measured"), None)
    if found is None:
        return None
    found.pop("event")
    times = found.pop("times")
    yours = times.pop(YOURS, None)
    return Measured(op, **found, steps=times, yours=yours, kernel=kernel)


def _run(
    op: str, path: Path | None, function: str | None, limit: float, profiler: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], Fault | None, list[str]]:
    """The events of a process, how it ended if that was before its end, and the lines that it wrote.

    Under a profiler, the kernel is called and nothing else.
    """
    if os.environ.get(_INSIDE):
        raise RuntimeError(
            'ladder.compare was called while its kernel was loaded: call it below `if __name__ == "__main__":`'
        )
    with tempfile.TemporaryDirectory(prefix="torch_ops_ladder_") as folder:
        file, said = Path(folder, "asked.json"), Path(folder, "said")
        asked = {"op": op, "kernel": path and str(path), "function": function, "profiled": bool(profiler)}
        file.write_text(json.dumps(asked | {"device": "cuda" if torch.cuda.is_available() else "cpu"}))
        code = _ended([*profiler, sys.executable, "-m", "torch_ops.ladder.child", str(file)], said, limit)
        lines = said.read_text(errors="replace").strip().splitlines()
        written = file.with_suffix(".events")
        events = [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []
    stage = next((x["name"] for x in reversed(events) if x["event"] == "stage"), "the start")
    ended = None
    if code is None:
        ended = Fault("time limit", "", f"{stage} took longer than the time limit of {limit:g} s")
    elif not any(x["event"] == "done" for x in events):
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        last = f": {lines[-1]}" if lines else ""
        ended = Fault("crash", "", f"the process ended in {stage}, with {how}{last}")
    return events, ended, lines


def _ended(command: list[str], said: Path, limit: float) -> int | None:
    """The exit status of a process, whose output goes to a file. None if it was ended at the time limit."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {_INSIDE: "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with said.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # also what the kernel's process started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
