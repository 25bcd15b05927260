"""Whether operators run one by one, or are recorded to run later."""

from __future__ import annotations

import torch

__all__ = ["is_eager"]


def is_eager() -> bool:
    """Whether operators run one by one on real tensors, so that something may be measured, or computed once and kept.

    A trace and a transform of torch.func have separate tensors. A CUDA graph replays its kernels after their inputs were
    overwritten, and nothing may wait for the GPU while it is recorded.
    """
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )
