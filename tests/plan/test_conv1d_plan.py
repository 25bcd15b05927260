"""The planner of convolutions, exercised without a GPU: what the kernels rely on must hold for signals of any size, and their index
arithmetic, repeated in conv1d_model.py, must meet every output once. That the kernels themselves do is shown by tests/emulation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ..seeded import seeded
from .conv1d_model import WARP, check
from .conv1d_planner import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    BFLOAT16,
    CHUNKS,
    COLUMNS,
    FAN,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORWARD,
    ITEM,
    LIBRARY,
    PASSES,
    ROWS,
    VALUES,
    problem_of,
)

SIZES = [1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33, 64, 100, 128, 129, 255, 256, 257, 1000, 1024, 2047, 4099, 16384, 65537]
SIZES += [99991, 2**20 + 3, 2**24, 2**29 - 1, 2**30 - 1, 2**30, 2**31 + 5, 2**33]
TAPS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 70, 129, 1000, 4096]
CHANNELS = [*[(1, 1)] * 4, (1, 2), (1, 4), (2, 3), (3, 8), (8, 8), (4, 100), (1, 513), (9, 1), (64, 64)]
BATCHES = [1, 1, 1, 2, 3, 8, 33, 100, 257, 4096, 65537, 2**20 + 1, 2**31 + 7]
LAYOUTS = ["rows", "rows", "whole rows", "channels last", "channels last", "channels last", "whole channels", "strided"]


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(list(ITEM)))
    channels = draw(st.sampled_from(CHANNELS))
    groups = draw(st.sampled_from([1, 1, 2, 3, 8, 64, 100, 4096]))
    taps, dilation = draw(st.sampled_from(TAPS)), draw(st.sampled_from([1, 1, 1, 2, 3, 16, 1000]))
    reach = (taps - 1) * dilation
    padding = draw(st.sampled_from([0, 0, reach // 2, reach, reach + 3]))
    layout = draw(st.sampled_from(LAYOUTS))
    other = layout if draw(st.sampled_from([True, True, False])) else draw(st.sampled_from([*LAYOUTS, "expanded"]))
    offsets = draw(st.sampled_from([(0, 0), (0, 0), (0, 0), (0, 1), (1, 0), (3, 3)]))
    size = draw(st.sampled_from(SIZES))
    batch = draw(st.sampled_from([n for n in BATCHES if n * groups * max(channels) * size < 2**48] or [1]))
    return problem_of(
        batch, groups, channels, size, taps, dtype,
        draw(st.sampled_from([1, 1, 1, 2, 3, 8, 1000])), padding, dilation, (other, layout), offsets,
        draw(st.sampled_from([padding, reach, 0])),
    )  # fmt: skip


@st.composite
def long_rows(draw):
    """What is taken in chunks, or by blocks that go through the output channels."""
    channels = draw(st.sampled_from([(1, 1), (1, 1), (1, 2), (1, 8), (1, 64), (2, 16), (8, 1), (8, 2), (8, 8)]))
    taps, dilation = draw(st.integers(1, 70)), draw(st.sampled_from([1, 1, 1, 1, 2, 7, 16, 17]))
    layouts = (draw(st.sampled_from(["rows", "whole rows"])), draw(st.sampled_from(["rows", "whole rows"])))
    return problem_of(
        draw(st.sampled_from([1, 2, 33])), draw(st.sampled_from([1, 1, 3, 64, 4096])), channels, draw(st.integers(256, 9000)), taps,
        draw(st.sampled_from(list(ITEM))), draw(st.sampled_from([1, 1, 1, 2, 5])), draw(st.integers(0, (taps - 1) * dilation)), dilation,
        layouts, (draw(st.integers(0, 16)), draw(st.integers(0, 16))),
    )  # fmt: skip


@pytest.fixture(scope="module")
def planner():
    return load("plan/conv1d")


def test_any_launch_is_valid(planner):
    taken = set()

    @seeded(4000)
    @given(
        problem=problems() | long_rows(),
        which=st.sampled_from(PASSES),
        sms=st.sampled_from([1, 4, 132, 148]),
        few=st.booleans(),
    )
    def check_one(problem, which, sms, few):
        plan = check(planner, problem, which, sms, few)
        half, dilated = problem.item == 2, bool(plan.dilated)
        taken.add((which, plan.path))
        if which == BACKWARD_WEIGHT:
            taken.add((which, plan.path, "split", plan.splits > 1))
            taken.add((which, plan.path, "parts", plan.tap_parts > 1))
        if which == BACKWARD_WEIGHT and plan.path == CHUNKS:
            taken.add((which, half, "products", plan.products))
            taken.add((which, "warps", plan.threads // WARP))
        elif plan.polyphase:
            taken.add((which, "phases", plan.phases > 1, plan.products))
        elif plan.path == CHUNKS:
            taken.add((which, half, "strided" if plan.strided else dilated))
            taken.add((half, "tiles", plan.warp_tiles))
        elif plan.path == FAN:
            taken.add((which, FAN, half))
            taken.add((half, "products", plan.products))
            taken.add((half, "aligned", plan.aligned * problem.item))
        elif plan.few_values:
            taken.add((which, "few"))
        elif plan.path == VALUES:
            taken.add((which, VALUES, plan.channels, bool(plan.channels_first)))
            taken.add((which, "width", plan.row_width))
        elif plan.path == ROWS:
            taken.add((which, ROWS, plan.channels, bool(plan.wide), dilated))

    check_one()
    both = (False, True)
    for which in PASSES:
        assert {(which, path) for path in (LIBRARY, CHUNKS, ROWS, COLUMNS, VALUES)} <= taken
    for which in (FORWARD, BACKWARD_INPUT):
        assert {(which, ROWS, 1, wide, dilated) for wide in both for dilated in both} <= taken
        assert {(which, ROWS, 4, False, dilated) for dilated in both} <= taken
        assert {(which, VALUES, channels, first) for channels in (1, 4) for first in both} <= taken
        assert {(which, "width", width) for width in (1, 2, 4, 8, 16, 32)} <= taken
        assert {(which, half, dilated) for half in both for dilated in both} <= taken
        assert {(which, FAN, half) for half in both} <= taken
        assert (which, "few") in taken
        assert {(which, "phases", cut, segments) for cut in both for segments in (1, 2)} <= taken
    assert {(which, half, "strided") for which in (FORWARD, BACKWARD_INPUT) for half in both} <= taken
    assert {(True, "tiles", 1), (True, "tiles", 6), (False, "tiles", 1), (False, "tiles", 3)} <= taken
    assert {(True, "products", steps) for steps in (1, 2)} <= taken
    assert {(half, "aligned", size) for half in both for size in (16, 32)} <= taken
    for path in (CHUNKS, ROWS, COLUMNS, VALUES):
        assert {(BACKWARD_WEIGHT, path, what, yes) for what in ("split", "parts") for yes in both} <= taken
    assert {(BACKWARD_WEIGHT, True, "products", matrices) for matrices in (2, 4, 8)} <= taken
    assert {(BACKWARD_WEIGHT, False, "products", taps) for taps in (4, 8, 16, 32)} <= taken
    assert {(BACKWARD_WEIGHT, "warps", warps) for warps in (4, 8)} <= taken


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("layout", ["rows", "channels last", "strided"])
@pytest.mark.parametrize("step", [1, 2])
def test_groups_of_more_than_8_input_channels_are_the_library_s(planner, which, layout, step):
    for in_channels, out_channels in ((8, 1), (9, 1), (8, 512), (9, 512), (1, 512), (512, 1)):
        problem = problem_of(4, 2, (in_channels, out_channels), 1000, 3, step=step, layouts=(layout, layout))
        assert (problem.plan(planner, which).path == LIBRARY) == (in_channels > 8)
        assert not (problem.serves(planner, which) and in_channels > 8)
        problem.dtype = FLOAT64  # for which tensor cores gain nothing
        assert problem.serves(planner, which) == (in_channels <= 8)


HALF, LAST, STRIDED = {"dtype": FLOAT16}, {"layouts": ("channels last",) * 2}, {"layouts": ("strided",) * 2}


@pytest.mark.parametrize(
    "which, path, served, others",
    [
        # (batch, groups, channels, size, taps) and the rest. Depthwise:
        (FORWARD, CHUNKS, ((8, 64, (1, 1), 4096, 23), HALF | {"step": 8}), ((8, 64, (1, 1), 4096, 24), HALF | {"step": 8})),
        (FORWARD, CHUNKS, ((8, 64, (1, 1), 4096, 24), {"step": 8}), None),  # cut into phases
        (FORWARD, CHUNKS, ((8, 64, (1, 1), 4096, 24), {"step": 7}), None),
        (FORWARD, CHUNKS, ((8, 64, (1, 1), 4096, 47), HALF | {"step": 7, "dilation": 2}), ((8, 64, (1, 1), 4096, 48), HALF | {"step": 7, "dilation": 2})),
        (FORWARD, ROWS, ((8, 64, (1, 1), 100, 31), {}), ((8, 64, (1, 1), 100, 32), {})),
        (FORWARD, ROWS, ((8, 64, (1, 1), 100, 32), HALF | {"padding": 16}), None),
        (FORWARD, COLUMNS, ((8, 64, (1, 1), 4096, 32), LAST | {"step": 2}), ((8, 64, (1, 1), 4096, 33), LAST | {"step": 2})),
        (FORWARD, COLUMNS, ((8, 64, (1, 1), 4096, 33), LAST), None),
        (FORWARD, VALUES, ((8, 64, (1, 1), 4096, 16), STRIDED), ((8, 64, (1, 1), 4096, 17), STRIDED)),
        (FORWARD, VALUES, ((8, 64, (1, 1), 4096, 11), STRIDED | {"dilation": 4}), ((8, 64, (1, 1), 4096, 12), STRIDED | {"dilation": 4})),
        # Of several channels:
        (FORWARD, CHUNKS, ((8, 1, (2, 3), 4096, 7), {"step": 3}), ((8, 1, (2, 3), 4096, 8), {"step": 3})),
        (FORWARD, CHUNKS, ((8, 1, (8, 16), 4096, 64), HALF), ((8, 1, (8, 16), 4096, 65), HALF)),
        (FORWARD, CHUNKS, ((8, 1, (8, 1), 4096, 64), {}), None),  # cut into phases; but of 2^16 to 5 x 2^16 outputs:
        (FORWARD, CHUNKS, ((64, 4, (2, 1), 1100, 19), {}), ((64, 4, (2, 1), 1100, 20), {})),
        (FORWARD, CHUNKS, ((64, 4, (2, 1), 1100, 51), {}), ((64, 4, (2, 1), 1100, 50), {})),
        (FORWARD, CHUNKS, ((64, 4, (3, 1), 1100, 32), {"step": 4}), ((64, 4, (3, 1), 1100, 31), {"step": 4})),
        # Between dilated taps of half types:
        (FORWARD, CHUNKS, ((8, 1, (8, 5), 4096, 9), HALF | {"dilation": 16}), ((8, 1, (8, 5), 4096, 10), HALF | {"dilation": 16})),
        (FORWARD, ROWS, ((8, 1, (2, 4), 4096, 8), HALF | {"dilation": 17}), ((8, 1, (2, 4), 4096, 9), HALF | {"dilation": 17})),
        (FORWARD, ROWS, ((8, 2, (1, 64), 4096, 17), {}), ((8, 1, (1, 64), 4096, 17), {})),
        (FORWARD, ROWS, ((8, 2, (2, 9), 4096, 32), {}), ((8, 2, (2, 9), 4096, 33), {})),
        (FORWARD, FAN, ((8, 1, (1, 512), 4096, 14), {}), ((8, 1, (1, 512), 4096, 15), {})),
        (FORWARD, FAN, ((8, 1, (2, 512), 4096, 5), {}), ((8, 1, (2, 512), 4096, 6), {})),
        (FORWARD, FAN, ((2, 1, (1, 512), 4000, 4), {}), ((1, 1, (1, 512), 4000, 4), {})),
        (FORWARD, FAN, ((8, 1, (1, 512), 645, 10), HALF | {"step": 5}), ((8, 1, (1, 512), 644, 10), HALF | {"step": 5})),
        (FORWARD, VALUES, ((8, 1, (3, 8), 4096, 5), STRIDED), ((8, 1, (2, 8), 4096, 8), STRIDED)),
        (FORWARD, VALUES, ((8, 1, (3, 8), 132, 5), STRIDED), ((8, 1, (3, 8), 131, 5), STRIDED)),
        # Gradients.
        (BACKWARD_INPUT, VALUES, ((8, 2, (2, 4), 4096, 5), LAST | {"step": 4}), ((8, 2, (2, 4), 4096, 6), LAST | {"step": 4})),
        (BACKWARD_INPUT, VALUES, ((8, 2, (2, 4), 4096, 4), LAST | {"step": 4}), ((8, 2, (2, 5), 4096, 4), LAST | {"step": 4})),
        (BACKWARD_INPUT, ROWS, ((4, 2, (3, 4), 1366, 8), {}), ((4, 2, (3, 4), 1365, 8), {})),
        (BACKWARD_INPUT, ROWS, ((4, 2, (3, 4), 1365, 7), {}), None),
        (BACKWARD_INPUT, CHUNKS, ((4, 2, (2, 4), 2047, 8), {}), None),  # cut into phases
        (BACKWARD_INPUT, ROWS, ((128, 1, (2, 4), 140, 16), {}), ((128, 1, (2, 4), 140, 17), {})),
        (BACKWARD_WEIGHT, CHUNKS, ((8, 1, (8, 64), 4096, 3), {}), ((8, 1, (8, 65), 4096, 3), {})),
        (BACKWARD_WEIGHT, COLUMNS, ((8, 8, (2, 4), 4096, 4), LAST), ((8, 8, (2, 4), 4096, 5), LAST)),
        (BACKWARD_WEIGHT, COLUMNS, ((8, 8, (1, 8), 4096, 4), LAST), ((8, 8, (3, 3), 4096, 4), LAST)),
        (BACKWARD_WEIGHT, VALUES, ((8, 1, (4, 4), 4096, 3), {"step": 2}), ((9, 1, (4, 5), 4096, 3), {"step": 2})),
        (BACKWARD_WEIGHT, VALUES, ((8, 1, (1, 64), 4096, 3), {"step": 2}), ((8, 1, (1, 65), 4096, 3), {"step": 2})),
    ],
)  # fmt: skip
def test_what_is_served(planner, which, path, served, others):
    """The last that is, and the first that isn't and is the library's."""
    for call, expected in ((served, True), (others, False)):
        if call is not None:
            problem = problem_of(*call[0], **call[1])
            assert (problem.plan(planner, which).path, problem.serves(planner, which)) == (path, expected)


def test_gathered_chunks_are_served_by_how_many_products_a_place_has(planner):
    """Channels of the gradient times taps that meet the same places."""
    for channels, taps, step, dilation, served in (
        ((2, 4), 16, 4, 1, True), ((2, 4), 17, 4, 1, False), ((2, 3), 20, 4, 1, True), ((2, 3), 21, 4, 1, False),
        ((2, 2), 8, 4, 4, True), ((2, 2), 9, 4, 4, False), ((1, 1), 99, 4, 4, True),
    ):  # fmt: skip
        problem = problem_of(4, 2, channels, 1000, taps, step=step, dilation=dilation)
        assert problem.plan(planner, BACKWARD_INPUT).path == CHUNKS
        assert problem.serves(planner, BACKWARD_INPUT) == served


def test_gradients_of_many_channels_are_gathered_by_value(planner):
    for channels, path in ((4, CHUNKS), (5, VALUES)):
        problem = problem_of(4, 2, (2, channels), 1000, 3, step=4)
        assert problem.plan(planner, BACKWARD_INPUT).path == path
        assert problem.serves(planner, BACKWARD_INPUT) == (channels == 4)


@pytest.mark.parametrize("which", [FORWARD, BACKWARD_INPUT])
def test_short_rows_of_many_products_are_the_library_s(planner, which):
    """Their lanes are few, and each has all the products of its outputs."""
    for channels, size, taps, served in (
        ((1, 1), 100, 31, True), ((1, 1), 100, 33, False), ((1, 1), 149, 33, True),
        ((2, 2), 31, 3, False), ((2, 2), 33, 3, True),
    ):  # fmt: skip
        problem = problem_of(64, 16, channels, size, taps, padding=taps // 2)
        assert problem.plan(planner, which).path == ROWS
        assert problem.serves(planner, which) == served


def test_short_rows_with_far_taps_are_the_library_s(planner):
    for groups, size, taps, dilation, served in (
        (100, 48, 15, 4, True), (1500, 48, 15, 4, False), (1500, 48, 11, 4, True), (1500, 48, 15, 3, True), (5000, 48, 15, 4, True),
        (5200, 32, 15, 4, True), (6000, 31, 15, 4, False),
    ):  # fmt: skip
        problem = problem_of(1, groups, (1, 1), size, taps, padding=taps // 2 * dilation, dilation=dilation)
        assert problem.plan(planner, FORWARD).path == ROWS
        assert problem.serves(planner, FORWARD) == served


def test_an_input_gradient_is_a_convolution_with_the_taps_reversed(planner):
    """Place j of the input is under tap k of output j + p - k d, which tap K - 1 - k of the transposed problem is laid on."""
    for taps, padding, dilation in ((1, 0, 1), (5, 2, 1), (5, 9, 2), (3, 0, 4)):
        problem = problem_of(2, 3, (2, 4), 50, taps, padding=padding, dilation=dilation)
        other = problem.transposed(planner)
        assert (other.from_.size, other.to.size) == (problem.to.size, 50) and other.from_.channels == 4
        assert (other.out_stride, other.in_stride) == (problem.in_stride, problem.out_stride)
        for k in range(taps):
            own = taps - 1 - k
            assert other.weight + own * other.tap_stride * 4 == problem.weight + k * problem.tap_stride * 4
            assert -other.padding + own * dilation == padding - k * dilation


@pytest.mark.parametrize(
    "which, arguments, rest",
    [
        (FORWARD, (1, 1, (1, 1), 2**16, 2915), {"dtype": BFLOAT16}),
        (FORWARD, (1, 1, (1, 1), 2**16, 3), {"dilation": 1401}),
        (BACKWARD_INPUT, (1, 1, (1, 4), 256, 64), {"dtype": FLOAT64, "dilation": 3}),
        (BACKWARD_INPUT, (1, 1, (2, 16), 256, 35), {"dtype": FLOAT16}),
    ],
)
def test_shared_memory_leaves_room_for_what_kernels_declare(planner, which, arguments, rest):
    """Of 48 KB that a launch has without asking."""
    check(planner, problem_of(*arguments, **rest), which)


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32])
def test_padding_behind_a_row_goes_as_far_as_it_likes(planner, dtype):
    check(planner, problem_of(1, 1, (1, 64), 1000, 3, dtype, step=8, right=2**32), FORWARD)


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("dtype", list(ITEM))
@pytest.mark.parametrize("layout", ["rows", "channels last", "strided"])
@pytest.mark.parametrize("step", [1, 3])
def test_large_problems(planner, which, dtype, layout, step):
    """Signals of 2^31 values and more, in one row or in many: no count overflows."""
    for batch, groups, channels, size in (
        (1, 1, (1, 1), 2**31 + 5),
        (1, 1, (1, 1), 2**33),
        (2**31 + 5, 1, (1, 1), 3),
        (2**12, 2**11, (1, 1), 2**11),
        (1, 2**24, (1, 4), 2**10),
        (2**25, 64, (2, 2), 70),
        (2**38, 1, (1, 1), 1),
        (2, 1, (1, 1), 2**38),
    ):
        problem = problem_of(batch, groups, channels, size, 3, dtype, step, 2, layouts=(layout, layout))
        check(planner, problem, which)


@pytest.mark.parametrize("which", [FORWARD, BACKWARD_INPUT])
@pytest.mark.parametrize("name", ["group_stride", "out_stride", "in_stride", "tap_stride"])
def test_few_values_of_weights_that_lie_far_apart(planner, which, name):
    """32 bits count how far a lane's taps reach; what reaches farther is another kernel's."""
    for stride, few in ((2**29 // 5, True), (2**29 // 5 + 1, False), (2**29, False), (2**31 + 1, False)):
        problem = problem_of(1, 5, (5, 5), 100, 5, FLOAT16, padding=2)
        setattr(problem, name, stride)
        assert bool(check(planner, problem, which, few=True).few_values) == few, (name, stride)


@seeded(300)
@given(problem=long_rows(), sms=st.sampled_from([1, 40, 132]))
def test_weight_gradients_take_no_more_shared_memory_than_the_device_has(planner, problem, sms):
    """64 KiB on sm_75, of which sums over a block take 4."""
    for shared in (64 << 10, 99 << 10, 227 << 10):
        assert problem.plan(planner, BACKWARD_WEIGHT, sms, shared).shared_bytes <= min(shared, 100 << 10) - (4 << 10)


@pytest.mark.parametrize("dtype", list(ITEM))
def test_weight_gradients_on_devices_of_little_shared_memory_keep_their_path(planner, dtype):
    for problem in (problem_of(1, 1, (1, 1), 2**20, 5, dtype, padding=2), problem_of(8, 16, (1, 1), 4096, 4, dtype)):
        assert problem.plan(planner, BACKWARD_WEIGHT, 132, 64 << 10).path == CHUNKS


@pytest.mark.parametrize("dtype", list(ITEM))
def test_weight_gradients_of_very_many_places_keep_their_path(planner, dtype):
    problem = problem_of(2**17, 8, (1, 1), 4096, 4, dtype)
    assert problem.plan(planner, BACKWARD_WEIGHT).path == CHUNKS
    check(planner, problem, BACKWARD_WEIGHT)
