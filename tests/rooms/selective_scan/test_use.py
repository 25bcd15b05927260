"""Selective scans: layouts and dtypes of results and gradients, and what the update writes and refuses."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...cases.samples import selective_scan_samples as calls
from ...cases.tensors import LAYOUTS, Maker
from ...support.compare import raised_by
from ...support.params import each_device

EVERYTHING = (True,) * 4
NAMES = ("u", "delta", "A", "B", "C", "D", "z", "bias")


def _operands(call) -> list[torch.Tensor]:
    return [getattr(call, name) for name in NAMES]


@each_device
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_results_are_laid_out_as_u(device, dtype, last):
    """The output and the gradients of u, delta and z have the innermost dimension of u, whatever that of delta and z is."""
    call = calls.Call(Maker(device, dtype), (2, 6, 5, 3, 1), EVERYTHING)
    call.u = LAYOUTS["transposed"](call.u) if last else call.u
    call.z = call.z if last else LAYOUTS["transposed"](call.z)
    leaves = [x.detach().requires_grad_() for x in _operands(call)]
    out, state = torch_ops.selective_scan(*leaves, delta_softplus=True, return_last_state=True)
    strides = (30, 1, 6) if last else (30, 5, 1)
    assert out.dtype == dtype and out.stride() == strides
    assert state.dtype == (torch.float64 if dtype == torch.float64 else torch.float32) and state.is_contiguous()
    gradients = torch.autograd.grad(out.sum() + state.sum(), leaves)
    for x, gradient in zip(leaves, gradients, strict=True):
        assert gradient.dtype == x.dtype and gradient.shape == x.shape
        if x.dim() == 3:
            assert gradient.stride() == strides
    assert torch.equal(torch_ops.selective_scan(*_operands(call), delta_softplus=True), out)


@each_device
def test_either_result_alone_has_gradients(device):
    """The gradient of both results is the sum of their own. C, D and z don't reach the last state."""
    call = calls.Call(Maker(device, torch.float64), (2, 3, 9, 4, 0), EVERYTHING)
    leaves = [x.detach().requires_grad_() for x in _operands(call)]
    out, state = torch_ops.selective_scan(*leaves, delta_softplus=True, return_last_state=True)
    totals = (out.sum(), state.sum(), out.sum() + state.sum())
    of_out, of_state, of_both = (torch.autograd.grad(t, leaves, retain_graph=True) for t in totals)
    for name, *found in zip(NAMES, of_out, of_state, of_both, strict=True):
        torch.testing.assert_close(found[0] + found[1], found[2])
        assert bool(found[1].any()) == (name not in ("C", "D", "z"))


@each_device
def test_the_update_continues_a_scan(device):
    """A scan of all but the last position, and one update, give the last position of a scan of all."""
    call = calls.Call(Maker(device, torch.float64), (2, 6, 7, 5, 1), EVERYTHING)
    want, last = torch_ops.selective_scan(*_operands(call), delta_softplus=True, return_last_state=True)
    first = {name: getattr(call, name)[..., :-1] for name in ("u", "delta", "B", "C", "z")}
    _, state = torch_ops.selective_scan(
        *(first.get(name, getattr(call, name)) for name in NAMES), delta_softplus=True, return_last_state=True
    )
    version = state._version
    x, dt, B, C, z = (getattr(call, name)[..., -1] for name in ("u", "delta", "B", "C", "z"))
    got = torch_ops.selective_scan_update(state, x, dt, call.A, B, C, call.D, z, call.bias, dt_softplus=True)
    torch.testing.assert_close(got, want[..., -1])
    torch.testing.assert_close(state, last)
    assert state._version == version + 1


@each_device
def test_updates_of_half_states(device):
    """States are computed in float32 and rounded once."""
    call = calls.Update(Maker(device, torch.float32), (2, 4, 6, 5, 2), EVERYTHING)
    rest = (call.x, call.dt, call.A, call.B, call.C, call.D, call.z, call.bias)
    half, full = call.state.bfloat16(), call.state.bfloat16().float()
    got, want = (torch_ops.selective_scan_update(state, *rest, dt_softplus=True) for state in (half, full))
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(half, full.bfloat16(), rtol=2**-7, atol=1e-6)


@each_device
def test_the_update_writes_nothing_outside(device):
    """The state is every second value of a larger tensor."""
    call = calls.Update(Maker(device, torch.float32), (2, 0, 6, 5, 0), EVERYTHING)
    whole = torch.full((2, 6, 10), 7.0, device=device)
    whole[..., ::2] = call.state
    rest = (call.x, call.dt, call.A, call.B, call.C, call.D, call.z, call.bias)
    torch_ops.selective_scan_update(whole[..., ::2], *rest, dt_softplus=True)
    torch_ops.selective_scan_update(call.state, *rest, dt_softplus=True)
    torch.testing.assert_close(whole[..., ::2], call.state)
    assert whole[..., 1::2].eq(7).all()


@each_device
def test_the_update_refuses(device):
    """Gradients, and states that overlap themselves or another argument. Nothing is written."""
    call = calls.Update(Maker(device, torch.float32), (2, 0, 4, 4, 0), EVERYTHING)
    rest = [call.x, call.dt, call.A, call.B, call.C]
    for k in range(len(rest)):
        given = [x.detach().requires_grad_() if j == k else x for j, x in enumerate(rest)]
        error = raised_by(torch_ops.selective_scan_update, call.state, *given)
        assert isinstance(error, RuntimeError) and "no derivative is implemented" in str(error)
        with torch.no_grad():
            torch_ops.selective_scan_update(call.state.clone(), *given)
    whole = torch.cat([call.state.flatten(), call.x.flatten()])
    state = whole[:32].view(2, 4, 4)
    inside, itself = whole[4:12].view(2, 4), state[:1].expand(2, 4, 4)
    for written, x, z in ((itself, call.x, None), (state, inside, None), (state, call.x, inside)):
        before, version = whole.clone(), whole._version
        error = raised_by(torch_ops.selective_scan_update, written, x, *rest[1:], z=z)
        assert isinstance(error, RuntimeError) and "state must" in str(error), error
        assert torch.equal(whole, before) and whole._version == version


def test_vmap_of_a_state_that_all_examples_share():
    """Each example would write to it."""
    state, rest = torch.zeros(2, 4, 3), (torch.randn(2, 4), torch.randn(4, 3), torch.randn(2, 3), torch.randn(2, 3))
    update = torch.vmap(lambda x: torch_ops.selective_scan_update(state, x, *rest, dt_softplus=True))
    with pytest.raises(RuntimeError, match="selective_scan_update: state must be batched by torch.vmap"):
        update(torch.randn(5, 2, 4))
    assert not state.any()
