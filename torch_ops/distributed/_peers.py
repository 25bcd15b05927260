"""The ranks of a group, as an operator talks to them: on the memory that the group's backend can read, and with errors on every rank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


class RankError(RuntimeError):
    """Another rank of the group has failed or died, or has not answered within the group's timeout."""


class Peers:
    def __init__(self, op: str, group: dist.ProcessGroup | None) -> None:
        self.op = op
        self.group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError(f"{op}: this process is not in the group")

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Around calls of the backend, which fail if a connection does."""
        try:
            yield
        except RuntimeError as error:
            raise RankError(
                f"{self.op}: rank {self.rank} of {self.ranks} does not reach the others: {error}"
            ) from error

    # ------------------------------------------------------------ small objects

    def gather(self, value: T) -> list[T]:
        """The value of each rank."""
        values: list[Any] = [None] * self.ranks
        with self.reached():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def together(self, function: Callable[[], T]) -> T:
        """Calls a local function on every rank. If it fails on one, all ranks raise: this one its error, the others RankError."""
        result, error = None, None
        try:
            result = function()
        except Exception as caught:
            error = caught
        failures = self.gather(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        for rank, failure in enumerate(failures):
            if failure is not None:
                raise RankError(f"{self.op}: rank {rank} failed: {failure}")
        return result  # type: ignore[return-value]

    def agree(self, **values: Any) -> None:
        """Raises ValueError on every rank if ranks have different values."""
        gathered = self.gather(values)
        for name in values:
            for rank, other in enumerate(gathered):
                if other[name] != gathered[0][name]:
                    raise ValueError(
                        f"{self.op}: ranks must agree about {name}: expected {gathered[0][name]}, as on rank 0, "
                        f"got {other[name]} on rank {rank}"
                    )

    # ------------------------------------------------------------ tensors

    def wire(self, device: torch.device) -> torch.device:
        """Where tensors of a device lie while they are sent: there under NCCL, in the CPU's memory under gloo."""
        backends = dist.get_backend_config(self.group)
        if device.type == "cuda" and "cuda:nccl" in backends:
            return device
        if "cpu:" not in backends:
            raise ValueError(f"{self.op}: the group sends from GPUs only: expected tensors on CUDA, got {device}")
        return torch.device("cpu")

    def all_to_all(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Sends parts[r] to rank r. Returns what came from each rank. Parts are vectors of one dtype."""
        device = parts[0].device
        wire = self.wire(device)
        sizes = [part.numel() for part in parts]
        sent = torch.cat(list(parts)).to(wire)
        with self.reached():
            counts = torch.tensor(sizes, device=wire)
            incoming = torch.empty_like(counts)
            dist.all_to_all_single(incoming, counts, group=self.group)
            came = incoming.tolist()
            received = torch.empty(sum(came), dtype=sent.dtype, device=wire)
            dist.all_to_all_single(received, sent, came, sizes, group=self.group)
        return list(received.to(device).split(came))

    def sum(self, value: Tensor) -> int:
        """The sum over the ranks of an integer, which is exact."""
        total = value.to(self.wire(value.device))
        with self.reached():
            dist.all_reduce(total, group=self.group)
            return int(total)
