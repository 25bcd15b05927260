"""Sparse matrices: :class:`CSR`, its integers and its transpose, and how torch.export and torch.func take it apart."""

from torch_ops.sparse import tree as tree
from torch_ops.sparse.csr import CSR

__all__ = ["CSR"]
