"""Drop-in for the selective scans of ``mamba_ssm``, which Mamba models call: scans, updates, and a whole layer.

Names, arguments and semantics follow github.com/state-spaces/mamba. Any layout and floating-point dtype works, on CUDA and CPU
tensors. A must be real. There is no drop-in for the modules and for the kernels of Mamba-2 (``ops.triton.ssd_combined``), so the
drop-in has a version before 2: libraries then don't look for these kernels.

Shapes: N is the batch, D the channels, L the positions, S the states of a channel, G the groups, H the heads.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from torch_ops.compat.causal_conv1d import causal_conv1d_fn, check_shape, write_rows
from torch_ops.selective_scan import selective_scan, selective_scan_update

__all__ = ["mamba_inner_fn", "selective_scan_fn", "selective_state_update"]


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`torch_ops.selective_scan`. The last state has a gradient, which the original leaves out.

    Args:
        u: tensor (N, D, L).
        delta: tensor (N, D, L).
        A: real tensor (D, S).
        B: tensor (N, G, S, L), (N, S, L) or (D, S).
        C: tensor with a shape as for ``B``.
        D: tensor (D).
        z: tensor (N, D, L).
        delta_bias: tensor (D).
        delta_softplus: whether softplus is applied to ``delta`` after the bias.
        return_last_state: whether to return the last states (N, D, S) as well.

    Returns:
        Tensor of ``u``'s shape and dtype, or the pair of it and the last states.

    Raises:
        TypeError: an argument is complex.
        RuntimeError: shapes do not match as above; devices differ.
    """
    return selective_scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus, return_last_state)


@torch.no_grad()
def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
) -> Tensor:
    """:func:`torch_ops.selective_scan_update`: one position, which updates ``state`` in place. As in the original, the result is not
    part of a graph.

    Args:
        state: tensor (M, D, S) or (M, H, D, S). M is N without ``state_batch_indices``.
        x: tensor (N, D) or (N, H, D).
        dt: tensor of ``x``'s shape.
        A: tensor (D, S) or (H, D, S).
        B: tensor (N, S) or (N, G, S).
        C: tensor of ``B``'s shape.
        D: tensor (D) or (H, D).
        z: tensor of ``x``'s shape.
        dt_bias: tensor (D) or (H, D).
        dt_softplus: whether softplus is applied to ``dt`` after the bias.
        state_batch_indices: integer tensor (N), the row of ``state`` that belongs to each row of ``x``. Rows must differ. A negative
            index is padding: the output is exactly zero, and no state is written.

    Returns:
        Tensor of ``x``'s shape and dtype, without heads if ``state`` has none.

    Raises:
        RuntimeError: shapes do not match as above; devices differ; as :func:`torch_ops.selective_scan_update`.
    """
    if state_batch_indices is not None:
        check_shape("selective_state_update", "state_batch_indices", state_batch_indices, (x.shape[0],))
        old = state.index_select(0, state_batch_indices.clamp(min=0))
        new = old.clone()
        out = selective_state_update(new, x, dt, A, B, C, D, z, dt_bias, dt_softplus)
        if x.shape[0]:
            is_padding = state_batch_indices < 0
            write_rows(state, state_batch_indices, torch.where(is_padding.view(-1, *[1] * (old.dim() - 1)), old, new))
            out = out.masked_fill(is_padding.view(-1, *[1] * (out.dim() - 1)), 0)
        return out
    if state.dim() == 3 and x.dim() == 2:
        return selective_scan_update(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus)
    # Operands without heads may come together with one head.
    x, dt, z = (_with_heads(t, 2, 1) for t in (x, dt, z))
    A, D, dt_bias = _with_heads(A, 2, 0), _with_heads(D, 1, 0), _with_heads(dt_bias, 1, 0)
    out = selective_scan_update(_with_heads(state, 3, 1), x, dt, A, B, C, D, z, dt_bias, dt_softplus)
    return out if state.dim() == 4 else out.squeeze(1)


