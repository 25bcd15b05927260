"""Measure operators beside their peers.

    python -m benchmarks                 every room
    python -m benchmarks mul             one operator (or a room: elementwise)
    python -m benchmarks sum max         several operators (here two of reduce, without its sweep sum-grid)
    python -m benchmarks --list          list rooms and operators
    python -m benchmarks --quick         the headline cases with fewer samples, in a minute or two
    python -m benchmarks --plot-only benchmarks/results/nvidia-h200/elementwise.json
    python -m benchmarks sweep mul       random problems, see benchmarks/sweep.py
    python -m benchmarks fuzz --minutes 5    random calls compared with float64 and ATen, see benchmarks/fuzz.py
    python -m benchmarks all --stale     everything published that is older than its kernels, see benchmarks/all.py
    python -m benchmarks models gcn      real models with and without override, see benchmarks/models.py

Prints tables, and writes <room>.json and a plot of each operator into benchmarks/results/<gpu>/. A run of part of a room is named
after that part (mul.json, elementwise.quick.json), so it never replaces the result of a whole room.
`python -m benchmarks.speed_docs` writes docs/speed.md from the committed results, and refuses old ones without --old.
Exit code: 1 if gpuopt failed or was wrong anywhere, 2 if nothing could be measured.
"""

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import ceilings, machine, report
from benchmarks.peers import Setting
from benchmarks.room import Case, Room, reason, rooms, run_case
from benchmarks.timer import DeviceTimer, call_times
from benchmarks.traffic import traffic

NO_GPU = "benchmarks: this machine has no CUDA device that PyTorch can use; nothing was measured."
# The width of the tables when the output is a pipe, which has no width of its own.
PIPE_WIDTH = 180


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators or rooms; all of them if none is given")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument("--quick", action="store_true", help="headline cases only, fewer samples, no tuning of peers")
    parser.add_argument("--cases", metavar="REGEX", help="only cases whose 'op name dtype' matches")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to write, instead of benchmarks/results/<gpu>")
    parser.add_argument("--plot-only", metavar="JSON", type=Path, help="make the tables and pictures of an earlier run")
    parser.add_argument("--commit", help="the commit to record, where the sources are not a git checkout of it")
    parser.add_argument(
        "--resume", action="store_true", help="keep the rows of an earlier run of the same commit and GPU"
    )
    args = parser.parse_args(argv)
    available = rooms()
    known = {name for room in available.values() for name in (room.name, *room.ops)}
    unknown = [name for name in args.names if name not in known]
    if unknown:
        parser.error(f"no operator or room is called {unknown[0]!r}; there are: {', '.join(sorted(known))}")
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


def show(result: dict, console: Console):
    if result["ceilings"]:
        console.print(report.ceiling_table(result))
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        table, notes = report.device_table(result, op)
        console.print(table)
        for note in notes:
            console.print(note, markup=False, highlight=False)
    for case in result["left_out"]:
        console.print(f"left out: {case}", style="red", highlight=False, markup=False)
    if result["rows"]:
        console.print(report.LEGEND, highlight=False)
    if result["call_times"]:
        console.print(report.call_table(result))


def plot(result: dict, folder: Path, name: str, console: Console):
    from benchmarks import plots

    for path in plots.plot(result, folder, name):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def present(result: dict, folder: Path, name: str, console: Console):
    """Prints the tables and writes the plots into the folder."""
    show(result, console)
    plot(result, folder, name, console)


