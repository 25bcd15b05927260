"""Measures what the limits of plans are worth, on random problems of seeds that no published page reports.

A limit decides between plans. Each is measured against other values: never and always, or half and double
where a size must have some value. A problem is a row of a limit if its plan is another one with the other value. So the class of a limit
is the share of problems that it decides.

``results/<gpu>/limits.jsonl`` has a line for each problem, limit and other value: the problem as its plan sees it, and microseconds of
both plans. :func:`worth` says what a limit gains. tests/plan/test_limits.py makes the plans again, without a GPU.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

import torch_ops  # noqa: F401
from benchmarks.harness import command, machine, report
from benchmarks.harness.room import Case
from benchmarks.harness.timer import DeviceTimer
from benchmarks.harness.traffic import traffic
from benchmarks.random import problems
from benchmarks.rooms import rooms

EVIDENCE = machine.REPOSITORY / "benchmarks/results/nvidia-h200/limits.jsonl"
SEED, PROBLEMS = 620, 300
MOST_ROWS = 20  # of a limit and a value
# A limit that gains less goes.
LEAST_WORTH, FEWEST_ROWS = 1.05, 3
NEVER = 1 << 40

FAMILIES = {
    "dot": ("dot", "dot_rows"),
    "elementwise": ("mul",),
    "index_add": ("index_add", "index_add deterministic", "index_add accurate"),
    "reduce": ("reduce",),
    "rows": tuple(problems.GRAPHS),
    "scan": ("cumsum", "linear_recurrence"),
    "selective_scan": ("selective_scan", "selective_scan backward"),
    "transpose": ("transpose2d",),
    "upsample": ("upsample", "upsample backward"),
}
# Bounds of launches, of shared memory and of workspaces. Tests lower them, to reach every kernel with small problems.
BOUNDS = {
    "dot": {"launch_blocks"},
    "index_add": {"launch_size", "launch_values", "position_bits", "max_tile_entries"},
    "reduce": {"most_in_launch"},
    "rows": {"most_warps"},
    "scan": {"launch_limit", "patience"},
    "selective_scan": {"part_bytes"},
    "transpose": {"tile"},
    "upsample": {"part_units", "short_axis"},
}
OTHERS: dict[str, dict[str, tuple[float, ...]]] = {
    "dot": {
        "blocks": (4, 64),
        "unsplit": (0, 16384),
        "tile_row_bytes": (0, 4096),
        "tile_bytes": (4 << 10, 16 << 10),
    },
    "elementwise": {
        "small": (0, NEVER),
        "tile_side": (8, NEVER),
        "four_values": (0, NEVER),
    },
    "index_add": {
        "min_bin_values": (0, NEVER),
        "least_queue": (0, NEVER),
        "min_tile_entries": (0, NEVER),
        "min_block_sums": (0, NEVER),
        "min_hot_values": (0, NEVER),
        "max_parts": (128, 8192),
        "sort_traffic": (0, NEVER),
        "sort_entry_traffic": (0, 480),
        "added_traffic": (0.8, 12),
        "sort_source_bytes": (0, NEVER),
        "sort_row_bytes": (0, NEVER),
    },
    "reduce": {
        "row_blocks": (8, 32),
        "row_threads": (16, 256),
        "unsplit_groups": (1, 8),
        "short_row_vecs": (2,),
        "tile_row_bytes": (0, 4096),
        "tile_bytes": (8 << 10, 16 << 10),
        "tile_blocks": (1, 96),
        "tile_least_bytes": (3 << 10, 16 << 10),
        "wide": (16, 64),
        "shifted_column": (NEVER,),
        "alone_threads": (0, NEVER),
        "once_below": (0, NEVER),
    },
    "rows": {
        "few_warps": (528, 8448),
        "window": (16, 256),
        "shortest": (2, 32),
        "few_units": (0, 1 << 20),
        "tiles.narrow_row": (0, 16),
        "tiles.gathered": (0,),
        "tiles.narrow_map": (0,),
        "tiles.least_tile": (512, 8192),
        "tiles.team_entries": (2, 32),
    },
    "scan": {
        "split_rows_below": (0, NEVER),
        "split_columns_below": (0, NEVER),
        "many_tiles": (66, 1056),
        "most_tile_times": (1, 2),
        "narrow_values": (2, 32),
        "wide_blocks": (0, NEVER),
        "alone_columns": (0, NEVER),
        "alone_rows": (0, NEVER),
    },
    "selective_scan": {
        "wave_sms": (66, 264),
        "unsplit_threads": (0, NEVER),
        "segment": (64, 1024),
    },
    "transpose": {"unaligned_tiles": (0, NEVER)},
    "upsample": {},
}

# ---------------------------------------------------------------- plans


def limits(room: str) -> dict[str, float]:
    """The limits of a room, by their paths."""
    return flat(json.loads(torch.ops.gpuopt_ladder.limits(room)))


def flat(value, path: str = "") -> dict[str, float]:
    """The numbers in nested dictionaries and lists, by their paths: ``{"dims": [{"size": 3}]}`` is ``{"dims.0.size": 3}``."""
    if not isinstance(value, (dict, list)):
        return {path: float(value)}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {name: n for key, held in items for name, n in flat(held, f"{path}.{key}" if path else str(key)).items()}


class With:
    """Sets a limit for the time of a with statement."""

    def __init__(self, room: str, limit: str, value: float):
        self.arguments = (room, limit)
        self.value, self.default = float(value), limits(room)[limit]

    def __enter__(self):
        torch.ops.gpuopt_ladder.set_limit(*self.arguments, self.value)

    def __exit__(self, *_):
        torch.ops.gpuopt_ladder.set_limit(*self.arguments, self.default)


def plan(planner: str, problem: dict[str, float], device: dict[str, int]) -> str:
    """The plan of a problem as JSON, with the limits as they are."""
    return torch.ops.gpuopt_ladder.plan(planner, list(problem), list(problem.values()), *device.values())


def differs(row: dict, device: dict[str, int]) -> bool:
    """Whether the limit decides the plan of a row's problem."""
    product = plan(row["planner"], row["problem"], device)
    with With(row["room"], row["limit"], row["value"]):
        return plan(row["planner"], row["problem"], device) != product


