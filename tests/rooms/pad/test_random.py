"""Padding of tensors of random sizes and layouts: results are ATen's bits, and gradients are exact."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

import torch_ops

from ...cases.tensors import Maker
from ...support.params import each_device
from ...support.random_layouts import layouts
from ...support.seeded import seeded

DTYPES = (torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128)
SIZES = st.one_of(st.integers(2, 9), st.sampled_from([15, 16, 17, 33, 64, 129, 1000]))


@st.composite
def problems(draw):
    mode = draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
    pairs = draw(st.integers(1, 3))
    batch = draw(st.integers(1, 2))
    shape = [draw(st.integers(1, 3)) for _ in range(batch)] + [draw(SIZES) for _ in range(pairs)]
    while torch.Size(shape).numel() > 100_000:
        shape[shape.index(max(shape))] //= 2
    pad = []
    for size in shape[: -pairs - 1 : -1]:
        most = {"reflect": size - 1, "circular": size - 2 * (size // 3)}.get(
            mode, 40
        )  # crops come before circular borders
        pad += [draw(st.integers(-(size // 3), min(most, 40))) for _ in range(2)]
    dtype = draw(st.sampled_from(DTYPES))
    return shape, draw(layouts(len(shape))), dtype, pad, mode


def real(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t) if t.is_complex() else t


@each_device
def test_random_problems(device):
    @seeded(200 if device == "cpu" else 800)
    @given(problems())
    def check(problem):
        shape, layout, dtype, pad, mode = problem
        x = layout.tensor(Maker(device, dtype), shape)
        got = torch_ops.pad(x, pad, mode)
        # ATen on the CPU is the reference for the values of cropped borders, too.
        assert torch.equal(real(got.cpu()), real(F.pad(x.cpu(), pad, mode)))
        if not dtype.is_floating_point:
            return
        leaf, exact = x.detach().requires_grad_(), x.detach().cpu().double().requires_grad_()
        weight = torch.randint(-4, 5, got.shape).double()
        (gradient,) = torch.autograd.grad(torch_ops.pad(leaf, pad, mode), leaf, weight.to(device, dtype))
        (want,) = torch.autograd.grad(F.pad(exact, pad, mode), exact, weight)
        assert torch.equal(gradient.cpu().double(), want.to(dtype).double())

    check()
