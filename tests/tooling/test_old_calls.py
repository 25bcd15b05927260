"""Calls in the form of version 0.1 give what the new ones give, and warn at the line of the caller."""

from __future__ import annotations

import warnings

import pytest
import torch

import torch_ops

_X, _INDEX, _OFFSETS = torch.randn(4, 3), torch.tensor([1, 0, 1, 3]), torch.tensor([0, 1, 4])
_EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
_CSR = torch_ops.CSR.from_edge_index(_EDGES)
_QUERY, _KEY, _VALUE = torch.randn(3, 3, 2, 4)
_SCORES = torch.randn(3, 2)
_SIGNAL, _TAPS = torch.randn(2, 3, 5), torch.randn(3, 2)
_A, _B = -torch.rand(3, 2), torch.randn(3, 2)
_STATE = torch.randn(2, 3, 2)

# Each old form, and the new one.
CALLS = {
    "activation of causal_conv1d": (
        lambda t: t.causal_conv1d(_SIGNAL, _TAPS, activation="none"), lambda t: t.causal_conv1d(_SIGNAL, _TAPS),
    ),
    "activation of causal_conv1d_update": (
        lambda t: t.causal_conv1d_update(_SIGNAL[..., 0], _STATE.clone(), _TAPS, None, "none"),
        lambda t: t.causal_conv1d_update(_SIGNAL[..., 0], _STATE.clone(), _TAPS),
    ),
    "activation of conv1d_act": (
        lambda t: t.conv1d_act(_SIGNAL, _TAPS[:, None], groups=3, activation="none"),
        lambda t: t.conv1d_act(_SIGNAL, _TAPS[:, None], groups=3),
    ),
    "activation of conv1d_backward": (
        lambda t: t.conv1d_backward(_SIGNAL[..., 1:], _SIGNAL, _TAPS[:, None], groups=3, activation="none"),
        lambda t: t.conv1d_backward(_SIGNAL[..., 1:], _SIGNAL, _TAPS[:, None], groups=3),
    ),
    "csr of gat_attention": (
        lambda t: t.gat_attention(_VALUE, _SCORES, _SCORES, _CSR, edge_scores=_SCORES),
        lambda t: t.gat_attention(_CSR, _VALUE, _SCORES, _SCORES, edge_scores=_SCORES),
    ),
    "csr of graph_attention": (
        lambda t: t.graph_attention(_QUERY, _KEY, _VALUE, _CSR, scale=2.0),
        lambda t: t.graph_attention(_CSR, _QUERY, _KEY, _VALUE, scale=2.0),
    ),
    "csr of graph_attention, by name": (
        lambda t: t.graph_attention(_QUERY, _KEY, _VALUE, csr=_CSR), lambda t: t.graph_attention(_CSR, _QUERY, _KEY, _VALUE),
    ),
    "bins of group_by": (lambda t: t.group_by(_INDEX, bins=4), lambda t: t.group_by(_INDEX, 4)),
    "reverse of linear_recurrence": (
        lambda t: t.linear_recurrence(_X, _X, 0, None, True), lambda t: t.linear_recurrence(_X, _X, 0, reverse=True),
    ),
    "scatter_reduce": (
        lambda t: t.scatter_reduce(_X, _INDEX, 0, 5, "mean"), lambda t: t.scatter(_X, _INDEX, 0, 5, "mean"),
    ),
    "words of scatter_reduce": (
        lambda t: t.scatter_reduce(_X, _INDEX, 0, 5, "mul"), lambda t: t.scatter(_X, _INDEX, 0, 5, "prod"),
    ),
    "flag of scatter_reduce": (
        lambda t: t.scatter_reduce(_X, _INDEX, 0, 5, "max", True),
        lambda t: t.scatter(_X, _INDEX, 0, 5, "amax", return_arg=True),
    ),
    "src of scatter_reduce": (lambda t: t.scatter_reduce(src=_X, index=_INDEX), lambda t: t.scatter(_X, _INDEX)),
    "dim_size of scatter_softmax": (
        lambda t: t.scatter_softmax(_X, _INDEX, 5), lambda t: t.scatter_softmax(_X, _INDEX, dim_size=5),
    ),
    "src of scatter_softmax": (lambda t: t.scatter_softmax(src=_X, index=_INDEX), lambda t: t.scatter_softmax(_X, _INDEX)),
    "names of segment_expand": (
        lambda t: t.segment_expand(rows=_X[:2], offsets=_OFFSETS, entries=4), lambda t: t.segment_expand(_X[:2], _OFFSETS, 4),
    ),
    "data of segment_reduce": (
        lambda t: t.segment_reduce(data=_X, offsets=_OFFSETS), lambda t: t.segment_reduce(_X, _OFFSETS),
    ),
    "empty of segment_reduce": (
        lambda t: t.segment_reduce(_X, _OFFSETS, "min", 2.0), lambda t: t.segment_reduce(_X, _OFFSETS, "amin", empty=2.0),
    ),
    "src of segment_softmax": (
        lambda t: t.segment_softmax(src=_X, offsets=_OFFSETS), lambda t: t.segment_softmax(_X, _OFFSETS),
    ),
    "flags of selective_scan": (
        lambda t: t.selective_scan(_SIGNAL, _SIGNAL, _A, _B, _B, None, None, None, True, True),
        lambda t: t.selective_scan(_SIGNAL, _SIGNAL, _A, _B, _B, delta_softplus=True, return_last_state=True),
    ),
    "flag of selective_scan_update": (
        lambda t: t.selective_scan_update(_STATE.clone(), _SIGNAL[..., 0], _SIGNAL[..., 1], _A, _B[:2], _B[:2], None, None, None, True),
        lambda t: t.selective_scan_update(
            _STATE.clone(), _SIGNAL[..., 0], _SIGNAL[..., 1], _A, _B[:2], _B[:2], dt_softplus=True
        ),
    ),
    "dense of spmm": (lambda t: t.spmm(_CSR, dense=_X[:3]), lambda t: t.spmm(_CSR, _X[:3])),
    "words of spmm": (lambda t: t.spmm(_CSR, _X[:3], "max"), lambda t: t.spmm(_CSR, _X[:3], "amax")),
    "per_vertex of triangle_count": (
        lambda t: t.triangle_count(_EDGES, True), lambda t: t.triangle_count(_EDGES, per_vertex=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_old_calls(name):
    old, new = CALLS[name]
    want = new(torch_ops)
    with pytest.warns(DeprecationWarning, match=r"^\w+: .*\. This form of torch_ops 0\.1 ends with 0\.3\.$") as warned:
        got = old(torch_ops)
    assert {warning.filename for warning in warned} == {__file__}
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_convert():
    model = torch.nn.Sequential(torch.nn.Conv1d(2, 2, 3))
    assert type(torch_ops.convert(model)[0]) is torch_ops.nn.Conv1d
    with pytest.warns(DeprecationWarning, match=r"expected a call as convert\(model, reverse=\.\.\.\)"):
        torch_ops.convert(model, True)
    assert type(model[0]) is torch.nn.Conv1d


def test_install():
    with pytest.warns(DeprecationWarning, match=r"expected a call as install\(names, force="):
        assert torch_ops.compat.install([], True) == []


def test_compiled():
    """A trace warns of nothing, and does not break."""

    def old(x):
        return (
            torch_ops.segment_reduce(data=x, offsets=_OFFSETS, reduce="max")
            + torch_ops.scatter_reduce(x, _INDEX, 0, 4)[:2]
        )

    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        got = torch.compile(old, fullgraph=True, backend="eager")(_X)
    want = torch_ops.segment_reduce(_X, _OFFSETS, "amax") + torch_ops.scatter(_X, _INDEX, 0, 4)[:2]
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_calls_that_were_never_right():
    with pytest.raises(TypeError, match="segment_reduce takes 3 positional arguments but 5 were given"):
        torch_ops.segment_reduce(_X, _OFFSETS, "sum", 0, 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'entries'"):
        torch_ops.segment_reduce(_X, _OFFSETS, entries=1)
    with pytest.raises(TypeError, match="segment_reduce: input is given twice"):
        torch_ops.segment_reduce(_X, _OFFSETS, data=_X)
