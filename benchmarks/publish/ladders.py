"""The pages of docs/ladder: ideas and code of steps from the sources, speeds from the committed results.

Each generated part of a page is enclosed by two comments; text outside of them is written by hand. Ideas come from the built library, so build it first after changing them.
"""

import difflib
import functools
import re
import textwrap
from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.ladder import cases as ladders
from benchmarks.ladder import in_flight
from benchmarks.ladder import report as ladder_report
from benchmarks.publish import age, plots
from benchmarks.publish.page import filled

ROOT = machine.REPOSITORY
PAGES = ROOT / "docs" / "ladder"
# Generated parts of a page that are not steps.
HEAD, TABLE = "head", "table"
PRODUCTION = "production"
LEAST_COMMON = 0.4  # as a share of the lines of two steps
COLUMNS = 132  # of text; rows of tables and code are longer


MARKED = re.compile(r"^// \[\w+\]$", re.MULTILINE)


@functools.cache
def path_of(op: str) -> Path | None:
    """The newest committed result of a ladder."""
    return report.newest(f"ladder/{op}.json")


def plot_of(op: str, about: str = "GB/s of every step") -> str:
    """The plot of the newest result."""
    return plots.mark(f"{op}.png", path_of(op), about)


def folder_of(op: str) -> Path:
    """The folder of the operator's ladder: csrc/<room>/ladder."""
    for path in sorted((ROOT / "csrc").rglob("*_op.cpp")):
        if re.search(rf'RegisterLadder \w+\(\s*[\w.]+,\s*"{op}\(', path.read_text()):
            return ROOT / "csrc" / path.relative_to(ROOT / "csrc").parts[0] / "ladder"
    raise ValueError(f"no room registers a ladder of {op}")


def room_of(op: str) -> str:
    return folder_of(op).relative_to(ROOT / "csrc").parts[0]


def sources_of(op: str) -> list[Path]:
    """The files with the kernels of a ladder, headers first. A production kernel that is a step, too, has marks."""
    found = {*folder_of(op).glob(f"{room_of(op)}_ladder*.cu*")}
    found |= {path for path in (ROOT / "csrc" / room_of(op)).rglob("*.cu*") if MARKED.search(path.read_text())}
    return sorted(found, key=lambda path: (path.suffix != ".cuh", path.name))


def code_of(op: str, step: str) -> str:
    """The code between the step's two marks. Code that steps of several files share lies in a header, between marks of its own."""
    marked = [path for path in sources_of(op) if f"// [{step}]\n" in path.read_text()]
    if not marked:
        raise ValueError(f"the ladder of {op} has no marks of {step}")
    return "\n\n".join(_between_marks(path, step) for path in marked)


def _between_marks(path: Path, name: str) -> str:
    parts = path.read_text().split(f"// [{name}]\n")
    if len(parts) != 3:
        raise ValueError(f"{path.name} has {len(parts) - 1} marks of {name}, expected 2")
    return parts[1].strip("\n")


def _head(op: str) -> str:
    paths = [folder_of(op) / f"{room_of(op)}_ladder.h", *sources_of(op)]
    return f"# The ladder of {op}\n\n" + _wrapped(
        f"Sources: {', '.join(f'[{path.name}](../../{path.relative_to(ROOT)})' for path in paths)}. "
        f'Run a step with `torch_ops.ladder.run("{op}", "<step>", ...)`. [README](README.md) explains the tables. '
        f"`python -m benchmarks pages` copies code from the sources and numbers from the committed results."
    )


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _run_of(op: str, result: dict) -> str:
    """The GPU, the versions and the file of a result."""
    gpu, torch, commit = result["gpu"]["name"], result["versions"]["torch"], result["source"]["commit"]
    file = f"[{op}.json](../../{path_of(op).relative_to(ROOT)})"
    return f"{gpu}, torch {torch}, {result['date'][:10]}, commit {commit}, {file}"


def _table(op: str, result: dict | None) -> str:
    if result is None:
        return "Not measured yet."
    lines = [
        _wrapped(f"{_run_of(op, result)}; device times, with the ceiling of the same run.") + result.get("old", ""),
        "",
        plot_of(op),
    ]
    if result.get("units"):
        lines += [
            "",
            plots.mark(f"{op}-roofline.png", path_of(op), "the roofline of all steps"),
            "",
            *_units(result["units"]),
        ]
    for row in result["rows"]:
        lines += ["", ladder_report.case(row), "", *ladder_report.table(row)]
        lines += ladder_report.counters_table(row, "README.md#counters")
    return "\n".join(lines)


def _units(units: list[dict]) -> list[str]:
    """The table of the rates of arithmetic units."""
    return [
        "| unit | TFLOP/s, from registers or shared memory | clock of an SM (GHz) |",
        "|---|---:|---:|",
        *(f"| {unit['unit']} | {unit['tflops']:g} | {unit['ghz']:.2f} |" for unit in units),
    ]


