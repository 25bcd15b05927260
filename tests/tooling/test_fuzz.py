"""benchmarks.random.fuzz: random calls of every operator, and planted faults that it must notice."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import torch_ops
from benchmarks.random import fuzz, problems
from benchmarks.rooms import rooms

from ..support.params import each_device


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
        (wrong_value, "values"),
        (wrong_strides, "metadata"),
        (written_operand, "operand 0"),
        (overrun, "operand 0"),
        (unpredicted, "Meta kernel"),
        (unrepeatable, "other bits"),
    ],
)
def test_planted_faults_are_noticed(planted, message):
    call = dataclasses.replace(rooms()["elementwise"].calls()["mul"], ours=planted)
    found = []
    for seed in range(40):
        _, case = fuzz.draw("mul", seed)
        if not case.name.startswith("scalar"):
            found += fuzz.faults("mul", call, case, "cpu")
    assert any(fault.startswith(message) or message in fault for fault in found), found[:3]
