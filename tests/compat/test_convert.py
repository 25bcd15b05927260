"""torch_ops.convert: which modules change, and everything that stays."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import torch_ops

from ..support.params import each_device


class SubclassedConv1d(nn.Conv1d):
    """A user's subclass."""


def _model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(4, 8, 3, padding=1, groups=4),
        nn.BatchNorm1d(8),
        nn.Sequential(nn.Conv1d(8, 8, 5, padding="same", padding_mode="circular", groups=8, bias=False), nn.SiLU()),
        SubclassedConv1d(8, 8, 1),
        nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1, groups=4),
        nn.Conv2d(1, 1, 1),
        nn.Upsample(scale_factor=2),
        nn.Upsample(size=(3, 5), mode="nearest-exact"),
        nn.Upsample(scale_factor=2, mode="bilinear"),
    )


def _signal_model() -> nn.Sequential:
    """The part of the model that signals (N, C, L) go through."""
    return nn.Sequential(*list(_model())[:5])


def test_what_is_converted():
    model = _model()
    assert torch_ops.convert(model) is model
    wanted = [
        torch_ops.nn.Conv1d,
        nn.BatchNorm1d,
        nn.Sequential,
        SubclassedConv1d,
        torch_ops.nn.ConvTranspose1d,
        nn.Conv2d,
    ]
    wanted += [torch_ops.nn.Upsample, torch_ops.nn.Upsample, nn.Upsample]
    assert [type(module) for module in model] == wanted and type(model[2][0]) is torch_ops.nn.Conv1d
    torch_ops.convert(model)
    assert [type(module) for module in model] == wanted, "a second call changes nothing"
    assert torch_ops.convert(model, reverse=True) is model
    assert [type(module) for module in model.modules()] == [type(module) for module in _model().modules()]


