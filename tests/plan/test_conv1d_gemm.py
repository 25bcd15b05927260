"""Plans of products of matrices that gather one of their factors: what gemm_kernel relies on, and where it is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ..conv1d_calls import MANY_PRODUCTS
from ..seeded import seeded
from .conv1d_model import check
from .conv1d_planner import (
    BACKWARD_INPUT,
    BFLOAT16,
    CHUNKS,
    FAN,
    FAN_GRADIENTS,
    FLOAT16,
    FLOAT32,
    FORWARD,
    GEMM,
    LIBRARY,
    ROWS,
    VALUES,
    problem_of,
)

HALF = {"dtype": FLOAT16}


@pytest.fixture(scope="module")
def planner():
    return load("plan/conv1d")


@st.composite
def problems(draw):
    """Of several channels a group."""
    channels = tuple(draw(st.sampled_from([1, 2, 3, 5, 8, 9, 16, 17, *more])) for more in ([12], [40, 300]))
    taps = draw(st.sampled_from([1, 2, 3, 5, 7, 11, 16, 25, 41, 64, 65, 200, 1000]))
    dilation = draw(st.sampled_from([1, 1, 1, 2, 3, 16, 100]))
    step = draw(st.sampled_from([1, 1, 2, 3, 4, 8, 63, 1000]))
    reach = (taps - 1) * dilation
    size = draw(st.sampled_from([1, 2, 17, 64, 100, 257, 1000, 4099, 65537, 2**20 + 3, 2**27, 2**30]))
    groups = draw(st.sampled_from([1, 1, 2, 16, 300]))
    batches = [n for n in (1, 1, 3, 8, 100, 65537) if n * groups * max(channels) * size < 2**46] or [1]
    padding = draw(st.sampled_from([0, reach // 2, reach, reach + 3]))
    layout = draw(st.sampled_from(["rows", "rows", "rows", "whole rows", "channels last"]))
    return problem_of(
        draw(st.sampled_from(batches)), groups, channels, size, taps, draw(st.sampled_from([FLOAT16, BFLOAT16])), step, padding,
        dilation, ("rows", layout), draw(st.sampled_from([(0, 0), (0, 0), (1, 3)])),
    )  # fmt: skip


def test_what_the_kernel_relies_on(planner):
    taken = set()

    @seeded(1500)
    @given(
        problem=problems(),
        which=st.sampled_from([FORWARD, BACKWARD_INPUT]),
        sms=st.sampled_from([1, 16, 132]),
        few=st.booleans(),
    )
    def check_one(problem, which, sms, few):
        plan = check(planner, problem, which, sms, few, gemm=True)
        if plan.path == GEMM:
            taken.update({(which, "rows", plan.products), ("warps", plan.places // 32, plan.threads // 32)})
            taken.update({(which, "parts", plan.tiles > 1), ("turns", plan.rows < plan.lanes)})

    check_one()
    assert {(FORWARD, "rows", rows) for rows in (1, 2, 3, 4)} | {(BACKWARD_INPUT, "rows", 1)} <= taken
    assert {("warps", own, all_) for own, all_ in ((2, 2), (2, 4), (2, 8), (4, 4), (4, 8), (8, 8))} <= taken
    assert {(FORWARD, "parts", parts) for parts in (False, True)} <= taken
    assert {("turns", turns) for turns in (False, True)} <= taken


@pytest.mark.parametrize("shared", [64 << 10, 99 << 10, 227 << 10])
def test_no_more_shared_memory_than_the_device_has(planner, shared):
    for taps in (5, 41, 64):
        for channels in ((2, 16), (8, 64), (16, 200)):
            problem = problem_of(8, 4, channels, 30000, taps, step=4, **HALF)
            plan = problem.plan(planner, FORWARD, shared=shared, gemm=True)
            assert plan.path in (GEMM, VALUES, LIBRARY) and plan.shared_bytes <= min(shared, 100 << 10)


@pytest.mark.parametrize(
    "which, taken, other",
    [
        # (batch, groups, channels, size, taps) and the rest, and what is not taken. Where there was none: several channels with a step,
        (FORWARD, ((16, 4, (4, 16), 8192, 41), {"step": 4, "padding": 20}), (((16, 4, (4, 16), 8192, 41), {"step": 4, "dtype": FLOAT32}), LIBRARY)),
        (FORWARD, ((16, 4, (16, 16), 8192, 41), {"step": 4}), (((16, 4, (17, 16), 8192, 41), {"step": 4}), LIBRARY)),
        (FORWARD, ((4, 4, (2, 3), 30000, 20), {"step": 4}), (((4, 4, (2, 2), 100000, 24), {"step": 2}), CHUNKS)),
        (FORWARD, ((4, 4, (3, 2), 30000, 24), {"step": 2}), (((4, 4, (1, 2), 30000, 24), {"step": 2}), CHUNKS)),
        (FORWARD, ((1, 3863, (1, 3), 130, 49), {"step": 4, "padding": 48}), (((1, 3863, (1, 2), 130, 49), {"step": 4, "padding": 48}), LIBRARY)),
        # as many places between dilated taps, taps beyond a multiprocessor's shared memory,
        (FORWARD, ((1, 5, (5, 27), 30000, 16), {"dilation": 16}), (((1, 5, (5, 27), 30000, 16), {"dilation": 1000}), LIBRARY)),
        # short rows.
        (FORWARD, ((64, 4, (4, 16), 200, 15), {}), (((64, 4, (1, 16), 201, 15), {}), ROWS)),
        # Before the fan: from 33 products on, of up to 1.5 million outputs, where a tile of 16 has few channels that are aligned alike; from 10 on.
        (FORWARD, ((16, 1, (3, 64), 80000, 11), {"step": 2}), (((16, 1, (2, 64), 80014, 16), {"step": 2}), FAN)),
        (FORWARD, ((4, 1, (2, 64), 12014, 16), {"step": 2}), (((4, 1, (2, 64), 12414, 16), {"step": 2}), FAN)),
        (FORWARD, ((16, 1, (2, 64), 80012, 16), {"step": 2}), (((16, 1, (2, 256), 80012, 16), {"step": 2}), FAN)),
        (FORWARD, ((5, 1, (2, 100), 11257, 10), {"dilation": 2}), (((5, 1, (2, 100), 11266, 10), {"dilation": 2}), FAN)),
        (FORWARD, ((4, 1, (2, 64), 2000, 5), {}), (((4, 1, (1, 64), 2000, 9), {}), FAN)),
        # Before chunks of step 1, by what both would take.
        (FORWARD, ((4, 16, (8, 16), 4000, 31), {}), (((4, 16, (4, 16), 4000, 31), {}), CHUNKS)),
        (FORWARD, ((4, 4, (8, 64), 40000, 15), {}), (((4, 4, (2, 16), 40000, 31), {}), CHUNKS)),
        (FORWARD, ((4, 4, (8, 8), 20000, 31), {"dilation": 4}), (((4, 4, (8, 8), 20000, 31), {}), CHUNKS)),
        # Not where few values are faster: up to 14 x 1024 products a multiprocessor.
        (FORWARD, ((1, 1, (6, 32), 2204, 20), {"step": 3}), (((1, 1, (6, 32), 1204, 20), {"step": 3}), VALUES)),
        # Gradients of step 1 that those of many channels don't take.
        (BACKWARD_INPUT, ((4, 4, (30, 16), 8192, 25), {}), (((4, 4, (8, 16), 8192, 25), {}), FAN_GRADIENTS)),
        (BACKWARD_INPUT, ((4, 4, (12, 16), 8192, 25), {}), (((4, 4, (12, 17), 8192, 25), {}), LIBRARY)),
        (BACKWARD_INPUT, ((4, 4, (12, 16), 8192, 25), {}), (((4, 4, (12, 16), 8192, 25), {"step": 2}), LIBRARY)),
    ],
)  # fmt: skip
def test_where_it_is_taken(planner, which, taken, other):
    arguments, rest = taken
    problem = problem_of(*arguments, **(HALF | rest))
    assert check(planner, problem, which, few=True, fan=True, gemm=True).path == GEMM
    (arguments, rest), path = other
    problem = problem_of(*arguments, **(HALF | rest))
    plan = check(planner, problem, which, few=True, fan=True, gemm=True)
    assert plan.path == path or (path == LIBRARY and not problem.serves(planner, which, few=True, fan=True, gemm=True))


@pytest.mark.parametrize("rows", list(MANY_PRODUCTS))
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("sms", [108, 132, 148])
def test_calls_reach_the_kernels_they_name(planner, rows, dtype, sms):
    """Which only a GPU runs: tests/test_conv1d_cuda.py does."""
    call = MANY_PRODUCTS[rows]
    n, c, size = call.input_size
    channels = (c // call.groups, call.out_channels // call.groups)
    problem = problem_of(n, call.groups, channels, size, call.taps, dtype, call.stride, call.padding, call.dilation)
    plan = check(planner, problem, FORWARD, sms, few=True, fan=True, gemm=True)
    assert (plan.path, plan.products) == (GEMM, rows)
