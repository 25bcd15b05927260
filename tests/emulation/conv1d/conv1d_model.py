"""Random small convolutions, the emulated kernels that compute them, and a reference in numpy.

Operands lie in memory whose neighbouring pages cannot be accessed.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import numpy as np

from ...support.conv1d_problem import (
    FORWARD,
    GELU,
    INPUT_GRADIENT,
    ITEM,
    NONE,
    RELU,
    SILU,
    SM_75,
    SM_90,
    WEIGHT_GRADIENT,
    Device,
    Problem,
    Signal,
    Weight,
    output_size,
    strides_of,
)
from ..build import load
from ..dtypes import BF16, F16, F32, TYPES
from ..memory import Memory, decode, encode

DTYPES = {6: F16, 7: BF16, 8: F32, 9: TYPES[8]}
HALF_ULP = {6: 2.0**-11, 7: 2.0**-8, 8: 2.0**-24, 9: 2.0**-53}
GUARD, POISON, UNTOUCHED = 256, 0xFF, 0xCD  # number of bytes; NaN in all dtypes; old contents of results
MEMORY = 1 << 20

SIZES = [*range(1, 10), 12, 15, 16, 17, 24, 31, 33, 64, 65, 100, 127, 131, 200, 256, 257, 400]
SIZES += [515, 520, 700, 1052, 1200, 2500]
TAPS = [*range(1, 13), 15, 16, 17, 22, 23, 24, 31, 32, 33, 47, 64, 65, 70]
FAR = 2**28 + 3  # a stride that leads to positions beyond 32 bits
LAYOUTS = ["rows", "rows", "rows", "whole rows", "whole rows", "rows apart", "channels last"]
LAYOUTS += ["whole channels", "whole channels", "strided", "batch last"]


def extent(strides: tuple, shape: tuple) -> int:
    """The number of elements from the first to the last, inclusive."""
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))


@dataclass
class Case:
    """A problem in memory. In each array that is read, `special` values are infinite or NaN."""

    which: int
    problem: Problem
    device: Device
    special: int
    seed: int

    @property
    def dtype(self):
        return DTYPES[self.problem.dtype]

    @property
    def has_special_taps(self) -> bool:
        """Whether taps may be infinite or NaN. They may not in input gradients of stride 1: these run as forward convolutions and
        multiply taps by the zeros beside the gradient."""
        return self.which != INPUT_GRADIENT or (self.problem.stride > 1 and self.problem.to.size > 1)

    @property
    def written(self) -> int:
        """The index of the result in arrays()."""
        return {FORWARD: 1, INPUT_GRADIENT: 0, WEIGHT_GRADIENT: 2}[self.which]

    def arrays(self) -> list[tuple[int, tuple, tuple]]:
        """(address, shape, strides in elements) of input, output, weight and bias."""
        p = self.problem
        found = [
            (s.data, (p.batch, p.groups * s.channels, s.size), (s.batch_stride, s.channel_stride, s.stride))
            for s in (p.from_, p.to)
        ]
        w, outs = p.weight, p.groups * p.to.channels
        found.append((w.data, (outs, p.from_.channels, p.taps), (w.out_stride, w.in_stride, w.tap_stride)))
        return found + ([(p.bias, (found[self.written][1][1],), (p.bias_stride,))] if p.bias else [])


class Emulated:
    """The library of emulated kernels, and memory for input, output, weight, bias and one more array."""

    def __init__(self):
        self.library = load("conv1d")
        for function in (self.library.launches, self.library.run, self.library.run_update):
            function.restype = ctypes.c_char_p
        self.memories = [Memory(MEMORY) for _ in range(5)]

    def launches(self, case: Case) -> dict[str, tuple[int, list[str]]]:
        """The paths that support the problem, each with the number of threads and the kernels that it would launch."""
        numbers, device = case.problem.numbers(), case.device.numbers()
        lines = self.library.launches(numbers, case.which, device).decode().splitlines()
        return {name: (int(threads), kernels) for name, threads, *kernels in map(str.split, lines)}

    def random_address(self, random: np.random.Generator, i: int, item: int, count: int) -> int:
        """An address for `count` elements, at a random offset from an aligned one, near the beginning or the end of a memory."""
        begin, values = self.memories[i].bytes.ctypes.data, 16 // item
        offset = pick(random, *[0] * 5, 1, values // 2, values - 1, values) * item
        if random.random() < 0.5:
            return begin + offset
        offset %= 16
        return begin + offset + (MEMORY - (offset + count * item)) // 16 * 16

    def near(self, i: int, item: int, address: int, shape: tuple, strides: tuple) -> tuple[np.ndarray, np.ndarray]:
        """A view of an array, and the bytes of the array with up to GUARD bytes before and after."""
        memory = self.memories[i].bytes
        begin, count = address - memory.ctypes.data, extent(strides, shape)
        numbers = memory[begin : begin + count * item].view(f"u{item}")
        view = np.lib.stride_tricks.as_strided(numbers, shape, [s * item for s in strides])
        return view, memory[max(begin - GUARD, 0) : begin + count * item + GUARD]

    def call(self, case: Case, name: str) -> list[str]:
        """Runs the kernels. Returns the words of the shim's answer."""
        written = ctypes.c_void_p(case.arrays()[case.written][0])
        answer = self.library.run(case.problem.numbers(), case.which, case.device.numbers(), name.encode(), written)
        return answer.decode().split()

    def run(self, case: Case, name: str = "", exact: bool = True) -> tuple[str, int, list[str]]:
        """Runs the named path, or the chosen one, and checks its results. Returns its name, the number of parts of its plan, and
        its kernels.

        With `exact`, sums are exact in every dtype and order. Otherwise they are rounded.
        """
        dtype, item = case.dtype, case.problem.item
        random, written = np.random.default_rng(case.seed), case.written
        views, nears = [], []
        for i, (address, shape, strides) in enumerate(case.arrays()):
            view, near = self.near(i, item, address, shape, strides)
            near[:] = UNTOUCHED if i == written else POISON
            if i != written:
                values = random.integers(-8, 9, shape) / 4 if exact else random.standard_normal(shape)
                if i < (3 if case.has_special_taps else 2):
                    rows, ends = values.reshape(-1, shape[-1]), [0, -1, random.integers(shape[-1])]
                    at = random.integers(0, len(rows), case.special), random.choice(ends, case.special)
                    rows[at] = random.choice([np.inf, -np.inf, np.nan], case.special)
                view[...] = encode(dtype, values).view(view.dtype)
            views.append(view)
            nears.append(near)
        before = [near.copy() for near in nears]

        path, parts, intact, *kernels = self.call(case, name)
        assert intact == "1", "a launch failed, or a kernel wrote behind its workspace or shared memory"
        if path != "aten":
            result = views[written].copy()
            check(case, result.view(dtype.numpy), [decode(dtype, v.view(dtype.numpy)) for v in views], exact)
            if not exact:  # the emulator alternates the order of threads, which must not change the bits
                nears[written][:] = UNTOUCHED
                self.call(case, name)
                assert np.array_equal(views[written], result), "another order of threads gives other results"
        views[written][...] = int.from_bytes([UNTOUCHED] * item, "little")
        for near, outside in zip(nears, before):
            assert np.array_equal(near, outside), "something beside the result has changed"
        return path, int(parts), kernels


