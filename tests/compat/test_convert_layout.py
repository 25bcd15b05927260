"""torch_ops.convert(model, layout="channels_last"): who computes in which layout, and everything that stays."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_ops
from torch_ops import _layout, layout_cache
from torch_ops._layout import is_channels_last
from torch_ops._layout_cache import Times

from ..support.params import each_device
from ..support.runtime import captured, deterministic_algorithms

FASTER, SLOWER = Times(4.0, 1.0, 0.5, 0.5), Times(1.4, 31.7, 0.5, 0.5)
MEASURE = _layout._measure


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """The problems that were measured. Signals of the CPU choose too, and the times are ``measured.times``."""

    class Measured(list):
        times = FASTER

        def __call__(self, layer, shape, *others):
            self.append((layer, shape, *others))
            return self.times

    found = Measured()
    monkeypatch.setattr(_layout, "devices", {"cpu", "cuda"})
    monkeypatch.setattr(_layout, "_measure", found)
    layout_cache.clear()
    yield found
    layout_cache.clear()


def convert(model: nn.Module) -> nn.Module:
    return torch_ops.convert(model, layout="channels_last")


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
    """Whether the results of the convolutions are channels last, in a call of the model."""
    found = []
    convolutions = [m for m in model.modules() if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d)) and m is not model]
    handles = [m.register_forward_hook(lambda m, a, out: found.append(is_channels_last(out))) for m in convolutions]
    model(*inputs)
    for handle in handles:
        handle.remove()
    return found


# ---------------------------------------------------------------- the choice


@each_device
def test_a_stack_stays_channels_last(device, measured):
    model, x = stack().to(device), torch.randn(2, 4, 40, device=device)
    want = model(x)
    convert(model)
    assert layouts(model, x) == [True] * 4 and len(measured) == len(layout_cache) == 4
    got = model(x)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    assert got.stride() == want.stride() and len(measured) == 4, "every layer is measured once"


def test_slower_layers_stay(measured):
    measured.times = SLOWER
    model, x = convert(stack()), torch.randn(2, 4, 40)
    assert layouts(model, x) == [False] * 4
    assert layouts(model, x.mT.contiguous().mT.reshape(2, 4, 40)) == [False] * 4
    assert layouts(model, x.mT.contiguous().mT) == [False] * 4, "a channels-last input is converted, too"


@pytest.mark.parametrize(
    "times, from_contiguous, from_channels_last",
    [
        (Times(1.0, 1.0, 0.2, 0.2), False, True),  # no gain: the layout of the input stays
        (Times(1.0, 0.81, 0.2, 0.2), False, True),  # a gain below the conversions of a stack of two
        (Times(1.0, 0.79, 0.2, 0.2), True, True),
        (Times(0.81, 1.0, 0.2, 0.2), False, True),
        (Times(0.79, 1.0, 0.2, 0.2), False, False),
        (Times(1.4, 31.7, 0.2, 0.2), False, False),
        (Times(float("inf"), float("inf"), 0.0, 0.0), False, False),
    ],
)
def test_a_layer_that_leaves_its_layout_is_charged(times, from_contiguous, from_channels_last):
    assert times.prefer_channels_last(False) == from_contiguous
    assert times.prefer_channels_last(True) == from_channels_last


def test_a_stack_ends_where_a_layer_is_slower(measured, monkeypatch):
    def measure(layer, shape, weight, *others):
        return SLOWER if weight[2] == 5 else FASTER

    monkeypatch.setattr(_layout, "_measure", measure)
    assert layouts(convert(stack()), torch.randn(2, 4, 40)) == [True, False, True, True]


class Residual(nn.Module):
    """The first layer has one channel, so its layout makes no difference to itself."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv1d(1, 4, 3), nn.Conv1d(4, 4, 3, padding=1), nn.Conv1d(4, 4, 1)

    def forward(self, x):
        x = self.first(x)
        y = x + self.second(x)
        self.sum_is_channels_last = is_channels_last(y)
        return self.third(y)


