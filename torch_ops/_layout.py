"""Convolutions of signals that choose their layout: ``torch_ops.convert(model, layout="channels_last")``.

cuDNN's fast kernels want channels innermost. On contiguous signals (N, C, L) it transposes the input and the result of each layer, or
takes slower kernels. A stack of layers that keeps its signals channels last saves this. PyTorch has no such stacks for signals:
``F.conv1d`` makes its input contiguous. :func:`torch_ops.conv1d` keeps the layout of its input, and so does ``F.conv_transpose2d`` on
images of one row.

Some shapes are up to 20 times as slow channels last, so no layer changes its layout without a measurement. What is measured:

    contiguous      (N, C, L)  -> layer ->  (N, O, L')
    channels last   (N, L, C)  -> layer ->  (N, L', O)

Each side has its input as it needs it, as in the middle of a stack. A conversion is needed at a border of a stack only, so which layers
form a stack is observed in the first calls: see _layout_runs.py. Then a call costs one look-up of its arguments and modes, and one
operator.

Parameters stay as they are, contiguous, unless ``convert`` is told to store them. cuDNN's channels-last kernels want other weights, whose
conversion is part of the measured time.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.nn import functional
from torch.utils import _pytree as pytree

from torch_ops import nn
from torch_ops._layout_cache import Problem, bucket, layout_cache
from torch_ops._layout_convolution import Layer, convolve, in_layout, is_channels_last, is_image, measure, padding_of
from torch_ops._layout_runs import Decision, observe
from torch_ops._tracing import is_eager

__all__ = ["Conv1d", "ConvTranspose1d", "chose_channels_last", "contiguous_outputs", "forget", "store_weight"]

#: The devices on which layers choose. Tests add the CPU.
devices = {"cuda"}


def contiguous_outputs(module: torch.nn.Module, args: Any, output: Any) -> Any:
    """A forward hook that returns channels-last signals of an output as contiguous ones.

    It finds tensors in tuples, lists, dicts, and classes that torch.utils._pytree knows. Sparse and nested tensors are no signals.
    """

    def restored(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.is_nested or value.layout != torch.strided or value.dim() != 3:
            return value
        _, channels, length = value.shape
        strides = value.stride()
        if strides[1] == 1 and min(channels, length) == 1 and strides == (channels * length, 1, channels):
            return value.flatten().view(value.shape)  # the same memory, and the strides of a contiguous tensor
        return in_layout(value, False)

    leaves, tree = pytree.tree_flatten(output)
    found = [restored(leaf) for leaf in leaves]
    if all(map(operator.is_, found, leaves)):
        return None  # the output itself
    return pytree.tree_unflatten(found, tree)


# ---------------------------------------------------------------- the problem of a call

_DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
# The properties of torch.backends take several times as long.
_C = torch._C
_precision, _any_autocast = _C._get_fp32_precision_getter, _C._is_any_autocast_enabled
_cudnn, _benchmark = _C._get_cudnn_enabled, _C._get_cudnn_benchmark
_deterministic, _deterministic_cudnn = _C._get_deterministic_algorithms, _C._get_cudnn_deterministic


def _known_problem(
    layer: Layer,
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    has_bias: bool,
    dtype: torch.dtype,
    device: torch.device,
    gradients: tuple[bool, bool],
) -> Problem | None:
    """The problem of a call, or None if its layout makes no difference or is never measured."""
    # Of one channel or one position, both layouts are the same.
    if device.type not in devices or len(shape) != 3 or shape[1] < 2 or shape[2] < 2 or 0 in shape or 0 in weight:
        return None
    if torch.is_autocast_enabled(device.type) and dtype in _DTYPES:
        dtype = torch.get_autocast_dtype(device.type)
    if dtype not in _DTYPES:
        return None
    precision = _precision("cuda", "conv") if dtype is torch.float32 else ""
    modes = _deterministic() or _deterministic_cudnn(), _benchmark(), precision
    return _problem(layer, shape, weight, has_bias, dtype, device, gradients, *modes)


def _gradients(signal: Tensor, weight: Tensor) -> tuple[bool, bool]:
    return (signal.requires_grad, weight.requires_grad) if torch.is_grad_enabled() else (False, False)


# Most calls have the arguments of an earlier call. To look them up costs less than to make the key again.
@functools.lru_cache(4096)
def _problem(
    layer: Layer, shape: tuple, weight: tuple, has_bias: bool, dtype: torch.dtype, device: torch.device, *modes: Any
) -> Problem:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    batch, _, length = shape
    sizes = bucket(batch), bucket(length), length % 8 == 0
    return Problem(gpu, *layer, weight, has_bias, *sizes, _DTYPES[dtype], *modes)


# ---------------------------------------------------------------- the choice


class _Memory:
    """What a module remembers: its decision for each problem, and for the arguments and modes of its last calls. ``plain`` are the last
    calls that PyTorch's own class computes.

    A copy of the module remembers nothing, and neither does one from a file.
    """

    __slots__ = ("decisions", "generation", "plain", "routes")
    most_routes = 64

    def __init__(self) -> None:
        self.forget(-1)

    def forget(self, generation: int) -> None:
        self.decisions: dict[Problem | None, Decision] = {}
        self.routes: dict[tuple, Decision] = {}
        self.plain: set[tuple] = set()
        self.generation = generation

    def __reduce__(self) -> tuple:
        return _Memory, ()


def _route(signal: Tensor, weight: Tensor) -> tuple:
    """All that a decision depends on, beyond the module's own attributes and the shape of its weight. Cheaper to make than a problem."""
    dtype, autocast = signal.dtype, None
    if _any_autocast() and torch.is_autocast_enabled(signal.device.type):
        autocast = torch.get_autocast_dtype(signal.device.type)
    return (
        signal.shape, dtype, signal.device, signal.requires_grad, weight.requires_grad, torch.is_grad_enabled(), autocast,
        _cudnn(), _deterministic(), _deterministic_cudnn(), _benchmark(), _precision("cuda", "conv") if dtype is torch.float32 else None,
    )  # fmt: skip


