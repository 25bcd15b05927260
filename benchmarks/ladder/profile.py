"""Hardware counters of the steps of a ladder, by Nsight Compute (ncu).

    python -m benchmarks ladder --profile reduce_sum

ncu runs this module, which calls every contender of a ladder once. A spinning kernel separates the contenders in ncu's list. The
counters of a contender come from its longest kernel. ncu does not fix the clocks of the GPU.
"""

import csv
import shutil
import subprocess
import sys

from benchmarks.harness import machine
from benchmarks.harness.peers import OURS, Setting
from benchmarks.ladder import cases as ladders

DURATION = "gpu__time_duration.sum"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    "a load from memory": "long_scoreboard",
    "shared memory": "short_scoreboard",
    "a barrier": "barrier",
    "the queue of loads and stores": "lg_throttle",
    "the queue of shared memory": "mio_throttle",
    "arithmetic": "math_pipe_throttle",
    "the instruction before": "wait",
    "stores, at its end": "drain",
    "a memory fence": "membar",
    "constant memory": "imc_miss",
    "the next instruction's fetch": "no_instruction",
}
COUNTERS = {
    "sectors a load": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "sectors a store": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "bank conflicts of loads": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "bank conflicts of stores": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "warps active (%)": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "instructions of warps": "smsp__inst_executed.sum",
    "DRAM bytes read": "dram__bytes_read.sum",
    "DRAM bytes written": "dram__bytes_write.sum",
}
METRICS = [DURATION, *COUNTERS.values(), *(STALL.format(reason) for reason in STALLS.values())]
BETWEEN = "spin_kernel"  # the kernel of torch.cuda._sleep


class NoProfiler(Exception):
    """Counters could not be collected; the message says why."""


def command(op: str) -> list[str]:
    ncu = shutil.which("ncu")
    if ncu is None:
        raise NoProfiler("ncu was not found on PATH; it comes with the CUDA toolkit (Nsight Compute)")
    options = "--clock-control none --profile-from-start off --csv --page raw --print-units base".split()
    return [ncu, *options, "--metrics", ",".join(METRICS), sys.executable, "-m", "benchmarks.ladder.profile", op]


def collect(op: str) -> list[dict[str, dict]]:
    """For each case of a ladder, the counters of every contender by name."""
    done = subprocess.run(command(op), cwd=machine.REPOSITORY, capture_output=True, text=True)
    if done.returncode != 0:
        raise NoProfiler(f"ncu failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return assign([contenders_of(case) for case in ladders.rooms()[op].cases], read(done.stdout))


def contenders_of(case) -> list[str]:
    return [peer.name for peer in (*case.peers, OURS)]


def read(output: str) -> list[dict[str, str]]:
    """The kernels in ncu's output. Other lines surround its list, and the second line of the list has the units."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    return list(csv.DictReader(lines))[1:]


def assign(cases: list[list[str]], kernels: list[dict[str, str]]) -> list[dict[str, dict]]:
    """Assigns to each contender the kernels between two spinning kernels."""
    groups = []
    for kernel in kernels:
        if BETWEEN in kernel["Kernel Name"]:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    if len(groups) != sum(map(len, cases)):
        raise NoProfiler(f"ncu saw {len(groups)} contenders, expected {sum(map(len, cases))}")
    left = iter(groups)
    return [{name: summary(next(left)) for name in names} for names in cases]


def summary(kernels: list[dict[str, str]]) -> dict:
    """The counters of the longest kernel, and the number of kernels."""
    if not kernels:
        raise NoProfiler("ncu saw a contender that launched no kernel")
    longest = max(kernels, key=lambda kernel: number(kernel[DURATION]) or 0.0)
    stalls = {reason: number(longest.get(STALL.format(name), "")) or 0.0 for reason, name in STALLS.items()}
    counters = {name: number(longest[metric]) for name, metric in COUNTERS.items()}
    waits = max(stalls, key=stalls.__getitem__)
    return {"kernels": len(kernels), **counters, "waits for": waits, "cycles waited an instruction": stalls[waits]}


def number(text: str) -> float | None:
    """The value of a counter; None if ncu could not count it."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def main(op: str):
    import torch

    room = ladders.rooms()[op]
    call, setting = room.calls()[op], Setting(None, "cuda", tune=False)
    for case in room.cases:
        args = case.build("cuda", 0)
        runs = [peer.prepare(call, case, setting)[0] for peer in (*case.peers, OURS)]
        for run in runs:  # so that no set-up of a first call is counted
            run(*args)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for run in runs:
            torch.cuda._sleep(1)
            run(*args)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1])
