"""Mean, minimum and maximum of each colour channel, through ``reduce_mean``, ``reduce_min`` and ``reduce_max``.

The statistics are used to stretch contrast: each channel is mapped linearly so that its range becomes [0, 1]. A few pixels of
almost any photograph are 0 or 1 already. So the range is that of the means of blocks, which a few pixels hardly change.
"""

import functools

import torch

import torch_ops
from examples import _photographs

TITLE = "channel statistics"
OPERATORS = {
    "reduce_mean": (torch_ops.reduce_mean, torch.mean),
    "reduce_min": (torch_ops.reduce_min, torch.amin),
    "reduce_max": (torch_ops.reduce_max, torch.amax),
}
BLOCK = 32
STEP = 1 / 255  # of 8-bit sRGB


def block_means(image: torch.Tensor) -> torch.Tensor:
    """The mean of each whole block of BLOCK x BLOCK pixels, (3, rows, columns)."""
    rows, columns = (size // BLOCK for size in image.shape[1:])
    blocks = image[:, : rows * BLOCK, : columns * BLOCK].unflatten(2, (columns, BLOCK)).unflatten(1, (rows, BLOCK))
    return torch_ops.reduce_mean(blocks, (2, 4))


def contrast_range(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lowest and the highest value of each channel, (3, 1, 1)."""
    return torch_ops.reduce_min(values, (1, 2), keepdim=True), torch_ops.reduce_max(values, (1, 2), keepdim=True)


def stretch(image: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Maps [low, high] to [0, 1] and clamps values outside. A range below one STEP counts as one STEP."""
    return ((image - low) / (high - low).clamp(min=STEP)).clamp(0, 1)


def measure(report, image: torch.Tensor):
    """Adds rows to the table, for an image and for a channels_last batch of it. Their statistics must agree."""
    batch = image[None].contiguous(memory_format=torch.channels_last)
    for name, (ours, theirs) in OPERATORS.items():
        for dtype in (torch.float32, torch.float16):
            found = []
            for dims, argument in (((1, 2), image.to(dtype)), ((0, 2, 3), batch.to(dtype))):
                calls = [functools.partial(reduce, dim=dims) for reduce in (ours, theirs, theirs)]
                found.append(report.compare(f"{name} {dims}", *calls, argument))
            torch.testing.assert_close(*found)


def describe(image: torch.Tensor) -> str:
    """A small table of the image's statistics."""
    mean = torch_ops.reduce_mean(image, (1, 2))
    columns = [mean, *contrast_range(image), *contrast_range(block_means(image))]
    values = torch.stack([column.flatten() for column in columns], 1).tolist()
    lines = ["        mean   min   max   min and max of blocks"]
    for channel, row in zip(("red", "green", "blue"), values):
        lines.append("{:6}  {:.2f}  {:.2f}  {:.2f}    {:.2f}  {:.2f}".format(channel, *row))
    return "\n".join(lines)


def run(report):
    columns = {"before": [], f"contrast stretched by the range of {BLOCK} x {BLOCK} blocks": []}
    measure(report, _photographs.load(_photographs.NAMES[0], report.device))
    for name in _photographs.NAMES:
        image = _photographs.load(name, report.device)
        images = (image, stretch(image, *contrast_range(block_means(image))))
        for (title, cells), version in zip(columns.items(), images):
            cells.append((version, describe(version)))
            report.note(f"{name}, {title}\n{cells[-1][1]}")
    path = report.folder / "channel_statistics.png"
    _photographs.grid(columns, family="monospace", fontsize=9, multialignment="left").savefig(path, dpi=100)
    report.wrote(path)
