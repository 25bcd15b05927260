"""Plots of rooms: bars of bandwidth for cases, curves for sweeps, points for samples."""

from pathlib import Path

from matplotlib import pyplot, ticker

from benchmarks.harness import report
from benchmarks.publish.plots import COLOURS, pictures

BAR = 0.8
INCHES_A_BAR = 0.115


def plot(result: dict, folder: Path, stem: str) -> None:
    """Writes the PNGs of each operator in the result."""
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["op"] == op]
        sweep = report.is_sweep(rows)
        shows = {"us": "device time", report.RATIO: report.RATIO}.get(_unit(rows) if sweep else "", "device bandwidth")
        for name, columns in pictures(rows, stem).items():
            draw = _points if report.is_sample(rows) else _curves
            figure = draw(rows) if sweep else _bars_figure(rows, columns)
            _finish(figure, f"{op} on {result['gpu']['name']}, {_day(result)}: {shows}", rows)
            figure.savefig(folder / name, dpi=110)
            pyplot.close(figure)


def _finish(figure, title: str, rows: list[dict]):
    names = report.contender_names(rows)
    black = "ceiling measured in the same run"
    if report.is_sample(rows):
        names, black = ["gpuopt"], "ATen"
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=_colour(names, name)) for name in names]
    handles.append(pyplot.Line2D([], [], color="black", linewidth=1.5))
    figure.legend(
        handles,
        [*names, black],
        loc="lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )
    # The margins are given in inches, so that they are the same for every height of the figure.
    height = figure.get_size_inches()[1]
    figure.suptitle(title, y=1 - 0.22 / height, fontsize=12)
    figure.tight_layout(rect=(0, 0.32 / height, 1, 1 - 0.3 / height))


def _colour(names: list[str], name: str) -> str:
    return COLOURS[names.index(name) % len(COLOURS)]


def _limit(rows: list[dict]) -> float:
    """The end of the bandwidth axis."""
    return 1.12 * max(
        [row["ceiling"]["gbps"] for row in rows if row["ceiling"]]
        + [entry["gbps"] for row in rows for entry in row["contenders"].values() if "gbps" in entry]
        + [1.0]
    )


def _bound(row: dict, in_time: bool) -> float:
    """The bandwidth of the ceiling, or the time in microseconds that the row's bytes take at that bandwidth."""
    gbps = row["ceiling"]["gbps"]
    return (row["read_bytes"] + row["written_bytes"]) / gbps / 1e3 if in_time else gbps


def _least_time(rows: list[dict]) -> float | None:
    """The beginning of a time axis, near the fastest launch: the ceiling's time for a few bytes lies far below that."""
    times = [us for row in rows for name in row["contenders"] if (us := report.median_us(row, name)) is not None]
    return min(times, default=None)


# ---------------------------------------------------------------- bars


def _bars_figure(rows: list[dict], columns: list[tuple[str, list[dict]]]):
    names = report.contender_names(rows)
    bars = max(sum(len(_bars(row, names)) + 1.5 for row in chosen) for _, chosen in columns)
    height = max(3.2, 1.5 + INCHES_A_BAR * bars)
    figure, all_axes = pyplot.subplots(1, len(columns), figsize=(8.5 * len(columns), height), squeeze=False)
    limit = _limit(rows)
    for axes, (title, chosen) in zip(all_axes[0], columns):
        _panel(axes, chosen, names, limit)
        axes.set_title(title, fontsize=10)
    return figure


def _day(result: dict) -> str:
    return f"{result['date'][:10]}, torch {result['versions']['torch']}"


def _bars(row: dict, names: list[str]) -> list[str]:
    """The contenders that get a bar in this row. gpuopt always does: without a time, its bar shows the reason."""
    return [name for name in names if name == "gpuopt" or report.median_us(row, name) is not None]


def _panel(axes, rows: list[dict], names: list[str], limit: float):
    position, ticks = 0.0, []
    for row in rows:
        shown = _bars(row, names)
        top = position
        for name in shown:
            _bar(axes, row, name, position, _colour(names, name), 0.45 * limit)
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
        # The text is drawn inside a long bar, and beside a short one.
        best = report.best_peer(row)
        text = f" {us:.1f} us" + (f", {best[1] / us:.2f}x {best[0]}" if best else "")
        x, ink = (0, "white") if gbps > long else (gbps, "black")
        axes.text(x, y, text, va="center", fontsize=7, color=ink)


# ---------------------------------------------------------------- samples


def _points(rows: list[dict]):
    """A panel for each curve of a sample, with a point for each case at its speedup over ATen."""
    curves = sorted({row["point"]["curve"] for row in rows})
    figure, all_axes = _panels(len(curves))
    for axes, curve in zip(all_axes.flat, curves):
        chosen = [row for row in rows if row["point"]["curve"] == curve]
        beside = report.ratios(chosen, "ATen")
        axes.scatter(
            [row["point"]["x"] for _, row in beside], [ratio for ratio, _ in beside], color=COLOURS[0], s=16, zorder=3
        )
        axes.axhline(1, color="black", linewidth=1.5)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(ticker.LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes.set_title(curve + _worst(beside), fontsize=10)
        _dress(axes, chosen)
    return figure


# ---------------------------------------------------------------- curves


def _unit(rows: list[dict]) -> str:
    return rows[0]["point"].get("unit", "GB/s")


def _curves(rows: list[dict]):
    """A panel for each curve of a sweep, in two columns."""
    in_time = _unit(rows) == "us"
    least = _least_time(rows)
    names = report.contender_names(rows)
    curves = list(dict.fromkeys(row["point"]["curve"] for row in rows))
    figure, all_axes = _panels(len(curves))
    for axes, curve in zip(all_axes.flat, curves):
        chosen = sorted((row for row in rows if row["point"]["curve"] == curve), key=lambda row: row["point"]["x"])
        # gpuopt is drawn last, so that it lies on top.
        for name in reversed(names):
            timed = [row for row in chosen if report.median_us(row, name) is not None]
            ys = [report.median_us(row, name) if in_time else row["contenders"][name]["gbps"] for row in timed]
            xs = [row["point"]["x"] for row in timed]
            axes.plot(xs, ys, color=_colour(names, name), marker="o", markersize=4, linewidth=1.5)
        bounds = [(row["point"]["x"], _bound(row, in_time)) for row in chosen if row["ceiling"]]
        axes.plot(*zip(*bounds), color="black", linewidth=1.5)
        axes.set_title(curve + _worst(report.ratios(chosen, "ATen")), fontsize=10)
        if any(row["point"].get("label") for row in chosen):
            ticks = [(row["point"]["x"], row["point"]["label"] or f"{row['point']['x']:g}") for row in chosen]
            axes.set_xticks(*zip(*ticks), fontsize=8.5)
        else:
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        if not in_time:
            axes.set_ylim(0, _limit(rows))
        elif least is not None:
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.5 * least)
        _dress(axes, chosen)
    return figure


def _panels(count: int):
    """A figure of panels in two columns."""
    lines = (count + 1) // 2
    figure, all_axes = pyplot.subplots(lines, 2, figsize=(15, 1 + 3.6 * lines), squeeze=False)
    for axes in all_axes.flat[count:]:
        axes.set_visible(False)
    return figure, all_axes


def _worst(beside: list[tuple[float, dict]]) -> str:
    """The part of a panel's title that sums up the speedups over ATen."""
    return f": at worst {beside[0][0]:.2f}x ATen's speed, {beside[0][1]['case']}" if beside else ""


def _dress(axes, rows: list[dict]):
    axes.set_xlabel(rows[0]["point"]["axis"], fontsize=9)
    axes.set_ylabel(_unit(rows), fontsize=9)
    axes.grid(color="0.88", linewidth=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
