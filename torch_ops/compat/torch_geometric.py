"""Lets PyTorch Geometric compute with gpuopt's sparse products. ``torch_ops.compat.install("torch_geometric")`` does it.

Not a drop-in: it replaces functions and methods of the installed package, and :func:`uninstall` puts them back.

==========================================  ====================================================================
replaced                                    computed by
==========================================  ====================================================================
``MessagePassing.propagate``                ``spmm``, where messages are ``x_j`` or ``weight * x_j``
``MessagePassing.edge_updater``             ``sddmm`` and ``segment_softmax``, for attention as in ``GATConv``
``utils.softmax``                           ``segment_softmax``
``utils.spmm``, ``edge_index._spmm``        ``spmm``
``gcn_norm`` and additions of self-loops    themselves, once for each ``edge_index``
==========================================  ====================================================================

A replacement computes only what is the same: eager calls on CUDA tensors, and calls that ``torch_ops.cuda_graph`` records. The original
computes all others.
"""

# Where the package torch_geometric is missing, pyright finds the module of its name in this folder.
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["install", "uninstall"]

_BASE = "torch_geometric.nn.conv.message_passing"  # the module of MessagePassing
_undo: list[Callable[[], None]] = []


def install() -> None:
    """Lets PyTorch Geometric compute with gpuopt.

    Raises:
        ModuleNotFoundError: PyTorch Geometric is not installed.
    """
    if importlib.util.find_spec("torch_geometric") is None:
        raise ModuleNotFoundError(
            f"torch_ops.compat.install: torch_geometric must be installed, and {sys.executable} has none: pip install"
            " torch_geometric",
            name="torch_geometric",
        )
    if not _undo:
        _install()


def uninstall() -> None:
    """Undoes :func:`install`: every function and method is the object that it was."""
    while _undo:
        _undo.pop()()


def _install() -> None:
    from torch_geometric import edge_index, utils
    from torch_geometric.nn import MessagePassing
    from torch_geometric.nn.conv import gcn_conv

    from torch_ops.compat import _graphs, _layers, _loops

    _undo.append(_graphs.clear)
    forms: dict[Any, Callable[..., Any]] = {
        utils.softmax: _layers.softmax,
        utils.spmm: _layers.spmm_of_sparse,
        edge_index._spmm: _layers.spmm_of_edge_index,
    }
    for original in (gcn_conv.gcn_norm, utils.add_self_loops, utils.remove_self_loops, utils.add_remaining_self_loops):
        forms[original] = functools.partial(_loops.FORMS[original.__name__], original)
    _replace_functions({original: _replacement(original, ours) for original, ours in forms.items()})
    for layer in _with_subclasses(MessagePassing):
        _replace_methods(layer)
    _replace_templates(MessagePassing)


# ---------------------------------------------------------------- functions


def _replacement(original: Any, ours: Callable[..., Any]) -> Any:
    """A function that calls ``ours`` in eager mode, and ``original`` if the result of that is NotImplemented.

    TorchScript reads the source of ``__wrapped__``, and looks up its names in ``__globals__``. So it compiles the original.
    """

    from torch_ops._tracing import is_eager, keeper

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_eager() or keeper() is not None:
            result = ours(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return original(*args, **kwargs)

    function = FunctionType(call.__code__, original.__globals__, original.__name__, None, call.__closure__)
    return functools.update_wrapper(function, original)


def _replace_functions(replacements: dict[Any, Any]) -> None:
    """Replaces functions in all modules that have imported them. Modules that import them later import the replacements."""
    _exchange(replacements)
    _undo.append(lambda: _exchange({new: old for old, new in replacements.items()}))


def _exchange(replacements: dict[Any, Any]) -> None:
    # TorchScript compiles the overloads of a function once. It then forgets their sources, and keeps them by function.
    state: Any = sys.modules.get("torch.jit._state")
    overloads = getattr(state, "_jit_function_overload_caching", {})
    for old, new in replacements.items():
        if old in overloads:
            overloads[new] = overloads[old]
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                # isinstance would read an attribute of the value, which may warn.
                if type(value) is FunctionType and value in replacements:
                    setattr(module, key, replacements[value])


# ---------------------------------------------------------------- methods


def _with_subclasses(layer: type) -> list[type]:
    found = {layer: None}
    for subclass in layer.__subclasses__():
        found.update(dict.fromkeys(_with_subclasses(subclass)))
    return list(found)


def _replace_methods(layer: type) -> None:
    """Replaces the methods that PyTorch Geometric has generated for a class, or that MessagePassing itself has."""
    from torch_ops.compat import _layers

    for name in ("propagate", "edge_updater"):
        original = vars(layer).get(name)
        generated = f"{layer.__module__}_{layer.__name__}_{name}"
        if not isinstance(original, FunctionType) or hasattr(original, "__wrapped__"):
            continue
        if original.__module__ in (generated, _BASE):
            setattr(layer, name, _replacement(original, getattr(_layers, name)))
            _undo.append(functools.partial(setattr, layer, name, original))


def _replace_templates(message_passing: type) -> None:
    """A class gets its methods when its first object is made."""
    original = message_passing._set_jittable_templates

    def set_jittable_templates(self: Any, raise_on_error: bool = False) -> None:
        original(self, raise_on_error)
        layer = type(self)
        # What a class inherited when its methods were generated must not outlive uninstall. Until then it must be what
        # MessagePassing has, or PyTorch Geometric would take it for a method of the class.
        for name in ("_orig_propagate", "_jinja_propagate", "_orig_edge_updater", "_jinja_edge_updater"):
            inherited: Any = vars(layer).get(name)
            if hasattr(inherited, "__wrapped__"):
                _undo.append(functools.partial(setattr, layer, name, inherited.__wrapped__))
        _replace_methods(layer)

    message_passing._set_jittable_templates = functools.wraps(original)(set_jittable_templates)
    _undo.append(functools.partial(setattr, message_passing, "_set_jittable_templates", original))