def mamba_inner_fn(
    xz: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    x_proj_weight: Tensor,
    delta_proj_weight: Tensor,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    A: Tensor,
    B: Tensor | None = None,
    C: Tensor | None = None,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
    B_proj_bias: Tensor | None = None,
    C_proj_bias: Tensor | None = None,
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
    b_rms_weight: Tensor | None = None,
    c_rms_weight: Tensor | None = None,
    dt_rms_weight: Tensor | None = None,
    b_c_dt_rms_eps: float = 1e-6,
) -> Tensor:
    """A layer of Mamba after its first projection: convolution, projections, selective scan, gate and last projection.

    It is composed of :func:`causal_conv1d_fn`, matrix products and :func:`selective_scan_fn`, so it has derivatives in every tensor.
    If ``xz`` is a transposed result of a linear layer, as in Mamba, all parts keep the channels innermost, and none is transposed.

    Args:
        xz: tensor (N, 2 D, L): the input of the convolution, then the gate.
        conv1d_weight: tensor (D, 1, K).
        conv1d_bias: tensor (D), or None.
        x_proj_weight: tensor (R + 2 S, D). Its rows give the step sizes (of rank R), B and C. Rows for a given ``B`` or ``C`` are
            not used.
        delta_proj_weight: tensor (D, R).
        out_proj_weight: tensor (E, D).
        out_proj_bias: tensor (E), or None.
        A: real tensor (D, S).
        B: as for :func:`selective_scan_fn`. Default: a projection of the convolution's result.
        C: as ``B``.
        D: tensor (D).
        delta_bias: tensor (D).
        B_proj_bias: tensor (S), added to the projection.
        C_proj_bias: tensor (S), added to the projection.
        delta_softplus: whether softplus is applied to the step sizes.
        checkpoint_lvl: has no effect. Backward keeps the results of the convolution and of the projections.
        b_rms_weight: tensor (S). B is normalised by its root mean square and multiplied by this.
        c_rms_weight: the same for C.
        dt_rms_weight: tensor (D), the same for the step sizes, after their projection and before ``delta_bias``.
        b_c_dt_rms_eps: added to the mean squares.

    Returns:
        Tensor (N, L, E).

    Raises:
        TypeError: an argument is complex.
        RuntimeError: shapes do not match as above; devices differ.
    """
    x, z = xz.chunk(2, 1)
    x = causal_conv1d_fn(x, conv1d_weight.squeeze(1), conv1d_bias, activation="silu")
    rank, states = delta_proj_weight.shape[1], A.shape[1]
    projected = functional.linear(x.mT, x_proj_weight)
    delta = projected[..., :rank]
    if x.stride(1) == 1:
        delta = functional.linear(delta, delta_proj_weight).mT
    else:
        delta = torch.matmul(delta_proj_weight, delta.mT)
    B = _projection(projected[..., rank : rank + states], B_proj_bias) if B is None else B
    C = _projection(projected[..., projected.shape[-1] - states :], C_proj_bias) if C is None else C
    B, C, delta = (
        t if weight is None else _normalised(t, weight, b_c_dt_rms_eps)
        for t, weight in ((B, b_rms_weight), (C, c_rms_weight), (delta, dt_rms_weight))
    )
    out = selective_scan(x, delta, A, B, C, D, z, delta_bias, delta_softplus)
    bias = None if out_proj_bias is None else out_proj_bias.to(out_proj_weight.dtype)
    return functional.linear(out.mT, out_proj_weight, bias)


def _with_heads(tensor: Tensor | None, dims: int, where: int) -> Tensor | None:
    """One head is added to a tensor of so many dimensions."""
    return tensor.unsqueeze(where) if tensor is not None and tensor.dim() == dims else tensor


def _projection(rows: Tensor, bias: Tensor | None) -> Tensor:
    """B or C (N, S, L) out of (N, L, S)."""
    return (rows if bias is None else rows + bias.to(rows.dtype)).mT


def _normalised(columns: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A root-mean-square norm over the last dimension but one, in float32 at least."""
    dtype = torch.promote_types(columns.dtype, torch.float32)
    rows = functional.rms_norm(columns.mT.to(dtype), weight.shape, weight.to(dtype), eps)
    return rows.to(columns.dtype).mT
