"""Converts arguments that torch's own functions accept and ``torch.ops`` refuses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat)


def number(value: Any) -> Any:
    """Convert scalar objects to Python numbers.

    Args:
        value: A Python or symbolic number, a NumPy scalar, a tensor, or any other object.

    Returns:
        A Python number for a NumPy scalar, or for a zero-dimensional tensor that requires no gradient. Any other
        ``value`` is returned unchanged.
    """
    if isinstance(value, _NUMBERS) or (isinstance(value, Tensor) and (value.dim() != 0 or value.requires_grad)):
        return value
    return value.item() if hasattr(value, "item") else value
