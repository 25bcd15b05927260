"""Modules whose host reads values that are the same in each call, as EnCodec's convolutions do."""

import pytest
import torch
from torch import nn

from .support import Pair, each_device, on_cuda, recording


class Padded(nn.Module):
    """A convolution whose padding is computed from buffers on the device."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(2, 2, 3)
        self.register_buffer("stride", torch.tensor(4))
        self.register_buffer("size", torch.tensor(3), persistent=False)

    def forward(self, x):
        frames = torch.ceil((x.shape[-1] - self.size) / self.stride + 1).to(torch.int64) - 1
        missing = frames * self.stride + self.size - x.shape[-1]
        return self.convolution(nn.functional.pad(x, (0, int(missing))))


class Counting(nn.Module):
    """The host reads a counter that each call increments."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * int(self.calls)


class Mixed(Padded):
    """The host also reads a value of an argument, before it reads the others."""

    def forward(self, x):
        sign = float(x.sum().sign())
        return super().forward(x) * sign


class Masked(nn.Module):
    """The host asks for a property of a tensor that is made in each call from nothing else."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        positions = torch.arange(x.shape[0], device=x.device)
        return self.linear(x) if (positions.diff() == 1).all() else x


class Overwritten(Masked):
    """The tensor made from nothing else gets values of an argument."""

    def forward(self, x):
        positions = torch.zeros(x.shape, device=x.device)
        positions.copy_(x)
        return self.linear(x) * float(positions.max())


class Drawn(Masked):
    def forward(self, x):
        return self.linear(x) * float(torch.rand(1, device=x.device))


def _train(pair, x):
    def action(module):
        module.zero_grad()
        y = module(x)
        y.square().sum().backward()
        return y.detach()

    pair.both(action)


@each_device
@pytest.mark.parametrize(("module", "shape"), [(Padded, (2, 2, 10)), (Masked, (4, 3))], ids=["buffers", "arange"])
def test_values_that_stay_are_recorded(device, module, shape):
    with recording(device):
        pair = Pair(module(), device)
        for number in range(5):
            _train(pair, torch.randn(shape, device=device))
            assert pair.replays() == number, pair.reasons()


@each_device
def test_a_write_to_a_buffer_that_was_read(device):
    with recording(device):
        pair = Pair(Padded(), device)
        for number in range(8):
            if number == 4:
                for module in (pair.eager, pair.graphed):
                    module.stride.fill_(7)
            _train(pair, torch.randn(2, 2, 10, device=device))
        assert pair.replays() >= 5, pair.reasons()


@each_device
@pytest.mark.parametrize(
    ("module", "shape"),
    [(Counting, (2, 3)), (Mixed, (2, 2, 10)), (Overwritten, (2, 3)), (Drawn, (2, 3))],
    ids=["counter", "argument", "overwritten", "random"],
)
def test_values_that_change_are_not(device, module, shape):
    with recording(device):
        pair = Pair(module(), device)
        for _ in range(5):
            _train(pair, torch.randn(shape, device=device))
        assert not pair.replays()
        assert "the host reads values" in pair.reasons()


@on_cuda
def test_recurrent_layers_are_recorded(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 4, 2)

        def forward(self, x):
            return self.lstm(x)[0]

    with recording(device):
        pair = Pair(Net(), device)
        for number in range(5):
            _train(pair, torch.randn(3, 2, 4, device=device))
            assert pair.replays() == number, pair.reasons()