def _measured(number: int, name: str, result: dict) -> list[str]:
    """A line for every case that the step supports."""
    lines = []
    for row in result["rows"]:
        step = ladders.step_name(number, name)
        us = report.median_us(row, step)
        if us is None:
            continue
        first, before = ladder_report.speedups(row)[step]
        share = ladder_report.share_of(row, step)
        line = f"- {ladder_report.title_of(row)}: {report.duration(us)} us"
        whole = ladder_report.whole_of(row).replace("ceiling", "the ceiling")
        line += f", {ladder_report.percent(share)} of {whole}" if share is not None else ""
        timed = [other for other in ladder_report.contenders(row) if report.median_us(row, other) is not None]
        names = [ladder_report.label_of(other).split()[-1] for other in timed[: timed.index(step)]]
        gains = [f"{before:.2f} times as fast as {names[-1]}"] if names else []
        gains += [f"{first:.2f} times as fast as {names[0]}"] if len(names) > 1 else []
        lines.append(_wrapped("; ".join([line, " and ".join(gains)] if gains else [line]), indent="  "))
    return lines


def _differs(op: str, step, before) -> str | None:
    """The code of a step beside that of the step below it, folded up. None where they have little in common."""
    if before is None or step.name == PRODUCTION:
        return None
    old = re.sub(rf"\b{before.name}\b", step.name, code_of(op, before.name)).splitlines()
    new = code_of(op, step.name).splitlines()
    if difflib.SequenceMatcher(None, old, new, autojunk=False).ratio() < LEAST_COMMON:
        return None
    lines = list(difflib.unified_diff(old, new, lineterm="", n=len(old)))[3:]
    title = f"<summary>What differs from {before.name}</summary>"
    return "\n".join(["<details>", title, "", "```diff", *lines, "```", "", "</details>"])


def _step(op: str, step, result: dict | None, before=None) -> str:
    heading = f"## {step.number}. {step.name}\n\n"
    if step.name == PRODUCTION:
        linked = re.sub(r"csrc/\S+\.md", lambda file: f"[{file[0]}](../../{file[0]})", step.idea)
        return heading + _wrapped(f"The production operator: {linked}.")
    capital = step.idea.split()[0].isalpha()  # not f32 or 16
    text = heading + _wrapped(f"{step.idea[0].upper() if capital else step.idea[0]}{step.idea[1:]}.")
    text += f"\n\n```cuda\n{code_of(op, step.name)}\n```"
    measured = _measured(step.number, step.name, result) if result else []
    return "\n\n".join(filter(None, [text, _differs(op, step, before), "\n".join(measured)]))


def _exercise(op: str) -> str:
    """The exercise of a ladder. ``torch_ops.ladder.compare`` checks it."""
    from torch_ops.ladder.problems import PROBLEMS

    return (
        f"## Exercise\n\n{_wrapped(PROBLEMS[op].exercise)}\n\n```sh\n"
        f"python -m torch_ops.ladder start {op} > my_kernel.cu    # a file to begin with\n"
        f"python -m torch_ops.ladder compare {op} my_kernel.cu\n```\n\n"
        "The idea of each step is what to change next. [Practise](../practise.md) explains the check."
    )


def page_of(op: str, old: str | None, result: dict | None) -> str:
    """The page with new generated parts. ValueError if the old page has a part without a step, or lacks the part of a step."""
    from torch_ops import ladder

    parts = {HEAD: _head(op), TABLE: _table(op, result)}
    steps = ladder.steps(op)
    parts |= {step.name: _step(op, step, result, before) for before, step in zip([None, *steps], steps)}
    parts["exercise"] = _exercise(op)
    return filled(f"docs/ladder/{op}.md", parts, old)


def in_flight_page(old: str | None, result: dict | None) -> str:
    """The page of the lesson of latency."""
    head = (
        "# Bytes in flight\n\nSources: [in_flight.h](../../csrc/ladder/in_flight.h), [in_flight.cu](../../csrc/ladder/in_flight.cu).\n"
        "`torch.ops.gpuopt_ladder.copy_in_flight(x, access_bytes, loads, warps)` copies `x`:\n\n"
        "| argument | meaning | values |\n|---|---|---|\n"
        "| `access_bytes` | bytes of a load | 4, 8, 16 |\n"
        "| `loads` | loads of a thread before its first store | 1, 2, 4, 8 |\n"
        "| `warps` | warps on each SM | a power of two from 1 to 64 |\n\n"
    ) + _wrapped(
        "Little's law (J. D. C. Little, 1961): bytes in flight = bandwidth x latency. A memory is busy only if enough bytes are in flight. "
        "They may come from many threads, from many loads per thread, or from wide loads. That is why the ladders have steps that load 16 "
        "bytes at a time, or several values before they use the first."
    )
    code = f"```cuda\n{_between_marks(ROOT / 'csrc' / 'ladder' / 'in_flight.cu', in_flight.OP)}\n```"
    text = "Not measured yet."
    if result is not None:
        text = f"{_wrapped(in_flight.sentence(result))}\n\n{plot_of(in_flight.OP, 'GB/s by bytes in flight')}\n\n"
        text += _wrapped(f"{_run_of(in_flight.OP, result)}.") + result.get("old", "")
    return filled("docs/ladder/in_flight.md", {HEAD: head, "code": code, TABLE: text}, old)


