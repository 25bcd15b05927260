"""Finds additions of rows in a functional graph of ATen's operators, as Inductor has it after its own passes.

====================================  ============================================================================
in the program                        in the graph
====================================  ============================================================================
``index_add``                         ``index_put(self, [None] * dim + [index], source, True)``; bfloat16: itself
gradient of ``x[index]``              ``index_put(full, [index], gradient, True)``
gradient of ``index_select``          as ``index_add``
gradient of an embedding              ``index_put(full, [indices], where(indices == padding, 0, gradient), True)``;
                                      newer: ``_unsafe_masked_index_put_accumulate(full, mask, [indices], gradient)``
... in a half type                    the same in float32, between two conversions
``scatter_add``, gradient of gather   itself
``scatter_reduce`` with ``"sum"``     itself
====================================  ============================================================================

A node's ``original_aten`` tells which operator of the program it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ops._graph import OPERATORS

aten, prims = torch.ops.aten, torch.ops.prims
_HALF = (torch.float16, torch.bfloat16)
# Operators that fill a tensor with one number, and the position of the number.
_FILLS: dict[Any, int] = {aten.full.default: 1, aten.scalar_tensor.default: 0}


@dataclass(frozen=True)
class Addition:
    """``self[..., index[i], ...] += alpha * source[..., i, ...]`` along ``dim``.

    Args:
        name: The operator of the program, as ``torch_ops.override`` names it.
        node: The node that computes the sum. All of its uses see the result.
        self: The node of the first summand.
        dim: The dimension that ``index`` refers to. If ``index`` has several dimensions, they all stand there in ``source``.
        index: The node of the index.
        source: The node of the rows.
        alpha: The factor of ``source``.
        negative: Whether negative entries of the index count from the end.
        expanded: Whether ``index`` has the shape of ``source``, and only ``dim`` matters.
        mask: The node of a mask, if only some rows are added.
        dtype: The dtype of the result. Another one than ``self``'s means that sums are computed in float32 and rounded once.
    """

    name: str
    node: Any
    self: Any
    dim: int
    index: Any
    source: Any
    dtype: torch.dtype
    alpha: Any = 1
    negative: bool = False
    expanded: bool = False
    mask: Any = None


def value(node: Any) -> Any:
    """The fake tensor that a node computes, or None for everything else."""
    found = node.meta.get("val") if isinstance(node, Node) else None
    return found if isinstance(found, FakeTensor) else None


def find(node: Node) -> Addition | None:
    """The addition of rows that ``node`` computes, or None. Dtypes, layouts and sizes are not looked at."""
    matcher = _MATCHERS.get(node.target) if node.op == "call_function" else None
    if matcher is None or value(node) is None:
        return None
    target: Any = node.target
    names = [argument.name for argument in target._schema.arguments]
    defaults = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    found = matcher(node, **{**defaults, **dict(zip(names, node.args)), **node.kwargs})
    if found is None or value(found.self) is None or value(found.index) is None or value(found.source) is None:
        return None
    return _of_embedding(found) if found.name == "embedding_dense_backward" else found


def _name(node: Node, default: str) -> str:
    """The operator of the program. ``default`` is that of the graph."""
    original = node.meta.get("original_aten")
    name = original.overloadpacket.__name__ if isinstance(original, torch._ops.OpOverload) else default
    return name if name in OPERATORS else default


def _index_put(node: Any, self: Any, indices: Any, values: Any, accumulate: bool) -> Addition | None:
    dim = len(indices) - 1
    if accumulate is not True or any(index is not None for index in indices[:dim]) or value(indices[dim]) is None:
        return None
    shape, index = value(node).shape, value(indices[dim])
    if value(values) is None or not _fits(value(values).shape, (*shape[:dim], *index.shape, *shape[dim + 1 :])):
        return None
    name = _name(node, "index_put")
    # Only indexing with [] counts negative entries from the end.
    return Addition(name, node, self, dim, indices[dim], values, value(node).dtype, negative=name == "index_put")


def _masked_index_put(node: Any, self: Any, mask: Any, indices: Any, values: Any) -> Addition | None:
    found = _index_put(node, self, indices, values, True)
    if found is None or found.name != "embedding_dense_backward" or found.dim != 0:
        return None
    paddings = _paddings_of(mask, found)
    return None if paddings is None else replace(found, mask=mask if paddings else None)


def _index_add(node: Any, self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Addition | None:
    if value(index) is None or value(index).dim() != 1 or value(node).dim() == 0:
        return None
    found = Addition(
        _name(node, "index_add"), node, self, dim % value(node).dim(), index, source, value(node).dtype, alpha
    )
    return found if _fits(value(source).shape, _rows_of(found)) else None


def _scatter_add(node: Any, self: Any, dim: int, index: Any, src: Any) -> Addition | None:
    rank = value(node).dim()
    if rank == 0 or value(index) is None or value(src) is None or not same(value(index).shape, value(src).shape):
        return None
    found = Addition(_name(node, "scatter_add"), node, self, dim % rank, index, src, value(node).dtype, expanded=True)
    sizes, strides = value(index).shape, value(index).stride()
    is_row = all(
        statically_known_true(sizes[d] == 1) or statically_known_true(strides[d] == 0)
        for d in range(rank)
        if d != found.dim
    )
    return found if is_row and same(value(src).shape, _rows_of(found)) else None


def _scatter_reduce(
    node: Any, self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool
) -> Addition | None:
    if reduce != "sum" or include_self is not True:
        return None
    found = _scatter_add(node, self, dim, index, src)
    return found and replace(found, name=_name(node, "scatter_reduce"))


_MATCHERS: dict[Any, Callable[..., Addition | None]] = {
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _index_put,
    aten._unsafe_masked_index_put_accumulate.default: _masked_index_put,
    aten.index_add.default: _index_add,
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: _scatter_reduce,
}


def same(sizes: Any, others: Any) -> bool:
    """Whether two shapes are equal for all values of their symbols. Adds no guard."""
    return len(sizes) == len(others) and all(statically_known_true(a == b) for a, b in zip(sizes, others))


def _fits(sizes: Any, expected: Any) -> bool:
    """Whether the sizes of a source are the expected ones, if the program is valid. Adds no guard.

    Other sizes than 1 are never broadcast, so that a valid program has the expected one. Symbols stand for 2 or more.
    """
    return len(sizes) == len(expected) and all(
        statically_known_true(size == other) or (statically_known_true(size != 1) and example(size) == example(other))
        for size, other in zip(sizes, expected)
    )


def example(size: int | torch.SymInt) -> int | None:
    """The value of a size in the example that is compiled for, or None if it depends on data. Adds no guard."""
    return size if isinstance(size, int) else size.node.hint


def _rows_of(found: Addition) -> tuple[Any, ...]:
    """The result's shape, with an entry of the index for each row."""
    shape, index = value(found.node).shape, value(found.index)
    entries = index.shape[found.dim if found.expanded else 0]
    return (*shape[: found.dim], entries, *shape[found.dim + 1 :])


