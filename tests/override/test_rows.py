"""Reductions of rows and sparse products under torch_ops.override: segment_reduce, scatter_reduce, and products of sparse CSR matrices.

Without a GPU the kernels of the CPU are replaced, at the keys CPU and SparseCsrCPU.
"""

from __future__ import annotations

import itertools

import pytest
import torch

import torch_ops

from ..support.compare import Failures, different_bits, different_metadata, raised_by
from ..support.overriding import counted, nothing_is_left, override, rows  # noqa: F401
from ..support.params import each_device, on
from ..support.runtime import deterministic_algorithms

pytestmark = [pytest.mark.torch_version, pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")]

each_dtype = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=lambda dtype: str(dtype)[6:]
)
UNITS = 4  # roundings of a result


def assert_near(ours, exact):
    """Compared with a result of float64 arithmetic."""
    unit = torch.finfo(ours.dtype).eps
    size = float(exact.detach().abs().nan_to_num(0, 0, 0).amax()) if exact.numel() else 0.0
    torch.testing.assert_close(
        ours.detach().double(), exact.detach().double(), rtol=UNITS * unit, atol=UNITS * unit * size, equal_nan=True
    )


def gradients(result, leaves, grad):
    return torch.autograd.grad(result, leaves, grad, retain_graph=True, allow_unused=True)


# ---------------------------------------------------------------- segment_reduce

SEGMENTS = [0, 2, 2, 5, 6, 6]
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "amax", "amin")


def segmented(device, dtype):
    """(name, data, keywords): offsets and lengths of both dtypes, and data of several shapes and strides."""
    offsets = torch.tensor(SEGMENTS, device=device)
    for kind, form in itertools.product((torch.int64, torch.int32), ("offsets", "lengths", "unsafe")):
        keywords = {"offsets": offsets.to(kind)} if form == "offsets" else {"lengths": offsets.diff().to(kind)}
        if form == "unsafe":
            keywords["unsafe"] = True
        for k, data in enumerate(
            (
                rows(device, dtype, 6),
                rows(device, dtype, 6, 3),
                rows(device, dtype, 6, 2, 3),
                rows(device, dtype, 3, 6).t(),
                rows(device, dtype, 6, 5)[:, 1:4],
                rows(device, dtype, 12, 3)[::2],
            )
        ):
            yield f"{form} {kind} {k}", data, keywords


@each_device
@each_dtype
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segment_reduce(device, dtype, reduce):
    """Results and gradients are ATen's: small integers make sums exact, and gradients of both signs meet ties."""
    failures = Failures()
    for (name, data, keywords), initial in itertools.product(segmented(device, dtype), (None, 0, 1, -2.5, 100)):
        with failures.sample(f"{name} initial={initial}"):
            wide = data.detach().clone().double().requires_grad_()
            exact = torch.segment_reduce(wide, reduce, initial=initial, **keywords)
            sign = torch.where(torch.arange(exact.numel(), device=device) % 3 == 0, -1.0, 2.0).view_as(exact)
            leaf = data.detach().requires_grad_()
            want = torch.segment_reduce(leaf, reduce, initial=initial, **keywords)
            with counted() as calls, override(device):
                got = torch.segment_reduce(leaf, reduce, initial=initial, **keywords)
                (grad,) = gradients(got, [leaf], sign.to(dtype))
            failures.add(name, different_metadata(got.detach(), want.detach()))
            (exact_grad,) = gradients(exact, [wide], sign.double())
            assert_near(got, exact)
            assert_near(grad, exact_grad)
            assert grad.is_contiguous()
            # The result of the kernel is rounded, and a sum or a product of it would be rounded twice.
            combined = reduce in ("sum", "mean", "prod") and initial not in (None, reduce == "prod")
            assert calls["segment_reduce"] == {"unsupported" if combined else "taken": 1}
            backward = calls["_segment_reduce_backward"]
            assert backward == {"unsupported" if combined or reduce == "prod" else "taken": 1}, backward
    failures.check(at_least=150)


