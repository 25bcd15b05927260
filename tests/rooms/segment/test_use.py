"""Reductions of segments, and groups of an index, beyond the contract of every operator, compared with loops in numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import torch_ops

from ...support.compare import close, different_bits
from ...support.params import each_device

OPS = torch.ops.gpuopt
FUNCTIONS = {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min, "prod": np.prod}
EVERY = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
TWICE = {"check_fwd_over_rev": True, "check_rev_over_rev": True}


def random_segments(seed: int, segments: int, most: int) -> np.ndarray:
    """Offsets of segments of 0 to `most` entries, behind some entries of no segment."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, most + 1, segments)
    return np.concatenate([[2], 2 + np.cumsum(lengths)])


def loop(data: np.ndarray, offsets: np.ndarray, reduce: str, empty: float) -> np.ndarray:
    rows = [
        FUNCTIONS[reduce](data[b:e], axis=0) if b < e else np.full(data.shape[1:], empty)
        for b, e in itertools.pairwise(offsets)
    ]
    return np.stack(rows) if rows else np.zeros((0, *data.shape[1:]))


@each_device
@pytest.mark.parametrize("reduce", FUNCTIONS)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_random_segments(device, reduce, kind):
    for seed, (segments, most, features) in enumerate(
        [(0, 3, 4), (1, 500, 1), (30, 9, 7), (400, 3, 16), (5, 2000, 3), (17, 1, 64)]
    ):
        offsets = random_segments(seed, segments, most)
        data = np.random.default_rng(seed).uniform(0.9, 1.1, (offsets[-1] + 3, features))
        got = torch_ops.segment_reduce(
            torch.from_numpy(data).to(device), torch.from_numpy(offsets).to(device, kind), reduce, empty=0.5
        )
        np.testing.assert_allclose(got.cpu().numpy(), loop(data, offsets, reduce, 0.5), rtol=1e-12)


