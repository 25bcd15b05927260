"""Enlarges photographs by copying pixels, and differentiates through that, with ``torch_ops.upsample_nearest2d``.

Enlarged 2.7 times, a pixel becomes a block of 2 or 3 by 2 or 3 pixels, its window. Its gradient is the sum of the gradients in the
window. Gradient descent looks for the small image whose enlargement is nearest to a photograph. It starts from one of every 2.7 x
2.7 pixels of the photograph (``torch_ops.upsample_nearest_exact2d`` to a smaller size), which shows patterns that the photograph
does not have. The exact answer is the mean of each window, so the demo can report its distance from that.
"""

import functools
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch.nn import functional

import torch_ops
from examples import _photographs

TITLE = "upsampling"
SCALE = 2.7
SMALL = (158, 236)  # enlarged by SCALE (426, 637), nearly the photograph; no window is cut off at the border
STEPS = 20
CONTRACTION = (9 - 4) / (9 + 4)  # a step leaves at most this share of the error; see learning_rate
TOLERANCE = 1e-5  # for values in [0, 1]; rounding to float32 causes about 1e-7, a window shifted by one pixel 1e-1
CROP = 24
CORNERS = {"china.jpg": (26, 193), "flower.jpg": (206, 295)}  # the top of the tower, the heart of the flower
DETAIL = (72, 108)  # of the small images
DETAILS = {"china.jpg": (6, 30), "flower.jpg": (45, 62)}


def sources(outputs: int, inputs: int, scale: float) -> torch.Tensor:
    """The input position that each output position along an axis copies, by the formula of the operator's documentation."""
    step = torch.tensor(1 / scale, dtype=torch.float32)
    return (torch.arange(outputs) * step).floor().long().clamp(max=inputs - 1)


def enlarged(images: torch.Tensor, scale: float) -> torch.Tensor:
    """The forward by plain indexing, to check the operator."""
    rows, columns = (sources(int(size * scale), size, scale).to(images.device) for size in images.shape[-2:])
    return images[..., rows[:, None], columns]


def window_sums(images: torch.Tensor, size: tuple[int, int], scale: float) -> torch.Tensor:
    """The sum over the window of each pixel of a smaller image: the backward, computed without the operator."""
    for dim, small in zip((-2, -1), size):
        index = sources(images.shape[dim], small, scale).to(images.device)
        shape = list(images.shape)
        shape[dim] = small
        images = images.new_zeros(shape).index_add_(dim, index, images)
    return images


def measure(report, images: torch.Tensor):
    """Adds rows to the table, in two layouts and dtypes. A forward copies values, so its error is zero."""
    for dtype, layout in ((torch.float32, torch.contiguous_format), (torch.float16, torch.channels_last)):
        small = images.to(dtype, memory_format=layout)
        for scale in (2.0, SCALE):
            ours = functools.partial(torch_ops.upsample_nearest2d, scale_factors=scale)
            theirs = functools.partial(functional.interpolate, scale_factor=scale)
            reference = functools.partial(enlarged, scale=scale)
            large = report.compare(f"upsample x{scale:g}", ours, theirs, reference, small)
            assert torch.equal(large, enlarged(small, scale))
        sizes = {"output_size": large.shape[-2:], "input_size": small.shape, "scales_h": SCALE, "scales_w": SCALE}
        ours = functools.partial(torch_ops.upsample_nearest2d_backward, **sizes)
        theirs = functools.partial(torch.ops.aten.upsample_nearest2d_backward, **sizes)
        reference = functools.partial(window_sums, size=small.shape[-2:], scale=SCALE)
        report.compare("upsample backward", ours, theirs, reference, large)


class Step(NamedTuple):
    """The small images before a step, with their loss and its gradient."""

    images: torch.Tensor
    loss: float
    gradient: torch.Tensor


