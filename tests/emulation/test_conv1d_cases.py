"""The kernels of convolutions that take rows or values: their cases, each at its ends. And launches in parts."""

from __future__ import annotations

import ctypes

import pytest

from .conv1d_model import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    CHUNKS,
    COLUMNS,
    DTYPES,
    F16,
    F32,
    F64,
    FAN,
    FORWARD,
    NONE,
    ROWS,
    VALUES,
    Given,
    GivenSignal,
    Layout,
    Problem,
    Taken,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("channels", [(1, 1), (2, 4)])
def test_every_end_of_a_row(conv1d, dtype, dilation, channels):
    """Rows that begin and end anywhere in their packs, in memory that begins and ends there too."""
    values = 16 // dtype.numpy.itemsize
    for size in (1, values - 1, values, values + 1, 3 * values + 1):
        for own, other in ((0, 0), (0, 1), (1, 0), (values - 1, 1)):
            for at_end in (False, True):
                signals = [Layout(offset=o, at_end=at_end) for o in (own, other)]
                rest = {"dilation": dilation, "layouts": (*signals, Layout()), "special": int(at_end), "seed": size}
                problem = Problem(dtype, 2, 1, channels, size, 3, padding=(at_end * 4, dilation * 2), **rest)
                for which in (FORWARD, BACKWARD_INPUT):
                    assert problem.run(conv1d, which, row_threads=32).path == ROWS


