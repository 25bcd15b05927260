"""Measures random calls of ATen's operators with and without torch_ops.override.

    python -m benchmarks override                          every family, two seeds
    python -m benchmarks override "sparse mm" copy_        some families
    python -m benchmarks override --count 12 --minutes 4   fewer problems, until the time is over

Each problem is computed once under the override, whose report tells which operators it took. Only problems with a taken call are timed,
with and without the override, as in :mod:`benchmarks.harness.timer`. `python -m benchmarks fuzz override` checks results, and this
command does not. Uses every GPU there is, one process each, and writes
benchmarks/results/<gpu>/override.json. The tables say how often the override is slower than ATen, and how much.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import torch_ops
from benchmarks.harness import command, machine, report
from benchmarks.harness.operands import described
from benchmarks.harness.room import Case, reason
from benchmarks.harness.timer import DeviceTimer
from benchmarks.harness.traffic import distinct_bytes, results
from benchmarks.random import aten_problems
from benchmarks.random.override_report import tables
from benchmarks.random.sweep import joined, words_of

BUDGET_S = 0.01
# An operator that no problem reaches. While it is replaced, transposes of sparse matrices are kept from call to call, as in a training.
UNUSED = "_sparse_mm_reduce_impl"


def override(device: str, ops: list[str] | None = None) -> torch_ops.override:
    """An override of the kernels of a device, which decides as users have it. On the meta device nothing but decisions happens."""
    made = torch_ops.override(ops)
    made._key = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}[device]
    return made


def under(switch: torch_ops.override, function: Callable) -> Callable:
    def run(*args):
        with switch:
            return function(*args)

    return run


def calls_of(
    function: Callable, args: tuple, device: str
) -> tuple[dict[str, dict[str, int]], tuple[torch.Tensor, ...]]:
    """What became of the calls that a function makes under the override, as in the override's report, and its results."""
    torch_ops.override_report(reset=True)
    found = under(override(device), function)(*args)
    return torch_ops.override_report().calls, results(found)


def taken_of(calls: dict[str, dict[str, int]]) -> list[str]:
    """The operators with a call that was taken."""
    return [name for name, row in calls.items() if "taken" in row]


def run_case(case: Case, timer, device: str) -> dict:
    """A row. It has times and arguments if the override takes a call, and an error if a contender failed."""
    row = {"op": case.op, "call": case.call, "case": case.name, "dtype": case.dtype, "taken": []}
    function = aten_problems.function(case.op, case.call)
    args = case.build(device, 0)
    try:
        calls, outputs = calls_of(function, args, device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return row | {"error": reason(error)}
    row["taken"] = taken_of(calls)
    if not row["taken"]:
        return row
    used = [arg for arg in args if isinstance(arg, torch.Tensor)]
    moved = sum(case.moved() if case.moved else map(distinct_bytes, (*used, *outputs)))
    row |= {"bytes": moved, "args": described(case.build("meta", 0), case.dtype)}
    del args, used, outputs
    contenders = {"aten": function, "override": under(override(device, row["taken"]), function)}
    with override(device, [UNUSED]):
        timings = timer.compare(contenders, lambda seed: case.build(device, seed), moved)
    for name, timing in timings.items():
        if isinstance(timing, torch.OutOfMemoryError):
            raise timing
        row |= {"error": reason(timing)} if isinstance(timing, Exception) else {f"{name}_us": timing.median}
    return row


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """Families take turns, so that a run that is stopped has some of each. Seeds may draw the same small problem."""
    lists = [
        aten_problems.draw_cases(family, arguments.count, seed)
        for seed in arguments.seeds
        for family in arguments.families
    ]
    return list({case.title: case for of_rank in zip(*lists) for case in of_rank}.values())


def measure(arguments: argparse.Namespace, device: str = "cuda") -> None:
    part, parts = map(int, arguments.part.split("/"))
    timer = DeviceTimer(BUDGET_S)
    settings = {"count": arguments.count, "seeds": arguments.seeds, "budget_us": timer.budget_us}
    result = report.fresh("override", settings, arguments.commit)
    path = arguments.out.with_suffix(f".{part}.json")
    if arguments.resume:
        result = report.resumed(path, result)
    left = [case for case in chosen(arguments)[part::parts] if not report.has(result, case)]
    ends = time.monotonic() + 60 * arguments.minutes
    for number, case in enumerate(left, 1):
        if time.monotonic() > ends:
            report.save(path, result)
            return
        try:
            row = run_case(case, timer, device)
        except torch.OutOfMemoryError:
            result["left_out"].append(f"{case.title}: this GPU has too little memory")
            continue
        finally:
            timer.release_memory()
        result["rows"].append(row)
        if row["taken"]:
            report.save(path, result)
            times = ", ".join(f"{name} {row[key]:.2f}" for name in ("aten", "override") if (key := f"{name}_us") in row)
            print(f"[{number}/{len(left)}] {case.title}: {times} us, {', '.join(row['taken'])}", flush=True)
    result["complete"] = True
    report.save(path, result)


def measure_all(arguments: argparse.Namespace) -> int:
    if not torch.cuda.device_count():
        return command.failed(command.NO_GPU)
    arguments.out = arguments.out or command.results_of(machine.gpu()["name"]) / "override.json"
    seeds = ["--seeds", *map(str, arguments.seeds)]
    words = words_of(arguments, *seeds, "--minutes", str(arguments.minutes))
    return joined(arguments.out, command.on_every_gpu("override", *words), tables)


def main(argv: list[str]) -> int:
    parser = command.measuring("override", __doc__, "/override.json", resume="rows")
    parser.add_argument("families", nargs="*", help=f"of {', '.join(aten_problems.FAMILIES)}")
    parser.add_argument("--count", type=int, default=24, help="problems of each family and seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    arguments.families = arguments.families or aten_problems.FAMILIES
    command.check_names(parser, "family", arguments.families, aten_problems.FAMILIES)
    if not arguments.part:
        return measure_all(arguments)
    measure(arguments)
    return 0
