"""torch_ops.convert(model, layout="channels_last"): everything that stays, and where nothing is chosen."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_ops
from torch_ops.layout import modules, trial
from torch_ops.layout.convolution import Choice

from ..support.layouts import FASTER, SLOWER, convert, fake_measurement, graph_of, layouts, stack  # noqa: F401

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
    got = convert(model, x)(x)
    assert layouts(model, x) == [True]
    assert got["signals"][0].stride() == want["signals"][0].stride() and got["rest"][1:] == (None, "word")
    torch.testing.assert_close(got["signals"], want["signals"])


@pytest.mark.filterwarnings("ignore:.*(nested tensors|Sparse).*")
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_results_that_are_not_strided(needs_gradient, measured):
    class Returns(Tree):
        def forward(self, x, results):
            return super().forward(x), results

    x = torch.randn(2, 4, 8)
    parts = [torch.randn(3, 4), torch.randn(5, 4)]
    results = [
        x.to_sparse_csr(),
        x.to_sparse_csc(),
        x.to_sparse_bsr((2, 2)),
        x.to_sparse_bsc((2, 2)),
        x.to_sparse(),
        x.to_mkldnn(),
        torch.nested.nested_tensor(parts),
        torch.nested.nested_tensor(parts, layout=torch.jagged),
    ]
    if needs_gradient:
        results = [result.requires_grad_() for result in results]
    model, seen = Returns(), []
    model.conv.weight.register_hook(lambda gradient: seen.append(gradient))
    convert(model, x, results)
    assert seen, "the other results have gradients"
    _, got = model(x, results)
    assert all(a is b for a, b in zip(got, results, strict=True))
    assert model.conv._layout == Choice(True, False) and len(measured) == 1


@pytest.mark.parametrize("shape", [(3, 1, 3), (1, 1, 3), (3, 1, 1), (1, 6, 3)])
def test_dimensions_of_size_1_have_the_strides_of_before(shape):
    theirs = nn.Sequential(nn.Conv1d(2, shape[1], 8 - shape[2]), nn.Identity())
    x = torch.randn(shape[0], 2, 7)
    want = theirs(x)
    got = convert(theirs, x)(x)
    assert got.shape == want.shape and got.stride() == want.stride()


def test_an_output_without_such_signals_is_the_object_itself():
    class Same(nn.Module):
        def forward(self, x):
            return x

    value = [torch.randn(2, 3, 4), {"a": torch.randn(3)}]
    assert convert(Same(), value)(value) is value


def test_only_the_outermost_module_has_a_border():
    model, x = nn.Sequential(stack(), nn.Conv1d(6, 6, 1)), torch.randn(2, 4, 40)
    convert(model[0])
    convert(model)
    convert(model)
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks
    assert len(model._forward_hooks) == len(model._forward_pre_hooks) == 1
    assert layouts(model, x) == [True] * 5 and model(x).is_contiguous()


def test_hooks_that_change_arguments_do_so_once():
    model, x = stack(), torch.randn(2, 2, 40)
    model.register_forward_pre_hook(lambda module, args: (torch.cat([*args, *args], 1),))
    want = model(x)
    torch.testing.assert_close(convert(model)(x), want, rtol=1e-3, atol=1e-3)
    assert model[0]._layout == Choice(True, False)


def test_hooks_stay_and_see_what_is_returned():
    model, seen, x = stack(), [], torch.randn(2, 4, 40, requires_grad=True)
    model.register_forward_hook(lambda module, args, out: seen.append(out.is_contiguous()))
    model[0].register_forward_pre_hook(lambda module, args: seen.append("before"))
    model[0].register_full_backward_hook(lambda module, grads, out: seen.append("backward"))
    convert(model, x)
    assert seen[:3] == ["before", True, "backward"], "each pass of the trial is a call"
    seen.clear()
    model(x).sum().backward()
    assert seen == ["before", True, "backward"]


# ---------------------------------------------------------------- the trial


class Stateful(nn.Module):
    """Counts its calls in a buffer, draws random numbers, and changes its input."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.drop(self.norm(self.conv(x.mul_(2))))


