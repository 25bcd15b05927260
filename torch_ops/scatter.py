"""Reductions of entries that an index assigns to *bins* in any order: ``scatter_reduce`` and ``scatter_softmax``.

- float16 and bfloat16 are computed in float32 and rounded once. Means count entries in integers, and means of integers round down.
- On CUDA nothing synchronises with the host, unless ``dim_size`` has to be found.
- Results and gradients are bitwise reproducible, except sums and means of more than 256 entries. These may be added in any order, unless
  ``torch.use_deterministic_algorithms(True)`` is set.
- CPU tensors are reduced by ATen's operators.

``csrc/scatter/README.md`` describes the operators.
"""

from __future__ import annotations

import contextlib
import math
from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = ["scatter_reduce", "scatter_softmax"]

_ops = torch.ops.gpuopt


def _bins(index: Tensor, dim_size: int | None) -> int:
    if dim_size is not None:
        return dim_size
    return int(index.max()) + 1 if index.numel() > 0 else 0


def _inverse(perm: Tensor) -> Tensor:
    numbers = torch.arange(perm.shape[0], dtype=perm.dtype, device=perm.device)
    return torch.empty_like(perm).scatter(0, perm.long(), numbers)


def _without_autocast(like: Tensor):
    """Autocast must not round what is only added up."""
    kind = like.device.type
    on = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else contextlib.nullcontext()


def _is_batched(index: Tensor) -> bool:
    """Whether :func:`torch.vmap` has an index for each example. A matrix has none."""
    if torch.compiler.is_compiling():
        return False
    while torch._C._functorch.is_functorch_wrapped_tensor(index):
        if torch._C._functorch.is_batchedtensor(index):
            return True
        index = torch._C._functorch.get_unwrapped(index)
    return False


def _permuted(x: Tensor, perm: Tensor, inverse: Tensor) -> Tensor:
    """``x[perm]``, as a product with a permutation matrix: its gradient is the product with ``inverse``, and sorts nothing."""
    if _is_batched(perm):
        return _ops.index_select.default(x, 0, perm)
    rows = torch.arange(perm.shape[0] + 1, dtype=perm.dtype, device=perm.device)
    with _without_autocast(x):
        # Without values nothing reads where an entry of the transpose has its value.
        return _ops.spmm.default(rows, perm, None, None, x, "sum", rows, inverse, inverse)


@checks_types
def scatter_reduce(
    src: Tensor,
    index: Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    reduce: Literal["sum", "mean", "max", "min", "mul"] = "sum",
    return_arg: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Reduces the slices of ``src`` that ``index`` assigns to the same bin, as ``scatter`` of torch_scatter.

    Few entries take one launch, which writes each result once. Sums and means of more than 256 entries may be added in any order, unless
    ``torch.use_deterministic_algorithms(True)`` is set. All other results are bitwise reproducible.

    Args:
        src: Tensor of any shape with at least one dimension. The dtypes of :func:`segment_reduce`.
        index: The bin of each slice, of shape (src.shape[dim],) and dtype int32 or int64.
        dim: The dimension that ``index`` refers to. Negative numbers count from the end.
        dim_size: The number of bins. Default: ``index.max() + 1``, which synchronises with the host.
        reduce: ``"sum"``, ``"mean"``, ``"max"``, ``"min"``, or ``"mul"``, which is also called ``"prod"``.
        return_arg: If True, the entry that each maximum or minimum is from is returned, too.

    Returns:
        A tensor with the dtype and shape of ``src``, except that dimension ``dim`` has ``dim_size`` slices. Bins without entries are
        0, and 1 for ``"mul"``. With ``return_arg``, a pair of this tensor and an int64 tensor of its shape: positions along ``dim``,
        the first of equal ones, and -1 for bins without entries. Differentiable in ``src``, any number of times, in reverse and
        forward mode.

    Raises:
        IndexError: ``src`` has no dimension ``dim``, or, on the CPU, an entry of ``index`` is out of range. On CUDA a device-side
            assertion fails instead.
        ValueError: an unknown ``reduce``, or ``return_arg`` with another one than ``"max"`` or ``"min"``.
        RuntimeError: ``index`` does not have an entry for each slice. Otherwise as :func:`group_by` and :func:`segment_reduce`.
    """
    if not -src.dim() <= dim < src.dim():
        raise IndexError(
            f"scatter_reduce: dim must be a dimension of src: expected -{src.dim()} to {src.dim() - 1}, got {dim}"
        )
    dim %= src.dim()
    if index.dim() != 1 or index.shape[0] != src.shape[dim]:
        raise RuntimeError(
            f"scatter_reduce: index must have an entry for each slice of dimension {dim} of src: expected shape"
            f" ({src.shape[dim]},), got {tuple(index.shape)}"
        )
    if return_arg and reduce not in ("max", "min"):
        raise ValueError(f'scatter_reduce: return_arg needs reduce "max" or "min", got "{reduce}"')
    bins = _bins(index, dim_size)
    if return_arg:
        return _ops._scatter_arg.default(src, dim, index, bins, reduce)
    return _ops.scatter.default(src, dim, index, bins, "prod" if reduce == "mul" else reduce)


@checks_types
def scatter_softmax(src: Tensor, index: Tensor, dim_size: int | None = None) -> Tensor:
    """Softmax over the entries of each bin. The first dimension of ``src`` has the entries.

    Args:
        src: Entries of shape (entries, ...), float16, bfloat16, float32 or float64.
        index: The bin of each entry, of shape (entries,) and dtype int32 or int64.
        dim_size: The number of bins. Default: ``index.max() + 1``, which synchronises with the host.

    Returns:
        A tensor with the shape and dtype of ``src``. Differentiable in ``src``, any number of times, in reverse and forward mode.

    Raises:
        TypeError: ``src`` is not floating-point.
        RuntimeError: ``index`` does not have an entry for each entry of ``src``. Otherwise as :func:`group_by`.
        IndexError: as :func:`group_by`.
    """
    if src.dim() == 0 or index.dim() != 1 or index.shape[0] != src.shape[0]:
        raise RuntimeError(
            f"scatter_softmax: index must have an entry for each entry of src: expected shape {tuple(src.shape[:1])}, got"
            f" {tuple(index.shape)}"
        )
    if not src.is_floating_point():
        raise TypeError(
            f"scatter_softmax: src must be floating-point: expected a floating-point dtype, got {src.dtype}"
        )
    ptr, perm = _ops.group_by.default(index, _bins(index, dim_size))
    inverse = _inverse(perm)
    rows = src.reshape(src.shape[0], math.prod(src.shape[1:]))
    grouped = _ops.segment_softmax.default(_permuted(rows, perm, inverse), ptr)
    return _permuted(grouped, inverse, perm).reshape(src.shape)