def test_a_residual_connection_becomes_channels_last(measured):
    model, x = Residual(), torch.randn(2, 1, 20)
    want = model(x)
    convert(model)
    torch.testing.assert_close(model(x), want)
    assert not model.sum_is_channels_last, "the first layer learns from the second"
    torch.testing.assert_close(model(x), want)
    assert model.sum_is_channels_last and model.first.next_is_channels_last
    graph, got = graph_of(model, x)
    assert "gpuopt.transpose2d.default](args = (%result," in graph and got.stride() == want.stride()
    measured.times = SLOWER
    layout_cache.clear()
    model(x)
    assert not model.first.next_is_channels_last
    torch_ops.convert(model, reverse=True)
    assert "next_is_channels_last" not in vars(model.first)


def test_sizes_share_measurements(measured):
    conv = convert(nn.Conv1d(4, 4, 3))
    for batch, length in itertools.product((8, 9, 11), (64, 65, 72, 80, 95)):
        conv(torch.randn(batch, 4, length))
    assert len(measured) == 2, "lengths of whole vectors, and others"
    assert [shape for _, shape, *_ in measured] == [(8, 4, 64), (8, 4, 65)], "the sizes of the first call"
    conv(torch.randn(12, 4, 64))
    conv(torch.randn(8, 4, 96))
    assert len(measured) == 4


def test_modes_of_pytorch_are_problems_of_their_own(measured):
    conv, x = convert(nn.Conv1d(4, 4, 3)), torch.randn(1, 4, 16)
    counts = []

    def call(context=None, x=x):
        with context or contextlib.nullcontext():
            conv(x)
        counts.append(len(measured))

    def flags(benchmark=False, deterministic=False, allow_tf32=True):
        return torch.backends.cudnn.flags(True, benchmark, deterministic=deterministic, allow_tf32=allow_tf32)

    with flags():
        call()
        call(torch.no_grad())
        call(x=x.clone().requires_grad_())
        call(deterministic_algorithms())
        call(flags(benchmark=True))
        call(flags(deterministic=True))  # as use_deterministic_algorithms
        call(flags(allow_tf32=False))
        call(torch.autocast("cpu", torch.bfloat16))
        call()
    assert counts == [1, 2, 3, 4, 5, 5, 6, 7, 7]
    assert measured[-1][4] is torch.bfloat16 and [m[6] for m in measured[:3]] == [
        (False, True),
        (False, False),
        (True, True),
    ]


@pytest.mark.parametrize(
    "shape, dtype", [((4, 16), torch.float32), ((2, 4, 16), torch.float64), ((0, 4, 16), torch.float32)]
)
def test_other_signals_are_left_alone(shape, dtype, measured):
    theirs = nn.Sequential(nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(6, 2, 3)).to(dtype)
    x = torch.randn(shape, dtype=dtype)
    torch.testing.assert_close(convert(copy.deepcopy(theirs))(x), theirs(x))
    assert not measured


def test_layouts_that_are_the_same_are_not_measured(measured):
    convert(nn.Conv1d(1, 4, 3))(torch.randn(2, 1, 16))
    convert(nn.Conv1d(4, 4, 1))(torch.randn(2, 4, 1))
    assert not measured


def test_devices_without_cudnn_are_left_alone(measured, monkeypatch):
    monkeypatch.setattr(_layout, "devices", {"cuda"})
    assert layouts(convert(stack()), torch.randn(2, 4, 40)) == [False] * 4 and not measured


# ---------------------------------------------------------------- results


def inputs(device: str) -> list[torch.Tensor]:
    """Contiguous, channels last, a part of a channels-last signal, and every other position."""
    x = torch.randn(2, 6, 24, device=device)
    return [x, x.mT.contiguous().mT, x.mT.contiguous().mT[..., 3:], x[..., ::2]]


