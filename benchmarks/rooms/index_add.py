"""Cases of index_add_, in the modes "fast" and "deterministic". Random problems (benchmarks/random/problems.py) also have the mode "accurate",
index_select and its gradient.

"(1024)+=(2^24) uniform" adds 2^24 values into 1024 bins. The time depends on how often each bin occurs, and the end of the name
says how often: "uniform" bins are equally frequent, and "Zipf s" draws the k-th bin with a probability proportional to k^-s.

Sweeps, beside ATen alone (name other ops on the command line to leave these out):

- "-skew": the exponent s.
- "-width": the width of rows, for a constant number of values.
- "-count": the number of rows that are added to 2^17 rows.
"""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F16, F32, Maker
from benchmarks.harness.peers import INDUCTOR, Missing, Peer
from benchmarks.harness.room import Call, CallTime, Case, Point, Room, error_limit

F64, I32, I64 = torch.float64, torch.int32, torch.int64
MODES = ("fast", "deterministic")
CALLS = {mode: f"index_add_ {mode}" for mode in (*MODES, "accurate")}

# ---------------------------------------------------------------- which bins


@dataclasses.dataclass(frozen=True)
class Draw:
    """How the index is drawn. ``weights(bins)`` gives the relative frequency of each bin, the most frequent first.

    Bins are shuffled afterwards. None means that all bins are equally frequent.
    """

    name: str
    weights: Callable[[int], torch.Tensor] | None = None
    in_order: bool = False


def zipf(exponent: float) -> Draw:
    return Draw(f"Zipf {exponent:g}", lambda bins: torch.arange(1, bins + 1, dtype=F64) ** -exponent)


def _one(bins: int) -> torch.Tensor:
    return (torch.arange(bins) == 0).double()


UNIFORM, SORTED = Draw("uniform"), Draw("sorted", in_order=True)
ZIPF = zipf(1.1)
ALL_EQUAL = Draw("all equal", _one)
ONE_HOT_BIN = Draw("half in one bin", lambda bins: _one(bins) + 1 / bins)


@functools.lru_cache
def _probabilities(draw: Draw, bins: int) -> torch.Tensor:
    weights = draw.weights(bins)
    return weights / weights.sum()


