"""Drop-in for ``causal_conv1d``: causal depthwise convolutions of sequence models such as Mamba, with states.

Names, arguments and semantics follow version 1.6 of github.com/Dao-AILab/causal-conv1d. Any width, layout and floating-point
dtype works, on CUDA and CPU tensors. ``seq_idx`` may come together with states. Every function has derivatives of any order with
respect to its floating-point arguments.

Shapes: N is the batch, C the channels, L the positions, K the taps (``width``), S the positions of a state.

How it is computed:

- A call without ``seq_idx`` and states is :func:`torch_ops.causal_conv1d`.
- Initial states change the first K - 1 outputs only. These are computed once more, from a signal of at most 2 (K - 1) positions.
- ``seq_idx`` restricts each output to the positions of its own sequence. Each output gets a copy of its K inputs, where inputs of
  other sequences are zeros. A convolution with stride K reads the copies (im2col for one channel per group). This takes K times the
  memory of ``x``.
- Operands of different dtypes are computed in the dtype that they promote to, as the original's kernels do for half ``x`` and
  float32 ``weight``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_ops._conv1d import Activation, causal_conv1d, conv1d_act
from torch_ops._conv1d import causal_conv1d_update as update_position

__all__ = ["causal_conv1d_fn", "causal_conv1d_update", "causal_conv1d_varlen_states"]


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Causal depthwise convolution, ``activation(conv1d(pad(x, (K - 1, 0)), weight[:, None], bias, groups=C))``.

    Args:
        x: tensor (N, C, L) of float16, bfloat16, float32 or float64, of any layout.
        weight: tensor (C, K). The last tap is multiplied with the output's own position.
        bias: tensor (C).
        seq_idx: integer tensor (N, L), the number of each position's sequence. An output depends on positions of its own sequence
            only. Where the number is negative (padding), the output is exactly zero and gradients are zero.
        initial_states: tensor (N, C, K - 1), the positions on the left of ``x``. With ``seq_idx`` they belong to the sequence of
            the first position. None means zeros.
        return_final_states: whether to return the last K - 1 positions as well, the ``initial_states`` of a call that continues.
            With ``seq_idx`` they end at the last position that is not padding, and positions of other sequences are zeros.
        final_states_out: tensor (N, C, K - 1) that the final states are written to. It is returned in their stead. It may be
            ``initial_states`` where no gradient is needed.
        activation: None, ``'silu'`` or ``'swish'``, which is the same.

    Returns:
        Tensor of ``x``'s shape, dtype and layout (contiguous or channels last). With ``return_final_states`` the pair of it and the
        final states, of ``x``'s dtype. Under autocast the result keeps ``x``'s dtype. If that is autocast's dtype, ``weight`` and
        ``bias`` are rounded to it, as autocast does for convolutions.

    Raises:
        NotImplementedError: ``activation`` is unknown.
        RuntimeError: shapes do not match as above; devices differ; as :func:`torch_ops.causal_conv1d`.
    """
    name = _activation_name(activation)
    if seq_idx is None and initial_states is None and not return_final_states and _is_direct(x, weight):
        return causal_conv1d(x, weight, bias, name)
    taps = weight.shape[-1]
    if x.dim() != 3 or weight.dim() != 2:
        raise RuntimeError(
            f"causal_conv1d_fn: expected x (N, C, L) and weight (C, K), got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    batch, channels, length = x.shape
    states = (batch, channels, taps - 1)
    check_shape("causal_conv1d_fn", "seq_idx", seq_idx, (batch, length))
    check_shape("causal_conv1d_fn", "initial_states", initial_states, states)
    check_shape("causal_conv1d_fn", "final_states_out", final_states_out if return_final_states else None, states)

    if seq_idx is None:
        out = _in_common_dtype(_convolve, x, weight, bias, initial_states, name)
    else:
        out = _in_common_dtype(_convolve_sequences, x, weight, bias, initial_states, name, seq_idx)
    if not return_final_states:
        return out
    final = _final_states(x, initial_states, seq_idx, taps)
    if final_states_out is not None:
        return out, final_states_out.copy_(final)
    # A copy with the channels innermost, as in the original. `final` may be a view of x.
    return out, final.mT.clone(memory_format=torch.contiguous_format).mT


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """Computes the next positions of :func:`causal_conv1d_fn` and writes them into ``conv_state``, in place.

    Call it in ``torch.no_grad`` or ``torch.inference_mode`` to generate. Elsewhere ``conv_state`` becomes part of the graph if ``x``
    requires a gradient, and the graph grows with each call.

    Args:
        x: tensor (N, C), one position, or (N, C, T), T positions.
        conv_state: tensor (M, C, S) of any layout: the previous positions, the latest last. S is at least K - 1. M is N without
            ``conv_state_indices``. Afterwards it has the last S of the S + T positions.
        weight: tensor (C, K).
        bias: tensor (C).
        activation: as for :func:`causal_conv1d_fn`.
        cache_seqlens: integer tensor (N), the number of positions that came before. ``conv_state`` is then a circular buffer:
            position p lies at index p modulo S.
        conv_state_indices: integer tensor (N), the row of ``conv_state`` that belongs to each row of ``x``. Rows must differ. A
            negative index is padding: the output is exactly zero, and no state is written.

    Returns:
        Tensor of ``x``'s shape and dtype.

    Raises:
        NotImplementedError: ``activation`` is unknown.
        RuntimeError: shapes do not match as above; devices differ; as :func:`torch_ops.causal_conv1d_update`.
    """
    name = _activation_name(activation)
    is_single = x.dim() == 2 or (x.dim() == 3 and x.shape[2] == 1)
    if is_single and cache_seqlens is None and conv_state_indices is None and _is_direct(x, weight):
        out = update_position(x if x.dim() == 2 else x[..., 0], conv_state, weight, bias, name)
        return out if x.dim() == 2 else out[..., None]
    if x.dim() not in (2, 3):
        raise RuntimeError(f"causal_conv1d_update: expected x (N, C) or (N, C, T), got {tuple(x.shape)}")
    if x.dim() == 2:
        return causal_conv1d_update(
            x[..., None], conv_state, weight, bias, activation, cache_seqlens, conv_state_indices
        )[..., 0]
    batch, channels, length = x.shape
    taps, size = weight.shape[-1], conv_state.shape[-1]
    if size < taps - 1:
        raise RuntimeError(f"causal_conv1d_update: conv_state must have at least {taps - 1} positions, got {size}")
    rows = batch if conv_state_indices is None else conv_state.shape[0]
    check_shape("causal_conv1d_update", "conv_state", conv_state, (rows, channels, size))
    check_shape("causal_conv1d_update", "cache_seqlens", cache_seqlens, (batch,))
    check_shape("causal_conv1d_update", "conv_state_indices", conv_state_indices, (batch,))

    old = conv_state
    if batch == 0:
        return torch.empty_like(x)
    padding = None if conv_state_indices is None else conv_state_indices < 0
    if conv_state_indices is not None:
        old = conv_state.index_select(0, conv_state_indices.clamp(min=0))
    if cache_seqlens is None:
        positions = torch.cat([old, x], 2)
        window = positions.narrow(2, size - (taps - 1), length + taps - 1)
        new = positions.narrow(2, length, size)
    else:
        if old is conv_state:
            old = conv_state.clone()  # the backward of gather keeps its input, and conv_state is written below
        window = torch.cat([old.gather(2, _slots(cache_seqlens, 1 - taps, 0, old)), x], 2)
        # Only the last S positions stay. Writing all would write some elements twice, in any order.
        kept = min(length, size)
        slots = _slots(cache_seqlens, length - kept, length, old)
        new = old.scatter(2, slots, x.narrow(2, length - kept, kept).to(old.dtype))
    out = _in_common_dtype(_convolve_window, window, weight, bias, None, name).to(x.dtype)
    if conv_state_indices is None or padding is None:
        conv_state.copy_(new)
        return out
    write_rows(conv_state, conv_state_indices, torch.where(padding[:, None, None], old, new))
    return out.masked_fill(padding[:, None, None], 0)


def causal_conv1d_varlen_states(x: Tensor, cu_seqlens: Tensor, state_len: int) -> Tensor:
    """The last positions of sequences that follow each other without gaps.

    Args:
        x: tensor (P, C) of any dtype, the positions of all sequences.
        cu_seqlens: integer tensor (B + 1) that begins with 0 and never falls. Sequence b has the positions from ``cu_seqlens[b]``
            to ``cu_seqlens[b + 1]``, the latter excluded.
        state_len: number of positions in a state, S.

    Returns:
        Tensor (B, C, S) of ``x``'s dtype, the channels innermost in memory. A sequence of fewer than S positions has zeros on the
        left, so an empty sequence has a state of zeros.

    Raises:
        RuntimeError: ``x`` or ``cu_seqlens`` has another number of dimensions.
        IndexError: ``cu_seqlens`` ends beyond P, on the CPU.
    """
    if x.dim() != 2 or cu_seqlens.dim() != 1:
        raise RuntimeError(
            "causal_conv1d_varlen_states: expected x (P, C) and cu_seqlens (B + 1), got"
            f" {tuple(x.shape)} and {tuple(cu_seqlens.shape)}"
        )
    ends = cu_seqlens[1:, None]
    if x.shape[0] == 0:  # no position can be read
        return x.new_zeros(ends.shape[0], state_len, x.shape[1]).mT
    positions = ends + torch.arange(-state_len, 0, device=ends.device)
    is_other = positions < cu_seqlens[:-1, None]
    states = x.index_select(0, positions.clamp(min=0).flatten()).unflatten(0, positions.shape)
    return states.masked_fill_(is_other[..., None], 0).mT


# ---------------------------------------------------------------- operands


def _activation_name(activation: str | None) -> Activation | None:
    if activation is None:
        return None
    if activation not in ("silu", "swish"):
        raise NotImplementedError(f"activation must be None, silu, or swish, got {activation!r}")
    return "silu"


def check_shape(function: str, argument: str, tensor: Tensor | None, expected: tuple[int, ...]) -> None:
    if tensor is not None and tensor.shape != expected:
        raise RuntimeError(f"{function}: {argument} must have shape {tuple(expected)}, got {tuple(tensor.shape)}")


def _is_direct(x: Tensor, weight: Tensor) -> bool:
    """Whether a gpuopt operator computes these operands as they are, and returns ``x``'s dtype."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return x.dtype == torch.get_autocast_dtype(device)
    return x.dtype == weight.dtype


def _in_common_dtype(
    convolve: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor | None, *others: Any
) -> Tensor:
    """``convolve`` of these arguments in the dtype that the operands promote to. The result is rounded to ``x``'s dtype."""
    if _is_direct(x, weight):
        return convolve(x, weight, bias, None if states is None else states.to(x.dtype), *others)
    operands = (x, weight, bias, states)
    dtype = functools.reduce(torch.promote_types, (t.dtype for t in operands if t is not None))
    with torch.autocast(x.device.type, enabled=False):
        return convolve(*(None if t is None else t.to(dtype) for t in operands), *others).to(x.dtype)


# ---------------------------------------------------------------- convolutions


def _convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor | None, activation: Activation | None
) -> Tensor:
    out = causal_conv1d(x, weight, bias, activation)
    if states is not None and states.shape[2] > 0:
        head = min(states.shape[2], x.shape[2])
        window = torch.cat([states, x.narrow(2, 0, head)], 2)
        out.narrow(2, 0, head).copy_(_convolve_window(window, weight, bias, None, activation))
    return out


