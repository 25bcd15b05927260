"""Which axis of a function each dimension of a mesh shards, and the local tensors of its arguments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from torch_ops.distributed._exchange import Line


class Parts:
    """The axes that the dimensions of a mesh shard, found from one argument.

    Args:
        op: the function, for messages.
        input: the argument that says which axes are sharded.
        axes: a letter for each of its dimensions, such as ``"ncL"``.
    """

    def __init__(self, op: str, input: DTensor, axes: str) -> None:
        self.op, self.mesh = op, input.device_mesh
        self.sharded: list[str | None] = []
        for placement in input.placements:
            if placement.is_partial() or (placement.is_shard() and not isinstance(placement, Shard)):
                raise ValueError(f"{op}: the first tensor must have shards or replicas, got {placement}")
            self.sharded.append(axes[placement.dim] if isinstance(placement, Shard) else None)

    def line(self, axis: str) -> Line | None:
        """The ranks that share an axis, or None if one rank has all of it."""
        dims = [i for i, sharded in enumerate(self.sharded) if sharded == axis]
        if len(dims) > 1:
            raise NotImplementedError(
                f"{self.op}: the length must be sharded over one dimension of the mesh, got {dims}"
            )
        return Line(self.mesh, dims[0]) if dims and self.mesh.size(dims[0]) > 1 else None

    def ranks(self, axis: str) -> int:
        count = 1
        for i, sharded in enumerate(self.sharded):
            count *= self.mesh.size(i) if sharded == axis else 1
        return count

    def placements(self, axes: str) -> list[Placement]:
        return [Shard(axes.index(a)) if a is not None and a in axes else Replicate() for a in self.sharded]

    def local(self, name: str, tensor: Tensor, axes: str) -> Tensor:
        """This rank's part of an argument. A plain tensor is the same on all ranks, and its gradient becomes so."""
        wanted = self.placements(axes)
        if not isinstance(tensor, DTensor):
            tensor = DTensor.from_local(tensor, self.mesh, [Replicate()] * self.mesh.ndim, run_check=False)
        if tensor.device_mesh != self.mesh:
            raise ValueError(
                f"{self.op}: all tensors must be on one mesh: expected {self.mesh}, got {tensor.device_mesh}"
            )
        for given, placement in zip(tensor.placements, wanted):
            if given != placement and not given.is_replicate():
                raise ValueError(f"{self.op}: {name} must have placements {tuple(wanted)}, got {tensor.placements}")
        gradients = [
            Partial("sum") if sharded is not None and sharded not in axes else placement
            for sharded, placement in zip(self.sharded, wanted)
        ]
        return tensor.redistribute(self.mesh, wanted).to_local(grad_placements=gradients)

    def whole(self, local: Tensor, axes: str, sizes: Sequence[int]) -> DTensor:
        """The DTensor of a result's parts."""
        strides = torch.empty(tuple(sizes), device="meta").stride()
        return DTensor.from_local(
            local.contiguous(),
            self.mesh,
            self.placements(axes),
            run_check=False,
            shape=torch.Size(sizes),
            stride=strides,
        )


def axis_names(ndim: int, special: dict[int, str]) -> str:
    """A letter for each dimension: the ones in `special`, and others in order."""
    others = iter("abdefghijkmpqrstuvwxyz")
    return "".join(special.get(d) or next(others) for d in range(ndim))