def run_room(
    room: Room,
    cases: tuple[Case, ...],
    timer,
    args,
    folder: Path,
    console: Console,
    device: str = "cuda",
    present: Callable[[dict, Path, str, Console], None] = present,
) -> dict:
    """Measures the cases of one room. The JSON is written after every case, so an interrupted run keeps its results."""
    calls = room.calls()
    setting = Setting(timer, device, tune=not args.quick)
    result = report.document(
        room.name,
        machine.gpu(),
        machine.versions(),
        machine.commit(args.commit),
        machine.library(),
        {"quick": args.quick, "cases": args.cases, "flush_bytes": timer.flush_bytes, "budget_us": timer.budget_us},
    )
    path = folder / f"{stem(room, args)}.json"
    needed = [sum(traffic(case, calls[case.call])) for case in cases]
    call_time_rows = [row for row in room.call_times if row.op in {case.op for case in cases}] if not args.cases else []
    if args.resume:
        result = report.resumed(path, result)
        cases = tuple(case for case in cases if not report.has(result, case))
        timed = {(row["op"], row["name"]) for row in result["call_times"]}
        call_time_rows = [row for row in call_time_rows if (row.op, row.name) not in timed]
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=1 + len(cases) + len(call_time_rows))

        def step(text: str):
            progress.update(task, description=text)

        sizes = ceilings.classes_for(needed, timer.free_bytes())
        result["ceilings"] = ceilings.measure(timer, sizes, device, args.quick, step)
        progress.advance(task)
        report.save(path, result)
        for number, case in enumerate(cases, 1):
            step(case.title)
            began = time.perf_counter()
            try:
                row = run_case(case, calls[case.call], room.peers, setting, result["ceilings"])
            except torch.OutOfMemoryError:
                result["left_out"].append(f"{case.title}: this GPU has too little memory")
                continue
            finally:
                progress.advance(task)
                timer.release_memory()
            result["rows"].append(row)
            report.save(path, result)
            console.print(
                _line(number, len(cases), case, row, time.perf_counter() - began), highlight=False, markup=False
            )
        measurements = []
        for row in call_time_rows:
            step(f"call time: {row.op}, {row.name}")
            seconds = 0.2 if args.quick else 0.6
            times = call_times(row.statements, row.variables(device), "call time", f"{row.op}, {row.name}", seconds)
            measurements += times.values()
            result["call_times"].append(
                {
                    "op": row.op,
                    "name": row.name,
                    "contenders": {
                        name: {"median": 1e6 * m.median, "iqr": 1e6 * m.iqr, "samples": len(m.times)}
                        for name, m in times.items()
                    },
                }
            )
            progress.advance(task)
            report.save(path, result)
    result["complete"] = True
    report.save(path, result)
    if measurements:
        from torch.utils import benchmark

        console.print(str(benchmark.Compare(measurements)), highlight=False, markup=False)
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    present(result, folder, stem(room, args), console)
    return result


def _line(number: int, total: int, case: Case, row: dict, seconds: float) -> str:
    times = [
        f"{name} {entry['us']['median']:.2f}" if entry["status"] == "ok" else f"{name} {entry['status']}"
        for name, entry in row["contenders"].items()
    ]
    return f"[{number}/{total}] {case.title}: {', '.join(times)} us  ({seconds:.1f} s)"


def main(argv: list[str]) -> int:
    if argv[:1] in (["all"], ["sweep"], ["fuzz"], ["models"]):
        return importlib.import_module(f"benchmarks.{argv[0]}").main(argv[1:])
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if args.list:
        for room, cases in args.chosen:
            console.print(f"{room.name}: {len(cases)} cases, {len(room.call_times)} call times", highlight=False)
            for case in cases:
                console.print(f"  {case.title}{'  (headline)' if case.headline else ''}", highlight=False, markup=False)
        return 0
    if args.plot_only:
        try:
            result = report.load(args.plot_only)
        except ValueError as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return 2
        present(result, args.out or args.plot_only.parent, args.plot_only.stem, console)
        return 0
    if not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 2
    try:
        import torch_ops  # noqa: F401
    except ImportError as error:
        print(f"benchmarks: {reason(error)}", file=sys.stderr)
        return 2
    timer = DeviceTimer(budget_s=0.02 if args.quick else 0.06)
    folder = args.out or machine.REPOSITORY / "benchmarks" / "results" / machine.slug(machine.gpu()["name"])
    failed = []
    for room, cases in args.chosen:
        failed += report.failures(run_room(room, cases, timer, args, folder, console))
    for failure in failed:
        print(f"benchmarks: gpuopt failed: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
