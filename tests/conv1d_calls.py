"""Convolutions of every kind, at sizes that fill a GPU."""

from __future__ import annotations

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
