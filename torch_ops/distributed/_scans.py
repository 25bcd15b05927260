"""Scans along a dimension that is sharded: each rank passes a state on to the ranks after it.

Every rank first finds what its shard does to a state, and all ranks exchange that: two numbers for each row, whatever the length. A
second scan then starts from the right state.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from torch_ops._arguments import checks_types
from torch_ops._deprecated import takes_old_calls
from torch_ops.distributed._exchange import Line, gathered, once
from torch_ops.distributed._parts import Parts, axis_names

_ops = torch.ops.gpuopt
_HALF = (torch.float16, torch.bfloat16)


def _dim_of(op: str, dim: int, tensor: Tensor) -> int:
    """`dim`, counted from the front."""
    n = tensor.dim()
    if not -n <= dim < n:
        raise IndexError(f"{op}: dim must be a dimension: expected a value from {-n} to {n - 1}, got {dim}")
    return dim % n


def _before(line: Line, reverse: bool) -> slice:
    """The ranks that come before this one in the order of a scan."""
    return slice(line.rank + 1, None) if reverse else slice(0, line.rank)


def _state(decay: Tensor, last: Tensor, initial: Tensor | None, ranks: list[int]) -> Tensor:
    """What passes the shards of these ranks: ``decay[r] * state + last[r]`` for each rank r in turn."""
    state = decay[:0].sum(0) if initial is None else initial + decay[:0].sum(0)
    for r in ranks:
        state = decay[r] * state + last[r]
    return state


def _order(line: Line, reverse: bool) -> list[int]:
    return list(range(line.ranks))[:: -1 if reverse else 1]


# ---------------------------------------------------------------- sums


@checks_types
def cumsum(
    input: DTensor, dim: int, *, dtype: torch.dtype | None = None, reverse: bool = False, exclusive: bool = False
) -> DTensor:
    """:func:`torch_ops.cumsum` of a sharded tensor, along any dimension.

    If ``dim`` is sharded, each rank adds the sum of the ranks before it to the cumulative sum of its shard. One number for each row is
    exchanged.

    Args:
        input: DTensor of shards or replicas. ``dim`` may be sharded over one dimension of the mesh.
        dim: as in :func:`torch_ops.cumsum`, and so are ``dtype``, ``reverse`` and ``exclusive``.

    Returns:
        DTensor with the shape and placements of ``input``. Differentiable once. float16 and bfloat16 are summed in
        float32 and rounded once.

    Raises:
        TypeError: ``input`` is no DTensor.
        IndexError: no such ``dim``.
        NotImplementedError: as :func:`torch_ops.cumsum`.
    """
    dim = _dim_of("cumsum", dim, input)
    axes = axis_names(input.dim(), {dim: "L"})
    parts = Parts("cumsum", input, axes)
    line = parts.line("L")
    x = parts.local("input", input, axes)
    if line is None:
        out = _ops.cumsum.default(x, dim, dtype=dtype, reverse=reverse, exclusive=exclusive)
        return parts.whole(out, axes, input.shape)
    result = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
    compute = torch.float32 if result in _HALF else result
    totals = gathered(_ops.reduce_sum.default(x, [dim], True, dtype=compute), line)
    before = totals[_before(line, reverse)].sum(0)
    out = _ops.cumsum.default(x, dim, dtype=compute, reverse=reverse, exclusive=exclusive) + before
    return parts.whole(out.to(result), axes, input.shape)


# ---------------------------------------------------------------- recurrences


@takes_old_calls("a b dim initial reverse")
@checks_types
def linear_recurrence(
    a: DTensor,
    b: DTensor,
    dim: int,
    initial: Tensor | None = None,
    *,
    reverse: bool = False,
    shifted: bool = False,
) -> DTensor:
    """:func:`torch_ops.linear_recurrence` of sharded tensors, along any dimension.

    If ``dim`` is sharded, each rank scans its shard twice. The first scan finds its last state and the product of its factors, which
    all ranks exchange: two numbers for each row. The second one starts from the state that comes from the ranks before.

    Args:
        a: factors, a DTensor with the shape and placements of ``b``.
        b: terms, a DTensor of shards or replicas. ``dim`` may be sharded over one dimension of the mesh.
        dim: as in :func:`torch_ops.linear_recurrence`.
        initial: what comes before the first position: the shape of ``b`` without ``dim``, sharded as ``b`` in its other dimensions.
        reverse: as in :func:`torch_ops.linear_recurrence`, and so is ``shifted``.

    Returns:
        DTensor with the shape and placements of ``b``. Differentiable once. In float16 and bfloat16 the states that
        ranks exchange are float32.

    Raises:
        TypeError: an argument is no DTensor.
        RuntimeError: shapes differ.
        ValueError: placements differ.
        IndexError: no such ``dim``.
    """
    dim = _dim_of("linear_recurrence", dim, b)
    if a.shape != b.shape:
        raise RuntimeError(
            f"linear_recurrence: a must have the shape of b: expected {list(b.shape)}, got {list(a.shape)}"
        )
    axes = axis_names(b.dim(), {dim: "L"})
    parts = Parts("linear_recurrence", b, axes)
    line = parts.line("L")
    factors, terms = parts.local("a", a, axes), parts.local("b", b, axes)
    start = None if initial is None else parts.local("initial", initial, axes.replace("L", ""))
    if line is not None:
        compute = torch.promote_types(factors.dtype, terms.dtype)
        compute = torch.float32 if compute in _HALF else compute
        ends = _ops.linear_recurrence.default(factors, terms.to(compute), dim, None, reverse, shifted=shifted)
        if shifted:
            ends = ends * factors  # what each position passes on
        at = slice(0, 1) if reverse else slice(-1, None)
        last = ends.movedim(dim, 0)[at].sum(0)  # 0 on a rank without positions
        decays, lasts = gathered(torch.stack([factors.to(compute).prod(dim), last]), line).unbind(1)
        given = None if start is None else start.to(compute)
        order = _order(line, reverse)
        start = _state(decays, lasts, given, order[: order.index(line.rank)])
    out = _ops.linear_recurrence.default(factors, terms, dim, start, reverse, shifted=shifted)
    return parts.whole(out.to(torch.promote_types(a.dtype, b.dtype)), axes, b.shape)


# ---------------------------------------------------------------- selective scans

# A step so small that exp(step * A) is 1, and a power of two, so that dividing and multiplying by it is exact.
_STEP = 2.0**-60


def _from_state(state: Tensor, dt: Tensor, A: Tensor, C: Tensor, z: Tensor | None) -> Tensor:
    """What a state before the first position adds to each output of a selective scan.

    The scan starts with a position for each of the n states, which sets it: with dt = step, u = state / step, and B = 1 for this state
    alone. At all other positions u is 0.
    """
    batch, n, length = state.shape[0], state.shape[-1], dt.shape[-1]

    def behind(first: Tensor | None, then: Tensor) -> Tensor:
        zeros = then.new_zeros((*then.shape[:-1], n)) if first is None else first
        return torch.cat([zeros, then], -1)

    u = torch.nn.functional.pad(state / _STEP, (0, length))
    B = torch.nn.functional.pad(torch.eye(n, dtype=state.dtype, device=state.device), (0, length))
    steps = behind(torch.full_like(state, _STEP), dt)
    from_first = C if C.dim() == 2 else behind(None, C)
    gate = None if z is None else behind(None, z)
    out, _ = _ops.selective_scan.default(
        u, steps, A, B.expand(batch, n, n + length), from_first, None, gate, None, False
    )
    return out[..., n:]


@takes_old_calls("u delta A B C D z delta_bias delta_softplus return_last_state")
@checks_types
def selective_scan(
    u: DTensor,
    delta: DTensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: DTensor | None = None,
    delta_bias: Tensor | None = None,
    *,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> DTensor | tuple[DTensor, DTensor]:
    """:func:`torch_ops.selective_scan` of sharded sequences: sequence parallelism of Mamba.

    If the length is sharded, each rank scans its shard twice: once from a state of 0, and once to find what the state that comes from
    the ranks before adds to its outputs. Between the scans all ranks exchange 2 n numbers for each channel: the last states, and how
    much of a state passes the shard.

    Args:
        u: DTensor (batch, dim, length). Any dimension may be sharded, the length over one dimension of the mesh.
        delta: DTensor with the placements of ``u``, and so is ``z``.
        A: (dim, n). All other tensors are DTensors that are sharded where ``u`` is, or plain tensors that are the same on all ranks.
        B: (batch, groups, n, length), (batch, n, length) or (dim, n), and so is ``C``. If channels are sharded, every rank has whole
            groups, or there is one.
        D: (dim,), and so is ``delta_bias``.
        delta_softplus: as in :func:`torch_ops.selective_scan`, and so is ``return_last_state``.

    Returns:
        DTensor with the placements of ``u``, or a pair of it and the last states (batch, dim, n). Differentiable once. An output in float16
        or bfloat16 is the sum of two that are rounded.

    Raises:
        TypeError: ``u`` is no DTensor.
        ValueError: placements do not match as above.
        RuntimeError: as :func:`torch_ops.selective_scan`.
    """
    parts = Parts("selective_scan", u, "bdL")

    def coefficient(name: str, tensor: Tensor) -> Tensor:
        if tensor.dim() == 4:
            groups = tensor.shape[1]
            if groups > 1 and groups % parts.ranks("d"):
                raise ValueError(f"selective_scan: every rank must have whole groups of {name}, got {groups} groups")
            return parts.local(name, tensor, "bdnL" if groups > 1 else "bgnL")
        return parts.local(name, tensor, "bnL" if tensor.dim() == 3 else "dn")

    local_u, local_delta = parts.local("u", u, "bdL"), parts.local("delta", delta, "bdL")
    decay = parts.local("A", A, "dn")
    to_state, from_state = coefficient("B", B), coefficient("C", C)
    skip = None if D is None else parts.local("D", D, "d")
    gate = None if z is None else parts.local("z", z, "bdL")
    bias = None if delta_bias is None else parts.local("delta_bias", delta_bias, "d")
    out, last = _ops.selective_scan.default(
        local_u, local_delta, decay, to_state, from_state, skip, gate, bias, delta_softplus
    )
    line = parts.line("L")
    if line is not None:
        dt = local_delta.to(last.dtype)
        if bias is not None:
            dt = dt + bias.to(last.dtype)[:, None]
        if delta_softplus:
            dt = torch.nn.functional.softplus(dt)
        decay = decay.to(last.dtype)
        passed = torch.exp(_ops.reduce_sum.default(dt, [2], True) * decay)
        decays, lasts = gathered(torch.stack([passed, last]), line).unbind(1)
        order = _order(line, False)
        before = _state(decays, lasts, None, order[: line.rank])
        out = out + _from_state(before, dt, decay, from_state.to(last.dtype), gate).to(out.dtype)
        last = once(_state(decays, lasts, None, order), line)
    result = parts.whole(out, "bdL", u.shape)
    if not return_last_state:
        return result
    return result, parts.whole(last, "bdn", (*u.shape[:2], A.shape[1]))
