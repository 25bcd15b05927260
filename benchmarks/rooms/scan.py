"""Cases of cumsum: rows, columns and middle dimensions, short and long, misaligned and strided, and a sweep over lengths. Cases of
linear_recurrence, beside a recurrence by doubling in PyTorch's operators.

CUB scans vectors only, in place. Inductor's cumsum is not repeatable (pytorch#190946).
"""

import itertools

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import INDUCTOR, Missing, Peer, cupy_call, cupy_for
from benchmarks.harness.room import Call, CallTime, Case, Point, Room
from benchmarks.references import recurrence
from benchmarks.references.scan import reference

F64, I64, I32, U8, C64 = torch.float64, torch.int64, torch.int32, torch.uint8, torch.complex64


def _name(shape: tuple[int, ...], dim: int) -> str:
    if len(shape) == 1:
        return f"2^{shape[0].bit_length() - 1}" if shape[0] & shape[0] - 1 == 0 else str(shape[0])
    return f"({','.join(map(str, shape))}) dim {dim}"


def _case(shape: tuple[int, ...], dim: int, dtype: torch.dtype, make=None, name="", op="cumsum", **options) -> Case:
    """A case of the tensor `make(maker)`, or of a contiguous tensor of the shape."""

    def build(device: str, seed: int) -> tuple:
        maker = Maker(device, dtype, seed, uniform=True)
        return (make(maker) if make else maker(*shape), dim)

    return Case(op, "cumsum", name or _name(shape, dim), DTYPE_NAMES[dtype], build, **options)


def _headline() -> list[Case]:
    shapes = [((1 << power,), 0) for power in (14, 17, 20, 22, 24, 26, 28)]
    shapes += [((32768, 1024), 1), ((32768, 1024), 0), ((1024, 32768), 1), ((1024, 32768), 0), ((8192, 8192), 1)]
    shapes += [((8192, 8192), 0), ((128, 262144), 1), ((262144, 128), 0), ((1 << 20, 32), 1), ((32, 1 << 20), 0)]
    shapes += [((1 << 20, 32), 0), ((16, 4096, 1024), 1), ((64, 256, 3136), 1), ((8, 2048, 2048), 1)]
    return [_case(*shape, dtype, headline=True) for shape, dtype in itertools.product(shapes, (F32, BF16))]


def _layouts() -> list[Case]:
    side, n = 8192, 1 << 25
    layouts = {
        "x.t(), 8192^2": lambda m: m(side, side).t(),
        "x[:, ::2], (8192,4096)": lambda m: m(side, side)[:, ::2],
        "8192^2 of rows 8193 apart": lambda m: m.columns(side, side, side + 1),
    }
    cases = []
    for (name, make), dim, dtype in itertools.product(layouts.items(), (0, 1), (F32, BF16)):
        cases.append(_case((), dim, dtype, make, f"{name} dim {dim}"))
    for dtype in (F32, BF16):
        cases.append(_case((), 0, dtype, lambda m: m.misaligned(n), "misaligned 2^25"))
        for columns, dim in itertools.product((3, 7, 33, 257, 1023, 5003), (0, 1)):
            cases.append(_case((n // columns, columns), dim, dtype))
    return cases


def _dtypes() -> list[Case]:
    shapes = [((1 << 26,), 0), ((32768, 1024), 1), ((32768, 1024), 0)]
    return [_case(*shape, dtype) for shape in shapes for dtype in (F16, F64, I64, I32, U8, torch.bool, C64)]


def _lengths() -> list[Case]:
    """2^25 values in rows and columns of every power of two, beside ATen alone."""
    cases = []
    for dim, dtype, power in itertools.product((1, 0), (F32, BF16), range(26)):
        point = Point(f"dim {dim} {DTYPE_NAMES[dtype]}", "log2(rows) of 2^25 values", power)
        shape = (1 << power, 1 << 25 - power)
        cases.append(_case(shape, dim, dtype, op="cumsum-grid", peers=(), point=point))
    return cases


def _recurrences() -> list[Case]:
    shapes = [
        ((1 << 24,), 0),
        ((32768, 1024), 1),
        ((32768, 1024), 0),
        ((1024, 32768), 1),
        ((8, 2048, 2048), 1),
        ((3, 1 << 23), 1),
    ]
    cases = []
    for (shape, dim), dtype, factors in itertools.product(shapes, (F32, BF16, C64), ("full", "per row")):

        def build(device: str, seed: int, shape=shape, dim=dim, dtype=dtype, factors=factors) -> tuple:
            maker = Maker(device, dtype, seed, uniform=True)
            b = maker(*shape)
            a = maker(*(1 if d == dim and factors == "per row" else n for d, n in enumerate(shape)))
            return a / 2, b, dim  # of absolute value below 1, also if complex

        name = f"{_name(shape, dim)}, factors {factors}"
        op = "linear_recurrence"
        cases.append(Case(op, op, name, DTYPE_NAMES[dtype], build, headline=factors == "full", peers=(INDUCTOR,)))
    return cases


def sum_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of a cumulative sum: 32 ulp, or 4 times ATen's error. fp16 and bf16 add in float32 and round once."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return max(4.0 * (aten_error or 0.0), (32 if dtype.itemsize > 2 else 1) * torch.finfo(dtype).eps)


def _calls() -> dict[str, Call]:
    import torch_ops

    return {
        "cumsum": Call(torch_ops.cumsum, torch.cumsum, reference, cupy="cumsum", limit=sum_limit),
        "linear_recurrence": Call(torch_ops.linear_recurrence, recurrence.aten, recurrence.reference, limit=sum_limit),
    }


def _cub(call, case, setting):
    """CUB's device-wide scan, called through CuPy. It writes its input."""
    x, _ = case.build(setting.device, 0)
    if x.dim() != 1 or not x.is_contiguous():
        raise Missing("CUB scans vectors only")
    cupy_for(call, (x,))
    from cupy.cuda import cub

    def run(x, dim):
        cupy_call(setting.device, lambda values: cub.cub_scan(values, cub.CUPY_CUB_CUMSUM), x)
        return x

    return run, "CUB, in place"


CUB = Peer("CuPy (CUB)", _cub)


def _call_times() -> list[CallTime]:
    def small(requires_grad: bool):
        def variables(device: str) -> dict:
            import torch_ops

            x = torch.randn(128, 128, device=device, requires_grad=requires_grad)
            return {"torch": torch, "torch_ops": torch_ops, "x": x, "g": torch.ones(128, 128, device=device)}

        return variables

    calls = {"gpuopt": "torch_ops.cumsum(x, 1)", "ATen": "torch.cumsum(x, 1)"}
    backward = {name: f"torch.autograd.grad({call}, x, g)" for name, call in calls.items()}
    return [
        CallTime("cumsum", "no grad", calls, small(False)),
        CallTime("cumsum", "building a graph", calls, small(True)),
        CallTime("cumsum", "forward + backward", backward, small(True)),
    ]


ROOM = Room(
    name="scan",
    cases=_headline() + _layouts() + _dtypes() + _lengths() + _recurrences(),
    calls=_calls,
    call_times=_call_times(),
    peers=(INDUCTOR, CUB),
)
