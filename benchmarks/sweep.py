"""Measures random problems of every operator beside ATen and Inductor.

    python -m benchmarks sweep                          every family
    python -m benchmarks sweep mul "conv1d backward"    some families
    python -m benchmarks sweep --count 200 --seed 1     more problems, or others
    python -m benchmarks sweep --write                  docs/random.md and the plot, from the newest committed results
    python -m benchmarks sweep --write --old            the same from results that are older than their kernels, which it then says

Uses every GPU there is, one process each, and writes benchmarks/results/<gpu>/sweep.json. Times are device times as in
:mod:`benchmarks.timer`; errors are checked against float64 as in :mod:`benchmarks.room`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks import age, ceilings, machine, pages, problems, report
from benchmarks.peers import Setting
from benchmarks.room import rooms, run_case
from benchmarks.timer import DeviceTimer

RESULTS = machine.REPOSITORY / "benchmarks" / "results"
PAGE = machine.REPOSITORY / "docs" / "random.md"
LARGE = 64 << 20  # bytes; from here on the share of the ceiling tells something
SLOWER = 0.95

# ---------------------------------------------------------------- measuring


def chosen(arguments: argparse.Namespace) -> list[tuple[str, object]]:
    """Families take turns, so that a run that is stopped has some of each."""
    lists = [problems.problems(family, arguments.count, arguments.seed) for family in arguments.families]
    return [problem for of_rank in zip(*lists) for problem in of_rank]


def measure(arguments: argparse.Namespace) -> None:
    part, parts = map(int, arguments.part.split("/"))
    timer = DeviceTimer(budget_s=0.015)
    setting = Setting(timer, "cuda", tune=False)
    settings = {"count": arguments.count, "seed": arguments.seed, "budget_us": timer.budget_us}
    result = report.document(
        "sweep", machine.gpu(), machine.versions(), machine.commit(arguments.commit), machine.library(), settings
    )
    path = arguments.out.with_suffix(f".{part}.json")
    if arguments.resume:
        result = report.resumed(path, result)
    result["ceilings"] = ceilings.measure(timer, list(ceilings.SIZES), "cuda", True, lambda text: None)
    calls = {name: room.calls() for name, room in rooms().items()}
    for room, case in chosen(arguments)[part::parts]:
        if report.has(result, case):
            continue
        try:
            row = run_case(case, calls[room][case.call], (), setting, result["ceilings"])
        except torch.OutOfMemoryError:
            result["left_out"].append(f"{case.title}: this GPU has too little memory")
            continue
        finally:
            timer.release_memory()
        result["rows"].append(row)
        report.save(path, result)
    result["complete"] = True
    report.save(path, result)


def measure_all(arguments: argparse.Namespace) -> None:
    count = torch.cuda.device_count()
    if not count:
        sys.exit("benchmarks.sweep: this machine has no CUDA device that PyTorch can use; nothing was measured.")
    arguments.out = arguments.out or RESULTS / machine.slug(machine.gpu()["name"]) / "sweep.json"
    command = [sys.executable, "-m", "benchmarks.sweep", *arguments.families, "--out", str(arguments.out)]
    command += ["--count", str(arguments.count), "--seed", str(arguments.seed)]
    command += ["--commit", arguments.commit] if arguments.commit else []
    command += ["--resume"] if arguments.resume else []
    runs = [
        subprocess.Popen([*command, "--part", f"{i}/{count}"], env={**os.environ, "CUDA_VISIBLE_DEVICES": str(i)})
        for i in range(count)
    ]
    codes = [run.wait() for run in runs]
    paths = [arguments.out.with_suffix(f".{i}.json") for i in range(count)]
    parts = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not parts:
        sys.exit("benchmarks.sweep: nothing was measured")
    merged = parts[0]
    for part in parts[1:]:
        merged["rows"] += part["rows"]
        merged["left_out"] += part["left_out"]
        merged["complete"] &= part["complete"]
    merged["complete"] &= not any(codes)
    report.save(arguments.out, merged)
    if merged["complete"]:
        for path in paths:
            path.unlink()
    print(table(merged))
    if any(codes):
        sys.exit("benchmarks.sweep: a process failed; what it had measured is kept")


# ---------------------------------------------------------------- tables


def us_of(row: dict, name: str) -> float | None:
    entry = row["contenders"].get(name)
    return entry["us"]["median"] if entry and entry["status"] == "ok" else None


def ratio(row: dict, *names: str) -> float | None:
    """The time of the first of these peers that ran, over gpuopt's."""
    ours = us_of(row, "gpuopt")
    theirs = next((us for name in names if (us := us_of(row, name)) is not None), None)
    return None if ours is None or theirs is None else theirs / ours


