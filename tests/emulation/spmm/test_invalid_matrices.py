"""Matrices whose numbers nobody has checked: row pointers that descend or leave the entries, and positions that no value has.

Results are unspecified. Memory ends where the operands end, so that a kernel that leaves them ends the process.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..dtypes import BF16, F16, F32
from ..memory import encode
from .test_spmm_attention import COLUMNS, ROWS, Attention
from .test_spmm_kernels import (
    COPY,
    F64,
    MAX,
    SELECTED,
    SOFTMAX,
    SOFTMAX_GRADIENT,
    SUM,
    Dense,
    Matrix,
    address,
    call,
    kernels,
    placed,
)
from .test_spmm_tiles import LARGE, LOG_SUM, SMALL

__all__ = ["kernels"]

WINDOWS = (2, 8, 128)


class Wrong(Matrix):
    """A matrix with a right index. The row pointers, and where values are, are numbers of a kind."""

    KINDS = ("descending", "shuffled", "negative", "beyond", "any")

    def __init__(self, random, rows, entries, kind, long, has_index, has_entry):
        super().__init__(random, rows, 30, (0,), long=long, has_index=False)
        self.entries, self.columns = entries, 30 if has_index else entries
        right = np.sort(random.integers(0, entries + 1, rows + 1))
        limit = np.iinfo(self.number).max
        self.ptr[...] = {
            "descending": right[::-1],
            "shuffled": random.permutation(right),
            "negative": right - entries // 2,
            "beyond": right + entries // 2,
            "any": random.integers(-limit, limit, rows + 1),
        }[kind]
        if has_index:
            self.index = placed(random.integers(0, 30, entries).astype(self.number))
        if has_entry:  # kernels read the low word of a number
            self.entry = placed(random.integers(-5, 2 * entries, entries).astype(self.number))


@pytest.fixture(params=Wrong.KINDS)
def matrices(request):
    """Draws matrices without end."""
    random = np.random.default_rng(0)

    def draw(rows=None, has_index=None, has_entry=None):
        entries = int(random.choice((1, 7, 60, 700)))
        return Wrong(
            random,
            int(random.choice((1, 5, 40, 200))) if rows is None else rows,
            entries,
            request.param,
            bool(random.integers(2)),
            bool(random.integers(2)) if has_index is None else has_index,
            bool(random.integers(2)) if has_entry is None else has_entry,
        )

    return random, draw


def test_reductions(kernels, matrices):
    random, draw = matrices
    for k in range(48):
        matrix, dtype = draw(), (F32, F16, F64, BF16)[k % 4]
        kind, features = (SUM, MAX)[k // 4 % 2], int(random.choice((1, 3, 8, 33, 48)))
        heads = int(k % 5 == 0 and matrix.index is not None)
        dense, out = (Dense(random, dtype, rows, features) for rows in (matrix.columns, matrix.rows))
        value = Dense(random, dtype, matrix.entries, 1) if heads else None
        arg = placed(np.zeros((matrix.rows, features), matrix.number)) if kind == MAX else None
        fields = [
            *matrix.fields(), kind, dtype.number, 1, features, address(value and value.memory), 1, *dense.fields(),
            *out.fields(), address(arg), 0, int(random.choice(WINDOWS)),
        ]  # fmt: skip
        assert call(kernels.spmm_reduce, fields, ctypes.c_double(0)) >= 0


def test_products(kernels, matrices):
    random, draw = matrices
    for k in range(24):
        matrix, dtype, heads = draw(), (F32, F16, BF16, F64)[k % 4], (1, 4)[k % 2]
        features = heads * int(random.choice((1, 8, 33)))
        a, b = (Dense(random, dtype, rows, features) for rows in (matrix.rows, matrix.columns))
        out = placed(encode(F32, np.zeros(matrix.entries * heads)).astype(dtype.numpy))
        fields = [
            *matrix.fields(), dtype.number, features, heads, *a.fields(), *b.fields(), address(out), (2, 128)[k % 2]
        ]  # fmt: skip
        assert call(kernels.spmm_product, fields) >= 0


@pytest.mark.parametrize("kind", [COPY, SELECTED, SOFTMAX, SOFTMAX_GRADIENT])
def test_maps(kernels, matrices, kind):
    random, draw = matrices
    for k in range(24):
        matrix, dtype = draw(has_index=False, has_entry=False), (F32, F16, BF16, F64)[k % 4]
        features = int(random.choice((1, 2, 3, 8, 40)))
        x, y, out = (Dense(random, dtype, matrix.entries, features) for _ in range(3))
        rows = Dense(random, dtype, matrix.rows, features)
        selected = placed(random.integers(0, matrix.entries, (matrix.rows, features)).astype(matrix.number))
        fields = [
            *matrix.fields(), kind, dtype.number, features, address(x.memory), address(y.memory), *rows.fields(),
            address(selected), address(out.memory), int(random.choice((SMALL, LARGE, 2))),
        ]  # fmt: skip
        assert call(kernels.spmm_map, fields) >= 0


def test_tiles_of_every_reduction(kernels, matrices):
    random, draw = matrices
    for k in range(24):
        matrix, kind = draw(has_index=False, has_entry=False), (SUM, MAX, LOG_SUM)[k % 3]
        data = Dense(random, F32, matrix.entries, 1 + k % 4)
        out = Dense(random, F32, matrix.rows, data.features * (2 if kind == LOG_SUM else 1))
        fields = [
            *matrix.fields(), kind, F32.number, 1, data.features, 0, 1, *data.fields(), address(out.memory),
            data.features, 0, 0, 0, (SMALL, LARGE)[k % 2],
        ]  # fmt: skip
        assert call(kernels.spmm_reduce, fields, ctypes.c_double(0)) >= 0


def test_attention(kernels, matrices):
    random, draw = matrices
    for k in range(12):
        matrix = draw(rows=ROWS, has_index=False)
        matrix.columns = COLUMNS
        matrix.index = placed(random.integers(0, COLUMNS, matrix.entries).astype(matrix.number))
        attention = Attention(random, matrix, (F32, BF16)[k % 2], 2, 8, (0, 8)[k // 2 % 2])
        for function in (kernels.spmm_attention, kernels.spmm_attention_gradient):
            attention.run(function, (2, 64)[k // 4 % 2])
