"""torch_ops.CSR itself, apart from products (test_use.py): forms, caches, copies, checks of integers, nested tensors."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import torch_ops
from torch_ops import CSR, sddmm, spmm

from ...support.params import each_device
from ...support.recorder import Recorder
from .matrices import F64, REDUCTIONS, random_edges

pytestmark = pytest.mark.torch_version


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


# ---------------------------------------------------------------- caches and copies


def test_transpose_is_made_once_and_shared():
    csr = CSR.from_edge_index(random_edges(6, 6, 12), num_nodes=6)
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
            with Recorder() as calls:
                torch.autograd.grad(spmm(made, x, reduce).sum(), x)
            assert calls.count("gpuopt::spmm") + calls.count("gpuopt::_spmm") == 2
            assert calls.count("gpuopt::_transpose") == calls.count("aten::sort") == 0
            assert calls.count("aten::_local_scalar_dense") == 0  # nothing waits for a GPU


def test_without_a_cached_transpose():
    """Gradients are the same if a node makes the transpose itself."""
    csr = CSR.from_edge_index(random_edges(6, 5, 12), torch.randn(12, dtype=F64), size=(5, 6))
    x = torch.randn(5, 3, dtype=F64)
    for reduce in REDUCTIONS:
        got = torch.func.grad(lambda x, r=reduce: spmm(csr, x, r).pow(2).sum())(x)
        assert not csr.has_transpose  # a transpose that belongs to a transform must not stay
        leaf = x.clone().requires_grad_()
        other = CSR.from_edge_index(random_edges(6, 5, 12), csr.values, size=(5, 6)).cache_transpose()
        torch.testing.assert_close(got, torch.autograd.grad(spmm(other, leaf, reduce).pow(2).sum(), leaf)[0])
    with torch.inference_mode():
        csr.cache_transpose()
    leaf = x.clone().requires_grad_()
    (csr @ leaf).sum().backward()  # inference tensors could not be saved


def test_transpose_in_a_transform_stays_out_of_the_cache():
    csr = CSR.from_edge_index(random_edges(6, 5, 12), size=(5, 6))
    x = torch.randn(6, 3)
    got = torch.func.grad(lambda x: (csr.t() @ x).pow(2).sum())(x)
    assert not csr.has_transpose
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(got, torch.autograd.grad((csr.t() @ leaf).pow(2).sum(), leaf)[0])


@each_device
def test_moves(device):
    csr = CSR.from_edge_index(random_edges(6, 5, 12), torch.randn(12), size=(5, 6)).cache_transpose()
    x = torch.randn(5, 3)
    want = csr @ x
    moved = csr.to(device, torch.float64)
    assert moved.device.type == device and moved.has_transpose and moved.dtype == F64
    torch.testing.assert_close((moved @ x.to(device).double()).cpu(), want.double())
    assert csr.to(torch.float16).dtype == torch.float16 and csr.to("cpu").ptr is csr.ptr
    torch.testing.assert_close(moved.t().cpu() @ torch.eye(6, dtype=F64), (csr @ torch.eye(5)).mT.double())


def test_copies():
    csr = CSR.from_edge_index(random_edges(6, 5, 12), torch.randn(12), size=(5, 6)).cache_transpose()
    x = torch.randn(5, 3)
    file = io.BytesIO()
    torch.save(csr, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(csr)), copy.deepcopy(csr), torch.load(file)):
        assert torch.equal(other @ x, csr @ x) and other.has_transpose
        assert other.shape == csr.shape and other.ptr is not csr.ptr
    assert copy.copy(csr).ptr is csr.ptr


def test_it_is_a_node_of_nested_tensors():
    csr = CSR.from_edge_index(random_edges(6, 5, 12), torch.randn(12), size=(5, 6)).cache_transpose()
    leaves, spec = pytree.tree_flatten({"a": csr})
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    again = pytree.tree_unflatten(leaves, pytree.treespec_loads(pytree.treespec_dumps(spec)))["a"]
    assert isinstance(again, CSR) and again.shape == csr.shape and again.has_transpose
    x = torch.randn(5, 3)
    assert torch.equal(again @ x, csr @ x)
    double = pytree.tree_map(lambda t: t.double() if t.is_floating_point() else t, csr)
    assert double.dtype == F64
    other = CSR.from_edge_index(random_edges(8, 9, 20), torch.randn(20), size=(9, 8)).cache_transpose()
    assert pytree.tree_structure(csr) == pytree.tree_structure(other)  # sizes are no constants of the structure
    names = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(csr)[0]]
    assert names[:2] == [".ptr", ".index"] and ".values" in names


@each_device
def test_later_writes_to_the_integers_change_nothing(device):
    for dtype in (torch.int32, torch.int64):
        ptr, index, row = (torch.tensor(n, dtype=dtype, device=device) for n in ([0, 2, 3], [0, 2, 1], [0, 0, 1]))
        made = [CSR(ptr, index, shape=(2, 3), dtype=dtype), CSR.from_coo(row, index, shape=(2, 3), dtype=dtype)]
        for written in (ptr, index, row):
            written.zero_()
        for csr in made:
            assert csr.ptr.tolist() == [0, 2, 3] and csr.index.tolist() == [0, 2, 1]


# ---------------------------------------------------------------- errors


_PTR, _INDEX = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 0, 3])
_CSR = CSR(_PTR, _INDEX, torch.ones(3), (3, 4))
_MOST = torch.full((3,), 2**63 - 1)
ERRORS = {
    "ptr no tensor": (lambda: CSR([0, 1], _INDEX), TypeError, "ptr must be a tensor.*got list"),
    "float ptr": (lambda: CSR(_PTR.float(), _INDEX), TypeError, "ptr must be int32 or int64.*float32"),
    "2-d index": (lambda: CSR(_PTR, _INDEX[None]), RuntimeError, r"index must be a vector.*\(1, 3\)"),
    "no ptr": (lambda: CSR(_PTR[:0], _INDEX), RuntimeError, "ptr must have rows . 1.*got 0"),
    "other rows": (lambda: CSR(_PTR, _INDEX, shape=(4, 4)), RuntimeError, "ptr.*expected 5, got 4"),
    "ptr starts late": (lambda: CSR(_PTR.clamp(1), _INDEX), ValueError, "ptr must start with 0.*got 1 and 3"),
    "ptr ends early": (lambda: CSR(_PTR[:3], _INDEX), ValueError, "expected 0 and 3, got 0 and 2"),
    "ptr decreases": (lambda: CSR(torch.tensor([0, 2, 1, 3]), _INDEX), ValueError, "not decrease.*got one of -1"),
    "column too large": (lambda: CSR(_PTR, _INDEX, shape=(3, 3)), ValueError, "index.*from 0 to 2, got 3"),
    "negative column": (lambda: CSR(_PTR, _INDEX - 1), ValueError, "index.*got -1"),
    "2^32 as a column": (lambda: CSR(_PTR, _INDEX + 2**32, shape=(3, 4)), ValueError, "index.*from 0 to 3"),
    "short values": (lambda: CSR(_PTR, _INDEX, torch.ones(2)), RuntimeError, r"values.*expected 3.*\(2,\)"),
    "0-d values": (lambda: CSR(_PTR, _INDEX, torch.ones(())), RuntimeError, r"values.*shape \(\)"),
    "3-d values": (lambda: CSR(_PTR, _INDEX, torch.ones(3, 1, 1)), RuntimeError, r"values.*\(3, 1, 1\)"),
    "values a number": (lambda: CSR(_PTR, _INDEX, 1.0), TypeError, "values must be a tensor.*float"),
    "values elsewhere": (lambda: CSR(_PTR, _INDEX, torch.ones(3, device="meta")), RuntimeError, "values.*meta"),
    "index elsewhere": (lambda: CSR(_PTR, _INDEX.to("meta")), RuntimeError, "index must be on the device.*meta"),
    "shape of floats": (lambda: CSR(_PTR, _INDEX, shape=(3, 4.0)), TypeError, "shape must be an integer.*got 4.0"),
    "a number as shape": (lambda: CSR(_PTR, _INDEX, shape=3), TypeError, "shape must be .rows, columns.*got int"),
    "columns beyond int64": (lambda: CSR(_PTR, _MOST), ValueError, f"index must name columns.*got {2**63 - 1}"),
    "unchecked columns": (lambda: CSR(_PTR, _MOST, check=False), ValueError, f"index must name columns.*got {2**63 - 1}"),
    "rows beyond int64": (lambda: CSR.from_coo(_MOST, _INDEX), ValueError, f"row must name rows.*got {2**63 - 1}"),
    "nodes beyond int64": (lambda: CSR.from_edge_index(_MOST.expand(2, 3)), ValueError, f"edge_index must.*got {2**63 - 1}"),
    "shape beyond int64": (lambda: CSR(_PTR, _INDEX, shape=(3, 2**63)), ValueError, f"shape must not exceed.*{2**63}"),
    "shape of one": (lambda: CSR(_PTR, _INDEX, shape=(3,)), ValueError, "shape must be .rows, columns."),
    "negative shape": (lambda: CSR(_PTR, _INDEX, shape=(3, -1)), ValueError, "shape must not be negative"),
    "short perm": (lambda: CSR(_PTR, _INDEX, perm=_PTR[:2]), RuntimeError, "perm.*expected 3, got 2"),
    "perm too large": (lambda: CSR(_PTR, _INDEX, perm=_INDEX), ValueError, "perm.*from 0 to 2, got 3"),
    "perm twice": (lambda: CSR(_PTR, _INDEX, perm=torch.tensor([0, 2, 2])), ValueError, "expected 3 diff.*got 2"),
    "dtype": (lambda: CSR(_PTR, _INDEX, dtype=torch.int16), TypeError, "dtype must be int32 or int64.*int16"),
    "short col": (lambda: CSR.from_coo(_INDEX, _INDEX[1:]), RuntimeError, "col.*expected 3, got 2"),
    "row too large": (lambda: CSR.from_coo(_INDEX, _INDEX, shape=(3, 4)), ValueError, "row must name rows.*got 3"),
    "negative row": (lambda: CSR.from_coo(_INDEX - 1, _INDEX), ValueError, "row.*got -1"),
    "edges (3, 2)": (lambda: CSR.from_edge_index(torch.ones(3, 2).long()), RuntimeError, r"edge_index.*\(3, 2\)"),
    "negative edges": (lambda: CSR.from_edge_index(-torch.ones(2, 3).long()), ValueError, "edge_index must.*got -1"),
    "nodes a float": (lambda: CSR.from_edge_index(_PTR.expand(2, 4), num_nodes=4.0), TypeError, "num_nodes.*got 4.0"),
    "float edges": (lambda: CSR.from_edge_index(torch.ones(2, 3)), TypeError, "edge_index must be int32 or int64"),
    "few nodes": (lambda: CSR.from_edge_index(torch.ones(2, 3).long(), num_nodes=1), ValueError, "got 1"),
    "two sizes": (lambda: CSR.from_edge_index(torch.ones(2, 3).long(), num_nodes=2, size=(2, 2)), ValueError, "num_nodes must not be given with size"),
    "dense tensor": (lambda: CSR.from_torch(torch.eye(2)), RuntimeError, "tensor must be a sparse matrix.*strided"),
    "no tensor": (lambda: CSR.from_torch([1]), TypeError, "tensor must be a sparse tensor.*list"),
    "with_values": (lambda: _CSR.with_values(torch.ones(4)), RuntimeError, r"values.*expected 3.*\(4,\)"),
    "spmm of a tensor": (lambda: spmm(torch.eye(2), torch.eye(2)), TypeError, "spmm: csr must be CSR, got Tensor"),
    "other columns": (lambda: _CSR @ torch.ones(3, 2), RuntimeError, r"spmm: input.*expected 4, got 3.*\(3, 2\)"),
    "vector of columns": (lambda: _CSR @ torch.ones(5), RuntimeError, "spmm: input.*expected 4, got 5"),
    "0-d dense": (lambda: _CSR @ torch.ones(()), RuntimeError, "spmm: dense"),
    "unknown reduce": (lambda: spmm(_CSR, torch.ones(4, 1), "prod"), ValueError, "spmm: reduce must be one of .*got \"prod\""),
    "other dtype": (lambda: _CSR @ torch.ones(4, 1).double(), RuntimeError, "value must have the dtype of dense"),
    "heads": (lambda: spmm(_CSR, torch.ones(4, 2), values=torch.ones(3, 2)), RuntimeError, "input must be .*heads"),
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
    with pytest.raises(RuntimeError, match="values"):
        CSR(_PTR, _INDEX, torch.ones(2), shape=(3, 4), check=False)
