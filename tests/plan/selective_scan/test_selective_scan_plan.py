"""The launch plans of selective scans."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
from types import SimpleNamespace

import pytest

from tools import test_build

SMS = 132  # that a wave is counted for
STATES = (1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 129, 256)


@pytest.fixture(scope="module")
def planner():
    library = test_build.load("plan/selective_scan")
    library.plan.restype, library.supported.restype = ctypes.c_char_p, ctypes.c_bool
    return library


def numbers(batch, channels, states, groups=1, length=2048, wide=False, constant=False):
    return (ctypes.c_int64 * 7)(batch, channels, length, states, groups, wide, constant)


def plan(planner, *sizes, backward=False, **kwargs) -> SimpleNamespace:
    """The tiling of the last launch, and the shapes of all launches."""
    given = numbers(*sizes, **kwargs)
    found = json.loads(planner.plan(given, ctypes.c_int64(backward)))
    tiling = found["backward" if backward else "output"]["tiling"]
    return SimpleNamespace(**tiling, shapes={name: launch["shape"] for name, launch in found.items()})


@pytest.mark.parametrize("backward", [False, True])
def test_every_problem_is_covered(planner, backward):
    """Every state has a lane, every channel has a block, every value of a tile has a thread, and groups of positions are whole."""
    for batch, states, groups, own, length in itertools.product(
        (1, 3, 64), STATES, (1, 4), (1, 7, 64, 2048), (1, 33, 2000)
    ):
        p = plan(planner, batch, groups * own, states, groups, backward=backward, length=length)
        assert p.lanes in (1, 2, 4, 8, 16, 32)
        assert p.per_lane in (1, 4, 8)
        assert p.states >= states
        assert p.channels * p.lanes == 128
        assert p.parts * p.sets * p.channels >= own > (p.parts - 1) * p.sets * p.channels
        assert p.blocks == batch * groups * p.parts
        assert p.tile % 8 == 0
        assert p.tile * p.channels <= 128 * (16 if p.lanes == 1 else 8)
        assert p.sets == 1 or backward
        assert p.segments * p.segment >= length > (p.segments - 1) * p.segment
        assert p.segments == 1 or p.segment % p.tile == 0
        assert all(shape["shared_bytes"] <= 227 << 10 for shape in p.shapes.values())


@pytest.mark.parametrize("length", [32, 4096])
def test_launches_over_segments(planner, length):
    """Each launch has blocks for all segments, except that nothing follows the last one, or precedes the first one in gradients."""
    forward = plan(planner, 2, 256, 16, length=length)
    backward = plan(planner, 2, 256, 16, length=length, backward=True)
    assert (forward.segments > 1) == (backward.segments > 1) == (length > 32)
    want = {"output": forward.blocks * forward.segments}
    want_back = {
        "checkpoints": forward.blocks * backward.segments,
        "backward": backward.blocks * backward.segments,
    }
    if length > 32:
        combine = 2 * 256 * 16 // 128
        want |= {"states": forward.blocks * (forward.segments - 1), "combine": combine}
        want_back |= {"gradients": forward.blocks * (backward.segments - 1)}
        want_back |= {"combine": combine, "combine_gradients": combine}
    assert {name: shape["blocks"] for name, shape in forward.shapes.items()} == want
    assert {name: shape["blocks"] for name, shape in backward.shapes.items()} == want_back


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_kernels_are_compiled_for_every_tiling(planner, wide, constant):
    for states in STATES:
        given = numbers(2, 64, states, wide=wide, constant=constant)
        assert planner.supported(given) == (not (wide and constant) or states <= 128)
        if planner.supported(given):
            p = plan(planner, 2, 64, states, wide=wide, constant=constant)
            per_lane, lanes = ctypes.c_int64(), ctypes.c_int64()
            planner.layout(given, ctypes.byref(per_lane), ctypes.byref(lanes))
            assert (per_lane.value, lanes.value) == (p.per_lane, p.lanes)
            assert p.states >= states


@pytest.mark.parametrize(
    "states, per_lane, lanes", [(16, 4, 4), (64, 4, 16), (128, 4, 32), (256, 8, 32), (1, 1, 1), (4, 4, 1), (8, 4, 2)]
)
def test_lanes(planner, states, per_lane, lanes):
    for batch in (1, 64):
        p = plan(planner, batch, 2048, states)
        assert (p.per_lane, p.lanes) == (per_lane, lanes)


@pytest.mark.parametrize(
    "sizes, length, segments",
    [
        ((8, 2048, 16), 2048, 1),
        ((64, 384, 16), 196, 1),
        ((4, 1536, 16), 128, 1),
        ((1, 1536, 16), 256, 8),
        ((1, 1536, 16), 4096, 11),
        ((1, 1536, 16), 65536, 228),
        ((1, 256, 16), 512, 16),
        ((1, 256, 16), 32, 1),
    ],
)
def test_the_length_is_split_if_there_are_few_channels(planner, sizes, length, segments):
    assert plan(planner, *sizes, length=length).segments == segments


@pytest.mark.parametrize(
    "sizes, length, sets, segments",
    [
        ((8, 2048, 16), 2048, 1, 1),
        ((8, 2048, 128), 2048, 32, 6),
        ((1, 2048, 128), 65536, 128, 187),
        ((1000, 100000, 128), 2048, 32768, 1),
    ],
)
def test_blocks_take_several_sets_if_gradients_take_much_memory(planner, sizes, length, sets, segments):
    """Gradients of B and C take at most 256 MB, or one block has all channels. Segments make up for blocks that are gone."""
    p = plan(planner, *sizes, backward=True, length=length)
    assert (p.sets, p.segments) == (sets, segments)
    assert p.blocks * length * sizes[2] * 8 <= 256 << 20 or p.parts == 1
    assert p.blocks * p.segments * 128 >= 32768


@pytest.mark.parametrize("backward", [False, True])
def test_segments_fill_whole_waves(planner, backward):
    """A wave has four blocks per SM for 16 states. The last one is nearly full, or there are many."""
    for channels, length in itertools.product((256, 768, 1536, 2560), (4096, 16384)):
        p = plan(planner, 1, channels, 16, backward=backward, length=length)
        waves = p.blocks * p.segments / (4 * SMS)
        assert waves / math.ceil(waves) > 0.9
