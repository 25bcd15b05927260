"""Shared by demos on photographs: the two photographs that ship with scikit-learn, and a figure of them."""

import numpy
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_image

NAMES = ("china.jpg", "flower.jpg")


def load(name: str, device: str) -> torch.Tensor:
    """A photograph as (3, height, width) float32, sRGB in [0, 1]."""
    pixels = torch.from_numpy(numpy.array(load_sample_image(name)))
    return pixels.permute(2, 0, 1).contiguous().to(device).float() / 255


def grid(columns: dict[str, list[tuple[torch.Tensor, str]]], **label) -> Figure:
    """A figure with one column per version and one row per photograph: the image in sRGB, and a text below it.

    ``label`` is the style of the text.
    """
    rows = len(NAMES)
    lines = max(text.count("\n") + 1 for cells in columns.values() for _, text in cells)
    figure = Figure(figsize=(5.2 * len(columns), (3.7 + 0.18 * lines) * rows), layout="constrained")
    axes = figure.subplots(rows, len(columns), squeeze=False)
    for column, (title, cells) in enumerate(columns.items()):
        for row, (image, text) in enumerate(cells):
            axes[row][column].imshow(image.permute(1, 2, 0).cpu().numpy())
            axes[row][column].set_title(title if row == 0 else "", fontsize=13)
            axes[row][column].set_xlabel(text, **label)
            axes[row][column].set(xticks=[], yticks=[])
    return figure
