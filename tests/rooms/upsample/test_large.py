"""Upsampling with more than 2^31 inputs or outputs: one plane, many planes and channels_last, forward and backward.

A closed form gives the expected values. The calls include the calls of PyTorch's issues 81665, 129118 and 141831, which ATen
refused or answered with zeros.
"""

from __future__ import annotations

import math

import pytest
import torch

import torch_ops.nn
from benchmarks.references.upsample import source_index

from ...cases.upsample import MODES
from ...support.large import CHUNK, PAST, check, filled

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib
each_mode = pytest.mark.parametrize("mode", MODES)
CHANNELS_LAST = "channels_last"
PLANES = "contiguous"


def _x(i):
    """Small integers. They and the sums of four of them are exact in every dtype."""
    return i % 61


def _filled(shape: tuple, layout: str, dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose elements are _x of their index in memory."""
    n, c, h, w = shape
    flat = filled(math.prod(shape), _x, dtype)
    return flat.view(n, h, w, c).permute(0, 3, 1, 2) if layout == CHANNELS_LAST else flat.view(shape)


def _memory(t: torch.Tensor, layout: str) -> torch.Tensor:
    """The elements in the order of memory."""
    ordered = t.permute(0, 2, 3, 1) if layout == CHANNELS_LAST else t
    assert ordered.is_contiguous(), f"the result has strides {t.stride()}"
    return ordered.reshape(-1)


def _position(i: torch.Tensor, shape: tuple, layout: str) -> tuple:
    """(image or plane, row, column, channel) of an index in memory. In the contiguous layout, the channel is 0."""
    _, c, h, w = shape
    inner = c if layout == CHANNELS_LAST else 1
    pixel = i // inner
    return pixel // w // h, pixel // w % h, pixel % w, i % inner


def _at(plane, row, column, channel, shape: tuple, layout: str) -> torch.Tensor:
    """The index in memory: the inverse of _position."""
    _, c, h, w = shape
    return ((plane * h + row) * w + column) * (c if layout == CHANNELS_LAST else 1) + channel


def _sources(size: tuple, out: tuple, mode: str) -> tuple:
    return tuple(
        source_index(n, o, None, mode == "nearest-exact", "cuda").cuda() for n, o in zip(size[2:], out, strict=True)
    )


def _check_forward(mode: str, size: tuple, out: tuple, layout: str, dtype: torch.dtype) -> None:
    forward, *_ = MODES[mode]
    rows, columns = _sources(size, out, mode)
    result = forward.op(_filled(size, layout, dtype), out)

    def expected(i):
        plane, row, column, channel = _position(i, result.shape, layout)
        return _x(_at(plane, rows[row], columns[column], channel, size, layout))

    check(_memory(result, layout), expected)


def _check_backward(mode: str, size: tuple, out: tuple, layout: str, dtype: torch.dtype) -> None:
    """Checks a backward with windows of at most 2 by 2 pixels. Some windows are empty if the output is smaller."""
    *_, backward = MODES[mode]
    grad_size = (*size[:2], *out)
    windows = [torch.bincount(s, minlength=n) for s, n in zip(_sources(size, out, mode), size[2:], strict=True)]
    starts = [counts.cumsum(0) - counts for counts in windows]
    assert all(counts.max() <= 2 for counts in windows)
    result = backward.op(_filled(grad_size, layout, dtype), out, size)

    def expected(i):
        plane, row, column, channel = _position(i, size, layout)
        total = torch.zeros_like(i)
        for down in range(2):
            for right in range(2):
                inside = (down < windows[0][row]) & (right < windows[1][column])
                total += inside * _x(
                    _at(plane, starts[0][row] + down, starts[1][column] + right, channel, grad_size, layout)
                )
        return total

    check(_memory(result, layout), expected)


# (input size, output size, memory format, dtype), and the GPU memory of the test in GiB.
CALLS = {
    "issue 81665": ((32, 64, 512, 512), (1024, 1024), CHANNELS_LAST, torch.float32, 22),
    "issue 129118": ((1025, 1024, 1, 1024), (2, 2048), CHANNELS_LAST, torch.float32, 32),
    "issue 141831": ((17, 256, 512, 512), (1024, 1024), CHANNELS_LAST, torch.bfloat16, 23),
    "planes": ((17, 256, 512, 512), (1024, 1024), PLANES, torch.bfloat16, 23),
    "planes of odd sizes": ((33, 65, 509, 511), (1013, 1019), PLANES, torch.uint8, 15),
    "three channels": ((8, 3, 5003, 5003), (9001, 9999), CHANNELS_LAST, torch.uint8, 15),
    "33 channels": ((3, 33, 3001, 3003), (4799, 4801), CHANNELS_LAST, torch.uint8, 15),
    "both beyond 2^31": ((5, 64, 2600, 2601), (2601, 2602), PLANES, torch.uint8, 16),
    "both beyond 2^31, channels_last": ((5, 64, 2600, 2601), (2601, 2602), CHANNELS_LAST, torch.uint8, 16),
    "one plane": ((1, 1, 23_171, 23_176), (46_342, 46_352), PLANES, torch.uint8, 15),
    "one plane by a fraction": ((1, 1, 30_011, 40_009), (46_343, 46_351), PLANES, torch.uint8, 16),
    "one plane down": ((1, 1, 46_342, 46_352), (23_171, 30_001), PLANES, torch.uint8, 15),
    "one plane to one as large": ((1, 1, 46_341, 46_351), (46_351, 46_343), PLANES, torch.uint8, 16),
    "one plane in channels_last": ((1, 2, 32_771, 32_779), (33_791, 40_961), CHANNELS_LAST, torch.uint8, 17),
    "down": ((9, 64, 2000, 2001), (1000, 1501), PLANES, torch.uint8, 15),
    "down, channels_last": ((9, 64, 2000, 2001), (1000, 1501), CHANNELS_LAST, torch.uint8, 15),
    "images beyond 2^31": ((PAST, 1, 1, 1), (1, 2), PLANES, torch.uint8, 18),
    "channels beyond 2^31": ((1, PAST, 1, 1), (2, 1), PLANES, torch.uint8, 18),
    "channels_last beyond 2^31": ((1, PAST, 1, 1), (2, 1), CHANNELS_LAST, torch.uint8, 18),
    "channels_last of two pixels beyond 2^31": ((1, PAST, 1, 2), (1, 3), CHANNELS_LAST, torch.uint8, 36),
    "images of such channels": ((2, PAST, 1, 2), (1, 3), CHANNELS_LAST, torch.uint8, 64),
    "images in rows": ((70_001, 3, 4, 2560), (8, 2560), PLANES, torch.uint8, 18),
}
each_call = pytest.mark.parametrize(
    "call", [pytest.param(c[:-1], marks=gib(c[-1]), id=name) for name, c in CALLS.items()]
)


@each_call
@each_mode
def test_forward(mode, call):
    _check_forward(mode, *call)


@each_call
@each_mode
def test_backward(mode, call):
    _check_backward(mode, *call)


@gib(8)
@each_mode
def test_large_windows(mode):
    """More than 2^31 gradients are added up to few sums. Every gradient must be counted."""
    *_, backward = MODES[mode]
    for shape, size in (
        ((1, 1, 46_360, 46_400), (61, 50)),
        ((3, 16, 6700, 6700), (67, 100)),
        ((PAST // 4096 + 1, 4, 32, 32), (1, 1)),
    ):
        ones = torch.ones((), dtype=torch.bfloat16, device="cuda").expand(shape)
        for layout, memory_format in ((PLANES, torch.contiguous_format), (CHANNELS_LAST, torch.channels_last)):
            grad = ones.contiguous(memory_format=memory_format)
            got = backward.op(grad, shape[2:], (*shape[:2], *size))
            rows, columns = (torch.bincount(s) for s in _sources((0, 0, *size), shape[2:], mode))
            counts = (rows[:, None] * columns).to(torch.bfloat16)
            assert torch.equal(got, counts.expand_as(got)), f"{shape} to {size}, {layout}"
            del grad


@gib(16)
@each_mode
def test_the_longest_axis(mode):
    """Forward and backward with 2^31 - 1 columns, whose indices are not exact in float32."""
    (forward, _, backward), center = MODES[mode], 0.5 if mode == "nearest-exact" else 0.0
    n, out = 2**30, 2**31 - 1
    step = torch.tensor(float(n), device="cuda") / torch.tensor(float(out), device="cuda")

    def source(i):
        return ((i.float() + center) * step).double().floor().clamp(max=n - 1).long()

    result = forward.op(filled(n, _x).view(1, 1, 1, n), (1, out)).view(-1)
    check(result, lambda i: _x(source(i)))
    result.fill_(1)
    counts = torch.zeros(n, dtype=torch.int32, device="cuda")
    for start in range(0, out, CHUNK):
        of = source(torch.arange(start, min(start + CHUNK, out), device="cuda"))
        counts.index_add_(0, of, torch.ones_like(of, dtype=torch.int32))
    got = backward.op(result.view(1, 1, 1, out), (1, out), (1, 1, 1, n)).view(-1)
    check(got, lambda i: counts[i])


@gib(16)
@each_mode
def test_a_window_of_a_large_image(mode):
    """A small crop whose offsets and strides exceed 2^31."""
    forward, *_ = MODES[mode]
    large = _filled((3, 5, 12_001, 12_007), PLANES, torch.uint8)
    crop = large[:, :, 11_990:, 11_980:]
    assert torch.equal(forward.op(crop, (30, 100)), forward.op(crop.contiguous(), (30, 100)))
    thin = large[:, :, ::6000, ::6003]
    assert torch.equal(forward.op(thin, (6, 7)), forward.op(thin.contiguous(), (6, 7)))


@gib(16)
@each_mode
def test_gradients_from_a_large_image(mode):
    """A gradient that is a crop of a larger one, and therefore not dense."""
    *_, backward = MODES[mode]
    large = _filled((3, 5, 12_001, 12_007), PLANES, torch.bfloat16)
    crop = large[:, :, 11_981:, 11_987:]
    args = (20, 20), (3, 5, 10, 7)
    assert torch.equal(backward.op(crop, *args), backward.op(crop.contiguous(), *args))


@gib(24)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_through_the_module(memory_format):
    x = torch.ones(33, 64, 512, 512, dtype=torch.bfloat16, device="cuda").contiguous(memory_format=memory_format)
    result = torch_ops.nn.UpsampleNearest2d(scale_factor=2)(x.requires_grad_())
    assert (result[0] == 1).all() and (result[-1] == 1).all()
    result.backward(result.detach())
    assert all((image == 4).all() for image in x.grad)
