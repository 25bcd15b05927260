"""Messages along the edges of a graph, and histograms, with ``torch_ops.index_add`` and ``index_add_``.

In a graph neural network, each node sends its values along its edges, and each node adds up the messages it receives. That sum is
index_add: the values are the messages, and the index says which node receives each one. Three examples use it.

* A karate club of 34 members, observed by W. Zachary in the 1970s, split into two clubs. It is known who met whom. At first only
  the two leaders have an opinion. Every member then repeatedly takes the mean opinion of the members it meets. The result predicts
  the club that each member joined, for all members except one.
* Images of digits are classified with only ten of them labelled. Each image is joined to the images most like it, and the results
  of a linear layer are averaged over neighbours. The layer is trained through index_add_.
* The colours of photographs are counted: a histogram adds a 1 for every pixel. In bfloat16, 256 + 1 is 256, so counts stop there.
  Mode "accurate" sums in float32 and rounds at the end.
"""

import functools
from typing import NamedTuple

import networkx
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from sklearn.datasets import load_digits
from torch.nn import functional

import torch_ops
from examples import _photographs
from examples.digits import one_thread

TITLE = "message passing and histograms"
LEADERS = {0: 1.0, 33: -1.0}  # networkx's numbers of Mr. Hi and the officer, and their opinions
SPREADING = 40
SHOWN = (0, 2, SPREADING)
TOLERANCE = 1e-4  # distance of opinions in [-1, 1] from the exact solution; about 1e-5 after SPREADING rounds
NEIGHBOURS = 8
ROUNDS = (0, 2, 12)
STEPS = 40
GRADIENT_TOLERANCE = 1e-5  # relative; rounding to float32 causes about 1e-7, a missing edge 1e-4
LEVELS = 256
ROUNDING = 2**-8  # the largest relative error of rounding to bfloat16 once
COLOURS = ("#cb181d", "#238b45", "#2171b5")


class Graph(NamedTuple):
    """A directed graph of ``nodes`` nodes. Edge i carries a message from node ``sources[i]`` to node ``targets[i]``."""

    nodes: int
    sources: torch.Tensor
    targets: torch.Tensor


def sums_of_messages(messages: torch.Tensor, graph: Graph) -> torch.Tensor:
    """Sums the messages (edges, ...), one per edge, at the nodes that receive them. Returns (nodes, ...)."""
    into = messages.new_zeros(graph.nodes, *messages.shape[1:])
    return torch_ops.index_add_(into, 0, graph.targets, messages)


def neighbour_means(features: torch.Tensor, graph: Graph) -> torch.Tensor:
    """For each node, the mean of ``features`` (nodes, channels) over the nodes that send to it."""
    messages = features.index_select(0, graph.sources)
    degrees = sums_of_messages(torch.ones_like(messages[:, :1]), graph)
    return sums_of_messages(messages, graph) / degrees


def adjacency(graph: Graph) -> torch.Tensor:
    """The graph as a matrix in float64 for checks, with a row for each target and a column for each source."""
    matrix = torch.zeros(graph.nodes, graph.nodes, dtype=torch.float64, device=graph.sources.device)
    matrix[graph.targets, graph.sources] = 1
    return matrix


# ---------------------------------------------------------------- the karate club


def karate_club(device: str) -> tuple[networkx.Graph, Graph, torch.Tensor]:
    """networkx's graph of the club, the same with edges in both directions, and each member's side: 1 is Mr. Hi's, -1 the other."""
    club = networkx.karate_club_graph()
    ends = torch.tensor(list(club.edges), device=device)
    graph = Graph(len(club), torch.cat([ends[:, 0], ends[:, 1]]), torch.cat([ends[:, 1], ends[:, 0]]))
    return club, graph, torch.tensor([1.0 if club.nodes[n]["club"] == "Mr. Hi" else -1.0 for n in club], device=device)


def spread(graph: Graph, known: dict[int, float], rounds: int = SPREADING) -> torch.Tensor:
    """Opinions before the first round and after each, (rounds + 1, nodes).

    In a round every node takes the mean of its neighbours' opinions. The ``known`` opinions do not change.
    """
    nodes = torch.tensor(list(known), device=graph.sources.device)
    values = torch.tensor(list(known.values()), device=graph.sources.device)
    opinions = [torch.zeros(graph.nodes, device=graph.sources.device).index_copy(0, nodes, values)]
    for _ in range(rounds):
        means = neighbour_means(opinions[-1][:, None], graph)[:, 0]
        opinions.append(means.index_copy(0, nodes, values))
    return torch.stack(opinions)


