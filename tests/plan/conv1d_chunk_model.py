"""What kernels of chunks do with their plans, as conv1d_model.py."""

from __future__ import annotations

import math

import numpy as np

from .conv1d_places import (
    BARRIER,
    CHUNK_OUTPUTS,
    CHUNK_THREADS,
    GATHER_STEP,
    LANE,
    MMA_DILATION,
    PACK,
    SECTOR,
    SHARED,
    THREADS,
    WARP,
    check_contiguous,
    check_row_parts,
    once,
    some_rows,
)
from .conv1d_planner import PlanView, Problem


def check_chunks(problem: Problem, plan: PlanView) -> None:
    half, warps, rows = problem.item == 2, plan.threads // WARP, problem.batch * problem.groups * problem.to.channels
    check_contiguous(problem)
    if plan.polyphase:
        check_polyphase(problem, plan)
        return
    assert plan.direct or problem.to.size >= CHUNK_OUTPUTS // (2 if plan.strided else 1)
    assert plan.strided == (problem.step > 1)
    assert plan.threads == (THREADS if plan.direct and plan.warp_tiles == 1 else CHUNK_THREADS)
    assert plan.strided or plan.dilated == (problem.gap > 1)
    assert plan.lanes == rows * plan.row_lanes and plan.blocks == -(-plan.lanes // warps)
    item = problem.compute if plan.strided else problem.item  # of a tap
    assert plan.taps_pitch * item % PACK == 0
    if plan.strided:
        outputs = check_strided(problem, plan)
    elif plan.direct:
        outputs = check_direct(problem, plan)
    elif plan.few_taps:
        outputs = check_few_taps(problem, plan)
    elif half:
        outputs = check_matrices(problem, plan)
    else:
        outputs = check_tiles(problem, plan)
    rest = 32 if plan.direct and plan.warp_tiles == 2 else 0
    check_row_parts(problem, plan.row_lanes, plan.warp_tiles * outputs, SECTOR, rest)
    # Beside the input and the taps of each warp: the barrier of its copies, and of a warp of tiles_kernel the bias.
    static = warps * (BARRIER if half or plan.strided else BARRIER + problem.item)
    own_taps = 0 if plan.few_taps or plan.direct else plan.taps_pitch * item
    warp_bytes = problem.from_.channels * (plan.warp_packs * PACK + own_taps)
    assert warps * warp_bytes <= plan.shared_bytes <= SHARED - static


def check_few_taps(problem: Problem, plan: PlanView) -> int:
    """few_taps_kernel's chunk; the outputs of a tile."""
    assert problem.item == 2 and 1 <= plan.warp_tiles <= 4
    assert problem.from_.channels == 1 and problem.taps <= 10 and problem.gap == 1
    for ahead in range(8):
        # The last tap of the last of 8 outputs is in the first 16 places of a block, or in the 8 behind.
        assert problem.taps + ahead + 7 <= 24
    last = (plan.warp_tiles - 1) * 32
    near = last + 16 + (LANE % 16 + LANE // 16).max()
    far = last + (LANE + 2).max()
    assert max(near, far) + 1 == plan.warp_packs
    return 256


def check_direct(problem: Problem, plan: PlanView) -> int:
    """direct_kernel's tile, of which a warp has one or two."""
    assert problem.item == 2 and plan.warp_tiles in (1, 2) and plan.shared_bytes == 0
    assert problem.from_.channels == 1 and problem.taps <= 22 and problem.gap == 1
    quad = 4 * problem.item
    assert problem.from_.size % 4 == 0
    assert all(problem.from_.address(problem.item, n, c) % quad == 0 for n, c in some_rows(problem, problem.from_))
    # Lanes have 4 neighbours of 16 inputs each: of 16 places or of 32, the last tap of the last of 8 outputs in them.
    assert once((LANE[:, None] % 4 * 4 + np.arange(4))[:4], 16)
    rows = {problem.to.address(problem.item, n, c) // problem.item % 4 for n, c in some_rows(problem, problem.to)}
    aheads = {-problem.padding % 4} if rows == {0} else range(4)
    assert all(problem.taps + ahead + 7 <= 16 * plan.products for ahead in aheads) and plan.products <= 2
    assert plan.products == 1 or not all(problem.taps + ahead + 7 <= 16 for ahead in range(4))
    # Lanes without a tap, which stand for the places before the first.
    assert 32 - problem.taps >= 3 + 7
    return 256


def check_matrices(problem: Problem, plan: PlanView) -> int:
    """mma_kernel's chunk; the outputs of a tile."""
    assert 1 <= plan.warp_tiles <= 6 and problem.gap <= MMA_DILATION
    # Pair i of a lane's outputs is half a product of matrices behind the one before.
    i = np.arange(8)
    places = 2 * LANE[:, None] + i // 2 * 64 + i % 2
    assert once(places, 256)
    for ahead in range(8):
        # Taps are multiplied 16 places at a time: 16 values for each of 16 blocks of 8 outputs.
        last_step = (problem.span + ahead + 7) // 16 * 16
        tile, part = (plan.warp_tiles - 1) * 256, 128
        read = (tile + part + last_step) // 8 + (LANE % 16 + LANE // 16).max() + 1
        copied = plan.warp_tiles * 32 + last_step // 8 + 1
        assert read <= copied <= plan.warp_packs
        # A NaN is made again from the values under an output.
        assert tile + places.max() + ahead + problem.span < copied * 8
        # With 0 before and behind the taps, which begin at the 14th value.
        taps = 14 + 2 * (LANE % 4) - LANE // 4 - ahead
        assert taps.min() >= 0 and (taps + last_step + 9).max() < plan.taps_pitch
        assert 14 + problem.span < plan.taps_pitch
    return 256


def check_polyphase(problem: Problem, plan: PlanView) -> None:
    """polyphase_kernel's chunk: every output is a lane's once, and meets its taps' inputs in the phases."""
    gap = math.gcd(problem.step, problem.dilation)
    step, dilation, taps, channels = problem.step // gap, problem.dilation // gap, problem.taps, problem.from_.channels
    rows = problem.batch * problem.groups * problem.to.channels
    assert problem.item == 4 or (problem.item == 2 and step > 1 and plan.products == 1)
    assert plan.phases == max(step, dilation) <= WARP and min(step, dilation) == 1 and plan.products in (1, 2)
    assert plan.threads in (32, 64, 128)
    assert plan.lanes == rows * plan.row_lanes and plan.blocks == -(-plan.lanes // (plan.threads // WARP))
    # Places that a lane's next value is away from, for four at once, fit into 32 bits.
    assert 4 * WARP * plan.phases * gap < 2**31

    # Which outputs lanes make; those without a segment make none.
    segment, phase = np.arange(WARP * plan.products), 0
    if dilation > 1:
        segment, phase = segment // dilation, segment % dilation
    works = segment < plan.phase_segments
    first = np.minimum(segment, plan.phase_segments - 1)
    own = (segment * 8)[:, None] + np.arange(8)  # of a phase
    made = own * dilation + np.reshape(phase, (-1, 1))
    assert once(made[works], plan.warp_tiles)
    check_row_parts(problem, plan.row_lanes, plan.warp_tiles, SECTOR)

    # What is copied of a row of inputs, phase by phase, and of the taps.
    values = np.arange((plan.warp_tiles - 1) * step + (taps - 1) * dilation + 1)
    pitch, to_odd = plan.phase_pitch, plan.phases * plan.phase_pitch

    def place(phase, index):
        return (index // 4 % 2 * to_odd + phase * pitch + index // 8) * 4 + index % 4

    places = place(values % plan.phases, values // plan.phases)
    assert len(np.unique(places)) == len(values) and places.max() < 8 * to_odd
    assert (values // plan.phases).max() < 8 * pitch
    phases_of_taps = step
    assert plan.taps_pitch % 4 == 0 and -(-taps // phases_of_taps) <= plan.taps_pitch
    assert plan.warp_packs * 4 == 8 * to_odd + phases_of_taps * plan.taps_pitch

    # A lane reads three packs of each phase, one more for each pack of taps, and of these the inputs under its outputs.
    value_at = np.full(8 * to_odd, -1)
    value_at[places] = values
    for tap in {0, 1, taps // 2, taps - 1} & set(range(taps)):
        met = tap % step if step > 1 else phase
        index = first[:, None] * 8 + tap // step + np.arange(8)
        assert np.array_equal(
            value_at[place(np.reshape(met, (-1, 1)), index)][works], (made * step + tap * dilation)[works]
        )
    packs = 3 + plan.taps_pitch // 4
    assert plan.phase_segments * 2 - 2 + packs <= 2 * pitch
    assert plan.stages == channels or plan.stages == min(channels, 2)
    assert plan.threads // WARP * plan.stages * plan.warp_packs * PACK <= plan.shared_bytes <= SHARED


def check_strided(problem: Problem, plan: PlanView) -> int:
    """strided_kernel's chunk; the outputs of a tile."""
    values, step = PACK // problem.item, PACK // problem.compute
    assert 1 <= plan.warp_tiles <= 4
    assert once(LANE[:, None] + np.arange(4) * WARP, 128)
    last = (values - 1) + (plan.warp_tiles * 128 - 1) * problem.step + problem.span
    assert last < plan.warp_packs * values
    assert -(-problem.taps // step) * step <= plan.taps_pitch
    return 128


def check_tiles(problem: Problem, plan: PlanView) -> int:
    """tiles_kernel's chunk; the outputs of a tile."""
    values, step = PACK // problem.item, 3 * PACK // problem.item
    assert problem.to.channels == 1 and 1 <= plan.warp_tiles <= 3
    i = np.arange(2 * values)
    places = LANE[:, None] * values + i // values * (WARP * values) + i % values
    outputs = 2 * WARP * values
    assert once(places, outputs)
    if plan.dilated:
        read = (values - 1 + problem.span) // values + 2
        assert problem.taps <= plan.taps_pitch
    else:
        # A ring of three packs, of which one is read for each further pack of taps.
        turns = max(-(-problem.taps // step) - 1, 0)
        left = problem.taps - turns * step
        read = 3 + 3 * turns + (left > values) + (left > 2 * values)
        assert -(-problem.taps // values) * values <= plan.taps_pitch
    last = (plan.warp_tiles - 1) * (2 * WARP) + WARP + LANE.max()  # pack of the last lane
    assert last + read <= plan.warp_packs
    return outputs


def check_gathered_chunks(given: Problem, problem: Problem, plan: PlanView) -> None:
    """gather_chunks_kernel's chunk: `problem` goes from the gradient to the input, but `given` has the step and the padding."""
    item, values, warps = problem.item, PACK // problem.item, CHUNK_THREADS // WARP
    step, padding, dilation, taps, tile = given.step, given.padding, given.dilation, given.taps, WARP * values
    check_contiguous(given)
    assert problem.to.size >= CHUNK_OUTPUTS // 2 and 1 < step <= GATHER_STEP
    assert plan.strided and plan.threads == CHUNK_THREADS and 1 <= plan.warp_tiles <= 8
    assert plan.lanes == problem.batch * problem.groups * problem.to.channels * plan.row_lanes
    assert plan.blocks == -(-plan.lanes // warps)
    chunk = plan.warp_tiles * tile
    check_row_parts(problem, plan.row_lanes, chunk, SECTOR)
    assert plan.taps_pitch >= taps and plan.taps_pitch * problem.compute % PACK == 0
    warp_bytes = problem.from_.channels * (plan.warp_packs * PACK + plan.taps_pitch * problem.compute)
    assert warps * (warp_bytes + chunk * item) <= plan.shared_bytes <= SHARED - warps * BARRIER
    # Places, and so many steps before a row that none is negative, are counted with 31 bits.
    lead = -(-(abs(padding) + problem.span + SECTOR) // step)
    assert 0 <= -SECTOR // item + padding - problem.span + lead * step
    assert problem.to.size + chunk + padding + (lead + 1) * step < 2**31
    # Each place of a chunk that some tap meets is a lane's once, and its gradient has been copied.
    common = np.gcd(step, dilation)
    cycle, place_step = step // common, dilation // common
    first_taps, width = min(taps, cycle), plan.row_width
    rows = WARP // width
    assert 1 <= width <= min(first_taps, WARP)
    assert once(np.unique(LANE[LANE // width < rows]), rows * width)
    for begin in (-(SECTOR // item - 1), 0, chunk * (plan.row_lanes - 1)):
        met, first = [], -(-(begin + padding - problem.span) // step)
        for tap in range(first_taps):
            reach = begin + padding - tap * dilation
            under = -(-reach // step)
            places = np.arange(under * step - reach, chunk, step)
            met.append(places)
            if len(places):
                last = under - (taps - 1 - tap) // cycle * place_step  # of the last tap of the first place
                assert first <= last and values - 1 + under + len(places) - 1 - first < plan.warp_packs * values
        met = np.concatenate(met)
        assert len(np.unique(met)) == len(met) and (first_taps < step or len(met) == chunk)
