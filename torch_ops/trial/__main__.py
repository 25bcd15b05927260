"""The command ``python -m torch_ops.trial``. ``docs/trial.md`` explains it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from torch_ops._override import override
from torch_ops.trial.device import Gpu
from torch_ops.trial.function import NO_GPU, teller
from torch_ops.trial.record import load
from torch_ops.trial.replay import replay
from torch_ops.trial.report import Report
from torch_ops.trial.script import TooShort, measure_script


def main(argv: list[str]) -> int:
    if argv[:1] == ["replay"]:
        return _replay(argv[1:])
    mine, rest = _split(argv)
    arguments = _parser().parse_args(mine)
    if arguments.steps < 2:
        _parser().error(f"--steps must be 2 or more, got {arguments.steps}")
    if not torch.cuda.is_available():
        return _show(Report(reason=NO_GPU), arguments)
    try:
        report = measure_script(
            arguments.script, rest, arguments.steps, override(), Gpu(), teller(None), arguments.record
        )
    except TooShort as error:
        print(f"torch_ops.trial: {error}", file=sys.stderr)
        return 1
    return _show(report, arguments)


def _replay(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m torch_ops.trial replay",
        description="Measures the calls in a file of --record on this GPU, beside PyTorch's kernels and a copy of the same bytes.",
    )
    parser.add_argument("file", type=Path)
    try:
        record = load(parser.parse_args(argv).file)
    except (OSError, ValueError) as error:
        print(f"torch_ops.trial: {error}", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print(f"Nothing was measured: {NO_GPU}")
        return 1
    print(replay(record, override(), Gpu(), teller(None)))
    return 0


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The command's arguments, and behind ``--`` the script's."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_ops.trial",
        description="Measures what torch_ops.override gains in the training steps of a script. The script is ended then.",
        epilog="`replay FILE` in place of a script measures the calls in a file of --record.",
    )
    parser.add_argument("script", type=Path, help="the script; its arguments follow after --")
    parser.add_argument("--steps", type=int, default=20, help="training steps of each of the three ways (default 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="also record the calls of a step, without their data"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw a picture, such as trial.png")
    return parser


def _show(report: Report, arguments: argparse.Namespace) -> int:
    print(report)
    if arguments.json:
        arguments.json.write_text(report.json())
    if arguments.plot and not report.reason:
        report.plot(arguments.plot)
    return 1 if report.reason else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
