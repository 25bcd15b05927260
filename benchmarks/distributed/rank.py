"""What one rank measures: the seconds of each case, forward, and forward and backward."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.distributed.cases import CASES, Case, Maker, Run
from benchmarks.harness.ranks import Clock

DTYPES = {"cuda": torch.bfloat16, "cpu": torch.float32}
CALLS = 10  # in a row, for each time


def _backward(run: Run) -> None:
    """Forward and backward, with the gradients of all operands."""
    local = run().to_local()
    local.backward(torch.ones_like(local))


def median(function: Callable[[], Any], repeats: int, clock: Clock, calls: int) -> float:
    function()  # connections, caches and the allocator's memory are made at their first use

    def often() -> None:
        for _ in range(calls):
            function()

    return statistics.median(clock.time(often)[0] for _ in range(repeats)) / calls


def measured(case: Case, maker: Maker, repeats: int, clock: Clock, calls: int = CALLS) -> dict[str, float]:
    run = case.make(maker)
    with torch.no_grad():
        forward = median(run, repeats, clock, calls)
    if clock.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(clock.device)
    found = {"forward_s": forward, "training_s": median(lambda: _backward(run), repeats, clock, calls)}
    if clock.device.type == "cuda":
        found["peak"] = torch.cuda.max_memory_allocated(clock.device)
    return found


def run(rank: int, ranks: int, kind: str, settings: dict[str, Any], folder: str) -> None:
    """One process. Rank 0 writes the rows."""
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=ranks, init_method=f"file://{folder}/store")
    mesh, clock = init_device_mesh(kind, (ranks,)), Clock(device)
    rows = []
    for case in CASES:
        torch.manual_seed(rank)
        of_rank = measured(case, Maker(mesh, settings["size"], DTYPES[kind]), settings["repeats"], clock)
        each: list[Any] = [None] * ranks
        dist.all_gather_object(each, of_rank)
        rows.append({"case": case.name, "device": kind, "ranks": ranks, "each": each})
    if rank == 0:
        (Path(folder) / "rows.json").write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()