@each_device
def test_a_product_that_would_overflow_begins_with_zero(device):
    data, lengths = torch.full((40, 3), 6e4, device=device, dtype=torch.float16), torch.tensor([40], device=device)
    with override(device):
        result = torch.segment_reduce(data, "prod", lengths=lengths, initial=0)
    assert torch.equal(result, torch.zeros_like(result))


@each_device
def test_segments_with_nan_and_entries_outside(device):
    data = torch.tensor([[1.0, 2], [float("nan"), 2], [0, 0], [5, -1], [3, 0]], device=device)
    offsets = torch.tensor([1, 2, 4], device=device)
    for reduce in REDUCTIONS[:4]:
        results = []
        for used in (False, True):
            leaf = data.clone().requires_grad_()
            with override(device) if used else torch.enable_grad():
                out = torch.segment_reduce(leaf, reduce, offsets=offsets)
                results.append([out.detach(), *gradients(out, [leaf], torch.full_like(out, 3))])
        for ours, theirs in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@each_device
def test_errors_of_segments(device):
    data, lengths = torch.ones(4, 2, device=device), torch.tensor([1, 3], device=device)
    calls = [
        lambda: torch.segment_reduce(data, "sum", lengths=lengths + 1),
        lambda: torch.segment_reduce(data, "sum", lengths=lengths - 2),
        lambda: torch.segment_reduce(data, "sum"),
        lambda: torch.segment_reduce(data, "median", lengths=lengths),
        lambda: torch.segment_reduce(data, "sum", lengths=lengths, axis=1),
        lambda: torch.segment_reduce(data, "sum", lengths=lengths, axis=5),
        lambda: torch.segment_reduce(data, "sum", lengths=lengths.float()),
        lambda: torch.segment_reduce(data.half(), "sum", lengths=lengths, initial=1e6),
        lambda: torch.segment_reduce(data.int(), "sum", lengths=lengths),
        lambda: torch.segment_reduce(data, "sum", lengths=lengths, indices=lengths),
    ]
    for call in calls:
        want = raised_by(call)
        with override(device):
            got = raised_by(call)
        assert want is not None and repr(got) == repr(want)


# ---------------------------------------------------------------- scatter_reduce

INDEX = [0, 3, 3, 1, 0, 3]


def scattered(device, dtype):
    """(self, dim, index, source): rows 2 and 4 of 5 get nothing."""
    index = torch.tensor(INDEX, device=device)
    yield rows(device, dtype, 5, 3), 0, index[:, None].expand(6, 3), rows(device, dtype, 6, 3) + 1
    yield rows(device, dtype, 5), 0, index, rows(device, dtype, 6) + 1
    yield rows(device, dtype, 2, 5, 3), 1, index[None, :, None].expand(2, 6, 3), rows(device, dtype, 2, 6, 3) + 1
    yield rows(device, dtype, 4, 5), -1, index.expand(4, 6), rows(device, dtype, 4, 6) + 1
    yield rows(device, dtype, 3, 5).t(), 0, index[:, None].expand(6, 3), (rows(device, dtype, 6, 7) + 1)[:, 2:5]
    yield rows(device, dtype, 5, 2, 2), -3, index[:, None, None].expand(6, 2, 2), rows(device, dtype, 6, 2, 2) + 1


@each_device
@each_dtype
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["mean", "amax", "amin", "sum"])
def test_scatter_reduce(device, dtype, reduce, include_self):
    failures = Failures()
    for k, (own, dim, index, source) in enumerate(scattered(device, dtype)):
        with failures.sample(f"{k}"):

            def call(own, source, dim=dim, index=index):
                return own.scatter_reduce(dim, index, source, reduce, include_self=include_self)

            wide = [t.detach().clone().double().requires_grad_() for t in (own, source)]
            exact = call(*wide)
            want = call(own, source)
            leaves = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (own, source)]
            with counted() as calls, override(device):
                got = call(*leaves)
                grads = gradients(got, leaves, torch.ones_like(got))
                in_place = own.clone(memory_format=torch.preserve_format)
                in_place.scatter_reduce_(dim, index, source, reduce, include_self=include_self)
                out = torch.full_like(own, 7)
                torch.scatter_reduce(own, dim, index, source, reduce, include_self=include_self, out=out)
            failures.add(f"{k}", different_metadata(got.detach(), want))
            assert_near(got, exact)
            for ours, theirs in zip(grads, gradients(exact, wide, torch.ones_like(exact)), strict=True):
                assert_near(ours, theirs)
            failures.add(f"{k}", different_bits(in_place, got.detach()))
            failures.add(f"{k}", different_bits(out, got.detach()))
            expected = "unsupported" if reduce == "sum" and not include_self else "taken"
            assert calls["scatter_reduce"] == {expected: 3}, calls
    failures.check(at_least=6)


