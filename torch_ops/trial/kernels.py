"""The kernels of a step by families, from the events of torch.profiler. ``benchmarks/models`` uses them, too.

A kernel is classified by the operator that launched it, with the shapes of the operator's arguments, and by its own name where no
operator is known. Inductor's kernels carry the names of the operators that they fuse.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torch.autograd import DeviceType

__all__ = ["FAMILIES", "Kernel", "family", "kernels", "shares"]

FAMILIES = (
    "adding rows",
    "gathering",
    "broadcast mul",
    "depthwise conv",
    "dense conv",
    "matmul",
    "attention",
    "LSTM",
    "norm",
    "copies",
    "sums",
    "upsampling",
    "element-wise",
    "other",
)

# Operators without namespace and trailing underscore. The first pattern that matches the whole name decides.
OPERATORS = (
    (r"index_add|(_?)index_put(_impl)?|scatter_add|scatter_reduce|embedding(_dense)?_backward", "adding rows"),
    (r"index|index_select|gather|embedding|take", "gathering"),
    (r".*upsample.*", "upsampling"),
    (r".*attention.*", "attention"),
    (r".*(rnn|lstm).*", "LSTM"),
    (r".*(depthwise|causal_conv1d).*", "depthwise conv"),
    (r".*conv.*", "dense conv"),
    (r"mm|bmm|addmm|baddbmm|addbmm|_addmm_activation|linear|matmul|dot|vdot|mv|addmv", "matmul"),
    (r".*norm.*", "norm"),
    (r"copy|clone|cat|_to_copy|contiguous|transpose2d", "copies"),
    (r"sum|mean|amax|amin|reduce_\w+|prod|nansum", "sums"),
)
# Kernels whose operator decides nothing.
KERNELS = (
    (r"fprop|dgrad|wgrad|conv", "dense conv"),
    (r"flash|fmha|attention", "attention"),
    (r"rnn|lstm", "LSTM"),
    (r"gemm|cutlass|cublas|nvjet", "matmul"),
    (r"norm", "norm"),
    (r"memcpy|copy|CatArray", "copies"),
    (r"softmax|nll_loss", "other"),
    (r"reduce_kernel", "sums"),
    (r"elementwise", "element-wise"),
)
# Parts of the names of Inductor's kernels.
FUSED = (
    (r"upsample|unsafe_index", "upsampling"),  # Inductor writes upsampling as an index
    (r"index_put|index_add|scatter|embedding_dense_backward", "adding rows"),
    (r"embedding|index_select|gather|_index(_|$)", "gathering"),
    (r"_norm", "norm"),
    (r"^triton_(red|per)\w*_(sum|mean|amax|amin)", "sums"),
    (r"fused_(clone|cat|copy|_to_copy)(_\d+)?$", "copies"),
)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One run of a kernel: its name, the operator that launched it or "", the shapes of its arguments, and the time."""

    name: str
    operator: str
    shapes: tuple[tuple[int, ...], ...]
    us: float


def depthwise(operator: str, shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Whether a convolution has one input channel in each group, and several groups."""
    tensors = [shape for shape in shapes if len(shape) >= 3]
    if "backward" in operator and len(tensors) >= 3:
        tensors = tensors[1:]  # the first one is the gradient of the result
    return len(tensors) >= 2 and tensors[1][1] == 1 and tensors[0][1] > 1


def family(kernel: Kernel) -> str:
    operator = kernel.operator.rpartition("::")[2].rstrip("_")
    if kernel.name.startswith("triton_"):
        return next((name for pattern, name in FUSED if re.search(pattern, kernel.name)), "element-wise")
    if operator == "mul":
        shapes = [shape for shape in kernel.shapes if shape]
        return "broadcast mul" if len(shapes) > 1 and len(set(shapes[:2])) > 1 else "element-wise"
    for pattern, name in OPERATORS:
        if re.fullmatch(pattern, operator):
            return "depthwise conv" if name == "dense conv" and depthwise(operator, kernel.shapes) else name
    return next((name for pattern, name in KERNELS if re.search(pattern, kernel.name, re.IGNORECASE)), "other")


def kernels(events: Iterable[Any]) -> list[Kernel]:
    """The kernels among the profiler's raw events. A kernel is linked to the innermost operator that was running."""
    events = list(events)
    operators = {
        event.correlation_id(): event
        for event in events
        if event.device_type() == DeviceType.CPU and event.linked_correlation_id() == 0
    }
    found = []
    for event in events:
        # Annotations span the kernels that ran within them, so their time would count twice.
        if event.device_type() != DeviceType.CUDA or event.is_user_annotation():
            continue
        operator = operators.get(event.linked_correlation_id())
        shapes = tuple(tuple(shape) for shape in operator.shapes()) if operator else ()
        found.append(Kernel(event.name(), operator.name() if operator else "", shapes, event.duration_ns() / 1e3))
    return found


def shares(found: list[Kernel]) -> dict[str, float]:
    """The share of the time of each family that has one, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for kernel in found:
        sums[family(kernel)] += kernel.us
    total = sum(sums.values())
    return {name: us / total for name, us in sorted(sums.items(), key=lambda item: -item[1]) if us > 0}
