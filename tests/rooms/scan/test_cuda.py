"""Scans on a GPU: accuracy of long sums, overlapping calls give the same bits, and sums of more than 2^31 values."""

from __future__ import annotations

import functools
import math

import pytest
import torch

import torch_ops
from benchmarks.references import recurrence
from benchmarks.references.scan import reference

from ...cases import recurrence as cases
from ...cases.scan import bound
from ...support.compare import different_from_reference
from ...support.large import PAST, check, filled, ramp, ramp_total
from ...support.overlap import Calls
from ...support.runtime import run_python

pytestmark = pytest.mark.gpu


def _make(*shape, dtype=torch.float32, seed=3, uniform=False):
    generator = torch.Generator("cuda").manual_seed(seed)
    draw = torch.rand if uniform else torch.randn
    return draw(shape, generator=generator, device="cuda").to(dtype)


def _factors(*shape, dtype=torch.float32):
    """Factors near 1, so that values reach far."""
    size = 1 - _make(*shape, dtype=dtype.to_real() if dtype.is_complex else dtype, seed=5, uniform=True) / 64
    return torch.polar(size, size * 100) if dtype.is_complex else size


# ---------------------------------------------------------------- accuracy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("uniform", [False, True], ids=["normal", "uniform"])
@pytest.mark.parametrize(
    "shape, dim",
    [
        ((2**26,), 0), ((64, 2**20), 1), ((2**20, 64), 0), ((2**13, 2**13), 0), ((2**13, 2**13), 1),
        ((16, 2**12, 2**10), 1),
    ],
    ids=str,
)  # fmt: skip
def test_accuracy(dtype, uniform, shape, dim):
    x = _make(*shape, dtype=dtype, uniform=uniform)
    exact = reference(x, dim, dtype=torch.float64)
    got, want = (op(x, dim, dtype=torch.float32) for op in (torch_ops.cumsum, torch.cumsum))
    assert different_from_reference(got, exact, bound("cuda", torch.float32, exact, x, dim)) is None
    ours, theirs = (float((t - exact).abs().mean()) for t in (got, want))
    ulp = float(exact.abs().mean()) * torch.finfo(torch.float32).eps
    assert ours <= theirs + ulp, f"mean error {ours}, ATen's is {theirs}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize(
    "shape, dim", [((2**22,), 0), ((64, 2**16), 1), ((2**16, 64), 0), ((16, 2**12, 64), 1)], ids=str
)
def test_accuracy_of_recurrences(dtype, shape, dim):
    """Plain and shifted, in both directions, against doubling in float64."""
    args = (_factors(*shape, dtype=dtype), _make(*shape, dtype=dtype), dim)
    for way in cases.WAYS:
        exact = recurrence.reference(*args, **way)
        got = torch_ops.linear_recurrence(*args, **way)
        limit = cases.bound("cuda", dtype, exact, *args, **way)
        assert different_from_reference(got, exact, limit) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_factor_for_each_row_that_begins_inside_a_vector(dtype):
    args = (_factors(3, 1, dtype=dtype).expand(3, 100_003), _make(3, 100_003, dtype=dtype), 1)
    for way in cases.WAYS:
        exact = recurrence.reference(*args, **way)
        got = torch_ops.linear_recurrence(*args, **way)
        limit = cases.bound("cuda", dtype, exact, *args, **way)
        assert different_from_reference(got, exact, limit) is None


# ---------------------------------------------------------------- calls for ../test_overlap.py


