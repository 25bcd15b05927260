"""Pages with generated parts, each between two comments. The text around the parts is written by hand and does not change."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import machine

PART = re.compile(r"<!-- begin: (?P<name>\w+) -->\n.*?<!-- end: (?P=name) -->\n", re.DOTALL)


def part(name: str, text: str) -> str:
    return f"<!-- begin: {name} -->\n{text.rstrip()}\n<!-- end: {name} -->\n"


def filled(page: str, parts: dict[str, str], old: str | None) -> str:
    """The old page with new parts, or only the parts if there is no old page.

    Raises ValueError if the old page lacks one of the parts or has a part with an unknown name.
    """
    if old is None:
        return "\n".join(part(name, text) for name, text in parts.items())
    found = [match["name"] for match in PART.finditer(old)]
    for name in found:
        if name not in parts:
            raise ValueError(f"{page} has a part {name!r}, which nothing fills")
    missing = [name for name in parts if name not in found]
    if missing:
        raise ValueError(f"{page} has no part for {', '.join(missing)}")
    return PART.sub(lambda match: part(match["name"], parts[match["name"]]), old)


def cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def stale(made: dict[Path, str]) -> list[Path]:
    return [path for path, text in made.items() if not path.exists() or path.read_text() != text]


def update(module: str, usage: str, argv: list[str], pages: Callable[[], dict[Path, str]]) -> int:
    """Writes the pages that are out of date, or with --check only reports them. Returns the command's exit code."""
    if argv not in ([], ["--check"]):
        print(usage, file=sys.stderr)
        return 2
    made = pages()
    old = stale(made)
    names = [str(path.relative_to(machine.REPOSITORY)) for path in old]
    if argv:
        for name in names:
            print(f"{name} is out of date: python -m {module}", file=sys.stderr)
        return 1 if old else 0
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
    print(f"written: {', '.join(names) or 'nothing, all pages are up to date'}")
    return 0
