"""Replaces PyTorch's CUDA kernels by gpuopt's, so that models run faster without a change to their code.

``docs/override.md`` lists the operators and the calls that are computed here.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch

from torch_ops import _graph, _library

__all__ = ["override", "override_report"]

# The override depends on details of the dispatcher and on ATen's rules for layouts. They are tested with these versions.
_OLDEST_TORCH, _NEWEST_TORCH = (2, 11), (2, 15)

_ops = torch.ops.gpuopt
_MATMUL = "matmul"  # replaced on request alone
_REPORTED: tuple[str, ...] = tuple(_ops._override_operators())
_OPERATORS: tuple[str, ...] = _REPORTED[: _REPORTED.index(_MATMUL)]
_DETERMINISTIC: tuple[str, ...] = _REPORTED[len(_OPERATORS) + 1 :]  # taken in deterministic mode alone
_REASONS: tuple[str, ...] = tuple(_ops._override_reasons())
_uses: Counter[str] = Counter()
_counting = threading.Lock()
_active: tuple[str, ...] = ()  # what is replaced now, for recordings of calls


class override(contextlib.ContextDecorator):
    """Makes PyTorch's own operators call gpuopt's CUDA kernels where these are faster.

    ATen's kernels at the CUDA dispatch key are replaced. Autograd, autocast, vmap, DDP and CUDA graphs are not: they
    work as before. A call that gpuopt does not compute faster, or does not support, goes to the kernel that stood there
    before. Shapes, strides, dtypes, determinism and error messages are ATen's.

    While :func:`torch.use_deterministic_algorithms` is on, it also takes operators that have no deterministic CUDA kernel in PyTorch,
    and would raise. ``docs/deterministic.md`` lists them.

    Use it as a context manager, as a decorator, or by :meth:`enable` and :meth:`disable`. It acts on all threads of the
    process. It nests: an operator is replaced until as many uses have ended as have begun.

    Args:
        ops: The operators to replace, such as ``"sum"`` or ``("index_add", "convolution")``. They accept tensors of any
            shape, as before. Default: all of ``torch_ops.override.operators`` and
            ``torch_ops.override.deterministic_operators``.
        matmul: ``"3xtf32"`` also replaces dense float32 products (``mm``, ``addmm``, ``bmm``, and so ``matmul`` and
            ``linear``) by :func:`torch_ops.matmul` in this precision, where that is faster. For models that must not use
            TF32. Their results are rounded differently, with an error not above float32's. Default: products stay
            PyTorch's.

    Raises:
        TypeError: ``ops`` is or has something else than a name, such as a model.
        ValueError: ``ops`` names an unknown operator (the message lists the known ones), or ``matmul`` is unknown.
        RuntimeError: On enabling: gpuopt was built without CUDA, or does not know this version of PyTorch.

    Example::

        with torch_ops.override():
            loss = model(batch)
            loss.backward()
        print(torch_ops.override_report())
    """

    operators = _OPERATORS
    deterministic_operators = _DETERMINISTIC

    def __init__(self, ops: str | Iterable[str] | None = None, *, matmul: Literal["3xtf32"] | None = None) -> None:
        known = _OPERATORS + _DETERMINISTIC
        if ops is None:
            names = known
        else:
            names = tuple(ops) if isinstance(ops, Iterable) and not isinstance(ops, str) else (ops,)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(
                    f"torch_ops.override: ops must be names of operators: expected str, such as 'sum', got"
                    f" {type(name).__name__}; a model runs with the override inside `with torch_ops.override(): model(x)`"
                )
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(
                f"torch_ops.override: ops must name operators that can be replaced: expected some of "
                f"{', '.join(known)}, got {', '.join(map(repr, unknown))}"
            )
        if matmul not in (None, "3xtf32"):
            raise ValueError(f"torch_ops.override: matmul must be known: expected '3xtf32' or None, got {matmul!r}")
        self._names = list(dict.fromkeys([*names, _MATMUL] if matmul else names))
        self._uses = 0
        self._lock = threading.Lock()
        # Tests replace kernels of the CPU, and take calls of every size.
        self._key, self._always = "CUDA", False

    def enable(self) -> override:
        """Replaces the operators, until :meth:`disable` was called as often.

        Returns:
            The object itself.

        Raises:
            RuntimeError: As in the class.
        """
        _check_torch()
        with _graph.no_compilation(), self._lock:
            _ops._override_enable(self._names, self._key, self._always)
            try:
                _forget_dispatch(self._names)
                _graph.begin(self._names, self._key, self._always)
            except BaseException:
                _ops._override_disable(self._names)
                raise
            self._uses += 1
            _count(self._names, 1)
        return self

    def disable(self) -> None:
        """Ends one use that :meth:`enable` began. After the last one the kernels from before are back.

        Raises:
            RuntimeError: The override is not enabled.
        """
        with _graph.no_compilation(), self._lock:
            if self._uses == 0:
                raise RuntimeError("torch_ops.override: disable() must follow enable(): expected an enabled override")
            self._uses -= 1
            _graph.end(self._names, self._key, self._always)
            _ops._override_disable(self._names)
            _forget_dispatch(self._names)
            _count(self._names, -1)

    def __enter__(self) -> override:
        return self.enable()

    def __exit__(self, *exception: object) -> None:
        self.disable()


@dataclass(frozen=True)
class Report:
    """The calls of each replaced operator, by what became of them.

    Args:
        calls: ``calls[operator][reason]``, without zeros. The reason is ``"taken"`` for calls that gpuopt computed.
    """

    calls: dict[str, dict[str, int]]

    @property
    def taken(self) -> int:
        """The number of calls that gpuopt computed."""
        return sum(reasons.get("taken", 0) for reasons in self.calls.values())

    @property
    def declined(self) -> int:
        """The number of calls that went to the kernel from before."""
        return sum(sum(reasons.values()) for reasons in self.calls.values()) - self.taken

    def __str__(self) -> str:
        if not self.calls:
            sees = "a GPU" if torch.cuda.is_available() else "no GPU"
            return f"No call reached a replaced operator. Only operators on CUDA tensors are replaced, and torch sees {sees}."
        used = [reason for reason in _REASONS if any(reason in row for row in self.calls.values())]
        table = [["operator", *used]]
        table += [[name, *(str(row.get(reason, 0)) for reason in used)] for name, row in self.calls.items()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths)))
            for row in table
        )


def override_report(*, reset: bool = False) -> Report:
    """Counts the calls of replaced operators since the program began, or since the last reset.

    Calls while no override is enabled are not counted, and neither are calls that gpuopt makes itself.

    Args:
        reset: If True, later reports count from here.

    Returns:
        The counts, as :attr:`Report.calls`. ``print()`` shows them as a table. The reasons for which a call is declined
        are ``layout`` (strides), ``size`` (too small to gain), ``dtype``, ``aten_is_faster``, ``unsupported`` and
        ``not_measured`` (a form that nobody has measured, or a kernel that PyTorch has rewritten). The time saved is not
        estimated: :func:`torch_ops.trial` measures it.

    Example::

        print(torch_ops.override_report(reset=True))
    """
    counts = iter(_ops._override_calls())
    calls = {}
    for name in _REPORTED:
        row = {reason: next(counts) for reason in _REASONS}
        if any(row.values()):
            calls[name] = {reason: count for reason, count in row.items() if count}
    if reset:
        _ops._override_reset()
    return Report(calls)


def _count(names: Iterable[str], by: int) -> None:
    """Notes that a use of operators began or ended."""
    global _active
    with _counting:
        for name in names:
            _uses[name] += by
        _active = tuple(name for name in _REPORTED if _uses[name])


def active() -> tuple[str, ...]:
    """The operators that are replaced now."""
    return _active


def forms_of(name: str) -> set[str]:
    """The names of ATen's operators that are replaced under one name."""
    forms = {name, f"{name}_", f"_{name}_impl_", f"_{name}_legit"}
    if name == _MATMUL:
        forms |= {"mm", "addmm", "bmm"}
    if name == "cudnn_batch_norm":
        forms.add("cudnn_batch_norm_backward")
    return forms


def _forget_dispatch(names: Iterable[str]) -> None:
    """Clears what Python knows of the kernels of replaced operators.

    Tracing dispatches in Python. It asks the dispatcher once for the key at which an operator has a kernel, and would call a kernel
    there that is gone.
    """
    forms = {form for name in names for form in forms_of(name)}
    for op in tuple(torch._ops.get_cached_ops()):
        if op.namespace == "aten" and op.overloadpacket.__name__ in forms:
            op._dispatch_cache.clear()


def _check_torch() -> None:
    if not _OLDEST_TORCH <= _library.torch_version() <= _NEWEST_TORCH:
        known = (".".join(map(str, version)) for version in (_OLDEST_TORCH, _NEWEST_TORCH))
        raise RuntimeError(
            f"torch_ops.override knows PyTorch {' to '.join(known)}, and this is {torch.__version__}: update gpuopt"
        )
