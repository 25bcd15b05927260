"""torch_ops.layout_cache: the measurement, the file, and real times on a GPU."""

from __future__ import annotations

import contextlib
import copy
import gc
import time

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torch_ops import _layout, _layout_convolution, layout_cache
from torch_ops._layout_cache import Times
from torch_ops._layout_convolution import Fastest

from ..support.layouts import MEASURE, convert, fake_measurement, layouts, stack  # noqa: F401
from ..support.runtime import captured

# ---------------------------------------------------------------- the measurement


@pytest.fixture
def without_a_clock(monkeypatch):
    """A measurement on the CPU, and the steps that it times."""
    steps = []

    def fastest(step, idle=0.0):
        step()
        steps.append(step)
        return Fastest(float(len(steps)), 0.5)

    monkeypatch.setattr(_layout, "measure", MEASURE)
    monkeypatch.setattr(_layout_convolution, "_fastest", fastest)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return steps


def test_what_is_measured(without_a_clock):
    conv, x = convert(nn.ConvTranspose1d(4, 6, 3, groups=2)), torch.randn(2, 4, 16)
    state = torch.get_rng_state()
    with torch.no_grad():
        conv(x)
    assert list(layout_cache._times.values()) == [Times(1.5, 4.5, 3.5, 6.5)], "one conversion each"
    conv(x.requires_grad_())
    assert list(layout_cache._times.values())[-1] == Times(8.5, 11.5, 2 * 10.5, 2 * 13.5), (
        "gradients are converted, too"
    )
    assert torch.equal(torch.get_rng_state(), state) and not conv.weight.grad


@pytest.mark.parametrize(
    ("aten", "own", "is_own"),
    [
        (Fastest(1.0, 0.2), Fastest(0.7, 0.2), True),
        (Fastest(1.0, 0.2), Fastest(0.9, 0.2), False),  # two measurements of one kernel may differ as much
        (Fastest(0.2, 1.0), Fastest(0.2, 0.5), False),  # the host's time alone
        (Fastest(0.2, 1.0), Fastest(0.1, 1.2), False),  # the host would make it slower
        (Fastest(0.2, 1.0), Fastest(0.1, 0.9), True),
    ],
)
def test_gpuopts_operator_must_have_faster_kernels(monkeypatch, aten, own, is_own):
    def fastest(step, idle=0.0):
        return own if getattr(step, "args", ()) == (True,) else aten

    monkeypatch.setattr(_layout_convolution, "_fastest", fastest)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    layer = ("conv1d", (1,), (0,), (1,), (), 1)
    times = MEASURE(layer, (2, 4, 16), (6, 4, 3), True, torch.float32, torch.device("cpu"), (False, False))
    assert times.own == (is_own, is_own)
    assert times.contiguous == times.channels_last == (own if is_own else aten).ms


def test_a_layout_that_fails_is_not_chosen(without_a_clock, monkeypatch, tmp_path):
    def convolve(*operands_and_layout):
        if operands_and_layout[-1]:
            raise torch.OutOfMemoryError("too large")
        return original(*operands_and_layout)

    original = _layout_convolution.convolve
    for module in (_layout, _layout_convolution):
        monkeypatch.setattr(module, "convolve", convolve)
    conv, x = convert(nn.Sequential(nn.Conv1d(4, 4, 3))), torch.randn(2, 4, 16)
    assert layouts(conv, x) == [False]
    layout_cache.save(tmp_path / "times.json")
    layout_cache.clear()
    layout_cache.load(tmp_path / "times.json")
    assert len(layout_cache) == 0, "there may be more memory next time"


def test_a_checkpoint_saves_as_much_when_it_is_computed_again(without_a_clock):
    model, x = convert(stack()), torch.randn(2, 4, 40, requires_grad=True)
    checkpoint(model, x, use_reentrant=False).sum().backward()
    assert len(layout_cache) == 4 and x.grad is not None


# ---------------------------------------------------------------- the file


