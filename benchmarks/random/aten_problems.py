"""Random problems of ATen's calls, for every operator that torch_ops.override replaces.

Most families are in benchmarks/random/problems.py, and get ATen's call here. The others are calls that gpuopt has no function for, such as
gradients through autograd, ``index_put`` and products of sparse CSR matrices. Sizes are drawn as there.

Sparse matrices and expanded indices are made inside a call, from dense arguments. So a row of a result has all arguments of its call, and
a test can ask for the decision about it again.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.room import Case
from benchmarks.random import problems
from benchmarks.random.problems import Draw, text
from benchmarks.rooms import convolutions, rooms
from benchmarks.rooms.graphs import structure
from benchmarks.rooms.spmm import with_gradients

F64, C64 = torch.float64, torch.complex64

# ---------------------------------------------------------------- calls


def _at_rows(index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return index.view(-1, *[1] * (source.dim() - 1)).expand_as(source)


def _csr(ptr: torch.Tensor, index: torch.Tensor, value: torch.Tensor, columns: int) -> torch.Tensor:
    sizes = (len(ptr) - 1, columns)
    return torch.sparse_compressed_tensor(
        ptr, index, value, sizes, layout=torch.sparse_csr, device=value.device, check_invariants=False
    )


def _sparse_mm(ptr, index, value, dense):
    return _csr(ptr, index, value, len(dense)) @ dense


def _sparse_mm_backward(ptr, index, value, dense, grad):
    """Also the gradient of the matrix."""
    a, dense = _csr(ptr, index, value, len(dense)).requires_grad_(), dense.detach().requires_grad_()
    of_a, of_dense = torch.autograd.grad(torch.sparse.mm(a, dense), [a, dense], grad)
    return of_a.values(), of_dense


def _sparse_addmm(addend, ptr, index, value, dense):
    return torch.addmm(addend, _csr(ptr, index, value, len(dense)), dense, beta=0.5, alpha=2)


def _sampled_addmm(ptr, index, value, left, right):
    at = _csr(ptr, index, value, right.shape[1])
    return torch.sparse.sampled_addmm(at, left, right, beta=0.5).values()


def _conv1d(x, weight, bias, stride, sides, dilation, groups):
    return torch.conv1d(x, weight, bias, stride, sides[0], dilation, groups)


BORDERS = [f"{mode}_pad{dims}d" for mode in ("reflection", "replication") for dims in (1, 2, 3)]
GROUPS, MOMENTUM, EPS = 32, 0.1, 1e-5


def _group_norm(x, weight, bias):
    return functional.group_norm(x, GROUPS, weight, bias, EPS)


def _batch_norm(x, weight, bias):
    return torch.ops.aten.native_batch_norm(x, weight, bias, None, None, True, MOMENTUM, EPS)[0]


def _cudnn_batch_norm(x, weight, bias):
    return torch.ops.aten.cudnn_batch_norm(x, weight, bias, None, None, True, MOMENTUM, EPS)[0]


CALLS: dict[str, Callable] = {
    "vdot": torch.vdot,
    "copy_": lambda out, x: out.copy_(x),
    "mul backward": with_gradients(torch.mul),
    "cumsum backward": with_gradients(torch.cumsum),
    "index_put": lambda x, index, values: x.index_put_((index,), values, accumulate=True),
    "index_put of pairs": lambda x, i, j, values: x.index_put_((i, j), values, accumulate=True),
    "x[index] backward": with_gradients(lambda x, index: x[index]),
    "gather backward": with_gradients(lambda x, index, like: x.gather(0, _at_rows(index, like))),
    "index_select and backward": with_gradients(lambda x, index: x.index_select(0, index)),
    "scatter_add": lambda x, index, source: x.scatter_add_(0, _at_rows(index, source), source),
    "scatter_reduce into": lambda x, index, source, reduce: x.scatter_reduce(
        0, _at_rows(index, source), source, reduce
    ),
    "embedding backward": with_gradients(lambda weight, index: functional.embedding(index, weight)),
    "embedding_dense_backward": lambda grad, index, rows: torch.ops.aten.embedding_dense_backward(
        grad, index, rows, -1, False
    ),
    "_embedding_bag": lambda table, index, offsets, mode: torch.ops.aten._embedding_bag(
        table, index, offsets, False, mode
    ),
    "embedding_bag_dense_backward": lambda grad, index, bag, sizes, rows, mode: (
        torch.ops.aten._embedding_bag_dense_backward(grad, index, bag, sizes, index[:0], rows, False, mode, None)
    ),
    "embedding_bag_per_sample_weights_backward": lambda grad, table, index, offsets, bag: (
        torch.ops.aten._embedding_bag_per_sample_weights_backward(grad, table, index, offsets, bag, 0)
    ),
    "constant_pad_nd": torch.ops.aten.constant_pad_nd.default,
    **{name: getattr(torch.ops.aten, name).default for name in BORDERS},
    **{f"{name} backward": with_gradients(getattr(torch.ops.aten, name).default) for name in BORDERS},
    "roll": lambda x, shift, *dims: torch.roll(x, [shift] * len(dims), dims),
    "cat": lambda dim, *tensors: torch.cat(tensors, dim),
    "convolution backward": convolutions.autotuned(with_gradients(_conv1d)),
    "sparse mm": _sparse_mm,
    "sparse mm backward": _sparse_mm_backward,
    "sparse addmm": _sparse_addmm,
    "sparse sampled_addmm": _sampled_addmm,
    "native_group_norm": _group_norm,
    "native_group_norm backward": with_gradients(_group_norm),
    "native_batch_norm": _batch_norm,
    "native_batch_norm backward": with_gradients(_batch_norm),
    "cudnn_batch_norm": _cudnn_batch_norm,
    "cudnn_batch_norm backward": with_gradients(_cudnn_batch_norm),
}


def _repeatable(function: Callable) -> Callable:
    def run(*args):
        torch.use_deterministic_algorithms(True)
        try:
            return function(*args)
        finally:
            torch.use_deterministic_algorithms(False)

    return run


@functools.cache
def _calls_of_rooms() -> dict[str, Callable]:
    calls = [item for room in rooms().values() for item in room.calls().items()]
    return {name: call.aten for name, call in calls if call.has_aten}


def function(op: str, call: str) -> Callable:
    """ATen's call of a family."""
    found = CALLS[call] if call in CALLS else _calls_of_rooms()[call]
    return _repeatable(found) if "deterministic" in op else found


