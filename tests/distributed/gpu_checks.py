"""What the ranks of test_gpus.py run: the checks of the CPU, with NCCL and a GPU for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from . import exchange_checks, model_checks, rules_checks


def _joined(rank: int, folder: Path, name: str) -> int:
    """Joins a group with NCCL, whose ranks have a GPU each. Returns the number of ranks."""
    world = dist.get_world_size()
    dist.destroy_process_group()
    torch.cuda.set_device(rank)
    torch.set_default_device(f"cuda:{rank}")
    torch.backends.cudnn.deterministic = True
    dist.init_process_group(
        "cpu:gloo,cuda:nccl", rank=rank, world_size=world, init_method=f"file://{folder / f'store-{name}'}"
    )
    return world


def rules(rank: int, folder: Path) -> dict[str, Any]:
    world = _joined(rank, folder, "rules")
    return rules_checks.on_mesh(DeviceMesh("cuda", list(range(world))))


def exchanges(rank: int, folder: Path) -> set[tuple[str, int]]:
    return exchange_checks.passed_on("cuda", rank, _joined(rank, folder, "exchanges"))


def models(rank: int, folder: Path) -> set[tuple[str, int]]:
    return model_checks.passed_on("cuda", _joined(rank, folder, "models"))