def _plain_key(signal: Tensor) -> tuple:
    """What of a call must be as before, so that a layer which chose ATen's contiguous convolution need not choose again.

    Modes are missing here. That convolution is right in all of them.
    """
    return (
        signal.shape, signal.dtype, signal.device, signal.requires_grad, torch.is_grad_enabled(), _any_autocast(),
        layout_cache.generation,
    )  # fmt: skip


def _is_plain(module: Conv1d | ConvTranspose1d, signal: Tensor) -> bool:
    """Whether a call computes as in the class of PyTorch. Most layers of a model do, so this must cost next to nothing."""
    # Dynamo knows the first condition, and does not guard the others.
    return (
        not is_dynamo_compiling()
        and type(signal) is Tensor
        and _plain_key(signal) in module._memory.plain
        and signal.is_contiguous()
    )


def _decide(
    module: Conv1d | ConvTranspose1d, layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None, route: tuple
) -> Decision | None:
    """The decision for a call. None if there is none, and nothing can be measured here."""
    memory = module._memory
    if memory is _NOTHING:
        memory = module._memory = _Memory()
    if memory.generation != layout_cache.generation:
        memory.forget(layout_cache.generation)
    if (known := memory.routes.get(route)) is not None:
        return known
    # Without a batch, or within a trace.
    if signal.dim() != 3 or set(map(type, signal.shape)) != {int}:
        return None
    gradients = _gradients(signal, weight)
    of_call = layer, tuple(signal.shape), tuple(weight.shape), bias is not None, signal.dtype, signal.device, gradients
    problem = _known_problem(*of_call) if _cudnn() else None
    decision = memory.decisions.get(problem)
    if decision is None:
        times = None
        if problem is not None:
            measured = functools.partial(measure, *of_call[:4], _dtype_of(problem), *of_call[5:])
            times = layout_cache.find(problem, measured if is_eager() else None)
            if times is None:
                return None
        decision = memory.decisions[problem] = Decision(times, any(gradients))
    if len(memory.routes) >= memory.most_routes:
        memory.routes.clear()
    memory.routes[route] = decision
    return decision


def _dtype_of(problem: Problem) -> torch.dtype:
    return getattr(torch, problem.dtype)


def _answer(*of_call: Any, arrives: bool) -> int | None:
    """The choice of a call by the cache alone: twice whether channels last, and whether by gpuopt's operator. None without an answer.

    Dynamo calls this while it traces, and keeps the answer.
    """
    problem = _known_problem(*of_call)
    times = None if problem is None else layout_cache.find(problem)
    if times is None:
        return None
    channels_last = times.prefer_channels_last(arrives)
    return 2 * channels_last + times.own[channels_last]


# torch.compiler.assume_constant_result, which would import the compiler.
_answer._dynamo_marked_constant = True


