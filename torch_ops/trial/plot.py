"""The picture of a trial. matplotlib is imported only to draw."""

from __future__ import annotations

import textwrap
from pathlib import Path

from matplotlib.figure import Figure

from torch_ops.trial.conclusion import conclusion
from torch_ops.trial.measured import OVERRIDE, PYTORCH, Measurements

__all__ = ["plot"]

# The colours of Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_IDLE = "#cccccc"


def plot(measured: Measurements, path: Path) -> None:
    """Draws a step with and without the override: the families of its GPU time, and the time in which the GPU waits."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.add_subplot()
    ways = [measured.ways[name] for name in (OVERRIDE, PYTORCH)]
    families = dict.fromkeys(name for way in reversed(ways) for name in way.families)
    left = [0.0, 0.0]
    for number, name in enumerate(families):
        widths = [way.families.get(name, 0.0) for way in ways]
        colour, hatch = _COLOURS[number % len(_COLOURS)], "//" if number >= len(_COLOURS) else ""
        axes.barh((0, 1), widths, left=left, color=colour, hatch=hatch, edgecolor="white", label=name)
        left = [x + width for x, width in zip(left, widths)]
    idle = [max(0.0, way.clock.median - x) for way, x in zip(ways, left)]
    label = "GPU waits for the host" if families else "wall clock"
    axes.barh((0, 1), idle, left=left, color=_IDLE, edgecolor="white", label=label)
    axes.set_yticks((0, 1), ("override", "PyTorch"))
    axes.set_xlabel("milliseconds of a step")
    axes.set_title(textwrap.fill(conclusion(measured)[0], 90), fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
