"""The fused forms of PyTorch Geometric's layers, on a remembered matrix of ``edge_index``.

Each form returns NotImplemented for a call that it cannot honour. The layer's own method then computes it, and raises its errors.
"""

# Where the package torch_geometric is missing, pyright finds the module of its name in this folder.
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules import module as hooks_of_modules
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation

from torch_ops._graph_attention import sum_at_entries
from torch_ops._segment import segment_softmax
from torch_ops._spmm import Reduction, sddmm, spmm
from torch_ops.compat import _graphs, _messages
from torch_ops.sparse import CSR

# The words of PyTorch Geometric, and what spmm calls them.
_WORDS: dict[str, Reduction] = {
    "add": "sum", "sum": "sum", "mean": "mean", "max": "amax", "amax": "amax", "min": "amin", "amin": "amin",
}  # fmt: skip
_REDUCTIONS: dict[type, Reduction] = {
    SumAggregation: "sum",
    MeanAggregation: "mean",
    MaxAggregation: "amax",
    MinAggregation: "amin",
}
_HALF = (torch.float16, torch.bfloat16)
_PROPAGATE_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
)
_EDGE_HOOKS = ("_edge_update_forward_pre_hooks", "_edge_update_forward_hooks")
_MODULE_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


def propagate(layer: MessagePassing, edge_index: Any, size: Any = None, **inputs: Any) -> Any:
    """``layer.propagate(edge_index, size=size, **inputs)``, or NotImplemented."""
    message, reduce = _message_of(type(layer)), _reduction(layer)
    if message is None or reduce is None or _is_changed(layer, _PROPAGATE_HOOKS, "message", "aggregate", "update"):
        return NotImplemented
    graph = _Graph.of(layer, edge_index, size)
    if graph is None:
        return NotImplemented
    with graph.no_autocast():
        if isinstance(message, _messages.Product):
            weight = inputs.get(message.weight) if message.weight else None
            return _sum_of_products(graph, message, inputs.get(message.features), weight, reduce)
        return _product_attention(graph, inputs) if reduce == "sum" else NotImplemented


def edge_updater(layer: MessagePassing, edge_index: Any, size: Any = None, **inputs: Any) -> Any:
    """``layer.edge_updater(edge_index, size=size, **inputs)``, or NotImplemented."""
    if not _has_additive_attention(type(layer)) or _is_changed(layer, _EDGE_HOOKS, "edge_update"):
        return NotImplemented
    graph = _Graph.of(layer, edge_index, size)
    if graph is None or (inputs.get("edge_attr") is not None and layer.lin_edge is not None):
        return NotImplemented
    with graph.no_autocast():
        return _additive_attention(graph, inputs.get("alpha"))


# ---------------------------------------------------------------- which layers


@functools.cache
def _message_of(layer: type) -> Any:
    """What the messages of a class are. None if they have no fused form."""
    if layer.aggregate is not MessagePassing.aggregate or layer.update is not MessagePassing.update:
        return None
    if _messages.is_product_attention(layer.message):
        return "product attention"
    return _messages.product(layer.message)


@functools.cache
def _has_additive_attention(layer: type) -> bool:
    return _messages.is_additive_attention(layer.edge_update)


def _reduction(layer: MessagePassing) -> Reduction | None:
    aggregation = layer.aggr_module
    if any(getattr(aggregation, name, None) for name in _MODULE_HOOKS):
        return None
    if any(getattr(hooks_of_modules, name) for name in _GLOBAL_HOOKS):
        return None
    return _REDUCTIONS.get(type(aggregation))


def _is_changed(layer: MessagePassing, hooks: tuple[str, ...], *methods: str) -> bool:
    """Whether this object does something else or something more than its class, which its fused form would leave out."""
    return bool(
        layer.explain
        or layer.decomposed_layers != 1
        or any(getattr(layer, name) for name in hooks)
        or any(name in vars(layer) for name in methods)
    )


# ---------------------------------------------------------------- graphs


