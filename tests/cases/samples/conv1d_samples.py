"""Sample calls of convolutions, forward and backward: channels, groups, taps, strides, dilations, padding, layouts and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from .. import Sample, tensors


@dataclass(frozen=True)
class Call:
    """One convolution. `padding` is (left, right). `layout` is the memory layout of the input, and of grad_output in a backward."""

    name: str
    input_size: tuple[int, ...]  # (N, C, L), or (C, L)
    out_channels: int
    taps: int
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1
    groups: int = 1
    activation: str = "none"
    bias: bool = True
    layout: str = "contiguous"
    weight_layout: str = "contiguous"
    sanitize: bool = False

    @property
    def weight_size(self) -> tuple[int, int, int]:
        return self.out_channels, self.input_size[-2] // self.groups, self.taps

    @property
    def grad_size(self) -> tuple[int, ...]:
        positions = self.input_size[-1] + sum(self.padding) - self.dilation * (self.taps - 1) - 1
        return *self.input_size[:-2], self.out_channels, positions // self.stride + 1

    @property
    def same(self) -> bool:
        """Whether the padding is that of padding='same', which pads one more on the right if the sum is odd."""
        total = self.dilation * (self.taps - 1)
        return self.stride == 1 and self.padding == (total // 2, total - total // 2)

    def grown(self, times: int) -> Call:
        """The call with `times` as many signals, which are `times` as long. Sizes of 1 stay."""
        *images, channels, length = (n if n == 1 else times * n for n in self.input_size)
        return replace(self, input_size=(*images, self.input_size[-2], length))

    def __str__(self) -> str:
        said = f"{self.input_size} to {self.out_channels}, {self.taps} taps, step {self.stride}, padding {self.padding}"
        return f"{said}, dilation {self.dilation}, {self.groups} groups, {self.activation}, {self.layout} {self.name}"


@dataclass(frozen=True)
class GrowingSample(Sample):
    """A sample whose sizes depend on numbers in the call. `sizes(times)` gives the sizes of a call that is `times` as large."""

    sizes: Callable[[int], list] | None = None
    times: int = 1

    def resized(self) -> GrowingSample:
        sizes = iter(self.sizes(2 * self.times))
        return replace(self.map(lambda t: tensors.resized(t, next(sizes))), times=2 * self.times)


# (signals, channels, output channels, groups): depthwise, several outputs per channel, groups, few channels, one channel, dense.
CHANNELS = (
    (2, 3, 3, 3), (1, 8, 8, 8), (2, 33, 33, 33), (3, 2, 4, 2), (2, 3, 9, 3), (2, 4, 6, 2), (1, 8, 4, 4), (3, 1, 1, 1), (2, 1, 5, 1),
    (2, 3, 1, 1), (1, 2, 3, 1), (2, 4, 4, 1), (1, 16, 8, 1), (2, 17, 19, 1),
)  # fmt: skip
# Numbers of taps around every number that a kernel may be unrolled for, and around the values of a thread or a block.
TAPS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 64, 70)
LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 511, 513, 1025, 2049)
# (stride, dilation, left, right).
STEPS = (
    (1, 1, 1, 1), (1, 2, 2, 2), (1, 3, 0, 0), (1, 4, 8, 0), (1, 7, 3, 9), (1, 8, 8, 8), (1, 16, 0, 21), (2, 1, 0, 0), (2, 1, 1, 1),
    (2, 2, 3, 0), (2, 3, 3, 3), (3, 1, 2, 2), (3, 2, 0, 5), (3, 16, 16, 16), (4, 1, 0, 0), (4, 4, 4, 4), (5, 1, 1, 1), (5, 3, 4, 1),
    (6, 2, 2, 2), (7, 1, 3, 3), (7, 7, 7, 7), (8, 1, 0, 0), (8, 5, 9, 9), (1, 1, 11, 11), (4, 1, 13, 13), (9, 10, 10, 10),
)  # fmt: skip
LAYOUTS = (
    "contiguous", "sliced", "rows", "step2", "transposed", "reversed", "rotated", "misaligned1", "misaligned3", "expanded_first",
    "expanded_last", "conj", "neg",
)  # fmt: skip
ACTIVATIONS = ("none", "relu", "silu", "gelu")


def _same(taps: int, dilation: int = 1) -> tuple[int, int]:
    total = dilation * (taps - 1)
    return total // 2, total - total // 2


def sweep() -> Iterator[Call]:
    """All sample calls. Successive calls use successive activations, and every third has no bias."""
    for k, call in enumerate(_sweep()):
        yield replace(call, activation=ACTIVATIONS[k % 4], bias=k % 3 > 0)


def _sweep() -> Iterator[Call]:
    for n, c, out, groups in CHANNELS:
        yield Call("channels", (n, c, 29), out, 4, groups=groups, sanitize=True)
        yield Call("channels", (n, c, 30), out, 3, stride=2, padding=(1, 1), groups=groups, layout="transposed")
        yield Call("channels", (n, c, 23), out, 5, dilation=2, padding=_same(5, 2), groups=groups)
    for k, taps in enumerate(TAPS):
        yield Call("taps", (2, 3, 80 + k), 3, taps, padding=_same(taps), groups=3)
        yield Call("taps", (1, 2, 90 + k), 3, taps, padding=(taps - 1,) * 2)
        yield Call("causal", (2, 4, 37), 4, taps, padding=(taps - 1, 0), groups=4)
    for k, length in enumerate(LENGTHS):
        n, c, out, groups = CHANNELS[k % 7]
        yield Call("lengths", (n, c, length), out, 3, padding=(1, 1), groups=groups, sanitize=length == 2049)
        yield Call("lengths", (1, 1, length), 1, 4, padding=_same(4))
        yield Call("causal", (1, 5, length), 5, 4, padding=(3, 0), groups=5)
        yield Call("lengths", (2, 8, length), 8, 2, stride=2, padding=(1, 1), groups=8, layout="transposed")
    for k, (stride, dilation, left, right) in enumerate(STEPS):
        for of in (k % 4, 7 + k % 7):
            n, c, out, groups = CHANNELS[of]
            step = {"stride": stride, "dilation": dilation, "padding": (left, right), "groups": groups}
            yield Call("steps", (n, c, 61 + k), out, 3, **step, layout="transposed" if k % 3 == 2 else "contiguous")
    for layout in LAYOUTS:
        for n, c, out, groups in (CHANNELS[0], CHANNELS[4], CHANNELS[11]):
            yield Call("layouts", (n, c, 19), out, 3, padding=(1, 1), groups=groups, layout=layout)
            yield Call("layouts", (n, c, 18), out, 4, padding=_same(4), groups=groups, weight_layout=layout)
    for length, taps, padding in ((5, 5, (0, 0)), (3, 9, (4, 4)), (1, 6, (3, 3)), (2, 4, (7, 7)), (4, 4, (1, 2))):
        yield Call("more padding than signal", (2, 3, length), 3, taps, padding=padding, groups=3)
        yield Call("more padding than signal", (1, 2, length), 4, taps, padding=padding)
    yield Call("one signal", (3, 17), 3, 4)
    yield Call("one signal", (5, 18), 5, 4, padding=_same(4), groups=5)
    yield Call("one signal", (4, 18), 4, 3, padding=(1, 1), groups=4, layout="transposed")
    yield Call("no signals", (0, 3, 17), 6, 4, groups=3)
    yield Call("no signals", (0, 2, 9), 2, 3, padding=(1, 1), layout="transposed")
    yield Call("many signals", (4099, 2, 7), 2, 3, padding=(1, 1), groups=2, sanitize=True)
    yield Call("many channels", (1, 1031, 9), 1031, 3, padding=(2, 0), groups=1031, sanitize=True)
    yield Call("many channels", (1, 1031, 9), 1031, 3, padding=(1, 1), groups=1031, layout="transposed", sanitize=True)
    yield Call("a long signal", (1, 1, 9001), 1, 31, padding=(15, 15), sanitize=True)
    yield Call("a long signal", (1, 1, 9001), 2, 8, stride=5, sanitize=True)
    # Rows that warps process in chunks, as several tiles, with one chunk of taps and with many, dilated, and with several channels.
    yield Call("long rows", (2, 3, 1291), 3, 4, padding=(3, 0), groups=3, sanitize=True)
    yield Call("long rows", (1, 2, 2051), 1, 35, padding=_same(35), sanitize=True)
    yield Call("long rows", (2, 2, 900), 2, 9, padding=(16, 16), dilation=2, groups=2, sanitize=True)
    yield Call("long rows", (1, 1, 1300), 1, 70, padding=_same(70), sanitize=True)
    yield Call("few into many", (2, 1, 1500), 33, 7, padding=_same(7), sanitize=True)
    yield Call("few into many", (1, 2, 1501), 24, 10, stride=2, sanitize=True)
    yield Call("few into many", (1, 2, 1111), 136, 3, stride=3, padding=(1, 0), dilation=2, sanitize=True)
    # Not 8 taps, because ATen's CPU kernels (torch 2.11) are wrong for bfloat16 with 64 multiply-adds per output.
    yield Call("few into many", (1, 8, 600), 16, 7, padding=_same(7), sanitize=True)
    yield Call(
        "a step along long rows", (2, 3, 1201), 3, 9, stride=2, padding=(4, 4), dilation=2, groups=3, sanitize=True
    )
    yield Call("a step along long rows", (1, 2, 1301), 2, 40, stride=4, sanitize=True)


def special_signals(dtype: torch.dtype, device: str) -> Iterator[tuple[Call, torch.Tensor]]:
    """Special values in a row, apart and next to each other, and as channels. There is no padding, which would be multiplied by
    them."""
    values = tensors.specials(dtype, device)
    apart = torch.ones(len(values), 5, dtype=dtype, device=device)
    apart[:, 2] = values
    for name, row in (("apart", apart.view(-1)), ("side by side", values)):
        row = row[None, None]
        length = row.shape[-1]
        for taps, stride in ((1, 1), (2, 1), (3, 2), (5, 5)):
            yield Call(f"special values {name}", (1, 1, length), 1, taps, stride), row
        both = row.expand(1, 2, -1).contiguous()
        yield Call(f"special values {name}", (1, 2, length), 2, 3, groups=2), both
        yield Call(f"special values {name}", (1, 2, length), 3, 2), both
    channels = values.view(1, -1, 1).repeat(2, 1, 4)
    for x in (channels, channels.mT.contiguous().mT):
        count = x.shape[1]
        yield Call("special values as channels", (2, count, 4), count, 2, groups=count), x


# One small call of every kind, the simplest first. Weights and inputs have at most 12 values, because second derivatives are
# checked by finite differences. Sizes that grow (signals and positions, also of the output) differ from all other sizes, because
# torch.compile treats equal sizes as the same symbol. Calls without signals are in tests/rooms/conv1d/test_use.py, because ATen has no
# Jacobians for them.
FEW = (
    Call("plain", (1, 2, 5), 2, 2, bias=False),
    Call("bias", (2, 1, 6), 3, 3),
    Call("depthwise", (1, 2, 4), 2, 2, groups=2, bias=False),
    Call("depthwise, same", (1, 3, 4), 3, 2, padding=(0, 1), groups=3),
    Call("two outputs a channel", (1, 2, 6), 4, 2, stride=2, groups=2),
    Call("step 3", (1, 1, 12), 2, 2, stride=3, padding=(1, 1), dilation=2),
    Call("more padding than signal", (1, 1, 2), 1, 3, padding=(3, 3)),
    Call("channels last", (1, 3, 4), 2, 2, padding=(1, 1), layout="transposed"),
    Call("channels last, depthwise", (2, 3, 2), 3, 3, padding=(2, 0), groups=3, layout="transposed", bias=False),
    Call("one value", (1, 1, 1), 1, 1),
    Call("misaligned", (1, 1, 6), 1, 2, padding=(0, 1), layout="misaligned1", weight_layout="misaligned3"),
    Call("step2", (1, 3, 4), 1, 3, padding=(1, 1), layout="step2", bias=False),
    Call("one tap", (2, 3, 2), 4, 1),
    Call("same, dilated", (1, 1, 7), 2, 3, padding=(2, 2), dilation=2),
    Call("one signal", (2, 5), 2, 2, groups=2),
    Call("same, even", (1, 2, 4), 2, 2, padding=(0, 1), layout="transposed"),
    Call("causal", (1, 1, 5), 1, 4, padding=(3, 0)),
)  # fmt: skip


def _few() -> Iterator[Call]:
    """The calls in FEW with successive activations. The simplest calls have none.

    Calls with a smooth activation have no bias: with integer values, second derivatives by the bias would nearly cancel.
    """
    for k, call in enumerate(FEW):
        yield replace(call, activation=ACTIVATIONS[k % 4], bias=call.bias and k % 4 < 2)


class Whole:
    """Makes small integers. Sums of their products are exact in every dtype, and so the same bits in any order."""

    def __init__(self, device: str, dtype: torch.dtype):
        self.dtype, self.device = dtype, device
        self._make = tensors.Maker(device, torch.int64, seed=2, small=True)

    def __call__(self, *shape: int) -> torch.Tensor:
        if self.dtype == torch.bool:
            return self._make(*shape) > 0
        if self.dtype.is_complex:
            return (self._make(*shape) + 1j * self._make(*shape)).to(self.dtype)
        return self._make(*shape).to(self.dtype)


# ---------------------------------------------------------------- causal_conv1d_update and convolve

# (signals, channels, values in the state, taps). The state may be longer than the taps need.
UPDATE_FEW = (
    (1, 2, 2, 3), (2, 1, 3, 4), (1, 1, 5, 3), (3, 2, 1, 2), (1, 2, 3, 1), (1, 1, 1, 1), (4, 1, 2, 3), (1, 2, 4, 4), (2, 3, 1, 1),
)  # fmt: skip
UPDATE_CHANNELS = ((1, 1), (2, 3), (1, 8), (3, 17), (2, 33), (1, 64), (4, 130), (1, 1031), (257, 5), (2, 2049))
UPDATE_TAPS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (8, 4), (3, 2), (7, 8), (15, 16), (16, 9), (40, 33))

# (leading dimensions of a, its last size, size of v).
CONVOLVE_FEW = (
    ((), 5, 3), ((2,), 4, 2), ((), 3, 5), ((), 1, 1), ((2, 2), 3, 2), ((1,), 4, 4), ((), 6, 1), ((3,), 2, 4), ((), 5, 2), ((2,), 3, 3),
)  # fmt: skip
CONVOLVE_SIZES = (
    (1, 1), (1, 5), (5, 1), (2, 2), (3, 2), (2, 3), (7, 7), (8, 7), (9, 4), (4, 9), (16, 5), (33, 8), (8, 33), (64, 17), (100, 64),
    (129, 3), (300, 31), (513, 16), (31, 300), (1025, 70),
)  # fmt: skip
MODES = ("full", "same", "valid")


# ---------------------------------------------------------------- calls as samples


def _operands(make: Callable, call: Call) -> list | None:
    """Input, weight and optional bias, or None if one of them cannot have the layout.

    With integer values, a bias is an integer plus 1/2, so that no sum is 0, where relu is not differentiable.
    """
    made = [
        tensors.LAYOUTS[call.layout](make(*call.input_size)),
        tensors.LAYOUTS[call.weight_layout](make(*call.weight_size)),
    ]
    if call.bias:
        made.append(make(call.out_channels) + (0.5 if isinstance(make, Whole) else 0))
    return None if any(t is None for t in made) else made


def _sample(call: Call, operands: list | None, **given) -> GrowingSample | None:
    def sizes(times):
        grown = call.grown(times)
        return [grown.input_size, grown.weight_size, (grown.out_channels,)]

    if operands is not None:
        return GrowingSample(str(call), tuple(operands), given, sanitize=call.sanitize, sizes=sizes)


def _steps(call: Call, padding) -> dict:
    return {"stride": [call.stride], "padding": padding, "dilation": [call.dilation], "groups": call.groups}


def plain(make: Callable, call: Call, index: int) -> GrowingSample | None:
    left, right = call.padding
    return _sample(call, _operands(make, call), **_steps(call, [left])) if left == right else None


def string(make: Callable, call: Call, index: int) -> GrowingSample | None:
    padding = "same" if call.same else "valid" if call.padding == (0, 0) else None
    return _sample(call, _operands(make, call), **_steps(call, padding)) if padding else None


def act(make: Callable, call: Call, index: int) -> GrowingSample | None:
    """A sample of conv1d_act, or None for complex numbers, for which ATen has no activation."""
    activation = "none" if make.dtype.is_complex else call.activation
    left, right = call.padding
    padding = [left] if left == right and index % 2 else [left, right]
    return _sample(call, _operands(make, call), **_steps(call, padding), activation=activation)


def backward(make: Callable, call: Call, index: int) -> GrowingSample | None:
    """A sample of conv1d_backward. Successive calls request successive gradients.

    Small calls request all gradients, or all except the bias's, so that the result depends on every operand.
    """
    mask = [k == index % 3 for k in range(3)]
    if isinstance(make, Whole):
        mask = [True, True, index % 2 == 1]
        if call.layout != "transposed":  # no gaps: ATen's operator would not recompile for grown sizes
            call = replace(call, layout="contiguous", weight_layout="contiguous")
    operands = _operands(make, call) if len(call.input_size) == 3 else None
    if operands is None or (
        isinstance(make, Whole) and call.input_size[0] == 0
    ):  # ATen's gradients do not depend on an empty operand
        return None
    grad = tensors.LAYOUTS[call.layout](make(*call.grad_size))
    given = {**_steps(call, list(call.padding)), "output_mask": mask}
    # relu's derivative is not continuous, so it has no error bound.
    if call.activation in ("silu", "gelu") and not make.dtype.is_complex:
        given["activation"] = call.activation
    else:
        operands = operands[:2]

    def sizes(times):
        grown = call.grown(times)
        return [grown.grad_size, grown.input_size, grown.weight_size, (grown.out_channels,)][: len(operands) + 1]

    name = f"gradients {mask}, {call}"
    return GrowingSample(name, (grad, *operands), given, sanitize=call.sanitize, sizes=sizes)


def causal(make: Callable, call: Call, index: int) -> Sample | None:
    """A sample of causal_conv1d for a depthwise call, whose stride and padding are ignored."""
    one = call.groups == call.out_channels == call.input_size[-2]
    operands = _operands(make, call) if one else None
    if operands is None:
        return None
    operands[1] = operands[1][:, 0]
    activation = "none" if make.dtype.is_complex else call.activation
    return Sample(str(call), tuple(operands), {"activation": activation}, sanitize=call.sanitize)


def samples(build: Callable, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = tensors.Maker(device, dtype)
    # ATen's CPU convolutions of fp16 and bf16 call oneDNN. With many taps some are wrong, and some depthwise ones in float16 never
    # return (seen with AVX-512 FP16). A NaN also reaches results that do not depend on it.
    half = device == "cpu" and dtype.itemsize == 2
    built = (build(make, call, index) for index, call in enumerate(sweep()) if call.taps <= 12 or not half)
    yield from (sample for sample in built if sample is not None)
    for index, (call, x) in enumerate(() if half else special_signals(dtype, device)):
        sample = build(make, call, index)
        if sample is None:
            continue
        # The special values replace the first operand: the input, or a gradient of the same size, which meets no padding.
        if x.shape == sample.args[0].shape:
            yield replace(sample, args=(x, *sample.args[1:]))


def few(build: Callable, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Whole(device, dtype)
    built = (build(make, call, index) for index, call in enumerate(_few()))
    yield from (sample for sample in built if sample is not None)


def _update(make: Callable, n: int, channels: int, size: int, taps: int, index: int, **layouts) -> Sample:
    whole = isinstance(make, Whole)
    made = [make(n, channels), make(n, channels, size), make(channels, taps)]
    layout = layouts.get("layout", "contiguous")
    laid_out = [tensors.LAYOUTS[layout](t) for t in made]
    operands = [t if other is None else other for t, other in zip(made, laid_out)]
    if index % 3:
        operands.append(make(channels) + (0.5 if whole else 0))
    activation = "none" if make.dtype.is_complex else ACTIVATIONS[index % 4]

    def sizes(times):
        many = n if n == 1 else times * n
        return [(many, channels), (many, channels, size), (channels, taps), (channels,)]

    name = f"({n}, {channels}), a state of {size}, {taps} taps, {activation}, {layout}"
    return GrowingSample(name, tuple(operands), {"activation": activation}, sanitize=True, sizes=sizes)


def update_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make, index = tensors.Maker(device, dtype), 0
    for n, channels in UPDATE_CHANNELS:
        for size, taps in UPDATE_TAPS:
            yield _update(make, n, channels, size, taps, index := index + 1)
    for layout in LAYOUTS:
        for size, taps in UPDATE_TAPS[:6]:
            yield _update(make, 3, 17, size, taps, index := index + 1, layout=layout)


def update_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Whole(device, dtype)
    for index, sizes in enumerate(UPDATE_FEW):
        yield _update(make, *sizes, index)


def _convolve(
    make: Callable, batch: tuple, size: int, taps: int, mode: str, layout: str = "contiguous"
) -> Sample | None:
    operands = [tensors.LAYOUTS[layout](make(*batch, size)), tensors.LAYOUTS[layout](make(taps))]
    name = f"{(*batch, size)} and {taps}, {mode}, {layout}"
    return None if any(t is None for t in operands) else Sample(name, tuple(operands), {"mode": mode})


def convolve_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = tensors.Maker(device, dtype)
    for index, (size, taps) in enumerate(CONVOLVE_SIZES):
        for mode in MODES:
            for batch in ((), ((3,), (2, 2), (0,), (1, 5))[index % 4]):
                yield _convolve(make, batch, size, taps, mode)
    for layout in LAYOUTS:
        for size, taps in ((9, 4), (4, 9), (40, 7)):
            for batch in ((), (3,)):
                sample = _convolve(make, batch, size, taps, MODES[size % 3], layout)
                if sample is not None:
                    yield sample


def convolve_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Whole(device, dtype)
    for index, (batch, size, taps) in enumerate(CONVOLVE_FEW):
        yield _convolve(make, batch, size, taps, MODES[index % 3])
