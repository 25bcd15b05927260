"""Cases of mul, axpy and fma: the cases that documents quote, and sweeps over other shapes, layouts and dtypes."""

import itertools
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, NCHW, Maker
from benchmarks.harness.peers import CUPY, INDUCTOR
from benchmarks.harness.room import Call, CallTime, Case, Room
from benchmarks.references import elementwise as references

ALPHA = 0.5
BTD, SQUARE = (8, 4096, 4096), (8192, 8192)

Recipe = Callable[[Maker], tuple]


def _cases(op: str, name: str, recipe: Recipe, *dtypes, call: str = "", headline: bool = False) -> list[Case]:
    def build(dtype: torch.dtype) -> Callable[[str, int], tuple]:
        return lambda device, seed: recipe(Maker(device, dtype, seed))

    return [Case(op, call or op, name, DTYPE_NAMES[d], build(d), headline) for d in dtypes]


def _mul_headline() -> list[Case]:
    def mul(*args, call="mul"):
        return _cases("mul", *args, call=call, headline=True)

    cases = []
    for power in (14, 20, 25, 28):
        cases += mul(f"2^{power}", lambda m, n=1 << power: (m(n), m(n)), F32, F16, BF16)
    cases += mul("NCHW*C", lambda m: (m(*NCHW), m(NCHW[1], 1, 1)), F32, BF16)
    cases += mul("BTD*D", lambda m: (m(*BTD), m(BTD[-1])), F32, BF16)
    cases += mul("x*y.t() 8192^2", lambda m: (m(*SQUARE), m(*SQUARE).t()), F32, BF16)
    n = 1 << 26
    # The pair of cases shows what misalignment of every operand costs.
    cases += mul("out= 2^26", lambda m: (m(n), m(n), m.empty(n)), F32, BF16, call="mul.out")
    cases += mul(
        "misaligned out= 2^26",
        lambda m: (m.misaligned(n), m.misaligned(n), m.empty(n + 1)[1:]),
        F32,
        BF16,
        call="mul.out",
    )
    return cases


def _mul_sweep() -> list[Case]:
    def mul(*args, call="mul"):
        return _cases("mul", *args, call=call)

    n = 1 << 25
    rows = (8192, 4096, 6144)
    cases = [
        mul("misaligned 2^26", lambda m: (m.misaligned(1 << 26), m.misaligned(1 << 26)), F32, BF16),
        mul("(2^24,3)*(3)", lambda m: (m(1 << 24, 3), m(3)), F32, BF16),
        mul("(16384,4095)*(4095)", lambda m: (m(16384, 4095), m(4095)), F32, BF16),
        mul("(16384,4096)*(16384,1)", lambda m: (m(16384, 4096), m(16384, 1)), F32, BF16),
        mul("(16384,1)*(4096) outer", lambda m: (m(16384, 1), m(4096)), F32, BF16),
        mul(
            "rows of a wider matrix, out=",
            lambda m: (m.columns(*rows), m.columns(*rows), m.empty(rows[0], rows[2])[:, : rows[1]]),
            F32,
            BF16,
            call="mul.out",
        ),
        mul("x[:, ::2]*y", lambda m: (m(8192, 8192)[:, ::2], m(8192, 4096)), F32, BF16),
        mul("NHWC*NHWC", lambda m: (m.channels_last(*NCHW), m.channels_last(*NCHW)), F32, BF16),
        mul("NHWC*C", lambda m: (m.channels_last(*NCHW), m(NCHW[1], 1, 1)), F32, BF16),
        mul("NHWC*NCHW", lambda m: (m.channels_last(*NCHW), m(*NCHW)), F32, BF16),
        mul("permute(2,0,1)*y", lambda m: (m(256, 256, 512).permute(2, 0, 1), m(512, 256, 256)), F32, BF16),
        mul("x.t()*y.t() 8192^2", lambda m: (m(*SQUARE).t(), m(*SQUARE).t()), F32, BF16),
        mul("bf16*f32 2^25", lambda m: (m(n), m(n, dtype=F32)), BF16),
        mul("2.5*x 2^25", lambda m: (m(n), 2.5), F32, BF16),
        mul("in-place 2^25", lambda m: (m(n), m.signs(n)), F32, BF16, call="mul_"),
        mul("2^25", lambda m: (m(n), m(n)), torch.float64, torch.int32, torch.uint8, torch.bool, torch.complex64),
    ]
    return list(itertools.chain(*cases))