class _Graph:
    """The edges of a call, and the numbers of nodes at both ends."""

    def __init__(self, layer: MessagePassing, edges: Tensor, size: list[int | None]) -> None:
        self.layer, self.edges, self.size = layer, edges, size
        # The ends of an edge in edge_index: i is the node that receives, j the node that sends.
        self.i, self.j = (1, 0) if layer.flow == "source_to_target" else (0, 1)
        self._is_autocast = torch.is_autocast_enabled(edges.device.type)

    @staticmethod
    def of(layer: MessagePassing, edge_index: Any, size: Any) -> _Graph | None:
        edges = edge_index
        if type(edge_index) is EdgeIndex:
            if layer.fuse and layer.SUPPORTS_FUSED_EDGE_INDEX and edge_index.is_sorted_by_col:
                return None  # message_and_aggregate calls edge_index._spmm
            edges = edge_index.as_tensor()
        if not _graphs.is_index(edges) or edges.dim() != 2 or edges.shape[0] != 2:
            return None
        return _Graph(layer, edges, layer._check_input(edge_index, size))

    def ends(self, features: Any) -> tuple[Any, Any]:
        """The features of the sending and of the receiving nodes.

        With the flow from targets to sources, the methods that PyTorch Geometric generates do not take the pair that its own
        ``propagate`` takes. So a pair of two tensors is left to them.
        """
        if not isinstance(features, (tuple, list)):
            return features, None
        if len(features) != 2 or (self.j == 1 and features[0] is not features[1]):
            return None, None
        return features[0], features[1]

    def has(self, end: int, features: Any, dim: int) -> bool:
        """Whether ``features`` may belong to the nodes at an end. Their number becomes the number of nodes, if it is unknown yet."""
        if not _graphs.is_dense(features) or not -features.dim() <= dim < features.dim():
            return False
        if self.size[end] is None:
            self.size[end] = features.shape[dim]
        return self.size[end] == features.shape[dim]

    def matrix(self) -> CSR | None:
        """A row for each node that receives, a column for each one that sends."""
        rows, columns = self.size[self.i], self.size[self.j]
        shape: Any = columns if rows is None else rows, rows if columns is None else columns
        return _graphs.matrix(self.edges, self.i, shape)

    def softmax(self, scores: Tensor) -> Tensor:
        """The softmax over the edges that end at each node. scores: (edges, heads), on a graph that has a matrix."""
        count: Any = self.size[self.j] if self.size[self.i] is None else self.size[self.i]
        found: Any = _graphs.groups(self.edges[self.i], count)
        return _graphs.softmax(scores, found)

    def no_autocast(self) -> contextlib.AbstractContextManager[Any]:
        """PyTorch Geometric's gathers, products and sums at nodes have the dtype of their operands under autocast, too."""
        if self._is_autocast:
            return torch.autocast(self.edges.device.type, enabled=False)
        return contextlib.nullcontext()

    def scores(self, tensor: Tensor) -> Tensor:
        """Operands of a score. Under autocast, sums over features and exponentials are in float32."""
        return tensor.float() if self._is_autocast and tensor.dtype in _HALF else tensor


# ---------------------------------------------------------------- the fused forms


def _sum_of_products(graph: _Graph, message: _messages.Product, features: Any, weight: Any, reduce: Reduction) -> Any:
    dim = graph.layer.node_dim
    x, receiving = graph.ends(features)
    if not graph.has(graph.j, x, dim) or (isinstance(receiving, Tensor) and not graph.has(graph.i, receiving, dim)):
        return NotImplemented
    if weight is None:
        if not message.is_optional:
            return NotImplemented
    elif not _graphs.is_dense(weight) or not _fits(message, x, weight, graph.edges.shape[1]):
        return NotImplemented
    elif not message.by_head:
        weight = weight.reshape(-1)
    is_by_head = weight is not None and weight.dim() == 2
    if dim % x.dim() != (0 if is_by_head else x.dim() - 2):
        return NotImplemented
    matrix = graph.matrix()
    if matrix is None:
        return NotImplemented
    return _weighted(matrix, weight, x, reduce)


def _weighted(matrix: CSR, weight: Tensor | None, x: Tensor, reduce: Reduction = "sum") -> Tensor:
    if weight is None:
        return spmm(matrix, x, reduce)
    dtype = torch.promote_types(x.dtype, weight.dtype)
    return spmm(matrix, x.to(dtype), reduce, values=weight.to(dtype))


def _fits(message: _messages.Product, x: Tensor, weight: Tensor, edges: int) -> bool:
    """Whether the product multiplies each edge's features by the weights of that edge."""
    if message.by_head and x.dim() == 3:
        return weight.shape == (edges, x.shape[1])
    return weight.shape == (edges,) or (not message.by_head and weight.shape == (edges, 1))


def _additive_attention(graph: _Graph, scores: Any) -> Any:
    layer: Any = graph.layer
    source, target = graph.ends(scores)
    if not graph.has(graph.j, source, layer.node_dim) or not graph.has(graph.i, target, layer.node_dim):
        return NotImplemented
    if source.dim() != 2 or target.dim() != 2 or source.dtype != target.dtype or not graph.edges.shape[1]:
        return NotImplemented
    matrix = graph.matrix()
    if matrix is None:
        return NotImplemented
    alpha = functional.leaky_relu(
        sum_at_entries(graph.scores(source), graph.scores(target), matrix), layer.negative_slope
    )
    return functional.dropout(graph.softmax(alpha), p=layer.dropout, training=layer.training)


