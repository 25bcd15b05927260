"""Reductions and maps of narrow rows without index, which blocks read in tiles, compared with numpy in float64."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..dtypes import BF16, F16, F32, FLOAT
from ..memory import decode, encode
from .test_spmm_kernels import (
    COPY,
    F64,
    I32,
    I64,
    MAX,
    MEAN,
    MIN,
    PROD,
    PRODUCT,
    SELECTED,
    SOFTMAX,
    SOFTMAX_GRADIENT,
    SUM,
    Dense,
    Matrix,
    address,
    call,
    check_reduce,
    kernels,
    placed,
)  # fmt: skip

TILE = 3  # Access::kTile
LOG_SUM = 5
FEATURES = (1, 2, 3, 4, 5, 7, 8, 12)
LENGTHS = (0, 1, 5, 33, 1000)
SMALL, LARGE = 32, 2**12  # tiles of 512 bytes, and the largest
TOLERANCE = {F32: 1e-5, F64: 1e-12, F16: 2e-3, BF16: 1e-2}

__all__ = ["kernels"]


class Segments(Matrix):
    """Rows of the given lengths, with entries of no row before and behind them."""

    def __init__(self, lengths, long=False, before=0, behind=0):
        super().__init__(np.random.default_rng(0), len(lengths), 0, (0,), long=long, has_index=False)
        self.ptr = placed((np.cumsum([0, *lengths]) + before).astype(self.number))
        self.entries = self.columns = int(self.ptr[-1]) + behind

    def slices(self):
        return [slice(*ends) for ends in zip(self.ptr, self.ptr[1:])]


def mixed(features: int, count: int = 40) -> np.ndarray:
    return np.random.default_rng(features).choice(LENGTHS, count, p=(0.3, 0.2, 0.3, 0.15, 0.05))


def reduce(kernels, segments, kind, data, *, out_type=None, arg=None, window=LARGE, empty=7.0):
    """Returns the result in the dtype of the data. A log-sum is a pair."""
    random, features = np.random.default_rng(0), data.features
    width = 2 * features if kind == LOG_SUM else features
    out = Dense(random, out_type or data.dtype, segments.rows, width, poison=True)
    fields = [
        *segments.fields(), kind, data.dtype.number, 1, features, 0, 1, *data.fields(), address(out.memory), features, 0,
        address(arg), 0, window,
    ]  # fmt: skip
    assert call(kernels.spmm_reduce, fields, ctypes.c_double(empty)) == TILE
    return out.memory[0]


def expected(kind, x: np.ndarray, empty=7.0):
    """The reduction of one segment, and which entry is the extremum."""
    if len(x) == 0:
        return np.full(x.shape[1], empty), -1
    if kind in (MAX, MIN):
        best = (np.argmax if kind == MAX else np.argmin)(x, 0)
        return np.take_along_axis(x, best[None], 0)[0], best
    return {SUM: np.sum, MEAN: np.mean, PROD: np.prod}[kind](x, axis=0), -1


def check(kernels, segments, kind, data, **options):
    dtype = data.dtype
    arg = placed(np.full((segments.rows, data.features), 77, segments.number)) if kind in (MAX, MIN) else None
    out = decode(dtype, reduce(kernels, segments, kind, data, arg=arg, **options))
    values = data.values()[0]
    for row, part in enumerate(segments.slices()):
        want, best = expected(kind, values[part])
        if kind == MEAN and dtype.category != FLOAT:
            want = np.floor(want)
        np.testing.assert_allclose(
            out[row], decode(dtype, encode(dtype, want)), rtol=TOLERANCE.get(dtype, 0), err_msg=f"row {row}"
        )
        if arg is not None:
            np.testing.assert_array_equal(arg[row], np.where(best < 0, -1, best + part.start))


@pytest.mark.parametrize("kind", [SUM, MEAN, MAX, MIN, PROD])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64, I32, I64], ids=repr)
def test_reductions(kernels, dtype, kind):
    for k, features in enumerate(FEATURES):
        if features * dtype.numpy.itemsize > 16:
            continue
        lengths = mixed(features) if kind != PROD else np.minimum(mixed(features), 3)
        segments = Segments(lengths, long=k % 2 == 0, before=k % 3, behind=k % 4)
        random = np.random.default_rng(features)
        data = Dense(random, dtype, segments.entries, features, offset=k % 2)
        check(kernels, segments, kind, data, window=(SMALL, LARGE)[k % 4 // 2])


@pytest.mark.parametrize("features", [1, 3, 5, 8])
def test_half_types_of_up_to_8_features(kernels, features):
    """An entry has from one thread to a quarter of a warp."""
    for window in (SMALL, LARGE):
        segments = Segments(mixed(features))
        data = Dense(np.random.default_rng(1), F16, segments.entries, features, offset=1)
        check(kernels, segments, SUM, data, window=window)


@pytest.mark.parametrize("features", [1, 3, 4])
@pytest.mark.parametrize("kind", [SUM, MAX])
def test_long_rows(kernels, features, kind):
    """Rows of many tiles, between short ones and empty ones: teams are small, and a row has many parts."""
    segments = Segments([0, 3, 100_000, 0, *[1] * 3000, 1000, 70, 0, 0, 20_000, 2])
    data = Dense(np.random.default_rng(features), F32, segments.entries, features, offset=1)
    check(kernels, segments, kind, data)


@pytest.mark.parametrize("mean", [2, 10, 40, 300])
def test_teams_of_every_size(kernels, mean):
    for features in (1, 3, 4):
        segments = Segments(np.random.default_rng(mean).poisson(mean, 2000 // mean))
        check(kernels, segments, SUM, Dense(np.random.default_rng(2), F32, segments.entries, features))
        check(kernels, segments, MIN, Dense(np.random.default_rng(3), F64, segments.entries, 2))


def test_rows_without_entries(kernels):
    for lengths in ([0] * 5000, [0] * 3000 + [1], [7] + [0] * 3000):
        segments = Segments(lengths, behind=3)
        check(kernels, segments, SUM, Dense(np.random.default_rng(4), F32, segments.entries, 2))


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_results_do_not_depend_on_the_address(kernels, offset):
    random = np.random.default_rng(5)
    values = random.standard_normal((sum(mixed(3)), 3)).astype(np.float32)
    segments = Segments(mixed(3))
    results = []
    for at in (0, offset):
        data = Dense(random, F32, segments.entries, 3, offset=at)
        data.memory[0] = values
        results.append(reduce(kernels, segments, SUM, data).tobytes())
    assert results[0] == results[1]


def test_extremes_of_special_values(kernels):
    """A NaN wins, and the first of equal entries counts: also where a warp shares a row, or tiles do."""
    nan, inf = np.nan, np.inf
    short = [[3, nan, 1, nan], [-inf, -inf], [2, 1, 2], [1, inf, inf]]
    for repeats in (1, 400):
        rows = [row * repeats for row in short] + [[1]] * 50
        segments = Segments([len(row) for row in rows])
        for window in (SMALL, LARGE):
            for kind, best in ((MAX, (1, 0, 0, 1)), (MIN, (1, 0, 1, 0))):
                data = Dense(np.random.default_rng(0), F32, segments.entries, 1)
                data.memory[0, :, 0] = np.concatenate(rows)
                arg = placed(np.full((segments.rows, 1), 77, np.int32))
                out = reduce(kernels, segments, kind, data, arg=arg, window=window)
                np.testing.assert_array_equal(arg[:4, 0], segments.ptr[:4] + best)
                np.testing.assert_array_equal(out[:4, 0], [row[b] for row, b in zip(short, best)])


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=repr)
@pytest.mark.parametrize("features", [1, 2])
def test_log_sums(kernels, dtype, features):
    segments = Segments(mixed(features))
    data = Dense(np.random.default_rng(6), dtype, segments.entries, features, offset=1)
    wide = F64 if dtype is F64 else F32
    for window in (SMALL, LARGE):
        pairs = reduce(kernels, segments, LOG_SUM, data, out_type=wide, window=window).reshape(-1, features, 2)
        for row, part in enumerate(segments.slices()):
            x = data.values()[0, part]
            most = x.max(0, initial=-np.inf)
            np.testing.assert_array_equal(pairs[row, :, 0], most)
            np.testing.assert_allclose(pairs[row, :, 1], np.exp(x - most).sum(0), rtol=1e-5)


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=repr)
def test_features_that_entries_name_are_gathered(kernels, dtype):
    for k, heads in enumerate((0, 1)):
        matrix = Matrix(np.random.default_rng(k), 60, 25, (0, 1, 3, 400), long=k == 0, has_entry=True)
        for window in (SMALL, LARGE):
            for kind in (SUM, MEAN) if heads else (SUM, MAX):
                check_reduce(
                    kernels, matrix, kind, dtype, 1, heads=heads, pitch=k, offset=1, window=window, access=TILE
                )


# ---------------------------------------------------------------- maps


def mapped(
    kernels, segments, kind, dtype, features, *, x=None, y=None, rows=None, selected=None, offset=0, window=LARGE
):
    out = Dense(np.random.default_rng(0), dtype, segments.entries, features, offset=offset, poison=True)
    fields = [
        *segments.fields(), kind, dtype.number, features, address(x and x.memory), address(y and y.memory),
        *(rows.fields() if rows else (0, 0, 0)), address(selected), address(out.memory), window,
    ]  # fmt: skip
    assert call(kernels.spmm_map, fields) == TILE
    return out


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=repr)
@pytest.mark.parametrize("kind", [COPY, SELECTED])
def test_copies(kernels, dtype, kind):
    for k, features in enumerate(FEATURES):
        if features * dtype.numpy.itemsize >= 64:
            continue
        segments = Segments(mixed(features), long=k % 2 == 0, before=5 * (k % 2), behind=k % 3)
        random = np.random.default_rng(features)
        rows = Dense(random, dtype, segments.rows, features, offset=k % 2)
        chosen = [random.integers(part.start, part.stop + 1, features) for part in segments.slices()]
        selected = placed(np.array(chosen, segments.number)) if kind == SELECTED else None
        for offset, window in ((0, LARGE), (1, SMALL)):
            out = mapped(
                kernels, segments, kind, dtype, features, rows=rows, selected=selected, offset=offset, window=window
            )
            want = np.zeros_like(out.memory[0])
            for row, part in enumerate(segments.slices()):
                want[part] = rows.memory[0, row]
                if selected is not None:
                    numbers = np.arange(part.start, part.stop)[:, None]
                    want[part] = np.where(numbers == selected[row], want[part], 0)
            np.testing.assert_array_equal(out.memory[0], want)


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=repr)
@pytest.mark.parametrize("kind", [SOFTMAX, SOFTMAX_GRADIENT])
def test_softmax(kernels, dtype, kind):
    for k, features in enumerate((1, 2, 5, 7)):
        segments = Segments(mixed(features), before=3 * (k % 2), behind=k % 3)
        random = np.random.default_rng(features)
        x, y = (Dense(random, dtype, segments.entries, features, offset=o) for o in (k % 2, k // 2))
        for offset, window in ((0, LARGE), (1, SMALL)):
            out = mapped(kernels, segments, kind, dtype, features, x=x, y=y, offset=offset, window=window).values()[0]
            want = np.zeros_like(out)
            for part in segments.slices():
                values, weights = x.values()[0, part], y.values()[0, part]
                power = np.exp(values - values.max(0, initial=-np.inf))
                if kind == SOFTMAX:
                    want[part] = power / power.sum(0)
                else:
                    want[part] = weights * (values - (values * weights).sum(0))
            np.testing.assert_allclose(out, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 10)


@pytest.mark.parametrize("dtype", [F32, F16, F64], ids=repr)
def test_products_of_a_row_and_what_its_entries_name(kernels, dtype):
    for k, features in enumerate((1, 2, 5)):
        random = np.random.default_rng(features)
        matrix = Matrix(random, 50, 20, (0, 1, 4, 300), long=k % 2 == 0)
        rows, other = (Dense(random, dtype, count, features, offset=k % 2) for count in (50, 20))
        for offset, window in ((0, LARGE), (1, SMALL)):
            out = mapped(
                kernels, matrix, PRODUCT, dtype, features, x=other, rows=rows, offset=offset, window=window
            ).values()[0]
            row = np.repeat(np.arange(50), np.diff(matrix.ptr))
            want = rows.values()[0, row] * other.values()[0, matrix.index]
            np.testing.assert_array_equal(out, decode(dtype, encode(dtype, want)))


def test_long_rows_of_maps(kernels):
    segments = Segments([0, 3, 50_000, 0, *[1] * 300, 1000], behind=1)
    rows = Dense(np.random.default_rng(7), F32, segments.rows, 3)
    out = mapped(kernels, segments, COPY, F32, 3, rows=rows)
    lengths = np.diff(segments.ptr)
    np.testing.assert_array_equal(out.values()[0, :-1], np.repeat(rows.values()[0], lengths, axis=0))
    assert (out.values()[0, -1] == 0).all()


@pytest.mark.parametrize("long", [False, True])
def test_descending_offsets_read_no_other_memory(kernels, long):
    """They may put more rows into a tile than it has room for."""
    segments = Segments([1] * 3000, long=long)
    segments.ptr[...] = np.arange(3001)[::-1]
    data = Dense(np.random.default_rng(8), F32, segments.entries, 1)
    reduce(kernels, segments, SUM, data, window=SMALL)
    mapped(kernels, segments, COPY, F32, 1, rows=data, window=SMALL)
