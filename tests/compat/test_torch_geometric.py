"""``compat.install("torch_geometric")``: layers and functions with it against the same without it."""

from __future__ import annotations

import contextlib
import copy
import gc
import subprocess
import sys
import warnings
from types import FunctionType

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from torch_ops import compat
from torch_ops.compat import _graphs

from ..support.params import each_device
from ..support.runtime import deterministic_algorithms

pyg = pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")

from torch_geometric import EdgeIndex, utils  # noqa: E402
from torch_geometric import nn as layers  # noqa: E402
from torch_geometric.index import ptr2index  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402

from torch_ops.compat import _layers, _messages  # noqa: E402

NODES, EDGES, WIDTH = 24, 90, 6
HOOKS = ("propagate", "message", "aggregate")
FORMS = ("propagate", "edge_updater", "softmax", "spmm_of_sparse", "spmm_of_edge_index")


@pytest.fixture
def counts(monkeypatch):
    """How many calls each fused form has computed. CPU tensors are handled, too."""
    found = dict.fromkeys(FORMS, 0)

    def counted(name, form):
        def call(*args, **kwargs):
            result = form(*args, **kwargs)
            found[name] += result is not NotImplemented
            return result

        return call

    for name in FORMS:
        monkeypatch.setattr(_layers, name, counted(name, getattr(_layers, name)))
    monkeypatch.setattr(_graphs, "devices", {"cpu", "cuda"})
    yield found
    compat.uninstall("torch_geometric")


def kept() -> int:
    """How many results are kept."""
    return torch.ops.gpuopt._structure_count("torch_geometric")


@contextlib.contextmanager
def installed():
    assert compat.install("torch_geometric") == ["torch_geometric"]
    try:
        yield
    finally:
        compat.uninstall("torch_geometric")


