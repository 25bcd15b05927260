"""The element-wise engine with random shapes, strides, offsets, broadcasts and dtypes: results are torch's bits."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...cases import tensors
from ...support.compare import different_bits, different_metadata
from ...support.params import each_device

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

pytestmark = pytest.mark.torch_version

DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.float16, torch.bool)
SIZES = st.one_of(st.integers(1, 9), st.sampled_from([15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 130]))


@st.composite
def problems(draw):
    """A shape of at most 50 000 elements, and the memory layout of each operand."""
    shape = []
    for _ in range(draw(st.integers(0, 5))):
        size = draw(SIZES)
        if torch.Size([*shape, size]).numel() <= 50_000:
            shape.append(size)
    return tuple(shape), [draw(operands(len(shape))) for _ in range(2)], draw(operands(len(shape)))


@st.composite
def operands(draw, dims: int):
    order = draw(st.permutations(range(dims)))
    broadcast = [draw(st.booleans()) and draw(st.booleans()) for _ in range(dims)]
    step = draw(st.sampled_from([1, 1, 1, 2]))
    gap = draw(st.sampled_from([0, 0, 1, 8]))
    return {
        "order": order, "broadcast": broadcast, "step": step, "gap": gap,
        "offset": draw(st.sampled_from([0, 0, 1, 2, 3, 5, 8])), "dtype": draw(st.sampled_from([None, None, None, *DTYPES])),
    }  # fmt: skip


def _make(maker: tensors.Maker, shape: tuple, how: dict, writable: bool = False) -> torch.Tensor:
    """A tensor of `shape` (with size 1 where it broadcasts), with dimensions in the order `order`, strides, gaps and an offset."""
    sizes = [1 if b and not writable else n for n, b in zip(shape, how["broadcast"], strict=True)]
    strides, stride = [0] * len(sizes), how["step"]
    for dim in reversed(how["order"]):
        strides[dim] = stride
        stride = stride * sizes[dim] + how["gap"]
    dtype = None if writable else how["dtype"]
    flat = maker(how["offset"] + stride + 1, dtype=dtype)
    return flat.as_strided(sizes, strides, how["offset"])


def _on_meta(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_mul(device, dtype):
    @settings(max_examples=150 if device == "cpu" else 600, deadline=None, derandomize=True, database=None)
    @given(problems())
    def check(problem):
        shape, how, how_out = problem
        maker = tensors.Maker(device, dtype, seed=len(shape))
        x, y = (_make(maker, shape, h) for h in how)
        want = torch.mul(x, y)
        got = torch_ops.mul(x, y)
        # For two different dtypes, ATen's CPU kernels use the layout of the operand that they cast. gpuopt uses the Meta kernels'
        # layout.
        expected = want if x.dtype == y.dtype or device != "cpu" else torch_ops.mul(_on_meta(x), _on_meta(y))
        found = different_metadata(got, expected, device=not expected.is_meta)
        assert found is None, found
        assert different_bits(got, want) is None, different_bits(got, want)
        if want.shape == shape and want.dtype == dtype:
            out = _make(maker, shape, how_out, writable=True)
            assert different_bits(torch_ops.mul(x, y, out=out), want) is None

    check()
