"""The trial: passes through a model that choose the layouts of its convolutions.

1. In the first pass every layer is measured, and computes channels last if two conversions could make it worth it. Each layer notes
   whether its input arrived channels last, and in training, how the gradient of its result arrived. ``chunk``, for example, returns a
   contiguous gradient.
2. After each pass, layers leave their chains (chains.py). The passes end when no layer changed.

A residual connection adds in the layout of its first operand. A layer whose very result the next layer converts therefore converts it
itself. It ``gives`` channels last.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils import _pytree as pytree

from torch_ops._tracing import is_eager
from torch_ops.layout.chains import Visit, choose
from torch_ops.layout.convolution import Choice, Layer, Times, is_channels_last, measure
from torch_ops.layout.modules import LAYERS, store_weight

__all__ = ["FirstCall", "choose_layouts"]

#: The devices on which layers choose. Tests add the CPU.
devices = {"cuda"}
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_MOST_PASSES = 8
# A layer begins to give its result channels last in the first passes only. Two layers may want one tensor in two layouts.
_MOST_GIVING_PASSES = 2


class FirstCall:
    """A forward pre-hook: the first call of a model on a GPU chooses the layouts, and removes the hook."""

    _choosing = threading.Lock()

    def __init__(self, store_weights: bool) -> None:
        self.store_weights = store_weights

    def __call__(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_eager() or next((p.device.type for p in model.parameters()), None) not in devices:
            return
        # The passes call the model again. Other threads compute with what is chosen so far.
        if self._choosing.acquire(blocking=False):
            try:
                choose_layouts(model, args, kwargs, self.store_weights)
                self.remove(model)
            finally:
                self._choosing.release()

    @staticmethod
    def remove(module: torch.nn.Module) -> None:
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, FirstCall):
                del module._forward_pre_hooks[key], module._forward_pre_hooks_with_kwargs[key]


def choose_layouts(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], store_weights: bool) -> None:
    """Fixes the layout of every layer that a call of the model with these arguments reaches, and of its weight if told so."""
    trial = _Trial()
    layers = {module: _Candidate(trial) for module in model.modules() if isinstance(module, LAYERS)}
    chosen: dict[torch.nn.Module, Choice] = {}
    try:
        for module, layer in layers.items():
            module._layout = layer  # pyright: ignore[reportAttributeAccessIssue]
        for number in range(_MOST_PASSES):
            trial.begin(may_give=number < _MOST_GIVING_PASSES)
            _pass(model, args, kwargs)
            if not (trial.learned or choose(trial.visits)):
                break
        chosen = {module: layer.choice() for module, layer in layers.items() if layer.visited}
    finally:
        for module in layers:
            module._layout = chosen.get(module)
    for module, choice in chosen.items():
        if store_weights and choice.channels_last:
            store_weight(module, True)


def _pass(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Calls the model with copies of its buffers and arguments, and computes gradients where it would. Random numbers stay."""
    leaves, tree = pytree.tree_flatten((args, kwargs))
    leaves = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, tree)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    inputs = [x for x in (*leaves, *model.parameters()) if isinstance(x, Tensor) and x.requires_grad]
    # A checkpoint around the model would count the tensors that are saved here.
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.random.fork_rng({p.get_device() for p in model.parameters() if p.is_cuda}), hooks:
        results = pytree.tree_leaves(functional_call(model, buffers, args, kwargs))
        # Sparse tensors have no ones_like.
        results = [x for x in results if isinstance(x, Tensor) and x.requires_grad and x.layout == torch.strided]
        # A model whose gradients need a loss of its own, or reentrant checkpoints, is chosen without them.
        with contextlib.suppress(RuntimeError):
            if results and inputs:
                torch.autograd.grad(results, inputs, [torch.ones_like(x) for x in results], allow_unused=True)


class _Trial:
    """What the passes found: all times, and the visits of layers in one pass."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.times: dict[tuple[Any, ...], Times] = {}

    def begin(self, may_give: bool) -> None:
        self.may_give = may_give
        self.learned = False  # whether a layer began or ceased to give in this pass
        self.visits: list[Visit] = []

    def measured(self, problem: tuple[Any, ...] | None) -> Times | None:
        if problem is None:
            return None
        if problem not in self.times:
            self.times[problem] = measure(*problem)
        return self.times[problem]


class _Candidate:
    """Stands for the choice of a layer during a trial, and notes what there is to see. Its results know it."""

    def __init__(self, trial: _Trial) -> None:
        self.trial = trial
        self.visited = False
        self.channels_last: bool | None = None
        self.by_gpuopt = (True, True)
        self.gives = False

    def choice(self) -> Choice:
        contiguous, last = self.by_gpuopt
        return Choice(self.channels_last, last if self.channels_last else contiguous, self.gives)

    def convolve(self, layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # A checkpoint computes again in the thread of autograd.
        if not is_eager() or threading.get_ident() != self.trial.thread:
            return self.choice().convolve(layer, signal, weight, bias)
        visit = self._arrival(layer, signal, weight, bias)
        result = self.choice().convolve(layer, signal, weight, bias)
        if result.requires_grad and is_channels_last(result):
            result.register_hook(lambda gradient: setattr(visit, "gradient", is_channels_last(gradient)))
        result._gpuopt_layer = self  # pyright: ignore[reportAttributeAccessIssue]
        return result

    def _arrival(self, layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None) -> Visit:
        """Notes a call, with the layout in which its signal arrives and who gave it so."""
        trial = self.trial
        problem = _problem(layer, signal, weight, bias)
        visit = Visit(self, trial.measured(problem), problem is not None and any(problem[-1]))
        if visit.times and self.channels_last is None:
            self.channels_last, self.by_gpuopt = visit.times.may_be_faster(), visit.times.by_gpuopt
        arrives, before = is_channels_last(signal), getattr(signal, "_gpuopt_layer", None)
        visit.arrived = arrives and not (before and before.gives)
        if before and arrives and before.gives and self.channels_last is False:
            before.gives, trial.learned = False, True
        elif before and not arrives and self.channels_last and trial.may_give:
            before.gives, trial.learned = True, True
        trial.visits.append(visit)
        self.visited = True
        return visit


def _problem(layer: Layer, signal: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Any, ...] | None:
    """The arguments of a measurement, or None if the layout makes no difference or is never measured."""
    device, dtype = signal.device, signal.dtype
    if torch.is_autocast_enabled(device.type) and dtype in _DTYPES:
        dtype = torch.get_autocast_dtype(device.type)
    # Of one channel or one position, both layouts are the same.
    is_small = min(signal.shape[1:]) < 2 or 0 in (signal.numel(), weight.numel())
    if is_small or device.type not in devices or dtype not in _DTYPES or not torch.backends.cudnn.enabled:
        return None
    recorded = torch.is_grad_enabled()
    gradients = signal.requires_grad and recorded, weight.requires_grad and recorded
    return layer, tuple(signal.shape), tuple(weight.shape), bias is not None, dtype, device, gradients
