"""Measure the optimisation ladders: every step beside the production operator and PyTorch.

    python -m benchmarks.ladder                 all ladders
    python -m benchmarks.ladder reduce          the ladders whose names begin with reduce: reduce_sum and reduce_max
    python -m benchmarks.ladder copy_in_flight  the lesson of latency: copies with different numbers of bytes in flight
    python -m benchmarks.ladder --list          list the cases and their steps
    python -m benchmarks.ladder --quick         take fewer samples
    python -m benchmarks.ladder --profile       also collect hardware counters for each step, if ncu is installed
    python -m benchmarks.ladder --plot-only benchmarks/results/nvidia-h200/ladder/reduce_sum.json

Writes <op>.json and a plot to benchmarks/results/<gpu>/ladder/. Prints a table for each case: the speed of each step, its share of
the ceiling, and how many times as fast it is as the first step and as the previous one.
Exit code: 1 if a step failed or was wrong, 2 if nothing could be measured.
"""

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import __main__ as bench
from benchmarks import in_flight, ladder_profile, ladder_report, ladders, machine, report
from benchmarks.room import Room, reason
from benchmarks.timer import DeviceTimer


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ladder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the beginning of an operator's name; all operators if none is given"
    )
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--profile", action="store_true", help="collect counters with ncu")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="where to write, instead of benchmarks/results/<gpu>/ladder"
    )
    parser.add_argument("--plot-only", metavar="JSON", type=Path, help="make the tables and plots of an earlier run")
    parser.add_argument("--commit", help="the commit to record, if the sources are not a git checkout of it")
    args = parser.parse_args(argv)
    args.cases, args.resume = None, False  # options that benchmarks of operators have, and bench.run_room reads
    return args


def choose(rooms: dict[str, Room], names: list[str]) -> list[Room]:
    """The ladders of these names, or whose names begin with one that is no ladder's. ValueError for a name without a ladder."""
    for name in names:
        if not any(op.startswith(name) for op in rooms):
            raise ValueError(f"no ladder is called {name!r}; there are: {', '.join(rooms)}")
    prefixes = tuple(name for name in names if name not in rooms)
    return [room for op, room in rooms.items() if not names or op in names or op.startswith(prefixes)]


def everything() -> dict[str, Room]:
    return ladders.rooms() | {in_flight.OP: in_flight.room()}


def present(result: dict, folder: Path, name: str, console: Console):
    if result["room"] == in_flight.OP:
        in_flight.present(result, folder, name, console)
        return
    ladder_report.show(result, console)
    path = folder / f"{name}.png"
    ladder_report.plot(result, path)
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def profile(result: dict, path: Path, console: Console):
    """Adds hardware counters to the result and saves it."""
    try:
        counters = ladder_profile.collect(result["room"])
        if len(counters) != len(result["rows"]):
            raise ladder_profile.NoProfiler(
                f"ncu ran {len(counters)} cases, of which {len(result['rows'])} were measured"
            )
    except ladder_profile.NoProfiler as why:
        console.print(f"no counters: {why}", highlight=False, markup=False)
        report.save(path, result | {"counters": str(why)})
        return
    for row, of_contenders in zip(result["rows"], counters, strict=True):
        for name, entry in of_contenders.items():
            row["contenders"][name]["counters"] = entry
    report.save(path, result | {"counters": "collected"})
    ladder_report.show_counters(result, console)


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
    console = Console(width=None if sys.stdout.isatty() else bench.PIPE_WIDTH)
    if args.plot_only:
        try:
            result = report.load(args.plot_only)
        except ValueError as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return 2
        present(result, args.out or args.plot_only.parent, args.plot_only.stem, console)
        return 0
    try:
        chosen = choose(everything(), args.names)
    except (ImportError, ValueError) as error:
        print(f"benchmarks: {reason(error)}", file=sys.stderr)
        return 2
    if args.list:
        for case in (case for room in chosen for case in room.cases):
            steps = ", ".join(ladder_report.label_of(peer.name) for peer in case.peers)
            console.print(f"{case.title}: {steps}", highlight=False, markup=False)
        return 0
    if not torch.cuda.is_available():
        print(bench.NO_GPU, file=sys.stderr)
        return 2
    timer = DeviceTimer(budget_s=0.02 if args.quick else 0.06)
    results = machine.REPOSITORY / "benchmarks" / "results" / machine.slug(machine.gpu()["name"]) / "ladder"
    args.names = []
    failed = []
    for room in chosen:
        folder = args.out or results
        result = bench.run_room(room, tuple(room.cases), timer, args, folder, console, present=present)
        if args.profile and room.name != in_flight.OP:
            profile(result, folder / f"{bench.stem(room, args)}.json", console)
        failed += failures(result)
    for failure in failed:
        print(f"benchmarks: a step failed: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
