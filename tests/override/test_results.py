"""Results under torch_ops.override are ATen's.

Without a GPU the kernels of the CPU are replaced, and every supported call is taken. gpuopt then calls ATen's kernels, so results
must have the same bits. On a GPU they must be as exact as the operator's case says.
"""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from torch.nn import functional as F

from ..cases import all_cases
from ..support.compare import Failures, different_bits, different_from_reference, different_metadata, raised_by
from ..support.overriding import counted, nothing_is_left, override, rows  # noqa: F401
from ..support.params import each_device, on, spread, thinned
from ..support.runtime import captured, deterministic_algorithms

pytestmark = pytest.mark.torch_version

# The operators of gpuopt whose cases call an operator of ATen that is replaced.
REPLACED = {
    "reduce_sum": "sum",
    "reduce_mean": "mean",
    "reduce_max": "amax",
    "reduce_min": "amin",
    "mul.Tensor": "mul",
    "upsample_nearest2d": "upsample_nearest2d",
    "upsample_nearest2d_backward": "upsample_nearest2d_backward",
    "upsample_nearest_exact2d": "_upsample_nearest_exact2d",
    "upsample_nearest_exact2d_backward": "_upsample_nearest_exact2d_backward",
    "index_add": "index_add",
    "conv1d": "convolution",
    "conv1d_backward": "convolution_backward",
    "conv_transpose1d": "convolution",
    "pad": "constant_pad_nd",
    "dot": "dot",
    "vdot": "vdot",
    "layer_norm": "native_layer_norm",
    "rms_norm": "_fused_rms_norm",
    "group_norm": "native_group_norm",
    "batch_norm": "native_batch_norm",
}
CASES = {c.name: c for c in all_cases() if c.name in REPLACED}


# ---------------------------------------------------------------- results


def each_replaced(*dtypes: torch.dtype):
    params = []
    for case in CASES.values():
        for device in ("cpu", "cuda"):
            for dtype in dtypes:
                params.append(on(device, case, device, dtype, name=f"{case.name}-{device}-{str(dtype)[6:]}"))
    return pytest.mark.parametrize(("case", "device", "dtype"), params)


def test_every_case_exists():
    assert CASES.keys() == REPLACED.keys()


@each_replaced(torch.float32, torch.bfloat16, torch.complex64)
def test_results_of_the_cases(case, device, dtype):
    """Metadata and values are ATen's, whether a sample is taken or declined."""
    if dtype not in case.dtypes:
        pytest.skip("not a dtype of the operator")
    failures = Failures()
    name = REPLACED[case.name]
    taken = 0
    for sample in thinned(case.samples(device, dtype), device, keep=2):
        with failures.sample(sample.name):
            want, again = (case.aten(*sample.args, **sample.kwargs) for _ in range(2))
            with counted() as calls, override(device):
                got = case.aten(*sample.args, **sample.kwargs)
            was_taken = calls.get(name, {}).get("taken", 0)
            taken += was_taken
            failures.add(sample.name, different_metadata(got, want))
            # On the CPU, oneDNN adds the gradient of a bias in another order than gpuopt's call of it. On CUDA that gradient is a sum,
            # which may be taken, and index_add of ATen adds atomically, so that two equal results prove nothing. Sums of half types
            # are computed in float32. gpuopt's norms on the CPU are formulas in float32.
            other_sums = "norm" in name or name == "index_add" and (device == "cuda" or dtype == torch.bfloat16)
            in_order = name != "convolution_backward" and not other_sums
            if in_order and (not was_taken or device == "cpu"):
                if different_bits(again, want) is None:  # ATen's kernel is repeatable
                    failures.add(sample.name, different_bits(got, want))
            elif sample.exact_inputs and was_taken:
                kwargs = {
                    key: value for key, value in sample.kwargs.items() if key != "mode"
                }  # not an argument of ATen's
                reference = case.reference(*sample.args, **kwargs)
                bound = case.bound(device, want.dtype, reference, *sample.args, **kwargs)
                failures.add(sample.name, different_from_reference(got, reference, bound))
    failures.check(at_least=30)
    # ATen's vdot of real vectors is its dot.
    assert taken >= 10 or dtype.is_complex or name == "vdot", f"only {taken} samples were taken"


