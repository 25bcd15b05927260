"""benchmarks.random.fuzz: random calls of every operator, and planted faults that it must notice."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import torch_ops
from benchmarks.random import fuzz, near_range, pointers, problems
from benchmarks.rooms import rooms
from torch_ops.compat.torch_scatter import scatter_sum

from ...support.overriding import nothing_is_left  # noqa: F401
from ...support.params import each_device


@each_device
@pytest.mark.parametrize("family", problems.FAMILIES)
def test_random_calls(family, device):
    seeds = range(1000, 1026 if device == "cpu" else 1040)
    count, found = fuzz.run([family], iter(seeds), device, seconds=60)
    assert count >= 15 and found == []


def wrong_value(x, y):
    out = torch_ops.mul(x, y)
    out.view(-1)[-1:] += 1
    return out


def wrong_strides(x, y):
    out = torch_ops.mul(x, y)
    return out.mT.contiguous().mT if out.dim() == 2 else out


def written_operand(x, y):
    x[..., :1] = 0.5
    return torch_ops.mul(x, y)


def overrun(x, y):
    if not x.is_meta:
        x.as_strided((1,), (1,), max(0, x.storage_offset() - 1)).fill_(3)
    return torch_ops.mul(x, y)


def unpredicted(x, y):
    return torch_ops.mul(x, y).double() if x.is_meta else torch_ops.mul(x, y)


def unrepeatable(x, y):
    return torch_ops.mul(x, y) * (1 + 1e-7 * torch.rand(()))


@pytest.mark.parametrize(
    "planted, message",
    [
        (wrong_value, "values"), (wrong_strides, "metadata"), (written_operand, "operand 0"), (overrun, "operand 0"),
        (unpredicted, "Meta kernel"), (unrepeatable, "other bits"),
    ],
)  # fmt: skip
def test_planted_faults_are_noticed(planted, message):
    call = dataclasses.replace(rooms()["elementwise"].calls()["mul"], ours=planted)
    found = []
    for seed in range(40):
        _, case = fuzz.draw("mul", seed)
        if not case.name.startswith("scalar"):
            found += fuzz.faults("mul", call, case, "cpu")
    assert any(fault.startswith(message) or message in fault for fault in found), found[:3]


@each_device
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode, seeds", [(near_range.MODE, range(3000, 3002)), (pointers.MODE, range(12))])
def test_random_calls_of_other_modes(mode, seeds, device):
    count, found = mode.run(mode.families, seeds, device, seconds=60)
    assert count == len(seeds) * len(mode.families) and found == []


@pytest.mark.parametrize("name, family", [("range", "segment_softmax"), ("pointers", "sddmm")])
def test_modes_of_the_command(name, family, capfd):
    assert fuzz.main([name, family, "--calls", "3", "--device", "cpu"]) == 0
    assert capfd.readouterr().out.endswith("3 calls on cpu, 0 faults\n")


def test_sums_that_are_rounded_before_they_are_divided_are_noticed(monkeypatch):
    def mean(x, index, dim, dim_size):
        counts = index.bincount(minlength=dim_size).clamp(min=1)
        return scatter_sum(x, index, dim, None, dim_size) / counts.unsqueeze(1).to(x.dtype)

    monkeypatch.setitem(near_range.GROUPS, "scatter_mean", mean)
    _, found = near_range.MODE.run(["scatter_mean"], range(40), "cpu", seconds=60)
    assert any("result 0 has inf, float64 has" in fault for fault in found), found[:3]


def test_writes_next_to_operands_are_noticed(monkeypatch):
    def family(d):
        form, function, tensors = pointers.segment_expand(d)

        def planted(rows, ptr):
            rows.detach().as_strided((1,), (1,), max(0, rows.storage_offset() - 1)).fill_(3)
            return function(rows, ptr)

        return form, planted, tensors

    monkeypatch.setitem(pointers.FAMILIES, "segment_expand", family)
    _, found = pointers.MODE.run(["segment_expand"], range(4), "cpu", seconds=60)
    assert len(found) == 4 and all("operand 0, or memory around it" in fault for fault in found), found
