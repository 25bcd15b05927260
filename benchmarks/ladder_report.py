"""Tables and plots of ladders, made from the JSON of a result alone."""

import textwrap
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.ladders import STEP

PRODUCTION, PYTORCH = "gpuopt", "ATen"
GREY = "0.5"  # PyTorch's bars


def title_of(row: dict) -> str:
    return f"{row['case']} {row['dtype']}"


def label_of(name: str) -> str:
    """The name of a contender in tables and plots of ladders."""
    return {PRODUCTION: "production", PYTORCH: "PyTorch"}.get(name, name.removeprefix(STEP))


def contenders(row: dict) -> list[str]:
    """The names of the steps in order, then the production operator, then PyTorch."""
    steps = [name for name in row["contenders"] if name.startswith(STEP)]
    return [*sorted(steps, key=lambda name: int(name.split()[1])), PRODUCTION, PYTORCH]


def fastest_step(row: dict) -> str | None:
    """The fastest step that has a time, without the production operator; None if no step has one."""
    timed = [name for name in contenders(row)[:-2] if report.median_us(row, name) is not None]
    return min(timed, key=lambda name: report.median_us(row, name), default=None)


def ceiling_of(row: dict) -> str:
    """The ceiling of a row that has one, in words."""
    ceiling = row["ceiling"]
    return f"{ceiling['gbps']:.0f} GB/s ({ceiling['pattern']}, {ceiling['size']})"


def speedups(row: dict) -> dict[str, tuple[float | None, float | None]]:
    """For each contender: how many times as fast it is as the first step with a time, and as the previous one. PyTorch has no previous
    step."""
    found, first, before = {}, None, None
    for name in contenders(row):
        us = report.median_us(row, name)
        if us is None:
            found[name] = (None, None)
            continue
        found[name] = (first / us if first else None, before / us if before and name != PYTORCH else None)
        first, before = first or us, us
    return found


def table(row: dict, gpu: str) -> tuple[Table, list[str]]:
    """The table of one case, and a note for every step without a time."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{row['op']}, {title_of(row)}, {gpu}")
    made.add_column("step", no_wrap=True)
    for heading in ("us", "GB/s", "% of ceiling", "x first", "x previous", "error"):
        made.add_column(heading, justify="right", no_wrap=True)
    notes, gains = [], speedups(row)
    for name in contenders(row):
        entry = row["contenders"].get(name, {"status": "not run", "reason": "left out"})
        us = report.median_us(row, name)
        if us is None:
            made.add_row(label_of(name), entry["status"], *["-"] * 5)
            notes.append(f"{label_of(name)} {entry['status']}: {entry['reason']}")
            continue
        share = report.share_of_ceiling(row, name)
        made.add_row(
            label_of(name),
            f"{us:.2f}",
            f"{entry['gbps']:.0f}",
            "-" if share is None else f"{share:.1%}",
            *("-" if gain is None else f"{gain:.2f}" for gain in gains[name]),
            f"{entry['error']:.1e}" if entry.get("error") is not None else "-",
        )
    return made, notes


def show(result: dict, console: Console):
    for row in result["rows"]:
        made, notes = table(row, result["gpu"]["name"])
        console.print(made)
        for note in notes:
            console.print(note, markup=False, highlight=False)


# Shorter names for some of the reasons to wait in ladder_profile.STALLS.
WAITS = {
    "a load from memory": "a load",
    "the queue of loads and stores": "load/store queue",
    "the queue of shared memory": "shared-memory queue",
    "the instruction before": "previous instruction",
    "stores, at its end": "stores, at exit",
}
CONFLICTS = "bank conflicts (per 100 instr.)"
# The column of conflicts is left out if every step has fewer of them per 100 instructions.
CONFLICTS_FROM = 2.0


def _counters(entry: dict) -> dict[str, float | str | None]:
    """The counters of a contender, by column heading."""

    def part(name: str, of: float) -> float | None:
        value = entry.get(name)
        return None if value is None else value / of

    instructions = entry.get("instructions of warps")
    conflicts = (entry.get("bank conflicts of loads"), entry.get("bank conflicts of stores"))
    cycles, waits = entry.get("cycles waited an instruction"), entry.get("waits for")
    return {
        "kernels": entry.get("kernels"),
        "instructions (M)": part("instructions of warps", 1e6),
        "sectors a load": entry.get("sectors a load") or None,
        "sectors a store": entry.get("sectors a store") or None,
        CONFLICTS: None if not instructions or None in conflicts else 100 * sum(conflicts) / instructions,
        "warps active (%)": entry.get("warps active (%)"),
        "DRAM read (MB)": part("DRAM bytes read", 1e6),
        "DRAM written (MB)": part("DRAM bytes written", 1e6),
        "waits for (cycles)": None if not waits else f"{WAITS.get(waits, waits)} ({_count(cycles)})",
    }


def counters_of(row: dict) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Headings, and a line for every contender that was profiled; both are empty if none was."""
    entries = [(name, row["contenders"].get(name, {}).get("counters")) for name in contenders(row)]
    found = [(name, _counters(entry)) for name, entry in entries if entry]
    headings = list(found[0][1]) if found else []
    if all((entry[CONFLICTS] or 0.0) < CONFLICTS_FROM for _, entry in found):
        headings = [heading for heading in headings if heading != CONFLICTS]
    return headings, [(label_of(name), [_count(entry[heading]) for heading in headings]) for name, entry in found]


