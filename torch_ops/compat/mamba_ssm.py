"""Drop-in for the selective scans of ``mamba_ssm``, which Mamba models call: scans, updates, and a whole layer.

Names, arguments and semantics follow github.com/state-spaces/mamba. Any layout and floating-point dtype works, on CUDA and CPU
tensors. A scan with complex A, as in S4D, is a linear recurrence that writes all states to memory. There is no drop-in for the
modules and for the kernels of Mamba-2 (``ops.triton.ssd_combined``), so the drop-in has a version before 2: libraries then don't
look for these kernels.

Shapes: N is the batch, D the channels, L the positions, S the states of a channel, G the groups, H the heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_ops._scan import linear_recurrence
from torch_ops._selective_scan import selective_scan, selective_scan_update
from torch_ops.compat.causal_conv1d import causal_conv1d_fn, check_shape, write_rows

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
    """:func:`torch_ops.selective_scan`, and the same for complex A. The last state has a gradient, which the original leaves out.

    With complex A, the states, B and C are complex, and ``y[t] = 2 * (C[t] * h[t]).sum().real + D * u[t]``: the states stand for
    conjugate pairs.

    Args:
        u: tensor (N, D, L).
        delta: tensor (N, D, L).
        A: tensor (D, S), real or complex.
        B: tensor (N, G, S, L), (N, S, L) or (D, S). With complex A, a real tensor (N, G, S, 2 L) or (N, S, 2 L), whose last dimension
            has real and imaginary parts in turn, or a tensor (D, S), which may be complex.
        C: tensor with a shape as for ``B``.
        D: tensor (D).
        z: tensor (N, D, L).
        delta_bias: tensor (D).
        delta_softplus: whether softplus is applied to ``delta`` after the bias.
        return_last_state: whether to return the last states (N, D, S) as well.

    Returns:
        Tensor of ``u``'s shape and dtype, or the pair of it and the last states, which are complex if A is.

    Raises:
        TypeError: an argument is complex that must be real.
        RuntimeError: shapes do not match as above; devices differ.
    """
    if A.is_complex():
        out, last_state = _complex_scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus)
        return (out, last_state) if return_last_state else out
    return selective_scan(
        u, delta, A, B, C, D, z, delta_bias, delta_softplus=delta_softplus, return_last_state=return_last_state
    )


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
        return selective_scan_update(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus=dt_softplus)
    # Operands without heads may come together with one head.
    x, dt, z = (_with_heads(t, 2, 1) for t in (x, dt, z))
    A, D, dt_bias = _with_heads(A, 2, 0), _with_heads(D, 1, 0), _with_heads(dt_bias, 1, 0)
    out = selective_scan_update(_with_heads(state, 3, 1), x, dt, A, B, C, D, z, dt_bias, dt_softplus=dt_softplus)
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

    It is composed of :func:`causal_conv1d_fn`, matrix products and :func:`selective_scan_fn`, so it has derivatives in every tensor. With
    complex A, a projection to B or C has P = 2 S rows: the real and imaginary part of each state in turn. With real A, P = S.
    If ``xz`` is a transposed result of a linear layer, as in Mamba, all parts keep the channels innermost, and none is transposed.

    Args:
        xz: tensor (N, 2 D, L): the input of the convolution, then the gate.
        conv1d_weight: tensor (D, 1, K).
        conv1d_bias: tensor (D), or None.
        x_proj_weight: tensor (R + 2 P, D). Its rows give the step sizes (of rank R), B and C. Rows for a given ``B`` or ``C`` are
            not used.
        delta_proj_weight: tensor (D, R).
        out_proj_weight: tensor (E, D).
        out_proj_bias: tensor (E), or None.
        A: tensor (D, S), real or complex.
        B: as for :func:`selective_scan_fn`. Default: a projection of the convolution's result.
        C: as ``B``.
        D: tensor (D).
        delta_bias: tensor (D).
        B_proj_bias: tensor (P), added to the projection.
        C_proj_bias: tensor (P), added to the projection.
        delta_softplus: whether softplus is applied to the step sizes.
        checkpoint_lvl: has no effect. Backward keeps the results of the convolution and of the projections.
        b_rms_weight: tensor (S). B is normalised by its root mean square and multiplied by this. A must be real.
        c_rms_weight: the same for C.
        dt_rms_weight: tensor (D), the same for the step sizes, after their projection and before ``delta_bias``.
        b_c_dt_rms_eps: added to the mean squares.

    Returns:
        Tensor (N, L, E).

    Raises:
        TypeError: an argument is complex that must be real.
        RuntimeError: shapes do not match as above; devices differ; norms of B or C with complex A.
    """
    signal, z = xz.chunk(2, 1)
    x: Any = causal_conv1d_fn(signal, conv1d_weight.squeeze(1), conv1d_bias, activation="silu")
    rank, parts = delta_proj_weight.shape[1], 2 if A.is_complex() else 1
    width = A.shape[1] * parts
    projected = functional.linear(x.mT, x_proj_weight)
    delta = projected[..., :rank]
    if x.stride(1) == 1:
        delta = functional.linear(delta, delta_proj_weight).mT
    else:
        delta = torch.matmul(delta_proj_weight, delta.mT)
    B = _projection(projected[..., rank : rank + width], B_proj_bias, parts) if B is None else B
    C = _projection(projected[..., projected.shape[-1] - width :], C_proj_bias, parts) if C is None else C
    if parts == 2 and not (b_rms_weight is None and c_rms_weight is None):
        raise RuntimeError("mamba_inner_fn: A must be real if B or C is normalised")
    B, C, delta = (
        t if weight is None else _normalised(t, weight, b_c_dt_rms_eps)
        for t, weight in ((B, b_rms_weight), (C, c_rms_weight), (delta, dt_rms_weight))
    )
    out: Any = selective_scan_fn(x, delta, A, B, C, D, z, delta_bias, delta_softplus)
    bias = None if out_proj_bias is None else out_proj_bias.to(out_proj_weight.dtype)
    return functional.linear(out.mT, out_proj_weight, bias)


