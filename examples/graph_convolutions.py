"""A graph convolutional network on the imports of PyTorch itself, with ``torch_ops.CSR`` and ``torch_ops.spmm``.

The graph is real, and installed with torch: its nodes are torch's Python modules, about 2000, and its edges say which module imports
which, about 10000. The network learns which package a module belongs to: torch.distributed, torch.fx, torch.nn and so on. It sees no
names and no text. It sees who imports whom, and the packages of ten modules of each.

Its layers come from T. Kipf and M. Welling, "Semi-Supervised Classification with Graph Convolutional Networks" (2017): a linear
layer, then for each node a weighted sum over its neighbours. The sum is a product with a sparse matrix, and its gradient is a product
with the transpose, which the matrix keeps.
"""

import re
from collections import Counter
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional

import torch_ops
from examples.digits import one_thread

TITLE = "graph convolutions"
# "from <1> import <2>" and "import <3>". A list in parentheses may go on in further lines.
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;\\]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
LEAST = 70  # modules of a package that is a class
LABELLED = 10  # of each class
WIDTH = 32
STEPS = 60
GRADIENT_TOLERANCE = 1e-5  # relative; rounding to float32 causes about 1e-6


class Modules(NamedTuple):
    """The modules of a package and their imports. ``imports`` has pairs of numbers in ``names``."""

    names: list[str]
    imports: list[tuple[int, int]]


def read(package: Path) -> Modules:
    """Reads the files of ``package``. Nothing is imported."""
    files = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    number = {name: index for index, name in enumerate(files)}
    found = set()
    for name, file in files.items():
        inside = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for imported in imports_of(file.read_text(errors="ignore"), inside, number):
            found.add((number[name], number[imported]))
    return Modules(list(files), sorted(pair for pair in found if pair[0] != pair[1]))


def imports_of(text: str, package: str, known) -> set[str]:
    """The modules among ``known`` that the text of a module of ``package`` imports."""
    found = set()
    for source, names, plain in IMPORT.findall(text):
        if plain:
            found.update(name.split(" as ")[0].strip() for name in plain.split(","))
        else:
            source = resolve_name(source, package) if source.startswith(".") else source
            words = (name.split(" as ")[0].strip() for name in re.sub(r"[()\n]", " ", names).split(","))
            # "from torch.nn import functional" imports a module, "from torch.nn import Linear" a name of one.
            found.update([f"{source}.{word}" for word in words if f"{source}.{word}" in known] or [source])
    return {name for name in found if name in known}


class Task(NamedTuple):
    """A graph whose nodes have classes. ``labels`` is -1 where a node has none."""

    graph: torch_ops.CSR
    labels: torch.Tensor
    classes: list[str]
    labelled: torch.Tensor
    others: torch.Tensor  # the nodes with a class that the network is not told


def normalised(nodes: int, edges: torch.Tensor) -> torch_ops.CSR:
    """The symmetric matrix with a 1 for each edge, in both directions, and for each node, divided by the roots of both degrees."""
    own = torch.arange(nodes, device=edges.device).expand(2, nodes)
    row, column = torch.cat([edges, edges.flip(0), own], 1).unique(dim=1).contiguous()
    graph = torch_ops.CSR.from_coo(row, column, shape=(nodes, nodes))
    scale = graph.degrees().float().rsqrt()
    return graph.with_values(scale[row] * scale[column])


def load(device: str) -> Task:
    """The imports of torch's modules. The larger packages are the classes."""
    modules = read(Path(torch.__file__).parent)
    package = [name.split(".")[1] if "." in name else "" for name in modules.names]
    classes = sorted(name for name, count in Counter(package).items() if count >= LEAST)
    labels = torch.tensor([classes.index(name) if name in classes else -1 for name in package])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    labelled = torch.cat([order[labels[order] == index][:LABELLED] for index in range(len(classes))])
    is_other = labels >= 0
    is_other[labelled] = False
    edges = torch.tensor(modules.imports, device=device).t()
    graph = normalised(len(labels), edges)
    return Task(graph, labels.to(device), classes, labelled.to(device), is_other.nonzero()[:, 0].to(device))


class Network(nn.Module):
    """Two graph convolutions. Nodes have no features, so the first linear layer has a row for each node."""

    def __init__(self, nodes: int, classes: int):
        super().__init__()
        self.rows = nn.Parameter(torch.empty(nodes, WIDTH))
        nn.init.xavier_uniform_(self.rows)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, graph: torch_ops.CSR) -> torch.Tensor:
        hidden = functional.dropout(torch_ops.spmm(graph, self.rows).relu(), 0.5, self.training)
        return torch_ops.spmm(graph, self.head(hidden))