def edges_between(sources: int, targets: int, count: int = EDGES, device="cpu") -> torch.Tensor:
    """Random edges, some of them twice and some from a node to itself. The last nodes have none."""
    generator = torch.Generator().manual_seed(count)
    ends = [torch.randint(n - 3, (count,), generator=generator) for n in (sources, targets)]
    edges = torch.stack(ends)
    edges[:, : count // 8] = edges[:, count // 2 : count // 2 + count // 8]
    edges[1, -4:] = edges[0, -4:] = torch.arange(4)[: edges[1, -4:].numel()]
    return edges.to(device)


def features(*shape, device="cpu", seed=0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(device).requires_grad_()


def derivatives(call, tensors) -> list[torch.Tensor]:
    """The result, its gradients, and the gradients of those."""
    torch.manual_seed(1)  # of dropout
    out = call()
    if not tensors:
        return [out.detach()]
    weights = features(*out.shape, device=out.device, seed=7).detach()
    first = torch.autograd.grad(out, tensors, weights, create_graph=True, allow_unused=True)
    used = [(x, g) for x, g in zip(tensors, first) if g is not None and g.requires_grad]
    found = [out, *(g for g in first if g is not None)]
    if used:
        total = sum((g * features(*g.shape, device=g.device, seed=9).detach()).sum() for _, g in used)
        second = torch.autograd.grad(total, tensors, allow_unused=True)
        found += [torch.zeros_like(x) if g is None else g for x, g in zip(tensors, second)]
    return [x.detach() for x in found]


def same(call, tensors=(), reference=None) -> None:
    """Compares a call with and without gpuopt, and two calls with gpuopt under PyTorch's deterministic mode, which are bitwise
    equal. Without the mode, PyTorch's own operators in a layer may add in any order."""
    expected = derivatives(reference or call, tensors)
    with installed():
        found = derivatives(call, tensors)
        with deterministic_algorithms():
            again, once_more = derivatives(call, tensors), derivatives(call, tensors)
    for got, want, one, other in zip(found, expected, again, once_more, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
        assert torch.equal(one, other)


def _mlp():
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 4))


LAYERS = {
    "GCN": (lambda **flow: layers.GCNConv(WIDTH, 4, **flow), 1),
    "GCN plain": (lambda **flow: layers.GCNConv(WIDTH, 4, normalize=False, **flow), 1),
    "GCN mean": (lambda **flow: layers.GCNConv(WIDTH, 4, aggr="mean", **flow), 1),
    "GCN max": (lambda **flow: layers.GCNConv(WIDTH, 4, aggr="max", **flow), 1),
    "SAGE mean": (lambda **flow: layers.SAGEConv(WIDTH, 4, **flow), 0),
    "SAGE sum": (lambda **flow: layers.SAGEConv(WIDTH, 4, aggr="sum", **flow), 0),
    "SAGE max": (lambda **flow: layers.SAGEConv(WIDTH, 4, aggr="max", project=True, **flow), 0),
    "SAGE min": (lambda **flow: layers.SAGEConv(WIDTH, 4, aggr="min", **flow), 0),
    "GIN": (lambda **flow: layers.GINConv(_mlp(), train_eps=True, **flow), 0),
    "Graph": (lambda **flow: layers.GraphConv(WIDTH, 4, **flow), 1),
    "Graph mean": (lambda **flow: layers.GraphConv(WIDTH, 4, aggr="mean", **flow), 1),
    "Graph min": (lambda **flow: layers.GraphConv(WIDTH, 4, aggr="min", **flow), 1),
    "GAT": (lambda **flow: layers.GATConv(WIDTH, 4, heads=3, **flow), 0),
    "GAT dropout": (lambda **flow: layers.GATConv(WIDTH, 4, heads=2, dropout=0.4, concat=False, **flow), 0),
    "GAT bare": (lambda **flow: layers.GATConv(WIDTH, 4, add_self_loops=False, **flow), 0),
    "GATv2": (lambda **flow: layers.GATv2Conv(WIDTH, 4, heads=2, **flow), 0),
    "Transformer": (lambda **flow: layers.TransformerConv(WIDTH, 4, heads=2, dropout=0.3, **flow), 0),
    "SGC": (lambda **flow: layers.SGConv(WIDTH, 4, K=2, **flow), 1),
    "APPNP": (lambda **flow: layers.APPNP(K=3, alpha=0.1, **flow), 1),
    "Chebyshev": (lambda **flow: layers.ChebConv(WIDTH, 4, K=3, **flow), 1),
    "TAG": (lambda **flow: layers.TAGConv(WIDTH, 4, **flow), 1),
}
BOTH_WAYS = [name for name in LAYERS if name != "Chebyshev"]  # it works in one direction only


@each_device
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_the_same(counts, name, device):
    make, is_weighted = LAYERS[name]
    torch.manual_seed(0)
    layer, edges = make().double().to(device), edges_between(NODES, NODES, device=device)
    x, weight = features(NODES, WIDTH, device=device), features(EDGES, device=device, seed=3)
    same(lambda: layer(x, edges), [x, *layer.parameters()])
    assert counts["propagate"] >= 2
    if is_weighted:
        positive = weight.detach().abs().requires_grad_()
        same(lambda: layer(x, edges, positive), [x, positive, *layer.parameters()])


@pytest.mark.parametrize("name", BOTH_WAYS)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_messages_go_both_ways(counts, name, flow):
    torch.manual_seed(0)
    layer, edges, x = LAYERS[name][0](flow=flow).double(), edges_between(NODES, NODES), features(NODES, WIDTH)
    same(lambda: layer(x, edges), [x])
    same(lambda: layer(x, edges[:, edges[1].argsort()]), [x])
    # These two send a pair of different tensors.
    assert counts["propagate"] >= 4 or (flow == "target_to_source" and name in ("SAGE max", "GATv2"))


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_graph_without_edges(counts, name):
    torch.manual_seed(0)
    layer, edges, x = LAYERS[name][0]().double(), torch.empty(2, 0, dtype=torch.int64), features(NODES, WIDTH)
    same(lambda: layer(x, edges), [x])
    assert counts["propagate"] >= 2


BIPARTITE = {
    "SAGE": lambda: layers.SAGEConv((WIDTH, 5), 4),
    "SAGE max": lambda: layers.SAGEConv((WIDTH, 5), 4, aggr="max"),
    "Graph": lambda: layers.GraphConv((WIDTH, 5), 4),
    "GAT": lambda: layers.GATConv((WIDTH, 5), 4, heads=2, add_self_loops=False),
    "GATv2": lambda: layers.GATv2Conv((WIDTH, 5), 4, heads=2, add_self_loops=False),
    "Transformer": lambda: layers.TransformerConv((WIDTH, 5), 4, heads=2),
}


@pytest.mark.parametrize("name", BIPARTITE)
def test_a_bipartite_graph(counts, name):
    torch.manual_seed(0)
    layer, edges = BIPARTITE[name]().double(), edges_between(NODES, 11)
    x = features(NODES, WIDTH), features(11, 5, seed=4)
    same(lambda: layer(x, edges), x)
    if name in ("SAGE", "SAGE max", "Graph"):
        same(lambda: layer((x[0], None), edges, size=(NODES, 11)), x[:1])
    assert counts["propagate"] >= 2


def test_a_bipartite_graph_backwards(counts):
    torch.manual_seed(0)
    edges, x = edges_between(NODES, NODES), (features(NODES, WIDTH), features(NODES, WIDTH, seed=4))
    for layer in (layers.SAGEConv((WIDTH, WIDTH), 4, flow="target_to_source"), layers.GraphConv((WIDTH, WIDTH), 4)):
        layer = layer.double()
        same(lambda layer=layer: layer(x, edges), x)


@pytest.mark.parametrize("name", ["GCN plain", "SAGE mean", "GIN", "Graph", "SAGE max"])
def test_features_with_a_batch_dimension(counts, name):
    torch.manual_seed(0)
    layer, edges, x = LAYERS[name][0]().double(), edges_between(NODES, NODES), features(3, NODES, WIDTH)
    same(lambda: layer(x, edges), [x])
    assert counts["propagate"] >= 2


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["GCN", "SAGE mean", "SAGE sum", "SAGE max", "GAT", "Transformer", "GIN"])
def test_lower_precision(counts, name, dtype, device):
    """Results and gradients are as exact as the layer's own, up to what another order of additions changes.

    Maxima have no gradients here. Rounded features are often equal, and gradients of equal maxima are defined differently.
    """
    torch.manual_seed(0)
    edges = edges_between(NODES, NODES, 4 * EDGES, device)
    rounded = LAYERS[name][0]().eval().to(device, dtype)
    x = features(NODES, WIDTH, device=device).detach().to(dtype)
    weights = features(NODES, rounded(x, edges).shape[1], device=device, seed=7).detach().to(dtype)

    def computed(kind: torch.dtype) -> list[torch.Tensor]:
        layer, leaf = copy.deepcopy(rounded).to(kind), x.to(kind).requires_grad_()
        out = layer(leaf, edges)
        leaves = [] if name == "SAGE max" else [leaf, *layer.parameters()]
        gradients = torch.autograd.grad(out, leaves, weights.to(kind)) if leaves else ()
        return [out.detach(), torch.cat([g.flatten() for g in gradients] or [out.detach()])]

    exact, without = computed(torch.float64), computed(dtype)
    with installed():
        found = computed(dtype)
    assert counts["propagate"] == 1 and {part.dtype for part in found} == {dtype}
    norm = torch.linalg.vector_norm
    for got, theirs, want in zip(found, without, exact, strict=True):
        assert norm(got - want) <= 1.5 * norm(theirs - want) + torch.finfo(dtype).eps / 8 * norm(want)


