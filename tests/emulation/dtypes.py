"""The dtypes of the kernels' interface, with the corresponding types of numpy."""

from __future__ import annotations

import numpy as np

BOOL, INTEGER, FLOAT, COMPLEX = range(4)


class DType:
    """A value of gpuopt::DType, the corresponding type of numpy, and a category."""

    def __init__(self, number: int, numpy: type, category: int):
        self.number, self.numpy, self.category = number, np.dtype(numpy), category

    def __repr__(self):
        return "bool" if self.category == BOOL else self.numpy.name

    def some(self, random: np.random.Generator, count: int) -> np.ndarray:
        """Random values whose products and sums are exact in every dtype, so that comparisons need no tolerance."""
        if self.category == BOOL:
            return random.integers(0, 2, count).astype(self.numpy)
        if self.category == INTEGER:
            return random.integers(-5 if self.numpy.kind == "i" else 0, 6, count).astype(self.numpy)
        values = random.integers(-8, 9, count) / 4
        return (values + 1j * random.integers(-8, 9, count) / 4 if self.category == COMPLEX else values).astype(
            self.numpy
        )


TYPES = [
    DType(0, np.uint8, BOOL), DType(1, np.uint8, INTEGER), DType(2, np.int8, INTEGER), DType(3, np.int16, INTEGER),
    DType(4, np.int32, INTEGER), DType(5, np.int64, INTEGER), DType(6, np.float16, FLOAT), DType(8, np.float32, FLOAT),
    DType(9, np.float64, FLOAT), DType(11, np.complex64, COMPLEX), DType(12, np.complex128, COMPLEX),
]  # fmt: skip
F16, F32 = TYPES[6], TYPES[7]


class BFloat16(DType):
    """bfloat16, which numpy lacks, as uint16: the upper half of a float32's bits."""

    def __repr__(self):
        return "bfloat16"


BF16 = BFloat16(7, np.uint16, FLOAT)


class Operand:
    """A strided view into a buffer of known values. Sizes and strides begin with the innermost dimension."""

    def __init__(self, dtype: DType, sizes: list, strides: list, offset: int, random: np.random.Generator):
        self.dtype, self.sizes, self.strides, self.offset = dtype, sizes, strides, offset
        count = offset + sum((n - 1) * s for n, s in zip(sizes, strides)) + 1 + 32
        raw = np.empty(count * dtype.numpy.itemsize + 64, np.uint8)
        start = -raw.ctypes.data % 64
        self.buffer = raw[start : start + count * dtype.numpy.itemsize].view(dtype.numpy)
        self.buffer[:] = dtype.some(random, count)
        self.before = self.buffer.copy()

    @property
    def address(self) -> int:
        return self.buffer.ctypes.data + self.offset * self.buffer.itemsize

    def view(self, buffer: np.ndarray) -> np.ndarray:
        steps = [s * buffer.itemsize for s in self.strides[::-1]]
        return np.lib.stride_tricks.as_strided(buffer[self.offset :], self.sizes[::-1], steps)
