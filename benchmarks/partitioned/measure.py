"""Measures triangle counts of partitioned graphs over the GPUs of one host, or over processes on the CPU.

    python -m benchmarks partitioned                          R-MAT of scale 24 on 1, 2 and 4 GPUs, NCCL and gloo
    python -m benchmarks partitioned --scale 27 --ranks 4     a larger graph on 4 GPUs
    python -m benchmarks partitioned --cpu                    scale 16 in 1, 2 and 4 processes, gloo, if there are 4 cores

Writes partitioned.json into benchmarks/results/<gpu>/, or into benchmarks/results/cpu/. Prints tables of what was measured, and of what a
model that is fitted to it predicts for more ranks. Each number of ranks runs in processes of its own.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path

import torch
from torch import multiprocessing

from benchmarks.harness import command, machine, report
from benchmarks.partitioned import rank
from benchmarks.partitioned import report as partitioned

ROOM = "partitioned"
FILE = f"{ROOM}.json"
DEVICES = {"cuda": "GPUs", "cpu": "cores"}


def row_of(ranks: int, backend: str, kind: str, settings: dict) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, backend, kind, settings, folder)
        multiprocessing.start_processes(rank.run, arguments, ranks, start_method="spawn")
        return json.loads((Path(folder) / "row.json").read_text())


def document(kind: str, settings: dict, commit: str | None) -> dict:
    if kind == "cuda":
        return report.fresh(ROOM, settings, commit)
    cpu = {"name": f"a CPU ({platform.machine()}, {len(os.sched_getaffinity(0))} cores)"}
    return report.document(ROOM, cpu, machine.versions(), machine.commit(commit), machine.library(), settings)


def main(argv: list[str]) -> int:
    parser = command.measuring(ROOM, __doc__, f"/{FILE}")
    parser.add_argument("--cpu", action="store_true", help="processes on the CPU")
    parser.add_argument("--scale", type=int, help="of the R-MAT graph, which has 2^scale vertices")
    parser.add_argument("--factor", type=int, default=16, help="entries for each vertex (16)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="numbers of ranks (1 2 4)")
    parser.add_argument("--backends", nargs="+", default=["nccl", "gloo"], help="on GPUs (nccl gloo)")
    parser.add_argument("--repeats", type=int, default=5, help="of each time, whose median counts (5)")
    given = parser.parse_args(argv)
    kind = "cpu" if given.cpu else "cuda"
    if kind == "cuda" and not torch.cuda.is_available():
        return command.failed(f"{command.NO_GPU} --cpu measures processes on the CPU.")
    backends = given.backends if kind == "cuda" else ["gloo"]
    known = sorted({backend for _, backend in partitioned.TITLES})
    command.check_names(parser, "backend", backends, known)
    scale = given.scale or (24 if kind == "cuda" else 16)
    settings = {"scale": scale, "factor": given.factor, "repeats": given.repeats}
    result = document(kind, settings, given.commit)
    folder = machine.RESULTS / "cpu" if kind == "cpu" else command.results_of(result["gpu"]["name"])
    out = given.out or folder / FILE
    there = torch.cuda.device_count() if kind == "cuda" else len(os.sched_getaffinity(0))
    for backend in backends:
        for ranks in given.ranks:
            if ranks > there:  # ranks that share a device or a core would measure each other
                result["left_out"].append(f"{ranks} ranks, {backend}: this host has {there} {DEVICES[kind]}")
                continue
            result["rows"].append(row_of(ranks, backend, kind, settings))
            report.save(out, result)
    if not result["rows"]:
        return command.failed(", ".join(result["left_out"]))
    counts = {row["triangles"] for row in result["rows"]}
    if len(counts) > 1:
        return command.failed(f"ranks count different triangles: {sorted(counts)}")
    result["complete"] = True
    report.save(out, result)
    print(partitioned.text(result), *result["left_out"], sep="\n")
    return 0
