"""Tables of the results of ``python -m benchmarks models``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import metadata

from benchmarks.harness.report import cell, duration
from benchmarks.models import zoo
from benchmarks.models.run import AGAIN, BASELINE, DTYPES, GRAPH, LAYERS, MODES, OURS, PASSES

LEAST_SHARE = 0.04  # smaller shares of the GPU time are not listed
NOT_MEASURED = "Not measured yet."


def packages() -> dict[str, str | None]:
    """The versions of the optional packages."""

    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    return {name: version(name) for name in ("transformers", "torch-geometric")}


# ---------------------------------------------------------------- rows


def key(row: dict) -> tuple[str, str, str, str]:
    return row["mode"], row["model"], row["pass"], row["dtype"]


def ordered(rows: list[dict]) -> list[dict]:
    """Rows by mode, then by model in the zoo's order, then by pass and dtype."""
    names = list(zoo.models())

    def rank(row: dict) -> tuple[int, ...]:
        model = names.index(row["model"]) if row["model"] in names else len(names)
        return MODES.index(row["mode"]), model, PASSES.index(row["pass"]), list(DTYPES).index(row["dtype"])

    return sorted(rows, key=rank)


def value(row: dict | None, name: str, field: str) -> float | None:
    """A number of a contender: its median for "ms"."""
    entry = row["contenders"].get(name, {}) if row else {}
    found = entry.get(field)
    return found["median"] if isinstance(found, dict) and "median" in found else found


def ratio(row: dict | None, field: str, of: str = OURS) -> float | None:
    """PyTorch's number over gpuopt's: above 1, gpuopt is better."""
    theirs, ours = value(row, BASELINE, field), value(row, of, field)
    return theirs / ours if theirs and ours else None


def noise(row: dict) -> float:
    """PyTorch's wall clock over its own in the same rounds, the larger over the smaller. 1 where it was not measured."""
    again = ratio(row, "ms", AGAIN) or 1
    return max(again, 1 / again)


def failure(row: dict | None) -> str:
    """Which contender failed, or ""."""
    names = [name for name, entry in row["contenders"].items() if entry["status"] != "ok"] if row else []
    return f"{' and '.join(names)} failed" if names else ""


def change(row: dict | None, field: str, form: Callable[[float | None], str], by: str = OURS) -> str:
    """The two contenders' numbers, or which one failed."""
    theirs, ours = (form(value(row, name, field)) for name in (BASELINE, by))
    return failure(row) or ("-" if theirs == ours == "-" else f"{theirs} -> {ours}")


def line(row: dict) -> str:
    """A row in one line, for the progress of a run."""
    parts = [f"{row['model']} {row['mode']} {row['pass']} {row['dtype']}:"]
    for name, entry in row["contenders"].items():
        if entry["status"] != "ok":
            parts.append(f"{name} failed ({entry['reason']})")
            continue
        parts.append(f"{name} {value(row, name, 'ms'):.2f} ms" if "ms" in entry else name)
        for field in ("output_error", "gradient_error"):
            if field in entry:
                parts.append(f"{field.replace('_', ' ')} {entry[field]:.1e}")
    if (wall := ratio(row, "ms")) is not None:
        parts.append(f"ratio {wall:.2f}")
    if (wall := ratio(row, "ms", LAYERS)) is not None:
        parts.append(f"of layers {wall:.2f}")
    if (wall := ratio(row, "ms", GRAPH)) is not None:
        parts.append(f"of PyTorch's graph {wall:.2f}")
    return " ".join(parts + ([f"({row['note']})"] if row["note"] else []))


# ---------------------------------------------------------------- tables


def grouped(rows: list[dict], mode: str) -> dict[tuple[str, str], dict[str, dict]]:
    """The rows of a mode by title and pass, then by dtype."""
    found: dict[tuple[str, str], dict[str, dict]] = {}
    for row in rows:
        if row["mode"] == mode:
            found.setdefault((row["title"], row["pass"]), {})[row["dtype"]] = row
    return found


