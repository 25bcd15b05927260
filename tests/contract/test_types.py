"""Where something of another type comes than a function expects, a TypeError names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

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
    "group_by": {"index": _INDEX, "dim_size": 3},
    "index_add": {"input": _MATRIX, "dim": 0, "index": _INDEX, "source": _MATRIX, "alpha": 1, "out": torch.empty(3, 4)},
    "index_add_": {"input": torch.ones(3, 4), "dim": 0, "index": _INDEX, "source": _MATRIX, "alpha": 1},
    "instance_norm": {**_BATCH_NORM, "input": torch.ones(2, 4, 3)},
    "index_select": {"input": _MATRIX, "dim": 0, "index": _INDEX},
    "layer_norm": {"input": _MATRIX, "normalized_shape": 4, "weight": torch.ones(4), "bias": torch.ones(4)},
    "linear_recurrence": {"a": _MATRIX, "b": _MATRIX, "dim": 0, "initial": torch.ones(4)},
    "matmul": {"input": _MATRIX, "other": _MATRIX.mT},
    "mul": {"input": _MATRIX, "other": _MATRIX, "out": torch.empty(3, 4)},
    "mul_": {"input": torch.ones(3, 4), "other": _MATRIX},
    "pad": {"input": _MATRIX, "pad": (1, 2)},
    "reduce_max": _REDUCTION,
    "reduce_mean": _REDUCTION,
    "reduce_min": _REDUCTION,
    "reduce_sum": _REDUCTION,
    "rms_norm": {"input": _MATRIX, "normalized_shape": [4], "weight": torch.ones(4)},
    "scatter": {"input": _MATRIX, "index": _INDEX},
    "scatter_softmax": {"input": _MATRIX, "index": _INDEX},
    "sddmm": {"csr": _CSR, "a": _MATRIX, "b": _MATRIX},
    "segment_expand": {"input": _MATRIX[:2], "offsets": _OFFSETS, "dim_size": 3},
    "segment_reduce": {"input": _MATRIX, "offsets": _OFFSETS},
    "segment_softmax": {"input": _MATRIX, "offsets": _OFFSETS},
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
    "spmm": {"csr": _CSR, "input": _MATRIX, "values": _VECTOR},
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

WRONG = {
    "None": None, "list": [1.0, 2.0], "array": np.ones((3, 4), np.float32), "float": 2.5, "int": 7, "str": "text", "object": object(),
}  # fmt: skip
# The wrong types that an annotation accepts all the same. The dispatcher takes numbers and None for a flag, and an int for a dtype.
TAKES = {
    type(None): {"None"}, bool: {"None", "float", "int"}, int: {"int"}, float: {"float", "int"}, complex: {"float", "int"}, torch.dtype: {"int"},
    Sequence[float]: {"list"}, Sequence[bool]: {"list"}, Literal: {"str"},
}  # fmt: skip


# Flags of Python have a truth value whatever they are. A norm's power is read only if there is a limit for norms.
UNCHECKED = {"return", "return_last_state", "sparse", "scale_grad_by_freq", "include_last_offset", "norm_type"}


def _takes(hint: object) -> set[str]:
    if get_origin(hint) in (Union, UnionType):
        return set().union(*map(_takes, get_args(hint)))
    return TAKES.get(Literal if get_origin(hint) is Literal else hint, set())


def test_all_functions_are_here():
    assert set(torch_ops.__all__) == set(CALLS) | OTHERS
    assert all(getattr(torch_ops, name).__doc__ for name in torch_ops.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types(name):
    function, call = getattr(torch_ops, name), CALLS[name]
    function(**call)
    hints = get_type_hints(function)
    assert hints.keys() - {"return"} == inspect.signature(function).parameters.keys()
    hints = {argument: hint for argument, hint in hints.items() if argument not in UNCHECKED}
    tensors = [t for t in call.values() if isinstance(t, torch.Tensor)]
    for argument, hint in hints.items():
        for kind in WRONG.keys() - _takes(hint):
            before = [t.clone() for t in tensors]
            message = rf"{name}: {argument} must be .*, got {type(WRONG[kind]).__name__}"
            with pytest.raises(TypeError, match=message):
                function(**call | {argument: WRONG[kind]})
            assert all(map(torch.equal, tensors, before)), f"{argument} = {kind}: a tensor was written"


# What calls no operator: the arguments, and the wrong types that each of them takes.
MORE = {
    "CSR": (torch_ops.CSR, {"ptr": (_OFFSETS,), "index": (_INDEX,), "values": (_VECTOR, "None"), "perm": (_INDEX, "None")}),
    "CSR.from_coo": (torch_ops.CSR.from_coo, {"row": (_INDEX,), "col": (_INDEX,), "shape": ((3, 3), "None", "list")}),
    "CSR.from_edge_index": (torch_ops.CSR.from_edge_index, {"edge_index": (_EDGES,), "num_nodes": (3, "None", "int")}),
    "CSR.from_torch": (torch_ops.CSR.from_torch, {"tensor": (torch.sparse_csr_tensor(_OFFSETS, _INDEX, _VECTOR),)}),
    "CSR.with_values": (_CSR.with_values, {"values": (_VECTOR, "None")}),
    "convert": (torch_ops.convert, {"model": (torch.nn.Linear(2, 2),)}),
    "override": (torch_ops.override, {"ops": ("sum", "None", "str")}),
    "torch_ops.compat": (torch_ops.compat.uninstall, {"names": ([], "None", "str", "list", "array")}),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_wrong_types_of_other_functions(name):
    function, arguments = MORE[name]
    call = {argument: value for argument, (value, *_) in arguments.items()}
    function(**call)
    for argument, (_, *takes) in arguments.items():
        for kind in WRONG.keys() - set(takes):
            with pytest.raises(TypeError, match=rf"{name.partition('.')[0]}[.a-z]*: {argument} must .* got "):
                function(**call | {argument: WRONG[kind]})


def test_positional_arguments():
    with pytest.raises(TypeError, match="index_select: index must be Tensor, got list"):
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
