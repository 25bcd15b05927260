"""The kernels of input gradients of other steps than 1, by chunks of contiguous rows and by value: their cases, each at its ends."""

from __future__ import annotations

import math

import pytest

from .conv1d_model import (
    BACKWARD_INPUT,
    BF16,
    CHUNKS,
    DTYPES,
    F16,
    F32,
    F64,
    VALUES,
    Layout,
    Problem,
)  # fmt: skip

GATHER_STEP = 256  # Tuning's


def values_of(dtype) -> int:
    return 16 // dtype.numpy.itemsize


def tile_of(dtype) -> int:
    return 32 * values_of(dtype)


def gathered(conv1d, problem: Problem, **limits):
    """In chunks."""
    assert problem.out_size > 1  # one place has no step
    taken = problem.run(conv1d, BACKWARD_INPUT, **{"chunk_outputs": 1} | limits)
    assert (taken.path, taken.strided) == (CHUNKS, 1)
    return taken


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step", [2, 3, 5, 8])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4, 8])
def test_any_taps(conv1d, dtype, step, dilation):
    """Of which some meet the same places, or none meet some; with no padding, half of what they span and more than that."""
    cycle = step // math.gcd(step, dilation)
    for k, taps in enumerate(sorted({1, 2, step - 1, cycle, cycle + 1, step, step + 1, 3 * cycle + 1})):
        span, size = (taps - 1) * dilation, tile_of(dtype) + 3 * taps + 5
        for padding in ((0, span), (span // 2, span // 2 + 1), (span + step + 3, 2)):
            layouts = (Layout(offset=k), Layout(offset=taps), Layout())
            problem = Problem(
                dtype, 2, 1, (1, 1), size, taps, step, padding, dilation, layouts=layouts, special=k % 3, seed=taps
            )  # fmt: skip
            taken = gathered(conv1d, problem)
            assert 1 <= taken.row_width <= min(taps, cycle)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step, taps", [(3, 1), (2, 5), (8, 3)])
def test_every_end_of_a_row(conv1d, dtype, step, taps):
    """Rows that begin and end anywhere in their sectors and tiles, in memory that begins and ends there too; several tiles a warp."""
    values, tile, several = values_of(dtype), tile_of(dtype), 0
    sizes = (2 * step + taps, 2 * (step + taps + values), tile - 1, tile, tile + 1, 3 * tile + 1, 9 * tile - values + 1)
    for size in sizes:
        for own, other in ((0, 0), (0, 1), (1, 0), (values - 1, values), (2 * values - 1, 2 * values - 1)):
            for at_end in (False, True):
                layouts = (*(Layout(offset=o, at_end=at_end) for o in (own, other)), Layout())
                problem = Problem(
                    dtype, 2, 1, (1, 1), size, taps, step, (int(at_end), taps), 1 + at_end, layouts=layouts, special=int(at_end), seed=size
                )  # fmt: skip
                several += gathered(conv1d, problem, chunk_warps=1).warp_tiles > 1
    assert several


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [(1, 3), (3, 1), (2, 4), (8, 2)])
def test_several_channels(conv1d, dtype, channels):
    """Each of the gradient is read for each of the input; their rows begin anywhere."""
    for step, taps, dilation in ((2, 3, 1), (3, 1, 2), (4, 6, 2)):
        layouts = (Layout(gaps=(1, 0, 3)), Layout(offset=1, gaps=(taps % 2, 0, 0)), Layout("first"))
        problem = Problem(
            dtype, 2, 3, channels, 2 * tile_of(dtype) + 5, taps, step, (taps, 1), dilation, layouts=layouts, special=2, seed=step
        )  # fmt: skip
        gathered(conv1d, problem)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("step, taps, dilation", [(17, 17, 1), (40, 70, 1), (100, 3, 30), (GATHER_STEP, 300, 1)])
def test_large_steps(conv1d, dtype, step, taps, dilation):
    """More first taps than lanes, and chunks with one place of each."""
    for padding in (0, taps * dilation // 2):
        problem = Problem(dtype, 1, 2, (1, 1), 1500, taps, step, (padding, padding), dilation, seed=step)
        gathered(conv1d, problem, chunk_warps=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_from_which_rows_on(conv1d, dtype):
    for size, step, path in (
        (127, 3, VALUES), (128, 3, CHUNKS), (129, 3, CHUNKS), (600, GATHER_STEP, CHUNKS), (600, GATHER_STEP + 1, VALUES)
    ):  # fmt: skip
        problem = Problem(dtype, 3, 2, (1, 1), size, 2, step, (1, 1))
        assert problem.run(conv1d, BACKWARD_INPUT, chunk_outputs=256).path == path


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chunk_outputs", [1, 2**60])
def test_infinite_taps_reach_the_places_under_them(conv1d, dtype, chunk_outputs):
    """And no others: beyond the ends of the gradient nothing is multiplied."""
    for step, taps, dilation, channels in (
        (2, 3, 1, (1, 1)), (3, 7, 1, (1, 2)), (4, 6, 2, (2, 1)), (8, 3, 8, (1, 1)), (4, 3, 1, (1, 1))
    ):  # fmt: skip
        for k in range(taps):
            size, padding = 150 + step, (taps * dilation, k)
            problem = Problem(
                dtype, 1, 2, channels, size, taps, step, padding, dilation, special=1, infinite_taps=[k], seed=k
            )
            taken = problem.run(conv1d, BACKWARD_INPUT, chunk_outputs=chunk_outputs)
            assert taken.path == (CHUNKS if chunk_outputs == 1 else VALUES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gathered_chunks_in_parts(conv1d, dtype):
    problem = Problem(dtype, 5, 3, (2, 1), 60, 3, 2, (1, 1))
    assert gathered(conv1d, problem, kMaxIndex32=262).launches > 1


@pytest.mark.parametrize("dtype", [F16, F64], ids=str)
@pytest.mark.parametrize("order", ["last", "middle"])
@pytest.mark.parametrize("step", [2, 3, 5, 8])
@pytest.mark.parametrize("far", [2**29, 1])
def test_values(conv1d, dtype, order, step, far):
    """Of any strides, one channel and several; also as those are whose places 32 bits don't hold."""
    own = Layout(order, step=2, offset=1)
    for dilation in (1, 2, 3, 4, 8):
        for taps, padding in (
            (1, (0, 0)),
            (step - 1, (1, 2)),
            (step + 2, (step * dilation, 0)),
            (2 * step + 1, (40, 9)),
        ):
            for channels in ((1, 1), (5, 2)):
                size = 30 + 3 * taps * dilation
                layouts = (own, own, Layout())
                problem = Problem(
                    dtype, 2, 8, channels, size, taps, step, padding, dilation, layouts=layouts, special=taps % 2, seed=taps
                )  # fmt: skip
                assert problem.run(conv1d, BACKWARD_INPUT, kFar=far).path == VALUES


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step, dilation", [(32749, 5), (32768, 3), (32769, 5), (40000, 8)])
def test_values_of_large_steps(conv1d, dtype, step, dilation):
    """From cycles of 2^15 taps on, the first tap is found by trying."""
    for padding in ((0, 2 * dilation), (2 * dilation + 1, 0)):
        problem = Problem(dtype, 1, 1, (1, 1), step + 9, 4, step, padding, dilation)
        assert problem.out_size == 2 and problem.run(conv1d, BACKWARD_INPUT, chunk_outputs=1).path == VALUES
