"""Helpers for tests of emulated ladders."""

from __future__ import annotations

import numpy as np
import pytest

from torch_ops import ladder

from .memory import Memory

POISON = 0xCD
SIZES = [0, 1, 2, 3, 5, 31, 32, 33, 255, 256, 257, 511, 512, 513, 1000, 4099]


def steps(op: str) -> list:
    """The numbers of a ladder's steps, without the last one, which calls the production operator and has no kernel of its own."""
    *own, last = ladder.steps(op)
    assert last.name == "production"
    return [pytest.param(step.number, id=step.name) for step in own]


def put(memory: Memory, values: np.ndarray, align: int = 16) -> np.ndarray:
    """Copies the values into the memory, as near its end as a multiple of `align` bytes allows. A read past the end faults."""
    begin = (len(memory.bytes) - values.nbytes) // align * align
    memory.bytes[:] = POISON
    placed = memory.bytes[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    placed[...] = values
    return placed
