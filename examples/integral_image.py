"""Box blurs of photographs through their integral image, which two ``cumsum`` compute.

An integral image, or summed-area table, holds at each position the sum of all pixels above it and to its left. The sum over any
rectangle is then a sum of four values of the table (F. C. Crow, "Summed-area tables for texture mapping", SIGGRAPH 1984):

    above |         |
    ------A---------B        sum of the window = D - B - C + A
          |  window |
    ------C---------D

So a blur costs four look-ups per pixel for any radius, and the radius may differ from pixel to pixel. Sums of bytes are int64 and
exact. A float32 table loses digits, because a small difference of large sums remains.
"""

import functools

import torch
from torch.nn import functional

import torch_ops
from examples import _photographs

TITLE = "integral image"
RADII = (1, 6, 24)
EXACT = 1e-13  # the largest error in float64, for values in [0, 1]
# The largest error of a window's sum from a float32 table, relative to the largest sum in the table: 4 look-ups, 4 roundings each.
ROUNDED = 16 * 2.0**-24
FOCI = {
    "china.jpg": (190, 185),
    "flower.jpg": (225, 307),
}  # row and column of the middle of the tower and of the flower
SHARP, SLOPE = 130, 8  # pixels around the focus that stay sharp, and how many more pixels add 1 to the radius


def integral_image(image: torch.Tensor) -> torch.Tensor:
    """The table of (channels, height, width), one row and column larger.

    The first row and column are 0, because an exclusive sum leaves out its own pixel. The padding adds a last row and column.
    """
    padded = functional.pad(image, (0, 1, 0, 1))
    return torch_ops.cumsum(torch_ops.cumsum(padded, 1, exclusive=True), 2, exclusive=True)


def with_pytorch(image: torch.Tensor) -> torch.Tensor:
    return functional.pad(image.cumsum(1).cumsum(2), (1, 0, 1, 0))


def box_blur(table: torch.Tensor, radius: int | torch.Tensor) -> torch.Tensor:
    """The mean of the window around each pixel. ``radius`` is one number or (height, width); windows end at the border."""
    height, width = (size - 1 for size in table.shape[1:])
    rows, columns = torch.arange(height, device=table.device)[:, None], torch.arange(width, device=table.device)
    top, bottom = (rows - radius).clamp(min=0), (rows + radius + 1).clamp(max=height)
    left, right = (columns - radius).clamp(min=0), (columns + radius + 1).clamp(max=width)
    sums = table[:, bottom, right] - table[:, top, right] - (table[:, bottom, left] - table[:, top, left])
    areas = (bottom - top) * (right - left)
    return sums / areas if table.is_floating_point() else sums.double() / areas


def direct(image: torch.Tensor, radius: int) -> torch.Tensor:
    """The same means in float64, by averages of columns and then of rows."""
    for size, padding in (((2 * radius + 1, 1), (radius, 0)), ((1, 2 * radius + 1), (0, radius))):
        image = functional.avg_pool2d(image.double(), size, stride=1, padding=padding, count_include_pad=False)
    return image


def radii_around(focus: tuple[int, int], height: int, width: int, device: str) -> torch.Tensor:
    """A radius for each pixel, (height, width). It grows with the distance from ``focus``, as in a photograph of something near."""
    rows, columns = (torch.arange(size, device=device) - middle for size, middle in zip((height, width), focus))
    distances = torch.hypot(rows[:, None].float(), columns.float())
    return ((distances - SHARP) / SLOPE).clamp(0, RADII[-1]).long()


def direct_by_radius(image: torch.Tensor, radii: torch.Tensor) -> torch.Tensor:
    """Each pixel out of the direct blur of its radius."""
    out = torch.empty_like(image, dtype=torch.float64)
    for radius in radii.unique().tolist():
        out = torch.where(radii == radius, direct(image, radius), out)
    return out


def errors(tables: dict[str, torch.Tensor], radius: int | torch.Tensor, exact: torch.Tensor) -> str:
    """Asserts that the blurs of both tables are near ``exact``, and returns their largest errors as a text."""
    found = {
        "bytes": (box_blur(tables["bytes"], radius) / 255 - exact).abs().max().item(),
        "float32": (box_blur(tables["float32"], radius) - exact).abs().max().item(),
    }
    smallest = (radius + 1) ** 2 if isinstance(radius, int) else 1  # area of a window, in a corner
    assert found["bytes"] < EXACT and found["float32"] < ROUNDED * tables["float32"].max().item() / smallest
    return f"largest error {found['bytes']:.0e} from int64 sums, {found['float32']:.0e} from float32 sums"


def measure(report, image: torch.Tensor, pixels: torch.Tensor):
    """Adds rows to the table: sums along either dimension, and integral images of float32 and of bytes."""
    for dim in (1, 2):
        calls = [functools.partial(cumsum, dim=dim) for cumsum in (torch_ops.cumsum, torch.cumsum, torch.cumsum)]
        for dtype in (torch.float32, torch.float16):
            report.compare(f"cumsum dim {dim}", *calls, image.to(dtype))
    for argument in (image, pixels):
        report.compare("integral image", integral_image, with_pytorch, with_pytorch, argument)


def run(report):
    titles = (
        "photograph",
        *(f"radius {radius}" for radius in RADII[1:]),
        "radius grows with the distance from the focus",
    )
    columns = {title: [] for title in titles}
    for name in _photographs.NAMES:
        image = _photographs.load(name, report.device)
        pixels = (255 * image).round().to(torch.uint8)
        tables = {"bytes": integral_image(pixels), "float32": integral_image(image)}
        if name == _photographs.NAMES[0]:
            measure(report, image, pixels)
        exact = pixels.double() / 255
        report.note(f"{name}: {tables['bytes'].max().item()} is the largest sum of bytes, and exact")
        cells = {"photograph": (image, f"{name}, {image.shape[1]} x {image.shape[2]} pixels")}
        for radius in RADII:
            text = errors(tables, radius, direct(exact, radius))
            report.note(f"  radius {radius:2}, 4 look-ups instead of {(2 * radius + 1) ** 2} pixels: {text}")
            cells[f"radius {radius}"] = (box_blur(tables["bytes"], radius) / 255, text)
        radii = radii_around(FOCI[name], *image.shape[1:], report.device)
        text = errors(tables, radii, direct_by_radius(exact, radii))
        report.note(f"  radius 0 to {radii.max().item()}, another at each pixel: {text}")
        cells[titles[-1]] = (box_blur(tables["bytes"], radii) / 255, text)
        for title, column in columns.items():
            column.append(cells[title])
    path = report.folder / "integral_image.png"
    _photographs.grid(columns).savefig(path, dpi=100)
    report.wrote(path)