def _convolve_window(
    window: Tensor, weight: Tensor, bias: Tensor | None, states: None, activation: Activation | None
) -> Tensor:
    """The outputs (N, C, L) of a window (N, C, K - 1 + L)."""
    return conv1d_act(window, weight[:, None], bias, groups=weight.shape[0], activation=activation)


def _convolve_sequences(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    states: Tensor | None,
    activation: Activation | None,
    seq_idx: Tensor,
) -> Tensor:
    channels, taps = weight.shape
    line = _with_states(x, states, taps)
    same_sequence = _sequences_with_states(seq_idx, taps).unfold(1, taps, 1) == seq_idx[..., None]  # (N, L, K)
    # The copies (N, C, L * K), with the channels innermost in memory if they are in x.
    if line.stride(1) == 1:
        copies = torch.where(same_sequence[..., None], line.mT.unfold(1, taps, 1).mT, 0).flatten(1, 2).mT
    else:
        copies = torch.where(same_sequence[:, None], line.unfold(2, taps, 1), 0).flatten(2)
    out = conv1d_act(copies, weight[:, None], bias, taps, groups=channels, activation=activation)
    return out.masked_fill_((seq_idx < 0)[:, None], 0)


def _with_states(x: Tensor, states: Tensor | None, taps: int) -> Tensor:
    """``x`` with K - 1 positions on its left. The channels stay innermost in memory if they are in ``x``."""
    if x.stride(1) != 1:
        return pad(x, (taps - 1, 0)) if states is None else torch.cat([states, x], 2)
    return (pad(x.mT, (0, 0, taps - 1, 0)) if states is None else torch.cat([states.mT, x.mT], 1)).mT


