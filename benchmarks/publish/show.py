"""Shows the results of an earlier run: its tables, and with --plots its plots.

python -m benchmarks show benchmarks/results/nvidia-h200/elementwise.json
python -m benchmarks show --plots build benchmarks/results/nvidia-h200/ladder/mul.json
"""

from pathlib import Path

from benchmarks.distributed import report as distributed
from benchmarks.harness import command, report
from benchmarks.ladder import in_flight
from benchmarks.ladder import measure as ladder
from benchmarks.ladder import report as ladder_report
from benchmarks.models import report as models
from benchmarks.partitioned import report as partitioned
from benchmarks.random import report as problems


def show(result: dict) -> None:
    texts = {"models": models.text, "sweep": problems.table, "partitioned": partitioned.text}
    texts["distributed"] = distributed.text
    if result["room"] in texts:
        print(texts[result["room"]](result))
    elif result["room"] == in_flight.OP or ladder_report.is_ladder(result):
        ladder.show(result)
    else:
        report.show(result)


def main(argv: list[str]) -> int:
    parser = command.parser("show", __doc__)
    parser.add_argument("files", nargs="+", metavar="JSON", type=Path)
    parser.add_argument("--plots", metavar="DIR", type=Path, help="draw the plots into this folder")
    parser.add_argument("--brief", action="store_true", help="a line for each case of a room or sweep")
    arguments = parser.parse_args(argv)
    for path in arguments.files:
        try:
            result = report.load(path)
        except ValueError as error:
            return command.failed(error)
        (report.brief if arguments.brief else show)(result)
        if arguments.plots:
            from benchmarks.publish import plots

            for drawn in plots.draw(result, arguments.plots, path.stem):
                print(f"wrote {drawn}")
    return 0
