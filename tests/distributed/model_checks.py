"""What the ranks of test_models.py run: training steps of models that are replicated, sharded, or compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import torch_ops
import torch_ops.distributed as distributed
from torch_ops.compat.causal_conv1d import causal_conv1d_fn
from torch_ops.compat.mamba_ssm import selective_scan_fn

from .exchange_checks import same, weighed

WORLD = 4


class Mixer(nn.Module):
    """A small Mamba block: drop-ins, modules of torch_ops.nn, and ATen's operators, which the override replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch_ops.nn.Conv1d(6, 6, 3, padding=1, groups=6)
        self.mix = nn.Linear(6, 6)
        self.taps = nn.Parameter(torch.randn(6, 4) * 0.5)
        self.decay = nn.Parameter(-torch.rand(6, 3) - 0.5)
        self.states = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        x = self.mix(x.transpose(1, 2)).transpose(1, 2)
        x = causal_conv1d_fn(x, self.taps, activation="silu")
        B, C = self.states(x.transpose(1, 2)).transpose(1, 2).chunk(2, 1)
        return selective_scan_fn(x, x, self.decay, B.contiguous(), C.contiguous(), delta_softplus=True)


def trained(model: nn.Module, x: torch.Tensor, steps: int = 2) -> dict[str, torch.Tensor]:
    """The parameters after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    named = {name.removeprefix("module."): p.detach() for name, p in model.named_parameters()}
    return {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in named.items()}


def steps(ranks: int, mesh: DeviceMesh, wrap: Callable[[nn.Module], nn.Module]) -> None:
    """Each rank has a part of the batch. The parameters equal the ones of one process with the whole batch."""
    torch.manual_seed(3)
    model, x = Mixer().double(), torch.randn(4, 6, 12, dtype=torch.float64)
    expected = trained(copy.deepcopy(model), x)
    part = x.chunk(ranks)[mesh.get_local_rank()]
    for with_override in (False, True):
        wrapped = wrap(copy.deepcopy(model))
        if with_override:
            with torch_ops.override():
                found = trained(wrapped, part)
        else:
            found = trained(wrapped, part)
        assert found.keys() == expected.keys()
        for name in expected:
            same(name, found[name], expected[name])


def ddp(mesh: DeviceMesh) -> None:
    steps(mesh.size(), mesh, lambda model: DistributedDataParallel(model, process_group=mesh.get_group()))


def fsdp(mesh: DeviceMesh) -> None:
    steps(mesh.size(), mesh, lambda model: fully_shard(model, mesh=mesh))


# ---------------------------------------------------------------- compiled


def block(x: DTensor, taps: torch.Tensor, decay: torch.Tensor, B: DTensor, C: DTensor) -> DTensor:
    x = distributed.causal_conv1d(x, taps, activation="silu")
    return distributed.selective_scan(x, x, decay, B, C, delta_softplus=True)


def rules(x: DTensor, y: DTensor) -> DTensor:
    return torch_ops.reduce_sum(torch_ops.fma(x, y, y), 0)


def as_in_eager(function: Callable[..., Any], tensors: list, mesh: DeviceMesh, placements: list) -> None:
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    found = []
    for call in (function, compiled):
        shards = [
            t.detach().clone().requires_grad_() if p is None else distribute_tensor(t, mesh, p).requires_grad_()
            for t, p in zip(tensors, placements)
        ]
        result = call(*shards)
        found.append([result, *torch.autograd.grad(weighed(result), shards)])
    for i, (one, other) in enumerate(zip(*found)):
        if isinstance(one, DTensor):
            assert one.placements == other.placements
            one = one.full_tensor()
        same(f"result or gradient {i}", other, one)


def compiled(mesh: DeviceMesh) -> None:
    torch.manual_seed(4)
    random = lambda *sizes: torch.randn(sizes, dtype=torch.float64)  # noqa: E731
    as_in_eager(rules, [random(4, 6), random(4, 6)], mesh, [[Shard(0)], [Replicate()]])
    sequence = [Shard(2)]
    tensors = [random(2, 4, 8), random(4, 3), -random(4, 3).abs(), random(2, 3, 8), random(2, 3, 8)]
    as_in_eager(block, tensors, mesh, [sequence, None, None, sequence, sequence])


CHECKS = (ddp, fsdp, compiled)


def passed_on(kind: str, world: int) -> set[tuple[str, int]]:
    """The checks that passed, with the number of ranks."""
    passed = set()
    for ranks in sorted({2, world}):
        mesh = init_device_mesh(kind, (world // ranks, ranks), mesh_dim_names=("copies", "parts"))["parts"]
        for check in CHECKS:
            check(mesh)
            passed.add((check.__name__, ranks))
    dist.barrier()
    return passed


def models(rank: int, folder: Path) -> set[tuple[str, int]]:
    return passed_on("cpu", WORLD)
