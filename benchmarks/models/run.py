"""Measures one model: inference and training, in one mode, with and without gpuopt.

=========  ==================================================================================================
mode       what PyTorch is compared with
=========  ==================================================================================================
eager      ``torch_ops.override()``
compiled   the same, both under torch.compile
layout     a copy after ``torch_ops.convert(model, layout="channels_last")``, without override; models that convolve signals.
           Its layers have chosen by its inputs, and its weights are stored in their layouts
graph      copies after ``torch_ops.cuda_graph(model)``: one with PyTorch's kernels, and gpuopt's with override
=========  ==================================================================================================

Models of PyTorch Geometric also run with ``torch_ops.compat.install("torch_geometric")`` in modes "eager" and "graph", without override.

Wall clock: several steps with a synchronisation at both ends, divided by their number. Contenders take turns, round after round.
GPU time: the sum of the kernels of one step, from torch.profiler. Memory: the peak of one step, from PyTorch's allocator. Errors:
relative L2 distance of all outputs and of all gradients from the same model in float64, with the same rounded parameters and inputs.
A training step is forward, loss and backward. It has no optimizer, whose kernels would be the same for both.
"""

import contextlib
import copy
import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable

import torch
from torch.overrides import TorchFunctionMode

from benchmarks.harness.timer import summarise
from benchmarks.models.zoo import Model, Task
from torch_ops.trial import kernels
from torch_ops.trial.device import Gpu

BASELINE, OURS, LAYERS = "PyTorch", "gpuopt", "gpuopt layers"
GRAPH = "PyTorch graph"  # PyTorch's kernels, in mode "graph"
AGAIN = "PyTorch again"  # the baseline a second time: its ratio is the noise of the others
MODES, PASSES = ("eager", "compiled", "layout", "graph"), ("training", "inference")
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
ROUND_S = 0.05  # a round has about this many seconds of steps, so that the synchronisation weighs little
WARM_UPS = {"graph": 5}  # the second call is recorded, the third one compared
NO_OVERRIDE = "this torch_ops has no override(), so there is nothing to compare with PyTorch"

Context = Callable[[], contextlib.AbstractContextManager]


def contenders() -> dict[str, Context]:
    """Each contender and the context that it runs in. Raises RuntimeError if torch_ops has no override."""
    import torch_ops

    if not hasattr(torch_ops, "override"):
        raise RuntimeError(NO_OVERRIDE)
    return {BASELINE: contextlib.nullcontext, OURS: torch_ops.override}


@contextlib.contextmanager
def layers():
    """The layers of PyTorch Geometric compute with gpuopt. What they remember of a graph is forgotten at the end."""
    from torch_ops import compat

    compat.install("torch_geometric")
    try:
        yield
    finally:
        compat.uninstall("torch_geometric")


@contextlib.contextmanager
def inside(context: Context, step: Callable):
    """A context in which a step finds what the steps of a training would remember."""
    with context():
        if context is layers:
            step()
        yield


class Step:
    """Calls the model once, for inference or for training."""

    def __init__(self, task: Task, training: bool, compiled: bool = False, name: str = ""):
        def forward(*inputs: torch.Tensor) -> torch.Tensor:
            return task.module(*inputs)

        self.task, self.training = task, training
        self.forward = compile_for(name, forward) if compiled else forward
        task.module.train(training)

    def __call__(self) -> torch.Tensor:
        task = self.task
        if not self.training:
            with torch.no_grad():
                return self.forward(*task.inputs)
        task.module.zero_grad(set_to_none=True)
        output = self.forward(*task.inputs)
        task.loss(output, *task.targets).backward()
        return output.detach()

    def gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self.task.module.parameters() if p.grad is not None] if self.training else []


def compile_for(name: str, forward: Callable) -> Callable:
    """``torch.compile(forward)``, with graphs that no other contender uses.

    Dynamo keeps graphs for each code object and backend. A backend with other options is another one, so a pattern for a profiler that
    is off separates the contenders.
    """
    return torch.compile(forward, dynamic=False, options={"profile_bandwidth_regex": name})


