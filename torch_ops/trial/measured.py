"""What a trial measures."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_ops.trial.clock import Clock
from torch_ops.trial.compare import Difference
from torch_ops.trial.operators import Operator

__all__ = ["AGAIN", "GRAPHS", "OVERRIDE", "PYTORCH", "Measurements", "Way"]

PYTORCH, OVERRIDE, GRAPHS, AGAIN = "PyTorch", "override", "override, graphs", "PyTorch again"


@dataclass(frozen=True)
class Way:
    """A step that is computed in one way.

    Args:
        clock: The wall clock.
        gpu_ms: The sum of its kernels in milliseconds, or None if the profiler failed.
        families: The part of each family of kernels, the largest first.
        peak_bytes: The most memory that PyTorch's allocator had given out.
        host_waits: How often the host waited for values of the GPU.
    """

    clock: Clock
    gpu_ms: float | None = None
    families: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    host_waits: int = 0

    @property
    def idle_ms(self) -> float | None:
        """The time in which the GPU waited for the host."""
        return None if self.gpu_ms is None else max(0.0, self.clock.median - self.gpu_ms)


@dataclass(frozen=True)
class Measurements:
    """What a step takes with PyTorch's kernels and with the override.

    Args:
        device: The name of the GPU.
        versions: The versions of torch and gpuopt.
        reason: Why nothing was measured, or "".
        ways: The step in each way: ``"PyTorch"``, ``"override"``, ``"override, graphs"`` if it was asked for, and
            ``"PyTorch again"``, which shows the noise.
        noise: The share by which wall clocks differ by chance.
        steps: The number of steps in a round.
        results, gradients: Their differences from PyTorch's for each other way. Empty if there are none.
        operators: The replaced operators that the step calls.
        notes: Sentences on what could not be measured.
        seconds: The time that the trial took.
    """

    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    ways: dict[str, Way] = field(default_factory=dict)
    noise: float = 0.0
    steps: int = 0
    results: dict[str, Difference] = field(default_factory=dict)
    gradients: dict[str, Difference] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ratio(self) -> float | None:
        """PyTorch's wall clock over the override's. Above 1 the override is faster. None if nothing was measured."""
        if self.reason:
            return None
        return self.ways[PYTORCH].clock.median / self.ways[OVERRIDE].clock.median

    @property
    def gpu_ratio(self) -> float | None:
        """The same for GPU time."""
        if self.reason:
            return None
        before, after = self.ways[PYTORCH].gpu_ms, self.ways[OVERRIDE].gpu_ms
        return before / after if before and after else None
