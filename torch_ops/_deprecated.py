"""Calls in the form of version 0.1. They work in 0.2 with a DeprecationWarning, and end with 0.3."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

__all__ = ["new_word", "takes_old_calls", "warn"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def warn(function: str, message: str) -> None:
    """Warns at the line outside this package that calls it, except while torch.compile traces."""
    if torch.compiler.is_compiling():
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("torch_ops."):
        frame, level = frame.f_back, level + 1
    text = f"{function}: {message}. This form of torch_ops 0.1 ends with 0.3."
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def new_word(function: str, argument: str, word: Any, words: dict[str, Any]) -> Any:
    """The word that stands for an old one."""
    if not isinstance(word, str) or word not in words:
        return word
    warn(function, f"{argument}={word!r} is now {words[word]!r}")
    return words[word]


def takes_old_calls(
    old: str, *, is_old: Callable[[tuple[Any, ...], dict[str, Any]], bool] | None = None, **renamed: str
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorates a function whose arguments have changed: a call in the old form warns, and is made in the new one.

    A call is old if it gives more arguments by position than the function takes, or a name that is gone.

    Args:
        old: the arguments that version 0.1 took by position, in order, separated by spaces.
        is_old: whether a call has the old order, if the order has changed.
        renamed: the new name of each argument whose name has changed.
    """
    names = [renamed.get(name, name) for name in old.split()]

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters = inspect.signature(function).parameters
        positional = [name for name, parameter in parameters.items() if parameter.kind in _POSITIONAL]
        most, gone = len(positional), frozenset(renamed)

        def in_new_form(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            if len(args) > len(names):
                raise TypeError(f"{function.__name__} takes {most} positional arguments but {len(args)} were given")
            given = dict(zip(names, args))
            for name, value in kwargs.items():
                name = renamed.get(name, name)
                if name in given:
                    raise TypeError(f"{function.__name__}: {name} is given twice")
                given[name] = value
            form = ", ".join(name if name in positional[:2] else f"{name}=..." for name in parameters if name in given)
            warn(function.__name__, f"expected a call as {function.__name__}({form})")
            return given

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            if len(args) > most or not gone.isdisjoint(kwargs) or (is_old is not None and is_old(args, kwargs)):
                return function(**in_new_form(args, kwargs))  # pyright: ignore[reportCallIssue]
            return function(*args, **kwargs)

        return call

    return decorate
