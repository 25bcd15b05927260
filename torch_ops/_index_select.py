"""Gathering slices at an index: ``index_select``.

``result[..., i, ...] = input[..., index[i], ...]`` along one dimension. This is the forward pass of an embedding, or the states of the
nodes at the ends of a graph's edges. Its gradient is :func:`index_add` in mode ``"deterministic"``.

On CUDA a kernel gathers dense rows of the first dimension that has more than one slice, at a vector of indices. All other calls fall back
to ATen's kernel: other dimensions, rows with gaps inside them, rows of 1 GiB or more, an index without dimensions, and empty tensors.
CPU tensors fall back to ATen, too. ``csrc/index_select/README.md`` describes the kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = ["index_select"]

_ops = torch.ops.gpuopt


@checks_types
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Returns the slices of ``input`` that ``index`` names along ``dim``, as :func:`torch.index_select`.

    Args:
        input: tensor of any shape, strides and dtype.
        dim: dimension that ``index`` refers to. Negative numbers count from the end.
        index: vector of int32 or int64 on the device of ``input``, or a tensor without dimensions, which is one entry. Values are
            from 0 to ``input.shape[dim] - 1`` and may repeat.

    Returns:
        A contiguous tensor with the dtype and shape of ``input``, except that dimension ``dim`` has ``index.numel()`` slices.
        Differentiable in ``input``, any number of times, in reverse and forward mode. The gradient adds float16 and
        bfloat16 in float32. It is bitwise reproducible up to 256 entries, and beyond under
        ``torch.use_deterministic_algorithms(True)``. Under :func:`torch.vmap` all examples are one call.

    Raises:
        IndexError: ``input`` has no dimension ``dim``.
        IndexError: ``index`` has more than one dimension. As in ATen, this is a RuntimeError on CUDA.
        RuntimeError: ``index`` has another dtype, is on another device, or does not have one entry for an ``input`` without
            dimensions.
        IndexError, RuntimeError: an entry of ``index`` is out of range on the CPU. ATen chooses the type. On CUDA a device-side
            assertion fails instead.
        NotImplementedError: a dtype that :func:`torch.index_select` does not support on the device, if the call falls back to it.
    """
    return _ops.index_select.default(input, dim, index)
