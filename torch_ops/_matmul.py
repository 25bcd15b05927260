"""The product of matrices, ``matmul``, with a precision that belongs to the call.

``precision="3xtf32"`` multiplies float32 on tensor cores of Hopper GPUs with the accuracy of float32. Each operand is split into two TF32
parts of 11 significant bits, and three products of parts are added in float32 (``csrc/matmul/README.md``).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torch_ops._arguments import checks_types

__all__ = ["matmul"]

_ops = torch.ops.gpuopt


@checks_types
def matmul(input: Tensor, other: Tensor, *, precision: Literal["ieee", "3xtf32"] = "ieee") -> Tensor:
    """Product of two matrices, vectors or batches of matrices. Same semantics as :func:`torch.matmul`.

    Gradients and tangents are computed in the precision of the call. On CUDA that holds whatever
    ``torch.backends.cuda.matmul.allow_tf32`` and :func:`torch.set_float32_matmul_precision` say. There is no
    ``precision="tf32"``, because PyTorch's switch for it belongs to the process and would change other threads.

    On the CPU, float32 products follow PyTorch's switches, as :func:`torch.matmul` does. With
    ``torch.set_float32_matmul_precision("medium")`` or ``torch.backends.mkldnn.matmul.fp32_precision = "bf16"``, oneDNN may
    round operands to bfloat16. PyTorch has no switch for one call there.

    The 3xTF32 product differs from float32's in three ways:

    - It is computed where it is expected to be faster than cuBLAS: large float32 products on GPUs of compute capability
      9.0. Other products (other GPUs, other dtypes, CPU tensors, small or thin matrices) are computed as ``"ieee"``.
    - Products of two numbers whose sizes are below 2^-102 may lose half of their bits, because the smaller part of such
      a number is subnormal.
    - Results are bitwise reproducible on one kind of GPU. The order of additions depends on the sizes and on the number
      of SMs.

    NaN and infinities give what they give in float32.

    Args:
        input: Tensor (..., m, k), or a vector (k,); floating-point or complex, on CPU also integer. Any strides. A
            transposed matrix is read without a copy. Rows that don't begin at multiples of 16 bytes are copied for
            3xTF32.
        other: Tensor (..., k, n), or a vector (k,), with the dtype and device of ``input``. Dimensions in front of the
            last two broadcast.
        precision: ``"ieee"``, PyTorch's product with TF32 switched off for this call, or ``"3xtf32"``.

    Returns:
        Contiguous tensor (..., m, n), without m or n where an operand is a vector. It is differentiable any number of
        times, in reverse and forward mode. Under :func:`torch.vmap` all examples are one call. Autocast computes in its
        lower precision, as for :func:`torch.matmul`.

    Raises:
        RuntimeError: An argument has no dimensions; sizes don't match or broadcast; dtypes or devices differ.
        ValueError: ``precision`` is unknown.
        NotImplementedError: The dtype is an integer type or bool, on CUDA.

    Example::

        y = torch_ops.matmul(x, weight.t(), precision="3xtf32")
    """
    return _ops.matmul.default(input, other, precision=precision)
