"""Problems for the emulated launchers and kernels of convolutions, and what numpy makes of them."""

from __future__ import annotations

import ctypes
import math

import numpy as np

from .build import load
from .dtypes import BF16, F16, F32, TYPES
from .memory import Memory, decode, encode

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = range(3)
LIBRARY, ROWS, FAN, COLUMNS, VALUES, CHUNKS, FAN_GRADIENTS, GEMM = range(8)
NONE, RELU, SILU, GELU = range(4)
F64 = TYPES[8]
DTYPES = [F16, BF16, F32, F64]
GUARD, POISON, UNTOUCHED = 256, 0xFF, 0xCD  # NaN in all dtypes; what results are laid on
LIMITS = {"row_threads": 128, "wide_outputs": 32 << 10, "weight_blocks": 6, "weight_units": 4}
LIMITS |= {"chunk_outputs": 2**60}  # unless a test asks for chunks
LIMITS |= {"chunk_warps": 16, "weight_bytes": 2 << 10}
LIMITS |= {"few_places": 0, "few_outputs": 0}  # or no problem would be large
LIMITS |= {"few_products": 48 << 10, "few_last_products": 128 << 10}
LIMITS |= {"few_tile_products": 8 << 10, "few_taps_products": 4 << 10, "few_direct_products": 512}
LIMITS |= {"direct_filled": 65, "direct_far_filled": 84, "direct_warps": 0, "direct_row": 2**60}
LIMITS |= {"polyphase_taps": 192, "polyphase_outputs": 2**60, "polyphase_warps": 64, "polyphase_few_warps": 0}
LIMITS |= {"fan_gradient_channels": 2**60, "fan_gradient_first": 2**60, "few_weight_places": 0}
LIMITS |= {"gemm_channels": 0}  # unless a test asks for it
LIMITS |= {"kMaxIndex32": 2**31 - 1, "kFar": 2**29}
INVALID_VALUE = 1


def fields(names: str, kind=ctypes.c_int64) -> list:
    return [(name, kind) for name in names.split()]


class GivenSignal(ctypes.Structure):
    _fields_ = fields("data batch_stride channel_stride stride channels size")


class Given(ctypes.Structure):
    _fields_ = [("from_", GivenSignal), ("to", GivenSignal)]
    _fields_ += fields("weight group_stride out_stride in_stride tap_stride bias bias_stride")
    _fields_ += fields("dtype batch groups taps step padding dilation activation")


class GivenUpdate(ctypes.Structure):
    _fields_ = fields(
        "input input_batch_stride input_stride state state_batch_stride state_channel_stride state_stride"
    )
    _fields_ += fields(
        "weight weight_stride tap_stride bias bias_stride out dtype batch channels taps state_size activation"
    )


class Taken(ctypes.Structure):
    _fields_ = fields(
        "path channels wide slides packed dilated strided few_taps direct polyphase few_values channels_first places row_width phases stages warp_tiles products aligned tiles row_tiles",
        ctypes.c_int,
    )
    _fields_ += fields("taps tap_parts splits blocks threads block_rows launches workspaces intact", ctypes.c_int)

    @property
    def kernel(self) -> tuple:
        """What tells its kernel from others."""
        names = "path channels wide slides packed dilated strided few_taps direct polyphase few_values channels_first"
        return tuple(getattr(self, name) for name in names.split())


class Emulated:
    """The launchers and kernels, and memory of input, output, weight and bias."""

    def __init__(self):
        self.kernels = load("conv1d")
        self.memories = [Memory(1 << 20) for _ in range(4)]

    def set_limits(self, **limits) -> None:
        self.kernels.set_limits((ctypes.c_int64 * len(LIMITS))(*(LIMITS | limits).values()))


