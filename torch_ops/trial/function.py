"""``trial``: the function that users call."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from torch_ops._override import active, override, override_report
from torch_ops.trial import kernels
from torch_ops.trial.clock import Context, inside, noise, rounds_of
from torch_ops.trial.compare import Values, differences, values_of
from torch_ops.trial.device import Device, Gpu
from torch_ops.trial.graphs import Graphs
from torch_ops.trial.measured import AGAIN, GRAPHS, OVERRIDE, PYTORCH, Way
from torch_ops.trial.operators import Span, host_waits, operators, spans
from torch_ops.trial.record import Recorder
from torch_ops.trial.report import Report
from torch_ops.trial.state import State

__all__ = ["trial"]

NO_GPU = "torch sees no GPU here, and the override replaces kernels of GPUs alone."
_WARM_UPS, _WARM_UPS_OF_GRAPHS = 3, 5  # the second call is recorded, the third one compared
_Override = override  # the parameter has the same name


def trial(
    step: Callable[[], Any],
    *,
    override: override | None = None,
    cuda_graph: bool = False,
    record: str | Path | None = None,
    seconds: float = 3.0,
    progress: bool | None = None,
) -> Report:
    """Measures what :class:`torch_ops.override` gains in a training step or an inference.

    The step runs with and without the override, in rounds that alternate. PyTorch's kernels are timed twice, which shows how far two
    measurements of the same thing differ. Without a GPU nothing is measured, and the step is not called.

    Parameters, buffers, gradients, optimizers, schedulers and random numbers are as before at the end. They are found in the closure of
    the step and in the globals that it names. Its first call shows modules and optimizers that are not found there. Iterators,
    counters of Python and files are not put back, so the step must work any number of times.

    Args:
        step: A function without arguments. It does one step, and may return results, which are compared.
        override: The override to measure. Default: ``torch_ops.override()``.
        cuda_graph: Whether to measure the override together with :func:`torch_ops.cuda_graph`, too. It needs the memory of the graphs.
        record: A file that gets the shapes, strides and dtypes of all calls of replaced operators, without their data.
        seconds: The time to measure each way, without warm-ups, comparison and profiler.
        progress: Whether to write the progress to stderr. Default: if it is a terminal.

    Returns:
        The report. ``print()`` shows it as text, :meth:`Report.json` gives JSON and :meth:`Report.plot` draws a picture.

    Raises:
        TypeError: ``step`` can't be called, or another argument has another type.
        ValueError: ``seconds`` is not positive.
        RuntimeError: An override is enabled already. Or as ``torch_ops.override``.

    Example::

        def step():
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        print(torch_ops.trial(step))
    """
    if not callable(step):
        raise TypeError(
            f"trial: step must be a function without arguments: expected a callable, got {type(step).__name__}"
        )
    if isinstance(step, torch.nn.Module):
        raise TypeError(
            f"trial: step must be a function without arguments: expected lambda: model(batch), got the module {type(step).__name__}"
        )
    if override is not None and not isinstance(override, _Override):
        raise TypeError(
            f"trial: override must be an override: expected torch_ops.override, got {type(override).__name__}"
        )
    if not isinstance(cuda_graph, bool):
        raise TypeError(f"trial: cuda_graph must be a flag: expected bool, got {type(cuda_graph).__name__}")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"trial: seconds must be a number: expected float, got {type(seconds).__name__}")
    if seconds <= 0:
        raise ValueError(f"trial: seconds must be positive: expected more than 0, got {seconds}")
    if not torch.cuda.is_available():
        return Report(reason=NO_GPU)
    return measure(step, override or _Override(), seconds, Gpu(), teller(progress), cuda_graph, record)


def measure(
    step: Callable[[], Any],
    used: override,
    seconds: float,
    device: Device,
    tell: Callable[[str], None],
    with_graphs: bool = False,
    record: str | Path | None = None,
) -> Report:
    """The report of a step. All state is put back, also after an error."""
    require_no_override()
    began = time.perf_counter()
    ways: dict[str, Context] = {PYTORCH: contextlib.nullcontext, OVERRIDE: lambda: used}
    tell("finding the state")
    state = State(step, device)
    graphs: Graphs | None = None
    try:
        tell("warming up")
        with state.watching():
            step()
        if with_graphs:
            graphs = Graphs(state.models())
            ways[GRAPHS] = lambda: _both(used, graphs)
        for name, way in ways.items():
            with way():
                for _ in range(_WARM_UPS_OF_GRAPHS if name == GRAPHS else _WARM_UPS):
                    step()
        timed = {**ways, AGAIN: ways[PYTORCH]}
        tell("comparing")
        results, gradients, notes = _compare(step, timed, state)
        clocks, steps = rounds_of(step, timed, seconds, device, tell)
        tell("reading memory")
        calls = _calls(step, timed[OVERRIDE])
        peaks = {name: _peak(step, way, device) for name, way in timed.items()}
        tell("profiling")
        profiles, problem = _profiles(step, timed, device)
        if record is not None:
            with Recorder() as recorder:
                step()
            save(recorder, Path(record), device)
        if state.written():
            notes.append("The step writes to tensors that are no parameters. They are not put back.")
        if state.unkept:
            notes.append(f"Tensors of class {', '.join(sorted(state.unkept))} are not put back.")
        if graphs is not None and (reason := graphs.problem()):
            notes.append(f"torch_ops.cuda_graph recorded nothing: {reason}.")
    finally:
        if graphs is not None:
            graphs.close()
        tell("putting the state back")
        state.restore()
        tell("")
    return report_of(
        device, clocks, steps, peaks, profiles, calls, results=results, gradients=gradients, notes=notes + problem,
        seconds=time.perf_counter() - began,
    )  # fmt: skip


@contextlib.contextmanager
def _both(*contexts: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "gpuopt": sys.modules["torch_ops"].__version__}


def save(recorder: Recorder, path: Path, device: Device) -> None:
    """Writes recorded calls, with the GPU and the versions that they ran on."""
    recorder.save(path, device=device.name(), versions=versions())


def report_of(
    device: Device,
    clocks: dict[Any, Any],
    steps: int,
    peaks: dict[Any, Any],
    profiles: dict[str, list[Any]],
    calls: dict[Any, Any],
    **fields: Any,
) -> Report:
    """A report from what was measured for each way, and from the calls of one step. ``profiles`` is empty if the profiler failed."""
    ways = {name: _way(clock, peaks[name], profiles.get(name)) for name, clock in clocks.items()}
    found: dict[str, list[Span]] = {name: spans(profiles[name], calls) for name in (PYTORCH, OVERRIDE) if profiles}
    return Report(
        device=device.name(),
        versions=versions(),
        ways=ways,
        noise=noise(clocks[PYTORCH], clocks[AGAIN], clocks[OVERRIDE]),
        steps=steps,
        operators=operators(calls, found.get(PYTORCH), found.get(OVERRIDE)),
        **fields,
    )


def require_no_override() -> None:
    if active():
        raise RuntimeError(
            "trial: the step must be measured without an override, too: expected none that is enabled, got one of"
            f" {', '.join(active())}; call disable()"
        )


def teller(progress: bool | None) -> Callable[[str], None]:
    """Writes the progress to one line of stderr."""
    if not (sys.stderr.isatty() if progress is None else progress):
        return lambda text: None
    return lambda text: print(
        f"\r\x1b[Ktorch_ops.trial: {text}" if text else "\r\x1b[K", end="", file=sys.stderr, flush=True
    )


def calls_since(before: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The calls of replaced operators since a report was made."""
    found = {}
    for name, reasons in override_report().calls.items():
        if new := Counter(reasons) - Counter(before.get(name, {})):
            found[name] = dict(new)
    return found


