"""Random calls of every operator of ATen that torch_ops.override replaces, for benchmarks/random/override.py and near_range.py."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from benchmarks.random.views import Draw, View
from benchmarks.references.upsample import aten_cuda_windows_agree, axes_of

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """How a call is computed. A wide call has float64 in place of floating-point dtypes. An absolute call also has no signs: its
    result bounds every sum of the terms of the call."""

    wide: bool = False
    absolute: bool = False

    def dtype(self, dtype: torch.dtype | None) -> torch.dtype | None:
        if not self.wide or dtype is None:
            return dtype
        return torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype

    def number(self, value: float) -> float:
        return abs(value) if self.absolute else value

    def tensor(self, view: View, tensor: torch.Tensor) -> torch.Tensor:
        wide = tensor.to(self.dtype(tensor.dtype))
        return wide.abs() if self.absolute and not view.is_index and tensor.dtype != torch.bool else wide


@dataclasses.dataclass
class Call:
    """A random call.

    Args:
        function: computes the call from an Arithmetic and a tensor for each view.
        written: the view that the call writes and returns.
        exact: whether results and gradients have ATen's bits. Elements are moved, or rounded once.
        repeatable: whether gpuopt gives the same bits at every call, gradients included. Atomic additions do not.
        differentiable: whether gradients are defined and the values of an absolute call bound them.
        other_gradient: whether ATen's gradient is not that of its forward, and so not gpuopt's.
        is_gradient: whether the result is that gradient.
    """

    form: str
    function: Callable
    views: list[View]
    written: int | None = None
    exact: bool = False
    repeatable: bool = True
    differentiable: bool = True
    other_gradient: bool = False
    is_gradient: bool = False

    def __str__(self) -> str:
        return f"{self.form}, {'; '.join(map(str, self.views))}"


def _shape_of(function: Callable, *views: View) -> tuple[int, ...]:
    """The shape of a result. A call that ATen refuses gets any shape."""
    try:
        return tuple(function(*(torch.empty(v.sizes, dtype=v.dtype, device="meta") for v in views)).shape)
    except Exception:
        return (1,)


def _with_out(d: Draw, form: str, function: Callable, operands: list[View], dtype: torch.dtype, **more) -> Call:
    """A call of `function` with out=, which is the last view."""
    out = d.operand(_shape_of(functools.partial(function, Arithmetic()), *operands), dtype, written=True)

    def call(a, *tensors):
        return function(a, *tensors[:-1], out=tensors[-1])

    return Call(f"{form}(out=)", call, [*operands, out], written=len(operands), differentiable=False, **more)


# ---------------------------------------------------------------- copies


def _orders(d: Draw, rank: int) -> tuple[list[int], list[int]]:
    """Orders of dimensions of a destination and a source. Most are transposed to each other."""
    order = d.order(rank)
    k = d.randrange(1, rank) if rank > 1 else 0
    return order, d.order(rank) if d.chance(0.3) else [*order[k:], *order[:k]]


def copy_(d: Draw) -> Call:
    shape, dtype = d.shape(0 if d.chance(0.1) else 2), d.dtype()
    to, source = _orders(d, len(shape))
    views = [d.operand(shape, dtype, order=to, written=True)]
    if d.chance(0.1):
        shape, source = shape[1:], None
    views.append(d.operand(shape, dtype if d.chance(0.85) else d.dtype(), order=source))
    # The gradient of a source that is repeated is a sum.
    exact = views[0].sizes == views[1].sizes
    return Call("copy_", lambda a, dst, src: dst.copy_(src), views, written=0, exact=exact)


def clone(d: Draw) -> Call:
    x = d.operand(d.shape(0 if d.chance(0.1) else 2), d.dtype())
    formats = [torch.contiguous_format, torch.contiguous_format, torch.preserve_format]
    formats += [torch.channels_last] * (x.rank == 4) + [torch.channels_last_3d] * (x.rank == 5)
    to, kind = d.choice(formats), d.randrange(4)
    if kind == 0:
        return Call(f"contiguous({to})", lambda a, x: x.contiguous(memory_format=to), [x], exact=True)
    if kind == 1:
        return Call(f"clone({to})", lambda a, x: x.clone(memory_format=to), [x], exact=True)
    if kind == 2:
        dtype = d.dtype()
        return Call(f"to({dtype}, {to})", lambda a, x: x.to(a.dtype(dtype), memory_format=to), [x], exact=True)
    return Call("mT.contiguous", lambda a, x: x.mT.contiguous(), [x], exact=True)


# ---------------------------------------------------------------- sums, extrema and products


def _reduction(name: str) -> Callable[[Draw], Call]:
    op, is_sum = getattr(torch, name), name in ("sum", "mean")

    def family(d: Draw) -> Call:
        x = d.operand(d.shape(), d.dtype())
        dims, keepdim = d.dims(x.rank), d.chance(0.4)
        dtype = d.choice((torch.float32, torch.float64, torch.bfloat16)) if is_sum and d.chance(0.2) else None

        def function(a, x, **out):
            return op(x, dims, keepdim, **({"dtype": a.dtype(dtype)} if dtype else {}), **out)

        form = f"{name} of {dims}{', keepdim' * keepdim}{f', {dtype}' if dtype else ''}"
        if d.chance(0.3):
            exact = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64 if is_sum else x.dtype
            return _with_out(d, form, function, [x], dtype or exact, exact=not is_sum)
        return Call(form, function, [x], exact=not is_sum)

    return family


def cumsum(d: Draw) -> Call:
    x = d.operand(d.shape(), d.dtype())
    dim = d.randrange(-max(x.rank, 1), max(x.rank, 1) + d.chance(0.05))
    dtype = d.choice((torch.float32, torch.float64, torch.bfloat16)) if d.chance(0.2) else None

    def function(a, x, **out):
        return torch.cumsum(x, dim, **({"dtype": a.dtype(dtype)} if dtype else {}), **out)

    form = f"cumsum of {dim}{f', {dtype}' if dtype else ''}"
    if d.chance(0.2):
        out_dtype = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64
        return _with_out(d, form, function, [x], dtype or out_dtype)
    return Call(form, function, [x])


def mul(d: Draw) -> Call:
    shape, dtype = d.shape(), d.dtype()
    shapes = [shape, tuple(1 if d.chance(0.25) else n for n in shape)[d.choice((0, 0, 0, 1)) :]]
    kind = d.choice(("mul", "mul", "mul_", "out"))
    if kind != "mul_":
        d.shuffle(shapes)
    x = d.operand(shapes[0], dtype, written=kind == "mul_")
    y = d.operand(shapes[1], dtype if d.chance(0.8) else d.dtype())
    if d.device == "cpu" and x.dtype != y.dtype and kind == "mul":
        kind = "out"  # gpuopt's CPU kernel gives a product of two dtypes the layout that it has on CUDA
    if kind == "mul_":
        return Call("mul_", lambda a, x, y: x.mul_(y), [x, y], written=0)
    if kind == "out":
        return _with_out(
            d, "mul", lambda a, x, y, **out: torch.mul(x, y, **out), [x, y], torch.promote_types(x.dtype, y.dtype)
        )
    return Call("mul", lambda a, x, y: x * y, [x, y])


def _dot(name: str) -> Callable[[Draw], Call]:
    op = getattr(torch, name)

    def family(d: Draw) -> Call:
        dtype = torch.complex64 if d.chance(0.4) else d.dtype()
        size = (d.size(1, d.most),)
        x, y = d.operand(size, dtype), d.operand(size, dtype)

        def function(a, x, y, **out):
            return op(x, y, **out)

        return _with_out(d, name, function, [x, y], dtype) if d.chance(0.3) else Call(name, function, [x, y])

    return family


# ---------------------------------------------------------------- upsampling


def _other_gradient(d: Draw, input_size, output_size, scales, mode: str) -> bool:
    """ATen's CUDA kernel of the gradient shifts values across borders of pixels (docs/operators/upsample_nearest2d.md)."""
    axes = axes_of(input_size, output_size, scales)
    return d.device == "cuda" and not all(aten_cuda_windows_agree(*axis, mode == "nearest-exact") for axis in axes)


