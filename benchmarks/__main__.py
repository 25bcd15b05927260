"""Measures operators, ladders and models, and writes what is published about them.

    python -m benchmarks mul --quick            one operator beside its peers, in a minute or two
    python -m benchmarks COMMAND --help         what a command does, and its options

Commands:
"""

import importlib
import sys

# Each command: its module, and what it does. A module is imported only to run its command.
COMMANDS = {
    "measure": ("rooms.measure", "chosen cases of operators and rooms; the default, if no command is named"),
    "sweep": ("random.sweep", "random problems of every operator"),
    "override": ("random.override_sweep", "random calls of ATen's operators that torch_ops.override takes"),
    "fuzz": ("random.fuzz", "random calls, compared with float64 and ATen; measures nothing"),
    "tune": ("random.tune", "every path of conv1d, and fits the costs that choose among them"),
    "ladder": ("ladder.measure", "every step of the optimisation ladders"),
    "models": ("models.measure", "real models with and without override"),
    "drop-ins": ("models.drop_ins", "trainings with and without drop-in replacements of packages"),
    "partitioned": ("partitioned.measure", "triangle counts of graphs that are partitioned over GPUs or processes"),
    "distributed": ("distributed.measure", "operators on sharded tensors over GPUs or processes"),
    "all": ("publish.all", "everything that is published, or what is older than its kernels"),
    "show": ("publish.show", "the tables of an earlier run, and its plots"),
    "pages": ("publish.pages", "writes the pages and tables that are out of date, from committed results"),
}


def main(argv: list[str]) -> int:
    if argv[:1] in (["-h"], ["--help"]):
        print(__doc__ + "\n".join(f"    {name:12}{text}" for name, (_, text) in COMMANDS.items()))
        return 0
    command, rest = (argv[0], argv[1:]) if argv[:1] and argv[0] in COMMANDS else ("measure", argv)
    return importlib.import_module(f"benchmarks.{COMMANDS[command][0]}").main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
