"""Recordings that fail leave nothing behind: neither on the CPU's backend, which raises what it is told, nor on a GPU."""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
from torch import nn

import torch_ops

from .support import Pair, each_device, on_cpu, on_cuda, reasons, recording, replays, runtime_of

pytestmark = pytest.mark.torch_version


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8))


def train(x):
    def step(module):
        module.zero_grad()
        result = module(x)
        result.square().mean().backward()
        return result

    return step


ERRORS = {
    "cuda": (RuntimeError("operation not permitted when stream is capturing"), "recording failed: RuntimeError"),
    "memory": (torch.OutOfMemoryError("out of memory"), "not enough memory"),
    "python": (TypeError("no"), "recording failed: TypeError"),
}


@on_cpu
@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("after", [0, 1], ids=["forward", "backward"])
def test_errors_while_recording(device, name, after):
    error, reason = ERRORS[name]
    with recording(device) as backend:
        pair = Pair(net(), device)
        pair.both(train(torch.randn(4, 8)))
        backend.errors = [None] * after + [error]
        for _ in range(4):
            pair.both(train(torch.randn(4, 8)))
        assert reason in pair.reasons() and pair.replays() == 0


@on_cpu
def test_an_interrupt_while_recording_leaves_the_state(device):
    with recording(device) as backend:
        pair = Pair(net(), device)
        pair.both(train(torch.randn(4, 8)))
        backend.errors = [KeyboardInterrupt()]
        state = torch.get_rng_state()
        with pytest.raises(KeyboardInterrupt):
            pair.graphed(torch.randn(4, 8))
        torch.set_rng_state(state)
        pair.same_state()
        for _ in range(3):
            pair.both(train(torch.randn(4, 8)))
        assert pair.replays() == 3


@each_device
def test_an_error_of_the_module_is_its_own(device):
    class Strict(nn.Linear):
        def forward(self, x):
            if x.shape[0] == 3:
                raise ValueError("three")
            return super().forward(x)

    with recording(device):
        model = torch_ops.cuda_graph(Strict(8, 8).to(device))
        for rows in (2, 3, 2, 3, 2, 3):
            x = torch.randn(rows, 8, device=device)
            if rows == 3:
                with pytest.raises(ValueError, match="three"):
                    model(x)
            else:
                model(x)
        assert replays(model) == 2


@on_cuda
@pytest.mark.parametrize("kind", ["item", "host copy", "generator", "synchronize", "exception", "side stream"])
def test_a_failed_recording_leaves_generator_stream_and_allocator(device, kind):
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.kind = nn.Linear(8, 8), kind

        def forward(self, x):
            y = torch.dropout(self.linear(x), 0.5, True)
            recording = torch.cuda.is_current_stream_capturing()
            if self.kind == "item" and recording:
                y.sum().item()
            if self.kind == "host copy" and recording:
                y.cpu()
            if self.kind == "generator" and recording:
                torch.rand(3, device=device, generator=torch.Generator(device=device))
            if self.kind == "synchronize" and recording:
                torch.cuda.synchronize()
            if self.kind == "exception" and recording:
                raise RuntimeError("no")
            if self.kind == "side stream" and recording:
                other = torch.cuda.Stream()
                other.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(other):
                    y = y + 1
            return y

    with recording(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = Pair(net(), device)
        for _ in range(3):
            other.both(train(torch.randn(4, 8, device=device)))
        pair = Pair(Fails(), device)
        stream = torch.cuda.current_stream()
        for number in range(4):
            x = torch.randn(4, 8, device=device)
            state = torch.cuda.get_rng_state()
            expected = torch.dropout(pair.eager.linear(x), 0.5, True)
            torch.cuda.set_rng_state(state)
            found = pair.graphed(x)
            torch.testing.assert_close(found, expected, msg=f"call {number} after a failed recording")
        assert "recording failed" in pair.reasons() and pair.replays() == 0
        assert torch.cuda.current_stream() == stream and not torch.cuda.is_current_stream_capturing()
        torch.manual_seed(3)
        first = torch.rand(5, device=device)
        torch.manual_seed(3)
        assert torch.equal(first, torch.rand(5, device=device))
        for _ in range(3):  # recordings from before still draw from the generator
            other.both(train(torch.randn(4, 8, device=device)))
        new = Pair(net(), device)
        for _ in range(3):
            new.both(train(torch.randn(4, 8, device=device)))
        assert other.replays() == 5 and new.replays() == 2
        del other, new, pair, found, expected, first
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        pools = {str(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
        assert pools <= {"(0, 0)"}, f"memory of pools is not freed: {pools}"


@on_cuda
def test_memory_of_many_signatures_and_modules_comes_back(device):
    with recording(device):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = None
        for number in range(12):
            model = torch_ops.cuda_graph(
                nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(device), max_graphs=4
            )
            for rows in range(64, 64 + 20):
                for _ in range(3):
                    model(torch.randn(rows, 256, device=device)).sum().backward()
            assert replays(model) > 0
            del model
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            now = torch.cuda.memory_reserved()
            before = now if number == 1 else before
            assert number < 2 or now <= before + (1 << 20), f"module {number} left {now - before} bytes"


@on_cuda
def test_memory_of_one_signature(device):
    """At most 1.3 times the peak of an eager step."""
    with recording(device):
        model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.GELU())]).to(device)
        x = torch.randn(8192, 1024, device=device)

        def step(module):
            module.zero_grad()
            module(x).square().mean().backward()

        def peak():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            for _ in range(3):
                step(model)
            torch.cuda.synchronize()
            return torch.cuda.memory_reserved()

        eager = peak()
        torch_ops.cuda_graph(model)
        for _ in range(4):
            step(model)
        graphed = peak()
        print(f"reserved: eager {eager >> 20} MiB, graphed {graphed >> 20} MiB")
        assert replays(model) > 0 and graphed <= 1.3 * eager, f"eager {eager >> 20} MiB, graphed {graphed >> 20} MiB"