def table(header: list[str], lines: list[list[str]]) -> str:
    ruler = ["---" if i < 2 else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ruler, *lines])


def times(rows: list[dict], mode: str) -> str:
    """Wall clock and GPU time of one mode."""
    header = ["model", "pass"]
    for dtype in DTYPES:
        header += [f"{dtype}, ms a step", "ratio", "A/A", "ratio of GPU time"]
    lines = []
    for (title, name), of_dtype in grouped(rows, mode).items():
        cells = [title, name]
        for dtype in DTYPES:
            row = of_dtype.get(dtype)
            ratios = ratio(row, "ms"), ratio(row, "ms", AGAIN), ratio(row, "gpu_ms")
            cells += [change(row, "ms", duration), *(cell(found, ".2f") for found in ratios)]
        lines.append(cells)
    return table(header, lines) if lines else NOT_MEASURED


def graph_contender(row: dict) -> str:
    """Who brings gpuopt's kernels: its layers for PyTorch Geometric where they were measured, and override elsewhere."""
    return LAYERS if LAYERS in row["contenders"] else OURS


def graph_ratio(row: dict) -> float | None:
    return ratio(row, "ms", graph_contender(row))


def graphs(rows: list[dict]) -> str:
    """Eager PyTorch and CUDA graphs, without and with gpuopt's kernels, what they cost, and what was not recorded."""
    header = [
        "model",
        "pass",
        "dtype",
        "ms a step",
        "ratio",
        "PyTorch's graph",
        "A/A",
        "memory",
        "recording, s",
        "not recorded",
    ]
    lines = []
    for (title, name), of_dtype in grouped(rows, "graph").items():
        for dtype, row in of_dtype.items():
            ours = graph_contender(row)
            recorded = row["contenders"].get(ours, {}).get("graphs", [])
            reasons = dict.fromkeys(found["reason"] for found in recorded if found["reason"])
            ratios = graph_ratio(row), ratio(row, "ms", GRAPH), ratio(row, "ms", AGAIN)
            numbers = [change(row, "ms", duration, ours), *(cell(found, ".2f") for found in ratios)]
            memory, took = ratio(row, "step_bytes", ours), sum(found["recording_ms"] or 0 for found in recorded)
            numbers += [cell(memory and 1 / memory, ".2f"), f"{took / 1e3:.1f}" if took else "-"]
            lines.append([title, name, dtype, *numbers, "; ".join(reasons) or "-"])
    return table(header, lines) if lines else NOT_MEASURED


def shares(rows: list[dict]) -> str:
    """Where PyTorch's GPU time goes in an eager training step."""
    lines = []
    for (title, name), of_dtype in grouped(rows, "eager").items():
        if name != "training":
            continue
        for dtype, row in of_dtype.items():
            found = row["contenders"].get(BASELINE, {}).get("shares", {})
            large = [f"{family} {share:.0%}" for family, share in found.items() if share >= LEAST_SHARE]
            lines.append([title, dtype, ", ".join(large) or "-"])
    return table(["model", "dtype", "shares of the GPU time before"], lines)


def exactness(rows: list[dict]) -> str:
    """Errors against float64, memory, and repeatability, of eager training."""
    header = ["model", "dtype", "error of outputs", "error of gradients", "peak memory, MB", "two runs are equal"]
    lines = []
    for (title, name), of_dtype in grouped(rows, "eager").items():
        if name != "training":
            continue
        for dtype, row in of_dtype.items():
            memory = [cell(b / 1e6 if (b := value(row, n, "peak_bytes")) else None, ".0f") for n in (BASELINE, OURS)]
            equal = [{True: "yes", False: "no", None: "-"}[value(row, n, "repeats")] for n in (BASELINE, OURS)]
            errors = [
                change(row, field, functools.partial(cell, form=".1e")) for field in ("output_error", "gradient_error")
            ]
            lines.append([title, dtype, *errors, " -> ".join(memory), " -> ".join(equal)])
    return table(header, lines)


