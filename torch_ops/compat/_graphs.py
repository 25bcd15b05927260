"""What is computed from index tensors once, and kept: the sparse matrix of an ``edge_index``, the groups of an index.

``csrc/spmm/TRANSPOSES.md`` says when it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ops._index_select import index_select
from torch_ops._segment import group_by, segment_softmax
from torch_ops._tracing import is_eager, keeper
from torch_ops.sparse import CSR
from torch_ops.sparse.structure import Pair, Side, transposed

_ops = torch.ops.gpuopt
_OWNER = "torch_geometric"

#: The devices whose tensors are handled here. Tests add the CPU.
devices = {"cuda"}


def clear() -> None:
    _ops._structure_forget.default(_OWNER)


def is_index(tensor: object) -> bool:
    """Whether results for ``tensor`` can be remembered. Inference tensors have no version."""
    return (
        type(tensor) is Tensor
        and tensor.dtype in (torch.int64, torch.int32)
        and tensor.layout is torch.strided
        and tensor.device.type in devices
        and not tensor.is_inference()
    )


def is_dense(tensor: Any) -> bool:
    """Whether ``tensor`` has features or weights that the operators take."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
        and tensor.layout is torch.strided
        and tensor.device.type in devices
    )


Results = Sequence[Tensor | None]


def remembered(sources: Sequence[Tensor], key: str, make: Callable[[], Results | None]) -> Results | None:
    """``make()``, or the earlier results for the same ``sources`` and ``key``.

    Args:
        sources: strided tensors of integers that the results are computed from.
        key: what is computed.
        make: returns the results, which share no memory with a source. It runs outside inference mode, so that results can be
            saved for backward. It may return None, and is then called again by the next call.

    Raises:
        RuntimeError: the numbers in ``sources`` changed without a new version. On CUDA a device-side assertion fails instead.
    """
    key = f"{_OWNER} {key}"
    if (recording := keeper()) is not None:
        found = recording.find(sources, key)
        return recording.make(sources, key, make) if found is None else found
    found = _ops._structure_find.default(sources, key)
    if found:
        return found
    with torch.inference_mode(False), torch.no_grad():
        made = make()
        if made is not None:
            _ops._structure_keep.default(sources, key, made)
    return made


# ---------------------------------------------------------------- groups and matrices


class Groups(NamedTuple):
    """The positions of an index, in the order of its values. Group g has ``order[ptr[g]:ptr[g + 1]]``."""

    ptr: Tensor
    order: Tensor | None  # None: the index is sorted
    position: Tensor | None  # the inverse permutation of ``order``


def groups(index: Tensor, count: int) -> Groups | None:
    """The groups of equal values of ``index``. None if a value is not from 0 to ``count - 1``."""
    found = remembered([index], f"groups {count}", lambda: _new_groups(index, count))
    if found is None:
        return None
    ptr, order, position = found
    assert ptr is not None
    return Groups(ptr, order, position)


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
    return _matrix([edge_index], f"matrix {row} {shape}", shape, lambda: _new_matrix(edge_index, row, shape))


def _new_matrix(edge_index: Tensor, row: int, shape: tuple[int, int]) -> CSR | None:
    rows = groups(edge_index[row], shape[0])
    column = edge_index[1 - row]
    if rows is None or not _is_within(column, shape[1]):
        return None
    if rows.order is not None:
        column = column.index_select(0, rows.order)
    return CSR(rows.ptr, column, None, shape, perm=rows.order, check=False)


class _KeptPair(Pair):
    """A matrix that was made of ``sources``. Its transpose is kept with it."""

    def __init__(self, results: Results, sources: Sequence[Tensor], key: str) -> None:
        parts: Any = results
        super().__init__(Side(*parts[:3]), Side(*parts[3:]) if len(parts) > 3 else None)
        self._made_of = sources, key

    def add_transpose(self, columns: int) -> None:
        sources, key = self._made_of
        key = f"{_OWNER} {key}"
        transpose = transposed(self.matrix, columns)
        sides = [*self.matrix, *transpose]
        if (recording := keeper()) is not None:
            recording.make(sources, key, lambda: sides)
        else:
            _ops._structure_keep.default(sources, key, sides)
        self.transpose = transpose

    def may_keep(self) -> bool:
        return is_eager() or keeper() is not None


def _matrix(sources: Sequence[Tensor], key: str, shape: tuple[int, int], make: Callable[[], CSR | None]) -> CSR | None:
    def sides() -> Results | None:
        made = make()
        return None if made is None else made._side

    found = remembered(sources, key, sides)
    return None if found is None else CSR._of(_KeptPair(found, sources, key), False, shape[1], None)


def _is_within(index: Tensor, count: int) -> bool:
    if not index.numel():
        return True
    low, high = torch.stack(index.aminmax()).tolist()
    return 0 <= low and high < count


def matrix_of_sparse(tensor: Tensor) -> CSR:
    """The pattern of a sparse CSR tensor."""
    ptr, index, shape = tensor.crow_indices(), tensor.col_indices(), (tensor.shape[0], tensor.shape[1])
    found = _matrix((ptr, index), f"sparse {shape}", shape, lambda: CSR(ptr, index, None, shape))
    assert found is not None
    return found


# ---------------------------------------------------------------- differentiable forms


class _Permuted(torch.autograd.Function):
    """Rows in another order. The gradient is in the order of before, without an addition at an index."""

    @staticmethod
    def forward(context: Any, rows: Tensor, order: Tensor, position: Tensor) -> Tensor:
        context.save_for_backward(order, position)
        context.save_for_forward(order, position)
        return index_select(rows, 0, order)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        order, position = context.saved_tensors
        return _Permuted.apply(gradient, position, order), None, None

    @staticmethod
    def jvp(context: Any, tangent: Tensor, *_: None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Permuted.apply(tangent, *context.saved_tensors)


def softmax(scores: Tensor, found: Groups) -> Tensor:
    """The softmax over the positions of each group. scores: (positions, ...)."""
    if found.order is None:
        return segment_softmax(scores, found.ptr)
    in_order = _Permuted.apply(scores, found.order, found.position)
    return _Permuted.apply(segment_softmax(in_order, found.ptr), found.position, found.order)
