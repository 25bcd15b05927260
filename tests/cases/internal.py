"""Cases of operators that only kernels of this library call: copies, convolutions and products for torch_ops.override, and the gradients
of selective scans."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch.nn import functional as F

from benchmarks.references.dtypes import wide

from . import Sample, conv1d, conv_transpose1d, exact, internal_case, matmul, selective_scan, tensors, workspace_of
from .pad import BORDERS
from .samples import conv1d_samples as convolutions
from .samples import selective_scan_samples as scans
from .tensors import ALL, FLOATS, Maker, poison

OPS = torch.ops.gpuopt


# ---------------------------------------------------------------- _copy_transposed


def _into_twin(copy: Callable) -> Callable:
    """A copy into a destination as a function that returns the destination's twin. The twin has the same strides and offset, and
    poison in its memory."""

    def function(out: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
        span = out.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(out.shape, out.stride(), strict=True))
        memory = poison([span], out.dtype, out.device)
        return copy(memory.as_strided(out.shape, out.stride(), out.storage_offset()), self)

    return function


def _copied(
    make: Maker, shape: tuple[int, ...], offset: int, pitch: int, order: tuple[int, ...]
) -> tuple[torch.Tensor, ...]:
    """A dense destination at an offset, and a source that is transposed to it, whose rows have a pitch. The dimensions of both are
    in `order`."""
    *batch, rows, columns = shape
    out = make(offset + math.prod(shape))[offset:].view(shape)
    source = make(*batch, columns, rows + pitch)[..., :rows].mT
    return out.permute(order), source.permute(order)


# Matrices on the paths for tiles and for strips, around whole vectors, and others.
MATRICES = (
    (64, 64), (65, 127), (128, 64), (33, 70), (7, 300), (300, 7), (2, 3), (5, 9), (3, 64, 48), (5, 33, 35), (2, 2, 40, 56), (70, 16, 16),
)  # fmt: skip


def _copies(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, shape in enumerate(MATRICES):
        for offset in range(17):
            order = tuple(range(len(shape)))
            if (k + offset) % 3 == 0:
                order = (*order[1:], 0)
            operands = _copied(make, shape, offset, (0, 1, 5, 8)[(k + offset) % 4], order)
            yield Sample(f"{shape} at {offset} in order {order}", operands, sanitize=k < 6 and offset in (1, 4, 16))


def _few_copies(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, shape in enumerate(((3, 4), (4, 2), (2, 3, 2), (33, 34), (2, 4, 5), (64, 80))):
        for offset in (0, 1):
            yield Sample(f"{shape} at {offset}", _copied(make, shape, offset, k % 2, tuple(range(len(shape)))))


# ---------------------------------------------------------------- _conv1d_own, _conv_transpose1d_own and _conv1d_backward_own

# A result for which the plan chooses ATen is None. The public operator then computes it.


def _own(input, weight, bias=None, **steps) -> torch.Tensor:
    result = OPS._conv1d_own(input, weight, bias, **steps)
    return OPS.conv1d(input, weight, bias, **steps) if result is None else result


def _own_transposed(input, weight, bias=None, **steps) -> torch.Tensor:
    result = OPS._conv_transpose1d_own(input, weight, bias, **steps)
    return OPS.conv_transpose1d(input, weight, bias, **steps) if result is None else result


def _own_gradients(
    grad_output, input, weight, bias=None, *, stride, padding, dilation, groups, output_mask, activation="none"
) -> torch.Tensor:
    given = (grad_output, input, weight, stride, padding, dilation, groups, output_mask, bias, activation)
    own = OPS._conv1d_backward_own(*given)
    if any(wanted and found is None for wanted, found in zip(output_mask, own, strict=True)):
        public = OPS.conv1d_backward(*given)
        own = [found if found is not None else other for found, other in zip(own, public, strict=True)]
    return conv1d._one_tensor(own, output_mask)


# ---------------------------------------------------------------- _conv1d_image

# Its derivatives and transforms: tests/rooms/conv1d/test_image.py.


def _image_arguments(sample: Sample) -> Sample:
    (stride,), (padding,), (dilation,) = (sample.kwargs[name] for name in ("stride", "padding", "dilation"))
    operands = (*sample.args, None)[:3]
    return replace(sample, args=(*operands, stride, padding, dilation, 0, sample.kwargs["groups"], False), kwargs={})


def _image(*operands, **steps) -> torch.Tensor:
    return OPS._conv1d_image(*_image_arguments(Sample("", operands, steps)).args)


def _signals(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Batches of signals with one layout only: of more than one channel and position, as the results."""
    for sample in convolutions.samples(convolutions.plain, device, dtype):
        signal, *others = sample.args
        # cuDNN's float64 kernel of channels-last images answers some products of infinities and zeros with infinities.
        if dtype == torch.float64 and not signal.isfinite().all():
            continue
        if signal.dim() == 2:
            sample = replace(sample, args=(signal[None], *others), sizes=None)
        result = torch.conv1d(*(x.to("meta") for x in sample.args), **sample.kwargs)
        if signal.numel() > 0 and min(*sample.args[0].shape[1:], *result.shape[1:]) > 1:
            yield sample


