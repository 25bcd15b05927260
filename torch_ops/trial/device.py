"""What a trial asks of the GPU. Tests replace :class:`Gpu` by the CPU."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from torch_ops._cuda_graph.backend import Cuda

__all__ = ["Device", "Gpu"]


_CALLS = 11
_HOLD_CYCLES = 200_000  # about 100 us, in which the host prepares a call


class Device(Protocol):
    def name(self) -> str: ...

    def kind(self) -> str: ...

    def microseconds(self, call: Callable[[], Any]) -> float: ...

    def generator(self) -> torch.Generator: ...

    def synchronize(self) -> None: ...

    def reset_peak(self) -> None: ...

    def peak_bytes(self) -> int: ...

    def profiled(self) -> contextlib.AbstractContextManager[list[Any]]: ...


class Gpu(Cuda):
    """The current GPU."""

    def name(self) -> str:
        return torch.cuda.get_device_name()

    def kind(self) -> str:
        return "cuda"

    def microseconds(self, call: Callable[[], Any]) -> float:
        """The median time of a call on the GPU, whose caches are overwritten before each one."""
        cache = torch.cuda.get_device_properties(self.device()).L2_cache_size
        buffer = torch.empty(2 * max(cache, 8 << 20), dtype=torch.uint8, device=self.device())
        call()
        samples = []
        for _ in range(_CALLS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            buffer.fill_(1)
            # The GPU waits while the host prepares the call, whose time would count otherwise.
            torch.cuda._sleep(_HOLD_CYCLES)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            samples.append(1e3 * start.elapsed_time(end))
        return statistics.median(samples)

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
        raw: Any = profiler.profiler
        events += raw.kineto_results.events()