@each_device
@pytest.mark.parametrize("times", [FASTER, SLOWER], ids=["faster", "slower"])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [0, 2, "same"])
def test_results_and_gradients_of_convolutions(device, times, mode, padding, measured):
    measured.times = times
    theirs = nn.Conv1d(6, 4, 4, padding=padding, padding_mode=mode, dilation=1, groups=2, bias=padding != 0)
    check(theirs.to(device))


@each_device
@pytest.mark.parametrize("times", [FASTER, SLOWER], ids=["faster", "slower"])
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2}]
)
def test_results_and_gradients_of_transposed_convolutions(device, times, options, measured):
    measured.times = times
    check(nn.ConvTranspose1d(6, 4, 4, **options).to(device))


def check(theirs: nn.Module) -> None:
    ours = convert(copy.deepcopy(theirs))
    for x in inputs(next(theirs.parameters()).device):
        found = []
        for module in (theirs, ours):
            module.zero_grad()
            signal = x.detach().requires_grad_()
            out = module(signal)
            out.square().sum().backward()
            found.append([out, signal.grad, *(p.grad for p in module.parameters())])
        torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-2)
        assert found[1][0].is_contiguous()


def test_output_size(measured):
    theirs, x = nn.ConvTranspose1d(4, 4, 3, stride=2), torch.randn(1, 4, 8)
    torch.testing.assert_close(convert(copy.deepcopy(theirs))(x, [18]), theirs(x, [18]))
    with pytest.raises(ValueError, match="requested an output size"):
        convert(theirs)(x, [30])


# ---------------------------------------------------------------- the border of the model


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)

    def forward(self, x):
        y = self.conv(x)
        return {"signals": [y, y.mT], "rest": (y.sum(), None, "word")}


def test_signals_that_leave_the_model_are_contiguous():
    model, x = Tree(), torch.randn(2, 4, 16)
    want = model(x)
    got = convert(model)(x)
    assert layouts(model, x) == [True]
    assert got["signals"][0].stride() == want["signals"][0].stride() and got["rest"][1:] == (None, "word")
    torch.testing.assert_close(got["signals"], want["signals"])


@pytest.mark.parametrize("shape", [(3, 1, 3), (1, 1, 3), (3, 1, 1), (1, 6, 3)])
def test_dimensions_of_size_1_have_the_strides_of_before(shape):
    theirs = nn.Sequential(nn.Conv1d(2, shape[1], 8 - shape[2]), nn.Identity())
    x = torch.randn(shape[0], 2, 7)
    want = theirs(x)
    got = convert(theirs)(x)
    assert got.shape == want.shape and got.stride() == want.stride()


def test_an_output_without_such_signals_is_the_object_itself():
    class Same(nn.Module):
        def forward(self, x):
            return x

    value = [torch.randn(2, 3, 4), {"a": torch.randn(3)}]
    assert convert(Same())(value) is value


def test_only_the_outermost_module_has_a_border():
    model, x = nn.Sequential(stack(), nn.Conv1d(6, 6, 1)), torch.randn(2, 4, 40)
    convert(model[0])
    convert(model)
    convert(model)
    assert not model[0]._forward_hooks and len(model._forward_hooks) == 1
    assert layouts(model, x) == [True] * 5 and model(x).is_contiguous()


def test_hooks_stay_and_see_what_is_returned():
    model, seen = stack(), []
    model.register_forward_hook(lambda module, args, out: seen.append(out.is_contiguous()))
    model[0].register_forward_pre_hook(lambda module, args: seen.append("before"))
    model[0].register_full_backward_hook(lambda module, grads, out: seen.append("backward"))
    convert(model)(torch.randn(2, 4, 40, requires_grad=True)).sum().backward()
    assert seen == ["before", True, "backward"]


# ---------------------------------------------------------------- what stays


