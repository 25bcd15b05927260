"""Compares random calls of ATen's operators under torch_ops.override with the same calls without it.

    python -m benchmarks fuzz override --calls 5000 --processes 8   so many calls of every family of benchmarks.random.calls
    python -m benchmarks fuzz override copy_ sum --minutes 2         some families, until the time is over
    python -m benchmarks fuzz override copy_ --seed 17 --calls 1     one call again, as a failure prints it

The override takes calls of every size. Operands and destinations are random views (benchmarks/random/views.py). Some calls are ones
that ATen refuses, and some run in deterministic mode. Compared are

- errors, or shapes, strides and dtypes of results and gradients, and whether the destination itself is returned;
- values: ATen's bits where nothing is rounded twice, otherwise the error against float64, which may be four times ATen's;
- version counters, and all bytes of operands and around and between the elements of destinations;
- the bits of a second call, unless gpuopt adds atomically.

A call that loses the CUDA context ends its process. The last line still says which call it was.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import torch

import torch_ops
from benchmarks.random.calls import FAMILIES, Arithmetic, Call
from benchmarks.random.fuzz import parse
from benchmarks.random.runs import Checks, Run, compared, is_fatal
from benchmarks.random.views import Draw
from torch_ops.override import Report

PLAIN, WIDE, ABSOLUTE = Arithmetic(), Arithmetic(wide=True), Arithmetic(wide=True, absolute=True)


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
        with replaced(d.device):
            before = passed_on()
            own = Run(call, planted or call.function, PLAIN, needs_grad, grad)
            after = passed_on()
            is_ours = after[0] > before[0] and after[1] == before[1]
            repeats = is_ours and (call.repeatable or deterministic)
            again = Run(call, planted or call.function, PLAIN, needs_grad, grad) if repeats else None
    finally:
        torch.use_deterministic_algorithms(False)
    checks = Checks()
    if own.error is None and "deterministic" in str(want.error):
        pass  # gpuopt adds in a fixed order where ATen refuses to add
    elif repr(want.error) != repr(own.error):
        yield f"error: {own.error!r}, ATen's {want.error!r}"
    elif want.error is None:
        needs_reference = not call.exact and (want.results[0].is_floating_point() or want.results[0].is_complex())
        references = None
        if needs_reference:
            references = tuple(Run(call, call.function, mode, needs_grad, wide_grad(mode)) for mode in (WIDE, ABSOLUTE))
            if any(isinstance(run.error, NotImplementedError) for run in references):
                return  # ATen has no kernel for the wide dtype
            for run in references:
                if run.error is not None:
                    raise run.error
        if own.is_destination != want.is_destination:
            yield f"the result is not the destination: {own.is_destination}, ATen's {want.is_destination}"
        if own.versions != want.versions:
            yield f"versions: {own.versions}, ATen's {want.versions}"
        yield from compared(checks, call, want, own, references)
        if again is not None:
            for ours, second in zip(own.outputs, again.outputs):
                if ours is not None:
                    checks.bits("a second call gives other bits", ours, second)
    for k, view in enumerate(call.views):
        if k != call.written:
            checks.bits(f"operand {k} was written", own.buffers[k], view.buffer)
        elif own.shapes[k] == view.sizes:  # a destination of another size was resized
            before, ours = (view.outside(b) for b in (view.buffer, own.buffers[k]))
            if view.dtype.itemsize == 2 and not call.repeatable:
                # Atomic additions of half types, ATen's too, add zero to the neighbour, which makes another NaN of a NaN.
                before, ours = (b.view(view.dtype).nan_to_num(123.0) for b in (before, ours))
            checks.bits(f"memory around destination {k} was written", ours, before)
    if given is not None:
        checks.bits("the gradient of the result was written", gradient[0].buffer, given)
    yield from checks.faults()


def command(family: str, seed: int) -> str:
    return f'python -m benchmarks fuzz override "{family}" --seed {seed} --calls 1'


def run(
    families: list[str],
    seeds: Iterator[int],
    device: str,
    seconds: float,
    begin: Callable[[str], None] = lambda text: None,
) -> tuple[int, list[str]]:
    """The number of calls, and what was wrong with some of them. `begin` hears of each call before it runs."""
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
    # ATen's convolutions are the reference for cuDNN's, which by default round float32 and add in any order.
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses deterministic mode without it

    def begin(text: str) -> None:
        current.value = text.encode()

    count, found = run(families, seeds, device, seconds, begin)
    answer.send((count, len(found), torch_ops.override_report().calls))


def main(argv: list[str]) -> int:
    arguments = parse("fuzz override", __doc__, argv, FAMILIES, processes=True)
    end = arguments.seed + (sys.maxsize // 2 if arguments.calls is None else arguments.calls)
    context = multiprocessing.get_context("spawn")
    workers = []
    for k in range(arguments.processes):
        answer, its = context.Pipe(duplex=False)
        current = context.Array("c", 200)
        seeds = range(arguments.seed + k, end, arguments.processes)
        process = context.Process(
            target=work, args=(arguments.families, seeds, arguments.device, 60 * arguments.minutes, current, its)
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
