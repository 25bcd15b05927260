"""Where a function expects a tensor or a matrix and something else comes, a TypeError names the argument."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import torch_ops

_MATRIX, _VECTOR, _SIGNAL = torch.ones(3, 4), torch.ones(3), torch.ones(2, 3, 4)
_INDEX, _OFFSETS = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 3])
_EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
_CSR = torch_ops.CSR.from_edge_index(_EDGES)
_HEADS, _SCORES = torch.ones(3, 2, 4), torch.ones(3, 2)
_IMAGE = torch.ones(1, 1, 2, 2)
_CONVOLUTION = {"input": _SIGNAL, "weight": torch.ones(3, 1, 2), "bias": _VECTOR}
_SCAN = {"A": torch.ones(3, 2), "D": _VECTOR}
_BATCH_NORM = {
    "input": _MATRIX,
    "running_mean": torch.zeros(4),
    "running_var": torch.ones(4),
    "weight": torch.ones(4),
    "bias": torch.ones(4),
}
_ROWS = {"input": _MATRIX, "residual": _MATRIX, "normalized_shape": 4, "weight": torch.ones(4)}
_REDUCTION = {"input": _MATRIX, "dim": 0, "out": torch.empty(4)}
_UPSAMPLING = {"input": _IMAGE, "output_size": 3}
_UPSAMPLING_BACKWARD = {"grad_output": _IMAGE, "output_size": [2, 2], "input_size": [1, 1, 1, 1]}

CALLS = {
    "axpy": {"x": _MATRIX, "y": _MATRIX, "alpha": torch.tensor(2.0)},
    "causal_conv1d": _CONVOLUTION | {"weight": torch.ones(3, 2)},
    "causal_conv1d_update": {
        "input": torch.ones(2, 3),
        "state": torch.ones(2, 3, 2),
        "weight": torch.ones(3, 2),
        "bias": _VECTOR,
    },
    "add_layer_norm": _ROWS | {"bias": torch.ones(4)},
    "add_rms_norm": _ROWS,
    "clustering_coefficients": {"graph": _EDGES},
    "conv1d": _CONVOLUTION | {"groups": 3},
    "conv1d_act": _CONVOLUTION | {"groups": 3},
    "conv1d_backward": _CONVOLUTION | {"grad_output": torch.ones(2, 3, 3), "groups": 3},
    "conv_transpose1d": _CONVOLUTION | {"groups": 3},
    "convolve": {"a": _VECTOR, "v": _VECTOR},
    "batch_norm": _BATCH_NORM | {"training": True},
    "cumsum": {"input": _MATRIX, "dim": 0, "out": torch.empty(3, 4)},
    "cumsum_": {"input": torch.ones(3, 4), "dim": 0},
    "dot": {"input": _VECTOR, "tensor": _VECTOR, "out": torch.empty(())},
    "dot_fast_atomic": {"input": _VECTOR, "tensor": _VECTOR},
    "dot_rows": {"input": _MATRIX, "tensor": _MATRIX},
    "embedding_bag": {
        "input": _INDEX,
        "weight": _MATRIX,
        "offsets": _INDEX[:1] * 0,
        "mode": "sum",
        "per_sample_weights": torch.ones(len(_INDEX)),
    },
    "fma": {"a": _MATRIX, "b": _MATRIX, "c": _MATRIX},
    "gat_attention": {
        "input": _HEADS,
        "source_scores": _SCORES,
        "target_scores": _SCORES,
        "csr": _CSR,
        "edge_scores": _SCORES,
    },
    "graph_attention": {"query": _HEADS, "key": _HEADS, "value": _HEADS, "csr": _CSR, "bias": _SCORES},
    "group_norm": {"input": _MATRIX, "num_groups": 2, "weight": torch.ones(4), "bias": torch.ones(4)},
    "group_by": {"index": _INDEX, "bins": 3},
    "index_add": {"input": _MATRIX, "dim": 0, "index": _INDEX, "source": _MATRIX, "alpha": 1, "out": torch.empty(3, 4)},
    "index_add_": {"input": torch.ones(3, 4), "dim": 0, "index": _INDEX, "source": _MATRIX, "alpha": 1},
    "instance_norm": {**_BATCH_NORM, "input": torch.ones(2, 4, 3)},
    "index_select": {"input": _MATRIX, "dim": 0, "index": _INDEX},
    "layer_norm": {"input": _MATRIX, "normalized_shape": 4, "weight": torch.ones(4), "bias": torch.ones(4)},
    "linear_recurrence": {"a": _MATRIX, "b": _MATRIX, "dim": 0, "initial": torch.ones(4)},
    "matmul": {"input": _MATRIX, "other": _MATRIX.mT},
    "mul": {"input": _MATRIX, "other": _MATRIX, "out": torch.empty(3, 4)},
    "mul_": {"input": torch.ones(3, 4), "other": _MATRIX},
    "reduce_max": _REDUCTION,
    "reduce_mean": _REDUCTION,
    "reduce_min": _REDUCTION,
    "reduce_sum": _REDUCTION,
    "rms_norm": {"input": _MATRIX, "normalized_shape": [4], "weight": torch.ones(4)},
    "scatter_reduce": {"src": _MATRIX, "index": _INDEX},
    "scatter_softmax": {"src": _MATRIX, "index": _INDEX},
    "sddmm": {"csr": _CSR, "a": _MATRIX, "b": _MATRIX},
    "segment_expand": {"rows": _MATRIX[:2], "offsets": _OFFSETS, "entries": 3},
    "segment_reduce": {"data": _MATRIX, "offsets": _OFFSETS},
    "segment_softmax": {"src": _MATRIX, "offsets": _OFFSETS},
    "selective_scan": _SCAN
    | {
        "u": _SIGNAL,
        "delta": _SIGNAL,
        "z": _SIGNAL,
        "B": torch.ones(3, 2),
        "C": torch.ones(3, 2),
        "delta_bias": _VECTOR,
    },
    "selective_scan_update": _SCAN
    | {"state": torch.ones(2, 3, 2), "x": torch.ones(2, 3), "dt": torch.ones(2, 3), "z": torch.ones(2, 3)}
    | {"B": torch.ones(2, 2), "C": torch.ones(2, 2), "dt_bias": _VECTOR},
    "spmm": {"csr": _CSR, "dense": _MATRIX, "values": _VECTOR},
    "transpose2d": {"input": _MATRIX},
    "triangle_count": {"graph": _EDGES},
    "upsample_nearest2d": _UPSAMPLING,
    "upsample_nearest2d_backward": _UPSAMPLING_BACKWARD,
    "upsample_nearest_exact2d": _UPSAMPLING,
    "upsample_nearest_exact2d_backward": _UPSAMPLING_BACKWARD,
    "vdot": {"input": _VECTOR, "other": _VECTOR, "out": torch.empty(())},
}
# They take no tensors, or have tests of their own.
OTHERS = {"CSR", "convert", "cuda_graph", "cuda_graph_report", "override", "override_report", "trial"}

WRONG = {"None": None, "list": [1.0, 2.0], "array": np.ones((3, 4), np.float32), "float": 2.5, "str": "text"}


def _is_taken(value: object, kinds: list[str]) -> bool:
    return (value is None and "None" in kinds) or (isinstance(value, float) and bool({"Number", "float"} & set(kinds)))


def test_all_functions_are_here():
    assert set(torch_ops.__all__) == set(CALLS) | OTHERS
    assert all(getattr(torch_ops, name).__doc__ for name in torch_ops.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types(name):
    function, call = getattr(torch_ops, name), CALLS[name]
    function(**call)
    checked = 0
    for argument, annotation in function.__annotations__.items():
        kinds = annotation.split(" | ")
        if argument == "return" or not {"Tensor", "CSR"} & set(kinds):
            continue
        assert argument in call, f"{argument} is not tried"
        for kind, wrong in WRONG.items():
            if _is_taken(wrong, kinds):
                continue
            before = [t.clone() for t in call.values() if isinstance(t, torch.Tensor)]
            by_name = call | {argument: wrong}
            message = rf"{name}: {argument} .*expected .*, got {re.escape(type(wrong).__name__)}"
            with pytest.raises(TypeError, match=message):
                function(**by_name)
            after = [t for t in call.values() if isinstance(t, torch.Tensor)]
            assert all(torch.equal(a, b) for a, b in zip(before, after)), f"{argument} = {kind}: a tensor was written"
            checked += 1
    assert checked >= 4


def test_positional_arguments():
    with pytest.raises(TypeError, match="index_select: index has a wrong type: expected Tensor, got list"):
        torch_ops.index_select(_MATRIX, 0, [0])


def test_other_errors_pass():
    """Numbers and objects that stand for tensors are no wrong types."""
    with pytest.raises(RuntimeError, match="alpha"):
        torch_ops.axpy(_EDGES, _EDGES, alpha=np.float32(0.5))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'index'"):
        torch_ops.index_select(_MATRIX, 0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'indices'"):
        torch_ops.index_select(_MATRIX, 0, indices=_INDEX)
    with pytest.raises(TypeError, match="takes 3 positional arguments but 4 were given"):
        torch_ops.index_select(_MATRIX, 0, _INDEX, 1)
    traced = torch.fx.symbolic_trace(lambda x: torch_ops.transpose2d(x))
    assert torch.equal(traced(_MATRIX), _MATRIX.mT)
