"""Plans of gradients that go through many output channels: what kernels rely on, and where they are taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ..conv1d_calls import MANY_GRADIENTS
from ..seeded import seeded
from .conv1d_model import check
from .conv1d_planner import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    BFLOAT16,
    CHUNKS,
    FAN_GRADIENTS,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORWARD,
    ITEM,
    VALUES,
    problem_of,
)

GRADIENTS = (BACKWARD_INPUT, BACKWARD_WEIGHT)


@pytest.fixture(scope="module")
def planner():
    return load("plan/conv1d")


@st.composite
def problems(draw):
    """Of several output channels a group."""
    dtype = draw(st.sampled_from([FLOAT16, BFLOAT16, FLOAT32, FLOAT32, FLOAT64]))
    channels = (
        draw(st.sampled_from([1, 1, 2, 3, 5, 8])),
        draw(st.sampled_from([5, 6, 8, 9, 15, 16, 17, 33, 64, 100, 512, 5000])),
    )
    taps = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 9, 10, 12, 16, 17, 31, 32, 33, 64, 65]))
    dilation, step = (
        draw(st.sampled_from([1, 1, 1, 2, 3, 16])),
        draw(st.sampled_from([1, 2, 2, 3, 5, 8, 63, 64, 65, 1000])),
    )
    reach = (taps - 1) * dilation
    sizes = [1, 2, 3, 5, 17, 64, 100, 257, 1000, 4099, 16384, 65537, 2**20 + 3, 2**27, 2**30]
    size, groups = draw(st.sampled_from(sizes)), draw(st.sampled_from([1, 1, 2, 8, 100]))
    batch = draw(
        st.sampled_from(
            [n for n in (1, 2, 3, 8, 100, 65537, 2**20 + 1) if n * groups * max(channels) * size < 2**46] or [1]
        )
    )
    layouts = ("rows", draw(st.sampled_from(["rows", "rows", "rows", "whole rows", "channels last"])))
    offsets = draw(st.sampled_from([(0, 0), (0, 0), (0, 1), (3, 2)]))
    padding = draw(st.sampled_from([0, reach // 2, reach, reach + 3]))
    return problem_of(
        batch, groups, channels, size, taps, dtype, step, padding, dilation, layouts, offsets, draw(st.sampled_from([padding, 0]))
    )  # fmt: skip


def test_what_kernels_rely_on(planner):
    taken = set()

    @seeded(1200)
    @given(problem=problems(), which=st.sampled_from(GRADIENTS), sms=st.sampled_from([1, 16, 132]), few=st.booleans())
    def check_one(problem, which, sms, few):
        plan = check(planner, problem, which, sms, few, fan=True)
        if plan.path != FAN_GRADIENTS:
            return
        taken.add((which, plan.matrices, plan.products))
        taken.add((which, "splits", min(plan.splits, 16)))
        taken.add((which, "parts", plan.tap_parts > 1))
        taken.add((which, "cycle", plan.cycle, plan.aligned))

    check_one()
    assert {(BACKWARD_INPUT, 1, products) for products in (16, 32, 64)} <= taken
    assert {(BACKWARD_INPUT, 0, products) for products in (4, 8, 12, 16, 32)} <= taken
    assert {(BACKWARD_INPUT, "splits", splits) for splits in (1, 2, 4, 8)} <= taken
    assert {(BACKWARD_WEIGHT, 1, products) for products in (8, 16, 32)} <= taken
    assert {(BACKWARD_WEIGHT, 0, products) for products in (4, 8, 12)} <= taken
    assert {(BACKWARD_WEIGHT, "cycle", cycle, 4) for cycle in (1, 2, 4)} | {(BACKWARD_WEIGHT, "cycle", 1, 1)} <= taken
    assert {(which, "parts", parts) for which in GRADIENTS for parts in (False, True)} <= taken


HALF = {"dtype": BFLOAT16}


@pytest.mark.parametrize(
    "which, taken, other",
    [
        # (batch, groups, channels, size, taps) and the rest: what takes these kernels and what, but for a little, doesn't.
        (BACKWARD_INPUT, ((16, 1, (1, 512), 80000, 10), HALF | {"step": 5}), ((16, 1, (1, 4), 80000, 5), HALF | {"step": 5})),
        (BACKWARD_INPUT, ((16, 1, (1, 5), 80000, 5), {"step": 5}), ((16, 1, (1, 4), 80000, 5), {"step": 5})),
        (BACKWARD_INPUT, ((16, 1, (1, 32), 80000, 8), {}), ((16, 1, (1, 31), 80000, 8), {})),
        (BACKWARD_INPUT, ((16, 1, (2, 16), 80000, 8), HALF), ((16, 1, (2, 16), 80000, 9), HALF)),
        (BACKWARD_INPUT, ((16, 1, (4, 64), 8000, 25), {}), ((16, 1, (4, 64), 8000, 26), {})),
        (BACKWARD_INPUT, ((16, 1, (1, 64), 8000, 10), {"step": 64}), ((16, 1, (1, 64), 8000, 10), {"step": 65})),
        (BACKWARD_INPUT, ((16, 1, (1, 64), 80000, 32), {}), ((16, 1, (1, 64), 80000, 33), {})),
        (BACKWARD_INPUT, ((16, 1, (1, 64), 80000, 64), HALF | {"padding": 2, "right": 1, "step": 2}), ((16, 1, (1, 64), 80000, 65), HALF)),
        # Taps that don't fit into shared memory, where rows are whole quads and where only each fourth is aligned alike.
        (BACKWARD_INPUT, ((1, 1, (7, 336), 30417, 6), HALF | {"padding": 7, "dilation": 3}), ((1, 1, (7, 336), 30416, 6), HALF | {"padding": 7, "dilation": 3})),
        (BACKWARD_INPUT, ((1, 1, (7, 320), 30416, 6), HALF | {"padding": 7, "dilation": 3}), ((1, 1, (7, 324), 30416, 6), HALF | {"padding": 7, "dilation": 3})),
        # Few values, up to 160 products each.
        (BACKWARD_INPUT, ((2, 4, (1, 32), 2000, 6), HALF), ((2, 4, (1, 32), 2000, 5), HALF)),
        (BACKWARD_WEIGHT, ((16, 1, (1, 64), 8000, 10), HALF | {"step": 5}), ((16, 1, (1, 64), 2500, 10), HALF | {"step": 5})),
        (BACKWARD_WEIGHT, ((16, 1, (3, 8), 80000, 9), HALF), ((16, 1, (3, 8), 80000, 10), HALF)),
        (BACKWARD_WEIGHT, ((16, 1, (2, 16), 80000, 8), HALF), ((16, 1, (2, 15), 80000, 8), HALF)),
        (BACKWARD_WEIGHT, ((16, 1, (4, 8), 80000, 3), {}), ((16, 1, (4, 8), 80000, 4), {})),
        (BACKWARD_WEIGHT, ((16, 1, (3, 8), 8300, 9), HALF), ((16, 1, (3, 8), 8000, 9), HALF)),  # 2^20 values of the gradient
        # By value where it's little.
        (BACKWARD_WEIGHT, ((1, 1, (1, 78), 7568, 23), {"step": 3}), ((1, 1, (1, 78), 7568, 23), {"step": 5})),
    ],
)  # fmt: skip
def test_where_they_are_taken(planner, which, taken, other):
    for (arguments, rest), expected in ((taken, True), (other, False)):
        problem = problem_of(*arguments, **rest)
        assert (check(planner, problem, which, few=True, fan=True).path == FAN_GRADIENTS) == expected


def test_others_keep_their_paths(planner):
    """Doubles, other strides, forwards and groups of few output channels."""
    for which, path, arguments, rest in (
        (BACKWARD_WEIGHT, CHUNKS, (8, 64, (1, 1), 4096, 5), {}),
        (BACKWARD_WEIGHT, VALUES, (16, 1, (1, 512), 80000, 10), {"step": 5, "dtype": FLOAT64}),
        (BACKWARD_INPUT, VALUES, (16, 1, (1, 512), 80000, 10), {"step": 5, "dtype": FLOAT64}),
        (BACKWARD_INPUT, VALUES, (16, 1, (1, 512), 8000, 10), {"step": 5, "layouts": ("channels last",) * 2}),
    ):
        assert check(planner, problem_of(*arguments, **rest), which, few=True, fan=True).path == path
    assert (
        check(planner, problem_of(16, 1, (1, 512), 80000, 10, step=5), FORWARD, few=True, fan=True).path
        != FAN_GRADIENTS
    )


@pytest.mark.parametrize("kernels", list(MANY_GRADIENTS), ids=str)
@pytest.mark.parametrize("dtype", [dtype for dtype in ITEM if dtype != FLOAT64])
@pytest.mark.parametrize("sms", [108, 132, 148])
def test_calls_reach_the_kernels_they_name(planner, kernels, dtype, sms):
    """Which only a GPU runs: tests/test_conv1d_cuda.py does."""
    call = MANY_GRADIENTS[kernels]
    n, c, size = call.input_size
    problem = problem_of(n, 1, (c, call.out_channels), size, call.taps, dtype, call.stride, call.padding, call.dilation)
    for which, name in zip(GRADIENTS, kernels[:2] if ITEM[dtype] == 2 else kernels[2:]):
        plan = check(planner, problem, which, sms, few=True, fan=True)
        assert plan.path == FAN_GRADIENTS
        if which == BACKWARD_INPUT:
            assert f"{'matrices' if plan.matrices else 'lanes'} {plan.products}" == name
        else:
            shifted = ", shifted" if plan.matrices and plan.aligned == 1 else ""
            assert f"{plan.channels} x {plan.products}{shifted}" == name
