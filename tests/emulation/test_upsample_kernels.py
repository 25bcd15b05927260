"""The upsampling launchers and kernels, run on the CPU over random problems: every path, against numpy."""

from __future__ import annotations

import ctypes
import math
import mmap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools import native_build, toolchain
from tools.toolchain import BuildError

from .build import build
from .dtypes import F16, F32, TYPES, DType

PACKS, ROWS, IMAGES, GATHER = range(4)
FACTOR, BACKWARD_ROWS, WINDOWS, PIXELS = range(4)
U8, F64 = TYPES[1], TYPES[8]
PART, SHORT = 2**30, 2**22  # kMaxPartUnits, kShortAxis
UNTOUCHED = 0xCD
FIELDS = (
    "path unit_bytes repeat long_rows packs_at_once group_images aligned rows_per_thread most lanes splits tiles images_per_thread"
).split()


class Taken(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int) for name in FIELDS), ("units", ctypes.c_int64)]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    try:
        config = native_build.configure()
        if config.nvcc is None:
            pytest.skip("CUDA's headers come with nvcc, and there is none")
        include = toolchain.cuda_include(config.torch, config.nvcc)
    except BuildError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("emulated")
    return ctypes.CDLL(str(build("upsample", config, include, folder, variables=("kMaxPartUnits", "kShortAxis"))))


class Memory:
    """Bytes that end where no memory is: whoever reads past them does not go on."""

    def __init__(self, size: int):
        pages = mmap.mmap(-1, size + mmap.PAGESIZE)
        self.bytes = np.frombuffer(pages, np.uint8)[:size]
        no_access, end = 0, ctypes.c_void_p(self.bytes.ctypes.data + size)
        assert ctypes.CDLL(None).mprotect(end, ctypes.c_size_t(mmap.PAGESIZE), no_access) == 0


@pytest.fixture(scope="module")
def memory():
    return Memory(16 << 20)


class Axis:
    """A height or width: sizes, and the step that comes of them or of a scale."""

    def __init__(self, n: int, out: int, scale: float | None = None):
        self.n, self.out = n, out
        self.step = np.float32(1 / scale) if scale else np.float32(n) / np.float32(out)

    def __repr__(self):
        return f"{self.n} to {self.out} by {self.step}"

    def sources(self, exact: bool) -> np.ndarray:
        """ATen's formula."""
        outs = np.arange(self.out)
        if self.n == self.out:
            return outs
        places = (outs.astype(np.float32) + np.float32(0.5 if exact else 0)) * self.step
        return np.minimum(np.floor(places.astype(np.float64)), self.n - 1).astype(np.int64)


class Problem:
    """Images of `batch` times `channels` planes. `order` is the order of what is read, innermost dimension first; between its elements are
    `step` - 1 others, after a dimension's last gap[dimension] more, and the dimensions in `expanded` have stride 0. The first element is
    `offset` elements behind an aligned address."""

    def __init__(
        self, backward, batch, channels, height, width, dtype, exact=False, channels_last=False,
        order=None, step=1, gap=(0, 0, 0, 0), expanded=(), offset=0, seed=0,
    ):  # fmt: skip
        self.backward, self.images, self.height, self.width = backward, (batch, channels), height, width
        self.dtype, self.exact, self.channels_last, self.offset, self.seed = dtype, exact, channels_last, offset, seed
        ins, outs = (height.n, width.n), (height.out, width.out)
        self.shape, self.out_shape = (*self.images, *(outs if backward else ins)), (*self.images, *(ins if backward else outs))
        self.strides = [0] * 4
        for d in order or ((1, 3, 2, 0) if channels_last else (3, 2, 1, 0)):
            self.strides[d] = 0 if d in expanded else step
            step = step * self.shape[d] + gap[d]

    def __repr__(self):
        return f"{self.__dict__}"

    def source(self, memory: Memory) -> np.ndarray:
        """Random values at the end of `memory`, NaNs or 255 around them and between them."""
        item = self.dtype.numpy.itemsize
        count = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))
        start = len(memory.bytes) - -(-(count + self.offset) * item // 16) * 16 + self.offset * item
        memory.bytes[start - 64 :] = 0xFF
        values = memory.bytes[start : start + count * item].view(self.dtype.numpy)
        view = np.lib.stride_tricks.as_strided(values, self.shape, [s * item for s in self.strides])
        random = np.random.default_rng(self.seed)
        if self.backward:  # sums are exact
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

    def run(self, kernels, memory, multiprocessors=1, part_units=PART, short_axis=SHORT) -> Taken:
        """Runs it and compares. Returns what its plan was."""
        source = self.source(memory)
        want = self.expected(source)
        if self.channels_last:
            want = want.transpose(0, 2, 3, 1)
        guard, item = 64, self.dtype.numpy.itemsize
        raw = np.full(want.size * item + 2 * guard + 16, UNTOUCHED, np.uint8)
        raw = raw[-raw.ctypes.data % 16 :]
        out = raw[guard : guard + want.size * item]
        before, taken = memory.bytes.copy() if self.seed % 8 == 0 else None, Taken()
        h, w = self.height, self.width
        error = kernels.run(
            int(self.backward),
            (ctypes.c_int64 * 6)(*self.images, h.n, h.out, w.n, w.out),
            (ctypes.c_float * 2)(h.step, w.step),
            int(self.exact),
            (ctypes.c_int64 * 4)(*self.strides),
            int(self.channels_last),
            ctypes.c_uint64(source.ctypes.data),
            ctypes.c_uint64(out.ctypes.data),
            self.dtype.number,
            multiprocessors,
            ctypes.c_int64(part_units),
            ctypes.c_int64(short_axis),
            ctypes.byref(taken),
        )
        assert error == 0
        np.testing.assert_array_equal(out.view(want.dtype).reshape(want.shape), want)
        # Nothing beside the results has changed.
        assert (raw[:guard] == UNTOUCHED).all() and (raw[guard + out.size :] == UNTOUCHED).all()
        if before is not None:
            assert np.array_equal(memory.bytes, before)
        return taken


# ---------------------------------------------------------------- random problems

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 24, 33, 64]


