"""Convolutions of every kind: small calls that several streams can run at once, and calls with many outputs that reach every
path."""

from __future__ import annotations

from dataclasses import dataclass

from ..cases import tensors

GRADIENTS = ("input", "weight", "bias")

# (signals, channels, positions), output channels, groups.
KINDS = {
    "depthwise": ((2, 40, 517), 40, 40),
    "depthwise, 768": ((1, 768, 133), 768, 768),
    "two outputs a channel": ((2, 24, 301), 48, 24),
    "three outputs a channel": ((3, 10, 257), 30, 10),
    "groups of two": ((2, 32, 260), 32, 16),
    "few into many": ((2, 3, 515), 70, 1),
    "one into many": ((4, 1, 1001), 33, 1),
    "many into one": ((2, 33, 515), 1, 1),
    "one channel": ((3, 1, 4001), 1, 1),
    "one position": ((7, 40, 1), 40, 40),
    "short": ((50, 17, 9), 17, 17),
    "dense": ((2, 32, 129), 48, 1),
}


@dataclass(frozen=True)
class Many:
    """A convolution with more outputs than a small problem has on a GPU of up to 148 SMs."""

    input_size: tuple[int, int, int]
    out_channels: int
    groups: int
    taps: int
    stride: int = 1
    dilation: int = 1
    layout: str = "contiguous"

    @property
    def padding(self) -> int:
        return self.dilation * (self.taps - 1) // 2

    def make(self, dtype, device="cuda"):
        """(input, weight, bias), grad_output, and the arguments stride, padding, dilation and groups."""
        (n, c, positions), make = self.input_size, tensors.Maker(device, dtype)
        reach = self.dilation * (self.taps - 1)
        out = (positions + 2 * self.padding - reach - 1) // self.stride + 1
        weight = make(self.out_channels, c // self.groups, self.taps), make(self.out_channels)
        x, grad = (tensors.LAYOUTS[self.layout](make(n, *size)) for size in ((c, positions), (self.out_channels, out)))
        steps = {"stride": [self.stride], "padding": [self.padding], "dilation": [self.dilation], "groups": self.groups}
        return (x, *weight), grad, steps


# tests/plan/conv1d/test_conv1d_plan.py checks that the plans of these calls use every path.
MANY = (
    Many((4, 40, 2501), 40, 40, 5),
    Many((4, 40, 2500), 40, 40, 5),
    Many((4, 40, 2501), 40, 40, 31),
    Many((4, 40, 2501), 40, 40, 5, dilation=3),
    Many((8, 40, 2001), 20, 20, 7),
    Many((4, 40, 2501), 40, 40, 195),
    Many((8, 256, 3001), 256, 256, 128),
    Many((40, 40, 200), 40, 40, 9),
    Many((40, 40, 1501), 40, 20, 3),
    Many((4, 40, 2501), 40, 40, 9, dilation=3),
    Many((4, 40, 2501), 40, 40, 9, dilation=8),
    Many((4, 40, 5001), 40, 40, 25, stride=2),
    Many((4, 40, 5001), 40, 40, 5, stride=2),
    Many((4, 1, 3200), 32, 1, 7),
    Many((16, 2, 6399), 48, 1, 9, stride=2),
    Many((1000, 40, 11), 40, 40, 3),
    Many((1000, 40, 11), 40, 40, 11),
    Many((1000, 40, 11), 40, 40, 5, dilation=2),
    Many((500, 1, 104), 8, 1, 5),
    Many((36000, 17, 9), 17, 17, 3),
    Many((4, 64, 2000), 64, 64, 4, layout="transposed"),
    Many((16, 768, 1024), 768, 768, 4, layout="transposed"),
    Many((4, 64, 2000), 64, 64, 4, dilation=2, layout="transposed"),
    Many((8, 40, 1001), 40, 40, 3, layout="step2"),
    Many((4, 20, 2001), 80, 20, 3, stride=2, layout="step2"),
    Many((8, 63, 801), 63, 63, 3, layout="transposed"),
    Many((32, 256, 1024), 256, 256, 3, stride=2, layout="transposed"),
    Many((8, 512, 1000), 512, 512, 31, layout="transposed"),
    Many((4, 67, 3001), 67, 67, 150, layout="transposed"),
    Many((16, 200, 401), 200, 200, 15, dilation=2, layout="transposed"),
    Many((8, 192, 3001), 192, 192, 40, stride=3, layout="transposed"),
    Many((8, 64, 2000), 1, 1, 7, layout="transposed"),
    Many((20, 1, 8000), 64, 1, 10, stride=5),
    Many((20, 1, 8000), 512, 1, 10, stride=5),
    Many((8, 1, 16000), 512, 1, 10, stride=5),
    Many((4, 2, 4001), 66, 1, 15, stride=2),
    Many((4, 8, 3000), 40, 1, 7, stride=3),
    Many((8, 2, 8000), 65, 1, 3, stride=5),
    Many((240, 1, 3000), 9, 1, 2, stride=2),
    Many((60, 3, 3000), 16, 1, 4, stride=2),
    Many((4, 8, 3000), 16, 1, 4, stride=2),
    Many((300, 1, 3001), 6, 1, 3, stride=2),
    Many((9, 2, 3001), 20, 1, 3, stride=2),
    Many((60, 3, 3008), 20, 1, 4, stride=3),
    Many((60, 3, 3002), 12, 1, 5, stride=2),
    Many((20, 3, 3001), 18, 1, 9, stride=2),
    Many((24, 3, 3003), 14, 1, 9, stride=2, dilation=3),
    Many((4, 18, 4001), 48, 6, 11, stride=3),
    Many((8, 12, 8000), 62, 2, 9, stride=2, dilation=2),
    Many((16, 5, 6001), 47, 1, 20, stride=2),
    Many((30, 8, 4000), 121, 1, 15),
    Many((4, 1, 9001), 48, 1, 80, stride=16),
    Many((8, 1, 4001), 33, 1, 49, stride=3, layout="step2"),
    Many((2, 2, 6001), 64, 1, 50, layout="transposed"),
    Many((3, 2, 2001), 35, 1, 160, dilation=2, layout="transposed"),
    Many((4, 96, 501), 96, 2, 33),
    Many((2, 128, 701), 128, 2, 128, dilation=2, layout="transposed"),
)


def make_call(kind: str, taps: int, dtype, stride=1, dilation=1, padding=None, layout="contiguous", seed=0):
    """(input, weight, bias), grad_output, and the arguments stride, padding, dilation and groups of a call."""
    (n, c, positions), out, groups = KINDS[kind]
    make, span = tensors.Maker("cuda", dtype, seed), dilation * (taps - 1) + 1
    left, right = padding or (span // 2, span // 2)
    positions = max(positions, span - left - right)
    x, w, b = make(n, c, positions), make(out, c // groups, taps), make(out)
    grad = make(n, out, (positions + left + right - span) // stride + 1)
    x, grad = (tensors.LAYOUTS[layout](t) for t in (x, grad))
    return (x, w, b), grad, {"stride": [stride], "padding": [left, right], "dilation": [dilation], "groups": groups}
