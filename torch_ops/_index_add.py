"""Adding slices at an index: ``index_add`` and ``index_add_``.

``result[..., index[i], ...] += alpha * source[..., i, ...]`` for every ``i``, along one dimension. This is the sum of messages at
the nodes of a graph, the gradient of an embedding, or a histogram. Entries of ``index`` may repeat. Their slices then add up.

``mode`` says what a call guarantees:

``"fast"``
    The fastest path. On CUDA slices may be added by atomic operations. Floating-point sums then come in any order, and float16
    and bfloat16 may be rounded after each addition. Both hold for ATen, too.
``"deterministic"``
    Results are bitwise reproducible. float16, bfloat16 and complex32 are summed as in mode ``"accurate"``. Under
    :func:`torch.use_deterministic_algorithms` every call runs in this mode.
``"accurate"``
    Sums of float16, bfloat16 and complex32 are computed in float32, together with the element they are added to. They are rounded
    once for every 2^30 entries. Example: 100000 ones in bfloat16 give 99840, the nearest bfloat16. Rounding after each addition
    stops at 256. Results are not bitwise reproducible in general.

On CUDA nothing synchronises with the host, and calls can be captured in CUDA graphs. In mode ``"fast"`` inputs are sorted by index
where that is faster, as for many wide slices. Scratch memory is at most 37 bytes per entry, however wide the slices, or some MB
for histograms. A complex ``alpha`` with an imaginary part also needs a copy of ``source``.

CPU tensors fall back to ATen in all modes. float16, bfloat16 and complex32 go through float32 copies, except in mode ``"fast"``.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types, number

__all__ = ["index_add", "index_add_"]

_ops = torch.ops.gpuopt

Mode = Literal["fast", "deterministic", "accurate"]


@checks_types
def index_add(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: float | complex | Tensor = 1,
    mode: Mode = "fast",
    out: Tensor | None = None,
) -> Tensor:
    """Returns ``input`` with ``alpha * source`` added at ``index`` along ``dim``, as :func:`torch.index_add`.

    Args:
        input: tensor of any shape, of bool, uint8, int8 to int64, a floating-point or a complex dtype (complex32 included).
        dim: dimension that ``index`` refers to. Negative numbers count from the end.
        index: vector of int32 or int64 on the device of ``input``, or a tensor without dimensions. Values are from 0 to
            ``input.shape[dim] - 1``.
        source: tensor with the dtype and shape of ``input``, except that dimension ``dim`` has ``index.numel()`` slices.
        alpha: factor of ``source``, a number or a tensor without dimensions, in the range of ``input``'s dtype. For integer
            dtypes its fraction is dropped.
        mode: ``"fast"``, ``"deterministic"`` or ``"accurate"``. The page of the operator says what each guarantees.
        out: tensor of ``input``'s dtype to write to. It is resized if its shape differs. It may be ``input`` itself. It must not
            overlap ``input`` in part, nor share memory with ``index`` or ``source``.

    Returns:
        ``out``, or a contiguous tensor with the shape and dtype of ``input``. bool adds by logical or, and integers wrap around.
        Differentiable in ``input`` and ``source``, any number of times, in reverse and forward mode, unless ``out`` is given. The
        gradient of ``source`` is gathered from the result's gradient, so it is bitwise reproducible in every mode. Second
        derivatives add by the backward of :func:`torch.index_select`.

    Raises:
        IndexError: ``input`` has no dimension ``dim``.
        IndexError: ``index`` has more than one dimension, or not exactly one entry for a ``source`` without dimensions.
        RuntimeError: ``index`` has another dtype, ``source`` another dtype or shape, or ``out`` another dtype.
        RuntimeError: ``alpha`` is out of the range of the dtype.
        RuntimeError: tensors are on different devices, or ``out`` overlaps another argument.
        IndexError, RuntimeError: an entry of ``index`` is out of range on the CPU. ATen chooses the type. Nothing is written. On
            CUDA a device-side assertion fails instead.
        ValueError: an unknown ``mode``.
        NotImplementedError: a dtype that :func:`torch.index_add` does not support on the device.
    """
    alpha = number(alpha)
    if out is not None:
        return _ops.index_add.out(input, dim, index, source, alpha=alpha, mode=mode, out=out)
    return _ops.index_add.default(input, dim, index, source, alpha=alpha, mode=mode)


@checks_types
def index_add_(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: float | complex | Tensor = 1,
    mode: Mode = "fast",
) -> Tensor:
    """Adds ``alpha * source`` to ``input`` in place, as :meth:`torch.Tensor.index_add_`.

    Args:
        input: tensor to add to. Each of its elements has its own address, and it shares no memory with ``index`` or ``source``.
        dim: as in :func:`index_add`.
        index: as in :func:`index_add`.
        source: as in :func:`index_add`.
        alpha: as in :func:`index_add`.
        mode: as in :func:`index_add`.

    Returns:
        ``input``. Differentiable as :func:`index_add`.

    Raises:
        RuntimeError: ``input`` overlaps itself or another argument, or is a leaf that requires a gradient.
        IndexError, RuntimeError, ValueError, NotImplementedError: as :func:`index_add`.
    """
    return _ops.index_add_.default(input, dim, index, source, alpha=number(alpha), mode=mode)
