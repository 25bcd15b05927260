"""When mul and transpose2d take the general path, held to measurements of both alternatives on an H100."""

from __future__ import annotations

import json
import math
import statistics

import pytest
import torch

from benchmarks.operands import Maker
from tools.native_build import ROOT

from ..emulation.test_transpose_kernels import ENGINE, load_kernels, plan_of
from .test_elementwise_plan import FLOAT16, FLOAT32, Operands, load_planner

EVIDENCE = ROOT / "benchmarks/results/nvidia-h100-80gb-hbm3/general-path.jsonl"
FEW = 1 << 19  # up to this many values the general path has two per thread, else four
DTYPES = {"float32": (torch.float32, FLOAT32), "bfloat16": (torch.bfloat16, FLOAT16)}


def rows(n: int, width: int) -> int:
    return max(1, n // width)


def both_layouts(m: Maker, n: int, *image: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (rows(n, math.prod(image)), *image)
    return m(*shape), m.channels_last(*shape)


def mul_operands(m: Maker, kind: str, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The operands of a line of the evidence, each of about n values."""
    side = int(n**0.5)
    makers = {
        "t square": lambda: (m(side, side), m(side, side).t()),
        "t odd": lambda: (m(side | 1, side | 1), m(side | 1, side | 1).t()),
        "t narrow18": lambda: (m(n // 18, 18), m(18, n // 18).t()),
        "t short8": lambda: (m(8, n // 8), m(n // 8, 8).t()),
        "mis 1-1": lambda: (m.misaligned(n), m.misaligned(n)),
        "mis 1-0": lambda: (m.misaligned(n), m(n)),
        "crop100": lambda: (m.columns(rows(n, 100), 100, 103), m(rows(n, 100), 100)),
        "cropmis99": lambda: (m.columns(rows(n, 99), 99, 103), m(rows(n, 99), 99)),
        "layouts": lambda: (m(rows(n, 12544), 64, 14, 14), m.channels_last(rows(n, 12544), 64, 14, 14)),
        "row odd": lambda: (m(rows(n, 63), 63), m(63)),
        "layouts c7": lambda: both_layouts(m, n, 7, 138, 85),
        "layouts c3": lambda: both_layouts(m, n, 3, 32, 32),
        "layouts c5": lambda: both_layouts(m, n, 5, 64, 52),
        "step2": lambda: (m(n // 1000, 1000), m(n // 1000, 2000)[:, ::2]),
        "step3 odd": lambda: (m(n // 333, 333), m(n // 333, 999)[:, ::3]),
        "last0": lambda: (m(n // 49, 49), m(n // 49, 49, 4)[:, :, 0]),
        "narrow6": lambda: (m(n // 6, 6), m(6, n // 6).t()),
    }
    return makers[kind]()


def transpose_operand(m: Maker, kind: str, n: int) -> torch.Tensor:
    side = int(n**0.5)
    whole = side // 8 * 8
    makers = {
        "square": lambda: m(whole, whole),
        "odd": lambda: m(side | 1, side | 1),
        "mis": lambda: m.misaligned(whole**2).view(whole, whole),
        "mis wide": lambda: m.misaligned(n // 24 * 24).view(24, n // 24),
        "narrow12": lambda: m(n // 12, 12),
        "short8": lambda: m(8, n // 8),
        "batch7x9": lambda: m(rows(n, 63), 7, 9),
        "nchw49": lambda: m(rows(n, 103 * 49), 103, 49),
        "nhwc24": lambda: m(rows(n, 263 * 24), 263, 24),
        "gaps": lambda: m.columns(side, side, side + 5),
        "batch100": lambda: m(rows(n, 10000), 100, 100),
    }
    return makers[kind]()


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


def general(elementwise, transpose, line: dict) -> tuple[bool, int]:
    """Whether the planners choose the general path, and the number of values."""
    dtype, number = DTYPES[line["dtype"]]
    bytes_of_all, maker = 1 << line["log2_bytes"], Maker("meta", dtype, 0)
    if line["op"] == "mul":
        tensors = mul_operands(maker, line["kind"], bytes_of_all // 3 // dtype.itemsize)
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        return is_general(elementwise, shape, tensors, number), shape.numel()
    x = transpose_operand(maker, line["kind"], bytes_of_all // 2 // dtype.itemsize)
    address = (1 << 20) + x.storage_offset() * dtype.itemsize
    plan = plan_of(transpose, dtype.itemsize, tuple(x.shape), x.stride(), address, real_limits=True)
    # The engine copies bits, so the dtype stands for its size alone.
    return plan.path == ENGINE and is_general(elementwise, x.mT.shape, [x.mT], number), x.numel()


def test_chosen_paths_are_near_the_best_ones(elementwise, transpose):
    chosen, best, aten = [], [], []
    for line in map(json.loads, EVIDENCE.read_text().splitlines()[1:]):
        us = line["us"]
        by_value, values = general(elementwise, transpose, line)
        chosen.append(us["special"] if not by_value else us["general 2"] if values < FEW else us["general 4"])
        best.append(min(us[path] for path in ("special", "general 2", "general 4") if path in us))
        if not line["kind"].startswith("mis 1"):  # misaligned vectors have a path of their own
            aten.append(us["aten"] / chosen[-1])
    assert statistics.geometric_mean(a / b for a, b in zip(chosen, best)) < 1.03
    assert max(a / b for a, b in zip(chosen, best)) < 1.25
    assert min(aten) > 0.85 and statistics.geometric_mean(aten) > 1.2