def in_chosen_layouts(task: Task, training: bool) -> Task:
    """A copy of a task whose convolutions have chosen their layouts, and store their weights in them."""
    import torch_ops

    ours = copy.deepcopy(task)
    ours.module.train(training)
    with torch.set_grad_enabled(training):
        torch_ops.convert(ours.module, layout="channels_last", store_weights=True, example=ours.inputs)
    return ours


def task_of(name: str, task: Task, mode: str, training: bool) -> Task:
    """The task of a contender: a changed copy where the mode has one."""
    if mode == "layout" and name == OURS:
        return in_chosen_layouts(task, training)
    if mode == "graph" and name != BASELINE:
        import torch_ops

        task.module.zero_grad(set_to_none=True)  # a copy would have the gradients too
        task = copy.deepcopy(task)
        torch_ops.cuda_graph(task.module)
    return task


def static_bytes(task: Task) -> int:
    """The size of what a task has before its first step."""
    return sum(x.nbytes for x in (*task.module.parameters(), *task.module.buffers(), *task.inputs, *task.targets))


def recordings() -> list[dict]:
    """The rows of ``torch_ops.cuda_graph_report()``."""
    import torch_ops

    return [dataclasses.asdict(row) for row in torch_ops.cuda_graph_report().rows]


# ---------------------------------------------------------------- float64


class InFloat64(TorchFunctionMode):
    """Turns explicit conversions to float32 into float64: many models compute norms, softmax and scans in float32."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wide(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wide, args), **{key: wide(value) for key, value in (kwargs or {}).items()})


def reference(task: Task, training: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Output and gradients of one step in float64, with the same values of parameters and inputs."""
    task.module.zero_grad(set_to_none=True)  # a copy would have the gradients too
    wide = copy.deepcopy(task).to(task.inputs[0].device, torch.float64)
    step = Step(wide, training)
    with InFloat64():
        output = step()
    return output, step.gradients()


def relative_error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The L2 norm of all differences over the L2 norm of all exact values."""
    apart = math.fsum((x.double() - y.double()).square().sum().item() for x, y in zip(found, exact, strict=True))
    scale = math.fsum(y.double().square().sum().item() for y in exact)
    return math.sqrt(apart / scale) if scale else math.sqrt(apart)


# ---------------------------------------------------------------- one step


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(step: Step, count: int, device: str) -> float:
    synchronize(device)
    began = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(device)
    return (time.perf_counter() - began) / count


def wall_times(steps: dict[str, tuple[Step, Context]], seconds: float, device: str) -> dict[str, dict]:
    """Milliseconds of a step: median, quartiles and number of rounds. ``seconds`` is the time for one contender."""
    guesses = []
    for step, context in steps.values():
        with inside(context, step):
            guesses.append(seconds_of(step, 1, device))
    guess = statistics.median(guesses)
    count = max(1, round(min(ROUND_S, seconds) / guess))
    rounds = max(5, min(41, round(seconds / (count * guess))))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        # Every other round runs in reverse, so that a drifting clock favours nobody.
        for name, (step, context) in list(steps.items())[:: -1 if number % 2 else 1]:
            with inside(context, step):
                samples[name].append(1e3 * seconds_of(step, count, device))
    return {name: dataclasses.asdict(summarise(found, f"{count} steps a round")) for name, found in samples.items()}


def peak_bytes(step: Step) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def reserved_bytes(device: str) -> int:
    """What the allocator holds. A CUDA graph keeps its memory, although no tensor has it between two replays."""
    if device != "cuda":
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def peak_reserved(step: Step) -> int:
    reserved_bytes("cuda")
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved()


def repeats(step: Step) -> bool:
    """Whether two steps give the same bits."""
    first = [x.clone() for x in (step(), *step.gradients())]
    return all(torch.equal(x, y) for x, y in zip(first, (step(), *step.gradients()), strict=True))


def sentence(error: BaseException) -> str:
    """The first line of an error, with its type."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


# ---------------------------------------------------------------- one row


