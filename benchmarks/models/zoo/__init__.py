"""Real architectures with random weights, for ``python -m benchmarks models``. Each file holds one family and its list MODELS.

``Model.build(tiny)`` makes a :class:`Task` on the CPU in float32: the module, its inputs, and the loss of a training step. It draws
its random numbers after ``torch.manual_seed``, so the same call makes the same task. Dropout is off everywhere, so that two contenders
compute the same. With ``tiny`` a step takes milliseconds on the CPU.
"""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable

import torch
from torch import nn

FAMILIES = ("graphs", "embeddings", "state_space", "speech", "codecs", "vision", "attention")
EXTRA = "pip install 'gpuopt[models]'"
# The names of packages that are imported under another name.
PACKAGES = {"torch_geometric": "torch-geometric"}
DETERMINISTIC = "-deterministic"


def mean_square(output: torch.Tensor) -> torch.Tensor:
    """The loss of models whose own loss adds nothing to the comparison: its gradient reaches every output."""
    return output.square().mean()


@dataclasses.dataclass
class Task:
    """A module, the inputs of its forward, and ``loss(output, *targets)``, a tensor of no dimensions."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...] = ()
    loss: Callable[..., torch.Tensor] = mean_square

    def to(self, device: str, dtype: torch.dtype) -> "Task":
        """The same task with floating-point parameters, inputs and targets of this dtype. The module itself is moved."""

        def moved(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            return tuple(x.to(device, dtype if x.is_floating_point() else x.dtype) for x in tensors)

        return dataclasses.replace(
            self, module=self.module.to(device, dtype), inputs=moved(self.inputs), targets=moved(self.targets)
        )


@dataclasses.dataclass(frozen=True)
class Model:
    """An architecture and its sizes.

    Args:
        name: what the command line calls it.
        title: what tables call it.
        sizes: the sizes that are measured, in words.
        build: makes the task, tiny or of the sizes.
        package: the optional package that it comes from.
        signals: whether it convolves signals (N, C, L), so that their layouts are measured.
        deterministic: measure under ``torch.use_deterministic_algorithms(True)``, and compare two runs bit by bit.
        not_compiled: why ``torch.compile`` is not measured, in words.
    """

    name: str
    title: str
    sizes: str
    build: Callable[[bool], Task]
    package: str | None = None
    signals: bool = False
    deterministic: bool = False
    not_compiled: str = ""

    def missing(self) -> str | None:
        """A sentence if the package is not installed."""
        if self.package is None or importlib.util.find_spec(self.package):
            return None
        return f"{self.title} needs {PACKAGES.get(self.package, self.package)}, which {EXTRA} installs."

    def task(self, tiny: bool = False, seed: int = 0) -> Task:
        torch.manual_seed(seed)
        return self.build(tiny)


def deterministic(model: Model) -> Model:
    return dataclasses.replace(
        model, name=model.name + DETERMINISTIC, title=f"{model.title}, deterministic", deterministic=True
    )


def models() -> dict[str, Model]:
    """Every model of every family, by name. No optional package is imported."""
    found: list[Model] = []
    for family in FAMILIES:
        found += importlib.import_module(f"{__name__}.{family}").MODELS
    return {model.name: model for model in found}


class Part(nn.Module):
    """A model of transformers, whose output is one tensor of the named field."""

    def __init__(self, model: nn.Module, field: str = "last_hidden_state", **options):
        super().__init__()
        self.model, self.field, self.options = model, field, options

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(*inputs, **self.options)[self.field]
