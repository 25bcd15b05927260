"""What ranks exchange in functions of sharded tensors, with gradients: windows of a dimension, rows, and states.

The functions are autograd functions over PyTorch's functional collectives, so torch.compile can trace them. They are collective: all
ranks of a mesh dimension call them in the same order, in the backward pass too. So every rank needs a result that depends on them,
even if it has no elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed._functional_collectives as funcol
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh

Range = tuple[int, int]


class Line:
    """The ranks along one dimension of a mesh, in order."""

    def __init__(self, mesh: DeviceMesh, mesh_dim: int) -> None:
        self.group = (mesh, mesh_dim)
        self.rank, self.ranks = mesh.get_local_rank(mesh_dim), mesh.size(mesh_dim)

    def parts(self, size: int) -> list[Range]:
        """What each rank holds of a sharded dimension, as DTensor's Shard divides it."""
        chunk = max(-(-size // self.ranks), 1)
        return [(min(r * chunk, size), min((r + 1) * chunk, size)) for r in range(self.ranks)]

    # ------------------------------------------------------------ collectives without gradients

    def send(self, rows: Tensor, to: Sequence[int], come: Sequence[int]) -> Tensor:
        """Sends the first ``to[0]`` rows to rank 0, and so on. Returns what came, in the order of the ranks."""
        return funcol.wait_tensor(funcol.all_to_all_single(rows.contiguous(), list(come), list(to), self.group))

    def stacked(self, x: Tensor) -> Tensor:
        """The tensors of all ranks, in a new first dimension."""
        return funcol.wait_tensor(funcol.all_gather_tensor(x.contiguous()[None], 0, self.group))

    def total(self, x: Tensor) -> Tensor:
        return funcol.wait_tensor(funcol.all_reduce(x.contiguous(), "sum", self.group))


def overlap(one: Range, other: Range) -> Range:
    first = max(one[0], other[0])
    return first, max(first, min(one[1], other[1]))


# ---------------------------------------------------------------- windows of a dimension


class _Window(torch.autograd.Function):
    """From the parts `held` of a dimension to the ranges `wanted`, which may overlap. The backward pass adds the overlaps up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, line: Line, held: list[Range], wanted: list[Range]) -> Tensor:
        ctx.known = dim, line, held, wanted
        return _moved(x, dim, line, held, wanted, adds=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        dim, line, held, wanted = ctx.known
        return _moved(grad, dim, line, wanted, held, adds=True), None, None, None, None


def _moved(x: Tensor, dim: int, line: Line, held: list[Range], wanted: list[Range], adds: bool) -> Tensor:
    held_range, wanted_range = held[line.rank], wanted[line.rank]
    rows = x.movedim(dim, 0)
    others = [r for r in range(line.ranks) if r != line.rank]
    to = [overlap(held_range, wanted[r]) if r in others else (0, 0) for r in range(line.ranks)]
    come = [overlap(held[r], wanted_range) if r in others else (0, 0) for r in range(line.ranks)]
    sent = torch.cat([rows[a - held_range[0] : b - held_range[0]] for a, b in to])
    came = line.send(sent, [b - a for a, b in to], [b - a for a, b in come]).split([b - a for a, b in come])
    kept = overlap(held_range, wanted_range)
    parts = [*zip(come, came), (kept, rows[kept[0] - held_range[0] : kept[1] - held_range[0]])]
    if adds:
        result = rows.new_zeros((wanted_range[1] - wanted_range[0], *rows.shape[1:]))
        for (a, b), part in parts:
            result[a - wanted_range[0] : b - wanted_range[0]] += part
    else:
        filled = sorted((r for r in parts if r[0][0] < r[0][1]), key=lambda r: r[0])
        result = torch.cat([part for _, part in filled]) if filled else rows[:0]
    return result.movedim(0, dim).contiguous()


def window(x: Tensor, dim: int, size: int, line: Line, wanted: list[Range]) -> Tensor:
    """The range of a sharded dimension that this rank wants. Only what other ranks hold is sent.

    Args:
        x: this rank's shard.
        dim: the dimension that is sharded, of `size` over all ranks.
        wanted: the range that each rank wants.
    """
    held = line.parts(size)
    return x if held == wanted else _Window.apply(x, dim, line, held, wanted)


# ---------------------------------------------------------------- states


class _Gather(torch.autograd.Function):
    """The tensors of all ranks. Each rank uses them for results of its own, so gradients are added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, line: Line) -> Tensor:
        ctx.line = line
        return line.stacked(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.line.total(grad)[ctx.line.rank], None


def gathered(x: Tensor, line: Line) -> Tensor:
    """The tensors of all ranks, in a new first dimension."""
    return _Gather.apply(x, line)


class _Once(torch.autograd.Function):
    """A result that all ranks compute, and whose gradient all ranks have. It counts once, on the first rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, line: Line) -> Tensor:
        ctx.line = line
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (grad if ctx.line.rank == 0 else torch.zeros_like(grad)), None


def once(x: Tensor, line: Line) -> Tensor:
    return _Once.apply(x, line)


# ---------------------------------------------------------------- rows


class _Rows(torch.autograd.Function):
    """Rows of other ranks. `asked` are the numbers of this rank's rows that others want, `to` and `come` how many."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, asked: Tensor, line: Line, to: list[int], come: list[int]) -> Tensor:
        ctx.save_for_backward(asked)
        ctx.known = line, to, come, x.shape[0]
        return line.send(torch.ops.gpuopt.index_select(x, 0, asked), to, come)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (asked,) = ctx.saved_tensors
        line, to, come, size = ctx.known
        came = line.send(grad, come, to)
        zeros = came.new_zeros((size, *came.shape[1:]))
        return torch.ops.gpuopt.index_add(zeros, 0, asked, came, mode="deterministic"), None, None, None, None


def rows_of_others(x: Tensor, asked: Tensor, line: Line, to: list[int], come: list[int]) -> Tensor:
    """Sends this rank's rows `asked` to the ranks that want them. Returns the rows that came, in the order of the ranks."""
    return _Rows.apply(x, asked, line, to, come)
