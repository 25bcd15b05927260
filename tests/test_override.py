"""torch_ops.override: results are ATen's, calls are counted, and what stood before comes back.

Without a GPU the kernels of the CPU are replaced, and every supported call is taken. gpuopt then calls ATen's kernels, so results
must have the same bits. On a GPU they must be as exact as the operator's case says.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time

import pytest
import torch
from torch.nn import functional as F

import torch_ops
from torch_ops import _library

from .cases import all_cases
from .compare import Failures, different_bits, different_from_reference, different_metadata, raised_by
from .params import each_device, on, thinned

OPERATORS = torch_ops.override.operators
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
    "dot": "dot",
    "vdot": "vdot",
}
CASES = {c.name: c for c in all_cases() if c.name in REPLACED}


def override(device: str, ops=None, always: bool = True) -> torch_ops.override:
    """An override of the kernels of `device`. Calls of every size are taken."""
    made = torch_ops.override(ops)
    made._key, made._always = device.upper(), always
    return made


@contextlib.contextmanager
def counted():
    """Counts the calls inside, as a dictionary that is filled at the end."""
    torch_ops.override_report(reset=True)
    calls: dict = {}
    yield calls
    calls.update(torch_ops.override_report().calls)


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No test leaves an operator replaced."""
    yield
    with counted() as calls:
        torch.ones(2, 2).sum(0)
    assert calls == {}


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
            # On the CPU, oneDNN adds the gradient of a bias in another order than gpuopt's call of it.
            if not was_taken or (device == "cpu" and name != "convolution_backward"):
                if different_bits(again, want) is None:  # ATen's kernel is repeatable
                    failures.add(sample.name, different_bits(got, want))
            elif sample.exact_inputs:
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


def rows(device, dtype=torch.float32, *shape):
    generator = torch.Generator(device).manual_seed(len(shape))
    return torch.randint(-8, 9, shape, generator=generator, device=device).to(dtype)


INDEX = [0, 3, 3, 1, 0, 3]


def own_calls(device, dtype, padding=True):
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
    yield "embedding_dense_backward", lambda w: F.embedding(index.view(3, 2), w), (one,)
    if padding:
        yield "embedding_dense_backward", lambda w: F.embedding(index, w, padding_idx=3), (one,)
    yield "copy_", lambda a: a.t().contiguous(), (one,)
    yield "copy_", lambda a: a.permute(0, 2, 1).clone(memory_format=torch.contiguous_format), (made(2, 3, 4),)
    yield "copy_", lambda a: a.contiguous(memory_format=torch.channels_last), (made(2, 3, 4, 5),)
    yield "convolution", lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=4), (made(2, 4, 9), made(4, 1, 3), made(4))
    yield "convolution", lambda x, w: F.conv1d(x, w, stride=2, dilation=2), (made(2, 3, 12), made(5, 3, 3))
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
    torch.use_deterministic_algorithms(deterministic)
    try:
        for k, (name, function, operands) in enumerate(own_calls(device, dtype)):
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
    finally:
        torch.use_deterministic_algorithms(False)
    failures.check(at_least=20)
    assert {"index_put", "embedding_dense_backward", "scatter_reduce", "copy_"} <= seen


@each_device
def test_gradcheck(device):
    failures = Failures()
    for k, (name, function, operands) in enumerate(own_calls(device, torch.float64, padding=False)):
        with failures.sample(f"{k} {name}"), override(device):
            leaves = [t.clone().requires_grad_() for t in operands]
            torch.autograd.gradcheck(function, leaves, nondet_tol=1e-9)
            if k % 3 == 0:
                torch.autograd.gradgradcheck(function, leaves, nondet_tol=1e-9)
    failures.check(at_least=20)


@each_device
def test_vmap(device):
    failures, taken = Failures(), 0
    for k, (name, function, operands) in enumerate(own_calls(device, torch.float32)):
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