@functools.lru_cache
def _tables(draw: Draw, bins: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The cumulative distribution function, and the bins from the most frequent to the least frequent."""
    shuffled = torch.randperm(bins, generator=torch.Generator().manual_seed(0))
    return _probabilities(draw, bins).cumsum(0).to(device), shuffled.to(device)


def draw_index(m: Maker, draw: Draw, entries: int, bins: int, dtype: torch.dtype) -> torch.Tensor:
    if m.device == "meta":
        return torch.empty(entries, dtype=dtype, device="meta")
    if draw.weights is None:
        index = torch.randint(bins, (entries,), dtype=dtype, device=m.device, generator=m.generator)
        return index.sort().values if draw.in_order else index
    below, shuffled = _tables(draw, bins, m.device)
    uniform = torch.rand(entries, dtype=F64, device=m.device, generator=m.generator)
    # The clamp is needed because rounding may leave the sum of all probabilities a little below 1.
    return shuffled[torch.searchsorted(below, uniform, right=True).clamp_(max=bins - 1)].to(dtype)


@functools.lru_cache
def touched(draw: Draw, entries: int, bins: int) -> float:
    """The expected number of different bins in ``entries`` draws."""
    if draw.weights is None:
        return bins * (1 - (1 - 1 / bins) ** entries)
    return (1 - (1 - _probabilities(draw, bins)) ** entries).sum().item()


# ---------------------------------------------------------------- cases


def _size(size: int) -> str:
    return f"2^{size.bit_length() - 1}" if size >= 1 << 20 and size & (size - 1) == 0 else str(size)


def _text(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(_size, shape))})"


def _dense(m: Maker, shape: tuple[int, ...]) -> torch.Tensor:
    return m(*shape)


def _misaligned(m: Maker, shape: tuple[int, ...]) -> torch.Tensor:
    return m.misaligned(math.prod(shape)).view(shape)


@dataclasses.dataclass(frozen=True)
class Sum:
    """A problem: ``entries`` slices are added to ``self`` along ``dim``."""

    shape: tuple[int, ...]
    entries: int
    draw: Draw = UNIFORM
    dim: int = 0
    index: torch.dtype = I64
    make: Callable[[Maker, tuple[int, ...]], torch.Tensor] = _dense

    @property
    def bins(self) -> int:
        return self.shape[self.dim]

    @property
    def source(self) -> tuple[int, ...]:
        return (*self.shape[: self.dim], self.entries, *self.shape[self.dim + 1 :])

    @property
    def name(self) -> str:
        index = "int32" if self.index == I32 else ""
        layout = "misaligned" if self.make is _misaligned else ""
        dim = f"dim {self.dim}" if self.dim else ""
        shapes = f"{_text(self.shape)}+=" + _text(self.source)
        return " ".join(filter(None, (layout, shapes, dim, self.draw.name, index)))

    def build(self, dtype: torch.dtype, device: str, seed: int) -> tuple:
        """Operands, scaled so that the sum in the fullest bin is about as large as one value.

        A call in place is repeated some thousand times, which would overflow f16 otherwise.
        """
        m = Maker(device, dtype, seed)
        into, source = self.make(m, self.shape), self.make(m, self.source)
        if dtype.is_floating_point:
            most = 1 / self.bins if self.draw.weights is None else _probabilities(self.draw, self.bins)[0].item()
            source.mul_(max(1.0, self.entries * most) ** -0.5)
        return into, self.dim, draw_index(m, self.draw, self.entries, self.bins, self.index), source

    def build_select(self, dtype: torch.dtype, device: str, seed: int) -> tuple:
        """Operands of the gather that is the gradient of ``source``."""
        m = Maker(device, dtype, seed)
        return self.make(m, self.shape), draw_index(m, self.draw, self.entries, self.bins, self.index)

    def moved_by_select(self, dtype: torch.dtype) -> tuple[int, int]:
        """(bytes read, bytes written): each row that occurs is read once."""
        read, written = self.moved(dtype)
        gathered = read - written - self.entries * self.index.itemsize
        return self.entries * self.index.itemsize + written, gathered

    def build_select_backward(self, dtype: torch.dtype, device: str, seed: int) -> tuple:
        """Operands of the gradient of that gather: the gathered rows' gradient, where they are from, and how many there are."""
        _, dim, index, source = self.build(dtype, device, seed)
        return source, dim, index, self.bins

    def moved_by_select_backward(self, dtype: torch.dtype) -> tuple[int, int]:
        """(bytes read, bytes written): every row of the result is written, also where it is 0."""
        read, written = self.moved(dtype)
        return read - written, math.prod(self.shape) * dtype.itemsize

    def moved(self, dtype: torch.dtype) -> tuple[int, int]:
        """(bytes read, bytes written): index and source are read once, and each slice of self that occurs is read and written
        once."""
        slice_bytes = math.prod(self.shape) // self.bins * dtype.itemsize
        met = round(touched(self.draw, self.entries, self.bins) * slice_bytes)
        return self.entries * (self.index.itemsize + slice_bytes) + met, met


def _cases(op: str, what: Sum, *dtypes, mode: str = "fast", **options) -> list[Case]:
    return [
        Case(
            op,
            CALLS[mode],
            what.name,
            DTYPE_NAMES[dtype],
            functools.partial(what.build, dtype),
            moved=functools.partial(what.moved, dtype),
            **options,
        )
        for dtype in dtypes
    ]


def _in_both_modes(what: Sum, headline: bool = False) -> list[Case]:
    """f32 and bf16 beside all peers, and f16 without Inductor. Inductor only runs in headline cases and in mode "fast"."""
    cases = []
    for mode in MODES:
        op = f"index_add-{mode}"
        peers = PEERS if headline or mode == "fast" else (ATEN_DETERMINISTIC,)
        cases += _cases(op, what, F32, BF16, mode=mode, headline=headline, peers=peers)
        cases += _cases(op, what, F16, mode=mode, peers=(ATEN_DETERMINISTIC,))
    return cases


GRAPH = Sum((169343, 128), 1 << 20)
EMBEDDING = Sum((50257, 1024), 16384)
HISTOGRAM = Sum((1024,), 1 << 24)
SCALARS = Sum((1 << 20,), 1 << 24)


def _drawn(what: Sum, *draws: Draw) -> list[Sum]:
    return [dataclasses.replace(what, draw=draw) for draw in draws]


def _headline() -> list[Case]:
    sums = [
        *_drawn(GRAPH, UNIFORM, ZIPF, SORTED, ALL_EQUAL),
        *_drawn(EMBEDDING, UNIFORM),
        *_drawn(HISTOGRAM, UNIFORM, ZIPF),
        Sum((4096, 1024), 8192, dim=1),
        Sum((1 << 25,), 15),
        Sum((32768, 1024), 15),
        Sum((32768, 1024), 1024),
        Sum((32, 1 << 20), 15),
    ]
    return list(itertools.chain(*(_in_both_modes(what, headline=True) for what in sums)))


def _further() -> list[Case]:
    sums = [
        *_drawn(GRAPH, ONE_HOT_BIN),
        *_drawn(EMBEDDING, ZIPF),
        *_drawn(HISTOGRAM, ALL_EQUAL),
        *_drawn(SCALARS, UNIFORM, ZIPF),
        Sum((1024, 32, 32), 4096, dim=1),
        dataclasses.replace(GRAPH, index=I32),
        dataclasses.replace(GRAPH, make=_misaligned),
    ]
    cases = list(itertools.chain(*(_in_both_modes(what) for what in sums)))
    for mode in MODES:
        cases += _cases(f"index_add-{mode}", GRAPH, F64, I64, mode=mode, peers=())
    return cases


# ---------------------------------------------------------------- sweeps


def _skew() -> list[Case]:
    axis = "Zipf exponent: 0 meets all bins alike"
    draws = [(UNIFORM, 0.0, "")]
    draws += [(zipf(quarters / 4), quarters / 4, "") for quarters in range(1, 9)]
    # All indices equal is the limit of large exponents.
    draws += [(ALL_EQUAL, 2.5, "all equal")]
    cases = []
    for dtype, (draw, x, label) in itertools.product((F32, BF16), draws):
        point = Point(DTYPE_NAMES[dtype], axis, x, label, "us")
        (what,) = _drawn(GRAPH, draw)
        cases += _cases("index_add-skew", what, dtype, peers=(OURS_DETERMINISTIC,), point=point)
    return cases


def _width() -> list[Case]:
    cases = []
    for dtype, power in itertools.product((F32, BF16), range(13)):
        what = Sum((1 << 16, 1 << power), 1 << 24 - power)
        point = Point(f"2^24 values {DTYPE_NAMES[dtype]}", "log2(values in a row)", power)
        cases += _cases("index_add-width", what, dtype, peers=(OURS_DETERMINISTIC,), point=point)
    return cases


def _count() -> list[Case]:
    cases = []
    for width, draw, power in itertools.product((1, 16, 128), (UNIFORM, ZIPF), range(4, 25, 2)):
        if width << power <= 1 << 28:
            what = Sum((1 << 17, width), 1 << power, draw)
            point = Point(f"(n,{width}) {draw.name.split()[0]}", "log2(n)", power, unit="us")
            cases += _cases("index_add-count", what, F32, peers=(), point=point)
    return cases


# ---------------------------------------------------------------- calls


def _reference(into: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """ATen's sums in float64; integers wrap around."""
    wide = F64 if into.is_floating_point() else into.dtype
    return into.to(wide).index_add(dim, index, source.to(wide))


def sum_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of mode "fast": correct sums differ in the order of additions, and fp16 and bf16 may round after each one,
    as ATen's kernels do."""
    units = 32 if dtype.is_floating_point and dtype.itemsize > 2 else 1
    return max(error_limit(dtype, aten_error), units * error_limit(dtype, None))


def rounded_once(dtype: torch.dtype, aten_error: float | None) -> float:
    """The error limit of a sum that gpuopt makes in float32 for fp16 and bf16, whatever ATen's error is."""
    return torch.finfo(dtype).eps if dtype in (F16, BF16) else sum_limit(dtype, aten_error)


def _aten(into: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """index_add_ as a function, because torch.compile cannot trace a method that it gets from an object."""
    return into.index_add_(dim, index, source)


def _select(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    import torch_ops

    return torch_ops.index_select(rows, 0, index)


def _aten_select(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return rows.index_select(0, index)


def _select_backward(grad: torch.Tensor, dim: int, index: torch.Tensor, bins: int) -> torch.Tensor:
    """What autograd calls for torch_ops.index_select."""
    return torch.ops.gpuopt.scatter.default(grad, dim, index, bins, "sum")


def _aten_select_backward(grad: torch.Tensor, dim: int, index: torch.Tensor, bins: int) -> torch.Tensor:
    shape = list(grad.shape)
    shape[dim] = bins
    return grad.new_zeros(shape).index_add_(dim, index, grad)


def _select_backward_reference(grad: torch.Tensor, dim: int, index: torch.Tensor, bins: int) -> torch.Tensor:
    return _aten_select_backward(grad.to(F64) if grad.is_floating_point() else grad, dim, index, bins)


def _calls() -> dict[str, Call]:
    import torch_ops

    gpuopt_limits = {"fast": None, "deterministic": rounded_once, "accurate": rounded_once}
    added = {
        name: Call(
            functools.partial(torch_ops.index_add_, mode=mode),
            _aten,
            _reference,
            kind="inplace",
            limit=sum_limit,
            gpuopt_limit=gpuopt_limits[mode],
        )
        for mode, name in CALLS.items()
    }
    return {
        **added,
        "index_select": Call(_select, _aten_select, _aten_select),
        "index_select backward": Call(
            _select_backward,
            _aten_select_backward,
            _select_backward_reference,
            limit=sum_limit,
            gpuopt_limit=rounded_once,
        ),
    }


# ---------------------------------------------------------------- peers

LONGEST_S = 0.1
# ATen's deterministic kernel adds the entries of one bin one after another, which can take seconds. Its time is therefore estimated
# from one of this many parts of the entries.
PARTS = 64
SMALLEST_PART = 1024


def _repeatable(function: Callable) -> Callable:
    """``function`` under torch.use_deterministic_algorithms(True), but without its filling of new memory."""

    def run(*args):
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        filled = torch.utils.deterministic.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        try:
            return function(*args)
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.utils.deterministic.fill_uninitialized_memory = filled

    return run


def _seconds(function: Callable, args: tuple) -> float:
    """The time of a second call, because the first may load kernels."""
    for _ in range(2):
        if args[0].is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        function(*args)
        if args[0].is_cuda:
            torch.cuda.synchronize()
    return time.perf_counter() - began


def _aten_deterministic(call, case, setting):
    run = _repeatable(call.aten)
    into, dim, index, source = case.build(setting.device, 0)
    parts = PARTS if index.numel() >= PARTS * SMALLEST_PART else 1
    entries = index.numel() // parts
    seconds = parts * _seconds(run, (into, dim, index[:entries], source.narrow(dim, 0, entries)))
    if seconds > LONGEST_S:
        raise Missing(f"it takes about {1e3 * seconds:.0f} ms")
    return run, ""


def _ours_deterministic(call, case, setting):
    import torch_ops

    return functools.partial(torch_ops.index_add_, mode="deterministic"), ""


ATEN_DETERMINISTIC = Peer("ATen deterministic", _aten_deterministic)
OURS_DETERMINISTIC = Peer("gpuopt deterministic", _ours_deterministic)
PEERS = (ATEN_DETERMINISTIC, INDUCTOR)

# ---------------------------------------------------------------- call times


def _small(device: str, requires_grad: bool) -> dict:
    """Operands so small that the kernel takes less time than the call, which is therefore measured."""
    import torch_ops

    return {
        "torch": torch,
        "torch_ops": torch_ops,
        "gpuopt": torch.ops.gpuopt,
        "x": torch.randn(1024, 16, device=device, requires_grad=requires_grad),
        "i": torch.randint(1024, (256,), device=device),
        "s": torch.randn(256, 16, device=device, requires_grad=requires_grad),
        "g": torch.ones(1024, 16, device=device),
    }


def _call_times() -> list[CallTime]:
    def plain(device):
        return _small(device, requires_grad=False)

    def graph(device):
        return _small(device, requires_grad=True)

    public = {"gpuopt": "torch_ops.index_add(x, 0, i, s)", "ATen": "torch.index_add(x, 0, i, s)"}
    deterministic = {**public, "gpuopt": public["gpuopt"][:-1] + ', mode="deterministic")'}
    # Without the Python function, what remains is the time of the dispatcher and the kernel's launch.
    bare = {"gpuopt, without its Python function": "gpuopt.index_add.default(x, 0, i, s)"}
    backward = {name: f"torch.autograd.grad({stmt}, (x, s), g)" for name, stmt in public.items()}
    in_place = {"gpuopt": "torch_ops.index_add_(x, 0, i, s)", "ATen": "x.index_add_(0, i, s)"}
    op = "index_add-fast"
    return [
        CallTime(op, "no grad", {**public, **bare}, plain),
        CallTime(op, "building a graph", {**public, **bare}, graph),
        CallTime(op, "forward + backward", backward, graph),
        CallTime(op, "in-place", in_place, plain),
        CallTime("index_add-deterministic", "no grad", deterministic, plain),
    ]


ROOM = Room(
    name="index_add",
    cases=_headline() + _further() + _skew() + _width() + _count(),
    calls=_calls,
    call_times=_call_times(),
    peers=PEERS,
)
