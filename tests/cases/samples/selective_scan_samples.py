"""Sample calls of selective scans and their updates: shapes, layouts, groups, options, and the dtypes of Mamba's calls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from .. import Sample
from ..tensors import LAYOUTS, Maker

# Length innermost, and channels innermost. The other layouts are copied.
SEQUENCES = ("contiguous", "transposed", "rows", "sliced", "step2", "misaligned1", "misaligned3", "rotated", "neg")
# (batch, dim, length, n, groups). Lengths lie around groups of 8 positions and tiles of 32, and dim around sets of channels.
SHAPES = (
    *((2, 5, length, 4, 0) for length in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 65)),
    *((1, dim, 9, 16, 1) for dim in (1, 2, 7, 8, 9, 31, 33, 64, 130)),
    *((2, 6, 19, n, 1 + n % 3) for n in (1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 32, 64, 100, 128, 129, 256)),
    *((3, 12, 11, 6, groups) for groups in (1, 2, 3, 4, 6, 12)),
)
EMPTY = ((0, 4, 5, 3, 1), (2, 0, 5, 3, 1), (2, 4, 0, 3, 0))
# Which of D, z, delta_bias and softplus a call has.
OPTIONS = tuple((bool(k & 1), bool(k & 2), bool(k & 4), bool(k & 8)) for k in (0, 15, 9, 6, 12, 3, 10, 5, 14))


class Call:
    """The operands of a call. `weights` is the dtype of A, D and delta_bias, which Mamba keeps in float32."""

    def __init__(self, make: Maker, shape, options, weights: torch.dtype | None = None):
        batch, dim, length, n, groups = shape
        has_D, has_z, has_bias, self.softplus = options
        weights = weights or make.dtype
        matrix = (batch, groups, n, length) if groups else (batch, n, length)
        self.u = make(batch, dim, length)
        self.delta = make(batch, dim, length) if self.softplus else make(batch, dim, length).abs() / 2
        self.A = -(make(dim, n, dtype=weights).abs() + 0.125)
        self.B, self.C = make(*matrix), make(*matrix)
        self.D = make(dim, dtype=weights) if has_D else None
        self.z = make(batch, dim, length) if has_z else None
        self.bias = make(dim, dtype=weights) / 4 if has_bias else None

    def sample(self, name: str, sanitize: bool = False) -> Sample:
        given = [self.u, self.delta, self.A, self.B, self.C, self.D, self.z, self.bias]
        while given[-1] is None:
            given.pop()
        said = [k for k, x in (("D", self.D), ("z", self.z), ("delta_bias", self.bias)) if x is not None]
        name = ", ".join([f"{name} {tuple(self.u.shape)} n {self.A.shape[1]}", *said, "softplus" * self.softplus])
        return Sample(name, tuple(given), {"delta_softplus": True} if self.softplus else {}, sanitize=sanitize)


def samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, shape in enumerate(SHAPES):
        for j, layout in enumerate(("contiguous", "transposed")):
            weights = torch.float32 if dtype.itemsize < 8 and (k + j) % 3 else None
            call = Call(make, shape, OPTIONS[(2 * k + j) % len(OPTIONS)], weights)
            call.u, call.delta = LAYOUTS[layout](call.u), LAYOUTS[layout](call.delta)
            call.z = None if call.z is None else LAYOUTS[layout](call.z)
            yield call.sample(layout, sanitize=k % 4 == 0)
    yield from _layouts(make)
    yield from _mixtures(make)
    for shape in EMPTY:
        yield Call(make, shape, OPTIONS[1]).sample("empty")
    for position in (0, 5, 33):
        call = Call(make, (2, 3, 34, 4, 1), OPTIONS[1])
        call.u[0, 1, position] = math.nan
        yield call.sample(f"NaN at {position}")


def _layouts(make: Maker) -> Iterator[Sample]:
    """Operands in other layouts, one at a time and all."""
    for k, (name, layout) in enumerate((name, LAYOUTS[name]) for name in SEQUENCES):
        for j, which in enumerate(("u", "delta", "z", "B", "C", "A", "all")):
            call = Call(make, (2, 6, 21, 5, 2), OPTIONS[1])
            for operand in ("u", "delta", "z", "B", "C", "A", "D", "bias") if which == "all" else (which,):
                changed = layout(getattr(call, operand))
                setattr(call, operand, getattr(call, operand) if changed is None else changed)
            yield call.sample(f"{which} {name}", sanitize=(k + j) % 5 == 0)
    for name in ("expanded_first", "expanded_last"):
        call = Call(make, (2, 6, 21, 5, 2), OPTIONS[1])
        call.delta, call.B, call.A = (LAYOUTS[name](x) for x in (call.delta, call.B, call.A))
        yield call.sample(f"delta, B and A {name}")


def _mixtures(make: Maker) -> Iterator[Sample]:
    """Constant B or C, shapes that differ between B and C, and operands of other dtypes."""
    for k, (constant, groups) in enumerate((("B", 1), ("C", 1), ("BC", 1), ("B", 2), ("C", 0), ("BC", 0))):
        for n in (1, 4, 20):
            call = Call(make, (2, 6, 10 + n, n, groups), OPTIONS[(k + n) % len(OPTIONS)])
            for operand in constant:
                setattr(call, operand, make(6, n))
            yield call.sample(f"constant {constant}, {groups} groups")
    for k, groups in enumerate((1, 1, 1, 0)):
        call = Call(make, (2, 6, 13, 4, groups), OPTIONS[k])
        call.C = call.C[:, 0] if groups else call.C[:, None]
        yield call.sample("B and C of other ranks")
    for k, other in enumerate((torch.float16, torch.bfloat16, torch.float32)):
        for operand in ("delta", "z", "B", "C", "A"):
            if other.itemsize <= make.dtype.itemsize:
                call = Call(make, (2, 6, 13, 4, 1), OPTIONS[1 if operand == "z" else k])
                setattr(call, operand, getattr(call, operand).to(other))
                yield call.sample(f"{operand} {other}")


def few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """One small call of every kind. Values are small multiples of 1/8. Tests double all sizes above 1 up to six times, and n must
    stay below 257."""
    generator = torch.Generator().manual_seed(2)

    def make(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return (torch.randint(1, 9, shape, generator=generator).double() / 8).to(dtype).to(device)

    make.dtype = dtype
    nothing, softplus, everything = (False,) * 4, (False, False, False, True), (True,) * 4
    yield Call(make, (1, 1, 2, 1, 0), nothing).sample("plain")
    yield Call(make, (2, 3, 1, 1, 1), softplus).sample("one position")
    yield Call(make, (2, 2, 2, 2, 1), everything).sample("everything")
    yield Call(make, (1, 2, 2, 1, 2), (True, False, True, False)).sample("groups")
    call = Call(make, (2, 1, 3, 2, 1), (False, True, False, True))
    call.u, call.delta, call.z = (LAYOUTS["transposed"](x) for x in (call.u, call.delta, call.z))
    yield call.sample("channels last")
    call = Call(make, (2, 2, 2, 2, 1), softplus)
    call.B = make(2, 2)
    yield call.sample("constant B")
    call = Call(make, (1, 2, 2, 1, 0), nothing)
    call.B, call.C = make(2, 1), make(2, 1)
    yield call.sample("constant B and C")
    call = Call(make, (1, 2, 3, 1, 1), (True, False, False, False))
    call.u, call.delta = LAYOUTS["step2"](call.u), LAYOUTS["step2"](call.delta)
    yield call.sample("strided")
    yield Call(make, (1, 3, 2, 1, 1), (False, True, True, True)).sample("z and delta_bias")


# ---------------------------------------------------------------- updates

# (batch, heads, dim, n, groups). No heads is a state (batch, dim, n). Channels lie around warps and blocks.
UPDATES = (
    *((2, 0, dim, 16, 0) for dim in (1, 2, 7, 8, 31, 32, 33, 65, 128)),
    *((3, 0, 5, n, 1) for n in (1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 64, 100, 128, 129, 256)),
    *((2, heads, 6, 4, groups) for heads, groups in ((1, 0), (1, 1), (4, 0), (4, 1), (4, 2), (4, 4), (6, 3))),
)


class Update:
    """The operands of an update."""

    def __init__(self, make: Maker, shape, options, weights: torch.dtype | None = None):
        batch, heads, dim, n, groups = shape
        has_D, has_z, has_bias, self.softplus = options
        channels = (heads, dim) if heads else (dim,)
        weights = weights or make.dtype
        matrix = (batch, groups, n) if groups else (batch, n)
        self.state, self.x = make(batch, *channels, n), make(batch, *channels)
        self.dt = make(batch, *channels) if self.softplus else make(batch, *channels).abs() / 2
        self.A = -(make(*channels, n, dtype=weights).abs() + 0.125)
        self.B, self.C = make(*matrix), make(*matrix)
        self.D = make(*channels, dtype=weights) if has_D else None
        self.z = make(batch, *channels) if has_z else None
        self.bias = make(*channels, dtype=weights) / 4 if has_bias else None

    def sample(self, name: str, sanitize: bool = False) -> Sample:
        given = [self.state, self.x, self.dt, self.A, self.B, self.C, self.D, self.z, self.bias]
        while given[-1] is None:
            given.pop()
        said = [k for k, x in (("D", self.D), ("z", self.z), ("dt_bias", self.bias)) if x is not None]
        name = ", ".join([f"{name} {tuple(self.state.shape)}", *said, "softplus" * self.softplus])
        return Sample(name, tuple(given), {"dt_softplus": True} if self.softplus else {}, sanitize=sanitize)


def update_samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, shape in enumerate(UPDATES):
        for j in range(3):
            weights = torch.float32 if dtype.itemsize < 8 and (k + j) % 3 else None
            call = Update(make, shape, OPTIONS[(2 * k + j) % len(OPTIONS)], weights)
            if j == 2 and dtype.itemsize < 4:
                call.state = call.state.float()  # as generation keeps it
            yield call.sample("mixed" if weights else "plain", sanitize=k % 4 == 0)
    names = ("state", "x", "dt", "A", "B", "C", "z")
    for k, (layout, heads) in enumerate((name, heads) for name in SEQUENCES for heads in (0, 4)):
        for which in (names[k % 7], names[(k + 3) % 7], "all"):
            call = Update(make, (2, heads, 6, 5, 2 if heads else 1), OPTIONS[1])
            for operand in names if which == "all" else (which,):
                changed = LAYOUTS[layout](getattr(call, operand))
                setattr(call, operand, getattr(call, operand) if changed is None else changed)
            yield call.sample(f"{which} {layout}")
    for k in range(6):
        # Mamba-2's calls: one step size, decay and skip for each head, expanded.
        call = Update(make, (2, 4, 6, 8, 1 + k % 2), OPTIONS[1 if k < 3 else k])
        call.dt, call.A = call.dt[..., :1].expand(2, 4, 6), call.A[:, :1, :1].expand(4, 6, 8)
        call.D = None if call.D is None else call.D[:, :1].expand(4, 6)
        yield call.sample("one step size for each head")
    for shape in ((0, 0, 4, 3, 1), (2, 0, 0, 3, 1), (2, 2, 0, 3, 1)):
        yield Update(make, shape, OPTIONS[1]).sample("empty")
    call = Update(make, (2, 0, 5, 3, 1), OPTIONS[1])
    call.x[1, 2] = math.nan
    yield call.sample("with NaN")


def update_few(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    make = Maker(device, dtype, seed=4)
    yield Update(make, (2, 0, 2, 3, 0), OPTIONS[0]).sample("plain")
    yield Update(make, (2, 0, 3, 4, 1), OPTIONS[1]).sample("everything")
    yield Update(make, (2, 2, 3, 2, 0), OPTIONS[2]).sample("heads")
    yield Update(make, (2, 4, 3, 2, 2), OPTIONS[1]).sample("groups of heads")
    call = Update(make, (2, 0, 3, 4, 0), OPTIONS[3])
    call.state = call.state.mT.contiguous().mT
    yield call.sample("transposed state")
    call = Update(make, (2, 0, 3, 4, 0), OPTIONS[4])
    call.x, call.dt = LAYOUTS["step2"](call.x), LAYOUTS["step2"](call.dt)
    yield call.sample("strided")
    yield Update(make, (3, 0, 2, 1, 0), OPTIONS[7]).sample("one state")
    yield Update(make, (2, 1, 2, 2, 1), OPTIONS[8]).sample("one head")
