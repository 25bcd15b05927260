"""A call with arguments of its own, whose forward and backward pass can be run, recorded and compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ops._cuda_graph.ambient import Autocast
from torch_ops._cuda_graph.arguments import with_tensors
from torch_ops._cuda_graph.preserve import hooks_off
from torch_ops._cuda_graph.results import Results
from torch_ops._cuda_graph.snapshot import Snapshot
from torch_ops._cuda_graph.structures import Structures
from torch_ops._cuda_graph.tensors import dense, empty_like
from torch_ops._tracing import keeping

__all__ = ["BackwardMode", "Step"]


class BackwardMode(NamedTuple):
    """How a backward pass was called.

    Args:
        given: For each new tensor of the result, whether it got a gradient. None: all of them.
        autocast: The state of autocast, as :class:`Autocast` has it.
    """

    given: tuple[bool, ...] | None = None
    autocast: tuple[Any, ...] | None = None


class Step:
    """A call on copies of its arguments.

    Args:
        args, kwargs: The arguments.
        tensors: The distinct tensors in them.
        snapshot: The state of the module.
        device_type: The device whose autocast counts.
        constants: The numbers of the tensors that are the same in each call.
    """

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: Sequence[Tensor],
        snapshot: Snapshot,
        device_type: str,
        constants: Collection[int],
    ) -> None:
        self.snapshot, self.device_type = snapshot, device_type
        self.differentiates = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        self.autocast = Autocast.key(device_type)
        self.inputs: list[Tensor] = []
        # Tensors made in inference mode would not tell who writes to them.
        with torch.inference_mode(False), torch.no_grad():
            for tensor in tensors:
                copy = empty_like(tensor).detach()
                self.inputs.append(copy.requires_grad_(tensor.requires_grad and self.differentiates))
            targets = [dense(copy.detach()) for copy in self.inputs]
        copies = {id(tensor): copy for tensor, copy in zip(tensors, self.inputs)}
        self.args, self.kwargs = with_tensors((args, kwargs), lambda tensor: copies[id(tensor)])
        self.wanted_inputs = [number for number, x in enumerate(self.inputs) if x.requires_grad]
        self.parameters = [x for x in snapshot.tensors if x.requires_grad and x.is_leaf] if self.differentiates else []
        # Autograd keeps one accumulating node for each parameter, with the stream that made it. A recording must not wait for another
        # stream, so it computes with stand-ins that share the memory and have no such node.
        self._stand_ins = [_stand_in(x) for x in self.parameters]
        self._by_parameter = {id(x): y for x, y in zip(self.parameters, self._stand_ins)}
        self.of_module = {id(x): x for x in snapshot.tensors} | {
            id(y): x for x, y in zip(self.parameters, self._stand_ins)
        }
        self.structures = Structures(self.inputs, snapshot.tensors)
        self._load(targets, tensors)
        self._numbers = [number for number in range(len(tensors)) if number not in constants]
        self._targets = [targets[number] for number in self._numbers]

    def load(self, tensors: Sequence[Tensor]) -> None:
        """Copies the values of arguments, without the ones that are always the same."""
        if self._targets:
            self._load(self._targets, [tensors[number] for number in self._numbers])

    def _load(self, targets: list[Tensor], tensors: Sequence[Tensor]) -> None:
        with torch.no_grad():
            sources = [x if x.shape == target.shape else dense(x) for target, x in zip(targets, tensors)]
            if len(sources) == 1:
                targets[0].copy_(sources[0])
            elif sources:
                torch._foreach_copy_(targets, sources)

    def forward(self, function: Callable[..., Any], stands_in: bool = False) -> Results:
        """Runs the forward pass, with the parameters or with their stand-ins."""
        with keeping(self.structures), Autocast.restored(self.device_type, self.autocast):
            with self.snapshot.with_stand_ins(self._by_parameter if stands_in else {}):
                return Results(function(*self.args, **self.kwargs), self.inputs, self.of_module)

    def differentiable(self, results: Results) -> list[bool]:
        """For each new tensor of the result, whether it has a derivative."""
        return [output.requires_grad for output in results.outputs]

    def backward(
        self,
        results: Results,
        gradients: Sequence[Tensor | None],
        autocast: tuple[Any, ...] | None,
        stands_in: bool = False,
    ) -> list[Tensor | None]:
        """Gradients of the inputs and parameters that want one. ``gradients`` has None where an output got none."""
        wanted = [self.inputs[number] for number in self.wanted_inputs]
        wanted += self._stand_ins if stands_in else self.parameters
        pairs = [(output, g) for output, g in zip(results.outputs, gradients) if g is not None]
        with Autocast.restored(self.device_type, autocast), hooks_off(self.parameters):
            found = torch.autograd.grad(
                [output for output, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True
            )
        return list(found)


def _stand_in(parameter: Tensor) -> Tensor:
    other = torch.nn.Parameter(parameter.detach(), requires_grad=True)
    vars(other).update(vars(parameter))
    return other
