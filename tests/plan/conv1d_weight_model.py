"""What kernels of weight gradients do with their plans, as conv1d_model.py."""

from __future__ import annotations

from .conv1d_places import (
    CHUNK_OUTPUTS,
    CHUNK_THREADS,
    FAR,
    LANE,
    MMA_DILATION,
    MOST_SHARED,
    PACK,
    SUMS,
    THREADS,
    WARP,
    WEIGHT_BLOCKS,
    WEIGHT_BYTES,
    WEIGHT_UNITS,
    check_contiguous,
    check_row_parts,
    check_segments,
)
from .conv1d_planner import (
    CHUNKS,
    COLUMNS,
    ROWS,
    PlanView,
    Problem,
)


def check_weight(problem: Problem, plan: PlanView, sms: int) -> None:
    out_channels = problem.groups * problem.to.channels
    pairs = out_channels * problem.from_.channels
    assert plan.tap_parts == -(-problem.taps // plan.taps)
    most = sms * WEIGHT_BLOCKS  # blocks of a launch that is split
    sums = plan.threads  # of a block
    if plan.path == COLUMNS and plan.packed:
        sums, most = check_weight_packs(problem, plan), sms * (3 if problem.item == 2 and plan.taps == 8 else 4)
        blocks = plan.tiles * plan.tap_parts
        units = -(-problem.batch * plan.row_tiles // (plan.threads // plan.row_width))
    elif plan.path == CHUNKS:
        check_weight_chunks(problem, plan)
        warps = plan.threads // WARP
        most = sms * (16 if problem.item == 8 else 24) // warps
        blocks, units = pairs * plan.tap_parts, -(-plan.lanes // warps)
    else:
        assert plan.threads == THREADS
        if plan.path == ROWS:
            blocks, units = pairs * plan.tap_parts, check_weight_rows(problem, plan)
        elif plan.path == COLUMNS:
            assert plan.taps == 8 and plan.tiles == -(-out_channels // 32) and plan.shared_bytes == 0
            blocks, units = (
                plan.tiles * problem.from_.channels * plan.tap_parts,
                -(-problem.batch * problem.to.size // 8),
            )
        else:
            assert plan.taps == (1 if problem.taps == 1 else 4 if problem.taps <= 4 else 8) and plan.shared_bytes == 0
            assert plan.channels == (4 if problem.to.channels >= 4 and problem.item < 8 else 1)
            assert (plan.tiles - 1) * plan.channels < problem.to.channels <= plan.tiles * plan.channels
            blocks = problem.groups * plan.tiles * problem.from_.channels * plan.tap_parts
            units = -(-problem.batch * problem.to.size // THREADS)
        units //= WEIGHT_UNITS
    # Every split has something to do, the device can hold them, and each thread has one partial sum at most (of packs: 16).
    assert plan.blocks == blocks * plan.splits and 1 <= plan.splits <= max(units, 1)
    if plan.splits > 1:
        assert plan.blocks <= most
        assert pairs * problem.taps * plan.splits <= plan.blocks * sums <= plan.blocks * plan.threads * 16


def check_weight_packs(problem: Problem, plan: PlanView) -> int:
    """Returns the sums of a block."""
    values = PACK // problem.item
    packs = problem.groups // values
    assert problem.groups % values == 0 and problem.from_.channels == problem.to.channels == 1
    for signal in (problem.from_, problem.to):
        assert signal.channel_stride == 1 and signal.data % PACK == 0
        assert signal.stride % values == 0 and (problem.batch == 1 or signal.batch_stride % values == 0)
    assert (problem.step == 1 or problem.to.size == 1) and problem.gap == 1
    assert plan.threads == CHUNK_THREADS and plan.taps in (4, 8) and plan.shared_bytes == 0
    assert plan.row_width in (1, 2, 4, 8, 16, 32) and (plan.row_width == 32 or plan.row_width >= packs)
    assert (plan.tiles - 1) * plan.row_width < packs <= plan.tiles * plan.row_width
    assert (plan.row_tiles - 1) * 128 < problem.to.size <= plan.row_tiles * 128
    assert problem.batch * plan.row_tiles < FAR
    return plan.row_width * values * plan.taps


def check_weight_chunks(problem: Problem, plan: PlanView) -> None:
    item, values, half = problem.item, PACK // problem.item, problem.item == 2
    warps, tile = plan.threads // WARP, 128 if half else 2 * WARP * values
    check_contiguous(problem)
    assert problem.to.size >= CHUNK_OUTPUTS and problem.step == 1
    assert 4 <= warps <= 8 and plan.threads % WARP == 0 and plan.taps <= problem.taps
    assert plan.warp_tiles >= 1 and plan.warp_tiles * tile * item <= WEIGHT_BYTES
    assert plan.lanes == problem.batch * plan.row_lanes < FAR
    check_row_parts(problem, plan.row_lanes, plan.warp_tiles * tile)
    last_tile = (plan.warp_tiles - 1) * tile // values
    reach = (plan.taps - 1) * problem.gap  # of a block's taps
    if half:
        # The input is multiplied from each of 16 places on for a matrix; a lane adds up every 32nd of the diagonals.
        assert plan.products in (2, 4, 8) and problem.gap <= MMA_DILATION
        for ahead in range(8):
            used = (reach + ahead + 7) // 16 + 1
            assert used <= plan.products and reach + ahead + 7 < 16 * used
            read = last_tile + (LANE % 8 + LANE // 8 % 2 + LANE // 16 * 8).max() + 2 * (used - 1) + 1
            assert read <= plan.warp_packs
        assert plan.taps <= WARP * ((plan.products + 1) // 2)
        scratch = 16 * plan.products * 8 * 4
    else:
        # Lanes read a ring of three packs for each of their two of the gradient, a pack for each further pack of taps.
        assert plan.products in ((4, 8, 16) if item == 8 else (4, 8, 16, 32))
        assert problem.gap == 1 and plan.taps <= plan.products
        assert last_tile + WARP + LANE.max() + (plan.taps - 1) // values + 3 <= plan.warp_packs
        scratch = plan.products * item
    # A warp has two stages of the gradient and of the input.
    stage = plan.warp_tiles * tile // values + plan.warp_packs
    assert warps * (2 * stage * PACK + scratch) <= plan.shared_bytes <= MOST_SHARED - SUMS


def check_weight_rows(problem: Problem, plan: PlanView) -> int:
    """How many tiles there are."""
    item, values = problem.item, PACK // problem.item
    outputs = 32 // item
    assert problem.step == 1 or problem.to.size == 1
    assert plan.dilated == (problem.gap > 1)
    assert plan.taps in ((8,) if plan.dilated else (4, 8, 16) if item == 8 else (4, 8, 16, 32))
    assert problem.batch * plan.row_lanes < FAR and problem.batch * problem.to.size < FAR
    check_row_parts(problem, plan.row_lanes, outputs)
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
    return tiles
