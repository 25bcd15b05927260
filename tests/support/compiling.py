"""What tests of torch_ops.override share that compile functions."""

from __future__ import annotations

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table

import torch_ops  # noqa: F401

INDEX_ADD = torch.ops.gpuopt.index_add.default


def passes() -> list:
    """The passes in Inductor's configuration. Newer versions of PyTorch accept a list."""
    found = config.post_grad_custom_post_pass
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]


class Graphs:
    """A backend that traces as Inductor does, applies Inductor's custom pass, and runs the graphs without generating code.

    ``graphs`` lists the forward and backward graphs in the order in which they were compiled.
    """

    def __init__(self) -> None:
        self.graphs: list[torch.fx.Graph] = []
        self._backend = aot_autograd(
            fw_compiler=self._compile, bw_compiler=self._compile, decompositions=select_decomp_table
        )

    def __call__(self, module, inputs):
        return self._backend(module, inputs)

    def _compile(self, module, inputs):
        for custom_pass in passes():
            custom_pass(module.graph)
        module.graph.lint()
        module.recompile()
        self.graphs.append(module.graph)

        def run(arguments):
            return module(*arguments)

        run._boxed_call = True
        return run

    def calls(self, target=INDEX_ADD) -> list[torch.fx.Node]:
        """The nodes that call ``target``, in all graphs."""
        return [node for graph in self.graphs for node in graph.nodes if node.target is target]

    def modes(self) -> list[str]:
        """The mode of every index_add of gpuopt."""
        return [node.kwargs["mode"] for node in self.calls()]


def gradients_of(function, operands):
    """The result, and the gradients of the operands for a gradient of small integers."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in operands]
    result = function(*leaves)
    differentiable = [t for t in leaves if t.requires_grad]
    gradient = torch.arange(result.numel(), device=result.device).remainder(5).reshape(result.shape).to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, differentiable, gradient)]
