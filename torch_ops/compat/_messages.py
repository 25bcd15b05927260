"""Recognises the messages of graph layers that are products: ``x_j``, ``edge_weight * x_j``, and attention.

A layer is recognised by the code of its methods. A method that computes the same as one below compiles to the same
bytecode, whatever the layer's name is and whoever wrote it. A later version of a layer that computes something else is not
recognised, and its own code runs.
"""

# Patterns are copies of methods of PyTorch Geometric, which have no annotations. Where the package is missing, pyright finds the module
# of its name in this folder.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import math
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch_geometric import utils

softmax: Callable[..., Any] = NotImplemented  # torch_geometric.utils.softmax in the methods below, which are not called


class Product(NamedTuple):
    """A message that is the features at one end of an edge, times a weight of the edge."""

    features: str  # the argument of propagate, without "_j"
    weight: str | None
    is_optional: bool  # whether the weight may be None, which stands for 1
    by_head: bool  # whether a weight may have heads, as (edges, heads) for features (edges, heads, n)


def _features(self, x_j):
    return x_j


def _maybe_weighted(self, x_j, edge_weight):
    return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j


def _weighted(self, x_j, edge_weight):
    return edge_weight.view(-1, 1) * x_j


def _weighted_column(self, x_j, edge_weight):
    return x_j * edge_weight.unsqueeze(1)


def _weighted_by_head(self, x_j, alpha):
    return alpha.unsqueeze(-1) * x_j


def _weighted_by_head_right(self, x_j, alpha):
    return x_j * alpha.unsqueeze(-1)


def _additive_attention(self, alpha_j, alpha_i, edge_attr, index, ptr, dim_size):  # GATConv.edge_update
    alpha = alpha_j if alpha_i is None else alpha_j + alpha_i
    if index.numel() == 0:
        return alpha
    if edge_attr is not None and self.lin_edge is not None:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        edge_attr = self.lin_edge(edge_attr)
        edge_attr = edge_attr.view(-1, self.heads, self.out_channels)
        alpha_edge = (edge_attr * self.att_edge).sum(dim=-1)
        alpha = alpha + alpha_edge

    alpha = F.leaky_relu(alpha, self.negative_slope)
    alpha = softmax(alpha, index, ptr, dim_size)
    alpha = F.dropout(alpha, p=self.dropout, training=self.training)
    return alpha


def _product_attention(self, query_i, key_j, value_j, edge_attr, index, ptr, size_i):  # TransformerConv.message
    if self.lin_edge is not None:
        assert edge_attr is not None
        edge_attr = self.lin_edge(edge_attr).view(-1, self.heads, self.out_channels)
        key_j = key_j + edge_attr

    alpha = (query_i * key_j).sum(dim=-1) / math.sqrt(self.out_channels)
    alpha = softmax(alpha, index, ptr, size_i)
    self._alpha = alpha
    alpha = F.dropout(alpha, p=self.dropout, training=self.training)

    out = value_j
    if edge_attr is not None:
        out = out + edge_attr

    out = out * alpha.view(-1, self.heads, 1)
    return out


def _what(code: CodeType) -> tuple[Any, ...]:
    """What a method computes. The first constant may be its docstring."""
    constants = tuple(value for value in code.co_consts if not isinstance(value, str))
    return code.co_code, code.co_names, constants[1:] if constants[:1] == (None,) else constants, code.co_argcount


_PRODUCTS = {
    _what(function.__code__): (is_optional, by_head)
    for function, is_optional, by_head in (
        (_features, True, False),
        (_maybe_weighted, True, False),
        (_weighted, False, False),
        (_weighted_column, False, False),
        (_weighted_by_head, False, True),
        (_weighted_by_head_right, False, True),
    )
}


def product(message: object) -> Product | None:
    """What a ``message`` method multiplies. None if it is not recognised."""
    if not isinstance(message, FunctionType) or message.__defaults__ or message.__kwdefaults__:
        return None
    found = _PRODUCTS.get(_what(message.__code__))
    if found is None:
        return None
    features, *weight = message.__code__.co_varnames[1 : message.__code__.co_argcount]
    if not features.endswith("_j") or any(name.endswith(("_i", "_j")) or name in _SPECIAL for name in weight):
        return None
    return Product(features[:-2], weight[0] if weight else None, *found)


_SPECIAL = {"edge_index", "adj_t", "size", "ptr", "index", "dim_size"}  # arguments that PyTorch Geometric fills in


def _same(function: object, pattern: FunctionType) -> bool:
    """Whether a method is the pattern, with the same names of arguments, and calls the same functions."""
    if not isinstance(function, FunctionType) or function.__defaults__ or function.__kwdefaults__:
        return False
    ours, theirs = pattern.__code__, function.__code__
    count = ours.co_argcount
    if _what(ours) != _what(theirs) or ours.co_varnames[:count] != theirs.co_varnames[:count]:
        return False
    called = {"F": F, "math": math, "softmax": utils.softmax}
    return all(function.__globals__.get(name) is called[name] for name in ours.co_names if name in called)


def is_additive_attention(edge_update: object) -> bool:
    """Whether an ``edge_update`` method is GATConv's."""
    return _same(edge_update, _additive_attention)


def is_product_attention(message: object) -> bool:
    """Whether a ``message`` method is TransformerConv's."""
    return _same(message, _product_attention)
