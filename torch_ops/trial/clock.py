"""The wall clock of a step: rounds of several steps, in which the ways to compute it alternate.

As in ``benchmarks/models/run.py``, so that a trial and the tables of models agree.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch_ops.trial.device import Device

__all__ = ["Clock", "Context", "inside", "noise", "rounds_of", "summary"]

Context = Callable[[], contextlib.AbstractContextManager[Any]]

_ROUND_S = 0.05  # a round has about this many seconds of steps, so that the synchronisation weighs little
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 41
_LEAST_NOISE = 0.01


@dataclass(frozen=True)
class Clock:
    """Milliseconds of a step.

    Args:
        median, q1, q3: The median and the quartiles of the rounds.
        rounds: The number of rounds.
    """

    median: float
    q1: float
    q3: float
    rounds: int

    def error(self) -> float:
        """Two standard errors of the median, relative to it, as for normally distributed rounds."""
        deviation = (self.q3 - self.q1) / 1.349
        return 2 * 1.253 * deviation / math.sqrt(self.rounds) / self.median


def summary(samples: list[float]) -> Clock:
    if len(samples) < 2:
        return Clock(samples[0], samples[0], samples[0], 1)
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    return Clock(median, q1, q3, len(samples))


def noise(once: Clock, again: Clock, other: Clock) -> float:
    """The share by which two wall clocks may differ by chance, from two of the same way and one of another."""
    return max(_LEAST_NOISE, abs(once.median / again.median - 1), once.error(), other.error())


@contextlib.contextmanager
def inside(way: Context, step: Callable[[], Any]) -> Iterator[None]:
    """A block in which a step finds what a step before it left. An override forgets the transposes of sparse matrices when it ends."""
    with way():
        step()
        yield


def rounds_of(
    step: Callable[[], Any], ways: dict[str, Context], seconds: float, device: Device, tell: Callable[[str], None]
) -> tuple[dict[str, Clock], int]:
    """The wall clock of a step for each way, and the number of steps in a round. ``seconds`` is the time for each way."""
    guess = statistics.median(_seconds_of(step, 1, way, device) for way in ways.values())
    count = max(1, round(min(_ROUND_S, seconds) / guess))
    rounds = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, round(seconds / ((count + 1) * guess))))
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        tell(f"round {number + 1} of {rounds}")
        # Every other round runs in reverse, so that a drifting clock favours nobody.
        for name, way in list(ways.items())[:: -1 if number % 2 else 1]:
            samples[name].append(1e3 * _seconds_of(step, count, way, device))
    return {name: summary(found) for name, found in samples.items()}, count


def _seconds_of(step: Callable[[], Any], count: int, way: Context, device: Device) -> float:
    with inside(way, step):
        device.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            step()
        device.synchronize()
        return (time.perf_counter() - began) / count
