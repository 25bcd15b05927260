"""Convolutions of every kind at sizes that a GPU makes at once, and for every kernel one that is too large for that."""

from __future__ import annotations

from dataclasses import dataclass

from .cases import tensors

GRADIENTS = ("input", "weight", "bias")

# (signals, channels, places), output channels, groups.
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
    "one place": ((7, 40, 1), 40, 40),
    "short": ((50, 17, 9), 17, 17),
    "dense": ((2, 32, 129), 48, 1),
}


@dataclass(frozen=True)
class Many:
    """More outputs than kernels of few values take on a GPU of up to 148 multiprocessors."""

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
        """(input, weight, bias), grad_output and the steps."""
        (n, c, places), make = self.input_size, tensors.Maker(device, dtype)
        reach = self.dilation * (self.taps - 1)
        out = (places + 2 * self.padding - reach - 1) // self.stride + 1
        weight = make(self.out_channels, c // self.groups, self.taps), make(self.out_channels)
        x, grad = (tensors.LAYOUTS[self.layout](make(n, *size)) for size in ((c, places), (self.out_channels, out)))
        steps = {"stride": [self.stride], "padding": [self.padding], "dilation": [self.dilation], "groups": self.groups}
        return (x, *weight), grad, steps


# By the kernel that takes the forward: of half types, and of the others, if it isn't a library's. tests/plan/test_conv1d_paths.py asks the plan whether it does.
MANY = {
    ("few_taps", "tiles"): Many((4, 40, 2501), 40, 40, 5),
    ("direct", "tiles"): Many((4, 40, 2500), 40, 40, 5),
    ("mma", "tiles"): Many((4, 40, 2501), 40, 40, 31),
    ("mma, dilated", "tiles, dilated"): Many((4, 40, 2501), 40, 40, 5, dilation=3),
    ("mma, 2 channels", "tiles, 2 channels"): Many((8, 40, 2001), 20, 20, 7),
    ("mma", "polyphase, one segment"): Many((4, 40, 2501), 40, 40, 195),
    ("direct", "polyphase, one segment"): Many((40, 40, 200), 40, 40, 9),
    ("mma, 2 channels", "polyphase, two segments"): Many((40, 40, 1501), 40, 20, 3),
    ("mma, dilated", "polyphase, phases of outputs"): Many((4, 40, 2501), 40, 40, 9, dilation=3),
    ("mma, dilated", "polyphase, far phases of outputs"): Many((4, 40, 2501), 40, 40, 9, dilation=8),
    ("polyphase, phases of inputs", "polyphase, phases of inputs"): Many((4, 40, 5001), 40, 40, 25, stride=2),
    ("strided", "strided"): Many((4, 40, 5001), 40, 40, 5, stride=2),
    ("fan", "fan"): Many((4, 1, 3200), 32, 1, 7),
    ("fan, 2 steps", None): Many((16, 2, 6399), 48, 1, 9, stride=2),
    ("rows", "rows"): Many((1000, 40, 11), 40, 40, 3),
    ("rows, sliding", "rows, sliding"): Many((1000, 40, 11), 40, 40, 11),
    ("rows, dilated", "rows, dilated"): Many((1000, 40, 11), 40, 40, 5, dilation=2),
    ("rows, 4 channels", "rows, 4 channels"): Many((500, 1, 104), 8, 1, 5),
    ("rows, wide", "rows, wide"): Many((36000, 17, 9), 17, 17, 3),
    ("columns", "columns"): Many((4, 64, 2000), 64, 64, 4, layout="transposed"),
    ("columns, dilated", "columns, dilated"): Many((4, 64, 2000), 64, 64, 4, dilation=2, layout="transposed"),
    ("values", "values"): Many((8, 40, 1001), 40, 40, 3, layout="step2"),
    ("values, 4 channels", "values, 4 channels"): Many((4, 20, 2001), 80, 20, 3, stride=2, layout="step2"),
    ("values, channels first", "values, channels first"): Many((8, 63, 801), 63, 63, 3, layout="transposed"),
}


# The same of gradients of groups of many output channels: the kernels of half types, and of float32, by what they are compiled for. The
# input's: matrices with so many products or lanes; the weight's: matrices of so many channels by products, shifted or not, or lanes.
MANY_GRADIENTS = {
    ("matrices 16", "64 x 16", "lanes 12", "8 x 12"): Many((20, 1, 8000), 64, 1, 10, stride=5),
    ("matrices 32", "64 x 32", "lanes 32", "8 x 12"): Many((4, 2, 4001), 66, 1, 15, stride=2),
    ("matrices 64", "64 x 32", "lanes 32", "8 x 12"): Many((4, 8, 3000), 40, 1, 7, stride=3),
    ("matrices 16", "64 x 8", "lanes 8", "8 x 8"): Many((8, 2, 8000), 65, 1, 3, stride=5),
    ("matrices 16", "16 x 8", "lanes 4", "16 x 4"): Many((240, 1, 3000), 9, 1, 2, stride=2),
    ("matrices 16", "16 x 16", "lanes 12", "8 x 12"): Many((60, 3, 3000), 16, 1, 4, stride=2),
    ("matrices 32", "16 x 32", "lanes 32", "8 x 12"): Many((4, 8, 3000), 16, 1, 4, stride=2),
    ("lanes 4", "16 x 8, shifted", "lanes 4", "16 x 4"): Many((300, 1, 3001), 6, 1, 3, stride=2),
    ("lanes 8", "64 x 8, shifted", "lanes 8", "8 x 8"): Many((9, 2, 3001), 20, 1, 3, stride=2),
    ("lanes 12", "64 x 16, shifted", "lanes 12", "8 x 12"): Many((60, 3, 3008), 20, 1, 4, stride=3),
    ("lanes 16", "16 x 16, shifted", "lanes 16", "8 x 12"): Many((60, 3, 3002), 12, 1, 5, stride=2),
    ("lanes 32", "64 x 32, shifted", "lanes 32", "8 x 12"): Many((20, 3, 3001), 18, 1, 9, stride=2),
    ("lanes 32", "16 x 32, shifted", "lanes 32", "8 x 12"): Many((24, 3, 3003), 14, 1, 9, stride=2, dilation=3),
}


# Of half types by gemm_kernel, by how many times 16 output channels a block has. Taps are copied singly, by 2, 4 and 8.
MANY_PRODUCTS = {
    1: Many((4, 18, 4001), 48, 6, 11, stride=3),
    2: Many((8, 12, 8000), 62, 2, 9, stride=2, dilation=2),
    3: Many((16, 5, 6001), 47, 1, 20, stride=2),
    4: Many((30, 8, 4000), 121, 1, 15),
}


def make_call(kind: str, taps: int, dtype, stride=1, dilation=1, padding=None, layout="contiguous", seed=0):
    """(input, weight, bias), grad_output and the steps of a call."""
    (n, c, places), out, groups = KINDS[kind]
    make, span = tensors.Maker("cuda", dtype, seed), dilation * (taps - 1) + 1
    left, right = padding or (span // 2, span // 2)
    places = max(places, span - left - right)
    x, w, b = make(n, c, places), make(out, c // groups, taps), make(out)
    grad = make(n, out, (places + left + right - span) // stride + 1)
    x, grad = (tensors.LAYOUTS[layout](t) for t in (x, grad))
    return (x, w, b), grad, {"stride": [stride], "padding": [left, right], "dilation": [dilation], "groups": groups}
