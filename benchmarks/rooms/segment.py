"""Cases of segments, of scattered entries and of gathers: segment_reduce, segment_softmax, scatter_reduce, index_select and its gradient.

"molecules: 2^20 to 2^15 x 64" reduces 2^20 entries of 64 features in 2^15 segments. Segments are as long as the rows of a random
graph (benchmarks/rooms/graphs.py): a skew above 0.5 makes some segments much longer than the others. Offsets are int64, as ATen's are.

Peers: "ATen" is torch.segment_reduce, which then needs another pass for maxima of empty segments, Tensor.scatter_reduce_ into a tensor
of zeros, or the softmax of PyTorch Geometric. A copy of the entries is the measured ceiling: "share of ceiling" compares with it.
"""

from __future__ import annotations

import dataclasses
import functools

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.peers import INDUCTOR, Peer
from benchmarks.harness.room import Call, CallTime, Case, Room
from benchmarks.rooms import index_add
from benchmarks.rooms.graphs import ARXIV, Graph, structure
from benchmarks.rooms.index_add import rounded_once, sum_limit
from benchmarks.rooms.spmm import in_float64, with_gradients

I64 = torch.int64
OF_PYTORCH = {"max": "amax", "min": "amin"}  # the words of cases

# ---------------------------------------------------------------- calls


def segment_reduce(data, offsets, reduce):
    import torch_ops

    return torch_ops.segment_reduce(data, offsets, OF_PYTORCH.get(reduce, reduce))


def aten_segment_reduce(data, offsets, reduce):
    """Empty segments are 0, as in PyTorch Geometric."""
    if reduce in ("sum", "mean"):
        return torch.segment_reduce(data, reduce, offsets=offsets, initial=0)
    out = torch.segment_reduce(data, reduce, offsets=offsets)
    return out.masked_fill(out.isinf(), 0)


def segment_softmax(src, offsets):
    import torch_ops

    return torch_ops.segment_softmax(src, offsets)


def aten_segment_softmax(src, offsets):
    lengths, entries = offsets.diff(), src.shape[0]

    def expand(rows):
        return rows.repeat_interleave(lengths, 0, output_size=entries)

    weights = (src - expand(torch.segment_reduce(src.detach(), "max", offsets=offsets))).exp()
    return weights / expand(torch.segment_reduce(weights, "sum", offsets=offsets, initial=0))


def scatter_reduce(src, index, bins, reduce):
    import torch_ops

    return torch_ops.scatter(src, index, 0, bins, OF_PYTORCH.get(reduce, reduce))


def aten_scatter_reduce(src, index, bins, reduce):
    out = src.new_zeros(bins, *src.shape[1:])
    at = index.long().view(-1, *[1] * (src.dim() - 1)).expand_as(src)
    if reduce == "sum":
        return out.scatter_add_(0, at, src)
    return out.scatter_reduce_(0, at, src, OF_PYTORCH.get(reduce, reduce), include_self=False)


def index_select(rows, index):
    import torch_ops

    return torch_ops.index_select(rows, 0, index)


def aten_index_select(rows, index):
    return rows.index_select(0, index)


def _calls() -> dict[str, Call]:
    def both(name, ours, aten):
        """A call, and its forward and backward pass."""
        return {
            key: Call(change(ours), change(aten), in_float64(change(aten)), limit=sum_limit, gpuopt_limit=rounded_once)
            for key, change in ((name, lambda function: function), (f"{name} step", with_gradients))
        }

    return {
        **both("segment_reduce", segment_reduce, aten_segment_reduce),
        **both("segment_softmax", segment_softmax, aten_segment_softmax),
        **both("scatter_reduce", scatter_reduce, aten_scatter_reduce),
        **both("index_select", index_select, aten_index_select),
    }


# ---------------------------------------------------------------- problems


