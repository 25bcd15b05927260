"""The dtypes in which operators and references compute."""

from __future__ import annotations

import torch


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a complex dtype's components. Other dtypes are returned unchanged."""
    return dtype.to_real() if dtype.is_complex else dtype


def compute_type(device: str, dtype: torch.dtype) -> torch.dtype:
    """The real dtype in which a floating-point or complex `dtype` is computed. On the CPU ATen computes, and may round fp16 and
    bf16 after every operation."""
    real = real_of(dtype)
    return torch.float32 if device != "cpu" and real in (torch.float16, torch.bfloat16) else real


def wide(x, dtype: torch.dtype) -> torch.Tensor:
    """An operand (tensor or number), first converted to `dtype` as the operator does, then to the dtype in which references
    compute."""
    widest = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    if dtype == torch.bool:
        widest = torch.bool
    return x.to(dtype).to(widest) if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=widest)
