"""Bars against the ceiling, one picture an operator, from a result's JSON alone."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks import report

# Okabe and Ito's colours, told apart by readers of every colour vision.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
BAR = 0.8
INCHES_A_BAR = 0.115


def plot(result: dict, folder: Path, stem: str) -> list[Path]:
    """Write one PNG for each operator of the result; returns their paths."""
    paths = []
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["op"] == op]
        path = folder / (f"{op}.png" if stem == op else f"{stem}-{op}.png")
        _plot_op(result, op, rows, path)
        paths.append(path)
    return paths


def _plot_op(result: dict, op: str, rows: list[dict], path: Path):
    names = report.contender_names(rows)
    panels = [
        (title, chosen)
        for title, chosen in (
            ("headline cases", [row for row in rows if row["headline"]]),
            ("other layouts, shapes and types", [row for row in rows if not row["headline"]]),
        )
        if chosen
    ]
    bars = max(sum(len(_bars(row, names)) + 1.5 for row in chosen) for _, chosen in panels)
    height = max(3.2, 1.5 + INCHES_A_BAR * bars)
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(8.5 * len(panels), height), squeeze=False)
    limit = 1.12 * max(
        [row["ceiling"]["gbps"] for row in rows if row["ceiling"]]
        + [entry["gbps"] for row in rows for entry in row["contenders"].values() if "gbps" in entry]
        + [1.0]
    )
    for axes, (title, chosen) in zip(all_axes[0], panels):
        _panel(axes, chosen, names, limit)
        axes.set_title(title, fontsize=10)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=COLOURS[i % len(COLOURS)]) for i in range(len(names))]
    handles.append(pyplot.Line2D([], [], color="black", linewidth=1.5))
    figure.legend(
        handles,
        [*names, "ceiling measured in the same run"],
        loc="lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )
    # The margins are given in inches, so that they stay the same however many bars there are.
    figure.suptitle(
        f"{op} on {result['gpu']['name']}, {_day(result)}: device bandwidth", y=1 - 0.22 / height, fontsize=12
    )
    figure.tight_layout(rect=(0, 0.32 / height, 1, 1 - 0.3 / height))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _day(result: dict) -> str:
    return f"{result['date'][:10]}, torch {result['versions']['torch']}"


def _bars(row: dict, names: list[str]) -> list[str]:
    return [name for name in names if report.median_us(row, name) is not None] or names[:1]


def _panel(axes, rows: list[dict], names: list[str], limit: float):
    position, ticks = 0.0, []
    for row in rows:
        shown = _bars(row, names)
        top = position
        for name in shown:
            _bar(axes, row, name, position, COLOURS[names.index(name) % len(COLOURS)], 0.45 * limit)
            position += 1.0
        if row["ceiling"]:
            gbps = row["ceiling"]["gbps"]
            axes.plot([gbps, gbps], [top - BAR / 2 - 0.2, position - 1 + BAR / 2 + 0.2], color="black", linewidth=1.5)
        ticks.append(((top + position - 1) / 2, f"{row['case']}  {row['dtype']}"))
        position += 1.0
    axes.set_yticks([y for y, _ in ticks], [label for _, label in ticks], fontsize=8.5)
    axes.set_ylim(position - 1, -1)
    axes.set_xlim(0, limit)
    axes.set_xlabel("GB/s (bytes that must be moved, over time)", fontsize=9)
    axes.grid(axis="x", color="0.88", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _bar(axes, row: dict, name: str, y: float, colour: str, long: float):
    us = report.median_us(row, name)
    if us is None:
        status = row["contenders"].get(name, {}).get("status", "not run")
        axes.text(0, y, f" {name}: {status}", va="center", fontsize=7, color="#D55E00")
        return
    gbps = row["contenders"][name]["gbps"]
    axes.barh(y, gbps, height=BAR, color=colour)
    if name == "gpuopt":
        # Inside the bar where there is room, beside it where it is short.
        best = report.best_peer(row)
        text = f" {us:.1f} us" + (f", {best[1] / us:.2f}x {best[0]}" if best else "")
        x, ink = (0, "white") if gbps > long else (gbps, "black")
        axes.text(x, y, text, va="center", fontsize=7, color=ink)
