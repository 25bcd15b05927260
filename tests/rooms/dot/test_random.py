"""Dot products with random sizes, strides, offsets, conjugated views and dtypes: errors are within the bound."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ...cases import Sample, tensors
from ...cases.dot import CASES
from ...support.compare import different_metadata, different_results
from ...support.params import each_device
from ...support.random_layouts import LENGTHS, layouts
from ...support.seeded import seeded

DTYPES = (*tensors.FLOATS, torch.int8, torch.int64, torch.complex64, torch.complex128)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from((*LENGTHS, 2**14 + 5)))
MOST = 300_000


@st.composite
def problems(draw, case):
    shape = [draw(SIZES)]
    if case.name == "dot_rows":
        rows = draw(SIZES)
        shape = [min(rows, 4099, MOST // max(shape[0], 1)), *shape]
    elif draw(st.integers(0, 9)) == 0:
        shape = [draw(st.integers(1, MOST))]
    rank = len(shape)
    dtype = draw(st.sampled_from([d for d in DTYPES if d in case.dtypes]))
    return shape, [draw(layouts(rank)) for _ in range(2)], [draw(st.booleans()) for _ in range(2)], dtype


@each_device
@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_calls(case, device):
    @seeded(150 if device == "cpu" else 1500)
    @given(problems(case))
    def check(problem):
        shape, given_layouts, conjugate, dtype = problem
        make = tensors.Maker(device, dtype, seed=len(shape))
        x, y = (layout.tensor(make, shape) for layout in given_layouts)
        x, y = (t.conj() if flipped else t for t, flipped in zip((x, y), conjugate))
        want, got = case.aten(x, y), case.op(x, y)
        assert different_metadata(got, want) is None, different_metadata(got, want)
        problem = different_results(case, device, Sample("", (x, y)), got, want)
        said = f"{tuple(shape)}, {dtype}, strides {x.stride()} and {y.stride()}, {given_layouts}, {conjugate}"
        assert problem is None, f"{said}: {problem}"

    check()
