"""The kernel of bags, compared with loops of numpy over the entries of each bag. Memory ends where the operands end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ..dtypes import BF16, F16, F32, TYPES, DType
from ..memory import decode, encode
from .test_spmm_kernels import Dense, Matrix, address, call, kernels, placed

__all__ = ["kernels"]

F64 = TYPES[8]
SUM, MEAN, MAX = range(3)
OTHER_ACCESS = 64  # is added to the number of groups of a bag


class Bags:
    """Random bags. Of a table, the first element of each row may not begin with a vector."""

    def __init__(
        self, mode, dtype: DType, features, lengths, bags, rows=9, pitch=0, offset=0, weighted=False, long=True
    ):
        random = np.random.default_rng(features + bags)
        self.mode, self.dtype, self.features, self.rows = mode, dtype, features, rows
        self.matrix = Matrix(random, bags, rows, lengths, long=long)
        self.table = Dense(random, dtype, rows, features, pitch, offset=offset)
        self.weight = Dense(random, dtype, self.matrix.entries, 1) if weighted else None

    def check(self, kernels, padding=-1) -> int:
        """Returns what the plan chose."""
        matrix, number = self.matrix, self.matrix.number
        out = placed(encode(self.dtype, np.full((matrix.rows, self.features), 77.0)))
        bag_of, size = placed(np.full(matrix.entries, -7, number)), placed(np.full(matrix.rows, -7, number))
        winner = placed(np.full((matrix.rows, self.features), -7, number)) if self.mode == MAX else None
        offsets = placed(
            np.concatenate([[5], matrix.ptr[1:-1]]).astype(number)
        )  # the first bag begins at 0 all the same
        chosen = call(
            kernels.spmm_bags,
            [self.mode, self.dtype.number, number == np.int64, matrix.rows, matrix.entries, self.rows, self.features, padding,
             address(offsets), address(matrix.index), 0 if self.weight is None else address(self.weight.memory),
             *self.table.fields(), *map(address, (out, bag_of, size, winner))],
        )  # fmt: skip
        assert chosen >= 0
        assert np.array_equal(bag_of, np.repeat(np.arange(matrix.rows), np.diff(matrix.ptr)))
        table = self.table.values()[0].astype(np.float64)
        for bag, result in enumerate(decode(self.dtype, out)):
            entries = [e for e in matrix.of_row(bag) if matrix.index[e] != padding]
            assert size[bag] == len(entries)
            items = table[matrix.index[entries]]
            if self.weight is not None:
                items = items * self.weight.values()[0][entries]
            if self.mode == MAX:
                expected = items.max(0) if entries else np.zeros(self.features)
                first = matrix.index[entries][items.argmax(0)] if entries else np.full(self.features, -1)
                assert np.array_equal(winner[bag], first)
            else:
                expected = items.sum(0) / (max(len(entries), 1) if self.mode == MEAN else 1)
            rounded = decode(self.dtype, encode(self.dtype, expected.astype(np.float64)))
            assert np.allclose(result, rounded, rtol=2**-7 if self.dtype is BF16 else 2**-10, atol=1e-6)
        return chosen


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
@pytest.mark.parametrize("mode", [SUM, MEAN, MAX])
def test_bags_are_reduced(kernels, mode, dtype):
    for (features, pitch, offset), long in itertools.product(
        ((8, 0, 0), (64, 8, 0), (64, 0, 1), (5, 0, 0), (33, 2, 0), (300, 1, 0), (1, 0, 0)), (False, True)
    ):
        for padding in (-1, 3):
            bags = Bags(mode, dtype, features, (0, 1, 3, 9), 40, pitch=pitch, offset=offset, long=long)
            bags.check(kernels, padding)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_entries_have_weights(kernels, dtype):
    for features in (8, 12, 7, 64, 160):
        Bags(SUM, dtype, features, (0, 1, 4, 20), 30, weighted=True).check(kernels, padding=2)


@pytest.mark.parametrize("lengths, team", [((3,), 1), ((20,), 4), ((200, 0), 4)])
def test_groups_share_long_bags(kernels, lengths, team):
    assert Bags(SUM, F32, 32, lengths, 20, rows=50).check(kernels) == team
    assert Bags(MEAN, F32, 30, lengths, 20, rows=50).check(kernels) == team + OTHER_ACCESS
    assert Bags(MAX, F32, 32, lengths, 20, rows=50).check(kernels) == 1


def test_a_nan_is_the_maximum_if_it_is_first(kernels):
    bags = Bags(MAX, F32, 4, (2,), 2, rows=4)
    bags.matrix.index[:] = (0, 1, 1, 0)
    bags.table.memory[0, 0] = np.nan
    out, size = placed(np.zeros((2, 4), np.float32)), placed(np.zeros(2, np.int64))
    winner, bag_of = placed(np.zeros((2, 4), np.int64)), placed(np.zeros(4, np.int64))
    call(kernels.spmm_bags, [MAX, F32.number, 1, 2, 4, 4, 4, -1, address(bags.matrix.ptr), address(bags.matrix.index), 0,
                             *bags.table.fields(), *map(address, (out, bag_of, size, winner))])  # fmt: skip
    assert np.isnan(out[0]).all() and np.array_equal(winner[0], [0] * 4)
    assert np.array_equal(out[1], bags.table.values()[0][1]) and np.array_equal(winner[1], [1] * 4)
