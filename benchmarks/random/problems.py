"""Random realistic problems for every operator: sizes, layouts and dtypes as models and pipelines have them.

A family is one operator in one direction or mode. Problems are drawn by a seed and know nothing of the kernels. Traffic is drawn
log-uniformly from 64 KB to 1 GB, so that every order of magnitude has its share.
"""

import dataclasses
import functools
import math
import random
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import INDUCTOR, Peer
from benchmarks.harness.room import Case
from benchmarks.rooms import conv1d as bench_conv1d
from benchmarks.rooms import convolutions, transposed
from benchmarks.rooms import dot as bench_dot
from benchmarks.rooms import index_add as bench_index_add
from benchmarks.rooms import norm as bench_norm
from benchmarks.rooms import segment as bench_segment
from benchmarks.rooms import selective_scan as bench_selective_scan
from benchmarks.rooms import spmm as bench_spmm
from benchmarks.rooms.graphs import Graph

SMALLEST, LARGEST = 1 << 16, 1 << 30
DTYPES = (F32, F32, BF16, BF16, F16)
INTEGERS, INTEGER_SHARE = (torch.int64, torch.int32), 0.15
# Compiling takes seconds, so only every fourth problem has Inductor as a peer.
INDUCTOR_EVERY = 4


class Draw(random.Random):
    """Draws the parts that problems are made of. Traffic has from ``smallest`` to ``largest`` bytes."""

    smallest, largest, dtypes = SMALLEST, LARGEST, DTYPES

    def values(self, dtype: torch.dtype, tensors: float = 2.0, largest: int = LARGEST) -> int:
        """The number of values of a tensor, if all traffic is that of ``tensors`` such tensors."""
        return max(1, int(self.log(self.smallest, min(self.largest, largest)) / tensors / dtype.itemsize))

    def log(self, least: float, most: float) -> float:
        return 2 ** self.uniform(math.log2(least), math.log2(most))

    def size(self, least: int, most: int) -> int:
        """Log-uniform; half of the sizes are rounded to a multiple of 8, as most sizes in models are."""
        size = max(least, min(most, round(self.log(least, max(least, most)))))
        return max(least, size // 8 * 8) if size >= 8 and self.random() < 0.5 else size

    def dtype(self, integers: bool = False) -> torch.dtype:
        """A floating-point dtype; with ``integers``, at times an integer."""
        return self.choice(INTEGERS if integers and self.random() < INTEGER_SHARE else self.dtypes)

    def image(self, values: int) -> tuple[int, int, int, int]:
        """(N, C, H, W) of about ``values`` values."""
        channels = self.choice((1, 3, 3, self.size(4, 64), self.size(16, 1024)))
        height = self.size(4, max(4, int(math.sqrt(values / channels))))
        width = height if self.random() < 0.5 else max(2, int(height * self.uniform(0.5, 2)))
        return max(1, values // (channels * height * width)), channels, height, width


Operands = Callable[[Maker], tuple]


@dataclasses.dataclass(frozen=True)
class Problem:
    """``operands`` makes the arguments of the room's call; ``moved`` is the case's; dot products are sums of ``products``."""

    room: str
    call: str
    name: str
    dtype: torch.dtype
    operands: Callable[[Maker], tuple] | None
    build: Callable[[str, int], tuple] | None = None
    moved: Callable[[], tuple[int, int]] | None = None
    peers: tuple[Peer, ...] | None = None
    inductor: Peer = INDUCTOR
    products: int = 0

    def case(self, family: str, inductor: bool) -> Case:
        def build(device: str, seed: int) -> tuple:
            if self.products:
                return self.operands(bench_dot.Factors(device, self.dtype, seed, self.products))
            return self.operands(Maker(device, self.dtype, seed, uniform=self.room in ("reduce", "scan")))

        peers = self.peers if self.peers is not None else (self.inductor,) if inductor else ()
        return Case(
            family, self.call, self.name, DTYPE_NAMES[self.dtype], self.build or build, peers=peers, moved=self.moved
        )


def text(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))})"


# ---------------------------------------------------------------- element-wise


