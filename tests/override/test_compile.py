"""torch_ops.override in graphs that Inductor compiles: which additions of rows become gpuopt's, and with which results.

Without a GPU the pass acts on CPU tensors. Most tests trace as Inductor does and run the graph without generating code.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from ..support.compare import different_bits, different_metadata
from ..support.compiling import Graphs, gradients_of
from ..support.overriding import nothing_is_left, override, rows  # noqa: F401
from ..support.params import each_device
from ..support.runtime import deterministic_algorithms

pytestmark = [pytest.mark.torch_version, pytest.mark.usefixtures("fresh_dynamo")]

F32, BF16 = torch.float32, torch.bfloat16
ENTRIES = [0, 3, 3, 1, 0, 3]


def index_of(x, negative=False):
    entries = torch.tensor(ENTRIES, device=x.device)
    return torch.where(entries == 1, entries - 5, entries) if negative else entries


def column(index, source):
    return index.view(-1, 1).expand_as(source)


# Functions and the shapes of their operands. Each adds rows once, in its forward or in its backward.
ADDITIONS = {
    "x[i]": (lambda x: x[index_of(x, negative=True)] * 2, [(5, 4)]),
    "x[i, 2-d]": (lambda x: x[index_of(x, negative=True).view(2, 3)] * 2, [(5, 4)]),
    "x[:, i]": (lambda x: x[:, index_of(x, negative=True)] * 2, [(2, 5, 4)]),
    "x[:, i, 2-d]": (lambda x: x[:, index_of(x).view(2, 3)] * 2, [(2, 5, 4)]),
    "index_select": (lambda x: x.index_select(1, index_of(x)) * 2, [(2, 5, 4)]),
    "gather": (lambda x: x.gather(0, index_of(x)[:, None].expand(6, x.shape[1])), [(5, 4)]),
    "embedding": (lambda w: F.embedding(index_of(w).view(2, 3), w) * 2, [(5, 4)]),
    "embedding, padding": (lambda w: F.embedding(index_of(w), w, padding_idx=3) * 2, [(5, 4)]),
    "embedding, int32": (lambda w: F.embedding(index_of(w).int(), w) * 2, [(5, 4)]),
    "index_add": (lambda a, b: a.index_add(0, index_of(b), b * 2, alpha=2), [(5, 4), (6, 4)]),
    "index_add_, dim -2": (lambda b: b.new_zeros(2, 5, 4).index_add_(-2, index_of(b).int(), b * 2), [(2, 6, 4)]),
    "index_put": (lambda a, b: a.index_put((index_of(b, negative=True),), b, accumulate=True), [(5, 4), (6, 4)]),
    "scatter_add_": (lambda b: b.new_zeros(5, b.shape[1]).scatter_add_(0, column(index_of(b), b), b * 2), [(6, 4)]),
    "scatter_add, vector": (lambda a, b: a.scatter_add(0, index_of(b), b * 2), [(5,), (6,)]),
    "scatter_reduce_": (
        lambda b: b.new_zeros(b.shape[0], 5, b.shape[2]).scatter_reduce_(-2, column(index_of(b), b), b * 2, "sum"),
        [(2, 6, 4)],
    ),
}


@each_device
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [F32, BF16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ADDITIONS)
def test_results_and_gradients(name, dtype, dynamic, device):
    """Operands are small integers, so that results are exact in any order of additions."""
    function, shapes = ADDITIONS[name]
    operands = [rows(device, dtype, *shape) for shape in shapes]
    want = gradients_of(function, operands)
    graphs = Graphs()
    with override(device):
        got = gradients_of(torch.compile(function, fullgraph=True, backend=graphs, dynamic=dynamic), operands)
    for ours, theirs in zip(got, want, strict=True):
        assert different_metadata(ours, theirs) is None
        assert different_bits(ours, theirs) is None
    assert len(graphs.calls()) == 1
    for target in (torch.ops.aten.index_put, torch.ops.aten._unsafe_index_put, torch.ops.aten.index_add):
        assert not graphs.calls(target.default)


def test_embeddings_in_half_types_are_not_copied_to_float32():
    graphs = Graphs()
    w = rows("cpu", BF16, 5, 4)
    with override("cpu"):
        gradients_of(torch.compile(ADDITIONS["embedding"][0], backend=graphs), [w])
    assert graphs.modes() == ["accurate"]
    assert not graphs.calls(torch.ops.prims.convert_element_type.default)
    assert not graphs.calls(torch.ops.aten.where.self)  # the mask of a padding that does not exist


@pytest.mark.parametrize("name", ["x[i]", "embedding", "index_add", "scatter_add_"])
def test_deterministic(name):
    function, shapes = ADDITIONS[name]
    operands = [rows("cpu", BF16, *shape) for shape in shapes]
    graphs = Graphs()
    compiled = torch.compile(function, backend=graphs)
    with override("cpu"):
        for deterministic in (False, True):
            with deterministic_algorithms(deterministic):
                gradients_of(compiled, operands)
    assert graphs.modes() == ["accurate" if name == "embedding" else "fast", "deterministic"]


def test_counts():
    """Ones are added in float32, although Inductor would not store them: a count in bfloat16 stops at 256."""
    graphs = Graphs()
    index = torch.arange(1000) // 900
    compiled = torch.compile(
        lambda i: torch.zeros(3, dtype=BF16).index_add_(0, i, torch.ones(1000, dtype=BF16)), backend=graphs
    )
    with override("cpu"):
        assert compiled(index).tolist() == [900, 100, 0]
    assert graphs.modes() == ["accurate"]


# ---------------------------------------------------------------- what is left to Inductor

LEFT = {
    "two indices": lambda a, b: a.index_put((index_of(b), index_of(b)), b[:, 0], accumulate=True),
    "no accumulation": lambda a, b: a.index_put((index_of(b),), b),
    "a mask": lambda a, b: a.index_put((a[:, 0] > 0,), b[0, 0], accumulate=True),
    "one row for all": lambda a, b: a.index_put((index_of(b),), b[0], accumulate=True),
    "rows of one number": lambda a, b: a.index_add(0, index_of(b), torch.ones_like(b)),
    "a repeated column": lambda a, b: a.index_add(0, index_of(b), b[:, :1].expand(6, 4)),
    "single elements": lambda a, b: a.scatter_add(0, index_of(b)[:, None] + torch.arange(4) % 2, b),
    "fewer columns": lambda a, b: a.scatter_add(0, column(index_of(b), b)[:, :3], b),
    "a maximum": lambda a, b: a.scatter_reduce(0, column(index_of(b), b), b, "amax"),
    "a mean": lambda a, b: a.scatter_reduce(0, column(index_of(b), b), b, "mean"),
    "without self": lambda a, b: a.scatter_reduce(0, column(index_of(b), b), b, "sum", include_self=False),
    "a transposed self": lambda a, b: (a.t().contiguous() * 2).t().index_put((index_of(b),), b, accumulate=True),
    "integers": lambda a, b: a.long().index_add(0, index_of(b), b.long()),
}


@pytest.mark.parametrize("name", LEFT)
def test_left_to_inductor(name):
    a, b = rows("cpu", F32, 5, 4), rows("cpu", F32, 6, 4)
    want = LEFT[name](a, b)
    graphs = Graphs()
    with override("cpu"):
        got = torch.compile(LEFT[name], fullgraph=name != "a mask", backend=graphs)(a, b)
    assert different_bits(got, want) is None
    assert graphs.graphs and not graphs.calls()


@pytest.mark.parametrize(
    "used, program",
    [
        ("sum", None),
        ("index_add", "index_add"),
        ("index_put", "x[i]"),
        ("embedding_dense_backward", "embedding"),
        ("scatter_add", "scatter_add_"),
        ("scatter_reduce", "scatter_reduce_"),
    ],
)
def test_only_the_named_operators(used, program):
    """All of them are index_put in the graph, or may be."""
    for name in ("x[i]", "embedding", "index_add", "scatter_add_", "scatter_reduce_"):
        function, shapes = ADDITIONS[name]
        graphs = Graphs()
        with override("cpu", used):
            gradients_of(torch.compile(function, backend=graphs), [rows("cpu", F32, *shape) for shape in shapes])
        assert len(graphs.calls()) == (name == program), name


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "dtype, entries, columns, nodes, deterministic, taken",
    [
        (F32, 1 << 14, 128, 1 << 6, False, True),
        (F32, 1 << 13, 128, 1 << 5, False, False),
        (F32, 1 << 14, 128, 1 << 8, False, False),
        (BF16, 1 << 12, 64, 1 << 12, False, True),
        (F32, 1 << 10, 128, 1 << 12, True, True),
        (F32, 64, 16, 64, True, False),
    ],
)
def test_sizes(dtype, entries, columns, nodes, deterministic, taken, dynamic):
    """Only additions that are faster are replaced. Sizes that are symbols have the values of the example."""
    index, source = torch.arange(entries) % nodes, torch.ones(entries, columns, dtype=dtype)
    graphs = Graphs()
    compiled = torch.compile(
        lambda i, s: s.new_zeros(nodes, columns).index_add_(0, i, s * 2), backend=graphs, dynamic=dynamic
    )
    with deterministic_algorithms(deterministic):
        with override("cpu", always=False):
            compiled(index, source)
    assert len(graphs.calls()) == taken


def test_no_guards():
    """One graph is compiled for all sizes, as without the override."""
    graphs = Graphs()

    def function(x, i, s):
        return x[i.view(2, -1)].square().sum((0, 1)) + x.index_add(0, i, s).sum(0)

    compiled = torch.compile(function, backend=graphs, dynamic=True)
    with override("cpu"):
        for size in (6, 8, 20, 100):
            operands = rows("cpu", F32, size + 3, 4).requires_grad_(), torch.arange(size) % 3, rows("cpu", F32, size, 4)
            got, want = compiled(*operands), function(*operands)
            assert torch.equal(got, want)
            assert torch.equal(*(torch.autograd.grad(result.sum(), operands[0])[0] for result in (got, want)))
    assert len(graphs.graphs) == 2 and len(graphs.calls()) == 2
