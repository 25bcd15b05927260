"""Writes torch_ops/ops.pyi, the types of torch.ops.gpuopt, from the registered schemas: python -m tools.stubs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch

STUB = Path(__file__).resolve().parent.parent / "torch_ops" / "ops.pyi"
HEADER = '''\
"""Types of the operators of torch.ops.gpuopt. Written by python -m tools.stubs."""

from collections.abc import Sequence
from typing import overload

from torch import Tensor, dtype
from torch.types import Number
'''


def type_of(written: str) -> str:
    """A type of a schema in Python, such as ``SymInt[1]?``."""
    if written.endswith("?"):
        return f"{type_of(written[:-1])} | None"
    if match := re.fullmatch(r"(\w+)\[(\d*)\]", written):
        inner = type_of(match[1])
        return f"{inner} | Sequence[{inner}]" if match[2] == "1" else f"Sequence[{inner}]"
    written = re.sub(r"\(.*?\)", "", written)
    names = {"SymInt": "int", "Scalar": "Number", "ScalarType": "dtype", "Dimname": "str"}
    return names.get(written, written)


def argument(text: str) -> str:
    """An argument of a schema in Python."""
    declared, equals, default = text.partition("=")
    written, _, name = declared.strip().rpartition(" ")
    default = {"True": "True", "False": "False", "None": "None"}.get(default, default)
    if default.startswith("["):
        inner = default[1:-1]
        default = f"({inner})" if not inner or "," in inner else f"({inner},)"
    return f"{name}: {type_of(written)}" + (f" = {default}" if equals else "")


def split(text: str) -> list[str]:
    """Parts between commas that stand outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def result(text: str) -> str:
    if text.startswith("("):
        return f"tuple[{', '.join(type_of(part.split(' ')[0]) for part in split(text[1:-1]))}]"
    return type_of(text)


def signature(schema: str) -> str:
    name, rest = schema.removeprefix("gpuopt::").split("(", 1)
    arguments, returned = rest.rsplit(") -> ", 1)
    parts = [
        part if part == "*" else argument(re.sub(r"\(\w+!? ?->?[^)]*\)|\(\w+!?\)", "", part))
        for part in split(arguments)
    ]
    returned = re.sub(r"\(\w+!?\)", "", returned)
    return f"def {name.split('.')[0]}({', '.join(parts)}) -> {result(returned)}: ..."


def stub() -> str:
    import torch_ops  # noqa: F401

    found: dict[str, list[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        # Names with a leading underscore are private.
        if schema.name.startswith("gpuopt::") and not schema.name.startswith("gpuopt::_"):
            found.setdefault(schema.name, []).append(signature(str(schema)))
    lines = [HEADER]
    for name in sorted(found):
        several = len(found[name]) > 1
        for line in sorted(found[name]):
            lines += ["@overload", line] if several else [line]
    return "\n".join(lines) + "\n"


def formatted(text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    command = [str(ruff if ruff.exists() else "ruff"), "format", "--stdin-filename", "ops.pyi", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    STUB.write_text(formatted(stub()))
