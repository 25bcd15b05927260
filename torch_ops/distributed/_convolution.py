"""Convolutions of signals whose length is sharded: each rank gets the few positions of its neighbours that its outputs need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from torch_ops._arguments import checks_types
from torch_ops._conv1d import Activation, activation_word
from torch_ops.distributed._exchange import Line, Range, window
from torch_ops.distributed._parts import Parts

_ops = torch.ops.gpuopt


def _one(value: int | Sequence[int]) -> int:
    return value[0] if isinstance(value, (list, tuple)) else value  # type: ignore[return-value]


def _ends(padding: int | Sequence[int] | str, taps: int, dilation: int) -> tuple[int, int]:
    """The padding of both ends."""
    if padding == "valid":
        return 0, 0
    if padding == "same":
        both = dilation * (taps - 1)
        return both // 2, both - both // 2
    if isinstance(padding, (list, tuple)) and len(padding) == 2:
        return padding[0], padding[1]
    return _one(padding), _one(padding)  # type: ignore[arg-type]


def _parts_of(op: str, input: DTensor, weight: Tensor, groups: int, out_dim: int) -> tuple[Parts, str, str, str, int]:
    """The parts of a convolution, the axes of input, weight and output, and the groups of this rank.

    Channels are called c in all tensors if they have groups, and i and o if they don't.
    """
    axes = "ncL" if input.dim() == 3 else "cL"
    if groups == 1:
        axes = axes.replace("c", "i")
    parts = Parts(op, input, axes)
    if groups == 1:
        if "i" in parts.sharded:
            raise ValueError(
                f"{op}: input must not have its channels sharded without groups: torch_ops.{op} computes partial sums of them"
            )
        for i, placement in enumerate(weight.placements if isinstance(weight, DTensor) else ()):
            if parts.sharded[i] is None and placement == Shard(out_dim):
                parts.sharded[i] = "o"
        weights = "oiK" if out_dim == 0 else "ioK"
        return parts, axes, weights, axes.replace("i", "o"), 1
    ranks = parts.ranks("c")
    if groups % ranks:
        raise ValueError(
            f"{op}: every rank must have whole groups: expected a multiple of {ranks} groups, got {groups}"
        )
    return parts, axes, "cjK", axes, groups // ranks


def _nothing(like: Tensor, channels: int, *tensors: Tensor) -> Tensor:
    """A result without positions that depends on all tensors, because all ranks take part in the backward pass."""
    depends = sum(t.sum() for t in tensors)
    return like.new_zeros((*like.shape[:-2], channels, 0)) + depends


def _convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, line: Line | None, length: int, geometry: tuple[Any, ...]
) -> Tensor:
    """This rank's outputs, from its part `x` of the input."""
    stride, (left, right), dilation, groups, activation, outputs = geometry
    ends = [left, right]
    if line is not None:
        span = dilation * (weight.shape[-1] - 1) + 1
        needed = [
            (first * stride - left, (last - 1) * stride - left + span) if first < last else (0, 0)
            for first, last in line.parts(outputs)
        ]
        inside = [_inside(r, length) for r in needed]
        x = window(x, x.dim() - 1, length, line, inside)
        (first, last), (begin, end) = needed[line.rank], inside[line.rank]
        if first == last:
            return _nothing(x, weight.shape[0], x, weight, *([] if bias is None else [bias]))
        ends = [begin - first, last - end]
        if begin == end:  # only padding
            x, ends = F.pad(x, (last - first, 0)), [0, 0]
    return _ops.conv1d_act.default(x, weight, bias, [stride], ends, [dilation], groups, activation)


def _inside(wanted: Range, size: int) -> Range:
    first = min(max(wanted[0], 0), size)
    return first, max(first, min(wanted[1], size))


def _conv1d(
    op: str,
    input: DTensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int] | Literal["valid", "same"],
    dilation: int | Sequence[int],
    groups: int,
    activation: str,
) -> DTensor:
    parts, axes, weights, results, local_groups = _parts_of(op, input, weight, groups, 0)
    stride, dilation = _one(stride), _one(dilation)
    ends = _ends(padding, weight.shape[-1], dilation)
    length = input.shape[-1]
    outputs = (length + sum(ends) - dilation * (weight.shape[-1] - 1) - 1) // stride + 1
    line = parts.line("L")
    if line is not None and outputs < 1:
        raise RuntimeError(f"{op}: taps must span at most the padded input: expected outputs, got {outputs}")
    out = _convolved(
        parts.local("input", input, axes),
        parts.local("weight", weight, weights),
        None if bias is None else parts.local("bias", bias, weights[0]),
        line,
        length,
        (stride, ends, dilation, local_groups, activation, outputs),
    )
    return parts.whole(out, results, (*input.shape[:-2], weight.shape[0], outputs))


