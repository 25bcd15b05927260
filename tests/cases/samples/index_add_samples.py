"""Sample calls of index_add: lengths of rows, numbers of bins and of indices, distributions of the indices, and layouts."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from benchmarks.references.dtypes import real_of

from .. import Sample, tensors
from ..tensors import ALL, Maker

MODES = ("fast", "deterministic", "accurate")

# Values per row: below and around a 16-byte vector of every dtype, a warp of 32 threads, a block, and several iterations of a
# block.
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, 100, 128, 129, 255, 256, 1000, 1024, 4096)

# Numbers of bins with sort keys of one bit, of one digit or of two, that fit into shared memory or not. Numbers of indices that
# fill a warp or a block partly, exactly, or several times.
BINS = (1, 2, 3, 15, 16, 100, 256, 512, 513, 1000, 5000, 100_000)
COUNTS = (0, 1, 2, 15, 31, 32, 33, 100, 1000, 1024, 4097, 20_000)


# ---------------------------------------------------------------- which bins the indices name


def _uniform(bins: int, count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, bins, (count,), generator=generator)


def _permutation(bins, count, generator):
    return torch.randperm(max(bins, count), generator=generator)[:count] % bins


def _hot(bins, count, generator):
    """Half of the indices are equal, at random positions."""
    return torch.where(_uniform(2, count, generator) == 0, bins - 1, _uniform(bins, count, generator))


def _zipf(bins, count, generator):
    """Bin k has a share proportional to about 1 / k."""
    return ((bins + 1) ** torch.rand(count, generator=generator, dtype=torch.float64)).long().sub(1).clamp(0, bins - 1)


DISTRIBUTIONS = {
    "uniform": _uniform,
    "equal": lambda bins, count, generator: torch.full((count,), bins // 2),
    "sorted": lambda *args: _uniform(*args).sort().values,
    "reversed": lambda *args: _uniform(*args).sort(descending=True).values,
    "permutation": _permutation,
    "hot": _hot,
    "zipf": _zipf,
    "ends": lambda bins, count, generator: (bins - 1) * _uniform(2, count, generator),
    "runs": lambda bins, count, generator: torch.arange(count) // 7 * 5 % bins,
}


def indices(distribution: str, bins: int, count: int, seed: int = 0) -> torch.Tensor:
    """An index of int64 on the CPU. Without bins it is zero."""
    generator = torch.Generator().manual_seed(seed + bins + count)
    return DISTRIBUTIONS[distribution](max(bins, 1), count, generator)


# The gaps of a strided index hold numbers far out of range.
INDEX_LAYOUTS = {
    **{name: tensors.LAYOUTS[name] for name in ("contiguous", "step2", "misaligned1", "misaligned3", "sliced")},
    "expanded": lambda t: t[:1].expand_as(t),
    "0-d": lambda t: t.view(()),
}


# ---------------------------------------------------------------- calls


@dataclass(frozen=True)
class Call:
    """One call. `shape` is self's shape, `count` the number of indices, and `index` the name of their distribution."""

    name: str
    shape: tuple[int, ...]
    dim: int
    count: int
    index: str = "uniform"
    self_layout: str = "contiguous"
    source_layout: str = "contiguous"
    index_layout: str = "contiguous"
    index_dtype: torch.dtype = torch.int64
    alpha: bool | int | float | complex | None = None  # None: not passed
    sanitize: bool = False

    @property
    def source_shape(self) -> tuple[int, ...]:
        dim = self.dim % max(len(self.shape), 1)
        return (*self.shape[:dim], self.count, *self.shape[dim + 1 :]) if self.shape else ()

    def __str__(self) -> str:
        layouts = f"{self.self_layout} + {self.source_layout}"
        index = f"{self.count} {self.index} {self.index_layout} {str(self.index_dtype)[6:]}"
        return f"{self.name}: {self.shape} dim {self.dim}, {layouts}, {index}, alpha={self.alpha}"


