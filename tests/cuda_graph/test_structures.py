"""Modules that compute something from index tensors once, as PyTorch Geometric does under ``torch_ops.compat.install``."""

import gc

import pytest
import torch
from torch import nn

import torch_ops
from torch_ops.compat import _graphs

from .support import Pair, each_device, reasons, recording, replays, runtime_of

_NODES = 6


@pytest.fixture(autouse=True)
def _on_every_device(monkeypatch):
    monkeypatch.setattr(_graphs, "devices", {"cpu", "cuda"})
    yield
    _graphs.clear()


class Layer(nn.Module):
    """Sums of neighbours, by a matrix that is remembered."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def edges(self, edge_index):
        return edge_index

    def forward(self, x, edge_index):
        matrix = _graphs.matrix(self.edges(edge_index), 1, (_NODES, _NODES))
        return torch_ops.spmm(matrix, self.linear(x))


class Stored(Layer):
    def __init__(self, edge_index):
        super().__init__()
        self.register_buffer("stored", edge_index)

    def edges(self, _):
        return self.stored


class Flipped(Layer):
    def edges(self, edge_index):
        return edge_index.flip(0)


def _edges(seed, device):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(_NODES, (2, 15), generator=generator).to(device)


def _step(pair, edge_index):
    x = torch.randn(_NODES, 4, device=pair.device, requires_grad=True)

    def train(module):
        x.grad = None
        module.zero_grad()
        y = module(x, edge_index)
        y.square().sum().backward()
        return y.detach(), x.grad.clone()

    pair.both(train)


@each_device
def test_edges_are_told_apart(device):
    with recording(device):
        pair, first, second = Pair(Layer(), device), _edges(1, device), _edges(2, device)
        for _ in range(6):
            _step(pair, first)
            _step(pair, second)
        assert pair.replays() >= 6, pair.reasons()


@each_device
def test_a_write_to_the_edges(device):
    with recording(device):
        pair, edge_index = Pair(Layer(), device), _edges(1, device)
        for number in range(8):
            if number == 4:
                edge_index.copy_(_edges(2, device))
            _step(pair, edge_index)
        assert pair.replays() >= 2, pair.reasons()


@each_device
def test_a_write_to_edges_of_the_module(device):
    with recording(device):
        pair = Pair(Stored(_edges(1, device)), device)
        for number in range(8):
            if number == 4:
                for module in (pair.eager, pair.graphed):
                    module.stored.copy_(_edges(2, device))
            _step(pair, None)
            assert number in (0, 4) or pair.replays(), pair.reasons()
        assert pair.replays() >= 5, pair.reasons()


@each_device
def test_edges_that_forward_computes(device):
    with recording(device):
        pair, edge_index = Pair(Flipped(), device), _edges(1, device)
        for _ in range(4):
            _step(pair, edge_index)
        assert not pair.replays()
        assert "computes the edges of a graph" in pair.reasons()


@each_device
def test_edges_that_are_gone_take_their_recordings_with_them(device):
    with recording(device):
        module = torch_ops.cuda_graph(Layer().to(device))
        x = torch.randn(_NODES, 4, device=device)
        for seed in range(20):
            edge_index = _edges(seed, device)
            for _ in range(4):
                expected = torch_ops.spmm(_graphs.matrix(edge_index, 1, (_NODES, _NODES)), module.linear(x))
                torch.testing.assert_close(module(x, edge_index), expected)
            del edge_index
        gc.collect()
        assert replays(module) >= 20, reasons(module)
        assert len(runtime_of(module).entries) <= 3


@each_device
def test_layers_of_pytorch_geometric(device):
    pytest.importorskip("torch_geometric")
    torch_ops.compat.install("torch_geometric")
    try:
        from torch_geometric.nn import GATConv, GCNConv

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = GCNConv(4, 8), GATConv(8, 4, heads=1)

            def forward(self, x, edge_index):
                return self.two(self.one(x, edge_index).relu(), edge_index)

        with recording(device):
            pair, edge_index = Pair(Net(), device), _edges(1, device)
            for _ in range(5):
                _step(pair, edge_index)
            assert pair.replays() >= 2, pair.reasons()
            (recorded,) = runtime_of(pair.graphed).recorded()
            assert recorded.step.structures.made, "the layers did not use a remembered matrix"
    finally:
        torch_ops.compat.uninstall("torch_geometric")
