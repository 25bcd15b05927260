"""Which path convolutions of each kind take, and how it is cut into blocks."""

from __future__ import annotations

import pytest

from tools.test_build import load

from ..conv1d_calls import MANY
from .conv1d_model import check
from .conv1d_planner import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    BFLOAT16,
    CHUNKS,
    COLUMNS,
    FAN,
    FLOAT16,
    FLOAT64,
    FORWARD,
    ITEM,
    ROWS,
    VALUES,
    problem_of,
)

LAST = {"layouts": ("channels last", "channels last")}
HALF, DOUBLE = {"dtype": FLOAT16}, {"dtype": FLOAT64}
ONE, TWO = ({"direct": 1, "warp_tiles": tiles} for tiles in (1, 2))  # of half types, from memory to registers


@pytest.fixture(scope="module")
def planner():
    return load("plan/conv1d")


def check_path(planner, which, arguments, rest, path, expected):
    plan = check(planner, problem_of(*arguments, **rest), which)
    assert plan.path == path and {name: getattr(plan, name) for name in expected} == expected


@pytest.mark.parametrize(
    "arguments, rest, path, expected",
    [
        # Of f32 and f64, rows with one output channel a group.
        ((8, 512, (1, 1), 4096, 4), {"padding": 3}, CHUNKS, {"warp_tiles": 3, "dilated": 0, "taps_pitch": 8}),
        ((1, 8, (1, 1), 4096, 4), {}, CHUNKS, {"warp_tiles": 1}),  # few warps
        ((1, 8, (1, 1), 4096, 4), {"dilation": 2}, CHUNKS, {"dilated": 1}),
        ((1, 8, (1, 1), 4096, 1), {"dilation": 2}, CHUNKS, {"dilated": 0}),
        ((1, 8, (1, 1), 4096, 4), {"dilation": 2} | DOUBLE, CHUNKS, {"dilated": 1, "taps_pitch": 4}),
        ((8, 512, (1, 1), 256, 4), {"padding": 3, "right": 0}, CHUNKS, {"row_lanes": 1}),  # rows of whole sectors
        ((8, 512, (1, 1), 257, 4), {"padding": 3, "right": 0}, CHUNKS, {"row_lanes": 1, "warp_tiles": 2}),
        ((8, 512, (1, 1), 255, 4), {"padding": 3, "right": 0} | DOUBLE, ROWS, {"channels": 1}),
        # Of f32 also cut into phases, by nothing but what lanes read at once,
        ((8, 512, (1, 1), 255, 4), {"padding": 3, "right": 0}, CHUNKS, {"polyphase": 1, "phases": 1, "products": 1}),
        ((8, 512, (1, 1), 150, 3), {"padding": 1}, CHUNKS, {"polyphase": 1}),
        ((8, 512, (1, 1), 149, 3), {"padding": 1}, ROWS, {}),
        ((8, 512, (1, 1), 200, 2), {}, ROWS, {}),
        ((1, 1, (1, 1), 2**20, 191), {"padding": 95}, CHUNKS, {"polyphase": 0}),
        ((1, 1, (1, 1), 2**20, 192), {"padding": 96}, CHUNKS, {"polyphase": 1, "products": 1}),
        ((1, 1, (1, 1), 2**22, 192), {"padding": 96}, CHUNKS, {"polyphase": 1, "products": 2}),
        ((8, 2, (2, 1), 4096, 8), {}, CHUNKS, {"polyphase": 0}),
        ((8, 2, (2, 1), 4096, 9), {}, CHUNKS, {"polyphase": 1, "stages": 2}),
        ((8, 2, (6, 1), 4096, 3), {}, CHUNKS, {"polyphase": 1, "stages": 6}),
        ((64, 8, (6, 1), 4096, 3), {}, CHUNKS, {"polyphase": 1, "stages": 2}),
        ((8, 2, (1, 2), 4096, 8), {}, ROWS, {}),
        ((8, 2, (1, 2), 4096, 9), {}, CHUNKS, {"polyphase": 1}),
        ((8, 2, (2, 2), 4096, 3), {}, CHUNKS, {"polyphase": 1}),
        ((8, 2, (1, 4), 4096, 9), {}, ROWS, {"channels": 4}),
        ((8, 2, (1, 4), 4096, 10), {}, CHUNKS, {"polyphase": 1}),
        ((8, 2, (2, 4), 4096, 25), {}, ROWS, {}),
        ((8, 2, (3, 8), 4096, 25), {}, CHUNKS, {"polyphase": 1}),
        # by a dilation,
        ((8, 512, (1, 1), 4096, 8), {"dilation": 2}, CHUNKS, {"polyphase": 0}),
        ((8, 512, (1, 1), 4096, 9), {"dilation": 2}, CHUNKS, {"polyphase": 1, "phases": 2, "products": 2}),
        (
            (1, 8, (1, 1), 4096, 9),
            {"dilation": 5},
            CHUNKS,
            {"polyphase": 1, "phases": 5, "products": 1, "phase_segments": 6},
        ),
        (
            (1, 8, (1, 1), 4096, 9),
            {"dilation": 6},
            CHUNKS,
            {"polyphase": 1, "phases": 6, "products": 2, "phase_segments": 10},
        ),
        ((1, 8, (1, 1), 4096, 23), {"dilation": 17}, CHUNKS, {"polyphase": 0}),
        ((1, 8, (1, 1), 4096, 24), {"dilation": 17}, CHUNKS, {"polyphase": 1, "phase_segments": 3}),
        ((1, 8, (1, 1), 4096, 24), {"dilation": 33}, CHUNKS, {"polyphase": 0}),
        # or by a step.
        ((8, 512, (1, 1), 4096, 9), {"step": 2}, CHUNKS, {"polyphase": 0, "strided": 1}),
        ((8, 512, (1, 1), 4096, 10), {"step": 2}, CHUNKS, {"polyphase": 1, "phases": 2, "products": 1}),
        ((1, 8, (1, 1), 4096, 23), {"step": 2}, CHUNKS, {"polyphase": 0}),  # few warps
        ((1, 8, (1, 1), 4096, 24), {"step": 2}, CHUNKS, {"polyphase": 1}),
        ((8, 512, (1, 1), 4096, 39), {"step": 5}, CHUNKS, {"polyphase": 0}),
        ((8, 512, (1, 1), 4096, 40), {"step": 5}, CHUNKS, {"polyphase": 1}),
        ((8, 512, (1, 1), 4096, 40), {"step": 10, "dilation": 5}, CHUNKS, {"polyphase": 1, "phases": 2}),
        ((8, 512, (1, 1), 4096, 40), {"step": 10, "dilation": 4}, CHUNKS, {"polyphase": 0}),
        # Half types, with fewer taps where there are outputs enough or the step is 8.
        ((8, 512, (1, 1), 4096, 12), HALF | {"step": 2}, CHUNKS, {"polyphase": 1}),
        ((8, 512, (1, 1), 4096, 11), HALF | {"step": 2}, CHUNKS, {"polyphase": 0, "strided": 1}),
        ((1, 64, (1, 1), 4096, 24), HALF | {"step": 2}, CHUNKS, {"polyphase": 1}),
        ((1, 64, (1, 1), 4096, 23), HALF | {"step": 2}, CHUNKS, {"polyphase": 0, "strided": 1}),
        ((8, 8, (1, 1), 4096, 30), HALF | {"step": 8}, CHUNKS, {"polyphase": 1}),
        ((8, 8, (1, 1), 4096, 29), HALF | {"step": 8}, CHUNKS, {"polyphase": 0}),
        ((8, 512, (1, 1), 4096, 60), HALF | {"step": 9}, CHUNKS, {"polyphase": 0}),
        ((1, 1, (1, 1), 2**30 - 1, 3), {}, CHUNKS, {}),
        ((1, 1, (1, 1), 2**30, 3), {}, VALUES, {}),
        ((1, 1, (1, 1), 4096, 3), {"dilation": 1000}, CHUNKS, {"warp_tiles": 1}),
        ((64, 1, (1, 1), 4096, 3), {"dilation": 2000}, ROWS, {"dilated": 1}),  # too much for four warps
        ((1, 1, (1, 1), 2**16, 3), {"dilation": 8000}, VALUES, {}),  # and for a block
        # Of half types, all rows.
        ((8, 64, (1, 1), 4097, 4), HALF | {"padding": 2, "right": 0}, CHUNKS, {"warp_tiles": 3, "row_lanes": 6}),
        ((8, 64, (1, 1), 4097, 4), HALF, CHUNKS, {"warp_tiles": 4, "row_lanes": 5}),  # a tile more: not aligned
        ((8, 4096, (1, 1), 4097, 10), {"dtype": BFLOAT16, "padding": 3}, CHUNKS, {"few_taps": 1, "warp_tiles": 4}),
        ((8, 4096, (1, 1), 4097, 11), {"dtype": BFLOAT16, "padding": 3}, CHUNKS, {"few_taps": 0, "warp_tiles": 6}),
        ((8, 4096, (1, 1), 4096, 4), {"dtype": BFLOAT16, "dilation": 2}, CHUNKS, {"few_taps": 0}),
        ((8, 64, (1, 1), 4096, 4), HALF | {"dilation": 16}, CHUNKS, {"dilated": 1}),
        ((8, 64, (1, 1), 4096, 4), HALF | {"dilation": 17}, ROWS, {"dilated": 1}),
        ((8, 1, (1, 7), 4096, 10), HALF, CHUNKS, {}),
        ((8, 1, (4, 512), 4096, 17), HALF, CHUNKS, {}),  # too many products for the fan
        ((8, 1000, (1, 1), 258, 4), HALF, ROWS, {"wide": 0}),  # rows of 255
        # Few taps, of rows that are whole quads: two tiles a warp, and up to 32 outputs behind them.
        ((8, 64, (1, 1), 4096, 4), HALF | {"padding": 3, "right": 0}, CHUNKS, TWO | {"row_lanes": 8, "blocks": 1024}),
        ((8, 64, (1, 1), 4096, 4), HALF, CHUNKS, TWO | {"row_lanes": 8}),
        ((8, 64, (1, 1), 4096, 4), HALF | {"padding": 15, "right": 4}, CHUNKS, TWO | {"row_lanes": 8}),  # rows of 4112
        ((8, 64, (1, 1), 4096, 4), HALF | {"padding": 15, "right": 20}, CHUNKS, TWO | {"row_lanes": 8}),  # of 4128
        ((8, 64, (1, 1), 4096, 4), HALF | {"padding": 15, "right": 21}, CHUNKS, TWO | {"row_lanes": 9}),
        ((8, 64, (1, 1), 260, 4), HALF, CHUNKS, TWO | {"row_lanes": 1, "blocks": 128}),  # rows of 257
        ((8, 64, (1, 1), 260, 4), {"padding": 3}, CHUNKS, {"direct": 0}),
        # Where they reach over 16 places, with what is ahead of them in a quad, and where that may be anything.
        ((8, 64, (1, 1), 4096, 7), HALF | {"padding": 3}, CHUNKS, TWO | {"products": 1}),
        ((8, 64, (1, 1), 4096, 9), HALF | {"padding": 4}, CHUNKS, TWO | {"products": 1}),
        ((8, 64, (1, 1), 4096, 9), HALF | {"padding": 3, "right": 5}, CHUNKS, TWO | {"products": 2}),
        ((8, 64, (1, 1), 4096, 6), HALF | {"padding": 1}, CHUNKS, TWO | {"products": 1}),
        ((8, 64, (1, 1), 4096, 7), HALF | {"padding": 2}, CHUNKS, TWO | {"products": 2}),
        # Rows of a tile, or few tiles of rows that would leave two a warp much empty: a tile a warp.
        ((8, 64, (1, 1), 261, 4), HALF, CHUNKS, {"direct": 0}),  # not whole quads of inputs
        ((8, 64, (1, 1), 260, 4), HALF | {"offsets": (2, 0)}, CHUNKS, {"direct": 0}),
        ((8, 9999, (1, 1), 192, 4), HALF | {"padding": 2}, CHUNKS, ONE | {"row_lanes": 1}),  # rows of 193
        ((8, 64, (1, 1), 192, 4), HALF | {"padding": 1}, ROWS, {}),  # rows of 191
        ((8, 9999, (1, 1), 144, 9), HALF | {"padding": 4}, CHUNKS, ONE | {"row_lanes": 1}),
        ((8, 64, (1, 1), 144, 8), HALF | {"padding": 4}, ROWS, {}),  # rows of 145
        ((8, 64, (1, 1), 148, 9), HALF | {"padding": 2, "right": 1}, ROWS, {}),  # of 143
        ((8, 64, (1, 1), 32, 12), HALF, CHUNKS, {"direct": 1}),
        ((8, 64, (1, 1), 33, 12), HALF, ROWS, {}),
        ((8, 64, (1, 1), 32, 11), HALF, ROWS, {}),
        ((8, 64, (1, 1), 32, 12), HALF | {"dilation": 2}, ROWS, {"dilated": 1}),
        ((8, 64, (2, 1), 32, 12), HALF, ROWS, {}),
        ((1, 1760, (1, 1), 600, 10), HALF, CHUNKS, ONE | {"row_lanes": 3}),  # 40 tiles a multiprocessor
        ((1, 1761, (1, 1), 600, 10), HALF, CHUNKS, {"few_taps": 1}),
        ((1, 1761, (1, 1), 668, 3), HALF | {"padding": 1}, CHUNKS, TWO | {"row_lanes": 2}),
        ((1, 1761, (1, 1), 664, 3), HALF | {"padding": 1}, CHUNKS, {"few_taps": 1}),
        ((1, 1761, (1, 1), 864, 11), HALF | {"padding": 5}, CHUNKS, TWO | {"row_lanes": 2}),
        ((1, 1761, (1, 1), 848, 11), HALF | {"padding": 5}, CHUNKS, {"direct": 0}),
        # The rest of a row in the time of a tile.
        ((1, 1761, (1, 1), 1056, 7), HALF | {"padding": 3}, CHUNKS, TWO | {"row_lanes": 2}),
        ((1, 1761, (1, 1), 1056, 11), HALF | {"padding": 5}, CHUNKS, {"direct": 0}),
        ((1, 1761, (1, 1), 1568, 11), HALF | {"padding": 5}, CHUNKS, TWO | {"row_lanes": 3}),
        ((1, 5280, (1, 1), 32, 12), HALF, CHUNKS, {"direct": 1}),
        ((1, 5281, (1, 1), 32, 12), HALF, ROWS, {}),
        ((1, 99999, (1, 1), 256, 11), HALF | {"padding": 5}, CHUNKS, ONE | {"row_lanes": 1}),
        ((1, 99999, (1, 1), 256, 11), HALF | {"padding": 5, "right": 6}, CHUNKS, TWO | {"row_lanes": 1}),
        ((1, 8, (1, 1), 4096, 22), HALF, CHUNKS, {"direct": 1}),
        ((1, 8, (1, 1), 4096, 23), HALF, CHUNKS, {"direct": 0}),
        # Several output channels a group.
        ((8, 1, (1, 64), 4096, 17), {}, ROWS, {"channels": 4, "cycle": 1, "tiles": 16, "slides": 1}),
        ((8, 1, (1, 64), 4097, 17), {}, ROWS, {"channels": 4, "cycle": 4, "tiles": 16}),  # rows of 4081
        ((8, 1, (1, 64), 200, 4), {}, ROWS, {"channels": 4, "cycle": 4, "slides": 0}),  # too short for the fan
        ((8, 1, (2, 3), 4096, 9), {}, ROWS, {"channels": 4, "tiles": 1}),
        ((8, 1, (1, 2), 4096, 1), {}, ROWS, {"channels": 1, "tiles": 2}),
        ((8, 1, (1, 5), 4096, 1), {}, ROWS, {"channels": 1, "tiles": 5}),
        ((8, 4096, (1, 2), 4096, 1), {}, ROWS, {"channels": 1, "wide": 1, "threads": 128}),
        ((8, 1000, (1, 1), 1, 3), {"padding": 3, "step": 7}, ROWS, {"channels": 1}),  # of one place
        # Few values into many channels.
        ((8, 1, (1, 64), 4096, 4), {"padding": 2, "right": 1}, FAN, {"products": 4, "cycle": 1, "aligned": 8}),
        ((8, 1, (1, 64), 4096, 4), {}, FAN, {"cycle": 8, "aligned": 8}),  # rows of 4093
        ((8, 1, (1, 32), 4096, 4), {}, FAN, {"cycle": 4, "aligned": 4}),  # 4 of which are aligned alike to sectors
        ((8, 1, (1, 16), 4096, 4), {}, ROWS, {"channels": 4}),  # or to packs
        ((8, 1, (1, 512), 4096, 2), {}, FAN, {"products": 3}),
        ((8, 1, (1, 512), 4096, 10), {"step": 5}, FAN, {"products": 10, "block_channels": 16}),
        ((800, 1, (1, 512), 4096, 10), {"step": 5}, FAN, {"products": 10, "block_channels": 128}),
        ((8, 1, (2, 512), 4096, 7), {"step": 2} | DOUBLE, FAN, {"products": 16, "aligned": 4}),
        ((8, 1, (1, 512), 4096, 13), {"step": 5}, FAN, {"products": 16}),
        ((8, 1, (2, 512), 4096, 9), {"step": 5}, VALUES, {"channels": 4}),
        ((8, 1, (1, 512), 4096, 10), {"step": 50}, VALUES, {"channels": 4}),  # tiles too large
        ((8, 1, (1, 7), 4096, 10), {"step": 5}, VALUES, {"channels": 4}),
        ((8, 1, (1, 512), 4096, 10), HALF, FAN, {"products": 1, "cycle": 16, "aligned": 16}),
        ((8, 1, (1, 64), 4096, 10), HALF, FAN, {"products": 1, "cycle": 8, "aligned": 8}),
        ((8, 1, (1, 8), 4103, 8), HALF, FAN, {"cycle": 1, "aligned": 16, "block_channels": 16}),
        ((8, 1, (1, 512), 4096, 10), HALF | {"step": 5}, FAN, {"products": 1}),
        ((8, 1, (2, 512), 4096, 16), HALF, FAN, {"products": 2}),
        ((8, 1, (2, 512), 4096, 16), {"dtype": BFLOAT16, "step": 5}, FAN, {"products": 2}),
        ((8, 1, (4, 512), 4096, 17), HALF | {"step": 5}, VALUES, {"channels": 4}),
        ((99, 8, (1, 16), 4096, 3), HALF | {"padding": 1}, FAN, {"block_channels": 16, "warp_tiles": 6}),
        # Other steps than 1, of few output channels.
        ((8, 64, (1, 1), 4096, 8), {"step": 4}, CHUNKS, {"strided": 1, "warp_tiles": 2}),
        ((8, 64, (1, 1), 4096, 8), HALF | {"step": 2, "dilation": 20}, CHUNKS, {"strided": 1, "dilated": 0}),
        ((8, 1, (2, 3), 4096, 8), DOUBLE | {"step": 3}, CHUNKS, {"strided": 1, "warp_tiles": 1}),
        ((8, 64, (1, 1), 254, 1), {"step": 2}, VALUES, {}),
        ((8, 64, (1, 1), 255, 1), {"step": 2}, CHUNKS, {"strided": 1}),
        ((8, 64, (1, 1), 2**16, 8), {"step": 100}, VALUES, {}),  # a tile that doesn't fit
        ((8, 1, (1, 4), 4096, 8), {"step": 2}, VALUES, {"channels": 4}),
        # Channels last.
        ((8, 64, (1, 1), 4096, 4), LAST, COLUMNS, {"tiles": 2, "row_tiles": 32}),
        ((8, 64, (1, 1), 4096, 4), LAST | {"step": 2, "dilation": 3}, COLUMNS, {}),
        ((8, 63, (1, 1), 4096, 4), LAST, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 1), 4096, 4), LAST | {"offsets": (1, 0)}, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 2), 4096, 4), LAST, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 1), 2**16, 385), LAST, VALUES, {"channels_first": 1}),  # taps that don't fit
        ((8, 8, (1, 1), 4096, 3), {"layouts": ("rows", "channels last")}, VALUES, {"channels_first": 1}),
        # Anything else, by lanes side by side.
        ((8, 1, (1, 1), 4096, 3), {"layouts": ("rows", "strided")}, VALUES, {"channels_first": 0, "row_width": 32}),
        (
            (8, 1, (1, 1), 4096, 3),
            {"step": 2, "layouts": ("strided", "rows")},
            VALUES,
            {"row_width": 32, "row_tiles": 16},
        ),
        (
            (8, 1024, (1, 1), 100, 3),
            {"step": 2},
            VALUES,
            {"places": 4, "row_width": 16, "row_tiles": 1, "lanes": 131072},
        ),
        ((64, 4096, (1, 1), 9, 3), {"step": 2}, VALUES, {"places": 4, "row_width": 1, "row_tiles": 1, "lanes": 262144}),
        ((8, 64, (1, 4), 9, 3), {"step": 2}, VALUES, {"places": 4, "channels": 4}),
        ((1, 1, (1, 1), 300, 3), {"padding": 1}, CHUNKS, {}),
    ],
)
def test_paths_of_a_forward(planner, arguments, rest, path, expected):
    check_path(planner, FORWARD, arguments, rest, path, expected)