@each_device
@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_errors_of_the_cases(case, device):
    """What ATen refuses, it refuses with the same exception and message."""
    failures = Failures()
    for error in case.errors(device):
        if device == "cpu" and re.search("index -?[0-9]+ of", error.name):
            continue  # an entry out of range, which CUDA kernels assert
        with failures.sample(error.name):
            aten = case.of_variant(error.variant).aten
            want = raised_by(aten, *error.args, **error.kwargs)
            with override(device):
                got = raised_by(aten, *error.args, **error.kwargs)
            failures.add(error.name, None if repr(got) == repr(want) else f"{got!r}, expected {want!r}")
    failures.check()


INDEX = [0, 3, 3, 1, 0, 3]


def calls_by_gpuopt(device, dtype, padding=True):
    """(operator, function, differentiable operands): calls that no case makes. The gradient of an embedding's padding is zero by
    definition, and not that of the function."""
    index = torch.tensor(INDEX, device=device)
    negative = torch.tensor([0, -1, 3, 1, -5, 3], device=device)

    def made(*shape):
        return rows(device, dtype, *shape)

    one, many = made(5, 3), made(6, 3)
    rows_of = index[:, None].expand(6, 3)
    yield "index_add", lambda a, b: a.index_add(0, index, b, alpha=2), (one, many)
    yield "index_add", lambda a, b: a.clone().index_add_(-1, index, b), (made(4, 5), made(4, 6))
    yield "index_add", lambda a, b: a.index_add(0, index.int(), b), (one, many)
    yield "scatter_add", lambda a, b: a.scatter_add(0, rows_of, b), (one, many)
    yield "scatter_add", lambda a, b: a.clone().scatter_add_(0, index, b), (made(5), made(6))
    yield (
        "scatter_add",
        lambda a, b: a.scatter_add(-2, rows_of.unsqueeze(0).expand(2, 6, 3), b),
        (made(2, 5, 3), made(2, 6, 3)),
    )
    yield "scatter_reduce", lambda a, b: a.scatter_reduce(0, rows_of, b, "sum"), (one, many)
    yield "scatter_reduce", lambda a, b: a.clone().scatter_reduce_(0, rows_of, b, "sum"), (one, many)
    yield "index_put", lambda a, b: a.index_put((negative,), b, accumulate=True), (one, many)
    yield "index_put", lambda a, b: a.clone().index_put_((index.view(2, 3),), b, accumulate=True), (one, made(2, 3, 3))
    yield "index_put", lambda a: a[negative] * 1, (one,)
    yield "index_put", lambda a: a[:, negative] * 1, (made(2, 5, 3),)
    yield "index_put", lambda a: a[:, index, negative] * 1, (made(2, 4, 5, 3),)
    yield "index_put", lambda a: a[negative[None], index[None], negative.int()[None]] * 1, (made(5, 4, 5),)
    yield "embedding_dense_backward", lambda w: F.embedding(index.view(3, 2), w), (one,)
    if padding:
        yield "embedding_dense_backward", lambda w: F.embedding(index, w, padding_idx=3), (one,)
    yield "index_select", lambda a: a.index_select(0, index), (one,)
    yield "index_select", lambda a: a.index_select(-3, index[::2].int()), (made(1, 5, 3, 2),)
    yield "index_select", lambda a: a[:, :3].index_select(0, index), (made(5, 7),)
    yield "index_select", lambda a: a.index_select(0, index), (made(5),)
    yield "index_select", lambda w: F.embedding(index.view(3, 2), w), (one,)
    if not torch.are_deterministic_algorithms_enabled():  # ATen refuses it on CUDA
        yield "cumsum", lambda a: a.cumsum(0), (one,)
        yield "cumsum", lambda a: a[:, 1:].cumsum(-1, dtype=a.dtype), (made(4, 9),)
    yield "copy_", lambda a: a.t().contiguous(), (one,)
    yield "copy_", lambda a: a.permute(0, 2, 1).clone(memory_format=torch.contiguous_format), (made(2, 3, 4),)
    yield "copy_", lambda a: a.contiguous(memory_format=torch.channels_last), (made(2, 3, 4, 5),)
    yield "constant_pad_nd", lambda a: F.pad(a, (1, 2, 0, 3), value=1.5), (one,)
    yield "constant_pad_nd", lambda a: F.pad(a, (-1, 0, 2, -2)), (made(4, 9),)
    yield "constant_pad_nd", lambda a: F.pad(a, (-1, -1)), (made(4, 9).t(),)
    yield (
        "constant_pad_nd",
        lambda a: F.pad(a.contiguous(memory_format=torch.channels_last), (1, 1, 1, 1)),
        (made(2, 3, 4, 5),),
    )
    for mode in ("reflect", "replicate"):
        name = {"reflect": "reflection", "replicate": "replication"}[mode]
        padded = torch._C._nn.pad  # F.pad composes replication in deterministic mode
        for dims, shape in enumerate(((2, 3, 6), (3, 5, 6), (2, 3, 3, 4, 5)), 1):
            for part in ("", "_backward")[: 2 if dims < 3 else 1]:  # of volumes, in deterministic mode alone
                yield (
                    f"{name}_pad{dims}d{part}",
                    lambda a, d=dims, m=mode, f=padded: f(a, (1, 2, 2, 1, 2, 0)[: 2 * d], m),
                    (made(*shape),),
                )
    yield "roll", lambda a: a.roll((1, -2), (0, 1)), (made(4, 9),)
    yield "roll", lambda a: a.roll(5), (made(4, 9).t(),)
    yield "cat", lambda a, b: torch.cat((a, b), 1), (made(4, 3), made(4, 5))
    yield "cat", lambda a, b: torch.cat((a, b.t()), -2), (made(2, 3, 4)[0], made(4, 2))
    yield "cat", lambda a, b: torch.stack((a, b), -1), (made(4, 3), made(4, 3))
    yield "gather", lambda a: a.gather(0, index[:, None].expand(6, 3)), (one,)
    yield "gather", lambda a: a.gather(1, index.view(2, 3, 1).expand(2, 3, 4)), (made(2, 5, 4),)
    yield "convolution", lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=4), (made(2, 4, 9), made(4, 1, 3), made(4))
    yield "convolution", lambda x, w: F.conv1d(x, w, stride=2, dilation=2), (made(2, 3, 12), made(5, 3, 3))
    for more in (0, 1):
        operands = made(2, 4, 6), made(4, 3, 3), made(6)
        yield (
            "convolution",
            lambda x, w, b, more=more: F.conv_transpose1d(x, w, b, stride=2, output_padding=more, groups=2),
            operands,
        )
    yield "sum", lambda a: a.sum(), (one,)
    yield "mean", lambda a: a.mean((0, 1)), (made(4, 4),)
    yield "mul", lambda a, b: a * b, (one, made(3))
    yield "mul", lambda a, b: a * b, (made(4, 4), made(4, 4).t())


