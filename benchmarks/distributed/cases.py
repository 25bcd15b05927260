"""What is measured: a case for each group of rules, whose work on a rank is the same for any number of ranks, and a block of Mamba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

import torch_ops
import torch_ops.distributed as distributed
from torch_ops import CSR

Run = Callable[[], DTensor]


class Maker:
    """Makes the DTensors of a case.

    Args:
        mesh: of one dimension.
        size: the factor of the sizes: 1 on GPUs.
    """

    def __init__(self, mesh: DeviceMesh, size: float, dtype: torch.dtype) -> None:
        self.mesh, self.size, self.dtype = mesh, size, dtype
        self.ranks, self.rank = mesh.size(), mesh.get_local_rank()
        self.device = torch.device(mesh.device_type, self.rank if mesh.device_type == "cuda" else None)

    def scaled(self, n: int) -> int:
        return max(int(n * self.size), 64)

    def local(self, *sizes: int) -> Tensor:
        return torch.randn(sizes, device=self.device, dtype=self.dtype)

    def shards(self, dim: int, *sizes: int) -> DTensor:
        """A DTensor whose shards along `dim` have these sizes, with gradients."""
        return self.of(self.local(*sizes), Shard(dim)).requires_grad_()

    def of(self, tensor: Tensor, placement: Placement | None = None) -> DTensor:
        return DTensor.from_local(tensor, self.mesh, [placement or Replicate()], run_check=False)

    def replicas(self, *sizes: int) -> DTensor:
        return self.of(self.local(*sizes)).requires_grad_()

    def graph(self, rows: int, columns: int, degree: int) -> CSR:
        """Random columns for each row, the same on all ranks."""
        chooses = torch.Generator(self.device).manual_seed(self.rank)
        index = torch.randint(columns, (rows * degree,), generator=chooses, device=self.device)
        return CSR(torch.arange(0, rows * degree + 1, degree, device=self.device), index, None, (rows, columns))


@dataclass(frozen=True)
class Case:
    """What is measured.

    Args:
        name: the operator and what is sharded.
        make: makes the operands of a rank, and returns a call of them.
        exchanged: what ranks exchange, in words.
        strong: the work of all ranks together is the same for any number of ranks.
    """

    name: str
    make: Callable[[Maker], Run]
    exchanged: str
    strong: bool = False


# ---------------------------------------------------------------- rules


def _fma(make: Maker) -> Run:
    a, b, c = (make.shards(0, make.scaled(4096), 4096) for _ in range(3))
    return lambda: torch_ops.fma(a, b, c)


def _reduce(make: Maker) -> Run:
    x = make.shards(0, make.scaled(8192), 4096)
    return lambda: torch_ops.reduce_sum(x, 0).redistribute(make.mesh, [Replicate()])


def _dot(make: Maker) -> Run:
    x, y = (make.shards(0, make.scaled(1 << 24)) for _ in range(2))
    return lambda: torch_ops.dot(x, y).redistribute(make.mesh, [Replicate()])


def _matmul(make: Maker) -> Run:
    x, w = make.shards(1, make.scaled(4096), 1024), make.shards(0, 1024, 4096)
    return lambda: torch_ops.matmul(x, w).redistribute(make.mesh, [Shard(0)])


def _channels(make: Maker) -> Run:
    x, w = make.shards(0, 8, 256, make.scaled(16384)), make.replicas(256, 1, 7)
    return lambda: torch_ops.conv1d(x, w, padding=3, groups=256)


def _upsample(make: Maker) -> Run:
    x = make.shards(0, 8, make.scaled(256), 64, 64)
    return lambda: torch_ops.upsample_nearest2d(x, (128, 128))


def _index_add(make: Maker) -> Run:
    bins, entries = 1 << 14, make.scaled(1 << 18)
    index = make.of(torch.randint(bins, (entries,), device=make.device), Shard(0))
    into, source = make.replicas(bins, 128), make.shards(0, entries, 128)
    return lambda: torch_ops.index_add(into, 0, index, source).redistribute(make.mesh, [Shard(0)])


def _segments(make: Maker) -> Run:
    entries = make.scaled(1 << 18)
    offsets = make.of(torch.arange(0, entries + 1, 16, device=make.device))
    data = make.shards(1, entries - entries % 16, 128)
    return lambda: torch_ops.segment_reduce(data, offsets)


def _features(make: Maker) -> Run:
    n = make.scaled(1 << 16)
    csr, dense = make.graph(n, n, 16), make.shards(1, n, 128)
    csr.cache_transpose()
    return lambda: distributed.spmm(csr, dense)


# ---------------------------------------------------------------- exchanges


def _rows(make: Maker) -> Run:
    n = make.scaled(1 << 16)
    csr = distributed.ShardedCSR(make.graph(n, n * make.ranks, 16), make.mesh)
    dense = make.shards(0, n, 128)
    return lambda: distributed.spmm(csr, dense)


def _halo(make: Maker) -> Run:
    x, w = make.shards(2, 4, 256, make.scaled(32768)), make.replicas(256, 1, 31)
    return lambda: distributed.conv1d(x, w, padding=15, groups=256)


def _causal(make: Maker) -> Run:
    x, w = make.shards(2, 4, 1024, make.scaled(8192)), make.replicas(1024, 4)
    return lambda: distributed.causal_conv1d(x, w, activation="silu")


def _cumsum(make: Maker) -> Run:
    x = make.shards(1, 1024, make.scaled(32768))
    return lambda: distributed.cumsum(x, 1)


def _recurrence(make: Maker) -> Run:
    sizes = 1024, make.scaled(32768)
    a, b = make.of(make.local(*sizes).sigmoid(), Shard(1)).requires_grad_(), make.shards(1, *sizes)
    return lambda: distributed.linear_recurrence(a, b, 1)


def _mamba(length: int, make: Maker) -> Run:
    """causal_conv1d and selective_scan, as in a block of Mamba with 2048 channels and 16 states."""
    channels, states = (2048, 16) if make.size == 1 else (64, 4)
    x, z = (make.shards(2, 1, channels, length) for _ in range(2))
    B, C = (make.shards(2, 1, states, length) for _ in range(2))
    taps = make.replicas(channels, 4)
    A = make.of(-torch.rand(channels, states, device=make.device) - 0.5).requires_grad_()

    def run() -> DTensor:
        y = distributed.causal_conv1d(x, taps, activation="silu")
        return distributed.selective_scan(y, y, A, B, C, z=z, delta_softplus=True)

    return run


CASES: Sequence[Case] = (
    Case("fma, rows", _fma, "nothing"),
    Case("reduce_sum over rows", _reduce, "all-reduce of the sums"),
    Case("dot", _dot, "all-reduce of a number"),
    Case("matmul, inner dimension", _matmul, "reduce-scatter of the product"),
    Case("depthwise conv1d, batch", _channels, "nothing; the weight's gradient stays partial"),
    Case("upsample_nearest2d, batch", _upsample, "nothing"),
    Case("index_add, entries", _index_add, "reduce-scatter of the bins"),
    Case("segment_reduce, features", _segments, "nothing"),
    Case("spmm, features", _features, "nothing"),
    Case("spmm, rows", _rows, "rows that entries name"),
    Case("conv1d of 31 taps, length", _halo, "30 positions"),
    Case("causal_conv1d, length", _causal, "3 positions"),
    Case("cumsum, length", _cumsum, "a number for each row"),
    Case("linear_recurrence, length", _recurrence, "two numbers for each row"),
    Case("Mamba, length", lambda make: _mamba(make.scaled(16384), make), "3 positions, 32 numbers for each channel"),
    Case(
        "Mamba, a sequence of 65536",
        lambda make: _mamba(make.scaled(65536) // make.ranks, make),
        "3 positions, 32 numbers for each channel",
        strong=True,
    ),
)
