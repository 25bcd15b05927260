"""Convolution problems as plain numbers, for tests of plans and of emulated kernels."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field

from tools.test_build import ROOT

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = PASSES = range(3)
FOLDERS = ("forward", "input_gradient", "weight_gradient")
FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = 6, 7, 8, 9
ITEM = {FLOAT16: 2, BFLOAT16: 2, FLOAT32: 4, FLOAT64: 8}
NONE, RELU, SILU, GELU = range(4)
SM_75, SM_90 = 64 << 10, 227 << 10  # bytes of shared memory that a block can have


def own_paths() -> list[tuple[int, str]]:
    """(pass, name) of every path that csrc/conv1d declares. Input gradients may also use paths of the forward pass."""
    return [
        (which, name)
        for which, folder in enumerate(FOLDERS)
        for path in sorted((ROOT / "csrc" / "conv1d" / folder).glob("*.h"))
        for name in re.findall(r'kName = "(\w+)"', path.read_text())
    ]


@dataclass
class Device:
    sms: int = 132
    shared_bytes: int = SM_90
    launch_outputs: int = 2**31 - 1024

    def numbers(self) -> ctypes.Array:
        return (ctypes.c_int64 * 3)(*vars(self).values())


@dataclass
class Signal:
    data: int
    batch_stride: int
    channel_stride: int
    stride: int
    channels: int  # per group
    size: int


@dataclass
class Weight:
    data: int
    group_stride: int
    out_stride: int
    in_stride: int
    tap_stride: int


@dataclass
class Problem:
    """The members of gpuopt::conv1d::Problem, in the same order."""

    from_: Signal
    to: Signal
    weight: Weight
    bias: int = 0
    bias_stride: int = 1
    dtype: int = FLOAT32
    batch: int = 1
    groups: int = 1
    taps: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    activation: int = NONE
    item: int = field(init=False)

    def __post_init__(self):
        self.item = ITEM[self.dtype]

    def numbers(self) -> ctypes.Array:
        from_, to, weight, *rest, _ = vars(self).values()
        flat = [*vars(from_).values(), *vars(to).values(), *vars(weight).values(), *rest]
        return (ctypes.c_int64 * len(flat))(*flat)

    @property
    def span(self) -> int:
        return (self.taps - 1) * self.dilation

    @property
    def outputs(self) -> int:
        return self.batch * self.groups * self.to.channels * self.to.size

    @property
    def macs(self) -> int:
        return self.outputs * self.from_.channels * self.taps


def strides_of(layout: str, batch: int, channels: int, size: int, values: int) -> tuple[int, int, int]:
    """The strides of a tensor (batch, channels, size), in elements. `values` is the number of values in a vector."""
    whole, whole_channels = -(-size // values) * values, -(-channels // values) * values
    return {
        "rows": (channels * size, size, 1),
        "whole rows": (channels * whole, whole, 1),
        "rows apart": (channels * (size + 1) + 3, size + 1, 1),
        "channels last": (channels * size, 1, channels),
        "whole channels": (size * whole_channels, 1, whole_channels),
        "batch last": (1, size * batch, batch),
        "strided": (2 * channels * size, 2 * size, 2),
        "expanded": (0, 0, 0),
        "expanded rows": (0, size, 1),
    }[layout]


def output_size(size: int, taps: int, stride: int = 1, padding: tuple[int, int] = (0, 0), dilation: int = 1) -> int:
    """The number of outputs. It is at least one: padding is added at the end if needed."""
    return (max(size + sum(padding) - (taps - 1) * dilation, 1) - 1) // stride + 1


def problem_of(
    batch, groups, channels, size, taps, dtype=FLOAT32, stride=1, padding=(0, 0), dilation=1, layouts=("rows", "rows"), offsets=(0, 0)
) -> Problem:  # fmt: skip
    """A problem with made-up addresses. `channels` are the input and output channels per group.

    `offsets` are the distances of input and output from aligned addresses, in elements.
    """
    sizes = size, output_size(size, taps, stride, padding, dilation)
    signals = []
    for i, (group_channels, length) in enumerate(zip(channels, sizes)):
        strides = strides_of(layouts[i], batch, groups * group_channels, length, 16 // ITEM[dtype])
        signals.append(Signal((i + 1 << 40) + offsets[i] * ITEM[dtype], *strides, group_channels, length))
    ci, co = channels
    weight = Weight(3 << 40, co * ci * taps, ci * taps, taps, 1)
    return Problem(*signals, weight, 0, 1, dtype, batch, groups, taps, stride, padding[0], dilation)