class Layout:
    """How an array lies: the order of its dimensions, innermost first, elements between the innermost dimension's, more after each
    dimension's last, expanded dimensions, and the elements before the first one in its sector of 32 bytes, where the memory begins, or
    in its aligned pack, near which the memory ends."""

    def __init__(self, order="last", step=1, gaps=(0, 0, 0), whole=0, expanded=(), offset=0, at_end=False):
        self.order, self.step, self.gaps, self.whole = order, step, gaps, whole
        self.expanded, self.offset, self.at_end = expanded, offset, at_end

    def __repr__(self):
        return f"Layout({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def strides(self, shape: tuple) -> list[int]:
        """In elements. Of three dimensions "last" has the last one inside, "middle" the one before; `whole` rounds up what they are apart."""
        order = {"last": (2, 1, 0), "middle": (1, 2, 0), "first": (0, 1, 2)}[self.order][-len(shape) :]
        if len(shape) < 3:
            order = tuple(range(len(shape)))[::-1]
        strides, step = [0] * len(shape), self.step
        for n, d in enumerate(order):
            strides[d] = 0 if d in self.expanded else step
            if d in self.expanded:
                continue
            step = step * shape[d] + self.gaps[n]
            if n == 0 and self.whole:
                step = -(-step // self.whole) * self.whole
        return strides

    def place(self, memory: Memory, dtype, shape: tuple, poison: int) -> tuple[np.ndarray, np.ndarray]:
        """A view of that shape, and all bytes near it, which are poisoned."""
        item, strides = dtype.numpy.itemsize, self.strides(shape)
        count = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
        begin = self.offset % (32 // item) * item
        if self.at_end:
            begin %= 16
            begin += (len(memory.bytes) - (begin + count * item)) // 16 * 16
        near = memory.bytes[max(begin - GUARD, 0) : begin + count * item + GUARD]
        near[:] = poison
        values = memory.bytes[begin : begin + count * item].view(dtype.numpy)
        assert len(values) == count
        return np.lib.stride_tricks.as_strided(values, shape, [s * item for s in strides]), near


PLAIN = (Layout(), Layout(), Layout())


def some(dtype, random: np.random.Generator, shape: tuple, special: int = 0) -> np.ndarray:
    """Values whose products have exact sums; `special` of them are infinite or NaN."""
    values = F64.some(random, math.prod(shape))
    values[random.integers(0, len(values), special)] = random.choice([np.inf, -np.inf, np.nan], special)
    return encode(dtype, values.reshape(shape))


def activated(values: np.ndarray, activation: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        if activation == RELU:
            return np.where(values < 0, 0, values)
        if activation == SILU:
            return values / (1 + np.exp(-values))
        return values * 0.5 * (1 + np.vectorize(math.erf)(values * math.sqrt(0.5))) if activation == GELU else values


def compare(dtype, got: np.ndarray, want: np.ndarray, activation: int = NONE) -> None:
    """Exactly, but for functions that are rounded in the compute type."""
    with np.errstate(all="ignore"):
        got, want = decode(dtype, got), decode(dtype, encode(dtype, want))
    if activation in (SILU, GELU):
        digits, least = {F16: (2**-10, 1e-5), BF16: (2**-7, 1e-5), F32: (1e-5, 1e-5), F64: (1e-12, 1e-12)}[dtype]
        np.testing.assert_allclose(got, want, digits, least)
    else:
        np.testing.assert_array_equal(got, want)


class Problem:
    def __init__(
        self, dtype, batch, groups, channels, size, taps, step=1, padding=(0, 0), dilation=1, bias=False, activation=NONE,
        layouts=PLAIN, special=0, seed=0, infinite=(), infinite_taps=(),
    ):  # fmt: skip
        """`channels` of a group, in and out. Of too few values there are more zeros behind them. `special` values of input and gradient
        are infinite or NaN, and those at the places `infinite` of each row of the input infinite, and `infinite_taps` of each weight."""
        self.dtype, self.batch, self.groups, self.channels, self.size, self.taps = (
            dtype,
            batch,
            groups,
            channels,
            size,
            taps,
        )
        self.step, self.left, self.dilation = step, padding[0], dilation
        places = max(size + sum(padding) - (taps - 1) * dilation, 1)  # of the first tap
        self.out_size = (places - 1) // step + 1
        self.bias, self.activation, self.layouts, self.special, self.seed = bias, activation, layouts, special, seed
        self.infinite, self.infinite_taps = list(infinite), list(infinite_taps)

    def __repr__(self):
        return f"Problem({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @property
    def shapes(self) -> tuple:
        ins, outs = (self.groups * c for c in self.channels)
        weight = (outs, self.channels[0], self.taps)
        return (self.batch, ins, self.size), (self.batch, outs, self.out_size), weight

    def expected(self, arrays: list, bias, which: int) -> np.ndarray:
        x, y, w = (decode(self.dtype, array).astype(np.float64) for array in arrays)
        (n, _, size), (_, _, outs), groups, (ci, co) = x.shape, y.shape, self.groups, self.channels
        reach = (outs - 1) * self.step + (self.taps - 1) * self.dilation + 1
        padded = np.zeros((n, groups, ci, max(reach, self.left + size)))
        grad, w = y.reshape(n, groups, co, outs), w.reshape(groups, co, ci, self.taps)
        windows = np.lib.stride_tricks.as_strided(
            padded,
            (n, groups, ci, outs, self.taps),
            (*padded.strides[:3], padded.strides[3] * self.step, padded.strides[3] * self.dilation),
        )
        inside = padded[..., self.left : self.left + size]
        with np.errstate(all="ignore"):
            if which == BACKWARD_INPUT:
                for k in range(self.taps):
                    windows[..., k] += np.einsum("ngoi,goc->ngci", grad, w[..., k])
                return inside.reshape(n, groups * ci, size)
            inside[...] = x.reshape(inside.shape)
            if which == BACKWARD_WEIGHT:
                return np.einsum("ngoi,ngcik->gock", grad, windows).reshape(groups * co, ci, self.taps)
            sums = np.einsum("ngcik,gock->ngoi", windows, w).reshape(n, groups * co, outs)
            return activated(sums if bias is None else sums + bias[None, :, None], self.activation)

    def run(self, conv1d: Emulated, which, sms=1, gemm=False, **limits) -> Taken | None:
        """None where not even one image's group fits into a launch. `gemm`: by this kernel, whatever others would be taken."""
        dtype, random = self.dtype, np.random.default_rng(self.seed)
        conv1d.set_limits(**limits)
        written = {FORWARD: 1, BACKWARD_INPUT: 0, BACKWARD_WEIGHT: 2}[which]
        views, nears = [], []
        for i, (layout, shape) in enumerate(zip(self.layouts, self.shapes)):
            if i == written and layout.expanded:
                layout = Layout(layout.order, offset=layout.offset)
            if i == written == 2:
                layout = Layout(offset=layout.offset, at_end=layout.at_end)  # contiguous
            view, near = layout.place(conv1d.memories[i], dtype, shape, UNTOUCHED if i == written else POISON)
            # Beyond the ends of a gradient some kernels lay taps on zeros and some don't.
            special = self.special if i < 2 or which == FORWARD else 0
            if i != written:
                view[...] = some(dtype, random, shape, special)
            if i == 0 != written:
                view[..., self.infinite] = encode(dtype, np.array(np.inf))
            if i == 2 != written:
                view[..., self.infinite_taps] = encode(dtype, np.array(np.inf))
            views.append(view)
            nears.append(near)
        bias = None
        if self.bias and which == FORWARD:
            bias, near = self.layouts[2].place(conv1d.memories[3], dtype, self.shapes[1][1:2], POISON)
            bias[...] = some(dtype, random, bias.shape)
            nears.append(near)
        before = [near.copy() for near in nears]

        item = dtype.numpy.itemsize
        signals = []
        for view, channels in zip(views, self.channels):
            strides = [s // item for s in view.strides]
            signals.append(GivenSignal(view.ctypes.data, *strides, channels, view.shape[2]))
        w = [s // item for s in views[2].strides]
        activation = self.activation if which == FORWARD else NONE
        problem = Given(
            *signals, views[2].ctypes.data, self.channels[1] * w[0], *w,
            *((0, 1) if bias is None else (bias.ctypes.data, bias.strides[0] // item)),
            dtype.number, self.batch, self.groups, self.taps, self.step, self.left, self.dilation, activation,
        )  # fmt: skip
        taken = Taken()
        if gemm:
            error = conv1d.kernels.run_gemm(ctypes.byref(problem), sms, ctypes.byref(taken))
        else:
            error = conv1d.kernels.run(ctypes.byref(problem), which, sms, ctypes.byref(taken))
        assert taken.intact, "a kernel wrote past its workspace or shared memory"
        if error == INVALID_VALUE and "kMaxIndex32" in limits:
            return None
        assert error == 0
        bias = None if bias is None else decode(dtype, bias).astype(np.float64)
        compare(dtype, views[written], self.expected(views, bias, which), activation)
        # Nothing beside the results has changed.
        views[written][...] = np.full(1, int.from_bytes([UNTOUCHED] * item, "little"), f"u{item}").view(dtype.numpy)[0]
        for near, own in zip(nears, before):
            assert np.array_equal(near, own)
        return taken