@pytest.mark.parametrize(
    "arguments, rest, path, expected",
    [
        ((8, 512, (1, 1), 4096, 4), {"padding": 3}, CHUNKS, {"warp_tiles": 3}),
        ((8, 512, (1, 1), 4096, 4), HALF | {"padding": 3}, CHUNKS, {"few_taps": 1, "warp_tiles": 4}),
        ((8, 1, (1, 1), 300, 300), {"step": 5}, CHUNKS, {}),  # a gradient of one place
        ((8, 1000, (1, 1), 4, 4), {"step": 5}, ROWS, {}),
        ((8, 1, (1, 1), 4, 4), {"step": 5}, ROWS, {}),
        ((8, 1, (1, 1), 40, 4), {"step": 5}, VALUES, {"places": 1}),
        ((8, 1, (1, 64), 4096, 3), {"padding": 1}, ROWS, {"channels": 1, "threads": 32}),
        ((8, 1, (8, 4), 4096, 5), {"padding": 2}, ROWS, {"channels": 4}),
        ((8, 1, (8, 4), 4096, 3), {"padding": 1}, FAN, {"products": 12, "block_channels": 4}),
        ((8, 1, (8, 8), 4096, 3), HALF | {"padding": 1}, FAN, {"products": 2}),
        ((8, 1, (8, 8), 4096, 9), HALF | {"padding": 4}, CHUNKS, {}),
        ((8, 1, (8, 512), 4096, 3), {"padding": 1}, VALUES, {"channels": 4}),  # taps that don't fit
        ((8, 1, (8, 512), 4096, 3), HALF | {"padding": 1}, VALUES, {"channels": 4}),
        # Of other steps, in chunks where shared memory holds all channels of the gradient.
        (
            (8, 64, (1, 1), 4096, 1),
            {"step": 3},
            CHUNKS,
            {"strided": 1, "warp_tiles": 7, "row_width": 1, "row_lanes": 5},
        ),
        ((57, 4017, (1, 1), 144, 1), {"step": 3}, CHUNKS, {"warp_tiles": 2, "row_lanes": 1, "blocks": 57243}),
        ((8, 64, (1, 1), 4096, 4), HALF | {"step": 8, "dilation": 8}, CHUNKS, {"row_width": 1, "taps_pitch": 8}),
        ((8, 64, (1, 1), 4096, 4), DOUBLE | {"step": 4}, CHUNKS, {"row_width": 4}),
        ((1, 1, (1, 1), 4096, 4), {"step": 4}, CHUNKS, {"warp_tiles": 1, "row_lanes": 32, "blocks": 8}),
        ((8, 1, (3, 4), 4096, 4), {"step": 2}, CHUNKS, {}),
        ((8, 1, (3, 5), 4096, 4), {"step": 2}, VALUES, {}),
        ((8, 64, (1, 1), 128, 1), {"step": 2}, CHUNKS, {"row_lanes": 1}),
        ((8, 64, (1, 1), 127, 1), {"step": 2}, VALUES, {}),
        ((8, 64, (1, 1), 4096, 1), {"step": 256}, CHUNKS, {}),
        ((8, 64, (1, 1), 4096, 1), {"step": 257}, VALUES, {}),
        ((8, 1, (1, 512), 4096, 10), {"step": 5}, VALUES, {"row_width": 32}),
        ((1, 1, (1, 1), 2**30 - 1, 3), {"step": 2}, CHUNKS, {}),
        ((1, 1, (1, 1), 2**30, 3), {"step": 2}, VALUES, {}),
        ((1, 1, (1, 1), 2**29, 3), {"step": 2, "dilation": 2**27}, VALUES, {}),
        ((1, 1, (1, 1), 2**30 - 1, 1), {"step": 2, "padding": 2**28 - 4, "right": 0}, CHUNKS, {}),
        ((1, 1, (1, 1), 2**30 - 1, 1), {"step": 2, "padding": 2**28 - 3, "right": 0}, VALUES, {}),
        ((8, 64, (1, 1), 4096, 4), {"step": 2, "layouts": ("rows", "expanded")}, VALUES, {}),
        ((8, 64, (1, 1), 4096, 4), LAST, COLUMNS, {}),
        ((8, 64, (1, 1), 4096, 4), LAST | {"step": 2}, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 1), 4096, 4), {"layouts": ("rows", "expanded")}, VALUES, {"channels_first": 0}),
    ],
)
def test_paths_of_an_input_gradient(planner, arguments, rest, path, expected):
    check_path(planner, BACKWARD_INPUT, arguments, rest, path, expected)


