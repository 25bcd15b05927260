"""Reductions at an index of up to 8192 entries, which CUDA reduces in one launch unless there are too many bins: random sizes,
dtypes, layouts and indices, compared with PyTorch's results in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st

import torch_ops

from ...cases.tensors import FLOATS
from ...support.compare import different_bits
from ...support.params import each_device
from ...support.runtime import deterministic_algorithms
from ...support.seeded import seeded

ENTRIES = (1, 2, 3, 31, 32, 33, 255, 256, 257, 511, 513, 2047, 2048, 2049, 4097, 8191, 8192)
BINS = (1, 2, 3, 31, 33, 132, 500, 513, 2708, 10_000, 100_000)
FEATURES = (1, 2, 3, 4, 7, 8, 16, 17, 31, 32, 64, 100, 128, 257, 1000)
LAYOUTS = ("dense", "dense", "misaligned", "pitched", "aligned pitch", "every second", "transposed")
REDUCTIONS = {"sum": "sum", "mean": "sum", "amax": "amax", "amin": "amin", "prod": "prod"}


@dataclass
class Problem:
    dtype: torch.dtype
    batch: int  # 0: the index refers to dimension 0
    entries: int
    bins: int
    features: int
    layout: str
    order: str  # of the index
    has_ties: bool
    is_long: bool
    index_step: int
    seed: int

    def index(self, generator: torch.Generator, device: str) -> torch.Tensor:
        uniform = torch.rand(self.entries, generator=generator, dtype=torch.float64)
        drawn = {"uniform": uniform, "ascending": uniform.sort().values, "skewed": uniform**6, "equal": uniform[:1]}
        bins = (drawn[self.order] * self.bins).long().expand(self.entries)
        wide = torch.full((self.entries, self.index_step), -1, dtype=torch.int64 if self.is_long else torch.int32)
        wide[:, 0] = bins
        return wide.to(device)[:, 0]

    def values(self, generator: torch.Generator, is_product: bool) -> torch.Tensor:
        shape = [*([self.batch] if self.batch else []), self.entries, self.features]
        drawn = torch.randn(shape, generator=generator)
        if is_product:  # products stay near 1
            return (drawn / math.sqrt(self.entries)).exp() * torch.randn(shape, generator=generator).sign()
        return drawn.round() if self.has_ties else drawn

    def laid_out(self, values: torch.Tensor, device: str) -> torch.Tensor:
        """The values in memory. What lies between them is NaN."""
        *outer, entries, features = values.shape
        pitch = {"pitched": 3, "aligned pitch": 16}.get(self.layout, 0)
        every = 2 if self.layout == "every second" else 1
        begin = 1 if self.layout == "misaligned" else 0
        wide = [*outer, entries * every, features + pitch]
        memory = torch.full((begin + math.prod(wide),), math.nan, dtype=self.dtype, device=device)
        if self.layout == "transposed":
            return memory.view(*outer, features, entries).mT.copy_(values)
        return memory[begin:].view(wide)[..., ::every, :features].copy_(values)


def sizes(known: tuple[int, ...]) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from(known), st.integers(1, known[-1]))


@st.composite
def problems(draw, most: int) -> Problem:
    """Neither the operand nor the result has more than `most` values."""
    batch, entries, bins = draw(st.sampled_from((0, 0, 1, 2, 5))), draw(sizes(ENTRIES)), draw(sizes(BINS))
    features = min(draw(sizes(FEATURES)), max(most // (max(batch, 1) * max(entries, bins)), 1))
    return Problem(
        draw(st.sampled_from(FLOATS)), batch, entries, bins, features, draw(st.sampled_from(LAYOUTS)),
        draw(st.sampled_from(("uniform", "ascending", "skewed", "equal"))), draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from((1, 1, 3))), draw(st.integers(0, 2**31)),
    )  # fmt: skip


def at_index(src: torch.Tensor, dim: int, index: torch.Tensor, bins: int, reduce: str, empty: float) -> torch.Tensor:
    """PyTorch's reduction, with `empty` in bins without entries."""
    shape = list(src.shape)
    shape[dim] = bins
    where = index.long()[:, None].expand(src.shape)
    return src.new_full(shape, empty).scatter_reduce(dim, where, src, reduce, include_self=False)


def first_entries(src: torch.Tensor, dim: int, index: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """The first entry whose value is the one in `best`, or -1."""
    entries = len(index)
    is_best = src == best.index_select(dim, index)
    number = torch.arange(entries, device=src.device)[:, None].expand(src.shape).masked_fill(~is_best, entries)
    found = at_index(number, dim, index, best.shape[dim], "amin", entries)
    return found.masked_fill(found == entries, -1)


def compare(problem: Problem, device: str, reduce: str) -> None:
    generator = torch.Generator().manual_seed(problem.seed)
    index, dim, bins = problem.index(generator, device), int(problem.batch > 0), problem.bins
    src = problem.laid_out(problem.values(generator, reduce == "prod"), device)
    exact = src.double()
    want = at_index(exact, dim, index, bins, REDUCTIONS[reduce], 1 if reduce == "prod" else 0)
    counts = index.bincount(minlength=bins)[:, None]
    if reduce == "mean":
        want = want / counts.clamp(min=1)

    def call() -> tuple[torch.Tensor, ...]:
        results = [torch_ops.scatter(src, index, dim, bins, reduce)]
        if reduce in ("amax", "amin"):
            results += torch_ops.scatter(src, index, dim, bins, reduce, return_arg=True)
        return tuple(results)

    in_any_order = call()
    with deterministic_algorithms():
        first, second = call(), call()
    for a, b in zip(first, second, strict=True):
        assert different_bits(a, b) is None
    for got, *with_arg in (in_any_order, first):
        assert got.dtype == src.dtype and got.shape == want.shape and got.is_contiguous()
        if with_arg:
            assert torch.equal(got.double(), want) and torch.equal(with_arg[0], got)
            assert torch.equal(with_arg[1], first_entries(exact, dim, index, want))
            continue
        # A rounding for each addition or multiplication, and another one to the dtype of the result.
        sums = want.abs() if reduce == "prod" else at_index(exact.abs(), dim, index, bins, "sum", 0)
        if reduce == "mean":
            sums = sums / counts.clamp(min=1)
        info, result = (torch.finfo(d) for d in (torch.promote_types(src.dtype, torch.float32), src.dtype))
        error = (got.double() - want).abs()
        bound = info.eps * (counts + 2) * sums + result.eps * want.abs() + result.smallest_normal
        assert bool((error <= bound).all()), f"{reduce}: {float((error / bound).max())} of the bound"


@each_device
def test_few_entries(device):
    @seeded(60 if device == "cpu" else 400)
    @given(problems(50_000 if device == "cpu" else 4_000_000))
    def check(problem):
        for reduce in REDUCTIONS:
            compare(problem, device, reduce)

    check()
