"""Cases of selective scans as Mamba has them: with gate, skip and softplus, forward and backward, rows and channels-last.

The peer is mamba_ssm, where its extension is installed. PyTorch has no such operator, and a loop in its operators is too slow to time.
mamba_ssm reads rows, so it copies channels-last operands first, as its own function does.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import torch
from torch.nn import functional

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import Missing, Peer
from benchmarks.harness.room import Call, CallTime, Case, Room
from benchmarks.references.recurrence import doubled

CHUNK = 1 << 24  # states of all positions that a reference computes at once

# ---------------------------------------------------------------- operands


@dataclasses.dataclass(frozen=True)
class Scan:
    """The sizes and the layout of a layer: rows, or channels innermost (CL)."""

    batch: int
    dim: int
    length: int
    n: int = 16
    last: bool = False

    @property
    def name(self) -> str:
        return f"{'CL ' * self.last}({self.batch},{self.dim},{self.length}) n {self.n}"

    def build(self, dtype: torch.dtype, backward: bool, device: str, seed: int) -> tuple:
        """The gradient of the output in backward, then u, delta, A, B, C, D, z and delta_bias as Mamba initialises them: decays of
        1 to n, and step sizes between 0.001 and 0.1."""
        make = Maker(device, dtype, seed)
        weights = dtype if dtype == torch.float64 else F32

        def sequence() -> torch.Tensor:
            return make(self.batch, self.length, self.dim).mT if self.last else make(self.batch, self.dim, self.length)

        def matrix() -> torch.Tensor:
            if self.last:
                return make(self.batch, self.length, self.n).mT[:, None]
            return make(self.batch, 1, self.n, self.length)

        A = -torch.arange(1, self.n + 1, device=device, dtype=weights).expand(self.dim, self.n).contiguous()
        bias = make(self.dim, dtype=weights) - 4.5
        operands = (sequence(), sequence(), A, matrix(), matrix(), make(self.dim, dtype=weights), sequence(), bias)
        return (sequence(), *operands) if backward else operands

    def case(self, dtype: torch.dtype, backward: bool, **options) -> Case:
        op = "selective_scan_backward" if backward else "selective_scan"
        build = functools.partial(self.build, dtype, backward)
        return Case(op, op, self.name, DTYPE_NAMES[dtype], build, **options)


# ---------------------------------------------------------------- references: doubling in float64, some channels at a time


def _chunks(u: torch.Tensor, n: int) -> Iterator[slice]:
    """Meta tensors take no memory, so they are one chunk."""
    most = u.shape[1] if u.is_meta else max(1, CHUNK // max(1, u.shape[0] * u.shape[2] * n))
    return (slice(first, first + most) for first in range(0, u.shape[1], most))


@dataclasses.dataclass
class States:
    """The values of some channels: factors, inputs and states of all positions, (batch, dim, n, length)."""

    u: torch.Tensor
    raw: torch.Tensor
    dt: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    D: torch.Tensor
    z: torch.Tensor

    @staticmethod
    def of(at: slice, u, delta, A, B, C, D, z, bias) -> "States":
        u, delta, z = (x[:, at].double() for x in (u, delta, z))
        A, D, bias = (x[at].double() for x in (A, D, bias))
        raw = delta + bias[:, None]
        return States(u, raw, functional.softplus(raw), A, B.double(), C.double(), D[:, None], z)

    def factors(self) -> torch.Tensor:
        return torch.exp(self.dt[:, :, None] * self.A[:, :, None])

    def states(self, factors: torch.Tensor) -> torch.Tensor:
        return doubled(factors, (self.dt * self.u)[:, :, None] * self.B, 3, None, False, False)

    def before_gate(self, states: torch.Tensor) -> torch.Tensor:
        return (self.C * states).sum(2) + self.D * self.u


def reference(*operands) -> torch.Tensor:
    found = []
    for at in _chunks(operands[0], operands[2].shape[1]):
        x = States.of(at, *operands)
        found.append(x.before_gate(x.states(x.factors())) * functional.silu(x.z))
    return torch.cat(found, 1)


def _chunk_gradients(at: slice, dout: torch.Tensor, operands: tuple) -> tuple:
    """The gradients of u, delta, A, D, z and delta_bias of some channels, and their part of the gradients of B and C."""
    x, dout = States.of(at, *operands), dout[:, at].double()
    a = x.factors()
    h = x.states(a)
    gate = torch.sigmoid(x.z)
    dz = dout * x.before_gate(h) * gate * (1 + x.z * (1 - gate))
    dy = dout * x.z * gate
    g = doubled(a, x.C * dy[:, :, None], 3, None, True, True)
    dB, dC = g * (x.dt * x.u)[:, :, None], h * dy[:, :, None]
    of_term = (g * x.B).sum(2)
    of_exponent = g[..., 1:] * a[..., 1:] * h[..., :-1]
    of_exponent = torch.cat([torch.zeros_like(g[..., :1]), of_exponent], 3)
    dA = (of_exponent * x.dt[:, :, None]).sum((0, 3))
    ddelta = ((of_exponent * x.A[:, :, None]).sum(2) + x.u * of_term) * torch.sigmoid(x.raw)
    du = x.dt * of_term + x.D * dy
    by_channel = (du, ddelta, dA, (dy * x.u).sum((0, 2)), dz, ddelta.sum((0, 2)))
    return by_channel, dB.sum(1, keepdim=True), dC.sum(1, keepdim=True)


def backward_reference(dout: torch.Tensor, *operands) -> tuple:
    """In the order of the operands."""
    parts = [_chunk_gradients(at, dout, operands) for at in _chunks(dout, operands[2].shape[1])]
    of_channels = [[by_channel[k] for by_channel, _, _ in parts] for k in range(6)]
    du, ddelta, dA, dD, dz, dbias = (torch.cat(x, dim) for x, dim in zip(of_channels, (1, 1, 0, 0, 1, 0)))
    dB, dC = (functools.reduce(torch.add, [part[k] for part in parts]) for k in (1, 2))
    return du, ddelta, dA, dB, dC, dD, dz, dbias


def rounded(*operands) -> torch.Tensor:
    """The reference with the dtype and the strides of u."""
    return torch.empty_like(operands[0]).copy_(reference(*operands))


def backward_rounded(dout: torch.Tensor, *operands) -> tuple:
    """The gradients with the dtypes of the operands. The gradients of u, delta and z have the strides of u."""
    gradients = zip(operands, backward_reference(dout, *operands))
    likes = [(operands[0].to(x.dtype) if x.dim() == 3 else x.new_empty(x.shape), gradient) for x, gradient in gradients]
    return tuple(torch.empty_like(like).copy_(gradient) for like, gradient in likes)


def limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """64 ulp of sums over positions and states, or 2 ulp of half types."""
    return (64 if dtype.itemsize > 2 else 2) * torch.finfo(dtype).eps


def _calls() -> dict[str, Call]:
    import torch_ops

    def ours(*operands):
        return torch_ops.selective_scan(*operands, delta_softplus=True)

    def our_backward(dout, *operands):
        return torch.ops.gpuopt._selective_scan_backward(dout, None, *operands, True)

    shared = {"limit": limit, "has_aten": False}
    return {
        "selective_scan": Call(ours, rounded, reference, **shared),
        "selective_scan_backward": Call(our_backward, backward_rounded, backward_reference, **shared),
    }


# ---------------------------------------------------------------- mamba_ssm


def _rows(*operands: torch.Tensor) -> list[torch.Tensor]:
    return [x if x.stride(-1) == 1 else x.contiguous() for x in operands]


def _mamba(call, case, setting):
    """Its extension, called as its own autograd function does. Backward gets the results that the forward pass keeps for it, which are
    not timed."""
    if case.dtype == DTYPE_NAMES[torch.float64]:
        raise Missing("mamba_ssm has no float64")
    try:
        import selective_scan_cuda
    except ImportError:
        raise Missing("mamba_ssm is not installed") from None
    operands = case.build(setting.device, 0)
    copies = "copies operands to rows" if operands[0].stride(-1) != 1 else ""

    def forward(*operands):
        return selective_scan_cuda.fwd(*_rows(*operands), True)

    if case.call == "selective_scan":
        return lambda *operands: forward(*operands)[2], copies
    out, kept, _ = forward(*operands[1:])

    def backward(*operands):
        dout, *rest = _rows(*operands)
        found = selective_scan_cuda.bwd(*rest, dout, kept, out, None, True, False)
        du, ddelta, dA, dB, dC, dD, dbias, dz = found
        return du, ddelta, dA, dB, dC, dD, dz, dbias

    return backward, copies


MAMBA = Peer("mamba_ssm", _mamba)

# ---------------------------------------------------------------- cases


def _headline() -> list[Case]:
    """Layers of Mamba models of 130M to 2.8B parameters, and of long sequences."""
    sizes = ((8, 1536, 2048), (8, 5120, 2048), (2, 1536, 2048), (1, 5120, 8192), (1, 2048, 65536), (64, 1536, 128))
    choices = itertools.product(sizes, (F32, BF16), (False, True), (False, True))
    return [Scan(*size, last=last).case(dtype, backward, headline=True) for size, dtype, last, backward in choices]


def _states() -> list[Case]:
    sizes = itertools.product((8, 32, 64, 128), (BF16, F16), (False, True), (False, True))
    return [Scan(4, 1536, 2048, n, last).case(dtype, backward) for n, dtype, last, backward in sizes]


def _call_times() -> list[CallTime]:
    def small(requires_grad: bool):
        def variables(device: str) -> dict:
            import torch_ops

            u, *rest = Scan(1, 64, 16).build(F32, False, device, 0)
            u.requires_grad_(requires_grad)
            return {"torch": torch, "torch_ops": torch_ops, "u": u, "rest": rest, "g": torch.ones_like(u)}

        return variables

    call = "torch_ops.selective_scan(u, *rest, delta_softplus=True)"
    return [
        CallTime("selective_scan", "no grad", {"gpuopt": call}, small(False)),
        CallTime("selective_scan", "building a graph", {"gpuopt": call}, small(True)),
        CallTime("selective_scan", "forward + backward", {"gpuopt": f"torch.autograd.grad({call}, u, g)"}, small(True)),
    ]


# ---------------------------------------------------------------- random problems


def draw_scan(draw, backward: bool) -> tuple[Scan, torch.dtype]:
    """A layer of 256 to 8192 channels and 16 to 16384 positions, of at most 256 sequences where it can be."""
    dtype = draw.dtype()
    values = draw.values(dtype, 7 if backward else 4)
    dim = draw.size(max(1, min(256, values // 16)), max(1, min(8192, values // 16)))
    shortest = min(16384, max(16, math.ceil(values / dim / 256)))
    length = draw.size(shortest, max(shortest, min(16384, values // dim)))
    n = draw.choice((16, 16, 16, 16, 8, 64, 128))
    return Scan(max(1, values // (dim * length)), dim, length, n, last=draw.random() < 0.5), dtype


ROOM = Room(
    name="selective_scan",
    cases=_headline() + _states(),
    calls=_calls,
    call_times=_call_times(),
    peers=(MAMBA,),
)
