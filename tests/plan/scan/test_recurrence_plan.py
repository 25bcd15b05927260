"""The planner of scans with two inputs: which paths read both in vectors, and where the halves of a problem begin."""

from __future__ import annotations

import ctypes
import math

import pytest

from tools.test_build import load

from .scan_problem import COLUMNS, PACKED, ROWS, SPLIT_COLUMNS, SPLIT_ROWS, Given
from .test_scan_plan import BASE, Problem, plans


@pytest.fixture(scope="session")
def planner():
    found = load("plan/scan")
    found.plans.restype = ctypes.c_char_p
    return found


def recurrence(sizes, scanned, a_strides, a_offset=0) -> Given:
    """A recurrence of dense float32 tensors whose factors have the given strides and begin at an offset."""
    problem = Problem(sizes, [math.prod(sizes[:d]) for d in range(len(sizes))], scanned)
    given, array = problem.given(), ctypes.c_int64 * len(sizes)
    kept = [1 if d == scanned else n for d, n in enumerate(sizes)]
    given.second_strides = array(*a_strides)
    given.initial_strides = array(*(0 if d == scanned else math.prod(kept[:d]) for d in range(len(sizes))))
    given.second, given.initial = BASE + 4 * a_offset, 2 * BASE
    return given


@pytest.mark.parametrize(
    "sizes, scanned, a_strides, offset, path, values, one",
    [
        ([64, 300], 0, [1, 64], 0, PACKED, 4, False),
        ([64, 300], 0, [1, 64], 1, PACKED, 1, False),  # misaligned
        ([64, 300], 0, [0, 1], 1, PACKED, 4, True),  # a factor for each row
        ([33, 300], 0, [1, 33], 0, PACKED, 4, False),
        ([33, 300], 0, [0, 0], 0, PACKED, 4, True),
        ([33, 300], 0, [0, 1], 0, PACKED, 1, True),  # a vector would hold values of several rows
        ([33, 300], 0, [1, 0], 0, PACKED, 1, False),
        ([33, 300], 0, [1, 36], 0, PACKED, 1, False),
        ([2000, 3], 0, [1, 2000], 0, ROWS, 4, False),
        ([2000, 3], 0, [1, 2001], 0, SPLIT_ROWS, 1, False),  # rows begin inside a vector
        ([2000, 600], 0, [1, 2001], 0, ROWS, 4, False),  # and there are many
        ([2000, 3], 0, [2, 4000], 0, SPLIT_ROWS, 1, False),
        ([2001, 3], 0, [1, 2001], 0, ROWS, 4, False),  # all begin at the same offset in a vector
        ([2001, 3], 0, [1, 2001], 1, SPLIT_ROWS, 1, False),
        ([2001, 3], 0, [0, 1], 1, ROWS, 4, True),
        ([2000, 3], 0, [0, 1], 0, ROWS, 4, True),
        ([20000, 2], 0, [1, 0], 0, SPLIT_ROWS, 4, False),
        ([8, 60, 33], 1, [1, 8, 480], 0, COLUMNS, 4, False),
        ([8, 60, 33], 1, [1, 9, 540], 0, COLUMNS, 1, False),
        ([8, 60, 33], 1, [0, 1, 0], 3, COLUMNS, 4, True),  # a factor for each position
        ([8, 60, 33], 1, [1, 0, 0], 0, COLUMNS, 4, False),
        ([8, 20000], 1, [0, 0], 0, SPLIT_COLUMNS, 4, True),
    ],
)
def test_second_input(planner, sizes, scanned, a_strides, offset, path, values, one):
    (plan,) = plans(planner, recurrence(sizes, scanned, a_strides, offset))
    assert (plan["path"], plan["values"], plan["second_is_one"]) == (path, values, one)


def test_halves_of_two_inputs(planner):
    """The second half begins at row 64 in each tensor."""
    parts = plans(planner, recurrence([8, 128], 0, [1, 10]), limit=64)
    assert [(part["second"], part["initial"]) for part in parts] == [
        (BASE, 2 * BASE),
        (BASE + 4 * 640, 2 * BASE + 4 * 64),
    ]
