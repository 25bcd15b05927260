"""Kernels of sparse products, compared with loops of numpy over the entries of each row. Memory ends where the operands end."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from ..build import load
from ..dtypes import BF16, F16, F32, FLOAT, TYPES, DType
from ..memory import Memory, decode, encode

I32, I64, F64 = TYPES[4], TYPES[5], TYPES[8]
SUM, MEAN, MAX, MIN, PROD = range(5)
COPY, SELECTED, SOFTMAX, SOFTMAX_GRADIENT, PRODUCT = range(5)
VECTOR, SPREAD, SINGLE = range(3)
FEW = 16  # is added to the access of reductions in one launch, which window 0 asks for


@pytest.fixture(scope="module")
def kernels():
    return load("spmm")


def placed(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """A copy of an array, `offset` bytes behind a page that may not be read. It ends less than 16 bytes before another."""
    size = -(-(array.nbytes + offset) // 16) * 16
    whole = Memory(-(-size // 4096) * 4096).bytes[-size:] if size else np.zeros(16, np.uint8)
    whole[:] = 0xCD
    copy = whole[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Matrix:
    """A random matrix in rows of entries. Lengths of rows are drawn from `lengths`."""

    def __init__(self, random, rows, columns, lengths, long=False, has_index=True, has_entry=False):
        self.rows, self.columns = rows, columns
        counts = random.choice(lengths, rows)
        self.number = np.int64 if long else np.int32
        self.ptr = placed(np.concatenate([[0], np.cumsum(counts)]).astype(self.number))
        self.entries = int(self.ptr[-1])
        if not has_index:
            self.columns = self.entries
        columns_of = random.integers(0, max(columns, 1), self.entries).astype(self.number)
        self.index = placed(columns_of) if has_index else None
        self.entry = placed(random.permutation(self.entries).astype(self.number)) if has_entry else None

    def column(self, entry):
        return entry if self.index is None else self.index[entry]

    def position(self, entry):
        return entry if self.entry is None else self.entry[entry]

    def of_row(self, row):
        return range(self.ptr[row], self.ptr[row + 1])

    def fields(self):
        is_long = int(self.number == np.int64)
        return [
            *map(address, (self.ptr, self.index, self.entry)),
            is_long,
            self.rows,
            self.columns,
            self.entries,
        ]


def address(array) -> int:
    return 0 if array is None else array.ctypes.data


def call(function, fields, *more) -> int:
    return function((ctypes.c_int64 * len(fields))(*map(int, fields)), *more)


class Dense:
    """Dense rows with a pitch between them, from an offset on. Values are small multiples of 1/4, so that sums are exact."""

    def __init__(self, random, dtype: DType, rows, features, pitch=0, batches=1, offset=0, poison=False):
        self.dtype, self.features, self.row = dtype, features, features + pitch
        self.batch = rows * self.row
        values = (
            dtype.some(random, batches * self.batch) if dtype is not BF16 else F32.some(random, batches * self.batch)
        )
        values = values.reshape(batches, rows, self.row)
        self.memory = placed(encode(dtype, values), offset * dtype.numpy.itemsize)
        if poison:
            self.memory.view(np.uint8)[...] = 0xCD

    def fields(self):
        return [address(self.memory), self.row, self.batch]

    def values(self):
        return decode(self.dtype, self.memory)[..., : self.features]

    def between(self):
        return self.memory.view(np.uint8).reshape(*self.memory.shape, -1)[..., self.features :, :]


def reduced(kind, items):
    """The reduction of a list of numbers, and which is the maximum or minimum."""
    if not items:
        return (1 if kind == PROD else 0), -1
    if kind == PROD:
        return np.prod(items), -1
    if kind in (SUM, MEAN):
        return sum(items) / (len(items) if kind == MEAN else 1), -1
    best = int(np.argmax(items) if kind == MAX else np.argmin(items))
    return items[best], best


def check_reduce(
    kernels, matrix, kind, dtype, features, *, heads=0, batches=1, pitch=0, offset=0, window=128, access=None
):
    random = np.random.default_rng(features)
    dense = Dense(random, dtype, matrix.columns, features, pitch, batches, offset)
    out = Dense(random, dtype, matrix.rows, features, pitch, batches, offset, poison=True)
    value = Dense(random, dtype, matrix.entries, heads) if heads else None
    arg = placed(np.full((batches, matrix.rows, features), 77, matrix.number)) if kind in (MAX, MIN) else None
    fields = [
        *matrix.fields(), kind, dtype.number, batches, features, address(value.memory if value else None), heads or 1,
        *dense.fields(), *out.fields(), address(arg), 0, window,
    ]  # fmt: skip
    used = call(kernels.spmm_reduce, fields, ctypes.c_double(1 if kind == PROD else 0))
    assert used == access if access is not None else used >= 0
    assert (used >= FEW) == (window == 0)
    table, weights = dense.values(), value.values()[0] if value else None
    head = np.arange(features) * (heads or 1) // features
    expected = np.zeros((batches, matrix.rows, features))
    for batch, row in itertools.product(range(batches), range(matrix.rows)):
        entries = matrix.of_row(row)
        lines = np.array(
            [
                table[batch, matrix.column(e)] * (1 if weights is None else weights[matrix.position(e)][head])
                for e in entries
            ]
        )
        for n in range(features):
            expected[batch, row, n], best = reduced(kind, list(lines[:, n]) if len(entries) else [])
            if arg is not None:
                assert arg[batch, row, n] == (matrix.position(matrix.ptr[row] + best) if best >= 0 else -1)
    if kind == MEAN and dtype.numpy.kind == "i":
        expected = np.floor(expected)
    want = decode(dtype, encode(dtype, expected))
    np.testing.assert_allclose(
        out.values(), want, rtol={F32: 1e-6, F64: 1e-12}.get(dtype, 1e-2 if dtype is BF16 else 2e-3)
    )
    assert (out.between() == 0xCD).all()


LENGTHS = {"short": (0, 1, 2, 3), "uneven": (0, 0, 1, 5, 40, 300), "empty": (0,), "even": (17,)}


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64, I32, I64], ids=repr)
def test_sums(kernels, dtype, lengths):
    random = np.random.default_rng(1)
    for k, features in enumerate((1, 3, 8, 32, 47, 96, 130)):
        matrix = Matrix(random, 20, 30, LENGTHS[lengths], long=k % 2 == 0, has_entry=k % 3 == 0)
        heads = k % 2 if dtype.category == FLOAT else 0
        check_reduce(
            kernels, matrix, SUM, dtype, features, heads=heads, window=(8, 128)[k % 2], pitch=(0, 1, 16)[k % 3]
        )


@pytest.mark.parametrize("kind", [MEAN, MAX, MIN, PROD])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64, I32, I64], ids=repr)
def test_reductions(kernels, dtype, kind):
    random = np.random.default_rng(kind)
    for k, features in enumerate((1, 8, 40)):
        lengths = (0, 1, 2, 3) if kind == PROD else (0, 1, 5, 200)
        matrix = Matrix(random, 15, 30, lengths, long=k % 2 == 0, has_index=k != 1)
        heads = k % 2 if dtype.category == FLOAT and kind != PROD else 0
        check_reduce(kernels, matrix, kind, dtype, features, heads=heads, window=4)


@pytest.mark.parametrize(
    "dtype, features, pitch, offset, access",
    [
        (F32, 32, 0, 0, VECTOR),
        (F32, 256, 4, 4, VECTOR),
        (F32, 32, 0, 1, SINGLE),
        (F32, 36, 1, 0, SPREAD),
        (F32, 34, 0, 0, SPREAD),
        (BF16, 8, 0, 0, VECTOR),
        (BF16, 520, 8, 8, VECTOR),
        (BF16, 12, 0, 0, SINGLE),
        (BF16, 300, 0, 0, SPREAD),
        (F64, 2, 0, 0, VECTOR),
        (F64, 3, 0, 0, SINGLE),
    ],
)
def test_accesses(kernels, dtype, features, pitch, offset, access):
    matrix = Matrix(np.random.default_rng(2), 9, 20, (0, 1, 9, 40))
    check_reduce(
        kernels, matrix, SUM, dtype, features, heads=1, batches=2, pitch=pitch, offset=offset, window=8, access=access
    )


@pytest.mark.parametrize(
    "heads, features, access", [(4, 32, VECTOR), (8, 16, SINGLE), (3, 33, SPREAD), (4, 4, SINGLE), (64, 64, SPREAD)]
)
@pytest.mark.parametrize("window", [2, 128])
def test_heads(kernels, heads, features, access, window):
    matrix = Matrix(np.random.default_rng(3), 12, 20, (0, 1, 9, 40), has_entry=True)
    for kind in (SUM, MAX):
        check_reduce(kernels, matrix, kind, F32, features, heads=heads, window=window, access=access)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=repr)
@pytest.mark.parametrize("lengths", [(300,), (0, 0, 0, 1000), (7, 8, 9)])
def test_rows_of_several_windows(kernels, dtype, lengths):
    """Rows begin and end at, before and behind the borders of windows, and have up to hundreds of them."""
    for seed in range(2):
        matrix = Matrix(np.random.default_rng(seed), 9, 40, lengths)
        check_reduce(kernels, matrix, SUM, dtype, 48, heads=1, window=8)
        check_reduce(kernels, matrix, MAX, dtype, 5, window=2)


@pytest.mark.parametrize("kind", [SUM, MEAN, MAX, MIN, PROD])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64, I32], ids=repr)
def test_few_entries(kernels, dtype, kind):
    """In one launch: a team for each row, and a block for a long one. Some blocks have several rows, and some one."""
    random = np.random.default_rng(kind)
    for k, features in enumerate((1, 3, 8, 32, 47, 130)):
        vector = dtype.category == FLOAT and kind != PROD and features * dtype.numpy.itemsize % 16 == 0
        lengths = (0, 1, 2, 3) if kind == PROD else ((0, 1, 5, 100), (17,), (0, 0, 1, 100))[k % 3]
        matrix = Matrix(random, 15, 30, lengths, long=k % 2 == 0, has_index=k != 1, has_entry=k % 3 == 0)
        heads = k % 2 if dtype.category == FLOAT and kind != PROD else 0
        access = FEW + (VECTOR if vector else SINGLE)
        check_reduce(
            kernels, matrix, kind, dtype, features, heads=heads, batches=1 + k % 2, window=0, pitch=(0, 0, 8)[k % 3],
            access=access,
        )  # fmt: skip


def test_extremes_of_special_values(kernels):
    """A NaN wins, the first of equal entries counts, and infinities are values."""
    table = placed(np.array([[np.nan], [np.inf], [-np.inf], [1], [1], [np.nan]], np.float32))
    rows = [[3, 0, 1, 5], [2, 2], [3, 4], [1, 3], [], [2, 3], [4, 0], [5, 0]]
    ptr = placed(np.cumsum([0, *map(len, rows)]).astype(np.int32))
    index = placed(np.array(sum(rows, []), np.int32))
    for window in (0, 1, 128):
        for kind, values, best in (
            (MAX, [np.nan, -np.inf, 1, np.inf, 0, 1, np.nan, np.nan], [1, 0, 0, 0, -1, 1, 1, 0]),
            (MIN, [np.nan, -np.inf, 1, 1, 0, -np.inf, np.nan, np.nan], [1, 0, 0, 1, -1, 0, 1, 0]),
        ):
            out, arg = placed(np.full(8, 9, np.float32)), placed(np.full(8, 9, np.int32))
            fields = [address(ptr), address(index), 0, 0, 8, 6, len(index), kind, F32.number, 1, 1, 0, 1]
            fields += [address(table), 1, 6, address(out), 1, 8, address(arg), 0, window]
            assert call(kernels.spmm_reduce, fields, ctypes.c_double(0)) >= 0
            np.testing.assert_array_equal(out, np.array(values, np.float32))
            np.testing.assert_array_equal(arg, [-1 if b < 0 else p + b for b, p in zip(best, ptr)])


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=repr)
@pytest.mark.parametrize("long", [False, True])
def test_selected_entries(kernels, dtype, long):
    """The gradient of a maximum, through the transpose: an entry counts where it was selected."""
    for features in (1, 40):
        random = np.random.default_rng(features)
        matrix = Matrix(random, 11, 7, (0, 1, 9), long=long, has_entry=True)
        if features == 1:  # the transpose of a matrix without index
            matrix = Matrix(random, 11, 7, (0, 1), long=long, has_entry=True, has_index=False)
        grad, out = Dense(random, dtype, matrix.columns, features), Dense(random, dtype, 11, features, poison=True)
        selected = placed(random.choice(matrix.entry, (matrix.columns, features)))
        fields = [*matrix.fields(), SUM, dtype.number, 1, features, 0, 1, *grad.fields(), *out.fields()]
        fields += [0, address(selected), 4]
        assert call(kernels.spmm_reduce, fields, ctypes.c_double(0)) >= 0
        expected = np.zeros((11, features))
        for row in range(11):
            for e in matrix.of_row(row):
                expected[row] += (selected[matrix.column(e)] == matrix.entry[e]) * grad.values()[0, matrix.column(e)]
        np.testing.assert_array_equal(out.values()[0], expected)


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=repr)
@pytest.mark.parametrize(
    "heads, width, pitch",
    [(1, 1, 0), (1, 32, 0), (1, 47, 3), (1, 300, 4), (3, 8, 8), (4, 5, 0), (4, 32, 0), (9, 16, 0), (2, 256, 8)],
)
def test_products(kernels, dtype, heads, width, pitch):
    for window in (2, 128):
        random = np.random.default_rng(width)
        matrix = Matrix(random, 13, 20, (0, 1, 4, 60), long=window == 2, has_entry=window == 128)
        a, b = (Dense(random, dtype, rows, heads * width, pitch) for rows in (13, 20))
        out = Dense(random, dtype, matrix.entries, heads, poison=True)
        fields = [
            *matrix.fields(),
            dtype.number,
            heads * width,
            heads,
            *a.fields(),
            *b.fields(),
            address(out.memory),
            window,
        ]
        assert call(kernels.spmm_product, fields) >= 0
        left, right = a.values()[0].reshape(13, heads, width), b.values()[0].reshape(20, heads, width)
        expected = np.zeros((matrix.entries, heads))
        for row in range(13):
            for e in matrix.of_row(row):
                expected[matrix.position(e)] = (left[row] * right[matrix.index[e]]).sum(1)
        np.testing.assert_allclose(out.values()[0], decode(dtype, encode(dtype, expected)), rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("features", [1, 5, 16, 40, 100])
@pytest.mark.parametrize("kind", [COPY, SELECTED])
def test_copies_of_rows(kernels, size, features, kind):
    dtype = {1: TYPES[1], 2: F16, 4: F32, 8: F64}[size]
    random = np.random.default_rng(features)
    matrix = Matrix(random, 12, 0, (0, 1, 3, 50), long=features % 2 == 0, has_index=False)
    rows, out = (
        Dense(random, dtype, 12, features, pitch=features % 3),
        Dense(random, dtype, matrix.entries, features, poison=True),
    )
    selected = (
        placed(random.integers(0, matrix.entries, (12, features)).astype(matrix.number)) if kind == SELECTED else None
    )
    fields = [
        *matrix.fields(),
        kind,
        dtype.number,
        features,
        0,
        0,
        *rows.fields(),
        address(selected),
        address(out.memory),
        4,
    ]
    assert call(kernels.spmm_map, fields) >= 0
    for row in range(12):
        for e in matrix.of_row(row):
            expected = rows.memory[0, row, :features]
            if kind == SELECTED:
                expected = np.where(selected[row] == e, expected, 0)
            np.testing.assert_array_equal(out.memory[0, e], expected)


@pytest.mark.parametrize(
    "offsets", [(0, 30), (3, 30), (0, 25), (5, 5, 7), (30, 30), (0, 0), (-4, 50), (20, 3)], ids=str
)
@pytest.mark.parametrize("features", [1, 4, 40])
def test_entries_of_no_row(kernels, offsets, features):
    """Sums leave out entries before the first row and behind the last, and copies clear them."""
    for kind, window in ((np.int32, 4), (np.int64, 128)):
        matrix = Matrix(np.random.default_rng(0), len(offsets) - 1, 0, (0,), long=kind == np.int64, has_index=False)
        matrix.ptr, matrix.entries, matrix.columns = placed(np.array(offsets, kind)), 30, 30
        random = np.random.default_rng(features)
        rows, copies = Dense(random, F32, matrix.rows, features), Dense(random, F32, 30, features, poison=True)
        fields = [*matrix.fields(), COPY, F32.number, features, 0, 0, *rows.fields(), 0, address(copies.memory), window]
        assert call(kernels.spmm_map, fields) >= 0
        sums, data = Dense(random, F32, matrix.rows, features, poison=True), Dense(random, F32, 30, features)
        fields = [*matrix.fields(), SUM, F32.number, 1, features, 0, 1, *data.fields(), *sums.fields(), 0, 0, window]
        assert call(kernels.spmm_reduce, fields, ctypes.c_double(0)) >= 0
        ends = np.clip(offsets, 0, 30)
        expected = np.zeros((30, features))
        for row in range(matrix.rows):
            expected[ends[row] : ends[row + 1]] = rows.values()[0, row]
            np.testing.assert_array_equal(sums.values()[0, row], data.values()[0, ends[row] : ends[row + 1]].sum(0))
        np.testing.assert_array_equal(copies.values()[0], expected)


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=repr)
@pytest.mark.parametrize("features", [1, 8, 37])
@pytest.mark.parametrize("window", [2, 128])
def test_softmax(kernels, dtype, features, window):
    random = np.random.default_rng(features)
    matrix = Matrix(random, 12, 0, (0, 1, 3, 90), has_index=False)
    x, y = (Dense(random, dtype, matrix.entries, features) for _ in range(2))
    tolerance = {F32: 1e-5, F64: 1e-12, F16: 2e-3, BF16: 1e-2}[dtype]
    for kind in (SOFTMAX, SOFTMAX_GRADIENT):
        out = Dense(random, dtype, matrix.entries, features, poison=True)
        fields = [*matrix.fields(), kind, dtype.number, features, address(x.memory), address(y.memory), 0, 0, 0, 0]
        assert call(kernels.spmm_map, [*fields, address(out.memory), window]) >= 0
        for row in range(12):
            part = slice(matrix.ptr[row], matrix.ptr[row + 1])
            values, weights = x.values()[0, part], y.values()[0, part]
            if kind == SOFTMAX:
                power = np.exp(values - values.max(0, initial=-np.inf))
                expected = power / power.sum(0)
            else:
                expected = weights * (values - (values * weights).sum(0))
            np.testing.assert_allclose(out.values()[0, part], expected, rtol=tolerance, atol=tolerance / 10)
