"""The functions of ``causal_conv1d.cpp_functions``, which mamba_ssm and flash-linear-attention call in their own backward passes.

They compute without a graph. ``silu_activation`` is a bool.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ops._conv1d import Activation, conv1d_backward
from torch_ops.compat.causal_conv1d import causal_conv1d_fn, causal_conv1d_update

__all__ = ["causal_conv1d_bwd_function", "causal_conv1d_fwd_function", "causal_conv1d_update_function"]


def _name(silu_activation: bool) -> Activation | None:
    return "silu" if silu_activation else None


@torch.no_grad()
def causal_conv1d_fwd_function(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    seq_idx: Tensor | None,
    initial_states: Tensor | None,
    final_states_out: Tensor | None,
    silu_activation: bool,
) -> Tensor:
    """:func:`causal_conv1d_fn`. Final states are written to ``final_states_out`` if it is given. Returns (N, C, L)."""
    arguments = (x, weight, bias, seq_idx, initial_states)
    if final_states_out is None:
        out: Any = causal_conv1d_fn(*arguments, activation=_name(silu_activation))
        return out
    out, _ = causal_conv1d_fn(*arguments, True, final_states_out, _name(silu_activation))
    return out


def causal_conv1d_bwd_function(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dout: Tensor,
    seq_idx: Tensor | None,
    initial_states: Tensor | None,
    dfinal_states: Tensor | None,
    dx: Tensor | None,
    return_dinitial_states: bool,
    silu_activation: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of :func:`causal_conv1d_fn`. With sequences, states or several dtypes, it is computed once more.

    Args:
        x: tensor (N, C, L), and the other operands as for :func:`causal_conv1d_fn`.
        dout: tensor (N, C, L), the gradient of the output.
        dfinal_states: tensor (N, C, K - 1), the gradient of the final states, or None.
        dx: tensor (N, C, L) that the gradient of ``x`` is written to. It is returned. None makes one.
        return_dinitial_states: whether the gradient of ``initial_states`` is needed.

    Returns:
        The gradients of ``x``, ``weight``, ``bias`` and ``initial_states``, of these tensors' dtypes. The last two may be None.
    """
    one_dtype = {t.dtype for t in (x, weight, bias, dout) if t is not None} == {x.dtype}
    if (
        seq_idx is None
        and initial_states is None
        and dfinal_states is None
        and not return_dinitial_states
        and one_dtype
    ):
        (channels, taps), mask = weight.shape, (True, True, bias is not None)
        with torch.no_grad():
            grads: Any = conv1d_backward(
                dout, x, weight[:, None], 1, (taps - 1, 0), 1, channels, mask, bias, _name(silu_activation)
            )
        grad_x = grads[0] if dx is None else dx.copy_(grads[0])
        return grad_x, grads[1][:, 0], grads[2], None
    if not return_dinitial_states and initial_states is not None:
        initial_states = initial_states.detach()
    with torch.enable_grad():
        wanted: list[Any] = [x, weight, *[bias] * (bias is not None), *[initial_states] * bool(return_dinitial_states)]
        leaves = [tensor.detach().requires_grad_() for tensor in wanted]
        rest = iter(leaves[2:])
        bias = None if bias is None else next(rest)
        states = next(rest) if return_dinitial_states else initial_states
        results: Any = causal_conv1d_fn(
            leaves[0], leaves[1], bias, seq_idx, states, dfinal_states is not None, activation=_name(silu_activation)
        )
    outputs, gradients = (results, dout) if dfinal_states is None else (results, (dout, dfinal_states))
    found = iter(torch.autograd.grad(outputs, leaves, gradients, materialize_grads=True))
    grad_x, grad_weight = next(found), next(found)
    if dx is not None:
        grad_x = dx.copy_(grad_x)
    return grad_x, grad_weight, None if bias is None else next(found), next(found) if return_dinitial_states else None


@torch.no_grad()
def causal_conv1d_update_function(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    silu_activation: bool,
    cache_seqlens: Tensor | None,
    conv_state_indices: Tensor | None,
) -> Tensor:
    """:func:`causal_conv1d_update` of (N, C, T)."""
    return causal_conv1d_update(x, conv_state, weight, bias, _name(silu_activation), cache_seqlens, conv_state_indices)
