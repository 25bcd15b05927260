"""The launch plans of selective scans."""

from __future__ import annotations

import ctypes
import itertools

import pytest

from tools import test_build

SMS = 132
FIELDS = ("per_lane", "lanes", "tile", "blocks", "parts", "sets", "channels", "states")


class Plan(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


@pytest.fixture(scope="module")
def planner():
    return test_build.load("plan/selective")


def plan(planner, batch, channels, states, groups=1, backward=False, sms=SMS) -> Plan:
    found = Plan()
    planner.plan(*(ctypes.c_int64(n) for n in (batch, channels, states, groups, sms, backward)), ctypes.byref(found))
    return found


@pytest.mark.parametrize("backward", [False, True])
def test_every_problem_is_covered(planner, backward):
    """Every state has a lane, every channel has a block, every value of a tile has a thread, and groups of positions are whole."""
    for batch, states, groups, own in itertools.product(
        (1, 3, 64), (1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 100, 128, 129, 256), (1, 4), (1, 7, 64, 2048)
    ):
        p = plan(planner, batch, groups * own, states, groups, backward)
        assert p.lanes in (2, 4, 8, 16, 32)
        assert p.per_lane in (1, 4, 8)
        assert p.states >= states
        assert p.channels * p.lanes == 128
        assert p.parts * p.sets * p.channels >= own > (p.parts - 1) * p.sets * p.channels
        assert p.blocks == batch * groups * p.parts
        assert p.tile % 8 == 0
        assert p.tile * p.channels <= 128 * (4 if p.per_lane == 1 else 8)
        assert p.sets == 1 or backward


@pytest.mark.parametrize(
    "sizes, per_lane, lanes",
    [
        ((8, 2048, 16), 4, 4),
        ((1, 1536, 16), 1, 16),
        ((64, 384, 16), 4, 4),
        ((8, 2048, 64), 4, 16),
        ((8, 2048, 128), 4, 32),
        ((8, 2048, 256), 8, 32),
        ((8, 2048, 1), 1, 2),
        ((8, 2048, 8), 4, 2),
    ],
)
def test_lanes(planner, sizes, per_lane, lanes):
    p = plan(planner, *sizes)
    assert (p.per_lane, p.lanes) == (per_lane, lanes)


def test_blocks_take_several_sets_only_if_the_device_stays_full(planner):
    few, many = (plan(planner, 8, 2048, states, backward=True) for states in (16, 128))
    assert (few.sets, few.blocks) == (1, 512)
    assert many.sets == 8
    assert many.blocks >= 3 * SMS
    most = plan(planner, 1000, 100000, 128, backward=True)
    assert most.sets == 32
