"""Plans of the fused gradient of depthwise convolutions: what it supports, and how it splits sums."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest

from tools import test_build

from ...support.conv1d_problem import (
    BFLOAT16,
    FLOAT32,
    FLOAT64,
    GELU,
    ITEM,
    NONE,
    RELU,
    SILU,
    Problem,
    Signal,
    problem_of,
    strides_of,
)

THREADS, MOST_SPLITS = 128, 4096


def result_of(p: Problem, last: bool) -> Signal:
    strides = strides_of("channels last" if last else "rows", p.batch, p.groups, p.from_.size, 1)
    return Signal(0, *strides, 1, p.from_.size)


@functools.cache
def library() -> ctypes.CDLL:
    loaded = test_build.load("plan/conv1d")
    loaded.fused.restype = ctypes.c_char_p
    return loaded


def plan(p: Problem, last: bool = False) -> list[int] | None:
    """The numbers of the plan, see fused() in conv1d_shim.cpp. None if the problem is not supported."""
    result = (ctypes.c_int64 * 6)(*vars(result_of(p, last)).values())
    return [int(word) for word in library().fused(p.numbers(), result).split()] or None


def causal(shape=(2, 64, 1000), taps=4, dtype=BFLOAT16, layout="rows", activation=SILU, **more) -> Problem:
    batch, channels, size = shape
    given = {"padding": (taps - 1, 0), "layouts": (layout,) * 2, **more}
    problem = problem_of(batch, channels, (1, 1), size, taps, dtype, **given)
    problem.activation = activation
    return problem


def test_supported_problems():
    for dtype in ITEM:
        for taps in (2, 3, 4):
            assert plan(causal(taps=taps, dtype=dtype)) and plan(causal(taps=taps, activation=NONE))
    assert plan(causal(padding=(1, 2))) and plan(causal(padding=(0, 0))) and plan(causal(padding=(9, 5)))
    assert plan(causal(layout="channels last"), last=True)
    assert plan(causal(layouts=("channels last", "expanded")), last=True)  # read one by one


@pytest.mark.parametrize(
    "problem",
    [
        causal(taps=1), causal(taps=5), causal(activation=RELU), causal(activation=GELU), causal(stride=2), causal(dilation=2),
        problem_of(2, 8, (2, 1), 100, 4), problem_of(2, 8, (1, 2), 100, 4), causal(layouts=("rows", "expanded")),
        causal(layouts=("strided", "rows")), causal((1, 1, 2**31)), causal(padding=(2**30, 0)),
    ],
)  # fmt: skip
def test_other_problems_are_not_supported(problem):
    assert plan(problem) is None


@pytest.mark.parametrize(
    "whole, more",
    [
        (1, {}),
        (0, {"shape": (2, 64, 999), "layouts": ("rows", "rows apart")}),  # rows begin at other offsets
        (1, {"shape": (2, 64, 999)}),  # rows begin at the same offsets
        (0, {"offsets": (1, 0)}),
        (0, {"offsets": (0, 1)}),
        (0, {"padding": (2, 1)}),  # outputs are shifted by one position
        (1, {"padding": (2, 4), "dtype": FLOAT32, "taps": 3}),
    ],
)
def test_vectors_of_rows(whole, more):
    assert plan(causal(**more))[0] == whole


@pytest.mark.parametrize(
    "values, more",
    [
        (4, {}), (2, {"dtype": FLOAT32}), (1, {"dtype": FLOAT64}), (1, {"shape": (2, 63, 1000)}),
        (1, {"offsets": (1, 0)}), (1, {"layouts": ("channels last", "rows")}),
    ],
)  # fmt: skip
def test_vectors_of_channels(values, more):
    has_vectors, own, *_ = plan(causal(**{"layout": "channels last", **more}), last=True)
    assert (has_vectors, own) == (values > 1, values)


def test_random_problems_are_covered():
    """The parts of a row cover all its positions, and the blocks all parts."""
    random, most = np.random.default_rng(0), 0
    for _ in range(3000):
        batch, channels, size = (int(2 ** random.uniform(0, k)) for k in (8, 13, 22))
        last, dtype, taps = bool(random.integers(2)), int(random.choice(list(ITEM))), int(random.integers(2, 5))
        padding = int(random.integers(9)), int(random.integers(9))
        layout = "channels last" if last else str(random.choice(["rows", "rows apart"]))
        p = causal((batch, channels, max(size, 4)), taps, dtype, layout, padding=padding)
        found = plan(p, last)
        if found is None:
            assert batch * channels * size > 2**31
            continue
        _, values, blocks, splits, parts, part_size, tiles, begin, end = found
        size, offset = p.from_.size, taps - 1 - padding[0]
        assert (begin, end) == (min(0, offset), max(size, p.to.size + offset))
        if not last or channels == 1 or size == 1:
            assert values == 0 and splits == batch * parts and parts <= MOST_SPLITS
            own = max(16 // ITEM[dtype], 4)
            width = min(1 << max(-(-(end - begin) // own) - 1, 0).bit_length(), 32)
            assert tiles * 32 * own >= end - begin and (parts - 1) * part_size < tiles <= parts * part_size
            assert parts == 1 or tiles >= 16
            assert blocks * THREADS >= batch * channels * parts * width
        else:
            assert values >= 1 and (parts - 1) * part_size < end - begin <= parts * part_size
            vecs = channels // values
            width = min(1 << max(vecs - 1, 0).bit_length(), 32)
            assert splits * (THREADS // width) >= batch * parts and blocks == splits * -(-vecs // width)
        most = max(most, splits)
    assert most > 1000
