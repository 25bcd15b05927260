"""A made-up clock, a made-up result and a tiny case, for testing the benchmarks where there is no GPU."""

import contextlib
import dataclasses
import io

import torch

from benchmarks.harness import ceilings, machine, operands, report, timer
from benchmarks.harness.peers import ATEN, OURS, Missing, Setting
from benchmarks.harness.room import Call, Case, Room
from benchmarks.harness.traffic import traffic
from benchmarks.rooms import conv1d as bench_conv1d
from benchmarks.rooms import dot as bench_dot
from benchmarks.rooms import elementwise as bench_elementwise
from benchmarks.rooms import index_add as bench_index_add
from benchmarks.rooms import reduce as bench_reduce
from benchmarks.rooms import transpose as bench_transpose
from benchmarks.rooms import upsample as bench_upsample

GPU = {"name": "Test GPU", "capability": "9.0", "multiprocessors": 1, "l2_bytes": 1, "memory_bytes": 1, "driver": None}
CONV1D = {case.title: case for case in bench_conv1d.ROOM.cases}
DOT = {case.title: case for case in bench_dot.ROOM.cases}
ELEMENTWISE = {case.title: case for case in bench_elementwise.ROOM.cases}
INDEX_ADD = {case.title: case for case in bench_index_add.ROOM.cases}
REDUCE = {case.title: case for case in bench_reduce.ROOM.cases}
TRANSPOSE = {case.title: case for case in bench_transpose.ROOM.cases}
UPSAMPLE = {case.title: case for case in bench_upsample.ROOM.cases}


class FakeTimer:
    """Runs every contender once and reports made-up times, each 10% longer than the previous contender's."""

    flush_bytes, budget_us = 1 << 20, 1e3

    def compare(self, contenders, build, case_bytes):
        results = {}
        for position, (name, call) in enumerate(contenders.items()):
            try:
                call(*build(position))
            except Exception as error:
                results[name] = error
                continue
            results[name] = timer.summarise([100.0 * 1.1**position] * 5, "fake")
        return results

    def free_bytes(self):
        return 1 << 40

    def release_memory(self):
        pass


CPU = Setting(FakeTimer(), "cpu", tune=False)


def two_vectors(device, seed):
    if device == "meta":
        return torch.empty(64, device="meta"), torch.empty(64, device="meta")
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(64, generator=generator), torch.randn(64, generator=generator)


def double_mul(x, y):
    return x.double() * y.double()


TINY = Case("mul", "mul", "tiny", "f32", two_vectors, headline=True)
TINY_CALL = Call(torch.mul, torch.mul, double_mul)


def synthetic(cases: list[Case] | None = None, room: Room = bench_elementwise.ROOM) -> dict:
    """A complete result of a room, or of some cases, with made-up times."""
    result = report.document(room.name, GPU, machine.versions(), machine.commit(None), None, {})
    result["date"] = "2026-01-02T03:04:05+00:00"
    result["complete"] = True
    result["ceilings"] = [
        {
            "size": size, "pattern": pattern, "gbps": gbps - 100 * position, "bytes": 1, "us": 1.0,
            "by": "Triton 2048x4", "failed": [],
        }
        for position, size in enumerate(reversed(ceilings.SIZES))
        for pattern, gbps in (("read", 4592.0), ("two reads, one write", 4360.0), ("copy", 4200.0), ("write", 4638.0))
    ]  # fmt: skip
    calls = room.calls()
    for number, case in enumerate(room.cases if cases is None else cases):
        read, written = traffic(case, calls[case.call])
        contenders = {}
        for peer in (OURS, ATEN, *(room.peers if case.peers is None else case.peers)):
            name = peer.name
            slower = {"gpuopt": 1.0, "ATen": 1.0 + number % 5 / 3, "Inductor": 1.05}.get(name, 1.3)
            us = 2.0 + (read + written) / (4300.0 - 20 * (number % 7)) / 1e3 * slower
            contenders[name] = {
                "status": "ok",
                "detail": "",
                "error": 2.5e-8,
                "us": dataclasses.asdict(timer.summarise([us, us * 1.01, us * 0.99], "events, L2 flushed")),
                "gbps": (read + written) / us / 1e3,
            }
            if name.startswith("CuPy") and case.dtype == "bf16":
                contenders[name] = {"status": "missing", "reason": "CuPy has no bfloat16"}
        result["rows"].append(
            {
                "op": case.op,
                "case": case.name,
                "dtype": case.dtype,
                "args": operands.described(case.build("meta", 0), case.dtype),
                "headline": case.headline,
                "point": dataclasses.asdict(case.point) if case.point else None,
                "read_bytes": read,
                "written_bytes": written,
                "ceiling": ceilings.pick(result["ceilings"], read, written),
                "contenders": contenders,
            }
        )
    result["call_times"] = [
        {
            "op": row.op,
            "name": row.name,
            "contenders": {
                name: {"median": 6.0 + position, "iqr": 0.2, "samples": 9}
                for position, name in enumerate(row.statements)
            },
        }
        for row in room.call_times
    ]
    return result


def rendered(result) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        report.show(result)
    return out.getvalue()


def absent(call, case, setting):
    """The ``prepare`` of a peer that is not installed."""
    raise Missing("it is not installed")
