"""Norms under torch_ops.override: results, statistics and gradients are ATen's, and so are errors.

gpuopt's norms on the CPU are formulas in float32, so results there are compared by their errors, too. ATen has no kernel of
``_fused_rms_norm`` for the CPU: it composes an RMS norm of other operators, with other strides of gradients.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

from torch_ops import _library

from ..support.compare import Failures, different_metadata, raised_by
from ..support.overriding import counted, error_of, made, nothing_is_left, override  # noqa: F401
from ..support.params import each_device

pytestmark = pytest.mark.torch_version

aten = torch.ops.aten

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
EPS = 1e-5


def layer_norm(x, shape, weight=None, bias=None):
    return F.layer_norm(x, shape, weight, bias, EPS)


def rms_norm(x, shape, weight=None):
    return F.rms_norm(x, shape, weight, EPS)


LAYER, RMS = "native_layer_norm", "_fused_rms_norm"
NORMS = {LAYER: layer_norm, RMS: rms_norm}


def inputs(device, dtype):
    """(name, input, number of normalised dimensions): rows of all paths, in memory of many layouts."""
    for shape, dims in (((5,), 1), ((3, 8), 1), ((2, 3, 96), 1), ((4, 3, 5), 2), ((2, 3, 4), 3), ((6, 197), 1), ((3, 9000), 1),
                        ((40, 770), 1), ((3, 1, 64), 1)):  # fmt: skip
        yield f"{shape} over {dims}", made(device, dtype, *shape), dims
    wide = made(device, dtype, 6, 5, 40)
    yield "transposed batch", wide.transpose(0, 1), 1
    yield "a part of rows", wide[..., 3:20], 1
    yield "a transposed matrix", wide[0].t(), 1
    yield "every other value", wide[..., ::2], 1
    yield "an expanded row", wide[:, :1].expand(6, 5, 40), 1
    yield "one row with other strides", made(device, dtype, 40).as_strided((1, 1, 40), (7, 3, 1)), 1


def results_of(norm, x, dims, parameters):
    """The result, and the gradients of all operands."""
    leaves = [t.detach().requires_grad_() for t in (x, *parameters)]
    result = norm(leaves[0], x.shape[x.dim() - dims :], *leaves[1:])
    grad = made(x.device, result.dtype, *x.shape)
    return [result.detach(), *torch.autograd.grad(result, leaves, grad)]


@each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_results_and_gradients(name, dtype, device):
    failures, norm = Failures(), NORMS[name]
    for (form, x, dims), given in itertools.product(inputs(device, dtype), (0, 1, 2)):
        if given == 2 and name == RMS:
            continue
        parameters = [made(device, dtype, *x.shape[x.dim() - dims :]) + k for k in range(given)]
        with failures.sample(f"{form}, {given}"):
            want = results_of(norm, x, dims, parameters)
            exact = results_of(norm, x.double(), dims, [p.double() for p in parameters])
            with counted() as calls, override(device, [name, f"{name}_backward"]):
                got = results_of(norm, x, dims, parameters)
            if calls != {name: {"taken": 1}, f"{name}_backward": {"taken": 1}}:
                failures.add(f"{form}, {given}", f"was not taken: {calls}")
            for ours, theirs, reference in zip(got, want, exact, strict=True):
                if name == LAYER or device == "cuda":
                    failures.add(f"{form}, {given}", different_metadata(ours, theirs))
                limit = max(16 * torch.finfo(dtype).eps, 4 * error_of(theirs, reference))
                if not (error := error_of(ours, reference)) <= limit:
                    failures.add(f"{form}, {given}", f"error {error:.2e}, limit {limit:.2e}")
    failures.check(at_least=20)


@each_device
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_statistics(dtype, device):
    """One of each row, float32 for half types. On the CPU, ATen rounds them to the dtype of a half type."""
    statistic = torch.promote_types(dtype, torch.float32)
    for _, x, dims in inputs(device, dtype):
        shape = x.shape[x.dim() - dims :]
        with override(device):
            of_layer, of_rms = (
                aten.native_layer_norm(x, shape, None, None, EPS),
                aten._fused_rms_norm(x, shape, None, None),
            )
        for found in (*of_layer[1:], of_rms[1]):
            assert found.shape == (*x.shape[: x.dim() - dims], *[1] * dims)
            assert found.dtype == statistic and found.is_contiguous()
        wide = x.double()
        over = tuple(range(-dims, 0))
        epsilon = torch.finfo(statistic).eps
        torch.testing.assert_close(of_layer[1].double(), wide.mean(over, keepdim=True), rtol=1e-5, atol=1e-5)
        rstd = (wide.square().mean(over, keepdim=True) + epsilon).rsqrt()
        torch.testing.assert_close(of_rms[1].double(), rstd, rtol=1e-4, atol=0)
        if device == "cuda":
            for ours, theirs in (
                (of_layer, aten.native_layer_norm(x, shape, None, None, EPS)),
                (of_rms, aten._fused_rms_norm(x, shape, None, None)),
            ):
                assert [different_metadata(*pair) for pair in zip(ours, theirs, strict=True)] == [None] * len(ours)


def backward(name, x, weight, bias, mask):
    """The gradients that a mask asks for, of statistics that ATen computed."""
    shape = list(weight.shape)
    if name == LAYER:
        _, *statistics = aten.native_layer_norm(x.float(), shape, None, None, EPS)
        return aten.native_layer_norm_backward(x + 1, x, shape, *statistics, weight, bias, mask)
    rstd = (x.float().square().mean(-1, keepdim=True) + EPS).rsqrt()
    return aten._fused_rms_norm_backward(x + 1, x, shape, rstd, weight, mask)


@each_device
@pytest.mark.parametrize("name", NORMS)
def test_masks(name, device):
    """Gradients that are not wanted are undefined. A call that wants all has the same others."""
    x, weight, bias = (made(device, torch.float32, *shape) for shape in ((9, 40), (40,), (40,)))
    size = 3 if name == LAYER else 2
    with override(device):
        every = backward(name, x, weight, bias, [True] * size)
    for mask in itertools.product((False, True), repeat=size):
        with counted() as calls, override(device):
            found = backward(name, x, weight, bias, list(mask))
        assert calls[f"{name}_backward"] == {"taken": 1}
        assert [t is not None for t in found] == list(mask)
        for got, want in zip(found, every, strict=True):
            if got is not None:
                torch.testing.assert_close(got, want)
        if device == "cuda":
            theirs = backward(name, x, weight, bias, list(mask))
            assert [t is None for t in theirs] == [t is None for t in found]


@each_device
def test_statistics_of_any_shape(device):
    x, weight = made(device, torch.float32, 3, 4, 40), made(device, torch.float32, 40)
    rstd = (x.square().mean(-1) + EPS).rsqrt()
    with override(device):
        flat, shaped = (
            aten._fused_rms_norm_backward(x + 1, x, [40], r, weight, [True, True])
            for r in (rstd.flatten(), rstd[..., None])
        )
    assert all(torch.equal(*pair) for pair in zip(flat, shaped, strict=True))


DECLINED = {
    "no rows": lambda x: F.layer_norm(x[:0], [8]),
    "no values": lambda x: F.layer_norm(x[:, :0], [0]),
    "no dimensions": lambda x: F.layer_norm(x, []),
    "another shape": lambda x: F.layer_norm(x, [7]),
    "more dimensions": lambda x: F.layer_norm(x, [1, 4, 8]),
    "integers": lambda x: F.layer_norm(x.int(), [8]),
    "a weight of another dtype": lambda x: F.layer_norm(x, [8], x[0].double()),
    "a weight of another shape": lambda x: F.layer_norm(x, [8], x[0, :7]),
    "a bias of another dtype": lambda x: F.layer_norm(x, [8], x[0], x[0].double()),
    "a gradient of a weight that is not there": lambda x: aten.native_layer_norm_backward(
        x, x, [8], x[:, :1], x[:, :1], None, None, [True, True, False]
    ),
    "statistics of another dtype": lambda x: aten.native_layer_norm_backward(
        x, x, [8], x[:, :1].double(), x[:, :1].double(), x[0], None, [True, True, False]
    ),
}


@each_device
@pytest.mark.parametrize("form", DECLINED)
def test_what_is_declined(form, device):
    """Errors and results are ATen's."""
    call, x = DECLINED[form], made(device, torch.float32, 4, 8)
    want, error = None, raised_by(call, x)
    if error is None:
        want = call(x)
    with counted() as calls, override(device):
        if error is not None:
            assert repr(raised_by(call, x)) == repr(error)
        else:
            for got, expected in zip(
                *([t] if isinstance(t, torch.Tensor) else t for t in (call(x), want)), strict=True
            ):
                assert got is expected or torch.equal(got, expected)
    assert not any("taken" in calls.get(name, {}) for name in (LAYER, f"{LAYER}_backward")), calls


