"""Runs the named demos, or all of them: ``python -m examples [NAME ...]``. Exit code 1 if one fails."""

import argparse
import importlib
import pkgutil
import sys

import torch
from rich.console import Console

import examples
from examples._report import Report

CPU_ONLY = (
    "No CUDA device here: the GPU kernels of gpuopt were NOT run. On the CPU gpuopt calls PyTorch's own kernels (ATen),\n"
    "so the results and times below are PyTorch's. They say nothing about the speed of gpuopt."
)


def demos() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(examples.__path__) if not module.name.startswith("_"))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples", description="Demos of gpuopt on real input.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which demos; all of them if none is given: {', '.join(demos())}"
    )
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in demos()]
    if unknown:
        parser.error(f"no demo is called {unknown[0]!r}; there are: {', '.join(demos())}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    report = Report("cuda" if torch.cuda.is_available() else "cpu", console)
    if report.device == "cpu":
        report.note(CPU_ONLY)
    else:
        report.note(f"Running on {torch.cuda.get_device_name()}.")
    failed = []
    for name in args.names or demos():
        demo = importlib.import_module(f"examples.{name}")
        console.rule(demo.TITLE)
        try:
            demo.run(report)
        except Exception:
            console.print_exception()
            failed.append(name)
    console.print(report.table())
    report.note("error: relative to the result in float64.")
    if report.device == "cpu":
        report.note(CPU_ONLY)
    for name in failed:
        print(f"examples: the demo {name} FAILED; its error is above.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
