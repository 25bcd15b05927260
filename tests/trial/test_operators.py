"""The GPU time of replaced operators, from events of the profiler that were made up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_ops.trial.operators import Operator, Span, host_waits, operators, spans

from .support import event, kernel

NAMES = ("sum", "convolution", "convolution_backward", "index_put", "copy_", "native_batch_norm")


def test_a_kernel_belongs_to_the_outermost_operator():
    events = [
        event("aten::convolution_backward", correlation=1, start=0, us=100),
        event("aten::cudnn_convolution_backward", correlation=2, start=10, us=20),
        event("aten::sum", correlation=3, start=40, us=20),
        event("aten::relu", correlation=4, start=200, us=10),
        event("aten::sum", correlation=5, start=300, us=10),
        event("aten::sum", correlation=6, start=50, us=300, thread=2),
        kernel("dgrad", 2, 30.0),
        kernel("reduce_kernel", 3, 5.0),
        kernel("elementwise", 4, 7.0),
        kernel("void gpuopt::reduce::rows<float>", 5, 2.0),
        kernel("reduce_kernel", 6, 4.0),
        kernel("an annotation", 6, 1000.0, annotation=True),
        kernel("a kernel without operator", 99, 1000.0),
    ]
    found = spans(events, NAMES)
    assert sorted(found, key=lambda span: span.us) == [
        Span("sum", 2.0, True),
        Span("sum", 4.0, False),
        Span("convolution_backward", 35.0, False),
    ]


@pytest.mark.parametrize(
    "name, operator",
    [
        ("aten::_index_put_impl_", "index_put"),
        ("aten::index_put_", "index_put"),
        ("aten::_native_batch_norm_legit", "native_batch_norm"),
        ("aten::copy_", "copy_"),
    ],
)
def test_forms_of_an_operator(name, operator):
    assert spans([event(name, correlation=1), kernel("k", 1, 3.0)], NAMES) == [Span(operator, 3.0, False)]


@pytest.mark.torch_version
def test_events_of_this_torch():
    layer, x = nn.BatchNorm1d(8), torch.ones(4, 8)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
        layer(x).sum(1)
        x[:, torch.tensor([1, 2])] = torch.ones(4, 2)
        x.t().contiguous()
    found = spans(profiler.profiler.kineto_results.events(), NAMES)
    assert {span.operator for span in found} == {"native_batch_norm", "sum", "index_put", "copy_"}


def test_rows():
    calls = {"sum": {"taken": 2}, "mul": {"size": 3, "layout": 1, "taken": 1}, "mm": {"dtype": 1}}
    without = [Span("sum", 10.0, False), Span("sum", 20.0, False), Span("mul", 9.0, False)]
    found = [Span("sum", 5.0, True), Span("sum", 5.0, True), Span("mul", 3.0, True), Span("mul", 1.0, False)]
    rows = operators(calls, without, found)
    assert rows == [
        Operator("sum", 2, {}, 0.03, 0.01, 0.0),
        Operator("mul", 1, {"size": 3, "layout": 1}, 0.009, 0.004, 0.001),
        Operator("mm", 0, {"dtype": 1}, 0.0, 0.0, 0.0),
    ]
    assert rows[1].saved_ms == pytest.approx(0.005)
    assert operators(calls, None, None)[0] == Operator("sum", 2)


def test_waits():
    names = ("aten::item", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaLaunchKernel", "cudaEventSynchronize")
    assert host_waits(map(event, names)) == 2
