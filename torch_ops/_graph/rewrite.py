"""Replaces additions of rows in a graph by gpuopt's index_add, where that is faster."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ops._graph.match import Addition, example, find, same, value

aten, prims = torch.ops.aten, torch.ops.prims
INDEX_ADD, INDEX_ADD_INPLACE = torch.ops.gpuopt.index_add.default, torch.ops.gpuopt.index_add_.default
_MEASURED = (torch.float32, torch.float16, torch.bfloat16)


def rewrite(graph: Graph, operators: Collection[str], device: str, always: bool) -> int:
    """Replaces what is faster here, and returns how many nodes that were.

    Args:
        graph: A functional graph, with a fake tensor in ``meta["val"]`` of every node.
        operators: The operators of the program to replace, by their names in ``torch_ops.override``.
        device: The type of the device whose tensors are looked at.
        always: If True, additions of any size are replaced. float64 is then supported, too.
    """
    replaced, unused = 0, {node for node in graph.nodes if not node.users}
    for node in list(graph.nodes):
        addition = find(node)
        if addition is None or addition.name not in operators or not _is_supported(addition, device, always):
            continue
        if always or _decide(addition).faster:
            _replace(graph, addition)
            replaced += 1
    # What only the replaced nodes used. Operands come before their users.
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and node not in unused and not node.is_impure():
            graph.erase_node(node)
    return replaced


def shares_no_memory(node: Node) -> bool:
    """Whether the first operand of an ``index_add`` may be written in place while the others are read."""
    written, *read = (value(node.args[k]) for k in (0, 2, 3))
    storage = written.untyped_storage()._cdata
    return all(other is not None and other.untyped_storage()._cdata != storage for other in read)


# ---------------------------------------------------------------- which additions


def _is_supported(addition: Addition, device: str, always: bool) -> bool:
    result, first, index, source = map(value, (addition.node, addition.self, addition.index, addition.source))
    if result.dtype not in _MEASURED and not (always and result.dtype == torch.float64):
        return False
    if any(t.device != result.device for t in (first, index, source)) or result.device.type != device:
        return False
    if first.dtype != result.dtype or source.dtype not in (result.dtype, addition.dtype):
        return False
    if index.dtype != torch.int64 and (index.dtype != torch.int32 or addition.expanded):
        return False
    alpha = addition.alpha
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or abs(alpha) >= 65504:
        return False
    # The result of index_add is contiguous.
    if not same(first.shape, result.shape) or not all(map(_is_contiguous, (first, result))):
        return False
    return not _is_filled(addition) or _decide(addition).count


def _is_contiguous(tensor: torch.Tensor) -> bool:
    """As ``tensor.is_contiguous()``, but True only if it is so for all values of symbols. Adds no guard."""
    expected: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if not statically_known_true(size == 1) and not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True


def _is_filled(addition: Addition) -> bool:
    """Whether rows repeat a value. Inductor reads it once, and index_add would read a copy for each row."""
    source = value(addition.source)
    return addition.source.target is aten.full.default or any(
        statically_known_true(stride == 0) and not statically_known_true(size == 1)
        for size, stride in zip(source.shape, source.stride())
    )


class _Decision(NamedTuple):
    count: bool = False  # pyright: ignore[reportIncompatibleMethodOverride]  # rows are single values of a half type
    in_float32: bool = False  # half types are added in mode ``accurate``
    faster: bool = False  # than Inductor's kernel


def _decide(addition: Addition) -> _Decision:
    """What csrc/override/policy.h decides. Symbols have the values of the example that is compiled for.

    All is False if nothing is added, or if there is no example.
    """
    result, index, source = map(value, (addition.node, addition.index, addition.source))
    rows = example(result.shape[addition.dim])
    elements, added = example(result.numel()), example(source.numel())
    entries = example(index.shape[addition.dim] if addition.expanded else index.numel())
    if not rows or not elements or not added or not entries:
        return _Decision()
    deterministic = torch.are_deterministic_algorithms_enabled()
    sizes = elements, added, addition.dtype.itemsize, entries, rows
    return _Decision(*torch.ops.gpuopt._override_in_graph(*sizes, result.dtype, deterministic))


# ---------------------------------------------------------------- replacing


def _replace(graph: Graph, addition: Addition) -> None:
    node = addition.node
    with graph.inserting_before(node):
        first, index, source = addition.self, addition.index, addition.source
        if value(first).dtype != addition.dtype:
            first = _call(node, aten.full.default, *first.args, **{**first.kwargs, "dtype": addition.dtype})
        if value(source).dtype != addition.dtype:
            source = _call(node, prims.convert_element_type.default, source, addition.dtype)
        if addition.mask is not None:
            device = value(source).device
            zero = _call(node, aten.full.default, [], 0, dtype=addition.dtype, device=device, pin_memory=False)
            source = _call(node, aten.where.self, addition.mask, source, zero)
        index, source = _as_rows(addition, index, source)
        if addition.negative:
            rows = _size(node, addition.self, addition.dim)
            is_negative, counted = _call(node, aten.lt.Scalar, index, 0), _call(node, aten.add.Tensor, index, rows)
            index = _call(node, aten.where.self, is_negative, counted, index)
        result = _call(node, INDEX_ADD, first, addition.dim, index, source, alpha=addition.alpha, mode=_mode(addition))
    replaced = node
    if addition.dtype != value(node).dtype:
        (replaced,) = node.users  # the conversion to the half type
    replaced.replace_all_uses_with(result)


def _mode(addition: Addition) -> str:
    if torch.are_deterministic_algorithms_enabled():
        return "deterministic"
    if addition.dtype != value(addition.node).dtype:
        return "accurate"
    return "accurate" if _decide(addition).in_float32 else "fast"


def _as_rows(addition: Addition, index: Node, source: Node) -> tuple[Node, Node]:
    """The index as a vector, and the source with the vector's length in ``dim``."""
    node, dim, rank = addition.node, addition.dim, value(index).dim()
    if addition.expanded:
        for d in reversed(range(rank)):
            if d != dim:
                index = _call(node, aten.select.int, index, d, 0)
    elif rank != 1:
        shape = [_size(node, addition.self, d) for d in range(value(addition.self).dim())]
        shape[dim] = -1
        index = _call(node, aten.reshape.default, index, [-1])
        source = _call(node, aten.reshape.default, source, shape)
    return index, source


def _size(node: Node, tensor: Node, dim: int) -> int | Node:
    """A size as an argument of a node."""
    size = value(tensor).shape[dim]
    return size if isinstance(size, int) else _call(node, aten.sym_size.int, tensor, dim)


def _call(like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new node at the graph's insertion point, with the origin of ``like`` and the value that its operands give."""
    made = like.graph.call_function(target, args, kwargs)
    fake_mode = value(like).fake_mode
    no_guards = fake_mode.shape_env.suppress_guards() if fake_mode.shape_env else contextlib.nullcontext()
    operands, options = torch.fx.map_arg((args, kwargs), lambda operand: operand.meta["val"])
    with fake_mode, no_guards:
        made.meta["val"] = target(*operands, **options)
    made.meta.update({key: like.meta[key] for key in ("original_aten", "stack_trace") if key in like.meta})
    return made
