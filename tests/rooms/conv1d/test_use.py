"""Convolutions, beyond the contract of every operator: public functions, layouts, masks of the backward, derivatives, and
the state of causal_conv1d_update.

test_accuracy.py tests errors and non-finite values, test_cuda.py tests repeatability and memory.
"""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import torch_ops

from ...cases import tensors
from ...cases.conv1d import ACTIVATIONS as OF_OPERATORS
from ...cases.conv1d import CASES, conv1d_reference
from ...support.compare import Failures, all_close, close, different_bits, different_metadata, raised_by
from ...support.params import each_device
from ...support.recorder import Recorder

ACTIVATIONS = {None if word == "none" else word: function for word, function in OF_OPERATORS.items()}

NAMES = sorted({case.schema_name.removeprefix("gpuopt::") for case in CASES})
OPS = torch.ops.gpuopt


def _last(t: torch.Tensor) -> torch.Tensor:
    """A channels-last copy."""
    return t.mT.clone(memory_format=torch.contiguous_format).mT


# ---------------------------------------------------------------- the public functions


@pytest.mark.parametrize("name", NAMES)
def test_parameters(name):
    schema = getattr(OPS, name).default._schema
    assert list(inspect.signature(getattr(torch_ops, name)).parameters) == [a.name for a in schema.arguments]


@each_device
def test_forms_of_arguments(device):
    """Arguments may be numbers, lists or tuples, by position or by name. Padding may be a word."""
    x, w, b = (torch.randn(s, device=device) for s in ((2, 4, 11), (6, 2, 3), 6))
    want = torch.conv1d(x, w, b, 2, 1, 2, 2)
    for s, p, d in ((2, 1, 2), ([2], [1], [2]), ((2,), (1,), (2,)), (torch.Size([2]), 1, [2])):
        for got in (
            torch_ops.conv1d(x, w, b, s, p, d, 2),
            torch_ops.conv1d(input=x, weight=w, bias=b, stride=s, padding=p, dilation=d, groups=2),
            torch_ops.conv1d_act(x, w, b, s, p, d, 2, None),
        ):
            assert close(got, want) is None, (s, p, d)
    assert close(torch_ops.conv1d_act(x, w, b, 2, (1, 1), 2, 2), want) is None
    for padding in ("same", "valid"):
        assert (
            close(torch_ops.conv1d(x, w, b, padding=padding, groups=2), torch.conv1d(x, w, b, 1, padding, 1, 2)) is None
        )
    assert close(torch_ops.conv1d(x[0], w, None, groups=2), torch.conv1d(x[0], w, None, groups=2)) is None
    for wrong in ({"stride": "text"}, {"stride": 1.5}, {"groups": "text"}, {"padding": None}, {"dilation": None}):
        assert isinstance(raised_by(torch_ops.conv1d, x, w, b, **wrong), (RuntimeError, TypeError, ValueError)), wrong


@each_device
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation, device):
    """Activations equal torch.nn.functional's (gelu by erf), for values near zero and far from it, of both signs."""
    x = torch.cat([torch.linspace(-12, 12, 401), torch.tensor([-200.0, -50.0, 50.0, 200.0])]).double().to(device)
    one = torch.ones(1, 1, 1, dtype=x.dtype, device=device)
    for dtype in (torch.float64, torch.float32):
        got = torch_ops.conv1d_act(x.to(dtype)[None], one.to(dtype), activation=activation)[0]
        want = ACTIVATIONS[activation](x.to(dtype).double())
        allowed = 8 * torch.finfo(dtype).eps * (1 + want.abs())  # 1 + erf(x) cancels for negative x
        assert ((got.double() - want).abs() <= allowed).all(), dtype
    assert raised_by(torch_ops.conv1d_act, x[None], one, activation="GELU") is not None


def test_integers_on_the_cpu():
    """ATen supports integers on the CPU, so gpuopt does, too."""
    for dtype in (torch.int64, torch.int32, torch.uint8):
        x, w = (tensors.Maker("cpu", torch.int64, small=True)(*s).to(dtype) for s in ((2, 3, 9), (4, 3, 2)))
        for got, want in (
            (torch_ops.conv1d(x, w), torch.conv1d(x, w)),
            (torch_ops.conv1d(x, w, padding=1), torch.conv1d(x, w, padding=1)),
        ):
            assert different_bits(got, want) is None


# ---------------------------------------------------------------- layouts


