"""scatter and scatter_softmax: values by loops in numpy, derivatives, transforms, tracing, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import torch_ops

from ...support.compare import all_close, close, different_bits
from ...support.params import each_device
from ...support.runtime import deterministic_algorithms

FUNCTIONS = {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min, "prod": np.prod}
EVERY = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
TWICE = {"check_fwd_over_rev": True, "check_rev_over_rev": True}

each_reduction = pytest.mark.parametrize("reduce", FUNCTIONS)


def scattered(src: np.ndarray, index: np.ndarray, dim: int, bins: int, reduce: str) -> np.ndarray:
    rows = np.moveaxis(src, dim, 0)
    out = np.full((bins, *rows.shape[1:]), 1.0 if reduce == "prod" else 0.0)
    for b in range(bins):
        if (index == b).any():
            out[b] = FUNCTIONS[reduce](rows[index == b], axis=0)
    return np.moveaxis(out, 0, dim)


@each_device
@each_reduction
@pytest.mark.parametrize(
    "shape, dim", [((9,), 0), ((9, 4), 0), ((4, 9), 1), ((4, 9), -1), ((2, 9, 3), 1), ((2, 3, 9, 5), -2), ((9, 0), 0)]
)
def test_scattered_entries(device, reduce, shape, dim):
    random = np.random.default_rng(len(shape))
    src, index = random.normal(size=shape), random.integers(5, size=9)
    index[index == 1] = 3  # an empty bin
    tensors = [torch.from_numpy(a).to(device) for a in (src, index)]
    got = torch_ops.scatter(*tensors, dim, 6, reduce)
    np.testing.assert_allclose(got.cpu().numpy(), scattered(src, index, dim, 6, reduce), rtol=1e-12, atol=1e-14)
    found = torch_ops.scatter(*tensors, dim, None, reduce)
    assert found.shape[dim] == index.max() + 1
    whole = torch_ops.scatter(tensors[0].long(), tensors[1], dim, 6, reduce)
    assert got.is_contiguous() and whole.is_contiguous()
    if reduce in ("amax", "amin"):
        values, arg = torch_ops.scatter(*tensors, dim, 6, reduce, return_arg=True)
        assert different_bits(values, got) is None and arg.dtype == torch.int64
        assert values.is_contiguous() and arg.is_contiguous()
        picked = np.take_along_axis(src, arg.clamp(min=0).cpu().numpy(), dim)
        np.testing.assert_array_equal(np.where(arg.cpu() < 0, 0, picked), got.cpu())
        np.testing.assert_array_equal((arg < 0).cpu().numpy().any(axis=dim), np.ones(np.delete(shape, dim), bool))
    if len(shape) > 1:  # the same of a strided tensor
        strided = tensors[0].transpose(0, 1).contiguous().transpose(0, 1)
        assert close(torch_ops.scatter(strided, tensors[1].int(), dim, 6, reduce), got) is None


@each_device
@each_reduction
def test_derivatives_of_scattered_entries(device, reduce):
    src = torch.randn(2, 6, 2, dtype=torch.float64, device=device, requires_grad=True)
    index = torch.tensor([3, 0, 3, 1, 0, 3], device=device)

    def scatter(x):
        return torch_ops.scatter(x, index, 1, 5, reduce)

    assert gradcheck(scatter, src, **EVERY)
    assert gradgradcheck(scatter, src, **TWICE)
    if reduce in ("amax", "amin"):
        assert gradcheck(
            lambda x: torch_ops.scatter(x, index, 1, 5, reduce, return_arg=True)[0], src, check_forward_ad=True
        )


@each_device
@each_reduction
def test_scattered_examples(device, reduce):
    """Examples with an index of their own, with a common one, and with common values."""
    src = torch.randn(3, 7, 2, device=device)
    index = torch.tensor([[2, 0, 2, 1, 3, 3, 0], [0, 0, 0, 3, 1, 1, 0], [1, 3, 1, 1, 1, 1, 1]], device=device)

    def scatter(x, i):
        return torch_ops.scatter(x, i, 0, 4, reduce)

    for dims in ((0, 0), (0, None), (None, 0)):
        args = [t if d == 0 else t[0] for t, d in zip((src, index), dims, strict=True)]
        want = torch.stack(
            [scatter(*(t if d is None else t[k] for t, d in zip(args, dims, strict=True))) for k in range(3)]
        )
        assert close(torch.vmap(scatter, in_dims=dims)(*args), want) is None
        per_example = torch.func.vmap(torch.func.grad(lambda x, i: scatter(x, i).pow(2).sum()), in_dims=dims)(*args)
        for k in range(3):
            x = (args[0] if dims[0] is None else args[0][k]).clone().requires_grad_()
            scatter(x, args[1] if dims[1] is None else args[1][k]).pow(2).sum().backward()
            assert close(per_example[k], x.grad) is None


@each_device
@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("own_index", [False, True])
def test_entries_of_examples_without_elements(device, shape, own_index):
    src, index = torch.zeros(shape, device=device), torch.zeros(shape[:2], dtype=torch.int64, device=device)
    dims = (0, 0) if own_index else (0, None)
    got = torch.vmap(lambda x, i: torch_ops.scatter(x, i, 0, 4, "amax", return_arg=True), in_dims=dims)(
        src, index if own_index else index[0]
    )
    want = torch_ops.scatter(src[0], index[0], 0, 4, "amax", return_arg=True)
    for ours, one in zip(got, want, strict=True):
        assert ours.dtype == one.dtype and torch.equal(ours, torch.stack([one, one]))


@each_device
def test_scattered_integers(device):
    src = torch.tensor([[5, 1], [2, 2], [-8, 7]], device=device)
    index = torch.tensor([1, 0, 1], device=device)
    for dtype in (torch.int64, torch.int32, torch.int8):
        for reduce, want in (
            ("sum", [[2, 2], [-3, 8]]),
            ("mean", [[2, 2], [-2, 4]]),
            ("amax", [[2, 2], [5, 7]]),
            ("prod", [[2, 2], [-40, 7]]),
        ):
            got = torch_ops.scatter(src.to(dtype), index, 0, 2, reduce)
            assert got.dtype == dtype and got.tolist() == want


@each_device
def test_softmax_of_scattered_entries(device):
    src = torch.randn(8, 3, dtype=torch.float64, device=device, requires_grad=True)
    index = torch.tensor([1, 0, 1, 1, 4, 0, 4, 2], device=device)
    got = torch_ops.scatter_softmax(src, index, dim_size=6)
    for b in range(6):
        of_bin = index == b
        np.testing.assert_allclose(got[of_bin].detach().cpu(), src[of_bin].softmax(0).detach().cpu(), rtol=1e-12)
    assert different_bits(torch_ops.scatter_softmax(src, index), got) is None
    assert gradcheck(lambda x: torch_ops.scatter_softmax(x, index, dim_size=6), src, **EVERY)
    assert gradgradcheck(lambda x: torch_ops.scatter_softmax(x, index, dim_size=6), src, **TWICE)
    values = torch.randn(8, device=device)
    assert torch_ops.scatter_softmax(values, index, dim_size=5).shape == (8,)
    indices = torch.stack([index, index.flip(0)])
    each = torch.vmap(lambda i: torch_ops.scatter_softmax(values, i, dim_size=5))(indices)
    assert close(each, torch.stack([torch_ops.scatter_softmax(values, i, dim_size=5) for i in indices])) is None


@each_device
def test_nothing_is_scattered(device):
    nothing, index = torch.zeros(0, 3, device=device), torch.zeros(0, dtype=torch.int64, device=device)
    for reduce, value in (("sum", 0), ("mean", 0), ("amax", 0), ("prod", 1)):
        got = torch_ops.scatter(nothing.requires_grad_(), index, 0, 2, reduce)
        assert got.shape == (2, 3) and bool((got == value).all())
        got.sum().backward()
        assert torch_ops.scatter(nothing, index, 0, None, reduce).shape == (0, 3)
    values, arg = torch_ops.scatter(nothing, index, 0, 2, "amin", return_arg=True)
    assert not values.any() and (arg == -1).all()
    assert torch_ops.scatter_softmax(nothing, index, dim_size=2).shape == (0, 3)


class _Scatters(torch.nn.Module):
    def forward(self, src, index, nodes):
        bins = nodes.shape[0]
        results = [torch_ops.scatter(src, index, 0, bins, reduce) for reduce in ("sum", "mean", "amax", "prod")]
        results.append(torch_ops.scatter(src.movedim(0, 1), index, 1, bins))
        results += torch_ops.scatter(src.flatten(1), index, 0, bins, "amin", return_arg=True)
        return [*results, torch_ops.scatter_softmax(src, index, dim_size=bins)]


@pytest.mark.parametrize("strict", [False, True])
def test_scatters_export_with_sizes_that_change(strict):
    def arguments(bins, entries, heads, features):
        return torch.randn(entries, heads, features), torch.randint(bins, (entries,)), torch.empty(bins)

    bins, entries, heads, features = (torch.export.Dim(name, max=2**20) for name in ("b", "e", "h", "f"))
    shapes = {"src": {0: entries, 1: heads, 2: features}, "index": {0: entries}, "nodes": {0: bins}}
    example = arguments(5, 7, 3, 4)
    exported = torch.export.export(_Scatters(), example, dynamic_shapes=shapes, strict=strict).module()
    for sizes in ((5, 7, 3, 4), (3, 20, 2, 9), (30, 4, 8, 2)):
        call = arguments(*sizes)
        for got, want in zip(exported(*call), _Scatters()(*call), strict=True):
            torch.testing.assert_close(got, want)


@each_device
def test_refused_scatters(device):
    src, index = torch.ones(4, 3, device=device), torch.zeros(4, dtype=torch.int64, device=device)
    with pytest.raises(IndexError, match="dim"):
        torch_ops.scatter(src, index, 2)
    for wrong in (index[:3], index[None]):
        with pytest.raises(RuntimeError, match="index must have an entry for each"):
            torch_ops.scatter(src, wrong)
        with pytest.raises(RuntimeError, match="index must have an entry for each"):
            torch_ops.scatter_softmax(src, wrong)
    with pytest.raises(ValueError, match="median"):
        torch_ops.scatter(src, index, reduce="median")
    with pytest.raises(ValueError, match="return_arg"):
        torch_ops.scatter(src, index, return_arg=True)
    with pytest.raises(TypeError, match="scatter_softmax: input must have a floating-point dtype"):
        torch_ops.scatter_softmax(index, index)


@each_device
def test_scatters_compile_and_keep_their_dtype_under_autocast(device):
    src = torch.randn(20, 4, device=device, requires_grad=True)
    index = torch.randint(6, (20,), device=device)

    def run(x, i):
        attention = torch_ops.scatter_softmax(x, i, dim_size=6)
        parts = [torch_ops.scatter(x * attention, i, 0, 6, reduce) for reduce in ("sum", "mean", "amax", "prod")]
        return torch.stack(parts)

    torch._dynamo.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
    for entries in (20, 15, 9):
        got, want = compiled(src[:entries], index[:entries]), run(src[:entries], index[:entries])
        assert close(got, want) is None
        grads = [torch.autograd.grad(result.pow(2).sum(), src)[0] for result in (got, want)]
        assert all_close(*([g] for g in grads)) is None
    want = run(src, index)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert different_bits(run(src, index), want) is None


@each_device
def test_forward_mode_of_an_extremum_with_its_entry(device):
    src, index = torch.randn(5, device=device), torch.tensor([1, 0, 1, 1, 0], device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(src, torch.arange(5.0, device=device))
        values, arg = torch_ops.scatter(dual, index, 0, 3, "amax", return_arg=True)
        tangent = forward_ad.unpack_dual(values).tangent
    assert tangent.tolist() == [float(max(a, 0)) for a in arg.tolist()]


@each_device
def test_deterministic_mode_allows_all(device):
    src = torch.randn(30, 4, device=device, requires_grad=True)
    index = torch.randint(6, (30,), device=device)
    with deterministic_algorithms():
        results = [torch_ops.scatter(src, index, 0, 6, r) for r in ("sum", "mean", "amax", "amin", "prod")]
        torch.stack([*results, torch_ops.scatter_softmax(src, index, dim_size=6)[:6]]).pow(2).sum().backward()
    assert src.grad.isfinite().all()