@each_device
@pytest.mark.parametrize("training", [False, True])
def test_results_and_gradients_are_the_same(device, training):
    model = _signal_model().to(device).train(training)
    x = torch.randn(2, 4, 20, device=device)
    found = []
    for function in (lambda m: m, torch_ops.convert, lambda m: torch_ops.convert(m, reverse=True)):
        converted = function(copy.deepcopy(model))
        out = converted(x)
        out.square().sum().backward()
        found.append([out, *(p.grad for p in converted.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[2], found[0])


def test_the_operator_is_called():
    model = torch_ops.convert(nn.Sequential(nn.Conv1d(2, 2, 3), nn.Unflatten(0, (1, 1)), nn.Upsample(scale_factor=2)))
    with torch.profiler.profile() as profile:
        model(torch.randn(1, 2, 8))
    names = {event.name for event in profile.events()}
    assert {"gpuopt::conv1d", "gpuopt::upsample_nearest2d"} <= names, names


def test_objects_stay():
    model = _signal_model().eval()
    model[2].train()
    model[0].note = "a user's attribute"
    model[0].weight.requires_grad_(False)
    before = [(name, module, module.training) for name, module in model.named_modules()]
    parameters, state = list(model.parameters()), {k: v.clone() for k, v in model.state_dict().items()}
    torch_ops.convert(model)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert before == [(name, module, module.training) for name, module in model.named_modules()]
    assert model[0].note == "a user's attribute" and not model[0].weight.requires_grad
    assert list(model.state_dict()) == list(state) and all(
        torch.equal(model.state_dict()[k], v) for k, v in state.items()
    )
    _signal_model().load_state_dict(model.state_dict())


def test_hooks_stay():
    conv, calls = nn.Conv1d(2, 2, 3), []
    handle = conv.register_forward_hook(lambda module, args, out: calls.append("forward"))
    conv.register_forward_pre_hook(lambda module, args: calls.append("before"))
    conv.register_full_backward_hook(lambda module, grads, out: calls.append("backward"))
    conv.register_state_dict_pre_hook(lambda module, prefix, keep: calls.append("state"))
    for reverse in (False, True):
        torch_ops.convert(conv, reverse=reverse)
        calls.clear()
        conv(torch.randn(1, 2, 8, requires_grad=True)).sum().backward()
        conv.state_dict()
        assert calls == ["before", "forward", "backward", "state"]
    handle.remove()
    calls.clear()
    conv(torch.randn(1, 2, 8))
    assert calls == ["before"]


def test_a_root_module_is_converted():
    conv = nn.Conv1d(2, 2, 3)
    assert torch_ops.convert(conv) is conv and type(conv) is torch_ops.nn.Conv1d
    assert repr(conv) == repr(nn.Conv1d(2, 2, 3))
    assert type(torch_ops.convert(torch_ops.nn.UpsampleNearest2d(2), reverse=True)) is nn.Upsample


def test_shared_modules_stay_shared():
    conv = nn.Conv1d(2, 2, 1)
    model = nn.ModuleDict({"a": conv, "b": nn.Sequential(conv, nn.ReLU())})
    torch_ops.convert(model)
    assert model["a"] is model["b"][0] is conv and type(conv) is torch_ops.nn.Conv1d


@pytest.mark.parametrize("normed", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_parametrizations_stay(normed):
    model = nn.Sequential(normed(nn.Conv1d(3, 3, 3, groups=3))).eval()
    twin, x = copy.deepcopy(model), torch.randn(2, 3, 9)
    keys, want = list(model.state_dict()), model(x)
    torch_ops.convert(model)
    conv = model[0]
    assert isinstance(conv, torch_ops.nn.Conv1d) and nn.utils.parametrize.is_parametrized(conv, "weight")
    assert list(model.state_dict()) == keys and "gpuopt" not in str(type(twin[0]).__mro__)
    torch.testing.assert_close(model(x), want)
    assert type(twin[0]).__bases__ == (nn.Conv1d,), "a copy of the module is not touched"
    torch.testing.assert_close(copy.deepcopy(model)(x), want)
    torch_ops.convert(model, reverse=True)
    assert type(conv).__bases__ == (nn.Conv1d,) and type(conv).__name__ == "ParametrizedConv1d"
    torch.testing.assert_close(model(x), want)
    torch_ops.convert(model)
    nn.utils.parametrize.remove_parametrizations(conv, "weight")
    assert type(conv) is torch_ops.nn.Conv1d and isinstance(conv.weight, nn.Parameter)
    torch.testing.assert_close(model(x), want)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
def test_weight_norm_by_hooks_stays():
    conv = nn.utils.weight_norm(nn.Conv1d(2, 4, 3))
    x = torch.randn(1, 2, 9)
    want = conv(x)
    torch_ops.convert(conv)
    torch.testing.assert_close(conv(x), want)
    assert list(conv.state_dict()) == ["bias", "weight_g", "weight_v"]


def test_lazy_modules_are_converted_once_they_have_shapes():
    model = torch_ops.convert(nn.Sequential(nn.LazyConv1d(3, 2)))
    assert type(model[0]) is nn.LazyConv1d
    model(torch.randn(1, 2, 5))
    assert type(torch_ops.convert(model)[0]) is torch_ops.nn.Conv1d


@pytest.mark.parametrize("shape", [(1, 2, 5), (1, 2, 3, 5), (1, 1, 2, 3, 2)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    "arguments", [{"scale_factor": 2}, {"size": 7}, {"scale_factor": 1.7, "recompute_scale_factor": True}]
)
def test_upsampling_of_every_rank_stays(shape, mode, arguments):
    theirs, x = nn.Upsample(mode=mode, **arguments), torch.randn(shape)
    assert torch.equal(torch_ops.convert(copy.deepcopy(theirs))(x), theirs(x))
    assert torch.equal(torch_ops.nn.Upsample(mode=mode, **arguments)(x), theirs(x))
    assert torch.equal(torch.fx.symbolic_trace(torch_ops.convert(copy.deepcopy(theirs)))(x), theirs(x))


def test_the_module_upsamples_in_other_modes():
    x = torch.randn(1, 2, 4, 4)
    for arguments in ({"mode": "bilinear", "align_corners": True}, {"mode": "bicubic"}):
        assert torch.equal(
            torch_ops.nn.Upsample(scale_factor=2, **arguments)(x), nn.Upsample(scale_factor=2, **arguments)(x)
        )
    ours, theirs = torch_ops.nn.Upsample(size=(2, 2)), nn.Upsample(size=(2, 2))
    assert repr(ours) == repr(theirs)
    for wrong in (torch.randn(1, 2, 4), torch.randn(2, 2)):
        with pytest.raises(Exception) as expected:
            theirs(wrong)
        with pytest.raises(expected.type):
            ours(wrong)


def test_converted_models_are_compiled_exported_and_saved():
    model = torch_ops.convert(_signal_model().eval())
    x = torch.randn(2, 4, 20)
    want = model(x)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), want)
    program = torch.export.export(model, (x,))
    assert "gpuopt.conv1d" in str(program.graph)
    torch.testing.assert_close(program.module()(x), want)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(x), want)


def test_only_modules_are_converted():
    with pytest.raises(TypeError, match="convert: model must be a torch.nn.Module, got list"):
        torch_ops.convert([nn.Conv1d(1, 1, 1)])
