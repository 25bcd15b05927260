"""Classifies handwritten digits with two models: a compiled one that uses gpuopt's reductions, and the same in eager PyTorch.

An image is split into overlapping patches (tokens), which are pooled by their mean and maximum. The loss is a cross-entropy. It
cannot overflow, because the largest logit is subtracted before the exponential. Both models start with the same weights and see the
same batches, so their losses may differ by rounding only.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

import torch_ops

TITLE = "digits"
STEPS = 150
BATCH = 128
# The largest accepted relative difference of losses. Rounding to float32 grows to 1e-6 or 1e-5 during training (the picture shows
# PyTorch in float32 against float64). A mean or sum with an error of 0.1% in its gradient would cause 3e-2.
TOLERANCE = 1e-3
ACCURACY_TOLERANCE = 0.01  # rounding may decide the class of a few test digits


class Reductions(NamedTuple):
    """The three reductions that the model and its loss use."""

    sum: Callable
    mean: Callable
    max: Callable


GPUOPT = Reductions(torch_ops.reduce_sum, torch_ops.reduce_mean, torch_ops.reduce_max)
PYTORCH = Reductions(torch.sum, torch.mean, torch.amax)


class Digits(NamedTuple):
    """Images (n, 8, 8) in [0, 1] and labels (n)."""

    images: torch.Tensor
    labels: torch.Tensor


def load(device: str) -> tuple[Digits, Digits]:
    """Three quarters of scikit-learn's 1797 digits to train on, and a quarter to test on."""
    data = load_digits()
    parts = train_test_split(data.images / 16, data.target, test_size=0.25, random_state=0, stratify=data.target)
    images, test_images = (torch.from_numpy(part).float().to(device) for part in parts[:2])
    labels, test_labels = (torch.from_numpy(part).to(device) for part in parts[2:])
    return Digits(images, labels), Digits(test_images, test_labels)


class Classifier(nn.Module):
    """Two layers for each of nine patches of 4 x 4 pixels, then pooling over the patches, then ten logits."""

    def __init__(self, reductions: Reductions, width: int = 64):
        super().__init__()
        self.reductions = reductions
        self.embed = nn.Linear(16, width)
        self.position = nn.Parameter(0.1 * torch.randn(9, width))
        self.hidden = nn.Linear(width, width)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = images.unfold(1, 4, 2).unfold(2, 4, 2).flatten(3).flatten(1, 2)
        tokens = functional.gelu(self.embed(tokens) + self.position)
        tokens = functional.gelu(self.hidden(tokens))
        pooled = (self.reductions.mean(tokens, 1), self.reductions.max(tokens, 1))
        return self.head(torch.cat(pooled, 1))


def cross_entropy(reductions: Reductions, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean of log(sum(exp(logits))) - logits[label]. The maximum is subtracted from the logits first."""
    logits = logits - reductions.max(logits, 1, keepdim=True)
    chosen = logits.gather(1, labels[:, None]).squeeze(1)
    return reductions.mean(reductions.sum(logits.exp(), 1).log() - chosen)


def untrained(reductions: Reductions, like: torch.Tensor) -> Classifier:
    """A model with the dtype and device of ``like``. Its weights do not depend on ``reductions``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Classifier(reductions).to(like)


def objective(model: Classifier, digits: Digits) -> torch.Tensor:
    return cross_entropy(model.reductions, model(digits.images), digits.labels)


def train(model: Classifier, digits: Digits, objective: Callable = objective, steps: int = STEPS) -> torch.Tensor:
    """Trains with Adam, on the same batches at every call. Returns the loss of each batch, in float64 on the CPU."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        batch = torch.randperm(len(digits.labels), generator=generator)[:BATCH].to(digits.labels.device)
        loss = objective(model, Digits(digits.images[batch], digits.labels[batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


@torch.no_grad()
def accuracy(model: Classifier, digits: Digits) -> float:
    return (model(digits.images).argmax(1) == digits.labels).float().mean().item()


@contextlib.contextmanager
def one_thread():
    """Uses one CPU thread, because the tensors are so small that waking more threads takes longer than computing."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def difference(losses: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The largest relative difference up to each step."""
    return ((losses - reference).abs() / reference).cummax(0).values


def picture(curves: dict[str, torch.Tensor], differences: dict[str, torch.Tensor]) -> Figure:
    """A plot of the losses, with gpuopt's drawn over PyTorch's, and a plot of their relative differences."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05)
    left, right = figure.subplots(1, 2)
    wide_below_thin = ({"color": "#9ecae1", "linewidth": 7}, {"color": "#08306b", "linewidth": 1.4, "linestyle": "--"})
    for (label, values), style in zip(curves.items(), wide_below_thin):
        left.semilogy(values, label=label, **style)
    left.set_ylim(top=10)  # room for the legend
    left.set(title="training on handwritten digits", xlabel="step", ylabel="loss of the batch")
    for (label, values), color in zip(differences.items(), ("#08306b", "#6baed6")):
        right.semilogy(values, label=label, color=color, nonpositive="mask")
    right.axhline(TOLERANCE, color="#cb181d", linestyle=":", label="what this demo accepts")
    right.set(title="relative difference of the losses", xlabel="step", ylabel="largest relative difference so far")
    right.set_ylim(top=1)
    for axes in (left, right):
        axes.legend(loc="upper right")
        axes.grid(alpha=0.3)
    return figure


@one_thread()
def run(report):
    digits, test_digits = load(report.device)
    report.note(f"training in eager PyTorch, and with gpuopt in torch.compile(fullgraph=True), {STEPS} steps each")
    theirs_model, ours_model = untrained(PYTORCH, digits.images), untrained(GPUOPT, digits.images)
    theirs = train(theirs_model, digits)
    ours = train(ours_model, digits, torch.compile(objective, fullgraph=True))
    in_double = Digits(digits.images.double(), digits.labels)
    exact = train(untrained(PYTORCH, in_double.images), in_double)
    theirs_accuracy, ours_accuracy = accuracy(theirs_model, test_digits), accuracy(ours_model, test_digits)
    curves = {
        f"PyTorch: last loss {theirs[-1]:.4f}, test accuracy {theirs_accuracy:.1%}": theirs,
        f"gpuopt, compiled: last loss {ours[-1]:.4f}, test accuracy {ours_accuracy:.1%}": ours,
    }
    differences = {
        "gpuopt and PyTorch, both float32": difference(ours, theirs),
        "PyTorch in float32 and in float64": difference(theirs, exact),
    }
    for label in curves:
        report.note(f"  {label}")
    for label, values in differences.items():
        report.note(f"  {label}: losses differ by at most {values[-1]:.1e} (relative)")
    path = report.folder / "digits.png"
    picture(curves, differences).savefig(path, dpi=100)
    report.wrote(path)
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=0)
    assert abs(ours_accuracy - theirs_accuracy) <= ACCURACY_TOLERANCE
