"""Measures recorded calls on this GPU: PyTorch's kernel, the override's, and a copy of as many bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torch_ops._cuda_graph.tensors import dense
from torch_ops._override import override, override_report
from torch_ops.trial.device import Device
from torch_ops.trial.function import calls_since
from torch_ops.trial.text import number, table

__all__ = ["Replay", "Row", "replay"]

_COPIED_BYTES = 1 << 29


@dataclass(frozen=True)
class Row:
    """A recorded call, measured.

    Args:
        operator: The name of the operator in ``torch_ops.override.operators``.
        problem: The shapes and dtypes of its tensors.
        count: How often it was called.
        pytorch_us, override_us: Microseconds on the GPU, or None if the call failed.
        limit_us: The time that a copy of the same bytes takes: every tensor is read or written once.
        outcome: ``"taken"``, the reason why it was declined, or an error.
    """

    operator: str
    problem: str
    count: int
    pytorch_us: float | None
    override_us: float | None
    limit_us: float | None
    outcome: str


@dataclass(frozen=True)
class Replay:
    """All recorded calls on a GPU, the largest total time first."""

    device: str
    rows: list[Row]
    left_out: int

    def __str__(self) -> str:
        rows = [["operator", "calls", "PyTorch, us", "override, us", "limit, us", "ratio", "outcome", "tensors"]]
        for row in self.rows:
            ratio = row.pytorch_us / row.override_us if row.pytorch_us and row.override_us else None
            times = map(number, (row.pytorch_us, row.override_us, row.limit_us, ratio))
            rows.append([row.operator, str(row.count), *times, row.outcome, row.problem])
        lines = [f"{self.device}; microseconds of one call, with cold caches", *table(rows, texts=(0, 6, 7))]
        if self.left_out:
            lines.append(f"{self.left_out} calls were not recorded: their arguments can't be made again.")
        return "\n".join(lines)


def replay(record: dict[str, Any], used: override, device: Device, tell: Callable[[str], None]) -> Replay:
    """Makes the tensors of each call of a record anew, with random values, and measures it.

    Integers are drawn evenly from their recorded range, so an index has no row that is named more often than others.
    """
    generator = torch.Generator(device.kind()).manual_seed(0)
    bytes_per_us = _bytes_per_us(device)
    rows = []
    for number_of_call, call in enumerate(record["calls"]):
        tell(f"call {number_of_call + 1} of {len(record['calls'])}")
        rows.append(_measured(call, used, device, generator, bytes_per_us))
    tell("")
    rows.sort(key=lambda row: -row.count * (row.pytorch_us or 0.0))
    return Replay(device.name(), rows, record["left_out"])


def _bytes_per_us(device: Device) -> float:
    """What a copy reads and writes."""
    source = torch.empty(_COPIED_BYTES, dtype=torch.uint8, device=device.kind())
    target = torch.empty_like(source)
    return 2 * _COPIED_BYTES / device.microseconds(lambda: target.copy_(source))


def _measured(
    call: dict[str, Any], used: override, device: Device, generator: torch.Generator, bytes_per_us: float
) -> Row:
    problem = ", ".join(_problem(call["args"]))
    try:
        operator = getattr(getattr(torch.ops.aten, call["call"][0]), call["call"][1])
        args, kwargs = (_made(call[part], device.kind(), generator) for part in ("args", "kwargs"))
        result = operator(*args, **kwargs)
        tensors = {id(x): x for x in pytree.tree_leaves((args, kwargs, result)) if isinstance(x, Tensor)}
        limit = sum(dense(x).numel() * x.element_size() for x in tensors.values()) / bytes_per_us
        del result, tensors
        before = device.microseconds(lambda: operator(*args, **kwargs))
        with used:
            counts = override_report().calls
            operator(*args, **kwargs)
            outcome = next(iter(calls_since(counts).get(call["operator"], {})), "not replaced")
            after = device.microseconds(lambda: operator(*args, **kwargs))
    except (RuntimeError, AttributeError) as error:
        return Row(
            call["operator"], problem, call["count"], None, None, None, f"failed: {str(error).splitlines()[0][:80]}"
        )
    return Row(call["operator"], problem, call["count"], before, after, limit, outcome)


def _problem(value: Any) -> list[str]:
    """The tensors of arguments, as (shape) dtype."""
    if isinstance(value, list):
        return [text for x in value for text in _problem(x)]
    if isinstance(value, dict) and "shape" in value:
        return [f"({', '.join(map(str, value['shape']))}) {value['dtype']}"]
    return []


def _made(value: Any, kind: str, generator: torch.Generator) -> Any:
    """A recorded value."""
    if isinstance(value, list):
        return [_made(x, kind, generator) for x in value]
    if not isinstance(value, dict):
        return value
    if "torch" in value:
        return getattr(torch, value["torch"])
    if "device" in value:
        return torch.device("cpu" if value["device"] == "cpu" else kind)
    if "shape" in value:
        tensor = _tensor(value, kind, generator)
        return tensor.cpu() if value["on_host"] else tensor
    return {key: _made(x, kind, generator) for key, x in value.items()}


def _tensor(value: dict[str, Any], kind: str, generator: torch.Generator) -> Tensor:
    shape, stride, dtype = value["shape"], value["stride"], getattr(torch, value["dtype"])
    tensor = torch.empty_strided(shape, stride, dtype=dtype, device=kind)
    part = dense(tensor)
    if "range" in value:
        low, high = value["range"]
        numbers = torch.randint(low, high + 1, part.shape, dtype=torch.int64, device=kind, generator=generator)
        if value["sorted"]:
            numbers = numbers.sort().values
            numbers[0], numbers[-1] = low, high
        part.copy_(numbers)
    elif dtype is torch.bool:
        part.random_(0, 2, generator=generator)
    elif part.numel():
        part.normal_(generator=generator)
    return tensor
