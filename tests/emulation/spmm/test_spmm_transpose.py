"""Transposes of sparse matrices, compared with numpy's stable sort, and the fingerprint with which they are kept."""

from __future__ import annotations

import numpy as np
import pytest

from .test_spmm_kernels import Matrix, address, call, kernels, placed

__all__ = ["kernels"]

FINGERPRINT = 32  # bytes


class Transposed:
    """The results of a transposition, between inaccessible pages."""

    def __init__(self, matrix):
        self.matrix = matrix
        sizes = (matrix.columns + 1, matrix.entries, matrix.entries)
        self.ptr, self.index, self.entry = (placed(np.full(size, -7, matrix.number)) for size in sizes)

    def make(self, kernels, state=None, changes=None):
        results = self.ptr, self.index, self.entry, state, changes
        assert call(kernels.spmm_transpose, [*self.matrix.fields(), *map(address, results)]) == 0

    def is_right(self) -> bool:
        matrix = self.matrix
        order = np.argsort(matrix.index, kind="stable")
        rows = np.repeat(np.arange(matrix.rows), np.diff(matrix.ptr))
        found = np.searchsorted(matrix.index[order], np.arange(matrix.columns + 1))
        return all(map(np.array_equal, (self.ptr, self.index, self.entry), (found, rows[order], order)))


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    "rows, columns, lengths", [(1, 1, (1,)), (9, 40, (0, 1, 5)), (40, 9, (300,)), (700, 5000, (7, 0))]
)
def test_transposes(kernels, rows, columns, lengths, long):
    matrix = Matrix(np.random.default_rng(rows), rows, columns, lengths, long=long)
    found = Transposed(matrix)
    found.make(kernels)
    assert found.is_right()


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("size", [20, 700])
def test_a_kept_transpose_is_made_again_when_a_number_changes(kernels, size, long):
    """Only then: otherwise what is in its memory stays."""
    random = np.random.default_rng(size)
    matrix = Matrix(random, size, size, (0, 1, 5, 2), long=long)
    found, state = Transposed(matrix), placed(np.zeros(FINGERPRINT, np.uint8))
    changes = placed(np.zeros(1, np.int64))

    def make(expected: int) -> bool:
        found.make(kernels, state, changes)
        assert changes[0] == expected
        return found.is_right()

    assert make(1)  # there was no fingerprint
    found.entry[0] += 1
    assert not make(1)  # the sort was left out
    found.entry[0] -= 1
    one, other = random.integers(matrix.entries), random.integers(matrix.entries)
    matrix.index[one], matrix.index[other] = matrix.index[other] ^ 1, matrix.index[one] ^ 1
    np.clip(matrix.index, 0, size - 1, out=matrix.index)
    assert make(2) and make(2)
    row = int(np.flatnonzero(np.diff(matrix.ptr))[0])
    matrix.ptr[row + 1] -= 1
    assert make(3) and make(3)
    matrix.index[:] = size - 1
    assert make(4)


def test_numbers_that_changed_places_are_noticed(kernels):
    """Sums of the numbers stay equal."""
    numbers, state = placed(np.arange(5000)), placed(np.zeros(FINGERPRINT, np.uint8))

    def is_same() -> bool:
        assert call(kernels.fingerprint, [address(numbers), numbers.size, 1, address(state)]) == 0
        return bool(state.view(np.uint32)[6])

    assert not is_same() and is_same() and is_same()
    for one, other in ((0, 1), (3, 4999), (17, 18)):
        numbers[one], numbers[other] = numbers[other], numbers[one]
        assert not is_same() and is_same()
