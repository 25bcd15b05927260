"""Processes that run random calls, for the modes of benchmarks/random/fuzz.py. A parent names the call in which a process ended."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator

import torch

import torch_ops
from benchmarks.random.fuzz import parse
from benchmarks.random.runs import is_fatal
from torch_ops._override import Report


@dataclasses.dataclass(frozen=True)
class Mode:
    """A mode of `python -m benchmarks fuzz`.

    Args:
        name: the mode's word on the command line.
        families: the names of its families.
        draw: draws what `faults` takes from a family, a seed and a device. The first part names the call.
        faults: yields what is wrong with one call.
    """

    name: str
    families: Iterable[str]
    draw: Callable[[str, int, str], tuple]
    faults: Callable[..., Iterator[str]]

    def command(self, family: str, seed: int) -> str:
        return f'python -m benchmarks fuzz {self.name} "{family}" --seed {seed} --calls 1'

    def run(
        self,
        families: list[str],
        seeds: Iterable[int],
        device: str,
        seconds: float,
        begin: Callable[[str], None] = lambda text: None,
    ) -> tuple[int, list[str]]:
        """The number of calls, and what was wrong with some of them. `begin` hears of each call before it runs."""
        count, found, ends = 0, [], time.monotonic() + seconds
        for seed in seeds:
            for family in families:
                command = self.command(family, seed)
                begin(command)
                drawn = (None,)
                try:
                    drawn = self.draw(family, seed, device)
                    wrong = list(self.faults(*drawn))
                except Exception as error:
                    wrong = [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
                    if is_fatal(error):
                        print(f"{drawn[0]}: {wrong[0]}\n    {command}", flush=True)
                        os._exit(3)
                for fault in wrong:
                    found.append(f"{drawn[0]}: {fault}\n    {command}")
                    print(found[-1], flush=True)
                count += 1
            if time.monotonic() > ends:
                break
        return count, found

    def main(self, usage: str, argv: list[str]) -> int:
        """Splits the seeds among processes, and prints the sum of their counts."""
        arguments = parse(f"fuzz {self.name}", usage, argv, self.families, processes=True)
        end = arguments.seed + (sys.maxsize // 2 if arguments.calls is None else arguments.calls)
        context = multiprocessing.get_context("spawn")
        workers = []
        for k in range(arguments.processes):
            answer, its = context.Pipe(duplex=False)
            current = context.Array("c", 200)
            seeds = range(arguments.seed + k, end, arguments.processes)
            process = context.Process(
                target=_work,
                args=(self, arguments.families, seeds, arguments.device, 60 * arguments.minutes, current, its),
            )
            process.start()
            its.close()
            workers.append((process, answer, current))
        count, wrong, calls = 0, 0, collections.defaultdict(collections.Counter)
        for process, answer, current in workers:
            with contextlib.suppress(EOFError):
                of_worker, its_faults, its_calls = answer.recv()
                count, wrong = count + of_worker, wrong + its_faults
                for name, row in its_calls.items():
                    calls[name].update(row)
            process.join()
            if process.exitcode:
                wrong += 1
                print(f"a process ended with exit code {process.exitcode} in this call, and did not run its others:")
                print(f"    {current.value.decode()}")
        if calls:
            print(Report(calls))
        where = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device
        print(f"{count} calls on {where}, {wrong} faults")
        return 1 if wrong else 0


def _work(mode: Mode, families, seeds, device, seconds, current, answer) -> None:
    """A process: runs its share of the seeds, and answers with its counts."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # ATen's convolutions are the reference for cuDNN's, which by default round float32 and add in any order.
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses deterministic mode without it

    def begin(text: str) -> None:
        current.value = text.encode()

    count, found = mode.run(families, seeds, device, seconds, begin)
    answer.send((count, len(found), torch_ops.override_report().calls))
