"""Whether this thread runs a call that must not be replayed: one that is recorded, compared, or computed again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["eager", "is_eager"]


class _State(threading.local):
    depth = 0


_state = _State()


def is_eager() -> bool:
    return _state.depth > 0


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """A block in which modules compute as they are."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