@on_cuda
def test_other_streams(device):
    with recording(device):
        pair = Pair(net(), device)
        streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        for number in range(12):
            stream = streams[number % 3]
            x = torch.randn(4, 8, device=device)
            x.record_stream(stream)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                pair.both(train(x))
            torch.cuda.current_stream().wait_stream(stream)
        assert pair.replays() == 9


@on_cuda
def test_inside_someone_elses_graph(device):
    with recording(device):
        model = torch_ops.cuda_graph(nn.Linear(8, 8).to(device))
        x = torch.randn(4, 8, device=device)
        with torch.no_grad():
            for _ in range(3):
                model(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = model(x)
            x.copy_(torch.randn_like(x))
            graph.replay()
            torch.testing.assert_close(y, nn.functional.linear(x, model.weight, model.bias))
        assert "recorded by someone else" in reasons(model)


@on_cuda
def test_a_loader_that_pins_memory(device):
    with recording(device):
        data = torch.utils.data.TensorDataset(torch.randn(64, 8))
        loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=1)
        pair = Pair(net(), device)
        for (x,) in loader:
            pair.both(train(x.to(device, non_blocking=True)))
        assert pair.replays() == 15


@on_cuda
def test_a_profiler(device):
    with recording(device):
        pair = Pair(net(), device)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        ):
            for _ in range(5):
                pair.both(train(torch.randn(4, 8, device=device)))
        assert pair.replays() == 4


@on_cuda
def test_distributed_data_parallel(device, tmp_path):
    """On one rank: DDP around a graphed module, and a graphed DDP, whose module gets the recordings."""
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with recording(device):
            for outside in (False, True):
                model = net().to(device)
                if outside:
                    wrapped = torch_ops.cuda_graph(nn.parallel.DistributedDataParallel(model))
                else:
                    wrapped = nn.parallel.DistributedDataParallel(torch_ops.cuda_graph(model))
                reference = net().to(device)
                reference.load_state_dict(model.state_dict())
                for _ in range(6):
                    x = torch.randn(4, 8, device=device)
                    state = torch.cuda.get_rng_state()
                    train(x)(reference)
                    torch.cuda.set_rng_state(state)
                    train(x)(wrapped)
                    for p, q in zip(reference.parameters(), model.parameters(), strict=True):
                        torch.testing.assert_close(q.grad, p.grad)
                assert replays(model) > 2, f"DDP {'inside' if outside else 'outside'}: {reasons(model)}"
    finally:
        torch.distributed.destroy_process_group()


@on_cuda
@pytest.mark.alone
def test_times_are_reported_and_slow_recordings_are_dropped(device):
    """Without a fake limit: a deep stack of small layers is faster as a graph, one product of large matrices is not slower."""
    deep = torch_ops.cuda_graph(nn.Sequential(*[nn.Linear(32, 32) for _ in range(50)]).to(device))
    large = torch_ops.cuda_graph(nn.Linear(8192, 8192).to(device))
    with torch.no_grad():
        for _ in range(4):
            deep(torch.randn(8, 32, device=device))
            large(torch.randn(8192, 8192, device=device))
    (row,) = runtime_of(deep).entries.values()
    assert row.measured is not None and row.measured.replay < 0.7 * row.measured.eager, row.reason
    assert replays(deep) == 3
    print(torch_ops.cuda_graph_report())
