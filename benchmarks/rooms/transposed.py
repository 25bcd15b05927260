"""Transposed convolutions: the layers that upsample in neural codecs and vocoders, beside ATen.

A problem is described by the convolution whose input gradient it computes. Operands are (input, weight, stride, padding, output
padding, dilation, groups). A backward has the gradient of the output in front of them.
"""

import dataclasses
import itertools
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.room import Call, Case
from benchmarks.rooms import convolutions
from benchmarks.rooms.convolutions import Problem, size_text
from benchmarks.rooms.dot import rounded_once
from benchmarks.rooms.reduce import sum_limit

aten = torch.ops.aten
FORWARD, BACKWARD = "conv_transpose1d", "conv_transpose1d-backward"


@dataclasses.dataclass(frozen=True)
class Transposed:
    """The sizes of a transposed convolution of (batch, channels, length)."""

    batch: int
    channels: int
    length: int
    out_channels: int
    taps: int
    stride: int = 1
    padding: int = 0
    output_padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def convolution(self) -> Problem:
        """The convolution that takes the output's gradient to the input's."""
        span = self.dilation * (self.taps - 1)
        length = (self.length - 1) * self.stride - 2 * self.padding + span + self.output_padding + 1
        return Problem(
            self.batch,
            self.out_channels,
            length,
            self.taps,
            self.channels,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        )

    @property
    def name(self) -> str:
        depthwise = self.channels == self.groups == self.out_channels > 1
        shape = f"({','.join(map(size_text, (self.batch, self.channels, self.length)))})"
        words = [
            "dw" if depthwise else "",
            shape if self.out_channels == self.channels else f"{shape}->{self.out_channels}",
            f"k{self.taps}",
            f"s{self.stride}" if self.stride > 1 else "",
            f"p{self.padding}" if self.padding else "",
            f"op{self.output_padding}" if self.output_padding else "",
            f"d{self.dilation}" if self.dilation > 1 else "",
            f"g{self.groups}" if self.groups > 1 and not depthwise else "",
        ]
        return " ".join(filter(None, words))

    @property
    def steps(self) -> tuple[int, int, int, int, int]:
        return self.stride, self.padding, self.output_padding, self.dilation, self.groups

    def case(self, op: str, dtype: torch.dtype, **options) -> Case:
        def build(device: str, seed: int) -> tuple:
            m, of = Maker(device, dtype, seed), self.convolution
            grad = [m(*of.input_shape)] if op == BACKWARD else []
            return *grad, m(*of.out_shape), m(*of.weight_shape), *self.steps

        return Case(op, op, self.name, DTYPE_NAMES[dtype], build, **{"peers": (), **options})


def depthwise(batch: int, channels: int, length: int, taps: int, stride: int, **options) -> Transposed:
    return Transposed(batch, channels, length, channels, taps, stride, groups=channels, **options)


BIGVGAN = depthwise(4, 512, 8192, 12, 2)
LAYERS = [
    BIGVGAN,
    depthwise(8, 128, 65536, 12, 2),
    depthwise(16, 256, 4096, 4, 2, padding=1),
    # The groups of pytorch/pytorch#47341.
    Transposed(8, 512, 4096, 512, 4, 2, padding=1, groups=512),
    Transposed(8, 512, 4096, 1024, 5, 2, padding=2, output_padding=1, groups=512),
    Transposed(16, 256, 4096, 256, 8, 4, padding=2, groups=64),
    # Into few channels: the last layers of generators, and a synthesis by a filter bank.
    Transposed(16, 64, 16384, 1, 16, 8, padding=4),
    Transposed(16, 32, 65536, 2, 4, 2, padding=1),
    # HiFi-GAN V1, EnCodec at 24 kHz and DAC at 44 kHz: dense layers, which ATen computes.
    Transposed(16, 512, 32, 256, 16, 8, padding=4),
    Transposed(16, 128, 2048, 64, 4, 2, padding=1),
    Transposed(16, 64, 4096, 32, 4, 2, padding=1),
    Transposed(8, 512, 75, 256, 16, 8),
    Transposed(8, 64, 12000, 32, 4, 2),
    Transposed(4, 1536, 86, 768, 16, 8, padding=4),
    Transposed(4, 192, 22016, 96, 4, 2, padding=1),
]


def cases() -> list[Case]:
    kinds = itertools.product(LAYERS, (FORWARD, BACKWARD), (F32, BF16))
    return [layer.case(op, dtype, headline=layer is BIGVGAN) for layer, op, dtype in kinds]


# ---------------------------------------------------------------- calls


def _aten(x, weight, stride, padding, output_padding, dilation, groups):
    return torch.conv_transpose1d(x, weight, None, stride, padding, output_padding, groups, dilation)


def _aten_backward(g, x, weight, stride, padding, output_padding, dilation, groups):
    found = aten.convolution_backward(
        g, x, weight, None, [stride], [padding], [dilation], True, [output_padding], groups, [True, True, False]
    )
    return found[:2]


def _reference(x, weight, *sizes) -> torch.Tensor:
    return _aten(x.double(), weight.double(), *sizes)


def _reference_backward(g, x, weight, *sizes) -> tuple:
    return _aten_backward(g.double(), x.double(), weight.double(), *sizes)


def calls() -> dict[str, Call]:
    import torch_ops

    def forward(x, weight, stride, padding, output_padding, dilation, groups):
        return torch_ops.conv_transpose1d(x, weight, None, stride, padding, output_padding, groups, dilation)

    def backward(g, x, weight, stride, padding, output_padding, dilation, groups):
        """The two calls that autograd makes."""
        steps = stride, padding, dilation, groups
        to_weight = torch_ops.conv1d_backward(x, g, weight, *steps, (False, True, False))[1]
        return torch_ops.conv1d(g, weight, None, *steps), to_weight

    def call(ours: Callable, theirs: Callable, reference: Callable) -> Call:
        theirs = convolutions.autotuned(theirs)
        return Call(ours, theirs, reference, limit=sum_limit, gpuopt_limit=rounded_once)

    return {
        FORWARD: call(forward, _aten, _reference),
        BACKWARD: call(backward, _aten_backward, _reference_backward),
    }
