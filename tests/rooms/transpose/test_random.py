"""Transposition of matrices of random sizes and strides: results are ATen's bits."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ...cases.tensors import Maker
from ...support.params import each_device
from ...support.random_layouts import layouts
from ...support.seeded import seeded
from .test_use import check as check_one

DTYPES = (torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from([31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 257, 1000]))
MOST = 300_000


@st.composite
def matrices(draw):
    shape = [draw(st.sampled_from([1, 2, 3, 5])) for _ in range(draw(st.integers(0, 4)))] + [draw(SIZES), draw(SIZES)]
    while torch.Size(shape).numel() > MOST:
        shape[-2 if shape[-2] > shape[-1] else -1] //= 2
    in_order = range(len(shape))
    orders = draw(st.sampled_from([(), [in_order]]))
    return shape, draw(layouts(len(shape), orders=orders)), draw(st.sampled_from(DTYPES))


@each_device
def test_random_matrices(device):
    @seeded(150 if device == "cpu" else 500)
    @given(matrices())
    def check(matrix):
        shape, layout, dtype = matrix
        check_one(layout.tensor(Maker(device, dtype), shape))

    check()
