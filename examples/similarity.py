"""Similarity of colours and of digits as dot products, with ``dot``, ``dot_fast_atomic`` and ``dot_rows``.

The dot products of a photograph's colour channels are computed in float16. They exceed 65504, the largest float16, so the values
are divided by 4 first. A sum that is rounded to float16 after each addition stops near 128, where half a unit is as large as any
product. A sum that is rounded once does not stop.

Ten templates, at first the mean of each digit, are then compared with every image of a digit. Better templates are learned through
the gradient of that comparison.
"""

import math
from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch.nn import functional

import torch_ops
from examples import _photographs, digits

TITLE = "similarity"
CHANNELS = ("red", "green", "blue")
PAIRS = [(a, b) for a in range(3) for b in range(a, 3)]
SCALE = 1 / 4  # a power of two, so that scaling does not round
ROUNDED_ONCE = 2.0**-11  # the relative error of rounding to float16 once
ROUNDED_OFTEN = 128 * ROUNDED_ONCE  # larger than the error that the blocks of dot_fast_atomic can cause
STEPS, RATE = 60, 0.5
SHARPNESS = 20.0  # logit = SHARPNESS * cosine, because a cosine is at most 1

# ---------------------------------------------------------------- photographs


def in_float64(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.dot(x.double(), y.double())


def one_after_another(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of products with every addition rounded to the dtype of the operands."""
    bins = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    return torch.zeros(1, dtype=x.dtype, device=x.device).index_add_(0, bins, x * y)[0]


SUMS = {
    "torch.dot": torch.dot,
    "dot": torch_ops.dot,
    "dot_fast_atomic": torch_ops.dot_fast_atomic,
    "rounded after each addition": one_after_another,
}


def products(dot: Callable, channels: torch.Tensor) -> torch.Tensor:
    """The dot products of all PAIRS of the channels (3, n), as float64."""
    return torch.stack([dot(channels[a], channels[b]).double() for a, b in PAIRS])


def correlations(dot: Callable, channels: torch.Tensor) -> dict[str, float]:
    """The correlation of each two channels: the cosine of the angle between them after their means are subtracted."""
    found = dict(zip(PAIRS, products(dot, channels - torch_ops.reduce_mean(channels, 1, keepdim=True)).tolist()))
    return {
        f"{CHANNELS[a]} and {CHANNELS[b]}": found[a, b] / math.sqrt(found[a, a] * found[b, b])
        for a, b in PAIRS
        if a != b
    }


def draw_sums(axes, sums: dict[str, torch.Tensor], exact: torch.Tensor):
    """Draws a group of bars for each pair of channels: the share of the exact sum that each way of adding finds."""
    names = [f"{CHANNELS[a]}\n{CHANNELS[b]}" for a, b in PAIRS]
    for place, ((name, values), color) in enumerate(zip(sums.items(), ("0.6", "#08306b", "#6baed6", "#d95f02"))):
        centres = [group + 0.2 * (place - 1.5) for group in range(len(PAIRS))]
        axes.bar(centres, (100 * values / exact).tolist(), width=0.18, color=color, label=name)
    axes.set_xticks(range(len(PAIRS)), names, fontsize=11)
    axes.set_ylabel("% of the true sum of products", fontsize=11)
    axes.set_ylim(0, 135)  # room for the legend
    axes.legend(loc="upper center", ncols=2, fontsize=10, frameon=False)
    axes.grid(axis="y", alpha=0.3)


def photographs(report, figure):
    for row, name in zip(figure.subplots(2, 2, width_ratios=[1, 1.7]), _photographs.NAMES):
        image = _photographs.load(name, report.device)
        whole = image.flatten(1).half()
        channels = whole * SCALE
        exact = products(in_float64, channels)
        sums = {label: products(dot, channels) for label, dot in SUMS.items()}
        off = {label: ((values - exact).abs() / exact).max().item() for label, values in sums.items()}
        reds = f"{in_float64(whole[0], whole[0]):.0f} in float64 and {torch_ops.dot(whole[0], whole[0]):.0f} in float16"
        report.note(f"{name}: red * red is {reds}. With values divided by 4 it is {exact[0]:.2f}, and in float16:")
        for label, values in sums.items():
            report.note(f"  {values[0]:8.2f} by {label}; the largest error of all six sums is {off[label]:.2%}")
        found, true = correlations(torch_ops.dot, channels), correlations(in_float64, image.flatten(1).double())
        pairs = ", ".join(f"{pair} {value:.3f} ({true[pair]:.3f})" for pair, value in found.items())
        report.note(f"  correlations in float16 (in float64): {pairs}")
        assert off["dot"] <= ROUNDED_ONCE and off["dot_fast_atomic"] <= ROUNDED_OFTEN
        assert all(abs(found[pair] - true[pair]) < 4 * ROUNDED_ONCE for pair in found)
        row[0].imshow(image.permute(1, 2, 0).cpu())
        row[0].set(xticks=[], yticks=[])
        row[0].set_title(name, fontsize=13)
        draw_sums(row[1], sums, exact)
    figure.suptitle("products of colour channels (values / 4) in float16, summed in four ways", fontsize=15)


# ---------------------------------------------------------------- digits


def unit(rows: torch.Tensor) -> torch.Tensor:
    """Rows (n, size) of length 1, whose dot products are cosines."""
    return rows / torch_ops.dot_rows(rows, rows).sqrt()[:, None]


def cosines(images: torch.Tensor, templates: torch.Tensor) -> torch.Tensor:
    """The cosines of every image with every template, (images, templates).

    Under vmap, dot_rows becomes one dot_rows of more rows. No template is copied in memory.
    """

    def with_all(template: torch.Tensor) -> torch.Tensor:
        return torch_ops.dot_rows(images, template.expand_as(images))

    return torch.vmap(with_all, out_dims=1)(unit(templates))


def class_means(part: digits.Digits) -> torch.Tensor:
    """The mean image of each digit, (10, size). Images are rows of length 1."""
    return torch.stack([part.images[part.labels == digit].mean(0) for digit in range(10)])


def recognised(part: digits.Digits, templates: torch.Tensor) -> float:
    return (cosines(part.images, templates).argmax(1) == part.labels).double().mean().item()


def learn(part: digits.Digits, templates: torch.Tensor, steps: int = STEPS) -> tuple[torch.Tensor, list[float]]:
    """Gradient descent on the cross-entropy of cosines. Returns the templates and the loss before each step."""
    templates = templates.clone().requires_grad_()
    losses = []
    for _ in range(steps):
        loss = functional.cross_entropy(SHARPNESS * cosines(part.images, templates), part.labels)
        (gradient,) = torch.autograd.grad(loss, [templates])
        losses.append(loss.item())
        templates = (templates - RATE * gradient).detach().requires_grad_()
    return templates.detach(), losses


def load(device: str) -> tuple[digits.Digits, digits.Digits]:
    """Digits to learn from and digits to test on, each image a row of length 1."""
    return tuple(digits.Digits(unit(part.images.flatten(1)), part.labels) for part in digits.load(device))


def extremes(part: digits.Digits, templates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The cosine of each image with its own template, and for each digit the images with the largest and the smallest cosine."""
    own = torch_ops.dot_rows(part.images, unit(templates)[part.labels])
    most, least = [], []
    for digit in range(10):
        (places,) = (part.labels == digit).nonzero(as_tuple=True)
        most.append(places[own[places].argmax()])
        least.append(places[own[places].argmin()])
    return own, torch.stack(most), torch.stack(least)


def draw_digits(figure, part: digits.Digits, means: torch.Tensor, learned: torch.Tensor):
    own, most, least = extremes(part, means)
    rows = {
        "mean": (means, None),
        "most like\nits mean": (part.images[most], own[most]),
        "least like\nits mean": (part.images[least], own[least]),
        "learned\ntemplate": (learned, None),
    }
    for all_axes, (name, (images, similarity)) in zip(figure.subplots(4, 10), rows.items()):
        for digit, axes in enumerate(all_axes):
            axes.imshow(images[digit].view(8, 8).cpu(), cmap="gray_r")
            axes.set(xticks=[], yticks=[])
            if similarity is not None:
                axes.set_title(f"{similarity[digit]:.2f}", fontsize=11)
        all_axes[0].set_ylabel(name, fontsize=12, rotation=0, ha="right", va="center")
    figure.suptitle("ten templates for digits, and the cosine between an image and the mean of its kind", fontsize=15)


# ---------------------------------------------------------------- the demo


def measure(report, part: digits.Digits):
    """Adds rows to the table: two channels of a photograph, and digits with the mean of their kind."""
    red, green = (_photographs.load(_photographs.NAMES[0], report.device) * SCALE)[:2].flatten(1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        operands = (red.to(dtype), green.to(dtype))
        report.compare("dot", torch_ops.dot, torch.dot, torch.dot, *operands)
        if dtype != torch.float32:
            report.compare("dot_fast_atomic", torch_ops.dot_fast_atomic, torch.dot, torch.dot, *operands)
    theirs = torch.vmap(torch.dot)
    means = class_means(part)[part.labels]
    for dtype in (torch.float32, torch.float16):
        report.compare("dot_rows", torch_ops.dot_rows, theirs, theirs, part.images.to(dtype), means.to(dtype))


@digits.one_thread()
def run(report):
    figure = Figure(figsize=(15, 15), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)
    above, below = figure.subfigures(2, 1, height_ratios=[1.25, 1])
    photographs(report, above)

    part, test = load(report.device)
    means = class_means(part)
    learned, losses = learn(part, means)
    before, after = recognised(test, means), recognised(test, learned)
    report.note(
        f"digits: {before:.1%} of the test images are most like the mean of their kind; templates learned through dot_rows\n"
        f"  in {STEPS} steps (loss {losses[0]:.2f} -> {losses[-1]:.2f}) recognise {after:.1%}"
    )
    assert after > before + 0.02
    draw_digits(below, part, means, learned)
    measure(report, part)
    path = report.folder / "similarity.png"
    figure.savefig(path, dpi=80)
    report.wrote(path)