def gradients_of(function, operands):
    """The result, and the gradients for a dense and for an expanded gradient of the result."""
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in operands]
    result = function(*leaves)
    dense = torch.autograd.grad(result, leaves, torch.full_like(result, 3), retain_graph=True, allow_unused=True)
    expanded = torch.autograd.grad(result.sum(), leaves, allow_unused=True)
    return [result.detach(), *(g for g in (*dense, *expanded) if g is not None)]


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("deterministic", [False, True])
def test_results_and_gradients_of_other_calls(device, dtype, deterministic):
    """Operands are small integers, so that results are exact in any order of additions."""
    failures = Failures()
    seen = set()
    with deterministic_algorithms(deterministic):
        for k, (name, function, operands) in enumerate(calls_by_gpuopt(device, dtype)):
            with failures.sample(f"{k} {name}"):
                want = gradients_of(function, operands)
                with counted() as calls, override(device):
                    got = gradients_of(function, operands)
                if calls.get(name, {}).get("taken"):
                    seen.add(name)
                else:
                    failures.add(f"{k} {name}", f"was not taken: {calls}")
                for ours, theirs in zip(got, want, strict=True):
                    failures.add(f"{k} {name}", different_metadata(ours, theirs))
                    if device == "cuda" and name == "convolution":  # cuDNN may round intermediate values to bfloat16
                        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=0.5)
                    else:
                        failures.add(f"{k} {name}", different_bits(ours, theirs))
    failures.check(at_least=20)
    assert {
        "index_put",
        "embedding_dense_backward",
        "index_select",
        "scatter_reduce",
        "copy_",
        "roll",
        "cat",
        "gather",
    } <= seen


