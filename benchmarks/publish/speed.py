"""The tables of docs/speed.md, from the committed results of rooms.

The page begins with the cases that CHOSEN names, and has a part for each room with all cases of its results.
Each generated part begins and ends with a comment. The text around the parts is written by hand and does not change.
"""

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import machine, report
from benchmarks.publish import age, plots
from benchmarks.publish.page import filled
from benchmarks.rooms import rooms

ROOT = machine.REPOSITORY
RESULTS = machine.RESULTS / "nvidia-h200"
PAGE = ROOT / "docs" / "speed.md"
# The name of the part with chosen cases.
SPEED = "speed"
DTYPES = ("f32", "bf16")
SLOWEST = 10

# Rows. Key: (room, op in its results, operator in the table). Value: case in the file -> operands in the table.
CHOSEN = {
    ("elementwise", "mul", "mul"): {
        "2^25": "two dense tensors of 2^25 values",
        "NCHW*C": "(64,256,56,56) * (256,1,1)",
        "BTD*D": "(8,4096,4096) * (4096)",
        "x*y.t() 8192^2": "x * y.t(), 8192^2",
        "misaligned out= 2^26": "all operands misaligned by one value, 2^26",
    },
    ("reduce", "sum", "reduce_sum"): {
        "2^20": "all 2^20 values",
        "2^28": "all 2^28 values",
        "(32768,1024) dim 1": "(32768,1024) dim 1",
        "(32768,1024) dim 0": "(32768,1024) dim 0",
        "(1048576,32) dim 1": "(1048576,32) dim 1",
        "(64,256,56,56) dim (0,2,3)": "(64,256,56,56) dim (0,2,3)",
    },
    ("reduce", "mean", "reduce_mean"): {"NHWC dim (0,2,3)": "(64,256,56,56) channels_last dim (0,2,3)"},
    ("upsample", "nearest2d", "upsample_nearest2d"): {
        "(8,256,64,64)->(128,128)": "(8,256,64,64) to (128,128)",
        "CL (8,256,64,64)->(128,128)": "(8,256,64,64) to (128,128), channels_last",
        "(16,64,100,100)->(237,181)": "(16,64,100,100) to (237,181)",
    },
    ("upsample", "nearest2d-backward", "upsample_nearest2d_backward"): {
        "(8,256,64,64)->(128,128)": "(8,256,64,64) to (128,128)",
        "(16,64,100,100)->(237,181)": "(16,64,100,100) to (237,181)",
    },
    ("index_add", "index_add-fast", "index_add"): {
        "(169343,128)+=(2^20,128) uniform": "(169343,128) += (2^20,128), uniform",
        "(169343,128)+=(2^20,128) Zipf 1.1": "(169343,128) += (2^20,128), Zipf-distributed",
        "(50257,1024)+=(16384,1024) uniform": "(50257,1024) += (16384,1024), uniform",
        "(1024)+=(2^24) uniform": "(1024) += (2^24), uniform",
    },
    ("index_add", "index_add-deterministic", "index_add, `deterministic`"): {
        "(1024)+=(2^24) uniform": "(1024) += (2^24), uniform"
    },
    ("dot", "dot", "dot"): {
        "2^14": "vectors of 2^14 values",
        "2^25": "vectors of 2^25 values",
        "2^28": "vectors of 2^28 values",
    },
    ("dot", "dot_rows", "dot_rows"): {"(1048576,32)": "rows of (1048576,32)"},
    ("conv1d", "conv1d-forward", "conv1d"): {
        "(1,1,2^24) k5 p2": "(1,1,2^24), 5 taps",
        "dw (8,4096,2048) k4 causal": "depthwise, causal, (8,4096,2048), 4 taps",
        "dw (32,768,1024) k7 p3": "depthwise, (32,768,1024), 7 taps",
        "(16,1,80000)->512 k10 s5": "(16,1,80000) to 512 channels, 10 taps, stride 5 (wav2vec 2.0)",
        "(16,1,120000)->32 k7 p3": "(16,1,120000) to 32 channels, 7 taps (EnCodec)",
    },
    ("conv1d", "conv1d-backward", "conv1d_backward"): {
        "(1,1,2^24) k5 p2": "(1,1,2^24), 5 taps",
        "dw (8,4096,2048) k4 causal": "depthwise, causal, (8,4096,2048), 4 taps",
    },
    ("conv1d", "convolve", "convolve"): {"(2^20) with 255 taps": "(2^20) with 255 taps"},
    ("transpose", "transpose2d", "transpose2d"): {
        "8192^2": "8192^2",
        "8191^2": "8191^2",
        "(32,150528,3), NHWC to NCHW": "(32,150528,3), NHWC to NCHW",
        "(2^16,32,32)": "(2^16,32,32)",
    },
}


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
        texts += _sample(rows) if report.is_sample(rows) else _cases([row for row in rows if not row.get("point")])
        texts += [plots.mark(file, path, f"{op} on {gpu}") for file in plots.pictures(rows, name)]
    return "\n\n".join(texts)


