"""Tables of the calls that torch_ops.override takes, from the JSON of ``python -m benchmarks override``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from benchmarks.random.report import SLOWER, slower

# What the override promises for problems that have a taken call.
MOST_SLOWER, WORST = 0.01, 0.85


def ratio(row: dict) -> float | None:
    """ATen's time over the time under the override, where both were measured."""
    return row["aten_us"] / row["override_us"] if "aten_us" in row and "override_us" in row else None


def ratios(rows: Iterable[dict]) -> list[float]:
    return [r for row in rows if (r := ratio(row)) is not None]


def is_kept(rows: Iterable[dict]) -> bool:
    """Whether rows keep the promise."""
    found = ratios(rows)
    return bool(found) and slower(found) <= MOST_SLOWER and min(found) >= WORST


def _cells(rows: list[dict]) -> list[str]:
    found = ratios(rows)
    if not found:
        return ["0", "-", "-", "-"]
    return [str(len(found)), f"{statistics.median(found):.2f}", f"{slower(found):.1%}", f"{min(found):.2f}"]


def _table(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_family(result: dict) -> str:
    lines = [["family", "problems", "taken", "x ATen: median", f"slower than {SLOWER}", "worst"]]
    lines.append(["---", *["---:"] * 5])
    families = dict.fromkeys(row["op"] for row in result["rows"])
    groups = {name: [row for row in result["rows"] if row["op"] == name] for name in families}
    lines += [[name, str(len(rows)), *_cells(rows)] for name, rows in groups.items()]
    return _table([*lines, ["all", str(len(result["rows"])), *_cells(result["rows"])]])


def by_operator(result: dict) -> str:
    """A problem counts for each operator that it takes."""
    lines = [["name in `ops=`", "taken", "x ATen: median", f"slower than {SLOWER}", "worst"], ["---", *["---:"] * 4]]
    operators = sorted({name for row in result["rows"] for name in row["taken"]})
    for name in operators:
        lines.append([f"`{name}`", *_cells([row for row in result["rows"] if name in row["taken"]])])
    return _table([*lines, ["all problems", *_cells(result["rows"])]])


def losses(result: dict) -> str:
    """The problems that are slower than SLOWER, the worst first."""
    lines = [["family", "problem", "dtype", "taken", "ATen us", "override us", "x ATen"]]
    lines.append(["---"] * 4 + ["---:"] * 3)
    rows = [row for row in result["rows"] if (r := ratio(row)) is not None and r < SLOWER]
    for row in sorted(rows, key=ratio):
        times = [f"{row['aten_us']:.1f}", f"{row['override_us']:.1f}", f"{ratio(row):.2f}"]
        lines.append([row["op"], row["case"], row["dtype"], ", ".join(row["taken"]), *times])
    return _table(lines) if rows else f"No problem is slower than {SLOWER} of ATen's speed."


def failures(result: dict) -> list[str]:
    return [
        f"{row['op']} {row['case']} {row['dtype']}, taken by {', '.join(row['taken']) or 'nothing'}: {row['error']}"
        for row in result["rows"]
        if "error" in row
    ]


def tables(result: dict) -> str:
    promise = f"at most {MOST_SLOWER:.0%} slower than {SLOWER}, worst {WORST}"
    said = f"The promise ({promise}) is {'kept' if is_kept(result['rows']) else 'NOT kept'}."
    failed = "\n".join(["Not timed:", *failures(result)]) if failures(result) else ""
    return "\n\n".join(filter(None, (by_family(result), by_operator(result), losses(result), failed, said)))
