"""Whether a replay gives what an eager call gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ops._cuda_graph.tensors import difference, norm, same_bits

__all__ = ["Values", "mismatch", "repeats", "unrepeatable"]

_MOST_NOISE = 0.05  # two equal eager calls may differ by this share, for example by atomic additions
_TIMES_NOISE, _TIMES_EPSILON = 8, 16


class Values(NamedTuple):
    """What one call computed: results, gradients and buffers."""

    outputs: Sequence[Tensor]
    gradients: Sequence[Tensor | None]
    buffers: Sequence[Tensor]


def unrepeatable(once: Values, again: Values) -> str:
    """Why two eager calls on the same arguments and state can't have computed the same, or ""."""
    for name, xs, ys in _groups(once, again):
        if [x is None for x in xs] != [y is None for y in ys]:
            return f"two equal calls have other {name}"
        pairs = [(x, y) for x, y in zip(xs, ys) if x is not None]
        if all(same_bits(x, y) for x, y in pairs):
            continue
        if any(x.shape != y.shape for x, y in pairs):
            return f"two equal calls have {name} of other shapes"
        noise, scale = (math.hypot(*found) for found in zip(*((difference(x, y), norm(y)) for x, y in pairs)))
        if not noise <= _MOST_NOISE * scale:
            return f"two equal calls differ: {name}, {noise:.2g} of {scale:.2g}"
    return ""


def repeats(once: Values, again: Values) -> bool:
    """Whether two calls computed the same bits."""
    return all(
        x is y or (x is not None and y is not None and same_bits(x, y))
        for _, xs, ys in _groups(once, again)
        for x, y in zip(xs, ys)
    )


def mismatch(once: Values, again: Values, replayed: Values) -> str:
    """How a replay differs from two eager calls beyond rounding, or ""."""
    for (name, first, xs), (_, _, ys) in zip(_groups(once, again), _groups(once, replayed)):
        scale = math.hypot(*(norm(x) for x in xs if x is not None), 0.0)
        for number, (other, x, y) in enumerate(zip(first, xs, ys)):
            if (x is None) != (y is None):
                return f"{name} {number}: {'no ' if y is None else 'a '}tensor in the replay"
            if x is None or same_bits(x, y) or same_bits(other, y):
                continue
            epsilon = torch.finfo(x.dtype).eps if x.dtype.is_floating_point or x.dtype.is_complex else 0.0
            allowed = _TIMES_NOISE * difference(other, x) + _TIMES_EPSILON * epsilon * norm(x) + epsilon * scale
            apart = difference(x, y)
            if not apart <= allowed:
                return f"{name} {number} of the replay differ: {apart:.2g}, where rounding explains {allowed:.2g}"
    return ""


def _groups(one: Values, other: Values) -> list[tuple[str, Sequence[Any], Sequence[Any]]]:
    return [
        ("results", one.outputs, other.outputs),
        ("gradients", one.gradients, other.gradients),
        ("buffers", one.buffers, other.buffers),
    ]
