"""torch_ops.nn.Conv1d and ConvTranspose1d have the parameters, state, representation, results, gradients and errors of the modules of
torch.nn whose names they have."""

from __future__ import annotations

import copy

import pytest
import torch

import torch_ops
import torch_ops.nn

from ...support.compare import all_close, close, different_bits, raised_by
from ...support.params import each_device

# (in channels, out channels, taps, stride, padding, dilation, groups, bias, padding mode)
CONV1D = (
    (3, 6, 3), (4, 8, 3, 2, 1), (4, 4, 5, 1, 2, 1, 4), (4, 8, 2, 1, "same", 1, 4), (3, 3, 4, 1, "same", 2, 3), (2, 2, 3, 2, "valid"),
    (2, 2, 3, 1, 0, 1, 1, False), (4, 4, 4, 1, 3, 1, 4, True, "circular"), (4, 4, 3, 2, 2, 1, 2, True, "reflect"),
    (2, 6, 3, 1, "same", 1, 2, True, "replicate"), (1, 1, 1),
)  # fmt: skip
# (in channels, out channels, taps, stride, padding, output padding, groups, bias, dilation)
TRANSPOSED = (
    (3, 6, 3), (4, 4, 12, 2, 5, 0, 4), (4, 8, 4, 2, 1, 1, 2, False), (2, 2, 3, 1, 0, 1, 1, True, 2), (1, 1, 1),
)  # fmt: skip


def _pair(name: str, arguments: tuple, device: str) -> list[torch.nn.Module]:
    """Our module and torch's, with the same parameters."""
    modules = []
    for of in (torch_ops.nn, torch.nn):
        torch.manual_seed(5)
        modules.append(getattr(of, name)(*arguments).to(device))
    return modules


@each_device
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("Conv1d", arguments) for arguments in CONV1D] + [("ConvTranspose1d", arguments) for arguments in TRANSPOSED],
    ids=str,
)
def test_module_is_a_drop_in(name, arguments, device):
    ours, theirs = _pair(name, arguments, device)
    assert isinstance(ours, getattr(torch.nn, name)) and ours.extra_repr() == theirs.extra_repr()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(different_bits(*pair) is None for pair in zip(ours.parameters(), theirs.parameters(), strict=True))
    ours.load_state_dict(theirs.state_dict())
    dense = torch.randn(2, arguments[0], 13, device=device)
    channels_last = dense.mT.clone(memory_format=torch.contiguous_format).mT
    for x in (dense, channels_last, dense[0], dense[..., 1:]):
        outcomes = []
        for module in (ours, copy.deepcopy(ours), theirs):
            given = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
            result = module(given)
            grads = torch.autograd.grad(result.square().sum(), [given, *module.parameters()])
            outcomes.append([result, *grads])
        for own in outcomes[:2]:
            assert all_close(own, outcomes[2], ulps=16) is None
    for wrong in (torch.ones(2, arguments[0] + 1, 13, device=device), torch.ones(3, device=device)):
        assert type(raised_by(ours, wrong)) is type(raised_by(theirs, wrong))


@each_device
@pytest.mark.parametrize("arguments", TRANSPOSED, ids=str)
def test_output_sizes_of_transposed_convolutions(arguments, device):
    ours, theirs = _pair("ConvTranspose1d", arguments, device)
    x = torch.randn(2, arguments[0], 13, device=device)
    least = theirs(x).shape[-1] - theirs.output_padding[0]
    for size in range(least - 1, least + 3):
        wanted, got = (raised_by(module, x, [size]) for module in (theirs, ours))
        assert repr(got) == repr(wanted), size
        if wanted is None:
            assert ours(x, output_size=[size]).shape == theirs(x, output_size=[size]).shape


def test_module_refuses_what_its_parent_refuses():
    for wrong in (
        (3, 4, 3, 1, 0, 1, 2),
        (3, 3, 3, 1, "full"),
        (3, 3, 3, 2, "same"),
        (3, 3, 3, 1, 0, 1, 1, True, "around"),
    ):
        refusal = raised_by(torch.nn.Conv1d, *wrong)
        assert refusal is not None and type(raised_by(torch_ops.nn.Conv1d, *wrong)) is type(refusal), wrong


@each_device
def test_module_compiles_for_any_size(device):
    torch._dynamo.reset()
    for arguments in CONV1D[2:4]:
        module = torch_ops.nn.Conv1d(*arguments).to(device)
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
        for shape in ((2, 4, 20), (5, 4, 33)):
            x = torch.randn(shape, device=device) if arguments[0] == 4 else torch.randn(shape, device=device)[:, :3]
            assert close(compiled(x), module(x)) is None
    torch._dynamo.reset()


def test_transposed_module_refuses_other_padding():
    for kind in (torch_ops.nn.ConvTranspose1d, torch.nn.ConvTranspose1d):
        assert isinstance(raised_by(kind, 1, 1, 1, padding_mode="reflect"), ValueError)
        module = kind(1, 1, 1)
        module.padding_mode = "reflect"
        assert isinstance(raised_by(module, torch.ones(1, 1, 1)), ValueError)
