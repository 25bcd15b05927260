"""The cases that each ladder is measured on. The contenders of a case are the steps, the production operator and PyTorch.

Their names in the results: "step 2 sequential" is a step, "gpuopt" the production operator, "ATen" PyTorch.
"""

import dataclasses
import functools
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import Peer
from benchmarks.harness.room import Call, Case, Room, error_limit
from benchmarks.rooms.convolutions import autotuned
from benchmarks.rooms.dot import rounded_once
from benchmarks.rooms.graphs import Graph, undirected
from benchmarks.rooms.norm import ROOM as NORM
from benchmarks.rooms.norm import operands as norm_operands
from benchmarks.rooms.reduce import sum_limit
from benchmarks.rooms.scan import sum_limit as scan_limit

STEP = "step "


def step_name(number: int, name: str) -> str:
    """The name of a step among the contenders."""
    return f"{STEP}{number} {name}"


def _peer(op: str, number: int, name: str) -> Peer:
    def prepare(call, case, setting):
        from torch_ops import ladder

        return functools.partial(ladder.run, op, number), ""

    return Peer(step_name(number, name), prepare)


def _peers(op: str, names: tuple[str, ...]) -> tuple[Peer, ...]:
    """The steps with these names, or all steps if no names are given."""
    from torch_ops import ladder

    steps = ladder.steps(op)[:-1]
    return tuple(_peer(op, step.number, step.name) for step in steps if not names or step.name in names)


def _case(op: str, name: str, dtype: torch.dtype, make: Callable, *steps: str) -> Case:
    def build(device: str, seed: int) -> tuple:
        return make(Maker(device, dtype, seed, uniform=True))

    return Case(op, op, name, DTYPE_NAMES[dtype], build, headline=True, peers=_peers(op, steps))


def _centred(values: torch.Tensor) -> torch.Tensor:
    """Moves values to [-0.5, 0.5), so that a sum stays small although every call adds to it."""
    return values if values.is_meta else values.sub_(0.5)


# ---------------------------------------------------------------- cases

IMAGES = (2, 512, 256, 256)
TWICE = [512, 512]


def _reductions(op: str) -> list[Case]:
    n = 1 << 28
    return [_case(op, "2^28", F32, lambda m: (m(n),))]


def _cumsum() -> list[Case]:
    """A vector far larger than the L2 cache."""
    return [_case("cumsum", "2^28", F32, lambda m: (m(1 << 28),))]


def _mul() -> list[Case]:
    n = 1 << 28
    operands = functools.partial(lambda m, n: (m(n), m(n)), n=n)
    return [
        _case("mul", "2^28", F32, operands, "one_a_thread", "grid_stride", "vectors"),
        _case("mul", "2^28", F16, operands, "half_scalar", "half2", "half_vectors"),
    ]


def _upsample() -> list[Case]:
    name = "(2,512,256,256) to (512,512)"
    return [_case("upsample_nearest2d", name, dtype, lambda m: (m(*IMAGES), TWICE)) for dtype in (F32, BF16)]


def _upsample_backward() -> list[Case]:
    def make(m: Maker) -> tuple:
        return m(*IMAGES[:2], *TWICE), TWICE, list(IMAGES)

    name = "(2,512,512,512) to (256,256)"
    return [_case("upsample_nearest2d_backward", name, F32, make)]


def _index_add() -> list[Case]:
    """Messages of a graph: rows of 64 features, about eight for each node."""

    def make(m: Maker) -> tuple:
        nodes, entries = 1 << 17, 1 << 20
        index = torch.empty(entries, dtype=torch.int64, device=m.device)
        if m.device != "meta":
            index.random_(0, nodes, generator=m.generator)
        return _centred(m(nodes, 64)), index, _centred(m(entries, 64))

    name = "2^20 rows of 64 to 2^17"
    both = ("vector_reductions", "sorted_segments")
    return [
        _case("index_add_", name, F32, make, "atomic_per_element", *both),
        _case("index_add_", name, F16, make, "half_atomic", "fast_half_atomic", "half2_pairs", *both),
    ]


def _dot() -> list[Case]:
    """The classic test of the fast half atomic add: every thread adds a product to one value in memory."""

    def make(m: Maker, n: int) -> tuple:
        # Operands are 1 or -1, so sums stay near 0, where f16 is exact.
        return m.signs(n), m.signs(n)

    # The first step takes four seconds for 2^20 values, and more than eight seconds for 2^21.
    return [_case("dot", "2^20", F16, functools.partial(make, n=1 << 20))]


def _conv1d() -> list[Case]:
    return [_case("conv1d", f"2^24, {k} taps", F32, lambda m, k=k: (m(1, 1, 1 << 24), m(1, 1, k))) for k in (5, 31)]


def _transpose() -> list[Case]:
    return [_case("transpose2d", "8192^2", F32, lambda m: (m(8192, 8192),))]


