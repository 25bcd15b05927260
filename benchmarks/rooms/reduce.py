"""Cases of reduce_sum, reduce_mean, reduce_max and reduce_min.

The op "sum-grid" is a sweep beside ATen alone. It sums 2^25 values, arranged in rows and columns of every power of two, over either
dimension. ``python -m benchmarks reduce`` includes it. Name other ops on the command line to leave it out.
"""

import itertools
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, NCHW, Maker
from benchmarks.harness.peers import INDUCTOR, Peer, cupy_call, cupy_for
from benchmarks.harness.room import Call, CallTime, Case, Point, Room, error_limit
from benchmarks.references import reduce as references

F64, I32, C64 = torch.float64, torch.int32, torch.complex64
INTEGERS = (torch.int8, torch.uint8, I32, torch.int64, torch.bool)
ROWS = (32768, 1024)
GRID_POWER = 25

Dims = int | tuple[int, ...] | None


def _text(shape: int | tuple[int, ...]) -> str:
    return str(shape).replace(", ", ",")


def _cases(
    op: str, name: str, make: Callable[[Maker], torch.Tensor], dim: Dims, *dtypes, call: str = "", to=(), **options
) -> list[Case]:
    """``to``: the dtype to reduce in, if it is not the input's."""

    def build(dtype: torch.dtype) -> Callable[[str, int], tuple]:
        uniform = (call or op) in ("sum", "mean")
        return lambda device, seed: (make(Maker(device, dtype, seed, uniform)), dim, *to)

    title = name if dim is None else f"{name} dim {_text(dim)}"
    return [Case(op, call or op, title, DTYPE_NAMES[d], build(d), **options) for d in dtypes]


def _dense(op: str, shape: tuple[int, ...], dim: Dims, *dtypes, **options) -> list[Case]:
    name = f"2^{shape[0].bit_length() - 1}" if len(shape) == 1 else _text(shape)
    return _cases(op, name, lambda m: m(*shape), dim, *dtypes, **options)


def _headline() -> list[Case]:
    sums = [((1 << power,), None) for power in (10, 14, 17, 20, 22, 25, 28, 30)]
    sums += [(ROWS, 1), (ROWS, 0), ((1024, 32768), 1), ((1024, 32768), 0)]
    sums += [((128, 262144), 1), ((262144, 128), 1), ((262144, 128), 0), ((4, 1 << 24), 1)]
    sums += [((1 << 20, 32), 1), ((16, 4096, 1024), 1), (NCHW, (0, 2, 3))]
    maxima = [((1 << 28,), None), (ROWS, 1), (ROWS, 0), ((1 << 20, 32), 1), ((262144, 128), 0)]
    chosen = [("sum", *case) for case in sums] + [("max", *case) for case in maxima]
    return list(itertools.chain(*(_dense(*case, F32, BF16, headline=True) for case in chosen)))


def _layouts() -> list[Case]:
    n = 1 << 25
    cases = []
    for dim in (1, 0):
        cases += _cases("sum", "x.t() 8192^2", lambda m: m(8192, 8192).t(), dim, F32, BF16)
    for dim in (1, 0):
        cases += _cases("sum", "x[:, ::2] 8192^2", lambda m: m(8192, 8192)[:, ::2], dim, F32, BF16)
    cases += _cases("sum", "misaligned 2^25", lambda m: m.misaligned(n), None, F32, BF16)
    cases += _cases("sum", "misaligned (32768,1024)", lambda m: m.misaligned(n).view(ROWS), 1, F32, BF16)
    cases += _cases("sum", "(32768,1) expanded to 1024", lambda m: m(ROWS[0], 1).expand(ROWS), 1, F32)
    cases += _cases("sum", "(1024) expanded to 32768", lambda m: m(ROWS[1]).expand(ROWS), 0, F32)
    for dim in ((0, 2, 3), 1, (2, 3)):
        cases += _cases("mean", "NCHW", lambda m: m(*NCHW), dim, F32, BF16)
        cases += _cases("mean", "NHWC", lambda m: m.channels_last(*NCHW), dim, F32, BF16)
    return cases


