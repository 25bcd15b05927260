"""Cases of the operators of attention over a sparse matrix, which torch_ops.graph_attention and gat_attention call.

The reference loops over the rows of the matrix. What stands for ATen rounds scores, weights and their gradients to the dtype, as the
composition on the CPU does.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import torch

from . import Sample, internal_case, workspace_of
from .samples import spmm_samples as matrices
from .tensors import FLOATS, LAYOUTS, Maker

OPS = torch.ops.gpuopt
HEADS = ((1, 8, 8), (2, 16, 4), (3, 4, 12), (8, 8, 8), (2, 3, 5), (1, 1, 7), (1, 64, 128), (5, 24, 40))
NAMES = ("mixed", "one each", "empty rows around", "one row", "one column", "a huge row", "around pieces", "many rows")
SHOWN = ("rows", "transposed", "misaligned1", "step2", "expanded_first", "neg")


def _samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Left and right of both forms, value, the gradient of the result, and in every second call a bias."""
    make = Maker(device, dtype)
    for k, name in enumerate(NAMES):
        degrees, columns = matrices.MATRICES[name]
        for j, (heads, features, key) in enumerate(HEADS):
            for product in (False, True):
                given = matrices.matrix(device, degrees, columns, dtype=(torch.int32, torch.int64)[k % 2],
                                        permuted=j % 3 == 1, seed=k)  # fmt: skip
                if sum(degrees) * heads * features > 40_000:
                    heads, features, key = 1, 8, 8
                yield _sample(make, f"{name} {j} {product}", given, columns, heads, features, key * product, j % 2 == 0)
    for k, layout in enumerate(SHOWN):
        for product, name in itertools.product((False, True), ("mixed", "around pieces")):
            degrees, columns = matrices.MATRICES[name]
            given = matrices.matrix(device, degrees, columns, permuted=k % 2 == 1)
            yield _sample(make, f"{layout} {name} {product}", given, columns, 2, 8, 16 * product, True, layout)
    for name, (degrees, columns) in matrices.NOTHING.items():
        for product in (False, True):
            yield _sample(make, name, matrices.matrix(device, degrees, columns), columns, 2, 8, 8 * product, True)


def _few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, degrees in enumerate(([2, 0, 3], [1, 1], [4], [0, 1, 0, 7])):
        for product in (False, True):
            given = matrices.matrix(device, degrees, 4, permuted=k % 2 == 1, seed=k)
            yield _sample(make, f"{degrees} {product}", given, 4, 1 + k % 2, 8, 8 * product, k != 1)


def _sample(make, name, given, columns, heads, features, key, has_bias, layout=None) -> Sample:
    rows, entries = given["ptr"].shape[0] - 1, given["index"].shape[0]
    score = (heads, key) if key else (heads,)
    shapes = [(rows, *score), (columns, *score), (columns, heads, features), (rows, heads, features)]
    operands = [make(*shape) for shape in shapes + [(entries, heads)] * has_bias]
    if layout is not None:
        operands = [LAYOUTS[layout](t) if LAYOUTS[layout](t) is not None else t for t in operands]
    return Sample(name, tuple(operands), {**given, "factor": 0.25}, sanitize=columns < 20)


# ---------------------------------------------------------------- references


def _computed(compute, left, right, value, grad, bias=None, *, ptr, index, entry=None, factor, **rest):
    """(out, log_sum, gradient of left, weights, gradients of scores) in the dtype `compute`, rounded as operands of this dtype."""
    dtype = value.dtype if compute.itemsize < 8 else compute

    def rounded(t):
        return t.to(dtype).to(compute)

    left, right, value, grad = (t.to(compute) for t in (left, right, value, grad))
    entries, heads = index.shape[0], value.shape[1]
    bias = value.new_zeros(entries, heads) if bias is None else bias.to(compute)
    out = value.new_zeros(grad.shape)
    log_sum, left_grad = value.new_full(grad.shape[:2], -torch.inf), torch.zeros_like(left)
    weight, score_grad = value.new_zeros(entries, heads), value.new_zeros(entries, heads)
    starts = ptr.tolist()
    for row, (first, last) in enumerate(zip(starts, starts[1:], strict=False)):
        if first == last:
            continue
        columns = index[first:last].long()
        own = slice(first, last) if entry is None else entry[first:last].long()
        if left.dim() == 3:
            raw = rounded((rounded(left[row] * factor) * right[columns]).sum(-1))
            scores, slope = rounded(raw + bias[own]), 1
        else:
            raw = rounded(rounded(left[row] + right[columns]) + bias[own])
            slope = torch.where(raw > 0, 1, factor)
            scores = rounded(raw * slope)
        log_sum[row] = scores.logsumexp(0)
        weight[own] = found = rounded(scores.softmax(0))
        out[row] = (found[..., None] * value[columns]).sum(0)
        products = rounded((grad[row] * value[columns]).sum(-1))
        score_grad[own] = ds = rounded(rounded(found * (products - (found * products).sum(0))) * slope)
        left_grad[row] = rounded((ds[..., None] * right[columns]).sum(0)) * factor if left.dim() == 3 else ds.sum(0)
    return out, log_sum, left_grad, weight, score_grad


