"""Checks a kernel: values, memory, repeats and views."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_ops.ladder.problems import Problem
from torch_ops.ladder.source import Crashed, Kernel
from torch_ops.ladder.zones import VIEWS, Zone, bits, viewed

__all__ = ["Tell", "check", "difference", "differs", "fault_of"]

Tell = Callable[..., None]

_REPEATS = 3
_CHUNK = 1 << 24  # values that are compared at once
_HOLD_CYCLES = 20_000_000  # about 10 ms
_WRONG = "wrong values"


class _Wrong(Exception):
    """A fault of a kernel. ``kind`` is its name."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def difference(found: Tensor, expected: Tensor, tolerance: tuple[float, float]) -> str | None:
    """Says at which index a result is wrong first, and how many values are."""
    relative, absolute = tolerance
    count, first = 0, 0
    flat, wanted = found.reshape(-1), expected.reshape(-1)
    for begin in range(0, flat.numel(), _CHUNK):
        x, y = flat[begin : begin + _CHUNK].double(), wanted[begin : begin + _CHUNK].double()
        near = (x - y).abs() <= absolute + relative * y.abs()
        wrong = ~(near | (x == y) | (x.isnan() & y.isnan()))
        if not count and (number := int(wrong.sum())):
            first, count = begin + int(wrong.nonzero()[0]), number
        elif count:
            count += int(wrong.sum())
    if not count:
        return None
    index = [int(i) for i in torch.unravel_index(torch.tensor(first), expected.shape)] if expected.dim() else []
    x, y = flat[first].item(), wanted[first].item()
    text = f"{count} of {flat.numel()} values are wrong, the first at index {index}: expected {y:.7g}, got {x:.7g}"
    poison = x != x if found.is_floating_point() else x == -1
    return f"{text}. It was not written, or comes from memory that is not an operand's" if poison else text


def check(problem: Problem, kernel: Kernel, device: str, may_vary: bool, tell: Tell) -> None:
    """Calls a kernel on small problems in all views, and tells of every fault.

    Args:
        problem, kernel: What is checked, and on what.
        device: ``"cuda"`` or ``"cpu"``.
        may_vary: Whether the ladder has steps whose results differ between runs.
        tell: Gets the name of an event and its values.
    """
    cases = [(size, "contiguous") for size in problem.sizes if size != "measured"]
    cases += [("small", view) for view in VIEWS if view != "contiguous"]
    if kernel.is_native:  # it gets contiguous copies of other views
        cases = [(size, view) for size, view in cases if view in ("contiguous", "misaligned")]
    cases = [(size, view) for size, view in cases if problem.expands or view != "expanded"]
    right: list[str] = []
    declined = ""
    for size, view in cases:
        name = size if view == "contiguous" else view
        tell("stage", name=f"the check of {name} operands")
        try:
            if _check_view(problem, kernel, device, size, view, may_vary, tell):
                right.append(name)
        except NotImplementedError as error:
            declined = _line_of(error)
            tell("declined", view=name, text=declined)
        except _Wrong as fault:
            tell("fault", kind=fault.kind, view=name, text=str(fault))
            if fault.kind != _WRONG:
                return
        except Exception as error:
            fault = fault_of(error)
            tell("fault", view=name, **fault)
            if fault["kind"] == "crash":
                return
    # The check of streams has the same operands as this view. Where their values are wrong, no stream is to blame.
    if device == "cuda" and "small" in right:
        tell("stage", name="the check of streams")
        try:
            _check_stream(problem, kernel, tell)
        except Exception as error:
            tell("fault", view="small", **fault_of(error))
    if declined and not right:
        tell("fault", kind="error", view="", text=f"it declines all operands: {declined}")
    tell("checked", views=len(right))


def fault_of(error: Exception) -> dict[str, str]:
    """The kind and the text of a fault. After a crash, the process can't use the GPU any more."""
    text = str(error)
    crashed = isinstance(error, Crashed) or ("CUDA error" in text and not text.startswith("the kernel returns"))
    return {"kind": "crash" if crashed else "error", "text": f"{type(error).__name__}: {_line_of(error)}"}


