"""Writes the pages that show committed results, where they are out of date.

    python -m benchmarks pages                 every page
    python -m benchmarks pages speed ladders   some of them
    python -m benchmarks pages --check         only names the pages that are out of date, with exit code 1
    python -m benchmarks pages --old           writes them from results that are older than their kernels, which they then say

The text around the generated parts of a page is written by hand and does not change. `python -m benchmarks show` draws the plots.
"""

import importlib
import sys
from pathlib import Path

from benchmarks.harness import command, machine
from benchmarks.publish import age

# Each has a function pages(told), which makes the text of its pages. ``told`` is the argument of age.check.
MAKERS = (
    "readme",
    "speed",
    "random",
    "models",
    "layouts",
    "graphs",
    "override",
    "ladders",
    "conv1d_paths",
    "partitioned",
    "distributed",
    "practise",
)


def made(names: list[str], told: bool | None = None) -> dict[Path, str]:
    modules = [importlib.import_module(f"benchmarks.publish.{name}") for name in names]
    return {path: text for module in modules for path, text in module.pages(told).items()}


def stale(pages: dict[Path, str]) -> list[Path]:
    """The pages whose text is another one. What they say about old files does not count."""

    def figures(text: str) -> str:
        return age.LINE.sub("", text)

    return [path for path, text in pages.items() if not path.exists() or figures(path.read_text()) != figures(text)]


def main(argv: list[str]) -> int:
    parser = command.parser("pages", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MAKERS)}")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--old", action="store_true", help="write pages from old results, too")
    arguments = parser.parse_args(argv)
    names = arguments.names or list(MAKERS)
    command.check_names(parser, "page", names, MAKERS)
    if arguments.check:
        changed = stale(made(names))
        for path in changed:
            print(f"{path.relative_to(machine.REPOSITORY)} is out of date: python -m benchmarks pages", file=sys.stderr)
        return 1 if changed else 0
    try:
        texts = made(names, arguments.old)
    except age.Old as error:
        command.failed(error)
        return 1
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[path])
    written = ", ".join(str(path.relative_to(machine.REPOSITORY)) for path in changed)
    print(f"written: {written or 'nothing, all pages are up to date'}")
    return 0
