"""Measures operators on sharded tensors over the GPUs of one host, or over processes on the CPU.

    python -m benchmarks distributed                  a case of each rule and Mamba's block, on 1, 2 and 4 GPUs with NCCL
    python -m benchmarks distributed --ranks 1 8      other numbers of GPUs
    python -m benchmarks distributed --cpu            small tensors in 1 and 2 processes with gloo, which says nothing about GPUs

Writes distributed.json into benchmarks/results/<gpu>/, or into benchmarks/results/cpu/. The work of a rank is the same for any number of
ranks, except of one case, whose sequence is divided. Each number of ranks runs in separate processes.
"""

from __future__ import annotations

from functools import partial

from benchmarks.distributed import rank, report
from benchmarks.harness import command, host

ROOM = "distributed"


def main(argv: list[str]) -> int:
    given = host.measuring(ROOM, __doc__, "1 2 4, with --cpu 1 2", repeats=7).parse_args(argv)
    kind = host.kind_of(given)
    if kind is None:
        return command.failed(host.NO_GPU)
    settings = {"size": 1 if kind == "cuda" else 1 / 256, "repeats": given.repeats}
    here = host.Host(ROOM, kind, settings, given)
    for ranks in given.ranks or ([1, 2, 4] if kind == "cuda" else [1, 2]):
        here.add(ranks, partial(host.rows_of, rank.run, ranks, kind, settings))
    return here.finish(report.text)