@pytest.mark.parametrize(
    "arguments, rest, path, expected",
    [
        # Lanes have sums of all taps of a block.
        ((8, 512, (1, 1), 4096, 4), {"padding": 3}, CHUNKS, {"products": 4, "taps": 4, "splits": 1, "threads": 192}),
        ((8, 4, (1, 1), 2**20, 5), {}, CHUNKS, {"products": 8, "taps": 5, "splits": 99, "threads": 256}),
        ((8, 1, (1, 1), 2**20, 33), {}, CHUNKS, {"products": 32, "taps": 32, "tap_parts": 2}),
        ((8, 1, (1, 1), 2**20, 33), DOUBLE, CHUNKS, {"products": 16, "taps": 16, "tap_parts": 3}),
        ((8, 512, (8, 8), 4096, 9), {}, CHUNKS, {"products": 16, "splits": 1, "threads": 128}),
        # Matrices have taps up to 16 to each, less 15, places apart.
        ((8, 4, (1, 1), 2**20, 5), HALF, CHUNKS, {"products": 2, "taps": 5, "warp_tiles": 8}),
        ((8, 4, (1, 1), 2**20, 18), HALF, CHUNKS, {"products": 2, "taps": 18}),
        ((8, 4, (1, 1), 2**20, 19), HALF, CHUNKS, {"products": 4, "taps": 19}),
        ((8, 4, (1, 1), 2**20, 114), HALF, CHUNKS, {"products": 8, "taps": 114, "tap_parts": 1}),
        ((8, 4, (1, 1), 2**20, 115), HALF, CHUNKS, {"products": 8, "taps": 114, "tap_parts": 2, "threads": 224}),
        ((8, 4, (1, 1), 2**20, 9), HALF | {"dilation": 16}, CHUNKS, {"products": 8, "taps": 8, "tap_parts": 2}),
        ((8, 512, (8, 8), 4096, 9), HALF, CHUNKS, {"products": 2, "splits": 1, "threads": 128}),
        ((4, 50, (1, 8), 2000, 9), HALF, CHUNKS, {"threads": 224, "row_lanes": 2}),
        ((8, 1, (8, 8), 300, 9), HALF, CHUNKS, {"row_lanes": 1, "warp_tiles": 3}),
        # By value, a place to each thread of a block.
        ((2, 64, (1, 1), 128, 8), {"padding": 4, "right": 3}, VALUES, {}),
        ((2, 64, (1, 1), 128, 9), {"padding": 4}, ROWS, {}),
        ((2, 64, (1, 1), 129, 8), {"padding": 4, "right": 3}, ROWS, {}),
        # Rows that are short, or too dilated.
        ((8, 4, (1, 1), 2**20, 5), HALF | {"dilation": 17}, ROWS, {"taps": 8, "dilated": 1, "splits": 198}),
        ((8, 4, (1, 1), 2**20, 1), HALF | {"dilation": 17}, CHUNKS, {"taps": 1}),
        ((8, 1, (1, 1), 2**20, 33), {"dilation": 2}, ROWS, {"taps": 8, "tap_parts": 5, "dilated": 1}),
        ((8, 1, (1, 1), 200, 33), {"padding": 16}, ROWS, {"taps": 32, "tap_parts": 2}),
        ((8, 1, (1, 1), 200, 33), {"padding": 16} | DOUBLE, ROWS, {"taps": 16, "tap_parts": 3}),
        ((8, 512, (1, 1), 255, 4), HALF | {"padding": 3, "right": 0}, ROWS, {"taps": 4, "splits": 1}),
        ((8, 1, (1, 1), 2**20, 4), {"step": 2}, VALUES, {"channels": 1, "taps": 4, "tap_parts": 1}),
        ((8, 1, (1, 1), 2**20, 1), {"step": 2}, VALUES, {"channels": 1, "taps": 1, "tap_parts": 1}),
        ((8, 1, (1, 16), 2**20, 9), {"step": 2}, VALUES, {"channels": 4, "taps": 8, "tap_parts": 2}),
        ((8, 1, (1, 16), 2**20, 4), {"step": 2} | DOUBLE, VALUES, {"channels": 1}),
        (
            (8, 64, (1, 1), 4096, 9),
            LAST,
            COLUMNS,
            {"packed": 1, "taps": 8, "tap_parts": 2, "tiles": 1, "row_width": 16},
        ),
        ((8, 4096, (1, 1), 2048, 4), HALF | LAST, COLUMNS, {"packed": 1, "taps": 4, "tiles": 16, "row_width": 32}),
        ((8, 4, (1, 1), 4096, 9), LAST, COLUMNS, {"packed": 1, "row_width": 1}),
        ((8, 64, (1, 1), 4096, 9), LAST | {"step": 2}, COLUMNS, {"packed": 0, "tap_parts": 2, "tiles": 2}),
        ((8, 64, (1, 1), 4096, 9), LAST | {"dilation": 2}, COLUMNS, {"packed": 0, "tap_parts": 2, "tiles": 2}),
        ((8, 64, (1, 2), 4096, 9), LAST, COLUMNS, {"packed": 0, "tap_parts": 2, "tiles": 4}),
        ((8, 9, (1, 1), 4096, 9), LAST, COLUMNS, {"packed": 0}),
        ((8, 7, (1, 1), 4096, 9), LAST, VALUES, {}),
        ((2**20, 1, (1, 1), 2**9, 3), {"padding": 1}, CHUNKS, {}),
        ((2**22, 1, (1, 1), 2**7, 3), {"padding": 1}, VALUES, {}),  # too many places to count with 29 bits
        ((8, 1, (1, 1), 4096, 3), {"layouts": ("rows", "expanded")}, VALUES, {}),
    ],
)
def test_paths_of_a_weight_gradient(planner, arguments, rest, path, expected):
    check_path(planner, BACKWARD_WEIGHT, arguments, rest, path, expected)