@pytest.mark.parametrize(
    "size, batch, taps, dilation, limits, expected",
    [
        (9000, 1, 20, 1, {}, {"wide": 0, "threads": 128}),
        (9000, 1, 20, 1, {"wide_outputs": 1}, {"wide": 1, "threads": 128}),
        (9000, 1, 20, 3, {"wide_outputs": 1}, {"wide": 1, "dilated": 1}),
        (700, 7, 70, 16, {}, {"dilated": 1}),
        (1, 300, 4, 1, {}, {"block_rows": 128, "threads": 128}),
        (1, 300, 70, 1, {}, {"block_rows": 64, "threads": 64}),  # as taps of more rows don't fit
        (3, 100, 9, 2, {}, {"dilated": 1}),
    ],
)
def test_rows_of_many_blocks_and_blocks_of_many_rows(conv1d, size, batch, taps, dilation, limits, expected):
    for which in (FORWARD, BACKWARD_INPUT):
        problem = Problem(F32, batch, 1, (1, 1), size, taps, 1, ((taps - 1) * dilation, 0), dilation)
        taken = problem.run(conv1d, which, **limits)
        assert taken.path == ROWS and {name: getattr(taken, name) for name in expected} == expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weight_gradients_of_any_taps(conv1d, dtype):
    for taps, own in ((1, 4), (4, 4), (5, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32), (33, 32), (70, 32)):
        problem = Problem(dtype, 3, 1, (1, 2), 50, taps, 1, (taps // 2, taps), seed=taps)
        taken = problem.run(conv1d, BACKWARD_WEIGHT)
        own = min(own, 16) if dtype is F64 else own
        assert (taken.path, taken.taps, taken.tap_parts) == (ROWS, own, -(-taps // own))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("splits", [1, 5, 40])
def test_weight_gradients_of_many_tiles(conv1d, dtype, splits, dilation):
    """A block works on one tile while the next one is copied."""
    limits = {"weight_blocks": splits, "weight_units": 1}
    layouts = (Layout(offset=1), Layout(), Layout())
    problem = Problem(dtype, 3, 1, (1, 1), 12000, 5, 1, (2, 2), dilation, layouts=layouts)
    taken = problem.run(conv1d, BACKWARD_WEIGHT, **limits)
    assert (
        taken.path == ROWS
        and taken.dilated == (dilation > 1)
        and (taken.splits > 1) == (splits > 1)
        and taken.splits <= splits
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packs, width", [(1, 1), (2, 2), (3, 4), (8, 8), (16, 16), (33, 32)])
def test_weight_gradients_by_packs_of_channels(conv1d, dtype, packs, width):
    """Rows of lanes that have nothing to do, parts of rows, parts of taps, and splits."""
    values = 16 // dtype.numpy.itemsize
    last = Layout("middle", gaps=(values, 0, 0))
    for k, (size, taps, batch, sms) in enumerate(
        ((1, 1, 1, 1), (130, 4, 2, 1), (40, 5, 3, 1), (40, 17, 1, 1), (260, 3, 2, 40))
    ):
        problem = Problem(
            dtype, batch, packs * values, (1, 1), size, taps, 1, (taps // 2, taps), layouts=(last, last, Layout()), seed=k
        )  # fmt: skip
        taken = problem.run(conv1d, BACKWARD_WEIGHT, sms=sms)
        assert (taken.path, taken.packed, taken.row_width) == (COLUMNS, 1, width)
        assert (taken.taps, taken.tap_parts) == ((4, 1) if taps <= 4 else (8, -(-taps // 8)))
        assert (taken.splits > 1) == (sms > 1 and width == 32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", ["middle", "last"])
@pytest.mark.parametrize("step", [1, 2])
def test_values_of_several_channels(conv1d, dtype, order, step):
    """A lane has four of the five or six channels of a group, and the next one the rest."""
    own, channels = Layout(order, step=2, offset=1), 1 if dtype is F64 else 4
    problem = Problem(dtype, 8, 2, (5, 6), 150, 3, step, (2, 0), 2, True, layouts=(own, own, Layout()))
    for which in (FORWARD, BACKWARD_INPUT):
        taken = problem.run(conv1d, which)
        assert (taken.path, taken.channels) == (VALUES, channels)
    for splits in (1, 400):
        problem.layouts = (own, Layout("last", step=2, at_end=True), Layout())
        taken = problem.run(conv1d, BACKWARD_WEIGHT, weight_blocks=splits, weight_units=1)
        assert (taken.path, taken.channels, taken.splits > 1) == (VALUES, channels, splits > 1)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_values_of_any_row(conv1d, step):
    """So many neighbouring lanes take a row that each has up to four places."""
    widths = set()
    for outputs in range(1, 201):
        dtype, channels = DTYPES[outputs % 4], (1, 1 + outputs % 5)
        size = (outputs - 1) * step + 3
        problem = Problem(dtype, 3, 2, channels, size, 3, step, layouts=(Layout(step=2), Layout(), Layout()))
        taken = problem.run(conv1d, FORWARD)
        width = next(width for width in (1, 2, 4, 8, 16, 32) if width * 4 >= outputs or width == 32)
        assert (taken.path, taken.row_width) == (VALUES, width)
        taken = problem.run(conv1d, BACKWARD_INPUT)
        assert taken.path == VALUES
        widths |= {width, taken.row_width}
    assert widths == {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize("order", ["plain", "packed"])
@pytest.mark.parametrize("which", [FORWARD, BACKWARD_INPUT])
def test_values_of_neighbouring_channels(conv1d, order, which):
    for channels in ((4, 5), (1, 1)):
        layouts = (Layout("middle", offset=1),) * 2 if order == "plain" else (Layout("middle", whole=8, offset=1),) * 2
        problem = Problem(F32, 2, 8, channels, 21, 3, 1, (1, 1), layouts=(*layouts, Layout()))
        taken = problem.run(conv1d, which)
        assert (taken.path, taken.channels, taken.channels_first) == (VALUES, 4 if channels[0] > 1 else 1, 1)


@pytest.mark.parametrize("which", [FORWARD, BACKWARD_INPUT])
@pytest.mark.parametrize("order", ["last", "middle"])
@pytest.mark.parametrize("step", [1, 2])
def test_launches_of_few_blocks(conv1d, which, order, step):
    """Parts of the images, and where there is one image, of the groups."""
    layouts = (Layout(order), Layout(order, offset=1), Layout())
    for batch, groups in ((7, 3), (1, 21)):
        problem = Problem(F32, batch, groups, (1, 4), 139, 3, step, (1, 1), bias=True, layouts=layouts)
        whole = problem.run(conv1d, which)
        assert whole.launches == 1
        # What is counted differs: lanes of rows, warps, blocks.
        cuts = [problem.run(conv1d, which, kMaxIndex32=most) for most in (450, 262, 1)]
        assert any(cut is not None and cut.launches > 1 for cut in cuts)


def fields_of(taken: Taken, expected: dict) -> dict:
    return {name: getattr(taken, name) for name in expected}


WIDE = {"wide_outputs": 1}
LAST, ODD, STEP = Layout("middle"), Layout("middle", offset=1), Layout(step=2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "channels, taps, dilation, limits, expected",
    [
        (channels, taps, dilation, limits, wide | {"channels": channels[1], "slides": taps > 16 and dilation == 1})
        for channels, limits, wide in (((2, 1), {}, {"wide": 0}), ((2, 1), WIDE, {"wide": 1}), ((2, 4), {}, {"wide": 0}))
        for taps, dilation in ((2, 1), (20, 1), (20, 3))
    ],
)  # fmt: skip
def test_every_kernel_of_rows(conv1d, dtype, channels, taps, dilation, limits, expected):
    expected = {**expected, "dilated": dilation > 1}
    problem = Problem(dtype, 2, 3, channels, 64, taps, 1, (0, (taps - 1) * dilation), dilation, True, special=1)
    taken = problem.run(conv1d, FORWARD, **limits)
    assert (taken.path, fields_of(taken, expected)) == (ROWS, expected)
    problem.channels = channels[::-1]
    taken = problem.run(conv1d, BACKWARD_INPUT, **limits)
    assert (taken.path, fields_of(taken, expected)) == (ROWS, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("taps, step, dilation", [(1, 1, 1), (4, 1, 1), (9, 1, 1), (3, 1, 2), (3, 2, 1), (3, 3, 2)])
def test_every_kernel_of_columns(conv1d, dtype, taps, step, dilation):
    """Weight gradients of packs of channels have a test of their own."""
    for groups in (8, 40, 136):
        problem = Problem(
            dtype, 2, groups, (1, 1), 37, taps, step, (1, 2), dilation, True, layouts=(LAST, LAST, Layout()), special=1
        )  # fmt: skip
        assert problem.run(conv1d, FORWARD).path == COLUMNS
        assert problem.run(conv1d, BACKWARD_INPUT).path == (COLUMNS if step == 1 else VALUES)
        problem.layouts = (ODD, LAST, Layout())
        for splits in (1, 400):
            taken = problem.run(conv1d, BACKWARD_WEIGHT, weight_blocks=splits, weight_units=1)
            expected = {"path": COLUMNS, "packed": 0, "tap_parts": -(-taps // 8)}
            assert (fields_of(taken, expected), taken.splits > 1) == (expected, splits > 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("own", [ODD, STEP], ids=["last", "step"])
@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize("taps, step, dilation", [(1, 1, 1), (9, 1, 1), (3, 2, 1), (3, 3, 2)])
def test_every_kernel_of_values(conv1d, dtype, own, channels, taps, step, dilation):
    problem = Problem(
        dtype, 2, 8, (channels, channels), 37, taps, step, (1, 8), dilation, True, layouts=(own, own, Layout()), special=1
    )  # fmt: skip
    expected = {"channels": 4 if channels > 3 and dtype is not F64 else 1, "channels_first": own is ODD}
    for which in (FORWARD, BACKWARD_INPUT):
        taken = problem.run(conv1d, which)
        assert (taken.path, fields_of(taken, expected)) == (VALUES, expected)
    if own is STEP:
        problem.batch = 24
        for splits in (1, 4000):
            taken = problem.run(conv1d, BACKWARD_WEIGHT, weight_blocks=splits, weight_units=1)
            parts = (taken.path, taken.channels, taken.splits > 1, taken.tap_parts)
            assert parts == (VALUES, expected["channels"], splits > 1, -(-taps // 8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "path, groups, channels, step, most, limits",
    [
        (CHUNKS, 3, (2, 1), 1, 258, {"chunk_outputs": 1}),
        (ROWS, 3, (1, 4), 1, 350, {}),
        (FAN, 2, (1, 9), 2, 2, {}),
        (COLUMNS, 16, (1, 1), 1, 2, {}),
        (VALUES, 3, (1, 4), 2, 262, {}),
    ],
)
def test_every_path_in_parts(conv1d, dtype, path, groups, channels, step, most, limits):
    out = {FAN: Layout(whole=16), COLUMNS: Layout("middle")}.get(path, Layout())
    layouts = (Layout("middle") if path == COLUMNS else Layout(), out, Layout())
    problem = Problem(dtype, 5, groups, channels, 60, 3, step, (1, 1), bias=True, layouts=layouts)
    taken = problem.run(conv1d, FORWARD, kMaxIndex32=most, **limits)
    assert taken.path == path and taken.launches > 1


def signals_of(batch, groups, channels, sizes, last: bool) -> list[GivenSignal]:
    """Of contiguous or channels-last rows, one element behind an aligned address."""
    made = []
    for c, size in zip(channels, sizes):
        strides = (groups * c * size, 1, groups * c) if last else (groups * c * size, size, 1)
        made.append(GivenSignal((1 << 20) + 2, *strides, c, size))
    return made


@pytest.mark.parametrize(
    "batch, groups, channels, size, step, last",
    [
        (2**31 + 5, 1, (1, 1), 3, 1, False),
        (2**24, 2**10, (1, 1), 9, 1, False),
        (1, 2**25, (1, 1), 2**10, 1, False),
        (2**31 + 5, 1, (1, 1), 4, 2, False),
        (5, 1, (1, 1), 2**33, 1, False),
        (2**18, 2**10, (1, 1), 2**7, 1, True),
        (2**10, 9, (1, 1), 2**22, 3, True),
        (2**30, 1, (8, 32), 2, 2, True),
    ],
)
def test_large_problems_are_launched_in_parts(conv1d, batch, groups, channels, size, step, last):
    """As many as hold all outputs, of so few lanes that kernels can count them. (Not run: no memory holds them.)"""
    conv1d.set_limits(chunk_outputs=256)
    taps = 2
    out_size = (size + 1 - taps) // step + 1
    signals = signals_of(batch, groups, channels, (size, out_size), last)
    weight = (1 << 20, channels[1] * channels[0] * taps, channels[0] * taps, taps, 1)
    for which in (FORWARD, BACKWARD_INPUT):
        problem = Given(*signals, *weight, 0, 1, F16.number, batch, groups, taps, step, 1, 1, NONE)
        blocks, taken = ctypes.c_int64(), Taken()
        count = conv1d.kernels.launches(ctypes.byref(problem), which, 132, ctypes.byref(blocks), ctypes.byref(taken))
        written = signals[which == FORWARD]
        assert count >= 1 and 1 <= blocks.value < 2**31
        # A lane has at most 4 channels of 8 values.
        assert count * blocks.value * 256 * 32 >= batch * groups * written.channels * written.size
        if taken.path == ROWS:
            assert blocks.value * taken.threads < 2**31
        elif taken.path == CHUNKS:  # warps are counted
            assert blocks.value * taken.threads // 32 < 2**31
        elif taken.path == VALUES:  # lanes are, or where their places are neighbours as many as are side by side
            assert blocks.value * 256 // taken.row_width < 2**31