def _upsample(name: str) -> Callable[[Draw], Call]:
    mode = "nearest-exact" if "exact" in name else "nearest"

    def family(d: Draw) -> Call:
        x = d.operand(d.shape(4, 4), d.dtype())
        if d.chance(0.4):
            scale = [d.choice((2.0, 3.0, 0.5, 1.0, d.uniform(0.3, 4))) for _ in range(2)]
            size = [int(n * s) for n, s in zip(x.sizes[-2:], scale)]
            call = Call(f"{mode} by {scale}", lambda a, x: F.interpolate(x, scale_factor=scale, mode=mode), [x])
        else:
            scale, size = [None, None], [d.size(1, 2 * max(n, 1)) for n in x.sizes[-2:]]
            call = Call(f"{mode} to {size}", lambda a, x: F.interpolate(x, size=size, mode=mode), [x])
        if len(x.sizes) == 4 and min(*x.sizes, *size) > 0:
            call.other_gradient = _other_gradient(d, x.sizes, size, scale, mode)
        return call

    return family


def _upsample_backward(name: str) -> Callable[[Draw], Call]:
    op, mode = getattr(aten, name), "nearest-exact" if "exact" in name else "nearest"

    def family(d: Draw) -> Call:
        grad = d.operand(d.shape(4, 4), d.dtype())
        size = [*grad.sizes[:2], *(d.size(1, 2 * max(n, 1)) for n in grad.sizes[2:4])]
        call = Call(f"{name} to {size}", lambda a, grad: op(grad, list(grad.shape[2:]), size, None, None), [grad])
        if len(grad.sizes) == 4 and min(*grad.sizes, *size) > 0:
            call.other_gradient = _other_gradient(d, size, grad.sizes[2:], [None, None], mode)
            call.is_gradient = True
        return call

    return family


