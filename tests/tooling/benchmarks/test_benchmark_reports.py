"""Benchmark results as JSON, tables and pictures, and the command that makes them."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.harness import ceilings, machine, report
from benchmarks.harness.command import NO_GPU
from benchmarks.harness.peers import Peer
from benchmarks.harness.room import CallTime, Room, run_room
from benchmarks.publish import show
from benchmarks.publish.plots import rooms as rooms_plots
from benchmarks.rooms import conv1d as bench_conv1d
from benchmarks.rooms import index_add as bench_index_add
from benchmarks.rooms import measure as command
from benchmarks.rooms import reduce as bench_reduce
from benchmarks.rooms import rooms

from ...support.benchmark_fakes import (
    CONV1D,
    DOT,
    ELEMENTWISE,
    GPU,
    INDEX_ADD,
    REDUCE,
    TINY,
    TINY_CALL,
    FakeTimer,
    absent,
    rendered,
    synthetic,
    two_vectors,
)

REPOSITORY = Path(__file__).resolve().parents[3]

# ---------------------------------------------------------------- JSON, tables, pictures


def test_json_round_trip(tmp_path):
    result = synthetic()
    path = tmp_path / "deep" / "elementwise.json"
    report.save(path, result)
    assert report.load(path) == report.rounded(result)
    assert path.read_text().count("\n  {") == sum(len(part) for part in result.values() if isinstance(part, list))
    assert report.rounded({"us": 123.456, "args": [1.23456], "bytes": 123456}) == {
        "us": 123.5,
        "args": [1.23456],
        "bytes": 123456,
    }
    assert [p.name for p in path.parent.iterdir()] == ["elementwise.json"]
    assert {"date", "gpu", "versions", "source", "settings", "ceilings", "rows", "call_times"} <= set(result)


def test_committed_results_have_a_line_for_each_row():
    """And numbers with four digits. A result of another form was not written by report.save."""
    paths = [*machine.RESULTS.glob("*/*.json"), *machine.RESULTS.glob("*/ladder/*.json")]
    assert len(paths) > 20 and [path for path in paths if path.read_text() != report.text(report.load(path))] == []


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 0}', None])
def test_what_is_not_a_result_is_refused_with_a_sentence(tmp_path, text, capsys):
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    assert show.main([str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_tables_show_every_case_and_call():
    result = synthetic()
    result["rows"][0]["contenders"]["ATen"]["us"]["q3"] *= 1.1
    text = rendered(result)
    for case in ELEMENTWISE.values():
        assert f"\n| {case.name} | {case.dtype} | " in text
    for row in result["call_times"]:
        assert f"call time in us, {row['op']}, {row['name']}: gpuopt 6.00 ± 0.10" in text
    assert "CuPy missing: CuPy has no bfloat16" in text
    row = result["rows"][0]
    assert f"the host did not keep up: {row['case']} {row['dtype']} ATen\n" in text


def test_a_sweep_names_its_worst_point():
    result = synthetic([case for case in REDUCE.values() if case.op == "sum-grid"], bench_reduce.ROOM)
    slow = result["rows"][30]["contenders"]["gpuopt"]
    slow["us"]["median"] *= 3
    result["rows"][40]["contenders"]["gpuopt"] = {"status": "failed", "reason": "no kernel"}
    text = rendered(result)
    assert "worst beside ATen: 0.33 (2^4 x 2^21 dim 1 bf16); below 0.99 in 1 of 104" in text
    assert "gpuopt failed: no kernel" in text


def test_of_a_sample_the_worst_are_listed():
    sample = [case for case in CONV1D.values() if case.op == "conv1d-forward-sample"]
    result = synthetic(sample, bench_conv1d.ROOM)
    rows = result["rows"]
    for position, row in enumerate(rows):
        row["contenders"]["ATen"]["us"]["median"] = (position + 10) / 40 * row["contenders"]["gpuopt"]["us"]["median"]
    rows[149]["contenders"]["gpuopt"] = {"status": "failed", "reason": "no kernel"}
    text = rendered(result)
    assert [row for row in rows if f"\n| {row['case']} | {row['dtype']} |" in text] == rows[: report.LISTED]
    assert f"worst beside ATen: 0.25 ({rows[0]['case']} f32); below 0.99 in 30 of 150" in text
    assert rows[0]["point"]["curve"] == "depthwise f32" and "gpuopt failed: no kernel" in text
    alike = sum(row["point"]["curve"] == "depthwise f32" for row in rows)
    assert f"| depthwise f32 | {alike} | 0.25 |" in text and "| few channels f16 | " in text


def test_a_variant_of_gpuopt_is_no_peer_but_may_fail():
    case = next(case for case in INDEX_ADD.values() if case.op == "index_add-skew")
    result = synthetic([case], bench_index_add.ROOM)
    (row,) = result["rows"]
    variant = row["contenders"]["gpuopt deterministic"]
    variant["us"]["median"] = 0.125
    assert report.best_peer(row)[0] == "ATen" and " 0.12 " in rendered(result) and report.failures(result) == []
    row["contenders"]["gpuopt deterministic"] = {"status": "wrong", "reason": "error 1"}
    (failure,) = report.failures(result)
    assert (
        failure == f"{case.title}: gpuopt deterministic: error 1"
        and "gpuopt deterministic wrong: error 1" in rendered(result)
    )


def test_a_sweep_in_time_is_drawn_beside_the_time_at_the_ceiling():
    cases = [case for case in INDEX_ADD.values() if case.op == "index_add-skew"]
    rows = synthetic(cases, bench_index_add.ROOM)["rows"]
    for axes, curve in zip(rooms_plots._curves(rows).axes, ("f32", "bf16"), strict=True):
        points = [row for row in rows if row["dtype"] == curve]
        *lines, bound = axes.get_lines()
        assert [len(line.get_xdata()) for line in lines] == [10, 10, 10] and axes.get_yscale() == "log"
        times = [row["contenders"]["gpuopt"]["us"]["median"] for row in points]
        assert lines[-1].get_ydata().tolist() == pytest.approx(times)
        bytes_moved = [row["read_bytes"] + row["written_bytes"] for row in points]
        gbps = [row["ceiling"]["gbps"] for row in points]
        assert bound.get_ydata().tolist() == pytest.approx([n / rate / 1e3 for n, rate in zip(bytes_moved, gbps)])
        assert axes.get_ylabel() == "us" and [t.get_text() for t in axes.get_xticklabels()][::9] == ["0", "all equal"]


# Bars, sweeps and a random sample, with cases that have no times.
PICTURES = (
    ("dot", lambda case: case.op in ("dot", "dot-small"), ["dot", "small"]),
    ("conv1d", lambda case: case.op == "conv1d-forward-sample", ["forward-sample"]),
    ("reduce", lambda case: case.title in ("sum 2^25 f32", "sum-grid 2^3 x 2^22 dim 1 f32"), ["sum", "sum-grid"]),
)


@pytest.mark.parametrize(("room", "chosen", "expected"), PICTURES, ids=[name for name, *_ in PICTURES])
def test_plots_come_from_the_json_alone(tmp_path, room, chosen, expected):
    result = synthetic([case for case in rooms()[room].cases if chosen(case)], rooms()[room])
    if room == "reduce":
        for row in result["rows"]:
            row["ceiling"] = None
            row["contenders"] = {name: {"status": "failed", "reason": "no kernel"} for name in row["contenders"]}
    path = tmp_path / f"{room}.json"
    report.save(path, result)
    assert show.main(["--plots", str(tmp_path), str(path)]) == 0
    assert sorted(p.stem.removeprefix(f"{room}-") for p in tmp_path.glob("*.png")) == expected
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in tmp_path.glob("*.png"))


# ---------------------------------------------------------------- the command


def test_without_a_gpu_it_says_so_in_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "mul"],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.strip() == f"benchmarks: {NO_GPU}"


@pytest.mark.parametrize(
    ("argv", "names", "wanted"),
    [
        ([], sorted(rooms()), lambda case: True),
        (["dot"], ["dot"], lambda case: case.title in DOT),
        (["dot_rows"], ["dot_rows"], lambda case: case.op == "dot_rows"),
        (["fma", "axpy"], ["axpy-fma"], lambda case: case.op in ("axpy", "fma")),
        (["mul", "sum"], ["mul", "sum"], lambda case: case.op in ("mul", "sum")),
        (["reduce", "--quick"], ["reduce.quick"], lambda case: case.title in REDUCE and case.headline),
        (
            ["--cases", "NHWC.*bf16"],
            ["elementwise.some", "norm_channels.some", "reduce.some", "transpose.some"],
            lambda case: "NHWC" in case.name and case.dtype == "bf16",
        ),
    ],
)
def test_selection_and_name_of_the_result(argv, names, wanted):
    args = command.parse(argv)
    assert [command.stem(room, args) for room, _ in args.chosen] == names
    chosen = [case for _, cases in args.chosen for case in cases]
    assert chosen == [case for _, room in sorted(rooms().items()) for case in room.cases if wanted(case)]


def test_a_run_from_start_to_files(tmp_path, monkeypatch, capsys):
    """The whole command, on the CPU, with a made-up clock."""
    monkeypatch.setattr(machine, "gpu", lambda: GPU)
    monkeypatch.setattr(ceilings, "measure", lambda *args: synthetic([])["ceilings"])

    def too_large(device, seed):
        if device != "meta":
            raise torch.OutOfMemoryError("no")
        return two_vectors(device, seed)

    statements = {"gpuopt": "x * 2", "ATen": "x + x"}
    room = Room(
        name="elementwise",
        cases=[TINY, dataclasses.replace(TINY, name="huge", build=too_large)],
        calls=lambda: {"mul": TINY_CALL},
        call_times=[CallTime("mul", "no grad", statements, lambda device: {"x": torch.ones(4, device=device)})],
        peers=(Peer("absent", absent),),
    )
    path = tmp_path / "elementwise.quick.json"
    report.show(run_room(room, tuple(room.cases), FakeTimer(), path, "cpu", quick=True))
    result = json.loads(path.read_text())
    assert result["complete"] and [row["case"] for row in result["rows"]] == ["tiny"]
    assert set(result["call_times"][0]["contenders"]) == {"gpuopt", "ATen"}
    assert result["left_out"] == ["mul huge f32: this GPU has too little memory"]
    text = capsys.readouterr().out
    assert "left out: mul huge f32" in text and "absent missing: it is not installed" in text and "call time" in text