# What the page of each ladder shows.
LESSONS = {
    "mul": "wide accesses keep more bytes in flight",
    "transpose2d": "coalescing, and bank conflicts of shared memory",
    "reduce_sum": "few instructions per value; a grid that fills the GPU once",
    "reduce_max": "when instructions are free, and how registers limit the resident blocks",
    "cumsum": "bytes moved decide: from four accesses per value to two",
    "upsample_nearest2d": "index arithmetic can cost more than memory",
    "upsample_nearest2d_backward": "a gather instead of atomic additions",
    "conv1d": "reuse of values: constant memory, shared memory, registers",
    "dot": "atomic additions to one address",
    "index_add_": "atomic additions to many addresses, and sorting instead",
    "spmm": "equal work for every thread, whatever the lengths of rows are",
    "matmul": "arithmetic as the limit: reuse in registers, tensor cores, copies that nobody waits for",
    "triangle_count": "from searches in memory to lookups in shared memory, for a warp at each edge",
    "layer_norm": "a row in registers: one read, and two exact passes that cost no traffic",
    "layer_norm_backward": "sums over columns, while rows are read once",
}


def _lessons(results: dict[str, dict | None]) -> list[str]:
    """A row for every ladder: its lesson, and its first case from the first step to the production operator."""
    lines = [
        "| ladder | lesson | case | first step (us) | fastest step (us) | production (us) | PyTorch (us) |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for op in [*LESSONS, *(op for op in results if op not in LESSONS)]:
        if op not in results:
            continue
        cells = [f"[{op}]({op}.md)", LESSONS.get(op, "-")]
        if result := results[op]:
            row = result["rows"][0]
            first, fastest = _ends(row)
            ends = (report.median_us(row, name) for name in (ladder_report.PRODUCTION, ladder_report.PYTORCH))
            cells += [ladder_report.title_of(row), first, fastest, *map(report.duration, ends)]
        else:
            cells += ["not measured yet", "-", "-", "-", "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ends(row: dict) -> tuple[str, str]:
    """The time of the first step, and of the fastest one with its name."""
    steps = ladder_report.steps_of(row)
    first, fastest = report.median_us(row, steps[0]), ladder_report.fastest_step(row)
    name = f"{report.duration(report.median_us(row, fastest))} ({ladder_report.label_of(fastest)})" if fastest else "-"
    return report.duration(first), name


def _anchored(op: str, name: str) -> str:
    """The label of a contender. A step's links to its heading on the ladder's page."""
    label = ladder_report.label_of(name)
    if not name.startswith(ladders.STEP):
        return label
    number, step = label.split(" ", 1)
    return f"{number} [{step}]({op}.md#{number}-{step})"


def _speed_table(op: str, row: dict) -> list[str]:
    """The speed of every step in one case."""
    unit, whole = ladder_report.unit_of(row), ladder_report.whole_of(row)
    lines = [f"| step | us | {unit} | % of {whole} |", "|---|---:|---:|---:|"]
    for name in ladder_report.contenders(row):
        us = report.median_us(row, name)
        if us is not None:
            share = ladder_report.percent(ladder_report.share_of(row, name))
            lines.append(
                f"| {_anchored(op, name)} | {report.duration(us)} | {ladder_report.speed_text(row, name)} | {share} |"
            )
    return lines


def first_case(op: str, result: dict) -> str:
    """The first case of a ladder and its table, for a page in the root of the repository."""
    row = result["rows"][0]
    return "\n".join([ladder_report.case(row), "", *_speed_table(op, row)]).replace(
        f"]({op}.md", f"](docs/ladder/{op}.md"
    )


def index_of(results: dict[str, dict | None], old: str) -> str:
    """The front page, with a plot of the first ladder and a table of all."""
    parts = {
        "plot": plot_of("reduce_sum", "GB/s of every step of reduce_sum"),
        "ladders": "\n".join(_lessons(results)) + "".join(r.get("old", "") for r in results.values() if r),
        "overview": plots.mark(plots.OVERVIEW, machine.RESULTS / plots.LADDERS, "% of the ceiling of every case"),
    }
    return filled("docs/ladder/README.md", parts, old)


def measured() -> dict[str, dict | None]:
    """The committed result of every ladder; None for one that has none."""
    from torch_ops import ladder

    paths = {op: path_of(op) for op in ladder.ops()}
    return {op: path and report.load(path) for op, path in paths.items()}


def pages(told: bool | None = None) -> dict[Path, str]:
    """The text that every page should have. ``told`` is the argument of age.check."""
    results = measured()
    lesson = path_of(in_flight.OP) and report.load(path_of(in_flight.OP))
    everything = results | {in_flight.OP: lesson}
    age.check({path_of(op): result for op, result in everything.items() if result}, told)
    index = PAGES / "README.md"
    made = {index: index_of(results, index.read_text())}
    for op, result in results.items():
        path = PAGES / f"{op}.md"
        made[path] = page_of(op, path.read_text() if path.exists() else None, result)
    path = PAGES / "in_flight.md"
    made[path] = in_flight_page(path.read_text() if path.exists() else None, lesson)
    return made
