"""A recorded call: its replay, the node of autograd, and what happens where a replay would be wrong."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch._C import _autograd  # pyright: ignore[reportAttributeAccessIssue]

from torch_ops._cuda_graph import ambient
from torch_ops._cuda_graph.ambient import Autocast
from torch_ops._cuda_graph.arguments import with_tensors
from torch_ops._cuda_graph.backend import Backend, Pool, Recording
from torch_ops._cuda_graph.preserve import Preserved, hooks_off
from torch_ops._cuda_graph.results import Results
from torch_ops._cuda_graph.step import BackwardMode, Step
from torch_ops._cuda_graph.tensors import clones

__all__ = ["Call", "Recorded"]

_TWICE = (
    "Trying to backward through the graph a second time: torch_ops.cuda_graph keeps what a backward pass needs until the first one."
    " Specify retain_graph=True if you need to backward through the graph a second time."
)
_MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: torch_ops.cuda_graph: {} has changed"
    " since the forward pass"
)
_version = attrgetter("_version")


def _versions(tensors: Sequence[Tensor]) -> list[int]:
    return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]


class Recorded:
    """A signature that was recorded in a pool.

    Args:
        step: The copies of the arguments.
        forward, backward: The recordings. ``backward`` is None where nothing has a derivative.
        results: What the forward pass returns, in memory of the pool.
        gradients: What the backward pass returns, in memory of the pool.
        given: The memory for the gradients of the outputs, None for those without one.
        mode: How the backward pass was recorded.
        written: Buffers that the forward pass writes to.
        versioned: Buffers that also get a new version.
        saved: Tensors of the module that the backward pass reads.
        is_random: Whether the forward pass draws random numbers.
        read: The written buffers that the forward pass may also read, so that computing it again needs their values from before.
        surprised: Whether a backward pass came that the recording can't do.
        seen_mode: How that backward pass was called, if a recording could do it.
    """

    def __init__(
        self,
        step: Step,
        pool: Pool,
        backend: Backend,
        forward: Recording,
        results: Results,
        outputs: Sequence[Tensor],
        is_random: bool,
    ) -> None:
        self.step, self.pool, self.backend = step, pool, backend
        self.forward, self.results = forward, copy.copy(results)
        self.outputs = [backend.borrowed(output) for output in outputs]
        self.differentiable = step.differentiable(results)
        self.results.outputs = []  # their memory belongs to the pool
        self.backward: Recording | None = None
        self.gradients: list[Tensor | None] = []
        self.given: list[Tensor | None] = []
        self.mode = BackwardMode()
        self.written: list[Tensor] = []
        self.versioned: list[Tensor] = []
        self.saved: list[Tensor] = []
        self.is_random = is_random
        self.read: list[Tensor] = []
        self.surprised = False
        self.seen_mode: BackwardMode | None = None

    def replay_forward(self) -> list[Tensor]:
        """New tensors with the results for the arguments that were loaded last."""
        if self.versioned:
            torch.autograd.graph.increment_version(self.versioned)
        self.forward.replay()
        return clones(self.outputs)

    def replay_backward(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """New tensors with the gradients for the forward pass that was replayed last."""
        assert self.backward is not None
        pairs = [(mine, g) for mine, g in zip(self.given, gradients) if mine is not None and g is not None]
        if len(pairs) == 1:
            pairs[0][0].copy_(pairs[0][1])
        elif pairs:
            torch._foreach_copy_([mine for mine, _ in pairs], [g for _, g in pairs])
        self.backward.replay()
        return _copies(self.gradients)

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Tensor]
    ) -> Any:
        """Computes a call by a replay."""
        self.step.load(tensors)
        self.step.structures.check(tensors)
        call = None
        if self.backward is None:
            with torch.no_grad():
                outputs = self.replay_forward()
        else:
            call = Call(self, function, args, kwargs, tensors)
            wanted = [tensors[number] for number in self.step.wanted_inputs]
            outputs = list(_Replay.apply(call, *wanted, *self.step.parameters))
        if call is not None:
            call.saved_version = sum(map(_version, self.saved))
        return self.results.assemble(outputs, tensors)


def _copies(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Copies of gradients. One kernel copies many tensors of a dtype."""
    groups: dict[torch.dtype, list[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor is not None:
            groups.setdefault(tensor.dtype, []).append(number)
    result: list[Tensor | None] = [None] * len(tensors)
    for dtype, numbers in groups.items():
        group: Any = [tensors[number] for number in numbers]
        # Times one keeps every bit, and is the operator that allocates and copies a whole list.
        many = len(group) > 2 and dtype.is_floating_point
        for number, made in zip(numbers, torch._foreach_mul(group, 1.0) if many else clones(group)):
            result[number] = made
    return result


class Call:
    """A forward pass that was replayed, until nobody can ask for its backward pass.

    Attributes:
        spent: Whether the backward pass has run, so that the pool may be used again.
    """

    def __init__(
        self,
        recorded: Recorded,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor],
    ) -> None:
        self.recorded, self.function, self.args, self.kwargs, self.tensors = recorded, function, args, kwargs, tensors
        self.spent = False
        self.saved_version = 0
        self._versions: list[int] | None = None
        self._random_state = recorded.backend.generator().get_state() if recorded.is_random else None
        self._buffers = clones([x.detach() for x in recorded.read])
        recorded.pool.wait_for(self)

    def note_versions(self) -> None:
        """Notes what the arguments and parameters are, for a backward pass that computes the forward pass again."""
        self._versions = _versions((*self.tensors, *self.recorded.step.parameters))

    def gradients(self, given: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The backward pass: a replay, or where that would be wrong, the derivative of an eager call."""
        recorded = self.recorded
        if self.spent:
            raise RuntimeError(_TWICE)
        mode = BackwardMode(tuple(g is not None for g in given), Autocast.key(recorded.backend.device_type))
        keeps = _autograd._get_current_graph_task_keep_graph()
        if not keeps and not torch.is_grad_enabled() and mode == recorded.mode:
            if sum(map(_version, recorded.saved)) != self.saved_version:
                raise RuntimeError(_MODIFIED.format("a parameter or a buffer"))
            self._spend()
            return recorded.replay_backward(given)
        recorded.seen_mode = None if keeps or torch.is_grad_enabled() else mode
        recorded.surprised = True
        found = self._computed_again(given, mode)
        if not keeps:
            self._spend()
        return found

    def _spend(self) -> None:
        self.spent = True
        self.args, self.kwargs, self.tensors = (), {}, ()

    def _computed_again(self, given: Sequence[Tensor | None], mode: BackwardMode) -> Sequence[Tensor | None]:
        """Gradients of an eager call on the same arguments, with derivatives of their own if they are wanted."""
        recorded, step, backend = self.recorded, self.recorded.step, self.recorded.backend
        if _versions((*self.tensors, *step.parameters)) != self._versions:
            raise RuntimeError(_MODIFIED.format("an argument or a parameter"))
        if not step.snapshot.matches():
            raise RuntimeError(_MODIFIED.format("an attribute of the module, or where its parameters are,"))
        creates = torch.is_grad_enabled()
        preserved = Preserved(step.snapshot.modules, recorded.written, backend)
        # Hooks of an argument run when autograd gets what this function returns.
        inputs = {id(x): x for x in self.tensors}
        try:
            with torch.enable_grad(), ambient.eager(), hooks_off(step.parameters):
                aliases = {key: x.view_as(x) if x.requires_grad else x for key, x in inputs.items()}
                args, kwargs = with_tensors((self.args, self.kwargs), lambda tensor: aliases[id(tensor)])
                for buffer, value in zip(recorded.read, self._buffers):
                    buffer.data.copy_(value)
                if self._random_state is not None:
                    backend.generator().set_state(self._random_state)
                with Autocast.restored(backend.device_type, step.autocast):
                    results = Results(
                        self.function(*args, **kwargs), [aliases[id(x)] for x in self.tensors], step.of_module
                    )
                wanted = [aliases[id(self.tensors[number])] for number in step.wanted_inputs] + step.parameters
                pairs = [(output, g) for output, g in zip(results.outputs, given) if g is not None]
                with Autocast.restored(backend.device_type, mode.autocast) if not creates else contextlib.nullcontext():
                    found = torch.autograd.grad(
                        [output for output, _ in pairs],
                        wanted,
                        [g for _, g in pairs],
                        create_graph=creates,
                        allow_unused=True,
                    )
        finally:
            preserved.restore()
        return found


class _Replay(torch.autograd.Function):
    """The node of a replayed call. Its inputs are the tensors with gradients: first the arguments, then the parameters."""

    @staticmethod
    def forward(ctx: Any, call: Call, *wanted: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.set_materialize_grads(False)
        call.note_versions()
        outputs = call.recorded.replay_forward()
        ctx.mark_non_differentiable(*(x for x, yes in zip(outputs, call.recorded.differentiable) if not yes))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, *ctx.call.gradients(given))
