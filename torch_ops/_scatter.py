"""Reductions of entries that an index assigns to *bins* in any order: ``scatter`` and ``scatter_softmax``.

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
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]

from torch_ops._arguments import checks_types, reduction
from torch_ops._deprecated import takes_old_calls, warn

__all__ = ["scatter", "scatter_softmax"]

_ops = torch.ops.gpuopt

Reduction = Literal["sum", "mean", "amax", "amin", "prod"]


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
    while _functorch.is_functorch_wrapped_tensor(index):
        if _functorch.is_batchedtensor(index):
            return True
        index = _functorch.get_unwrapped(index)
    return False


def _permuted(x: Tensor, perm: Tensor, inverse: Tensor) -> Tensor:
    """``x[perm]``, as a product with a permutation matrix: its gradient is the product with ``inverse``, and sorts nothing."""
    if _is_batched(perm):
        return _ops.index_select.default(x, 0, perm)
    rows = torch.arange(perm.shape[0] + 1, dtype=perm.dtype, device=perm.device)
    with _without_autocast(x):
        # Without values nothing reads where an entry of the transpose has its value.
        return _ops.spmm.default(rows, perm, None, None, x, "sum", rows, inverse, inverse)


@overload
def scatter(
    input: Tensor,
    index: Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    reduce: Reduction = "sum",
    *,
    return_arg: Literal[False] = False,
) -> Tensor: ...
@overload
def scatter(
    input: Tensor,
    index: Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    reduce: Reduction = "sum",
    *,
    return_arg: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@takes_old_calls("src index dim dim_size reduce return_arg", src="input")
@checks_types(src="input", bins="dim_size")
def scatter(
    input: Tensor,
    index: Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    reduce: Reduction = "sum",
    *,
    return_arg: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Reduces the slices of ``input`` that ``index`` assigns to the same bin, as ``scatter`` of torch_geometric.utils.

    Few entries take one launch, which writes each result once. Sums and means of more than 256 entries may be added in any order, unless
    ``torch.use_deterministic_algorithms(True)`` is set. All other results are bitwise reproducible.

    Args:
        input: Tensor of any shape with at least one dimension. The dtypes of :func:`segment_reduce`.
        index: The bin of each slice, of shape (input.shape[dim],) and dtype int32 or int64.
        dim: The dimension that ``index`` refers to. Negative numbers count from the end.
        dim_size: The number of bins. Default: ``index.max() + 1``, which synchronises with the host.
        reduce: ``"sum"``, ``"mean"``, ``"amax"``, ``"amin"`` or ``"prod"``.
        return_arg: If True, the entry that each maximum or minimum is from is returned, too.

    Returns:
        A tensor with the dtype and shape of ``input``, except that dimension ``dim`` has ``dim_size`` slices. Bins without entries are
        0, and 1 for ``"prod"``. With ``return_arg``, a pair of this tensor and an int64 tensor of its shape: positions along ``dim``,
        the first of equal ones, and -1 for bins without entries. Differentiable in ``input``, any number of times, in reverse and
        forward mode.

    Raises:
        IndexError: ``input`` has no dimension ``dim``, or, on the CPU, an entry of ``index`` is out of range. On CUDA a device-side
            assertion fails instead.
        ValueError: an unknown ``reduce``, or ``return_arg`` with another one than ``"amax"`` or ``"amin"``.
        RuntimeError: ``index`` does not have an entry for each slice. Otherwise as :func:`group_by` and :func:`segment_reduce`.
    """
    if not -input.dim() <= dim < input.dim():
        raise IndexError(f"scatter: dim must be {-input.dim()} to {input.dim() - 1}, got {dim}")
    dim %= input.dim()
    if index.dim() != 1 or index.shape[0] != input.shape[dim]:
        raise RuntimeError(
            f"scatter: index must have an entry for each slice of dimension {dim} of input: expected shape"
            f" ({input.shape[dim]},), got {tuple(index.shape)}"
        )
    word = reduction("scatter", reduce)
    if return_arg and word not in ("max", "min"):
        raise ValueError(f'scatter: reduce must be "amax" or "amin" with return_arg, got "{reduce}"')
    bins = _bins(index, dim_size)
    if return_arg:
        return _ops._scatter_arg.default(input, dim, index, bins, word)
    return _ops.scatter.default(input, dim, index, bins, word)


def scatter_reduce(*args: Any, **kwargs: Any) -> Any:
    """The name of :func:`scatter` in version 0.1."""
    warn("scatter_reduce", "the function is now called scatter")
    return scatter(*args, **kwargs)


@takes_old_calls("src index dim_size", src="input")
@checks_types(bins="dim_size")
def scatter_softmax(input: Tensor, index: Tensor, *, dim: int = 0, dim_size: int | None = None) -> Tensor:
    """Softmax over the entries of each bin.

    Args:
        input: Tensor of any shape with at least one dimension, float16, bfloat16, float32 or float64.
        index: The bin of each slice, of shape (input.shape[dim],) and dtype int32 or int64.
        dim: The dimension that ``index`` refers to. Negative numbers count from the end.
        dim_size: The number of bins. Default: ``index.max() + 1``, which synchronises with the host.

    Returns:
        A tensor with the shape and dtype of ``input``. Differentiable in ``input``, any number of times, in reverse and forward mode.

    Raises:
        TypeError: ``input`` is not floating-point.
        RuntimeError: ``index`` does not have an entry for each slice of ``input``. Otherwise as :func:`group_by`.
        IndexError: ``input`` has no dimension ``dim``. Otherwise as :func:`group_by`.
    """
    if not -input.dim() <= dim < input.dim():
        raise IndexError(f"scatter_softmax: dim must be {-input.dim()} to {input.dim() - 1}, got {dim}")
    if index.dim() != 1 or index.shape[0] != input.shape[dim]:
        raise RuntimeError(
            f"scatter_softmax: index must have an entry for each slice of dimension {dim} of input: expected shape"
            f" ({input.shape[dim]},), got {tuple(index.shape)}"
        )
    if not input.is_floating_point():
        raise TypeError(f"scatter_softmax: input must have a floating-point dtype, got {input.dtype}")
    ptr, perm = _ops.group_by.default(index, _bins(index, dim_size))
    inverse = _inverse(perm)
    first = input.movedim(dim, 0)
    rows = first.reshape(first.shape[0], math.prod(first.shape[1:]))
    grouped = _ops.segment_softmax.default(_permuted(rows, perm, inverse), ptr)
    return _permuted(grouped, inverse, perm).reshape(first.shape).movedim(0, dim)
