"""The planner of convolutions, exercised without a GPU: what the kernels rely on must hold for signals of any size, and their index
arithmetic, repeated here, must meet every output once. That the kernels themselves do is shown by tests/emulation."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = PASSES = range(3)
LIBRARY, ROWS, FAN, COLUMNS, VALUES, MMA = range(6)
FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = 6, 7, 8, 9
ITEM = {FLOAT16: 2, BFLOAT16: 2, FLOAT32: 4, FLOAT64: 8}
BASE = 1 << 40
LIMIT, FAR = 2**31 - 1, 2**29
THREADS, WARP, PACK = 256, 32, 16
SHARED, MOST_SHARED, SUMS = 48 << 10, 100 << 10, 4 << 10
WEIGHT_BLOCKS, WEIGHT_UNITS = 6, 4
PRODUCTS = (2, 4, 6, 8, 10, 12, 16)
MOST_MODELLED = 100_000


def fields(names: str) -> list:
    return [(name, ctypes.c_int64) for name in names.split()]


class PlanView(ctypes.Structure):
    _fields_ = fields(
        "path channels wide slides dilated channels_first cycle tiles row_tiles row_lanes rows block_rows halo_packs taps_pitch products "
        "block_channels tile_values taps tap_parts splits lanes blocks threads shared_bytes "
        "warp_tiles warp_packs"
    )


class Signal(ctypes.Structure):
    _fields_ = fields("data batch_stride channel_stride stride channels size")

    def address(self, item: int, image: int, channel: int) -> int:
        return self.data + (image * self.batch_stride + channel * self.channel_stride) * item


class Problem(ctypes.Structure):
    _fields_ = [("from_", Signal), ("to", Signal)]
    _fields_ += fields("weight group_stride out_stride in_stride tap_stride bias bias_stride")
    _fields_ += fields("dtype batch groups taps step padding dilation activation")

    def __repr__(self):
        def of(struct):
            return ", ".join(
                f"{name}={getattr(struct, name)}" for name, kind in struct._fields_ if kind is ctypes.c_int64
            )

        return f"Problem(from=({of(self.from_)}), to=({of(self.to)}), {of(self)})"

    @property
    def item(self) -> int:
        return ITEM[self.dtype]

    @property
    def compute(self) -> int:
        return max(self.item, 4)

    def plan(self, planner, which: int = FORWARD, sms: int = 132) -> PlanView:
        view = PlanView()
        planner.plan(ctypes.byref(self), which, sms, ctypes.byref(view))
        return view

    def serves(self, planner, which: int, sms: int = 132) -> bool:
        return bool(planner.serves_it(ctypes.byref(self), which, sms))

    def transposed(self, planner) -> Problem:
        result = Problem()
        planner.transpose(ctypes.byref(self), ctypes.byref(result))
        return result


def strides_of(layout: str, channels: int, size: int, values: int) -> tuple:
    whole, whole_channels = -(-size // values) * values, -(-channels // values) * values
    return {
        "rows": (channels * size, size, 1),
        "whole rows": (channels * whole, whole, 1),
        "channels last": (channels * size, 1, channels),
        "whole channels": (size * whole_channels, 1, whole_channels),
        "strided": (2 * channels * size, 2 * size, 2),
        "expanded": (0, 0, 0),
    }[layout]


def problem_of(
    batch, groups, channels, size, taps, dtype=FLOAT32, step=1, padding=0, dilation=1, layouts=("rows", "rows"), offsets=(0, 0), right=None
) -> Problem:  # fmt: skip
    """`channels` of a group, in and out; as much padding on the right as on the left unless given; offsets are in elements, from an
    aligned address."""
    right = padding if right is None else right
    out_size = (max(size + padding + right - (taps - 1) * dilation, 1) - 1) // step + 1
    signals = []
    for i, length in enumerate((size, out_size)):
        strides = strides_of(layouts[i], groups * channels[i], length, 16 // ITEM[dtype])
        signals.append(Signal((i + 1) * BASE + offsets[i] * ITEM[dtype], *strides, channels[i], length))
    ci, co = channels
    return Problem(
        *signals, 3 * BASE, co * ci * taps, ci * taps, taps, 1, 0, 1, dtype, batch, groups, taps, step, padding, dilation, 0
    )  # fmt: skip


@pytest.fixture(scope="session")
def planner(tmp_path_factory):
    library = tmp_path_factory.mktemp("plan") / "plan.so"
    source = Path(__file__).with_name("conv1d_shim.cpp")
    # Arithmetic that overflows ends the tests.
    checks = ["-fsanitize=signed-integer-overflow,integer-divide-by-zero", "-fno-sanitize-recover=all"]
    flags = ["-std=c++20", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", *checks, f"-I{ROOT / 'csrc'}"]
    subprocess.run([os.environ.get("CXX", "g++"), *flags, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


# ---------------------------------------------------------------- limits and the kernels' index arithmetic


def once(places: np.ndarray, count: int) -> bool:
    """Whether the places are 0 ... count - 1, each once."""
    return len(places) == count and np.array_equal(np.sort(places), np.arange(count))


def is_aligned(problem: Problem, signal: Signal, values: int) -> bool:
    channels = signal.channels * problem.groups
    return (
        signal.data % (values * problem.item) == 0
        and (channels == 1 or signal.channel_stride % values == 0)
        and (problem.batch == 1 or signal.batch_stride % values == 0)
    )


def some_rows(problem: Problem) -> set:
    """Images and channels of the output."""
    channels = problem.groups * problem.to.channels
    images = {n for n in (0, 1, problem.batch // 2, problem.batch - 1) if n < problem.batch}
    return {(n, c) for n in images for c in (0, 1, 2, 3, channels // 2, channels - 1) if c < channels}


def check_segments(threads: int, row_lanes: int, rows: int, block_rows: int, block: int) -> None:
    """Of how many rows the lanes of a block are, and that a lane has a row and a place of it."""
    lanes = block * threads + np.arange(threads)
    row, lane = lanes // row_lanes, lanes % row_lanes
    block_row = row - lanes[0] // row_lanes
    valid = row < rows
    assert block_row[valid].max(initial=0) < block_rows
    first = np.where(block_row == 0, lanes[0] % row_lanes, 0)
    own = np.minimum(row_lanes, lane + threads - np.arange(threads)) - first
    # The lanes of a segment copy it together: as many as there are.
    counts = np.bincount(block_row)
    assert np.array_equal(counts[block_row], own) and (lane - first < own).all() and (lane >= first).all()


def check_row_lanes(problem: Problem, row_lanes: int, outputs: int) -> None:
    """Lanes that begin at aligned places meet all places of a row, wherever it begins."""
    values = PACK // problem.item
    assert outputs % values == 0
    for image, channel in some_rows(problem):
        misaligned = problem.to.address(problem.item, image, channel) % PACK // problem.item
        assert row_lanes * outputs - misaligned >= problem.to.size
        assert (row_lanes - 2) * outputs < problem.to.size  # none is idle in all rows
        if row_lanes * outputs <= MOST_MODELLED:
            met = (np.arange(row_lanes)[:, None] * outputs - misaligned + np.arange(outputs)[None, :]).ravel()
            assert once(met[(met >= 0) & (met < problem.to.size)], problem.to.size)


def check_rows(problem: Problem, plan: PlanView) -> None:
    item, values, step = problem.item, PACK // problem.item, 4 if problem.item == 8 else 8
    outputs = (
        (4 if item == 8 else 8)
        if plan.channels == 4
        else (16 if not plan.wide else 64 if plan.slides and item == 4 else 32) // item
    )
    assert problem.step == 1 or problem.to.size == 1
    assert problem.from_.stride == 1 or problem.from_.size == 1
    assert problem.to.stride == 1 or problem.to.size == 1
    assert plan.threads in (32, 64, 128) and plan.dilated == (problem.dilation > 1 and problem.taps > 1)
    assert plan.slides == (not plan.dilated and problem.taps > step)  # else there is one step of taps
    assert problem.from_.size < 2**30 and problem.to.size < 2**30
    assert plan.rows == problem.batch * problem.groups * plan.tiles and plan.lanes == plan.rows * plan.row_lanes
    assert plan.blocks == -(-plan.lanes // plan.threads)
    check_row_lanes(problem, plan.row_lanes, outputs)
    for block in {0, 1, plan.blocks // 2, plan.blocks - 1}:
        check_segments(plan.threads, plan.row_lanes, plan.rows, plan.block_rows, block)

    # Channels of a lane are aligned alike, and each is a lane's.
    assert plan.channels in (1, 4) and plan.cycle in (1, 2, 4, 8) and (plan.channels == 4 or plan.cycle == 1)
    part, shift = np.arange(plan.tiles), plan.cycle.bit_length() - 1
    first = ((part >> shift) * plan.channels << shift) + (part & (plan.cycle - 1))
    met = (first[:, None] + np.arange(plan.channels)[None, :] * plan.cycle).ravel()
    assert once(met[met < problem.to.channels], problem.to.channels)
    if plan.channels == 4:
        assert plan.cycle * problem.to.channel_stride % values == 0 or problem.to.channels == 1
        assert plan.tiles * 4 <= 4 / 3 * problem.to.channels  # a quarter is missing at most

    # Shared memory holds the taps and the tiles of all input channels, and what lanes read behind them.
    assert (
        plan.taps_pitch >= problem.taps
        and plan.taps_pitch % step == 0
        and plan.taps_pitch * problem.compute % PACK == 0
    )
    reach = (problem.taps - 1) * problem.dilation
    assert plan.halo_packs * values >= values - 1 + reach
    taps = plan.block_rows * plan.channels * problem.from_.channels * plan.taps_pitch * problem.compute
    tile = plan.threads * (outputs // values) + plan.block_rows * plan.halo_packs
    last = tile - plan.halo_packs - outputs // values  # the last lane's first pack
    if plan.dilated:
        read = (values - 1 + reach) // values + outputs // values + 1
    else:
        read = (outputs + plan.taps_pitch) // values + 1
    packs = (problem.from_.channels - 1) * tile + max(tile, last + read)
    assert taps % PACK == 0 and taps + packs * PACK <= plan.shared_bytes <= SHARED


def check_mma(problem: Problem, plan: PlanView) -> None:
    assert problem.item == 2 and (problem.step == 1 or problem.to.size == 1)
    assert problem.from_.stride == 1 or problem.from_.size == 1
    assert problem.to.stride == 1 or problem.to.size == 1
    assert problem.from_.size < 2**30 and problem.to.size < 2**30
    assert 1 <= plan.warp_tiles <= 8 and plan.threads == 128
    rows = problem.batch * problem.groups * problem.to.channels
    assert plan.lanes == rows * plan.row_lanes and plan.blocks == -(-plan.lanes // 4)
    outputs = plan.warp_tiles * 128
    for image, channel in some_rows(problem):
        misaligned = problem.to.address(2, image, channel) % PACK // 2
        assert plan.row_lanes * outputs - misaligned >= problem.to.size
        assert (plan.row_lanes - 1) * outputs < problem.to.size + 7
    # The last step of taps reads 16 values from the last block on.
    last_step = ((problem.taps - 1) * problem.dilation + 7 + 7) // 16 * 16
    assert plan.warp_packs * 8 >= outputs - 8 + last_step + 16
    assert 4 * problem.from_.channels * plan.warp_packs * PACK <= plan.shared_bytes <= SHARED


def check_fan(problem: Problem, plan: PlanView) -> None:
    item, outputs = problem.item, 2 if problem.item == 8 else 4
    assert problem.from_.stride == 1 or problem.from_.size == 1
    assert problem.to.stride == 1 or problem.to.size == 1
    products = problem.from_.channels * problem.taps
    assert plan.products in PRODUCTS and products <= plan.products <= products + 3
    assert plan.blocks == problem.batch * problem.groups * plan.tiles * plan.cycle * plan.row_tiles
    assert plan.cycle * problem.to.channel_stride % outputs == 0
    met = np.arange(plan.cycle)[:, None] + np.arange(plan.tiles * plan.block_channels)[None, :] * plan.cycle
    assert once(met[met < problem.to.channels], problem.to.channels)
    for image, channel in some_rows(problem):
        misaligned = problem.to.address(item, image, channel) % (outputs * item) // item
        assert plan.row_tiles * THREADS * outputs - misaligned >= problem.to.size
    pitch = (plan.products + 3) // 4 * 4
    last = (THREADS * outputs - 1) * problem.step + (problem.taps - 1) * problem.dilation
    assert plan.tile_values > last
    values = plan.block_channels * pitch + problem.from_.channels * plan.tile_values
    assert values * problem.compute <= plan.shared_bytes <= SHARED


def check_columns(problem: Problem, plan: PlanView) -> None:
    values = PACK // problem.item
    for signal in (problem.from_, problem.to):
        assert signal.channels == 1 and signal.channel_stride == 1 and signal.data % PACK == 0
        assert signal.stride % values == 0 and (problem.batch == 1 or signal.batch_stride % values == 0)
    assert problem.groups % values == 0
    assert (plan.tiles - 1) * 8 * values < problem.groups <= plan.tiles * 8 * values
    assert (plan.row_tiles - 1) * 128 < problem.to.size <= plan.row_tiles * 128
    assert plan.blocks == problem.batch * plan.tiles * plan.row_tiles
    assert problem.taps * 8 * values * problem.compute <= plan.shared_bytes <= SHARED


def check_values(problem: Problem, plan: PlanView) -> None:
    assert plan.channels == (4 if problem.to.channels >= 4 and problem.item < 8 else 1)
    assert (plan.tiles - 1) * plan.channels < problem.to.channels <= plan.tiles * plan.channels
    places = 4 if plan.channels_first else 128
    assert (plan.row_tiles - 1) * places < problem.to.size <= plan.row_tiles * places
    lanes = problem.batch * problem.groups * plan.tiles * plan.row_tiles * (1 if plan.channels_first else WARP)
    assert plan.lanes == lanes and plan.shared_bytes == 0
    assert plan.blocks == -(-lanes // THREADS)


def check_weight(problem: Problem, plan: PlanView, sms: int) -> None:
    item, values = problem.item, PACK // problem.item
    out_channels = problem.groups * problem.to.channels
    assert plan.threads == THREADS and plan.tap_parts == -(-problem.taps // plan.taps)
    if plan.path == ROWS:
        outputs = 32 // item
        assert problem.step == 1 or problem.to.size == 1
        assert plan.dilated == (problem.dilation > 1 and problem.taps > 1)
        assert plan.taps in ((8,) if plan.dilated else (4, 8, 16) if item == 8 else (4, 8, 16, 32))
        assert problem.batch * plan.row_lanes < FAR and problem.batch * problem.to.size < FAR
        check_row_lanes(problem, plan.row_lanes, outputs)
        tiles = -(-problem.batch * plan.row_lanes // THREADS)
        for tile in {0, 1, tiles // 2, tiles - 1}:
            check_segments(THREADS, plan.row_lanes, problem.batch, plan.block_rows, tile)
        # Two tiles, and what lanes read behind the second one.
        own = min(problem.taps, plan.taps)
        reach, step = (own - 1) * problem.dilation, 4 if item == 8 else 8
        assert plan.halo_packs * values >= values - 1 + reach
        grads = THREADS * outputs // values
        stage = 2 * grads + plan.block_rows * plan.halo_packs
        last = stage - plan.halo_packs - outputs // values
        if plan.dilated:
            read = (values - 1 + reach) // values + outputs // values + 1
        else:
            read = (outputs + -(-own // step) * step) // values + 1
        assert (stage + max(stage, last + read)) * PACK <= plan.shared_bytes <= MOST_SHARED - SUMS
        blocks, units = out_channels * problem.from_.channels * plan.tap_parts, tiles
    elif plan.path == COLUMNS:
        assert plan.taps == 8 and plan.tiles == -(-out_channels // 32) and plan.shared_bytes == 0
        blocks, units = plan.tiles * problem.from_.channels * plan.tap_parts, -(-problem.batch * problem.to.size // 8)
    else:
        assert plan.taps == 8 and plan.shared_bytes == 0
        assert plan.channels == (4 if problem.to.channels >= 4 and item < 8 else 1)
        assert (plan.tiles - 1) * plan.channels < problem.to.channels <= plan.tiles * plan.channels
        blocks = problem.groups * plan.tiles * problem.from_.channels * plan.tap_parts
        units = -(-problem.batch * problem.to.size // THREADS)
    # Every split has something to do, the device can hold them, and each thread has one partial sum at most.
    assert plan.blocks == blocks * plan.splits and 1 <= plan.splits <= max(units // WEIGHT_UNITS, 1)
    if plan.splits > 1:
        assert plan.blocks <= sms * WEIGHT_BLOCKS
        weights = out_channels * problem.from_.channels * problem.taps
        assert weights * plan.splits <= plan.blocks * plan.threads


def check(planner, problem: Problem, which: int, sms: int = 132) -> PlanView:
    plan = problem.plan(planner, which, sms)
    assert (plan.path == LIBRARY) == (problem.from_.channels > 8)
    assert plan.path != LIBRARY or not problem.serves(planner, which, sms)
    if plan.path == LIBRARY:
        return plan
    assert plan.threads % WARP == 0 and WARP <= plan.threads <= THREADS and plan.blocks >= 1
    if which == BACKWARD_WEIGHT:
        check_weight(problem, plan, sms)
        return plan
    gathers = which == BACKWARD_INPUT and problem.step > 1 and problem.to.size > 1
    if which == BACKWARD_INPUT:
        problem = problem.transposed(planner)
    assert not gathers or plan.path == VALUES
    {MMA: check_mma, ROWS: check_rows, FAN: check_fan, COLUMNS: check_columns, VALUES: check_values}[plan.path](
        problem, plan
    )
    return plan


# ---------------------------------------------------------------- random problems

SIZES = [
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    16,
    17,
    31,
    33,
    64,
    100,
    128,
    129,
    255,
    257,
    1000,
    1024,
    2047,
    4099,
    16384,
    65537,
    99991,
    2**20 + 3,
]
SIZES += [2**24, 2**29 - 1, 2**30 - 1, 2**30, 2**31 + 5, 2**33]
TAPS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 70, 129, 1000, 4096]
BATCHES = [1, 1, 1, 2, 3, 8, 33, 100, 257, 4096, 65537, 2**20 + 1, 2**31 + 7]
LAYOUTS = ["rows", "rows", "rows", "whole rows", "channels last", "channels last", "whole channels", "strided"]


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(list(ITEM)))
    channels = draw(
        st.sampled_from([(1, 1), (1, 1), (1, 2), (1, 4), (2, 3), (3, 8), (8, 8), (4, 100), (1, 513), (9, 1), (64, 64)])
    )
    groups = draw(st.sampled_from([1, 1, 2, 3, 8, 64, 100, 4096]))
    taps, dilation = draw(st.sampled_from(TAPS)), draw(st.sampled_from([1, 1, 1, 2, 3, 16, 1000]))
    reach = (taps - 1) * dilation
    padding = draw(st.sampled_from([0, 0, reach // 2, reach, reach + 3]))
    layout = draw(st.sampled_from(LAYOUTS))
    other = layout if draw(st.booleans()) else draw(st.sampled_from([*LAYOUTS, "expanded"]))
    offsets = draw(st.sampled_from([(0, 0), (0, 0), (0, 1), (1, 0), (3, 3)]))
    size = draw(st.sampled_from(SIZES))
    batch = draw(st.sampled_from([n for n in BATCHES if n * groups * max(channels) * size < 2**48] or [1]))
    return problem_of(
        batch, groups, channels, size, taps, dtype,
        draw(st.sampled_from([1, 1, 1, 2, 3, 8, 1000])), padding, dilation, (other, layout), offsets,
        draw(st.sampled_from([padding, reach, 0])),
    )  # fmt: skip


def test_any_launch_is_valid(planner):
    taken = set()

    @settings(
        max_examples=2500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(problem=problems(), which=st.sampled_from(PASSES), sms=st.sampled_from([1, 4, 132, 148]))
    def check_one(problem, which, sms):
        plan = check(planner, problem, which, sms)
        taken.add((which, plan.path))
        taken.add((which, plan.path, plan.channels, bool(plan.wide), bool(plan.dilated), bool(plan.channels_first)))
        if which == BACKWARD_WEIGHT:
            taken.add((plan.path, plan.splits > 1))

    check_one()
    for which in PASSES:
        assert {(which, path) for path in (LIBRARY, ROWS, COLUMNS, VALUES)} <= taken
    assert (FORWARD, FAN) in taken
    for which in (FORWARD, BACKWARD_INPUT):
        assert {(which, ROWS, 1, wide, dilated, False) for wide in (False, True) for dilated in (False, True)} <= taken
        assert {(which, ROWS, 4, False, dilated, False) for dilated in (False, True)} <= taken
        assert {
            (which, VALUES, channels, False, False, first) for channels in (1, 4) for first in (False, True)
        } <= taken
    assert {(path, split) for path in (ROWS, COLUMNS, VALUES) for split in (False, True)} <= taken


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


# ---------------------------------------------------------------- paths

LAST = {"layouts": ("channels last", "channels last")}


@pytest.mark.parametrize(
    "arguments, rest, path, expected",
    [
        ((8, 512, (1, 1), 4096, 4), {"padding": 3}, ROWS, {"channels": 1, "wide": 1, "dilated": 0, "threads": 128}),
        ((1, 8, (1, 1), 4096, 4), {}, ROWS, {"channels": 1, "wide": 0}),
        ((1, 8, (1, 1), 4096, 4), {"dilation": 2}, ROWS, {"dilated": 1}),
        ((1, 8, (1, 1), 4096, 1), {"dilation": 2}, ROWS, {"dilated": 0}),
        ((8, 1, (1, 64), 4096, 4), {"padding": 2, "right": 1}, ROWS, {"channels": 4, "cycle": 1, "tiles": 16}),
        ((8, 1, (1, 64), 4096, 4), {}, ROWS, {"channels": 4, "cycle": 4, "tiles": 16}),  # rows of 4093
        ((8, 1, (1, 3), 4096, 1), {}, ROWS, {"channels": 4, "tiles": 1}),
        ((8, 1, (1, 2), 4096, 1), {}, ROWS, {"channels": 1, "tiles": 2}),
        ((8, 1, (1, 5), 4096, 1), {}, ROWS, {"channels": 1, "tiles": 5}),
        ((8, 1, (1, 1), 1, 3), {"padding": 3, "step": 7}, ROWS, {"channels": 1}),  # of one place
        ((8, 1, (1, 1), 4096, 3), {"layouts": ("rows", "strided")}, VALUES, {"channels_first": 0}),
        ((8, 1, (1, 1), 4096, 3), {"step": 2}, VALUES, {"channels_first": 0}),
        ((8, 8, (1, 1), 4096, 3), {"layouts": ("rows", "channels last")}, VALUES, {"channels_first": 1}),
        ((8, 1, (1, 512), 4096, 10), {"step": 5}, FAN, {"products": 10, "cycle": 2}),
        ((8, 1, (1, 512), 4096, 13), {"step": 5}, FAN, {"products": 16}),
        ((8, 1, (2, 512), 4096, 9), {"step": 5}, VALUES, {"channels": 4}),
        ((8, 1, (1, 512), 4096, 10), {"step": 50}, VALUES, {"channels": 4}),  # tiles too large
        ((8, 1, (1, 7), 4096, 10), {"step": 5}, VALUES, {"channels": 4}),
        ((8, 64, (1, 1), 4096, 4), LAST, COLUMNS, {"tiles": 2, "row_tiles": 32}),
        ((8, 64, (1, 1), 4096, 4), LAST | {"step": 2, "dilation": 3}, COLUMNS, {}),
        ((8, 63, (1, 1), 4096, 4), LAST, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 1), 4096, 4), LAST | {"offsets": (1, 0)}, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 2), 4096, 4), LAST, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 1), 2**16, 385), LAST, VALUES, {"channels_first": 1}),  # taps that don't fit
        ((1, 1, (1, 1), 2**30 - 1, 3), {}, ROWS, {}),
        ((1, 1, (1, 1), 2**30, 3), {}, VALUES, {}),
        ((1, 1, (1, 1), 4096, 3), {"dilation": 2000}, ROWS, {}),
        ((1, 1, (1, 1), 2**16, 3), {"dilation": 8000}, VALUES, {}),  # a tile that doesn't fit
    ],
)
def test_paths_of_a_forward(planner, arguments, rest, path, expected):
    plan = check(planner, problem_of(*arguments, **rest), FORWARD)
    assert plan.path == path and {name: getattr(plan, name) for name in expected} == expected


@pytest.mark.parametrize(
    "arguments, rest, path, expected",
    [
        ((8, 512, (1, 1), 4096, 4), {"padding": 3}, ROWS, {"wide": 1}),
        ((8, 1, (8, 512), 4096, 3), {"padding": 1}, VALUES, {"channels": 4}),  # taps that don't fit
        ((8, 1, (8, 4), 4096, 3), {"padding": 1}, ROWS, {"channels": 4}),
        ((8, 1, (1, 512), 4096, 10), {"step": 5}, VALUES, {}),
        ((8, 1, (1, 1), 4, 4), {"step": 5}, ROWS, {}),  # of one place
        ((8, 64, (1, 1), 4096, 4), LAST, COLUMNS, {}),
        ((8, 64, (1, 1), 4096, 4), LAST | {"step": 2}, VALUES, {"channels_first": 1}),
        ((8, 64, (1, 1), 4096, 4), {"layouts": ("rows", "expanded")}, VALUES, {"channels_first": 0}),
    ],
)
def test_paths_of_an_input_gradient(planner, arguments, rest, path, expected):
    plan = check(planner, problem_of(*arguments, **rest), BACKWARD_INPUT)
    assert plan.path == path and {name: getattr(plan, name) for name in expected} == expected


@pytest.mark.parametrize(
    "arguments, rest, path, expected",
    [
        ((8, 512, (1, 1), 4096, 4), {"padding": 3}, ROWS, {"taps": 4, "splits": 1}),
        ((8, 4, (1, 1), 2**20, 5), {}, ROWS, {"taps": 8, "splits": 198}),
        ((8, 1, (1, 1), 2**20, 33), {}, ROWS, {"taps": 32, "tap_parts": 2}),
        ((8, 1, (1, 1), 2**20, 33), {"dtype": FLOAT64}, ROWS, {"taps": 16, "tap_parts": 3}),
        ((8, 1, (1, 1), 2**20, 33), {"dilation": 2}, ROWS, {"taps": 8, "tap_parts": 5, "dilated": 1}),
        ((8, 1, (1, 1), 2**20, 4), {"step": 2}, VALUES, {"channels": 1}),
        ((8, 1, (1, 16), 2**20, 4), {"step": 2}, VALUES, {"channels": 4}),
        ((8, 1, (1, 16), 2**20, 4), {"step": 2, "dtype": FLOAT64}, VALUES, {"channels": 1}),
        ((8, 64, (1, 1), 4096, 9), LAST, COLUMNS, {"tap_parts": 2, "tiles": 2}),
        ((8, 7, (1, 1), 4096, 9), LAST, VALUES, {}),
        ((2**20, 1, (1, 1), 2**9, 3), {"padding": 1}, VALUES, {}),  # too many places to count with 29 bits
        ((8, 1, (1, 1), 4096, 3), {"layouts": ("rows", "expanded")}, VALUES, {}),
    ],
)
def test_paths_of_a_weight_gradient(planner, arguments, rest, path, expected):
    plan = check(planner, problem_of(*arguments, **rest), BACKWARD_WEIGHT)
    assert plan.path == path and {name: getattr(plan, name) for name in expected} == expected


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
