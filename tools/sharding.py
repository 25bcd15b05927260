"""Writes the table of rules in docs/distributed.md: python -m tools.sharding."""

from __future__ import annotations

import re
from pathlib import Path

from torch_ops.distributed._rules import RULES, Rule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "distributed.md"
BEGIN, END = "<!-- rules, by python -m tools.sharding -->\n", "<!-- end of rules -->"


def axes_of(form: str) -> list[str]:
    """The axes that may be sharded, in the order in which a rule names them."""
    arguments = form.partition("->")[0]
    words = re.findall(r"\.\.\.|%\w*|\b[a-z]\b:?", re.sub(r"&?\b\w+(?=\()", "", arguments))
    others = "any dimension" if form.startswith(("self(...)", "x(...)", "a(...)")) else "`...`"
    axes = ["dimensions other than `dim`" if w[0] == "%" else others if w == "..." else f"`{w}`" for w in words]
    if "(%r)" in form:
        axes = ["any dimension"]
    return list(dict.fromkeys(axis for axis in axes if ":" not in axis))


def partial_of(rule: Rule) -> str:
    """The axes whose shards give partial results."""
    sums = [text.replace("[h]", "h") for text in re.findall(r"/([\w~]+)", rule.form.partition("->")[2])]
    axes = list(dict.fromkeys("".join(sums)))
    kind = {"sum": "sums", "avg": "means", "max": "maxima", "min": "minima"}[rule.partial]
    names = ["`dim`" if "(%r)" in rule.form else "`...`" if axis == "~" else f"`{axis}`" for axis in axes]
    return f"{kind} over {', '.join(names)}" if names else ""


def table() -> str:
    lines = ["| operator | rule | may be sharded | gives partial | partial in, partial out |", "|---|---|---|---|---|"]
    for name, rule in RULES.items():
        form = rule.form.replace("|", "\\|")
        linear = ", or ".join(" and ".join(f"`{argument}`" for argument in group.split()) for group in rule.linear)
        axes = ", ".join(axes_of(rule.form)) or "nothing"
        lines.append(f"| `{name}` | `{form}` | {axes} | {partial_of(rule)} | {linear} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the table."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
