"""What a kernel of each ladder has to compute: operands, results in float64, and the entry point of a ``.cu`` file.

The measured problem is the first case of ``benchmarks/ladder/cases.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ops.ladder.draw import Draw

__all__ = ["PROBLEMS", "Problem", "as_results"]

_TAIL = "void* allocate(size_t bytes), cudaStream_t stream"
_EPS = 1e-5


@dataclass(frozen=True)
class Problem:
    """The problem of a ladder.

    Args:
        op: The operator, as in :func:`torch_ops.ladder.ops`.
        make: Draws the operands of a size.
        sizes: Sizes by name. ``measured`` is timed, the others are checked.
        reference: The results, computed in float64 or exactly.
        parameters: The parameters of the entry point, without the last two, which all entry points have.
        arguments: The arguments for these parameters, from the operands and the results.
        exercise: A task, in a sentence or two.
        operations: Arithmetic operations, from the operands. A moved value counts as one if nothing is computed.
        tolerances: For each result the relative and the absolute tolerance.
        dtypes: The dtypes of the results.
        moved: Bytes read and written, from the operands. None: every operand is read once, and every result written once.
        writes: Whether the first operand is also the result.
        expands: Whether operands may be expanded: repeated values may have no exact sum.
    """

    op: str
    make: Callable[..., tuple[Any, ...]]
    sizes: dict[str, tuple[int, ...]]
    reference: Callable[..., Any]
    parameters: str
    arguments: Callable[..., tuple[Any, ...]]
    exercise: str
    operations: Callable[..., int]
    tolerances: tuple[tuple[float, float], ...] = ((1e-5, 1e-6),)
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    moved: Callable[..., tuple[int, int]] | None = None
    writes: bool = False
    expands: bool = True

    def operands(self, device: str, size: str, seed: int) -> tuple[Any, ...]:
        return self.make(Draw(device, seed), *self.sizes[size])

    def expected(self, operands: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return as_results(self.reference(*operands))

    @property
    def signature(self) -> str:
        """The declaration of the entry point."""
        return f"cudaError_t {self.op}({self.parameters}, {_TAIL})"

    def traffic(self, operands: tuple[Any, ...], expected: tuple[Tensor, ...]) -> tuple[int, int]:
        """(bytes read, bytes written) that no kernel can avoid."""
        if self.moved:
            return self.moved(*operands)
        read = sum(x.numel() * x.itemsize for x in operands if isinstance(x, Tensor))
        return read, sum(x.numel() * dtype.itemsize for x, dtype in zip(expected, self.dtypes))


def as_results(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _rounded(self: Tensor, other: Tensor) -> Tensor:
    """Products, rounded once. float64 holds the product of two float32 exactly."""
    return (self.double() * other.double()).float().double()


def _index_add(self: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return self.double().index_add_(0, index, source.double())


def _conv1d(x: Tensor, weight: Tensor) -> Tensor:
    if not x.numel():
        return x.double()
    return F.conv1d(x.double(), weight.double(), padding=weight.shape[2] // 2)


def _spmm(ptr: Tensor, index: Tensor, value: Tensor, dense: Tensor) -> Tensor:
    shape = (ptr.shape[0] - 1, dense.shape[0])
    ptr, index = ptr.contiguous(), index.contiguous()
    matrix = torch.sparse_csr_tensor(ptr, index, value.double().contiguous(), shape, check_invariants=False)
    return (
        torch.sparse.mm(matrix, dense.double()) if index.numel() else dense.double().new_zeros(shape[0], dense.shape[1])
    )


def _spmm_moved(ptr: Tensor, index: Tensor, value: Tensor, dense: Tensor) -> tuple[int, int]:
    """Each entry reads its number, its value and a dense row."""
    size = value.itemsize
    read = 4 * ptr.numel() + index.numel() * (4 + size + size * dense.shape[1])
    return read, (ptr.numel() - 1) * dense.shape[1] * size


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.double()
    mean = wide.mean(1, keepdim=True) if x.numel() else wide.new_zeros(x.shape[0], 1)
    return mean, ((wide - mean).square().sum(1, keepdim=True) / max(x.shape[1], 1) + _EPS).rsqrt()


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean, rstd = _statistics(x)
    return (x.double() - mean) * rstd * weight.double() + bias.double()


def _layer_norm_backward(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    grad, rstd = grad.double(), rstd.double()[:, None]
    normal = (x.double() - mean.double()[:, None]) * rstd
    scaled = grad * weight.double()
    inner = scaled - normal * (scaled * normal).mean(1, keepdim=True)
    return rstd * (inner - scaled.mean(1, keepdim=True)), (grad * normal).sum(0), grad.sum(0)


def _norm_operands(d: Draw, rows: int, length: int) -> tuple[Tensor, ...]:
    x = d.normal(rows, length)
    return d.normal(rows, length), x, *(t.view(-1).float() for t in _statistics(x)), d.uniform(length, low=0.5)


def _spmm_operands(d: Draw, bits: int, entries: int, features: int) -> tuple[Tensor, ...]:
    return *d.sparse(bits, entries), d.uniform(entries), d.uniform(1 << bits, features)


def _images(d: Draw, n: int, c: int, height: int, width: int) -> tuple[Any, ...]:
    return d.uniform(n, c, height, width), [2 * height, 2 * width]


def _image_gradients(d: Draw, n: int, c: int, height: int, width: int) -> tuple[Any, ...]:
    return d.uniform(n, c, 2 * height, 2 * width), [2 * height, 2 * width], [n, c, height, width]


def _up(x: Tensor, size: list[int]) -> Tensor:
    return x.repeat_interleave(2, 2).repeat_interleave(2, 3)


def _up_backward(grad: Tensor, size: list[int], input_size: list[int]) -> Tensor:
    n, c, height, width = input_size
    return grad.double().reshape(n, c, height, 2, width, 2).sum((3, 5))


def _triangles(source: Tensor, target: Tensor, vertices: int) -> Tensor:
    return torch.ops.gpuopt.triangle_count(source, target, vertices)


def _count(*operands: Any) -> int:
    """An operation for each value of the first operand."""
    return operands[0].numel()


_VECTOR = {"measured": (1 << 28,), "small": (1 << 20,), "odd": (4099,), "one": (1,), "empty": (0,)}
_ANY = _VECTOR | {"small": (1024, 1024), "odd": (1027,)}
_IMAGE = {"measured": (2, 512, 256, 256), "small": (2, 8, 64, 64), "odd": (1, 3, 7, 13), "one": (1,) * 4, "empty": (0, 3, 4, 5)}  # fmt: skip
_ROWS = {"measured": (65536, 1024), "small": (256, 1024), "odd": (9, 1023), "one": (1, 1), "empty": (0, 64)}

_ALL = [
    Problem(
        "reduce_sum", lambda d, *shape: (d.uniform(*shape),), _ANY,
        lambda x: x.sum(dtype=torch.float64),
        "const float* in, int64_t size, float* out", lambda x, out: (x, x.numel(), out),
        "Reach the time of the step grid_stride without shared memory: let each warp add with shuffles, and let its first thread add the"
        " sum of the warp to the result with one atomic operation.",
        _count,
        # A million atomic additions of float32, one for each block of 256 values, are off by 1e-5.
        ((1e-4, 1e-6),),
    ),
    Problem(
        "reduce_max", lambda d, *shape: (d.uniform(*shape, low=-1.0),),
        {name: size for name, size in _ANY.items() if name != "empty"},
        lambda x: x.amax().double(),
        "const float* in, int64_t size, float* out", lambda x, out: (x, x.numel(), out),
        "Use the kernel of reduce_sum with a maximum. Then try 2, 4 and 8 loads per thread before the first is used, and watch the"
        " registers that the report names.",
        _count, ((0.0, 0.0),),
    ),
    Problem(
        "cumsum", lambda d, size: (d.uniform(size),), _VECTOR,
        lambda x: x.cumsum(0, dtype=torch.float64),
        "const float* in, int64_t size, float* out", lambda x, out: (x, x.numel(), out),
        "Write the step reduce_then_scan with two launches: every block adds up the totals of the blocks in front of it by itself.",
        _count,
    ),
    Problem(
        "mul", lambda d, *shape: (d.uniform(*shape, low=-0.25), d.uniform(*shape, low=-0.25)), _ANY, _rounded,
        "const float* self, const float* other, int64_t size, float* out", lambda x, y, out: (x, y, x.numel(), out),
        "Write the step vectors for operands at any address: values in front of the first multiple of 16 bytes and behind the last one are"
        " multiplied one by one.",
        _count, ((0.0, 0.0),),
    ),
    Problem(
        "upsample_nearest2d", _images, _IMAGE, _up,
        "const float* in, int64_t planes, int64_t height, int64_t width, float* out",
        lambda x, size, out: (x, x.shape[0] * x.shape[1], x.shape[2], x.shape[3], out),
        "Let a thread load 16 bytes and store 32 in each of two rows. Is it faster than 8 bytes and 16?",
        lambda x, size: 4 * x.numel(), ((0.0, 0.0),),
    ),
    Problem(
        "upsample_nearest2d_backward", _image_gradients, _IMAGE, _up_backward,
        "const float* grad, int64_t planes, int64_t height, int64_t width, float* out",
        lambda grad, size, input_size, out: (grad, input_size[0] * input_size[1], *input_size[2:], out),
        "Write the step gather_2x without a thread for every two pixels: a block loads four rows of gradients with asynchronous copies and"
        " adds from shared memory. Does shared memory help where every value is used once?",
        _count,
    ),
    Problem(
        "index_add_", lambda d, rows, width, entries: (
            d.uniform(rows, width, low=-0.5), d.below(rows, entries), d.uniform(entries, width, low=-0.5),
        ),
        {"measured": (1 << 17, 64, 1 << 20), "small": (1000, 64, 1 << 14), "odd": (33, 7, 4099), "one": (1, 1, 1), "empty": (5, 4, 0)},
        _index_add,
        "float* self, int64_t rows, int64_t width, const int64_t* index, const float* source, int64_t entries",
        lambda self, index, source, out: (self, *self.shape, index, source, index.numel()),
        "Add the entries of a block that name the same row in shared memory first. Does it help where indices are drawn evenly, as"
        " here?",
        lambda self, index, source: source.numel(), ((1e-5, 1e-4),), writes=True,
    ),
    Problem(
        "dot", lambda d, size: d.exact_halves(size), _VECTOR | {"measured": (1 << 20,)},
        lambda x, y: x.double() @ y.double(),
        "const __half* self, const __half* tensor, int64_t size, __half* out", lambda x, y, out: (x, y, x.numel(), out),
        "The problem has 4 MB, so a second launch counts. Write the step vectors with one launch, as last_block_ticket of"
        " reduce_sum.",
        lambda x, y: 2 * x.numel(), ((0.0, 0.0),), (torch.float16,), expands=False,
    ),
    Problem(
        "conv1d", lambda d, rows, size, taps: (d.uniform(rows, 1, size), d.uniform(1, 1, taps)),
        {"measured": (1, 1 << 24, 5), "small": (3, 1 << 16, 5), "odd": (3, 1001, 7), "one": (1, 1, 1), "empty": (0, 5, 3)},
        _conv1d,
        "const float* in, int64_t rows, int64_t size, const float* weight, int64_t taps, float* out",
        lambda x, weight, out: (x, x.shape[0], x.shape[2], weight, weight.shape[2], out),
        "Rows are padded with (taps - 1) / 2 zeros at both ends. Make the number of taps a template argument for 3, 5 and 7, and see"
        " what the compiler makes of the step register_window.",
        lambda x, weight: 2 * x.numel() * weight.numel(),
    ),
    Problem(
        "transpose2d", lambda d, rows, columns: (d.uniform(rows, columns),),
        {"measured": (8192, 8192), "small": (512, 256), "odd": (127, 255), "one": (1, 1), "empty": (0, 4)},
        lambda x: x.t().double(),
        "const float* in, int64_t rows, int64_t columns, float* out", lambda x, out: (x, *x.shape, out),
        "Replace the padding of the step padded_tile by an exclusive-or of row and column, so that the tile has no unused word.",
        _count, ((0.0, 0.0),),
    ),
    Problem(
        "spmm", _spmm_operands,
        {"measured": (18, 1 << 25, 128), "small": (10, 1 << 14, 32), "odd": (9, 4099, 7), "one": (0, 1, 1), "empty": (4, 0, 8)},
        _spmm,
        "const int32_t* ptr, const int32_t* index, const float* value, const float* dense, int64_t rows, int64_t columns,"
        " int64_t entries, int64_t features, float* out",
        lambda ptr, index, value, dense, out: (
            ptr, index, value, dense, ptr.numel() - 1, dense.shape[0], index.numel(), dense.shape[1], out,
        ),
        "Give short rows to a warp each, and long rows to a block each. What does the longest row of this graph cost then?",
        lambda ptr, index, value, dense: 2 * index.numel() * dense.shape[1], moved=_spmm_moved,
    ),
    Problem(
        "matmul", lambda d, m, n, k: (d.uniform(m, k, low=-0.5), d.uniform(k, n, low=-0.5)),
        {"measured": (4096, 4096, 4096), "small": (256, 256, 256), "odd": (127, 255, 129), "one": (1, 1, 1), "empty": (0, 3, 4)},
        lambda a, b: a.double() @ b.double(),
        "const float* a, const float* b, int64_t m, int64_t n, int64_t k, float* out",
        lambda a, b, out: (a, b, a.shape[0], b.shape[1], a.shape[1], out),
        "Write the step output_block with tiles of your choice. How many outputs must a thread have before shared memory is no longer the"
        " limit?",
        lambda a, b: 2 * a.shape[0] * a.shape[1] * b.shape[1], ((1e-5, 1e-4),),
    ),
    Problem(
        "triangle_count", lambda d, bits, edges: (*d.undirected(bits, edges), 1 << bits),
        {"measured": (18, 1 << 22), "small": (10, 1 << 13), "odd": (9, 1001), "empty": (4, 0)},
        _triangles,
        "const int32_t* source, const int32_t* target, int64_t vertices, int64_t edges, int64_t* out",
        lambda source, target, vertices, out: (source, target, vertices, source.numel(), out),
        "Edges come in both directions, sorted by source. Write the step warp_per_edge so that each triangle is found once instead of six"
        " times, without a sort.",
        _count, ((0.0, 0.0),), (torch.int64,),
    ),
    Problem(
        "layer_norm", lambda d, rows, length: (d.normal(rows, length), d.uniform(length, low=0.5), d.uniform(length)), _ROWS,
        _layer_norm,
        "const float* in, const float* weight, const float* bias, int64_t rows, int64_t length, float* out",
        lambda x, weight, bias, out: (x, weight, bias, *x.shape, out),
        "eps is 1e-5. Keep rows of up to 4096 values in registers: how many threads does a row need, and when do registers spill?",
        lambda x, *_: 8 * x.numel(), ((2e-5, 2e-5),),
    ),
    Problem(
        "layer_norm_backward", _norm_operands, _ROWS, _layer_norm_backward,
        "const float* grad, const float* in, const float* mean, const float* rstd, const float* weight, int64_t rows,"
        " int64_t length, float* in_grad, float* weight_grad, float* bias_grad",
        lambda grad, x, mean, rstd, weight, *out: (grad, x, mean, rstd, weight, *x.shape, *out),
        "Write the step column_tiles with one launch less: the last block of a tile of columns adds its parts, as last_block_ticket of"
        " reduce_sum.",
        lambda grad, *_: 12 * grad.numel(), ((1e-4, 1e-4), (1e-4, 2e-2), (1e-4, 2e-2)), (torch.float32,) * 3,
    ),
]  # fmt: skip
PROBLEMS: dict[str, Problem] = {problem.op: problem for problem in _ALL}
