"""Upsampling copies the right pixels, and its backward adds up exactly their gradients.

Tested for all small sizes and many real ones, with and without scales, and with scales that contradict the sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
import random

import pytest
import torch

from benchmarks.references.upsample import aten_cuda_windows_agree, axes_of, same_in_every_kernel, source_index

from ...cases import tensors
from ...cases.samples.upsample_samples import FEW
from ...cases.upsample import MODES
from ...support.compare import Failures, different_bits
from ...support.params import each_device, kept, thinned

each_mode = pytest.mark.parametrize("mode", MODES)
each_layout = pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
each_set = pytest.mark.parametrize("sizes", ["small", "real"])

SCALES = (1.5, 2.0, 2.7, 3.0, 1 / 3, 0.37, 1.1, 7.3)
KNOWN = (7, 14, 28, 56, 112, 224, 299, 480, 512, 640, 720, 1080, 1920, 2160, 3840, 4096, 8192)


# ---------------------------------------------------------------- (input size, output size, scale) along an axis


def _small_axes() -> list[tuple]:
    """All pairs of sizes up to 48. Each scale is combined with the size that it gives and with some that it contradicts."""
    sizes = range(1, 49)
    axes = [(n, out, None) for n in sizes for out in sizes]
    for scale in SCALES:
        for n in sizes:
            outs = {int(n * scale), n, 2 * n, *range(1 + n % 7, 49, 7)} - {0}
            axes += [(n, out, scale) for out in sorted(outs)]
    return axes


def _real_axes() -> list[tuple]:
    """Sizes of real images, random sizes up to 8192, and integer factors."""
    draw = random.Random(1)
    axes = [(n, out, None) for n, out in itertools.product(KNOWN, KNOWN)]
    axes += [(draw.randint(1, 8192), draw.randint(1, 8192), None) for _ in range(200)]
    axes += [(n, int(n * scale), scale) for n in KNOWN for scale in SCALES]
    axes += [(draw.randint(1, 8192), draw.randint(1, 8192), draw.choice(SCALES)) for _ in range(100)]
    axes += [(2**16 // factor, 2**16 // factor * factor, None) for factor in range(2, 65)]
    return axes


@functools.cache
def _planes(sizes: str, exact: bool, device: str) -> list[tuple]:
    """(height, width) pairs of axes.

    Small axes are paired with one another. Two real axes would make a large image, so each is paired with an axis of one pixel. On
    the CPU, only axes are used on which all of ATen's kernels agree: sizes and threads decide which kernel runs.
    """
    axes = _small_axes() if sizes == "small" else _real_axes()
    if device == "cpu":
        axes = [axis for axis in axes if same_in_every_kernel(*axis, exact)]
    if sizes == "small":
        return list(zip(axes, axes[101:] + axes[:101], strict=True))
    one = (1, 1, None)
    return [(axis, one) for axis in axes] + [(one, axis) for axis in axes]


def _numbered(device: str, height: int, width: int, layout: str, dtype=torch.float32) -> torch.Tensor:
    """An image whose pixels are their own index. Channels differ by a constant."""
    pixels = torch.arange(height * width, device=device, dtype=torch.float64).view(1, 1, height, width)
    if layout == "channels_last":
        pixels = pixels + torch.arange(8, device=device).view(1, 8, 1, 1) * 2**17
    return tensors.LAYOUTS[layout](pixels.to(dtype))


# ---------------------------------------------------------------- forward


@each_mode
@each_device
@each_layout
@each_set
def test_source_indices(mode, device, layout, sizes):
    """Every output pixel is a copy of the pixel that the formula gives, as in ATen's kernel for the device."""
    (case, *_), exact = MODES[mode], mode == "nearest-exact"
    index = functools.cache(lambda *axis: source_index(*axis, exact, device).to(device))
    failures = Failures()
    for height, width in thinned(_planes(sizes, exact, device), device, keep=1):
        (rows, out_rows, scale_h), (columns, out_columns, scale_w) = height, width
        with failures.sample(f"{height}, {width}"):
            x = _numbered(device, rows, columns, layout)
            got = case.op(x, (out_rows, out_columns), scale_h, scale_w)
            wanted = x[:, :, index(*height)][..., index(*width)]
            if not torch.equal(got, wanted):
                failures.add(f"{height}, {width}", different_bits(got, wanted))
            if not torch.equal(got, case.aten(x, (out_rows, out_columns), scale_h, scale_w)):
                failures.add(f"{height}, {width}", "ATen copies other pixels")
    failures.check(at_least=kept(1000, device, keep=1))


