"""Compares random calls of every operator with float64 and with ATen, until the time is over.

    python -m benchmarks fuzz --minutes 10             every family of random problems, on the GPU if there is one
    python -m benchmarks fuzz mul --calls 1000         a number of calls of one family
    python -m benchmarks fuzz mul --seed 17 --calls 1  one call again, as a failure prints it
    python -m benchmarks fuzz override --calls 1000    ATen's operators under torch_ops.override, see benchmarks/random/override.py
    python -m benchmarks fuzz range --calls 1000       half types near the end of their range, see benchmarks/random/near_range.py
    python -m benchmarks fuzz pointers --calls 1000    row pointers that nobody checked, see benchmarks/random/pointers.py

Each call of a family of random problems is checked five times. Values must be within a limit of a float64 result. Size, strides and dtype must be ATen's, and the
Meta kernel must predict them. Convolutions of channels-last signals have results with channels last, which ATen's do not. With poison around every operand, values must stay within the limit, and the poison unchanged. A second
call must give the same bits, unless the operator adds atomically.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import time
from collections.abc import Iterable, Iterator

import torch

from benchmarks.harness import command
from benchmarks.harness.operands import BF16, F16, F32
from benchmarks.harness.room import relative_error
from benchmarks.harness.traffic import results
from benchmarks.random import problems
from benchmarks.random.views import GUARD, View
from benchmarks.rooms import rooms

MODES = {"override": "override", "range": "near_range", "pointers": "pointers"}  # modules with another main()
ATOMIC = ("index_add",)  # families whose additions have no order
# oneDNN's weight gradients in bfloat16 read and write memory that is not theirs (torch 2.11, a CPU with AVX512-BF16).
WRONG_ON_CPU = [("conv1d backward", "bf16"), ("causal_conv1d backward", "bf16")]
KEEP_LAYOUT = ("conv1d", "conv1d backward", "causal_conv1d backward", "causal_conv1d, silu")
OTHER_LAYOUT = (*KEEP_LAYOUT, *problems.GRAPHS)  # families whose strides are not ATen's


class SmallDraw(problems.Draw):
    """Problems that a kernel finishes in microseconds, in every floating-point dtype."""

    smallest, largest = 32, 1 << 20
    dtypes = (F32, BF16, F16, torch.float64)


def has_addresses(a: object) -> bool:
    """Whether it is a tensor that can be written: no two elements share an address."""
    return isinstance(a, torch.Tensor) and all(s != 0 for n, s in zip(a.shape, a.stride()) if n > 1)


def same_storage(args: tuple, device: str) -> tuple:
    """Copies with the same strides, without tensors that share memory with the originals."""
    return tuple(
        torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=device).copy_(a) if has_addresses(a) else a
        for a in args
    )


def between_poison(a: torch.Tensor, shift: int) -> View:
    """A copy of the tensor between poison, so many elements from an aligned address."""
    view = View(tuple(a.shape), a.stride(), GUARD // a.itemsize + shift, a.dtype, conj=False, is_index=False)
    view.fill(str(a.device), "integer", 0, 1)
    view.tensor(view.buffer).copy_(a)
    return view


def metadata(tensors: tuple[torch.Tensor, ...]) -> list[tuple]:
    """Strides of dimensions of size 1, and of empty tensors, tell nothing."""
    return [
        (tuple(t.shape), tuple(s for n, s in zip(t.shape, t.stride()) if n > 1) if t.numel() else (), t.dtype)
        for t in tensors
    ]


def on_meta(args: tuple) -> tuple:
    return tuple(
        torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta") if isinstance(a, torch.Tensor) else a
        for a in args
    )


def limit_of(call, dtype: torch.dtype, aten_error: float | None, device: str) -> float:
    """The room's limit, which is 0 for exact operators. On the CPU ATen computes, in an order that depends on alignment."""
    limit = (call.gpuopt_limit or call.limit)(dtype, aten_error)
    return (16 if device == "cpu" else 1) * max(limit, 4 * (aten_error or 0.0)) if limit else 0.0


