"""The kernels of convolutions that take chunks, or few values into many channels: their cases, each at its ends."""

from __future__ import annotations

import pytest

from .conv1d_model import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    BF16,
    CHUNKS,
    DTYPES,
    F16,
    FAN,
    FORWARD,
    Layout,
    Problem,
)  # fmt: skip

ANY_TAPS = [*range(1, 41), 70]
HALVES = [F16, BF16]


def values_of(dtype) -> int:
    return 16 // dtype.numpy.itemsize


def tile_of(dtype) -> int:
    return 64 * values_of(dtype) if dtype.numpy.itemsize > 2 else 256


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("in_channels", [1, 2])
def test_every_end_of_a_row(conv1d, dtype, dilation, in_channels):
    """Rows that begin and end anywhere in their sectors and tiles, in memory that begins and ends there too."""
    values, tile, several = values_of(dtype), tile_of(dtype), 0
    for size in (1, values - 1, values, values + 1, 2 * values + 1, tile - 1, tile, tile + 1, 4 * tile - values + 1):
        for own, other in ((0, 0), (0, 1), (1, 0), (values - 1, values), (1, 2 * values - 1)):
            for at_end in (False, True):
                signals = [Layout(offset=o, at_end=at_end) for o in (own, other)]
                problem = Problem(
                    dtype, 2, 1, (in_channels, 1), size, 3, padding=(at_end * 4, dilation * 2), dilation=dilation,
                    layouts=(*signals, Layout()), special=int(at_end), seed=size,
                )  # fmt: skip
                taken = problem.run(conv1d, FORWARD, chunk_outputs=1, chunk_warps=1)
                assert taken.path == CHUNKS
                several += taken.warp_tiles > 1
    assert several


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dilation", [1, 2, 16])
def test_any_taps(conv1d, dtype, dilation):
    """Rows of input channels that begin everywhere in their packs, so that taps do too."""
    in_channels = values_of(dtype)
    for taps in ANY_TAPS if dilation == 1 else (1, 2, 3, 7, 9):
        problem = Problem(
            dtype, 1, 1, (in_channels, 1), 41, taps, padding=(taps * dilation, taps % 5 + 1), dilation=dilation,
            bias=True, seed=taps,
        )  # fmt: skip
        taken = problem.run(conv1d, FORWARD, chunk_outputs=1)
        assert (taken.path, taken.dilated) == (CHUNKS, dilation > 1 and taps > 1)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_few_taps_in_registers(conv1d, dtype):
    """With every number of values before the first tap's place, in tiles of their own and in several."""
    for taps in (1, 2, 3, 5, 7, 9, 10, 11):
        for left in range(8):
            size = (41, 700, 1200)[left % 3]
            layouts = (Layout(at_end=left % 2 > 0), Layout(gaps=(1, 0, 0)), Layout())
            problem = Problem(
                dtype, 1, 2, (1, 1), size, taps, padding=(left, 3), bias=left % 2 > 0, activation=left % 4,
                layouts=layouts, special=left % 3, seed=taps,
            )  # fmt: skip
            taken = problem.run(conv1d, FORWARD, chunk_outputs=1, chunk_warps=1)
            assert (taken.path, taken.few_taps) == (CHUNKS, taps <= 10)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_tiles_from_memory_to_registers(conv1d, dtype):
    """Quads of inputs that lie beside either end of a row, in one step of 16 places and in two; a tile a warp or two, and up to 32
    outputs behind the last. Other rows are left to copies."""
    met = set()
    for taps in (1, 2, 6, 7, 12, 15, 21, 22, 23):
        for left in range(8):
            size = (44, 700, 256, 264, 1056, 532, 1028)[(left + taps) % 7]
            layouts = (
                Layout(offset=4 * (left % 3), at_end=left % 2 > 0, gaps=(4 * (taps % 2), 0, 0)),
                Layout(offset=taps % 5, gaps=(1, left, 0)),
                Layout(),
            )
            problem = Problem(
                dtype, 1, 2, (1, 1 + left % 2), size, taps, padding=(left + taps // 2, 3), bias=left % 2 > 0,
                activation=left % 4, layouts=layouts, special=left % 3, seed=taps,
            )  # fmt: skip
            taken = problem.run(conv1d, FORWARD, chunk_outputs=1, direct_warps=64, direct_row=0)
            assert (taken.path, taken.direct) == (CHUNKS, taps <= 22)
            if taken.direct:
                met.add((taken.warp_tiles, taken.products))
    assert met == {(1, 1), (1, 2), (2, 1), (2, 2)}
    for offset, gaps, size in ((1, (0, 0, 0), 44), (2, (0, 0, 0), 44), (0, (2, 0, 0), 44), (0, (0, 0, 0), 42)):
        layouts = (Layout(offset=offset, gaps=gaps), Layout(), Layout())
        problem = Problem(dtype, 1, 2, (1, 1), size, 7, padding=(3, 3), layouts=layouts)
        assert problem.run(conv1d, FORWARD, chunk_outputs=1, direct_warps=64, direct_row=0).direct == 0


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("behind", [1, 17, 31, 32, 33])
def test_outputs_behind_the_last_tile(conv1d, dtype, behind):
    """Of rows that begin sectors of memory, and (three outputs on each) anywhere in one: there the last may be a warp's more."""
    for taps, padding, gap in ((3, (1, 1), 0), (16, (9, 6), 0), (4, (3, 0), 3), (9, (4, 4), 5)):
        size = 512 + behind - sum(padding) + taps - 1
        fill = -size % 4  # to whole quads of inputs
        out = Layout(gaps=(gap, 0, 0)) if gap else Layout(whole=16)
        problem = Problem(
            dtype, 2, 3, (1, 1), size + fill, taps, padding=(padding[0], padding[1] - fill), bias=True, activation=taps % 4,
            layouts=(Layout(), out, Layout()), special=taps % 2, seed=behind,
        )  # fmt: skip
        assert problem.out_size == 512 + behind
        taken = problem.run(conv1d, FORWARD, direct_filled=0, direct_far_filled=0, direct_row=0)
        assert (taken.direct, taken.warp_tiles) == (1, 2)
        if gap == 0:
            assert taken.blocks == (2 if behind <= 32 else 3)  # of four warps: one a row, or two


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_input_gradients_from_memory_to_registers(conv1d, dtype):
    for taps, padding, places in ((4, 1, 200), (5, 2, 300), (20, 17, 300), (20, 3, 512)):  # gradients of whole quads
        size = places - padding - 2 + taps - 1
        problem = Problem(dtype, 2, 3, (1, 1), size, taps, padding=(padding, 2), special=2, seed=taps)
        taken = problem.run(conv1d, BACKWARD_INPUT, direct_row=0, direct_warps=64)
        assert (taken.direct, taken.warp_tiles) == (1, 1 if places == 200 else 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step", [2, 3, 8])
def test_other_steps(conv1d, dtype, step):
    """Rows that begin and end anywhere, of one tile and of several, with few taps and many, dilated and not."""
    values, several = values_of(dtype), 0
    for k, outputs in enumerate((1, 2, 31, 127, 128, 129, 500)):
        for taps, dilation, channels in ((1, 1, (1, 1)), (3, 2, (2, 3)), (9, 1, (1, 2)), (20, 5, (1, 1))):
            layouts = (Layout(offset=k % values, at_end=k % 2 > 0), Layout(offset=(k + taps) % (2 * values)), Layout())
            left, reach = k % 3 * taps, (taps - 1) * dilation
            problem = Problem(
                dtype, 2, 1, channels, max((outputs - 1) * step + 1 + reach - left - 4, 1), taps, step, (left, 4), dilation,
                True, k % 4, layouts, special=k % 2, seed=k,
            )  # fmt: skip
            if problem.out_size == 1 or channels[0] * dtype.numpy.itemsize * step > 64:
                continue  # one place has no step, and tiles that don't fit are left to values
            taken = problem.run(conv1d, FORWARD, chunk_outputs=1, chunk_warps=1)
            assert (taken.path, taken.strided) == (CHUNKS, 1)
            several += taken.warp_tiles > 1
    assert several or dtype.numpy.itemsize * step > 16  # else there is room for more


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_input_gradients(conv1d, dtype):
    """Of several channels, whose taps are read backwards."""
    for taps, padding in ((1, 0), (4, 9), (9, 0), (20, 30)):
        problem = Problem(dtype, 2, 3, (1, 3), 300, taps, padding=(padding, 2), special=2, seed=taps)
        assert problem.run(conv1d, BACKWARD_INPUT, chunk_outputs=1).path == CHUNKS


def test_an_infinite_value_on_tensor_cores_reaches_what_lies_over_it(conv1d):
    """Taps of 0 are multiplied with its neighbours there."""
    for dtype in HALVES:
        for taps, size, dilation in ((1, 300, 1), (4, 2100, 1), (9, 1024, 1), (40, 700, 1), (5, 500, 3)):
            for seed in range(3):
                problem = Problem(
                    dtype, 2, 3, (1, 1), size, taps, padding=(taps - 1, 0), dilation=dilation, special=5, seed=seed
                )
                assert problem.run(conv1d, FORWARD, chunk_outputs=1).path == CHUNKS


# ---------------------------------------------------------------- weight gradients

# Of tensor cores matrices, of others sums of a lane: how many taps they hold.
PRODUCTS = {2: ((2, 18), (4, 50), (8, 114)), 4: ((4, 4), (8, 8), (16, 16), (32, 32)), 8: ((4, 4), (8, 8), (16, 16))}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weight_gradients_of_any_taps(conv1d, dtype):
    """Rows that begin everywhere in their packs, with as many more at the ends of those as there are values in one."""
    expected = PRODUCTS[dtype.numpy.itemsize]
    for taps in (*ANY_TAPS, *((49, 50, 51, 114, 115, 130) if dtype in HALVES else ())):
        layouts = (Layout(gaps=(1 - taps % 2, 0, 0)), Layout(gaps=(taps % 3, 0, 0)), Layout())
        problem = Problem(dtype, 16, 1, (1, 1), 41, taps, padding=(taps // 2, taps), layouts=layouts, seed=taps)
        taken = problem.run(conv1d, BACKWARD_WEIGHT, chunk_outputs=1)
        products, most = next((own for own in expected if own[1] >= taps), expected[-1])
        assert (taken.path, taken.products, taken.tap_parts) == (CHUNKS, products, -(-taps // most))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dilation", [2, 3, 16])
def test_weight_gradients_of_dilated_taps(conv1d, dtype, dilation):
    """A matrix has rows for places that have no tap."""
    parts = set()
    for taps in (1, 2, 3, 8, 9, 30, 70):
        problem = Problem(dtype, 8, 1, (1, 2), 43, taps, padding=(taps, taps * dilation), dilation=dilation, seed=taps)
        taken = problem.run(conv1d, BACKWARD_WEIGHT, chunk_outputs=1)
        assert taken.path == CHUNKS
        parts.add((taken.products, taken.tap_parts > 1))
    assert {(2, False), (8, False), (8, True)} <= parts


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sms, split", [(1, False), (1, True), (20, True)])
def test_weight_gradients_of_many_chunks(conv1d, dtype, sms, split):
    """A warp works on one chunk while the next one is copied."""
    channels = (1, 1) if split else (2, 4)
    layouts = (Layout(offset=1, gaps=(1, 0, 0)), Layout(), Layout())
    problem = Problem(dtype, 3, 1, channels, 9001 // channels[1], 5, padding=(2, 2), layouts=layouts, special=3)
    taken = problem.run(conv1d, BACKWARD_WEIGHT, sms, chunk_outputs=1, weight_bytes=1 << 10)
    assert taken.path == CHUNKS and (taken.splits > 1) == split
    assert 128 <= taken.threads <= 256


@pytest.mark.parametrize("dtype, dilation", [*((dtype, 1) for dtype in DTYPES), (F16, 2), (BF16, 2)], ids=str)
def test_infinite_inputs_reach_the_weights_that_lie_over_them(conv1d, dtype, dilation):
    """And no others, though the packs that a row of the gradient begins and ends in have places that it doesn't have."""
    values = values_of(dtype)
    for size in (3 * values, 3 * values + 1, tile_of(dtype) + 5):
        for infinite in ((0,), (-1,), (0, -1), (values,)):
            for offset in range(0, values, 1 + values // 4):
                layouts = (Layout(), Layout(offset=offset, gaps=(offset % 2, 0, 0)), Layout())
                problem = Problem(
                    dtype, 2, 1, (1, 2), size, 4, dilation=dilation, layouts=layouts, infinite=infinite, seed=size
                )
                assert problem.run(conv1d, BACKWARD_WEIGHT, chunk_outputs=1).path == CHUNKS


# ---------------------------------------------------------------- few into many


def fan(conv1d, dtype, channels, size, taps, step, layout=None, sms=1, batch=1, groups=1, **rest):
    layouts = (Layout(offset=taps % 3), layout or Layout(), Layout())
    problem = Problem(
        dtype, batch, groups, channels, size, taps, step, (taps, 3), 1 + taps % 2, True, taps % 4, layouts, taps % 2,
        seed=taps, **rest,
    )  # fmt: skip
    taken = problem.run(conv1d, FORWARD, sms, chunk_outputs=1)
    assert taken.path == FAN
    return taken


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("in_channels", [1, 2, 5])
def test_fans_of_all_products(conv1d, dtype, in_channels):
    half, products = dtype in HALVES, set()
    for taps in range(1, (32 if half else 16) // in_channels + 1):
        whole = Layout(offset=taps % 5, whole=2 * values_of(dtype))
        step = 2 if taps > 16 else 1 + taps // 2 % 2
        taken = fan(conv1d, dtype, (in_channels, 9), 21 + taps, taps, step, whole)
        products.add(taken.products)
        assert not half or taken.products == -(-in_channels * taps // 16)
    if in_channels == 1:
        assert products == ({1, 2} if half else {3, 4, 5, 6, 7, 8, 10, 12, 16})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_fans_of_rows_that_are_aligned_to_sectors_and_not(conv1d, dtype, step):
    """Channels that are aligned alike are a block's: all of them, or every second one and so on."""
    item, sector = dtype.numpy.itemsize, 32 // dtype.numpy.itemsize
    for channels, gap, aligned in (
        (8, 0, 32), (17, sector // 2, 32), (37, sector // 4, 32), (8 * sector, 1, 32), (5 * sector, 1, 16),
        (40, sector // 4, 32), (8, sector // 2, 16),
    ):  # fmt: skip
        for offset in (0, 1, sector - 1):
            for at_end in (False, True):
                size = sector * step + step
                problem = Problem(dtype, 1, 1, (1, channels), size, 2, step, (1, 0))
                gaps = ((gap - problem.out_size) % sector, 0, 0)
                out = Layout(gaps=gaps, offset=offset, at_end=at_end)
                problem.layouts = (Layout(offset=1, at_end=at_end), out, Layout())
                taken = problem.run(conv1d, FORWARD, chunk_outputs=1)
                assert (taken.path, taken.aligned * item) == (FAN, aligned)


@pytest.mark.parametrize("dtype, channels, taps", [(F16, 1, 3), (BF16, 2, 10)], ids=str)
def test_fans_in_several_turns(conv1d, dtype, channels, taps):
    taken = fan(conv1d, dtype, (channels, 30), 1100, taps, 1, Layout(whole=16), batch=4)
    assert (taken.warp_tiles, taken.row_tiles) == (3, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fans_of_several_blocks_of_channels(conv1d, dtype):
    for channels, sms in ((300, 1), (37, 132), (65, 3)):
        taken = fan(conv1d, dtype, (2, channels), 20, 3, 2, Layout(whole=16), sms, groups=2)
        assert taken.tiles > 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_input_gradients_of_many_channels_into_few(conv1d, dtype):
    """The fan's taps are read backwards."""
    layouts = (Layout(whole=16, offset=1), Layout(), Layout())
    problem = Problem(dtype, 2, 2, (8, 1), 75, 3, padding=(2, 1), layouts=layouts, special=1)
    taken = problem.run(conv1d, BACKWARD_INPUT, chunk_outputs=1)
    assert taken.path == FAN