def _line_of(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _check_view(
    problem: Problem, kernel: Kernel, device: str, size: str, view: str, may_vary: bool, tell: Tell
) -> bool:
    """Whether the view changes the operands. Raises what is wrong with the kernel."""
    values = problem.operands(device, size, seed=1)
    zones = viewed(view, values, problem.writes)
    if zones is None:
        return False
    operands = tuple(x.tensor if isinstance(x, Zone) else x for x in zones)
    guards = [x for x in zones if isinstance(x, Zone)]

    def run(values: tuple[Any, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Results, and the expected ones."""
        for zone, value in zip(zones, values):
            if isinstance(zone, Zone):
                zone.fill(value)
        expected = problem.expected(operands)
        before = [x.clone() if isinstance(x, Tensor) else x for x in operands]
        made: list[Zone] = []
        results = kernel.call(operands, expected, made)
        if device == "cuda":
            torch.cuda.synchronize()
        _check_kind(problem, results, expected, operands)
        _check_memory(problem, operands, before, [*guards, *made])
        return tuple(x.clone() for x in results), expected

    first, expected = run(values)
    runs = [first] + [run(values)[0] for _ in range(_REPEATS - 1)]
    varies = any(not torch.equal(bits(x), bits(y)) for again in runs[1:] for x, y in zip(again, first))
    wrong = [text for found in runs if (text := differs(problem, found, expected))]
    if wrong and varies:
        raise _Wrong("race", f"{_REPEATS} runs on the same operands give different results. {wrong[0]}")
    if wrong:
        raise _Wrong(_WRONG, wrong[0])
    if varies and not may_vary:
        raise _Wrong(
            "race", f"{_REPEATS} runs on the same operands differ in their rounding. No step of this ladder does"
        )
    if varies:
        tell("note", text="Results vary between runs in their rounding, as in the steps with atomic additions.")
    again, expected = run(problem.operands(device, size, seed=2)[: len(values)])
    if text := differs(problem, again, expected):
        same = all(torch.equal(bits(x), bits(y)) for x, y in zip(again, first))
        kind = "cached results" if same and expected[0].numel() else _WRONG
        reason = "a second call with other data at the same addresses gives the results of the first. " if same else ""
        raise _Wrong(kind, reason + text)
    return True


def differs(problem: Problem, found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str | None:
    """Says which result is wrong, and where."""
    for number, (x, y, tolerance) in enumerate(zip(found, expected, problem.tolerances)):
        if text := difference(x, y, tolerance):
            return text if len(found) == 1 else f"result {number}: {text}"
    return None


def _check_kind(problem: Problem, results: tuple[Any, ...], expected: tuple[Tensor, ...], operands: Any) -> None:
    """Raises if results have another number, type, device, dtype or shape than they should."""
    device = next(x.device for x in operands if isinstance(x, Tensor))
    if len(results) != len(expected):
        raise _Wrong("wrong type", f"expected {len(expected)} results, got {len(results)}")
    for x, y, dtype in zip(results, expected, problem.dtypes):
        if not isinstance(x, Tensor):
            raise _Wrong("wrong type", f"expected a tensor, got {type(x).__name__}")
        for kind, found, wanted in (
            ("wrong device", x.device, device), ("wrong dtype", x.dtype, dtype), ("wrong shape", tuple(x.shape), tuple(y.shape)),
        ):  # fmt: skip
            if found != wanted:
                raise _Wrong(kind, f"expected {wanted}, got {found}")


def _check_memory(problem: Problem, operands: tuple[Any, ...], before: list[Any], zones: list[Zone]) -> None:
    """Raises if a kernel wrote where it may not."""
    for zone in zones:
        if text := zone.overrun():
            raise _Wrong("out of bounds", text)
    for number, (x, y) in enumerate(zip(operands, before)):
        if isinstance(x, Tensor) and not (problem.writes and number == 0) and not torch.equal(bits(x), bits(y)):
            index = [int(i) for i in (bits(x) != bits(y)).nonzero()[0]]
            raise _Wrong("changed inputs", f"operand {number} was changed, first at index {index}")


def _check_stream(problem: Problem, kernel: Kernel, tell: Tell) -> None:
    """A call has to follow the work of PyTorch's current stream: here a wait, and then a copy of the operands."""
    stale, fresh = (problem.operands("cuda", "small", seed) for seed in (1, 2))
    held = tuple(x.clone() if isinstance(x, Tensor) else x for x in stale)
    expected = problem.expected(fresh)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), contextlib.suppress(NotImplementedError):
        torch.cuda._sleep(_HOLD_CYCLES)
        for x, y in zip(held, fresh):
            if isinstance(x, Tensor):
                x.copy_(y)
        results = kernel.call(held, expected, None)
        stream.synchronize()
        if text := differs(problem, results, expected):
            tell(
                "fault", kind="wrong stream", view="", text=f"its work does not follow PyTorch's current stream. {text}"
            )
