"""Kernels of few values: a lane for each output, or several that share its products."""

from __future__ import annotations

import itertools

import pytest

from .conv1d_model import BACKWARD_INPUT, DTYPES, F32, FORWARD, Layout, Problem

KINDS = ("", "last_", "tile_", "taps_", "direct_")
FEW = {"few_outputs": 2048} | {f"few_{kind}products": 2**30 for kind in KINDS}
PRODUCTS = (1, 4, 5, 8, 9, 16, 17, 24, 25, 48, 49, 96, 97, 192, 193, 384, 385, 768)


def parts_of(products: int) -> int:
    return next(parts for parts in (1, 2, 4, 8, 16, 32) if parts * 24 >= products)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("in_channels", [1, 2, 3, 8])
def test_so_many_products(conv1d, dtype, in_channels):
    """Those that a lane has, and those that lanes share: the last lane may have fewer, and none."""
    for k, products in enumerate(PRODUCTS):
        if products % in_channels:
            products += in_channels - products % in_channels
        if products > 768:
            continue
        taps, dilation = products // in_channels, 1 + k % 3
        reach, out_channels = (taps - 1) * dilation, (1, 2, 3)[k % 3]
        problem = Problem(
            dtype, 1 + k % 2, 2, (in_channels, out_channels), 9 + reach - reach // 2, taps, 1 + k % 4,
            (reach // 2, k % 5), dilation, k % 2 > 0, k % 4, special=k % 3, seed=products,
        )  # fmt: skip
        taken = problem.run(conv1d, FORWARD, **FEW)
        parts = parts_of(products)
        assert (taken.few_values, taken.products, taken.row_width) == (1, -(-products // parts), 32 // parts)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_strides(conv1d, dtype):
    orders = ("last", "middle", "first")
    for order, other, step in itertools.product(orders, orders, (1, 2)):
        layouts = (
            Layout(order, 1 + step % 2, (1, 3, 0), offset=3),
            Layout(other, step, (0, 2, 1), at_end=True),
            Layout(order, 1, (2, 0, 1)),
        )
        problem = Problem(dtype, 3, 5, (1, 2), 11, 4, step, (2, 1), 2, True, layouts=layouts, seed=step)
        taken = problem.run(conv1d, FORWARD, **FEW)
        assert (taken.few_values, taken.channels_first) == (1, other == "middle" and step == 1)
    expanded = (Layout(expanded=(0, 2)), Layout(), Layout(expanded=(0,)))
    assert Problem(dtype, 3, 5, (1, 1), 11, 4, layouts=expanded).run(conv1d, FORWARD, **FEW).few_values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_input_gradients(conv1d, dtype):
    """Of step 1, or of one output: a forward of as many products as output channels and taps. Others look for their taps."""
    for (in_channels, out_channels), taps in itertools.product(((1, 1), (2, 3), (1, 20)), (1, 3, 25)):
        problem = Problem(
            dtype, 2, 3, (in_channels, out_channels), 13 + taps, taps, 1, (taps // 2, 3), 1 + taps % 2, seed=taps
        )
        taken = problem.run(conv1d, BACKWARD_INPUT, **FEW)
        assert (taken.few_values, taken.row_width) == (1, 32 // parts_of(out_channels * taps))
    assert Problem(dtype, 2, 3, (1, 1), 4, 4, 5).run(conv1d, BACKWARD_INPUT, **FEW).few_values
    assert Problem(dtype, 2, 3, (1, 1), 24, 4, 5).run(conv1d, BACKWARD_INPUT, **FEW).few_values == 0


def test_what_is_left_to_others(conv1d):
    """More outputs or products than are few, products that no warp has lanes for, and places that 32 bits don't hold."""

    def is_few(taps=3, channels=(1, 1), **limits):
        problem = Problem(F32, 1, 4, channels, 34, taps, padding=(taps // 2, taps - 1 - taps // 2))  # 136 outputs
        return problem.run(conv1d, FORWARD, **FEW | limits).few_values

    assert is_few(few_outputs=136) and not is_few(few_outputs=135)
    assert is_few(96, (8, 1)) and not is_few(97, (8, 1))
    assert is_few(kFar=150) and not is_few(kFar=136)