def settled(graph: Graph, known: dict[int, float]) -> torch.Tensor:
    """The opinions that a further round would not change, as the solution of linear equations."""
    matrix = adjacency(graph)
    equations = torch.eye(graph.nodes, dtype=matrix.dtype, device=matrix.device) - matrix / matrix.sum(1, keepdim=True)
    right = torch.zeros_like(matrix[0])
    for node, value in known.items():
        equations[node], right[node] = 0, value
        equations[node, node] = 1
    return torch.linalg.solve(equations, right)


def draw_club(figure, club: networkx.Graph, opinions: torch.Tensor, sides: torch.Tensor):
    """Draws the graph at the start, after a few rounds and at the end. Members on the wrong side have a ring."""
    # With this seed, no two nodes of the drawing are close together.
    places = networkx.spring_layout(club, seed=14, iterations=100)
    xs, ys = zip(*(places[node] for node in club))
    sides, panels = sides.cpu(), figure.subplots(1, len(SHOWN))
    for axes, rounds in zip(panels, SHOWN):
        now = opinions[rounds].cpu()
        for a, b in club.edges:
            axes.plot([xs[a], xs[b]], [ys[a], ys[b]], color="0.8", linewidth=0.8, zorder=1)
        for side, marker in ((1, "o"), (-1, "s")):
            chosen = [node for node in club if sides[node] == side]
            x, y = [xs[node] for node in chosen], [ys[node] for node in chosen]
            style = {"cmap": "RdBu", "vmin": -1, "vmax": 1, "edgecolors": "black", "linewidths": 0.8, "s": 130}
            colours = axes.scatter(x, y, c=now[chosen], marker=marker, zorder=2, **style)
        wrong = [node for node in club if now[node] * sides[node] < 0]
        ring = {"s": 420, "facecolors": "none", "edgecolors": "#d95f02", "linewidths": 2.5}
        axes.scatter([xs[node] for node in wrong], [ys[node] for node in wrong], **ring)
        right = int((now.sign() == sides).sum())
        after = f"after {rounds} rounds: {right} of {len(club)} right"
        axes.set_title(after if rounds else "before: only the leaders are known", fontsize=13)
        for node, name in zip(LEADERS, ("Mr. Hi", "officer")):
            label = axes.annotate(
                name, (xs[node], ys[node]), (0, 10), textcoords="offset points", ha="center", fontsize=12
            )
            label.set_path_effects([withStroke(linewidth=4, foreground="white")])
        axes.set_axis_off()
        axes.margins(0.08)
    bar = figure.colorbar(colours, ax=panels, shrink=0.8, aspect=18, pad=0.01, ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["the officer's", "undecided", "Mr. Hi's"], fontsize=11)
    looks = {
        "joined Mr. Hi's club in the end": {"marker": "o", "markersize": 10},
        "joined the officer's": {"marker": "s", "markersize": 10},
        "colour says the wrong club": {"marker": "o", "markersize": 17, "color": "#d95f02", "markeredgewidth": 2.5},
    }
    style = {"linestyle": "", "color": "black", "markerfacecolor": "none"}
    handles = [Line2D([], [], label=label, **{**style, **look}) for label, look in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12)
    figure.suptitle(
        "a karate club before it split: lines join members who met, colour is the club that is guessed", fontsize=15
    )


# ---------------------------------------------------------------- digits


class Digits(NamedTuple):
    """Images (n, 64) in [0, 1], labels (n), the graph that joins similar images, and the numbers of the labelled images."""

    images: torch.Tensor
    labels: torch.Tensor
    graph: Graph
    labelled: torch.Tensor


def similar(images: torch.Tensor, neighbours: int = NEIGHBOURS) -> Graph:
    """A graph that joins each image with itself and with its nearest images, in both directions."""
    count = len(images)
    nearest = torch.cdist(images, images).topk(neighbours + 1, largest=False).indices
    own = torch.arange(count, device=images.device)
    ends = torch.stack([own.repeat_interleave(neighbours + 1), nearest.flatten()])
    ends = torch.cat([ends, ends.flip(0), own.expand(2, count)], 1).unique(dim=1)
    return Graph(count, ends[0], ends[1])


def load(device: str) -> Digits:
    """scikit-learn's 1797 digits. One image of each digit is labelled."""
    data = load_digits()
    images = torch.from_numpy(data.images).float().flatten(1).to(device) / 16
    labels = torch.from_numpy(data.target).to(device)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=generator).to(device)
    labelled = torch.stack([order[labels[order] == digit][0] for digit in range(10)])
    return Digits(images, labels, similar(images), labelled)


