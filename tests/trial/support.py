"""A trial on the CPU: kernels of the CPU are replaced, and the profiler's events get kernels that were made up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd import DeviceType

from torch_ops.trial.function import measure
from torch_ops.trial.report import Report

from ..support.overriding import override


class Cpu:
    """The CPU. Some of its operators get a kernel of 100 microseconds."""

    def name(self) -> str:
        return "the CPU"

    def kind(self) -> str:
        return "cpu"

    def microseconds(self, call: Callable[[], Any]) -> float:
        call()
        return 10.0

    def generator(self) -> torch.Generator:
        return torch.default_generator

    def synchronize(self) -> None:
        pass

    def reset_peak(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return 2**20

    @contextlib.contextmanager
    def profiled(self) -> Iterator[list[Any]]:
        events: list[Any] = []
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
            yield events
        made = list(profiler.profiler.kineto_results.events())
        events += made
        for found in made:
            if found.name() in ("aten::sum", "aten::mul", "aten::mm"):
                events.append(kernel("a_kernel", found.correlation_id(), 100.0))


def kernel(name: str, operator: int, us: float, annotation: bool = False) -> SimpleNamespace:
    return event(name, DeviceType.CUDA, 10**9, operator, us=us, annotation=annotation)


def event(
    name: str,
    device: DeviceType = DeviceType.CPU,
    correlation: int = 0,
    linked: int = 0,
    start: float = 0.0,
    us: float = 0.0,
    thread: int = 1,
    annotation: bool = False,
) -> SimpleNamespace:
    """A raw event of the profiler."""
    fields = {
        "name": name,
        "device_type": device,
        "correlation_id": correlation,
        "linked_correlation_id": linked,
        "shapes": [],
        "start_ns": int(1e3 * start),
        "duration_ns": int(1e3 * us),
        "start_thread_id": thread,
        "is_user_annotation": annotation,
    }
    return SimpleNamespace(**{key: lambda value=value: value for key, value in fields.items()})


def trial(step: Any, seconds: float = 0.01, with_graphs: bool = False, record: Any = None, **options: Any) -> Report:
    """A trial of a step on the CPU, in which calls of every size are taken."""
    return measure(step, override("cpu", **options), seconds, Cpu(), lambda text: None, with_graphs, record)
