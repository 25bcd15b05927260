"""Cases of sparse products on random graphs with the sizes and skew of data sets (benchmarks/rooms/graphs.py): spmm, sddmm, attention.
bags.py has the cases of embedding_bag.

"arxiv skew 0.75 x 128" multiplies the graph by 128 features of each node. Indices are int32. The matrix has no values, except in
"-values" cases; cuSPARSE then gets ones. A "-step" is the forward and the backward pass. gpuopt finds the transpose in its cache, and
ATen makes it in each call.

Peers: "ATen" is torch.sparse.mm (a descriptor in each call, ALG2) for sums and means, torch.sparse.sampled_addmm for sddmm in float32,
and what "index_select + index_add" is for all else: extrema, heads, and gradients of entries, where torch.sparse merges entries of the
same cell. "cuSPARSE ALG2" and "ALG3" have descriptors that are made once. ALG3's preprocessing is not timed.

The traffic counts pointers, columns, values and the result once. Of the dense operand it counts the row of each entry, or the operand
once if it fits the L2. A cache that finds some of the rows of a larger operand can pass the ceiling. A backward pass of attention
counts as two forward passes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.peers import INDUCTOR, Missing, Peer
from benchmarks.harness.room import Call, CallTime, Case, Room
from benchmarks.rooms import bags
from benchmarks.rooms.cusparse import CACHED_ALG2, CACHED_ALG3, has_crowded_cells
from benchmarks.rooms.graphs import ARXIV, CORA, ORKUT, PARTS, PRODUCTS, REDDIT, Graph, Structure, structure, uniform
from benchmarks.rooms.index_add import rounded_once, sum_limit

F64 = torch.float64
# Peers that make a tensor of entries x features make none larger than this.
MOST_GATHERED = 16 << 30
# The reference makes tensors of at most this many values of entries x features.
CHUNK = 1 << 29

# ---------------------------------------------------------------- calls: the operands are a Structure, then the tensors


def split(args: tuple) -> tuple[Structure, tuple]:
    return Structure(*args[:PARTS]), args[PARTS:]


def matrix(a: Structure, columns: int, value: torch.Tensor | None = None):
    """A torch_ops.CSR with what it caches. Nothing is checked or computed."""
    from torch_ops.sparse import CSR
    from torch_ops.sparse.structure import Pair, Side

    transpose = None if a.t_ptr is None else Side(a.t_ptr, a.t_index, a.t_entry)
    return CSR._of(Pair(Side(a.ptr, a.index, None), transpose), False, columns, value)


def spmm(*args):
    import torch_ops

    a, (value, dense, reduce) = split(args)
    columns = dense.shape[-2 if value is None or value.dim() == 1 else -3]
    return torch_ops.spmm(matrix(a, columns, value), dense, {"max": "amax", "min": "amin"}.get(reduce, reduce))


def _at_rows(a: Structure, like: torch.Tensor) -> torch.Tensor:
    return a.row.long().view(-1, *[1] * (like.dim() - 1)).expand_as(like)


def _sums(a: Structure, entries: torch.Tensor) -> torch.Tensor:
    return entries.new_zeros(a.ptr.shape[0] - 1, *entries.shape[1:]).index_add_(0, a.row, entries)


def _counts(a: Structure, like: torch.Tensor) -> torch.Tensor:
    return a.ptr.diff().clamp(min=1).view(-1, *[1] * (like.dim() - 1))


def gathered(*args):
    """The product as layers of graph networks compute it: rows of all entries, scaled, and added."""
    a, (value, dense, reduce) = split(args)
    picked = dense.index_select(0, a.index)
    if value is not None:
        picked = picked * value.unsqueeze(-1)
    if reduce in ("sum", "mean"):
        total = _sums(a, picked)
        return total if reduce == "sum" else total / _counts(a, total)
    out = picked.new_zeros(a.ptr.shape[0] - 1, *picked.shape[1:])
    return out.scatter_reduce_(0, _at_rows(a, picked), picked, f"a{reduce}", include_self=False)


@functools.lru_cache(maxsize=1)
def _ones(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=device)


def _sparse(a: Structure, value: torch.Tensor, columns: int) -> torch.Tensor:
    return torch.sparse_csr_tensor(a.ptr, a.index, value, (a.ptr.shape[0] - 1, columns), check_invariants=False)


def by_torch_sparse(*args):
    a, (value, dense, reduce) = split(args)
    if not dense.is_cuda or reduce not in ("sum", "mean") or dense.dim() != 2 or has_crowded_cells(a, dense.shape[0]):
        return gathered(*args)
    if value is not None and value.requires_grad:
        return gathered(*args)
    value = _ones(a.index.shape[0], dense.dtype, dense.device) if value is None else value
    out = torch.sparse.mm(_sparse(a, value, dense.shape[0]), dense)
    return out if reduce == "sum" else out / _counts(a, out)


def sddmm(*args):
    import torch_ops

    a, (left, right) = split(args)
    return torch_ops.sddmm(matrix(a, right.shape[0]), left, right)


def gathered_products(*args):
    a, (left, right) = split(args)
    return (left.index_select(0, a.row) * right.index_select(0, a.index)).sum(-1)


def by_sampled_addmm(*args):
    a, (left, right) = split(args)
    if not left.is_cuda or left.dim() != 2 or left.dtype not in (F32, F64):
        return gathered_products(*args)
    if left.requires_grad or has_crowded_cells(a, right.shape[0]):
        return gathered_products(*args)
    at = _sparse(a, _ones(a.index.shape[0], left.dtype, left.device), right.shape[0])
    return torch.sparse.sampled_addmm(at, left, right.mT, beta=0).values()


def graph_attention(*args):
    import torch_ops

    a, (query, key, value) = split(args)
    return torch_ops.graph_attention(matrix(a, key.shape[0]), query, key, value)


def gat_attention(*args):
    import torch_ops

    a, (target, source, value) = split(args)
    return torch_ops.gat_attention(matrix(a, value.shape[0]), value, source, target)


def _attended(a: Structure, scores: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As utils.softmax of PyTorch Geometric, and the sum of weighted rows."""
    best = scores.new_full((a.ptr.shape[0] - 1, scores.shape[1]), -torch.inf)
    best = best.scatter_reduce_(0, _at_rows(a, scores), scores.detach(), "amax")
    weights = (scores - best.index_select(0, a.row)).exp()
    weights = weights / _sums(a, weights).index_select(0, a.row)
    return _sums(a, weights[..., None] * value.index_select(0, a.index))


