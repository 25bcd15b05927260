"""What became of the calls of modules."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_ops._cuda_graph.runtime import runtimes

__all__ = ["Report", "Row", "cuda_graph_report"]


@dataclass(frozen=True)
class Row:
    """One signature of a module, or calls without a signature.

    Args:
        module: The name of the module.
        signature: Shapes and dtypes of its tensors, and modes. "" for calls that were not looked at.
        status: ``"recorded"``, ``"eager"`` (not seen often enough), ``"declined"`` or ``"forgotten"`` (several signatures that are
            recorded anew when they come again).
        reason: Why it was declined, or "".
        calls: All calls.
        replays: The calls that were replayed.
        eager_ms, replay_ms: Milliseconds of an eager call and of a replay, forward and backward, or None.
        recording_ms: Milliseconds that observing, recording, comparing and measuring took, or None.
        bytes: Memory that was reserved for it.
    """

    module: str
    signature: str
    status: str
    reason: str
    calls: int
    replays: int
    eager_ms: float | None = None
    replay_ms: float | None = None
    recording_ms: float | None = None
    bytes: int = 0


@dataclass(frozen=True)
class Report:
    """The signatures of all modules that :func:`torch_ops.cuda_graph` was given.

    Args:
        rows: A row for each signature, in the order of modules.
    """

    rows: list[Row]

    @property
    def replays(self) -> int:
        """The number of calls that were replayed."""
        return sum(row.replays for row in self.rows)

    def __str__(self) -> str:
        if not self.rows:
            sees = "a GPU" if torch.cuda.is_available() else "no GPU"
            return f"No module of torch_ops.cuda_graph was called. Only calls on a GPU are recorded, and torch sees {sees}."
        table = [["module", "signature", "status", "calls", "replays", "eager ms", "replay ms", "MiB", "reason"]]
        for row in self.rows:
            numbers = [_number(row.eager_ms), _number(row.replay_ms), f"{row.bytes / 2**20:.0f}" if row.bytes else "-"]
            table.append(
                [row.module, row.signature, row.status, str(row.calls), str(row.replays), *numbers, row.reason]
            )
        widths = [max(map(len, column)) for column in zip(*table)]
        right = range(3, 8)
        lines = (
            "  ".join(
                cell.rjust(width) if i in right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(cells, widths))
            )
            for cells in table
        )
        return "\n".join(line.rstrip() for line in lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def cuda_graph_report() -> Report:
    """What became of the calls of each module that :func:`torch_ops.cuda_graph` was given, and of the modules below it.

    Returns:
        The signatures, as :attr:`Report.rows`. ``print()`` shows them as a table. A signature is ``recorded``, ``declined`` with a
        reason, or ``eager`` until it comes a second time. Milliseconds are of one call, forward and backward pass.

    Example::

        print(torch_ops.cuda_graph_report())
    """
    rows = []
    for runtime in sorted(runtimes, key=lambda runtime: runtime.number):
        for entry in list(runtime.entries.values()):
            times = entry.measured
            rows.append(
                Row(
                    runtime.name,
                    entry.name,
                    entry.status(),
                    entry.reason,
                    entry.calls,
                    entry.replays,
                    times and 1e3 * times.eager,
                    times and 1e3 * times.replay,
                    times and 1e3 * times.recording,
                    entry.bytes,
                )
            )
        if runtime.past.calls:
            rows.append(
                Row(
                    runtime.name,
                    "",
                    "forgotten",
                    "its state has changed, or it was not used",
                    runtime.past.calls,
                    runtime.past.replays,
                )
            )
        for reason, calls in runtime.ways.items():
            rows.append(Row(runtime.name, "", "declined", reason, calls, 0))
    return Report(rows)
