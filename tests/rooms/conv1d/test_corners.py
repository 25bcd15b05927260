"""Corner cases of convolutions in which PyTorch itself is inconsistent: ambiguous strides, operators inside transforms and
autocast, complex activations, no channels."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, jvp, vmap
from torch.nn import functional

import torch_ops

from ...cases.conv1d import ACTIVATIONS as OF_OPERATORS
from ...support.compare import Failures, close, different_bits
from ...support.params import each_device
from ...support.runtime import run_python

ACTIVATIONS = {None if word == "none" else word: function for word, function in OF_OPERATORS.items()}

pytestmark = pytest.mark.torch_version


def _strided(shape: tuple[int, ...], order: tuple[int, ...], dtype, device: str) -> torch.Tensor:
    """A random tensor whose dimensions lie in memory in this order."""
    position = [order.index(d) for d in range(len(order))]
    return torch.randn([shape[d] for d in order], dtype=dtype, device=device).permute(position)


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_any_memory_order(dtype, device):
    """Gradients for every memory order. With one signal, one tap or one channel, the stride of that dimension is arbitrary."""
    failures = Failures()
    sizes = itertools.product((None, 1, 2), (1, 2), (1, 3), (1, 2))
    for (batch, groups, channels, taps), order in itertools.product(sizes, itertools.permutations(range(3))):
        name = f"N {batch}, {groups} groups of {channels}, {taps} taps, weight {order}"
        torch.manual_seed(1)
        weight = _strided((4, channels, taps), order, dtype, device).requires_grad_()
        signal = _strided((batch or 1, groups * channels, 9), (0, 2, 1), dtype, device)
        signal = (signal if batch else signal[0]).requires_grad_()
        plain = [t.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for t in (signal, weight)]
        with failures.sample(name), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            ours = torch_ops.conv1d(signal, weight, padding=1, groups=groups)
            want = torch.conv1d(*plain, padding=1, groups=groups)
            failures.add(name, close(ours, want))
            got = torch.autograd.grad(ours.square().sum(), (signal, weight))
            for g, w in zip(got, torch.autograd.grad(want.square().sum(), plain)):
                failures.add(name, close(g, w, ulps=32))
    failures.check(at_least=100)


@each_device
def test_a_signal_without_values_is_contiguous(device):
    x, w = torch.zeros(0, 4, 0, device=device), torch.zeros(6, 4, 2, device=device)
    assert torch_ops.conv1d(x, w, padding=2).stride() == torch.conv1d(x, w, padding=2).stride() == (18, 3, 1)


@each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dilation", [1, 16])
def test_one_tap_of_any_dilation(dtype, dilation, device):
    """With one tap, the dilation must have no effect. cuDNN gets that wrong for such signals if the dilation is passed to it."""
    x, w = torch.randn(1251, 1, 31, dtype=dtype, device=device), torch.randn(8, 1, 1, dtype=dtype, device=device)
    x.requires_grad_(), w.requires_grad_()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        y = torch_ops.conv1d(x, w, dilation=dilation)
        gradients = torch.autograd.grad(y.sum(), (x, w))
    want = x.double() * w.double()[:, 0]
    assert close(y, want.to(dtype)) is None
    for got, exact in zip(gradients, torch.autograd.grad(want.sum(), (x, w))):
        assert close(got, exact, ulps=64) is None


# ---------------------------------------------------------------- no channels


@each_device
def test_the_bias_where_there_are_no_channels(device):
    """Without channels, the gradient of the bias is 0, in any order and mode, as ATen's."""
    x, w = torch.zeros(2, 0, 5, device=device), torch.zeros(3, 0, 2, device=device)
    bias = torch.ones(3, device=device, requires_grad=True)
    y = torch_ops.conv1d(x, w, bias)
    into = torch.zeros_like(y, requires_grad=True)
    (first,) = torch.autograd.grad(y, bias, into, create_graph=True)
    assert first.shape == (3,) and not first.any()
    assert torch.autograd.grad(first.sum(), into)[0].shape == y.shape
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(torch_ops.conv1d(x, w, forward_ad.make_dual(bias, bias))).tangent
    assert tangent.shape == y.shape
    results = torch_ops.conv1d_backward(into, x, w.requires_grad_(), output_mask=(False, False, True))
    assert torch.autograd.grad(results[2].sum(), into)[0].shape == y.shape


