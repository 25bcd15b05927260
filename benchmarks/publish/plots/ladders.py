"""Plots of ladders, and of the lesson of latency."""

from pathlib import Path

from matplotlib import pyplot, ticker

from benchmarks.harness import report
from benchmarks.ladder import in_flight, units
from benchmarks.ladder import report as ladder_report
from benchmarks.publish.plots import COLOURS

GREY = "0.5"  # PyTorch's bars


def plot(result: dict, path: Path):
    """Plots a panel for each case: a bar of speed for every step, and a line at the ceiling."""
    rows = result["rows"]
    bars = sum(len(ladder_report.contenders(row)) + 2 for row in rows)
    height = 1 + 0.26 * bars
    figure, all_axes = pyplot.subplots(
        len(rows),
        1,
        figsize=(9, height),
        squeeze=False,
        gridspec_kw={"height_ratios": [len(ladder_report.contenders(row)) for row in rows]},
    )
    for axes, row in zip(all_axes[:, 0], rows):
        _panel(axes, row, COLOURS)
    day = f"{result['date'][:10]}, torch {result['versions']['torch']}"
    # The margins are given in inches, so that they are the same for every height of the figure.
    figure.suptitle(
        f"the ladder of {rows[0]['op']} on {result['gpu']['name']}, {day}", y=1 - 0.15 / height, fontsize=12
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.12 / height))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_overview(results: list[dict], path: Path):
    """Plots four bars for every case of every ladder, as shares of the ceiling: the first step, the fastest, production and PyTorch."""
    rows = [row for result in results for row in result["rows"] if row["ceiling"]]
    height = 1.2 + 0.72 * len(rows)
    figure, axes = pyplot.subplots(figsize=(9, height))
    colours = {
        "first step": COLOURS[0],
        "fastest step": COLOURS[4],
        "production": COLOURS[2],
        "PyTorch": GREY,
    }
    for place, row in enumerate(rows):
        shown = (
            ladder_report.contenders(row)[0],
            ladder_report.fastest_step(row),
            ladder_report.PRODUCTION,
            ladder_report.PYTORCH,
        )
        for offset, ((label, colour), name) in enumerate(zip(colours.items(), shown)):
            share = report.share_of_ceiling(row, name) if name else None
            y = place + 0.2 * (offset - 1.5)
            axes.barh(y, share or 0.0, height=0.19, color=colour, label=label if place == 0 else None)
            if share is None:
                continue
            # Text must not cross the line of the ceiling.
            inside = share > 0.9
            over = "black" if label == "fastest step" else "white"
            place_of_text = {"ha": "right", "color": over} if inside else {"ha": "left"}
            axes.text(share, y, f" {share:.0%} ", va="center", fontsize=7, **place_of_text)
    axes.axvline(1, color="black", linewidth=1.2, zorder=0)
    axes.set_yticks(range(len(rows)), [f"{row['op']}\n{ladder_report.title_of(row)}" for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(
        0,
        1.12
        * max(
            [
                1.0,
                *(report.share_of_ceiling(row, name) or 0.0 for row in rows for name in ladder_report.contenders(row)),
            ]
        ),
    )
    axes.xaxis.set_major_formatter(ticker.PercentFormatter(xmax=1))
    axes.set_xlabel("share of the ceiling measured in the same run", fontsize=9)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="upper center", ncols=len(colours), frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / height))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_roofline(result: dict, path: Path):
    """Plots the speed of every step by how much a block computes with a byte that it reads, below the rates of memory and of units."""
    figure, axes = pyplot.subplots(figsize=(9, 6))
    rows = list({row["dtype"]: row for row in reversed(result["rows"])}.values())
    names_at: list[tuple[float, float, str]] = []  # speed, intensity, step
    copy = max(ceiling["gbps"] for ceiling in result["ceilings"])
    ends = [0.1, 400]
    axes.plot(ends, [copy * x / 1e3 for x in ends], color="black", linewidth=1.2, label=f"memory, {copy:.0f} GB/s")
    for unit, style in zip(result["units"], ("-", "--", ":")):
        label = f"{unit['unit']}: {unit['tflops']:g} TFLOP/s at {unit['ghz']:.2f} GHz"
        axes.axhline(unit["tflops"], color="black", linestyle=style, linewidth=1, label=label)
    for colour, row in zip(COLOURS, rows):
        size = 4 if row["dtype"] == "f32" else 2
        points = {}
        for name in ladder_report.steps_of(row):
            step = ladder_report.label_of(name).split()[1]
            x, y = units.intensity(step, size), ladder_report.speed_of(row, name)
            if x and y:
                points[step] = (x, y)
        if not points:
            continue
        axes.scatter(*zip(*points.values()), color=colour, s=22, label=ladder_report.title_of(row), zorder=3)
        names_at += [(y, x, step) for step, (x, y) in points.items()]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.3, 1.5 * max(unit["tflops"] for unit in result["units"]))
    axes.set_xlim(*ends)
    axes.set_xlabel("operations of a block for each byte that it reads from global memory", fontsize=9)
    axes.set_ylabel("TFLOP/s", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    axes.grid(color="0.88", linewidth=0.8)
    figure.canvas.draw()
    _annotate_apart(axes, names_at)
    day = f"{result['date'][:10]}, torch {result['versions']['torch']}"
    axes.set_title(f"the ladder of {rows[0]['op']} on {result['gpu']['name']}, {day}", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _annotate_apart(axes, names_at: list[tuple[float, float, str]]):
    """Writes names beside points: on the left if there are points close to the right, and apart from the names below."""
    scale = 72 / axes.figure.dpi
    places = [(*(scale * axes.transData.transform((x, y))), x, y, name) for y, x, name in sorted(names_at)]
    written: list[tuple[float, float, bool]] = []
    for across, up, x, y, name in places:
        crowded = any(2 < other[0] - across < 60 and abs(other[1] - up) < 30 for other in places)
        below = [other_up for other, other_up, side in written if abs(other - across) < 30 and side == crowded]
        free = max([up, *(other_up + 8 for other_up in below)])
        written.append((across, free, crowded))
        style = {"xytext": (-5, free - up - 3), "ha": "right"} if crowded else {"xytext": (5, free - up - 3)}
        axes.annotate(name, (x, y), textcoords="offset points", fontsize=7, **style)


def _panel(axes, row: dict, colours: list[str]):
    names = ladder_report.contenders(row)
    speeds = {name: ladder_report.speed_of(row, name) for name in names}
    ceiling = row["ceiling"]["gbps"] if row["ceiling"] else None
    limit = 1.12 * max([value for value in speeds.values() if value] + [ceiling or 1.0])
    for y, name in enumerate(names):
        if speeds[name] is None:
            axes.text(0, y, f" {row['contenders'].get(name, {}).get('status', 'not run')}", va="center", fontsize=8)
            continue
        colour = {ladder_report.PRODUCTION: colours[2], ladder_report.PYTORCH: GREY}.get(name, colours[0])
        axes.barh(y, speeds[name], height=0.8, color=colour)
        share = ladder_report.share_of(row, name)
        text = f" {report.median_us(row, name):.1f} us" + (f", {share:.0%}" if share is not None else "")
        inside = speeds[name] > 0.5 * limit
        axes.text(0 if inside else speeds[name], y, text, va="center", fontsize=8, color="white" if inside else "black")
    if ceiling:
        axes.axvline(ceiling, color="black", linewidth=1.5)
    axes.set_yticks(range(len(names)), [ladder_report.label_of(name) for name in names], fontsize=8.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, limit)
    title = f"{ladder_report.title_of(row)}: {ladder_report.unit_of(row)}"
    if ceiling:
        title += f"; line: ceiling, {ladder_report.ceiling_of(row)}"
    axes.set_title(title, fontsize=10, loc="left")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.88", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def plot_in_flight(result: dict, path: Path):
    """Plots a point for every copy, and the line that Little's law predicts."""
    figure, axes = pyplot.subplots(figsize=(9, 5.5))
    for colour, access_bytes in zip(COLOURS, in_flight.ACCESS_BYTES):
        for marker, loads in zip("o^sD", in_flight.LOADS):
            points = [(x, y) for x, y, shape in in_flight.measured(result) if shape[:2] == (access_bytes, loads)]
            if points:
                label = f"{access_bytes} bytes, {loads} load{'s' if loads > 1 else ''}"
                axes.plot(*zip(*points), color=colour, marker=marker, markersize=5, linewidth=0.7, label=label)
    if place := in_flight.knee(result):
        xs = [in_flight.measured(result)[0][0], place, in_flight.MOST_BYTES]
        axes.plot(
            xs,
            [in_flight.predicted(result, x) for x in xs],
            color="black",
            linewidth=1.5,
            label="Little's law, to the ceiling",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x / 1024:g}"))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.set_xlabel("KiB in flight on each SM: bytes of a load x loads of a thread x threads", fontsize=9)
    axes.set_ylabel("GB/s, read and written", fontsize=9)
    axes.legend(fontsize=8, ncols=2, frameon=False)
    axes.grid(color="0.88", linewidth=0.8)
    day = f"{result['date'][:10]}, torch {result['versions']['torch']}"
    axes.set_title(f"a copy by its bytes in flight, on {result['gpu']['name']}, {day}", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
