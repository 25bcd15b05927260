"""Results as JSON, and tables made from that JSON."""

import datetime
import json
import os
import statistics
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.harness import machine

SCHEMA = 1
# A speedup over a peer from here on does not count as slower, because timings repeat to about one per cent.
GOOD = 0.99
# RATIO is the y axis of a sample. A table lists at most LISTED of the sample's cases.
RATIO = "times ATen's speed"
LISTED = 25
EXACT = ("args", "point", "settings", "library")


def document(room: str, gpu: dict, versions: dict, source: dict, library: dict | None, settings: dict) -> dict:
    """A result without rows, ceilings and call times, which are appended when they have been measured."""
    return {
        "schema": SCHEMA,
        "room": room,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "complete": False,
        "gpu": gpu,
        "versions": versions,
        "source": source,
        "library": library,
        "settings": settings,
        "ceilings": [],
        "rows": [],
        "left_out": [],
        "call_times": [],
    }


def rounded(value, digits: int = 4):
    """Measurements have four digits; arguments and settings stay as they are."""
    if isinstance(value, dict):
        return {key: part if key in EXACT else rounded(part, digits) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part, digits) for part in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def text(result: dict) -> str:
    """JSON with a line for each row."""

    def of(value) -> str:
        if not isinstance(value, list) or not value:
            return json.dumps(value)
        return "[\n" + ",\n".join(f"  {json.dumps(part)}" for part in value) + "\n ]"

    return "{\n" + ",\n".join(f" {json.dumps(key)}: {of(value)}" for key, value in rounded(result).items()) + "\n}\n"


def save(path: Path, result: dict):
    """Replaces the file atomically, so that an interrupted run leaves the last complete state behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".tmp")
    scratch.write_text(text(result))
    os.replace(scratch, path)


def load(path: Path) -> dict:
    """Reads a result. Raises ValueError with a sentence if the file is not one."""
    try:
        result = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        raise ValueError(f"{path} is not a benchmark result of schema {SCHEMA}")
    return result


def newest(pattern: str) -> Path | None:
    """The newest committed result among these files of all GPUs."""
    return max(machine.RESULTS.glob(f"*/{pattern}"), key=lambda path: load(path)["date"], default=None)


def resumed(path: Path, fresh: dict) -> dict:
    """The result at the path, if the same GPU, versions, commit and settings made it; otherwise the fresh one.

    Nothing is resumed at an unknown commit, or with uncommitted changes.
    """
    source = fresh["source"]
    try:
        found = load(path)
    except ValueError:
        return fresh
    same = all(found[key] == fresh[key] for key in ("room", "versions", "source", "settings"))
    same &= found["gpu"]["name"] == fresh["gpu"]["name"]
    return found if same and source["commit"] and not source["dirty"] else fresh


def has(result: dict, case) -> bool:
    """Whether a case is measured, or left out."""
    rows = ((row["op"], row["case"], row["dtype"]) for row in result["rows"])
    return (case.op, case.name, case.dtype) in rows or any(
        text.startswith(f"{case.title}: ") for text in result["left_out"]
    )


def contender_names(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["contenders"]))


def median_us(row: dict, name: str) -> float | None:
    entry = row["contenders"].get(name, {})
    return entry["us"]["median"] if entry.get("status") == "ok" else None


def share_of_ceiling(row: dict, name: str = "gpuopt") -> float | None:
    entry = row["contenders"].get(name, {})
    return entry["gbps"] / row["ceiling"]["gbps"] if "gbps" in entry and row["ceiling"] else None


def is_ours(name: str) -> bool:
    """Whether a contender is gpuopt or a variant such as "gpuopt deterministic"."""
    return name.split()[0] == "gpuopt"


def best_peer(row: dict) -> tuple[str, float] | None:
    """The fastest contender that is not gpuopt, and its time in microseconds."""
    times = {name: median_us(row, name) for name in row["contenders"] if not is_ours(name)}
    times = {name: us for name, us in times.items() if us is not None}
    return min(times.items(), key=lambda item: item[1]) if times else None


def ratios(rows: list[dict], peer: str) -> list[tuple[float, dict]]:
    """The speedups over a peer (its time divided by gpuopt's) with their rows, the smallest first."""
    times = [(median_us(row, peer), median_us(row, "gpuopt"), row) for row in rows]
    return sorted(((theirs / ours, row) for theirs, ours, row in times if theirs and ours), key=lambda item: item[0])


def is_sweep(rows: list[dict]) -> bool:
    """Whether these rows are points of curves."""
    return all(row.get("point") for row in rows)


def is_sample(rows: list[dict]) -> bool:
    """Whether these rows are a sample of random problems."""
    return is_sweep(rows) and rows[0]["point"].get("unit") == RATIO


def failures(result: dict) -> list[str]:
    """The cases in which a variant of gpuopt failed or computed wrong values."""
    return [
        f"{row['op']} {row['case']} {row['dtype']}: {'' if name == 'gpuopt' else f'{name}: '}{entry['reason']}"
        for row in result["rows"]
        for name, entry in row["contenders"].items()
        if is_ours(name) and entry["status"] != "ok"
    ]


def cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def duration(time: float | None) -> str:
    """Three or four digits, as many as results have."""
    return cell(time, ".0f" if not time or time >= 1000 else ".1f" if time >= 10 else ".2f")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}" if count < 1e7 else f"{count / 1e6:.0f}"