@pytest.mark.parametrize("has_example", [False, True])
def test_a_trial_leaves_no_trace(has_example):
    ours, x = Stateful(), torch.randn(2, 4, 16)
    twin, signals = copy.deepcopy(ours), [x.clone(), x.clone()]
    convert(ours, *[x] * has_example)
    assert not any(p.grad is not None for p in ours.parameters())
    for model, signal in zip((ours, twin), signals, strict=True):
        torch.manual_seed(1)
        model(signal).sum().backward()
    assert ours.conv._layout == Choice(True, False) and ours.calls == 1
    torch.testing.assert_close(*signals)
    torch.testing.assert_close(dict(ours.state_dict()), dict(twin.state_dict()))
    torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in twin.parameters()])


def test_a_call_that_fails_chooses_nothing():
    model, x = convert(stack()), torch.randn(2, 4, 40)
    for wrong in (lambda: model(x[:, :3]), lambda: convert(stack(), x[:, :3])):
        with pytest.raises(RuntimeError, match="channels"):
            wrong()
    assert model[0]._layout is None and layouts(model, x) == [True] * 4 and model[0]._layout is not None


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(outside, use_reentrant, measured):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = stack()

        def forward(self, x):
            return checkpoint(self.stack, x, use_reentrant=use_reentrant)

    x = torch.randn(2, 4, 40, requires_grad=True)
    model = convert(stack() if outside else Checkpointed())
    (checkpoint(model, x, use_reentrant=use_reentrant) if outside else model(x)).sum().backward()
    assert x.grad is not None and len(measured) == 4 and layouts(model, x) == [True] * 4


def test_a_layer_that_is_not_reached_keeps_its_layout():
    model, x = nn.Sequential(nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3)), torch.randn(2, 4, 16)
    model.forward = model[0].forward
    convert(model, x)
    assert model[1]._layout is None and not layouts(nn.Sequential(model[1]), x)[0]


# ---------------------------------------------------------------- what stays


def test_reverse():
    model = convert(nn.Sequential(stack(), nn.Upsample(scale_factor=2)))
    assert type(model[1]) is torch_ops.nn.Upsample and isinstance(model[0][0], torch_ops.nn.Conv1d)
    assert repr(model[0]) == repr(stack())
    assert torch_ops.convert(model, reverse=True) is model and not model._forward_hooks and not model._forward_pre_hooks
    assert [type(m) for m in model[0]] == [type(m) for m in stack()] and type(model[1]) is nn.Upsample
    assert torch_ops.convert(torch_ops.convert(stack()), layout="channels_last")[0].__class__ is modules.Conv1d


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm, None])
def test_parameters_stay(normed):
    model, twin, x = stack(), stack(), torch.randn(2, 4, 40)
    if normed:
        for layer in (*model, *twin):
            if hasattr(layer, "weight"):
                normed(layer)
    parameters, state = list(model.parameters()), copy.deepcopy(model.state_dict())
    optimizers = [torch.optim.AdamW(m.parameters()) for m in (model, twin)]
    convert(model, x)
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


@pytest.mark.parametrize("has_example", [False, True])
def test_copies_keep_the_choice(has_example, measured):
    x = torch.randn(2, 4, 40)
    model, file = convert(stack(), *[x] * has_example), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert layouts(other, x) == [True] * 4 and other(x).is_contiguous()
        torch_ops.convert(other, reverse=True)
        assert not other._forward_hooks and not hasattr(other[0], "_layout")
    assert len(measured) == (4 if has_example else 12)
    assert list(model.state_dict()) == list(stack().state_dict())


