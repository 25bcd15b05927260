"""Upsampling, beyond the contract of every operator: public functions, module, bits, memory formats and derivatives.

test_accuracy.py tests which pixels are copied. test_cuda.py tests repeatability, accuracy and memory.
"""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import torch_ops
import torch_ops.nn
from benchmarks.references.upsample import source_index

from ...cases import tensors
from ...cases.upsample import MODES
from ...support.compare import Failures, all_close, close, different_bits, different_metadata, raised_by
from ...support.params import each_device
from ...support.runtime import deterministic_algorithms

each_mode = pytest.mark.parametrize("mode", MODES)


# ---------------------------------------------------------------- the public functions


@each_mode
@each_device
def test_forms_of_arguments(mode, device):
    """A size or factor may be one number or one per direction, as tuple, list or torch.Size, by position or by name."""
    plain, vec, _ = (case.overload for case in MODES[mode])
    op = MODES[mode][1].op
    x = torch.randn(2, 3, 4, 5, device=device)
    for size, pair in ((7, (7, 7)), ((7, 9), (7, 9)), ([7, 9], (7, 9)), (torch.Size([7, 9]), (7, 9))):
        want = torch.nn.functional.interpolate(x, pair, mode=mode)
        for got in (
            op(x, size),
            op(x, output_size=size),
            op(input=x, output_size=size),
            vec(x, pair, None),
            plain(x, pair),
        ):
            assert different_bits(got, want) is None, size
    for factor, pair in ((2, (2.0, 2.0)), (1.5, (1.5, 1.5)), ((1.5, 2), (1.5, 2.0)), ([0.5, 2.7], (0.5, 2.7))):
        want = torch.nn.functional.interpolate(x, scale_factor=pair, mode=mode)
        size = tuple(want.shape[2:])
        for got in (
            op(x, None, factor),
            op(x, scale_factors=factor),
            op(x, scale_factor=factor),
            vec(x, None, pair),
            plain(x, size, *pair),
        ):
            assert different_bits(got, want) is None, factor
    for wrong in (
        {},
        {"output_size": 4, "scale_factors": 2.0},
        {"output_size": "text"},
        {"output_size": 4.5},
        {"scale_factors": "text"},
        {"scale_factors": 2.0, "scale_factor": 2.0},
    ):
        assert isinstance(raised_by(op, x, **wrong), (RuntimeError, TypeError, ValueError)), wrong


@each_mode
@each_device
def test_forms_of_backward(mode, device):
    *_, case = MODES[mode]
    grad = torch.randn(2, 3, 8, 10, device=device)
    for scales in ((), (2.0, 2.0), (None, 2.0), (2.0,)):
        want = case.aten(grad, (8, 10), (2, 3, 4, 5), *scales)
        by_name = dict(zip(("scales_h", "scales_w"), scales))
        for size, of in (((8, 10), (2, 3, 4, 5)), ([8, 10], [2, 3, 4, 5]), (grad.shape[2:], torch.Size([2, 3, 4, 5]))):
            for got in (
                case.op(grad, size, of, *scales),
                case.op(grad_output=grad, output_size=size, input_size=of, **by_name),
                case.overload(grad, size, of, *scales),
            ):
                assert close(got, want) is None


@each_mode
def test_scales_that_are_not_given(mode):
    """A scale of zero, a negative scale and NaN count as no scale."""
    case, *_ = MODES[mode]
    x = torch.randn(1, 2, 9, 8)
    for scales in ((0.0, -1.0), (-2.5, math.nan), (None, 0.0)):
        assert different_bits(case.op(x, (5, 11), *scales), case.op(x, (5, 11))) is None


@each_mode
@each_device
def test_sizes_beyond_int32(mode, device):
    """Sizes beyond int32 are refused with the limit, before anything is allocated. ATen truncates them to 32 bits."""
    forward, vec, backward = MODES[mode]
    one, longest = torch.ones(1, 1, 1, 1, device=device), 2**31 - 1
    long = one.expand(1, 1, 1, longest + 1)
    for case, args in (
        (forward, (one, (longest + 1, 1))), (forward, (long, (1, 1))), (vec, (one, (1, 2**40), None)), (vec, (one, None, [1.0, 2.0**31])),
        (backward, (one, (1, 1), (1, 1, longest + 1, 1))), (backward, (long, (1, longest + 1), (1, 1, 1, 1))),
    ):  # fmt: skip
        refusal = raised_by(case.op, *args)
        assert isinstance(refusal, RuntimeError) and case.schema_name in str(refusal), f"{refusal!r}"
        assert str(longest) in str(refusal), f"{refusal}"


