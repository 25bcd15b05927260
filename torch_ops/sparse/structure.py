"""The integers of a sparse matrix: what they are, their transpose, and checks of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ops._arguments import integer
from torch_ops._tracing import is_eager

_ops = torch.ops.gpuopt
INTEGERS = (torch.int32, torch.int64)
_LARGEST_INT32, _LARGEST_INT64 = 2**31 - 1, 2**63 - 1


class Side(NamedTuple):
    """A matrix in rows of entries."""

    ptr: Tensor
    index: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]
    perm: Tensor | None

    def map(self, function: Callable[[Tensor], Tensor]) -> Side:
        ptr, index, perm = self
        return Side(function(ptr), function(index), None if perm is None else function(perm))


class Pair:
    """A matrix and its transpose, which is None until it is needed. All CSRs of one structure share this object.

    The transpose may be made on one stream and read on another. So its stream, and an event that follows it there, are kept.
    """

    def __init__(self, matrix: Side, transpose: Side | None):
        self.matrix, self.transpose = matrix, transpose
        self._stream: int | None = None
        self._event: torch.cuda.Event | None = None

    def add_transpose(self, columns: int) -> None:
        """Makes the transpose of a matrix with this number of columns, on the current stream."""
        transpose = transposed(self.matrix, columns)
        if self.matrix.ptr.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(self.matrix.ptr.device))
            self._stream = torch._C._cuda_getCurrentRawStream(self.matrix.ptr.device.index)
        self.transpose = transpose  # last, for other threads

    def may_keep(self) -> bool:
        """Whether a transpose that a product needs is kept from here on."""
        return is_eager()

    def join_stream(self, side: Side) -> None:
        """Makes the current stream wait for ``side``, and keeps the memory of ``side`` for it. A CUDA graph synchronises first."""
        device = side.ptr.device
        if torch._C._cuda_getCurrentRawStream(device.index) == self._stream or not is_eager():
            return
        stream = torch.cuda.current_stream(device)
        assert self._event is not None
        stream.wait_event(self._event)
        for tensor in side:
            if tensor is not None:
                tensor.record_stream(stream)


def transposed(side: Side, columns: int) -> Side:
    t_ptr, t_index, t_perm = _ops._transpose.default(side.ptr, side.index, columns)
    if side.perm is not None:
        t_perm = side.perm.index_select(0, t_perm)
    return Side(t_ptr, t_index, t_perm)


# ---------------------------------------------------------------- checks


def check_rows(op: str, name: str, rows: int, expected: int, what: str, shape: Any) -> None:
    if rows != expected:
        raise RuntimeError(
            f"{op}: {name} must have the {what} of csr: expected {expected}, got {rows} in shape {tuple(shape)}"
        )


def check_vector(name: str, tensor: Any, like: Tensor | None = None, size: int | None = None) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"CSR: {name} must be a tensor: expected int32 or int64, got {type(tensor).__name__}")
    if tensor.dtype not in INTEGERS:
        raise TypeError(f"CSR: {name} must be int32 or int64: expected an integer dtype, got {tensor.dtype}")
    if tensor.dim() != 1:
        raise RuntimeError(f"CSR: {name} must be a vector: expected 1 dimension, got shape {tuple(tensor.shape)}")
    if like is not None and tensor.device != like.device:
        raise RuntimeError(
            f"CSR: {name} must be on the device of the other tensors: expected {like.device}, got {tensor.device}"
        )
    if size is not None and tensor.shape[0] != size:
        raise RuntimeError(f"CSR: {name} must have a number for each entry: expected {size}, got {tensor.shape[0]}")


def check_values(values: Any, like: Tensor, entries: int) -> None:
    if values is None:
        return
    if not isinstance(values, Tensor):
        raise TypeError(f"CSR: values must be a tensor or None: expected a tensor, got {type(values).__name__}")
    if values.dim() not in (1, 2) or values.shape[0] != entries:
        raise RuntimeError(
            "CSR: values must be (entries) or (entries, heads):"
            f" expected {entries} in the first of 1 or 2 dimensions, got shape {tuple(values.shape)}"
        )
    if values.device != like.device:
        raise RuntimeError(f"CSR: values must be on the device of ptr: expected {like.device}, got {values.device}")


def check_shape(shape: Any) -> tuple[int, int]:
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"CSR: shape must be (rows, columns): expected a tuple, got {type(shape).__name__}")
    if len(shape) != 2:
        raise ValueError(f"CSR: shape must be (rows, columns): expected two integers, got {shape!r}")
    rows, columns = (integer("CSR", "shape", size) for size in shape)
    for size in (rows, columns):
        # Symbolic sizes must not be compared, because each comparison guards a trace.
        if not torch.compiler.is_compiling() and isinstance(size, int) and not 0 <= size <= _LARGEST_INT64:
            what = "be negative" if size < 0 else "exceed int64"
            raise ValueError(f"CSR: shape must not {what}: expected 0 to {_LARGEST_INT64}, got {(rows, columns)}")
    return rows, columns


def ends_of(numbers: Tensor) -> list[Tensor]:
    """The least and the greatest number: 0 and -1 if there are none, which every range contains."""
    if numbers.numel() == 0:
        return [numbers.new_zeros((), dtype=torch.int64), numbers.new_full((), -1, dtype=torch.int64)]
    return [end.long() for end in torch.aminmax(numbers)]


def check_range(name: str, least: int, greatest: int, size: int, of: str) -> None:
    largest = min(size, _LARGEST_INT64) - 1
    if least < 0 or greatest > largest:
        raise ValueError(
            f"CSR: {name} must name {of}: expected numbers from 0 to {largest}, got {least if least < 0 else greatest}"
        )


def checked_content(side: Side, columns: int | None) -> int:
    """Checks the numbers in a matrix, and returns the number of columns. Waits for the GPU once."""
    ptr, index, perm = side
    entries = index.shape[0]
    lengths = ptr.diff().long() if ptr.shape[0] > 1 else ptr.new_zeros(1, dtype=torch.int64)
    found = [ptr[0].long(), ptr[-1].long(), lengths.amin(), *ends_of(index)]
    if perm is not None:
        found += ends_of(perm)
        valid = perm.long().clamp(0, max(entries - 1, 0))
        found.append(torch.zeros(entries, dtype=torch.int64, device=ptr.device).index_fill_(0, valid, 1).sum())
    first, last, shortest, least, greatest, *of_perm = torch.stack(found).tolist()
    if first != 0 or last != entries:
        raise ValueError(
            f"CSR: ptr must start with 0 and end with the number of entries: expected 0 and {entries}, got {first} and {last}"
        )
    if shortest < 0:
        raise ValueError(f"CSR: ptr must not decrease: expected rows of 0 or more entries, got one of {shortest}")
    columns = greatest + 1 if columns is None else columns
    check_range("index", least, greatest, columns, "columns")
    if of_perm:
        check_range("perm", of_perm[0], of_perm[1], entries, "entries")
        if of_perm[2] != entries:
            raise ValueError(
                f"CSR: perm must name each entry once: expected {entries} different numbers, got {of_perm[2]}"
            )
    return columns


def checked(side: Side, values: Any, shape: Any, check: bool, dtype: torch.dtype | None) -> tuple[Side, int]:
    """Copies of the integers that a matrix is made of, and its number of columns. ``CSR`` documents the arguments and errors."""
    ptr, index, perm = side
    check_vector("ptr", ptr)
    check_vector("index", index, ptr)
    rows, entries = ptr.shape[0] - 1, index.shape[0]
    if perm is not None:
        check_vector("perm", perm, ptr, entries)
    if ptr.shape[0] == 0:
        raise RuntimeError("CSR: ptr must have rows + 1 numbers: expected at least 1, got 0")
    check_values(values, ptr, entries)
    columns = None
    if shape is not None:
        wanted, columns = check_shape(shape)
        if wanted != rows:
            raise RuntimeError(f"CSR: ptr must have rows + 1 numbers: expected {wanted + 1}, got {ptr.shape[0]}")
    side = side.map(lambda t: t.detach())
    if torch.compiler.is_compiling():
        if columns is None:
            raise ValueError("CSR: shape must be given inside torch.compile: expected (rows, columns), got None")
    elif check:
        columns = checked_content(side, columns)
    elif columns is None:
        greatest = int(ends_of(index)[1])
        columns = greatest + 1
        check_range("index", 0, greatest, columns, "columns")
    # Not the greatest of them: it would be another one for other symbolic sizes.
    fits = all(size <= _LARGEST_INT32 for size in (rows, columns, entries))
    if dtype is None:
        dtype = torch.int32 if fits else torch.int64
    elif dtype not in INTEGERS:
        raise TypeError(f"CSR: dtype must be int32 or int64: expected torch.int32 or torch.int64, got {dtype}")
    elif dtype == torch.int32 and not fits:
        raise ValueError(f"CSR: dtype must hold all sizes: expected int64 for {entries} entries of {rows} x {columns}")
    return side.map(lambda t: t.to(dtype, copy=True).contiguous()), columns


def shape_of_edges(edge_index: Any, num_nodes: Any, size: Any) -> tuple[int, int] | None:
    """The shape (targets, sources) of a matrix of edges, or None if nothing is known."""
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"CSR: edge_index must be a tensor: expected (2, edges), got {type(edge_index).__name__}")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise RuntimeError(f"CSR: edge_index must be (2, edges): expected 2 rows, got shape {tuple(edge_index.shape)}")
    if size is not None:
        if num_nodes is not None:
            raise ValueError(f"CSR: num_nodes must not be given with size, got {num_nodes} and {size}")
        sources, targets = check_shape(size)
        return targets, sources
    if num_nodes is None and not torch.compiler.is_compiling():
        check_vector("edge_index", edge_index[0])
        least, greatest = torch.stack(ends_of(edge_index)).tolist()
        num_nodes = greatest + 1
        check_range("edge_index", least, greatest, num_nodes, "nodes")
    if num_nodes is None:
        return None
    nodes = integer("CSR", "num_nodes", num_nodes)
    return nodes, nodes