# ---------------------------------------------------------------- problems


def _case(op: str, name: str, dtype: torch.dtype, build: Callable[[Maker], tuple]) -> Case:
    return Case(op, op, name, DTYPE_NAMES[dtype], lambda device, seed: build(Maker(device, dtype, seed)))


def _floating(draw: Draw, family: str) -> Case:
    """A problem of another family with a floating-point dtype."""
    while True:
        case = problems.FAMILIES[family](draw).case(family, inductor=False)
        if case.dtype in ("f32", "bf16", "f16"):
            return case


def amin(draw: Draw, op: str) -> Case:
    while True:
        case = _floating(draw, "reduce")
        if case.call == "max":
            return dataclasses.replace(case, op=op, call="min", name=case.name.replace("max", "min", 1))


def backward(draw: Draw, op: str) -> Case:
    """A family's call and its gradients. The last argument is the gradient of the result."""
    family = op.removesuffix(" backward")
    case = _floating(draw, family)

    def build(device: str, seed: int) -> tuple:
        args = case.build(device, seed)
        shape = torch.broadcast_shapes(*(arg.shape for arg in args if isinstance(arg, torch.Tensor)))
        return (*args, Maker(device, args[0].dtype, seed + 1)(*shape))

    return dataclasses.replace(case, op=op, call=op, build=build)


def vdot(draw: Draw, op: str) -> Case:
    dtype = draw.choice((F32, BF16, F64, C64, C64))
    values = draw.values(dtype, 2)
    return _case(op, f"({values})", dtype, lambda m: (m(values), m(values)))


