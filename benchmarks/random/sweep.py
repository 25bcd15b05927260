"""Measures random problems of every operator beside ATen and Inductor.

    python -m benchmarks sweep                          every family
    python -m benchmarks sweep mul "conv1d backward"    some families
    python -m benchmarks sweep --count 200 --seed 1     more problems, or others

Uses every GPU there is, one process each, and writes benchmarks/results/<gpu>/sweep.json. Times are device times as in
:mod:`benchmarks.harness.timer`; errors are checked against float64 as in :mod:`benchmarks.harness.room`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import torch

from benchmarks.harness import ceilings, command, machine, report
from benchmarks.harness.peers import Setting
from benchmarks.harness.room import run_case
from benchmarks.harness.timer import DeviceTimer
from benchmarks.random import problems
from benchmarks.random.report import table
from benchmarks.rooms import rooms


def chosen(arguments: argparse.Namespace) -> list[tuple[str, object]]:
    """Families take turns, so that a run that is stopped has some of each."""
    lists = [problems.problems(family, arguments.count, arguments.seed) for family in arguments.families]
    return [problem for of_rank in zip(*lists) for problem in of_rank]


def measure(arguments: argparse.Namespace) -> None:
    part, parts = map(int, arguments.part.split("/"))
    timer = DeviceTimer(budget_s=0.015)
    setting = Setting(timer, "cuda", tune=False)
    settings = {"count": arguments.count, "seed": arguments.seed, "budget_us": timer.budget_us}
    result = report.document(
        "sweep", machine.gpu(), machine.versions(), machine.commit(arguments.commit), machine.library(), settings
    )
    path = arguments.out.with_suffix(f".{part}.json")
    if arguments.resume:
        result = report.resumed(path, result)
    result["ceilings"] = ceilings.measure(timer, list(ceilings.SIZES), "cuda", True, lambda text: None)
    calls = {name: room.calls() for name, room in rooms().items()}
    for room, case in chosen(arguments)[part::parts]:
        if report.has(result, case):
            continue
        try:
            row = run_case(case, calls[room][case.call], (), setting, result["ceilings"])
        except torch.OutOfMemoryError:
            result["left_out"].append(f"{case.title}: this GPU has too little memory")
            continue
        finally:
            timer.release_memory()
        result["rows"].append(row)
        report.save(path, result)
    result["complete"] = True
    report.save(path, result)


def measure_all(arguments: argparse.Namespace) -> int:
    count = torch.cuda.device_count()
    if not count:
        return command.failed(command.NO_GPU)
    arguments.out = arguments.out or command.results_of(machine.gpu()["name"]) / "sweep.json"
    each = [sys.executable, "-m", "benchmarks", "sweep", *arguments.families, "--out", str(arguments.out)]
    each += ["--count", str(arguments.count), "--seed", str(arguments.seed)]
    each += ["--commit", arguments.commit] if arguments.commit else []
    each += ["--resume"] if arguments.resume else []
    runs = [
        subprocess.Popen([*each, "--part", f"{i}/{count}"], env={**os.environ, "CUDA_VISIBLE_DEVICES": str(i)})
        for i in range(count)
    ]
    codes = [run.wait() for run in runs]
    paths = [arguments.out.with_suffix(f".{i}.json") for i in range(count)]
    parts = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not parts:
        return command.failed("nothing was measured")
    merged = parts[0]
    for part in parts[1:]:
        merged["rows"] += part["rows"]
        merged["left_out"] += part["left_out"]
        merged["complete"] &= part["complete"]
    merged["complete"] &= not any(codes)
    report.save(arguments.out, merged)
    if merged["complete"]:
        for path in paths:
            path.unlink()
    print(table(merged))
    return command.failed("a process failed; what it had measured is kept") if any(codes) else 0


def main(argv: list[str]) -> int:
    parser = command.measuring("sweep", __doc__, "/sweep.json", resume="rows")
    parser.add_argument("families", nargs="*", help=f"of {', '.join(problems.FAMILIES)}")
    parser.add_argument("--count", type=int, default=60, help="problems of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    arguments.families = arguments.families or list(problems.FAMILIES)
    command.check_names(parser, "family", arguments.families, problems.FAMILIES)
    if not arguments.part:
        return measure_all(arguments)
    measure(arguments)
    return 0
