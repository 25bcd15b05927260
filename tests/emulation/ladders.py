"""Helpers for tests of emulated ladders."""

from __future__ import annotations

import re

import numpy as np
import pytest

from .build import CSRC
from .memory import Memory

POISON = 0xCD
SIZES = [0, 1, 2, 3, 5, 31, 32, 33, 255, 256, 257, 511, 512, 513, 1000, 4099]


def steps(room: str, table: str = "kLadder") -> list:
    """The numbers of a ladder's steps, without the last one, which calls the production operator and has no kernel of its own."""
    text = next((CSRC / room).rglob(f"{room}_ladder.h")).read_text()
    begin = text.index(f" {table}[] = {{")
    names = re.findall(r'^    \{"([a-z0-9_]+)"', text[begin : text.index("};", begin)], re.MULTILINE)
    assert names[-1] == "production"
    return [pytest.param(number, id=name) for number, name in enumerate(names[:-1])]


def put(memory: Memory, values: np.ndarray, align: int = 16) -> np.ndarray:
    """Copies the values into the memory, as near its end as a multiple of `align` bytes allows. A read past the end faults."""
    begin = (len(memory.bytes) - values.nbytes) // align * align
    memory.bytes[:] = POISON
    placed = memory.bytes[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    placed[...] = values
    return placed
