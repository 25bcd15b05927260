"""The steps of the ladders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ops._arguments import check_type, integer

__all__ = ["Step", "ops", "run", "steps"]

_ladder = torch.ops.gpuopt_ladder
# What operands may be, by the types of schemas. An int for a list of sizes stands for all of them.
_HINTS: dict[str, Any] = {
    "Tensor": Tensor,
    "Optional[Tensor]": Tensor | None,
    "int": int,
    "List[int]": Sequence[int] | int,
}


class Step(NamedTuple):
    """A step of a ladder.

    Attributes:
        number: its position in the ladder, from 0; one of the two ways to name it to :func:`run`.
        name: its name, the other way.
        idea: what it adds to the step below it, and why, in a sentence or two without the final full stop.
        repeatable: whether results are bitwise equal in every call. If not, their rounding varies, and
            :func:`torch.use_deterministic_algorithms` forbids the step.
    """

    number: int
    name: str
    idea: str
    repeatable: bool


def ops() -> list[str]:
    """The names of the operators that have a ladder. ``torch.ops.gpuopt`` has operators of the same names, except for ``matmul``."""
    return list(_ladder.ops())


def steps(op: str) -> list[Step]:
    """The steps of an operator's ladder, in order. The last one is the production operator. For ``matmul`` it is :func:`torch.mm`.

    Args:
        op: one of :func:`ops`.

    Raises:
        TypeError: ``op`` is no word.
        ValueError: the operator has no ladder.
    """
    check_type("ladder.steps", "op", op, str)
    described = zip(_ladder.names(op), _ladder.ideas(op), _ladder.repeatable(op))
    return [Step(number, *step) for number, step in enumerate(described)]


def run(op: str, step: int | str, *args: Tensor | Sequence[int] | int | None) -> Tensor | tuple[Tensor, ...]:
    r"""Runs one step of an operator's ladder.

    Args:
        op: one of :func:`ops`.
        step: the number or the name of the step.
        args: the operands. Tensors are on one CUDA device, and contiguous except for ``matmul``.

            =========================== ====================================== ==================================
            operator                    arguments                              dtypes
            =========================== ====================================== ==================================
            reduce_sum, reduce_max      self                                   float32
            cumsum                      self (n,)                              float32
            mul                         self, other of one shape               float32; float16 in steps ``half*``
            upsample_nearest2d          input, output_size                     float32, float16, bfloat16
            upsample_nearest2d_backward grad_output, output_size, input_size   float32
            index_add\_                 self (rows, n), index, source          float32, float16, bfloat16, by step
            dot                         self, tensor                           float16
            conv1d                      input (N, 1, L), weight (1, 1, K)      float32
            transpose2d                 self (rows, columns)                   float32
            spmm                        ptr, index, value, dense (columns, n)  float32, bfloat16
            matmul                      a (m, k), b (k, n)                     float32; float16, bfloat16, by step
            triangle_count              source, target, vertices               int32
            layer_norm                  input (rows, n), weight, bias          float32, bfloat16
            layer_norm_backward         grad, input, mean, rstd, weight        float32, bfloat16
            =========================== ====================================== ==================================

            - The last step, ``"production"``, accepts whatever its operator accepts on CUDA. ``cumsum`` adds along the last
              dimension.
            - ``index_add_``: ``index`` is int64. The step writes to ``self`` and returns it.
            - Upsampling: steps whose names end in ``2x`` need sizes that are exactly twice the input's.
            - ``conv1d``: rows are padded so that they keep their length. K is odd; it is at most 4095 except in the first step. From
              the second step on, the taps lie in the GPU's constant memory, so calls on several streams must not overlap.
            - ``spmm``: row r of the sparse matrix has the entries ``ptr[r]`` to ``ptr[r + 1]``, in the columns ``index``. Both are int32.
              ``value`` has the dtype of ``dense``, or is None, which counts as ones.
            - ``matmul``: rows may be any distance apart. Steps before ``ldmatrix`` and ``three_tf32_wgmma`` are for float32, the
              others for float16 and bfloat16.
              ``vectors``, ``bulk_copies`` and steps from ``wgmma`` on need rows that begin at multiples of 16 bytes. The latter need
              compute capability 9.0.
            - ``triangle_count``: the edges of a graph without loops, in both directions and without repeats, sorted by source and
              target.
            - ``layer_norm``: each row is normalized, with an eps of 1e-5. ``mean`` and ``rstd`` are the statistics of rows, in float32.

    Returns:
        The result of the operator. Reductions reduce all values. ``layer_norm_backward`` returns the gradients of input, weight and
        bias.

    Raises:
        TypeError: an argument has another type, or the operator has more or fewer operands.
        ValueError: the operator or the step does not exist.
        NotImplementedError: a tensor is not on a CUDA device, or its dtype is not supported.
        RuntimeError: the shapes don't match; a tensor is not contiguous; a step that moves vectors of 16 bytes gets memory that does
            not begin at a multiple of 16 bytes; a step that is not repeatable is called under
            :func:`torch.use_deterministic_algorithms`; a gradient is asked for.
    """
    check_type("ladder.run", "op", op, str)
    names, called = _ladder.names(op), f"gpuopt_ladder::{op}"
    check_type(called, "step", step, int | str)
    if isinstance(step, str):
        if step not in names:
            raise ValueError(f"{called}: step must be one of {', '.join(names)}, got {step!r}")
        step = names.index(step)
    elif not 0 <= (step := integer(called, "step", step)) < len(names):
        raise ValueError(f"{called}: step must be 0 to {len(names) - 1}, got {step}")
    operator = getattr(_ladder, op).default
    operands = operator._schema.arguments[:-1]
    if len(args) != len(operands):
        expected = ", ".join(argument.name for argument in operands)
        raise TypeError(f"{called}: args must be {expected}, got {len(args)} operand{'s' * (len(args) != 1)}")
    for argument, value in zip(operands, args):
        check_type(called, argument.name, value, _HINTS[str(argument.type)])
    for argument, value in zip(operands, args):
        if isinstance(value, Tensor) and not value.is_cuda:
            raise NotImplementedError(
                f"{called}: {argument.name} must be on a CUDA device, because the steps are CUDA kernels: got a tensor"
                f" on {value.device}"
            )
    return operator(*args, step)
