"""Cases of selective_scan and selective_scan_update: references, error bounds and errors. Samples are in selective_scan_samples.py.

PyTorch has no such operators. The references are the definitions in PyTorch's operators. States are computed by doubling, which
has nothing in common with the loop over positions that the library has for CPU tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

import torch_ops

from . import ErrorCase, OpCase, workspace_of
from .recurrence import doubled
from .samples import selective_scan_samples as calls
from .tensors import FLOATS, Maker, without_autocast

OPS = torch.ops.gpuopt

# ---------------------------------------------------------------- references


def _softplus(x: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(x)), and x itself above 20, as PyTorch's."""
    return torch.where(x > 20, x, torch.log1p(torch.exp(torch.clamp(x, max=20.0))))


def _step_sizes(delta, bias, softplus: bool) -> torch.Tensor:
    raw = delta if bias is None else delta + bias
    return _softplus(raw) if softplus else raw


def _spread(matrix: torch.Tensor, dim: int, length: int) -> torch.Tensor:
    """B or C for each channel, with shape (batch or 1, dim, n, length or 1)."""
    if matrix.dim() == 2:
        return matrix[None, :, :, None]
    groups = matrix[:, None] if matrix.dim() == 3 else matrix
    return groups.repeat_interleave(dim // groups.shape[1], 1)


def scanned(u, delta, A, B, C, D, z, bias, softplus: bool) -> torch.Tensor:
    """The output and the last state, (batch, dim, length + n), in the arguments' dtype."""
    length = u.shape[2]
    B, C = (_spread(x, u.shape[1], length) for x in (B, C))
    dt = _step_sizes(delta, None if bias is None else bias[:, None], softplus)
    a = torch.exp(dt[:, :, None] * A[:, :, None])
    h = doubled(a, a * 0 + (dt * u)[:, :, None] * B, 3, None, False, False)
    out = (C * h).sum(2)
    out = out if D is None else out + D[:, None] * u
    out = out if z is None else out * (z * torch.sigmoid(z))
    last = h[..., -1] if length else (a * 0).sum(-1)
    return torch.cat([out, last], -1)


def _updated(state, x, dt, A, B, C, D, z, bias, softplus: bool) -> torch.Tensor:
    """The output and the new state, (batch, dim, 1 + n) or (batch, heads, dim, 1 + n), in the arguments' dtype."""
    heads = state.shape[1] if state.dim() == 4 else 1
    B, C = (m if m.dim() == 3 else m[:, None] for m in (B, C))
    B, C = (m.repeat_interleave(heads // m.shape[1], 1)[:, :, None] for m in (B, C))
    B, C = (m if state.dim() == 4 else m[:, 0] for m in (B, C))
    dt = _step_sizes(dt, bias, softplus)
    h = torch.exp(dt[..., None] * A) * state + (dt * x)[..., None] * B
    out = (h * C).sum(-1)
    out = out if D is None else out + D * x
    out = out if z is None else out * (z * torch.sigmoid(z))
    return torch.cat([out[..., None], h], -1)


def _in(dtype: torch.dtype, tensors) -> list:
    return [None if x is None else x.to(dtype) for x in tensors]


def reference(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False) -> torch.Tensor:
    return scanned(*_in(torch.float64, (u, delta, A, B, C, D, z, delta_bias)), delta_softplus)


def update_reference(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False) -> torch.Tensor:
    return _updated(*_in(torch.float64, (state, x, dt, A, B, C, D, z, dt_bias)), dt_softplus)


# ---------------------------------------------------------------- error bounds


def _sizes(tensors) -> list:
    return [None if x is None else x.abs().nan_to_num() for x in _in(torch.float64, tensors)]


def _sized(delta, bias, softplus: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Step sizes, and what the errors of their rounding are relative to. Softplus changes by at most 1.5 times its value."""
    size = delta.abs().nan_to_num() if bias is None else delta.abs().nan_to_num() + bias.abs()
    dt = _step_sizes(delta, bias, softplus).nan_to_num()
    return dt, dt.abs() * (1 + 1.5 * size) if softplus else size


def _bounded(dtype: torch.dtype, size, steps, exponents) -> torch.Tensor:
    """`steps` roundings, and the errors of exponents: a relative error e of x becomes |x| e in exp(x)."""
    info = torch.finfo(torch.float32 if dtype.itemsize < 4 else dtype)
    return info.eps * (2 * (steps + 16) + 3 * exponents) * size + info.smallest_normal


def bound(device, result_dtype, reference, u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False):
    """The scan of absolute values, times the roundings on the way from an input to a result: a few for each position and state."""
    (length, n), batch = (u.shape[2], A.shape[1]), u.shape[0]
    us, Bs, Cs, Ds, zs = _sizes((u, B, C, D, z))
    delta, A, bias = _in(torch.float64, (delta, A, delta_bias))
    dt, size = _sized(delta, None if bias is None else bias[:, None], delta_softplus)
    Bs, Cs = (_spread(x, u.shape[1], length) for x in (Bs, Cs))
    a = torch.exp(dt[:, :, None] * A[:, :, None])
    h = doubled(a, a * 0 + (size * us)[:, :, None] * Bs, 3, None, False, False)
    out = (Cs * h).sum(2)
    out = out if Ds is None else out + Ds[:, None] * us
    out = out if zs is None else out * zs
    last = h[..., -1] if length else out.new_zeros(batch, u.shape[1], n)
    exponents = (size.sum(-1, keepdim=True) * A.abs().amax(1)[:, None]) if u.numel() else size.sum(-1, keepdim=True)
    return _bounded(result_dtype, torch.cat([out, last], -1), length + n, exponents)


def update_bound(
    device, result_dtype, reference, state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False
):
    states, xs, Bs, Cs, Ds, zs = _sizes((state, x, B, C, D, z))
    dt, A, bias = _in(torch.float64, (dt, A, dt_bias))
    dt, size = _sized(dt, bias, dt_softplus)
    heads = state.shape[1] if state.dim() == 4 else 1
    Bs, Cs = (m if m.dim() == 3 else m[:, None] for m in (Bs, Cs))
    Bs, Cs = (m.repeat_interleave(heads // m.shape[1], 1)[:, :, None] for m in (Bs, Cs))
    Bs, Cs = (m if state.dim() == 4 else m[:, 0] for m in (Bs, Cs))
    h = torch.exp(dt[..., None] * A) * states + (size * xs)[..., None] * Bs
    out = (h * Cs).sum(-1)
    out = out if Ds is None else out + Ds * xs
    out = out if zs is None else out * zs
    exponents = (size[..., None] * A.abs()).sum(-1, keepdim=True)
    values = torch.cat([out[..., None], h], -1)
    found = _bounded(result_dtype, values, A.shape[-1], exponents)
    # The output and the state are rounded to dtypes of their own before they are put together.
    parts = [(torch.finfo(t.dtype).eps, torch.finfo(t.dtype).smallest_normal) for t in (x, state)]
    counts = torch.arange(values.shape[-1], device=values.device) == 0
    eps, tiny = (torch.where(counts, *(torch.tensor(p[k]).double().to(values.device) for p in parts)) for k in (0, 1))
    return found + eps * values + tiny


# ---------------------------------------------------------------- the operators as functions of one result


def _check(*tensors) -> None:
    """The exceptions that the library documents. A message is not compared."""
    if any(x is not None and x.dtype not in FLOATS for x in tensors):
        raise TypeError("a real floating-point dtype")
    if any(x is not None and x.device != tensors[0].device for x in tensors):
        raise RuntimeError("one device")


def _compute(*tensors) -> torch.dtype:
    is_double = any(x is not None and x.dtype == torch.float64 for x in tensors)
    return torch.float64 if is_double else torch.float32


def _fits(shape, matrices, dim: int, states: int) -> bool:
    groups = {m.shape[1] for m in matrices if m.dim() == shape}
    return 1 <= states <= 256 and len(groups) < 2 and all(g > 0 and dim % g == 0 for g in groups)


def aten(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False):
    _check(u, delta, A, B, C, D, z, delta_bias)
    if u.dim() != 3 or A.dim() != 2:
        raise RuntimeError("u (batch, dim, length) and A (dim, n)")
    (batch, dim, length), n = u.shape, A.shape[1]
    fits = delta.shape == u.shape and A.shape[0] == dim and _fits(4, (B, C), dim, n)
    for x in (B, C):
        fits &= x.shape in ((dim, n), (batch, n, length)) or x.dim() == 4 and x.shape == (batch, x.shape[1], n, length)
    fits &= all(x is None or x.shape == (dim,) for x in (D, delta_bias)) and (z is None or z.shape == u.shape)
    if not fits:
        raise RuntimeError("the documented shapes")
    with without_autocast(u):
        return scanned(*_in(_compute(u, delta, z), (u, delta, A, B, C, D, z, delta_bias)), delta_softplus).to(u.dtype)


def _scan(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False) -> torch.Tensor:
    """selective_scan as a function of one result: the output, followed by the last state in the output's dtype."""
    out, last = torch_ops.selective_scan(
        u, delta, A, B, C, D, z, delta_bias, delta_softplus=delta_softplus, return_last_state=True
    )
    with without_autocast(u):
        return torch.cat([out, last.to(out.dtype)], -1)


@torch.no_grad()
def _aten_update(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False):
    if state.dim() not in (3, 4):
        raise RuntimeError("a state of 3 or 4 dimensions")
    _check(state, x, dt, A, B, C, D, z, dt_bias)
    heads, n = (state.shape[1] if state.dim() == 4 else 1), state.shape[-1]
    fits = x.shape == dt.shape == state.shape[:-1] and A.shape == state.shape[1:] and _fits(3, (B, C), heads, n)
    for m in (B, C):
        fits &= m.shape == (len(state), n) or m.dim() == 3 and m.shape == (len(state), m.shape[1], n)
    fits = fits and (B.dim() == 2 or B.shape[1] == 1) == (C.dim() == 2 or C.shape[1] == 1)
    fits &= all(p is None or p.shape == A.shape[:-1] for p in (D, dt_bias)) and (z is None or z.shape == x.shape)
    if not fits:
        raise RuntimeError("the documented shapes")
    with without_autocast(state):
        result = _updated(*_in(_compute(state, x), (state, x, dt, A, B, C, D, z, dt_bias)), dt_softplus)
        return torch.cat([result[..., :1].to(x.dtype), result[..., 1:].to(state.dtype)], -1)


def _step(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False) -> torch.Tensor:
    """selective_scan_update as a function of one result: the output, followed by the new state."""
    given = (state, x, dt, A, B, C, D, z, dt_bias)
    state, x, dt, A, B, C, D, z, dt_bias = (t.detach() if isinstance(t, torch.Tensor) else t for t in given)
    with without_autocast(state):
        mine = state.clone()
        others = [t for t in (x, dt, A, B, C, D, z, dt_bias) if t is not None and t.device == state.device]
        if state.dim() > 2 and state.is_floating_point():
            # Append empty slices of the other operands. Under torch.vmap the copy is then batched if one of them is, so it can be
            # written.
            nothing = [t.flatten()[:0].real.to(state.dtype).expand(*state.shape[:-1], 0) for t in others]
            mine = torch.cat([state, *nothing], -1)
    out = torch_ops.selective_scan_update(mine, x, dt, A, B, C, D, z, dt_bias, dt_softplus=dt_softplus)
    with without_autocast(state):
        return torch.cat([out[..., None], mine], -1)


# ---------------------------------------------------------------- errors


def _changed(names, given, **changes) -> tuple:
    return tuple(changes.get(name, value) for name, value in zip(names, given, strict=True))


def _refusals(names, given, first: str, shapes) -> Iterator[ErrorCase]:
    """Errors of an operand's shape, dtype and device."""
    make = Maker(given[0].device.type, torch.float32)
    for name, shape in shapes:
        wrong = make(*shape)
        says = (rf"\b{name}\b", "expected", "got")
        yield ErrorCase(f"{name} {shape}", _changed(names, given, **{name: wrong}), says=says)
    for name, x in zip(names, given, strict=True):
        for kind, dtype in (("complex", torch.complex64), ("an integer", torch.int64)):
            says = (rf"\b{name}\b", "real" if dtype.is_complex else "floating-point")
            yield ErrorCase(f"{name} {kind}", _changed(names, given, **{name: x.to(dtype)}), says=says)
        if x.device.type != "cpu" and name != first:
            says = (rf"\b{name}\b", first, "cpu")
            yield ErrorCase(f"{name} on the CPU", _changed(names, given, **{name: x.cpu()}), says=says, on_meta=False)


def _errors(device) -> Iterator[ErrorCase]:
    call = calls.Call(Maker(device, torch.float32), (2, 6, 5, 3, 2), (True,) * 4)
    names = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
    given = (call.u, call.delta, call.A, call.B, call.C, call.D, call.z, call.bias)
    shapes = (("u", (6, 5)), ("delta", (2, 6, 4)), ("A", (6,)), ("A", (5, 3)), ("A", (6, 0)), ("A", (6, 257)), ("B", (6,)),
              ("B", (6, 4)), ("B", (2, 4, 5)), ("B", (2, 4, 3, 5)), ("B", (2, 0, 3, 5)), ("C", (2, 2, 3, 4)), ("C", (2, 3, 3, 5)),
              ("D", (5,)), ("D", (6, 1)), ("z", (2, 6, 4)), ("delta_bias", (5,)))  # fmt: skip
    yield from _refusals(names, given, "u", shapes)


def _update_errors(device) -> Iterator[ErrorCase]:
    call = calls.Update(Maker(device, torch.float32), (2, 4, 6, 3, 2), (True,) * 4)
    names = ("state", "x", "dt", "A", "B", "C", "D", "z", "dt_bias")
    given = (call.state, call.x, call.dt, call.A, call.B, call.C, call.D, call.z, call.bias)
    shapes = (("state", (6, 3)), ("x", (2, 4, 5)), ("dt", (2, 6)), ("A", (6, 3)), ("B", (3,)), ("B", (2, 3, 3)), ("B", (2, 2, 4)),
              ("C", (2, 4, 3)), ("D", (6,)), ("z", (2, 4, 5)), ("dt_bias", (4, 5)))  # fmt: skip
    yield from _refusals(names, given, "state", shapes)


_shared = {"dtypes": FLOATS, "elementwise": False, "as_accurate": False, "approximates": 8}
CASES = [
    # The result's two parts are put together, and operands that a kernel can't read are copied.
    OpCase(
        name="selective_scan", op=_scan, overload=OPS.selective_scan.default, aten=aten, reference=reference,
        samples=calls.samples, few=calls.few, errors=_errors, grad_dtypes=FLOATS, bound=bound, saves_inputs=True, cancels=8,
        workspace=workspace_of(4), **_shared,
    ),
    OpCase(
        name="selective_scan_update", op=_step, overload=OPS.selective_scan_update.default, aten=_aten_update,
        reference=update_reference, samples=calls.update_samples, few=calls.update_few, errors=_update_errors, grad_dtypes=(),
        bound=update_bound, writes=("state",), workspace=workspace_of(4, 0), **_shared,
    ),
]  # fmt: skip
