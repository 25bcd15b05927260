"""The roofline of a ladder, as text and as a picture. matplotlib is imported only to draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch_ops.ladder.measured import Measured
from torch_ops.trial.text import number, table

__all__ = ["Roofline"]

# Colours of Okabe and Ito, which colour-blind readers can tell apart.
_ROOF, _STEPS, _YOURS = "#000000", "#0072B2", "#D55E00"
_BAR = 40
_LABELS = 24  # as many lines of text as the picture is high


@dataclass(frozen=True)
class Roofline:
    """A roofline: the speed that memory and arithmetic allow, and the speed of each step.

    Args:
        measured: The times and the ceilings.
    """

    measured: Measured

    @property
    def intensity(self) -> float:
        """Operations for each byte of the problem."""
        return self.measured.operations / (self.measured.read + self.measured.written)

    def __str__(self) -> str:
        found = self.measured
        limit = "arithmetic" if found.is_bound_by_arithmetic else "memory"
        lines = [
            found.title(),
            "",
            f"{found.operations:.4g} operations for {found.read + found.written:.4g} bytes: {number(self.intensity)} per byte.",
            f"Memory moves {found.bytes_per_us / 1e3:.0f} GB/s ({found.pattern}): {number(found.memory_us)} us.",
            f"Arithmetic makes {found.rate / 1e6:.1f} TFLOP/s: {number(found.operations / found.rate)} us.",
            f"The limit is {limit}: {number(found.ceiling_us)} us. Its full speed is a bar of {_BAR} characters.",
            "",
        ]
        rows = []
        for name, time in self._rows():
            share = found.share(time)
            rows.append([name, number(time), f"{share:.1%}", "#" * min(_BAR, round(_BAR * share))])
        return "\n".join([*lines, *table(rows, texts=(0, 3))])

    def _rows(self) -> list[tuple[str, float]]:
        rows = [(name, time["median"]) for name, time in self.measured.steps.items()]
        if self.measured.yours:
            rows.append((f"> {self.measured.kernel}", self.measured.yours["median"]))
        return rows

    def plot(self, path: str | Path) -> None:
        """Draws the roofline to a file, such as ``roofline.png``. Needs matplotlib."""
        from matplotlib.figure import Figure

        found, at = self.measured, self.intensity
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot()
        ridge = found.rate / found.bytes_per_us
        left, right = min(at, ridge) / 8, max(at, ridge) * 8
        roof = [(x, min(x * found.bytes_per_us, found.rate) / 1e6) for x in (left, ridge, right)]
        axes.plot(
            *zip(*roof), color=_ROOF, label=f"{found.bytes_per_us / 1e3:.0f} GB/s, {found.rate / 1e6:.0f} TFLOP/s"
        )
        lowest = min(found.operations / time for _, time in self._rows())
        gap, label = (roof[1][1] * 1e6 / lowest) ** (1 / _LABELS), 0.0
        for name, time in sorted(self._rows(), key=lambda row: -row[1]):
            colour, marker = (_YOURS, "*") if name.startswith(">") else (_STEPS, "o")
            speed = found.operations / time / 1e6
            label = max(speed, label * gap)  # labels of near speeds do not overlap
            axes.plot([at], [speed], marker, color=colour, markersize=9 if marker == "*" else 5, zorder=3)
            axes.annotate(
                name, (at, speed), xytext=(2 * at, label), fontsize=7, color=colour, va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "relpos": (0, 0.5)},
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("operations for each byte of the problem")
        axes.set_ylabel("10^12 operations per second")
        axes.set_title(f"{found.op}, {found.gpu}", fontsize=10, loc="left")
        axes.legend(frameon=False, fontsize=8, loc="upper left")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=150)