def gathered_graph_attention(*args):
    a, (query, key, value) = split(args)
    return _attended(a, gathered_products(*a, query * query.shape[2] ** -0.5, key), value)


def gathered_gat_attention(*args):
    a, (target, source, value) = split(args)
    scores = source.index_select(0, a.index) + target.index_select(0, a.row)
    return _attended(a, functional.leaky_relu(scores, 0.2), value)


# ---------------------------------------------------------------- gradients and references


def _is_float(arg) -> bool:
    return isinstance(arg, torch.Tensor) and arg.is_floating_point()


def with_gradients(function: Callable) -> Callable:
    """``function`` and its gradients for all floating-point operands. The last operand is the gradient of the result."""

    def run(*args):
        *operands, grad = (arg.detach() if _is_float(arg) else arg for arg in args)
        leaves = [arg.requires_grad_() for arg in operands if _is_float(arg)]
        out = function(*operands)
        return out.detach(), *torch.autograd.grad(out, leaves, grad)

    return run


def in_float64(function: Callable) -> Callable:
    return lambda *args: function(*(arg.to(F64) if _is_float(arg) else arg for arg in args))


def reference(*args):
    """Of some entries at a time, or of some features of an extremum. torch.sparse has no part in it: its faults are a peer's."""
    a, (value, dense, reduce) = split(args)
    if reduce in ("max", "min"):
        at_once = max(1, CHUNK // max(a.index.shape[0], 1))
        parts = dense.split(at_once, 1) if dense.dim() == 2 else [dense]
        return torch.cat([gathered(*a, value, part, reduce) for part in parts], 1)
    at_once = max(1, CHUNK // math.prod(dense.shape[1:]))
    values = itertools.repeat(None) if value is None else value.split(at_once)
    parts = zip(a.row.split(at_once), a.index.split(at_once), values)
    total = sum(gathered(*a._replace(row=row, index=index), part, dense, "sum") for row, index, part in parts)
    return total if reduce == "sum" else total / _counts(a, total)


def reference_products(*args):
    a, (left, right) = split(args)
    at_once = max(1, CHUNK // max(left[0].numel(), 1)) if len(left) else 1
    if a.index.shape[0] <= at_once or left.is_meta:
        return gathered_products(*args)
    parts = zip(a.row.split(at_once), a.index.split(at_once))
    return torch.cat([gathered_products(*a._replace(row=row, index=index), left, right) for row, index in parts])


def _calls() -> dict[str, Call]:
    def both(name: str, ours: Callable, aten: Callable, reference: Callable, gpuopt_limit=None) -> dict[str, Call]:
        """A call, and its step."""
        return {
            key: Call(
                change(ours), change(aten), in_float64(change(reference)), limit=sum_limit, gpuopt_limit=gpuopt_limit
            )
            for key, change in ((name, lambda function: function), (f"{name} step", with_gradients))
        }

    return {
        **both("spmm", spmm, by_torch_sparse, reference, rounded_once),
        **both("embedding_bag", bags.embedding_bag, bags.by_aten, bags.by_aten, rounded_once),
        **both("sddmm", sddmm, by_sampled_addmm, reference_products, rounded_once),
        **both("graph_attention", graph_attention, gathered_graph_attention, gathered_graph_attention),
        **both("gat_attention", gat_attention, gathered_gat_attention, gathered_gat_attention),
    }


# ---------------------------------------------------------------- peers


def _gathered_bytes(case) -> int:
    """The bytes of a tensor of entries x features."""
    *parts, last = (arg for arg in case.build("meta", 0) if isinstance(arg, torch.Tensor))
    return parts[1].shape[0] * last[0].numel() * last.itemsize


def _gather_peer(call, case, setting):
    if case.call.startswith("embedding_bag"):
        raise Missing("ATen's embedding_bag is the peer")
    if (size := _gathered_bytes(case)) > MOST_GATHERED:
        raise Missing(f"it makes tensors of {size >> 30} GiB")
    function = sddmm_or_spmm(case)
    return (with_gradients(function) if case.call.endswith("step") else function), ""


def sddmm_or_spmm(case) -> Callable:
    return gathered_products if case.call.startswith("sddmm") else gathered


def _inductor(call, case, setting):
    # The composites of attention are what ATen runs.
    aten = call.aten if "attention" in case.call else sddmm_or_spmm(case)
    return INDUCTOR.prepare(dataclasses.replace(call, aten=aten), case, setting)


GATHER = Peer("index_select + index_add", _gather_peer)
INDUCTOR_GATHERED = Peer("Inductor", _inductor)
CUSPARSE = (CACHED_ALG2, CACHED_ALG3)

# ---------------------------------------------------------------- problems


@dataclasses.dataclass(frozen=True)
class Product:
    """A problem of one of the calls.

    ``heads`` is the number of heads of values and of attention; a head has ``width`` features. ``layout`` is of dense operands: "", "misaligned",
    "pitched" or "transposed".
    """

    call: str
    graph: Graph
    width: int
    reduce: str = "sum"
    values: bool = False
    heads: int = 0
    layout: str = ""

    @property
    def is_step(self) -> bool:
        return self.call.endswith("step")

    @property
    def name(self) -> str:
        index = "int64" if self.graph.index == torch.int64 else ""
        features = f"{self.heads}x{self.width}" if self.heads else str(self.width)
        values = "values" if self.values else ""
        reduce = "" if self.reduce == "sum" else self.reduce
        return " ".join(filter(None, (self.layout, self.graph.title, "x", features, values, reduce, index)))

    def _dense(self, m: Maker, rows: int) -> torch.Tensor:
        features = (self.heads, self.width) if self.heads else (self.width,)
        row = features[0] * features[-1] if self.heads else self.width
        if self.layout == "misaligned":
            return m.misaligned(rows * row).view(rows, *features)
        if self.layout == "pitched":
            return m.columns(rows, row, row + 5).unflatten(1, features)
        if self.layout == "transposed":
            return m(*features, rows).movedim(-1, 0)
        return m(rows, *features)

    def build(self, dtype: torch.dtype, device: str, seed: int) -> tuple:
        m = Maker(device, dtype, seed)
        rows, columns = self.graph.shape
        made: tuple = structure(self.graph, device, seed, self.is_step)
        entries = self.graph.entries
        if self.call.startswith("spmm"):
            value = m(entries, *([self.heads] if self.heads else [])) if self.values else None
            made += value, self._dense(m, columns), self.reduce
        elif self.call.startswith("sddmm"):
            made += self._dense(m, rows), self._dense(m, columns)
        elif self.call.startswith("graph"):
            made += self._dense(m, rows), self._dense(m, columns), self._dense(m, columns)
        else:
            made += m(rows, self.heads), m(columns, self.heads), self._dense(m, columns)
        if self.is_step:
            of_entries = self.call.startswith("sddmm")
            features = [self.heads] * bool(self.heads) + [self.width] * (not of_entries)
            made += (m(entries if of_entries else rows, *features),)
        return made

    def moved(self, dtype: torch.dtype) -> tuple[int, int]:
        """(bytes read, bytes written)"""
        graph, (rows, columns), size = self.graph, self.graph.shape, dtype.itemsize
        heads = max(self.heads, 1)
        row, scalars = heads * self.width * size, graph.entries * heads * size
        dense = graph.gathered_bytes(row)
        if self.call.startswith("spmm"):
            read, written = graph.structure_bytes + dense + scalars * self.values, rows * row
            if self.is_step:
                read += graph.structure_bytes + graph.gathered_bytes(row, rows)
                written += columns * row
                if self.values:
                    # The values of the transpose, and the products that are the gradient of the values.
                    read += graph.entries * graph.index.itemsize + scalars + graph.structure_bytes + dense + rows * row
                    written += scalars
        elif self.call.startswith("sddmm"):
            read, written = graph.structure_bytes + dense + rows * row, scalars
            if self.is_step:
                read += 2 * (graph.structure_bytes + scalars) + dense + graph.gathered_bytes(row, rows)
                written += (rows + columns) * row
        else:
            scores = dense + rows * row if self.call.startswith("graph") else (rows + columns) * heads * size
            passes = 3 if self.is_step else 1
            read, written = passes * (graph.structure_bytes + dense + scores), passes * rows * row
        return read, written

    def case(self, op: str, dtype: torch.dtype, **options) -> Case:
        build, moved = (functools.partial(f, dtype) for f in (self.build, self.moved))
        return Case(op, self.call, self.name, DTYPE_NAMES[dtype], build, moved=moved, **options)


WIDTHS = (32, 64, 128, 256)
GRAPHS = (ARXIV, REDDIT, PRODUCTS, ORKUT)


def _cases() -> list[Case]:
    cases = []

    def add(op: str, what: Product, *peers: Peer, headline: bool = True) -> None:
        cases.extend(what.case(op, dtype, headline=headline, peers=peers) for dtype in (F32, BF16))

    for graph in GRAPHS:
        for width in WIDTHS:
            compiled = (INDUCTOR_GATHERED,) if graph is ARXIV and width == 128 else ()
            add("spmm-sum", Product("spmm", graph, width), *CUSPARSE, GATHER, *compiled)
    for graph in GRAPHS:
        headline = graph in (ARXIV, PRODUCTS)
        add("spmm-sum", Product("spmm", uniform(graph), 128), *CUSPARSE, GATHER, headline=headline)
        add("spmm-values", Product("spmm", graph, 128, values=True), *CUSPARSE, GATHER, headline=headline)
        add("spmm-step", Product("spmm step", graph, 128), GATHER, headline=graph is not ORKUT)
        for reduce in ("mean", "max"):
            add(f"spmm-{reduce}", Product("spmm", graph, 128, reduce), GATHER, headline=graph is ARXIV)
        add("sddmm", Product("sddmm", graph, 128), GATHER, headline=headline)
    for width in WIDTHS:
        add("spmm-values", Product("spmm", REDDIT, width, values=True), *CUSPARSE, headline=False)
        add("sddmm", Product("sddmm", REDDIT, width), headline=False)
    add("spmm-step", Product("spmm step", ARXIV, 128, values=True))
    for graph, width in itertools.product((CORA, ARXIV), (1, 8)):
        add("spmm-values", Product("spmm", graph, width, values=True), *CUSPARSE, GATHER, headline=False)
        add("sddmm", Product("sddmm", graph, width), headline=False)
    for call in ("graph_attention", "gat_attention"):
        for step in ("", " step"):
            what = Product(call + step, ARXIV, 32, heads=4)
            add(call + step.replace(" ", "-"), what, *[INDUCTOR_GATHERED] * (not step))
    return list({case.title: case for case in cases}.values()) + bags.cases()


# ---------------------------------------------------------------- call times


def _small(device: str, requires_grad: bool) -> dict:
    """Operands so small that the kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    a = structure(Graph("tiny", 256, 1024), device, 0)
    coo = torch.stack([a.index, a.row]).long()
    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "csr": torch_ops.CSR.from_edge_index(coo, num_nodes=256).cache_transpose(),
        "sparse": _sparse(a, torch.ones(1024, device=device), 256),
        "x": torch.randn(256, 16, device=device, requires_grad=requires_grad),
        "g": torch.ones(256, 16, device=device),
    }


def _call_times() -> list[CallTime]:
    product = {"gpuopt": "torch_ops.spmm(csr, x)", "torch.sparse": "torch.sparse.mm(sparse, x)"}
    backward = {name: f"torch.autograd.grad({stmt}, x, g)" for name, stmt in product.items()}
    return [
        CallTime("spmm-sum", "no grad", product, functools.partial(_small, requires_grad=False)),
        CallTime("spmm-step", "forward + backward", backward, functools.partial(_small, requires_grad=True)),
    ]


ROOM = Room(name="spmm", cases=_cases(), calls=_calls, call_times=_call_times(), peers=(GATHER,))