@pytest.mark.parametrize(
    "which, arguments, rest, expected",
    [
        # 2048 outputs a multiprocessor, and 48 x 1024 products.
        (FORWARD, (8, 64, (1, 1), 100, 3), {"step": 2}, {"products": 3, "row_width": 32, "lanes": 25088}),
        (FORWARD, (1, 4224, (1, 1), 64, 5), {"padding": 2}, {}),
        (FORWARD, (1, 4225, (1, 1), 64, 5), {"padding": 2}, None),
        (FORWARD, (1, 4271, (1, 1), 49, 31), {"padding": 15}, {"products": 16, "row_width": 16}),
        (FORWARD, (1, 4272, (1, 1), 49, 31), {"padding": 15}, None),
        (
            FORWARD,
            (1, 32, (1, 1), 6429, 96),
            {"step": 3} | DOUBLE,
            {"products": 24, "row_width": 8},
        ),  # else strided chunks
        (FORWARD, (1, 32, (1, 1), 6430, 97), {"step": 3} | DOUBLE, None),
        (FORWARD, (1, 32, (1, 1), 6413, 80), {"step": 3}, {"products": 20}),  # else cut into phases
        (FORWARD, (1, 32, (1, 1), 6414, 81), {"step": 3}, None),
        # Also where a library would take them; of channels-last depthwise ones more.
        (FORWARD, (1, 4096, (1, 1), 33, 48), {"padding": 24, "right": 23}, {"products": 24, "row_width": 16}),
        (FORWARD, (1, 4096, (1, 1), 33, 49), {"padding": 24}, None),
        (FORWARD, (1, 128, (1, 1), 2238, 128), LAST | {"step": 2}, {"channels_first": 1, "products": 16}),
        (FORWARD, (1, 128, (1, 1), 2239, 129), LAST | {"step": 2}, None),
        (FORWARD, (8, 64, (1, 2), 100, 3), LAST, {"channels_first": 1}),
        # Fewer where others make tiles,
        (FORWARD, (1, 128, (1, 1), 2112, 4), {"padding": 2, "right": 1}, {}),
        (FORWARD, (1, 128, (1, 1), 2112, 5), {"padding": 2}, None),
        (FORWARD, (4, 64, (1, 1), 1056, 4), LAST | {"padding": 2, "right": 1}, {}),
        (FORWARD, (4, 64, (1, 1), 1056, 5), LAST | {"padding": 2}, None),
        (FORWARD, (4, 1, (1, 64), 1056, 4), {"padding": 2, "right": 1}, {}),
        (FORWARD, (4, 1, (1, 64), 1056, 5), {"padding": 2}, None),
        (
            FORWARD,
            (1, 64, (4, 1), 2112, 8),
            HALF | {"padding": 4, "right": 3},
            {"products": 16},
        ),  # for each input channel
        (FORWARD, (1, 64, (4, 1), 2112, 9), HALF | {"padding": 4}, None),
        # of few taps of half types, or direct ones.
        (FORWARD, (1, 128, (1, 1), 1055, 4), HALF | {"padding": 2, "right": 1}, {}),
        (FORWARD, (1, 128, (1, 1), 1055, 5), HALF | {"padding": 2}, None),
        (FORWARD, (1, 16, (1, 1), 1056, 4), HALF | {"padding": 2, "right": 1}, {}),
        (FORWARD, (1, 16, (1, 1), 1056, 5), HALF | {"padding": 2}, None),
        # No more products than a warp has lanes for.
        (FORWARD, (1, 56, (8, 2), 50, 96), {"padding": 48, "right": 47} | DOUBLE, {"products": 24, "row_width": 1}),
        (FORWARD, (1, 1, (8, 2), 50, 97), {"padding": 48}, None),
        # Places and strides that 32 bits hold.
        (FORWARD, (1, 1, (1, 1), 2**29 - 10, 3), {"step": 2**14}, {}),
        (FORWARD, (1, 1, (1, 1), 2**29, 3), {"step": 2**14}, None),
        (FORWARD, (1, 1, (1, 1), 2**28 - 20, 3), {"step": 2**14, "layouts": ("strided", "rows")}, {}),
        (FORWARD, (1, 1, (1, 1), 2**28, 3), {"step": 2**14, "layouts": ("strided", "rows")}, None),
        (BACKWARD_INPUT, (8, 64, (1, 1), 100, 3), {"padding": 1}, {"products": 3}),
        (BACKWARD_INPUT, (1, 8, (2, 30), 20, 5), {"padding": 2}, {"products": 19, "row_width": 4}),
        (BACKWARD_INPUT, (1, 8, (2, 30), 4, 4), {"step": 3}, {"products": 15, "row_width": 4}),
        (BACKWARD_INPUT, (1, 8, (2, 3), 7, 4), {"step": 3}, None),  # two outputs
    ],
)
def test_few_values(planner, which, arguments, rest, expected):
    """Where they are few, and where they are just not."""
    problem = problem_of(*arguments, **rest)
    plan = check(planner, problem, which, few=True)
    assert plan.few_values == (expected is not None)
    if expected is not None:
        assert plan.path == VALUES and {name: getattr(plan, name) for name in expected} == expected
        assert problem.serves(planner, which, few=True)