@pytest.mark.parametrize("wrong", ["nhwc", True])
def test_arguments(wrong):
    with pytest.raises(ValueError, match="layout must be known: expected 'channels_last' or None"):
        torch_ops.convert(stack(), layout=wrong)
    with pytest.raises(ValueError, match="layout must not be given with reverse"):
        torch_ops.convert(stack(), reverse=True, layout="channels_last")
    with pytest.raises(ValueError, match="example must be given with layout"):
        torch_ops.convert(stack(), example=(torch.randn(2, 4, 40),))
    with pytest.raises(TypeError, match="example must hold arguments: expected a tuple or a dict, got Tensor"):
        torch_ops.convert(stack(), layout="channels_last", example=torch.randn(2, 4, 40))


# ---------------------------------------------------------------- stored weights


def weights(model: nn.Module) -> list[torch.Tensor]:
    """The weights of stack() of more than one tap. With one, both orders are the same."""
    return [model[k].weight for k in (0, 2, 4)]


@pytest.mark.parametrize("has_example", [False, True])
def test_weights_are_stored_where_layers_chose_channels_last(has_example):
    model, x = stack(), torch.randn(2, 4, 40)
    parameters, state, want = list(model.parameters()), copy.deepcopy(model.state_dict()), model(x)
    convert(model, *[x] * has_example, store_weights=True)
    torch.testing.assert_close(model(x), want, rtol=1e-3, atol=1e-3)
    assert all(w.mT.is_contiguous() and not w.is_contiguous() for w in weights(model))
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert [p.shape for p in model.state_dict().values()] == [p.shape for p in state.values()]
    model.load_state_dict(state)
    assert not any(w.is_contiguous() for w in weights(model))
    for how in ({"layout": "channels_last"}, {"reverse": True}):
        convert(model, x, store_weights=True)
        assert not any(w.is_contiguous() for w in weights(model))
        torch_ops.convert(model, **how)
        assert all(w.is_contiguous() for w in model.parameters())
    torch.testing.assert_close(dict(model.state_dict()), dict(state), rtol=0, atol=0)


def test_weights_of_contiguous_layers_stay(monkeypatch):
    monkeypatch.setattr(trial, "measure", lambda layer, shape, weight, *o: FASTER if weight[2] == 3 else SLOWER)
    model = convert(stack(), torch.randn(2, 4, 40), store_weights=True)
    assert [w.is_contiguous() for w in weights(model)] == [False, True, True]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_weights_that_inference_stored_can_be_trained(mode):
    model, x = stack(), torch.randn(2, 4, 40)
    with mode():
        convert(model, store_weights=True)(x)
    assert not any(w.is_contiguous() or w.is_inference() for w in weights(model))
    model(x).sum().backward()


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_training_with_stored_weights(optimizer):
    model, twin, x = stack(), stack(), torch.randn(2, 4, 40)
    convert(model, x, store_weights=True)
    steps = [optimizer(m.parameters(), lr=1e-2) for m in (model, twin)]
    for _ in range(6):
        for m, step in zip((model, twin), steps, strict=True):
            step.zero_grad()
            m(x).square().mean().backward()
            step.step()
    assert all(w.grad.stride() == w.stride() for w in weights(model))
    torch.testing.assert_close(dict(model.state_dict()), dict(twin.state_dict()), rtol=1e-3, atol=1e-4)
    model.zero_grad(set_to_none=False)
    torch_ops.convert(model, reverse=True)
    assert all(w.grad.is_contiguous() for w in weights(model))


def test_copies_and_graphs_keep_stored_weights():
    x = torch.randn(2, 4, 40)
    model = convert(stack(), x, store_weights=True)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not any(w.is_contiguous() for w in weights(other))
        torch.testing.assert_close(other(x), model(x))
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x))
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
def test_computed_weights_are_left_alone(normed):
    model, x = stack(), torch.randn(2, 4, 40)
    for k in (0, 2, 4):
        normed(model[k])
    want = model(x)
    torch.testing.assert_close(convert(model, x, store_weights=True)(x), want, rtol=1e-3, atol=1e-3)
    assert all(p.is_contiguous() for p in model.parameters())