def logits(layer: torch.nn.Linear, digits: Digits, rounds: int) -> torch.Tensor:
    found = layer(digits.images)
    for _ in range(rounds):
        found = neighbour_means(found, digits.graph)
    return found


def loss_of(found: torch.Tensor, digits: Digits) -> torch.Tensor:
    return functional.cross_entropy(found[digits.labelled], digits.labels[digits.labelled])


def untrained(digits: Digits) -> torch.nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Linear(digits.images.shape[1], 10).to(digits.images)


def train(digits: Digits, rounds: int, steps: int = STEPS) -> list[float]:
    """Trains a linear layer on the labelled digits. Returns the share of the other digits that it recognises, before each step and
    at the end."""
    layer = untrained(digits)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    others = torch.ones_like(digits.labels, dtype=torch.bool)
    others[digits.labelled] = False
    accuracies = []
    for step in range(steps + 1):
        found = logits(layer, digits, rounds)
        accuracies.append((found.argmax(1) == digits.labels)[others].double().mean().item())
        if step < steps:
            optimizer.zero_grad()
            loss_of(found, digits).backward()
            optimizer.step()
    return accuracies


def gradient_error(digits: Digits, rounds: int) -> float:
    """The relative difference between the gradient through the messages and the gradient through a matrix in float64."""
    layer = untrained(digits)
    (found,) = torch.autograd.grad(loss_of(logits(layer, digits, rounds), digits), [layer.weight])
    matrix = adjacency(digits.graph)
    means = matrix / matrix.sum(1, keepdim=True)
    double = layer.double()
    outputs = double(digits.images.double())
    for _ in range(rounds):
        outputs = means @ outputs
    (exact,) = torch.autograd.grad(loss_of(outputs, digits), [double.weight])
    return ((found - exact).norm() / exact.norm()).item()


def draw_digits(figure, digits: Digits, accuracies: dict[int, list[float]]):
    """Draws the ten labelled digits, and the share of the other digits that the layer recognises during training."""
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.5])
    for axes, image, label in zip(
        left.subplots(2, 5).flat, digits.images[digits.labelled], digits.labels[digits.labelled]
    ):
        axes.imshow(image.view(8, 8).cpu(), cmap="gray_r")
        axes.set_title(int(label), fontsize=13)
        axes.set(xticks=[], yticks=[])
    left.suptitle(f"all that is labelled: ten of {len(digits.labels)} digits", fontsize=15)
    axes = right.subplots()
    for (rounds, values), color in zip(accuracies.items(), ("0.55", "#6baed6", "#08306b")):
        messages = f"{rounds} rounds of messages" if rounds else "no messages"
        axes.plot([100 * value for value in values], color=color, linewidth=2.2, label=f"{messages}: {values[-1]:.0%}")
    axes.set_xlabel("training step", fontsize=12)
    axes.set_ylabel("other digits recognised, in %", fontsize=12)
    axes.set_ylim(0, 100)
    axes.legend(loc="lower right", fontsize=12, title="a linear layer, then")
    axes.grid(alpha=0.3)
    right.suptitle("the others, recognised by a layer that is trained through index_add_", fontsize=15)


# ---------------------------------------------------------------- histograms


def bins(image: torch.Tensor) -> torch.Tensor:
    """The bin of each pixel and channel: 256 levels of red, then 256 of green, then 256 of blue."""
    levels = (image * (LEVELS - 1)).round().long()
    return (levels + LEVELS * torch.arange(3, device=image.device).view(3, 1, 1)).flatten()


