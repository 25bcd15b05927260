"""One-dimensional convolutions: ``conv1d`` with its backward, ``conv1d_act`` with an activation, causal depthwise convolutions and
their one-step form, and ``convolve``.

Where weights are reused little, which is in depthwise convolutions and in those of few channels (up to 8 of the input a group; in half
types the forward takes up to 16, and the input's gradient with stride 1 up to 16 of the output), CUDA tensors of float16, bfloat16,
float32 and float64 go to kernels of this library, which read and write every value about once; half types are summed in float32,
float32 in float32 (no TF32), and results are bitwise repeatable. Dense convolutions, and other dtypes, are ATen's: cuDNN obeys
PyTorch's flags (``torch.backends.cudnn``, TF32, determinism) there. On CPU tensors the operators call ATen.

A result is contiguous, or channels-last where ``input`` is: where the values of a place are neighbours in memory, as in
``x.transpose(1, 2)`` of a contiguous (N, L, C).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "causal_conv1d",
    "causal_conv1d_update",
    "conv1d",
    "conv1d_act",
    "conv1d_backward",
    "convolve",
]

_ops = torch.ops.gpuopt


def _list(value: int | Sequence[int]) -> Sequence[int]:
    # A word is passed on as it is: the operator's error then tells what it is.
    return value if isinstance(value, (list, tuple, str)) else [value]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """One-dimensional convolution (cross-correlation), the semantics of :func:`torch.nn.functional.conv1d` (``aten::conv1d``).

    Args:
        input: tensor (N, C, L), or (C, L) without a batch, of float16, bfloat16, float32, float64 or a complex type; on the CPU
            also integers. N may be 0. Where C is 0, no channels come out, as from ATen.
        weight: tensor (O, C / groups, K) of ``input``'s dtype.
        bias: tensor (O) of ``input``'s dtype.
        stride: distance, in values of the input, between the first taps of neighbouring outputs.
        padding: zeros at either end; ``'valid'`` for none, or ``'same'`` for as many as keep L, of which an odd one goes to the
            right end (without a padded copy).
        dilation: distance, in values of the input, between neighbouring taps.
        groups: how many groups the channels are in, each convolved by itself.

    Returns:
        Tensor (N, O, floor((L + 2 padding - dilation (K - 1) - 1) / stride) + 1), or without N, of ``input``'s dtype and layout.
        Under autocast operands are cast to the lower precision, as ATen's. Differentiable any number of times, forwards and
        backwards.

    Raises:
        RuntimeError: an ``input`` that is not 2-D or 3-D or, with a batch and channels, has no values; a ``weight`` that is not
            3-D, has other channels than ``input``, no output channels or no taps, or has taps that span more than the padded
            input; output channels that aren't a multiple of ``groups``; a ``bias`` of another shape; dtypes or devices that
            differ; ``stride``, ``dilation`` or ``groups`` below 1; ``padding`` below 0, an unknown word, or ``'same'`` with a
            ``stride`` above 1; not one value of ``stride``, ``padding`` or ``dilation``.
        RuntimeError, NotImplementedError: dtypes that ATen doesn't take on the device.
    """
    if isinstance(padding, str):
        return _ops.conv1d.padding(input, weight, bias, _list(stride), padding, _list(dilation), groups)
    return _ops.conv1d.default(input, weight, bias, _list(stride), _list(padding), _list(dilation), groups)


def conv1d_act(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: str = "none",
) -> Tensor:
    """:func:`conv1d` followed by an activation, in one kernel where the convolution is one of this library's.

    Args:
        input: tensor (N, C, L) or (C, L), as in :func:`conv1d`.
        weight: tensor (O, C / groups, K).
        bias: tensor (O).
        stride: as in :func:`conv1d`.
        padding: zeros at either end, or two numbers, of those on the left and of those on the right. It takes no words:
            ``'same'`` is ``(t // 2, t - t // 2)``, where t is ``dilation * (K - 1)``.
        dilation: as in :func:`conv1d`.
        groups: as in :func:`conv1d`.
        activation: ``'none'``, ``'relu'``, ``'silu'`` or ``'gelu'`` (the exact one, by erf), as :func:`torch.relu`,
            :func:`torch.nn.functional.silu` and :func:`torch.nn.functional.gelu`. In half types the sum isn't rounded before it.

    Returns:
        As :func:`conv1d`. The backward of ``'silu'`` and ``'gelu'`` convolves once more, in place of keeping a tensor.

    Raises:
        RuntimeError: as :func:`conv1d`; an unknown ``activation``; not one or two values of ``padding``.
        RuntimeError, NotImplementedError: dtypes that ATen doesn't take on the device, or not with the activation.
    """
    return _ops.conv1d_act.default(
        input, weight, bias, _list(stride), _list(padding), _list(dilation), groups, activation
    )


def conv1d_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of :func:`conv1d`, the semantics of ``aten::convolution_backward``.

    Args:
        grad_output: tensor of the output's shape.
        input: tensor (N, C, L) or (C, L).
        weight: tensor (O, C / groups, K).
        stride: as in :func:`conv1d`.
        padding: as in :func:`conv1d_act`.
        dilation: as in :func:`conv1d`.
        groups: as in :func:`conv1d`.
        output_mask: which gradients are wanted, of ``input``, of ``weight`` and of the bias.

    Returns:
        The gradients, with None for what isn't wanted. That of ``input`` has ``input``'s layout (contiguous, or channels-last),
        that of ``weight`` is contiguous. Half types are summed in float32 and rounded once. Differentiable any number of times,
        forwards and backwards.

    Raises:
        RuntimeError: a ``grad_output`` that hasn't the output's shape; what :func:`conv1d` refuses.
        RuntimeError, NotImplementedError: dtypes that ATen doesn't take on the device.
    """
    return _ops.conv1d_backward.default(
        grad_output, input, weight, _list(stride), _list(padding), _list(dilation), groups, output_mask
    )


def causal_conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """Causal depthwise convolution: every output sees its own place and the K - 1 before it, of its own channel.

    Args:
        input: tensor (N, C, L), or (C, L) without a batch.
        weight: tensor (C, K); its last tap is that of the output's own place.
        bias: tensor (C).
        activation: as in :func:`conv1d_act` (``'none'``, not None; swish is ``'silu'``).

    Returns:
        Tensor of ``input``'s shape: ``conv1d_act(input, weight[:, None], bias, padding=(K - 1, 0), groups=C,
        activation=activation)``.

    Raises:
        RuntimeError: a ``weight`` that is not 2-D, has other channels than ``input``, or no taps; else as :func:`conv1d_act`.
        RuntimeError, NotImplementedError: dtypes that ATen doesn't take on the device, or not with the activation.
    """
    return _ops.causal_conv1d.default(input, weight, bias, activation)


def causal_conv1d_update(
    input: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
) -> Tensor:
    """One step of :func:`causal_conv1d`, for models that see a place at a time. ``state`` is written: it moves one place on and
    ends in ``input``. After :func:`causal_conv1d` of a whole ``x`` it is
    ``torch.nn.functional.pad(x, (K - 1, 0))[..., x.shape[-1]:].clone()``.

    Args:
        input: tensor (N, C), the next place. Without a batch: ``input[None]`` and ``state[None]``.
        state: tensor (N, C, S) of ``input``'s dtype with the places before, the latest last; S is at least K - 1, and zeros are
            what :func:`causal_conv1d` starts from. Each value has memory of its own.
        weight: tensor (C, K), as in :func:`causal_conv1d`.
        bias: tensor (C).
        activation: as in :func:`conv1d_act`.

    Returns:
        Tensor (N, C), the same place of what :func:`causal_conv1d` gives. Differentiable any number of times, forwards and
        backwards; where a gradient is wanted, ``state`` follows the rules of in-place operators, such as that a leaf that
        requires a gradient can't be written. A function that :func:`torch.func.grad` and the like transform takes ``state`` as
        an argument or makes it. Under autocast what autocast casts of the others is cast to ``state``'s dtype, if that is a
        floating-point one.

    Raises:
        RuntimeError: shapes that don't go together as above; dtypes or devices that differ; an unknown ``activation``; a
            ``state`` that overlaps itself or, in part, another argument, where ATen can tell; a ``state`` that a transformed
            function has captured.
        RuntimeError, NotImplementedError: dtypes that ATen doesn't take on the device, or not with the activation.
    """
    return _ops.causal_conv1d_update.default(input, state, weight, bias, activation)


def convolve(a: Tensor, v: Tensor, mode: str = "full") -> Tensor:
    """Discrete convolution, the semantics of :func:`numpy.convolve`: ``full[i]`` is the sum over j of ``a[i - j] v[j]``.

    Args:
        a: tensor (..., M), each row of which is convolved.
        v: tensor (N), the same for all rows; for one each, ``torch.vmap(convolve)(a, v)``.
        mode: ``'full'`` for all M + N - 1 values; ``'same'`` for max(M, N) from the middle; ``'valid'`` for the
            max(M, N) - min(M, N) + 1 where the shorter one is in the longer one altogether.

    Returns:
        Contiguous tensor (..., size) of :func:`torch.result_type` of the two. Differentiable any number of times, forwards and backwards.
        Autocast leaves it alone.

        Where the shorter one has fewer than 512 values, this is a :func:`conv1d` with the taps reversed. From 512 on it is
        computed by Fourier transforms of overlapping blocks (:func:`torch.fft.rfft`; half types in float32). Errors are then
        relative to the largest values of a block, not to each result, and a NaN or infinity makes its whole block NaN. Integers
        are exact and wrap around, and bools are combined by "and" and "or": one product after another, which is slow. Where
        sizes are symbolic (:func:`torch.export`), the number of taps of integers, and from 512 on of all dtypes, is fixed at the
        example's, and the length of ``a`` to a range whose blocks have the same length; which operand is shorter, and on which
        side of 512, becomes a guard.

    Raises:
        RuntimeError: an unknown ``mode``; an ``a`` or ``v`` without values (numpy: ValueError); a ``v`` that is not 1-D, an ``a``
            without dimensions; devices that differ.
        NotImplementedError: dtypes that ATen doesn't compute with.
    """
    return _ops.convolve.default(a, v, mode)
