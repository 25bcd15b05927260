"""Cases of dot, vdot, dot_rows and dot_fast_atomic.

Peers:

- ATen's dot is cuBLAS: cublasSdot and its like, and cublasDotEx for fp16 and bf16. ATen has no integer dot on the GPU. It computes
  a batch of dots (torch.vmap of dot, torch.einsum) as a batch of matrix products.
- "mul+sum" writes the products to memory, as torch.linalg.vecdot does.
- "Inductor mul+sum" fuses the two. torch.compile makes the same loop of torch.dot for real values, and calls ATen's kernel for
  complex ones. For a batch of dots it calls ATen's kernel too, unless max-autotune chooses mul+sum.

The ops "dot-small" (time of up to 2^20 values) and "dot-size" (bandwidth from 2^18) are sweeps beside ATen and dot_fast_atomic.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import INDUCTOR, Peer, cupy_call, cupy_for
from benchmarks.harness.room import Call, CallTime, Case, Point, Room
from benchmarks.rooms.reduce import sum_limit

F64, I8, I32, I64, C64 = torch.float64, torch.int8, torch.int32, torch.int64, torch.complex64
N = 1 << 25

# ---------------------------------------------------------------- operands


class Factors(Maker):
    """Makes operands that are uniform in [0, 1), so that a sum of ``size`` products is well conditioned: it is near size / 4.

    float16 would overflow from 2^18 values on, so its operands are scaled by a power of two that keeps the sum at a few thousand.
    The scaling only rounds subnormal numbers, by 2^-25 at most: torch 2.11 draws none that small, 2.15 a few.
    """

    def __init__(self, device: str, dtype: torch.dtype, seed: int, size: int):
        super().__init__(device, dtype, seed, uniform=True)
        self.scale = 2.0 ** -max(0, (size.bit_length() - 13) // 2) if dtype == F16 else 1.0

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        values = super().__call__(*shape, dtype=dtype)
        return values if self.scale == 1 else values.mul_(self.scale)


Make = Callable[[Maker], tuple[torch.Tensor, torch.Tensor]]


def _cases(op: str, name: str, size: int, make: Make, *dtypes, call: str = "", **options) -> list[Case]:
    """``make`` makes the operands. A sum is over ``size`` values."""

    def build(dtype: torch.dtype) -> Callable[[str, int], tuple]:
        return lambda device, seed: make(Factors(device, dtype, seed, size))

    return [Case(op, call or op, name, DTYPE_NAMES[dtype], build(dtype), **options) for dtype in dtypes]


def _dense(op: str, power: int, *dtypes, **options) -> list[Case]:
    n = 1 << power
    return _cases(op, f"2^{power}", n, lambda m: (m(n), m(n)), *dtypes, **options)


def _headline() -> list[Case]:
    cases = []
    for power in (10, 14, 17, 20, 22, 25, 28):
        cases += _dense("dot", power, F32, F16, BF16, headline=True, peers=PEERS)
    return cases + _dense("dot", 30, F16, BF16, headline=True, peers=PEERS)


def _layouts() -> list[Case]:
    def same(m: Maker) -> tuple[torch.Tensor, torch.Tensor]:
        x = m(N)
        return x, x

    def once(dtype: torch.dtype) -> tuple[int, int]:
        return N * dtype.itemsize, dtype.itemsize

    layouts: list[tuple[str, Make]] = [
        ("one misaligned", lambda m: (m(N), m.misaligned(N))),
        ("both misaligned", lambda m: (m.misaligned(N), m.misaligned(N))),
        ("x[::2], y", lambda m: (m(2 * N)[::2], m(N))),
        ("x[::2], y[::2]", lambda m: (m(2 * N)[::2], m(2 * N)[::2])),
        ("one column of (2^25,8), y", lambda m: (m(N, 8)[:, 0], m(N))),
        ("x, (1) expanded", lambda m: (m(N), m(1).expand(N))),
    ]
    cases = []
    for name, make in layouts:
        cases += _cases("dot", f"{name}, 2^25", N, make, F32, BF16)
    for dtype in (F32, BF16):
        cases += _cases("dot", "x, x, 2^25", N, same, dtype, moved=functools.partial(once, dtype))
    return cases


def _dtypes() -> list[Case]:
    return [
        *_dense("dot", 25, F64, C64, I8, I32, I64),
        *_cases("dot", "x.conj(), y, 2^25", N, lambda m: (m(N).conj(), m(N)), C64, call="vdot of conjugated"),
        *_cases("dot", "vdot 2^25", N, lambda m: (m(N), m(N)), C64, call="vdot"),
    ]


def _rows() -> list[Case]:
    shapes = [(1 << 20, 32), (1 << 18, 128), (33554, 1000), (32768, 1024), (1024, 32768)]
    cases = []
    for rows, n in shapes:
        make = functools.partial(lambda m, rows, n: (m(rows, n), m(rows, n)), rows=rows, n=n)
        cases += _cases("dot_rows", f"({rows},{n})", n, make, F32, BF16, headline=True, peers=ROW_PEERS)
    others: list[tuple[str, int, Make]] = [
        ("x.t(), y.t() (32768,1024)", 1024, lambda m: (m(1024, 32768).t(), m(1024, 32768).t())),
        ("(32768,1024), (1024) expanded", 1024, lambda m: (m(32768, 1024), m(1024).expand(32768, 1024))),
    ]
    for name, n, make in others:
        cases += _cases("dot_rows", name, n, make, F32, BF16, peers=ROW_PEERS)
    return cases


def _fast_atomic() -> list[Case]:
    cases = []
    for power in (14, 20, 25, 28):
        cases += _dense("dot_fast_atomic", power, F16, BF16, headline=True, peers=(OURS_DOT,))
    return cases


def _sweep(op: str, powers: range, unit: str) -> list[Case]:
    cases = []
    for dtype, power in itertools.product((F32, F16, BF16), powers):
        point = Point(DTYPE_NAMES[dtype], "log2(n)", power, unit=unit)
        cases += _dense(op, power, dtype, call="dot beside fast_atomic", peers=(OURS_FAST_ATOMIC,), point=point)
    return cases


# ---------------------------------------------------------------- calls

CHUNK = 1 << 26


def _reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum in float64 or complex128; integers wrap around. Long vectors are split: 2^30 products would need 24 GiB."""
    wide = torch.complex128 if x.is_complex() else F64 if x.is_floating_point() else I64
    parts = zip(x.split(CHUNK, -1), y.split(CHUNK, -1))
    total = sum((a.to(wide) * b.to(wide)).sum(-1) for a, b in parts)
    return total if wide != I64 else total.to(x.dtype)


