"""Converts arguments that torch's own functions accept and ``torch.ops`` refuses, and explains arguments of wrong types."""

from __future__ import annotations

import functools
import operator
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import torch
from torch import Tensor

from torch_ops._deprecated import new_word

_OLD_REDUCTIONS = {"max": "amax", "min": "amin", "mul": "prod"}
_NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat)
# What an annotation accepts.
_INSTANCES: dict[type, tuple[type, ...]] = {
    bool: (bool, torch.SymBool),
    int: (int, torch.SymInt),
    float: (int, float, torch.SymInt, torch.SymFloat),
    complex: _NUMBERS,
}

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


def integer(op: str, name: str, value: Any) -> Any:
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


def reduction(op: str, reduce: Any, words: Sequence[str] = ("sum", "mean", "amax", "amin", "prod")) -> str:
    """The operator's word for a reduction, which has PyTorch's word in Python.

    Raises:
        TypeError: ``reduce`` is no word.
        ValueError: it is none of ``words``.
    """
    reduce = new_word(op, "reduce", reduce, _OLD_REDUCTIONS)
    if not isinstance(reduce, str):
        raise TypeError(f"{op}: reduce must be a word, got {type(reduce).__name__}")
    if reduce not in words:
        known = ", ".join(f'"{word}"' for word in words)
        raise ValueError(f'{op}: reduce must be one of {known}, got "{reduce}"')
    return {"amax": "max", "amin": "min"}.get(reduce, reduce)


@overload
def checks_types(function: Callable[Arguments, Result], /) -> Callable[Arguments, Result]: ...
@overload
def checks_types(**names: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]: ...
def checks_types(function: Any = None, /, **names: str) -> Any:
    """Decorates a public function: an argument of a wrong type raises a TypeError that names it.

    The types are compared with the annotations after a call has failed. So calls that succeed are not slowed down, and objects that
    stand for tensors pass, such as the proxies of :mod:`torch.fx`.

    Args:
        names: the function's name of each argument that the operator calls by another name, for messages of the operator.
    """
    if function is None:
        return functools.partial(_checking, names=names)
    return _checking(function, names)


def _checking(function: Callable[Arguments, Result], names: dict[str, str]) -> Callable[Arguments, Result]:
    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not torch.compiler.is_compiling():
                check_types(function, args, kwargs)
                _rename(error, names)
            raise

    return call


def _rename(error: Exception, names: dict[str, str]) -> None:
    """Puts the function's names of arguments into the message of an operator."""
    if names and error.args and isinstance(error.args[0], str) and error.args[0].startswith("gpuopt::"):
        message = re.sub(r"(?<!\bthe )\b\w+", lambda word: names.get(word[0], word[0]), error.args[0])
        error.args = (message, *error.args[1:])


def check_types(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises a TypeError if an argument has another type than its annotation says."""
    given = dict(zip(function.__code__.co_varnames, args)) | dict(kwargs)
    hints = get_type_hints(function)
    for name, value in given.items():
        if name in hints:
            check_type(function.__name__, name, value, hints[name])


def check_type(function: str, name: str, value: Any, hint: Any) -> None:
    """Raises a TypeError if an argument of a function has another type than a hint says."""
    if not _fits(value, hint):
        raise TypeError(f"{function}: {name} must be {_words(hint)}, got {type(value).__name__}") from None


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(value, torch.fx.Proxy):
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:  # operators explain unknown words
        return isinstance(value, str)
    if origin is Sequence:
        return isinstance(value, (list, tuple)) and all(_fits(item, inner[0]) for item in value)
    if origin is not None or isinstance(hint, TypeVar) or hint is Any:
        return True
    if hint is Tensor:
        return hasattr(type(value), "__torch_function__")
    if hint in _INSTANCES and getattr(value, "ndim", None) == 0:  # a tensor or an array that stands for a number
        return True
    kinds: Any = _INSTANCES.get(hint, hint)
    return isinstance(value, kinds)


def _words(hint: Any) -> str:
    """A type as a reader writes it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_words(one) for one in inner)
    if origin is Literal:
        return "a word"
    if origin is Sequence:
        return f"a sequence of {_words(inner[0])}"
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
