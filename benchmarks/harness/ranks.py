"""A clock for measurements over the ranks of a group."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class Clock:
    """Seconds from a barrier on, until this rank's device is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def time(self, function: Callable[[], Any]) -> tuple[float, Any]:
        self.wait()
        dist.barrier()
        start = time.perf_counter()
        result = function()
        self.wait()
        return time.perf_counter() - start, result
