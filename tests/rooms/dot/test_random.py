"""Dot products with random sizes, strides, offsets, conjugated views and dtypes: errors are within the bound."""

from __future__ import annotations

import pytest
import torch

from ...cases import Sample, tensors
from ...cases.dot import CASES
from ...support.compare import different_metadata, different_results
from ...support.params import each_device

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

DTYPES = (*tensors.FLOATS, torch.int8, torch.int64, torch.complex64, torch.complex128)
LENGTHS = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 130, 257, 1000, 1025, 4099, 2**14 + 5)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from(LENGTHS))
MOST = 300_000


@st.composite
def layouts(draw, rank: int):
    """The memory layout of an operand: the stride within a row, expanded rows or values, the innermost dimension, gaps, the offset
    of the first value, and whether it is a conjugated view."""
    return {
        "order": draw(st.permutations(range(rank))), "one": draw(st.sampled_from([None, None, None, *range(rank)])),
        "step": draw(st.sampled_from([1, 1, 1, 2, 3])), "gap": draw(st.sampled_from([0, 0, 1, 8])),
        "offset": draw(st.sampled_from([0, 0, 1, 2, 3, 5, 8])), "conjugate": draw(st.booleans()),
    }  # fmt: skip


@st.composite
def problems(draw, case):
    shape = [draw(SIZES)]
    if case.name == "dot_rows":
        rows = draw(SIZES)
        shape = [min(rows, 4099, MOST // max(shape[0], 1)), *shape]
    elif draw(st.integers(0, 9)) == 0:
        shape = [draw(st.integers(1, MOST))]
    rank = len(shape)
    return (
        shape,
        draw(layouts(rank)),
        draw(layouts(rank)),
        draw(st.sampled_from([d for d in DTYPES if d in case.dtypes])),
    )


def _make(make: tensors.Maker, shape: list, layout: dict) -> torch.Tensor:
    strides, stride = [0] * len(shape), layout["step"]
    for dim in reversed(layout["order"]):
        if dim != layout["one"]:
            strides[dim] = stride
            stride = stride * shape[dim] + layout["gap"]
    made = make(layout["offset"] + stride + 1).as_strided(shape, strides, layout["offset"])
    return made.conj() if layout["conjugate"] else made


@each_device
@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_calls(case, device):
    @settings(max_examples=150 if device == "cpu" else 1500, deadline=None, derandomize=True, database=None)
    @given(problems(case))
    def check(problem):
        shape, first, second, dtype = problem
        make = tensors.Maker(device, dtype, seed=len(shape))
        x, y = (_make(make, shape, layout) for layout in (first, second))
        want, got = case.aten(x, y), case.op(x, y)
        assert different_metadata(got, want) is None, different_metadata(got, want)
        problem = different_results(case, device, Sample("", (x, y)), got, want)
        said = f"{tuple(shape)}, {dtype}, strides {x.stride()} and {y.stride()}, {first}, {second}"
        assert problem is None, f"{said}: {problem}"

    check()
