"""Triangles among the modules of PyTorch, with ``triangle_count`` and ``clustering_coefficients``.

The graph is real, and installed with torch: two modules are joined if one imports the other. Three modules that are joined to each other
are a triangle. Modules that import a common one often know each other, too, so there are many more triangles than in a random graph whose
modules have as many imports. The clustering coefficient of a module is the share of the pairs of its neighbours that are joined.
"""

from pathlib import Path

import networkx
import torch
from matplotlib.figure import Figure

import torch_ops
from examples import graph_convolutions

TITLE = "triangles"
REWIRED = 20  # random graphs
LEAST = 20  # neighbours of a module whose clustering is shown


def rewired(edges: torch.Tensor, seed: int) -> torch.Tensor:
    """Random imports. Each module imports, and is imported, as often as before."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([edges[0], edges[1, torch.randperm(edges.shape[1], generator=generator)]])


def degrees(edges: torch.Tensor, modules: int) -> torch.Tensor:
    """The neighbours of each module. Two modules that import each other are joined once."""
    pairs = edges.sort(0).values.unique(dim=1)
    return torch.bincount(pairs.flatten(), minlength=modules)


def by_networkx(edges: torch.Tensor, modules: int) -> tuple[list[int], list[float]]:
    """The triangles and the clustering coefficient of each module."""
    graph = networkx.Graph(edges.T.tolist())
    graph.add_nodes_from(range(modules))
    triangles, clustering = networkx.triangles(graph), networkx.clustering(graph)
    return [triangles[m] for m in range(modules)], [clustering[m] for m in range(modules)]


def picture(
    neighbours: torch.Tensor, clustering: torch.Tensor, names: list[str], real: int, random: list[int]
) -> Figure:
    figure = Figure(figsize=(14, 6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.4])
    left.bar(["imports of torch", "random imports"], [real, sum(random) / len(random)], color=["#08306b", "#9ecae1"])
    left.set(title="triangles, with the same numbers of imports", ylabel="triangles")
    right.scatter(neighbours, clustering, s=8, color="#08306b", alpha=0.4)
    right.set_xscale("log")
    right.set(title="modules", xlabel="neighbours", ylabel="clustering coefficient")
    for module in neighbours.argsort(descending=True)[:6].tolist():
        right.annotate(names[module], (neighbours[module], clustering[module]), fontsize=8, rotation=30)
    right.grid(alpha=0.3)
    return figure


def run(report):
    names, imports = graph_convolutions.read(Path(torch.__file__).parent)
    edges, modules = torch.tensor(imports).T, len(names)
    on_device = edges.to(report.device)
    each = torch_ops.triangle_count(on_device, per_vertex=True, num_nodes=modules)
    clustering = torch_ops.clustering_coefficients(on_device, num_nodes=modules, dtype=torch.float64).cpu()
    triangles = int(torch_ops.triangle_count(on_device, num_nodes=modules))
    random = [
        int(torch_ops.triangle_count(rewired(edges, seed).to(report.device), num_nodes=modules))
        for seed in range(REWIRED)
    ]
    of_each, shares = by_networkx(edges, modules)
    assert each.tolist() == of_each and triangles == sum(of_each) // 3
    torch.testing.assert_close(clustering, torch.tensor(shares, dtype=torch.float64))
    mean = sum(random) / REWIRED
    report.note(
        f"torch has {modules} modules and {len(imports)} imports, with {triangles} triangles. Random imports between the same\n"
        f"  modules have {mean:.0f}, {triangles / mean:.1f} times fewer. networkx counts the same triangles and clustering coefficients"
    )
    neighbours = degrees(edges, modules)
    known = torch.where(neighbours >= LEAST, clustering, -1.0)
    most = known.argsort(descending=True)[:3].tolist()
    report.note(
        f"  most clustered, of modules with {LEAST} neighbours and more: "
        + ", ".join(f"{names[m]} ({clustering[m]:.2f})" for m in most)
    )
    assert triangles > 1.5 * mean
    path = report.folder / "triangles.png"
    picture(neighbours, clustering, names, triangles, random).savefig(path, dpi=100)
    report.wrote(path)