def _edges(m: Maker, scale: int, entries: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ptr and index of a random graph with 2**scale nodes, some with far more edges than others.

    R-MAT (Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining", 2004): bit by bit, an edge is in one of the
    four quarters of the matrix. Nodes are renamed at random, so that nodes with many edges are no neighbours.
    """
    nodes = 1 << scale
    if m.device == "meta":
        return m(nodes + 1, dtype=torch.int32), m(entries, dtype=torch.int32)
    ends = torch.zeros(2, entries, dtype=torch.int64, device=m.device)
    for _ in range(scale):
        quarter = torch.rand(entries, generator=m.generator, device=m.device)
        ends[0] = 2 * ends[0] + (quarter >= 0.67)
        ends[1] = 2 * ends[1] + (((quarter >= 0.45) & (quarter < 0.67)) | (quarter >= 0.89))
    row, column = torch.randperm(nodes, generator=m.generator, device=m.device)[ends]
    row, order = row.sort(stable=True)
    counts = torch.bincount(row, minlength=nodes)
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return ptr.int(), column[order].int()


def _spmm() -> list[Case]:
    """A graph with as many nodes as Reddit and a quarter of its edges. The features of all nodes do not fit the L2 cache."""
    scale, entries, features = 18, 1 << 25, 128

    def make(m: Maker) -> tuple:
        ptr, index = _edges(m, scale, entries)
        return ptr, index, m(entries), m(1 << scale, features)

    def moved(size: int) -> tuple[int, int]:
        """Each entry reads its number, its value and a dense row."""
        return 4 * ((1 << scale) + 1) + entries * (4 + size + size * features), (1 << scale) * size * features

    name = "R-MAT, 2^18 rows, 2^25 entries, 128 features"
    return [
        dataclasses.replace(_case("spmm", name, dtype, make), moved=functools.partial(moved, dtype.itemsize))
        for dtype in (F32, BF16)
    ]


def _tf32(call, case, setting):
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return torch.mm(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return run, ""


TF32 = Peer("PyTorch in TF32", _tf32)


def _matmul() -> list[Case]:
    """Squares, the layers of a model of 7e9 parameters for 2048 tokens, and a small product with a long sum."""
    from torch_ops import ladder

    names = [step.name for step in ladder.steps("matmul")[:-1]]
    halves = [name for name in names[names.index("ldmatrix") :] if name != "three_tf32_wgmma"]
    floats = [name for name in names if name not in halves]
    shapes = {"4096^3": (4096, 4096, 4096), "8192^3": (8192, 8192, 8192)}
    layers = {"2048 x 4096 x 11008": (2048, 11008, 4096), "2048 x 11008 x 4096": (2048, 4096, 11008)}
    deep = {"256 x 65536 x 512": (256, 512, 65536)}

    def case(name: str, dtype: torch.dtype, steps: list[str], *peers: Peer) -> Case:
        m, n, k = (shapes | layers | deep)[name]
        made = _case("matmul", name, dtype, lambda maker: (_centred(maker(m, k)), _centred(maker(k, n))), *steps)
        return dataclasses.replace(made, flops=2 * m * n * k, peers=(*made.peers, *peers))

    return [
        *(case(name, F32, floats, TF32) for name in (*shapes, *deep)),
        *(case(name, BF16, halves) for name in (*shapes, *layers)),
    ]


def _triangle_count() -> list[Case]:
    graph = Graph("R-MAT", 1 << 18, 1 << 23, 0.76)

    def make(m: Maker) -> tuple:
        return *undirected(graph, m), graph.rows

    return [_case("triangle_count", "R-MAT, 2^18 vertices, 2^22 edges", torch.int32, make)]


def _norm(op: str) -> list[Case]:
    """Rows of the width of large encoders, in tensors far larger than the L2 cache."""
    make = functools.partial(norm_operands, op, (65536, 1024), "")
    return [_case(op, "(65536,1024)", dtype, make) for dtype in (F32, BF16)]


# ---------------------------------------------------------------- calls


def _dot_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The limit of steps. Atomic steps round each addition and the sum may be small, so any error except NaN is accepted."""
    return float("inf")


def _conv1d_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The limit of errors. ATen may compute in TF32, so its error alone is no limit."""
    return max(1e-5, error_limit(dtype, aten_error))


def _half_sums(dtype: torch.dtype, aten_error: float | None) -> float:
    """The limit of errors: each value gets about eight additions, and each addition rounds."""
    return max(error_limit(dtype, aten_error), 8 * torch.finfo(dtype).eps)


def _spmm_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The limit of errors: rows have up to 25,000 entries, which the first steps add one by one."""
    return max(1e-5, error_limit(dtype, aten_error))


def _matmul_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The limit of errors. It admits the peer in TF32, whose error is 3e-4."""
    return max(1e-3, error_limit(dtype, aten_error))


def _column_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The limit of errors: the first step adds 65536 rows one by one."""
    return max(1e-4, error_limit(dtype, aten_error))


def _calls() -> dict[str, Call]:
    import torch.nn.functional as F

    import torch_ops
    from benchmarks.rooms.triangle_count import by_wedges

    def index_add(self, index, source):
        return self.index_add_(0, index, source)

    def index_add_reference(self, index, source):
        return self.double().index_add_(0, index, source.double())

    def upsample_backward(grad, output_size, input_size):
        return torch.ops.aten.upsample_nearest2d_backward(grad, output_size, input_size)

    def conv1d(x, weight):
        return F.conv1d(x, weight, padding=weight.shape[2] // 2)

    def spmm(ptr, index, value, dense):
        return torch.ops.gpuopt.spmm(ptr, index, None, value, dense)

    def sparse_mm(ptr, index, value, dense):
        shape = (ptr.shape[0] - 1, dense.shape[0])
        return torch.sparse.mm(torch.sparse_csr_tensor(ptr, index, value, shape, check_invariants=False), dense)

    def sparse_mm_reference(ptr, index, value, dense):
        return sparse_mm(ptr, index, value.double(), dense.double())

    def sparse_mm_of(ptr, index, value, dense):
        """PyTorch has no kernel of bfloat16 on the CPU."""
        if value.device.type == "cpu":
            return sparse_mm(ptr, index, value.float(), dense.float()).to(dense.dtype)
        return sparse_mm(ptr, index, value, dense)

    def up(x, size):
        return F.interpolate(x, size=size)

    norms = NORM.calls()

    return {
        "reduce_sum": Call(torch_ops.reduce_sum, torch.sum, lambda x: x.sum(dtype=torch.float64), limit=sum_limit),
        "reduce_max": Call(torch_ops.reduce_max, torch.amax, torch.amax),
        "cumsum": Call(
            lambda x: torch_ops.cumsum(x, 0),
            lambda x: torch.cumsum(x, 0),
            lambda x: x.cumsum(0, dtype=torch.float64),
            limit=scan_limit,
        ),
        "mul": Call(torch_ops.mul, torch.mul, lambda x, y: x.double() * y.double()),
        "upsample_nearest2d": Call(torch_ops.upsample_nearest2d, up, up),
        "upsample_nearest2d_backward": Call(
            torch_ops.upsample_nearest2d_backward,
            upsample_backward,
            lambda grad, output_size, input_size: 4 * F.avg_pool2d(grad.double(), 2),
        ),
        "index_add_": Call(
            lambda self, index, source: torch_ops.index_add_(self, 0, index, source),
            index_add, index_add_reference, kind="inplace", limit=_half_sums,
        ),
        "dot": Call(torch_ops.dot, torch.dot, lambda x, y: torch.dot(x.double(), y.double()), limit=_dot_limit, gpuopt_limit=rounded_once),
        "conv1d": Call(
            lambda x, weight: torch_ops.conv1d(x, weight, padding=weight.shape[2] // 2),
            autotuned(conv1d),
            lambda x, weight: conv1d(x.double(), weight.double()),
            limit=_conv1d_limit,
        ),
        "transpose2d": Call(torch_ops.transpose2d, lambda x: x.t().contiguous(), lambda x: x.t()),
        "spmm": Call(spmm, sparse_mm_of, sparse_mm_reference, limit=_spmm_limit),
        "matmul": Call(
            lambda a, b: torch_ops.matmul(a, b, precision="3xtf32"),
            torch.mm,
            lambda a, b: a.double() @ b.double(),
            limit=_matmul_limit,
        ),
        "triangle_count": Call(torch.ops.gpuopt.triangle_count, by_wedges, by_wedges),
        "layer_norm": norms["layer_norm"],
        "layer_norm_backward": dataclasses.replace(norms["layer_norm_backward"], limit=_column_limit),
    }  # fmt: skip


def rooms() -> dict[str, Room]:
    """The cases of every operator that has a ladder, by operator."""
    cases = {
        "reduce_sum": _reductions("reduce_sum"),
        "reduce_max": _reductions("reduce_max"),
        "cumsum": _cumsum(),
        "mul": _mul(),
        "upsample_nearest2d": _upsample(),
        "upsample_nearest2d_backward": _upsample_backward(),
        "index_add_": _index_add(),
        "dot": _dot(),
        "conv1d": _conv1d(),
        "transpose2d": _transpose(),
        "spmm": _spmm(),
        "matmul": _matmul(),
        "triangle_count": _triangle_count(),
        "layer_norm": _norm("layer_norm"),
        "layer_norm_backward": _norm("layer_norm_backward"),
    }
    return {op: Room(op, cases_of_op, _calls, [], ()) for op, cases_of_op in cases.items()}
