"""Results as JSON, and tables made from that JSON."""

import datetime
import json
import os
import statistics
from pathlib import Path

from benchmarks.harness import machine

SCHEMA = 1
# A speedup over a peer from here on does not count as slower, because timings repeat to about one per cent.
GOOD = 0.99
# RATIO is the y axis of a sample. A table lists at most LISTED of the sample's cases.
RATIO = "times ATen's speed"
LISTED = 10
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


def fresh(room: str, settings: dict, commit: str | None, **packages) -> dict:
    """The result of a run that begins on this machine. ``packages`` are versions of other packages."""
    versions = machine.versions() | packages
    return document(room, machine.gpu(), versions, machine.commit(commit), machine.library(), settings)


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


def markdown(words: list[str], numbers: list[str], lines: list[list[str]]) -> str:
    rule = "|---" * len(words) + "|---:" * len(numbers) + "|"
    return "\n".join([f"| {' | '.join(words + numbers)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def cases(rows: list[dict]) -> list[str]:
    names = contender_names(rows)
    variants = [name for name in names if is_ours(name) and name != "gpuopt"]
    peers = [name for name in names if not is_ours(name) and ratios(rows, name)]
    numbers = ["us", "GB/s", "share of ceiling", *(f"{name.removeprefix('gpuopt ')} (us)" for name in variants)]
    numbers += [f"speedup over {peer}" for peer in peers]
    lines = []
    for row in rows:
        gbps = row["contenders"]["gpuopt"].get("gbps")
        line = [row["case"], row["dtype"], us(row, "gpuopt"), cell(gbps, ".0f"), share(row)]
        lines.append(line + [us(row, name) for name in variants] + [speedup_over(row, peer) for peer in peers])
    return [markdown(["case", "dtype"], numbers, lines)] if rows else []


def sample(rows: list[dict]) -> list[str]:
    """A summary of random problems, and a table of the slowest ones beside ATen."""
    lines = []
    for curve in sorted({row["point"]["curve"] for row in rows}):
        beside = ratios([row for row in rows if row["point"]["curve"] == curve], "ATen")
        found = [ratio for ratio, _ in beside]
        if found:
            figures = (speedup(figure) for figure in (found[0], statistics.median(found), found[-1]))
            lines.append([curve, str(len(found)), *figures, str(sum(ratio < GOOD for ratio in found))])
    numbers = ["count", "speedup over ATen: worst", "median", "best", f"count below {GOOD}"]
    slowest = [
        [row["case"], row["dtype"], us(row, "gpuopt"), us(row, "ATen"), speedup(ratio)]
        for ratio, row in ratios(rows, "ATen")[:LISTED]
    ]
    return [
        markdown(["random problems"], numbers, lines),
        f"The {len(slowest)} problems with the smallest speedup over ATen:",
        markdown(["problem", "dtype"], ["us", "ATen (us)", "speedup over ATen"], slowest),
    ]


def us(row: dict, name: str) -> str:
    return duration(median_us(row, name))


def share(row: dict) -> str:
    return cell(share_of_ceiling(row), ".0%")


def speedup(ratio: float) -> str:
    return format(ratio, ".2f" if ratio < 100 else ".0f")


def speedup_over(row: dict, peer: str) -> str:
    """The peer's time divided by gpuopt's."""
    return next((speedup(ratio) for ratio, _ in ratios([row], peer)), "-")


def show(result: dict) -> None:
    """Prints all tables of a room, and why a contender has no time."""
    lines = [[entry["size"], entry["pattern"], f"{entry['gbps']:.0f}", entry["by"]] for entry in result["ceilings"]]
    print(markdown(["size", "traffic"], ["GB/s", "fastest of its kind"], lines))
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["op"] == op]
        print(f"\n{op} on {result['gpu']['name']}\n", *(sample if is_sample(rows) else cases)(rows), sep="\n")
        entries = [(row, name, entry) for row in rows for name, entry in row["contenders"].items()]
        notes = [
            f"{name} {entry['status']}: {entry['reason']}" for _, name, entry in entries if entry["status"] != "ok"
        ]
        print(*dict.fromkeys(notes), sep="\n")
        for ratio, row in ratios(rows, "ATen")[:1]:
            slower = sum(ratio < GOOD for ratio, _ in ratios(rows, "ATen"))
            print(
                f"worst beside ATen: {ratio:.2f} ({row['case']} {row['dtype']}); below {GOOD} in {slower} of {len(rows)}"
            )
        doubtful = [f"{row['case']} {row['dtype']} {name}" for row, name, entry in entries if is_doubtful(entry)]
        if doubtful:
            print(f"quartiles over 5 % apart, or the host did not keep up: {'; '.join(doubtful)}")
    print(*(f"left out: {case}" for case in result["left_out"]), sep="\n")
    for row in result["call_times"]:
        times = [f"{name} {m['median']:.2f} ± {m['iqr'] / 2:.2f}" for name, m in row["contenders"].items()]
        print(f"call time in us, {row['op']}, {row['name']}: {', '.join(times)}")


def brief(result: dict) -> None:
    """Prints a line for each case, beside its fastest peer, and a line for each operator and dtype."""
    found: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    print(f"{'case':60} {'us':>8} {'peer us':>8} {'ratio':>6} {'share':>5}  fastest peer")
    for row in result["rows"]:
        peer, ours = best_peer(row), median_us(row, "gpuopt")
        times = [duration(ours), duration(peer and peer[1])]
        ratio = peer[1] / ours if peer and ours else None
        title = f"{row['op']} {row['case']} {row['dtype']}"
        print(
            f"{title:60} {times[0]:>8} {times[1]:>8} {cell(ratio, '.2f'):>6} {share(row):>5}  {peer[0] if peer else '-'}"
        )
        if ratio is not None:
            found.setdefault((row["op"], row["dtype"]), []).append((ratio, share_of_ceiling(row)))
    for (op, dtype), numbers in found.items():
        ratios, shares = zip(*numbers)
        shares = [value for value in shares if value is not None]
        middle = f", share of ceiling {statistics.median(shares):.0%}" if shares else ""
        print(f"{op} {dtype}: ratio median {statistics.median(ratios):.2f}, worst {min(ratios):.2f}{middle}")
    print(*(f"left out: {case}" for case in result["left_out"]), sep="\n")
    print(*(f"failed: {failure}" for failure in failures(result)), sep="\n")


def is_doubtful(entry: dict) -> bool:
    """Whether a time varies much, or is the host's."""
    if entry["status"] != "ok":
        return False
    us = entry["us"]
    return us["q3"] - us["q1"] > 0.05 * us["median"] or "host-bound" in us["method"]
