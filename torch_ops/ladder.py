"""The optimisation ladder: every classic version of a kernel, from the first idea that works to the production operator.

A step is one idea away from the step before and small enough to be read; docs/ladder shows each with its code and its time. Steps
are registered as ``torch.ops.gpuopt_ladder.<op>(..., step)``, for CUDA tensors alone, without gradients::

    from torch_ops import ladder

    for step in ladder.steps("reduce_sum"):
        print(step.number, step.name, ladder.run("reduce_sum", step.name, x))

They take any size. Which dtypes and layouts they take is said in :func:`run`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Step", "ops", "run", "steps"]

_ladder = torch.ops.gpuopt_ladder


class Step(NamedTuple):
    """A step of a ladder.

    ``number`` and ``name`` are what :func:`run` takes. ``idea`` says in a sentence what it does that the step before doesn't. Results of a step that is not ``repeatable`` differ from
    call to call in their rounding, and :func:`torch.use_deterministic_algorithms` refuses it.
    """

    number: int
    name: str
    idea: str
    repeatable: bool


def ops() -> list[str]:
    """The operators that have a ladder, by the names that they have in ``torch.ops.gpuopt``."""
    return list(_ladder.ops())


def steps(op: str) -> list[Step]:
    """The steps of an operator, the production operator last.

    Raises:
        ValueError: an operator that has no ladder.
    """
    described = zip(_ladder.names(op), _ladder.ideas(op), _ladder.repeatable(op))
    return [Step(number, *step) for number, step in enumerate(described)]


def run(op: str, step: int | str, *args) -> Tensor:
    r"""Call a step of an operator.

    Args:
        op: one of :func:`ops`.
        step: the number of the step, or its name.
        args: what the step takes, all of it contiguous and on one CUDA device.

            =========================== ====================================== ==================================
            operator                    arguments                              dtypes
            =========================== ====================================== ==================================
            reduce_sum, reduce_max      self                                   float32
            mul                         self, other of one shape               float32; steps of halves float16
            upsample_nearest2d          input, output_size                     float32, float16, bfloat16
            upsample_nearest2d_backward grad_output, output_size, input_size   float32
            index_add\_                 self (rows, n), index, source          float32, float16, bfloat16, by step
            dot                         self, tensor                           float16
            conv1d                      input (N, 1, L), weight (1, 1, K)      float32
            transpose2d                 self (rows, columns)                   float32
            =========================== ====================================== ==================================

            ``index_add_`` writes to ``self``, which it returns; ``index`` is int64. Steps of upsampling whose names end in ``2x`` take
            sizes that are exactly twice the input's. Convolution pads each row to keep its size; K is odd and, but for the first step,
            at most 4095, and as taps lie in the GPU's constant memory, calls on several streams must not overlap. The last step,
            ``"production"``, takes whatever its operator does on CUDA.

    Returns:
        What the operator returns; reductions are of all values.

    Raises:
        ValueError: an operator or a step that there isn't.
        NotImplementedError: tensors that aren't on a CUDA device, or of another dtype.
        RuntimeError: shapes that don't fit; memory that isn't contiguous or, in steps that move packs of 16 bytes, doesn't begin at a
            multiple of 16; under :func:`torch.use_deterministic_algorithms` a step that isn't repeatable; a gradient that is asked for.
    """
    names = _ladder.names(op)
    if isinstance(step, str):
        if step not in names:
            raise ValueError(f"gpuopt_ladder::{op}: step must be one of {', '.join(names)}, got {step!r}")
        step = names.index(step)
    elif not 0 <= step < len(names):
        raise ValueError(f"gpuopt_ladder::{op}: step must be 0 to {len(names) - 1}, got {step}")
    return getattr(_ladder, op).default(*args, step)
