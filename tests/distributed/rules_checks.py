"""What the ranks of test_rules.py run: every choice of placements that a rule offers, on the small samples of all operators."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils import _pytree as pytree

import torch_ops
from torch_ops.distributed import _sharding

from ..cases import OpCase, Sample, all_cases
from ..support.compare import raised_by

WORLD = 4
RULED = {str(op) for op in _sharding.overloads()}


def placed(tensor: torch.Tensor, mesh: DeviceMesh, placement) -> DTensor:
    """A DTensor with the values of `tensor`. Parts of a sum differ from rank to rank."""
    tensor = tensor.detach().clone()
    if not placement.is_partial():
        return distribute_tensor(tensor, mesh, [placement])
    rank, ranks = mesh.get_local_rank(), mesh.size()
    part = tensor * (1.5 if placement.reduce_op == "sum" else 3 * ranks - 1.5) if rank == 0 else tensor.clone()
    if placement.reduce_op == "sum" and rank > 0:
        part = tensor * (-0.5 / (ranks - 1))
    if placement.reduce_op == "avg" and rank > 0:
        part = tensor * ((ranks - 3 * ranks + 1.5) / (ranks - 1))
    return DTensor.from_local(part, mesh, [placement], shape=tensor.shape, stride=tensor.stride())


def whole(result: Any) -> Any:
    return pytree.tree_map_only(DTensor, lambda t: t.full_tensor(), result)


def tensors_of(tree: Any) -> list:
    """The results of an operator, with None for each that is missing."""
    return list(tree) if isinstance(tree, (list, tuple)) else [tree]


def weighed(t: torch.Tensor) -> torch.Tensor:
    """A number that depends on every value."""
    values = torch.view_as_real(t) if t.is_complex() else t
    return (values * torch.linspace(0.5, 1.5, values.numel(), dtype=values.dtype).view(values.shape)).sum()


def specs_of(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return pytree.tree_map_only(DTensor, lambda t: t._spec, (args, kwargs))


class Trial:
    """One sample, computed on one process and on shards."""

    def __init__(self, op: torch._ops.OpOverload, sample: Sample, mesh: DeviceMesh, differentiates: bool) -> None:
        self.op, self.sample, self.mesh = op, sample, mesh
        self.differentiates = differentiates
        self.expected, self.gradients = self.run(lambda t, i: t.detach().clone())

    def arguments(self, of: Callable[[torch.Tensor, int], torch.Tensor]) -> tuple[tuple, dict, list]:
        """The arguments, made by `of` of each tensor and its number, and the ones with gradients."""
        leaves, found = [], 0

        def made(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal found
            leaf = of(tensor, found)
            found += 1
            if self.differentiates and tensor.is_floating_point():
                leaves.append(leaf.requires_grad_())
            return leaf

        args, kwargs = pytree.tree_map_only(torch.Tensor, made, (self.sample.args, self.sample.kwargs))
        return args, kwargs, leaves

    def run(
        self, of: Callable[[torch.Tensor, int], torch.Tensor], placements: list | None = None, gradients: bool = True
    ) -> tuple[list, list]:
        args, kwargs, leaves = self.arguments(of)
        written = [args[i] for i, a in enumerate(self.op._schema.arguments) if a.is_write and not a.kwarg_only]
        with CommDebugMode() as moved, torch.set_grad_enabled(gradients):
            results = tensors_of(self.op(*args, **kwargs))
        if placements is not None:
            assert moved.get_total_counts() == 0, f"exchanged {moved.get_comm_counts()}"
            found = [None if t is None else t.placements[0] for t in results]
            assert found == placements, f"expected placements {placements}, got {found}"
        wholes = [None if t is None else whole(t) for t in results] + [whole(t) for t in written]
        of_leaves: list = []
        if leaves and gradients:
            loss = sum(weighed(t) for t in wholes if t is not None and t.requires_grad)
            found = torch.autograd.grad(loss, leaves, allow_unused=True)
            of_leaves = [whole(g) for g in found]
        return wholes, of_leaves

    def check(self, choice: _sharding.Choice, limit: str | None) -> None:
        """The results have the placements of the choice, and nothing is exchanged for them."""
        results, arguments = choice

        def shard(t: torch.Tensor, i: int) -> DTensor:
            return placed(t, self.mesh, arguments[i])

        found, _ = self.run(shard, results, gradients=False)
        self.compare("result", found, self.expected)
        if limit is not None and self.gradients:
            error = raised_by(self.run, shard)
            assert error is not None and re.search(limit, str(error)), f"expected an error ({limit}), got {error}"
        elif self.gradients:
            found, gradients = self.run(shard)
            self.compare("result with a graph", found, self.expected)
            self.compare("gradient", gradients, self.gradients)

    def compare(self, name: str, found: list, expected: list) -> None:
        error = 1e-5 if any(t.dtype in (torch.float32, torch.complex64) for t in self.sample.tensors) else 1e-9
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            if one is None or other is None:
                assert one is other, f"{name} {i}: got {one}, expected {other}"
                continue
            assert one.dtype == other.dtype, f"{name} {i}: got {one.dtype}, expected {other.dtype}"
            torch.testing.assert_close(
                one, other, rtol=error, atol=error, equal_nan=True, msg=f"{name} {i}: {one} instead of {other}"
            )


def calls(case: OpCase, device: str) -> Iterator[tuple[torch._ops.OpOverload, Sample, bool]]:
    """The overloads of a case that have rules, on its small samples."""
    dtype = torch.float64 if torch.float64 in case.dtypes else case.dtypes[0]
    with torch.device("cpu"):  # on which samples are drawn, whatever the default device is
        samples = [case.arguments(sample) for sample in case.few(device, dtype)]
    for variant in ("functional", "inplace", "out"):
        form = case.of_variant(variant)
        if form is None or str(form.overload) not in RULED:
            continue
        for sample in samples:
            if variant == "out":
                result = form.overload(
                    *sample.args,
                    **sample.kwargs,
                    out=torch.empty(0, dtype=case.overload(*sample.args, **sample.kwargs).dtype),
                )
                sample = Sample(sample.name, sample.args, sample.kwargs | {"out": torch.full_like(result, 7)})
            elif variant == "inplace" and raised_by(form.overload, *sample.twin().args, **sample.kwargs):
                continue
            yield form.overload, sample, variant == "functional" and bool(case.grad_dtypes) and not case.writes


def text_of(choice: _sharding.Choice) -> str:
    return f"{choice[1]} -> {choice[0]}"


def shardable(tensors: list[torch.Tensor], choice: _sharding.Choice, ranks: int) -> bool:
    return all(t.shape[p.dim] >= ranks for t, p in zip(tensors, choice[1]) if isinstance(p, Shard))


# Gradients that torch's own operators don't compute on these shards. They raise, and docs/distributed.md lists them.
OLDER = torch.__version__ < "2.12"


def limit_of(op: torch._ops.OpOverload, sample: Sample, choice: _sharding.Choice) -> str | None:
    """What the error of a gradient says that can't be computed on shards, or None."""
    name, args = op._schema.name.partition("::")[2], sample.args
    if name == "spmm" and args[5:] and args[5] in ("max", "min") and args[3] is not None:
        return "mixed torch.Tensor and DTensor|aten.view.default"  # of the values
    if not OLDER or name not in ("matmul", "spmm"):
        return None
    # Of one matrix or of the values, for all batches, which become one dimension.
    at = 0 if name == "matmul" else sum(isinstance(a, torch.Tensor) for a in args[:4])
    shard, dims = choice[1][at], (args[0] if name == "matmul" else args[4]).dim()
    if name == "matmul":
        flattens = args[1].dim() <= 2 and isinstance(shard, Shard) and 0 < shard.dim < dims - 1
    else:
        batches = args[3] is not None and dims - 1 - args[3].dim() > 0
        flattens = batches and isinstance(shard, Shard) and shard.dim == dims - 1
    return "aten.(_unsafe_)?view.default" if flattens else None