def aten_ratio(row: dict) -> float | None:
    """Selective scans, which ATen has not, are compared with mamba_ssm."""
    return ratio(row, "ATen deterministic", "ATen", "mamba_ssm")


def share(row: dict) -> float | None:
    entry = row["contenders"]["gpuopt"]
    return entry["gbps"] / row["ceiling"]["gbps"] if entry["status"] == "ok" and row["ceiling"] else None


def bytes_of(row: dict) -> int:
    return row["read_bytes"] + row["written_bytes"]


HEADER = (
    "operator", "problems", "x ATen: median", "slower", "worst", "x Inductor: median", "worst", "ceiling: median", "worst"
)  # fmt: skip
WITHOUT_CEILING = len(HEADER) - 2


def families_of(result: dict) -> list[str]:
    return [name for name in problems.FAMILIES if any(row["op"] == name for row in result["rows"])]


def rows_of(result: dict, family: str) -> list[dict]:
    return [row for row in result["rows"] if row["op"] == family]


def aten_ratios(rows: list[dict]) -> list[float]:
    return [r for row in rows if (r := aten_ratio(row)) is not None]


def slower(ratios: list[float]) -> float:
    """The share of ratios that count as slower."""
    return sum(r < SLOWER for r in ratios) / len(ratios)


def table(result: dict, families: list[str] | None = None, columns: int = len(HEADER)) -> str:
    lines = [HEADER[:columns], ("---", *["---:"] * (columns - 1))]
    for family in families_of(result) if families is None else families:
        rows = rows_of(result, family)
        aten = aten_ratios(rows)
        inductor = [r for row in rows if (r := ratio(row, "Inductor")) is not None]
        shares = [s for row in rows if bytes_of(row) >= LARGE and (s := share(row)) is not None]

        def cells(found: list[float], form: str) -> list[str]:
            return [f"{statistics.median(found):{form}}", f"{min(found):{form}}"] if found else ["-", "-"]

        name = f"{family}, x mamba_ssm" if family.startswith("selective_scan") else family
        median, least = cells(aten, ".2f")
        part = f"{slower(aten):.0%}" if aten else "-"
        figures = (name, str(len(rows)), median, part, least, *cells(inductor, ".2f"), *cells(shares, ".0%"))
        lines.append(figures[:columns])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def typical(result: dict, slow: int = 2, even: int = 4) -> list[str]:
    """Families for a short table, by their median beside ATen: the ones with the most slower problems, and of the others the ones at
    ranks evenly apart, from the lowest median to the highest."""
    ratios = {family: found for family in families_of(result) if (found := aten_ratios(rows_of(result, family)))}
    medians = {family: statistics.median(found) for family, found in ratios.items()}
    by_losses = sorted(ratios, key=lambda family: (-slower(ratios[family]), medians[family]))
    others = sorted(by_losses[slow:], key=medians.get)
    ranks = dict.fromkeys(round(i * (len(others) - 1) / (even - 1)) for i in range(even if others else 0))
    return sorted(by_losses[:slow] + [others[rank] for rank in ranks], key=medians.get)