def measure(
    model: Model,
    task: Task,
    mode: str,
    dtype: str,
    training: bool,
    contexts: dict[str, Context],
    seconds: float,
    save: Callable[[dict], None],
) -> dict:
    """One row. ``save(row)`` is called after the times, and again when errors are known. In modes "layout" and "graph", gpuopt has its own task."""
    device = task.inputs[0].device.type
    row = {
        "model": model.name,
        "title": model.title,
        "sizes": model.sizes,
        "mode": mode,
        "dtype": dtype,
        "pass": PASSES[not training],
        "deterministic": model.deterministic,
        "note": "",
        "contenders": {},
    }
    steps = {}
    for name, context in contexts.items():
        entry = row["contenders"][name] = {"status": "ok"}
        try:
            torch._dynamo.utils.counters.clear()
            before = reserved_bytes(device)
            others = len(recordings()) if mode == "graph" else 0
            step = Step(task_of(name, task, mode, training), training, mode == "compiled", name)
            with context():
                for _ in range(WARM_UPS.get(mode, 3)):
                    step()
                synchronize(device)
            if mode == "graph" and name != BASELINE:
                entry["graphs"] = recordings()[others:]
            if mode == "graph" and device == "cuda":
                given = static_bytes(task) if step.task is task else 0
                with context():
                    entry["step_bytes"] = peak_reserved(step) - before + given
            if mode == "compiled":
                entry["graph_breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
            steps[name] = step, context
        except Exception as error:
            entry.update(status="failed", reason=sentence(error))
    if not steps:
        save(row)
        return row
    timed = steps | ({AGAIN: steps[BASELINE]} if BASELINE in steps else {})
    for name, times in wall_times(timed, seconds, device).items():
        row["contenders"].setdefault(name, {"status": "ok"})["ms"] = times
    save(row)
    for name, (step, context) in steps.items():
        entry = row["contenders"][name]
        with inside(context, step):
            if device == "cuda":
                entry["peak_bytes"] = peak_bytes(step)
                row["note"] = add_gpu_time(entry, step) or row["note"]
            if model.deterministic:
                entry["repeats"] = repeats(step)
    save(row)
    add_errors(row, task, steps, training)
    save(row)
    return row


def add_gpu_time(entry: dict, step: Step) -> str:
    """The sum of the kernels of a step and the shares of their families. A sentence if the profiler fails."""
    try:
        with Gpu().profiled() as events:
            step()
        found = kernels.kernels(events)
    except Exception as error:
        return f"no GPU time: {sentence(error)}"
    if not found:
        return "no GPU time: the profiler saw no kernel"
    entry["gpu_ms"] = sum(kernel.us for kernel in found) / 1e3
    entry["kernels"] = len(found)
    entry["shares"] = kernels.shares(found)
    return ""


def add_errors(row: dict, task: Task, steps: dict[str, tuple[Step, Context]], training: bool) -> None:
    """Errors against float64. Where float64 fails, for example because it does not fit, the row's note says so."""
    try:
        output, gradients = reference(task, training)
    except Exception as error:
        row["note"] = f"no float64: {sentence(error)}"
        return
    for name, (step, context) in steps.items():
        with context():
            found = step()
        entry = row["contenders"][name]
        entry["output_error"] = relative_error([found], [output])
        if training:
            entry["gradient_error"] = relative_error(step.gradients(), gradients)


def run(
    model: Model, base: Task, mode: str, dtypes: list[str], passes: list[str], device: str, **options
) -> list[dict]:
    """All rows of a model in one mode. ``base`` is its task, ``options`` are the last arguments of :func:`measure`."""
    torch.use_deterministic_algorithms(model.deterministic)
    rows = []
    try:
        for dtype in dtypes:
            for name in passes:
                if mode == "compiled":
                    torch._dynamo.reset()
                task = copy.deepcopy(base).to(device, DTYPES[dtype])
                if mode == "layout":
                    options["contexts"] = {BASELINE: contextlib.nullcontext, OURS: contextlib.nullcontext}
                elif mode == "graph" and OURS in options["contexts"]:
                    # PyTorch comes first, because its memory is measured before others keep or free theirs.
                    options["contexts"] = {BASELINE: contextlib.nullcontext, GRAPH: contextlib.nullcontext} | options[
                        "contexts"
                    ]
                rows.append(measure(model, task, mode, dtype, name == "training", **options))
                del task
                if device == "cuda":
                    gc.collect()
                    torch.cuda.empty_cache()
    finally:
        torch.use_deterministic_algorithms(False)
    return rows
