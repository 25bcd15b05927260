"""Plots of results, made from their JSON alone. matplotlib is imported only to draw."""

import re
from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.ladder import in_flight
from benchmarks.ladder import report as ladder_report
from benchmarks.publish import published

# The colours of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
# More cases than this are drawn in two columns.
LONGEST = 36


def pictures(rows: list[dict], stem: str) -> dict[str, list[tuple[str, list[dict]]]]:
    """The files of one operator's pictures, with the titles and cases of their columns.

    Bars are one figure of all cases. If it would be too wide, it has the headline cases, and a second figure has the rest. The name of a
    file includes the result's, unless the operator's name begins with it, as in "index_add-fast".
    """
    op = rows[0]["op"]
    name = op if op == stem or op.startswith((f"{stem}-", f"{stem}_")) else f"{stem}-{op}"
    headline = _columns("headline cases", [row for row in rows if row["headline"]])
    others = _columns("other layouts, shapes and types", [row for row in rows if not row["headline"]])
    if report.is_sweep(rows) or len(headline) + len(others) <= 2:
        return {f"{name}.png": headline + others}
    return {f"{name}.png": headline, f"{name}-more.png": others}


def _columns(title: str, rows: list[dict]) -> list[tuple[str, list[dict]]]:
    """Titles and cases of the columns, which are drawn side by side. Many cases are sorted into columns by dtype."""
    if len(rows) <= LONGEST:
        return [(title, rows)] if rows else []
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    rows = sorted(rows, key=lambda row: dtypes.index(row["dtype"]))
    half = (len(rows) + 1) // 2
    return [
        (f"{title}: {', '.join(dict.fromkeys(row['dtype'] for row in part))}", part)
        for part in (rows[:half], rows[half:])
    ]


def names(result: dict, stem: str) -> list[str]:
    """The files of a result's plots. Their names begin with ``stem``, the name of the result."""
    if result["room"] in ("models", "sweep", "partitioned", in_flight.OP):
        return [f"{stem}.png"]
    if ladder_report.is_ladder(result):
        return [f"{stem}.png", f"{stem}-roofline.png"] if result.get("units") else [f"{stem}.png"]
    rows = [[row for row in result["rows"] if row["op"] == op] for op in dict.fromkeys(r["op"] for r in result["rows"])]
    return [name for of_op in rows for name in pictures(of_op, stem)]


def draw(result: dict, folder: Path, stem: str) -> list[Path]:
    """Writes the plots of a result and returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    from benchmarks.publish.plots import ladders, models, partitioned, problems, rooms

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in names(result, stem)]
    plots = {
        "models": models.plot,
        "sweep": problems.plot,
        "partitioned": partitioned.plot,
        in_flight.OP: ladders.plot_in_flight,
    }
    plot = plots.get(result["room"]) or (ladders.plot if ladder_report.is_ladder(result) else None)
    plot(result, paths[0]) if plot else rooms.plot(result, folder, stem)
    if result.get("units") and ladder_report.is_ladder(result):
        ladders.plot_roofline(result, paths[1])
    return paths


# ---------------------------------------------------------------- pages

MARK = re.compile(r"<!-- plot (?P<name>\S+) of (?P<source>\S+): (?P<about>.*?) -->")
# What the plot of all ladders is of, instead of a file.
LADDERS, OVERVIEW = "ladders", "overview.png"


def mark(name: str, source: Path, about: str) -> str:
    """A comment that stands for a plot. The site has the plot there; in the repository the page has its table."""
    return f"<!-- plot {name} of {source.relative_to(machine.RESULTS)}: {about} -->"


def results_of(source: str) -> list[dict]:
    """The results that a mark names."""
    paths = [report.newest(f"ladder/{op}.json") for op in published.LADDERS if op != in_flight.OP]
    return [report.load(path) for path in (paths if source == LADDERS else [machine.RESULTS / source]) if path]


def files_of(source: str) -> list[str]:
    """The names of the plots that marks of these results may have."""
    return [OVERVIEW] if source == LADDERS else names(results_of(source)[0], Path(source).stem)


def draw_marked(source: str, folder: Path) -> Path:
    """Draws what a mark names, into a folder below this one. Returns that folder."""
    below = (folder / source).parent
    if source == LADDERS:
        import matplotlib

        matplotlib.use("Agg")
        from benchmarks.publish.plots import ladders

        below.mkdir(parents=True, exist_ok=True)
        ladders.plot_overview(results_of(source), below / OVERVIEW)
    else:
        draw(results_of(source)[0], below, Path(source).stem)
    return below
