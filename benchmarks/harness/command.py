"""What the commands of ``python -m benchmarks`` share: a parser, where results go, and how they say that something is wrong."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from benchmarks.harness import machine

NO_GPU = "this machine has no CUDA device that PyTorch can use; nothing was measured."


def parser(command: str, usage: str) -> argparse.ArgumentParser:
    program = f"python -m benchmarks {command}"
    return argparse.ArgumentParser(
        prog=program, description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def measuring(command: str, usage: str, out: str, resume: str = "") -> argparse.ArgumentParser:
    """A parser with the options of all measurements. ``out`` is where the result goes, ``resume`` what --resume keeps."""
    made = parser(command, usage)
    made.add_argument(
        "--out", metavar="PATH", type=Path, help=f"where to write, instead of benchmarks/results/<gpu>{out}"
    )
    made.add_argument("--commit", help="the commit to record, where the sources are not a git checkout of it")
    if resume:
        made.add_argument(
            "--resume", action="store_true", help=f"keep the {resume} of an earlier run of this commit and GPU"
        )
    return made


def check_names(made: argparse.ArgumentParser, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Ends the command if a name is not known."""
    if unknown := [name for name in names if name not in known]:
        made.error(f"no {kind} is called {unknown[0]!r}; there are: {', '.join(known)}")


def results_of(gpu: str) -> Path:
    """The folder of a GPU's results."""
    return machine.RESULTS / machine.slug(gpu)


def failed(text: object) -> int:
    """Says why nothing was measured or written, and returns the exit code of that."""
    print(f"benchmarks: {text}", file=sys.stderr)
    return 2


def on_every_gpu(*words: str, each: int = 1) -> list[int]:
    """Runs a command ``each`` times at once on each GPU, with --part, and returns the exit codes."""
    count = torch.cuda.device_count()
    runs = []
    for i in range(each * count):
        whole = [sys.executable, "-m", "benchmarks", *words, "--part", f"{i}/{each * count}"]
        runs.append(subprocess.Popen(whole, env={**os.environ, "CUDA_VISIBLE_DEVICES": str(i % count)}))
    return [run.wait() for run in runs]