@each_device
def test_nan_and_infinity_are_scattered(device):
    nan, inf = float("nan"), float("inf")
    own = torch.tensor([[1.0, nan], [inf, 2], [nan, -inf]], device=device)
    source = torch.tensor([[nan, 3.0], [-inf, 5], [inf, 0]], device=device)
    index = torch.tensor([0, 1, 1], device=device)[:, None].expand(3, 2)
    for reduce, include_self in itertools.product(("mean", "amax", "amin"), (True, False)):
        want = own.scatter_reduce(0, index, source, reduce, include_self=include_self)
        with counted() as calls, override(device):
            got = own.scatter_reduce(0, index, source, reduce, include_self=include_self)
        assert calls["scatter_reduce"] == {"taken": 1}
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@each_device
def test_scatters_that_are_passed_on(device):
    """Elements with an index each, destinations that alias, and products, in which self takes part first.

    ATen has no deterministic product."""
    own, source = torch.ones(5, 3, device=device), torch.ones(6, 3, device=device)
    index = torch.tensor(INDEX, device=device)[:, None].expand(6, 3)
    with counted() as calls, override(device):
        own.scatter_reduce(0, index.contiguous(), source, "amax")
        torch.scatter_reduce(own, 0, index, source, "amax", out=own)
        torch.scatter_reduce(own, 0, index, source, "amax", out=torch.empty(0, device=device))
        own.zero_().scatter_reduce_(0, index, source.fill_(1e30), "prod")
        with deterministic_algorithms(True):
            own += own.scatter_reduce(0, index, source, "prod")
    assert calls["scatter_reduce"] == {"layout": 1, "unsupported": 3, "taken": 1}
    assert not own.any()


# ---------------------------------------------------------------- sparse products


def sparse(device, dtype, index=torch.int64, layout=torch.sparse_csr):
    """5 x 4 with 7 entries. Rows 1 and 4 and column 3 have none, and one row has all the others."""
    crow = torch.tensor([0, 3, 3, 5, 7, 7], dtype=index, device=device)
    col = torch.tensor([0, 1, 2, 0, 2, 1, 2], dtype=index, device=device)
    values = torch.tensor([1.0, -2, 3, 0.5, 4, -1, 2], dtype=dtype, device=device)
    a = torch.sparse_csr_tensor(crow, col, values, (5, 4))
    return a if layout == torch.sparse_csr else a.to_sparse(layout=layout)


def dense_of(a, requires_grad=False):
    """The matrix in float64, dense."""
    crow, col = a.crow_indices().long(), a.col_indices().long()
    row = torch.arange(a.shape[0], device=a.device).repeat_interleave(crow.diff())
    values = a.values().detach().double().requires_grad_(requires_grad)
    return torch.zeros(a.shape, dtype=torch.double, device=a.device).index_put(
        (row, col), values, accumulate=True
    ), values


def products(device, dtype):
    """(operator, function of a and x, x)."""
    x = rows(device, dtype, 4, 6)
    own = rows(device, dtype, 5, 6)
    yield "mm", lambda a, x: a @ x, x
    yield "mm", lambda a, x: torch.mm(a, x), rows(device, dtype, 6, 4).t()
    yield "mm", lambda a, x: a @ x, rows(device, dtype, 4, 9)[:, 2:8]
    yield "addmm", lambda a, x: torch.sparse.mm(a, x), x
    yield "addmm", lambda a, x: torch.addmm(own.to(x.dtype), a, x), x
    yield "addmm", lambda a, x: torch.addmm(own[0].to(x.dtype), a, x, beta=2, alpha=-0.5), x
    yield "addmm", lambda a, x: torch.addmm(own[:, :1].to(x.dtype), a, x, beta=0, alpha=2), x