def test_an_index_out_of_range_is_refused():
    """Its row in the merged dimension exists, in the next plane."""
    x, first, last = torch.zeros(2, 4, 5), torch.tensor([0, 1]), torch.tensor([1, 5])
    for index in (last, -last - 1):
        with (
            override("cpu"),
            counted() as calls,
            pytest.raises((IndexError, RuntimeError), match="in the range of dimension 1"),
        ):
            torch.ops.aten._index_put_impl_(x, [None, first, index], torch.ones(2, 2), True)
        assert calls["index_put"]["taken"] == 1
    assert x.count_nonzero() == 0


@each_device
def test_gradcheck(device):
    failures = Failures()
    for k, (name, function, operands) in enumerate(calls_by_gpuopt(device, torch.float64, padding=False)):
        with failures.sample(f"{k} {name}"), override(device):
            leaves = [t.clone().requires_grad_() for t in operands]
            torch.autograd.gradcheck(function, leaves, nondet_tol=1e-9)
            if k % 3 == 0:
                torch.autograd.gradgradcheck(function, leaves, nondet_tol=1e-9)
    failures.check(at_least=20)


@each_device
def test_vmap(device):
    failures, taken = Failures(), 0
    for k, (name, function, operands) in enumerate(calls_by_gpuopt(device, torch.float32)):
        batches = [torch.stack([t, t + 1, 2 * t]) for t in operands]
        if operands[0].dim() == 4:
            continue  # vmap does not support memory formats
        with failures.sample(f"{k} {name}"):
            want = torch.vmap(function)(*batches)
            with counted() as calls, override(device):
                got = torch.vmap(function)(*batches)
            failures.add(f"{k} {name}", different_bits(got, want))
            taken += sum(row.get("taken", 0) for row in calls.values())
    failures.check(at_least=15)
    assert taken >= 5


def small_model(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv1d(4, 4, 3, groups=4, padding=1), torch.nn.GELU(), torch.nn.Conv1d(4, 8, 1)
    ).to(device)


def trained(device, autocast=False, compiled=False):
    """Outputs and gradients of a small model, with a loss that broadcasts, reduces and indexes."""
    model = small_model(device)
    table = torch.nn.Parameter(torch.linspace(-1, 1, 40, device=device).view(5, 8))
    index = torch.tensor([0, 1, 1, 4], device=device)

    def loss(x):
        y = model(x)  # (4, 8, 16)
        rows = F.embedding(index, table)[..., None] * y
        return rows.mean((0, 2)).sum() + y.transpose(1, 2).contiguous().amax(1).sum() + table[index].square().sum()

    function = torch.compile(loss, backend="aot_eager") if compiled else loss
    x = torch.linspace(-1, 1, 4 * 4 * 16, device=device).view(4, 4, 16)
    with torch.autocast(device, torch.bfloat16, enabled=autocast):
        result = function(x)
    result.backward()
    return [result.detach(), table.grad, *(p.grad for p in model.parameters())]


@each_device
@pytest.mark.parametrize("autocast", [False, True], ids=["f32", "autocast"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "aot_eager"])
def test_a_model(device, autocast, compiled):
    want = trained(device, autocast, compiled)
    with counted() as calls, override(device):
        got = trained(device, autocast, compiled)
    torch._dynamo.reset()
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=5e-2 if autocast else 1e-4, atol=5e-2 if autocast else 1e-5)
    assert calls["convolution"]["taken"] >= 1 and calls["convolution_backward"]["taken"] >= 1
    assert calls["index_put"]["taken"] == 1 and calls["amax"]["taken"] == 1


def _with_free_strides(tensor, choice):
    """The same values. A dimension of size 1 gets stride 0, 1, its size times the stride of the next, or the product of all sizes."""
    strides = list(tensor.stride())
    for d, size in enumerate(tensor.shape):
        if size == 1:
            strides[d] = (0, 1, tensor.shape[-1], tensor.numel())[choice[d]]
    return tensor.as_strided(tensor.shape, strides)


def _layouts(tensor):
    """A tensor in channels-first and channels-last memory, with every choice of strides for its dimensions of size 1."""
    for made in (tensor, tensor.transpose(1, 2).contiguous().transpose(1, 2)):
        free = [range(4) if size == 1 else (0,) for size in tensor.shape]
        yield from (_with_free_strides(made, choice) for choice in itertools.product(*free))


