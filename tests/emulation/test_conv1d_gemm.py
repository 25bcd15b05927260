"""Products of matrices that gather one of their factors: gemm_kernel, at its ends."""

from __future__ import annotations

import pytest

from .conv1d_model import BACKWARD_INPUT, BF16, F16, F32, FORWARD, GELU, GEMM, NONE, RELU, SILU, Layout, Problem

ANY = {"gemm_channels": 64}


def gemm(conv1d, problem: Problem, **limits):
    taken = problem.run(conv1d, FORWARD, gemm=True, **(ANY | limits))
    assert taken.path == GEMM
    return taken


@pytest.mark.parametrize("step", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dilation", [1, 2, 5])
def test_any_taps(conv1d, step, dilation):
    """Products that fill steps of 16 and that don't; no padding, half of what taps span and more than that."""
    for k, (taps, channels) in enumerate(((1, 1), (2, 3), (5, 3), (8, 2), (12, 4), (17, 1), (33, 2))):
        span = (taps - 1) * dilation
        padding = ((0, span), (span // 2, span // 2 + 1), (span + step + 3, 2))[k % 3]
        problem = Problem(
            F16, 1, 2, (channels, 5), 130 + span + k, taps, step, padding, dilation, bias=k % 2 > 0, special=k % 3, seed=taps,
            layouts=(Layout(offset=k), Layout(offset=taps, gaps=(k % 2, 0, 0)), Layout()),
        )  # fmt: skip
        gemm(conv1d, problem)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(
    "channels", [(1, 1), (3, 2), (2, 16), (2, 17), (8, 5), (5, 40), (1, 70), (3, 130), (9, 3), (16, 33)]
)
def test_any_channels(conv1d, dtype, channels):
    """More than a block takes, and fewer than a product of matrices has; of rows and taps that lie anywhere."""
    met = set()
    for taps, step in ((3, 2), (9, 1)):
        for gap in (0, 1):
            problem = Problem(
                dtype, 2, 2, channels, 150 + taps, taps, step, (taps // 2, taps // 2), bias=True, seed=taps + gap, special=gap,
                layouts=(Layout(offset=gap, gaps=(gap, 0, 0)), Layout(gaps=(gap, 0, gap)), Layout("first" if gap else "last")),
            )  # fmt: skip
            met.add(gemm(conv1d, problem).products)
    tiles = -(-channels[1] // 16)
    assert met == {-(-tiles // -(-tiles // 4))}


def test_every_end_of_a_row(conv1d):
    """Rows that begin and end anywhere in their packs and tiles, in memory that begins and ends there too."""
    for size in (1, 2, 7, 8, 9, 63, 64, 65, 127, 129, 255, 256, 257, 513):
        for own, other in ((0, 0), (1, 1), (3, 2), (2, 7)):
            at_end = (own + size) % 2 > 0
            signals = [Layout(offset=o, at_end=at_end) for o in (own, other)]
            problem = Problem(
                F16, 1 + size % 2, 1, (1 + own % 2, 3), size * 2, 3, 2, (1, other), layouts=(*signals, Layout()), special=int(at_end), seed=size
            )  # fmt: skip
            gemm(conv1d, problem)


def test_blocks_that_go_through_tiles(conv1d):
    """Of several images, with the taps of their first one; blocks of every size."""
    met = set()
    for batch, size, sms in ((5, 700, 1), (7, 100, 1), (40, 40, 1), (3, 700, 8), (1, 700, 8), (1, 300, 8), (1, 90, 8)):
        problem = Problem(F16, batch, 1, (2, 20), size, 5, 1, (2, 2), seed=size, special=2)
        taken = gemm(conv1d, problem, sms=sms)
        met.add((taken.places // 32, taken.threads // 32, taken.blocks < batch * taken.tiles * taken.row_tiles))
    assert {(8, 8, True), (2, 2, True), (8, 8, False), (4, 8, False), (2, 8, False)} <= met


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("activation", [NONE, RELU, SILU, GELU])
def test_activations(conv1d, dtype, activation):
    for channels in ((2, 3), (3, 33)):
        problem = Problem(
            dtype, 1, 2, channels, 100, 7, 2, (3, 3), bias=activation != SILU, activation=activation, special=2, layouts=(Layout(), Layout(gaps=(1, 0, 0)), Layout())
        )  # fmt: skip
        gemm(conv1d, problem)


def test_infinite_values_make_no_nan_elsewhere(conv1d):
    """Of inputs, beside the taps that there are; of taps, over zeros beside the row, they do."""
    for taps, channels in ((7, 1), (5, 3), (16, 1)):
        for infinite, infinite_taps in (((0, 17, 199), ()), ((), (0,))):
            gemm(
                conv1d,
                Problem(
                    F16, 1, 1, (channels, 20), 200, taps, 3, (3, 0), infinite=infinite, infinite_taps=infinite_taps
                ),
            )


def test_input_gradients(conv1d):
    """Of step 1, where a convolution with the taps reversed has many products."""
    for taps, padding, channels in ((25, 12, (20, 9)), (9, 0, (11, 16))):
        problem = Problem(
            F16,
            2,
            2,
            channels,
            90,
            taps,
            1,
            (padding, padding),
            special=1,
            layouts=(Layout(gaps=(1, 0, 0)), Layout(), Layout()),
        )
        assert problem.run(conv1d, BACKWARD_INPUT, **ANY).path == GEMM


def test_what_is_left_to_others(conv1d):
    """Other dtypes and strides, and what doesn't fit into shared memory."""
    for dtype, channels, taps, dilation, layout in (
        (F32, 4, 9, 1, Layout()),
        (F16, 4, 9, 1, Layout("middle")),
        (F16, 4, 5, 4000, Layout()),
    ):
        span = (taps - 1) * dilation
        problem = Problem(
            dtype, 1, 1, (channels, 8), 300, taps, 2, (span, span), dilation, layouts=(Layout(), layout, Layout())
        )
        assert problem.run(conv1d, FORWARD, **ANY).path != GEMM
