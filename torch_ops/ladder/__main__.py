"""The command ``python -m torch_ops.ladder``. ``docs/practise.md`` explains it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torch_ops.ladder import compare, ops, roofline
from torch_ops.ladder.start import start


def main(argv: list[str]) -> int:
    """0: right, 1: wrong, 2: nothing was done."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "start":
        print(start(arguments.op), end="")
        return 0
    try:
        if arguments.command == "roofline":
            roof = roofline(arguments.op, arguments.kernel, time_limit=arguments.time_limit)
            print(roof)
            if arguments.plot:
                roof.plot(arguments.plot)
            return 0
        found = compare(arguments.op, arguments.kernel, time_limit=arguments.time_limit, counters=arguments.counters)
    except (FileNotFoundError, RuntimeError, ValueError) as error:
        print(f"torch_ops.ladder: {error}", file=sys.stderr)
        return 2
    print(found)
    if arguments.json:
        arguments.json.write_text(found.json())
    return 0 if found.right else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_ops.ladder", description="Practise: write a kernel, and see where it stands on a ladder."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    comparing = commands.add_parser("compare", help="check a kernel, and measure it among the steps of a ladder")
    roof = commands.add_parser("roofline", help="the roofline of this GPU, with all steps of a ladder")
    starting = commands.add_parser("start", help="print a .cu file to begin with")
    for command in (comparing, roof, starting):
        command.add_argument("op", choices=ops(), metavar="LADDER", help=f"one of {', '.join(ops())}")
    comparing.add_argument("kernel", type=Path, help="a .cu file, or a .py file with a function of the ladder's name")
    comparing.add_argument("--json", type=Path, metavar="FILE", help="also write the findings as JSON")
    comparing.add_argument(
        "--no-counters", dest="counters", action="store_false", help="read no hardware counters of a slow kernel"
    )
    roof.add_argument("--kernel", type=Path, metavar="FILE", help="also a kernel of yours")
    roof.add_argument("--plot", type=Path, metavar="FILE", help="also draw a picture, such as roofline.png")
    for command in (comparing, roof):
        command.add_argument("--time-limit", type=float, default=120, metavar="SECONDS", help="default 120")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
