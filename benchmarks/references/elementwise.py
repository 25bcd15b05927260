"""References of mul, axpy and fma."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.references.dtypes import wide


def common_dtype(aten: Callable, *operands) -> torch.dtype:
    """The dtype that PyTorch promotes the operands of one of its functions to."""

    def on_meta(x):
        return torch.empty(x.shape, dtype=x.dtype, device="meta") if isinstance(x, torch.Tensor) else x

    return aten(*map(on_meta, operands)).dtype


def mul(x, y) -> torch.Tensor:
    common = common_dtype(torch.mul, x, y)
    return wide(x, common) * wide(y, common)


def axpy(x, y, *, alpha=1) -> torch.Tensor:
    common = common_dtype(torch.add, y, x)
    return wide(alpha, common).to(x.device) * wide(x, common) + wide(y, common)


def fma(a, b, c) -> torch.Tensor:
    common = common_dtype(torch.addcmul, c, a, b)
    return wide(a, common) * wide(b, common) + wide(c, common)
