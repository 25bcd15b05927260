"""Drop-ins: torch_ops.compat.torch_scatter against loops in numpy, and its installation.

The package's own tests are not part of this repository. docs/compat.md says how to run them.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from torch_ops.compat import torch_scatter
from torch_ops.compat.torch_scatter.utils import broadcast

from ..support.compare import raised_by
from ..support.params import each_device
from ..support.recorder import Recorder
from ..support.runtime import run_python

REDUCTIONS = ("sum", "add", "mul", "mean", "min", "max")
SEGMENT_REDUCTIONS = ("sum", "add", "mean", "min", "max")
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 8e-2,
    torch.int32: 0,
    torch.int64: 0,
}

# The shape of src, the dimension, and the index: a vector, an index of fewer dimensions, or a full one. Group 3 has no entries.
VECTOR = [0, 2, 0, 1, 4]
SHAPES = {
    "vector": ((5,), 0, (5,)),
    "first": ((5, 3), 0, (5,)),
    "last": ((3, 5), -1, (5,)),
    "middle": ((2, 5, 3), 1, (5,)),
    "vector as a matrix": ((5, 3), -2, (5, 1)),
    "vector as a tensor": ((2, 5, 3), 1, (1, 5, 1)),
    "prefix": ((2, 5, 3), 1, (2, 5)),
    "broadcast": ((2, 5, 3), 1, (2, 5, 1)),
    "last but one": ((2, 5, 3), 1, (1, 5, 3)),
    "full": ((4, 5), 0, (4, 5)),
    "full in the middle": ((2, 5, 3), -2, (2, 5, 3)),
}
GROUPS = 6


def _values(shape, device="cpu", dtype=torch.float64) -> torch.Tensor:
    """Random values. Some are equal."""
    values = torch.randint(-6, 7, shape).double() / 2
    return (values if dtype.is_floating_point else values.round()).to(device, dtype)


def _index(shape, device="cpu") -> torch.Tensor:
    """Groups without 3, and vectors as they are."""
    if math.prod(shape) == len(VECTOR):
        return torch.tensor(VECTOR, device=device).view(shape)
    index = torch.randint(0, GROUPS - 1, shape)
    return (index + (index >= 3)).to(device)


# ---------------------------------------------------------------- references: loops in float64


def _expanded(index: np.ndarray, src: np.ndarray, dim: int) -> np.ndarray:
    """The index of each value."""
    if index.ndim == 1:
        index = index.reshape([-1 if d == dim else 1 for d in range(src.ndim)])
    else:
        index = index.reshape(index.shape + (1,) * (src.ndim - index.ndim))
    return np.broadcast_to(index, src.shape)


def _by_loops(reduce: str, src, index, dim: int, groups: int, out=None):
    """The result and, of a minimum or maximum, the entry that it is from. Entries outside the groups are left out."""
    src = np.array(src.double().cpu())
    dim %= src.ndim
    index = _expanded(np.array(index.cpu()), src, dim)
    shape = tuple(groups if d == dim else n for d, n in enumerate(src.shape))
    result = np.full(shape, float(reduce == "mul")) if out is None else np.array(out.double().cpu())
    arg, count = np.full(shape, src.shape[dim]), np.zeros(shape)
    for at in np.ndindex(src.shape):
        group, value = tuple(int(index[at]) if d == dim else n for d, n in enumerate(at)), src[at]
        if not 0 <= group[dim] < groups:
            continue
        count[group] += 1
        if reduce in ("sum", "add", "mean"):
            result[group] += value
        elif reduce == "mul":
            result[group] *= value
        else:
            is_first = out is None and arg[group] == src.shape[dim]
            if is_first or (value < result[group] if reduce == "min" else value > result[group]):
                result[group], arg[group] = value, at[dim]
    return result / np.maximum(count, 1) if reduce == "mean" else result, arg


def _check(found, want, dtype: torch.dtype) -> None:
    """Compares results, and the entries of a minimum or maximum."""
    values, arg = found if isinstance(found, tuple) else (found, None)
    expected = torch.from_numpy(np.array(want[0]))
    expected = expected if dtype.is_floating_point else expected.floor()
    assert values.dtype == dtype
    torch.testing.assert_close(values.double().cpu(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    if arg is not None:
        assert arg.dtype == torch.int64 and arg.cpu().tolist() == want[1].tolist()


# ---------------------------------------------------------------- scatter


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_is_its_definition(device, reduce, dtype):
    """Each kind of index, with and without out, from dense and from transposed values."""
    function = getattr(torch_scatter, f"scatter_{reduce}")
    for (shape, dim, of_index), has_out, is_transposed in itertools.product(
        SHAPES.values(), (False, True), (False, True)
    ):
        src, index = _values(shape, device, dtype), _index(of_index, device)
        src = src.mT.contiguous().mT if is_transposed and src.dim() > 1 else src
        sizes = list(shape)
        sizes[dim] = GROUPS
        out = _values(sizes, device, dtype) if has_out else None
        want = _by_loops(reduce, src, index, dim, GROUPS, out)
        found = function(src, index, dim, out, GROUPS)
        _check(found, want, dtype)
        if has_out:
            assert (found[0] if isinstance(found, tuple) else found) is out
        else:
            generic = torch_scatter.scatter(src, index, dim, None, GROUPS, reduce)
            assert torch.equal(generic, found[0] if isinstance(found, tuple) else found)


@each_device
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_number_of_groups(device, reduce):
    """The greatest index decides. No entries have no groups."""
    src = _values((5, 3), device)
    assert torch_scatter.scatter(src, _index((5,), device), 0, reduce=reduce).shape == (5, 3)
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    assert torch_scatter.scatter(src[:0], nothing, 0, reduce=reduce).shape == (0, 3)
    empty = torch_scatter.scatter(src[:0], nothing, 0, dim_size=4, reduce=reduce)
    assert empty.shape == (4, 3) and empty.eq(reduce == "mul").all()
    assert torch_scatter.scatter(src[:, :0], _index((5,), device), 0, dim_size=4, reduce=reduce).shape == (4, 0)


@each_device
def test_out_has_the_shape_and_the_dtype(device):
    """What would be broadcast to another shape, or converted to another dtype, is refused and not written to."""
    src, index = _values((5, 3), device), torch.arange(5, device=device)
    starts = torch.arange(6, device=device)
    calls = [lambda out, r=reduce: torch_scatter.scatter(src, index, 0, out, reduce=r) for reduce in REDUCTIONS]
    calls += [
        lambda out, r=reduce: torch_scatter.segment_csr(src, starts, out, r) for reduce in REDUCTIONS if reduce != "mul"
    ]
    calls += [
        lambda out, r=reduce: torch_scatter.segment_coo(src, index, out, None, r)
        for reduce in REDUCTIONS
        if reduce != "mul"
    ]
    calls += [
        lambda out: torch_scatter.gather_csr(src, starts, out),
        lambda out: torch_scatter.gather_coo(src, index, out),
    ]
    for call in calls:
        for out in (torch.ones(2, 5, 3, device=device), torch.ones(5, 3, device=device).to(torch.int64)):
            with pytest.raises(RuntimeError, match="out must have"):
                call(out)
            assert out.eq(1).all()


@each_device
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_an_expanded_vector_is_the_vector(device, reduce):
    """A vector that the caller expanded leads to the same operators. int32 is enough."""
    src, vector = _values((2, 5, 3), device), _index((5,), device)
    want = torch_scatter.scatter(src, vector, 1, dim_size=GROUPS, reduce=reduce)
    for index in (vector[None, :, None].expand(2, 5, 3), vector[:, None].expand(2, 5, 1), vector.int()):
        assert torch.equal(torch_scatter.scatter(src, index, 1, dim_size=GROUPS, reduce=reduce), want)


def test_paths():
    """Vectors lead to gpuopt's operators, other indices to ATen's."""
    src, vector = _values((5, 3)), _index((5,))
    for index, is_gpuopt in ((vector, True), (vector[:, None].expand(5, 3), True), (_index((5, 3)), False)):
        with Recorder() as recorder:
            torch_scatter.scatter_sum(src, index, 0, None, GROUPS)
        assert ("gpuopt::scatter" in recorder.names) == is_gpuopt


@each_device
@pytest.mark.parametrize(
    "index", [[0, 0, 0, 0, 1, 1, 2], [[0, 0]] * 4 + [[1, 1]] * 2 + [[2, 2]]], ids=["vector", "full"]
)
def test_extreme_values(device, index):
    """A group of infinities only is as one without entries. The first of equal entries wins, and a NaN wins."""
    inf, nan = math.inf, math.nan
    src = torch.tensor([1.0, nan, nan, 3.0, -inf, -inf, inf], device=device)[:, None].expand(7, 2).contiguous()
    found = [torch_scatter.scatter_max(src * sign, torch.tensor(index, device=device), 0, None, 3) for sign in (1, -1)]
    found[1] = torch_scatter.scatter_min(src * -1, torch.tensor(index, device=device), 0, None, 3)
    for (values, arg), sign in zip(found, (1, -1)):
        torch.testing.assert_close((values[:, 0] * sign).cpu(), torch.tensor([nan, 0.0, inf]), equal_nan=True)
        assert arg[:, 0].tolist() == [1, 7, 6] and torch.equal(arg[:, 0], arg[:, 1])
    out = torch.tensor([5.0, -inf, 7.0], device=device)[:, None].expand(3, 2).contiguous()
    values, arg = torch_scatter.scatter_max(src, torch.tensor(index, device=device), 0, out)
    torch.testing.assert_close(values[:, 0].cpu(), torch.tensor([nan, -inf, inf]), equal_nan=True)
    assert values is out and arg[:, 0].tolist() == [1, 7, 6]


@each_device
def test_mean_counts_in_integers(device):
    """A count in bfloat16 would stop at 256."""
    mean = torch_scatter.scatter_mean(torch.ones(1000, device=device).bfloat16(), torch.arange(1000, device=device) % 2)
    counted = torch_scatter.segment_mean_csr(torch.ones(1000, device=device), torch.tensor([0, 1000], device=device))
    assert counted.item() == 1
    count = torch_scatter._groups.counts(torch.zeros(1000, dtype=torch.int64, device=device), 0, 1)
    assert count.item() == 1000 and mean.dtype == torch.bfloat16


# ---------------------------------------------------------------- segments and gathers


POINTERS = {
    "vector": ((7,), [0, 2, 2, 5, 7]),
    "rows": ((7, 3), [0, 2, 2, 5, 7]),
    "gaps at the ends": ((7, 3), [1, 2, 2, 5]),
    "a vector as a matrix": ((2, 7), [[0, 2, 2, 5, 7]]),
    "matrix": ((2, 7), [[0, 2, 2, 5, 7], [1, 1, 4, 4, 6]]),
    "matrix of rows": ((2, 7, 3), [[0, 2, 2, 5, 7], [1, 1, 4, 4, 6]]),
}


def _ends(name: str, device):
    """Values, the pointers, and the index of each entry. Entries outside the groups have -1."""
    shape, pointers = POINTERS[name]
    indptr = torch.tensor(pointers, device=device)
    index = torch.full((*indptr.shape[:-1], 7), -1)
    for at in np.ndindex(tuple(indptr.shape[:-1])):
        for group in range(indptr.shape[-1] - 1):
            index[at][int(indptr[at][group]) : int(indptr[at][group + 1])] = group
    return shape, indptr, index.to(device)


@each_device
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("reduce", SEGMENT_REDUCTIONS)
def test_segments_are_their_definition(device, reduce, dtype):
    """COO takes part in out, CSR overwrites it."""
    coo, csr = (getattr(torch_scatter, f"segment_{reduce}_{form}") for form in ("coo", "csr"))
    for name, has_out in itertools.product(POINTERS, (False, True)):
        shape, indptr, index = _ends(name, device)
        src, dim, groups = _values(shape, device, dtype), indptr.dim() - 1, indptr.shape[-1] - 1
        sizes = list(shape)
        sizes[dim] = groups
        out = _values(sizes, device, dtype) if has_out else None
        # A vector as a matrix: loops take a row of it as the other rows' index, too.
        _check(csr(src, indptr, out), _by_loops(reduce, src, index.expand(*shape[:dim], 7), dim, groups), dtype)
        if index.min() < 0:
            continue
        out = _values(sizes, device, dtype) if has_out else None
        want = _by_loops(reduce, src, index.expand(*shape[:dim], 7), dim, groups, out)
        found = coo(src, index, out, groups)
        _check(found, want, dtype)
        if not has_out:
            found = found[0] if isinstance(found, tuple) else found
            assert torch.equal(torch_scatter.segment_coo(src, index, reduce=reduce), found)
            assert torch.equal(torch_scatter.segment_csr(src, indptr, reduce=reduce), found)


@each_device
@pytest.mark.parametrize("name", POINTERS)
def test_gathers_are_their_definition(device, name):
    """An entry of no group is 0, or keeps its value in out."""
    shape, indptr, index = _ends(name, device)
    dim, groups = indptr.dim() - 1, indptr.shape[-1] - 1
    sizes = list(shape)
    sizes[dim] = groups
    src, out = _values(sizes, device), _values(shape, device)
    want = out.clone()
    each = _expanded(np.array(index.expand(*shape[:dim], 7).cpu()), np.empty(shape), dim)
    for at in np.ndindex(tuple(shape)):
        if each[at] >= 0:
            want[at] = src[tuple(int(each[at]) if d == dim else n for d, n in enumerate(at))]
    assert torch_scatter.gather_csr(src, indptr, out) is out and torch.equal(out, want)
    entries = int(indptr.flatten()[-1])
    new = torch_scatter.gather_csr(src, indptr)
    outside = torch.from_numpy(np.array(each < 0)).to(device)
    assert torch.equal(new, want.masked_fill(outside, 0).narrow(dim, 0, entries))
    if index.min() >= 0:
        assert torch.equal(torch_scatter.gather_coo(src, index), want)
        assert torch_scatter.gather_coo(src, index, out.zero_()) is out and torch.equal(out, want)


@each_device
@pytest.mark.parametrize("shape, dim", [((3, 0), 0), ((0, 2), 0), ((2, 3, 0), 1), ((0, 3, 2), 1)])
def test_nothing_is_gathered(device, shape, dim):
    """The original gives no entries if there is no value, and does not write to ``out``."""
    src = torch.zeros(shape, device=device, requires_grad=True)
    indptr = torch.tensor([0, 2, 3, 5], device=device).expand(*shape[:dim], 4)
    sizes = list(shape)
    sizes[dim] = 0
    got = torch_scatter.gather_csr(src, indptr)
    assert list(got.shape) == sizes and got.requires_grad
    sizes[dim] = 5
    out = torch.ones(sizes, device=device)
    assert torch_scatter.gather_csr(src, indptr, out) is out and out.eq(1).all()


# ---------------------------------------------------------------- composite


@each_device
@pytest.mark.parametrize("name", ["first", "middle", "broadcast", "full in the middle"])
def test_composites_are_their_definition(device, name):
    shape, dim, of_index = SHAPES[name]
    src, index = _values(shape, device), _index(of_index, device)
    dim %= len(shape)
    each = torch.from_numpy(np.array(_expanded(np.array(index.cpu()), np.empty(shape), dim)))
    sizes = list(shape)
    sizes[dim] = GROUPS
    x = src.cpu()
    std, biased, logsumexp, softmax = torch.zeros(sizes), torch.zeros(sizes), torch.zeros(sizes), torch.zeros(shape)
    std, biased, logsumexp, softmax = (t.double() for t in (std, biased, logsumexp, softmax))
    for at in np.ndindex(tuple(sizes)):
        line = tuple(slice(None) if d == dim else n for d, n in enumerate(at))
        mask = each[line] == at[dim]
        own, n = x[line][mask], int(mask.sum())
        if n:
            distance = (own - own.mean()).square().sum()
            std[at] = (distance / (max(n - 1, 1) + 1e-6)).sqrt()
            biased[at] = (distance / (n + 1e-6)).sqrt()
            logsumexp[at] = own.exp().sum().log()
            softmax[line][mask] = own.exp() / own.exp().sum()
    for function, want in (
        (lambda: torch_scatter.scatter_std(src, index, dim, dim_size=GROUPS), std),
        (lambda: torch_scatter.scatter_std(src, index, dim, dim_size=GROUPS, unbiased=False), biased),
        (lambda: torch_scatter.scatter_logsumexp(src, index, dim, dim_size=GROUPS), logsumexp),
        (lambda: torch_scatter.scatter_softmax(src, index, dim, GROUPS), softmax),
        (lambda: torch_scatter.scatter_log_softmax(src, index, dim, dim_size=GROUPS), softmax.log()),
    ):
        torch.testing.assert_close(function().cpu(), want, atol=1e-9, rtol=1e-9)


@each_device
def test_composites_with_out_and_infinities(device):
    inf = math.inf
    src, index = torch.tensor([1.0, -inf, -inf, 2.0], device=device), torch.tensor([0, 0, 1, 3], device=device)
    found = torch_scatter.scatter_logsumexp(src, index)
    torch.testing.assert_close(found.cpu(), torch.tensor([1.0, 0.0, 0.0, 2.0]))
    torch.testing.assert_close(torch_scatter.scatter_softmax(src[:2], index[:2]).cpu(), torch.tensor([1.0, 0.0]))
    out = torch.tensor([1.0, 5.0, 6.0, 0.0], device=device)
    assert torch_scatter.scatter_logsumexp(src, index, out=out) is out
    torch.testing.assert_close(out.cpu(), torch.tensor([1 + math.log(2), 5.0, 6.0, math.log(math.e**2 + 1)]))
    sums = torch.tensor([1.0, 2.0], device=device)
    result = torch_scatter.scatter_std(torch.tensor([1.0, 3.0], device=device), index[:2], out=sums)
    assert sums.tolist() == [3, 2] and result is not sums
    torch.testing.assert_close(result.cpu(), torch.tensor([3.0, 2.0]).sqrt(), atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------- derivatives, compilation, scripts


PAIRS = torch.tensor([0, 2, 0, 1, 1, 2])  # each group but 3 has two entries
CELLS = torch.tensor([[0, 2], [2, 0], [0, 2], [1, 1], [1, 1], [2, 0]])
STARTS = torch.tensor([1, 3, 3, 5])


def _calls() -> dict:
    """Functions of (6, 2) values, some with an out of (4, 2), of each path."""
    calls = {}
    for reduce in ("sum", "mul", "mean", "min", "max"):
        function = getattr(torch_scatter, f"scatter_{reduce}")
        calls[f"{reduce}"] = lambda x, out, f=function: f(x, PAIRS, 0, None, 4)
        calls[f"{reduce}-full"] = lambda x, out, f=function: f(x, CELLS, 0, None, 4)
        calls[f"{reduce}-out"] = lambda x, out, f=function: f(x, PAIRS, 0, out.clone())
        calls[f"{reduce}-full-out"] = lambda x, out, f=function: f(x, CELLS, 0, out.clone())
    for reduce in ("sum", "mean", "min", "max"):
        coo, csr = (getattr(torch_scatter, f"segment_{reduce}_{form}") for form in ("coo", "csr"))
        calls[f"{reduce}-coo"] = lambda x, out, f=coo: f(x, PAIRS.sort()[0], None, 4)
        calls[f"{reduce}-coo-out"] = lambda x, out, f=coo: f(x, PAIRS.sort()[0], out.clone())
        calls[f"{reduce}-csr"] = lambda x, out, f=csr: f(x, STARTS)
        calls[f"{reduce}-csr-rows"] = lambda x, out, f=csr: f(x.mT, torch.stack([STARTS, STARTS + 1]))
    calls["gather-coo"] = lambda x, out: torch_scatter.gather_coo(out, PAIRS.sort()[0]) * x
    calls["gather-csr"] = lambda x, out: torch_scatter.gather_csr(out[:3], STARTS, x.clone())
    calls["std"] = lambda x, out: torch_scatter.scatter_std(x, PAIRS, 0, dim_size=3)
    calls["logsumexp"] = lambda x, out: torch_scatter.scatter_logsumexp(x, PAIRS, 0, dim_size=4)
    calls["logsumexp-out"] = lambda x, out: torch_scatter.scatter_logsumexp(x, PAIRS, 0, out.clone())
    calls["softmax"] = lambda x, out: torch_scatter.scatter_softmax(x, PAIRS, 0, 4)
    calls["softmax-full"] = lambda x, out: torch_scatter.scatter_softmax(x, CELLS, 0, 4)
    calls["log_softmax"] = lambda x, out: torch_scatter.scatter_log_softmax(x, PAIRS, 0, dim_size=4)
    return calls


CALLS = _calls()


def _operands() -> list[torch.Tensor]:
    """Values that differ from each other, and from 0."""
    return [
        (torch.randperm(n).double() / 7 + least).view(-1, 2).requires_grad_() for n, least in ((12, 0.5), (8, 0.55))
    ]


def _differentiable(name: str):
    def call(x, out):
        found = CALLS[name](x, out)
        return found[0] if isinstance(found, tuple) else found

    return call


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(name):
    """First and second derivatives in the values and in out."""
    call = _differentiable(name)
    assert gradcheck(call, _operands(), check_batched_grad=True, check_forward_ad=True)
    assert gradgradcheck(call, _operands())


@pytest.mark.parametrize("reduce", ["min", "max"])
@pytest.mark.parametrize("index", [PAIRS, CELLS], ids=["vector", "full"])
def test_one_winner_has_the_gradient(reduce, index):
    x = torch.ones(6, 2, requires_grad=True)
    values, arg = getattr(torch_scatter, f"scatter_{reduce}")(x, index, 0, None, 4)
    assert not arg.requires_grad
    values.sum().backward()
    first = [[[int(g) for g in index.view(6, -1)[:, k]].index(group) for group in range(3)] for k in (0, -1)]
    for k in (0, 1):
        assert x.grad[:, k].nonzero()[:, 0].tolist() == sorted(first[k]) == sorted(arg[:3, k].tolist())


# Each function and path, with one reduction.
COMPILED = (
    "sum sum-full mean-out mean-full-out max max-full-out mul mul-full sum-coo mean-coo-out max-csr mean-csr sum-csr-rows max-csr-rows "
    "gather-coo gather-csr std logsumexp-out softmax-full log_softmax"
).split()


@pytest.mark.parametrize(("name", "dynamic"), [(name, name != "max") for name in COMPILED])
def test_calls_are_compiled_without_a_break(name, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(_differentiable(name), fullgraph=True, backend="aot_eager", dynamic=dynamic)
    operands = _operands()
    results = _differentiable(name)(*operands), compiled(*operands)
    torch.testing.assert_close(*results)
    gradients = [
        torch.autograd.grad(r.square().sum(), operands, allow_unused=True, materialize_grads=True) for r in results
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", torch_scatter.__all__)
def test_functions_are_scripted(name):
    function = getattr(torch_scatter, name)
    scripted = torch.jit.script(function)
    ends = "indptr" in inspect.signature(function).parameters
    x, at = _values((3 if name.startswith("gather") else 6, 2)), STARTS if ends else PAIRS.sort()[0]
    for index in (at, at[:, None].repeat(1, 2)) if not ends and "segment" not in name and "coo" not in name else (at,):
        arguments = (x, index, 0) if "dim" in inspect.signature(function).parameters else (x, index)
        torch.testing.assert_close(scripted(*arguments), function(*arguments), rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_results_are_repeatable_on_request(reduce):
    src, index = torch.randn(20000, 16, device="cuda"), torch.randint(0, 50, (20000,), device="cuda")
    torch.use_deterministic_algorithms(True)
    try:
        results = [torch_scatter.scatter(src, index, 0, reduce=reduce) for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(result, results[0]) for result in results)


# ---------------------------------------------------------------- broadcasting and errors


def test_broadcast():
    other = torch.empty(2, 5, 3)
    for shape, dim, want in (
        ((5,), 1, (1, 5, 1)),
        ((5,), -2, (1, 5, 1)),
        ((2, 5), 1, (2, 5, 1)),
        ((1, 5), 2, (1, 5, 1)),
    ):
        index = torch.arange(math.prod(shape)).view(shape)
        assert torch.equal(broadcast(index, other, dim), index.view(want).expand(2, 5, 3))


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda x, i: torch_scatter.scatter(x, i, 0, reduce="median")),
        (ValueError, lambda x, i: torch_scatter.segment_coo(x, i, reduce="mul")),
        (ValueError, lambda x, i: torch_scatter.segment_csr(x, i, reduce="mul")),
        (ValueError, lambda x, i: torch_scatter.scatter_softmax(x.long(), i, 0)),
        (ValueError, lambda x, i: torch_scatter.scatter_log_softmax(x.long(), i, 0)),
        (ValueError, lambda x, i: torch_scatter.scatter_logsumexp(x.long(), i, 0)),
        (RuntimeError, lambda x, i: torch_scatter.scatter_sum(x, i[:4], 0)),
        (RuntimeError, lambda x, i: torch_scatter.scatter_sum(x, i, 0, x.new_zeros(3, 1))),
        (RuntimeError, lambda x, i: torch_scatter.scatter_max(x, i, 0, x.new_zeros(3, 1))),
        (RuntimeError, lambda x, i: torch_scatter.scatter_sum(x, i, 0, x.new_zeros(3, 2).float())),
        (RuntimeError, lambda x, i: torch_scatter.segment_sum_coo(x[:, 0], i[:, None].expand(6, 2))),
        (RuntimeError, lambda x, i: torch_scatter.segment_sum_csr(x, STARTS, x.new_zeros(4, 2))),
        (RuntimeError, lambda x, i: torch_scatter.gather_csr(x, STARTS)),
    ],
)
def test_errors(error, call):
    assert type(raised_by(call, _values((6, 2)), PAIRS)) is error


# ---------------------------------------------------------------- install


def test_install_makes_the_package_importable():
    """Also as torch_geometric looks for it."""
    run_python("""
