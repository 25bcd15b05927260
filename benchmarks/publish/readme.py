"""The numbers of README.md, and of the site's first page, from the newest committed results.

They come from models.json, problems.json and ladder/transpose2d.json in benchmarks/results/<gpu>/. If these are not of one GPU, torch,
day and commit, the page lists what each is of.
"""

from __future__ import annotations

import statistics
import textwrap
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import machine, report
from benchmarks.models import report as model_report
from benchmarks.publish import age, ladders, page
from benchmarks.random import report as problems

README = machine.REPOSITORY / "README.md"
SITE = machine.REPOSITORY / "docs" / "index.md"
LADDER = "transpose2d"
# The models that the page begins with: training in bf16, eagerly.
LEADING = ("gcn", "gcn-deterministic", "dlrm", "mamba2", "vit", "gpt")


class Origin(NamedTuple):
    """Where and when numbers were measured."""

    gpu: str
    torch: str
    day: str
    commit: str


def sources() -> dict[str, Path]:
    """The results that the page shows."""
    return {
        "models": report.newest("models.json"),
        "random problems": report.newest("sweep.json"),
        f"ladder of {LADDER}": ladders.path_of(LADDER),
    }


def origins(result: dict) -> list[Origin]:
    """All origins of the result's rows. A row that was measured later than the others names its commit."""
    commit = result["source"]["commit"] or "unknown"
    commits = dict.fromkeys(row.get("commit", commit)[:7] for row in result["rows"])
    return [Origin(result["gpu"]["name"], result["versions"]["torch"], result["date"][:10], c) for c in commits]


def mixture(results: dict[str, dict]) -> list[str]:
    """What each result is of, if they differ in their origins; else nothing."""
    found = {name: origins(result) for name, result in results.items()}
    if len({origin for several in found.values() for origin in several}) == 1:
        return []
    return [
        f"{name}: {several[0].gpu}, torch {several[0].torch}, {several[0].day}, "
        f"commit {', '.join(origin.commit for origin in several)}"
        for name, several in found.items()
    ]


# ---------------------------------------------------------------- parts


def wrapped(text: str) -> str:
    return textwrap.fill(text, ladders.COLUMNS, break_long_words=False, break_on_hyphens=False)


def gains(result: dict) -> str:
    """What a few models gain."""
    rows = {model_report.key(row): row for row in result["rows"]}

    def cells(row: dict) -> list[str]:
        theirs, ours, layers = (
            model_report.value(row, name, "ms")
            for name in (model_report.BASELINE, model_report.OURS, model_report.LAYERS)
        )
        of_gpu = max(model_report.ratio(row, "gpu_ms", of) or 0 for of in (model_report.OURS, model_report.LAYERS))
        return [
            row["title"],
            f"{theirs:.1f} ms",
            f"{ours:.1f} ms",
            f"{layers:.1f} ms" if layers else "",
            f"{of_gpu:.2f}",
        ]

    header = ["training step, bf16", "PyTorch", "override()", "and its drop-in", "x GPU time"]
    shown = [found for name in LEADING if (found := rows.get(("eager", name, "training", "bf16")))]
    return model_report.table(header, [cells(row) for row in shown])


def models(result: dict) -> str:
    """A few models, and the ratios of all steps."""
    rows = {model_report.key(row): row for row in result["rows"]}
    eager = [row for row in rows.values() if row["mode"] == "eager" and model_report.ratio(row, "ms")]
    worst, *_, best = sorted(eager, key=lambda row: model_report.ratio(row, "ms"))

    def median(of: list[dict]) -> float:
        return statistics.median(model_report.ratio(row, "ms") for row in of)

    def extreme(row: dict, more: str = "") -> str:
        return f"{model_report.ratio(row, 'ms'):.2f} ({row['title']}, {row['dtype']} {row['pass']}{more})"

    graphs = [row for row in eager if model_report.value(row, model_report.LAYERS, "ms")]
    others = [row for row in eager if row not in graphs]
    slower = sum(model_report.ratio(row, "ms") < min(problems.SLOWER, 1 / model_report.noise(row)) for row in eager)
    of_gpu = min(found for row in eager if (found := model_report.ratio(row, "gpu_ms")))
    medians = " and ".join(
        f"{median(of):.2f} in the median of {len(of)} steps of {name}"
        for name, of in (("graph networks", graphs), ("other models", others))
        if of
    )
    return f"{gains(result)}\n\n" + wrapped(
        f"{result['gpu']['name']}, wall clock. PyTorch's time over gpuopt's is {medians} ([all](docs/models.md)): at best "
        f"{extreme(best)}, at worst {extreme(worst, f'; PyTorch to itself {model_report.noise(worst):.2f}')}. "
        f"{slower / len(eager):.0%} are below {problems.SLOWER} beyond such noise. The ratio of GPU times is {of_gpu:.2f} or more in each step."
    )


def random(result: dict) -> str:
    """A summary of all random problems."""
    families, ratios = problems.families_of(result), problems.aten_ratios(result["rows"])
    worst = min((row for row in result["rows"] if problems.aten_ratio(row) is not None), key=problems.aten_ratio)
    return wrapped(
        f"On {len(ratios)} random problems of [{len(families)} operators](docs/random.md) (seed {result['settings']['seed']}), ATen's "
        f"device time over gpuopt's is {statistics.median(ratios):.2f} in the median. {problems.slower(ratios):.0%} are below "
        f"{problems.SLOWER}, the worst {problems.aten_ratio(worst):.2f} ({worst['op']})."
    )


def measured(results: dict[str, dict], paths: dict[str, Path]) -> str:
    """The origin of every number."""

    def link(name: str) -> str:
        return f"[{name}]({paths[name].relative_to(machine.REPOSITORY)})"

    if mixed := mixture(results):
        return " ".join(f"{link(name)}{line.removeprefix(name)}." for name, line in zip(results, mixed))
    origin = origins(next(iter(results.values())))[0]
    return (
        f"All speeds on this page are of one {origin.gpu}, torch {origin.torch}, {origin.day}, commit {origin.commit}: "
        f"{', '.join(map(link, results))}."
    )


def pages(told: bool | None = None) -> dict[Path, str]:
    """The up-to-date text of both pages. ``told`` is the argument of age.check."""
    paths = sources()
    results = {name: report.load(path) for name, path in paths.items()}
    age.check({paths[name]: result for name, result in results.items()}, told)
    of_models, of_problems, of_ladder = results.values()
    plotted = paths["models"].with_suffix(".png").relative_to(machine.REPOSITORY)
    plot = f"![wall clock of a step of each model, PyTorch's over gpuopt's]({plotted})"
    leading = models(of_models)
    old = [name for name, result in results.items() if "old" in result]
    note = f"\n\nOld: kernels have changed since these were measured: {', '.join(old)}." if old else ""
    parts = {
        "models": leading,
        "speed": "\n\n".join((plot, random(of_problems), measured(results, paths))) + note,
        "ladder": ladders.first_case(LADDER, of_ladder),
    }
    of_site = {"models": f"{leading}\n\n{plot}".replace("](docs/", "](").replace("](benchmarks/", "](../benchmarks/")}
    return {path: page.filled(path.name, made, path.read_text()) for path, made in ((README, parts), (SITE, of_site))}
