"""The tables of docs/speed.md, from the committed results of rooms.

The page begins with a summary of headline cases, and has a part for each room with all cases of its results.
Each generated part begins and ends with a comment. The text around the parts is written by hand and does not change.
"""

import statistics
from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.publish import age, plots
from benchmarks.publish.page import filled
from benchmarks.rooms import rooms

ROOT = machine.REPOSITORY
RESULTS = machine.RESULTS / "nvidia-h200"
PAGE = ROOT / "docs" / "speed.md"
# The name of the part with the headline cases.
SPEED = "speed"


def results(told: bool | None = None) -> dict[str, dict]:
    """The committed results of rooms that are shown, by file name without ending. ``told`` is the argument of age.check."""
    found = {path.stem: report.load(path) for path in sorted(RESULTS.glob("*.json"))}
    found = {name: result for name, result in found.items() if result["room"] in rooms()}
    found = {name: found[name] for name, ops in shown(found).items() if ops}
    age.check({RESULTS / f"{name}.json": result for name, result in found.items()}, told)
    return found


def shown(found: dict[str, dict]) -> dict[str, list[str]]:
    """For each result, oldest first, its operators that no newer result of the room has measured again."""
    ops = {name: list(dict.fromkeys(row["op"] for row in result["rows"])) for name, result in found.items()}
    names = sorted(found, key=lambda name: found[name]["date"])
    newest = {(found[name]["room"], op): name for name in names for op in ops[name]}
    return {name: [op for op in ops[name] if newest[found[name]["room"], op] == name] for name in names}


def parts(found: dict[str, dict]) -> dict[str, str]:
    """The generated parts of docs/speed.md, by room."""
    texts: dict[str, list[str]] = {}
    for name, ops in shown(found).items():
        if ops:
            texts.setdefault(found[name]["room"], []).append(_result(name, found[name], ops))
    return {room: "\n\n".join(of_room) for room, of_room in texts.items()}


def _result(name: str, result: dict, ops: list[str]) -> str:
    path = RESULTS / f"{name}.json"
    gpu = result["gpu"]["name"]
    about = [
        gpu,
        f"torch {result['versions']['torch']}",
        result["date"][:10],
        f"commit {result['source']['commit'][:7]}",
    ]
    about += ["a quick run"] if result["settings"].get("quick") else []
    texts = [f"### {name}", f"{', '.join(about)}: [{name}.json](../{path.relative_to(ROOT)}).{result.get('old', '')}"]
    for op in ops:
        rows = [row for row in result["rows"] if row["op"] == op]
        texts.append(f"#### {op}")
        texts += (
            report.sample(rows)
            if report.is_sample(rows)
            else report.cases([row for row in rows if not row.get("point")])
        )
        texts += [plots.mark(file, path, f"{op} on {gpu}") for file in plots.pictures(rows, name)]
    return "\n\n".join(texts)


def summary(found: dict[str, dict]) -> str:
    """A row for the headline cases of every operator."""
    numbers = [
        "cases",
        "share of ceiling: median",
        "speedup over ATen: median",
        "worst",
        "over Inductor: median",
        "worst",
    ]
    lines = []
    for name, op in ((name, op) for name, ops in shown(found).items() for op in ops):
        rows = [row for row in found[name]["rows"] if row["op"] == op and row["headline"] and not row.get("point")]
        shares = [share for row in rows if (share := report.share_of_ceiling(row)) is not None]
        # The name of Inductor may say which expression it compiled: "Inductor mul+sum".
        inductor = [peer for peer in report.contender_names(rows) if peer.startswith("Inductor")]
        cells = [report.cell(statistics.median(shares) if shares else None, ".0%")]
        for peers in (["ATen"], inductor):
            found_ratios = sorted(ratio for peer in peers for ratio, _ in report.ratios(rows, peer))
            cells += (
                [report.speedup(statistics.median(found_ratios)), report.speedup(found_ratios[0])]
                if found_ratios
                else ["-", "-"]
            )
        lines += [[op, str(len(rows)), *cells]] if rows else []
    return report.markdown(["operator"], numbers, lines)


def pages(told: bool | None = None) -> dict[Path, str]:
    """The up-to-date text of the page."""
    found = results(told)
    old = PAGE.read_text() if PAGE.exists() else None
    return {PAGE: filled(str(PAGE.relative_to(ROOT)), {SPEED: summary(found), **parts(found)}, old)}
