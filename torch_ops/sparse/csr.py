"""Sparse matrices in compressed rows: :class:`CSR`. ``torch_ops/_spmm.py`` multiplies them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ops._tracing import is_eager
from torch_ops.sparse.structure import (
    Pair,
    Side,
    check_range,
    check_rows,
    check_shape,
    check_values,
    check_vector,
    checked,
    ends_of,
    shape_of_edges,
    transposed,
)

__all__ = ["CSR"]

_ops = torch.ops.gpuopt


class CSR:
    """A sparse matrix in compressed rows: row ``r`` has the entries ``ptr[r]`` to ``ptr[r + 1]``, in the columns ``index``.

    A matrix is immutable. It has copies of the integers, so that later writes to ``ptr`` and ``index`` do not change it. What a matrix
    caches, above all its transpose, is shared with matrices made by :meth:`with_values` and :meth:`t`. It passes through functions
    that take nested tensors, ``torch.compile`` and ``torch.export`` as plain tensors, and can be pickled.

    Args:
        ptr: (rows + 1) numbers of int32 or int64 that do not decrease, from 0 to the number of entries.
        index: the column of each entry, on the device of ``ptr``. Any order, and columns may repeat: their entries add up.
        values: (entries) or (entries, heads), or None for a matrix of ones. May require a gradient.
        shape: (rows, columns). By default as many columns as ``index`` names.
        perm: where the value of each entry is, if values are not in the order of ``index``: a permutation. Default: in order.
        check: if True, the numbers in the tensors are checked, which waits for the GPU once. Wrong numbers that are not checked
            give unspecified results. Nothing is checked inside ``torch.compile`` and ``torch.export``; give ``shape`` there.
        dtype: ``torch.int32`` or ``torch.int64`` for the integers that the matrix keeps. Default: int32 if all sizes allow it.

    Raises:
        TypeError: ``ptr``, ``index``, ``perm`` or ``values`` is not a tensor, or an integer tensor has another dtype.
        RuntimeError: a tensor has a wrong shape, or is on another device.
        ValueError: a number in a tensor, or ``shape``, is out of range.

    Example:
        >>> a = torch_ops.CSR(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 3, 1]), shape=(3, 4))
        >>> a @ torch.eye(4)
        tensor([[1., 0., 0., 1.],
                [0., 0., 0., 0.],
                [0., 1., 0., 0.]])
    """

    _placeholders: tuple[
        list[Any], tuple[str, ...]
    ]  # in place of all else, while torch.vmap has numbers in place of tensors

    def __init__(
        self,
        ptr: Tensor,
        index: Tensor,
        values: Tensor | None = None,
        shape: tuple[int, int] | None = None,
        *,
        perm: Tensor | None = None,
        check: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        side, columns = checked(Side(ptr, index, perm), values, shape, check, dtype)
        self._set(Pair(side, None), False, columns, values)

    def _set(self, pair: Pair, flipped: bool, columns: int, values: Tensor | None) -> None:
        self._pair, self._flipped, self._columns, self._values = pair, flipped, columns, values
        self._sizes: Tensor | None = None  # what _flatten made

    @classmethod
    def _of(cls, pair: Pair, flipped: bool, columns: int, values: Tensor | None) -> CSR:
        self = cls.__new__(cls)
        self._set(pair, flipped, columns, values)
        return self

    # ---------------------------------------------------------------- other forms

    @classmethod
    def from_coo(
        cls,
        row: Tensor,
        col: Tensor,
        values: Tensor | None = None,
        shape: tuple[int, int] | None = None,
        *,
        check: bool = True,
        dtype: torch.dtype | None = None,
    ) -> CSR:
        """A matrix of entries in any order. They are sorted by row, and entries of a row stay in order.

        Values stay in the order in which they are given: :attr:`perm` says where each one is. So a new ``values`` for
        :meth:`with_values` or :func:`spmm` has this order, too.

        Args:
            row: the row of each entry, int32 or int64.
            col: the column of each entry.
            values: (entries) or (entries, heads), or None for ones.
            shape: (rows, columns). By default as many as ``row`` and ``col`` name.
            check: as in :class:`CSR`.
            dtype: as in :class:`CSR`.

        Raises:
            TypeError, RuntimeError, ValueError: as :class:`CSR`.
        """
        check_vector("row", row)
        check_vector("col", col, row, row.shape[0])
        rows: Any
        columns: Any
        rows, columns = (None, None) if shape is None else check_shape(shape)
        compiling = torch.compiler.is_compiling()
        if compiling and rows is None:
            raise ValueError("CSR: shape must be given inside torch.compile: expected (rows, columns), got None")
        if not compiling and (check or rows is None):
            ends = [*ends_of(row), *ends_of(col), row.diff().lt(0).any().long()]
            least, greatest, first, last, unsorted = torch.stack(ends).tolist()
            rows = greatest + 1 if rows is None else rows
            columns = last + 1 if columns is None else columns
            check_range("row", least, greatest, rows, "rows")
            check_range("col", first, last, columns, "columns")
        else:
            unsorted = True
        row, col = row.detach(), col.detach()
        perm = None
        if unsorted:
            row, perm = torch.sort(row, stable=True)
            col = col.index_select(0, perm)
        starts = torch.arange(rows + 1, dtype=row.dtype, device=row.device)
        ptr = torch.searchsorted(row, starts)
        # The numbers are right if row and col are.
        return cls(ptr, col, values, (rows, columns), perm=perm, check=False, dtype=dtype)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        values: Tensor | None = None,
        num_nodes: int | None = None,
        *,
        size: tuple[int, int] | None = None,
        check: bool = True,
        dtype: torch.dtype | None = None,
    ) -> CSR:
        """The matrix with which messages flow along the edges of a graph, as in PyTorch Geometric.

        Rows are targets, ``edge_index[1]``, and columns are sources, ``edge_index[0]``. So ``csr @ x`` has the sum of the
        sources' rows of ``x`` at each target.

        Args:
            edge_index: (2, edges), int32 or int64.
            values: (edges) or (edges, heads), in the order of the edges, or None for ones.
            num_nodes: the number of nodes. By default as many as ``edge_index`` names.
            size: the numbers of (sources, targets) of a bipartite graph, in place of ``num_nodes``.
            check: as in :class:`CSR`.
            dtype: as in :class:`CSR`.

        Raises:
            TypeError, RuntimeError, ValueError: as :class:`CSR`, or both ``num_nodes`` and ``size`` are given.
        """
        shape = shape_of_edges(edge_index, num_nodes, size)
        return cls.from_coo(edge_index[1], edge_index[0], values, shape, check=check, dtype=dtype)

    @classmethod
    def from_torch(cls, tensor: Tensor, *, check: bool = True, dtype: torch.dtype | None = None) -> CSR:
        """The same matrix as a sparse tensor of PyTorch in CSR, CSC or COO layout. Its values are shared, and differentiable.

        Args:
            tensor: sparse matrix (rows, columns), or (rows, columns, heads) with one dense dimension.
            check: as in :class:`CSR`.
            dtype: as in :class:`CSR`.

        Raises:
            TypeError: ``tensor`` is no tensor.
            RuntimeError: it is not sparse, or has batches or blocks.
        """
        if not isinstance(tensor, Tensor):
            raise TypeError(f"CSR: tensor must be a sparse tensor: expected a tensor, got {type(tensor).__name__}")
        layout = tensor.layout
        if layout not in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo) or tensor.sparse_dim() != 2:
            raise RuntimeError(
                "CSR: tensor must be a sparse matrix: expected layout sparse_csr, sparse_csc or sparse_coo and 2 sparse"
                f" dimensions, got {layout} and shape {tuple(tensor.shape)}"
            )
        rows, columns = tensor.shape[:2]
        if layout == torch.sparse_coo:
            coalesced = tensor.is_coalesced()
            indices = tensor.indices() if coalesced else tensor._indices()
            values = tensor.values() if coalesced else tensor._values()
            return cls.from_coo(indices[0], indices[1], values, (rows, columns), check=check, dtype=dtype)
        if layout == torch.sparse_csr:
            ptr, index = tensor.crow_indices(), tensor.col_indices()
        else:
            ptr, index, rows, columns = tensor.ccol_indices(), tensor.row_indices(), columns, rows
        if ptr.dim() != 1:
            raise RuntimeError(f"CSR: tensor must be a matrix without batches: got shape {tuple(tensor.shape)}")
        made = cls(ptr, index, tensor.values(), (rows, columns), check=check, dtype=dtype)
        return made if layout == torch.sparse_csr else made.t()

    def to_torch(self, dtype: torch.dtype | None = None) -> Tensor:
        """The same matrix as a ``torch.sparse_csr`` tensor, with sorted columns. Entries with the same row and column are added.

        Args:
            dtype: dtype of the result. By default that of the values, or float32 for a matrix of ones.
        """
        values = self._values
        if values is None:
            values = torch.ones(self.nnz, dtype=dtype or torch.float32, device=self.device)
        elif self.perm is not None:
            values = values.index_select(0, self.perm)
        indices = torch.stack([self.rows(), self.index]).long()
        shape = (*self.shape, *values.shape[1:])
        coo = torch.sparse_coo_tensor(indices, values.to(dtype or values.dtype), shape, check_invariants=False)
        return coo.coalesce().to_sparse_csr()

    def to(
        self,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        non_blocking: bool = False,
    ) -> CSR:
        """The matrix on another device, with all that it caches. ``dtype`` converts the values."""
        if isinstance(device, torch.dtype):
            device, dtype = None, device

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        target = self.device if device is None else torch.empty(0, device=device).device
        pair = self._pair
        if target != self.device:
            pair = Pair(pair.matrix.map(move), pair.transpose and pair.transpose.map(move))
        values = self._values
        if values is not None:
            values = values.to(device=device, dtype=dtype, non_blocking=non_blocking)
        return CSR._of(pair, self._flipped, self._columns, values)

    def cpu(self) -> CSR:
        """The matrix on the CPU."""
        return self.to("cpu")

    def cuda(self, device: torch.device | str | int | None = None) -> CSR:
        """The matrix on a GPU, by default the current one."""
        return self.to("cuda" if device is None else device)

    # ---------------------------------------------------------------- what it consists of

    @property
    def _side(self) -> Side:
        side = self._pair.transpose if self._flipped else self._pair.matrix
        assert side is not None
        self._join(side)
        return side

    @property
    def _other(self) -> Side | None:
        side = self._pair.matrix if self._flipped else self._pair.transpose
        self._join(side)
        return side

    def _join(self, side: Side | None) -> None:
        if self._pair._stream is not None and side is not None and not torch.compiler.is_compiling():
            self._pair.join_stream(side)

    @property
    def ptr(self) -> Tensor:
        """(rows + 1): where the entries of each row start."""
        return self._side.ptr

    @property
    def index(self) -> Tensor:
        """(entries): their columns."""
        return self._side.index

    @property
    def perm(self) -> Tensor | None:
        """(entries): where the value of each entry is. None: values are in the order of :attr:`index`."""
        return self._side.perm

    @property
    def values(self) -> Tensor | None:
        """(entries) or (entries, heads) in the order in which they were given, or None for a matrix of ones."""
        return self._values

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.ptr.shape[0] - 1, self._columns

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return self.index.shape[0]

    @property
    def device(self) -> torch.device:
        """The device of all tensors."""
        return self.ptr.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values, or None for a matrix of ones."""
        return None if self._values is None else self._values.dtype

    def degrees(self) -> Tensor:
        """(rows): the number of entries of each row, in the integer dtype of :attr:`ptr`."""
        return self.ptr.diff()

    def rows(self) -> Tensor:
        """(entries): their rows, in the integer dtype of :attr:`ptr`."""
        numbers = torch.arange(self.nnz, dtype=self.ptr.dtype, device=self.device)
        return torch.searchsorted(self.ptr, numbers, right=True, out_int32=self.ptr.dtype == torch.int32) - 1

    def with_values(self, values: Tensor | None) -> CSR:
        """The same structure with other values, in the order of :attr:`values`. It shares what is cached."""
        check_values(values, self.ptr, self.nnz)
        return CSR._of(self._pair, self._flipped, self._columns, values)

    def cache_transpose(self) -> CSR:
        """Makes the transpose that gradients of dense rows need, once, and returns the matrix itself.

        :func:`spmm` calls it when it first meets an ``input`` that requires a gradient. Call it before ``torch.compile``,
        ``torch.func`` or a CUDA graph, where nothing can be cached and each backward pass would sort.
        """
        if self._other is None:
            with torch.inference_mode(False), torch.no_grad():
                self._pair.add_transpose(self._columns)
        return self

    @property
    def has_transpose(self) -> bool:
        """Whether the transpose is cached."""
        return self._other is not None

    def t(self) -> CSR:
        """The transpose, which shares all tensors. The first call sorts, later calls cost nothing."""
        if self._other is None and not is_eager():
            # A separate matrix, so that nothing of a trace stays in this one.
            pair = Pair(self._side, transposed(self._side, self._columns))
            return CSR._of(pair, True, self.shape[0], self._values)
        rows = self.shape[0]
        self.cache_transpose()
        return CSR._of(self._pair, not self._flipped, rows, self._values)

    def _transpose_for(self, *dense: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The transpose for gradients. It is made here, once, if one of the tensors requires a gradient."""
        wanted = torch.is_grad_enabled() and any(d.requires_grad for d in dense)
        if self._other is None and wanted and self._pair.may_keep():
            self.cache_transpose()
        return self._other or (None, None, None)

    def _product(self, input: Tensor, reduce: str = "sum", values: Tensor | None = None) -> Tensor:
        """:func:`spmm` without its checks of types, with the operator's word for the reduction."""
        values = self._values if values is None else values
        heads = values is not None and values.dim() == 2
        if input.dim() >= (3 if heads else 1):
            rows = input.shape[-3 if heads else max(-2, -input.dim())]
            check_rows("spmm", "input", rows, self._columns, "columns", input.shape)
        ptr, index, perm = self._side
        t_ptr, t_index, t_perm = self._transpose_for(input)
        return _ops.spmm.default(ptr, index, perm, values, input, reduce, t_ptr, t_index, t_perm)

    def __matmul__(self, input: Tensor) -> Tensor:
        """:func:`spmm` with ``reduce="sum"``. ``torch.compile`` does not know the operator ``@``: call :func:`spmm` there."""
        return self._product(input) if isinstance(input, Tensor) else NotImplemented

    def __repr__(self) -> str:
        kind = str(self.ptr.dtype).removeprefix("torch.")
        values = "None"
        if self._values is not None:
            heads = f", {self._values.shape[1]} heads" if self._values.dim() == 2 else ""
            values = f"{str(self._values.dtype).removeprefix('torch.')}{heads}"
        return (
            f"CSR(shape={tuple(self.shape)}, nnz={self.nnz}, values={values}, index={kind}, device={self.device}"
            f"{', transpose cached' if self.has_transpose else ''})"
        )