def device_of(properties) -> dict[str, int]:
    return {
        "sms": properties.multi_processor_count,
        "shared_bytes": properties.shared_memory_per_block_optin,
        "has_clusters": int(properties.major >= 9),
    }


# ---------------------------------------------------------------- measuring


def drawn(room: str, part: int, parts: int) -> Iterator[tuple[str, Case]]:
    """Families take turns."""
    lists = [problems.problems(family, PROBLEMS, SEED) for family in FAMILIES[room]]
    yield from itertools.islice(itertools.chain(*zip(*lists)), part, None, parts)


def recorded(call, arguments: tuple) -> list[tuple[str, dict[str, float]]]:
    """The problems of a call, each with its planner."""
    ladder = torch.ops.gpuopt_ladder
    ladder.record_problems(True)
    call(*arguments)
    found = ladder.record_problems(False)
    return [(planner, flat(json.loads(text))) for planner, text in zip(found[::2], found[1::2])]


def decided(room: str, found: list, device: dict[str, int], is_full: Callable[[tuple], bool]) -> dict[tuple, dict]:
    """The rows of a call's problems, by limit and other value. ``is_full`` tells which have enough."""
    made = {}
    for (limit, values), (planner, problem) in itertools.product(OTHERS[room].items(), found):
        for value in values:
            row = {"room": room, "limit": limit, "value": value, "planner": planner, "problem": problem}
            is_own = planner.split(".")[0] in (room, "spmm")
            if is_own and not is_full((limit, value)) and differs(row, device):
                made.setdefault((limit, value), row)
    return made


