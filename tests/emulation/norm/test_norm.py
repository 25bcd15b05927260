"""Norms of rows, forward and backward, compared with numpy in float64. Memory ends where operands and results end."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..build import load
from ..dtypes import BF16, F16, F32, TYPES, DType
from ..memory import Memory, decode, encode

F64 = TYPES[8]
FLOATS = [F16, BF16, F32, F64]
ROUNDING = {F16: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-24, F64: 2.0**-53}
LONG_ROWS = 0  # otherwise the units of a thread
VECTOR, PAIR, VALUE = range(3)
POISON = 0xCD
EPS = 1e-5


class Given(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "grad", "input", "residual", "sum", "sum_grad", "mean", "rstd", "out", "weight", "bias", "weight_grad", "bias_grad", "dtype",
            "weight_dtype", "is_rms", "length",
        )
    ] + [(name, ctypes.c_int64 * 3) for name in ("sizes", "input_strides", "other_strides")]  # fmt: skip


class Planned(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("access", "path", "lanes", "groups", "blocks", "threads", "parts")]


@pytest.fixture(scope="module")
def kernels():
    return load("norm")


@dataclass(frozen=True)
class Problem:
    """`sizes` of the rows are outermost first. `gaps` are values between the rows of each dimension, `offset` those before the
    first row. `other_gap` lies between the rows of the gradient, or of the residual."""

    dtype: DType = F32
    sizes: tuple[int, ...] = (3,)
    length: int = 8
    is_rms: bool = False
    has_weight: bool = True
    has_bias: bool = True
    is_wide: bool = False  # float32 weights
    gaps: tuple[int, ...] = (0,)
    offset: int = 0
    other_gap: int = 0
    is_transposed: bool = False
    mean: float = 0
    sms: int = 1
    has_residual: bool = False

    @property
    def weight_dtype(self) -> DType:
        return F32 if self.is_wide else self.dtype

    def strides(self, gaps: tuple[int, ...]) -> list[int]:
        """Of each dimension of the rows, outermost first."""
        strides, stride = [], self.length
        order = range(len(self.sizes)) if self.is_transposed else reversed(range(len(self.sizes)))
        found = dict.fromkeys(range(len(self.sizes)), 0)
        for d in order:
            stride += gaps[d % len(gaps)]
            found[d] = stride
            stride *= self.sizes[d]
        strides = [found[d] for d in range(len(self.sizes))]
        return strides


class Place:
    """Values in poisoned memory that ends at an inaccessible page, up to 15 bytes."""

    def __init__(self, dtype: DType, count: int, offset: int = 0):
        item = dtype.numpy.itemsize
        size = (count + offset) * item
        whole = -(-size // 16) * 16
        memory = Memory(-(-whole // 4096) * 4096)
        memory.bytes[:] = POISON
        self.memory, self.before = memory.bytes, None
        self.values = memory.bytes[-whole:][offset * item : size].view(dtype.numpy)

    @property
    def address(self) -> int:
        return self.values.ctypes.data

    @property
    def is_intact(self) -> bool:
        """Whether nothing around has been written."""
        own = self.values.view(np.uint8)
        return np.count_nonzero(self.memory != POISON) == np.count_nonzero(own != POISON)


def laid_out(problem: Problem, values: np.ndarray, gaps: tuple[int, ...]) -> tuple[Place, list[int]]:
    """Rows in memory. NaN lies between them."""
    strides = problem.strides(gaps)
    last = sum((n - 1) * s for n, s in zip(problem.sizes, strides, strict=True))
    place = Place(problem.dtype, last + problem.length, problem.offset)
    place.values.view(np.uint8)[:] = 0xFF
    item = problem.dtype.numpy.itemsize
    view = np.lib.stride_tricks.as_strided(
        place.values, (*problem.sizes, problem.length), [*(s * item for s in strides), item]
    )
    view[...] = encode(problem.dtype, values)
    return place, strides


def innermost_first(values) -> ctypes.Array:
    padded = [*reversed(list(values)), *([1] * 3)][:3]
    return (ctypes.c_int64 * 3)(*padded)


class Call:
    """The operands of a problem, in memory and in float64."""

    def __init__(self, problem: Problem):
        self.problem = problem
        random = np.random.default_rng(problem.length)
        rows = (*problem.sizes, problem.length)
        self.statistics = F64 if problem.dtype is F64 else F32

        def drawn(dtype, *shape, mean=0.0):
            return decode(dtype, encode(dtype, random.normal(size=shape) + mean))

        self.x = self.input = drawn(problem.dtype, *rows, mean=problem.mean)
        self.grad = drawn(problem.dtype, *rows)
        self.residual = drawn(problem.dtype, *rows)
        self.weight = drawn(problem.weight_dtype, problem.length, mean=1.0) if problem.has_weight else None
        self.bias = drawn(problem.weight_dtype, problem.length) if problem.has_bias else None
        self.x_place, strides = laid_out(problem, self.x, problem.gaps)
        self.grad_place, other_strides = laid_out(problem, self.grad, (problem.other_gap,))
        self.given = Given(
            input=self.x_place.address,
            grad=self.grad_place.address,
            dtype=problem.dtype.number,
            weight_dtype=problem.weight_dtype.number,
            is_rms=problem.is_rms,
            length=problem.length,
            sizes=innermost_first(problem.sizes),
            input_strides=innermost_first(strides),
            other_strides=innermost_first(other_strides),
        )
        self.places = [self.x_place, self.grad_place]
        if problem.has_residual:
            place = laid_out(problem, self.residual, (problem.other_gap,))[0]
            self.given.residual = place.address
            self.places.append(place)
            # The gradient of a sum, which is dense.
            place = Place(problem.dtype, self.x.size)
            place.values[:] = encode(problem.dtype, self.residual.reshape(-1))
            self.given.sum_grad = place.address
            self.places.append(place)
        for name in ("weight", "bias"):
            if (values := getattr(self, name)) is not None:
                place = Place(problem.weight_dtype, problem.length)
                place.values[:] = encode(problem.weight_dtype, values)
                setattr(self.given, name, place.address)
                self.places.append(place)

    def result(self, name: str, dtype: DType, count: int) -> Place:
        place = Place(dtype, count)
        setattr(self.given, name, place.address)
        return place

    def normal(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean = np.zeros(self.problem.sizes) if self.problem.is_rms else self.x.mean(-1)
        rstd = 1 / np.sqrt(((self.x - mean[..., None]) ** 2).mean(-1) + EPS)
        return (self.x - mean[..., None]) * rstd[..., None], mean, rstd

    def run(self, function, *args) -> Planned:
        planned = Planned()
        assert function(ctypes.byref(self.given), *args, ctypes.byref(planned)) == 0
        return planned

    def forward(self, kernels, descending: int):
        """With a residual, x becomes the rounded sum."""
        problem, count = self.problem, math.prod(self.problem.sizes)
        total = self.result("sum", problem.dtype, count * problem.length) if problem.has_residual else None
        out = self.result("out", problem.dtype, count * problem.length)
        rstd = self.result("rstd", self.statistics, count)
        mean = None if problem.is_rms else self.result("mean", self.statistics, count)
        forward = kernels.forward
        forward.argtypes = [ctypes.c_void_p, ctypes.c_double, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        planned = self.run(forward, EPS, problem.sms, descending)
        assert all(place.is_intact for place in (out, rstd, mean, total) if place is not None)
        if total is not None:
            want = encode(problem.dtype, self.input + self.residual)
            np.testing.assert_array_equal(total.values.reshape(want.shape), want)
            self.x = decode(problem.dtype, want)
        return out.values, rstd.values, None if mean is None else mean.values, planned

    def backward(self, kernels, descending: int, results: tuple[str, ...]):
        """Runs on statistics that are exact up to their rounding."""
        problem, count = self.problem, math.prod(self.problem.sizes)
        _, mean, rstd = self.normal()
        for name, values in (("mean", mean), ("rstd", rstd)):
            place = Place(self.statistics, count)
            place.values[:] = values.reshape(-1)
            setattr(self.given, name, 0 if name == "mean" and problem.is_rms else place.address)
            self.places.append(place)
        found = {
            name: self.result(name, dtype, size)
            for name, dtype, size in (
                ("out", problem.dtype, count * problem.length),
                ("weight_grad", problem.weight_dtype, problem.length),
                ("bias_grad", problem.weight_dtype, problem.length),
            )
            if name in results
        }
        planned = self.run(kernels.backward, problem.sms, descending)
        assert all(place.is_intact for place in found.values())
        return {name: place.values for name, place in found.items()}, planned


def assert_near(dtype: DType, got: np.ndarray, want: np.ndarray, sizes: np.ndarray, compute: float) -> None:
    """A rounding of the result, and `compute` times the sizes of what is added."""
    got = decode(dtype, got).reshape(want.shape)
    error, bound = np.abs(got - want), ROUNDING[dtype] * np.abs(want) * 1.01 + compute * sizes + 1e-7 * (dtype is F16)
    assert (error <= bound).all(), f"{float((error / np.maximum(bound, 1e-300)).max())} of the bound"


def compute_rounding(problem: Problem) -> float:
    return ROUNDING[F64 if problem.dtype is F64 else F32]


def check_forward(kernels, problem: Problem) -> Planned:
    call = Call(problem)
    out, rstd, mean, planned = call.forward(kernels, 0)
    normal, want_mean, want_rstd = call.normal()
    weight, bias = (1.0 if call.weight is None else call.weight), (0.0 if call.bias is None else call.bias)
    compute = compute_rounding(problem)
    # The mean of values far from 0 is rounded, and shifts all normalised values.
    shift = (np.abs(call.x).max() * want_rstd * 4 + 20)[..., None]
    assert_near(
        problem.dtype, out, normal * weight + bias, (np.abs(normal) + shift) * np.abs(weight) + np.abs(bias), compute
    )
    statistics = call.statistics
    assert_near(statistics, rstd, want_rstd, want_rstd * 40, compute)
    if mean is not None:
        assert_near(statistics, mean, want_mean, np.abs(call.x).mean(-1) * 10, compute)
    again = call.forward(kernels, 1)[0]
    np.testing.assert_array_equal(out.view(np.uint8), again.view(np.uint8))
    return planned


def check_backward(kernels, problem: Problem, results=("out", "weight_grad", "bias_grad")) -> Planned:
    call = Call(problem)
    if problem.is_rms:
        results = tuple(name for name in results if name != "bias_grad")
    found, planned = call.backward(kernels, 0, results)
    normal, _, rstd = call.normal()
    compute = compute_rounding(problem)
    scaled = call.grad * (1.0 if call.weight is None else call.weight)
    product = (scaled * normal).mean(-1)[..., None]
    middle = 0.0 if problem.is_rms else scaled.mean(-1)[..., None]
    # Rounded means shift normalised values.
    shift = (np.abs(call.x).max() * rstd * 4 + 20)[..., None]
    outer = tuple(range(len(problem.sizes)))
    if "out" in found:
        want = rstd[..., None] * (scaled - middle - normal * product)
        want += call.residual if problem.has_residual else 0
        sizes = rstd[..., None] * (np.abs(scaled).max() + np.abs(normal) * np.abs(scaled).max()) * shift
        assert_near(problem.dtype, found["out"], want, sizes, compute)
    if "weight_grad" in found:
        sizes = (np.abs(call.grad) * (np.abs(normal) + shift)).sum(outer)
        assert_near(problem.weight_dtype, found["weight_grad"], (call.grad * normal).sum(outer), sizes * 4, compute)
    if "bias_grad" in found:
        assert_near(
            problem.weight_dtype, found["bias_grad"], call.grad.sum(outer), np.abs(call.grad).sum(outer) * 10, compute
        )
    again, _ = call.backward(kernels, 1, results)
    for name, values in found.items():
        np.testing.assert_array_equal(values.view(np.uint8), again[name].view(np.uint8))
    return planned


# ---------------------------------------------------------------- random problems


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(FLOATS))
    values = 16 // dtype.numpy.itemsize
    length = draw(
        st.one_of(st.integers(1, 40), st.sampled_from((64, 96, 100, 127, 192, 256, 384, 513, 768, 1000, 1025)))
    )
    whole = draw(st.booleans())
    if whole:
        length = -(-length // values) * values
    sizes = draw(st.sampled_from(((1,), (2,), (7,), (33,), (100,), (3, 5), (2, 3, 4))))
    while math.prod(sizes) * length > 20_000:
        sizes = tuple(max(n // 2, 1) for n in sizes)
    gap = st.sampled_from((0, 0, values) if whole else (0, 0, 1, 2, values))
    return Problem(
        dtype, sizes, length, draw(st.booleans()), draw(st.booleans()), draw(st.booleans()),
        dtype in (F16, BF16) and draw(st.booleans()), tuple(draw(gap) for _ in sizes),
        draw(st.sampled_from((0, 0, values if whole else 1))), draw(gap), draw(st.booleans()), draw(st.sampled_from((0, 0, 3))),
        draw(st.sampled_from((1, 2, 132))), draw(st.booleans()),
    )  # fmt: skip


def test_random_forward(kernels):
    @seeded(150)
    @given(problems())
    def check(problem):
        check_forward(kernels, problem)

    check()


def test_random_backward(kernels):
    @seeded(150)
    @given(problems())
    def check(problem):
        check_backward(kernels, problem)

    check()


# ---------------------------------------------------------------- chosen problems


@pytest.mark.parametrize(
    "dtype, length, rows, slots, access, lanes",
    [
        (F32, 4, 300, 1, VECTOR, 1),
        (F32, 32, 70, 1, VECTOR, 8),
        (BF16, 64, 70, 1, VECTOR, 8),
        (BF16, 96, 70, 4, VECTOR, 4),
        (BF16, 768, 9, 4, VECTOR, 32),
        (BF16, 1024, 9, 4, VECTOR, 32),
        (BF16, 2048, 5, 4, VECTOR, 64),
        (BF16, 4096, 3, 4, VECTOR, 128),
        (BF16, 5120, 2, 4, VECTOR, 160),
        (BF16, 16384, 1, 4, VECTOR, 512),
        (F16, 6, 50, 16, PAIR, 4),
        (F16, 770, 5, 16, PAIR, 32),
        (F16, 197, 5, 16, VALUE, 16),
        (F32, 1023, 5, 16, VALUE, 64),
        (F64, 300, 5, 8, VALUE, 64),
    ],
)  # fmt: skip
def test_paths_of_rows(kernels, dtype, length, rows, slots, access, lanes):
    planned = check_forward(kernels, Problem(dtype, (rows,), length))
    assert (planned.path, planned.access, planned.lanes) == (slots, access, lanes)


@pytest.mark.parametrize("is_rms", [False, True])
@pytest.mark.parametrize(
    "dtype, length, rows, sms, parts",
    [(BF16, 16392, 2, 1, 1), (BF16, 33000, 1, 1, 3), (F32, 8196, 7, 1, 1), (F32, 30001, 1, 4, 8), (F64, 9001, 2, 1, 1)],
)
def test_long_rows(kernels, dtype, length, rows, sms, parts, is_rms):
    problem = Problem(dtype, (rows,), length, is_rms, is_wide=dtype is BF16, sms=sms, mean=2, gaps=(8,))
    for each in (problem, replace(problem, has_residual=True)):
        planned = check_forward(kernels, each)
        assert (planned.path, planned.parts) == (LONG_ROWS, parts)
        assert check_backward(kernels, each).path == LONG_ROWS


@pytest.mark.parametrize(
    "dtype, length, rows, slots, lanes",
    [
        (BF16, 24, 11, 1, 4),
        (BF16, 768, 11, 2, 64),
        (BF16, 2048, 11, 2, 128),
        (BF16, 2304, 11, 2, 160),
        (BF16, 8192, 11, 2, 512),
        (BF16, 2048, 1, 1, 256),
        (F32, 3072, 1, 1, 768),
        (F32, 4096, 1, 4, 256),
        (F32, 8192, 11, 4, 512),
        (F16, 777, 11, 8, 128),
        (F16, 778, 11, 8, 64),
        (F64, 2000, 11, 4, 512),
    ],
)
def test_paths_of_rows_backward(kernels, dtype, length, rows, slots, lanes):
    planned = check_backward(kernels, Problem(dtype, (rows,), length, sms=2))
    assert (planned.path, planned.lanes) == (slots, lanes)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_many_rows_share_partial_gradients(kernels, dtype):
    planned = check_backward(kernels, Problem(dtype, (3000,), 24, sms=2))
    assert 1 < planned.blocks <= 16


@pytest.mark.parametrize("length", [20, 1000, 20_000])
@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
def test_a_mean_far_from_the_deviation(kernels, dtype, length):
    """The difference of a mean square and a squared mean would have no correct digit."""
    problem = Problem(dtype, (4,), length, mean=1e4)
    check_forward(kernels, problem)
    check_backward(kernels, problem)


@pytest.mark.parametrize(
    "results", [("out",), ("weight_grad",), ("bias_grad",), ("weight_grad", "bias_grad")], ids="+".join
)
@pytest.mark.parametrize("length", [16, 1000, 17_000])
def test_some_gradients(kernels, results, length):
    check_backward(kernels, Problem(BF16, (5,), length), results)


def test_misaligned_weights(kernels):
    """A weight that begins between two vectors makes all accesses narrower."""
    call = Call(Problem(F32, (3,), 32))
    place = Place(F32, 32, 1)
    place.values[:] = encode(F32, call.weight)
    call.given.weight = place.address
    out, *_, planned = call.forward(kernels, 0)
    assert planned.access == VALUE
    np.testing.assert_allclose(out.reshape(3, 32), call.normal()[0] * call.weight + call.bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gap, access", [(0, VECTOR), (8, VECTOR), (2, PAIR), (3, VALUE)])
def test_rows_of_a_gradient_between_vectors(kernels, gap, access):
    assert check_backward(kernels, Problem(BF16, (4,), 64, other_gap=gap)).access == access


def test_constant_rows(kernels):
    """A variance of 0, where only eps keeps the root finite."""
    call = Call(replace(Problem(F32, (3,), 40), has_weight=False, has_bias=False))
    call.x_place.values[:] = 7
    out, rstd, mean, _ = call.forward(kernels, 0)
    assert (out == 0).all() and (mean == 7).all()
    np.testing.assert_allclose(rstd, 1 / math.sqrt(EPS), rtol=1e-6)
