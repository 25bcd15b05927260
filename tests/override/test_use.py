"""torch_ops.override: which calls are taken, what comes back when it ends, errors, the report, and the cost of a call.

Without a GPU the kernels of the CPU are replaced.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import torch_ops
from torch_ops import _library

from ..support.overriding import counted, nothing_is_left, override, rows  # noqa: F401
from ..support.runtime import deterministic_algorithms

pytestmark = pytest.mark.torch_version

# ---------------------------------------------------------------- what is taken


@pytest.mark.parametrize(
    "reason, function",
    [
        ("aten_is_faster", lambda: torch.ones(3, 4) * 2.0),
        ("aten_is_faster", lambda: torch.ones(3, 4) * torch.ones(3, 4)),
        ("size", lambda: torch.ones(3, 4) * torch.ones(4)),
        ("dtype", lambda: torch.ones(1 << 10, 1 << 10, dtype=torch.int64) * torch.ones(1 << 10)),
        ("layout", lambda: torch.ones(1 << 11, 1 << 12)[:, ::2] * torch.ones(1 << 11, 1 << 11)),
    ],
)
def test_reasons(reason, function):
    with counted() as calls, override("cpu", "mul", always=False):
        function()
    assert calls["mul"].get(reason) == 1, calls


def gradients_of_norm(norm, x):
    leaves = x.clone().requires_grad_(), torch.ones(x.shape[-1:], requires_grad=True)
    with contextlib.suppress(
        NotImplementedError
    ):  # a declined gradient of an RMS norm, which ATen does not have for the CPU
        torch.autograd.grad(norm(leaves[0], x.shape[-1:], leaves[1]), leaves, x)


def gradients_of_group_norm(x):
    leaf = x.clone().requires_grad_()
    torch.autograd.grad(F.group_norm(leaf, 4), leaf, x)


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
        ("cumsum", lambda x: x.cumsum(1)),
        ("sum", lambda x: x[:, ::2].sum(0)),
        ("native_layer_norm", lambda x: F.layer_norm(x, [1024])),
        ("native_layer_norm_backward", lambda x: gradients_of_norm(F.layer_norm, x.repeat(2, 1))),
        ("_fused_rms_norm", lambda x: F.rms_norm(x, [1024])),
        ("_fused_rms_norm_backward", lambda x: gradients_of_norm(F.rms_norm, x.repeat(2, 1))),
        ("native_group_norm", lambda x: F.group_norm(x.view(4, 16, 128, 128), 4)),
        ("native_group_norm_backward", lambda x: gradients_of_group_norm(x.view(4, 16, 128, 128))),
        ("native_batch_norm", lambda x: F.batch_norm(x.view(4, 16, 128, 128), None, None, training=True)),
        ("index_add", lambda x: x.index_add(0, torch.arange(1024), x + 0)),
        ("scatter_add", lambda x: x.scatter_add(0, torch.arange(1024)[:, None].expand(1024, 1024), x + 0)),
    ],
)
def test_large_calls_are_taken(name, function):
    """Unless this version of PyTorch has a kernel that is newer than the measurements. In deterministic mode, additions have none."""
    x = torch.ones(1024, 1024)
    rewritten = {"index_add": (2, 13), "scatter_add": (2, 13), "copy_": (2, 15), "amax": (2, 15)}
    is_newer = _library.torch_version() >= ((2, 12) if "norm" in name else rewritten.get(name, (9, 9)))
    with counted() as calls, override("cpu", always=False):
        function(x)
    assert calls[name] == {"not_measured" if is_newer else "taken": 1}
    if "add" in name:
        with counted() as calls, override("cpu", always=False), deterministic_algorithms():
            function(x)
        assert calls[name] == {"taken": 1}


def test_what_cumsum_passes_on():
    x = torch.ones(64, 128)
    with counted() as calls, override("cpu", "cumsum", always=False):
        x[:8].cumsum(1)
        x.long().cumsum(1)
        x.cumsum(1, dtype=torch.float64)
        with deterministic_algorithms():  # ATen's CUDA kernel raises an error before torch 2.15
            x.cumsum(1)
            x.long().cumsum(1)
    assert calls["cumsum"] == {"size": 1, "dtype": 3, "taken": 1}


def test_the_first_program_of_the_quick_start_prints_its_report(monkeypatch, capsys):
    """As on a GPU: with calls of operators that are large enough to be taken."""
    page = (Path(__file__).parents[2] / "docs/quickstart.md").read_text()
    program, shown = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", page, re.DOTALL).groups()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    of_the_cpu = override("cpu", always=False)
    monkeypatch.setattr(torch_ops, "override", lambda: of_the_cpu)
    torch_ops.override_report(reset=True)
    exec(program, {})
    assert capsys.readouterr().out == shown and " taken " in shown


def test_images_are_passed_on():
    with counted() as calls, override("cpu"):
        F.conv2d(torch.ones(1, 2, 5, 5), torch.ones(2, 2, 3, 3))
        F.conv_transpose2d(torch.ones(1, 2, 5, 5), torch.ones(2, 2, 3, 3))
    assert calls["convolution"] == {"unsupported": 2}


def test_transposed_convolutions():
    x, depthwise, dense = torch.ones(1, 16, 20), torch.ones(16, 1, 4), torch.ones(16, 65, 4)
    with counted() as calls, override("cpu", always=False):
        F.conv_transpose1d(x, depthwise, stride=2, groups=16)
        F.conv_transpose1d(x, dense, stride=2)
    assert calls["convolution"] == {"taken": 1, "aten_is_faster": 1}
    with counted() as calls, override("cpu"):
        F.conv_transpose1d(x, depthwise, groups=16, dilation=2, output_padding=1)  # cuDNN refuses it
    assert calls["convolution"] == {"unsupported": 1}


@pytest.mark.parametrize(
    "dtype, groups, channels, taps, reasons",  # in rows, and channels last
    [
        (torch.bfloat16, 2, 64, 16, ("taken", "taken")),
        (torch.bfloat16, 2, 17, 3, ("taken", "taken")),
        (torch.float16, 2, 64, 2, ("taken", "layout")),
        (torch.bfloat16, 2, 65, 16, ("aten_is_faster", "layout")),
        (torch.bfloat16, 1, 64, 16, ("taken", "layout")),
        (torch.float32, 2, 64, 16, ("taken", "layout")),
    ],
)
def test_groups_of_many_channels_and_taps(dtype, groups, channels, taps, reasons):
    x, w = torch.ones(1, groups * channels, 20, dtype=dtype), torch.ones(groups * 20, channels, taps, dtype=dtype)
    # Models of speech transpose hidden states.
    for signal, reason in zip((x, x.mT.contiguous().mT), reasons, strict=True):
        with counted() as calls, override("cpu", always=False):
            F.conv1d(signal, w, groups=groups)
        assert calls["convolution"] == {reason: 1}


def test_transposed_groups_in_channels_last_layout_are_not_copied():
    x, w = torch.ones(1, 20, 64, dtype=torch.bfloat16).mT, torch.ones(64, 32, 16, dtype=torch.bfloat16)
    with counted() as calls, override("cpu", always=False):
        F.conv_transpose1d(x, w, stride=2, groups=2)
    assert calls["convolution"] == {"layout": 1}


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


@pytest.mark.parametrize(
    "ops",
    [torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()), 5, torch.sum, ["sum", torch.mul]],
    ids=lambda ops: type(ops).__name__,
)
def test_what_is_no_name(ops):
    with pytest.raises(
        TypeError, match=r"ops must be names of operators.* got .*`with torch_ops.override\(\): model\(x\)`"
    ):
        torch_ops.override(ops)


def test_a_library_without_these_kernels():
    with pytest.raises(RuntimeError, match="this build of gpuopt has no kernels for XPU; install a torch with CUDA"):
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
    sees = "a GPU" if torch.cuda.is_available() else "no GPU"
    assert str(torch_ops.override_report()) == (
        f"No call reached a replaced operator. Only operators on CUDA tensors are replaced, and torch sees {sees}."
    )
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
