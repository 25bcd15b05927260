"""What is published: each result file that a page or a README quotes, and the command that measures it."""

import dataclasses
from pathlib import Path

from benchmarks.rooms import rooms


@dataclasses.dataclass(frozen=True)
class Part:
    """One result file.

    Args:
        name: what selects the part on the command line of ``python -m benchmarks all``.
        file: its path below the results of a GPU.
        command: what follows ``python -m benchmarks``. {file} and {folder} are where the result goes.
        minutes: an estimate for an H100, which counts until a result says how many seconds it took.
        resumes: whether a run that was stopped continues after its last row.
    """

    name: str
    file: str
    command: tuple[str, ...]
    minutes: float
    resumes: bool = True


def _room(name: str, quick: bool = False, seconds: float = 3.6) -> Part:
    """A room or an operator. Full runs took 3.6 seconds for each case. Compiling the peers is most of it."""
    cases = [case for room in rooms().values() for case in room.cases if name in (room.name, case.op)]
    count = sum(case.headline or not quick for case in cases)
    command = (name, *(["--quick"] if quick else []), "--resume", "--out", "{folder}")
    return Part(name, f"{name}{'.quick' if quick else ''}.json", command, count * seconds / 60)


# Each ladder, and the room that it belongs to.
LADDERS = {
    "mul": "elementwise",
    "transpose2d": "transpose",
    "reduce_sum": "reduce",
    "reduce_max": "reduce",
    "cumsum": "scan",
    "upsample_nearest2d": "upsample",
    "upsample_nearest2d_backward": "upsample",
    "conv1d": "conv1d",
    "dot": "dot",
    "index_add_": "index_add",
    "spmm": "spmm",
    "matmul": "matmul",
    "triangle_count": "triangle_count",
    "layer_norm": "norm",
    "layer_norm_backward": "norm",
    "copy_in_flight": "ladder",
}


def _ladder(op: str) -> Part:
    # The lesson of latency has no counters.
    profile = [] if op == "copy_in_flight" else ["--profile"]
    command = ("ladder", op, *profile, "--out", "{folder}/ladder")
    return Part(f"ladder {op}", f"ladder/{op}.json", command, 1.0, resumes=False)


_SWEEP = ("sweep", "--count", "30", "--resume", "--out", "{file}")
_MODELS = (
    "models",
    "--modes",
    "eager",
    "compiled",
    "--seconds",
    "0.8",
    "--limit",
    "100",
    "--resume",
    "--out",
    "{file}",
)
_LAYOUTS = ("models", "--modes", "layout", "--seconds", "0.8", "--limit", "200", "--resume", "--out", "{file}")
_GRAPHS = (
    "models",
    "--modes",
    "graph",
    "--dtypes",
    "bf16",
    "--seconds",
    "0.3",
    "--limit",
    "100",
    "--resume",
    "--out",
    "{file}",
)

PARTS = [
    _room("elementwise"),
    _room("reduce"),
    _room("upsample"),
    _room("index_add"),
    _room("dot"),
    _room("transpose"),
    _room("conv1d", quick=True, seconds=2.7),
    _room("conv1d-forward-sample", seconds=1.1),
    _room("conv1d-backward-sample", seconds=1.5),
    _room("cumsum", quick=True, seconds=1.6),
    _room("selective_scan", quick=True),
    _room("spmm", quick=True),
    _room("segment", quick=True),
    Part("sweep", "sweep.json", _SWEEP, 25.0),
    Part("override", "override.json", ("override", "--resume", "--out", "{file}"), 10.0),
    Part("models", "models.json", _MODELS, 25.0),
    Part("layouts", "layouts.json", _LAYOUTS, 8.0),
    Part("graphs", "models-graph.json", _GRAPHS, 8.0),
    Part("drop_ins", "drop_ins.json", ("drop-ins", "--out", "{file}"), 2.0, resumes=False),
    *map(_ladder, LADDERS),
]


def command_for(path: Path, room: str) -> str:
    """The command that measures a committed file anew."""
    if path.suffix == ".jsonl":
        return f"python -m benchmarks tune {room}"
    if room in ("partitioned", "distributed"):  # are measured on several GPUs, and so are no part of "all"
        return f"python -m benchmarks {room}"
    file = f"ladder/{path.name}" if path.parent.name == "ladder" else path.name
    name = next((part.name for part in PARTS if part.file == file), room)
    return f"python -m benchmarks all {name!r}" if " " in name else f"python -m benchmarks all {name}"
