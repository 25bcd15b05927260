"""Hardware counters of a kernel, by Nsight Compute (ncu), and what they say of a slow kernel."""

from __future__ import annotations

import csv
import shutil
from dataclasses import dataclass

from torch_ops.ladder.measured import Measured

__all__ = ["Counters", "command", "of_output"]

_TIME = "gpu__time_duration.sum"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
_SECTOR = 32  # bytes
_REREAD, _UNUSED = 1.25, 20.0


@dataclass(frozen=True)
class Counters:
    """Counters of a call.

    Args:
        read, written: Bytes of DRAM, of all kernels.
        loaded, stored: The bytes that a warp uses of each 32-byte sector, of the longest kernel. None if it has no such access.
    """

    read: float
    written: float
    loaded: float | None
    stored: float | None

    def reasons(self, measured: Measured) -> list[str]:
        """Why the kernel is slow, in sentences."""
        said = []
        for name, verb, moved, needed in (
            ("rereads", "reads", self.read, measured.read), ("rewrites", "writes", self.written, measured.written),
        ):  # fmt: skip
            if needed > 1 << 20 and moved > _REREAD * needed:
                said.append(
                    f"Slow, {name}: it {verb} {moved / 1e6:.0f} MB of memory, and the problem needs {needed / 1e6:.0f} MB."
                )
        for verb, used in (("load", self.loaded), ("store", self.stored)):
            if used is not None and used < _UNUSED:
                said.append(
                    f"Slow, uncoalesced: a warp's {verb}s use {used:.0f} of the {_SECTOR} bytes of each sector."
                )
        return said


def command() -> list[str] | None:
    """The words in front of the command that is profiled. None without ncu."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return None
    metrics = ",".join((_TIME, _READ, _WRITTEN, _USED.format("ld"), _USED.format("st")))
    options = "--clock-control none --profile-from-start off --csv --page raw --print-units base --metrics"
    return [ncu, *options.split(), metrics]


def of_output(lines: list[str]) -> Counters | None:
    """The counters in ncu's output. Other lines surround its list, and the second line of the list has the units."""
    kernels = list(csv.DictReader(line for line in lines if line.startswith('"')))[1:]
    if not kernels or any(name not in kernels[0] for name in (_TIME, _READ, _WRITTEN)):
        return None

    def total(name: str) -> float:
        return sum(_number(kernel[name]) or 0.0 for kernel in kernels)

    longest = max(kernels, key=lambda kernel: _number(kernel[_TIME]) or 0.0)
    # A kernel without such accesses has a ratio of 0.
    loaded, stored = (_number(longest.get(_USED.format(name), "")) or None for name in ("ld", "st"))
    return Counters(total(_READ), total(_WRITTEN), loaded, stored)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
