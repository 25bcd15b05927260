"""The launchers and kernels of upsampling, run on the CPU on random problems and compared with numpy: every path."""

from __future__ import annotations

import ctypes
import json
import math
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...plan.upsample.upsample_planner import FACTOR, GATHER, IMAGES, PIXELS, ROWS, TILES, VECS, WINDOWS, Plan
from ...support.seeded import seeded
from ..build import load
from ..dtypes import F16, F32, TYPES

U8, F64 = TYPES[1], TYPES[8]
PART, SHORT = 2**30, 2**22
UNTOUCHED = 0xCD


@pytest.fixture(scope="module")
def kernels():
    library = load("upsample")
    library.run.restype = ctypes.c_char_p
    return library


class Memory:
    """Bytes followed by an inaccessible page. A read past the end ends the process."""

    def __init__(self, size: int):
        pages = mmap.mmap(-1, size + mmap.PAGESIZE)
        self.bytes = np.frombuffer(pages, np.uint8)[:size]
        no_access, end = 0, ctypes.c_void_p(self.bytes.ctypes.data + size)
        assert ctypes.CDLL(None).mprotect(end, ctypes.c_size_t(mmap.PAGESIZE), no_access) == 0


@pytest.fixture(scope="module")
def memory():
    return Memory(16 << 20)


class Axis:
    """A height or width: input and output size, and the step that follows from the sizes or from a scale."""

    def __init__(self, n: int, out: int, scale: float | None = None):
        self.n, self.out = n, out
        self.step = np.float32(1 / scale) if scale else np.float32(n) / np.float32(out)

    def __repr__(self):
        return f"{self.n} to {self.out} by {self.step}"

    def sources(self, exact: bool) -> np.ndarray:
        """The source of each output pixel by ATen's formula."""
        outs = np.arange(self.out)
        if self.n == self.out:
            return outs
        positions = (outs.astype(np.float32) + np.float32(0.5 if exact else 0)) * self.step
        return np.minimum(np.floor(positions.astype(np.float64)), self.n - 1).astype(np.int64)


