"""Converts arguments that torch's own functions accept and ``torch.ops`` refuses, and explains arguments of wrong types."""

from __future__ import annotations

import functools
import operator
import reprlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

_CHECKED = {"Tensor", "DTensor", "CSR", "ShardedCSR"}
_NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def number(value: Any) -> Any:
    """Convert scalar objects to Python numbers.

    Args:
        value: A Python or symbolic number, a NumPy scalar, a tensor, or any other object.

    Returns:
        A Python number for a NumPy scalar, or for a zero-dimensional tensor that requires no gradient. Any other
        ``value`` is returned unchanged.
    """
    if isinstance(value, _NUMBERS) or (isinstance(value, Tensor) and (value.dim() != 0 or value.requires_grad)):
        return value
    return value.item() if hasattr(value, "item") else value


def integer(op: str, name: str, value: Any) -> int:
    """The int that an object with ``__index__`` stands for. Symbolic integers of a trace are returned unchanged.

    Raises:
        TypeError: ``value`` is not an integer.
    """
    if isinstance(value, (int, torch.SymInt)):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{op}: {name} must be an integer: expected an int, got {reprlib.repr(value)}") from None


def checks_types(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorates a public function: a wrong type in place of a tensor or a matrix raises a TypeError that names the argument.

    The types are compared with the annotations after a call has failed. So calls that succeed are not slowed down, and objects that
    stand for tensors pass, such as the proxies of :mod:`torch.fx`.
    """

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except Exception:
            _check_types(function, args, kwargs)
            raise

    return call


def _check_types(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = dict(zip(function.__code__.co_varnames, args)) | kwargs
    for name, value in given.items():
        expected = function.__annotations__.get(name, "")  # none of an argument that the function lacks
        kinds = set(expected.split(" | "))
        if kinds & _CHECKED and not _is_one_of(kinds, value):
            raise TypeError(
                f"{function.__name__}: {name} has a wrong type: expected {expected}, got {type(value).__name__}"
            ) from None


def _is_one_of(kinds: set[str], value: Any) -> bool:
    if value is None:
        return "None" in kinds
    if "Tensor" in kinds and hasattr(type(value), "__torch_function__"):
        return True
    if kinds & {"Number", "float"} and (isinstance(value, _NUMBERS) or getattr(value, "ndim", None) == 0):
        return True
    return any(kind.__name__ in kinds for kind in type(value).__mro__)
