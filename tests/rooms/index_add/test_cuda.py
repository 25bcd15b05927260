"""index_add on a GPU: overlapping calls give the same bits, accuracy of large calls, memory, and indices out of range."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys

import pytest
import torch

import torch_ops
from benchmarks.references.dtypes import real_of

from ...cases import Sample
from ...cases.index_add import CASES, index_add_bound, index_add_reference, scratch
from ...cases.samples.index_add_samples import MODES, indices
from ...support.compare import Failures, different_bits, different_from_reference
from ...support.overlap import Calls
from ...support.runtime import captured, deterministic_algorithms, no_waiting, peak

pytestmark = pytest.mark.gpu
(CASE,) = CASES
each_mode = pytest.mark.parametrize("mode", MODES)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.complex64)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

# Shape of self, dim and number of indices: single values and short rows, rows for which sorting is faster, few bins, strided rows.
REGIMES = {
    "single values": ((100_000,), 0, 300_000), "rows of 2": ((50_000, 2), 0, 200_000), "rows of 3": ((50_000, 3), 0, 150_001),
    "rows of 8": ((10_000, 8), 0, 100_000), "rows of 33": ((10_000, 33), 0, 40_000), "rows of 64": ((20_000, 64), 0, 110_000),
    "rows of 256": ((5000, 256), 0, 60_000), "rows of 1000": ((300, 1000), 0, 15_001), "few bins": ((16,), 0, 1_000_003),
    "few bins, rows of 3": ((100, 3), 0, 300_000), "few bins, rows of 128": ((5, 128), 0, 60_000), "last dimension": ((20_000, 40), -1, 300),
    "middle dimension": ((64, 500, 24), 1, 3000),
}  # fmt: skip
DISTRIBUTIONS = ("uniform", "zipf", "equal")


@functools.cache
def _operands(regime: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """self and source of a regime."""
    shape, dim, count = REGIMES[regime]
    source_shape = list(shape)
    source_shape[dim] = count
    generator = torch.Generator("cuda").manual_seed(len(regime))
    wide = torch.complex64 if dtype.is_complex else torch.float32
    return tuple(
        torch.randn(s, generator=generator, dtype=wide, device="cuda").to(dtype) for s in (shape, source_shape)
    )


@functools.cache
def _index(regime: str, distribution: str) -> torch.Tensor:
    shape, dim, count = REGIMES[regime]
    return indices(distribution, shape[dim], count).cuda()


def _args(regime: str, distribution: str, dtype: torch.dtype) -> tuple:
    self, source = _operands(regime, dtype)
    return self, REGIMES[regime][1], _index(regime, distribution), source


# ---------------------------------------------------------------- calls, also for ../test_overlap.py


@functools.cache
def overlapping(dtype: torch.dtype) -> Calls:
    """Calls in mode 'deterministic', as functions without arguments: all regimes and distributions, and a source that is not
    dense."""
    calls = {}
    for regime in REGIMES:
        for distribution in DISTRIBUTIONS:
            args = _args(regime, distribution, dtype)
            calls[f"{regime}, {distribution}"] = functools.partial(torch_ops.index_add, *args, mode="deterministic")
    for distribution in DISTRIBUTIONS:
        self, dim, index, source = _args("rows of 64", distribution, dtype)
        args = self.mT.contiguous().mT, dim, index.int(), source[:, :1].expand_as(source)
        calls[f"transposed and expanded, {distribution}"] = functools.partial(
            torch_ops.index_add, *args, mode="deterministic"
        )
    return Calls(calls)


@each_dtype
def test_every_form_and_mode_under_deterministic_algorithms(dtype):
    """In-place, out= and functional calls give the bits of mode 'deterministic', in all three modes."""
    wanted = overlapping(dtype).sequential
    with deterministic_algorithms():
        for regime, distribution, mode in itertools.product(REGIMES, DISTRIBUTIONS, MODES):
            self, *rest = _args(regime, distribution, dtype)
            written, out = self.clone(), torch.empty_like(self)
            torch_ops.index_add_(written, *rest, mode=mode)
            torch_ops.index_add(self, *rest, mode=mode, out=out)
            for got in (written, out, torch_ops.index_add(self, *rest, mode=mode)):
                problem = different_bits(got, wanted[f"{regime}, {distribution}"])
                assert problem is None, f"{regime}, {distribution}, {mode}: {problem}"


@each_mode
@each_dtype
def test_graphs_take_new_indices(dtype, mode):
    """A graph captured with one index is right for every other, so no decision on the host may depend on the index's values."""
    failures = Failures()
    for regime in REGIMES:
        self, dim, index, source = (
            t.clone() if isinstance(t, torch.Tensor) else t for t in _args(regime, "uniform", dtype)
        )
        graph, result = captured(functools.partial(torch_ops.index_add, self, dim, index, source, mode=mode))
        for distribution in ("equal", "zipf", "ends", "sorted", "uniform"):
            with failures.sample(f"{regime}, {distribution}"):
                index.copy_(_index(regime, distribution))
                source.copy_(source.flip(dim))
                result.zero_()
                graph.replay()
                if mode == "deterministic":
                    want = torch_ops.index_add(self, dim, index, source, mode=mode)
                    failures.add(f"{regime}, {distribution}", different_bits(result, want))
                args = self, dim, index, source
                exact = index_add_reference(*args)
                bound = index_add_bound("cuda", dtype, exact, *args, mode=mode)
                failures.add(f"{regime}, {distribution}", different_from_reference(result, exact, bound))
    failures.check(at_least=60)


