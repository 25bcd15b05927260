"""The planners of upsampling, tested without a GPU: the assumptions of the kernels hold for images of any size. tests/emulation
tests the kernels."""

from __future__ import annotations

import ctypes
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from .upsample_planner import (
    BASE,
    FACTOR,
    FLOAT16,
    FLOAT32,
    GATHER,
    IMAGES,
    INT32,
    ITEM,
    LONGEST,
    PART,
    PIXELS,
    ROWS,
    SCALES,
    SEVERAL,
    SHARED,
    SHORT,
    THREADS,
    TILE_THREADS,
    TILES,
    UINT8,
    VECS,
    WINDOWS,
    Axis,
    Plan,
    load_planner,
)


@pytest.fixture(scope="module")
def planner():
    return load_planner()


class Problem:
    """An upsampling of (N, C, H, W) images. `strides` and `grad` are the strides in elements of the forward's and of the backward's
    source. Images are dense unless these are given."""

    def __init__(
        self, batch, channels, height: Axis, width: Axis, dtype=FLOAT32, channels_last=False, strides=None, offset=0
    ):
        self.batch, self.channels, self.height, self.width = batch, channels, height, width
        self.dtype, self.channels_last, self.given, self.address = dtype, channels_last, strides, BASE + offset
        self.item = ITEM[dtype]

    def __repr__(self):
        return f"{self.__dict__}"

    def strides(self, backward: bool):
        if self.given is not None:
            return self.given
        h, w = (axis.out if backward else axis.n for axis in (self.height, self.width))
        c = self.channels
        return [c * h * w, 1, w * c, c] if self.channels_last else [c * h * w, h * w, w, 1]

    def arguments(self, backward: bool):
        h, w = self.height, self.width
        return (
            (ctypes.c_int64 * 6)(self.batch, self.channels, h.n, h.out, w.n, w.out),
            (ctypes.c_float * 2)(h.step, w.step),
            int(h.exact),
            (ctypes.c_int64 * 4)(*self.strides(backward)),
            int(self.channels_last),
            ctypes.c_uint64(self.address),
            self.dtype,
        )

    def forward(self, planner, sms=132) -> Plan:
        plan = Plan(json.loads(planner.forward_plan(*self.arguments(False), sms)))
        plan.width_of_result, plan.row_units = self.width.out, self.width.out * plan.pixel_units
        plan.rows = plan.all_units // plan.row_units
        plan.images = plan.rows // self.height.out
        return plan

    def backward(self, planner, sms=132) -> Plan:
        plan = Plan(json.loads(planner.backward_plan(*self.arguments(True), sms)))
        plan.unit_bytes = plan.elements * self.item
        plan.width_of_result, plan.row_units = self.width.n, self.width.n * plan.pixel_units
        plan.rows = plan.all_units // plan.row_units
        plan.images = plan.rows // self.height.n
        plan.images_per_thread = -(-plan.parts[0].images // plan.image_step)
        for name in ("batch_stride", "channel_stride", "row_stride", "pixel_stride", "unit_stride"):
            setattr(plan, name, getattr(plan, name) // plan.elements)  # in units
        return plan


def is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def check_layout(problem: Problem, plan, backward: bool) -> None:
    """Checks that units cover the images, and that strides in units address the same bytes as strides in elements."""
    item, unit = problem.item, plan.unit_bytes
    batch_stride, channel_stride, row_stride, pixel_stride = problem.strides(backward)
    assert is_power(unit) and item <= unit <= 16
    if problem.channels_last and problem.channels > 1:
        assert plan.channels == 1 and plan.images == problem.batch and plan.batch_stride * unit == batch_stride * item
        assert plan.pixel_units * unit == problem.channels * item
        assert unit == item or channel_stride == 1
        assert plan.unit_stride * unit == channel_stride * item if unit == item else plan.unit_stride == 1
    else:
        assert unit == item and plan.pixel_units == 1
        assert plan.images == problem.batch * problem.channels and plan.channel_stride == channel_stride
        images = np.unique(np.linspace(0, plan.images - 1, 200).astype(np.int64))
        batch, channel = np.divmod(images, problem.channels)
        found = images // plan.channels * plan.batch_stride + images % plan.channels * plan.channel_stride
        assert np.array_equal(found, batch * batch_stride + channel * channel_stride)
    assert plan.row_stride * unit == row_stride * item and plan.pixel_stride * unit == pixel_stride * item
    assert problem.address % unit == 0 or unit == item
    for divisor in (plan.pixel_units, plan.channels, problem.height.n, problem.width.n, problem.height.out):
        assert 1 <= divisor <= INT32


def check_parts(problem: Problem, plan, height: int) -> None:
    """Launches write all units one after another, from the images that they begin at."""
    begin = 0
    for part in plan.parts:
        row = begin // plan.row_units
        image = row // height
        assert part.to == BASE + begin * plan.unit_bytes
        assert part.source == problem.address + image // plan.channels * plan.batch_stride * plan.unit_bytes
        assert (part.first_row, part.first_image) == (row % height, image % plan.channels)
        assert 1 <= part.blocks <= INT32 and part.units <= PART + plan.row_units
        begin += part.units
    assert begin * plan.unit_bytes == problem.batch * problem.channels * height * plan.width_of_result * problem.item


def rows_are_aligned(problem: Problem, plan, to: int) -> bool:
    strides = plan.batch_stride, plan.channel_stride, plan.row_stride
    return problem.address % to == 0 and all(stride * plan.unit_bytes % to == 0 for stride in strides)


def check_forward(problem: Problem, plan: Plan, sms: int) -> None:
    check_layout(problem, plan, backward=False)
    height, width, unit = problem.height, problem.width, plan.unit_bytes
    values = 16 // unit
    units = plan.rows * plan.row_units
    whole_rows = plan.row_units * unit % 16 == 0
    reach = (width.n - 1) * plan.pixel_stride + (plan.pixel_units - 1) * plan.unit_stride
    check_parts(problem, plan, height.out)
    assert plan.vecs_per_row == max(plan.row_units // values, 1) and plan.row_units <= PART
    assert plan.vecs_at_once in (1, 2)
    assert is_power(plan.repeat) and plan.repeat <= min(values, 8)
    if plan.repeat > 1:
        assert plan.pixel_units == 1 and not plan.long_rows
        sources = width.sources(np.arange(min(width.out, 4096))).reshape(-1, plan.repeat)
        assert (sources == sources[:, :1]).all()
    if plan.long_rows:
        assert plan.path == GATHER and plan.pixel_stride <= INT32 and plan.unit_stride <= INT32
    else:
        assert max(width.n, width.out) < SHORT and reach <= INT32
    if plan.path == VECS:
        assert whole_rows and all(part.vecs == part.units // values for part in plan.parts)
        if unit < 16:  # the sources of a vector are one aligned word
            assert plan.repeat > 1 and plan.pixel_stride == 1 and rows_are_aligned(problem, plan, 16 // plan.repeat)
            assert width.out % width.n == 0 and plan.repeat in (width.out // width.n, values)
    elif plan.path == ROWS:
        assert whole_rows and unit <= 4 and plan.repeat == 1 and units <= PART
        assert max(height.n, height.out) < SHORT
        assert plan.vecs == -(-height.out // 4) * plan.images * plan.vecs_per_row
    elif plan.path == IMAGES:
        assert unit <= 4 and plan.repeat == 1 and units <= PART
        image_units = height.out * plan.row_units
        assert plan.group_images * image_units % values == 0 and plan.group_images * plan.groups == plan.images
        assert plan.groups >= 4 and 4 * (plan.group_step - 1) < plan.groups <= 4 * plan.group_step
        assert plan.vecs == plan.group_step * (plan.group_images * image_units // values)
        assert (plan.group_images - 1) * plan.channel_stride + (height.n - 1) * plan.row_stride + reach <= INT32
        # The images of a group are equally far apart, within a batch entry or across entries.
        images = np.concatenate([np.arange(min(plan.images, 4096)), plan.images - 1 - np.arange(min(plan.images, 64))])
        firsts = images // plan.group_images * plan.group_images

        def position(image):
            return image // plan.channels * plan.batch_stride + image % plan.channels * plan.channel_stride

        assert np.array_equal(position(images), position(firsts) + (images - firsts) * plan.channel_stride)
    else:
        for part in plan.parts:
            assert part.vecs in (0, part.units // values)
            assert part.vecs > 0 or part.blocks * part.threads >= part.units  # a thread has one unit
    if plan.path in (ROWS, IMAGES):  # only chosen if every SM gets work
        assert plan.vecs >= 2048 * sms
    # Kernels count the units and the rows of a launch in 31 bits. A launch may begin inside a row and inside an image.
    part = min(units, PART)
    assert part + plan.row_units <= 2**31 and -(-part // plan.row_units) + height.out <= 2**31


def check_tiles(problem: Problem, planner, plan: Plan, wide: int) -> None:
    """The tiles cover all pixels, and their gradients fit in shared memory. Threads cover the rows and columns of a tile."""
    height, width, units, item = problem.height, problem.width, plan.pixel_units, problem.item
    part = plan.parts[0]
    part_rows = part.rows // part.images
    assert (plan.tiles - 1) * plan.tile_columns < width.n <= plan.tiles * plan.tile_columns
    assert (plan.row_tiles - 1) * plan.tile_rows < part_rows <= plan.row_tiles * plan.tile_rows
    assert plan.blocks == plan.tiles * plan.row_tiles * part.images and plan.threads == TILE_THREADS
    assert plan.lanes * plan.most >= wide and 3 <= plan.most <= 6
    row_threads = plan.tile_columns * units * plan.lanes
    assert plan.splits * plan.row_rounds >= plan.tile_rows and plan.column_rounds * TILE_THREADS >= row_threads
    assert plan.splits == 1 or plan.tile_units == row_threads and plan.splits * row_threads <= TILE_THREADS
    assert plan.splits > 1 or plan.tile_units >= min(row_threads, TILE_THREADS)
    # Rows keep their position within a vector, and their vectors are apart.
    assert (plan.pitch - plan.row_stride * item) % 16 == 0
    spans = []
    for axis, side in ((height, plan.tile_rows), (width, plan.tile_columns)):
        firsts = np.arange(min(axis.n, 500))
        firsts = np.unique(np.concatenate([firsts, axis.n - 1 - firsts]))
        ends = [axis.ask(planner.first_copies, np.minimum(firsts + by, axis.n)) for by in (0, side)]
        spans.append(int((ends[1] - ends[0]).max()))
    rows, row_bytes = spans[0], spans[1] * units * item
    assert plan.vecs * 16 >= row_bytes + 16 - item and plan.pitch >= row_bytes + 30
    assert plan.staged_at >= (plan.tile_columns + plan.tile_rows + 2) * 4 and plan.staged_at % 16 == 0
    assert plan.staged_at + rows * plan.pitch <= plan.shared_bytes <= SHARED


def check_backward(problem: Problem, planner, plan: Plan) -> None:
    check_layout(problem, plan, backward=True)
    height, width, units = problem.height, problem.width, plan.pixel_units
    values, row_values = 16 // problem.item, width.out * units
    tall, wide = (planner.widest_window(*axis.arguments()) for axis in (height, width))
    check_parts(problem, plan, height.n)
    assert is_power(plan.lanes) and plan.lanes <= 32
    assert plan.path == TILES or is_power(plan.splits) and plan.splits <= THREADS
    assert plan.rows_per_thread in (1, 2)
    threads = plan.row_units * (1 if plan.path == TILES else plan.splits)  # per row
    if problem.dtype == UINT8:
        assert plan.unit_bytes == 1 and plan.path in (WINDOWS, PIXELS)
    if plan.path in (FACTOR, TILES):
        assert plan.unit_bytes == problem.item and plan.unit_stride == 1 and plan.pixel_stride == units
    if plan.path == FACTOR:
        assert row_values % values == 0 and rows_are_aligned(problem, plan, 16)
        assert units == 1 and plan.vecs == -(-row_values // values) and plan.splits == 1
        assert plan.factor > 1 and values % plan.factor == 0 and plan.factor * plan.lanes * width.n == width.out
        threads = plan.vecs
        if plan.lanes > 1:  # whole vectors, with adjacent threads in one warp
            assert plan.factor == values and plan.vecs % plan.lanes == 0
    elif plan.path == TILES:
        check_tiles(problem, planner, plan, wide)
    elif plan.path == WINDOWS:
        assert max(tall, wide) <= plan.most <= 4 and 1 <= plan.image_step <= plan.parts[0].images
        reach = (
            (height.out - 1) * plan.row_stride + (width.out - 1) * plan.pixel_stride + (units - 1) * plan.unit_stride
        )
        assert plan.splits == 1 and reach <= INT32
    # Kernels count these in 31 bits.
    rows = max(PART // max(threads, plan.row_units), 1)
    assert min(rows, plan.rows) * threads < 2**31 and plan.row_units <= PART


SIZES = [1, 2, 3, 4, 5, 7, 8, 14, 16, 28, 31, 33, 56, 64, 100, 224, 255, 256, 1000, 1024, 1025, 4096]
SIZES += [2**15 + 1, 2**20, SHORT - 1, SHORT, 2**24 + 1, LONGEST]


@st.composite
def plane_axes(draw, exact, longest):
    n = min(draw(st.sampled_from(SIZES)), longest)
    kind = draw(st.sampled_from(["factor", "factor", "scale", "size", "contradiction"]))
    if kind == "factor":
        factor = draw(st.sampled_from([1, 2, 2, 3, 4, 8, 16, 32, 64, 100]))
        n = max(min(n, longest // factor), 1)
        return Axis(n, min(n * factor, longest), None, exact)
    scale = draw(st.sampled_from(SCALES[1:-2]))
    out = int(n * scale) if kind == "scale" else draw(st.sampled_from(SIZES))
    return Axis(n, min(max(out, 1), longest), None if kind == "size" else scale, exact)


@st.composite
def problems(draw):
    """Problems of up to 2^36 inputs and outputs, more than any machine's memory, with rows that the operators support."""
    exact, channels_last = draw(st.booleans()), draw(st.booleans())
    channels = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 33, 64, 256, 1000, 2**20]))
    width = draw(plane_axes(exact, LONGEST // channels if channels_last else LONGEST))
    widest = max(width.n, width.out) * channels
    height = draw(plane_axes(exact, max(min(LONGEST, 2**36 // widest), 1)))
    most = max(2**36 // (widest * max(height.n, height.out)), 1)
    batch = min(draw(st.sampled_from([1, 2, 3, 8, 32, 1000, 2**16 + 1])), most)
    problem = Problem(batch, channels, height, width, draw(st.sampled_from(list(ITEM))), channels_last)
    if draw(st.integers(0, 2)) == 0:  # cropped, or with every second value
        step, strides = draw(st.sampled_from([1, 1, 2])), [0, 0, 0, 0]
        longest = [batch, channels, *(max(axis.n, axis.out) for axis in (height, width))]
        for d in (1, 3, 2, 0) if channels_last else (3, 2, 1, 0):
            strides[d] = step
            step = step * longest[d] + draw(st.sampled_from([0, 0, 1, 4, 16]))
        if draw(st.integers(0, 3)) == 0:
            strides = [0 if draw(st.booleans()) else s for s in strides]
        if max(strides[1], strides[3]) <= INT32:  # the binding copies images with larger strides
            problem.given = strides
    problem.address += draw(st.sampled_from([0, 0, 0, 1, 3, 8])) * problem.item
    return problem


@seeded(500)
@given(problem=problems(), sms=st.sampled_from([1, 16, 132]))
def test_any_forward_has_a_valid_plan(planner, problem, sms):
    check_forward(problem, problem.forward(planner, sms), sms)


@seeded(500)
@given(problem=problems(), sms=st.sampled_from([1, 16, 132]))
def test_any_backward_has_a_valid_plan(planner, problem, sms):
    check_backward(problem, planner, problem.backward(planner, sms))


def planes(shape, out, dtype=FLOAT32, channels_last=False, scale=None, **rest) -> Problem:
    height, width = (Axis(n, size, scale) for n, size in zip(shape[2:], out))
    return Problem(*shape[:2], height, width, dtype, channels_last, **rest)


@pytest.mark.parametrize(
    "problem, path, unit_bytes, repeat",
    [
        (planes((8, 64, 128, 128), (256, 256)), VECS, 4, 2),
        (planes((8, 64, 128, 128), (256, 256), FLOAT16), VECS, 2, 2),
        (planes((8, 64, 128, 128), (256, 256), scale=2.0), VECS, 4, 2),
        (planes((8, 64, 128, 128), (512, 512), UINT8), VECS, 1, 4),
        (planes((8, 64, 128, 128), (1024, 1024), FLOAT16), VECS, 2, 8),
        (planes((8, 64, 128, 128), (2048, 2048), FLOAT16), VECS, 2, 8),  # a vector of copies of one pixel
        (planes((8, 64, 128, 128), (2048, 2048), UINT8), GATHER, 1, 8),  # there is no kernel for vectors of 16 copies
        (planes((8, 64, 127, 127), (254, 254)), IMAGES, 4, 1),  # rows are not whole vectors
        (planes((8, 64, 128, 128), (256, 256), offset=4), IMAGES, 4, 1),  # words are not aligned
        (planes((64, 64, 127, 127), (254, 254), FLOAT16), GATHER, 2, 2),
        (planes((1, 3, 127, 127), (254, 254)), GATHER, 4, 2),
        (planes((8, 64, 128, 128), (384, 384)), IMAGES, 4, 1),
        (planes((1, 3, 128, 128), (384, 384)), GATHER, 4, 1),
        (planes((8, 64, 128, 128), (256, 256), FLOAT32, True), VECS, 16, 1),
        (planes((8, 20, 128, 128), (192, 192), FLOAT16, True), GATHER, 8, 1),  # 40 bytes per pixel
        (planes((8, 3, 512, 512), (1024, 1024), FLOAT16, True), ROWS, 2, 1),
        (planes((8, 3, 512, 512), (1024, 1024), FLOAT32, True), ROWS, 4, 1),
        (planes((32, 64, 128, 128), (192, 192), FLOAT16), ROWS, 2, 1),
        (planes((32, 64, 128, 128), (192, 192), UINT8), ROWS, 1, 1),
        (planes((32, 64, 128, 128), (192, 192)), IMAGES, 4, 1),
        (planes((64, 64, 127, 127), (190, 190), FLOAT16), IMAGES, 2, 1),
        (planes((64, 64, 128, 128), (64, 64), FLOAT16), IMAGES, 2, 1),
        (planes((1, 3, 128, 128), (192, 192)), GATHER, 4, 1),
        (planes((1, 1, 2, 2**23), (4, 2**24), UINT8), GATHER, 1, 1),  # indices are not exact in float32
    ],
)
def test_forward_paths_of_common_problems(planner, problem, path, unit_bytes, repeat):
    plan = problem.forward(planner)
    assert (plan.path, plan.unit_bytes, plan.repeat) == (path, unit_bytes, repeat)
    check_forward(problem, plan, 132)


@pytest.mark.parametrize(
    "problem, path, expected",
    [
        (planes((8, 64, 128, 128), (256, 256)), FACTOR, {"factor": 2, "rows_per_thread": 2}),
        (planes((8, 64, 127, 127), (254, 254)), WINDOWS, {"most": 2}),
        (planes((8, 64, 32, 32), (256, 256)), FACTOR, {"factor": 4, "lanes": 2, "rows_per_thread": 1}),
        (planes((8, 64, 32, 32), (256, 256), FLOAT16), FACTOR, {"factor": 8, "lanes": 1}),
        (planes((8, 64, 128, 128), (256, 256), UINT8), WINDOWS, {"most": 2}),
        (planes((8, 64, 64, 64), (128, 128), FLOAT32, True), WINDOWS, {"most": 2, "unit_bytes": 16}),
        (planes((8, 64, 64, 64), (128, 128), FLOAT16, True), WINDOWS, {"most": 2, "unit_bytes": 16}),
        (planes((8, 64, 64, 64), (64, 64)), WINDOWS, {"most": 1}),
        (planes((32, 256, 64, 64), (96, 96)), WINDOWS, {"most": 2, "images_per_thread": SEVERAL}),
        (planes((8, 64, 64, 64), (512, 512), FLOAT32, True), PIXELS, {"unit_bytes": 16, "splits": 1}),
        (planes((1, 8, 2, 2), (512, 512), FLOAT32, True), PIXELS, {"unit_bytes": 16, "splits": 256}),
        (planes((8, 64, 64, 64), (512, 512), UINT8), PIXELS, {"splits": 1}),
        (planes((8, 4, 128, 128), (512, 512), FLOAT32, True), WINDOWS, {"most": 4, "unit_bytes": 16}),
        (planes((8, 3, 128, 128), (512, 512), FLOAT32, True), TILES, {"most": 4, "lanes": 1, "unit_bytes": 4}),
        (planes((8, 3, 128, 128), (640, 640), FLOAT32, True), TILES, {"most": 4, "lanes": 2}),
        (planes((8, 3, 128, 128), (896, 893), FLOAT16, True), TILES, {"most": 4, "lanes": 2}),
        (planes((1, 3, 7, 7), (1000, 1000)), PIXELS, {"splits": 256}),
        (planes((64, 300, 7, 7), (1000, 1000)), PIXELS, {"splits": 256}),
        (planes((1, 3, 7, 7), (500, 500)), TILES, {"tile_rows": 1, "tile_columns": 1, "lanes": 32, "most": 4}),
        (planes((8, 64, 40, 40), (200, 200)), TILES, {"tiles": 1}),
        (planes((4, 3, 265, 874), (1065, 3516), FLOAT16), TILES, {"most": 5, "lanes": 1}),
        (planes((1, 1, 3, 1332), (14, 3996)), TILES, {"tiles": SEVERAL, "row_tiles": 3}),
        (planes((9, 64, 30, 3), (150, 9)), TILES, {"tiles": 1, "row_tiles": 1, "splits": SEVERAL}),
    ],
)
def test_backward_paths_of_common_problems(planner, problem, path, expected):
    plan = problem.backward(planner)
    assert plan.path == path
    for name, value in expected.items():
        assert getattr(plan, name) > 1 if value == SEVERAL else getattr(plan, name) == value, name
    check_backward(problem, planner, plan)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "shape, out",
    [
        ((1025, 1024, 1, 1024), (2, 2048)), ((17, 256, 512, 512), (1024, 1024)),
        ((1, 1, 46_341, 46_351), (46_351, 46_343)), ((2**16 + 1, 64, 32, 32), (61, 65)),
        ((1, 3, 2**20, 2**10), (2**21, 2**11)), ((1, 1, 2, LONGEST), (4, LONGEST)),
        ((1, 1, LONGEST, 3), (LONGEST - 1, 4)), ((2**31 + 5, 1, 1, 1), (1, 2)),
    ],
)  # fmt: skip
def test_problems_of_more_than_one_launch(planner, shape, out, channels_last):
    """All numbers fit. Paths that cannot split a problem into launches are only chosen if one launch holds all units."""
    for dtype in (UINT8, FLOAT16, FLOAT32):
        problem = planes(shape, out, dtype, channels_last)
        plan = problem.forward(planner)
        check_forward(problem, plan, 132)
        assert plan.path in (VECS, GATHER) or plan.rows * plan.row_units <= PART
        check_backward(problem, planner, problem.backward(planner))
    assert math.prod(shape[:2]) * math.prod(out) > 2**31


@pytest.mark.parametrize("channels", [2**31, 2**32, 2**32 + 5])
def test_channels_that_32_bits_do_not_hold(planner, channels):
    """Channel counts beyond 32 bits, by which kernels divide."""
    problem = planes((1, channels, 1, 1), (1, 2), UINT8)
    check_forward(problem, problem.forward(planner), 132)
    check_backward(problem, planner, problem.backward(planner))
