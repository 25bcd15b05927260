"""Runs checks in several processes that are ranks of a gloo group. The tests of a file share one run, as processes start slowly."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Check = Callable[[int, Path], Any]


def _file(folder: Path, check: Check, rank: int) -> Path:
    return folder / f"{check.__name__}-{rank}"


def _rank(checks: Sequence[Check], rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{folder / 'store'}")
    for check in checks:
        try:
            result = check(rank, folder)
        except BaseException:
            result = traceback.format_exc()
        _file(folder, check, rank).write_bytes(pickle.dumps(result))


def run(checks: Sequence[Check], ranks: int, folder: Path, seconds: float = 240) -> list[list[Any]]:
    """Calls check(rank, folder) for each check. Returns what it returned on each rank, the text of its exception, or None if the
    process died in it.

    The processes are forks of one that has imported torch_ops, so they start at once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch_ops.distributed"])
    processes = [context.Process(target=_rank, args=(checks, rank, ranks, folder)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(seconds)
        if process.is_alive():  # a hang fails the test
            process.kill()
            process.join()
    files = [[_file(folder, check, rank) for rank in range(ranks)] for check in checks]
    return [[pickle.loads(file.read_bytes()) if file.exists() else None for file in each] for each in files]
