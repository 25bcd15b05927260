"""``torch_scatter.testing``: the parameters of that package's tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["devices", "dtypes", "grad_dtypes", "reductions", "tensor"]

reductions = ["sum", "add", "mean", "min", "max"]

dtypes = [torch.half, torch.bfloat16, torch.float, torch.double, torch.int, torch.long]
grad_dtypes = [torch.float, torch.double]

# Counting devices does not initialise CUDA, so the process can still fork.
devices = [torch.device("cpu")] + [torch.device("cuda:0")] * (torch.cuda.device_count() > 0)


def tensor(x: Any, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """A tensor of nested lists, or None of None."""
    return None if x is None else torch.tensor(x, device=device).to(dtype)