def pick(random: np.random.Generator, *options):
    return options[random.integers(len(options))]


def draw_steps(random: np.random.Generator, taps: int, size: int) -> tuple[int, int, int, int]:
    """Draws stride and dilation. Returns (taps, size, stride, dilation), where taps and size may have been reduced."""
    if random.random() < 0.03:  # a small problem with a large stride
        return min(taps, 4), min(size, 30), pick(random, 32768, 40000, FAR), pick(random, 1, 3, 8)
    stride = pick(random, 1, 1, 1, 1, 2, 3, 4, 5, 8, pick(random, 7, 16, 64, 65, 256, 257))
    if random.random() < 0.05:
        return taps, size, stride, stride * pick(random, 1, 2)
    return taps, size, stride, pick(random, 1, 1, 1, 1, 2, 3, 4, 8, 16, 17)


def draw(random: np.random.Generator, which: int, emulated: Emulated, most_macs: int = 800_000) -> Case | None:
    """Draws a problem. Returns None if it is too large."""
    dtype, channels, groups = pick(random, *ITEM), (1, 1), pick(random, 1, 1, 2, 3, 8, 16, 24, 40)
    item, values = ITEM[dtype], 16 // ITEM[dtype]
    if random.random() < 0.5:
        groups, outs = pick(random, 1, 1, 2, 3), (*range(1, 10), 12, 16, 17, 33, 40, 64, 66)
        channels = pick(random, 1, 1, 1, 2, 3, 5, 8, 16), pick(random, *outs)
    batch, size = pick(random, 1, 1, 2, 3, 5, pick(random, 9, 40, 300)), pick(random, *SIZES, random.integers(1, 600))
    taps, size, stride, dilation = draw_steps(random, pick(random, *TAPS), int(size))
    if random.random() < 0.03:  # too many outputs for one thread each
        batch, taps = 36_000 // (size * groups * channels[1]) + 1, min(taps, 20)
    span = (taps - 1) * dilation
    paddings = 0, 0, span // 2, span, span + pick(random, 1, 5), int(random.integers(span + 1))
    padding = [pick(random, *paddings), pick(random, *paddings) + pick(random, 0, 0, 0, -1, -3)]
    if stride > size > span:
        padding[0] = pick(random, 0, stride - int(random.integers(1, size - span + 1)))
    out_size = output_size(size, taps, stride, padding, dilation)
    weights = groups * channels[0] * channels[1] * taps
    if batch * weights * out_size > most_macs or weights > 4000:
        return None
    input_layout = pick(random, *LAYOUTS)
    layouts = [input_layout, input_layout if random.random() < 0.7 else pick(random, *LAYOUTS)]
    if random.random() < 0.05:
        layouts[pick(random, 0, 1) if which == WEIGHT_GRADIENT else which] = pick(random, "expanded", "expanded rows")
    signals = []
    for i, (c, length) in enumerate(zip(channels, (size, out_size))):
        shape = batch, groups * c, length
        strides = strides_of(layouts[i], batch, groups * c, length, pick(random, values, 2 * values))
        count = extent(strides, shape)
        if count * item > MEMORY - 64:
            return None
        signals.append(Signal(emulated.random_address(random, i, item, count), *strides, c, length))
    shape = groups * channels[1], channels[0], taps
    strides = [shape[1] * taps, taps, 1]
    if which != WEIGHT_GRADIENT and random.random() < 0.3:
        strides = draw_strides(random, shape)
    weight = Weight(
        emulated.random_address(random, 2, item, extent(strides, shape)), channels[1] * strides[0], *strides
    )
    bias, bias_stride, activation = 0, 1, NONE
    if which == FORWARD:
        activation = pick(random, NONE, NONE, RELU, SILU, GELU)
    if which != WEIGHT_GRADIENT and random.random() < 0.5:
        bias_stride, outs = pick(random, 1, 1, 0, 2), groups * channels[1 if which == FORWARD else 0]
        bias = emulated.random_address(random, 3, item, extent((bias_stride,), (outs,)))
    problem = Problem(
        *signals, weight, bias, bias_stride, dtype, batch, groups, taps, stride, padding[0], dilation, activation
    )
    device = Device(pick(random, 1, 1, 4, 132), pick(random, SM_75, SM_90))
    return Case(which, problem, device, pick(random, 0, 0, 1, 3), int(random.integers(2**31)))


