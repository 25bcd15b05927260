"""Sample operands of mul, axpy and fma: shapes, layouts and values, for two and for three operands. All three use one engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from benchmarks.references.elementwise import common_dtype

from .. import tensors
from ..tensors import ALL, Maker, in_layout, specials

# Sizes around one value, a 16-byte vector of every dtype, a warp, a block, and the vectors of a block.
SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 127, 255, 257, 1023, 1025, 4097, 70001)

# Shapes for every pair of layouts: short and long rows, whole and partial tiles of 32, 64 and 128, with and without outer
# dimensions.
LAYOUT_SHAPES = ((37,), (9, 33), (65, 130), (3, 5, 7), (2, 3, 9, 17), (2, 3, 2, 5, 7))
TILE_SHAPES = ((64, 128), (128, 256), (257, 31), (8, 8), (7, 64), (3, 65, 33), (2, 72, 2, 40))

BROADCASTS = (
    ((1,), (257,)), ((), (257,)), ((), ()), ((33, 65), (65,)), ((33, 65), (33, 1)), ((33, 1), (1, 65)), ((33, 65), (1, 1)),
    ((3, 5, 7), (5, 1)), ((3, 1, 7), (5, 1)), ((2, 1, 3, 1), (1, 5, 1, 7)), ((4, 16, 9), (16, 1)), ((2, 64, 8, 8), (64, 1, 1)),
    ((8, 1, 6), (1, 7, 1)), ((1,), (1, 1, 1)), ((3, 4099), (4099,)), ((4099, 3), (3,)), ((4099, 5), (4099, 1)),
    ((2, 3, 4, 5), (2, 1, 4, 1)), ((2, 3, 2, 5, 7), (3, 1, 5, 1)), ((1, 64), (40, 1, 1)), ((130, 64), (64, 130, 1)),
)  # fmt: skip
EMPTY = (((0,), (0,)), ((0,), (1,)), ((3, 0), (3, 1)), ((3, 0), ()), ((0, 4), (2, 1, 4)), ((2, 0, 5), (5,)))


def _shapes(arity: int) -> Iterator[tuple]:
    """Tuples of shapes, one per call: equal shapes, then broadcasts, then empty tensors."""
    for n in SIZES:
        yield ((n,),) * arity
    for a, b in BROADCASTS + EMPTY:
        if arity == 2:
            yield from ((a, b), (b, a))
        else:
            yield from ((a, b, a), (a, a, b), (b, a, a), (b, b, a))


def _layouts(shape: tuple, arity: int) -> Iterator[tuple[str, ...]]:
    """Layouts of the operands: every pair for two operands. For three, every layout of each operand beside contiguous or transposed
    ones."""
    names = list(tensors.LAYOUTS)
    if arity == 2:
        yield from itertools.product(names, repeat=2)
        return
    for name in names:
        yield (name,) * arity
    for other in ("contiguous", "transposed") if len(shape) >= 2 else ("contiguous",):
        for name in names:
            if name != other:
                yield from ((name, other, other), (other, name, other), (other, other, name), (name, name, other))


def _laid_out(make: Maker, shape: tuple, layouts: tuple[str, ...]) -> tuple[torch.Tensor, ...] | None:
    operands = tuple(in_layout(name, make(*shape)) for name in layouts)
    return None if any(t is None for t in operands) else operands


def sweep(device: str, dtype: torch.dtype, arity: int) -> Iterator[tuple[str, tuple, bool]]:
    """All samples as (name, operands, exact_inputs). Operands have the `dtype`, unless the name says otherwise."""
    return (named for named in _all(device, dtype, arity) if have_a_result(named[1]))


def have_a_result(operands: tuple) -> bool:
    """Whether torch has arithmetic for the result's dtype. Newer versions promote bfloat16 with complex numbers to one without."""
    if len(operands) == 2:
        return torch.result_type(*operands) in ALL
    return common_dtype(torch.addcmul, operands[2], *operands[:2]) in ALL


def _all(device: str, dtype: torch.dtype, arity: int) -> Iterator[tuple[str, tuple, bool]]:
    make = Maker(device, dtype)
    for shapes in _shapes(arity):
        yield str(shapes), tuple(make(*s) for s in shapes), True
    for shape in LAYOUT_SHAPES:
        for layouts in _layouts(shape, arity):
            operands = _laid_out(make, shape, layouts)
            if operands is not None:
                yield f"{shape} {'*'.join(layouts)}", operands, True
    for shape in TILE_SHAPES:
        for turned in itertools.product(("contiguous", "transposed", "misaligned1", "rows"), repeat=arity):
            if "transposed" in turned:
                yield f"{shape} {'*'.join(turned)}", _laid_out(make, shape, turned), True
    for shapes in (((2, 64, 6, 5), (64, 1, 1)), ((33, 65), (65,)), ((33, 65), (33, 1))):
        for name in tensors.LAYOUTS:
            big = in_layout(name, make(*shapes[0]))
            if big is not None:
                yield f"{shapes} {name}, broadcast", (big, *(make(*shapes[1]) for _ in range(arity - 1))), True
    # More dimensions than fit in registers. None can be merged.
    many = (2,) * 12
    yield "12 dimensions", (make(*many), *(make(*many).permute(*reversed(range(12))) for _ in range(arity - 1))), True
    yield from _special_operands(device, dtype, arity)
    yield from _promotions(device, dtype, arity)