import importlib.metadata, importlib.util, sys
import torch, torch_ops
from torch_ops import compat
from torch_ops.compat import torch_scatter as ours

assert importlib.util.find_spec("torch_scatter") is None
assert compat.install("torch_scatter") == ["torch_scatter"]
assert importlib.util.find_spec("torch_scatter") is not None
assert importlib.metadata.version("torch-scatter") == "2.1.2"
try:
    import torch_scatter
except Exception:
    raise AssertionError("not found")
assert torch_scatter.__version__ == "2.1.2"
for name in ours.__all__:
    assert getattr(torch_scatter, name) is getattr(ours, name)
import torch_scatter.scatter, torch_scatter.segment_csr
assert torch_scatter.scatter is ours.scatter and torch_scatter.segment_csr is ours.segment_csr
from torch_scatter.scatter import scatter_max
from torch_scatter.segment_coo import gather_coo
from torch_scatter.composite import scatter_softmax
from torch_scatter.utils import broadcast
from torch_scatter.testing import devices, dtypes, grad_dtypes, reductions, tensor
assert scatter_max is ours.scatter_max and scatter_softmax is ours.scatter_softmax and gather_coo is ours.gather_coo
assert tensor(None, torch.half, "cpu") is None and tensor([1], torch.half, devices[0]).dtype == torch.half
assert not torch.cuda.is_initialized()
compat.uninstall()
assert not [name for name in sys.modules if name.startswith("torch_scatter")]
assert importlib.util.find_spec("torch_scatter") is None
""")


@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None, reason="needs torch_geometric")
@each_device
def test_torch_geometric_finds_it(device):
    """Its functions call the drop-in, and give what they give without it."""
    run_python(f"""
