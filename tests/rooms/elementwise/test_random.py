"""The element-wise engine with random shapes, strides, offsets, broadcasts and dtypes: results are torch's bits."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torch_ops

from ...cases import tensors
from ...support.compare import different_bits, different_metadata
from ...support.params import each_device
from ...support.random_layouts import layouts, shapes
from ...support.seeded import seeded

pytestmark = pytest.mark.torch_version

DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.float16, torch.bool)


@st.composite
def problems(draw):
    """A shape; for each operand its shape, which broadcasts to it, its layout and its dtype; and the layout of out=."""
    shape = draw(shapes(5, 50_000))
    operands = []
    for _ in range(2):
        sizes = [1 if draw(st.integers(0, 3)) == 0 else n for n in shape]
        dtype = draw(st.sampled_from([None, None, None, *DTYPES]))
        operands.append((sizes, draw(layouts(len(shape), written=True)), dtype))
    return tuple(shape), operands, draw(layouts(len(shape), written=True))


def _on_meta(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_mul(device, dtype):
    @seeded(150 if device == "cpu" else 600)
    @given(problems())
    def check(problem):
        shape, operands, layout_of_out = problem
        maker = tensors.Maker(device, dtype, seed=len(shape))
        x, y = (layout.tensor(functools.partial(maker, dtype=d), sizes) for sizes, layout, d in operands)
        want = torch.mul(x, y)
        got = torch_ops.mul(x, y)
        # For two different dtypes, ATen's CPU kernels use the layout of the operand that they cast. gpuopt uses the Meta kernels'
        # layout.
        expected = want if x.dtype == y.dtype or device != "cpu" else torch_ops.mul(_on_meta(x), _on_meta(y))
        found = different_metadata(got, expected, device=not expected.is_meta)
        assert found is None, found
        assert different_bits(got, want) is None, different_bits(got, want)
        if want.shape == shape and want.dtype == dtype:
            out = layout_of_out.tensor(maker, shape)
            assert different_bits(torch_ops.mul(x, y, out=out), want) is None

    check()