def rounded_once(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of a sum that gpuopt makes in float32 for fp16 and bf16, whatever ATen's error is."""
    return torch.finfo(dtype).eps if dtype in (F16, BF16) else sum_limit(dtype, aten_error)


def rounded_often(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of dot_fast_atomic: 256 additions of similar values lose 64 ulp.

    That is the case where each of them rounds by half a unit to the same side.
    """
    return max(sum_limit(dtype, aten_error), 64 * torch.finfo(dtype).eps)


def _dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.dot(x, y)


def _rows_of_dots(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.vmap(torch.dot)(x, y)


def _calls() -> dict[str, Call]:
    import torch_ops

    def vdot_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _reference(x.conj(), y)

    dot = Call(torch_ops.dot, _dot, _reference, cupy="dot", limit=sum_limit, gpuopt_limit=rounded_once)
    return {
        "dot": dot,
        # CuPy is left out: its view of the memory would not be conjugated.
        "vdot of conjugated": dataclasses.replace(dot, cupy=None),
        "vdot": Call(torch_ops.vdot, torch.vdot, vdot_reference, limit=sum_limit),
        "dot_rows": Call(torch_ops.dot_rows, _rows_of_dots, _reference, limit=sum_limit, gpuopt_limit=rounded_once),
        "dot_fast_atomic": Call(
            torch_ops.dot_fast_atomic, _dot, _reference, limit=sum_limit, gpuopt_limit=rounded_often
        ),
        # Compared with dot_fast_atomic, so the error limit is that operator's.
        "dot beside fast_atomic": dataclasses.replace(dot, limit=rounded_often),
    }


# ---------------------------------------------------------------- peers


def _product_sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of products of each row, or of a whole vector. Integers stay in their dtype."""
    return (x * y).sum(-1, dtype=x.dtype)


def _conjugate_product_sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _product_sums(x.conj(), y)


def _expression(case: Case) -> Callable:
    return _conjugate_product_sums if case.call == "vdot" else _product_sums


def _mul_sum(call, case, setting):
    return _expression(case), ""


def _compiled_mul_sum(call, case, setting):
    return INDUCTOR.prepare(dataclasses.replace(call, aten=_expression(case)), case, setting)


def _cub(call, case, setting):
    """CuPy's dot, one kernel that multiplies and reduces with CUB's block primitives."""
    cupy = cupy_for(call, case.build(setting.device, 0))
    # As a routine accelerator, CUB would make CuPy write the products to memory and then sum them.
    cupy._core.set_routine_accelerators([])
    cupy._core.set_reduction_accelerators(["cub"])

    def run(x, y):
        return torch.as_tensor(cupy_call(setting.device, cupy.dot, x, y), device=setting.device)

    return run, "CUB"


def _ours(name: str) -> Peer:
    def prepare(call, case, setting):
        import torch_ops

        return getattr(torch_ops, name), ""

    return Peer(f"gpuopt {name}", prepare)


MUL_SUM = Peer("mul+sum", _mul_sum)
INDUCTOR_MUL_SUM = Peer("Inductor mul+sum", _compiled_mul_sum)
CUB = Peer("CuPy (CUB)", _cub)
OURS_DOT, OURS_FAST_ATOMIC = _ours("dot"), _ours("dot_fast_atomic")
PEERS = (INDUCTOR, MUL_SUM, CUB)
ROW_PEERS = (MUL_SUM, INDUCTOR_MUL_SUM)

# ---------------------------------------------------------------- call times


def _small(device: str, requires_grad: bool) -> dict:
    """Operands so small that the kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    x, y = (torch.randn(8, 1024, device=device) for _ in range(2))
    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "gpuopt": torch.ops.gpuopt,
        "x": x[0].clone().requires_grad_(requires_grad),
        "y": y[0].clone().requires_grad_(requires_grad),
        "xs": x,
        "ys": y,
        "g": torch.ones((), device=device),
    }


def _call_times() -> list[CallTime]:
    def plain(device):
        return _small(device, requires_grad=False)

    def graph(device):
        return _small(device, requires_grad=True)

    public = {"gpuopt": "torch_ops.dot(x, y)", "ATen": "torch.dot(x, y)"}
    # Without the Python function, what remains is the time of the dispatcher and the kernel's launch.
    bare = {"gpuopt, without its Python function": "gpuopt.dot.default(x, y)"}
    backward = {name: f"torch.autograd.grad({stmt}, (x, y), g)" for name, stmt in public.items()}
    rows = {"gpuopt": "torch_ops.dot_rows(xs, ys)", "ATen": "torch.vmap(torch.dot)(xs, ys)"}
    batched = {**rows, "gpuopt": "torch.vmap(torch_ops.dot)(xs, ys)"}
    return [
        CallTime("dot", "no grad", {**public, **bare}, plain),
        CallTime("dot", "building a graph", {**public, **bare}, graph),
        CallTime("dot", "forward + backward", backward, graph),
        CallTime("dot_rows", "no grad", rows, plain),
        CallTime("dot_rows", "vmap of dot", batched, plain),
        CallTime("dot_fast_atomic", "no grad", {**public, "gpuopt": "torch_ops.dot_fast_atomic(x, y)"}, plain),
    ]


ROOM = Room(
    name="dot",
    cases=_headline()
    + _layouts()
    + _dtypes()
    + _rows()
    + _fast_atomic()
    + _sweep("dot-small", range(8, 21), "us")
    + _sweep("dot-size", range(18, 29), "GB/s"),
    calls=_calls,
    call_times=_call_times(),
    peers=(INDUCTOR, MUL_SUM),
)