def copy_(draw: Draw, op: str) -> Case:
    """A dense destination, and a source whose dimensions lie in another order."""
    dtype = draw.dtype()
    values, rank = draw.values(dtype, 2), draw.choice((2, 2, 3, 4))
    shape = [draw.size(1, max(2, int(values ** (1.5 / rank)))) for _ in range(rank - 1)]
    shape.append(max(1, values // math.prod(shape)))
    order = draw.sample(range(rank), rank)
    inverse = [order.index(d) for d in range(rank)]
    name = f"{text(tuple(shape))} in order {text(tuple(order))}"
    return _case(op, name, dtype, lambda m: (m.empty(*shape), m(*(shape[d] for d in order)).permute(inverse)))


def rows_at_an_index(draw: Draw, op: str) -> Case:
    """Rows of a tensor of ``bins`` rows, named by an index of ``entries``, and what is added to them or read from them."""
    dtype = draw.dtype()
    what = problems.rows_at_an_index(draw, dtype)
    reduce = draw.choice(("mean", "amax", "amin")) if op.startswith("scatter_reduce") else None
    batch = draw.size(1, min(64, what.entries)) if op.startswith("embedding") else 1

    def build(device: str, seed: int) -> tuple:
        into, _, index, source = what.build(dtype, device, seed)
        if op.startswith("embedding"):
            into, source = into.view(len(into), -1), source.view(len(source), -1)
            count = len(index) // batch * batch
            index, source = index[:count].view(batch, -1), source[:count].unflatten(0, (batch, -1))
            return (into, index, source) if op.endswith(" backward") else (source, index, len(into))
        if op == "gather backward":
            return into, index, torch.empty_like(source, dtype=torch.int8), source
        return (into, index, source) if reduce is None else (into, index, source, reduce)

    name = " ".join(filter(None, (what.name, reduce, f"in {batch} lists" if batch > 1 else "")))
    return Case(op, op, name, DTYPE_NAMES[dtype], build, moved=functools.partial(what.moved, dtype))


def bags(draw: Draw, op: str) -> Case:
    """Bags of one entry to many, all of about one length, and a table whose rows they name."""
    dtype, mode = draw.dtype(), draw.choice((0, 0, 1))
    what = problems.rows_at_an_index(draw, dtype)
    length = min(what.entries, draw.choice((1, draw.size(2, 64), draw.size(16, 1024))))
    count = what.entries // length

    def build(device: str, seed: int) -> tuple:
        table, _, index, _ = what.build(dtype, device, seed)
        m, table = Maker(device, dtype, seed + 1), table.view(len(table), -1)
        lengths = torch.full((count,), length, device=device)
        lengths[-1] += what.entries - length * count
        bag = torch.arange(count, device=device).repeat_interleave(lengths, output_size=what.entries)
        offsets, grad = torch.arange(0, length * count, length, device=device), m(count, table.shape[1])
        return {
            "_embedding_bag": (table, index, offsets, mode),
            "embedding_bag_dense_backward": (grad, index, bag, lengths, len(table), mode),
            "embedding_bag_per_sample_weights_backward": (grad, table, index, offsets, bag),
        }[op]

    return Case(op, op, f"{what.name} in bags of {length}, mode {mode}", DTYPE_NAMES[dtype], build)


def pairs(draw: Draw, op: str) -> Case:
    """Two indices in neighbouring dimensions."""
    dtype, width = draw.dtype(), draw.choice((1, draw.size(2, 64), draw.size(16, 1024)))
    entries = max(1, draw.values(dtype, 2, 1 << 29) // width)
    sides = [draw.size(1, max(1, int(math.sqrt(2 * entries)))) for _ in range(2)]
    shape = (*sides, width) if width > 1 else tuple(sides)

    def build(m: Maker) -> tuple:
        indices = [m(entries, dtype=torch.int64) if m.device == "meta" else _below(m, side, entries) for side in sides]
        return m(*shape), *indices, m(entries, *shape[2:])

    return _case(op, f"{text(shape)} at {entries}", dtype, build)


def _below(m: Maker, limit: int, count: int) -> torch.Tensor:
    return torch.randint(limit, (count,), device=m.device, generator=m.generator)


def segments_backward(draw: Draw, op: str) -> Case:
    call = op.replace("backward", "step")
    return dataclasses.replace(problems.segments(draw, call).case(op, inductor=False), call=call)


def convolution_backward(draw: Draw, op: str) -> Case:
    """The gradients of input, weight and bias."""
    case = problems.conv1d(draw, backward=True).case(op, inductor=False)

    def build(device: str, seed: int) -> tuple:
        grad, x, weight, *sizes = case.build(device, seed)
        return x, weight, Maker(device, weight.dtype, seed + 1)(len(weight)), *sizes, grad

    return dataclasses.replace(case, call=op, build=build)


def sparse(draw: Draw, op: str) -> Case:
    """Products of a CSR matrix with values. ATen has no gradients and no sampled products of half types."""
    dtype = F32 if op.endswith(("backward", "sampled_addmm")) else draw.dtype()
    features = problems.width(draw)
    of = problems.graph(draw, draw.values(dtype, 3), features)
    # cuSPARSE refuses matrices with more entries than cells.
    columns = max(of.columns, math.ceil(of.entries / of.rows))
    of = dataclasses.replace(of, columns=columns, name=text((of.rows, columns, of.entries)))

    def build(device: str, seed: int) -> tuple:
        m, a = Maker(device, dtype, seed), structure(of, device, seed)
        matrix = (a.ptr, a.index, m(of.entries))
        if op == "sparse sampled_addmm":
            return *matrix, m(of.rows, features), m(columns, features).t()
        if op == "sparse addmm":
            return m(of.rows, features), *matrix, m(columns, features)
        made = *matrix, m(columns, features)
        return (*made, m(of.rows, features)) if op.endswith("backward") else made

    return Case(op, op, f"{of.title} x {features}", DTYPE_NAMES[dtype], build)


def channel_norm(draw: Draw, op: str) -> Case:
    """A layer of an image model. PyTorch calls cuDNN for batch norms of float32, and its own kernel for half types."""
    dtype = draw.choice((BF16, BF16, F16)) if op.startswith("native_batch") else draw.dtype()
    dtype = F32 if op.startswith("cudnn") else dtype
    is_backward = op.endswith(" backward")
    values = draw.values(dtype, 5 if is_backward else 2)
    channels = draw.choice((32, 64, 64, 128, 256, 320, 512, 1024))
    side = draw.choice((7, 14, 28, 56, 112, draw.size(4, 256)))
    shape = (max(1, values // (channels * side * side)), channels, side, side)
    is_last = "batch" in op and draw.random() < 0.5
    of_weights = F32 if "batch" in op else dtype

    def build(m: Maker) -> tuple:
        tensor = m.channels_last if is_last else m
        operands = (tensor(*shape), *(m(channels, dtype=of_weights) for _ in range(2)))
        return (*operands, tensor(*shape)) if is_backward else operands

    return _case(op, f"{text(shape)}{' channels last' if is_last else ''}", dtype, build)


def padded(draw: Draw, op: str) -> Case:
    """Signals, images and volumes with narrow borders, and signals with the wide borders of a transform."""
    dtype, is_backward = draw.dtype(), op.endswith(" backward")
    values = draw.values(dtype, 4 if is_backward else 2)
    dims = draw.choice((1, 1, 2)) if op == "constant_pad_nd" else int(op.removesuffix(" backward")[-2])
    if dims == 1:
        channels = draw.choice((1, 80, 256, draw.size(2, 512)))
        sizes = [draw.size(32, max(32, min(1 << 19, values // channels)))]
    elif dims == 2:
        _, channels, *sizes = draw.image(values)
    else:
        channels, sizes = draw.choice((1, 8, 32)), [draw.size(4, 64) for _ in range(3)]
    shape = (max(1, values // (channels * math.prod(sizes))), channels, *sizes)
    widest = min(sizes) - 1
    width = min(widest, draw.choice((1, 1, 2, 3, 5, 200 if dims == 1 else 1)))
    pad = [width, draw.choice((width, max(0, width - 1)))] * dims
    if op == "constant_pad_nd" and draw.random() < 0.2:
        pad = [-min(width, widest // 4) for _ in pad]  # the gradient of a pad

    def build(m: Maker) -> tuple:
        if op == "constant_pad_nd":
            return m(*shape), pad, 0
        result = [n + pad[2 * k] + pad[2 * k + 1] for k, n in enumerate(shape[:1:-1])][::-1]
        return (m(*shape), pad, m(*shape[:2], *result)) if is_backward else (m(*shape), pad)

    return _case(op, f"{text(shape)} by {text(pad[:2])}", dtype, build)


def roll(draw: Draw, op: str) -> Case:
    """The windows of a vision transformer, or rows."""
    dtype = draw.dtype()
    values = draw.values(dtype)
    if draw.random() < 0.6:
        side, channels = (
            draw.choice((14, 28, 56, draw.size(7, 64))),
            draw.choice((96, 128, 192, 384, draw.size(16, 512))),
        )
        shape, shift, dims = (
            (max(1, values // (side * side * channels)), side, side, channels),
            -min(3, side - 1),
            (1, 2),
        )
    else:
        length = draw.size(64, max(64, min(1 << 20, values)))
        shape, shift, dims = (max(1, values // length), length), draw.size(1, length - 1), (1,)
    return _case(op, f"{text(shape)} by {shift}", dtype, lambda m: (m(*shape), shift, *dims))


def cat(draw: Draw, op: str) -> Case:
    """Features behind coordinates, pairs of rows of any width, and channels of images of any size."""
    dtype, kind = draw.dtype(), draw.choice(("points", "rows", "images"))
    values = draw.values(dtype)
    if kind == "images":
        side, channels = (
            draw.choice((7, 14, 28, draw.size(5, 128))),
            [draw.size(8, 256) for _ in range(draw.choice((2, 2, 3, 6)))],
        )
        count = max(1, values // (side * side * sum(channels)))
        shapes, dim = [(count, c, side, side) for c in channels], 1
    else:
        widths = [3, draw.size(16, 256)] if kind == "points" else [draw.size(8, 256) for _ in range(2)]
        shapes, dim = [(max(1, values // sum(widths)), width) for width in widths], -1
    name = " + ".join(map(text, shapes))
    return _case(op, name, dtype, lambda m: (dim, *(m(*shape) for shape in shapes)))


ADDED: dict[str, Callable[[Draw, str], Case]] = {
    "amin": amin,
    "vdot": vdot,
    "copy_": copy_,
    "mul backward": backward,
    "cumsum backward": backward,
    **dict.fromkeys(
        (
            "index_put", "x[index] backward", "gather backward", "index_select and backward", "scatter_add",
            "scatter_reduce into", "embedding backward", "embedding_dense_backward",
        ),
        rows_at_an_index,
    ),
    **dict.fromkeys(
        ("_embedding_bag", "embedding_bag_dense_backward", "embedding_bag_per_sample_weights_backward"), bags
    ),
    **dict.fromkeys(("constant_pad_nd", *BORDERS, *(f"{name} backward" for name in BORDERS)), padded),
    "roll": roll,
    "cat": cat,
    "index_put of pairs": pairs,
    "segment_reduce backward": segments_backward,
    "scatter_reduce backward": segments_backward,
    "convolution backward": convolution_backward,
    **dict.fromkeys(("sparse mm", "sparse mm backward", "sparse addmm", "sparse sampled_addmm"), sparse),
    **dict.fromkeys(
        (f"{name}{direction}" for name in ("native_group_norm", "native_batch_norm", "cudnn_batch_norm") for direction in ("", " backward")),
        channel_norm,
    ),
}  # fmt: skip
# ATen has no selective scan. On the CPU, "ATen" of sparse products is another call than on CUDA; "sparse mm" stands for it.
LEFT_OUT = ("selective_scan", "selective_scan backward", "spmm", "spmm step", "sddmm")
FAMILIES = [name for name in problems.FAMILIES if name not in LEFT_OUT] + list(ADDED)


def draw_cases(family: str, count: int, seed: int) -> list[Case]:
    """``count`` different problems."""
    if family not in ADDED:
        return [case for _, case in problems.problems(family, count, seed)]
    draw = Draw(f"{family} {seed}")
    found: dict[str, Case] = {}
    while len(found) < count:
        case = ADDED[family](draw, family)
        found.setdefault(case.title, case)
    return list(found.values())