def on_mesh(mesh: DeviceMesh) -> dict[str, Any]:
    """Problems, and the choices of each operator that were tried. Each choice is tried with the first sample that offers it.

    Gradients are computed over two ranks only, which saves time.
    """
    problems, tried = [], {}
    for case in all_cases():
        for op, sample, differentiates in calls(case, mesh.device_type):
            if any(t.device.type != mesh.device_type for t in sample.tensors):
                continue
            tried_choices = tried.setdefault(str(op), set())
            trial = None
            replicated = sample.map(lambda t: distribute_tensor(t.detach(), mesh, [Replicate()]))
            for choice in _sharding.choices(op, *specs_of(replicated.args, replicated.kwargs)):
                if text_of(choice) in tried_choices or not shardable(sample.tensors, choice, mesh.size()):
                    continue
                tried_choices.add(text_of(choice))
                try:
                    trial = trial or Trial(op, sample, mesh, differentiates and mesh.size() == 2)
                    trial.check(choice, limit_of(op, sample, choice))
                except Exception:
                    problems.append(f"{op} [{sample.name}] {text_of(choice)}: {traceback.format_exc(limit=-3)}")
    return {"problems": problems, "tried": tried}


def rules(rank: int, folder: Path) -> dict[int, Any]:
    found = {}
    for ranks in (2, WORLD):
        mesh = DeviceMesh("cpu", list(range(ranks)))
        if rank < ranks:
            found[ranks] = on_mesh(mesh)
        dist.barrier()
    return found


