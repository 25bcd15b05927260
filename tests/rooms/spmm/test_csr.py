"""torch_ops.CSR and the products of it: forms, caches, checks, gradients, transforms, tracing."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ops
from torch_ops import CSR, sddmm, spmm

from ...support.compare import close
from ...support.params import each_device

pytestmark = pytest.mark.torch_version

F64 = torch.float64
REDUCTIONS = ("sum", "mean", "max", "min")


def _edges(targets: int, sources: int, edges: int, seed: int = 0, device: str = "cpu") -> torch.Tensor:
    """Distinct edges (2, edges) in random order: sources, targets. The last target has none."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm((targets - 1) * sources, generator=generator)[:edges]
    return torch.stack([chosen % sources, chosen // sources]).to(device)


def _matrix(edge_index, values, shape) -> torch.Tensor:
    """The dense matrix with values at (target, source), in float64."""
    values = torch.ones(edge_index.shape[1], dtype=F64) if values is None else values.cpu().double()
    dense = torch.zeros(shape, dtype=F64)
    return dense.index_put((edge_index[1].cpu(), edge_index[0].cpu()), values, accumulate=True)


def _reduced(edge_index, values, shape, x, reduce: str) -> torch.Tensor:
    """The same reduction of a dense tensor of all products, masked where there is no edge. For distinct edges."""
    present = torch.zeros(shape, dtype=torch.bool)
    present[edge_index[1].cpu(), edge_index[0].cpu()] = True
    products = _matrix(edge_index, values, shape)[:, :, None] * x.cpu().double()
    counts = present.sum(1)[:, None]
    if reduce in ("sum", "mean"):
        total = torch.where(present[..., None], products, 0).sum(1)
        return total if reduce == "sum" else total / counts.clamp(min=1)
    worst = float("-inf") if reduce == "max" else float("inf")
    found = torch.where(present[..., None], products, worst)
    found = found.amax(1) if reduce == "max" else found.amin(1)
    return torch.where(counts > 0, found, 0)


class _Calls(TorchDispatchMode):
    """Counts the operators that run."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))

    def count(self, name: str) -> int:
        return sum(n.startswith(f"{name}") for n in self.names)


# ---------------------------------------------------------------- forms


@each_device
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_edge_index(device, reduce, weighted):
    """Rows are targets. Values are in the order of the edges, which are not sorted."""
    edge_index = _edges(9, 7, 30, device=device)
    values = torch.randn(30, dtype=F64, device=device) if weighted else None
    x = torch.randn(7, 5, dtype=F64, device=device)
    csr = CSR.from_edge_index(edge_index, values, size=(7, 9))
    assert csr.shape == (9, 7) and csr.nnz == 30
    want = _reduced(edge_index, values, (9, 7), x, reduce)
    torch.testing.assert_close(spmm(csr, x, reduce).cpu(), want)
    if weighted:  # new values are in the order of the edges, too
        assert csr.values is values
        torch.testing.assert_close(spmm(csr.with_values(2 * values), x, "sum"), 2 * (csr @ x))
        torch.testing.assert_close(spmm(csr, x, values=3 * values), 3 * (csr @ x))


def test_all_forms_are_the_same_matrix():
    row, col = torch.tensor([3, 0, 3, 1, 0, 3]), torch.tensor([1, 4, 0, 2, 0, 1])  # (3, 1) twice
    values = torch.arange(1.0, 7.0)
    dense = torch.zeros(5, 6).index_put((row, col), values, accumulate=True)
    coo = CSR.from_coo(row, col, values, (5, 6))
    order = torch.argsort(row, stable=True)
    plain = CSR(torch.tensor([0, 2, 3, 3, 6, 6]), col[order], values[order], (5, 6))
    forms = {
        "coo": coo,
        "edge_index": CSR.from_edge_index(torch.stack([col, row]), values, size=(6, 5)),
        "plain": plain,
        "perm": CSR(plain.ptr, plain.index, values, (5, 6), perm=order),
        "torch csr": CSR.from_torch(dense.to_sparse_csr()),
        "torch csc": CSR.from_torch(dense.to_sparse_csc()),
        "torch coo": CSR.from_torch(dense.to_sparse_coo()),
        "not coalesced": CSR.from_torch(torch.sparse_coo_tensor(torch.stack([row, col]), values, (5, 6))),
        "round trip": CSR.from_torch(coo.to_torch()),
        "unknown shape": CSR.from_coo(torch.cat([row, torch.tensor([4])]), torch.cat([col, torch.tensor([5])]),
                                      torch.cat([values, torch.zeros(1)])),
    }  # fmt: skip
    for name, form in forms.items():
        assert form.shape == (5, 6), name
        assert torch.equal(form @ torch.eye(6), dense), name
        assert torch.equal(form.t() @ torch.eye(5), dense.mT), name
        assert torch.equal(form.to_torch().to_dense(), dense), name
        assert torch.equal(form.t().to_torch().to_dense(), dense.mT), name
        assert form.to_torch().layout == torch.sparse_csr


def test_heads_to_torch_and_back():
    coo = CSR.from_coo(torch.tensor([1, 0, 1]), torch.tensor([2, 1, 0]), torch.arange(6.0).view(3, 2), (2, 3))
    dense = coo.to_torch().to_dense()
    assert dense.shape == (2, 3, 2) and torch.equal(dense[1, 2], torch.tensor([0.0, 1.0]))
    again = CSR.from_torch(coo.to_torch())
    x = torch.randn(3, 2, 4)
    torch.testing.assert_close(spmm(again, x), spmm(coo, x))


def test_sorted_entries_are_not_permuted():
    assert CSR.from_coo(torch.tensor([0, 0, 2]), torch.tensor([1, 0, 1])).perm is None
    assert CSR.from_coo(torch.tensor([2, 0, 2]), torch.tensor([1, 0, 1])).perm.tolist() == [1, 0, 2]


def test_integers_are_narrow_unless_asked():
    row, col = torch.tensor([1, 0]), torch.tensor([0, 1])
    for made in (
        CSR.from_coo(row, col),
        CSR(torch.tensor([0, 1, 2]), col),
        CSR.from_edge_index(torch.stack([row, col])),
    ):
        assert made.ptr.dtype == made.index.dtype == torch.int32
        assert made.t().index.dtype == torch.int32
    assert CSR.from_coo(row, col, dtype=torch.int64).perm.dtype == torch.int64
    assert CSR(torch.tensor([0, 1]), torch.tensor([0]), shape=(1, 2**31)).index.dtype == torch.int64
    with pytest.raises(ValueError, match="dtype must hold all sizes"):
        CSR(torch.tensor([0, 1]), torch.tensor([0]), shape=(1, 2**31), dtype=torch.int32)


def test_properties():
    csr = CSR.from_coo(torch.tensor([3, 0, 3, 3]), torch.tensor([1, 1, 0, 1]), torch.randn(4, 2), (5, 3))
    assert csr.degrees().tolist() == [1, 0, 0, 3, 0]
    assert csr.rows().tolist() == [0, 3, 3, 3] and csr.index.tolist() == [1, 1, 0, 1]
    assert csr.dtype == torch.float32 and csr.with_values(None).dtype is None and csr.device.type == "cpu"
    assert csr.t().degrees().tolist() == [1, 3, 0]
    assert repr(csr) == "CSR(shape=(5, 3), nnz=4, values=float32, 2 heads, index=int32, device=cpu, transpose cached)"
    assert repr(CSR(torch.tensor([0]), torch.tensor([], dtype=torch.int64), shape=(0, 0))) == (
        "CSR(shape=(0, 0), nnz=0, values=None, index=int32, device=cpu)"
    )


def test_nothing():
    empty = torch.empty(0, dtype=torch.int64)
    for made in (
        CSR.from_coo(empty, empty, shape=(3, 2)),
        CSR.from_edge_index(torch.empty(2, 0, dtype=torch.int64), size=(2, 3)),
        CSR(torch.zeros(4, dtype=torch.int64), empty, shape=(3, 2)),
    ):
        assert made.nnz == 0
        x = torch.ones(2, 4, requires_grad=True)
        for reduce in REDUCTIONS:
            result = spmm(made, x, reduce)
            assert result.shape == (3, 4) and not result.any()
            assert not torch.autograd.grad(result.sum(), x)[0].any()
        assert spmm(made.t(), torch.ones(3, 4)).shape == (2, 4)
        assert sddmm(made, torch.ones(3, 4), x).shape == (0,)
    assert CSR.from_coo(empty, empty).shape == (0, 0)
    assert CSR.from_edge_index(torch.empty(2, 0, dtype=torch.int64)).shape == (0, 0)


# ---------------------------------------------------------------- caches


def test_transpose_is_made_once_and_shared():
    csr = CSR.from_edge_index(_edges(6, 6, 12), num_nodes=6)
    assert not csr.has_transpose
    csr @ torch.randn(6, 2)  # no gradient, no transpose
    with torch.no_grad():
        csr @ torch.randn(6, 2, requires_grad=True)
    assert not csr.has_transpose
    weighted = csr.with_values(torch.randn(12, requires_grad=True))
    weighted @ torch.randn(6, 2)  # the gradient of values needs no transpose
    assert not csr.has_transpose
    x = torch.randn(6, 2, requires_grad=True)
    weighted @ x
    assert csr.has_transpose and weighted.has_transpose and csr.t().t().ptr is csr.ptr
    assert weighted.t().index is csr.t().index and weighted.t().values is weighted.values
    for made in (csr, weighted, csr.t()):
        for reduce in REDUCTIONS:
            with _Calls() as calls:
                torch.autograd.grad(spmm(made, x, reduce).sum(), x)
            assert calls.count("gpuopt::spmm") + calls.count("gpuopt::_spmm") == 2
            assert calls.count("gpuopt::_transpose") == calls.count("aten::sort") == 0
            assert calls.count("aten::_local_scalar_dense") == 0  # nothing waits for a GPU


def test_without_a_cached_transpose():
    """Gradients are the same if a node makes the transpose itself."""
    csr = CSR.from_edge_index(_edges(6, 5, 12), torch.randn(12, dtype=F64), size=(5, 6))
    x = torch.randn(5, 3, dtype=F64)
    for reduce in REDUCTIONS:
        got = torch.func.grad(lambda x, r=reduce: spmm(csr, x, r).pow(2).sum())(x)
        assert not csr.has_transpose  # a transpose that belongs to a transform must not stay
        leaf = x.clone().requires_grad_()
        other = CSR.from_edge_index(_edges(6, 5, 12), csr.values, size=(5, 6)).cache_transpose()
        torch.testing.assert_close(got, torch.autograd.grad(spmm(other, leaf, reduce).pow(2).sum(), leaf)[0])
    with torch.inference_mode():
        csr.cache_transpose()
    leaf = x.clone().requires_grad_()
    (csr @ leaf).sum().backward()  # inference tensors could not be saved


def test_transpose_in_a_transform_stays_out_of_the_cache():
    csr = CSR.from_edge_index(_edges(6, 5, 12), size=(5, 6))
    x = torch.randn(6, 3)
    got = torch.func.grad(lambda x: (csr.t() @ x).pow(2).sum())(x)
    assert not csr.has_transpose
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(got, torch.autograd.grad((csr.t() @ leaf).pow(2).sum(), leaf)[0])


@each_device
def test_moves(device):
    csr = CSR.from_edge_index(_edges(6, 5, 12), torch.randn(12), size=(5, 6)).cache_transpose()
    x = torch.randn(5, 3)
    want = csr @ x
    moved = csr.to(device, torch.float64)
    assert moved.device.type == device and moved.has_transpose and moved.dtype == F64
    torch.testing.assert_close((moved @ x.to(device).double()).cpu(), want.double())
    assert csr.to(torch.float16).dtype == torch.float16 and csr.to("cpu").ptr is csr.ptr
    torch.testing.assert_close(moved.t().cpu() @ torch.eye(6, dtype=F64), (csr @ torch.eye(5)).mT.double())


def test_copies():
    csr = CSR.from_edge_index(_edges(6, 5, 12), torch.randn(12), size=(5, 6)).cache_transpose()
    x = torch.randn(5, 3)
    file = io.BytesIO()
    torch.save(csr, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(csr)), copy.deepcopy(csr), torch.load(file)):
        assert torch.equal(other @ x, csr @ x) and other.has_transpose
        assert other.shape == csr.shape and other.ptr is not csr.ptr
    assert copy.copy(csr).ptr is csr.ptr


# ---------------------------------------------------------------- errors

_PTR, _INDEX = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 0, 3])
_CSR = CSR(_PTR, _INDEX, torch.ones(3), (3, 4))
_MOST = torch.full((3,), 2**63 - 1)
ERRORS = {
    "ptr no tensor": (lambda: CSR([0, 1], _INDEX), TypeError, "ptr must be a tensor.*got list"),
    "float ptr": (lambda: CSR(_PTR.float(), _INDEX), TypeError, "ptr must be int32 or int64.*float32"),
    "2-d index": (lambda: CSR(_PTR, _INDEX[None]), ValueError, r"index must be a vector.*\(1, 3\)"),
    "no ptr": (lambda: CSR(_PTR[:0], _INDEX), ValueError, "ptr must have rows . 1.*got 0"),
    "other rows": (lambda: CSR(_PTR, _INDEX, shape=(4, 4)), ValueError, "ptr.*expected 5, got 4"),
    "ptr starts late": (lambda: CSR(_PTR.clamp(1), _INDEX), ValueError, "ptr must start with 0.*got 1 and 3"),
    "ptr ends early": (lambda: CSR(_PTR[:3], _INDEX), ValueError, "expected 0 and 3, got 0 and 2"),
    "ptr decreases": (lambda: CSR(torch.tensor([0, 2, 1, 3]), _INDEX), ValueError, "not decrease.*got one of -1"),
    "column too large": (lambda: CSR(_PTR, _INDEX, shape=(3, 3)), ValueError, "index.*from 0 to 2, got 3"),
    "negative column": (lambda: CSR(_PTR, _INDEX - 1), ValueError, "index.*got -1"),
    "2^32 as a column": (lambda: CSR(_PTR, _INDEX + 2**32, shape=(3, 4)), ValueError, "index.*from 0 to 3"),
    "short values": (lambda: CSR(_PTR, _INDEX, torch.ones(2)), ValueError, r"values.*expected 3.*\(2,\)"),
    "0-d values": (lambda: CSR(_PTR, _INDEX, torch.ones(())), ValueError, r"values.*shape \(\)"),
    "3-d values": (lambda: CSR(_PTR, _INDEX, torch.ones(3, 1, 1)), ValueError, r"values.*\(3, 1, 1\)"),
    "values a number": (lambda: CSR(_PTR, _INDEX, 1.0), TypeError, "values must be a tensor.*float"),
    "values elsewhere": (lambda: CSR(_PTR, _INDEX, torch.ones(3, device="meta")), ValueError, "values.*meta"),
    "index elsewhere": (lambda: CSR(_PTR, _INDEX.to("meta")), ValueError, "index must be on the device.*meta"),
    "shape of floats": (lambda: CSR(_PTR, _INDEX, shape=(3, 4.0)), TypeError, "shape must be an integer.*got 4.0"),
    "a number as shape": (lambda: CSR(_PTR, _INDEX, shape=3), TypeError, "shape must be .rows, columns.*got int"),
    "columns beyond int64": (lambda: CSR(_PTR, _MOST), ValueError, f"index must name columns.*got {2**63 - 1}"),
    "unchecked columns": (lambda: CSR(_PTR, _MOST, check=False), ValueError, f"index must name columns.*got {2**63 - 1}"),
    "rows beyond int64": (lambda: CSR.from_coo(_MOST, _INDEX), ValueError, f"row must name rows.*got {2**63 - 1}"),
    "nodes beyond int64": (lambda: CSR.from_edge_index(_MOST.expand(2, 3)), ValueError, f"edge_index must.*got {2**63 - 1}"),
    "shape beyond int64": (lambda: CSR(_PTR, _INDEX, shape=(3, 2**63)), ValueError, f"shape must not exceed.*{2**63}"),
    "shape of one": (lambda: CSR(_PTR, _INDEX, shape=(3,)), ValueError, "shape must be .rows, columns."),
    "negative shape": (lambda: CSR(_PTR, _INDEX, shape=(3, -1)), ValueError, "shape must not be negative"),
    "short perm": (lambda: CSR(_PTR, _INDEX, perm=_PTR[:2]), ValueError, "perm.*expected 3, got 2"),
    "perm too large": (lambda: CSR(_PTR, _INDEX, perm=_INDEX), ValueError, "perm.*from 0 to 2, got 3"),
    "perm twice": (lambda: CSR(_PTR, _INDEX, perm=torch.tensor([0, 2, 2])), ValueError, "expected 3 diff.*got 2"),
    "dtype": (lambda: CSR(_PTR, _INDEX, dtype=torch.int16), TypeError, "dtype must be int32 or int64.*int16"),
    "short col": (lambda: CSR.from_coo(_INDEX, _INDEX[1:]), ValueError, "col.*expected 3, got 2"),
    "row too large": (lambda: CSR.from_coo(_INDEX, _INDEX, shape=(3, 4)), ValueError, "row must name rows.*got 3"),
    "negative row": (lambda: CSR.from_coo(_INDEX - 1, _INDEX), ValueError, "row.*got -1"),
    "edges (3, 2)": (lambda: CSR.from_edge_index(torch.ones(3, 2).long()), ValueError, r"edge_index.*\(3, 2\)"),
    "negative edges": (lambda: CSR.from_edge_index(-torch.ones(2, 3).long()), ValueError, "edge_index must.*got -1"),
    "nodes a float": (lambda: CSR.from_edge_index(_PTR.expand(2, 4), num_nodes=4.0), TypeError, "num_nodes.*got 4.0"),
    "float edges": (lambda: CSR.from_edge_index(torch.ones(2, 3)), TypeError, "edge_index must be int32 or int64"),
    "few nodes": (lambda: CSR.from_edge_index(torch.ones(2, 3).long(), num_nodes=1), ValueError, "got 1"),
    "two sizes": (lambda: CSR.from_edge_index(torch.ones(2, 3).long(), num_nodes=2, size=(2, 2)), ValueError, "one of"),
    "dense tensor": (lambda: CSR.from_torch(torch.eye(2)), ValueError, "tensor must be a sparse matrix.*strided"),
    "no tensor": (lambda: CSR.from_torch([1]), TypeError, "tensor must be a sparse tensor.*list"),
    "with_values": (lambda: _CSR.with_values(torch.ones(4)), ValueError, r"values.*expected 3.*\(4,\)"),
    "spmm of a tensor": (lambda: spmm(torch.eye(2), torch.eye(2)), TypeError, "spmm: csr.*expected CSR, got Tensor"),
    "other columns": (lambda: _CSR @ torch.ones(3, 2), RuntimeError, r"spmm: dense.*expected 4, got 3.*\(3, 2\)"),
    "vector of columns": (lambda: _CSR @ torch.ones(5), RuntimeError, "spmm: dense.*expected 4, got 5"),
    "0-d dense": (lambda: _CSR @ torch.ones(()), RuntimeError, "spmm: dense"),
    "unknown reduce": (lambda: spmm(_CSR, torch.ones(4, 1), "prod"), ValueError, "spmm: reduce.*got 'prod'"),
    "other dtype": (lambda: _CSR @ torch.ones(4, 1).double(), RuntimeError, "value must have the dtype of dense"),
    "heads": (lambda: spmm(_CSR, torch.ones(4, 2), values=torch.ones(3, 2)), RuntimeError, "dense must be .*heads"),
    "sddmm rows": (lambda: sddmm(_CSR, torch.ones(4, 2), torch.ones(4, 2)), RuntimeError, "sddmm: a.*expected 3"),
    "sddmm columns": (lambda: sddmm(_CSR, torch.ones(3, 2), torch.ones(3, 2)), RuntimeError, "sddmm: b.*expected 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    function, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        function()


def test_numbers_of_other_types():
    """Objects with ``__index__`` are integers."""
    edges = torch.tensor([[0, 1], [1, 2]])
    for three in (np.int64(3), np.uint8(3), torch.tensor(3)):
        assert CSR.from_edge_index(edges, num_nodes=three).shape == (3, 3)
        assert CSR.from_edge_index(edges, size=(three, 4)).shape == (4, 3)
        assert torch_ops.triangle_count(edges, num_nodes=three) == 0


def test_unchecked():
    """Nothing looks at the numbers, but at shapes."""
    assert CSR(_PTR, _INDEX, shape=(3, 3), check=False).shape == (3, 3)
    with pytest.raises(ValueError, match="values"):
        CSR(_PTR, _INDEX, torch.ones(2), shape=(3, 4), check=False)


# ---------------------------------------------------------------- numbers


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_summed_in_float32_and_counted_in_integers(device, dtype):
    """A sum of ones in a half type stops at 256 or 2048, a count in float16 at 65504."""
    count = 2**17
    csr = CSR(
        torch.tensor([0, count], device=device), torch.zeros(count, dtype=torch.int64, device=device), shape=(1, 1)
    )
    x = torch.full((1, 2), 0.25, dtype=dtype, device=device, requires_grad=True)
    assert spmm(csr, x)[0, 0].item() == torch.tensor(count / 4).to(dtype).item()
    mean = spmm(csr, x, "mean")
    assert mean.tolist() == [[0.25, 0.25]]
    assert torch.autograd.grad(mean.sum(), x)[0].tolist() == [[1.0, 1.0]]
    one = CSR(torch.tensor([0, 1], device=device), torch.tensor([0], device=device), shape=(1, 1))
    ones = torch.ones(1, 4096, dtype=dtype, device=device)
    assert sddmm(one, ones, ones).item() == 4096


@each_device
def test_the_first_of_equal_maxima_has_the_gradient(device):
    csr = CSR(torch.tensor([0, 3, 4, 4], device=device), torch.tensor([1, 0, 2, 1], device=device), shape=(3, 3))
    x = torch.tensor([[1.0], [1.0], [0.0]], device=device, requires_grad=True)
    weights = torch.ones(4, device=device, requires_grad=True)
    result = spmm(csr.with_values(weights), x, "max")
    to_x, to_weights = torch.autograd.grad(result, (x, weights), torch.tensor([[2.0], [3.0], [5.0]], device=device))
    assert to_x.tolist() == [[0.0], [5.0], [0.0]]  # the row without entries adds nothing
    assert to_weights.tolist() == [2.0, 0.0, 0.0, 3.0]


@each_device
def test_nan_is_the_greatest_and_the_least(device):
    csr = CSR(torch.tensor([0, 3], device=device), torch.tensor([0, 1, 2], device=device), shape=(1, 3))
    x = torch.tensor([[1.0], [float("nan")], [float("inf")]], device=device)
    assert spmm(csr, x, "max").isnan().all() and spmm(csr, x, "min").isnan().all()
    lowest = torch.full((3, 1), -float("inf"), device=device)
    assert spmm(csr, lowest, "max").item() == -float("inf")


@each_device
def test_repeats_bit_for_bit(device):
    edge_index = _edges(50, 40, 900, device=device)
    values = torch.randn(900, device=device, requires_grad=True)
    x = torch.randn(40, 33, device=device, requires_grad=True)
    for reduce in REDUCTIONS:
        runs = []
        for _ in range(2):
            csr = CSR.from_edge_index(edge_index, values, size=(40, 50))
            result = spmm(csr, x, reduce)
            runs.append((result, *torch.autograd.grad(result.sin().sum(), (x, values))))
        assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True)), reduce


# ---------------------------------------------------------------- derivatives


@each_device
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_gradients_equal_those_of_a_dense_matrix(device, reduce):
    edge_index = _edges(9, 7, 30, device=device)
    values = torch.randn(30, dtype=F64, device=device, requires_grad=True)
    x = torch.randn(7, 4, dtype=F64, device=device, requires_grad=True)
    csr = CSR.from_edge_index(edge_index, values, size=(7, 9))
    weights = torch.randn(9, 4, dtype=F64)
    got = torch.autograd.grad((spmm(csr, x, reduce).cpu() * weights).sum(), (x, values))
    want = torch.autograd.grad((_reduced(edge_index, values, (9, 7), x, reduce) * weights).sum(), (x, values))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_sddmm_equals_a_dense_product():
    edge_index = _edges(9, 7, 30)
    csr = CSR.from_edge_index(edge_index, size=(7, 9))
    a, b = (torch.randn(n, 2, 3, dtype=F64, requires_grad=True) for n in (9, 7))
    want = torch.einsum("mhf,khf->mkh", a, b)[edge_index[1], edge_index[0]]  # in the order of the edges
    got = sddmm(csr, a, b)
    torch.testing.assert_close(got, want)
    weights = torch.randn(30, 2, dtype=F64)
    for ours, theirs in zip(torch.autograd.grad(got, (a, b), weights), torch.autograd.grad(want, (a, b), weights)):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(sddmm(csr, a[:, 0], b[:, 0]), want[:, 0])
    # It is the gradient of the values of a product.
    values, x = torch.randn(30, dtype=F64, requires_grad=True), b[:, 0].detach()
    grad = torch.randn(9, 3, dtype=F64)
    torch.testing.assert_close(torch.autograd.grad(spmm(csr, x, values=values), values, grad)[0], sddmm(csr, grad, x))


DERIVED = {
    "matrix": (lambda: (torch.randn(5), torch.randn(3, 2)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "batches": (lambda: (torch.randn(5), torch.randn(2, 3, 1)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "heads": (lambda: (torch.randn(5, 2), torch.randn(3, 2, 1)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "vector": (lambda: (torch.randn(5), torch.randn(3)), lambda c, v, x, r: spmm(c, x, r, values=v)),
    "transpose": (lambda: (torch.randn(5), torch.randn(4, 2)), lambda c, v, x, r: spmm(c.with_values(v).t(), x, r)),
}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", DERIVED)
def test_derivatives(name, reduce, cached):
    """First and second derivatives in both modes, and batches of them, with entries that repeat."""
    make, function = DERIVED[name]
    csr = CSR.from_coo(torch.tensor([2, 0, 2, 0, 3]), torch.tensor([1, 1, 0, 1, 2]), shape=(4, 3))
    if cached:
        csr.cache_transpose()
    inputs = tuple(t.double().requires_grad_() for t in make())
    checks = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(lambda v, x: function(csr, v, x, reduce), inputs, **checks)
    assert gradgradcheck(
        lambda v, x: function(csr, v, x, reduce), inputs, check_fwd_over_rev=True, check_rev_over_rev=True
    )


def test_third_derivatives_of_a_maximum():
    csr = CSR.from_coo(torch.tensor([2, 0, 2, 0]), torch.tensor([1, 1, 0, 2]), shape=(4, 3))
    v, x = torch.randn(4, dtype=F64, requires_grad=True), torch.randn(3, 2, dtype=F64, requires_grad=True)

    def first(v, x):
        return torch.autograd.grad(spmm(csr, x, "max", values=v).pow(3).sum(), (v, x), create_graph=True)

    assert gradgradcheck(first, (v, x))


# ---------------------------------------------------------------- torch.func


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("heads", [(), (2,)])
def test_vmap_over_values_and_dense(reduce, heads):
    csr = CSR.from_edge_index(_edges(6, 5, 12), size=(5, 6))
    values, x = torch.randn(3, 12, *heads, dtype=F64), torch.randn(3, 5, *heads, 4, dtype=F64)

    def one(v, x):
        return spmm(csr, x, reduce, values=v)

    for dims in ((0, 0), (0, None), (None, 0)):
        v, y = (t if d == 0 else t[0] for t, d in zip((values, x), dims, strict=True))
        with _Calls() as calls:
            got = torch.vmap(one, dims)(v, y)
        assert calls.count("gpuopt::spmm") == 1
        want = torch.stack([one(*(t[i] if d == 0 else t for t, d in zip((v, y), dims, strict=True))) for i in range(3)])
        torch.testing.assert_close(got, want)


def test_vmap_over_the_matrix_is_refused():
    csr = CSR.from_edge_index(_edges(6, 5, 12), size=(5, 6))
    with pytest.raises(NotImplementedError, match="ptr must be the same for all examples"):
        torch.vmap(lambda ptr: torch.ops.gpuopt.spmm(ptr, csr.index, None, None, torch.ones(5, 2)))(
            torch.stack([csr.ptr] * 2)
        )


def test_a_matrix_is_an_argument_of_transforms():
    csr = CSR.from_edge_index(_edges(6, 5, 12), torch.randn(12, dtype=F64), size=(5, 6))
    x = torch.randn(3, 5, 4, dtype=F64)
    want = torch.stack([csr @ y for y in x])
    torch.testing.assert_close(torch.vmap(lambda c, y: c @ y, (None, 0))(csr, x), want)
    torch.testing.assert_close(torch.vmap(lambda c, y: c.t().t() @ y, (None, 0))(csr, x), want)
    per_example = torch.vmap(torch.func.grad(lambda y: (csr @ y).pow(2).sum()))(x)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(per_example, torch.autograd.grad((csr @ leaf).pow(2).sum(), leaf)[0])


# ---------------------------------------------------------------- nested tensors, tracing


def test_it_is_a_node_of_nested_tensors():
    csr = CSR.from_edge_index(_edges(6, 5, 12), torch.randn(12), size=(5, 6)).cache_transpose()
    leaves, spec = pytree.tree_flatten({"a": csr})
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    again = pytree.tree_unflatten(leaves, pytree.treespec_loads(pytree.treespec_dumps(spec)))["a"]
    assert isinstance(again, CSR) and again.shape == csr.shape and again.has_transpose
    x = torch.randn(5, 3)
    assert torch.equal(again @ x, csr @ x)
    double = pytree.tree_map(lambda t: t.double() if t.is_floating_point() else t, csr)
    assert double.dtype == F64
    other = CSR.from_edge_index(_edges(8, 9, 20), torch.randn(20), size=(9, 8)).cache_transpose()
    assert pytree.tree_structure(csr) == pytree.tree_structure(other)  # sizes are no constants of the structure
    names = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(csr)[0]]
    assert names[:2] == [".ptr", ".index"] and ".values" in names


@pytest.fixture
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _layer(csr: CSR, x: torch.Tensor, reduce: str = "mean") -> torch.Tensor:
    return spmm(csr, x.sin(), reduce).relu()


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_compile(reduce, cached):
    csr = CSR.from_edge_index(_edges(6, 5, 12), torch.randn(12, requires_grad=True), size=(5, 6))
    if cached:
        csr.cache_transpose()
    x = torch.randn(5, 3, requires_grad=True)
    compiled = torch.compile(_layer, fullgraph=True, backend="aot_eager")
    closed = torch.compile(lambda x: _layer(csr, x, reduce), fullgraph=True, backend="aot_eager")
    want = _layer(csr, x, reduce)
    grads = torch.autograd.grad(want.pow(2).sum(), (x, csr.values))
    for got in (compiled(csr, x, reduce), closed(x)):
        assert close(got, want, 1) is None
        for ours, theirs in zip(torch.autograd.grad(got.pow(2).sum(), (x, csr.values)), grads, strict=True):
            assert close(ours, theirs) is None


@pytest.mark.usefixtures("_fresh_dynamo")
def test_compile_with_inductor():
    csr = CSR.from_edge_index(_edges(6, 5, 12), torch.randn(12, requires_grad=True), size=(5, 6)).cache_transpose()
    x = torch.randn(5, 3, requires_grad=True)
    got = torch.compile(_layer, fullgraph=True)(csr, x)
    want = _layer(csr, x)
    assert close(got, want, 4) is None
    for ours, theirs in zip(*(torch.autograd.grad(y.sum(), (x, csr.values)) for y in (got, want)), strict=True):
        assert close(ours, theirs) is None


@pytest.mark.usefixtures("_fresh_dynamo")
def test_other_graphs_do_not_compile_again():
    """Sizes become symbols."""
    count = 0

    def backend(graph, inputs):
        nonlocal count
        count += 1
        return graph

    compiled = torch.compile(_layer, fullgraph=True, backend=backend, dynamic=True)
    for k in range(5):
        targets, sources = 6 + 3 * k, 5 + 2 * k
        csr = CSR.from_edge_index(
            _edges(targets, sources, 12 + 8 * k, seed=k), size=(sources, targets)
        ).cache_transpose()
        x = torch.randn(sources, 3 + k)
        torch.testing.assert_close(compiled(csr, x), _layer(csr, x))
    assert count <= 2


@pytest.mark.usefixtures("_fresh_dynamo")
def test_matrices_inside_a_compiled_function():
    edge_index, values, x = _edges(6, 5, 12), torch.randn(12, requires_grad=True), torch.randn(5, 3, requires_grad=True)

    def made_inside(edge_index, values, x):
        csr = CSR.from_edge_index(edge_index, values, size=(5, 6))
        y = spmm(csr, x)
        return y, spmm(csr.t(), y), spmm(csr.with_values(2 * values), x)

    got = torch.compile(made_inside, fullgraph=True, backend="aot_eager")(edge_index, values, x)
    want = made_inside(edge_index, values, x)
    for ours, theirs in zip(got, want, strict=True):
        assert close(ours, theirs, 1) is None
        pair = (torch.autograd.grad(y.pow(2).sum(), (values, x), retain_graph=True) for y in (ours, theirs))
        for a, b in zip(*pair, strict=True):
            assert close(a, b) is None

    def weighted(csr, values):
        return csr.with_values(values * 2), csr.t()

    csr = CSR.from_edge_index(edge_index, size=(5, 6)).cache_transpose()
    new, transpose = torch.compile(weighted, fullgraph=True, backend="aot_eager")(csr, values)
    torch.testing.assert_close(new @ x, spmm(csr, x, values=2 * values))
    assert transpose.shape == (5, 6) and torch.equal(transpose @ torch.eye(6), csr.t() @ torch.eye(6))


class _Model(torch.nn.Module):
    def forward(self, csr, x):
        return {"result": spmm(csr, x, "mean"), "scores": csr.with_values(sddmm(csr, spmm(csr, x), x))}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_export(dynamic, strict):
    csr = CSR.from_edge_index(_edges(6, 5, 12), size=(5, 6)).cache_transpose()
    x = torch.randn(5, 3)
    auto = torch.export.Dim.AUTO
    shapes = None
    if dynamic:
        shapes = {"csr": [{d: auto for d in range(t.dim()) if t.shape[d] > 1} for t in pytree.tree_leaves(csr)],
                  "x": {0: auto, 1: auto}}  # fmt: skip
    program = torch.export.export(_Model(), (csr, x), dynamic_shapes=shapes, strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    cases = [(csr, x)]
    if dynamic:
        other = CSR.from_edge_index(_edges(9, 8, 31), size=(8, 9)).cache_transpose()
        cases.append((other, torch.randn(8, 7)))
    for matrix, y in cases:
        got, want = loaded(matrix, y), _Model()(matrix, y)
        torch.testing.assert_close(got["result"], want["result"])
        assert isinstance(got["scores"], CSR) and got["scores"].shape == matrix.shape
        torch.testing.assert_close(got["scores"].values, want["scores"].values)


class _Made(torch.nn.Module):
    """Makes its matrices of plain tensors."""

    def forward(self, ptr, index, row, x):
        shape = ptr.shape[0] - 1, x.shape[0]
        return spmm(CSR(ptr, index, shape=shape), x, "max"), spmm(CSR.from_coo(row, index, shape=shape), x)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("rows, columns", [(5, 4), (4, 6)])
def test_export_of_matrices_that_are_made_inside(rows, columns, strict):
    """No size is compared with another one: a program that was exported for a tall matrix computes wide ones."""

    def arguments(rows, columns, entries, features):
        row = torch.randint(rows, (entries,)).sort().values
        ptr = torch.searchsorted(row, torch.arange(rows + 1))
        return ptr, torch.randint(columns, (entries,)), row, torch.randn(columns, features)

    entries, columns_, features = (torch.export.Dim(name, max=2**20) for name in ("entries", "columns", "features"))
    pointers = torch.export.Dim("pointers", min=3, max=2**20)
    shapes = {"ptr": {0: pointers}, "index": {0: entries}, "row": {0: entries}, "x": {0: columns_, 1: features}}
    example = arguments(rows, columns, 7, 3)
    exported = torch.export.export(_Made(), example, dynamic_shapes=shapes, strict=strict).module()
    for sizes in ((3, 9, 5, 2), (9, 3, 20, 6), (4, 4, 30, 4), (30, 40, 10, 8)):
        call = arguments(*sizes)
        for got, want in zip(exported(*call), _Made()(*call), strict=True):
            torch.testing.assert_close(got, want)


# ---------------------------------------------------------------- autocast


@each_device
def test_autocast(device):
    csr = CSR.from_edge_index(_edges(6, 5, 12, device=device), torch.randn(12, device=device), size=(5, 6))
    x = torch.randn(5, 8, device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        result, scores = csr @ x, sddmm(csr, torch.randn(6, 8, device=device), x)
        half = csr @ x.bfloat16()
    assert result.dtype == scores.dtype == torch.bfloat16 and torch.equal(result, half)
    assert torch.autograd.grad(result.sum(), x)[0].dtype == torch.float32


@each_device
def test_later_writes_to_the_integers_change_nothing(device):
    for dtype in (torch.int32, torch.int64):
        ptr, index, row = (torch.tensor(n, dtype=dtype, device=device) for n in ([0, 2, 3], [0, 2, 1], [0, 0, 1]))
        made = [CSR(ptr, index, shape=(2, 3), dtype=dtype), CSR.from_coo(row, index, shape=(2, 3), dtype=dtype)]
        for written in (ptr, index, row):
            written.zero_()
        for csr in made:
            assert csr.ptr.tolist() == [0, 2, 3] and csr.index.tolist() == [0, 2, 1]


@pytest.mark.gpu
def test_a_transpose_that_is_made_on_another_stream():
    """The first use waits for the sort, which waits for work before it, and the memory stays until the use has ended."""
    edges, x = _edges(5000, 5000, 200_000, device="cuda"), torch.randn(5000, 64, device="cuda")
    want = CSR.from_edge_index(edges, size=(5000, 5000)).cache_transpose().t() @ x
    side, busy = torch.cuda.Stream(), torch.empty(2**26, device="cuda")
    for _ in range(5):
        csr = CSR.from_edge_index(edges, size=(5000, 5000))
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            for _ in range(20):
                busy.normal_()
            csr.cache_transpose()
        got = csr.t() @ x
        del csr
        trash = [torch.full((200_000,), -1, dtype=torch.int32, device="cuda") for _ in range(4)]
        assert torch.equal(got, want)
        del trash


def test_public_names():
    for name in ("CSR", "spmm", "sddmm"):
        assert name in torch_ops.__all__ and getattr(torch_ops, name).__doc__
