"""Sparse matrices and their products: :class:`CSR`, ``spmm`` and ``sddmm``.

``spmm`` multiplies a sparse matrix by dense rows: the sum, mean, maximum or minimum of the neighbours of each node of a graph.
``sddmm`` multiplies the two rows that each entry of a sparse matrix names: it is the gradient of ``spmm`` for the values.

- float16, bfloat16 and float32 are summed in float32, float64 in float64. A mean counts entries in integers.
- On CUDA, results and gradients are bitwise reproducible, and no operator makes a tensor of entries x features, except the
  gradient of the values of a maximum and second derivatives of it.
- On CPU tensors, the functions call ATen.

Rows are divided among groups of threads by their lengths, as in M. Pang et al., "A Row Decomposition-based Approach for Sparse Matrix
Multiplication on GPUs" (RoDe, 2024) and G. Huang et al., "GE-SpMM" (2020). ``csrc/spmm/README.md`` describes the kernels.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["CSR", "sddmm", "spmm"]

Reduce = Literal["sum", "mean", "max", "min"]

_ops = torch.ops.gpuopt
_INTEGERS = (torch.int32, torch.int64)
_LARGEST_INT32 = 2**31 - 1


class _Side(NamedTuple):
    """A matrix in rows of entries. `longest` is the most entries of a row, or -1 if that is not known."""

    ptr: Tensor
    index: Tensor
    entry: Tensor | None
    longest: int


class _Pair:
    """A matrix and its transpose, which is None until it is needed. All CSRs of one structure share this object."""

    def __init__(self, own: _Side, transpose: _Side | None):
        self.own, self.transpose = own, transpose


def _may_cache() -> bool:
    """False while a tensor that is made may belong to a trace, to a transform of torch.func or to a CUDA graph."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )


def _longest(ptr: Tensor) -> int:
    return int(ptr.diff().max()) if ptr.numel() > 1 else 0


def _transpose(side: _Side, columns: int) -> _Side:
    t_ptr, t_index, t_entry = _ops._transpose.default(side.ptr, side.index, columns)
    if side.entry is not None:
        t_entry = side.entry.index_select(0, t_entry)
    return _Side(t_ptr, t_index, t_entry, -1)


# ---------------------------------------------------------------- checks


def _check_vector(name: str, tensor: Any, like: Tensor | None = None, size: int | None = None) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"CSR: {name} must be a tensor: expected int32 or int64, got {type(tensor).__name__}")
    if tensor.dtype not in _INTEGERS:
        raise TypeError(f"CSR: {name} must be int32 or int64: expected an integer dtype, got {tensor.dtype}")
    if tensor.dim() != 1:
        raise ValueError(f"CSR: {name} must be a vector: expected 1 dimension, got shape {tuple(tensor.shape)}")
    if like is not None and tensor.device != like.device:
        raise ValueError(
            f"CSR: {name} must be on the device of the other tensors: expected {like.device}, got {tensor.device}"
        )
    if size is not None and tensor.shape[0] != size:
        raise ValueError(f"CSR: {name} must have a number for each entry: expected {size}, got {tensor.shape[0]}")


def _check_values(values: Any, like: Tensor, entries: int) -> None:
    if values is None:
        return
    if not isinstance(values, Tensor):
        raise TypeError(f"CSR: values must be a tensor or None: expected a tensor, got {type(values).__name__}")
    if values.dim() not in (1, 2) or values.shape[0] != entries:
        raise ValueError(
            "CSR: values must be (entries) or (entries, heads):"
            f" expected {entries} in the first of 1 or 2 dimensions, got shape {tuple(values.shape)}"
        )
    if values.device != like.device:
        raise ValueError(f"CSR: values must be on the device of ptr: expected {like.device}, got {values.device}")


def _check_shape(shape: Any) -> tuple[int, int]:
    if not isinstance(shape, (tuple, list, torch.Size)) or len(shape) != 2:
        raise ValueError(f"CSR: shape must be (rows, columns): expected two numbers, got {shape!r}")
    for size in shape:
        if isinstance(size, int) and size < 0:
            raise ValueError(f"CSR: shape must not be negative: expected 0 or more, got {tuple(shape)}")
    return tuple(shape)


def _ends(numbers: Tensor) -> list[Tensor]:
    """The least and the greatest number: 0 and -1 if there are none, which every range contains."""
    if numbers.numel() == 0:
        return [numbers.new_zeros((), dtype=torch.int64), numbers.new_full((), -1, dtype=torch.int64)]
    return [end.long() for end in torch.aminmax(numbers)]