@each_mode
@each_dtype
def test_never_waits(dtype, mode):
    """No call synchronises: forward, in place and backward, also under use_deterministic_algorithms."""
    for regime, on in itertools.product(REGIMES, (False, True)):
        self, dim, index, source = _args(regime, "zipf", dtype)
        leaves = [t.clone().requires_grad_() for t in (self, source)]
        grad = torch.ones_like(self)
        with deterministic_algorithms(on), no_waiting():
            result = torch_ops.index_add(leaves[0], dim, index, leaves[1], mode=mode)
            torch_ops.index_add_(result, dim, index, source, mode=mode)
            torch.autograd.grad(result, leaves, grad)


# ---------------------------------------------------------------- accuracy


@each_mode
@each_dtype
def test_values_at_size(dtype, mode):
    """Errors of large calls are within the bound, and their sum is no larger than ATen's."""
    failures = Failures()
    for regime in REGIMES:
        for distribution in DISTRIBUTIONS:
            name, args = f"{regime}, {distribution}", _args(regime, distribution, dtype)
            with failures.sample(name):
                got, exact = CASE.op(*args, mode=mode), index_add_reference(*args)
                bound = index_add_bound("cuda", dtype, exact, *args, mode=mode)
                failures.add(name, different_from_reference(got, exact, bound))
                if distribution == "equal":
                    continue  # too few sums to compare their errors
                ours, theirs = (float((t - exact).abs().mean()) for t in (got, CASE.aten(*args)))
                ulp = float(exact.abs().mean()) * torch.finfo(real_of(dtype)).eps
                if ours > 1.5 * theirs + ulp:
                    failures.add(name, f"mean error {ours}, ATen's is {theirs}")
    failures.check(at_least=30)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["accurate", "deterministic"])
@pytest.mark.parametrize("width", [None, 1, 2, 3, 4, 8, 33, 64, 129], ids=str)
def test_a_million_equal_indices(dtype, mode, width):
    """Sums that are exact in float32. A running sum in fp16 or bf16 would stop early."""
    count, row = 2**20, () if width is None else (width,)
    index = torch.full((count,), 2, dtype=torch.int64, device="cuda")
    columns = torch.arange(width or 1, device="cuda").remainder(4).add(1).view(row)
    source = (columns / 128).to(dtype).expand(count, *row).contiguous()
    for bins in (3, 100, 10_000):
        x = torch.full((bins, *row), 0.25, dtype=dtype, device="cuda")
        got = torch_ops.index_add(x, 0, index, source, mode=mode)
        want = x.clone()
        want[2] = (0.25 + count / 128 * columns.double()).to(dtype)
        assert different_bits(got, want) is None, f"{bins} bins"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["accurate", "deterministic"])
def test_half_types_are_nearly_always_the_nearest(dtype, mode):
    """Nearly all results are the fp16 or bf16 number nearest to the exact sum: a float32 sum rarely rounds to the other side."""
    for regime in REGIMES:
        args = _args(regime, "zipf", dtype)
        got, exact = CASE.op(*args, mode=mode), index_add_reference(*args)
        other = float((got != exact.to(dtype)).double().mean())
        assert other < 0.01, f"{regime}: {other:.1%} are not the nearest"


# ---------------------------------------------------------------- memory