@each_device
def test_layouts(device):
    """The result of a channels-last input is channels-last, for every size of its dimensions, also if the input is a part of a
    larger tensor. Other results are contiguous."""
    failures = Failures()
    for n, c, length, out, taps in itertools.product((0, 1, 2), (1, 4), (1, 5), (1, 4), (1, 3)):
        groups = c if out == c else 1
        w = torch.ones(out, c // groups, taps, device=device)
        dense = torch.randn(n, c, length, device=device)
        larger = torch.randn(n + 1, length + 2, c + 1, device=device)
        for name, x, stays in (
            ("contiguous", dense, False), ("channels-last", _last(dense), c > 1 and length > 1), ("cropped", larger.mT[:n, :c, 1:-1], c > 1 and length > 1),
            ("signals innermost", dense.permute(1, 2, 0).contiguous().permute(2, 0, 1), None),
            ("one signal", _last(dense)[:1][0] if n else _last(dense), c > 1 and length > 1 if n != 0 else c > 1 and length > 1),
            ("every second signal", torch.randn(2 * n, length, c, device=device).mT[::2], c > 1 and length > 1),
        ):  # fmt: skip
            if stays is None or (n == 0 and name != "contiguous" and name != "channels-last"):
                continue
            said = f"{tuple(x.shape)} {name} {x.stride()} to {out}, {taps} taps"
            with failures.sample(said):
                got = torch_ops.conv1d(x, w, padding=(taps - 1) // 2, groups=groups)
                positions, channels = got.shape[-1], got.shape[-2]
                new = torch.empty(*got.shape[:-2], positions, channels).mT if stays else torch.empty(got.shape)
                failures.add(
                    said, None if got.stride() == new.stride() else f"strides {got.stride()}, expected {new.stride()}"
                )
                meta = torch.empty_strided(x.shape, x.stride(), device="meta")
                on_meta = torch_ops.conv1d(meta, w.to("meta"), padding=(taps - 1) // 2, groups=groups)
                failures.add(said, different_metadata(on_meta, got, device=False))
                of_input, of_weight, _ = torch_ops.conv1d_backward(
                    torch.ones_like(got), x, w, 1, (taps - 1) // 2, 1, groups
                )
                new = torch.empty(*x.shape[:-2], x.shape[-1], x.shape[-2]).mT if stays else torch.empty(x.shape)
                failures.add(
                    said, None if of_input.stride() == new.stride() else f"gradient's strides {of_input.stride()}"
                )
                failures.add(
                    said, None if of_weight.is_contiguous() else f"strides of weight's gradient {of_weight.stride()}"
                )
    failures.check(at_least=100)


@each_device
def test_same_padding_makes_no_padded_copy(device):
    """With an even number of taps, "same" pads one more value on the right. Both paddings are arguments of the operator."""
    x, w = torch.randn(2, 3, 9, device=device), torch.randn(3, 1, 4, device=device)
    with Recorder() as recorder:
        got = torch_ops.conv1d(x, w, padding="same", groups=3)
    ((op, args),) = recorder.calls
    assert op is OPS.conv1d_act.default and list(args[4]) == [1, 2]
    assert close(got, torch.conv1d(functional.pad(x, (1, 2)), w, groups=3)) is None


# ---------------------------------------------------------------- the backward


@each_device
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("padding", [(0, 0), (2, 2), (3, 0)], ids=str)
def test_masks(groups, padding, device):
    """Every combination of requested gradients, with and without a batch. A gradient that is not requested is None."""
    make = tensors.Maker(device, torch.float64)
    x, w = make(2, 4, 11), make(8, 4 // groups, 3)
    grad = make(*torch_ops.conv1d_act(x, w, None, 2, padding, 1, groups).shape)
    leaves = [t.clone().requires_grad_() for t in (x, w, make(8))]
    wanted = torch.autograd.grad(conv1d_reference(*leaves, [2], padding, [1], groups), leaves, grad)
    for mask in itertools.product((False, True), repeat=3):
        got = torch_ops.conv1d_backward(grad, x, w, 2, padding, 1, groups, mask)
        assert all_close(got, [g if wanted_ else None for g, wanted_ in zip(wanted, mask)], ulps=64) is None, mask
        each = [torch_ops.conv1d_backward(g, s, w, [2], padding, [1], groups, mask) for g, s in zip(grad, x)]
        for k, total in enumerate(got):
            of_each = [e[k] for e in each]
            if total is None:
                assert of_each == [None, None]
            else:
                assert close(torch.stack(of_each) if k == 0 else sum(of_each), total, ulps=64) is None


@each_device
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_no_signals(dtype, device):
    """An empty batch has empty results, and gradients that are zero."""
    x = torch.ones(0, 4, 9, dtype=dtype, device=device).requires_grad_()
    for groups in (1, 4):
        w, b = (torch.ones(s, dtype=dtype, device=device).requires_grad_() for s in ((8, 4 // groups, 3), 8))
        for activation in ACTIVATIONS:
            result = torch_ops.conv1d_act(x, w, b, 2, 1, 1, groups, activation)
            assert result.shape == (0, 8, 5)
            grads = torch.autograd.grad(result.sum(), (x, w, b))
            for grad, leaf in zip(grads, (x, w, b), strict=True):
                assert different_bits(grad, torch.zeros_like(leaf)) is None


@each_device
def test_no_examples(device):
    """torch.vmap over a batch of size 0, which computes Jacobians of empty results."""
    x, w, g = (
        torch.ones(0, 2, 4, 9, device=device),
        torch.ones(4, 1, 3, device=device),
        torch.ones(0, 2, 4, 7, device=device),
    )
    assert torch.vmap(lambda t: torch_ops.conv1d(t, w, groups=4))(x).shape == (0, 2, 4, 7)
    assert torch.vmap(lambda t: torch_ops.conv1d(x.new_ones(2, 4, 9), t, groups=4))(w.expand(0, 4, 1, 3)).shape == (
        0,
        2,
        4,
        7,
    )
    grads = torch.vmap(lambda t, u: torch_ops.conv1d_backward(t, u, w, groups=4))(g, x)
    assert [tuple(t.shape) for t in grads] == [(0, 2, 4, 9), (0, 4, 1, 3), (0, 4)]


@each_device
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_derivatives_beyond_the_contracts(activation, device):
    """First and second derivatives, reverse and forward, of grouped convolutions with stride, dilation or one-sided padding, and of
    convolutions without a batch."""
    make = tensors.Maker(device, torch.float64)
    for size, weight, steps in (
        ((2, 2, 6), (4, 1, 2), (2, [1, 0], 2, 2)),
        ((2, 5), (2, 2, 2), (1, [0, 2], 1, 1)),
        ((1, 1, 5), (1, 1, 3), (1, [2, 2], 1, 1)),
    ):
        leaves = [make(*s).requires_grad_() for s in (size, weight, weight[:1])]

        def function(x, w, b, steps=steps):
            return torch_ops.conv1d_act(x, w, b, *steps, activation)

        assert gradcheck(function, leaves, check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(function, leaves, check_fwd_over_rev=True)


# ---------------------------------------------------------------- causal_conv1d_update


def _streamed(x, w, b, activation, size: int, layout=lambda t: t):
    state = layout(torch.zeros(*x.shape[:2], size, dtype=x.dtype, device=x.device))
    results = [torch_ops.causal_conv1d_update(x[..., k], state, w, b, activation) for k in range(x.shape[-1])]
    return torch.stack(results, -1), state


@each_device
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_updates_are_the_causal_convolution(activation, device):
    """Updates for one position after another equal causal_conv1d. States may be longer than needed and have any layout.

    The state finally holds the last positions of the signal.
    """
    make = tensors.Maker(device, torch.float64)
    for (n, c, taps), more in itertools.product(((1, 1, 1), (2, 3, 2), (3, 5, 4), (1, 4, 9)), (0, 1, 5)):
        x, w, b = make(n, c, 12), make(c, taps), make(c)
        want = torch_ops.causal_conv1d(x, w, b, activation)
        for layout in ("contiguous", "transposed", "sliced", "reversed", "step2", "misaligned1"):
            got, state = _streamed(x, w, b, activation, taps - 1 + more, tensors.LAYOUTS[layout])
            assert close(got, want, ulps=16) is None, f"{n}, {c}, {taps}, {layout}"
            padded = functional.pad(x, (taps + more, 0))
            assert torch.equal(state, padded[..., padded.shape[-1] - state.shape[-1] :])


@each_device
def test_updates_go_on_after_a_whole_signal(device):
    """Updates continue a signal of any length, from the state that the docstring of causal_conv1d_update makes."""
    make = tensors.Maker(device, torch.float64)
    for taps, size in itertools.product((1, 2, 4), (1, 2, 3, 9)):
        whole, w = make(2, 3, size + 3), make(3, taps)
        x = whole[..., :size]
        state = functional.pad(x, (taps - 1, 0))[..., x.shape[-1] :].clone()
        for k in range(size, size + 3):
            got = torch_ops.causal_conv1d_update(whole[..., k], state, w)
            assert close(got, torch_ops.causal_conv1d(whole, w)[..., k], ulps=16) is None, (
                f"{taps} taps, {size} positions"
            )


@each_device
def test_words_of_padding_are_refused_by_name(device):
    """Operators that accept only numbers as padding name the argument in their error."""
    x, w = torch.ones(1, 2, 5, device=device), torch.ones(2, 2, 1, device=device)
    for call in (
        lambda: torch_ops.conv1d_act(x, w, padding="same"),
        lambda: torch_ops.conv1d_backward(x, x, w, padding="same"),
    ):
        error = raised_by(call)
        assert isinstance(error, TypeError) and "padding must be int or a sequence of int, got str" in str(error)


@each_device
def test_updates_write_the_state_alone(device):
    """An update writes the state and increases its version. It writes nothing around the state, and a refused call writes
    nothing."""
    x, w, b = torch.randn(2, 3, device=device), torch.randn(3, 4, device=device), torch.randn(3, device=device)
    around = torch.full((2, 5, 8), 7.0, device=device)
    state = around[:, 1:4, 2:6].zero_()
    before, version = [t.clone() for t in (x, w, b)], state._version
    result = torch_ops.causal_conv1d_update(x, state, w, b, "silu")
    assert state._version == version + 1 and torch.equal(state[..., -1], x) and not state[..., :-1].any()
    assert all(torch.equal(*pair) for pair in zip(before, (x, w, b)))
    around[:, 1:4, 2:6] = 7
    assert (around == 7).all() and result.shape == (2, 3)
    for wrong in (
        (x, state, w[:2]),
        (x, state[..., :2], w),
        (x, state, w, b, "tanh"),
        (x.double(), state, w),
        (x[:1], state, w),
    ):
        version = state._version
        assert isinstance(raised_by(torch_ops.causal_conv1d_update, *wrong), RuntimeError)
        assert state._version == version and (around == 7).all()
    overlapping = torch.zeros(1, device=device).expand(2, 3, 4)
    assert isinstance(raised_by(torch_ops.causal_conv1d_update, x, overlapping, w), RuntimeError)


@each_device
def test_updates_in_a_graph(device):
    """Updates obey ATen's rules for in-place operators. Gradients through a sequence of updates equal the whole convolution's."""
    make = tensors.Maker(device, torch.float64)
    x, w, b = make(2, 3, 6).requires_grad_(), make(3, 3).requires_grad_(), make(3).requires_grad_()
    first = make(2, 3, 2).requires_grad_()
    assert "leaf" in str(raised_by(torch_ops.causal_conv1d_update, x[..., 0], first, w))
    assert "leaf" in str(raised_by(torch_ops.causal_conv1d_update, x[..., 0].detach(), first, w.detach()))
    with torch.no_grad():
        torch_ops.causal_conv1d_update(x[..., 0], first.clone(), w)
    grads = []
    for stream in (True, False):
        if stream:
            state = first.clone()
            results = [torch_ops.causal_conv1d_update(x[..., k], state, w, b, "gelu") for k in range(6)]
            result, end = torch.stack(results, -1), state
        else:
            whole = torch.cat([first, x], -1)
            result, end = torch_ops.conv1d_act(whole, w[:, None], b, groups=3, activation="gelu"), whole[..., -2:]
        grads.append(torch.autograd.grad(result.square().sum() + end.pow(3).sum(), (x, w, b, first)))
    assert all_close(*grads, ulps=64) is None
    with torch.inference_mode():
        state = torch.zeros(2, 3, 2, dtype=x.dtype, device=device)
        torch_ops.causal_conv1d_update(x[..., 0], state, w, b)
        assert torch.equal(state[..., -1], x[..., 0])


@each_device
def test_updates_compile(device):
    """Compiled updates of an argument and of a temporary: the write is functionalized, and the argument is written back."""
    torch._dynamo.reset()
    w, b = torch.randn(3, 4, device=device), torch.randn(3, device=device)

    def steps(x, state):
        mine = state.clone()
        early = torch_ops.causal_conv1d_update(x, mine, w, b, "silu")
        return early + torch_ops.causal_conv1d_update(x + 1, state, w, b, "silu") + mine.sum()

    compiled = torch.compile(steps, fullgraph=True, backend="aot_eager")
    x, states = torch.randn(2, 3, device=device), [torch.zeros(2, 3, 3, device=device) for _ in range(2)]
    for _ in range(3):
        assert close(compiled(x, states[0]), steps(x, states[1]), ulps=2) is None
        assert torch.equal(*states)
    torch._dynamo.reset()


@each_device
def test_updates_under_vmap(device):
    """Each example's state is written. A state that all examples share is refused, because it cannot hold different values."""
    make = tensors.Maker(device, torch.float32)
    x, w = make(4, 2, 3), make(3, 3)
    states = torch.zeros(4, 2, 3, 2, device=device)
    got = torch.vmap(torch_ops.causal_conv1d_update, in_dims=(0, 0, None))(x, states, w)
    for k in range(4):
        alone = torch.zeros(2, 3, 2, device=device)
        assert close(got[k], torch_ops.causal_conv1d_update(x[k], alone, w)) is None and torch.equal(states[k], alone)
    shared = torch.zeros(2, 3, 2, device=device)
    assert isinstance(
        raised_by(torch.vmap(torch_ops.causal_conv1d_update, in_dims=(0, None, None)), x, shared, w), RuntimeError
    )
    assert not shared.any()
