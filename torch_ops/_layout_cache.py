"""What was measured about the layouts of convolutions: :data:`layout_cache`."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

__all__ = ["LayoutCache", "Problem", "Times", "bucket", "layout_cache"]

_FORMAT = "gpuopt layouts 3"
# The part of the two conversions around a layer that it is charged for leaving the layout of its input, where runs are not known. It
# is the share of each layer in a stack of two.
BORDER_SHARE = 0.5


class Problem(NamedTuple):
    """What times depend on. ``batch`` and ``length`` are buckets of many sizes, so that variable sizes need few measurements."""

    gpu: str
    operator: str
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    weight: tuple[int, ...]
    bias: bool
    batch: int
    length: int
    vectors: bool  # whether the length is a number of whole 16-byte vectors
    dtype: str
    gradients: tuple[bool, ...]  # of the input and of the weight
    deterministic: bool
    benchmark: bool
    precision: str  # of cuDNN in float32


class Times(NamedTuple):
    """Milliseconds of a layer in each layout, and of the conversions of its input and its result. Infinity if it fails.

    Each is the time of the GPU and that of the host, together.
    In each layout, the operator of gpuopt and ATen's convolution were measured. ``own`` tells where gpuopt's is the faster one.
    """

    contiguous: float
    channels_last: float
    input: float
    result: float
    own: tuple[bool, bool] = (False, False)  # contiguous, and channels last

    def may_be_faster(self) -> bool:
        """Whether any neighbours could make channels last worth it. Two conversions avoid any longer time."""
        return self.channels_last < self.contiguous + self.input + self.result

    def prefer_channels_last(self, arrives: bool) -> bool:
        """Whether the layer computes channels last, if its input ``arrives`` so or not."""
        border = (self.input + self.result) * BORDER_SHARE
        return self.channels_last + border * (not arrives) < self.contiguous + border * arrives


def bucket(size: int) -> int:
    """The size with its two highest bits: 1, 2, 3, 4, 6, 8, 12, ..."""
    low = max(size.bit_length() - 2, 0)
    return size >> low << low


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class LayoutCache:
    """The measured times of converted convolutions in both layouts. ``print(torch_ops.layout_cache)`` shows them as a table.

    Sizes of the batch and of the signal that agree in their two highest bits are one problem, if both or neither of the lengths are
    multiples of 8. The first one is measured. The oldest problems are forgotten beyond ``limit``.
    """

    limit = 4096

    def __init__(self) -> None:
        self._times: dict[Problem, Times] = {}
        #: Changes when times were forgotten or loaded, so that layers choose again.
        self.generation = 0
        self._measuring = threading.Lock()

    def find(self, problem: Problem, measure: Callable[[], Times] | None = None) -> Times | None:
        """The times of a problem. An unknown one is measured, unless ``measure`` is None or another thread is measuring."""
        times = self._times.get(problem)
        # A thread must not wait here. The one that measures may wait for it, in the thread of autograd that both use.
        if times is None and measure is not None and self._measuring.acquire(blocking=False):
            try:
                times = measure()
                self._add({problem: times})
            finally:
                self._measuring.release()
        return times

    def _add(self, times: dict[Problem, Times]) -> None:
        self._times |= times
        while len(self._times) > self.limit:
            del self._times[next(iter(self._times))]

    def clear(self) -> None:
        """Forgets all times, so that they are measured again."""
        with self._measuring:
            self._times.clear()
            self.generation += 1

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all times as JSON, with the versions of PyTorch and cuDNN. Failed measurements are left out."""
        rows = [
            problem._asdict() | {"ms": times[:4], "own": times.own}
            for problem, times in self._times.copy().items()
            if _is_complete(times)
        ]
        path = Path(path)
        # Processes that save to one path at the same time leave one whole file.
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_text(json.dumps({"format": _FORMAT, **_versions(), "problems": rows}, indent=0))
        part.replace(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Adds the times of a file that :meth:`save` wrote. Times of other GPUs are kept, but have no effect here.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file was not written by :meth:`save`, or by one with another version of PyTorch or cuDNN. Nothing is added.
        """
        try:
            content = json.loads(Path(path).read_text())
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}")
            found = {name: content[name] for name in _versions()}
            added = dict(map(_row, content["problems"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"layout_cache: {path} must be a file of layout_cache.save ({error!r})") from error
        if found != _versions():
            raise ValueError(
                f"layout_cache: {path} must be of the same versions: expected {_versions()}, got {found}. Measure again"
            )
        with self._measuring:
            self._add(added)
            self.generation += 1

    def __len__(self) -> int:
        return len(self._times)

    def __repr__(self) -> str:
        table = [
            (
                "operator",
                "weight",
                "batch",
                "length",
                "options",
                "dtype",
                "gradients",
                "contiguous",
                "last",
                "both conversions",
            )
        ]
        for problem, times in self._times.copy().items():
            options = f"{problem.stride}, {problem.padding}, {problem.dilation}, {problem.groups}"
            gradients = "+".join(name for name, on in zip(("input", "weight"), problem.gradients) if on) or "none"
            row = (problem.operator, problem.weight, problem.batch, problem.length, options, problem.dtype, gradients)
            ms = (times.contiguous, times.channels_last, times.input + times.result)
            table.append((*map(str, row), *(f"{t:.3f}" for t in ms)))
        widths = [max(map(len, column)) for column in zip(*table)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        return "\n".join([f"LayoutCache of {len(table) - 1} problems, times in ms", *lines])


def _versions() -> dict[str, Any]:
    return {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}


def _is_complete(times: Times) -> bool:
    return all(map(math.isfinite, times[:4]))


def _row(row: dict[str, Any]) -> tuple[Problem, Times]:
    """A problem and its times from a file. Raises ValueError, TypeError or KeyError."""
    contiguous, channels_last = row.pop("own")
    times = Times(*map(float, row.pop("ms")), own=(bool(contiguous), bool(channels_last)))
    problem = Problem(**{name: _frozen(value) for name, value in row.items()})
    if not _is_complete(times) or min(times[:4]) < 0:
        raise ValueError(f"times {tuple(times)}")
    hash(problem)
    return problem, times


#: The cache of this process.
layout_cache = LayoutCache()