@each_device
@each_dtype
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
def test_sparse_products(device, dtype, index):
    """Compared with dense products in float64, with gradients of x, and of a's values where PyTorch makes a sparse gradient."""
    failures = Failures()
    for k, (name, function, x) in enumerate(products(device, dtype)):
        with failures.sample(f"{k} {name}"):
            a = sparse(device, dtype, index)
            wide, values = dense_of(a, requires_grad=True)
            wide_x = x.detach().double().requires_grad_()
            exact = function(wide, wide_x)
            grad = torch.arange(exact.numel(), device=device).view_as(exact).sub(9).double()
            of_values, of_x = gradients(exact, [values, wide_x], grad)
            leaf, sparse_leaf = x.detach().requires_grad_(), a.requires_grad_(k == 3)
            with counted() as calls, override(device):
                got = function(sparse_leaf, leaf)
                (own_x,) = gradients(got, [leaf], grad.to(dtype))
                own_values = gradients(got, [sparse_leaf], grad.to(dtype))[0].values() if k == 3 else None
            assert got.is_contiguous() and got.dtype == dtype
            assert_near(got, exact)
            assert_near(own_x, of_x)
            assert calls[name]["taken"] >= 1 and calls["mm"]["taken"] == (2 if name == "mm" else 1), calls
            if own_values is not None:
                assert_near(own_values, of_values)
                assert calls["sparse_sampled_addmm"] == {"taken": 1}
    failures.check(at_least=7)


@each_device
def test_destinations_of_sparse_products(device):
    a, x = sparse(device, torch.float32), rows(device, torch.float32, 4, 6)
    own, wide = rows(device, torch.float32, 5, 6), rows(device, torch.float32, 5, 8)
    want = torch.addmm(own, a, x, beta=3)
    for out in (torch.full_like(own, 7), wide[:, 1:7], own.clone()):
        same = own if out.shape != own.shape else out.copy_(own)
        with counted() as calls, override(device):
            result = torch.addmm(same, a, x, beta=3, out=out)
        assert result is out and calls["addmm"] == {"taken": 1}
        torch.testing.assert_close(out, want)
    with counted() as calls, override(device):
        grown = torch.addmm(own, a, x, beta=3, out=torch.empty(0, device=device))
    assert calls["addmm"] == {"unsupported": 1}
    torch.testing.assert_close(grown, want)


@each_device
@each_dtype
def test_sampled_addmm(device, dtype):
    a, b = rows(device, dtype, 5, 6), rows(device, dtype, 6, 4)
    for left, right, beta, alpha in ((a, b, 1, 1), (a, b.t().contiguous().t(), 0, -2), (a, b, 0.5, 0.25)):
        s = sparse(device, dtype).requires_grad_(dtype in (torch.float32, torch.float64))
        wide, values = dense_of(s, requires_grad=True)
        crow, col = s.crow_indices(), s.col_indices()
        row = torch.arange(5, device=device).repeat_interleave(crow.diff())
        exact = alpha * (left.double() @ right.double())[row, col] + beta * values
        with counted() as calls, override(device):
            got = torch.sparse.sampled_addmm(s, left, right, beta=beta, alpha=alpha)
        assert calls["sparse_sampled_addmm"] == {"taken": 1}
        assert (
            got.layout == torch.sparse_csr
            and torch.equal(got.col_indices(), col)
            and torch.equal(got.crow_indices(), crow)
        )
        assert got.col_indices().data_ptr() != col.data_ptr()
        assert_near(got.values(), exact)


