"""Products in 3xTF32 with operands or results of more than 2^31 elements.

Elements depend on a few remainders, so that a small table has all elements of the result. Its sums are exact in float32.
"""

from __future__ import annotations

import pytest
import torch

from ...support.large import check, filled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.large,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="needs wgmma"
    ),
]
A, B = 13, 7  # the periods of the operands
F32 = torch.float32


@pytest.mark.gib(20)
@pytest.mark.parametrize(
    "batch, m, k, n",
    [(1, 2**20 + 128, 2056, 128), (1, 46352, 256, 46352), (8193, 512, 512, 128)],
    ids=["operand", "result", "batch"],
)
def test_products(batch, m, k, n):
    """a[b, i, j] = (b + i + j) % A and b[b, j, l] = (b + j + l) % B."""
    a = filled(batch * m * k, lambda i: (i // k // m + i // k % m + i % k) % A, F32).view(batch, m, k)
    b = filled(batch * k * n, lambda i: (i // n // k + i // n % k + i % n) % B, F32).view(batch, k, n)
    j = torch.arange(k, device="cuda")
    left = (torch.arange(A, device="cuda")[:, None] + j) % A
    right = (torch.arange(B, device="cuda")[:, None] + j) % B
    table = (left[:, None] * right).sum(-1)
    got = torch.ops.gpuopt._matmul_own(a, b)  # None if cuBLAS computes it
    assert got is not None and got.shape == (batch, m, n)

    def expected(i):
        of_batch, row, column = i // n // m, i // n % m, i % n
        return table[(of_batch + row) % A, (of_batch + column) % B]

    check(got.view(-1), expected)
