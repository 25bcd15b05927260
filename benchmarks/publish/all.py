"""Measures everything that is published, on one card and at one commit.

    python -m benchmarks all                              every part of benchmarks/publish/published.py
    python -m benchmarks all sweep "ladder transpose2d"   some parts; "ladder" is every ladder
    python -m benchmarks all --stale                      the parts whose committed result is older than its kernels
    python -m benchmarks all --list                       what would be measured, and how many minutes it is expected to take
    python -m benchmarks all --minutes 9                  stop in time; the next call continues

Each part is a separate command, so a part that fails costs no other. A part whose result is complete for this commit and GPU is
skipped. Rooms, random problems and models continue after their last row, so they are ended when the time is over. Other parts are
begun only if they fit.
Exit code: 0 if everything is measured, 1 if a part failed, 2 if nothing could be measured, 3 if parts are left.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.harness import command, machine, report
from benchmarks.publish import age
from benchmarks.publish.published import PARTS, Part

RESULTS = machine.RESULTS
LEFT = 3
# Starting a part and measuring its ceilings takes about a minute.
LEAST_MINUTES = 2.0


def load(path: Path) -> dict | None:
    try:
        return report.load(path)
    except ValueError:
        return None


def committed(part: Part) -> Path | None:
    """The newest complete result of a part."""
    found = {path: report.load(path) for path in RESULTS.glob(f"*/{part.file}")}
    return max((path for path in found if found[path]["complete"]), key=lambda path: found[path]["date"], default=None)


def begun(part: Part, folder: Path) -> Path:
    """The result of a part, or what a sweep that was stopped has written."""
    path = folder / part.file
    unmerged = path.with_suffix(".0.json")
    return unmerged if unmerged.exists() else path


def is_of(result: dict | None, gpu: str, commit: str) -> bool:
    """Whether a result is of this GPU and commit."""
    return result is not None and (result["gpu"]["name"], result["source"]["commit"]) == (gpu, commit)


def is_done(part: Part, folder: Path, gpu: str, commit: str) -> bool:
    result = load(folder / part.file)
    return (
        is_of(result, gpu, commit) and result["complete"] and ("counters" in result or "--profile" not in part.command)
    )


def state(part: Part) -> str:
    """What is wrong with the committed result of a part, or ""."""
    path = committed(part)
    return "not measured yet" if path is None else age.sentence(report.load(path), path)


def expected(part: Part, folder: Path, gpu: str, commit: str) -> float:
    """The minutes that a part still takes: as long as the committed result took, less the share of its rows that are there."""
    path = committed(part)
    known = report.load(path) if path else {}
    minutes = known["seconds"] / 60 if "seconds" in known else part.minutes
    result = load(begun(part, folder)) if part.resumes else None
    if is_of(result, gpu, commit) and known:
        minutes *= 1 - min(1, len(result["rows"]) / len(known["rows"]))
    return minutes


def run(words: list[str], minutes: float | None) -> int | None:
    """The exit code of a command; None if its time was over, and it was ended with all processes that it had started."""
    process = subprocess.Popen(words, cwd=machine.REPOSITORY, start_new_session=True)
    try:
        return process.wait(None if minutes is None else 60 * minutes)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def command_of(part: Part, folder: Path, commit: str) -> list[str]:
    words = [word.format(file=folder / part.file, folder=folder) for word in part.command]
    return [sys.executable, "-m", "benchmarks", *words, "--commit", commit]


def record(part: Part, folder: Path, gpu: str, commit: str, seconds: float) -> None:
    """Adds the time of a run to its result."""
    path = begun(part, folder)
    result = load(path)
    if is_of(result, gpu, commit):
        report.save(path, result | {"seconds": round(result.get("seconds", 0) + seconds, 1)})


def measure(parts: list[Part], folder: Path, gpu: str, commit: str, minutes: float | None) -> int:
    end = time.monotonic() + 60 * minutes if minutes else None
    failed = []
    for number, part in enumerate(parts):
        if is_done(part, folder, gpu, commit):
            print(f"{part.name}: is there", flush=True)
            continue
        needed = expected(part, folder, gpu, commit)
        left = (end - time.monotonic()) / 60 if end else None
        code = None
        if left is None or left >= (min(needed, LEAST_MINUTES) if part.resumes else needed):
            print(f"{part.name}: about {needed:.0f} minutes", flush=True)
            start = time.monotonic()
            code = run(command_of(part, folder, commit), left)
            record(part, folder, gpu, commit, time.monotonic() - start)
        if code is None:
            rest = [other.name for other in parts[number:] if not is_done(other, folder, gpu, commit)]
            print(f"benchmarks all: the time is over; left: {', '.join(rest)}")
            return LEFT
        if code or not is_done(part, folder, gpu, commit):
            failed.append(part.name)
            print(f"benchmarks all: {part.name} failed with code {code}", file=sys.stderr, flush=True)
    if failed:
        print(f"benchmarks all: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def show(parts: list[Part], folder: Path, gpu: str, commit: str) -> None:
    total = 0.0
    for part in parts:
        done = is_done(part, folder, gpu, commit)
        minutes = 0.0 if done else expected(part, folder, gpu, commit)
        total += minutes
        print(f"{part.name:34} {minutes:5.1f} min  {'measured' if done else state(part) or 'as new as its kernels'}")
    print(
        f"{len(parts)} parts, {total:.0f} minutes: python -m benchmarks all {shlex.join(part.name for part in parts)}"
    )


def main(argv: list[str]) -> int:
    parser = command.measuring("all", __doc__, "")
    parser.add_argument("names", nargs="*", metavar="PART", help=f"of {', '.join(part.name for part in PARTS)}")
    parser.add_argument("--list", action="store_true", help="print the parts and stop")
    parser.add_argument("--stale", action="store_true", help="only parts whose committed result is old")
    parser.add_argument("--minutes", type=float, help="the time that there is")
    arguments = parser.parse_args(argv)
    known = [name for part in PARTS for name in (part.name, part.name.split()[0])]
    command.check_names(parser, "part", arguments.names, dict.fromkeys(known))
    names = arguments.names or [part.name for part in PARTS]
    parts = [part for part in PARTS if part.name in names or part.name.split()[0] in names]
    parts = [part for part in parts if not arguments.stale or state(part)]
    gpu = machine.gpu()["name"] if torch.cuda.is_available() else ""
    source = machine.commit(arguments.commit)
    folder = (arguments.out or command.results_of(gpu)).resolve()
    if arguments.list:
        show(parts, folder, gpu, source["commit"])
        return 0
    if not gpu:
        return command.failed(command.NO_GPU)
    if not source["commit"] or source["dirty"]:
        return command.failed("needs a git checkout without changes, or --commit")
    # The part that runs ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(LEFT))
    return measure(parts, folder, gpu, source["commit"], arguments.minutes)
