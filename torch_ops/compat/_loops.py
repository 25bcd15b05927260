"""What layers do with ``edge_index`` before they send messages: add self-loops, normalise. Done once for each ``edge_index``.

A layer that does it in each call makes a new ``edge_index`` each time, and its matrix would be sorted each time, too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from torch_ops.compat import _graphs


def gcn_norm(
    original: Callable[..., Any],
    edge_index: object,
    edge_weight: object = None,
    num_nodes: int | None = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: torch.dtype | None = None,
) -> Any:
    """``gcn_norm``, or NotImplemented."""
    if edge_weight is not None:
        return NotImplemented  # it calls add_remaining_self_loops
    key = (num_nodes, improved, add_self_loops, flow, dtype)

    @functools.wraps(original)
    def in_float32(*arguments: Any) -> tuple[Tensor, Tensor]:
        """A bfloat16 counts to 256, and most graphs have nodes with more neighbours."""
        edges, weights = original(*arguments[:-1], torch.float32)
        return edges, weights.to(dtype)

    norm = in_float32 if dtype in (torch.float16, torch.bfloat16) else original
    return _once(norm, edge_index, key, None, num_nodes, improved, add_self_loops, flow, dtype)


def remove_self_loops(original: Callable[..., Any], edge_index: object, edge_attr: object = None) -> Any:
    """``remove_self_loops``, or NotImplemented."""
    return _once(original, edge_index, (), edge_attr)


def with_self_loops(
    original: Callable[..., Any],
    edge_index: object,
    edge_attr: object = None,
    fill_value: Any = None,
    num_nodes: Any = None,
) -> Any:
    """``add_self_loops`` or ``add_remaining_self_loops``, or NotImplemented."""
    return _once(original, edge_index, (num_nodes,), edge_attr, fill_value, num_nodes)


FORMS = {
    "gcn_norm": gcn_norm,
    "remove_self_loops": remove_self_loops,
    "add_self_loops": with_self_loops,
    "add_remaining_self_loops": with_self_loops,
}


def _once(
    original: Callable[..., Any], edge_index: Any, key: tuple[Hashable, ...], attributes: object, *rest: Any
) -> Any:
    """``original(edge_index, attributes, *rest)``, a pair of tensors.

    The first one depends on ``edge_index`` and ``key`` alone, and is the same object in each call. So is the second one if there are
    no attributes.
    """
    # The frames of _once, of one of FORMS, and of the replacement. Other callers than layers may write to what they get.
    if not sys._getframe(3).f_globals.get("__name__", "").startswith("torch_geometric.nn."):
        return NotImplemented
    if not _graphs.is_index(edge_index) or any(isinstance(part, Tensor) for part in key):
        return NotImplemented
    result = None if attributes is None else original(edge_index, attributes, *rest)
    if result is not None and not _graphs.is_index(result[0]):
        return result

    def make() -> list[Tensor | None]:
        tensors = original(edge_index, None, *rest) if result is None else result[:1]
        return [_new(x, edge_index) for x in tensors]

    name = f"{original.__name__} {result is None} {key}"
    found: Any = _graphs.remembered([edge_index], name, make)
    edges, *weights = found
    return edge_index if edges is None else edges, weights[0] if result is None else result[1]


def _new(tensor: Tensor | None, edge_index: Tensor) -> Tensor | None:
    """A tensor that shares no memory with ``edge_index``. None stands for that itself, and for no tensor."""
    if tensor is None or tensor is edge_index:
        return None
    return tensor if tensor._base is None else tensor.clone()
