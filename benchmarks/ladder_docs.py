"""Write docs/ladder/<op>.md: a step's idea and code out of the sources, its speed out of the committed results.

    python -m benchmarks.ladder_docs            write what is out of date
    python -m benchmarks.ladder_docs --check    only say what is, exit code 1

What is written by hand between the generated parts, each of which begins and ends with a comment, stays as it is.
"""

import functools
import re
import sys
from pathlib import Path

from benchmarks import in_flight, ladder_report, ladders, machine, report
from benchmarks.pages import cell, filled, update

ROOT = machine.REPOSITORY
PAGES = ROOT / "docs" / "ladder"
RESULTS = ROOT / "benchmarks" / "results" / "nvidia-h200" / "ladder"
OVERVIEW = RESULTS / "overview.png"
# Parts of a page that are no steps.
HEAD, TABLE = "head", "table"


@functools.cache
def folder_of(op: str) -> Path:
    """Of the sources that have registered the operator's ladder: a room, or its folder of that name."""
    for path in sorted((ROOT / "csrc").rglob("*_ladder_op.cpp")):
        if re.search(rf'steps\(\s*"{op}",', path.read_text()):
            return path.parent
    raise ValueError(f"no room registers a ladder of {op}")


def room_of(op: str) -> str:
    return folder_of(op).relative_to(ROOT / "csrc").parts[0]


def code_of(op: str, step: str) -> str:
    """What stands between the step's two marks."""
    return _between_marks(folder_of(op) / f"{room_of(op)}_ladder.cu", step)


def _between_marks(path: Path, name: str) -> str:
    parts = path.read_text().split(f"// [{name}]\n")
    if len(parts) != 3:
        raise ValueError(f"{path.name} has {len(parts) - 1} marks of {name}, expected 2")
    return parts[1].strip("\n")


def _head(op: str) -> str:
    room, folder = room_of(op), f"../../{folder_of(op).relative_to(ROOT)}"
    return (
        f"# The ladder of {op}\n\n"
        f"Sources: [{room}_ladder.h]({folder}/{room}_ladder.h), [{room}_ladder.cu]({folder}/{room}_ladder.cu). "
        f'A step is called by `torch_ops.ladder.run("{op}", "<step>", ...)`. Code here and figures are taken out of the sources and '
        f"of the committed results by `python -m benchmarks.ladder_docs`."
    )


def _error(value: float | None) -> str:
    return "0" if value == 0.0 else cell(value, ".1e")


