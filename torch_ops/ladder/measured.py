"""The measured steps of a ladder, and where a kernel stands among them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch_ops.ladder.step import steps as steps_of
from torch_ops.trial.text import number, table

__all__ = ["EQUAL", "YOURS", "Measured"]

YOURS = "yours"  # the learner's kernel among the times
EQUAL = 0.05  # times that differ by less are equal


@dataclass(frozen=True)
class Measured:
    """Device times of a ladder's steps and of a kernel, with the ceilings of this GPU from the same run.

    Args:
        op: The ladder.
        gpu: The name of the GPU.
        shapes: The shapes of the operands, and their numbers.
        read, written: Bytes that the problem has to move.
        operations: Arithmetic operations of the problem.
        bytes_per_us: The bandwidth of the best simple kernel with such traffic.
        pattern: Its traffic, in words.
        rates: Operations per microsecond of the arithmetic units.
        steps: Microseconds of each measured step: the median and the quartiles.
        yours: The same of the kernel.
        kernel: The name of the kernel.
    """

    op: str
    gpu: str
    shapes: list[Any]
    read: int
    written: int
    operations: int
    bytes_per_us: float
    pattern: str
    rates: dict[str, float]
    steps: dict[str, dict[str, float]]
    yours: dict[str, float] | None = None
    kernel: str = ""

    @property
    def yours_us(self) -> float:
        """The median time of the kernel, where there is one."""
        assert self.yours is not None
        return self.yours["median"]

    @property
    def memory_us(self) -> float:
        """The time in which memory can move the bytes of the problem."""
        return (self.read + self.written) / self.bytes_per_us

    @property
    def rate(self) -> float:
        """Operations per microsecond of the arithmetic that a kernel may use. float32 by tensor cores needs three products of TF32."""
        return max(self.rates["fma"], self.rates.get("tf32", 0.0) / 3 if self.op == "matmul" else 0.0)

    @property
    def ceiling_us(self) -> float:
        """The time that memory or arithmetic needs at least."""
        return max(self.memory_us, self.operations / self.rate)

    @property
    def is_bound_by_arithmetic(self) -> bool:
        return self.operations / self.rate > self.memory_us

    def share(self, us: float) -> float:
        return self.ceiling_us / us

    def speed(self, us: float) -> str:
        """TFLOP/s, or GB/s where memory is the limit."""
        if self.is_bound_by_arithmetic:
            return number(self.operations / us / 1e6)
        return number((self.read + self.written) / us / 1e3)

    def equal(self) -> list[str]:
        """The steps whose times are within 5 % of the kernel's, the nearest first."""
        apart = {name: abs(math.log(time["median"] / self.yours_us)) for name, time in self.steps.items()}
        return sorted((name for name in apart if apart[name] <= math.log1p(EQUAL)), key=apart.__getitem__)

    def next(self) -> str | None:
        """The first faster step above the ones that the kernel equals. Above no equal step, the first one that is faster."""
        names = list(self.steps)
        reached = max(map(names.index, self.equal()), default=-1)
        faster = (name for name in names[reached + 1 :] if self.steps[name]["median"] < self.yours_us)
        return next(faster, None)

    def lines(self) -> list[str]:
        """The table of the ladder, with the kernel behind the step that is nearest."""
        numbers = {step.name: step.number for step in steps_of(self.op)}
        unit = "TFLOP/s" if self.is_bound_by_arithmetic else "GB/s"
        rows = [["step", "us", unit, "of the ceiling"]]
        entries = [(f"{numbers[name]} {name}", time) for name, time in self.steps.items()]
        if self.yours:
            at = sum(time["median"] >= self.yours_us for _, time in entries)
            equal = self.equal()
            at = list(self.steps).index(equal[0]) + 1 if equal else at
            entries.insert(at, (f"> {self.kernel}", self.yours))
        for label, time in entries:
            us = time["median"]
            rows.append([label, number(us), self.speed(us), f"{self.share(us):.1%}"])
        return table(rows)

    def title(self) -> str:
        shapes = ", ".join(str(tuple(x) if isinstance(x, list) else x) for x in self.shapes)
        limit = f"{self.bytes_per_us / 1e3:.0f} GB/s ({self.pattern})"
        if self.is_bound_by_arithmetic:
            limit = f"{self.rate / 1e6:.0f} TFLOP/s"
        moved = f"{(self.read + self.written) / 1e6:.0f} MB"
        return f"{self.op} of {shapes}, {moved}; {self.gpu}; ceiling {limit}, measured in this run"

    def standing(self) -> list[str]:
        """Which step the kernel equals, and what the next one would change."""
        known = {step.name: step for step in steps_of(self.op)}
        us, equal, after = self.yours_us, self.equal(), self.next()
        said = []
        if equal:
            first, *others = equal
            apart = abs(self.steps[first]["median"] / us - 1)
            said.append(f"It equals step {known[first].number} {first} ({apart:.1%} apart).")
            if others:
                names = ", ".join(f"{known[name].number} {name}" for name in others)
                said.append(f"Also within {EQUAL:.0%}: {names}.")
        else:
            slower = sum(time["median"] > us for time in self.steps.values())
            said.append(f"It equals no step. Of {len(self.steps)} steps {slower} are slower.")
        if after is None:
            said.append(f"No later step is faster by {EQUAL:.0%}.")
        else:
            gain, step = us / self.steps[after]["median"], known[after]
            said.append(f"Next: step {step.number} {after} is {gain:.2f} times as fast. Its idea: {step.idea}.")
        return said
