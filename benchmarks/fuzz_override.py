"""Compares random calls of ATen's operators under torch_ops.override with the same calls without it.

    python -m benchmarks fuzz override --calls 5000 --processes 8   so many calls of every family of benchmarks.random_calls
    python -m benchmarks fuzz override copy_ sum --minutes 2         some families, until the time is over
    python -m benchmarks fuzz override copy_ --seed 17 --calls 1     one call again, as a failure prints it

The override takes calls of every size. Operands and destinations are random views (benchmarks/random_views.py). Some calls are ones
that ATen refuses, and some run in deterministic mode. Compared are

- errors, or shapes, strides and dtypes of results and gradients, and whether the destination itself is returned;
- values: ATen's bits where nothing is rounded twice, otherwise the error against float64, which may be four times ATen's;
- version counters, and all bytes of operands and around and between the elements of destinations;
- the bits of a second call, unless gpuopt adds atomically.

A call that loses the CUDA context ends its process. The last line still says which call it was.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import torch

import torch_ops
from torch_ops.override import Report
from benchmarks.random_calls import FAMILIES, Arithmetic, Call
from benchmarks.random_views import Draw
from tests.overriding import override

PLAIN, WIDE, ABSOLUTE = Arithmetic(), Arithmetic(wide=True), Arithmetic(wide=True, absolute=True)
UNITS = 8  # roundings of the result's dtype that are always allowed
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def draw(family: str, seed: int, device: str) -> tuple[Call, Draw]:
    """The call of a seed, and what draws the rest: its gradient."""
    torch.manual_seed(seed)
    d = Draw(f"{family} {seed}", device)
    return FAMILIES[family](d), d


class Run:
    """One run of a call on its own copies of the operands: results, gradients, or the exception."""

    def __init__(self, call: Call, function: Callable, mode: Arithmetic, needs_grad: bool, grad: Callable | None = None):
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


def is_fatal(error: Exception) -> bool:
    """Whether the CUDA context is lost."""
    return "CUDA error" in str(error) or "CUBLAS_STATUS" in str(error) or "CUDNN_STATUS_EXECUTION" in str(error)


def metadata(t: torch.Tensor | None):
    return None if t is None else (tuple(t.shape), t.stride(), t.dtype, t.is_conj(), t.is_neg())


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


def _compared(checks: Checks, call: Call, want: Run, own: Run, references: tuple[Run, Run] | None) -> Iterator[str]:
    """Compares results and gradients of two runs."""
    for k, (ours, theirs) in enumerate(zip(own.outputs, want.outputs)):
        what = "result" if k == 0 else f"gradient {k - 1}"
        if metadata(ours) != metadata(theirs):
            yield f"{what}: {metadata(ours)}, ATen's {metadata(theirs)}"
            continue
        if theirs is None:
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


def faults(call: Call, d: Draw, planted: Callable | None = None) -> Iterator[str]:
    """What is wrong with one call under the override. Tests plant faults by another function."""
    deterministic, needs_grad = d.chance(0.1), call.differentiable and d.chance(0.5)
    gradient = []

    def grad(run: Run, result: torch.Tensor) -> torch.Tensor:
        """A random view, the same values for every run."""
        if not gradient:
            d.spoiled = -1
            gradient.append(d.operand(result.shape, result.dtype))
        return gradient[0].tensor(gradient[0].buffer)

    def wide_grad(mode: Arithmetic) -> Callable:
        return lambda run, result: mode.tensor(gradient[0], gradient[0].tensor(gradient[0].buffer))

    torch.use_deterministic_algorithms(deterministic)
    try:
        want = Run(call, call.function, PLAIN, needs_grad, grad)
        given = gradient[0].buffer.clone() if gradient else None
        with override(d.device):
            before = torch_ops.override_report()
            own = Run(call, planted or call.function, PLAIN, needs_grad, grad)
            after = torch_ops.override_report()
            is_ours = after.taken > before.taken and after.declined == before.declined
            repeats = call.repeatable and is_ours and not (needs_grad and not own.gradients)
            again = Run(call, planted or call.function, PLAIN, needs_grad, grad) if repeats else None
    finally:
        torch.use_deterministic_algorithms(False)
    checks = Checks()
    if repr(want.error) != repr(own.error):
        yield f"error: {own.error!r}, ATen's {want.error!r}"
    elif want.error is None:
        needs_reference = not call.exact and (want.results[0].is_floating_point() or want.results[0].is_complex())
        references = None
        if needs_reference:
            references = tuple(Run(call, call.function, mode, needs_grad, wide_grad(mode)) for mode in (WIDE, ABSOLUTE))
            for run in references:
                if run.error is not None:
                    raise run.error
        if own.is_destination != want.is_destination:
            yield f"the result is not the destination: {own.is_destination}, ATen's {want.is_destination}"
        if own.versions != want.versions:
            yield f"versions: {own.versions}, ATen's {want.versions}"
        yield from _compared(checks, call, want, own, references)
        if again is not None:
            for ours, second in zip(own.outputs, again.outputs):
                if ours is not None:
                    checks.bits("a second call gives other bits", ours, second)
    for k, view in enumerate(call.views):
        if k != call.written:
            checks.bits(f"operand {k} was written", own.buffers[k], view.buffer)
        elif own.shapes[k] == view.sizes:  # a destination of another size was resized
            checks.bits(f"memory around destination {k} was written", view.outside(own.buffers[k]), view.outside(view.buffer))
    if given is not None:
        checks.bits("the gradient of the result was written", gradient[0].buffer, given)
    yield from checks.faults()


def command(family: str, seed: int) -> str:
    return f'python -m benchmarks fuzz override "{family}" --seed {seed} --calls 1'


def run(
    families: list[str], seeds: Iterator[int], device: str, seconds: float, begin: Callable[[str], None] = lambda text: None
) -> tuple[int, list[str]]:
    """The number of calls, and what was wrong with some of them. `begin` hears of each call before it runs."""
    # ATen's convolutions are the reference for cuDNN's, which by default round float32 and add in any order.
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    count, found, ends = 0, [], time.monotonic() + seconds
    for seed in seeds:
        for family in families:
            begin(command(family, seed))
            call = None
            try:
                call, d = draw(family, seed, device)
                wrong = list(faults(call, d))
            except Exception as error:
                wrong = [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
                if is_fatal(error):
                    print(f"{call}: {wrong[0]}\n    {command(family, seed)}", flush=True)
                    os._exit(3)
            for fault in wrong:
                found.append(f"{call}: {fault}\n    {command(family, seed)}")
                print(found[-1], flush=True)
            count += 1
        if time.monotonic() > ends:
            break
    return count, found


def work(families, seeds, device, seconds, current, answer) -> None:
    """A process: runs its share of the seeds, and answers with its counts."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)

    def begin(text: str) -> None:
        current.value = text.encode()

    count, found = run(families, seeds, device, seconds, begin)
    answer.send((count, len(found), torch_ops.override_report().calls))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks fuzz override", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--calls", type=int, help="calls of each family")
    parser.add_argument("--seed", type=int, default=0, help="of the first call")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args(argv)
    families = arguments.families or list(FAMILIES)
    if unknown := [name for name in families if name not in FAMILIES]:
        parser.error(f"no family is called {unknown[0]!r}; there are: {', '.join(FAMILIES)}")
    if arguments.calls is None and arguments.minutes == float("inf"):
        parser.error("say when to end: --minutes or --calls")
    end = arguments.seed + (sys.maxsize // 2 if arguments.calls is None else arguments.calls)
    context = multiprocessing.get_context("spawn")
    workers = []
    for k in range(arguments.processes):
        answer, its = context.Pipe(duplex=False)
        current = context.Array("c", 200)
        seeds = range(arguments.seed + k, end, arguments.processes)
        process = context.Process(
            target=work, args=(families, seeds, arguments.device, 60 * arguments.minutes, current, its)
        )
        process.start()
        its.close()
        workers.append((process, answer, current))
    count, wrong, calls = 0, 0, collections.defaultdict(collections.Counter)
    for process, answer, current in workers:
        with contextlib.suppress(EOFError):
            of_worker, its_faults, its_calls = answer.recv()
            count, wrong = count + of_worker, wrong + its_faults
            for name, row in its_calls.items():
                calls[name].update(row)
        process.join()
        if process.exitcode:
            wrong += 1
            print(f"a process ended with exit code {process.exitcode} in this call, and did not run its others:")
            print(f"    {current.value.decode()}")
    print(Report(calls))
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device
    print(f"{count} calls on {where}, {wrong} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
