"""Copies of tensors with the same strides, and comparisons of bits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["clones", "dense", "difference", "empty_like", "is_plain", "norm", "overlap", "overlaps_itself", "same_bits"]

_TYPES = (Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is PyTorch's own, strided, and without a pending conjugation or negation."""
    return type(tensor) in _TYPES and tensor.layout is torch.strided and not (tensor.is_conj() or tensor.is_neg())


def dense(tensor: Tensor) -> Tensor:
    """A tensor without repeated elements: expanded dimensions have one."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two indices may mean the same element. Expanded dimensions don't count."""
    reach = 0
    for stride, size in sorted(
        (stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1 and stride
    ):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def empty_like(tensor: Tensor) -> Tensor:
    """New memory for a tensor, with the same strides."""
    part = dense(tensor)
    new = torch.empty_strided(part.shape, part.stride(), dtype=tensor.dtype, device=tensor.device)
    return new if part is tensor else new.expand(tensor.shape)


def clones(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies with the same strides."""
    copies = []
    for tensor in tensors:
        if tensor.is_contiguous():
            copies.append(tensor.clone())
        else:
            copy = empty_like(tensor)
            dense(copy).copy_(dense(tensor))
            copies.append(copy)
    return copies


def overlap(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors share an element."""
    by_storage: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    for group in by_storage.values():
        if len(group) == 1:
            continue
        if len({tensor.dtype for tensor in group}) > 1:
            return True
        size = group[0].untyped_storage().nbytes() // group[0].element_size()
        uses = torch.zeros(size, dtype=torch.uint8, device=group[0].device)
        for tensor in group:
            part = dense(tensor)
            uses.as_strided(part.shape, part.stride(), part.storage_offset()).add_(1)
        if int(uses.max()) > 1:
            return True
    return False


def same_bits(x: Tensor, y: Tensor) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    x, y = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (x.detach(), y.detach()))
    x, y = (t.contiguous().reshape(-1).view(torch.uint8) for t in (x, y))
    return torch.equal(x, y)


def norm(x: Tensor) -> float:
    """The L2 norm of the finite values, in float64."""
    return _finite(x.detach()).norm().item()


def difference(x: Tensor, y: Tensor) -> float:
    """The L2 norm of a difference. Infinite if other values are infinite or not a number."""
    x, y = x.detach(), y.detach()
    if x.shape != y.shape or not torch.equal(x.isfinite(), y.isfinite()):
        return float("inf")
    return (_finite(x) - _finite(y)).norm().item()


def _finite(x: Tensor) -> Tensor:
    x = x.to(torch.complex128 if x.is_complex() else torch.float64)
    return torch.where(x.isfinite(), x, torch.zeros_like(x))