@each_device
@pytest.mark.parametrize("layout", ["rows", "channels last", "no batch"])
def test_transposed_without_output_channels(device, layout):
    """The result has no channels. The gradients of input and weight are 0, in any order and mode, as ATen's on CUDA."""
    x, w = torch.ones(2, 4, 9, device=device), torch.ones(4, 0, 3, device=device, requires_grad=True)
    if layout == "channels last":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    x, bias = (x[0] if layout == "no batch" else x).requires_grad_(), torch.ones(0, device=device, requires_grad=True)

    def run(x, w, bias):
        return torch_ops.conv_transpose1d(x, w, bias, stride=2, output_padding=1, groups=2)

    y = run(x, w, bias)
    assert y.shape == (*x.shape[:-2], 0, 20) and y.shape == run(*(t.to("meta") for t in (x, w, bias))).shape
    into = torch.zeros_like(y, requires_grad=True)
    gradients = torch.autograd.grad(y, (x, w, bias), into, create_graph=True)
    for gradient, of in zip(gradients, (x, w, bias), strict=True):
        assert gradient.shape == of.shape and not gradient.any()
        assert torch.autograd.grad(gradient.sum(), into, retain_graph=True)[0].shape == y.shape
    with forward_ad.dual_level():
        duals = (forward_ad.make_dual(t.detach(), torch.ones_like(t)) for t in (x, w, bias))
        assert forward_ad.unpack_dual(run(*duals)).tangent.shape == y.shape
    for dims in ((0, None, None), (None, 0, None), (0, 0, 0)):
        batched = [
            t.detach() if dim is None else torch.stack([t.detach()] * 3)
            for t, dim in zip((x, w, bias), dims, strict=True)
        ]
        assert torch.vmap(run, dims)(*batched).shape == (3, *y.shape)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8], ids=str)
def test_the_bias_gradient_of_integers(dtype):
    """The gradient of the bias is an integer tensor of the same dtype, as with ATen and the Meta kernel."""
    ones = torch.ones(1, 1, 300, dtype=dtype)
    got = torch_ops.conv1d_backward(ones, ones, ones[..., :1], output_mask=(False, False, True))[2]
    want = torch.ops.aten.convolution_backward(
        ones, ones, ones[..., :1], [1], [1], [0], [1], False, [0], 1, (False, False, True)
    )[2]
    assert got.dtype == want.dtype == dtype and torch.equal(got, want)


# ---------------------------------------------------------------- activations of complex numbers


@each_device
def test_complex_silu_is_differentiable(device):
    x, w = (torch.randn(s, dtype=torch.complex128, device=device, requires_grad=True) for s in ((2, 2, 5), (3, 2, 2)))

    def run(x, w):
        return torch_ops.conv1d_act(x, w, activation="silu")

    assert gradcheck(run, (x, w), check_forward_ad=True) and gradgradcheck(run, (x, w))


@each_device
@pytest.mark.parametrize("activation", [None, "relu", "silu", "gelu"])
def test_forward_over_a_backward_without_a_graph(device, activation):
    """Forward mode over a first gradient computes a Hessian-vector product."""
    x, w, v = (torch.randn(s, dtype=torch.float64, device=device) for s in ((2, 2, 9), (2, 2, 3), (2, 2, 9)))

    def loss(x):
        return torch_ops.conv1d_act(x, w, activation=activation).square().sum()

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.requires_grad_(), v)
        (gradient,) = torch.autograd.grad(loss(dual), dual)
        tangent = forward_ad.unpack_dual(gradient).tangent
    want = torch.autograd.functional.hvp(loss, x.detach(), v)[1]
    torch.testing.assert_close(tangent, want)


