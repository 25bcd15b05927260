"""Reductions with random shapes, strides, offsets, dims and dtypes: results are ATen's, or within the bound."""

from __future__ import annotations

import pytest
import torch

from ...cases import Sample, tensors
from ...cases.reduce import CASES
from ...cases.reduce_samples import FLOAT_TARGETS, SUM_TARGETS
from ...support.compare import different_metadata, different_results
from ...support.params import each_device

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

DTYPES = (*tensors.FLOATS, torch.int8, torch.int64, torch.bool, torch.complex64)
LENGTHS = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 130, 257, 1000, 1025, 4099)
SIZES = st.one_of(st.integers(1, 9), st.sampled_from(LENGTHS))
CONVERSIONS = {"reduce_sum": SUM_TARGETS, "reduce_mean": FLOAT_TARGETS}


@st.composite
def problems(draw, case):
    """A tensor of at most 300 000 elements, and the call's arguments.

    The tensor has a random order of dimensions, strides, gaps, an offset and expanded dimensions.
    """
    shape = []
    for _ in range(draw(st.integers(0, 6))):
        size = draw(SIZES)
        if torch.Size([*shape, size]).numel() <= 300_000:
            shape.append(size)
    rank = len(shape)
    expanded = [draw(st.integers(0, 5)) == 0 for _ in shape]
    dtype = draw(st.sampled_from([d for d in DTYPES if d in case.dtypes]))
    kwargs = {"keepdim": draw(st.booleans())}
    if draw(st.integers(0, 5)):
        dims = draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
        kwargs["dim"] = [d - rank * draw(st.booleans()) for d in dims]
    targets = [d for d in CONVERSIONS.get(case.name, ()) if d.is_complex or not dtype.is_complex]
    if targets and draw(st.integers(0, 3)) == 0:
        kwargs["dtype"] = draw(st.sampled_from(targets))
    layout = {
        "order": draw(st.permutations(range(rank))), "expanded": expanded, "step": draw(st.sampled_from([1, 1, 1, 2, 3])),
        "gap": draw(st.sampled_from([0, 0, 0, 1, 8])), "offset": draw(st.sampled_from([0, 0, 1, 2, 3, 5, 8])),
    }  # fmt: skip
    return shape, layout, dtype, kwargs


def _make(device: str, shape: list, layout: dict, dtype: torch.dtype, to: torch.dtype) -> torch.Tensor:
    strides, stride = [0] * len(shape), layout["step"]
    for dim in reversed(layout["order"]):
        if not layout["expanded"][dim]:
            strides[dim] = stride
            stride = stride * shape[dim] + layout["gap"]
    maker = tensors.Maker(device, dtype, seed=len(shape), small=to != dtype)
    flat = maker(layout["offset"] + stride + 1)
    if to in tensors.INTEGERS and dtype.is_floating_point:
        flat = (8 * flat).abs()  # negative numbers must not become unsigned
    elif to == torch.uint8 and dtype.is_signed:
        flat = flat.abs()
    return flat.as_strided(shape, strides, layout["offset"])


@each_device
@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_calls(case, device):
    @settings(max_examples=150 if device == "cpu" else 1500, deadline=None, derandomize=True, database=None)
    @given(problems(case))
    def check(problem):
        shape, layout, dtype, kwargs = problem
        to = kwargs.get("dtype") or dtype
        x = _make(device, shape, layout, dtype, to)
        # ATen's CPU kernel computes these means in float32, without first rounding values to fp16 or bf16.
        narrowed = device == "cpu" and case.name == "reduce_mean" and to in (torch.float16, torch.bfloat16)
        sample = Sample("", (x,), kwargs, exact_inputs=not narrowed)
        want, got = case.aten(x, **kwargs), case.op(x, **kwargs)
        assert different_metadata(got, want) is None, different_metadata(got, want)
        problem = different_results(case, device, sample, got, want)
        assert problem is None, f"{tuple(shape)}, strides {x.stride()}, {dtype}, {kwargs}: {problem}"

    check()
