"""Times copies of torch_ops.override beside ATen's: pads and their gradients, rolls, concatenations and gathers of rows.

    python -m benchmarks tune pad

``results/<gpu>/pads.jsonl`` has a line for each call and dtype. The override takes every call for it. The policy of the override is
tested against this file (tests/plan/override/test_override_policy.py). ``bytes`` are read and written; ``ceiling_us`` is the time of a
copy of so many bytes.
"""

from __future__ import annotations

import functools
import itertools
import json
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as functional

from benchmarks.harness import machine, report, timer
from benchmarks.random.override import replaced

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
SIGNALS = ((16, 512, 8000), (16, 64, 8000), (8, 80, 3000), (4, 1, 160000), (32, 1, 480000), (64, 256, 100))
IMAGES = (
    (32, 64, 56, 56), (8, 3, 256, 256), (8, 128, 64, 64), (4, 64, 256, 256), (64, 256, 14, 14), (1, 256, 64, 64), (1, 64, 256, 256),
    (16, 3, 224, 224), (2, 32, 500, 333),
)  # fmt: skip
VOLUMES = ((2, 16, 32, 64, 64), (1, 32, 20, 100, 100))
ROLLED = (
    ((32, 56, 56, 96), (-3, -3), (1, 2)), ((32, 28, 28, 192), (-3, -3), (1, 2)), ((32, 14, 14, 384), (-3, -3), (1, 2)),
    ((64, 56, 56, 128), (3, 3), (1, 2)), ((8, 56, 56, 96), (-3, -3), (1, 2)), ((64, 1 << 19), 1, -1), ((64, 1 << 19), 100000, -1),
    ((4096, 1024), 1, 0), ((8, 2048, 512), 1, 1),
)  # fmt: skip
# Shapes of the tensors, and the joined dimension.
JOINED = (
    ([(65536, 75)] * 2, -1), ([(300000, 75)] * 2, -1), ([(65536, 64)] * 2, -1), ([(300000, 128)] * 2, -1), ([(8, 16, 2048, 64)] * 2, -1),
    ([(32, 1024, 32, 3), (32, 1024, 32, 64)], -1), ([(32, 1024, 32, 3)] * 2, -1), ([(8, 4096, 3), (8, 4096, 125)], -1),
    ([(16, 65536, 1)] * 3, -1), ([(64, 58, 28, 28)] * 2, 1), ([(64, 232, 7, 7)] * 2, 1), ([(16, 64, 128, 128)] * 2, 1),
    ([(16, 64, 125, 125)] * 2, 1), ([(64, 512, 7, 7), *[(64, 32, 7, 7)] * 5], 1), ([(32, 256, 14, 14), *[(32, 32, 14, 14)] * 13], 1),
    ([(8, 16, 1000, 64), (8, 16, 1, 64)], 2), ([(32, 768), (32, 196 * 768)], 1), ([(200000, 32), (200000, 3)], -1),
    ([(100000, 16)] * 8, -1), ([(4096, 1000), (4096, 24)], -1), ([(64, 1, 768), (64, 196, 768)], 1),
)  # fmt: skip
JOINED_CHANNELS_LAST = (
    [(16, 64, 128, 128)] * 2, [(64, 58, 14, 14)] * 6, [(64, 58, 28, 28)] * 2, [(32, 256, 28, 28)] * 2, [(8, 64, 64, 64), (8, 3, 64, 64)],
)  # fmt: skip
STACKED = (
    ((16, 4096, 64), -1),
    ((16, 4096, 75), -2),
    ((8, 16, 2048, 32), -1),
    ((65536, 3), -1),
    ((64, 3, 224, 224), 0),
)
GATHERED = (
    (32, 1024, 16384, 64), (16, 4096, 8192, 128), (32, 1024, 16384, 3), (8, 16384, 16384, 256), (64, 512, 512, 64),
    (1, 100000, 400000, 64), (32, 1024, 16384, 67),
)  # fmt: skip


class Copy(NamedTuple):
    """A call, and what the policy is asked about it."""

    name: str
    call: Callable[[], torch.Tensor]
    bytes: int
    facts: dict