def test_weights_of_a_wider_dtype(counts):
    layer = layers.GraphConv(WIDTH, 4, bias=False)
    layer.lin_rel = layer.lin_root = nn.Identity()
    x, edges = features(NODES, WIDTH).detach().bfloat16(), edges_between(NODES, NODES)
    weight = features(EDGES).detach().float()
    without = layer((x, None), edges, weight, size=(NODES, NODES))
    with installed():
        found = layer((x, None), edges, weight, size=(NODES, NODES))
    assert found.dtype == without.dtype == torch.float32 and counts["propagate"] == 1
    torch.testing.assert_close(found, without, rtol=1e-5, atol=1e-5)


def test_returned_attention_is_the_same(counts):
    torch.manual_seed(0)
    x, edges = features(NODES, WIDTH), edges_between(NODES, NODES)
    for layer in (layers.GATConv(WIDTH, 4, heads=2), layers.TransformerConv(WIDTH, 4, heads=2)):
        layer = layer.double()
        out, (index, alpha) = layer(x, edges, return_attention_weights=True)
        with installed():
            found, (found_index, found_alpha) = layer(x, edges, return_attention_weights=True)
        assert torch.equal(index, found_index)
        torch.testing.assert_close(found_alpha, alpha)
        torch.testing.assert_close(found, out)


