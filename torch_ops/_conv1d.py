"""One-dimensional convolutions.

=======================================  ===========================================================================
function                                 computes
=======================================  ===========================================================================
:func:`conv1d`, :func:`conv1d_backward`  :func:`torch.nn.functional.conv1d` and its gradients
:func:`conv_transpose1d`                 :func:`torch.nn.functional.conv_transpose1d`
:func:`conv1d_act`                       a convolution, then an activation, in one kernel
:func:`causal_conv1d`                    a depthwise convolution of each position and the positions on its left
:func:`causal_conv1d_update`             one position of :func:`causal_conv1d`, with a state
:func:`convolve`                         :func:`numpy.convolve`
=======================================  ===========================================================================

CUDA tensors of float16, bfloat16, float32 and float64 are computed by kernels of this library if channels are few. Weights are
reused little there, and the kernels read and write each value about once. They support up to 8 input channels per group, or 64 into
one output channel. In float16 and bfloat16 the forward supports 16 input channels per group, and the input's gradient with stride 1
supports 16 output channels per group. Transposed convolutions are computed as the input's gradient of a convolution, with input and
output exchanged: up to 8 output channels per group are supported.

float16 and bfloat16 are summed in float32. float32 is summed in float32, never in TF32. Results are bitwise reproducible on one
kind of GPU.

Other convolutions on CUDA fall back to ATen, which calls cuDNN. They obey PyTorch's flags (``torch.backends.cudnn``, TF32,
determinism). On CPU tensors the operators call ATen.

A result is contiguous, or channels last if ``input`` is. In a channels-last tensor the channels of one position are neighbours in
memory, as in ``x.transpose(1, 2)`` of a contiguous (N, L, C).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types
from torch_ops._deprecated import new_word

__all__ = [
    "causal_conv1d",
    "causal_conv1d_update",
    "conv1d",
    "conv1d_act",
    "conv1d_backward",
    "conv_transpose1d",
    "convolve",
]

Activation = Literal["relu", "silu", "gelu"]

_ops = torch.ops.gpuopt


def _list(value: int | Sequence[int]) -> Any:
    # A string goes to the operator unchanged, whose error message then quotes it.
    return value if isinstance(value, (list, tuple, str)) else [value]


def activation_word(function: str, activation: Activation | None) -> str:
    """The operator's word for an activation."""
    activation = new_word(function, "activation", activation, {"none": None})
    return "none" if activation is None else activation


