"""A trial of the steps of a script, which ends at its optimizer's step.

The script runs without a change. After the warm-up, PyTorch's kernels, the override's and PyTorch's again alternate in rounds of several
training steps. The steps compute on other data each, so their results are not compared.
"""

from __future__ import annotations

import contextlib
import functools
import runpy
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_ops._override import override, override_report
from torch_ops.trial.clock import Context, summary
from torch_ops.trial.device import Device
from torch_ops.trial.function import calls_since, profile_problem, report_of, require_no_override, save
from torch_ops.trial.measured import AGAIN, OVERRIDE, PYTORCH
from torch_ops.trial.record import Recorder
from torch_ops.trial.report import Report

__all__ = ["TooShort", "measure_script", "needed"]

_WARM_UPS = 3  # of each way
_BLOCK = 4  # measured steps between two switches of the override
_NOTE = "A script's steps compute on other data each, so results and gradients were not compared, and no state was put back."


class TooShort(RuntimeError):
    """The script ended before the last step that was needed."""


class _Finished(BaseException):
    """Ends the script. It is no Exception, so that handlers in the script let it pass."""


def needed(steps: int, records: bool = False) -> int:
    """The training steps that a trial of this many steps of each way makes."""
    return records + 2 * _WARM_UPS + 3 * _rounds(steps) * (1 + _BLOCK) + 3 * 2


def _rounds(steps: int) -> int:
    return -(-steps // _BLOCK)


def measure_script(
    path: Path,
    arguments: list[str],
    steps: int,
    used: override,
    device: Device,
    tell: Callable[[str], None],
    record: Path | None = None,
) -> Report:
    """Runs a script until the steps are measured.

    Raises:
        TooShort: The script made too few steps.
    """
    require_no_override()
    trial = _Trial(steps, used, device, tell, record)
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.parent)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except _Finished:
        assert trial.report is not None
        return trial.report
    except SystemExit:
        pass
    finally:
        sys.argv, sys.path[0] = before
        trial.close()
        tell("")
    raise TooShort(
        f"{path.name} made {trial.seen} training steps (calls of an optimizer's step), and the trial needs"
        f" {needed(steps, record is not None)}"
    )


class _Trial:
    """Counts the ends of training steps, and measures between them.

    Attributes:
        seen: The steps that have ended.
        report: What was measured, at the end.
    """

    def __init__(
        self, steps: int, used: override, device: Device, tell: Callable[[str], None], record: Path | None
    ) -> None:
        self.seen = 0
        self.report: Report | None = None
        self._schedule = self._measured(steps, used, device, tell, record)
        self._optimizer: torch.optim.Optimizer | None = None
        self._hook = register_optimizer_step_post_hook(self._see)

    def close(self) -> None:
        """Ends what is measured now, and leaves the optimizer as it was."""
        self._hook.remove()
        self._schedule.close()
        if self._optimizer is not None:
            self._optimizer.step = self._step

    def _see(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Wraps the first optimizer that does a step. A step may have several, and ends with this one."""
        if self._optimizer is not None:
            return
        # PyTorch's hooks run inside of a range of the profiler, in which no profiler may begin or end.
        self._optimizer, self._step = optimizer, optimizer.step

        @functools.wraps(self._step)
        def step(*args: Any, **kwargs: Any) -> Any:
            result = self._step(*args, **kwargs)
            self._end_step()
            return result

        optimizer.step = step
        self._end_step()

    def _end_step(self) -> None:
        self.seen += 1
        next(self._schedule)

    def _measured(
        self, steps: int, used: override, device: Device, tell: Callable[[str], None], record: Path | None
    ) -> Generator[None]:
        """Measures one training step between two iterations. It begins at the end of the script's first step."""
        began = time.perf_counter()
        ways: dict[str, Context] = {
            PYTORCH: contextlib.nullcontext,
            OVERRIDE: lambda: used,
            AGAIN: contextlib.nullcontext,
        }
        for number in range(2 * _WARM_UPS - 1):
            tell(f"warm-up {number + 1} of {2 * _WARM_UPS - 1}")
            with ways[OVERRIDE if number % 2 else PYTORCH]():
                yield
        samples: dict[str, list[float]] = {name: [] for name in ways}
        peaks = dict.fromkeys(ways, 0)
        calls: dict[str, dict[str, int]] = {}
        for number in range(_rounds(steps)):
            tell(f"round {number + 1} of {_rounds(steps)}")
            for name, way in list(ways.items())[:: -1 if number % 2 else 1]:
                require_no_override()
                with way():
                    yield  # not measured, as in clock.inside
                    before = override_report().calls
                    device.reset_peak()
                    for _ in range(_BLOCK):
                        device.synchronize()
                        start = time.perf_counter()
                        yield
                        device.synchronize()
                        samples[name].append(1e3 * (time.perf_counter() - start))
                    peaks[name] = max(peaks[name], device.peak_bytes())
                    counted = calls_since(before)
                if name == OVERRIDE:
                    calls = {
                        row: {reason: -(-n // _BLOCK) for reason, n in found.items()} for row, found in counted.items()
                    }
        tell("profiling")
        profiles = {}
        for name, way in ways.items():
            with way():
                yield
                with device.profiled() as events:
                    yield
            profiles[name] = events
        if record is not None:
            with Recorder() as recorder:
                yield
            save(recorder, record, device)
        problem = profile_problem(profiles)
        clocks = {name: summary(found) for name, found in samples.items()}
        self.report = report_of(
            device, clocks, 1, peaks, {} if problem else profiles, calls, notes=[*problem, _NOTE],
            seconds=time.perf_counter() - began,
        )  # fmt: skip
        raise _Finished