def test_save_and_load(measured, tmp_path):
    path, model, x = tmp_path / "times.json", convert(stack()), torch.randn(2, 4, 40)
    model(x)
    layout_cache.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["times.json"]
    before = dict(layout_cache._times)
    layout_cache.clear()
    layout_cache.load(path)
    assert layout_cache._times == before and len(before) == 4
    model(x)
    assert len(measured) == 4
    text = path.read_text()
    path.write_text(text.replace('"gpu": "cpu"', '"gpu": "another"'))
    layout_cache.clear()
    layout_cache.load(path)
    model(x)
    assert len(measured) == 8 and len(layout_cache) == 8


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("{", "", "must be a file of layout_cache.save"),
        ("gpuopt layouts 3", "gpuopt layouts 0", "must be a file of layout_cache.save"),
        ('"stride"', '"strides"', "must be a file of layout_cache.save"),
        ("4.0", "-4.0", "must be a file of layout_cache.save"),
        ("4.0", "NaN", "must be a file of layout_cache.save"),
        ('"problems"', '"others"', "must be a file of layout_cache.save"),
        (f'"torch": "{torch.__version__}"', '"torch": "1.0"', "must be of the same versions: expected .*, got .*1.0"),
    ],
)
def test_foreign_and_damaged_files(old, new, message, tmp_path):
    path = tmp_path / "times.json"
    convert(stack())(torch.randn(2, 4, 40))
    layout_cache.save(path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    layout_cache.clear()
    with pytest.raises(ValueError, match=message):
        layout_cache.load(path)
    assert len(layout_cache) == 0
    for content in (b"\xff\xfe\x00", b"[" * 100_000):  # no text, and nested too deep for a recursion
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"layout_cache: {path} must be a file of layout_cache.save"):
            layout_cache.load(path)
    with pytest.raises(OSError):
        layout_cache.load(tmp_path / "none.json")


def test_the_cache_is_bounded(measured, monkeypatch, tmp_path):
    model = convert(nn.Conv1d(4, 4, 3))
    for length in (8, 16, 32, 64):
        model(torch.randn(1, 4, length))
    layout_cache.save(tmp_path / "times.json")
    layout_cache.clear()
    monkeypatch.setattr(layout_cache, "limit", 3, raising=False)
    layout_cache.load(tmp_path / "times.json")
    assert [problem.length for problem in layout_cache._times] == [16, 32, 64]
    model(torch.randn(1, 4, 128))
    assert [problem.length for problem in layout_cache._times] == [32, 64, 128]


def test_the_cache_as_text():
    convert(nn.Conv1d(4, 8, 3, padding=1))(torch.randn(2, 4, 40))
    first, header, row = repr(layout_cache).splitlines()
    assert first == "LayoutCache of 1 problems, times in ms" and header.split()[:3] == ["operator", "weight", "batch"]
    assert row.split()[:4] == ["conv1d", "(8,", "4,", "3)"] and row.split()[-3:] == ["4.000", "1.000", "1.000"]


# ---------------------------------------------------------------- on a GPU


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setattr(_layout, "measure", MEASURE)


def requested() -> int:
    """Bytes of all tensors. PyTorch may give a tensor a block that is up to 1 MB larger."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_real_times(dtype, real):
    torch.manual_seed(0)
    theirs = nn.Sequential(*(nn.Sequential(nn.Conv1d(256, 256, 3, 2), nn.GELU()) for _ in range(3))).to("cuda", dtype)
    ours, x = convert(copy.deepcopy(theirs)), torch.randn(4, 256, 4001, device="cuda", dtype=dtype)
    with torch.no_grad():
        convert(copy.deepcopy(theirs))(x)  # loads what stays in memory
        layout_cache.clear()
        want = theirs(x)
        gc.collect()
        state, memory = torch.cuda.get_rng_state(), requested()
        got = ours(x)
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    gc.collect()
    assert requested() <= memory + got.nbytes
    assert len(layout_cache) == 3 and all(min(times[:4]) > 0 for times in layout_cache._times.values())
    for model in (theirs, ours):
        model(x).float().square().mean().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=5e-2, atol=1e-3)
    assert len(layout_cache) == 6
    checkpoint(ours, x.requires_grad_(), use_reentrant=False).float().sum().backward()


@pytest.mark.gpu
def test_the_longer_of_two_times_counts():
    def sleep():
        time.sleep(0.002)

    assert 2 <= _layout_convolution._fastest(sleep).ms < 5, "the host's"
    assert _layout_convolution._fastest(sleep, idle=2.0).ms < 3
    assert _layout_convolution._fastest(lambda: torch.cuda._sleep(6_000_000)).ms > 2, "the GPU's"


@pytest.mark.gpu
def test_cuda_graphs_measure_nothing(real):
    model, x = convert(stack()).cuda(), torch.randn(2, 4, 40, device="cuda")
    with torch.no_grad():
        graph = torch.cuda.CUDAGraph()
        convert(stack()).cuda()(x[:, :, :24])  # loads what a capture must not load
        count = len(layout_cache)
        with torch.cuda.graph(graph):
            got = model(x)
        assert len(layout_cache) == count
        graph.replay()
        torch.testing.assert_close(got, model(x), rtol=1e-3, atol=1e-3)
        assert len(layout_cache) > count
        graph, got = captured(lambda: model(x))
        graph.replay()
        torch.testing.assert_close(got, model(x), rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_compiled_on_a_gpu(real):
    model, x = convert(stack()).cuda(), torch.randn(2, 4, 40, device="cuda")
    want = model(x)
    torch._dynamo.reset()
    got = torch.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert got.stride() == want.stride()