@checks_types
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Literal["valid", "same"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolves each row (cross-correlation), with the semantics of :func:`torch.nn.functional.conv1d` (``aten::conv1d``).

    Args:
        input: tensor (N, C, L), or (C, L) without a batch, of float16, bfloat16, float32, float64 or a complex dtype; on the CPU
            also of an integer dtype. N may be 0. If C is 0, the result has no channels, as in ATen.
        weight: tensor (O, C / groups, K) of ``input``'s dtype.
        bias: tensor (O) of ``input``'s dtype.
        stride: distance between neighbouring outputs, in input values.
        padding: zeros at each end; ``'valid'`` for none, or ``'same'`` for as many as keep L. If ``'same'`` needs an odd number of
            zeros, the odd one goes to the right end. The input is not copied.
        dilation: distance between neighbouring taps, in input values.
        groups: number of groups of channels, each convolved on its own.

    Returns:
        Tensor (N, O, floor((L + 2 padding - dilation (K - 1) - 1) / stride) + 1), or without N, of ``input``'s dtype and layout.
        Under autocast operands are cast to the lower precision, as for ATen's operator. Derivatives of any order exist, in reverse
        and forward mode.

    Raises:
        RuntimeError: ``input`` is not 2-D or 3-D, or its rows are empty although it has a batch and channels.
        RuntimeError: ``weight`` is not 3-D, has no output channels or taps, does not match ``input``'s channels or ``groups``, or
            its taps span more than the padded input.
        RuntimeError: ``bias`` has another shape than (O). dtypes or devices differ.
        RuntimeError: ``stride``, ``dilation`` or ``groups`` is below 1. ``padding`` is below 0, an unknown word, or ``'same'`` with
            a ``stride`` above 1. ``stride``, ``padding`` or ``dilation`` has more than one value.
        NotImplementedError, RuntimeError: ATen does not support the dtype on this device.
    """
    if isinstance(padding, str):
        return _ops.conv1d.padding(input, weight, bias, _list(stride), padding, _list(dilation), groups)
    return _ops.conv1d.default(input, weight, bias, _list(stride), _list(padding), _list(dilation), groups)


@checks_types
def conv1d_act(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: Activation | None = None,
) -> Tensor:
    """Applies an activation to :func:`conv1d`, in the same kernel if this library computes the convolution.

    Args:
        input: tensor (N, C, L) or (C, L), as in :func:`conv1d`.
        weight: tensor (O, C / groups, K).
        bias: tensor (O).
        stride: as in :func:`conv1d`.
        padding: zeros at each end, or the two numbers (left, right). Words are not accepted: ``'same'`` is ``(t // 2, t - t // 2)``
            with t = ``dilation * (K - 1)``.
        dilation: as in :func:`conv1d`.
        groups: as in :func:`conv1d`.
        activation: None, ``'relu'``, ``'silu'`` or ``'gelu'`` (exact, by erf). They are :func:`torch.relu`,
            :func:`torch.nn.functional.silu` and :func:`torch.nn.functional.gelu`. The kernels do not round float16 and bfloat16
            sums before they apply it.

    Returns:
        Tensor as from :func:`conv1d`. The backward computes the operand of ``'silu'`` and ``'gelu'`` again, which saves the memory of
        a tensor.

    Raises:
        RuntimeError: as :func:`conv1d`; ``activation`` is unknown; ``padding`` has neither one nor two values.
        NotImplementedError, RuntimeError: ATen does not support the dtype on this device, or not with the activation.
    """
    return _ops.conv1d_act.default(
        input,
        weight,
        bias,
        _list(stride),
        _list(padding),
        _list(dilation),
        groups,
        activation_word("conv1d_act", activation),
    )


@checks_types
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Transposed convolution, with the semantics of :func:`torch.nn.functional.conv_transpose1d` (``aten::conv_transpose1d``).

    Each input value adds its multiples of the taps to the output, ``stride`` positions behind the previous input value's. This is the
    gradient of the input of :func:`conv1d` with the same ``weight``. The same kernels compute both, and add ``bias`` in the same pass.

    Args:
        input: tensor (N, C, L), or (C, L) without a batch, of float16, bfloat16, float32, float64 or a complex dtype; on the CPU
            also of an integer dtype. N may be 0.
        weight: tensor (C, O / groups, K) of ``input``'s dtype.
        bias: tensor (O) of ``input``'s dtype.
        stride: distance between the outputs of neighbouring input values.
        padding: number of positions that are left out at each end of the output.
        output_padding: number of further positions at the right end. It must be below ``stride`` or below ``dilation``.
        groups: number of groups of channels, each convolved on its own.
        dilation: distance between neighbouring taps, in output positions.

    Returns:
        Tensor (N, O, (L - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1), or without N, of ``input``'s dtype and
        layout. Under autocast operands are cast to the lower precision, as for ATen's operator. Derivatives of any order exist, in
        reverse and forward mode.

    Raises:
        RuntimeError: ``input`` is not 2-D or 3-D, or its rows are empty although it has a batch.
        RuntimeError: ``weight`` is not 3-D, has no channels or taps, or does not match ``input``'s channels or ``groups``.
        RuntimeError: ``bias`` has another shape than (O). dtypes or devices differ.
        RuntimeError: ``stride``, ``dilation`` or ``groups`` is below 1. ``padding`` is below 0, or leaves no output.
            ``output_padding`` is below 0, or not below ``stride`` or ``dilation``. One of them has more than one value.
        NotImplementedError, RuntimeError: ATen does not support the dtype on this device.
    """
    return _ops.conv_transpose1d.default(
        input, weight, bias, _list(stride), _list(padding), _list(output_padding), groups, _list(dilation)
    )


@checks_types
def conv1d_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    bias: Tensor | None = None,
    activation: Activation | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Computes the gradients of :func:`conv1d`, with the semantics of ``aten::convolution_backward``, or of :func:`conv1d_act`.

    One kernel computes all gradients of depthwise convolutions of 2 to 4 taps, with stride 1 and without dilation. It reads
    ``grad_output`` and ``input`` once, also with ``'silu'``.

    Args:
        grad_output: tensor of the output's shape.
        input: tensor (N, C, L) or (C, L).
        weight: tensor (O, C / groups, K).
        stride: as in :func:`conv1d`.
        padding: as in :func:`conv1d_act`.
        dilation: as in :func:`conv1d`.
        groups: as in :func:`conv1d`.
        output_mask: which gradients to compute: of ``input``, of ``weight`` and of the bias.
        bias: tensor (O) of :func:`conv1d_act`. It has no effect without an activation.
        activation: as in :func:`conv1d_act`. ``grad_output`` is the gradient of the activation's result.

    Returns:
        The three gradients, with None for each that was not asked for. The gradient of ``input`` has ``input``'s layout
        (contiguous, or channels last), that of ``weight`` is contiguous. float16 and bfloat16 are summed in float32 and rounded
        once. Derivatives of any order exist, in reverse and forward mode.

    Raises:
        RuntimeError: ``grad_output`` does not have the output's shape; as :func:`conv1d`.
        NotImplementedError, RuntimeError: ATen does not support the dtype on this device.
    """
    return _ops.conv1d_backward.default(
        grad_output,
        input,
        weight,
        _list(stride),
        _list(padding),
        _list(dilation),
        groups,
        output_mask,
        bias,
        activation_word("conv1d_backward", activation),
    )


@checks_types
def causal_conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation | None = None
) -> Tensor:
    """Causal depthwise convolution: an output depends on its own position and the K - 1 positions on its left, in its own channel.

    Args:
        input: tensor (N, C, L), or (C, L) without a batch.
        weight: tensor (C, K). The last tap is multiplied with the output's own position.
        bias: tensor (C).
        activation: as in :func:`conv1d_act`. Swish is ``'silu'``.

    Returns:
        Tensor of ``input``'s shape: ``conv1d_act(input, weight[:, None], bias, padding=(K - 1, 0), groups=C,
        activation=activation)``.

    Raises:
        RuntimeError: ``weight`` is not 2-D, does not have ``input``'s channels, or has no taps; as :func:`conv1d_act`.
        NotImplementedError, RuntimeError: ATen does not support the dtype on this device, or not with the activation.
    """
    return _ops.causal_conv1d.default(input, weight, bias, activation_word("causal_conv1d", activation))


@checks_types
def causal_conv1d_update(
    input: Tensor,
    state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: Activation | None = None,
) -> Tensor:
    """Computes one position of :func:`causal_conv1d`, for models that generate one position per call.

    ``state`` is written in place. It shifts by one position, and ``input`` becomes its last value. After :func:`causal_conv1d` of a
    whole ``x``, the state is ``torch.nn.functional.pad(x, (K - 1, 0))[..., x.shape[-1]:].clone()``.

    Args:
        input: tensor (N, C), the next position. Without a batch, pass ``input[None]`` and ``state[None]``.
        state: tensor (N, C, S) of ``input``'s dtype: the S previous positions, the latest last. S is at least K - 1. Zeros are the
            state that :func:`causal_conv1d` starts from. No two of its elements may share memory.
        weight: tensor (C, K), as in :func:`causal_conv1d`.
        bias: tensor (C).
        activation: as in :func:`conv1d_act`.

    Returns:
        Tensor (N, C), the values of :func:`causal_conv1d` at this position. Derivatives of any order exist, in reverse and forward
        mode. If a gradient is needed, ``state`` follows the rules of in-place operators: a leaf that requires a gradient cannot be
        written. A function that :func:`torch.func.grad` or a similar transform differentiates must take ``state`` as an argument or
        make it. Under autocast the other operands are cast to ``state``'s dtype, if that is a floating-point dtype.

    Raises:
        RuntimeError: shapes do not match as above; dtypes or devices differ; ``activation`` is unknown.
        RuntimeError: ``state`` overlaps itself, or overlaps another argument in part, where ATen can tell.
        RuntimeError: a transformed function has captured ``state``.
        NotImplementedError, RuntimeError: ATen does not support the dtype on this device, or not with the activation.
    """
    return _ops.causal_conv1d_update.default(
        input, state, weight, bias, activation_word("causal_conv1d_update", activation)
    )


@checks_types
def convolve(a: Tensor, v: Tensor, mode: Literal["full", "same", "valid"] = "full") -> Tensor:
    """Discrete convolution, with the semantics of :func:`numpy.convolve`: ``full[i]`` is the sum over j of ``a[i - j] v[j]``.

    If the shorter operand has fewer than 512 values, this is a :func:`conv1d` with reversed taps. Otherwise it multiplies Fourier
    transforms of overlapping blocks (overlap-save, :func:`torch.fft.rfft`; float16 and bfloat16 in float32). Errors are then
    relative to the largest values of a block, and a NaN or an infinity makes its whole block NaN.

    Integers are exact and wrap around. Bools are combined by "and" and "or". Both compute one shifted product per tap, which is
    slow.

    With symbolic sizes (:func:`torch.export`), some sizes are fixed at the example's. The number of taps is fixed for integers, and
    for all dtypes from 512 taps on. The length of ``a`` is then limited to a range whose blocks have the same length. Which operand
    is shorter, and on which side of 512 it lies, becomes a guard.

    Args:
        a: tensor (..., M). Each row is convolved.
        v: tensor (N), the same for all rows. For one ``v`` per row use ``torch.vmap(convolve)(a, v)``.
        mode: ``'full'`` for all M + N - 1 values, ``'same'`` for the middle max(M, N) of them, or ``'valid'`` for the
            max(M, N) - min(M, N) + 1 values at which the shorter operand lies within the longer one.

    Returns:
        Contiguous tensor (..., size) of :func:`torch.result_type` of the operands. Derivatives of any order exist, in reverse and
        forward mode. Autocast does not change the dtype.

    Raises:
        RuntimeError: ``mode`` is unknown; ``a`` or ``v`` is empty (numpy raises ValueError); ``v`` is not 1-D; ``a`` has no
            dimensions; devices differ.
        NotImplementedError: ATen does not compute with the dtype.
    """
    return _ops.convolve.default(a, v, mode)
