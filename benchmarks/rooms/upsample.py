"""Cases of nearest-neighbour upsampling in 2D, of its backward and of the exact variant.

"CL" is channels_last. A backward is named after its forward: "(1,3,32,32)->(64,64)" reads a gradient of 64 x 64 pixels.
The ops that end in "-scales" sweep over scale factors, beside ATen alone. Name other ops on the command line to leave them out.
"""

import itertools
import math
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import INDUCTOR
from benchmarks.harness.room import Call, CallTime, Case, Point, Room
from benchmarks.references.upsample import REFERENCES

U8, F64 = torch.uint8, torch.float64
FORWARD, BACKWARD = "nearest2d", "nearest2d-backward"
BOTH = (FORWARD, BACKWARD)
OPERATORS = {FORWARD: "upsample_nearest2d", BACKWARD: "upsample_nearest2d_backward"}

Shape = tuple[int, int, int, int]
Size = tuple[int, int]

SIZES: list[tuple[Shape, Size]] = [
    ((16, 32, 80, 80), (160, 160)),
    ((8, 256, 64, 64), (128, 128)),
    ((2, 512, 256, 256), (512, 512)),
    ((1, 3, 1080, 1920), (2160, 3840)),
    ((16, 64, 100, 100), (150, 150)),
    ((16, 64, 100, 100), (237, 181)),
    ((32, 128, 7, 7), (56, 56)),
]


def _dense(m: Maker, shape: Shape) -> torch.Tensor:
    return m(*shape)


def _channels_last(m: Maker, shape: Shape) -> torch.Tensor:
    return m.channels_last(*shape)


def _misaligned(m: Maker, shape: Shape) -> torch.Tensor:
    return m.misaligned(math.prod(shape)).view(shape)


def _cropped(make: Callable[[Maker, Shape], torch.Tensor]) -> Callable[[Maker, Shape], torch.Tensor]:
    """Makes the inside of images that are 8 pixels larger at every edge."""

    def inside(m: Maker, shape: Shape) -> torch.Tensor:
        batch, channels, height, width = shape
        return make(m, (batch, channels, height + 16, width + 16))[:, :, 8:-8, 8:-8]

    return inside


LAYOUTS: dict[str, Callable[[Maker, Shape], torch.Tensor]] = {
    "": _dense,
    "CL": _channels_last,
    "misaligned": _misaligned,
    "cropped": _cropped(_dense),
    "cropped CL": _cropped(_channels_last),
}


def _cases(
    shape: Shape, size: Size, *dtypes, ops=BOTH, layouts=("", "CL"), exact: bool = False, suffix: str = "", **options
) -> list[Case]:
    """Cases of every op, layout and dtype. The layout is that of the tensor that is read. ``suffix`` is appended to the op's
    name."""

    def build(op: str, layout: str, dtype: torch.dtype) -> Callable[[str, int], tuple]:
        make = LAYOUTS[layout]
        if op == FORWARD:
            return lambda device, seed: (make(Maker(device, dtype, seed), shape), size)
        return lambda device, seed: (make(Maker(device, dtype, seed), (*shape[:2], *size)), size, shape)

    sizes = f"{shape}->{size}".replace(", ", ",")
    cases = []
    for op, layout, dtype in itertools.product(ops, layouts, dtypes):
        call = OPERATORS[op].replace("nearest", "nearest_exact") if exact else OPERATORS[op]
        name = " ".join(filter(None, ("exact" if exact else "", layout, sizes)))
        cases.append(Case(op + suffix, call, name, DTYPE_NAMES[dtype], build(op, layout, dtype), **options))
    return cases


def _further(shape: Shape, size: Size, **options) -> list[Case]:
    """Cases in bf16 beside all peers, and in f32 beside ATen alone, because compiling would take much longer."""
    return _cases(shape, size, F32, peers=(), **options) + _cases(shape, size, BF16, **options)


def _headline() -> list[Case]:
    cases = []
    for shape, size in SIZES:
        cases += _cases(shape, size, F32, BF16, headline=True)
        cases += _cases(shape, size, F16, peers=())
    return cases


def _shapes() -> list[Case]:
    cases = []
    for size in ((100, 100), (77, 93)):
        cases += _further((16, 64, 200, 200), size)
    for factor in (3, 4):
        cases += _further((8, 64, 64, 64), (64 * factor, 64 * factor))
    # Small maps of a generator, a pooled vector that is spread over a map, and a feature pyramid of an 800 x 1088 image.
    cases += _further((64, 512, 4, 4), (8, 8)) + _further((64, 512, 8, 8), (16, 16))
    cases += _further((8, 256, 1, 1), (64, 64), ops=(FORWARD,), layouts=("",))
    cases += _further((8, 256, 1, 1), (64, 64), ops=(BACKWARD,))
    for height, width in ((25, 34), (50, 68), (100, 136)):
        cases += _further((2, 256, height, width), (2 * height, 2 * width))
    small = [
        ((1, 64, 8, 8), (16, 16)),
        ((1, 3, 32, 32), (64, 64)),
        ((2, 256, 13, 13), (26, 26)),
        ((1, 128, 28, 28), (56, 56)),
    ]
    for shape, size in small:
        cases += _further(shape, size, layouts=("",))
    for shape, size in (SIZES[1], SIZES[5]):
        cases += _further(shape, size, layouts=("",), exact=True)
    return cases