# ---------------------------------------------------------------- autocast


@each_device
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_backward_inside_of_autocast(activation, device):
    """A backward inside an autocast region computes in the forward's dtype, if the forward ran outside the region."""
    x, w, b = (torch.randn(s, device=device, requires_grad=True) for s in ((2, 8, 30), (8, 2, 3), 8))

    def gradients(inside: bool) -> list[torch.Tensor]:
        y = torch_ops.conv1d_act(x, w, b, groups=4, activation=activation)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=inside):
            first = torch.autograd.grad(y.square().sum(), (x, w, b), create_graph=True)
            return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), (x, w, b))]

    for got, expected in zip(gradients(inside=True), gradients(inside=False)):
        assert got.dtype == torch.float32 and close(got, expected, ulps=32) is None


@each_device
@pytest.mark.parametrize("name", ["conv1d", "same", "conv1d_act", "causal_conv1d", "causal_conv1d_update"])
def test_vmap_inside_of_autocast(name, device):
    """vmap inside autocast computes in the lower precision, for all in_dims and dtypes of the operands."""
    low = torch.bfloat16
    w, taps = torch.randn(8, 2, 2, device=device), torch.randn(8, 4, device=device)
    b, x, states = (torch.randn(s, device=device) for s in ((3, 8), (3, 2, 8, 20), (3, 2, 8, 4)))
    run = {
        "conv1d": lambda x, b, s: torch_ops.conv1d(x, w, b, groups=4),
        "same": lambda x, b, s: torch_ops.conv1d(x, w, b, padding="same", groups=4),
        "conv1d_act": lambda x, b, s: torch_ops.conv1d_act(x, w, b, groups=4, activation="silu"),
        "causal_conv1d": lambda x, b, s: torch_ops.causal_conv1d(x, taps, b),
        "causal_conv1d_update": lambda x, b, s: torch_ops.causal_conv1d_update(x[..., 0], s.clone(), taps, b),
    }[name]
    for bias, of_bias in ((b, 0), (b[0], None)):
        for cast in (torch.float32, low):
            args = (x.to(cast), bias, states.to(low))
            with torch.autocast(device, dtype=low):
                got = vmap(run, in_dims=(0, of_bias, 0))(*args)
                want = torch.stack([run(args[0][i], bias[i] if of_bias == 0 else bias, args[2][i]) for i in range(3)])
            assert got.dtype == want.dtype == low
            assert close(got, want, ulps=4) is None


@each_device
def test_updates_inside_of_autocast_need_a_floating_state(device):
    x, w = torch.randn(2, 4, device=device), torch.randn(4, 3, device=device)
    state = torch.zeros(2, 4, 3, dtype=torch.int64, device=device)
    with (
        torch.autocast(device, dtype=torch.bfloat16),
        pytest.raises(RuntimeError, match="state must have input's dtype"),
    ):
        torch_ops.causal_conv1d_update(x, state, w)
    assert not state.any()


# ---------------------------------------------------------------- causal_conv1d_update


@each_device
def test_updates_of_conjugated_and_negated_states(device):
    w, x = (torch.randn(s, dtype=torch.complex64, device=device) for s in ((4, 3), (2, 4)))
    zeros = torch.zeros(2, 4, 3, dtype=torch.complex64, device=device)
    views = {
        "conjugated": lambda t: t.conj(),
        "negated": torch._neg_view,
        "imaginary": lambda t: t.conj().imag,
        "plain": lambda t: t.real,
    }
    for name, view in views.items():
        state, plain = view(zeros.clone()), view(zeros).clone()
        values, taps = (x, w) if state.is_complex() else (view(x), view(w))
        with torch.no_grad():
            for _ in range(2):
                got = torch_ops.causal_conv1d_update(values, state, taps)
                want = torch_ops.causal_conv1d_update(values.clone(), plain, taps.clone())
                assert close(got, want) is None, name
        assert torch.equal(state, plain), name