def _three_operands() -> list[Case]:
    n = 1 << 25
    channel = (NCHW[1], 1, 1)
    return [
        *_cases("axpy", "2^25", lambda m: (m(n), m(n)), F32, BF16, headline=True),
        *_cases("axpy", "C + NCHW", lambda m: (m(*channel), m(*NCHW)), F32, BF16),
        *_cases("fma", "2^25", lambda m: (m(n), m(n), m(n)), F32, BF16, headline=True),
        *_cases("fma", "NCHW*C + C", lambda m: (m(*NCHW), m(*channel), m(*channel)), F32, BF16),
    ]


def _calls() -> dict[str, Call]:
    import torch_ops

    mul, axpy, fma = references.mul, references.axpy, references.fma
    return {
        "mul": Call(torch_ops.mul, torch.mul, mul, cupy="multiply"),
        "mul_": Call(torch_ops.mul_, torch.Tensor.mul_, mul, kind="inplace", cupy="multiply"),
        "mul.out": Call(
            lambda x, y, out: torch_ops.mul(x, y, out=out),
            lambda x, y, out: torch.mul(x, y, out=out),
            lambda x, y, out: mul(x, y),
            kind="out",
            cupy="multiply",
        ),
        "axpy": Call(
            lambda x, y: torch_ops.axpy(x, y, alpha=ALPHA),
            lambda x, y: torch.add(y, x, alpha=ALPHA),
            lambda x, y: axpy(x, y, alpha=ALPHA),
        ),
        "fma": Call(torch_ops.fma, lambda a, b, c: torch.addcmul(c, a, b), fma),
    }


def _small(device: str, requires_grad: bool) -> dict:
    """2^14 floats. The kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    operands = {name: torch.randn(1 << 14, device=device) for name in ("x", "y", "z", "g")}
    for name in ("x", "y", "z"):
        operands[name].requires_grad_(requires_grad)
    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "gpuopt": torch.ops.gpuopt,
        **operands,
        "out": operands["g"].clone(),
    }


def _call_times() -> list[CallTime]:
    def plain(device):
        return _small(device, requires_grad=False)

    def graph(device):
        return _small(device, requires_grad=True)

    mul = {"gpuopt": "torch_ops.mul(x, y)", "ATen": "torch.mul(x, y)"}
    axpy = {"gpuopt": "torch_ops.axpy(x, y, alpha=0.5)", "ATen": "torch.add(y, x, alpha=0.5)"}
    fma = {"gpuopt": "torch_ops.fma(x, y, z)", "ATen": "torch.addcmul(z, x, y)"}

    def backward(statements, inputs):
        return {name: f"torch.autograd.grad({stmt}, {inputs}, g)" for name, stmt in statements.items()}

    # Without the Python function, what remains is the time of the dispatcher and the kernel's launch.
    bare = {"gpuopt, without its Python function": "gpuopt.mul.Tensor(x, y)"}
    return [
        CallTime("mul", "no grad", {**mul, **bare}, plain),
        CallTime("mul", "building a graph", {**mul, **bare}, graph),
        CallTime("mul", "forward + backward", backward(mul, "(x, y)"), graph),
        CallTime("mul", "out=", {name: stmt[:-1] + ", out=out)" for name, stmt in mul.items()}, plain),
        CallTime("mul", "in-place", {"gpuopt": "torch_ops.mul_(x, y)", "ATen": "x.mul_(y)"}, plain),
        CallTime("mul", "by 2.5", {"gpuopt": "torch_ops.mul(x, 2.5)", "ATen": "torch.mul(x, 2.5)"}, plain),
        CallTime("axpy", "no grad", axpy, plain),
        CallTime("axpy", "building a graph", axpy, graph),
        CallTime("axpy", "forward + backward", backward(axpy, "(x, y)"), graph),
        CallTime("fma", "no grad", fma, plain),
        CallTime("fma", "building a graph", fma, graph),
        CallTime("fma", "forward + backward", backward(fma, "(x, y, z)"), graph),
    ]


ROOM = Room(
    name="elementwise",
    cases=_mul_headline() + _mul_sweep() + _three_operands(),
    calls=_calls,
    call_times=_call_times(),
    peers=(INDUCTOR, CUPY),
)
