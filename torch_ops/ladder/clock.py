"""The clock of a ladder: device time with cold caches, and the ceilings of this GPU.

As in ``benchmarks/harness/timer.py``: a buffer of twice the L2 is written before each call, operands rotate through several copies,
and the contenders of a problem alternate.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torch_ops.ladder.step import run as run_step
from torch_ops.ladder.step import steps as steps_of

__all__ = ["Time", "bandwidth", "calls_of_steps", "copies_of", "rates", "times"]

_ROUNDS = 5
_BUDGET_US = 60e3  # for each contender
_SLOW_US = 50e3  # a contender that takes longer runs once
_MOST_CALLS = 50  # in a round
_HOLD_US, _LONGEST_HOLD_US = 60.0, 1000.0
_CYCLES_PER_US = 2000
_ROTATED_BYTES = 1 << 30
_LEAST_CEILING, _MOST_CEILING = 128 << 20, 4 << 30  # bytes
_UNIT_ITERATIONS = {"fma": 50_000, "tf32": 40_000}


@dataclass(frozen=True)
class Time:
    """Microseconds of a call: the median and the quartiles."""

    median: float
    q1: float
    q3: float


def copies_of(moved: int) -> int:
    """The number of sets of operands that calls rotate through."""
    return max(2, min(8, _ROTATED_BYTES // max(moved, 1)))


class _Flush:
    """Writes a buffer of twice the L2 cache."""

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._buffer = torch.empty(2 * max(size, 8 << 20) // 4, dtype=torch.int32, device="cuda")

    def __call__(self) -> None:
        self._buffer.fill_(1)


def _samples(call: Callable[[int], Any], count: int, first: int, flush: _Flush) -> list[float]:
    """Microseconds of calls. The GPU waits until the host has queued all of them."""
    hold = _HOLD_US
    while True:
        starts, ends = ([torch.cuda.Event(enable_timing=True) for _ in range(count)] for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(int(_CYCLES_PER_US * hold * count))
        for number, (start, end) in enumerate(zip(starts, ends)):
            flush()
            start.record()
            call(first + number)
            end.record()
        ahead = not starts[0].query()
        torch.cuda.synchronize()
        found = [1e3 * start.elapsed_time(end) for start, end in zip(starts, ends)]
        if ahead or min(found) > _SLOW_US or hold > _LONGEST_HOLD_US:
            return found
        hold *= 3


def times(calls: dict[str, Callable[[int], Any]]) -> dict[str, Time | Exception]:
    """The time of each call, which gets the number of the set of operands. An exception for a call that raises one."""
    flush, found = _Flush(), {}
    samples: dict[str, list[float]] = {}
    guess: dict[str, float] = {}
    for name, call in calls.items():
        try:
            guess[name] = _samples(call, 1, 0, flush)[0]
            if guess[name] < _SLOW_US:
                guess[name] = min(_samples(call, 3, 1, flush))
                samples[name] = []
            else:
                samples[name] = [guess[name]]
        except Exception as error:
            found[name] = error
            torch.cuda.synchronize()
    quick = [name for name in samples if guess[name] < _SLOW_US]
    for number in range(_ROUNDS):
        for name in quick[:: -1 if number % 2 else 1]:
            count = max(3, min(_MOST_CALLS, int(_BUDGET_US / _ROUNDS / guess[name])))
            samples[name] += _samples(calls[name], count, number, flush)
    for name, values in samples.items():
        q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * values
        found[name] = Time(median, q1, q3)
    return found


def bandwidth(read: int, written: int) -> tuple[float, str]:
    """Bytes per microsecond of the best simple kernel with traffic of this kind and size, and its name."""
    total = max(read + written, 1)
    fitting = max(torch.cuda.mem_get_info()[0] // 2, _LEAST_CEILING)
    size = min(max(total, _LEAST_CEILING), _MOST_CEILING, fitting)
    share = read / total
    streams = 1 if share > 5 / 6 else 3 if share > 7 / 12 else 2 if share > 1 / 4 else 0
    x = [torch.rand(size // 4096 * 1024 // max(streams, 1), device="cuda") for _ in range(max(streams, 1))]
    copy = torch.ops.gpuopt_ladder.copy_in_flight
    kinds: dict[int, tuple[str, list[Callable[[int], Any]]]] = {
        0: ("write", [lambda _: x[0].fill_(1.5), lambda _: x[0].zero_()]),
        1: ("read", [lambda _: x[0].sum(), lambda _: x[0].amax(), lambda _: run_step("reduce_sum", "vectors", x[0])]),
        2: ("copy", [lambda _: x[1].copy_(x[0]), lambda _: torch.neg(x[0], out=x[1]), lambda _: copy(x[0], 16, 4, 64)]),
        3: ("two reads, one write", [lambda _: torch.mul(x[0], x[1], out=x[2]), lambda _: run_step("mul", "vectors", x[0], x[1])]),
    }  # fmt: skip
    kind, calls = kinds[streams]
    found = times({str(number): call for number, call in enumerate(calls)})
    best = min(time.median for time in found.values() if isinstance(time, Time))
    return sum(t.numel() * 4 for t in x) / best, kind


def rates() -> dict[str, float]:
    """Operations per microsecond of the arithmetic units, from registers or shared memory. Tensor cores only on Hopper."""
    like, found = torch.empty(0, device="cuda"), {}
    for unit, iterations in _UNIT_ITERATIONS.items():
        if unit == "fma" or torch.cuda.get_device_capability() == (9, 0):
            runs = [torch.ops.gpuopt_ladder.unit_rate(like, unit, iterations).tolist() for _ in range(3)]
            found[unit] = max(1e3 * operations / ns for _, ns, operations in runs)
    return found


def calls_of_steps(op: str, small: tuple[Any, ...], sets: list[tuple[Any, ...]]) -> dict[str, Callable[[int], Any]]:
    """A call for each step that supports the dtypes. ``small`` are operands of a small problem, on which this is tried."""
    calls = {}
    for step in steps_of(op):
        try:
            run_step(op, step.number, *small)
        except NotImplementedError:
            continue
        calls[step.name] = lambda number, step=step.number: run_step(op, step, *sets[number % len(sets)])
    return calls