def _error(entry: dict) -> str:
    error = entry.get("error")
    return "-" if error is None else "0" if error == 0 else f"{error:.1e}"


def _time(row: dict, name: str, notes: dict[str, int]) -> str:
    """A contender's time, or the reason for none with the number of a footnote."""
    entry = row["contenders"].get(name)
    if entry is None:
        return "-"
    if entry["status"] == "ok":
        spread = (entry["us"]["q3"] - entry["us"]["q1"]) / entry["us"]["median"]
        doubtful = spread > 0.05 or "host-bound" in entry["us"]["method"]
        return duration(entry["us"]["median"]) + ("~" if doubtful else "")
    note = f"{name} {entry['status']}: {entry['reason']}"
    style = "dim" if entry["status"] == "missing" else "red"
    return f"[{style}]{entry['status']} {notes.setdefault(note, len(notes) + 1)}[/{style}]"


def _best(row: dict) -> str:
    """The speedup over the fastest peer."""
    best = best_peer(row)
    for ratio, _ in ratios([row], best[0]) if best else []:
        return f"[{'green' if ratio >= GOOD else 'red'}]{ratio:.2f} {best[0]}[/]"
    return "-"


def device_table(result: dict, op: str) -> tuple[Table, list[str]]:
    """A table of one operator's cases, and the notes below it."""
    rows = [row for row in result["rows"] if row["op"] == op]
    notes: dict[str, int] = {}
    make = _sample_table if is_sample(rows) else _sweep_table if is_sweep(rows) else _case_table
    table = make(rows, notes)
    table.title = f"{op}: device time in us, {result['gpu']['name']}"
    lines = [f"{number}: {note}" for note, number in notes.items()]
    beside = ratios(rows, "ATen")
    if beside:
        worst, row = beside[0]
        slower = sum(ratio < GOOD for ratio, _ in beside)
        lines.append(
            f"{op} beside ATen: worst {worst:.2f} ({row['case']} {row['dtype']}), "
            f"below {GOOD} in {slower} of {len(beside)} cases"
        )
    if is_sample(rows):
        lines += _of_curves(rows)
    return table, lines


