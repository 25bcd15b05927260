"""Calls for test_overlap.py of the rooms whose test_cuda.py has no list: each operator reads what a kernel of another call has just
written, so a kernel that does not wait for the previous one gives other bits."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import torch

import torch_ops

from ..support.overlap import Calls

DTYPES = (torch.float32, torch.bfloat16)


def _make(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def _index(entries: int, bins: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(entries)
    return torch.randint(bins, (entries,), generator=generator, device="cuda")


def _chain(op: Callable[..., torch.Tensor], x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Calls op with a product that is computed first."""
    return lambda: op(torch_ops.mul(x, 2))


def elementwise() -> Calls:
    calls = {}
    for dtype in DTYPES:
        for name, shape, other in (
            ("dense", (1000,), (1000,)),
            ("large", (1 << 21,), (1 << 21,)),
            ("row", (513, 257), (257,)),
            ("column", (512, 264), (512, 1)),
        ):
            y = _make(*other, dtype=dtype)
            calls[f"{name}, {dtype}"] = _chain(functools.partial(torch_ops.mul, y), _make(*shape, dtype=dtype))
        for size in (96, 1024):
            y = _make(size, size, dtype=dtype)
            calls[f"transposed {size}, {dtype}"] = _chain(lambda x, y=y: torch_ops.mul(x.mT, y), y)
    return Calls(calls)


def transpose() -> Calls:
    shapes = ((3, 5), (95, 919), (1024, 1024), (70_001, 3), (64, 33, 47))
    return Calls(
        {
            f"{shape}, {dtype}": _chain(torch_ops.transpose2d, _make(*shape, dtype=dtype))
            for shape, dtype in itertools.product(shapes, DTYPES)
        }
    )


def index_select() -> Calls:
    calls = {}
    for dtype, (bins, width, entries) in itertools.product(
        DTYPES, ((48, 31, 2340), (1120, 256, 41), (4624, 139, 16_384), (5160, 38, 51_446), (700, 1, 200_000))
    ):
        select = functools.partial(torch_ops.index_select, dim=0, index=_index(entries, bins))
        calls[f"{entries} of ({bins}, {width}), {dtype}"] = _chain(select, _make(bins, width, dtype=dtype))
    return Calls(calls)


def pad() -> Calls:
    """Copies, and gradients of borders."""
    calls = {}
    for dtype, mode in itertools.product(DTYPES, ("constant", "reflect", "replicate", "circular")):
        for shape, numbers in (((3, 70_001), (200, 3)), ((64, 33, 47), (1, 2)), ((8, 16, 56, 56), (1, 1, 1, 1))):
            x = _make(*shape, dtype=dtype)
            operator = functools.partial(torch_ops.pad, pad=numbers, mode=mode)
            calls[f"{mode}, {shape}, {dtype}"] = _chain(operator, x)
            if mode != "constant":
                gradient = functools.partial(torch.ops.gpuopt._pad_backward, size=shape, pad=numbers, mode=mode)
                calls[f"gradient of {mode}, {shape}, {dtype}"] = _chain(gradient, operator(x))
    return Calls(calls)


def norm() -> Calls:
    """Forward, and all gradients side by side, whose sums over rows share a workspace."""
    calls = {}
    for dtype, (rows, length) in itertools.product(
        DTYPES, ((3000, 24), (700, 96), (513, 768), (200, 1023), (300, 4096), (90, 12288), (40, 33000), (3, 300_000))
    ):
        weight, bias, grad = (_make(*shape, dtype=dtype) for shape in ((length,), (length,), (rows, length)))

        def gradients(x, weight=weight, bias=bias, grad=grad, length=length):
            inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
            found = torch.autograd.grad(torch_ops.layer_norm(inputs[0], length, *inputs[1:]), inputs, grad)
            return torch.cat([g.flatten() for g in found])

        x = _make(rows, length, dtype=dtype)
        layer = functools.partial(torch_ops.layer_norm, normalized_shape=length, weight=weight, bias=bias)
        rms = functools.partial(torch_ops.rms_norm, normalized_shape=length, weight=weight)
        for name, op in (("layer", layer), ("rms", rms), ("gradients", gradients)):
            calls[f"{name} of ({rows}, {length}), {dtype}"] = _chain(op, x)
    return Calls(calls)


def scatter() -> Calls:
    """Maxima, and sums of few entries. Sums of more than 256 entries are added in any order."""
    calls = {}
    for dtype, (entries, bins, width, reductions) in itertools.product(
        DTYPES,
        (
            (256, 40, 16, ("sum", "amax")),
            (2000, 2708, 128, ("amax", "amin")),
            (256, 3, 33, ("mean", "amax")),
            (8000, 3, 33, ("amin",)),
            (200_000, 5000, 16, ("amax", "prod")),
        ),
    ):
        index = _index(entries, bins)
        for reduce in reductions:
            reduced = functools.partial(torch_ops.scatter, index=index, dim_size=bins, reduce=reduce)
            calls[f"{reduce} of {entries} to ({bins}, {width}), {dtype}"] = _chain(
                reduced, _make(entries, width, dtype=dtype)
            )
    return Calls(calls)


def segment() -> Calls:
    calls = {}
    for entries, bins in ((300, 40), (4096, 1000), (200_000, 5000)):
        index = _index(entries, bins)
        grouped = functools.partial(torch_ops.group_by, dim_size=bins)
        calls[f"group_by {entries} to {bins}"] = _chain(lambda x, of=grouped: torch.cat(of(x // 2)), index)
        ptr = torch_ops.group_by(index, bins)[0]
        for op in (
            functools.partial(torch_ops.segment_reduce, offsets=ptr),
            lambda x, p=ptr: torch_ops.segment_softmax(x, p),
        ):
            calls[f"{len(calls)}: segments, {entries} to {bins}"] = _chain(op, _make(entries, 16))
    return Calls(calls)


def spmm() -> Calls:
    calls = {}
    for rows, entries, width in ((200, 3000, 16), (3000, 200_000, 64), (3000, 200_000, 1)):
        ptr, perm = torch_ops.group_by(_index(entries, rows), rows)
        csr = torch_ops.CSR(ptr, _index(entries, rows)[perm], _make(entries), shape=(rows, rows))
        for dtype in DTYPES:
            x, values = _make(rows, width, dtype=dtype), csr.values.to(dtype)
            calls[f"spmm {rows}, {entries}, {width}, {dtype}"] = _chain(
                lambda y, csr=csr, values=values: torch_ops.spmm(csr, y, values=values), x
            )
            calls[f"sddmm {rows}, {entries}, {width}, {dtype}"] = _chain(
                lambda y, csr=csr, x=x: torch_ops.sddmm(csr, y, x), x
            )
    return Calls(calls)
