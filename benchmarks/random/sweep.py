"""Measures random problems of every operator beside ATen and Inductor.

    python -m benchmarks sweep                          every family
    python -m benchmarks sweep mul "conv1d backward"    some families
    python -m benchmarks sweep --count 200 --seed 1     more problems, or others

Uses every GPU there is, one process each, and writes benchmarks/results/<gpu>/sweep.json. Times are device times as in
:mod:`benchmarks.harness.timer`; errors are checked against float64 as in :mod:`benchmarks.harness.room`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.harness import ceilings, command, machine, report
from benchmarks.harness.peers import INDUCTOR, Setting
from benchmarks.harness.room import run_cases
from benchmarks.harness.timer import DeviceTimer
from benchmarks.random import problems
from benchmarks.random.report import table
from benchmarks.rooms import rooms

COMPILERS = 8  # processes at once for each GPU. Each holds the operands of a problem, up to some GB


def chosen(arguments: argparse.Namespace) -> list[tuple[str, object]]:
    """Families take turns, so that a run that is stopped has some of each."""
    lists = [problems.problems(family, arguments.count, arguments.seed) for family in arguments.families]
    return [problem for of_rank in zip(*lists) for problem in of_rank]


def compile_ahead(arguments: argparse.Namespace) -> None:
    """Compiles for Inductor. The process that measures finds the code in Inductor's cache on disk, which saves most of its time."""
    part, parts = map(int, arguments.part.split("/"))
    calls = {name: room.calls() for name, room in rooms().items()}
    compiled = [(*problem, p) for problem in chosen(arguments) for p in problem[1].peers if p.name == INDUCTOR.name]
    for room, case, peer in compiled[part::parts]:
        with contextlib.suppress(Exception):  # the process that measures reports it
            peer.prepare(calls[room][case.call], case, Setting(None, "cuda", tune=False))
        torch.cuda.empty_cache()


def measure(arguments: argparse.Namespace) -> None:
    part, parts = map(int, arguments.part.split("/"))
    timer = DeviceTimer(budget_s=0.015)
    settings = {"count": arguments.count, "seed": arguments.seed, "budget_us": timer.budget_us}
    result = report.fresh("sweep", settings, arguments.commit)
    path = arguments.out.with_suffix(f".{part}.json")
    if arguments.resume:
        result = report.resumed(path, result)
    result["ceilings"] = ceilings.measure(timer, list(ceilings.SIZES), "cuda", True)
    calls = {name: room.calls() for name, room in rooms().items()}
    left = [(room, case) for room, case in chosen(arguments)[part::parts] if not report.has(result, case)]
    run_cases(
        result, path, [(case, calls[room][case.call], ()) for room, case in left], Setting(timer, "cuda", tune=False)
    )
    result["complete"] = True
    report.save(path, result)


def words_of(arguments: argparse.Namespace, *options: str) -> list[str]:
    """The command line of the processes that measure a part each."""
    words = [*arguments.families, "--out", str(arguments.out), "--count", str(arguments.count), *options]
    words += ["--commit", arguments.commit] if arguments.commit else []
    return words + (["--resume"] if arguments.resume else [])


def joined(out: Path, codes: list[int], table: Callable[[dict], str]) -> int:
    """Joins the parts of processes that ended with these codes, writes the whole, and prints its table."""
    paths = [out.with_suffix(f".{i}.json") for i in range(len(codes))]
    parts = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not parts:
        return command.failed("nothing was measured")
    merged = parts[0]
    for part in parts[1:]:
        merged["rows"] += part["rows"]
        merged["left_out"] += part["left_out"]
        merged["complete"] &= part["complete"]
    merged["complete"] &= not any(codes)
    report.save(out, merged)
    if merged["complete"]:
        for path in paths:
            path.unlink()
    print(table(merged))
    return command.failed("a process failed; what it had measured is kept") if any(codes) else 0


def measure_all(arguments: argparse.Namespace) -> int:
    if not torch.cuda.device_count():
        return command.failed(command.NO_GPU)
    arguments.out = arguments.out or command.results_of(machine.gpu()["name"]) / "sweep.json"
    words = words_of(arguments, "--seed", str(arguments.seed))
    command.on_every_gpu("sweep", *words, "--compile-ahead", each=COMPILERS)
    return joined(arguments.out, command.on_every_gpu("sweep", *words), table)


def main(argv: list[str]) -> int:
    parser = command.measuring("sweep", __doc__, "/sweep.json", resume="rows")
    parser.add_argument("families", nargs="*", help=f"of {', '.join(problems.FAMILIES)}")
    parser.add_argument("--count", type=int, default=60, help="problems of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--compile-ahead", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    arguments.families = arguments.families or list(problems.FAMILIES)
    command.check_names(parser, "family", arguments.families, problems.FAMILIES)
    if not arguments.part:
        return measure_all(arguments)
    (compile_ahead if arguments.compile_ahead else measure)(arguments)
    return 0
