"""Gradients of groups of few input and many output channels: fan_input_kernel and fan_weight_*_kernel, each at its ends."""

from __future__ import annotations

import pytest

from .conv1d_model import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    BF16,
    F16,
    F32,
    F64,
    FAN_GRADIENTS,
    Layout,
    Problem,
)  # fmt: skip

FIRST = {"fan_gradient_channels": 1, "fan_gradient_first": 1}
PASSES = pytest.mark.parametrize("which", [BACKWARD_INPUT, BACKWARD_WEIGHT], ids=["input", "weight"])
DTYPES = pytest.mark.parametrize("dtype", [F16, F32], ids=str)


def fan(conv1d, problem: Problem, which, **limits):
    taken = problem.run(conv1d, which, **(FIRST | limits))
    assert taken.path == FAN_GRADIENTS
    return taken


@PASSES
@DTYPES
@pytest.mark.parametrize("step", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4])
def test_any_taps(conv1d, which, dtype, step, dilation):
    """Of which some meet the same places, or none meet some; with no padding, half of what they span and more than that."""
    for k, taps in enumerate((1, 2, 5, 12, 16)):
        span = (taps - 1) * dilation
        padding = ((0, span), (span // 2, span // 2 + 1), (span + step + 3, 2))[k % 3]
        problem = Problem(
            dtype, 1, 2, (1, 9), 130 + span + k, taps, step, padding, dilation, special=k % 3, seed=taps,
            layouts=(Layout(offset=k), Layout(offset=taps, gaps=(k % 2, 0, 0)), Layout()),
        )  # fmt: skip
        fan(conv1d, problem, which)


@PASSES
@DTYPES
def test_every_end_of_a_row(conv1d, which, dtype):
    """Rows that begin and end anywhere in their quads and tiles, in memory that begins and ends there too."""
    for size in (1, 2, 3, 4, 5, 33, 61, 64, 65, 509, 512):
        for own, other in ((0, 0), (1, 1), (3, 2), (2, 7)):
            at_end = (own + size) % 2 > 0
            signals = [Layout(offset=o, at_end=at_end) for o in (own, other)]
            problem = Problem(
                dtype, 1 + size % 2, 1, (1 + own % 2, 8), size * 2, 3, 2, (1, other), layouts=(*signals, Layout()), special=int(at_end), seed=size
            )  # fmt: skip
            fan(conv1d, problem, which)


@PASSES
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize("channels", [(1, 1), (3, 2), (1, 16), (2, 17), (8, 5), (5, 70), (1, 140), (7, 33)])
def test_any_channels(conv1d, which, dtype, channels):
    """More than a block takes; rows that are aligned alike every one, two and four channels; parts of the input channels and products."""
    for taps, step in ((1, 3), (5, 2), (9, 1), (32, 4)):
        for gap in (0, 1 + taps % 2):
            problem = Problem(
                dtype, 1, 2, channels, 64 + taps, taps, step, (taps // 2, taps // 2), seed=taps + gap, special=gap % 2,
                layouts=(Layout(offset=gap), Layout(gaps=((-(64 // step + 1)) % 4 + gap, 0, gap)), Layout("first")),
            )  # fmt: skip
            fan(conv1d, problem, which)


@DTYPES
def test_warps_that_share_places(conv1d, dtype):
    """Where channels are many, and where rows are aligned alike only every so many channels."""
    met = set()
    for channels in (4, 40, 80, 160):
        for gap in (0, 1, 2):
            problem = Problem(
                dtype, 1, 1, (1, channels), 600, 6, 3, (2, 2), seed=channels, layouts=(Layout(), Layout(gaps=(gap, 0, 0)), Layout())
            )  # fmt: skip
            met.add(fan(conv1d, problem, BACKWARD_INPUT).splits)
    assert met == {1, 2, 4, 8} if dtype is not F32 else {1, 2, 4, 8} >= met


@DTYPES
def test_sums_that_are_split(conv1d, dtype):
    """Over blocks, which leave partial sums; and not."""
    met = set()
    for batch, size, sms in ((1, 20, 8), (3, 700, 8), (40, 3, 8), (2, 900, 1)):
        problem = Problem(dtype, batch, 1, (1, 24), size, 5, 1, (2, 2), seed=size, special=sms % 2)
        taken = fan(conv1d, problem, BACKWARD_WEIGHT, sms=sms, weight_units=1)
        met.add((taken.splits > 1, taken.workspaces))
    assert met == {(False, 0), (True, 1)}


@PASSES
@DTYPES
def test_many_taps(conv1d, which, dtype):
    """As many as a block's sums hold."""
    for taps in (31, 32) if dtype is F32 else (33, 48, 63, 64):
        problem = Problem(dtype, 1, 1, (2, 264), 88, taps, 1, (taps // 2, (taps - 1) // 2), seed=taps, special=taps % 2)
        fan(conv1d, problem, which)


@DTYPES
def test_taps_that_shared_memory_does_not_hold(conv1d, dtype):
    """The taps of some channels after those of others, for two tiles of two images."""
    taps = 32 if dtype is F32 else 48
    problem = Problem(dtype, 2, 1, (1, 330), 598, taps, 2, (taps // 2, taps // 2), special=1)
    assert fan(conv1d, problem, BACKWARD_INPUT).splits == 1


@PASSES
def test_infinite_values_make_no_nan_elsewhere(conv1d, which):
    for dtype in (F16, F32):
        for step in (1, 3):
            problem = Problem(
                dtype, 1, 1, (1, 20), 200, 7, step, (3, 0), infinite=(0, 17, 199), special=int(which == BACKWARD_INPUT)
            )
            fan(conv1d, problem, which)


def test_what_is_left_to_others(conv1d):
    """Doubles, steps without a table, taps beyond a block's sums or its places, other strides."""
    for dtype, taps, step, dilation, layout in (
        (F64, 3, 2, 1, Layout()),
        (F16, 3, 65, 1, Layout()),
        (F16, 65, 2, 1, Layout()),
        (F32, 33, 2, 1, Layout()),
        (F16, 3, 1, 300, Layout()),
        (F16, 3, 2, 1, Layout("middle")),
    ):
        span = (taps - 1) * dilation
        problem = Problem(
            dtype, 1, 1, (1, 8), 300 + span, taps, step, (span, span), dilation, layouts=(Layout(), layout, Layout())
        )
        assert problem.run(conv1d, BACKWARD_INPUT, **FIRST).path != FAN_GRADIENTS