# ---------------------------------------------------------------- backward


@each_mode
@each_device
@each_layout
@each_set
def test_backward_is_the_adjoint(mode, device, layout, sizes):
    """The gradient of each pixel is the sum over exactly the outputs that the forward copied it to. Values are integers, so sums
    are exact.

    On the CPU images are float32. For float64, ATen's forward may compute indices in float64, but its backward does not.
    """
    (forward, _, backward), exact = MODES[mode], mode == "nearest-exact"
    dtype = torch.float32 if device == "cpu" else torch.float64
    numbers = torch.randint(-8, 9, (8, 2**17), device=device).to(dtype)
    failures = Failures()
    for height, width in thinned(_planes(sizes, exact, device), device, keep=1):
        (rows, out_rows, scale_h), (columns, out_columns, scale_w) = height, width
        size = (out_rows, out_columns)
        with failures.sample(f"{height}, {width}"):
            x = _numbered(device, rows, columns, layout, dtype)
            sources = forward.op(x, size, scale_h, scale_w)[0, 0].flatten().long()
            grad = numbers[: x.shape[1], : math.prod(size)].reshape(1, -1, *size)
            wanted = torch.zeros_like(x.flatten(2)).index_add(2, sources, grad.flatten(2)).view(x.shape)
            got = backward.op(tensors.LAYOUTS[layout](grad), size, x.shape, scale_h, scale_w)
            if not torch.equal(got, wanted):
                failures.add(f"{height}, {width}", different_bits(got, wanted))
    failures.check(at_least=kept(1000, device, keep=1))


@each_mode
@each_device
def test_inner_products(mode, device):
    """<forward(x), g> = <x, backward(g)> for integer images of several channels in every layout."""
    forward, _, backward = MODES[mode]
    generator = torch.Generator().manual_seed(1)

    def whole(*shape):
        return torch.randint(-8, 9, shape, generator=generator).float().to(device)

    for scales in ((None, None), (2.0, 2.0), (2.7, 0.37), (None, 1.1), (7.3, 1 / 3)):
        for size, out in (((9, 17), (18, 34)), ((9, 17), (24, 6)), ((5, 4), (5, 33)), ((40, 31), (3, 70))):
            for name, layout in tensors.LAYOUTS.items():
                x, grad = layout(whole(2, 5, *size)), layout(whole(2, 5, *out))
                if x is None:
                    continue
                ours = (forward.op(x, out, *scales).double() * grad).sum()
                theirs = (backward.op(grad, out, x.shape, *scales).double() * x).sum()
                assert ours == theirs, f"{size} to {out}, {scales}, {name}"


@each_mode
@each_device
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_gradient_of_ones_counts_the_copies(mode, device, dtype):
    """A gradient of ones counts the copies of each pixel, also in fp16 and bf16, where counts up to 256 are exact. Pixels without a
    copy get 0."""
    forward, _, backward = MODES[mode]
    checked = 0
    for size, out in itertools.product(((7, 7), (5, 13), (60, 50), (1, 1)), ((56, 56), (16, 16), (11, 9), (3, 2))):
        sources = forward.op(_numbered(device, *size, "contiguous"), out).flatten().long()
        counts = torch.bincount(sources, minlength=math.prod(size))
        if counts.max() > 256:
            continue
        for layout in ("contiguous", "channels_last"):
            ones = tensors.LAYOUTS[layout](torch.ones(2, 5, *out, dtype=dtype, device=device))
            got = backward.op(ones, out, (2, 5, *size))
            assert torch.equal(got.flatten(2), counts.to(dtype).expand(2, 5, -1)), f"{size} to {out}, {layout}"
            checked += 1
    assert checked >= 24


# ---------------------------------------------------------------- the limits of float32