import torch, torch_ops
from torch_ops import compat

assert compat.install("torch_scatter") == ["torch_scatter"]
from torch_geometric import typing, utils
from torch_geometric.nn import aggr
assert typing.WITH_TORCH_SCATTER and typing.torch_scatter.__version__ == "2.1.2"
index, ptr = torch.tensor([0, 0, 1, 2, 2, 2, 4], device={device!r}), torch.tensor([0, 2, 3, 6, 6, 7], device={device!r})
src = torch.randn(7, 3, device={device!r}, requires_grad=True)

def run():
    results = [utils.scatter(src, index, 0, 5, reduce) for reduce in ("sum", "mean", "mul", "max", "min")]
    results += [utils.segment(src, ptr, reduce) for reduce in ("sum", "mean", "max", "min")]
    results += [utils.softmax(src, index), utils.softmax(src, ptr=ptr), aggr.MaxAggregation()(src, ptr=ptr)]
    return results + [torch.autograd.grad(result.square().sum(), src)[0] for result in results]

with torch.profiler.profile() as profile:
    results = run()
assert "gpuopt::segment_reduce" in {{event.name for event in profile.events()}}
assert utils._scatter.scatter_argmax(src[:, 0], index, 0, 5).tolist()[3] == 7
typing.WITH_TORCH_SCATTER = False
torch.testing.assert_close(results, run())
""")
