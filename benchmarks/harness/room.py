"""The classes of a room, a case and a call, and the functions that measure a room as a result and a case as one of its rows."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.harness import ceilings, report
from benchmarks.harness.operands import described
from benchmarks.harness.peers import ATEN, OURS, Missing, Peer, Setting
from benchmarks.harness.timer import call_times
from benchmarks.harness.traffic import results, traffic


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """||out - reference|| / ||reference||, computed in float64 or complex128.

    Values beyond the range of ``out``'s dtype, infinities included, count as the largest value in it.
    """
    wide = torch.complex128 if reference.is_complex() else torch.float64
    result, expected = out.to(wide), reference.to(wide)
    if out.dtype.is_floating_point:
        most = torch.finfo(out.dtype).max
        result, expected = result.clamp(-most, most), expected.clamp(-most, most)
    difference = torch.linalg.vector_norm(result - expected).item()
    scale = torch.linalg.vector_norm(expected).item()
    return difference / scale if scale else difference


def error_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The largest error of a correct contender: four times ATen's error, or one ulp of the dtype."""
    unit = torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0
    return max(4.0 * (aten_error or 0.0), unit)


@dataclasses.dataclass(frozen=True)
class Call:
    """One way to call an operator.

    Args:
        ours, aten, reference: functions of the same arguments. ``reference`` computes in float64 and writes nothing.
        kind: "new" (the results are new tensors), "inplace" (the first argument is read and written) or "out" (the last argument is
            written and not read).
        cupy: the name of the CuPy function that computes the same, if there is one.
        limit: a function of the dtype and of ATen's error. A contender with a larger error is wrong.
        gpuopt_limit: the limit for gpuopt, where it promises more than its peers.
        has_aten: False if ``aten`` is only a specification, too slow to be timed.
        reads: gives the tensors whose elements must be read, if these are not all elements of every operand.
    """

    ours: Callable
    aten: Callable
    reference: Callable
    kind: str = "new"
    cupy: str | None = None
    limit: Callable[[torch.dtype, float | None], float] = error_limit
    gpuopt_limit: Callable[[torch.dtype, float | None], float] | None = None
    has_aten: bool = True
    reads: Callable[..., tuple] | None = None


@dataclasses.dataclass(frozen=True)
class Point:
    """A case's point in the plot of a sweep: its curve, and its position on the x axis.

    ``label`` is written on the axis instead of the number. ``unit`` is the unit of the y axis: "GB/s", "us" (logarithmic) or
    report.RATIO. With report.RATIO the cases are a sample: the points are not joined, and tables list the worst of them.
    """

    curve: str
    axis: str
    x: float
    label: str = ""
    unit: str = "GB/s"


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of shapes, strides and dtypes. ``build(device, seed)`` makes new random arguments.

    Documents quote the ``headline`` cases, and ``--quick`` runs no others. ``peers`` replaces the room's peers, except ATen.
    ``moved`` gives the bytes read and written, if they depend on values and not on shapes alone. ``flops`` are the floating-point
    operations of a case that arithmetic limits and not memory: it has no ceiling.
    """

    op: str
    call: str
    name: str
    dtype: str
    build: Callable[[str, int], tuple]
    headline: bool = False
    peers: tuple[Peer, ...] | None = None
    point: Point | None = None
    moved: Callable[[], tuple[int, int]] | None = None
    flops: int | None = None

    @property
    def title(self) -> str:
        return f"{self.op} {self.name} {self.dtype}"


@dataclasses.dataclass(frozen=True)
class CallTime:
    """Statements that do the same, one for each contender, for the table of call times."""

    op: str
    name: str
    statements: dict[str, str]
    variables: Callable[[str], dict]


@dataclasses.dataclass(frozen=True)
class Room:
    """All benchmarks of one room. ``calls`` is a function, so that listing and plotting work before the library is built."""

    name: str
    cases: list[Case]
    calls: Callable[[], dict[str, Call]]
    call_times: list[CallTime]
    peers: tuple[Peer, ...]

    @property
    def ops(self) -> list[str]:
        return list(dict.fromkeys(case.op for case in self.cases))


def reason(error: BaseException) -> str:
    """The first line of an error, short enough for a table's footnote."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


