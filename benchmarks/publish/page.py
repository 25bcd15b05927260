"""Pages with generated parts, each between two comments. The text around the parts is written by hand and does not change."""

import re

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
