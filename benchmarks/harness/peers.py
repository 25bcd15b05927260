"""Peers: other implementations of an operator, which a room can measure beside gpuopt's.

``prepare(call, case, setting)`` of a peer returns a function of the case's arguments, and a note on how it was made ("" for
none). Compilation happens in ``prepare``, so that it is not timed. A peer that does not apply or is not installed raises
``Missing``. Any other exception means that the peer failed. The table shows both.

Rooms that need other peers (CUB's reduction, a convolution of channels-last data) define them in their own file.
"""

import dataclasses
from collections.abc import Callable

import torch

from benchmarks.harness.traffic import traffic


class Missing(Exception):
    """This peer cannot compute the case. The message says why."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What ``prepare`` may use. ``tune`` allows it to spend seconds on finding the fastest variant."""

    timer: object
    device: str
    tune: bool


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    prepare: Callable[..., tuple[Callable, str]]


OURS = Peer("gpuopt", lambda call, case, setting: (call.ours, ""))
ATEN = Peer("ATen", lambda call, case, setting: (call.aten, ""))

# Tuning takes seconds per case, so only headline cases of at least this size are tuned. Smaller ones gain little.
TUNE_FROM_BYTES = 64 << 20
INDUCTOR_MODES = {"default": None, "max-autotune": "max-autotune-no-cudagraphs"}


def _inductor(call, case, setting):
    """``torch.compile`` of the ATen expression, in its fastest mode."""
    import torch._dynamo
    from torch._inductor import metrics

    args = case.build(setting.device, 0)
    case_bytes = sum(traffic(case, call))
    tune = setting.tune and case.headline and case_bytes >= TUNE_FROM_BYTES
    # The cases share a code object, so without a reset they would reach the recompilation limit.
    torch._dynamo.reset()

    def expression(*operands):
        return call.aten(*operands)

    compiled, details = {}, {}
    for name in INDUCTOR_MODES if tune else ["default"]:
        metrics.reset()
        compiled[name] = torch.compile(expression, mode=INDUCTOR_MODES[name], fullgraph=True, dynamic=False)
        compiled[name](*args)
        details[name] = name if metrics.generated_kernel_count else f"{name}, with ATen's kernels alone"
    if not tune:
        return compiled["default"], details["default"]
    timings = setting.timer.compare(compiled, lambda seed: args, case_bytes)
    timed = {name: timing for name, timing in timings.items() if not isinstance(timing, Exception)}
    best = min(timed, key=lambda name: timed[name].median, default="default")
    return compiled[best], details[best]


INDUCTOR = Peer("Inductor", _inductor)


def cupy_for(call, args: tuple):
    """The module CuPy. Raises Missing if it is not installed or cannot compute this call."""
    if call.cupy is None:
        raise Missing("CuPy has no such operation")
    try:
        import cupy
    except ImportError:
        raise Missing("CuPy is not installed") from None
    if any(isinstance(arg, torch.Tensor) and arg.dtype is torch.bfloat16 for arg in args):
        raise Missing("CuPy has no bfloat16")
    return cupy


def cupy_view(operand):
    """A CuPy array that shares the operand's memory. DLPack is not used, because it may wait for another stream on every call."""
    import cupy

    if not isinstance(operand, torch.Tensor):
        return operand
    size = operand.element_size()
    span = 1 + sum((n - 1) * stride for n, stride in zip(operand.shape, operand.stride()))
    memory = cupy.cuda.UnownedMemory(operand.data_ptr(), span * size, operand, operand.device.index)
    return cupy.ndarray(
        tuple(operand.shape),
        dtype=str(operand.dtype).removeprefix("torch."),
        memptr=cupy.cuda.MemoryPointer(memory, 0),
        strides=tuple(stride * size for stride in operand.stride()),
    )


def cupy_call(device: str, function: Callable, *operands, **options):
    """Calls CuPy's ``function`` with views of the operands, on PyTorch's stream.

    PyTorch allocates results and scratch memory, because CuPy's own pool would call cudaMalloc while a graph is captured.
    """
    import cupy

    def from_torch(size: int):
        block = torch.empty(size, dtype=torch.uint8, device=device)
        memory = cupy.cuda.UnownedMemory(block.data_ptr(), size, block, block.device.index)
        return cupy.cuda.MemoryPointer(memory, 0)

    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    with stream, cupy.cuda.using_allocator(from_torch):
        return function(*map(cupy_view, operands), **options)


def _cupy(call, case, setting):
    args = case.build(setting.device, 0)
    cupy = cupy_for(call, args)
    ufunc = getattr(cupy, call.cupy)
    result = call.aten(*args)

    def run(*operands):
        # PyTorch allocates the output, because CuPy's own pool would call cudaMalloc while a graph is captured.
        if call.kind == "out":
            inputs, out = operands[:-1], operands[-1]
        elif call.kind == "inplace":
            inputs, out = operands, operands[0]
        else:
            inputs, out = operands, torch.empty_like(result)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            ufunc(*map(cupy_view, inputs), out=cupy_view(out))
        return out

    return run, ""


CUPY = Peer("CuPy", _cupy)