@each_device
def test_sparse_products_that_are_passed_on(device):
    """Dense times sparse, sparse times sparse, blocks, other dtypes, and shapes that do not fit: ATen's results and errors."""
    a, x = sparse(device, torch.float32), rows(device, torch.float32, 4, 6)
    calls = [
        lambda: rows(device, torch.float32, 3, 5) @ a,
        lambda: (a @ a.t()).to_dense(),
        lambda: a @ x[:3],
        lambda: a @ x.double(),
        lambda: torch.addmm(x, a, x),
        lambda: torch.sparse.sampled_addmm(a, x, x),
        lambda: sparse(device, torch.complex64) @ x.to(torch.complex64),
    ]
    for k, call in enumerate(calls):
        want, error = None, raised_by(call)
        if error is None:
            want = call()
        with counted() as made, override(device):
            got = raised_by(call)
            assert repr(got) == repr(error), k
            if error is None:
                assert different_bits(call(), want) is None, k
        taken = sum(
            row.get("taken", 0) for name, row in made.items() if name in ("mm", "addmm", "sparse_sampled_addmm")
        )
        assert taken == 0, (k, made)


each_half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=lambda dtype: str(dtype)[6:])


@each_device
@each_half
def test_sums_beyond_the_range_of_the_result(device, dtype):
    """What is scaled, averaged or added to is rounded once. In float16 the sums alone are infinite."""
    size, count = 4096, 70_000
    x = torch.full((size, 8), 100.0, device=device, dtype=dtype)
    row = torch.arange(2, device=device) * size
    crow, col = torch.cat([row, row[-1:] + size]), torch.arange(size, device=device).repeat(2)
    a = torch.sparse_csr_tensor(crow, col, torch.full((2 * size,), 0.5, device=device, dtype=dtype), (2, size))
    c = torch.full((2, 8), 6.0, device=device, dtype=dtype)
    with counted() as calls, override(device):
        scaled = torch.addmm(c, a, x, beta=0.5, alpha=2**-7)
        ones, index = torch.ones(count, 8, device=device, dtype=dtype), torch.zeros(1, 1, device=device, dtype=int)
        mean = torch.ones(1, 8, device=device, dtype=dtype).scatter_reduce(0, index.expand(count, 8), ones, "mean")
        twenty = torch.full((1024, size), 20.0, device=device, dtype=dtype)
        sampled = torch.sparse.sampled_addmm(a, twenty[:2, :1024], twenty, beta=2, alpha=2**-6)
    assert_near(scaled, torch.full((2, 8), 3 + size * 50 * 2**-7, device=device, dtype=torch.double))
    assert_near(mean, torch.ones(1, 8, device=device, dtype=torch.double))
    assert_near(sampled.values(), torch.full((2 * size,), 1 + 1024 * 400 * 2**-6, device=device, dtype=torch.double))
    assert all(calls[name] == {"taken": 1} for name in ("addmm", "scatter_reduce", "sparse_sampled_addmm")), calls


@each_device
@each_dtype
def test_matrices_without_entries(device, dtype):
    """ATen has no kernels of half types for them. A relation without edges is such a matrix."""
    none = torch.sparse_csr_tensor(
        torch.zeros(6, device=device, dtype=int),
        torch.zeros(0, device=device, dtype=int),
        torch.zeros(0, device=device, dtype=dtype),
        (5, 4),
    )
    x, own = rows(device, dtype, 4, 6).requires_grad_(), rows(device, dtype, 5, 6)
    with counted() as calls, override(device):
        assert torch.equal(none @ x, torch.zeros_like(own))
        assert torch.equal(torch.addmm(own, none, x, beta=2), 2 * own)
        out = torch.addmm(own * torch.nan, none, x, beta=0)
        assert torch.equal(out, torch.zeros_like(own))
        assert torch.equal(torch.autograd.grad((none @ x).sum(), x)[0], torch.zeros_like(x))
        sampled = torch.sparse.sampled_addmm(none, own, own.new_ones(6, 4), beta=0.5)
        assert sampled.shape == (5, 4) and sampled.values().shape == (0,)
    assert calls["mm"] == {"taken": 3} and calls["addmm"] == {"taken": 2}, calls
    assert calls["sparse_sampled_addmm"] == {"taken": 1}


