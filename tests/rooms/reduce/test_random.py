"""Reductions with random shapes, strides, offsets, dims and dtypes: results are ATen's, or within the bound."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ...cases import Sample, tensors
from ...cases.reduce import CASES
from ...cases.samples.reduce_samples import FLOAT_TARGETS, SUM_TARGETS
from ...support.compare import different_metadata, different_results
from ...support.params import each_device
from ...support.random_layouts import layouts, shapes
from ...support.seeded import seeded

DTYPES = (*tensors.FLOATS, torch.int8, torch.int64, torch.bool, torch.complex64)
CONVERSIONS = {"reduce_sum": SUM_TARGETS, "reduce_mean": FLOAT_TARGETS}


@st.composite
def problems(draw, case):
    """A shape, the layout and the dtype of a tensor, and the call's arguments."""
    shape = draw(shapes(6, 300_000))
    rank = len(shape)
    dtype = draw(st.sampled_from([d for d in DTYPES if d in case.dtypes]))
    kwargs = {"keepdim": draw(st.booleans())}
    if draw(st.integers(0, 5)):
        dims = draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
        kwargs["dim"] = [d - rank * draw(st.booleans()) for d in dims]
    targets = [d for d in CONVERSIONS.get(case.name, ()) if d.is_complex or not dtype.is_complex]
    if targets and draw(st.integers(0, 3)) == 0:
        kwargs["dtype"] = draw(st.sampled_from(targets))
    return shape, draw(layouts(rank)), dtype, kwargs


def _values(device: str, dtype: torch.dtype, to: torch.dtype, seed: int):
    """A function of n that returns n values, which convert to the dtype `to` without loss of their sign."""
    make = tensors.Maker(device, dtype, seed=seed, small=to != dtype)
    if to in tensors.INTEGERS and dtype.is_floating_point:
        return lambda n: (8 * make(n)).abs()
    return lambda n: make(n).abs() if to == torch.uint8 and dtype.is_signed else make(n)


@each_device
@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_calls(case, device):
    @seeded(150 if device == "cpu" else 1500)
    @given(problems(case))
    def check(problem):
        shape, layout, dtype, kwargs = problem
        to = kwargs.get("dtype") or dtype
        x = layout.tensor(_values(device, dtype, to, len(shape)), shape)
        # ATen's CPU kernel computes these means in float32, without first rounding values to fp16 or bf16.
        narrowed = device == "cpu" and case.name == "reduce_mean" and to in (torch.float16, torch.bfloat16)
        sample = Sample("", (x,), kwargs, exact_inputs=not narrowed)
        want, got = case.aten(x, **kwargs), case.op(x, **kwargs)
        assert different_metadata(got, want) is None, different_metadata(got, want)
        problem = different_results(case, device, sample, got, want)
        assert problem is None, f"{tuple(shape)}, strides {x.stride()}, {dtype}, {kwargs}: {problem}"

    check()
