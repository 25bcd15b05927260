"""torch_ops.override and torch.compile: Inductor's code, what happens when the override begins and ends, and other passes.

Without a GPU the pass acts on CPU tensors. Inductor takes a second for each graph, so that few tests use it.
"""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.fx_passes import reinplace
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch_ops

from ..support.compare import different_bits, different_metadata
from ..support.compiling import INDEX_ADD, Graphs, gradients_of, passes
from ..support.overriding import counted, nothing_is_left, override, rows  # noqa: F401
from ..support.params import each_device

pytestmark = pytest.mark.torch_version

INDEX = [0, 3, 3, 1, 0, 3]


@pytest.fixture(autouse=True)
def _fresh():
    """No compiled function is left, and Inductor's configuration is as it was."""
    before = config.post_grad_custom_post_pass
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    assert config.post_grad_custom_post_pass is before
    assert INDEX_ADD not in reinplace.inplaceable_ops


def gathered(x):
    return x[torch.tensor(INDEX, device=x.device)] * 2


# ---------------------------------------------------------------- Inductor


def graph_layer(table, source, entries):
    """An embedding, messages that are added at nodes in two ways, and a gather with a gradient."""
    x = F.embedding(entries, table)
    nodes = x.new_zeros(table.shape[0], x.shape[1]).index_add_(0, entries, x * 2)
    nodes = nodes.scatter_add(0, entries[:, None].expand(entries.shape[0], x.shape[1]), source * x)
    return nodes[entries] + checkpoint(lambda n: n.index_select(0, entries).square(), nodes, use_reentrant=False)


def operands_of_layer(device, dtype=torch.float32, size=6):
    entries = (torch.arange(size, device=device) * 5) % 4
    return rows(device, dtype, 7, 4), rows(device, dtype, size, 4), entries


@each_device
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_training(device, dynamic):
    """Code of Inductor has gpuopt's calls, in place where a sum starts from zeros. Results are eager mode's."""
    compiled = torch.compile(graph_layer, fullgraph=True, dynamic=dynamic)
    with override(device):
        _, code = run_and_get_code(gradients_of, compiled, operands_of_layer(device, size=6))
        assert "".join(code).count("= torch.ops.gpuopt.index_add") >= 5
        assert "torch.ops.gpuopt.index_add_.default" in code[0]
        with torch._dynamo.config.patch(error_on_recompile=True):
            for size in (6, 9, 20) if dynamic else (6,):
                operands = operands_of_layer(device, size=size)
                want = gradients_of(graph_layer, operands)
                for ours, theirs in zip(gradients_of(compiled, operands), want, strict=True):
                    assert different_metadata(ours, theirs) is None
                    torch.testing.assert_close(ours, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_reduce_overhead(dtype):
    compiled = torch.compile(graph_layer, fullgraph=True, mode="reduce-overhead")
    with override("cuda"):
        for seed in range(4):
            torch.manual_seed(seed)
            operands = operands_of_layer("cuda", dtype)
            torch.compiler.cudagraph_mark_step_begin()
            for ours, theirs in zip(gradients_of(compiled, operands), gradients_of(graph_layer, operands), strict=True):
                torch.testing.assert_close(ours.clone(), theirs, rtol=2e-2, atol=2e-2)
    assert counters["inductor"]["cudagraph_skips"] == 0


def test_memory_that_is_also_read_is_not_written_in_place():
    def function(x, index):
        y = x * 2
        return y.index_add(0, index, y[2:8])

    x, index = rows("cpu", torch.float32, 10, 4), torch.tensor(INDEX)
    with override("cpu"):
        got, code = run_and_get_code(torch.compile(function), x, index)
    assert torch.equal(got, function(x, index))
    assert "torch.ops.gpuopt.index_add.default" in code[0] and "gpuopt.index_add_" not in code[0]


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True])
def test_convolutions_are_calls_that_the_override_replaces(channels_last):
    def function(x, weight, bias):
        return F.conv1d(F.silu(x), weight, bias, padding=2, groups=64).relu()

    x = rows("cuda", torch.float16, 4, 64, 512)
    if channels_last:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    operands = x, rows("cuda", torch.float16, 64, 1, 5), rows("cuda", torch.float16, 64)
    want = gradients_of(torch.compile(function), operands)
    torch._dynamo.reset()
    with counted() as calls, override("cuda"):
        got = gradients_of(torch.compile(function), operands)
    assert calls["convolution"]["taken"] == 1 and calls["convolution_backward"]["taken"] == 1
    for ours, theirs in zip(got, want, strict=True):
        assert different_metadata(ours, theirs) is None
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)


# ---------------------------------------------------------------- begin and end


def test_on_off_on():
    """A function is compiled once with the override and once without. Each code is used in its state, however often it changes."""
    graphs, x = Graphs(), rows("cpu", torch.float32, 5, 4)
    compiled = torch.compile(gathered, backend=graphs)
    made, seen = override("cpu"), []
    for on in (False, True, False, True, True, False):
        if on:
            made.enable()
        try:
            before = len(graphs.graphs)
            gradients_of(compiled, [x])
            seen.append((len(graphs.graphs) - before, len(graphs.calls())))
        finally:
            if on:
                made.disable()
    assert seen == [(2, 0), (2, 1), (0, 1), (0, 1), (0, 1), (0, 1)]