def _special_operands(device: str, dtype: torch.dtype, arity: int) -> Iterator[tuple[str, tuple, bool]]:
    """Every combination of special values, as broadcast vectors and as dense tensors, which use different paths."""
    values = specials(dtype, device)
    if arity == 3 and dtype.is_complex:
        values = values[::5]
    n = len(values)
    axes = [values.view([n if d == k else 1 for d in range(arity)]) for k in range(arity)]
    yield "special values, broadcast", tuple(axes), True
    yield "special values", tuple(a.expand([n] * arity).reshape(-1) for a in axes), True
    if dtype == torch.bool:
        bytes_ = torch.tensor([0, 1, 2, 128, 255], dtype=torch.uint8, device=device).view(torch.bool)
        yield "bools whose byte is neither 0 nor 1", tuple(bytes_.roll(k).repeat(5) for k in range(arity)), True


def _promotions(device: str, dtype: torch.dtype, arity: int) -> Iterator[tuple[str, tuple, bool]]:
    make = Maker(device, dtype, seed=1)
    for other in ALL:
        # Integers are small, so that they are exact in every dtype and conversions do not round.
        small = torch.tensor([0, 1, 2, 3, 5, 7, 11, 100], device=device).to(other)
        zero_dim = torch.tensor(3, device=device).to(other)
        fill = (make(8),) * (arity - 2)
        yield f"with {other}", (make(8), small, *fill), True
        yield f"{other} first", (small, make(8), *fill), True
        yield f"{other} transposed", (make(5, 8), make(8, 5, dtype=other).mT, *fill), True
        yield f"with 0-d {other}", (make(4, 8), zero_dim, *fill), True
        yield f"0-d {other} first", (zero_dim, make(4, 8), *fill), True
        yield f"0-d with {other}", (make(), small, *fill), False
        if arity == 3:
            yield f"{other} last", (make(8), make(8), small), True
            yield f"0-d {other} last", (make(8), make(8), zero_dim), True
        if device != "cpu":
            on_cpu = zero_dim.cpu()
            yield f"with 0-d CPU {other}", (make(4, 8), on_cpu, *fill), True
            yield f"0-d CPU {other} first", (on_cpu, make(4, 8), *fill), True
    for widest in (torch.float64, torch.complex128):
        third = torch.tensor(1 / 3, dtype=widest, device=device)
        yield f"with 0-d {widest} 1/3", (make(33), third, *(make(33),) * (arity - 2)), False
        if device != "cpu":
            yield f"with 0-d CPU {widest} 1/3", (make(33), third.cpu(), *(make(33),) * (arity - 2)), False


def few(device: str, dtype: torch.dtype, arity: int) -> Iterator[tuple[str, tuple]]:
    """One small call of every kind."""
    return (named for named in _all_few(device, dtype, arity) if have_a_result(named[1]))


def _all_few(device: str, dtype: torch.dtype, arity: int) -> Iterator[tuple[str, tuple]]:
    make = Maker(device, dtype, seed=2, small=True)
    fill = arity - 2
    yield "same", (make(3, 4), make(3, 4), *(make(3, 4) for _ in range(fill)))
    yield "last dimension broadcast", (make(3, 4), make(3, 1), *(make(4) for _ in range(fill)))
    yield "both broadcast", (make(3, 1), make(1, 4), *(make(2, 1, 1) for _ in range(fill)))
    yield "0-d second", (make(5), make(), *(make() for _ in range(fill)))
    yield "0-d first", (make(), make(5), *(make(5) for _ in range(fill)))
    yield "all 0-d", tuple(make() for _ in range(arity))
    yield "transposed", (make(4, 3).mT, *(make(3, 4) for _ in range(arity - 1)))
    yield "step 2", (make(6)[::2], make(3), *(make(6)[1::2] for _ in range(fill)))
    channels = make(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    yield "channels_last", (channels, make(3, 1, 1), *(channels.clone() for _ in range(fill)))
    yield "empty", (make(0, 3), make(3), *(make(1, 3) for _ in range(fill)))
    others = [torch.float32 if dtype != torch.float32 else torch.bfloat16, torch.int64, torch.complex64]
    if dtype != torch.float64:
        others.append(torch.float64)  # a 0-d operand must not widen the result, even if vmap adds a dimension
    for other in others:
        yield f"with {other}", (make(3, 4), make(4, dtype=other), *(make(3, 1) for _ in range(fill)))
        yield f"0-d {other}", (make(3, 4), make(dtype=other), *(make(4) for _ in range(fill)))
    if device != "cpu":
        yield "0-d CPU", (make(3, 4), make().cpu(), *(make(4) for _ in range(fill)))
