"""Results and gradients of a step, and how far they differ from another step's."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from torch_ops._cuda_graph.tensors import difference, norm
from torch_ops.trial.state import State

__all__ = ["Difference", "Values", "differences", "values_of"]


@dataclass(frozen=True)
class Difference:
    """How far the values of two steps are apart.

    Args:
        relative: The L2 norm of all differences over the L2 norm of all values. Infinite if only one of them has a value.
        largest: The tensor that differs most, or "" if none does.
    """

    relative: float
    largest: str


@dataclass(frozen=True)
class Values:
    """Copies of a step's results and gradients, by name."""

    results: dict[str, Tensor]
    gradients: dict[str, Tensor]


def values_of(step: Any, context: contextlib.AbstractContextManager[Any], state: State) -> Values:
    """Calls a step and keeps its results and gradients. Gradients are read when an optimizer uses them, or after the step."""
    gradients: dict[str, Tensor] = {}

    def see(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        note([parameter for group in optimizer.param_groups for parameter in group["params"]])

    def note(parameters: list[Tensor]) -> None:
        for parameter in parameters:
            name = state.name_of(parameter)
            if parameter.grad is not None and name not in gradients:
                gradients[name] = _strided(parameter.grad)

    hook = register_optimizer_step_pre_hook(see)
    try:
        with context:
            leaves = pytree.tree_leaves(step())
    finally:
        hook.remove()
    note(state.parameters())
    results = {f"result {number}": found for number, leaf in enumerate(leaves) if (found := _number(leaf)) is not None}
    return Values(results, gradients)


def differences(found: Values, expected: Values) -> tuple[Difference | None, Difference | None]:
    """The differences of results and of gradients. None where there are none to compare."""
    return _difference(found.results, expected.results), _difference(found.gradients, expected.gradients)


def _difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> Difference | None:
    if not found and not expected:
        return None
    apart = {name: difference(x, found[name]) for name, x in expected.items() if name in found}
    apart |= dict.fromkeys(found.keys() ^ expected.keys(), math.inf)
    largest = max(apart, key=lambda name: apart[name])
    if not apart[largest]:
        return Difference(0.0, "")
    scale = math.hypot(*map(norm, expected.values()))
    total = math.hypot(*apart.values())
    return Difference(total / scale if scale else math.inf, largest)


def _number(leaf: Any) -> Tensor | None:
    if isinstance(leaf, Tensor):
        return _strided(leaf)
    return torch.tensor(float(leaf)) if isinstance(leaf, (int, float)) else None


def _strided(tensor: Tensor) -> Tensor:
    """A copy of the values."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce().values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return tensor.clone()