@functools.cache
def overlapping() -> Calls:
    """Scans on every path as functions without arguments."""
    calls = {}
    for name, x, dim in (
        ("2^24", _make(2**24), 0),
        ("2^24 bf16", _make(2**24, dtype=torch.bfloat16), 0),
        ("2^20 + 13", _make(2**20 + 13), 0),
        ("2^21 f64", _make(2**21, dtype=torch.float64), 0),
        ("2^21 complex", _make(2**21, dtype=torch.complex64), 0),
        ("rows (3, 1000003)", _make(3, 1_000_003), 1),
        ("rows (4099, 513)", _make(4099, 513), 1),
        ("rows (70001, 5)", _make(70_001, 5), 1),
        ("columns (1000003, 3)", _make(1_000_003, 3), 0),
        ("columns (513, 4099)", _make(513, 4099), 0),
        ("columns bf16 (100003, 64)", _make(100_003, 64, dtype=torch.bfloat16), 0),
        ("middle", _make(64, 1000, 33), 1),
        ("transposed", _make(2000, 3000).mT, 0),
    ):
        calls[name] = functools.partial(torch_ops.cumsum, x, dim)
        calls[f"{name}, reverse"] = functools.partial(torch_ops.cumsum, x, dim, reverse=True, exclusive=True)
    for name, shape, dim, dtype in (
        ("2^22 f32", (2**22,), 0, torch.float32),
        ("2^21 bf16", (2**21,), 0, torch.bfloat16),
        ("2^20 complex", (2**20,), 0, torch.complex64),
        ("rows (3, 300003)", (3, 300_003), 1, torch.float32),
        ("rows (4099, 513)", (4099, 513), 1, torch.float32),
        ("columns (300003, 3)", (300_003, 3), 0, torch.float32),
        ("columns f64 (40003, 64)", (40_003, 64), 0, torch.float64),
        ("middle", (16, 1000, 33), 1, torch.float32),
    ):
        for shifted in (False, True):
            factors = _factors(*shape, dtype=dtype)
            call = functools.partial(torch_ops.linear_recurrence, factors, _make(*shape, dtype=dtype), dim)
            calls[f"recurrence {name}, {shifted}"] = functools.partial(call, shifted=shifted, reverse=shifted)
    return Calls(calls)


def test_layouts_give_the_same_bits():
    """The same values at the same strides, wherever they lie in a larger tensor."""
    x = _make(64, 2**18)
    want = torch_ops.cumsum(x, 1)
    wide = torch.empty(64, 2**18 + 64, device="cuda")
    wide[:, :-64] = x
    assert torch.equal(torch_ops.cumsum(wide[:, :-64], 1), want)


# ---------------------------------------------------------------- more than 2^31 values


@pytest.mark.large
@pytest.mark.gib(24)
def test_a_long_vector():
    x = filled(PAST, ramp)
    check(torch_ops.cumsum(x, 0), lambda i: ramp_total(i + 1))


@pytest.mark.large
@pytest.mark.gib(6)
@pytest.mark.parametrize("columns", [3, 128])
def test_long_columns(columns):
    """Values of each column count its rows, modulo 256."""
    rows = PAST // columns
    x = torch.ones(rows, columns, dtype=torch.uint8, device="cuda")
    got = torch_ops.cumsum(x, 0, dtype=torch.uint8)
    check(got.view(-1), lambda i: (i // columns + 1) % 256)


@pytest.mark.large
@pytest.mark.gib(6)
def test_many_short_rows():
    x = torch.ones(PAST // 3, 3, dtype=torch.uint8, device="cuda")
    check(torch_ops.cumsum(x, 1, dtype=torch.uint8).view(-1), lambda i: i % 3 + 1)


@pytest.mark.large
@pytest.mark.gib(24)
def test_a_long_recurrence():
    """Factors of -1: the results alternate between 1 and 0."""
    b = torch.ones(PAST, dtype=torch.float16, device="cuda")
    factor = torch.full((1,), -1.0, dtype=torch.float16, device="cuda")
    check(torch_ops.linear_recurrence(factor, b, 0), lambda i: 1 - i % 2)


@pytest.mark.parametrize("n", [2**10, 2**13])
def test_small_problems_are_one_launch(n):
    x = _make(n)
    torch_ops.cumsum(x, 0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch_ops.cumsum(x, 0)
        torch.cuda.synchronize()
    assert sum(event.count for event in profile.key_averages() if event.device_type.name == "CUDA") == 1
    assert math.isfinite(float(x[0]))


# ---------------------------------------------------------------- shared memory


@pytest.mark.parametrize("rows", [32, 96, 128, 300])
def test_first_call_of_a_process(rows):
    """The columns of half-type recurrences declare 36 KB of shared memory, and are launched with up to 16 KB more without staging
    twice. Any earlier call that asked for more would let a launch pass that has not asked, hence the process of its own."""
    code = f"""
import torch, torch_ops
a, b = torch.full((2, {rows}, 512), 0.5, device="cuda", dtype=torch.bfloat16).unbind()
h = torch_ops.linear_recurrence(a, b, dim=0)
assert torch.equal(h, (1 - 0.5 ** torch.arange(1, {rows} + 1, device="cuda")).bfloat16()[:, None].expand_as(h)), h[:, 0]
"""
    run_python(code, timeout=120)
