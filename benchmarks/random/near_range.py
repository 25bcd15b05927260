"""Random calls on half types whose values lie near the end of the range. What float64 has as a finite result must be finite.

    python -m benchmarks fuzz range --calls 5000 --processes 8     so many calls of every family
    python -m benchmarks fuzz range "aten mean" scatter_std --minutes 2
    python -m benchmarks fuzz range scatter_std --seed 17 --calls 1     one call again, as a failure prints it

Operands are float16 up to 60000, or bfloat16 up to 2^56, each with a magnitude of its computed. There are three kinds of families:

- "aten mul" and so on: ATen's operators under torch_ops.override (benchmarks/random/calls.py), half of them with gradients;
- the families of `python -m benchmarks fuzz`: operators by name (benchmarks/random/problems.py);
- means, deviations, logarithms and softmax of groups, of torch_ops and of torch_ops.compat.torch_scatter.

The only fault is an infinity or a NaN where the float64 result is at most 0.98 of the largest number of the dtype. ATen's result does not
count. Atomic additions round every partial sum, in any order. They are compared with float64 sums of absolute values, which bound
every partial sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch

import torch_ops
from benchmarks.harness.operands import BF16, F16
from benchmarks.harness.traffic import results
from benchmarks.random import calls, fuzz, problems
from benchmarks.random.override import ABSOLUTE, PLAIN, WIDE, passed_on, replaced
from benchmarks.random.processes import Mode
from benchmarks.random.runs import Gradient, Run
from benchmarks.random.views import Draw, near_range
from benchmarks.rooms import rooms
from torch_ops.compat import torch_scatter

SHARE = 0.98  # of the largest number. Results above may round to infinity.
# Families with products of more than two operands, and with exponentials, have one large operand. Others leave float32's range.
SINGLE = (
    *("linear_recurrence", "selective_scan", "selective_scan backward"),
    *("graph_attention", "graph_attention step", "gat_attention"),
)


class HalfDraw(Draw):
    """Calls of ATen's operators, without any that ATen refuses."""

    floating, kinds = (F16, F16, F16, BF16), ("range",)

    def __init__(self, seed: str, device: str):
        super().__init__(seed, device)
        self.spoiled = -1


class HalfProblem(fuzz.SmallDraw):
    dtypes = (F16, F16, BF16)


# The text of a call, a function of the computed results, or None where gpuopt computes none, and a function of the float64 results.
Drawn = tuple[str, Callable[[], tuple | None], Callable[[], tuple]]


def of_aten(family: str, seed: int, device: str) -> Drawn:
    """A call of ATen's operators. Their gradient for nearest pixels may be another one than gpuopt's."""
    torch.manual_seed(seed)
    d = HalfDraw(f"{family} {seed}", device)
    call = calls.FAMILIES[family](d)
    needs_grad, gradient = call.differentiable and not call.other_gradient and d.chance(0.5), Gradient(d)

    def run(mode: calls.Arithmetic) -> Run:
        return Run(call, call.function, mode, needs_grad, gradient.of(mode))

    def computed() -> tuple | None:
        with replaced(device):
            before = passed_on()
            found = run(PLAIN)
            after = passed_on()
        is_ours = after[0] > before[0] and after[1] == before[1] and not (call.other_gradient and call.is_gradient)
        return found.outputs if is_ours and found.error is None else None

    return str(call), computed, lambda: run(WIDE if call.repeatable else ABSOLUTE).outputs


@functools.cache
def _room_calls(room: str) -> dict:
    return rooms()[room].calls()


def _is_half(a: object) -> bool:
    return isinstance(a, torch.Tensor) and a.dtype in (F16, BF16)


def by_name(family: str, seed: int, device: str) -> Drawn:
    """A call of an operator. Operands of half types are scaled, so that their largest value is the magnitude."""
    torch.manual_seed(seed)
    room, case = fuzz.draw(family, seed, HalfProblem)
    call, args, d = _room_calls(room)[case.call], case.build(device, 0), HalfDraw(f"{family} {seed}", device)
    scaled = [a for a in args if _is_half(a) and fuzz.has_addresses(a) and a.numel()]
    if family in SINGLE and scaled:
        scaled = scaled[-1:] if family == "linear_recurrence" else [d.choice(scaled)]
    for a in scaled:
        if d.chance(0.8):
            factor = near_range((), a.dtype, device).abs().double() / a.abs().max().clamp(min=1e-3)
            a.copy_((a.abs() if d.chance(0.5) else a).double() * factor)

    def wide() -> tuple:
        given = tuple(a.abs() if family in fuzz.ATOMIC and _is_half(a) else a for a in args)
        return results(call.reference(*fuzz.same_storage(given, device)))

    def computed() -> tuple | None:
        is_wrong = device == "cpu" and (family, case.dtype) in fuzz.WRONG_ON_CPU
        return None if is_wrong else results(call.ours(*fuzz.same_storage(args, device)))

    return case.title, computed, wide


GROUPS: dict[str, Callable] = {
    **{name: getattr(torch_scatter, name) for name in ("scatter_mean", "scatter_std", "scatter_logsumexp")},
    "scatter_log_softmax": torch_scatter.scatter_log_softmax,
    "scatter mean": functools.partial(torch_ops.scatter, reduce="mean"),
    "segment_csr mean": functools.partial(torch_scatter.segment_csr, reduce="mean"),
    "segment_reduce mean": functools.partial(torch_ops.segment_reduce, reduce="mean"),
    "segment_softmax": torch_ops.segment_softmax,
}


def of_groups(family: str, seed: int, device: str) -> Drawn:
    """A function of an index of groups, or of the positions where groups begin."""
    torch.manual_seed(seed)
    d = HalfDraw(f"{family} {seed}", device)
    entries, groups, dtype = d.size(1, 4096), d.size(1, 64), d.choice(d.floating)
    x = near_range((entries, d.size(1, 16)), dtype, device)
    index = torch.randint(groups, (entries,), device=device)
    if family.startswith("segment"):
        where, more = torch.cat([index.new_zeros(1), index.bincount(minlength=groups).cumsum(0)]), {}
    else:
        where, more = index, {"dim": 0, "dim_size": groups}

    def of(x: torch.Tensor) -> tuple:
        return (GROUPS[family](x, where, **more),)

    return f"{family} of {tuple(x.shape)} {dtype} in {groups} groups", lambda: of(x), lambda: of(x.double())


def draw(family: str, seed: int, device: str) -> Drawn:
    if family in GROUPS:
        return of_groups(family, seed, device)
    is_aten, name = family.startswith("aten "), family.removeprefix("aten ")
    return (of_aten if is_aten else by_name)(name, seed, device)


def faults(form: str, computed: Callable[[], tuple | None], wide: Callable[[], tuple]) -> Iterator[str]:
    """Results that are not finite, and should be."""
    found = computed()
    for k, (out, want) in enumerate(zip(found, wide(), strict=True) if found is not None else ()):
        if out is not None and out.is_floating_point():
            wrong = ~out.isfinite() & (want.double().abs() <= SHARE * torch.finfo(out.dtype).max)
            if wrong.any():
                yield f"result {k} has {out[wrong][0].item()}, float64 has {want[wrong][0].item():.6g}"


MODE = Mode("range", (*(f"aten {name}" for name in calls.FAMILIES), *problems.FAMILIES, *GROUPS), draw, faults)


def main(argv: list[str]) -> int:
    return MODE.main(__doc__, argv)