# ---------------------------------------------------------------- the module


MODULE_ARGUMENTS = (
    {"size": 7}, {"size": (7, 9)}, {"size": [7, 9]}, {"size": torch.Size([3, 4])}, {"scale_factor": 2}, {"scale_factor": 2.0},
    {"scale_factor": 1.7}, {"scale_factor": (1.5, 2)}, {"scale_factor": (0.5, 2.7)}, {"scale_factor": 2.7, "recompute_scale_factor": True},
    {"scale_factor": (1.7, 0.6), "recompute_scale_factor": True}, {"scale_factor": 1.7, "recompute_scale_factor": False},
    {"size": 5, "recompute_scale_factor": False}, {}, {"size": 4, "scale_factor": 2}, {"size": (4,)}, {"size": (4, 4, 4)}, {"size": 4.5},
    {"scale_factor": (2.0,)}, {"scale_factor": (2.0, 2.0, 2.0)}, {"size": 4, "recompute_scale_factor": True}, {"size": 0},
    {"scale_factor": 0.01}, {"scale_factor": -1.0}, {"scale_factor": 0.1, "recompute_scale_factor": True},
)  # fmt: skip


@each_mode
@each_device
@pytest.mark.parametrize("arguments", MODULE_ARGUMENTS, ids=str)
def test_module_is_a_drop_in_for_upsample(mode, device, arguments):
    """The module has the attributes, representation and results of torch.nn.Upsample, or raises the same exception."""
    theirs = torch.nn.Upsample(mode=mode, **arguments)
    ours = torch_ops.nn.UpsampleNearest2d(mode=mode, **arguments)
    assert ours.extra_repr() == theirs.extra_repr() and len(ours.state_dict()) == 0
    for name in ("size", "scale_factor", "mode", "recompute_scale_factor", "align_corners"):
        assert getattr(ours, name) == getattr(theirs, name), name
    x = torch.randn(2, 3, 11, 13, device=device)
    refusal = raised_by(theirs, x)
    if refusal is not None:
        assert type(raised_by(ours, x)) is type(refusal), f"{raised_by(ours, x)!r}, expected {refusal!r}"
        return
    for given in (x, x.contiguous(memory_format=torch.channels_last), x[..., 1:-1]):
        for module in (ours, copy.deepcopy(ours)):
            got, want = module(given), theirs(given)
            assert different_bits(got, want) is None and different_metadata(got, want) is None


def test_module_refuses_other_modes_and_sizes():
    """Modes and numbers of dimensions that only torch.nn.Upsample supports are refused, with its error for unknown ones."""
    unknown = raised_by(torch.nn.Upsample(scale_factor=2, mode="unknown"), torch.ones(1, 1, 2, 2))
    for mode in ("bilinear", "bicubic", "linear", "trilinear", "area", "unknown"):
        refusal = raised_by(
            lambda m=mode: torch_ops.nn.UpsampleNearest2d(scale_factor=2, mode=m)(torch.ones(1, 1, 2, 2))
        )
        assert type(refusal) is type(unknown), f"{mode}: {refusal!r}"
    for shape in ((2, 3, 4), (1, 2, 3, 4, 5), (3, 4)):
        assert raised_by(torch_ops.nn.UpsampleNearest2d(scale_factor=2), torch.ones(shape)) is not None, shape


@each_mode
@each_device
def test_gradients_through_a_model(mode, device):
    """Weights before and after the module in a model get the same gradients as with torch.nn.Upsample, in both memory formats."""
    for memory_format, given in itertools.product(
        (torch.contiguous_format, torch.channels_last), ({"scale_factor": 2}, {"size": (11, 9)})
    ):
        outcomes = []
        for upsample in (torch_ops.nn.UpsampleNearest2d(mode=mode, **given), torch.nn.Upsample(mode=mode, **given)):
            torch.manual_seed(3)
            layers = [torch.nn.Conv2d(3, 8, 3), upsample, torch.nn.Conv2d(8, 2, 3)]
            model = torch.nn.Sequential(*layers).to(device).to(memory_format=memory_format)
            x = torch.randn(2, 3, 7, 8, device=device).contiguous(memory_format=memory_format).requires_grad_()
            result = model(x)
            torch.nn.functional.mse_loss(result, torch.ones_like(result)).backward()
            outcomes.append([result, x.grad, *(p.grad for p in model.parameters())])
        assert all_close(*outcomes, ulps=16) is None