def run_case(case: Case, call: Call, peers: tuple[Peer, ...], setting: Setting, measured_ceilings: list[dict]) -> dict:
    """Checks and times all contenders of a case. For a contender that cannot run, the row has the reason."""
    read, written = traffic(case, call)
    entries: dict[str, dict] = {}
    ready: dict[str, Callable] = {}
    standard = (OURS, ATEN) if call.has_aten else (OURS,)
    for peer in (*standard, *(peers if case.peers is None else case.peers)):
        try:
            ready[peer.name], detail = peer.prepare(call, case, setting)
            entries[peer.name] = {"status": "ok", "detail": detail}
        except Missing as missing:
            entries[peer.name] = {"status": "missing", "reason": str(missing)}
        except Exception as error:
            entries[peer.name] = {"status": "failed", "reason": reason(error)}
    _check(case, call, ready, entries, setting.device)
    ready = {name: contender for name, contender in ready.items() if entries[name]["status"] == "ok"}
    timings = setting.timer.compare(ready, lambda seed: case.build(setting.device, seed), read + written)
    for name, timing in timings.items():
        if isinstance(timing, Exception):
            entries[name].update(status="failed", reason=reason(timing))
        else:
            entries[name].update(us=dataclasses.asdict(timing), gbps=(read + written) / timing.median / 1e3)
    return {
        "op": case.op,
        "case": case.name,
        "dtype": case.dtype,
        "args": described(case.build("meta", 0), case.dtype),
        "headline": case.headline,
        "point": dataclasses.asdict(case.point) if case.point else None,
        "read_bytes": read,
        "written_bytes": written,
        "flops": case.flops,
        "ceiling": None if case.flops else ceilings.pick(measured_ceilings, read, written),
        "contenders": entries,
    }


def _check(case: Case, call: Call, ready: dict[str, Callable], entries: dict[str, dict], device: str):
    """Writes each contender's error against the float64 reference into its entry, and marks wrong contenders."""
    references = results(call.reference(*case.build(device, 0)))
    dtype = None
    for name, contender in ready.items():
        try:
            found = results(contender(*case.build(device, 0)))
            errors = [relative_error(out, reference) for out, reference in zip(found, references, strict=True)]
            # NaN counts as the largest error.
            entries[name]["error"] = max(errors, key=lambda error: (error != error, error))
            dtype = found[0].dtype
        except Exception as error:
            entries[name].update(status="failed", reason=reason(error))
    for name in ready:
        error = entries[name].get("error")
        limit = call.gpuopt_limit if name == OURS.name and call.gpuopt_limit is not None else call.limit
        # "not <=" and not ">", so that an error of NaN counts as wrong.
        if error is not None and not error <= limit(dtype, entries.get(ATEN.name, {}).get("error")):
            entries[name].update(status="wrong", reason=f"error {error:.1e} against float64")


def run_cases(result: dict, path: Path, cases: list[tuple[Case, Call, tuple[Peer, ...]]], setting: Setting) -> None:
    """Appends a row for every case. The result is saved after each, so a run that is stopped keeps its rows."""
    for number, (case, call, peers) in enumerate(cases, 1):
        began = time.perf_counter()
        try:
            row = run_case(case, call, peers, setting, result["ceilings"])
        except torch.OutOfMemoryError:
            result["left_out"].append(f"{case.title}: this GPU has too little memory")
            continue
        finally:
            setting.timer.release_memory()
        result["rows"].append(row)
        report.save(path, result)
        print(_line(number, len(cases), case, row, time.perf_counter() - began), flush=True)


def run_room(
    room: Room,
    cases: tuple[Case, ...],
    timer,
    path: Path,
    device: str = "cuda",
    *,
    quick: bool = False,
    chosen: str | None = None,
    commit: str | None = None,
    resume: bool = False,
) -> dict:
    """Measures the cases of one room. ``chosen`` is the expression that chose the cases, if one did; then no call times are measured."""
    calls = room.calls()
    settings = {"quick": quick, "cases": chosen, "flush_bytes": timer.flush_bytes, "budget_us": timer.budget_us}
    result = report.fresh(room.name, settings, commit)
    needed = [sum(traffic(case, calls[case.call])) for case in cases]
    timed = [row for row in room.call_times if row.op in {case.op for case in cases}] if not chosen else []
    if resume:
        result = report.resumed(path, result)
        cases = tuple(case for case in cases if not report.has(result, case))
        found = {(row["op"], row["name"]) for row in result["call_times"]}
        timed = [row for row in timed if (row.op, row.name) not in found]
    result["ceilings"] = ceilings.measure(timer, ceilings.classes_for(needed, timer.free_bytes()), device, quick)
    setting = Setting(timer, device, tune=not quick)
    run_cases(result, path, [(case, calls[case.call], room.peers) for case in cases], setting)
    for row in timed:
        seconds = 0.2 if quick else 0.6
        times = call_times(row.statements, row.variables(device), "call time", f"{row.op}, {row.name}", seconds)
        contenders = {
            name: {"median": 1e6 * m.median, "iqr": 1e6 * m.iqr, "samples": len(m.times)} for name, m in times.items()
        }
        result["call_times"].append({"op": row.op, "name": row.name, "contenders": contenders})
        report.save(path, result)
    result["complete"] = True
    report.save(path, result)
    print(f"wrote {path}")
    return result


def _line(number: int, total: int, case: Case, row: dict, seconds: float) -> str:
    times = [
        f"{name} {entry['us']['median']:.2f}" if entry["status"] == "ok" else f"{name} {entry['status']}"
        for name, entry in row["contenders"].items()
    ]
    return f"[{number}/{total}] {case.title}: {', '.join(times)} us  ({seconds:.1f} s)"
