"""The launchers and kernels of convolutions, run on the CPU over random problems: every path, against numpy."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .build import load
from .dtypes import F16, F32, TYPES
from .test_dot_kernels import BF16, Memory, decode, encode

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = range(3)
LIBRARY, ROWS, FAN, COLUMNS, VALUES, MMA = range(6)
NONE, RELU, SILU, GELU = range(4)
F64 = TYPES[8]
DTYPES = [F16, BF16, F32, F64]
GUARD, POISON, UNTOUCHED = 256, 0xFF, 0xCD  # NaN in all dtypes; what results are laid on
LIMITS = {"row_threads": 128, "wide_outputs": 32 << 10, "weight_blocks": 6, "weight_units": 4}
LIMITS |= {"mma_outputs": 2**60}  # half types by rows, unless a test asks for tensor cores
LIMITS |= {"kMaxIndex32": 2**31 - 1}
INVALID_VALUE = 1


def fields(names: str, kind=ctypes.c_int64) -> list:
    return [(name, kind) for name in names.split()]


class GivenSignal(ctypes.Structure):
    _fields_ = fields("data batch_stride channel_stride stride channels size")


class Given(ctypes.Structure):
    _fields_ = [("from_", GivenSignal), ("to", GivenSignal)]
    _fields_ += fields("weight group_stride out_stride in_stride tap_stride bias bias_stride")
    _fields_ += fields("dtype batch groups taps step padding dilation activation")


class GivenUpdate(ctypes.Structure):
    _fields_ = fields(
        "input input_batch_stride input_stride state state_batch_stride state_channel_stride state_stride"
    )
    _fields_ += fields(
        "weight weight_stride tap_stride bias bias_stride out dtype batch channels taps state_size activation"
    )


class Taken(ctypes.Structure):
    _fields_ = fields(
        "path channels wide slides dilated channels_first products taps tap_parts splits blocks", ctypes.c_int
    )
    _fields_ += fields("threads block_rows launches workspaces intact", ctypes.c_int)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return load("conv1d", tmp_path_factory.mktemp("emulated"), variables=tuple(LIMITS))


@pytest.fixture(scope="module")
def memories():
    """Of input, output, weight and bias."""
    return [Memory(1 << 20) for _ in range(4)]


class Layout:
    """How an array lies: the order of its dimensions, innermost first, elements between the innermost dimension's, more after each
    dimension's last, expanded dimensions, and the elements before the first or after the last one in its aligned pack, where the memory
    begins or ends."""

    def __init__(self, order="last", step=1, gaps=(0, 0, 0), whole=0, expanded=(), offset=0, at_end=False):
        self.order, self.step, self.gaps, self.whole = order, step, gaps, whole
        self.expanded, self.offset, self.at_end = expanded, offset, at_end

    def __repr__(self):
        return f"Layout({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def strides(self, shape: tuple) -> list[int]:
        """In elements. Of three dimensions "last" has the last one inside, "middle" the one before; `whole` rounds up what they are apart."""
        order = {"last": (2, 1, 0), "middle": (1, 2, 0), "first": (0, 1, 2)}[self.order][-len(shape) :]
        if len(shape) < 3:
            order = tuple(range(len(shape)))[::-1]
        strides, step = [0] * len(shape), self.step
        for n, d in enumerate(order):
            strides[d] = 0 if d in self.expanded else step
            if d in self.expanded:
                continue
            step = step * shape[d] + self.gaps[n]
            if n == 0 and self.whole:
                step = -(-step // self.whole) * self.whole
        return strides

    def place(self, memory: Memory, dtype, shape: tuple, poison: int) -> tuple[np.ndarray, np.ndarray]:
        """A view of that shape, and all bytes near it, which are poisoned."""
        item, strides = dtype.numpy.itemsize, self.strides(shape)
        count = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
        begin = self.offset % (16 // item) * item
        if self.at_end:
            begin += (len(memory.bytes) - (begin + count * item)) // 16 * 16
        near = memory.bytes[max(begin - GUARD, 0) : begin + count * item + GUARD]
        near[:] = poison
        values = memory.bytes[begin : begin + count * item].view(dtype.numpy)
        assert len(values) == count
        return np.lib.stride_tricks.as_strided(values, shape, [s * item for s in strides]), near


PLAIN = (Layout(), Layout(), Layout())


def some(dtype, random: np.random.Generator, shape: tuple, special: int = 0) -> np.ndarray:
    """Values whose products have exact sums; `special` of them are infinite or NaN."""
    values = F64.some(random, math.prod(shape))
    values[random.integers(0, len(values), special)] = random.choice([np.inf, -np.inf, np.nan], special)
    return encode(dtype, values.reshape(shape))


def activated(values: np.ndarray, activation: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        if activation == RELU:
            return np.where(values < 0, 0, values)
        if activation == SILU:
            return values / (1 + np.exp(-values))
        return values * 0.5 * (1 + np.vectorize(math.erf)(values * math.sqrt(0.5))) if activation == GELU else values


def compare(dtype, got: np.ndarray, want: np.ndarray, activation: int = NONE) -> None:
    """Exactly, but for functions that are rounded in the compute type."""
    with np.errstate(all="ignore"):
        got, want = decode(dtype, got), decode(dtype, encode(dtype, want))
    if activation in (SILU, GELU):
        digits, least = {F16: (2**-10, 1e-5), BF16: (2**-7, 1e-5), F32: (1e-5, 1e-5), F64: (1e-12, 1e-12)}[dtype]
        np.testing.assert_allclose(got, want, digits, least)
    else:
        np.testing.assert_array_equal(got, want)


class Problem:
    def __init__(
        self, dtype, batch, groups, channels, size, taps, step=1, padding=(0, 0), dilation=1, bias=False, activation=NONE,
        layouts=PLAIN, special=0, seed=0,
    ):  # fmt: skip
        """`channels` of a group, in and out. Of too few values there are more zeros behind them."""
        self.dtype, self.batch, self.groups, self.channels, self.size, self.taps = (
            dtype,
            batch,
            groups,
            channels,
            size,
            taps,
        )
        self.step, self.left, self.dilation = step, padding[0], dilation
        places = max(size + sum(padding) - (taps - 1) * dilation, 1)  # of the first tap
        self.out_size = (places - 1) // step + 1
        self.bias, self.activation, self.layouts, self.special, self.seed = bias, activation, layouts, special, seed

    def __repr__(self):
        return f"Problem({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @property
    def shapes(self) -> tuple:
        ins, outs = (self.groups * c for c in self.channels)
        weight = (outs, self.channels[0], self.taps)
        return (self.batch, ins, self.size), (self.batch, outs, self.out_size), weight

    def expected(self, arrays: list, bias, which: int) -> np.ndarray:
        x, y, w = (decode(self.dtype, array).astype(np.float64) for array in arrays)
        (n, _, size), (_, _, outs), groups, (ci, co) = x.shape, y.shape, self.groups, self.channels
        reach = (outs - 1) * self.step + (self.taps - 1) * self.dilation + 1
        padded = np.zeros((n, groups, ci, max(reach, self.left + size)))
        grad, w = y.reshape(n, groups, co, outs), w.reshape(groups, co, ci, self.taps)
        windows = np.lib.stride_tricks.as_strided(
            padded,
            (n, groups, ci, outs, self.taps),
            (*padded.strides[:3], padded.strides[3] * self.step, padded.strides[3] * self.dilation),
        )
        inside = padded[..., self.left : self.left + size]
        with np.errstate(all="ignore"):
            if which == BACKWARD_INPUT:
                for k in range(self.taps):
                    windows[..., k] += np.einsum("ngoi,goc->ngci", grad, w[..., k])
                return inside.reshape(n, groups * ci, size)
            inside[...] = x.reshape(inside.shape)
            if which == BACKWARD_WEIGHT:
                return np.einsum("ngoi,ngcik->gock", grad, windows).reshape(groups * co, ci, self.taps)
            sums = np.einsum("ngcik,gock->ngoi", windows, w).reshape(n, groups * co, outs)
            return activated(sums if bias is None else sums + bias[None, :, None], self.activation)

    def run(self, kernels, memories, which, sms=1, **limits) -> Taken | None:
        """None where not even one image's group fits into a launch."""
        dtype, random = self.dtype, np.random.default_rng(self.seed)
        kernels.set_limits((ctypes.c_int64 * len(LIMITS))(*(LIMITS | limits).values()))
        written = {FORWARD: 1, BACKWARD_INPUT: 0, BACKWARD_WEIGHT: 2}[which]
        views, nears = [], []
        for i, (layout, shape) in enumerate(zip(self.layouts, self.shapes)):
            if i == written and layout.expanded:
                layout = Layout(layout.order, offset=layout.offset)
            if i == written == 2:
                layout = Layout(offset=layout.offset, at_end=layout.at_end)  # contiguous
            view, near = layout.place(memories[i], dtype, shape, UNTOUCHED if i == written else POISON)
            # Beyond the ends of a gradient some kernels lay taps on zeros and some don't.
            special = self.special if i < 2 or which == FORWARD else 0
            if i != written:
                view[...] = some(dtype, random, shape, special)
            views.append(view)
            nears.append(near)
        bias = None
        if self.bias and which == FORWARD:
            bias, near = self.layouts[2].place(memories[3], dtype, self.shapes[1][1:2], POISON)
            bias[...] = some(dtype, random, bias.shape)
            nears.append(near)
        before = [near.copy() for near in nears]

        item = dtype.numpy.itemsize
        signals = []
        for view, channels in zip(views, self.channels):
            strides = [s // item for s in view.strides]
            signals.append(GivenSignal(view.ctypes.data, *strides, channels, view.shape[2]))
        w = [s // item for s in views[2].strides]
        activation = self.activation if which == FORWARD else NONE
        problem = Given(
            *signals, views[2].ctypes.data, self.channels[1] * w[0], *w,
            *((0, 1) if bias is None else (bias.ctypes.data, bias.strides[0] // item)),
            dtype.number, self.batch, self.groups, self.taps, self.step, self.left, self.dilation, activation,
        )  # fmt: skip
        taken = Taken()
        error = kernels.run(ctypes.byref(problem), which, sms, ctypes.byref(taken))
        assert taken.intact, "a kernel wrote past its workspace or shared memory"
        if error == INVALID_VALUE and "kMaxIndex32" in limits:
            return None
        assert error == 0
        bias = None if bias is None else decode(dtype, bias).astype(np.float64)
        compare(dtype, views[written], self.expected(views, bias, which), activation)
        # Nothing beside the results has changed.
        views[written][...] = np.full(1, int.from_bytes([UNTOUCHED] * item, "little"), f"u{item}").view(dtype.numpy)[0]
        for near, own in zip(nears, before):
            assert np.array_equal(near, own)
        return taken


# ---------------------------------------------------------------- random problems

SIZES = [*range(1, 10), 12, 15, 16, 17, 24, 31, 33, 64, 65, 100, 128, 131, 200, 256, 257, 400, 515]
TAPS = [*range(1, 10), 11, 12, 15, 16, 17, 24, 31, 32, 33, 35, 64, 65, 70]


@st.composite
def layouts(draw, dtype):
    """More often ones that have a path of their own."""
    values = 16 // dtype.numpy.itemsize
    order = draw(st.sampled_from(["last", "last", "last", "middle", "middle", "first"]))
    rest = {"offset": draw(st.sampled_from([0, 0, 0, 1, values // 2, values - 1])), "at_end": draw(st.booleans())}
    kind = draw(st.sampled_from(["plain", "plain", "plain", "whole", "whole", "gaps", "step", "expanded"]))
    if kind == "whole":
        rest["whole"] = draw(st.sampled_from([values, 4]))
        rest["gaps"] = (0, 0, draw(st.sampled_from([0, values])))
    elif kind == "gaps":
        rest["gaps"] = tuple(draw(st.sampled_from([0, 1, 2, 8])) for _ in range(3))
    elif kind == "step":
        rest["step"] = draw(st.sampled_from([2, 3]))
    elif kind == "expanded":
        rest["expanded"] = tuple(draw(st.lists(st.integers(0, 2), max_size=2, unique=True)))
    return Layout(order, **rest)


@st.composite
def problems(draw, dtypes=DTYPES, most=2500, most_weights=400, out_channels=(1, 1, 2, 3, 4, 4, 8, 9, 12, 16, 33)):
    dtype = draw(st.sampled_from(dtypes))
    taps = draw(st.sampled_from(TAPS))
    depthwise = draw(st.sampled_from([False, True, True]))
    channels = (1, 1) if depthwise else (draw(st.sampled_from([1, 1, 2, 3, 4, 8])), draw(st.sampled_from(out_channels)))
    taps = min(taps, max(most_weights // math.prod(channels), 1))
    groups = draw(st.sampled_from([1, 1, 3, 8, 16, 24, 40, 80] if depthwise else [1, 1, 1, 2, 3]))
    groups = max(min(groups, most_weights // (taps * math.prod(channels))), 1)
    if most > 2500 and draw(st.integers(0, 4)) == 0:  # of several tiles
        groups, channels, taps = 1, draw(st.sampled_from([(1, 1), (1, 2), (2, 1)])), min(taps, 17)
    size = draw(st.sampled_from([*SIZES, 3000] if most > 2500 else SIZES))
    most = max(most // (groups * max(channels)), 1)
    size = min(size, most)
    batch = min(draw(st.sampled_from([1, 1, 2, 3, 5, 9, 600])), max(most // size, 1))
    step = draw(st.sampled_from([1, 1, 1, 1, 2, 3, 4, 6, 8]))
    dilation = draw(st.sampled_from([1, 1, 1, 2, 3, 5, 16]))
    if step > 1 and out_channels[-1] > 32 and draw(st.integers(0, 3)) == 0:  # few into many
        channels, groups, depthwise, size = (channels[0], 33), 1, False, min(size, 33)
        taps, batch = max(min(taps, 16 // channels[0]), 1), min(batch, 2)
    reach = (taps - 1) * dilation
    padding = draw(st.sampled_from([(0, 0), (reach // 2, reach - reach // 2), (reach, 0), (0, reach), (reach, reach)]))
    padding = tuple(min(p, 300) + draw(st.sampled_from([0, 0, 1, 5])) for p in padding)
    own = draw(layouts(dtype))
    both = draw(st.booleans())
    if depthwise and draw(st.integers(0, 3)) == 0:  # channels-last, in whole packs
        groups, own, both = draw(st.sampled_from([8, 16, 40, 80])), Layout("middle"), True
        size = min(size, 65)
        batch = min(batch, 3)
    return Problem(
        dtype, batch, groups, channels, size, taps, step, padding, dilation, draw(st.booleans()),
        draw(st.sampled_from([NONE, NONE, RELU, SILU, GELU])),
        (own, own if both else draw(layouts(dtype)), draw(layouts(dtype))),
        draw(st.sampled_from([0, 0, 0, 1, 3])), draw(st.integers(0, 2**31)),
    )  # fmt: skip


@st.composite
def some_limits(draw):
    """Those of the room, or ones that make wide lanes, small blocks, splits and launches of small problems."""
    if draw(st.booleans()):
        return {}
    return {
        "row_threads": draw(st.sampled_from([32, 64, 128])),
        "wide_outputs": draw(st.sampled_from([1, 32 << 10])),
        "weight_blocks": draw(st.sampled_from([6, 40])),
        "weight_units": draw(st.sampled_from([1, 4])),
        "kMaxIndex32": draw(st.sampled_from([*[2**31 - 1] * 4, 1000, 300, 2, 1])),
    }


def random_settings(examples: int):
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


def test_any_rows_of_half_types_on_tensor_cores(kernels, memories):
    taken, parts = set(), set()

    @random_settings(250)
    @given(
        problem=problems(dtypes=[F16, BF16]),
        which=st.sampled_from([FORWARD, FORWARD, BACKWARD_INPUT]),
        sms=st.sampled_from([1, 132]),
        most=st.sampled_from([2**31 - 1] * 3 + [300]),
    )
    def check(problem, which, sms, most):
        plan = problem.run(kernels, memories, which, sms, mma_outputs=1, kMaxIndex32=most)
        if plan is not None:
            taken.add((plan.path, problem.dilation > 1, problem.dtype.number))
            if plan.launches > 1:
                parts.add(plan.path)

    check()
    assert {(MMA, dilated, dtype.number) for dilated in (False, True) for dtype in (F16, BF16)} <= taken
    assert MMA in parts


def test_an_infinite_value_on_tensor_cores_reaches_what_lies_over_it(kernels, memories):
    """Taps of 0 are multiplied with its neighbours there."""
    for dtype in (F16, BF16):
        for taps, size in ((1, 300), (4, 2100), (9, 1024), (40, 700)):
            for seed in range(3):
                problem = Problem(dtype, 2, 3, (1, 1), size, taps, padding=(taps - 1, 0), special=5, seed=seed)
                assert problem.run(kernels, memories, FORWARD, mma_outputs=1).path == MMA


def test_any_forward(kernels, memories):
    taken, parts = set(), set()

    @random_settings(1200)
    @given(problem=problems(), sms=st.sampled_from([1, 1, 4]), limits=some_limits())
    def check(problem, sms, limits):
        plan = problem.run(kernels, memories, FORWARD, sms, **limits)
        if plan is None:
            return
        slides = problem.step == problem.dilation == 1 if plan.path == COLUMNS else plan.slides
        taps = "dilated" if plan.dilated else "slides" if slides else ""
        taken.add((plan.path, plan.channels, bool(plan.wide), taps, bool(plan.channels_first)))
        taken.add((plan.path, problem.dtype.number))
        if plan.launches > 1:
            parts.add(plan.path)

    check()
    for taps in ("", "slides", "dilated"):
        assert {(ROWS, 1, False, taps, False), (ROWS, 1, True, taps, False), (ROWS, 4, False, taps, False)} <= taken
    assert {(COLUMNS, 1, False, slides, False) for slides in ("", "slides")} <= taken
    assert {(VALUES, channels, False, "", first) for channels in (1, 4) for first in (False, True)} <= taken
    assert {(path, dtype.number) for path in (ROWS, FAN, COLUMNS, VALUES) for dtype in DTYPES} <= taken
    assert parts >= {ROWS, COLUMNS, VALUES}


def test_any_backward_input(kernels, memories):
    taken, parts = set(), set()

    @random_settings(1000)
    @given(problem=problems(), sms=st.sampled_from([1, 1, 4]), limits=some_limits())
    def check(problem, sms, limits):
        plan = problem.run(kernels, memories, BACKWARD_INPUT, sms, **limits)
        if plan is None:
            return
        gathers = problem.step > 1 and problem.out_size > 1
        taken.add((plan.path, gathers, plan.channels, bool(plan.channels_first)))
        if not gathers:
            taken.add((plan.path, bool(plan.wide), bool(plan.dilated)))
        if plan.launches > 1:
            parts.add((plan.path, gathers))

    check()
    assert {(VALUES, gathers, 1, first) for gathers in (False, True) for first in (False, True)} <= taken
    assert {(ROWS, wide, dilated) for wide in (False, True) for dilated in (False, True)} <= taken
    assert {(ROWS, False, 1, False), (ROWS, False, 4, False), (COLUMNS, False, 1, False)} <= taken
    assert (ROWS, False) in parts


def test_any_backward_weight(kernels, memories):
    """Of few weights, as each is left by exchanges between all threads of a block."""
    taken = set()

    @random_settings(200)
    @given(
        problem=problems(most=9000, most_weights=96, out_channels=(1, 2, 4, 4, 5, 8, 8)),
        sms=st.sampled_from([1, 2, 8]),
        limits=some_limits(),
    )
    def check(problem, sms, limits):
        plan = problem.run(kernels, memories, BACKWARD_WEIGHT, sms, **limits)
        split = plan.splits > 1
        assert plan.workspaces == split and plan.launches == 1 + split
        taken.add((plan.path, plan.channels, bool(plan.dilated), split))
        taken.add((plan.path, plan.taps if plan.path == ROWS else 8, plan.tap_parts > 1))

    check()
    assert {(ROWS, 1, False, False), (ROWS, 1, True, False)} <= taken
    for split in (False, True):
        assert (COLUMNS, 1, False, split) in taken
        assert (VALUES, 1, False, split) in taken
    assert {(path, 8, True) for path in (ROWS, COLUMNS, VALUES)} <= taken


@random_settings(60)
@given(
    dtype=st.sampled_from(DTYPES),
    batch=st.integers(200, 700),
    size=st.integers(1, 40),
    taps=st.integers(1, 40),
    dilation=st.sampled_from([1, 1, 2]),
    padding=st.tuples(st.integers(0, 40), st.integers(0, 5)),
    gaps=st.tuples(st.integers(0, 3), st.just(0), st.integers(0, 3)),
    offsets=st.tuples(st.integers(0, 7), st.integers(0, 7)),
    splits=st.sampled_from([1, 2, 40]),
)
def test_weight_gradients_of_many_short_rows(
    kernels, memories, dtype, batch, size, taps, dilation, padding, gaps, offsets, splits
):
    """Tiles that begin and end inside of rows."""
    layouts = (*(Layout(gaps=gaps, offset=offset) for offset in offsets), Layout())
    problem = Problem(dtype, batch, 1, (1, 1), size, taps, 1, padding, dilation, layouts=layouts, seed=batch)
    taken = problem.run(kernels, memories, BACKWARD_WEIGHT, weight_blocks=splits, weight_units=1)
    assert taken.path in (ROWS, VALUES)  # of many taps of many rows a tile doesn't fit


@st.composite
def updates(draw):
    dtype = draw(st.sampled_from(DTYPES))
    taps = draw(st.sampled_from([1, 2, 3, 4, 5, 9, 17]))
    old = draw(st.sampled_from([0, 0, 1, 7]))
    sizes = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 3, 8, 100, 300]))
    own = draw(layouts(dtype))
    own.expanded = ()
    return dtype, *sizes, taps, taps - 1 + old, own, draw(layouts(dtype)), draw(st.booleans()), draw(st.integers(0, 3))


@random_settings(250)
@given(problem=updates(), seed=st.integers(0, 2**31))
def test_any_update(kernels, memories, problem, seed):
    """The state moves on in place, and nothing beside it or the result changes."""
    dtype, batch, channels, taps, places, own, others, has_bias, activation = problem
    random, item = np.random.default_rng(seed), dtype.numpy.itemsize
    x, x_near = others.place(memories[0], dtype, (batch, channels), POISON)
    state, state_near = own.place(memories[1], dtype, (batch, channels, max(places, 1)), UNTOUCHED)
    w, _ = others.place(memories[2], dtype, (channels, taps), POISON)
    bias, _ = others.place(memories[3], dtype, (channels,), POISON)
    for view in (x, state, w, bias):
        view[...] = some(dtype, random, view.shape, special=int(view is x))
    raw = np.full(batch * channels * item + 2 * GUARD, UNTOUCHED, np.uint8)
    window = np.concatenate([state[..., :places], x[..., None]], 2)
    before = x_near.copy()
    with np.errstate(all="ignore"):
        sums = np.einsum("nck,ck->nc", decode(dtype, window[..., -taps:]), decode(dtype, w))
        want = activated(sums + decode(dtype, bias) if has_bias else sums, activation)
    after = window[..., 1:] if places else state.copy()

    def strides(view):
        return [s // item for s in view.strides]

    problem = GivenUpdate(
        x.ctypes.data, *strides(x), state.ctypes.data, *strides(state), w.ctypes.data, *strides(w),
        bias.ctypes.data if has_bias else 0, *strides(bias), raw.ctypes.data + GUARD,
        dtype.number, batch, channels, taps, places, activation,
    )  # fmt: skip
    assert kernels.run_update(ctypes.byref(problem)) == 0
    compare(dtype, raw[GUARD:-GUARD].view(dtype.numpy).reshape(batch, channels), want, activation)
    assert (raw[:GUARD] == UNTOUCHED).all() and (raw[-GUARD:] == UNTOUCHED).all()
    np.testing.assert_array_equal(decode(dtype, state), decode(dtype, after))
    state[...] = np.full(1, int.from_bytes([UNTOUCHED] * item, "little"), f"u{item}").view(dtype.numpy)[0]
    assert (state_near == UNTOUCHED).all() and np.array_equal(x_near, before)


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("channels", [(1, 1), (2, 4)])
def test_every_end_of_a_row(kernels, memories, dtype, dilation, channels):
    """Rows that begin and end anywhere in their packs, in memory that begins and ends there too."""
    values = 16 // dtype.numpy.itemsize
    for size in (1, values - 1, values, values + 1, 3 * values + 1):
        for own, other in ((0, 0), (0, 1), (1, 0), (values - 1, 1)):
            for at_end in (False, True):
                signals = [Layout(offset=o, at_end=at_end) for o in (own, other)]
                rest = {"dilation": dilation, "layouts": (*signals, Layout()), "special": int(at_end), "seed": size}
                problem = Problem(dtype, 2, 1, channels, size, 3, padding=(at_end * 4, dilation * 2), **rest)
                for which in (FORWARD, BACKWARD_INPUT):
                    assert problem.run(kernels, memories, which, row_threads=32).path == ROWS


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("in_channels", [1, 2])
def test_fans_of_all_products(kernels, memories, dtype, in_channels):
    products = set()
    for taps in range(1, 16 // in_channels + 1):
        offset = taps % 3
        layouts = (Layout(offset=offset), Layout(offset=offset, whole=offset % 2 * 4), Layout())
        problem = Problem(
            dtype,
            2,
            2,
            (in_channels, 33),
            40,
            taps,
            2 + taps % 3,
            (taps, 3),
            1 + taps % 2,
            True,
            taps % 4,
            layouts,
            taps % 2,
        )
        taken = problem.run(kernels, memories, FORWARD)
        assert taken.path == FAN
        products.add(taken.products)
    assert products == {1: {2, 4, 6, 8, 10, 12, 16}, 2: {2, 4, 6, 8, 10, 12, 16}}[in_channels]


def test_fans_of_more_channels_than_a_block_and_more_places_than_a_tile(kernels, memories):
    for size, channels, layout in ((2103, 9, Layout()), (20, 150, Layout()), (5, 601, Layout(offset=1))):
        problem = Problem(F16, 1, 1, (1, channels), size, 3, 2, (1, 1), layouts=(Layout(), layout, Layout()))
        taken = problem.run(kernels, memories, FORWARD)
        assert taken.path == FAN and taken.blocks > 1


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
def test_rows_of_many_blocks_and_blocks_of_many_rows(kernels, memories, size, batch, taps, dilation, limits, expected):
    for which in (FORWARD, BACKWARD_INPUT):
        problem = Problem(F32, batch, 1, (1, 1), size, taps, 1, ((taps - 1) * dilation, 0), dilation)
        taken = problem.run(kernels, memories, which, **limits)
        assert taken.path == ROWS and {name: getattr(taken, name) for name in expected} == expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weight_gradients_of_any_taps(kernels, memories, dtype):
    for taps, own in ((1, 4), (4, 4), (5, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32), (33, 32), (70, 32)):
        problem = Problem(dtype, 3, 1, (1, 2), 50, taps, 1, (taps // 2, taps), seed=taps)
        taken = problem.run(kernels, memories, BACKWARD_WEIGHT)
        own = min(own, 16) if dtype is F64 else own
        assert (taken.path, taken.taps, taken.tap_parts) == (ROWS, own, -(-taps // own))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("splits", [1, 5, 40])
def test_weight_gradients_of_many_tiles(kernels, memories, dtype, splits, dilation):
    """A block works on one tile while the next one is copied."""
    limits = {"weight_blocks": splits, "weight_units": 1}
    layouts = (Layout(offset=1), Layout(), Layout())
    problem = Problem(dtype, 3, 1, (1, 1), 12000, 5, 1, (2, 2), dilation, layouts=layouts)
    taken = problem.run(kernels, memories, BACKWARD_WEIGHT, **limits)
    assert (
        taken.path == ROWS
        and taken.dilated == (dilation > 1)
        and (taken.splits > 1) == (splits > 1)
        and taken.splits <= splits
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", ["middle", "last"])
@pytest.mark.parametrize("step", [1, 2])
def test_values_of_several_channels(kernels, memories, dtype, order, step):
    """A lane has four of the five or six channels of a group, and the next one the rest."""
    own, channels = Layout(order, step=2, offset=1), 1 if dtype is F64 else 4
    problem = Problem(dtype, 8, 2, (5, 6), 150, 3, step, (2, 0), 2, True, layouts=(own, own, Layout()))
    for which in (FORWARD, BACKWARD_INPUT):
        taken = problem.run(kernels, memories, which)
        assert (taken.path, taken.channels) == (VALUES, channels)
    for splits in (1, 400):
        problem.layouts = (own, Layout("last", step=2), Layout())
        taken = problem.run(kernels, memories, BACKWARD_WEIGHT, weight_blocks=splits, weight_units=1)
        assert (taken.path, taken.channels, taken.splits > 1) == (VALUES, channels, splits > 1)


@pytest.mark.parametrize("order", ["plain", "packed"])
@pytest.mark.parametrize("which", [FORWARD, BACKWARD_INPUT])
def test_values_of_neighbouring_channels(kernels, memories, order, which):
    for channels in ((4, 5), (1, 1)):
        layouts = (Layout("middle", offset=1),) * 2 if order == "plain" else (Layout("middle", whole=8, offset=1),) * 2
        problem = Problem(F32, 2, 8, channels, 21, 3, 1, (1, 1), layouts=(*layouts, Layout()))
        taken = problem.run(kernels, memories, which)
        assert (taken.path, taken.channels, taken.channels_first) == (VALUES, 4 if channels[0] > 1 else 1, 1)


@pytest.mark.parametrize("which", [FORWARD, BACKWARD_INPUT])
@pytest.mark.parametrize("order", ["last", "middle"])
@pytest.mark.parametrize("step", [1, 2])
def test_launches_of_few_blocks(kernels, memories, which, order, step):
    """Parts of the images, and where there is one image, of the groups."""
    layouts = (Layout(order), Layout(order, offset=1), Layout())
    for batch, groups in ((7, 3), (1, 21)):
        problem = Problem(F32, batch, groups, (1, 4), 139, 3, step, (1, 1), bias=True, layouts=layouts)
        whole = problem.run(kernels, memories, which)
        assert whole.launches == 1
        # What is counted differs: lanes of rows, warps, blocks.
        cuts = [problem.run(kernels, memories, which, kMaxIndex32=most) for most in (450, 262, 1)]
        assert any(cut is not None and cut.launches > 1 for cut in cuts)


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
def test_large_problems_are_launched_in_parts(kernels, batch, groups, channels, size, step, last):
    """As many as hold all outputs, of so few lanes that kernels can count them. (Not run: no memory holds them.)"""
    kernels.set_limits((ctypes.c_int64 * len(LIMITS))(*LIMITS.values()))
    taps = 2
    out_size = (size + 1 - taps) // step + 1
    signals = signals_of(batch, groups, channels, (size, out_size), last)
    weight = (1 << 20, channels[1] * channels[0] * taps, channels[0] * taps, taps, 1)
    for which in (FORWARD, BACKWARD_INPUT):
        problem = Given(*signals, *weight, 0, 1, F16.number, batch, groups, taps, step, 1, 1, NONE)
        blocks, taken = ctypes.c_int64(), Taken()
        count = kernels.launches(ctypes.byref(problem), which, 132, ctypes.byref(blocks), ctypes.byref(taken))
        written = signals[which == FORWARD]
        assert count >= 1 and 1 <= blocks.value < 2**31
        # A lane has at most 4 channels of 8 values.
        assert count * blocks.value * 256 * 32 >= batch * groups * written.channels * written.size
        if taken.path == ROWS:
            assert blocks.value * taken.threads < 2**31
        elif taken.path == VALUES:  # lanes are counted with 31 bits, or warps where their places are neighbours
            assert blocks.value * 256 // (1 if taken.channels_first else 32) < 2**31
