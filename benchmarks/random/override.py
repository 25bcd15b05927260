"""Compares random calls of ATen's operators under torch_ops.override with the same calls without it.

    python -m benchmarks fuzz override --calls 5000 --processes 8   so many calls of every family of benchmarks.random.calls
    python -m benchmarks fuzz override copy_ sum --minutes 2         some families, until the time is over
    python -m benchmarks fuzz override copy_ --seed 17 --calls 1     one call again, as a failure prints it

The override takes calls of every size. Operands and destinations are random views (benchmarks/random/views.py). Some calls are ones
that ATen refuses, and some run in deterministic mode. Compared are

- errors, or shapes, strides and dtypes of results and gradients, and whether the destination itself is returned;
- values: ATen's bits where nothing is rounded twice, otherwise the error against float64, which may be four times ATen's. Where ATen
  has no kernel for half types, only the result of float64 counts;
- version counters, and all bytes of operands and around and between the elements of destinations;
- the bits of a repeated call, unless gpuopt adds atomically.

A call that loses the CUDA context ends its process. The last line still says which call it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

import torch_ops
from benchmarks.random.calls import FAMILIES, Arithmetic, Call
from benchmarks.random.processes import Mode
from benchmarks.random.runs import Checks, Gradient, Run, compared
from benchmarks.random.views import Draw
from torch_ops._override import Report

PLAIN, WIDE, ABSOLUTE = Arithmetic(), Arithmetic(wide=True), Arithmetic(wide=True, absolute=True)
# ATen's messages for a dtype without a kernel.
REFUSALS = ("not implemented for", "Expected self to be a floating-point")


def replaced(device: str) -> torch_ops.override:
    """An override of the kernels of `device` that takes calls of every size."""
    made = torch_ops.override()
    made._key, made._always = device.upper(), True
    return made


def draw(family: str, seed: int, device: str) -> tuple[Call, Draw]:
    """The call of a seed, and what draws the rest: its gradient."""
    torch.manual_seed(seed)
    d = Draw(f"{family} {seed}", device)
    return FAMILIES[family](d), d


def passed_on() -> tuple[int, int]:
    """The numbers of calls so far that gpuopt computed, and that went to ATen. Copies, which ATen makes everywhere, are left out."""
    calls = {name: row for name, row in torch_ops.override_report().calls.items() if name != "copy_"}
    return torch_ops.override_report().taken, Report(calls).declined


def is_refusal(error: Exception | None) -> bool:
    """Whether ATen has no kernel for the dtype."""
    return any(text in str(error) for text in REFUSALS)


def faults(call: Call, d: Draw, planted: Callable | None = None) -> Iterator[str]:
    """What is wrong with one call under the override. Tests plant faults by another function."""
    deterministic, needs_grad = d.chance(0.1), call.differentiable and d.chance(0.5)
    gradient = Gradient(d)
    torch.use_deterministic_algorithms(deterministic)
    try:
        want = Run(call, call.function, PLAIN, needs_grad, gradient.of(PLAIN))
        given = gradient.view and gradient.view.buffer.clone()
        with replaced(d.device):
            before = passed_on()
            got = Run(call, planted or call.function, PLAIN, needs_grad, gradient.of(PLAIN))
            after = passed_on()
            is_ours = after[0] > before[0] and after[1] == before[1]
            repeats = is_ours and (call.repeatable or deterministic)
            again = Run(call, planted or call.function, PLAIN, needs_grad, gradient.of(PLAIN)) if repeats else None
    finally:
        torch.use_deterministic_algorithms(False)
    checks = Checks()
    is_refused = is_refusal(want.error)
    if got.error is None and "deterministic" in str(want.error):
        pass  # gpuopt adds in a fixed order where ATen refuses to add
    elif is_refused and is_refusal(got.error):
        pass  # an override passes a gradient on, or the call itself
    elif repr(want.error) != repr(got.error) and not (is_refused and got.error is None):
        yield f"error: {got.error!r}, ATen's {want.error!r}"
    elif got.error is None:
        needs_reference = not call.exact and (got.results[0].is_floating_point() or got.results[0].is_complex())
        references = None
        if needs_reference:
            references = tuple(
                Run(call, call.function, mode, needs_grad, gradient.of(mode)) for mode in (WIDE, ABSOLUTE)
            )
            if any(isinstance(run.error, NotImplementedError) for run in references):
                return  # ATen has no kernel for the wide dtype
            for run in references:
                if run.error is not None:
                    raise run.error
        if is_refused:
            want = references[0].rounded(got)
        if got.is_destination != want.is_destination:
            yield f"the result is not the destination: {got.is_destination}, ATen's {want.is_destination}"
        if got.versions != want.versions:
            yield f"versions: {got.versions}, ATen's {want.versions}"
        yield from compared(checks, call, want, got, references)
        if again is not None:
            for ours, repeated in zip(got.outputs, again.outputs):
                if ours is not None:
                    checks.bits("a repeated call gives other bits", ours, repeated)
    for k, view in enumerate(call.views):
        if k != call.written:
            checks.bits(f"operand {k} was written", got.buffers[k], view.buffer)
        elif got.shapes[k] == view.sizes:  # a destination of another size was resized
            before, ours = (view.outside(b) for b in (view.buffer, got.buffers[k]))
            if view.dtype.itemsize == 2 and not call.repeatable:
                # Atomic additions of half types, ATen's too, add zero to the neighbour, which makes another NaN of a NaN.
                before, ours = (b.view(view.dtype).nan_to_num(123.0) for b in (before, ours))
            checks.bits(f"memory around destination {k} was written", ours, before)
    if given is not None:
        checks.bits("the gradient of the result was written", gradient.view.buffer, given)
    yield from checks.faults()


MODE = Mode("override", tuple(FAMILIES), draw, faults)


def main(argv: list[str]) -> int:
    return MODE.main(__doc__, argv)
