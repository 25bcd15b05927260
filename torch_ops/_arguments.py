"""Arguments that torch's own functions take and torch.ops does not."""

from __future__ import annotations

import torch
from torch import Tensor

_NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat)


def number(value):
    """A NumPy scalar, or a tensor without dimensions that requires no gradient, as a Python number; all else as it is."""
    if isinstance(value, _NUMBERS) or (isinstance(value, Tensor) and (value.dim() != 0 or value.requires_grad)):
        return value
    return value.item() if hasattr(value, "item") else value