@each_device
@pytest.mark.parametrize("reduce", FUNCTIONS)
def test_agrees_with_pytorch(device, reduce):
    """PyTorch's results of empty segments follow from `empty`, and its gradients are the same if no two values are equal."""
    empties = {"sum": 0.0, "mean": math.nan, "amax": -math.inf, "amin": math.inf, "prod": 1.0}
    offsets = torch.tensor([0, 3, 3, 4, 9], device=device)
    ours = torch.randn(9, 5, device=device, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    got = torch_ops.segment_reduce(ours, offsets, reduce, empty=empties[reduce])
    want = torch.segment_reduce(theirs, reduce.removeprefix("a"), offsets=offsets)
    assert close(got, want) is None
    for result, leaf in ((got, ours), (want, theirs)):
        result[[0, 2, 3]].pow(2).sum().backward()
        assert leaf.grad is not None
    assert close(ours.grad, theirs.grad) is None


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_summed_in_float32_and_counted_in_integers(device, dtype):
    """In bfloat16 ones stop adding up at 256, in float16 at 2048, and so would a count of entries."""
    ones = torch.ones(3000, 2, device=device, dtype=dtype)
    offsets = torch.tensor([0, 3000], device=device)
    index = torch.zeros(3000, dtype=torch.int64, device=device)
    exact = torch.full((1, 2), 3000.0, dtype=dtype, device=device)
    assert different_bits(torch_ops.segment_reduce(ones, offsets), exact) is None
    assert different_bits(torch_ops.scatter(ones, index, 0, 1), exact) is None
    for mean in (torch_ops.segment_reduce(ones, offsets, "mean"), torch_ops.scatter(ones, index, 0, 1, "mean")):
        assert different_bits(mean, torch.ones(1, 2, dtype=dtype, device=device)) is None
    leaf = ones.clone().requires_grad_()
    torch_ops.segment_reduce(leaf, offsets, "mean").backward(torch.full((1, 2), 3000.0, dtype=dtype, device=device))
    assert different_bits(leaf.grad, ones) is None


@each_device
def test_the_first_of_equal_entries_wins_and_a_nan_before_all(device):
    data = torch.tensor([2.0, 1, 2, math.nan, 5, math.nan, -0.0, 0.0, math.inf, math.inf], device=device)
    offsets = torch.tensor([0, 3, 6, 8, 10, 10], device=device)
    values, arg = OPS._segment_reduce_arg(data, offsets, "max", None)
    assert arg.tolist() == [0, 3, 6, 8, -1] and arg.dtype == offsets.dtype
    assert values[0] == 2 and values[1].isnan() and values[3] == math.inf and values[4] == 0
    assert OPS._segment_reduce_arg(data, offsets.int(), "min", None)[1].tolist() == [1, 3, 6, 8, -1]
    leaf = data.clone().requires_grad_()
    torch_ops.segment_reduce(leaf, offsets, "amax").backward(torch.arange(1.0, 6, device=device))
    assert leaf.grad.tolist() == [1, 0, 0, 2, 0, 0, 3, 0, 4, 0]


@each_device
@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_derivatives_of_a_product_with_zeros(device, zeros):
    data = torch.tensor([1.5, -2, 0.5, 3, 1.2, 0.7], dtype=torch.float64, device=device)
    data[1 : 1 + zeros] = 0
    data.requires_grad_()
    offsets = torch.tensor([0, 5, 6], device=device)

    def product(x):
        return torch_ops.segment_reduce(x, offsets, "prod")

    assert gradcheck(product, data, **EVERY)
    assert gradgradcheck(product, data, **TWICE)


@each_device
def test_integers(device):
    offsets = torch.tensor([0, 2, 2, 5], device=device)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        data = torch.tensor([3, 4, 1, 1, 3], dtype=dtype, device=device)
        for reduce, want in (
            ("sum", [7, 0, 5]),
            ("mean", [3, 0, 1]),
            ("amax", [4, 0, 3]),
            ("amin", [3, 0, 1]),
            ("prod", [12, 1, 3]),
        ):
            got = torch_ops.segment_reduce(data, offsets, reduce)
            assert got.dtype == dtype and got.tolist() == want
    low = torch.tensor([-3, -4], dtype=torch.int32, device=device)
    assert torch_ops.segment_reduce(low, offsets[:2], "mean").tolist() == [-4]
    large = torch.full((4,), 2**31 - 1, dtype=torch.int32, device=device)
    assert torch_ops.segment_reduce(large, torch.tensor([0, 4], device=device), "mean").tolist() == [2**31 - 1]


@each_device
def test_vmap_over_no_examples(device):
    """Each example has segments of its own, and there is none."""
    x, offsets = torch.randn(0, 6, 3, device=device), torch.zeros(0, 3, device=device, dtype=torch.long)
    index = torch.zeros(0, 6, device=device, dtype=torch.long)
    for call, of, shape in (
        (torch_ops.segment_reduce, (x, offsets), (0, 2, 3)),
        (lambda a, o: torch_ops.segment_reduce(a, o, "amax"), (x, offsets), (0, 2, 3)),
        (torch_ops.segment_softmax, (x, offsets), (0, 6, 3)),
        (lambda a, o: torch_ops.segment_expand(a, o, 6), (x[:, :2], offsets), (0, 6, 3)),
        (lambda a, i: torch_ops.scatter(a, i, 0, 4), (x, index), (0, 4, 3)),
        (lambda a, i: torch_ops.scatter(a, i, 0, 4, "amax", return_arg=True)[1], (x, index), (0, 4, 3)),
        (lambda a, i: torch_ops.scatter_softmax(a, i, dim_size=4), (x, index), (0, 6, 3)),
    ):
        assert torch.vmap(call)(*of).shape == shape


@each_device
def test_softmax_of_an_infinity(device):
    inf = float("inf")
    x = torch.tensor([1, inf, 2, -inf, 0, -inf, -inf, inf, inf], device=device)
    offsets = torch.tensor([0, 2, 5, 7, 9], device=device)
    want = torch.cat([part.softmax(0) for part in x.split([2, 3, 2, 2])])
    for dtype in (torch.float32, torch.float16, torch.float64):
        for columns in (1, 3, 40):
            given = x.to(dtype)[:, None].expand(9, columns)
            torch.testing.assert_close(
                torch_ops.segment_softmax(given, offsets), want.to(dtype)[:, None].expand(9, columns), equal_nan=True
            )


# ---------------------------------------------------------------- group_by


@each_device
@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_groups(device, kind):
    random = np.random.default_rng(1)
    for entries, bins in [(0, 0), (0, 5), (1, 1), (100, 7), (5000, 3), (3000, 100_000)]:
        index = random.integers(bins, size=entries) if entries else np.zeros(0, np.int64)
        for dtype in (None, torch.int32, torch.int64):
            ptr, perm = torch_ops.group_by(torch.from_numpy(index).to(device, kind), bins, dtype=dtype)
            assert ptr.dtype == perm.dtype == (dtype or torch.int32)
            np.testing.assert_array_equal(perm.cpu(), np.argsort(index, kind="stable"))
            np.testing.assert_array_equal(ptr.cpu(), np.searchsorted(np.sort(index), np.arange(bins + 1)))


def test_numbers_of_groups_have_the_type_that_their_sizes_need():
    for bins, entries, want in (
        (2**31 - 2, 3, torch.int32),
        (2**31, 3, torch.int64),
        (3, 2**31 - 1, torch.int32),
        (3, 2**31, torch.int64),
    ):
        index = torch.empty(entries, dtype=torch.int32, device="meta")
        assert torch_ops.group_by(index, bins)[0].dtype == want
    with pytest.raises(RuntimeError, match="dtype must hold the number of entries"):
        torch_ops.group_by(torch.empty(3, dtype=torch.int64, device="meta"), 2**31, dtype=torch.int32)


@each_device
def test_groups_of_examples(device):
    index = torch.tensor([[2, 0, 2, 1], [0, 0, 0, 3], [1, 3, 1, 1]], device=device)
    got = torch.vmap(lambda i: torch_ops.group_by(i, 4))(index)
    want = [torch.stack(parts) for parts in zip(*(torch_ops.group_by(i, 4) for i in index), strict=True)]
    assert all(different_bits(a, b) is None for a, b in zip(got, want, strict=True))
    columns = torch.vmap(lambda i: torch_ops.group_by(i, 4), in_dims=1)(index.t().int())
    assert all(different_bits(a, b) is None for a, b in zip(columns, want, strict=True))


def test_refused_indices():
    index = torch.tensor([0, 3, 1])
    for wrong, bins in ((index, 3), (index - 1, 4)):
        with pytest.raises(IndexError, match="gpuopt::group_by: index must be in the range of the bins"):
            torch_ops.group_by(wrong, bins)
        with pytest.raises(IndexError):
            torch.vmap(lambda i, n=bins: torch_ops.group_by(i, n))(torch.stack([wrong, index * 0]))
    for wrong in (index.float(), index[None]):
        with pytest.raises(RuntimeError, match="gpuopt::group_by: index must be"):
            torch_ops.group_by(wrong, 4)
    with pytest.raises(RuntimeError, match="dim_size must not be negative"):
        torch_ops.group_by(index, -1)
