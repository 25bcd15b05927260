"""The lesson of latency: the bandwidth of a copy depends on the bytes that it has in flight, whichever threads they belong to.

By Little's law a memory with latency L reaches at most (bytes in flight) / L, until it is busy. L comes from the slowest copy: one
warp on each SM, with one load at a time. It predicts the knee of the curve, the number of bytes in flight at which the memory is busy.
"""

import itertools

import torch

from benchmarks.harness import report
from benchmarks.harness.operands import Maker
from benchmarks.harness.room import Call, Case, Room

OP = "copy_in_flight"
VALUES = 1 << 25  # f32
ACCESS_BYTES, LOADS, WARPS = (4, 8, 16), (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64)
# The most bytes in flight on an SM. They arrive in registers, and an SM has 256 KiB of them: if values fill more than half, not all
# warps are resident at once.
MOST_BYTES = 128 << 10


def bytes_in_flight(access_bytes: int, loads: int, warps: int) -> int:
    """Bytes in flight on one SM."""
    return access_bytes * loads * warps * 32


def _name(access_bytes: int, loads: int, warps: int) -> str:
    return f"{access_bytes} bytes x {loads} loads x {warps} warps"


def _shape(row: dict) -> tuple[int, int, int]:
    return tuple(row["args"][1:])


def _case(shape: tuple[int, int, int]) -> Case:
    def build(device: str, seed: int) -> tuple:
        return Maker(device, torch.float32, seed, uniform=True)(VALUES), *shape

    return Case(OP, OP, _name(*shape), "f32", build, headline=True, peers=())


def _calls() -> dict[str, Call]:
    def clone(x, *shape):
        return x.clone()

    return {OP: Call(torch.ops.gpuopt_ladder.copy_in_flight.default, clone, clone)}


def room() -> Room:
    shapes = itertools.product(ACCESS_BYTES, LOADS, WARPS)
    return Room(OP, [_case(shape) for shape in shapes if bytes_in_flight(*shape) <= MOST_BYTES], _calls, [], ())


# ---------------------------------------------------------------- results


def measured(result: dict) -> list[tuple[int, float, tuple[int, int, int]]]:
    """(bytes in flight on an SM, GB/s read and written, shape) of every copy that has a time, in ascending order."""
    found = []
    for row in result["rows"]:
        entry = row["contenders"]["gpuopt"]
        if "gbps" in entry:
            found.append((bytes_in_flight(*_shape(row)), entry["gbps"], _shape(row)))
    return sorted(found)


def latency_us(result: dict) -> float | None:
    """The time of a load and of the store that waits for it, from the copy with the fewest bytes in flight."""
    found = measured(result)
    if not found:
        return None
    least, gbps, _ = found[0]
    return least * result["gpu"]["multiprocessors"] / (gbps / 2) / 1e3


def knee(result: dict) -> float | None:
    """The bytes in flight on an SM from which on the memory is busy, as latency and ceiling predict."""
    latency, most = latency_us(result), ceiling(result)
    return latency * 1e3 * (most / 2) / result["gpu"]["multiprocessors"] if latency and most else None


def ceiling(result: dict) -> float | None:
    row = result["rows"][0] if result["rows"] else {}
    return row["ceiling"]["gbps"] if row.get("ceiling") else None


def predicted(result: dict, in_flight: float) -> float:
    """GB/s, read and written, by Little's law up to the ceiling."""
    return min(2 * in_flight * result["gpu"]["multiprocessors"] / (latency_us(result) * 1e3), ceiling(result))


def table(result: dict) -> list[str]:
    """For each number of bytes in flight, the slowest and the fastest copy."""
    lines = ["| bytes in flight | copies | slowest GB/s | fastest GB/s | predicted | fastest |", "|---:" * 5 + "|---|"]
    for in_flight, group in itertools.groupby(measured(result), key=lambda entry: entry[0]):
        copies = sorted(group, key=lambda entry: entry[1])
        expected = f"{predicted(result, in_flight):.0f}" if ceiling(result) else "-"
        _, most, shape = copies[-1]
        lines.append(
            f"| {in_flight} | {len(copies)} | {copies[0][1]:.0f} | {most:.0f} | {expected} | {_name(*shape)} |"
        )
    return lines


def sentence(result: dict) -> str:
    latency, place = latency_us(result), knee(result)
    if latency is None or place is None:
        return "No copy was measured."
    most = max(gbps for _, gbps, _ in measured(result))
    enough = next(in_flight for in_flight, gbps, _ in measured(result) if gbps >= 0.95 * most)
    return (
        f"A load and its store take {1e3 * latency:.0f} ns if nothing else is in flight. By Little's law {ceiling(result):.0f} GB/s, "
        f"read and written, need {place / 1024:.1f} KiB in flight on each SM. 95% of the fastest copy's {most:.0f} GB/s was first reached "
        f"with {enough / 1024:.1f} KiB."
    )


def show(result: dict):
    print(*table(result), sentence(result), *report.failures(result), sep="\n")