def _check_range(name: str, least: int, greatest: int, size: int, of: str) -> None:
    if least < 0 or greatest >= size:
        raise ValueError(
            f"CSR: {name} must name {of}: expected numbers from 0 to {size - 1}, got {least if least < 0 else greatest}"
        )


def _checked_content(side: _Side, columns: int | None) -> tuple[int, int]:
    """Checks the numbers in a matrix, and returns the number of columns and the longest row. Waits for the GPU once."""
    ptr, index, entry, _ = side
    entries = index.shape[0]
    lengths = ptr.diff().long() if ptr.shape[0] > 1 else ptr.new_zeros(1, dtype=torch.int64)
    found = [ptr[0].long(), ptr[-1].long(), lengths.amin(), lengths.amax(), *_ends(index)]
    if entry is not None:
        found += _ends(entry)
        valid = entry.long().clamp(0, max(entries - 1, 0))
        found.append(torch.zeros(entries, dtype=torch.int64, device=ptr.device).index_fill_(0, valid, 1).sum())
    first, last, shortest, longest, least, greatest, *of_entry = torch.stack(found).tolist()
    if first != 0 or last != entries:
        raise ValueError(
            f"CSR: ptr must start with 0 and end with the number of entries: expected 0 and {entries}, got {first} and {last}"
        )
    if shortest < 0:
        raise ValueError(f"CSR: ptr must not decrease: expected rows of 0 or more entries, got one of {shortest}")
    columns = greatest + 1 if columns is None else columns
    _check_range("index", least, greatest, columns, "columns")
    if of_entry:
        _check_range("entry", of_entry[0], of_entry[1], entries, "entries")
        if of_entry[2] != entries:
            raise ValueError(
                f"CSR: entry must name each entry once: expected {entries} different numbers, got {of_entry[2]}"
            )
    return columns, longest


# ---------------------------------------------------------------- CSR


