"""Cases of pad: samples of all modes, many shapes and layouts, and errors. Elements are only moved, so results are ATen's bits."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional as F

import torch_ops
from benchmarks.references.dtypes import wide

from . import ErrorCase, OpCase, OpInfoLink, Sample, exact
from .tensors import ALL, COMPLEX, FLOATS, LAYOUTS, Maker

# (shape, pad): rows of several blocks, rows of a few bytes, crops, and rows that become empty.
CONSTANT = (
    ((), []), ((7,), [2, 3]), ((9000,), [1, 0]), ((3, 4100), [200, 3]), ((5, 33), [1, 1, 2, 0]), ((2, 3, 8, 9), [1, 2, 3, 4]),
    ((2, 3, 8, 9), [0, 0, 0, 0, 2, 1]), ((2, 3, 8, 9), [-1, 2, 0, -3, 1, 0, 0, 2]), ((2, 3, 8, 9), [-4, -5]), ((2, 3, 8, 9), [-1, -2, 0, -3]),
    ((600, 1), [1, 1]), ((4, 7, 16), [0, 0, 3, 3]), ((2, 3, 4, 5, 6), [1, 1, 1, 1, 1, 1]), ((2, 2, 2, 2, 3, 2, 5), [1, 2] * 7),
    ((0, 3), [1, 2]), ((3, 0), [1, 2]), ((3, 4), [0, 0]), ((3, 1000), [-300, -1]),
)  # fmt: skip
BORDERS = (
    ((3, 9), [2, 3]), ((2, 3, 4100), [200, 5]), ((5, 3, 600), [-3, 2]), ((3, 8, 9), [1, 2, 3, 4]), ((2, 3, 8, 9), [1, 1, 1, 1]),
    ((2, 16, 20, 33), [3, 0, 0, 5]), ((2, 3, 8, 9), [-2, 8, 1, -3]), ((2, 3, 4, 5, 6), [1, 2, 3, 0, 2, 2]), ((0, 3, 8, 9), [1, 1, 1, 1]),
    ((40, 5, 2), [1, 1]), ((3, 4, 5, 6), [1, 2, 3, 0, 2, 2]), ((2, 8, 70), [0, 0]),
)  # fmt: skip
BORDER_DTYPES = (*FLOATS, torch.int8, torch.int64, torch.uint8, torch.complex64, torch.complex128)


def _aten(self: torch.Tensor, pad, mode="constant", value=None) -> torch.Tensor:
    """On CUDA, ATen's borders of channels-last images are contiguous. gpuopt's have the format that they have on the CPU."""
    result = F.pad(self, pad, mode, value)
    is_batched = torch._C._functorch.is_batchedtensor(self)  # vmap does not tell the format
    if mode not in ("reflect", "replicate") or self.device.type != "cuda" or is_batched:
        return result
    for format in (torch.channels_last, torch.channels_last_3d):
        if self.dim() == (4 if format == torch.channels_last else 5) and self.is_contiguous(memory_format=format):
            if not self.is_contiguous():
                return result.contiguous(memory_format=format)
    return result


def _reference(self: torch.Tensor, pad, mode="constant", value=None) -> torch.Tensor:
    return F.pad(wide(self, self.dtype), pad, mode, value)


def _samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for shape, pad in CONSTANT:
        for name, layout in LAYOUTS.items():
            x = layout(make(*shape))
            if x is not None and (shape != (9000,) or name == "contiguous"):
                yield Sample(f"{shape} {pad} {name}", (x, pad), sanitize=name in ("contiguous", "misaligned1"))
    for value in (0, 1, 1.0, 0.0, -0.0) + (
        (2.5, -1e30 if dtype != torch.float16 else -3.0) if dtype.is_floating_point else ()
    ):
        yield Sample(f"value {value!r}", (make(3, 40), [2, 3], "constant", value))
    if dtype not in BORDER_DTYPES:
        return
    for mode in ("reflect", "replicate", "circular"):
        for shape, pad in BORDERS:
            if mode == "circular" and min(pad) < 0:
                continue
            for name in ("contiguous", "rows", "transposed", "channels_last", "misaligned1", "step2"):
                x = LAYOUTS[name](make(*shape))
                if x is not None:
                    yield Sample(f"{mode} {shape} {pad} {name}", (x, pad, mode), sanitize=name == "misaligned1")


def _few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)

    def sample(name, x, pad, **options):
        return Sample(name, (x,), {"pad": pad, **options})

    yield sample("vector", make(4), [1, 2])
    yield sample("matrix", make(3, 2), [0, 1, 2, 0], value=1.5)
    yield sample("cropped", make(4, 3), [-1, 0, -1, -1])
    yield sample("cropped and padded", make(4, 3), [-1, 2], value=2)
    yield sample("0-d", make(), [])
    yield sample("transposed", make(3, 2).mT, [1, 1])
    for mode in ("reflect", "replicate", "circular"):
        yield sample(f"{mode} signal", make(2, 4), [2, 1], mode=mode)
        yield sample(f"{mode} signals", make(1, 2, 4), [0, 2], mode=mode)
        yield sample(f"{mode} images", make(2, 1, 3, 3), [1, 2, 2, 0], mode=mode)
        yield sample(f"{mode} volume", make(1, 2, 3, 2), [1, 1, 0, 1, 1, 0], mode=mode)


def _errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x = make(2, 3, 8, 9)

    def error(name, *args, says=()):
        return ErrorCase(name, args, says=says)

    yield error("odd length", x, [1, 2, 3], says=(r"\bpad\b", "even"))
    yield error("too many", x, [1] * 10, says=(r"\bpad\b", r"\b8\b"))
    yield error("crops too much", x, [-5, -5], says=(r"\bpad\b", r"\b9\b"))
    yield error("unknown mode", x, [1, 1], "mirror", says=(r"\bmode\b", "mirror"))
    yield error("an image by one pair", x, [1, 1], "reflect", says=(r"\bpad\b", r"\[2, 3, 8, 9\]"))
    yield error("no pairs", x, [], "circular", says=(r"\bpad\b",))
    yield error("a vector", make(5), [1, 1], "replicate", says=(r"\bpad\b", r"\[5\]"))
    yield error("too wide a reflection", x, [9, 0, 0, 0], "reflect", says=(r"\bpad\b", r"\b8\b"))
    yield error("wraps twice", x, [0, 10, 0, 0], "circular", says=(r"\bpad\b", r"\b9\b"))
    yield error("a value of a border", x, [1, 1, 1, 1], "reflect", 2.0, says=(r"\bvalue\b", r"\b2\b"))
    yield error("no elements", make(2, 0, 8, 9), [1, 1, 1, 1], "replicate", says=(r"\binput\b", r"\[2, 0, 8, 9\]"))
    yield error("nothing left", make(3, 9), [-4, -5], "reflect", says=(r"\bpad\b",))


def _as_called(self, pad, mode="constant", value=None):
    return ((self, list(pad), mode, value), {})


CASES = [
    OpCase(
        name="pad",
        op=torch_ops.pad,
        overload=torch.ops.gpuopt.pad.default,
        aten=_aten,
        reference=_reference,
        samples=_samples,
        few=_few,
        errors=_errors,
        dtypes=ALL,
        grad_dtypes=FLOATS + COMPLEX[1:],
        bound=exact,
        elementwise=False,
        workspace=lambda sample: 2 * sample.tensors[0].nbytes + 2**12,
        opinfo=tuple(
            OpInfoLink(f"nn.functional.pad.{mode}", _as_called, at_least=4)
            for mode in ("constant", "reflect", "replicate", "circular")
        ),
    )
]
