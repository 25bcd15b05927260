"""Measures chosen cases of operators beside their peers.

    python -m benchmarks                 every room
    python -m benchmarks mul             one operator (or a room: elementwise)
    python -m benchmarks sum max         several operators (here two of reduce, without its sweep sum-grid)
    python -m benchmarks --list          list rooms and operators
    python -m benchmarks --quick         the headline cases with fewer samples, in a minute or two
    python -m benchmarks spmm --brief    one line for each case, beside its fastest peer

Prints tables, and writes <room>.json into benchmarks/results/<gpu>/. A run of part of a room is named after that part (mul.json,
elementwise.quick.json), so it never replaces the result of a whole room. `python -m benchmarks show` draws plots of it.
Exit code: 1 if gpuopt failed or was wrong anywhere, 2 if nothing could be measured.
"""

import argparse
import re
import sys

import torch

from benchmarks.harness import command, machine, report
from benchmarks.harness.room import Case, Room, reason, run_room
from benchmarks.harness.timer import DeviceTimer
from benchmarks.rooms import rooms


def parse(argv: list[str]) -> argparse.Namespace:
    parser = command.measuring("measure", __doc__, "", resume="rows")
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators or rooms; all of them if none is given")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument("--quick", action="store_true", help="headline cases only, fewer samples, no tuning of peers")
    parser.add_argument("--brief", action="store_true", help="print a line for each case, in place of tables")
    parser.add_argument("--cases", metavar="REGEX", help="only cases whose 'op name dtype' matches")
    args = parser.parse_args(argv)
    available = rooms()
    known = {name for room in available.values() for name in (room.name, *room.ops)}
    command.check_names(parser, "operator or room", args.names, sorted(known))
    if args.cases is not None:
        try:
            re.compile(args.cases)
        except re.error as error:
            parser.error(f"--cases: {error}")
    args.chosen = [(room, cases) for room in available.values() if (cases := select(room, args))]
    if not args.chosen:
        parser.error("no case is left to run")
    return args


def selected_ops(room: Room, names: list[str]) -> list[str]:
    if not names or room.name in names:
        return room.ops
    return [op for op in room.ops if op in names]


def select(room: Room, args: argparse.Namespace) -> tuple[Case, ...]:
    ops = selected_ops(room, args.names)
    return tuple(
        case
        for case in room.cases
        if case.op in ops
        and (case.headline or not args.quick)
        and (args.cases is None or re.search(args.cases, case.title))
    )


def stem(room: Room, args: argparse.Namespace) -> str:
    """The name of the result's file, which tells what part of the room was run."""
    ops = selected_ops(room, args.names)
    name = room.name if ops == room.ops else "-".join(ops)
    return name + (".quick" if args.quick else "") + (".some" if args.cases else "")


def main(argv: list[str]) -> int:
    args = parse(argv)
    if args.list:
        for room, cases in args.chosen:
            print(f"{room.name}: {len(cases)} cases, {len(room.call_times)} call times")
            for case in cases:
                print(f"  {case.title}{'  (headline)' if case.headline else ''}")
        return 0
    if not torch.cuda.is_available():
        return command.failed(command.NO_GPU)
    try:
        import torch_ops  # noqa: F401
    except ImportError as error:
        return command.failed(reason(error))
    timer = DeviceTimer(budget_s=0.02 if args.quick else 0.06)
    folder = args.out or command.results_of(machine.gpu()["name"])
    options = {"quick": args.quick, "chosen": args.cases, "commit": args.commit, "resume": args.resume}
    failures = []
    for room, cases in args.chosen:
        result = run_room(room, cases, timer, folder / f"{stem(room, args)}.json", **options)
        (report.brief if args.brief else report.show)(result)
        failures += report.failures(result)
    for failure in failures:
        print(f"benchmarks: gpuopt failed: {failure}", file=sys.stderr)
    return 1 if failures else 0
