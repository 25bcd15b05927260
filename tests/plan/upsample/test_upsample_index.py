"""The index functions of upsampling, tested without a GPU against ATen's formula in numpy's float32."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ...support.seeded import seeded
from .upsample_planner import (
    EXTREME,
    SCALES,
    SHORT,
    Axis,
    axes,
    load_planner,
)


@pytest.fixture(scope="module")
def planner():
    return load_planner()


def some(count: int, seed: int, around=()) -> np.ndarray:
    """Numbers below `count`: both ends, random numbers, and the neighbours of the numbers in `around`."""
    random = np.random.default_rng(seed)
    near = (np.asarray(around, np.int64)[:, None] + np.arange(-2, 3)).ravel()
    numbers = np.concatenate([np.arange(64), count - 1 - np.arange(64), random.integers(0, count, 400), near])
    return np.unique(numbers[(numbers >= 0) & (numbers < count)])


@seeded(300)
@given(axis=axes(), seed=st.integers(0, 99))
def test_sources_are_atens(planner, axis, seed):
    outs = some(axis.out, seed, [SHORT, 2**23, 2**24])
    assert np.array_equal(axis.ask(planner.sources, outs), axis.sources(outs))


@seeded(200)
@given(axis=axes(longest=SHORT - 1), seed=st.integers(0, 99))
def test_sources_on_short_axes_are_atens(planner, axis, seed):
    outs = some(axis.out, seed)
    assert np.array_equal(axis.ask(planner.short_sources, outs), axis.sources(outs))


def test_factors_of_small_sizes(planner):
    """A factor that is set is right for every pixel. Usual factors of enlarged images are set."""
    found = set()
    for exact in (False, True):
        for factor in range(2, 41):
            for n in range(1, 301):
                axis = Axis(n, n * factor, None, exact)
                found.add((axis.check_factor(planner), factor))
                if factor in (2, 3, 4, 8):
                    assert axis.factor(planner) == factor, f"{axis}"
    assert all(factor in (0, of) for factor, of in found)
    assert {factor for factor, of in found if factor} >= {2, 3, 4, 5, 6, 8, 16, 32}


def test_factors_of_scales(planner):
    """Scales that are integer factors, and steps next to theirs, which give the same sources at some pixels only."""
    found = 0
    for exact in (False, True):
        for factor in range(1, 41):
            step = np.float32(1 / factor)
            for n in (1, 2, 3, 7, 100, 8191):
                assert (Axis(n, n * factor, float(factor), exact).check_factor(planner) == factor) == (
                    Axis(n, n * factor, None, exact).factor(planner) == factor
                )
                for beside in (np.nextafter(step, np.float32(0)), np.nextafter(step, np.float32(2)), step / 2):
                    axis = Axis(n, n * factor, step=beside, exact=exact)
                    found += axis.check_factor(planner) > 0
                # The sizes contradict the factor.
                for out in (n * factor - 1, n * factor + 1):
                    if out not in (0, n):
                        assert Axis(n, out, float(factor), exact).check_factor(planner) in (0, out // n)
    assert found  # with equal sizes every pixel is copied to itself, whatever the scale


def test_factors_of_large_sizes(planner):
    draw, found = random.Random(1), 0
    sizes = [(2**21 // factor - 1, factor) for factor in (2, 3, 5, 7, 11, 24, 41, 47, 49, 61)]
    sizes += [(draw.randint(1, 2**21 // factor), factor) for factor in draw.choices(range(2, 3000), k=30)]
    for n, factor in sizes:
        for exact in (False, True):
            found += Axis(n, n * factor, None, exact).check_factor(planner) > 0
    assert found > 20


# ---------------------------------------------------------------- which pixels are copies


def test_first_copies_on_all_small_axes(planner):
    for exact in (False, True):
        for n in range(1, 41):
            for out in range(1, 41):
                Axis(n, out, None, exact).check_first_copies(planner)
            for scale in SCALES + EXTREME:
                for out in {max(int(min(n * scale, 50)), 1), 1 + n % 7, 17, 40}:
                    Axis(n, out, scale, exact).check_first_copies(planner)


@pytest.mark.parametrize("scale", [1e38, 3e38, 1e39, 1e40, 1e45, 1e300])
def test_first_copies_at_steps_whose_reciprocal_float32_does_not_hold(planner, scale):
    for exact in (False, True):
        for n, out in ((1, 5), (9, 20), (9, 4), (300, 1000)):
            Axis(n, out, scale, exact).check_first_copies(planner)


@seeded(200)
@given(axis=axes(longest=20000))
def test_first_copies_on_whole_axes(planner, axis):
    axis.check_first_copies(planner)


@seeded(300)
@given(axis=axes(), seed=st.integers(0, 99))
@example(axis=Axis(2**24 + 3, 2**30), seed=0)
@example(axis=Axis(2**30, 2**30 - 1, exact=True), seed=0)
@example(axis=Axis(2**30, 2**30 - 1, 1e6, exact=True), seed=0)
@example(axis=Axis(SHORT - 1, SHORT - 2), seed=0)
@example(axis=Axis(SHORT - 1, SHORT - 1000, 0.99999), seed=0)
@example(axis=Axis(SHORT - 1, SHORT - 1000, 0.9999, exact=True), seed=0)
@example(axis=Axis(SHORT, SHORT + 1), seed=0)
def test_first_copies_on_long_axes(planner, axis, seed):
    """For sampled input pixels, the output pixel before the first copy has an earlier source, and the first copy does not.

    Sources never decrease, so this determines the first copy.
    """
    assert axis.ask(planner.first_copies, [axis.n]) == axis.out
    copied = axis.sources(some(axis.out, seed))  # input pixels with copies: random pixels rarely have any
    ins = some(axis.n, seed, [SHORT, 2**24, *copied[::8]])
    first = axis.ask(planner.first_copies, ins)
    assert ((0 <= first) & (first <= axis.out)).all()
    begins, ends = first > 0, first < axis.out
    assert (axis.sources(first[begins] - 1) < ins[begins]).all(), f"{axis}"
    assert (axis.sources(first[ends]) >= ins[ends]).all(), f"{axis}"
    after = axis.ask(planner.first_copies, ins + 1)
    assert (after >= first).all() and (after - first).max() <= planner.widest_window(*axis.arguments()), f"{axis}"
