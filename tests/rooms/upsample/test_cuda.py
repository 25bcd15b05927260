"""Upsampling on a GPU: accuracy, overlapping calls give the same bits, and the memory that a call allocates."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

from ...cases import tensors
from ...cases.upsample import MODES
from ...support.compare import Failures, different_bits, different_from_reference
from ...support.overlap import Calls
from ...support.runtime import allocated, no_waiting

pytestmark = pytest.mark.gpu
each_mode = pytest.mark.parametrize("mode", MODES)
each_layout = pytest.mark.parametrize("layout", ["contiguous", "channels_last"])


# ---------------------------------------------------------------- accuracy

WINDOWS = ((64, 64), (1, 1024), (1024, 1), (7, 9), (2, 2))


@each_mode
@each_layout
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_add_up_in_float32(mode, layout, dtype):
    """Sums of integers, exact in float32, are rounded once. In bf16 or fp16, a sum of ones would stop at 256 or 2048."""
    *_, backward = MODES[mode]
    for (rows, columns), (height, width) in itertools.product(WINDOWS, ((4, 4), (3, 5), (1, 1))):
        size, of = (height * rows, width * columns), (2, 5, height, width)
        ones = tensors.LAYOUTS[layout](torch.ones(2, 5, *size, dtype=dtype, device="cuda"))
        assert (backward.op(ones, size, of) == rows * columns).all(), f"ones, {size} to {of}"
        numbers = tensors.LAYOUTS[layout](torch.randint(0, 8, (2, 5, *size), device="cuda").to(dtype))
        got, exact = backward.op(numbers, size, of), backward.reference(numbers, size, of)
        assert different_bits(got, exact.to(dtype)) is None, f"{size} to {of}"


@each_mode
@each_layout
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_accuracy_of_large_windows(mode, layout, dtype):
    """Errors are within the bound, and their sum is no larger than ATen's. fp16 and bf16 results are nearly always the nearest
    number."""
    *_, backward = MODES[mode]
    generator = torch.Generator("cuda").manual_seed(1)
    for out, size in (
        ((512, 512), (8, 8)),
        ((600, 400), (37, 23)),
        ((1024, 1024), (1, 1)),
        ((2, 4096), (2, 3)),
        ((4096, 2), (3, 2)),
    ):
        values = torch.randn(2, 16, *out, generator=generator, device="cuda", dtype=torch.float64).to(dtype)
        grad = tensors.LAYOUTS[layout](values)
        args = grad, out, (2, 16, *size)
        got, exact = backward.op(*args), backward.reference(*args)
        bound = backward.bound("cuda", dtype, exact, *args)
        assert different_from_reference(got, exact, bound) is None, f"{out} to {size}"
        ours, theirs = (float((t - exact).abs().mean()) for t in (got, backward.aten(*args)))
        ulp = float(exact.abs().mean()) * torch.finfo(dtype).eps
        assert ours <= 1.5 * theirs + 0.1 * ulp, f"{out} to {size}: mean error {ours}, ATen's is {theirs}"
        if dtype.itemsize == 2:
            assert (got == exact.to(dtype)).double().mean() > 0.9


@each_mode
@each_layout
def test_byte_gradients_wrap(mode, layout):
    """Gradients of uint8 wrap around modulo 256, as in ATen's CUDA backward."""
    *_, backward = MODES[mode]
    grad = tensors.LAYOUTS[layout](torch.randint(0, 256, (2, 5, 64, 48), dtype=torch.uint8, device="cuda"))
    for size in ((32, 24), (4, 5), (64, 16), (70, 90), (1, 1)):
        args = grad, (64, 48), (2, 5, *size)
        assert torch.equal(backward.op(*args), backward.reference(*args).to(torch.uint8)), f"{size}"


# ---------------------------------------------------------------- calls of every kind, at sizes that fill a GPU


def _sizes() -> dict:
    """The sizes: name -> (input size, output size, scales)."""
    none = None, None
    return {
        "twice": ((8, 64, 56, 56), (112, 112), none),
        "8 times": ((16, 128, 7, 7), (56, 56), none),
        "by 2.7": ((8, 64, 50, 50), (135, 135), (2.7, 2.7)),
        "odd sizes": ((4, 33, 61, 67), (119, 143), none),
        "down": ((8, 64, 112, 112), (56, 56), none),
        "down by a fraction": ((8, 64, 100, 100), (77, 39), none),
        "far down": ((4, 64, 301, 207), (3, 5), none),
        "far up": ((4, 64, 3, 5), (301, 207), none),
        "from one pixel": ((8, 256, 1, 1), (64, 64), none),
        "one channel": ((1, 1, 1025, 1023), (2050, 2046), none),
        "one picture": ((1, 3, 540, 960), (1080, 1920), none),
        "small images": ((70_001, 2, 2, 3), (4, 6), none),
        "contradictory scales": ((8, 32, 56, 56), (112, 100), (1.5, 3.0)),
    }


