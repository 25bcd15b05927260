"""Plots of results, made from their JSON alone. matplotlib is imported only to draw."""

from pathlib import Path

from benchmarks.harness import report
from benchmarks.ladder import in_flight
from benchmarks.ladder import report as ladder_report

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


def draw(result: dict, folder: Path, stem: str) -> list[Path]:
    """Writes the PNGs of a result and returns their paths. They begin with ``stem``, the name of the result."""
    import matplotlib

    matplotlib.use("Agg")
    from benchmarks.publish.plots import ladders, models, problems, rooms

    folder.mkdir(parents=True, exist_ok=True)
    plots = {"models": models.plot, "sweep": problems.plot, in_flight.OP: ladders.plot_in_flight}
    plot = ladders.plot if ladder_report.is_ladder(result) else plots.get(result["room"])
    if plot is None:
        return rooms.plot(result, folder, stem)
    path = folder / f"{stem}.png"
    plot(result, path)
    return [path]
