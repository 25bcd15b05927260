"""Bags of embeddings under torch_ops.override."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

from ..support.overriding import counted, made, nothing_is_left, override  # noqa: F401
from ..support.params import each_device
from ..support.runtime import deterministic_algorithms

pytestmark = pytest.mark.torch_version
MODES = ("sum", "mean", "max")
BACKWARD, WEIGHTS = "_embedding_bag_dense_backward", "_embedding_bag_per_sample_weights_backward"

each_dtype = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=lambda dtype: str(dtype)[6:]
)


def integers(below: int, count: int, device: str) -> torch.Tensor:
    return torch.randint(below, (count,), generator=torch.Generator().manual_seed(below)).to(device)


def calls_of(device: str, dtype: torch.dtype, mode: str):
    """(table, arguments of torch.embedding_bag behind it): wide rows that entries name often, and narrow ones that they name seldom."""
    lengths = torch.tensor([3, 0, 4, 1, 0, 30, 2], device=device)
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    index = int(lengths.sum())
    for rows, number, last, padding, weighted in itertools.product(
        (7, 5000), (torch.int32, torch.int64), (False, True), (None, 2), (False, True)
    ):
        if weighted and mode != "sum":
            continue
        value = made(device, dtype, index).requires_grad_() if weighted else None
        entries = integers(rows, index, device).to(number)
        features = 140 if rows == 7 else 20
        table = made(device, dtype, rows, features + 4)[:, :features].requires_grad_()
        yield table, (entries, offsets if last else offsets[:-1], False, MODES.index(mode), False, value, last, padding)


def gradients(table, arguments, result):
    value = arguments[5]
    leaves = [table] if value is None else [table, value]
    grad = made(table.device.type, table.dtype, *result.shape)
    return torch.autograd.grad(result, leaves, grad, retain_graph=True)


def exact_of(table, arguments):
    value = arguments[5]
    wide = None if value is None else value.detach().double().requires_grad_()
    return table.detach().double().requires_grad_(), (*arguments[:5], wide, *arguments[6:])


def assert_near(mine, exact):
    unit = torch.finfo(mine.dtype).eps
    size = exact.detach().abs().amax().item()
    torch.testing.assert_close(mine.detach().double(), exact.detach(), rtol=4 * unit, atol=4 * unit * size)


@each_device
@each_dtype
@pytest.mark.parametrize("mode", MODES)
def test_bags(device, dtype, mode):
    """Results and gradients, and what ATen returns beside the results."""
    for table, arguments in calls_of(device, dtype, mode):
        wide = exact_of(table, arguments)
        exact = torch.embedding_bag(wide[0], *wide[1])
        theirs = torch.embedding_bag(table, *arguments)
        with counted() as calls, override(device):
            mine = torch.embedding_bag(table, *arguments)
            only = torch.embedding_bag(table.detach(), *arguments)[0]
            found = again = ()
            if mode != "max":  # ATen's, which has no kernel for bfloat16
                found, again = gradients(table, arguments, mine[0]), gradients(table, arguments, mine[0])
        assert calls["_embedding_bag"] == {"taken": 2}
        assert calls.get(BACKWARD) == ({"taken": 2} if mode != "max" else None)
        if arguments[5] is not None:
            assert calls[WEIGHTS] == {"taken": 2}
        assert torch.equal(only, mine[0])
        for k, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
            if k == 2:  # there is no bag behind the last offset
                one, other = one[:7], other[:7]
            assert k == 0 or torch.equal(one, other)
        assert_near(mine[0], exact[0])
        for one, twin, want in zip(found, again, gradients(*wide, exact[0]), strict=False):
            assert one.dtype == dtype and torch.equal(one, twin)
            assert_near(one, want)


@each_device
def test_maxima_in_deterministic_mode(device):
    for table, arguments in calls_of(device, torch.float32, "max"):
        wide = exact_of(table, arguments)
        with counted() as calls, override(device), deterministic_algorithms():
            found = gradients(table, arguments, torch.embedding_bag(table, *arguments)[0])
        assert calls[BACKWARD] == {"taken": 1}
        assert_near(found[0], gradients(*wide, torch.embedding_bag(wide[0], *wide[1])[0])[0])


ENTRIES, STARTS = torch.tensor([2, 0, 1]), torch.tensor([0, 2])


def bag(**given):
    weight = given.pop("weight", torch.ones(3, 4))
    result = F.embedding_bag(ENTRIES, weight.requires_grad_(), STARTS, **given)
    result.sum().backward()


PASSED_ON = [
    ("_embedding_bag", "layout", lambda: bag(weight=torch.ones(4, 3).t())),
    (BACKWARD, "unsupported", lambda: bag(scale_grad_by_freq=True)),
    (BACKWARD, "aten_is_faster", lambda: bag(mode="max")),
    (WEIGHTS, "layout", lambda: bag(weight=torch.ones(4, 3).t(), mode="sum",
                                    per_sample_weights=torch.ones(3, requires_grad=True))),
]  # fmt: skip


@pytest.mark.parametrize(("op", "reason", "call"), PASSED_ON, ids=[f"{row[0]}-{row[1]}" for row in PASSED_ON])
def test_what_is_passed_on(op, reason, call):
    with counted() as calls, override("cpu"):
        call()
    assert calls[op] == {reason: 1}, calls


def test_sparse_gradients_stay_pytorchs():
    weight = torch.ones(3, 4, requires_grad=True)
    with counted() as calls, override("cpu"):
        F.embedding_bag(ENTRIES, weight, STARTS, sparse=True).sum().backward()
    assert weight.grad.is_sparse and BACKWARD not in calls


def test_small_calls_are_passed_on():
    with counted() as calls, override("cpu", always=False):
        bag()
    for op in ("_embedding_bag", BACKWARD):
        assert calls[op] == {"size": 1}, calls
