"""Numbers as arguments: Python's, NumPy's, 0-d tensors, and numbers that are unknown while a graph is traced."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import torch_ops

from ..support.compare import close, different_bits
from ..support.params import each_device

pytestmark = pytest.mark.torch_version

Dim = torch.export.Dim


class Traced(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def _add(x, alpha):
    index = torch.zeros(1, dtype=torch.int64, device=x.device)
    return torch_ops.index_add(x, 0, index, torch.ones_like(x[:1]), alpha=alpha)


def _add_in_place(x, alpha):
    index = torch.zeros(1, dtype=torch.int64, device=x.device)
    return torch_ops.index_add_(x.clone(), 0, index, torch.ones_like(x[:1]), alpha=alpha)


OPS = {
    "mul": torch_ops.mul,
    "mul_": lambda x, k: torch_ops.mul_(x.clone(), k),
    "axpy": lambda x, k: torch_ops.axpy(x, x, alpha=k),
    "index_add": _add,
    "index_add_": _add_in_place,
}
each_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS)


@each_device
@each_op
@pytest.mark.parametrize("number", [np.int64(2), np.float32(2.5), np.float64(-0.1), torch.tensor(2.5)], ids=repr)
def test_numpy_s_numbers_and_tensors_without_dimensions(op, number, device):
    x = torch.rand(3, 4, device=device)
    assert different_bits(op(x, number), op(x, number.item())) is None


@each_device
def test_alpha_with_a_gradient_is_refused(device):
    x, alpha = torch.ones(3, device=device), torch.tensor(2.0, requires_grad=True)
    for op in (OPS["axpy"], _add):
        with pytest.raises((RuntimeError, TypeError), match="alpha"):
            op(x, alpha)


@each_device
def test_a_number_into_out(device):
    """A number beside out= is not rounded and promotes as a number, also with 0-d tensors."""
    dtypes = (torch.float16, torch.float32, torch.float64, torch.complex128, torch.uint8, torch.int64, torch.bool)
    shapes, numbers = ((3,), ()), (0.1, 2, True, 1e300, 0.1j)
    compared = 0
    for dtype, shape, number, wide in itertools.product(dtypes, shapes, numbers, (False, True)):
        x = torch.full(shape, 200.0).to(dtype).to(device)
        natural = torch.mul(x, number).dtype
        out = torch.empty(shape, dtype=torch.complex128 if wide else natural, device=device)
        want = torch.mul(x, number, out=out.clone())
        got = torch_ops.mul(x, number, out=out)
        assert got is out and different_bits(got, want) is None, (dtype, shape, number)
        compared += 1
    assert compared == 140
    big = torch.ones(1, dtype=torch.uint64)
    assert torch_ops.mul(big, 2**63 + 5, out=torch.empty_like(big)).item() == 2**63 + 5
    with pytest.raises(RuntimeError, match="out must be able to hold the result"):
        torch_ops.mul(torch.ones(2, device=device), 0.5, out=torch.empty(2, dtype=torch.int64, device=device))


@each_device
def test_out_has_no_forward_mode(device):
    x = torch.ones(2, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        for factor in (x, 2):
            with pytest.raises(NotImplementedError, match="mul: out= does not support forward-mode"):
                torch_ops.mul(dual, factor, out=torch.empty_like(x))


# ---------------------------------------------------------------- traced


def _graphs(function, calls) -> int:
    """Compares the results of these calls with torch.compile's, and returns the number of compiled graphs."""
    count = 0

    def backend(graph, inputs):
        nonlocal count
        count += 1
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True)
    for args in calls:
        assert different_bits(compiled(*args), function(*args)) is None
    return count


@each_op
@pytest.mark.parametrize("of", [lambda n: n, lambda n: 1 / n], ids=["size", "inverse of a size"])
def test_numbers_that_follow_from_sizes_compile_once(op, of):
    calls = [(torch.rand(n, 3),) for n in range(5, 11)]
    assert _graphs(lambda x: op(x, of(x.shape[0])), calls) == 1


