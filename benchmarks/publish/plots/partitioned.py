"""The plot of counts over ranks: measured and predicted seconds."""

import textwrap
from pathlib import Path

from matplotlib import pyplot, ticker

from benchmarks.partitioned.model import PREDICTED, load_of, most
from benchmarks.partitioned.report import NETWORK, conditions, fitted

COLOURS = ("#0072B2", "#D55E00", "#009E73")


def plot(result: dict, path: Path) -> None:
    """Marks are measured. Lines are the model, dashed with a network between all ranks."""
    figure, axis = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for colour, (title, (model, rows)) in zip(COLOURS, fitted(result).items()):
        ranks = [2**k for k in range(PREDICTED[-1].bit_length())]
        loads = [load_of(rows[0], count) for count in ranks]
        axis.plot(ranks, [model.seconds(load) for load in loads], color=colour, label=f"{title}: model")
        if rows[0]["backend"] == "nccl":
            slower = [model.seconds(load, NETWORK) for load in loads]
            axis.plot(ranks, slower, color=colour, linestyle="--", label=f"model, {NETWORK / 1e9:.0f} GB/s a rank")
        measured = [most(row, "count_s") for row in rows]
        axis.scatter([row["ranks"] for row in rows], measured, color=colour, zorder=3, label=f"{title}: measured")
        axis.plot(ranks, [measured[0] * rows[0]["ranks"] / count for count in ranks], color="0.7", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axis.grid(color="0.88", linewidth=0.8)
    measured_on = textwrap.fill(conditions(result), 110)
    axis.set_xlabel(f"ranks; grey lines: the time of the fewest ranks, divided\n{measured_on}", fontsize=8)
    axis.set_ylabel("seconds of a count")
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
