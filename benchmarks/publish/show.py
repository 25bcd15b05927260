"""Shows the results of an earlier run: its tables, and with --plots its plots.

python -m benchmarks show benchmarks/results/nvidia-h200/elementwise.json
python -m benchmarks show --plots build benchmarks/results/nvidia-h200/ladder/mul.json
"""

import sys
from pathlib import Path

from rich.console import Console

from benchmarks.harness import command, report
from benchmarks.ladder import in_flight
from benchmarks.ladder import report as ladder
from benchmarks.models import report as models
from benchmarks.random import report as problems


def show(result: dict, console: Console) -> None:
    texts = {"models": models.text, "sweep": problems.table}
    if result["room"] in texts:
        print(texts[result["room"]](result))
    elif result["room"] == in_flight.OP:
        in_flight.show(result, console)
    else:
        (ladder if ladder.is_ladder(result) else report).show(result, console)


def main(argv: list[str]) -> int:
    parser = command.parser("show", __doc__)
    parser.add_argument("files", nargs="+", metavar="JSON", type=Path)
    parser.add_argument("--plots", metavar="DIR", type=Path, help="draw the plots into this folder")
    arguments = parser.parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else command.PIPE_WIDTH)
    for path in arguments.files:
        try:
            result = report.load(path)
        except ValueError as error:
            return command.failed(error)
        show(result, console)
        if arguments.plots:
            from benchmarks.publish import plots

            for drawn in plots.draw(result, arguments.plots, path.stem):
                console.print(f"wrote {drawn}", highlight=False, soft_wrap=True)
    return 0
