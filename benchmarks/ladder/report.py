"""Tables of ladders, made from the JSON of a result alone."""

from benchmarks.harness import report
from benchmarks.ladder.cases import STEP

PRODUCTION, PYTORCH = "gpuopt", "ATen"


def title_of(row: dict) -> str:
    return f"{row['case']} {row['dtype']}"


def label_of(name: str) -> str:
    """The name of a contender in tables and plots."""
    return {PRODUCTION: "production", PYTORCH: "PyTorch"}.get(name, name.removeprefix(STEP))


def steps_of(row: dict) -> list[str]:
    """The names of the steps in order."""
    steps = [name for name in row["contenders"] if name.startswith(STEP)]
    return sorted(steps, key=lambda name: int(name.split()[1]))


def contenders(row: dict) -> list[str]:
    """The names of the steps in order, then the production operator, then PyTorch, then other peers."""
    first = [*steps_of(row), PRODUCTION, PYTORCH]
    return [*first, *(name for name in row["contenders"] if name not in first)]


def fastest_step(row: dict) -> str | None:
    """The fastest step that has a time, without the production operator; None if no step has one."""
    timed = [name for name in steps_of(row) if report.median_us(row, name) is not None]
    return min(timed, key=lambda name: report.median_us(row, name), default=None)


def ceiling_of(row: dict) -> str:
    """The ceiling of a row that has one, in words."""
    ceiling = row["ceiling"]
    return f"{ceiling['gbps']:.0f} GB/s ({ceiling['pattern']}, {ceiling['size']})"


def speedups(row: dict) -> dict[str, tuple[float | None, float | None]]:
    """For each contender: how many times as fast it is as the first step with a time, and as the previous one. PyTorch and other peers
    have no previous step."""
    found, first, before = {}, None, None
    for name in contenders(row):
        us = report.median_us(row, name)
        if us is None:
            found[name] = (None, None)
            continue
        has_previous = before and (name.startswith(STEP) or name == PRODUCTION)
        found[name] = (first / us if first else None, before / us if has_previous else None)
        first, before = first or us, us
    return found


def unit_of(row: dict) -> str:
    """The unit of speed: of memory, or of arithmetic where that is the limit."""
    return "TFLOP/s" if row.get("flops") else "GB/s"


def whole_of(row: dict) -> str:
    """What the share of a contender is a share of."""
    return "PyTorch" if row.get("flops") else "ceiling"


def speed_of(row: dict, name: str) -> float | None:
    us = report.median_us(row, name)
    if us is None:
        return None
    return row["flops"] / us / 1e6 if row.get("flops") else row["contenders"][name]["gbps"]


def share_of(row: dict, name: str) -> float | None:
    """The share of the ceiling. Of PyTorch's speed, if arithmetic is the limit."""
    if not row.get("flops"):
        return report.share_of_ceiling(row, name)
    speed, pytorch_speed = speed_of(row, name), speed_of(row, PYTORCH)
    return speed / pytorch_speed if speed and pytorch_speed else None


def speed_text(row: dict, name: str) -> str:
    value = speed_of(row, name)
    if value is None:
        return "-"
    if row.get("flops"):
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1g}"


def percent(share: float | None) -> str:
    """Two digits of a share, or one where it is small."""
    if share is None:
        return "-"
    return "<0.1%" if share < 0.001 else f"{share:.1%}" if share < 0.01 else f"{share:.0%}"


def error_text(value: float | None) -> str:
    return "0" if value == 0.0 else report.cell(value, ".1e")


def case(row: dict) -> str:
    """The case, the bytes that it moves, and its ceiling; or its floating-point operations."""
    if row.get("flops"):
        return f"{title_of(row)}, {row['flops'] / 1e9:.0f} GFLOP:"
    text = f"{title_of(row)}, {(row['read_bytes'] + row['written_bytes']) / 1e6:.0f} MB"
    return f"{text}; ceiling {ceiling_of(row)}:" if row["ceiling"] else f"{text}:"


def table(row: dict) -> list[str]:
    """The lines of a Markdown table of one case: a line for every step that has a time."""
    gains = speedups(row)
    heading = f"| step | us | {unit_of(row)} | % of {whole_of(row)} | x first | x previous | error |"
    lines = [heading, "|---" + 6 * "|---:" + "|"]
    for name in contenders(row):
        if (us := report.median_us(row, name)) is None:
            continue
        entry = row["contenders"][name]
        cells = [label_of(name), report.duration(us), speed_text(row, name), percent(share_of(row, name))]
        cells += [*(report.cell(gain, ".2f") for gain in gains[name]), error_text(entry.get("error"))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def is_ladder(result: dict) -> bool:
    """Whether a result is of a ladder, which can have the name of a room."""
    return any(name.startswith(STEP) for row in result["rows"] for name in row["contenders"])


def show(result: dict):
    """Prints the tables, and why a step has no time."""
    for row in result["rows"]:
        print(f"\n{row['op']}, {case(row)}", *table(row), sep="\n")
        for name in contenders(row):
            entry = row["contenders"].get(name, {"status": "not run", "reason": "left out"})
            if entry["status"] != "ok":
                print(f"{label_of(name)} {entry['status']}: {entry['reason']}")


# Shorter names for some of the reasons to wait in profile.STALLS.
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


def counters_table(row: dict, meaning: str) -> list[str]:
    """The lines of a table of counters, with a link to what they mean; none if nothing was profiled."""
    headings, lines = counters_of(row)
    if not lines:
        return []
    table = ["", f"Counters of each step's longest kernel, by Nsight Compute ([what they count]({meaning})):"]
    table += ["", f"| step | {' | '.join(headings)} |", "|---" + "|---:" * len(headings) + "|"]
    return [*table, *(f"| {name} | {' | '.join(cells)} |" for name, cells in lines)]
