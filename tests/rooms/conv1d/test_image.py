"""gpuopt::_conv1d_image, the convolution of channels-last stacks: derivatives, transforms, autocast, compilation and strides."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.library import opcheck
from torch.nn import functional

from ...support.params import each_device

OP = torch.ops.gpuopt._conv1d_image.default
# (channels, output channels, taps), stride, padding, dilation, output_padding, groups, transposed.
CALLS = {
    "plain": ((4, 6, 3), (1, 1, 1, 0, 1, False)),
    "strided": ((4, 6, 4), (2, 3, 2, 0, 2, False)),
    "transposed": ((4, 6, 4), (3, 1, 1, 2, 2, True)),
}
each_call = pytest.mark.parametrize("name", CALLS)


def operands(name: str, device: str, dtype=torch.float64) -> list[torch.Tensor]:
    (channels, out, taps), (*_, groups, transposed) = CALLS[name]
    torch.manual_seed(0)
    shape = (channels, out // groups, taps) if transposed else (out, channels // groups, taps)
    made = torch.randn(2, channels, 11), torch.randn(shape), torch.randn(out)
    return [x.to(device, dtype).requires_grad_() for x in made]


def expected(name: str, signal, weight, bias) -> torch.Tensor:
    stride, padding, dilation, more, groups, transposed = CALLS[name][1]
    if transposed:
        return functional.conv_transpose1d(signal, weight, bias, stride, padding, more, groups, dilation)
    return functional.conv1d(signal, weight, bias, stride, padding, dilation, groups)


def image(name: str, signal, weight, bias) -> torch.Tensor:
    return OP(signal, weight, bias, *CALLS[name][1])


def last(signal: torch.Tensor) -> torch.Tensor:
    return signal.detach().mT.contiguous().mT.requires_grad_(signal.requires_grad)


@each_device
@each_call
@pytest.mark.parametrize("stored", [False, True])
def test_values_gradients_and_strides(name, stored, device):
    signal, weight, bias = operands(name, device)
    want = expected(name, signal, weight, bias)
    grad = torch.randn_like(want)
    gradients = torch.autograd.grad(want, (signal, weight, bias), grad)
    own_weight = last(weight) if stored else weight
    for own in (signal, last(signal)):
        got = image(name, own, own_weight, bias)
        torch.testing.assert_close(got, want)
        assert got.mT.is_contiguous() and not got.is_contiguous()
        for incoming in (grad, last(grad)):
            found = torch.autograd.grad(got, (own, own_weight, bias), incoming, retain_graph=True)
            torch.testing.assert_close(found, gradients)
            assert found[0].stride() == own.stride(), "the gradient has the layout of the signal"


@pytest.mark.gpu
@each_call
def test_the_gradient_of_a_stored_weight_has_its_strides(name):
    signal, weight, bias = operands(name, "cuda", torch.bfloat16)
    stored = last(weight)
    (found,) = torch.autograd.grad(image(name, last(signal), stored, bias).sum(), stored)
    assert found.stride() == stored.stride(), "autograd keeps such a gradient without a copy"


@each_device
@each_call
def test_derivatives(name, device):
    made = operands(name, device)
    made[0] = last(made[0])
    function = functools.partial(image, name)
    for given in (made, [*made[:2], None]):
        assert torch.autograd.gradcheck(function, given, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, given, check_batched_grad=True, fast_mode=True)


@each_device
@each_call
def test_one_node(name, device):
    signal, weight, bias = operands(name, device)
    assert image(name, last(signal), weight, bias).grad_fn.name() == "GpuoptConv1DImageBackward"
    weight.requires_grad_(False)
    (found,) = torch.autograd.grad(image(name, signal, weight, bias).sum(), bias)
    assert found.shape == bias.shape
    with torch.no_grad():
        assert image(name, signal, weight, bias).grad_fn is None


@each_device
@each_call
def test_transforms(name, device):
    signal, weight, bias = (x.detach() for x in operands(name, device))
    signals, weights = torch.stack([signal, 2 * signal, -signal]), torch.stack([weight, -weight, 3 * weight])
    own, theirs = (functools.partial(f, name) for f in (image, expected))
    for dims in ((0, None, None), (None, 0, None), (0, 0, None)):
        given = (signals if dims[0] == 0 else signal, weights if dims[1] == 0 else weight, bias)
        torch.testing.assert_close(torch.vmap(own, dims)(*given), torch.vmap(theirs, dims)(*given))

    def gradients(function):
        def squares(x, w):
            return function(x, w, bias).square().sum()

        return torch.vmap(torch.func.grad(squares, (0, 1)), (0, None))(signals, weight)

    torch.testing.assert_close(gradients(own), gradients(theirs))


@each_device
@each_call
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_and_exported(name, dynamic, device):
    made = operands(name, device, torch.float32)
    made[0] = last(made[0])
    want = image(name, *made)
    gradients = torch.autograd.grad(want.square().sum(), made)
    torch._dynamo.reset()
    function = functools.partial(image, name)
    got = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)(*made)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.square().sum(), made), gradients)

    class Module(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    exported = torch.export.export(Module(), tuple(x.detach() for x in made))
    torch.testing.assert_close(exported.module()(*made), want)


@each_device
@each_call
def test_opcheck(name, device):
    made = operands(name, device, torch.float32)
    opcheck(OP, (*made, *CALLS[name][1]))
    opcheck(OP, (*(x.detach() for x in made), *CALLS[name][1]))


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_and_autocast(dtype, device):
    signal, weight, bias = operands("plain", device, torch.float32)
    want = expected("plain", signal, weight, bias)
    got = image("plain", *(x.to(dtype) for x in (signal, weight, bias)))
    assert got.dtype is dtype
    torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=2e-2)
    got.sum().backward()
    assert weight.grad is not None and weight.grad.dtype is torch.float32
    with torch.autocast(device, dtype):
        lowered = image("plain", signal, weight, bias)
    assert lowered.dtype is dtype
    torch.testing.assert_close(lowered.float(), want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("wrong", [0, 1])
def test_dimensions(wrong):
    made = operands("plain", "cpu")
    made[wrong] = made[wrong][0]
    with pytest.raises(RuntimeError, match=r"_conv1d_image: signal and weight must have 3 dimensions"):
        image("plain", *made)