def test_inference_mode_leaves_nothing_that_training_cannot_use(counts):
    torch.manual_seed(0)
    edges, x = edges_between(NODES, NODES), features(NODES, WIDTH)
    for name in ("GCN", "GAT", "SAGE mean"):
        layer = LAYERS[name][0]().double()
        expected = layer(x, edges)
        with installed():
            with torch.inference_mode():
                torch.testing.assert_close(layer(x, edges), expected)
                torch.testing.assert_close(layer(x, edges.clone()), expected)
            out = layer(x, edges)
            out.sum().backward()
        torch.testing.assert_close(out, expected)
    assert counts["propagate"] >= 6


# ---------------------------------------------------------------- what is left to the layers


def test_hooks_see_what_they_saw(counts):
    layer, x, edges = layers.SAGEConv(WIDTH, 4).double(), features(NODES, WIDTH), edges_between(NODES, NODES)
    with installed():
        expected = layer(x, edges)
        assert counts["propagate"] == 1
        for name in HOOKS:
            seen = []
            handles = [
                getattr(layer, f"register_{name}_forward_pre_hook")(lambda *given, to=seen: to.append(given)),
                getattr(layer, f"register_{name}_forward_hook")(lambda *given, to=seen: to.append(given)),
            ]
            torch.testing.assert_close(layer(x, edges), expected)
            assert len(seen) == 2
            for handle in handles:
                handle.remove()
        seen = []
        handle = layer.aggr_module.register_forward_hook(lambda *given: seen.append(given))
        torch.testing.assert_close(layer(x, edges), expected)
        assert len(seen) == 1 and counts["propagate"] == 1
        handle.remove()
        layer(x, edges)
        assert counts["propagate"] == 2


def test_edge_update_hooks(counts):
    layer, x, edges = layers.GATConv(WIDTH, 4).double(), features(NODES, WIDTH), edges_between(NODES, NODES)
    seen = []
    with installed():
        expected = layer(x, edges)
        assert counts["edge_updater"] == 1
        layer.register_edge_update_forward_hook(lambda *given: seen.append(given))
        torch.testing.assert_close(layer(x, edges), expected)
    assert len(seen) == 1 and counts["edge_updater"] == 1


def test_other_methods_are_left_alone(counts):
    class Doubled(layers.SAGEConv):
        def message(self, x_j):
            return 2 * x_j

    class Updated(layers.SAGEConv):
        def update(self, inputs):
            return -inputs

    class Sorted(layers.SAGEConv):
        def aggregate(self, inputs, index, dim_size=None):
            return super().aggregate(inputs, index, dim_size=dim_size) + 1

    x, edges = features(NODES, WIDTH), edges_between(NODES, NODES)
    for layer in (Doubled, Updated, Sorted):
        torch.manual_seed(0)
        made = layer(WIDTH, 4).double()
        same(lambda made=made: made(x, edges), [x])
    own = layers.SAGEConv(WIDTH, 4).double()
    own.message = lambda x_j: 3 * x_j
    same(lambda: own(x, edges), [x])
    for aggr in (["mean", "max"], "lstm", "median", "mul", "std"):
        made = layers.SAGEConv(WIDTH, 4, aggr=aggr).double()
        ordered = edges[:, edges[1].argsort()]
        same(lambda made=made, ordered=ordered: made(x, ordered), [])
    with installed():
        explained = layers.SAGEConv(WIDTH, 4).double()
        expected = explained(x, edges)
        assert counts["propagate"] == 1
        explained.explain, explained._edge_mask, explained._apply_sigmoid = True, torch.ones(EDGES).double(), False
        torch.testing.assert_close(explained(x, edges), expected)
        decomposed = layers.GCNConv(WIDTH, 4, decomposed_layers=2).double()
        decomposed(x, edges)
    assert counts["propagate"] == 1


