"""What one rank measures: a partition of an R-MAT graph, its file, and the count of its triangles."""

from __future__ import annotations

import json
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import torch_ops.distributed
from benchmarks.harness.ranks import Clock
from torch_ops.distributed._partition import Partition
from torch_ops.distributed._peers import Peers
from torch_ops.distributed._triangle_count import Steps

# The graph is the same for every number of ranks: piece k of the entries has seed k.
PIECES = 64
ENDS = 0.57, 0.76, 0.95  # of the quadrants of Graph500


def piece(scale: int, entries: int, seed: int, device: torch.device) -> torch.Tensor:
    """Entries of an R-MAT graph."""
    generator = torch.Generator(device).manual_seed(seed)
    ends = torch.zeros(2, entries, dtype=torch.int32, device=device)
    for _ in range(scale):
        quarter = torch.rand(entries, generator=generator, device=device)
        ends[0].mul_(2).add_(quarter >= ENDS[1])
        ends[1].mul_(2).add_((quarter >= ENDS[0]) & (quarter < ENDS[1]) | (quarter >= ENDS[2]))
    return ends


def slices(scale: int, factor: int, rank: int, ranks: int, device: torch.device) -> list[torch.Tensor]:
    entries = (factor << scale) // PIECES
    return [piece(scale, entries, seed, device) for seed in range(rank, PIECES, ranks)]


def alone(steps: Steps, clock: Clock) -> tuple[float, float]:
    """The seconds of all exchanges and of all counts, when neither overlaps the other."""
    communication = counting = 0.0
    for step in range(steps.count):
        seconds, blocks = clock.time(lambda step=step: steps.finish(steps.start(step)))
        communication += seconds
        seconds, _ = clock.time(lambda step=step, blocks=blocks: steps.triangles(step, blocks))
        counting += seconds
    return communication, counting


def named(part: Partition) -> int:
    """The vertices that this rank's edges name."""
    flags = {
        bucket: torch.zeros(part.rows[bucket], dtype=torch.bool, device=part.device)
        for bucket in part.deal.buckets_of(part.rank)
    }
    for (i, j), numbers in part.blocks.items():
        rows = part.rows[i] + 1
        flags[i] |= numbers[:rows].diff() > 0
        flags[j][numbers[rows:].long()] = True
    return sum(int(flag.sum()) for flag in flags.values())


def single(given: list[torch.Tensor], vertices: int, repeats: int, clock: Clock) -> dict[str, Any]:
    """The operator for one device, if the graph fits."""
    ops = torch.ops.gpuopt
    try:
        edges = torch.cat(given, 1)
        orient, (ptr, _, target, order) = clock.time(lambda: ops._orient_edges(*edges, vertices))
        counts = [clock.time(lambda: ops._count_oriented(ptr, target, order)) for _ in range(repeats + 1)]
    except torch.cuda.OutOfMemoryError:
        return {}
    return {"orient_s": orient, "count_s": statistics.median(seconds for seconds, _ in counts[1:])}


def peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def partitioned(rank: int, ranks: int, settings: dict[str, int], clock: Clock) -> tuple[dict, float, Partition]:
    """The times of the operator for one device if there is one rank, the time of a partition, and the partition."""
    scale, device = settings["scale"], clock.device
    given = slices(scale, settings["factor"], rank, ranks, device)
    common = {"single": single(given, 1 << scale, settings["repeats"], clock)} if ranks == 1 else {}
    seconds, part = clock.time(lambda: torch_ops.distributed.partition(given, num_nodes=1 << scale, device=device))
    return common, seconds, part


def measured(rank: int, ranks: int, device: torch.device, settings: dict[str, int]) -> tuple[dict, dict]:
    """What all ranks have in common, and what this one has."""
    repeats, clock = settings["repeats"], Clock(device)
    common, seconds, part = partitioned(rank, ranks, settings, clock)
    of_rank: dict[str, Any] = {"partition_s": seconds, "partition_peak": peak(device)}
    with tempfile.TemporaryDirectory() as folder:
        of_rank["save_s"], path = clock.time(lambda: part.save(folder))
        of_rank["file_bytes"] = path.stat().st_size
        of_rank["load_s"], part = clock.time(lambda: torch_ops.distributed.load_partition(folder, device=device))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    counts = [clock.time(lambda: torch_ops.distributed.triangle_count(part)) for _ in range(repeats + 1)]
    of_rank["count_s"] = statistics.median(seconds for seconds, _ in counts[1:])
    of_rank["count_peak"] = peak(device)
    steps = Steps(part, Peers("benchmark", None))
    alone(steps, clock)  # connections are made at their first use
    of_rank["communication_s"], of_rank["counting_s"] = map(
        statistics.median, zip(*(alone(steps, clock) for _ in range(repeats)))
    )
    of_rank["steps_s"] = statistics.median(clock.time(steps.run)[0] for _ in range(repeats))
    sent = [block for step in range(steps.count) for _, block in part.deal.sent(rank, step)]
    of_rank |= {"sent_bytes": 4 * sum(map(part.length_of, sent)), "held_bytes": steps.nbytes, "named": named(part)}
    common |= {"ranks": ranks, "buckets": part.buckets, "edges": part.num_edges, "vertices": sum(part.rows)}
    return common | {"triangles": counts[0][1]}, of_rank


def run(rank: int, ranks: int, backend: str, kind: str, settings: dict[str, int], folder: str) -> None:
    """One process. Rank 0 writes the row."""
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, rank=rank, world_size=ranks, init_method=f"file://{folder}/store")
    common, of_rank = measured(rank, ranks, device, settings)
    each = Peers("benchmark", None).gather(of_rank)
    if rank == 0:
        row = {"device": kind, "backend": backend, **common, "each": each}
        (Path(folder) / "rows.json").write_text(json.dumps([row]))
    dist.barrier()
    dist.destroy_process_group()