@checks_types
def conv1d(
    input: DTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Literal["valid", "same"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> DTensor:
    """:func:`torch_ops.conv1d` of a sharded signal.

    Each rank gets the positions beside its shard that its outputs need: ``dilation * (K - 1)`` with stride 1. They are sent once in
    the forward pass, and their gradients once in the backward pass.

    Args:
        input: DTensor (N, C, L) or (C, L). Any dimension may be sharded: L over one dimension of the mesh, and C with groups.
        weight: (O, C / groups, K). A DTensor, or a tensor that is the same on all ranks. If channels have groups, it is sharded as they
            are. If not, its output channels may be sharded over a dimension of the mesh that ``input`` is replicated over.
        bias: (O), sharded as the output channels.
        stride: as in :func:`torch_ops.conv1d`.
        padding: as in :func:`torch_ops.conv1d`.
        dilation: as in :func:`torch_ops.conv1d`.
        groups: number of groups of all channels, over all ranks.

    Returns:
        DTensor with the placements of ``input``. Differentiable once. The gradients of plain tensors are added up over
        the ranks.

    Raises:
        TypeError: ``input`` is no DTensor.
        ValueError: placements do not match as above, or a rank would have a part of a group.
        RuntimeError: as :func:`torch_ops.conv1d`.
    """
    return _conv1d("conv1d", input, weight, bias, stride, padding, dilation, groups, "none")


@checks_types
def conv1d_act(
    input: DTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: Activation | None = None,
) -> DTensor:
    """:func:`torch_ops.conv1d_act` of a sharded signal: :func:`conv1d`, and then an activation in the same kernel.

    Args:
        input: as in :func:`conv1d`, and so are ``weight``, ``bias``, ``stride``, ``dilation`` and ``groups``.
        padding: as in :func:`torch_ops.conv1d_act`, and so is ``activation``.

    Returns:
        As :func:`conv1d`.
    """
    word = activation_word("conv1d_act", activation)
    return _conv1d("conv1d_act", input, weight, bias, stride, padding, dilation, groups, word)


@checks_types
def causal_conv1d(
    input: DTensor, weight: Tensor, bias: Tensor | None = None, activation: Activation | None = None
) -> DTensor:
    """:func:`torch_ops.causal_conv1d` of a sharded signal. A rank gets the last K - 1 positions of the rank before it.

    Args:
        input: DTensor (N, C, L) or (C, L). Any dimension may be sharded.
        weight: (C, K), a DTensor or the same on all ranks.
        bias: (C).
        activation: as in :func:`torch_ops.causal_conv1d`.

    Returns:
        DTensor with the shape and placements of ``input``. Otherwise as :func:`conv1d`.
    """
    taps = weight.shape[-1]
    word = activation_word("causal_conv1d", activation)
    return _conv1d("causal_conv1d", input, weight.unsqueeze(1), bias, 1, (taps - 1, 0), 1, input.shape[-2], word)


@checks_types
def conv_transpose1d(
    input: DTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> DTensor:
    """:func:`torch_ops.conv_transpose1d` of a sharded signal. Each rank gets the inputs whose taps reach its outputs.

    Args:
        input: DTensor (N, C, L) or (C, L). Any dimension may be sharded, as in :func:`conv1d`.
        weight: (C, O / groups, K).
        bias: (O).
        stride: as in :func:`torch_ops.conv_transpose1d`, and so are ``padding``, ``output_padding`` and ``dilation``.
        groups: number of groups of all channels, over all ranks.

    Returns:
        DTensor with the placements of ``input``. Otherwise as :func:`conv1d`.
    """
    parts, axes, weights, results, local_groups = _parts_of("conv_transpose1d", input, weight, groups, 1)
    stride, padding, dilation = _one(stride), _one(padding), _one(dilation)
    more = _one(output_padding)
    length, span = input.shape[-1], dilation * (weight.shape[-1] - 1) + 1
    outputs = (length - 1) * stride - 2 * padding + span + more
    channels = weight.shape[1] * groups
    x, w = parts.local("input", input, axes), parts.local("weight", weight, weights)
    b = None if bias is None else parts.local("bias", bias, results[-2])
    line = parts.line("L")
    sizes = (*input.shape[:-2], channels, outputs)
    if line is None:
        out = _ops.conv_transpose1d.default(x, w, b, [stride], [padding], [more], local_groups, [dilation])
        return parts.whole(out, results, sizes)
    needed = [
        _inside((-(-(first + padding - span + 1) // stride), (last - 1 + padding) // stride + 1), length)
        if first < last
        else (0, 0)
        for first, last in line.parts(outputs)
    ]
    x = window(x, x.dim() - 1, length, line, needed)
    (first, last), (begin, end) = line.parts(outputs)[line.rank], needed[line.rank]
    if first == last or begin == end:
        out = _nothing(x, w.shape[1] * local_groups, x, w)
        return parts.whole(_with_bias(F.pad(out, (0, last - first)), b), results, sizes)
    out = _ops.conv_transpose1d.default(x, w, None, [stride], [0], [0], local_groups, [dilation])
    before = first - (begin * stride - padding)  # negative if no tap reaches the first outputs
    after = before + last - first - out.shape[-1]
    return parts.whole(_with_bias(F.pad(out, (-before, after)), b), results, sizes)


def _with_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out + bias[:, None]
