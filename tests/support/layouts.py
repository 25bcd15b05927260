"""What tests of torch_ops.convert(model, layout="channels_last") share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_ops
from torch_ops.layout import trial
from torch_ops.layout.convolution import Times, is_channels_last, measure

FASTER, SLOWER = Times(4.0, 1.0, 0.5, 0.5), Times(1.4, 31.7, 0.5, 0.5)
MEASURE = measure


@pytest.fixture(name="measured", autouse=True)
def fake_measurement(monkeypatch):
    """The problems that were measured. Signals of the CPU choose too, and the times are ``measured.times``."""

    class Measured(list):
        times = FASTER

        def __call__(self, layer, shape, *others):
            self.append((layer, shape, *others))
            return self.times

    found = Measured()
    monkeypatch.setattr(trial, "devices", {"cpu", "cuda"})
    monkeypatch.setattr(trial, "measure", found)
    return found


def convert(model: nn.Module, *args: torch.Tensor, example: dict | None = None, **options) -> nn.Module:
    """Converted by an example. Without one, the first call chooses."""
    return torch_ops.convert(model, layout="channels_last", example=args or example, **options)


def stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(4, 8, 3, padding=1),
        nn.GELU(),
        nn.Conv1d(8, 8, 5, padding="same", dilation=2, groups=2),
        nn.LeakyReLU(),
        nn.ConvTranspose1d(8, 6, 4, stride=2, padding=1),
        nn.Conv1d(6, 6, 1),
    )


def layouts(model: nn.Module, *inputs: torch.Tensor) -> list[bool]:
    """Whether the results of the convolutions are channels last, in a call of the model. Passes of a trial do not count."""
    found = []
    convolutions = [m for m in model.modules() if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d)) and m is not model]
    handles = [m.register_forward_hook(lambda m, a, out: found.append(is_channels_last(out))) for m in convolutions]
    model(*inputs)
    for handle in handles:
        handle.remove()
    return found[-len(convolutions) :]


def graph_of(model: nn.Module, x: torch.Tensor, **options) -> tuple[str, torch.Tensor]:
    found = []

    def backend(module, examples):
        found.append(str(module.graph))
        return module

    torch._dynamo.reset()
    result = torch.compile(model, fullgraph=True, backend=backend, **options)(x)
    return found[0], result