def untrained(task: Task) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Network(len(task.labels), len(task.classes)).to(task.labels.device)


def loss_of(network: Network, task: Task) -> torch.Tensor:
    return functional.cross_entropy(network(task.graph)[task.labelled], task.labels[task.labelled])


@torch.no_grad()
def guesses(network: Network, task: Task) -> torch.Tensor:
    return network.eval()(task.graph).argmax(1)


def accuracy(guessed: torch.Tensor, task: Task) -> float:
    """The share of the nodes whose class was not told that are put into it."""
    return (guessed == task.labels)[task.others].double().mean().item()


def train(network: Network, task: Task, steps: int = STEPS) -> list[float]:
    """Trains with Adam. Returns the accuracy before each step and at the end."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02, weight_decay=5e-4)
    accuracies = [accuracy(guesses(network, task), task)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(network.train(), task).backward()
            optimizer.step()
            accuracies.append(accuracy(guesses(network, task), task))
    return accuracies


def gradient_error(task: Task) -> float:
    """The relative difference between the gradient through the sparse products and through a dense matrix in float64."""
    network = untrained(task).eval()
    (found,) = torch.autograd.grad(loss_of(network, task), [network.rows])
    matrix = task.graph.to_torch().to_dense().double()
    network = network.double()
    scores = matrix @ network.head((matrix @ network.rows).relu())
    loss = functional.cross_entropy(scores[task.labelled], task.labels[task.labelled])
    (exact,) = torch.autograd.grad(loss, [network.rows])
    return ((found - exact).norm() / exact.norm()).item()


def confusion(guessed: torch.Tensor, task: Task) -> torch.Tensor:
    """For each class (row), the shares of its nodes that are put into each class (column)."""
    count = len(task.classes)
    pairs = task.labels[task.others] * count + guessed[task.others]
    counts = pairs.bincount(minlength=count * count).view(count, count).double()
    return counts / counts.sum(1, keepdim=True)


def picture(task: Task, accuracies: list[float], shares: torch.Tensor) -> Figure:
    figure = Figure(figsize=(14, 6.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    left.plot(accuracies, color="#08306b", linewidth=1.8)
    left.axhline(1 / len(task.classes), color="#cb181d", linestyle=":", label="guessing")
    left.set(title=f"modules put into their package: {accuracies[-1]:.1%} in the end", xlabel="step", ylim=(0, 1))
    left.legend(loc="lower right")
    left.grid(alpha=0.3)
    right.imshow(shares.cpu(), cmap="Blues", vmin=0, vmax=1)
    ticks = range(len(task.classes))
    right.set_xticks(ticks, task.classes, rotation=45, ha="right")
    right.set_yticks(ticks, task.classes)
    for row in ticks:
        for column in ticks:
            share = shares[row, column].item()
            if share >= 0.05:
                colour = "white" if share > 0.5 else "black"
                right.text(column, row, f"{share:.0%}", ha="center", va="center", color=colour, fontsize=9)
    right.set(title="the package of a module (row), and the one it is put into", xlabel="torch.", ylabel="torch.")
    return figure


def measure(report, task: Task):
    """Adds a row to the table: the product of the graph and a row of features for each node."""
    values, dense = task.graph.values, torch.randn(len(task.labels), WIDTH, device=report.device)
    sparse = task.graph.to_torch()

    def theirs(values, dense):
        return torch.sparse_csr_tensor(sparse.crow_indices(), sparse.col_indices(), values, sparse.shape) @ dense

    report.compare("spmm", lambda v, x: torch_ops.spmm(task.graph, x, values=v), theirs, theirs, values, dense)


@one_thread()
def run(report):
    task = load(report.device)
    error = gradient_error(task)
    network = untrained(task)
    accuracies = train(network, task)
    guessed = guesses(network, task)
    report.note(
        f"torch has {len(task.labels)} modules, joined by {task.graph.nnz} entries of the matrix (imports in both\n"
        f"  directions, and each module with itself). The network knows the package of {len(task.labelled)} of them, and puts\n"
        f"  {accuracies[-1]:.1%} of {len(task.others)} others into the right one of {len(task.classes)} packages"
        f" (before training {accuracies[0]:.1%})"
    )
    report.note(f"  relative error of the gradient: {error:.1e} (against a dense matrix in float64)")
    assert error < GRADIENT_TOLERANCE and accuracies[-1] > 0.5

    if report.device != "cpu":  # there, spmm calls several of ATen's kernels
        measure(report, task)
    path = report.folder / "graph_convolutions.png"
    picture(task, accuracies, confusion(guessed, task)).savefig(path, dpi=100)
    report.wrote(path)