# ---------------------------------------------------------------- what users see


def sizes_and_dims(mesh: DeviceMesh) -> None:
    """The cache of choices tells calls apart by everything that the result depends on."""
    x = torch.arange(96.0).view(4, 4, 6)
    shards = distribute_tensor(x, mesh, [Shard(0)])
    for dim in (0, 1, 2, [0, 2], None):
        for keepdim in (False, True):
            torch.testing.assert_close(
                torch_ops.reduce_sum(shards, dim, keepdim).full_tensor(), torch_ops.reduce_sum(x, dim, keepdim)
            )
    for options in ({"reverse": True}, {"exclusive": True}, {"dtype": torch.float64}, {}):
        torch.testing.assert_close(
            torch_ops.cumsum(shards, 1, **options).full_tensor(), torch_ops.cumsum(x, 1, **options)
        )
    whole_numbers = distribute_tensor(x.long(), mesh, [Shard(0)])
    for factor in (2, 0.5):
        torch.testing.assert_close(torch_ops.mul(whole_numbers, factor).full_tensor(), x.long() * factor)


def moves_few_bytes(mesh: DeviceMesh) -> None:
    """Rows that are sharded meet whole ones, and partial results stay partial until they are needed."""
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    rows, replicated = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(y, mesh, [Replicate()])
    with CommDebugMode() as moved:
        product = torch_ops.mul(rows, replicated)
        sums = torch_ops.mul(torch_ops.reduce_sum(product, 0), 0.5)
    assert moved.get_total_counts() == 0 and sums.placements == (Partial("sum"),)
    torch.testing.assert_close(sums.full_tensor(), (x * y).sum(0) * 0.5)
    index = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]) % 3
    bins, numbers = distribute_tensor(torch.ones(3, 6), mesh, [Replicate()]), distribute_tensor(index, mesh, [Shard(0)])
    with CommDebugMode() as moved:
        added = torch_ops.index_add(bins, 0, numbers, rows)
    assert moved.get_total_counts() == 0 and added.placements == (Partial("sum"),)
    torch.testing.assert_close(added.full_tensor(), torch.ones(3, 6).index_add(0, index, x))


def groups(mesh: DeviceMesh) -> None:
    """A convolution of groups says which function shards them, instead of collecting all channels."""
    x, weight = torch.randn(2, 8, 10), torch.randn(8, 1, 3)
    for placements in ((Shard(1), Replicate()), (Replicate(), Shard(0))):
        shards = [distribute_tensor(t, mesh, [p]) for t, p in zip((x, weight), placements)]
        error = raised_by(torch_ops.conv1d, *shards, groups=8)
        assert error is not None and "groups must be 1 where channels of DTensors are sharded" in str(error), error


