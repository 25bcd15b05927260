"""When mul and transpose2d take the general path, held to measurements of both alternatives on an H100."""

from __future__ import annotations

import json
import statistics

import pytest
import torch

from benchmarks.harness.operands import restored
from tools.native_build import ROOT

from ...emulation.transpose.test_transpose_kernels import ENGINE, load_kernels, plan_of
from ..elementwise.test_elementwise_plan import FLOAT16, FLOAT32, Operands, load_planner

EVIDENCE = ROOT / "benchmarks/results/nvidia-h100-80gb-hbm3/general-path.jsonl"
FEW = 1 << 19  # up to this many values the general path has two per thread, else four
NUMBERS = {torch.float32: FLOAT32, torch.bfloat16: FLOAT16}  # of the planner's dtypes


@pytest.fixture(scope="module")
def elementwise():
    return load_planner()


@pytest.fixture(scope="module")
def transpose():
    return load_kernels()


def is_general(elementwise, out_shape, tensors, dtype: int) -> bool:
    """Whether the element-wise engine walks these tensors, the first of them dense, value by value."""
    dense = list(reversed(torch.empty(out_shape, device="meta").stride()))
    strides, offsets = [], [0]
    for tensor in tensors:
        expanded = tensor.expand(out_shape)
        strides.append(list(reversed(expanded.stride())))
        offsets.append(tensor.storage_offset())
    problem = Operands(list(reversed(out_shape)), [dense, *strides], [dtype] * (len(tensors) + 1), offsets, dtype)
    return problem.plan(elementwise, real_limits=True).path == "general"


def general(elementwise, transpose, line: dict) -> tuple[bool | None, int]:
    """Whether the planners choose the general path (None: the engine's tiles, not measured as such), and the number of values."""
    x, *others = restored(line)
    number = NUMBERS[x.dtype]
    if line["op"] == "mul":
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in (x, *others)))
        return is_general(elementwise, shape, (x, *others), number), shape.numel()
    address = (1 << 20) + x.storage_offset() * x.itemsize
    plan = plan_of(transpose, x.itemsize, tuple(x.shape), x.stride(), address, real_limits=True)
    # The engine copies bits, so the dtype stands for its size alone.
    if plan.path != ENGINE:
        return False, x.numel()
    return is_general(elementwise, x.mT.shape, [x.mT], number) or None, x.numel()


def test_chosen_paths_are_near_the_best_ones(elementwise, transpose):
    chosen, best, aten = [], [], []
    for line in map(json.loads, EVIDENCE.read_text().splitlines()[1:]):
        us = line["us"]
        by_value, values = general(elementwise, transpose, line)
        if by_value is None or line["kind"] == "t short8":  # narrow problems were measured with square tiles
            continue
        chosen.append(us["special"] if not by_value else us["general 2"] if values < FEW else us["general 4"])
        best.append(min(us[path] for path in ("special", "general 2", "general 4") if path in us))
        if not line["kind"].startswith("mis 1"):  # misaligned vectors have a path of their own
            aten.append(us["aten"] / chosen[-1])
    assert statistics.geometric_mean(a / b for a, b in zip(chosen, best)) < 1.03
    assert max(a / b for a, b in zip(chosen, best)) < 1.25
    assert min(aten) > 0.85 and statistics.geometric_mean(aten) > 1.2