def _table(op: str, result: dict | None) -> str:
    if result is None:
        return "Not measured yet."
    lines = [
        f"{result['gpu']['name']}, torch {result['versions']['torch']}, {result['date'][:10]}, commit {result['source']['commit']}; "
        f"device time, and the ceiling measured in the same run. Everything is in [{op}.json](../../{RESULTS.relative_to(ROOT)}/{op}.json).",
        "",
        f"![bars of every step](../../{RESULTS.relative_to(ROOT)}/{op}.png)",
    ]
    for row in result["rows"]:
        gains = ladder_report.speedups(row)
        lines += [
            "",
            _case(row),
            "",
            "| step | us | GB/s | of the ceiling | times the first | times the one before | error |",
        ]
        lines += ["|---" + 6 * "|---:" + "|"]
        for name in ladder_report.contenders(row):
            if (us := report.median_us(row, name)) is None:
                continue
            first, before = gains[name]
            share = report.share_of_ceiling(row, name)
            cells = (
                ladder_report.label_of(name), f"{us:.1f}", f"{row['contenders'][name]['gbps']:.0f}", cell(share, ".0%"),
                cell(first, ".2f"), cell(before, ".2f"), _error(row["contenders"][name].get("error")),
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        lines += _counters(row)
    return "\n".join(lines)


def _case(row: dict) -> str:
    """What the case moves, and what it is held against."""
    text = f"{ladder_report.title_of(row)}, {(row['read_bytes'] + row['written_bytes']) / 1e6:.0f} MB"
    return f"{text}; ceiling {ladder_report.ceiling_of(row)}:" if row["ceiling"] else f"{text}:"


def _counters(row: dict) -> list[str]:
    headings, lines = ladder_report.counters_of(row)
    if not lines:
        return []
    table = ["", "Counters of each step's longest kernel, by ncu ([what they count](README.md#counters)):"]
    table += ["", f"| step | {' | '.join(headings)} |", "|---" + "|---:" * len(headings) + "|"]
    return [*table, *(f"| {name} | {' | '.join(cells)} |" for name, cells in lines)]


def _measured(number: int, name: str, result: dict) -> list[str]:
    """A sentence for every case that the step takes."""
    sentences = []
    for row in result["rows"]:
        own = ladders.step_name(number, name)
        us = report.median_us(row, own)
        if us is None:
            continue
        first, before = ladder_report.speedups(row)[own]
        share = report.share_of_ceiling(row, own)
        text = f"{ladder_report.title_of(row)}: {us:.1f} us"
        text += f", {share:.0%} of the ceiling" if share is not None else ""
        text += f", {before:.2f} times as fast as the step before" if before is not None else ""
        text += f" and {first:.2f} times as fast as the first" if first is not None and first != before else ""
        sentences.append(f"- {text}")
    return sentences


def _step(op: str, step, result: dict | None) -> str:
    heading = f"## {step.number}. {step.name}\n\n"
    if step.name == "production":
        linked = re.sub(r"csrc/\S+\.md", lambda file: f"[{file[0]}](../../{file[0]})", step.idea)
        return f"{heading}{linked}."
    text = f"{heading}{step.idea[0].upper()}{step.idea[1:]}."
    text += f"\n\n```cuda\n{code_of(op, step.name)}\n```"
    measured = _measured(step.number, step.name, result) if result else []
    return "\n\n".join([text, "\n".join(measured)] if measured else [text])


def page_of(op: str, old: str | None, result: dict | None) -> str:
    """The page with its generated parts made anew. ValueError where it has a part that there is no step for, or lacks one."""
    from torch_ops import ladder

    parts = {HEAD: _head(op), TABLE: _table(op, result)}
    parts |= {step.name: _step(op, step, result) for step in ladder.steps(op)}
    return filled(f"docs/ladder/{op}.md", parts, old)


def in_flight_page(old: str | None, result: dict | None) -> str:
    """The lesson of latency."""
    head = (
        "# Bytes in flight\n\nSources: [in_flight.h](../../csrc/ladder/in_flight.h), [in_flight.cu](../../csrc/ladder/in_flight.cu). A "
        "copy is called by `torch.ops.gpuopt_ladder.copy_in_flight(x, access_bytes, loads, warps)`: so many bytes a load (4, 8 or 16), loads of a thread "
        "before its first store (1, 2, 4 or 8), and warps of a multiprocessor (a power of two up to 64).\n\n"
        "By Little's law (J. D. C. Little, 1961) what is under way is what comes per second times how long each takes. A memory that is to "
        "be busy needs enough bytes under way; whether they are many threads', many loads of each or wide ones should not matter. That is why "
        "steps of all ladders load 16 bytes at a time, or several values before the first is used."
    )
    code = f"```cuda\n{_between_marks(ROOT / 'csrc' / 'ladder' / 'in_flight.cu', in_flight.OP)}\n```"
    text = "Not measured yet."
    if result is not None:
        where = RESULTS.relative_to(ROOT)
        text = f"{in_flight.sentence(result)}\n\n![GB/s by bytes in flight](../../{where}/{in_flight.OP}.png)\n\n"
        text += f"{result['gpu']['name']}, {result['date'][:10]}; every copy is in [{in_flight.OP}.json](../../{where}/{in_flight.OP}.json)."
    return filled("docs/ladder/in_flight.md", {HEAD: head, "code": code, TABLE: text}, old)


COUNTERS = """\
## Counters

Where pages show counters, they are of the kernel that took longest of those of a step, and have the names that Nsight Compute gives them in
[ladder_profile.py](../../benchmarks/ladder_profile.py).

- **instructions**: executed, one for all lanes of a warp. A multiprocessor starts at most four of them in a cycle.
- **sectors a load, a store**: of 32 bytes, in global memory. A warp that moves neighbouring values needs 4 of them where its lanes have
  4 bytes each, and 16 where they have 16. Atomic operations without a result are neither loads nor stores.
- **bank conflicts**: additional cycles of shared memory for the words of a request that lie in one bank.
- **warps active**: of the 64 that a multiprocessor holds, on average.
- **waits for**: what warps wait for most, of the reasons that the file above asks for, and for how many cycles an instruction. Many cycles
  for a load say that little else is left to do.

In the tables of times "the one before" is the line above, as not every case is one that every step takes, and the error is the norm of the
difference from a result in float64, divided by the norm of that."""


def index_of(results: dict[str, dict | None]) -> str:
    """The page that leads to all others, with the first step, the last and PyTorch of each case."""
    lines = [
        "# The optimisation ladder",
        "",
        "Every classic version of a kernel, each a single idea away from the one before, from the first that works to the production",
        "operator. All of them run (`torch_ops.ladder.run`), are tested against float64, and are measured by `make ladder` beside PyTorch and",
        "the ceiling of the same run: the bandwidth of the fastest of several kernels that do nothing but move as many bytes, or about as many.",
        "This page is written by `python -m benchmarks.ladder_docs`.",
        "",
        "| ladder | case | ceiling (GB/s) | first step (us) | fastest step (us) | production (us) | of the ceiling | PyTorch (us) |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for op, result in results.items():
        page = f"[{op}]({op}.md)"
        if result is None:
            lines.append(f"| {page} | not measured yet | - | - | - | - | - | - |")
        for row in result["rows"] if result else []:
            ceiling = row["ceiling"]["gbps"] if row["ceiling"] else None
            cells = (
                page, ladder_report.title_of(row), cell(ceiling, ".0f"), *_ends(row),
                cell(report.median_us(row, ladder_report.PRODUCTION), ".1f"),
                cell(report.share_of_ceiling(row, ladder_report.PRODUCTION), ".0%"),
                cell(report.median_us(row, ladder_report.PYTORCH), ".1f"),
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    if any(results.values()):
        lines += ["", f"![first step, fastest step, production and PyTorch](../../{OVERVIEW.relative_to(ROOT)})"]
    lines += [
        "",
        "Why wide loads, several loads and many threads come to the same: [bytes in flight](in_flight.md).",
        "",
    ]
    return "\n".join([*lines, COUNTERS]) + "\n"


def _ends(row: dict) -> tuple[str, str]:
    """How long the first step takes, and the fastest one with its name."""
    steps = ladder_report.contenders(row)[:-2]
    first, fastest = report.median_us(row, steps[0]), ladder_report.fastest_step(row)
    name = f"{report.median_us(row, fastest):.1f} ({ladder_report.label_of(fastest)})" if fastest else "-"
    return cell(first, ".1f"), name


def measured() -> dict[str, dict | None]:
    """The committed result of every ladder."""
    from torch_ops import ladder

    paths = {op: RESULTS / f"{op}.json" for op in ladder.ops()}
    return {op: report.load(path) if path.exists() else None for op, path in paths.items()}


def pages() -> dict[Path, str]:
    """Every page as it should be."""
    results = measured()
    made = {PAGES / "README.md": index_of(results)}
    for op, result in results.items():
        path = PAGES / f"{op}.md"
        made[path] = page_of(op, path.read_text() if path.exists() else None, result)
    path, results = PAGES / "in_flight.md", RESULTS / f"{in_flight.OP}.json"
    made[path] = in_flight_page(
        path.read_text() if path.exists() else None, report.load(results) if results.exists() else None
    )
    return made


def main(argv: list[str]) -> int:
    code = update("benchmarks.ladder_docs", __doc__, argv, pages)
    results = [] if argv else [result for result in measured().values() if result]
    if results:
        ladder_report.plot_overview(results, OVERVIEW)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
