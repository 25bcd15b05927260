"""What the kernels of convolutions do with their plans: their index arithmetic, repeated here, must meet every output once, and
shared memory must hold all that they read of it."""

from __future__ import annotations

import math

import numpy as np

from .conv1d_planner import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    CHUNKS,
    COLUMNS,
    FAN,
    LIBRARY,
    ROWS,
    VALUES,
    PlanView,
    Problem,
)

FAR = 2**29
THREADS, CHUNK_THREADS, WARP, PACK, SECTOR = 256, 128, 32, 16, 32
SHARED, MOST_SHARED, SUMS = 48 << 10, 100 << 10, 4 << 10
WEIGHT_BLOCKS, WEIGHT_UNITS, WEIGHT_BYTES = 6, 4, 2 << 10
CHUNK_OUTPUTS, MMA_DILATION, FAN_CHANNELS, GATHER_STEP = 256, 16, 8, 256
PRODUCTS = (3, 4, 5, 6, 7, 8, 10, 12, 16)
BARRIER = 8  # bytes, of a warp's copies
MOST_MODELLED = 100_000
LANE = np.arange(WARP)


def once(places: np.ndarray, count: int) -> bool:
    """Whether the places are 0 ... count - 1, each once."""
    return places.size == count and np.array_equal(np.sort(places, axis=None), np.arange(count))


def some_rows(problem: Problem, signal=None) -> set:
    """Images and channels of the output, or of another signal."""
    channels = problem.groups * (signal or problem.to).channels
    images = {n for n in (0, 1, problem.batch // 2, problem.batch - 1) if n < problem.batch}
    return {(n, c) for n in images for c in (0, 1, 2, 3, channels // 2, channels - 1) if c < channels}


def check_contiguous(problem: Problem) -> None:
    """Rows whose places kernels count with 32 bits."""
    assert problem.from_.stride == 1 or problem.from_.size == 1
    assert problem.to.stride == 1 or problem.to.size == 1
    assert problem.from_.size < 2**30 and problem.to.size < 2**30 and abs(problem.padding) < FAR


def check_segments(threads: int, row_lanes: int, rows: int, block_rows: int, block: int) -> None:
    """Of how many rows the lanes of a block are, and that a lane has a row and a place of it."""
    lanes = block * threads + np.arange(threads)
    row, lane = lanes // row_lanes, lanes % row_lanes
    block_row = row - lanes[0] // row_lanes
    valid = row < rows
    assert block_row[valid].max(initial=0) < block_rows
    first = np.where(block_row == 0, lanes[0] % row_lanes, 0)
    own = np.minimum(row_lanes, lane + threads - np.arange(threads)) - first
    # The lanes of a segment copy it together: as many as there are.
    counts = np.bincount(block_row)
    assert np.array_equal(counts[block_row], own) and (lane - first < own).all() and (lane >= first).all()


def check_row_parts(problem: Problem, parts: int, outputs: int, aligned: int = PACK, rest: int = 0) -> None:
    """Lanes, warps or blocks that begin at places aligned to so many bytes meet all places of a row, wherever it begins; the last
    one takes up to `rest` more than the others."""
    values = aligned // problem.item
    assert outputs % values == 0
    for image, channel in some_rows(problem):
        misaligned = problem.to.address(problem.item, image, channel) % aligned // problem.item
        assert parts * outputs + rest - misaligned >= problem.to.size
        assert (parts - 2) * outputs < problem.to.size  # none is idle in all rows
        if parts * outputs <= MOST_MODELLED:
            met = np.arange(parts * outputs + rest) - misaligned
            assert once(met[(met >= 0) & (met < problem.to.size)], problem.to.size)


# ---------------------------------------------------------------- forward and input gradients


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
    steps, parts, turns = plan.products, 1 if plan.products > 2 else 2, plan.warp_tiles
    assert steps in (1, 2, 4) and problem.from_.channels * problem.taps <= 16 * steps
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


# ---------------------------------------------------------------- weight gradients


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


def check(planner, problem: Problem, which: int, sms: int = 132, few: bool = False) -> PlanView:
    plan = problem.plan(planner, which, sms, few=few)
    assert (plan.path == LIBRARY) == (problem.from_.channels > 8)
    assert plan.path != LIBRARY or not problem.serves(planner, which, sms, few)
    if plan.path == LIBRARY:
        return plan
    assert plan.threads % WARP == 0 and WARP <= plan.threads <= THREADS and plan.blocks >= 1
    if which == BACKWARD_WEIGHT:
        check_weight(problem, plan, sms)
        return plan
    gathers = which == BACKWARD_INPUT and problem.step > 1 and problem.to.size > 1
    given = problem
    if which == BACKWARD_INPUT:
        problem = problem.transposed(planner)
    if gathers and plan.path == CHUNKS:
        check_gathered_chunks(given, problem, plan)
        return plan
    assert not gathers or plan.path == VALUES
    checks = {CHUNKS: check_chunks, ROWS: check_rows, FAN: check_fan, COLUMNS: check_columns, VALUES: check_values}
    checks[plan.path](problem, plan, *([sms, gathers] if plan.path == VALUES else []))
    return plan