def _rows() -> Iterator[Call]:
    for k, width in enumerate(WIDTHS):
        bins = (16, 513)[k % 2] if width < 1000 else (3, 16)[k % 2]
        yield Call("width", (bins, width), 0, 33, index="hot", sanitize=width > 255)
        yield Call("width", (3, width), 0, 1000 if width < 33 else 70, index="runs", sanitize=width > 255)
        yield Call("width", (40, width), 0, 25, index="permutation", index_dtype=torch.int32)
        yield Call("width", (2, 5, width), 1, 11)
    for width in (2, 4, 8, 17, 64):
        yield Call("width", (7, width), 0, 1000, index="zipf", sanitize=True)


def _bins_and_counts() -> Iterator[Call]:
    """Every number of bins with every number of indices, for single values and for narrow rows."""
    distributions = itertools.cycle(DISTRIBUTIONS)
    for k, (bins, count) in enumerate(itertools.product(BINS, COUNTS)):
        if count == 20_000:
            width = (2, 3, 4)[k // len(COUNTS) % 3]
        else:
            width = (1, 2, 3, 5)[k % 4] if bins < 100_000 else 1
        shape = (bins,) if width == 1 and k % 8 else (bins, width)
        dtype = (torch.int64, torch.int32)[k % 5 == 0]
        large = max(bins, count) > 1000
        yield Call("bins", shape, 0, count, index=next(distributions), index_dtype=dtype, sanitize=large and k % 3 == 0)
    # Paths for many values: separate treatment of frequent bins, vectors of entries, rows of entries in shared memory.
    yield Call("many", (13_000, 64), 0, 16_500, index="zipf", sanitize=True)
    yield Call("many", (13_000, 33), 0, 32_000, index="zipf", sanitize=True)
    # A sorted index, which the kernel sorts in three passes.
    yield Call("many", (300_000,), 0, 5000, index="sorted", sanitize=True)
    yield Call("many", (100,), 0, 40_003, index="zipf", sanitize=True)
    yield Call("many", (600, 20), 1, 90, index="zipf", sanitize=True)


def _dims() -> Iterator[Call]:
    """Every dimension, counted from the front and from the back. Then few and many outer dimensions, long and short inner ones."""
    counts = itertools.cycle((4, 33, 1, 17))
    for shape in ((6,), (4, 6), (3, 5, 7), (1, 4, 1, 3), (2, 3, 9, 17), (2, 16, 6, 5), (2, 3, 2, 5, 7)):
        for dim in range(len(shape)):
            yield Call("dims", shape, dim, next(counts), index="hot")
            yield Call("dims", shape, dim - len(shape), next(counts))
    for shape, dim, count in (
        ((1000, 5), 1, 7), ((4099, 3), 1, 3), ((3, 4099), 1, 1000), ((2, 1000, 3), 1, 100), ((33, 65, 4), 1, 100),
        ((70_001, 1), 1, 2), ((1, 70_001), 0, 2), ((129, 2, 129), 1, 5), ((257, 16), -1, 33), ((2, 300, 128), 1, 40),
        ((5, 7, 1, 16), 1, 50), ((1, 9, 33), 1, 100), ((64, 3, 2), 1, 300), ((2000, 4), -1, 20), ((300, 6, 3), 1, 40),
    ):  # fmt: skip
        yield Call("outer and inner", shape, dim, count, index="zipf", sanitize=True)


def _distributions() -> Iterator[Call]:
    """Every distribution in every regime: single values, short and long rows, few bins, strided rows, and so many indices that
    several blocks share a bin."""
    regimes = (
        ((1000,), 0, 1000), ((100, 3), 0, 1000), ((100, 64), 0, 150), ((3, 32), 0, 500), ((7, 100), 1, 300),
        ((50, 8), 0, 4097),
    )  # fmt: skip
    for name, (shape, dim, count) in itertools.product(DISTRIBUTIONS, regimes):
        yield Call("distributions", shape, dim, count, index=name, sanitize=count > 4000)
        yield Call("distributions", shape, dim, count // 3, index=name, index_dtype=torch.int32)


def _layouts() -> Iterator[Call]:
    """Every layout of self, of source and of both."""
    for k, (shape, dim, count) in enumerate(
        (((37,), 0, 50), ((9, 33), 0, 20), ((9, 33), 1, 20), ((64, 64), 0, 100), ((3, 5, 7), 1, 9),
         ((2, 16, 6, 5), 1, 12), ((2, 16, 6, 5), 0, 3), ((2, 16, 6, 5), 3, 9), ((2, 3, 2, 5, 7), 2, 4))
    ):  # fmt: skip
        for name in tensors.LAYOUTS:
            call = Call("layouts", shape, dim, count, index=("hot", "permutation")[k % 2])
            yield replace(call, self_layout=name)
            yield replace(call, source_layout=name)
            yield replace(call, self_layout=name, source_layout=name)
    for name, other in itertools.permutations(("contiguous", "reversed", "rotated", "sliced"), 2):
        yield Call("7 dimensions", (2, 3, 2, 3, 2, 3, 2), 3, 7, self_layout=name, source_layout=other)


def _index_forms() -> Iterator[Call]:
    for layout, dtype in itertools.product(INDEX_LAYOUTS, (torch.int64, torch.int32)):
        for shape, dim, count in (((50,), 0, 100), ((40, 3), 0, 33), ((20, 64), 0, 60), ((5, 9), 1, 7)):
            count = 1 if layout == "0-d" else count
            yield Call("index", shape, dim, count, index_layout=layout, index_dtype=dtype)
    for dtype in (torch.int64, torch.int32):
        for layout in ("contiguous", "0-d"):
            yield Call("0-d self", (), 0, 1, index="equal", index_layout=layout, index_dtype=dtype)
            yield Call("0-d self", (), -1, 1, index="equal", index_layout=layout, index_dtype=dtype)


def _empty() -> Iterator[Call]:
    for shape, dim, count in (
        ((5,), 0, 0), ((5, 3), 0, 0), ((5, 3), 1, 0), ((0,), 0, 0), ((0, 3), 0, 0), ((3, 0), 0, 2), ((3, 0), 1, 0),
        ((2, 0, 5), 2, 3), ((2, 4, 0), 1, 5), ((0, 4), 1, 3), ((2, 3, 4), 1, 0),
    ):  # fmt: skip
        yield Call("empty", shape, dim, count)


def _alphas(dtype: torch.dtype) -> tuple:
    """Values of alpha for the dtype. Integers accept fractions and truncate them."""
    if dtype == torch.bool:
        return (True, False, 1, 0)
    if not (dtype.is_floating_point or dtype.is_complex):
        return (0, -2, 3, 100, True, 2.7)
    large = 2.0**9 if real_of(dtype) == torch.float16 else 2.0**60
    return (0, -2, 0.3, large, True, -(2.0**-10), *((1.5 - 2j, 1j) if dtype.is_complex else ()))


def _scaled(dtype: torch.dtype) -> Iterator[Call]:
    for alpha in _alphas(dtype):
        for shape, dim, count in (
            ((50,), 0, 60),
            ((40, 3), 0, 33),
            ((20, 64), 0, 60),
            ((6, 5), 1, 9),
            ((2, 16), 0, 200),
        ):
            yield Call("alpha", shape, dim, count, index="hot", alpha=alpha)


# ---------------------------------------------------------------- samples


def _in_mode(mode: str) -> dict:
    """The keyword argument for the mode. It is omitted for the default mode, so that this form is tested, too."""
    return {} if mode == "fast" else {"mode": mode}


def built(call: Call, make: Maker, mode: str) -> Sample | None:
    """The sample, or None if a tensor cannot have its layout."""
    self = tensors.LAYOUTS[call.self_layout](make(*call.shape))
    source = tensors.LAYOUTS[call.source_layout](make(*call.source_shape))
    if self is None or source is None:
        return None
    bins = call.shape[call.dim] if call.shape else 1
    index = INDEX_LAYOUTS[call.index_layout](indices(call.index, bins, call.count).to(call.index_dtype).to(make.device))
    kwargs = {} if call.alpha is None else {"alpha": call.alpha}
    return Sample(
        f"{call}, {mode}", (self, call.dim, index, source), {**kwargs, **_in_mode(mode)}, sanitize=call.sanitize
    )


def _special_values(device: str, dtype: torch.dtype) -> Iterator[tuple[str, tuple]]:
    """Every special value is added to every other one, as rows and as columns. Then all of them are added to each bin."""
    values = tensors.specials(dtype, device)
    n = len(values)
    down, across = (v.expand(n, n).contiguous() for v in (values[:, None], values))
    each = torch.arange(n, device=device)
    yield "rows", (down, 0, each, across)
    yield "columns", (across, 1, each, down)
    yield "single values", (down.flatten(), 0, torch.arange(n * n, device=device), across.flatten())
    yield "one column", (values[:, None].clone(), 0, each, values.roll(1)[:, None].clone())
    yield "all in one bin", (values.clone(), 0, torch.full_like(each, 1), values)
    yield "rows in one bin", (across, 0, torch.full_like(each, n - 1), down)


def sweep(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """All samples. A call has one mode, which differs between dtypes, so that all dtypes together test it in every mode."""
    make = Maker(device, dtype)
    sections = (
        _rows(), _bins_and_counts(), _dims(), _distributions(), _layouts(), _index_forms(), _empty(), _scaled(dtype),
    )  # fmt: skip
    for call in itertools.chain(*sections):
        mode = MODES[(zlib.crc32(str(call).encode()) + ALL.index(dtype)) % 3]
        sample = built(call, make, mode)
        if sample is not None:
            yield sample
    for name, given in _special_values(device, dtype):
        for mode in MODES:
            yield Sample(f"special values, {name}, {mode}", given, _in_mode(mode))


# ---------------------------------------------------------------- a few small calls


def _whole(shape: tuple, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Small integers. Their sums are exact in every dtype, and so the same bits in any order."""
    values = torch.randint(0 if dtype == torch.bool else -2, 3, shape, generator=generator)
    imaginary = torch.randint(-2, 3, shape, generator=generator) * 1j if dtype.is_complex else 0
    return (values + imaginary).to(dtype)


# Name, shape of self, dim, index, layouts of self and source, other arguments. Tests double the index, multiply it by four or add
# three, and it stays in range. No bin occurs three times, because ATen's second derivatives would not be repeatable on CUDA.
FEW = (
    ("rows", (5, 2), 0, [0, 1, 0], "contiguous", {}),
    ("vector", (5,), 0, [1, 0, 1], "contiguous", {"alpha": -2}),
    ("columns", (2, 5), -1, [1, 1, 0], "contiguous", {"mode": "deterministic"}),
    ("middle", (2, 5, 2), 1, [0, 1, 1], "contiguous", {"alpha": 2, "mode": "accurate"}),
    ("transposed", (5, 2), 0, [1, 0, 1], "transposed", {"alpha": 3}),
    ("step 2", (5, 2), 0, [0, 0, 1], "step2", {"mode": "deterministic"}),
    ("channels_last", (2, 5, 2, 2), 1, [1, 0, 0], "channels_last", {}),
    ("misaligned", (5, 3), 0, [1, 1], "misaligned1", {"mode": "accurate"}),
    ("one column", (5, 1), 0, [0, 1, 1, 0], "contiguous", {"alpha": 2, "mode": "deterministic"}),
    ("0-d index", (5, 2), 0, 1, "contiguous", {}),
    ("no indices", (5, 2), 0, [], "contiguous", {}),
)


def few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """One small call of every kind, the simplest first."""
    generator = torch.Generator().manual_seed(2)
    for name, shape, dim, values, layout, kwargs in FEW:
        index = torch.tensor(values, dtype=torch.int32 if name == "columns" else torch.int64)
        source_shape = list(shape)
        source_shape[dim] = index.numel()
        self, source = (_whole(s, dtype, generator).to(device) for s in (shape, source_shape))
        self, source = (tensors.LAYOUTS[layout](t) for t in (self, source))
        yield Sample(name, (self, dim, index.to(device), source), kwargs)