def _few_signals(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = convolutions.Whole(device, dtype)
    for k, (taps, stride, padding, dilation) in enumerate(itertools.product((1, 3), (1, 2), (0, 2), (1, 2))):
        layout = ("contiguous", "transposed", "rows")[k % 3]
        steps = {"stride": stride, "padding": (padding, padding), "dilation": dilation, "groups": 1 + k % 2}
        call = convolutions.Call("few", (1 + k % 3, 4, 9), 6, taps, **steps, bias=k % 4 > 0, layout=layout)
        yield convolutions.plain(make, call, k)


def _aten_image(signal, weight, bias=None, *, stride, padding, dilation, groups) -> torch.Tensor:
    image = signal.mT.contiguous().mT.unsqueeze(2)
    steps = ((1, *stride), (0, *padding), (1, *dilation), groups)
    # Some of ATen's kernels on CUDA return a contiguous image.
    return torch.conv2d(image, weight.contiguous().unsqueeze(2), bias, *steps).squeeze(2).mT.contiguous().mT


def _image_bound(device, result_dtype, reference, signal, weight, bias=None, **steps):
    """ATen may round before it adds the bias."""
    bound = conv1d.conv1d_bound(device, result_dtype, reference, signal, weight, bias, **steps)
    sizes = reference.abs() if bias is None else reference.abs() + bias.detach().double().abs()[:, None]
    return bound + torch.finfo(result_dtype).eps * sizes


# ---------------------------------------------------------------- _selective_scan_backward


def _with_gradients(build: Callable, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Samples of selective_scan, each with gradients of its output and its last state."""
    make = Maker(device, dtype, seed=5)
    for k, sample in enumerate(build(device, dtype)):
        u, n = sample.args[0], sample.args[2].shape[1]
        if u.numel() == 0 or not all(bool(t.isfinite().all()) for t in sample.tensors):
            continue
        out = make(*u.shape)
        if k % 3 == 1:
            out = tensors.LAYOUTS[("transposed", "rows", "misaligned1")[k % 9 // 3]](out)
        compute = torch.float64 if any(t.dtype == torch.float64 for t in sample.tensors) else torch.float32
        last = make(*u.shape[:2], n, dtype=compute) if k % 2 else None
        operands = [*sample.args[:8], *[None] * (8 - len(sample.args))]
        yield Sample(sample.name, (out, last, *operands), sample.kwargs, sanitize=sample.sanitize)


def _joined(gradients) -> torch.Tensor:
    return torch.cat([g.flatten().double() for g in gradients])


def _scan_gradients(out_grad, last_grad, *operands, delta_softplus=False) -> torch.Tensor:
    """The gradients of the operands that are given, in one tensor."""
    gradients = OPS._selective_scan_backward(out_grad, last_grad, *operands, delta_softplus)
    return _joined(g for g, x in zip(gradients, operands, strict=True) if x is not None)


def _gradients_in(dtype: torch.dtype, out_grad, last_grad, operands, softplus: bool) -> list[torch.Tensor]:
    leaves = [None if x is None else x.detach().to(dtype).requires_grad_() for x in operands]
    with torch.enable_grad():
        both = selective_scan.scanned(*leaves, softplus)
    last = torch.zeros_like(both[..., out_grad.shape[-1] :]) if last_grad is None else last_grad.to(dtype)
    given = [x for x in leaves if x is not None]
    return list(torch.autograd.grad(both, given, torch.cat([out_grad.to(dtype), last], -1)))


def _aten_scan_gradients(out_grad, last_grad, *operands, delta_softplus=False) -> torch.Tensor:
    compute = torch.float64 if any(x is not None and x.dtype == torch.float64 for x in operands) else torch.float32
    gradients = _gradients_in(compute, out_grad, last_grad, operands, delta_softplus)
    return _joined(g.to(x.dtype) for g, x in zip(gradients, (x for x in operands if x is not None), strict=True))


def _scan_gradients_reference(out_grad, last_grad, *operands, delta_softplus=False) -> torch.Tensor:
    """In float64. A gradient is infinite if its operand's dtype has no such number."""
    exact = _gradients_in(torch.float64, out_grad, last_grad, operands, delta_softplus)
    rounded = (g.to(x.dtype) for g, x in zip(exact, (x for x in operands if x is not None), strict=True))
    return _joined(torch.where(r.isinf(), r, g) for g, r in zip(exact, rounded, strict=True))


def _scan_gradients_bound(device, result_dtype, reference, out_grad, last_grad, *operands, delta_softplus=False):
    """Roundings of a few operations at each position and state, relative to the largest gradient of the operand without signs."""
    u, delta, A = operands[:3]
    compute = torch.float64 if any(x is not None and x.dtype == torch.float64 for x in operands) else torch.float32
    # Step sizes and A keep their signs, so that states decay.
    sizes = [None if x is None else x if k in (1, 2, 7) else x.abs() for k, x in enumerate(operands)]
    last = None if last_grad is None else last_grad.abs()
    sized = _gradients_in(torch.float64, out_grad.abs(), last, sizes, delta_softplus)
    steps = 16 * (u.shape[-1] + A.shape[1] + 16)
    bounds, start = [], 0
    for size, x in zip(sized, (x for x in operands if x is not None), strict=True):
        own = reference[start : start + x.numel()].abs()
        start += x.numel()
        scale = torch.maximum(size.abs().amax(), own.amax())
        info = torch.finfo(x.dtype)
        bounds.append(steps * torch.finfo(compute).eps * scale + info.eps * own + info.smallest_normal)
    return torch.cat(bounds)


# ---------------------------------------------------------------- _matmul_own


def _own_product(input, other) -> torch.Tensor:
    """The product in 3xTF32. The operator returns nothing where cuBLAS is faster."""
    result = OPS._matmul_own(input, other)
    return matmul._aten(input, other) if result is None else result


def _in_three_tf32(samples, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    for sample in samples(device, dtype):
        if not any(t.is_neg() for t in sample.tensors):
            yield replace(sample, kwargs={})


# ---------------------------------------------------------------- _pad_backward, _roll, _cat and _gather_rows


def _pad_gradient(grad, size, pad, mode) -> torch.Tensor:
    leaf = torch.zeros(size, dtype=grad.dtype, device=grad.device, requires_grad=True)
    with torch.enable_grad():
        result = F.pad(leaf, pad, mode)
    (gradient,) = torch.autograd.grad(result, leaf, grad.contiguous())
    return gradient


def _pad_gradient_reference(grad, size, pad, mode) -> torch.Tensor:
    return _pad_gradient(wide(grad, grad.dtype), size, pad, mode)


def _pad_bound(device, result_dtype, reference, grad, size, pad, mode):
    """Up to all elements of the border are added to one, in sequence."""
    copies = math.prod(1 + max(0, *pad[d : d + 2]) for d in range(0, len(pad), 2)) if mode == "replicate" else 4
    sizes = _pad_gradient(tensors.finite_sizes(wide(grad, grad.dtype)), size, pad, mode)
    return max(16, copies) * torch.finfo(torch.float64 if grad.dtype == torch.float64 else torch.float32).eps * sizes


def _padded(device: str, dtype: torch.dtype, few: bool = False) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for mode in ("reflect", "replicate", "circular"):
        for shape, pad in BORDERS:
            if 0 in shape or (mode == "circular" and min(pad) < 0) or (few and math.prod(shape) > 4000):
                continue
            shapes = [n + sum(pad[2 * d : 2 * d + 2]) for d, n in enumerate(shape[::-1])][::-1]
            for name in (
                ("contiguous",)
                if few
                else ("contiguous", "rows", "transposed", "sliced", "misaligned1", "misaligned3", "expanded_last")
            ):
                grad = tensors.LAYOUTS[name](make(*shapes))
                yield Sample(
                    f"{mode} {shape} {pad} {name}", (grad, list(shape), pad, mode), sanitize=name == "misaligned3"
                )


def _rolled(device: str, dtype: torch.dtype, few: bool = False) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for shape, shifts, dims in (
        ((7,), [3], []), ((4, 9), [-2], []), ((2, 6, 7, 8), [-3, 3], [1, 2]), ((3, 40, 5), [100], [1]), ((3, 40, 5), [1, 1, -7], [-1, 2, 0]),
        ((5, 3000), [1], [1]), ((6, 3), [0], [0]), ((300, 1), [5], [0]), ((2, 1, 33), [-40], [-1]), ((2, 3, 4, 5, 6), [1, 1], [2, -1]),
        ((70, 64), [-1], [0]), ((2, 7, 9, 4), [2, 3, 1], [0, 2, 3]), ((129,), [128], [0]), ((2, 5, 31), [4, 8], [1, 2]), ((9, 2, 33), [2], [0]),
        ((4, 4, 4), [21], []), ((3, 3, 40), [1, 2, 3], [0, 1, 2]),
    ):  # fmt: skip
        for name, layout in tensors.LAYOUTS.items():
            x = layout(make(*shape)) if math.prod(shape) < 2000 or not few else None
            # On the CPU, ATen keeps channels_last where two dimensions are rolled.
            if x is not None and name not in ("conj", "neg", "channels_last") and not (few and "expanded" in name):
                yield Sample(f"{shape} {shifts} {dims} {name}", (x, shifts, dims), sanitize=name == "misaligned1")


def _joined_slices(device: str, dtype: torch.dtype, few: bool = False) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for widths, before, after in (
        ((3, 64), (50,), ()), ((75, 75), (40,), ()), ((1, 1, 1), (300,), ()), ((5, 7, 2), (3, 4), (5,)), ((4, 6), (2,), (7, 7)), ((3, 0, 2), (9,), ()),
        (range(1, 17), (11,), ()), (range(1, 19), (11,), ()), ((500, 1031), (5,), ()), ((49, 98), (6,), (7,)), ((7, 7, 7, 7), (), (5, 5)),
        ((9, 8), (), ()), ((1, 64), (3, 7, 11), ()), ((33, 2), (2, 2), (2, 2)), ((15, 17), (31,), ()), ((3, 3), (2, 65), ()), ((58, 58), (3,), (4, 4)),
        ((2, 30), (90,), (1,)), ((8, 24), (30,), (2,)), ((5, 5), (1, 200), ()), ((100, 28), (3, 3), (3,)), ((11, 1, 6), (40,), ()),
        ((6, 2), (2, 5), (3, 3)), ((13, 13, 13), (21,), ()),
    ):  # fmt: skip
        layouts = (
            "contiguous",
            "sliced",
            "rows",
            "transposed",
            "misaligned1",
            "misaligned3",
            "channels_last",
            "expanded_first",
            "step2",
            "reversed",
        )
        for k, layout in enumerate(layouts):
            parts = [make(*before, n, *after) for n in widths]
            laid_out = [
                tensors.LAYOUTS[layout](x) if j % 2 == k % 2 or layout == "channels_last" else x
                for j, x in enumerate(parts)
            ]
            if all(x is not None for x in laid_out) and not (few and k > 1):
                yield Sample(
                    f"{tuple(widths)} of {before} x {after} {layout}", (laid_out, len(before)), sanitize=k == 4
                )


def _gathered(device: str, dtype: torch.dtype, few: bool = False) -> Iterator[Sample]:
    make, generator = Maker(device, dtype), torch.Generator().manual_seed(0)
    for k, (tables, rows, entries, width) in enumerate(
        itertools.product((None, 1, 3), (1, 40), (1, 7, 40, 700), (2, 3, 5, 8, 16, 33, 64, 67))
    ):
        if few and entries == 700:
            continue
        batch = () if tables is None else (tables,)
        index = torch.randint(0, rows, (*batch, entries, 1), generator=generator).to(device)
        if tables == 3 and k % 4 == 0:
            index = index[:1].expand(3, entries, 1)
        table = make(*batch, rows, width + k % 2)[..., :width]
        yield Sample(
            f"{entries} of {tables} x {rows} rows {width}",
            (table, len(batch), index.expand(*batch, entries, width)),
            sanitize=k % 7 == 0,
        )


_sums = {"dtypes": FLOATS, "elementwise": False}
_moves = {"dtypes": ALL, "bound": exact, "elementwise": False, "workspace": workspace_of(2)}
CASES = [
    internal_case(
        name="_copy_transposed", op=_into_twin(OPS._copy_transposed), overload=OPS._copy_transposed.default,
        aten=_into_twin(torch.Tensor.copy_), reference=lambda out, self: wide(self, self.dtype), samples=_copies, few=_few_copies,
        dtypes=ALL, bound=exact, writes=("out",), workspace=lambda sample: sample.tensors[0].nbytes + 2**10,
    ),
    internal_case(
        name="_pad_backward", op=OPS._pad_backward, overload=OPS._pad_backward.default, aten=_pad_gradient,
        reference=_pad_gradient_reference, samples=_padded, few=functools.partial(_padded, few=True), bound=_pad_bound,
        workspace=workspace_of(2), **_sums,
    ),
    internal_case(
        name="_roll", op=OPS._roll, overload=OPS._roll.default, aten=lambda self, shifts, dims: torch.ops.aten.roll(self, shifts, dims),
        reference=lambda self, shifts, dims: torch.ops.aten.roll(wide(self, self.dtype), shifts, dims), samples=_rolled,
        few=functools.partial(_rolled, few=True), **_moves,
    ),
    internal_case(
        name="_cat", op=OPS._cat, overload=OPS._cat.default, aten=torch.cat,
        reference=lambda parts, dim: torch.cat([wide(x, x.dtype) for x in parts], dim), samples=_joined_slices,
        few=functools.partial(_joined_slices, few=True), **_moves,
    ),
    internal_case(
        name="_gather_rows", op=OPS._gather_rows, overload=OPS._gather_rows.default, aten=torch.gather,
        reference=lambda self, dim, index: wide(self, self.dtype).gather(dim, index), samples=_gathered,
        few=functools.partial(_gathered, few=True), **_moves,
    ),
    internal_case(
        name="_conv1d_own", op=_own, overload=OPS._conv1d_own.default, aten=conv1d._aten_plain, reference=conv1d.conv1d_reference,
        samples=functools.partial(convolutions.samples, convolutions.plain),
        few=functools.partial(convolutions.few, convolutions.plain), bound=conv1d.conv1d_bound, **conv1d._memory, **_sums,
    ),
    internal_case(
        name="_conv_transpose1d_own", op=_own_transposed, overload=OPS._conv_transpose1d_own.default, dtypes=FLOATS,
        **conv_transpose1d.CASE,
    ),
    internal_case(
        name="_conv1d_backward_own", op=_own_gradients, overload=OPS._conv1d_backward_own.default, aten=conv1d._aten_backward,
        reference=conv1d.backward_reference, samples=functools.partial(convolutions.samples, convolutions.backward),
        few=functools.partial(convolutions.few, convolutions.backward), bound=conv1d.backward_bound, **conv1d._memory, **_sums,
    ),
    internal_case(
        name="_conv1d_image", op=_image, overload=OPS._conv1d_image.default, aten=_aten_image, reference=conv1d.conv1d_reference,
        samples=_signals, few=_few_signals, bound=_image_bound, arguments=_image_arguments, **conv1d._memory, **_sums,
    ),
    internal_case(
        name="_matmul_own", op=_own_product, overload=OPS._matmul_own.default, aten=matmul._aten, reference=matmul._reference,
        samples=functools.partial(_in_three_tf32, matmul._sweep), few=functools.partial(_in_three_tf32, matmul._few),
        dtypes=(torch.float32,), bound=matmul._bound, elementwise=False, as_accurate=False, workspace=matmul._workspace,
    ),
    internal_case(
        name="_selective_scan_backward", op=_scan_gradients, overload=OPS._selective_scan_backward.default,
        aten=_aten_scan_gradients, reference=_scan_gradients_reference, samples=functools.partial(_with_gradients, scans.samples),
        few=functools.partial(_with_gradients, scans.few), bound=_scan_gradients_bound, as_accurate=False, approximates=8,
        workspace=workspace_of(64), **_sums,
    ),
]  # fmt: skip