@each_device
@each_half
def test_policy_takes_half_types_without_entries(device, dtype):
    """The test above takes every call. In float32, ATen's kernel is as fast."""
    for of, reason in ((dtype, "taken"), (torch.float32, "size")):
        ptr, index = torch.zeros(6, device=device, dtype=int), torch.zeros(0, device=device, dtype=int)
        none = torch.sparse_csr_tensor(ptr, index, torch.zeros(0, device=device, dtype=of), (5, 4))
        x, own = rows(device, of, 4, 6), rows(device, of, 5, 6)
        with counted() as calls, override(device, always=False):
            assert torch.equal(none @ x, torch.zeros_like(own))
            assert torch.equal(torch.addmm(own, none, x, beta=2), 2 * own)
            assert torch.sparse.sampled_addmm(none, own, own.new_ones(6, 4)).values().shape == (0,)
        made = {name: calls[name] for name in ("mm", "addmm", "sparse_sampled_addmm")}
        assert made["sparse_sampled_addmm"] == {reason: 1} and reason in made["mm"] and reason in made["addmm"], made


# ---------------------------------------------------------------- kept transposes


def kept_and_made():
    return tuple(torch.ops.gpuopt._override_transposes())


def step(a, x):
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad((a @ leaf).sum(), leaf)[0]


@each_device
def test_a_transpose_is_made_once(device):
    crow, col, values = (
        getattr(sparse(device, torch.float32), n)().clone() for n in ("crow_indices", "col_indices", "values")
    )
    x = rows(device, torch.float32, 4, 6)
    with override(device):
        before = kept_and_made()[1]
        for k in range(20):  # values of each step are other ones
            a = torch.sparse_csr_tensor(crow, col, values + k, (5, 4))
            torch.testing.assert_close(step(a, x), dense_of(a)[0].float().t() @ torch.ones(5, 6, device=device))
        assert kept_and_made() == (1, before + 1)
        del crow, col, a
        assert kept_and_made()[0] == 0
    assert kept_and_made()[0] == 0


@each_device
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
def test_transposes_of_many_matrices(device, index):
    """Made, kept, and made again by the device, also of index tensors with gaps."""
    generator = torch.Generator().manual_seed(0)
    with override(device):
        for size in (1, 2, 7, 60, 300, 1500):
            for gaps in (1, 2):
                count = 4 * size
                draw = [torch.randint(n, (count * gaps,), generator=generator) for n in (size, size + 3)]
                row, col = (numbers.to(device, index)[::gaps] for numbers in draw)
                crow = torch.searchsorted(row.sort().values, torch.arange(size + 1, device=device).to(index)).to(index)
                a = torch.sparse_csr_tensor(
                    crow, col, torch.ones(count, device=device), (size, size + 3), check_invariants=False
                )
                x = torch.randn(size + 3, 3, device=device)
                for _ in range(2):
                    want = torch.bincount(col, minlength=size + 3).float()[:, None].expand(-1, 3)
                    torch.testing.assert_close(step(a, x), want)
                    torch.testing.assert_close(step(a, x), want)
                    written_uncounted(a.col_indices(), a.col_indices().flip(0).add(1).remainder(size + 3))


@each_device
def test_tensors_that_live_beside_the_matrix(device):
    """Aliases of the index tensors, a transpose, and a copy of the matrix change nothing: the sort is done once."""
    a, x = sparse(device, torch.float32).detach(), rows(device, torch.float32, 4, 6)
    beside = a.crow_indices(), a.col_indices(), a.t(), a.detach()
    with override(device):
        before = kept_and_made()[1]
        for matrix in (a, a.detach(), torch.nn.Parameter(a, requires_grad=False), a):
            step(matrix, x)
        assert kept_and_made() == (1, before + 1)
        step(a.t().t(), x)  # has the identity of the kept one
        assert kept_and_made() == (1, before + 1)
    del beside