def test_a_layer_of_the_user(counts):
    class Mine(MessagePassing):
        def __init__(self):
            super().__init__(aggr="add")

        def forward(self, h, edge_index, strength):
            return self.propagate(edge_index, h=h, strength=strength)

        def message(self, h_j, strength):
            """A weighted message."""
            return strength.view(-1, 1) * h_j

    x, strength, edges = features(NODES, WIDTH), features(EDGES, seed=5), edges_between(NODES, NODES)
    layer = Mine()
    same(lambda: layer(x, edges, strength), [x, strength])
    assert counts["propagate"] == 3
    with installed():

        class Later(Mine):
            pass

        Later()(x, edges, strength)
        assert counts["propagate"] == 4
    for layer in (Mine, Later):
        for name, value in vars(layer).items():
            assert not hasattr(value, "__wrapped__"), name


def test_errors_are_those_of_the_layer(counts):
    layer, x = layers.SAGEConv(WIDTH, 4).double(), features(NODES, WIDTH)
    high = torch.tensor([[0, NODES], [1, 1]])
    for edges, size in ((high, None), (-high, None), (high[:, :1], (NODES + 1, NODES)), (high.double(), None)):
        with pytest.raises((IndexError, ValueError, RuntimeError)) as without:
            layer(x, edges, size=size)
        with installed(), pytest.raises(type(without.value)) as found:
            layer(x, edges, size=size)
        assert str(found.value) == str(without.value)
    assert counts["propagate"] == 0


