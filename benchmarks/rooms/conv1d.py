"""Cases of one-dimensional convolution, forward and backward (of input and weight), of transposed convolution, and of convolve.

Names of cases: "dw" is depthwise, "CL" is channels-last, and "causal" is padded on the left only.

Peers:

- ATen calls cuDNN, which measures its algorithms and chooses the fastest. Float32 may be multiplied in TF32, as torch allows by
  default. ATen has no causal padding: it pads both ends and cuts the result.
- "cuDNN channels-last" gets copies of its operands that lie as (N, L, C). The time of the copies is not counted. It is left out
  where the operands are channels-last already, because ATen then does the same.

Sweeps (name other ops on the command line to leave these out):

- "-sample": random problems, depthwise or with one to eight channels per group, beside ATen alone. The worst are listed.
- "-sample-small": random problems of up to 2^20 values.
- "-small": lengths so short that the launch dominates the time.
- "convolve-taps": the number of taps, beside the two ways that convolve chooses from: a direct convolution ("gpuopt direct") and
  Fourier transforms.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import Peer
from benchmarks.harness.report import RATIO
from benchmarks.harness.room import Call, CallTime, Case, Point, Room
from benchmarks.rooms import convolutions, transposed
from benchmarks.rooms.convolutions import CUDNN, FFT, FFT_BLOCKS, INDUCTOR_CONV1D, Problem, depthwise, one_channel
from benchmarks.rooms.dot import rounded_once
from benchmarks.rooms.reduce import sum_limit

F64 = torch.float64
FORWARD, BACKWARD = "conv1d-forward", "conv1d-backward"
BOTH = (FORWARD, BACKWARD)

MAMBA = depthwise(8, 4096, 2048, 4, padding=3, causal=True)
CONVNEXT = depthwise(32, 768, 1024, 7, padding=3)
CONFORMER = depthwise(16, 512, 1500, 31, padding=15)
WAV2VEC2 = Problem(16, 1, 80000, 10, 512, stride=5)
ENCODEC = Problem(16, 1, 120000, 7, 32, padding=3)

# ---------------------------------------------------------------- conv1d


def _cases(problem: Problem, *dtypes, ops=BOTH, layout: str = "", suffix: str = "", **options) -> list[Case]:
    """``suffix`` is appended to the name of the op."""
    peers = options.get("peers")
    twins = peers is None or CUDNN in peers
    name = " ".join(filter(None, (layout, problem.name)))
    cases = []
    for op, dtype in itertools.product(ops, dtypes):
        backward = op == BACKWARD
        call = "conv1d_backward" if backward else "causal_conv1d" if problem.causal else "conv1d"
        build = functools.partial(convolutions.operands, problem, layout, dtype, twins, backward)
        more = {"peers": (CUDNN,) if backward else (CUDNN, INDUCTOR_CONV1D), **options}
        cases.append(Case(op + suffix, call, name, DTYPE_NAMES[dtype], build, **more))
    return cases


def _headline() -> list[Case]:
    problems = [
        *(one_channel(1 << 24, taps) for taps in (5, 31)),
        *(MAMBA, CONVNEXT, CONFORMER),
        *(WAV2VEC2, ENCODEC),
    ]
    cases = []
    for problem in problems:
        cases += _cases(problem, F32, BF16, headline=True)
        if problem.depthwise:
            cases += _cases(problem, F32, BF16, layout="CL", headline=True, peers=())
        cases += _cases(problem, F16, peers=())
    return cases


def _further() -> list[Case]:
    problems = [
        one_channel(1 << 20, 255),
        # The output is as long as ATen's before its cut, so that both do the same work.
        dataclasses.replace(MAMBA, causal=False),
        depthwise(16, 512, 2048, 3, padding=16, dilation=16),
        depthwise(16, 512, 4096, 8, padding=4, stride=4),
        depthwise(4, 1024, 4096, 64, padding=32),
        Problem(16, 2, 1 << 18, 64, 2, padding=32),
        Problem(16, 8, 1 << 16, 3, 8, padding=1),
        Problem(16, 1024, 1024, 3, 1024, padding=1, groups=256),
        Problem(64, 1, 16000, 16, 64, stride=8),
    ]
    cases = []
    for problem in problems:
        # f32 is measured without Inductor, because compiling takes far longer than everything else.
        cases += _cases(problem, F32, peers=(CUDNN,)) + _cases(problem, BF16)
    for layout in ("misaligned", "cropped", "every second"):
        cases += _cases(MAMBA, F32, BF16, layout=layout, peers=())
    cases += _cases(one_channel((1 << 24) - 1, 5), F32, BF16, layout="misaligned", peers=())
    for problem in (CONVNEXT, ENCODEC):
        cases += _cases(problem, F64, peers=())
    return cases


SAMPLES = {"-sample": convolutions.sample(150), "-sample-small": convolutions.sample(150, 1, convolutions.FEW_VALUES)}


def _sample() -> list[Case]:
    """Random problems, each measured forward and backward. Successive problems alternate between the three dtypes."""
    cases = []
    for op, (suffix, problems) in itertools.product(BOTH, SAMPLES.items()):
        for problem, dtype in zip(problems, itertools.cycle((F32, F32, BF16, BF16, F16, F16))):
            kind = "depthwise" if problem.groups == problem.channels == problem.out_channels else "few channels"
            values = math.prod(problem.input_shape) + math.prod(problem.out_shape)
            point = Point(f"{kind} {DTYPE_NAMES[dtype]}", "log2(values)", math.log2(values), unit=RATIO)
            cases += _cases(problem, dtype, ops=(op,), suffix=suffix, peers=(), point=point)
    return cases


def _small() -> list[Case]:
    """Sweeps of the time over the length."""

    def of_256_channels(length: int) -> Problem:
        return depthwise(1, 256, length, 4, padding=3, causal=True)

    kinds: list[tuple[str, Callable[[int], Problem], torch.dtype]] = [
        ("1 k5", lambda length: one_channel(length, 5), F32),
        ("dw 256 k4", of_256_channels, F32),
        ("dw 256 k4", of_256_channels, BF16),
        ("1->32 k7", lambda length: Problem(1, 1, length, 7, 32, padding=3), F32),
        ("8->8 k3", lambda length: Problem(1, 8, length, 3, 8, padding=1), F32),
    ]
    cases = []
    for op, (kind, problem, dtype), power in itertools.product(BOTH, kinds, range(4, 15, 2)):
        point = Point(f"{kind} {DTYPE_NAMES[dtype]}", "log2(length)", power, unit="us")
        cases += _cases(problem(1 << power), dtype, ops=(op,), suffix="-small", peers=(), point=point)
    return cases


# ---------------------------------------------------------------- with bias and activation


def _act_case(problem: Problem, activation: str, dtype: torch.dtype) -> Case:
    def build(device: str, seed: int) -> tuple:
        x, weight, *rest = convolutions.operands(problem, "", dtype, False, False, device, seed)
        bias = Maker(device, dtype, seed + 1)(problem.out_channels)
        return x, weight, bias, *rest, activation

    name = f"{problem.name} bias, {activation}"
    return Case("conv1d_act", "conv1d_act", name, DTYPE_NAMES[dtype], build, peers=(INDUCTOR_ACT,))


ACTIVATIONS = {"silu": functional.silu, "gelu": functional.gelu, "relu": functional.relu}


def _act(x, weight, bias, stride, padding, dilation, groups, activation):
    out = torch.conv1d(x, weight, bias, stride, padding[0], dilation, groups)
    # Models cut the output before they apply the activation.
    out = out if padding[0] == padding[1] else out[..., : -(padding[0] - padding[1])]
    return ACTIVATIONS[activation](out)


def _act_reference(x, weight, bias, *rest):
    *geometry, activation = rest
    return ACTIVATIONS[activation](convolutions.reference(x, weight, *geometry) + bias.double()[:, None])


INDUCTOR_ACT = convolutions.inductor_of(_act)

# ---------------------------------------------------------------- causal_conv1d_update


def _update_case(batch: int, channels: int, taps: int, dtype: torch.dtype) -> Case:
    def build(device: str, seed: int) -> tuple:
        m = Maker(device, dtype, seed)
        return m(batch, channels), m(batch, channels, taps), m(channels, taps), m(channels)

    def moved() -> tuple[int, int]:
        """(bytes read, bytes written). The state counts as written, too."""
        rows, size = batch * channels, dtype.itemsize
        return size * (rows * (1 + taps) + channels * (taps + 1)), size * rows * (1 + taps)

    name = f"({batch},{channels}) k{taps} bias, silu"
    return Case("update", "update", name, DTYPE_NAMES[dtype], build, moved=moved, peers=(INDUCTOR_UPDATE,))


def _update(x, state, weight, bias):
    """The update as Mamba's generation code computes it with PyTorch."""
    state.copy_(torch.roll(state, -1, -1))
    state[:, :, -1] = x
    return functional.silu((state * weight).sum(-1) + bias)


