"""The plot of random problems."""

import math
import statistics
from pathlib import Path

from matplotlib import colors, pyplot

from benchmarks.harness import report
from benchmarks.random import report as problems


def plot(result: dict, path: Path) -> None:
    """A panel for each operator, a point for each problem: traffic against the share of the ceiling, coloured by speed-up."""
    families = problems.families_of(result)
    columns = 5
    figure, axes = pyplot.subplots(
        math.ceil(len(families) / columns), columns, figsize=(13, 7.2), sharex=True, sharey=True, layout="constrained"
    )
    norm = colors.TwoSlopeNorm(vmin=-2, vcenter=0, vmax=3)
    for axis, family in zip(axes.flat, families):
        rows = problems.rows_of(result, family)
        points = [
            (problems.bytes_of(r), report.share_of_ceiling(r), problems.aten_ratio(r))
            for r in rows
            if report.share_of_ceiling(r) is not None and problems.aten_ratio(r)
        ]
        drawn = axis.scatter(
            [b / 1e6 for b, _, _ in points],
            [min(1.15, s) for _, s, _ in points],
            c=[math.log2(r) for _, _, r in points],
            cmap="RdBu",
            norm=norm,
            s=16,
            edgecolors="0.3",
            linewidths=0.3,
        )
        axis.axhline(1, color="black", linewidth=0.8)
        beside = "mamba_ssm" if family.startswith("selective_scan") else "ATen"
        median = f"median {statistics.median(r for _, _, r in points):.1f} x {beside}" if points else f"no {beside}"
        axis.set_title(f"{family}\n{median}", fontsize=9)
        axis.set_xscale("log")
        axis.set_ylim(0, 1.2)
    for axis in axes.flat[len(families) :]:
        axis.axis("off")
    figure.supxlabel("bytes that the problem must move (MB)")
    figure.supylabel("share of the measured bandwidth ceiling")
    bar = figure.colorbar(drawn, ax=axes, ticks=[-2, -1, 0, 1, 2, 3], shrink=0.6)
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label("speed-up")
    figure.suptitle(f"Random problems on {result['gpu']['name']}, torch {result['versions']['torch']}")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
