"""What the ranks of test_exchange.py run: functions that exchange something, on 2 and 4 ranks."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import torch_ops
import torch_ops.distributed as distributed
from benchmarks.distributed.cases import CASES, Maker
from benchmarks.distributed.rank import measured
from benchmarks.harness.ranks import Clock
from torch_ops import CSR

from ..support.compare import raised_by

WORLD = 4


def weighed(results: Any) -> torch.Tensor:
    """A number that depends on every value."""
    total = torch.zeros((), dtype=torch.float64)
    for t in results if isinstance(results, tuple) else (results,):
        whole = t.full_tensor() if isinstance(t, DTensor) else t
        total = total + (whole * torch.linspace(0.5, 1.5, whole.numel(), dtype=whole.dtype).view(whole.shape)).sum()
    return total


def same(name: str, found: torch.Tensor, expected: torch.Tensor, error: float = 1e-9) -> None:
    found = found.full_tensor() if isinstance(found, DTensor) else found
    assert found.dtype == expected.dtype, (name, found.dtype, expected.dtype)
    torch.testing.assert_close(found, expected, rtol=error, atol=error, msg=lambda text: f"{name}: {text}")


def compare(
    on_shards: Callable[..., Any],
    on_one: Callable[..., Any],
    tensors: Sequence[torch.Tensor | None],
    mesh: DeviceMesh,
    placements: Sequence[Sequence | None],
) -> None:
    """Results and gradients of a function of shards, which equal the ones of one process. A tensor without placements stays plain."""
    plain = [None if t is None else t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    shards = [
        None if t is None
        else t.detach().clone().requires_grad_(t.is_floating_point()) if p is None
        else distribute_tensor(t.detach().clone(), mesh, p).requires_grad_(t.is_floating_point())
        for t, p in zip(tensors, placements)
    ]  # fmt: skip
    expected, found = on_one(*plain), on_shards(*shards)
    pairs = zip(found, expected) if isinstance(expected, tuple) else [(found, expected)]
    for i, (one, other) in enumerate(pairs):
        assert one.shape == other.shape, (one.shape, other.shape)
        same(f"result {i}", one, other)
    leaves = [[t for t in of if t is not None and t.requires_grad] for of in (plain, shards)]
    gradients = [
        torch.autograd.grad(weighed(result), leaf) for result, leaf in ((expected, leaves[0]), (found, leaves[1]))
    ]
    for i, (other, one) in enumerate(zip(*gradients)):
        same(f"gradient {i}", one, other)
        assert not isinstance(leaves[1][i], DTensor) or isinstance(one, DTensor)


def random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, dtype=torch.float64)


# ---------------------------------------------------------------- convolutions


def convolutions(mesh: DeviceMesh) -> None:
    """Every geometry with windows of other ranks' positions: wider than a shard, without one, and of padding alone."""
    for length, taps, stride, padding, dilation, channels, groups in (
        (16, 3, 1, 1, 1, 4, 1), (17, 4, 2, (3, 0), 1, 4, 4), (13, 5, 3, 2, 2, 6, 3), (9, 7, 1, "same", 1, 2, 2),
        (12, 2, 4, 0, 3, 2, 1), (5, 1, 1, 9, 1, 2, 1), (3, 3, 1, 1, 1, 2, 2), (16, 9, 5, (0, 8), 1, 3, 1),
    ):  # fmt: skip
        sizes = random(2, channels, length), random(channels, channels // groups, taps), random(channels)
        ends = padding if padding != "same" else ((taps - 1) // 2, taps - 1 - (taps - 1) // 2)
        arguments = {"stride": stride, "dilation": dilation, "groups": groups}
        of_words = functools.partial(distributed.conv1d, padding=padding, **arguments)
        for activation in (None, "silu"):
            with_activation = {"padding": ends, "activation": activation, **arguments}
            ours = [functools.partial(distributed.conv1d_act, **with_activation)]
            for function in ours + [of_words] * (activation is None and not isinstance(padding, tuple)):
                compare(
                    function,
                    functools.partial(torch_ops.conv1d_act, **with_activation),
                    sizes, mesh, ([Shard(2)], [Replicate()], None),
                )  # fmt: skip
    compare(
        functools.partial(distributed.conv1d, padding=1),
        functools.partial(torch_ops.conv1d, padding=1),
        (random(2, 9), random(3, 2, 3)), mesh, ([Shard(1)], None),
    )  # fmt: skip
    # Channels in groups, and output channels.
    compare(
        functools.partial(distributed.conv1d, groups=4),
        functools.partial(torch_ops.conv1d, groups=4),
        (random(2, 8, 9), random(8, 2, 3), random(8)), mesh, ([Shard(1)], [Shard(0)], None),
    )  # fmt: skip
    compare(
        distributed.conv1d, torch_ops.conv1d, (random(2, 3, 9), random(8, 3, 3), random(8)), mesh,
        ([Replicate()], [Shard(0)], [Shard(0)]),
    )  # fmt: skip


def causal(mesh: DeviceMesh) -> None:
    for length, taps in ((16, 4), (11, 2), (6, 5)):
        for placement in (Shard(2), Shard(1), Shard(0)):
            compare(
                functools.partial(distributed.causal_conv1d, activation="silu"),
                functools.partial(torch_ops.causal_conv1d, activation="silu"),
                (random(4, 4, length), random(4, taps), random(4)), mesh, ([placement], None, None),
            )  # fmt: skip


def transposed(mesh: DeviceMesh) -> None:
    for length, taps, stride, padding, more, dilation, groups in (
        (8, 4, 2, 1, 0, 1, 1), (9, 3, 3, 0, 2, 1, 4), (7, 2, 4, 1, 1, 1, 2), (5, 5, 1, 3, 0, 2, 1), (16, 1, 1, 0, 0, 1, 4),
        (2, 3, 5, 0, 4, 1, 1),
    ):  # fmt: skip
        arguments = (stride, padding, more, groups, dilation)
        compare(
            lambda x, w, b, arguments=arguments: distributed.conv_transpose1d(x, w, b, *arguments),
            lambda x, w, b, arguments=arguments: torch_ops.conv_transpose1d(x, w, b, *arguments),
            (random(2, 4, length), random(4, 2, taps), random(2 * groups)), mesh, ([Shard(2)], None, [Replicate()]),
        )  # fmt: skip
    compare(
        functools.partial(distributed.conv_transpose1d, stride=2, groups=4),
        functools.partial(torch_ops.conv_transpose1d, stride=2, groups=4),
        (random(2, 4, 6), random(4, 2, 3), random(8)), mesh, ([Shard(1)], None, None),
    )  # fmt: skip


# ---------------------------------------------------------------- scans


def sums(mesh: DeviceMesh) -> None:
    for sizes, dim in (((3, 9), 1), ((9, 2, 2), 0), ((5,), 0), ((4, 8), 1)):
        for options in ({}, {"reverse": True}, {"exclusive": True}, {"reverse": True, "exclusive": True}):
            compare(
                functools.partial(distributed.cumsum, dim=dim, **options),
                functools.partial(torch_ops.cumsum, dim=dim, **options),
                (random(*sizes),), mesh, ([Shard(dim)],),
            )  # fmt: skip
    whole_numbers = torch.arange(10, dtype=torch.int32)
    found = distributed.cumsum(distribute_tensor(whole_numbers, mesh, [Shard(0)]), 0)
    same("integers", found, whole_numbers.cumsum(0))
    half = torch.full((4096,), 0.1, dtype=torch.bfloat16)
    found = distributed.cumsum(distribute_tensor(half, mesh, [Shard(0)]), 0)
    same("bfloat16", found, half.double().cumsum(0).bfloat16(), 0.008)


def recurrences(mesh: DeviceMesh) -> None:
    for sizes, dim in (((3, 9), 1), ((8, 2), 0), ((2, 5, 2), 1)):
        others = [n for d, n in enumerate(sizes) if d != dim]
        for reverse, shifted in itertools.product((False, True), (False, True)):
            way = {"dim": dim, "reverse": reverse, "shifted": shifted}
            for initial in (None, random(*others)):
                compare(
                    lambda a, b, s, way=way: distributed.linear_recurrence(a, b, initial=s, **way),
                    lambda a, b, s, way=way: torch_ops.linear_recurrence(a, b, initial=s, **way),
                    (random(*sizes), random(*sizes), initial), mesh, ([Shard(dim)], [Shard(dim)], None),
                )  # fmt: skip


def scanned(length: int, forms: str, z: bool, softplus: bool) -> list:
    shapes = {"4": (2, 2, 3, length), "3": (2, 3, length), "2": (4, 3)}
    return [
        random(2, 4, length), random(2, 4, length).abs(), -random(4, 3).abs() * 3, random(*shapes[forms[0]]),
        random(*shapes[forms[1]]), random(4), random(2, 4, length) if z else None, random(4) if softplus else None,
    ]  # fmt: skip


def selective(mesh: DeviceMesh) -> None:
    for length, forms, z, softplus in (
        (8, "33", True, True),
        (9, "44", False, False),
        (6, "23", True, False),
        (5, "32", False, True),
    ):
        tensors = scanned(length, forms, z, softplus)
        along = [[Shard(t.dim() - 1)] if t is not None and t.dim() > 2 else None for t in tensors]
        for last in (False, True):
            options = {"delta_softplus": softplus, "return_last_state": last}
            compare(
                functools.partial(distributed.selective_scan, **options),
                functools.partial(torch_ops.selective_scan, **options), tensors, mesh, along,
            )  # fmt: skip
    # The state of the ranks before passes on in float32, if the tensors are bfloat16.
    tensors = [None if t is None else t.bfloat16() for t in scanned(64, "33", True, True)]
    shards = [t if t is None or t.dim() < 3 else distribute_tensor(t, mesh, [Shard(t.dim() - 1)]) for t in tensors]
    found = distributed.selective_scan(*shards, delta_softplus=True)
    exact = torch_ops.selective_scan(*(None if t is None else t.double() for t in tensors), delta_softplus=True)
    same("bfloat16", found.full_tensor().double(), exact, 0.03)


def channels(mesh: DeviceMesh) -> None:
    """Channels of a selective scan, with as many groups as ranks and with one."""
    tensors = scanned(5, "44" if mesh.size() == 2 else "33", True, True)
    grouped = [Shard(1)], [Shard(1)], None, None, None, [Shard(0)], [Shard(1)], None
    compare(
        functools.partial(distributed.selective_scan, delta_softplus=True),
        functools.partial(torch_ops.selective_scan, delta_softplus=True), tensors, mesh, grouped,
    )  # fmt: skip


# ---------------------------------------------------------------- sparse matrices


def matrix(rows: int, columns: int, values: bool, seed: int) -> CSR:
    chooses = torch.Generator().manual_seed(seed)
    entries = torch.randint(rows * columns, (4 * rows,), generator=chooses, device="cpu").unique()
    numbers = torch.randn(len(entries), dtype=torch.float64, generator=chooses, device="cpu") if values else None
    return CSR.from_coo(entries // columns, entries % columns, numbers, (rows, columns)).to(torch.get_default_device())


def rows_of(csr: CSR, first: int, last: int) -> CSR:
    begin, end = int(csr.ptr[first]), int(csr.ptr[last])
    values = None if csr.values is None else csr.values[begin:end]
    return CSR(csr.ptr[first : last + 1] - begin, csr.index[begin:end], values, (last - first, csr.shape[1]))


def products(mesh: DeviceMesh) -> None:
    """Features, heads and batches of a matrix on all ranks, and rows of a sharded matrix."""
    for reduce in ("sum", "mean", "amax"):
        csr = matrix(7, 9, reduce != "amax", 3)
        compare(
            functools.partial(distributed.spmm, csr, reduce=reduce), functools.partial(torch_ops.spmm, csr, reduce=reduce),
            (random(9, 4),), mesh, ([Shard(1)],),
        )  # fmt: skip
    csr = matrix(7, 9, False, 4)
    compare(
        lambda x, v: distributed.spmm(csr, x, values=v), lambda x, v: torch_ops.spmm(csr, x, values=v),
        (random(4, 9, 4, 2), random(csr.nnz, 4)), mesh, ([Shard(2)], None),
    )  # fmt: skip
    compare(
        lambda x, v: distributed.spmm(csr, x, values=v), lambda x, v: torch_ops.spmm(csr, x, values=v),
        (random(4, 9, 2), random(csr.nnz)), mesh, ([Shard(0)], None),
    )  # fmt: skip
    for rows, columns in ((8, 8), (7, 11), (5, 3)):
        for reduce in ("sum", "mean", "amax"):
            csr = matrix(rows, columns, reduce == "sum", 5)
            chunk = -(-rows // mesh.size())
            first = min(mesh.get_local_rank() * chunk, rows)
            sharded = distributed.ShardedCSR(rows_of(csr, first, min(first + chunk, rows)), mesh)
            assert sharded.shape == (rows, columns) and sharded.exchanged <= columns
            compare(
                functools.partial(distributed.spmm, sharded, reduce=reduce),
                functools.partial(torch_ops.spmm, csr, reduce=reduce), (random(columns, 3),), mesh, ([Shard(0)],),
            )  # fmt: skip


# ---------------------------------------------------------------- errors


def refused(error: type, text: str, function: Callable, *args: Any, **kwargs: Any) -> None:
    raised = raised_by(function, *args, **kwargs)
    assert type(raised) is error and re.search(text, str(raised)), f"expected {text}, got {raised!r}"


def errors(mesh: DeviceMesh) -> None:
    """Placements that would need a silent gather, and other arguments. They raise on every rank before anything is exchanged."""
    x, w = random(2, 4, 8), random(4, 1, 3)

    def sharded(t: torch.Tensor, dim: int) -> DTensor:
        return distribute_tensor(t, mesh, [Shard(dim)])

    refused(TypeError, "conv1d: input must be DTensor, got Tensor", distributed.conv1d, x, w, groups=4)
    refused(TypeError, "causal_conv1d: weight must be Tensor, got list", distributed.causal_conv1d, sharded(x, 1), [w])
    refused(TypeError, "cumsum: input must be DTensor, got NoneType", distributed.cumsum, None, 0)
    refused(
        TypeError,
        "linear_recurrence: b must be DTensor, got Tensor",
        distributed.linear_recurrence,
        sharded(x, 2),
        x,
        2,
    )
    refused(TypeError, "spmm: csr must be CSR or ShardedCSR, got list", distributed.spmm, [x], sharded(x, 2))
    refused(ValueError, "input must not have its channels sharded", distributed.conv1d, sharded(x, 1), random(2, 4, 3))
    refused(
        ValueError,
        "whole groups: expected a multiple",
        distributed.conv1d,
        sharded(random(2, 6, 8), 1),
        random(6, 2, 3),
        groups=3,
    )
    refused(ValueError, "weight must have placements", distributed.conv1d, sharded(x, 2), sharded(w, 0), groups=4)
    refused(RuntimeError, "taps must span at most", distributed.conv1d, sharded(x, 2), random(4, 1, 9), groups=4)
    refused(
        RuntimeError,
        "a must have the shape of b",
        distributed.linear_recurrence,
        sharded(x, 2),
        sharded(x[..., :4], 2),
        2,
    )
    refused(ValueError, "a must have placements", distributed.linear_recurrence, sharded(x, 1), sharded(x, 2), 2)
    refused(IndexError, "dim must be a dimension", distributed.linear_recurrence, sharded(x, 2), sharded(x, 2), 3)
    refused(IndexError, "dim must be a dimension", distributed.cumsum, sharded(x, 2), 3)
    csr = matrix(8, 8, True, 6)
    refused(ValueError, "csr must be a ShardedCSR", distributed.spmm, csr, sharded(random(8, 4), 0))
    refused(TypeError, "rows must be a sparse matrix", distributed.ShardedCSR, csr.to_torch(), mesh)
    local_rows = rows_of(csr, 0, 3 if mesh.get_local_rank() == 0 else 4)
    refused(ValueError, "rows must be those of a shard", distributed.ShardedCSR, local_rows, mesh)
    chunk = 8 // mesh.size()
    whole = distributed.ShardedCSR(rows_of(csr, *(chunk * (mesh.get_local_rank() + i) for i in (0, 1))), mesh)
    refused(ValueError, "sharded as the matrix", distributed.spmm, whole, sharded(random(8, 4), 1))
    refused(RuntimeError, "a row for each column", distributed.spmm, whole, sharded(random(9, 4), 0))


# ---------------------------------------------------------------- the benchmark


def benchmark(mesh: DeviceMesh) -> None:
    """Every case of python -m benchmarks distributed runs, on small tensors."""
    clock = Clock(torch.get_default_device())
    for case in CASES:
        found = measured(case, Maker(mesh, 1 / 4096, torch.float32), 1, clock, calls=1)
        assert min(found["forward_s"], found["training_s"]) > 0


CHECKS = (errors, convolutions, causal, transposed, sums, recurrences, selective, channels, products)


# ---------------------------------------------------------------- two dimensions


def two_dimensions(mesh: DeviceMesh) -> None:
    """The length over one dimension of a mesh, and the batch or the channels over the other."""
    for other in (0, 1):
        tensors = scanned(8, "33", True, True)
        placements = [[Shard(other), Shard(2)] if t is not None and t.shape[1:] == (4, 8) else None for t in tensors]
        for i in (3, 4):
            placements[i] = [Shard(0) if other == 0 else Replicate(), Shard(2)]
        compare(
            functools.partial(distributed.selective_scan, delta_softplus=True, return_last_state=True),
            functools.partial(torch_ops.selective_scan, delta_softplus=True, return_last_state=True), tensors, mesh, placements,
        )  # fmt: skip
        compare(
            distributed.causal_conv1d, torch_ops.causal_conv1d, (random(2, 4, 9), random(4, 3), random(4)), mesh,
            ([Shard(other), Shard(2)], None, None),
        )  # fmt: skip
    compare(
        lambda a, b, s: distributed.linear_recurrence(a, b, 1, s), lambda a, b, s: torch_ops.linear_recurrence(a, b, 1, s),
        (random(4, 6, 2), random(4, 6, 2), random(4, 2)), mesh, ([Shard(2), Shard(1)], [Shard(2), Shard(1)], None),
    )  # fmt: skip


# ---------------------------------------------------------------- all of them


def passed_on(kind: str, rank: int, world: int) -> set[tuple[str, int]]:
    """The checks that passed, with the number of ranks. An error ends this rank, and so the others, which would wait for it."""
    passed = set()
    for ranks in sorted({2, world}):
        mesh = DeviceMesh(kind, list(range(ranks)))
        for check in CHECKS:
            if rank < ranks:
                torch.manual_seed(2)
                check(mesh)
                passed.add((check.__name__, ranks))
        dist.barrier()
    torch.manual_seed(2)
    benchmark(mesh)
    passed.add((benchmark.__name__, world))
    if world == 4:
        two_dimensions(init_device_mesh(kind, (2, 2)))
        passed.add((two_dimensions.__name__, world))
    return passed


def exchanges(rank: int, folder: Path) -> set[tuple[str, int]]:
    return passed_on("cpu", rank, WORLD)
