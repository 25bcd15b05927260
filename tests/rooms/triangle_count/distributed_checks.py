"""What the ranks of test_distributed.py run. Everything happens in one set of processes; groups of some of them are the ranks."""

from __future__ import annotations

import datetime
import functools
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist

import torch_ops.distributed as distributed
from benchmarks.partitioned import rank as benchmark
from torch_ops import CSR
from torch_ops.distributed._peers import Peers
from torch_ops.distributed._triangle_count import Steps

from ...support import graphs

WORLD = 9
RANKS = (1, 2, 3, 4, 9)
TIMEOUT = 4.0  # seconds, of the groups that lose a rank

# Each graph with its number of vertices.
GRAPHS = {
    "complete": (graphs.complete(40), 40),
    "bipartite": (graphs.bipartite(30, 50), 80),
    "star": (graphs.star(300), 301),
    "wheel": (graphs.wheel(200), 201),
    "cliques": (graphs.chained_cliques(20, 9), 161),
    "random": (np.random.default_rng(1).integers(0, 120, (2, 1500)), 120),
    "isolated vertices": (graphs.complete(5) + 7, 1000),
    "one triangle": (graphs.complete(3), 3),
    "no edges": (np.zeros((2, 0), np.int64), 5),
    "one vertex": (np.zeros((2, 4), np.int64), 1),
    "R-MAT 9": (graphs.rmat(9, 6000, 2), 512),
    "R-MAT 13": (graphs.rmat(13, 100_000, 3), 8192),
}
RMAT = GRAPHS["R-MAT 9"]
OTHER = graphs.rmat(9, 6000, 4)


def has_edges(name: str) -> bool:
    ends, _ = GRAPHS[name]
    return bool((ends[0] != ends[1]).any())


def edges_of(ends: np.ndarray, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(ends)).to(dtype)


def caught(function: Callable[[], Any]) -> tuple[str, str, float]:
    """The type of the error that a call raises, its message, and the seconds until then."""
    start = time.monotonic()
    try:
        return "returned", repr(function()), time.monotonic() - start
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - start


# ---------------------------------------------------------------- counts


def slices(ends: np.ndarray, rank: int, ranks: int) -> dict[str, Any]:
    """A graph, given to ranks in several ways."""
    messy = graphs.messy(ends, 5)
    everywhere = edges_of(messy)
    lists = [edges_of(part) for part in np.array_split(messy[:, rank::ranks], 3, axis=1)]
    return {
        "every n-th entry": edges_of(messy[:, rank::ranks], torch.int32),
        "all on the last rank": everywhere if rank == ranks - 1 else everywhere[:, :0],
        "all on each rank": everywhere,
        "lists": iter(lists),
    }


def counts(rank: int, ranks: int, group) -> dict[str, Any]:
    found: dict[str, Any] = {"counts": {}, "digests": {}}
    for name, (ends, vertices) in GRAPHS.items():
        part = distributed.partition(edges_of(ends[:, rank::ranks]), group, num_nodes=vertices)
        found["counts"][name] = distributed.triangle_count(part, group)
        found["digests"][name] = part.digest
    part = distributed.partition(edges_of(GRAPHS["R-MAT 13"][0][:, rank::ranks]), group, num_nodes=8192)
    steps = Steps(part, Peers("test", group))
    sent = sum(part.length_of(b) for step in range(steps.count) for _, b in part.deal.sent(rank, step))
    found["size"] = {"part": part.nbytes, "bytes": steps.nbytes, "sent": 4 * sent, "edges": part.num_edges}
    found["size"] |= {"rows": sum(part.rows), "buckets": part.buckets, "copies": part.deal.copies}
    return found


def inputs(rank: int, ranks: int, group) -> dict[str, Any]:
    ends, vertices = RMAT
    given = slices(ends, rank, ranks)
    given["rows of a matrix"] = CSR.from_edge_index(edges_of(ends[:, ends[0] % ranks == rank]), num_nodes=vertices)
    found = {}
    for name, slice_of in given.items():
        known = None if isinstance(slice_of, CSR) else vertices
        part = distributed.partition(slice_of, group, num_nodes=known)
        found[name] = (distributed.triangle_count(part, group), part.digest)
    part = distributed.partition(edges_of(ends[:, rank::ranks]), group, num_nodes=vertices, buckets=7)
    found["more buckets"] = (distributed.triangle_count(part, group), part.digest)
    with mock.patch.object(sys.modules[distributed.Partition.__module__], "CHUNK", 100):
        part = distributed.partition(slices(ends, rank, ranks)["lists"], group, num_nodes=vertices)
    found["many exchanges"] = (distributed.triangle_count(part, group), part.digest)
    return found