def _many_bytes() -> dict:
    """Calls with a source far larger than the index, in layouts that a kernel for dense rows would copy first."""

    def make(*shape, dtype=torch.float32):
        return torch.ones(shape, dtype=dtype, device="cuda")

    return {
        "rows of 1": lambda: (make(10_000, 1), 0, 4_000_000, make(4_000_000, 1)),
        "few bins": lambda: (make(100), 0, 4_000_000, make(4_000_000)),
        "rows of 64": lambda: (make(10_000, 64), 0, 1_000_000, make(1_000_000, 64)),
        "rows of 4096": lambda: (make(1000, 4096), 0, 40_000, make(40_000, 4096)),
        "rows of 2^20": lambda: (make(10, 2**20), 0, 200, make(200, 2**20)),
        "rows of 2^20, bfloat16": lambda: (make(10, 2**20, dtype=torch.bfloat16), 0, 200, make(200, 2**20, dtype=torch.bfloat16)),
        "last dimension": lambda: (make(2**20, 10), 1, 200, make(2**20, 200)),
        "last dimension, float16": lambda: (make(2**20, 10, dtype=torch.float16), 1, 200, make(2**20, 200, dtype=torch.float16)),
        "middle dimension": lambda: (make(2000, 10, 500), 1, 200, make(2000, 200, 500)),
        "transposed source": lambda: (make(1000, 4096), 0, 40_000, make(4096, 40_000).mT),
        "expanded source": lambda: (make(1000, 4096), 0, 40_000, make(1, 4096).expand(40_000, 4096)),
        "source with gaps": lambda: (make(1000, 2048), 0, 40_000, make(40_000, 2056)[:, :-8]),
        "misaligned source": lambda: (make(1000, 4096), 0, 40_000, make(40_000 * 4096 + 1)[1:].view(40_000, 4096)),
        "complex": lambda: (make(1000, 2048, dtype=torch.complex64), 0, 40_000, make(40_000, 2048, dtype=torch.complex64)),
        "bool": lambda: (make(1000, 4096, dtype=torch.bool), 0, 40_000, make(40_000, 4096, dtype=torch.bool)),
    }  # fmt: skip


@each_mode
@pytest.mark.parametrize("what", _many_bytes())
def test_scratch_memory_goes_by_the_index(what, mode):
    self, dim, count, source = _many_bytes()[what]()
    for distribution in ("equal", "uniform"):
        args = dim, indices(distribution, self.shape[dim], count).cuda(), source
        allowed = scratch(Sample(what, (self, *args)))
        for call, kept in (
            (lambda a=args: torch_ops.index_add(self, *a, mode=mode), self.nbytes),
            (lambda a=args: torch_ops.index_add_(self, *a, mode=mode), 0),
        ):
            most = peak(call) - kept
            assert most <= allowed, f"{distribution}: {most} bytes, {allowed} are allowed"


# ---------------------------------------------------------------- indices out of range

# A failed device-side assertion destroys the process's CUDA context, so each case runs in its own process.
_OUT_OF_RANGE = """
import sys
import torch, torch_ops
wrong, kind, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
shapes = {"values": ((1000,), 5000), "rows": ((1000, 8), 5000), "wide rows": ((1000, 256), 40_000), "few bins": ((1000,), 100_000)}
if kind == "examples":
    x, source = torch.zeros(3, 1000, 2, device="cuda"), torch.ones(3, 500, 2, device="cuda")
    index = torch.arange(1500, device="cuda").remainder(1000).view(3, 500)
    call = torch.vmap(lambda a, i, s: torch_ops.index_add(a, 0, i, s, mode=mode))
else:
    shape, count = shapes[kind]
    x, source = torch.zeros(shape, device="cuda"), torch.ones(count, *shape[1:], device="cuda")
    index = torch.arange(count, device="cuda") % 1000
    call = lambda a, i, s: torch_ops.index_add_(a, 0, i, s, mode=mode)
call(x, index, source)  # in range
index.view(-1)[333] = wrong
torch.cuda.synchronize()
when = "at the call"
try:
    call(x, index, source)
    when = "afterwards"
    torch.cuda.synchronize()
except RuntimeError as error:
    print(when, "device-side assert" in str(error))
else:
    print("never")
"""


@pytest.mark.parametrize("wrong", [-1, 1000, 2**32, -(2**32) + 3])
def test_indices_out_of_range_are_asserted_against(wrong):
    """Every kind of kernel asserts that indices are in range. With CUDA_LAUNCH_BLOCKING the call itself raises.

    The last two indices would be in range if truncated to 32 bits. In a batch, -1 and 1000 would be in range of another example.
    """
    running = []
    for kind, mode, blocking in (
        ("values", "fast", True), ("values", "fast", False), ("rows", "fast", True), ("rows", "deterministic", True),
        ("rows", "deterministic", False), ("wide rows", "fast", True), ("few bins", "fast", True), ("examples", "fast", True),
        ("examples", "deterministic", False),
    ):  # fmt: skip
        command = [sys.executable, "-c", _OUT_OF_RANGE, str(wrong), kind, mode]
        environment = {**os.environ, "CUDA_LAUNCH_BLOCKING": str(int(blocking))}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        running.append((kind, mode, blocking, process))
    for kind, mode, blocking, process in running:
        said, errors = process.communicate(timeout=300)
        told = f"{kind}, {mode}, blocking={blocking}: {said!r}, {errors[-2000:]}"
        assert said.strip() in (["at the call True"] if blocking else ["at the call True", "afterwards True"]), told
        assert "index out of bounds" in errors, told