def faults(family: str, call, case, device: str) -> Iterator[str]:
    """What is wrong with one call."""
    inplace = call.kind == "inplace"
    args = case.build(device, 0)
    wanted = results(call.reference(*same_storage(args, device)))
    theirs = results(call.aten(*same_storage(args, device)))
    aten_error = max(relative_error(out, want) for out, want in zip(theirs, wanted, strict=True))
    if device == "cpu" and not aten_error <= max(limit_of(call, out.dtype, None, device) for out in theirs):
        return  # ATen's kernel, which is called here, is wrong itself
    ours = results(call.ours(*same_storage(args, device)))

    def wrong(found: tuple[torch.Tensor, ...], operands: tuple) -> str | None:
        for i, (out, want) in enumerate(zip(found, wanted, strict=True)):
            error, limit = relative_error(out, want), limit_of(call, out.dtype, aten_error, device)
            if not error <= limit:
                if relative_error(results(call.aten(*same_storage(operands, device)))[i], want) == error:
                    continue  # the result is ATen's: cuDNN may be wrong for one alignment, or at one call of many
                return f"error {error:.2e}, limit {limit:.2e}, ATen's {aten_error:.2e}"
        return None

    if fault := wrong(ours, args):
        yield f"values: {fault}"
    ours_and_theirs = metadata(ours), metadata(theirs)
    if family in OTHER_LAYOUT:
        ours_and_theirs = tuple([(shape, dtype) for shape, _, dtype in found] for found in ours_and_theirs)
    if ours_and_theirs[0] != ours_and_theirs[1]:
        yield f"metadata: {metadata(ours)}, ATen's {metadata(theirs)}"
    predicted = results(call.ours(*on_meta(args)))
    if metadata(predicted) != metadata(ours):
        yield f"Meta kernel: {metadata(predicted)}, the real one {metadata(ours)}"
    if family not in ATOMIC:
        again = results(call.ours(*same_storage(args, device)))
        if not all(torch.equal(a, b) for a, b in zip(ours, again)):
            yield "a second call gives other bits"
    guards = [between_poison(a, i + 1) if has_addresses(a) else None for i, a in enumerate(args)]
    before = [view and view.buffer.clone() for view in guards]
    guarded = tuple(view.tensor(view.buffer) if view else a for view, a in zip(guards, args))
    found = results(call.ours(*guarded))
    if fault := wrong(found, args):
        yield f"values between poison: {fault}"
    for i, (view, expected) in enumerate(zip(guards, before)):
        if view and inplace and i == 0:
            view.tensor(expected).copy_(found[0].clone())
        if view and not torch.equal(view.buffer, expected):
            yield f"operand {i}, or memory around it, has changed"


def draw(family: str, seed: int, of: type[problems.Draw] = SmallDraw):
    """The room and the case of a seed."""
    problem = problems.FAMILIES[family](of(f"{family} {seed}"))
    return problem.room, problem.case(family, inductor=False)


def run(families: list[str], seeds: Iterator[int], device: str, seconds: float) -> tuple[int, list[str]]:
    """The number of calls, and what was wrong with some of them."""
    calls = {name: room.calls() for name, room in rooms().items()}
    count, found, ends = 0, [], time.monotonic() + seconds
    for seed in seeds:
        for family in families:
            room, case = draw(family, seed)
            if device == "cpu" and (family, case.dtype) in WRONG_ON_CPU:
                continue
            try:
                wrong = list(faults(family, calls[room][case.call], case, device))
            except Exception as error:
                wrong = [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
            for fault in wrong:
                found.append(f'{case.title}: {fault}\n    python -m benchmarks fuzz "{family}" --seed {seed} --calls 1')
                print(found[-1], flush=True)
            count += 1
        if time.monotonic() > ends:
            break
    return count, found


def parse(
    program: str, usage: str, argv: list[str], known: Iterable[str], processes: bool = False
) -> argparse.Namespace:
    """The options of a command that compares random calls."""
    parser = command.parser(program, usage)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(known)}")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--calls", type=int, help="calls of each family")
    parser.add_argument("--seed", type=int, default=0, help="of the first call")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    if processes:
        parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args(argv)
    arguments.families = arguments.families or list(known)
    command.check_names(parser, "family", arguments.families, known)
    if arguments.calls is None and arguments.minutes == float("inf"):
        parser.error("say when to end: --minutes or --calls")
    return arguments


def main(argv: list[str]) -> int:
    if argv[:1] and argv[0] in MODES:
        return importlib.import_module(f"benchmarks.random.{MODES[argv[0]]}").main(argv[1:])
    arguments = parse("fuzz", __doc__, argv, problems.FAMILIES)
    seeds = itertools.count(arguments.seed)
    if arguments.calls is not None:
        seeds = itertools.islice(seeds, arguments.calls)
    # ATen's convolutions are the reference for cuDNN's, which by default round float32 and add in any order.
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    count, found = run(arguments.families, seeds, arguments.device, 60 * arguments.minutes)
    print(f"{count} calls on {arguments.device}, {len(found)} faults")
    return 1 if found else 0
