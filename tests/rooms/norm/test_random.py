"""Random shapes, dtypes, layouts and weights, forward and backward, compared with the definition in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st

import torch_ops

from ...cases.norm import compute_type, normal
from ...cases.tensors import FLOATS
from ...support.compare import different_bits
from ...support.params import each_device
from ...support.seeded import seeded

LENGTHS = (1, 2, 3, 4, 7, 8, 16, 24, 31, 32, 33, 48, 64, 96, 100, 127, 128, 192, 197, 256, 384, 512, 513, 768, 1000, 1024, 1025, 2048,
           2050, 3072, 4096, 5120, 8192, 12288, 16384, 20000, 33000)  # fmt: skip
LAYOUTS = ("dense", "dense", "pitched", "aligned pitch", "misaligned", "transposed", "every second", "expanded")


@dataclass
class Problem:
    dtype: torch.dtype
    outer: int
    rows: int
    length: int
    layout: str
    grad_layout: str
    is_rms: bool
    weights: str
    mean: float
    seed: int

    def laid_out(self, values: torch.Tensor, layout: str, device: str) -> torch.Tensor:
        """The values in memory. What lies between them is NaN."""
        outer, rows, length = values.shape
        pitch = {"pitched": 3, "aligned pitch": 16}.get(layout, 0)
        every, begin = (2 if layout == "every second" else 1), int(layout == "misaligned")
        values = values.to(self.dtype)
        if layout == "transposed":
            return values.to(device).transpose(0, 1).contiguous().transpose(0, 1)
        if layout == "expanded":
            return values[:, :1].to(device).expand(values.shape)
        wide = [outer, rows * every, length + pitch]
        memory = torch.full((begin + math.prod(wide),), math.nan, dtype=self.dtype, device=device)
        return memory[begin:].view(wide)[:, ::every, :length].copy_(values)


@st.composite
def problems(draw, most: int) -> Problem:
    length = draw(st.one_of(st.sampled_from(LENGTHS), st.integers(1, 5000)))
    rows = max(1, min(draw(st.sampled_from((1, 2, 5, 33, 200, 3000, 70_000))), most // length))
    outer = draw(st.sampled_from((1, 1, 2, 3))) if rows > 2 else 1
    return Problem(
        draw(st.sampled_from(FLOATS)), outer, max(rows // outer, 1), length, draw(st.sampled_from(LAYOUTS)),
        draw(st.sampled_from(LAYOUTS)), draw(st.booleans()), draw(st.sampled_from(("both", "weight", "bias", "none", "wide"))),
        draw(st.sampled_from((0.0, 0.0, 2.0))), draw(st.integers(0, 2**31)),
    )  # fmt: skip


def check_near(name: str, got: torch.Tensor, want: torch.Tensor, sizes: torch.Tensor, rounding: float) -> None:
    """A rounding to the dtype, and roundings of what is added."""
    info = torch.finfo(got.dtype)
    bound = info.eps * want.abs() + rounding * sizes + info.smallest_normal
    error = (got.double() - want).abs()
    assert bool((error <= bound).all()), f"{name}: {float((error / bound).max())} of the bound"


def check(problem: Problem, device: str) -> None:
    generator = torch.Generator().manual_seed(problem.seed)
    length, shape = problem.length, (problem.outer, problem.rows, problem.length)

    def drawn(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=generator)

    x = problem.laid_out(drawn(*shape) + problem.mean, problem.layout, device)
    grad = problem.laid_out(drawn(*shape), problem.grad_layout, device)
    is_half = problem.dtype in (torch.float16, torch.bfloat16)
    kind = torch.float32 if problem.weights == "wide" and is_half else problem.dtype
    weight = drawn(length).to(kind).to(device) if problem.weights in ("both", "weight", "wide") else None
    bias = drawn(length).to(kind).to(device) if problem.weights in ("both", "bias", "wide") else None

    def run() -> tuple[torch.Tensor, ...]:
        inputs = [t.detach().requires_grad_() for t in (x, weight, None if problem.is_rms else bias) if t is not None]
        parameters = iter(inputs[1:])
        w = next(parameters) if weight is not None else None
        if problem.is_rms:
            out = torch_ops.rms_norm(inputs[0], length, w, 1e-5)
        else:
            out = torch_ops.layer_norm(inputs[0], length, w, next(parameters) if bias is not None else None)
        return out, *torch.autograd.grad(out, inputs, grad)

    out, *grads = run()
    for first, second in zip((out, *grads), run(), strict=True):
        assert different_bits(first, second) is None
    assert out.is_contiguous() and out.dtype == problem.dtype and out.shape == shape
    rounding = torch.finfo(compute_type(problem.dtype)).eps
    values, _, rstd = normal(x.double(), 1, 1e-5, problem.is_rms)
    w, b = (1.0 if weight is None else weight.double()), (0.0 if bias is None or problem.is_rms else bias.double())
    shift = 4 * x.double().abs().amax(-1, keepdim=True) * rstd + 20
    sizes = (values.abs() * 10 + shift) * abs(w) + abs(b)
    check_near("out", out, values * w + b, sizes, rounding)
    g, changed = grad.double(), values.abs() + shift
    scaled = g * w
    inner = scaled - values * (scaled * values).mean(-1, keepdim=True)
    inner = inner if problem.is_rms else inner - scaled.mean(-1, keepdim=True)
    sizes = (
        scaled.abs() + scaled.abs().mean(-1, keepdim=True) + changed * (scaled.abs() * changed).mean(-1, keepdim=True)
    )
    check_near("gradient", grads[0], rstd * inner, 8 * rstd * sizes, rounding)
    of_parameters = grads[1:]
    if weight is not None:
        check_near("weight", of_parameters[0], (g * values).sum((0, 1)), 8 * (g.abs() * changed).sum((0, 1)), rounding)
        of_parameters = of_parameters[1:]
    if of_parameters:
        check_near("bias", of_parameters[0], g.sum((0, 1)), 8 * g.abs().sum((0, 1)), rounding)


@each_device
def test_norms(device):
    @seeded(60 if device == "cpu" else 400)
    @given(problems(60_000 if device == "cpu" else 4_000_000))
    def run(problem):
        check(problem, device)

    run()