def _bytes(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _pads(make: Callable) -> Iterator[Copy]:
    aten = torch.ops.aten
    for shape in (*SIGNALS, *IMAGES, *VOLUMES):
        dims, x = len(shape) - 2, make(*shape)
        widths = [3, 1] if dims == 1 else [1, 3] if dims == 2 else [1]
        wide = [min(200, shape[-1] // 4)] if dims == 1 else []
        for mode, width in itertools.product(("constant", "reflect", "replicate"), [*widths, *wide]):
            pad = [width] * (2 * dims)
            call = functools.partial(functional.pad, x, pad, mode)
            grad = torch.randn_like(call())
            facts = {"kind": mode, "shape": shape, "pad": pad}
            yield Copy(f"{mode} {shape} {width}", call, _bytes(x, grad), facts)
            if mode != "constant":
                backward = getattr(aten, f"{'reflection' if mode == 'reflect' else 'replication'}_pad{dims}d_backward")
                backward = functools.partial(backward, grad, x, pad)
                yield Copy(
                    f"gradient of {mode} {shape} {width}", backward, _bytes(x, grad), {**facts, "gradient": True}
                )
        one_sided = [0, 1] * dims if dims > 1 else [shape[-1] // 8, 0]
        for pad in (one_sided, [-3, -3]):
            call = functools.partial(functional.pad, x, pad)
            result = call()
            read = min(_bytes(x), _bytes(result))
            facts = {"kind": "constant", "shape": shape, "pad": pad}
            yield Copy(f"constant {shape} {pad}", call, read + _bytes(result), facts)
        if dims == 2:
            y = x.contiguous(memory_format=torch.channels_last)
            call = functools.partial(functional.pad, y, [1] * 4)
            yield Copy(f"constant channels_last {shape} 1", call, _bytes(x, call()), {"kind": "constant"})
    points = make(16, 65536, 3)
    call = functools.partial(functional.pad, points, (0, 1))
    yield Copy("constant (16, 65536, 3) (0, 1)", call, _bytes(points, call()), {"kind": "constant"})


def _joins(make: Callable) -> Iterator[Copy]:
    def joined(name: str, tensors: list[torch.Tensor], call: Callable, dim: int) -> Copy:
        slices = [t.size(dim) * tensors[0].stride(dim) * t.element_size() for t in tensors]
        dense = all(n % 16 == 0 for n in slices) and all(t.is_contiguous() for t in tensors)
        return Copy(
            name,
            call,
            2 * _bytes(*tensors),
            {"kind": "cat", "tensors": len(tensors), "dense": dense, "narrowest": min(slices)},
        )

    for shapes, dim in JOINED:
        tensors = [make(*shape) for shape in shapes]
        yield joined(
            f"cat {len(shapes)}: {shapes[0]}, {shapes[-1]} in {dim}",
            tensors,
            functools.partial(torch.cat, tensors, dim),
            dim,
        )
    for shapes in JOINED_CHANNELS_LAST:
        tensors = [make(*shape).contiguous(memory_format=torch.channels_last) for shape in shapes]
        call = functools.partial(torch.cat, tensors, 1)
        yield joined(f"cat channels_last {len(shapes)} of {shapes[0]}", tensors, call, 1)
    for shape, dim in STACKED:
        x = make(*shape)
        slices = [x.unsqueeze(dim)] * 2
        yield joined(f"stack 2 of {shape} {dim}", slices, functools.partial(torch.stack, [x, x], dim), dim)
    narrow = [make(64, 128, 56, 56).narrow(1, 3, 61), make(64, 61, 56, 56)]
    yield joined("cat strided (64, 61, 56, 56)", narrow, functools.partial(torch.cat, narrow, 1), 1)
    left, right = make(8, 32, 1024, 128).chunk(2, -1)
    yield joined("cat halves", [right, left], functools.partial(torch.cat, [right, left], -1), -1)


def copies(dtype: torch.dtype, device: str = "cuda") -> Iterator[Copy]:
    make = functools.partial(torch.randn, device=device, dtype=dtype)
    yield from _pads(make)
    for shape, shifts, dims in ROLLED:
        x = make(*shape)
        yield Copy(
            f"roll {shape} {shifts} {dims}",
            functools.partial(torch.roll, x, shifts, dims),
            2 * _bytes(x),
            {"kind": "roll"},
        )
    yield from _joins(make)
    for tables, rows, entries, width in GATHERED:
        table = make(tables, rows, width)
        index = torch.randint(0, rows, (tables, entries, 1), device=device).expand(tables, entries, width)
        moved = 2 * index.numel() * table.element_size()
        yield Copy(
            f"gather {tables, rows, width} to {entries}",
            functools.partial(table.gather, 1, index),
            moved,
            {"kind": "gather"},
        )


def _us(call: Callable, flush: Callable) -> float:
    return statistics.median(timer._samples(call, 5, flush)[0])


def rows() -> Iterator[dict]:
    memory = torch.empty(40 << 20, dtype=torch.int32, device="cuda")
    flush = functools.partial(memory.fill_, 1)
    ceilings: dict[int, float] = {}
    for name, dtype in DTYPES.items():
        for copy in copies(dtype):
            half = max(copy.bytes // 2 // 512 * 512, 512)
            if half not in ceilings:
                a, b = (torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2))
                ceilings[half] = _us(functools.partial(a.copy_, b), flush)
            times: dict[bool, list[float]] = {False: [], True: []}
            for ours in (False, True, False, True):
                with replaced("cuda") if ours else torch.no_grad():
                    copy.call()
                    times[ours].append(_us(copy.call, flush))
            aten, us = statistics.mean(times[False]), statistics.mean(times[True])
            yield {
                "call": copy.name, "dtype": name, "bytes": copy.bytes, **copy.facts, "ceiling_us": ceilings[half], "us": us,
                "times_aten": aten / us,
            }  # fmt: skip


def measure(arguments) -> None:
    with arguments.out.open("w") as file:
        print(json.dumps({"gpu": machine.gpu(), **machine.versions(), **machine.commit(arguments.commit)}), file=file)
        for row in rows():
            print(json.dumps(report.rounded(row)), file=file, flush=True)
