"""Measures triangle counts of partitioned graphs over the GPUs of one host, or over processes on the CPU.

    python -m benchmarks partitioned                          R-MAT of scale 24 on 1, 2 and 4 GPUs, NCCL and gloo
    python -m benchmarks partitioned --scale 27 --ranks 4     a larger graph on 4 GPUs
    python -m benchmarks partitioned --cpu                    scale 16 in 1, 2 and 4 processes, gloo, if there are 4 cores

Writes partitioned.json into benchmarks/results/<gpu>/, or into benchmarks/results/cpu/. Prints tables of what was measured, and of what a
model that is fitted to it predicts for more ranks. Each number of ranks runs in separate processes.
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import command, host
from benchmarks.partitioned import rank, report

ROOM = "partitioned"


def main(argv: list[str]) -> int:
    parser = host.measuring(ROOM, __doc__, "1 2 4", repeats=5)
    parser.add_argument("--scale", type=int, help="of the R-MAT graph, which has 2^scale vertices")
    parser.add_argument("--factor", type=int, default=16, help="entries for each vertex (16)")
    parser.add_argument("--backends", nargs="+", default=["nccl", "gloo"], help="on GPUs (nccl gloo)")
    given = parser.parse_args(argv)
    kind = host.kind_of(given)
    if kind is None:
        return command.failed(host.NO_GPU)
    backends = given.backends if kind == "cuda" else ["gloo"]
    command.check_names(parser, "backend", backends, sorted({backend for _, backend in report.TITLES}))
    scale = given.scale or (24 if kind == "cuda" else 16)
    settings = {"scale": scale, "factor": given.factor, "repeats": given.repeats}
    here = host.Host(ROOM, kind, settings, given)
    for backend in backends:
        for ranks in given.ranks or [1, 2, 4]:
            measured = partial(host.rows_of, rank.run, ranks, backend, kind, settings)
            here.add(ranks, measured, f", {backend}")
    counts = {row["triangles"] for row in here.result["rows"]}
    if len(counts) > 1:
        return command.failed(f"ranks count different triangles: {sorted(counts)}")
    return here.finish(report.text)