def states(mesh: DeviceMesh) -> None:
    """A written argument stays where it is."""
    state, x, weight = torch.randn(2, 8, 3), torch.randn(2, 8), torch.randn(8, 4)
    expected_state = state.clone()
    expected = torch_ops.causal_conv1d_update(x, expected_state, weight)
    placements = (Replicate(), Shard(1), Replicate())
    shards = [placed(t, mesh, p) for t, p in zip((x, state, weight), placements)]
    found = torch_ops.causal_conv1d_update(*shards)
    assert found.placements == (Shard(1),)
    torch.testing.assert_close(found.full_tensor(), expected)
    torch.testing.assert_close(shards[1].full_tensor(), expected_state)


def uneven(mesh: DeviceMesh) -> None:
    """Shards of different sizes, and ranks without one."""
    for n in (1, 5, 7):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        a, b = (distribute_tensor(t, mesh, [Shard(0)]) for t in (x, y))
        torch.testing.assert_close(torch_ops.fma(a, b, a).full_tensor(), x * y + x)
        torch.testing.assert_close(torch_ops.reduce_mean(a, 0).full_tensor(), x.mean(0))
        torch.testing.assert_close(torch_ops.reduce_max(a, 0).full_tensor(), x.amax(0))
        images = torch.randn(2, n, 2, 2)
        torch.testing.assert_close(
            torch_ops.upsample_nearest2d(distribute_tensor(images, mesh, [Shard(1)]), (4, 4)).full_tensor(),
            torch_ops.upsample_nearest2d(images, (4, 4)),
        )
        signals, weight = torch.randn(2, n, 8), torch.randn(3, n, 2)
        torch.testing.assert_close(
            torch_ops.conv1d(*(distribute_tensor(t, mesh, [Shard(1)]) for t in (signals, weight))).full_tensor(),
            torch_ops.conv1d(signals, weight),
        )
        scanned = signals, signals, -torch.rand(n, 4), torch.rand(2, 4, 8), torch.rand(2, 4, 8)
        scanned_shards = [placed(t, mesh, Shard(1) if i < 2 else Replicate()) for i, t in enumerate(scanned)]
        torch.testing.assert_close(
            torch_ops.selective_scan(*scanned_shards).full_tensor(), torch_ops.selective_scan(*scanned)
        )
        torch.testing.assert_close(torch_ops.dot(a[:, 0], b[:, 0]).full_tensor(), x[:, 0] @ y[:, 0])


def empty_recurrence(mesh: DeviceMesh) -> None:
    """The gradient of what comes before a recurrence without positions."""
    a, b = (distribute_tensor(torch.randn(4, 0), mesh, [Shard(0)]) for _ in range(2))
    initial = distribute_tensor(torch.randn(4), mesh, [Shard(0)]).requires_grad_()
    torch_ops.linear_recurrence(a, b, 1, initial).sum().backward()
    torch.testing.assert_close(initial.grad.full_tensor(), torch.zeros(4))


def bins(mesh: DeviceMesh) -> None:
    """Gradients of every reduction of shards at an index."""
    x, index = torch.randn(12, 8, dtype=torch.float64), torch.tensor([2, 0, 2, 1] * 3)
    of_shards = distribute_tensor(index, mesh, [Replicate()])
    for reduce in ("sum", "mean", "amax", "amin", "prod"):
        one, shards = x.clone().requires_grad_(), distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
        expected = torch_ops.scatter(one, index, 0, 4, reduce)
        found = torch_ops.scatter(shards, of_shards, 0, 4, reduce)
        assert found.placements == (Shard(1),)
        torch.testing.assert_close(found.full_tensor(), expected)
        expected.pow(2).sum().backward()
        found.full_tensor().pow(2).sum().backward()
        torch.testing.assert_close(shards.grad.full_tensor(), one.grad)


USES = {
    "sizes and dims": sizes_and_dims,
    "moves few bytes": moves_few_bytes,
    "groups": groups,
    "states": states,
    "uneven": uneven,
    "empty recurrence": empty_recurrence,
    "bins": bins,
}


def uses(rank: int, folder: Path) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    mesh = DeviceMesh("cpu", list(range(WORLD)))
    for name, use in USES.items():
        torch.manual_seed(1)
        try:
            use(mesh)
            found[name] = None
        except Exception:
            found[name] = traceback.format_exc()
    return found