def _compute(value: torch.Tensor) -> torch.dtype:
    return torch.float64 if value.dtype == torch.float64 else torch.float32


def _gradients(found) -> torch.Tensor:
    return torch.cat([t.flatten().double() for t in found[-3:]])


def _aten(*operands, **kwargs) -> torch.Tensor:
    value = operands[2]
    return _computed(_compute(value), *operands, **kwargs)[0].to(value.dtype)


def _aten_gradients(*operands, **kwargs) -> torch.Tensor:
    value = operands[2]
    return _gradients([t.to(value.dtype) for t in _computed(_compute(value), *operands, **kwargs)])


def _reference(*operands, **kwargs) -> torch.Tensor:
    return _computed(torch.float64, *operands, **kwargs)[0]


def _gradients_reference(*operands, **kwargs) -> torch.Tensor:
    return _gradients(_computed(torch.float64, *operands, **kwargs))


def _bound(device, result_dtype, reference, left, right, value, *operands, **kwargs):
    """Roundings of a score, whose size is at most some dozens, of its weight and of a row's sums, relative to the largest value."""
    longest = max(kwargs["ptr"].diff().tolist(), default=0)
    return torch.full_like(reference, _unit(value, longest) * _largest(left, right, value))


def _gradients_bound(device, result_dtype, reference, left, right, value, grad, *operands, **kwargs):
    longest = max(kwargs["ptr"].diff().tolist(), default=0)
    size = 1 + value.shape[-1] * _largest(value) * _largest(grad) * max(_largest(right), 1)
    return torch.full_like(reference, _unit(value, longest) * size * _largest(left, right, value))


def _unit(value: torch.Tensor, longest: int) -> float:
    eps = torch.finfo(torch.float32 if value.dtype.itemsize < 4 else value.dtype).eps
    return 16 * torch.finfo(value.dtype).eps + longest * eps


def _largest(*tensors: torch.Tensor) -> float:
    """The product of 1 and the largest sizes of all tensors, where these exceed 1."""
    size = 1.0
    for t in tensors:
        size *= max(1.0, float(t.abs().max())) if t.numel() else 1.0
    return size


# ---------------------------------------------------------------- the operators as functions of their operands


def _transposes(kwargs) -> list:
    return [kwargs.get(name) for name in ("t_ptr", "t_index", "t_entry")]


def _forward(left, right, value, grad, bias=None, *, ptr, index, entry=None, factor, **rest):
    return OPS._graph_attention.default(ptr, index, entry, left, right, value, bias, factor, *_transposes(rest))


def _attention(*operands, **kwargs) -> torch.Tensor:
    return _forward(*operands, **kwargs)[0]


def _backward_arguments(left, right, value, grad, bias=None, *, ptr, index, entry=None, factor, **rest) -> tuple:
    out, log_sum = _forward(left, right, value, grad, bias, ptr=ptr, index=index, entry=entry, factor=factor, **rest)
    return grad, out, log_sum, ptr, index, entry, left, right, value, bias, factor


def _attention_backward(*operands, **kwargs) -> torch.Tensor:
    return _gradients(OPS._graph_attention_backward.default(*_backward_arguments(*operands, **kwargs)))


def _forward_call(sample: Sample) -> Sample:
    left, right, value, _, *bias = sample.args
    ptr, index, entry, factor = (sample.kwargs[name] for name in ("ptr", "index", "entry", "factor"))
    args = (ptr, index, entry, left, right, value, *(bias or [None]), factor, *_transposes(sample.kwargs))
    return Sample(sample.name, args)


def _backward_call(sample: Sample) -> Sample:
    return Sample(sample.name, _backward_arguments(*sample.args, **sample.kwargs))


# Operands that a kernel can't read are copied, and long rows need a state for each feature of their parts.
_case = functools.partial(
    internal_case,
    samples=_samples,
    few=_few,
    dtypes=FLOATS,
    as_accurate=False,
    elementwise=False,
    workspace=workspace_of(64),
)
CASES = [
    _case(
        name="_graph_attention",
        op=_attention,
        overload=OPS._graph_attention.default,
        arguments=_forward_call,
        aten=_aten,
        reference=_reference,
        bound=_bound,
    ),
    _case(
        name="_graph_attention_backward",
        op=_attention_backward,
        overload=OPS._graph_attention_backward.default,
        arguments=_backward_call,
        aten=_aten_gradients,
        reference=_gradients_reference,
        bound=_gradients_bound,
    ),
]