def _update_reference(x, state, weight, bias):
    moved = torch.cat([state.double()[:, :, 1:], x.double()[:, :, None]], 2)
    return functional.silu((moved * weight.double()).sum(-1) + bias.double())


INDUCTOR_UPDATE = convolutions.inductor_of(_update)


def _fused() -> list[Case]:
    kinds = itertools.product((MAMBA, ENCODEC), ACTIVATIONS, (F32, BF16))
    cases = [_act_case(problem, activation, dtype) for problem, activation, dtype in kinds]
    return cases + [
        _update_case(batch, 4096, 4, dtype) for batch, dtype in itertools.product((1, 16, 256, 4096), (F32, BF16))
    ]


# ---------------------------------------------------------------- convolve


def _convolve_cases(op: str, shape: tuple[int, ...], taps: int, mode: str, *dtypes, **options) -> list[Case]:
    def build(dtype: torch.dtype, device: str, seed: int) -> tuple:
        m = Maker(device, dtype, seed)
        return m(*shape), m(taps), mode

    length = ",".join(convolutions.size_text(size) for size in shape)
    name = f"({length}) with {taps} taps" + ("" if mode == "same" else f" {mode}")
    return [
        Case(op, "convolve", name, DTYPE_NAMES[dtype], functools.partial(build, dtype), **options) for dtype in dtypes
    ]


