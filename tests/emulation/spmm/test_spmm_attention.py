"""Kernels of attention over a sparse matrix, compared with a softmax of numpy in float64 over the entries of each row."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from ..build import load
from ..dtypes import BF16, F16, F32, TYPES, DType
from ..memory import decode, encode
from .test_spmm_kernels import Matrix, address, call, placed

F64 = TYPES[8]
FLOATS = [F32, F16, BF16, F64]
EPS = {F16: 2.0**-10, BF16: 2.0**-7, F32: 2.0**-20, F64: 2.0**-45}
ROWS, COLUMNS = 14, 20


@pytest.fixture(scope="module")
def kernels():
    return load("spmm")


class Operand:
    """Random rows with a pitch of `pitch` numbers between them."""

    def __init__(self, random, dtype: DType, *shape, pitch=0):
        self.dtype, self.shape = dtype, shape
        self.row = int(np.prod(shape[1:])) + pitch
        self.memory = placed(encode(dtype, random.standard_normal((shape[0], self.row))))

    @property
    def values(self) -> np.ndarray:
        return decode(self.dtype, self.memory)[:, : int(np.prod(self.shape[1:]))].reshape(self.shape)

    @property
    def between(self) -> np.ndarray:
        return self.memory[:, int(np.prod(self.shape[1:])) :].copy()

    def set(self, values) -> None:
        self.memory[:, : int(np.prod(self.shape[1:]))] = encode(self.dtype, values).reshape(self.shape[0], -1)

    def fields(self):
        return [address(self.memory), self.row, 0]


class Attention:
    """A problem and its results. `key` is the number of features of a head's scores, or 0 for the additive form."""

    def __init__(self, random, matrix, dtype, heads, features, key, *, bias=True, pitch=0, factor=0.3):
        self.matrix, self.dtype, self.heads, self.features, self.key = matrix, dtype, heads, features, key
        self.factor = factor
        wide = F64 if dtype is F64 else F32
        score = (heads, key) if key else (heads,)

        def made(*shape, dtype=dtype, pitch=pitch):
            return Operand(random, dtype, *shape, pitch=pitch)

        self.left, self.right = made(ROWS, *score), made(COLUMNS, *score)
        self.value, self.bias = made(COLUMNS, heads, features), made(matrix.entries, heads, pitch=0) if bias else None
        self.out, self.log_sum = made(ROWS, heads, features), made(ROWS, heads, dtype=wide, pitch=0)
        self.grad, self.left_grad = made(ROWS, heads, features), made(ROWS, *score)
        self.weight, self.score_grad = (made(matrix.entries, heads, pitch=0) for _ in range(2))

    def run(self, function, window: int) -> None:
        fields = [
            *self.matrix.fields(),
            self.dtype.number,
            self.heads,
            self.heads * self.features,
            self.heads * self.key,
        ]
        for operand in (self.left, self.right, self.value):
            fields += operand.fields()
        fields += [address(self.bias.memory) if self.bias else 0, *self.out.fields(), address(self.log_sum.memory)]
        fields += [*self.grad.fields(), *self.left_grad.fields(), address(self.weight.memory)]
        fields += [address(self.score_grad.memory), window]
        assert call(function, fields, ctypes.c_double(self.factor)) == 0

    def expected(self) -> SimpleNamespace:
        left, right, value, grad = (x.values for x in (self.left, self.right, self.value, self.grad))
        found = SimpleNamespace(
            out=np.zeros(self.out.shape), log_sum=np.full(self.log_sum.shape, -np.inf), left_grad=np.zeros(left.shape),
            weight=np.zeros(self.weight.shape), score_grad=np.zeros(self.weight.shape),
        )  # fmt: skip
        for row in range(ROWS):
            entries = list(self.matrix.of_row(row))
            if not entries:
                continue
            columns, places = [[f(e) for e in entries] for f in (self.matrix.column, self.matrix.position)]
            bias = self.bias.values[places] if self.bias else 0
            if self.key:
                scores, slope = self.factor * (left[row] * right[columns]).sum(-1) + bias, 1
            else:
                raw = left[row] + right[columns] + bias
                slope = np.where(raw > 0, 1, self.factor)
                scores = raw * slope
            most = scores.max(0)
            powers = np.exp(scores - most)
            total = np.where(scores == most, 1, powers).sum(0)  # as in segment_softmax if the maximum is infinite
            weights = powers / total
            found.log_sum[row] = most + np.log(total)
            found.out[row] = (weights[..., None] * value[columns]).sum(0)
            grads = weights * (grad[row] * (value[columns] - found.out[row])).sum(-1) * slope
            found.weight[places], found.score_grad[places] = weights, grads
            found.left_grad[row] = (self.factor * grads[..., None] * right[columns] if self.key else grads).sum(0)
        return found

    def check(self, kernels, window: int) -> None:
        expected, before = self.expected(), [x.between for x in (self.out, self.left_grad)]
        self.run(kernels.spmm_attention, window)
        scale = 1 + max(self.key, 1) ** 0.5
        np.testing.assert_allclose(self.out.values, expected.out, rtol=0, atol=8 * EPS[self.dtype])
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if self.dtype is not F64 else {"rtol": 1e-12, "atol": 1e-12}
        np.testing.assert_allclose(self.log_sum.values, expected.log_sum, **tolerance)
        self.run(kernels.spmm_attention_gradient, window)
        for name in ("weight", "score_grad", "left_grad"):
            size = np.abs(getattr(expected, name)).max(initial=1)
            atol = 8 * scale * EPS[self.dtype] * size
            np.testing.assert_allclose(getattr(self, name).values, getattr(expected, name), rtol=0, atol=atol)
        for operand, between in zip((self.out, self.left_grad), before, strict=True):
            np.testing.assert_array_equal(operand.between, between)


