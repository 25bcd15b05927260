"""The GPU time of a step by the operators that the override replaces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch.autograd import DeviceType

from torch_ops._override import forms_of

__all__ = ["Operator", "Span", "host_waits", "operators", "spans"]

_KERNELS = "gpuopt::"  # the namespace of gpuopt's kernels
_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize")  # as for tensor.item() and nonzero()


@dataclass(frozen=True)
class Span:
    """A call of a replaced operator, with everything that it calls.

    Args:
        operator: The name of the operator in ``torch_ops.override.operators``.
        us: The time of its kernels, in microseconds.
        is_taken: Whether one of them is gpuopt's.
    """

    operator: str
    us: float
    is_taken: bool


@dataclass(frozen=True)
class Operator:
    """A replaced operator in one step.

    Args:
        name: Its name in ``torch_ops.override.operators``.
        taken: The calls that gpuopt computed.
        declined: The calls that went to PyTorch's kernel, by reason.
        pytorch_ms: The GPU time of all its calls without the override, in milliseconds. None if it is not known.
        override_ms: The same with the override.
        declined_ms: The part of ``override_ms`` that declined calls took.
    """

    name: str
    taken: int
    declined: dict[str, int] = field(default_factory=dict)
    pytorch_ms: float | None = None
    override_ms: float | None = None
    declined_ms: float | None = None

    @property
    def saved_ms(self) -> float | None:
        """The GPU time that the override saved."""
        if self.pytorch_ms is None or self.override_ms is None:
            return None
        return self.pytorch_ms - self.override_ms


def spans(events: Iterable[Any], names: Iterable[str]) -> list[Span]:
    """The calls of operators among the profiler's raw events. A kernel belongs to the outermost of the operators around it."""
    events = list(events)
    known = {f"aten::{form}": name for name in names for form in forms_of(name)}
    roots = _outermost(events, known)
    times: dict[int, float] = defaultdict(float)
    taken: set[int] = set()
    for event in events:
        if event.device_type() != DeviceType.CUDA or event.is_user_annotation():
            continue
        root = roots.get(event.linked_correlation_id())
        if root is not None:
            times[root.correlation_id()] += event.duration_ns() / 1e3
            if _KERNELS in event.name():
                taken.add(root.correlation_id())
    calls = {root.correlation_id(): known[root.name()] for root in roots.values()}
    return [Span(name, times[number], number in taken) for number, name in calls.items()]


def _outermost(events: list[Any], known: dict[str, str]) -> dict[int, Any]:
    """For each operator inside of a known one, the outermost known one around it. Operators nest by time in each thread."""
    threads: dict[int, list[Any]] = defaultdict(list)
    for event in events:
        # Calls of the CUDA runtime have numbers of another kind.
        if event.device_type() == DeviceType.CPU and event.linked_correlation_id() == 0 and event.name()[:2] != "cu":
            threads[event.start_thread_id()].append(event)
    found: dict[int, Any] = {}
    for of_thread in threads.values():
        root, until = None, -1
        for event in sorted(of_thread, key=lambda event: (event.start_ns(), -event.duration_ns())):
            if event.start_ns() >= until:
                root = None
            if root is None and event.name() in known:
                root, until = event, event.start_ns() + event.duration_ns()
            if root is not None:
                found[event.correlation_id()] = root
    return found


def host_waits(events: Iterable[Any]) -> int:
    """How often the host waits for values of the GPU."""
    return sum(event.name() in _WAITS for event in events)


def operators(
    calls: dict[str, dict[str, int]], without: list[Span] | None, with_override: list[Span] | None
) -> list[Operator]:
    """The replaced operators of a step, the largest savings first.

    Args:
        calls: The calls by operator and reason, as in ``torch_ops.override_report().calls``.
        without: The calls of a step without the override, or None if there was no profiler.
        with_override: The calls of a step with it.
    """
    rows = []
    for name, reasons in calls.items():
        declined = {reason: count for reason, count in reasons.items() if reason != "taken"}
        times: tuple[float | None, ...] = (None, None, None)
        if without is not None and with_override is not None:
            before = [span.us for span in without if span.operator == name]
            after = [span for span in with_override if span.operator == name]
            rest = [span.us for span in after if not span.is_taken] if declined else []
            times = tuple(sum(us) / 1e3 for us in (before, [span.us for span in after], rest))
        rows.append(Operator(name, reasons.get("taken", 0), declined, *times))
    return sorted(rows, key=lambda row: (-(row.saved_ms or 0.0), -row.taken))