def test_a_function_that_was_compiled_while_it_was_on():
    graphs, x = Graphs(), rows("cpu", torch.float32, 5, 4)
    compiled = torch.compile(gathered, backend=graphs)
    with override("cpu"):
        gradients_of(compiled, [x])
        with override("cpu", "index_put"):
            gradients_of(compiled, [x])  # the same operators are replaced
    assert len(graphs.graphs) == 2 and len(graphs.calls()) == 1
    gradients_of(compiled, [x])
    assert len(graphs.graphs) == 4 and len(graphs.calls()) == 1
    with override("cpu", "sum"):
        gradients_of(compiled, [x])  # no operator that has a part in graphs
    assert len(graphs.graphs) == 4


def test_other_operators_compile_nothing_again():
    graphs, x = Graphs(), rows("cpu", torch.float32, 5, 4)
    compiled = torch.compile(gathered, backend=graphs)
    gradients_of(compiled, [x])
    with override("cpu", ["sum", "mul", "convolution"]):
        assert config.post_grad_custom_post_pass is None
        gradients_of(compiled, [x])
    assert len(graphs.graphs) == 2


def test_another_thread_toggles():
    """Functions are compiled and called while another thread enables and disables."""
    stop = time.monotonic() + 1.5
    toggled = 0

    def toggle():
        nonlocal toggled
        while time.monotonic() < stop:
            for names in (None, "index_put", "sum"):
                with override("cpu", names):
                    time.sleep(0.001)
            toggled += 1

    thread = threading.Thread(target=toggle)
    thread.start()
    x, graphs = rows("cpu", torch.float32, 5, 4), Graphs()
    want = gradients_of(gathered, [x])
    while time.monotonic() < stop:
        compiled = torch.compile(gathered, backend=graphs)
        for _ in range(20):
            assert all(map(torch.equal, gradients_of(compiled, [x]), want))
    thread.join()
    assert toggled >= 5 and len(graphs.graphs) >= 2


def test_tracing_after_another_override():
    """Dispatch in Python, as tracing does it, calls no kernel that is gone. aten::copy_ has no CPU kernel of its own."""
    x = torch.ones(3)
    for names in (None, "sum"):
        with override("cpu", names), torch._dispatch.python.enable_python_dispatcher():
            assert torch.equal(x.clone(), x)
    with torch._dispatch.python.enable_python_dispatcher():
        assert torch.equal(x.clone(), x)


# ---------------------------------------------------------------- Inductor's cache, and other passes


class CountedPass(CustomGraphPass):
    """A user's pass. It counts its calls."""

    def __init__(self, identifier="user"):
        self.calls, self.identifier = 0, identifier

    def __call__(self, graph):
        self.calls += 1

    def uuid(self):
        return self.identifier


def test_the_cache_of_graphs():
    """A graph comes from Inductor's cache only if the same operators are replaced."""
    x = rows("cpu", torch.float32, 5, 4)
    with fresh_cache(), torch._functorch.config.patch(enable_autograd_cache=False):
        seen = []
        for on in (True, True, False, True, False):
            torch._dynamo.reset()
            counters.clear()
            compiled = torch.compile(gathered)
            if on:
                with override("cpu"):
                    gradients_of(compiled, [x])
            else:
                gradients_of(compiled, [x])
            seen.append(counters["inductor"]["fxgraph_cache_hit"])
    assert seen == [0, 2, 0, 2, 2]


def key_of_passes():
    """The key, or None if Inductor caches nothing because one of the passes has none."""
    keys = [p.uuid() if isinstance(p, CustomGraphPass) else None for p in passes()]
    return tuple(keys) if all(keys) else None


def test_cache_keys():
    keys = []
    for previous in (None, CountedPass(), CountedPass("other")):
        with config.patch(post_grad_custom_post_pass=previous):
            for made in (override("cpu"), override("cpu", "index_add"), override("cpu", always=False)):
                with made:
                    keys.append(key_of_passes())
                    assert keys[-1] == key_of_passes()
    assert len(set(keys)) == len(keys) == 9
    for previous in (lambda graph: None, CountedPass(None)):
        with config.patch(post_grad_custom_post_pass=previous), override("cpu"):
            assert key_of_passes() is None


def test_the_pass_of_a_user():
    x, user_pass = rows("cpu", torch.float32, 5, 4), CountedPass()
    graphs = Graphs()
    with config.patch(post_grad_custom_post_pass=user_pass):
        with override("cpu"), override("cpu", "index_put"):
            gradients_of(torch.compile(gathered, backend=graphs), [x])
        assert config.post_grad_custom_post_pass is user_pass
    assert user_pass.calls == 2 and len(graphs.calls()) == 1


def test_a_pass_that_is_installed_later():
    """It stays. If it calls the pass from before, that one does nothing after the override."""
    x = rows("cpu", torch.float32, 5, 4)
    graphs = Graphs()
    compiled = torch.compile(gathered, backend=graphs)
    with config.patch(post_grad_custom_post_pass=None):
        with override("cpu"):
            (before,) = passes()

            def user_pass(graph):
                before(graph)

            config.post_grad_custom_post_pass = user_pass
            gradients_of(compiled, [x])
        assert config.post_grad_custom_post_pass is user_pass
        gradients_of(compiled, [x])
    assert len(graphs.graphs) == 4 and len(graphs.calls()) == 1


def test_calls_of_gpuopt_stay():
    """Calls that the program makes itself are neither replaced nor lost."""
    x, source, index = rows("cpu", torch.float32, 5, 4), rows("cpu", torch.float32, 6, 4), torch.tensor(INDEX)
    graphs = Graphs()
    with override("cpu"):
        got = torch.compile(lambda a, b: torch_ops.index_add(a, 0, index, b, mode="accurate"), backend=graphs)(
            x, source
        )
    assert different_bits(got, x.index_add(0, index, source)) is None
    assert graphs.modes() == ["accurate"]