def _layouts_and_dtypes() -> list[Case]:
    image = (1, 3, 1080, 1920)
    cases = _further(*SIZES[5], layouts=("misaligned",))
    cases += _further((8, 256, 64, 64), (128, 128), layouts=("cropped", "cropped CL"))
    for size in ((2160, 3840), (720, 1280)):
        cases += _cases(image, size, U8, ops=(FORWARD,))
    return cases + _cases(*SIZES[1], F64, layouts=("",), peers=())


def _scales() -> list[Case]:
    """A sweep over factors that divide 240, enlarging and shrinking. The output has about 2^25 values for every factor."""
    side = 240
    cases = []
    for op, layout, dtype, factor in itertools.product(
        BOTH, ("", "CL"), (F32, BF16), (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 8)
    ):
        cases += _cases(
            (9, 64, round(side / factor), round(side / factor)),
            (side, side),
            dtype,
            ops=(op,),
            layouts=(layout,),
            suffix="-scales",
            peers=(),
            point=Point(f"{DTYPE_NAMES[dtype]} {layout}".rstrip(), "output size / input size", factor),
        )
    return cases


# ---------------------------------------------------------------- calls


def _used(x: torch.Tensor, size: Size) -> tuple[torch.Tensor]:
    """A tensor with the number of pixels that are read: all along an axis that grows, one per output along an axis that shrinks."""
    return (x[:, :, : size[0], : size[1]],)


def _exact(dtype: torch.dtype, aten_error: float | None) -> float:
    return 0.0


def adjoint_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of a gradient: 32 ulp, because correct sums differ in the order of additions.

    fp16 and bf16 add in float32 and round once. ATen's error is no measure: where ATen's windows differ from the forward's, ATen is
    wrong.
    """
    return (1 if dtype.itemsize == 2 else 32) * torch.finfo(dtype).eps


def _calls() -> dict[str, Call]:
    import torch_ops

    aten = torch.ops.aten

    def forward(name: str, overloads) -> Call:
        ours = getattr(torch_ops, name)
        return Call(ours, lambda x, size: overloads.vec(x, size, None), REFERENCES[name], reads=_used, limit=_exact)

    def backward(name: str, overloads) -> Call:
        return Call(getattr(torch_ops, name), overloads.default, REFERENCES[name], limit=adjoint_limit)

    return {
        "upsample_nearest2d": forward("upsample_nearest2d", aten.upsample_nearest2d),
        "upsample_nearest2d_backward": backward("upsample_nearest2d_backward", aten.upsample_nearest2d_backward),
        "upsample_nearest_exact2d": forward("upsample_nearest_exact2d", aten._upsample_nearest_exact2d),
        "upsample_nearest_exact2d_backward": backward(
            "upsample_nearest_exact2d_backward", aten._upsample_nearest_exact2d_backward
        ),
    }


# ---------------------------------------------------------------- call times


def _small(device: str, requires_grad: bool) -> dict:
    """Operands so small that the kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "gpuopt": torch.ops.gpuopt,
        "interpolate": torch.nn.functional.interpolate,
        "x": torch.randn(1, 8, 32, 32, device=device, requires_grad=requires_grad),
        "g": torch.ones(1, 8, 64, 64, device=device),
    }


def _call_times() -> list[CallTime]:
    def plain(device):
        return _small(device, requires_grad=False)

    def graph(device):
        return _small(device, requires_grad=True)

    public = {
        "gpuopt": "torch_ops.upsample_nearest2d(x, scale_factors=2.0)",
        "ATen": "interpolate(x, scale_factor=2.0)",
    }
    # Without the Python function, what remains is the time of the dispatcher and the kernel's launch.
    bare = {
        "gpuopt, without its Python function": "gpuopt.upsample_nearest2d.vec(x, None, (2.0, 2.0))",
        "ATen, without its Python function": "torch._C._nn.upsample_nearest2d(x, None, (2.0, 2.0))",
    }
    backward = {name: f"torch.autograd.grad({stmt}, x, g)" for name, stmt in public.items()}
    return [
        CallTime(FORWARD, "no grad", {**public, **bare}, plain),
        CallTime(FORWARD, "building a graph", {**public, **bare}, graph),
        CallTime(FORWARD, "forward + backward", backward, graph),
    ]


ROOM = Room(
    name="upsample",
    cases=_headline() + _shapes() + _layouts_and_dtypes() + _scales(),
    calls=_calls,
    call_times=_call_times(),
    peers=(INDUCTOR,),
)