def _convolve() -> list[Case]:
    cases = _convolve_cases("convolve", (1 << 20,), 255, "same", F32, BF16, headline=True)
    cases += _convolve_cases("convolve", (1 << 20,), 255, "same", F16)
    for shape, taps, mode in (
        ((1 << 20,), 4095, "same"),
        ((1 << 24,), 31, "same"),
        ((1 << 24,), 1025, "full"),
        ((64, 1 << 16), 255, "same"),
        ((4096, 1024), 63, "valid"),
        ((1 << 20,), 256, "same"),
        ((1000,), 15, "full"),
        ((1 << 16,), 16383, "full"),
    ):
        cases += _convolve_cases("convolve", shape, taps, mode, F32, BF16)
    return cases


MOST_PRODUCTS = 1 << 34


def _taps() -> list[Case]:
    """A sweep that shows from how many taps on transforms are faster than the direct sum."""
    op, long, many = "convolve-taps", (1 << 20,), (256, 1 << 14)
    signals = [(op, shape, dtype) for shape, dtype in ((long, F32), (long, BF16), ((1 << 24,), F32), (many, F32))]
    signals += [(f"{op}-more", shape, dtype) for shape, dtype in ((long, F64), (many, BF16), ((1 << 16,), F32))]
    cases = []
    for (op, shape, dtype), power in itertools.product(signals, range(3, 14)):
        if math.prod(shape) << power > MOST_PRODUCTS:
            continue
        curve = f"({','.join(map(convolutions.size_text, shape))}) {DTYPE_NAMES[dtype]}"
        point = Point(curve, "log2(taps + 1)", power, unit="us")
        cases += _convolve_cases(
            op, shape, (1 << power) - 1, "same", dtype, peers=(DIRECT, FFT, FFT_BLOCKS), point=point
        )
    return cases


def _direct(call, case, setting):
    """The direct convolution, which convolve uses for short filters only, for any number of taps."""
    import torch_ops

    def run(a, v, mode):
        padding = convolutions.mode_padding(a.shape[-1], len(v), mode)
        out = torch_ops.conv1d_act(convolutions.rows(a), v.flip(0)[None, None], padding=padding)
        return out.view(*a.shape[:-1], -1)

    return run, ""


DIRECT = Peer("gpuopt direct", _direct)
CONVOLVE_PEERS = (FFT, FFT_BLOCKS)

# ---------------------------------------------------------------- calls


