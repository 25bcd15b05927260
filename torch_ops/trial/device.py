"""What a trial asks of the GPU. Tests replace :class:`Gpu` by the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from torch_ops._cuda_graph.backend import Cuda

__all__ = ["Device", "Gpu"]


class Device(Protocol):
    def name(self) -> str: ...

    def generator(self) -> torch.Generator: ...

    def synchronize(self) -> None: ...

    def reset_peak(self) -> None: ...

    def peak_bytes(self) -> int: ...

    def profiled(self) -> contextlib.AbstractContextManager[list[Any]]: ...


class Gpu(Cuda):
    """The current GPU."""

    def name(self) -> str:
        return torch.cuda.get_device_name()

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated()

    @contextlib.contextmanager
    def profiled(self) -> Iterator[list[Any]]:
        """A block whose operators and kernels are noted. At its end, the list holds the profiler's raw events."""
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        events: list[Any] = []
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
            yield events
            torch.cuda.synchronize()
        # The parsed events do not say which operator a kernel belongs to. The raw ones do.
        events += profiler.profiler.kineto_results.events()
