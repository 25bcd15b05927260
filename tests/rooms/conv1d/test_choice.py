"""The choice of paths for convolutions, compared with the measurements that the costs are fitted to."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch

import torch_ops  # noqa: F401
from benchmarks.publish import conv1d_paths, pages
from benchmarks.random import tune


@pytest.fixture(scope="module")
def measured():
    return tune.evidence(tune.EVIDENCE)


def test_chosen_paths_are_near_the_best_ones(measured):
    found = tune.quality(measured, [m.chosen for m in measured])
    assert found.mean < 1.02 and found.total < 1.04, found
    assert found.beyond_3_percent < 0.08 and found.beyond_10_percent < 0.05, found
    assert found.slower_than_aten < 0.022, found


def test_every_path_is_measured(measured):
    assert [m.row for m in measured if not m.terms.keys() - {"aten"} <= m.us.keys()] == []


def test_every_path_is_needed(measured):
    """Each path is faster than all others by 10 % in 2 % of the problems of a pass, a dtype and a layout."""
    fastest, problems = Counter(), Counter()
    for m in measured:
        cell = (m.row["what"], m.row["dtype"], m.row["layout"])
        problems[cell] += 1
        best, second = sorted(m.us.values())[:2] if len(m.us) > 1 else (1, 1)
        if second > 1.1 * best:
            fastest[min(m.us, key=m.us.get), cell] += 1
    needed = {name for (name, cell), count in fastest.items() if count >= 0.02 * problems[cell]}
    assert {name for m in measured for name in m.us} - {"aten"} - needed == set()


def test_the_page_is_as_the_measurements_are():
    assert pages.stale(conv1d_paths.pages()) == [], "python -m benchmarks pages conv1d_paths"


def test_channels_last_signals_with_strides_go_through_rows():
    """The plan sees channels-last signals, their slices, and gradients in another layout than the input's."""
    wide, rows = torch.empty(4, 3000, 512, device="meta"), torch.empty(4, 256, 600, device="meta")
    last = torch.empty(4, 600, 256, device="meta").mT
    weight = torch.empty(256, 1, 125, device="meta")

    def chosen(x, grad, what):
        return torch.ops.gpuopt_ladder.conv1d_paths(x, weight, None, grad, 5, 62, 1, 256, what, 132).splitlines()[0]

    for x in (wide[..., :256].mT, wide[..., 256:].mT, wide[..., 1:257].mT):
        assert chosen(x, None, "output") == "rows"
        for grad in (last, rows):
            assert chosen(x, grad, "grad_input") == "rows"
    assert chosen(wide[..., :256].mT.contiguous(), None, "output") != "rows"


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"what": "out"}, 'what must be "output", "grad_input" or "grad_weight", got "out"'),
        ({"what": "grad_input"}, "grad_output must be given for grad_input"),
        ({"multiprocessors": 0}, "multiprocessors must be that of a GPU: expected 1 to 1048576, got 0"),
        ({"input": torch.empty(2**31, 3, 3, device="meta")}, "the result must fit into one launch"),
    ],
)
def test_paths_refuse_bad_arguments(changed, message):
    arguments = {
        "input": torch.empty(2, 3, 10, device="meta"), "weight": torch.empty(4, 3, 3, device="meta"), "bias": None,
        "grad_output": None, "stride": 1, "padding": 1, "dilation": 1, "groups": 1, "what": "output",
        "multiprocessors": 132,
    }  # fmt: skip
    assert torch.ops.gpuopt_ladder.conv1d_paths(**arguments).splitlines()[0] == "small"
    with pytest.raises(ValueError, match=re.escape(message)):
        torch.ops.gpuopt_ladder.conv1d_paths(**(arguments | changed))
