"""Selective scans, the recurrences of Mamba: ``selective_scan`` and ``selective_scan_update``.

Same semantics as ``selective_scan_fn`` and ``selective_state_update`` of the package ``mamba_ssm``, except that A is real.

- float16, bfloat16 and float32 are computed in float32. If u, delta or z is float64, everything is computed in float64.
- On CUDA, results and gradients are bitwise reproducible. No operator writes the states of all positions to memory.
- On CPU tensors, the functions loop over the positions with ATen's operators.

A. Gu and T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023).
``csrc/selective_scan/README.md`` describes the kernels.
"""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from torch_ops._arguments import checks_types
from torch_ops._deprecated import takes_old_calls

__all__ = ["selective_scan", "selective_scan_update"]

_ops = torch.ops.gpuopt


@overload
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    *,
    delta_softplus: bool = False,
    return_last_state: Literal[False] = False,
) -> Tensor: ...
@overload
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    *,
    delta_softplus: bool = False,
    return_last_state: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@takes_old_calls("u delta A B C D z delta_bias delta_softplus return_last_state")
@checks_types
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    *,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Selective scan of Mamba: a recurrence of ``n`` states for each channel, whose coefficients depend on the position.

    With ``dt = delta + delta_bias``, or its softplus, and ``h[-1] = 0``::

        h[t] = exp(dt[t] * A) * h[t - 1] + dt[t] * B[t] * u[t]    # n states
        y[t] = (C[t] * h[t]).sum() + D * u[t]
        out[t] = y[t] * silu(z[t])                                 # y[t] without z

    Args:
        u: Input of shape (batch, dim, length) and any strides. It is read without a copy if ``length`` or ``dim`` is the
            innermost dimension. float16, bfloat16, float32 or float64, as all arguments. The dtypes may differ.
        delta: Step sizes, with the shape of ``u``. They are copied if another dimension is their innermost than that of
            ``u``. The same holds for ``z``.
        A: Real decay rates (dim, n), usually negative. n is 1 to 256.
        B: Input coefficients: (batch, groups, n, length), (batch, n, length) for one group, or (dim, n) if they are constant.
            The channels are divided evenly among the groups.
        C: Output coefficients, with shapes as for ``B``.
        D: Factors (dim,) of the input that is added to the output. Default: none.
        z: Gate with the shape of ``u``. Default: none.
        delta_bias: Added to ``delta``, shape (dim,). Default: none.
        delta_softplus: If True, softplus is applied to the step sizes, after the bias.
        return_last_state: If True, the states after the last position are returned, too.

    Returns:
        The output, with the shape, dtype and innermost dimension of ``u``. With ``return_last_state``, a pair of the output and
        the last states, of shape (batch, dim, n) in float32, or float64 if that is what is computed in. Both are
        differentiable in all tensors. First derivatives in reverse mode have kernels. Higher derivatives, forward mode, and
        the gradient under :func:`torch.vmap` loop over the positions.

    Raises:
        TypeError: an argument is complex, or not floating-point.
        RuntimeError: a shape doesn't fit, n is not 1 to 256, or the devices differ.
    """
    out, last_state = _ops.selective_scan.default(u, delta, A, B, C, D, z, delta_bias, delta_softplus)
    return (out, last_state) if return_last_state else out


@takes_old_calls("state x dt A B C D z dt_bias dt_softplus")
@checks_types
def selective_scan_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    *,
    dt_softplus: bool = False,
) -> Tensor:
    """One position of a selective scan, for generation. Updates ``state`` in place.

    Args:
        state: States (batch, dim, n), or (batch, heads, dim, n). Any floating-point dtype. They are computed in float32, or in
            float64 if ``state`` or ``x`` is float64.
        x: Input (batch, dim), or (batch, heads, dim).
        dt: Step sizes, with the shape of ``x``. Expanded tensors are read without a copy.
        A: Real decay rates (dim, n), or (heads, dim, n).
        B: Input coefficients (batch, n) or (batch, groups, n). The heads are divided evenly among the groups.
        C: Output coefficients, with shapes as for ``B``.
        D: Factors of the input, (dim,) or (heads, dim). Default: none.
        z: Gate with the shape of ``x``. Default: none.
        dt_bias: Added to ``dt``, (dim,) or (heads, dim). Default: none.
        dt_softplus: If True, softplus is applied to the step sizes, after the bias.

    Returns:
        The output, with the shape and dtype of ``x``.

    Raises:
        TypeError: an argument is complex, or not floating-point.
        RuntimeError: a shape doesn't fit, the devices differ, ``state`` overlaps itself or another argument, or an argument
            requires a gradient: there is no derivative.
    """
    return _ops.selective_scan_update.default(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus)
