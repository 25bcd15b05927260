"""The fused gradient of depthwise convolutions with silu, run on the CPU and compared with numpy."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from ...support.conv1d_problem import (
    FLOAT16,
    FLOAT32,
    INPUT_GRADIENT,
    ITEM,
    NONE,
    SILU,
    WEIGHT_GRADIENT,
    Signal,
    problem_of,
    strides_of,
)
from ..memory import decode, encode
from .conv1d_model import DTYPES, HALF_ULP, MEMORY, POISON, UNTOUCHED, Emulated, draw_strides, extent, pick, reference

CASES = 1200
SIZES = [*range(1, 10), 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255, 256, 257, 300, 511]
LONG = [513, 2048, 2051, 3000, 4100, 6200]


@cache
def emulated() -> Emulated:
    found = Emulated()
    found.library.run_fused.restype = ctypes.c_char_p
    return found


def run(problem, result: Signal, outputs: list[int]) -> list[str]:
    signal = (ctypes.c_int64 * 6)(*vars(result).values())
    answer = emulated().library.run_fused(problem.numbers(), signal, *map(ctypes.c_void_p, outputs))
    return answer.decode().split()


def draw(random: np.random.Generator):
    """Draws a problem and the signal of the input's gradient, without addresses."""
    dtype, taps = pick(random, *ITEM), pick(random, 2, 3, 4)
    batch, channels, size = pick(random, 1, 1, 2, 3, 5), pick(random, 1, 2, 3, 4, 5, 8, 16, 24), pick(random, *SIZES)
    if random.random() < 0.1:
        batch, channels, size = 1, pick(random, 1, 2, 4), pick(random, *LONG)
    if random.random() < 0.05:
        batch, channels, size = 40, pick(random, 1, 8), pick(random, 1, 3, 8, 17)
    padding = [taps - 1, 0]  # causal
    if random.random() < 0.4:
        padding = [pick(random, 0, 1, taps - 1, taps + 3), pick(random, 0, 1, taps - 1, taps + 2, -1, -2)]
    last = random.random() < 0.5
    layouts = ["channels last" if last else pick(random, "rows", "rows", "whole rows", "rows apart")] * 2
    if random.random() < 0.3:
        layouts[1] = pick(random, "rows", "rows apart", "channels last", "strided", "expanded")
    problem = problem_of(batch, channels, (1, 1), size, taps, dtype, 1, padding, 1, layouts)
    problem.activation = pick(random, NONE, SILU, SILU)
    strides = strides_of("channels last" if last and channels > 1 < size else "rows", batch, channels, size, 1)
    return problem, Signal(0, *strides, 1, size)


def derivative(pre: np.ndarray) -> np.ndarray:
    sigmoid = 1 / (1 + np.exp(-pre))
    return sigmoid * (1 + pre * (1 - sigmoid))


def wanted(p, x, g, w, b, absolute=False):
    """The three gradients. With `absolute`, the sums of the terms' absolute values, where silu's derivative is at most 1.1."""
    with np.errstate(all="ignore"):
        if absolute:
            x, g, w = (
                np.abs(x),
                np.abs(g) * 1.1 * (p.activation == SILU) + np.abs(g) * (p.activation == NONE),
                np.abs(w),
            )
        elif p.activation == SILU:
            g = g * derivative(reference(p, 0, x, g, w).reshape(g.shape) + b[:, None])
        return (
            reference(p, INPUT_GRADIENT, x, g, w).reshape(x.shape),
            reference(p, WEIGHT_GRADIENT, x, g, w).reshape(w.shape),
            g.sum((0, 2)),
        )


def check(p, got, want, sizes, terms) -> None:
    ulp, compute = HALF_ULP[p.dtype], HALF_ULP[max(p.dtype, FLOAT32)]
    for left, right, size, count in zip(got, want, sizes, terms, strict=True):
        with np.errstate(all="ignore"):
            rounded = decode(DTYPES[p.dtype], encode(DTYPES[p.dtype], right))
            error = 2 * ulp * np.abs(right) + (count + 64) * compute * (size + 1) + 2.0**-24 * (p.dtype == FLOAT16)
            fine = (np.abs(left - right) <= error) | (left == rounded) | (np.isnan(left) & np.isnan(right))
        assert fine.all(), f"at {np.argwhere(~fine)[:5].tolist()} {left[~fine][:5]} instead of {right[~fine][:5]}"


