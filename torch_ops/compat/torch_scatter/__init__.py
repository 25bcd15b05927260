"""Drop-in for ``torch_scatter``, whose reductions of groups PyTorch Geometric and other graph libraries call.

Names, arguments and semantics follow version 2.1.2 of github.com/rusty1s/pytorch_scatter. The functions work on CUDA and CPU tensors,
in :func:`torch.jit.script` and in :func:`torch.compile`. An index that is a vector, or a vector expanded to more dimensions, leads to
gpuopt's operators. Any other index leads to ATen's scatters and gathers.
"""

from __future__ import annotations

from torch_ops.compat.torch_scatter._scatter import (
    scatter,
    scatter_add,
    scatter_max,
    scatter_mean,
    scatter_min,
    scatter_mul,
    scatter_sum,
)
from torch_ops.compat.torch_scatter._segment import (
    gather_coo,
    gather_csr,
    segment_add_coo,
    segment_add_csr,
    segment_coo,
    segment_csr,
    segment_max_coo,
    segment_max_csr,
    segment_mean_coo,
    segment_mean_csr,
    segment_min_coo,
    segment_min_csr,
    segment_sum_coo,
    segment_sum_csr,
)
from torch_ops.compat.torch_scatter.composite import (
    scatter_log_softmax,
    scatter_logsumexp,
    scatter_softmax,
    scatter_std,
)

__all__ = [
    "gather_coo",
    "gather_csr",
    "scatter",
    "scatter_add",
    "scatter_log_softmax",
    "scatter_logsumexp",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "scatter_std",
    "scatter_sum",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
]