# ---------------------------------------------------------------- rows at an index


def index_add(d: Draw) -> Call:
    shape, dtype = d.shape(0, 6), d.dtype()
    dim, kind = d.dim(len(shape)), d.choice(("new", "new", "inplace", "inplace", "out"))
    rows = shape[dim] if -len(shape) <= dim < len(shape) else 1
    entries = d.size(1, max(1, 2 * rows)) if rows else 0
    x = d.operand(shape, dtype, written=kind == "inplace", indexed=True)
    index = d.index((entries,), rows)
    source = list(shape)
    if -len(shape) <= dim < len(shape):
        source[dim] = entries
    source = d.operand(source, dtype if d.chance(0.96) else d.dtype())
    alpha = d.choice((1, 1, 2, -1, 0.5)) if dtype.is_floating_point else d.choice((1, 2))
    form = f"index_add, dim {dim}, alpha {alpha}"

    def function(a, x, index, source, **out):
        return torch.index_add(x, dim, index, source, alpha=a.number(alpha), **out)

    if kind == "out":
        return _with_out(d, form, function, [x, index, source], dtype, repeatable=False)
    if kind == "inplace":
        return Call(
            f"{form}, in place",
            lambda a, x, index, source: x.index_add_(dim, index, source, alpha=a.number(alpha)),
            [x, index, source],
            written=0,
            repeatable=False,
        )
    return Call(form, function, [x, index, source], repeatable=False)


