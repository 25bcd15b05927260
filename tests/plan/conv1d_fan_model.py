"""What must hold for plans of gradients that go through many output channels, as conv1d_model.py."""

from __future__ import annotations

from .conv1d_places import FAR, THREADS, WARP, check_contiguous, some_rows
from .conv1d_planner import PlanView, Problem

WARPS = 8  # of a block of input gradients
MOST_STEP = 64
QUAD = 4  # values that a lane loads of half types
MOST_SHARED = 112 << 10  # two blocks of a multiprocessor
STATIC = 2 * 4 * MOST_STEP


def _check_alike(problem: Problem, channels: int) -> None:
    """Rows so many channels apart are aligned alike, for whoever loads quads."""
    quad = QUAD * problem.item
    for image, channel in some_rows(problem):
        if channel + channels < problem.groups * problem.to.channels:
            near, far = (problem.to.address(problem.item, image, c) for c in (channel, channel + channels))
            assert near % quad == far % quad


def check_fan_input(problem: Problem, plan: PlanView, sms: int) -> None:
    check_contiguous(problem)
    ins, taps, step = problem.from_.channels, problem.taps, problem.step
    assert problem.item < 8 and step <= MOST_STEP and plan.threads == WARP * WARPS
    assert not plan.matrices or problem.item == 2
    assert plan.products in ((16, 32, 64) if plan.matrices else (4, 8, 12, 16, 32))
    assert (plan.tap_parts - 1) * plan.channels < ins <= plan.tap_parts * plan.channels
    assert plan.channels * taps <= plan.products
    assert plan.splits in (1, 2, 4, 8)
    if plan.matrices:
        _check_alike(problem, plan.splits)
    # All taps of a block's places of the input lie on its places of the gradient, wherever its rows begin in a quad.
    places = (32 if plan.products == 64 else 64) if plan.matrices else 64
    row, ahead = WARPS // plan.splits * places, QUAD - 1 if plan.matrices else 0
    assert (plan.row_tiles - 1) * plan.warp_tiles < problem.from_.size <= plan.row_tiles * plan.warp_tiles
    for tile in {0, 1, plan.row_tiles // 2, plan.row_tiles - 1}:
        begin = tile * plan.warp_tiles + problem.padding
        first = -(-(begin - problem.span) // step)
        last = (begin + plan.warp_tiles - 1) // step
        assert last - first + ahead < row
    assert 2 * plan.warp_tiles >= row * step  # little is made twice
    # Blocks of a group and a part share tiles.
    assert plan.lanes == problem.batch * plan.row_tiles < FAR and 1 <= plan.rows <= plan.lanes
    assert plan.blocks == problem.groups * plan.tap_parts * plan.rows
    assert plan.rows == 1 or plan.blocks <= sms * 3
    made = plan.splits * plan.products * (row + 4) * 4
    tap_bytes = plan.splits * plan.products * plan.block_channels * (2 if plan.matrices else 4)
    assert plan.block_channels >= 1 and (not plan.matrices or plan.block_channels % 16 == 0)
    assert made % 16 == tap_bytes % 16 == 0
    assert made + tap_bytes <= plan.shared_bytes <= MOST_SHARED - STATIC


def check_fan_weight(problem: Problem, plan: PlanView, sms: int) -> None:
    check_contiguous(problem)
    products = problem.from_.channels * problem.taps
    assert problem.item < 8 and plan.matrices == (problem.item == 2) and plan.shared_bytes == 0
    assert (plan.tap_parts - 1) * plan.products < products <= plan.tap_parts * plan.products
    in_class = -(-problem.to.channels // plan.cycle)
    assert (plan.tiles - 1) * plan.channels < in_class <= plan.tiles * plan.channels
    if plan.matrices:
        assert plan.products in (8, 16, 32) and plan.channels in (16, 64) and plan.threads == THREADS
        assert plan.aligned in (1, QUAD) and (plan.aligned == QUAD or plan.cycle == 1)
        if plan.aligned == QUAD:
            _check_alike(problem, plan.cycle)
        ahead = 0
        if plan.aligned == QUAD:
            rows = some_rows(problem)
            ahead = max(problem.to.address(problem.item, *at) % (QUAD * problem.item) // problem.item for at in rows)
        assert plan.row_lanes * QUAD - ahead >= problem.to.size
    else:
        assert (plan.channels, plan.products) in ((16, 4), (8, 8), (8, 12)) and plan.threads == 128
        assert plan.cycle == 1 and plan.row_lanes == problem.to.size
    assert plan.lanes == problem.batch * plan.row_lanes < FAR
    # 32 bits hold where a value lies in its group, and how far a place is beyond a row.
    reach = problem.to.size * problem.step + problem.span + abs(problem.padding)
    assert problem.from_.channels * abs(problem.from_.channel_stride) + reach < 2**31
    assert (problem.to.size + QUAD) * problem.step < 2**30 and reach - FAR < 2**31
    blocks = problem.groups * plan.cycle * plan.tiles * plan.tap_parts
    assert plan.blocks == blocks * plan.splits and 1 <= plan.splits <= max(plan.lanes, 1)
    if plan.splits > 1:
        assert plan.blocks <= sms * (2 if plan.matrices else 3)
        sums = problem.groups * problem.to.channels * products * plan.splits
        assert sums <= plan.blocks * plan.threads * 16
