"""Exports a model with gpuopt's operators as an AOTInductor package for the CPU: python -m examples.cpp.aoti model.pt2

The package runs without Python (package.cpp). For a GPU, move the model and the example to it, and compile on a machine of that kind.
"""

from __future__ import annotations

import sys

import torch

import torch_ops


class Model(torch.nn.Module):
    """A depthwise convolution with its activation, scaled, and averaged over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 8 * 4).view(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch_ops.causal_conv1d(x, self.weight, activation="silu")
        return torch_ops.reduce_mean(y * 2, -1)


def main(path: str) -> None:
    x = torch.linspace(-1, 1, 2 * 8 * 32).view(2, 8, 32)
    model = Model().eval()
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        torch._inductor.aoti_compile_and_package(program, package_path=path)
        print(f"{model(x).sum().item():.5f}")


if __name__ == "__main__":
    main(sys.argv[1])
