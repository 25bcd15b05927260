"""Whether operators run one by one, or are recorded to run later."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]

__all__ = ["Keeper", "is_eager", "keeper", "keeping"]


def is_eager() -> bool:
    """Whether operators run one by one on real tensors, so that something may be measured, or computed once and kept.

    A trace and a transform of torch.func have separate tensors. A CUDA graph replays its kernels after their inputs were
    overwritten, and nothing may wait for the GPU while it is recorded.
    """
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._len_torch_dispatch_stack() > 0
        or _functorch.peek_interpreter_stack() is not None
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )


class Keeper(Protocol):
    """Keeps what is computed from index tensors for as long as a recording that reads it."""

    def find(self, sources: Sequence[Tensor], key: str) -> Sequence[Tensor | None] | None: ...

    def make(
        self, sources: Sequence[Tensor], key: str, make: Callable[[], Sequence[Tensor | None] | None]
    ) -> Sequence[Tensor | None] | None: ...


class _State(threading.local):
    keeper: Keeper | None = None


_state = _State()


def keeper() -> Keeper | None:
    """What keeps results of index tensors in place of this process, because a call is recorded."""
    return _state.keeper


@contextlib.contextmanager
def keeping(new: Keeper) -> Iterator[None]:
    """A block in which ``new`` is the keeper."""
    before, _state.keeper = _state.keeper, new
    try:
        yield
    finally:
        _state.keeper = before