def _complex_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    delta_softplus: bool,
) -> tuple[Tensor, Tensor]:
    """The output and the last states of a scan with complex A. It is computed in complex64, or complex128 if an argument is as wide."""
    for name, tensor in {"u": u, "delta": delta, "D": D, "z": z, "delta_bias": delta_bias}.items():
        if tensor is not None and tensor.is_complex():
            raise TypeError(f"selective_scan_fn: {name} must be real, got {tensor.dtype}")
    if u.dim() != 3 or A.dim() != 2 or A.shape[0] != u.shape[1]:
        raise RuntimeError(
            f"selective_scan_fn: u (N, D, L) and A (D, S) must fit, got {tuple(u.shape)} and {tuple(A.shape)}"
        )
    for name, tensor, shape in (
        ("delta", delta, u.shape),
        ("D", D, u.shape[1:2]),
        ("z", z, u.shape),
        ("delta_bias", delta_bias, u.shape[1:2]),
    ):
        check_shape("selective_scan_fn", name, tensor, shape)
    computed = torch.complex64
    for tensor in (u, delta, A) if z is None else (u, delta, A, z):
        computed = torch.promote_types(computed, tensor.dtype)
    real = computed.to_real()
    dt = delta.to(real) if delta_bias is None else delta.to(real) + delta_bias.to(real).unsqueeze(1)
    dt = functional.softplus(dt) if delta_softplus else dt
    B, C = (_complex_matrix(name, matrix, u, A, computed) for name, matrix in (("B", B), ("C", C)))
    decay = torch.exp(dt.unsqueeze(2) * A.to(computed).unsqueeze(2))
    states = linear_recurrence(decay, (dt * u.to(real)).unsqueeze(2) * B, 3)  # (N, D, S, L)
    out = 2 * (C * states).sum(2).real
    out = out if D is None else out + D.to(real).unsqueeze(1) * u.to(real)
    out = out if z is None else out * functional.silu(z.to(real))
    last_state = states[..., -1] if u.shape[2] else states.sum(3)
    return out.to(u.dtype), last_state


def _complex_matrix(name: str, matrix: Tensor, u: Tensor, A: Tensor, dtype: torch.dtype) -> Tensor:
    """B or C of a scan with complex A, for each channel: (N, D, S, L), or (1, D, S, 1) if it is constant."""
    (batch, channels, length), states = u.shape, A.shape[1]
    if matrix.dim() == 2:
        check_shape("selective_scan_fn", name, matrix, (channels, states))
        return matrix.to(dtype)[None, :, :, None]
    if matrix.is_complex():
        raise TypeError(f"selective_scan_fn: {name} must have real and imaginary parts in turn, got {matrix.dtype}")
    groups = matrix.unsqueeze(1) if matrix.dim() == 3 else matrix
    check_shape("selective_scan_fn", name, groups, (batch, *groups.shape[1:2], states, 2 * length))
    if not groups.shape[1] or channels % groups.shape[1]:
        raise RuntimeError(
            f"selective_scan_fn: {name} must have groups that divide {channels} channels, got {groups.shape[1]}"
        )
    pairs = torch.view_as_complex(groups.to(dtype.to_real()).unflatten(3, (length, 2)).contiguous())
    return pairs.repeat_interleave(channels // groups.shape[1], 1)


def _with_heads(tensor: Tensor | None, dims: int, where: int) -> Any:
    """One head is added to a tensor of so many dimensions."""
    return tensor.unsqueeze(where) if tensor is not None and tensor.dim() == dims else tensor


def _projection(rows: Tensor, bias: Tensor | None, parts: int) -> Tensor:
    """B or C (N, S, L * parts) out of (N, L, S * parts). A complex number has two parts."""
    rows = rows if bias is None else rows + bias.to(rows.dtype)
    return rows.mT if parts == 1 else rows.unflatten(2, (-1, parts)).transpose(1, 2).flatten(2)


def _normalised(columns: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A root-mean-square norm over the last dimension but one, in float32 at least."""
    dtype = torch.promote_types(columns.dtype, torch.float32)
    rows = functional.rms_norm(columns.mT.to(dtype), weight.shape, weight.to(dtype), eps)
    return rows.to(columns.dtype).mT
