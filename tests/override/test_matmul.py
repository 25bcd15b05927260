"""Dense products under torch_ops.override(matmul="3xtf32"). Without a GPU the kernels of the CPU are replaced, and ATen computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torch_ops

from ..support.overriding import counted, nothing_is_left, override  # noqa: F401
from ..support.params import each_device

pytestmark = pytest.mark.torch_version


def values(device, *shape, dtype=torch.float32):
    generator = torch.Generator(device).manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def near(device, ours, exact):
    """Within the roundings of sums of `k` products, in any order."""
    error = (ours.double() - exact).norm() / exact.norm()
    assert ours.shape == exact.shape and error < 2e-6, error


def products(device, size):
    """Calls that reach mm, addmm and bmm, with their operands."""
    a, b, bias = values(device, size, 2 * size), values(device, 2 * size, size), values(device, size)
    batch = values(device, 3, size, size)
    out = torch.empty(size, size, device=device)
    return {
        "mm": (torch.mm, (a, b), {}),
        "mm.out": (torch.mm, (a, b), {"out": out.clone()}),
        "a transposed operand": (torch.matmul, (b.t(), a.t()), {}),
        "addmm": (torch.addmm, (bias, a, b), {"beta": 0.5, "alpha": 2}),
        "addmm.out": (torch.addmm, (bias, a, b), {"out": out.clone()}),
        "bmm": (torch.bmm, (batch, batch), {}),
        "bmm.out": (torch.bmm, (batch, batch), {"out": torch.empty_like(batch)}),
        "linear": (F.linear, (a, b.t(), bias), {}),
    }


@each_device
def test_products_are_taken_on_request(device):
    for name, (function, operands, keywords) in products(device, 16 if device == "cpu" else 1024).items():
        exact = function(*(t.double() for t in operands), **{k: v for k, v in keywords.items() if k != "out"})
        with override(device, (), matmul="3xtf32"), counted() as calls:
            result = function(*operands, **keywords)
        assert calls["matmul"] == {"taken": 1}, name
        assert result is keywords.get("out", result), name
        near(device, result, exact)


@each_device
def test_products_are_left_alone_without_a_request(device):
    assert "matmul" not in torch_ops.override.operators
    a = values(device, 64, 64)
    with override(device), counted() as calls:
        a @ a
    assert "matmul" not in calls


@each_device
def test_declined_products(device):
    a = values(device, 16, 16)
    for left, right, reason in (
        (a.double(), a.double(), "dtype"),
        (a.bfloat16(), a.bfloat16(), "dtype"),
        (a[:, :0], a[:0], "unsupported"),
    ):
        with override(device, (), matmul="3xtf32"), counted() as calls:
            ours = left @ right
        assert calls["matmul"] == {reason: 1}
        assert torch.equal(ours, left @ right)


@each_device
def test_nan_in_an_addend_without_weight_is_not_read(device):
    size = 16 if device == "cpu" else 1024
    a, addend = values(device, size, size), torch.full((size, size), torch.nan, device=device)
    with override(device, (), matmul="3xtf32"):
        near(device, torch.addmm(addend, a, a, beta=0), a.double() @ a.double())


@each_device
def test_gradients_are_taken(device):
    """The gradients of mm are two products with transposed operands."""
    size = 16 if device == "cpu" else 1024
    a, b = (values(device, size, size).requires_grad_() for _ in range(2))
    exact = torch.autograd.grad((a.double() @ b.double()).square().sum(), (a, b))
    with override(device, (), matmul="3xtf32"), counted() as calls:
        ours = torch.autograd.grad((a @ b).square().sum(), (a, b))
    assert calls["matmul"] == {"taken": 3}
    for result, other in zip(ours, exact, strict=True):
        near(device, result, other.double())


def test_unknown_precisions():
    with pytest.raises(ValueError, match="expected '3xtf32' or None, got 'tf32'"):
        torch_ops.override(matmul="tf32")


@pytest.mark.gpu
def test_small_products_stay_with_cublas():
    a = values("cuda", 64, 64)
    with torch_ops.override((), matmul="3xtf32"), counted() as calls:
        ours = a @ a
    assert calls["matmul"] == {"aten_is_faster": 1}
    assert torch.equal(ours, a @ a)