@st.composite
def axes(draw):
    n = draw(st.sampled_from(SIZES))
    kind = draw(st.sampled_from(["factor", "factor", "size", "scale", "contradiction"]))
    if kind == "factor":
        return Axis(n, n * draw(st.sampled_from([1, 2, 2, 3, 4, 8, 16, 32])), draw(st.sampled_from([None, None])))
    scale = draw(st.sampled_from([0.01, 0.37, 0.5, 1.1, 1.5, 2.0, 2.7, 3.0, 100.0]))
    out = max(int(n * scale), 1) if kind == "scale" else draw(st.sampled_from(SIZES))
    return Axis(n, out, None if kind == "size" else scale)


@st.composite
def problems(draw, backward):
    height, width = draw(axes()), draw(axes())
    widest = max(height.n, height.out) * max(width.n, width.out)
    batch = draw(st.sampled_from([1, 1, 2, 3, 5, 9]))
    channels = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16, 24]))
    if batch * channels * widest > 30000:
        batch = 1
    if channels * widest > 30000:
        channels = draw(st.sampled_from([1, 2, 3]))
    channels_last = draw(st.booleans())
    problem = {"channels_last": channels_last, "exact": draw(st.booleans()), "seed": draw(st.integers(0, 2**31))}
    if draw(st.booleans()):  # cropped, every second value, every second pixel or channel
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
    """Of a launch: multiprocessors, for none of which any problem is too small, units, and the size of long axes."""
    parts = st.sampled_from([PART, PART, PART, 2048, 64, 16])
    return st.tuples(st.sampled_from([0, 0, 1, 4]), parts, st.sampled_from([SHORT, SHORT, SHORT, 20, 1]))


def random_settings(examples: int):
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


def test_any_forward(kernels, memory):
    taken, parts = set(), set()

    @random_settings(500)
    @given(problem=problems(backward=False), limits=limits())
    def check(problem, limits):
        plan = problem.run(kernels, memory, *limits)
        taken.add((plan.path, plan.unit_bytes, plan.repeat, plan.long_rows))
        if plan.units > limits[1]:
            parts.add((plan.path, plan.long_rows))

    check()
    paths = {(path, unit) for path, unit, *_ in taken}
    assert paths >= {(PACKS, unit) for unit in (1, 2, 4, 8, 16)} | {(GATHER, unit) for unit in (1, 2, 4, 8, 16)}
    assert paths >= {(path, unit) for path in (ROWS, IMAGES) for unit in (1, 2, 4)}
    assert {(path, repeat) for path, _, repeat, _ in taken} >= {
        (path, repeat) for path in (PACKS, GATHER) for repeat in (1, 2, 4, 8)
    }
    assert {unit for *_, unit, _, is_long in taken if is_long} == {1, 2, 4, 8, 16}
    assert parts == {(PACKS, 0), (GATHER, 0), (GATHER, 1)}


def test_any_backward(kernels, memory):
    taken, parts = set(), set()

    @random_settings(600)
    @given(problem=problems(backward=True), limits=limits())
    def check(problem, limits):
        plan = problem.run(kernels, memory, *limits)
        taken.add(tuple(getattr(plan, name) for name in FIELDS))
        if plan.units > limits[1]:
            parts.add(plan.path)

    check()
    print(sorted(taken))
    assert parts == {FACTOR, BACKWARD_ROWS, WINDOWS, PIXELS}
