"""The report of a trial, as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_ops.trial.conclusion import conclusion
from torch_ops.trial.measured import OVERRIDE, PYTORCH, Measurements
from torch_ops.trial.text import number, table

__all__ = ["Report"]


@dataclass(frozen=True)
class Report(Measurements):
    """What a trial found. ``print()`` shows it as text."""

    def json(self) -> str:
        """Everything as JSON. Numbers that are not finite are null."""
        computed = {"ratio": self.ratio, "gpu_ratio": self.gpu_ratio, "conclusion": conclusion(self)}
        return json.dumps(_finite(computed | dataclasses.asdict(self)), indent=1, allow_nan=False)

    def plot(self, path: str | Path) -> None:
        """Draws the wall clock, and the families of the GPU time, in both ways.

        Args:
            path: The picture's file. Its suffix says the format, such as ``.png`` or ``.svg``.

        Raises:
            ValueError: Nothing was measured.
            ImportError: There is no matplotlib.
        """
        if self.reason:
            raise ValueError(
                f"torch_ops.trial: a picture needs measurements: expected a report with some, got none: {self.reason}"
            )
        from torch_ops.trial.plot import plot

        plot(self, Path(path))

    def __str__(self) -> str:
        if self.reason:
            return f"Nothing was measured: {self.reason}"
        blocks = [[self._head()], conclusion(self), table(self._measurements())]
        for rows in (self._operators(), self._families()):
            if len(rows) > 1:
                blocks.append(table(rows, texts=(0, 7)))
        blocks.append(self.notes)
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def _head(self) -> str:
        rounds = self.ways[PYTORCH].clock.rounds
        of = "one step" if self.steps == 1 else f"{self.steps} steps"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.device}, {versions}; {rounds} rounds of {of} in {self.seconds:.1f} s"

    def _measurements(self) -> list[list[str]]:
        ways = self.ways.values()
        rows = [["", *self.ways]]
        rows.append(["wall clock, ms", *(number(way.clock.median) for way in ways)])
        rows.append(["GPU time, ms", *(number(way.gpu_ms) for way in ways)])
        rows.append(["GPU waits for the host, ms", *(number(way.idle_ms) for way in ways)])
        rows.append(["host waits for the GPU", *(str(way.host_waits) for way in ways)])
        rows.append(["peak memory, MiB", *(_mib(way.peak_bytes) for way in ways)])
        for name, found in (("results", self.results), ("gradients", self.gradients)):
            if found:
                where = f" ({found[OVERRIDE].largest})" if found[OVERRIDE].largest else ""
                rows.append(
                    [
                        f"difference of {name}{where}",
                        *(f"{found[way].relative:.1e}" if way in found else "" for way in self.ways),
                    ]
                )
        return rows

    def _operators(self) -> list[list[str]]:
        head = ["replaced operator", "taken", "declined", "PyTorch, ms", "override, ms", "saved", "declined calls, ms"]
        rows = [[*head, "declined because"]]
        for row in self.operators:
            times = (row.pytorch_ms, row.override_ms, row.saved_ms, row.declined_ms if row.declined else 0.0)
            reasons = ", ".join(f"{reason} {count}" for reason, count in row.declined.items())
            calls = str(row.taken), str(sum(row.declined.values()))
            rows.append([row.name, *calls, *map(number, times), reasons])
        return rows

    def _families(self) -> list[list[str]]:
        before, after = self.ways[PYTORCH], self.ways[OVERRIDE]
        rows = [["GPU time of", "PyTorch, ms", "override, ms", "share"]]
        total = after.gpu_ms or 0.0
        for name in sorted(before.families.keys() | after.families, key=lambda name: -after.families.get(name, 0.0)):
            times = before.families.get(name, 0.0), after.families.get(name, 0.0)
            rows.append([name, *map(number, times), f"{times[1] / total:.0%}" if total else "-"])
        return rows


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mib(value: int | None) -> str:
    return "-" if value is None else f"{value / 2**20:.0f}"