@dataclasses.dataclass(frozen=True)
class Segments:
    """A problem of one of the calls. Segments, or bins, are the rows of a graph; of a gather they are the rows that are read.

    ``layout`` is of the entries: "", "misaligned" or "pitched".
    """

    call: str
    graph: Graph
    width: int
    reduce: str = ""
    layout: str = ""

    @property
    def is_step(self) -> bool:
        return self.call.endswith("step")

    @property
    def name(self) -> str:
        skew = f"skew {self.graph.skew:.2f}" if self.graph.skew != 0.5 else ""
        label = f"{self.graph.name}:" if self.graph.name else ""
        sizes = self.graph.entries, self.graph.rows
        sizes = sizes[::-1] if self.call.startswith("index_select") else sizes
        index = "int32" if self.graph.index == torch.int32 else ""
        shape = " to ".join(map(index_add._size, sizes)) + f" x {self.width}"
        return " ".join(filter(None, (self.layout, label, shape, skew, self.reduce, index)))

    def _tensor(self, m: Maker, count: int) -> torch.Tensor:
        if self.width == 1:
            return m.misaligned(count) if self.layout == "misaligned" else m(count)
        if self.layout == "pitched":
            return m.columns(count, self.width, self.width + 3)
        return m.misaligned(count * self.width).view(count, -1) if self.layout == "misaligned" else m(count, self.width)

    def build(self, dtype: torch.dtype, device: str, seed: int) -> tuple:
        m = Maker(device, dtype, seed)
        a, (rows, entries) = structure(self.graph, device, seed), (self.graph.rows, self.graph.entries)
        reads_rows = self.call.startswith("index_select")
        first = self._tensor(m, rows if reads_rows else entries)
        if self.call.startswith("segment"):
            made = (first, a.ptr, self.reduce) if self.reduce else (first, a.ptr)
        else:
            # The columns of a graph, which are in no order.
            made = (first, a.index) if reads_rows else (first, a.index, rows, self.reduce)
        if self.is_step:
            made += (self._tensor(m, entries if reads_rows or not self.reduce else rows),)
        return made

    def moved(self, dtype: torch.dtype) -> tuple[int, int]:
        """(bytes read, bytes written)"""
        size, graph = self.width * dtype.itemsize, self.graph
        entries, rows = graph.entries * size, graph.rows * size
        index = (graph.rows + 1 if self.call.startswith("segment") else graph.entries) * graph.index.itemsize
        if self.call.startswith("index_select"):
            read, written = index + graph.touched(graph.rows) * size, entries
            return (read + index + entries, written + rows) if self.is_step else (read, written)
        read, written = index + entries, rows if self.reduce else entries
        if self.is_step and not self.reduce:
            return 2 * read + entries, 2 * written
        if self.is_step:
            extrema = self.reduce in ("max", "min")
            return read + index + rows + extrema * entries, written + entries
        return read, written

    def case(self, op: str, dtype: torch.dtype, **options) -> Case:
        build, moved = (functools.partial(f, dtype) for f in (self.build, self.moved))
        return Case(op, self.call, self.name, DTYPE_NAMES[dtype], build, moved=moved, **options)


MOLECULES = Graph("molecules", 1 << 15, 1 << 20, index=I64)
WORDS = Graph("words", 1 << 17, 1 << 22, 0.6, index=I64)
LONG = Graph("long", 1 << 10, 1 << 20, index=I64)
EDGES = dataclasses.replace(ARXIV, name="edges", index=I64)
NODES = dataclasses.replace(EDGES, name="nodes")


def _cases() -> list[Case]:
    cases = []

    def add(op: str, what: Segments, *peers: Peer, headline: bool = True) -> None:
        cases.extend(what.case(op, dtype, headline=headline, peers=peers) for dtype in (F32, BF16))

    shapes = [(MOLECULES, 64), (WORDS, 128), (EDGES, 64), (LONG, 64), (WORDS, 1)]
    for graph, width in shapes:
        add("segment_reduce-sum", Segments("segment_reduce", graph, width, "sum"))
        for reduce in ("mean", "max"):
            headline = (graph, width) == (MOLECULES, 64)
            add(f"segment_reduce-{reduce}", Segments("segment_reduce", graph, width, reduce), headline=headline)
        add("segment_reduce-step", Segments("segment_reduce step", graph, width, "sum"), headline=graph is MOLECULES)
    for width in (1, 4, 8):
        add("segment_softmax", Segments("segment_softmax", EDGES, width), INDUCTOR, headline=width == 4)
        add("segment_softmax-step", Segments("segment_softmax step", EDGES, width), headline=width == 4)
    for reduce in ("sum", "mean", "max"):
        for graph, width in ((EDGES, 64), (MOLECULES, 64), (WORDS, 1)):
            headline = graph is EDGES
            compiled = [INDUCTOR] * (headline and reduce == "max")
            add(
                f"scatter_reduce-{reduce}",
                Segments("scatter_reduce", graph, width, reduce),
                *compiled,
                headline=headline,
            )
    for width in (8, 16, 32, 64, 128, 256):
        headline = width in (16, 32, 128)
        add("index_select", Segments("index_select", NODES, width), *[INDUCTOR] * (width == 128), headline=headline)
        add("index_select-step", Segments("index_select step", NODES, width), headline=headline)
    return cases


# ---------------------------------------------------------------- call times


def _small(device: str, requires_grad: bool = False) -> dict:
    """Operands so small that the kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "x": torch.randn(1024, 16, device=device, requires_grad=requires_grad),
        "i": torch.randint(1024, (256,), device=device),
        "o": torch.arange(0, 1025, 8, device=device),
        "g": torch.ones(256, 16, device=device),
    }


def _call_times() -> list[CallTime]:
    select = {"gpuopt": "torch_ops.index_select(x, 0, i)", "ATen": "torch.index_select(x, 0, i)"}
    backward = {name: f"torch.autograd.grad({stmt}, x, g)" for name, stmt in select.items()}
    reduce = {
        "gpuopt": 'torch_ops.segment_reduce(x, o, "sum")',
        "ATen": 'torch.segment_reduce(x, "sum", offsets=o, initial=0)',
    }
    return [
        CallTime("index_select", "no grad", select, _small),
        CallTime("index_select-step", "forward + backward", backward, functools.partial(_small, requires_grad=True)),
        CallTime("segment_reduce-sum", "no grad", reduce, _small),
    ]


ROOM = Room(name="segment", cases=_cases(), calls=_calls, call_times=_call_times(), peers=())
