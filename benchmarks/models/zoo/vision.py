"""Convolutional networks with nearest-neighbour upsampling, as plain modules in channels-last layout."""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.models.zoo import Model, Task


def images(module: nn.Module, *shape: int) -> Task:
    """A task on random images [batch, 3, height, width], with parameters and images in channels-last layout."""
    layout = torch.channels_last
    return Task(module.to(memory_format=layout), (torch.randn(shape).contiguous(memory_format=layout),))


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger, Fischer and Brox, arXiv:1505.04597, with padding, batch normalisation and nearest upsampling.

    Going down, each level halves the resolution and doubles the channels. Going up, the level below is upsampled and meets the
    level's own features.
    """

    def __init__(self, width: int, levels: int, classes: int):
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(double_conv(n, m) for n, m in zip([3, *widths], widths))
        self.up = nn.ModuleList(double_conv(n + 2 * n, n) for n in widths[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # [batch, 3, height, width] to [batch, classes, height, width]
        skipped = []
        for level in self.down[:-1]:
            skipped.append(level(x))
            x = F.max_pool2d(skipped[-1], 2)
        x = self.down[-1](x)
        for level, features in zip(reversed(self.up), reversed(skipped)):
            x = level(torch.cat([features, F.interpolate(x, scale_factor=2, mode="nearest")], dim=1))
        return self.head(x)


def unet(tiny: bool) -> Task:
    return images(UNet(4, 2, 2), 2, 3, 16, 16) if tiny else images(UNet(64, 4, 19), 4, 3, 256, 256)


class FrozenBatchNorm(nn.Module):
    """x * scale + bias for each channel, as detectors use it: statistics and weights do not learn."""

    def __init__(self, channels: int):
        super().__init__()
        self.register_buffer("scale", 0.5 + torch.rand(channels, 1, 1))
        self.register_buffer("bias", 0.1 * torch.randn(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.bias


def normed(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, FrozenBatchNorm(outputs))


class Bottleneck(nn.Module):
    """The block of ResNet-50: He et al., arXiv:1512.03385."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.convolutions = nn.ModuleList(
            [normed(inputs, width, 1), normed(width, width, 3, stride), normed(width, 4 * width, 1)]
        )
        self.shortcut = normed(inputs, 4 * width, 1, stride) if stride > 1 or inputs != 4 * width else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for convolution in self.convolutions[:-1]:
            y = F.relu(convolution(y))
        return F.relu(self.convolutions[-1](y) + self.shortcut(x))


class FPN(nn.Module):
    """Feature pyramids on a ResNet: Lin et al., arXiv:1612.03144.

    Each stage's features become ``channels`` wide. From the coarsest on, they are upsampled and added to the next finer ones.
    """

    def __init__(self, width: int, blocks: tuple[int, ...], channels: int):
        super().__init__()
        self.stem = normed(3, width, 7, 2)
        self.stages, inputs = nn.ModuleList(), width
        for level, count in enumerate(blocks):
            stage = []
            for block in range(count):
                stage.append(Bottleneck(inputs, width << level, 2 if level and not block else 1))
                inputs = 4 * (width << level)
            self.stages.append(nn.Sequential(*stage))
        self.lateral = nn.ModuleList(nn.Conv2d(4 * (width << level), channels, 1) for level in range(len(blocks)))
        self.smooth = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # [batch, 3, height, width] to [batch, positions of all levels, channels]
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, padding=1)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        pyramid = [self.lateral[-1](features[-1])]
        for lateral, finer in zip(reversed(self.lateral[:-1]), reversed(features[:-1])):
            upsampled = F.interpolate(pyramid[0], size=finer.shape[-2:], mode="nearest")
            pyramid.insert(0, lateral(finer) + upsampled)
        smoothed = [smooth(level) for smooth, level in zip(self.smooth, pyramid)]
        return torch.cat([level.flatten(2).transpose(1, 2) for level in smoothed], dim=1)


def fpn(tiny: bool) -> Task:
    return images(FPN(4, (1, 1), 8), 2, 3, 32, 32) if tiny else images(FPN(64, (3, 4, 6, 3), 256), 8, 3, 384, 384)


MODELS = [
    Model("unet", "UNet", "64 to 1024 channels, batch 4 x 256 x 256, channels-last", unet),
    Model("fpn", "FPN", "ResNet-50 with frozen batch norm, batch 8 x 384 x 384, channels-last", fpn),
]