def test_compiled_and_scripted_layers_are_their_own(counts):
    x, edges = features(NODES, WIDTH), edges_between(NODES, NODES)
    layer = layers.GCNConv(WIDTH, 4).double()
    expected = layer(x, edges)
    with installed():
        torch.testing.assert_close(torch.compile(layer, backend="eager", fullgraph=True)(x, edges), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted = torch.jit.script(layer)
        torch.testing.assert_close(scripted(x, edges), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(layers.GCNConv(WIDTH, 4).double())
    scripted(x, edges)
    assert counts["propagate"] == 0


@each_device
@pytest.mark.parametrize("name", ["GCN", "SAGE mean", "SAGE max", "GAT", "Transformer"])
def test_forward_mode(counts, name, device):
    layer, edges = LAYERS[name][0]().double().eval().to(device), edges_between(NODES, NODES, device=device)
    x, tangent = (features(NODES, WIDTH, device=device, seed=seed).detach() for seed in (0, 1))

    def derivative() -> torch.Tensor:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(layer(forward_ad.make_dual(x, tangent), edges)).tangent

    expected = derivative()
    with installed():
        torch.testing.assert_close(derivative(), expected)
    assert counts["propagate"] == 1


def test_install_warns_of_nothing():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compat.install("torch_geometric")
    finally:
        compat.uninstall("torch_geometric")


def test_functorch_transforms_are_the_layer_s_own(counts):
    layer, edges, x = layers.GCNConv(WIDTH, 4).double(), edges_between(NODES, NODES), features(3, NODES, WIDTH).detach()
    expected = torch.stack([layer(one, edges) for one in x])
    with installed():
        torch.testing.assert_close(torch.vmap(lambda one: layer(one, edges))(x), expected)
        torch.func.grad(lambda one: layer(one, edges).sum())(x[0])
        torch.testing.assert_close(layer(x[0], edges), expected[0])
    assert counts["propagate"] == 1


# ---------------------------------------------------------------- what is remembered


def test_an_edge_index_that_is_written_to(counts):
    layer, x, edges = layers.GCNConv(WIDTH, 4).double(), features(NODES, WIDTH), edges_between(NODES, NODES)
    with installed():
        layer(x, edges)
        for change in (
            lambda: edges.copy_(edges.flip(1).roll(5, 0)),
            lambda: edges[1].copy_(edges[1].flip(0)),
            lambda: edges.__setitem__((slice(None), 0), 3),
            lambda: edges.detach().add_(1).remainder_(NODES),
        ):
            change()
            torch.testing.assert_close(layer(x, edges), layer(x, edges.clone()))
        edges.data = edges.roll(7, 1)[:, :50]  # another storage, the same object and version
        torch.testing.assert_close(layer(x, edges), layer(x, edges.clone()))


def test_a_graph_is_sorted_once(counts, monkeypatch):
    sorts = []
    monkeypatch.setattr(_graphs, "group_by", lambda *given, by=_graphs.group_by: sorts.append(given) or by(*given))
    x, edges = features(NODES, WIDTH), edges_between(NODES, NODES)
    for name in ("GCN", "GAT", "SAGE mean", "Transformer", "GATv2"):
        layer = LAYERS[name][0]().double()
        sorts.clear()
        fresh = edges.clone()
        with installed():
            for _ in range(3):
                layer(x, fresh).sum().backward()
        assert len(sorts) == 1, name


def test_self_loops_are_added_once_and_again_after_a_write(counts):
    layer, x, edges = layers.GATConv(WIDTH, 4, heads=2).double(), features(NODES, WIDTH), edges_between(NODES, NODES)
    with installed():
        expected, (first, _) = layer(x, edges, return_attention_weights=True)
        _, (second, _) = layer(x, edges, return_attention_weights=True)
        assert second is first
        first.zero_()  # a caller may do what it likes with its result
        found, (third, _) = layer(x, edges, return_attention_weights=True)
        assert third is not first
        torch.testing.assert_close(found, expected)
    a, b = utils.add_self_loops(edges)[0], utils.add_self_loops(edges)[0]
    assert a is not b
    with installed():
        a, b = utils.add_self_loops(edges)[0], utils.add_self_loops(edges)[0]
        assert a is not b  # only layers share it


def test_writes_that_are_not_counted_are_refused(counts):
    """A collective, DLPack or a replayed CUDA graph writes so. What was remembered would be of other edges."""
    x = features(NODES, WIDTH)
    for name in ("GCN", "GAT", "SAGE mean"):
        layer, edges = LAYERS[name][0]().double(), edges_between(NODES, NODES)
        with installed():
            expected = layer(x, edges)
            torch.from_numpy(edges.numpy())[1, 3] += 1
            with pytest.raises(RuntimeError, match="an index was written to in a way that PyTorch does not count"):
                layer(x, edges)
            torch.from_numpy(edges.numpy())[1, 3] -= 1
            torch.testing.assert_close(layer(x, edges.clone()), expected)


_UNCOUNTED = """
import torch
from torch_ops import compat
from torch_geometric.nn import SAGEConv
compat.install("torch_geometric")
layer, x = SAGEConv(8, 4).cuda(), torch.randn(50, 8, device="cuda")
edges = torch.randint(50, (2, 300), device="cuda")
for _ in range(3):
    layer(x, edges)
edges.copy_(edges.flip(0))  # counted
layer(x, edges)
torch.cuda.synchronize()
torch.from_dlpack(edges.detach())[1, 3] += 1
try:
    layer(x, edges)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("device-side assert" in str(error))
"""


@pytest.mark.gpu
def test_writes_that_are_not_counted_fail_an_assertion():
    done = subprocess.run([sys.executable, "-c", _UNCOUNTED], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True" and "pass a copy of it" in done.stderr, done.stderr[-2000:]


def test_few_results_are_kept(counts):
    layer, x = layers.SAGEConv(WIDTH, 4).double(), features(NODES, WIDTH)
    graphs = [edges_between(NODES, NODES, 12 + n) for n in range(130)]
    with installed():
        for edges in graphs:
            layer(x, edges)
        assert kept() == 128
        graphs.clear()
        del edges
        gc.collect()
        assert not kept()
        layer(x, edges_between(NODES, NODES))
    assert not kept()


# ---------------------------------------------------------------- functions


@each_device
def test_normalisation_of_many_neighbours(counts, device):
    """A node of 1000 neighbours, whose degree no bfloat16 holds."""
    edges = torch.stack([torch.arange(1, 1001, device=device), torch.zeros(1000, dtype=torch.int64, device=device)])
    torch.manual_seed(0)
    layer = layers.GCNConv(1, 1, bias=False).to(device, torch.bfloat16)
    x = torch.ones(1001, 1, device=device, dtype=torch.bfloat16)
    want = copy.deepcopy(layer).double()(x.double(), edges)
    with installed():
        torch.testing.assert_close(layer(x, edges).double(), want, rtol=1e-2, atol=0)


@each_device
@pytest.mark.parametrize("shape", [(EDGES,), (EDGES, 3), (EDGES, 2, 3)])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_softmax(counts, shape, is_sorted, device):
    src, index = features(*shape, device=device), edges_between(NODES, NODES, device=device)[1]
    index = index.sort().values if is_sorted else index
    same(lambda: utils.softmax(src, index), [src])
    same(lambda: utils.softmax(src, index, num_nodes=NODES + 4, dim=-src.dim()), [src])
    ptr = torch.tensor([0, 0, 10, 11, 11, EDGES], device=device)
    # PyTorch Geometric's form has no second derivative.
    same(lambda: utils.softmax(src, ptr=ptr), [src], lambda: utils.softmax(src, ptr2index(ptr)))
    assert counts["softmax"] == 9
    same(lambda: utils.softmax(src.movedim(0, -1), index, dim=-1), [src])
    assert counts["softmax"] == (12 if len(shape) == 1 else 9)


def test_softmax_is_replaced_wherever_it_was_imported(counts):
    with installed():
        for module in (
            sys.modules["torch_geometric.nn.conv.gat_conv"],
            sys.modules["torch_geometric.nn.aggr.basic"],
            utils,
        ):
            module.softmax(features(4, 2), torch.tensor([0, 1, 0, 1]))
    assert counts["softmax"] == 3


@each_device
@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "max", "min"])
def test_spmm_of_sparse_tensors(counts, reduce, device):
    dense = features(NODES, 5, device=device)
    matrix = features(17, NODES).detach().relu()
    matrix[3] = 0
    sparse = matrix.to(device).to_sparse_csr()
    expected = []
    for values in (matrix.to(device),):
        entries = torch.where(values[:, :, None] != 0, values[:, :, None] * dense, torch.nan)
        zero = entries.isnan()
        if reduce in ("sum", "add", "mean"):
            out = entries.nan_to_num(0).sum(1)
            expected = out / (~zero).sum(1).clamp(min=1) if reduce == "mean" else out
        else:
            filled = torch.where(zero, -torch.inf if reduce == "max" else torch.inf, entries)
            out = filled.amax(1) if reduce == "max" else filled.amin(1)
            expected = torch.where(zero.all(1), 0, out)
    with installed():
        found = utils.spmm(sparse, dense, reduce)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(out.square().sum(), dense)[0] for out in (found, expected)]
        torch.testing.assert_close(*gradients)
        assert counts["spmm_of_sparse"] == 1
        leaf = sparse.detach().requires_grad_()
        utils.spmm(leaf, dense, reduce).sum().backward()
        assert leaf.grad.shape == sparse.shape
        if reduce in ("max", "min"):
            coo = matrix.to(device).to_sparse_coo()
            with pytest.warns(UserWarning, match="Converting sparse tensor to CSR"):
                torch.testing.assert_close(utils.spmm(coo, dense, reduce), expected)
            assert counts["spmm_of_sparse"] == 3


