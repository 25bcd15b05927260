"""Remembers what is computed from index tensors: the sparse matrix of an ``edge_index``, the groups of an index.

A result is found by the tensor itself, by its version and by its layout. So a write to the tensor, or a new tensor at the address of
an old one, leads to a new result. Views are told apart by their layout in the tensor that they are views of, because
``edge_index[1]`` is a new tensor in each call.

A write that PyTorch does not count, such as one of a collective or of a replayed CUDA graph, is an error: each use compares a
fingerprint of the numbers, on the GPU, with the one of the first use.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ops.sparse import CSR
from torch_ops.index_select import index_select
from torch_ops.segment import group_by, segment_softmax

LIMIT = 128  # results that are remembered. A relation of a heterogeneous graph needs up to four.

#: The devices whose tensors are handled here. Tests add the CPU.
devices = {"cuda"}


class _Result(NamedTuple):
    root: weakref.ref
    version: int
    value: Any
    states: list[Tensor]  # fingerprints of the numbers that the result was computed from


_results: dict[Hashable, _Result] = {}  # the least recently used one first
_lock = threading.RLock()


def clear() -> None:
    with _lock:
        _results.clear()


def is_index(tensor: object) -> bool:
    """Whether results for ``tensor`` can be remembered. Inference tensors have no version."""
    return (
        type(tensor) is Tensor
        and tensor.dtype in (torch.int64, torch.int32)
        and tensor.layout is torch.strided
        and tensor.device.type in devices
        and not tensor.is_inference()
    )


def is_dense(tensor: object) -> bool:
    """Whether ``tensor`` has features or weights that the operators take."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
        and tensor.layout is torch.strided
        and tensor.device.type in devices
    )


def remembered(
    tensor: Tensor, key: Hashable, make: Callable[[], Any], is_valid: Callable[[Any], bool] | None = None
) -> Any:
    """``make()``, or the earlier result for the same ``tensor`` and ``key``.

    Args:
        tensor: strided or sparse tensor that the result is computed from.
        key: what else the result depends on.
        make: computes the result. It runs outside inference mode, so that the result can be saved for backward.
        is_valid: whether an earlier result may be used.

    Raises:
        RuntimeError: the numbers in ``tensor`` changed without a new version. On CUDA a device-side assertion fails instead.
    """
    root = tensor if tensor._base is None else tensor._base
    layout: Hashable = None
    if tensor.layout is torch.strided:
        layout = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None
    full_key = (id(root), layout, stream, key)
    with _lock:
        found = _results.pop(full_key, None)
        if found is not None and found.root() is root and found.version == root._version:
            if is_valid is None or is_valid(found.value):
                _results[full_key] = found  # as the most recently used one
                _check_numbers(tensor, found.states)
                return found.value
    with torch.inference_mode(False), torch.no_grad():
        value = make()
        checked = () if getattr(root, _MADE_HERE, False) else _numbers_of(tensor)
        states = [torch.zeros(4, dtype=torch.int64, device=tensor.device) for _ in checked]
        _check_numbers(tensor, states)
    with _lock:
        _results[full_key] = _Result(
            weakref.ref(root, lambda _, gone=full_key: _results.pop(gone, None)), root._version, value, states
        )
        while len(_results) > LIMIT:
            del _results[next(iter(_results))]
    return value


_MADE_HERE = "_gpuopt_made_here"


def made_here(tensor: Tensor) -> Tensor:
    """Marks an index that is a result of a layer. Only writes that are counted are noticed in it."""
    setattr(tensor, _MADE_HERE, True)
    return tensor