# ---------------------------------------------------------------- embeddings


def _of_embedding(found: Addition) -> Addition:
    """Leaves out what ATen's decomposition adds: a mask that is False everywhere, and float32 copies of half types."""
    padding = _padding(found.source, found.index)
    if padding is not None and padding < 0:
        padding, found = None, replace(found, source=found.source.args[2])
    dtype = _rounded_to(found.node)
    if dtype is None or found.self.target is not aten.full.default or found.self.args[1] != 0:
        return found
    # A mask keeps values or makes them zero, so that its float32 result is exact in the half type.
    widened = found.source if padding is None else found.source.args[2]
    if widened.target is not prims.convert_element_type.default or _dtype_of(widened.args[0]) != dtype:
        return found
    return replace(found, source=widened.args[0] if padding is None else found.source, dtype=dtype)


def _is(node: Any, target: Any) -> bool:
    return isinstance(node, Node) and node.target is target


def _padding(source: Any, index: Any) -> Any:
    """The padding if ``source`` is ``where(index == padding, 0, gradient)``, else None."""
    if source.target is not aten.where.self:
        return None
    mask: Any = source.args[0]
    zero: Any = source.args[1]
    while _is(mask, aten.unsqueeze.default):
        mask = mask.args[0]
    is_zero = isinstance(zero, Node) and zero.target in _FILLS and zero.args[_FILLS[zero.target]] == 0
    is_mask = _is(mask, aten.eq.Scalar) and mask.args[0] is index
    return mask.args[1] if is_zero and is_mask else None


def _paddings_of(mask: Any, found: Addition) -> list[int] | None:
    """The paddings that a mask of the index excludes. None if it excludes other entries that are in range."""
    while mask.target is aten.unsqueeze.default:
        mask = mask.args[0]
    if mask.target is aten.bitwise_and.Tensor:
        parts = [_paddings_of(part, found) for part in mask.args]
        return None if None in parts else list(itertools.chain(*filter(None, parts)))
    if len(mask.args) != 2 or mask.args[0] is not found.index:
        return None
    number = mask.args[1].meta["val"] if isinstance(mask.args[1], Node) else mask.args[1]
    if mask.target is aten.ne.Scalar:
        return [number] if number >= 0 else []
    is_range = (mask.target is aten.ge.Scalar and number == 0) or (
        mask.target is aten.lt.Scalar and statically_known_true(number == value(found.self).shape[0])
    )
    return [] if is_range else None


def _rounded_to(node: Any) -> torch.dtype | None:
    """The half type to which the only use converts a float32 ``node``."""
    users = list(node.users)
    if len(users) != 1 or users[0].target is not prims.convert_element_type.default:
        return None
    dtype: Any = users[0].args[1]
    return dtype if dtype in _HALF and value(node).dtype == torch.float32 else None


def _dtype_of(node: Any) -> torch.dtype | None:
    found = value(node)
    return None if found is None else found.dtype
