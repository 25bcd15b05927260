"""Lists the rooms of csrc, and the headers that do not include torch, directly or through other headers."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

CSRC = Path(__file__).resolve().parent.parent / "csrc"
TORCH_FOLDERS = ("ATen/", "c10/", "torch/", "caffe2/")
SHARED = ("binding", "common", "ladder", "override", "tuning")  # folders of csrc that are no rooms
ENGINES = ("index_sort", "rows")  # rooms without operators: other rooms launch their kernels


def rooms() -> tuple[str, ...]:
    """The rooms: a folder of csrc with a README.md for each algorithm."""
    return tuple(sorted({path.parent.name for path in CSRC.glob("*/README.md")} - set(SHARED)))


@cache
def includes(path: Path) -> tuple[str, ...]:
    return tuple(re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE))


@cache
def torch_includes(path: Path) -> tuple[str, ...]:
    """The chains of includes from this file to a header of torch, for example 'a.h > ATen/ATen.h'."""
    chains = []
    for name in includes(path):
        if name.startswith(TORCH_FOLDERS):
            chains.append(name)
        elif (CSRC / name).is_file():
            chains += [f"{name} > {chain}" for chain in torch_includes(CSRC / name)]
    return tuple(chains)


def headers() -> list[Path]:
    return sorted(path for ending in ("h", "cuh") for path in CSRC.rglob(f"*.{ending}"))


def torch_free_headers() -> list[Path]:
    return [path for path in headers() if not torch_includes(path)]