def _case_table(rows: list[dict], notes: dict[str, int]) -> Table:
    peers = [name for name in contender_names(rows) if name != "gpuopt"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("case", no_wrap=True)
    table.add_column("dtype")
    for heading in ("MB", "gpuopt", "GB/s", "of ceiling", "vs best", *peers, "error", "ATen's"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        ours = row["contenders"]["gpuopt"]
        timed = ours["status"] == "ok"
        table.add_row(
            escape(row["case"]),
            row["dtype"],
            _megabytes(row["read_bytes"] + row["written_bytes"]),
            _time(row, "gpuopt", notes),
            f"{ours['gbps']:.0f}" if timed else "-",
            f"{ours['gbps'] / row['ceiling']['gbps']:.1%}" if timed and row["ceiling"] else "-",
            _best(row),
            *(_time(row, name, notes) for name in peers),
            _error(ours),
            _error(row["contenders"].get("ATen", {})),
        )
    return table


def _sample_table(rows: list[dict], notes: dict[str, int]) -> Table:
    """A table of the cases without a time of gpuopt's, and the cases with the smallest speedups over ATen."""
    untimed = [row for row in rows if median_us(row, "gpuopt") is None]
    return _case_table(untimed + [row for _, row in ratios(rows, "ATen")[:LISTED]], notes)


def _of_curves(rows: list[dict]) -> list[str]:
    """The smallest and the median speedup over ATen, for each curve of a sample."""
    lines = []
    for curve in sorted({row["point"]["curve"] for row in rows}):
        found = [ratio for ratio, _ in ratios([row for row in rows if row["point"]["curve"] == curve], "ATen")]
        if found:
            lines.append(
                f"{curve}: {len(found)} cases, {found[0]:.2f} to {found[-1]:.2f} {RATIO}, half of them above "
                f"{statistics.median(found):.2f}"
            )
    return lines


def _sweep_table(rows: list[dict], notes: dict[str, int]) -> Table:
    """A table with a line for each x: on each curve the times of gpuopt, and the speedup of the first one over the best peer."""
    places = {(row["point"]["x"], row["point"]["curve"]): row for row in rows}
    curves = list(dict.fromkeys(row["point"]["curve"] for row in rows))
    ours = [name for name in contender_names(rows) if is_ours(name)]
    variants = [name.removeprefix("gpuopt ") for name in ours[1:]]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (rows[0]["point"]["axis"], *(name for curve in curves for name in (curve, *variants, "vs best"))):
        table.add_column(heading, justify="right", no_wrap=True)
    for x in sorted({row["point"]["x"] for row in rows}):
        cells, label = [], str(x)
        for curve in curves:
            row = places.get((x, curve))
            cells += [*(_time(row, name, notes) for name in ours), _best(row)] if row else ["-"] * (len(ours) + 1)
            label = row["point"].get("label") or label if row else label
        table.add_row(label, *cells)
    return table


LEGEND = (
    "vs best: the fastest peer's time divided by gpuopt's (above 1, gpuopt is faster). of ceiling: share of the bandwidth "
    "measured in this run for the same traffic. error: relative to float64. ~: the quartiles are over 5% apart, or the host "
    "did not keep up."
)


def ceiling_table(result: dict) -> Table:
    table = Table(title="ceilings measured in this run", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("size", "traffic"):
        table.add_column(heading)
    table.add_column("GB/s", justify="right")
    table.add_column("fastest of its kind")
    for entry in result["ceilings"]:
        table.add_row(entry["size"], entry["pattern"], f"{entry['gbps']:.0f}", entry["by"])
    return table


def call_table(result: dict) -> Table:
    """A table of call times: the time that a call takes on the host, beside PyTorch's."""
    names = list(dict.fromkeys(name for row in result["call_times"] for name in row["contenders"]))
    table = Table(title="call time in us", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("op")
    table.add_column("call, small f32")
    for heading in (*names, "gpuopt - ATen"):
        table.add_column(heading, justify="right")
    for row in result["call_times"]:
        times = row["contenders"]
        cells = [
            f"{times[name]['median']:.2f} ± {times[name]['iqr'] / 2:.2f}" if name in times else "-" for name in names
        ]
        extra = f"{times['gpuopt']['median'] - times['ATen']['median']:+.2f}" if "ATen" in times else "-"
        table.add_row(row["op"], row["name"], *cells, extra)
    return table


def show(result: dict, console: Console):
    """Prints all tables of a room."""
    if result["ceilings"]:
        console.print(ceiling_table(result))
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        table, notes = device_table(result, op)
        console.print(table)
        for note in notes:
            console.print(note, markup=False, highlight=False)
    for case in result["left_out"]:
        console.print(f"left out: {case}", style="red", highlight=False, markup=False)
    if result["rows"]:
        console.print(LEGEND, highlight=False)
    if result["call_times"]:
        console.print(call_table(result))