def run_case(seed: int) -> tuple[str, ...]:
    """Runs a random problem twice. Returns its kernels."""
    random = np.random.default_rng(seed)
    p, result = draw(random)
    kind, item = DTYPES[p.dtype], p.item
    shapes = (
        (p.batch, p.groups, p.from_.size),
        (p.batch, p.groups, p.to.size),
        (p.groups, 1, p.taps),
        (p.groups,),
        (p.batch, p.groups, p.from_.size),
        (p.groups, 1, p.taps),
        (p.groups,),
    )
    weight = draw_strides(random, shapes[2]) if random.random() < 0.3 else [p.taps, p.taps, 1]
    p.weight.group_stride, p.weight.out_stride, p.weight.in_stride, p.weight.tap_stride = weight[0], *weight
    p.bias_stride = pick(random, 1, 1, 0, 2)
    strides = (
        *((s.batch_stride, s.channel_stride, s.stride) for s in (p.from_, p.to)),
        weight,
        (p.bias_stride,),
        (result.batch_stride, result.channel_stride, result.stride),
        (p.taps, p.taps, 1),
        (1,),
    )
    counts = [extent(*pair) for pair in zip(strides, shapes, strict=True)]
    # Operands may begin at any value; results are aligned. The last two results lie behind each other.
    addresses = [emulated().random_address(random, i, item, counts[i]) for i in range(4)]
    begin = emulated().memories[4].bytes.ctypes.data
    for count in counts[4:]:
        addresses.append(begin)
        begin += -(-count * item // 16) * 16 + 256
    assert begin <= emulated().memories[4].bytes.ctypes.data + MEMORY
    views, nears = [], []
    for i, address in enumerate(addresses):
        view, near = emulated().near(min(i, 4), item, address, shapes[i], strides[i])
        near[:] = UNTOUCHED if i >= 4 else POISON
        views.append(view)
        nears.append(near)
    for i in range(4):
        values = random.integers(-8, 9, shapes[i]) / 4
        if i < 2 and random.random() < 0.2:
            values.reshape(-1)[random.integers(values.size)] = pick(random, np.nan, np.inf)
        views[i][...] = encode(kind, values).view(views[i].dtype)
    before = [near.copy() for near in nears]
    has_bias = pick(random, 0, 1)
    p.from_.data, p.to.data, p.weight.data, p.bias = *addresses[:3], addresses[3] * has_bias
    x, g, w, b = (decode(kind, view.view(kind.numpy)) for view in views[:4])
    b = b * has_bias
    asked = pick(random, (1, 1, 1), (1, 1, 1), (1, 1, 0), (1, 0, 0), (0, 1, 1), (0, 0, 1))
    outputs = [address * wanted for address, wanted in zip(addresses[4:], asked)]

    answer = run(p, result, outputs)
    if not answer:
        assert result.stride == 1 and p.to.stride != 1 < p.to.size, "contiguous rows and channels last are supported"
        return ()
    has_vectors, intact, *kernels = answer
    assert intact == "1"
    first = [view.copy() for view in views[4:]]
    run(p, result, outputs)  # the emulator alternates the order of threads, which must not change the bits
    assert all(np.array_equal(view, old) for view, old in zip(views[4:], first))
    terms = p.taps, p.batch * p.to.size, p.batch * p.to.size
    found = [decode(kind, view.view(kind.numpy)) for view in first]
    every = zip(asked, zip(found, wanted(p, x, g, w, b), wanted(p, x, g, w, b, absolute=True), terms))
    some = [parts for is_asked, parts in every if is_asked]
    check(p, *zip(*some))
    assert all(is_asked or (view.view(np.uint8) == UNTOUCHED).all() for view, is_asked in zip(first, asked))
    for view in views[4:]:
        view[...] = int.from_bytes([UNTOUCHED] * item, "little")
    assert all(map(np.array_equal, nears, before)), "something beside the results has changed"
    return has_vectors, *kernels


@cache
def kernels() -> set[str]:
    """The kernels of all cases, which pass."""
    met = set()
    for seed in range(CASES):
        try:
            met.update(run_case(seed)[1:])
        except AssertionError as error:
            raise AssertionError(f"{error}\nseed {seed}: {draw(np.random.default_rng(seed))}") from None
    return met


def test_random_problems():
    assert kernels()