def loss_and_gradient(upsample, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    images = images.detach().requires_grad_()
    loss = functional.mse_loss(upsample(images), targets)
    return loss.detach(), *torch.autograd.grad(loss, images)


def learning_rate(targets: torch.Tensor) -> float:
    """The learning rate for the quadratic loss.

    The curvature in a pixel is 2 n / targets.numel() for a window of n pixels, 4 to 9. At this rate a step leaves 5/13 of the error
    of a pixel with n = 4, -5/13 with n = 9, and less with n = 6.
    """
    return targets.numel() / (4 + 9)


def fit(images: torch.Tensor, targets: torch.Tensor, steps: int = STEPS) -> list[Step]:
    """Gradient descent from ``images`` to the images whose enlargement is nearest to ``targets``. The last step is the result."""
    upsample = functools.partial(torch_ops.upsample_nearest2d, scale_factors=SCALE)
    found = []
    for _ in range(steps + 1):
        loss, gradient = loss_and_gradient(upsample, images, targets)
        found.append(Step(images, loss.item(), gradient))
        images = images - learning_rate(targets) * gradient
    return found


def cut(large: torch.Tensor, scale: float, small: torch.Size, corner: tuple, size: tuple) -> tuple:
    """The enlargement of a part of an image of the size ``small``: the pixels, and the heights and widths of the blocks."""
    blocks = []
    for dim, inputs, first, count in zip((1, 2), small, corner, size):
        sizes = sources(large.shape[dim], inputs, scale).bincount()
        blocks.append(sizes[first : first + count])
        large = large.narrow(dim, int(sizes[:first].sum()), int(blocks[-1].sum()))
    return large, *blocks


def show(axes, image: torch.Tensor, **style):
    """Draw an image (channels, height, width)."""
    axes.set(xticks=[], yticks=[])
    return axes.imshow(image.permute(1, 2, 0).cpu(), **style)


def label_blocks(axes, heights: torch.Tensor, widths: torch.Tensor):
    """Draw the borders of the blocks, and write the width of each below and the height of each to the left."""
    for axis, line, sizes in ((axes.xaxis, axes.axvline, widths), (axes.yaxis, axes.axhline, heights)):
        ends = sizes.cumsum(0)
        for end in ends[:-1].tolist():
            line(end - 0.5, color="black", linewidth=0.3)
        axis.set_ticks((ends - sizes / 2 - 0.5).tolist(), sizes.tolist(), fontsize=8)
    axes.tick_params(length=0, pad=2)


def block_figure(photographs: torch.Tensor) -> Figure:
    """A figure of a crop of each photograph, enlarged x1, x2 and x2.7. All pixels are drawn in one size."""
    figure = Figure(figsize=(15.5, 9.8), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    rows = figure.subplots(len(photographs), 4, width_ratios=[3, 1, 2, SCALE])
    for (whole, crop, *cells), name, image in zip(rows, _photographs.NAMES, photographs):
        top, left = CORNERS[name]
        show(whole, image)
        for color, width in (("white", 3), ("#cb181d", 1.5)):
            whole.add_patch(Rectangle((left, top), CROP, CROP, fill=False, edgecolor=color, linewidth=width))
        whole.set_title(f"{name}, and where the crop is")
        show(crop, image[:, top : top + CROP, left : left + CROP])
        crop.set_title(f"{CROP} x {CROP} pixels")
        for cell, scale in zip(cells, (2.0, SCALE)):
            large = torch_ops.upsample_nearest2d(image[None], scale_factors=scale)[0]
            large, *blocks = cut(large, scale, image.shape[1:], (top, left), (CROP, CROP))
            show(cell, large)
            label_blocks(cell, *blocks)
            cell.set_title(f"x{scale:g}: {large.shape[1]} x {large.shape[2]} pixels")
    figure.suptitle(
        f"each pixel becomes a block; the numbers are the heights and widths of blocks: 2 at x2, 2 or 3 at x{SCALE:g}",
        fontsize=14,
    )
    return figure


def draw_details(figure, targets: torch.Tensor, found: list[Step]):
    """Draws a part of each photograph, the small image at the start, its change by the first step, and the small image at the
    end."""
    rows = figure.subplots(len(targets), 4)
    titles = (
        "photograph, to be matched",
        f"start: one of every {SCALE:g} x {SCALE:g} pixels",
        "first step: where the gradient pulls",
        f"after {STEPS} steps: means of windows",
    )
    for cell, title in zip(rows[0], titles):
        cell.set_title(title, fontsize=13)
    changes = -learning_rate(targets) * found[0].gradient.mean(1, keepdim=True)
    limit = changes.abs().quantile(0.995).item()
    versions = zip(targets, found[0].images, changes, found[-1].images)
    for row, name, (target, start, change, end) in zip(rows, _photographs.NAMES, versions):
        (top, left), (height, width) = DETAILS[name], DETAIL
        detail = (slice(None), slice(top, top + height), slice(left, left + width))
        show(row[0], cut(target, SCALE, SMALL, (top, left), DETAIL)[0])
        show(row[1], start[detail])
        heat = show(row[2], change[detail], cmap="RdBu_r", vmin=-limit, vmax=limit)
        show(row[3], end[detail].clamp(0, 1))
        row[0].set_ylabel(name, fontsize=12)
    bar = figure.colorbar(heat, ax=rows[:, 2], location="bottom", shrink=0.9, extend="both", aspect=30)
    bar.set_label("darker (-) or brighter (+), mean of the three colours")


def draw_convergence(figure, found: list[Step], distances: list[float], least: float):
    """Draws the loss of each step, and the distance from the exact solution."""
    left, right = figure.subplots(1, 2)
    steps = range(len(found))
    left.plot(steps, [step.loss for step in found], "o-", color="#08306b", markersize=4, label="gradient descent")
    left.axhline(least, color="#cb181d", linestyle=":", label="least possible: the means of windows")
    left.set(title="loss: mean squared error of the enlargement", ylabel="loss", ylim=(0, None))
    right.semilogy(steps, distances, "o-", color="#08306b", markersize=4, label="largest difference of any pixel")
    bound = [distances[0] * CONTRACTION**step for step in steps]
    right.semilogy(
        steps, bound, color="#6baed6", linestyle="--", label="theory: each step leaves 5/13, but for rounding"
    )
    right.axhline(TOLERANCE, color="#cb181d", linestyle=":", label="what this demo accepts at the end")
    right.set(title="distance from the exact solution, the means of windows", ylabel="difference of pixel values")
    for axes in (left, right):
        axes.set(xlabel="step", xticks=steps[::5])
        axes.legend(loc="upper right")
        axes.grid(alpha=0.3)


def wrong(gradient: torch.Tensor, exact: torch.Tensor) -> float:
    """The share of values with a larger error than rounding can explain."""
    return ((gradient - exact).abs() > 1e-3 * exact.abs().max()).double().mean().item()


def search(report, targets: torch.Tensor) -> Figure:
    """Fits the small images, compares gradient and result with the exact ones, and draws everything."""
    sums = window_sums(targets.double(), SMALL, SCALE)
    counts = window_sums(torch.ones_like(targets, dtype=torch.float64), SMALL, SCALE)
    means = sums / counts
    start = torch_ops.upsample_nearest_exact2d(targets, SMALL)
    found = fit(start, targets)
    # The derivative of the mean of (pixel - target)^2, written out.
    gradient = 2 / targets.numel() * (counts * start - sums)
    error = (torch.linalg.vector_norm(found[0].gradient - gradient) / torch.linalg.vector_norm(gradient)).item()
    # PyTorch's CUDA backward computes the borders of windows by another formula than its forward. Some differ for this factor.
    _, theirs = loss_and_gradient(functools.partial(functional.interpolate, scale_factor=SCALE), start, targets)
    distances = [(step.images - means).abs().max().item() for step in found]
    least = (enlarged(means, SCALE) - targets).square().mean().item()
    report.note(
        f"looking for the images of {SMALL[0]} x {SMALL[1]} pixels whose enlargement x{SCALE:g} is nearest to the photographs:\n"
        f"{STEPS} steps of gradient descent\n"
        f"  first gradient: relative error {error:.1e} against the exact one;\n"
        f"  values that are wrong by more than rounding: {wrong(found[0].gradient, gradient):.1%}, "
        f"in PyTorch's own gradient {wrong(theirs, gradient):.1%}\n"
        f"  loss {found[0].loss:.6f} -> {found[-1].loss:.6f}, and {least:.6f} is the least possible\n"
        f"  largest difference from the exact solution, the mean of each window: {distances[0]:.2f} -> {distances[-1]:.1e}"
    )
    assert error < TOLERANCE and distances[-1] < TOLERANCE
    figure = Figure(figsize=(15.5, 9.2), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    above, below = figure.subfigures(2, 1, height_ratios=[2, 1])
    draw_details(above, targets, found)
    draw_convergence(below, found, distances, least)
    return figure


def run(report):
    photographs = torch.stack([_photographs.load(name, report.device) for name in _photographs.NAMES])
    measure(report, photographs)
    height, width = (int(size * SCALE) for size in SMALL)
    figures = {
        "upsampling.png": block_figure(photographs),
        "upsampling_gradient.png": search(report, photographs[..., :height, :width].contiguous()),
    }
    for name, figure in figures.items():
        figure.savefig(report.folder / name, dpi=100)
        report.wrote(report.folder / name)
