"""Group and batch norm, forward and backward, compared with numpy in float64. Memory ends where operands and results end."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.seeded import seeded
from ..build import load
from ..dtypes import BF16, F16, F32, DType
from ..memory import decode, encode
from .test_norm import EPS, F64, FLOATS, Place, assert_near, compute_rounding

MOMENTUM = 0.25
PLANES, MASKED_PLANES, COLUMNS = range(3)
NONE, RELU, SILU, GELU = range(4)
NAMES = (
    "grad", "input", "mean", "rstd", "variance", "out", "weight", "bias", "weight_grad", "bias_grad", "given_mean",
    "given_variance", "given_dtype", "running_mean", "running_variance", "dtype", "weight_dtype", "activation", "is_given", "samples", "channels", "positions", "groups",
    "is_over_samples", "is_channels_last",
)  # fmt: skip


class Given(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in NAMES]


class Planned(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("is_wide", "walking", "is_staged", "blocks", "threads")]


@pytest.fixture(scope="module")
def kernels():
    return load("norm")


@dataclass(frozen=True)
class Problem:
    """`shape` is samples, channels and positions. Without `groups`, a batch norm."""

    dtype: DType = F32
    shape: tuple[int, int, int] = (2, 4, 8)
    groups: int | None = None
    is_channels_last: bool = False
    has_weight: bool = True
    has_bias: bool = True
    is_wide: bool = False  # float32 weights
    offset: int = 0
    mean: float = 0
    sms: int = 1
    shared_bytes: int = 227 << 10
    has_statistics: bool = False
    activation: int = NONE

    @property
    def weight_dtype(self) -> DType:
        return F32 if self.is_wide else self.dtype

    @property
    def view(self) -> tuple[int, int, int, int]:
        n, c, s = self.shape
        groups = c if self.groups is None else self.groups
        return n, groups, c // groups, s

    @property
    def dims(self) -> tuple[int, ...]:
        return (0, 2, 3) if self.groups is None else (2, 3)

    @property
    def statistics(self) -> int:
        return self.view[1] * (1 if self.groups is None else self.shape[0])


erf = np.vectorize(math.erf, otypes=[float])


def activate(x: np.ndarray, activation: int) -> tuple[np.ndarray, np.ndarray]:
    """The results of an activation, and its derivatives."""
    if activation == NONE:
        return x, np.ones_like(x)
    if activation == RELU:
        return np.maximum(x, 0), (x > 0).astype(float)
    share = 1 / (1 + np.exp(-x)) if activation == SILU else (1 + erf(x / math.sqrt(2))) / 2
    slope = share * (1 - share) if activation == SILU else np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return x * share, share + x * slope


class Call:
    """The operands of a problem, in memory and in float64 as (samples, groups, channels of a group, positions)."""

    def __init__(self, problem: Problem):
        self.problem = problem
        random = np.random.default_rng(sum(problem.shape))
        self.statistics = F64 if problem.dtype is F64 else F32
        channels = problem.shape[1]

        def drawn(dtype, *shape, mean=0.0):
            return decode(dtype, encode(dtype, random.normal(size=shape) + mean))

        self.x = drawn(problem.dtype, *problem.view, mean=problem.mean)
        self.grad = drawn(problem.dtype, *problem.view)
        self.given = Given(
            dtype=problem.dtype.number,
            weight_dtype=problem.weight_dtype.number,
            activation=problem.activation,
            is_given=problem.has_statistics,
            groups=problem.view[1],
            is_over_samples=problem.groups is None,
            is_channels_last=problem.is_channels_last,
            **dict(zip(("samples", "channels", "positions"), problem.shape, strict=True)),
        )
        self.places: list[Place] = []
        self.put("input", problem.dtype, self.laid_out(self.x), problem.offset)
        self.put("grad", problem.dtype, self.laid_out(self.grad), problem.offset)
        self.weight = self.bias = None
        if problem.has_weight:
            self.weight = drawn(problem.weight_dtype, channels, mean=1.0)
            self.put("weight", problem.weight_dtype, self.weight)
        if problem.has_bias:
            self.bias = drawn(problem.weight_dtype, channels)
            self.put("bias", problem.weight_dtype, self.bias)
        if problem.has_statistics:
            self.running = (drawn(F32, channels), decode(F32, encode(F32, random.uniform(0.5, 2, channels))))
            self.given.given_dtype = F32.number
            self.put("given_mean", F32, self.running[0])
            self.put("given_variance", F32, self.running[1])

    def put(self, name: str, dtype: DType, values: np.ndarray, offset: int = 0) -> None:
        place = Place(dtype, values.size, offset)
        place.values[:] = encode(dtype, values.reshape(-1))
        setattr(self.given, name, place.address)
        self.places.append(place)

    def laid_out(self, values: np.ndarray) -> np.ndarray:
        values = values.reshape(self.problem.shape)
        return values.transpose(0, 2, 1).copy() if self.problem.is_channels_last else values

    def taken(self, values: np.ndarray) -> np.ndarray:
        """The inverse of laid_out, for values of memory."""
        n, c, s = self.problem.shape
        values = values.reshape(n, s, c).transpose(0, 2, 1) if self.problem.is_channels_last else values
        return values.reshape(self.problem.view)

    def result(self, name: str, dtype: DType, count: int, offset: int = 0) -> Place:
        place = Place(dtype, count, offset)
        setattr(self.given, name, place.address)
        return place

    def of_channels(self, values: np.ndarray | None, missing: float) -> np.ndarray | float:
        return missing if values is None else values.reshape(*self.problem.view[1:3], 1)

    def normal(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        dims = self.problem.dims
        if self.problem.has_statistics:
            mean, variance = (v.reshape(1, -1, 1, 1) for v in self.running)
        else:
            mean, variance = self.x.mean(dims, keepdims=True), self.x.var(dims, keepdims=True)
        rstd = 1 / np.sqrt(variance + EPS)
        return (self.x - mean) * rstd, mean, rstd, variance

    def run(self, function, *args) -> Planned:
        planned = Planned()
        function.argtypes = [
            ctypes.c_void_p,
            *([ctypes.c_double] if len(args) == 4 else []),
            *[ctypes.c_int] * 3,
            ctypes.c_void_p,
        ]
        assert function(ctypes.byref(self.given), *args, ctypes.byref(planned)) == 0
        return planned

    def forward(self, kernels, descending: int):
        problem = self.problem
        found = {
            "out": self.result("out", problem.dtype, self.x.size, problem.offset),
            "mean": self.result("mean", self.statistics, problem.statistics),
            "rstd": self.result("rstd", self.statistics, problem.statistics),
        }
        if problem.groups is None and not problem.has_statistics:
            found["variance"] = self.result("variance", self.statistics, problem.statistics)
            for name in ("running_mean", "running_variance"):
                found[name] = self.result(name, problem.weight_dtype, problem.statistics)
                found[name].values[:] = encode(problem.weight_dtype, np.full(problem.statistics, 0.5))
        planned = self.run(kernels.forward_channels, EPS, problem.sms, problem.shared_bytes, descending)
        assert all(place.is_intact for place in found.values())
        return {name: place.values for name, place in found.items()}, planned

    def backward(self, kernels, descending: int, results: tuple[str, ...]):
        """Runs on statistics that are exact up to their rounding."""
        problem = self.problem
        _, mean, rstd, _ = self.normal()
        self.put("mean", self.statistics, mean)
        self.put("rstd", self.statistics, rstd)
        channels = problem.shape[1]
        found = {
            name: self.result(name, dtype, size, offset)
            for name, dtype, size, offset in (
                ("out", problem.dtype, self.x.size, problem.offset),
                ("weight_grad", problem.weight_dtype, channels, 0),
                ("bias_grad", problem.weight_dtype, channels, 0),
            )
            if name in results
        }
        planned = self.run(kernels.backward_channels, problem.sms, problem.shared_bytes, descending)
        assert all(place.is_intact for place in found.values())
        return {name: place.values for name, place in found.items()}, planned


def check_forward(kernels, problem: Problem) -> Planned:
    call = Call(problem)
    found, planned = call.forward(kernels, 0)
    normal, mean, rstd, variance = call.normal()
    weight, bias = call.of_channels(call.weight, 1.0), call.of_channels(call.bias, 0.0)
    compute = compute_rounding(problem)
    # The mean of values far from 0 is rounded, and shifts all normalised values.
    shift = np.abs(call.x).max() * rstd * 4 + 20
    out = found["out"].view(found["out"].dtype)
    sizes = (np.abs(normal) + shift) * np.abs(weight) + np.abs(bias)
    want, _ = activate(normal * weight + bias, problem.activation)
    assert_near(
        problem.dtype, call.taken(out).reshape(-1), want, sizes * (1 if problem.activation == NONE else 4), compute
    )
    assert_near(call.statistics, found["mean"], mean, np.abs(call.x).mean(problem.dims, keepdims=True) * 10, compute)
    spread = np.abs(call.x - mean).max() + np.abs(call.x).max() * compute
    assert_near(call.statistics, found["rstd"], rstd, rstd * (40 + spread), compute)
    if "variance" in found and (count := call.x.size // problem.statistics) > 1:
        unbiased = variance * count / (count - 1)
        assert_near(call.statistics, found["variance"], unbiased, unbiased * 80, compute)
        for name, value in (("running_mean", mean), ("running_variance", unbiased)):
            want = (1 - MOMENTUM) * 0.5 + MOMENTUM * value
            sizes = 0.5 + np.abs(call.x).max() + unbiased * 80
            assert_near(problem.weight_dtype, found[name], want, sizes, compute)
    again, _ = call.forward(kernels, 1)
    for name, values in found.items():
        np.testing.assert_array_equal(values.view(np.uint8), again[name].view(np.uint8))
    return planned


def check_backward(kernels, problem: Problem, results=("out", "weight_grad", "bias_grad")) -> Planned:
    call = Call(problem)
    found, planned = call.backward(kernels, 0, results)
    normal, _, rstd, _ = call.normal()
    compute, dims = compute_rounding(problem), problem.dims
    weight, bias = call.of_channels(call.weight, 1.0), call.of_channels(call.bias, 0.0)
    shift = np.abs(call.x).max() * rstd * 4 + 20
    # Derivatives of activations change with their operands, which are rounded.
    rounded = (
        1
        if problem.activation == NONE
        else 4 + (np.abs(normal) + shift).max() * np.abs(weight).max() + np.abs(bias).max()
    )
    grad = call.grad * activate(normal * weight + bias, problem.activation)[1]
    scaled = grad * weight
    if "out" in found:
        want = scaled
        if not problem.has_statistics:
            product = (scaled * normal).mean(dims, keepdims=True)
            want = scaled - scaled.mean(dims, keepdims=True) - normal * product
        sizes = rstd * np.abs(call.grad * weight).max() * (1 + np.abs(normal)) * shift * rounded
        assert_near(problem.dtype, call.taken(found["out"]).reshape(-1), rstd * want, sizes, compute)
    over = (0, 3)
    if "weight_grad" in found:
        sizes = (np.abs(call.grad) * (np.abs(normal) + shift)).sum(over).reshape(-1) * rounded
        want = (grad * normal).sum(over).reshape(-1)
        assert_near(problem.weight_dtype, found["weight_grad"], want, sizes * 4, compute)
    if "bias_grad" in found:
        sizes = np.abs(call.grad).sum(over).reshape(-1) * 10 * rounded
        assert_near(problem.weight_dtype, found["bias_grad"], grad.sum(over).reshape(-1), sizes, compute)
    again, _ = call.backward(kernels, 1, results)
    for name, values in found.items():
        np.testing.assert_array_equal(values.view(np.uint8), again[name].view(np.uint8))
    return planned


# ---------------------------------------------------------------- random problems


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(FLOATS))
    values = 16 // dtype.numpy.itemsize
    groups = draw(st.sampled_from((None, None, 1, 2, 3, 4)))
    channels = draw(st.sampled_from((1, 2, 3, 5, 8, 16, 33))) * (groups or 1)
    positions = draw(st.one_of(st.integers(1, 40), st.sampled_from((49, 64, 196, 441, 784, 1024, 3000))))
    samples = draw(st.sampled_from((1, 2, 3, 7, 16)))
    while samples * channels * positions > 20_000:
        samples, positions = max(samples // 2, 1), max(positions // 2, 1)
    is_wide = dtype in (F16, BF16) and draw(st.booleans())
    return Problem(
        dtype, (samples, channels, positions), groups, draw(st.booleans()), draw(st.booleans()), draw(st.booleans()), is_wide,
        draw(st.sampled_from((0, 0, 0, 1, values - 1))), draw(st.sampled_from((0, 0, 3))), draw(st.sampled_from((1, 2, 132))),
        draw(st.sampled_from((8 << 10, 12 << 10, 227 << 10))), groups is None and draw(st.booleans()),
        draw(st.sampled_from((NONE, NONE, SILU, GELU))),
    )  # fmt: skip


def test_random_forward(kernels):
    @seeded(200)
    @given(problems())
    def check(problem):
        check_forward(kernels, problem)

    check()


def test_random_backward(kernels):
    @seeded(200)
    @given(problems())
    def check(problem):
        check_backward(kernels, problem)

    check()


# ---------------------------------------------------------------- chosen problems


@pytest.mark.parametrize(
    "dtype, shape, groups, is_last, shared_bytes, walking, is_staged",
    [
        (BF16, (2, 8, 64), 2, False, 227 << 10, PLANES, True),
        (BF16, (2, 8, 49), 2, False, 227 << 10, MASKED_PLANES, True),
        (F32, (16, 4, 784), None, False, 227 << 10, PLANES, True),
        (F32, (16, 4, 49), None, False, 227 << 10, MASKED_PLANES, True),
        (F16, (3, 4, 12544), 2, False, 40 << 10, PLANES, False),
        (BF16, (3, 2, 40001), 1, False, 40 << 10, PLANES, False),
        (BF16, (4, 2, 20001), None, False, 40 << 10, MASKED_PLANES, False),
        (BF16, (3, 64, 300), None, True, 227 << 10, COLUMNS, False),
        (F32, (3, 64, 300), 8, True, 227 << 10, COLUMNS, False),
        (F32, (100, 512, 1), None, False, 227 << 10, COLUMNS, False),
        (F64, (7, 6, 33), None, False, 227 << 10, PLANES, True),
    ],
)
def test_paths(kernels, dtype, shape, groups, is_last, shared_bytes, walking, is_staged):
    problem = Problem(dtype, shape, groups, is_last, shared_bytes=shared_bytes, sms=2)
    for check in (check_forward, check_backward):
        planned = check(kernels, problem)
        assert (planned.walking, planned.is_staged) == (walking, is_staged)


@pytest.mark.parametrize("activation", [RELU, SILU, GELU], ids=["relu", "silu", "gelu"])
@pytest.mark.parametrize("shared_bytes", [8 << 10, 227 << 10], ids=["parts", "staged"])
@pytest.mark.parametrize("is_last", [False, True], ids=["planes", "columns"])
@pytest.mark.parametrize("positions", [49, 64])
@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_activations(kernels, dtype, positions, is_last, shared_bytes, activation):
    problem = Problem(dtype, (3, 16, positions), 2, is_last, shared_bytes=shared_bytes, activation=activation, sms=2)
    check_forward(kernels, problem)
    check_backward(kernels, problem)


@pytest.mark.parametrize("shared_bytes", [8 << 10, 227 << 10], ids=["parts", "staged"])
@pytest.mark.parametrize("is_last", [False, True], ids=["planes", "columns"])
@pytest.mark.parametrize("groups", [None, 2], ids=["batch", "group"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
def test_a_mean_far_from_the_deviation(kernels, dtype, groups, is_last, shared_bytes):
    """The difference of a mean square and a squared mean would have no correct digit."""
    problem = Problem(dtype, (3, 4, 1000), groups, is_last, mean=1e4, shared_bytes=shared_bytes)
    check_forward(kernels, problem)
    check_backward(kernels, problem)


@pytest.mark.parametrize("is_last", [False, True], ids=["planes", "columns"])
@pytest.mark.parametrize(
    "results", [("out",), ("weight_grad",), ("bias_grad",), ("weight_grad", "bias_grad")], ids="+".join
)
@pytest.mark.parametrize("groups", [None, 2], ids=["batch", "group"])
def test_some_gradients(kernels, groups, results, is_last):
    check_backward(kernels, Problem(BF16, (3, 8, 40), groups, is_last), results)
