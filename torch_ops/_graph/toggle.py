"""The pass in Inductor's configuration, and what happens to compiled functions when an override begins or ends.

Dynamo calls a compiled function again while its guards hold. They don't know of the override. So at each change every function that
was compiled since the last one gets one more guard: that the same operators are replaced as when it was compiled. A function that
is used both ways is compiled twice, once for each, and no function is compiled again that has been compiled for the same state.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._C import _dynamo  # pyright: ignore[reportAttributeAccessIssue]
from torch._dynamo import convert_frame
from torch._inductor import config, custom_graph_pass
from torch.fx import Graph

import torch_ops
from torch_ops import _library
from torch_ops._graph.rewrite import INDEX_ADD, INDEX_ADD_INPLACE, rewrite, shares_no_memory

_SOURCES = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
# The native library, which decides what is faster, is known by when it was built.
_VERSION = (torch_ops.__version__, _library.facts().get("built"), hashlib.sha256(_SOURCES).hexdigest())


@dataclass(frozen=True)
class State:
    """What is replaced in graphs that are compiled now."""

    operators: tuple[str, ...] = ()
    device: str = ""
    always: bool = False


_OFF = State()
_state = _OFF
_states = {_OFF: _OFF}  # one object for each state, so that guards compare identities
_uses: Counter[str] = Counter()


def change(names: Iterable[str], by: int, device: str, always: bool) -> None:
    """Adds ``by`` uses of the operators ``names``, and installs or removes the pass."""
    global _state
    # No function is compiled meanwhile.
    with convert_frame.compile_lock:
        for name in names:
            _uses[name] += by
        operators = tuple(sorted(name for name, count in _uses.items() if count))
        new = State(operators, device, always) if operators else _OFF
        new = _states.setdefault(new, new)
        if new is not _state:
            _guard_compiled(_state)
            _install(new)
            _state = new


# ---------------------------------------------------------------- compiled functions


def _guard_compiled(state: State) -> None:
    """Functions that were compiled in ``state``, since it began, are called only in that state."""
    reason = f"torch_ops.override replaces in graphs: {', '.join(state.operators) or 'nothing'}"
    for reference in convert_frame.input_codes.seen:
        code = reference()
        for entry in _dynamo.eval_frame._debug_get_cache_entry_list(code) if code is not None else ():
            manager: Any = entry.guard_manager
            if not hasattr(manager, "_gpuopt_state"):
                manager._gpuopt_state = state
                manager.root.add_lambda_guard(lambda _: _state is state, [reason], None)


# ---------------------------------------------------------------- the pass


class RowsPass(custom_graph_pass.CustomGraphPass):
    """Inductor's pass. It does what the pass from before does, and then replaces additions of rows.

    Args:
        previous: The pass that was installed before, or None. After the override it does nothing else.
    """

    def __init__(self, previous: Any = None) -> None:
        self.previous = previous

    def __call__(self, graph: Graph) -> None:
        if self.previous is not None:
            self.previous(graph)
        state = _state
        if state is not _OFF:
            _make_inplaceable()
            rewrite(graph, state.operators, state.device, state.always)

    def uuid(self) -> Any:
        """The key under which Inductor caches graphs: the sources, what is replaced, and the previous pass."""
        previous = None
        if self.previous is not None:
            is_named = isinstance(self.previous, custom_graph_pass.CustomGraphPass)
            previous = self.previous.uuid() if is_named else None
            if not previous:
                return None  # Inductor then caches nothing
        state = _state
        return ("gpuopt", *_VERSION, state.operators, state.device, state.always, previous)


class Passes(list[Any]):
    """The passes from before, and a :class:`RowsPass`. Newer versions of PyTorch accept a list.

    Args:
        previous: The passes from before, as they stood in Inductor's configuration.
    """

    def __init__(self, previous: Any) -> None:
        passes: Any = custom_graph_pass  # older versions have no lists of passes
        super().__init__([*passes.get_custom_graph_passes(previous), RowsPass()])
        self.previous = previous


def _install(state: State) -> None:
    installed = config.post_grad_custom_post_pass
    if state is _OFF:
        if isinstance(installed, (RowsPass, Passes)):
            config.post_grad_custom_post_pass = installed.previous
        _make_inplaceable(False)
    elif not isinstance(installed, (RowsPass, Passes)):
        has_lists = hasattr(custom_graph_pass, "get_custom_graph_passes")
        config.post_grad_custom_post_pass = Passes(installed) if has_lists else RowsPass(installed)


def _make_inplaceable(on: bool = True) -> None:
    """Lets Inductor write to the first operand of index_add where nothing reads it afterwards, such as fresh zeros."""
    # Inductor imports it before any pass runs. Before that, importing it here would take a second.
    reinplace = sys.modules.get("torch._inductor.fx_passes.reinplace")
    if reinplace is None:
        return
    if on:
        made = reinplace.InplaceableOp(INDEX_ADD_INPLACE, 0, extra_check=shares_no_memory)
        reinplace.inplaceable_ops[INDEX_ADD] = made
    else:
        reinplace.inplaceable_ops.pop(INDEX_ADD, None)