@each_device
def test_updates_whose_input_lies_in_the_state(device):
    state, w = torch.randn(3, 40, 4, device=device), torch.randn(40, 3, device=device)
    want_state = state.clone()
    want = torch_ops.causal_conv1d_update(state[:, :, 1].clone(), want_state, w)
    got = torch_ops.causal_conv1d_update(state[:, :, 1], state, w)
    assert torch.equal(got, want) and torch.equal(state, want_state)


@each_device
def test_transforms_refuse_a_captured_state(device):
    """A transform would not see the write to a captured state. torch.func refuses ATen's in-place operators for the same reason."""
    state, w, x = torch.zeros(2, 4, 3, device=device), torch.ones(4, 3, device=device), torch.ones(2, 4, device=device)

    def steps(x, state=state):
        return sum(torch_ops.causal_conv1d_update(k * x, state, w).sum() for k in (1, 2))

    refused = pytest.raises(RuntimeError, match="state must not be captured")
    for run in (lambda: grad(steps)(x), lambda: jvp(steps, (x,), (x,)), lambda: vmap(grad(steps))(x[None])):
        with refused:
            run()
    assert not state.any()
    for made in (lambda x: steps(x, x.new_zeros(2, 4, 3)), lambda x: steps(x, torch.zeros_like(state))):
        assert torch.equal(grad(made)(x), torch.full_like(x, 4.0))
    assert torch.equal(grad(steps)(x, state.clone()), torch.full_like(x, 4.0))


# ---------------------------------------------------------------- refusals