def test_reverse():
    model = convert(nn.Sequential(stack(), nn.Upsample(scale_factor=2)))
    assert type(model[1]) is torch_ops.nn.Upsample and isinstance(model[0][0], torch_ops.nn.Conv1d)
    assert repr(model[0]) == repr(stack())
    assert torch_ops.convert(model, reverse=True) is model and not model._forward_hooks
    assert [type(m) for m in model[0]] == [type(m) for m in stack()] and type(model[1]) is nn.Upsample
    assert torch_ops.convert(torch_ops.convert(stack()), layout="channels_last")[0].__class__ is _layout.Conv1d


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm, None])
def test_parameters_stay(normed, measured):
    model, twin, x = stack(), stack(), torch.randn(2, 4, 40)
    if normed:
        for layer in (*model, *twin):
            if hasattr(layer, "weight"):
                normed(layer)
    parameters, state = list(model.parameters()), copy.deepcopy(model.state_dict())
    optimizers = [torch.optim.AdamW(m.parameters()) for m in (model, twin)]
    convert(model)
    assert layouts(model, x) == [True] * 4
    for m, optimizer in zip((model, twin), optimizers):
        m(x).square().mean().backward()
        optimizer.step()
    assert all(a is b and a.is_contiguous() for a, b in zip(parameters, model.parameters(), strict=True))
    assert list(model.state_dict()) == list(state)
    torch.testing.assert_close(dict(model.state_dict()), dict(twin.state_dict()), rtol=1e-3, atol=1e-4)
    model.load_state_dict(state)
    twin.load_state_dict(state)
    torch.testing.assert_close(model(x), twin(x))
    assert [type(m).__bases__ for m in twin] == [type(m).__bases__ for m in torch_ops.convert(model, reverse=True)]


def test_copies_and_dtypes(measured):
    model, x = convert(stack()), torch.randn(2, 4, 40)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert layouts(other, x) == [True] * 4 and other(x).is_contiguous()
        torch_ops.convert(other, reverse=True)
        assert not other._forward_hooks
    assert layouts(model.bfloat16(), x.bfloat16()) == [True] * 4
    assert model(x.bfloat16()).is_contiguous() and measured[-1][4] is torch.bfloat16


@pytest.mark.parametrize("wrong", ["nhwc", True])
def test_arguments(wrong):
    with pytest.raises(ValueError, match="layout must be known: expected 'channels_last' or None"):
        torch_ops.convert(stack(), layout=wrong)
    with pytest.raises(ValueError, match="layout must not be given with reverse"):
        torch_ops.convert(stack(), reverse=True, layout="channels_last")


# ---------------------------------------------------------------- where nothing is measured


def graph_of(model: nn.Module, x: torch.Tensor, **options) -> tuple[str, torch.Tensor]:
    found = []

    def backend(module, examples):
        found.append(str(module.graph))
        return module

    torch._dynamo.reset()
    result = torch.compile(model, fullgraph=True, backend=backend, **options)(x)
    return found[0], result


def test_compiled_graphs_keep_the_answers(measured):
    model, x = convert(stack()).eval(), torch.randn(2, 4, 40)
    with torch.no_grad():
        graph, got = graph_of(model, x)
        assert not measured and "transpose2d" not in graph, "without an answer, a layer is as it was"
        want = model(x)
        count = len(measured)
        graph, got = graph_of(model, x)
        assert graph.count("gpuopt.transpose2d") == 2, "one conversion at each end"
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        exported = torch.export.export(model, (x,))
        torch.testing.assert_close(exported.module()(x), want)
        graph, got = graph_of(model, x, dynamic=True)
        assert "transpose2d" not in graph, "a graph for all sizes has no answer"
        torch.testing.assert_close(got, want)
    assert len(measured) == count


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_training(dynamic, measured):
    model, x = convert(stack()), torch.randn(2, 4, 40)
    model(x).square().sum().backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch._dynamo.reset()
    torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)(x).square().sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], want, rtol=1e-3, atol=1e-3)