# Batch, channels, length, output channels, channels of a group, taps.
CONVOLUTIONS = [
    (2, 8, 33, 8, 1, 3),
    (2, 4, 16, 6, 4, 3),
    (2, 1, 16, 8, 1, 5),
    (3, 8, 1, 8, 8, 1),
    (1, 6, 9, 1, 6, 3),
    (3, 1, 90, 4, 1, 7),
    (1, 1, 90, 4, 1, 7),
    (4, 6, 1, 6, 1, 3),
    (3, 1, 1, 2, 1, 3),
    (1, 4, 1, 3, 4, 3),
    (3, 1, 9, 1, 1, 1),
    (1, 1, 1, 1, 1, 1),
]


def layouts_of_convolutions(device, dtype):
    """(name, function, signal, weight): all layouts of the signal beside a few of the weight, and the other way round."""
    for n, c, length, out, of_group, taps in CONVOLUTIONS:

        def call(x, w, groups=c // of_group, padding=taps // 2):
            return F.conv1d(x, w, padding=padding, groups=groups)

        def transposed(x, w, groups=c // of_group, padding=taps // 2):
            return F.conv_transpose1d(x, w, padding=padding, groups=groups)

        weights = list(_layouts(rows(device, dtype, out, of_group, taps)))
        for function, channels in ((call, c), (transposed, out)):
            signals = list(_layouts(rows(device, dtype, n, channels, length)))
            pairs = (itertools.product(signals, spread(weights, 3)), itertools.product(spread(signals, 3), weights))
            for x, w in itertools.chain(*pairs):
                name = f"{function.__name__} {(n, c, length, out, of_group, taps)} {x.stride()} {w.stride()}"
                yield name, function, x, w


def test_channels_last_convolutions_are_those_of_cudnn():
    """Convolutions that ATen would compute in channels-last layout on CUDA are declined, and no others."""
    failures = Failures()
    for name, call, x, w in layouts_of_convolutions("cpu", torch.float32):
        operands = x.contiguous().unsqueeze(2), w.unsqueeze(2)  # as F.conv1d makes them
        layout = torch._C._conv_determine_backend_memory_format(*operands, torch._C._ConvBackend.Cudnn)
        with failures.sample(name), counted() as calls, override("cpu"):
            call(x, w)
        declined = calls["convolution"] == {"layout": 1}
        failures.add(name, None if declined == (layout == torch.channels_last) else f"ATen's is {layout}: {calls}")
    failures.check(at_least=600)


@pytest.mark.gpu
def test_a_gradient_of_one_channel_suggests_a_layout():
    """It is the input of a convolution in the backward pass of a transposed one."""
    x, w = torch.randn(4, 13, 40, device="cuda", requires_grad=True), torch.randn(13, 1, 2, device="cuda")
    w.requires_grad_()
    for grad in (torch.randn(4, 1, 119, device="cuda"), torch.randn(4, 119, 1, device="cuda").mT):
        results = []
        for used in (False, True):
            with override("cuda") if used else torch.enable_grad():
                y = torch.nn.functional.conv_transpose1d(x, w, stride=3)
                results.append(torch.autograd.grad(y, (x, w), grad))
        for ours, theirs in zip(*reversed(results), strict=True):
            assert different_metadata(ours, theirs) is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_layouts_of_convolutions(dtype):
    """Channels-last signals and weights, and any strides of dimensions of size 1, give ATen's strides, in outputs and in all
    gradients."""
    failures = Failures()
    for name, call, x, w in layouts_of_convolutions("cuda", dtype):
        with failures.sample(name):
            want = gradients_of(call, (x, w))
            with override("cuda"):
                got = gradients_of(call, (x, w))
            for ours, theirs in zip(got, want, strict=True):
                failures.add(name, different_metadata(ours, theirs))
                torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
    failures.check(at_least=600)


@pytest.mark.gpu
def test_cuda_graph():
    x, weight = rows("cuda", torch.float32, 64, 256), rows("cuda", torch.float32, 256)
    with override("cuda"):
        graph, result = captured(lambda: (x * weight).sum(1))
    x.add_(1)
    graph.replay()
    assert torch.equal(result, (x * weight).sum(1))