@each_device
@pytest.mark.parametrize("where", ["own", "member", "transposed first"])
def test_writes_to_the_index_are_seen(device, where):
    """Before the forward, and between forward and backward, where autograd itself refuses a write through the matrix."""
    made = sparse(device, torch.float32)
    crow, col, values = (getattr(made, n)().clone() for n in ("crow_indices", "col_indices", "values"))
    a = torch.sparse_csr_tensor(crow, col, values, (5, 4))
    x, other = rows(device, torch.float32, 4, 6), torch.tensor([1, 2, 3, 1, 3, 0, 3], device=device)
    if where == "transposed first":
        a = a.t().t()
    ones = torch.ones(5, 6, device=device)
    with override(device):
        for new in (other, col.clone()):
            step(a, x)
            step(a, x)
            leaf = x.clone().requires_grad_()
            out = a @ leaf
            if where == "member":
                a.col_indices().copy_(new)
            else:
                col.copy_(new)
                (grad,) = torch.autograd.grad(out.sum(), leaf)
                torch.testing.assert_close(grad, dense_of(a)[0].float().t() @ ones)
            torch.testing.assert_close(step(a, x), dense_of(a)[0].float().t() @ ones)


def written_uncounted(tensor, new):
    """Writes numbers that no version counter counts, as a collective or a replayed CUDA graph does."""
    alias = torch.from_numpy(tensor.numpy()) if tensor.device.type == "cpu" else torch.from_dlpack(tensor.detach())
    before = tensor._version
    alias.copy_(new)
    assert tensor._version == before


@each_device
def test_writes_that_are_not_counted_are_seen(device):
    """A transpose is kept with a fingerprint of the numbers that it was made of."""
    made = sparse(device, torch.float32)
    crow, col, values = (getattr(made, n)().clone() for n in ("crow_indices", "col_indices", "values"))
    a = torch.sparse_csr_tensor(crow, col, values, (5, 4))
    x, ones = rows(device, torch.float32, 4, 6), torch.ones(5, 6, device=device)
    with override(device):
        step(a, x)
        for new in ([1, 2, 3, 1, 3, 0, 3], [0, 1, 2, 0, 2, 1, 2], [3, 3, 3, 3, 3, 3, 3]):
            written_uncounted(col, torch.tensor(new, device=device))
            for _ in range(2):
                torch.testing.assert_close(step(a, x), dense_of(a)[0].float().t() @ ones)
        written_uncounted(crow, torch.tensor([0, 1, 1, 6, 6, 7], device=device))
        torch.testing.assert_close(step(a, x), dense_of(a)[0].float().t() @ ones)
        assert kept_and_made()[0] == 1


@each_device
def test_a_matrix_that_is_written_to_in_each_step(device):
    """Nothing is kept of it for long: to notice the write and to sort again takes longer than to sort."""
    size = 3000
    col = torch.randint(0, size, (8 * size,), device=device)
    crow = torch.arange(size + 1, device=device) * 8
    a = torch.sparse_csr_tensor(crow, col, torch.ones(8 * size, device=device), (size, size))
    x, made = torch.randn(size, 5, device=device), []
    with override(device):
        for _ in range(8):
            written_uncounted(col, torch.randint(0, size, (8 * size,), device=device))
            want = torch.zeros(size, device=device).index_add(0, col, torch.ones(8 * size, device=device))
            torch.testing.assert_close(step(a, x), want[:, None].expand(size, 5))
            made.append(kept_and_made()[1])
            if device == "cuda":
                torch.cuda.synchronize()
    assert made[2] == made[0] and made[-1] == made[-2] + 1


@each_device
def test_a_csc_matrix(device):
    """Its rows are kept, as in the gradient of the CSR matrix with the same tensors."""
    a, x = sparse(device, torch.float32), rows(device, torch.float32, 5, 6)
    with counted() as calls, override(device):
        before = kept_and_made()[1]
        got = a.t() @ x
        assert torch.equal(a.t() @ x, got) and kept_and_made() == (1, before + 1)
    assert calls["mm"] == {"taken": 2}
    torch.testing.assert_close(got, a.to_dense().t() @ x)


# ---------------------------------------------------------------- reductions of sparse products