def _shapes() -> list[Case]:
    cases = []
    for shape, dim in (((262144, 1024), 1), ((262144, 1024), 0), ((512, 1024, 512), 1)):
        cases += _dense("sum", shape, dim, F32)
    odd = [((1 << 25) // columns, columns) for columns in (1023, 257, 33, 7, 3)] + [(33554, 1000), (100, 335544)]
    for shape, dim in itertools.product(odd, (1, 0)):
        cases += _dense("sum", shape, dim, F32, BF16, peers=(INDUCTOR,))
    return cases


def _dtypes() -> list[Case]:
    n = (1 << 25,)
    return [
        *_dense("sum", ROWS, 1, F16, F64, *INTEGERS, C64),
        *_dense("sum", ROWS, 0, F16, F64),
        *_dense("sum", n, None, F64, torch.int8, torch.bool, C64),
        *_cases("sum", "dtype=f32, (32768,1024)", lambda m: m(*ROWS), 1, BF16, I32, to=(F32,)),
        *_cases("sum", "dtype=f64, (32768,1024)", lambda m: m(*ROWS), 1, F32, to=(F64,)),
        *_dense("max", ROWS, 1, F16, *INTEGERS),
        *_dense("min", ROWS, 1, F32, BF16),
        *_dense("min", n, None, F32),
    ]


def _grid() -> list[Case]:
    """2^25 values in rows and columns of every power of two, over either dimension. The sweep shows the shapes where one kernel
    takes over from another."""
    cases = []
    for dim, dtype, power in itertools.product((1, 0), (F32, BF16), range(GRID_POWER + 1)):
        cases += _cases(
            "sum-grid",
            f"2^{power} x 2^{GRID_POWER - power}",
            lambda m, power=power: m(1 << power, 1 << GRID_POWER - power),
            dim,
            dtype,
            call="sum",
            peers=(),
            point=Point(f"dim {dim} {DTYPE_NAMES[dtype]}", f"log2(rows) of 2^{GRID_POWER} values", power),
        )
    return cases


# ---------------------------------------------------------------- calls


def sum_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of a sum: 32 ulp, the error of adding 2^15 values one after another.

    Correct sums differ in the order of additions, and ATen's may be exact by luck. fp16 and bf16 add in float32 and round once.
    """
    units = 32 if (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 2 else 1
    return max(error_limit(dtype, aten_error), units * error_limit(dtype, None))


def _exact(dtype: torch.dtype, aten_error: float | None) -> float:
    return 0.0


def _calls() -> dict[str, Call]:
    import torch_ops

    def dims(dim: Dims) -> Dims:
        """Converts None, which amax and amin do not accept."""
        return () if dim is None else dim

    return {
        "sum": Call(
            lambda x, dim, dtype=None: torch_ops.reduce_sum(x, dim, dtype=dtype),
            lambda x, dim, dtype=None: torch.sum(x, dim, dtype=dtype),
            lambda x, dim, dtype=None: references.sum_reference(x, dim, dtype=dtype),
            cupy="sum",
            limit=sum_limit,
        ),
        "mean": Call(torch_ops.reduce_mean, torch.mean, references.mean_reference, cupy="mean", limit=sum_limit),
        "max": Call(
            torch_ops.reduce_max,
            lambda x, dim: torch.amax(x, dims(dim)),
            references.max_reference,
            cupy="amax",
            limit=_exact,
        ),
        "min": Call(
            torch_ops.reduce_min,
            lambda x, dim: torch.amin(x, dims(dim)),
            references.min_reference,
            cupy="amin",
            limit=_exact,
        ),
    }


# ---------------------------------------------------------------- CUB


def _cub(call, case, setting):
    """CUB's device-wide and segmented reductions, called through CuPy. CuPy uses its own kernels where CUB has none."""
    x, *rest = case.build(setting.device, 0)
    cupy = cupy_for(call, (x,))
    from cupy.cuda import cub

    cupy._core.set_routine_accelerators(["cub"])
    cupy._core.set_reduction_accelerators(["cub"])
    reduce = getattr(cupy, call.cupy)

    def arguments(dim: Dims, dtype: torch.dtype | None = None) -> dict:
        return {"axis": dim} if dtype is None else {"axis": dim, "dtype": str(dtype).removeprefix("torch.")}

    def run(x, *rest):
        # No out=, because CuPy would copy CUB's result into it with another kernel.
        return torch.as_tensor(cupy_call(setting.device, reduce, x, **arguments(*rest)), device=setting.device)

    routine = {"sum": cub.CUPY_CUB_SUM, "mean": cub.CUPY_CUB_SUM, "amax": cub.CUPY_CUB_MAX, "amin": cub.CUPY_CUB_MIN}
    done = cupy_call(setting.device, cub.cub_reduction, x, routine[call.cupy], **arguments(*rest))
    return run, "CuPy's own kernel: no routine of CUB fits" if done is None else "CUB"


CUB = Peer("CuPy (CUB)", _cub)


# ---------------------------------------------------------------- call times


def _small(device: str, requires_grad: bool) -> dict:
    """2^14 floats. The kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "gpuopt": torch.ops.gpuopt,
        "x": torch.randn(128, 128, device=device, requires_grad=requires_grad),
        "g": torch.ones((), device=device),
    }


def _call_times() -> list[CallTime]:
    def plain(device):
        return _small(device, requires_grad=False)

    def graph(device):
        return _small(device, requires_grad=True)

    rows = []
    for op, aten in (("sum", "sum"), ("max", "amax")):
        whole = {"gpuopt": f"torch_ops.reduce_{op}(x)", "ATen": f"torch.{aten}(x)"}
        by_row = {"gpuopt": f"torch_ops.reduce_{op}(x, 1)", "ATen": f"torch.{aten}(x, 1)"}
        # Without the Python function, what remains is the time of the dispatcher and the kernel's launch.
        bare = {"gpuopt, without its Python function": f"gpuopt.reduce_{op}.default(x)"}
        backward = {name: f"torch.autograd.grad({stmt}, x, g)" for name, stmt in whole.items()}
        rows += [
            CallTime(op, "no grad", {**whole, **bare}, plain),
            CallTime(op, "dim 1, no grad", by_row, plain),
            CallTime(op, "building a graph", {**whole, **bare}, graph),
            CallTime(op, "forward + backward", backward, graph),
        ]
    return rows


ROOM = Room(
    name="reduce",
    cases=_headline() + _layouts() + _shapes() + _dtypes() + _grid(),
    calls=_calls,
    call_times=_call_times(),
    peers=(INDUCTOR, CUB),
)
