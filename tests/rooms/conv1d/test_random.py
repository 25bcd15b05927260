"""Convolutions with random sizes, stride, padding, groups, strides of tensors, offsets and dtypes: errors are within the bound."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ...cases import Sample, tensors
from ...cases.conv1d import CASES
from ...cases.samples.conv1d_samples import ACTIVATIONS
from ...support.compare import different_from_reference, different_metadata, different_results
from ...support.params import each_device
from ...support.random_layouts import layouts
from ...support.seeded import seeded

CASE = {case.name: case for case in CASES}
LENGTHS = (15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 130, 257, 500, 1000, 1025, 2051, 4099)
# (input channels, output channels) of a group: depthwise, one-to-many channels, few channels, one output channel, dense.
GROUPS = ((1, 1), (1, 1), (1, 1), (1, 2), (1, 3), (1, 8), (2, 1), (2, 2), (3, 5), (4, 8), (8, 4), (17, 16))
ORDERS = [(0, 1, 2), (0, 1, 2), (0, 2, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2), (1, 2, 0)]  # of (N, C, L)
MOST = 60_000
MANY = 310_000  # outputs: too many for a small problem on a GPU of up to 148 SMs


@st.composite
def problems(draw, device: str, many: bool = False):
    """Problems. With `many` outputs they have one input channel per group, so gpuopt has kernels for them
    (tests/cases/conv1d.py)."""
    channels, outputs = draw(st.sampled_from(GROUPS[:4] if many else GROUPS))
    groups = draw(st.one_of(st.integers(1, 9), st.sampled_from([1, 16, 33, 64, 130])))
    groups = min(groups, 130 // channels)
    dtype = draw(st.sampled_from(tensors.FLOATS))
    taps = draw(st.one_of(st.integers(1, 9), st.integers(1, 70)))
    if device == "cpu" and dtype.itemsize == 2:
        taps = min(taps, 9)  # ATen is inaccurate for more taps (conv1d_samples.py)
    dilation = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 7, 8, 16]))
    span = dilation * (taps - 1) + 1
    padding = draw(
        st.sampled_from(
            [(0, 0), (0, 0), (1, 1), (taps - 1, 0), (span // 2, span // 2), (span - 1, span - 1), (0, 3), (5, 2)]
        )
    )
    least = max(1, span - sum(padding))
    length = max(least, draw(st.one_of(st.integers(1, 40), st.sampled_from(LENGTHS))))
    length = min(length, max(least, MOST // (groups * max(channels, outputs))))
    n = min(draw(st.sampled_from([1, 1, 2, 3, 5, 17])), max(1, MOST // (length * groups * max(channels, outputs))))
    stride = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8]))
    if many:
        positions = (length + sum(padding) - span) // stride + 1
        n = MANY // (groups * outputs * positions) + 1
        hypothesis.assume(n * groups * channels * length < 16 * MANY)
        hypothesis.assume(dtype == torch.float64 or (stride == 1 and taps * dilation <= 16))
    return {
        "input": (n, groups * channels, length), "weight": (groups * outputs, channels, taps), "groups": groups, "dtype": dtype,
        "stride": [stride], "dilation": [dilation], "padding": list(padding),
        "bias": draw(st.booleans()), "activation": draw(st.sampled_from(["none", *ACTIVATIONS])),
        "layouts": [draw(layouts(3, orders=ORDERS)) for _ in range(3)], "mask": draw(st.integers(0, 2)),
    }  # fmt: skip


def _check(case, device: str, problem: dict, args: tuple, kwargs: dict) -> None:
    dtype, sample = problem["dtype"], Sample("", args, kwargs)
    want, got = case.aten(*args, **kwargs), case.op(*args, **kwargs)
    found = different_metadata(got, want) or different_results(case, device, sample, got, want)
    if device == "cuda" and found is None:  # the same operands give the same bits
        found = different_metadata(case.op(*sample.twin().args, **kwargs), got)
        found = found or different_from_reference(
            case.op(*sample.twin().args, **kwargs), got.double(), torch.zeros_like(got).double()
        )
    assert found is None, f"{case}, {dtype}, {problem}, strides {[a.stride() for a in args]}: {found}"


def _check_all(device: str, pass_: str, examples: int, many: bool) -> None:
    @seeded(examples)
    @given(problems(device, many))
    def check(problem):
        make = tensors.Maker(device, problem["dtype"], seed=problem["input"][2])
        x, w = (layout.tensor(make, problem[k]) for k, layout in zip(("input", "weight"), problem["layouts"]))
        steps = {k: problem[k] for k in ("stride", "padding", "dilation", "groups")}
        if pass_ == "forward":
            args = (x, w, make(len(w))) if problem["bias"] else (x, w)
            _check(CASE["conv1d_act"], device, problem, args, {**steps, "activation": problem["activation"]})
        else:
            positions = (
                x.shape[2] + sum(problem["padding"]) - problem["dilation"][0] * (w.shape[2] - 1) - 1
            ) // problem["stride"][0] + 1
            grad = problem["layouts"][2].tensor(make, (len(x), len(w), positions))
            mask = {"output_mask": [k == problem["mask"] for k in range(3)]}
            _check(CASE["conv1d_backward"], device, problem, (grad, x, w), {**steps, **mask})

    check()


@each_device
@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_random_calls(pass_, device):
    _check_all(device, pass_, 200 if device == "cpu" else 1500, many=False)


@pytest.mark.gpu
@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_random_calls_with_many_outputs(pass_):
    _check_all("cuda", pass_, 300, many=True)