def times(room: str, ours: Callable, case: Case, keys: Iterable[tuple], timer: DeviceTimer, moved: int) -> dict:
    """The times of a call: with the limits of the product, and with each limit at its other value."""

    def other(key: tuple) -> Callable:
        other_limit = With(room, *key)

        def call(*arguments):
            with other_limit:
                return ours(*arguments)

        return call

    contenders = {"product": ours, **{key: other(key) for key in keys}}
    return timer.compare(contenders, lambda seed: case.build("cuda", seed), moved)


def rows(room: str, part: int, parts: int) -> Iterator[dict]:
    timer = DeviceTimer(budget_s=0.01)
    device = device_of(torch.cuda.get_device_properties(0))
    calls = {name: of.calls() for name, of in rooms().items()}
    counts = collections.Counter()
    for bench, case in drawn(room, part, parts):
        call = calls[bench][case.call]
        try:
            found = recorded(call.ours, case.build("cuda", 0))
            made = decided(room, found, device, lambda key: counts[key] >= math.ceil(MOST_ROWS / parts))
            measured = times(room, call.ours, case, made, timer, sum(traffic(case, call))) if made else {}
        except torch.OutOfMemoryError:
            continue
        finally:
            timer.release_memory()
        for key, row in made.items():
            if isinstance(measured[key], Exception):
                print(f"{room} {key} {case.title}: {measured[key]}", file=sys.stderr)
                continue
            counts[key] += 1
            us, other_us = measured["product"].median, measured[key].median
            yield row | {"case": case.title, "device": device, "us": us, "other_us": other_us}


def measure_part(arguments: argparse.Namespace) -> None:
    part, parts = map(int, arguments.part.split("/"))
    with arguments.out.with_suffix(f".{arguments.room}.{part}").open("w") as file:
        for row in rows(arguments.room, part, parts):
            print(json.dumps(report.rounded(row)), file=file, flush=True)


def measure(arguments: argparse.Namespace, argv: list[str]) -> int:
    """Replaces the room's lines of the file. Returns the exit code."""
    if not torch.cuda.is_available():
        return command.failed(command.NO_GPU)
    codes = command.on_every_gpu("tune", *argv)
    head = {"room": arguments.room, "gpu": machine.gpu(), **machine.versions(), **machine.commit(arguments.commit)}
    lines = [json.dumps(head)]
    for part in range(len(codes)):
        path = arguments.out.with_suffix(f".{arguments.room}.{part}")
        lines += path.read_text().splitlines()
        path.unlink()
    kept = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    kept = [line for line in kept if json.loads(line)["room"] != arguments.room]
    arguments.out.write_text("\n".join([*kept, *lines]) + "\n")
    print(table(evidence(arguments.out), arguments.room))
    return command.failed("a measurement failed") if any(codes) else 0


# ---------------------------------------------------------------- evidence


def evidence(path: Path = EVIDENCE) -> list[dict]:
    return [row for row in map(json.loads, path.read_text().splitlines()) if "limit" in row]


def worth(measured: list[dict], room: str, limit: str) -> tuple[float, int]:
    """What a limit gains over the best other value, as a geometric mean over the problems that it decides, and how many these are."""
    ratios = collections.defaultdict(list)
    for row in measured:
        if (row["room"], row["limit"]) == (room, limit):
            ratios[row["value"]].append(row["other_us"] / row["us"])
    if len(ratios) < len(OTHERS[room][limit]):
        return 1.0, 0
    means = {value: math.exp(sum(map(math.log, of)) / len(of)) for value, of in ratios.items()}
    least = min(means, key=means.get)
    return means[least], len(ratios[least])


def table(measured: list[dict], room: str) -> str:
    lines = ["| limit | value | problems | gains |", "|---|---:|---:|---:|"]
    for limit, value in limits(room).items():
        if limit in OTHERS[room]:
            gain, count = worth(measured, room, limit)
            lines.append(f"| `{limit}` | {value:g} | {count} | {gain:.2f} x |")
    return "\n".join(lines)
