"""The launchers and kernels of convolutions, run on the CPU over random problems: every path, against numpy."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..seeded import seeded
from .conv1d_model import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    CHUNKS,
    COLUMNS,
    DTYPES,
    FAN,
    FORWARD,
    GELU,
    GUARD,
    NONE,
    POISON,
    RELU,
    ROWS,
    SILU,
    UNTOUCHED,
    VALUES,
    GivenUpdate,
    Layout,
    Problem,
    activated,
    compare,
    some,
)  # fmt: skip
from .memory import decode

SIZES = [*range(1, 10), 12, 15, 16, 17, 24, 31, 33, 64, 65, 100, 128, 131, 200, 256, 257, 400, 515]
TAPS = [*range(1, 10), 11, 12, 15, 16, 17, 24, 31, 32, 33, 35, 64, 65, 70]


@st.composite
def layouts(draw, dtype, rows=False):
    """More often ones that have a path of their own; of `rows` contiguous ones."""
    values = 16 // dtype.numpy.itemsize
    order = draw(st.sampled_from(["last", "last", "last"] + ([] if rows else ["middle", "middle", "first"])))
    rest = {
        "offset": draw(st.sampled_from([0, 0, 0, 1, values // 2, values - 1, values])),
        "at_end": draw(st.booleans()),
    }
    kinds = ["plain", "plain", "plain", "whole", "whole", "gaps"]
    kind = draw(st.sampled_from(kinds + ([] if rows else ["step", "expanded"])))
    if kind == "whole":
        rest["whole"] = draw(st.sampled_from([values, 2 * values, 4]))
        rest["gaps"] = (0, 0, draw(st.sampled_from([0, values])))
    elif kind == "gaps":
        rest["gaps"] = tuple(draw(st.sampled_from([0, 1, 2, 8])) for _ in range(3))
    elif kind == "step":
        rest["step"] = draw(st.sampled_from([2, 3]))
    elif kind == "expanded":
        rest["expanded"] = tuple(draw(st.lists(st.integers(0, 2), max_size=2, unique=True)))
    return Layout(order, **rest)


@st.composite
def problems(draw, most=2500, most_weights=400, out_channels=(1, 1, 2, 3, 4, 4, 8, 9, 12, 16, 33), rows=False):
    """Of `rows`, contiguous ones of step 1, more often long ones."""
    dtype = draw(st.sampled_from(DTYPES))
    taps = draw(st.sampled_from(TAPS))
    depthwise = draw(st.sampled_from([False, True, True]))
    channels = (1, 1) if depthwise else (draw(st.sampled_from([1, 1, 2, 3, 4, 8])), draw(st.sampled_from(out_channels)))
    taps = min(taps, max(most_weights // math.prod(channels), 1))
    groups = draw(st.sampled_from([1, 1, 3, 8, 16, 24, 40, 80] if depthwise else [1, 1, 1, 2, 3]))
    groups = max(min(groups, most_weights // (taps * math.prod(channels))), 1)
    long = draw(st.integers(0, 1 if rows else 4)) == 0
    if long:  # of several tiles
        groups, channels, taps = 1, draw(st.sampled_from([(1, 1), (1, 2), (2, 1)])), min(taps, 17)
    size = draw(st.sampled_from([515, 700, 1200, 3000] if long else SIZES))
    most = max(most // (groups * max(channels)), 1)
    size = min(size, most)
    batch = min(draw(st.sampled_from([1, 1, 2, 3, 5, 9, 600])), max(most // size, 1))
    step = draw(st.sampled_from([1] if rows else [1, 1, 1, 1, 2, 3, 4, 6, 8]))
    dilation = draw(st.sampled_from([1, 1, 1, 2, 3, 5, 16]))
    if not rows and out_channels[-1] > 32 and draw(st.integers(0, 1 if step > 1 else 7)) == 0:  # few into many
        channels, groups, depthwise = (channels[0], draw(st.sampled_from([9, 33, 70, 130]))), 1, False
        taps, batch = max(min(taps, draw(st.sampled_from([16, 64])) // channels[0]), 1), min(batch, 2)
        size = min(size, 65)
    reach = (taps - 1) * dilation
    padding = draw(st.sampled_from([(0, 0), (reach // 2, reach - reach // 2), (reach, 0), (0, reach), (reach, reach)]))
    padding = tuple(min(p, 300) + draw(st.sampled_from([0, 0, 1, 5])) for p in padding)
    batch = min(batch, max(most // max((size + sum(padding) - reach) // step, 1), 1))  # what is written has to fit too
    own = draw(layouts(dtype, rows))
    both = draw(st.booleans())
    if depthwise and not rows and draw(st.integers(0, 3)) == 0:  # channels-last, in whole packs
        groups, own, both = draw(st.sampled_from([8, 16, 40, 80])), Layout("middle"), True
        size = min(size, 65)
        batch = min(batch, 3)
    return Problem(
        dtype, batch, groups, channels, size, taps, step, padding, dilation, draw(st.booleans()),
        draw(st.sampled_from([NONE, NONE, RELU, SILU, GELU])),
        (own, own if both else draw(layouts(dtype, rows)), draw(layouts(dtype))),
        draw(st.sampled_from([0, 0, 0, 1, 3])), draw(st.integers(0, 2**31)),
    )  # fmt: skip


LARGE = 2**31 - 1


@st.composite
def some_limits(draw):
    """Those of the room, or ones that make chunks, wide lanes, small blocks, splits and launches of small problems."""
    limits = {"chunk_outputs": draw(st.sampled_from([2**60, 20, 1]))}
    limits["few_places"] = draw(st.sampled_from([0, 2048]))
    limits |= draw(
        st.sampled_from(
            [{}, {"direct_warps": 64, "direct_row": 0}, {"direct_filled": 0, "direct_far_filled": 0, "direct_row": 0}]
        )
    )
    limits["few_outputs"] = draw(st.sampled_from([0, 0, 2048]))
    limits["polyphase_outputs"] = draw(st.sampled_from([2**60, 1]))
    limits["polyphase_warps"] = draw(st.sampled_from([0, 64]))
    if draw(st.booleans()):
        return limits
    return limits | {
        "row_threads": draw(st.sampled_from([32, 64, 128])),
        "wide_outputs": draw(st.sampled_from([1, 32 << 10])),
        "weight_blocks": draw(st.sampled_from([6, 40])),
        "weight_units": draw(st.sampled_from([1, 4])),
        "kMaxIndex32": draw(st.sampled_from([LARGE, LARGE, LARGE, LARGE, 1000, 300, 2, 1])),
    }


def check_random(conv1d, which, examples, problem, kernels, paths, **limits) -> None:
    """Random problems must take these paths and so many kernels, of all dtypes. Tests of cases name every kernel."""
    taken = set()

    @seeded(examples)
    @given(
        problem=problem, limits=st.fixed_dictionaries(limits), rest=some_limits() if len(limits) == 1 else st.just({})
    )
    def check(problem, limits, rest):
        plan = problem.run(conv1d, which, **rest, **limits)
        if plan is None:
            return
        if which == BACKWARD_WEIGHT:
            assert plan.workspaces == (plan.splits > 1) == plan.launches - 1
        taken.add((problem.dtype.number, *plan.kernel))

    check()
    assert {path for _, path, *_ in taken} >= paths and len(taken) >= kernels


EVERY_PATH = {CHUNKS, ROWS, FAN, COLUMNS, VALUES}
# Of few weights, as each is left by exchanges between all threads of a block.
WEIGHTS = {"most": 9000, "most_weights": 96, "out_channels": (1, 2, 4, 4, 5, 8, 8)}


def test_any_forward(conv1d):
    check_random(conv1d, FORWARD, 500, problems(), 45, EVERY_PATH, sms=st.sampled_from([1, 1, 4]))


def test_any_backward_input(conv1d):
    check_random(conv1d, BACKWARD_INPUT, 500, problems(), 38, EVERY_PATH - {FAN}, sms=st.sampled_from([1, 1, 4]))


def test_any_backward_weight(conv1d):
    sms = st.sampled_from([1, 2, 8])
    check_random(conv1d, BACKWARD_WEIGHT, 200, problems(**WEIGHTS), 15, EVERY_PATH - {FAN}, sms=sms)


@pytest.mark.parametrize("which", [FORWARD, BACKWARD_INPUT])
def test_any_chunks(conv1d, which):
    limits = {"sms": [1, 132], "chunk_outputs": [1], "chunk_warps": [1, 16], "kMaxIndex32": [LARGE] * 4 + [300]}
    limits = {name: st.sampled_from(values) for name, values in limits.items()}
    check_random(conv1d, which, 200, problems(rows=True), 11, {CHUNKS}, **limits)


def test_any_backward_weight_in_chunks(conv1d):
    limits = {"sms": [1, 1, 8], "chunk_outputs": [1], "weight_bytes": [1 << 10, 2 << 10]}
    limits = {name: st.sampled_from(values) for name, values in limits.items()}
    check_random(conv1d, BACKWARD_WEIGHT, 250, problems(**WEIGHTS, rows=True), 7, {CHUNKS}, **limits)


@seeded(60)
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
    conv1d, dtype, batch, size, taps, dilation, padding, gaps, offsets, splits
):
    """Tiles that begin and end inside of rows."""
    layouts = (*(Layout(gaps=gaps, offset=offset) for offset in offsets), Layout())
    problem = Problem(dtype, batch, 1, (1, 1), size, taps, 1, padding, dilation, layouts=layouts, seed=batch)
    taken = problem.run(conv1d, BACKWARD_WEIGHT, weight_blocks=splits, weight_units=1)
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


@seeded(100)
@given(problem=updates(), seed=st.integers(0, 2**31))
def test_any_update(conv1d, problem, seed):
    """The state moves on in place, and nothing beside it or the result changes."""
    dtype, batch, channels, taps, places, own, others, has_bias, activation = problem
    random, item = np.random.default_rng(seed), dtype.numpy.itemsize
    x, x_near = others.place(conv1d.memories[0], dtype, (batch, channels), POISON)
    state, state_near = own.place(conv1d.memories[1], dtype, (batch, channels, max(places, 1)), UNTOUCHED)
    w, _ = others.place(conv1d.memories[2], dtype, (channels, taps), POISON)
    bias, _ = others.place(conv1d.memories[3], dtype, (channels,), POISON)
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
    assert conv1d.kernels.run_update(ctypes.byref(problem)) == 0
    compare(dtype, raw[GUARD:-GUARD].view(dtype.numpy).reshape(batch, channels), want, activation)
    assert (raw[:GUARD] == UNTOUCHED).all() and (raw[-GUARD:] == UNTOUCHED).all()
    np.testing.assert_array_equal(decode(dtype, state), decode(dtype, after))
    state[...] = np.full(1, int.from_bytes([UNTOUCHED] * item, "little"), f"u{item}").view(dtype.numpy)[0]
    assert (state_near == UNTOUCHED).all() and np.array_equal(x_near, before)