@each_device
def test_refusals_name_the_argument(device):
    x, w = torch.ones(1, 2, 5, device=device), torch.ones(1, 2, 2, device=device)
    float8 = torch.ones(5, device=device).to(torch.float8_e4m3fn)
    expanded = torch.zeros(1, 3, 1, device=device).expand(1, 3, 4)
    depthwise = torch.ones(3, 3, device=device, requires_grad=True)
    for error, message, call in (
        (RuntimeError, "conv1d: input's dtype is not implemented.*got Bool", lambda: torch_ops.conv1d(x.bool(), w.bool())),
        (RuntimeError, "weight must have taps", lambda: torch_ops.conv1d(x, w[..., :0], padding="same")),
        (RuntimeError, "input must be a tensor, got None", lambda: torch.ops.gpuopt.conv1d.default(None, w)),
        (NotImplementedError, "the dtype of a and v is not implemented.*Float8", lambda: torch_ops.convolve(float8, float8)),
        (
            RuntimeError,
            "state must have every element at its own address",
            lambda: torch_ops.causal_conv1d_update(x[..., :3][:, 0], expanded, depthwise),
        ),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()


HUGE = 2**63 - 1


@each_device
@pytest.mark.parametrize("meta", [False, True], ids=["", "meta"])
def test_sizes_that_overflow_are_refused(device, meta):
    """ATen returns a result of a wrong size for the first."""
    x, w = (torch.ones(1, 1, n, device="meta" if meta else device) for n in (8, 3))
    for message, call in (
        ("taps that span less than 2\\^63", lambda: torch_ops.conv1d(x, w, dilation=HUGE)),
        ("taps that span less than 2\\^63", lambda: torch_ops.conv1d(x, w, padding="same", dilation=HUGE)),
        ("padding is too large", lambda: torch_ops.conv1d(x, w, padding=HUGE)),
        ("padding is too large", lambda: torch_ops.conv1d_act(x, w, padding=(HUGE, HUGE))),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


@each_device
def test_strides_and_dilations_without_effect_may_be_huge(device):
    x, w = torch.randn(2, 3, 8, device=device), torch.randn(4, 3, 3, device=device)
    grad = torch.randn(2, 4, 1, device=device)
    assert close(torch_ops.conv1d(x, w, stride=2**62), torch_ops.conv1d(x, w, stride=6)) is None
    one_tap = w[..., :1]
    assert close(torch_ops.conv1d(x, one_tap, dilation=HUGE), torch_ops.conv1d(x, one_tap)) is None
    for got, want in zip(torch_ops.conv1d_backward(grad, x, w, 2**62), torch_ops.conv1d_backward(grad, x, w, 6)):
        assert close(got, want) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("shape", "taps"), [((3, 174, 4), 33), ((2, 60, 12), 16)], ids=str)
def test_channels_last_half_types_on_the_cpu_return(shape, taps, dtype):
    """oneDNN never returned: from bfloat16 images on CPUs with AVX512-BF16, and from float16 signals on CPUs with AVX-512."""
    code = f"""
import torch, torch_ops
x = torch.randn{shape}.to(torch.{dtype}).transpose(1, 2).requires_grad_()
w = torch.randn({shape[2]}, 1, {taps}).to(torch.{dtype}).requires_grad_()
for operands in ((x, w), (x[0], w)):
    y = torch_ops.conv1d(*operands, None, 1, {taps // 2}, 1, {shape[2]})
    for gradient in (torch.ones_like(y), y.detach()):
        torch.autograd.grad(y, (x, w), gradient, retain_graph=True)
"""
    run_python(code, timeout=120)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("groups", [1, 12])
def test_float16_on_the_cpu_is_computed_in_float32(groups, channels_last):
    """Each result is float32's, rounded once. Some of ATen's float16 kernels never return, so none is called."""
    x = torch.randn(2, 60, 12).half().mT if channels_last else torch.randn(2, 12, 60).half()
    w, b, grad = torch.randn(12, 12 // groups, 16).half(), torch.randn(12).half(), torch.randn(2, 12, 47).half()
    got = (
        torch_ops.conv1d(x, w, b, padding=1, groups=groups),
        *torch_ops.conv1d_backward(grad, x, w, padding=1, groups=groups)[:2],
    )
    x, w, b, grad = x.float(), w.float(), b.float(), grad.float()
    wanted = (
        torch_ops.conv1d(x, w, b, padding=1, groups=groups),
        *torch_ops.conv1d_backward(grad, x, w, padding=1, groups=groups)[:2],
    )
    for half, single in zip(got, wanted, strict=True):
        assert torch.equal(half, single.half()) and half.stride() == single.stride()
    z, v = (torch.complex(t, t.flip(-1)).to(torch.complex32) for t in (x, w))
    whole = torch_ops.conv1d(z.to(torch.complex64), v.to(torch.complex64), groups=groups)
    assert different_bits(torch_ops.conv1d(z, v, groups=groups), whole.to(torch.complex32)) is None


# ---------------------------------------------------------------- export and torch.func


def test_export_of_convolve_with_a_dynamic_kernel():
    class Smooth(torch.nn.Module):
        def forward(self, a, v):
            return torch_ops.convolve(a, v, "same")

    sizes = ({0: torch.export.Dim("m", min=50, max=4000)}, {0: torch.export.Dim("k", min=2, max=40)})
    exported = torch.export.export(Smooth(), (torch.randn(300), torch.randn(7)), dynamic_shapes=sizes)
    for m, k in ((300, 7), (64, 8), (4000, 2)):
        a, v = torch.randn(m), torch.randn(k)
        assert close(exported.module()(a, v), torch_ops.convolve(a, v, "same")) is None


def test_module_with_other_parameters():
    """torch.func.functional_call calls the module with other parameters."""
    module, x = torch_ops.nn.Conv1d(4, 6, 3), torch.randn(2, 4, 9)
    values = {name: torch.randn_like(p) for name, p in module.named_parameters()}
    got = torch.func.functional_call(module, values, (x,))
    assert close(got, functional.conv1d(x, values["weight"], values["bias"])) is None
