"""White balance of two photographs: one gain per colour channel, applied with ``torch_ops.mul``.

The gray-world rule says that a scene is gray on average. So each channel is multiplied by (mean of all channels) / (its own mean).
First the gain is computed and applied. Then a compiled model finds the same gain by gradient descent.
"""

import torch
from torch import nn

import torch_ops
from examples import _photographs

TITLE = "white balance"
STEPS = 100


def to_linear(encoded: torch.Tensor) -> torch.Tensor:
    """Converts sRGB values in [0, 1] to amounts of light. A gain applies to light, not to sRGB."""
    return torch.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def to_srgb(light: torch.Tensor) -> torch.Tensor:
    light = light.float().clamp(0, 1)
    return torch.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def gray_world(image: torch.Tensor) -> torch.Tensor:
    """The gain of each channel, (3, 1, 1)."""
    means = torch_ops.reduce_mean(image, (1, 2), keepdim=True)
    return means.mean() / means


class WhiteBalance(nn.Module):
    """A learnable gain for each channel."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch_ops.mul(image, self.gain)


def train(model: nn.Module, image: torch.Tensor) -> list[float]:
    """Gradient descent until the channel means are equal. Returns the loss before each step, and after the last."""
    gray = torch_ops.reduce_mean(image)
    gain = next(model.parameters())
    # The loss is quadratic in the gain with curvature 2 mean^2 / 3, so this rate reduces every channel's error.
    rate = 1.5 / torch_ops.reduce_mean(image, (1, 2)).square().max().item()
    optimizer = torch.optim.SGD([gain], lr=rate)
    losses = []
    for step in range(STEPS + 1):
        loss = (torch_ops.reduce_mean(model(image), (1, 2)) - gray).square().mean()
        losses.append(loss.item())
        if step < STEPS:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return losses


def cell(image: torch.Tensor) -> tuple[torch.Tensor, str]:
    """An image and its text, as the figure shows them."""
    means = ", ".join(f"{mean:.2f}" for mean in image.mean((1, 2)).tolist())
    return to_srgb(image), f"mean light of red, green, blue: {means}"


def run(report):
    columns = {"before": [], "gray world": [], "gain learned in a compiled model": []}
    for name in _photographs.NAMES:
        image = to_linear(_photographs.load(name, report.device))
        gain = gray_world(image)
        for dtype in (torch.float32, torch.float16):
            arguments = (image.to(dtype), gain.to(dtype))
            balanced = report.compare("mul", torch_ops.mul, torch.mul, torch.mul, *arguments)
            if dtype == torch.float32:
                columns["before"].append(cell(image))
                columns["gray world"].append(cell(balanced))

        eager, model = WhiteBalance().to(report.device), WhiteBalance().to(report.device)
        report.note(
            f"{name}: compiling a model with torch.compile(fullgraph=True) and training its gain, {STEPS} steps"
        )
        losses = train(torch.compile(model, fullgraph=True), image)
        train(eager, image)
        torch.testing.assert_close(model.gain, eager.gain)
        torch.testing.assert_close(model.gain.detach(), gain, rtol=1e-3, atol=1e-3)
        found = ", ".join(f"{value:.3f}" for value in model.gain.flatten().tolist())
        report.note(
            f"  loss {losses[0]:.2e} -> {losses[-1]:.2e}; gain {found}; compiled and eager agree, and match gray world"
        )
        columns["gain learned in a compiled model"].append(cell(model(image).detach()))
    path = report.folder / "white_balance.png"
    _photographs.grid(columns).savefig(path, dpi=100)
    report.wrote(path)