@pytest.mark.gpu
def test_layouts_of_convolutions():
    """Channels-last signals and weights give ATen's strides, in outputs and in all gradients."""
    failures = Failures()
    shapes = [(2, 8, 33, 8, 1, 3), (2, 4, 16, 6, 4, 3), (2, 1, 16, 8, 1, 5), (3, 8, 1, 8, 8, 1), (1, 6, 9, 1, 6, 3)]
    for dtype in (torch.float32, torch.float16):
        for n, c, length, out, of_group, taps in shapes:
            for kind in range(4):
                x = rows("cuda", dtype, n, c, length)
                w = rows("cuda", dtype, out, of_group, taps)
                if kind & 1:
                    x = x.transpose(1, 2).contiguous().transpose(1, 2)
                if kind & 2:
                    w = w.transpose(1, 2).contiguous().transpose(1, 2)
                name = f"{dtype} {(n, c, length, out, of_group, taps)} {kind}"

                def call(x, w, groups=c // of_group, padding=taps // 2):
                    return F.conv1d(x, w, padding=padding, groups=groups)

                with failures.sample(name):
                    want = gradients_of(call, (x, w))
                    with override("cuda"):
                        got = gradients_of(call, (x, w))
                    for ours, theirs in zip(got, want, strict=True):
                        failures.add(name, different_metadata(ours, theirs))
                        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
    failures.check(at_least=40)


@pytest.mark.gpu
def test_cuda_graph():
    x, weight = rows("cuda", torch.float32, 64, 256), rows("cuda", torch.float32, 256)
    with override("cuda"):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            (x * weight).sum(1)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = (x * weight).sum(1)
    x.add_(1)
    graph.replay()
    assert torch.equal(result, (x * weight).sum(1))


# ---------------------------------------------------------------- what is taken


@pytest.mark.parametrize(
    "reason, function",
    [
        ("aten_is_faster", lambda: torch.ones(3, 4) * 2.0),
        ("aten_is_faster", lambda: torch.ones(3, 4) * torch.ones(3, 4)),
        ("size", lambda: torch.ones(3, 4) * torch.ones(4)),
        ("dtype", lambda: torch.ones(3, 4, dtype=torch.int64) * torch.ones(4)),
        ("layout", lambda: torch.ones(1 << 11, 1 << 12)[:, ::2] * torch.ones(1 << 11, 1 << 11)),
    ],
)
def test_reasons(reason, function):
    with counted() as calls, override("cpu", "mul", always=False):
        function()
    assert calls["mul"].get(reason) == 1, calls


@pytest.mark.parametrize(
    "name, function",
    [
        ("sum", lambda x: x.sum(1)),
        ("mean", lambda x: x.mean(0)),
        ("amax", lambda x: x.amax(1)),
        ("mul", lambda x: x * x[:, :1]),
        ("mul", lambda x: x * x.t()),
        ("copy_", lambda x: x.t().contiguous()),
        ("dot", lambda x: torch.dot(x[0], x[1])),
    ],
)
def test_large_calls_are_taken(name, function):
    x = torch.ones(1024, 1024)
    with counted() as calls, override("cpu", always=False):
        function(x)
    assert calls[name] == {"taken": 1}


def test_images_are_passed_on():
    with counted() as calls, override("cpu"):
        F.conv2d(torch.ones(1, 2, 5, 5), torch.ones(2, 2, 3, 3))
        F.conv_transpose1d(torch.ones(1, 2, 5), torch.ones(2, 2, 3))
    assert calls["convolution"] == {"unsupported": 2}


# ---------------------------------------------------------------- what stood before


@contextlib.contextmanager
def other_library(name, make_kernel):
    """Another library's kernel of aten::`name` at the CPU key."""
    library = torch.library.Library("aten", "IMPL")
    library.impl(name, make_kernel, "CPU", allow_override=True)
    try:
        yield
    finally:
        library._destroy()


def test_declined_calls_reach_the_kernel_beneath():
    seen = []

    def negative(x, dim=(), keepdim=False):
        seen.append(tuple(x.shape))
        return torch.zeros(())

    with other_library("amax", negative):
        with counted() as calls, override("cpu", "amax"):
            assert torch.amax(torch.ones(4, dtype=torch.int32)).item() == 0  # a dtype that is declined
            assert torch.amax(torch.ones(4)).item() == 0  # taken: gpuopt's CPU kernel calls ATen's operator
        assert calls["amax"] == {"dtype": 1, "taken": 1}
        assert torch.amax(torch.ones(2)).item() == 0
        assert seen == [(4,), (4,), (2,)]
    assert torch.amax(torch.ones(4)).item() == 1


def test_a_library_above():
    """It stays where it is when the override ends, and ATen's kernel is back after it."""
    with override("cpu", "amin"):
        library = torch.library.Library("aten", "IMPL")
        library.impl("amin", lambda x, dim=(), keepdim=False: x.new_full((), 7), "CPU", allow_override=True)
    try:
        assert torch.amin(torch.ones(2)).item() == 7
        with override("cpu", "amin"):
            assert torch.amin(torch.ones(2)).item() == 7
    finally:
        library._destroy()
    assert torch.amin(torch.ones(2)).item() == 1


def test_nesting():
    x = torch.ones(2, 3)
    outer, inner = override("cpu", ["sum", "mean"]), override("cpu", "sum")
    with counted() as calls:
        with outer:
            with inner, inner:
                x.sum(1)
            x.sum(1)
            x.mean(1)
            x.amax(1)
        x.sum(1)
    assert calls == {"sum": {"taken": 2}, "mean": {"taken": 1}}


def test_enable_and_disable():
    x = torch.ones(2, 3)
    made = override("cpu", "sum")
    with counted() as calls:
        assert made.enable() is made
        x.sum(1)
        made.disable()
        x.sum(1)
        with pytest.raises(RuntimeError, match="must follow enable"):
            made.disable()

        @made
        def decorated():
            return x.sum(1)

        decorated()
    assert calls == {"sum": {"taken": 2}}


def test_the_kernel_of_before_is_back():
    before = torch._C._dispatch_dump_table("aten::convolution")
    with override("cpu"), override("cpu", "convolution"):
        assert torch._C._dispatch_dump_table("aten::convolution") != before
    assert torch._C._dispatch_dump_table("aten::convolution") == before


def test_threads():
    """Threads compute, and enable and disable, at the same time."""
    stop = time.monotonic() + 1.5
    problems = []

    def work(k):
        x = torch.full((4, 5), float(k + 1))
        try:
            while time.monotonic() < stop:
                with override("cpu", ["sum", "mul", "copy_"]):
                    for _ in range(20):
                        assert x.sum(1)[0].item() == 5 * (k + 1)
                        assert (x * x[:, :1])[3, 4].item() == (k + 1) ** 2
                        assert x.t().contiguous().stride() == (4, 1)
        except BaseException as error:
            problems.append(error)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == []


# ---------------------------------------------------------------- errors and the report


def test_unknown_operators():
    with pytest.raises(ValueError, match="expected some of sum, mean, amax.*got 'softmax'"):
        torch_ops.override(["sum", "softmax"])


def test_a_library_without_these_kernels():
    with pytest.raises(RuntimeError, match="this build of gpuopt has no kernels for XPU"):
        override("xpu").enable()


def test_other_settings():
    with override("cpu", "sum"), pytest.raises(RuntimeError, match="replaced already, with other settings"):
        override("cpu", "sum", always=False).enable()


@pytest.mark.parametrize("version", [(2, 10), (2, 99)])
def test_unknown_torch(monkeypatch, version):
    monkeypatch.setattr(_library, "torch_version", lambda: version)
    with pytest.raises(RuntimeError, match="knows PyTorch 2.11 to 2.15, and this is"):
        torch_ops.override().enable()


def test_cuda_kernels_can_be_replaced_without_a_gpu():
    before = torch._C._dispatch_dump_table("aten::sum.dim_IntList")
    if "CUDA" not in before or _library.kernel_cuda() is None:
        pytest.skip("no CUDA")
    with torch_ops.override():
        assert torch._C._dispatch_dump_table("aten::sum.dim_IntList") != before
        assert torch.ones(2, 2).sum(0).tolist() == [2, 2]
    assert torch._C._dispatch_dump_table("aten::sum.dim_IntList") == before


def test_report():
    torch_ops.override_report(reset=True)
    assert str(torch_ops.override_report()) == "No call reached a replaced operator."
    with override("cpu", ["sum", "mul"]):
        torch.ones(2, 2).sum(0)
        torch.ones(2, 2) * 2
    report = torch_ops.override_report(reset=True)
    assert report.calls == {"sum": {"taken": 1}, "mul": {"aten_is_faster": 1}}
    assert (report.taken, report.declined) == (1, 1)
    assert str(report).split("\n") == [
        "operator  taken  aten_is_faster",
        "sum           1               0",
        "mul           0               1",
    ]
    assert torch_ops.override_report().calls == {}


# ---------------------------------------------------------------- the cost of a call


def call_time(function, calls=2000):
    """The time of a call on the host, in us. The kernels are shorter than that."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls * 1e6


def shortest_times(functions, *overrides):
    """The shortest time of a call of each function, under each override (None: without one). Rounds alternate between these, so
    that a slower moment of the machine affects all of them."""
    times = {name: [float("inf")] * len(overrides) for name in functions}
    with torch.no_grad():
        for _ in range(15):
            for k, used in enumerate(overrides):
                with used or contextlib.nullcontext():
                    for name, function in functions.items():
                        times[name][k] = min(times[name][k], call_time(function))
    return times


@pytest.mark.gpu
@pytest.mark.alone
def test_overhead():
    """A declined call costs at most 0.3 us more, and a taken one 1 us more than gpuopt's operator."""
    x, y, w = (rows("cuda", torch.float32, *shape) for shape in ((8, 8), (8,), (4, 4, 1, 1)))
    image, transposed = rows("cuda", torch.float32, 1, 4, 2, 2), x.clone().t()
    x_rows, index = rows("cuda", torch.float32, 3, 8), torch.tensor([0, 1, 1], device="cuda")
    declined = {
        "mul by a number": lambda: torch.mul(x, 2.0),
        "mul, dense": lambda: torch.mul(x, x),
        "mul, small": lambda: torch.mul(x, y),
        "sum, small": lambda: torch.sum(x, 1),
        "copy_": lambda: x.copy_(x),
        "copy_, small": lambda: x.copy_(transposed),
        "conv2d": lambda: torch.conv2d(image, w),
    }
    slower = {
        name: on - off for name, (off, on) in shortest_times(declined, None, override("cuda", always=False)).items()
    }
    taken = {
        "sum": (lambda: torch.sum(x, 1), lambda: torch.ops.gpuopt.reduce_sum(x, [1])),
        "mul": (lambda: torch.mul(x, y), lambda: torch.ops.gpuopt.mul(x, y)),
        "index_add_": (
            lambda: x.index_add_(0, index, x_rows),
            lambda: torch.ops.gpuopt.index_add_(x, 0, index, x_rows),
        ),
    }
    of_aten = shortest_times({name: pair[0] for name, pair in taken.items()}, override("cuda"))
    of_gpuopt = shortest_times({name: pair[1] for name, pair in taken.items()}, None)
    slower_taken = {name: of_aten[name][0] - of_gpuopt[name][0] for name in taken}
    print(slower, slower_taken)
    assert max(slower.values()) <= 0.3 and max(slower_taken.values()) <= 1.0, (slower, slower_taken)