def counted(index_add, index: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The counts (3, levels): a 1 is added for every entry of ``index``."""
    counts = torch.zeros(3 * LEVELS, dtype=dtype, device=index.device)
    return index_add(counts, 0, index, torch.ones(len(index), dtype=dtype, device=index.device)).view(3, LEVELS)


ACCURATE = functools.partial(torch_ops.index_add, mode="accurate")


def draw_histogram(axes, counts: torch.Tensor, exact: torch.Tensor, title: str):
    """Draws counts as lines, over the exact counts as areas."""
    for channel, color in enumerate(COLOURS):
        axes.fill_between(range(LEVELS), exact[channel].cpu(), color=color, alpha=0.18, linewidth=0)
        axes.plot(counts[channel].double().cpu(), color=color, linewidth=1.3)
    axes.set_title(title, fontsize=13)
    axes.set(xlim=(0, LEVELS - 1), ylim=(0, 1.05 * exact.quantile(0.995).item()))
    axes.set_xlabel("level of red, green or blue", fontsize=11)
    axes.set_ylabel("pixels", fontsize=11)
    axes.grid(alpha=0.3)


def histograms(report) -> Figure:
    figure = Figure(figsize=(16, 8.6), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    for row, name in zip(figure.subplots(2, 3, width_ratios=[1, 1.15, 1.15]), _photographs.NAMES):
        image = _photographs.load(name, report.device)
        index = bins(image)
        exact = index.bincount(minlength=3 * LEVELS).view(3, LEVELS).double()
        theirs, ours = (counted(function, index, torch.bfloat16) for function in (torch.index_add, ACCURATE))
        off = ((ours - exact).abs() / exact.clamp(min=1)).max().item()
        found = [f"{counts.double().sum() / exact.sum():.0%} of the pixels" for counts in (theirs, ours)]
        report.note(
            f"{name}: colours counted in bfloat16. torch.index_add finds {found[0]} (no count is above {theirs.max():.0f});\n"
            f'  gpuopt in mode "accurate" {found[1]}, each count within {off:.2%} of the true one'
        )
        assert off <= ROUNDING
        row[0].imshow(image.permute(1, 2, 0).cpu())
        row[0].set(xticks=[], yticks=[])
        row[0].set_title(name, fontsize=13)
        draw_histogram(row[1], theirs, exact, f"torch.index_add: finds {found[0]}")
        draw_histogram(row[2], ours, exact, f'gpuopt, mode="accurate": finds {found[1]}')
    figure.suptitle("pixels of each colour, counted in bfloat16 (lines) and exactly (areas)", fontsize=15)
    return figure


# ---------------------------------------------------------------- the demo


def measure(report, digits: Digits):
    """Adds rows to the table: one round of messages between digits, and the histogram of a photograph."""
    into = torch.zeros_like(digits.images)
    messages = digits.images[digits.graph.sources]
    index = bins(_photographs.load(_photographs.NAMES[0], report.device))
    counts, ones = torch.zeros(3 * LEVELS, device=index.device), torch.ones(len(index), device=index.device)
    for where, operands in ((digits.graph.targets, (into, messages)), (index, (counts, ones))):
        for mode, dtype in (("fast", torch.float32), ("accurate", torch.bfloat16)):

            def ours(x, y, where=where, mode=mode):
                return torch_ops.index_add(x, 0, where, y, mode=mode)

            def theirs(x, y, where=where):
                return torch.index_add(x, 0, where, y)

            report.compare(f"index_add {mode}", ours, theirs, theirs, *(operand.to(dtype) for operand in operands))


@one_thread()
def run(report):
    club, graph, sides = karate_club(report.device)
    opinions = spread(graph, LEADERS)
    distance = (opinions[-1] - settled(graph, LEADERS)).abs().max().item()
    right = int((opinions[-1].sign() == sides).sum())
    report.note(
        f"karate club: from its two leaders alone, {right} of {len(club)} members are put into the club that they joined;\n"
        f"  opinions after {SPREADING} rounds differ from the exact solution by at most {distance:.1e}"
    )
    assert distance < TOLERANCE and right >= 32

    digits = load(report.device)
    error = gradient_error(digits, ROUNDS[-1])
    accuracies = {rounds: train(digits, rounds) for rounds in ROUNDS}
    report.note(
        f"digits: ten of {len(digits.labels)} are labelled. A linear layer recognises the following share of the others:"
    )
    for rounds, values in accuracies.items():
        report.note(f"  {values[-1]:.1%} with {rounds} rounds of messages along {len(digits.graph.sources)} edges")
    report.note(f"  relative error of the gradient through the messages: {error:.1e} (against a matrix in float64)")
    assert error < GRADIENT_TOLERANCE and accuracies[ROUNDS[-1]][-1] > accuracies[0][-1] + 0.1

    figure = Figure(figsize=(16, 10.5), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    above, below = figure.subfigures(2, 1, height_ratios=[1.15, 1])
    draw_club(above, club, opinions, sides)
    draw_digits(below, digits, accuracies)
    figures = {"message_passing.png": figure, "message_passing_histograms.png": histograms(report)}
    measure(report, digits)
    for name, drawn in figures.items():
        drawn.savefig(report.folder / name, dpi=100)
        report.wrote(report.folder / name)
