"""Drop-ins: torch_ops.compat.causal_conv1d against loops in float64, and how compat.install makes packages importable."""

from __future__ import annotations

import importlib.util
import itertools
import sys

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import torch_ops
from torch_ops.compat.causal_conv1d import causal_conv1d_fn, causal_conv1d_update, causal_conv1d_varlen_states
from torch_ops.compat.causal_conv1d_functions import (
    causal_conv1d_bwd_function,
    causal_conv1d_fwd_function,
    causal_conv1d_update_function,
)

from ..support.compare import raised_by
from ..support.params import each_device
from ..support.runtime import run_python

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
PADDED = [[0, 0, 0, 1, 1, 2, 2, 2, 2], [-1, 5, 5, 5, 3, 5, 5, -1, -1], [-1] * 9]


def _signal(*shape, device="cpu", dtype=torch.float64, last=False) -> torch.Tensor:
    """Random values. With `last` the channels are innermost in memory."""
    values = torch.randn(shape[0], shape[2], shape[1], dtype=torch.float64) if last else torch.randn(shape).double()
    return (values.mT if last else values).to(device, dtype)


def _close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == dtype
    torch.testing.assert_close(got.double().cpu(), want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


# ---------------------------------------------------------------- references: loops in float64


def _exact(*tensors):
    return [None if t is None else t.detach().double().cpu() for t in tensors]


def _activated(value: torch.Tensor, activation: str | None) -> torch.Tensor:
    return value if activation is None else value * torch.sigmoid(value)


def _fn_by_loops(x, weight, bias, seq_idx=None, states=None, activation=None):
    """The outputs and the final states, position by position."""
    x, weight, bias, states = _exact(x, weight, bias, states)
    batch, channels, length = x.shape
    size = weight.shape[1] - 1
    states = torch.zeros(batch, channels, size, dtype=x.dtype) if states is None else states
    line = torch.cat([states, x], 2)
    out, final = torch.zeros_like(x), torch.zeros_like(states)
    for n in range(batch):
        numbers = [0] * length if seq_idx is None else seq_idx[n].tolist()
        numbers = [numbers[0]] * size + numbers
        for p in range(size, size + length):
            if numbers[p] < 0:
                continue
            taps = [
                weight[:, k] * line[n, :, p - size + k] for k in range(size + 1) if numbers[p - size + k] == numbers[p]
            ]
            out[n, :, p - size] = _activated(sum(taps) + (0 if bias is None else bias), activation)
        last = max([p for p in range(size, size + length) if numbers[p] >= 0], default=size - 1)
        for k in range(size):
            if numbers[last - size + 1 + k] == numbers[last]:
                final[n, :, k] = line[n, :, last - size + 1 + k]
    return out, final


def _update_by_loops(x, state, weight, bias=None, activation=None, seqlens=None, indices=None):
    """The outputs and the state afterwards, position by position."""
    x, state, weight, bias = _exact(x, state.clone(), weight, bias)
    size, taps = state.shape[2], weight.shape[1]
    out = torch.zeros_like(x)
    for n in range(x.shape[0]):
        row = n if indices is None else int(indices[n])
        if row < 0:
            continue
        before = 0 if seqlens is None else int(seqlens[n])
        order = [(before + k) % size for k in range(size)] if size else []
        line = list(state[row][:, order].T) + list(x[n].T)
        for p in range(x.shape[2]):
            inputs = line[size + p - taps + 1 : size + p + 1]
            total = sum(weight[:, k] * inputs[k] for k in range(taps)) + (0 if bias is None else bias)
            out[n, :, p] = _activated(total, activation)
            if seqlens is not None and size:
                state[row, :, (before + p) % size] = x[n, :, p]
        if seqlens is None and size:
            state[row] = torch.stack(line[-size:], 1)
    return out, state


# ---------------------------------------------------------------- causal_conv1d_fn


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_fn_is_the_definition(device, dtype, last):
    """Every combination of bias, sequences and states, for widths beyond the original's and signals shorter than the window."""
    for taps, length, given in itertools.product((1, 2, 4, 7), (2, 9), itertools.product((False, True), repeat=3)):
        has_bias, has_sequences, has_states = given
        x = _signal(3, 5, length, device=device, dtype=dtype, last=last)
        w, b = (
            _signal(5, taps, device=device, dtype=dtype),
            _signal(5, device=device, dtype=dtype) if has_bias else None,
        )
        sequences = torch.tensor(PADDED, device=device)[:, :length].int() if has_sequences else None
        states = _signal(3, 5, taps - 1, device=device, dtype=dtype, last=not last) if has_states else None
        activation = (None, "silu", "swish")[(taps + length) % 3]
        want, want_final = _fn_by_loops(x, w, b, sequences, states, activation)
        _close(causal_conv1d_fn(x, w, b, sequences, states, activation=activation), want, dtype)
        out, final = causal_conv1d_fn(x, w, b, sequences, states, True, activation=activation)
        _close(out, want, dtype)
        _close(final, want_final, dtype)
        assert torch.equal(final.double().cpu(), want_final), "states are copies, which round nothing"
        assert (out.stride(1) == 1) == last or 1 in out.shape
        if has_sequences:
            assert (out.movedim(1, -1)[sequences < 0] == 0).all()


@each_device
def test_final_states_are_written_where_asked(device):
    x, w = _signal(2, 8, 6, device=device), _signal(8, 4, device=device)
    _, want = causal_conv1d_fn(x, w, return_final_states=True)
    assert want.stride() == (24, 1, 8), "channels are innermost, as in the original"
    whole = torch.zeros(2, 8, 9, dtype=x.dtype, device=device)
    for place in (whole[..., ::3], torch.zeros(2, 3, 8, dtype=x.dtype, device=device).mT):
        _, final = causal_conv1d_fn(x, w, return_final_states=True, final_states_out=place)
        assert final is place and torch.equal(place, want)
    assert whole[..., 1::3].eq(0).all() and whole[..., 2::3].eq(0).all()
    untouched = torch.zeros_like(want)
    causal_conv1d_fn(x, w, final_states_out=untouched)
    assert untouched.eq(0).all(), "nothing is written unless final states are asked for"


@each_device
@pytest.mark.parametrize("length", [1, 2, 5])
def test_states_join_pieces(device, length):
    """A signal in pieces, with one buffer for the states that each call reads and writes."""
    x, w, b = _signal(2, 6, 15, device=device), _signal(6, 4, device=device), _signal(6, device=device)
    state = torch.zeros(2, 6, 3, dtype=x.dtype, device=device)
    pieces = [causal_conv1d_fn(p, w, b, None, state, True, state, "silu")[0] for p in x.split(length, 2)]
    torch.testing.assert_close(torch.cat(pieces, 2), causal_conv1d_fn(x, w, b, activation="silu"))


def test_other_sequences_do_not_reach_an_output():
    x, w = _signal(1, 3, 6), _signal(3, 4)
    sequences = torch.tensor([[0, 0, 0, 1, 1, -1]])
    want = causal_conv1d_fn(x, w, seq_idx=sequences)
    x[..., [2, 5]] = torch.inf
    got = causal_conv1d_fn(x, w, seq_idx=sequences)
    assert torch.equal(got[..., 3:], want[..., 3:]) and torch.equal(got[..., :2], want[..., :2])


@each_device
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_weights_of_another_dtype(half, device):
    """Half `x` and float32 weights, the original's usual call: only the result is rounded, and gradients have their tensors' dtypes."""
    x = _signal(2, 8, 20, device=device, dtype=half).requires_grad_()
    w, b = (_signal(*s, device=device, dtype=torch.float32).requires_grad_() for s in ((8, 4), (8,)))
    out = causal_conv1d_fn(x, w, b, activation="silu")
    want, _ = _fn_by_loops(x, w, b, activation="silu")
    assert (
        out.dtype == half
        and torch.equal(out.cpu(), want.float().to(half))
        or ((out.double().cpu() - want).abs() <= torch.finfo(half).eps * want.abs() * 0.51 + 1e-6).all()
    )
    out.sum().backward()
    assert (x.grad.dtype, w.grad.dtype, b.grad.dtype) == (half, torch.float32, torch.float32)
    exact = [t.detach().double().requires_grad_() for t in (x, w, b)]
    causal_conv1d_fn(*exact, activation="silu").sum().backward()
    torch.testing.assert_close(w.grad.double(), exact[1].grad, rtol=1e-4, atol=1e-4)
    state = _signal(2, 8, 3, device=device, dtype=half)
    want, after = _update_by_loops(x[..., :1], state, w, b)
    _close(causal_conv1d_update(x.detach()[..., 0], state, w, b)[..., None], want, half)
    assert torch.equal(state.double().cpu(), after)


def test_autocast_keeps_the_dtype_of_x():
    x, w = _signal(2, 4, 9, dtype=torch.float32), _signal(4, 3, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(causal_conv1d_fn(x, w), torch_ops.causal_conv1d(x, w).float()) is False
        got = causal_conv1d_fn(x, w)
        rounded = causal_conv1d_fn(x.bfloat16(), w)
    torch.testing.assert_close(got, torch_ops.causal_conv1d(x, w))
    assert got.dtype == torch.float32 and rounded.dtype == torch.bfloat16
    assert torch.equal(rounded, torch_ops.causal_conv1d(x.bfloat16(), w.bfloat16()))


@pytest.mark.parametrize("has_sequences", [False, True])
@pytest.mark.parametrize("has_states", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_fn(has_sequences, has_states, last):
    x, w, b = _signal(3, 2, 9, last=last), _signal(2, 3), _signal(2)
    states = _signal(3, 2, 2)
    sequences = torch.tensor(PADDED) if has_sequences else None

    def call(x, w, b, states):
        return causal_conv1d_fn(x, w, b, sequences, states if has_states else None, True, activation="silu")

    operands = [t.requires_grad_() for t in (x, w, b)] + [states.requires_grad_(has_states)]
    assert gradcheck(call, operands, check_forward_ad=True)
    assert gradgradcheck(call, operands)
    if has_sequences:
        (grad,) = torch.autograd.grad(call(*operands)[0].sum(), x)
        assert (grad.movedim(1, -1)[sequences < 0] == 0).all(), "padding has no gradient"


def test_gradients_reach_states_that_are_written_where_asked():
    x, w = _signal(2, 3, 5).requires_grad_(), _signal(3, 4)
    out = torch.empty(2, 3, 3, dtype=x.dtype)
    causal_conv1d_fn(x, w, return_final_states=True, final_states_out=out)[1].sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x).index_fill(2, torch.tensor([0, 1]), 0))


@pytest.mark.parametrize("mode", ["plain", "states", "sequences"])
def test_fn_is_compiled_without_a_break(mode):
    def call(x, w, b, states):
        if mode == "plain":
            return causal_conv1d_fn(x, w, b, activation="silu")
        sequences = torch.tensor(PADDED) if mode == "sequences" else None
        return causal_conv1d_fn(x, w, b, sequences, states, True, activation="silu")[0]

    operands = [_signal(3, 5, 9), _signal(5, 4), _signal(5), _signal(3, 5, 3)]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    found = []
    for function in (call, compiled):
        leaves = [t.clone().requires_grad_() for t in operands]
        out = function(*leaves)
        out.square().sum().backward()
        found.append([out, *(t.grad for t in leaves[:3])])
    torch.testing.assert_close(found[1], found[0])


def test_a_plain_call_is_one_operator():
    x, w = _signal(1, 2, 4), _signal(2, 3)
    with torch.profiler.profile() as profile:
        causal_conv1d_fn(x, w)
    assert [e.name for e in profile.events() if e.cpu_parent is None] == ["gpuopt::causal_conv1d"]


# ---------------------------------------------------------------- causal_conv1d_update

UPDATES = list(itertools.product((1, 2, 4), (0, 1, 5), (1, 3, 7), (False, True), (False, True)))


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_update_is_the_definition(device, dtype):
    """States of K - 1 and more positions, more positions than a state has, circular buffers, and rows with padding."""
    for taps, extra, length, is_circular, has_indices in UPDATES:
        size, rows = taps - 1 + extra, 6 if has_indices else 4
        x, w, b = (_signal(*s, device=device, dtype=dtype) for s in ((4, 3, length), (3, taps), (3,)))
        state = _signal(rows, 3, size, device=device, dtype=dtype, last=length == 3)
        seqlens = torch.tensor([0, 1, 9, 1000], dtype=torch.int32, device=device) if is_circular else None
        indices = torch.tensor([5, -1, 0, -7], dtype=torch.int32, device=device) if has_indices else None
        activation = (None, "silu")[length % 2]
        want, after = _update_by_loops(x, state, w, b, activation, seqlens, indices)
        out = causal_conv1d_update(x, state, w, b, activation, seqlens, indices)
        _close(out, want, dtype)
        assert torch.equal(state.double().cpu(), after), "states are copies, which round nothing"
        assert indices is None or (out[[1, 3]] == 0).all()


@each_device
def test_update_of_one_position_has_no_third_dimension(device):
    x, w = _signal(2, 3, device=device), _signal(3, 4, device=device)
    for arguments in ({}, {"cache_seqlens": torch.tensor([3, 4], device=device)}):
        first, second = (torch.ones(2, 3, 5, dtype=x.dtype, device=device) for _ in range(2))
        out = causal_conv1d_update(x, first, w, **arguments)
        assert out.shape == (2, 3)
        torch.testing.assert_close(out, causal_conv1d_update(x[..., None], second, w, **arguments)[..., 0])
        assert torch.equal(first, second)


@each_device
@pytest.mark.parametrize("length", [1, 3])
def test_update_writes_a_view_of_a_larger_buffer(device, length):
    whole = _signal(4, 2, 6, 9, device=device)
    state, before = whole[1::2, 0, :, 2::2], whole.clone()
    x, w = _signal(2, 6, length, device=device), _signal(6, 3, device=device)
    _, after = _update_by_loops(x, state, w)
    causal_conv1d_update(x, state, w)
    assert torch.equal(state.cpu(), after)
    state.copy_(before[1::2, 0, :, 2::2])
    assert torch.equal(whole, before), "nothing else is written"


@each_device
def test_update_where_all_rows_are_padding(device):
    state = _signal(3, 2, 3, device=device)
    before = state.clone()
    indices = torch.full((4,), -1, dtype=torch.int32, device=device)
    out = causal_conv1d_update(
        _signal(4, 2, 1, device=device), state, _signal(2, 4, device=device), None, None, None, indices
    )
    assert torch.equal(state, before) and out.eq(0).all()


@each_device
def test_update_of_nothing(device):
    state, indices = torch.ones(3, 2, 4, device=device), torch.zeros(0, dtype=torch.int32, device=device)
    out = causal_conv1d_update(state[:0, :, :2], state, torch.ones(2, 3, device=device), conv_state_indices=indices)
    assert out.shape == (0, 2, 2) and state.eq(1).all()


def test_update_is_compiled_without_a_break():
    def call(x, state, w, seqlens, indices):
        return causal_conv1d_update(x, state, w, None, "silu", seqlens, indices)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    x, state, w = _signal(2, 3, 4), _signal(5, 3, 6), _signal(3, 3)
    for seqlens, indices in ((None, None), (torch.tensor([4, 9]), torch.tensor([3, -1]))):
        states = [(state if indices is not None else state[:2]).clone() for _ in range(2)]
        outs = [function(x, state, w, seqlens, indices) for function, state in zip((call, compiled), states)]
        torch.testing.assert_close(outs[1], outs[0])
        assert torch.equal(*states)


def test_updates_continue_fn():
    x, w = _signal(2, 4, 12), _signal(4, 4)
    want = causal_conv1d_fn(x, w, activation="silu")
    _, state = causal_conv1d_fn(x[..., :5], w, return_final_states=True)
    pieces = [causal_conv1d_update(p, state, w, activation="silu") for p in x[..., 5:].split([1, 4, 2], 2)]
    torch.testing.assert_close(torch.cat(pieces, 2), want[..., 5:])


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("is_circular", [False, True])
@pytest.mark.parametrize("has_indices", [False, True])
def test_gradients_of_update(length, is_circular, has_indices):
    seqlens = torch.tensor([7, 2]) if is_circular else None
    indices = torch.tensor([2, -1]) if has_indices else None

    def call(x, state, w, b):
        state = state.clone()
        return causal_conv1d_update(x, state, w, b, "silu", seqlens, indices), state

    operands = [_signal(2, 2, length), _signal(3 if has_indices else 2, 2, 3), _signal(2, 3), _signal(2)]
    operands = [t.requires_grad_() for t in operands]
    assert gradcheck(call, operands, check_forward_ad=True)
    if has_indices:  # every row is padding
        indices.fill_(-1)
        assert gradcheck(call, operands, check_forward_ad=True)


# ---------------------------------------------------------------- causal_conv1d_varlen_states


@each_device
@pytest.mark.parametrize("size", [1, 3, 5])
def test_varlen_states(size, device):
    lengths = [4, 0, 1, 7, 0]
    x = _signal(sum(lengths), 6, device=device)
    ends = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
    states = causal_conv1d_varlen_states(x, ends, size)
    assert states.shape == (5, 6, size) and states.stride(1) == 1
    for state, sequence in zip(states, x.split(lengths)):
        want = torch.cat([torch.zeros(size, 6, dtype=x.dtype, device=device), sequence])[-size:]
        assert torch.equal(state, want.T)
    nothing = causal_conv1d_varlen_states(x[:0], ends[:1].repeat(3), size)
    assert nothing.shape == (2, 6, size) and nothing.eq(0).all()


def test_varlen_states_have_gradients():
    ends = torch.tensor([0, 2, 2, 5])
    assert gradcheck(lambda x: causal_conv1d_varlen_states(x, ends, 3), _signal(5, 2).requires_grad_())


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (NotImplementedError, "activation must be None, silu, or swish", lambda x, w: causal_conv1d_fn(x, w, activation="gelu")),
        (NotImplementedError, "activation must be", lambda x, w: causal_conv1d_update(x, x, w, activation="gelu")),
        (RuntimeError, "seq_idx must have shape (2, 5)", lambda x, w: causal_conv1d_fn(x, w, seq_idx=torch.zeros(2, 4))),
        (RuntimeError, "initial_states must have shape (2, 4, 2)", lambda x, w: causal_conv1d_fn(x, w, initial_states=x)),
        (RuntimeError, "final_states_out must have", lambda x, w: causal_conv1d_fn(x, w, None, None, None, True, x)),
        (RuntimeError, "expected x (N, C, L)", lambda x, w: causal_conv1d_fn(x[0], w, return_final_states=True)),
        (RuntimeError, "expected x (N, C) or (N, C, T)", lambda x, w: causal_conv1d_update(x[0, 0], x, w)),
        (RuntimeError, "at least 2 positions, got 1", lambda x, w: causal_conv1d_update(x, x[..., :1], w)),
        (RuntimeError, "conv_state must have shape (2, 4, 5)", lambda x, w: causal_conv1d_update(x, x.repeat(2, 1, 1), w)),
        (RuntimeError, "cache_seqlens must have", lambda x, w: causal_conv1d_update(x, x, w, None, None, torch.zeros(3))),
        (RuntimeError, "expected x (P, C)", lambda x, w: causal_conv1d_varlen_states(x, torch.zeros(1).int(), 2)),
    ],
)  # fmt: skip
def test_errors(error, message, call):
    raised = raised_by(call, _signal(2, 4, 5), _signal(4, 3))
    assert type(raised) is error and message in str(raised), raised