def test_traces_and_transforms_measure_nothing(measured):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.func import functional_call

    model, x = convert(stack()).eval(), torch.randn(2, 4, 40)
    with torch.no_grad():
        traced = torch.jit.trace(model, x, check_trace=False)
        vmapped = torch.vmap(model)(x[:, None])
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert model(mode.from_tensor(x)).shape == (2, 6, 80)
        torch.fx.symbolic_trace(model)(x)
    torch.func.grad(lambda p: functional_call(model, p, (x,)).sum())(dict(model.named_parameters()))
    assert not measured
    with torch.no_grad():
        torch.testing.assert_close(traced(x), model(x))
        torch.testing.assert_close(vmapped[:, 0], model(x))


def test_a_thread_does_not_wait_for_another(measured, monkeypatch):
    """The one that measures may wait for the other, in the thread of autograd that both use."""
    begun, go_on = threading.Event(), threading.Event()

    def measure(*arguments):
        begun.set()
        assert go_on.wait(10)
        return measured(*arguments)

    monkeypatch.setattr(_layout, "_measure", measure)
    model, x, found = convert(nn.Sequential(nn.Conv1d(4, 4, 3))), torch.randn(1, 4, 16), []
    thread = threading.Thread(target=lambda: found.append(layouts(model, x)))
    thread.start()
    assert begun.wait(10)
    assert model(x).shape == (1, 4, 14) and not measured
    go_on.set()
    thread.join()
    assert found[0][-1] and len(measured) == 1


# ---------------------------------------------------------------- the measurement


@pytest.fixture
def without_a_clock(monkeypatch):
    """A measurement on the CPU, and the steps that it times."""
    steps = []

    def fastest(step):
        step()
        steps.append(step)
        return float(len(steps))

    monkeypatch.setattr(_layout, "_measure", MEASURE)
    monkeypatch.setattr(_layout, "_fastest", fastest)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return steps


def test_what_is_measured(without_a_clock):
    conv, x = convert(nn.ConvTranspose1d(4, 6, 3, groups=2)), torch.randn(2, 4, 16)
    state = torch.get_rng_state()
    with torch.no_grad():
        conv(x)
    assert list(layout_cache._times.values()) == [Times(1, 3, 2, 4)], "one conversion each"
    conv(x.requires_grad_())
    assert list(layout_cache._times.values())[-1] == Times(5, 7, 2 * 6, 2 * 8), "gradients are converted, too"
    assert torch.equal(torch.get_rng_state(), state) and not conv.weight.grad


def test_a_layout_that_fails_is_not_chosen(without_a_clock, monkeypatch, tmp_path):
    def convolve(*operands_and_layout):
        if operands_and_layout[-1]:
            raise torch.OutOfMemoryError("too large")
        return original(*operands_and_layout)

    original = _layout._convolve
    monkeypatch.setattr(_layout, "_convolve", convolve)
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
        ("gpuopt layouts 1", "gpuopt layouts 0", "must be a file of layout_cache.save"),
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
    monkeypatch.setattr(_layout, "_measure", MEASURE)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_real_times(dtype, real):
    torch.manual_seed(0)
    theirs = nn.Sequential(*(nn.Sequential(nn.Conv1d(256, 256, 3, 2), nn.GELU()) for _ in range(3))).to("cuda", dtype)
    ours, x = convert(copy.deepcopy(theirs)), torch.randn(4, 256, 4001, device="cuda", dtype=dtype)
    with torch.no_grad():
        want = theirs(x)
        state, memory = torch.cuda.get_rng_state(), torch.cuda.memory_allocated()
        got = ours(x)
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.cuda.memory_allocated() <= memory + got.nbytes + 512
    assert len(layout_cache) == 3 and all(min(times) > 0 for times in layout_cache._times.values())
    for model in (theirs, ours):
        model(x).float().square().mean().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=5e-2, atol=1e-3)
    assert len(layout_cache) == 6
    checkpoint(ours, x.requires_grad_(), use_reentrant=False).float().sum().backward()


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