def _kernel(plan) -> str:
    """As tests/conv1d_calls.py names it."""
    if plan.path == CHUNKS:
        if plan.polyphase:
            return "polyphase"
        half = "direct" if plan.direct else "few_taps" if plan.few_taps else "mma"
        return "strided" if plan.strided else half
    return {ROWS: "rows", FAN: "fan", COLUMNS: "columns", VALUES: "values"}[plan.path]


@pytest.mark.parametrize("dtype", list(ITEM))
@pytest.mark.parametrize("kernels", list(MANY), ids=str)
@pytest.mark.parametrize("sms", [108, 132, 148])
def test_calls_of_many_outputs_reach_the_kernels_they_name(planner, kernels, dtype, sms):
    """Which only a GPU runs: tests/test_conv1d_cuda.py does."""
    call, half = MANY[kernels], ITEM[dtype] == 2
    n, c, size = call.input_size
    channels = (c // call.groups, call.out_channels // call.groups)
    layouts = ({"contiguous": "rows", "transposed": "channels last", "step2": "strided"}[call.layout],) * 2
    problem = problem_of(
        n, call.groups, channels, size, call.taps, dtype, call.stride, call.padding, call.dilation, layouts
    )
    plan = check(planner, problem, FORWARD, sms, few=True, gemm=True)
    if kernels[0 if half else 1] is None:
        return
    name, _, form = kernels[0 if half else 1].partition(", ")
    if name == "polyphase" and dtype == FLOAT64:
        return  # which has no such kernel
    assert problem.serves(planner, FORWARD, sms, few=True, gemm=True) and not plan.few_values
    assert _kernel(plan) == ("mma" if name == "tiles" else name)
    expected = {
        "": {"dilated": 0, "channels_first": 0},
        "dilated": {} if name == "columns" else {"dilated": 1},
        "sliding": {"slides": 1, "wide": 0},
        "wide": {"wide": 1},
        "4 channels": {"channels": 4 if ITEM[dtype] < 8 or name == "rows" else 1},
        "2 channels": {"dilated": 0},
        "2 steps": {"products": 2},
        "channels first": {"channels_first": 1},
        "one segment": {"phases": 1, "products": 1},
        "two segments": {"phases": 1, "products": 2},
        "phases of outputs": {"phases": 3, "products": 1},
        "far phases of outputs": {"phases": 8, "products": 2},
        "phases of inputs": {"phases": 2, "products": 1},
    }[form]
    assert {field: getattr(plan, field) for field in expected} == expected
