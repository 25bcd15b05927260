"""Modes of PyTorch until the end of a block, the memory that a call takes, and graphs of calls."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]


def under_sanitizer() -> bool:
    """Whether tools.sanitize runs the tests: it turns the caching of memory off. Kernels then take 100 times their time."""
    return "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ


def run_python(code: str, timeout: float | None = None) -> None:
    """Runs code in a process of its own, because it changes the state of imports, or may not return."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def deterministic_algorithms(on: bool = True, warn_only: bool = False):
    """torch.use_deterministic_algorithms(on), until the end of the block."""
    torch.use_deterministic_algorithms(on, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def no_waiting():
    """Inside the block, a call that waits for the GPU raises."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def allocated(call: Callable) -> tuple[Any, int, int]:
    """The result of a call, the number of its allocations, and the most bytes that it held at once, its result included."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, used = torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.memory_allocated()
    result = call()
    count = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    return result, count, torch.cuda.max_memory_allocated() - used


def peak(call: Callable) -> int:
    """The most bytes that a call held at once, its result included."""
    return allocated(call)[2]


def captured(function: Callable) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A CUDA graph of `function`, warmed up on a side stream, and what the captured call returned."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result