def draw_strides(random: np.random.Generator, shape: tuple) -> list[int]:
    """Draws strides for dimensions in any order, with or without gaps."""
    gap, step, strides = pick(random, 0, 0, 1), 1, [0] * len(shape)
    step += gap
    for d in random.permutation(len(shape)):
        strides[d], step = step, step * shape[d] + gap
    return strides


def activated(values: np.ndarray, activation: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        if activation == RELU:
            return np.where(values < 0, 0, values)
        if activation == SILU:
            return values / (1 + np.exp(-values))
        return values * 0.5 * (1 + np.vectorize(math.erf)(values * math.sqrt(0.5))) if activation == GELU else values


def reference(p: Problem, which: int, x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The result of a pass, without bias and activation.

    Taps are multiplied by the zeros of padding beside a signal, so infinite taps give NaN there. Beside a gradient nothing is
    multiplied.
    """
    x, y = (array.reshape(p.batch, p.groups, -1, array.shape[2]) for array in (x, y))
    w = w.reshape(p.groups, -1, *w.shape[1:])
    result = np.zeros([y, x, w][which].shape)
    first = np.arange(p.to.size) * p.stride - p.padding
    with np.errstate(all="ignore"):
        for k in range(p.taps):
            at = first + k * p.dilation
            inside = (at >= 0) & (at < p.from_.size)
            if which == INPUT_GRADIENT:
                result[..., at[inside]] += w[None, ..., k].swapaxes(2, 3) @ y[..., inside]
                continue
            under = np.zeros((*x.shape[:3], p.to.size))
            under[..., inside] = x[..., at[inside]]
            if which == FORWARD:
                result += w[None, ..., k] @ under
            else:
                result[..., k] = (y @ under.swapaxes(2, 3)).sum(0)
    return result


def compare(
    dtype: int, got: np.ndarray, want: np.ndarray, activation: int = NONE, error: np.ndarray | float = 0.0
) -> None:
    """Compares results. They are exact, except for the error of rounded sums and for activations, which round in the compute
    dtype."""
    with np.errstate(all="ignore"):
        if activation in (SILU, GELU):
            error = error + 64 * HALF_ULP[max(dtype, 8)] * (np.abs(want) + 1)
        got, rounded = decode(DTYPES[dtype], got), decode(DTYPES[dtype], encode(DTYPES[dtype], want))
        error = error + (error > 0) * (2 * HALF_ULP[dtype] * np.abs(want) + 2.0**-24 * (dtype == 6))
        fine = (np.abs(got - want) <= error) | (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    assert fine.all(), f"at {np.argwhere(~fine)[:5].tolist()} {got[~fine][:5]} instead of {want[~fine][:5]}"


def check(case: Case, got: np.ndarray, arrays: list[np.ndarray], exact: bool) -> None:
    p, which = case.problem, case.which
    x, y, w, *bias = arrays
    with np.errstate(all="ignore"):
        want = reference(p, which, x, y, w).reshape(got.shape)
        want = activated(want + bias[0][:, None] if bias else want, p.activation)
        if exact:
            return compare(p.dtype, got, want, p.activation)
        terms = {
            FORWARD: p.from_.channels * p.taps,
            INPUT_GRADIENT: p.to.channels * p.taps,
            WEIGHT_GRADIENT: p.batch * p.to.size,
        }[which]
        sizes = reference(p, which, *map(np.abs, (x, y, w))).reshape(got.shape)
        compare(p.dtype, got, want, p.activation, (terms + 8) * HALF_ULP[max(p.dtype, 8)] * (sizes + 4))