# ---------------------------------------------------------------- files


def files(rank: int, group, groups: dict, folder: Path) -> dict[str, Any]:
    """Of four ranks: written once, and loaded by groups of other sizes."""
    ends, vertices = RMAT
    if rank < 4:
        distributed.partition(edges_of(ends[:, rank::4]), group, num_nodes=vertices).save(folder / "four")
    dist.barrier()
    found: dict[str, Any] = {}
    for ranks, others in groups.items():
        if rank < ranks:
            part = distributed.load_partition(folder / "four", others)
            found[ranks] = (distributed.triangle_count(part, others), part.digest)
    return found


def edited(path: Path, edit: Callable[[bytearray], bytes]) -> None:
    path.write_bytes(edit(bytearray(path.read_bytes())))


def flipped(data: bytearray, position: int) -> bytes:
    data[position] ^= 4
    return bytes(data)


FAULTS: dict[str, Callable[[Path], None]] = {
    "truncated": lambda path: edited(path, lambda data: bytes(data[:-40])),
    "truncated header": lambda path: edited(path, lambda data: bytes(data[:60])),
    "truncated prefix": lambda path: edited(path, lambda data: bytes(data[:11])),
    "empty": lambda path: edited(path, lambda data: b""),
    "foreign": lambda path: edited(path, lambda data: b"PK\x03\x04" + bytes(100)),
    "version": lambda path: edited(path, lambda data: bytes(data[:8]) + b"\x63\0\0\0" + bytes(data[12:])),
    "damaged header": lambda path: edited(path, lambda data: flipped(data, 30)),
    "damaged block": lambda path: edited(path, lambda data: flipped(data, len(data) - 9)),
    "missing": lambda path: path.unlink(),
    "of another rank": lambda path: shutil.copy(path.parent / "rank-0-of-3.gpuopt", path) and None,
    "of another graph": lambda path: shutil.copy(path.parent.parent / "other" / path.name, path) and None,
    "two partitions": lambda path: shutil.copy(path, path.parent / "rank-0-of-2.gpuopt") and None,
}


def faults_of_files(rank: int, group, folder: Path) -> dict[str, Any]:
    """What each of three ranks raises, when the file of rank 1 has a fault."""
    ends, vertices = RMAT
    for name, graph in (("good", ends), ("other", OTHER)):
        distributed.partition(edges_of(graph[:, rank::3]), group, num_nodes=vertices).save(folder / name)
    dist.barrier(group)
    found = {}
    for fault, spoil in FAULTS.items():
        if rank == 1:
            shutil.copytree(folder / "good", folder / fault)
            spoil(folder / fault / "rank-1-of-3.gpuopt")
        dist.barrier(group)
        found[fault] = caught(functools.partial(distributed.load_partition, folder / fault, group))
    return found


# ---------------------------------------------------------------- disagreement


def disagreements(rank: int, group, pair) -> dict[str, Any]:
    """What each of three ranks raises."""
    ends, vertices = RMAT
    own = edges_of(ends[:, rank::3])
    part = distributed.partition(own, group, num_nodes=vertices)
    other = distributed.partition(edges_of(OTHER[:, rank::3]), group, num_nodes=vertices)
    missing = distributed.partition(own, group, num_nodes=vertices)
    if rank == 2:
        missing.digests.popitem()
    first = rank == 0
    partition = functools.partial(distributed.partition, group=group)
    calls: dict[str, Callable[[], Any]] = {
        "graphs": lambda: distributed.triangle_count(other if first else part, group),
        "blocks": lambda: distributed.triangle_count(missing, group),
        "not a partition": lambda: distributed.triangle_count(own if first else part, group),
        "vertices": lambda: partition(own, num_nodes=vertices + first),
        "buckets": lambda: partition(own, num_nodes=vertices, buckets=3 + first),
        "too few buckets": lambda: partition(own, num_nodes=vertices, buckets=1),
        "no buckets": lambda: partition(own, num_nodes=vertices, buckets=0),
        "out of range": lambda: partition(own, num_nodes=400),
        "negative": lambda: partition(own - int(first), num_nodes=vertices),
        "dtype": lambda: partition(own.float() if first else own, num_nodes=vertices),
        "shape": lambda: partition(own.mT[:, :2] if first else own, num_nodes=vertices),
        "second list": lambda: partition([own, own.mT] if first else [own], num_nodes=vertices),
        "unknown vertices": lambda: partition([own]),
        "too many vertices": lambda: partition(own, num_nodes=2**31),
        "too large a vertex": lambda: partition(own + 2**31 if first else own),
        "half a vertex": lambda: partition(own, num_nodes=2.5),
        "half a bucket": lambda: partition(own, num_nodes=vertices, buckets=2.5),
        "no graph": lambda: partition(None if first else own, num_nodes=vertices, device="cpu"),
    }
    found = {name: caught(call) for name, call in calls.items()}
    if rank < 2:
        found["group"] = caught(lambda: distributed.triangle_count(part, pair))
    return found


