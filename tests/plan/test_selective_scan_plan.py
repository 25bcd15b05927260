"""The launch plans of selective scans."""

from __future__ import annotations

import ctypes
import itertools

import pytest

from tools import test_build

SMS = 132
FIELDS = ("per_lane", "lanes", "tile", "blocks", "parts", "sets", "channels", "states", "segments", "segment")


class Plan(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


@pytest.fixture(scope="module")
def planner():
    return test_build.load("plan/selective_scan")


def plan(planner, batch, channels, states, groups=1, backward=False, sms=SMS, length=2048) -> Plan:
    found = Plan()
    planner.plan(
        *(ctypes.c_int64(n) for n in (batch, channels, length, states, groups, sms, backward)), ctypes.byref(found)
    )
    return found


@pytest.mark.parametrize("backward", [False, True])
def test_every_problem_is_covered(planner, backward):
    """Every state has a lane, every channel has a block, every value of a tile has a thread, and groups of positions are whole."""
    for batch, states, groups, own, length in itertools.product(
        (1, 3, 64), (1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 129, 256), (1, 4), (1, 7, 64, 2048), (1, 33, 2000)
    ):
        p = plan(planner, batch, groups * own, states, groups, backward, length=length)
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
        ((1, 1536, 16), 65536, 44),
        ((1, 256, 16), 512, 16),
        ((1, 256, 16), 32, 1),
    ],
)
def test_the_length_is_split_if_there_are_few_channels(planner, sizes, length, segments):
    assert plan(planner, *sizes, length=length).segments == segments
    assert plan(planner, *sizes, length=length, sms=1).segments == segments


def test_blocks_take_several_sets_only_if_the_device_stays_full(planner):
    few, many = (plan(planner, 8, 2048, states, backward=True) for states in (16, 128))
    assert (few.sets, few.blocks) == (1, 512)
    assert many.sets == 8
    assert many.blocks >= 3 * SMS
    most = plan(planner, 1000, 100000, 128, backward=True)
    assert most.sets == 32


@pytest.mark.parametrize("backward", [False, True])
def test_segments_fill_whole_waves(planner, backward):
    """A wave has four blocks per SM for 16 states. The last one is nearly full."""
    for channels, length in itertools.product((256, 768, 1536, 2560), (4096, 16384)):
        p = plan(planner, 1, channels, 16, backward=backward, length=length)
        waves = p.blocks * p.segments / (4 * SMS)
        assert waves <= 4
        assert waves % 1 == 0 or waves % 1 > 0.75


def test_segments_make_up_for_sets(planner):
    """Gradients of B and C take at most 64 MB if the length is split."""
    p = plan(planner, 1, 1536, 16, backward=True, length=65536)
    assert p.parts * 65536 * 16 * 8 <= 64 << 20
    assert p.blocks * p.segments * 128 >= 65536
