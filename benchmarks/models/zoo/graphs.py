"""Graph networks from torch-geometric: rows are gathered at one end of every edge and added at the other.

The graph has the size of ogbn-arxiv. Both ends of an edge follow a Zipf law, so few nodes have most of the edges, as in social graphs.
"""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.models.zoo import Model, Task, deterministic

NODES, EDGES, WIDTH, CLASSES, LAYERS = 170_000, 1_200_000, 256, 40, 3
EXPONENT = 0.8  # with it, the largest node has about 2 % of the edges
SIZES = f"{NODES // 1000}k nodes, {EDGES / 1e6:g}M edges (Zipf), {LAYERS} layers of {WIDTH}"


def ends(nodes: int, edges: int) -> torch.Tensor:
    """Random nodes [edges]: the k-th of a random order has a probability proportional to k^-EXPONENT."""
    weights = torch.arange(1, nodes + 1, dtype=torch.float64) ** -EXPONENT
    drawn = torch.searchsorted(weights.cumsum(0) / weights.sum(), torch.rand(edges, dtype=torch.float64))
    return torch.randperm(nodes)[drawn.clamp(max=nodes - 1)]


class Network(nn.Module):
    """Layers that take (x, edge_index, *edge_weight), with ReLU between them."""

    def __init__(self, layers: list[nn.Module]):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, *edge_weight: torch.Tensor) -> torch.Tensor:
        # x [nodes, WIDTH], edge_index [2, edges], edge_weight [edges]; the result is [nodes, CLASSES].
        for layer in self.layers[:-1]:
            x = F.relu(layer(x, edge_index, *edge_weight))
        return self.layers[-1](x, edge_index, *edge_weight)


def task(layer, tiny: bool, weighted: bool = False) -> Task:
    """``layer(n, m)`` makes a layer from n to m features."""
    nodes, edges, width = (50, 300, 16) if tiny else (NODES, EDGES, WIDTH)
    edge_index = torch.stack([ends(nodes, edges), ends(nodes, edges)])
    extra: tuple[torch.Tensor, ...] = ()
    if weighted:
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        # Normalised once, as training on one graph does with cached=True.
        edge_index, weight = gcn_norm(edge_index, num_nodes=nodes, dtype=torch.float32)
        extra = (weight,)
    widths = [width] * LAYERS + [CLASSES]
    network = Network([layer(n, m) for n, m in zip(widths, widths[1:])])
    inputs = (torch.randn(nodes, width), edge_index, *extra)
    return Task(network, inputs, (torch.randint(0, CLASSES, (nodes,)),), F.cross_entropy)


def gcn(tiny: bool) -> Task:
    """Kipf and Welling, arXiv:1609.02907."""
    from torch_geometric.nn import GCNConv

    return task(lambda n, m: GCNConv(n, m, normalize=False), tiny, weighted=True)


def sage(tiny: bool) -> Task:
    """Hamilton, Ying and Leskovec, arXiv:1706.02216, with the mean of the neighbours."""
    from torch_geometric.nn import SAGEConv

    return task(SAGEConv, tiny)


def gin(tiny: bool) -> Task:
    """Xu et al., arXiv:1810.00826: the sum of the neighbours, then two linear layers."""
    from torch_geometric.nn import GINConv

    return task(lambda n, m: GINConv(nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, m))), tiny)


def gat(tiny: bool) -> Task:
    """Velickovic et al., arXiv:1710.10903: attention to the neighbours, with 4 heads of a quarter of the width and 1 in the last layer."""
    from torch_geometric.nn import GATConv

    def layer(n: int, m: int) -> nn.Module:
        heads = 1 if m == CLASSES else 4
        return GATConv(n, m // heads, heads, add_self_loops=False)

    return task(layer, tiny)


PLAIN = [
    Model("gcn", "GCN", SIZES, gcn, "torch_geometric"),
    Model("sage", "GraphSAGE", SIZES, sage, "torch_geometric"),
    Model("gin", "GIN", SIZES, gin, "torch_geometric"),
    Model("gat", "GAT", f"{SIZES}, 4 heads", gat, "torch_geometric"),
]
MODELS = PLAIN + [deterministic(model) for model in PLAIN]
