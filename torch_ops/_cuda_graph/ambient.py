"""What a call depends on besides the module and its arguments: modes and switches of PyTorch, and whether it is recorded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as nn_module
from torch.utils import _device

from torch_ops import _override
from torch_ops._cuda_graph.backend import Backend

__all__ = ["Autocast", "blocked", "eager", "key", "runs_eagerly"]

_c: Any = torch._C
_matmul = torch.backends.cuda.matmul
_GLOBAL_HOOKS = (
    nn_module._global_forward_hooks,
    nn_module._global_forward_pre_hooks,
    nn_module._global_backward_hooks,
    nn_module._global_backward_pre_hooks,
)


def blocked(backend: Backend) -> str | None:
    """Why a call must run eagerly here, or None."""
    if not backend.is_ready():
        return "no GPU is used"
    if _c._get_tracing_state() is not None:
        return "torch.jit traces"
    if _c._len_torch_dispatch_stack():
        return "a TorchDispatchMode is on"
    if _c._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func"
    if forward_ad._current_level >= 0:
        return "forward-mode derivatives"
    if torch.is_anomaly_enabled():
        return "torch.autograd.detect_anomaly is on"
    if _c._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "hooks for saved tensors, as of torch.utils.checkpoint"
    if any(_GLOBAL_HOOKS):
        return "hooks of all modules"
    if _c._len_torch_function_stack() and not _only_default_device():
        return "a TorchFunctionMode is on"
    if backend.is_recording():
        return "the call is recorded by someone else"
    return None


def _only_default_device() -> bool:
    modes = (_c._get_function_stack_at(i) for i in range(_c._len_torch_function_stack()))
    return all(type(mode) is _device.DeviceContext for mode in modes)


class Autocast:
    """The state of autocast, which a backward pass may not share with its forward pass."""

    @staticmethod
    def key(device_type: str) -> tuple[Any, ...] | None:
        if not torch.is_autocast_enabled(device_type):
            return None
        return torch.get_autocast_dtype(device_type), torch.is_autocast_cache_enabled()

    @staticmethod
    @contextlib.contextmanager
    def restored(device_type: str, state: tuple[Any, ...] | None) -> Iterator[None]:
        """A block with the state of a key, in which no cast from before is found, and after which none is left."""
        torch.clear_autocast_cache()
        options = {} if state is None else {"dtype": state[0], "cache_enabled": state[1]}
        try:
            with torch.autocast(device_type, enabled=state is not None, **options):
                yield
        finally:
            torch.clear_autocast_cache()


def key(backend: Backend) -> tuple[Any, ...]:
    """Everything that a recording depends on, and that changes between calls."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        Autocast.key(backend.device_type),
        backend.device(),
        backend.stream(),
        torch.get_default_dtype(),
        _c._len_torch_function_stack() and str(torch.get_default_device()),
        _c._get_deterministic_algorithms(),
        _c._get_deterministic_algorithms_warn_only(),
        torch.get_float32_matmul_precision(),
        _c._get_cublas_allow_fp16_reduced_precision_reduction(),
        _c._get_cublas_allow_bf16_reduced_precision_reduction(),
        _c._get_cudnn_enabled(),
        _c._get_cudnn_benchmark(),
        _c._get_cudnn_deterministic(),
        _c._get_cudnn_allow_tf32(),
        _c._get_cublas_allow_tf32(),
        _c._get_flash_sdp_enabled(),
        _c._get_mem_efficient_sdp_enabled(),
        _c._get_math_sdp_enabled(),
        _c._get_cudnn_sdp_enabled(),
        _override._active,
    )


# ---------------------------------------------------------------- calls that are recorded


class _State(threading.local):
    depth = 0


_state = _State()


def runs_eagerly() -> bool:
    """Whether this thread runs a call that must not be replayed: one that is recorded, compared, or computed again."""
    return _state.depth > 0


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """A block in which modules compute as they are."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