# ---------------------------------------------------------------- GPUs


def counts_on(device: torch.device, group) -> dict[str, int]:
    """Partitions and files of blocks on a GPU."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    found = {}
    for name, (ends, vertices) in GRAPHS.items():
        part = distributed.partition(edges_of(ends[:, rank::ranks]), group, num_nodes=vertices, device=device)
        assert part.device == device
        found[name] = distributed.triangle_count(part, group)
    return found


def on_gpus(rank: int, folder: Path) -> dict[str, Any]:
    """Four ranks that share the GPUs under gloo, and a GPU for each rank under NCCL."""
    count = torch.cuda.device_count()
    device = torch.device("cuda", rank % count)
    torch.cuda.set_device(device)
    found: dict[str, Any] = {"gloo 4": counts_on(device, None)}
    for ranks in (1, 2, 4):
        if ranks <= count:
            group = dist.new_group(list(range(ranks)), backend="nccl")
            if rank < ranks:
                found[f"nccl {ranks}"] = counts_on(device, group)
            if ranks == 1 and rank == 0:
                found["CPU under NCCL"] = caught(functools.partial(distributed.partition, edges_of(RMAT[0]), group))
    return found


def dying_on_gpus(rank: int, folder: Path) -> tuple[str, str, float] | None:
    """The last rank of an NCCL group dies in the count."""
    ranks = torch.cuda.device_count()
    group = dist.new_group(list(range(ranks)), backend="nccl", timeout=datetime.timedelta(seconds=3 * TIMEOUT))
    if rank >= ranks:
        return None
    ends, vertices = RMAT
    edges = edges_of(ends[:, rank::ranks])
    part = distributed.partition(edges, group, num_nodes=vertices, device=torch.device("cuda", rank))
    if rank == ranks - 1:
        Steps.triangles = lambda self, step, blocks: os._exit(1)
    return caught(lambda: distributed.triangle_count(part, group))


# ---------------------------------------------------------------- ranks that die


def die(group, kind: str) -> tuple[str, str, float]:
    """The last of three ranks dies or stalls. What the others raise."""
    ends, vertices = RMAT
    rank = dist.get_rank(group)
    last = rank == 2
    edges = edges_of(ends[:, rank::3])
    part = distributed.partition(edges, group, num_nodes=vertices)
    if kind == "in the partition":
        if last:
            os._exit(1)
        return caught(lambda: distributed.partition(edges, group, num_nodes=vertices))
    if last:
        count = Steps.triangles

        def stop(self, step, blocks):
            if step == 1:
                os._exit(1) if kind == "in the count" else time.sleep(1.5 * TIMEOUT)
            return count(self, step, blocks)

        Steps.triangles = stop
    return caught(lambda: distributed.triangle_count(part, group))


DEATHS = {"in the count": (0, 1, 2), "stalls": (3, 4, 5), "in the partition": (6, 7, 8)}


def living(rank: int, folder: Path) -> dict[str, Any]:
    groups = {ranks: dist.new_group(list(range(ranks))) for ranks in RANKS}
    found: dict[str, Any] = {ranks: counts(rank, ranks, group) for ranks, group in groups.items() if rank < ranks}
    if rank < 4:
        found["inputs"] = inputs(rank, 4, groups[4])
    found["files"] = files(rank, groups[4], groups, folder)
    if rank < 3:
        found["faults"] = faults_of_files(rank, groups[3], folder)
        found["disagreements"] = disagreements(rank, groups[3], groups[2])
    found["benchmark"] = benchmark.measured(rank, WORLD, torch.device("cpu"), {"scale": 8, "factor": 16, "repeats": 1})
    return found


def dying(rank: int, folder: Path) -> tuple[str, str, float]:
    timeout = datetime.timedelta(seconds=TIMEOUT)
    groups = {kind: dist.new_group(list(members), timeout=timeout) for kind, members in DEATHS.items()}
    kind = next(kind for kind, members in DEATHS.items() if rank in members)
    return die(groups[kind], kind)
