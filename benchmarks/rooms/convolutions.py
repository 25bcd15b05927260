"""Problems of one-dimensional convolution: their sizes, operands and values in float64, and the peers that compute the same.

Operands are (input, weight, stride, padding, dilation, groups). A backward has the gradient of the output in front of them. Peers
that use channels-last tensors get copies of the tensors in that layout behind them ("twins"). Padding is (left, right).
"""

import contextlib
import dataclasses
import itertools
import math
import random
from collections.abc import Callable

import torch

from benchmarks.harness.operands import Maker
from benchmarks.harness.peers import INDUCTOR, Missing, Peer

aten = torch.ops.aten
F64 = torch.float64
SIDES = tuple[int, int]

# ---------------------------------------------------------------- problems


@dataclasses.dataclass(frozen=True)
class Problem:
    """The sizes of a convolution. ``causal`` means that all padding is on the left."""

    batch: int
    channels: int
    length: int
    taps: int
    out_channels: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    causal: bool = False

    @property
    def sides(self) -> SIDES:
        return (self.padding, 0 if self.causal else self.padding)

    @property
    def out_length(self) -> int:
        return (self.length + sum(self.sides) - (self.taps - 1) * self.dilation - 1) // self.stride + 1

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return (self.batch, self.channels, self.length)

    @property
    def weight_shape(self) -> tuple[int, int, int]:
        return (self.out_channels, self.channels // self.groups, self.taps)

    @property
    def out_shape(self) -> tuple[int, int, int]:
        return (self.batch, self.out_channels, self.out_length)

    @property
    def depthwise(self) -> bool:
        return self.channels == self.groups == self.out_channels > 1

    @property
    def name(self) -> str:
        shape = f"({','.join(map(size_text, self.input_shape))})"
        words = [
            "dw" if self.depthwise else "",
            shape if self.out_channels == self.channels else f"{shape}->{self.out_channels}",
            f"k{self.taps}",
            f"s{self.stride}" if self.stride > 1 else "",
            "causal" if self.causal else f"p{self.padding}" if self.padding else "",
            f"d{self.dilation}" if self.dilation > 1 else "",
            f"g{self.groups}" if self.groups > 1 and not self.depthwise else "",
        ]
        return " ".join(filter(None, words))


def one_channel(length: int, taps: int, **options) -> Problem:
    """A convolution of one channel, padded so that the output is as long as the input."""
    return Problem(1, 1, length, taps, 1, padding=taps // 2, **options)


def depthwise(batch: int, channels: int, length: int, taps: int, **options) -> Problem:
    return Problem(batch, channels, length, taps, channels, groups=channels, **options)


def size_text(size: int) -> str:
    return f"2^{size.bit_length() - 1}" if size >= 1 << 20 and size & (size - 1) == 0 else str(size)


MOST_VALUES, FEW_VALUES = 1 << 25, 1 << 20


def sample(count: int, seed: int = 0, most_values: int = MOST_VALUES) -> list[Problem]:
    """Different random problems: half depthwise, half with few channels per group.

    Sizes are uniform on a logarithmic scale. Neither input nor output has more than ``most_values``. Every other length is a
    multiple of 16.
    """
    draw = random.Random(seed)

    def up_to(most: int) -> int:
        return min(most, int(2 ** draw.uniform(0, math.log2(most + 1))))

    found: dict[Problem, None] = {}
    while len(found) < count:
        length, taps = up_to(most_values // 2), up_to(64)
        if draw.random() < 0.5:
            length = -(-length // 16) * 16
        stride = draw.choice((1, 1, 1, 2, 3, 4, 5, 8))
        dilation = draw.choice((1, 1, 1, 2, 3, 4, 8, 16)) if taps > 1 else 1
        span = (taps - 1) * dilation
        padding = draw.choice((0, span // 2, span))
        if length + 2 * padding <= span:
            padding = span
        out_length = Problem(1, 1, length, taps, 1, stride, padding, dilation).out_length
        fitting = most_values // max(length, out_length)
        if len(found) % 2 == 0:
            groups = channels = out_channels = up_to(min(4096, fitting))
        else:
            in_group = draw.randint(1, min(8, fitting))
            groups = up_to(min(64, fitting // in_group))
            channels = groups * in_group
            out_channels = groups * up_to(min(512, fitting // groups))
        batch = up_to(min(64, max(1, most_values // max(channels * length, out_channels * out_length))))
        found[Problem(batch, channels, length, taps, out_channels, stride, padding, dilation, groups)] = None
    return list(found)


# ---------------------------------------------------------------- operands


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """A copy that lies in memory as (N, L, C). Its strides show this layout even where sizes are 1."""
    batch, channels, length = x.shape
    return x.new_empty(batch, length, channels).transpose(1, 2).copy_(x)


def dense(m: Maker, shape: tuple[int, ...]) -> torch.Tensor:
    return m(*shape)


def misaligned(m: Maker, shape: tuple[int, ...]) -> torch.Tensor:
    return m.misaligned(math.prod(shape)).view(shape)


def cropped(m: Maker, shape: tuple[int, ...]) -> torch.Tensor:
    """Makes the inside of rows that are eight values longer at both ends."""
    return m(*shape[:-1], shape[-1] + 16)[..., 8:-8]


def every_second(m: Maker, shape: tuple[int, ...]) -> torch.Tensor:
    return m(*shape[:-1], 2 * shape[-1])[..., ::2]


LAYOUTS: dict[str, Callable[[Maker, tuple[int, ...]], torch.Tensor]] = {
    "": dense,
    "CL": lambda m, shape: channels_last(m(*shape)),
    "misaligned": misaligned,
    "cropped": cropped,
    "every second": every_second,
}


def operands(
    problem: Problem, layout: str, dtype: torch.dtype, twins: bool, backward: bool, device: str, seed: int
) -> tuple:
    """``layout`` is that of the input and of the gradient. ``twins`` appends copies of the tensors with channels last."""
    m, make = Maker(device, dtype, seed), LAYOUTS[layout]
    tensors = [make(m, problem.out_shape)] if backward else []
    tensors += [make(m, problem.input_shape), m(*problem.weight_shape)]
    copies = [channels_last(tensor) for tensor in tensors] if twins else []
    return (*tensors, problem.stride, problem.sides, problem.dilation, problem.groups, *copies)


# ---------------------------------------------------------------- values in float64


def _grouped(x: torch.Tensor, groups: int) -> torch.Tensor:
    return x.double().unflatten(1, (groups, -1))


def _positions(padded: torch.Tensor, tap: int, out_length: int, stride: int, dilation: int) -> torch.Tensor:
    """A view of the inputs that one tap is multiplied with, one for each output."""
    return padded[..., tap * dilation :][..., : (out_length - 1) * stride + 1 : stride]


def reference(x, weight, stride, padding, dilation, groups, *twins) -> torch.Tensor:
    """The convolution in float64, as a sum over taps of products with shifted inputs."""
    taps = weight.shape[2]
    padded = torch.nn.functional.pad(_grouped(x, groups), padding)
    kernel = weight.double().unflatten(0, (groups, -1))
    out_length = (padded.shape[-1] - (taps - 1) * dilation - 1) // stride + 1
    out = padded.new_zeros(len(x), groups, kernel.shape[1], out_length)
    for channel, tap in itertools.product(range(kernel.shape[2]), range(taps)):
        met = _positions(padded[:, :, channel, None], tap, out_length, stride, dilation)
        out.addcmul_(met, kernel[:, :, channel, tap, None])
    return out.flatten(1, 2)


def reference_gradients(g, x, weight, stride, padding, dilation, groups, *twins) -> tuple:
    """The gradients of input and weight in float64, tap by tap: the products of the forward, with the output's gradient."""
    taps, out_length = weight.shape[2], g.shape[2]
    padded = torch.nn.functional.pad(_grouped(x, groups), padding)
    kernel, given = weight.double().unflatten(0, (groups, -1)), _grouped(g, groups)
    to_input, to_weight = torch.zeros_like(padded), torch.zeros_like(kernel)
    for channel, tap in itertools.product(range(kernel.shape[2]), range(taps)):
        met = _positions(padded[:, :, channel, None], tap, out_length, stride, dilation)
        to_weight[:, :, channel, tap] = (given * met).sum((0, 3))
        into = _positions(to_input[:, :, channel], tap, out_length, stride, dilation)
        into += (given * kernel[:, :, channel, tap, None]).sum(2)
    inside = to_input[..., padding[0] : padding[0] + x.shape[2]]
    return inside.flatten(1, 2), to_weight.flatten(0, 1)


# ---------------------------------------------------------------- ATen


@contextlib.contextmanager
def autotuning():
    """Lets cuDNN measure its algorithms and choose the fastest. TF32 keeps torch's default, which allows it in convolutions."""
    cudnn = torch.backends.cudnn
    with cudnn.flags(cudnn.enabled, benchmark=True, deterministic=cudnn.deterministic, allow_tf32=cudnn.allow_tf32):
        yield


def autotuned(function: Callable) -> Callable:
    def run(*args):
        with autotuning():
            return function(*args)

    return run


def conv1d(x, weight, stride, padding, dilation, groups, *twins):
    """ATen's convolution. Causal padding is written as in models: padding at both ends, then a cut of the output."""
    out = torch.conv1d(x, weight, None, stride, padding[0], dilation, groups)
    return out if padding[0] == padding[1] else out[..., : -(padding[0] - padding[1])]


def conv1d_backward(g, x, weight, stride, padding, dilation, groups, *twins):
    """ATen's gradients of the input and of the weight."""
    if padding[0] != padding[1]:
        g = torch.nn.functional.pad(g, (0, padding[0] - padding[1]))
    mask = [True, True, False]
    return aten.convolution_backward(g, x, weight, None, [stride], [padding[0]], [dilation], False, [0], groups, mask)[
        :2
    ]


def cudnn_forward(x, weight, stride, padding, dilation, groups, x_last, weight_last):
    """The convolution as a two-dimensional one of images that are one pixel high."""
    out = torch.conv2d(
        x_last[:, :, None], weight_last[:, :, None], None, (1, stride), (0, padding[0]), (1, dilation), groups
    )[:, :, 0]
    return out if padding[0] == padding[1] else out[..., : -(padding[0] - padding[1])]


def cudnn_backward(g, x, weight, stride, padding, dilation, groups, g_last, x_last, weight_last):
    if padding[0] != padding[1]:
        # Causal padding cuts the output, so autograd pads the output's gradient with zeros.
        g_last = channels_last(torch.nn.functional.pad(g_last, (0, padding[0] - padding[1])))
    images = (tensor[:, :, None] for tensor in (g_last, x_last, weight_last))
    found = aten.convolution_backward(
        *images, None, (1, stride), (0, padding[0]), (1, dilation), False, (0, 0), groups, [True, True, False]
    )
    return tuple(gradient[:, :, 0] for gradient in found[:2])


# ---------------------------------------------------------------- peers


def _cudnn(call, case, setting):
    function = cudnn_backward if case.call == "conv1d_backward" else cudnn_forward
    return autotuned(function), ""


def inductor_of(expression: Callable) -> Peer:
    """``torch.compile`` of an expression. Convolutions that Inductor leaves to ATen are autotuned by cuDNN."""

    def prepare(call, case, setting):
        with autotuning():
            run, detail = INDUCTOR.prepare(dataclasses.replace(call, aten=expression), case, setting)
        return autotuned(run), detail

    return Peer("Inductor", prepare)


CUDNN = Peer("cuDNN channels-last", _cudnn)
INDUCTOR_CONV1D = inductor_of(conv1d)

# ---------------------------------------------------------------- convolve


def mode_padding(length: int, taps: int, mode: str) -> SIDES:
    """The padding with zeros that a mode of numpy.convolve means. There are at least as many values as taps."""
    return {"full": (taps - 1, taps - 1), "same": (taps // 2, (taps - 1) // 2), "valid": (0, 0)}[mode]


def _window(full: torch.Tensor, length: int, taps: int, mode: str) -> torch.Tensor:
    """Cuts the results of mode "full" to the results of another mode."""
    left, right = mode_padding(length, taps, mode)
    return full[..., taps - 1 - left : length + right]


def fft_convolve(a: torch.Tensor, v: torch.Tensor, mode: str) -> torch.Tensor:
    """The convolution by one Fourier transform of all values. fp16 and bf16 compute in float32, because they lack transforms of
    some lengths."""
    length, taps = a.shape[-1], len(v)
    wide = torch.float32 if a.dtype.itemsize == 2 else a.dtype
    # Transforms of powers of two are fast, and the next one is less than twice as long.
    size = 1 << (length + taps - 2).bit_length()
    product = torch.fft.rfft(a.to(wide), size) * torch.fft.rfft(v.to(wide), size)
    return _window(torch.fft.irfft(product, size), length, taps, mode).to(a.dtype)


def fft_blocks(a: torch.Tensor, v: torch.Tensor, mode: str, block: int) -> torch.Tensor:
    """The convolution by Fourier transforms of blocks that overlap by the length of the filter (overlap-save)."""
    length, taps = a.shape[-1], len(v)
    wide = torch.float32 if a.dtype.itemsize == 2 else a.dtype
    left, right = mode_padding(length, taps, mode)
    out_length = length + left + right - taps + 1
    step = block - taps + 1
    count = -(-out_length // step)
    padded = torch.nn.functional.pad(a.to(wide), (left, count * step + taps - 1 - length - left))
    spectra = torch.fft.rfft(padded.unfold(-1, block, step)) * torch.fft.rfft(v.to(wide), block)
    return torch.fft.irfft(spectra, block)[..., taps - 1 :].flatten(-2)[..., :out_length].to(a.dtype)


def rows(a: torch.Tensor) -> torch.Tensor:
    """``a`` with the shape (batch, 1, length)."""
    return a.reshape(-1, 1, a.shape[-1])


def convolve(a: torch.Tensor, v: torch.Tensor, mode: str) -> torch.Tensor:
    """The convolution by ATen's conv1d of the flipped taps, because conv1d does not flip them itself."""
    padding = mode_padding(a.shape[-1], len(v), mode)
    x = rows(a)
    if padding[0] != padding[1]:
        x, padding = torch.nn.functional.pad(x, padding), (0, 0)
    return torch.conv1d(x, v.flip(0)[None, None], padding=padding[0]).view(*a.shape[:-1], -1)


def convolve_reference(a: torch.Tensor, v: torch.Tensor, mode: str) -> torch.Tensor:
    return fft_convolve(a.double(), v.double(), mode)


def _fft(call, case, setting):
    return fft_convolve, "one transform"


def _fft_blocks(call, case, setting):
    """Uses the fastest of several block lengths."""
    args = case.build(setting.device, 0)
    length, taps = args[0].shape[-1], len(args[1])
    lengths = [1 << power for power in range(8, 21) if 2 * taps <= 1 << power <= 2 * length]
    if not lengths:
        raise Missing("a block would be longer than the signal")
    if not setting.tune:
        lengths = lengths[:1]
    contenders = {str(block): _in_blocks(block) for block in lengths}
    timed = setting.timer.compare(contenders, lambda seed: case.build(setting.device, seed), args[0].nbytes)
    timed = {name: timing for name, timing in timed.items() if not isinstance(timing, Exception)}
    best = min(timed, key=lambda name: timed[name].median, default=str(lengths[0]))
    return contenders[best], f"blocks of {best}"


def _in_blocks(block: int) -> Callable:
    return lambda a, v, mode: fft_blocks(a, v, mode, block)


FFT = Peer("FFT", _fft)
FFT_BLOCKS = Peer("FFT blocks", _fft_blocks)