# ---------------------------------------------------------------- cpp_functions


@pytest.mark.parametrize("has_states", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_functions_without_a_graph(has_states, has_bias):
    x, w, b = _signal(2, 3, 8), _signal(3, 4), _signal(3) if has_bias else None
    states = _signal(2, 3, 3) if has_states else None
    leaves = [t if t is None else t.clone().requires_grad_() for t in (x, w, b, states)]
    out, final = causal_conv1d_fn(*leaves[:3], None, leaves[3], True, activation="silu")
    written = torch.empty_like(final) if has_states else None
    got = causal_conv1d_fwd_function(*leaves[:3], None, leaves[3], written, True)
    assert torch.equal(got, out) and not got.requires_grad and (written is None or torch.equal(written, final))

    gradients = [torch.randn_like(out), torch.randn_like(final) if has_states else None]
    total = (out * gradients[0]).sum() + ((final * gradients[1]).sum() if has_states else 0)
    want = iter(torch.autograd.grad(total, [t for t in leaves if t is not None]))
    dx = torch.empty_like(x)
    found = causal_conv1d_bwd_function(x, w, b, gradients[0], None, states, gradients[1], dx, has_states, True)
    assert found[0] is dx
    for got, operand in zip(found, (x, w, b, states)):
        assert got is None if operand is None else torch.allclose(got, next(want))

    first, second = torch.zeros(2, 3, 3, dtype=x.dtype), torch.zeros(2, 3, 3, dtype=x.dtype)
    updated = causal_conv1d_update_function(x[..., :2], first, w, b, True, None, None)
    assert torch.equal(updated, causal_conv1d_update(x[..., :2], second, w, b, "silu")) and torch.equal(first, second)


# ---------------------------------------------------------------- install


def test_install_makes_the_package_importable():
    run_python("""
import importlib, importlib.metadata, importlib.util, sys
import torch, torch_ops
from torch_ops import compat
from torch_ops.compat import causal_conv1d as ours

assert importlib.util.find_spec("causal_conv1d") is None
assert compat.install("causal_conv1d") == ["causal_conv1d"] == compat.install("causal_conv1d")
assert importlib.util.find_spec("mamba_ssm") is None
spec = importlib.util.find_spec("causal_conv1d")
assert spec.name == "causal_conv1d" and spec.submodule_search_locations == []
for name in ("causal_conv1d", "causal-conv1d"):
    assert importlib.metadata.version(name) == "1.6.1"
assert importlib.metadata.packages_distributions()["causal_conv1d"] == ["causal_conv1d"]

import causal_conv1d
from causal_conv1d import causal_conv1d_fn, causal_conv1d_update
from causal_conv1d.causal_conv1d_interface import causal_conv1d_fn as again
from causal_conv1d.causal_conv1d_varlen import causal_conv1d_varlen_states
from causal_conv1d.cpp_functions import causal_conv1d_bwd_function, causal_conv1d_fwd_function

assert causal_conv1d_fn is again is ours.causal_conv1d_fn and causal_conv1d_update is ours.causal_conv1d_update
assert causal_conv1d.__version__ == "1.6.1" and causal_conv1d.__spec__.name == "causal_conv1d" and causal_conv1d.__file__
assert importlib.reload(causal_conv1d).causal_conv1d_fn is causal_conv1d_fn
assert causal_conv1d_fn(torch.ones(1, 2, 3), torch.ones(2, 2)).tolist() == [[[1, 2, 2], [1, 2, 2]]]

compat.uninstall()
compat.uninstall()
assert not [name for name in sys.modules if name.startswith("causal_conv1d")]
assert importlib.util.find_spec("causal_conv1d") is None
try:
    importlib.metadata.version("causal_conv1d")
except importlib.metadata.PackageNotFoundError:
    pass
else:
    raise AssertionError("the metadata stayed")
try:
    compat.install("causal_conv2d")
except ValueError as error:
    assert "causal_conv1d" in str(error)
else:
    raise AssertionError("a name without a drop-in was accepted")
""")


def test_a_package_without_a_drop_in_must_be_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)  # as if it were not
    with pytest.raises(ModuleNotFoundError, match="torch_geometric must be installed") as raised:
        torch_ops.compat.install(["causal_conv1d", "torch_geometric"])
    assert raised.value.name == "torch_geometric"
    assert importlib.util.find_spec("causal_conv1d") is None


def test_an_installed_package_is_hidden_only_by_force(tmp_path):
    (tmp_path / "causal_conv1d").mkdir()
    (tmp_path / "causal_conv1d/__init__.py").write_text("__version__ = 'real'\nfrom causal_conv1d.part import name\n")
    (tmp_path / "causal_conv1d/part.py").write_text("name = 1\n")
    run_python(f"""
import sys
from torch_ops import compat

compat.install()
sys.path.insert(0, {str(tmp_path)!r})  # installed later than the drop-in
import causal_conv1d as real
assert real.__version__ == "real"
compat.uninstall()
import causal_conv1d
assert causal_conv1d is real and compat.install() == ["mamba_ssm", "torch_scatter"]

assert compat.install(force=True) == list(compat.PACKAGES) == compat.install()
import causal_conv1d
assert causal_conv1d.__version__ == "1.6.1" and "causal_conv1d.part" not in sys.modules
compat.uninstall("causal_conv1d")
import causal_conv1d
assert causal_conv1d is real and sys.modules["causal_conv1d.part"].name == 1
""")