class Problem:
    """Images of `batch` times `channels` planes, and the memory layout of the operand that is read.

    `order` is the order of dimensions, innermost first. Neighbouring elements are `step` apart, and `gap` has the gap after each
    dimension. Dimensions in `expanded` have stride 0. The first element is `offset` elements after an aligned address.
    """

    def __init__(
        self, backward, batch, channels, height, width, dtype, exact=False, channels_last=False,
        order=None, step=1, gap=(0, 0, 0, 0), expanded=(), offset=0, seed=0,
    ):  # fmt: skip
        self.backward, self.images, self.height, self.width = backward, (batch, channels), height, width
        self.dtype, self.exact, self.channels_last, self.offset, self.seed = dtype, exact, channels_last, offset, seed
        ins, outs = (height.n, width.n), (height.out, width.out)
        self.shape = (*self.images, *(outs if backward else ins))
        self.strides = [0] * 4
        for d in order or ((1, 3, 2, 0) if channels_last else (3, 2, 1, 0)):
            self.strides[d] = 0 if d in expanded else step
            step = step * self.shape[d] + gap[d]

    def __repr__(self):
        return f"{self.__dict__}"

    def source(self, memory: Memory) -> np.ndarray:
        """Random values at the end of `memory`. The bytes around and between them are NaN, or 255 for integers."""
        item = self.dtype.numpy.itemsize
        count = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))
        start = len(memory.bytes) - -(-(count + self.offset) * item // 16) * 16 + self.offset * item
        memory.bytes[start - 64 :] = 0xFF
        values = memory.bytes[start : start + count * item].view(self.dtype.numpy)
        view = np.lib.stride_tricks.as_strided(values, self.shape, [s * item for s in self.strides])
        random = np.random.default_rng(self.seed)
        if self.backward:  # values with exact sums
            view[...] = self.dtype.some(random, math.prod(self.shape)).reshape(self.shape)
        else:  # any bits
            bits = np.frombuffer(random.bytes(math.prod(self.shape) * item), f"u{item}")
            view = view.view(f"u{item}")
            view[...] = bits.reshape(self.shape)
        return view

    def expected(self, source: np.ndarray) -> np.ndarray:
        rows, columns = self.height.sources(self.exact), self.width.sources(self.exact)
        if not self.backward:
            return source[:, :, rows][..., columns]
        to_rows = (rows == np.arange(self.height.n)[:, None]).astype(np.float64)
        to_columns = (columns[:, None] == np.arange(self.width.n)).astype(np.float64)
        sums = to_rows @ source.astype(np.float64) @ to_columns
        return (sums.astype(np.int64) if self.dtype is U8 else sums).astype(self.dtype.numpy)

    def arguments(self):
        h, w = self.height, self.width
        return (
            int(self.backward),
            (ctypes.c_int64 * 6)(*self.images, h.n, h.out, w.n, w.out),
            (ctypes.c_float * 2)(h.step, w.step),
            int(self.exact),
            (ctypes.c_int64 * 4)(*self.strides),
            int(self.channels_last),
        )

    def run(self, kernels, memory, sms=1, part_units=PART, short_axis=SHORT) -> Plan:
        """Runs the problem and compares the result. Returns the main numbers of its plan."""
        source = self.source(memory)
        want = self.expected(source)
        if self.channels_last:
            want = want.transpose(0, 2, 3, 1)
        guard, item = 64, self.dtype.numpy.itemsize
        raw = np.full(want.size * item + 2 * guard + 16, UNTOUCHED, np.uint8)
        raw = raw[-raw.ctypes.data % 16 :]
        out = raw[guard : guard + want.size * item]
        before = memory.bytes.copy() if self.seed % 8 == 0 else None
        launches = kernels.run(
            *self.arguments(),
            ctypes.c_uint64(source.ctypes.data),
            ctypes.c_uint64(out.ctypes.data),
            self.dtype.number,
            sms,
            ctypes.c_int64(part_units),
            ctypes.c_int64(short_axis),
        )
        np.testing.assert_array_equal(out.view(want.dtype).reshape(want.shape), want)
        # Memory beside the results must not have changed.
        assert (raw[:guard] == UNTOUCHED).all() and (raw[guard + out.size :] == UNTOUCHED).all()
        if before is not None:
            assert np.array_equal(memory.bytes, before)
        plan = Plan(json.loads(launches))
        if self.backward:
            plan.unit_bytes = plan.elements * item
            plan.images_per_thread = -(-plan.images // plan.image_step)
        return plan


# ---------------------------------------------------------------- random problems

MOST = 6000  # the largest number of inputs or outputs
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 24, 33, 64]


@st.composite
def axes(draw, most=2048):
    n = min(draw(st.sampled_from(SIZES)), most)
    kind = draw(st.sampled_from(["factor", "factor", "size", "scale", "contradiction"]))
    if kind == "factor":
        factor = draw(st.sampled_from([1, 2, 2, 3, 4, 8, 16, 32]))
        n = max(min(n, most // factor), 1)
        return Axis(n, n * factor)
    scale = draw(st.sampled_from([0.01, 0.37, 0.5, 1.1, 1.5, 2.0, 2.7, 3.0, 100.0]))
    out = max(int(n * scale), 1) if kind == "scale" else draw(st.sampled_from(SIZES))
    return Axis(n, min(out, most), None if kind == "size" else scale)


@st.composite
def problems(draw, backward):
    width = draw(axes())
    height = draw(axes(most=max(MOST // max(width.n, width.out), 1)))
    images = max(MOST // (max(height.n, height.out) * max(width.n, width.out)), 1)
    channels = min(draw(st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16, 24])), images)
    batch = min(draw(st.sampled_from([1, 1, 2, 3, 5, 9])), max(images // channels, 1))
    channels_last = draw(st.booleans())
    problem = {"channels_last": channels_last, "exact": draw(st.booleans()), "seed": draw(st.integers(0, 2**31))}
    if draw(st.booleans()):  # cropped, or with every second value, pixel or channel
        problem["step"] = draw(st.sampled_from([1, 1, 1, 2]))
        problem["gap"] = [draw(st.sampled_from([0, 0, 1, 4, 16])) for _ in range(4)]
    if draw(st.integers(0, 4)) == 0:
        problem["expanded"] = draw(st.lists(st.integers(0, 3), max_size=3))
    if draw(st.integers(0, 9)) == 0:
        problem["order"] = draw(st.permutations(range(4)))
    problem["offset"] = draw(st.sampled_from([0, 0, 0, 1, 3, 8]))
    dtype = draw(st.sampled_from([U8, F16, F32, F64]))
    return Problem(backward, batch, channels, height, width, dtype, **problem)


def limits():
    """Draws limits of a launch: the number of SMs (with 0 SMs, no problem is too small), the units of a launch, and the size from
    which an axis is long."""
    parts = st.sampled_from([PART, PART, PART, 1024, 128])
    return st.tuples(st.sampled_from([0, 0, 1, 4]), parts, st.sampled_from([SHORT, SHORT, SHORT, 20, 1]))


def test_any_forward(kernels, memory):
    taken, parts = set(), set()

    @seeded(500, 3)
    @given(problem=problems(backward=False), limits=limits())
    def check(problem, limits):
        plan = problem.run(kernels, memory, *limits)
        path = "long" if plan.long_rows else plan.path
        taken.update({(path, plan.unit_bytes), (path, "repeat", plan.repeat)})
        if len(plan.parts) > 1:
            parts.add(path)

    check()
    assert taken >= {(path, unit) for path in (VECS, GATHER, "long") for unit in (1, 2, 4, 8)}
    assert taken >= {(path, unit) for path in (ROWS, IMAGES) for unit in (2, 4)} | {(VECS, 16), ("long", 16)}
    assert taken >= {(path, "repeat", repeat) for path in (VECS, GATHER) for repeat in (1, 2, 4, 8)}
    assert parts == {VECS, GATHER, "long"}


def test_any_backward(kernels, memory):
    taken, parts = set(), set()

    @seeded(500)
    @given(problem=problems(backward=True), limits=limits())
    def check(problem, limits):
        plan = problem.run(kernels, memory, *limits)
        path = plan.path
        taken.update({(path, plan.unit_bytes), (path, "most", plan.most)})
        several = (
            "rows_per_thread", "lanes", "splits", "tiles", "row_tiles", "column_rounds", "row_rounds",
            "images_per_thread",
        )  # fmt: skip
        taken.update((path, name) for name in several if getattr(plan, name) > 1)
        if len(plan.parts) > 1:
            parts.add(path)

    check()
    assert taken >= {(path, unit) for path in (FACTOR, TILES) for unit in (2, 4, 8)}
    assert taken >= {(path, unit) for path in (WINDOWS, PIXELS) for unit in (1, 2, 4, 8, 16)}
    assert taken >= {(FACTOR, "rows_per_thread"), (FACTOR, "lanes"), (PIXELS, "splits"), (WINDOWS, "images_per_thread")}
    assert taken >= {(TILES, name) for name in ("lanes", "splits", "tiles", "row_tiles", "column_rounds", "row_rounds")}
    assert taken >= {(TILES, "most", most) for most in (3, 4)}
    assert taken >= {(WINDOWS, "most", most) for most in (1, 2, 3, 4)}
    assert parts == {FACTOR, TILES, WINDOWS, PIXELS}


# ---------------------------------------------------------------- every path, as a device chooses it


def check_table(kernels, memory, backward, shape, out, dtype, channels_last, path, expected, **rest):
    height, width = (Axis(n, size) for n, size in zip(shape[2:], out))
    for exact, offset in ((False, 0), (True, 1)):
        problem = Problem(
            backward, *shape[:2], height, width, dtype, exact, channels_last, offset=offset, seed=exact, **rest
        )
        plan = problem.run(kernels, memory)
        if offset == 0:
            assert plan.path == path
            for name, value in expected.items():
                assert getattr(plan, name) > 1 if value == SEVERAL else getattr(plan, name) == value, name


NHWC, SEVERAL = True, -1


@pytest.mark.parametrize(
    "shape, out, dtype, channels_last, path, expected",
    [
        ((1, 1, 16, 66), (32, 132), F32, False, VECS, {"repeat": 2, "vecs_at_once": 1}),
        ((1, 2, 64, 66), (128, 132), F32, False, VECS, {"repeat": 2, "vecs_at_once": 2}),
        ((1, 2, 9, 16), (13, 64), F16, False, VECS, {"repeat": 4}),
        ((2, 1, 9, 16), (72, 128), U8, False, VECS, {"repeat": 8}),
        ((2, 1, 3, 8), (48, 128), F16, False, VECS, {"repeat": 8}),  # a vector of copies of one pixel
        ((2, 1, 3, 8), (48, 32), F64, False, VECS, {"repeat": 2}),
        ((2, 8, 5, 7), (9, 10), F16, NHWC, VECS, {"unit_bytes": 16}),
        ((3, 16, 40, 9), (70, 20), F32, NHWC, VECS, {"unit_bytes": 16, "vecs_at_once": 2}),
        ((2, 8, 40, 100), (62, 160), U8, False, ROWS, {"unit_bytes": 1}),
        ((2, 4, 40, 100), (61, 160), F16, False, ROWS, {"unit_bytes": 2}),
        ((2, 3, 40, 60), (140, 160), U8, NHWC, ROWS, {"unit_bytes": 1}),
        ((1, 3, 20, 60), (71, 160), F32, NHWC, ROWS, {"unit_bytes": 4}),
        ((1, 3, 20, 60), (140, 120), F32, NHWC, ROWS, {"unit_bytes": 4}),
        ((24, 4, 14, 15), (19, 21), F32, False, IMAGES, {"group_images": 4}),
        ((28, 3, 14, 16), (18, 22), F32, False, IMAGES, {"group_images": 1}),
        ((37, 2, 14, 16), (19, 22), F32, False, IMAGES, {"group_images": 2}),  # 74 is no multiple of 4
        ((32, 3, 14, 15), (19, 21), F32, False, IMAGES, {"group_images": 4}),  # groups across batch entries
        ((12, 8, 21, 31), (27, 29), F16, False, IMAGES, {"group_images": 8}),
        ((12, 16, 21, 31), (27, 29), U8, False, IMAGES, {"group_images": 16}),
        ((13, 2, 50, 70), (49, 64), F16, NHWC, IMAGES, {"unit_bytes": 4, "group_images": 1}),
        ((3, 4, 64, 33), (128, 66), F16, False, GATHER, {"repeat": 2, "vecs_at_once": 2}),
        ((3, 1, 5, 9), (10, 144), U8, False, GATHER, {"repeat": 8}),
        ((3, 5, 50, 33), (20, 43), F64, NHWC, GATHER, {"unit_bytes": 8, "vecs_at_once": 2}),
        ((1, 1, 2, SHORT // 2), (3, SHORT + 9), U8, False, GATHER, {"long_rows": 1}),
    ],
)
def test_forward_paths(kernels, memory, shape, out, dtype, channels_last, path, expected):
    check_table(kernels, memory, False, shape, out, dtype, channels_last, path, expected)


def test_images_at_uneven_distances(kernels, memory):
    """There is a gap after each batch entry, so a group of images must not extend across entries."""
    check_table(kernels, memory, False, (32, 3, 14, 15), (19, 21), F32, False, GATHER, {}, gap=(0, 5, 0, 0))
    check_table(kernels, memory, False, (32, 4, 14, 15), (19, 21), F32, False, IMAGES, {}, gap=(0, 5, 0, 0))


@pytest.mark.parametrize(
    "shape, out, dtype, channels_last, path, expected",
    [
        ((2, 3, 9, 20), (18, 40), F32, False, FACTOR, {"rows_per_thread": 2, "lanes": 1}),
        ((2, 3, 9, 21), (18, 42), F16, False, WINDOWS, {"most": 2}),
        ((2, 3, 9, 21), (50, 84), F16, False, TILES, {"most": 4, "lanes": 1}),
        ((2, 3, 9, 5), (50, 40), F32, False, FACTOR, {"rows_per_thread": 1, "lanes": 2}),
        ((2, 1, 3, 7), (6, 7 * 256), F16, False, FACTOR, {"lanes": 32}),
        ((2, 1, 3, 7), (6, 7 * 64), F64, False, FACTOR, {"lanes": 32}),
        ((40, 3, 9, 20), (180, 40), F32, False, FACTOR, {"rows_per_thread": 1}),  # many tall images
        ((2, 3, 5, 20), (7, 100), F32, False, TILES, {"most": 5, "lanes": 1, "splits": 5}),
        ((2, 3, 5, 21), (7, 121), F16, False, TILES, {"most": 6, "lanes": 1}),
        ((1, 3, 2, 5), (50, 500), F32, False, TILES, {"lanes": 32, "most": 4, "tile_columns": 1}),
        ((1, 3, 4, 5), (200, 35), F16, False, TILES, {"lanes": 2, "most": 4}),
        ((1, 3, 4, 200), (64, 1200), F32, NHWC, TILES, {"tiles": SEVERAL, "row_tiles": 4}),
        ((1, 3, 4, 200), (64, 1201), F16, NHWC, TILES, {"tiles": SEVERAL, "lanes": 2}),
        ((2, 5, 4, 50), (9, 201), F64, NHWC, TILES, {"most": 4, "lanes": 2}),
        ((1, 1, 3, 1332), (14, 3996), F32, False, TILES, {"most": 3, "tiles": SEVERAL}),
        ((1, 1, 3, 2500), (14, 3000), F64, False, TILES, {"most": 3, "tiles": SEVERAL}),
        ((11, 3, 40, 41), (60, 61), F32, False, WINDOWS, {"most": 2, "images_per_thread": SEVERAL}),
        ((11, 3, 40, 41), (60, 61), F16, False, WINDOWS, {"most": 2, "images_per_thread": SEVERAL}),
        ((11, 3, 40, 41), (30, 61), U8, False, WINDOWS, {"most": 2, "images_per_thread": SEVERAL}),
        ((11, 3, 40, 41), (110, 90), U8, False, WINDOWS, {"most": 3}),
        ((11, 4, 20, 41), (30, 160), F16, NHWC, WINDOWS, {"most": 4, "unit_bytes": 8}),
        ((11, 3, 40, 41), (110, 90), F32, False, TILES, {"most": 3, "row_rounds": SEVERAL}),
        ((11, 3, 20, 41), (30, 160), F16, False, TILES, {"most": 4}),
        ((11, 3, 40, 41), (40, 41), F32, False, WINDOWS, {"most": 1}),
        (
            (2, 1, 160, 157), (41, 60), F32, False, WINDOWS, {"most": 1, "images_per_thread": SEVERAL},
        ),  # fewer than at once
        ((3, 1, 160, 157), (41, 190), F16, False, WINDOWS, {"most": 2, "images_per_thread": SEVERAL}),
        ((5, 8, 40, 41), (60, 61), F32, NHWC, WINDOWS, {"most": 2, "unit_bytes": 16}),
        ((5, 8, 40, 41), (60, 61), U8, NHWC, WINDOWS, {"most": 2, "unit_bytes": 1}),
        ((1, 8, 2, 3), (100, 70), F32, NHWC, PIXELS, {"unit_bytes": 16, "splits": 32}),
        ((1, 8, 2, 1), (100, 70), F16, NHWC, PIXELS, {"unit_bytes": 16, "splits": 256}),
        ((1, 4, 5, 8), (80, 64), F64, NHWC, PIXELS, {"unit_bytes": 16, "splits": 4}),
        ((2, 4, 9, 8), (80, 64), U8, NHWC, PIXELS, {"unit_bytes": 1}),
        ((2, 3, 2, 2), (2500, 3), F16, False, PIXELS, {"unit_bytes": 2}),
        ((1, 2, 2, 2), (301, 399), F16, False, PIXELS, {"splits": 256}),
        ((1, 1, 1, 1), (50, 33), F32, False, TILES, {}),
    ],
)  # fmt: skip
def test_backward_paths(kernels, memory, shape, out, dtype, channels_last, path, expected):
    check_table(kernels, memory, True, shape, out, dtype, channels_last, path, expected)
