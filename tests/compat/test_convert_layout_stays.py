"""torch_ops.convert(model, layout="channels_last"): everything that stays, and where nothing is measured."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn

import torch_ops
from torch_ops import _layout

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
    got = convert(model)(x)
    assert layouts(model, x) == [True]
    assert got["signals"][0].stride() == want["signals"][0].stride() and got["rest"][1:] == (None, "word")
    torch.testing.assert_close(got["signals"], want["signals"])


@pytest.mark.filterwarnings("ignore:.*(nested tensors|Sparse).*")
def test_results_that_are_not_strided_are_returned_as_they_are():
    class Returns(nn.Module):
        def forward(self, results):
            return results

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
    got = torch_ops.convert(Returns(), layout="channels_last")(results)
    assert all(a is b for a, b in zip(got, results, strict=True))


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


# ---------------------------------------------------------------- stored weights


def stored(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """The model after a few calls, with its weights stored."""
    with torch.no_grad():
        for _ in range(4):
            model(x)
    return torch_ops.convert(model, layout="channels_last", store_weights=True)


def weights(model: nn.Module) -> list[torch.Tensor]:
    """The weights of stack() of more than one tap. With one, both orders are the same."""
    return [model[k].weight for k in (0, 2, 4)]


def test_weights_are_stored_where_layers_chose_channels_last(measured, monkeypatch):
    model, x = convert(stack()), torch.randn(2, 4, 40)
    parameters, state, want = list(model.parameters()), copy.deepcopy(model.state_dict()), model(x)
    torch_ops.convert(model, layout="channels_last", store_weights=True)
    assert all(w.is_contiguous() for w in model.parameters()), "nothing is settled yet"
    stored(model, x)
    assert all(w.mT.is_contiguous() and not w.is_contiguous() for w in weights(model))
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    torch.testing.assert_close(model(x), want, rtol=1e-3, atol=1e-3)
    assert {name: tuple(p.shape) for name, p in model.state_dict().items()} == {
        n: tuple(p.shape) for n, p in state.items()
    }
    model.load_state_dict(state)
    assert not any(w.is_contiguous() for w in weights(model))
    model.zero_grad()
    assert layouts(model, x) == [True] * 4, "what the layers chose is remembered"
    for how in ({"layout": "channels_last"}, {"reverse": True}):
        stored(convert(model), x)
        assert not any(w.is_contiguous() for w in weights(model))
        torch_ops.convert(model, **how)
        assert all(w.is_contiguous() for w in model.parameters())
    torch.testing.assert_close(dict(model.state_dict()), dict(state), rtol=0, atol=0)


def test_weights_of_contiguous_layers_stay(measured, monkeypatch):
    model, x = convert(stack()), torch.randn(2, 4, 40)
    monkeypatch.setattr(_layout, "measure", lambda layer, shape, weight, *o: FASTER if weight[2] == 3 else SLOWER)
    assert [w.is_contiguous() for w in weights(stored(model, x))] == [False, True, True]
    measured.times = SLOWER
    monkeypatch.setattr(_layout, "measure", measured)
    for _ in range(4):
        model(x)  # with gradients, all of them are slower
    torch_ops.convert(model, layout="channels_last", store_weights=True)
    assert all(w.is_contiguous() for w in weights(model)), "a weight has one order for all passes"


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_training_with_stored_weights(optimizer, measured):
    model, twin, x = stored(convert(stack()), torch.randn(2, 4, 40)), stack(), torch.randn(2, 4, 40)
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


def test_copies_and_files_keep_stored_weights(measured):
    x = torch.randn(2, 4, 40)
    model = stored(convert(stack()), x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert not any(w.is_contiguous() for w in weights(other))
        torch.testing.assert_close(other(x), model(x))
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x))
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
def test_computed_weights_are_left_alone(normed, measured):
    model, x = stack(), torch.randn(2, 4, 40)
    for k in (0, 2, 4):
        normed(model[k])
    want = model(x)
    torch.testing.assert_close(stored(convert(model), x)(x), want, rtol=1e-3, atol=1e-3)
    assert all(p.is_contiguous() for p in model.parameters())


def test_stored_weights_need_a_layout():
    with pytest.raises(ValueError, match="store_weights must be given with layout"):
        torch_ops.convert(stack(), store_weights=True)


# ---------------------------------------------------------------- where nothing is measured


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

    monkeypatch.setattr(_layout, "measure", measure)
    model, x, found = convert(nn.Sequential(nn.Conv1d(4, 4, 3))), torch.randn(1, 4, 16), []
    thread = threading.Thread(target=lambda: found.append(layouts(model, x)))
    thread.start()
    assert begun.wait(10)
    assert model(x).shape == (1, 4, 14) and not measured
    go_on.set()
    thread.join()
    assert found[0][-1] and len(measured) == 1