@each_device
def test_module_compiles_for_any_size(device):
    """torch.compile compiles the module once for images of all sizes, with factors, with and without their recomputation."""
    for arguments in (
        {"scale_factor": 2.0},
        {"scale_factor": (1.5, 0.7)},
        {"scale_factor": 1.7, "recompute_scale_factor": True},
    ):
        torch._dynamo.reset()
        module = torch_ops.nn.UpsampleNearest2d(**arguments)
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
        for shape in ((2, 3, 8, 10), (4, 5, 13, 17), (3, 2, 31, 6)):
            leaves = [
                torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()
                for _ in range(2)
            ]
            results = [f(x) for f, x in zip((compiled, module), leaves)]
            assert different_bits(*results) is None
            grads = [torch.autograd.grad(r.square().sum(), x)[0] for r, x in zip(results, leaves)]
            assert close(*grads) is None
    torch._dynamo.reset()


# ---------------------------------------------------------------- values and memory formats


@each_mode
@each_device
@pytest.mark.parametrize("dtype", [*tensors.FLOATS, torch.uint8], ids=str)
def test_every_bit_is_copied(mode, device, dtype):
    """Every bit is copied: all patterns of 8 and 16 bits and random ones of 32 and 64, including NaN payloads.

    Rows are aligned to 16 bytes and not, in both memory formats.
    """
    case, *_ = MODES[mode]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    if dtype.itemsize <= 2:
        patterns = torch.arange(2 ** (8 * dtype.itemsize)).to(bits).repeat(4 if dtype.itemsize == 1 else 1)
    else:
        info = torch.iinfo(bits)
        patterns = torch.randint(info.min, info.max, (2**16,), generator=torch.Generator().manual_seed(1), dtype=bits)
    exact = mode == "nearest-exact"
    for shape, size in itertools.product(
        ((1, 4, -1, 16), (1, 4, -1, 32), (1, 16, 4, -1), (2, 8, -1, 8)), ((2, 2), (3, 1.5), (0.5, 0.7), (1, 1))
    ):
        image = patterns.view(shape).to(device)
        out = tuple(int(n * s) for n, s in zip(image.shape[2:], size))
        rows, columns = (source_index(n, o, None, exact, device).to(device) for n, o in zip(image.shape[2:], out))
        for layout in ("contiguous", "channels_last", "misaligned1", "rows"):
            x = tensors.LAYOUTS[layout](image).view(dtype)
            got, wanted = case.op(x, out), image[:, :, rows][..., columns]
            if device == "cpu":  # ATen's kernel converts fp16 and bf16 through float32, which changes NaNs
                assert different_bits(got, wanted.view(dtype)) is None, f"{tuple(image.shape)} to {out}, {layout}"
            else:
                assert torch.equal(got.view(bits), wanted), f"{tuple(image.shape)} to {out}, {layout}"


@each_mode
@each_device
def test_memory_formats(mode, device):
    """The result of a channels_last input is channels_last, also for views of larger images. Other results are contiguous.

    Sizes of 1 may be ambiguous, and the choice is ATen's. The backward follows the layout of grad_output.
    """
    forward, _, backward = MODES[mode]
    dense = torch.randn(4, 8, 12, 10, device=device)
    last = dense.contiguous(memory_format=torch.channels_last)
    views = {
        "contiguous": (dense, False), "channels_last": (last, True), "cropped": (dense[:, :, 1:-1, 2:-2], False),
        "channels_last, cropped": (last[:, :, 1:-1, 2:-2], True), "channels_last, some channels": (last[:, 2:5], True),
        "channels_last, every second image": (last[::2], True), "every second channel": (dense[:, ::2], False),
        "transposed": (dense.mT, False), "reversed": (dense.permute(3, 2, 1, 0), False), "expanded": (dense[:1].expand(4, -1, -1, -1), False),
    }  # fmt: skip
    for name, (t, stays) in views.items():
        wanted = torch.channels_last if stays else torch.contiguous_format
        n, c, h, w = t.shape
        for got in (forward.op(t, (2 * h, 15)), backward.op(t, (h, w), (n, c, 5, 2 * w))):
            assert got.is_contiguous(memory_format=wanted), name
    failures = Failures()
    for shape in itertools.product((0, 1, 2), (1, 3, 4), (1, 5), (1, 7)):
        for layout in ("contiguous", "channels_last", "sliced", "rotated"):
            t = tensors.LAYOUTS[layout](torch.randn(shape, device=device))
            n, c, h, w = shape
            for size in ((2 * h, 2 * w), (1, 1), (h, w), (9, 1), (1, 4)):
                for case, args in ((forward, (t, size)), (backward, (t, (h, w), (n, c, *size)))):
                    with failures.sample(f"{shape} {layout}, {size}, {case}"):
                        failures.add(
                            f"{shape} {layout}, {size}, {case}", different_metadata(case.op(*args), case.aten(*args))
                        )
    failures.check(at_least=1000)