def convolve_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of convolve: transforms lose a few ulp with every doubling of the length.

    Like the error, it is relative to the norm of the result.
    """
    return max(sum_limit(dtype, aten_error), 64 * torch.finfo(dtype).eps if dtype.itemsize > 2 else 0.0)


def _calls() -> dict[str, Call]:
    import torch_ops

    def conv1d(x, weight, stride, padding, dilation, groups, *twins):
        return torch_ops.conv1d(x, weight, None, stride, padding[0], dilation, groups)

    def causal_conv1d(x, weight, *rest):
        return torch_ops.causal_conv1d(x, weight[:, 0])

    def conv1d_backward(g, x, weight, stride, padding, dilation, groups, *twins):
        mask = [True, True, False]
        return torch_ops.conv1d_backward(g, x, weight, stride, padding, dilation, groups, mask)[:2]

    def act(x, weight, bias, stride, padding, dilation, groups, activation):
        return torch_ops.conv1d_act(x, weight, bias, stride, padding, dilation, groups, activation)

    def update(x, state, weight, bias):
        return torch_ops.causal_conv1d_update(x, state, weight, bias, "silu")

    def call(ours: Callable, aten: Callable, reference: Callable, **options) -> Call:
        return Call(
            ours,
            convolutions.autotuned(aten),
            reference,
            **{"limit": sum_limit, "gpuopt_limit": rounded_once, **options},
        )

    def tensors(*args) -> tuple:
        """The tensors that are read, without the copies for cuDNN."""
        return args[: next(place for place, arg in enumerate(args) if isinstance(arg, int))]

    forward = call(conv1d, convolutions.conv1d, convolutions.reference, reads=tensors)
    return {
        "conv1d": forward,
        "causal_conv1d": dataclasses.replace(forward, ours=causal_conv1d),
        "conv1d_backward": call(
            conv1d_backward, convolutions.conv1d_backward, convolutions.reference_gradients, reads=tensors
        ),
        "conv1d_act": call(act, _act, _act_reference, reads=tensors),
        **transposed.calls(),
        "update": call(update, _update, _update_reference),
        "convolve": call(
            torch_ops.convolve,
            convolutions.convolve,
            convolutions.convolve_reference,
            limit=convolve_limit,
            gpuopt_limit=convolve_limit,
        ),
    }


# ---------------------------------------------------------------- call times


def _tiny(device: str, requires_grad: bool) -> dict:
    """Operands so small that the kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, requires_grad=requires_grad)

    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "gpuopt": torch.ops.gpuopt,
        "F": functional,
        "x": make(1, 64, 128),
        "w": make(64, 1, 4),
        "b": make(64),
        "g": torch.ones(1, 64, 128, device=device),
        "a": make(256),
        "v": make(7),
    }


def _call_times() -> list[CallTime]:
    def plain(device):
        return _tiny(device, requires_grad=False)

    def graph(device):
        return _tiny(device, requires_grad=True)

    public = {
        "gpuopt": "torch_ops.causal_conv1d(x, w[:, 0], b)",
        "ATen": "torch.conv1d(x, w, b, padding=3, groups=64)[..., :128]",
    }
    same = {
        "gpuopt": "torch_ops.conv1d(x, w[..., :3], b, padding=1, groups=64)",
        "ATen": "torch.conv1d(x, w[..., :3], b, padding=1, groups=64)",
    }
    # Without the Python function, what remains is the time of the dispatcher and the kernel's launch.
    bare = {
        "gpuopt, without its Python function": "gpuopt.conv1d.default(x, w[..., :3], b, [1], [1], [1], 64)",
    }
    backward = {name: f"torch.autograd.grad({stmt}, (x, w, b), g)" for name, stmt in same.items()}
    step = {
        "gpuopt": "torch_ops.conv1d_act(x, w, b, padding=(3, 0), groups=64, activation='silu')",
        "ATen": "F.silu(torch.conv1d(x, w, b, padding=3, groups=64)[..., :128])",
    }
    filtered = {
        "gpuopt": "torch_ops.convolve(a, v, 'same')",
        "ATen": "torch.conv1d(a[None], v.flip(0)[None, None], padding=3)[0]",
    }
    return [
        CallTime(FORWARD, "no grad", {**same, **bare}, plain),
        CallTime(FORWARD, "building a graph", {**same, **bare}, graph),
        CallTime(FORWARD, "forward + backward", backward, graph),
        CallTime(FORWARD, "causal", public, plain),
        CallTime("conv1d_act", "causal, silu", step, plain),
        CallTime("convolve", "no grad", filtered, plain),
    ]


ROOM = Room(
    name="conv1d",
    cases=_headline() + _further() + _fused() + transposed.cases() + _convolve() + _small() + _sample() + _taps(),
    calls=_calls,
    call_times=_call_times(),
    peers=CONVOLVE_PEERS,
)