def _traced(
    module: Conv1d | ConvTranspose1d, layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """The call of a compiler, of a tensor subclass, or of a tensor without a decision."""
    answer = None
    # torch.fx does not know the number of dimensions.
    if not isinstance(signal, torch.fx.Proxy) and signal.dim() == 3:
        shape = tuple(signal.shape)
        if torch.compiler.is_compiling():
            from torch.fx.experimental.symbolic_shapes import has_static_value

            is_static = all(map(has_static_value, shape))
        else:
            is_static = set(map(type, shape)) == {int}
        # A graph for all sizes can't choose for each of them.
        if is_static:
            gradients = _gradients(signal, weight)
            of_call = layer, shape, tuple(weight.shape), bias is not None, signal.dtype, signal.device, gradients
            answer = _answer(*of_call, arrives=is_channels_last(signal))
    if answer is None:
        result = convolve(layer, signal, weight, bias, None)
    else:
        channels_last = answer >= 2
        result = convolve(layer, in_layout(signal, channels_last), weight, bias, channels_last, answer % 2 == 1)
    return in_layout(result, True) if module.next_is_channels_last and signal.dim() == 3 else result


def _compute(decision: Decision, layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    channels_last = decision.channels_last
    if channels_last is None:
        result = convolve(layer, signal, weight, bias, None)
    elif channels_last:
        # The operator for images converts its signal itself.
        if decision.own_last or not is_image(layer):
            signal = in_layout(signal, True)
        result = convolve(layer, signal, weight, bias, True, decision.own_last)
    else:
        if not signal.is_contiguous():
            signal = in_layout(signal, False)
        result = convolve(layer, signal, weight, bias, False, decision.own)
    return in_layout(result, True) if decision.gives and result.dim() == 3 else result


# ---------------------------------------------------------------- the modules

_NOTHING = _Memory()


def _run(module: Conv1d | ConvTranspose1d, layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if torch.compiler.is_compiling() or type(signal) is not Tensor:
        return _traced(module, layer, signal, weight, bias)
    route, memory = _route(signal, weight), module._memory
    decision = memory.routes.get(route)
    if decision is not None and decision.settled and memory.generation == layout_cache.generation:
        if decision.channels_last is False and not (decision.own or decision.gives):
            if len(memory.plain) >= memory.most_routes:
                memory.plain.clear()
            memory.plain.add(_plain_key(signal))
        return _compute(decision, layer, signal, weight, bias)
    decision = _decide(module, layer, signal, weight, bias, route)
    if decision is None or not (decision.settled or is_eager()):
        return _traced(module, layer, signal, weight, bias)
    module.next_is_channels_last = decision.gives
    return observe(
        decision, signal, functools.partial(_compute, decision, layer, signal, weight, bias), is_channels_last
    )


class Conv1d(nn.Conv1d):
    """:class:`torch_ops.nn.Conv1d` in the faster layout."""

    _memory = _NOTHING
    next_is_channels_last = False  # what compiled graphs know of the decision

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if _is_plain(self, input):
            return torch.nn.Conv1d._conv_forward(self, input, weight, bias)
        padding = self.padding
        if self.padding_mode != "zeros":
            # PyTorch pads into a contiguous copy, so a stack ends here.
            input, padding = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), (0,)
        elif type(padding) is str:
            padding = padding_of(padding, self.kernel_size[0], self.dilation[0])
        return _run(self, ("conv1d", self.stride, padding, self.dilation, (), self.groups), input, weight, bias)


class ConvTranspose1d(nn.ConvTranspose1d):
    """:class:`torch_ops.nn.ConvTranspose1d` in the faster layout."""

    _memory = _NOTHING
    next_is_channels_last = False

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if _is_plain(self, input):
            return torch.nn.ConvTranspose1d.forward(self, input, output_size)
        sizes = self.stride, self.padding, self.kernel_size
        output_padding = tuple(self._output_padding(input, output_size, *sizes, 1, self.dilation))
        layer = ("conv_transpose1d", self.stride, self.padding, self.dilation, output_padding, self.groups)
        return _run(self, layer, input, self.weight, self.bias)


# ---------------------------------------------------------------- weights


def forget(module: torch.nn.Module) -> None:
    """Removes what a converted module remembers."""
    for name in ("next_is_channels_last", "_memory"):
        module.__dict__.pop(name, None)


def chose_channels_last(module: torch.nn.Module) -> bool:
    """Whether a module computes channels last for every problem that it has settled, and has settled one."""
    memory = module.__dict__.get("_memory", _NOTHING)
    settled = [d.channels_last for d in memory.decisions.values() if d.settled and d.times is not None]
    return bool(settled) and all(settled)


def store_weight(module: torch.nn.Module, channels_last: bool) -> None:
    """Stores the weight (O, I, K) of a converted module as (O, K, I) in memory, or as it was. It stays the same parameter.

    A computed weight, as of weight norm, is left alone.
    """
    weight = module._parameters.get("weight") if isinstance(module, (Conv1d, ConvTranspose1d)) else None
    if weight is None or weight.is_contiguous() != channels_last or 1 in weight.shape[1:]:
        return

    def stored(tensor: Tensor) -> Tensor:
        return tensor.mT.contiguous().mT if channels_last else tensor.contiguous()

    weight.data = stored(weight.data)
    if weight.grad is not None:
        weight.grad = stored(weight.grad)
