"""The plot of models."""

import textwrap
from pathlib import Path

from matplotlib import pyplot, ticker

from benchmarks.models.report import conditions, noise, ordered, ratio
from benchmarks.models.run import PASSES

STYLES = {
    ("eager", "bf16"): ("o", "#0072B2"),
    ("eager", "f32"): ("s", "#56B4E9"),
    ("compiled", "bf16"): ("^", "#D55E00"),
    ("compiled", "f32"): ("D", "#E69F00"),
    ("layout", "bf16"): ("v", "#009E73"),
    ("layout", "f32"): ("P", "#CC79A7"),
}


def plot(result: dict, path: Path) -> None:
    """For each pass a panel: each model's ratio of wall clock, one mark for each mode and dtype.

    A bar is the noise: it reaches from 1 as far as PyTorch's ratio to itself in the same rounds, to both sides.
    """
    rows = [row for row in ordered(result["rows"]) if ratio(row, "ms") is not None]
    titles = list(dict.fromkeys(row["title"] for row in rows))
    size = (11, 1.6 + 0.3 * len(titles))
    figure, axes = pyplot.subplots(1, len(PASSES), figsize=size, sharex=True, sharey=True, layout="constrained")
    styles = {key: style for key, style in STYLES.items() if any((row["mode"], row["dtype"]) == key for row in rows)}
    for axis, name in zip(axes, PASSES):
        axis.set_xscale("log", base=2)
        for number, ((mode, dtype), (marker, colour)) in enumerate(styles.items()):
            shift = 0.2 * (number - (len(styles) - 1) / 2)  # equal ratios stay apart
            found = [row for row in rows if (row["mode"], row["dtype"], row["pass"]) == (mode, dtype, name)]
            places = [titles.index(row["title"]) + shift for row in found]
            bars = [noise(row) for row in found]
            axis.hlines(places, [1 / bar for bar in bars], bars, color=colour, alpha=0.35, linewidth=4)
            axis.scatter(
                [ratio(row, "ms") for row in found],
                places,
                marker=marker,
                color=colour,
                s=26,
                zorder=3,
                label=f"{mode}, {dtype}",
            )
        axis.axvline(1, color="black", linewidth=1)
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
        axis.grid(color="0.88", linewidth=0.8)
        axis.set_title(name, fontsize=11)
        axis.set_yticks(range(len(titles)), titles, fontsize=9)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(styles), frameon=False)
    measured = textwrap.fill(conditions(result), 140)
    figure.supxlabel(
        f"wall clock of a step: PyTorch's over gpuopt's, right of 1 gpuopt is faster; bars: PyTorch's over its own, which is noise\n{measured}",
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
