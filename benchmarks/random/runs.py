"""Runs of a random call, and comparisons of two runs, for benchmarks/random/override.py and near_range.py."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator

import torch

from benchmarks.random.calls import Arithmetic, Call
from benchmarks.random.views import Draw, View

UNITS = 32  # roundings of the result's dtype that are always allowed: sums of up to 10^4 terms in another order
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Run:
    """One run of a call on its own copies of the operands: results, gradients, or the exception."""

    has_strides = True

    def __init__(
        self, call: Call, function: Callable, mode: Arithmetic, needs_grad: bool, grad: Callable | None = None
    ):
        self.results = self.gradients = ()
        self.error = None
        self.buffers = [view.buffer.clone() for view in call.views]
        tensors = [view.tensor(buffer) for view, buffer in zip(call.views, self.buffers)]
        if mode.wide:
            tensors = [mode.tensor(view, t) for view, t in zip(call.views, tensors)]
        leaves = [
            t.requires_grad_() for k, t in enumerate(tensors)
            if needs_grad and k != call.written and (t.is_floating_point() or t.is_complex())
        ]  # fmt: skip
        versions = [t._version for t in tensors]
        try:
            result = function(mode, *tensors)
            self.results = (result.detach(),)
            self.is_destination = [result is t for t in tensors]
            if grad is not None and result.requires_grad:
                self.gradients = torch.autograd.grad(result, leaves, grad(self, result), allow_unused=True)
        except Exception as error:
            if is_fatal(error):
                raise
            self.error = error
        self.versions = [t._version - before for t, before in zip(tensors, versions)]
        self.shapes = [tuple(t.shape) for t in tensors]

    @property
    def outputs(self) -> tuple:
        return (*self.results, *self.gradients)

    def rounded(self, like: Run) -> Run:
        """This run with the dtypes of another one. Its strides tell nothing."""
        made = copy.copy(self)
        made.has_strides = False
        made.results, made.gradients = (
            tuple(t if t is None else t.to(other.dtype) for t, other in zip(mine, others))
            for mine, others in ((self.results, like.results), (self.gradients, like.gradients))
        )
        return made


class Gradient:
    """The gradient of a call's result: a random view, with the same values for every run."""

    def __init__(self, d: Draw):
        self.view: View | None = None
        self._draw = d

    def of(self, mode: Arithmetic) -> Callable[[Run, torch.Tensor], torch.Tensor]:
        """What gives the gradient to a run in this mode."""

        def grad(run: Run, result: torch.Tensor) -> torch.Tensor:
            if self.view is None:
                self._draw.spoiled = -1
                self.view = self._draw.operand(result.shape, result.dtype)
            return mode.tensor(self.view, self.view.tensor(self.view.buffer))

        return grad


def is_fatal(error: Exception) -> bool:
    """Whether the CUDA context is lost."""
    if not any(name in str(error) for name in ("CUDA", "CUBLAS", "CUDNN")):
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def metadata(t: torch.Tensor | None, has_strides: bool = True):
    return t if t is None else (tuple(t.shape), t.stride() if has_strides else (), t.dtype, t.is_conj(), t.is_neg())


def different_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (a.resolve_conj(), b.resolve_conj()))
    bits = BITS[a.element_size()]
    return (a.contiguous().view(bits) != b.contiguous().view(bits)).any().double()


def largest_error(out: torch.Tensor, reference: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The largest error of an element, relative to the sum of its terms without signs. NaN counts as the largest."""
    difference = (out.to(reference.dtype) - reference).abs()
    return (difference / scale.abs().clamp(min=1e-30)).amax() if out.numel() else difference.sum()


class Checks:
    """Numbers on the device, each with what its being too large means. They are read at once, because reading waits for the GPU."""

    def __init__(self):
        self._values, self._judged = [], []

    def add(self, judge: Callable[..., str | None], *values: torch.Tensor) -> None:
        self._values += values
        self._judged.append((judge, len(values)))

    def bits(self, what: str, a: torch.Tensor, b: torch.Tensor) -> None:
        self.add(lambda differ: what if differ else None, different_bits(a, b))

    def faults(self) -> Iterator[str]:
        numbers = iter(torch.stack(self._values).tolist() if self._values else ())
        for judge, count in self._judged:
            if fault := judge(*itertools.islice(numbers, count)):
                yield fault


def compared(checks: Checks, call: Call, want: Run, got: Run, references: tuple[Run, Run] | None) -> Iterator[str]:
    """Compares results and gradients of two runs."""
    if len(got.outputs) != len(want.outputs):
        yield f"{len(got.outputs)} results and gradients, ATen's {len(want.outputs)}"
    for k, (ours, theirs) in enumerate(zip(got.outputs, want.outputs)):
        what = "result" if k == 0 else f"gradient {k - 1}"
        found, expected = (metadata(t, want.has_strides) for t in (ours, theirs))
        if found != expected:
            yield f"{what}: {found}, ATen's {expected}"
            continue
        if theirs is None or (call.other_gradient and (k > 0 or call.is_gradient)):
            continue
        if call.exact or not (theirs.is_floating_point() or theirs.is_complex()):
            checks.bits(f"{what}: not ATen's bits", ours, theirs)
            continue
        reference, scale = (run.outputs[k] for run in references)
        unit = UNITS * torch.finfo(theirs.dtype).eps

        def judge(error: float, aten_error: float, what=what, unit=unit) -> str | None:
            limit = max(unit, 4 * aten_error)  # an error of NaN is never within a limit, unless ATen's is NaN
            fine = error <= limit or aten_error != aten_error
            return None if fine else f"{what}: error {error:.2e}, limit {limit:.2e}, ATen's {aten_error:.2e}"

        checks.add(judge, *(largest_error(out, reference, scale) for out in (ours, theirs)))
