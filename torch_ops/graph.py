"""Attention over the entries of a sparse matrix: ``graph_attention`` and ``gat_attention``.

Row r of the matrix attends to the columns of its entries. In a graph, a row is a node and its entries are the edges that end there.
Scores, softmax and weighted sum are three sparse operators. None of them makes a tensor of entries x features, their results are
bitwise reproducible, and gradients of any order follow from them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from torch_ops._csr_structure import Pair
from torch_ops.csr import CSR
from torch_ops.index_select import index_select
from torch_ops.segment import segment_softmax
from torch_ops.spmm import _transpose_of, sddmm, spmm

__all__ = ["gat_attention", "graph_attention"]


def graph_attention(
    query: Tensor, key: Tensor, value: Tensor, csr: CSR, *, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Scaled dot-product attention of each row of a sparse matrix to the columns of its entries.

    ``out[r, h]`` is the sum over the entries e of row r of ``weight[e, h] * value[column[e], h]``. The weights of a row are the
    softmax over its entries of ``scale * dot(query[r, h], key[column[e], h]) + bias[e, h]``. A row without entries gives zeros.

    Args:
        query: tensor (rows, heads, features).
        key: tensor (columns, heads, features).
        value: tensor (columns, heads, features of the result).
        csr: matrix of shape (rows, columns). Its values, if any, are ignored.
        scale: factor of the products. None means ``1 / sqrt(features)``.
        bias: tensor (entries, heads) that is added to the scores, in the order of the matrix's values.

    Returns:
        A tensor (rows, heads, features of the result). Differentiable in all tensors, any number of times.

    Raises:
        ValueError: a shape does not match ``csr`` or the other tensors.
    """
    _check("graph_attention", "query", query, (csr.shape[0], None, None))
    _check("graph_attention", "key", key, (csr.shape[1], *query.shape[1:]))
    _check("graph_attention", "value", value, (csr.shape[1], query.shape[1], None))
    if scale is None:
        scale = max(query.shape[2], 1) ** -0.5
    ordered = _in_row_order(csr, query, key, value)
    scores = sddmm(ordered, query * scale, key)
    if bias is not None:
        _check("graph_attention", "bias", bias, tuple(scores.shape))
        scores = scores + _entries_in_row_order(bias, csr)
    return _weighted_sum(scores, value, ordered)


def gat_attention(
    input: Tensor,
    source_scores: Tensor,
    target_scores: Tensor,
    csr: CSR,
    *,
    negative_slope: float = 0.2,
    edge_scores: Tensor | None = None,
) -> Tensor:
    """Additive attention of each row of a sparse matrix to the columns of its entries, as in graph attention networks (GAT).

    ``out[r, h]`` is the sum over the entries e of row r of ``weight[e, h] * input[column[e], h]``. The weights of a row are the
    softmax over its entries of ``leaky_relu(source_scores[column[e], h] + target_scores[r, h] + edge_scores[e, h])``. A row without
    entries gives zeros.

    Args:
        input: tensor (columns, heads, features).
        source_scores: tensor (columns, heads).
        target_scores: tensor (rows, heads).
        csr: matrix of shape (rows, columns). Its values, if any, are ignored.
        negative_slope: slope of the leaky ReLU for negative scores.
        edge_scores: tensor (entries, heads) that is added to the scores, in the order of the matrix's values.

    Returns:
        A tensor (rows, heads, features). Differentiable in all tensors, any number of times.

    Raises:
        ValueError: a shape does not match ``csr`` or the other tensors.
    """
    _check("gat_attention", "input", input, (csr.shape[1], None, None))
    _check("gat_attention", "source_scores", source_scores, tuple(input.shape[:2]))
    _check("gat_attention", "target_scores", target_scores, (csr.shape[0], input.shape[1]))
    ordered = _in_row_order(csr, input, source_scores, target_scores)
    scores = sum_at_entries(source_scores, target_scores, ordered)
    if edge_scores is not None:
        _check("gat_attention", "edge_scores", edge_scores, tuple(scores.shape))
        scores = scores + _entries_in_row_order(edge_scores, csr)
    return _weighted_sum(functional.leaky_relu(scores, negative_slope), input, ordered)


def sum_at_entries(source: Tensor, target: Tensor, csr: CSR) -> Tensor:
    """``source[column[e], h] + target[row[e], h]`` for each entry e, (entries, heads).

    It is the product of (target, 1) and (1, source), which is exact. So the gradients are sparse products with the cached transpose,
    and bitwise reproducible.
    """
    rows = torch.stack([target, torch.ones_like(target)], -1)
    columns = torch.stack([torch.ones_like(source), source], -1)
    return sddmm(csr, rows, columns)


def _weighted_sum(scores: Tensor, input: Tensor, ordered: CSR) -> Tensor:
    return spmm(ordered, input, values=segment_softmax(scores, ordered.ptr))


def _in_row_order(csr: CSR, *dense: Tensor) -> CSR:
    """The same structure, whose values stand in the order of its rows, so that a row's scores are a segment."""
    _transpose_of(csr, *dense)  # cached in csr, if a gradient will need it
    side, other = csr._side, csr._other
    if side.entry is None:
        return csr
    if other is not None:
        numbers = torch.arange(csr.entries, dtype=side.entry.dtype, device=csr.device)
        position = torch.empty_like(numbers).scatter(0, side.entry.long(), numbers)
        other = other._replace(entry=position if other.entry is None else position.index_select(0, other.entry))
    return CSR._of(Pair(side._replace(entry=None), other), False, csr.shape[1], None)


def _entries_in_row_order(values: Tensor, csr: CSR) -> Tensor:
    """Values of entries (entries, ...) in the order of the rows."""
    return values if csr.entry is None else index_select(values, 0, csr.entry)


def _check(name: str, argument: str, tensor: Tensor, shape: tuple[int | None, ...]) -> None:
    if tensor.dim() != len(shape) or any(n is not None and n != m for n, m in zip(shape, tensor.shape)):
        expected = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name}: {argument}: expected shape [{expected}], got {list(tensor.shape)}")