def _scatter(d: Draw, form: str, function: Callable, in_place: Callable, differentiable: bool = True) -> Call:
    shape, dtype = d.shape(1, 5), d.dtype()
    dim, is_new = d.dim(len(shape)), d.chance(0.5)
    rows = shape[dim] if -len(shape) <= dim < len(shape) else 1
    source = list(shape)
    if -len(shape) <= dim < len(shape):
        source[dim] = d.size(1, max(1, 2 * rows)) if rows else 0
    x = d.operand(shape, dtype, written=not is_new, indexed=True)
    index_shape = [n if d.chance(0.1) or k == dim % max(len(shape), 1) else 1 for k, n in enumerate(source)]
    index = d.index(index_shape, rows, only_long=d.chance(0.95))
    source = d.operand(source, dtype if d.chance(0.96) else d.dtype())
    sizes = source.sizes

    def call(a, x, index, source):
        return (function if is_new else in_place)(x, dim, index.expand(sizes), source)

    return Call(f"{form}{'' if is_new else '_'}, dim {dim}", call, [x, index, source], None if is_new else 0,
                repeatable=False, differentiable=differentiable)  # fmt: skip


def scatter_add(d: Draw) -> Call:
    return _scatter(d, "scatter_add", torch.scatter_add, torch.Tensor.scatter_add_)


def scatter_reduce(d: Draw) -> Call:
    reduce, include = d.choice(("sum", "sum", "sum", "mean", "amax", "amin", "prod")), d.chance(0.85)
    more = {"reduce": reduce, "include_self": include}
    return _scatter(
        d,
        f"scatter_reduce {reduce}, include_self={include}",
        functools.partial(torch.scatter_reduce, **more),
        functools.partial(torch.Tensor.scatter_reduce_, **more),
        differentiable=reduce == "sum",
    )


def segment_reduce(d: Draw) -> Call:
    # ATen divides by the number of entries.
    shape, dtype = [max(n, 1) for n in d.shape(1, 4)], d.dtype()
    segments, with_offsets = d.size(1, max(1, 2 * shape[0])), d.chance(0.5)
    reduce, initial = d.choice(("sum", "sum", "mean", "mean", "max", "min", "prod")), d.choice((None, None, 0, 1.5))
    x = d.operand(shape, dtype, indexed=True)
    index = d.index((shape[0],), segments)

    def call(a, x, index):
        lengths = torch.bincount(index, minlength=segments)
        start = None if initial is None else a.number(initial)
        if with_offsets:
            offsets = F.pad(lengths.cumsum(0), (1, 0)).clamp(max=x.shape[0])
            return torch.segment_reduce(x, reduce, offsets=offsets, initial=start)
        return torch.segment_reduce(x, reduce, lengths=lengths, initial=start)

    form = f"segment_reduce {reduce}, {segments} {'offsets' if with_offsets else 'lengths'}, initial={initial}"
    return Call(form, call, [x, index], differentiable=reduce in ("sum", "mean"))