@each_mode
@each_device
def test_images_of_bytes(mode, device):
    """8-bit images, interleaved and planar, whole and cropped, give ATen's pixels."""
    case, *_ = MODES[mode]
    picture = torch.randint(0, 256, (1, 270, 481, 3), dtype=torch.uint8, device=device).permute(0, 3, 1, 2)
    for x in (
        picture,
        picture.contiguous(),
        picture[..., 1:],
        picture[:, :, 3:-2, 5:-7],
        picture[:, :1],
        picture.contiguous()[:, :, ::2],
    ):
        for size in ((540, 962), (180, 320), (271, 479), (405, 700)):
            got, want = case.op(x, size), case.aten(x, size)
            assert torch.equal(got, want) and different_metadata(got, want) is None, (
                f"{tuple(x.shape)}, {x.stride()}, {size}"
            )


# ---------------------------------------------------------------- derivatives


@each_mode
@each_device
def test_gradients_of_scales_that_contradict_the_sizes(mode, device):
    """First and second derivatives, reverse and forward, if scales contradict the sizes. The contract's samples leave these out,
    because ATen's gradients are wrong on CUDA."""
    forward, _, backward = MODES[mode]
    for size, out, scales in (
        ((2, 3), (4, 6), (1.5, 3.0)),
        ((3, 2), (2, 2), (2.0, 0.4)),
        ((2, 2), (5, 3), (1.1, None)),
        ((2, 3), (2, 3), (2.0, 0.5)),
    ):
        x = torch.randn(1, 1, *size, dtype=torch.float64, device=device, requires_grad=True)
        grad = torch.randn(1, 1, *out, dtype=torch.float64, device=device, requires_grad=True)
        for f, t in (
            (lambda t, out=out, scales=scales: forward.op(t, out, *scales), x),
            (lambda t, out=out, size=size, scales=scales: backward.op(t, out, (1, 1, *size), *scales), grad),
        ):
            assert gradcheck(f, t, check_forward_ad=True, check_batched_grad=True)
            assert gradgradcheck(lambda t, f=f: f(t).square(), t, check_fwd_over_rev=True)


@each_mode
@each_device
def test_higher_derivatives(mode, device):
    """The third derivative of a cubic function of the result, through the backward of the backward."""
    case, *_ = MODES[mode]
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, device=device, requires_grad=True)
    for size in ((8, 10), (7, 3)):
        thirds = []
        for op in (case.op, case.aten):
            derivative = op(x, size).pow(3).sum()
            for _ in range(3):
                (first,) = torch.autograd.grad(derivative, x, create_graph=True)
                derivative = (first * torch.linspace(1, 2, x.numel(), dtype=x.dtype, device=device).view_as(x)).sum()
            thirds.append(first.detach())
        assert close(*thirds, ulps=16) is None


@each_mode
@each_device
def test_deterministic_mode(mode, device):
    """Deterministic mode refuses no call. It fills new memory with NaN first, and every element of a result is written."""
    case, _, backward = MODES[mode]
    x = torch.randn(2, 5, 9, 13, device=device)
    for size, layout in itertools.product(((18, 26), (4, 40), (3, 3)), ("contiguous", "channels_last", "rows")):
        given, grad = (tensors.LAYOUTS[layout](t) for t in (x, torch.randn(2, 5, *size, device=device)))
        results = []
        for mode_on in (False, True):
            with deterministic_algorithms(mode_on):
                results.append([case.op(given, size), backward.op(grad, size, x.shape)])
        for plain, deterministic in zip(*results, strict=True):
            assert different_bits(plain, deterministic) is None and not deterministic.isnan().any()
