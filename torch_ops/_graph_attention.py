"""Attention over the entries of a sparse matrix: ``graph_attention`` and ``gat_attention``.

Row r of the matrix attends to the columns of its entries. In a graph, a row is a node and its entries are the edges that end there.
On CUDA, one kernel computes scores, softmax and weighted sum if each head is 1 to 32 vectors of 16 bytes. Other calls are a
composition of ``sddmm``, ``segment_softmax`` and ``spmm``. Nothing makes a tensor of entries x features, results are bitwise
reproducible, and there are gradients of any order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ops._arguments import checks_types
from torch_ops._deprecated import takes_old_calls
from torch_ops._spmm import sddmm
from torch_ops.sparse import CSR

__all__ = ["gat_attention", "graph_attention"]

_ops = torch.ops.gpuopt


def _has_csr_last(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call has the order of version 0.1."""
    return (len(args) > 3 and isinstance(args[3], CSR)) or (len(args) > 0 and "csr" in kwargs)


@takes_old_calls("query key value csr", is_old=_has_csr_last)
@checks_types
def graph_attention(
    csr: CSR, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Scaled dot-product attention of each row of a sparse matrix to the columns of its entries.

    ``out[r, h]`` is the sum over the entries e of row r of ``weight[e, h] * value[column[e], h]``. The weights of a row are the
    softmax over its entries of ``scale * dot(query[r, h], key[column[e], h]) + bias[e, h]``. A row without entries gives zeros.

    Args:
        csr: matrix of shape (rows, columns). Its values, if any, are ignored.
        query: tensor (rows, heads, features).
        key: tensor (columns, heads, features).
        value: tensor (columns, heads, features of the result).
        scale: factor of the products. None means ``1 / sqrt(features)``. To export a model whose ``features`` may change, give a number.
        bias: tensor (entries, heads) that is added to the scores, in the order of the matrix's values.

    Returns:
        A tensor (rows, heads, features of the result). Differentiable in all tensors, any number of times.

    Raises:
        TypeError: ``csr`` is no :class:`CSR`.
        RuntimeError: a shape does not match ``csr`` or the other tensors.
    """
    _check("graph_attention", "query", query, (csr.shape[0], None, None))
    _check("graph_attention", "key", key, (csr.shape[1], *query.shape[1:]))
    _check("graph_attention", "value", value, (csr.shape[1], query.shape[1], None))
    if bias is not None:
        _check("graph_attention", "bias", bias, (csr.nnz, query.shape[1]))
    factor = max(query.shape[2], 1) ** -0.5 if scale is None else scale
    return _attention(csr, query, key, value, bias, factor)


@takes_old_calls("input source_scores target_scores csr", is_old=_has_csr_last)
@checks_types
def gat_attention(
    csr: CSR,
    input: Tensor,
    source_scores: Tensor,
    target_scores: Tensor,
    *,
    negative_slope: float = 0.2,
    edge_scores: Tensor | None = None,
) -> Tensor:
    """Additive attention of each row of a sparse matrix to the columns of its entries, as in graph attention networks (GAT).

    ``out[r, h]`` is the sum over the entries e of row r of ``weight[e, h] * input[column[e], h]``. The weights of a row are the
    softmax over its entries of ``leaky_relu(source_scores[column[e], h] + target_scores[r, h] + edge_scores[e, h])``. A row without
    entries gives zeros.

    Args:
        csr: matrix of shape (rows, columns). Its values, if any, are ignored.
        input: tensor (columns, heads, features).
        source_scores: tensor (columns, heads).
        target_scores: tensor (rows, heads).
        negative_slope: slope of the leaky ReLU for negative scores.
        edge_scores: tensor (entries, heads) that is added to the scores, in the order of the matrix's values.

    Returns:
        A tensor (rows, heads, features). Differentiable in all tensors, any number of times.

    Raises:
        TypeError: ``csr`` is no :class:`CSR`.
        RuntimeError: a shape does not match ``csr`` or the other tensors.
    """
    _check("gat_attention", "input", input, (csr.shape[1], None, None))
    _check("gat_attention", "source_scores", source_scores, tuple(input.shape[:2]))
    _check("gat_attention", "target_scores", target_scores, (csr.shape[0], input.shape[1]))
    if edge_scores is not None:
        _check("gat_attention", "edge_scores", edge_scores, (csr.nnz, input.shape[1]))
    return _attention(csr, target_scores, source_scores, input, edge_scores, negative_slope)


def sum_at_entries(source: Tensor, target: Tensor, csr: CSR) -> Tensor:
    """``source[column[e], h] + target[row[e], h]`` for each entry e, (entries, heads).

    It is the product of (target, 1) and (1, source), which is exact. So the gradients are sparse products with the cached transpose,
    and bitwise reproducible.
    """
    rows = torch.stack([target, torch.ones_like(target)], -1)
    columns = torch.stack([torch.ones_like(source), source], -1)
    return sddmm(csr, rows, columns)


def _attention(csr: CSR, left: Tensor, right: Tensor, value: Tensor, bias: Tensor | None, factor: float) -> Tensor:
    ptr, index, perm = csr._side
    transpose = csr._transpose_for(left, right, value)
    return _ops._graph_attention.default(ptr, index, perm, left, right, value, bias, factor, *transpose)[0]


def _check(name: str, argument: str, tensor: Tensor, shape: tuple[int | None, ...]) -> None:
    if tensor.dim() != len(shape) or any(n is not None and n != m for n, m in zip(shape, tensor.shape)):
        expected = ", ".join("any" if n is None else str(n) for n in shape)
        raise RuntimeError(f"{name}: {argument} must have shape [{expected}], got {list(tensor.shape)}")