# heads, features of a head in vectors of 16 bytes, and the same of left and right
SHAPES = [(1, 8, 8), (3, 1, 2), (8, 2, 2), (5, 3, 1), (2, 32, 20), (9, 4, 4)]


@pytest.mark.parametrize("form", ["product", "additive"])
@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(kernels, shape, dtype, form):
    """Rows without entries, short rows, and rows of many windows."""
    heads, features, key = shape
    vector = 16 // dtype.numpy.itemsize
    random = np.random.default_rng(heads)
    matrix = Matrix(random, ROWS, COLUMNS, (0, 1, 5, 120), long=heads % 2 == 0, has_entry=heads % 3 == 0)
    for bias, pitch, window in ((True, 0, 8), (False, vector, 128)):
        given = (features * vector, key * vector if form == "product" else 0)
        Attention(random, matrix, dtype, heads, *given, bias=bias, pitch=pitch).check(kernels, window)


@pytest.mark.parametrize("form", ["product", "additive"])
@pytest.mark.parametrize("lengths", [(0,), (17,), (0, 1, 2, 3), (500,), (0, 0, 0, 700)], ids=str)
@pytest.mark.parametrize("window", [4, 128])
def test_lengths_of_rows(kernels, lengths, form, window):
    for has_entry in (False, True):
        random = np.random.default_rng(7)
        matrix = Matrix(random, ROWS, COLUMNS, lengths, has_entry=has_entry)
        Attention(random, matrix, F32, 2, 16, 8 if form == "product" else 0).check(kernels, window)


@pytest.mark.parametrize("window", [1, 128])
def test_large_and_infinite_scores(kernels, window):
    """Entries of score -inf have no weight. Rows of nothing else, with inf or with NaN are NaN, as by torch.softmax."""
    inf, nan = np.inf, np.nan
    rows = [
        [-inf, 1, 2],
        [-inf, -inf],
        [inf, 0],
        [0, nan, 1],
        [900, 800, 901],
        [],
        [-inf, 0],
        [0, -inf, -inf, -inf],
        [-900],
    ]
    rows += [[]] * (ROWS - len(rows))
    random = np.random.default_rng(3)
    matrix = Matrix(random, ROWS, COLUMNS, (0,))
    matrix.ptr = placed(np.cumsum([0, *map(len, rows)]).astype(np.int32))
    matrix.entries = int(matrix.ptr[-1])
    matrix.index = placed(random.integers(0, COLUMNS, matrix.entries).astype(np.int32))
    attention = Attention(random, matrix, F32, 1, 4, 4, factor=0)
    attention.bias.set(np.array(sum(rows, []))[:, None])
    with np.errstate(all="ignore"):
        expected = attention.expected()
    for function in (kernels.spmm_attention, kernels.spmm_attention_gradient):
        attention.run(function, window)
    assert [bool(np.isnan(row).all()) for row in attention.out.values[:9, 0]] == [i in (1, 2, 3) for i in range(9)]
    for name in ("out", "weight", "score_grad"):
        np.testing.assert_allclose(getattr(attention, name).values, getattr(expected, name), rtol=1e-4, atol=1e-6)
