"""Pages with generated parts, each between two comments. The text around the parts is written by hand and does not change."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import age, machine

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


def with_part(page: Path, name: str, text: str) -> str:
    """The page with one of its parts made anew. ValueError where it has no such part."""
    old = page.read_text()
    if not any(match["name"] == name for match in PART.finditer(old)):
        raise ValueError(f"{page.name} has no part {name!r}")
    return PART.sub(lambda match: part(name, text) if match["name"] == name else match[0], old)


def cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def stale(made: dict[Path, str]) -> list[Path]:
    """The pages whose text is another one. What they say about old files does not count."""

    def figures(text: str) -> str:
        return age.LINE.sub("", text)

    return [path for path, text in made.items() if not path.exists() or figures(path.read_text()) != figures(text)]


def update(module: str, usage: str, argv: list[str], pages: Callable[[bool | None], dict[Path, str]]) -> int:
    """Writes the pages that are out of date, or with --check only reports them. Returns the command's exit code.

    ``pages`` makes all pages. Its argument says what happens to old results: they are noted (True), refused (False), or not looked
    for (None).
    """
    if argv not in ([], ["--check"], ["--old"]):
        print(usage, file=sys.stderr)
        return 2
    if argv == ["--check"]:
        names = [str(path.relative_to(machine.REPOSITORY)) for path in stale(pages(None))]
        for name in names:
            print(f"{name} is out of date: python -m {module}", file=sys.stderr)
        return 1 if names else 0
    try:
        made = pages(argv == ["--old"])
    except age.Old as error:
        print(f"{module}: {error}", file=sys.stderr)
        return 1
    changed = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    names = [str(path.relative_to(machine.REPOSITORY)) for path in changed]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
    print(f"written: {', '.join(names) or 'nothing, all pages are up to date'}")
    return 0
