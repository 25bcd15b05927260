"""The element-wise launchers and kernels, run on the CPU on random problems and compared with numpy: every path."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...plan.elementwise.test_elementwise_plan import Given
from ...support.seeded import seeded
from ..build import load
from ..dtypes import BOOL, F16, F32, FLOAT, TYPES, DType, Operand

PATHS = {"vector", "rows", "tiled", "packed", "packed rows", "general"}
BITS = {1: 1, 2: 3, 4: 4, 8: 5, 16: 12}  # the number of the dtype that a copy has for all dtypes of a size
ALPHA = 2.0
INPUTS = {"mul": 2, "mul_scalar": 1, "axpy": 2, "fma": 3}


@pytest.fixture(scope="module")
def kernels():
    return load("elementwise")


def expected(op: str, dtype: DType, inputs: list[np.ndarray]) -> np.ndarray:
    if op == "copy":
        return inputs[0]
    compute = np.dtype(np.float64) if dtype.category == FLOAT else dtype.numpy
    x = [(i != 0).astype(np.uint8) if dtype.category == BOOL else i.astype(compute) for i in inputs]
    alpha = compute.type(ALPHA)
    result = {
        "mul": lambda a, b: a * b,
        "mul_scalar": lambda a: a * alpha,
        "axpy": lambda a, b: alpha * a + b,
        "fma": lambda a, b, c: a * b + c,
    }[op](*x)
    return result.astype(dtype.numpy)


def run_and_compare(kernels, op: str, dtype: DType, operands: list[Operand]) -> str:
    """Runs a problem with the operands output and inputs, and compares the result. Returns the path of its plan."""
    path = ctypes.c_char_p()
    with np.errstate(all="ignore"):
        want = expected(op, dtype, [o.view(o.before) for o in operands[1:]]).astype(operands[0].dtype.numpy)
    number_of = (lambda t: BITS[t.numpy.itemsize]) if op == "copy" else (lambda t: t.number)
    given = Given.of(
        operands[0].sizes,
        [o.strides for o in operands],
        [number_of(o.dtype) for o in operands],
        [o.address for o in operands],
        number_of(dtype),
    )
    assert kernels.run(op.encode(), ctypes.c_double(ALPHA), ctypes.byref(given), ctypes.byref(path)) == 0
    out = operands[0]
    np.testing.assert_array_equal(out.view(out.buffer), want)
    # Memory beside the output's elements must not have changed.
    out.view(out.buffer)[...] = out.view(out.before)
    for operand in operands:
        np.testing.assert_array_equal(operand.buffer, operand.before)
    return path.value.decode()


@st.composite
def problems(draw, ops=None):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 24, 33, 64]), max_size=4))
    while math.prod(sizes) > 40000:
        sizes.pop()
    op = draw(st.sampled_from(ops or sorted(INPUTS)))
    dtype = draw(st.sampled_from(TYPES if op in ("mul", "copy") else TYPES[1:]))

    def dense(_=None):
        return [math.prod(sizes[:d]) for d in range(len(sizes))]

    def spread():
        strides, step = [0] * len(sizes), draw(st.sampled_from([1, 1, 1, 2]))
        for d in draw(st.permutations(range(len(sizes)))):
            strides[d] = step
            step = step * sizes[d] + draw(st.sampled_from([0, 0, 0, 1, 4, 16]))
        return strides

    def layout():
        return dense() if draw(st.booleans()) else spread()

    def broadcast(strides):
        return [0 if draw(st.integers(0, 3)) == 0 else s for s in strides]

    strides = [layout(), *(broadcast(layout()) for _ in range(INPUTS.get(op, 1)))]
    dtypes = [dtype] * len(strides)
    if op != "copy" and draw(st.integers(0, 3)) == 0:  # inputs are promoted; the output may have any wider dtype
        k = draw(st.integers(0, INPUTS[op]))
        fits = (lambda t: t.category <= dtype.category) if k else (lambda t: t.category >= dtype.category)
        dtypes[k] = draw(st.sampled_from([t for t in TYPES if fits(t)]))
    offsets = [draw(st.sampled_from([0, 0, 0, 1, 3, 8])) for _ in strides]
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    return op, dtype, [Operand(t, sizes, s, o, random) for t, s, o in zip(dtypes, strides, offsets)]


def test_any_problem(kernels):
    taken = set()

    @seeded(400)
    @given(problem=problems())
    def check(problem):
        taken.add(run_and_compare(kernels, *problem))

    check()
    assert taken == PATHS


def test_any_copy(kernels):
    taken = set()

    @seeded(150)
    @given(problem=problems(ops=("copy",)))
    def check(problem):
        taken.add(run_and_compare(kernels, *problem))

    check()
    assert taken == PATHS


@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
@pytest.mark.parametrize(
    "sizes, strides, path",
    [
        ([200, 136], [[136, 1], [1, 200]], "tiled"),  # several tiles, the last ones not full
        ([201, 137], [[137, 1], [1, 201]], "tiled"),  # tiles of single values
        ([3, 4097], [[1, 3], [1, 0]], "packed"),  # every vector crosses rows
        ([5, 3, 101], [[1, 5, 15], [0, 1, 3]], "packed"),  # vectors cross rows and planes
    ],
)
def test_what_small_problems_do_not_reach(kernels, dtype, sizes, strides, path):
    random = np.random.default_rng(0)
    dense = [math.prod(sizes[:d]) for d in range(len(sizes))]
    operands = [Operand(dtype, sizes, s, 0, random) for s in [dense, *strides]]
    assert run_and_compare(kernels, "mul", dtype, operands) == path


@pytest.mark.parametrize("dtype", [TYPES[1], F16, F32, TYPES[8], TYPES[10]], ids=str)
@pytest.mark.parametrize("columns", [8, 9, 13, 16, 27, 31, 33, 63, 65, 100])
def test_tiles_of_few_columns(kernels, dtype, columns):
    """Tiles have the shape of the problem. Rows of the transposed input have gaps, and the last tile is partial."""
    random = np.random.default_rng(columns)
    rows, planes = 300 + columns, 2
    sizes = [rows, columns, planes]
    for gap, offset in ((0, 0), (5, 3)):
        turned = [columns + gap, 1, (columns + gap) * rows + gap]
        dense = [1, rows, rows * columns]
        operands = [Operand(dtype, sizes, s, offset, random) for s in (dense, [1, 0, rows], turned)]
        assert run_and_compare(kernels, "mul", dtype, operands) == "tiled"


@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
@pytest.mark.parametrize("turned", [1, 2, 3])
def test_tiles_on_a_device_of_little_shared_memory(kernels, dtype, turned):
    """A block on sm_75 has 64 KiB of shared memory, so three transposed fp16 or bf16 inputs are read value by value."""
    random = np.random.default_rng(turned)
    sizes = [256, 136]
    strides = [[1, 256], *[[136, 1]] * turned, *[[1, 256]] * (3 - turned)]
    kernels.set_shared_bytes(ctypes.c_size_t(64 << 10))
    try:
        assert run_and_compare(kernels, "fma", dtype, [Operand(dtype, sizes, s, 0, random) for s in strides]) == "tiled"
    finally:
        kernels.set_shared_bytes(ctypes.c_size_t(227 << 10))