def layers(rows: list[dict]) -> str:
    """The models of PyTorch Geometric whose layers call gpuopt, beside PyTorch in eager mode and compiled."""
    header = ["model", "pass", "dtype", "eager, ms", "compiled", "override", "layers", "x eager", "x compiled"]
    header += ["memory, MB", "error of gradients", "runs are equal"]
    compiled = {key(row)[1:]: value(row, BASELINE, "ms") for row in rows if row["mode"] == "compiled"}
    lines = []
    for row in rows:
        ms = value(row, LAYERS, "ms")
        if ms is None:
            continue
        fused = compiled.get(key(row)[1:])
        times = [value(row, BASELINE, "ms"), fused, value(row, OURS, "ms"), ms]
        memory, errors = (
            [value(row, name, field) for name in (BASELINE, LAYERS)] for field in ("peak_bytes", "gradient_error")
        )
        equal = value(row, LAYERS, "repeats")
        lines.append(
            [row["title"], row["pass"], row["dtype"], *map(duration, times), cell(ratio(row, "ms", LAYERS), ".2f")]
            + [cell(fused / ms if fused else None, ".2f")]
            + [" -> ".join(cell(b / 1e6 if b else None, ".0f") for b in memory)]
            + [" -> ".join(cell(error, ".1e") for error in errors), {True: "yes", False: "no", None: "-"}[equal]]
        )
    return table(header, lines) if lines else NOT_MEASURED


def notes(result: dict) -> str:
    """What was left out, and why a row has no errors."""
    found = list(result["left_out"])
    for row in result["rows"]:
        name = f"{row['title']}, {row['mode']}, {row['pass']}, {row['dtype']}"
        breaks = max((entry.get("graph_breaks", 0) for entry in row["contenders"].values()), default=0)
        found += [f"{name}: {row['note']}"] if row["note"] else []
        found += [f"{name}: {breaks} graph breaks"] if breaks else []
        found += [
            f"{name}: {contender} failed: {entry['reason']}"
            for contender, entry in row["contenders"].items()
            if entry["status"] != "ok"
        ]
    # Messages of other programs are quoted as code, so they are not read as prose.
    return "\n".join(f"- `{text.replace('`', chr(39))}`" for text in dict.fromkeys(found)) or "Nothing was left out."


def conditions(result: dict) -> str:
    """Rows that were measured again later have the commit at which that was."""
    commit = result["source"]["commit"] or "unknown"
    commits = list(dict.fromkeys([commit, *(row.get("commit", commit) for row in result["rows"])]))
    gpu, versions = result["gpu"], result["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("transformers", "torch-geometric") if versions.get(name))
    return (
        f"{gpu['name']}, driver {gpu['driver']}, torch {versions['torch']}, CUDA {versions['cuda']}, {used or 'no packages'}, "
        f"{result['date'][:10]}, commit {', '.join(commit[:7] for commit in commits)}."
    )


def parts(result: dict) -> dict[str, str]:
    rows = ordered(result["rows"])
    return {
        "conditions": conditions(result),
        "eager": times(rows, "eager"),
        "compiled": times(rows, "compiled"),
        "exactness": exactness(rows),
        "shares": shares(rows),
        "notes": notes(result),
    }


def layouts(result: dict) -> str:
    """Models that convolve signals, before and after their conversion to channels last."""
    return times(ordered(result["rows"]), "layout")


def text(result: dict) -> str:
    """Everything, for the terminal."""
    rows = ordered(result["rows"])
    made = parts(result) | {"layouts": layouts(result), "layers": layers(rows), "graphs": graphs(rows)}
    return "\n\n".join(f"{name}\n{part}" for name, part in made.items())