def test_layers_of_sparse_tensors(counts):
    torch.manual_seed(0)
    x, edges = features(NODES, WIDTH), edges_between(NODES, NODES).unique(dim=1)
    adj = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.shape[1]).double(), (NODES, NODES)).to_sparse_csr()
    for layer in (layers.SAGEConv(WIDTH, 4), layers.GINConv(_mlp()), layers.GraphConv(WIDTH, 4)):
        layer = layer.double()
        same(lambda layer=layer: layer(x, adj), [])
        torch.testing.assert_close(layer(x, adj), layer(x, edges))
    assert counts["spmm_of_sparse"] == 9
    assert not kept()  # uninstall forgets


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("transpose", [False, True])
def test_matmul_of_edge_index(counts, reduce, transpose):
    edges = edges_between(17, NODES)
    order = edges[1].argsort(stable=True) if transpose else edges[0].argsort(stable=True)
    index = EdgeIndex(edges[:, order], sort_order="col" if transpose else "row", sparse_size=(17, NODES))
    dense, value = features(17 if transpose else NODES, 5), features(EDGES, seed=2)
    for weight in (None, value):
        tensors = [dense] if weight is None else [dense, value]
        rows, columns = (edges[:, order][1], edges[:, order][0]) if transpose else edges[:, order]
        messages = dense[columns] * (1 if weight is None else weight[:, None])
        expected = utils.scatter(messages, rows, 0, NODES if transpose else 17, reduce)
        with installed():
            found = index.matmul(dense, weight, reduce=reduce, transpose=transpose)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(out.square().sum(), tensors) for out in (found, expected)]
        torch.testing.assert_close(*gradients)
    assert counts["spmm_of_edge_index"] == 2


