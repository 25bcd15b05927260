"""Shared by all demos: the folder for results, the table, and the timing."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

OUT = Path(__file__).resolve().parent / "out"
DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int64: "i64"}


def describe(argument: torch.Tensor) -> str:
    """The shape of a tensor, followed by channels_last if that is its layout."""
    channels_last = argument.dim() == 4 and argument.is_contiguous(memory_format=torch.channels_last)
    layout = " channels_last" if channels_last and not argument.is_contiguous() else ""
    return f"{tuple(argument.shape)}{layout}"


@dataclasses.dataclass(frozen=True)
class Row:
    op: str
    shape: str
    dtype: str
    error: float
    torch_us: float
    gpuopt_us: float


class Report:
    """Collects the results of the demos, which compute on ``device``."""

    def __init__(self, device: str, console: Console, folder: Path = OUT):
        self.device, self.console, self.folder = device, console, folder
        self.rows: list[Row] = []
        self._clock = None
        folder.mkdir(parents=True, exist_ok=True)

    def note(self, text: str):
        self.console.print(text, highlight=False, soft_wrap=True)

    def wrote(self, path: Path):
        self.note(f"wrote {path}")

    def compare(
        self, op: str, ours: Callable, theirs: Callable, reference: Callable, *args: torch.Tensor
    ) -> torch.Tensor:
        """Times an operator and PyTorch's on the same arguments, adds a row, and returns the operator's result.

        ``reference`` gets the arguments in float64.
        """
        out, exact = ours(*args), reference(*(arg.double() for arg in args))
        error = torch.linalg.vector_norm(out.double() - exact).item()
        if error != 0:  # the exact result may be all zeros, and 0 / 0 is NaN
            error /= torch.linalg.vector_norm(exact).item()
        torch_us, gpuopt_us = self._times(theirs, ours, args)
        shape = " * ".join(map(describe, args))
        self.rows.append(Row(op, shape, DTYPES[out.dtype], error, torch_us, gpuopt_us))
        return out

    def _times(self, theirs: Callable, ours: Callable, args: tuple) -> tuple[float, float]:
        from benchmarks.harness import timer

        if self.device == "cpu":
            statements = {"torch": "theirs(*args)", "gpuopt": "ours(*args)"}
            variables = {"theirs": theirs, "ours": ours, "args": args}
            times = timer.call_times(statements, variables, "", "", seconds=0.5)
            return 1e6 * times["torch"].median, 1e6 * times["gpuopt"].median
        if self._clock is None:
            self._clock = timer.DeviceTimer()

        def build(seed: int) -> tuple:
            return args if seed == 0 else tuple(arg.clone() for arg in args)

        moved = sum(arg.numel() * arg.element_size() for arg in args)
        times = self._clock.compare({"torch": theirs, "gpuopt": ours}, build, moved)
        for timing in times.values():
            if isinstance(timing, Exception):
                raise timing
        return times["torch"].median, times["gpuopt"].median

    def table(self) -> Table:
        clock = "call" if self.device == "cpu" else "device"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{clock} time")
        for heading in ("op", "shape", "dtype"):
            table.add_column(heading, no_wrap=True)
        for heading in ("error", "PyTorch us", "gpuopt us", "PyTorch / gpuopt"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            # On the CPU both columns time ATen's kernel, so a ratio of the two would only be noise.
            ratio = "same kernel" if self.device == "cpu" else f"{row.torch_us / row.gpuopt_us:.2f}"
            times = (f"{row.torch_us:.1f}", f"{row.gpuopt_us:.1f}")
            table.add_row(row.op, row.shape, row.dtype, f"{row.error:.1e}", *times, ratio)
        return table
