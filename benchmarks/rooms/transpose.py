"""Cases of transpose2d: large and small matrices, aligned and misaligned rows, batches, and inputs that only need a copy.

ATen computes ``x.mT.contiguous()``, a strided copy. Inductor compiles the same expression.
"""

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.peers import INDUCTOR
from benchmarks.harness.room import Call, CallTime, Case, Point, Room

F64, U8, C64, C128 = torch.float64, torch.uint8, torch.complex64, torch.complex128


def _case(name: str, shape: tuple, dtype: torch.dtype, make=None, op: str = "transpose2d", **options) -> Case:
    """A case of the tensor `make(maker)`, or of a contiguous tensor of the shape."""

    def build(device: str, seed: int) -> tuple:
        maker = Maker(device, dtype, seed)
        return (make(maker) if make else maker(*shape),)

    return Case(op, "transpose2d", name, DTYPE_NAMES[dtype], build, **options)


def _headline() -> list[Case]:
    shapes = {
        "8192^2": (8192, 8192),
        "8191^2": (8191, 8191),
        "(1024,32768)": (1024, 32768),
        "(2^20,64)": (1 << 20, 64),
        "(64,256,3136), NCHW to NHWC": (64, 256, 3136),
        "(256,197,768)": (256, 197, 768),
        "(512,50,1000)": (512, 50, 1000),
        "(32,150528,3), NHWC to NCHW": (32, 150528, 3),
        "(2^16,32,32)": (1 << 16, 32, 32),
    }
    cases = [_case(name, shape, dtype, headline=True) for name, shape in shapes.items() for dtype in (F32, BF16)]
    return cases + [_case("8192^2", (8192, 8192), dtype, headline=True) for dtype in (U8, F64)]


def _layouts() -> list[Case]:
    side = 8192
    layouts = {
        "8192^2 of rows 8256 apart": lambda m: m.columns(side, side, side + 64),
        "8192^2 of rows 8193 apart": lambda m: m.columns(side, side, side + 1),
        "8192^2 misaligned by one": lambda m: m.misaligned(side * side).view(side, side),
        "x.t(), 8192^2": lambda m: m(side, side).t(),
        "x[:, ::2], (8192,4096)": lambda m: m(side, side)[:, ::2],
        "(16,1024,8,64) to (16,8,64,1024)": lambda m: m(16, 1024, 8, 64).permute(0, 2, 1, 3),
    }
    cases = [_case(name, (), dtype, make) for name, make in layouts.items() for dtype in (F32, BF16)]
    for n in (4, 8, 16, 24, 40, 48, 50, 64, 72, 100):
        cases += [_case(f"({(1 << 25) // n // n},{n},{n})", ((1 << 25) // n // n, n, n), d) for d in (F32, BF16, U8)]
    for shape in (
        (32, 3, 150528),
        (1 << 20, 8),
        (8, 1 << 20),
        (1 << 20, 17),
        (1 << 20, 32),
        (32, 1 << 20),
        (1 << 20, 50),
    ):
        cases += [_case(str(shape).replace(" ", ""), shape, dtype) for dtype in (F32, BF16)]
    apart = {
        "(2^17,16,16) of rows 17 apart": lambda m: m(1 << 17, 16, 17)[..., :16],
        "(2^18,8,16)[..., ::2]": lambda m: m(1 << 18, 8, 16)[..., ::2],
    }
    cases += [_case(name, (), dtype, make) for name, make in apart.items() for dtype in (F32, BF16)]
    return cases + [_case("8192^2", (side, side), dtype) for dtype in (C64, C128)]


def _sizes() -> list[Case]:
    """A sweep over square matrices. The launch dominates the time of the smallest."""
    cases = []
    for dtype in (F32, BF16):
        for log in range(5, 15):
            for n in (1 << log, (1 << log) + 1):
                point = Point(f"{DTYPE_NAMES[dtype]}, {'n' if n == 1 << log else 'n + 1'}", "log2(n)", log)
                cases.append(_case(f"{n}^2", (n, n), dtype, op="transpose2d-size", point=point))
    return cases


def _calls() -> dict[str, Call]:
    import torch_ops

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return x.mT.contiguous()

    # If x.mT is contiguous already, contiguous() returns a view, and ATen needs a clone to copy it.
    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.mT.clone(memory_format=torch.contiguous_format)

    return {"transpose2d": Call(torch_ops.transpose2d, copied, transposed)}


def _call_times() -> list[CallTime]:
    def small(requires_grad: bool):
        def variables(device: str) -> dict:
            import torch_ops

            x = torch.randn(64, 64, device=device, requires_grad=requires_grad)
            return {"torch": torch, "torch_ops": torch_ops, "x": x, "g": torch.ones(64, 64, device=device)}

        return variables

    calls = {"gpuopt": "torch_ops.transpose2d(x)", "ATen": "x.mT.contiguous()"}
    backward = {name: f"torch.autograd.grad({call}, x, g)" for name, call in calls.items()}
    return [
        CallTime("transpose2d", "no grad", calls, small(False)),
        CallTime("transpose2d", "building a graph", calls, small(True)),
        CallTime("transpose2d", "forward + backward", backward, small(True)),
    ]


ROOM = Room(
    name="transpose",
    cases=_headline() + _layouts() + _sizes(),
    calls=_calls,
    call_times=_call_times(),
    peers=(INDUCTOR,),
)