@pytest.mark.gpu
@each_mode
@pytest.mark.parametrize("out", [2**21 - 3, 2**21 + 5, 2**23 + 7, 2**24 + 9])
def test_long_axes(mode, out):
    """Output indices that are not exact in float32, and integer factors at which rounding could cross the border of a pixel."""
    forward, _, backward = MODES[mode]
    for factor, scale in (
        (1.7, None),
        (0.6, None),
        (2.7, 2.7),
        *((k, None) for k in (2, 3, 5, 7, 11, 24, 41, 47, 49, 61, 63, 1000)),
    ):
        n = int(out / factor)
        long = n * factor if isinstance(factor, int) else out
        for shape, size, scales in (((1, 1, 1, n), (1, long), (None, scale)), ((1, 1, n, 1), (long, 1), (scale, None))):
            x = torch.arange(n, device="cuda", dtype=torch.float64).view(shape)
            got = forward.op(x, size, *scales)
            assert torch.equal(got, forward.aten(x, size, *scales)), f"{shape} to {size}"
            assert torch.equal(got, forward.reference(x, size, *scales)), f"{shape} to {size}"
            counts = torch.bincount(got.flatten().long(), minlength=n).view(shape)
            assert torch.equal(backward.op(torch.ones_like(got), size, shape, *scales), counts.double()), (
                f"{shape} to {size}"
            )


@pytest.mark.gpu
@each_mode
def test_extreme_scales(mode):
    """Scales whose inverse overflows or underflows float32. An infinite inverse selects the last pixel, and an inverse of 0 the
    first.

    ATen's CPU kernel reads outside the image.
    """
    forward, _, backward = MODES[mode]
    x = _numbered("cuda", 9, 7, "contiguous")
    for scale in (1e-300, 1e-40, 1e-37, 1e-6, 1e6, 1e37, 1e40, 1e300, math.inf):
        for size, scales in itertools.product(
            ((5, 6), (20, 30), (300, 200)), ((scale, scale), (scale, None), (1.5, scale))
        ):
            got = forward.op(x, size, *scales)
            assert torch.equal(got, forward.aten(x, size, *scales)), f"{scales}, {size}"
            counts = torch.bincount(got.flatten().long(), minlength=x.numel()).view(x.shape)
            assert torch.equal(backward.op(torch.ones_like(got), size, x.shape, *scales), counts.float()), (
                f"{scales}, {size}"
            )


# ---------------------------------------------------------------- ATen's CUDA backward


def test_few_samples_have_the_gradients_of_atens_cuda_kernel():
    """For the samples in FEW, ATen's CUDA backward is right, so the contract tests can compare gradients with it.

    That backward has its own formulas for the outputs to add up. aten_cuda_windows_agree knows where they are wrong.
    """
    for call, exact in itertools.product(FEW, (False, True)):
        for axis in axes_of(call.input_size, call.output_size, call.scales):
            assert axis[0] == axis[1] or aten_cuda_windows_agree(*axis, exact), f"{call}, exact={exact}"
    assert not aten_cuda_windows_agree(2, 82, None, False) and not aten_cuda_windows_agree(5, 10, 1.5, False)


@pytest.mark.gpu
@each_mode
def test_where_atens_cuda_windows_agree(mode):
    """ATen's CUDA kernel gives the adjoint exactly where aten_cuda_windows_agree says so."""
    exact = mode == "nearest-exact"
    aten = getattr(
        torch.ops.aten, "_upsample_nearest_exact2d_backward" if exact else "upsample_nearest2d_backward"
    ).default
    agreeing = 0
    for n, out, scale in _small_axes():
        grad = torch.arange(1, out + 1, device="cuda", dtype=torch.float64)
        sums = grad.new_zeros(n).index_add(0, source_index(n, out, scale, exact, "cuda").cuda(), grad)
        # Two equal rows, because ATen copies the gradient if the sizes are equal.
        got = aten(grad.view(1, 1, 1, out).repeat(1, 1, 2, 1), (2, out), (1, 1, 1, n), None, scale)
        agree = aten_cuda_windows_agree(n, out, scale, exact)
        assert torch.equal(got.flatten(), 2 * sums) == agree, f"{n} to {out}, scale {scale}: expected {agree}"
        agreeing += agree
    assert agreeing >= 2000