def _product_attention(graph: _Graph, inputs: dict[str, Any]) -> Any:
    layer: Any = graph.layer
    tensors: list[Any] = [inputs.get(name) for name in ("query", "key", "value")]
    query, key, value = tensors
    if inputs.get("edge_attr") is not None or layer.lin_edge is not None:
        return NotImplemented
    if not all(graph.has(end, x, layer.node_dim) for end, x in zip((graph.i, graph.j, graph.j), tensors)):
        return NotImplemented
    if any(x.dim() != 3 or x.dtype != query.dtype for x in tensors):
        return NotImplemented
    matrix = graph.matrix()
    if matrix is None:
        return NotImplemented
    alpha = graph.softmax(sddmm(matrix, graph.scores(query), graph.scores(key)) / math.sqrt(layer.out_channels))
    layer._alpha = alpha
    alpha = functional.dropout(alpha, p=layer.dropout, training=layer.training)
    return _weighted(matrix, alpha, value)


# ---------------------------------------------------------------- functions


def softmax(src: Any, index: Any = None, ptr: Any = None, num_nodes: int | None = None, dim: int = 0) -> Any:
    """``torch_geometric.utils.softmax``, or NotImplemented."""
    if not _graphs.is_dense(src) or not src.dim() or dim not in (0, -src.dim()):
        return NotImplemented
    if torch.is_autocast_enabled(src.device.type):
        with torch.autocast(src.device.type, enabled=False):
            return softmax(src.float() if src.dtype in _HALF else src, index, ptr, num_nodes, dim)
    if _graphs.is_index(ptr) and ptr.dim() == 1:
        return segment_softmax(src, ptr)
    if ptr is not None or not _graphs.is_index(index) or index.shape != src.shape[:1]:
        return NotImplemented
    if num_nodes is None:
        num_nodes = int(index.max()) + 1 if index.numel() else 0
    found = _graphs.groups(index, num_nodes)
    return NotImplemented if found is None else _graphs.softmax(src, found)


def spmm_of_sparse(src: Any, other: Any, reduce: str = "sum") -> Any:
    """``torch_geometric.utils.spmm`` of a sparse tensor, or NotImplemented."""
    word = _WORDS.get(reduce)
    if type(src) is not Tensor or src.layout not in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo):
        return NotImplemented
    if word is None or not _can_multiply(other) or src.dim() != 2 or src.dtype != other.dtype or src.is_inference():
        return NotImplemented
    if src.shape[1] != other.shape[0] or src.device != other.device:
        return NotImplemented
    if src.layout is not torch.sparse_csr:
        if word in ("sum", "mean"):
            return NotImplemented
        warnings.warn(
            "Converting sparse tensor to CSR format for more efficient processing. Consider converting your sparse tensor to CSR"
            f" format beforehand to avoid repeated conversion (got '{src.layout}')",
            stacklevel=3,
        )
        src = src.to_sparse_csr()
    values = src.values()
    return NotImplemented if values.dim() != 1 else spmm(_graphs.matrix_of_sparse(src), other, word, values=values)


def spmm_of_edge_index(
    input: EdgeIndex, other: Any, value: Any = None, reduce: str = "sum", transpose: bool = False
) -> Any:
    """``torch_geometric.edge_index._spmm``, or NotImplemented."""
    word = _WORDS.get(reduce)
    if word is None or type(input) is not EdgeIndex or not _can_multiply(other):
        return NotImplemented
    if not _graphs.is_index(input.as_tensor()):
        return NotImplemented
    if not (input.is_sorted_by_col if transpose else input.is_sorted_by_row):
        return NotImplemented
    if value is not None and (
        not _graphs.is_dense(value) or value.shape != input.shape[1:] or value.dtype != other.dtype
    ):
        return NotImplemented
    row = 1 if transpose else 0
    shape: Any = (input.get_sparse_size(row), input.get_sparse_size(1 - row))
    if shape[1] != other.shape[0]:
        return NotImplemented
    matrix = _graphs.matrix(input.as_tensor(), row, shape)
    return NotImplemented if matrix is None else spmm(matrix, other, word, values=value)


def _can_multiply(other: Any) -> bool:
    return _graphs.is_dense(other) and other.dim() == 2 and not torch.is_autocast_enabled(other.device.type)