@each_op
def test_other_numbers_do_not_compile_again(op):
    x = torch.rand(5, 3)
    assert _graphs(lambda x, k: op(x, k), [(x, k) for k in range(2, 14)]) <= 2


@each_op
@pytest.mark.parametrize("number", [torch.tensor(2.5), torch.tensor(3)], ids=repr)
@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_numbers_that_depend_on_data(op, number):
    torch._dynamo.reset()
    x = torch.rand(5, 3)
    compiled = torch.compile(lambda x, n: op(x, n.item()), backend="aot_eager", fullgraph=True)
    assert different_bits(compiled(x, number), op(x, number.item())) is None


@each_op
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_sizes_as_numbers_are_exported(op, strict):
    module, sizes = Traced(lambda x, y: op(x, y.shape[0])), (None, {0: Dim("n", min=2, max=50)})
    exported = torch.export.export(module, (torch.rand(3, 2), torch.ones(5)), dynamic_shapes=sizes, strict=strict)
    x, y = torch.rand(3, 2), torch.ones(7)
    assert different_bits(exported.module()(x, y), module(x, y)) is None


# ---------------------------------------------------------------- other things that tracing meets


@pytest.mark.parametrize("op", [torch_ops.mul, torch_ops.axpy], ids=["mul", "axpy"])
def test_layouts_of_halves_with_symbolic_sizes(op):
    """The strides of fp16 and bf16 results are right with symbolic sizes, because Inductor relies on them. at::mul on Meta loses
    the order of dimensions."""
    torch._dynamo.reset()
    a, b = torch.ones(3, dtype=torch.float16).expand(5, 3), torch.ones(3, 5, dtype=torch.float16).t()
    result = torch.compile(op, backend="aot_eager", fullgraph=True, dynamic=True)(a, b)
    assert result.stride() == op(a, b).stride() == (1, 5)


def test_fma_promotes_in_addcmul_s_order():
    u, i, f = torch.ones(2, dtype=torch.uint16), torch.ones(2, dtype=torch.int16), torch.ones(2)
    for run in (torch_ops.fma, torch.vmap(torch_ops.fma)):
        assert different_bits(run(u, i, f), torch.addcmul(f, u, i)) is None
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match="uint16"):
            torch_ops.fma(i.to(device), f.to(device), u.to(device))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_upsampling_of_as_many_images_as_data_say(layout):
    torch._dynamo.reset()
    x, chosen = torch.rand(3, 2, 4, 4).to(memory_format=layout), torch.tensor([True, False, True])

    def run(x, chosen):
        return torch_ops.upsample_nearest2d(x[chosen], None, 2.0)

    got = torch.compile(run, backend="aot_eager", fullgraph=True)(x, chosen)
    want = run(x, chosen)
    assert different_bits(got, want) is None and got.stride() == want.stride()


@pytest.mark.parametrize(
    "arguments",
    [{"scale_factor": 2.0}, {"size": (5, 6)}, {"scale_factor": 1.5, "recompute_scale_factor": True}],
    ids=str,
)
def test_upsampling_modules_under_fx(arguments):
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch_ops.nn.UpsampleNearest2d(**arguments)))
    x = torch.rand(1, 2, 7, 8)
    assert different_bits(traced(x), torch.nn.Upsample(**arguments)(x)) is None
    assert any("gpuopt" in str(node.target) for node in traced.graph.nodes)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["dot", "vdot", "dot_fast_atomic"])
def test_vmap_of_dot_inside_of_autocast(name):
    """vmap of dot inside autocast promotes two dtypes as without vmap."""
    op = getattr(torch_ops, name)
    x, y = torch.rand(3, 40, device="cuda", dtype=torch.float16), torch.rand(3, 40, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        got, want = torch.vmap(op)(x, y), torch.stack([op(a, b) for a, b in zip(x, y)])
        assert got.dtype == want.dtype == torch.float32 and close(got, want) is None
        rows = torch.vmap(torch_ops.dot_rows)(x[None], y[None])[0]
        assert rows.dtype == torch.float32 and close(rows, torch_ops.dot_rows(x, y)) is None
