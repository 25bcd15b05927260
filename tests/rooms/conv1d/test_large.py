"""Convolutions with more than 2^31 inputs or outputs: one row, many rows and channels-last, forward and backward.

A closed form gives the expected values.
"""

from __future__ import annotations

import math

import pytest
import torch

import torch_ops

from ...support.large import PAST, PLACES, check, filled

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib
BF16 = torch.bfloat16


def _x(i):
    """Small integers. Sums of up to seven of them, times up to three, are exact in bfloat16."""
    return i % 13


def _weight_of(channel):
    return channel % 3 + 1


def _filled(shape: tuple, last: bool) -> torch.Tensor:
    """A tensor whose elements are _x of their index in memory."""
    n, c, size = shape
    flat = filled(math.prod(shape), _x, BF16)
    return flat.view(n, size, c).mT if last else flat.view(shape)


def _memory(t: torch.Tensor, last: bool) -> torch.Tensor:
    ordered = t.mT if last else t
    assert ordered.is_contiguous(), f"the result has strides {t.stride()}"
    return ordered.reshape(-1)


def _position(i, shape: tuple, last: bool) -> tuple:
    """(signal, channel, position) of an index in memory."""
    _, c, size = shape
    return (i // c // size, i % c, i // c % size) if last else (i // size // c, i // size % c, i % size)


def _at(n, channel, position, shape: tuple, last: bool):
    """The index in memory of (signal, channel, position): the inverse of _position."""
    _, c, size = shape
    return (n * size + position) * c + channel if last else (n * c + channel) * size + position


# (input, taps, stride, (left, right), dilation, channels-last), and the GPU memory of the test in GiB.
CALLS = {
    "one row": ((1, 1, PAST), 3, 1, (1, 1), 1, False, 16),
    "one row, causal": ((1, 1, PAST), 7, 1, (6, 0), 1, False, 16),
    "one row, step 2": ((1, 1, PAST), 3, 2, (1, 1), 1, False, 14),
    "one row, dilated": ((1, 1, PAST), 2, 1, (0, 0), 2**30, False, 14),
    "rows": ((33, 65, 1_001_303), 4, 1, (3, 0), 1, False, 16),
    "rows, step 3": ((33, 65, 1_001_303), 4, 3, (2, 1), 1, False, 12),
    "channels-last": ((17, 64, 1_973_801), 4, 1, (1, 2), 1, True, 16),
    "33 channels, last": ((5, 33, 13_015_059), 3, 1, (2, 0), 1, True, 16),
    "channels-last, step 2": ((17, 64, 1_973_801), 3, 2, (1, 1), 1, True, 20),
    "signals beyond 2^31": ((PAST, 1, 1), 1, 1, (0, 0), 1, False, 16),
    "signals of two channels": ((536_872_003, 2, 2), 3, 1, (1, 1), 1, False, 16),
    "channels beyond 2^30": ((1, 2**30 + 4097, 2), 2, 1, (1, 0), 1, False, 22),
    "channels beyond 2^30, last": ((1, 2**30 + 4097, 2), 2, 1, (1, 0), 1, True, 22),
}  # fmt: skip
each_call = pytest.mark.parametrize(
    "call", [pytest.param(c[:-1], marks=gib(c[-1]), id=name) for name, c in CALLS.items()]
)


def _weight(channels: int, taps: int) -> torch.Tensor:
    flat = filled(channels * taps, lambda i: _weight_of(i // taps), BF16)
    return flat.view(channels, 1, taps)


def _output(shape: tuple, taps: int, stride: int, padding: tuple, dilation: int) -> tuple:
    n, c, size = shape
    return n, c, (size + sum(padding) - dilation * (taps - 1) - 1) // stride + 1


@each_call
def test_forward(call):
    shape, taps, stride, padding, dilation, last = call
    out = _output(shape, taps, stride, padding, dilation)
    weight = _weight(shape[1], taps)
    got = torch_ops.conv1d_act(_filled(shape, last), weight, None, stride, padding, dilation, shape[1])
    assert got.shape == out

    def expected(i):
        n, channel, position = _position(i, out, last)
        total = torch.zeros_like(i)
        for k in range(taps):
            at = position * stride - padding[0] + k * dilation
            total += ((at >= 0) & (at < shape[2])) * _x(_at(n, channel, at, shape, last))
        return total * _weight_of(channel)

    check(_memory(got, last), expected)


@each_call
def test_gradient_of_input(call):
    shape, taps, stride, padding, dilation, last = call
    out = _output(shape, taps, stride, padding, dilation)
    like = torch.empty(1, dtype=BF16, device="cuda")
    n, c, size = shape
    x = like.expand(n, size, c).mT if not last else torch.empty((n, size, c), dtype=BF16, device="cuda").mT
    given = stride, padding, dilation, c, (True, False, False)
    got = torch_ops.conv1d_backward(_filled(out, last), x, _weight(c, taps), *given)[0]

    def expected(i):
        n, channel, position = _position(i, shape, last)
        total = torch.zeros_like(i)
        for k in range(taps):
            at = position + padding[0] - k * dilation
            inside = (at >= 0) & (at % stride == 0) & (at // stride < out[2])
            total += inside * _x(_at(n, channel, at // stride, out, last))
        return total * _weight_of(channel)

    check(_memory(got, last), expected)


@gib(14)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize("shape", [(1, 1, PAST), (33, 65, 1_001_303)], ids=str)
def test_gradient_of_weight(shape, last):
    """grad_output is one at a few positions and zero elsewhere. Each tap's gradient is the sum of the inputs that it multiplies
    there."""
    x, taps = _filled(shape, last), 5
    grad = torch.zeros_like(x)
    numel = math.prod(shape)
    positions = sorted({p for p in (*PLACES, 7, numel // 3, numel - 9) if p < numel})
    want = torch.zeros(shape[1], taps)
    for p in positions:
        _memory(grad, last)[p] = 1
        n, channel, position = _position(p, shape, last)
        for k in range(taps):
            at = position - 2 + k
            want[channel, k] += _x(_at(n, channel, at, shape, last)) if 0 <= at < shape[2] else 0
    got = torch_ops.conv1d_backward(grad, x, x.new_zeros(shape[1], 1, taps), 1, 2, 1, shape[1], (False, True, True))
    assert torch.equal(got[1][:, 0].cpu().float(), want)
    assert got[2].sum().item() == len(positions)


@gib(14)
@pytest.mark.parametrize("positions", [2**27 + 1, 2**27 + 8], ids=["odd rows", "whole vectors"])
def test_many_multiply_adds(positions):
    """More than 2^31 outputs of 36 multiply-adds each (4 input channels, 9 taps), in 16 output channels.

    The sums, up to 1296, are exact in float16.
    """
    taps, ins, outs, size = 9, 4, 16, 2 * positions - 1
    x = filled(ins * size, _x, torch.float16).view(1, ins, size)
    weight = _weight_of(torch.arange(outs, device="cuda")).half().view(-1, 1, 1).expand(outs, ins, taps)
    got = torch_ops.conv1d(x, weight, stride=2, padding=4)

    def expected(i):
        channel, position = i // positions, i % positions
        total = torch.zeros_like(i)
        for k in range(taps):
            at = 2 * position - 4 + k
            inside = (at >= 0) & (at < size)
            for c in range(ins):
                total += inside * _x(c * size + at)
        return total * _weight_of(channel)

    check(got.view(-1), expected)


@gib(10)
@pytest.mark.parametrize("positions", [33_554_433, 33_554_436], ids=["odd rows", "whole quads"])
def test_gradients_of_many_channels(positions):
    """Gradients of input and weight, with more than 2^31 values of grad_output in 65 channels.

    Only three channels have taps that are not zero. The weight's gradient is tested with a few ones in grad_output.
    """
    channels, taps, ones = 65, 3, (0, 31, 64)
    grad = filled(channels * positions, _x, BF16).view(1, channels, positions)
    weight = torch.zeros(channels, 1, taps, dtype=BF16, device="cuda")
    weight[list(ones)] = 1
    size = 2 * positions - 1
    x = filled(size, lambda i: i % 11, BF16).view(1, 1, size)
    got = torch_ops.conv1d_backward(grad, x, weight, 2, 1, 1, 1, (True, False, False))[0]

    def expected(i):
        total = torch.zeros_like(i)
        for k in range(taps):
            at = i + 1 - k
            inside = (at % 2 == 0) & (at >= 0) & (at // 2 < positions)
            for channel in ones:
                total += inside * _x(channel * positions + at // 2)
        return total

    check(got.view(-1), expected)
    grad.zero_()
    spots = [(channel, position) for channel in (0, 30, 64) for position in (0, 5, positions // 2, positions - 1)]
    want = torch.zeros(channels, taps)
    for channel, position in spots:
        grad[0, channel, position] = 1
        for k in range(taps):
            at = 2 * position - 1 + k
            want[channel, k] += at % 11 if 0 <= at < size else 0
    got = torch_ops.conv1d_backward(grad, x, weight, 2, 1, 1, 1, (False, True, False))[1]
    assert torch.equal(got[:, 0].cpu().float(), want)


@gib(2)
def test_gradient_of_weight_of_one_value_many_times():
    """A gradient of 2^33 equal products, from an expanded tensor. Each product must be counted."""
    one = torch.ones(1, device="cuda").expand(4, 2, 2**30)
    got = torch_ops.conv1d_backward(one, one, one.new_zeros(2, 1, 3), 1, 1, 1, 2, (False, True, False))[1]
    assert got[:, 0, 1].tolist() == pytest.approx([2.0**32] * 2, rel=1e-5)
    assert got[:, 0, 0].tolist() == pytest.approx([2.0**32] * 2, rel=1e-5)


@gib(14)
def test_small_problem_with_large_strides():
    """A small problem with strides of the tensor beyond 2^32."""
    stride, n = 2**22 + 7, 1030
    memory = filled(stride * n, _x, BF16)
    far, near = memory.as_strided((3, 5, n), (1, 2, stride)), memory.as_strided((n, 5, 40), (stride, 50, 1))
    for x in (far, far.mT, near):
        channels = x.shape[1]
        w = _weight(channels, 3)
        dense = x.contiguous()
        assert torch.equal(
            torch_ops.conv1d(x, w, padding=1, groups=channels), torch_ops.conv1d(dense, w, padding=1, groups=channels)
        )
        ours, theirs = (torch_ops.conv1d_backward(t, t, w, 1, 1, 1, channels) for t in (x, dense))
        for k, (got, want) in enumerate(zip(ours, theirs, strict=True)):
            assert torch.allclose(got.float(), want.float(), rtol=1e-2), f"gradient {k}"


@gib(14)
@pytest.mark.parametrize("dims", [(0, 1, 2), (1, 2, 0), (1, 0, 2), (2, 1, 0)])
def test_small_problem_with_large_strides_of_the_weight(dims):
    """The weight of a small problem has a stride of about 2^29 in one dimension. 32 bits hold the stride, but not five times it."""
    stride = 2**29 - 8
    memory = filled(5 * stride, _weight_of, BF16)
    w = memory.as_strided((5, 3, 5), (stride, 5, 1)).permute(dims)
    x = filled(w.shape[1] * 100, _x, BF16).view(1, w.shape[1], 100)
    assert torch.equal(torch_ops.conv1d(x, w, padding=1), torch_ops.conv1d(x, w.contiguous(), padding=1))
    grad = filled(w.shape[0] * 100, _x, BF16).view(1, w.shape[0], 100)[..., : 103 - w.shape[2]]
    ours, theirs = (torch_ops.conv1d_backward(grad, x, t, padding=1)[0] for t in (w, w.contiguous()))
    assert torch.allclose(ours.float(), theirs.float(), rtol=1e-2)


@gib(14)
def test_updates_with_a_large_state():
    n, channels, size = 2**21 + 5, 64, 17
    state = filled(n * channels * size, _x, BF16).view(n, channels, size)
    x = filled(n * channels, lambda i: i % 5, BF16).view(n, channels)
    got = torch_ops.causal_conv1d_update(x, state, _weight(channels, 3)[:, 0])

    def before(i):
        return _x(i * size + size - 1) + _x(i * size + size - 2) + i % 5

    check(got.view(-1), lambda i: before(i) * _weight_of(i % channels))
    check(state.view(-1), lambda i: torch.where(i % size == size - 1, i // size % 5, _x(i + 1)))


@gib(24)
def test_numpys_convolution():
    a = filled(PAST, _x, BF16)
    v = torch.tensor([1.0, 2.0, 0.0, 3.0], dtype=BF16, device="cuda")
    got = torch_ops.convolve(a, v, "valid")
    check(got, lambda i: _x(i + 3) + 2 * _x(i + 2) + 3 * _x(i))