def _sequences_with_states(seq_idx: Tensor, taps: int) -> Tensor:
    return torch.cat([seq_idx[:, :1].expand(-1, taps - 1), seq_idx], 1)


# ---------------------------------------------------------------- states


def _final_states(x: Tensor, states: Tensor | None, seq_idx: Tensor | None, taps: int) -> Tensor:
    """The last K - 1 positions (N, C, K - 1), in ``x``'s dtype. May be a view of ``x``."""
    length, size = x.shape[2], taps - 1
    if seq_idx is None or size == 0:
        if length >= size:
            return x.narrow(2, length - size, size)
        return _with_states(x, states, taps).narrow(2, length, size).to(x.dtype)
    # Without a position that is not padding, `end` is 0, and the initial states are the final ones.
    numbers = torch.arange(1, length + 1, device=x.device)
    end = torch.where(seq_idx >= 0, numbers, 0).amax(1, keepdim=True)
    taken = end + torch.arange(size, device=x.device)  # (N, K - 1), indices of _with_states(x, states, taps)
    sequences = _sequences_with_states(seq_idx, taps)
    same_sequence = sequences.gather(1, taken) == sequences.gather(1, end + size - 1)
    final = _with_states(x, states, taps).gather(2, taken[:, None].expand(-1, x.shape[1], -1))
    return torch.where(same_sequence[:, None], final, 0).to(x.dtype)


def _slots(cache_seqlens: Tensor, first: int, end: int, state: Tensor) -> Tensor:
    """Indices (N, C, end - first) of positions ``cache_seqlens + first`` and so on in a circular buffer (N, C, S)."""
    positions = cache_seqlens[:, None].long() + torch.arange(first, end, device=state.device)
    return positions.remainder(state.shape[2])[:, None].expand(-1, state.shape[1], -1)


def write_rows(state: Tensor, indices: Tensor, values: Tensor) -> None:
    """Writes ``values[i]`` to ``state[indices[i]]``, except where the index is negative.

    The host does not know which indices are negative, so every row is written. A row of padding repeats the first row that is not
    padding. If all are padding, row 0 of the state gets its old value, which ``values`` must have there. One of the repeated rows
    has a gradient.
    """
    is_used = indices >= 0
    numbers = torch.arange(len(indices), device=indices.device)
    first = is_used.int().argmax()
    source = torch.where(is_used, numbers, first)
    written = values[source].to(state.dtype)
    if written.requires_grad:
        has_gradient = is_used | (numbers == first)
        written = torch.where(has_gradient[:, None, None], written, written.detach())
    state.index_copy_(0, indices[source].clamp(min=0).long(), written)