def test_stored_weights_need_a_layout():
    with pytest.raises(ValueError, match="store_weights must be given with layout"):
        torch_ops.convert(stack(), store_weights=True)


# ---------------------------------------------------------------- graphs, transforms and threads


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_and_exported(dynamic):
    model, x = stack().eval(), torch.randn(2, 4, 40)
    want = model(x)
    convert(model, x)
    graph, got = graph_of(model, x, dynamic=dynamic)
    assert graph.count("gpuopt.transpose2d") == 1 and graph.count("gpuopt._conv1d_image") == 4, (
        "one conversion at the end"
    )
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()
    sizes = ({0: torch.export.Dim("N"), 2: torch.export.Dim("L", min=16)},) if dynamic else None
    exported = torch.export.export(model, (x,), dynamic_shapes=sizes).module()
    x = torch.randn(3, 4, 50) if dynamic else x
    torch.testing.assert_close(exported(x), model(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_training(dynamic):
    model, twin, x = stack(), stack(), torch.randn(2, 4, 40)
    torch._dynamo.reset()
    torch.compile(convert(model, x), fullgraph=True, backend="aot_eager", dynamic=dynamic)(x).square().sum().backward()
    twin(x).square().sum().backward()
    torch.testing.assert_close(
        [p.grad for p in model.parameters()], [p.grad for p in twin.parameters()], rtol=1e-3, atol=1e-3
    )


def test_a_compiled_part_of_a_model_chooses_nothing(measured):
    torch._dynamo.reset()
    inner, x = nn.Conv1d(4, 4, 3), torch.randn(2, 4, 40)
    model = nn.Sequential(nn.Conv1d(4, 4, 3), torch.compile(inner, fullgraph=True, backend="aot_eager"))
    want = model(x)
    for _ in range(2):
        torch.testing.assert_close(convert(model, x)(x), want, rtol=1e-3, atol=1e-3)
    assert model[0]._layout == Choice(True, False) and inner._layout is None and len(measured) == 2


def test_graphs_traces_and_transforms_choose_nothing(measured):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.func import functional_call

    model, x = convert(stack()).eval(), torch.randn(2, 4, 40)
    for _ in range(2):
        with torch.no_grad():
            graph, got = graph_of(model, x)
            traced = torch.jit.trace(model, x, check_trace=False)
            vmapped = torch.vmap(model)(x[:, None])
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                assert model(mode.from_tensor(x)).shape == (2, 6, 80)
            symbolic = torch.fx.symbolic_trace(model)(x)
        torch.func.grad(lambda p: functional_call(model, p, (x,)).sum())(dict(model.named_parameters()))
        for other in (got, traced(x), vmapped[:, 0], symbolic):
            torch.testing.assert_close(other, stack()(x), rtol=1e-3, atol=1e-3)
        if not measured:
            assert "transpose2d" not in graph, "without a choice, a layer is as it was"
            model(x)
    assert len(measured) == 4 and "transpose2d" in graph


def test_a_thread_does_not_wait_for_another(measured, monkeypatch):
    """The one that measures may wait for the other, in the thread of autograd that both use."""
    begun, go_on = threading.Event(), threading.Event()

    def measure(*arguments):
        begun.set()
        assert go_on.wait(10)
        return measured(*arguments)

    monkeypatch.setattr(trial, "measure", measure)
    model, x, found = convert(nn.Sequential(nn.Conv1d(4, 4, 3))), torch.randn(1, 4, 16), []
    thread = threading.Thread(target=lambda: found.append(layouts(model, x)))
    thread.start()
    assert begun.wait(10)
    assert model(x).shape == (1, 4, 14) and not measured
    go_on.set()
    thread.join()
    assert found[0][-1] and len(measured) == 1 and not model._forward_pre_hooks
