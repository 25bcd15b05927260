"""torch_ops.override inside graphs that Inductor compiles.

Inductor turns additions of rows at an index into Triton kernels with atomic additions, or calls of a kernel that sorts. No call of PyTorch's operators is left that
the kernels of ``torch_ops.override`` could replace. So a pass over Inductor's graph puts gpuopt's ``index_add`` there.

=============  ==========================================================================
file           what it holds
=============  ==========================================================================
``toggle.py``  which operators are replaced now; the pass, its cache key, and Dynamo's guards
``match.py``   finds additions of rows in a graph
``rewrite.py`` replaces what is faster than Inductor's kernels (csrc/override/policy.h)
=============  ==========================================================================

This module imports nothing of the compiler. The others are imported when an operator of :data:`OPERATORS` is replaced.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import Any

# Names of torch_ops.override whose calls in a graph are additions of rows.
OPERATORS = frozenset({"index_add", "scatter_add", "scatter_reduce", "index_put", "embedding_dense_backward"})


def no_compilation() -> contextlib.AbstractContextManager[Any]:
    """Keeps Dynamo from tracing in other threads, where it might call a kernel that is being removed."""
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(convert_frame, "compile_lock", None) or contextlib.nullcontext()


def begin(names: Iterable[str], key: str, always: bool) -> None:
    """Begins a use of the operators ``names``, as ``torch_ops.override.enable``.

    Args:
        names: Operators that are replaced. Those without a part in graphs are left out.
        key: The dispatch key, which names the device: ``"CUDA"``.
        always: If True, additions of any size are replaced.
    """
    _change(names, 1, key, always)


def end(names: Iterable[str], key: str, always: bool) -> None:
    """Ends a use that :func:`begin` began with the same arguments."""
    _change(names, -1, key, always)


def _change(names: Iterable[str], by: int, key: str, always: bool) -> None:
    relevant = OPERATORS.intersection(names)
    if relevant:
        from torch_ops._graph import toggle

        toggle.change(relevant, by, key.lower(), always)