def test_small_calls_and_other_dtypes_are_declined():
    """Also a gradient without one of the weight, which ATen has as fast."""
    x, weight = torch.ones(64, 64), torch.ones(64)
    large = torch.ones(8192, 64)
    with counted() as calls, override("cpu", always=False):
        F.layer_norm(x, [64], weight)
        F.layer_norm(large.double(), [64], weight.double())
        torch.autograd.grad(F.layer_norm(large.requires_grad_(), [64], weight).sum(), large)
    assert calls[LAYER]["size"] == 1 and calls[LAYER]["dtype"] == 1
    assert calls[f"{LAYER}_backward"] == {
        "not_measured" if _library.torch_version() >= (2, 12) else "aten_is_faster": 1
    }


@each_device
def test_derivatives(device):
    """Of any order, and of each example: autograd's formulas lie above the kernels."""
    x, weight, bias = (made(device, torch.float64, *shape).requires_grad_() for shape in ((3, 4), (4,), (4,)))
    with override(device):
        assert torch.autograd.gradcheck(lambda x, w, b: F.layer_norm(x, [4], w, b, 0.5), (x, weight, bias))
        assert torch.autograd.gradcheck(lambda x, w: F.rms_norm(x, [4], w, 0.5), (x, weight))
        assert torch.autograd.gradgradcheck(lambda x: F.layer_norm(x, [4], eps=0.5), (x,))
        assert torch.autograd.gradgradcheck(lambda x: F.rms_norm(x, [4], eps=0.5), (x,))
        batch = torch.stack([x, 2 * x]).detach()
        got = torch.vmap(lambda x: F.layer_norm(x, [4], weight, bias))(batch)
    torch.testing.assert_close(got, F.layer_norm(batch, [4], weight, bias))


@each_device
@pytest.mark.parametrize("autocast", [False, True])
def test_a_layer_of_a_transformer(autocast, device):
    def trained():
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0, batch_first=True).to(device)
        x = made(device, torch.float32, 2, 5, 32)
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            result = layer(x)
        result.float().sum().backward()
        return [result.detach(), *(p.grad for p in layer.parameters())]

    want = trained()
    with counted() as calls, override(device, [LAYER, f"{LAYER}_backward"]):
        got = trained()
    assert calls == {LAYER: {"taken": 2}, f"{LAYER}_backward": {"taken": 2}}
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=5e-2 if autocast else 1e-4, atol=5e-2 if autocast else 1e-4)
