"""Measures the optimisation ladders: every step beside the production operator and PyTorch.

    python -m benchmarks ladder                 all ladders
    python -m benchmarks ladder reduce          the ladders whose names begin with reduce: reduce_sum and reduce_max
    python -m benchmarks ladder copy_in_flight  the lesson of latency: copies with different numbers of bytes in flight
    python -m benchmarks ladder --list          list the cases and their steps
    python -m benchmarks ladder --quick         take fewer samples
    python -m benchmarks ladder --profile       also collect hardware counters for each step, if ncu is installed

Writes <op>.json to benchmarks/results/<gpu>/ladder/. Prints a table for each case: the speed of each step, its share of the ceiling,
and how many times as fast it is as the first step and as the previous one.
Exit code: 1 if a step failed or was wrong, 2 if nothing could be measured.
"""

import argparse
import sys
from pathlib import Path

import torch

from benchmarks.harness import command, machine, report
from benchmarks.harness.room import Room, reason, run_room
from benchmarks.harness.timer import DeviceTimer
from benchmarks.ladder import cases as ladders
from benchmarks.ladder import in_flight, units
from benchmarks.ladder import profile as ladder_profile
from benchmarks.ladder import report as ladder_report


def parse(argv: list[str]) -> argparse.Namespace:
    parser = command.measuring("ladder", __doc__, "/ladder")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the beginning of an operator's name; all operators if none is given"
    )
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--profile", action="store_true", help="collect counters with ncu")
    return parser.parse_args(argv)


def choose(rooms: dict[str, Room], names: list[str]) -> list[Room]:
    """The ladders of these names, or whose names begin with one that is no ladder's. ValueError for a name without a ladder."""
    for name in names:
        if not any(op.startswith(name) for op in rooms):
            raise ValueError(f"no ladder is called {name!r}; there are: {', '.join(rooms)}")
    prefixes = tuple(name for name in names if name not in rooms)
    return [room for op, room in rooms.items() if not names or op in names or op.startswith(prefixes)]


def everything() -> dict[str, Room]:
    return ladders.rooms() | {in_flight.OP: in_flight.room()}


def show(result: dict):
    (in_flight if result["room"] == in_flight.OP else ladder_report).show(result)


def profile(result: dict, path: Path):
    """Adds hardware counters to the result and saves it."""
    try:
        counters = ladder_profile.collect(result["room"])
        if len(counters) != len(result["rows"]):
            raise ladder_profile.NoProfiler(
                f"ncu ran {len(counters)} cases, of which {len(result['rows'])} were measured"
            )
    except ladder_profile.NoProfiler as why:
        print(f"no counters: {why}")
        report.save(path, result | {"counters": str(why)})
        return
    for row, of_contenders in zip(result["rows"], counters, strict=True):
        for name, entry in of_contenders.items():
            row["contenders"][name]["counters"] = entry
    report.save(path, result | {"counters": "collected"})
    for row in result["rows"]:
        print(*ladder_report.counters_table(row, "docs/ladder/README.md#counters"), sep="\n")


def failures(result: dict) -> list[str]:
    """A sentence for every step, production included, that failed or was wrong."""
    return [
        f"{row['op']} {ladder_report.title_of(row)}, {ladder_report.label_of(name)}: {entry['reason']}"
        for row in result["rows"]
        for name, entry in row["contenders"].items()
        if entry["status"] != "ok" and name != ladder_report.PYTORCH
    ]


def main(argv: list[str]) -> int:
    args = parse(argv)
    try:
        chosen = choose(everything(), args.names)
    except (ImportError, ValueError) as error:
        return command.failed(reason(error))
    if args.list:
        for case in (case for room in chosen for case in room.cases):
            steps = ", ".join(ladder_report.label_of(peer.name) for peer in case.peers)
            print(f"{case.title}: {steps}")
        return 0
    if not torch.cuda.is_available():
        return command.failed(command.NO_GPU)
    timer = DeviceTimer(budget_s=0.02 if args.quick else 0.06)
    folder = args.out or command.results_of(machine.gpu()["name"]) / "ladder"
    failed = []
    for room in chosen:
        path = folder / f"{room.name}{'.quick' if args.quick else ''}.json"
        result = run_room(room, tuple(room.cases), timer, path, quick=args.quick, commit=args.commit)
        if any(row.get("flops") for row in result["rows"]):
            result["units"] = units.measure()
            report.save(path, result)
        show(result)
        if args.profile and room.name != in_flight.OP:
            profile(result, path)
        failed += failures(result)
    for failure in failed:
        print(f"benchmarks: a step failed: {failure}", file=sys.stderr)
    return 1 if failed else 0
