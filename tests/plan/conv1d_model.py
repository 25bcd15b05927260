"""What the kernels of convolutions do with their plans: their index arithmetic, repeated here, must meet every output once, and
shared memory must hold all that they read of it."""

from __future__ import annotations

import numpy as np

from .conv1d_chunk_model import check_chunks, check_gathered_chunks
from .conv1d_fan_model import check_fan_input, check_fan_weight
from .conv1d_places import (
    CHUNK_OUTPUTS,
    CHUNK_THREADS,
    FAN_CHANNELS,
    FAR,
    LANE,
    MOST_MODELLED,
    MOST_SHARED,
    PACK,
    PRODUCTS,
    SECTOR,
    SHARED,
    THREADS,
    WARP,
    check_contiguous,
    check_row_parts,
    check_segments,
    once,
)
from .conv1d_planner import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    CHUNKS,
    COLUMNS,
    FAN,
    FAN_GRADIENTS,
    FORWARD,
    GEMM,
    LIBRARY,
    ROWS,
    VALUES,
    PlanView,
    Problem,
)
from .conv1d_weight_model import check_weight


def check_rows(problem: Problem, plan: PlanView) -> None:
    item, values, step = problem.item, PACK // problem.item, 4 if problem.item == 8 else 8
    outputs = (
        (4 if item == 8 else 8)
        if plan.channels == 4
        else (16 if not plan.wide else 64 if plan.slides and item == 4 else 32) // item
    )
    check_contiguous(problem)
    assert problem.step == 1 or problem.to.size == 1
    assert plan.threads in (32, 64, 128) and plan.dilated == (problem.gap > 1)
    assert plan.slides == (not plan.dilated and problem.taps > step)  # else there is one step of taps
    assert plan.rows == problem.batch * problem.groups * plan.tiles and plan.lanes == plan.rows * plan.row_lanes
    assert plan.blocks == -(-plan.lanes // plan.threads)
    check_row_parts(problem, plan.row_lanes, outputs)
    for block in {0, 1, plan.blocks // 2, plan.blocks - 1}:
        check_segments(plan.threads, plan.row_lanes, plan.rows, plan.block_rows, block)

    # Channels of a lane are aligned alike, and each is a lane's.
    assert plan.channels in (1, 4) and plan.cycle in (1, 2, 4, 8) and (plan.channels == 4 or plan.cycle == 1)
    part, shift = np.arange(plan.tiles), plan.cycle.bit_length() - 1
    first = ((part >> shift) * plan.channels << shift) + (part & (plan.cycle - 1))
    met = first[:, None] + np.arange(plan.channels)[None, :] * plan.cycle
    assert once(met[met < problem.to.channels], problem.to.channels)
    if plan.channels == 4:
        assert plan.cycle * problem.to.channel_stride % values == 0 or problem.to.channels == 1
        assert plan.tiles * 4 <= 4 / 3 * problem.to.channels  # a quarter is missing at most

    # Shared memory holds the taps and the tiles of all input channels, and what lanes read behind them.
    assert plan.taps_pitch >= problem.taps and plan.taps_pitch % step == 0
    assert plan.taps_pitch * problem.compute % PACK == 0
    assert plan.halo_packs * values >= values - 1 + problem.span
    taps = plan.block_rows * plan.channels * problem.from_.channels * plan.taps_pitch * problem.compute
    tile = plan.threads * (outputs // values) + plan.block_rows * plan.halo_packs
    last = tile - plan.halo_packs - outputs // values  # the last lane's first pack
    if plan.dilated:
        read = (values - 1 + problem.span) // values + outputs // values + 1
    else:
        read = (outputs + plan.taps_pitch) // values + 1
    packs = (problem.from_.channels - 1) * tile + max(tile, last + read)
    assert taps % PACK == 0 and taps + packs * PACK <= plan.shared_bytes <= SHARED


def check_fan(problem: Problem, plan: PlanView) -> None:
    item, channels, stride = problem.item, problem.to.channels, problem.to.channel_stride
    check_contiguous(problem)
    assert problem.to.size >= CHUNK_OUTPUTS or problem.step > 1
    assert plan.threads == CHUNK_THREADS
    assert plan.blocks == problem.batch * problem.groups * plan.tiles * plan.cycle * plan.row_tiles
    # Channels of a block are aligned alike: to sectors of memory where enough of them are.
    sectors = SECTOR // item // np.gcd(SECTOR // item, stride)
    assert plan.aligned * item == (SECTOR if -(-channels // sectors) >= FAN_CHANNELS else PACK)
    assert plan.cycle * stride % plan.aligned == 0 and -(-channels // plan.cycle) >= FAN_CHANNELS
    met = np.arange(plan.cycle)[:, None] + np.arange(plan.tiles * plan.block_channels)[None, :] * plan.cycle
    assert once(met[met < channels], channels)
    if item == 2:
        outputs = check_fan_matrices(problem, plan)
    else:
        outputs = check_fan_lanes(problem, plan)
    check_row_parts(problem, plan.row_tiles, outputs, plan.aligned * item)
    # Places of the input, which may lie behind it, are counted with 32 bits.
    first = (plan.row_tiles - 1) * outputs * problem.step - problem.padding
    assert first + plan.warp_packs * (PACK // item) < 2**31


def check_fan_matrices(problem: Problem, plan: PlanView) -> int:
    """fan_mma_kernel's block; its outputs of a row."""
    steps, parts, turns = plan.products, 2, plan.warp_tiles
    assert steps in (1, 2) and problem.from_.channels * problem.taps <= 16 * steps
    # In each part a warp's lanes have columns of 32 inputs, which come out as the 8 neighbouring outputs of each of 4 lanes.
    t, part = np.arange(4)[:, None], np.arange(parts)
    columns = (LANE // 8 * 8 + LANE // 4 % 2)[LANE % 4 == 0]
    assert once(columns + 2 * t, 32)
    warps = np.arange(turns * CHUNK_THREADS // WARP) * (32 * parts)  # of all turns, one after another
    outputs = turns * CHUNK_THREADS * parts
    places = warps[:, None, None, None] + part[:, None, None] * 32 + 8 * t + np.arange(8)
    assert once(places, outputs)
    # Output channels are taken by 16: lanes have two each.
    assert once(8 * np.arange(2)[:, None] + np.arange(WARP // 4), 16) and plan.block_channels % 16 == 0
    # Rows of taps are a pack longer than the products; behind them the biases and the input.
    row = 2 * steps + 1
    assert (LANE // 16).max() + 2 * (steps - 1) < row
    assert 7 + (outputs - 1) * problem.step + problem.span < plan.warp_packs * 8
    packs = plan.block_channels * row + plan.block_channels // 4 + problem.from_.channels * plan.warp_packs
    assert packs * PACK <= plan.shared_bytes <= SHARED
    return outputs


def check_fan_lanes(problem: Problem, plan: PlanView) -> int:
    """fan_kernel's block; its outputs of a row."""
    item, values = problem.item, PACK // problem.item
    products = problem.from_.channels * problem.taps
    assert plan.products == min(count for count in PRODUCTS if count >= products)
    places = np.arange(CHUNK_THREADS)[:, None] * values + np.arange(values)
    outputs = CHUNK_THREADS * values
    assert once(places, outputs)
    # A channel's taps with the bias behind them, in whole packs; then the input.
    pitch = -(-(plan.products + 1) // values) * values
    assert values - 1 + places.max() * problem.step + problem.span < plan.warp_packs * values
    taps = plan.block_channels * pitch * item
    assert taps + problem.from_.channels * plan.warp_packs * PACK <= plan.shared_bytes <= SHARED
    return outputs


def check_columns(problem: Problem, plan: PlanView) -> None:
    values = PACK // problem.item
    for signal in (problem.from_, problem.to):
        assert signal.channels == 1 and signal.channel_stride == 1 and signal.data % PACK == 0
        assert signal.stride % values == 0 and (problem.batch == 1 or signal.batch_stride % values == 0)
    assert problem.groups % values == 0
    assert (plan.tiles - 1) * 8 * values < problem.groups <= plan.tiles * 8 * values
    assert (plan.row_tiles - 1) * 128 < problem.to.size <= plan.row_tiles * 128
    assert plan.blocks == problem.batch * plan.tiles * plan.row_tiles
    assert problem.taps * 8 * values * problem.compute <= plan.shared_bytes <= SHARED


def check_few_values(problem: Problem, plan: PlanView, sms: int) -> None:
    outputs = problem.batch * problem.groups * problem.to.channels * problem.to.size
    products = problem.from_.channels * problem.taps
    assert outputs <= 2048 * sms and outputs * products <= (128 << 10) * sms
    # 32 bits hold how far signals and weights reach, and the places of taps beside the ends of rows.
    reach = problem.from_.size + abs(problem.padding) + problem.taps * problem.dilation
    for signal, places in ((problem.from_, reach), (problem.to, problem.to.size)):
        far = problem.batch * signal.batch_stride + problem.groups * signal.channels * signal.channel_stride
        assert far + places * signal.stride < 3 * FAR
    for count, stride in (
        (problem.groups, problem.group_stride),
        (problem.to.channels, problem.out_stride),
        (problem.from_.channels, problem.in_stride),
        (problem.taps, problem.tap_stride),
    ):
        assert count * abs(stride) < FAR
    # A power of two of lanes has the products of an output, each so many that a kernel has registers for.
    parts = WARP // plan.row_width
    assert parts in (1, 2, 4, 8, 16, 32) and parts * plan.row_width == WARP
    assert plan.products == -(-products // parts) <= 24 and (parts == 1 or products > parts // 2 * 24)
    begin = np.arange(parts) * plan.products
    own = np.clip(products - begin, 0, plan.products)
    assert once(np.concatenate([b + np.arange(n) for b, n in zip(begin, own)]), products)
    assert plan.lanes == -(-outputs // plan.row_width) * WARP
    assert plan.threads == (THREADS if plan.lanes > 8 * CHUNK_THREADS * sms else CHUNK_THREADS)
    assert plan.blocks == -(-plan.lanes // plan.threads) and plan.shared_bytes == 0
    assert plan.channels_first == (problem.to.channel_stride == 1 and problem.to.stride != 1)


def check_values(problem: Problem, plan: PlanView, sms: int, gathers: bool) -> None:
    if plan.few_values:
        assert not gathers
        check_few_values(problem, plan, sms)
        return
    assert plan.channels == (4 if problem.to.channels >= 4 and problem.item < 8 else 1)
    assert (plan.tiles - 1) * plan.channels < problem.to.channels <= plan.tiles * plan.channels
    # A lane has four places: neighbours, or as far apart as there are lanes side by side in a row. Of few that are gathered it has one.
    width, size, own = plan.row_width, problem.to.size, plan.places
    few = problem.batch * problem.groups * plan.tiles * size <= 2048 * sms
    assert own == (1 if gathers and few and plan.channels == 1 and not plan.channels_first else 4)
    assert width in (1, 2, 4, 8, 16, 32) and THREADS % width == 0
    if plan.channels_first:
        assert width == 1
    else:
        assert width == 32 or width * own >= size  # side by side as far as there are places
        assert width == 1 or width // 2 * own < size  # and no farther
    assert (plan.row_tiles - 1) * width * own < size <= plan.row_tiles * width * own
    if plan.row_tiles * width * own <= MOST_MODELLED:
        index = np.arange(plan.row_tiles * width)
        place = index // width * (width * own) + index % THREADS % width
        met = place[:, None] + np.arange(own) * width
        assert once(met[met < size], size)
    assert plan.lanes == problem.batch * problem.groups * plan.tiles * plan.row_tiles * width
    assert plan.blocks == -(-plan.lanes // THREADS) and plan.shared_bytes == 0


def check_gemm(problem: Problem, plan: PlanView, sms: int) -> None:
    check_contiguous(problem)
    ins, products, places = problem.from_.channels, problem.from_.channels * problem.taps, plan.places
    assert problem.item == 2 and ins <= 16 and places in (64, 128, 256)
    # A warp for each 32 of them, and more only where there are few blocks.
    assert plan.threads == places or (
        places < plan.threads <= THREADS and plan.blocks * plan.threads < 2 * sms * THREADS
    )
    # A block's channels, by 16, and its places of a row.
    assert plan.products in (1, 2, 3, 4)
    channels = 16 * plan.products
    assert (plan.tiles - 1) * channels < problem.to.channels <= plan.tiles * channels
    assert (plan.row_tiles - 1) * places < problem.to.size <= plan.row_tiles * places
    # Shared memory holds whole steps of taps, with a pack behind each row, and inputs with a table or outputs; table entries are 16 bits.
    assert plan.taps_pitch % 16 == 0 and products <= plan.taps_pitch < products + 16
    assert 7 + (places - 1) * problem.step + problem.span < plan.warp_packs * 8
    assert 7 + places <= plan.made_packs * 8
    assert ins * plan.warp_packs * 8 <= 2**16
    inputs = ins * plan.warp_packs * PACK + 2 * plan.taps_pitch
    made = channels * plan.made_packs * PACK
    assert channels * (2 * plan.taps_pitch + PACK) + max(inputs, made) <= plan.shared_bytes <= MOST_SHARED
    # Blocks of a group and some of its channels share tiles, and all run at once where there are tiles enough.
    assert plan.lanes == problem.batch * plan.row_tiles < FAR and 1 <= plan.rows <= plan.lanes
    assert plan.blocks == problem.groups * plan.tiles * plan.rows
    assert plan.rows == 1 or plan.blocks <= sms * 4 * (THREADS // places)
    last = (plan.row_tiles - 1) * places * problem.step - problem.padding
    assert last + plan.warp_packs * 8 < 2**31


def check(
    planner,
    problem: Problem,
    which: int,
    sms: int = 132,
    few: bool = False,
    fan: bool = False,
    gemm: bool = False,
) -> PlanView:
    plan = problem.plan(planner, which, sms, few=few, fan=fan, gemm=gemm)
    assert (plan.path == LIBRARY) == (problem.from_.channels > 8 and plan.path != GEMM and not plan.few_values)
    assert plan.path != LIBRARY or not problem.serves(planner, which, sms, few, fan, gemm)
    if plan.path == LIBRARY:
        return plan
    assert problem.from_.channels <= 8 or (gemm and problem.item == 2)
    if plan.path == FAN_GRADIENTS:
        assert fan and which != FORWARD and problem.serves(planner, which, sms, few, fan, gemm)
        (check_fan_input if which == BACKWARD_INPUT else check_fan_weight)(problem, plan, sms)
        return plan
    assert plan.threads % WARP == 0 and WARP <= plan.threads <= THREADS and plan.blocks >= 1
    if which == BACKWARD_WEIGHT:
        check_weight(problem, plan, sms)
        return plan
    gathers = which == BACKWARD_INPUT and problem.step > 1 and problem.to.size > 1
    given = problem
    if which == BACKWARD_INPUT:
        problem = problem.transposed(planner)
    if plan.path == GEMM:
        assert gemm and not gathers and given.serves(planner, which, sms, few, fan, gemm)
        check_gemm(problem, plan, sms)
        return plan
    if gathers and plan.path == CHUNKS:
        check_gathered_chunks(given, problem, plan)
        return plan
    assert not gathers or plan.path == VALUES
    checks = {CHUNKS: check_chunks, ROWS: check_rows, FAN: check_fan, COLUMNS: check_columns, VALUES: check_values}
    checks[plan.path](problem, plan, *([sms, gathers] if plan.path == VALUES else []))
    return plan
