"""The times behind torch_ops.convert(model, layout="channels_last"): the measurement, and real times on a GPU."""

from __future__ import annotations

import contextlib
import copy
import gc
import time

import pytest
import torch
from torch import nn

from torch_ops.layout import convolution, trial
from torch_ops.layout.convolution import Choice, Fastest, Layer, Times

from ..support.layouts import MEASURE, convert, fake_measurement, layouts, stack  # noqa: F401
from ..support.runtime import captured

# ---------------------------------------------------------------- the measurement


@pytest.fixture
def without_a_clock(monkeypatch):
    """A measurement on the CPU, and what it returned."""
    steps, found = [], []

    def fastest(step, idle=0.0):
        step()
        steps.append(step)
        return Fastest(float(len(steps)), 0.5)

    def measure(*problem):
        found.append(MEASURE(*problem))
        return found[-1]

    monkeypatch.setattr(trial, "measure", measure)
    monkeypatch.setattr(convolution, "_fastest", fastest)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return found


def test_what_is_measured(without_a_clock):
    conv, x = nn.ConvTranspose1d(4, 6, 3, groups=2), torch.randn(2, 4, 16)
    with torch.no_grad():
        convert(conv, x)
    assert without_a_clock == [Times(1.5, 4.5, 3.5, 6.5)], "one conversion each"
    convert(conv, x.requires_grad_())
    assert without_a_clock[1:] == [Times(8.5, 11.5, 2 * 10.5, 2 * 13.5)], "gradients are converted, too"
    assert conv.weight.grad is None and x.grad is None


@pytest.mark.parametrize(
    ("aten", "gpuopt", "is_faster"),
    [
        (Fastest(1.0, 0.2), Fastest(0.7, 0.2), True),
        (Fastest(1.0, 0.2), Fastest(0.9, 0.2), False),  # two measurements of one kernel may differ as much
        (Fastest(0.2, 1.0), Fastest(0.2, 0.5), False),  # the host's time alone
        (Fastest(0.2, 1.0), Fastest(0.1, 1.2), False),  # the host would make it slower
        (Fastest(0.2, 1.0), Fastest(0.1, 0.9), True),
    ],
)
def test_gpuopts_operator_must_have_faster_kernels(monkeypatch, aten, gpuopt, is_faster):
    def fastest(step, idle=0.0):
        return gpuopt if getattr(step, "args", ()) == (True,) else aten

    monkeypatch.setattr(convolution, "_fastest", fastest)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    layer = Layer(False, (1,), (0,), (1,), (0,), 1)
    times = MEASURE(layer, (2, 4, 16), (6, 4, 3), True, torch.float32, torch.device("cpu"), (False, False))
    assert times.by_gpuopt == (is_faster, is_faster)
    assert times.contiguous == times.channels_last == (gpuopt if is_faster else aten).ms


def test_a_layout_that_fails_is_not_chosen(without_a_clock, monkeypatch):
    def convolve(choice, *operands):
        if choice.channels_last:
            raise torch.OutOfMemoryError("too large")
        return original(choice, *operands)

    original = Choice.convolve
    monkeypatch.setattr(Choice, "convolve", convolve)
    x = torch.randn(2, 4, 16)
    assert layouts(convert(nn.Sequential(nn.Conv1d(4, 4, 3)), x), x) == [False]


# ---------------------------------------------------------------- on a GPU


@pytest.fixture
def real(monkeypatch):
    found = []
    monkeypatch.setattr(trial, "measure", lambda *problem: found.append(MEASURE(*problem)) or found[-1])
    return found


def requested() -> int:
    """Bytes of all tensors. PyTorch may give a tensor a block that is up to 1 MB larger."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("training", [False, True])
def test_real_times(training, dtype, real):
    torch.manual_seed(0)
    theirs = nn.Sequential(*(nn.Sequential(nn.Conv1d(256, 256, 3, 2), nn.GELU()) for _ in range(3))).to("cuda", dtype)
    ours, x = copy.deepcopy(theirs), torch.randn(4, 256, 4001, device="cuda", dtype=dtype)
    with torch.set_grad_enabled(training):
        convert(copy.deepcopy(theirs), x)  # loads what stays in memory
        real.clear()
        gc.collect()
        state, memory = torch.cuda.get_rng_state(), requested()
        convert(ours, x)
        gc.collect()
        assert torch.equal(torch.cuda.get_rng_state(), state) and requested() <= memory
    assert len(real) == 3 and all(min(times[:4]) > 0 for times in real)
    torch.testing.assert_close(ours(x), theirs(x), rtol=2e-2, atol=2e-2)
    for model in (theirs, ours):
        model(x).float().square().mean().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=5e-2, atol=1e-3)


@pytest.mark.gpu
def test_the_longer_of_two_times_counts():
    def sleep():
        time.sleep(0.002)

    assert 2 <= convolution._fastest(sleep).ms < 5, "the host's"
    assert convolution._fastest(sleep, idle=2.0).ms < 3
    assert convolution._fastest(lambda: torch.cuda._sleep(6_000_000)).ms > 2, "the GPU's"


@pytest.mark.gpu
def test_cuda_graphs_measure_nothing(real):
    model, x = convert(stack()).cuda(), torch.randn(2, 4, 40, device="cuda")
    with torch.no_grad():
        convert(stack()).cuda()(x[:, :, :24])  # loads what a capture must not load
        real.clear()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = model(x)
        graph.replay()
        assert not real
        torch.testing.assert_close(got, model(x), rtol=1e-3, atol=1e-3)
        assert len(real) == 4
        graph, got = captured(lambda: model(x))
        graph.replay()
        torch.testing.assert_close(got, model(x), rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_compiled_on_a_gpu(real):
    model, x = stack().cuda(), torch.randn(2, 4, 40, device="cuda")
    want = convert(model, x)(x)
    torch._dynamo.reset()
    got = torch.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert got.stride() == want.stride()
