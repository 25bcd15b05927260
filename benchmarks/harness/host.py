"""Measurements over several numbers of ranks: the GPUs of one host, or processes on the CPU. Each number runs in separate processes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import multiprocessing

from benchmarks.harness import command, machine, report

NO_GPU = f"{command.NO_GPU} --cpu measures processes on the CPU."
DEVICES = {"cuda": "GPUs", "cpu": "cores"}


def measuring(room: str, usage: str, ranks: str, repeats: int) -> argparse.ArgumentParser:
    """A parser with the options of these measurements. ``ranks`` says which numbers are the default."""
    made = command.measuring(room, usage, f"/{room}.json")
    made.add_argument("--cpu", action="store_true", help="processes on the CPU")
    made.add_argument("--ranks", type=int, nargs="+", help=f"numbers of ranks ({ranks})")
    made.add_argument("--repeats", type=int, default=repeats, help=f"of each time, whose median counts ({repeats})")
    return made


def kind_of(given: argparse.Namespace) -> str | None:
    """The type of device to measure, or None without one."""
    return "cpu" if given.cpu else "cuda" if torch.cuda.is_available() else None


def rows_of(run: Callable[..., None], ranks: int, *arguments: object) -> list[dict]:
    """The rows that rank 0 of ``run(rank, ranks, *arguments, folder)`` writes to the folder."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(run, (ranks, *arguments, folder), ranks, start_method="spawn")
        return json.loads((Path(folder) / "rows.json").read_text())


class Host:
    """Measures on this host, and saves after each number of ranks."""

    def __init__(self, room: str, kind: str, settings: dict, given: argparse.Namespace) -> None:
        self.kind = kind
        if kind == "cuda":
            self.result = report.fresh(room, settings, given.commit)
            folder = command.results_of(self.result["gpu"]["name"])
            self.devices = torch.cuda.device_count()
        else:
            self.devices = len(os.sched_getaffinity(0))
            cpu = {"name": f"a CPU ({platform.machine()}, {self.devices} cores)"}
            source = machine.commit(given.commit)
            self.result = report.document(room, cpu, machine.versions(), source, machine.library(), settings)
            folder = machine.RESULTS / "cpu"
        self.out = given.out or folder / f"{room}.json"

    def add(self, ranks: int, measured: Callable[[], list[dict]], detail: str = "") -> None:
        """Measures, unless ranks would share a device or a core and so measure each other."""
        if ranks > self.devices:
            title = f"{ranks} ranks{detail}"
            self.result["left_out"].append(f"{title}: this host has {self.devices} {DEVICES[self.kind]}")
            return
        self.result["rows"] += measured()
        report.save(self.out, self.result)

    def finish(self, text: Callable[[dict], str]) -> int:
        """Saves the complete result, prints it and returns the exit code."""
        if not self.result["rows"]:
            return command.failed(", ".join(self.result["left_out"]))
        self.result["complete"] = True
        report.save(self.out, self.result)
        print(text(self.result), *self.result["left_out"], sep="\n")
        return 0