def _indices(d: Draw, shape: tuple[int, ...]) -> tuple[int, list[View], tuple[int, ...]]:
    """The first indexed dimension, the indices of it and of the next dimensions, and the shape of what is indexed."""
    first = d.randrange(len(shape)) if d.chance(0.5) else 0
    count = min(d.choice((1, 1, 1, 2, 3)), len(shape) - first)
    row = math.prod(n for k, n in enumerate(shape) if not first <= k < first + count)
    most = max(1, min(1024, 2 * d.most // max(row, 1)))
    of = d.choice(
        ((), (d.size(1, most),), (d.size(1, most),), (d.size(1, min(most, 8)), d.size(1, max(1, most // 32))))
    )
    if 0 in shape[first : first + count]:
        of = (0,)
    indices = [d.index(of, shape[k], negative=True) for k in range(first, first + count)]
    return first, indices, (*shape[:first], *of, *shape[first + count :])


def index_put(d: Draw) -> Call:
    shape, dtype = d.shape(1, 5), d.dtype()
    is_new = d.chance(0.4)
    x = d.operand(shape, dtype, written=not is_new, indexed=True)
    first, indices, of = _indices(d, shape)
    if first > 0 and x.sizes[first - 1] == 1:
        # ATen's CUDA kernel takes this stride for that of all dimensions before the index (Indexing.cu, computeLinearIndex).
        strides = torch.empty(x.sizes, device="meta").stride()
        low, high = (0, 2) if x.dtype == torch.bool else (-8, 9)
        x = dataclasses.replace(x, strides=strides).fill(d.device, d.values, low, high)
    values = d.operand(of if d.chance(0.85) else of[d.randrange(len(of) + 1) :], dtype)
    op = aten.index_put if is_new else aten.index_put_

    def call(a, x, values, *indices):
        return op(x, [None] * first + list(indices), values, True)

    form = f"index_put{'' if is_new else '_'} after {first} dimensions"
    return Call(form, call, [x, values, *indices], None if is_new else 0)


def index(d: Draw) -> Call:
    shape = d.shape(1, 5)
    x = d.operand(shape, d.dtype(), indexed=True)
    first, indices, _ = _indices(d, shape)
    return Call(
        f"x[i] after {first} dimensions", lambda a, x, *i: aten.index(x, [None] * first + list(i)), [x, *indices]
    )


def _table(d: Draw) -> tuple[int, int, tuple[int, ...]]:
    """Rows and columns of a table of embeddings, and the shape of an index."""
    columns = d.size(1, 256)
    of = d.choice(((d.size(1, 4096),), (d.size(1, 4096),), (d.size(1, 16), d.size(1, 128)), (), (0,)))
    return d.size(1, max(1, d.most // columns)), columns, of


def embedding(d: Draw) -> Call:
    rows, columns, of = _table(d)
    padding, by_count = d.randrange(rows) if d.chance(0.3) else None, d.chance(0.1)
    w, index = d.operand((rows, columns), d.dtype(), indexed=True), d.index(of, rows)
    return Call(
        f"embedding, padding {padding}, by_count={by_count}",
        lambda a, w, index: F.embedding(index, w, padding, scale_grad_by_freq=by_count),
        [w, index],
    )


def embedding_bag(d: Draw) -> Call:
    """Bags of a matrix, or of a vector with an offset for each so many entries."""
    rows, columns, _ = _table(d)
    dtype, mode, width = d.dtype(), d.choice(("sum", "sum", "mean", "max")), d.size(1, 64)
    padding = d.randrange(rows) if d.chance(0.3) else None
    of = d.choice(((d.size(1, 2048),), (d.size(1, 64), d.size(1, 64))))
    views = [d.operand((rows, columns), dtype, indexed=True), d.index(of, rows)]
    if mode == "sum" and d.chance(0.4):
        views.append(d.operand(of, dtype))

    def call(a, w, index, value=None):
        starts = torch.arange(0, len(index), width, device=index.device) if index.dim() == 1 else None
        return F.embedding_bag(index, w, starts, mode=mode, per_sample_weights=value, padding_idx=padding)

    return Call(f"embedding_bag, {mode}, padding {padding}, of {width}", call, views, repeatable=mode != "max")


def embedding_dense_backward(d: Draw) -> Call:
    rows, columns, of = _table(d)
    padding, by_count = d.randrange(-1, rows), d.chance(0.1)
    grad, index = d.operand((*of, columns), d.dtype()), d.index(of, rows)
    return Call(
        f"embedding_dense_backward, padding {padding}, by_count={by_count}",
        lambda a, grad, index: aten.embedding_dense_backward(grad, index, rows, padding, by_count),
        [grad, index],
        differentiable=False,
    )


def index_select(d: Draw) -> Call:
    shape, dtype = d.shape(0, 6), d.dtype()
    dim = 0 if d.chance(0.6) else d.dim(len(shape))
    rows = shape[dim] if -len(shape) <= dim < len(shape) else 1
    x = d.operand(shape, dtype, order=None if d.chance(0.5) else range(len(shape) - 1, -1, -1), indexed=True)
    index = d.index((d.size(1, 4 * max(rows, 1)) if rows else 0,), rows)

    def function(a, x, index, **out):
        return torch.index_select(x, dim, index, **out)

    if d.chance(0.25):
        return _with_out(d, f"index_select, dim {dim}", function, [x, index], dtype, exact=True)
    return Call(f"index_select, dim {dim}", function, [x, index], repeatable=False)


# ---------------------------------------------------------------- sparse matrices


def _sparse(name: str) -> Callable[[Draw], Call]:
    op = {"mm": torch.mm, "addmm": torch.addmm, "sampled_addmm": torch.sparse.sampled_addmm}[name]

    def family(d: Draw) -> Call:
        dtype = d.choice(d.floating)
        rows, columns, features = d.size(1, 256), d.size(1, 256), d.size(1, 64)
        entries = 0 if d.chance(0.1) else d.size(1, min(rows * columns, d.most // 2))
        views = [d.index((entries,), rows), d.index((entries,), columns), d.operand((entries,), dtype, indexed=True)]
        if name == "sampled_addmm":
            views.append(d.operand((rows, features), dtype))
        elif name == "addmm":
            views.append(d.operand((rows, features) if d.chance(0.8) else (features,), dtype))
        sizes = (features, columns) if name == "sampled_addmm" else (columns, features)
        views.append(d.operand(sizes, dtype if d.chance(0.96) else d.dtype()))
        beta, alpha = d.choice((0, 1, 0.5)), d.choice((1, -2, 2**-7))

        def matrix(row, column, value):
            """In layout CSR, with an entry for each cell that the indices name. cuSPARSE takes strided values for dense ones."""
            cell = torch.unique(row.long() * columns + column.long())
            ptr = F.pad(torch.bincount(cell // columns, minlength=rows).cumsum(0), (1, 0)).to(row.dtype)
            of_cells = value.narrow(0, 0, len(cell)).contiguous()
            return torch.sparse_csr_tensor(ptr, (cell % columns).to(row.dtype), of_cells, (rows, columns))

        def call(a, row, column, value, *dense):
            at = matrix(row, column, value)
            if name == "mm":
                return op(at, *dense)
            factors = {"beta": a.number(beta), "alpha": a.number(alpha)}
            return op(dense[0], at, dense[1], **factors) if name == "addmm" else op(at, *dense, **factors).values()

        form = f"sparse {name}" if name == "mm" else f"sparse {name}, beta {beta}, alpha {alpha}"
        # ATen's gradient of sampled_addmm fails in every dtype.
        return Call(f"{form}, ({rows}, {columns})", call, views, differentiable=name != "sampled_addmm")

    return family


# ---------------------------------------------------------------- convolutions


def convolution(d: Draw) -> Call:
    groups, of_group, outputs = (
        d.choice((1, 1, d.size(1, 64))),
        d.choice((1, 1, 1, d.size(1, 8))),
        d.choice((1, 1, 1, 2, 3)),
    )
    if groups == 1 and d.chance(0.5):
        of_group, outputs = d.size(1, 32), d.size(1, 32)
    taps, stride, dilation = d.size(1, 33), d.choice((1, 1, 1, 2, 3, 4)), d.choice((1, 1, 1, 2, 3))
    padding = d.choice((0, taps // 2, taps - 1))
    batch, length = d.size(1, 8), d.size(1, max(1, d.most // (8 * groups * of_group)))
    transposed, more = d.chance(0.3), d.randrange(stride + 1)
    if transposed:
        length = max(1, length // stride)
    # oneDNN's kernels for half types read memory that is not theirs, or never return (torch 2.11).
    dtype = d.choice((torch.float32, torch.float64) if d.device == "cpu" else d.floating)
    shape = (groups * of_group, length + dilation * (taps - 1))
    weight = (groups * of_group, outputs, taps) if transposed else (groups * outputs, of_group, taps)
    views = [
        d.operand(shape if d.chance(0.1) else (batch, *shape), dtype),
        d.operand(weight, dtype if d.chance(0.97) else d.dtype()),
    ]
    if d.chance(0.5):
        views.append(d.operand((groups * outputs,), dtype))

    def call(a, x, w, b=None):
        if transposed:
            return F.conv_transpose1d(x, w, b, stride, padding, more, groups, dilation)
        return F.conv1d(x, w, b, stride, padding, dilation, groups)

    form = f"conv_transpose1d, output padding {more}" if transposed else "conv1d"
    form += f", stride {stride}, padding {padding}, dilation {dilation}, {groups} groups"
    return Call(form, call, views)


# ---------------------------------------------------------------- norms


def _norm_terms(
    operands: list[torch.Tensor | None], over: tuple[int, ...], outer: tuple[int, ...], eps: float, is_rms: bool = False
) -> list[torch.Tensor]:
    """The result and the gradients of input, weight and bias, with the sizes of all terms instead of their sums. Values are normalised
    over some dimensions. Weights have all but the outer ones."""
    x, weight, bias, grad = (None if t is None else t.to(torch.promote_types(t.dtype, torch.float64)) for t in operands)
    mean = 0 if is_rms else x.mean(over, keepdim=True)
    rstd = ((x - mean).abs().square().mean(over, keepdim=True) + eps).rsqrt()
    normal = (x.abs() + (0 if is_rms else x.abs().mean(over, keepdim=True))) * rstd
    result = normal if weight is None else normal * weight.abs()
    result = result if bias is None else result + bias.abs()
    if grad is None:
        return [result]
    scaled = grad.abs() if weight is None else grad.abs() * weight.abs()
    of_x = rstd * (scaled + scaled.mean(over, keepdim=True) + normal * (scaled * normal).mean(over, keepdim=True))
    terms = grad.abs() * normal, grad.abs()
    return [result, of_x, *(t.sum(outer) if outer else t for t in terms)]


def _norm(name: str) -> Callable[[Draw], Call]:
    is_rms, is_backward = "rms" in name, name.endswith("_backward")

    def family(d: Draw) -> Call:
        # ATen has no kernel of RMS norm for the CPU. It composes others, with other strides, and no gradient that could be declined.
        is_composed = is_rms and d.device == "cpu"
        if is_composed:
            d.spoiled = -1
        shape = d.shape(1, 5)
        shape = tuple(max(n, 1) for n in shape) if is_composed else shape
        dims, eps, dtype = d.randint(1, min(len(shape), 3)), d.choice((1e-5, 1e-3, 0.1)), d.choice(d.floating)
        x, of = d.operand(shape, dtype), shape[len(shape) - dims :]
        parameters = [d.operand(of, dtype) for _ in range(d.choice((0, 1, 1) if is_rms else (0, 1, 2, 2)))]
        views = [x, *parameters, *([d.operand(shape, dtype)] if is_backward else [])]
        wanted = d.randrange(1 + len(parameters))

        def signed() -> list[torch.Tensor | None]:
            """Operands in all positions. An absolute call has lost the signs, which decide about the variance."""
            tensors = [view.tensor(view.buffer) for view in views]
            grad = tensors.pop() if is_backward else None
            return [*(tensors + [None, None])[:3], grad]

        def call(a, x, *others):
            if a.absolute:
                over, outer = tuple(range(-dims, 0)), tuple(range(len(shape) - dims))
                return _norm_terms(signed(), over, outer, eps, is_rms)[1 + wanted if is_backward else 0]
            given = others[:-1] if is_backward else others
            norm = F.rms_norm if is_rms else F.layer_norm
            leaves = [t.detach().requires_grad_(is_backward) for t in (x, *given)]
            found = norm(leaves[0], of, *leaves[1:], eps=eps)
            if is_backward:
                found = torch.autograd.grad(found, leaves, others[-1])[wanted]
            return found.clone(memory_format=torch.contiguous_format) if is_composed else found

        form = f"{name} over {dims}, eps {eps}{f', gradient {wanted}' if is_backward else ''}"
        return Call(form, call, views, differentiable=False)

    return family


def _channel_norm(name: str) -> Callable[[Draw], Call]:
    """Group, batch and instance norms. The results of an override have the strides of a new tensor, or of channels-last images."""
    is_group, is_backward = "group" in name, name.endswith("_backward")

    def family(d: Draw) -> Call:
        shape, eps, dtype = d.shape(2, 5), d.choice((1e-5, 1e-3, 0.1)), d.choice(d.floating)
        shape = (shape[0], max(shape[1], 1), *shape[2:])
        is_instance = not is_group and len(shape) > 2 and d.chance(0.3)
        groups = d.choice([n for n in range(1, shape[1] + 2) if shape[1] % n == 0 or d.chance(0.02)]) if is_group else 0
        inner = range(len(shape) - 1, 1, -1)
        order = d.choice((None, [*inner, 1, 0], [1, *inner, 0]))
        of = torch.float32 if dtype.itemsize == 2 and not is_group and d.chance(0.5) else dtype
        x = d.operand(shape, dtype, order=order)
        parameters = [d.operand(shape[1:2], of) for _ in range(d.choice((0, 1, 2, 2)))]
        views = [x, *parameters, *([d.operand(shape, dtype, order=order)] if is_backward else [])]
        wanted = d.randrange(1 + len(parameters))

        def norm(x, weight=None, bias=None):
            if is_group:
                return F.group_norm(x, groups, weight, bias, eps)
            function = F.instance_norm if is_instance else F.batch_norm
            return function(x, None, None, weight, bias, True, 0.1, eps)

        def terms() -> torch.Tensor:
            """Of operands in all positions, with their signs, as (samples, groups, channels of a group, positions)."""
            tensors = [view.tensor(view.buffer) for view in views]
            grad = tensors.pop() if is_backward else None
            x, weight, bias = (*tensors, None, None)[:3]
            if not x.numel():  # with weights of any size
                return torch.zeros(views[wanted if is_backward else 0].sizes)
            count = groups if is_group else x.shape[1]
            sizes = (x.shape[0], count, x.shape[1] // count, math.prod(x.shape[2:]))
            viewed = [t if t is None else t.reshape(sizes) for t in (x, grad)]
            weights = [t if t is None else t.reshape(*sizes[1:3], 1) for t in (weight, bias)]
            over = (2, 3) if is_group or is_instance else (0, 2, 3)
            found = _norm_terms([viewed[0], *weights, viewed[1]], over, (0, 3), eps)
            return found[1 + wanted if is_backward else 0].reshape(x.shape[1:2] if is_backward and wanted else x.shape)

        def call(a, x, *others):
            if a.absolute:
                return terms()
            given = others[:-1] if is_backward else others
            leaves = [t.detach().requires_grad_(is_backward) for t in (x, *given)]
            found = norm(*leaves)
            if not is_backward:
                return found
            # ATen's kernel of the CPU reads wrong values where dimensions of size 1 of the gradient have any stride (torch 2.11).
            grad = others[-1].contiguous() if d.device == "cpu" else others[-1]
            return torch.autograd.grad(found, leaves, grad)[wanted]

        kind = f"{groups} groups" if is_group else "instance" if is_instance else "batch"
        form = f"{name}, {kind}, eps {eps}{f', gradient {wanted}' if is_backward else ''}"
        return Call(form, call, views, differentiable=False)

    return family


FAMILIES: dict[str, Callable[[Draw], Call]] = {
    "copy_": copy_,
    "clone": clone,
    **{name: _reduction(name) for name in ("sum", "mean", "amax", "amin")},
    "cumsum": cumsum,
    "mul": mul,
    **{name: _upsample(name) for name in ("upsample_nearest2d", "_upsample_nearest_exact2d")},
    **{
        name: _upsample_backward(name) for name in ("upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward")
    },
    "index_add": index_add,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
    "segment_reduce": segment_reduce,
    "index_put": index_put,
    "index": index,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
    "embedding_dense_backward": embedding_dense_backward,
    "index_select": index_select,
    **{f"sparse {name}": _sparse(name) for name in ("mm", "addmm", "sampled_addmm")},
    "convolution": convolution,
    "dot": _dot("dot"),
    "vdot": _dot("vdot"),
    **{name: _norm(name) for name in ("native_layer_norm", "_fused_rms_norm")},
    **{f"{name}_backward": _norm(f"{name}_backward") for name in ("native_layer_norm", "_fused_rms_norm")},
    **{
        name: _channel_norm(name)
        for of in ("native_group_norm", "native_batch_norm")
        for name in (of, f"{of}_backward")
    },
}
