"""The transpose of a matrix on a GPU, beside other streams."""

from __future__ import annotations

import pytest
import torch

from torch_ops import CSR

from .matrices import random_edges


@pytest.mark.gpu
def test_a_transpose_that_is_made_on_another_stream():
    """The first use waits for the sort, which waits for work before it, and the memory stays until the use has ended."""
    edges, x = random_edges(5000, 5000, 200_000, device="cuda"), torch.randn(5000, 64, device="cuda")
    want = CSR.from_edge_index(edges, size=(5000, 5000)).cache_transpose().t() @ x
    side, busy = torch.cuda.Stream(), torch.empty(2**26, device="cuda")
    for _ in range(5):
        csr = CSR.from_edge_index(edges, size=(5000, 5000))
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            for _ in range(20):
                busy.normal_()
            csr.cache_transpose()
        got = csr.t() @ x
        del csr
        trash = [torch.full((200_000,), -1, dtype=torch.int32, device="cuda") for _ in range(4)]
        assert torch.equal(got, want)
        del trash