def worst(result: dict, count: int = 5) -> str:
    """The problems that are slowest beside ATen, of each operator."""
    lines = [
        "| operator | problem | dtype | gpuopt us | ATen us | speed-up | share of the ceiling |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for family in families_of(result):
        rows = [row for row in rows_of(result, family) if aten_ratio(row) is not None]
        for row in sorted(rows, key=aten_ratio)[:count]:
            if aten_ratio(row) >= SLOWER:
                break
            ours = us_of(row, "gpuopt")
            lines.append(
                f"| {family} | {row['case']} | {row['dtype']} | {ours:.1f} | {ours * aten_ratio(row):.1f}"
                f" | {aten_ratio(row):.2f} | {pages.cell(share(row), '.0%')} |"
            )
    return "\n".join(lines)


def conditions(result: dict) -> str:
    """Rows that were added later have the commit at which they were measured."""
    gpu, versions = result["gpu"], result["versions"]
    own = result["source"]["commit"] or "unknown"
    commits = dict.fromkeys([own, *(row.get("commit", own) for row in result["rows"])])
    return (
        f"{len(result['rows'])} problems (seed {result['settings']['seed']}), {gpu['name']}, torch {versions['torch']}, "
        f"CUDA {versions['cuda']}, {result['date'][:10]}, commits {', '.join(commit[:7] for commit in commits)}."
        f"{result.get('old', '')}"
    )


# ---------------------------------------------------------------- plot


def plot(result: dict, path: Path) -> None:
    """A panel for each operator, a point for each problem: traffic against the share of the ceiling, coloured by speed-up."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import colors, pyplot

    families = families_of(result)
    columns = 5
    figure, axes = pyplot.subplots(
        math.ceil(len(families) / columns), columns, figsize=(13, 7.2), sharex=True, sharey=True, layout="constrained"
    )
    norm = colors.TwoSlopeNorm(vmin=-2, vcenter=0, vmax=3)
    for axis, family in zip(axes.flat, families):
        rows = rows_of(result, family)
        points = [(bytes_of(r), share(r), aten_ratio(r)) for r in rows if share(r) is not None and aten_ratio(r)]
        drawn = axis.scatter(
            [b / 1e6 for b, _, _ in points],
            [min(1.15, s) for _, s, _ in points],
            c=[math.log2(r) for _, _, r in points],
            cmap="RdBu",
            norm=norm,
            s=16,
            edgecolors="0.3",
            linewidths=0.3,
        )
        axis.axhline(1, color="black", linewidth=0.8)
        beside = "mamba_ssm" if family.startswith("selective_scan") else "ATen"
        median = f"median {statistics.median(r for _, _, r in points):.1f} x {beside}" if points else f"no {beside}"
        axis.set_title(f"{family}\n{median}", fontsize=9)
        axis.set_xscale("log")
        axis.set_ylim(0, 1.2)
    for axis in axes.flat[len(families) :]:
        axis.axis("off")
    figure.supxlabel("bytes that the problem must move (MB)")
    figure.supylabel("share of the measured bandwidth ceiling")
    bar = figure.colorbar(drawn, ax=axes, ticks=[-2, -1, 0, 1, 2, 3], shrink=0.6)
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label("speed-up")
    figure.suptitle(f"Random problems on {result['gpu']['name']}, torch {result['versions']['torch']}")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


# ---------------------------------------------------------------- pages


def published() -> Path:
    """The newest committed result."""
    return max(RESULTS.glob("*/sweep.json"), key=lambda path: report.load(path)["date"])


def page(old: str, path: Path, told: bool | None = None) -> str:
    result = report.load(path)
    age.check({path: result}, told)
    plotted = f"../{path.with_suffix('.png').relative_to(machine.REPOSITORY)}"
    parts = {
        "conditions": conditions(result) + result.get("old", ""),
        "table": table(result),
        "plot": f"![random problems: traffic against the share of the ceiling]({plotted})",
        "worst": worst(result),
    }
    return pages.filled(PAGE.name, parts, old)


def write(told: bool) -> None:
    path = published()
    PAGE.write_text(page(PAGE.read_text(), path, told))
    plot(report.load(path), path.with_suffix(".png"))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", help=f"of {', '.join(problems.FAMILIES)}")
    parser.add_argument("--count", type=int, default=60, help="problems of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="the JSON to write")
    parser.add_argument("--commit", help="the commit that is measured, where there is no git")
    parser.add_argument("--write", action="store_true", help="write the pages and the plot from the committed results")
    parser.add_argument("--old", action="store_true", help="write them from old results, too")
    parser.add_argument(
        "--resume", action="store_true", help="keep the rows of a run of the same commit that was stopped"
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    arguments.families = arguments.families or list(problems.FAMILIES)
    if unknown := [name for name in arguments.families if name not in problems.FAMILIES]:
        parser.error(f"no family is called {unknown[0]!r}; there are: {', '.join(problems.FAMILIES)}")
    if arguments.write:
        try:
            write(arguments.old)
        except age.Old as error:
            sys.exit(f"benchmarks.sweep: {error}")
    elif arguments.part:
        measure(arguments)
    else:
        measure_all(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