def _table(words: list[str], numbers: list[str], lines: list[list[str]]) -> str:
    rule = "|---" * len(words) + "|---:" * len(numbers) + "|"
    return "\n".join([f"| {' | '.join(words + numbers)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def _cases(rows: list[dict]) -> list[str]:
    names = report.contender_names(rows)
    variants = [name for name in names if report.is_ours(name) and name != "gpuopt"]
    peers = [name for name in names if not report.is_ours(name) and report.ratios(rows, name)]
    numbers = ["us", "GB/s", "share of ceiling", *(f"{name.removeprefix('gpuopt ')} (us)" for name in variants)]
    numbers += [f"speedup over {peer}" for peer in peers]
    lines = []
    for row in rows:
        gbps = row["contenders"]["gpuopt"].get("gbps")
        line = [row["case"], row["dtype"], _us(row, "gpuopt"), report.cell(gbps, ".0f"), _share(row)]
        lines.append(line + [_us(row, name) for name in variants] + [_times(row, peer) for peer in peers])
    return [_table(["case", "dtype"], numbers, lines)] if rows else []


def _sample(rows: list[dict]) -> list[str]:
    """A summary of random problems, and a table of the slowest ones beside ATen."""
    lines = []
    for curve in sorted({row["point"]["curve"] for row in rows}):
        beside = report.ratios([row for row in rows if row["point"]["curve"] == curve], "ATen")
        found = [ratio for ratio, _ in beside]
        if found:
            figures = (_ratio(figure) for figure in (found[0], statistics.median(found), found[-1]))
            lines.append([curve, str(len(found)), *figures, str(sum(ratio < report.GOOD for ratio in found))])
    numbers = ["count", "speedup over ATen: worst", "median", "best", f"count below {report.GOOD}"]
    slowest = [
        [row["case"], row["dtype"], _us(row, "gpuopt"), _us(row, "ATen"), _ratio(ratio)]
        for ratio, row in report.ratios(rows, "ATen")[:SLOWEST]
    ]
    return [
        _table(["random problems"], numbers, lines),
        f"The {len(slowest)} problems with the smallest speedup over ATen:",
        _table(["problem", "dtype"], ["us", "ATen (us)", "speedup over ATen"], slowest),
    ]


def _us(row: dict, name: str) -> str:
    return report.duration(report.median_us(row, name))


def _share(row: dict) -> str:
    return report.cell(report.share_of_ceiling(row), ".0%")


def _ratio(ratio: float) -> str:
    return format(ratio, ".2f" if ratio < 100 else ".0f")


def _times(row: dict, peer: str) -> str:
    """The peer's time divided by gpuopt's."""
    return next((_ratio(ratio) for ratio, _ in report.ratios([row], peer)), "-")


def table(found: dict[str, dict]) -> str:
    """The table of chosen cases. Raises ValueError if a result lacks a chosen case."""
    numbers = ["time (us), f32 / bf16", "share of ceiling", "speedup over ATen", "speedup over Inductor"]
    lines = []
    for (room, op, operator), cases in CHOSEN.items():
        names = [name for name, ops in shown(found).items() if found[name]["room"] == room and op in ops]
        measured = [row for name in names for row in found[name]["rows"] if row["op"] == op]
        for case, operands in cases.items():
            rows = {row["dtype"]: row for row in measured if row["case"] == case}
            if not rows:
                raise ValueError(f"no result of {room} has a case {case!r} of {op}")
            figures = (lambda row: _us(row, "gpuopt"), _share, lambda row: _times(row, "ATen"), _times_inductor)
            lines.append([operator, operands, *(_both(rows, figure) for figure in figures)])
    return _table(["operator", "operands"], numbers, lines)


def _both(rows: dict[str, dict], figure: Callable[[dict], str]) -> str:
    cells = [figure(rows[dtype]) if dtype in rows else "-" for dtype in DTYPES]
    return "-" if set(cells) == {"-"} else " / ".join(cells)


def _times_inductor(row: dict) -> str:
    """The speedup over Inductor. Its name may say which expression it compiled: "Inductor mul+sum"."""
    return next((_times(row, name) for name in row["contenders"] if name.startswith("Inductor")), "-")


def pages(told: bool | None = None) -> dict[Path, str]:
    """The up-to-date text of the page."""
    found = results(told)
    old = PAGE.read_text() if PAGE.exists() else None
    return {PAGE: filled(str(PAGE.relative_to(ROOT)), {SPEED: table(found), **parts(found)}, old)}