def _numbers_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The integers of an index, or of a sparse CSR tensor."""
    if tensor.layout is torch.strided:
        return (tensor,)
    return tensor.crow_indices(), tensor.col_indices()


def _check_numbers(tensor: Tensor, states: list[Tensor]) -> None:
    for state, numbers in zip(states, _numbers_of(tensor)):
        torch.ops.gpuopt._same_numbers(state, numbers)


# ---------------------------------------------------------------- groups and matrices


class Groups(NamedTuple):
    """The positions of an index, in the order of its values. Group g has ``order[ptr[g]:ptr[g + 1]]``."""

    ptr: Tensor
    order: Tensor | None  # None: the index is sorted
    position: Tensor | None  # the inverse permutation of ``order``


def groups(index: Tensor, count: int) -> Groups | None:
    """The groups of equal values of ``index``. None if a value is not from 0 to ``count - 1``."""
    return remembered(index, ("groups", count), lambda: _new_groups(index, count))


def _new_groups(index: Tensor, count: int) -> Groups | None:
    if not index.numel():
        return Groups(index.new_zeros(count + 1), None, None)
    low, high = index.aminmax()
    is_sorted = (index[1:] >= index[:-1]).all()
    low, high, is_sorted = torch.stack([low, high, is_sorted.to(index.dtype)]).tolist()  # the only copy to the host
    if low < 0 or high >= count:
        return None
    ptr, order = group_by(index, count)
    if is_sorted:
        return Groups(ptr, None, None)
    numbers = torch.arange(order.numel(), dtype=order.dtype, device=order.device)
    return Groups(ptr, order, torch.empty_like(order).scatter(0, order.long(), numbers))


def matrix(edge_index: Tensor, row: int, shape: tuple[int, int]) -> CSR | None:
    """The matrix with an entry for each edge, whose values are in the order of the edges.

    Args:
        edge_index: tensor (2, edges) of numbers of nodes.
        row: 0 or 1, which end of an edge is the row of its entry. The other end is the column.
        shape: numbers of rows and columns. None is returned if ``edge_index`` exceeds them.
    """
    return remembered(edge_index, ("matrix", row, shape), lambda: _new_matrix(edge_index, row, shape))


def _new_matrix(edge_index: Tensor, row: int, shape: tuple[int, int]) -> CSR | None:
    rows = groups(edge_index[row], shape[0])
    column = edge_index[1 - row]
    if rows is None or not _is_within(column, shape[1]):
        return None
    if rows.order is not None:
        column = column.index_select(0, rows.order)
    return CSR(rows.ptr, column, None, shape, perm=rows.order, check=False)


def _is_within(index: Tensor, count: int) -> bool:
    if not index.numel():
        return True
    low, high = torch.stack(index.aminmax()).tolist()
    return 0 <= low and high < count


def matrix_of_sparse(tensor: Tensor) -> CSR:
    """The pattern of a sparse CSR tensor."""
    ptr, column = tensor.crow_indices(), tensor.col_indices()
    key = ("sparse", ptr.data_ptr(), ptr._version, column.data_ptr(), column._version)
    return remembered(tensor, key, lambda: CSR(ptr, column, None, tuple(tensor.shape)))


# ---------------------------------------------------------------- differentiable forms


class _Permuted(torch.autograd.Function):
    """Rows in another order. The gradient is in the order of before, without an addition at an index."""

    @staticmethod
    def forward(context, rows: Tensor, order: Tensor, position: Tensor) -> Tensor:
        context.save_for_backward(order, position)
        context.save_for_forward(order, position)
        return index_select(rows, 0, order)

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor, None, None]:
        order, position = context.saved_tensors
        return _Permuted.apply(gradient, position, order), None, None

    @staticmethod
    def jvp(context, tangent: Tensor, *_: None) -> Tensor:
        return _Permuted.apply(tangent, *context.saved_tensors)


def softmax(scores: Tensor, found: Groups) -> Tensor:
    """The softmax over the positions of each group. scores: (positions, ...)."""
    if found.order is None:
        return segment_softmax(scores, found.ptr)
    in_order = _Permuted.apply(scores, found.order, found.position)
    return _Permuted.apply(segment_softmax(in_order, found.ptr), found.position, found.order)
