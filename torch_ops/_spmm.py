"""Products of sparse matrices: ``spmm`` and ``sddmm`` of a :class:`torch_ops.CSR`.

``spmm`` multiplies a sparse matrix by dense rows: the sum, mean, maximum or minimum of the neighbours of each node of a graph.
``sddmm`` multiplies the two rows that each entry of a sparse matrix names: it is the gradient of ``spmm`` for the values.

- float16, bfloat16 and float32 are summed in float32, float64 in float64. A mean counts entries in integers.
- On CUDA, results and gradients are bitwise reproducible, and no operator makes a tensor of entries x features, except the
  gradient of the values of a maximum and second derivatives of it.
- On CPU tensors, the functions call ATen.

Rows are divided among groups of threads by their lengths, as in M. Pang et al., "A Row Decomposition-based Approach for Sparse Matrix
Multiplication on GPUs" (RoDe, 2024) and G. Huang et al., "GE-SpMM" (2020). ``csrc/spmm/README.md`` describes the kernels.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types, reduction
from torch_ops._deprecated import takes_old_calls
from torch_ops.sparse import CSR
from torch_ops.sparse.structure import check_rows

__all__ = ["sddmm", "spmm"]

Reduction = Literal["sum", "mean", "amax", "amin"]

_WORDS = ("sum", "mean", "amax", "amin")

_ops = torch.ops.gpuopt


@takes_old_calls("csr dense reduce", dense="input")
@checks_types(dense="input", value="values")
def spmm(csr: CSR, input: Tensor, reduce: Reduction = "sum", *, values: Tensor | None = None) -> Tensor:
    """Product of a sparse matrix and dense rows, or another reduction over the entries of each row.

    ``out[r] = reduce(values[e] * input[column of e] for the entries e of row r)``. Rows without entries give 0.

    Args:
        csr: sparse matrix (M, K). Without values, all its entries are 1.
        input: (K), (K, N) or (..., K, N) of any strides: float16, bfloat16, float32 or float64. With values (entries, heads) it
            is (..., K, heads, N): each head has different values. It is read without a copy if the innermost dimension has no
            gaps.
        reduce: ``"sum"``, ``"mean"``, ``"amax"`` or ``"amin"``. A mean divides by the number of entries, whatever their values.
            Of equal maxima the first counts, in the order of ``csr.index``. NaN is the greatest and the least.
        values: values in place of ``csr.values``, in the same order and of the dtype of ``input``.

    Returns:
        (M), (M, N), (..., M, N) or (..., M, heads, N), contiguous, with the dtype of ``input``. Sums are computed in float32, or in
        float64 for float64. Differentiable in ``input`` and in the values, any number of times, in reverse and forward mode. The
        gradient of ``input`` multiplies by the transpose, which ``csr`` caches. Under :func:`torch.vmap` over ``input`` or
        ``values`` all examples are one call. Under autocast, ``input`` and the values are converted to the lower precision, as by
        :func:`torch.matmul`.

    Raises:
        TypeError: ``csr`` is no :class:`CSR`, or ``input`` is not floating-point.
        ValueError: an unknown ``reduce``.
        RuntimeError: a shape does not fit, the dtypes of ``input`` and the values differ, or the devices differ.
        NotImplementedError: the matrix itself differs between the examples of :func:`torch.vmap`.
    """
    return csr._product(input, reduction("spmm", reduce, _WORDS), values)


@checks_types
def sddmm(csr: CSR, a: Tensor, b: Tensor) -> Tensor:
    """Products of the rows of two matrices at the entries of a sparse matrix: the elements of ``a @ b.mT`` at its entries.

    ``out[e] = (a[row of e] * b[column of e]).sum(-1)``, in the order of ``csr.values``. The values of ``csr`` are not read.

    Args:
        csr: sparse matrix (M, K), whose structure is used.
        a: (M, N), or (M, heads, N), of any strides: float16, bfloat16, float32 or float64.
        b: (K, N), or (K, heads, N), with the dtype of ``a``.

    Returns:
        (entries) or (entries, heads), with the dtype of ``a``. Sums are computed in float32, or in float64 for float64. So
        ``csr.with_values(sddmm(csr, a, b))`` is a sparse matrix. Differentiable in ``a`` and ``b``, any number of times, in reverse
        and forward mode. Under :func:`torch.vmap` all examples are one call. Under autocast, ``a`` and ``b`` are converted to the
        lower precision.

    Raises:
        TypeError: ``csr`` is no :class:`CSR`, or ``a`` is not floating-point.
        RuntimeError: a shape does not fit, or the dtypes or devices differ.
        NotImplementedError: the matrix itself differs between the examples of :func:`torch.vmap`.
    """
    if a.dim() > 0 and b.dim() > 0:
        check_rows("sddmm", "a", a.shape[0], csr.shape[0], "rows", a.shape)
        check_rows("sddmm", "b", b.shape[0], csr.shape[1], "columns", b.shape)
    ptr, index, perm = csr._side
    t_ptr, t_index, t_perm = csr._transpose_for(a, b)
    return _ops.sddmm.default(ptr, index, perm, a, b, a.dim() == 3, t_ptr, t_index, t_perm)