def reduced_dense(dense, pattern, x, reduce):
    """In float64: (rows, columns, features) of products, and minus infinity where there is no entry."""
    all_products = dense[:, :, None] * x[None]
    has = pattern[:, :, None].expand_as(all_products)
    if reduce in ("sum", "mean"):
        total = torch.where(has, all_products, 0).sum(1)
        return total if reduce == "sum" else total / pattern.sum(1).clamp(min=1)[:, None]
    sign = 1 if reduce == "amax" else -1
    best = torch.where(has, sign * all_products, -torch.inf).amax(1)
    return torch.where(pattern.any(1)[:, None], sign * best, 0)


@each_device
@each_dtype
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reduced_products(device, dtype, index, reduce):
    x = torch.linspace(-3, 5, 24, device=device).view(4, 6).to(dtype)  # no ties
    a = sparse(device, dtype, index).requires_grad_()
    wide, values = dense_of(a, requires_grad=True)
    pattern = dense_of(a.detach())[0] != 0
    wide_x, leaf = x.double().requires_grad_(), x.clone().requires_grad_()
    exact = reduced_dense(wide, pattern, wide_x, reduce)
    grad = torch.arange(exact.numel(), device=device).view_as(exact).sub(9).double()
    with counted() as calls, override(device):
        got = torch.sparse.mm(a, leaf, reduce)
        own_a, own_x = gradients(got, [a, leaf], grad.to(dtype))
        with torch.no_grad():
            assert different_bits(torch.sparse.mm(a, leaf, reduce), got.detach()) is None
    assert calls["_sparse_mm_reduce_impl"] == {"taken": 2} and calls["_sparse_mm_reduce_impl_backward"] == {"taken": 1}
    assert_near(got, exact)
    of_values, of_x = gradients(exact, [values, wide_x], grad)
    assert own_a.layout == torch.sparse_csr
    assert_near(own_a.values(), of_values)
    assert_near(own_x, of_x)
    if device == "cpu":
        assert different_metadata(got.detach(), torch.sparse.mm(a, leaf, reduce).detach()) is None


@each_device
def test_a_reduced_product_without_entries(device):
    a = torch.zeros(3, 4, device=device).to_sparse_csr().requires_grad_()
    x = torch.ones(4, 2, device=device, requires_grad=True)
    with override(device):
        got = torch.sparse.mm(a, x, "amax")
        grads = gradients(got, [a, x], torch.ones_like(got))
    assert torch.equal(got, torch.zeros(3, 2, device=device)) and torch.equal(grads[1], torch.zeros_like(x))


def test_an_empty_slot_is_filled_and_emptied():
    """PyTorch has no CUDA kernel of _sparse_mm_reduce_impl. Under the override there is one."""
    name, key = "aten::_sparse_mm_reduce_impl", "SparseCsrCUDA"
    before = torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    made = torch_ops.override(name.removeprefix("aten::"))
    if raised_by(made.enable) is not None:
        pytest.skip("a build without CUDA kernels")
    try:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    finally:
        made.disable()
    assert torch._C._dispatch_has_kernel_for_dispatch_key(name, key) == before


@pytest.mark.gpu
def test_a_product_that_nobody_computes():
    a = sparse("cuda", torch.float32)
    with override("cuda"), pytest.raises(NotImplementedError, match="torch_ops.override takes a CSR matrix"):
        torch.sparse.mm(a, torch.ones(4, 2, device="cuda"), "prod")


@pytest.mark.parametrize("device", [on("cuda", "cuda", name="cuda")])
def test_a_graph_keeps_no_memory_of_the_cache(device):
    """A captured backward pass sorts for itself, so that it replays after the matrix's transpose is gone."""
    a, x = sparse(device, torch.float32), rows(device, torch.float32, 4, 6).requires_grad_()
    with override(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.autograd.grad((a @ x).sum(), x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            (grad,) = torch.autograd.grad((a @ x).sum(), x)
    trash = [torch.full((64,), 3, device=device) for _ in range(8)]
    graph.replay()
    torch.testing.assert_close(grad, a.to_dense().t() @ torch.ones(5, 6, device=device))
    del trash