@functools.cache
def _given() -> dict:
    """The calls: name -> (case, args). Forward and backward of every size, mode and memory format, in float32 and bfloat16."""
    generator = torch.Generator("cuda").manual_seed(3)
    calls = {}
    for (name, (size, out, scales)), (mode, (forward, _, backward)) in itertools.product(
        _sizes().items(), MODES.items()
    ):
        for layout, dtype in itertools.product(("contiguous", "channels_last"), (torch.float32, torch.bfloat16)):

            def make(*shape, layout=layout, dtype=dtype):
                return tensors.LAYOUTS[layout](torch.randn(shape, generator=generator, device="cuda").to(dtype))

            said = f"{name}, {mode}, {layout}, {dtype}"
            calls[said] = forward, (make(*size), out, *scales)
            calls[f"backward of {said}"] = backward, (make(*size[:2], *out), out, size, *scales)
    return calls


@functools.cache
def overlapping() -> Calls:
    return Calls({name: functools.partial(case.op, *args) for name, (case, args) in _given().items()})


def test_values_at_size():
    """Large calls: the forward gives ATen's bits, and the backward is within the bound of the float64 reference."""
    failures = Failures()
    for name, got in overlapping().sequential.items():
        case, args = _given()[name]
        with failures.sample(name):
            exact = case.reference(*args)
            bound = case.bound("cuda", got.dtype, exact, *args)
            if bound is None:
                failures.add(f"{name}, ATen", different_bits(got, case.aten(*args)))
            failures.add(name, different_from_reference(got, exact, bound))
    failures.check(at_least=200)


def test_never_waits():
    calls = overlapping()
    with no_waiting():
        for call in calls.functions.values():
            call()


# ---------------------------------------------------------------- memory


BLOCK = 2**21  # the allocator rounds large sizes up to a multiple of this


def test_allocates_its_result_alone():
    for name, call in overlapping().functions.items():
        if name.startswith("backward of from one pixel"):
            continue  # a sum over whole images calls reduce_sum, which may need a small workspace
        result, count, peak = allocated(call)
        assert count == 1 and peak <= result.nbytes + BLOCK, (
            f"{name}: {count} allocations, {peak} of {result.nbytes} bytes"
        )


def _views() -> dict:
    """Images of 64 MiB and more that are not dense. A kernel for dense images would copy them first."""

    def make(*shape, layout="contiguous"):
        return tensors.LAYOUTS[layout](torch.ones(shape, device="cuda"))

    return {
        "cropped": lambda: make(16, 64, 144, 144)[:, :, 8:-8, 8:-8],
        "cropped, channels_last": lambda: make(16, 64, 144, 144, layout="channels_last")[:, :, 8:-8, 8:-8],
        "some channels": lambda: make(16, 80, 128, 128)[:, 8:-8],
        "some channels, channels_last": lambda: make(16, 80, 128, 128, layout="channels_last")[:, 8:-8],
        "odd channels, channels_last": lambda: make(16, 80, 128, 128, layout="channels_last")[:, 3:70],
        "every second image": lambda: make(32, 64, 128, 128)[::2],
        "every second column": lambda: make(16, 64, 128, 256)[..., ::2],
        "transposed": lambda: make(16, 64, 128, 128).mT,
        "mirrored dimensions": lambda: make(128, 128, 64, 16).permute(3, 2, 1, 0),
        "images innermost": lambda: make(64, 128, 128, 16).permute(3, 0, 1, 2),
        "misaligned": lambda: make(2**24 + 1)[1:].view(16, 64, 128, 128),
        "one image many times": lambda: make(1, 64, 128, 128).expand(16, -1, -1, -1),
        "one channel many times": lambda: make(16, 1, 128, 128).expand(-1, 64, -1, -1),
    }


@each_mode
@pytest.mark.parametrize("what", _views())
def test_forward_never_copies_its_input(mode, what):
    forward, *_ = MODES[mode]
    x = _views()[what]()
    *_, height, width = x.shape
    for size in ((2 * height, 2 * width), (height // 2, width // 2), (100, 333), (height, width), (7, 5)):
        result, count, peak = allocated(lambda size=size: forward.op(x, size))
        assert count == 1 and peak <= result.nbytes + BLOCK, (
            f"{size}: {count} allocations, {peak} of {result.nbytes} bytes"
        )
        assert (result == 1).all()