def _count(value) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:.1f}" if value < 100 and value != int(value) else f"{value:.0f}"


def show_counters(result: dict, console: Console):
    for row in result["rows"]:
        headings, lines = counters_of(row)
        if not lines:
            continue
        made = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=f"{row['op']}, {title_of(row)}: counters of the longest kernel"
        )
        made.add_column("step", no_wrap=True)
        for heading in headings:
            made.add_column(textwrap.fill(heading, 10, break_long_words=False), justify="right")
        for name, cells in lines:
            made.add_row(name, *cells)
        console.print(made)


def plot(result: dict, path: Path):
    """Plots a panel for each case: a bar of bandwidth for every step, and a line at the ceiling."""
    from benchmarks import plots
    from benchmarks.plots import pyplot

    rows = result["rows"]
    bars = sum(len(contenders(row)) + 2 for row in rows)
    figure, all_axes = pyplot.subplots(
        len(rows),
        1,
        figsize=(9, 1 + 0.26 * bars),
        squeeze=False,
        gridspec_kw={"height_ratios": [len(contenders(row)) for row in rows]},
    )
    for axes, row in zip(all_axes[:, 0], rows):
        _panel(axes, row, plots.COLOURS)
    day = f"{result['date'][:10]}, torch {result['versions']['torch']}"
    figure.suptitle(f"the ladder of {rows[0]['op']} on {result['gpu']['name']}, {day}", fontsize=12)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_overview(results: list[dict], path: Path):
    """Plots four bars for every case of every ladder, as shares of the ceiling: the first step, the fastest, production and PyTorch."""
    from benchmarks import plots
    from benchmarks.plots import pyplot, ticker

    rows = [row for result in results for row in result["rows"] if row["ceiling"]]
    height = 1.2 + 0.72 * len(rows)
    figure, axes = pyplot.subplots(figsize=(9, height))
    colours = {
        "first step": plots.COLOURS[0],
        "fastest step": plots.COLOURS[4],
        "production": plots.COLOURS[2],
        "PyTorch": GREY,
    }
    for place, row in enumerate(rows):
        shown = (contenders(row)[0], fastest_step(row), PRODUCTION, PYTORCH)
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
    axes.set_yticks(range(len(rows)), [f"{row['op']}\n{title_of(row)}" for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(
        0, 1.12 * max([1.0, *(report.share_of_ceiling(row, name) or 0.0 for row in rows for name in contenders(row))])
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


def _panel(axes, row: dict, colours: list[str]):
    names = contenders(row)
    gbps = {name: row["contenders"].get(name, {}).get("gbps") for name in names}
    ceiling = row["ceiling"]["gbps"] if row["ceiling"] else None
    limit = 1.12 * max([value for value in gbps.values() if value] + [ceiling or 1.0])
    for y, name in enumerate(names):
        if gbps[name] is None:
            axes.text(0, y, f" {row['contenders'].get(name, {}).get('status', 'not run')}", va="center", fontsize=8)
            continue
        colour = {PRODUCTION: colours[2], PYTORCH: GREY}.get(name, colours[0])
        axes.barh(y, gbps[name], height=0.8, color=colour)
        share = report.share_of_ceiling(row, name)
        text = f" {report.median_us(row, name):.1f} us" + (f", {share:.0%}" if share is not None else "")
        inside = gbps[name] > 0.5 * limit
        axes.text(0 if inside else gbps[name], y, text, va="center", fontsize=8, color="white" if inside else "black")
    if ceiling:
        axes.axvline(ceiling, color="black", linewidth=1.5)
    axes.set_yticks(range(len(names)), [label_of(name) for name in names], fontsize=8.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, limit)
    title = f"{title_of(row)}: GB/s"
    if ceiling:
        title += f"; line: ceiling, {ceiling_of(row)}"
    axes.set_title(title, fontsize=10, loc="left")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.88", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