@pytest.mark.parametrize("order", ["row", "col", None])
def test_layers_of_edge_index(counts, order):
    torch.manual_seed(0)
    edges, x = edges_between(NODES, NODES), features(NODES, WIDTH)
    index = EdgeIndex(edges, sparse_size=(NODES, NODES))
    index = index if order is None else index.sort_by(order).values
    graph = layers.GraphConv(WIDTH, 4).double()
    with installed():
        torch.testing.assert_close(graph(x, index), graph(x, edges))
    for layer in (layers.SAGEConv(WIDTH, 4), layers.GCNConv(WIDTH, 4), layers.GATConv(WIDTH, 4)):
        layer = layer.double()
        same(lambda layer=layer: layer(x, index), [x])
    assert counts["propagate"] + counts["spmm_of_edge_index"] >= 4


# ---------------------------------------------------------------- install and uninstall


def _everything() -> dict:
    """Every function of PyTorch Geometric's modules, and every attribute of its layers."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("torch_geometric"):
            found.update({(name, key): value for key, value in vars(module).items() if callable(value)})
    todo = [MessagePassing]
    while todo:
        layer = todo.pop()
        found.update({(layer, key): value for key, value in vars(layer).items() if callable(value)})
        todo += layer.__subclasses__()
    return found


def test_uninstall_puts_everything_back(counts):
    layers.GATConv(WIDTH, 4), layers.GCNConv(WIDTH, 4)
    before = _everything()
    for _ in range(2):
        with installed():
            assert compat.install("torch_geometric") == ["torch_geometric"]  # once more does nothing
            changed = [key for key, value in _everything().items() if before.get(key) is not value]
            names = {key[1] for key in changed}
            assert {"softmax", "spmm", "_spmm", "gcn_norm", "propagate", "edge_updater"} <= names
        after = _everything()
        assert all(after[key] is value for key, value in before.items())
    layers.SAGEConv(WIDTH, 4)
    assert not any(hasattr(value, "__wrapped__") and "_replacement" in repr(value) for value in after.values())


def test_all_names_leave_torch_geometric_alone():
    compat.install()
    try:
        assert not kept() and not hasattr(MessagePassing.propagate, "__wrapped__")
    finally:
        compat.uninstall()


def test_uninstall_without_names_includes_it():
    compat.install("torch_geometric")
    assert hasattr(MessagePassing.propagate, "__wrapped__")
    compat.uninstall()
    assert not hasattr(MessagePassing.propagate, "__wrapped__")


def test_layers_that_are_recognised():
    found = {
        name for name in dir(layers.conv) if _messages.product(getattr(getattr(layers.conv, name), "message", None))
    }
    assert {"GCNConv", "SAGEConv", "GINConv", "GraphConv", "GATConv", "GATv2Conv", "ChebConv", "APPNP"} <= found
    assert not {"EdgeConv", "GINEConv", "RGCNConv", "NNConv", "FAConv", "TransformerConv"} & found
    assert _messages.is_product_attention(layers.TransformerConv.message)
    assert _messages.is_additive_attention(layers.GATConv.edge_update)
    assert not _messages.is_additive_attention(layers.GATv2Conv.edge_update)


@pytest.mark.parametrize("changed", ["softmax", "F"])
def test_methods_that_call_other_functions_are_not_recognised(changed):
    """A user's copy of a layer has the same bytecode, also if a name in it is another function."""
    for method, is_known in (
        (layers.TransformerConv.message, _messages.is_product_attention),
        (layers.GATConv.edge_update, _messages.is_additive_attention),
    ):
        assert is_known(FunctionType(method.__code__, dict(method.__globals__)))
        assert not is_known(FunctionType(method.__code__, method.__globals__ | {changed: nn}))


def test_gcn_norm_is_normalised_once(counts):
    edges = edges_between(NODES, NODES)
    expected = gcn_norm(edges, num_nodes=NODES)
    module = sys.modules["torch_geometric.nn.conv.gcn_conv"]
    with installed():
        # A caller in the module of a layer.
        call = eval("lambda **options: gcn_norm(edges, **options)", vars(module) | {"edges": edges})
        first, second = call(num_nodes=NODES), call(num_nodes=NODES)
        assert all(a is b for a, b in zip(first, second))
        assert call(num_nodes=NODES, add_self_loops=False)[0] is edges
    torch.testing.assert_close(first, expected)