def mul(draw: Draw) -> Problem:
    dtype = draw.dtype(integers=True)
    values = draw.values(dtype, 3)
    kind = draw.choice(
        ("dense", "channel", "row", "column", "scalar", "transposed", "misaligned", "cropped", "layouts")
    )
    rows = draw.size(1, max(1, values // 4))
    columns = max(1, values // rows)
    shape = (rows, columns)
    makers: dict[str, Operands] = {
        "dense": lambda m: (m(*shape), m(*shape)),
        "row": lambda m: (m(*shape), m(columns)),
        "column": lambda m: (m(*shape), m(rows, 1)),
        "scalar": lambda m: (m(*shape), 2.5 if dtype.is_floating_point else 3),
        "transposed": lambda m: (m(*shape), m(columns, rows).t()),
        "misaligned": lambda m: (m.misaligned(values), m.misaligned(values)),
        "cropped": lambda m: (m.columns(rows, columns, columns + 3), m(*shape)),
    }
    if kind in ("channel", "layouts"):
        shape = draw.image(values)
        channels = shape[1]
        makers["channel"] = lambda m: (m(*shape), m(channels, 1, 1))
        makers["layouts"] = lambda m: (m(*shape), m.channels_last(*shape))
    return Problem("elementwise", "mul", f"{kind} {text(shape)}", dtype, makers[kind])


# ---------------------------------------------------------------- reductions


def reduce(draw: Draw) -> Problem:
    dtype = draw.dtype(integers=True)
    call = draw.choice(("sum", "mean", "max") if dtype.is_floating_point else ("sum", "max"))
    values = draw.values(dtype, 1)
    kind = draw.choice(("rows", "columns", "all", "statistics", "pool", "dims", "strided", "windows", "tiny", "cut"))
    rows = draw.size(1, values)
    shape: tuple[int, ...] = (rows, max(1, values // rows))
    dim: int | tuple[int, ...] | None = {"rows": 1, "columns": 0, "strided": draw.randrange(2), "tiny": 1}.get(kind)
    layout, cut = "", 0
    if kind == "all":
        shape = (values,)
    elif kind in ("statistics", "pool"):
        shape, dim = draw.image(values), (0, 2, 3) if kind == "statistics" else (2, 3)
        layout = draw.choice(("", "CL"))
    elif kind == "dims":
        sizes = [draw.size(2, max(2, int(values ** (1 / 3)))) for _ in range(draw.randint(2, 3))]
        shape = (*sizes, max(1, values // math.prod(sizes)))
        dim = tuple(sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape) - 1))))

    elif kind == "windows":
        sides = draw.randint(2, 8), draw.size(4, 256)
        shape = (max(1, values // (sides[0] * sides[1]) ** 2), sides[1], sides[0], sides[1], sides[0])
        dim = (2, 4)
    elif kind == "tiny":
        sizes = [draw.randint(2, 16), draw.randint(2, 7)]
        shape = (max(1, values // math.prod(sizes)), *sizes)
    elif kind == "cut":  # rows without their first or their last values
        columns, cut = draw.size(4, 64), draw.randint(1, 3)
        shape, dim = (max(1, values // columns), columns), 1

    def operands(m: Maker) -> tuple:
        if kind == "strided":
            return m(shape[0], 2 * shape[1])[:, ::2], dim
        if kind == "cut":
            first = cut * (shape[1] % 2)
            return m(shape[0], shape[1] + cut)[:, first : first + shape[1]], dim
        return (m.channels_last(*shape) if layout else m(*shape)), dim

    name = " ".join(filter(None, (call, kind, layout, text(shape), "" if dim is None else f"dim {dim}")))
    return Problem("reduce", call, name, dtype, operands)


# ---------------------------------------------------------------- scans


def scan(draw: Draw, call: str) -> Problem:
    """cumsum, or linear_recurrence with factors in [0, 1)."""
    recurs = call == "linear_recurrence"
    dtype = draw.dtype(integers=not recurs)
    # ATen's recurrence needs copies of the operands.
    values = draw.values(dtype, 3, 1 << 28) if recurs else draw.values(dtype, 2)
    kind = draw.choice(("rows", "columns", "all", "middle", "strided", "misaligned"))
    rows = draw.size(1, values)
    shape: tuple[int, ...] = (rows, max(1, values // rows))
    dim = {"rows": 1, "misaligned": 1, "strided": draw.randrange(2), "middle": 1}.get(kind, 0)
    if kind == "all":
        shape = (values,)
    elif kind == "middle":
        sizes = [draw.size(2, max(2, int(values ** (1 / 2)))) for _ in range(2)]
        shape = (*sizes, max(1, values // math.prod(sizes)))

    def operand(m: Maker) -> torch.Tensor:
        if kind == "strided":
            return m(shape[0], 2 * shape[1])[:, ::2]
        return m.misaligned(math.prod(shape)).view(shape) if kind == "misaligned" else m(*shape)

    def operands(m: Maker) -> tuple:
        return (operand(m), operand(m), dim) if recurs else (operand(m), dim)

    return Problem("scan", call, f"{kind} {text(shape)} dim {dim}", dtype, operands)


def selective_scan(draw: Draw, backward: bool = False) -> Problem:
    scan, dtype = bench_selective_scan.draw_scan(draw, backward)
    call = "selective_scan_backward" if backward else "selective_scan"
    build = functools.partial(scan.build, dtype, backward)
    return Problem("selective_scan", call, scan.name, dtype, None, build, peers=(bench_selective_scan.MAMBA,))


# ---------------------------------------------------------------- norms

# The widths of models: Swin, ViT, BERT, GPT, Llama, heads of attention, ConvNeXt.
WIDTHS = (32, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120,
          6144, 8192, 12288)  # fmt: skip


def norm(draw: Draw, call: str) -> Problem:
    dtype = draw.dtype()
    kind = draw.choice(("model", "model", "model", "model", "any", "odd", "long", "few"))
    values = draw.values(dtype, 3 if call.endswith("backward") else 2)
    length = draw.choice(WIDTHS)
    if kind == "any":
        length = draw.size(2, 8192)
    elif kind == "odd":
        length = 2 * draw.size(2, 4096) + 1
    elif kind == "long":
        length = draw.size(8192, 1 << 20)
    length = min(length, values)
    rows = draw.size(1, 256) if kind == "few" else max(1, values // length)
    layout, shape = draw.choice(("", "", "", "part", "transposed")), (rows, length)
    if layout == "transposed":
        batch = draw.size(1, min(64, rows))
        shape = (rows // batch, batch, length)
    build = bench_norm.case(call, shape, dtype, layout).build
    return Problem("norm", call, f"{kind} {layout} {text(shape)}".replace("  ", " "), dtype, None, build)


# ---------------------------------------------------------------- upsampling


def upsample(draw: Draw, backward: bool = False) -> Problem:
    dtype = draw.dtype()
    kind = draw.choice(("2", "2", "2", "factor", "factor", "size"))
    factor = {"2": 2.0, "factor": draw.choice((0.5, 1.5, 3.0, 4.0, draw.uniform(0.3, 5)))}.get(kind, 1.0)
    shape = draw.image(max(16, int(draw.values(dtype, 1 + factor * factor))))
    size = (max(1, int(shape[2] * factor)), max(1, int(shape[3] * factor)))
    if kind == "size":
        size = (draw.size(max(1, shape[2] // 3), shape[2] * 4), draw.size(max(1, shape[3] // 3), shape[3] * 4))
    layout, exact = draw.choice(("", "", "CL")), draw.random() < 0.3

    def operands(m: Maker) -> tuple:
        made = (*shape[:2], *size) if backward else shape
        x = m.channels_last(*made) if layout else m(*made)
        return (x, size, shape) if backward else (x, size)

    name = " ".join(filter(None, ("exact" if exact else "", layout, f"{text(shape)} to {text(size)}")))
    call = ("upsample_nearest_exact2d" if exact else "upsample_nearest2d") + ("_backward" if backward else "")
    return Problem("upsample", call, name, dtype, operands)


# ---------------------------------------------------------------- dot products, transposition


def dot(draw: Draw) -> Problem:
    dtype = draw.dtype()
    values = draw.values(dtype, 2)
    kind = draw.choice(("dense", "dense", "dense", "misaligned", "strided"))
    operands: dict[str, Operands] = {
        "dense": lambda m: (m(values), m(values)),
        "misaligned": lambda m: (m.misaligned(values), m(values)),
        "strided": lambda m: (m(values, 2)[:, 0], m(values)),
    }
    return Problem("dot", "dot", f"{kind} ({values})", dtype, operands[kind], products=values)


def dot_rows(draw: Draw) -> Problem:
    dtype = draw.dtype()
    values = draw.values(dtype, 2)
    rows = draw.size(2, max(2, values // 2))
    shape = (rows, max(1, values // rows))
    kind = draw.choice(("dense", "dense", "dense", "misaligned"))

    def operands(m: Maker) -> tuple:
        return (m.misaligned(math.prod(shape)).view(shape) if kind == "misaligned" else m(*shape)), m(*shape)

    return Problem("dot", "dot_rows", f"{kind} {text(shape)}", dtype, operands, products=shape[1])


def transpose2d(draw: Draw) -> Problem:
    dtype = draw.dtype(integers=True)
    values = draw.values(dtype, 2)
    kind = draw.choice(("matrix", "matrix", "batch", "NCHW to NHWC", "NHWC to NCHW", "misaligned", "gaps"))
    rows = draw.size(2, max(2, values // 2))
    shape: tuple[int, ...] = (rows, max(1, values // rows))
    if kind == "batch":
        rows, columns = (draw.size(2, max(2, int(math.sqrt(values)))) for _ in range(2))
        shape = (max(1, values // (rows * columns)), rows, columns)
    elif "NCHW" in kind:
        n, c, h, w = draw.image(values)
        shape = (n, c, h * w) if kind == "NCHW to NHWC" else (n, h * w, c)

    def operands(m: Maker) -> tuple:
        if kind == "misaligned":
            return (m.misaligned(math.prod(shape)).view(shape),)
        return (m.columns(*shape, shape[1] + 5) if kind == "gaps" else m(*shape),)

    return Problem("transpose", "transpose2d", f"{kind} {text(shape)}", dtype, operands)


# ---------------------------------------------------------------- index_add


def rows_at_an_index(draw: Draw, dtype: torch.dtype) -> bench_index_add.Sum:
    width = draw.choice((1, draw.size(2, 64), draw.size(16, 1024), draw.size(16, 1024)))
    entries = max(1, draw.values(dtype, 2, 1 << 29) // width)
    bins = draw.size(max(1, min(16, entries)), max(16, min(8 * entries, (1 << 28) // width)))
    index = draw.choice(
        (bench_index_add.UNIFORM, bench_index_add.UNIFORM, bench_index_add.ZIPF, bench_index_add.SORTED)
    )
    if index is bench_index_add.ZIPF:
        bins = min(bins, 1 << 20)  # the table of its probabilities lies on the host
    return bench_index_add.Sum((bins,) if width == 1 else (bins, width), entries, index)


def index_add(draw: Draw, mode: str = "fast") -> Problem:
    dtype = draw.choice((BF16, F16)) if mode == "accurate" else draw.dtype(integers=True)
    what = rows_at_an_index(draw, dtype)
    return Problem(
        "index_add",
        bench_index_add.CALLS[mode],
        what.name,
        dtype,
        None,
        functools.partial(what.build, dtype),
        functools.partial(what.moved, dtype),
        (bench_index_add.ATEN_DETERMINISTIC,) if mode == "deterministic" else None,
    )


def index_select(draw: Draw, backward: bool = False) -> Problem:
    dtype = draw.dtype(integers=not backward)
    what = rows_at_an_index(draw, dtype)
    made = what.build_select_backward if backward else what.build_select
    moves = what.moved_by_select_backward if backward else what.moved_by_select
    build, moved = (functools.partial(f, dtype) for f in (made, moves))
    call = "index_select backward" if backward else "index_select"
    return Problem("index_add", call, what.name.replace("+=", " to "), dtype, None, build, moved)


# ---------------------------------------------------------------- graphs and segments


def graph(draw: Draw, values: int, row: int) -> Graph:
    """A graph whose entries read about ``values`` values in rows of ``row``."""
    entries = max(1, values // row)
    rows, columns = (draw.size(max(1, entries // 512), max(1, min(2 * entries, 1 << 26))) for _ in range(2))
    skew = draw.choice((0.5, draw.uniform(0.5, 0.76), draw.uniform(0.5, 0.76)))
    index = draw.choice((torch.int32, torch.int32, torch.int64))
    return Graph(text((rows, columns, entries)), rows, entries, skew, columns, index)


def width(draw: Draw) -> int:
    return draw.choice((1, draw.size(2, 64), draw.size(8, 512), draw.choice((16, 32, 64, 128, 256))))


def product(draw: Draw, call: str) -> Problem:
    """spmm, sddmm, or attention over a graph."""
    dtype, features, heads = draw.dtype(), width(draw), 0
    is_spmm, step = call.startswith("spmm"), call.endswith("step")
    values = is_spmm and draw.random() < 0.6
    if "attention" in call or ((values or call.startswith("sddmm")) and draw.random() < 0.25):
        heads = draw.choice((1, 2, 3, 4, 8))
    of = graph(draw, draw.values(dtype, 5 if step else 3), features * max(heads, 1))
    if "attention" in call and step:
        # The gradients of the scores would be 0, with a relative error of 1, if each row had equal entries only.
        entries = max(of.entries, 128)
        rows, columns = min(of.rows, entries // 16), max(of.columns, 32)
        of = dataclasses.replace(of, name=text((rows, columns, entries)), rows=rows, columns=columns, entries=entries)
    # Of equal maxima ATen gives each a part of the gradient.
    reduce = draw.choice(("sum", "sum", "mean") if step else ("sum", "sum", "mean", "max", "min")) if is_spmm else "sum"
    layout = draw.choice(("", "", "", "misaligned", "pitched", "transposed"))
    what = bench_spmm.Product(call, of, features, reduce, values, heads, layout)
    build, moved = (functools.partial(f, dtype) for f in (what.build, what.moved))
    peers = () if step else None
    return Problem("spmm", call, what.name, dtype, None, build, moved, peers, bench_spmm.INDUCTOR_GATHERED)


def segments(draw: Draw, call: str) -> Problem:
    dtype, features = draw.dtype(), width(draw)
    of = graph(draw, draw.values(dtype, 2), features)
    of = dataclasses.replace(of, name="", columns=0)
    reduce = "" if call == "segment_softmax" else draw.choice(("sum", "sum", "mean", "max", "min"))
    layout = draw.choice(("", "", "misaligned", "pitched"))
    what = bench_segment.Segments(call, of, features, reduce, layout)
    build, moved = (functools.partial(f, dtype) for f in (what.build, what.moved))
    # Inductor calls ATen's segment_reduce.
    peers = () if call == "segment_reduce" else None
    return Problem("segment", call, what.name, dtype, None, build, moved, peers)


# The gradients of GAT's scores cancel in small graphs, so random problems have none.
GRAPHS = {
    **{f"{call}{step}": product for call in ("spmm", "graph_attention") for step in ("", " step")},
    **dict.fromkeys(("sddmm", "gat_attention"), product),
    **dict.fromkeys(("segment_reduce", "segment_softmax", "scatter_reduce"), segments),
}

# ---------------------------------------------------------------- convolutions


def conv1d(draw: Draw, backward: bool = False) -> Problem:
    """Depthwise, and with up to eight channels per group: what this library has kernels for."""
    most_values = min(draw.choice((1 << 20, 1 << 23, 1 << 25)), draw.largest // 8)
    problem = draw.choice(convolutions.sample(2, draw.randrange(1 << 30), most_values))  # one of each kind
    dtype, layout = draw.dtype(), draw.choice(("", "", "", "CL"))
    build = functools.partial(convolutions.operands, problem, layout, dtype, False, backward)
    name = " ".join(filter(None, (layout, problem.name)))
    return Problem("conv1d", "conv1d_backward" if backward else "conv1d", name, dtype, None, build, peers=())


def causal_conv1d(draw: Draw, backward: bool = False) -> Problem:
    """Depthwise, as state-space models have it: rows, or channels-last. Forward with silu."""
    dtype = draw.dtype()
    channels = draw.size(64, min(8192, draw.largest >> 10))
    length = draw.size(16, min(16384, draw.largest >> 10))
    batch = max(1, draw.values(dtype, 3 if backward else 2) // (channels * length))
    taps = draw.choice((3, 4, 4, 4, 7))
    problem = convolutions.depthwise(batch, channels, length, taps, padding=taps - 1, causal=True)
    layout = draw.choice(("", "CL"))

    if backward:
        build = functools.partial(convolutions.operands, problem, layout, dtype, False, True)
        name = " ".join(filter(None, (layout, problem.name)))
        return Problem("conv1d", "conv1d_backward", name, dtype, None, build, peers=())

    def build_forward(device: str, seed: int) -> tuple:
        x, weight, *rest = convolutions.operands(problem, layout, dtype, False, False, device, seed)
        return x, weight, Maker(device, dtype, seed + 1)(channels), *rest, "silu"

    name = " ".join(filter(None, (layout, problem.name, "silu")))
    return Problem("conv1d", "conv1d_act", name, dtype, None, build_forward, inductor=bench_conv1d.INDUCTOR_ACT)


def conv_transpose1d(draw: Draw, op: str = transposed.FORWARD) -> Problem:
    """The convolutions of conv1d() with input and output exchanged."""
    most_values = min(draw.choice((1 << 20, 1 << 23, 1 << 25)), draw.largest // 8)
    of = draw.choice(convolutions.sample(2, draw.randrange(1 << 30), most_values))  # one of each kind
    span = (of.taps - 1) * of.dilation
    least = (of.out_length - 1) * of.stride + span + 1
    padding = min(of.padding, (least - 1) // 2)
    more = draw.randrange(of.stride)
    sizes = of.out_channels, of.out_length, of.channels, of.taps, of.stride, padding, more, of.dilation, of.groups
    case = transposed.Transposed(of.batch, *sizes)
    dtype = draw.dtype()
    return Problem("conv1d", op, case.name, dtype, None, case.case(op, dtype).build, peers=())


def convolve(draw: Draw) -> Problem:
    dtype = draw.dtype()
    values = draw.values(dtype, 2, 1 << 28)
    length = draw.size(min(256, values), values)
    rows = max(1, values // length)
    taps = draw.size(2, min(length, 8192))
    shape = (length,) if rows == 1 else (rows, length)
    mode = draw.choice(("same", "full", "valid"))
    name = f"{text(shape)} with {taps} taps {mode}"
    return Problem("conv1d", "convolve", name, dtype, lambda m: (m(*shape), m(taps), mode), peers=())


FAMILIES: dict[str, Callable[[Draw], Problem]] = {
    "mul": mul,
    "reduce": reduce,
    **{call: functools.partial(scan, call=call) for call in ("cumsum", "linear_recurrence")},
    "selective_scan": selective_scan,
    "selective_scan backward": functools.partial(selective_scan, backward=True),
    **{
        call.replace("_backward", " backward"): functools.partial(norm, call=call)
        for call in ("layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward")
    },
    "upsample": upsample,
    "upsample backward": functools.partial(upsample, backward=True),
    "dot": dot,
    "dot_rows": dot_rows,
    "transpose2d": transpose2d,
    "index_add": index_add,
    "index_add deterministic": functools.partial(index_add, mode="deterministic"),
    "index_add accurate": functools.partial(index_add, mode="accurate"),
    "index_select": index_select,
    "index_select backward": functools.partial(index_select, backward=True),
    **{call: functools.partial(make, call=call) for call, make in GRAPHS.items()},
    "conv1d": conv1d,
    "conv1d backward": functools.partial(conv1d, backward=True),
    "causal_conv1d, silu": causal_conv1d,
    "causal_conv1d backward": functools.partial(causal_conv1d, backward=True),
    "conv_transpose1d": conv_transpose1d,
    "conv_transpose1d backward": functools.partial(conv_transpose1d, op=transposed.BACKWARD),
    "convolve": convolve,
}


def problems(family: str, count: int, seed: int) -> list[tuple[str, Case]]:
    """(room, case) of ``count`` different problems."""
    draw = Draw(f"{family} {seed}")
    found: dict[str, tuple[str, Case]] = {}
    while len(found) < count:
        problem = FAMILIES[family](draw)
        case = problem.case(family, inductor=len(found) % INDUCTOR_EVERY == 0)
        found.setdefault(case.title, (problem.room, case))
    return list(found.values())
