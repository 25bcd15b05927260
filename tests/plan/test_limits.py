"""The limits of plans beside their evidence: benchmarks/results/nvidia-h200/limits.jsonl, which ``python -m benchmarks tune`` writes."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.random import limits

ROOMS = sorted(limits.FAMILIES)
# Limits that fewer than three random problems have decided so far, or that gain less than limits.LEAST_WORTH. Each of them must prove
# itself, or go.
UNPROVEN: dict[str, set[str]] = {
    "dot": {"blocks", "tile_bytes", "tile_row_bytes", "unsplit"},
    "elementwise": {"four_values"},
    "index_add": {"max_parts", "min_bin_values", "sort_entry_traffic"},
    "reduce": {
        "alone_threads",
        "once_below",
        "row_blocks",
        "row_threads",
        "shifted_column",
        "short_row_vecs",
        "tile_row_bytes",
        "unsplit_groups",
        "wide",
    },
    "rows": {"few_warps", "shortest", "tiles.least_tile", "tiles.narrow_row", "window"},
    "selective_scan": {"segment"},
}


@pytest.fixture(scope="module")
def measured():
    return limits.evidence()


@pytest.mark.parametrize("room", ROOMS)
def test_each_limit_is_measured_or_a_bound(room):
    others, bounds = limits.OTHERS[room].keys(), limits.BOUNDS.get(room, set())
    assert limits.limits(room).keys() == others | bounds and not others & bounds


@pytest.mark.parametrize("room", ROOMS)
def test_measured_problems_are_decided_by_the_limit(measured, room):
    """Each plan is made again, as it was measured and with the limit that it is measured against."""
    rows = [row for row in measured if row["room"] == room]
    assert {row["limit"] for row in rows} <= limits.OTHERS[room].keys()
    same = [(row["limit"], row["value"], row["case"]) for row in rows if not limits.differs(row, row["device"])]
    assert same == []


@pytest.mark.parametrize("room", ROOMS)
def test_each_limit_is_worth_its_name(measured, room):
    gains = {limit: limits.worth(measured, room, limit) for limit in limits.OTHERS[room]}
    unproven = {k for k, (gain, n) in gains.items() if gain < limits.LEAST_WORTH or n < limits.FEWEST_ROWS}
    assert unproven == UNPROVEN.get(room, set()), limits.table(measured, room)


def test_limits_are_put_back():
    before = limits.limits("scan")
    with pytest.raises(ZeroDivisionError), limits.With("scan", "many_tiles", 7):
        assert limits.limits("scan")["many_tiles"] == 7
        raise ZeroDivisionError
    assert limits.limits("scan") == before


def test_a_recorded_problem_has_the_plan_of_its_call():
    """``plan`` of a sum of rows, whose members are written by hand."""
    problem = {"in": 1 << 20, "out": 1 << 24, "in_dtype": 8, "dtype": 8, "num_dims": 2}
    for d, dim in enumerate([(1000, 32, 1, 0), (32, 1, 0, 1)]):
        problem |= {f"dims.{d}.{name}": v for name, v in zip(("size", "in_stride", "out_stride", "reduced"), dim)}
    device = {"sms": 132, "shared_bytes": 232448, "has_clusters": 1}
    made = json.loads(limits.plan("reduce", {name: float(v) for name, v in problem.items()}, device))
    assert made["launches"][0]["path"] == "short_rows" and made["launches"][0]["outputs"] == 1000


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda ladder: ladder.limits("sums"), 'no room of limits is called "sums"'),
        (lambda ladder: ladder.set_limit("scan", "tiles", 1.0), 'scan has no limit "tiles"'),
        (lambda ladder: ladder.plan("sums", [], [], 1, 1, False), 'no planner is called "sums"'),
        (lambda ladder: ladder.plan("dot", ["rows"], [], 1, 1, False), "expected a number for each of 1 paths, got 0"),
        (lambda ladder: ladder.plan("dot", ["width"], [1.0], 1, 1, False), "a problem of dot has no member width"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.ops.gpuopt_ladder)
