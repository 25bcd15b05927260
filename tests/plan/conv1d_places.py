"""What the model of plans of convolutions is made of: constants of the kernels, and places that must be met once."""

from __future__ import annotations

import numpy as np

from .conv1d_planner import Problem

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