def _compare(
    step: Callable[[], Any], ways: dict[str, Context], state: State
) -> tuple[dict[Any, Any], dict[Any, Any], list[str]]:
    """Differences of results and of gradients of each way from PyTorch's, and notes."""
    expected: Values | None = None
    results, gradients, notes = {}, {}, []
    for name, way in ways.items():
        state.restore()
        try:
            found = values_of(step, way(), state)
            if expected is None:
                expected = found
                continue
            results[name], gradients[name] = differences(found, expected)
        except torch.cuda.OutOfMemoryError:
            return {}, {}, ["Results were not compared: copies of results and gradients do not fit in memory."]
    for name, group in (("results", results), ("gradients", gradients)):
        if None in group.values():
            notes.append(f"The step has no {name} to compare.")
            group.clear()
    return results, gradients, notes


def _calls(step: Callable[[], Any], way: Context) -> dict[str, dict[str, int]]:
    with inside(way, step):
        before = override_report().calls
        step()
    return calls_since(before)


def _peak(step: Callable[[], Any], way: Context, device: Device) -> int:
    with inside(way, step):
        device.synchronize()
        device.reset_peak()
        step()
        device.synchronize()
        return device.peak_bytes()


def _profiles(
    step: Callable[[], Any], ways: dict[str, Context], device: Device
) -> tuple[dict[str, list[Any]], list[str]]:
    """The profiler's events of a step in each way, and why there are none."""
    profiles = {}
    try:
        for name, way in ways.items():
            with inside(way, step), device.profiled() as events:
                step()
            profiles[name] = events
    except RuntimeError as error:
        return {}, [f"There is no GPU time: the profiler failed ({str(error).splitlines()[0][:200]})."]
    problem = profile_problem(profiles)
    return ({}, problem) if problem else (profiles, [])


def profile_problem(profiles: dict[str, list[Any]]) -> list[str]:
    """A sentence if the profiler saw nothing."""
    seen = any(map(kernels.kernels, profiles.values()))
    return [] if seen else ["There is no GPU time: the profiler saw no kernel."]


def _way(clock: Any, peak: int, events: list[Any] | None) -> Way:
    if events is None:
        return Way(clock, peak_bytes=peak)
    found = kernels.kernels(events)
    total = sum(kernel.us for kernel in found) / 1e3
    families = {name: share * total for name, share in kernels.shares(found).items()}
    return Way(clock, total, families, peak, host_waits(events))
