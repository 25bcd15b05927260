"""Measures operators on sharded tensors over the GPUs of one host, or over processes on the CPU.

    python -m benchmarks distributed                  a case of each rule and Mamba's block, on 1, 2 and 4 GPUs with NCCL
    python -m benchmarks distributed --ranks 1 8      other numbers of GPUs
    python -m benchmarks distributed --cpu            small tensors in 1 and 2 processes with gloo, which says nothing about GPUs

Writes distributed.json into benchmarks/results/<gpu>/, or into benchmarks/results/cpu/. The work of a rank is the same for any number of
ranks, except of one case, whose sequence is divided. Each number of ranks runs in processes of its own.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path

import torch
from torch import multiprocessing

from benchmarks.distributed import rank
from benchmarks.distributed import report as distributed
from benchmarks.harness import command, machine, report

ROOM = "distributed"
FILE = f"{ROOM}.json"


def rows_of(ranks: int, kind: str, settings: dict) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(rank.run, (ranks, kind, settings, folder), ranks, start_method="spawn")
        return json.loads((Path(folder) / "rows.json").read_text())


def document(kind: str, settings: dict, commit: str | None) -> dict:
    if kind == "cuda":
        return report.fresh(ROOM, settings, commit)
    cpu = {"name": f"a CPU ({platform.machine()}, {len(os.sched_getaffinity(0))} cores)"}
    return report.document(ROOM, cpu, machine.versions(), machine.commit(commit), machine.library(), settings)


def main(argv: list[str]) -> int:
    parser = command.measuring(ROOM, __doc__, f"/{FILE}")
    parser.add_argument("--cpu", action="store_true", help="processes on the CPU")
    parser.add_argument("--ranks", type=int, nargs="+", help="numbers of ranks (1 2 4, with --cpu 1 2)")
    parser.add_argument("--repeats", type=int, default=7, help="of each time, whose median counts (7)")
    given = parser.parse_args(argv)
    kind = "cpu" if given.cpu else "cuda"
    if kind == "cuda" and not torch.cuda.is_available():
        return command.failed(f"{command.NO_GPU} --cpu measures processes on the CPU.")
    settings = {"size": 1 if kind == "cuda" else 1 / 256, "repeats": given.repeats}
    result = document(kind, settings, given.commit)
    folder = machine.RESULTS / "cpu" if kind == "cpu" else command.results_of(result["gpu"]["name"])
    out = given.out or folder / FILE
    there = torch.cuda.device_count() if kind == "cuda" else len(os.sched_getaffinity(0))
    for ranks in given.ranks or ([1, 2, 4] if kind == "cuda" else [1, 2]):
        if ranks > there:  # ranks that share a device or a core would measure each other
            result["left_out"].append(f"{ranks} ranks: this host has {there} {'GPUs' if kind == 'cuda' else 'cores'}")
            continue
        result["rows"] += rows_of(ranks, kind, settings)
        report.save(out, result)
    if not result["rows"]:
        return command.failed(", ".join(result["left_out"]))
    result["complete"] = True
    report.save(out, result)
    print(distributed.text(result), *result["left_out"], sep="\n")
    return 0