class CSR:
    """A sparse matrix in compressed rows: row ``r`` has the entries ``ptr[r]`` to ``ptr[r + 1]``, in the columns ``index``.

    A matrix is immutable. What it caches, above all its transpose, is shared with matrices made by :meth:`with_values` and
    :meth:`t`. It passes through functions that take nested tensors, ``torch.compile`` and ``torch.export`` as plain tensors, and
    can be pickled.

    Args:
        ptr: (rows + 1) numbers of int32 or int64 that do not decrease, from 0 to the number of entries.
        index: the column of each entry, on the device of ``ptr``. Any order, and columns may repeat: their entries add up.
        values: (entries) or (entries, heads), or None for a matrix of ones. May require a gradient.
        shape: (rows, columns). By default as many columns as ``index`` names.
        entry: where the value of each entry is, if values are not in the order of ``index``: a permutation. Default: in order.
        check: if True, the numbers in the tensors are checked, which waits for the GPU once. Wrong numbers that are not checked
            make kernels read other memory. Nothing is checked inside ``torch.compile`` and ``torch.export``; give ``shape`` there.
        dtype: ``torch.int32`` or ``torch.int64`` for the integers that the matrix keeps. Default: int32 if all sizes allow it.

    Raises:
        TypeError: ``ptr``, ``index``, ``entry`` or ``values`` is not a tensor, or an integer tensor has another dtype.
        ValueError: a tensor has a wrong shape, is on another device, or holds a number out of range.

    Example:
        >>> a = torch_ops.CSR(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 3, 1]), shape=(3, 4))
        >>> a @ torch.eye(4)
        tensor([[1., 0., 0., 1.],
                [0., 0., 0., 0.],
                [0., 1., 0., 0.]])
    """

    def __init__(
        self,
        ptr: Tensor,
        index: Tensor,
        values: Tensor | None = None,
        shape: tuple[int, int] | None = None,
        *,
        entry: Tensor | None = None,
        check: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_vector("ptr", ptr)
        _check_vector("index", index, ptr)
        rows, entries = ptr.shape[0] - 1, index.shape[0]
        if entry is not None:
            _check_vector("entry", entry, ptr, entries)
        if ptr.shape[0] == 0:
            raise ValueError("CSR: ptr must have rows + 1 numbers: expected at least 1, got 0")
        _check_values(values, ptr, entries)
        columns = None
        if shape is not None:
            wanted, columns = _check_shape(shape)
            if wanted != rows:
                raise ValueError(f"CSR: ptr must have rows + 1 numbers: expected {wanted + 1}, got {ptr.shape[0]}")
        longest = -1
        side = _Side(ptr.detach(), index.detach(), None if entry is None else entry.detach(), -1)
        if torch.compiler.is_compiling():
            if columns is None:
                raise ValueError("CSR: shape must be given inside torch.compile: expected (rows, columns), got None")
        elif check:
            columns, longest = _checked_content(side, columns)
        elif columns is None:
            columns = _ends(index)[1].item() + 1
        if dtype is None:
            dtype = torch.int32 if max(rows, columns, entries) <= _LARGEST_INT32 else torch.int64
        elif dtype not in _INTEGERS:
            raise TypeError(f"CSR: dtype must be int32 or int64: expected torch.int32 or torch.int64, got {dtype}")
        elif dtype == torch.int32 and max(rows, columns, entries) > _LARGEST_INT32:
            raise ValueError(
                f"CSR: dtype must hold all sizes: expected int64 for {entries} entries of {rows} x {columns}"
            )
        ptr, index, entry = (None if t is None else t.to(dtype).contiguous() for t in side[:3])
        self._set(_Pair(_Side(ptr, index, entry, longest), None), False, columns, values)

    def _set(self, pair: _Pair, flipped: bool, columns: int, values: Tensor | None) -> None:
        self._pair, self._flipped, self._columns, self._values = pair, flipped, columns, values
        self._sizes: tuple[Tensor, Tensor] | None = None  # what _flatten made

    @classmethod
    def _of(cls, pair: _Pair, flipped: bool, columns: int, values: Tensor | None) -> CSR:
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

        Values stay in the order in which they are given: :attr:`entry` says where each one is. So a new ``values`` for
        :meth:`with_values` or :func:`spmm` has this order, too.

        Args:
            row: the row of each entry, int32 or int64.
            col: the column of each entry.
            values: (entries) or (entries, heads), or None for ones.
            shape: (rows, columns). By default as many as ``row`` and ``col`` name.
            check: as in :class:`CSR`.
            dtype: as in :class:`CSR`.

        Raises:
            TypeError, ValueError: as :class:`CSR`.
        """
        _check_vector("row", row)
        _check_vector("col", col, row, row.shape[0])
        rows, columns = (None, None) if shape is None else _check_shape(shape)
        compiling = torch.compiler.is_compiling()
        if compiling and rows is None:
            raise ValueError("CSR: shape must be given inside torch.compile: expected (rows, columns), got None")
        if not compiling and (check or rows is None):
            ends = [*_ends(row), *_ends(col), row.diff().lt(0).any().long()]
            least, greatest, first, last, unsorted = torch.stack(ends).tolist()
            rows = greatest + 1 if rows is None else rows
            columns = last + 1 if columns is None else columns
            _check_range("row", least, greatest, rows, "rows")
            _check_range("col", first, last, columns, "columns")
        else:
            unsorted = True
        row, col = row.detach(), col.detach()
        entry = None
        if unsorted:
            row, entry = torch.sort(row, stable=True)
            col = col.index_select(0, entry)
        starts = torch.arange(rows + 1, dtype=row.dtype, device=row.device)
        ptr = torch.searchsorted(row, starts)
        # The numbers are right if row and col are.
        made = cls(ptr, col, values, (rows, columns), entry=entry, check=False, dtype=dtype)
        if check and _may_cache():
            made.longest  # noqa: B018  (the property keeps it)
        return made

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
            TypeError, ValueError: as :class:`CSR`, or both ``num_nodes`` and ``size`` are given.
        """
        if not isinstance(edge_index, Tensor):
            raise TypeError(f"CSR: edge_index must be a tensor: expected (2, edges), got {type(edge_index).__name__}")
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise ValueError(
                f"CSR: edge_index must be (2, edges): expected 2 rows, got shape {tuple(edge_index.shape)}"
            )
        if num_nodes is not None and size is not None:
            raise ValueError(f"CSR: give num_nodes or size: expected one of them, got {num_nodes} and {size}")
        if size is None and num_nodes is None and not torch.compiler.is_compiling():
            _check_vector("edge_index", edge_index[0])
            num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
        shape = None
        if num_nodes is not None:
            shape = (num_nodes, num_nodes)
        elif size is not None:
            sources, targets = _check_shape(size)
            shape = (targets, sources)
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
            ValueError: it is not sparse, or has batches or blocks.
        """
        if not isinstance(tensor, Tensor):
            raise TypeError(f"CSR: tensor must be a sparse tensor: expected a tensor, got {type(tensor).__name__}")
        layout = tensor.layout
        if layout not in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo) or tensor.sparse_dim() != 2:
            raise ValueError(
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
            raise ValueError(f"CSR: tensor must be a matrix without batches: got shape {tuple(tensor.shape)}")
        made = cls(ptr, index, tensor.values(), (rows, columns), check=check, dtype=dtype)
        return made if layout == torch.sparse_csr else made.t()

    def to_torch(self, dtype: torch.dtype | None = None) -> Tensor:
        """The same matrix as a ``torch.sparse_csr`` tensor, with sorted columns. Entries with the same row and column are added.

        Args:
            dtype: dtype of the result. By default that of the values, or float32 for a matrix of ones.
        """
        values = self._values
        if values is None:
            values = torch.ones(self.entries, dtype=dtype or torch.float32, device=self.device)
        elif self.entry is not None:
            values = values.index_select(0, self.entry)
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

        def move(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device, non_blocking=non_blocking)

        def moved(side: _Side | None) -> _Side | None:
            return side and _Side(*map(move, side[:3]), side.longest)

        target = self.device if device is None else torch.empty(0, device=device).device
        pair = self._pair
        if target != self.device:
            pair = _Pair(moved(pair.own), moved(pair.transpose))
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
    def _side(self) -> _Side:
        side = self._pair.transpose if self._flipped else self._pair.own
        assert side is not None
        return side

    @property
    def _other(self) -> _Side | None:
        return self._pair.own if self._flipped else self._pair.transpose

    @property
    def ptr(self) -> Tensor:
        """(rows + 1): where the entries of each row start."""
        return self._side.ptr

    @property
    def index(self) -> Tensor:
        """(entries): their columns."""
        return self._side.index

    @property
    def entry(self) -> Tensor | None:
        """(entries): where the value of each entry is. None: values are in the order of :attr:`index`."""
        return self._side.entry

    @property
    def values(self) -> Tensor | None:
        """(entries) or (entries, heads) in the order in which they were given, or None for a matrix of ones."""
        return self._values

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.ptr.shape[0] - 1, self._columns

    @property
    def entries(self) -> int:
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

    @property
    def longest(self) -> int:
        """The most entries of a row. It is computed once, which waits for the GPU."""
        side = self._side
        if side.longest >= 0:
            return side.longest
        longest = _longest(side.ptr)
        if _may_cache():
            self._keep(side._replace(longest=longest), own=True)
        return longest

    def _keep(self, side: _Side, own: bool) -> None:
        if own == self._flipped:
            self._pair.transpose = side
        else:
            self._pair.own = side

    def degrees(self) -> Tensor:
        """(rows): the number of entries of each row, in the integer dtype of :attr:`ptr`."""
        return self.ptr.diff()

    def rows(self) -> Tensor:
        """(entries): their rows, in the integer dtype of :attr:`ptr`."""
        numbers = torch.arange(self.shape[0], dtype=self.ptr.dtype, device=self.device)
        return numbers.repeat_interleave(self.degrees(), output_size=self.entries)

    def with_values(self, values: Tensor | None) -> CSR:
        """The same structure with other values, in the order of :attr:`values`. It shares what is cached."""
        _check_values(values, self.ptr, self.entries)
        return CSR._of(self._pair, self._flipped, self._columns, values)

    def cache_transpose(self) -> CSR:
        """Makes the transpose that gradients of dense rows need, once, and returns the matrix itself.

        :func:`spmm` calls it when it first meets a ``dense`` that requires a gradient. Call it before ``torch.compile``,
        ``torch.func`` or a CUDA graph, where nothing can be cached and each backward pass would sort.
        """
        if self._other is None:
            with torch.inference_mode(False), torch.no_grad():
                side = _transpose(self._side, self._columns)
                if _may_cache():
                    side = side._replace(longest=_longest(side.ptr))
            self._keep(side, own=False)
        return self

    @property
    def has_transpose(self) -> bool:
        """Whether the transpose is cached."""
        return self._other is not None

    def t(self) -> CSR:
        """The transpose, which shares all tensors. The first call sorts, later calls cost nothing."""
        if self._other is None and not _may_cache():
            # A matrix of its own, so that nothing of a trace stays in this one.
            pair = _Pair(self._side, _transpose(self._side, self._columns))
            return CSR._of(pair, True, self.shape[0], self._values)
        rows = self.shape[0]
        self.cache_transpose()
        return CSR._of(self._pair, not self._flipped, rows, self._values)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """:func:`spmm` with ``reduce="sum"``. ``torch.compile`` does not know the operator ``@``: call :func:`spmm` there."""
        return spmm(self, dense) if isinstance(dense, Tensor) else NotImplemented

    def __repr__(self) -> str:
        kind = str(self.ptr.dtype).removeprefix("torch.")
        values = "None"
        if self._values is not None:
            heads = f", {self._values.shape[1]} heads" if self._values.dim() == 2 else ""
            values = f"{str(self._values.dtype).removeprefix('torch.')}{heads}"
        return (
            f"CSR(shape={tuple(self.shape)}, entries={self.entries}, values={values}, index={kind}, device={self.device}"
            f"{', transpose cached' if self.has_transpose else ''})"
        )


# ---------------------------------------------------------------- nested tensors

# torch.export and torch.func take a CSR apart into tensors. Sizes must not be constants of a trace. Most are sizes of tensors. Empty
# tensors carry the others: the columns, and one more than the longest rows of the matrix and of its transpose. A matrix keeps them, because
# torch.export marks the tensors whose sizes are dynamic.


def _carriers(csr: CSR) -> tuple[Tensor, Tensor]:
    side, other = csr._side, csr._other
    shapes = (csr._columns, 0), (side.longest + 1, 0 if other is None else other.longest + 1, 0)
    if csr._sizes is not None and tuple(tuple(t.shape) for t in csr._sizes) == shapes:
        return csr._sizes
    first, second = (torch.empty(shape, dtype=side.ptr.dtype, device=side.ptr.device) for shape in shapes)
    if _may_cache():
        csr._sizes = first, second
    return first, second


def _flatten(csr: CSR) -> tuple[list[Any], tuple[str, ...]]:
    if hasattr(csr, "_placeholders"):
        return csr._placeholders
    side, other = csr._side, csr._other
    parts = {"ptr": side.ptr, "index": side.index, "entry": side.entry, "values": csr._values}
    if other is not None:
        parts |= {"t_ptr": other.ptr, "t_index": other.index, "t_entry": other.entry}
    parts["columns"], parts["longest"] = _carriers(csr)
    given = {name: tensor for name, tensor in parts.items() if tensor is not None}
    return list(given.values()), tuple(given)


def _flatten_with_keys(csr: CSR) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    tensors, names = _flatten(csr)
    return [(pytree.GetAttrKey(name), tensor) for name, tensor in zip(names, tensors, strict=True)], names


def _unflatten(tensors: Any, names: tuple[str, ...]) -> CSR:
    parts = dict(zip(names, tensors, strict=True))
    if not isinstance(parts["columns"], Tensor):
        # torch.vmap replaces tensors by numbers for a while.
        csr = CSR.__new__(CSR)
        csr._placeholders = list(tensors), names
        return csr
    columns = parts["columns"].shape[0]
    longest, t_longest, _ = parts["longest"].shape
    own = _Side(parts["ptr"], parts["index"], parts.get("entry"), longest - 1)
    other = None
    if "t_ptr" in parts:
        other = _Side(parts["t_ptr"], parts["t_index"], parts.get("t_entry"), t_longest - 1)
    csr = CSR._of(_Pair(own, other), False, columns, parts.get("values"))
    csr._sizes = parts["columns"], parts["longest"]
    return csr


torch.serialization.add_safe_globals([CSR, _Pair, _Side])  # torch.load takes matrices with weights_only=True, too
pytree.register_pytree_node(
    CSR,
    _flatten,
    _unflatten,
    serialized_type_name="torch_ops.CSR",
    to_dumpable_context=list,
    from_dumpable_context=tuple,
    flatten_with_keys_fn=_flatten_with_keys,
)


# ---------------------------------------------------------------- products


def _check_rows(op: str, name: str, rows: int, expected: int, what: str, shape: Any) -> None:
    if rows != expected:
        raise RuntimeError(
            f"gpuopt::{op}: {name} must have the {what} of csr: expected {expected}, got {rows} in shape {tuple(shape)}"
        )


def _transpose_of(csr: CSR, *dense: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, int]:
    """The transpose for gradients. It is made here, once, if one of the tensors requires a gradient."""
    if csr._other is None and torch.is_grad_enabled() and any(d.requires_grad for d in dense) and _may_cache():
        csr.cache_transpose()
    return csr._other or (None, None, None, -1)


def _check_csr(op: str, csr: Any) -> None:
    if not isinstance(csr, CSR):
        raise TypeError(f"{op}: csr must be a sparse matrix: expected torch_ops.CSR, got {type(csr).__name__}")


def spmm(csr: CSR, dense: Tensor, reduce: Reduce = "sum", *, values: Tensor | None = None) -> Tensor:
    """Product of a sparse matrix and dense rows, or another reduction over the entries of each row.

    ``out[r] = reduce(values[e] * dense[column of e] for the entries e of row r)``. Rows without entries give 0.

    Args:
        csr: sparse matrix (M, K). Without values, all its entries are 1.
        dense: (K), (K, N) or (..., K, N) of any strides: float16, bfloat16, float32 or float64. With values (entries, heads) it
            is (..., K, heads, N): each head has its own values. It is read without a copy if the innermost dimension has no
            gaps.
        reduce: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``. A mean divides by the number of entries, whatever their values.
            Of equal maxima the first counts, and NaN is the greatest and the least.
        values: values in place of ``csr.values``, in the same order and of the dtype of ``dense``.

    Returns:
        (M), (M, N), (..., M, N) or (..., M, heads, N), contiguous, with the dtype of ``dense``. Sums are computed in float32, or in
        float64 for float64. Differentiable in ``dense`` and in the values, any number of times, in reverse and forward mode. The
        gradient of ``dense`` multiplies by the transpose, which ``csr`` caches. Under :func:`torch.vmap` over ``dense`` or
        ``values`` all examples are one call. Under autocast, ``dense`` and the values are converted to the lower precision, as by
        :func:`torch.matmul`.

    Raises:
        TypeError: ``csr`` is no :class:`CSR`, or ``dense`` is not floating-point.
        ValueError: an unknown ``reduce``.
        RuntimeError: a shape does not fit, the dtypes of ``dense`` and the values differ, or the devices differ.
        NotImplementedError: the matrix itself differs between the examples of :func:`torch.vmap`.
    """
    _check_csr("spmm", csr)
    values = csr._values if values is None else values
    heads = values is not None and values.dim() == 2
    if dense.dim() >= (3 if heads else 1):
        rows = dense.shape[-3 if heads else max(-2, -dense.dim())]
        _check_rows("spmm", "dense", rows, csr._columns, "columns", dense.shape)
    ptr, index, entry, longest = csr._side
    t_ptr, t_index, t_entry, t_longest = _transpose_of(csr, dense)
    return _ops.spmm.default(ptr, index, entry, values, dense, reduce, t_ptr, t_index, t_entry, longest, t_longest)


def sddmm(csr: CSR, a: Tensor, b: Tensor) -> Tensor:
    """Products of the rows of two matrices at the entries of a sparse matrix: the elements of ``a @ b.mT`` at its entries.

    ``out[e] = (a[row of e] * b[column of e]).sum(-1)``, in the order of ``csr.values``. The values of ``csr`` are not read.

    Args:
        csr: sparse matrix (M, K), whose structure is used.
        a: (M, N), or (M, heads, N), of any strides: float16, bfloat16, float32 or float64.
        b: (K, N), or (K, heads, N), with the dtype of ``a``.

    Returns:
        (entries) or (entries, heads), with the dtype of ``a``. Sums are computed in float32, or in float64 for float64. So
        ``csr.with_values(sddmm(csr, a, b))`` is a sparse matrix. Differentiable in ``a`` and ``b``, any number of times, in reverse
        and forward mode. Under :func:`torch.vmap` all examples are one call. Under autocast, ``a`` and ``b`` are converted to the
        lower precision.

    Raises:
        TypeError: ``csr`` is no :class:`CSR`, or ``a`` is not floating-point.
        RuntimeError: a shape does not fit, or the dtypes or devices differ.
        NotImplementedError: the matrix itself differs between the examples of :func:`torch.vmap`.
    """
    _check_csr("sddmm", csr)
    if a.dim() > 0 and b.dim() > 0:
        _check_rows("sddmm", "a", a.shape[0], csr.shape[0], "rows", a.shape)
        _check_rows("sddmm", "b", b.shape[0], csr._columns, "columns", b.shape)
    ptr, index, entry, longest = csr._side
    t_ptr, t_index, t_entry, t_longest = _transpose_of(csr, a, b)
    return _ops.sddmm.default(ptr, index, entry, a, b, a.dim() == 3, t_ptr, t_index, t_entry, longest, t_longest)
